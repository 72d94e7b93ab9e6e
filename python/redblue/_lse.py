"""lse: its gradient, and what the one word for each row loses where it is large."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ._calls import call_for
from ._errors import CapacityError, Unsupported
from ._options import Settings
from ._request import Request


def of_rows(sinks: Any, dimensions: int) -> Any:
    """sinks as they broadcast to an lse that has this number of dimensions."""
    return sinks.reshape(((1,) + tuple(sinks.shape[:2]) + (1,))[-dimensions:])


def require_keys(keys: int, sinks: Any) -> None:
    """For a gradient of lse: without keys lse is the sink, and no plan runs that would give its gradient."""
    if keys == 0 and sinks is not None:
        raise Unsupported("the gradient of lse with sinks and no keys is not computed: lse is then the sinks themselves; use these")


def of_shared_bias(dlse: Any, bias: tuple, keys: int) -> Any:
    """What the gradient of lse adds to that of a bias of this shape which all keys of a query share; None for any other bias.

    The weights of the keys add up to 1 - s, s that of the sink. So its gradient is s D, and the library makes that. With dlse
    it is s D + (1 - s) dlse, and the library, which has D - dlse for D, makes s (D - dlse). dlse is 0 where no key is seen.
    """
    if bias[-1:] != (1,) or keys == 1:
        return None
    column = dlse.reshape(((1, 1, 1, *dlse.shape, 1))[-4:])
    alike = tuple(i for i, size in enumerate((1, 1, 1, *bias)[-4:]) if size == 1)
    return column.sum(alike).reshape(bias)


def _wide(family: Any, x: Any) -> Any:
    wide = family.empty(x, tuple(x.shape), "f64")
    wide[...] = x
    return wide


def _placed(r: Request, call: Any) -> Settings:
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


def rescaled(r: Request, call: Any, do: Any, lse: Any) -> Any:
    """do of a backward pass under a bias, less what weights of rows whose lse is large make too much.

    Weights are exp(score - lse). Where a query has nothing but lowest numbers in its bias, lse is one, too: log n is lost
    beside it, and each of n keys has the weight 1, not 1 / n. do / n gives such rows the gradients of weights 1 / n: dV is
    P^T do, and dS is P (dP - D), where do is a factor of dP and D. For any row n is the sum r of its weights. A state of
    o = 1 and this lse to which keys with values of 0 are added gives 1 / (1 + r), to all digits, for any bias and mask. Rows
    where do is 0 are left out: they have no gradient.
    """
    largest = {"f64": 2.0**41, "f32": 2.0**12}[call.lse_type]  # of lse, whose rounding changes no weight by more than 2^-12
    rows = (abs(lse) > largest) & (abs(lse) < math.inf)
    if not rows.any():
        return do
    counts = (do != 0).any(-1)
    rows &= counts.swapaxes(-1, -2) if call.tokens_first else counts
    if not rows.any():
        return do
    family, first, word = r.family, call.tokens_first, "f64" if call.wanted.compute == "f64" else "f32"
    if word == "f64":  # a state has the type of its arrays where that is the arithmetic
        r = r._replace(q=_wide(family, r.q), k=_wide(family, r.k))
    values = family.zeros(r.k)[..., :1]
    s = _placed(r, call)._replace(sinks=False, dropout=0.0, schedule=None)
    try:
        sums = call_for("forward", family, r.q, r.k, values, s, (True, True))
    except CapacityError:  # gradients need less fast memory than states do
        sums = call_for("forward", family, r.q, r.k, values, s._replace(M=None, memory=None), (True, True))
    o, state = family.empty(r.q, sums.o_shape, word), family.empty(lse, sums.lse_shape, word)
    o[...], state[...] = 1, lse
    sums.plan.run(r._replace(v=values, sinks=None).arrays(o, state), first, 0, False)
    share = o[..., 0].swapaxes(-1, -2) if first else o[..., 0]
    weights = (1 - share) / share
    if r.sinks is not None:
        weights += math.e ** (of_rows(r.sinks, len(call.lse_shape)) - lse)
    weights[~rows] = 1
    return do / (weights.swapaxes(-1, -2) if first else weights)[..., None]
