"""Scales of keys and values of int8, which stand for their words times scales."""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple, Optional

import numpy as np

from .._errors import InvalidProblem, Unsupported
from .arrays import is_tensor, refuse_masked
from .settings import tokens_first, whole

_FEW = 8  # queries whose products the fastest kernels make of bf16


class Scales(NamedTuple):
    """Scales as a caller gives them, under the names that it has for them."""

    k: Any
    v: Any
    keys: Any  # of a block, or None: all keys of a head have one scale
    names: tuple = ("k_scale", "v_scale")

    def of_sequence(self, b: int, batch: int) -> Scales:
        """The scales of one sequence."""
        return self._replace(**{name: x[b : b + 1] if _dimensions(x) > 1 and x.shape[0] == batch else x for name, x in
                                (("k", self.k), ("v", self.v))})  # fmt: skip


def given(k: Any, v: Any, keys: Any, names: tuple = ("k_scale", "v_scale")) -> Optional[Scales]:
    """The scales, if there are any."""
    if k is None and v is None:
        if keys is not None:
            raise InvalidProblem(f"keys_per_scale = {keys!r} without scales: give {' and '.join(names)}, too, with k and v of int8")
        return None
    if k is None or v is None:
        raise InvalidProblem(f"{' and '.join(names)}: give both; {names[k is not None]} is missing")
    return Scales(k, v, keys, names)


def scales_of(scales: Scales, k: Any, layout: str) -> tuple[tuple, int]:
    """What the core takes: the scales of k and v, fp32 [batch, kv_heads, blocks], and the keys of a block, 0 for all; and how many
    keys share a scale."""
    shape = (1,) * (4 - len(k.shape)) + tuple(k.shape)
    batch, n_k, heads = shape[0], *(shape[1:3] if tokens_first(layout) else (shape[2], shape[1]))
    keys = 0 if scales.keys is None else whole("keys_per_scale", scales.keys)
    if scales.keys is not None and keys < 1:
        raise InvalidProblem(f"keys_per_scale = {keys}: give the keys of a block, from 1 on, or leave it out for a scale for each head")
    blocks = 1 if keys == 0 else max(1, -(-n_k // keys))
    k_scale, v_scale = (_full(x, name, batch, heads, blocks, keys) for x, name in zip((scales.k, scales.v), scales.names))
    return (k_scale, v_scale, keys if blocks > 1 else 0), keys or max(1, n_k)


def in_use(full: tuple, scales: Scales, n_k: int) -> Scales:
    """The scales of the first n_k keys, of all that scales_of made."""
    if full[2] == 0:
        return scales._replace(k=full[0], v=full[1])
    blocks = max(1, -(-n_k // full[2]))
    return scales._replace(k=full[0][..., :blocks], v=full[1][..., :blocks])


def arithmetic(compute: Optional[str], type: str, dense: bool, queries: int) -> str:
    """The type of arithmetic. queries: how many share a key of int8. The products of few that are bf16 are of bf16."""
    if compute is not None:
        return compute
    return "f64" if type == "f64" else "bf16" if type == "bf16" and dense and queries <= _FEW else "f32"


def require_plain(tolerance: Optional[float]) -> None:
    """Refuses what int8 keys and values do not go with."""
    if tolerance is not None:
        raise Unsupported(f"tolerance = {tolerance}: nothing is proved of keys and values of int8; leave it out")


def _full(x: Any, name: str, batch: int, heads: int, blocks: int, keys: int) -> np.ndarray:
    if isinstance(x, numbers.Real) and not isinstance(x, bool):
        x = np.float64(x)
    refuse_masked(x, name)
    if is_tensor(x):
        x = x.detach().resolve_neg().float().cpu().numpy() if x.is_floating_point() else x
    array = np.asarray(x)
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise TypeError(f"{name} has elements of type {array.dtype}: give float32")
    wanted = "[kv_heads] or [batch, kv_heads]" if keys == 0 else f"[batch, kv_heads, blocks] of {keys} keys"
    shapes = [(), (heads,), *((b, heads) for b in {1, batch}), *((b, heads, blocks) for b in {1, batch})]
    if array.shape not in (shapes if blocks == 1 else shapes[-len({1, batch}) :]):
        here = [batch, heads] if keys == 0 else [batch, heads, blocks]
        more = "; for blocks of keys give keys_per_scale, too" if array.ndim == 3 and keys == 0 else ""
        raise InvalidProblem(f"{name} is {list(array.shape)}: give {wanted}, here {here}{more}")
    with np.errstate(over="ignore"):  # refused next
        array = array.astype(np.float32, copy=False)
    if not np.isfinite(array).all():
        raise InvalidProblem(f"{name} has {array[~np.isfinite(array)][0]}: give finite scales, which fp32 holds")
    array = array if array.ndim in (0, 3) else array[..., None]
    return np.broadcast_to(array, (batch, heads, blocks))


def _dimensions(x: Any) -> int:
    return getattr(x, "ndim", 0)
