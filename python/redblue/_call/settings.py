"""What is asked of attention beside its arrays: the options, and the problem of the C++ library that they make."""

from __future__ import annotations

import numbers
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from .. import _core
from .._errors import InvalidProblem
from .arrays import integers
from .options import DEFAULTS, LIBRARY, OPTIONS, PLAN_OPTIONS, PLANNED, Settings
from .threads import default_threads


class Sizes(NamedTuple):
    batch: int
    heads: int
    kv_heads: int
    n_q: int
    n_k: int
    d: int
    d_v: int


OPERATIONS = ("forward", "backward", "scores", "weights", "merge", "tangent", "second")
ORDERS = ("natural", "rcm", "jaccard", "in-place")  # of a pattern's queries and keys
_OFFSETS = {"bottom-right": None, "top-left": 0}
#: The names of an order of dimensions, outermost first, s or n for tokens of a sequence: do tokens come before heads?
LAYOUTS = _core.layouts()


def add_help(function: Any, options: Iterable[str]) -> None:
    """Adds to the docstring of `function` what the library's table says of options that it does not name."""
    doc = function.__doc__ or ""
    known = {**OPTIONS, **PLAN_OPTIONS}
    missing = [f"    {name:<15} {known[name].help}\n" for name in options if not re.search(rf"\b{name}\b", doc)]
    before, returns, after = doc.partition("\n    Returns ")
    function.__doc__ = before + "".join(missing and ["\n", *missing]) + returns + after


def unknown_options(caller: str, unknown: Iterable[str], known: Iterable[str]) -> TypeError:
    """The error for options that `caller` does not have."""
    import difflib  # for errors alone

    known = list(known)
    name = next(iter(unknown))
    elsewhere = _core.called_elsewhere(name)
    sizes = any(option in ("n", *Sizes._fields) for option in (name, *elsewhere))
    if name in SCALES:
        return TypeError(f"{caller} has no option '{name}': int8 keys and values are for attention, explain and "
                         "flash_attn_with_kvcache (k_descale, v_descale); elsewhere give floats, words times scales")  # fmt: skip
    if name == "out":
        return TypeError("out: this function returns new arrays, and takes none to write to; leave it out")
    meant = [option for option in elsewhere if option in known] or ([] if sizes else difflib.get_close_matches(name, known, n=1))
    if "bias" in meant and "mask" in name.lower():
        shape = " (its shape)" if "n_q" in known else ""
        said = f"give bias{shape}, where True keeps a pair and floats are added to scores, or a pattern of redblue.patterns"
    elif meant:
        said = f"did you mean '{meant[0]}'?"
    elif sizes:
        said = "sizes are those of the arrays; leave it out"
    else:
        said = f"give {', '.join(known)}"
    return TypeError(f"{caller} has no option '{name}': {said}")


#: Arguments of the functions that take int8 keys and values.
SCALES = ("k_scale", "v_scale", "k_descale", "v_descale", "q_descale", "keys_per_scale")

_INT64 = range(-(2**63), 2**63)


def whole(name: str, value: Any) -> int:
    """A whole number that C++ can hold. Tensors and arrays are refused: a plan that is kept would not see them change."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) not in _INT64:
        wanted = "give a whole number of at most 63 bits"
        if isinstance(value, float) and value.is_integer() and int(value) in _INT64:
            wanted = f"give a whole number, {int(value)}"
        elif name == "M" and isinstance(value, str) and _core.bytes_from(value) is not None:
            wanted = f"it takes words, a whole number; for bytes give memory={value!r}"
        raise InvalidProblem(f"{name} = {value!r}: {wanted}")
    return int(value)


def bytes_of(name: str, value: Any) -> int:
    """A number of bytes, also as a text: "64KiB"."""
    if not isinstance(value, str):
        return whole(name, value)
    found = _core.bytes_from(value)
    if found is None:
        raise InvalidProblem(f"{name} = {value!r}: {_core.bytes_wanted}")
    return found


def asked_threads(value: Any) -> int:
    """A number of threads as a caller gives it; 0 would be that of the pool."""
    return int(_core.asked_threads(whole("threads", value)))


def whole_or_none(name: str, value: Any) -> Optional[int]:
    return None if value is None else whole(name, value)


def real(name: str, value: Any) -> float:
    """A number. A tensor is refused even where it has one element: no gradient would reach it."""
    if not isinstance(value, numbers.Real):
        raise InvalidProblem(f"{name} = {value!r}: give a plain number, as float(...) makes it of an array of one element")
    return float(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidProblem(f"{name} = {value!r}: give a text")
    return value


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_, int)) or value not in (0, 1):
        raise InvalidProblem(f"{name} = {value!r}: give True or False")
    return bool(value)


def outputs(name: str, value: Any, fields: Iterable[str]) -> tuple:
    """The arrays that an option `out` of several holds."""
    fields = tuple(fields)
    if not isinstance(value, (tuple, list)) or len(value) != len(fields):
        raise InvalidProblem(f"{name} is a {type(value).__name__}: give a tuple of {len(fields)} ({', '.join(fields)})")
    return tuple(value)


def tokens_first(layout: str) -> bool:
    try:
        return LAYOUTS[layout]
    except (KeyError, TypeError):
        raise InvalidProblem(f"layout = {layout!r}: {_core.layout_choices}") from None


def sizes_of(q: tuple, k: tuple, v: tuple, layout: str) -> Sizes:
    """The sizes that three shapes say. Raises InvalidProblem where they do not fit each other."""
    tokens = tokens_first(layout)
    least, most = (3 if tokens else 2), 4
    if len(layout) < 4:
        least = most = len(layout)
    full = []
    for name, shape in (("q", q), ("k", k), ("v", v)):
        if not least <= len(shape) <= most or len(shape) != len(q):
            beside = f", q has {len(q)}" if name != "q" else ""
            numbers = f"{least}" if least == most else f"{least} to {most}"
            raise InvalidProblem(
                f"{name} has {len(shape)} dimensions{beside}: give q, k and v the same number, {numbers} (layout {layout!r})"
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


def offset_of(alignment: Union[str, int]) -> Optional[int]:
    """The offset, or None for n_k - n_q."""
    if isinstance(alignment, str) and alignment in _OFFSETS:
        return _OFFSETS[alignment]
    if isinstance(alignment, numbers.Integral) and not isinstance(alignment, bool):
        return whole("alignment", alignment)
    raise InvalidProblem(f"alignment = {alignment!r}: give 'top-left', 'bottom-right' or the offset, a whole number")


def edges_of(window: Optional[tuple]) -> tuple[Optional[int], Optional[int]]:
    if window is None:
        return None, None
    try:
        left, right = window
    except (TypeError, ValueError):
        raise InvalidProblem(f"window = {window!r}: give (left, right), -1 or None where there is no edge") from None
    left, right = whole_or_none("window's left edge", left), whole_or_none("window's right edge", right)
    for edge in (left, right):
        if edge is not None and edge < -1:
            raise InvalidProblem(f"window = {window!r}: give (left, right), -1 or None where there is no edge")
    return (None if left == -1 else left), (None if right == -1 else right)


def listed(name: str, value: Any, may_be_empty: bool = False) -> tuple[int, ...]:
    """cu_seqlens or seqused as a tuple; () for None. An empty list would be taken for None."""
    found = integers(value, name)
    if not found and value is not None and not may_be_empty:
        wanted = "where each sequence begins, from 0 on" if name.startswith("cu") else "a length for each batch or packed sequence"
        raise InvalidProblem(f"{name} is empty: give {wanted}, or None")
    return found


def _of_type(type_: type, judge: Callable[[str, Any], Any], optional: bool) -> Callable[[str, Any], Any]:
    def convert(name: str, value: Any) -> Any:
        if type(value) is type_ and (type_ is not int or value in _INT64):  # the usual ones, in less time
            return value
        return None if optional and value is None else judge(name, value)

    return convert


_Judge = tuple[type, Callable[[str, Any], Any]]
_JUDGES: dict[str, _Judge] = {"bool": (bool, flag), "int": (int, whole), "float": (float, real)}
_OF_TABLES: dict[str, _Judge] = {**_JUDGES, "str": (str, _text)}  # the library knows which texts there are
_CONVERT: dict[str, Callable[[str, Any], Any]] = {
    "alignment": lambda name, value: value if isinstance(value, str) else offset_of(value),
    "window": lambda name, value: None if value is None else edges_of(value),
    "softcap": lambda name, value: value if type(value) is float else 0.0 if value is None else real(name, value),
    "pattern": lambda name, value: tuple(value) if isinstance(value, list) else value,
    "threads": lambda name, value: default_threads() if value is None else asked_threads(value),
}
for _o in (*OPTIONS.values(), *PLAN_OPTIONS.values()):
    if _o.type == "list":
        _CONVERT[_o.name] = lambda name, value: () if value is None else listed(name, value)
    elif _o.type in (_OF_TABLES if _o.field else _JUDGES):
        _CONVERT.setdefault(_o.name, _of_type(*_OF_TABLES[_o.type], optional=_o.optional))
    elif _o.type == "bytes":
        _CONVERT[_o.name] = _of_type(int, bytes_of, optional=True)


def converted(name: str, value: Any) -> Any:
    """An option as a plan depends on it, of an exact type: an equal value of another, such as 300.0, would find the plan of 300,
    and pass or be refused by that. Texts are judged where they are read."""
    convert = _CONVERT.get(name)
    return value if convert is None else convert(name, value)


def settings_of(options: Any, of_arrays: dict, q: Any = None) -> Any:
    """The settings that options of a call make; unknown ones are left out. `q`: where it has no batch, lengths may be those of none."""
    values = DEFAULTS.copy()
    for name, x in options.items():
        if name in PLANNED:
            if q is not None and name in _USED and x is not None:
                values[name] = listed(name, x, 0 in q.shape)
            else:
                values[name] = converted(name, x)
    if options.get("threads") is None:
        values["threads"] = default_threads()
    values.update(of_arrays)
    return Settings._make(values.values())


_USED = ("seqused_q", "seqused_k")


def patterns_of(pattern: Any) -> list:
    """The patterns that an option `pattern` holds: one, or a list of them."""
    found = list(pattern) if isinstance(pattern, (tuple, list)) else [pattern]
    for one in found:
        if not isinstance(one, _core.Pattern):
            raise InvalidProblem(f"pattern is a {type(one).__name__}: redblue.patterns makes patterns, as in patterns.mask(seen)")
    return found


def problem_of(op: str, x: Sizes, s: Settings) -> Any:
    """The _core.Problem. Raises InvalidProblem where the options make no sense."""
    if op not in OPERATIONS:
        meant = [name for name in _core.called_elsewhere(op) if name in OPERATIONS] if isinstance(op, str) else []
        raise InvalidProblem(f"op = {op!r}: " + (f"did you mean {meant[0]!r}?" if meant else f"give one of {', '.join(OPERATIONS)}"))
    p = _core.Problem()
    p.op = op
    p.batch, p.heads, p.kv_heads, p.n_q, p.n_k, p.d, p.d_v = (whole(*size) for size in x._asdict().items())
    for o in LIBRARY.values():
        value = getattr(s, o.name)
        if value is not None:
            setattr(p, o.field, not value if o.name != o.field else value)
    p.causal_offset = offset_of(s.alignment)
    p.window_left, p.window_right = edges_of(s.window)
    if s.dilation > 1 and s.window is None:
        raise InvalidProblem(f"dilation = {s.dilation} is for window: give that, too; (-1, -1) has no edges")
    if s.bias is not None:
        shape = integers(s.bias, "the shape of bias")
        if len(shape) > 4:
            raise InvalidProblem(f"bias has {len(shape)} dimensions: give at most 4")
        p.bias = (1,) * (4 - len(shape)) + shape
    p.alibi, p.sinks = flag("alibi", s.alibi), flag("sinks", s.sinks)
    patterns = []
    if s.pattern is not None:
        patterns = patterns_of(s.pattern)
        if not patterns and p.batch * p.heads > 0:
            raise InvalidProblem("pattern is an empty list: give one pattern, or one for each head, or None")
        p.set_patterns(patterns)
    if s.order is not None:
        if s.order not in ORDERS:
            raise InvalidProblem(f"order = {s.order!r}: give one of {', '.join(ORDERS)}, or None")
        if s.pattern is None or patterns:
            p.take_order(s.order)
    if s.approximate is not None:
        p.approximate(_text("approximate", s.approximate))
    return p


def set_part(problem: Any, s: Settings, adds: bool) -> None:
    """The problem is of a part of the keys; `adds`: its outputs are given. Words for the alignment say where all keys lie, and
    the library asks for a number in their place."""
    if isinstance(s.alignment, str):
        problem.causal_offset = None
    problem.require_part()
    problem.accumulate = adds


def validated(op: str, x: Sizes, s: Settings) -> tuple[Any, bool]:
    """The _core.Problem, and is it empty, so that there is nothing to compute? Raises InvalidProblem where it makes no sense."""
    p = problem_of(op, x, s)
    if x.d == 0:
        raise InvalidProblem("d = 0: q and k have no features, so that no score is defined; give at least one")
    # Without heads of k and v those of q have none to share.
    empty = 0 in (x.batch, x.heads, x.n_q, x.n_k, x.d_v) and (x.kv_heads > 0 or x.heads == 0)
    if empty:
        _require_empty(op, x, s)
    else:
        p.validate()
    return p, empty


def _require_empty(op: str, x: Sizes, s: Settings) -> None:
    """The library knows no size of 0. Shapes and lists are judged here; it judges the other options, for 1 in place of 0."""
    for name, list_, n in (("cu_seqlens_q", s.cu_seqlens_q, x.n_q), ("cu_seqlens_k", s.cu_seqlens_k, x.n_k)):
        if list_:
            starts(list_, name, n)
    for name, lengths, ends, n in (
        ("seqused_q", s.seqused_q, s.cu_seqlens_q or s.cu_seqlens_k, x.n_q),
        ("seqused_k", s.seqused_k, s.cu_seqlens_k or s.cu_seqlens_q, x.n_k),
    ):
        most = [b - a for a, b in zip(ends, ends[1:])] if ends else [n] * x.batch
        if lengths and (len(lengths) != len(most) or not all(0 <= a <= b for a, b in zip(lengths, most))):
            of = f"for each packed sequence, at most {most}" if ends else f"from 0 to {n} for each of {x.batch} batches"
            raise InvalidProblem(f"{name} = {list(lengths)}: give a length {of}")
    full = (x.batch, x.heads, x.n_q, x.n_k)
    if s.bias and any(size not in (1, whole) for size, whole in zip(s.bias[::-1], full[::-1])):
        raise InvalidProblem(f"bias is {list(s.bias)}: give what broadcasts to {list(full)} (batch, heads, n_q, n_k)")
    one = Sizes(*(max(size, 1) for size in x))
    one = one._replace(heads=x.heads or one.kv_heads, n_k=x.n_k or max(s.prefix, 1))
    judged = (*(o.name for o in LIBRARY.values() if o.type != "list"), "alignment", "window", "alibi", "sinks")
    problem_of(op, one, Settings(**{name: getattr(s, name) for name in judged})).validate()


def starts(cu_seqlens: Any, name: str, total: int) -> list[slice]:
    """The rows of each packed sequence."""
    at = integers(cu_seqlens, name)
    if len(at) < 2 or at[0] != 0 or at[-1] != total or any(b < a for a, b in zip(at, at[1:])):
        raise InvalidProblem(f"{name} = {list(at)}: give where each sequence begins, ascending from 0 to {total}")
    return [slice(a, b) for a, b in zip(at, at[1:])]


def used(lengths: Any, name: str, sequences: int) -> list:
    """The option of each of these sequences alone, as one of a batch: [length], or None without lengths."""
    if lengths is None:
        return [None] * sequences
    found = integers(lengths, name)
    if len(found) != sequences:
        raise InvalidProblem(f"{name} = {list(found)}: give a length for each of {sequences} packed sequences")
    return [[length] for length in found]


def wanted_of(s: Settings, type: str, compute: str) -> Any:
    w = _core.Wanted()
    w.M, w.memory, w.max_workspace = (whole_or_none(name, getattr(s, name)) for name in ("M", "memory", "max_workspace"))
    w.schedule = "" if s.schedule is None else _text("schedule", s.schedule)
    w.threads = whole("threads", s.threads)
    w.reorder = s.order is None
    # A plan of least time is made as for k and v of the type of q: so calls of any lengths share what a search has found.
    w.keys_per_scale = 0 if s.M is None and s.memory is None else s.keys_per_scale
    w.tensors, w.compute = _text("dtype", type), _text("compute", compute)
    return w
