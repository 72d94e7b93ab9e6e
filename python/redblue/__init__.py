"""I/O-optimal attention: plans with exact word counts, held against proven lower bounds, and run on your arrays.

>>> import numpy as np, redblue
>>> q = k = v = np.ones((1, 2, 16, 8), np.float32)
>>> redblue.attention(q, k, v, causal=True).shape
(1, 2, 16, 8)

docs/python.md is the guide. `redblue.distributed`, `redblue.files`, `redblue.torch`, `redblue.jax`, `redblue.onnx` and `redblue.plot` are
imported where they are first used; mpi4py, torch, JAX, onnx and matplotlib are not needed otherwise.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import patterns
from ._attention import Gradients, attention, attention_backward
from ._compare import Comparison, compare
from ._core import version as __version__
from ._errors import CapacityError, Error, FileError, InvalidProblem, NotEnoughMemory, Unsupported
from ._flash.kvcache import flash_attn_with_kvcache
from ._flash.shims import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    scaled_dot_product_attention,
)
from ._partial import attention_partial, attention_partial_backward, merge
from ._plan import Plan, bound, certify, count, explain, plan
from ._regimes import regimes
from ._scores import scores, weights
from ._second import SecondGradients, Tangents, attention_second, attention_tangent
from ._stats import stats

if TYPE_CHECKING:
    from . import distributed as distributed
    from . import files as files
    from . import jax as jax
    from . import onnx as onnx
    from . import plot as plot
    from . import torch as torch
    from ._explore import explore
    from ._flash.stand_in import install_flash_attn as install_flash_attn
    from ._flash.stand_in import uninstall_flash_attn as uninstall_flash_attn
    from ._report import report
    from .torch import install as install
    from .torch import uninstall as uninstall
    from .torch import use as use

__all__ = [
    "CapacityError",
    "Comparison",
    "Error",
    "FileError",
    "Gradients",
    "InvalidProblem",
    "NotEnoughMemory",
    "Plan",
    "SecondGradients",
    "Tangents",
    "Unsupported",
    "__version__",
    "attention",
    "attention_backward",
    "attention_partial",
    "attention_partial_backward",
    "attention_second",
    "attention_tangent",
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
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "merge",
    "patterns",
    "plan",
    "regimes",
    "report",
    "scaled_dot_product_attention",
    "scores",
    "stats",
    "weights",
]  # not install, use, uninstall and those of flash_attn: `from redblue import *` would need torch

#: Where these are, which are imported when they are first used: torch is not needed before, nor what pages are made of.
_LATER = {
    "explore": "_explore",
    "install": "torch",
    "install_flash_attn": "_flash.stand_in",
    "report": "_report",
    "uninstall": "torch",
    "uninstall_flash_attn": "_flash.stand_in",
    "use": "torch",
}
_MODULES = ("distributed", "files", "jax", "onnx", "plot", "torch")


if not TYPE_CHECKING:  # which would take any name then

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return importlib.import_module(f".{name}", __name__)
        if name in _LATER:
            return getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
        raise AttributeError(f"module 'redblue' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, *_MODULES})
