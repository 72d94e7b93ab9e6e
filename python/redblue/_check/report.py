"""What redblue.distributed.check found: rows, and a table of them."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import Any, NamedTuple, Optional


class Row(NamedTuple):
    """One case on one number of ranks.

    what, error, allowed    the array that is nearest to its tolerance, or farthest beyond it, its largest error and what is allowed
    traffic                 "forward" and "backward": for each rank the bytes "received" and "sent" by kind, and "calls"
    needs                   "forward" and "backward": bytes that a rank receives in redblue's ring of K and V, and in that of
                            its layouts that takes the least, with its name; "bound": the lower bound on the bytes of inputs
                            that some rank receives and of partial results that it sends, where all of them have the same
                            homes; none where the case calls more than once
    spread                  in bfloat16: errors of each array (root of the mean square), in units of one rounding
    """

    case: str
    ranks: int
    ok: bool
    what: str = ""
    error: float = float("nan")
    allowed: float = float("nan")
    note: str = ""
    traffic: Optional[dict[str, Any]] = None
    needs: Optional[dict[str, Any]] = None
    spread: Optional[dict[str, float]] = None
    hung: bool = False

    def received(self, *ops: str) -> Optional[int]:
        """The most bytes that a rank received in these passes, together; default: forward."""
        return self._most("received", ops or ("forward",))

    def sent(self, *ops: str) -> Optional[int]:
        """The most bytes that a rank sent."""
        return self._most("sent", ops or ("forward",))

    def _most(self, way: str, ops: tuple[str, ...]) -> Optional[int]:
        passes = [self.traffic and self.traffic[op] for op in ops]
        if not all(passes):
            return None
        return max(sum(sum(of[way].values()) for of in of_rank) for of_rank in zip(*passes))  # type: ignore[arg-type]


class Report(NamedTuple):
    """The rows of all cases, and the features that were not claimed, so not tried. str() makes a table of it."""

    rows: list[Row]
    not_tried: dict[str, str]

    @property
    def ok(self) -> bool:
        """Was every result right?"""
        return all(row.ok for row in self.rows)

    @property
    def failed(self) -> list[Row]:
        return [row for row in self.rows if not row.ok]

    def by_kind(self, case: str, ranks: int, op: str = "forward") -> dict[str, int]:
        """Bytes that the ranks of a case received together, by kind."""
        total: Counter[str] = Counter()
        for row in self.rows:
            if (row.case, row.ranks) == (case, ranks) and row.traffic and row.traffic[op]:
                for of in row.traffic[op]:
                    total.update(of["received"])
        return {kind: n for kind, n in total.items() if n > 0}

    def __str__(self) -> str:
        head = f"{'':60}{'forward: bytes of a rank':^31}  {'backward: bytes of a rank':^31}".rstrip()
        names = f"{'case':<33} {'P':>3}  {'result':<10} {'error':>6} "
        names += "".join(f"{of:>8}" for of in ("received", "sent", "least", "bound"))
        lines = [head, f"{names} {names[-32:]}"]
        for row in self.rows:
            result = f"{'ok' if row.ok else 'WRONG'} {row.what}"
            error = "" if row.error != row.error and row.traffic is None else f"{row.error:.0e}"
            cells = f"{row.case:<33} {row.ranks:>3}  {result:<10} {error:>6} "
            for op in ("forward", "backward"):
                needs = (row.needs or {}).get(op, {})
                numbers = (row.received(op), row.sent(op), needs.get("least"), needs.get("bound"))
                cells += "".join(f"{'' if n is None else n:>8}" for n in numbers) + " "
            lines.append(cells.rstrip())
            if row.note:
                lines += textwrap.wrap(row.note, 112, initial_indent="    ", subsequent_indent="    ")
        wrong = len(self.failed)
        lines += ["", f"right: {len(self.rows) - wrong} of {len(self.rows)}" + (f", WRONG: {wrong}" if wrong else "")]
        lines += _of_bytes(self.rows)
        if self.not_tried:
            lines += textwrap.wrap(f"Not claimed, so not tried: {', '.join(self.not_tried)}.", 116, subsequent_indent="    ")
        return "\n".join(lines)


def _of_bytes(rows: list[Row]) -> list[str]:
    """The largest ratios to what redblue needs, of cases that need 1,000 bytes or more, and to the largest bound: sentences."""
    found = []
    for op in ("forward", "backward"):
        for of, what in (("ring", "a ring of keys and values"), ("least", "the best of redblue's layouts")):
            ratios = [
                (got / row.needs[op][of], row)
                for row in rows
                if row.ok and row.needs and op in row.needs and (row.needs[op][of] or 0) >= 1000 and (got := row.received(op))
            ]
            if ratios:
                most, row = max(ratios, key=lambda x: x[0])
                found.append(f"{op}: at most {most:.2f} times what {what} takes ({row.case}, P = {row.ranks})")
        bounded = [row for row in rows if row.ok and row.needs and (row.needs.get(op, {}).get("bound") or 0) > 0]
        if bounded:
            row = max(bounded, key=lambda row: row.needs[op]["bound"])  # type: ignore[index]
            # A backward pass may have kept what came in the forward pass.
            passes, what = (("forward",), op) if op == "forward" else (("forward", "backward"), "both passes")
            received, sent = (n / row.needs[op]["bound"] for n in (row.received(*passes), row.sent(*passes)))  # type: ignore[index, operator]
            found.append(
                f"{what}: a rank received {received:.2f} times the lower bound of {op}, and one sent {sent:.2f} times "
                f"({row.case}, P = {row.ranks})"
            )
    return found
