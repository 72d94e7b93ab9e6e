"""Plans, bounds and counts: what a computation would move, without arrays or before it runs."""

from __future__ import annotations

import copy
import functools
import sys
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _core
from ._attention import chosen, gradients_request, request, require_provable, require_seed, require_tolerance
from ._call import masks
from ._call.calls import call_for, make_plan, plan_within
from ._call.options import OF_ARRAYS, PLAN_OPTIONS, Options, Settings
from ._call.scales import given
from ._call.settings import (
    OPERATIONS,
    Sizes,
    add_help,
    converted,
    flag,
    problem_of,
    real,
    set_part,
    settings_of,
    unknown_options,
    wanted_of,
    whole,
    whole_or_none,
)
from ._errors import InvalidProblem
from ._second import moving_request

if TYPE_CHECKING:
    from typing_extensions import Unpack
elif sys.version_info >= (3, 11):  # for typing.get_type_hints
    from typing import Unpack


class Plan:
    """A plan: the schedule and tile sizes chosen, the exact words that they move, and the proven lower bound.

    Every entry of `to_dict()` is an attribute as well: schedule, tiling, reads, writes, io (words, over all batches and
    heads), bound, theorem, ratio (io over bound; under memory bytes over bound_bytes), footprint (words), workspace (words),
    flops, reason, rows (all ranked schedules; may_be_chosen: does the planner consider it?), refused, bounds, forward (the
    forward plan that runs first, if any), compute, threads, ... prefetch (words) is the room for second buffers that
    double_buffer leaves, beside the footprint; under memory footprint_bytes, prefetch_bytes, bytes (that move) and
    bound_bytes are numbers, too. Sequences of some shapes may have tiles of their own: own_tilings has their rows, keys,
    edges of the mask, and tiling; `tiling` is that of the largest and of all others. index_words (read) and index_footprint
    (resident) are those of the list that a pattern is given as, and part of no other number; dense is the row of forming
    all pairs and masking them, where a pattern is such a list.
    A plan does not change: no attribute can be set, and its lists and dicts are copies.
    """

    def __init__(self, core: Any, decision: str = "", seed: Optional[int] = None):
        self._core = core = _core.with_table(core, seed)
        self._facts = core.describe()
        self._facts["decision"] = decision or None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # before a copy has its facts, too
            raise AttributeError(name)
        if name in self._facts:
            return copy.deepcopy(self._facts[name])
        raise AttributeError(f"a plan has no '{name}': it has {', '.join(self._facts)}")

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise AttributeError(f"{name} of a plan cannot be set: redblue.plan makes a plan of other options")
        super().__setattr__(name, value)

    def __dir__(self) -> list:
        return sorted({*super().__dir__(), *self._facts})

    def to_dict(self) -> dict:
        """A copy of the plan as numbers, texts, lists and dicts."""
        return copy.deepcopy(self._facts)

    def count(self) -> dict:
        """Runs the schedule without data, and returns what was counted: io equals that of the plan."""
        return self._core.count()

    @functools.cached_property
    def loop_nest(self) -> str:
        """The loops of the chosen schedule with the words of every line, without those of `forward`: as `redblue explain`
        prints them. Found by a walk through the schedule, which takes seconds where blocks are small and masks hide pairs.
        Raises InvalidProblem after 10^8 operations."""
        return self._core.loop_nest()

    @functools.cached_property
    def ram(self) -> dict:
        """The bytes of memory that a run takes on dense arrays: inputs, outputs, what it takes beside them (fast memory,
        workspace, buffers), and total."""
        return self._core.memory_of_run()

    def __repr__(self) -> str:
        f = self._facts
        tiling = " ".join(f"{name}={size}" for name, size in f["tiling"].items())
        second = f" and, for second buffers, {f['prefetch']:,}" if f["prefetch"] else ""
        lines = [
            f"{f['operation']} by {f['schedule']} ({tiling})",
            f"  {', '.join(f'{name} {size}' for name, size in f['sizes'].items())}",
            f"  {f['io']:,} words moved ({f['reads']:,} read, {f['writes']:,} written){_in_bytes(f, 'bytes')}",
            f"  {_bound(f)}, ratio {_ratio(f)}",
            f"  fast memory: {f['footprint']:,}{second} of {f['M']:,} words{_in_memory(f)}; arithmetic in {f['compute']}",
            f"  {f['reason']}",
        ]
        if f["mask"]:
            lines[1] += f"; {f['mask']}"
        if f["forward"]:
            lines.insert(1, f"  after a forward pass by {f['forward']['schedule']}: {f['forward']['io']:,} words more")
        if f["decision"]:
            lines.append(f"  {f['decision']}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        import html  # its table of entities takes 1 ms

        f = self._facts

        def cells(tag: str, values: Any) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(str(v))}</{tag}>" for v in values) + "</tr>"

        in_bytes = f["bound_bytes"] is not None
        moved = ("bytes moved",) if in_bytes else ()
        head = cells("th", ("schedule", "tiling", "I/O words", *moved, "ratio", "footprint", "workspace"))
        body = "".join(
            cells(
                "td",
                (
                    row["schedule"],
                    " ".join(f"{name}={size}" for name, size in row["tiling"].items()),
                    f"{row['io']:,}",
                    *((f"{row['bytes']:,}",) if in_bytes else ()),
                    _ratio(row),
                    f"{row['footprint']:,}",
                    f"{row['workspace']:,}",
                ),
            )
            for row in f["rows"]
        )
        pairs = f["sizes"]["n_q"] * f["sizes"]["n_k"]
        nest = self.loop_nest if pairs <= _PAIRS_SHOWN else "print(plan.loop_nest) walks through the schedule and shows it"
        return (
            f"<p><b>{html.escape(f['schedule'])}</b>{html.escape(', ' + f['mask'] if f['mask'] else '')}: "
            f"{f['io']:,} words{_in_bytes(f, 'bytes')}; {html.escape(_bound(f))}</p>"
            f"<p>{html.escape(f['decision'] or f['reason'])}</p><table>{head}{body}</table>"
            f"<details><summary>loop nest</summary><pre>{html.escape(nest)}</pre></details>"
        )


#: A notebook shows the loop nest of at most these query-key pairs: a walk takes up to some operations for each.
_PAIRS_SHOWN = 1 << 18


def _in_bytes(facts: dict, name: str) -> str:
    return "" if facts["bound_bytes"] is None else f", {facts[name]:,} bytes"


def _bound(facts: dict) -> str:
    return f"bound {facts['bound']:,} words{_in_bytes(facts, 'bound_bytes')} (theorem {facts['theorem']})"


def _in_memory(facts: dict) -> str:
    return "" if facts["memory"] is None else f", {facts['footprint_bytes']:,} of {facts['memory']:,} bytes"


def _ratio(row: dict) -> str:
    return "-" if row["ratio"] is None else f"{row['ratio']:.3f}"


def _problem(
    op: str,
    *,
    d: Optional[int] = None,
    n: Optional[int] = None,
    n_q: Optional[int] = None,
    n_k: Optional[int] = None,
    d_v: Optional[int] = None,
    batch: int = 1,
    heads: int = 1,
    kv_heads: Optional[int] = None,
    dtype: str = "f32",
    threads: Optional[int] = None,
    return_lse: bool = False,
    forward_given: bool = True,
    bias_gradient: bool = False,
    sinks_gradient: bool = False,
    lse_gradient: bool = False,
    bias_direction: bool = False,
    sinks_direction: bool = False,
    accumulate: bool = False,
    multiple: Optional[dict] = None,
    width: Optional[dict] = None,
    pad: Optional[dict] = None,
    **options: Any,
) -> tuple[Any, Any]:
    """The problem and what its plan is wanted for."""
    known = dict.fromkeys((*(_problem.__kwdefaults__ or ()), *PLAN_OPTIONS, *Settings._fields, "seed"))
    del known["layout"]  # there are no arrays to lie in one
    if unknown := [name for name in options if name not in known]:
        raise unknown_options("a plan", unknown, known)
    n = whole_or_none("n", n)
    n_q = n if n_q is None else n_q
    if op in OPERATIONS and not _core.attends(op):  # n and d are of its outputs
        d_v, d = (d, 1) if d_v is None else (d_v, 1 if d is None else d)
        n_k = 1 if n_k is None else n_k
        if n_q is None or d_v is None:
            raise InvalidProblem("n_q and d_v: give the numbers of queries, and of features of o")
    n_k = n if n_k is None else n_k
    if n_q is None or n_k is None or d is None:
        raise InvalidProblem("n, or n_q and n_k, and d: give the numbers of queries and keys, and that of their features")
    of_plan = {name: converted(name, options.pop(name)) for name in PLAN_OPTIONS if name in options}
    if (seed := options.pop("seed", None)) is not None:
        require_seed(seed, options.get("dropout"))
    s = settings_of({**options, "threads": threads}, {name: options[name] for name in OF_ARRAYS if name in options})
    x = Sizes(batch, heads, heads if kv_heads is None else kv_heads, n_q, n_k, d, d if d_v is None else d_v)
    problem = problem_of(op, x, s)
    problem.seed = int(seed or 0)
    problem.lse_required, problem.forward_given = flag("return_lse", return_lse), flag("forward_given", forward_given)
    problem.bias_gradient, problem.sinks_gradient = flag("bias_gradient", bias_gradient), flag("sinks_gradient", sinks_gradient)
    problem.lse_gradient, problem.bias_direction = flag("lse_gradient", lse_gradient), flag("bias_direction", bias_direction)
    problem.sinks_direction = flag("sinks_direction", sinks_direction)
    if flag("accumulate", accumulate):
        set_part(problem, s, True)
    compute = s.compute or ("f64" if dtype == "f64" else "f32")
    wanted = wanted_of(s, dtype, compute)
    wanted.multiple, wanted.width, wanted.pad = (
        _named(name, x) for name, x in (("multiple", multiple), ("width", width), ("pad", pad))
    )
    for name, value in of_plan.items():
        field = PLAN_OPTIONS[name].field
        setattr(wanted, field, not value if name != field else value)
    return problem, wanted


_EXAMPLES = {"multiple": {"q": 16, "k": 16}, "width": {"O": 4, "scores": 4}, "pad": {"rows": 64, "after": 4}}


def _named(option: str, value: Any) -> dict:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise InvalidProblem(f"{option} = {value!r}: give a dict of names and whole numbers, as in {_EXAMPLES[option]}")
    return {name: whole(f"{option} of {name}", number) for name, number in value.items()}


def _tolerance(op: str, tolerance: Any, range: Any, options: dict) -> tuple[float, float]:
    """The tolerance and the range of a plan that is made without arrays, checked."""
    if tolerance is None or range is None:
        raise InvalidProblem("tolerance and range: give both; redblue.explain and redblue.attention find the range in their arrays")
    require_tolerance(tolerance, options.get("approximate"), options.get("compute"))
    if not real("range", range) > 0:
        raise InvalidProblem(f"range = {range}: give a number above 0, the largest |scale q.k|")
    if op != "forward":
        raise InvalidProblem(f'tolerance is for op = "forward": nothing is proved of {op!r}')
    return tolerance, range


def plan(op: str = "forward", *, tolerance: Optional[float] = None, range: Optional[float] = None, **options: Any) -> Plan:
    """The plan of a problem that is given by its sizes, without arrays.

    op: "forward", "backward", "scores", "weights", "tangent", "second" or "merge" (n_q and d_v count). Sizes: n, or n_q and n_k; d, d_v (default
    d); batch, heads (default 1), kv_heads (default heads); dtype "f64", "f32" (default), "f16", "bf16". Other options are
    those of `attention`: with `bias` its shape, with `alibi` and `sinks` True. `compute` is f64 for f64 and else f32 unless
    given: attention of bfloat16 may take bf16, which `explain` says of arrays. M asks for the fewest words in that many
    words of fast memory, memory for the fewest bytes in that many bytes; without both the plan of least time on this
    machine is made. `forward_given=False`: a gradient's forward pass is planned, too. `accumulate=True`: outputs are given
    and added to, as `attention_partial` does. For a kernel of your own there are these, which are options of `redblue plan`
    (docs/cli.md):

    multiple        {"q": 16, "k": 16, "f": 8}: tile sizes are multiples of these (queries, keys, features)
    width           {"O": 4, ...}: bytes of a word of these arrays, others as dtype; the bytes that move are then fewest.
                    Outputs have those of accumulators as long as they are unfinished. With memory also of
                    "accumulators", "scores", "statistics" there
    pad             {"rows": 64, "after": 4}: with memory, rows of tiles take a multiple of `rows` bytes, and `after` bytes behind each
    double_buffer   leave room for second buffers of what the innermost loop brings in
    no_workspace    no schedules that keep n x n scores in slow memory
    reserve         words of fast memory to leave free
    write_cost      cost of a written word in read words, with M or memory

    tolerance and range: exact attention, or the polynomial of least degree that is proved to keep o within tolerance
    max|v| of it while no |scale q.k| is above range, where that costs less, as `redblue plan --tolerance` does
    (docs/certificates.md). `decision` says why. Without them `decision` is None.

    Raises InvalidProblem, Unsupported, CapacityError.

    Source: schedules and their words, docs/schedules.md; modelled time, docs/time-model.md.
    """
    problem, wanted = _problem(op, **options)
    if tolerance is None and range is None:
        return Plan(make_plan(problem, wanted))
    return Plan(*plan_within(problem, wanted, *_tolerance(op, tolerance, range, options)))


add_help(plan, PLAN_OPTIONS)

#: Options of a plan that no lower bound depends on, and what they are where they are left out.
_OF_PLANS = {
    **dict.fromkeys(("schedule", "multiple", "width", "pad", "memory", "max_workspace", "threads", "order")),
    **{o.name: o.default for o in PLAN_OPTIONS.values()},
}


def bound(op: str = "forward", *, M: int, **options: Any) -> list[dict]:
    """The lower bounds on the words that any schedule moves between M words of fast memory and slow memory.

    Sizes, masks and modifiers as for `plan`. Returns one dict for each theorem (docs/theorems.md): theorem, words, status
    ("proved", ...), holds (does this problem meet its condition?), condition, algorithms (for which schedules).

    Raises InvalidProblem, also for options of a schedule or its tiles.

    Source: docs/theorems.md and docs/reading.md, with the paper of each theorem: Hong & Kung 1981, Saha & Ye 2024, Li et al.
    2024 (arXiv 2410.09397), and others.
    """
    of_plans = [name for name, default in _OF_PLANS.items() if options.get(name, default) not in (None, default)]
    if of_plans:
        raise InvalidProblem(f"{', '.join(of_plans)}: a bound holds for any schedule and tiles; leave it out, or ask redblue.plan")
    problem, _ = _problem(op, M=M, **options)
    return _core.bounds(problem, M)


def count(op: Union[str, Plan] = "forward", **options: Any) -> dict:
    """Runs a plan without data and counts every word. `op` is a Plan, or everything is as for `plan`.

    Returns io, reads, writes, read_by_array, written_by_array, peak (the most words resident), flops, ... Raises what
    `plan` raises, and InvalidProblem for a Plan with options.

    Source: the model of two memories of Hong & Kung 1981, docs/model.md.
    """
    if isinstance(op, Plan):
        if options:
            raise InvalidProblem(f"a plan has its options already; {', '.join(options)} is too much")
        return op.count()
    return plan(op, **options).count()


def explain(
    q: Any = None,
    k: Any = None,
    v: Any = None,
    *,
    op: str = "forward",
    return_lse: bool = False,
    bias_gradient: bool = False,
    sinks_gradient: bool = False,
    k_scale: Any = None,
    v_scale: Any = None,
    keys_per_scale: Optional[int] = None,
    **options: Unpack[Options],
) -> Plan:
    """The plan that `attention` runs for these arrays and options, with its words, its bound and the reason.

    q, k, v, return_lse, the scales of int8 k and v, and options are those of `attention`. With op = "backward" the plan that
    `attention_backward` runs from the o and lse of that call, as autograd does; bias_gradient and sinks_gradient are those of
    `attention_backward`. With op = "tangent" or "second" those of `attention_tangent` and `attention_second`; bias_gradient and
    sinks_gradient say that bias and sinks move. Returns a Plan, whose `decision` says why a tolerance or a bias that is a mask got it. Raises what the call raises, and InvalidProblem
    where a size is 0, so that nothing is planned.

    Without any argument: the plan that ran last in this process, by any function and in any thread, which is a gradient's
    after a backward pass. What its arrays or its options said of a mask or a tolerance is then not known.

    Source: docs/schedules.md.
    """
    if q is None and k is None and v is None:
        scaled = not (k_scale is None and v_scale is None and keys_per_scale is None)
        if options or scaled or op != "forward" or return_lse or bias_gradient or sinks_gradient:
            raise InvalidProblem("explain has options and no arrays: give q, k and v, too, or nothing at all for the last call")
        core, seed = _core.last_plan()
        if core is None:
            raise InvalidProblem("nothing has run in this process, so that there is no last call: give q, k and v")
        return Plan(core, seed=seed)
    scales = given(k_scale, v_scale, keys_per_scale)
    if op not in ("forward", "backward", "tangent", "second"):
        raise InvalidProblem(
            f'op = {op!r}: explain knows "forward", "backward", "tangent" and "second"; redblue.plan has plans of other operations'
        )
    if op != "forward" and scales is not None:
        raise InvalidProblem('k_scale and v_scale are for op = "forward": int8 keys and values have no gradients')
    if op != "forward" and return_lse:
        raise InvalidProblem('return_lse is for op = "forward": other operations read lse')
    found = ""
    if op in ("tangent", "second"):
        r = moving_request(op, q, k, v, bias_gradient, sinks_gradient, options)
        call = call_for(op, r.family, r.q, r.k, r.v, r.settings, (True, False, bias_gradient, sinks_gradient))
        return Plan(chosen(r, call, ())[0], "", r.seed)
    if op == "backward":
        r, found = gradients_request(q, k, v, bias_gradient, sinks_gradient, options, counted=False)
        call = call_for("backward", r.family, r.q, r.k, r.v, r.settings, (True, bias_gradient, sinks_gradient, False))
        return Plan(chosen(r, call, ())[0], masks.explained(r, found), r.seed)
    if bias_gradient or sinks_gradient:
        raise InvalidProblem('bias_gradient and sinks_gradient are for op = "backward", "tangent" and "second"')
    r = request(q, k, v, scales=scales, **options)
    if r.bias is not None:
        r, found = masks.recognised("forward", r, options["bias"], counted=False)
    call = call_for("forward", r.family, r.q, r.k, r.v, r.settings, (return_lse,))
    arrays = r.arrays()
    core, why = chosen(r, call, arrays)
    if core is not call.plan:
        why = _of_written(why, core.certificate(arrays, call.tokens_first))
    return Plan(core, why or masks.explained(r, found), r.seed)


def _of_written(why: str, proved: dict) -> str:
    """Why a polynomial was chosen, and what its certificate proves of the numbers that it writes."""
    why += "; the tolerance is of exact arithmetic: "
    if proved["output_error"] is None or proved["rounding"] is None:
        return why + "of roundings nothing is proved here"
    return why + f"of the numbers that are written {proved['output_error'] + proved['rounding']:.3g} max|v| is proved"


def certify(q: Any, k: Any, v: Any, **options: Unpack[Options]) -> dict:
    """What the norms of these arrays prove of polynomial attention, before anything runs (docs/certificates.md).

    With `tolerance` or `approximate` as for `attention`. Returns method ("polynomial", "polynomial rows" or "exact"),
    degree, range (no score is beyond it), output_error (o is within this many max|v| of exact attention), rounding (what
    roundings add at most), the same for each head (`heads`), decision (why this method). A number is None where nothing
    is proved: the error where weights may be off by all of themselves, the rounding where roundings may add up to a
    large share of a sum.

    Raises what `attention` raises, and InvalidProblem for a NaN or an infinity in q, k or v; Unsupported for
    compute = "bf16", of whose products nothing is proved, and for approximations that are no polynomials.

    Source: docs/certificates.md.
    """
    require_provable(options.get("compute"))
    r = request(q, k, v, **options)
    call = call_for("forward", r.family, r.q, r.k, r.v, r.settings, (False,))
    arrays = r.arrays()
    core, why = chosen(r, call, arrays)
    proved = core.certificate(arrays, call.tokens_first)
    return {**proved, "decision": (why if core is call.plan else _of_written(why, proved)) or None}
