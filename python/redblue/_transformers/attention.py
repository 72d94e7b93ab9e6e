"""attn_implementation="redblue" of Hugging Face transformers: its attention function and its masks.

A model gets what its own eager attention computes: the mask alone hides keys, whatever is_causal says, and it is added as
numbers. Masks that transformers builds from rules stay rules (_transformers/masks.py).
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import warnings
from typing import Any, Optional

import torch
from torch import Tensor

from .._errors import InvalidProblem, Unsupported
from .._torch.attention import attention
from . import masks as rules
from .masks import RuleMask

#: What models of transformers pass along that changes no score here: the mask has it already, or other parts of a model want it.
_OF_OTHERS = frozenset((
    "cache_position", "cu_seq_lens_k", "cu_seq_lens_q", "deterministic", "grid_thw", "input_ids", "logits_to_keep", "max_length_k",
    "max_length_q", "num_items_in_batch", "output_attentions", "output_hidden_states", "output_router_logits", "position_ids",
    "return_dict", "seq_idx", "sliding_window", "use_cache",
))  # fmt: skip

_INSTEAD = 'choose attn_implementation="eager" for this model'


def register() -> None:
    """Makes attn_implementation="redblue" known to transformers, and models that would not heed it refuse it."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel

    ALL_ATTENTION_FUNCTIONS.register("redblue", attend)
    new = "q_length" in inspect.signature(eager_mask).parameters  # older versions of transformers describe masks otherwise
    ALL_MASK_ATTENTION_FUNCTIONS.register("redblue", rules.mask if new else eager_mask)
    accepted = PreTrainedModel.get_correct_attn_implementation
    if not hasattr(accepted, "of_redblue"):
        PreTrainedModel.get_correct_attn_implementation = _refusing(accepted)


def _refusing(accepted: Any) -> Any:
    """The method by which a model of transformers accepts an attention, with the models that never call the one of this name."""

    @functools.wraps(accepted)
    def refusing(self: Any, requested_attention: Optional[str], *arguments: Any, **options: Any) -> Any:
        if requested_attention == "redblue" and not (self._can_set_attn_implementation() and _calls_by_name(type(self).__module__)):
            instead = 'choose "eager"'
            if getattr(self, "_supports_sdpa", False):
                instead += ', or "sdpa" inside redblue.use()'
            raise Unsupported(
                f'attn_implementation="redblue": {type(self).__name__} has attention of its own and calls none by name; {instead}; '
                'where it is part of a larger model give a dict of all parts, as {"text_config": "redblue", "vision_config": "eager"}'
            )
        return accepted(self, requested_attention, *arguments, **options)

    refusing.of_redblue = True  # type: ignore[attr-defined]
    return refusing


@functools.lru_cache(None)
def _calls_by_name(module: str) -> bool:
    """Has this module of models no layers that it chooses from a dict of its own?"""
    try:
        source = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return True  # transformers' own question is all that is known
    return re.search(r"_CLASSES\[(self\.)?config\._attn_implementation\]", source) is None


def attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Optional[Tensor], dropout: float = 0.0,
    scaling: Any = None, is_causal: Optional[bool] = None, position_bias: Optional[Tensor] = None,
    softcap: Optional[float] = None, s_aux: Optional[Tensor] = None, sinks: Optional[Tensor] = None,
    indices: Optional[Tensor] = None, **others: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """query [batch, heads, n_q, d], batch may be 1; the result is [batch, n_q, heads, d_v]. indices [batch, n_q, keys]: of the
    keys that the mask shows a query, these alone."""
    sinks = s_aux if sinks is None else sinks
    _require_known(others, attention_mask, sinks)
    if is_causal and attention_mask is None and query.shape[2] > 1 and key.shape[2] > 1:
        raise Unsupported(
            f"is_causal=True without a mask: eager attention would show all keys, and sdpa hides some; give the mask, or {_INSTEAD}"
        )
    if not query.shape[0] == key.shape[0] == value.shape[0]:
        batch = max(x.shape[0] for x in (query, key, value))
        query, key, value = (x if x.shape[0] == batch else x.expand(batch, -1, -1, -1) for x in (query, key, value))
    if isinstance(scaling, Tensor):  # one that is learned, or of each head
        query, scaling = query * scaling, 1.0
    if dropout and not getattr(module, "training", True):
        dropout = 0.0  # eager attention asks the module, not the model that calls it
    if indices is not None:
        attention_mask = _of_indices(indices, attention_mask, query, key)
    options: dict[str, Any] = {"scale": scaling}  # no others at their defaults: each takes time in small calls
    if softcap:
        options["softcap"] = softcap
    if sinks is not None:
        options["sinks"] = sinks
    if dropout:
        options["dropout"] = dropout
    empty = found = None
    if type(attention_mask) is RuleMask:
        found = rules.options_of(attention_mask, query, key, position_bias)
        if found is None:
            attention_mask = attention_mask.numbers()
        elif found.packed is not None:
            return _packed(query, key, value, found, options), None
        else:
            options.update(found.options)
            attention_mask, bias, empty = None, found.bias, found.empty
    if found is None:
        bias = _sum(attention_mask, position_bias, query, key)
    if bias is not None:
        options["bias"] = bias
    o = attention(query, key, value, **options)
    if empty is not None and sinks is None:
        if _recorded(position_bias, query if softcap else None):
            o = _eager_rows(query, key, value, empty, scaling, softcap, position_bias, o)
        else:
            o = _means_of(query, key, value, empty, scaling, o)
    return o.transpose(1, 2).contiguous(), None


def _of_indices(indices: Tensor, mask: Any, query: Tensor, key: Tensor) -> Tensor:
    """The mask of numbers that shows each query the keys of its indices alone, as models build it for eager attention."""
    hidden = torch.ones(*indices.shape[:2], key.shape[2], dtype=torch.bool).scatter_(-1, indices.long(), False)[:, None]
    if mask is None:
        mask = torch.zeros((), dtype=query.dtype)
    elif type(mask) is RuleMask:
        mask = mask.numbers()
    return mask & ~hidden if mask.dtype == torch.bool else mask.masked_fill(hidden, torch.finfo(query.dtype).min)


def _recorded(*tensors: Optional[Tensor]) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def _packed(q: Tensor, k: Tensor, v: Tensor, found: Any, options: dict) -> Tensor:
    """Packed sequences of all batches, one after another."""
    batch, n = q.shape[0], q.shape[2]
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))
    o = attention(q, k, v, layout="bshd", cu_seqlens_q=found.packed, cu_seqlens_k=found.packed, **options, **found.options)
    return o.unflatten(0, (batch, n)).contiguous()


def _means_of(q: Tensor, k: Tensor, v: Tensor, empty: Tensor, scale: Any, o: Tensor) -> Tensor:
    """Rows of padding that see no key: eager attention, whose masks are the lowest number, takes the mean of all values.
    Its weights 1 / n_k have gradients dS = (dO (v - mean)^T) / n_k, which q and k get here as those of
    scale / n_k q k^T (v - mean), without a matrix of n_q by n_k."""
    grouped = q.unflatten(1, (k.shape[1], -1))
    k, v = k[:, :, None], v[:, :, None]
    means = v.mean(3, keepdim=True)
    if _recorded(q, k):
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        moved = scale / v.shape[3] * (grouped @ (k.mT @ (v - means).detach()))
        means = means + (moved - moved.detach())
    means = means.expand(*grouped.shape[:-1], v.shape[-1]).flatten(1, 2)
    return torch.where(empty[:, None, :, None], means, o)


def _eager_rows(
    q: Tensor, k: Tensor, v: Tensor, empty: Tensor, scale: Any, softcap: Optional[float], bias: Optional[Tensor], o: Tensor
) -> Tensor:  # fmt: skip
    """The same rows where a softcap or a position bias has gradients: as eager attention computes them."""
    rows = empty.any(0).nonzero().flatten()
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q[:, :, rows] @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + (bias if bias.shape[-2] == 1 else bias[..., rows, :])
    means = torch.softmax(scores + torch.finfo(scores.dtype).min, -1) @ v
    return o.index_copy(2, rows, torch.where(empty[:, None, rows, None], means, o[:, :, rows]))


def _sum(mask: Any, position_bias: Optional[Tensor], query: Tensor, key: Tensor) -> Optional[Tensor]:
    """The bias of a mask and a position bias, of which each may be missing."""
    if mask is None:
        return position_bias
    if not isinstance(mask, Tensor):
        raise Unsupported(f"attention_mask is a {type(mask).__name__}: give a tensor [batch, 1, n_q, n_k] of bool or of numbers to add")
    if mask.dim() < 3 or mask.shape[-1] not in (1, key.shape[2]):
        raise InvalidProblem(
            f"attention_mask is {list(mask.shape)}: give [batch, heads or 1, n_q or 1, n_k], for {query.shape[2]} queries and "
            f"{key.shape[2]} keys"
        )
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise InvalidProblem(f"attention_mask has elements of {mask.dtype}: give bool, True where a query sees a key, or numbers to add")
    if position_bias is None:
        return mask
    if mask.dtype == torch.bool:
        return torch.where(mask, position_bias, torch.finfo(position_bias.dtype).min)
    return position_bias + mask


def _require_known(others: dict, attention_mask: Any, sinks: Optional[Tensor]) -> None:
    unknown = [name for name, x in others.items() if x is not None and name not in _OF_OTHERS]
    if unknown:
        raise Unsupported(f"{', '.join(unknown)}: the model asks for something that redblue does not compute; {_INSTEAD}")
    ends = others.get("cu_seq_lens_q")
    if attention_mask is None and ends is not None and len(ends) > 2:
        raise Unsupported(f"cu_seq_lens_q: no mask keeps these {len(ends) - 1} packed sequences apart; give the model position_ids")
    if sinks is not None and sinks.dim() > 2 and sinks.shape[2] > 1:
        raise Unsupported(f"sinks are {list(sinks.shape)}, others for each query: redblue takes one for each head; {_INSTEAD}")
    if others.get("output_attentions"):
        warnings.warn(
            'output_attentions=True: attn_implementation="redblue" gives no weights; choose "eager" for them', stacklevel=3
        )
