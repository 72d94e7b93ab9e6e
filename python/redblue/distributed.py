"""Attention over ranks: each process has some rows of q, k and v, and gets these rows of the result.

    o = redblue.attention(q, k, v, causal=True, comm=MPI.COMM_WORLD)      # or a process group of torch.distributed

docs/ranks.md says which rows a rank has, and how many words cross the network.
"""

from __future__ import annotations

import contextlib
import numbers
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

import numpy as np

from . import _core
from ._arrays import is_tensor
from ._attention import Gradients, refuse_gradients, request
from ._calls import arithmetic, measure_once
from ._comm import PATIENCE, communicator
from ._errors import Error, InvalidProblem, Unsupported
from ._lse import require_small
from ._options import OPTIONS
from ._request import Request
from ._settings import Sizes, problem_of, settings_of, sizes_of, tokens_first, wanted_of, whole

if TYPE_CHECKING:
    from ._check_ranks import check as check

__all__ = ["Kept", "Layout", "Planned", "attention", "attention_backward", "check", "count", "plan", "positions"]


Kept = _core.Kept


def __getattr__(name: str) -> Any:
    if name == "check":  # the referee of others' functions, which few programs need
        from ._check_ranks import check

        globals()["check"] = check
        return check
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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


def _layout(ranks: Optional[Layout], size: int) -> Layout:
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


def _require_heeded(options: dict) -> None:
    refused = [name for name, value in options.items() if name in OPTIONS and name not in HEEDED and value is not None]
    if refused:
        raise Unsupported(f"{', '.join(refused)}: attention over ranks takes {', '.join(HEEDED)}")


class Call(NamedTuple):
    """What a call asks for, beside its arrays.

    differentiable    will this rank call the backward pass?
    gradients         are the gradients of bias, and of sinks, asked for?
    kept              where forward pass and gradient keep heads, if they do
    """

    comm: Any
    ranks: Optional[Layout]
    patience: float
    report: Optional[dict]
    options: dict
    differentiable: bool = False
    gradients: tuple[bool, bool] = (False, False)
    kept: Optional[Kept] = None


#: Communicators on which a call is on its way.
_BUSY: set = set()
_LOCK = threading.Lock()


def _is_patience(seconds: Any) -> bool:
    return isinstance(seconds, numbers.Real) and not isinstance(seconds, bool) and 0 < seconds <= 1e9  # type: ignore[operator]


@contextlib.contextmanager
def _alone_on(comm: Any, patience: Any) -> Iterator[Any]:
    """The communicator, for one call at a time: messages of two would mix."""
    key = id(comm)
    with _LOCK:
        if key in _BUSY:
            raise Error("another thread of this process runs attention on comm: give each thread a communicator of its own")
        _BUSY.add(key)
    try:
        yield communicator(comm, patience if _is_patience(patience) else PATIENCE)  # all ranks hear of a wrong one
    finally:
        _BUSY.discard(key)


class _Spread(NamedTuple):
    """One call: what it asks for, and the ranks that it is spread over."""

    request: Request
    sizes: Sizes  # of this rank
    comm: Any
    world: Any
    wanted: Any

    def run(self, arrays: tuple, call: Call) -> None:
        first = tokens_first(self.request.settings.layout)
        ran = _core.run_ranks(self.world, self.comm, arrays, first, self.wanted, call.patience, call.kept)
        if call.report is not None:
            call.report.update(ran)


def _asked(q: Any, k: Any, v: Any, call: Call) -> tuple[Request, Sizes, list[str]]:
    """What this rank asks for, its sizes, and the types of q, k and v."""
    patience, report, options = call.patience, call.report, call.options
    if not _is_patience(patience):
        raise InvalidProblem(f"patience = {patience!r}: give seconds above 0, at most 1e9")
    if report is not None and not isinstance(report, dict):
        raise TypeError(f"report is a {type(report).__name__}: give a dict, into which goes what was moved")
    _require_heeded(options)
    keeps = isinstance(call.ranks, Layout) and call.ranks.keeps_heads is True
    if keeps != (call.kept is not None):
        raise InvalidProblem(
            "ranks.keeps_heads: give kept, too, a redblue.distributed.Kept() that the forward pass and its gradient share"
            if keeps
            else "kept is for ranks.keeps_heads: ask for that, too"
        )
    r = request(q, k, v, **options)
    of_bias, of_sinks = call.gradients
    if of_bias and r.bias is None or of_sinks and r.sinks is None:
        raise InvalidProblem("bias_gradient and sinks_gradient: there is no such array; give bias or sinks")
    if of_bias and r.family.type_of(r.bias, "bias") == "bool":
        raise InvalidProblem("bias_gradient: bias is of bool and has no gradient; leave bias_gradient out, or give floats")
    x = sizes_of(tuple(r.q.shape), tuple(r.k.shape), tuple(r.v.shape), r.settings.layout)
    types = [r.family.type_of(a, name) for a, name in ((r.q, "q"), (r.k, "k"), (r.v, "v"))]
    if len(set(types)) > 1:
        raise TypeError(f"q, k and v have elements of types {', '.join(types)}: give arrays of one type")
    return r, x, types


def _spread(op: str, q: Any, k: Any, v: Any, call: Call, own: Any) -> _Spread:
    try:
        r, x, types = _asked(q, k, v, call)
        layout = _layout(call.ranks, own.ranks)
    except Exception:
        own.total([0, 0, 1, 0])  # the others wait for this sum
        raise
    n_q, n_k, refused, differentiable = own.total([x.n_q, x.n_k, 0, int(call.differentiable)])
    if refused > 0:
        raise Error("the arguments of another rank are refused: that rank says why")
    if 0 < differentiable < own.ranks:
        raise InvalidProblem(
            f"q, k or v requires a gradient on {differentiable} of {own.ranks} ranks: all ranks call the backward pass, or none"
        )
    try:
        return _of_all(op, r, x, types, n_q, n_k, layout, own, call.gradients)
    except Exception as e:
        _core.refuse_ranks(own, str(e), call.patience)  # where the others ask for what can be, they wait for this one
        raise


def _of_all(
    op: str, r: Request, x: Sizes, types: list[str], n_q: int, n_k: int, layout: Layout, own: Any, gradients: tuple[bool, bool]
) -> _Spread:
    """The call, with the rows of all ranks."""
    s = r.settings
    if n_q == 0 or n_k == 0:
        raise InvalidProblem(f"all ranks together have {n_q} queries and {n_k} keys: give at least one of each")
    if s.bias is not None:
        s = s._replace(bias=_whole_bias(s.bias, x.n_q, n_q))
    problem = problem_of(op, x._replace(n_q=n_q, n_k=n_k), s)
    problem.seed = r.seed
    problem.lse_required = op == "forward"
    problem.bias_gradient, problem.sinks_gradient = gradients
    problem.validate()
    if s.M is None and layout.reproducible == 0:
        measure_once()
    dense = types[0] == "bf16" and all(r.family.is_dense(a) for a in (r.q, r.k, r.v))
    compute = arithmetic(op, types[0], dense, s, (True, *gradients))
    return _Spread(r, x, own, _core.World(problem, *layout), wanted_of(s, types[0], compute))


def _whole_bias(shape: tuple, rows: int, n_q: int) -> tuple:
    """The shape of the bias of all ranks, where one rank has this one."""
    if len(shape) < 2 or shape[-2] == 1 != rows:
        return shape
    return (*shape[:-2], n_q if shape[-2] == rows else shape[-2], shape[-1])


def attention(
    q: Any, k: Any, v: Any, *, comm: Any, ranks: Optional[Layout] = None, return_lse: bool = False, patience: float = 600.0,
    report: Optional[dict] = None, kept: Optional[Kept] = None, **options: Any,
) -> Any:  # fmt: skip
    """Attention over the ranks of a communicator, softmax(scale q k^T) v; all ranks call it, with the same options.

    q [batch, heads, rows, d], k [batch, kv_heads, rows, d] and v [batch, kv_heads, rows, d_v] are the rows that this rank has at
    home, in the order of their positions: `positions` says which. Options are those of redblue.attention that concern all
    ranks: masks, scale, bias, ALiBi, softcap, sinks, dropout, packed sequences (cu_seqlens_q and cu_seqlens_k of the whole), layout of
    arrays, compute, M and threads; others are refused. A bias has a row for each query of this rank and a column for each key of
    all ranks, or 1 where all share it; where queries leave home (head_groups or grid_cols above 1) blocks of it travel, too.

    comm        a communicator of mpi4py, a process group of torch.distributed (gloo), or a DeviceMesh of one dimension
    ranks       a Layout; default: keys and values move, each rank gets those that it needs
    return_lse  return (o, lse)
    patience    seconds to wait for a message of another rank
    report      a dict, into which goes what was moved: words and bytes by kind, messages, seconds, seconds waited
    kept        a Kept, for ranks.keeps_heads: what the gradient needs of the heads of this rank is left there

    Returns o [batch, heads, rows, d_v] of this rank, of the type of q; tensors that require gradients, q, k, v, bias and sinks, give a
    differentiable result. Partial results are float32, or float64 for float64, and are taken in in a fixed order: the same bits whenever
    messages arrive. Raises on every rank, where one of them cannot: what redblue.attention raises, or Error.

    Source: Liu, Zaharia & Abbeel 2023, arXiv 2310.01889 (ring); Jacobs et al. 2023, arXiv 2309.14509 (heads); docs/ranks.md.
    """
    of = forward
    if type(q) is not np.ndarray and is_tensor(q):
        from . import _torch_ranks

        of = _torch_ranks.of_tensors
    o, lse = of(q, k, v, Call(comm, ranks, patience, report, options, kept=kept))
    return (o, lse) if return_lse else o


def forward(q: Any, k: Any, v: Any, call: Call) -> tuple[Any, Any]:
    """o and lse of this rank."""
    with _alone_on(call.comm, call.patience) as own:
        spread = _spread("forward", q, k, v, call, own)
        r = spread.request
        word = "f64" if spread.wanted.compute == "f64" else "f32"
        o = r.family.empty(r.q, (*r.q.shape[:-1], spread.sizes.d_v), r.family.type_of(r.q, "q"))
        lse = r.family.empty(r.q, _rows_shape(r), word)
        spread.run(r.arrays(o, lse), call)
    return r.family.finished(o), r.family.finished(lse)


def _rows_shape(r: Request) -> tuple:
    shape = tuple(r.q.shape)
    return (*shape[:-3], shape[-2], shape[-3]) if tokens_first(r.settings.layout) else shape[:-1]


def attention_backward(
    do: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, *, comm: Any, ranks: Optional[Layout] = None, bias_gradient: bool = False,
    sinks_gradient: bool = False, patience: float = 600.0, report: Optional[dict] = None, kept: Optional[Kept] = None, **options: Any,
) -> Gradients:  # fmt: skip
    """The gradients of SUM do o over all ranks with respect to the rows that this rank has of q, k and v, and bias and sinks if
    asked for.

    do and o [batch, heads, rows, d_v] and lse [batch, heads, rows] are those of this rank; the rest is as in `attention`.

    bias_gradient   the gradient of bias, too: that of the rows of this rank; where one row of the bias serves all queries, the sum
                    over all ranks, the same on each
    sinks_gradient  the gradient of sinks, too: the sum over all ranks, the same on each

    Returns Gradients(dq, dk, dv, dbias, dsinks), of the types of q, k, v, bias and sinks; None for what was not asked for.

    Source: Brandon et al. 2023, arXiv 2311.09431; docs/ranks.md.
    """
    refuse_gradients("redblue.distributed.attention_backward has no gradients: call it under torch.no_grad()", do, q, k, v, o, lse)
    gradients = bool(bias_gradient), bool(sinks_gradient)
    call = Call(comm, ranks, patience, report, options, gradients=gradients, kept=kept)
    with _alone_on(comm, patience) as own:
        spread = _spread("backward", q, k, v, call, own)
        r = spread.request
        family = r.family
        do, o, lse = (family.given(x, name) for x, name in ((do, "do"), (o, "o"), (lse, "lse")))
        _require_small(spread, do, lse)
        wanted = (r.q, r.k, r.v, r.bias if bias_gradient else None, r.sinks if sinks_gradient else None)
        found = Gradients(
            *(None if x is None else family.empty(x, tuple(x.shape), family.type_of(x, "an input")) for x in wanted)
        )
        spread.run(r.arrays(o, lse, do, *found), call)
    return Gradients(*(None if x is None else family.finished(x) for x in found))


class _Rows(NamedTuple):
    """What `require_small` asks of a call."""

    plan: bool
    lse_type: str
    tokens_first: bool


def _require_small(spread: _Spread, do: Any, lse: Any) -> None:
    """Refuses on all ranks gradients that one of them cannot compute under its bias."""
    if spread.request.bias is None:
        return
    wrong: Optional[Unsupported] = None
    try:
        word = "f64" if spread.wanted.compute == "f64" else "f32"
        require_small(spread.request, _Rows(True, word, tokens_first(spread.request.settings.layout)), do, lse)  # type: ignore[arg-type]
    except Unsupported as e:
        wrong = e
    if spread.comm.total([int(wrong is not None)])[0] > 0:
        raise wrong or Unsupported("the bias of another rank refuses its gradients: that rank says why")


def _world(ranks: Layout, sizes: Sizes, op: str, options: dict) -> Any:
    _require_heeded(options)
    return _core.World(_problem(op, sizes, options), *_layout(ranks, ranks.head_groups * ranks.grid_rows * ranks.grid_cols))


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
    _require_heeded(options)
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
