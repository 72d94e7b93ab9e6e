"""What one call asks for."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from ._options import Settings


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

    def arrays(
        self, o: Any = None, lse: Any = None, do: Any = None, dq: Any = None, dk: Any = None, dv: Any = None,
        dbias: Any = None, dsinks: Any = None, s: Any = None, p: Any = None,
    ) -> tuple:  # fmt: skip
        """The tuple that _core takes, of these arrays and the call's own."""
        n = self.family.native
        modified = self.bias is not None or self.slopes is not None or self.sinks is not None
        if not modified and do is None and s is None and p is None:  # what most calls give, in less time
            return n(self.q), n(self.k), n(self.v), None if o is None else n(o), None if lse is None else n(lse), *(None,) * 11
        all_ = (self.q, self.k, self.v, o, lse, self.bias, self.slopes, self.sinks, do, dq, dk, dv, dbias, dsinks, s, p)
        return tuple([None if x is None else n(x) for x in all_])
