"""The exact schedules as phases of reference.words, after the theory notes: the words that each moves and holds, piece
by piece, and the tiles that it may have. Names are those of the program, or their labels in the papers.
"""

from itertools import pairwise, product
from math import isqrt

from reference.words import (
    Phase,
    by_keys,
    by_rows,
    ceil_div,
    key_blocks,
    no_tile,
    product_phase,
    row_blocks,
    rows_product,
    score_phase,
    scores,
    sizes,
    stored_product,
    together,
)


def forward(d, v):
    def flash_pinned(x, t):
        rho = min(t[1], x.k if x.rows[-1][0] == 0 else max(seen for _, seen in x.blocks(t[0])))
        visits, blocks = x.staying(t[0], rho)
        footprint = rho * (d + v) + max(n * (d + v + 3) + streams for n, streams in blocks)
        return x.n * d + visits * (d + v), x.n * (v + 1), footprint

    def column_split(x, t):
        a, h = t
        return h * x.n * d + (h * d + v) * x.A(a), x.n * (v + 1), min(a, x.n) * (d + ceil_div(v, h) + 3) + 1

    def score_tiles(x, t):
        reads = d * x.B(t[1]) + (d + v) * x.A(t[0]) + v * (x.B(t[1]) - x.n)
        return reads, v * x.B(t[1]) + x.n, min(t[0], x.n) * min(t[1], x.k) + 4 * min(t[0], x.n) + 1

    flash = row_blocks(lambda x, a: (x.n * d + (d + v) * x.A(a), x.n * (v + 1), min(a, x.n) * (d + v + 3) + 1))
    tiles = lambda x, M: product(sizes(x.n), sizes(x.k))
    by_values = lambda cost, b1, b2: product_phase(lambda x: x.n, lambda x: v, cost, b1, b2)
    return {
        "flash": [flash],
        "split_keys": [flash],  # without many keys for few queries there is one group
        "flash_tiled": [flash_tiled(d, v, 16)],
        "flash_pinned": [Phase(lambda x, M: x.pins(M, d + v), flash_pinned, lambda t: (t["Br"], t["rho"]))],
        "ring": [row_blocks(lambda x, a: (x.n * d + x.k * (d + v), x.n * (v + 1),
                                          max(1, x.kept(a)) * (d + v) + min(a, x.n) * (d + v + 3)))],
        "strips": [row_blocks(lambda x, a: (x.n * d + x.A(a) * (d + v), x.n * (v + 1),
                                            max(pairs + n for n, pairs in x.row_strips(a)) + 1), "a")],
        "column_split": [Phase(lambda x, M: product(sizes(x.n), range(2, v + 1)), column_split,
                               lambda t: (t["Br"], ceil_div(v, t["w"])))],
        "key_outer": [key_blocks(lambda x, b: (x.k * (d + v) + d * x.B(b) + (v + 1) * (x.B(b) - x.n), (v + 1) * x.B(b),
                                               min(b, x.k) * (d + v + 1) + 4))],
        "small_cache": [
            score_phase(lambda x, t: (scores(x, d, t, 2)[0], x.nnz + x.n, scores(x, d, t, 2)[1])),
            by_values(lambda x, t: (x.n + rows_product(x, v, t)[0], x.n * v, rows_product(x, v, t, 2)[1]), "a2", "c2"),
        ],
        "score_tiles": [Phase(tiles, score_tiles, lambda t: (t["a"], t["b"]))],
        "naive": [
            Phase(tiles, lambda x, t: (scores(x, d, t, 0)[0], x.nnz, scores(x, d, t, 0)[1]),
                  lambda t: (t["b1"], t["b2"])),
            Phase(lambda x, M: (1, 2), lambda x, rho: (rho * x.nnz, x.nnz, x.widest + 2 if rho == 1 else 3),
                  lambda t: t["rho"]),
            by_values(lambda x, t: (rows_product(x, v, t)[0], x.n * v, rows_product(x, v, t)[1]), "b3", "b4"),
        ],
    }


def flash_tiled(d, v, least):
    """With blocks of at least `least` keys."""
    def cost(x, t):
        n = min(t[0], x.n)
        footprint = n * (d + v + 2) + min(t[1], x.k) * (n + max(d, v))
        return x.n * d + (d + v) * x.A(t[0]), x.n * (v + 1), footprint

    return Phase(lambda x, M: product(sizes(x.n), [min(least, x.k)]), cost, lambda t: (t["Br"], t["Bc"]))


def saha_ye(x, d, v, B):
    """As printed, for a problem without a mask."""
    three = lambda m, k, n: min(B, m) * min(B, k) + min(B, k) * min(B, n) + min(B, m) * min(B, n) + min(B, m)
    reads = scores(x, d, (B, B), 0)[0] + rows_product(x, v, (B, B))[0] + x.n
    return reads, x.n * (x.k + 1 + v), max(three(x.n, d, x.k), three(x.n, x.k, v))


def row_sums(v):
    """D := rowsum(dO o O), both operands streamed pairwise."""
    return no_tile(lambda x, _: (2 * x.n * v, x.n, 3))


def weights(w, prefix, again=0):
    """P from Q and K, or dS from dO and V, where P is read again: one number resident for each row."""
    return score_phase(
        lambda x, t: (x.n + again * x.nnz + scores(x, w, t, 1)[0], x.nnz, scores(x, w, t, 1)[1]), prefix)


def key_groups(x, Bc, G):
    """Key blocks in each of G groups, cut where the keys before come nearest to g/G of all. A group may be empty, the
    first is not."""
    cuts = [*range(0, x.k, Bc), x.k]
    starts = [0]
    for g in range(1, G):
        starts.append(next((a for a, b in pairwise(cuts[1:]) if G * (a + b) >= 2 * g * x.k), x.k))
    return [ceil_div(end - start, Bc) for start, end in pairwise([*starts, x.k])]


def backward(d, v):
    pass_keys = lambda x, b: (x.k * (d + v) + (d + v + 2) * x.B(b), x.k * (d + v),
                              min(b, x.k) * (2 * d + 2 * v + 2) + d + 3)
    pass_rows = lambda x, a: (x.n * (d + 2 * v + 1) + (d + v) * x.A(a), x.n * d, min(a, x.n) * (2 * d + v + 4) + d + 1)

    def more(phase, reads, writes):
        def cost(x, t):
            r, w, f = phase(x, t)
            return r + reads(x, t), w + writes(x, t), f
        return cost

    def ring(x, t):
        rows, columns = t
        of_block = lambda n, kappa: n * kappa + max(n * (d + kappa + max(columns, 1)), n * d)
        most = max(kappa for _, kappa in x.blocks(rows))
        footprint = 2 * most * (d + v) + max(of_block(*b) for b in x.blocks(rows))
        return (x.n + x.k) * (d + v), x.n * d + x.k * (d + v), footprint

    def ring_queries(x, b):
        footprint = max(1, x.kept_rows(b)) * (2 * d + v + 2) + min(b, x.k) * (2 * d + 2 * v + 2)
        return x.n * (d + 2 * v + 1) + x.k * (d + v), x.n * d + x.k * (d + v), footprint

    def ring_two_pass(x, t):
        a, b = t
        by_rows = list(x.blocks(a))
        by_keys = [(min(b, x.k - j * b), end - begin) for j, (begin, end) in enumerate(x.seeing(b))]
        held = lambda blocks, w: max(met for _, met in blocks) * w + max(n * (2 * met + 1) for n, met in blocks)
        return (2 * (x.n + x.k) * (d + v) + 2 * x.n, x.n * (d + 1) + x.k * (d + v),
                max(held(by_rows, d + v), held(by_keys, d + v + 2)))

    def grouped(x, t):
        """fused_key_outer on every group: the first revisits dQ, each other one a copy, which is read once more."""
        Bc, G = t
        groups = key_groups(x, Bc, G)
        summed = x.n if any(groups[1:]) else 0
        reads, writes, footprint = pass_keys(x, Bc)
        footprint = max(footprint, min(Bc, summed) * d + 1 if summed else 0)
        return reads + ((sum(groups) - 1) * x.n + summed) * d, writes + (sum(groups) * x.n + summed) * d, footprint

    def groups_of(x, M):
        """The number of groups follows from the shape; a block stays within what is one's share."""
        G = min(8, max(1, x.k // 256))
        share = ceil_div(x.k, G)
        fits = [Bc for Bc in sizes(share) if pass_keys(x, Bc)[2] <= M]
        if fits:
            Bc = min(fits, key=lambda Bc: (ceil_div(share, Bc), Bc))
            yield Bc, min(G, ceil_div(x.k, Bc))

    zero = lambda x, t: 0
    dots, dQ, dK = row_sums(v), by_rows(d, "dQ."), by_keys(d, "dK.")
    return {
        "ringB1": [Phase(lambda x, M: product(sizes(x.n), range(1, v + 1)), ring, lambda t: (t["Br"], t["bv"]))],
        "ringB2": [key_blocks(ring_queries)],
        "ringB3": [Phase(lambda x, M: product(sizes(x.n), sizes(x.k)), ring_two_pass, lambda t: (t["Br"], t["Bc"]))],
        "strips": [
            row_blocks(lambda x, a: (x.n * (d + v) + x.A(a) * (2 * d + v), 2 * x.nnz + x.n * d,
                                     max(2 * pairs + n for n, pairs in x.row_strips(a)) + 1), "a"),
            Phase(lambda x, M: sizes(x.k),
                  lambda x, b: (2 * x.nnz + x.B(b) * (d + v), x.k * (d + v),
                                max(pairs + n for n, pairs in x.key_strips(b)) + 1), lambda t: t["b"]),
        ],
        "e1": [dots, key_blocks(more(pass_keys, lambda x, b: d * (x.B(b) - x.n), lambda x, b: d * x.B(b)))],
        "grouped_key_outer": [dots, Phase(groups_of, grouped, lambda t: (t["Bc"], t["G"]))],
        "e2": [row_blocks(more(pass_rows, lambda x, a: (x.A(a) - x.k) * (d + v), lambda x, a: x.A(a) * (d + v)))],
        "e3": [row_blocks(more(pass_rows, zero, lambda x, a: x.n)), key_blocks(pass_keys)],
        "e4": [dots, key_blocks(more(pass_keys, zero, lambda x, b: x.nnz)), by_rows(d, "")],
        "e5": [dots, weights(d, "P."), by_keys(v, "dV."), weights(v, "dS.", 1), dQ, dK],
        "e6": [dots, weights(d, "P."),
               key_blocks(lambda x, b: (x.k * v + (v + 1) * x.B(b) + x.nnz, x.nnz + x.k * v,
                                        min(b, x.k) * (2 * v + 2) + 2)), dQ, dK],
    }


def projections(d, v):
    """S := A1 X and h := A3 Y."""
    return [stored_product("n", d, d, "S."), stored_product("k", d, v, "h.")]


def forward_x(d, v, shared):
    """Projections, then a forward schedule; or, from one source of keys and values, U = softmax(S A^T) A and
    O := U Y."""
    S = projections(d, v)[0]
    names = ("flash", "flash_pinned", "column_split", "key_outer", "small_cache", "score_tiles", "naive")
    found = {f"xy_{name}": [*projections(d, v), *forward(d, v)[name]] for name in names}
    one = row_blocks(lambda x, a: (x.n * d + d * x.A(a), x.n * (d + 1), min(a, x.n) * (2 * d + 3) + d))
    return found | ({"shared_source": [S, one, stored_product("n", d, v, "O.")]} if shared else {})


def gradient_x(d, v, shared):
    S, h = projections(d, v)
    dots, g, square = row_sums(v), stored_product(d, "n", d, "g."), d * d
    pass_rows = lambda x, a: x.n * (d + 2 * v + 1) + (d + v) * x.A(a)
    held = lambda x, a: min(a, x.n) * (2 * d + v + 4) + d + 1

    def rewritten(x, a):
        T = x.shared_blocks(a, "n")
        return pass_rows(x, a) + x.n * d + (T - 1) * square, T * square, held(x, a)

    def on_the_fly(x, a):
        reads = 2 * x.n * d + x.shared_blocks(a, "n") * square + x.n * (2 * v + 1) + d * v + 2 * d * x.A(a)
        return reads, square, square + d * v + min(a, x.n) * (2 * d + v + 4) + d + v

    def resident_gradient(more):
        """X and the visits of the rows, and what is read of the keys."""
        cost = lambda x, b: (square + x.B(b) * (d + v + 2) + more(x, b), square,
                             2 * square + min(b, x.k) * (d + v + 2) + 2 * d + 3)
        return key_blocks(cost, whole=True)

    of_shared = lambda x, a: (x.n * (2 * d + 2) + d * x.A(a), x.n * d, min(a, x.n) * (3 * d + 4) + d)
    return {
        "6R": [S, h, dots, weights(d, "f."), weights(v, "p.", 1), by_rows(d, "U."), g],
        "9R-a": [S, h, row_blocks(lambda x, a: (pass_rows(x, a) + x.n * d, square, held(x, a) + square), whole=True)],
        "9R-b": [S, h, row_blocks(rewritten, whole=True)],
        "9R-c": [S, h, row_blocks(lambda x, a: (pass_rows(x, a), x.n * d, held(x, a)), whole=True), g],
        "9R-d": [row_blocks(on_the_fly, whole=True)],
        "9R-e": [h, dots, resident_gradient(lambda x, b: x.k * (d + v))],
        "9R-f": [dots, resident_gradient(lambda x, b: 2 * x.k * d + x.shared_blocks(b, "k") * d * v)],
    } | ({"shared_source": [S, stored_product("n", v, d, "dU."), dots, row_blocks(of_shared), g]} if shared else {})


def algorithm_1(n, m, d, v, in_place=False):
    """No limit on fast memory. As printed, or with p in the place of f and q freed."""
    N, kept = n * m, (n + m) * d
    lines = [
        kept + d * d + N,
        kept + (1 if in_place else 2) * N + n,
        kept + N + m * d + d * v + m * v,
        kept + 2 * N + (n + m) * v,
        kept + (2 if in_place else 3) * N + n,
        kept + N + d * d,
    ]
    return n * d + 2 * m * d + n * v + d * d + d * v, d * d, max(lines)


def algorithm_6(n, m, d, v, B):
    """As printed: three tiles resident in each product."""
    N, x, y = n * m, min(B, n), min(B, m)

    def tiles(a, b, c, more=0):
        i, j, k = min(B, a), min(B, b), min(B, c)
        return ceil_div(c, k) * a * b + ceil_div(a, i) * b * c, a * c, i * j + j * k + i * k + more

    phases = [tiles(n, d, d), tiles(n, d, m, x), (N, N, 2 * x * y + x), tiles(m, d, v), tiles(n, v, m),
              (4 * N, N, 3 * x * y + x), tiles(d, n, m), tiles(d, m, d)]
    return together(phases)


def algorithm_9(n, d, Br, Bc):
    """As printed, for n_k = n and d_v = d: A1 and A3, X and Y are cut alike."""
    x, y, z = min(Br, n), min(Bc, n), min(Bc, d)
    footprint = max(
        2 * x * d + d * z + x * z,
        d * d + 4 * x * d + 2 * x,
        d * d + 3 * x * d + 2 * x + 2 * y * d + max(3 * x * y, x * y + d * y),
    )
    return 6 * n * d + n + 2 * ceil_div(n, Br) * (n * d + d * d), 2 * n * d + d * d, footprint


def printed(n, m, d, v, M):
    """Costs of the algorithms as printed, where a tile follows from M."""
    found = {"algorithm_1": algorithm_1(n, m, d, v)}
    if M >= 4:
        found["algorithm_6"] = algorithm_6(n, m, d, v, isqrt(M // 4))
    if (n, d) == (m, v):
        found["algorithm_9"] = algorithm_9(n, d, min(ceil_div(M, 4 * d), d), ceil_div(M, 4 * d))
    return found
