"""flash_attn_varlen_func with block_table: packed queries, and keys and values in the pages of a cache."""

from __future__ import annotations

import math
from typing import Any

from .._attention import refuse_gradients, request
from .._call.arrays import integers
from .._call.families import family_of
from .._call.settings import starts
from .._errors import InvalidProblem, Unsupported
from .one_by_one import in_shape, one_by_one, require
from .places import capacity, places_of, require_pages


def attend_to_pages(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, dropout_p: float, options: Any, block_table: Any,
    seqused_q: Any, seqused_k: Any,
) -> tuple:  # fmt: skip
    """o [total_q, heads, d_v] and lse [heads, total_q]. The options are those of `attention`."""
    if dropout_p != 0:
        raise Unsupported(f"dropout_p = {dropout_p} with block_table: weights of keys in pages are not dropped; give 0, or k and v packed")
    refuse_gradients("block_table: keys in pages have no gradients; call it under torch.no_grad(), or give k and v packed", q, k, v)
    family, q, keys, values = family_of(q, k, v)
    pages = "pages, page_size, kv_heads, "
    for name, x, wanted in (("q", q, "total_q, heads, d"), ("k", keys, pages + "d"), ("v", values, pages + "d_v")):
        if len(x.shape) != len(wanted.split(", ")):
            raise InvalidProblem(f"{name} is {list(x.shape)}: with block_table give [{wanted}]")
    if tuple(keys.shape[:3]) != tuple(values.shape[:3]):
        raise InvalidProblem(f"k is {list(keys.shape)} and v {list(values.shape)}: make all but their features equal")
    rows = starts(cu_seqlens_q, "cu_seqlens_q", q.shape[0])
    places = places_of(len(rows), keys, values, block_table, None)
    rooms = [row.stop - row.start for row in rows]
    used = rooms if seqused_q is None else _lengths(seqused_q, "seqused_q", rooms)
    lengths = _keys_of(cu_seqlens_k, seqused_k, [capacity(places)] * len(rows))
    require_pages(places, keys.shape[0], lengths)
    batch = len(rows)
    shapes = [(batch, max(n), *x.shape[-2:]) for x, n in ((q, used), (keys, lengths), (values, lengths))]
    require(request(*map(in_shape, (q, keys, values), shapes), **options), ("q", "k", "v"))
    type_ = family.type_of(q, "q")
    shape, word = (*q.shape[:2], values.shape[3]), "f64" if type_ == "f64" else "f32"
    o, lse = family.filled(q, shape, type_, 0), family.filled(q, (q.shape[1], q.shape[0]), word, -math.inf)
    here = [slice(row.start, row.start + n) for row, n in zip(rows, used)]
    sequences = [(q[None, i], o[None, i], lse[None, :, i]) for i in here]
    one_by_one(sequences, keys, values, places, [0] * batch, lengths, options)
    return family.finished(o), family.finished(lse)


def _keys_of(cu_seqlens_k: Any, seqused_k: Any, rooms: list[int]) -> list[int]:
    """How many keys each sequence has, in pages with this room."""
    if cu_seqlens_k is None and seqused_k is None:
        raise InvalidProblem("cu_seqlens_k = None: give where each sequence of keys would begin if they were packed, or seqused_k")
    if cu_seqlens_k is not None:
        at = list(integers(cu_seqlens_k, "cu_seqlens_k"))
        keys = starts(at, "cu_seqlens_k", at[-1] if at else 0)
        rooms = _lengths([row.stop - row.start for row in keys], "the lengths of cu_seqlens_k", rooms)
    return rooms if seqused_k is None else _lengths(seqused_k, "seqused_k", rooms)


def _lengths(lengths: Any, name: str, rooms: list[int]) -> list[int]:
    found = list(integers(lengths, name))
    if len(found) != len(rooms) or not all(0 <= n <= room for n, room in zip(found, rooms)):
        raise InvalidProblem(f"{name} = {found}: give a length for each of {len(rooms)} sequences, up to {rooms}")
    return found
