"""flash_attn_with_kvcache, for arrays of any kind: attention to keys and values that grow from call to call."""

from __future__ import annotations

from typing import Any, Optional, Union

import redblue  # whose attribute `torch` is imported where it is first used

from .._attention import attention, refuse_gradients, refuse_numbers, request, require_heads
from .._call.arrays import integers, is_tensor
from .._call.calls import call_for
from .._call.families import family_of
from .._call.scales import Scales, given, in_use, scales_of
from .._call.settings import flag
from .._errors import InvalidProblem, Unsupported
from .one_by_one import in_shape, one_by_one, require
from .options import flash_options
from .overlap import may_overlap_itself, meet, overlap, span
from .places import Places, capacity, places_of, require_own_pages, require_pages, write
from .rotary import require_positions, rotary_of, rotated


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
    *,
    k_descale: Any = None,
    v_descale: Any = None,
    keys_per_scale: Optional[int] = None,
) -> Any:
    """flash_attn.flash_attn_with_kvcache: q [batch, n_q, heads, d], k_cache and v_cache [batch, n_cache, kv_heads, d].

    cache_seqlens, a number or [batch], says how many keys of each sequence the cache holds; by default it is full. k and v
    [batch, n_new, kv_heads, d] are written to the cache behind them, and are seen, too. causal, window_size and
    alibi_slopes ([heads] or [batch, heads]) are aligned at the bottom right: the last query stands at the last key of its
    sequence. num_splits changes nothing. There are no gradients. A new plan is made whenever the lengths change.

    cache_batch_idx [batch]   the rows of the caches in which the sequences lie, read there without a copy
    cache_leftpad [batch]     where in its row each sequence begins; cache_seqlens and positions count from the row's begin
    block_table [batch, m]    k_cache and v_cache are [pages, page_size, kv_heads, d], and position t of sequence b lies in
                    page block_table[b, t // page_size]. What lies side by side is read there without a copy, and so are,
                    where no mask hides keys between the first and the last, pages of 128 KiB of keys or more. Other pages
                    are copied, sequence by sequence, to memory for the longest one: each key and value is written and read
                    once more
    rotary_cos, rotary_sin    [positions, rotary_dim / 2]: the first rotary_dim features of k are turned by the angles of its
                    positions (cache_seqlens and on) before it is written, and those of q by the same ones under causal or a
                    window, else all by that of cache_seqlens; pairs of neighbours, or with rotary_interleaved=False those
                    rotary_dim / 2 apart. They go with k and v
    k_descale, v_descale      k_cache and v_cache are of int8, and stand for their words times these scales, fp32: [kv_heads] or
                    [batch, kv_heads] (flash-attention 3), or a number. k and v are then of int8, too, words of the same scales
    keys_per_scale  how many keys of a row share a scale: k_descale and v_descale are [batch, kv_heads, ceil(n_cache /
                    keys_per_scale)]. They do not go with block_table, cache_batch_idx and cache_leftpad

    Refused before anything is written: pages that are none, a page or row in which two sequences would grow, tables and
    caches that are too short, and caches of which two elements are one where k and v are written.

    Returns o like q; with return_softmax_lse (o, lse), lse [batch, heads, n_q]. Raises what `attention` raises.

    Source: flash-attention 2 (https://github.com/Dao-AILab/flash-attention), flash_attn_with_kvcache.
    """
    # What k and v bring to a cache depends on numbers in tensors, so that a graph of torch.compile ends here.
    compiled = is_tensor(q) and redblue.torch.torch.compiler.is_compiling()
    return (redblue.torch.kvcache_of_tensors if compiled else attend)(
        q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx, cache_leftpad, block_table,
        softmax_scale, causal, window_size, softcap, rotary_interleaved, alibi_slopes, return_softmax_lse,
        given(k_descale, v_descale, keys_per_scale, ("k_descale", "v_descale")),
    )  # fmt: skip


def attend(
    q: Any, k_cache: Any, v_cache: Any, k: Any, v: Any, rotary_cos: Any, rotary_sin: Any, cache_seqlens: Any,
    cache_batch_idx: Any, cache_leftpad: Any, block_table: Any, softmax_scale: Optional[float], causal: bool,
    window_size: tuple, softcap: float, rotary_interleaved: bool, alibi_slopes: Any, return_softmax_lse: bool,
    scales: Optional[Scales] = None,
) -> Any:  # fmt: skip
    """flash_attn_with_kvcache, of which torch compiles nothing."""
    why = "flash_attn_with_kvcache has no gradients: call it under torch.no_grad(), or flash_attn_func"
    refuse_gradients(why, q, k_cache, v_cache, k, v)
    family, q, keys, values = family_of(q, k_cache, v_cache)
    for name, x in (("q", q), ("k_cache", keys), ("v_cache", values)):
        if len(x.shape) != 4:
            raise InvalidProblem(f"{name} is {list(x.shape)}: give [batch, sequence, heads, features]")
    if tuple(keys.shape[:3]) != tuple(values.shape[:3]):
        raise InvalidProblem(f"k_cache is {list(keys.shape)} and v_cache {list(values.shape)}: make all but their features equal")
    if (k is None) != (v is None):
        raise InvalidProblem("k and v: give both, or neither")
    places = places_of(q.shape[0], keys, values, block_table, cache_batch_idx)
    before = _lengths(cache_seqlens, len(places.pages), capacity(places))
    first = _padding(cache_leftpad, before)
    options: Any = flash_options(softmax_scale, causal, window_size, softcap, alibi_slopes)
    n_new = 0
    if k is not None:
        if cache_seqlens is None:
            raise InvalidProblem("k and v without cache_seqlens: the cache is full; give the number of keys that it holds")
        k, v = family.given(k, "k"), family.given(v, "v")
        n_new = _require_new(k, v, keys, values, len(places.pages))
        _require_room(before, n_new, places)
    lengths = [n + n_new for n in before]
    if block_table is not None:
        require_pages(places, keys.shape[0], lengths)
    interleaved = flag("rotary_interleaved", rotary_interleaved)
    moving = bool(causal) or any(edge not in (None, -1) for edge in options["window"] or ())
    cos = sin = None
    if rotary_cos is not None or rotary_sin is not None:
        if k is None:
            raise InvalidProblem("rotary_cos and rotary_sin without k and v: give these, too, or turn q and the keys before the call")
        if scales is not None:
            raise Unsupported("rotary_cos and rotary_sin with caches of int8: turn q and k before the call, and k before it is rounded")
        cos, sin = rotary_of(family, rotary_cos, rotary_sin, q.shape[3])
        require_positions(cos, max([0, *before]) + max(n_new, q.shape[1] if moving else min(1, q.shape[1])))
    together = places.name == "k_cache" and not any(first)
    longest = max([0, *lengths])
    if scales is not None and scales.keys is not None:
        if places.name != "k_cache" or cache_leftpad is not None:
            raise Unsupported(
                f"keys_per_scale = {scales.keys} with {'cache_leftpad' if places.name == 'k_cache' else places.name}: blocks are of "
                "rows of a cache of its own for each sequence; give a scale for each head"
            )
        scales = in_use(scales_of(scales, keys, "bshd")[0], scales, longest)
    if together:
        used = q, keys[:, :longest], values[:, :longest]
        options["seqused_k"] = lengths if len(set(lengths)) > 1 else None
    else:
        used = (q, *(in_shape(x, (q.shape[0], longest, *x.shape[2:])) for x in (keys, values)))
    if k is not None or not together:  # what is refused leaves the caches as they are
        r = request(*used, scales=scales, **options)
        if together:
            require_heads(r, q.shape[0], q.shape[2])
            if family.refuses_nan:
                refuse_numbers(r, "f64" if family.type_of(q, "q") == "f64" else "f32")
            call_for("forward", r.family, r.q, r.k, r.v, r.settings, (return_softmax_lse,))
        else:
            require(r, ("q", "k_cache", "v_cache"))
        return_softmax_lse = flag("return_softmax_lse", return_softmax_lse)
    if k is not None:
        require_own_pages(places, lengths, n_new)
        caches = _writable(family, k_cache, v_cache)
        held = [span(cache) for cache in caches]
        q, k, v = (_copy(x) if any(meet(span(x), cache) for cache in held) else x for x in (q, k, v))
        if cos is not None:
            k = rotated(k, cos, sin, before, True, interleaved)
            q = rotated(q, cos, sin, before, moving, interleaved)
        for cache, x in zip(caches, (k, v)):
            write(places, cache, x, lengths)
    if together:
        named = {} if scales is None else {"k_scale": scales.k, "v_scale": scales.v, "keys_per_scale": scales.keys}
        result = attention(q, used[1], used[2], return_lse=return_softmax_lse, **named, **options)
        return tuple(map(family.finished, result)) if return_softmax_lse else family.finished(result)
    batch, n_q, heads, _ = q.shape
    type_ = family.type_of(q, "q")
    o = family.empty(q, (batch, n_q, heads, values.shape[3]), type_)
    lse = family.empty(q, (batch, heads, n_q), "f64" if type_ == "f64" else "f32")
    sequences = [[x[b : b + 1] for x in (q, o, lse)] for b in range(batch)]
    one_by_one(sequences, keys, values, places, first, lengths, options, scales)
    return (family.finished(o), family.finished(lse)) if return_softmax_lse else family.finished(o)


def _lengths(cache_seqlens: Any, batch: int, n_cache: int) -> list[int]:
    """How many keys the cache of each sequence holds."""
    if cache_seqlens is None:
        return [n_cache] * batch
    single = not hasattr(cache_seqlens, "__len__") or getattr(cache_seqlens, "ndim", 1) == 0
    lengths = list(integers([cache_seqlens] * batch if single else cache_seqlens, "cache_seqlens"))
    if len(lengths) != batch or not all(0 <= n <= n_cache for n in lengths):
        raise InvalidProblem(f"cache_seqlens = {lengths}: give a number from 0 to {n_cache}, or one for each of {batch} sequences")
    return lengths


def _padding(cache_leftpad: Any, lengths: list[int]) -> list[int]:
    """The position of the first key of each sequence."""
    if cache_leftpad is None:
        return [0] * len(lengths)
    found = list(integers(cache_leftpad, "cache_leftpad"))
    if len(found) != len(lengths) or not all(0 <= a <= n for a, n in zip(found, lengths)):
        raise InvalidProblem(f"cache_leftpad = {found}: give a number from 0 to cache_seqlens for each sequence, here {lengths}")
    return found


def _require_new(k: Any, v: Any, keys: Any, values: Any, batch: int) -> int:
    """How many keys k and v bring to each sequence."""
    n_new = k.shape[1] if len(k.shape) == 4 else 0
    for name, x, cache in (("k", k, keys), ("v", v, values)):
        shape = [batch, n_new, *cache.shape[2:]]
        if list(x.shape) != shape:
            raise InvalidProblem(f"{name} is {list(x.shape)}: give [batch, n_new, kv_heads, features], here {shape}")
        if x.dtype != cache.dtype:
            raise TypeError(f"{name} has elements of type {x.dtype} and {name}_cache of {cache.dtype}: give arrays of one type")
    return n_new


def _require_room(before: list[int], n_new: int, places: Places) -> None:
    room = capacity(places)
    if max([0, *before]) + n_new > room:
        longer = "give a table with more pages" if places.name == "block_table" else "give a longer one"
        raise InvalidProblem(f"cache_seqlens = {before} and {n_new} new keys: the cache has room for {room}; {longer}")


def _writable(family: Any, k_cache: Any, v_cache: Any) -> list:
    """The caches as arrays that k and v may be written to."""
    caches = []
    for name, x in (("k_cache", k_cache), ("v_cache", v_cache)):
        given = family.given(x, name)
        if not getattr(getattr(given, "flags", None), "writeable", True):
            raise InvalidProblem(f"{name} is read-only: k and v are written to it; copy it")
        if may_overlap_itself(given):
            raise InvalidProblem(f"{name} is expanded, or overlaps itself: k and v are written to it; give a copy of its own memory")
        caches.append(given)
    if overlap(*caches):
        raise InvalidProblem("k_cache and v_cache share memory: k and v are written to them; give each memory of its own")
    return [family.output(x, name) for name, x in (("k_cache", k_cache), ("v_cache", v_cache))]


def _copy(x: Any) -> Any:
    return x.clone() if is_tensor(x) else x.copy()
