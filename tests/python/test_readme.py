"""README.md and docs/ show what the program prints today: the commands of demo, tutorial and cases run again."""

import importlib.util
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import blocks  # noqa: E402
import readme_demo  # noqa: E402

CLI = os.environ.get("REDBLUE_CLI")
needs_program = pytest.mark.skipif(not CLI, reason="set REDBLUE_CLI to the redblue program to run these tests")
DEMO = blocks.read("docs/demo.md", "demo").removeprefix("```\n").removesuffix("```\n")
SHOWN = readme_demo.commands(DEMO)


def commands_of(document):
    """The commands of its indented code: a backslash ends a line that goes on, # begins a comment."""
    text = re.sub(r" \\\n +", " ", (ROOT / document).read_text())
    return re.findall(r"^    redblue +(.*?)(?: +#.*)?$", text, re.MULTILINE)


COMMANDS = commands_of("docs/cli.md")
NEED_NOTHING = [c for c in COMMANDS if c.split()[0] in ("plan", "bound", "count", "trace", "pebble", "solve") and "time" not in c]


def run(arguments):
    return subprocess.run([CLI, *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def alike_everywhere(text):
    """Without what differs from one machine, or one instruction set, to the next: times, and rounding errors."""
    lines = [line.rstrip() for line in text.strip().splitlines() if not line.startswith("time ")]
    return [re.sub(r"-?\d\.\d+(e-\d+)?", "#", line) if line.startswith("verify ") else line for line in lines]


@needs_program
@pytest.mark.parametrize("command, output", SHOWN, ids=[command.split()[0] for command, _ in SHOWN])
def test_demo_block(command, output, tmp_path):
    arguments = shlex.split(command.replace("build/demo/", f"{tmp_path}/"))
    assert alike_everywhere(run(arguments)) == alike_everywhere(output)


@needs_program
@pytest.mark.parametrize("document", readme_demo.PAGES)
def test_page(document, tmp_path, monkeypatch):
    """In one folder, in order: commands print what the page shows, Python runs, C compiles with the exported header."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    steps = list(readme_demo.steps((ROOT / document).read_text()))
    assert {"shell", "python"} <= {language for language, _, _ in steps}
    for language, source, output in steps:
        if re.search(r"import redblue|-m redblue", source) and not importlib.util.find_spec("redblue"):
            continue  # the package is not installed here: scripts/test.sh installs it
        if "redblue.plot" in source:
            pytest.importorskip("matplotlib")
        printed = readme_demo.run_step(language, source, tmp_path, CLI)
        assert alike_everywhere(printed) == alike_everywhere(output), source


@pytest.mark.parametrize("document", readme_demo.PAGES)
def test_numbers_in_the_text_of_a_page_are_printed_there(document):
    page = (ROOT / document).read_text()
    printed = set(re.findall(r"\d+", "".join(output for _, _, output in readme_demo.steps(page))))
    text = readme_demo.FENCE.sub("", page)
    said = {number.replace(",", "") for number in re.findall(r"\d{1,3}(?:,\d{3})+", text)}
    derived = {"1500000", "1024", "4096"}  # 1.5 MB, n and d^2 of the tutorial
    assert said - derived and said - derived <= printed, said - derived - printed


@pytest.mark.parametrize("document", [page for page in readme_demo.PAGES if "/cases/" in page])
def test_table_of_a_case_has_the_quotients_of_its_words(document):
    rows = re.findall(r"^\| (.*) \| ([\d,]+) \| ([\d.]+) \| ?([\d.]*) \|$", (ROOT / document).read_text(), re.MULTILINE)
    words = [int(words.replace(",", "")) for _, words, _, _ in rows]
    assert len(rows) >= 4 and rows[-1][0].startswith("lower bound") and min(words) == words[-1]
    for (_, _, over_bound, fewer), moved in zip(rows, words):
        for shown, exact in [(over_bound, moved / words[-1])] + ([(fewer, words[0] / moved)] if fewer else []):
            assert shown == f"{exact:.{len(shown.partition('.')[2])}f}"


def test_demo_block_shows_plan_count_and_run_forward_and_backward():
    assert [command.split()[0] for command, _ in SHOWN] == ["plan", "count", "run", "plan", "run"]


@needs_program
def test_the_result_of_the_readme_is_that_of_its_command():
    (command,) = commands_of("README.md")
    rows = {row["schedule"]: row for row in json.loads(run([*shlex.split(command), "--json"]))["plans"]}
    best = min(rows.values(), key=lambda row: row["io"])
    result = r"the best schedule, (\w+), moves ([\d.]+) times .*?FlashAttention's order of work ([\d.]+) times"
    said = re.search(result, (ROOT / "README.md").read_text(), re.DOTALL).groups()
    assert said == (best["schedule"], f"{best['ratio']:.2f}", f"{rows['flash']['ratio']:.2f}")


@pytest.mark.usefixtures("hardware")
def test_the_python_of_the_readme_prints_what_is_shown():
    pytest.importorskip("redblue")
    text = (ROOT / "README.md").read_text()
    code, shown = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", text, re.DOTALL).groups()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == shown and len(code.splitlines()) == 5


@needs_program
@pytest.mark.parametrize(
    "operation, least",
    [("forward", 5), ("backward", 5), ("forward-x", 5), ("gradient-x", 5), ("backward-x", 5), ("backward-w", 5),
     ("scores", 1), ("weights", 1)],
)  # fmt: skip
def test_page_of_schedules_names_every_schedule(operation, least):
    command = [CLI, "plan", "--op", operation, "--n", "8", "--d", "4", "--M", "1000", "--schedule", "none"]
    command += ["--d-in", "8"] if operation == "backward-w" else []
    refusal = subprocess.run(command, capture_output=True, text=True).stderr
    names = re.search("choose from (.*)", refusal)[1].split(", ")
    assert len(names) >= least
    page = (ROOT / "docs/schedules.md").read_text()
    for name in names:
        assert re.search(rf"\b{re.escape(name.removeprefix('xy_').removeprefix('qkv_'))}\b", page), name


def test_command_line_page_names_every_command():
    commands = re.findall(r"^  (\w+) ", run(["--help"]).split("Subcommands:")[1], re.MULTILINE)
    page = (ROOT / "docs/cli.md").read_text()
    assert commands == re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert set(commands) == {c.split()[0] for c in COMMANDS}


@needs_program
@pytest.mark.parametrize("command", NEED_NOTHING)
def test_command_of_the_command_line_page(command):
    run(shlex.split(command))


def test_readme_shows_commands_of_the_command_line_page():
    shown = commands_of("README.md")
    assert shown and set(shown) <= set(COMMANDS)
