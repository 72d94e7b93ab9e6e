"""python -m redblue report: the page holds the numbers of the JSON, is well formed, needs nothing else, and escapes all."""

import html.parser
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

redblue = pytest.importorskip("redblue")

ROOT = pathlib.Path(__file__).resolve().parents[2]
INPUT = ["--input", str(ROOT / "examples/data/minilm.safetensors"), "--M", "4096"]
COMMANDS = {
    "run": ["run", *INPUT, "--verify", "--output"],
    "backward": ["run", "--op", "backward", *INPUT, "--verify", "--output"],
    "rows": ["run", "--input", INPUT[1], "--M", "40000", "--approximate", "2:3,gaussian", "--output"],
    "count": "count --n 96 --d 16 --M 700".split(),
    "plan": "plan --op backward --with-forward --n 64 --d 8 --M 400 --no-workspace".split(),
    "bytes": "plan --n 128 --d 16 --dtype bf16 --memory 4KiB --multiple q=8,k=8".split(),
    "gradient": "plan --op gradient-x --n 64 --d 8 --M 200".split(),
    "compare": ["compare", *INPUT],
    "exact": ["run", *INPUT, "--tolerance", "1e-3", "--output"],
    "certified": ["run", "--input", INPUT[1], "--M", "4000", "--scale", ".002", "--tolerance", "1e-2", "--output"],
    "within": "plan --n 65536 --d 16 --M 16384 --tolerance 1e-2 --range .5".split(),
}


class Page(html.parser.HTMLParser):
    """The text of a page, its tags and what they link to; fails where tags do not close each other."""

    def __init__(self, page):
        super().__init__()
        self.open, self.text, self.tags, self.cells = [], "", [], []
        self.feed(page)
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag != "meta":
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What each of COMMANDS prints with --json."""
    folder = tmp_path_factory.mktemp("json")

    def facts(name, command):
        command = [*command, str(folder / f"{name}.safetensors")] if command[-1] == "--output" else command
        done = subprocess.run([sys.executable, "-m", "redblue", *command, "--json"], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    return {name: facts(name, command) for name, command in COMMANDS.items()}


def page_of(facts):
    return Page(redblue.report(facts))


def shown(number):
    return f"{number:,}"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_is_whole_in_itself(printed, name):
    page = page_of(printed[name])
    assert {tag for tag, _ in page.tags} <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "div", "i", "span", "table", "tr", "th", "td"
    }  # fmt: skip
    assert not any(key in attributes for _, attributes in page.tags for key in ("src", "href"))
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in page.tags
    assert {shown(printed[name]["problem"]["n_q"]), printed[name]["problem"]["op"]} <= set(page.cells)


@pytest.mark.parametrize("name, counts", [("run", "moved"), ("backward", "moved"), ("count", "counted")])
def test_words_stand_beside_the_bound(printed, name, counts):
    facts, page = printed[name], page_of(printed[name])
    bound = facts["bound"]["words"]
    assert f"lower bound, theorem {facts['bound']['theorem']}: {bound:,} words" in page.text
    widest, lengths = max(bound, facts[counts]["io"]), [a["style"] for tag, a in page.tags if tag == "i"]
    for array, words in facts[counts]["per_array"].items():
        total = words["reads"] + words["writes"]
        assert f"{array}: {total:,} words ({words['reads']:,} read, {words['writes']:,} written)" in page.text
        assert f"width:{100 * words['reads'] / widest:.3f}%" in lengths
    assert f"width:{100 * bound / widest:.3f}%" in lengths
    assert f"{counts} = formula" in page.text and facts["schedule"] in page.cells


def test_verification_says_ok_or_failed(printed):
    assert "All agree with fp64" in page_of(printed["backward"]).text
    assert {"dq", "given lse", "central differences dv"} <= set(page_of(printed["backward"]).cells)
    assert "Verification" not in page_of(printed["count"]).text
    wrong = json.loads(json.dumps(printed["run"]))
    wrong["verify"]["ok"] = wrong["verify"]["o"]["ok"] = False
    page = page_of(wrong)
    assert "FAILED: not all agree" in page.text and "FAILED" in page.cells


@pytest.mark.parametrize("name", ["exact", "certified", "within"])
def test_a_tolerance_and_what_answers_it(printed, name):
    facts, page = printed[name], page_of(printed[name])
    asked = facts["tolerance"]
    assert {f"{asked['tolerance']:.4g}", asked["method"], asked["reason"]} <= set(page.cells) and "Tolerance" in page.text


@pytest.mark.parametrize("name", ["exact", "certified"])
def test_a_certificate_with_each_head(printed, name):
    certificate, page = printed[name]["certificate"], page_of(printed[name])
    assert (certificate["method"] == "exact") == ("weight_error" not in page.cells) == (name == "exact")
    for head in certificate["per_head"]:
        assert {f"{head[of]:.4g}" for of in ("range", "output_error", "rounding") if head.get(of) is not None} <= set(page.cells)
    assert "Certificate" in page.text and "Certificate" not in page_of(printed["run"]).text


def test_a_count_that_differs_is_said(printed):
    wrong = json.loads(json.dumps(printed["count"]))
    wrong["formula"]["reads"] += 1
    assert "counted differs from the formula" in page_of(wrong).text


def test_counts_that_depend_on_data_are_held_against_the_most_that_any_cost(printed):
    facts = printed["rows"]
    asked, worst = facts["decisions"]["asked"], facts["decisions"]["worst"]
    assert facts["moved"]["io"] < facts["formula"]["io"] and 0 < worst < asked
    page = page_of(facts)
    assert f"moved is within the formula, which is the most that any data cost: all {asked:,} rows exact; {worst:,} were" in page.text
    assert "differs" not in page.text and ("span", {"class": "no"}) not in page.tags
    wrong = json.loads(json.dumps(facts))
    wrong["moved"]["reads"] = wrong["formula"]["reads"] + 1
    page = page_of(wrong)
    assert "moved is more than the formula" in page.text and ("span", {"class": "no"}) in page.tags


@pytest.mark.parametrize("name", ["plan", "bytes", "gradient"])
def test_ranked_and_refused_schedules(printed, name):
    facts, page = printed[name], page_of(printed[name])
    for row in facts["plans"]:
        tiles = " ".join(f"{key}={size}" for key, size in row["tiling"].items())
        why = ["unstable"] * (not row["stable"]) + ["does not fit"] * (not row["fits"])
        schedule = row["schedule"] + f" ({', '.join(why)})" * bool(why)
        assert {schedule, shown(row["io"]), shown(row["workspace"]), tiles} <= set(page.cells)
        assert shown(row["footprint_bytes" if name == "bytes" else "footprint"]) in page.cells
        assert name != "bytes" or shown(row["bytes"]) in page.cells
    for row in facts["refused"]:
        assert {row["schedule"], row["why"]} <= set(page.cells)
    assert {"plan": facts["refused"], "bytes": not all(row["stable"] for row in facts["plans"]),
            "gradient": not all(row["fits"] for row in facts["plans"])}[name]  # fmt: skip
    if name == "plan":
        forward = facts["forward"]["plans"][facts["forward"]["chosen"]]
        assert f"a forward pass by {forward['schedule']}" in page.text and f"{forward['io']:,} words more" in page.text
    assert facts["reason"] in page.cells


def test_methods_of_a_comparison(printed):
    facts, page = printed["compare"], page_of(printed["compare"])
    assert any("refused" in m for m in facts["methods"]) and any("io" in m for m in facts["methods"])
    for method in facts["methods"]:
        wanted = {method["refused"]} if "refused" in method else {shown(method["io"]), method["schedule"]}
        assert {method["method"], *wanted} <= set(page.cells)


def test_what_compare_returns_has_a_page_and_a_plan_has_none():
    q = np.random.default_rng(0).standard_normal((1, 2, 32, 8))
    found = redblue.compare(q, q, q, M=3000, methods=["2:1", "performer:1024"])
    page = page_of(found)
    assert {"linear" not in page.cells, shown(found.rows[0].words) in page.cells} == {True}
    with pytest.raises(redblue.InvalidProblem, match="source is a Plan: give what redblue run"):
        redblue.report(redblue.plan(n=8, d=4, M=100))


def test_text_is_escaped(printed):
    evil = json.loads(json.dumps(printed["plan"]))
    evil["reason"] = evil["plans"][0]["schedule"] = evil["bound"]["theorem"] = evil["problem"]["op"] = "<script>\"&'"
    evil["plans"][0]["tiling"] = {"<b>": 1}
    evil["problem"]["<u>"] = {"<s>": "<q>"}
    page = page_of(evil)
    assert not {tag for tag, _ in page.tags} & {"script", "b", "u", "s", "q"}
    assert "<script>\"&'" in page.cells and "<b>=1" in page.text


@pytest.mark.parametrize(
    "text, says",
    [("no json", "not JSON"), ("[1]", "names no schema"), ('{"schema": "redblue.info/1"}', "'redblue.info/1'"),
     ('{"schema": "redblue.run/1"}', "not whole"), ('{"schema": ["redblue.run/1"]}', "is of schema")],
)  # fmt: skip
def test_a_file_that_is_none_of_these_is_refused(tmp_path, text, says):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(redblue.InvalidProblem, match=f"x.json.*{says}.*redblue run, plan, count or compare.*--json"):
        redblue.report(tmp_path / "x.json")


def test_the_command_writes_the_page_and_refuses_with_2(printed, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(printed["run"]))
    report = [sys.executable, "-m", "redblue", "report"]
    subprocess.run([*report, "run.json", "-o", "run.html"], cwd=tmp_path, check=True)
    assert (tmp_path / "run.html").read_text() == redblue.report(printed["run"])
    for wrong in (["none.json", "-o", "x.html"], ["run.json", "-o", "no/folder/x.html"], ["run.json"], ["run.json", "-o", "run.json"]):
        done = subprocess.run([*report, *wrong], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 2 and done.stderr and "Traceback" not in done.stderr
    assert json.loads((tmp_path / "run.json").read_text()) == printed["run"]
