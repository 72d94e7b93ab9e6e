"""Lengths of padded batches that only a run knows: seqused_q and seqused_k as arrays of JAX, which become a mask."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from .._call.arrays import NumPy
from .._call.lse import of_rows
from .._call.settings import Sizes, edges_of, sizes_of, tokens_first
from .._errors import InvalidProblem, Unsupported

NAMES = ("seqused_q", "seqused_k")


class Hidden(NamedTuple):
    """What a call with lengths becomes."""

    bias: Any
    options: dict  # without what has become part of the bias
    rows: Any  # [batch, n_q]: is the query in use? It is None where all are
    tokens_first: bool

    def applied(self, o: Any, lse: Any, sinks: Any) -> tuple[Any, Any]:
        """The results with those of queries that are not in use, which see no key but the sink."""
        if self.rows is None:
            return o, lse
        of_o = self.rows[:, :, None, None] if self.tokens_first else self.rows[:, None, :, None]
        o = jnp.where(of_o.reshape(of_o.shape[4 - o.ndim :]), o, 0)
        if lse is not None:
            of_lse = self.rows[:, None, :]
            empty = -jnp.inf if sinks is None else of_rows(sinks, lse.ndim).astype(lse.dtype)
            lse = jnp.where(of_lse.reshape(of_lse.shape[3 - lse.ndim :]), lse, empty)
        return o, lse


def combined(seen: Any, bias: Any) -> Any:
    """A bias with a mask of bool put on it. Both broadcast to [batch, heads, n_q, n_k], and either may be None."""
    if bias is None or seen is None:
        return seen if bias is None else bias
    if NumPy.type_of(bias, "bias") == "bool":
        return jnp.logical_and(seen, bias)
    return jnp.where(seen, bias, jnp.asarray(-jnp.inf, bias.dtype))


def judged(name: str, lengths: Any, batch: int) -> Any:
    if lengths.shape != (batch,) or not jnp.issubdtype(lengths.dtype, jnp.integer):
        raise InvalidProblem(
            f"{name} is of shape {list(lengths.shape)} and type {lengths.dtype}: give whole numbers, one for each of {batch} batches"
        )
    return lengths.astype(jnp.int32)


def as_mask(q: Any, k: Any, v: Any, bias: Any, slopes: Any, options: dict) -> Hidden:
    """The call with a mask in place of the lengths, of which one is an array of JAX. A length beyond what is there means all, and one
    below 0 none, for no run can refuse it."""
    options = dict(options)
    layout = options.get("layout") or "bhsd"
    x = sizes_of(q.shape, k.shape, v.shape, layout)
    given = {name: options.pop(name, None) for name in NAMES}
    used = {name: judged(name, jnp.asarray(n), x.batch) for name, n in given.items() if n is not None}
    for name in NAMES:
        if options.get(f"cu_{name.replace('used', 'lens')}") is not None:
            raise Unsupported(f"{', '.join(used)} of packed sequences is an array of JAX: give numbers that are known when JAX traces")
    n_q, n_k = (jnp.clip(used.get(name, n), 0, n) for name, n in zip(NAMES, (x.n_q, x.n_k)))
    seen = None if "seqused_k" not in used else jnp.arange(x.n_k) < n_k[:, None, None, None]
    alignment = options.get("alignment")
    if alignment in (None, "bottom-right") and _counts(options, slopes):
        seen = _aligned(x, n_q, n_k, options, slopes) & (True if seen is None else seen)
    rows = None if "seqused_q" not in used else jnp.arange(x.n_q) < n_q[:, None]
    return Hidden(combined(seen, bias), options, rows, tokens_first(layout))


def _counts(options: dict, slopes: Any) -> bool:
    """Does anything count from the alignment?"""
    return bool(options.get("causal")) or options.get("window") is not None or slopes is not None


def _aligned(x: Sizes, n_q: Any, n_k: Any, options: dict, slopes: Any) -> Any:
    """The mask [batch, 1, n_q, n_k] of causal and window where the last query in use stands at the last key in use. It takes
    these options out."""
    others = [name for name, off in (("prefix", 0), ("dilation", 1)) if options.get(name) not in (None, off)]
    others += [] if slopes is None else ["alibi_slopes"]
    if others:
        raise Unsupported(
            f"{', '.join(others)} beside lengths that are arrays of JAX: the offset is the difference of the lengths, which is not "
            'known when JAX traces; give alignment = "top-left" or a number'
        )
    left, right = edges_of(options.pop("window", None))
    if options.pop("causal", False):
        right = 0 if right is None else min(right, 0)
    options.pop("alignment", None)
    offset = jnp.broadcast_to(n_k - n_q, (x.batch,))[:, None, None, None]
    distance = jnp.arange(x.n_k) - jnp.arange(x.n_q)[:, None] - offset
    seen = jnp.ones(distance.shape, bool)
    if left is not None:
        seen &= distance >= -left
    if right is not None:
        seen &= distance <= right
    return seen
