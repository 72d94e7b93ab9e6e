"""Functions with the names and signatures of PyTorch and flash-attention, for arrays of any kind."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

import redblue  # whose attribute `torch` is imported where it is first used

from .._attention import attention
from .._call.arrays import NumPy, is_tensor
from .._call.families import family_of
from .._call.settings import starts, used
from .._errors import InvalidProblem
from .options import flash_options
from .varlen_pages import attend_to_pages


def _seed(dropout: float) -> Optional[int]:
    if not dropout:
        return None
    import secrets  # hash functions come with it: 4 ms that few calls need

    return secrets.randbelow(1 << 53)


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> Any:
    """torch.nn.functional.scaled_dot_product_attention, for tensors of torch and for other arrays.

    query [..., heads, n_q, d], key [..., kv_heads, n_k, d], value [..., kv_heads, n_k, d_v]; attn_mask broadcasts to
    [..., heads, n_q, n_k]: of bool (True keeps), or added to the scores. is_causal is aligned at the top left, as in
    torch: the first query sees one key. It does not go with attn_mask. Fewer heads of key and value need enable_gqa; one
    serves all without it. Tensors of torch broadcast as torch broadcasts them.
    A query that sees no key gives 0, and so do all where dropout_p is 1. Returns [..., heads, n_q, d_v]. Raises what
    `attention` raises.

    Source: PyTorch, torch.nn.functional.scaled_dot_product_attention.
    """
    if is_tensor(query):
        return redblue.torch.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    try:
        shapes = query.shape, key.shape
    except AttributeError:
        shapes = tuple(x.shape for x in family_of(query, key, value)[1:3])
    require_sdpa(*shapes, attn_mask, is_causal, enable_gqa)
    if dropout_p == 1:
        family, q, k, v = family_of(query, key, value)
        return family.finished(family.zeros(attention(q, k, v, bias=attn_mask, causal=is_causal, alignment="top-left", scale=scale)))
    return attention(
        query,
        key,
        value,
        bias=attn_mask,
        dropout=dropout_p,
        seed=_seed(dropout_p),
        causal=is_causal,
        alignment="top-left",
        scale=scale,
    )


def require_sdpa(query: tuple, key: tuple, attn_mask: Any, is_causal: bool, enable_gqa: bool) -> None:
    """query and key are shapes."""
    if is_causal and attn_mask is not None:
        raise InvalidProblem("attn_mask and is_causal: give one of them, as torch wants it")
    if len(query) > 2 and len(key) > 2 and not enable_gqa:
        if query[-3] != key[-3] and 1 not in (query[-3], key[-3]):
            raise InvalidProblem(f"query has {query[-3]} heads and key {key[-3]}: give enable_gqa=True for groups of heads")


def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: tuple = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """flash_attn.flash_attn_func: q [batch, n_q, heads, d], k and v [batch, n_k, kv_heads, d].

    dropout_p: the share of weights that become 0; which ones is drawn anew at each call. softmax_scale: default 1 / sqrt(d).
    softcap c > 0: scores become c tanh(score / c), before ALiBi and mask. causal and window_size are aligned at the bottom
    right. alibi_slopes [heads] or [batch, heads]. Gradients are always deterministic. Returns o like q; with
    return_attn_probs (o, lse, None), lse [batch, heads, n_q]: the matrix of weights that flash-attention returns for tests
    is not made. Raises what `attention` raises.

    Source: flash-attention 2 (https://github.com/Dao-AILab/flash-attention), flash_attn_func; Dao 2023, arXiv 2307.08691.
    """
    options = flash_options(softmax_scale, causal, window_size, softcap, alibi_slopes)
    return _flash(q, k, v, dropout_p, options, return_attn_probs)


def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: Optional[int] = None,
    max_seqlen_k: Optional[int] = None,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: tuple = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Any = None,
    seqused_q: Any = None,
    seqused_k: Any = None,
) -> Any:
    """flash_attn.flash_attn_varlen_func: packed sequences, q [total_q, heads, d], k and v [total_k, kv_heads, d].

    cu_seqlens_q and cu_seqlens_k, from 0 to the totals, say where each sequence begins; max_seqlen_q and max_seqlen_k
    are not needed. seqused_q and seqused_k [sequences]: how many first queries and keys of each are in use; causal and
    window_size are aligned at the bottom right of these. Queries after them give 0, and keys after them have gradients of
    0. Otherwise as flash_attn_func, alibi_slopes [batch, heads] sequence by sequence; lse is [heads, total_q].

    block_table [batch, m]: k and v are [pages, page_size, kv_heads, d], and key t of sequence b lies in page
    block_table[b, t // page_size], read as flash_attn_with_kvcache reads it. cu_seqlens_k has the lengths alone then, and may
    be None beside seqused_k. There are no gradients and no dropout. Raises what `attention` raises.

    Source: flash-attention 2 (https://github.com/Dao-AILab/flash-attention), flash_attn_varlen_func.
    """
    options: Any = flash_options(softmax_scale, causal, window_size, softcap, alibi_slopes)
    if block_table is not None:
        compiled = is_tensor(q) and redblue.torch.torch.compiler.is_compiling()
        o, lse = (redblue.torch.pages_of_tensors if compiled else attend_to_pages)(
            q, k, v, cu_seqlens_q, cu_seqlens_k, dropout_p, options, block_table, seqused_q, seqused_k
        )
        return (o, lse, None) if return_attn_probs else o
    for name, given in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if given is None:
            raise InvalidProblem(f"{name} = None: give where each sequence begins, ascending from 0 to the total")
    if getattr(alibi_slopes, "ndim", 1) == 2:  # a plan of packed sequences has the same slopes for all
        if is_tensor(q):
            join, rows, lengths_of = redblue.torch.torch.cat, redblue.torch.starts_of_tensors, redblue.torch.used_of_tensors
        else:
            alibi_slopes = NumPy.given(alibi_slopes, "alibi_slopes")
            join, rows, lengths_of = np.concatenate, starts, used
        (q, k, v), finished = _sliceable(q, k, v)
        sequences = [rows(x, name, n.shape[0]) for x, name, n in ((cu_seqlens_q, "cu_seqlens_q", q), (cu_seqlens_k, "cu_seqlens_k", k))]
        if not len(sequences[0]) == len(sequences[1]) == alibi_slopes.shape[0]:
            counts = f"{len(sequences[0])} sequences of queries, {len(sequences[1])} of keys"
            raise InvalidProblem(f"alibi_slopes is {list(alibi_slopes.shape)}, for {counts}: give [sequences, heads]")
        lengths = [lengths_of(x, name, len(alibi_slopes)) for x, name in ((seqused_q, "seqused_q"), (seqused_k, "seqused_k"))]
        parts = [
            _flash(q[None, i], k[None, j], v[None, j], dropout_p, {**options, "alibi_slopes": one}, True, seqused_q=m, seqused_k=n)
            for i, j, one, m, n in zip(*sequences, alibi_slopes, *lengths)
        ]
        o, lse = (finished(join(x, axis)) for x, axis in (([o[0] for o, _, _ in parts], 0), ([lse[0] for _, lse, _ in parts], 1)))
        return (o, lse, None) if return_attn_probs else o
    packed = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "seqused_q": seqused_q, "seqused_k": seqused_k}
    return _flash(q, k, v, dropout_p, options, return_attn_probs, **packed)


def flash_attn_qkvpacked_func(
    qkv: Any,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: tuple = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """flash_attn.flash_attn_qkvpacked_func: flash_attn_func of the three parts of qkv [batch, n, 3, heads, d]. Raises what
    `attention` raises.

    Source: flash-attention 2 (https://github.com/Dao-AILab/flash-attention), flash_attn_qkvpacked_func.
    """
    (qkv, _, _), finished = _sliceable(qkv, qkv, qkv)
    q, k, v = _parts(qkv, "qkv", 3, 5)
    options = flash_options(softmax_scale, causal, window_size, softcap, alibi_slopes)
    return _finished(_flash(q, k, v, dropout_p, options, return_attn_probs), finished)


def flash_attn_kvpacked_func(
    q: Any,
    kv: Any,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: tuple = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """flash_attn.flash_attn_kvpacked_func: flash_attn_func of q [batch, n_q, heads, d] and the two parts of
    kv [batch, n_k, 2, kv_heads, d]. Raises what `attention` raises.

    Source: flash-attention 2 (https://github.com/Dao-AILab/flash-attention), flash_attn_kvpacked_func.
    """
    (q, kv, _), finished = _sliceable(q, kv, kv)
    k, v = _parts(kv, "kv", 2, 5)
    options = flash_options(softmax_scale, causal, window_size, softcap, alibi_slopes)
    return _finished(_flash(q, k, v, dropout_p, options, return_attn_probs), finished)


def flash_attn_varlen_qkvpacked_func(
    qkv: Any,
    cu_seqlens: Any,
    max_seqlen: Optional[int] = None,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: tuple = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """flash_attn.flash_attn_varlen_qkvpacked_func: flash_attn_varlen_func of the three parts of qkv [total, 3, heads, d], with
    cu_seqlens for queries and keys. Raises what `attention` raises.

    Source: flash-attention 2 (https://github.com/Dao-AILab/flash-attention), flash_attn_varlen_qkvpacked_func.
    """
    (qkv, _, _), finished = _sliceable(qkv, qkv, qkv)
    options: Any = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)
    lengths: Any = (cu_seqlens, cu_seqlens, max_seqlen, max_seqlen)
    q, k, v = _parts(qkv, "qkv", 3, 4)
    return _finished(flash_attn_varlen_func(q, k, v, *lengths, *options), finished)


def flash_attn_varlen_kvpacked_func(
    q: Any,
    kv: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: Optional[int] = None,
    max_seqlen_k: Optional[int] = None,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: tuple = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """flash_attn.flash_attn_varlen_kvpacked_func: flash_attn_varlen_func of q [total_q, heads, d] and the two parts of
    kv [total_k, 2, kv_heads, d]. Raises what `attention` raises.

    Source: flash-attention 2 (https://github.com/Dao-AILab/flash-attention), flash_attn_varlen_kvpacked_func.
    """
    (q, kv, _), finished = _sliceable(q, kv, kv)
    options: Any = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)
    lengths: Any = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    k, v = _parts(kv, "kv", 2, 4)
    return _finished(flash_attn_varlen_func(q, k, v, *lengths, *options), finished)


def _sliceable(q: Any, k: Any, v: Any) -> tuple:
    """The arrays, of which parts can be taken, and what makes results of parts. Tensors keep their gradients."""
    if is_tensor(q):
        return (q, k, v), lambda x: x
    family, *arrays = family_of(q, k, v)
    return arrays, family.finished


def _parts(x: Any, name: str, count: int, dimensions: int) -> list:
    """The parts of x [batch, sequence, count, heads, features], or [tokens, count, heads, features] of packed sequences."""
    if len(x.shape) != dimensions or x.shape[-3] != count:
        tokens = "batch, sequence" if dimensions == 5 else "tokens"
        raise InvalidProblem(f"{name} is {list(x.shape)}: give [{tokens}, {count}, heads, features]")
    return [x[..., i, :, :] for i in range(count)]


def _finished(result: Any, finished: Any) -> Any:
    return (*map(finished, result[:2]), None) if isinstance(result, tuple) else finished(result)


def _flash(q: Any, k: Any, v: Any, dropout: float, options: Any, lse: bool, **sequences: Any) -> Any:
    options = {**options, "dropout": dropout, **sequences}
    if is_tensor(q):
        result = redblue.torch.attention(q, k, v, return_lse=lse, **options)
    else:
        result = attention(q, k, v, return_lse=lse, seed=_seed(dropout), **options)
    return (*result, None) if lse else result
