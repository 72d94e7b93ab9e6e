"""Attention for arrays of JAX, with gradients, inside and outside of jax.jit: redblue.jax.attention.

A call is a jax.pure_callback: JAX hands the arrays over in the CPU's memory, and redblue runs on them there.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._attention import attention_backward, forward
from ._errors import InvalidProblem, Unsupported
from ._settings import LAYOUTS, sizes_of

__all__ = ["attention"]

_STATIC = (
    "layout", "causal", "alignment", "window", "prefix", "scale", "softcap", "dropout", "cu_seqlens_q", "cu_seqlens_k",
    "seqused_q", "seqused_k", "pattern", "order", "compute", "M", "memory", "max_workspace", "threads",
)  # fmt: skip
_REFUSED = ("out", "approximate", "tolerance", "schedule")


def attention(
    q: Any, k: Any, v: Any, *, bias: Any = None, alibi_slopes: Any = None, sinks: Any = None, seed: Any = None,
    return_lse: bool = False, **options: Any,
) -> Any:  # fmt: skip
    """redblue.attention for arrays of JAX: jit, grad and vmap (one call after another) go with it.

    Arrays, options and results are those of redblue.attention. Gradients are of q, k, v, bias (of floats) and sinks; lse has
    none. q, k, v, bias, alibi_slopes, sinks and seed may be traced; all other options are fixed when JAX traces, sequences
    among them. out, approximate, tolerance and schedule are refused. Raises Unsupported and InvalidProblem; what a run
    raises inside jax.jit arrives as an error of JAX with the same text. Second derivatives are refused by JAX.
    """
    unknown = [name for name in options if name not in _STATIC]
    if unknown:
        known = all(name in _REFUSED for name in unknown)
        raise (Unsupported if known else TypeError)(f"{', '.join(unknown)}: redblue.jax.attention takes {', '.join(_STATIC)}")
    if options.get("dropout") and seed is None:
        raise InvalidProblem(f"dropout = {options['dropout']} and no seed: give one, a whole number from 0 to 2^53")
    fixed = tuple((name, _hashable(name, options[name])) for name in sorted(options) if options[name] is not None)
    o, lse = _attention(fixed, q, k, v, bias, alibi_slopes, sinks, None if seed is None else jnp.asarray(seed))
    return (o, jax.lax.stop_gradient(lse)) if return_lse else o


def _hashable(name: str, value: Any) -> Any:
    if isinstance(value, jax.core.Tracer):
        raise InvalidProblem(f"{name} is traced: it must be known when JAX traces; close over it, or make it a static argument")
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(value) if isinstance(value, list) else value


def _options(fixed: tuple, bias: Any, slopes: Any, sinks: Any, seed: Any) -> dict:
    """Options of redblue.attention, the arrays among them as NumPy's."""
    bias, slopes, sinks = (None if x is None else np.asarray(x) for x in (bias, slopes, sinks))
    return {**dict(fixed), "bias": bias, "alibi_slopes": slopes, "sinks": sinks, "seed": None if seed is None else int(seed)}


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(fixed: tuple, q: Any, k: Any, v: Any, bias: Any, slopes: Any, sinks: Any, seed: Any) -> Any:
    layout = dict(fixed).get("layout", "bhsd")
    x = sizes_of(q.shape, k.shape, v.shape, layout)
    rows = q.shape[:-1] if not LAYOUTS[layout] else (*q.shape[:-3], q.shape[-2], q.shape[-3])
    shapes = (
        jax.ShapeDtypeStruct((*q.shape[:-1], x.d_v), q.dtype),
        jax.ShapeDtypeStruct(rows, jnp.float64 if q.dtype == jnp.float64 else jnp.float32),
    )

    def run(q: Any, k: Any, v: Any, *others: Any) -> Any:
        return forward(np.asarray(q), np.asarray(k), np.asarray(v), None, True, **_options(fixed, *others))

    return jax.pure_callback(run, shapes, q, k, v, bias, slopes, sinks, seed, vmap_method="sequential")


def _forward(fixed: tuple, *arrays: Any) -> Any:
    results = _attention(fixed, *arrays)
    return results, (arrays, results)


def _backward(fixed: tuple, kept: Any, cotangents: Any) -> Any:
    (q, k, v, bias, slopes, sinks, seed), (o, lse) = kept
    wants_bias = bias is not None and jnp.issubdtype(bias.dtype, jnp.floating)
    wanted = (q, k, v, bias if wants_bias else None, sinks)
    shapes = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in wanted if x is not None)

    def run(do: Any, o: Any, lse: Any, q: Any, k: Any, v: Any, *others: Any) -> Any:
        options = _options(fixed, *others)
        if options.get("compute") == "bf16":
            del options["compute"]  # gradients with modifiers are computed in fp32
        given = (np.asarray(x) for x in (do, q, k, v, o, lse))
        found = attention_backward(*given, bias_gradient=wants_bias, sinks_gradient=sinks is not None, **options)
        return tuple(g for g in found if g is not None)

    arrays = (cotangents[0], o, lse, q, k, v, bias, slopes, sinks, seed)
    found = iter(jax.pure_callback(run, shapes, *arrays, vmap_method="sequential"))
    dq, dk, dv, dbias, dsinks = (None if x is None else next(found) for x in wanted)
    return dq, dk, dv, dbias, None, dsinks, None


_attention.defvjp(_forward, _backward)
