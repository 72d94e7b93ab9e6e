"""Tensors of PyTorch as a family of arrays (_call/arrays.py). Imported where a tensor is given, so that torch stays optional."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import profiler

from .. import _core
from .._errors import type_error
from .arrays import INT8, InPlace

_NAMES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.bool: "bool"}
_NUMBERS = {torch.float64: 0, torch.float32: 1, torch.float16: 2, torch.bfloat16: 3, torch.bool: 4, torch.int8: 5}
_TYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

#: Does the core read tensors by itself? torch has DLPack's C functions from 2.10 on.
_READ_BY_CORE = _core.read_by_exchange(torch.Tensor)
_core.remember_types(None, vars(profiler))


def _no_memory(x: torch.Tensor) -> TypeError:
    return TypeError(f"a tensor has no dense memory of its own ({x.layout}): give a plain one, as .to_dense() makes it")


def require_dense(x: torch.Tensor, name: str) -> None:
    if x.is_nested:
        raise TypeError(
            f"{name} is a nested tensor: give its sequences packed, .values() of a jagged one and cu_seqlens, or padded, "
            ".to_padded_tensor(0.0) and seqused"
        )
    if x.layout != torch.strided or x.is_quantized:
        raise TypeError(f"{name} is no dense tensor ({x.layout}): make it one with .to_dense()")


def empty_in_order(x: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A new tensor whose dimensions lie in memory in the order of those of x, the features innermost, as torch's own attention
    makes its outputs: .transpose(1, 2).view(...) after it then works. Contiguous, if x has another number of dimensions."""
    strides, outer = [], 1 << 62
    for stride in x.stride()[:-1]:
        outer = stride if stride != 0 else outer  # an expanded dimension stays behind the one in front of it
        strides.append(outer)
    if len(shape) != x.dim() or strides == sorted(strides, reverse=True):
        return x.new_empty(shape, dtype=dtype)
    order = sorted(range(len(strides)), key=strides.__getitem__, reverse=True)
    return torch.empty_permuted(shape, (*order, len(strides)), dtype=dtype, device=x.device)


def _is_permuted(strides: tuple[int, ...]) -> bool:
    """Does torch.empty_like keep the order of these dimensions, and are the features innermost?"""
    return strides[-1] == 1 and min(strides) > 0 and strides.count(1) == 1


class Torch(InPlace):
    """torch.Tensor, dense and on the CPU."""

    refuses_nan = False

    @staticmethod
    def type_of(x: torch.Tensor, name: str) -> str:
        found = _NAMES.get(x.dtype)
        if found is None:
            if x.dtype is torch.int8 and name in INT8:
                return "int8"
            raise type_error(name, x.dtype, "bool()")
        return found

    @staticmethod
    def native(x: torch.Tensor) -> Any:
        if _READ_BY_CORE and type(x) is torch.Tensor:
            return x  # the core refuses other devices, too
        if not x.is_cpu:
            raise TypeError(f"a tensor is on device {x.device}: redblue runs on the CPU; move it there with .cpu()")
        try:
            return x.data_ptr(), _NUMBERS[x.dtype], x.shape, x.stride()
        except RuntimeError:
            raise _no_memory(x) from None

    @staticmethod
    def run(plan: Any, arrays: tuple, tokens_first: bool, seed: int) -> None:
        """With a range of its own where torch's profiler is on."""
        if not profiler._is_profiler_enabled:
            plan.run(arrays, tokens_first, seed, False)
        else:
            with profiler.record_function(plan.title):
                plan.run(arrays, tokens_first, seed, False)

    @staticmethod
    def is_dense(x: torch.Tensor) -> bool:
        try:
            return x.stride()[-1:] == (1,) or x.shape[-1:] == (1,)
        except RuntimeError:
            raise _no_memory(x) from None

    @staticmethod
    def dense(x: torch.Tensor) -> torch.Tensor:
        return x if Torch.is_dense(x) else x.clone(memory_format=torch.contiguous_format)

    @staticmethod
    def empty(x: torch.Tensor, shape: tuple[int, ...], type: str, name: str = "a tensor") -> torch.Tensor:
        try:
            if x.shape == shape and x.dtype is _TYPES[type] and (x.is_contiguous() or _is_permuted(x.stride())):
                return torch.empty_like(x)  # half the time of new_empty and of empty_in_order
            return empty_in_order(x, shape, _TYPES[type])
        except RuntimeError:  # torch's errors that something is not implemented are such, too
            require_dense(x, name)
            raise

    empty_like = staticmethod(torch.empty_like)

    @staticmethod
    def maker(shape: tuple[int, ...], type: str) -> None:
        return None

    @staticmethod
    def zeros(x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x)

    @staticmethod
    def where(rows: torch.Tensor, x: torch.Tensor, y: float) -> torch.Tensor:
        return x.masked_fill(~rows, y)

    @staticmethod
    def given(x: Any, name: str) -> torch.Tensor:
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} is a {type(x).__name__} and others are tensors of torch: give arrays of one kind")
        require_dense(x, name)
        if not x.is_cpu:
            raise TypeError(f"{name} is on device {x.device}: redblue runs on the CPU; move it there with .cpu()")
        Torch.type_of(x, name)
        return x.detach().resolve_neg() if x.requires_grad or x.is_neg() else x

    @staticmethod
    def output(x: Any, name: str) -> torch.Tensor:
        """Raises the tensor's version, by which autograd refuses to use what it kept of it before."""
        written = Torch.given(x, name)
        if x.is_neg():
            raise TypeError(f"{name} is a negated view, whose memory holds the other sign: give a plain tensor")
        if x.requires_grad and torch.is_grad_enabled():
            raise TypeError(f"{name} requires a gradient, and none is recorded of what is written to it: give {name}.detach()")
        torch.autograd.graph.increment_version(x)
        return written

    @staticmethod
    def finished(o: torch.Tensor) -> torch.Tensor:
        return o
