"""The referee of attention over ranks that anyone wrote: redblue.distributed.check."""

from __future__ import annotations

import functools
import importlib.util
import math
import multiprocessing
import pickle
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Optional, Union

import numpy as np

from .._errors import Error, InvalidProblem
from .._ranks.layout import Layout
from .._ranks.plans import count, plan, positions
from .cases import FEATURES, Case, arrays_of, cases_of, dense, dense_scores, rounding_error, seen
from .group import Failed, Processes
from .guess import Guess, largest_error
from .report import Report, Row

Ownership = Union[str, Callable[[int, int, int], Any]]
#: After this many hangs on one number of ranks the other cases are left out.
HANGS = 3
#: How far the error in bfloat16 may grow from the first number of ranks on. Results that are rounded once differ by 2 %, as values
#: do; rings whose partial results are rounded have 1.4 on three ranks, and 1.6 on four.
GROWTH = 1.25
#: The case of the feature "subgroup".
OUTSIDE = "group without rank 0 of the world"


def check(
    fn: Callable[..., Any], *, ranks: Sequence[int] = (1, 2, 3, 4), features: Collection[str] = (), ownership: Ownership = "contiguous",
    alignment: str = "bottom-right", only: Collection[str] = (), patience: float = 60.0,
) -> Report:  # fmt: skip
    """Runs a function that computes attention over ranks on groups of gloo, and holds it against dense attention in fp64.

    fn(q, k, v, *, group, **options) gets the rows that this rank has, q [batch, heads, rows, d], k [batch, kv_heads, rows, d]
    and v [batch, kv_heads, rows, d_v], and returns o [batch, heads, rows, d_v] of the type of q, or (o, lse). It is called in
    processes of its own, which import it: it must be a function of a module, and a script that calls check does so under
    `if __name__ == "__main__":`.

    ranks       the numbers of ranks to try
    features    what fn claims; options come only with what is claimed, and what is not claimed is not tried:
                {features}
    ownership   which rows a rank has: "contiguous", "zig-zag", "block-cyclic" (one row after the other is dealt out), or a
                function (rank, ranks, n) -> positions
    alignment   of masks where there are more keys than queries: "bottom-right" or "top-left"
    only        names of cases; default: all of them
    patience    seconds after which a rank that does not answer has hung

    Returns a Report, which prints as a table. Bytes decide nothing: what redblue's schedules need stands beside them.
    """
    claimed = _require_known("features", [features] if isinstance(features, str) else features, FEATURES)
    if alignment not in ("bottom-right", "top-left"):
        raise InvalidProblem(f"alignment = {alignment!r}: give 'bottom-right' or 'top-left'")
    if isinstance(ownership, str):
        _require_known("ownership", [ownership], ("contiguous", "zig-zag", "block-cyclic"))
    sizes = [ranks] if isinstance(ranks, int) else list(ranks)
    if not sizes or any(not isinstance(p, int) or p < 1 for p in sizes):
        raise InvalidProblem(f"ranks = {ranks!r}: give whole numbers from 1, such as (1, 2, 4)")
    if not patience > 0:
        raise InvalidProblem(f"patience = {patience!r}: give seconds above 0")
    names = [only] if isinstance(only, str) else only
    known = {case.name: None for p in sizes for case in cases_of(p, claimed, alignment == "bottom-right")}
    chosen = _require_known("only", names, [*known, *([OUTSIDE] if "subgroup" in claimed else [])])
    pickled = _pickled(fn)
    if importlib.util.find_spec("torch") is None:
        raise Error("redblue.distributed.check needs torch with gloo: install torch")
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # a process that tries fn, and imports its script
        raise Error("check is called again where its processes import this script: call it under `if __name__ == '__main__':`")
    rows: list[Row] = []
    for p in sizes:
        cases = [case for case in cases_of(p, claimed, alignment == "bottom-right") if not chosen or case.name in chosen]
        rows += _tried(pickled, p, cases, ownership, alignment, patience)
    if "subgroup" in claimed and (not chosen or OUTSIDE in chosen):
        case = Case(OUTSIDE, n_q=16, n_k=16, backward="backward" in claimed)
        with Processes(pickled, 2, patience, outside=1) as processes:
            rows.append(_one(processes, case, 2, ownership, alignment))
    return Report(_with_growth(rows), {name: FEATURES[name] for name in FEATURES if name not in claimed})


check.__doc__ = (check.__doc__ or "").replace("{features}", "\n                ".join(f"{n:<15} {t}" for n, t in FEATURES.items()))


def _require_known(what: str, given: Iterable[str], known: Collection[str]) -> frozenset[str]:
    found = frozenset(given)
    for name in sorted(found - set(known)):
        raise InvalidProblem(f"{what}: there is no {name!r}; give some of {', '.join(known)}")
    return found


def _pickled(fn: Any) -> bytes:
    if not callable(fn):
        raise TypeError(f"fn is a {type(fn).__name__}: give a function fn(q, k, v, *, group, **options)")
    inner = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    main = sys.modules["__main__"]
    if getattr(inner, "__module__", None) == "__main__" and getattr(main, "__spec__", None) is None and not hasattr(main, "__file__"):
        raise TypeError("fn was typed in: put it into a file, which the processes that try it can import")
    try:
        return pickle.dumps(fn)
    except Exception as e:
        raise TypeError(f"fn cannot be sent to other processes ({e}): give a function that stands in a module by its name") from None


def _homes(ownership: Ownership, ranks: int, n_q: int, n_k: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Which queries and keys each rank has."""
    if isinstance(ownership, str):
        layout = Layout(grid_rows=ranks, ownership=ownership, block=1 if ownership == "block-cyclic" else 0)
        both = [positions(layout, rank, n_q, n_k) for rank in range(ranks)]
        return [q for q, _ in both], [k for _, k in both]
    found = []
    for n in (n_q, n_k):
        rows = [np.asarray(ownership(rank, ranks, n), np.int64).reshape(-1) for rank in range(ranks)]
        if sorted(np.concatenate(rows).tolist()) != list(range(n)):
            raise InvalidProblem(f"ownership: the positions of {ranks} ranks are not 0 to {n - 1}, each once")
        found.append(rows)
    return found[0], found[1]


def _tried(fn: bytes, ranks: int, cases: list[Case], ownership: Ownership, alignment: str, patience: float) -> list[Row]:
    found: list[Row] = []
    with Processes(fn, ranks, patience) as processes:
        for case in cases:
            if sum(row.hung for row in found) >= HANGS:
                found.append(Row(case.name, ranks, False, note=f"not tried, after {HANGS} hangs on {ranks} ranks"))
            else:
                found.append(_one(processes, case, ranks, ownership, alignment))
    return found


def _one(processes: Processes, case: Case, ranks: int, ownership: Ownership, alignment: str) -> Row:
    rows, keys = _homes(case.ownership or ownership, ranks, case.n_q, case.n_k)
    try:
        answers = processes.run(case, rows, keys)
    except Failed as e:
        return Row(case.name, ranks, False, note=str(e), hung=e.hung)
    row = _judged(case, ranks, rows, keys, answers)
    traffic = {
        "forward": [answer["forward"] for answer in answers],
        "backward": [answer["backward"] for answer in answers] if case.backward else None,
    }
    row = row._replace(traffic=traffic)
    if case.bf16 or case.earlier or case.between or case.repeats > 1 or case.delays:
        return row  # others' counts are of one call in float32
    needs = {op: _needed(case, ranks, ownership, alignment, op) for op in ("forward", *(("backward",) if case.backward else ()))}
    return row._replace(needs=needs)


def _judged(case: Case, ranks: int, rows: list[np.ndarray], keys: list[np.ndarray], answers: list[dict]) -> Row:
    arrays, mask = arrays_of(case, ranks), seen(case, case.options)
    wanted = dense(case, arrays, mask)
    naive = dense(case, arrays, mask, np.float32)
    highest = float(np.abs(dense_scores(case, arrays)).max())
    found = {}
    for name in answers[0]["results"]:
        found[name] = np.full(wanted[name].shape, np.nan)
        for rank, answer in enumerate(answers):
            found[name][:, :, keys[rank] if name in ("dk", "dv", "dk + dv") else rows[rank]] = answer["results"][name]
    worst = ("", 0.0, 1.0, -1.0)
    for name, x in found.items():
        error, allowed = largest_error(x, wanted[name]), _allowed(case, wanted[name], naive[name], highest)
        if not error / allowed <= worst[3]:
            worst = (name, error, allowed, error / allowed)
        if math.isnan(error):
            break
    ok = worst[3] <= 1
    notes = []
    if not ok:
        guess = Guess(case, found, wanted, arrays, rows, keys)
        notes.append(guess.text(worst[0], lambda name: _allowed(case, wanted[name], wanted[name])))
    for answer_rank, answer in enumerate(answers):
        if answer["changed"]:
            notes.append(f"rank {answer_rank}: the function changed its input {', '.join(answer['changed'])}")
            ok = False
        if answer["other bits"]:
            notes.append(f"rank {answer_rank}: {', '.join(answer['other bits'])} had other bits when messages came at other times")
            ok = False
    spread = None
    if case.bf16:
        spread = {n: _root_mean_square(x - wanted[n]) / rounding_error(wanted[n]) for n, x in found.items() if n != "lse"}
    return Row(case.name, ranks, ok, worst[0], worst[1], worst[2], "; ".join(notes), spread=spread)


def _allowed(case: Case, wanted: np.ndarray, naive: np.ndarray, highest: float = 1) -> float:
    """Sixteen times what the same formulas err by in float32, and no less than sixteen roundings of the largest value; more where
    scores are high, whose own rounding is an error of weights, relative. For bfloat16 eight roundings of the largest."""
    largest = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1))
    if case.bf16:
        return 8 * largest * 2.0**-9
    return max(16 * largest_error(naive.astype(np.float64), wanted), 16 * largest * max(1, highest / 4) * 2.0**-24)


def _root_mean_square(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(x**2)))


def _layouts(case: Case, ranks: int, ownership: str) -> list[Layout]:
    block = 1 if ownership == "block-cyclic" else 0
    groups = [u for u in range(1, ranks + 1) if ranks % u == 0 and case.kv_heads % u == 0 and case.heads % u == 0]
    return [
        Layout(u, rows, ranks // u // rows, "exchange", ownership, block)
        for u in groups
        for rows in range(1, ranks // u + 1)
        if ranks // u % rows == 0
    ]


@functools.lru_cache(maxsize=4096)
def _received(layout: Layout, ranks: int, op: str, sizes: tuple, options: tuple) -> Optional[int]:
    """The most bytes that a rank receives; None where the layout cannot serve the case."""
    n_q, n_k, batch, heads, kv_heads, d, d_v = sizes
    try:
        counts = [
            count(layout, rank, n_q=n_q, n_k=n_k, d=d, d_v=d_v, batch=batch, heads=heads, kv_heads=kv_heads, op=op, **dict(options))
            for rank in range(ranks)
        ]
    except Error:
        return None
    return max(4 * (c["received"]["inputs"] + c["received"]["partials"]) for c in counts)


def _needed(case: Case, ranks: int, own_rows: Ownership, alignment: str, op: str) -> dict[str, Any]:
    ownership = case.ownership or (own_rows if isinstance(own_rows, str) else "contiguous")
    options: dict[str, Any] = {"alignment": alignment, **{x: y for x, y in case.options.items() if x in ("causal", "window")}}
    if "cu_seqlens" in case.options:
        options["cu_seqlens_q"] = options["cu_seqlens_k"] = tuple(case.options["cu_seqlens"])
    sizes = (case.n_q, case.n_k, case.batch, case.heads, case.kv_heads, case.d, case.d_v)
    given = tuple(sorted(options.items()))
    ring = _received(
        Layout(grid_rows=ranks, transfer="ring", ownership=ownership, block=1 if ownership == "block-cyclic" else 0),
        ranks, op, sizes, given,
    )  # fmt: skip
    found = {layout: _received(layout, ranks, op, sizes, given) for layout in _layouts(case, ranks, ownership)}
    best = min(((n, layout) for layout, n in found.items() if n is not None), key=lambda x: x[0], default=(None, None))
    known = not case.tied and (case.ownership or isinstance(own_rows, str))  # bounds are of distinct arrays, and of rows at home
    return {"ring": ring, "least": best[0], "layout": best[1], "bound": _bound(ranks, op, ownership, sizes, given) if known else None}


@functools.lru_cache(maxsize=4096)
def _bound(ranks: int, op: str, ownership: str, sizes: tuple, options: tuple) -> Optional[int]:
    """Bytes of float32 that some rank receives as inputs and sends as partial results, whatever the schedule."""
    n_q, n_k, batch, heads, kv_heads, d, d_v = sizes
    try:
        found = plan(
            ranks, n_q=n_q, n_k=n_k, d=d, d_v=d_v, batch=batch, heads=heads, kv_heads=kv_heads, op=op, ownership=ownership,
            block=1 if ownership == "block-cyclic" else 0, **dict(options),
        )  # fmt: skip
    except Error:
        return None
    return next((4 * row["bound"] for row in found.rows if math.prod(row["layout"][:3]) == ranks), None)


def _with_growth(rows: list[Row]) -> list[Row]:
    """Marks results in bfloat16 whose error grows with the ranks: partial results that are rounded on the way."""
    first: dict[str, tuple[int, float]] = {}
    found = []
    for row in rows:
        for name, of in (row.spread or {}).items():
            ranks, least = first.setdefault(name, (row.ranks, of))
            if of > GROWTH * least:
                note = (
                    f"the error of {name} is {of / least:.1f} times that on {ranks} rank{'s' if ranks > 1 else ''}, "
                    "as if partial results were rounded to bfloat16"
                )
                row = row._replace(ok=False, note="; ".join(filter(None, (row.note, note))))  # noqa: PLW2901
        found.append(row)
    return found
