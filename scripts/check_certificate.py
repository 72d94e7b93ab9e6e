#!/usr/bin/env python3
"""Checks a certificate from q, k, v, and o where it is given; docs/certificates.md. Nothing of redblue is used."""
import argparse
import functools
import json
import math
import sys
from decimal import Decimal, getcontext
from fractions import Fraction

import check_rows
import numpy as np
from check_rows import NEXT, around, norms, require
from read_tensors import in_order, load_file

getcontext().prec = 60
BITS = {"f64": (53, 1024, 1074), "f32": (24, 128, 150), "f16": (11, 16, 25), "bf16": (8, 128, 134)}
UNIT = {name: Decimal(2) ** -bits for name, (bits, _, _) in BITS.items()}
TINY = Decimal(10) ** -45  # far above the roundings of 60 digits


def within(name, stated, least, slack=1e-9):
    require(Fraction(stated) >= Fraction(least), f"{name} = {stated!r} is too small: it must be {float(least)!r}")
    require(stated <= float(least) * (1 + slack) + NEXT, f"{name} = {stated!r} is too large: {float(least)!r} is enough")


def check_norm(name, stated, x):
    """stated >= the norm of every row: exactly, where floating-point numbers are too near to tell."""
    for row in x[norms(x) * (1 + (x.shape[-1] + 8) * 2.0**-51) > stated]:
        require(sum(Fraction(float(e)) ** 2 for e in row) <= Fraction(stated) ** 2, f"{name} = {stated!r} is too small")
    require(stated <= norms(x).max(initial=0.0) * (1 + 1e-9) + NEXT, f"{name} = {stated!r} is too large")


def horner(c, z):
    return functools.reduce(lambda p, x: p * z + x, reversed(c), Decimal(0))


def error_is_within(c, B, most):
    """Is |f| <= most, f = p(z) e^-z - 1, for |z| <= B? On |z - m| <= h: |f| <= |f(m)| + h max|q| e^(h - m), q = p' - p,
    and |q| <= SUM |q_n| h^n, q_n its coefficients at m. What cannot be decided is cut in two."""
    c, B, most = [Decimal(x) for x in c], Decimal(B), Decimal(most)
    q = [(n + 1) * x - y for n, (x, y) in enumerate(zip(c[1:] + [Decimal(0)], c))]
    margin = TINY * (1 + horner([abs(x) for x in c], B)) * B.exp()
    todo, steps = [(Decimal(0), B)], 0
    while todo:
        m, h = todo.pop()
        at, steps = abs(horner(c, m) * (-m).exp() - 1) + margin, steps + 1
        if at > most or steps > 100_000:
            return False
        if at + h * horner([abs(x) for x in around(q, m)], h) * (h - m).exp() * (1 + TINY) + margin > most:
            todo += [(m - h / 2, h / 2), (m + h / 2, h / 2)]
    return True


def rounding(c, head, e, pieces, steps, direct=0, more=0, **other):
    """Of sums whose terms take in `steps` roundings, `direct` ones beside polynomials. None: nothing is proved."""
    u, out, V, h = UNIT[c["compute_dtype"]], UNIT[c["output_dtype"]], Decimal(head["largest_v"]), head | other
    size = math.prod(max(1, x) for x in (abs(c["scale"]), h["largest_q"], h["largest_k"])) * c["d"]
    exponent = h.get("power", c["degree"]) * math.log2(size) + abs(math.log2(V or 1)) + math.log2(c["n_k"])
    most, (_, largest, least) = max(direct, steps if pieces else 0) * u, BITS[c["output_dtype"]]
    if most >= Decimal("0.5") or exponent + 1.5 * h["range"] > (900 if c["compute_dtype"] == "f64" else 90):
        return None
    terms = (horner([abs(Decimal(x)) for x in p], Decimal(B)) * Decimal(B).exp() / (1 - e) for p, B in pieces)
    share = max([steps * u / (1 - steps * u) * x for x in terms] + [direct * u / (1 - direct * u)])
    most = V and (2 * share / (1 - share) * (1 + 2 * u + 2 * out) + u + out + more) * V + Decimal(2) ** -least
    return most if share < Decimal("0.5") and V + most <= (1 - out) * Decimal(2) ** largest else None


def check_output(c, q, k, v, o, most):
    require(c["mask"] != "other", "o can be checked without a mask and under a causal one only")
    offset = math.inf if c["mask"] == "none" else max(-len(q), min(len(k), c["mask"]["causal_offset"]))
    z = np.where(np.arange(len(k)) > np.arange(len(q))[:, None] + offset, -np.inf, c["scale"] * (q @ k.T))
    seen, exact = np.isfinite(z).any(-1), np.zeros_like(o)
    w = np.exp(z[seen] - z[seen].max(-1, keepdims=True))
    exact[seen] = w @ v / w.sum(-1, keepdims=True)
    most += 1e-11 * float(np.abs(v).max(initial=0.0))  # of this computation
    require(bool((np.abs(o - exact) <= most).all()), f"o is further from exact attention than {most}")


def check_head(c, head, q, k, v, o):
    check_norm("largest_q", head["largest_q"], q)
    check_norm("largest_k", head["largest_k"], k)
    within("largest_v", head["largest_v"], float(np.abs(v).max(initial=0.0)))
    within("spread", head["spread"], max(Fraction(float(a)) - Fraction(float(b)) for a, b in zip(v.max(0), v.min(0))))
    product = math.prod(Fraction(x) for x in (abs(c["scale"]), head["largest_q"], head["largest_k"]))
    within("range", head["range"], product * (1 + (c["d"] + 4) * Fraction(UNIT[c["compute_dtype"]])), 1e-3)
    require(o is None or bool(np.isfinite(o).all()), "o has entries that are not finite, where v is finite")
    if c["method"] == "exact":
        return
    e, pieces = Decimal(head["weight_error"]), check_rows.polynomials(c, head, q, k) if "rows" in c else [(c["coefficients"], head["range"])]
    require(e < 1 and all(error_is_within(*x, e) for x in pieces), f"weight_error = {float(e)!r} is too small, or too near to tell")
    tight = not all(error_is_within(*x, e * 95 / 100 - Decimal(1e-12)) for x in reversed(pieces))
    require(tight if pieces else e == 0, "weight_error too large")
    within("output_error", head["output_error"], e / (1 + (1 - e * e).sqrt()) * Decimal(head["spread"]) * (1 - TINY))
    steps = math.comb(c["d"] + c["degree"], c["degree"]) + c["n_k"] + 6 * c["degree"] + 8
    more = check_rows.more_roundings(c, head, steps) if "rows" in c else {"steps": steps}
    wanted, stated = more and rounding(c, head, e, pieces, **more), head["rounding"]
    require((stated is None) == (wanted is None), f"rounding = {stated}: it should be {wanted}")
    within("rounding", stated or 0.0, (wanted or 0) * (1 - TINY))
    if o is not None and stated is not None:
        check_output(c, q, k, v, o, head["output_error"] + stated)


def check(c, q, k, v, o=None):
    """Raises ValueError; returns what is to say of o. Arrays are float64, [batch, heads, rows, columns]."""
    require(c["schema"] == "redblue.certificate/1" and c["compute_dtype"] in ("f32", "f64"), "schema or compute_dtype")
    require(c["output_dtype"] in BITS and isinstance(c["tolerance"], float | None), "output_dtype or tolerance")
    offset = c["mask"]["causal_offset"] if isinstance(c["mask"], dict) else 0
    require(c["mask"] in ("none", "other", {"causal_offset": offset}) and type(offset) is int, f"mask = {c['mask']}")
    sizes = [q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3]]
    require([c[n] for n in "batch heads kv_heads n_q n_k d d_v".split()] == sizes, f"the sizes are {sizes}")
    require(o is None or o.shape == (*q.shape[:3], sizes[6]), f"o is not {[*q.shape[:3], sizes[6]]}")
    heads, all_heads = c["per_head"], [(b, h) for b in range(sizes[0]) for h in range(sizes[1])]
    require([(h["batch"], h["head"]) for h in heads] == all_heads, "per_head does not list the heads of each batch")
    require(c["range"] == max(h["range"] for h in heads), "range is not the largest of the heads")
    terms = set("degree coefficients output_error weight_error rounding".split()).intersection(set().union(c, *heads))
    require(c["method"] == ("polynomial rows" if "rows" in c else "polynomial" if terms else "exact"), "method or rows")
    if terms:
        lengths = {len(p) for p in (c["coefficients"] if "rows" in c else [c["coefficients"]])}
        require(lengths == {c["degree"] + 1} and c["degree"] > 0, "degree does not fit the coefficients")
        require(c["output_error"] is not None, "it proves nothing: output_error is null")
        within("output_error", c["output_error"], max(Fraction(h["output_error"]) / Fraction(h["largest_v"] or 1) for h in heads))
    require(c["tolerance"] is None or 0 < c["tolerance"] < 1 and c.get("output_error", 0) <= c["tolerance"], "tolerance, or output_error above it")
    for h, (b, i) in zip(heads, all_heads):
        at = (b, i * sizes[2] // sizes[1])
        try:
            check_head(c, h, q[b, i], k[at], v[at], None if o is None else o[b, i])
        except ValueError as e:
            raise ValueError(f"batch {b}, head {i}: {e}") from None
    said = "; nothing is proved of o where rounding is null" if terms else "; o not checked: exact attention, no bound"
    return "" if o is None else said if any(h.get("rounding") is None for h in heads) else ", and o keeps to it"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split(";", maxsplit=1)[0])
    parser.add_argument("certificate", type=argparse.FileType())
    parser.add_argument("input", help="safetensors or .npz with q, k, v")
    parser.add_argument("--output", help="safetensors or .npz with o")
    parser.add_argument("--layout", help="order of the axes in the files: bhnd (default), bnhd, hnd, nd, ...")
    args = parser.parse_args()
    try:
        files = [load_file(args.input)] * 3 + ([load_file(args.output)] if args.output else [])
        tensors = [in_order(f[n], args.layout).astype(float) for f, n in zip(files, "qkvo")]
    except Exception as e:
        sys.exit(f"REFUSED: reads safetensors and .npz with q, k, v (and o) [batch, heads, n, d], floats of 2 to 8 bytes: {e!r:.200}")
    try:
        print(f"ok: the certificate holds{check(json.load(args.certificate), *tensors)}")
    except (ValueError, KeyError, TypeError, ArithmeticError) as e:
        sys.exit(f"REFUSED: {e}")
