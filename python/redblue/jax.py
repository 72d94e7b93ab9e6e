"""Attention for arrays of JAX, with gradients, inside and outside of jax.jit: redblue.jax.attention, and
redblue.jax.dot_product_attention with the signature of jax.nn's function.

A call is a custom call of XLA, which redblue runs on XLA's own buffers: a handler of jax.ffi.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from . import _core
from ._attention import request_of, require_heads, require_seed, without_products
from ._call.arrays import NumPy
from ._call.calls import Call, call_for
from ._call.lse import has_float_bias, of_rows, require_keys, rescaled
from ._call.options import ARRAYS, OPTIONS, Settings
from ._call.request import Request
from ._call.settings import tokens_first, unknown_options
from ._call.threads import default_threads
from ._errors import InvalidProblem, Unsupported
from ._jax.derivatives import differentiable
from ._jax.lengths import NAMES as LENGTHS
from ._jax.lengths import as_mask
from ._jax.nn import dot_product_attention

__all__ = ["attention", "dot_product_attention"]

if not hasattr(jax, "ffi"):
    raise ImportError(f"redblue.jax needs jax.ffi, of JAX 0.5 or later, and this is JAX {jax.__version__}")
_TARGET = "redblue_attention"
jax.ffi.register_ffi_target(_TARGET, _core.xla_handler(), platform="cpu")

_REFUSED = ("out", "approximate", "tolerance", "schedule")
_STATIC = tuple(o.name for o in OPTIONS.values() if not (o.array or o.name == "seed" or o.name in _REFUSED))


class _Traced(NumPy):
    """The family (_call/arrays.py) of JAX's arrays, most of them traced: they have a shape and a type of NumPy."""

    @staticmethod
    def native(x: Any) -> Any:
        return x

    @staticmethod
    def is_dense(x: Any) -> bool:
        return True  # as XLA's buffers are for a custom call

    @staticmethod
    def given(x: Any, name: str) -> Any:
        NumPy.type_of(x, name)
        return x

    @staticmethod
    def zeros(x: Any) -> Any:
        return jnp.zeros(x.shape, x.dtype)

    @classmethod
    def filled(cls, x: Any, shape: tuple[int, ...], type: str, value: Any) -> Any:
        return jnp.broadcast_to(jnp.asarray(value, jnp.float64 if type == "f64" else jnp.float32), shape)

    @staticmethod
    def where(rows: Any, x: Any, y: float) -> Any:
        return jnp.where(rows, x, y)

    @staticmethod
    def where_any(rows: Any, f: Callable[[], Any], x: Any) -> Any:
        return jax.lax.cond(rows.any(), f, lambda: x)

    @staticmethod
    def attended(call: Call, r: Request, o: Any, lse: Any) -> tuple:
        results = [(o.shape, o.dtype), (lse.shape, lse.dtype)]
        return tuple(_run(_name(call, "part", r, ()), results, r.arrays(o, lse), None))

    @staticmethod
    def moved(call: Call, r: Request, o: Any, lse: Any, along: dict, seed: Any = None) -> tuple:
        results = [(call.o_shape, r.q.dtype), (call.lse_shape, _lse_type(call))]
        moves = "tbias" in along, "tsinks" in along
        return tuple(_run(_name(call, "tangent", r, moves), results, r.arrays(o, lse, **along), seed))


def attention(
    q: Any, k: Any, v: Any, *, bias: Any = None, alibi_slopes: Any = None, sinks: Any = None, seed: Any = None,
    return_lse: bool = False, **options: Any,
) -> Any:  # fmt: skip
    """redblue.attention for arrays of JAX on the CPU: jit, grad and vmap (as part of the batch) go with it.

    Arrays, options and results are those of redblue.attention. Gradients are of q, k, v, bias (of floats) and sinks, through
    o and lse; that of alibi_slopes is refused. q, k, v, bias, alibi_slopes, sinks and seed may be traced, and so may seqused_q
    and seqused_k of padded batches: as arrays of JAX they hide keys by a mask, and one program serves all lengths. All other
    options are fixed when JAX traces, packed sequences among them, and then the plan is made. out, approximate, tolerance and schedule are refused. Raises what
    redblue.attention raises; what a run raises (a seed that is out of range, too little memory) arrives as an error of JAX
    with the same text. jax.jvp, jax.grad and both of both (jax.hessian) take O(n d) memory; third derivatives and
    tangents of tangents are refused, and so are gradients under a bias with compute = "f64" where jax_enable_x64 is off.
    """
    unknown = [name for name in options if name not in _STATIC]
    if unknown:
        if all(name in _REFUSED for name in unknown):
            raise Unsupported(f"{', '.join(unknown)}: redblue.jax.attention takes {', '.join(_STATIC)}")
        raise unknown_options("redblue.jax.attention", [name for name in unknown if name not in _REFUSED], (*_STATIC, *ARRAYS, "seed"))
    for name, x in {"q": q, "k": k, "v": v, "bias": bias, "alibi_slopes": alibi_slopes, "sinks": sinks}.items():
        if not hasattr(x, "dtype") and (x is not None or name in "qkv"):
            raise TypeError(f"{name} is a {type(x).__name__}: give an array of JAX or NumPy")
    hidden = None
    if any(isinstance(options.get(name), jax.Array) for name in LENGTHS):
        hidden = as_mask(q, k, v, bias, alibi_slopes, options)
        bias, options = hidden.bias, hidden.options
    if options.get("threads") is None:
        options["threads"] = default_threads() or None  # 0: those of the pool
    # Each value comes with its text: JAX holds 300 and 300.0 equal, and would not trace, and so judge, the second.
    values = {name: _hashable(name, options[name]) for name in sorted(options) if options[name] is not None}
    fixed = tuple((name, value, repr(value)) for name, value in values.items())
    if options.get("dropout") is None and seed is not None:
        require_seed(seed, None)
    if not options.get("dropout"):
        seed = None
    elif seed is None:
        require_seed(None, options["dropout"])
    o, lse = _attention(fixed, bool(return_lse), q, k, v, bias, alibi_slopes, sinks, seed)
    if hidden is not None:
        o, lse = hidden.applied(o, lse, sinks)
    return (o, lse) if return_lse else o


def _hashable(name: str, value: Any) -> Any:
    if isinstance(value, jax.core.Tracer):
        raise InvalidProblem(f"{name} is traced: it must be known when JAX traces; close over it, or make it a static argument")
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(value) if isinstance(value, list) else value


def _request(fixed: tuple, q: Any, k: Any, v: Any, bias: Any, slopes: Any, sinks: Any, backward: bool = False) -> Request:
    options = {name: value for name, value, _ in fixed}
    if backward and options.get("compute") == "bf16":
        del options["compute"]  # gradients with modifiers are computed in fp32
    if options.get("dropout"):
        options["seed"] = 0  # the handler has the seed of each run
    return request_of(_Traced, q, k, v, bias=bias, alibi_slopes=slopes, sinks=sinks, **options)


_names: dict[tuple, str] = {}
_PROCESS = os.urandom(16).hex()
_numbers = itertools.count()


def _name(call: Call, op: str, r: Request, gradients: tuple) -> str:
    """The name by which the handler knows a plan. It follows from all that the plan depends on: JAX may keep a compiled
    program in a file, and then calls by this name in another process. Patterns are of one process alone."""
    s: Settings = r.settings
    key = (_core.version, op, *((x.dtype, x.shape) for x in (r.q, r.k, r.v)), s, gradients)
    name = _names.get(key)
    if name is None:
        own = "" if s.pattern is None else f"{_PROCESS} {next(_numbers)}"
        name = hashlib.sha256(f"{key} {own}".encode()).hexdigest()
        _core.add_callee(name, call.plan, call.tokens_first)
        _names[key] = name
    return name


def _run(name: str, results: list, arrays: tuple, seed: Any) -> Any:
    """The handler's results, from those of `arrays`, in the order of Request.arrays, that are there."""
    inputs = [x for x in arrays if x is not None]
    if seed is not None:
        inputs.append(_whole(seed))
    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in results]
    return jax.ffi.ffi_call(_TARGET, shapes, vmap_method="sequential")(*inputs, plan=name)


def _whole(seed: Any) -> Any:
    if seed.shape or not jnp.issubdtype(seed.dtype, jnp.integer):
        raise InvalidProblem(f"seed is of shape {list(seed.shape)} and type {seed.dtype}: give one whole number")
    return seed if seed.dtype.itemsize >= 4 else seed.astype(jnp.int32)


def _lse_type(call: Call) -> Any:
    return jnp.float64 if call.lse_type == "f64" else jnp.float32


def _of_call(given: dict, fixed: tuple, backward: bool = False) -> Request:
    q, k, v, bias, slopes, sinks = (given.get(name) for name in ("q", "k", "v", *ARRAYS))
    return _request(fixed, q, k, v, bias, slopes, sinks, backward)


def _values(given: dict, fixed: tuple, return_lse: bool) -> list:
    r = _of_call(given, fixed)
    q, k, v, sinks, seed = r.q, r.k, r.v, r.sinks, given.get("seed")
    call = call_for("forward", _Traced, q, k, v, r.settings, (return_lse,))
    if call.plan is None:  # a size is 0
        require_heads(r, *(1, 1, *call.lse_shape)[-3:-1])
        o = jnp.zeros(call.o_shape, q.dtype)
        if return_lse and 0 not in q.shape and 0 not in k.shape:  # v has no features
            one = jnp.zeros((*v.shape[:-1], 1), v.dtype)
            return [o, _values({**given, "v": one}, fixed, True)[1]]
        lse = -jnp.inf if sinks is None else of_rows(sinks, len(call.lse_shape)).astype(_lse_type(call))
        return [o, jnp.full(call.lse_shape, lse, _lse_type(call))] if return_lse else [o]
    results = [(call.o_shape, q.dtype), (call.lse_shape, _lse_type(call))][: 1 + return_lse]
    return _run(_name(call, "forward", r, (return_lse,)), results, r.arrays(), seed)


def _rescaled(r: Request, call: Call, do: Any, dlse: Any, lse: Any) -> tuple:
    if r.settings.compute == "f64" and not jax.config.jax_enable_x64:
        raise Unsupported(
            'compute = "f64" under a bias: gradients add up weights in float64, which this JAX does not have; set jax_enable_x64'
        )
    return rescaled(r, call, do.astype(jnp.promote_types(do.dtype, lse.dtype)), dlse, lse)


def _require_keys(r: Request, given: Any) -> None:
    """`given` is the gradient of lse, or a direction of sinks, by which lse moves."""
    if given is not None:
        require_keys(r.k.shape[-3 if tokens_first(r.settings.layout) else -2], r.sinks)


def _gradients(given: dict, fixed: tuple, wanted: tuple) -> list:
    r = _of_call(given, fixed, backward=True)
    do, dlse, lse = given["do"], given.get("dlse"), given["lse"]
    _require_keys(r, dlse)
    if "bias" in wanted and r.settings.scale == 0:
        r = without_products(r)
    gradients = (True, "bias" in wanted, "sinks" in wanted, dlse is not None)
    call = call_for("backward", _Traced, r.q, r.k, r.v, r.settings, gradients, do)
    if has_float_bias(r):
        do, dlse = _rescaled(r, call, do, dlse, lse)
    there = [name for name in ("q", "k", "v", "bias", "sinks") if name in ("q", "k", "v", *wanted)]
    results = [(given[name].shape, given[name].dtype) for name in there]
    if call.plan is None:
        found = [jnp.zeros(*x) for x in results]
    else:
        found = _run(_name(call, "backward", r, gradients), results, r.arrays(given["o"], lse, do, dlse=dlse), given.get("seed"))
    by_name = dict(zip(there, found))
    return [by_name[name] for name in wanted]


def _directions(given: dict, prefix: str) -> dict:
    """The directions in which q, k and v move, zeros where there is none, and those of bias and sinks where these move."""
    moving = ("q", "k", "v", *(name for name in ("bias", "sinks") if prefix + name in given))
    found = {prefix + name: given.get(prefix + name) for name in moving}
    return {name: jnp.zeros_like(given[name[1:]]) if x is None else x for name, x in found.items()}


def _tangents(given: dict, fixed: tuple) -> list:
    r = _of_call(given, fixed, backward=True)
    moves = "tbias" in given, "tsinks" in given
    _require_keys(r, given.get("tsinks"))
    call = call_for("tangent", _Traced, r.q, r.k, r.v, r.settings, (True, False, *moves))
    results = [(call.o_shape, r.q.dtype), (call.lse_shape, _lse_type(call))]
    if call.plan is None:
        return [jnp.zeros(*x) for x in results]
    to, tlse = _Traced.moved(call, r, given["o"], given["lse"], _directions(given, "t"), given.get("seed"))
    if has_float_bias(r):  # tangents have the weights as a factor, as gradients do
        to, tlse = _rescaled(r, call, to, tlse, given["lse"])
    return [x.astype(type) for x, (_, type) in zip((to, tlse), results)]


def _second(given: dict, fixed: tuple) -> list:
    r = _of_call(given, fixed, backward=True)
    do, dlse, lse = given["do"], given.get("dlse"), given["lse"]
    _require_keys(r, dlse)
    _require_keys(r, given.get("gsinks"))
    moves = "gbias" in given, "gsinks" in given
    call = call_for("second", _Traced, r.q, r.k, r.v, r.settings, (True, dlse is not None, *moves))
    results = [(x.shape, x.dtype) for x in (r.q, r.k, r.v)] + [(call.o_shape, r.q.dtype)]
    if dlse is not None:
        results.append((call.lse_shape, _lse_type(call)))
    results += [(given[name].shape, given[name].dtype) for name, does in zip(("bias", "sinks"), moves) if does]
    if call.plan is None:
        return [jnp.zeros(*x) for x in results]
    if has_float_bias(r):
        do, dlse = _rescaled(r, call, do, dlse, lse)
    arrays = r.arrays(given["o"], lse, do, dlse=dlse, **_directions(given, "g"))
    return _run(_name(call, "second", r, (dlse is not None, *moves)), results, arrays, given.get("seed"))


_primitive = differentiable(_values, _gradients, _tangents, _second)


@functools.partial(jax.jit, static_argnums=(0, 1), inline=True)
def _attention(fixed: tuple, return_lse: bool, q: Any, k: Any, v: Any, bias: Any, slopes: Any, sinks: Any, seed: Any) -> tuple:
    given = dict(zip(("q", "k", "v", *ARRAYS, "seed"), (q, k, v, bias, slopes, sinks, seed)))
    o, *lse = _primitive(given, fixed=fixed, return_lse=return_lse)
    return o, lse[0] if return_lse else None
