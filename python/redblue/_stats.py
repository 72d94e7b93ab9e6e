"""What the calls of this process did."""

from __future__ import annotations

from typing import Any

from . import _core
from ._call.settings import flag


def stats(*, reset: bool = False) -> dict[str, Any]:
    """What all threads of this process did since it began, or since the last reset, by any function of redblue.

    Returns a dict:

    calls       runs of plans, of attention, gradients, scores and weights, also those that PyTorch, JAX and ONNX make. Gradients
                under a bias may run a second plan
    refusals    errors of redblue that were raised (InvalidProblem, Unsupported, CapacityError, NotEnoughMemory); no TypeError
    plans       plans made, for calls or for people
    plan_ms     the milliseconds that it took to make them
    cache_hits  calls whose plan had run before
    schedules   {name of a schedule: calls}

    reset=True sets all of them to 0 after reading them. A child of fork() goes on from the numbers of its parent. Raises
    InvalidProblem for a reset that is neither True nor False.

    Source: docs/calls.md.
    """
    return dict(_core.statistics(flag("reset", reset)))
