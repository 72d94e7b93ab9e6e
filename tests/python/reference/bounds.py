"""The lower bounds of a problem without a mask, to the word, from their statements alone: in integers and fractions, or
with decimals that are exact to more digits than the ceiling needs.
"""

from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from math import ceil, isqrt
from typing import NamedTuple

from reference.words import ceil_div


class Problem(NamedTuple):
    """`rows` queries of each key-value head, of which there are `copies`."""

    rows: int
    n_k: int
    d: int
    d_v: int
    copies: int = 1


def ceil_sqrt(x):
    """Smallest integer >= sqrt(x) for a non-negative fraction x, exactly."""
    root = isqrt(x.numerator // x.denominator)
    return root if root * root >= x else root + 1


def pairs(p):
    """Scores that must be formed: a row with a single key has P = 1 whatever its score is."""
    return p.copies * p.rows * p.n_k if p.n_k >= 2 else 0


def trivial_forward(p):
    """Inputs that matter and outputs, without the lse."""
    scored = (p.rows + p.n_k) * p.d if p.n_k >= 2 else 0
    return p.copies * (scored + p.n_k * p.d_v + p.rows * p.d_v)


def theorem_f1(p, M):
    """Theorem F': irrational only where s = 1, so the ceiling is taken of a square root or of a fraction."""
    N, width = pairs(p), p.d + p.d_v
    lines = []
    if M <= 4 * p.d**2:
        lines.append(ceil_sqrt(Fraction((2 * width * N) ** 2, M)) - N - M)
    c = 1 - Fraction(1, 2 * M)
    k = c * min(width, 2 * p.d)
    if k * k < M:
        lines.append(ceil((2 * c * k * width * N - k * k * N) / M - M))
    else:
        lines.append(ceil_sqrt((2 * c * width * N) ** 2 / M) - N - M)
    return max(lines)


def value(N, K, M):
    def gain(L):
        part = max(Fraction((M + L) ** 2, 4 * K), M + Fraction(L, 2), Fraction(L**2, 4 * K) + M,
                   Fraction(M**2, 4 * K) + Fraction(L, 2))
        return L * N / part - (L - M)

    return max(gain(M * t // 8) for t in range(8, 161))


def theorem_f2(p, M):
    """Theorem F''."""
    K = (p.d + p.d_v) ** 2 if p.d_v <= p.d else 4 * p.d * p.d_v
    return ceil(value(pairs(p), K, M))


def theorem_g(p, M):
    return ceil(Fraction(pairs(p) * p.d**2, M + 4 * p.d**2) - M)


def rows_and_keys(p):
    """(rows, rows that see two keys or more, keys that such a row sees)."""
    return (p.rows, p.rows, p.n_k) if p.n_k >= 2 else (p.rows, 0, 0)


def trivial_backward(p):
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


def theorem_b10(p, M):
    """Theorem B10: one s, the largest that is allowed (a little less), and the best a and c for it."""
    N, outputs = pairs(p), p.copies * (p.rows * p.d + p.n_k * (p.d + p.d_v))
    with localcontext() as context:
        context.prec = 100
        g, root = 1 - 1 / Decimal(10 * M * M), Decimal(M).sqrt()
        s = min(Decimal(1), g * min(p.d, p.d_v) / (Decimal("0.70712") * root))
        a, c = (min(Decimal(1), max(Decimal("0.70711"), g * width / (2 * s * root))) for width in (p.d, p.d_v))
        products = 2 * g * s * N * ((a + 2) * p.d + (c + 1) * p.d_v) / root
        return decimal_ceil(products - 2 * s * s * (a * a + c * c) * N - outputs)


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


# Every line of an operation, by theorem. None: it does not apply.


def forward(p, M):
    return {"trivial": trivial_forward(p), "F'": theorem_f1(p, M), "F''": theorem_f2(p, M), "G": theorem_g(p, M)}


def backward(p, M):
    proved = {"trivial": trivial_backward(p), "B'": theorem_b1(p, M), "B''": theorem_b2(p, M)}
    return proved | {"B14": theorem_b14(p, M), "B10": theorem_b10(p, M)}


def gradient_x(p, M, shared):
    """g = dL/dX."""
    derived, restricted = (None, None) if shared else (derived_gradient_x(p, M), restricted_gradient_x(p, M))
    proved = {"trivial": trivial_gradient_x(p, shared), "g": theorem_gradient_x(p, M, shared)}
    return proved | {"g'": derived, "g*": restricted}


def forward_x(p, M, shared):
    one_source = theorem_shared_forward(p, M) if shared and p.n_k >= 2 else None
    return {"trivial": trivial_layer(p, shared), "shared": one_source}
