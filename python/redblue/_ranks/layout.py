"""How attention is spread over ranks, and which options they heed."""

from __future__ import annotations

from typing import NamedTuple, Optional

from .. import _core
from .._call.options import OPTIONS
from .._call.settings import whole
from .._errors import InvalidProblem, Unsupported

Kept = _core.Kept


#: The options that ranks heed.
HEEDED = (
    "layout", "causal", "alignment", "window", "prefix", "scale", "bias", "alibi_slopes", "softcap", "sinks", "dropout", "seed",
    "cu_seqlens_q", "cu_seqlens_k", "compute", "M", "threads",
)  # fmt: skip


class Layout(NamedTuple):
    """How attention is spread over head_groups * grid_rows * grid_cols ranks.

    Heads are dealt out to head_groups; the ranks of a group stand in a grid. The rank in row a and column b attends with the
    queries that row a has at home to the keys of column b. grid_rows = ranks moves keys and values, grid_cols = ranks moves
    queries, head_groups = ranks is what Ulysses does.

    transfer    "exchange": each rank gets the rows that it needs, one block after the other while it works; "gather": all of
                them before it works; "ring": whole blocks go from neighbour to neighbour (one row or column of ranks)
    ownership   "contiguous", "zig-zag" (equal work under a causal mask), "block-cyclic" (blocks of `block` rows are dealt out)
                or "documents" (a packed sequence lies on one rank)
    reproducible
                above 0: results have the same bits for every number of ranks, head_groups and ownership, and for one rank, where
                this number is the same. Ranks then have whole blocks of this many rows, and work on one block of queries and one of
                keys at a time, in the order of positions; 256 to 1,024 are good numbers. It wants grid_cols = 1, transfer = "gather"
                and no M. Gradients move queries and keys in place of results, and compute scores twice.
    keeps_heads a forward pass leaves q, k and v of the heads of a rank on it, so that they do not travel again for the gradient: for
                head_groups above 1. Tensors that require gradients hold them until these are formed; else give both calls one `kept`.
    """

    head_groups: int = 1
    grid_rows: int = 1
    grid_cols: int = 1
    transfer: str = "exchange"
    ownership: str = "contiguous"
    block: int = 0
    reproducible: int = 0
    keeps_heads: bool = False


def layout_of(ranks: Optional[Layout], size: int) -> Layout:
    if ranks is None:
        return Layout(grid_rows=size)
    if not isinstance(ranks, Layout):
        raise TypeError(f"ranks is a {type(ranks).__name__}: give a redblue.distributed.Layout")
    for name in ("head_groups", "grid_rows", "grid_cols", "block", "reproducible"):
        whole(name, getattr(ranks, name))
    if not isinstance(ranks.keeps_heads, bool):
        raise TypeError(f"ranks.keeps_heads is a {type(ranks.keeps_heads).__name__}: give True or False")
    asked = ranks.head_groups * ranks.grid_rows * ranks.grid_cols
    if asked != size:
        raise InvalidProblem(
            f"ranks = {ranks.head_groups} x {ranks.grid_rows} x {ranks.grid_cols}: give a layout of the {size} ranks of comm"
        )
    return ranks


def require_heeded(options: dict) -> None:
    refused = [name for name, value in options.items() if name in OPTIONS and name not in HEEDED and value is not None]
    if refused:
        raise Unsupported(f"{', '.join(refused)}: attention over ranks takes {', '.join(HEEDED)}")
