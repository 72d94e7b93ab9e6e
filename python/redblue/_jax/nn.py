"""jax.nn.dot_product_attention as redblue's: redblue.jax.dot_product_attention."""

from __future__ import annotations

import numbers
from typing import Any, Optional, Union

import jax
import jax.numpy as jnp
import numpy as np

import redblue  # whose attribute `jax` is there when the function is called

from .._call.settings import flag, whole
from .._errors import InvalidProblem
from .lengths import combined, judged


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: Optional[float] = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: Union[int, tuple[int, int], None] = None,
    implementation: Optional[str] = None,
    return_residual: bool = False,
) -> Any:
    """jax.nn.dot_product_attention by redblue, on the CPU, with its gradients: jit, grad and vmap go with it.

    query [batch, T, heads, H], key and value [batch, S, kv_heads, H], or all without batch. bias is added to the scores, mask is
    of bool and True keeps; both broadcast to [batch, heads, T, S]. is_causal counts from the first key, as does
    local_window_size, (left, right) or one number for both. query_seq_lengths and key_value_seq_lengths [batch] may be traced;
    values beyond what is there mean all. scale, is_causal and local_window_size are fixed when JAX traces. implementation names
    another program than redblue and is refused. return_residual also returns the logarithms of the row sums, [batch, T, heads],
    in the type of key, and without a gradient.

    As in JAX a query that mask, is_causal, windows and key_value_seq_lengths let see no key takes the mean of all values, and
    queries beyond query_seq_lengths are 0. What JAX computes in fp32 of arrays of fp64 is computed in fp64. A query whose bias
    is -inf for all keys is 0, where JAX has NaN. Raises what redblue.jax.attention raises.
    """
    if implementation is not None:
        raise InvalidProblem(f"implementation = {implementation!r}: this is redblue's own; leave it out, or call jax.nn's function")
    q, k, v = (jnp.asarray(x) for x in (query, key, value))
    if not q.ndim == k.ndim == v.ndim or q.ndim not in (3, 4):
        shapes = ", ".join(str(list(x.shape)) for x in (q, k, v))
        raise InvalidProblem(f"query, key and value are {shapes}: give [batch, length, heads, features], or all without batch")
    residual = flag("return_residual", _known("return_residual", return_residual))
    batch, n_q, heads = q.shape[0] if q.ndim == 4 else 1, q.shape[-3], q.shape[-2]
    n_k = k.shape[-3]
    left, right = _window(local_window_size, flag("is_causal", _known("is_causal", is_causal)))
    keys = None if key_value_seq_lengths is None else judged("key_value_seq_lengths", jnp.asarray(key_value_seq_lengths), batch)
    mask = None if mask is None else _mask(jnp.asarray(mask))
    bias = None if bias is None else _bias(jnp.asarray(bias))

    seen = None if keys is None else jnp.arange(n_k) < keys[:, None, None, None]
    seen = mask if seen is None else seen if mask is None else seen & mask
    options = {} if left is None and right is None else {"window": (left, right), "alignment": "top-left"}
    found = redblue.jax.attention(
        q, k, v, bias=combined(seen, bias), layout="bshd", scale=scale, return_lse=residual, **options
    )
    o, lse = found if residual else (found, None)
    lse = None if lse is None else jnp.swapaxes(lse, -1, -2)
    sees = _sees(seen, left, right, n_q, n_k)
    if sees is not None:
        rows = jnp.broadcast_to(jnp.swapaxes(sees, 1, 2), (batch, n_q, heads)).reshape(q.shape[:-1])
        o, lse = jnp.where(rows[..., None], o, _mean(v, heads)), _without(rows, lse)
    if query_seq_lengths is not None:
        used = jnp.arange(n_q) < judged("query_seq_lengths", jnp.asarray(query_seq_lengths), batch)[:, None]
        used = used.reshape(*q.shape[:-2], 1)
        o, lse = jnp.where(used[..., None], o, 0), _without(used, lse)
    return o if lse is None else (o, jax.lax.stop_gradient(lse.astype(k.dtype)))


def _mean(v: Any, heads: int) -> Any:
    """The mean of the values of each head of queries, [..., 1, heads, features]; 0 where there are none."""
    if 0 in v.shape:
        return jnp.zeros((*v.shape[:-3], 1, heads, v.shape[-1]), v.dtype)
    mean = v.mean(-3, keepdims=True, dtype=jnp.promote_types(v.dtype, jnp.float32)).astype(v.dtype)
    return jnp.repeat(mean, heads // v.shape[-2], -2)


def _without(rows: Any, lse: Any) -> Any:
    """JAX takes this number for the score of a hidden key, and so for the lse of a query that sees none."""
    return None if lse is None else jnp.where(rows, lse, -0.7 * float(jnp.finfo(jnp.float32).max))


def _known(name: str, value: Any) -> Any:
    if isinstance(value, jax.core.Tracer):
        raise InvalidProblem(f"{name} is traced: it must be known when JAX traces; close over it, or make it a static argument")
    return value


def _window(size: Any, causal: bool) -> tuple[Optional[int], Optional[int]]:
    """The edges of what a query sees; None: there is none."""
    left, right = None, 0 if causal else None
    if _known("local_window_size", size) is None:
        return left, right
    if isinstance(size, numbers.Integral) and not isinstance(size, bool):
        size = (size, size)
    if not isinstance(size, (tuple, list)) or len(size) != 2:
        raise InvalidProblem(f"local_window_size = {size!r}: give one whole number, or (left, right)")
    left, wide = (whole("local_window_size", _known("local_window_size", x)) for x in size)
    if min(left, wide) < 0:
        raise InvalidProblem(f"local_window_size = {size!r}: give numbers from 0 on")
    return left, 0 if causal else wide


def _mask(mask: Any) -> Any:
    if mask.dtype != bool:
        raise InvalidProblem(f"mask has elements of type {mask.dtype}: give bool, where True keeps; what is added to scores is bias")
    return _four("mask", mask)


def _bias(bias: Any) -> Any:
    if bias.dtype == bool:
        raise InvalidProblem("bias has elements of type bool: give numbers that are added to scores; bool is for mask")
    return _four("bias", bias if jnp.issubdtype(bias.dtype, jnp.floating) else bias.astype(jnp.float32))


def _four(name: str, x: Any) -> Any:
    if x.ndim > 4:
        raise InvalidProblem(f"{name} has {x.ndim} dimensions: give what broadcasts to [batch, heads, T, S]")
    return x.reshape((1,) * (4 - x.ndim) + x.shape)


def _sees(seen: Any, left: Optional[int], right: Optional[int], n_q: int, n_k: int) -> Any:
    """Does a query see any key? [batch, heads, n_q], of sizes that broadcast; None: all do."""
    if seen is None:
        i = np.arange(n_q)
        first = np.zeros(n_q, int) if left is None else np.maximum(i - left, 0)
        last = np.full(n_q, n_k - 1) if right is None else np.minimum(i + right, n_k - 1)
        rows = (first <= last)[None, None]
        return None if rows.all() else jnp.asarray(rows)
    if left is not None or right is not None:
        distance = jnp.arange(n_k) - jnp.arange(n_q)[:, None]
        if left is not None:
            seen = seen & (distance >= -left)
        if right is not None:
            seen = seen & (distance <= right)
    return seen.any(-1)
