"""torch.func.vmap over redblue's operators: the dimension that is mapped becomes part of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from .._call.options import ARRAYS
from .._call.settings import tokens_first
from .._errors import Unsupported

_OF_SINKS = "vmap with a gradient or a direction of sinks: a gradient of sinks is summed over all calls; loop over the calls"


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

    def o_shape(self) -> tuple[int, ...]:
        q, v = self.shapes["q"], self.shapes["v"]
        assert q is not None and v is not None
        return (*q[:-1], v[-1])

    def lse_shape(self) -> tuple[int, ...]:
        rows = self.o_shape()[:-1]
        return (*rows[:-2], rows[-1], rows[-2]) if tokens_first(self.given["layout"]) else rows

    def of_inputs(self, *found: Tensor) -> list[Tensor]:
        """Results like q, k and v, of each call."""
        return [self.of_each(x, shape) for x, shape in zip(found, (self.shapes["q"], self.shapes["k"], self.shapes["v"])) if shape]

    def of_bias(self, found: Tensor) -> Tensor:
        """A gradient of the bias, of each call, from that of all batches."""
        shape = self.shapes["bias"]
        assert shape is not None
        found = found.reshape(self.times, self.batch, *found.shape[1:])
        return self.of_each(found.sum(1) if len(shape) < 4 or shape[0] == 1 else found, shape)

    def of_each(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A result of all calls as a result of this shape for each."""
        return x.reshape(self.times, *shape)


def _is_of_one_call(dim_of_o: Optional[int], names: Sequence[str], arguments: Sequence[Any], of_sinks: bool) -> bool:
    """Is it a derivative, in several directions, of one call that cannot be one of several batches? With dropout these drop other
    weights; packed sequences are one batch; of_sinks: a direction or a gradient of sinks is that of all batches."""
    given = dict(zip(names, arguments))
    packed = given["cu_seqlens_q"] is not None or given["cu_seqlens_k"] is not None
    return dim_of_o is None and (of_sinks or given["dropout"] or packed)


def _one_after_another(op: Any, info: Any, dims: Sequence[Any], arguments: Sequence[Any]) -> Any:
    each = [op(*(x.select(dim, i) if isinstance(dim, int) else x for x, dim in zip(arguments, dims))) for i in range(info.batch_size)]
    found = tuple(None if x[0] is None else torch.stack(x) for x in zip(*each))
    return found, tuple(None if x is None else 0 for x in found)


def forward(op: Any, names: Sequence[str], info: Any, dims: Sequence[Any], *arguments: Any) -> Any:
    calls = _Calls(info, names, arguments, dims)
    o, lse = op(*calls.given.values())
    o = calls.of_each(o, calls.o_shape())
    if calls.given["approximate"] is None:
        return (o, calls.of_each(lse, calls.lse_shape())), (0, 0)
    return (o, None if lse is None else lse.expand(calls.times, 0)), (0, None if lse is None else 0)


def backward(op: Any, names: Sequence[str], info: Any, dims: Sequence[Any], *arguments: Any) -> Any:
    do, o, lse, dlse, bias_gradient, sinks_gradient, *rest = arguments
    if _is_of_one_call(dims[1], names, rest, sinks_gradient):
        return _one_after_another(op, info, dims, arguments)
    if sinks_gradient:
        raise Unsupported(_OF_SINKS)
    calls = _Calls(info, names, rest, dims[6:])
    do, o = (calls.folded(x, dim, 4) for x, dim in ((do, dims[0]), (o, dims[1])))
    if calls.given["approximate"] is None:
        lse, dlse = calls.folded(lse, dims[2], 3), calls.folded(dlse, dims[3], 3)
    dq, dk, dv, dbias, _ = op(do, o, lse, dlse, bias_gradient, False, *calls.given.values())
    each = calls.of_inputs(dq, dk, dv)
    empty = dq.new_empty((calls.times, 0))
    each.append(calls.of_bias(dbias) if bias_gradient and calls.shapes["bias"] is not None else empty)
    return (*each, empty), (0,) * 5


def tangent(op: Any, names: Sequence[str], info: Any, dims: Sequence[Any], *arguments: Any) -> Any:
    *directions, tsinks, o, lse = arguments[:7]
    if _is_of_one_call(dims[5], names, arguments[7:], tsinks is not None):
        return _one_after_another(op, info, dims, arguments)
    if tsinks is not None:
        raise Unsupported(_OF_SINKS)
    calls = _Calls(info, names, arguments[7:], dims[7:])
    rows = [calls.folded(x, dim, 4) for x, dim in zip(directions, dims)]
    of_forward = calls.folded(o, dims[5], 4), calls.folded(lse, dims[6], 3)
    to, tlse = op(*rows, None, *of_forward, *calls.given.values())
    return (calls.of_each(to, calls.o_shape()), calls.of_each(tlse, calls.lse_shape())), (0, 0)


def second(op: Any, names: Sequence[str], info: Any, dims: Sequence[Any], *arguments: Any) -> Any:
    gsinks, bias_gradient, sinks_gradient = arguments[4:7]
    of_sinks = gsinks is not None or sinks_gradient
    if _is_of_one_call(dims[8], names, arguments[11:], of_sinks):
        return _one_after_another(op, info, dims, arguments)
    if of_sinks:
        raise Unsupported(_OF_SINKS)
    calls = _Calls(info, names, arguments[11:], dims[11:])
    directions = [calls.folded(x, dim, 4) for x, dim in zip(arguments[:4], dims)]
    do, o = (calls.folded(x, dim, 4) for x, dim in zip(arguments[7:9], dims[7:9]))
    lse, dlse = (calls.folded(x, dim, 3) for x, dim in zip(arguments[9:11], dims[9:11]))
    *found, ldo, ldlse, lbias, _ = op(*directions, None, bias_gradient, False, do, o, lse, dlse, *calls.given.values())
    each = [*calls.of_inputs(*found), calls.of_each(ldo, calls.o_shape())]
    each.append(None if dlse is None else calls.of_each(ldlse, calls.lse_shape()))
    each += [None if lbias is None else calls.of_bias(lbias), None]
    return tuple(each), tuple(None if x is None else 0 for x in each)
