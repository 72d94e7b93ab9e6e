"""Tensors of a safetensors file as numpy arrays, bf16 as f32."""

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


def load_file(path):
    data = pathlib.Path(path).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, t in json.loads(data[8:start]).items():
        if t.get("dtype") not in TYPES:  # __metadata__, and what attention has no use for
            continue
        begin, end = t["data_offsets"]
        x = np.frombuffer(data[start + begin : start + end], TYPES[t["dtype"]]).reshape(t["shape"])
        tensors[name] = (x.astype(np.uint32) << 16).view(np.float32) if t["dtype"] == "BF16" else x
    return tensors
