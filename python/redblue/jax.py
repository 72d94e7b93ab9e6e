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
from ._arrays import NumPy
from ._attention import request_of, require_heads, require_seed, without_products
from ._calls import Call, call_for
from ._errors import InvalidProblem, Unsupported
from ._jax_lengths import NAMES as LENGTHS
from ._jax_lengths import as_mask
from ._jax_nn import dot_product_attention
from ._lse import of_rows, of_shared_bias, require_keys, rescaled
from ._options import ARRAYS, OPTIONS, Settings
from ._request import Request
from ._settings import tokens_first, unknown_options
from ._threads import default_threads

__all__ = ["attention", "dot_product_attention"]

if not hasattr(jax, "ffi"):
    raise ImportError(f"redblue.jax needs jax.ffi, of JAX 0.5 or later, and this is JAX {jax.__version__}")
_TARGET = "redblue_attention"
jax.ffi.register_ffi_target(_TARGET, _core.xla_handler(), platform="cpu")

_REFUSED = ("out", "approximate", "tolerance", "schedule")
_STATIC = tuple(o.name for o in OPTIONS.values() if not (o.array or o.name == "seed" or o.name in _REFUSED))


class _Traced(NumPy):
    """The family (_arrays.py) of JAX's arrays, most of them traced: they have a shape and a type of NumPy."""

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


def attention(
    q: Any, k: Any, v: Any, *, bias: Any = None, alibi_slopes: Any = None, sinks: Any = None, seed: Any = None,
    return_lse: bool = False, **options: Any,
) -> Any:  # fmt: skip
    """redblue.attention for arrays of JAX on the CPU: jit, grad and vmap (one call after another) go with it.

    Arrays, options and results are those of redblue.attention. Gradients are of q, k, v, bias (of floats) and sinks, through
    o and lse; that of alibi_slopes is refused. q, k, v, bias, alibi_slopes, sinks and seed may be traced, and so may seqused_q
    and seqused_k of padded batches: as arrays of JAX they hide keys by a mask, and one program serves all lengths. All other
    options are fixed when JAX traces, packed sequences among them, and then the plan is made. out, approximate, tolerance and schedule are refused. Raises what
    redblue.attention raises; what a run raises (a seed that is out of range, too little memory) arrives as an error of JAX
    with the same text. Second derivatives are refused by JAX, and gradients under a bias with compute = "f64" where
    jax_enable_x64 is off.
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


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _differentiable(fixed: tuple, return_lse: bool, q: Any, k: Any, v: Any, bias: Any, slopes: Any, sinks: Any, seed: Any) -> Any:
    r = _request(fixed, q, k, v, bias, slopes, sinks)
    call = call_for("forward", _Traced, q, k, v, r.settings, (return_lse,))
    lse_type = jnp.float64 if call.lse_type == "f64" else jnp.float32
    if call.plan is None:  # a size is 0
        require_heads(r, *(1, 1, *call.lse_shape)[-3:-1])
        if return_lse and 0 not in q.shape and 0 not in k.shape:  # v has no features
            one = jnp.zeros((*v.shape[:-1], 1), v.dtype)
            return jnp.zeros(call.o_shape, q.dtype), _differentiable(fixed, True, q, k, one, bias, slopes, sinks, seed)[1]
        lse = -jnp.inf if sinks is None else of_rows(sinks, len(call.lse_shape)).astype(lse_type)
        return jnp.zeros(call.o_shape, q.dtype), jnp.full(call.lse_shape, lse, lse_type) if return_lse else None
    results = [(call.o_shape, q.dtype), (call.lse_shape, lse_type)][: 1 + return_lse]
    o, *lse = _run(_name(call, "forward", r, (return_lse,)), results, r.arrays(), seed)
    return o, lse[0] if return_lse else None


def _forward(fixed: tuple, return_lse: bool, *primals: Any) -> Any:
    arrays = tuple(None if x is None else x.value for x in primals)
    o, lse = _differentiable(fixed, True, *arrays)
    # _backward must know whether the gradient of slopes is wanted, and raises: an error here would leave JAX's caches of the
    # program broken. What tells it is the size of an array, for JAX keeps one structure of this result, for both cases.
    of_slopes = None if primals[4] is None else jnp.zeros(int(primals[4].perturbed))
    return (o, lse if return_lse else None), (arrays, o, lse, of_slopes)


def _backward(fixed: tuple, return_lse: bool, kept: Any, cotangents: Any) -> Any:
    *kept, of_slopes = kept
    if of_slopes is not None and of_slopes.size > 0:
        raise Unsupported("the gradient of alibi_slopes is not computed: give slopes that require none, by jax.lax.stop_gradient")
    do, dlse = (None if isinstance(x, jax.custom_derivatives.SymbolicZero) else x for x in cotangents)
    return _gradients(fixed, kept, do, dlse)


def _with_gradient_of_lse(do: Any, dlse: Any, o: Any, v: Any, first: bool, sinks: Any) -> tuple:
    """What redblue.torch makes of a gradient of lse: one more feature."""
    require_keys(v.shape[-3 if first else -2], sinks)
    column = (jnp.swapaxes(dlse, -1, -2) if first else dlse)[..., None]
    last = (-column, jnp.ones(column.shape, o.dtype), jnp.zeros((*v.shape[:-1], 1), v.dtype))
    return tuple(jnp.concatenate(x, -1) for x in zip((do.astype(dlse.dtype), o, v), last))


def _rescaled(r: Request, call: Call, do: Any, lse: Any) -> Any:
    if r.settings.compute == "f64" and not jax.config.jax_enable_x64:
        raise Unsupported(
            'compute = "f64" under a bias: gradients add up weights in float64, which this JAX does not have; set jax_enable_x64'
        )
    return rescaled(r, call, do.astype(jnp.promote_types(do.dtype, lse.dtype)), lse)


@functools.partial(jax.jit, static_argnums=0, inline=True)
def _gradients(fixed: tuple, kept: Any, do: Any, dlse: Any) -> Any:
    (q, k, v, bias, slopes, sinks, seed), o, lse = kept
    do = jnp.zeros(o.shape, o.dtype) if do is None else do
    if dlse is not None:
        layout = {name: value for name, value, _ in fixed}.get("layout", "bhsd")
        do, o, v = _with_gradient_of_lse(do, dlse, o, v, tokens_first(layout), sinks)
    r = _request(fixed, q, k, v, bias, slopes, sinks, backward=True)
    wants_bias = bias is not None and jnp.issubdtype(bias.dtype, jnp.floating)
    if wants_bias and r.settings.scale == 0:
        r = without_products(r)
    gradients = (True, wants_bias, sinks is not None, False)
    call = call_for("backward", _Traced, q, k, v, r.settings, gradients, do)
    if wants_bias:
        do = _rescaled(r, call, do, lse)
    wanted = (q, k, v, bias if wants_bias else None, sinks)
    results = [(x.shape, x.dtype) for x in wanted if x is not None]
    if call.plan is None:
        found = iter([jnp.zeros(*x) for x in results])
    else:
        found = iter(_run(_name(call, "backward", r, gradients), results, r.arrays(o, lse, do), seed))
    each: list[Any] = [None if x is None else next(found) for x in wanted]
    dq, dk, dv, dbias, dsinks = each
    if dlse is not None and wants_bias:
        keys = k.shape[-3 if tokens_first(layout) else -2]
        more = of_shared_bias(jnp.where(lse == -jnp.inf, 0, dlse), bias.shape, keys)
        dbias = dbias if more is None else (dbias + more).astype(dbias.dtype)
    return dq, dk, dv if dlse is None else dv[..., :-1], dbias, None, dsinks, None


_differentiable.defvjp(_forward, _backward, symbolic_zeros=True)
_attention = jax.jit(_differentiable, static_argnums=(0, 1), inline=True)
