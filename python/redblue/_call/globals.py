"""A bias of [n, n] that is a window with global tokens, as of Longformer: read row by row, and compared with the pattern."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import numpy as np

from .arrays import is_tensor

_LOWEST_BF16 = -(2.0**128 - 2.0**120)
#: Rows that are compared at once: their entries stay in a cache.
ROWS = 64


class WindowWithGlobals(NamedTuple):
    """Query i sees the keys i - left to i + right and the first `globals`; the first `globals` queries see all keys."""

    left: int
    right: int
    globals: int


class _AddsNumbers(Exception):
    """It holds a number that neither shows nor hides a key."""


def found(bias: Any) -> Optional[WindowWithGlobals]:
    """The window with globals that this bias [..., n, n] is, with sizes of 1 in front; None where it is anything else."""
    n = bias.shape[-1]
    if bias.shape[-2] != n or n < 8 or any(size != 1 for size in bias.shape[:-2]):
        return None
    try:
        middle = _shown(bias, n // 2, n // 2 + 1)[0]
        edges = _edges(middle, n // 2)
        if edges is None:
            return None
        for i in (0, edges.globals, n // 4, n - 1):  # most other masks end here
            if not _as_expected(bias, i, i + 1, edges):
                return None
        return edges if all(_as_expected(bias, i, min(n, i + ROWS), edges) for i in range(0, n, ROWS)) else None
    except _AddsNumbers:
        return None


def _edges(row: np.ndarray, i: int) -> Optional[WindowWithGlobals]:
    if not row[0] or not row[i] or row.all():
        return None
    globals_ = int(row.argmin())
    if globals_ > i:
        return None
    left = int(row[: i + 1][::-1].argmin()) - 1
    right = int(row[i:].argmin()) - 1
    return WindowWithGlobals(left, right, globals_) if right >= 0 else None


def _as_expected(bias: Any, begin: int, end: int, edges: WindowWithGlobals) -> bool:
    i, j = np.arange(begin, end)[:, None], np.arange(bias.shape[-1])
    expected = (j >= i - edges.left) & (j <= i + edges.right)
    expected[:, : edges.globals] = True
    expected[: max(0, edges.globals - begin)] = True
    return bool(np.array_equal(_shown(bias, begin, end), expected))


def _shown(bias: Any, begin: int, end: int) -> np.ndarray:
    """Which keys these rows show."""
    rows = bias[..., begin:end, :].reshape(end - begin, -1)
    if is_tensor(rows):
        import torch

        lowest = torch.finfo(rows.dtype).min if rows.is_floating_point() else None
        rows = (rows.float() if rows.dtype == torch.bfloat16 else rows).numpy()
    elif rows.dtype.name == "bfloat16":  # of ml_dtypes, which np.finfo does not know
        rows, lowest = rows.astype(np.float32), _LOWEST_BF16
    else:
        lowest = None if rows.dtype == bool else np.finfo(rows.dtype).min
    if lowest is None:
        return rows
    keep, hidden = rows == 0, np.isneginf(rows)
    if float(lowest) < -1e5:  # scores reach that of float16
        hidden |= rows == lowest
    if not (keep | hidden).all():
        raise _AddsNumbers
    return keep
