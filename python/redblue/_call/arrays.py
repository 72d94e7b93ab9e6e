"""Families of arrays: how the core reads one, and how an output of the same kind is made.

A family has
    native(x)             what redblue._core takes for x: a buffer, a tuple (address, type, shape, strides), or a tensor whose
                          type was named to _core.read_by_exchange
    type_of(x, name)      "f64", "f32", "f16", "bf16" or "bool", of keys and values also "int8"; TypeError for other types
    is_dense(x)           do the features of a row lie side by side?
    dense(x)              x, or a copy whose features do
    empty(x, shape, type, name)  a new array like x, and where x is, of this shape and type; the name of x is for errors
    maker(shape, type)    a function without arguments that makes a new array, or None: then empty, or empty_like where an input
                          has its shape and type and lies in order
    empty_like(x)         a new array of the shape, type and order of x
    written(x, shape)     what is written of an output that the caller gives, and that must have this shape
    written_by_core(x, shape)  the same, as the core takes it
    zeros(x)              a new array of zeros of the shape and type of x
    filled(x, shape, type, value)  as empty, with this value, or these, in it
    where(rows, x, y)     of arrays and a number y: x where rows is true, else y
    where_any(rows, f, x) f() if any of rows is true, else x
    run(plan, arrays, tokens_first, seed)  runs a plan on the tuple that Request.arrays makes
    attended(call, r, o, lse)  new o and lse, with which a call for a part of the keys goes on from these two
    moved(call, r, o, lse, along)  how o and lse move, with the directions by their names
    given(x, name)        x, checked and as the family wants it
    output(x, name)       the same of an array that a run writes to
    finished(o)           an output as its caller gets it
    refuses_nan           is a NaN in bias, alibi_slopes or sinks an error, or do its rows become NaN, as in torch?
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _core
from .._errors import InvalidProblem, type_error

_NAMES = {np.dtype(np.float64): "f64", np.dtype(np.float32): "f32", np.dtype(np.float16): "f16", np.dtype(bool): "bool"}
#: Names of arrays that may be of int8.
INT8 = frozenset(("k", "v", "k_cache", "v_cache"))
_TYPES: dict[str, Any] = {"f64": np.dtype(np.float64), "f32": np.dtype(np.float32), "f16": np.dtype(np.float16)}


def refuse_masked(x: Any, name: str) -> None:
    """Refuses a masked array of NumPy: its mask would be ignored."""
    if np.ma.is_masked(x):
        raise TypeError(
            f"{name} is a masked array with masked elements, which would be read as they lie in memory: fill them, as .filled(0) "
            "does, and hide keys by a bias of bool, where True keeps"
        )


def require_shape(name: str, x: Any, wanted: Any) -> None:
    """Refuses an array that has another shape than `wanted`, but for sizes of 1 in front."""
    shapes = [(1,) * (4 - len(shape)) + tuple(shape) for shape in (x.shape, wanted)]
    if shapes[0] != shapes[1]:
        raise InvalidProblem(f"{name} is {list(x.shape)}: give [{', '.join(map(str, wanted))}]")


class InPlace:
    """What families have in common whose arrays are written in place."""

    empty: Callable[..., Any]

    given: Callable[..., Any]
    output: Callable[..., Any]

    @staticmethod
    def run(plan: Any, arrays: tuple, tokens_first: bool, seed: int) -> None:
        plan.run(arrays, tokens_first, seed, False)

    @classmethod
    def written(cls, x: Any, shape: Any, name: str = "out") -> Any:
        """Its shape is judged first: then a tensor whose shape is refused keeps its version."""
        require_shape(name, cls.given(x, name), shape)
        return cls.output(x, name)

    native: Callable[..., Any]

    @classmethod
    def written_by_core(cls, x: Any, shape: Any) -> Any:
        return cls.native(cls.written(x, shape))

    @classmethod
    def filled(cls, x: Any, shape: tuple[int, ...], type: str, value: Any) -> Any:
        found = cls.empty(x, shape, type)
        found[...] = value
        return found

    @staticmethod
    def where_any(rows: Any, f: Callable[[], Any], x: Any) -> Any:
        return f() if rows.any() else x

    @classmethod
    def attended(cls, call: Any, r: Any, o: Any, lse: Any) -> tuple[Any, Any]:
        cls.run(call.plan, r.arrays(o, lse), call.tokens_first, 0)
        return o, lse

    @classmethod
    def moved(cls, call: Any, r: Any, o: Any, lse: Any, along: dict[str, Any]) -> tuple[Any, Any]:
        to, tlse = cls.empty(r.q, call.o_shape, call.type), cls.empty(r.q, call.lse_shape, call.lse_type)
        cls.run(call.plan, r.arrays(o, lse, to=to, tlse=tlse, **along), call.tokens_first, 0)
        return to, tlse


class NumPy(InPlace):
    """numpy.ndarray; bfloat16 is that of ml_dtypes."""

    refuses_nan = True

    @staticmethod
    def type_of(x: np.ndarray, name: str) -> str:
        found = _NAMES.get(x.dtype)
        if found is None:
            if x.dtype == np.int8 and name in INT8:
                return "int8"
            if x.dtype.name != "bfloat16" or not x.dtype.isnative:
                raise type_error(name, x.dtype)
            _NAMES[x.dtype] = found = "bf16"
            _TYPES["bf16"] = x.dtype
        return found

    @staticmethod
    def native(x: np.ndarray) -> Any:
        return x.view(np.uint16) if x.dtype.kind == "V" else x  # bfloat16, of which Python has no format

    @staticmethod
    def is_dense(x: np.ndarray) -> bool:
        return x.strides[-1:] == (x.itemsize,) or x.shape[-1:] == (1,)

    @staticmethod
    def dense(x: np.ndarray) -> np.ndarray:
        return x if NumPy.is_dense(x) else x.copy()

    @staticmethod
    def empty(x: np.ndarray, shape: tuple[int, ...], type: str, name: str = "") -> np.ndarray:
        return np.empty(shape, _TYPES[type])

    empty_like = staticmethod(np.empty_like)

    @staticmethod
    def maker(shape: tuple[int, ...], type: str) -> Callable[[], Any]:
        return functools.partial(np.empty, shape, _TYPES[type])

    @staticmethod
    def zeros(x: np.ndarray) -> np.ndarray:
        return np.zeros(x.shape, x.dtype)

    @staticmethod
    def where(rows: np.ndarray, x: np.ndarray, y: float) -> np.ndarray:
        return np.where(rows, x, x.dtype.type(y))

    @staticmethod
    def given(x: Any, name: str) -> np.ndarray:
        if isinstance(x, np.ndarray):
            refuse_masked(x, name)
            array = x.view(np.ndarray)
        else:
            array = _imported(x, name)
        NumPy.type_of(array, name)
        return array

    @staticmethod
    def output(x: Any, name: str) -> np.ndarray:
        array = NumPy.given(x, name)
        if not array.flags.writeable:
            raise InvalidProblem(f"{name} is read-only: an output must be writable")
        return array

    @staticmethod
    def finished(o: np.ndarray) -> Any:
        return o


class Imported(NumPy):
    """Arrays of other libraries in the CPU's memory, read by DLPack or the buffer protocol. Outputs are arrays of the
    library, made by the `asarray` of its namespace (the array API standard), or of NumPy where it has none."""

    def __init__(self, namespace: Any):
        self.namespace = namespace

    def finished(self, o: np.ndarray) -> Any:  # type: ignore[override]
        return o if self.namespace is None else self.namespace.asarray(o)


def _imported(x: Any, name: str) -> np.ndarray:
    if isinstance(x, (memoryview, bytearray)) or hasattr(x, "typecode"):
        return np.asarray(x)
    if not hasattr(x, "__dlpack__"):
        raise TypeError(
            f"{name} is a {type(x).__name__}: give an array of NumPy or PyTorch, or one with DLPack or the buffer protocol"
        )
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(x, jax.core.Tracer):
        raise TypeError(f"{name} is a tracer of JAX, without values: redblue.jax has functions for jit, grad and vmap")
    try:
        device = x.__dlpack_device__()[0]
    except (ValueError, RuntimeError, TypeError, BufferError) as e:
        raise TypeError(f"{name} is a {type(x).__name__} on a device that DLPack does not name ({e}): copy it to the CPU") from e
    if device != 1:
        raise TypeError(f"{name} is on device {x.__dlpack_device__()} (DLPack's numbers): redblue runs on the CPU; copy it there")
    try:
        return np.from_dlpack(x)
    except (RuntimeError, TypeError, BufferError, ValueError) as e:
        array = np.asarray(x)  # NumPy's DLPack has no bfloat16
        if array.dtype == object:
            raise TypeError(f"{name} is a {type(x).__name__} that does not give its elements by DLPack ({e}): copy it") from e
        return array


_core.remember_types(np.ndarray, None)


def is_tensor(x: Any) -> bool:
    """Is x a tensor of torch?"""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def integers(x: Any, name: str) -> tuple[int, ...]:
    """A list or array of whole numbers, as a tuple; empty for None."""
    if x is None:
        return ()
    refuse_masked(x, name)
    try:
        given = x.tolist() if hasattr(x, "tolist") else tuple(x)
        found = tuple(map(operator.index, given))
    except TypeError:
        raise InvalidProblem(f"{name} = {x!r}: give a list or an array of whole numbers, of one dimension") from None
    if bool in set(map(type, given)):
        raise InvalidProblem(f"{name} = {x!r}: True and False are no whole numbers; give a list or an array of these")
    if found and not -(2**63) <= min(found) <= max(found) < 2**63:
        raise InvalidProblem(f"{name} = {list(found)}: give whole numbers of at most 63 bits")
    return found
