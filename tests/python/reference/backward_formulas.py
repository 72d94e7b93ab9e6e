"""Exact integer I/O and footprint of every backward algorithm, as functions of the problem and the tiling.

The names are those of the theory: e1..e6 and grouped_key_outer give dQ, dK, dV; alg1, alg6, alg9, r6, r9a..r9f and
shared_backward give g = dL/dX of O = softmax(A1 X A2^T) A3 Y. A tile is a pair of sizes, (rows, None) a panel of rows.
"""

from itertools import pairwise

from reference import formulas
from reference.formulas import Cost, ceil_div, gemm, key_visits, total


def stored_product(m, k, n, tile):
    """Cost of C := A B in slow memory."""
    reads, footprint = gemm(m, k, n, *tile)
    return Cost(reads, m * n, footprint)


def scores(m, w, n, tile):
    """Cost of m x n scores of width w, one statistic resident per row: with tiles, or with panels of rows."""
    a, b = tile
    x = min(a, m)
    if b is None:
        return Cost(m * w + ceil_div(m, a) * n * w + m, m * n, x * (w + 2) + 1)
    reads, footprint = gemm(m, w, n, a, b)
    return Cost(reads + m, m * n, footprint + x)


def row_products(p):
    """Cost of D := rowsum(dO o O), both operands streamed pairwise."""
    return Cost(2 * p.rows * p.d_v, p.rows, 3)


def one_after_the_other(p, *phases):
    """The cost of all copies: words add up, the largest footprint counts."""
    reads, writes, footprints = zip(*phases)
    return total(p, sum(reads), sum(writes), max(footprints))


def e1(p, Bc):
    T = ceil_div(p.n_k, Bc)
    width = p.d + p.d_v
    reads = p.n_k * width + T * p.rows * (width + 2) + (T - 1) * p.rows * p.d
    writes = T * p.rows * p.d + p.n_k * width
    fused = Cost(reads, writes, min(Bc, p.n_k) * (2 * width + 2) + p.d + 3)
    return one_after_the_other(p, row_products(p), fused)


def e2(p, Br):
    T = ceil_div(p.rows, Br)
    width = p.d + p.d_v
    reads = p.rows * (p.d + 2 * p.d_v + 1) + (2 * T - 1) * p.n_k * width
    writes = T * p.n_k * width + p.rows * p.d
    return total(p, reads, writes, min(Br, p.rows) * (2 * p.d + p.d_v + 4) + p.d + 1)


def query_pass(p, Br):
    """Pass 1 of e3, per copy: dQ and D."""

    reads = p.rows * (p.d + 2 * p.d_v + 1) + key_visits(p, Br) * (p.d + p.d_v)
    return Cost(reads, p.rows * (p.d + 1), min(Br, p.rows) * (2 * p.d + p.d_v + 4) + p.d + 1)


def key_pass(p, Bc):
    """Pass 2 of e3, per copy: dK and dV."""
    width = p.d + p.d_v
    visits, most = ceil_div(p.n_k, Bc) * p.rows, min(Bc, p.n_k) * (2 * width + 2) + p.d + 3
    return Cost(p.n_k * width + visits * (width + 2), p.n_k * width, most)


def e3(p, Br, Bc):
    return one_after_the_other(p, query_pass(p, Br), key_pass(p, Bc))


def key_groups(p, Bc, G):
    """Key blocks in each of G groups, cut where the keys before come nearest to g/G of all. A group may be empty, the
    first is not."""
    cuts = [*range(0, p.n_k, Bc), p.n_k]
    starts = [0]
    for g in range(1, G):
        reached = (a for a, b in pairwise(cuts[1:]) if G * (a + b) >= 2 * g * p.n_k)
        starts.append(next(reached, p.n_k))
    return [ceil_div(end - start, Bc) for start, end in pairwise([*starts, p.n_k])]


def grouped_key_outer(p, Bc, G):
    """e1 on every group: the first revisits dQ, each other one a copy, which is read once more and added to dQ."""
    groups = key_groups(p, Bc, G)
    copies = sum(blocks > 0 for blocks in groups[1:])
    summed = p.rows if copies else 0
    reads = (sum(groups) - 1) * p.rows + summed
    writes = sum(groups) * p.rows + summed
    sums = Cost(reads * p.d, writes * p.d, min(Bc, summed) * p.d + 1 if summed > 0 else 0)
    return one_after_the_other(p, row_products(p), key_pass(p, Bc), sums)


def e4(p, Bc, t):
    spilled = Cost(0, p.rows * p.n_k, 0)
    return one_after_the_other(
        p, row_products(p), key_pass(p, Bc), spilled, stored_product(p.rows, p.n_k, p.d, t))


def e5(p, t1, t2, t3, t4, t5):
    return one_after_the_other(
        p,
        row_products(p),
        scores(p.rows, p.d, p.n_k, t1),
        stored_product(p.n_k, p.rows, p.d_v, t3),
        scores(p.rows, p.d_v, p.n_k, t2),
        Cost(p.rows * p.n_k, 0, 0),
        stored_product(p.rows, p.n_k, p.d, t4),
        stored_product(p.n_k, p.rows, p.d, t5),
    )


def value_pass(p, Bc):
    """The key-outer pass of e6, per copy: dV, and dS over P."""
    N = p.rows * p.n_k
    reads = p.n_k * p.d_v + ceil_div(p.n_k, Bc) * p.rows * (p.d_v + 1) + N
    return Cost(reads, N + p.n_k * p.d_v, min(Bc, p.n_k) * (2 * p.d_v + 2) + 2)


def e6(p, t1, Bc, t4, t5):
    return one_after_the_other(
        p,
        row_products(p),
        scores(p.rows, p.d, p.n_k, t1),
        value_pass(p, Bc),
        stored_product(p.rows, p.n_k, p.d, t4),
        stored_product(p.n_k, p.rows, p.d, t5),
    )


def alg1(p, in_place):
    """No limit on fast memory. As printed, or with p in the place of f and q freed."""
    n, m, d, N = p.rows, p.n_k, p.d, p.rows * p.n_k
    reads = n * d + 2 * m * d + n * p.d_v + d * d + d * p.d_v
    kept = (n + m) * d
    lines = [
        kept + d * d + N,
        kept + (1 if in_place else 2) * N + n,
        kept + N + m * d + d * p.d_v + m * p.d_v,
        kept + 2 * N + (n + m) * p.d_v,
        kept + (2 if in_place else 3) * N + n,
        kept + N + d * d,
    ]
    return total(p, reads, d * d, max(lines))


def three_tiles(m, k, n, B):
    """Cost of C := A B with square tiles of all three matrices resident."""
    x, y, z = min(B, m), min(B, k), min(B, n)
    reads, _ = gemm(m, k, n, B, B)
    return Cost(reads, m * n, x * y + y * z + x * z)


def alg6(p, B):
    n, m, d, N = p.rows, p.n_k, p.d, p.rows * p.n_k
    x, y = min(B, n), min(B, m)
    exponentials = three_tiles(n, d, m, B)
    return one_after_the_other(
        p,
        three_tiles(n, d, d, B),
        exponentials._replace(footprint=exponentials.footprint + x),
        Cost(N, N, 2 * x * y + x),
        three_tiles(m, d, p.d_v, B),
        three_tiles(n, p.d_v, m, B),
        Cost(4 * N, N, 3 * x * y + x),
        three_tiles(d, n, m, B),
        three_tiles(d, m, d, B),
    )


def alg9(p, Br, Bc):
    """As printed, for n_k = n and d_v = d: A1 and A3, X and Y are cut alike."""
    n, d = p.rows, p.d
    assert n == p.n_k and d == p.d_v
    x, y, z = min(Br, n), min(Bc, n), min(Bc, d)
    footprint = max(
        2 * x * d + d * z + x * z,
        d * d + 4 * x * d + 2 * x,
        d * d + 3 * x * d + 2 * x + 2 * y * d + max(3 * x * y, x * y + d * y),
    )
    return total(p, 6 * n * d + n + 2 * ceil_div(n, Br) * (n * d + d * d), 2 * n * d + d * d, footprint)


def projections(p, ts, th):
    """S := A1 X and h := A3 Y, per copy."""
    return stored_product(p.rows, p.d, p.d, ts), stored_product(p.n_k, p.d, p.d_v, th)


def r6(p, ts, th, t1, t2, tu, tg):
    return one_after_the_other(
        p,
        *projections(p, ts, th),
        row_products(p),
        scores(p.rows, p.d, p.n_k, t1),
        scores(p.rows, p.d_v, p.n_k, t2),
        Cost(p.rows * p.n_k, 0, 0),
        stored_product(p.rows, p.n_k, p.d, tu),
        stored_product(p.d, p.rows, p.d, tg),
    )


def gradient_pass(p, Br):
    """The query-outer pass of 9R-a, b, c without its epilogue, per copy."""
    reads = p.rows * (p.d + 2 * p.d_v + 1) + ceil_div(p.rows, Br) * p.n_k * (p.d + p.d_v)
    return Cost(reads, 0, min(Br, p.rows) * (2 * p.d + p.d_v + 4) + p.d + 1)


def r9a(p, Br, ts, th):
    reads, _, footprint = gradient_pass(p, Br)
    square = p.d**2
    resident = Cost(reads + p.rows * p.d, square, footprint + square)
    return one_after_the_other(p, *projections(p, ts, th), resident)


def r9b(p, Br, ts, th):
    reads, _, footprint = gradient_pass(p, Br)
    T, square = ceil_div(p.rows, Br), p.d**2
    rewritten = Cost(reads + p.rows * p.d + (T - 1) * square, T * square, footprint)
    return one_after_the_other(p, *projections(p, ts, th), rewritten)


def r9c(p, Br, ts, th, tg):
    written = gradient_pass(p, Br)._replace(writes=p.rows * p.d)
    return one_after_the_other(p, *projections(p, ts, th), written, stored_product(p.d, p.rows, p.d, tg))


def r9d(p, Br):
    n, d, d_v = p.rows, p.d, p.d_v
    T = ceil_div(n, Br)
    reads = 2 * n * d + T * d * d + n * (2 * d_v + 1) + d * d_v + 2 * T * p.n_k * d
    return total(p, reads, d * d, d * d + d * d_v + min(Br, n) * (2 * d + d_v + 4) + d + d_v)


def resident_gradient(p, Bc):
    """Words that 9R-e and 9R-f share: X and the visits of the rows, per copy."""
    reads = p.d**2 + ceil_div(p.n_k, Bc) * p.rows * (p.d + p.d_v + 2)
    footprint = 2 * p.d**2 + min(Bc, p.n_k) * (p.d + p.d_v + 2) + 2 * p.d + 3
    return Cost(reads, p.d**2, footprint)


def r9e(p, Bc, th):
    keys = Cost(p.n_k * (p.d + p.d_v), 0, 0)
    product = stored_product(p.n_k, p.d, p.d_v, th)
    return one_after_the_other(p, product, row_products(p), keys, resident_gradient(p, Bc))


def r9f(p, Bc):
    keys = Cost(2 * p.n_k * p.d + ceil_div(p.n_k, Bc) * p.d * p.d_v, 0, 0)
    return one_after_the_other(p, row_products(p), keys, resident_gradient(p, Bc))


def shared_forward_pass(p, Br):
    """U = softmax(S A^T) A and the lse: keys and values are the same rows; per copy."""
    reads = p.rows * p.d + ceil_div(p.rows, Br) * p.n_k * p.d
    return Cost(reads, p.rows * (p.d + 1), min(Br, p.rows) * (2 * p.d + 3) + p.d)


def shared_forward(p, Br, ts, to):
    """S := A1 X, the pass, O := U Y."""
    return one_after_the_other(
        p,
        stored_product(p.rows, p.d, p.d, ts),
        shared_forward_pass(p, Br),
        stored_product(p.rows, p.d, p.d_v, to),
    )


def shared_backward_pass(p, Br):
    """U = p A from S, dO' = dO Y^T, the lse and D, per copy."""
    reads = p.rows * (2 * p.d + 2) + ceil_div(p.rows, Br) * p.n_k * p.d
    return Cost(reads, p.rows * p.d, min(Br, p.rows) * (3 * p.d + 4) + p.d)


def shared_backward(p, Br, ts, to, tg):
    """S := A1 X, dO' := dO Y^T, D, the pass, g := A1^T U."""
    return one_after_the_other(
        p,
        stored_product(p.rows, p.d, p.d, ts),
        stored_product(p.rows, p.d_v, p.d, to),
        row_products(p),
        shared_backward_pass(p, Br),
        stored_product(p.d, p.rows, p.d, tg),
    )


def projected(p, ts, th, schedule, tiling):
    """S := A1 X, h := A3 Y, then a forward algorithm on (S, A2, h)."""
    reads, writes, footprint = getattr(formulas, schedule)(p, **tiling)
    phases = projections(p, ts, th)
    return Cost(
        reads + p.copies * sum(phase.reads for phase in phases),
        writes + p.copies * sum(phase.writes for phase in phases),
        max(footprint, *(phase.footprint for phase in phases)),
    )
