"""Exact integer I/O and footprint of every forward algorithm, as functions of the problem and the tiling."""

from dataclasses import dataclass
from typing import NamedTuple


def ceil_div(a, b):
    return -(-a // b)


@dataclass(frozen=True)
class Problem:
    """Attention without a mask. The query heads that share one key/value head form one problem, whose rows are all of
    theirs; batch * kv_heads such problems run one after the other."""

    n_q: int
    n_k: int
    d: int
    d_v: int
    heads: int = 1
    kv_heads: int = 1
    batch: int = 1

    @property
    def group(self):
        return self.heads // self.kv_heads

    @property
    def rows(self):
        return self.group * self.n_q

    @property
    def copies(self):
        return self.batch * self.kv_heads


class Cost(NamedTuple):
    reads: int
    writes: int
    footprint: int

    @property
    def io(self):
        return self.reads + self.writes


def total(p, reads, writes, footprint):
    return Cost(p.copies * reads, p.copies * writes, footprint)


def gemm(m, k, n, b1, b2):
    """(reads, footprint) of an m x k by k x n product with a resident b1 x b2 output tile."""
    x, y = min(b1, m), min(b2, n)
    return ceil_div(n, b2) * m * k + ceil_div(m, b1) * k * n, x * y + min(x, y) + 1


def naive_softmax(n_k, rho):
    """Footprint of the softmax pass: a whole row (rho = 1 read per score) or two sweeps (rho = 2)."""
    return n_k + 2 if rho == 1 else 3


def naive(p, b1, b2, b3, b4, rho):
    scores, F_scores = gemm(p.rows, p.d, p.n_k, b1, b2)
    values, F_values = gemm(p.rows, p.n_k, p.d_v, b3, b4)
    N = p.rows * p.n_k
    footprint = max(F_scores, naive_softmax(p.n_k, rho), F_values)
    return total(p, scores + rho * N + values, 2 * N + p.rows * p.d_v, footprint)


def key_visits(p, Br):
    return ceil_div(p.rows, Br) * p.n_k


def flash(p, Br, Bc=1):
    return column_split(p, Br, Bc, 1)


def column_split(p, Br, Bc, h):
    width = ceil_div(p.d_v, h)
    reads = h * p.rows * p.d + (h * p.d + p.d_v) * key_visits(p, Br)
    footprint = min(Br, p.rows) * (p.d + width + 2 + min(Bc, p.n_k)) + 1
    return total(p, reads, p.rows * (p.d_v + 1), footprint)


def split_keys(p, Br, Bc, G):
    """G > 1: every group of keys reads the queries and leaves O and lse, which one merge reads again."""
    all_keys = flash(p, Br, Bc)
    if G == 1:
        return all_keys
    queries, parts = p.rows * p.d, G * p.rows * (p.d_v + 1)
    more = total(p, (G - 1) * queries + parts, parts, 0)
    return Cost(all_keys.reads + more.reads, all_keys.writes + more.writes, all_keys.footprint)


def flash_tiled(p, Br, Bc):
    rows = min(Br, p.rows)
    footprint = rows * (p.d + p.d_v + 2) + min(Bc, p.n_k) * (rows + max(p.d, p.d_v))
    reads = p.rows * p.d + (p.d + p.d_v) * key_visits(p, Br)
    return total(p, reads, p.rows * (p.d_v + 1), footprint)


def flash_pinned(p, Br, rho):
    width = p.d + p.d_v
    visits = rho + ceil_div(p.rows, Br) * (p.n_k - rho)
    footprint = rho * width + min(Br, p.rows) * (width + 3) + (rho < p.n_k)
    return total(p, p.rows * p.d + visits * width, p.rows * (p.d_v + 1), footprint)


def key_outer(p, Bc):
    T = ceil_div(p.n_k, Bc)
    reads = p.n_k * (p.d + p.d_v) + T * p.rows * p.d + (T - 1) * p.rows * (p.d_v + 1)
    return total(p, reads, T * p.rows * (p.d_v + 1), min(Bc, p.n_k) * (p.d + p.d_v + 1) + 4)


def small_cache_scores(p, a, b):
    """(reads, footprint) of phase 1 with a x b tiles, or with panels of a rows (b = None)."""
    x = min(a, p.rows)
    if b is None:
        return p.rows * p.d + ceil_div(p.rows, a) * p.n_k * p.d, x * (p.d + 3) + 1
    reads, footprint = gemm(p.rows, p.d, p.n_k, a, b)
    return reads, footprint + 2 * x


def small_cache_values(p, a2, c2):
    """(reads, footprint) of phase 2: a GEMM that also keeps the lse of its rows and the sums of their weights."""
    reads, footprint = gemm(p.rows, p.n_k, p.d_v, a2, c2)
    return reads + p.rows, footprint + 2 * min(a2, p.rows)


def small_cache(p, a, b, a2, c2):
    scores, F_scores = small_cache_scores(p, a, b)
    values, F_values = small_cache_values(p, a2, c2)
    writes = p.rows * p.n_k + p.rows + p.rows * p.d_v
    return total(p, scores + values, writes, max(F_scores, F_values))


def saha_ye(p, B):
    def three_tiles(m, k, n):
        x, y, z = min(B, m), min(B, k), min(B, n)
        return x * y + y * z + x * z + x

    scores, _ = gemm(p.rows, p.d, p.n_k, B, B)
    values, _ = gemm(p.rows, p.n_k, p.d_v, B, B)
    footprint = max(three_tiles(p.rows, p.d, p.n_k), three_tiles(p.rows, p.n_k, p.d_v))
    return total(p, scores + values + p.rows, p.rows * (p.n_k + 1 + p.d_v), footprint)


def score_tiles(p, a, b):
    T = ceil_div(p.n_k, b)
    reads = T * p.rows * p.d + ceil_div(p.rows, a) * p.n_k * (p.d + p.d_v) + (T - 1) * p.rows * p.d_v
    x, y = min(a, p.rows), min(b, p.n_k)
    return total(p, reads, T * p.rows * p.d_v + p.rows, x * y + 4 * x + 1)
