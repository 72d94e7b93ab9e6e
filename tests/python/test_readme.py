"""The README shows what the program prints today: every command of its demo block is run again."""

import os
import pathlib
import re
import shlex
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLI = os.environ.get("REDBLUE_CLI")
BLOCK = re.search(r"<!-- demo -->\n```\n(.*)```\n<!-- /demo -->", (ROOT / "README.md").read_text(), re.DOTALL)[1]
SHOWN = re.findall(r"^\$ redblue (.*)\n((?:(?!## ).*\n)*)", BLOCK, re.MULTILINE)


def alike_everywhere(text):
    """Without what differs from one machine, or one instruction set, to the next: times, and rounding errors."""
    lines = [line.rstrip() for line in text.strip().splitlines() if not line.startswith("time ")]
    return [re.sub(r"-?\d\.\d+(e-\d+)?", "#", line) if line.startswith("verify ") else line for line in lines]


@pytest.mark.skipif(not CLI, reason="set REDBLUE_CLI to the redblue program to run these tests")
@pytest.mark.parametrize("command, output", SHOWN, ids=[command.split()[0] for command, _ in SHOWN])
def test_demo_block(command, output, tmp_path):
    arguments = shlex.split(command.replace("build/demo/", f"{tmp_path}/"))
    done = subprocess.run([CLI, *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    assert alike_everywhere(done.stdout) == alike_everywhere(output)


def test_demo_block_shows_plan_count_and_run_forward_and_backward():
    assert [command.split()[0] for command, _ in SHOWN] == ["plan", "count", "run", "plan", "run"]
