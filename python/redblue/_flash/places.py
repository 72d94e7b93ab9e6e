"""Where the keys of each sequence lie in a cache: in a row of their own, in one that an index names, or in pages of a table."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import redblue  # whose attribute `torch` is imported where it is first used

from .._call.arrays import integers, is_tensor, refuse_masked
from .._errors import InvalidProblem, Unsupported


class Places(NamedTuple):
    """Position t of sequence b is cache[pages[b][t // size], t % size]. `flat`: do the pages of a table lie one behind the
    other, so that two neighbours are one piece of memory?"""

    pages: list[list[int]]
    size: int
    flat: bool
    name: str  # of the argument that names the pages

    def runs(self, b: int, first: int, end: int) -> list[tuple[int, int]]:
        """The positions from `first` to `end` of sequence b as pieces of memory, in their order: rows of the cache, begin and
        end, where page p begins at row p * size."""
        found: list[tuple[int, int]] = []
        for t in range(first // self.size, -(-end // self.size) if end > first else 0):
            row = (self.pages[b][t] - t) * self.size
            begin, stop = row + max(first, t * self.size), row + min(end, (t + 1) * self.size)
            if self.flat and found and found[-1][1] == begin:
                begin = found.pop()[0]
            found.append((begin, stop))
        return found

    def view(self, cache: Any, run: tuple[int, int]) -> Any:
        """One of these pieces of a cache, [1, its length, heads, features]."""
        page, slot = divmod(run[0], self.size)
        length = run[1] - run[0]
        if slot + length <= self.size:
            return cache[page : page + 1, slot : slot + length]
        return cache.reshape(1, -1, *cache.shape[2:])[:, run[0] : run[1]]


def places_of(batch: int, keys: Any, values: Any, block_table: Any, cache_batch_idx: Any) -> Places:
    """The places of `batch` sequences. Pages of the table are judged by `require_pages`, for what a sequence does not use may
    be anything."""
    count, size = keys.shape[:2]
    if block_table is not None:
        if cache_batch_idx is not None:
            raise Unsupported("block_table and cache_batch_idx: give one of them; a table names the pages of each sequence already")
        if size == 0:
            raise InvalidProblem(f"k_cache is {list(keys.shape)}: with block_table give pages that have room for a key")
        flat = all(_step(x, 0) == size * _step(x, 1) for x in (keys, values))
        return Places(_table(block_table, batch), size, flat, "block_table")
    if cache_batch_idx is None:
        if count != batch:
            raise InvalidProblem(f"k_cache has {count} rows and q {batch} sequences: make them equal, or give cache_batch_idx")
        return Places([[b] for b in range(count)], size, False, "k_cache")
    rows = integers(cache_batch_idx, "cache_batch_idx")
    if len(rows) != batch or not all(0 <= row < count for row in rows):
        raise InvalidProblem(f"cache_batch_idx = {list(rows)}: give a number from 0 to {count - 1} for each of {batch} sequences")
    return Places([[row] for row in rows], size, False, "cache_batch_idx")


def _step(x: Any, i: int) -> int:
    return int(x.stride(i) if is_tensor(x) else x.strides[i] // x.itemsize)


def _table(block_table: Any, batch: int) -> list[list[int]]:
    refuse_masked(block_table, "block_table")
    shape = getattr(block_table, "shape", (batch, 0))
    rows = block_table.tolist() if hasattr(block_table, "tolist") else block_table
    if len(shape) != 2 or not isinstance(rows, (list, tuple)) or not all(hasattr(row, "__len__") for row in rows):
        raise InvalidProblem("block_table: give the numbers of pages, whole numbers, [batch, pages of a sequence]")
    found = [list(integers(row, "block_table")) for row in rows]
    if len(found) != batch or any(len(row) != len(found[0]) for row in found):
        raise InvalidProblem(f"block_table has rows of {[len(row) for row in found]} pages: give one row of pages for each of {batch} sequences")
    return found


def capacity(places: Places) -> int:
    """How many keys there is room for in each sequence."""
    return len(places.pages[0]) * places.size if places.pages else places.size


def require_pages(places: Places, count: int, lengths: list[int]) -> None:
    """Refuses a table of which sequences of these lengths use a page that is none of the cache's `count`."""
    for b, n in enumerate(lengths):
        for page in places.pages[b][: -(-n // places.size) if n else 0]:
            if not 0 <= page < count:
                raise InvalidProblem(f"block_table names page {page} for sequence {b}: the cache has the pages 0 to {count - 1}")


def require_own_pages(places: Places, lengths: list[int], n_new: int) -> None:
    """Refuses places where a key that is appended, up to these lengths, is a key of another sequence, too."""
    if places.name == "k_cache" or n_new == 0:
        return
    used = [pages[: -(-n // places.size)] for pages, n in zip(places.pages, lengths)]
    users: dict[int, int] = {}
    for pages in used:
        for page in pages:
            users[page] = users.get(page, 0) + 1
    for pages, n in zip(used, lengths):
        for page in pages[(n - n_new) // places.size :]:
            if users[page] > 1:
                what, own = ("page", "a page") if places.name == "block_table" else ("row", "a row")
                raise InvalidProblem(
                    f"{what} {page} stands {users[page]} times in {places.name}, and k and v are written there: give each sequence "
                    f"that grows {own} of its own to grow in"
                )


def write(places: Places, cache: Any, new: Any, lengths: list[int]) -> None:
    """Writes new [batch, n_new, heads, features] behind the keys of each sequence, which has these lengths then."""
    n_new = new.shape[1]
    if places.name == "k_cache" and len(set(lengths)) == 1:
        cache[:, lengths[0] - n_new : lengths[0]] = new
        return
    for b, n in enumerate(lengths):
        for run, at in _pieces(places, b, n - n_new, n):
            page, slot = divmod(run[0], places.size)
            length = run[1] - run[0]
            cache[page, slot : slot + length] = new[b, at : at + length]


def _pieces(places: Places, b: int, first: int, end: int) -> list[tuple[tuple[int, int], int]]:
    """The pieces of `runs`, none of them longer than a page, each with how many positions stand before it."""
    found, at = [], 0
    for run in places._replace(flat=False).runs(b, first, end):
        found.append((run, at))
        at += run[1] - run[0]
    return found


def empty_like(cache: Any, shape: tuple) -> Any:
    """A new array of the type of a cache, its elements in the order of its dimensions, whatever that of the cache's is."""
    return cache.new_empty(shape) if is_tensor(cache) else np.empty(shape, cache.dtype)


def copied(places: Places, b: int, first: int, end: int, cache: Any, into: Any) -> Any:
    """These positions of sequence b side by side, [1, their number, heads, features], in the memory of `into`."""
    size = places.size
    begin, stop = -(-first // size), end // size  # the pages that are taken as a whole
    pieces = _pieces(places, b, first, end)
    if stop - begin > 1:
        at = begin * size - first
        whole = into[0, at : at + (stop - begin) * size].reshape(stop - begin, size, *into.shape[2:])
        _take(cache, places.pages[b][begin:stop], whole)
        pieces = [piece for piece in pieces if not at <= piece[1] < at + (stop - begin) * size]
    for run, at in pieces:
        into[:, at : at + run[1] - run[0]] = places.view(cache, run)
    return into[:, : end - first]


def _take(cache: Any, pages: list[int], into: Any) -> None:
    if is_tensor(cache):
        torch = redblue.torch.torch
        torch.index_select(cache, 0, torch.tensor(pages), out=into)
    elif cache.flags.c_contiguous:
        np.take(cache, pages, axis=0, out=into, mode="clip")  # other modes copy `into`, too
    else:  # of which np.take would copy all
        into[...] = cache[pages]
