"""Packed and padded sequences and patterns where Q, K and V are projections (forward-x, gradient-x, backward-x,
backward-w): the words of a plan against those of reference.schedules from the pairs of each sequence, and the
results of `redblue run` against numpy, sequence by sequence.
"""

import random

import numpy as np
import pytest

from dense import Attention, attention
from program import answer, needs_program, redblue, solved
from reference import schedules
from reference.words import Piece, cost_of

pytestmark = needs_program


def plans_of(op, sequences, *options):
    rows, keys = (",".join(map(str, lengths)) for lengths in zip(*sequences))
    return answer("plan", "--op", op, "--seqlens", rows, "--seqlens-k", keys, *options)["plans"]


@pytest.mark.parametrize("index", range(12))
def test_words_are_those_of_the_pairs(index):
    rng = random.Random(f"packed/{index}")
    causal, d, v = rng.random() < 0.6, rng.randint(1, 9), rng.randint(1, 9)
    keys = [rng.randint(1, 30) for _ in range(rng.randint(1, 6))]
    rows = [rng.randint(1, k) for k in keys]
    tiles = {}
    for op in ("gradient-x", "forward-x"):
        M = rng.randint(2 * d * d + 6 * d + 6 * v + 9, 900)
        for plan in plans_of(op, zip(rows, keys), "--d", d, "--dv", v, "--M", M, *["--causal"] * causal):
            tiles[plan["schedule"]] = plan
    pieces = [Piece([(0, min(k, i + 1 + k - n) if causal else k) for i in range(n)], k) for n, k in zip(rows, keys)]
    known = schedules.gradient_x(d, v, shared=False) | schedules.forward_x(d, v, shared=False)
    for name in ("xy_flash", "6R", "9R-a", "9R-b", "9R-c", "9R-d", "9R-e", "9R-f"):
        if name in tiles:
            plan = tiles[name]
            own = {(o["rows"], o["keys"]): o["tiling"] for o in plan["own_tilings"]}
            moved = cost_of(known[name], pieces, plan["tiling"], own)[:2]
            assert (plan["reads"], plan["writes"]) == moved, (name, plan["tiling"], rows, keys)
    assert {"xy_flash", "6R"} <= set(tiles)


def test_blocks_are_shared_by_short_sequences():
    """What a block costs whatever its size is not paid for each sequence: all lie in one block here."""
    ask = lambda *options: answer("plan", "--op", "gradient-x", "--d", 8, "--M", 4000, *options)["plans"]
    reads = lambda *options: {p["schedule"]: p["reads"] for p in ask(*options)}
    one, four = reads("--n", 40), reads("--seqlens", "10,10,10,10")
    assert four["9R-d"] == one["9R-d"] and four["9R-f"] == one["9R-f"]


@pytest.mark.parametrize("keys, closed", [("9,5,9", False), ("9,0,9", True)])
def test_says_that_gaps_are_closed(keys, closed):
    problem = ("--op", "forward-x", "--seqlens", "9,5,9", "--seqlens-k", keys, "--d", 4, "--M", 200)
    for command in ("plan", "explain"):
        assert ("that no pair has are taken last" in redblue(command, *problem).stdout) == closed


@pytest.mark.parametrize("index", range(8))
def test_tokens_of_no_pair_cost_nothing_but_their_outputs(index):
    """Queries without keys and keys without queries, wherever they lie: the plan without them, and rows of 0 in O, lse."""
    rng = random.Random(f"gaps/{index}")
    d, v, causal = rng.randint(1, 9), rng.randint(1, 9), rng.random() < 0.5
    pairs = []  # of (queries, keys); under a causal mask the first queries of a sequence with fewer keys see none
    for _ in range(rng.randint(2, 4)):
        pairs += [(n := rng.randint(1, 20), n + rng.randint(0, 9)), rng.choice([(0, rng.randint(1, 60)), (rng.randint(1, 60), 0)])]
    pairs.append((7, 5))
    needed = [(min(n, k) if causal else n, k) for n, k in pairs if n * k > 0]
    M = rng.randint(2 * d * d + 6 * d + 6 * v + 9, 4000)

    def words(op, sequences):
        plans = plans_of(op, sequences, "--d", d, "--dv", v, "--M", M, *["--causal"] * causal)
        return {p["schedule"]: p["reads"] + p["writes"] for p in plans}

    blind = sum(n for n, _ in pairs) - sum(n for n, _ in needed)
    assert words("gradient-x", pairs) == words("gradient-x", needed)
    assert words("forward-x", pairs) == {name: w + blind * (v + 1) for name, w in words("forward-x", needed).items()}


# ---- Values ----


def wanted(op, x, seen):
    """The outputs for a mask of bool [batch, n_q, n_k]."""
    t = lambda m: np.swapaxes(m, -1, -2)
    q, k, v = projected(op, x)
    a = Attention(q, k, v, seen[:, None], scale=0.2)
    if op == "forward-x":
        return {"o": a.o}
    dq, dk, dv = (a.gradients(x["do"])[name] for name in ("dq", "dk", "dv"))
    if op == "gradient-x":
        return {"g": t(x["a1"]) @ dq}
    if op == "backward-x":
        return {"dx": t(x["a1"]) @ dq, "dy": t(x["a3"]) @ dv, "da1": dq @ t(x["x"]), "da2": dk, "da3": dv @ t(x["y"])}
    return {"dwq": t(x["a1"]) @ dq, "dwk": t(x["a2"]) @ dk, "dwv": t(x["a3"]) @ dv, "da1": dq @ t(x["wq"]),
            "da2": dk @ t(x["wk"]), "da3": dv @ t(x["wv"])}


def projected(op, x):
    """Q, K and V."""
    if op == "backward-w":
        return x["a1"] @ x["wq"], x["a2"] @ x["wk"], x["a3"] @ x["wv"]
    return x["a1"] @ x["x"], x["a2"], x["a3"] @ x["y"]


def mask_of(batch, spans, n_q, n_k, causal):
    seen = np.zeros((batch, n_q, n_k), bool)
    for b, rows, keys in spans:
        i, j = np.arange(rows.stop - rows.start)[:, None], np.arange(keys.stop - keys.start)
        seen[b, rows, keys] = (j <= i + j.size - i.size) | (not causal)
    return seen


def packed(causal):
    ends_q, ends_k = np.cumsum([0, 7, 0, 15, 3, 6]), np.cumsum([0, 5, 2, 14, 1, 0])
    spans = [(b, slice(*ends_q[s:s + 2]), slice(*ends_k[s:s + 2])) for b in range(2) for s in range(5)]
    options = ["--seqlens", "7,0,15,3,6", "--seqlens-k", "5,2,14,1,0", *["--causal"] * causal]
    return options, mask_of(2, spans, 31, 22, causal)


def padded(causal):
    spans = [(0, slice(0, 31), slice(0, 9)), (1, slice(0, 12), slice(0, 22))]
    options = ["--seqused-q", "31,12", "--seqused-k", "9,22", *["--causal"] * causal]
    return options, mask_of(2, spans, 31, 22, causal)


def longformer(causal):
    i, j = np.arange(31)[:, None] - 9, np.arange(22)
    seen = (abs(i - j) <= 3) | (j < 2) | ((i >= 0) & (i < 2))
    return ["--window", "3,3", "--globals", "2", *["--causal"] * causal], np.repeat((seen & ((j <= i) | (not causal)))[None], 2, 0)


@pytest.mark.parametrize("masks", [packed, padded, longformer], ids=lambda f: f.__name__)
@pytest.mark.parametrize("op", ["forward-x", "gradient-x", "backward-x", "backward-w"])
def test_values(tmp_path, op, masks):
    draw = np.random.default_rng(1)
    sizes = {"a1": (31, 5), "a2": (22, 5), "a3": (22, 5), "do": (31, 4)}
    sizes |= {"wq": (5, 6), "wk": (5, 6), "wv": (5, 4)} if op == "backward-w" else {"x": (5, 5), "y": (5, 4)}
    if op == "forward-x":
        del sizes["do"]
    x = {name: draw.normal(size=(2, 2, *size)) for name, size in sizes.items()}
    options, seen = masks(op in ("gradient-x", "backward-w"))
    if op == "backward-w":  # it needs O and lse
        x["o"], x["lse"] = attention(*projected(op, x), seen[:, None], scale=0.2)
    y, _ = solved(tmp_path, x, "--op", op, "--M", 400, "--scale", 0.2, *options)
    for name, numbers in wanted(op, x, seen).items():
        np.testing.assert_allclose(y[name], numbers, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("lengths", [("100,100", "100,100"), ("0,150,60", "80,0,130")])
def test_longer_sequences(tmp_path, lengths):
    draw = np.random.default_rng(2)
    x = {"a1": draw.normal(size=(1, 2, sum(map(int, lengths[0].split(","))), 4))}
    x |= {name: draw.normal(size=(1, 2, sum(map(int, lengths[1].split(","))), 4)) for name in ("a2", "a3")}
    x |= {name: draw.normal(size=(1, 2, 4, 4)) for name in ("x", "y")}
    options = ["--M", 300, "--layout", "bhnd", "--seqlens", lengths[0], "--seqlens-k", lengths[1], "--scale", 0.2]
    y, _ = solved(tmp_path, x, "--op", "forward-x", *options)
    rows, keys = (np.repeat(range(len(n.split(","))), [int(s) for s in n.split(",")]) for n in lengths)
    o = wanted("forward-x", x, (rows[:, None] == keys)[None])["o"]
    np.testing.assert_allclose(y["o"], o, atol=1e-9)


@pytest.mark.parametrize("sources", ["shared", "self"])
@pytest.mark.parametrize("op", ["backward-x", "backward-w"])
def test_verify_knows_that_sources_are_shared(tmp_path, op, sources):
    """Each query sees one key, so that gradients of Q and K are 0 but for roundings."""
    draw = np.random.default_rng(3)
    n, d = 8, 4
    factors = ("wq", "wk", "wv") if op == "backward-w" else ("x", "y")
    x = {name: draw.normal(size=(1, 1, n, d)) for name in ("a1", "do") + (("a2",) if sources == "shared" else ())}
    x |= {name: draw.normal(size=(1, 1, d, d)) for name in factors}
    if op == "backward-w":
        a2 = x.get("a2", x["a1"])
        x |= {"o": a2 @ x["wv"], "lse": 0.2 * ((x["a1"] @ x["wq"]) * (a2 @ x["wk"])).sum(-1)}
    options = ["--M", 300, "--layout", "bhnd", "--scale", 0.2, "--sources", sources, "--window", "0,0", "--verify"]
    solved(tmp_path, x, "--op", op, *options)


@pytest.mark.parametrize("op", ["gradient-x", "backward-x", "backward-w"])
def test_verify_accepts_gradients_that_are_0_but_for_roundings(tmp_path, op):
    """A query that sees one key has dS = 0: what is left in gradients of Q and K are roundings of larger terms."""
    rng = np.random.default_rng(5)
    n, d = 23, 6
    array = lambda *shape: rng.normal(size=(1, 1, *shape))
    x = {"a1": array(n, d), "a2": array(1, d), "a3": array(1, d), "do": array(n, d)}
    x |= {name: array(d, d) for name in (("wq", "wk", "wv") if op == "backward-w" else ("x", "y"))}
    if op == "backward-w":
        s = 0.2 * x["a1"] @ x["wq"] @ (x["a2"] @ x["wk"]).swapaxes(2, 3)
        x |= {"o": np.broadcast_to(x["a3"] @ x["wv"], (1, 1, n, d)), "lse": s[..., 0]}
    solved(tmp_path, x, "--op", op, "--M", 300, "--layout", "bhnd", "--scale", 0.2, "--verify")


def test_modifiers_of_other_operations_are_refused(tmp_path):
    rng = np.random.default_rng(6)
    x = {name: rng.normal(size=(1, 1, 5, 4)) for name in ("a1", "a2", "a3")}
    x |= {name: rng.normal(size=(1, 1, 4, 4)) for name in ("x", "y")}
    np.savez(tmp_path / "x.npz", **x, bias=np.zeros((1, 1, 5, 5)))
    files = ["--input", tmp_path / "x.npz", "--output", tmp_path / "o.npz"]
    done = redblue("run", "--op", "forward-x", "--M", 300, "--layout", "bhnd", *files)
    assert done.returncode == 2 and "bias" in done.stderr and not (tmp_path / "o.npz").exists()
