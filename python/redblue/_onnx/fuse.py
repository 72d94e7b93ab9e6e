"""redblue.onnx.fuse: Softmax(Q K^T) V of a model as the operator Attention."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

import numpy as np
import onnx
from onnx import TensorProto, helper, inliner, numpy_helper, version_converter

from .._errors import InvalidProblem, Unsupported
from .einsum import Left, Operand
from .graph import View, nodes_in_bodies, replace_nodes
from .match import Added, Hidden, Match, match, softmax_before

#: The first opset that has Attention.
OPSET = 23


class Found(NamedTuple):
    """A product of weights and values. `why`: why it was left; empty where it is an Attention now."""

    name: str
    said: str
    why: str


@dataclass
class Fused:
    """What fuse returns; str() is the report."""

    model: onnx.ModelProto
    found: list[Found]
    converted: str  # what was done to the model before, or ""

    @property
    def count(self) -> int:
        return sum(not f.why for f in self.found)

    def __str__(self) -> str:
        lines = [self.converted] if self.converted else []
        lines += [f"left   {f.name}: {f.why}" if f.why else f"fused  {f.name}: {f.said}" for f in self.found]
        there = sum(node.op_type == "Attention" and node.domain in ("", "ai.onnx") for node in self.model.graph.node) - self.count
        return "\n".join([*lines, f"{self.count} of {len(self.found)} fused{f', and {there} there before' if there else ''}"])


def fuse(model: onnx.ModelProto) -> Fused:
    """A copy of the model in which Softmax(scale Q K^T + mask) V is the operator Attention, where that is the same.

    Both are the same in exact arithmetic, for finite Q, K and V; but a query all of whose keys a mask of -inf hides has 0
    where the graph has NaN. A model of an opset before 23 is converted to 23 by ONNX's own converter, and functions of the model are
    inlined. `found` says of each product what became of it, `str()` is the report. Raises InvalidProblem for what is no
    valid model, and Unsupported where ONNX cannot convert it.
    """
    if not isinstance(model, onnx.ModelProto) or not model.graph.node:
        raise InvalidProblem("the model has no graph with nodes: give an onnx.ModelProto, as onnx.load returns it")
    made, converted = _converted(model)
    try:
        inferred = onnx.shape_inference.infer_shapes(made, data_prop=True)
    except Exception as e:
        raise InvalidProblem(f"ONNX's shape inference refuses the model: {_first_line(e)}") from e
    view = View(made, inferred)
    found: list[Found] = []
    nodes: list[onnx.NodeProto] = []
    removed: list[onnx.NodeProto] = []
    seen: set[str] = set()  # the outputs of softmaxes of which something was said
    names = _Names({name for node in made.graph.node for name in (*node.input, *node.output, node.name)})
    for node in made.graph.node:
        before = _weights(view, node)
        if before is not None:
            seen.add(before[1].output[0])
            try:
                m = match(view, node, *before)
                nodes.extend(_Writer(view, m, names).nodes())
                removed.extend(m.removed)
                found.append(Found(_name(node), _said(m), ""))
            except Left as left:
                found.append(Found(_name(node), "", str(left)))
        nodes.append(node)
    found += _near(view, seen)
    if not removed:
        return Fused(model, found, "")
    replace_nodes(made.graph, nodes, removed)
    if not in_other_files(made):  # which the checker would look for
        onnx.checker.check_model(made)
    return Fused(made, found, converted)


def _weights(view: View, node: onnx.NodeProto) -> Optional[tuple[int, onnx.NodeProto, list[onnx.NodeProto], bool]]:
    """Which operand of a product are weights, and what softmax_before says of it."""
    for i in range({"MatMul": 1, "Einsum": len(node.input)}.get(node.op_type, 0)):
        before = softmax_before(view, node.input[i])
        if before is not None:
            return i, *before
    return None


def in_other_files(model: onnx.ModelProto) -> set[str]:
    """The files beside the model's own in which its weights lie."""
    return {
        entry.value
        for tensor in model.graph.initializer
        if tensor.data_location == TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }


def _name(node: onnx.NodeProto) -> str:
    return node.name or node.output[0]


def _first_line(e: Exception) -> str:
    return (str(e).strip().splitlines() or [type(e).__name__])[0]


def _converted(model: onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    """A copy of the model in an opset that has Attention, and what was done for that."""
    said = []
    made = onnx.ModelProto()
    made.CopyFrom(model)
    if made.functions:
        made = inliner.inline_local_functions(made)
        said.append(f"{len(model.functions)} functions inlined")
    source = made
    version = next((o.version for o in made.opset_import if o.domain in ("", "ai.onnx")), 0)
    if version < OPSET:
        try:
            made = version_converter.convert_version(made, OPSET)
        except Exception as e:
            raise Unsupported(
                f"the model is of opset {version}, Attention needs {OPSET}, and ONNX's converter refuses ({_first_line(e)}): "
                f"export it anew with opset_version={OPSET}"
            ) from e
        said.append(f"opset {version} converted to {OPSET}")
        made.graph.ClearField("value_info")  # the converter's, which knows less
        results = {o for node in made.graph.node for o in node.output}
        made.graph.value_info.extend(v for v in source.graph.value_info if v.name in results)
    needed = helper.find_min_ir_version_for([helper.make_opsetid("", max(version, OPSET))], ignore_unknown=True)
    made.ir_version = max(made.ir_version, needed)
    return made, ", ".join(said)


#: What may stand between a softmax and a product that is near to attention.
_SHAPES = ("Reshape", "Transpose", "Unsqueeze", "Squeeze", "Expand", "Concat", "Slice", "Mul", "Add", "Cast", "Identity", "Dropout", "Where")


def _near(view: View, seen: set[str]) -> Iterator[Found]:
    """The softmaxes whose weights come to a product in another way."""
    for node in view.graph.node:
        if node.op_type != "Softmax" or node.output[0] in seen:
            continue
        names, way = [node.output[0]], ""
        for _ in range(4):
            readers = [reader for name in names for reader in view.readers.get(name, [])]
            product = next((r for r in readers if r.op_type in ("MatMul", "Einsum", "Gemm")), None)
            if product is not None:
                second = "" if way or product.op_type != "MatMul" else ", where they are the second factor"
                yield Found(_name(node), "", f"its weights go through {way or 'nothing'} to a {product.op_type}{second}")
                break
            through = [r for r in readers if r.op_type in _SHAPES]
            if not through:
                break
            way += f"{' and ' if way else ''}{through[0].op_type}"
            names = [o for r in through for o in r.output]
    for node in nodes_in_bodies(view.graph):
        if node.op_type == "Softmax":
            yield Found(_name(node), "", "it stands in the body of an If, a Loop or a Scan, where nothing is replaced")


def _said(m: Match) -> str:
    said = [f"scale {m.scale:.6g}" if not m.factors else "scale as computed"]
    said += [f"softcap {m.softcap:.6g}"] if m.softcap else []
    said += [f"mask {mask.name}" if isinstance(mask, Added) else f"hidden by {mask.name}" for mask in m.masks]
    if m.masks and not m.guarded:
        said.append("a query that sees no key has 0, not NaN")
    if m.taken:
        said.append(f"taken for equal, for shapes do not tell: {', '.join(m.taken)}")
    return "; ".join(said)


class _Names:
    """Names that no tensor and no node has."""

    def __init__(self, used: set[str]):
        self._used = used

    def new(self, wanted: str) -> str:
        name, i = wanted, 1
        while name in self._used:
            name, i = f"{wanted}_{i}", i + 1
        self._used.add(name)
        return name


class _Writer:
    """The nodes of one Attention."""

    def __init__(self, view: View, m: Match, names: _Names):
        self._view, self._m, self._names = view, m, names
        self._nodes: list[onnx.NodeProto] = []

    def nodes(self) -> list[onnx.NodeProto]:
        m = self._m
        q, scale = self._scaled(self._turned(m.q))
        k, v = self._turned(m.k), self._turned(m.v)
        mask = self._mask(k)
        axes = {4: None, 3: [1], 2: [0, 1]}[m.rank]
        y = m.product.output[0]
        operands = [q, k, v]
        if axes is not None:
            at = self._numbers(axes)
            operands = [self._add("Unsqueeze", [x, at]) for x in operands]
            if mask and self._dimensions_of_mask() == 3:
                mask = self._add("Unsqueeze", [mask, at])
        more: dict[str, Any] = {"softmax_precision": m.precision} if m.precision else {}
        if m.softcap:
            more["softcap"] = m.softcap
        result = self._add("Attention", operands + [mask] if mask else operands, scale=scale, **more)
        if axes is not None:
            result = self._add("Squeeze", [result, at])
        if m.turn is not None:
            self._add("Transpose", [result], perm=m.turn)
        self._nodes[-1].output[0] = y
        return self._nodes

    def _turned(self, x: Operand) -> str:
        return x.name if x.perm is None else self._add("Transpose", [x.name], perm=x.perm)

    def _add(self, op: str, inputs: list[str], **attributes: Any) -> str:
        result = self._names.new(f"{self._m.product.output[0]}/{op}")
        name = self._names.new(f"{_name(self._m.product)}/{op}/node")
        self._nodes.append(helper.make_node(op, inputs, [result], name, **attributes))
        return result

    def _constant(self, value: np.ndarray) -> str:
        return self._add("Constant", [], value=numpy_helper.from_array(value))

    def _numbers(self, values: list[int]) -> str:
        return self._constant(np.array(values, np.int64))

    def _like_q(self, value: float) -> str:
        kind = helper.tensor_dtype_to_np_dtype(self._m.element)
        with np.errstate(over="ignore"):  # beyond all numbers is -inf, as in the graph
            return self._constant(np.array(value).astype(kind))

    def _scaled(self, q: str) -> tuple[str, float]:
        """Q, times what the attribute scale cannot hold: what only a run knows, a negative number, digits beyond fp32."""
        m = self._m
        for name, divides in m.factors:
            q = self._add("Div" if divides else "Mul", [q, name])
        exact = m.element != TensorProto.DOUBLE or float(np.float32(m.scale)) == m.scale
        if m.scale >= 0 and math.isfinite(m.scale) and exact:
            return q, m.scale
        return self._add("Mul", [q, self._like_q(m.scale)]), 1.0

    def _mask(self, k: str) -> str:
        """The mask, of bool or added, or ""."""
        m = self._m
        if not m.masks:
            return ""
        only = m.masks[0]
        if len(m.masks) == 1 and isinstance(only, Hidden) and only.number == -math.inf:
            mask = only.name if only.keeps else self._add("Not", [only.name])
        else:
            mask = ""
            for step in m.masks:
                if isinstance(step, Added):
                    times = -step.times if step.minus else step.times
                    part = step.name if times == 1 else self._add("Mul", [step.name, self._like_q(times)])
                    mask = self._add("Add", [mask, part]) if mask else part
                else:
                    below, hidden = mask or self._like_q(0), self._like_q(step.number * step.times)
                    mask = self._add("Where", [step.name, *((below, hidden) if step.keeps else (hidden, below))])
        if m.mask_is_whole:
            return mask
        # Attention takes a short mask for one whose last keys are hidden; Add and Where broadcast it.
        axis = m.rank - 2
        return self._add("Expand", [mask, self._add("Shape", [k], start=axis, end=axis + 1)])

    def _dimensions_of_mask(self) -> int:
        return max(1, *(len(self._view.sizes(mask.name) or ()) for mask in self._m.masks))
