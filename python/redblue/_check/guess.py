"""What a wrong result of redblue.distributed.check looks like, and where it is wrong."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, Optional

import numpy as np

from .cases import Case, dense, seen

#: Relative: results that are nearer to a slip's than this are taken for it.
NEAR = 1e-3


def largest_error(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference; nan where one is not a number, inf where only one is infinite."""
    with np.errstate(invalid="ignore"):
        return float(np.where(found == wanted, 0, np.abs(found - wanted)).max(initial=0))


def _often(times: float) -> str:
    return "not at all" if abs(times) < NEAR else "twice" if abs(times - 2) < NEAR else f"{times:.3g} times"


class Guess:
    """A wrong result of a case, beside what it should be, and the homes of its rows."""

    def __init__(self, case: Case, found: dict, wanted: dict, arrays: dict, rows: list, keys: list):
        self.case, self.found, self.wanted, self.arrays, self.rows, self.keys = case, found, wanted, arrays, rows, keys
        self.mask = seen(case, case.options)

    def text(self, worst: str, allowed: Callable[[str], float]) -> str:
        """The array that is wrong first, and what it looks like. `allowed`: the error that an array may have."""
        found, wanted = self.found, self.wanted
        name = next(n for n in found if not largest_error(found[n], wanted[n]) <= 100 * allowed(n) or n == worst)
        x, y = found[name], wanted[name]
        with np.errstate(invalid="ignore"):
            off = np.where(x == y, 0, np.abs(x - y))
        off = np.where(np.isnan(off), np.inf, off)
        at = int(np.unravel_index(int(off.argmax()), off.shape)[2])
        homes = self._homes(name)
        rank = next(r for r in range(len(homes)) if at in homes[r])
        where = f"{name} is wrong first" if name != worst else f"{name} is wrong"
        where += f", most in row {at}, of rank {rank}"
        blind = ~self.mask.any(1)
        if np.isnan(x).any():
            return f"{where}: not a number{', where some rows see no key' if blind.any() else ''}"
        of_rows = off.max((0, 1, *range(3, off.ndim)))
        if name in ("o", "lse", "dq") and blind.any() and (of_rows[~blind] <= allowed(name)).all():
            return f"{where}: only in rows that see no key, where o = 0, lse = -inf and dq = 0"
        if name == "lse" and largest_error(x * math.log(2), y) <= allowed(name) * 4:
            return f"{where}: it has the values of logarithms of base 2"
        what = self._slip(name) or self._parts(name) or self._moved(name) or self._stale(name)
        return f"{where}: {what}" if what else where

    def _homes(self, name: str) -> list:
        return self.keys if name in ("dk", "dv", "dk + dv") else self.rows

    def _slip(self, name: str) -> str:
        x, y = self.found[name], self.wanted[name]
        for what, slip in slips(self.case, self.arrays, self.rows, self.keys):
            with np.errstate(all="ignore"):
                other = dense(self.case, **{"arrays": self.arrays, "mask": self.mask, **slip})[name]
            away = largest_error(y, other)
            if largest_error(x, other) <= NEAR * (max(1.0, away) if math.isfinite(away) else 1.0):
                return f"as if {what}"
        return ""

    def _parts(self, name: str) -> str:
        """How often a rank's result has the part that each rank adds to it: 0 or 2 times where blocks are stale or left out."""
        times_of = self._times_of_o if name == "o" else self._times_of_gradient
        homes = self._homes(name)
        of = "queries" if homes is self.keys else "keys"
        all_times = []
        for rank, own in enumerate(homes):
            times = times_of(name, rank) if len(own) > 0 else None
            if times is None and len(own) > 0:
                return ""
            all_times.append(np.ones(len(homes)) if times is None else times)
        every = np.concatenate(all_times)
        if np.ptp(every) < NEAR < abs(every[0] - 1) and name != "o":
            return f"it is {every[0]:.4g} times what it should be"
        for rank, times in enumerate(all_times):
            wrong = [f"of rank {j} {_often(t)}" for j, t in enumerate(times) if abs(t - 1) > NEAR]
            if wrong:
                return f"as if rank {rank} took the {of} {', '.join(wrong)}"
        return ""

    def _gradient(self, name: str, own: np.ndarray, others: np.ndarray, taken: np.ndarray) -> np.ndarray:
        """What rows of other ranks add to a gradient of these rows, where their products are with the rows `taken`."""
        case, w = self.case, self.wanted
        group = np.arange(case.heads) // (case.heads // case.kv_heads)
        if name == "dq":
            return w["ds"][:, :, own][..., others] @ self.arrays["k"][:, group][:, :, taken]
        weights, of = (w["ds"], self.arrays["q"]) if name == "dk" else (w["p"], self.arrays["do"])
        each = weights[:, :, others][..., own].swapaxes(-1, -2) @ of[:, :, taken]
        return np.stack([each[:, group == h].sum(1) for h in range(case.kv_heads)], 1)

    def _times_of_gradient(self, name: str, rank: int) -> Optional[np.ndarray]:
        if name not in ("dq", "dk", "dv"):
            return None
        own = self._homes(name)[rank]
        columns = [self._gradient(name, own, of, of).ravel() for of in (self.keys if name == "dq" else self.rows)]
        parts, x = np.stack(columns, 1), self.found[name][:, :, own].ravel()
        there = np.abs(parts).max(0) > 0
        times = np.ones(len(there))
        times[there] = np.linalg.lstsq(parts[:, there], x, rcond=None)[0]
        return times if np.abs(parts @ times - x).max() <= NEAR * np.abs(x).max(initial=1e-30) else None

    def _times_of_o(self, _: str, rank: int) -> Optional[np.ndarray]:
        if len(self.keys) > 4 or "sinks" in self.case.options:
            return None
        own, group = self.rows[rank], np.arange(self.case.heads) // (self.case.heads // self.case.kv_heads)
        p, v = self.wanted["p"][:, :, own], self.arrays["v"][:, group]
        sums = [(p[..., of] @ v[:, :, of], p[..., of].sum(-1, keepdims=True)) for of in self.keys]
        x = self.found["o"][:, :, own]
        for times in sorted(itertools.product((0, 1, 2), repeat=len(sums)), key=lambda t: sum(n != 1 for n in t)):
            total = sum(t * s for t, (_, s) in zip(times, sums))
            o = sum(t * n for t, (n, _) in zip(times, sums)) / np.where(total > 0, total, 1)
            if largest_error(x, o) <= NEAR * np.abs(x).max(initial=1):
                return np.array(times, float)
        return None

    def _moved(self, name: str) -> str:
        """Has a rank the rows of another?"""
        homes, x, y = self._homes(name), self.found[name], self.wanted[name]
        for rank, own in enumerate(homes):
            for other, its in enumerate(homes):
                if other == rank or len(its) != len(own) or len(own) == 0:
                    continue
                if largest_error(x[:, :, own], y[:, :, its]) <= NEAR * np.abs(y[np.isfinite(y)]).max(initial=1):
                    return f"rank {rank} has the {name} of rank {other}"
        return ""


    def _stale(self, name: str) -> str:
        """Does a backward pass take one rank's rows for those of another?"""
        others, factor = (self.keys, "k") if name == "dq" else (self.rows, {"dk": "q", "dv": "do"}.get(name, ""))
        if not factor or len({len(of) for of in others}) > 1:
            return ""
        every = np.arange(self.found[name].shape[2])
        for shift in range(1, len(others)):
            taken = np.concatenate(others[shift:] + others[:shift])
            x = self._gradient(name, every, np.concatenate(others), taken)
            if largest_error(self.found[name], x) <= NEAR * np.abs(x).max(initial=1):
                return f"as if the backward pass took the {factor} of rank {shift} for that of rank 0, and so on"
        return ""


def slips(case: Case, arrays: dict, rows: list[np.ndarray], keys: list[np.ndarray]) -> list[tuple[str, dict[str, Any]]]:
    """Answers to other questions, with the name of the slip that gives them: arguments of `dense`."""
    mask = seen(case, case.options)
    own = np.zeros_like(mask)
    local = np.zeros_like(mask)
    for queries, of_rank in zip(rows, keys):
        own[np.ix_(queries, of_rank)] = True
    for queries in rows:
        for of_rank in keys:
            part = case._replace(n_q=len(queries), n_k=len(of_rank))
            local[np.ix_(queries, of_rank)] = seen(part, {x: y for x, y in case.options.items() if x != "cu_seqlens"})
    found: list[tuple[str, dict[str, Any]]] = [("each rank sees its own keys alone", {"mask": mask & own})]
    for name in ("causal", "window", "cu_seqlens"):
        if name in case.options:
            rest = {x: y for x, y in case.options.items() if x != name}
            found.append((f"{name} is ignored", {"mask": seen(case, rest)}))
    if "window" in case.options:
        left, right = case.options["window"]
        for wide in ((left + 1, right), (left - 1, right), (left, right + 1), (left, right - 1), (case.n_k, right), (left, case.n_k)):
            found.append((f"window = {wide}", {"mask": seen(case, {**case.options, "window": wide})}))
    if "causal" in case.options:
        for right, what in ((1, "a query sees the key after its own, too"), (-1, "a query does not see its own key")):
            shifted = {x: y for x, y in case.options.items() if x != "causal"} | {"window": (case.n_k + case.n_q, right)}
            found.append((what, {"mask": seen(case, shifted)}))
    if case.n_q != case.n_k and ("causal" in case.options or "window" in case.options):
        other = case._replace(bottom_right=not case.bottom_right)
        corner = "top-left" if case.bottom_right else "bottom-right"
        found.append((f"the diagonal is aligned {corner}", {"mask": seen(other, case.options)}))
    if case.options and any((np.diff(of) != 1).any() for of in rows):  # not contiguous
        order = np.argsort(np.concatenate(rows)), np.argsort(np.concatenate(keys))
        found.append(("the rows of a rank are taken for contiguous", {"mask": mask[np.ix_(*order)]}))
    if "causal" in case.options or "window" in case.options:
        found.append(("positions are counted from each rank's first row", {"mask": local}))
    for earlier in case.earlier:
        found.append((f"the mask of the call before, {earlier or 'none'}, is still there", {"mask": seen(case, earlier)}))
    if "scale" in case.options:
        found.append(("scale is ignored", {"mask": mask, "scale": 1 / math.sqrt(case.d)}))
    elif case.d_v != case.d:
        found.append(("scale is 1 / sqrt(d_v)", {"scale": 1 / math.sqrt(case.d_v)}))
    if "sinks" in case.options:
        found.append(("sinks are ignored", {"arrays": arrays | {"sinks": np.full(case.heads, -np.inf)}}))
        found.append(("each rank takes the sinks in", {"arrays": arrays | {"sinks": arrays["sinks"] + math.log(len(rows))}}))
    if case.lse_gradient:
        found.append(("the loss of lse is left out", {"arrays": arrays | {"dlse": np.zeros_like(arrays["dlse"])}}))
    if case.heads > case.kv_heads > 1:
        found.append(("query head h sees kv head h % kv_heads", {"mask": mask, "dealt": True}))
    ranks = len(keys)
    if case.n_k % ranks and case.n_k >= ranks:
        cut = mask.copy()
        cut[:, case.n_k - case.n_k % ranks :] = False
        found.append((f"the last n % {ranks} keys are dropped", {"mask": cut}))
    return found
