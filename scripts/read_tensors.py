"""Tensors of a safetensors or .npz file as numpy arrays, bf16 as f32."""

import json
import pathlib

import numpy as np

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def in_order(x, layout=""):
    """x as [batch, heads, n, d], of axes that a file has in this order (default: the last of bhnd); those it lacks are 1."""
    layout = layout or "bhnd"[-x.ndim :]
    there = [a for a in "bhnd" if a in layout]
    x = x.transpose([layout.index(a) for a in there])
    return x.reshape([x.shape[there.index(a)] if a in there else 1 for a in "bhnd"])


def of_bits(x):
    """bf16, as the bits of it say."""
    return (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def load_npz(path):
    with np.load(path, allow_pickle=False) as file:
        tensors = {name: file[name] for name in file.files}
    wide = {name: of_bits(x) if x.dtype == np.dtype("V2") else x for name, x in tensors.items()}  # numpy has no bf16
    return {name: x for name, x in wide.items() if x.dtype.kind == "f"}


def load_file(path):
    data = pathlib.Path(path).read_bytes()
    if data.startswith(b"PK"):
        return load_npz(path)
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, t in json.loads(data[8:start]).items():
        if t.get("dtype") not in TYPES:  # __metadata__, and what attention has no use for
            continue
        begin, end = t["data_offsets"]
        x = np.frombuffer(data[start + begin : start + end], TYPES[t["dtype"]]).reshape(t["shape"])
        tensors[name] = of_bits(x) if t["dtype"] == "BF16" else x
    return tensors
