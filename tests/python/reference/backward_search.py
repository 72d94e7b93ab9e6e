"""Best backward tilings by exhaustive search, and the lower bounds, for a problem and M words of fast memory."""

from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from math import ceil, isqrt

from reference import backward_formulas as formulas
from reference import search
from reference.formulas import ceil_div, gemm
from reference.search import Plan, ceil_sqrt, cheapest_phase, grid, pairs, sizes, value


def cheapest(p, M, schedule, tilings):
    return search.cheapest(p, M, schedule, tilings, formulas)


def product(M, m, k, n):
    return cheapest_phase(M, grid(sizes(m), sizes(n)), lambda x, y: gemm(m, k, n, x, y))


def scores(p, M, w):
    def phase(a, b):
        cost = formulas.scores(p.rows, w, p.n_k, (a, b))
        return cost.reads, cost.footprint

    return cheapest_phase(M, grid(sizes(p.rows), [None, *sizes(p.n_k)]), phase)


def with_phases(p, M, schedule, tiles, **free):
    """Cheapest plan with the given tiles (None: a phase does not fit) and one free block size."""
    if None in tiles.values():
        return None
    if not free:
        return cheapest(p, M, schedule, [tiles])
    [(name, choices)] = free.items()
    return cheapest(p, M, schedule, ({name: b, **tiles} for b in choices))


def e1(p, M):
    return cheapest(p, M, "e1", (dict(Bc=Bc) for Bc in sizes(p.n_k)))


def grouped_key_outer(p, M):
    """The number of groups follows from the shape, a block stays within what is one's share."""
    G = min(8, max(1, p.n_k // 256))
    share = ceil_div(p.n_k, G)
    fits = [Bc for Bc in sizes(share) if formulas.key_pass(p, Bc).footprint <= M]
    if not fits:
        return None
    Bc = min(fits, key=lambda Bc: (ceil_div(share, Bc), Bc))
    return cheapest(p, M, "grouped_key_outer", [dict(Bc=Bc, G=min(G, ceil_div(p.n_k, Bc)))])


def e2(p, M):
    return cheapest(p, M, "e2", (dict(Br=Br) for Br in sizes(p.rows)))


def cheapest_block(M, choices, cost):
    """Block size of least I/O, then least footprint, of one pass."""
    found = [(cost(b).io, cost(b).footprint, b) for b in choices]
    return min((entry for entry in found if entry[1] <= M), default=[None])[-1]


def query_block(p, M):
    return cheapest_block(M, sizes(p.rows), lambda Br: formulas.query_pass(p, Br))


def key_block(p, M):
    return cheapest_block(M, sizes(p.n_k), lambda Bc: formulas.key_pass(p, Bc))


def e3(p, M):
    return with_phases(p, M, "e3", dict(Br=query_block(p, M), Bc=key_block(p, M)))


def e4(p, M):
    return with_phases(p, M, "e4", dict(Bc=key_block(p, M), t=product(M, p.rows, p.n_k, p.d)))


def e5(p, M):
    return with_phases(p, M, "e5", dict(
        t1=scores(p, M, p.d),
        t2=scores(p, M, p.d_v),
        t3=product(M, p.n_k, p.rows, p.d_v),
        t4=product(M, p.rows, p.n_k, p.d),
        t5=product(M, p.n_k, p.rows, p.d),
    ))


def e6(p, M):
    tiles = dict(
        t1=scores(p, M, p.d),
        t4=product(M, p.rows, p.n_k, p.d),
        t5=product(M, p.n_k, p.rows, p.d),
    )
    return with_phases(p, M, "e6", tiles, Bc=sizes(p.n_k))


def alg6(p, M):
    """As printed: the tile follows from M."""
    return cheapest(p, M, "alg6", [dict(B=isqrt(M // 4))]) if M >= 4 else None


def alg9(p, M):
    """As printed, whether or not the footprint is within M."""
    tiling = dict(Br=min(ceil_div(M, 4 * p.d), p.d), Bc=ceil_div(M, 4 * p.d))
    return Plan("alg9", tiling, formulas.alg9(p, **tiling))


def projections(p, M):
    return dict(ts=product(M, p.rows, p.d, p.d), th=product(M, p.n_k, p.d, p.d_v))


def r6(p, M):
    return with_phases(p, M, "r6", dict(
        **projections(p, M),
        t1=scores(p, M, p.d),
        t2=scores(p, M, p.d_v),
        tu=product(M, p.rows, p.n_k, p.d),
        tg=product(M, p.d, p.rows, p.d),
    ))


def r9a(p, M):
    return with_phases(p, M, "r9a", projections(p, M), Br=sizes(p.rows))


def r9b(p, M):
    return with_phases(p, M, "r9b", projections(p, M), Br=sizes(p.rows))


def r9c(p, M):
    tiles = dict(**projections(p, M), tg=product(M, p.d, p.rows, p.d))
    return with_phases(p, M, "r9c", tiles, Br=sizes(p.rows))


def r9d(p, M):
    return cheapest(p, M, "r9d", (dict(Br=Br) for Br in sizes(p.rows)))


def r9e(p, M):
    return with_phases(p, M, "r9e", dict(th=product(M, p.n_k, p.d, p.d_v)), Bc=sizes(p.n_k))


def r9f(p, M):
    return cheapest(p, M, "r9f", (dict(Bc=Bc) for Bc in sizes(p.n_k)))


def shared_forward(p, M):
    tiles = dict(ts=product(M, p.rows, p.d, p.d), to=product(M, p.rows, p.d, p.d_v))
    return with_phases(p, M, "shared_forward", tiles, Br=sizes(p.rows))


def shared_backward(p, M):
    tiles = dict(
        ts=product(M, p.rows, p.d, p.d),
        to=product(M, p.rows, p.d_v, p.d),
        tg=product(M, p.d, p.rows, p.d),
    )
    return with_phases(p, M, "shared_backward", tiles, Br=sizes(p.rows))


BACKWARD = (e1, e2, e3, e4, e5, e6, grouped_key_outer)
GRADIENT_X = (r6, r9a, r9b, r9c, r9d, r9e, r9f)


def plans(p, M, searches=BACKWARD):
    """Cheapest plan of every schedule that fits, by name."""
    found = [find(p, M) for find in searches]
    return {plan.schedule: plan for plan in found if plan}


def rows_and_keys(p):
    """(rows, rows that see two keys or more, keys that such a row sees)."""
    return (p.rows, p.rows, p.n_k) if p.n_k >= 2 else (p.rows, 0, 0)


def trivial(p):
    """Inputs that matter and outputs. A row with a single key has P = 1 and dS = 0: it needs its dO only."""
    seeing, forming, keys = rows_and_keys(p)
    inputs = seeing * p.d_v + forming * p.d + keys * (p.d + p.d_v)
    return p.copies * (inputs + p.rows * p.d + p.n_k * (p.d + p.d_v))


def trivial_gradient_x(p, shared=False):
    """As `trivial`, but a row with a single key adds nothing to g; shared: A2 = A3 are one array."""
    _, forming, keys = rows_and_keys(p)
    projections = p.d**2 + p.d * p.d_v if forming else 0
    return p.copies * (forming * (p.d + p.d_v) + (1 if shared else 2) * keys * p.d + projections + p.d**2)


def trivial_layer(p, shared=False):
    """Inputs and output of O = softmax(A1 X A2^T) A3 Y; the only line proved for it."""
    if p.n_k == 1:
        return p.copies * (p.d + p.d * p.d_v + p.rows * p.d_v)
    inputs = p.rows * p.d + (1 if shared else 2) * p.n_k * p.d + p.d**2 + p.d * p.d_v
    return p.copies * (inputs + p.rows * p.d_v)


def decimal_ceil(x):
    """Ceiling of a value known to more than 40 digits after the point; one just above an integer is that integer."""
    return int((x - Decimal("1e-40")).to_integral_value(ROUND_CEILING))


def segment_line(c, s, weight, N, root):
    """The line c 2 s weight N / sqrt(M) - s^2 N of the theorems, with root = sqrt(M)."""
    return 2 * c * s * weight * N / root - s * s * N


def theorem_b1(p, M):
    """Theorem B', over its 199 values of a; s is the largest allowed, or smaller where the line falls with s."""
    N = pairs(p)
    with localcontext() as context:
        context.prec = 100
        root, sqrt2, c = Decimal(M).sqrt(), Decimal(2).sqrt(), 1 - 1 / Decimal(2 * M)
        lines = []
        for k in range(1, 200):
            a = Decimal(k) / 200
            weight = (a + 2 * (1 - a).sqrt()) * p.d + sqrt2 * p.d_v
            limit = 2 * a * p.d
            lines.append(segment_line(c, min(1, c * min(limit, weight) / root), weight, N, root))
            if M * 100**2 <= (k * p.d) ** 2:
                lines.append(segment_line(1, 1, weight, N, root))
        return decimal_ceil(max(lines) - M)


def root_fraction(x):
    """sqrt(x) from below to 60 digits after the point."""
    return Fraction(isqrt(x * 10**120), 10**60)


def theorem_b2(p, M):
    """Theorem B'', None for d_v > 2d. Where K is irrational it is taken from below."""
    d, d_v = p.d, p.d_v
    if d_v > 2 * d:
        return None
    K = (2 * d + d_v) * (2 * d + 2 * d_v) if d_v**2 <= 2 * d**2 else (6 + root_fraction(32)) * d * d_v
    return ceil(value(pairs(p), K, M))


def b14_line(p, M, k5, h, outputs):
    return ceil_div(2 * k5 * (pairs(p) - M), 100000 * (2 * M + h + 1)) - p.copies * outputs


def theorem_b14(p, M):
    """Theorem B14, None where it does not apply."""
    d, d_v, width = p.d, p.d_v, p.d + p.d_v
    if not d <= 8 * d_v <= 8 * d:
        return None
    k5, words = 100000 * width * (4 * d + 3 * d_v) - 13 * d**2, p.rows * d + p.n_k * width
    lines = [b14_line(p, M, k5, ceil_div(4 * k5, 300000), words)]
    if d == d_v:
        k5 = 1389600 * d**2
        lines.append(b14_line(p, M, k5, ceil_div(10 * k5, 900000), words))
    return max(lines)


def theorem_gradient_x(p, M, shared=False):
    """The line g; shared: A2 = A3 are one array."""
    most = p.d + min(p.d, p.d_v)
    return ceil(value(pairs(p), p.d * most if shared else most**2, M))


def root_line(weight_squared, limit, p, M):
    """max over s = min(1, c weight / sqrt M), and s = 1 with c = 1 if M <= limit, of the line of `segment_line`."""
    N = pairs(p)
    c = 1 - Fraction(1, 2 * M)
    lines = [ceil_sqrt(Fraction(4 * weight_squared * N**2, M)) - N - M] if M <= limit else []
    if c * c * weight_squared < M:
        lines.append(ceil(c * c * weight_squared * N / M - M))
    else:
        lines.append(ceil_sqrt(c * c * 4 * weight_squared * N**2 / M) - N - M)
    return max(lines)


def derived_gradient_x(p, M):
    """The line g', derived only: no part of a reported bound. None for d_v > d."""
    width = p.d + p.d_v
    return root_line(width**2, 4 * width**2, p, M) if p.d_v <= p.d else None


def restricted_gradient_x(p, M):
    """The line g*, for 6R, 9R-a, b, c and, where d_v <= d, 9R-d only."""
    N = pairs(p)
    with localcontext() as context:
        context.prec = 100
        root, c = Decimal(M).sqrt(), 1 - 1 / Decimal(2 * M)
        weight = Decimal(2).sqrt() * p.d + p.d_v
        choices = [(c, min(1, c * weight / root))] + ([(1, 1)] if root <= weight else [])
        most = max(segment_line(c, s, weight, N, root) for c, s in choices)
        return decimal_ceil(most - M - p.copies * p.rows * p.d)


def theorem_shared_forward(p, M):
    """For U = softmax(S A^T) A. Not for O = U Y with d_v < d: A_j Y may then be formed again at every visit."""
    return root_line(2 * p.d**2, 0, p, M)


def positive(lines):
    return {name: max(0, words) for name, words in lines.items() if words is not None}


def gradient_x_bounds(p, M, shared=False):
    """Every proved lower bound for g = dL/dX."""
    return positive({"trivial": trivial_gradient_x(p, shared), "g": theorem_gradient_x(p, M, shared)})
