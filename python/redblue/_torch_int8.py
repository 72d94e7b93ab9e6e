"""Attention of tensors to keys and values of int8. It has no gradients."""

from __future__ import annotations

from typing import Any

import torch

import redblue

from ._attention import attention, forward, refuse_gradients
from ._errors import Unsupported
from ._scales import Scales


def attend_with_scales(q: Any, k: Any, v: Any, out: Any, return_lse: bool, options: Any) -> Any:
    """redblue.torch.attention with options among which are scales."""
    return attention(q, k, v, out=out, return_lse=return_lse, **options)


def int8_of_tensors(q: Any, k: Any, v: Any, out: Any, return_lse: bool, scales: Scales, options: Any) -> Any:
    """attention, of which torch records and compiles nothing."""
    of = redblue.torch
    tensors = (q, k, v, scales.k, scales.v, options.get("bias"), options.get("alibi_slopes"), options.get("sinks"))
    why = "k and v of int8 have no gradients: detach the other tensors, or call it under torch.no_grad()"
    refuse_gradients(why, *(x for x in tensors if x is not None))
    if of._way(tensors[:3]) != of._DIRECT:
        raise Unsupported("k and v of int8: not in what torch traces or maps; give floats there, words times scales")
    if torch.is_autocast_enabled("cpu"):
        q = of._autocast(q, torch.get_autocast_dtype("cpu"))
    if options.get("dropout") and options.get("seed") is None:
        options["seed"] = of._drawn_seed()
    return forward(q, k, v, out, return_lse, options, scales)
