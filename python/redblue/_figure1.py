"""The data of Figure 1 and Table 1 of Li et al. (2024, arXiv 2410.09397): words of dL/dX against words of fast memory M, for their
algorithms as printed, for redblue's repaired ones, and for the best, beside the lower bound. The counting machine counts
every word."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Optional

from ._program import printed_by

COLUMNS = ("printed_small", "printed_large", "repaired_small", "repaired_large", "best")


def _ask(command: str, n: int, d: int, M: int, *options: Any) -> Any:
    return json.loads(printed_by(command, "--op", "gradient-x", "--n", n, "--d", d, "--M", M, "--json", *options))


def _point(n: int, d: int, M: int, schedule: str) -> dict:
    """What `schedule` moves and holds, counted."""
    counted = _ask("count", n, d, M, "--schedule", schedule)["counted"]
    return {"schedule": schedule, "io": counted["io"], "peak": counted["peak"], "peak_over_M": counted["peak"] / M}


def line(n: int, d: int, M: int) -> dict:
    """All that the figure has for one size of fast memory."""
    plan = _ask("plan", n, d, M)
    plans = [p["schedule"] for p in plan["plans"]]
    # The schedules of the paper that need more than M words are counted as well: they were printed for this M.
    large = [p["schedule"] for p in plan["plans"] if p["may_be_chosen"] and p["schedule"] != "6R"]
    named = ["algorithm_6", "algorithm_9", "6R", *large[:1], *[None] * (not large), plans[plan["chosen"]]]
    return {
        "M": M,
        "M_over_d2": M / d**2,
        **{column: _point(n, d, M, name) if name in plans else None for column, name in zip(COLUMNS, named)},
        "bound": plan["bound"],
        "small_cache_form": (n * n * d + n * d * d) / math.sqrt(M),
        "large_cache_form": (n * n * d * d + n * d**3) / M,
    }


def sizes(n: int, d: int, first: Optional[int] = None, last: Optional[int] = None, per_octave: int = 1) -> list[int]:
    """Words of fast memory: a power of two times 2^(k / per_octave), so that M = d^2 is among them where d is a power of two."""
    first = max(16, d * d // 64) if first is None else first
    last = max(first, n * d, 4 * d * d) if last is None else last
    steps = int(math.log2(last / first) * per_octave + 1e-6) if 0 < first <= last else -1
    return [math.floor(first * 2 ** (k / per_octave) + 0.5) for k in range(steps + 1)]


def crossover(lines: Sequence[dict], a: str, b: str) -> Optional[int]:
    """The last M at which `b` begins to move no more words than `a`; None if there is none, or `b` does so from the first M."""
    last, before = None, False  # did `a` win at the previous M?
    for at in lines:
        if at[a] is None:
            continue
        wins = at[b] is not None and at[b]["io"] <= at[a]["io"]
        if wins and before:
            last = at["M"]
        before = not wins
    return last


def facts(n: int, d: int, lines: Sequence[dict]) -> dict:
    """The figure with what it is about."""
    return {
        "schema": "redblue.figure1/1",
        "source": "Li et al. 2410.09397, Figure 1 and Table 1",
        "problem": _ask("plan", n, d, lines[0]["M"])["problem"],
        "counts": "executed on the counting machine",
        "table1": {
            "small_cache": {"condition": "M < d^2", "form": "(n^2 d + n d^2) / sqrt(M)", "algorithm": "algorithm_6"},
            "large_cache": {"condition": "M >= d^2", "form": "(n^2 d^2 + n d^3) / M", "algorithm": "algorithm_9"},
        },
        "crossover": {
            "theory": d * d,
            "printed": crossover(lines, "printed_small", "printed_large"),
            "repaired": crossover(lines, "repaired_small", "repaired_large"),
        },
        "points": list(lines),
    }
