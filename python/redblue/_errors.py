"""What redblue raises. Each message names what was wrong, its value, and what would work."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core


class Error(Exception):
    """Base of all errors of redblue."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        if not isinstance(self, OSError):
            _core.count_refusal()  # redblue.stats


class InvalidProblem(Error, ValueError):
    """Sizes, options or arrays that make no sense or do not fit each other."""


class Unsupported(Error, NotImplementedError):
    """A request that redblue cannot meet."""


class CapacityError(Error, ValueError):
    """Fast memory is too small for every schedule that may be chosen."""


class NotEnoughMemory(Error, MemoryError):
    """A run takes more bytes beside its arrays than it may, or than the machine has."""


class FileError(Error, OSError):
    """A file could not be read or written."""


def int8_error(name: str) -> TypeError:
    """The error for int8 keys or values where a function takes none, or without their scales."""
    return TypeError(
        f"{name} has elements of int8: attention, explain and flash_attn_with_kvcache take k and v of int8, both, with their scales "
        "(k_scale, v_scale; k_descale, v_descale); elsewhere give floats, words times scales"
    )


def type_error(name: str, what: object, to_bool: str = "astype(bool)") -> TypeError:
    """The error for elements of type `what` in the array of this name."""
    if isinstance(what, np.dtype) and (what.kind == "f" or what.name == "bfloat16") and not what.isnative:
        shown, native = (what, f"'{what.name}'") if what.kind == "f" else (what.name, "ml_dtypes.bfloat16")
        return TypeError(f"{name} has elements of type {shown}, in the other byte order: give {name}.astype({native})")
    mask = f"; whole numbers where 1 shows a key become a mask by .{to_bool}" if name == "bias" else ""
    return TypeError(f"{name} has elements of type {what}: give float64, float32, float16 or bfloat16{mask}")
