"""The options of redblue.attention and redblue.plan: the library's tables, and what Python has in a form of its own."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, TypedDict, Union

from .. import _core


class Option(NamedTuple):
    """One option of attention."""

    name: str
    type: str  # "bool", "int", "float", "str", "bytes" (a number, or a text such as "64KiB"), "list" of whole numbers, or "object":
    # what each caller has in a form of its own
    default: Any = None
    optional: bool = True  # may it be None?
    planned: bool = True  # does a plan depend on it?
    array: bool = False
    field: str = ""  # of what the library makes of it: redblue/problem/options.hpp, redblue/planner/options.hpp
    help: str = ""  # one line, of the library's table


def _of_library(table: list) -> dict[str, Option]:
    """The options of a table of the library that callers give as they are. The flag of the program that turns something off is
    the keyword for that."""
    found = {}
    for field, flag, type_, optional, default, source, help_ in table:
        off = type_ == "bool" and default
        name = flag[2:].replace("-", "_") if off else field
        if source == "option":
            default = tuple(default) if type_ == "list" else False if off else default
            found[name] = Option(name, type_, default, optional, field=field, help=help_)
    return found


LIBRARY = _of_library(_core.problem_options())
#: What redblue.plan takes beside the options of attention.
PLAN_OPTIONS = _of_library(_core.plan_options())
#: All options of attention, in the order of its docstring; behind them those of the library's table that stand nowhere here.
OPTIONS = {
    o.name: o
    for o in (
        Option("layout", "str", "bhsd", optional=False),
        LIBRARY["causal"],
        Option("alignment", "object", "bottom-right"),
        Option("window", "object"),
        *(LIBRARY[name] for name in ("prefix", "dilation", "scale")),
        Option("bias", "object", planned=False, array=True),
        Option("alibi_slopes", "object", planned=False, array=True),
        LIBRARY["softcap"],
        Option("sinks", "object", planned=False, array=True),
        LIBRARY["dropout"],
        Option("seed", "object", planned=False),
        *(LIBRARY[name] for name in ("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k")),
        Option("pattern", "object"),
        Option("order", "str"),
        Option("approximate", "str"),
        Option("tolerance", "float", planned=False),
        Option("compute", "str"),
        Option("M", "int"),
        *(Option(name, "bytes") for name in ("memory", "max_workspace")),
        Option("schedule", "str"),
        Option("threads", "int"),
        *LIBRARY.values(),
    )
}
NAMES = frozenset(OPTIONS)
ARRAYS = tuple(o.name for o in OPTIONS.values() if o.array)
SEQUENCES = tuple(o.name for o in OPTIONS.values() if o.type == "list")
#: Whether there are slopes and sinks, the shape of a bias, and how many keys share a scale of int8 keys and values, if they are
#: such: what a plan depends on of arrays.
OF_ARRAYS = {"bias": None, "alibi": False, "sinks": False, "keys_per_scale": 0}
PLANNED = {o.name: o.default for o in OPTIONS.values() if o.planned} | {"threads": 0}

DEFAULTS = {**PLANNED, **OF_ARRAYS}

_TYPES = {"bool": bool, "int": int, "float": float, "str": str, "bytes": Union[int, str], "list": Any, "object": Any}

if TYPE_CHECKING:  # written by the build from these tables: python/keywords.py
    from .._keywords import Options, Settings
else:
    #: The options of redblue.attention that a plan depends on; see there. A key of the cache of plans.
    Settings = collections.namedtuple("Settings", tuple(DEFAULTS), defaults=tuple(DEFAULTS.values()))
    #: The options of redblue.attention as its caller gives them.
    Options = TypedDict(
        "Options", {o.name: Optional[_TYPES[o.type]] if o.optional else _TYPES[o.type] for o in OPTIONS.values()}, total=False
    )
