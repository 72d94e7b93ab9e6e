"""Do arrays that are written to share memory, with themselves or with each other?"""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    from numpy.lib.array_utils import byte_bounds
except ImportError:  # NumPy 1
    from numpy import byte_bounds  # type: ignore[attr-defined,no-redef]

from .._call.arrays import is_tensor

#: How much np.shares_memory may try. Views of one array by slices and transposes take a few steps.
_WORK = 1 << 16


class _Memory:
    """A tensor's memory in the words of NumPy, whatever its type."""

    def __init__(self, x: Any):
        size = x.element_size()
        self.__array_interface__ = {
            "data": (x.data_ptr(), False),
            "shape": tuple(x.shape),
            "strides": tuple(size * step for step in x.stride()),
            "typestr": f"|V{size}",
            "version": 3,
        }


def _memory(x: Any) -> np.ndarray:
    return np.asarray(_Memory(x)) if is_tensor(x) else x


def span(x: Any) -> tuple[int, int]:
    """The addresses from the first byte of x to behind its last."""
    if is_tensor(x):
        begin, size = x.data_ptr(), x.element_size()
        reach = x.numel() if x.is_contiguous() else sum((n - 1) * step for n, step in zip(x.shape, x.stride())) + 1
        return begin, begin + size * reach * (x.numel() > 0)
    low, high = byte_bounds(x)
    return low, high if x.size > 0 else low


def meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Have two spans an address in common?"""
    return a[0] < b[1] and b[0] < a[1]


def may_overlap_itself(x: Any) -> bool:
    """May two elements of x be one, as where it is expanded? False where each dimension steps over all that the ones inside it
    reach, as in every view that slices and transposes make."""
    if x.is_contiguous() if is_tensor(x) else x.flags.c_contiguous:
        return False
    x = _memory(x)
    reach = x.itemsize
    for step, size in sorted((abs(step), size) for step, size in zip(x.strides, x.shape) if size > 1):
        if step < reach:
            return x.size > 0
        reach += (size - 1) * step
    return False


def overlap(x: Any, y: Any) -> bool:
    """Have x and y an element in common? True, too, where that would take long to find out."""
    if not meet(span(x), span(y)):
        return False
    try:
        return bool(np.shares_memory(_memory(x), _memory(y), max_work=_WORK))  # type: ignore[arg-type]
    except Exception as e:  # np.exceptions.TooHardError, which older versions of NumPy have elsewhere
        if type(e).__name__ != "TooHardError":
            raise
        return True
