"""Attention as operators of torch, redblue::attention and redblue::attention_backward, with gradients."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import weakref
from typing import Any, Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .. import _attention
from .._attention import Gradients, attention_backward, forward, request_of, require_exact, require_heads, require_seed
from .._call.arrays import integers
from .._call.calls import checked
from .._call.options import ARRAYS, OPTIONS, SEQUENCES, Option
from .._call.settings import SCALES, converted, edges_of, offset_of, patterns_of, real, tokens_first, unknown_options
from .._call.torch_arrays import Torch, empty_in_order, require_dense
from .._core import Pattern, use_openmp
from .._errors import InvalidProblem, Unsupported
from . import vmap
from .flops import count_flops
from .functions import functions_of, require_exact_tangents, require_no_slopes, require_still_slopes
from .graphs import end_graphs
from .second import second_operator, tangent_operator

# A child that came from fork() has none of the threads that torch may have started before.
if multiprocessing.parent_process() is None:
    use_openmp()

#: Operators take tensors: a pattern passes as a number in one, which no other pattern gets.
_numbers = itertools.count()
_number_of: weakref.WeakKeyDictionary[Pattern, int] = weakref.WeakKeyDictionary()
_pattern_of: weakref.WeakValueDictionary[int, Pattern] = weakref.WeakValueDictionary()


def numbers_of(pattern: Any) -> Tensor:
    """The numbers of a pattern, or of a list of them."""
    patterns = patterns_of(pattern)
    for one in patterns:
        if one not in _number_of:
            _number_of[one] = number = next(_numbers)
            _pattern_of[number] = one
    numbers = torch.tensor([_number_of[one] for one in patterns], device="cpu")
    numbers.patterns = patterns  # type: ignore[attr-defined]
    return numbers


def _patterns_in(numbers: Optional[Tensor]) -> Optional[tuple[Pattern, ...]]:
    found = None if numbers is None else tuple(_pattern_of.get(number) for number in numbers.tolist())
    if found is not None and None in found:
        raise InvalidProblem("a pattern was deleted before its gradients were computed: keep it until then in compiled code")
    return found  # type: ignore[return-value]


#: What torch's operators take: tensors, and the options of attention in their order, less those that are of one pass.
_ARRAYS = ("q", "k", "v", *ARRAYS)
_OPTIONS = tuple(o for o in OPTIONS.values() if not o.array and o.name not in ("tolerance", "schedule"))
NAMES = (*_ARRAYS, *(o.name for o in _OPTIONS))
#: Types in a schema of torch. Lists, seeds and patterns are tensors there, for their values are not known when torch compiles.
_TYPES = {"bool": "bool", "int": "SymInt", "float": "float", "str": "str", "bytes": "SymInt", "list": "Tensor?", "object": "Tensor?"}
_FORMS = {"alignment": "SymInt?", "window": "SymInt[]?"}  # of options that are neither: the offset, and both edges


def _type_of(o: Option) -> str:
    found = _FORMS.get(o.name) or _TYPES[o.type]
    return found + "?" if o.optional and not found.endswith("?") else found


_TENSORS = (*_ARRAYS, *(o.name for o in _OPTIONS if _type_of(o) == "Tensor?"))
_SCHEMA = ", ".join(
    [f"Tensor {name}" for name in _ARRAYS[:3]]
    + [f"Tensor? {name}" for name in ARRAYS]
    + [f"{_type_of(o)} {o.name}" for o in _OPTIONS]
)


def _options(given: dict) -> dict:
    """Arguments of an operator by name, as options of redblue.attention."""
    options = {o.name: given[o.name] for o in _OPTIONS}
    edges, seed = options["window"], options["seed"]
    options["alignment"] = "bottom-right" if options["alignment"] is None else options["alignment"]
    options["window"] = None if edges is None else tuple(edges)
    options["seed"] = None if seed is None else int(seed)
    options["pattern"] = _patterns_in(options["pattern"])
    return options


def _arrays(given: dict) -> dict:
    return {name: given[name] for name in ARRAYS}


def _forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    given = dict(zip(NAMES, arguments))
    q, exact = given["q"], given["approximate"] is None  # of an approximation there is no lse
    o = forward(q, given["k"], given["v"], None, exact, {**_arrays(given), **_options(given)})
    return o if exact else (o, q.new_empty(0))


class _Shapes(Torch):
    """The family of tensors without memory."""

    @staticmethod
    def given(x: Any, name: str) -> Tensor:
        Torch.type_of(x, name)
        return x


def _check(given: dict) -> None:
    """Refuses what no plan can be made for. Sizes that are symbols, and lists and patterns, which are tensors here, are seen
    when it runs."""
    shapes = [tuple(given[name].shape) for name in _ARRAYS if given[name] is not None]
    if not all(type(size) is int for shape in shapes for size in shape):
        return
    options = _options({**given, **{name: None for name in (*SEQUENCES, "seed", "pattern")}})
    if options["dropout"]:
        options["seed"] = 0
    q, k, v = (given[name] for name in "qkv")
    r = request_of(_Shapes, q, k, v, **_arrays(given), **options)
    types = tuple(_Shapes.type_of(x, name) for x, name in ((q, "q"), (k, "k"), (v, "v")))
    x, _, _ = checked("forward", types, tuple(shapes[:3]), r.settings)
    require_heads(r, x.batch, x.heads)


_forward_op = torch.library.custom_op(
    "redblue::attention", _forward, mutates_args=(), device_types="cpu", schema=f"({_SCHEMA}) -> (Tensor, Tensor)"
)


@_forward_op.register_fake
def _(*arguments):  # type: ignore[no-untyped-def]
    given = dict(zip(NAMES, arguments))
    _check(given)
    q = given["q"]
    o = empty_in_order(q, (*q.shape[:-1], given["v"].shape[-1]), q.dtype)
    if given["approximate"] is not None:
        return o, q.new_empty(0)
    lse_type = torch.float64 if q.dtype == torch.float64 else torch.float32
    rows = q.shape[:-1] if not tokens_first(given["layout"]) else (*q.shape[:-3], q.shape[-2], q.shape[-3])
    return o, q.new_empty(rows, dtype=lse_type)


def _gradients_of(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Optional[Tensor], bias: Optional[Tensor],
    slopes: Optional[Tensor], sinks: Optional[Tensor], dlse: Optional[Tensor], bias_gradient: bool, sinks_gradient: bool,
    options: dict,
) -> Gradients:  # fmt: skip
    if options.get("compute") == "bf16":
        options = {**options, "compute": None}  # gradients with modifiers are computed in fp32
    return attention_backward(
        do, q, k, v, o, lse, bias=bias, alibi_slopes=slopes, sinks=sinks, bias_gradient=bias_gradient,
        sinks_gradient=sinks_gradient, dlse=dlse, **options,
    )  # fmt: skip


#: What the operator of gradients takes in front of the arguments of the other.
_BACKWARD = ("do", "o", "lse", "dlse", "bias_gradient", "sinks_gradient")


def _backward(do: Tensor, o: Tensor, lse: Tensor, dlse: Any, bias_gradient: bool, sinks_gradient: bool, *arguments: Any) -> tuple:
    given = dict(zip(NAMES, arguments))
    q, k, v, bias, slopes, sinks = (given[name] for name in _ARRAYS)
    of_exact = None if given["approximate"] else lse
    gradients = _gradients_of(do, q, k, v, o, of_exact, bias, slopes, sinks, dlse, bias_gradient, sinks_gradient, _options(given))
    return tuple(q.new_empty(0) if g is None else g for g in gradients)


_backward_op = torch.library.custom_op(
    "redblue::attention_backward", _backward, mutates_args=(), device_types="cpu",
    schema=f"(Tensor do, Tensor o, Tensor lse, Tensor? dlse, bool bias_gradient, bool sinks_gradient, {_SCHEMA}) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor)",
)  # fmt: skip


@_backward_op.register_fake
def _(do, o, lse, dlse, bias_gradient, sinks_gradient, q, k, v, bias, slopes, sinks, *options):  # type: ignore[no-untyped-def]
    wanted = (q, k, v, bias if bias_gradient else None, sinks if sinks_gradient else None)
    return tuple(q.new_empty(0) if x is None else empty_in_order(x, x.shape, x.dtype) for x in wanted)


def _keep(ctx: Any, inputs: tuple, output: tuple) -> None:
    ctx.set_materialize_grads(False)
    given = dict(zip(NAMES, inputs))
    if given["approximate"] is not None:
        ctx.mark_non_differentiable(output[1])  # it is empty
    ctx.save_for_backward(*(given.pop(name) for name in _TENSORS), *output)
    ctx.given = given
    ctx.patterns = inputs[NAMES.index("pattern")]  # this very object holds the patterns until the gradients are computed


def _gradients(ctx: Any, do: Optional[Tensor], dlse: Optional[Tensor]) -> tuple:
    *tensors, o, lse = ctx.saved_tensors
    given = {**ctx.given, **dict(zip(_TENSORS, tensors))}
    needs = dict(zip(NAMES, ctx.needs_input_grad))
    require_no_slopes(needs["alibi_slopes"])
    if do is None and dlse is None:
        return (None,) * len(NAMES)
    wanted = needs["bias"], needs["sinks"]
    do = torch.zeros_like(o) if do is None else do
    dq, dk, dv, dbias, dsinks = _backward_op(do, o.detach(), lse.detach(), dlse, *wanted, *(given[name] for name in NAMES))
    found = {"q": dq, "k": dk, "v": dv}
    found.update(bias=dbias if wanted[0] else None, sinks=dsinks if wanted[1] else None)
    return tuple(found.get(name) for name in NAMES)


_forward_op.register_autograd(_gradients, setup_context=_keep)


_second_op = second_operator(_backward_op, _BACKWARD, NAMES, _SCHEMA, _options)
_functions = functions_of(_forward_op, _backward_op, tangent_operator(NAMES, _SCHEMA, _options), _second_op, NAMES)


class RedblueAttention(torch.autograd.Function):
    """attention where torch must know its gradients alone: without torch's dispatcher, which takes 0.2 ms, and with the
    options as they are, for each argument that torch sees takes time."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Any, slopes: Any, sinks: Any, options: Any) -> tuple:
        exact = options.get("approximate") is None
        o = forward(q, k, v, None, exact, {"bias": bias, "alibi_slopes": slopes, "sinks": sinks, **options})
        o, lse = o if exact else (o, None)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, bias, slopes, sinks, o, lse)
        ctx.save_for_forward(q, k, v, bias, slopes, sinks, o, lse)
        ctx.options = options
        return o, lse

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple:
        *arrays, o, lse = ctx.saved_tensors
        require_still_slopes("tangents of", tangents[4])
        require_exact_tangents(ctx.options.get("approximate"))
        return _functions.tangent.apply(*tangents[:4], tangents[5], o, lse, *arrays, *_with_patterns(ctx.options))

    @staticmethod
    def backward(ctx: Any, do: Optional[Tensor], dlse: Optional[Tensor]) -> tuple:
        q, k, v, bias, slopes, sinks, o, lse = ctx.saved_tensors
        needs = ctx.needs_input_grad
        require_no_slopes(needs[4])
        if do is None and dlse is None:
            return (None,) * 7
        do, wanted = torch.zeros_like(o) if do is None else do, (needs[3], needs[5])
        way = way_of((do, dlse, q, k, v, bias, slopes, sinks))
        if any(x is not None and torch._C._functorch.is_legacy_batchedtensor(x) for x in (do, dlse)):
            way = OPERATOR
        if way == DIRECT:
            found: Any = _gradients_of(do, q, k, v, o, lse, bias, slopes, sinks, dlse, *wanted, ctx.options)
        elif way == OPERATOR:
            of_exact = q.new_empty(0) if lse is None else lse
            found = _backward_op(do, o, of_exact, dlse, *wanted, q, k, v, bias, slopes, sinks, *_arguments(**ctx.options))
        else:
            found = _functions.gradients.apply(do, o, lse, dlse, *wanted, q, k, v, bias, slopes, sinks, *_with_patterns(ctx.options))
        dq, dk, dv, dbias, dsinks = found
        return dq, dk, dv, dbias if wanted[0] else None, None, dsinks if wanted[1] else None, None


_forward_op.register_vmap(functools.partial(vmap.forward, _forward_op, NAMES))
_backward_op.register_vmap(functools.partial(vmap.backward, _backward_op, NAMES))
count_flops(NAMES)


def attention(q: Tensor, k: Tensor, v: Tensor, *, out: Optional[Tensor] = None, return_lse: bool = False, **options: Any) -> Any:
    """redblue.attention for tensors, with gradients of q, k, v, bias and sinks.

    Arguments and result are those of redblue.attention; lse has a gradient, too. Without a seed, dropout takes one from
    torch's generator. Under torch.autocast, q, k, v and bias are cast as for torch's own function. `compute` is of the
    forward pass, and of the gradients unless it is bf16: then they take their own default (redblue.attention_backward).
    out, tolerance (nothing is proved of gradients) and schedule (it names the schedule of one pass) do not go with
    gradients, and with nothing else in which torch must know the call as an operator. Deterministic; twice
    differentiable in q, k, v, bias and sinks. int8 keys and values have no gradients.
    """
    if any(name in options for name in SCALES):
        return _attention.attention(q, k, v, out=out, return_lse=return_lse, **options)
    return of_tensors(q, k, v, out, return_lse, options)


def of_tensors(q: Tensor, k: Tensor, v: Tensor, out: Optional[Tensor], return_lse: bool, options: Any) -> Any:
    """attention, with its options in a dict of the caller's own."""
    if torch.is_autocast_enabled("cpu"):
        to = torch.get_autocast_dtype("cpu")
        q, k, v, bias = (autocast(x, to) for x in (q, k, v, options.get("bias")))
        if bias is not None:
            options["bias"] = bias
    if options.get("dropout") and options.get("seed") is None:
        options["seed"] = drawn_seed()
    tensors = (q, k, v, options.get("bias"), options.get("alibi_slopes"), options.get("sinks"))
    way = way_of(tensors)
    if way == DIRECT:
        return forward(q, k, v, out, return_lse, options)
    given = [name for name in ("tolerance", "schedule") if options.get(name) is not None] + (["out"] if out is not None else [])
    if given:
        raise Unsupported(
            f"{', '.join(given)}: not with gradients, nor in what torch compiles, traces or maps; detach the tensors, or call it "
            "under torch.no_grad()"
        )
    if return_lse:
        require_exact(options.get("approximate"))
    o, lse = (_operator if way == OPERATOR else _transformed if way == TRANSFORMED else _with_gradients)(q, k, v, **options)
    return (o, lse) if return_lse else o


def drawn_seed() -> Tensor:
    """One for all calls that torch maps: they become batches of one call, which drops other weights in each batch."""
    if not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None:
        with torch._C._DisableFuncTorch():
            return torch.randint(1 << 53, (), device="cpu")
    return torch.randint(1 << 53, (), device="cpu")


def autocast(x: Any, to: torch.dtype) -> Any:
    """Casts x as torch casts the arguments of scaled_dot_product_attention."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.dtype == torch.float64 or x.device.type != "cpu":
        return x
    return x.to(to)


DIRECT, RECORDED, TRANSFORMED, OPERATOR = range(4)


def way_of(tensors: tuple) -> int:
    """What torch must know of a call: nothing, its gradients, what torch.func makes of it, or that it is an operator, to
    compile, trace or dispatch it, or to find the shapes of meta tensors."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return TRANSFORMED if _differentiates() else OPERATOR
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return TRANSFORMED
    if torch._C._len_torch_dispatch_stack() > 0:
        return OPERATOR
    if forward_ad._current_level >= 0 and _have_tangents(tensors):
        return RECORDED
    recorded, way = torch.is_grad_enabled(), DIRECT
    for x in tensors:
        if x is None:
            continue
        if type(x) is Tensor or type(x) is torch.nn.Parameter:
            if x.is_meta:
                return OPERATOR
            if recorded and x.requires_grad:
                way = RECORDED
        elif isinstance(x, Tensor):
            return OPERATOR
    return way


def _differentiates() -> bool:
    """Does torch.func differentiate what runs here? Operators would get no tangents, and no error would say so."""
    stack = torch._C._functorch.get_interpreter_stack() or ()
    return any(i.key() in (torch._C._functorch.TransformType.Grad, torch._C._functorch.TransformType.Jvp) for i in stack)


def _have_tangents(tensors: tuple) -> bool:
    """torch gives results of custom operators no tangent, and no error."""
    return any(isinstance(x, Tensor) and forward_ad.unpack_dual(x).tangent is not None for x in tensors)


def _with_gradients(
    q: Tensor, k: Tensor, v: Tensor, bias: Any = None, alibi_slopes: Any = None, sinks: Any = None, **options: Any
) -> tuple:  # fmt: skip
    return RedblueAttention.apply(q, k, v, bias, alibi_slopes, sinks, {name: _kept(name, x) for name, x in options.items()})


def _kept(name: str, x: Any) -> Any:
    """An option that stays as it is until the gradients are computed."""
    if x is not None and name in SEQUENCES:
        return integers(x, name)
    if isinstance(x, list):
        return tuple(x)
    return int(x) if name == "seed" and isinstance(x, Tensor) else x


def _with_patterns(options: dict) -> tuple:
    """What the functions of _torch/functions.py take behind the arrays."""
    pattern = options.get("pattern")
    return (*_arguments(**options), None if pattern is None else patterns_of(pattern))


def _operator(
    q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor] = None, alibi_slopes: Optional[Tensor] = None,
    sinks: Optional[Tensor] = None, **options: Any,
) -> tuple:  # fmt: skip
    _require_places(q, k, v, bias, alibi_slopes, sinks, options)
    return _forward_op(q, k, v, bias, alibi_slopes, sinks, *_arguments(**options))


def _transformed(
    q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor] = None, alibi_slopes: Optional[Tensor] = None,
    sinks: Optional[Tensor] = None, **options: Any,
) -> tuple:  # fmt: skip
    _require_places(q, k, v, bias, alibi_slopes, sinks, options)
    return _functions.attention.apply(q, k, v, bias, alibi_slopes, sinks, *_with_patterns(options))


def _require_places(q: Tensor, k: Any, v: Any, bias: Any, alibi_slopes: Any, sinks: Any, options: dict) -> None:
    for name, x in (("q", q), ("k", k), ("v", v), ("bias", bias), ("alibi_slopes", alibi_slopes), ("sinks", sinks)):
        _require_place(name, x, q, q.device)
    for name in SEQUENCES:
        if isinstance(options.get(name), Tensor):
            _require_place("a list of sequences", options[name], q, torch.device("cpu"))


def _arguments(**options: Any) -> list[Any]:
    """Options of attention, in the order of the arguments of torch's operator redblue::attention."""
    if not OPTIONS.keys() >= options.keys():
        raise unknown_options("attention", [name for name in options if name not in OPTIONS], OPTIONS)
    given = {o.name: options.get(o.name, o.default) for o in _OPTIONS}
    dropout, seed = given["dropout"], given["seed"]
    if (dropout or seed is not None) and not isinstance(seed, Tensor):
        require_seed(seed, options.get("dropout"))
    for o in _OPTIONS:
        if o.type == "float" and isinstance(given[o.name], Tensor):  # the operator would take its value, and no gradient reach it
            real(o.name, given[o.name])
    edges = edges_of(given["window"])
    given.update(
        alignment=offset_of(given["alignment"]),
        window=None if given["window"] is None else [-1 if edge is None else edge for edge in edges],
        softcap=given["softcap"] or 0.0,
        memory=converted("memory", given["memory"]),
        max_workspace=converted("max_workspace", given["max_workspace"]),
        seed=_tensor(seed) if dropout else None,
        pattern=None if given["pattern"] is None else numbers_of(given["pattern"]),
        **{name: _tensor(given[name]) if name in options else None for name in SEQUENCES},
    )
    return list(given.values())


def _require_place(name: str, x: Any, q: Tensor, device: torch.device) -> None:
    """The operator of tensors of which some are of the meta device would return memory that nobody wrote."""
    if x is None:
        return
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__} and others are tensors of torch: give arrays of one kind")
    require_dense(x, name)
    if x.device.type not in ("cpu", "meta"):
        raise TypeError(f"{name} is on device {x.device}: redblue runs on the CPU; move it there with .cpu()")
    if x.device != device and not (q.is_meta and x.is_cpu and device.type == "cpu"):
        raise TypeError(f"{name} is on device {x.device} and q on {q.device}: give all tensors on one device")


def _tensor(x: Any) -> Optional[Tensor]:
    return x if x is None or isinstance(x, Tensor) else torch.tensor(x, device="cpu")


end_graphs(
    globals(),
    {
        "numbers_of": "pattern is no tensor, so that fullgraph=True is not for it",
        "_transformed": "torch.func.grad, vjp or jvp around attention: Dynamo compiles no autograd.Function with a jvp, so that "
        "fullgraph=True is not for it; compile what stands around the transform",
    },
    constant=("_differentiates",),
)
