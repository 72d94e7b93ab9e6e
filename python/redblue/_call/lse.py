"""lse: its gradient, and what the one word for each row loses where it is large."""

from __future__ import annotations

import itertools
import math
from typing import Any

from .._errors import CapacityError, Unsupported
from .calls import Call, call_for
from .options import Settings
from .request import Request


def of_rows(sinks: Any, dimensions: int) -> Any:
    """sinks as they broadcast to an lse that has this number of dimensions."""
    return sinks.reshape(((1,) + tuple(sinks.shape[:2]) + (1,))[-dimensions:])


def require_keys(keys: int, sinks: Any) -> None:
    """For a gradient of lse: without keys lse is the sink, and no plan runs that would give its gradient."""
    if keys == 0 and sinks is not None:
        raise Unsupported("the gradient of lse with sinks and no keys is not computed: lse is then the sinks themselves; use these")


def _placed(r: Request, call: Call) -> Settings:
    """The settings with a number for the alignment where something counts from it, as a state that is given asks for."""
    s = r.settings
    counts = s.causal or s.window is not None or s.alibi or s.dilation != 1
    if not counts or not isinstance(s.alignment, str):
        return s
    if s.alignment == "top-left":
        return s._replace(alignment=0)
    keys, queries = (
        list(used) or [b - a for a, b in itertools.pairwise(starts)] or [n]
        for used, starts, n in (
            (s.seqused_k, s.cu_seqlens_k, r.k.shape[-3 if call.tokens_first else -2]),
            (s.seqused_q, s.cu_seqlens_q, call.lse_shape[-1]),
        )
    )
    parts = max(len(keys), len(queries))
    offsets = {k - q for k, q in zip(keys * (parts // len(keys)), queries * (parts // len(queries)))}
    if len(offsets) > 1:
        raise Unsupported(
            "the bias of a query holds nothing but huge numbers, whose gradients are not computed where the offset differs by "
            "sequence: give a mask of bool, or leave such queries out of the loss"
        )
    return s._replace(alignment=offsets.pop())


def _large(call: Call, lse: Any) -> Any:
    """Where the rounding of lse changes weights by more than 2^-12."""
    return (abs(lse) > {"f64": 2.0**41, "f32": 2.0**12}[call.lse_type]) & (abs(lse) < math.inf)


def _of_rows_with_gradient(call: Call, rows: Any, do: Any) -> Any:
    """These rows without those whose do is 0, which have no gradient."""
    counts = (do != 0).any(-1)
    return rows & (counts.swapaxes(-1, -2) if call.tokens_first else counts)


def require_small(r: Request, call: Call, do: Any, lse: Any) -> None:
    """For a part of the keys: what `rescaled` adds up are the weights of all keys."""
    rows = _large(call, lse) if _has_bias(r, call) else None
    if rows is not None and rows.any() and _of_rows_with_gradient(call, rows, do).any():
        raise Unsupported(
            "the bias of a query holds nothing but huge numbers. Its gradients need the number of its keys in all parts, which is lost "
            "in its lse: give a mask of bool, or set the rows of do of such queries to 0"
        )


def marked(r: Request, call: Call, do: Any, lse: Any) -> Any:
    """do with NaN in the rows that `require_small` refuses, for arrays of which only a run knows the numbers."""
    if not _has_bias(r, call):
        return do
    rows = _of_rows_with_gradient(call, _large(call, lse), do)
    return r.family.where(~(rows.swapaxes(-1, -2) if call.tokens_first else rows)[..., None], do, math.nan)


def has_float_bias(r: Request) -> bool:
    return r.bias is not None and r.family.type_of(r.bias, "bias") != "bool"


def _has_bias(r: Request, call: Call) -> bool:
    return call.plan is not None and has_float_bias(r)


def rescaled(r: Request, call: Call, do: Any, lse: Any) -> Any:
    """do of a backward pass, less what weights of rows whose lse is large under a bias make too much.

    Weights are exp(score - lse). Where a query has nothing but lowest numbers in its bias, lse is one, too: log n is lost
    beside it, and each of n keys has the weight 1, not 1 / n. do / n gives such rows the gradients of weights 1 / n: dV is
    P^T do, and dS is P (dP - D), where do is a factor of dP and D. For any row n is the sum of its weights. Rows where do
    is 0 are left out: they have no gradient.
    """
    if not _has_bias(r, call):
        return do
    rows = _large(call, lse)
    return r.family.where_any(rows, lambda: _divided(r, call, rows, do, lse), do)


def rescaled_with_lse(r: Request, call: Call, do: Any, dlse: Any, lse: Any) -> tuple[Any, Any]:
    """do and dlse, which share the weights of a row, each as `rescaled` makes do."""
    if not _has_bias(r, call):
        return do, dlse
    column = (dlse.swapaxes(-1, -2) if call.tokens_first else dlse)[..., None]
    counts = (do != 0).any(-1)[..., None] | (column != 0)
    share = rescaled(r, call, counts + 0 * do[..., :1], lse)  # 0, or what is left of 1
    rows = share[..., 0].swapaxes(-1, -2) if call.tokens_first else share[..., 0]
    return do * share, dlse * rows


def _divided(r: Request, call: Call, rows: Any, do: Any, lse: Any) -> Any:
    rows = _of_rows_with_gradient(call, rows, do)

    def by_sums() -> Any:
        sums = r.family.where(rows, _sums_of_weights(r, call, lse), 1)
        return do / (sums.swapaxes(-1, -2) if call.tokens_first else sums)[..., None]

    return r.family.where_any(rows, by_sums, do)


def _sums_of_weights(r: Request, call: Call, lse: Any) -> Any:
    """The sum r of exp(score - lse) of each row. A state of o = 1 and this lse to which keys with values of 0 are added gives
    1 / (1 + r), to all digits, for any bias and mask."""
    family, word = r.family, "f64" if call.wanted.compute == "f64" else "f32"
    if word == "f64":  # a state has the type of its arrays where that is the arithmetic
        r = r._replace(q=family.filled(r.q, r.q.shape, "f64", r.q), k=family.filled(r.k, r.k.shape, "f64", r.k))
    sinks, s = r.sinks, _placed(r, call)._replace(sinks=False, dropout=0.0, schedule=None)
    values = family.zeros(r.k)[..., :1]
    try:
        sums = call_for("forward", family, r.q, r.k, values, s, (True, True))
    except CapacityError:  # gradients need less fast memory than states do
        s = s._replace(M=None, memory=None)
        sums = call_for("forward", family, r.q, r.k, values, s, (True, True))
    state = family.filled(r.q, sums.o_shape, word, 1), family.filled(lse, sums.lse_shape, word, lse)
    o, _ = family.attended(sums, r._replace(v=values, sinks=None, settings=s), *state)
    share = o[..., 0].swapaxes(-1, -2) if call.tokens_first else o[..., 0]
    weights = (1 - share) / share
    return weights if sinks is None else weights + math.e ** (of_rows(sinks, len(call.lse_shape)) - lse)
