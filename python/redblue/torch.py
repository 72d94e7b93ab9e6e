"""Attention for tensors of PyTorch: custom operators with gradients, which torch.compile takes as they are.

    import redblue.torch
    with redblue.use():          # or redblue.install()
        model(x)                 # F.scaled_dot_product_attention is redblue's until the end of the block

The operators are redblue::attention and redblue::attention_backward. Tensors are on the CPU.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import sys
import weakref
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import handle_torch_function

from . import _vmap
from ._arrays import integers
from ._attention import Gradients, attention_backward, forward, request_of, require_exact, require_heads, require_seed
from ._calls import checked
from ._core import Pattern, use_openmp
from ._errors import InvalidProblem, Unsupported
from ._kvcache import attend as kvcache_of_tensors  # noqa: F401 - these names are those of _torch_graphs.py
from ._options import ARRAYS, OPTIONS, SEQUENCES, Option
from ._replaced import Replaced
from ._settings import SCALES, converted, edges_of, offset_of, patterns_of, real, tokens_first, unknown_options
from ._settings import starts as starts_of_tensors  # noqa: F401
from ._settings import used as used_of_tensors  # noqa: F401
from ._shims import require_sdpa
from ._torch_arrays import Torch, empty_in_order, require_dense
from ._torch_flops import count_flops
from ._torch_functions import functions_of, require_exact_tangents, require_no_slopes, require_still_slopes
from ._torch_graphs import end_graphs
from ._torch_int8 import attend_with_scales, int8_of_tensors  # noqa: F401
from ._torch_second import second_operator, tangent_operator
from ._varlen_pages import attend_to_pages as pages_of_tensors  # noqa: F401

__all__ = ["attention", "install", "register_transformers", "scaled_dot_product_attention", "uninstall", "use"]

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


def _patterns_in(numbers: Optional[Tensor]) -> Optional[Tuple[Pattern, ...]]:
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


def _forward(*arguments: Any) -> Tuple[Tensor, Tensor]:
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


def _backward(do: Tensor, o: Tensor, lse: Tensor, dlse: Any, bias_gradient: bool, sinks_gradient: bool, *arguments: Any) -> Tuple:
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


def _keep(ctx: Any, inputs: Tuple, output: Tuple) -> None:
    ctx.set_materialize_grads(False)
    given = dict(zip(NAMES, inputs))
    if given["approximate"] is not None:
        ctx.mark_non_differentiable(output[1])  # it is empty
    ctx.save_for_backward(*(given.pop(name) for name in _TENSORS), *output)
    ctx.given = given
    ctx.patterns = inputs[NAMES.index("pattern")]  # this very object holds the patterns until the gradients are computed


def _gradients(ctx: Any, do: Optional[Tensor], dlse: Optional[Tensor]) -> Tuple:
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
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Any, slopes: Any, sinks: Any, options: Any) -> Tuple:
        exact = options.get("approximate") is None
        o = forward(q, k, v, None, exact, {"bias": bias, "alibi_slopes": slopes, "sinks": sinks, **options})
        o, lse = o if exact else (o, None)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, bias, slopes, sinks, o, lse)
        ctx.save_for_forward(q, k, v, bias, slopes, sinks, o, lse)
        ctx.options = options
        return o, lse

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tuple:
        *arrays, o, lse = ctx.saved_tensors
        require_still_slopes("tangents of", tangents[4])
        require_exact_tangents(ctx.options.get("approximate"))
        return _functions.tangent.apply(*tangents[:4], tangents[5], o, lse, *arrays, *_with_patterns(ctx.options))

    @staticmethod
    def backward(ctx: Any, do: Optional[Tensor], dlse: Optional[Tensor]) -> Tuple:
        q, k, v, bias, slopes, sinks, o, lse = ctx.saved_tensors
        needs = ctx.needs_input_grad
        require_no_slopes(needs[4])
        if do is None and dlse is None:
            return (None,) * 7
        do, wanted = torch.zeros_like(o) if do is None else do, (needs[3], needs[5])
        way = _way((do, dlse, q, k, v, bias, slopes, sinks))
        if any(x is not None and torch._C._functorch.is_legacy_batchedtensor(x) for x in (do, dlse)):
            way = _OPERATOR
        if way == _DIRECT:
            found: Any = _gradients_of(do, q, k, v, o, lse, bias, slopes, sinks, dlse, *wanted, ctx.options)
        elif way == _OPERATOR:
            of_exact = q.new_empty(0) if lse is None else lse
            found = _backward_op(do, o, of_exact, dlse, *wanted, q, k, v, bias, slopes, sinks, *_arguments(**ctx.options))
        else:
            found = _functions.gradients.apply(do, o, lse, dlse, *wanted, q, k, v, bias, slopes, sinks, *_with_patterns(ctx.options))
        dq, dk, dv, dbias, dsinks = found
        return dq, dk, dv, dbias if wanted[0] else None, None, dsinks if wanted[1] else None, None


_forward_op.register_vmap(functools.partial(_vmap.forward, _forward_op, NAMES))
_backward_op.register_vmap(functools.partial(_vmap.backward, _backward_op, NAMES))
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
    attend = attend_with_scales if any(name in options for name in SCALES) else of_tensors
    return attend(q, k, v, out, return_lse, options)


def of_tensors(q: Tensor, k: Tensor, v: Tensor, out: Optional[Tensor], return_lse: bool, options: Any) -> Any:
    """attention, with its options in a dict of the caller's own."""
    if torch.is_autocast_enabled("cpu"):
        to = torch.get_autocast_dtype("cpu")
        q, k, v, bias = (_autocast(x, to) for x in (q, k, v, options.get("bias")))
        if bias is not None:
            options["bias"] = bias
    if options.get("dropout") and options.get("seed") is None:
        options["seed"] = _drawn_seed()
    tensors = (q, k, v, options.get("bias"), options.get("alibi_slopes"), options.get("sinks"))
    way = _way(tensors)
    if way == _DIRECT:
        return forward(q, k, v, out, return_lse, options)
    given = [name for name in ("tolerance", "schedule") if options.get(name) is not None] + (["out"] if out is not None else [])
    if given:
        raise Unsupported(
            f"{', '.join(given)}: not with gradients, nor in what torch compiles, traces or maps; detach the tensors, or call it "
            "under torch.no_grad()"
        )
    if return_lse:
        require_exact(options.get("approximate"))
    o, lse = (_operator if way == _OPERATOR else _transformed if way == _TRANSFORMED else _with_gradients)(q, k, v, **options)
    return (o, lse) if return_lse else o


def _drawn_seed() -> Tensor:
    """One for all calls that torch maps: they become batches of one call, which drops other weights in each batch."""
    if not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None:
        with torch._C._DisableFuncTorch():
            return torch.randint(1 << 53, (), device="cpu")
    return torch.randint(1 << 53, (), device="cpu")


def _autocast(x: Any, to: torch.dtype) -> Any:
    """Casts x as torch casts the arguments of scaled_dot_product_attention."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.dtype == torch.float64 or x.device.type != "cpu":
        return x
    return x.to(to)


_DIRECT, _RECORDED, _TRANSFORMED, _OPERATOR = range(4)


def _way(tensors: Tuple) -> int:
    """What torch must know of a call: nothing, its gradients, what torch.func makes of it, or that it is an operator, to
    compile, trace or dispatch it, or to find the shapes of meta tensors."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return _TRANSFORMED if _differentiates() else _OPERATOR
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return _TRANSFORMED
    if torch._C._len_torch_dispatch_stack() > 0:
        return _OPERATOR
    if forward_ad._current_level >= 0 and _have_tangents(tensors):
        return _RECORDED
    recorded, way = torch.is_grad_enabled(), _DIRECT
    for x in tensors:
        if x is None:
            continue
        if type(x) is Tensor or type(x) is torch.nn.Parameter:
            if x.is_meta:
                return _OPERATOR
            if recorded and x.requires_grad:
                way = _RECORDED
        elif isinstance(x, Tensor):
            return _OPERATOR
    return way


def _differentiates() -> bool:
    """Does torch.func differentiate what runs here? Operators would get no tangents, and no error would say so."""
    stack = torch._C._functorch.get_interpreter_stack() or ()
    return any(i.key() in (torch._C._functorch.TransformType.Grad, torch._C._functorch.TransformType.Jvp) for i in stack)


def _have_tangents(tensors: Tuple) -> bool:
    """torch gives results of custom operators no tangent, and no error."""
    return any(isinstance(x, Tensor) and forward_ad.unpack_dual(x).tangent is not None for x in tensors)


def _with_gradients(
    q: Tensor, k: Tensor, v: Tensor, bias: Any = None, alibi_slopes: Any = None, sinks: Any = None, **options: Any
) -> Tuple:  # fmt: skip
    return RedblueAttention.apply(q, k, v, bias, alibi_slopes, sinks, {name: _kept(name, x) for name, x in options.items()})


def _kept(name: str, x: Any) -> Any:
    """An option that stays as it is until the gradients are computed."""
    if x is not None and name in SEQUENCES:
        return integers(x, name)
    if isinstance(x, list):
        return tuple(x)
    return int(x) if name == "seed" and isinstance(x, Tensor) else x


def _with_patterns(options: dict) -> Tuple:
    """What the functions of _torch_functions.py take behind the arrays."""
    pattern = options.get("pattern")
    return (*_arguments(**options), None if pattern is None else patterns_of(pattern))


def _operator(
    q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor] = None, alibi_slopes: Optional[Tensor] = None,
    sinks: Optional[Tensor] = None, **options: Any,
) -> Tuple:  # fmt: skip
    _require_places(q, k, v, bias, alibi_slopes, sinks, options)
    return _forward_op(q, k, v, bias, alibi_slopes, sinks, *_arguments(**options))


def _transformed(
    q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor] = None, alibi_slopes: Optional[Tensor] = None,
    sinks: Optional[Tensor] = None, **options: Any,
) -> Tuple:  # fmt: skip
    _require_places(q, k, v, bias, alibi_slopes, sinks, options)
    return _functions.attention.apply(q, k, v, bias, alibi_slopes, sinks, *_with_patterns(options))


def _require_places(q: Tensor, k: Any, v: Any, bias: Any, alibi_slopes: Any, sinks: Any, options: dict) -> None:
    for name, x in (("q", q), ("k", k), ("v", v), ("bias", bias), ("alibi_slopes", alibi_slopes), ("sinks", sinks)):
        _require_place(name, x, q, q.device)
    for name in SEQUENCES:
        if isinstance(options.get(name), Tensor):
            _require_place("a list of sequences", options[name], q, torch.device("cpu"))


def _arguments(**options: Any) -> List[Any]:
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


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: Optional[float] = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """torch.nn.functional.scaled_dot_product_attention by redblue, with gradients, of attn_mask too if it is of floats.
    attn_mask may be a torch.nn.attention.bias.CausalBias. dropout_p = 1 gives 0. What stands for tensors, as torch.fx has
    it, is given the call, as torch's own function does. Raises what redblue.attention raises.

    Source: PyTorch, torch.nn.functional.scaled_dot_product_attention.
    """
    given = (query, key, value, attn_mask)
    usual = type(query) is Tensor and type(key) is Tensor and type(value) is Tensor and type(attn_mask) in _USUAL
    if not usual and any(_stands_for_a_tensor(x) for x in given):
        options = {"attn_mask": attn_mask, "dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
        return handle_torch_function(scaled_dot_product_attention, given, query, key, value, **options)
    if dropout_p == 1:
        o = scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, scale, enable_gqa)
        return o.masked_fill(torch.ones((), dtype=torch.bool), 0.0)
    alignment = "top-left"
    if attn_mask is not None and type(attn_mask) is not Tensor:
        attn_mask, is_causal, alignment = _without_causal_bias(attn_mask, is_causal)
    batch, q, k, v, mask = _as_one_batch(query, key, value, attn_mask, is_causal, enable_gqa)
    if mask is not None and mask.dim() > 4:
        at = next(i for i, size in enumerate(mask.shape) if size != 1)
        parts = zip(q.unbind(at), k.unbind(at), v.unbind(at), mask.unbind(at))
        return _stacked([scaled_dot_product_attention(*part, dropout_p, False, scale, enable_gqa) for part in parts], at)
    named = ("bias", mask, None), ("dropout", dropout_p, 0.0), ("causal", is_causal, False), ("scale", scale, None)
    options = {name: x for name, x, usual in named if type(x) is not type(usual) or x != usual}  # few are looked up in less time
    options.update({"alignment": alignment} if is_causal else {})
    o = of_tensors(q, k, v, None, False, options)
    return o if len(batch) < 2 else o.unflatten(0, batch)


_USUAL = (type(None), Tensor)  # types of attn_mask


def _stands_for_a_tensor(x: Any) -> bool:
    return x is not None and not isinstance(x, Tensor) and hasattr(type(x), "__torch_function__")


def _without_causal_bias(mask: Any, causal: bool) -> Tuple:
    """attn_mask, is_causal and alignment; a CausalBias is a tensor whose memory nobody has written."""
    bias = sys.modules.get("torch.nn.attention.bias")  # it imports torch's compiler
    if bias is None or not isinstance(mask, bias.CausalBias):
        return mask, causal, "top-left"
    if causal:
        raise InvalidProblem("attn_mask is a CausalBias, with is_causal: give one of them, as torch wants it")
    return None, True, "top-left" if mask.variant == bias.CausalVariant.UPPER_LEFT else "bottom-right"


def _as_one_batch(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], causal: bool, grouped: bool) -> Tuple:
    """The sizes in front of [heads, n, features], as torch broadcasts them, and the tensors with at most one size there.
    Heads of size 1 are those of all heads. A mask that is the same for some of these sizes and not for others keeps them,
    and so do then the tensors: to broadcast it would copy it."""
    try:
        a, b, c = q.shape, k.shape, v.shape
    except RuntimeError:  # nested tensors have no shape
        for name, x in (("query", q), ("key", k), ("value", v)):
            require_dense(x, name)
        raise
    if len(a) == 4 and (a == b == c or len(b) == len(c) == 4 and a[:2] == b[:2] == c[:2]) and (mask is None or not causal):
        return (), q, k, v, mask  # what most calls give
    require_sdpa(a, b, mask, causal, grouped)
    dims = max(q.dim(), k.dim(), v.dim())
    if dims < 5 and q.shape[:-3] == k.shape[:-3] == v.shape[:-3]:
        if dims < 3 or k.shape[-3] == v.shape[-3] and (grouped or k.shape[-3] in (1, q.shape[-3])):
            return (), q, k, v, mask
    q, k, v = (x.reshape((1,) * (dims - x.dim()) + tuple(x.shape)) for x in (q, k, v))
    batch = torch.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3])
    heads = max(x.shape[-3] for x in (q, k, v))
    q, k, v = (x.expand(*batch, -1 if grouped or x.shape[-3] != 1 else heads, -1, -1) for x in (q, k, v))
    if dims < 5:
        return (), q, k, v, mask
    if mask is not None and mask.dim() > 3:
        mask = mask.reshape((1,) * (dims - mask.dim()) + tuple(mask.shape))
        mask.expand(*batch, *mask.shape[-3:])  # torch's error where it does not broadcast
        for i, size in enumerate(batch):
            if size > 1 and mask.shape[i] > 1 and mask.stride(i) == 0:
                mask = mask.narrow(i, 0, 1)  # it was expanded: all are the first
        alike = [mask.shape[i] == size for i, size in enumerate(batch)]
        if not all(alike) and mask.shape[:-3].numel() > 1:
            return batch, q, k, v, mask
        mask = mask.flatten(0, -4)
    return (tuple(batch), *(x.flatten(0, -4) for x in (q, k, v)), mask)


def _stacked(parts: List[Tensor], at: int) -> Tensor:
    """The parts as one tensor, whose dimensions lie in memory in the order of theirs."""
    order = sorted(range(parts[0].dim()), key=parts[0].stride, reverse=True)
    back = [0] + [1 + order.index(i) for i in range(len(order))]
    return torch.stack([x.permute(order) for x in parts]).permute(back).movedim(0, at)


_replaced = Replaced(scaled_dot_product_attention)
install, uninstall, use = _replaced.install, _replaced.uninstall, _replaced.use


def register_transformers() -> None:
    """Makes attn_implementation="redblue" known to Hugging Face transformers, which must be installed. Models then get what
    their eager attention computes; one that has attention of its own raises Unsupported when it is made with this name."""
    from ._transformers import register

    register()


end_graphs(globals(), constant=("_differentiates",))
