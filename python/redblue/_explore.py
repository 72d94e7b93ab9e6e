"""A page on which problems are chosen with sliders, and the best schedule, its words and the bound are seen at once."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, Optional, Union

from . import _core
from ._errors import CapacityError, Error, FileError, InvalidProblem, Unsupported
from ._plan import Plan, plan

#: The problems of the page. d_v/d: the value dimension d_v is d times this.
AXES: dict[str, Sequence[Any]] = {
    "op": ("forward", "backward"),
    "mask": ("none", "causal", "window of 256"),
    "n": (256, 1024, 4096, 16384, 65536),
    "d": (16, 32, 64, 128, 256, 512),
    "d_v/d": (0.5, 1, 2),
    "M": tuple(2**k for k in range(9, 21)),
}
_MASKS: dict[str, dict] = {"none": {}, "causal": {"causal": True}, "window of 256": {"window": (128, 127)}}
_OPTIONS = {"none": [], "causal": ["--causal"], "window of 256": ["--window", "128,127"]}


class _Numbered:
    """Texts that come often, as numbers."""

    def __init__(self) -> None:
        self.all: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.all.setdefault(text, len(self.all))


def _d_v(d: int, ratio: float) -> int:
    d_v = d * ratio
    if d_v != int(d_v) or d_v < 1:
        raise InvalidProblem(f"axes: d_v/d = {ratio} with d = {d}: their product is no whole number from 1 on")
    return int(d_v)


def _plan(op: str, mask: str, n: int, d: int, ratio: float, M: int) -> Optional[Plan]:
    try:
        return plan(op, n=n, d=d, d_v=_d_v(d, ratio), M=M, **_MASKS[mask])
    except (CapacityError, Unsupported):
        return None


def _nest(op: str, mask: str, n: int, d: int, ratio: float, M: int) -> list[str]:
    """Two texts: the sizes that the nest is for, and the nest."""
    values = {"n": n, "d": d, "dv": _d_v(d, ratio), "M": M}
    sizes = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "redblue", "explain", "--op", op, *sizes, *_OPTIONS[mask]]
    done = subprocess.run(command, capture_output=True, text=True)
    return [f"n = {n}, d = {d}, d_v = {values['dv']}, M = {M}", done.stdout if done.returncode == 0 else done.stderr]


def data(axes: Mapping[str, Sequence[Any]]) -> dict:
    """What the page knows: for each problem in order of the axes a list [io, bound, theorem, footprint, tiling, reason,
    [[schedule, io], ...]] for one head, or None where nothing runs."""
    if set(axes) != set(AXES) or not all(axes.values()):
        raise InvalidProblem(f"axes = {sorted(axes)}: give values for each of {', '.join(AXES)}")
    names, theorems, reasons = _Numbered(), _Numbered(), _Numbered()
    cells: list = []
    explained: dict[str, tuple] = {}  # the problem whose loop nest shows a schedule
    problems = list(product(*(axes[name] for name in AXES)))
    with ThreadPoolExecutor() as pool:
        for problem, p in zip(problems, pool.map(lambda problem: _plan(*problem), problems)):
            if p is None:
                cells.append(None)
                continue
            tiling = " ".join(f"{name}={size}" for name, size in p.tiling.items())
            rows = sorted(([row["schedule"], row["io"]] for row in p.rows), key=lambda row: row[0] != p.schedule)
            numbered = [[names(name), io] for name, io in rows]
            cells.append([p.io, p.bound, theorems(p.theorem), p.footprint, tiling, reasons(p.reason), numbered])
            explained.setdefault(f"{problem[0]} {problem[1]} {p.schedule}", problem)
        nests = dict(zip(explained, pool.map(lambda problem: _nest(*problem), explained.values())))
    return {
        "axes": {name: list(values) for name, values in axes.items()},
        "cells": cells,
        "names": list(names.all),
        "theorems": list(theorems.all),
        "reasons": list(reasons.all),
        "nests": nests,
        "source": f"redblue {_core.version} computed these {len(cells)} plans: exact words, each head with keys of its own. "
        "The command redblue plan plans any other problem.",
    }


def explore(output: Union[str, Path], *, axes: Optional[Mapping[str, Sequence[Any]]] = None) -> None:
    """Writes a self-contained page: sliders for operation, mask, n, d, d_v, M and heads; words against M beside the bound, the
    best schedule with its tiles and the reason, all others, and its loop nest. It needs no network.

    axes: the problems that the page knows, as redblue._explore.AXES has them. redblue plans each of them when it writes the
    page, which takes some milliseconds a problem. Raises InvalidProblem, FileError.
    """
    text = json.dumps(data(axes or AXES), separators=(",", ":")).replace("</", "<\\/")
    page = (Path(__file__).parent / "explore.html").read_text(encoding="utf-8")
    try:
        Path(output).write_text(page.replace("/*DATA*/null", text), encoding="utf-8")
    except OSError as e:
        raise FileError(f"{output}: {e.strerror}") from e


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser("redblue explore", allow_abbrev=False, description="Writes a page with sliders over problems and plans.")
    parser.add_argument("-o", "--output", default="redblue-explore.html", help="default: redblue-explore.html")
    options = parser.parse_args(arguments)
    try:
        explore(options.output)
    except Error as e:
        print(f"redblue: {e}", file=sys.stderr)
        sys.exit(2)
    print(f"{options.output}: open it in a browser")
