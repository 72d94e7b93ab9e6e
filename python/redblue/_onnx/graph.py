"""A graph of ONNX as one looks for patterns in it: who makes a tensor, who reads it, its type, sizes and constant value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Optional, Union

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

#: A size: a number, a name, or None where nothing is known of it. Two sizes of one name are equal.
Size = Union[int, str, None]
#: The names that ONNX's shape inference makes up. Two different ones may be equal all the same.
_MADE_UP = "unk__"


class Type(NamedTuple):
    """What is known of a tensor: its element type (0: nothing), and its sizes, or None where even their number is unknown."""

    element: int
    sizes: Optional[tuple[Size, ...]]


def equal(a: Size, b: Size) -> Optional[bool]:
    """Are two sizes equal? It is None where the graph does not tell. Two names that a person gave are taken to differ."""
    if a is None or b is None:
        return None
    if a == b:
        return True
    if isinstance(a, int) and isinstance(b, int):
        return False
    named = all(isinstance(x, str) and not x.startswith(_MADE_UP) for x in (a, b))
    return False if named else None


def attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    for a in node.attribute:
        if a.name == name:
            return onnx.helper.get_attribute_value(a)
    return default


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for a in node.attribute:
        if a.type == onnx.AttributeProto.GRAPH:
            yield a.g
        yield from a.graphs


def _read_by(node: onnx.NodeProto) -> Iterator[str]:
    """What a node reads, the tensors of outer graphs that its bodies read among it."""
    yield from (name for name in node.input if name)
    for body in _bodies(node):
        for inner in body.node:
            yield from _read_by(inner)
        yield from (o.name for o in body.output)


def nodes_in_bodies(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        for body in _bodies(node):
            yield from body.node
            yield from nodes_in_bodies(body)


class View:
    """A graph. `inferred` is the same model after shape inference."""

    def __init__(self, model: onnx.ModelProto, inferred: onnx.ModelProto):
        graph = model.graph
        self.graph = graph
        self.maker: dict[str, onnx.NodeProto] = {o: node for node in graph.node for o in node.output if o}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in _read_by(node):
                self.readers.setdefault(name, []).append(node)
        self.results = {o.name for o in graph.output}
        inputs = {i.name for i in graph.input}
        self._tensors = {t.name: t for t in graph.initializer if t.name not in inputs}  # a caller may give those of inputs anew
        self._types = {t.name: Type(t.data_type, tuple(t.dims)) for t in inferred.graph.initializer}
        for value in (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output):
            if value.type.HasField("tensor_type"):
                self._types[value.name] = _type_of(value.type.tensor_type)

    def type(self, name: str) -> Type:
        return self._types.get(name, Type(0, None))

    def sizes(self, name: str) -> Optional[tuple[Size, ...]]:
        return self.type(name).sizes

    def constant(self, name: str) -> Optional[np.ndarray]:
        """The value of a tensor that is the same in every run and stands in the file of the model itself."""
        tensor = self._tensors.get(name)
        if tensor is None:
            node = self.maker.get(name)
            if node is None or node.op_type not in ("Constant", "Identity"):
                return None
            if node.op_type == "Identity":
                return self.constant(node.input[0])
            for key, to in (("value_float", np.float32), ("value_int", np.int64), ("value_floats", np.float32), ("value_ints", np.int64)):
                value = attribute(node, key)
                if value is not None:
                    return np.asarray(value, to)
            tensor = attribute(node, "value")
        if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
            return None
        return numpy_helper.to_array(tensor)

    def number(self, name: str) -> Optional[float]:
        """The value of a constant of one element."""
        value = self.constant(name)
        return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else None

    def is_scalar(self, name: str, beside: str) -> bool:
        """Has the tensor one element, in every run, and no more dimensions than the one beside it?"""
        value = self.constant(name)
        sizes = self.sizes(name) if value is None else value.shape
        if sizes is None or any(size != 1 for size in sizes):
            return False
        return len(sizes) <= len(self.sizes(beside) or ())


def _type_of(t: Any) -> Type:
    if not t.HasField("shape"):
        return Type(t.elem_type, None)
    return Type(t.elem_type, tuple(d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in t.shape.dim))


def replace_nodes(graph: onnx.GraphProto, nodes: list[onnx.NodeProto], removed: list[onnx.NodeProto]) -> None:
    """Gives the graph these nodes, less those that are removed, and what only they read: nodes and initializers."""
    kept = {t.name for t in graph.initializer} - _read_in(graph, graph.node)
    gone = {id(node) for node in removed}
    nodes = [node for node in nodes if id(node) not in gone]
    candidates = {name for node in removed for name in _read_by(node)}
    while True:
        read = _read_in(graph, nodes)
        dead = [node for node in nodes if any(o in candidates for o in node.output) and not any(o in read for o in node.output)]
        if not dead:
            break
        candidates.update(name for node in dead for name in _read_by(node))
        gone = {id(node) for node in dead}
        nodes = [node for node in nodes if id(node) not in gone]
    del graph.node[:]
    graph.node.extend(nodes)
    tensors = [t for t in graph.initializer if t.name in read or t.name in kept]
    del graph.initializer[:]
    graph.initializer.extend(tensors)
    known = {o for node in nodes for o in node.output}
    values = [v for v in graph.value_info if v.name in known]
    del graph.value_info[:]
    graph.value_info.extend(values)


def _read_in(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> set[str]:
    return {name for node in nodes for name in _read_by(node)} | {o.name for o in graph.output}
