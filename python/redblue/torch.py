"""Attention for tensors of PyTorch: custom operators with gradients, which torch.compile takes as they are.

    import redblue.torch
    with redblue.use():          # or redblue.install()
        model(x)                 # F.scaled_dot_product_attention is redblue's until the end of the block

The operators are redblue::attention and redblue::attention_backward. Tensors are on the CPU.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from typing import Any, Iterator, List, Optional, Tuple

import torch
from torch import Tensor

from . import _vmap
from ._attention import attention_backward, forward, require_lse
from ._core import Pattern
from ._errors import InvalidProblem, Unsupported
from ._settings import sizes_of
from ._shims import require_sdpa

__all__ = ["attention", "install", "register_transformers", "scaled_dot_product_attention", "uninstall", "use"]

_PLANNING = ("M", "memory", "max_workspace", "threads")

#: Operators take tensors: a pattern passes as a number in one, which no other pattern gets.
_numbers = itertools.count()
_number_of: "weakref.WeakKeyDictionary[Pattern, int]" = weakref.WeakKeyDictionary()
_pattern_of: "weakref.WeakValueDictionary[int, Pattern]" = weakref.WeakValueDictionary()


@torch.compiler.disable
def _numbered(pattern: Any) -> Tensor:
    """The numbers of a pattern, or of a list of them."""
    patterns = list(pattern) if isinstance(pattern, (list, tuple)) else [pattern]
    for one in patterns:
        if not isinstance(one, Pattern):
            raise InvalidProblem(f"pattern is a {type(one).__name__}: redblue.patterns makes patterns, as in patterns.mask(seen)")
        if one not in _number_of:
            _number_of[one] = number = next(_numbers)
            _pattern_of[number] = one
    numbers = torch.tensor([_number_of[one] for one in patterns])
    numbers.patterns = patterns  # type: ignore[attr-defined]
    return numbers


def _patterns_in(numbers: Optional[Tensor]) -> Optional[Tuple[Pattern, ...]]:
    found = None if numbers is None else tuple(_pattern_of.get(number) for number in numbers.tolist())
    if found is not None and None in found:
        raise InvalidProblem("a pattern was deleted before its gradients were computed: keep it until then in compiled code")
    return found  # type: ignore[return-value]


def _options(
    layout: str, causal: bool, alignment: Optional[int], window: List[int], prefix: int, scale: Optional[float],
    softcap: float, dropout: float, seed: Optional[Tensor], cu_seqlens_q: Optional[Tensor],
    cu_seqlens_k: Optional[Tensor], seqused_q: Optional[Tensor], seqused_k: Optional[Tensor], planning: List[int],
    order: Optional[str], approximate: Optional[str], compute: Optional[str], patterns: Optional[Tensor],
) -> dict:  # fmt: skip
    """Arguments of an operator as options of redblue.attention."""
    return {
        "layout": layout,
        "causal": causal,
        "alignment": "bottom-right" if alignment is None else alignment,
        "window": None if window == [-1, -1] else tuple(window),
        "prefix": prefix,
        "scale": scale,
        "softcap": softcap,
        "dropout": dropout,
        "seed": None if seed is None else int(seed),
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k": cu_seqlens_k,
        "seqused_q": seqused_q,
        "seqused_k": seqused_k,
        "order": order,
        "approximate": approximate,
        "compute": compute,
        "pattern": _patterns_in(patterns),
        **{name: None if value < 0 else value for name, value in zip(_PLANNING, planning)},
    }


@torch.library.custom_op("redblue::attention", mutates_args=(), device_types="cpu")
def _forward_op(
    q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], slopes: Optional[Tensor], sinks: Optional[Tensor],
    layout: str, causal: bool, alignment: Optional[int], window: List[int], prefix: int, scale: Optional[float],
    softcap: float, dropout: float, seed: Optional[Tensor], cu_seqlens_q: Optional[Tensor],
    cu_seqlens_k: Optional[Tensor], seqused_q: Optional[Tensor], seqused_k: Optional[Tensor], planning: List[int],
    order: Optional[str], approximate: Optional[str], compute: Optional[str], patterns: Optional[Tensor],
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    options = _options(
        layout, causal, alignment, window, prefix, scale, softcap, dropout, seed, cu_seqlens_q, cu_seqlens_k, seqused_q,
        seqused_k, planning, order, approximate, compute, patterns,
    )  # fmt: skip
    exact = approximate is None  # of an approximation there is no lse
    o = forward(q, k, v, None, exact, bias=bias, alibi_slopes=slopes, sinks=sinks, **options)
    return o if exact else (o, q.new_empty(0))


@_forward_op.register_fake
def _(q, k, v, bias, slopes, sinks, layout, *options):  # type: ignore[no-untyped-def]
    o = q.new_empty((*q.shape[:-1], v.shape[-1]))
    if options[_vmap.APPROXIMATE - 1] is not None:
        return o, q.new_empty(0)
    lse_type = torch.float64 if q.dtype == torch.float64 else torch.float32
    rows = q.shape[:-1] if layout == "bhsd" else (*q.shape[:-3], q.shape[-2], q.shape[-3])
    return o, q.new_empty(rows, dtype=lse_type)


@torch.library.custom_op("redblue::attention_backward", mutates_args=(), device_types="cpu")
def _backward_op(
    do: Tensor, o: Tensor, lse: Tensor, bias_gradient: bool, sinks_gradient: bool,
    q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], slopes: Optional[Tensor], sinks: Optional[Tensor],
    layout: str, causal: bool, alignment: Optional[int], window: List[int], prefix: int, scale: Optional[float],
    softcap: float, dropout: float, seed: Optional[Tensor], cu_seqlens_q: Optional[Tensor],
    cu_seqlens_k: Optional[Tensor], seqused_q: Optional[Tensor], seqused_k: Optional[Tensor], planning: List[int],
    order: Optional[str], approximate: Optional[str], compute: Optional[str], patterns: Optional[Tensor],
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    options = _options(
        layout, causal, alignment, window, prefix, scale, softcap, dropout, seed, cu_seqlens_q, cu_seqlens_k, seqused_q,
        seqused_k, planning, order, approximate, compute, patterns,
    )  # fmt: skip
    if compute == "bf16":
        options["compute"] = None  # gradients with modifiers are computed in fp32
    gradients = attention_backward(
        do, q, k, v, o, None if approximate else lse, bias=bias, alibi_slopes=slopes, sinks=sinks, bias_gradient=bias_gradient,
        sinks_gradient=sinks_gradient, **options,
    )  # fmt: skip
    return tuple(q.new_empty(0) if g is None else g for g in gradients)  # type: ignore[return-value]


@_backward_op.register_fake
def _(do, o, lse, bias_gradient, sinks_gradient, q, k, v, bias, slopes, sinks, *options):  # type: ignore[no-untyped-def]
    # The strides of what a run makes: contiguous.
    like = [x.new_empty(x.shape) for x in (q, k, v)]
    return (
        *like,
        bias.new_empty(bias.shape) if bias_gradient else q.new_empty(0),
        sinks.new_empty(sinks.shape) if sinks_gradient else q.new_empty(0),
    )


def _keep(ctx: Any, inputs: Tuple, output: Tuple) -> None:
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[1])
    q, k, v, bias, slopes, sinks, *options = inputs
    seed, *sequences = options[8:13]
    ctx.save_for_backward(q, k, v, bias, slopes, sinks, *output, seed, *sequences, options[_vmap.PATTERNS])
    ctx.options = (*options[:8], options[13 : _vmap.PATTERNS])
    ctx.patterns = options[_vmap.PATTERNS]  # this very object holds the patterns until the gradients are computed


def _gradients(ctx: Any, do: Optional[Tensor], _: None) -> Tuple:
    q, k, v, bias, slopes, sinks, o, lse, seed, *sequences, patterns = ctx.saved_tensors
    *options, choices = ctx.options
    needs = ctx.needs_input_grad
    if needs[4]:
        raise Unsupported("the gradient of alibi_slopes is not computed: give slopes that require none, by .detach()")
    none = (None,) * (len(options) + 6 + len(choices))
    if do is None:
        return (None,) * 6 + none
    dq, dk, dv, dbias, dsinks = _backward_op(
        do, o, lse, needs[3], needs[5], q, k, v, bias, slopes, sinks, *options, seed, *sequences, *choices, patterns
    )
    return (dq, dk, dv, dbias if needs[3] else None, None, dsinks if needs[5] else None, *none)


_forward_op.register_autograd(_gradients, setup_context=_keep)


def _refuse(ctx: Any, *gradients: Any) -> Tuple:
    raise Unsupported(
        "second derivatives of redblue's attention are not computed: use torch's math path for them, "
        "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
    )


_backward_op.register_autograd(_refuse, setup_context=lambda ctx, inputs, output: None)


_forward_op.register_vmap(functools.partial(_vmap.forward, _forward_op))
_backward_op.register_vmap(functools.partial(_vmap.backward, _backward_op))


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, out: None = None, return_lse: bool = False, bias: Optional[Tensor] = None,
    alibi_slopes: Optional[Tensor] = None, sinks: Optional[Tensor] = None, layout: str = "bhsd", causal: bool = False,
    alignment: Any = "bottom-right", window: Optional[Tuple[int, int]] = None, prefix: int = 0,
    scale: Optional[float] = None, softcap: float = 0.0, dropout: float = 0.0, seed: Any = None,
    cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, seqused_q: Any = None, seqused_k: Any = None,
    M: Optional[int] = None, memory: Optional[int] = None, max_workspace: Optional[int] = None,
    threads: Optional[int] = None, pattern: Any = None, order: Optional[str] = None, approximate: Optional[str] = None,
    compute: Optional[str] = None, **others: Any,
) -> Any:  # fmt: skip
    """redblue.attention for tensors, with gradients of q, k, v, bias and sinks.

    Arguments and result are those of redblue.attention; lse has no gradient. Without a seed, dropout takes one from
    torch's generator. `compute` is of the forward pass, and of the gradients unless it is bf16: then they take their own
    default (redblue.attention_backward). Gradients do not go with out, tolerance (nothing is proved of them) and schedule
    (it names the schedule of one pass). Deterministic; not twice differentiable.
    """
    given = [name for name, value in others.items() if value is not None] + (["out"] if out is not None else [])
    if given:
        raise Unsupported(f"{', '.join(given)}: not with gradients; detach the tensors, or call it under torch.no_grad()")
    require_lse(return_lse, approximate)
    if dropout and seed is None:
        seed = torch.randint(1 << 53, ())
    elif seed is not None and not isinstance(seed, Tensor):
        seed = torch.tensor(seed)
    o, lse = _forward_op(
        q, k, v, bias, alibi_slopes, sinks, layout, causal, _offset(alignment),
        [-1 if edge is None else edge for edge in window or (-1, -1)], prefix, scale, softcap or 0.0, dropout,
        seed if dropout else None, *(_tensor(x) for x in (cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k)),
        [-1 if x is None else x for x in (M, memory, max_workspace, threads)], order, approximate, compute,
        None if pattern is None else _numbered(pattern),
    )  # fmt: skip
    return (o, lse) if return_lse else o


def _offset(alignment: Any) -> Optional[int]:
    return {"bottom-right": None, "top-left": 0}[alignment] if isinstance(alignment, str) else alignment


def _tensor(x: Any) -> Optional[Tensor]:
    return x if x is None or isinstance(x, Tensor) else torch.tensor(x)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: Optional[float] = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """torch.nn.functional.scaled_dot_product_attention by redblue, with gradients, of attn_mask too if it is of floats."""
    require_sdpa(query, key, attn_mask, is_causal, enable_gqa)
    q, k, v = _broadcast(query, key, value)
    options: Any = {"bias": attn_mask, "dropout": dropout_p, "causal": is_causal, "alignment": "top-left", "scale": scale}
    tensors = (query, key, value) if attn_mask is None else (query, key, value, attn_mask)
    if torch.compiler.is_compiling() or torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return attention(q, k, v, **options)
    seed = int(torch.randint(1 << 53, ())) if dropout_p else None
    return forward(q, k, v, None, False, seed=seed, **options)


def _broadcast(q: Tensor, k: Tensor, v: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """One batch for all, as torch broadcasts it."""
    if not q.dim() == k.dim() == v.dim() or q.dim() > 4:
        if q.dim() > 4 or k.dim() > 4 or v.dim() > 4:
            raise InvalidProblem(f"query has {q.dim()} dimensions: give at most 4, by .flatten(0, -4)")
        most = max(q.dim(), k.dim(), v.dim())
        q, k, v = (x.reshape((1,) * (most - x.dim()) + tuple(x.shape)) for x in (q, k, v))
    if q.dim() == 4 and not q.shape[0] == k.shape[0] == v.shape[0]:
        batch = torch.broadcast_shapes(q.shape[:1], k.shape[:1], v.shape[:1])
        q, k, v = (x.expand(*batch, *x.shape[1:]) for x in (q, k, v))
    return q, k, v


_replaced: List[Any] = []


def install() -> None:
    """From now on torch.nn.functional.scaled_dot_product_attention is redblue's. `uninstall` undoes it."""
    if not _replaced:
        _replaced.append(torch.nn.functional.scaled_dot_product_attention)
        torch.nn.functional.scaled_dot_product_attention = scaled_dot_product_attention


def uninstall() -> None:
    """Gives torch its own function back. Does nothing where redblue's is not installed."""
    if _replaced:
        torch.nn.functional.scaled_dot_product_attention = _replaced.pop()


@contextlib.contextmanager
def use() -> Iterator[None]:
    """`with redblue.use():` torch.nn.functional.scaled_dot_product_attention is redblue's inside the block, for all
    threads. Blocks may be nested."""
    before = bool(_replaced)
    install()
    try:
        yield
    finally:
        if not before:
            uninstall()


def register_transformers() -> None:
    """Makes attn_implementation="redblue" known to Hugging Face transformers, which must be installed."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register("redblue", _for_transformers)
    ALL_MASK_ATTENTION_FUNCTIONS.register("redblue", sdpa_mask)


def _for_transformers(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Optional[Tensor], dropout: float = 0.0,
    scaling: Optional[float] = None, is_causal: Optional[bool] = None, **others: Any,
) -> Tuple[Tensor, None]:  # fmt: skip
    """query [batch, heads, n_q, d]; the result is [batch, n_q, heads, d_v]."""
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    causal = bool(is_causal) and attention_mask is None and query.shape[2] > 1
    options: Any = {"softcap": others.get("softcap") or 0.0, "sinks": others.get("s_aux")}
    o = attention(query, key, value, bias=attention_mask, causal=causal, scale=scaling, dropout=dropout, **options)
    return o.transpose(1, 2).contiguous(), None
