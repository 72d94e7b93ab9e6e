"""redblue regimes: polynomial or exact attention, from plans of both."""

import csv
import io

import pytest

from program import answer, did, redblue


def regimes(*arguments):
    return answer("regimes", *arguments)["regimes"]


def words(*arguments):
    return answer("plan", *arguments)["plans"][0]["io"]


# n = 65536: words of the polynomial, the bound of its class, n of equal words to 0.2 %; by another planner
PUBLISHED = {
    (16, 2, 1024): (8585216, 6968878, 88),
    (16, 4, 1024): (188940288, 97049121, 2583),
    (16, 4, 16384): (15073280, 11447054, 2811),
    (32, 3, 16384): (76611584, 47060348, 4151),
    (32, 4, 262144): (42532864, 29744569, 35215),
    (64, 2, 16384): (92930048, 63692851, 1251),
    (64, 3, 262144): (118292480, 85960344, 26031),
    (64, 4, 16384): (17902796800, 7707435807, 266767),
}


def test_words_bounds_and_break_even_are_those_of_another_planner():
    found = {(r["d"], r["degree"], r["M"]): r for r in regimes()}
    assert len(found) == 27
    for key, (moved, bound, n) in PUBLISHED.items():
        assert found[key]["approximate"]["io"] == moved
        assert abs(found[key]["bound"]["words"] - bound) <= 1
        assert found[key]["break_even_n"] == pytest.approx(n, rel=2e-3)
        assert found[key]["regime"] == ("exact" if key[:2] == (64, 4) else "polynomial")


@pytest.mark.parametrize("op", ["forward", "backward"])
@pytest.mark.parametrize("causal", [[], ["--causal"]])
def test_break_even_is_where_plans_change(op, causal):
    size = ["--d", 16, "--M", 2500 if op == "forward" else 17000, "--op", op, *causal]
    [r] = regimes("--n", 4000, "--degrees", 3, *size)
    n = r["break_even_n"]
    assert n > 1
    lse = lambda m: m if op == "forward" else 0  # of exact attention, which regimes leaves out
    both = [[words("--n", m, *size) - lse(m), words("--n", m, *size, "--approximate", "3:1")] for m in (n - 1, n, 4000)]
    assert both[0][0] < both[0][1] and both[1][1] <= both[1][0]
    assert [r["exact"]["io"], r["approximate"]["io"]] == both[2]


def test_the_range_is_the_largest_that_proves_the_tolerance():
    for r in regimes("--d", 16, "--M", 4096, "--degrees", "1,2,5,9", "--tolerance", 1e-3):
        def error(share):
            asked = f"{r['degree']}:{r['largest_range'] * share}"
            plan = answer("plan", "--n", 64, "--d", 4, "--M", 10**6, "--approximate", asked)
            return plan["problem"]["approximation"]["weight_error"]

        assert error(1) <= 1e-3 < error(1.02)


def test_all_degrees_that_it_names_do():
    assert [r["degree"] for r in regimes("--d", 2, "--M", 4096, "--n", 64, "--degrees", "1,12")] == [1, 12]


def test_a_range_takes_the_least_degree():
    [r] = regimes("--d", 64, "--M", 16384, "--tolerance", 1e-3, "--range", 2)
    assert r["degree"] == 6 and r["largest_range"] >= 2  # the table of degrees: 6 for B = 2, 1e-3
    [below] = regimes("--d", 64, "--M", 16384, "--tolerance", 1e-3, "--degrees", 5)
    assert below["largest_range"] < 2


def test_csv_and_table_have_the_same_numbers():
    options = ["--d", "8,16", "--M", "3,100,5000", "--degrees", "2,4", "--n", "100,5000"]
    found = regimes(*options)
    rows = list(csv.DictReader(io.StringIO(did("regimes", "--format", "csv", *options))))
    table = did("regimes", *options).splitlines()[1:-2]
    assert len(found) == len(rows) == len(table) == 24
    for r, row, line in zip(found, rows, table):
        for name in ("approximate", "exact"):
            wanted = [str(r[name]["io"]), r[name]["schedule"]] if r[name] else ["", ""]
            assert [row[f"{name}_io"], row[name]] == wanted
            assert all(w in line.split() for w in wanted if w)
        assert row["regime"] == r["regime"] == line.split()[-1]
        if r["M"] == 3:  # an exact schedule runs in 3 words, no polynomial does
            assert r["approximate"] is None and r["regime"] == "exact" and row["break_even_n"] == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tolerance", 0], "above 0 and below 1"),
        (["--tolerance", "nan"], "above 0 and below 1"),
        (["--tolerance", 1], "above 0 and below 1"),
        (["--degrees", 0], "degree = 0 of a polynomial: schedules take degrees from 1 to 12"),
        (["--degrees", "2,13"], "degree = 13 of a polynomial: schedules take degrees from 1 to 12"),
        (["--range", 60, "--tolerance", 1e-3], "take a smaller range or a larger tolerance"),
        (["--n", 0], "n_q"),
        (["--M", "many"], "--M many"),
        (["--format", "xml"], "xml"),
    ],
)
def test_bad_input_is_refused(options, message):
    done = redblue("regimes", *options)
    assert done.returncode == 2 and message in done.stderr and done.stdout == "", done


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        pytest.param({}, {}, marks=pytest.mark.slow),
        (["--op", "backward", "--causal", "--n", "4000", "--d", "8,16", "--M", "17000", "--degrees", "3,1"],
         {"op": "backward", "causal": True, "n": 4000, "d": [8, 16], "M": 17000, "degrees": (3, 1)}),
        (["--n", "100", "--d", "8", "--M", "3", "--degrees", "2"], {"n": 100, "d": 8, "M": 3, "degrees": 2}),
        (["--d", "64", "--M", "16384", "--tolerance", "1e-3", "--range", "2"],
         {"d": 64, "M": 16384, "tolerance": 1e-3, "range": 2}),
    ],
)  # fmt: skip
def test_python_says_the_same(options, arguments):
    package = pytest.importorskip("redblue")
    ours, theirs = package.regimes(**arguments), regimes(*options)
    assert len(ours) == len(theirs)
    for mine, r in zip(ours, theirs):
        if mine["bound"]:
            assert [mine["bound"][name] for name in ("theorem", "words")] == [r["bound"][name] for name in ("theorem", "words")]
        names = mine.keys() - {"bound"}
        assert names == r.keys() - {"bound"} and {n: mine[n] for n in names} == {n: r[n] for n in names}


def test_python_refuses_bad_input():
    package = pytest.importorskip("redblue")
    for arguments, message in (
        ({"degrees": 0}, "schedules take degrees from 1 to 12"),
        ({"degrees": [2, 13]}, "degree = 13"),
        ({"degrees": 2, "range": 1}, "give one of them"),
        ({"range": 60, "tolerance": 1e-3}, "take a smaller range or a larger tolerance"),
        ({"tolerance": 2}, "above 0 and below 1"),
        ({"op": "scores"}, 'give "forward" or "backward"'),
        ({"n": []}, "a list of at least one"),
        ({"n": "many"}, "n = 'many'"),
        ({"M": 0}, "fast memory"),
    ):
        with pytest.raises(package.InvalidProblem, match=message):
            package.regimes(**{"n": 64, "d": 4, "M": 1000} | arguments)
