"""The cases in which redblue.distributed.check tries attention over ranks, and what it must give: dense attention in fp64."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, NamedTuple, Optional

import numpy as np

#: What a function may claim, and what it is then given or asked for.
FEATURES = {
    "causal": "causal=True",
    "window": "window=(left, right): how many keys before and behind its own position a query sees",
    "scale": "scale=0.37 in place of 1/sqrt(d)",
    "sinks": "sinks=: a tensor [heads], a logit for each head that takes weight and has no value; forward only",
    "documents": "cu_seqlens=: an int32 tensor, where the packed sequences of the whole begin; one of them is empty",
    "positions": "positions=: two int64 tensors, where this rank's queries and keys stand in the whole; zig-zag and other orders",
    "gqa": "fewer heads of k and v than of q; query head h sees kv head h // (heads / kv_heads)",
    "d_v": "rows of v that are shorter or longer than those of k",
    "cross": "fewer or more queries than keys",
    "uneven": "ranks with different numbers of rows",
    "empty": "ranks without rows",
    "strided": "tensors that are not contiguous",
    "bf16": "bfloat16, whose error must not grow with the ranks",
    "backward": "gradients of q, k and v; every rank calls backward",
    "lse": "returns (o, lse), lse [batch, heads, rows] of natural logarithms",
    "lse_gradient": "lse, too, takes part in the loss",
    "deterministic": "the same bits, whatever the delays of messages",
    "subgroup": "a group whose ranks are not those of the world",
}


class Case(NamedTuple):
    """One call, with its sizes."""

    name: str
    needs: frozenset[str] = frozenset()
    n_q: int = 0
    n_k: int = 0
    batch: int = 2
    heads: int = 2
    kv_heads: int = 2
    d: int = 8
    d_v: int = 8
    options: dict[str, Any] = {}  # noqa: RUF012
    earlier: tuple[dict[str, Any], ...] = ()  # calls with the same sizes that come before in the same process
    between: bool = False  # another call, with other values, comes between its passes
    gain: float = 1  # q is multiplied by it
    tied: bool = False  # v is k, the same tensor
    same_rows: bool = False  # each rank has the same values
    strided: bool = False
    bf16: bool = False
    repeats: int = 1
    delays: bool = False
    backward: bool = False
    lse: bool = False
    lse_gradient: bool = False
    bottom_right: bool = True
    ownership: str = ""  # where it is not that of the call


def cases_of(ranks: int, features: Collection[str], bottom_right: bool) -> list[Case]:
    """The cases for this number of ranks that need nothing but what is claimed."""
    n = 8 * ranks
    causal = {"causal": True}
    ends = [0, n // 2 - 3, n // 2 - 3, n - 2, n]

    def case(name: str, *needs: str, rows: int = n, keys: Optional[int] = None, **more: Any) -> Case:
        return Case(name, frozenset(needs), rows, rows if keys is None else keys, bottom_right=bottom_right, **more)

    found = [
        case("plain"),
        case("one head, one batch", batch=1, heads=1, kv_heads=1),
        case("many rows", batch=1, heads=1, kv_heads=1, rows=64 * ranks),
        case("v is k", tied=True),
        case("same rows on every rank", same_rows=True),
        case("large scores", gain=60),
        case("late messages", delays=True),
        case("a call between its passes", "backward", between=True),
        case("strided tensors", "strided", strided=True),
        case("scale", "scale", options={"scale": 0.37}),
        case("grouped 2 : 1", "gqa", heads=4),
        case("grouped 3 : 1", "gqa", heads=6),
        case("one kv head", "gqa", heads=4, kv_heads=1),
        case("d_v < d", "d_v", d_v=3),
        case("d_v > d", "d_v", d=4, d_v=12),
        case("causal", "causal", options=causal),
        case("causal, grouped", "causal", "gqa", heads=6, options=causal),
        case("no mask after a mask", "causal", earlier=(causal,)),
        case("causal after no mask", "causal", options=causal, earlier=({},)),
        case("window", "window", options={"window": (5, 3)}),
        case("window over two ranks", "window", options={"window": (11, 0)}),
        case("window after causal", "window", "causal", options={"window": (5, 3)}, earlier=(causal,)),
        case("causal after window", "window", "causal", options=causal, earlier=({"window": (5, 3)},)),
        case("sinks", "sinks", options={"sinks": True}),
        case("sinks, causal", "sinks", "causal", options={"sinks": True, **causal}),
        case("documents", "documents", batch=1, options={"cu_seqlens": ends}),
        case("documents, causal", "documents", "causal", batch=1, options={"cu_seqlens": ends, **causal}),
        case("other documents", "documents", batch=1, options={"cu_seqlens": [0, 3, n]}, earlier=({"cu_seqlens": ends},)),
        case("uneven rows", "uneven", rows=n - ranks + 1),
        case("uneven rows, causal", "uneven", "causal", rows=n - ranks + 1, options=causal),
        case("fewer queries", "cross", rows=n // 2, keys=n),
        case("more queries", "cross", rows=n, keys=n // 2),
        case("one query", "cross", "empty", rows=1, keys=n),
        case("zig-zag", "positions", ownership="zig-zag"),
        case("zig-zag, causal", "positions", "causal", ownership="zig-zag", options=causal),
        case("blocks dealt out, causal", "positions", "causal", ownership="block-cyclic", options=causal),
        case("deterministic", "deterministic", repeats=3, delays=True),
        case("bf16", "bf16", rows=48 if 48 % (2 * ranks) == 0 else n, heads=4, kv_heads=4, bf16=True, d=16, d_v=16),
    ]
    if bottom_right:
        found += [case("rows that see nothing", "cross", "causal", rows=n, keys=n // 2, options=causal)]
    else:
        found += [case("rows that see nothing", "cross", "window", rows=n, keys=n // 2, options={"window": (2, 2)})]
    if ranks > 1:
        found += [
            case("ranks without rows", "empty", rows=ranks - 1),
            case("ranks without rows, causal", "empty", "causal", rows=ranks - 1, options=causal),
        ]
    backward, lse = "backward" in features, "lse" in features
    both = backward and lse and "lse_gradient" in features
    return [
        c if "sinks" in c.options else c._replace(backward=backward, lse=lse, lse_gradient=both)
        for c in found
        if c.needs <= set(features)
    ]


def arrays_of(case: Case, ranks: int) -> dict[str, np.ndarray]:
    """The whole inputs, float64, of values that the type of the case holds. They depend on the case alone."""
    random = np.random.default_rng(sum(case.name.encode()))

    def rows(heads: int, n: int, d: int) -> np.ndarray:
        part = n // ranks if case.same_rows else n
        return np.tile(random.standard_normal((case.batch, heads, part, d)), (1, 1, ranks if case.same_rows else 1, 1))

    q = rows(case.heads, case.n_q, case.d) * case.gain
    k, v = rows(case.kv_heads, case.n_k, case.d), rows(case.kv_heads, case.n_k, case.d_v)
    do = random.standard_normal((case.batch, case.heads, case.n_q, case.d_v))
    found = {"q": q, "k": k, "v": k if case.tied else v, "do": do, "dlse": random.standard_normal(do.shape[:-1])}
    if "sinks" in case.options:
        found["sinks"] = random.standard_normal(case.heads)
    return {name: _rounded(x, case.bf16) for name, x in found.items()}


def _rounded(x: np.ndarray, bf16: bool) -> np.ndarray:
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    if bf16:  # to nearest, ties to even
        bits = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)


def rounding_error(x: np.ndarray) -> float:
    """The root of the mean square of what bfloat16 rounds away."""
    return float(np.sqrt(np.mean((x - _rounded(x, True)) ** 2)))


def seen(case: Case, options: dict[str, Any]) -> np.ndarray:
    """Which keys a query sees, [n_q, n_k]."""
    i = np.arange(case.n_q)[:, None] + (case.n_k - case.n_q if case.bottom_right else 0)
    j = np.arange(case.n_k)[None, :]
    mask = np.ones((case.n_q, case.n_k), bool)
    if options.get("causal"):
        mask &= j <= i
    if options.get("window") is not None:
        left, right = options["window"]
        mask &= (j >= i - left) & (j <= i + right)
    if options.get("cu_seqlens") is not None:
        ends = np.asarray(options["cu_seqlens"][1:])
        mask &= np.searchsorted(ends, np.arange(case.n_q), "right")[:, None] == np.searchsorted(ends, j[0], "right")[None, :]
    return mask


def dense_scores(case: Case, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """scale q k^T, without a mask."""
    return arrays["q"] @ np.repeat(arrays["k"], case.heads // case.kv_heads, 1).swapaxes(-1, -2) * _scale(case)


def _scale(case: Case) -> float:
    return float(case.options.get("scale") or 1 / math.sqrt(case.d))


def dense(
    case: Case, arrays: dict[str, np.ndarray], mask: np.ndarray, dtype: Any = np.float64, dealt: bool = False,
    scale: Optional[float] = None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """o, lse and the gradients, by the formulas, with weights p and gradients ds of scores. dealt: query head h sees kv head
    h % kv_heads, which is a slip."""
    kv = np.arange(case.heads) % case.kv_heads if dealt else np.arange(case.heads) // (case.heads // case.kv_heads)
    q, k, v, do, dlse = (arrays[name].astype(dtype) for name in ("q", "k", "v", "do", "dlse"))
    scale = _scale(case) if scale is None else scale
    s = np.where(mask, dtype(scale) * (q @ k[:, kv].swapaxes(-1, -2)), dtype(-np.inf))
    sinks = arrays["sinks"].astype(dtype)[None, :, None, None] if "sinks" in arrays else dtype(-np.inf)
    highest = np.maximum(s.max(-1, keepdims=True), sinks)
    highest = np.where(np.isfinite(highest), highest, dtype(0))
    p = np.exp(s - highest)
    total = p.sum(-1, keepdims=True) + np.exp(sinks - highest)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + highest)[..., 0]
    p = p / np.where(total > 0, total, dtype(1))
    found = {"o": p @ v[:, kv], "lse": lse, "p": p}
    if not case.backward:
        return found
    dp = do @ v[:, kv].swapaxes(-1, -2)
    row = (do * found["o"]).sum(-1, keepdims=True) - (dlse[..., None] if case.lse_gradient else dtype(0))
    ds = dtype(scale) * p * (dp - row)
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    for head, of in enumerate(kv):
        dk[:, of] += ds[:, head].swapaxes(-1, -2) @ q[:, head]
        dv[:, of] += p[:, head].swapaxes(-1, -2) @ do[:, head]
    found |= {"dq": ds @ k[:, kv], "ds": ds}
    if case.tied:
        return found | {"dk + dv": dk + dv}
    return found | {"dk": dk, "dv": dv}
