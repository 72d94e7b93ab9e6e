"""Which family of arrays a call is given."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .arrays import Imported, NumPy

_FAMILIES: dict[type, Any] = {np.ndarray: NumPy}


def family_of(q: Any, k: Any, v: Any) -> tuple[Any, Any, Any, Any]:
    """The family of three arrays, and the arrays as it wants them."""
    kind = type(q)
    if type(k) is kind and type(v) is kind:
        family = _FAMILIES.get(kind)
        if family is not None and (family is NumPy or not (q.is_neg() or k.is_neg() or v.is_neg())):
            return family, q, k, v
    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(x, torch.Tensor) for x in (q, k, v)):
        from .torch_arrays import Torch

        _FAMILIES[torch.Tensor] = Torch
        family = Torch
    elif isinstance(q, np.ndarray):
        family = NumPy
    else:
        namespace = getattr(q, "__array_namespace__", None)
        family = Imported(namespace() if namespace is not None else None)
    return family, family.given(q, "q"), family.given(k, "k"), family.given(v, "v")
