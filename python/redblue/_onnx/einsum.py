"""The two products of attention in a graph of ONNX, whether MatMul or Einsum: which operand is which, and how it is turned."""

from __future__ import annotations

from typing import NamedTuple, Optional

import onnx

from .graph import Size, View, attribute


class Left(Exception):
    """Why a product is no Attention."""


class Operand(NamedTuple):
    """A tensor of the graph. `perm`: of a Transpose that turns it into what is meant; None: it is that."""

    name: str
    perm: Optional[list[int]] = None

    def sizes(self, view: View) -> Optional[tuple[Size, ...]]:
        sizes = view.sizes(self.name)
        return sizes if sizes is None or self.perm is None else tuple(sizes[axis] for axis in self.perm)


def turned(perm: list[int]) -> Optional[list[int]]:
    return None if perm == list(range(len(perm))) else perm


def scores_of(view: View, node: onnx.NodeProto) -> tuple[Operand, Operand, bool]:
    """Q [.., n, d], the other operand, and is that K [.., m, d], not K^T?"""
    if node.op_type == "MatMul":
        return Operand(node.input[0]), Operand(node.input[1]), False
    a, b, out = _letters(view, node)
    batch, n, m = out[:-2], out[-2], out[-1]
    q, k = (0, 1) if n in a else (1, 0)
    of_q, of_k = (a, b)[q], (a, b)[k]
    d = "".join(letter for letter in of_q if letter not in out)
    if len(d) != 1 or sorted(of_q) != sorted(batch + n + d) or sorted(of_k) != sorted(batch + m + d):
        raise _other(node)
    return Operand(node.input[q], _perm(of_q, batch + n + d)), Operand(node.input[k], _perm(of_k, batch + m + d)), True


def values_of(view: View, node: onnx.NodeProto, weights: int) -> tuple[Operand, Optional[list[int]]]:
    """V [.., m, e], and how Attention's result is turned into that of the node, one of whose operands are the weights."""
    if node.op_type == "MatMul":
        return Operand(node.input[1]), None
    *operands, out = _letters(view, node)
    p, v = operands[weights], operands[1 - weights]
    batch, n, m = p[:-2], p[-2], p[-1]
    e = "".join(letter for letter in v if letter not in p)
    if len(e) != 1 or sorted(v) != sorted(batch + m + e) or sorted(out) != sorted(batch + n + e):
        raise _other(node)
    return Operand(node.input[1 - weights], _perm(v, batch + m + e)), _perm(batch + n + e, out)


def _perm(of: str, to: str) -> Optional[list[int]]:
    return turned([of.index(letter) for letter in to])


def _other(node: onnx.NodeProto) -> Left:
    return Left(f"Einsum {_equation(node)} is no product of Q and K, or of weights and V, as Attention has them")


def _equation(node: onnx.NodeProto) -> str:
    value = attribute(node, "equation", b"")
    return value.decode() if isinstance(value, bytes) else str(value)


def _letters(view: View, node: onnx.NodeProto) -> list[str]:
    """The letters of both operands and of the result, two or more of each."""
    equation = _equation(node).replace(" ", "")
    operands, arrow, out = equation.partition("->")
    parts = [*operands.split(","), out]
    if not arrow or len(parts) != 3:
        raise _other(node)
    if "..." in equation:
        counts = set()
        for part, name in zip(parts, (*node.input, node.output[0])):
            counts.add(len(view.sizes(name) or ()) - len(part.replace("...", "")))
        if len(counts) > 1 or min(counts) < 0 or any(part.count("...") != 1 for part in parts):
            raise _other(node)
        free = [letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter not in equation]
        parts = [part.replace("...", "".join(free[: min(counts)])) for part in parts]
    if min(map(len, parts)) < 2 or any(not part.isalpha() or len(set(part)) != len(part) for part in parts):
        raise _other(node)
    return parts
