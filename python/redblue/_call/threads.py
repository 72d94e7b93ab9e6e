"""How many threads a run may use where its caller does not say."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Optional


def _of_omp() -> int:
    """0 where OMP_NUM_THREADS is no number."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdigit() else 0


_told = bool(os.environ.get("REDBLUE_THREADS"))
#: 0: those of the pool, which REDBLUE_THREADS sets (by default one for each CPU).
_environment = 0 if _told else _of_omp()


_of_torch: Optional[Callable[[], int]] = None  # torch.get_num_threads, once torch is loaded


def default_threads() -> int:
    """REDBLUE_THREADS, or else torch.get_num_threads() where torch is loaded, or else OMP_NUM_THREADS, or else 0."""
    global _of_torch
    if _told:
        return _environment
    if _of_torch is None:
        _of_torch = getattr(sys.modules.get("torch"), "get_num_threads", None)  # a torch that is being imported has none yet
        if _of_torch is None:
            return _environment
    return _of_torch()
