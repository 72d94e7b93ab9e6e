"""The grid of a race: what is computed, and the arrays it is computed on."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Cell:
    op: str  # forward, backward
    dtype: str  # f32, bf16
    n: int
    d: int
    heads: int
    causal: bool

    def flops(self):
        """2 per multiply-add: 4 n^2 d for each head, 2.5 times that backward, half of it when causal."""
        return 4 * self.n**2 * self.d * self.heads * (2.5 if self.op == "backward" else 1) * (0.5 if self.causal else 1)


def heads_at(n):
    """Eight; two for n = 8192, where a cell takes seconds anyway and two heads suffice for two threads."""
    return 8 if n < 8192 else 2


def grid(ns, ds):
    f32 = [
        Cell(op, "f32", n, d, heads_at(n), causal)
        for op in ("forward", "backward")
        for causal in (False, True)
        for n in ns
        for d in ds
    ]
    bf16 = [Cell("forward", "bf16", n, d, heads_at(n), causal) for causal in (False, True) for n in ns for d in ds]
    return f32 + bf16


def to_bf16(x):
    """The bits of bf16, rounded to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def to_f32(x):
    return (x.astype(np.uint32) << 16).view(np.float32) if x.dtype == np.uint16 else x


def inputs(cell, layout):
    """Standard normal arrays, the same numbers for every peer: [heads, n, d], or [n, heads, d] if `layout` is "nhd"."""
    random = np.random.default_rng([cell.n, cell.d, cell.heads])
    arrays = {}
    for name in ("q", "k", "v") + (("dO",) if cell.op == "backward" else ()):
        x = random.standard_normal((cell.heads, cell.n, cell.d), np.float32)
        x = np.ascontiguousarray(x.transpose(1, 0, 2)) if layout == "nhd" else x
        arrays[name] = to_bf16(x) if cell.dtype == "bf16" else x
    return arrays
