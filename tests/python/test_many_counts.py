"""What is counted is what the formulas say, of each array, for random problems: masks, patterns, modifiers, all schedules."""

import collections
import os

import numpy as np
import pytest
import redblue
from redblue import patterns

CASES = int(os.environ.get("REDBLUE_COUNT_CASES", 600))
PART = 300  # of a test


def starts(rng, n, parts):
    return [0, *sorted(rng.integers(0, n + 1, parts - 1).tolist()), n]


def pattern(rng, kind, n_q, n_k):
    whole = lambda low, high: int(rng.integers(low, high + 1))
    if kind == "dilated":
        return patterns.window(n_q, n_k, whole(-1, 6), whole(-1, 6), step=whole(2, 4))
    if kind == "longformer":
        return patterns.longformer(n_q, n_k, whole(0, 6), whole(0, 6), whole(0, 4))
    if kind == "big_bird":
        block = whole(2, 8)
        return patterns.big_bird(n_q, n_k, block=block, window=whole(0, 1), globals=whole(0, 2), randoms=whole(0, 2), seed=whole(0, 9))
    if kind == "strided":
        return patterns.strided(n_q, n_k, whole(1, 7))
    if kind == "fixed":
        stride = whole(1, 7)
        return patterns.fixed(n_q, n_k, stride, whole(1, stride))
    if kind == "blocks":
        rows, cols = whole(1, 9), whole(1, 9)
        return patterns.blocks(n_q, n_k, rows, cols, rng.random((-(-n_q // rows), -(-n_k // cols))) < 0.4)
    return patterns.mask(rng.random((n_q, n_k)) < rng.random())


SIMPLE = ("dilated", "longformer", "big_bird", "strided", "fixed", "blocks", "mask")
KINDS = ("none", "causal", "window", "causal window", "prefix", "padded", "packed", *SIMPLE, "both", "either", "heads", "causal mask")


def options(rng, kind, n_q, n_k, batch, heads):
    """Who sees whom."""
    whole = lambda low, high: int(rng.integers(low, high + 1))
    window = (whole(-1, 9), whole(-1, 9))
    if kind == "causal":
        return {"causal": True, "alignment": ["bottom-right", "top-left", whole(-5, 9)][whole(0, 2)]}
    if kind in ("window", "causal window"):
        return {"window": window, "causal": kind != "window"}
    if kind == "prefix":
        return {"causal": True, "prefix": whole(0, n_k)}
    if kind == "padded":
        return {"seqused_k": rng.integers(0, n_k + 1, batch).tolist(), "causal": whole(0, 1) == 1}
    if kind == "packed":
        parts = whole(1, 4)
        lengths = {"cu_seqlens_q": starts(rng, n_q, parts), "cu_seqlens_k": starts(rng, n_k, parts)}
        return {**lengths, **[{}, {"causal": True}, {"window": window}][whole(0, 2)]}
    if kind in ("both", "either"):
        a, b = (pattern(rng, SIMPLE[whole(0, len(SIMPLE) - 1)], n_q, n_k) for _ in "ab")
        return {"pattern": a & b if kind == "both" else a | b}
    if kind == "heads":
        return {"pattern": [pattern(rng, SIMPLE[whole(0, len(SIMPLE) - 1)], n_q, n_k) for _ in range(heads)]}
    if kind == "causal mask":
        return {"pattern": pattern(rng, "mask", n_q, n_k), "causal": True}
    return {} if kind == "none" else {"pattern": pattern(rng, kind, n_q, n_k)}


def modifiers(rng, op, batch, heads, n_q, n_k):
    some = lambda share: rng.random() < share
    chosen = {}
    if some(0.3):
        chosen["bias"] = [int(rng.choice([1, n])) for n in (batch, heads, n_q)] + [n_k]
        if op == "backward":
            chosen["bias_gradient"] = some(0.6)
    if some(0.2):
        chosen["softcap"] = 5.0
    if some(0.2):
        chosen["alibi"] = True
    if some(0.2) and op in ("forward", "backward"):
        chosen["sinks"] = True
        if op == "backward":
            chosen["sinks_gradient"] = some(0.6)
    if some(0.2) and op != "scores":
        chosen["dropout"] = 0.25
    return chosen


@pytest.mark.parametrize("part", range(-(-CASES // PART)))
def test_counts_are_those_of_the_formulas(part):
    """CASES problems in all, each planned for the fewest words and by another schedule that runs there."""
    refused, counted = (redblue.Unsupported, redblue.CapacityError), collections.Counter()
    for case in range(part * PART, min(CASES, (part + 1) * PART)):
        rng = np.random.default_rng(case)
        kind, op = KINDS[case % len(KINDS)], ("forward", "backward", "forward", "backward", "scores", "weights")[case // len(KINDS) % 6]
        batch, kv_heads, group = (int(rng.integers(1, 3)) for _ in range(3))
        heads, n_q, n_k, d, d_v = kv_heads * group, *(int(rng.integers(1, most)) for most in (41, 41, 10, 10))
        sizes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "n_q": n_q, "n_k": n_k, "d": d, "d_v": d_v}
        asked = {**options(rng, kind, n_q, n_k, batch, heads), **modifiers(rng, op, batch, heads, n_q, n_k)}
        asked["M"] = int(10 ** rng.uniform(1, 3.3))
        try:
            plan = redblue.plan(op, **sizes, **asked)
        except refused:
            continue
        others = [row["schedule"] for row in plan.rows if row["schedule"] != plan.schedule]
        plans = [plan]
        if others:
            plans.append(redblue.plan(op, **sizes, **asked, schedule=str(rng.choice(others))))
        for p in plans:
            c = p.count()
            said = (p.read_by_array, p.written_by_array, p.footprint, p.flops)
            assert (c["read_by_array"], c["written_by_array"], c["peak"], c["flops"]) == said, (case, op, p.schedule, sizes, asked)
            counted[kind] += 1
    assert len(counted) == len(KINDS) or CASES < PART, counted
