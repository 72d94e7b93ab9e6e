"""torch.nn.functional.scaled_dot_product_attention by redblue."""

from __future__ import annotations

import sys
from typing import Any, Optional

import torch
from torch import Tensor
from torch.overrides import handle_torch_function

from .._call.torch_arrays import require_dense
from .._errors import InvalidProblem
from .._flash.shims import require_sdpa
from .attention import of_tensors


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: Optional[float] = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """torch.nn.functional.scaled_dot_product_attention by redblue, with gradients, of attn_mask too if it is of floats.
    attn_mask may be a torch.nn.attention.bias.CausalBias. dropout_p = 1 gives 0. What stands for tensors, as torch.fx has
    it, is given the call, as torch's own function does. Raises what redblue.attention raises.

    Source: PyTorch, torch.nn.functional.scaled_dot_product_attention.
    """
    given = (query, key, value, attn_mask)
    usual = type(query) is Tensor and type(key) is Tensor and type(value) is Tensor and type(attn_mask) in _USUAL
    if not usual and any(_stands_for_a_tensor(x) for x in given):
        options = {"attn_mask": attn_mask, "dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
        return handle_torch_function(scaled_dot_product_attention, given, query, key, value, **options)
    if dropout_p == 1:
        o = scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, scale, enable_gqa)
        return o.masked_fill(torch.ones((), dtype=torch.bool), 0.0)
    alignment = "top-left"
    if attn_mask is not None and type(attn_mask) is not Tensor:
        attn_mask, is_causal, alignment = _without_causal_bias(attn_mask, is_causal)
    batch, q, k, v, mask = _as_one_batch(query, key, value, attn_mask, is_causal, enable_gqa)
    if mask is not None and mask.dim() > 4:
        at = next(i for i, size in enumerate(mask.shape) if size != 1)
        parts = zip(q.unbind(at), k.unbind(at), v.unbind(at), mask.unbind(at))
        return _stacked([scaled_dot_product_attention(*part, dropout_p, False, scale, enable_gqa) for part in parts], at)
    named = ("bias", mask, None), ("dropout", dropout_p, 0.0), ("causal", is_causal, False), ("scale", scale, None)
    options = {name: x for name, x, usual in named if type(x) is not type(usual) or x != usual}  # few are looked up in less time
    options.update({"alignment": alignment} if is_causal else {})
    o = of_tensors(q, k, v, None, False, options)
    return o if len(batch) < 2 else o.unflatten(0, batch)


_USUAL = (type(None), Tensor)  # types of attn_mask


def _stands_for_a_tensor(x: Any) -> bool:
    return x is not None and not isinstance(x, Tensor) and hasattr(type(x), "__torch_function__")


def _without_causal_bias(mask: Any, causal: bool) -> tuple:
    """attn_mask, is_causal and alignment; a CausalBias is a tensor whose memory nobody has written."""
    bias = sys.modules.get("torch.nn.attention.bias")  # it imports torch's compiler
    if bias is None or not isinstance(mask, bias.CausalBias):
        return mask, causal, "top-left"
    if causal:
        raise InvalidProblem("attn_mask is a CausalBias, with is_causal: give one of them, as torch wants it")
    return None, True, "top-left" if mask.variant == bias.CausalVariant.UPPER_LEFT else "bottom-right"


def _as_one_batch(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], causal: bool, grouped: bool) -> tuple:
    """The sizes in front of [heads, n, features], as torch broadcasts them, and the tensors with at most one size there.
    Heads of size 1 are those of all heads. A mask that is the same for some of these sizes and not for others keeps them,
    and so do then the tensors: to broadcast it would copy it."""
    try:
        a, b, c = q.shape, k.shape, v.shape
    except RuntimeError:  # nested tensors have no shape
        for name, x in (("query", q), ("key", k), ("value", v)):
            require_dense(x, name)
        raise
    if len(a) == 4 and (a == b == c or len(b) == len(c) == 4 and a[:2] == b[:2] == c[:2]) and (mask is None or not causal):
        return (), q, k, v, mask  # what most calls give
    require_sdpa(a, b, mask, causal, grouped)
    dims = max(q.dim(), k.dim(), v.dim())
    if dims < 5 and q.shape[:-3] == k.shape[:-3] == v.shape[:-3]:
        if dims < 3 or k.shape[-3] == v.shape[-3] and (grouped or k.shape[-3] in (1, q.shape[-3])):
            return (), q, k, v, mask
    q, k, v = (x.reshape((1,) * (dims - x.dim()) + tuple(x.shape)) for x in (q, k, v))
    batch = torch.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3])
    heads = max(x.shape[-3] for x in (q, k, v))
    q, k, v = (x.expand(*batch, -1 if grouped or x.shape[-3] != 1 else heads, -1, -1) for x in (q, k, v))
    if dims < 5:
        return (), q, k, v, mask
    if mask is not None and mask.dim() > 3:
        mask = mask.reshape((1,) * (dims - mask.dim()) + tuple(mask.shape))
        mask.expand(*batch, *mask.shape[-3:])  # torch's error where it does not broadcast
        for i, size in enumerate(batch):
            if size > 1 and mask.shape[i] > 1 and mask.stride(i) == 0:
                mask = mask.narrow(i, 0, 1)  # it was expanded: all are the first
        alike = [mask.shape[i] == size for i, size in enumerate(batch)]
        if not all(alike) and mask.shape[:-3].numel() > 1:
            return batch, q, k, v, mask
        mask = mask.flatten(0, -4)
    return (tuple(batch), *(x.flatten(0, -4) for x in (q, k, v)), mask)


def _stacked(parts: list[Tensor], at: int) -> Tensor:
    """The parts as one tensor, whose dimensions lie in memory in the order of theirs."""
    order = sorted(range(parts[0].dim()), key=parts[0].stride, reverse=True)
    back = [0] + [1 + order.index(i) for i in range(len(order))]
    return torch.stack([x.permute(order) for x in parts]).permute(back).movedim(0, at)
