"""The optima of `redblue solve` against an integer linear program on HiGHS (by SciPy), which shares nothing with it.

One-shot, placing. Step t computes one node; before it, pebbles may leave and nodes may be read; after it, red nodes may
be written. red[v, t]: v is red while step t computes; blue[v, t]: v is blue then.
"""

import json
import random
import subprocess

import numpy as np
import pytest
from program import CLI, SEED, needs_program

optimize = pytest.importorskip("scipy.optimize")
pytestmark = needs_program


def least_io(parents, outputs, M):
    """Of a graph whose node v has these parents; a node without parents is an input."""
    n, steps = len(parents), sum(bool(p) for p in parents)
    kinds = ("red", "blue", "compute", "read", "write")
    place = {key: k for k, key in enumerate((kind, v, t) for kind in kinds for v in range(n) for t in range(steps + 1))}
    rows, low, high = [], [], []

    def constrain(terms, least, most):
        row = np.zeros(len(place))
        for factor, *key in terms:
            row[place[tuple(key)]] += factor
        rows.append(row)
        low.append(least)
        high.append(most)

    upper = np.ones(len(place))
    for v in range(n):
        for t in range(steps + 1):
            if t == steps or not parents[v]:
                upper[place["compute", v, t]] = 0
            before = [(-1, "red", v, t - 1), (-1, "compute", v, t - 1)] if t else []
            constrain([(1, "red", v, t), *before, (-1, "read", v, t)], -np.inf, 0)
            constrain([(1, "read", v, t), (-1, "blue", v, t)], -np.inf, 0)
            constrain([(1, "write", v, t), (-1, "red", v, t), (-1, "compute", v, t)], -np.inf, 0)
            if t:
                constrain([(1, "blue", v, t), (-1, "blue", v, t - 1), (-1, "write", v, t - 1)], -np.inf, 0)
            elif parents[v]:
                upper[place["blue", v, 0]] = 0
            for p in parents[v]:
                constrain([(1, "compute", v, t), (-1, "red", p, t)], -np.inf, 0)
        if parents[v]:
            constrain([(1, "compute", v, t) for t in range(steps)], 1, 1)
        if v in outputs:
            constrain([(1, "blue", v, steps)], 1, 1)
    for t in range(steps):
        constrain([(1, "compute", v, t) for v in range(n)], 1, 1)
        constrain([(1, "red", v, t) for v in range(n)] + [(1, "compute", v, t) for v in range(n)], 0, M)
    cost = np.array([1.0 if kind in ("read", "write") else 0.0 for kind, _, _ in place])
    found = optimize.milp(
        cost,
        constraints=optimize.LinearConstraint(np.array(rows), low, high),
        integrality=np.ones(len(place)),
        bounds=optimize.Bounds(0, upper),
    )
    assert found.success, found.message
    return round(found.fun)


def hdag(parents):
    """The graph as HyperDAG_DB writes it: an edge for each node that has children, with the node first."""
    children = {v: [c for c, ps in enumerate(parents) if v in ps] for v in range(len(parents))}
    sources = [v for v in children if children[v]]
    pins = [f"{e} {x}" for e, v in enumerate(sources) for x in (v, *children[v])]
    lines = [f"{len(sources)} {len(parents)} {len(pins)}", *(f"{e} 1" for e in range(len(sources)))]
    return "\n".join([*lines, *(f"{v} 1" for v in range(len(parents))), *pins, ""])


def grid(n):
    return [[x for x in ((i - 1) * n + j if i else -1, i * n + j - 1 if j else -1) if x >= 0]
            for i in range(n) for j in range(n)]  # fmt: skip


def any_graph(rng):
    parents = [[] for _ in range(rng.randint(1, 3))]
    while len(parents) < 9:
        parents.append(sorted(rng.sample(range(len(parents)), rng.randint(1, min(2, len(parents))))))
    return parents


GRAPHS = {"tree": [[], [], [], [], [0, 1], [2, 3], [4, 5]], "grid": grid(3)}
GRAPHS.update({f"random{k}": any_graph(random.Random(SEED * 100 + k)) for k in range(4)})


@pytest.mark.parametrize("name", GRAPHS)
def test_an_integer_program_finds_the_same_optimum(name, tmp_path):
    parents = GRAPHS[name]
    used = {p for ps in parents for p in ps}
    outputs = {v for v in range(len(parents)) if v not in used and parents[v]}
    (tmp_path / "g.hdag").write_text(hdag(parents), encoding="utf-8")
    M = max(map(len, parents)) + 1
    command = [CLI, "solve", "--hdag", tmp_path / "g.hdag", "--once", "--M", str(M), "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    [result] = json.loads(run.stdout)["results"]
    assert result["proved"]
    assert result["upper"] == least_io(parents, outputs, M)
