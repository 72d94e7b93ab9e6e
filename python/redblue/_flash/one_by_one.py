"""Attention of sequences, one after another, whose keys lie anywhere in caches."""

from __future__ import annotations

import math
from typing import Any, Optional

import numpy as np

from .._attention import forward, refuse_numbers, request, require_heads
from .._call.arrays import is_tensor
from .._call.calls import call_for, checked
from .._call.request import Request
from .._call.scales import Scales
from .places import Places, copied, empty_like

#: Pages of keys with at least this many bytes are read where they lie. Smaller ones are copied, which then takes less time
#: than a call for each (measured: 128 KiB take the same time both ways).
_LARGE = 1 << 17


def in_shape(x: Any, shape: tuple) -> Any:
    """An array of the type of x and of this shape, to judge a call by. Its elements are those of one head."""
    one = empty_like(x, (*[1] * (len(shape) - 1), shape[-1]))
    return one.expand(shape) if is_tensor(one) else np.broadcast_to(one, shape)


def require(r: Request, names: tuple) -> None:
    """Refuses what no sequence of a call takes, also where none of them reaches the library. The arrays of r, which have these
    names, are those of all sequences in one batch."""
    require_heads(r, r.q.shape[0], r.q.shape[2])
    if r.family.refuses_nan:
        refuse_numbers(r, "f64" if r.family.type_of(r.q, names[0]) == "f64" else "f32")
    arrays = r.q, r.k, r.v
    types = tuple(r.family.type_of(x, name) for x, name in zip(arrays, names))
    checked("forward", types, tuple(tuple(x.shape) for x in arrays), r.settings)


def one_by_one(
    sequences: list, keys: Any, values: Any, places: Places, first: list[int], lengths: list[int], options: Any,
    scales: Optional[Scales] = None,
) -> None:  # fmt: skip
    """Attention of sequences whose keys lie anywhere in the caches: of each q [1, n_q, heads, d], and o and lse [1, heads, n_q],
    which are written. The options are those of `attention`, alibi_slopes [batch, heads] among them."""
    slopes, window, room, of_all = options["alibi_slopes"], options["window"], None, options
    large = places.size * math.prod(keys.shape[2:]) * _bytes_of_one(keys) >= _LARGE
    if window is not None and window[0] is not None and window[0] >= 0:  # hides keys in front of all that a single query sees
        singles = [q.shape[1] == 1 for q, _, _ in sequences]
        first = [max(a, n - 1 - window[0]) if single else a for a, n, single in zip(first, lengths, singles)]
    for b, (q, o, lse) in enumerate(sequences):
        begin, options = first[b], of_all
        own = None if scales is None else scales.of_sequence(b, len(sequences))
        if slopes is not None and getattr(slopes, "ndim", 1) > 1 and slopes.shape[0] == len(sequences):
            options = {**options, "alibi_slopes": slopes[b : b + 1]}
        if q.shape[1] == 1:  # at the last key: keys are hidden in front alone
            options = {**options, "causal": False, "window": None}
        runs = places.runs(b, begin, lengths[b])
        if len(runs) > 1 and large and not options["causal"] and options["window"] is None and slopes is None:
            parts = [(places.view(keys, run), places.view(values, run)) for run in runs]
            o[...], lse[...] = _of_parts(q, parts, options, own)
            continue
        if len(runs) > 1:
            if room is None:
                most = max(n - a for a, n in zip(first, lengths))
                room = [empty_like(x, (1, most, *x.shape[2:])) for x in (keys, values)]
            k, v = (copied(places, b, begin, lengths[b], x, into) for x, into in zip((keys, values), room))
        else:
            k, v = (places.view(x, runs[0]) if runs else x[:1, :0] for x in (keys, values))
        lse[...] = forward(q, k, v, o, True, options, own)[1]


def _bytes_of_one(x: Any) -> int:
    return int(x.element_size() if is_tensor(x) else x.itemsize)


def _of_parts(q: Any, parts: list, options: Any, scales: Optional[Scales]) -> tuple:
    """o and lse of one sequence whose keys and values are these parts, in any order, of which no mask hides any: one plan for
    all parts of the same length, as pages but the last have it."""
    o = lse = None
    calls: dict[int, tuple] = {}
    for k, v in parts:
        n = k.shape[1]
        if n not in calls:
            r = request(q, k, v, scales=scales, **options)
            calls[n] = r, call_for("forward", r.family, r.q, r.k, r.v, r.settings, (True, True))
        r, call = calls[n]
        if o is None:
            word = "f64" if call.wanted.compute == "f64" else "f32"
            o, lse = (r.family.filled(q, shape, word, x) for shape, x in ((call.o_shape, 0), (call.lse_shape, -math.inf)))
        call.plan.run(r._replace(k=k, v=v).arrays(o, lse), call.tokens_first, 0, False)
    return o, lse
