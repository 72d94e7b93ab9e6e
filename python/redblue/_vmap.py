"""torch.func.vmap over redblue's operators: the dimension that is mapped becomes part of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from torch import Tensor

from ._errors import Unsupported

_TENSORS = 6  # q, k, v, bias, slopes, sinks come first, then the options
_LAYOUT, _DROPOUT, _SEED, _CU_SEQLENS, _SEQUSED = 0, 7, 8, (9, 10), (11, 12)  # among the options
APPROXIMATE, PATTERNS = 15, 17


class _Calls:
    """`times` calls of `batch` batches each, which become one call of times x batch."""

    def __init__(self, info: Any, arguments: Sequence[Any], dims: Sequence[Any]):
        self.times: int = info.batch_size
        self.shapes = [None if x is None else self._alone(x, dim) for x, dim in zip(arguments[:_TENSORS], dims)]
        q = self.shapes[0]
        assert q is not None
        self.batch = q[0] if len(q) == 4 else 1
        self.options = list(arguments[_TENSORS:])
        if dims[5] is not None:
            raise Unsupported("vmap over sinks: they are of heads, the same for all calls; loop over the calls")
        if any(self.options[i] is not None for i in _CU_SEQLENS):
            raise Unsupported("vmap over packed sequences: they are one batch; put all sequences into one call")
        if self.options[_DROPOUT] and info.randomness != "different":
            raise Unsupported(f"vmap with dropout and randomness = {info.randomness!r}: give randomness='different'")
        if dims[_TENSORS + _SEED] is not None:
            raise Unsupported("vmap over seeds: a call has one, and drops other weights in each batch; give one for all calls")
        numbers = self.options[PATTERNS]
        if numbers is not None and self.batch > 1 and len(numbers) == self.batch * q[1 if self.options[_LAYOUT] == "bhsd" else 2]:
            self.options[PATTERNS] = numbers.repeat(self.times)  # one for each head of each batch
        for i in _SEQUSED:
            if self.options[i] is not None:
                self.options[i] = self.folded(self.options[i], dims[_TENSORS + i], 1)
        self.tensors = [self.folded(x, dim, full) for x, dim, full in zip(arguments, dims, (4, 4, 4, 4, 2))]
        self.tensors.append(arguments[5])

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


def forward(op: Any, info: Any, dims: Sequence[Any], *arguments: Any) -> Any:
    calls = _Calls(info, arguments, dims)
    o, lse = op(*calls.tensors, *calls.options)
    q, v = calls.shapes[0], calls.shapes[2]
    assert q is not None and v is not None
    rows = q[:-1] if calls.options[_LAYOUT] == "bhsd" else (*q[:-3], q[-2], q[-3])
    exact = calls.options[APPROXIMATE] is None
    return (calls.of_each(o, (*q[:-1], v[-1])), calls.of_each(lse, rows) if exact else lse.expand(calls.times, 0)), (0, 0)


def backward(op: Any, info: Any, dims: Sequence[Any], *arguments: Any) -> Any:
    do, o, lse, bias_gradient, sinks_gradient, *rest = arguments
    if sinks_gradient:
        raise Unsupported("vmap with a gradient of sinks: it is summed over all calls; loop over the calls")
    calls = _Calls(info, rest, dims[5:])
    do, o = (calls.folded(x, dim, 4) for x, dim in ((do, dims[0]), (o, dims[1])))
    if calls.options[APPROXIMATE] is None:
        lse = calls.folded(lse, dims[2], 3)
    dq, dk, dv, dbias, none = op(do, o, lse, bias_gradient, False, *calls.tensors, *calls.options)
    each = [calls.of_each(x, shape) for x, shape in zip((dq, dk, dv), calls.shapes) if shape is not None]
    empty = none.new_empty((calls.times, 0))
    shape = calls.shapes[3]
    if bias_gradient and shape is not None:
        dbias = dbias.reshape(calls.times, calls.batch, *dbias.shape[1:])
        if len(shape) < 4 or shape[0] == 1:
            dbias = dbias.sum(1)
        each.append(calls.of_each(dbias, shape))
    else:
        each.append(empty)
    return (*each, empty), (0,) * 5
