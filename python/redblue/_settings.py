"""What is asked of attention beside its arrays: the options, and the problem of the C++ library that they make."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Sequence, TypedDict, Union

from . import _core
from ._errors import InvalidProblem


class Settings(NamedTuple):
    """The options of redblue.attention that a plan depends on; see there. A key of the cache of plans."""

    layout: str = "bhsd"
    causal: bool = False
    alignment: Union[str, int] = "bottom-right"
    window: Optional[tuple] = None
    prefix: int = 0
    scale: Optional[float] = None
    softcap: float = 0.0
    dropout: float = 0.0
    cu_seqlens_q: tuple = ()
    cu_seqlens_k: tuple = ()
    seqused_q: tuple = ()
    seqused_k: tuple = ()
    pattern: Any = None
    order: Optional[str] = None
    approximate: Optional[str] = None
    compute: Optional[str] = None
    M: Optional[int] = None
    memory: Optional[int] = None
    max_workspace: Optional[int] = None
    schedule: Optional[str] = None
    threads: int = 0
    bias: Optional[tuple] = None  # its shape
    alibi: bool = False
    sinks: bool = False


class Options(TypedDict, total=False):
    """The options of redblue.attention as its caller gives them."""

    layout: str
    causal: bool
    alignment: Union[str, int]
    window: Optional[Sequence[Optional[int]]]
    prefix: int
    scale: Optional[float]
    bias: Any
    alibi_slopes: Any
    softcap: float
    sinks: Any
    dropout: float
    seed: Optional[int]
    cu_seqlens_q: Any
    cu_seqlens_k: Any
    seqused_q: Any
    seqused_k: Any
    pattern: Any
    order: Optional[str]
    approximate: Optional[str]
    tolerance: Optional[float]
    compute: Optional[str]
    M: Optional[int]
    memory: Optional[int]
    max_workspace: Optional[int]
    schedule: Optional[str]
    threads: Optional[int]


class Sizes(NamedTuple):
    batch: int
    heads: int
    kv_heads: int
    n_q: int
    n_k: int
    d: int
    d_v: int


LAYOUTS = {"bhsd": False, "bshd": True}  # do tokens come first?


def tokens_first(layout: str) -> bool:
    try:
        return LAYOUTS[layout]
    except (KeyError, TypeError):
        raise InvalidProblem(f"layout = {layout!r}: give 'bhsd' ([batch, heads, sequence, features]) or 'bshd'") from None


def sizes_of(q: tuple, k: tuple, v: tuple, layout: str) -> Sizes:
    """The sizes that three shapes say. Raises InvalidProblem where they do not fit each other."""
    tokens = tokens_first(layout)
    least = 3 if tokens else 2
    full = []
    for name, shape in (("q", q), ("k", k), ("v", v)):
        if not least <= len(shape) <= 4 or len(shape) != len(q):
            raise InvalidProblem(
                f"{name} has {len(shape)} dimensions, q has {len(q)}: give all three the same number, {least} to 4 "
                f"(layout {layout!r})"
            )
        shape = (1,) * (4 - len(shape)) + tuple(shape)
        full.append((shape[0], shape[2], shape[1], shape[3]) if tokens else shape)
    (batch, heads, n_q, d), (k_batch, kv_heads, n_k, k_d), (v_batch, v_heads, v_n, d_v) = full
    for what, a, b in (
        ("the batch of k and q", k_batch, batch),
        ("the batch of v and q", v_batch, batch),
        ("the features of k and q", k_d, d),
        ("the heads of v and k", v_heads, kv_heads),
        ("the sequence of v and k", v_n, n_k),
    ):
        if a != b:
            raise InvalidProblem(f"{what} are of sizes {a} and {b}: make them equal (q {list(q)}, k {list(k)}, v {list(v)})")
    return Sizes(batch, heads, kv_heads, n_q, n_k, d, d_v)


def _offset(alignment: Union[str, int]) -> Optional[int]:
    if alignment == "bottom-right":
        return None
    if alignment == "top-left":
        return 0
    if isinstance(alignment, int) and not isinstance(alignment, bool):
        return alignment
    raise InvalidProblem(f"alignment = {alignment!r}: give 'top-left', 'bottom-right' or the offset, a whole number")


def _edges(window: Optional[tuple]) -> tuple[Optional[int], Optional[int]]:
    if window is None:
        return None, None
    try:
        left, right = window
    except (TypeError, ValueError):
        raise InvalidProblem(f"window = {window!r}: give (left, right), -1 or None where there is no edge") from None
    return (None if left is None or left < 0 else left), (None if right is None or right < 0 else right)


def problem_of(op: str, x: Sizes, s: Settings) -> Any:
    """The _core.Problem. Raises InvalidProblem where the options make no sense."""
    p = _core.Problem()
    p.op = op
    p.batch, p.heads, p.kv_heads, p.n_q, p.n_k, p.d, p.d_v = x
    p.causal = bool(s.causal)
    p.causal_offset = _offset(s.alignment)
    p.window_left, p.window_right = _edges(s.window)
    p.prefix = s.prefix
    if s.scale is not None:
        p.scale = float(s.scale)
    p.softcap = float(s.softcap or 0)
    p.dropout = float(s.dropout)
    p.cu_seqlens_q, p.cu_seqlens_k = s.cu_seqlens_q, s.cu_seqlens_k
    p.seqused_q, p.seqused_k = s.seqused_q, s.seqused_k
    if s.bias is not None:
        if len(s.bias) > 4:
            raise InvalidProblem(f"bias has {len(s.bias)} dimensions: give at most 4")
        p.bias = (1,) * (4 - len(s.bias)) + tuple(s.bias)
    p.alibi, p.sinks = s.alibi, s.sinks
    if s.pattern is not None:
        p.set_patterns(list(s.pattern) if isinstance(s.pattern, (tuple, list)) else [s.pattern])
    if s.order is not None:
        p.set_order(s.order)
    if s.approximate is not None:
        p.approximate(s.approximate)
    return p


def wanted_of(s: Settings, type: str, compute: str) -> Any:
    w = _core.Wanted()
    w.M, w.memory, w.max_workspace = s.M, s.memory, s.max_workspace
    w.schedule = s.schedule or ""
    w.threads = s.threads
    w.reorder = s.order is None
    w.tensors, w.compute = type, compute
    return w
