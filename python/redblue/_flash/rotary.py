"""Rotary embedding, as flash_attn_with_kvcache applies it to q and k."""

from __future__ import annotations

from typing import Any

import numpy as np

import redblue  # whose attribute `torch` is imported where it is first used

from .._call.arrays import is_tensor
from .._errors import InvalidProblem


def rotary_of(family: Any, cos: Any, sin: Any, d: int) -> tuple[Any, Any]:
    """cos and sin, checked: [positions, half of the features that are turned]."""
    if cos is None or sin is None:
        raise InvalidProblem("rotary_cos and rotary_sin: give both, or neither")
    cos, sin = family.given(cos, "rotary_cos"), family.given(sin, "rotary_sin")
    for name, x in (("rotary_cos", cos), ("rotary_sin", sin)):
        if family.type_of(x, name) == "bool":
            raise TypeError(f"{name} has elements of type bool: give floats")
        if len(x.shape) != 2 or tuple(x.shape) != tuple(cos.shape) or 2 * x.shape[1] > d:
            raise InvalidProblem(f"{name} is {list(x.shape)}: give [positions, rotary_dim / 2], with a rotary_dim of at most {d}")
    return cos, sin


def require_positions(cos: Any, positions: int) -> None:
    if cos.shape[0] < positions:
        raise InvalidProblem(f"rotary_cos and rotary_sin have {cos.shape[0]} positions: give {positions}, one for each that is reached")


def rotated(x: Any, cos: Any, sin: Any, begins: list[int], moving: bool, interleaved: bool) -> Any:
    """x [batch, n, heads, d] with its first features turned in pairs: token i of sequence b by the angles of position
    begins[b] + i, or begins[b] for all tokens unless `moving`. Pairs are features 0 and 1, 2 and 3, ..., or, not
    interleaved, 0 and r, 1 and r + 1, ... of 2 r. Sums are of fp32 (fp64 for float64), and rounded once.

    Source: Su et al. 2021, arXiv 2104.09864; flash-attention 2, flash_attn_with_kvcache."""
    half = cos.shape[1]
    pairs = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(0, half), slice(half, 2 * half))
    steps = np.arange(x.shape[1]) if moving else np.zeros(x.shape[1], np.int64)
    at = np.asarray(begins, np.int64)[:, None] + steps
    if is_tensor(x):
        torch = redblue.torch.torch
        word = torch.float64 if x.dtype == torch.float64 else torch.float32
        at, new = torch.from_numpy(at), x.clone()
        real, imaginary, c, s = (y.to(word) for y in (x[..., pairs[0]], x[..., pairs[1]], cos[at], sin[at]))
    else:
        wide = np.float64 if x.dtype == np.float64 else np.float32
        new = x.copy()
        real, imaginary, c, s = (y.astype(wide) for y in (x[..., pairs[0]], x[..., pairs[1]], cos[at], sin[at]))
    c, s = c[:, :, None], s[:, :, None]
    new[..., pairs[0]] = real * c - imaginary * s
    new[..., pairs[1]] = real * s + imaginary * c
    return new
