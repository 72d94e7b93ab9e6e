"""I/O-optimal attention: plans with exact word counts, held against proven lower bounds, and run on your arrays.

>>> import numpy as np, redblue
>>> q = k = v = np.ones((1, 2, 16, 8), np.float32)
>>> redblue.attention(q, k, v, causal=True).shape
(1, 2, 16, 8)

docs/python.md is the guide. `redblue.torch` and `redblue.jax` are imported where they are first used; torch and
JAX are not needed otherwise.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import patterns
from ._attention import Gradients, attention, attention_backward
from ._compare import Comparison, compare
from ._core import version as __version__
from ._errors import CapacityError, Error, FileError, InvalidProblem, NotEnoughMemory, Unsupported
from ._kvcache import flash_attn_with_kvcache
from ._plan import Plan, bound, certify, count, explain, plan
from ._scores import scores, weights
from ._shims import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    scaled_dot_product_attention,
)

if TYPE_CHECKING:
    from ._explore import explore
    from ._report import report

__all__ = [
    "CapacityError",
    "Comparison",
    "Error",
    "FileError",
    "Gradients",
    "InvalidProblem",
    "NotEnoughMemory",
    "Plan",
    "Unsupported",
    "__version__",
    "attention",
    "attention_backward",
    "bound",
    "certify",
    "compare",
    "count",
    "explain",
    "explore",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "patterns",
    "plan",
    "report",
    "scaled_dot_product_attention",
    "scores",
    "weights",
]  # not install, use and uninstall: `from redblue import *` would need torch

#: Where these are, which are imported when they are first used: torch is not needed before, nor what pages are made of.
_LATER = {"explore": "_explore", "install": "torch", "report": "_report", "uninstall": "torch", "use": "torch"}


def __getattr__(name: str) -> Any:
    if name in ("jax", "torch"):
        return importlib.import_module(f".{name}", __name__)
    if name in _LATER:
        return getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
    raise AttributeError(f"module 'redblue' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, "jax", "torch"})
