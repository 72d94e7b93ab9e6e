"""Where polynomial attention moves fewer words than exact attention, by plans of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

from . import _core
from ._call.settings import real, whole
from ._errors import InvalidProblem
from ._plan import _problem

#: One number, or several of them.
Numbers = Union[int, Sequence[int]]


def _list(name: str, value: Any) -> list[int]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if not values:
        raise InvalidProblem(f"{name} = {value!r}: give a number, or a list of at least one")
    return [whole(name, x) for x in values]


def regimes(
    op: str = "forward",
    *,
    n: Numbers = 65536,
    d: Numbers = (16, 32, 64),
    M: Numbers = (1024, 16384, 262144),
    degrees: Optional[Numbers] = None,
    tolerance: float = 1e-2,
    range: Optional[float] = None,
    causal: bool = False,
) -> list[dict]:
    """Polynomial or exact attention: the words of the best plan of each, for every n, d, degree and M.

    op: "forward" or "backward", of one head with n queries and keys and d_v = d. n, d, M (words of fast memory) and degrees
    (default 2, 3, 4) are numbers or lists of them. tolerance: the largest relative error of a weight. range in place of
    degrees takes the least degree that proves it for scores up to that.

    Returns a dict for each, with the names of `redblue regimes --json`: n, d, M, degree, monomials (rows of the state),
    largest_range (each weight is proved to be within tolerance for scores up to this), approximate and exact (dicts of
    schedule and io, words moved without lse; None where no schedule runs in M words), ratio (approximate over exact), bound
    (a dict as of `redblue.bound`), break_even_n (from which n on the polynomial moves no more words), regime ("polynomial",
    "exact" or "none": what moves fewer words). docs/algorithms/polynomial.md#regimes; for schedules of exact attention
    `redblue.plot.regimes` draws a map.

    Raises InvalidProblem for degrees outside of 1 to 12, a tolerance outside of 0 to 1, and sizes that are no problem.

    Source: polynomial attention, Alman & Song 2023, arXiv 2302.13214; docs/algorithms/polynomial.md.
    """
    if op not in ("forward", "backward"):
        raise InvalidProblem(f'op = {op!r}: give "forward" or "backward", which polynomials have schedules for')
    if range is not None and degrees is not None:
        raise InvalidProblem("range and degrees: give one of them; range finds the degree")
    share = real("tolerance", tolerance)
    wanted = (2, 3, 4) if degrees is None else degrees
    taken = _list("degrees", wanted) if range is None else [_core.least_degree(real("range", range), share)]
    ranges = {degree: _core.largest_range(degree, share) for degree in sorted(taken)}
    found = []
    for tokens in _list("n", n):
        for width in _list("d", d):
            problem, _ = _problem(op, n=tokens, d=width, causal=causal)
            for degree, largest in ranges.items():
                found += [_point(problem, tokens, width, words, degree, largest) for words in _list("M", M)]
    return found


def _point(problem: Any, n: int, d: int, M: int, degree: int, largest_range: float) -> dict:
    r = _core.regime(problem, M, degree)
    both = r["approximate"] and r["exact"]
    ratio = r["approximate"]["io"] / r["exact"]["io"] if both else None
    return {"n": n, "d": d, "M": M, "largest_range": largest_range, "ratio": ratio, **r}
