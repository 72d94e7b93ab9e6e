"""torch.func.vmap over redblue's operators: the dimension that is mapped becomes part of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from torch import Tensor

from ._errors import Unsupported
from ._options import ARRAYS
from ._settings import tokens_first


class _Calls:
    """`times` calls of `batch` batches each, which become one call of times x batch."""

    def __init__(self, info: Any, names: Sequence[str], arguments: Sequence[Any], dims: Sequence[Any]):
        self.times: int = info.batch_size
        given, dim = dict(zip(names, arguments)), dict(zip(names, dims))
        self.given = given
        self.shapes = {name: None if given[name] is None else self._alone(given[name], dim[name]) for name in ("q", "k", "v", "bias")}
        q = self.shapes["q"]
        assert q is not None
        self.batch = q[0] if len(q) == 4 else 1
        if dim["sinks"] is not None:
            raise Unsupported("vmap over sinks: they are of heads, the same for all calls; loop over the calls")
        if given["cu_seqlens_q"] is not None or given["cu_seqlens_k"] is not None:
            raise Unsupported("vmap over packed sequences: they are one batch; put all sequences into one call")
        if given["dropout"] and info.randomness != "different":
            raise Unsupported(f"vmap with dropout and randomness = {info.randomness!r}: give randomness='different'")
        if dim["seed"] is not None:
            raise Unsupported("vmap over seeds: a call has one, and drops other weights in each batch; give one for all calls")
        numbers = given["pattern"]
        if numbers is not None and self.batch > 1 and len(numbers) == self.batch * q[2 if tokens_first(given["layout"]) else 1]:
            given["pattern"] = numbers.repeat(self.times)  # one for each head of each batch
        for name in ("seqused_q", "seqused_k"):
            if given[name] is not None:
                given[name] = self.folded(given[name], dim[name], 1)
        for name in ("q", "k", "v", *ARRAYS):
            if name != "sinks":
                given[name] = self.folded(given[name], dim[name], 2 if name == "alibi_slopes" else 4)

    @staticmethod
    def _alone(x: Tensor, dim: Optional[int]) -> tuple[int, ...]:
        shape = list(x.shape)
        if dim is not None:
            shape.pop(dim)
        return tuple(shape)

    def folded(self, x: Optional[Tensor], dim: Optional[int], full: int) -> Optional[Tensor]:
        """x of all calls, of `full` dimensions. A batch of size 1, or none, is that of all batches."""
        if x is None:
            return None
        x = x.expand(self.times, *x.shape) if dim is None else x.movedim(dim, 0)
        x = x.reshape(self.times, *(1,) * (full + 1 - x.dim()), *x.shape[1:])
        return x.expand(-1, self.batch, *x.shape[2:]).reshape(self.times * self.batch, *x.shape[2:])

    def of_each(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A result of all calls as a result of this shape for each."""
        return x.reshape(self.times, *shape)


def forward(op: Any, names: Sequence[str], info: Any, dims: Sequence[Any], *arguments: Any) -> Any:
    calls = _Calls(info, names, arguments, dims)
    o, lse = op(*calls.given.values())
    q, v = calls.shapes["q"], calls.shapes["v"]
    assert q is not None and v is not None
    rows = q[:-1] if not tokens_first(calls.given["layout"]) else (*q[:-3], q[-2], q[-3])
    exact = calls.given["approximate"] is None
    return (calls.of_each(o, (*q[:-1], v[-1])), calls.of_each(lse, rows) if exact else lse.expand(calls.times, 0)), (0, 0)


def backward(op: Any, names: Sequence[str], info: Any, dims: Sequence[Any], *arguments: Any) -> Any:
    do, o, lse, dlse, bias_gradient, sinks_gradient, *rest = arguments
    if sinks_gradient:
        raise Unsupported("vmap with a gradient of sinks: it is summed over all calls; loop over the calls")
    calls = _Calls(info, names, rest, dims[6:])
    do, o = (calls.folded(x, dim, 4) for x, dim in ((do, dims[0]), (o, dims[1])))
    if calls.given["approximate"] is None:
        lse, dlse = calls.folded(lse, dims[2], 3), calls.folded(dlse, dims[3], 3)
    dq, dk, dv, dbias, none = op(do, o, lse, dlse, bias_gradient, False, *calls.given.values())
    each = [calls.of_each(x, shape) for x, shape in ((dq, calls.shapes["q"]), (dk, calls.shapes["k"]), (dv, calls.shapes["v"])) if shape]
    empty = none.new_empty((calls.times, 0))
    shape = calls.shapes["bias"]
    if bias_gradient and shape is not None:
        dbias = dbias.reshape(calls.times, calls.batch, *dbias.shape[1:])
        if len(shape) < 4 or shape[0] == 1:
            dbias = dbias.sum(1)
        each.append(calls.of_each(dbias, shape))
    else:
        each.append(empty)
    return (*each, empty), (0,) * 5
