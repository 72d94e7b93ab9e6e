"""The backward reference agrees with itself (simulated, by formula, numerically) and with tables 4.2 and 4.3."""

import csv
import random
from pathlib import Path

import numpy as np
import pytest

from reference import backward_formulas as formulas
from reference import backward_search as search
from reference import backward_simulator as simulator
from reference import search as forward_search
from reference.formulas import Problem
from reference.simulator import dense

pytestmark = pytest.mark.slow  # it asks the reference and the data alone, not redblue

DATA = Path(__file__).parents[1] / "data"
FORWARD = ("flash", "flash_tiled", "column_split", "naive", "flash_pinned", "key_outer", "small_cache", "score_tiles")
STANDARD = ("e1", "e2", "e3", "e4", "e5", "e6", "grouped_key_outer")
SQUARE = ("alg9",)
GRADIENT_X = ("alg1", "alg6", "alg9", "r6", "r9a", "r9b", "r9c", "r9d", "r9e", "r9f")
SCHEDULES = (*STANDARD, *GRADIENT_X, "shared_forward", "shared_backward", "projected")
MASKABLE = ("e3", "grouped_key_outer")


def random_problem(rng, causal=False, square=False, n=12, d=8):
    n_q, n_k, d_k, d_v = rng.randint(1, n), rng.randint(1, n), rng.randint(1, d), rng.randint(1, d)
    if square:
        return Problem(n_q, n_q, d_k, d_k)
    offset = rng.choice([n_k - n_q, rng.randint(-n, n)]) if causal else None
    kv_heads, group = rng.choice([(1, 1), (1, 1), (1, 2), (2, 1)])
    return Problem(n_q, n_k, d_k, d_v, offset, kv_heads * group, kv_heads, rng.choice([1, 1, 2]))


def random_tiling(rng, schedule, p):
    """Tile sizes larger than the dimension are included on purpose."""

    def size():
        return rng.randint(1, 8)

    def tile():
        return size(), size()

    def score_tile():
        return size(), rng.choice([None, size()])

    def projections():
        return dict(ts=tile(), th=tile())

    def forward():
        name = rng.choice(FORWARD)
        tiling = {
            "naive": lambda: dict(b1=size(), b2=size(), b3=size(), b4=size(), rho=rng.randint(1, 2)),
            "flash_pinned": lambda: dict(Br=size(), rho=rng.randint(0, p.n_k)),
            "column_split": lambda: dict(Br=size(), Bc=size(), h=rng.randint(1, p.d_v)),
            "key_outer": lambda: dict(Bc=size()),
            "small_cache": lambda: dict(a=size(), b=rng.choice([None, size()]), a2=size(), c2=size()),
            "score_tiles": lambda: dict(a=size(), b=size()),
        }.get(name, lambda: dict(Br=size(), Bc=size()))()
        return dict(schedule=name, tiling=tiling)

    return {
        "e1": lambda: dict(Bc=size()),
        "grouped_key_outer": lambda: dict(Bc=size(), G=size()),
        "e2": lambda: dict(Br=size()),
        "e3": lambda: dict(Br=size(), Bc=size()),
        "e4": lambda: dict(Bc=size(), t=tile()),
        "e5": lambda: dict(t1=score_tile(), t2=score_tile(), t3=tile(), t4=tile(), t5=tile()),
        "e6": lambda: dict(t1=score_tile(), Bc=size(), t4=tile(), t5=tile()),
        "alg1": lambda: dict(in_place=rng.random() < 0.5),
        "alg6": lambda: dict(B=size()),
        "alg9": lambda: dict(Br=size(), Bc=size()),
        "r6": lambda: dict(**projections(), t1=score_tile(), t2=score_tile(), tu=tile(), tg=tile()),
        "r9a": lambda: dict(Br=size(), **projections()),
        "r9b": lambda: dict(Br=size(), **projections()),
        "r9c": lambda: dict(Br=size(), **projections(), tg=tile()),
        "r9d": lambda: dict(Br=size()),
        "r9e": lambda: dict(Bc=size(), th=tile()),
        "r9f": lambda: dict(Bc=size()),
        "shared_forward": lambda: dict(Br=size(), ts=tile(), to=tile()),
        "shared_backward": lambda: dict(Br=size(), ts=tile(), to=tile(), tg=tile()),
        "projected": lambda: dict(**projections(), **forward()),
    }[schedule]()


def random_inputs(data, schedule, p):
    def normal(*shape):
        return data.normal(size=shape)

    dO = normal(p.rows, p.d_v)
    if schedule in STANDARD:
        return normal(p.rows, p.d), normal(p.n_k, p.d), normal(p.n_k, p.d_v), dO
    layer = normal(p.rows, p.d), normal(p.n_k, p.d), normal(p.n_k, p.d), normal(p.d, p.d) / p.d, normal(p.d, p.d_v)
    A1, A2, A3, X, Y = layer
    return {"projected": layer, "shared_forward": (A1, A2, X, Y), "shared_backward": (A1, A2, X, Y, dO)}.get(
        schedule, (*layer, dO))


def simulate(rng, schedule, p, tiling):
    """Cost of all batches and heads. Query heads that share keys are stacked position-major."""
    data = np.random.default_rng(rng.getrandbits(32))
    masks = {} if p.offset is None else {"visible": np.array([p.visible(row) for row in range(p.rows)])}
    R = W = peak = 0
    for _ in range(p.copies):
        r, w, f = getattr(simulator, schedule)(*random_inputs(data, schedule, p), **tiling, **masks)
        R, W, peak = R + r, W + w, max(peak, f)
    return R, W, peak


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_simulated_cost_equals_formula(schedule):
    rng = random.Random(schedule)
    for case in range(300):
        p = random_problem(rng, causal=schedule in MASKABLE and case % 2 == 1, square=schedule in SQUARE)
        tiling = random_tiling(rng, schedule, p)
        assert simulate(rng, schedule, p, tiling) == getattr(formulas, schedule)(p, **tiling), (p, tiling)


def differences(loss, x, step=1e-5):
    gradient = np.empty_like(x)
    for index in np.ndindex(x.shape):
        ends = []
        for sign in (1, -1):
            moved = x.copy()
            moved[index] += sign * step
            ends.append(loss(moved))
        gradient[index] = (ends[0] - ends[1]) / (2 * step)
    return gradient


def test_dense_gradients_are_the_derivatives():
    rng = random.Random("differences")
    data = np.random.default_rng(7)
    for case in range(30):
        p = random_problem(rng, causal=case % 2 == 1, n=6, d=4)
        visible = np.array([p.visible(row) for row in range(p.rows)])
        Q, K, V, dO = random_inputs(data, "e3", p)
        numerical = (
            differences(lambda x: (dO * dense(x, K, V, visible)[0]).sum(), Q),
            differences(lambda x: (dO * dense(Q, x, V, visible)[0]).sum(), K),
            differences(lambda x: (dO * dense(Q, K, x, visible)[0]).sum(), V),
        )
        for got, want in zip(simulator.dense_gradients(Q, K, V, dO, visible), numerical):
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)
        A1, A2, A3, X, Y, dO = random_inputs(data, "r6", p)
        numerical = differences(lambda x: (dO * simulator.dense_layer(A1, A2, A3, x, Y)[0]).sum(), X)
        got = simulator.dense_gradient_x(A1, A2, A3, X, Y, dO)
        np.testing.assert_allclose(got, numerical, rtol=1e-6, atol=1e-7)


def test_stacked_heads_give_the_sum_of_their_gradients():
    data = np.random.default_rng(3)
    group, n_q, n_k, d, d_v, offset = 3, 4, 5, 2, 3, 1
    Q, K = data.normal(size=(n_q, group, d)), data.normal(size=(n_k, d))
    V, dO = data.normal(size=(n_k, d_v)), data.normal(size=(n_q, group, d_v))
    p = Problem(n_q, n_k, d, d_v, offset, heads=group)
    per_head = np.array([min(n_k, row + 1 + offset) for row in range(n_q)])
    heads = [simulator.dense_gradients(Q[:, h], K, V, dO[:, h], per_head) for h in range(group)]
    stacked = np.array([p.visible(row) for row in range(p.rows)])
    dQ, dK, dV = simulator.dense_gradients(Q.reshape(-1, d), K, V, dO.reshape(-1, d_v), stacked)
    np.testing.assert_allclose(dQ.reshape(n_q, group, d), np.stack([head[0] for head in heads], axis=1))
    np.testing.assert_allclose(dK, sum(head[1] for head in heads))
    np.testing.assert_allclose(dV, sum(head[2] for head in heads))


def test_printed_footprints_of_the_published_algorithms():
    """Where the theory prints a footprint for n_k = n, d_v = d only, the general one reduces to it."""
    for n in range(1, 12):
        for d in range(1, n + 1):
            p = Problem(n, n, d, d)
            assert formulas.alg1(p, False) == (
                4 * n * d + 2 * d * d, d * d, max(3 * n * n + 2 * n * d + n, 2 * n * n + 4 * n * d))
            assert formulas.alg1(p, True).footprint == 2 * n * n + 4 * n * d
            for B in range(1, min(n, d) + 1):
                c_n, c_d = -(-n // B), -(-d // B)
                assert formulas.alg6(p, B) == (
                    c_n * (5 * n * d + 2 * d * d) + c_d * (4 * n * d + n * n) + 5 * n * n,
                    3 * n * d + 4 * n * n + d * d,
                    3 * B * B + B,
                )


def test_minimal_memory():
    """Each schedule fits from the printed number of words on, for sizes above it."""
    for d in range(1, 6):
        for d_v in range(1, 6):
            p = Problem(40, 41, d, d_v)
            smallest = {
                "e1": 3 * d + 2 * d_v + 5,
                "e3": max(3 * d + d_v + 5, 3 * d + 2 * d_v + 5),
                "e5": 4,
                "e6": 2 * d_v + 4,
                "r9a": d * d + 3 * d + d_v + 5,
                "r9b": 3 * d + d_v + 5,
                "r9c": 3 * d + d_v + 5,
                "r9d": d * d + d * d_v + 3 * d + 2 * d_v + 4,
                "r9e": 2 * d * d + 3 * d + d_v + 5,
                "r9f": 2 * d * d + 3 * d + d_v + 5,
            }
            for name, M in smallest.items():
                find = getattr(search, name)
                assert find(p, M) and not find(p, M - 1), (name, p, M)


def test_cheapest_plans_run_within_capacity():
    rng = random.Random("plans")
    standard = search.BACKWARD
    others = (*search.GRADIENT_X, search.alg6, search.shared_forward, search.shared_backward, search.projected)
    for case in range(40):
        p = random_problem(rng, causal=case % 4 == 0, n=8, d=5)
        M = rng.randint(4, 150)
        found = search.plans(p, M, standard if p.offset is not None else standard + others)
        for plan in found.values():
            assert simulate(rng, plan.schedule, p, plan.tiling) == plan.cost
            assert plan.cost.footprint <= M


def test_distinct_ceilings_lose_nothing(monkeypatch):
    rng = random.Random("ceilings")
    searches = (*search.BACKWARD, *search.GRADIENT_X, search.shared_forward, search.shared_backward)
    for case in range(30):
        p = random_problem(rng, causal=case % 3 == 0, n=14, d=8)
        M = rng.randint(4, 300)
        everything = search.plans(p, M, searches)
        forward_search.sizes.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(forward_search, "SMALL", 0)
            ceilings = search.plans(p, M, searches)
        forward_search.sizes.cache_clear()
        assert {name: plan.cost for name, plan in ceilings.items()} == {
            name: plan.cost for name, plan in everything.items()
        }, (p, M)


def test_no_bound_exceeds_the_best_plan():
    rng = random.Random("bounds")
    for case in range(400):
        p = random_problem(rng, causal=case % 3 == 0, n=14, d=8)
        M = rng.randint(4, 400)
        plan = search.best(p, M)
        if plan:
            assert search.bound(search.bounds(p, M))[1] <= plan.cost.io, (p, M, search.bounds(p, M), plan)
        if p.offset is not None:
            continue
        plans = search.plans(p, M, search.GRADIENT_X)
        for name, plan in plans.items():
            assert search.bound(search.gradient_x_bounds(p, M))[1] <= plan.cost.io, (p, M, plan)
            assert (search.derived_gradient_x(p, M) or 0) <= plan.cost.io, (p, M, plan)
            if name in ("r6", "r9a", "r9b", "r9c") or name == "r9d" and p.d_v <= p.d:
                assert search.restricted_gradient_x(p, M) <= plan.cost.io, (p, M, plan)
        shared = search.shared_forward(p, M)
        if shared:
            assert max(search.theorem_shared_forward(p, M), search.trivial_layer(p, shared=True)) <= shared.cost.io
        shared = search.shared_backward(p, M)
        if shared:
            assert search.bound(search.gradient_x_bounds(p, M, shared=True))[1] <= shared.cost.io
        projected = search.projected(p, M)
        assert not projected or search.trivial_layer(p) <= projected.cost.io


def test_bounds_of_single_passes():
    """Theorem B14 and its subsets against e3 and its passes, long enough for the bounds to bite."""
    rng = random.Random("passes")
    for case in range(150):
        d = rng.randint(1, 8)
        n = 800 if case % 3 == 0 else 4000
        n_q, n_k = rng.randint(n // 8, n), rng.randint(n // 8, n)
        p = Problem(n_q, n_k, d, rng.randint((d + 7) // 8, d), n_k - n_q if case % 3 == 0 else None)
        M = rng.randint(40, 1500)
        Br, Bc = search.query_block(p, M), search.key_block(p, M)
        if Br is None or Bc is None:
            continue
        dQ = formulas.query_pass(p, Br).io
        dKV = formulas.row_products(p).io + formulas.key_pass(p, Bc).io
        all_three = search.e3(p, M).cost.io
        for outputs, words in {"dQ": dQ, "dK dV": dKV, "dK": dKV, "dQ dK": all_three, "dQ dK dV": all_three}.items():
            assert (search.theorem_b14(p, M, outputs) or 0) <= words, (p, M, outputs)


def test_two_passes_approach_theorem_b14():
    """e3 / LB for n = 2^24, d = 64, as printed beside Theorem B14 by the leading law (1.154 is 1.155 exactly)."""
    p = Problem(2**24, 2**24, 64, 64)
    for factor, printed in {64: 1.154, 128: 1.09, 256: 1.06, 512: 1.04}.items():
        M = factor * 64**2
        theorem, words = search.bound(search.bounds(p, M))
        assert theorem == "B14"
        assert search.e3(p, M).cost.io / words == pytest.approx(printed, abs=0.005)


@pytest.mark.parametrize("d, d_v", [(64, 64), (3, 8), (16, 2), (8, 11), (8, 14)])
def test_bounds_are_the_printed_expressions(d, d_v):
    """In floating point, s over a grid and its largest value."""
    p = Problem(10**5, 10**6, d, d_v)
    N = p.n_q * p.n_k
    for M in (4, 17, 100, 4096, 10**5):
        c, root = 1 - 1 / (2 * M), M**0.5

        def most(weight, limit):
            largest = min(1, c * limit / root)
            choices = [(c, largest * step / 500) for step in range(1, 501)] + ([(1, 1)] if root <= limit else [])
            return max(2 * k * s * weight * N / root - s * s * N for k, s in choices)

        def close(words, expected):
            assert words == pytest.approx(expected, rel=1e-4, abs=1)

        b1 = max(most((a + 2 * (1 - a) ** 0.5) * d + 2**0.5 * d_v, 2 * a * d) for a in (k / 200 for k in range(1, 200)))
        close(search.theorem_b1(p, M), b1 - M)
        close(search.restricted_gradient_x(p, M), most(2**0.5 * d + d_v, 2**0.5 * d + d_v) - M - p.n_q * d)
        close(search.theorem_shared_forward(p, M) + M, max(
            2 * c * s * 2**0.5 * d * N / root - s * s * N
            for s in (min(1, c * 2**0.5 * d / root) * step / 500 for step in range(1, 501))))
        if d_v <= d:
            width = d + d_v
            lines = [2 * c * min(1, c * width / root) * width * N / root - min(1, c * width / root) ** 2 * N]
            lines += [2 * width * N / root - N] if root <= 2 * width else []
            close(search.derived_gradient_x(p, M), max(lines) - M)
        if d_v <= 2 * d:
            K = (2 * d + d_v) * (2 * d + 2 * d_v) if d_v <= 2**0.5 * d else (6 + 4 * 2**0.5) * d * d_v
            if M >= 1.5 * K:
                close(search.theorem_b2(p, M), N * K / M)


def test_diagonal_pattern_of_the_trivial_bound():
    """A row with a single key: dO is read, the gradients are written. The theory's example has a diagonal mask."""
    p = Problem(1, 1, 2, 5, batch=3)
    assert search.trivial(p) == 42


def tile_text(tile):
    return f"{tile[0]}xp" if tile[1] is None else f"{tile[0]}x{tile[1]}"


def backward_row(d, M):
    """The columns of table 4.2 for n_q = n_k = 4096, d_v = d, from the search alone."""
    p = Problem(4096, 4096, d, d)
    plans = search.plans(p, M)
    row = {name: plan.cost.io for name, plan in plans.items()}
    for name, plan in plans.items():
        row.update({f"{name}_{key}": plan.tiling[key] for key in ("Br", "Bc") if key in plan.tiling})
    row["e5_scores"], row["e5_dV"] = tile_text(plans["e5"].tiling["t1"]), tile_text(plans["e5"].tiling["t3"])
    if "e6" in plans:
        row["e6_scores"] = tile_text(plans["e6"].tiling["t1"])
    theorem, row["bound"] = search.bound(search.bounds(p, M))
    row["bound_line"] = "t" if theorem == "trivial" else theorem
    best = search.best(p, M)
    return row | {"best": best.schedule, "ratio": f"{best.cost.io / row['bound']:.3f}"}


LABELS = {"r6": "6R"} | {f"r9{mode}": f"9R-{mode}" for mode in "abcdef"}


def gradient_x_row(d, M):
    """The columns of table 4.3 for n_q = n_k = 4096, d_v = d, from the search alone."""
    p = Problem(4096, 4096, d, d)
    plans = search.plans(p, M, search.GRADIENT_X)
    row = {}
    for name, plan in plans.items():
        row[LABELS[name]] = plan.cost.io
        row.update({f"{LABELS[name]}_{key}": plan.tiling[key] for key in ("Br", "Bc") if key in plan.tiling})
    row["6R_P"], row["6R_U"] = tile_text(plans["r6"].tiling["t1"]), tile_text(plans["r6"].tiling["tu"])
    printed = search.alg6(p, M)
    row |= {"alg6": printed.cost.io, "alg6_B": printed.tiling["B"], "alg6_footprint": printed.cost.footprint}
    printed = search.alg9(p, M)
    row |= {"alg9": printed.cost.io, "alg9_Br": printed.tiling["Br"], "alg9_Bc": printed.tiling["Bc"]}
    row["alg9_footprint_per_M"] = f"{printed.cost.footprint / M:.2f}"
    row["bound"] = search.bound(search.gradient_x_bounds(p, M))[1]
    row["bound_derived"] = max(0, search.derived_gradient_x(p, M))
    row["bound_restricted"] = max(0, search.restricted_gradient_x(p, M))
    best = search.best(p, M, search.GRADIENT_X)
    row |= {"best": LABELS[best.schedule], "ratio": f"{best.cost.io / row['bound']:.2f}"}
    row["ratio_derived"] = f"{best.cost.io / max(row['bound'], row['bound_derived']):.3f}"
    return row


def table(name):
    with (DATA / name).open() as file:
        return list(csv.DictReader(file))


def label(row):
    return f"d={row['d']}-M={row['M']}"


@pytest.mark.parametrize("printed", table("table_4_2.csv"), ids=label)
def test_backward_table_of_the_theory(printed):
    row = backward_row(int(printed.pop("d")), int(printed.pop("M")))
    assert {column: str(row.get(column, "")) for column in printed} == printed


@pytest.mark.parametrize("printed", table("table_4_3.csv"), ids=label)
def test_gradient_x_table_of_the_theory(printed):
    row = gradient_x_row(int(printed.pop("d")), int(printed.pop("M")))
    assert {column: str(row.get(column, "")) for column in printed} == printed


def test_tables_are_complete():
    for name in ("table_4_2.csv", "table_4_3.csv"):
        sizes = {(int(row["d"]), int(row["M"])) for row in table(name)}
        assert sizes == {(d, 4**k) for d in (64, 128, 256, 512) for k in range(5, 11)}
