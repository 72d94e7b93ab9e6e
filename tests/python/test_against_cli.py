"""The command line plans, counts and bounds random problems without a mask exactly as the reference does. Masks:
test_masks.py.
"""

import random

import pytest

from program import SEED, answered, asked, needs_program
from reference import formulas, search
from reference.formulas import Problem

BOUNDS = {"trivial", "F'", "F''", "G"}
# Smallest key block of interest on a GPU (fewer if there are fewer keys): such a plan must be offered where it fits.
GPU_BLOCK = 16

pytestmark = needs_program


def random_case(index):
    rng = random.Random(f"{SEED}/{index}")
    n, d = rng.choice([(6, 4), (24, 12), (24, 12), (120, 24)])
    n_q, n_k = rng.randint(1, n), rng.randint(1, n)
    kv_heads, group, batch = (rng.randint(1, 3) for _ in range(3)) if rng.random() < 0.4 else (1, 1, 1)
    p = Problem(n_q, n_k, rng.randint(1, d), rng.randint(1, d), kv_heads * group, kv_heads, batch)
    largest = 2 * max(p.rows, p.n_k) * (p.d + p.d_v + 3)
    return p, round(3 * (largest / 3) ** rng.random())


def table_cases():
    sizes = [(d, 4**k) for d in (64, 128, 256, 512) for k in range(5, 11)]
    return [pytest.param(Problem(4096, 4096, d, d), M, id=f"d={d}-M={M}") for d, M in sizes]


RANDOM = [pytest.param(*random_case(index), id=f"seed={SEED}-{index}") for index in range(300)]


def reference_tiling(schedule, tiling, p, M):
    """The reference's names for a tiling of the command line."""
    tiling = dict(tiling)
    if schedule == "naive":
        assert tiling["rho"] == (1 if formulas.naive_softmax(p.n_k, 1) <= M else 2)
    elif schedule == "small_cache" and tiling.pop("panel", 0):
        assert "b" not in tiling
        tiling["b"] = None
    elif schedule == "column_split":
        tiling["h"] = -(-p.d_v // tiling.pop("w"))  # passes over groups of w value columns
    elif schedule == "flash_pinned":
        assert tiling.pop("Bc") == 1
    elif schedule == "key_outer":
        tiling.pop("Br", None)  # queries pass one by one: no tile of them is resident
    return tiling


def check_plan(plan, p, M):
    """One row: its cost is the formula at its tiling, it fits, and no tiling of its schedule does better."""
    schedule = plan["schedule"]
    cost = getattr(formulas, schedule)(p, **reference_tiling(schedule, plan["tiling"], p, M))
    assert (plan["reads"], plan["writes"], plan["footprint"]) == cost, plan
    assert plan["io"] == cost.io
    assert cost.footprint <= M, plan
    if schedule == "flash_tiled":
        least = search.flash_tiled(p, M, min_Bc=plan["tiling"]["Bc"])
    else:
        least = getattr(search, schedule)(p, M)
    assert cost.io == least.cost.io, f"{plan} but the reference finds {least}"


@pytest.mark.parametrize("p, M", [*RANDOM, *table_cases()])
def test_plan(p, M):
    least = search.plans(p, M)
    if not least:
        assert asked("plan", "forward", p, M).returncode != 0, "nothing fits, yet the program plans"
        return
    reply = answered("plan", "forward", p, M)
    plans = {plan["schedule"]: plan for plan in reply["plans"]}
    assert len(plans) == len(reply["plans"]), "one row per schedule"
    for schedule, plan in plans.items():
        if hasattr(formulas, schedule):  # the program may know more schedules than the reference
            check_plan(plan, p, M)

    tiled = search.flash_tiled(p, M, min_Bc=GPU_BLOCK)
    wanted = set(least) - (set() if tiled else {"flash_tiled"})
    assert wanted <= set(plans), "a schedule that fits is missing"
    if tiled:
        assert plans["flash_tiled"]["io"] <= tiled.cost.io

    chosen = reply["plans"][reply["chosen"]]
    assert chosen["schedule"] != "saha_ye", "not stable"
    assert chosen["io"] <= search.best(p, M).cost.io

    bounds = search.bounds(p, M)
    theorem, words = reply["bound"]["theorem"], reply["bound"]["words"]
    assert words == max(bounds.values()), (reply["bound"], bounds)
    assert theorem in BOUNDS and bounds[theorem] == words, (reply["bound"], bounds)
    for plan in plans.values():
        assert plan["ratio"] == pytest.approx(plan["io"] / words, rel=1e-3)


@pytest.mark.parametrize("p, M", RANDOM)
def test_count(p, M):
    if not search.plans(p, M):
        assert asked("count", "forward", p, M).returncode != 0, "nothing fits, yet the program counts"
        return
    planned = answered("plan", "forward", p, M)
    chosen = planned["plans"][planned["chosen"]]
    reply = answered("count", "forward", p, M)
    assert reply["schedule"] == chosen["schedule"]
    assert reply["counted"] == reply["formula"]
    if not hasattr(formulas, chosen["schedule"]):
        return
    tiling = reference_tiling(chosen["schedule"], chosen["tiling"], p, M)
    cost = getattr(formulas, chosen["schedule"])(p, **tiling)
    counted = {key: reply["counted"][key] for key in ("reads", "writes", "peak")}
    assert counted == {"reads": cost.reads, "writes": cost.writes, "peak": cost.footprint}
