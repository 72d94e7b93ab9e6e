"""From arrays and options to a plan: made once for each key of sizes, types and options, and kept."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Optional

from .. import _core
from .._errors import FileError, int8_error, type_error
from .options import Settings
from .settings import Sizes, flag, set_part, sizes_of, tokens_first, validated, wanted_of
from .threads import default_threads

#: How many plans are kept; the oldest goes first.
MOST_PLANS = 512


class Call(NamedTuple):
    """A plan and what its runs need. `plan` is None where a size is 0: then there is nothing to run."""

    plan: Any
    type: str
    tokens_first: bool
    o_shape: tuple
    lse_shape: tuple
    lse_type: str
    pairs_shape: tuple
    wanted: Any


_calls: dict[tuple, Call] = {}
_of_parents: list[dict] = []


_as_given: dict[bytes, Any] = {}  # the same calls by their arrays and options as they were given, for _core.run_known


def _forget() -> None:
    """In a child of fork(): a thread of the parent may have held a lock inside a plan. The plans are left alone."""
    global _calls, _as_given
    _of_parents.extend((_calls, _as_given))
    _calls, _as_given = {}, {}


os.register_at_fork(after_in_child=_forget)


_measured = False  # in this process, which remembers the result where no file can keep it


def measure_once() -> None:
    """For plans of least time: measures this machine briefly where nobody has, and keeps the result, as the program does."""
    global _measured
    if _measured:
        return
    import logging  # 3 ms of a first plan, not of the import

    log = logging.getLogger("redblue")
    path = _core.hardware_path()
    if _core.has_hardware_file():
        if _core.is_of_another_machine():
            log.warning("%s is of another processor, and plans of least time are made for that: %s", path, _BETTER)
    else:
        log.warning(
            "measuring this machine in a moment, for plans of least time%s; %s",
            f"; the result is kept in {path}" if path else ": without a home directory the result is not kept",
            _BETTER,
        )
        try:
            _core.measure_machine(path)
        except FileError as e:
            log.warning("%s; the measurement is not kept", e)
    _measured = True


_BETTER = "`python -m redblue doctor` measures this one well, in a few seconds"


def arithmetic(op: str, type: str, dense: bool, s: Settings, gradients: tuple) -> str:
    """The type of arithmetic: that of q; fp32 for 16 bits, but for exact attention of bf16, whose products are of bf16
    with sums in fp32 where the processor has them: the forward pass, and without modifiers the backward pass from its o
    and lse. A plan of least time takes fp32 where that is faster."""
    if s.compute is not None:
        return s.compute
    if type == "f64":
        return "f64"
    plain = s.bias is None and not (s.alibi or s.sinks or s.softcap or s.dropout)
    known = op == "forward" or (op == "backward" and gradients[0] and plain)
    if type != "bf16" or not dense or not known or s.approximate is not None:
        return "f32"
    if s.M is not None or s.memory is not None:
        return "bf16"
    measure_once()
    return "bf16" if _core.bf16_is_faster() else "f32"


def make_plan(problem: Any, wanted: Any) -> Any:
    if wanted.M is None and wanted.memory is None:
        measure_once()
    return _core.make_plan(problem, wanted)


def plan_within(problem: Any, wanted: Any, tolerance: float, largest_score: float) -> tuple[Any, str]:
    """The plan that answers the tolerance while no score is larger, and why."""
    if wanted.M is None and wanted.memory is None:
        measure_once()
    return _core.plan_within(problem, wanted, tolerance, largest_score)


def checked(op: str, types: tuple, shapes: tuple, s: Settings) -> tuple[Sizes, Any, bool]:
    """The sizes and the problem of q, k and v of these types and shapes, and is it empty? Raises what is wrong with them."""
    q, k, v = shapes
    x = sizes_of(q, k, v, s.layout)
    if types[1] == types[2] == "int8" and s.keys_per_scale > 0:
        types = (types[0],) * 3
    if "int8" in types:
        raise int8_error("k" if types[1] == "int8" else "v")
    if not types[0] == types[1] == types[2]:
        raise TypeError(f"q, k and v have elements of types {', '.join(types)}: give arrays of one type")
    if types[0] == "bool":
        raise type_error("q", "bool")
    return x, *validated(op, x, s)


def plan_of(op: str, types: tuple, shapes: tuple, dense: bool, s: Settings, gradients: tuple) -> Call:
    """`dense`: are the arrays of bf16, and do the features of q, k and v lie side by side?

    `gradients` says, for op "backward", whether lse and o are given, whether those of bias and sinks are wanted, and whether
    dlse is given; for "tangent" and "second", whether lse and o are, dlse, and directions of bias and sinks; for "forward", whether lse
    is wanted. A last one, for backward and forward, is there where k and v are a part of all keys, and says whether outputs are given and added
    to. "scores" and "weights" have none; v is k.
    """
    q, k, v = shapes
    x, problem, empty = checked(op, types, shapes, s)
    if op == "forward":
        problem.lse_required = flag("return_lse", gradients[0])
        if len(gradients) > 1:
            set_part(problem, s, gradients[1])
    elif op == "backward":
        problem.forward_given = gradients[0]
        problem.bias_gradient, problem.sinks_gradient = flag("bias_gradient", gradients[1]), flag("sinks_gradient", gradients[2])
        problem.lse_gradient = gradients[3]
        if len(gradients) > 4:
            set_part(problem, s, gradients[4])
    elif op in ("tangent", "second"):
        problem.forward_given = gradients[0]
        problem.lse_gradient, problem.bias_direction, problem.sinks_direction = gradients[1:]
    wanted = wanted_of(s, types[0], arithmetic(op, types[0], dense, s, gradients))
    lse_shape = (x.batch, x.heads, x.n_q)[-(len(q) - 1) :] if len(q) > 2 else (x.n_q,)
    return Call(
        None if empty else make_plan(problem, wanted),
        types[0],
        tokens_first(s.layout),
        tuple(q[:-1]) + (x.d_v,),
        lse_shape,
        "f64" if types[0] == "f64" else "f32",
        lse_shape + (x.n_k,),
        wanted,
    )


def call_for(op: str, family: Any, q: Any, k: Any, v: Any, s: Settings, gradients: tuple, do: Any = None) -> Call:
    """The call of these arrays and options, made now or before. do: of a backward pass."""
    try:
        dense = s.compute is None and family.type_of(q, "q") == "bf16" and all(map(family.is_dense, (q, k, v)))
        dense = dense and (do is None or do.dtype == q.dtype)
        key = (op, q.dtype, k.dtype, v.dtype, q.shape, k.shape, v.shape, dense, s, gradients, *map(type, gradients))
    except (RuntimeError, TypeError):  # nested tensors have no shape, and others no strides
        for x, name in ((q, "q"), (k, "k"), (v, "v")):
            family.given(x, name)
        raise
    try:
        call = _calls.get(key)
    except TypeError:  # an option of a type that no option has; problem_of says which
        call = None
    if call is None:
        types = tuple(family.type_of(x, name) for x, name in ((q, "q"), (k, "k"), (v, "v")))
        call = plan_of(op, types, (tuple(q.shape), tuple(k.shape), tuple(v.shape)), dense, s, gradients)
        _keep(_calls, key, call)
    return call


def _keep(calls: dict, key: Any, call: Any) -> None:
    while len(calls) >= MOST_PLANS:  # other threads may write, and may take the same one for the oldest
        calls.pop(list(calls)[0], None)
    calls[key] = call


def key_as_given(given: tuple, options: Any) -> Optional[bytes]:
    """A key of a call as it was given, for _core.run_known: (q, k, v, return_lse), or (q, k, v, False, do, o, lse). It is None
    where an option is no plain value, or an array of a type that has no key."""
    key: Any = _core.key_of_call(given, options, default_threads())
    return key


def remember(key: Optional[bytes], call: Call, family: Any, outputs: tuple) -> None:
    """For calls whose runs need nothing but their arrays. outputs: (name, the input that it is like, shape, type) for each."""
    if key is None or call.plan is None:
        return
    known = _core.Known(call.plan, call.tokens_first, family.empty, family.empty_like, family.written_by_core)
    for name, like, shape, type, as_like in outputs:
        known.add_output(name, like, family.maker(shape, type), shape, type, as_like)
    _keep(_as_given, key, known)
