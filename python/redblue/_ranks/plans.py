"""What a layout of ranks moves: plans, counts, and the rows that a rank has at home."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import numpy as np

from .. import _core
from .._call.settings import Sizes, problem_of, settings_of, whole
from .._errors import InvalidProblem
from .layout import Layout, layout_of, require_heeded


def _world(ranks: Layout, sizes: Sizes, op: str, options: dict) -> Any:
    require_heeded(options)
    return _core.World(_problem(op, sizes, options), *layout_of(ranks, ranks.head_groups * ranks.grid_rows * ranks.grid_cols))


def _problem(op: str, sizes: Sizes, options: dict) -> Any:
    given = {"alibi": options.get("alibi_slopes") is not None, "sinks": options.get("sinks") is not None}
    problem = problem_of(op, sizes, settings_of(options, given))
    problem.validate()
    return problem


def _fast(options: dict) -> int:
    """The words of fast memory of a rank; 0: not given."""
    M = options.get("M")
    if M is not None and whole("M", M) < 1:
        raise InvalidProblem(f"M = {M}: fast memory needs at least one word")
    return 0 if M is None else whole("M", M)


def positions(ranks: Layout, rank: int, n_q: int, n_k: Optional[int] = None, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """The positions of the queries and of the keys that a rank has at home, in order: q_of_rank = q[:, :, queries].

    n_q and n_k (default n_q) are those of the whole; options are those of the call (packed sequences and masks matter to
    ownership "documents"). docs/ranks.md.
    """
    sizes = Sizes(1, ranks.head_groups, ranks.head_groups, n_q, n_q if n_k is None else n_k, 1, 1)
    world = _world(ranks, sizes, "forward", options)
    found = []
    for queries in (True, False):
        rows = [np.arange(begin, end) for begin, end in world.rows(rank, queries)]
        found.append(np.concatenate(rows) if rows else np.arange(0))
    return found[0], found[1]


class Planned(NamedTuple):
    """Layouts for a problem, the chosen one first: its layout, why, and a dict for each with words of the busiest rank (inputs
    received and partial results sent), bytes, messages, balance (most pairs of a rank over their mean), bound and ratio; with M
    "local": what the rank with the most pairs moves between its fast and slow memory."""

    layout: Layout
    reason: str
    rows: list

    def __str__(self) -> str:
        head = f"{'layout':<34}{'words of a rank':>18}{'bound':>18}{'ratio':>8}{'messages':>10}{'balance':>9}"
        lines = [
            f"{r['name'] + ' ' + ' x '.join(map(str, r['layout'][:3])) + ' ' + r['layout'][3]:<34}{r['words']:>18}{r['bound']:>18}"
            f"{'' if r['ratio'] is None else format(r['ratio'], '.3f'):>8}{r['messages']:>10}{r['balance']:>9.3f}"
            for r in self.rows
        ]
        return "\n".join([head, *lines, self.reason])


def plan(
    ranks: int, *, n_q: int, d: int, n_k: Optional[int] = None, d_v: Optional[int] = None, heads: int = 1,
    kv_heads: Optional[int] = None, batch: int = 1, op: str = "forward", dtype: str = "f32", transfer: str = "", ownership: str = "",
    block: int = 0, reproducible: int = 0, keeps_heads: bool = False, **options: Any,
) -> Planned:  # fmt: skip
    """The layout of this number of ranks with the fewest words of a rank, beside ring, all-gather, Ulysses and grids, each with a proven
    lower bound. `dtype` is the type of q, k and v ("bf16", ..); transfer and ownership (with block), where given, are not chosen. With
    reproducible (see Layout) the chosen layout has it, and others are for comparison. With keeps_heads all layouts with head_groups keep
    heads between the passes. Options are masks, as in `attention`. M, words of
    fast memory of a rank, adds "local" to each row (4,096 ranks at most): the rank with the most pairs, its pairs, io (words between its
    fast and slow memory, exact), the bound on them and the ratio, and schedule and tiling of its largest part. docs/ranks.md.
    """
    sizes = Sizes(batch, heads, heads if kv_heads is None else kv_heads, n_q, n_q if n_k is None else n_k, d, d if d_v is None else d_v)
    widths = {"f64": (8, 8), "f32": (4, 4), "f16": (2, 4), "bf16": (2, 4)}
    if dtype not in widths:
        raise InvalidProblem(f"dtype = {dtype!r}: give one of {', '.join(widths)}")
    require_heeded(options)
    rows, reason = _core.plan_ranks(_problem(op, sizes, options), ranks, transfer, ownership, block, *widths[dtype], _fast(options), reproducible, keeps_heads)
    for row in rows:
        row["layout"] = Layout(*row["layout"])
    return Planned(rows[0]["layout"], reason, rows)


def count(
    ranks: Layout, rank: int, *, n_q: int, d: int, n_k: Optional[int] = None, d_v: Optional[int] = None, heads: int = 1,
    kv_heads: Optional[int] = None, batch: int = 1, op: str = "forward", **options: Any,
) -> dict:  # fmt: skip
    """Words that a rank receives and sends, by kind, messages, pairs that it works on, and words that it holds beside its own
    tensors: counted by walking through its steps, without a communicator and without data. With M, words of fast memory, also io:
    words between fast and slow memory of its work. docs/ranks.md.
    """
    sizes = Sizes(batch, heads, heads if kv_heads is None else kv_heads, n_q, n_q if n_k is None else n_k, d, d if d_v is None else d_v)
    return _world(ranks, sizes, op, options).count(rank, _fast(options))
