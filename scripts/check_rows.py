"""What check_certificate.py checks where each row has its polynomial; docs/certificates.md."""

import itertools
import math
from decimal import Decimal

import numpy as np

UNIT = {"f64": 2.0**-53, "f32": 2.0**-24}
SPARE = 2.0**-40  # the share of lengths and radii that is left for roundings of doubles; a quarter of it is used here
NEXT = 1e-323  # two steps of the numbers near 0, where rounding up is no small share
STEPS = 64  # polynomials, for radii up to range k / STEPS


def require(right, text):
    if not right:
        raise ValueError(text)


def around(c, m):
    """The coefficients of the polynomial c at m + t."""
    at = []
    while c:
        *c, value = itertools.accumulate(reversed(c), lambda p, x: p * m + x)
        c.reverse()
        at.append(value)
    return at


def norms(x):
    """Off by less than (d + 8) 2^-51 of themselves, where they are not far below the largest."""
    size = float(np.abs(x).max(initial=0.0)) or 1.0
    return np.sqrt(((x / size) ** 2).sum(-1)) * size


def uncertain(c, of="d"):
    """The share that roundings may take from the radius of a row, or of the longest key from the length of a key."""
    return (c[of] + 8) * UNIT[c["compute_dtype"]] + SPARE


def edge_of(c):
    """How many keys the first query sees, and the last one, under the mask: "none" or causal."""
    require(c["mask"] != "other", "polynomials of each row can be checked without a mask and under a causal one only")
    offset = c["n_k"] if c["mask"] == "none" else c["mask"]["causal_offset"]
    return [min(max(0, offset + rows), c["n_k"]) for rows in (1, c["n_q"])]


def longest_key(c, k, largest_k):
    """Of those that a query sees and that enter the state; beside the exact ones, less the mean."""
    k = k[: edge_of(c)[1]]
    kept = min(c["rows"]["exact_keys"], len(k))
    for _ in range(2 * c["rows"]["centred"] * (len(k) > 0)):  # the second time takes off what the mean lost by its rounding
        k = k - [math.fsum(x) / len(k) for x in k.T]
    return float([*np.sort(norms(k))[::-1], 0][kept]) + uncertain(c, "n_k") * largest_k


def taken(c, head):
    """The polynomials that rows of this head may take, each with the scores that it must serve."""
    R, radius = c["rows"]["range"], head["radius"]
    used = min(STEPS, max(1, math.ceil(radius / (R / STEPS)))) if radius > 0 else 0
    require(used <= len(c["coefficients"]), f"coefficients: {used} polynomials are needed")
    return [(p, R * (n + 1) / STEPS * (1 + 4 * uncertain(c))) for n, p in enumerate(c["coefficients"][:used])]


def polynomials(c, head, q, k):
    """taken(), after a check of all that it rests on. A run may find a radius between `least` and `most`. A mean as
    redblue finds it is off by a share of the longest key, and so is the longest length from it: longest_key() has SPARE
    of that key added, of which three quarters at most are used here. Under a mask a query may see shorter keys only."""
    rows, share, of_key, m = c["rows"], uncertain(c), uncertain(c, "n_k") * head["largest_k"], 1 + SPARE / 4
    R, exact, edge = rows["range"], rows["exact_rows"], share * rows["range"] / STEPS
    require(type(rows["centred"]) is type(exact) is bool and type(rows["exact_keys"]) is int, f"rows = {rows}")
    require(R > 0 and rows["exact_keys"] >= 0 and head["radius"] >= 0, "range, exact_keys or radius is negative")
    wanted, longest, off = longest_key(c, k, head["largest_k"]), head["longest"], SPARE / 4 * head["largest_k"] + NEXT
    require(wanted / m - off <= longest <= wanted * m + off, f"longest = {longest!r}: it must be {wanted!r}")
    size = abs(c["scale"]) * norms(q)
    most = size * longest * (1 + share)
    least = size * max(0, longest - 2 * of_key) * (1 - 2 * share) - 2 * edge
    far = [int(np.sum(most > x)) * exact for x in (R * m, R / m)]
    require(far[0] <= head["exact_rows"] <= far[1], f"exact_rows = {head['exact_rows']}: it must be {far[0]}")
    if edge_of(c)[0] < c["n_k"]:
        least, most = 0 * least, np.minimum(most, R) if exact else most
    near = [np.maximum(most[(least <= x) | (not exact)], edge).max(initial=0.0) for x in (R / m, R * m)]
    require(near[0] / m <= head["radius"] <= near[1] * m, f"radius = {head['radius']!r}: it must be {near[0]!r}")
    require(exact or head["radius"] <= R, "rows beyond the range are not exact")
    return taken(c, head)


def more_roundings(c, head, steps):
    """Of rounding() in check_certificate.py, where a term of one polynomial takes in `steps` of them; None: nothing is
    proved, for lengths may vanish."""
    rows, n, wide, times = c["rows"], c["n_k"], c["compute_dtype"] == "f64", 1 + c["rows"]["centred"]
    kept, lost = min(rows["exact_keys"], n), c["d"] ** 0.5 * 2.0 ** -(537 if wide else 74)
    if abs(c["scale"]) * lost * (head["largest_q"] + head["longest"] + lost) > uncertain(c) * rows["range"] / STEPS:
        return None
    of_score = (c["d"] + 24) * times * Decimal(head["range"])
    return {
        "steps": steps + c["degree"] + 5 * kept + (of_score if kept else 0),
        "direct": 6 * n + 16 + of_score,
        "more": Decimal((times - 1) * 4 * UNIT[c["compute_dtype"]] * head["range"] + 2.0 ** -(110 if wide else 30)),
        "power": max(2, c["degree"]),
        "largest_k": head["largest_k"] * times,
        "range": head["radius"],
    }
