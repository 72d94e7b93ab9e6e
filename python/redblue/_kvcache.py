"""flash_attn_with_kvcache, for arrays of any kind: attention to keys and values that grow from call to call."""

from __future__ import annotations

from typing import Any, Optional, Union

from ._arrays import family_of, integers, is_tensor
from ._attention import attention, refuse_gradients, request, require_heads
from ._calls import call_for
from ._errors import InvalidProblem, Unsupported
from ._shims import window_of

_INSTEAD = {
    "rotary_cos": "rotate q and k before the call",
    "rotary_sin": "rotate q and k before the call",
    "cache_batch_idx": "give k_cache[cache_batch_idx] and v_cache[cache_batch_idx]; k and v are then appended to these copies",
    "cache_leftpad": "keep the keys of each sequence at the beginning of its cache",
    "block_table": "keys in pages are not read; keep those of a sequence side by side",
}


def flash_attn_with_kvcache(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    k: Any = None,
    v: Any = None,
    rotary_cos: Any = None,
    rotary_sin: Any = None,
    cache_seqlens: Union[int, Any, None] = None,
    cache_batch_idx: Any = None,
    cache_leftpad: Any = None,
    block_table: Any = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: tuple = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Any = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """flash_attn.flash_attn_with_kvcache: q [batch, n_q, heads, d], k_cache and v_cache [batch, n_cache, kv_heads, d].

    cache_seqlens, a number or [batch], says how many keys of each sequence the cache holds; by default it is full. k and v
    [batch, n_new, kv_heads, d] are written to the cache behind them, and are seen, too. causal, window_size and
    alibi_slopes ([heads] or [batch, heads]) are aligned at the bottom right: the last query stands at the last key of its
    sequence. rotary_*, cache_batch_idx, cache_leftpad and block_table are refused; num_splits changes nothing. There are
    no gradients. A new plan is made whenever the lengths change.

    Returns o like q; with return_softmax_lse (o, lse), lse [batch, heads, n_q]. Raises what `attention` raises.

    Source: flash-attention 2 (https://github.com/Dao-AILab/flash-attention), flash_attn_with_kvcache.
    """
    given = {
        "rotary_cos": rotary_cos, "rotary_sin": rotary_sin, "cache_batch_idx": cache_batch_idx,
        "cache_leftpad": cache_leftpad, "block_table": block_table,
    }  # fmt: skip
    for name, x in given.items():
        if x is not None:
            raise Unsupported(f"{name}: {_INSTEAD[name]}")
    why = "flash_attn_with_kvcache has no gradients: call it under torch.no_grad(), or flash_attn_func"
    refuse_gradients(why, q, k_cache, v_cache, k, v)
    family, q, keys, values = family_of(q, k_cache, v_cache)
    for name, x in (("q", q), ("k_cache", keys), ("v_cache", values)):
        if len(x.shape) != 4:
            raise InvalidProblem(f"{name} is {list(x.shape)}: give [batch, sequence, heads, features]")
    lengths = _lengths(cache_seqlens, keys.shape[0], keys.shape[1])
    if (k is None) != (v is None):
        raise InvalidProblem("k and v: give both, or neither")
    if k is not None:
        if cache_seqlens is None:
            raise InvalidProblem("k and v without cache_seqlens: the cache is full; give the number of keys that it holds")
        k, v = family.given(k, "k"), family.given(v, "v")
        _require_room(k, v, keys, values, lengths)
        lengths = [n + k.shape[1] for n in lengths]
    longest = max([0, *lengths])
    options: Any = {
        "layout": "bshd",
        "scale": softmax_scale,
        "causal": causal,
        "window": window_of(window_size),
        "softcap": softcap,
        "alibi_slopes": alibi_slopes,
        "seqused_k": lengths if len(set(lengths)) > 1 else None,
    }
    used = q, keys[:, :longest], values[:, :longest]
    if k is not None:  # what is refused leaves the caches as they are
        r = request(*used, **options)
        require_heads(r, q.shape[0], q.shape[2])
        call_for("forward", r.family, r.q, r.k, r.v, r.settings, (return_softmax_lse,))
        _append(family, (("k", k, k_cache), ("v", v, v_cache)), lengths)
    result = attention(*used, return_lse=return_softmax_lse, **options)
    return tuple(map(family.finished, result)) if return_softmax_lse else family.finished(result)


def _lengths(cache_seqlens: Any, batch: int, n_cache: int) -> list[int]:
    """How many keys the cache of each sequence holds."""
    if cache_seqlens is None:
        return [n_cache] * batch
    single = not hasattr(cache_seqlens, "__len__") or getattr(cache_seqlens, "ndim", 1) == 0
    lengths = list(integers([cache_seqlens] * batch if single else cache_seqlens, "cache_seqlens"))
    if len(lengths) != batch or not all(0 <= n <= n_cache for n in lengths):
        raise InvalidProblem(f"cache_seqlens = {lengths}: give a number from 0 to {n_cache}, or one for each of {batch} sequences")
    return lengths


def _require_room(k: Any, v: Any, keys: Any, values: Any, lengths: list[int]) -> None:
    n_new = k.shape[1] if len(k.shape) == 4 else 0
    for name, x, cache in (("k", k, keys), ("v", v, values)):
        shape = [cache.shape[0], n_new, *cache.shape[2:]]
        if list(x.shape) != shape:
            raise InvalidProblem(f"{name} is {list(x.shape)}: give [batch, n_new, kv_heads, features], here {shape}")
        if x.dtype != cache.dtype:
            raise TypeError(f"{name} has elements of type {x.dtype} and {name}_cache of {cache.dtype}: give arrays of one type")
    if max([0, *lengths]) + n_new > keys.shape[1]:
        raise InvalidProblem(
            f"cache_seqlens = {lengths} and {n_new} new keys: the cache has room for {keys.shape[1]}; give a longer one"
        )


def _append(family: Any, written: tuple, lengths: list[int]) -> None:
    """Writes k and v to the end of the keys and values of each sequence, which has these lengths then. They may be views of
    their caches. Nothing is written where a cache is read-only."""
    caches = [family.output(cache, f"{name}_cache") for name, _, cache in written]
    for (name, *_), cache in zip(written, caches):
        if not getattr(getattr(cache, "flags", None), "writeable", True):
            raise InvalidProblem(f"{name}_cache is read-only: k and v are written to it; copy it")
    for (_, x, _), cache in zip(written, caches):
        new = x.clone() if is_tensor(x) else x.copy()
        for b, n in enumerate(lengths):
            cache[b, n - new.shape[1] : n] = new[b]
