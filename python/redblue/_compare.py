"""Approximations of attention beside exact attention, on arrays: errors, words and times."""

from __future__ import annotations

import collections
import copy
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional, Union

from . import _core
from ._attention import request
from ._call.calls import arithmetic, checked
from ._call.settings import tokens_first, wanted_of, whole
from ._errors import InvalidProblem


class Row(NamedTuple):
    """One head of one method. What is of the method, over all its heads, stands in each of its rows."""

    method: str  #: "exact", "polynomial", "performer", ...
    setting: str  #: the options that ask `redblue run` for it, as "--approximate 2:0.8"
    batch: int
    head: int
    words: int  #: that the method moves, all heads together, without lse
    error: Optional[float]  #: |o - exact| / |exact|, Frobenius norms, of several seeds the mean; None: no finite number
    largest: Optional[float]  #: max|o - exact| / max|exact|, of several seeds the mean
    worst_error: Optional[float]  #: `error` of the worst seed
    worst_largest: Optional[float]  #: `largest` of the worst seed
    proved: Optional[float]  #: `largest` is no larger, roundings included, by the certificate; None: nothing is proved
    seconds: float  #: of the method: the median of the repetitions
    seeds: int  #: 1 where the method draws no random numbers
    schedule: str
    footprint: int  #: words of fast memory
    certificate: Optional[dict]  #: of a polynomial, but of a gaussian fit and clusters: as `redblue.certify` returns it


class Comparison:
    """What `redblue.compare` found.

    rows: a Row for each head of each method that ran, exact attention first. refused: {setting: reason} of the others.
    `to_dict()` has the numbers of `redblue compare --json`, for `redblue.plot.errors`, which takes a Comparison, too; its
    certificates are those of `redblue.certify`. The text and the table in a notebook have one line for each method: errors
    are medians over heads, `proved` is the largest.
    """

    def __init__(self, facts: dict):
        self._facts = facts
        self.M: int = facts["M"]
        self.rows = [_row(m, head) for m in facts["methods"] if "refused" not in m for head in m["heads"]]
        self.refused = {m["setting"]: m["refused"] for m in facts["methods"] if "refused" in m}

    def to_dict(self) -> dict:
        """A copy of the comparison as numbers, texts, lists and dicts: valid JSON, None where a number is not finite."""
        return copy.deepcopy(self._facts)

    def _lines(self) -> list[tuple[str, ...]]:
        def errors(heads: Sequence[dict]) -> tuple[str, ...]:
            proved = [h["proved"] for h in heads]
            return (
                *(_number(_median([h[name] for h in heads])) for name in ("frobenius", "max")),
                _number(None if None in proved else max(proved)),
            )

        return [
            *(
                (m["method"], m["setting"], m["schedule"], f"{m['io']:,}", *errors(m["heads"]), f"{1e3 * m['seconds']:.3f}")
                for m in self._facts["methods"]
                if "refused" not in m
            ),
            ("mean of v", "no scores: a yardstick", "-", "-", *errors(self._facts["mean_of_values"]), "-"),
        ]

    def __repr__(self) -> str:
        table = [_HEAD, *self._lines()]
        widths = [max(map(len, column)) for column in zip(*table)]
        lines = ["  ".join(f"{x:<{w}}" if i < 3 else f"{x:>{w}}" for i, (x, w) in enumerate(zip(line, widths))) for line in table]
        names = collections.Counter(m["method"] for m in self._facts["methods"] if "refused" in m)
        counted = ", ".join(name + f" ({n})" * (n > 1) for name, n in names.items())
        refused = [f"not run (.refused says why): {counted}"] * bool(names)
        return "\n".join([*(line.rstrip() for line in lines), *refused, f"M = {self.M:,} words"])

    def _repr_html_(self) -> str:
        from html import escape

        def cells(tag: str, values: Sequence[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{escape(x)}</{tag}>" for x in values) + "</tr>"

        refused = "".join(f"<li>{escape(setting)}: {escape(reason)}</li>" for setting, reason in self.refused.items())
        return (
            f"<table>{cells('th', _HEAD)}{''.join(cells('td', line) for line in self._lines())}</table>"
            + (f"<p>not run:</p><ul>{refused}</ul>" if refused else "")
            + f"<p>M = {self.M:,} words</p>"
        )


_HEAD = ("method", "setting", "schedule", "words", "error", "largest", "proved", "ms")


def _row(m: dict, head: dict) -> Row:
    return Row(
        m["method"], m["setting"], head["batch"], head["head"], m["io"], head["frobenius"], head["max"],
        head["frobenius_worst"], head["max_worst"], head["proved"], m["seconds"], m["seeds"], m["schedule"], m["footprint"], m.get("certificate"),
    )  # fmt: skip


def _median(values: Sequence[Optional[float]]) -> Optional[float]:
    """None is the largest of all, as a NaN is in the program."""
    import statistics  # 3 ms that few programs need

    found = statistics.median(float("inf") if x is None else x for x in values)
    return None if found == float("inf") else found


def _number(x: Optional[float]) -> str:
    return "-" if x is None else f"{x:.3g}"


def compare(
    q: Any,
    k: Any,
    v: Any,
    *,
    M: int,
    methods: Union[str, Sequence[str], None] = None,
    repetitions: int = 3,
    seeds: int = 1,
    layout: str = "bhsd",
    causal: bool = False,
    alignment: Union[str, int] = "bottom-right",
    window: Optional[Sequence[Optional[int]]] = None,
    scale: Optional[float] = None,
    cu_seqlens_q: Optional[Sequence[int]] = None,
    cu_seqlens_k: Optional[Sequence[int]] = None,
    seqused_q: Optional[Sequence[int]] = None,
    seqused_k: Optional[Sequence[int]] = None,
    compute: Optional[str] = None,
    threads: Optional[int] = None,
) -> Comparison:
    """Error, words and time of approximate attention beside exact attention on these arrays, as `redblue compare` has them.

    q [batch, heads, n_q, d], k [batch, kv_heads, n_k, d], v [batch, kv_heads, n_k, d_v] as for `attention`, none of size 0.
    M: words of fast memory, of every method; each is planned for the fewest words. methods: texts as `approximate` of
    `attention` takes them, "2:1.0", "performer:128,seed=7", ...; None: polynomials up to degree 4 on the range that the norms
    of q and k prove, polynomials of each row, the published methods, coresets, and the patterns of Longformer and BigBird, of
    which those are in `refused` that multiply more than 5 times as much as exact attention and take more than 2^33 multiply-adds.
    repetitions: timed runs of each, 1 to 1000. seeds: of each method that draws random numbers, its own and those after it,
    1 to 1000. Packed and padded sequences are as for `attention`; the methods that know none are refused. Exact attention is
    always there, and so is the mean of v, which takes no scores: many methods are no better on flat heads. Errors are of o
    in the type of q, against exact attention in fp64.

    Returns a Comparison. A method that has no plan for M or the mask is in its `refused`, with the reason; where exact
    attention has none, that is raised: CapacityError. Raises InvalidProblem for a text that is no method, or a NaN or an
    infinity in q, k or v where polynomials are among the methods; Unsupported for other operations than plain attention.
    Sources of the methods: docs/algorithms/methods.md.
    """
    r = request(q, k, v, layout=layout, causal=causal, alignment=alignment, window=window, scale=scale, cu_seqlens_q=cu_seqlens_q,
                cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q, seqused_k=seqused_k, compute=compute, threads=threads, M=whole("M", M))  # fmt: skip
    types = tuple(r.family.type_of(x, name) for x, name in ((r.q, "q"), (r.k, "k"), (r.v, "v")))
    _, problem, empty = checked("forward", types, tuple(tuple(x.shape) for x in (r.q, r.k, r.v)), r.settings)
    if empty:
        raise InvalidProblem(f"q, k and v are of {list(r.q.shape)}, {list(r.k.shape)}, {list(r.v.shape)}: nothing to compare")
    problem.lse_required = False
    wanted = wanted_of(r.settings, types[0], arithmetic("forward", types[0], False, r.settings, ()))
    texts = [methods] if isinstance(methods, str) else None if methods is None else list(methods)
    if texts is not None and not all(isinstance(text, str) for text in texts):
        raise InvalidProblem(f"methods = {methods!r}: give texts, as in ['performer:128', '2:1.0']")
    facts = _core.compare(problem, r.arrays(), tokens_first(layout), wanted, texts, whole("repetitions", repetitions), whole("seeds", seeds))
    sizes = {name: getattr(problem, name) for name in ("op", "batch", "heads", "kv_heads", "n_q", "n_k", "d", "d_v", "causal")}
    return Comparison({"schema": "redblue.compare/1", "problem": sizes, "errors": _ERRORS, **facts})


_ERRORS = (
    "frobenius: |o - exact| / |exact|; max: max|o - exact| / max|exact|; of several seeds the mean, and _worst the largest; "
    "proved: no max is above it, by the certificate; o in the type of q, exact attention in fp64"
)
