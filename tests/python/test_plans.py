"""The command line plans random problems exactly as a second planner does (reference.words): that one adds up every sum
over blocks row by row from the pairs that see each other, and tries every tiling. The bounds are those of
reference.bounds.

REDBLUE_CLI is the program to test; REDBLUE_SEED (default 1) picks the problems and shows in the name of every test.
"""

import json
import random

import pytest

from program import SEED, needs_program, redblue
from reference import bounds, schedules
from reference.words import Dense, cost_of, least, pieces_of

pytestmark = needs_program
PROVED = {"trivial", "F'", "F''", "G", "B'", "B''", "B14", "B10", "g"}
TABLES = [(4096, 4096, d, d, 4**k) for d, k in ((64, 5), (64, 10), (128, 9), (256, 8), (512, 7))]


class Case:
    """A problem, its options, and the pieces of one group of heads; rows and keys that no piece holds are blind."""

    def __init__(self, op, n_q, n_k, d, v, M, group=1, copies=(1, 1), mask=()):
        kv_heads, batch = copies
        self.op, self.n_q, self.n_k, self.d, self.v, self.M, self.group = op, n_q, n_k, d, v, M, group
        self.copies, self.mask = kv_heads * batch, bool(mask)
        self.pieces, self.blind_rows, self.blind_keys = [Dense(n_q * group, n_k)], 0, 0
        sizes = {"op": op, "nq": n_q, "nk": n_k, "d": d, "dv": v, "M": M, "heads": kv_heads * group, "batch": batch}
        if op in ("forward", "backward"):
            sizes["kv-heads"] = kv_heads
        self.options = [word for name, size in sizes.items() for word in (f"--{name}", size)]
        if mask:
            causal, offset, left, right, prefix = mask
            self.options += ["--causal-offset", offset, *["--causal"] * causal]
            self.options += ["--prefix", prefix] if prefix else []
            edges = ",".join("-1" if edge is None else str(edge) for edge in (left, right))
            self.options += [] if edges == "-1,-1" else ["--window", edges]
            lo = None if left is None else offset - left
            hi = offset + 1 if causal else None if right is None else offset + right + 1
            self.pieces, self.blind_rows, self.blind_keys = pieces_of(n_q, n_k, lo, hi, prefix, group)
            self.is_window = lo is not None and n_q - 1 + lo > 0

    def ask(self, *more):
        """Its plans by the names of the papers, where they have one; and all that the program says."""
        done = redblue("plan", *self.options, *more, "--json")
        reply = json.loads(done.stdout) if done.returncode == 0 else {"plans": []}
        name = lambda plan: plan.get("label", plan["schedule"]) if self.op == "backward" else plan["schedule"]
        names = [name(plan) for plan in reply["plans"]]
        assert len(set(names)) == len(names), "one row per schedule"
        return dict(zip(names, reply["plans"])), reply

    def blind(self, name):
        """Words of 0 that a schedule writes where nothing is seen. Naive alone need not write lse, and does not."""
        if self.op == "forward":
            return self.blind_rows * (self.v + (name != "naive"))
        return self.blind_rows * self.d + self.blind_keys * (self.d + self.v)

    def bound(self):
        return bounds.Problem(self.n_q * self.group, self.n_k, self.d, self.v, self.copies)


def dense_case(op, index):
    rng = random.Random(f"{op}/{SEED}/{index}")
    n, most = rng.choice([(6, 4), (24, 12), (24, 12), (120, 24)])
    n_q, n_k, d, v = (rng.randint(1, size) for size in (n, n, most, most))
    group, copies = 1, (1, 1)
    if rng.random() < 0.4:
        group, copies = rng.randint(1, 3), (rng.randint(1, 3), rng.randint(1, 3))
    if op.endswith("-x"):
        group = 1
        if rng.random() < 0.3:
            n_k, v = n_q, d
    largest = 2 * (max(n_q * group, n_k) + d * op.endswith("-x")) * (d + v + 3)
    if op == "gradient-x" and rng.random() < 0.2:  # room for all that there is
        largest = 4 * (n_q + d) * (n_k + d + v)
    return Case(op, n_q, n_k, d, v, round(3 * (max(largest, 8) / 3) ** rng.random()), group, copies)


def masked_case(op, index):
    rng = random.Random(f"masks/{SEED}/{index}")
    n_q, n_k, d, v, group = *(rng.randint(1, most) for most in (12, 12, 6, 6)), rng.choice([1, 1, 2, 3])
    causal, offset = rng.random() < 0.6, rng.randint(-6, 8)
    left = rng.choice([None, rng.randint(0, 8)])
    right = None if causal else rng.choice([None, rng.randint(0, 6)])
    if not causal and left is None and right is None:
        causal = True
    prefix = rng.randint(0, n_k) if (causal or right is not None) and rng.random() < 0.25 else 0
    return Case(op, n_q, n_k, d, v, rng.randint(3, 160), group, mask=(causal, offset, left, right, prefix))


def cases(op, many, make=dense_case):
    drawn = [pytest.param(make(op, index), id=f"seed={SEED}-{index}") for index in range(many)]
    if make is masked_case:
        return drawn
    return [*drawn, *(pytest.param(Case(op, *sizes), id=f"d={sizes[2]}-M={sizes[4]}") for sizes in TABLES)]


def check_plans(case, found, known, wanted):
    """A schedule is there if it fits, its words and footprint are those of its tiling, and no tiling does better."""
    for name, phases in known.items():
        words, plan = wanted[name], found.get(name)
        if name == "flash_tiled" and plan is not None:  # with more keys in a block it takes more words of fast memory
            assert words is None or plan["io"] <= case.copies * words, (case.options, plan)
            phases = [schedules.flash_tiled(case.d, case.v, plan["tiling"]["Bc"])]
            words = least(phases, case.pieces, case.M)
        if words is None:
            assert plan is None or not plan["fits"], (case.options, name, plan)
            continue
        assert plan is not None, (case.options, f"{name} fits, and is missing")
        assert plan["io"] == case.copies * (words + case.blind(name)), (case.options, name, plan)
        if case.mask:  # streamed blocks may take what is left; test_patterns.py has these footprints
            continue
        reads, writes, footprint = cost_of(phases, case.pieces, plan["tiling"])
        check_cost(case, plan, reads, writes, footprint)
        assert footprint <= case.M and plan["fits"], (case.options, plan)


def check_cost(case, plan, reads, writes, footprint):
    words = (case.copies * reads, case.copies * writes, footprint)
    assert (plan["reads"], plan["writes"], plan["footprint"]) == words, (case.options, plan)


def check_chosen(case, found, reply, wanted):
    """No plan of the reference is cheaper; what cannot be run is not chosen."""
    chosen = reply["plans"][reply["chosen"]]
    assert chosen["stable"] and chosen["fits"] and not chosen["schedule"].startswith("algorithm_"), chosen
    assert all(words is None or chosen["io"] <= found[name]["io"] for name, words in wanted.items()), chosen


def check_bounds(reply, lines):
    """Every line, to the word; None: it does not apply."""
    said = {bound["theorem"]: bound for bound in reply["bounds"]}
    assert said.keys() == lines.keys()
    for theorem, words in lines.items():
        if words is None:
            assert not said[theorem]["holds"], (theorem, said)
        else:
            assert said[theorem]["words"] == max(0, words), (theorem, said, lines)
        assert (said[theorem]["status"] == "proved") == (theorem in PROVED), said[theorem]
    best = max(0, *(words or 0 for theorem, words in lines.items() if theorem in PROVED))
    assert reply["bound"]["words"] == best and lines[reply["bound"]["theorem"]] == best, reply["bound"]
    for plan in reply["plans"]:
        assert best == 0 or plan["ratio"] == pytest.approx(plan["io"] / best, rel=1e-3)
        # As printed algorithms may use more words of fast memory than the bound is for.
        assert plan["io"] >= best or not plan["fits"]


def check(case, known, lines, *more):
    """All of it, what is chosen and the bounds where lines are given; returns the plans."""
    wanted = {name: least(phases, case.pieces, case.M) for name, phases in known.items()}
    found, reply = case.ask(*more)
    check_plans(case, found, known, wanted)
    if found and lines:
        check_chosen(case, found, reply, wanted)
        check_bounds(reply, lines)
    return found


def check_printed(case, found, known):
    """They are for comparison only. The footprint of Algorithm 1 depends on the order in which its arrays leave: its
    paper prints it for these sizes. Algorithm 9 is listed whether or not it fits."""
    for name, (reads, writes, footprint) in known.items():
        if name == "algorithm_1" and not case.n_q == case.n_k > case.d == case.v:
            footprint = found[name]["footprint"] if name in found else case.M + 1
        if footprint > case.M and name != "algorithm_9":
            assert name not in found
        elif found:
            plan = found[name]
            check_cost(case, plan, reads, writes, footprint)
            assert plan["fits"] == (footprint <= case.M) and not plan["stable"], plan


@pytest.mark.parametrize("case", cases("forward", 250))
def test_forward(case):
    found = check(case, not_for_windows(schedules.forward(case.d, case.v)), bounds.forward(case.bound(), case.M))
    for name, plan in found.items():
        if name == "saha_ye":
            check_cost(case, plan, *schedules.saha_ye(case.pieces[0], case.d, case.v, plan["tiling"]["B"]))
            assert not plan["stable"]


@pytest.mark.parametrize("case", cases("backward", 250))
def test_backward(case):
    check(case, not_for_windows(schedules.backward(case.d, case.v)), bounds.backward(case.bound(), case.M))


def not_for_windows(known):
    """Rings and strips need a mask."""
    return {name: phases for name, phases in known.items() if not name.startswith(("ring", "strips"))}


@pytest.mark.parametrize("case", [*cases("forward", 150, masked_case), *cases("backward", 150, masked_case)])
def test_under_masks(case):
    if not case.pieces:  # zeros are written, and nothing is read
        found, _ = case.ask()
        assert found and all(plan["io"] == case.blind(name) for name, plan in found.items())
        return
    known = getattr(schedules, case.op)(case.d, case.v)
    for name in {"grouped_key_outer", "flash_tiled", "split_keys"} & known.keys():  # of problems without a mask
        del known[name]
    check(case, known if case.is_window else not_for_windows(known), None)


@pytest.mark.parametrize("sources", ["distinct", "shared"])
@pytest.mark.parametrize("case", cases("gradient-x", 150))
def test_gradient_x(case, sources):
    shared = sources == "shared"
    lines = bounds.gradient_x(case.bound(), case.M, shared)
    found = check(case, schedules.gradient_x(case.d, case.v, shared), lines, "--sources", sources)
    check_printed(case, found, schedules.printed(case.n_q, case.n_k, case.d, case.v, case.M))
    if shared and case.n_q == case.n_k:  # self-attention has the same schedules, and never a larger bound
        own, reply = case.ask("--sources", "self")
        assert own.keys() == found.keys()
        assert not own or reply["bound"]["words"] <= max(0, *(lines[theorem] for theorem in ("trivial", "g")))


@pytest.mark.parametrize("sources", ["distinct", "shared"])
@pytest.mark.parametrize("case", cases("forward-x", 100))
def test_forward_x(case, sources):
    shared = sources == "shared"
    lines = bounds.forward_x(case.bound(), case.M, shared)
    check(case, schedules.forward_x(case.d, case.v, shared), lines, "--sources", sources)


# What the theory prints of these formulas.


def test_printed_footprints_of_the_published_algorithms():
    """Where the theory prints a footprint for n_k = n, d_v = d only, the general one reduces to it."""
    for n in range(1, 12):
        for d in range(1, n + 1):
            assert schedules.algorithm_1(n, n, d, d) == (
                4 * n * d + 2 * d * d, d * d, max(3 * n * n + 2 * n * d + n, 2 * n * n + 4 * n * d))
            assert schedules.algorithm_1(n, n, d, d, in_place=True)[2] == 2 * n * n + 4 * n * d
            for B in range(1, min(n, d) + 1):
                c_n, c_d = -(-n // B), -(-d // B)
                assert schedules.algorithm_6(n, n, d, d, B) == (
                    c_n * (5 * n * d + 2 * d * d) + c_d * (4 * n * d + n * n) + 5 * n * n,
                    3 * n * d + 4 * n * n + d * d,
                    3 * B * B + B,
                )


def test_minimal_memory():
    """Each schedule fits from the printed number of words on, for sizes above it."""
    pieces = [Dense(40, 41)]
    for d in range(1, 6):
        for v in range(1, 6):
            smallest = {
                "e1": 3 * d + 2 * v + 5,
                "e3": max(3 * d + v + 5, 3 * d + 2 * v + 5),
                "e5": 4,
                "e6": 2 * v + 4,
                "9R-a": d * d + 3 * d + v + 5,
                "9R-b": 3 * d + v + 5,
                "9R-c": 3 * d + v + 5,
                "9R-d": d * d + d * v + 3 * d + 2 * v + 4,
                "9R-e": 2 * d * d + 3 * d + v + 5,
                "9R-f": 2 * d * d + 3 * d + v + 5,
            }
            known = schedules.backward(d, v) | schedules.gradient_x(d, v, shared=False)
            for name, M in smallest.items():
                assert least(known[name], pieces, M) and not least(known[name], pieces, M - 1), (name, d, v, M)
