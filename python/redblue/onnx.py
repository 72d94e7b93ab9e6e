"""ONNX: redblue as the Attention operator of opsets 23 and later. Needs the package onnx.

    outputs = redblue.onnx.evaluator(model).run(None, {"Q": q, "K": k, "V": v})    # a model; other operators: ONNX's own
    outputs = redblue.onnx.Backend.run_model(model, [q, k, v])                       # the interface of onnx.backend
    print(fused := redblue.onnx.fuse(model)); fused.model                            # MatMul, Softmax, MatMul as Attention

`python -m redblue.onnx fuse MODEL.onnx -o OUT.onnx` does the last for files.

The evaluator is onnx.reference.ReferenceEvaluator, whose Attention is replaced. docs/semantics.md says what Attention is.
"""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import onnx
from onnx.backend.base import Backend as _Backend
from onnx.backend.base import BackendRep, Device, DeviceType
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from ._attention import attention
from ._errors import InvalidProblem, Unsupported
from ._onnx.fuse import Found, Fused, fuse
from ._scores import scores, weights

__all__ = ["Attention", "Backend", "Found", "Fused", "evaluator", "fuse", "prepare", "run_model", "run_node", "supports_device"]

FLOATS = ("float64", "float32", "float16", "bfloat16")


def _common(a: np.dtype, b: np.dtype) -> np.dtype:
    """The type that holds all numbers of two types of floats."""
    return a if a == b else np.dtype(np.float64 if "float64" in (a.name, b.name) else np.float32)


def _heads_first(x: np.ndarray, heads: Optional[int], name: str, attribute: str) -> np.ndarray:
    """[batch, n, heads d] as [batch, heads, n, d]."""
    if x.ndim == 4:
        return x
    if x.ndim != 3 or not heads or x.shape[2] % heads:
        raise InvalidProblem(
            f"{name} is {list(x.shape)} and {attribute} is {heads}: give [batch, heads, n, d], or [batch, n, heads d] with "
            f"{attribute}"
        )
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def _bias(mask: np.ndarray, n_k: int, kind: np.dtype) -> np.ndarray:
    """attn_mask in the type of q. It may end before the last key: the keys after its end are hidden."""
    if mask.shape[-1] < n_k:
        hidden = False if mask.dtype == bool else -np.inf
        mask = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, n_k - mask.shape[-1])], constant_values=hidden)
    return mask if mask.dtype == bool else mask.astype(kind, copy=False)


class Attention(OpRun):
    """The operator, for onnx.reference.ReferenceEvaluator(model, new_ops=[Attention])."""

    op_domain = ""

    def _run(  # type: ignore[override]
        self,
        Q: np.ndarray,
        K: np.ndarray,
        V: np.ndarray,
        attn_mask: Optional[np.ndarray] = None,
        past_key: Optional[np.ndarray] = None,
        past_value: Optional[np.ndarray] = None,
        nonpad_kv_seqlen: Optional[np.ndarray] = None,
        *,
        is_causal: Optional[int] = None,
        kv_num_heads: Optional[int] = None,
        left_window_size: Optional[int] = None,
        q_num_heads: Optional[int] = None,
        qk_matmul_output_mode: Optional[int] = None,
        right_window_size: Optional[int] = None,
        scale: Optional[float] = None,
        softcap: Optional[float] = None,
        softmax_precision: Optional[int] = None,
    ) -> tuple:
        for name, x in (("Q", Q), ("V", V)):
            if x.dtype.name not in FLOATS:
                raise Unsupported(f"{name} has elements of type {x.dtype}: give one of {', '.join(FLOATS)}")
        if K.dtype != Q.dtype:
            raise Unsupported(f"K has elements of type {K.dtype} and Q of {Q.dtype}: only V may have another type")
        q = _heads_first(Q, q_num_heads, "Q", "q_num_heads")
        k = _heads_first(K, kv_num_heads, "K", "kv_num_heads")
        v = _heads_first(V, kv_num_heads, "V", "kv_num_heads")
        if (past_key is None) != (past_value is None):
            raise InvalidProblem("past_key and past_value: give both or neither")
        past = 0
        if past_key is not None and past_value is not None:
            past = past_key.shape[2]
            k, v = np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2)
        n_k = k.shape[2]
        present_k, present_v, kind = k, v, _common(Q.dtype, V.dtype)
        q, k, v = (x.astype(kind, copy=False) for x in (q, k, v))
        with_scores = len(self.onnx_node.output) > 3 and self.onnx_node.output[3] != ""
        # softmax_precision asks for an arithmetic at least as wide; that of fp32 and fp64 is, and products of bf16 are not.
        compute = "f32" if softmax_precision and kind.name == "bfloat16" else None
        scaled: dict[str, Any] = {"scale": scale, "compute": compute}
        capped: dict[str, Any] = {"softcap": softcap or 0.0}
        mask: dict[str, Any] = {}
        left, right = (-1 if w is None else w for w in (left_window_size, right_window_size))
        if is_causal:
            mask["causal"] = True
        if left >= 0 or right >= 0:
            mask["window"] = (left, right)
        if nonpad_kv_seqlen is not None:  # the last query of each batch stands at its last key: redblue's own alignment
            mask["seqused_k"] = nonpad_kv_seqlen
        elif mask:
            mask["alignment"] = past
        if attn_mask is not None:
            mask["bias"] = _bias(attn_mask, n_k, q.dtype)

        o, lse = attention(q, k, v, return_lse=True, **scaled, **capped, **mask)
        y = o if Q.ndim == 4 else o.swapaxes(1, 2).reshape(*Q.shape[:2], -1)
        s = None
        if with_scores:
            mode = qk_matmul_output_mode or 0
            if mode not in range(4):
                raise InvalidProblem(f"qk_matmul_output_mode = {mode}: give a number from 0 to 3")
            options = {**scaled, **(capped if mode > 0 else {}), **(mask if mode > 1 else {})}
            s = weights(q, k, lse, **options) if mode == 3 else scores(q, k, **options)
            s = s.astype(Q.dtype, copy=False)
        made = (y.astype(Q.dtype, copy=False), present_k, present_v, s)
        return made[: max(1, len(self.onnx_node.output))]


class GatherElements(OpRun):
    """ONNX's own finds nothing where an axis has more than 64 entries, as the positions of a language model do."""

    op_domain = ""

    def _run(self, data: np.ndarray, indices: np.ndarray, axis: int = 0) -> tuple:  # type: ignore[override]
        axis %= data.ndim
        part = tuple(slice(None if i == axis else n) for i, n in enumerate(indices.shape))
        return (np.take_along_axis(data[part], indices, axis),)


def evaluator(model: Any, **options: Any) -> ReferenceEvaluator:
    """onnx.reference.ReferenceEvaluator(model, **options) with redblue's Attention: run(names or None, {name: array}).

    `model` is what that class takes: a ModelProto, a NodeProto, a function, a file's name. Errors are those of
    `redblue.attention`.
    """
    return ReferenceEvaluator(model, new_ops=[Attention, GatherElements, *options.pop("new_ops", [])], **options)


class _Prepared(BackendRep):
    def __init__(self, model: onnx.ModelProto):
        self._evaluator = evaluator(model)

    def run(self, inputs: Any, **_: Any) -> tuple:
        """`inputs`: arrays in the order of the graph's inputs, or {name: array}."""
        named = inputs if isinstance(inputs, dict) else dict(zip(self._evaluator.input_names, inputs))
        return tuple(self._evaluator.run(None, named))


class Backend(_Backend):
    """redblue under the interface of onnx.backend."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return Device(device).type == DeviceType.CPU

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> _Prepared:
        if not cls.supports_device(device):
            raise Unsupported(f"device {device}: redblue runs on the CPU")
        super().prepare(model, device, **kwargs)  # checks the model
        return _Prepared(model)

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", **_: Any) -> tuple:  # type: ignore[override]
        if not cls.supports_device(device):
            raise Unsupported(f"device {device}: redblue runs on the CPU")
        given = [name for name in node.input if name]
        return tuple(evaluator(node).run(None, dict(zip(given, inputs))))


prepare, run_model, run_node, supports_device = Backend.prepare, Backend.run_model, Backend.run_node, Backend.supports_device


if __name__ == "__main__":
    from ._onnx.program import main

    main()
