"""The reference agrees with itself (simulated, by formula, numerically) and with table 4.1 of the theory."""

import csv
import random
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from reference import formulas, search, simulator
from reference.formulas import Problem

pytestmark = pytest.mark.slow  # it asks the reference and the data alone, not redblue

TABLE = Path(__file__).parents[1] / "data" / "table_4_1.csv"
MASKABLE = ("flash", "flash_tiled", "column_split", "split_keys")
SCHEDULES = (*MASKABLE, "naive", "flash_pinned", "key_outer", "small_cache", "saha_ye", "score_tiles")


def random_problem(rng, causal, n=14, d=8):
    n_q, n_k = rng.randint(1, n), rng.randint(1, n)
    offset = rng.choice([n_k - n_q, rng.randint(-n, n)]) if causal else None
    kv_heads, group = rng.choice([(1, 1), (1, 2), (2, 1), (2, 3)])
    batch = rng.randint(1, 2)
    return Problem(n_q, n_k, rng.randint(1, d), rng.randint(1, d), offset, kv_heads * group, kv_heads, batch)


def random_tiling(rng, schedule, p):
    """Tile sizes larger than the dimension are included on purpose."""
    b1, b2, b3, b4 = (rng.randint(1, 9) for _ in range(4))
    return {
        "naive": dict(b1=b1, b2=b2, b3=b3, b4=b4, rho=rng.randint(1, 2)),
        "flash": dict(Br=b1, Bc=b2),
        "flash_tiled": dict(Br=b1, Bc=b2),
        "split_keys": dict(Br=b1, Bc=b2, G=b3),
        "flash_pinned": dict(Br=b1, rho=rng.randint(0, p.n_k)),
        "column_split": dict(Br=b1, Bc=b2, h=rng.randint(1, p.d_v)),
        "key_outer": dict(Bc=b1),
        "small_cache": dict(a=b1, b=rng.choice([None, b2]), a2=b3, c2=b4),
        "saha_ye": dict(B=b1),
        "score_tiles": dict(a=b1, b=b2),
    }[schedule]


def simulate(rng, schedule, p, tiling):
    """Cost of all batches and heads. Query heads that share keys are stacked position-major."""
    data = np.random.default_rng(rng.getrandbits(32))
    visible = np.array([p.visible(row) for row in range(p.rows)])
    masks = {} if p.offset is None else {"visible": visible}
    R = W = peak = 0
    for _ in range(p.copies):
        heads = data.normal(size=(p.group, p.n_q, p.d))
        Q = heads.transpose(1, 0, 2).reshape(p.rows, p.d)
        K, V = data.normal(size=(p.n_k, p.d)), data.normal(size=(p.n_k, p.d_v))
        r, w, f = getattr(simulator, schedule)(Q, K, V, **tiling, **masks)
        R, W, peak = R + r, W + w, max(peak, f)
    return R, W, peak


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_simulated_cost_equals_formula(schedule):
    rng = random.Random(schedule)
    for case in range(60):
        p = random_problem(rng, causal=schedule in MASKABLE and case % 2 == 1)
        tiling = random_tiling(rng, schedule, p)
        assert simulate(rng, schedule, p, tiling) == getattr(formulas, schedule)(p, **tiling), (p, tiling)


def test_cheapest_plans_run_within_capacity():
    rng = random.Random("plans")
    for case in range(40):
        p = random_problem(rng, causal=case % 3 == 0, n=10, d=6)
        M = rng.randint(3, 150)
        for plan in search.plans(p, M).values():
            assert simulate(rng, plan.schedule, p, plan.tiling) == plan.cost
            assert plan.cost.footprint <= M


def test_stacked_rows_see_what_their_head_sees():
    for n_q, n_k, group in product(range(1, 5), range(1, 5), range(1, 4)):
        p = Problem(n_q, n_k, 1, 1, offset=n_k - n_q, heads=group)
        mask = np.arange(n_k)[None, :] <= np.arange(n_q)[:, None] + n_k - n_q
        assert [p.visible(row) for row in range(p.rows)] == list(np.repeat(mask.sum(axis=1), group))


def test_distinct_ceilings_lose_nothing(monkeypatch):
    rng = random.Random("ceilings")
    for case in range(60):
        p = random_problem(rng, causal=case % 3 == 0, n=20)
        M = rng.randint(3, 300)
        everything = search.plans(p, M)
        search.sizes.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(search, "SMALL", 0)
            ceilings = search.plans(p, M)
        search.sizes.cache_clear()
        assert {name: plan.cost for name, plan in ceilings.items()} == {
            name: plan.cost for name, plan in everything.items()
        }, (p, M)


def test_no_bound_exceeds_the_best_plan():
    rng = random.Random("bounds")
    for case in range(1500):
        p = random_problem(rng, causal=case % 2 == 0)
        M = rng.randint(3, 400)
        plan = search.best(p, M)
        if plan:
            assert search.bound(p, M)[1] <= plan.cost.io, (p, M, search.bounds(p, M), plan)


@pytest.mark.parametrize("p", [Problem(1000, 900, 2, 1), Problem(10**6, 10**5, 64, 64), Problem(999, 77, 3, 8)])
def test_bound_f1_is_the_printed_expression(p):
    for M in (3, 17, 100, 4096, 10**5):
        c, N, width = 1 - 1 / (2 * M), p.n_q * p.n_k, p.d + p.d_v
        choices = [(c, min(1, c * min(width, 2 * p.d) / M**0.5))] + ([(1, 1)] if M <= 4 * p.d**2 else [])
        words = max(k * 2 * s * width * N / M**0.5 - s * s * N - M for k, s in choices)
        assert search.theorem_f1(p, M) == pytest.approx(words, rel=1e-12, abs=1)


def table_row(d, M):
    """The table's columns for n_q = n_k = 4096, d_v = d, from the search alone."""
    p = Problem(4096, 4096, d, d)
    plans = search.plans(p, M)
    plans |= {"flash_tiled16": search.flash_tiled(p, M, min_Bc=16), "saha_ye": search.saha_ye(p, M)}
    row = {name: plan.cost.io for name, plan in plans.items() if plan}

    def show(columns, schedule):
        if plans.get(schedule):
            row.update((column, plans[schedule].tiling[key]) for column, key in columns.items())

    show({"flash_Br": "Br"}, "flash")
    show({"pin_Br": "Br", "pin_rho": "rho"}, "flash_pinned")
    show({"key_outer_Bc": "Bc"}, "key_outer")
    show({"st_a": "a", "st_b": "b"}, "score_tiles")
    tiling = plans["small_cache"].tiling
    row["sc_phase1"] = f"{tiling['a']}xp" if tiling["b"] is None else f"{tiling['a']}x{tiling['b']}"
    row["sc_phase2"] = f"{tiling['a2']}x{tiling['c2']}"
    theorem, row["bound"] = search.bound(p, M)
    row["bound_letter"] = {"trivial": "t", "F''": "v", "F'": "s" if M <= 4 * d * d else "l"}[theorem]
    row["ratio"] = f"{search.best(p, M).cost.io / row['bound']:.3f}"
    return row


def table():
    with TABLE.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("printed", table(), ids=lambda row: f"d={row['d']}-M={row['M']}")
def test_table_of_the_theory(printed):
    d, M = int(printed.pop("d")), int(printed.pop("M"))
    row = table_row(d, M)
    assert {column: str(row.get(column, "")) for column in printed} == printed


def test_table_is_complete():
    assert len(table()) == 24
