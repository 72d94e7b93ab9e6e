"""lse: its gradient, and what the one word for each row loses where it is large."""

from __future__ import annotations

import itertools
import math
from typing import Any, Optional

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


def _large(call: Call, lse: Any) -> Any:
    """Where the rounding of lse changes weights by more than 2^-12."""
    return (abs(lse) > {"f64": 2.0**41, "f32": 2.0**12}[call.lse_type]) & (abs(lse) < math.inf)


def _of_rows_with_gradient(call: Call, rows: Any, do: Any) -> Any:
    """These rows without those whose do is 0, which have no gradient."""
    counts = (do != 0).any(-1)
    return rows & (counts.swapaxes(-1, -2) if call.tokens_first else counts)


def require_small(r: Request, call: Call, do: Any, lse: Any) -> None:
    """For a part of the keys: what `rescaled` adds up are the weights of all keys."""
    if not _has_bias(r, call) or not (rows := _large(call, lse)).any() or not (rows := _of_rows_with_gradient(call, rows, do)).any():
        return
    raise Unsupported(
        f"the lse of a query under this bias is {float(lse[rows][0]):.3g}. Beside it the number of keys that share it is lost, as it is "
        "where the bias of a query holds nothing but huge numbers, and gradients need that number of all parts: give a mask of bool, call "
        "attention_backward for all keys, or set the rows of do of such queries to 0"
    )


def has_float_bias(r: Request) -> bool:
    return r.bias is not None and r.family.type_of(r.bias, "bias") != "bool"


def _has_bias(r: Request, call: Call) -> bool:
    return call.plan is not None and has_float_bias(r)


def rescaled(r: Request, call: Call, do: Any, dlse: Any, lse: Any) -> tuple[Any, Any]:
    """do and dlse, which may be None, less what weights of rows whose lse is large under a bias make too much.

    Weights are exp(score - lse). Where a query has nothing but lowest numbers in its bias, lse is one, too: log n is lost
    beside it, and each of n keys has the weight 1, not 1 / n. do / n gives such rows the gradients of weights 1 / n: dV is
    P^T do, and dS is P (dP - D), where do is a factor of dP and D. For any row n is the sum of its weights. Rows where do
    is 0 are left out: they have no gradient. What moves with P has P as a factor, too, and is given in place of do.
    """
    if not _has_bias(r, call):
        return do, dlse
    rows = _large(call, lse)
    if dlse is None:
        return r.family.where_any(rows, lambda: _divided(r, call, rows, do, lse), do), None
    column = (dlse.swapaxes(-1, -2) if call.tokens_first else dlse)[..., None]
    counts = ((do != 0).any(-1)[..., None] | (column != 0)) + 0 * do[..., :1]
    share = r.family.where_any(rows, lambda: _divided(r, call, rows, counts, lse), counts)  # 0, or what is left of 1
    return do * share, dlse * (share[..., 0].swapaxes(-1, -2) if call.tokens_first else share[..., 0])


def _divided(r: Request, call: Call, rows: Any, do: Any, lse: Any) -> Any:
    rows = _of_rows_with_gradient(call, rows, do)

    def by_sums() -> Any:
        sums = r.family.where(rows, _sums_of_weights(r, call, lse), 1)
        return do / (sums.swapaxes(-1, -2) if call.tokens_first else sums)[..., None]

    return r.family.where_any(rows, by_sums, do)


def _sums_of_weights(r: Request, call: Call, lse: Any) -> Any:
    """The sum of exp(score - lse) of each row, to all digits, for any bias and mask."""
    word = "f64" if call.wanted.compute == "f64" else "f32"
    s = r.settings._replace(sinks=False, dropout=0.0, schedule=None)
    placed = _placed(s, r, call)
    of_keys = r._replace(v=r.family.zeros(r.k)[..., :1], sinks=None)
    sums = _by_tangent(of_keys, s, lse, word) if placed is None else _by_state(of_keys, placed, lse, word)
    weights = sums[..., 0].swapaxes(-1, -2) if call.tokens_first else sums[..., 0]
    return weights if r.sinks is None else weights + math.e ** (of_rows(r.sinks, len(call.lse_shape)) - lse)


def _placed(s: Settings, r: Request, call: Call) -> Optional[Settings]:
    """The settings with a number for the alignment where something counts from it, as a state that is given asks for, or
    None where it differs by sequence."""
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
    return s._replace(alignment=offsets.pop()) if len(offsets) == 1 else None


def _with_words(r: Request, word: str) -> Request:
    """r with q, k and v of this type, which then is that of the results."""
    q, k, v = (x if r.family.type_of(x, "q") == word else r.family.filled(x, x.shape, word, x) for x in (r.q, r.k, r.v))
    return r._replace(q=q, k=k, v=v)


def _call_for(op: str, r: Request, s: Settings, gradients: tuple) -> tuple[Call, Request]:
    """With the settings; gradients need less fast memory than this pass may: then it takes any."""
    try:
        call = call_for(op, r.family, r.q, r.k, r.v, s, gradients)
    except CapacityError:
        s = s._replace(M=None, memory=None)
        call = call_for(op, r.family, r.q, r.k, r.v, s, gradients)
    return call, r._replace(settings=s)


def _by_state(r: Request, s: Settings, lse: Any, word: str) -> Any:
    """A state of o = 1 and this lse to which keys with values of 0 are added gives 1 / (1 + the sum)."""
    if word == "f64":  # a state has the type of its arrays where that is the arithmetic
        r = _with_words(r, word)
    call, r = _call_for("forward", r, s, (True, True))
    o = r.family.filled(r.q, call.o_shape, word, 1)
    share, _ = r.family.attended(call, r, o, r.family.filled(lse, call.lse_shape, word, lse))
    share = r.family.where(share > 0, share, 1)  # rows that see nothing have none
    return (1 - share) / share


def _by_tangent(r: Request, s: Settings, lse: Any, word: str) -> Any:
    """o moves by the sum where values move along 1 and nothing else moves. It takes two products more."""
    r = _with_words(r, word)
    family = r.family
    call, r = _call_for("tangent", r, s._replace(compute=word), (True, False, False, False))
    o, lse = family.filled(r.q, call.o_shape, word, 0), family.filled(lse, call.lse_shape, word, lse)
    along = {"tq": family.zeros(r.q), "tk": family.zeros(r.k), "tv": family.filled(r.v, r.v.shape, word, 1)}
    return family.moved(call, r, o, lse, along)[0]
