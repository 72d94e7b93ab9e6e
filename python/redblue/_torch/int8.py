"""Attention of tensors to keys and values of int8. It has no gradients."""

from __future__ import annotations

from typing import Any

import torch

from .._attention import forward, refuse_gradients
from .._call.scales import Scales
from .._errors import Unsupported
from . import attention as of


def int8_of_tensors(q: Any, k: Any, v: Any, out: Any, return_lse: bool, scales: Scales, options: Any) -> Any:
    """attention, of which torch records and compiles nothing."""
    tensors = (q, k, v, scales.k, scales.v, options.get("bias"), options.get("alibi_slopes"), options.get("sinks"))
    why = "k and v of int8 have no gradients: detach the other tensors, or call it under torch.no_grad()"
    refuse_gradients(why, *(x for x in tensors if x is not None))
    if of.way_of(tensors[:3]) != of.DIRECT:
        raise Unsupported("k and v of int8: not in what torch traces or maps; give floats there, words times scales")
    if torch.is_autocast_enabled("cpu"):
        q = of.autocast(q, torch.get_autocast_dtype("cpu"))
    if options.get("dropout") and options.get("seed") is None:
        options["seed"] = of.drawn_seed()
    return forward(q, k, v, out, return_lse, options, scales)
