"""A bias that is a mask: 0 and -inf, or the lowest number, or bool, and what it hides is causal, a window (with global tokens),
padding or packed sequences. It runs as that, so that hidden tiles are neither read nor multiplied (docs/python.md)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Optional

from .. import _core
from . import globals
from .request import Request
from .settings import LAYOUTS

#: A bias is read where the batches and heads of a call have this many pairs together: that takes some ten microseconds,
#: less than a twentieth of the time of such a call (docs/python.md).
LEAST_PAIRS = 1 << 18

#: Lengths of sequences may be others at each call. So a mask with lengths gets a plan once the products that it would have
#: saved take as long as to make the plan. That time is estimated in products of one thread, for each token and each part.
PRODUCTS_OF_TOKEN, PRODUCTS_OF_PART = 1 << 20, 1 << 26
#: To read a word of a bias for a pair and add it takes the time of this many products; a row for all queries takes little.
PRODUCTS_OF_WORD = 32
#: Products of bf16 may take this part of the time of others: those of matrix tiles do.
FASTER = 4

#: How many masks are remembered; the one that has not come for longest goes first.
MOST_MASKS = 512


class Mask(NamedTuple):
    name: str  # for people
    settings: dict  # that hide the same
    lengths: bool  # of sequences, or of what is in use, are part of it
    parts: int  # of which a plan has tiles of their own
    share: float  # of all pairs, those that it shows


_known: dict[tuple, list] = {}  # [Mask or None, how often it still runs as a bias]


def recognised(op: str, r: Request, given: Any, *, counted: bool = True) -> tuple[Request, str]:
    """The request as it runs: with a mask in place of its bias if that is one, and has come often enough where it has
    lengths. The second is the mask's name, or "". given: the bias as the caller has it. counted: is this a call that
    runs?"""
    sizes = _sizes(r, given)
    if sizes is None:
        return r, ""
    intervals: Any = _core.intervals(r.family.native(r.bias), sizes[2], sizes[3])
    what = globals.found(r.bias) if intervals is None else intervals
    if what is None:
        return r, ""
    s = r.settings
    key = (op, what, r.bias.shape, r.q.dtype, r.q.shape, r.v.shape, s.layout, s.threads, s.M, s.memory, s.compute)
    entry = _known.pop(key, None)
    if entry is None:
        mask = _with_globals(what, sizes[3]) if intervals is None else _mask(intervals, *sizes)
        entry = [mask, _waits(op, r, sizes, mask) if mask is not None and mask.lengths else 0]
        while len(_known) >= MOST_MASKS:  # other threads may write, and may take the same one for the oldest
            _known.pop(list(_known)[0], None)
    _known[key] = entry
    mask, waits = entry
    if mask is None:
        return r, ""
    if waits > 0:
        if counted:
            entry[1] -= 1
        return r, mask.name
    return r._replace(bias=None, settings=s._replace(bias=None, **mask.settings)), mask.name


def explained(r: Request, name: str) -> str:
    """The sentence of explain on a bias that was found to be a mask of this name."""
    if not name:
        return ""
    return f"the bias is {name}{', and runs as that' if r.bias is None else ': it runs as that once that pays for a plan'}"


def _waits(op: str, r: Request, sizes: tuple, mask: Mask) -> float:
    """How many calls run as a bias first: none where the plan is asked for its words, not for its time, or where a bias is
    refused."""
    s = r.settings
    if s.M is not None or s.memory is not None or (op == "backward" and s.compute == "bf16"):
        return 0
    batch, heads, n_q, n_k = sizes
    plan = (s.threads or _core.pool_size()) * (max(n_q, n_k) * PRODUCTS_OF_TOKEN + mask.parts * PRODUCTS_OF_PART)
    if r.family.type_of(r.q, "q") == "bf16":
        plan *= FASTER
    word = PRODUCTS_OF_WORD if (1, *r.bias.shape)[-2] > 1 else 0
    passes = 2 if op == "backward" else 1
    saved = passes * batch * heads * n_q * n_k * ((1 - mask.share) * (r.q.shape[-1] + r.v.shape[-1]) + word)
    return plan // saved if saved > 0 else math.inf


def is_small(q: Any, k: Any) -> bool:
    """Is no bias of a call with these shapes read?"""
    return math.prod(q[:-1]) * max(k[-3:-1], default=0) < LEAST_PAIRS


def _sizes(r: Request, given: Any) -> Optional[tuple]:
    """[batch, heads, n_q, n_k], where the bias may be read and nothing else hides pairs or counts from where they begin."""
    if r.bias is None or getattr(given, "requires_grad", False):
        return None
    q, k, s = r.q.shape, r.k.shape, r.settings
    if is_small(q, k):  # most small calls end here
        return None
    if not 2 <= len(q) == len(k) == len(r.v.shape) or s.layout not in LAYOUTS:
        return None
    tokens = -3 if LAYOUTS[s.layout] and len(q) > 2 else -2
    n_q, n_k = q[tokens], k[tokens]
    if s.causal or s.window is not None or s.prefix or s.dilation != 1 or s.pattern is not None or s.alibi:
        return None
    if s.cu_seqlens_q or s.cu_seqlens_k or s.seqused_q or s.seqused_k:
        return None
    if s.schedule is not None or s.approximate is not None or r.tolerance is not None or s.max_workspace is not None:
        return None
    heads = q[-5 - tokens] if len(q) > 2 else 1
    whole = (q[0] if len(q) > 3 else 1, heads, n_q, n_k)
    if math.prod(whole) < LEAST_PAIRS:
        return None
    bias = r.bias.shape
    if len(bias) > 4 or any(size not in (1, full) for size, full in zip(bias[::-1], whole[::-1])):
        return None
    return whole


def _mask(intervals: bytes, batch: int, heads: int, n_q: int, n_k: int) -> Optional[Mask]:
    found: Any = _core.mask_of_intervals(intervals, n_q, n_k)
    if found is None or found["pairs"] == 0:
        return None
    times = batch // found["batches"]
    share = found["pairs"] / (found["batches"] * n_q * n_k)
    if "patterns" in found:
        patterns = found["patterns"]
        pattern = patterns[0] if len(patterns) == 1 else tuple(p for p in patterns for _ in range(heads))
        name = _sequences(found["sequences"], len(patterns))
        return Mask(name, {"pattern": pattern, "order": "natural"}, True, found["sequences"], share)
    lo, hi = found["lo"], found["hi"]
    settings: dict[str, Any] = {}
    names = []
    if hi is not None:
        settings = {"causal": True, "alignment": hi - 1, "prefix": found["prefix"]}
        if lo is not None:
            settings["window"] = (hi - 1 - lo, -1)
    elif lo is not None:
        settings = {"window": (0, -1), "alignment": lo}
    if settings:
        names.append(_edges(lo, hi, found["prefix"]))
    for name, what in (("seqused_q", "queries"), ("seqused_k", "keys")):
        if found[name]:
            settings[name] = found[name] * times
            least, most = min(found[name]), max(found[name])
            names.append(f"the first {least if least == most else f'{least} to {most}'} {what} in use")
    alike = all(len(set(found[name])) < 2 for name in ("seqused_q", "seqused_k"))
    parts = 1 if alike else batch
    lengths = bool(found["seqused_q"] or found["seqused_k"])
    return Mask(", ".join(names) or "a mask that hides nothing", settings, lengths, parts, share)


def _with_globals(found: globals.WindowWithGlobals, n: int) -> Mask:
    left, right, first = found
    pattern = _core.pattern_longformer(n, n, 0, left, right, first, 1)
    pairs = 2 * first * n + n * (left + right + 1)  # about
    name = f"a window with global tokens (query i sees the keys from i - {left} up to i + {right}; the first {first} are global)"
    return Mask(name, {"pattern": pattern, "order": "natural"}, False, 1, min(1.0, pairs / n**2))


def _edges(lo: Optional[int], hi: Optional[int], prefix: int) -> str:
    def key(offset: int) -> str:
        return "i" if offset == 0 else f"i {'+' if offset > 0 else '-'} {abs(offset)}"

    first = "" if lo is None else f" from {key(lo)}"
    last = "" if hi is None else f" up to {key(hi - 1)}"
    kind = "causal" if lo is None else "a window"
    return f"{kind} (query i sees the keys{first}{last}{f', and the first {prefix}' if prefix else ''})"


def _sequences(count: int, batches: int) -> str:
    each = " in each batch" if batches > 1 else ""
    return f"one sequence between padding{each}" if count == batches else f"packed sequences ({count}{' of all batches' if each else ''})"
