"""The command line plans, counts and bounds gradients, and attention from A1, A2, A3, X, Y, as the reference does.
"""

import json
import random

import pytest

from program import SEED, answered, asked, needs_program
from reference import backward_formulas as formulas
from reference import backward_search as search
from reference import search as forward_search
from reference.formulas import Problem

# (name of the program, name of the reference): where the papers have a name, the program prints it.
BACKWARD = {name: name for name in ("e1", "e2", "e3", "e4", "e5", "e6", "grouped_key_outer")}
GRADIENT_X = {"6R": "r6", "algorithm_1": "alg1", "algorithm_6": "alg6", "algorithm_9": "alg9"}
GRADIENT_X |= {f"9R-{mode}": f"r9{mode}" for mode in "abcdef"} | {"shared_source": "shared_backward"}
# As printed in their papers, for comparison only.
PRINTED = {"algorithm_1", "algorithm_6", "algorithm_9"}
# What the tiles of a schedule are called by the program and by the reference. Sizes of streamed blocks are not among
# them: none costs words, and each must be as small as can be.
TILES = {
    "e4": {"": "t"},
    "e5": {"P.": "t1", "dS.": "t2", "dV.": "t3", "dQ.": "t4", "dK.": "t5"},
    "e6": {"P.": "t1", "dQ.": "t4", "dK.": "t5"},
    "r6": {"S.": "ts", "h.": "th", "f.": "t1", "p.": "t2", "U.": "tu", "g.": "tg"},
    "r9a": {"S.": "ts", "h.": "th"},
    "r9b": {"S.": "ts", "h.": "th"},
    "r9c": {"S.": "ts", "h.": "th", "g.": "tg"},
    "r9e": {"h.": "th"},
    "shared_backward": {"S.": "ts", "dU.": "to", "g.": "tg"},
    "shared_forward": {"S.": "ts", "O.": "to"},
    "projected": {"S.": "ts", "h.": "th"},
}
STREAMED = {
    "e1": {"br"}, "e2": {"bc"}, "e3": {"br", "bc"}, "e4": {"br"}, "e6": {"br"}, "grouped_key_outer": {"br"},
    "r9a": {"bc"}, "r9b": {"bc"}, "r9c": {"bc"}, "r9d": {"bc"}, "r9e": {"br"}, "r9f": {"br"},
    "shared_backward": {"bc"}, "shared_forward": {"Bc"},
}  # fmt: skip

pytestmark = needs_program


def sizes(rng):
    n, d = rng.choice([(6, 4), (24, 12), (24, 12), (120, 24)])
    return [rng.randint(1, size) for size in (n, n, d, d)]


def memory(rng, largest):
    return round(4 * (max(largest, 8) / 4) ** rng.random())


def backward_case(index):
    rng = random.Random(f"backward/{SEED}/{index}")
    n_q, n_k, d, d_v = sizes(rng)
    kv_heads, group, batch = (rng.randint(1, 3) for _ in range(3)) if rng.random() < 0.4 else (1, 1, 1)
    p = Problem(n_q, n_k, d, d_v, kv_heads * group, kv_heads, batch)
    return p, memory(rng, 2 * max(p.rows, n_k) * (d + d_v + 3))


def layer_case(operation, index):
    rng = random.Random(f"{operation}/{SEED}/{index}")
    n_q, n_k, d, d_v = sizes(rng)
    if rng.random() < 0.3:
        n_k, d_v = n_q, d
    heads, batch = (rng.randint(1, 3), rng.randint(1, 3)) if rng.random() < 0.3 else (1, 1)
    p = Problem(n_q, n_k, d, d_v, heads, heads, batch)
    largest = 2 * (max(n_q, n_k) + d) * (d + d_v + 3)
    if rng.random() < 0.2:  # room for all that there is
        largest = 4 * (n_q + d) * (n_k + d + d_v)
    return p, memory(rng, largest)


def cases(make, count):
    return [pytest.param(*make(index), id=f"seed={SEED}-{index}") for index in range(count)]


TABLES = [
    pytest.param(Problem(4096, 4096, d, d), 4**k, id=f"d={d}-M={4**k}") for d in (64, 128, 256, 512) for k in range(5, 11)
]
RANDOM_BACKWARD = cases(backward_case, 300)
RANDOM_GRADIENT_X = cases(lambda index: layer_case("gradient-x", index), 200)
RANDOM_FORWARD_X = cases(lambda index: layer_case("forward-x", index), 100)


def name_of(plan):
    return plan.get("label", plan["schedule"])


def as_printed(p):
    """The footprint of Algorithm 1 depends on the order in which its arrays leave; its paper prints it for these sizes."""
    return p.n_q == p.n_k > p.d == p.d_v


def reference_tile(tiling):
    """(rows, columns) of a product or of a score phase; (rows, None) is a panel."""
    if "b1" in tiling:
        assert tiling.keys() == {"b1", "b2"}, tiling
        return tiling["b1"], tiling["b2"]
    if tiling["panel"]:
        assert tiling["b"] == 1, "a streamed block larger than need be"
        return tiling["a"], None
    return tiling["a"], tiling["b"]


def reference_tiling(schedule, tiling):
    """The reference's names for a tiling of the command line."""
    rest, found = dict(tiling), {}
    for prefix, tile in TILES.get(schedule, {}).items():
        parts = [part for part in ("panel", "a", "b", "b1", "b2") if f"{prefix}{part}" in rest]
        found[tile] = reference_tile({part: rest.pop(f"{prefix}{part}") for part in parts})
    for name in STREAMED.get(schedule, ()):
        assert rest.pop(name) == 1, f"{name} of {tiling} is larger than need be"
    if schedule == "alg1":
        rest["in_place"] = False
    return rest | found


def check_row(plan, p, M, schedule):
    """Its words are the formula at its tiling, it fits if it says so, and no tiling of its schedule does better."""
    cost = getattr(formulas, schedule)(p, **reference_tiling(schedule, plan["tiling"]))
    assert (plan["reads"], plan["writes"]) == (cost.reads, cost.writes), plan
    assert plan["io"] == cost.io
    if schedule != "alg1" or as_printed(p):
        assert plan["footprint"] == cost.footprint, plan
    assert plan["fits"] == (plan["footprint"] <= M)
    assert plan["fits"] or schedule == "alg9", plan
    if schedule != "alg1":  # without tiles
        least = getattr(search, schedule)(p, M)
        assert cost.io == least.cost.io, f"{plan} but the reference finds {least}"


def check_chosen(reply, least):
    """No plan of the reference is cheaper; what cannot be run is not chosen."""
    chosen = reply["plans"][reply["chosen"]]
    assert chosen["stable"] and chosen["fits"] and name_of(chosen) not in PRINTED, chosen
    assert chosen["io"] <= min(plan.cost.io for plan in least.values()), (chosen, least)
    return chosen


def check_bounds(reply, lines, proved):
    """Every line, to the word; None: it does not apply."""
    found = {bound["theorem"]: bound for bound in reply["bounds"]}
    assert found.keys() == lines.keys()
    for theorem, words in lines.items():
        holds, status = found[theorem]["holds"], found[theorem]["status"]
        if words is None:
            assert not holds, (theorem, found)
        else:
            assert found[theorem]["words"] == max(0, words), (theorem, found, lines)
        assert (status == "proved") == (theorem in proved), found[theorem]
    words = max(lines[theorem] or 0 for theorem in proved)
    assert reply["bound"]["words"] == words, reply["bound"]
    assert lines[reply["bound"]["theorem"]] == words
    for plan in reply["plans"]:
        if words > 0:
            assert plan["ratio"] == pytest.approx(plan["io"] / words, rel=1e-3)
        # As printed they may use more words of fast memory than the bound is for.
        assert plan["io"] >= words or not plan["fits"]


def check_count(operation, p, M, plan, *more):
    """The counting machine moves the words of the formula, which are those of the plan, array by array."""
    reply = answered("count", operation, p, M, "--schedule", plan["schedule"], *more)
    assert reply["equal"] is True
    counted = reply["counted"]
    assert counted == reply["formula"]
    assert reply["tiling"] == plan["tiling"]
    words = {key: counted[key] for key in ("reads", "writes", "io", "peak", "flops")}
    expected = {key: plan[key] for key in ("reads", "writes", "io", "flops")} | {"peak": plan["footprint"]}
    assert words == expected
    for direction in ("reads", "writes"):
        assert sum(array[direction] for array in counted["per_array"].values()) == counted[direction]
    return counted["per_array"]


@pytest.mark.parametrize("p, M", [*RANDOM_BACKWARD, *TABLES])
def test_backward_plan(p, M):
    least = search.plans(p, M)
    done = asked("plan", "backward", p, M)
    if done.returncode != 0:
        assert not least, f"{least} fits, yet {done.stderr}"
        return
    reply = json.loads(done.stdout)
    # The program may know more schedules than the reference: the claims of redblue/verify/claims.hpp hold them to their formulas.
    plans = {name_of(plan): plan for plan in reply["plans"] if name_of(plan) in BACKWARD}
    assert len({plan["schedule"] for plan in reply["plans"]}) == len(reply["plans"]), "one row per schedule"
    assert least.keys() <= plans.keys(), "a schedule that fits is missing"
    assert plans.keys() == least.keys(), "the reference finds no room for all of these"
    for name in least:
        check_row(plans[name], p, M, name)
    if least:
        check_chosen(reply, least)
    check_bounds(reply, {
        "trivial": search.trivial(p),
        "B'": search.theorem_b1(p, M),
        "B''": search.theorem_b2(p, M),
        "B14": search.theorem_b14(p, M),
    }, proved={"trivial", "B'", "B''", "B14"})


@pytest.mark.parametrize("p, M", RANDOM_BACKWARD)
def test_backward_count(p, M):
    done = asked("plan", "backward", p, M)
    plans = json.loads(done.stdout)["plans"] if done.returncode == 0 else []
    for plan in plans:
        assert plan["footprint"] <= M
        arrays = check_count("backward", p, M, plan)
        rows, keys = p.copies * p.rows, p.copies * p.n_k
        assert arrays["dO"]["reads"] >= rows * p.d_v
        for name, words in {"dQ": rows * p.d, "dK": keys * p.d, "dV": keys * p.d_v}.items():
            assert arrays[name]["writes"] >= words


def gradient_x_plans(p, M, sources):
    searches = search.GRADIENT_X + ((search.shared_backward,) if sources != "distinct" else ())
    return search.plans(p, M, searches)


def check_gradient_x(p, M, sources):
    least = gradient_x_plans(p, M, sources)
    done = asked("plan", "gradient-x", p, M, "--sources", sources)
    if done.returncode != 0:
        assert not least, f"{least} fits, yet {done.stderr}"
        return None
    reply = json.loads(done.stdout)
    assert len({plan["schedule"] for plan in reply["plans"]}) == len(reply["plans"]), "one row per schedule"
    # The program may know better schedules than the reference: those have to be counted only.
    plans = {GRADIENT_X[plan["schedule"]]: plan for plan in reply["plans"] if plan["schedule"] in GRADIENT_X}
    printed = {"alg6"} if search.alg6(p, M) else set()
    if formulas.alg1(p, False).footprint <= M if as_printed(p) else "alg1" in plans:
        printed.add("alg1")
    printed |= {"alg9"} if (p.n_q, p.d) == (p.n_k, p.d_v) else set()
    assert plans.keys() == least.keys() | printed, "not the schedules that fit"
    for name, plan in plans.items():
        check_row(plan, p, M, name)
    check_chosen(reply, least)
    return reply


@pytest.mark.parametrize("p, M", [*RANDOM_GRADIENT_X, *TABLES])
def test_gradient_x_plan(p, M):
    reply = check_gradient_x(p, M, "distinct")
    if reply:
        check_bounds(reply, {
            "trivial": search.trivial_gradient_x(p),
            "g": search.theorem_gradient_x(p, M),
            "g'": search.derived_gradient_x(p, M),
            "g*": search.restricted_gradient_x(p, M),
        }, proved={"trivial", "g"})


@pytest.mark.parametrize("p, M", [*RANDOM_GRADIENT_X[::2], *TABLES[::5]])
def test_gradient_x_plan_of_shared_sources(p, M):
    reply = check_gradient_x(p, M, "shared")
    if reply:
        found = {bound["theorem"]: bound["words"] for bound in reply["bounds"] if bound["status"] == "proved"}
        assert found == search.gradient_x_bounds(p, M, shared=True)
        assert reply["bound"]["words"] == max(found.values())
    if p.n_q == p.n_k:
        # Self-attention has the same schedules, and never a larger bound.
        own = check_gradient_x(p, M, "self")
        assert (own is None) == (reply is None)
        assert own is None or own["bound"]["words"] <= reply["bound"]["words"]


@pytest.mark.parametrize("p, M", RANDOM_GRADIENT_X)
def test_gradient_x_count(p, M):
    done = asked("plan", "gradient-x", p, M, "--sources", "shared")
    plans = json.loads(done.stdout)["plans"] if done.returncode == 0 else []
    for plan in plans:
        arrays = check_count("gradient-x", p, M, plan, "--sources", "shared")
        assert arrays["g"]["writes"] >= p.copies * p.d**2


# Of the forward schedules, those that are offered after the projections.
PROJECTED = (forward_search.flash, forward_search.flash_pinned, forward_search.column_split, forward_search.key_outer,
             forward_search.small_cache, forward_search.score_tiles, forward_search.naive)  # fmt: skip


KNOWN = {f"xy_{find.__name__}" for find in PROJECTED} | {"shared_source"}


def forward_x_plans(p, M, sources):
    """The cheapest plan of each, by the program's name."""
    projections = search.projections(p, M)
    least = {}
    if None not in projections.values():
        for plan in filter(None, (find(p, M) for find in PROJECTED)):
            tiling = dict(**projections, schedule=plan.schedule, tiling=plan.tiling)
            least[f"xy_{plan.schedule}"] = formulas.projected(p, **tiling)
    shared = search.shared_forward(p, M) if sources == "shared" else None
    return least | ({"shared_source": shared.cost} if shared else {})


def forward_x_cost(p, plan):
    """The formula at the tiling of this row."""
    if plan["schedule"] == "shared_source":
        return formulas.shared_forward(p, **reference_tiling("shared_forward", plan["tiling"]))
    name = plan["schedule"].removeprefix("xy_")
    rest = reference_tiling("projected", plan["tiling"])
    projections = {tile: rest.pop(tile) for tile in ("ts", "th")}
    if name == "small_cache" and rest.pop("panel", 0):
        assert "b" not in rest
        rest["b"] = None
    elif name == "column_split":
        rest["h"] = -(-p.d_v // rest.pop("w"))  # passes over groups of w value columns
    elif name == "flash_pinned":
        assert rest.pop("Bc") == 1
    elif name == "key_outer":
        assert rest.pop("Br") == 1
    return formulas.projected(p, **projections, schedule=name, tiling=rest)


@pytest.mark.parametrize("sources", ["distinct", "shared"])
@pytest.mark.parametrize("p, M", [*RANDOM_FORWARD_X, *TABLES[::5]])
def test_forward_x_plan_and_count(p, M, sources):
    least = forward_x_plans(p, M, sources)
    done = asked("plan", "forward-x", p, M, "--sources", sources)
    if done.returncode != 0:
        assert not least, f"{least} fits, yet {done.stderr}"
        return
    reply = json.loads(done.stdout)
    plans = {plan["schedule"]: plan for plan in reply["plans"]}
    assert len(plans) == len(reply["plans"]), "one row per schedule"
    assert least.keys() <= plans.keys(), "a schedule that fits is missing"
    for schedule, plan in plans.items():
        assert plan["footprint"] <= M
        if p.n_q < 4096:
            check_count("forward-x", p, M, plan, "--sources", sources)
        if schedule in KNOWN:
            cost = forward_x_cost(p, plan)
            assert (plan["reads"], plan["writes"], plan["footprint"]) == cost, plan
            assert cost.io == least[schedule].io, f"{plan} but the reference finds {least[schedule]}"
    assert all(reply["plans"][reply["chosen"]]["io"] <= cost.io for cost in least.values())
    assert reply["bound"]["theorem"] == "trivial"
    assert reply["bound"]["words"] == search.trivial_layer(p, shared=sources == "shared")


@pytest.mark.parametrize("p, M", [*RANDOM_FORWARD_X, *TABLES])
def test_forward_x_bound_of_shared_sources(p, M):
    reply = answered("bound", "forward-x", p, M, "--sources", "shared")
    [line] = [bound for bound in reply["bounds"] if bound["theorem"] == "shared"]
    assert line["status"] == "restricted"
    if line["holds"]:
        assert line["words"] == max(0, search.theorem_shared_forward(p, M))
    else:
        assert p.n_k == 1 and line["words"] == 0


# What the theory prints of these formulas.


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
