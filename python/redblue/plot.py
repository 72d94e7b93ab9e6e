"""Pictures of plans, bounds, machines and runs, for papers. Needs matplotlib.

    axes = redblue.plot.io_against_memory("backward", n=4096, d=128)
    axes.figure.savefig("io.pdf")

Every function draws into `ax` (a new figure where it is None) and returns the Axes. Colours are those of Okabe & Ito,
which colour-blind readers tell apart, and lines differ in dashes, too. Text stays text in PDF and SVG files. The
numbers are exact plans and proven bounds of redblue itself; nothing is fitted.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator

from ._call.arrays import integers
from ._call.settings import real, whole
from ._compare import Comparison
from ._errors import CapacityError, InvalidProblem
from ._figure1 import COLUMNS, line, sizes
from ._plan import Plan, plan
from ._program import printed_by
from ._report import json_of, text_of

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#7F7F7F")  # Okabe & Ito, and grey
DASHES = ("-", "--", "-.", ":")
STYLE = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none", "axes.spines.top": False, "axes.spines.right": False}


def _axes(ax: Optional[Axes], width: float = 6.0, height: float = 4.0) -> Axes:
    mpl.rcParams.update({name: STYLE[name] for name in ("pdf.fonttype", "ps.fonttype", "svg.fonttype")})
    if ax is None:
        with mpl.rc_context(STYLE):
            ax = plt.figure(figsize=(width, height), layout="constrained").add_subplot()
    return ax


def _style(index: int) -> dict:
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": DASHES[index // len(COLOURS) % len(DASHES)]}


def _title(op: str, options: Mapping[str, Any]) -> str:
    return ", ".join([op, *(f"{name} = {value}" for name, value in options.items())])


def _powers(low: float, high: float, count: int) -> list[int]:
    return sorted({int(round(x)) for x in np.geomspace(low, high, count)})


def _plan(op: str, M: int, options: Mapping[str, Any]) -> Optional[Plan]:
    try:
        return plan(op, M=M, **options)
    except CapacityError:
        return None  # nothing runs with so little fast memory: a gap in the picture


def io_against_memory(
    op: str = "forward",
    *,
    M: Optional[Iterable[int]] = None,
    schedules: Optional[Sequence[str]] = None,
    ax: Optional[Axes] = None,
    **options: Any,
) -> Axes:
    """Words moved against words of fast memory: every schedule, the best of them, the proven lower bound, and the sizes of
    memory where another schedule becomes the best (Figure 1 of Li et al. 2024, arXiv 2410.09397, with exact words).

    Sizes and options as for `redblue.plan`. M: words of fast memory, default 48 values from 16 d to 16 d^2. schedules:
    draw these only; default: those that are the best somewhere. Raises what `redblue.plan` raises, and InvalidProblem where
    no schedule runs with any M.
    """
    ax, d = _axes(ax), whole("d", options.get("d"))
    sizes = integers(M, "M") or _powers(16 * d, 16 * d * d, 48)
    plans = [p for p in (_plan(op, size, options) for size in sizes) if p is not None]
    if not plans:
        raise InvalidProblem("no schedule runs with any of these M: give larger ones")
    at = [p.M for p in plans]
    if schedules is None:
        schedules = list(dict.fromkeys(p.schedule for p in plans))
    for name in schedules:
        _plan(op, plans[-1].M, {**options, "schedule": name})  # refuses names that there are not
    for i, name in enumerate(schedules):
        io = [next((row["io"] for row in p.rows if row["schedule"] == name), np.nan) for p in plans]
        ax.plot(at, io, label=name, **_style(i))
    theorems = ", ".join(dict.fromkeys(p.theorem for p in plans))
    ax.plot(at, [p.bound for p in plans], color="black", linewidth=2, label=f"lower bound ({theorems})")
    for before, after in zip(plans, plans[1:]):
        if before.schedule != after.schedule:
            ax.axvline(_switch(op, before, after, options), color="0.7", linewidth=0.8, zorder=0)
    ax.axvline(d * d, color="0.4", linewidth=0.8, linestyle=":", zorder=0)
    ax.annotate("M = d²", (d * d, 1), (3, -3), xycoords=("data", "axes fraction"), textcoords="offset points", va="top", color="0.4")
    ax.set(xscale="log", yscale="log", xlabel="fast memory M (words)", ylabel="words moved", title=_title(op, options))
    ax.legend(frameon=False, fontsize="small")
    return ax


def _switch(op: str, before: Plan, after: Plan, options: Mapping[str, Any]) -> int:
    """A size of memory between these two from which on, word by word, another schedule than just below it is the best."""
    low, high = before.M, after.M
    while high - low > 1:
        middle = _plan(op, (low + high) // 2, options)
        if middle is not None and middle.schedule == before.schedule:
            low = middle.M
        else:
            high = (low + high) // 2
    return high


def figure1(
    n: int = 1024, d: int = 32, *, M: Optional[Iterable[int]] = None, axes: Optional[Sequence[Axes]] = None
) -> tuple[Axes, Axes]:
    """Figure 1 of Li et al. 2024 (arXiv 2410.09397), for the operation gradient-x, dL/dX of attention through projections, with words
    that the counting machine counts: their algorithms for small and for large caches as printed, redblue's repaired ones, the
    best, and the proven lower bound. The first panel has the words moved against words of fast memory M, with the forms of
    their Table 1; the second has the words that each holds over M: above 1 it does not fit, as the printed ones do not.

    n queries and keys, d columns of A1, A2, A3, X and Y. M: words of fast memory, default d^2/64 to n d. axes: two, to draw
    into. scripts/figure1.py prints the numbers. Raises InvalidProblem for sizes that have no plan.
    """
    n, d = whole("n", n), whole("d", d)
    if n < 1 or d < 1:
        raise InvalidProblem(f"n = {n}, d = {d}: give whole numbers from 1 on")
    lines = [line(n, d, size) for size in (integers(M, "M") or sizes(n, d))]
    if axes is None:
        with mpl.rc_context(STYLE):
            axes = plt.figure(figsize=(11, 4), layout="constrained").subplots(1, 2)
    moved, held = (_axes(ax) for ax in axes)
    at = [x["M"] for x in lines]
    for i, column in enumerate(COLUMNS):
        label = column.replace("_", ", ") + " cache" * (column != "best")
        for ax, key in ((moved, "io"), (held, "peak_over_M")):
            ax.plot(at, [np.nan if x[column] is None else x[column][key] for x in lines], label=label, marker=".", **_style(i))
    moved.plot(at, [x["bound"]["words"] for x in lines], color="black", linewidth=2, label="lower bound")
    for form, label in (("small_cache_form", "(n²d + nd²) / √M"), ("large_cache_form", "(n²d² + nd³) / M")):
        moved.plot(at, [x[form] for x in lines], color="0.6", linestyle=":", label=label)
    held.axhline(1, color="black", linewidth=1)
    for ax, ylabel in ((moved, "words moved"), (held, "words held / M")):
        ax.axvline(d * d, color="0.4", linewidth=0.8, linestyle=":", zorder=0)
        ax.annotate("M = d²", (d * d, 1), (3, -3), xycoords=("data", "axes fraction"), textcoords="offset points", va="top", color="0.4")
        ax.set(xscale="log", yscale="log", xlabel="fast memory M (words)", ylabel=ylabel, title=f"dL/dX, n = {n}, d = {d}")
    moved.legend(frameon=False, fontsize="small")
    return moved, held


def _grid(
    op: str, d: Optional[Sequence[int]], M: Optional[Sequence[int]], options: Mapping[str, Any]
) -> tuple[list[int], list[int], list[list[Optional[Plan]]]]:
    """The axes of a map, and its plans: a row for each M."""
    d, M = list(integers(d, "d") or _powers(16, 1024, 13)), list(integers(M, "M") or _powers(512, 2**20, 23))
    return d, M, [[_plan(op, size, {**options, "d": width}) for width in d] for size in M]


def _draw_map(ax: Axes, d: Sequence[int], M: Sequence[int], values: Any, **style: Any) -> Any:
    """Cells of these values, and the line M = d^2 as far as there are cells."""
    cells = ax.pcolormesh(d, M, np.array(values), shading="nearest", **style)
    ax.set(xscale="log", yscale="log", xlabel="head dimension d", ylabel="fast memory M (words)")
    limits = ax.get_ylim()
    ax.plot(d, np.square(d), color="white", linestyle="--", linewidth=1)
    ax.annotate("M = d²", (d[len(d) // 2], d[len(d) // 2] ** 2), (4, -12), textcoords="offset points", color="white")
    ax.set(ylim=limits)
    return cells


def regimes(
    op: str = "forward",
    *,
    d: Optional[Sequence[int]] = None,
    M: Optional[Sequence[int]] = None,
    ax: Optional[Axes] = None,
    **options: Any,
) -> Axes:
    """The schedule that moves the fewest words, over head dimension d (default 16 to 1024) and words of fast memory M.

    Options as for `redblue.plan`, and it raises what that raises.
    """
    ax = _axes(ax)
    d, M, grid = _grid(op, d, M, options)
    names = list(dict.fromkeys(p.schedule for row in grid for p in row if p is not None))
    chosen = [[np.nan if p is None else names.index(p.schedule) for p in row] for row in grid]
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(names))]
    _draw_map(ax, d, M, chosen, cmap=ListedColormap(colours), vmin=-0.5, vmax=len(names) - 0.5)
    ax.legend(
        handles=[Patch(color=c, label=n) for c, n in zip(colours, names)],
        loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize="small",
    )  # fmt: skip
    ax.set(title="fewest words: " + _title(op, options))
    return ax


def ratios(
    op: str = "forward",
    *,
    d: Optional[Sequence[int]] = None,
    M: Optional[Sequence[int]] = None,
    ax: Optional[Axes] = None,
    **options: Any,
) -> Axes:
    """Words of the best plan over the proven lower bound, over head dimension d (default 16 to 1024) and words of fast
    memory M: 1 is optimal.

    Options as for `redblue.plan`, and it raises what that raises.
    """
    ax = _axes(ax)
    d, M, grid = _grid(op, d, M, options)
    values = [[np.nan if p is None or p.ratio is None else p.ratio for p in row] for row in grid]
    cells = _draw_map(ax, d, M, values, cmap="cividis", vmin=1)
    ax.figure.colorbar(cells, ax=ax, label="words / lower bound")
    ax.set(title=_title(op, options))
    return ax


def roofline(
    points: Mapping[str, tuple[Plan, float]],
    *,
    machine: Union[str, Path, Mapping[str, Any], None] = None,
    dtype: str = "f32",
    ax: Optional[Axes] = None,
) -> Axes:
    """Measured runs under the roofs of a measured machine (Williams, Waterman & Patterson 2009).

    points: {label: (plan, GFLOP/s measured)}; a point stands at the plan's flops per byte of exact I/O. machine: what
    `redblue doctor --json` prints, as a file or a dict; default: this machine's own. dtype: of arithmetic, "f64", "f32" or
    "bf16". Raises InvalidProblem for points and machines that are none, FileError for a file that cannot be read.
    """
    for label, point in points.items():
        _require_point(label, point)
    facts = _machine(machine)
    peaks = [p["flops"] / 1e9 for p in facts["peaks"] if p["dtype"] == dtype]
    if dtype not in _BYTES or not peaks:
        raise InvalidProblem(f"dtype = {dtype!r}: give one of f64, f32, bf16, which the machine was measured with")
    ax, peak, bytes_of_word = _axes(ax), max(peaks), _BYTES[dtype]
    intensities = {label: p.flops / (bytes_of_word * p.io) for label, (p, _) in points.items()}
    x = np.geomspace(min([0.1, *intensities.values()]) / 2, max([100.0, *intensities.values()]) * 2, 200)
    for i, level in enumerate(facts["levels"]):
        ax.plot(x, np.minimum(peak, level["read_bandwidth"] / 1e9 * x), label=f"{level['name']}, one core", **_style(i))
    ax.axhline(peak, color="black", linewidth=1, label=f"peak, one core: {peak:.0f} GFLOP/s")
    for i, (label, (_, rate)) in enumerate(points.items()):
        ax.plot(intensities[label], rate, marker="osD^v"[i % 5], color="black", linestyle="none")
        ax.annotate(label, (intensities[label], rate), (4, -10), textcoords="offset points", fontsize="small")
    ax.set(xscale="log", yscale="log", xlabel="flops per byte moved", ylabel="GFLOP/s", title=facts.get("cpu", ""))
    ax.legend(frameon=False, fontsize="small")
    return ax


_BYTES = {"f64": 8, "f32": 4, "bf16": 2}


def _require_point(label: str, point: Any) -> None:
    if not isinstance(point, (tuple, list)) or len(point) != 2 or not isinstance(point[0], Plan):
        raise InvalidProblem(f"points[{label!r}] = {point!r}: give (plan, GFLOP/s), with a plan of redblue.plan or redblue.explain")
    rate = real(f"the rate of {label!r}", point[1])
    if not 0 < rate < math.inf:
        raise InvalidProblem(f"the rate of {label!r} = {rate}: give GFLOP/s, a number above 0")


_NO_MACHINE = "it is no hardware file; `redblue doctor --json` prints one"


def _machine(machine: Any) -> Mapping[str, Any]:
    if machine is None:
        facts = json.loads(printed_by("doctor", "--json"))
    else:
        facts = machine if isinstance(machine, Mapping) else json_of(Path(machine), _NO_MACHINE)
    if not isinstance(facts, Mapping) or "levels" not in facts or "peaks" not in facts:
        raise InvalidProblem(f"machine = {machine}: {_NO_MACHINE}")
    return facts


def timeline(trace: Union[str, Path, Sequence[Any]], *, ax: Optional[Axes] = None) -> Axes:
    """What fast memory holds while a schedule runs, by array, operation after operation.

    trace: the file that `redblue trace` wrote, or the arguments of that command as a list: ["--n", 8, "--d", 4, "--M", 64].
    A tile counts to the array from which it is read first, or to which it is written; others are scratch. An operation
    that takes words straight from slow memory holds one of them at a time. Raises InvalidProblem for a file that is no
    trace and for arguments that the command refuses, FileError for a file that cannot be read.
    """
    is_file = isinstance(trace, (str, Path))
    text = text_of(Path(trace)) if isinstance(trace, (str, Path)) else printed_by("trace", *trace)
    if is_file and not text.startswith(_TRACE):
        raise InvalidProblem(f"{trace} is no trace: give a file that redblue trace wrote, whose first line begins with {_TRACE!r}")
    try:
        steps, held = _residents(text.splitlines())
    except (ValueError, IndexError, KeyError) as problem:
        raise InvalidProblem(f"{trace} is no whole trace ({problem!r}): give a file as redblue trace wrote it") from problem
    ax = _axes(ax)
    names = sorted(held, key=lambda name: (name in ("scratch", "streamed"), name))
    ax.stackplot(range(steps), [held[n] for n in names], labels=names, colors=[COLOURS[i % len(COLOURS)] for i in range(len(names))], step="post")
    ax.set(xlabel="operation", ylabel="words in fast memory", xlim=(0, max(1, steps - 1)))
    ax.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return ax


_TRACE = "# redblue.trace/"


def _residents(lines: Sequence[str]) -> tuple[int, dict[str, np.ndarray]]:
    """The number of operations, and for each array the words that it holds after each of them."""
    operations = [line.split() for line in lines if line and not line.startswith("#")]
    tile = lambda word: word.split("[")[0]
    array_of: dict[str, str] = {}
    for kind, *rest in operations:
        if kind in ("read", "write"):
            mine, theirs = (rest[0], rest[1]) if kind == "read" else (rest[1], rest[0])
            array_of.setdefault(tile(mine), tile(theirs).split("#")[0])
    opened = {}
    events: list[tuple[int, str, int]] = []
    for at, (kind, *rest) in enumerate(operations):
        if kind == "compute" and any("#" in word for word in rest[1:]):
            events += [(at, "streamed", 1), (at + 1, "streamed", -1)]
        if kind not in ("open", "close"):
            continue
        if kind == "open":
            rows, cols = rest[1].split("x")
            opened[rest[0]] = int(rows) * int(cols)
        if words := opened[rest[0]]:
            events.append((at, array_of.get(rest[0], "scratch"), words if kind == "open" else -words))
    held = {name: np.zeros(len(operations), np.int64) for name in dict.fromkeys(name for _, name, _ in events)}
    for at, name, change in events:
        held[name][at:] += change
    return len(operations), held


def errors(table: Union[Comparison, str, Path, Mapping[str, Any]], *, ax: Optional[Axes] = None) -> Axes:
    """Error against words of attention that is approximate, and of exact attention: a point for each method and setting.

    table: what `redblue.compare` returned, or what `redblue compare --json` printed, as a file or a dict. The error is the
    mean over heads of |o - exact| / |exact| (Frobenius norms). Refused methods are left out. Raises InvalidProblem for
    anything else, FileError for a file that cannot be read.
    """
    if isinstance(table, Comparison):
        table = table.to_dict()
    wanted = "give what redblue.compare returned, or what redblue compare printed with --json"
    if not isinstance(table, (str, os.PathLike, Mapping)):
        raise InvalidProblem(f"table is a {type(table).__name__}: {wanted}")
    facts = table if isinstance(table, Mapping) else json_of(Path(table), wanted)
    if not isinstance(facts, Mapping) or "methods" not in facts or "M" not in facts:
        raise InvalidProblem(f"table has no methods of a comparison: {wanted}")
    ax = _axes(ax)
    ran = [m for m in facts["methods"] if "heads" in m]
    for i, name in enumerate(dict.fromkeys(m["method"] for m in ran)):
        same = [m for m in ran if m["method"] == name]
        # None becomes a NaN.
        mean = [float(np.mean(np.array([head["frobenius"] for head in m["heads"]], float))) for m in same]
        marker = "osD^v<>P*X"[i // len(COLOURS) % 10]
        ax.plot([m["io"] for m in same], mean, marker, color=COLOURS[i % len(COLOURS)], label=name)
    ax.set(xscale="log", yscale="log", xlabel="words moved", ylabel="relative error of the output", title=f"M = {facts['M']}")
    ax.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))  # labels of more ticks overlap
    ax.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return ax
