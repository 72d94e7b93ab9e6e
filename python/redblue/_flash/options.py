"""Options of flash-attention's functions, as `attention` takes them."""

from __future__ import annotations

from typing import Any, Optional

from .._errors import InvalidProblem


def flash_options(softmax_scale: Optional[float], causal: bool, window_size: Any, softcap: float, alibi_slopes: Any) -> dict:
    if not isinstance(window_size, (tuple, list)) or len(window_size) != 2:
        raise InvalidProblem(f"window_size = {window_size!r}: give (left, right), -1 where there is no edge")
    window = None if tuple(window_size) == (-1, -1) else tuple(window_size)
    return {
        "layout": "bshd",
        "scale": softmax_scale,
        "causal": causal,
        "window": window,
        "softcap": softcap,
        "alibi_slopes": alibi_slopes,
    }
