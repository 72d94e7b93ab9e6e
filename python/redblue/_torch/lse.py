"""The gradient of lse over ranks, which send none: a problem whose gradients are those of both results."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from .._call.lse import require_keys
from .._call.settings import tokens_first


def with_gradient_of_lse(do: Optional[Tensor], dlse: Tensor, o: Tensor, v: Tensor, layout: str, sinks: Optional[Tensor]) -> tuple:
    """do, o and v of a problem whose gradients are those of SUM do o + SUM dlse lse.

    The gradient of scores is P (dP - D + dlse), with D = rowsum(do o). One more feature makes D - dlse of D: it is 0 in v, which
    leaves dP as it is, 1 in o, and -dlse in do, which takes the type of lse.
    """
    first = tokens_first(layout)
    require_keys(v.shape[-3 if first else -2], sinks)
    column = (dlse.transpose(-1, -2) if first else dlse).unsqueeze(-1)
    do = o.new_zeros(o.shape, dtype=dlse.dtype) if do is None else do.to(dlse.dtype)
    return tuple(torch.cat(x, -1) for x in ((do, -column), (o, o.new_ones(column.shape)), (v, v.new_zeros((*v.shape[:-1], 1)))))
