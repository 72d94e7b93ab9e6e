"""The planner as a module of WebAssembly (scripts/wasm.sh): it answers as the program does, byte for byte. Coefficients and
errors of polynomials alone may differ in their last digits: the two C libraries round cosines and exponentials differently."""

import json
import os
import random
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULE = Path(os.environ.get("REDBLUE_PLAN_MODULE", ROOT / "build/wasm/redblue_plan.wasm"))
CLI = os.environ.get("REDBLUE_CLI")
HERE = CLI and MODULE.exists() and shutil.which("node")
pytestmark = pytest.mark.skipif(
    not HERE and "REDBLUE_PLAN_MODULE" not in os.environ, reason="wants REDBLUE_CLI, node, and the module of scripts/wasm.sh"
)
HOST = """
const fs = require("fs");
eval(fs.readFileSync(process.argv[1], "utf8") + ";globalThis.planner = planner;");
const run = planner(new WebAssembly.Module(fs.readFileSync(process.argv[2])));
console.log(JSON.stringify(JSON.parse(fs.readFileSync(0, "utf8")).map((words) => Object.values(run(words)))));
"""


def by_module(commands):
    """For each command its exit status, standard output and standard error."""
    host = ["node", "-e", HOST, str(ROOT / "python/redblue/planner.js"), str(MODULE)]
    done = subprocess.run(host, input=json.dumps(commands), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [tuple(answer) for answer in json.loads(done.stdout)]


def by_program(command):
    done = subprocess.run([CLI, *command], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def compared(command, answer):
    if not {"--approximate", "--tolerance"} & set(command):
        return answer
    return tuple(re.sub(r"\d+\.\d{6,}", lambda m: f"{float(m[0]):.12g}", str(part)) for part in answer)


def random_command(r):
    """A problem of any operation, with any mask, that may well have no answer."""
    size = lambda most: str(round(2 ** r.uniform(0, most)))
    op = r.choice(["forward"] * 4 + ["backward"] * 3 + ["scores", "weights", "forward-x", "gradient-x", "backward-w"])
    words = ["--op", op, "--d", size(8), "--dv", size(8), "--heads", str(2 ** r.randrange(4)), "--n", size(13)]
    words += r.choice([["--M", size(20)]] * 4 + [["--memory", r.choice(["64KiB", "1.5MiB", "300"])]])
    words += r.choice([[]] * 3 + [["--causal"], ["--window", f"{size(9)},{size(6)}"], ["--causal", "--prefix", size(6)]])
    words += r.choice([[]] * 9 + [["--score", "elu"], ["--dtype", "bf16"], ["--lse"], ["--kv-heads", "1"], ["--double-buffer"]])
    words += r.choice([[]] * 9 + [["--approximate", "2:1.5"], ["--approximate", "performer:64"], ["--tolerance", "1e-2", "--range", "2"]])
    return ["plan", *words, *r.choice([["--json"]] * 9 + [[]])]


RANDOM = [random_command(r) for r in [random.Random(17)] for _ in range(200)]
CHOSEN = [
    "explain --n 256 --d 32 --M 2000 --causal",
    "explain --op backward --n 128 --d 16 --M 600 --heads 2 --json",
    "plan --n 512 --d 16 --M 700 --window 32,0 --globals 8 --json",  # patterns: exceptions are kept and thrown again
    "plan --n 300 --d 16 --M 700 --seqlens 100,200",
    "plan --n 64 --d 16 --M 1e3",
    "plan --n 64 --d 16 --dee 3",
    "plan",
]
REFUSED = {
    "plan --n 64 --d 16": "give --M or --memory",
    "plan --n 64 --d 16 --M 999 --objective time": "does not know its machine",
    "plan --n 64 --d 16 --M 999 --max-workspace 1MiB": "does not know what runs take",
    "plan --n 64 --d 16 --M 999 --mask mask.npy": "reads no files",
    "plan --n 64 --d 16 --M 999 --seqlens lengths.txt": "reads no files",
    "count --n 64 --d 16 --M 999": "count is no command: choose from plan, explain",
}


@pytest.fixture(scope="module")
def module():
    """What the module answers to each of these commands, a text."""
    commands = [*RANDOM, *(text.split() for text in [*CHOSEN, *REFUSED])]
    return {" ".join(command): answer for command, answer in zip(commands, by_module(commands))}


def test_random_plans_are_those_of_the_program(module):
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(by_program, RANDOM))
    assert sum(status == 0 for status, *_ in answers) > 60 < len({output for _, output, _ in answers})
    for command, theirs in zip(RANDOM, answers):
        assert compared(command, module[" ".join(command)]) == compared(command, theirs), " ".join(command)


@pytest.mark.parametrize("command", CHOSEN)
def test_loop_nests_tables_and_refusals_are_those_of_the_program(module, command):
    assert module[command] == by_program(command.split())


@pytest.mark.parametrize("command", REFUSED)
def test_what_a_page_cannot_do_is_said(module, command):
    status, output, messages = module[command]
    assert status == 2 and output == "" and REFUSED[command] in messages
