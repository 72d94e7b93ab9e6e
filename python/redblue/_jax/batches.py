"""jax.vmap over attention's primitives: the dimension that is mapped becomes part of the batch, so that one call has all heads of
all calls to share among threads, where that is the same as one call after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import jax.numpy as jnp

#: Options that say the same of a larger batch. Sequences, lengths and patterns are of each batch, and so is dropout.
_OF_ANY_BATCH = frozenset(("alignment", "causal", "compute", "dilation", "layout", "prefix", "scale", "softcap", "threads", "window"))


def as_one_call(arrays: Sequence, dims: Sequence, names: Sequence[str], fixed: tuple, wanted: Sequence[str] = ()) -> Optional[list]:
    """The arrays of one call for all, whose results begin with the batch, or None where one call would not do.

    Sinks, slopes and a bias may be there, the same for all calls. A gradient of sinks is a sum over batches. Only a bias
    with a part for each batch has gradients that stay apart."""
    if "seed" in names or not {name for name, *_ in fixed} <= _OF_ANY_BATCH:
        return None
    given = {name: (x, dim) for name, x, dim in zip(names, arrays, dims)}
    times = _times(arrays, dims)
    alone = {name: tuple(n for i, n in enumerate(x.shape) if i != dim) for name, (x, dim) in given.items()}
    if times == 0 or any(len(alone[name]) != 4 for name in "qkv"):
        return None
    batch = alone["q"][0]
    shared = set()
    for name in ("bias", "sinks", "alibi_slopes"):
        if name not in given or (name == "bias" and len(alone[name]) == 4 and alone[name][0] == batch):
            continue
        moves = name in wanted or any(other != name and other.endswith(name) for other in names)
        if moves or given[name][1] is not None or (name != "bias" and len(alone[name]) != 1):
            return None
        shared.add(name)

    def of_all(name: str) -> Any:
        x, dim = given[name]
        if name in shared:
            return x
        x = jnp.broadcast_to(x, (times, *x.shape)) if dim is None else jnp.moveaxis(x, dim, 0)
        return x.reshape(times * batch, *x.shape[2:])

    return [of_all(name) for name in names]


def of_each_call(found: Sequence, arrays: Sequence, dims: Sequence) -> list:
    """The results of one call for all, with the dimension that is mapped in front."""
    times = _times(arrays, dims)
    return [x.reshape(times, x.shape[0] // times, *x.shape[1:]) for x in found]


def _times(arrays: Sequence, dims: Sequence) -> int:
    return next(x.shape[dim] for x, dim in zip(arrays, dims) if dim is not None)
