"""lse, and its gradient."""

from __future__ import annotations

from typing import Any

from ._errors import Unsupported


def of_rows(sinks: Any, dimensions: int) -> Any:
    """sinks as they broadcast to an lse that has this number of dimensions."""
    return sinks.reshape(((1,) + tuple(sinks.shape[:2]) + (1,))[-dimensions:])


def require_keys(keys: int, sinks: Any) -> None:
    """For a gradient of lse: without keys lse is the sink, and no plan runs that would give its gradient."""
    if keys == 0 and sinks is not None:
        raise Unsupported("the gradient of lse with sinks and no keys is not computed: lse is then the sinks themselves; use these")
