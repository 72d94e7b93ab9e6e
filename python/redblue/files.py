"""Attention over files that need not fit into memory: the program redblue reads and writes them block by block.

    import redblue.files
    redblue.files.run("q.npy", "k.npy", "v.npy", out="o.npy", memory="256MiB", causal=True)

Nothing here reads the data of a file, or copies it: `tensor` says where it lies, and `run` starts the program, whose memory is
its own and stays below `memory` and a constant (docs/files.md). h5py and zarr are needed for their own arrays alone.
"""

from __future__ import annotations

import json
import logging
import mmap
import operator
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from . import _core
from ._call.arrays import NumPy
from ._errors import InvalidProblem, Unsupported
from ._program import printed_while

PathLike = Union[str, "os.PathLike[str]"]

__all__ = ["Tensor", "run", "tensor"]

#: The types of elements that the program reads.
_TYPES = ("f64", "f32", "f16", "bf16", "bool")


#: h5py.h5d.COMPACT
_COMPACT = 0


class Tensor(NamedTuple):
    """Where a tensor lies: the byte of the file at which its first element begins, type, shape, and strides in elements."""

    path: str
    offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def raw(self) -> str:
        """As the program's option --raw takes it."""
        shape, strides = ("x".join(map(str, sizes)) for sizes in (self.shape, self.strides))
        return f"{self.path}:{self.dtype}:{shape}/{strides}@{self.offset}"


def _checked(what: str, t: Tensor) -> Tensor:
    """Refuses what the program cannot read from where it lies."""
    if not t.shape or 0 in t.shape:
        raise InvalidProblem(f"{what} has the shape {list(t.shape)}: give a tensor with rows and columns, none of them 0")
    if any(stride < 0 for stride in t.strides):
        raise Unsupported(f"{what} has strides {list(t.strides)}: rows backwards are not read from a file; reverse the queries or keys in it")
    return t


def _row_by_row(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, stride = [], 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= size
    return tuple(reversed(strides))


def _of_place(what: str, place: tuple) -> Tensor:
    path, offset, type_, shape, strides, swapped = place
    if swapped:
        raise Unsupported(f"{what} has the other byte order: write it anew in that of this machine, as .astype('=f4') does")
    return _checked(what, Tensor(path, offset, type_, shape, strides))


def _memmap_of(x: Any) -> Optional[np.memmap]:
    """The np.memmap that an array is, or is a view of."""
    while isinstance(x, np.ndarray):
        if isinstance(x, np.memmap) and getattr(x, "_mmap", None) is not None:
            return x
        x = x.base
    return None


def _of_memmap(x: np.ndarray, whole: np.memmap) -> Tensor:
    what = f"the np.memmap of {whole.filename}"
    mapping: Any = getattr(whole, "_mmap", None)
    if whole.filename is None:
        raise InvalidProblem("an np.memmap of a file without a name: give the path of one that has a name")
    if whole.mode == "c":
        raise Unsupported(f"{what} has the mode 'c', whose changes are in memory alone: open it with 'r' or 'r+'")
    if whole.mode != "r":
        whole.flush()
    type_ = NumPy.type_of(x, what)
    if any(stride % x.itemsize for stride in x.strides):
        raise Unsupported(f"{what} has strides of {x.strides} bytes, no multiples of its {x.itemsize}: write the field to a file of its own")
    mapped = np.frombuffer(mapping, np.uint8)
    begins = whole.offset - whole.offset % mmap.ALLOCATIONGRANULARITY  # the byte of the file that is mapped first
    offset = begins + x.__array_interface__["data"][0] - mapped.__array_interface__["data"][0]
    return _checked(what, Tensor(os.fspath(whole.filename), offset, type_, x.shape, tuple(s // x.itemsize for s in x.strides)))


def _of_h5py(x: Any) -> Tensor:
    what = f"the dataset {x.name} of {x.file.filename}"
    instead = "write it contiguous: create_dataset(name, data=..., chunks=None, compression=None)"
    if x.is_virtual or x.external:
        raise Unsupported(f"{what} lies in other files: give those")
    if x.chunks is not None:
        filters = ", ".join([x.compression or ""] * bool(x.compression) + ["shuffle"] * x.shuffle + ["fletcher32"] * x.fletcher32)
        raise Unsupported(f"{what} has chunks of {x.chunks}{f', filtered by {filters}' if filters else ''}: {instead}")
    if x.id.get_create_plist().get_layout() == _COMPACT:
        raise Unsupported(f"{what} is compact, within the header of the file: {instead}")
    if x.id.get_storage_size() == 0:  # get_offset() gives a number all the same where the file has a user block
        raise Unsupported(f"{what} has no place in the file, for nothing was written to it: {instead}")
    if x.file.driver not in ("sec2", "stdio"):
        raise Unsupported(f"{what} is opened by the driver {x.file.driver}, which does not say where it lies: open it without a driver")
    if x.file.mode != "r":
        x.file.flush()
    return _checked(what, Tensor(x.file.filename, x.id.get_offset(), NumPy.type_of(x, what), x.shape, _row_by_row(x.shape)))


def _of_zarr(x: Any) -> Tensor:
    what = f"the zarr array {x.name or x.store_path}"
    instead = "write one chunk of bytes: zarr.create_array(..., chunks=shape, compressors=None, filters=None)"
    if x.metadata.zarr_format != 3:
        raise Unsupported(f"{what} has the format {x.metadata.zarr_format}: {instead}, in format 3")
    root = getattr(x.store, "root", None)
    if root is None or type(x.store).__name__ != "LocalStore":
        raise Unsupported(f"{what} lies in a {type(x.store).__name__}: only files of a LocalStore have a place")
    codecs = [codec.to_dict() for codec in x.metadata.codecs]
    if x.shards is not None:
        raise Unsupported(f"{what} has shards of {x.shards}, and zarr does not say where chunks lie in them: {instead}")
    if others := [codec["name"] for codec in codecs if codec["name"] != "bytes"]:
        raise Unsupported(f"{what} has the chunk codec {', '.join(map(str, others))}: {instead}")
    if any(size > chunk for size, chunk in zip(x.shape, x.chunks)):
        raise Unsupported(f"{what} has chunks of {x.chunks} for a shape of {x.shape}, each in a file of its own: {instead}")
    if codecs[0].get("configuration", {}).get("endian", "little") != "little":
        raise Unsupported(f"{what} is big-endian: write it little-endian")
    key = x.metadata.encode_chunk_key((0,) * len(x.shape))
    path = Path(root) / x.path / key
    if not path.exists():
        raise Unsupported(f"{what} has no chunk {key}, for nothing but its fill value was written to it: write it")
    return _checked(what, Tensor(str(path), 0, NumPy.type_of(x, what), x.shape, _row_by_row(x.chunks)))


def _whole_number(what: str, value: Any, least: Optional[int] = None) -> int:
    """`value`, which may be a number of numpy."""
    whole = hasattr(value, "__index__") and not isinstance(value, (bool, np.bool_))
    if not whole or (least is not None and value < least):
        raise InvalidProblem(f"{what} = {value!r}: give a whole number{'' if least is None else f' from {least} on'}")
    return operator.index(value)


def tensor(
    source: Any,
    name: Optional[str] = None,
    *,
    dtype: Optional[str] = None,
    shape: Optional[tuple[int, ...]] = None,
    offset: Optional[int] = None,
    strides: Optional[tuple[int, ...]] = None,
) -> Tensor:
    """Where a tensor lies, without reading it.

    source   an np.memmap or a view of one, as np.asarray and np.broadcast_to give, too; the path of a .npy file; that of a safetensors file, with the `name` of the tensor;
             a dataset of h5py that is contiguous; an array of zarr (format 3) that is one chunk without a codec; or any other
             file, with `dtype` ("f64", "f32", "f16", "bf16", or "bool" for a bias), `shape`, and the byte `offset` at which it
             begins (0 by default), little-endian, row by row or with `strides` in elements

    Raises InvalidProblem and Unsupported, which name what would work, FileError, and TypeError where an array has elements of a
    type that redblue does not compute with, such as int32.
    """
    described = {"dtype": dtype, "shape": shape, "offset": offset, "strides": strides}
    if given := [key for key, value in described.items() if value is not None]:
        if not isinstance(source, (str, os.PathLike)) or dtype is None or shape is None:
            raise InvalidProblem(f"{', '.join(given)}: these describe a file without a header; give its path, dtype and shape")
        if dtype not in _TYPES:
            raise InvalidProblem(f"dtype = {dtype!r}: give one of {', '.join(_TYPES)}")
        if strides is not None and len(strides) != len(shape):
            raise InvalidProblem(f"strides = {strides}: give one for each of {len(shape)} dimensions")
        path, sizes = os.fspath(source), tuple(_whole_number("a size of shape", size, 0) for size in shape)
        steps = _row_by_row(sizes) if strides is None else tuple(_whole_number("a stride", stride) for stride in strides)
        return _checked(path, Tensor(path, _whole_number("offset", 0 if offset is None else offset, 0), dtype, sizes, steps))
    if isinstance(source, Tensor):
        return source
    if (whole := _memmap_of(source)) is not None:
        return _of_memmap(source, whole)
    if isinstance(source, np.memmap):
        raise InvalidProblem("an np.memmap that is in no file, as the result of arithmetic is: save it, and give the file")
    library = type(source).__module__.partition(".")[0]
    if library == "h5py" and hasattr(source, "id") and hasattr(source, "shape"):
        return _of_h5py(source)
    if library == "zarr" and hasattr(source, "metadata") and hasattr(source, "shape"):
        return _of_zarr(source)
    if not isinstance(source, (str, os.PathLike)):
        raise InvalidProblem(f"{type(source).__name__} is in no file: give a path, an np.memmap, or an array of h5py or zarr; np.save makes a file")
    path = os.fspath(source)
    if path.endswith(".safetensors"):
        if name is None:
            raise InvalidProblem(f"{path} holds tensors by name: give the name, as in tensor({path!r}, 'q')")
        return _of_place(f"{name} of {path}", _core.safetensors_place(path, name))
    if name is not None:
        raise InvalidProblem(f"name = {name!r}: only the tensors of safetensors have names, and {path} does not end like that")
    if path.endswith(".npy"):
        return _of_place(path, _core.npy_place(path))
    raise InvalidProblem(f"{path} ends neither in .npy nor in .safetensors: give dtype and shape of a file without a header")


#: The output of an operation that goes to a .npy file, where there is but one.
_OUTPUT = {"forward": "o", "scores": "s", "weights": "p"}
#: What decides here, or is no option of a run over files.
_NOT_OPTIONS = ("input", "output", "raw", "json", "quiet", "strict", "ignore", "name", "help")


def _outputs(op: str, out: Union[PathLike, Mapping[str, PathLike]]) -> list[str]:
    """The words of the command line that say where outputs go."""
    if isinstance(out, Mapping):
        if not out or any(not os.fspath(path).endswith(".npy") for path in out.values()):
            raise InvalidProblem(f"out = {dict(out)}: give a .npy file for each output, as in {{'o': 'o.npy', 'lse': 'lse.npy'}}")
        return [word for name, path in out.items() for word in (f"--{name}", os.fspath(path))]
    path = os.fspath(out)
    if path.endswith(".safetensors"):
        return ["--output", path]
    if not path.endswith(".npy"):
        raise InvalidProblem(f"out = {path!r}: give a .npy file, or .safetensors, which holds all outputs")
    if op not in _OUTPUT:
        raise InvalidProblem(f"out = {path!r}: op {op!r} has several outputs: give a .safetensors file, or a .npy file for each, by name")
    return [f"--{_OUTPUT[op]}", path]


def _text_of(name: str, value: Any) -> str:
    """The value of an option as a word: a tuple is a list with commas, and a dictionary one of names with =."""
    if isinstance(value, np.ndarray):
        if value.ndim > 1 or value.dtype.kind not in "iuf":
            raise InvalidProblem(f"{name} is an array of {value.dtype} {list(value.shape)}: np.save it, and give the path of the .npy file")
        value = value.tolist()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_text_of(name, one)}" for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(_text_of(name, one) for one in value)
    return str(value)


def _flags(options: Mapping[str, Any]) -> list[str]:
    """The words for options of the program; flags are true or false there, and None leaves an option out."""
    words = []
    for name, value in options.items():
        if name in _NOT_OPTIONS:
            raise InvalidProblem(f"{name} is no option of redblue.files.run: inputs are tensors, `out` says where outputs go")
        if value is not None:
            words.append(f"--{name.replace('_', '-')}={_text_of(name, value)}")
    return words


def run(
    q: Any,
    k: Any,
    v: Any = None,
    *,
    out: Union[PathLike, Mapping[str, PathLike]],
    memory: Union[int, str] = "256MiB",
    op: str = "forward",
    o: Any = None,
    lse: Any = None,
    do: Any = None,
    bias: Any = None,
    alibi_slopes: Any = None,
    sinks: Any = None,
    **options: Any,
) -> dict:
    """Attention over files, within `memory`, by the program redblue. Outputs appear complete or not at all.

    Inputs are what `tensor` takes, or its result; slopes and sinks may be arrays in memory, too. `out` is a .npy file for the
    output, a .safetensors file for all outputs, or a .npy file for each, by name: {"o": "o.npy", "lse": "lse.npy"}.

        redblue.files.run("q.npy", "k.npy", "v.npy", out="o.npy", causal=True, window=(4096, 0))
        redblue.files.run(q, k, v, do=do, op="backward", out={"dq": "dq.npy", "dk": "dk.npy", "dv": "dv.npy"})

    op is that of `redblue run --op`, as are all other options, by their names there: causal, window, scale, softcap, layout,
    compute_dtype, M, schedule, ... (docs/cli.md). Returns the report of the run: words, bytes, bounds, time. What the program
    says meanwhile, such as how far it is every ten seconds, goes to the logger "redblue" as info.

    Raises what `tensor` raises, and InvalidProblem with the message of the program where that refuses or fails.
    """
    inputs = {"q": q, "k": k, "v": v, "o": o, "lse": lse, "do": do, "bias": bias, "slopes": alibi_slopes, "sinks": sinks}
    with tempfile.TemporaryDirectory(prefix="redblue-") as directory:
        words = []
        for name, source in inputs.items():
            if source is None:
                continue
            if name in ("slopes", "sinks") and isinstance(source, np.ndarray) and not isinstance(source, np.memmap):
                small = source.astype(np.float64 if source.dtype == np.float64 else np.float32)
                source = Path(directory) / f"{name}.npy"
                np.save(source, small)
            words += ["--raw", f"{name}={tensor(source).raw}"]
        command = ["run", "--op", op, "--memory", memory, *words, *_outputs(op, out), *_flags(options), "--json"]
        return json.loads(printed_while(logging.getLogger("redblue").info, *command))
