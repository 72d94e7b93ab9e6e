"""One call of attention over ranks: what all ranks agree on, and the run."""

from __future__ import annotations

import contextlib
import numbers
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

from .. import _core
from .._attention import Gradients, refuse_gradients, request
from .._call.calls import arithmetic, measure_once
from .._call.lse import require_small
from .._call.request import Request
from .._call.settings import Sizes, problem_of, sizes_of, tokens_first, wanted_of
from .._errors import Error, InvalidProblem, Unsupported
from .comm import PATIENCE, communicator
from .layout import Kept, Layout, layout_of, require_heeded


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
    require_heeded(options)
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
        layout = layout_of(call.ranks, own.ranks)
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
