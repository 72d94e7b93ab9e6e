"""Patterns: which keys each query sees where that is no window (docs/masks.md). For the option `pattern` of
redblue.attention. `a | b` shows what one of two patterns shows, `a & b` what both show.

`offset` is where query 0 stands among the keys; default n_k - n_q: the last query stands at the last key.
"""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from . import _core
from ._call.arrays import refuse_masked
from ._core import Pattern
from ._errors import InvalidProblem

__all__ = ["Pattern", "big_bird", "blocks", "csr", "fixed", "longformer", "mask", "strided", "window"]


def window(n_q: int, n_k: int, left: int, right: int, *, step: int = 1, offset: Optional[int] = None) -> Pattern:
    """Keys at distances k step, -left <= k <= right, of the query's position. Step 1 is a window; -1: no edge."""
    return _core.pattern_window(n_q, n_k, offset, left, right, step)


def longformer(
    n_q: int, n_k: int, left: int, right: int, globals: int, *, step: int = 1, offset: Optional[int] = None
) -> Pattern:
    """A window; all queries see the first `globals` keys, and queries at the first `globals` positions see all keys.
    Beltagy et al. 2020, arXiv 2004.05150.

    left, right and step: the window's, as of `window`: keys at distances k step, -left <= k <= right, of the query's
    position; -1: no edge. offset: where query 0 stands among the keys; default n_k - n_q.
    """
    return _core.pattern_longformer(n_q, n_k, offset, left, right, globals, step)


def big_bird(
    n_q: int,
    n_k: int,
    *,
    block: int = 64,
    window: int = 1,
    globals: int = 1,
    randoms: int = 3,
    seed: int = 0,
    offset: Optional[int] = None,
) -> Pattern:
    """Blocks of `block` queries and keys: `window` blocks on either side of the query's own, the first `globals`
    blocks, and `randoms` others, drawn from the seed. Zaheer et al. 2020, arXiv 2007.14062."""
    return _core.pattern_big_bird(n_q, n_k, offset, block, window, globals, randoms, seed)


def strided(n_q: int, n_k: int, stride: int, *, offset: Optional[int] = None) -> Pattern:
    """Causal: the last `stride` keys up to the query's own, and every stride-th before them. Child et al. 2019, arXiv
    1904.10509."""
    return _core.pattern_strided(n_q, n_k, offset, stride)


def fixed(n_q: int, n_k: int, stride: int, summary: int, *, offset: Optional[int] = None) -> Pattern:
    """Causal: keys of the query's own block of `stride`, and the last `summary` of every block. Child et al. 2019."""
    return _core.pattern_fixed(n_q, n_k, offset, stride, summary)


def blocks(n_q: int, n_k: int, rows: int, cols: int, seen: Any) -> Pattern:
    """seen [ceil(n_q / rows), ceil(n_k / cols)], of bool: the queries of block I see the keys of block J."""
    if rows < 1 or cols < 1:
        raise InvalidProblem(f"blocks of {rows} x {cols}: give 1 or more")
    seen = _shown(seen)
    wanted = (-(-n_q // rows), -(-n_k // cols))
    if seen.shape != wanted:
        raise InvalidProblem(f"seen has the shape {list(seen.shape)}: the sizes of the pattern want {list(wanted)}")
    return _core.pattern_blocks(n_q, n_k, rows, cols, np.ascontiguousarray(seen != 0, np.uint8).reshape(-1))


def mask(seen: Any) -> Pattern:
    """seen [n_q, n_k], of bool: query i sees key j."""
    seen = _shown(seen)
    if seen.ndim != 2:
        raise InvalidProblem(f"seen has {seen.ndim} dimensions: give [n_q, n_k]")
    return blocks(seen.shape[0], seen.shape[1], 1, 1, seen)


def csr(n_q: int, n_k: int, indptr: Any, indices: Any) -> Pattern:
    """Compressed sparse rows: query i sees the keys indices[indptr[i]] to indices[indptr[i + 1] - 1], ascending."""
    indptr, indices = (_whole_numbers(x, name) for x, name in ((indptr, "indptr"), (indices, "indices")))
    if indptr.size != n_q + 1:
        raise InvalidProblem(f"indptr has {indptr.size} numbers: {n_q} queries want {n_q + 1}")
    return _core.pattern_csr(n_q, n_k, indptr, indices)


def _shown(seen: Any) -> np.ndarray:
    """A mask of floats is added to scores elsewhere: 0 shows a key there, and would hide it here."""
    refuse_masked(seen, "seen")
    seen = np.asarray(seen)
    if seen.dtype.kind not in "biu" and not (seen.dtype.kind == "f" and np.isin(seen, (0, 1)).all()):
        raise InvalidProblem(f"seen has elements of type {seen.dtype}, not all 0 or 1: give bool, True where a query sees a key")
    return seen


def _whole_numbers(x: Any, name: str) -> np.ndarray:
    refuse_masked(x, name)
    found = np.asarray(x)
    if found.ndim != 1 or (found.dtype.kind not in "iu" and found.size > 0):
        raise InvalidProblem(f"{name} has the shape {list(found.shape)}, elements of {found.dtype}: give a list of whole numbers")
    return np.ascontiguousarray(found, np.int64)
