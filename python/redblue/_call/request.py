"""What one call asks for."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from .options import Settings

#: What few calls have: the gradient of lse, and the arrays of tangents and of gradients of gradients.
OTHERS = ("dlse", "tq", "tk", "tv", "to", "tlse", "gq", "gk", "gv", "lq", "lk", "lv", "ldo", "ldlse", "tbias", "gbias",
          "lbias", "tsinks", "gsinks", "lsinks")
NO_OTHERS = (None,) * len(OTHERS)


class Request(NamedTuple):
    """A call's arrays and options, as its family of arrays has them."""

    family: Any
    q: Any
    k: Any
    v: Any
    bias: Any
    slopes: Any
    sinks: Any
    settings: Settings
    seed: int
    tolerance: Optional[float]
    scales: Optional[tuple] = None  # of int8 k and v, as scales_of makes them

    def arrays(
        self, o: Any = None, lse: Any = None, do: Any = None, dq: Any = None, dk: Any = None, dv: Any = None,
        dbias: Any = None, dsinks: Any = None, s: Any = None, p: Any = None, **others: Any,
    ) -> tuple:  # fmt: skip
        """The tuple that _core takes, of these arrays, OTHERS among them, and the call's own."""
        n = self.family.native
        first = (self.q, self.k, self.v, o, lse, self.bias, self.slopes, self.sinks, do, dq, dk, dv, dbias, dsinks, s, p)
        all_ = first + (tuple(map(others.get, OTHERS)) if others else NO_OTHERS)
        return (*[None if x is None else n(x) for x in all_], *(self.scales or ()))
