"""Softmax(Q K^T) V in a graph of ONNX: what it is made of, and whether the operator Attention is exactly the same."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple, Optional, Union

import numpy as np
import onnx
from onnx import TensorProto

from .einsum import Left, Operand, scores_of, turned, values_of
from .graph import Size, View, attribute, equal

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
#: Beside a number as low as this, that takes the place of scores, no score of fp32 below 2^75 changes a digit.
LOWEST = -(2.0**100)
#: The operators that may be a product of Q and K, or of weights and V.
PRODUCTS = ("MatMul", "Einsum")


@dataclass
class Added:
    """A tensor that is added to the scores, or subtracted. `times`: a number that multiplies it first."""

    name: str
    minus: bool = False
    times: float = 1.0


@dataclass
class Hidden:
    """Where a condition is not `keeps`, a number takes the place of the score. `name`: the condition."""

    name: str
    keeps: bool
    number: float
    times: float = 1.0  # what multiplies that number first


class Factor(NamedTuple):
    """A tensor of one element by which scores are multiplied, or divided."""

    name: str
    divides: bool


class CastTo(NamedTuple):
    """Scores become another type."""

    type: int


class Tanh(NamedTuple):
    """Scores become their hyperbolic tangent."""


@dataclass
class Match:
    """What becomes an Attention."""

    product: onnx.NodeProto  # by V
    removed: list[onnx.NodeProto]
    q: Operand
    k: Operand
    v: Operand
    turn: Optional[list[int]]  # of a Transpose that makes the product's result of Attention's
    rank: int
    element: int
    masks: list[Union[Added, Hidden]] = field(default_factory=list)  # in the order in which they act
    mask_is_whole: bool = False  # is the last size of the mask known to be the number of keys?
    scale: float = 1.0
    factors: list[Factor] = field(default_factory=list)  # that multiply the scores, too
    softcap: float = 0.0
    precision: int = 0  # of the softmax, where another than that of Q
    taken: list[str] = field(default_factory=list)  # sizes that are taken for equal
    guarded: bool = False  # does the graph itself make 0 of NaN?


def _plain(view: View, node: onnx.NodeProto, name: str) -> bool:
    """Does the node give on its first input as it is?"""
    if node.op_type == "Identity":
        return True
    if node.op_type == "Dropout":
        training = node.input[2] if len(node.input) > 2 else ""
        value = view.constant(training) if training else np.array(False)
        return node.output[0] == name and value is not None and not value.any()
    if node.op_type == "Cast":
        return attribute(node, "to") == view.type(node.input[0]).element
    return False


def softmax_before(view: View, name: str) -> Optional[tuple[onnx.NodeProto, list[onnx.NodeProto], bool]]:
    """The Softmax that makes these weights, the nodes between, and whether one of them makes 0 of NaN."""
    between: list[onnx.NodeProto] = []
    guarded = False
    while True:
        node = view.maker.get(name)
        if node is None:
            return None
        between.append(node)
        if node.op_type == "Softmax":
            return node, between, guarded
        if _plain(view, node, name) or node.op_type == "Cast":
            name = node.input[0]
            continue
        if node.op_type != "Where":
            return None
        condition, zero, x = node.input
        asks = view.maker.get(condition)
        if asks is None or asks.op_type != "IsNaN" or asks.input[0] != x or view.number(zero) != 0:
            return None
        between.append(asks)
        guarded = True
        name = x


class _Scores:
    """The chain from the Softmax down to the product of Q and K."""

    def __init__(self, view: View):
        self.view = view
        self.between: list[onnx.NodeProto] = []
        self.steps: list[Union[Added, Hidden, Factor, CastTo, Tanh]] = []  # the last one to act first

    def product(self, name: str) -> onnx.NodeProto:
        view, node = self.view, self.view.maker.get(name)
        if node is None:
            raise Left("the scores are no product, but an input or a constant")
        self.between.append(node)
        if node.op_type in PRODUCTS:
            return node
        if _plain(view, node, name):
            return self.product(node.input[0])
        if node.op_type == "Cast":
            self.steps.append(CastTo(attribute(node, "to")))
            return self.product(node.input[0])
        if node.op_type == "Tanh":
            self.steps.append(Tanh())
            return self.product(node.input[0])
        if node.op_type in ("Mul", "Div"):
            return self._scaled(node)
        if node.op_type == "Add":
            return self._either(node, [(node.input[i], Added(node.input[1 - i])) for i in (0, 1)])
        if node.op_type == "Sub":
            return self._either(node, [(node.input[0], Added(node.input[1], minus=True))])
        if node.op_type == "Where":
            condition = node.input[0]
            ways = [(node.input[i], node.input[3 - i], i == 1) for i in (1, 2) if view.is_scalar(node.input[3 - i], node.input[i])]
            numbers = [(x, Hidden(condition, keeps, number)) for x, c, keeps in ways if (number := view.number(c)) is not None]
            if not numbers:
                raise Left("a Where puts another thing than a constant number in the place of scores")
            return self._either(node, numbers)
        raise Left(f"{node.op_type} stands between the product of Q and K and the softmax")

    def _either(self, node: onnx.NodeProto, ways: list) -> onnx.NodeProto:
        """The way on which a product lies."""
        why: list[Left] = []
        for x, step in ways:
            kept = len(self.between), len(self.steps)
            self.steps.append(step)
            try:
                return self.product(x)
            except Left as left:
                del self.between[kept[0] :], self.steps[kept[1] :]
                why.append(left)
        raise why[0]

    def _scaled(self, node: onnx.NodeProto) -> onnx.NodeProto:
        divides = node.op_type == "Div"
        for i in (1,) if divides else (1, 0):
            if self.view.is_scalar(node.input[i], node.input[1 - i]):
                self.steps.append(Factor(node.input[i], divides))
                return self.product(node.input[1 - i])
        raise Left(f"{node.op_type} scales scores by another thing than one number")


def _unscaled(view: View, name: str) -> tuple[str, float]:
    """A factor that is one constant number is taken off an operand of the first product."""
    scale = 1.0
    while True:
        node = view.maker.get(name)
        if node is None:
            return name, scale
        if node.op_type == "Identity":
            name = node.input[0]
            continue
        if node.op_type not in ("Mul", "Div"):
            return name, scale
        for i in (1,) if node.op_type == "Div" else (1, 0):
            number = view.number(node.input[i])
            if number and view.is_scalar(node.input[i], node.input[1 - i]):
                scale = scale / number if node.op_type == "Div" else scale * number
                name = node.input[1 - i]
                break
        else:
            return name, scale


def _key(view: View, name: str, rank: int) -> Operand:
    """K, where `name` is K^T: features, then keys."""
    swap = [*range(rank - 2), rank - 1, rank - 2]
    node = view.maker.get(name)
    if node is not None and node.op_type == "Transpose":
        perm = list(attribute(node, "perm", range(rank)[::-1]))
        perm[-2:] = perm[:-3:-1]
        return Operand(node.input[0], turned(perm))
    # torch.onnx.export turns the last two dimensions of [B, H, n, d] as those of [B H, n, d].
    chain = []
    for op in ("Reshape", "Transpose", "Reshape"):
        if node is None or node.op_type != op:
            return Operand(name, swap)
        chain.append(node)
        source = node.input[0]
        node = view.maker.get(source)
    last, _, first = (view.sizes(n.output[0]) for n in chain)
    whole, swapped = view.sizes(source), attribute(chain[1], "perm") == [0, 2, 1]
    if swapped and first is not None and whole is not None and last is not None and len(first) == 3 and len(whole) == len(last) == 4:
        same = [*zip(whole[2:], first[1:]), *zip(whole[:2], last[:2]), (whole[2], last[3]), (whole[3], last[2])]
        if all(equal(a, b) for a, b in same):
            return Operand(source)
    return Operand(name, swap)


def match(
    view: View, product: onnx.NodeProto, weights_at: int, softmax: onnx.NodeProto, after: list[onnx.NodeProto], guarded: bool
) -> Match:
    """What becomes an Attention; raises Left where the two are not the same. The operand `weights_at` of the product are the
    weights."""
    axis, weights = attribute(softmax, "axis", -1), view.sizes(softmax.output[0])
    if axis != -1 and (weights is None or axis != len(weights) - 1):
        raise Left(f"its softmax is along the axis {axis}, not along the last, the keys")
    chain = _Scores(view)
    first = chain.product(softmax.input[0])
    removed = [product, *after, *chain.between]
    _require_no_other_readers(view, removed, product)
    q, k, is_key = scores_of(view, first)
    v, turn = values_of(view, product, weights_at)
    rank, element = _operands(view, q, k, v)
    sizes = q.sizes(view), _keys_first(k.sizes(view)) if is_key else k.sizes(view), v.sizes(view)
    name, scale = _unscaled(view, q.name)
    q = Operand(name, q.perm)
    name, of_keys = _unscaled(view, k.name)
    k = Operand(name, k.perm) if is_key else _key(view, name, rank)
    m = Match(product, removed, q, k, v, turn, rank, element, scale=scale * of_keys, guarded=guarded)
    _steps(view, m, chain.steps)
    if weights is not None and len(weights) != rank:
        raise Left(f"its weights have {len(weights)} dimensions, and Q, K and V have {rank}")
    for step in after[:-1]:
        if step.op_type == "Cast" and attribute(step, "to") not in (element, m.precision or element):
            raise Left("its weights are rounded to another type than that of Q")
    _sizes(view, m, *sizes)
    return m


def _keys_first(sizes: Optional[tuple[Size, ...]]) -> Optional[tuple[Size, ...]]:
    """The sizes of K^T, of those of K."""
    return sizes and (*sizes[:-2], sizes[-1], sizes[-2])


def _require_no_other_readers(view: View, removed: list[onnx.NodeProto], product: onnx.NodeProto) -> None:
    own = {id(node) for node in removed}
    for node in removed:
        for name in node.output:
            if node is product or not name:
                continue
            what = "weights" if node.op_type in ("Softmax", "Dropout") else "scores or weights"
            if name in view.results:
                raise Left(f"its {what} ({name}) are a result of the graph")
            for reader in view.readers.get(name, []):
                if id(reader) not in own:
                    raise Left(f"its {what} ({name}) are also read by {reader.op_type} {reader.name or reader.output[0]}")


def _operands(view: View, *operands: Operand) -> tuple[int, int]:
    """The number of dimensions and the element type that Q, K and V share."""
    types = [view.type(x.name) for x in operands]
    sizes = [t.sizes for t in types]
    if any(s is None for s in sizes):
        raise Left("the numbers of dimensions of Q, K and V are not known: shape inference does not find them")
    ranks = {len(s) for s in sizes if s is not None}
    if len(ranks) > 1 or not 2 <= min(ranks) <= max(ranks) <= 4:
        raise Left(f"Q, K^T and V have {', '.join(str(len(s or ())) for s in sizes)} dimensions, and Attention takes 4 of each")
    if len({t.element for t in types}) > 1 or types[0].element not in _FLOATS:
        names = ", ".join(TensorProto.DataType.Name(t.element) for t in types)
        raise Left(f"Q, K and V have elements of types {names}: Attention has one type of floats for products and result")
    return ranks.pop(), types[0].element


def _steps(view: View, m: Match, steps: list) -> None:
    """Reads what acts on the scores, from the product to the softmax."""
    for step in reversed(steps):
        if isinstance(step, (Added, Hidden)):
            if m.precision:
                raise Left("a mask is added after the scores are cast to another type")
            m.masks.append(step)
        elif isinstance(step, CastTo):
            wider = {TensorProto.FLOAT16: (1, 11), TensorProto.BFLOAT16: (1, 11), TensorProto.FLOAT: (11,)}.get(m.element, ())
            if step.type not in wider:
                raise Left("its scores are cast to a narrower type")
            m.precision = step.type
        elif isinstance(step, Tanh):
            if m.masks or m.precision or m.softcap:
                raise Left(f"a Tanh acts on its scores after {'a mask is added' if m.masks else 'they are cast or capped before'}")
            m.softcap = 1.0  # of the scores before; what multiplies it comes next
        else:
            _factor(view, m, step)
    for mask in m.masks:
        if isinstance(mask, Hidden) and mask.number != -math.inf:
            _require_lowest(m.element, mask.number * mask.times)
    if m.softcap and (not math.isfinite(m.softcap) or (m.element == TensorProto.DOUBLE and float(np.float32(m.softcap)) != m.softcap)):
        raise Left(f"its scores are capped at {m.softcap:g}, which is no number of fp32")


def _factor(view: View, m: Match, step: Factor) -> None:
    """Scores are multiplied: c (x + mask) = c x + c mask, and c tanh(x) = c tanh(c x / c)."""
    if m.precision:
        raise Left("its scores are scaled after they are cast to another type")
    number = view.number(step.name)
    if number is None or (step.divides and not number):
        if m.masks or m.softcap:
            raise Left(f"its scores are scaled by what only a run knows, after {'a mask is added' if m.masks else 'a Tanh'}")
        m.factors.append(step)
        return
    times = 1 / number if step.divides else number
    if m.masks and not 0 < times < math.inf:
        raise Left(f"its scores are scaled by {times:g} after a mask is added, and hidden ones with them")
    if m.softcap and not 0 < abs(times) < math.inf:
        raise Left(f"its scores are scaled by {times:g} after a Tanh")
    m.scale *= times
    m.softcap *= abs(times)
    for mask in m.masks:
        mask.times *= times


def _require_lowest(element: int, number: float) -> None:
    if element == TensorProto.FLOAT16 or not number <= LOWEST:
        raise Left(
            f"{number:g} takes the place of hidden scores: a query whose keys are all hidden sees them all alike, and Attention would not"
        )


def _sizes(view: View, m: Match, *operands: Optional[tuple[Size, ...]]) -> None:
    """Do sizes fit that MatMul, Add and Where broadcast, and Attention does not? operands: the sizes of Q, K^T and V."""
    q, k, v = ((1, 1, *(x or ()))[-4:] for x in operands)
    if m.rank == 3:  # [B, n, d]: the batch stands first, and there is one head
        q, k, v = ((x[1], 1, x[2], x[3]) for x in (q, k, v))
    keys = k[3]
    one_head = k[1] == 1 and v[1] == 1  # all heads of Q share it, in Attention as in MatMul
    _require(m, "batches of Q, K and V", (q[0], k[0]), (q[0], v[0]))
    _require(m, "heads of Q, K and V", *(() if one_head else ((q[1], k[1]), (k[1], v[1]))))
    _require(m, "keys of K and V", (keys, v[2]))
    scores = [q[0], q[1], q[2], keys] if m.rank == 4 else [q[0], q[2], keys]
    for mask in m.masks:
        sizes = view.sizes(mask.name)
        if sizes is None:
            raise Left(f"the number of dimensions of its mask {mask.name} is not known")
        if len(sizes) > m.rank:
            raise Left(f"its mask {mask.name} has {len(sizes)} dimensions, and its scores have {m.rank}")
        pairs = list(zip(reversed(sizes), reversed(scores)))
        _require(m, "sizes of mask and scores", *(pair for pair in pairs if pair[0] != 1))
        m.mask_is_whole = m.mask_is_whole or bool(pairs and equal(*pairs[0]))


def _require(m: Match, what: str, *pairs: tuple[Size, Size]) -> None:
    same = [equal(a, b) for a, b in pairs]
    if False in same:
        a, b = pairs[same.index(False)]
        raise Left(f"{what} differ, {a} and {b}: MatMul and Add broadcast them, and Attention does not")
    if None in same and what not in m.taken:
        m.taken.append(what)
