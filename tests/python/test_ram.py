"""The memory that a run says it takes is what it takes, whatever the format of its files."""

import json
import os
import subprocess

import numpy as np
import pytest
from safetensors.numpy import save_file

import program
import redblue
from program import CLI, needs_program

pytestmark = needs_program
MIB = 1 << 20


def peak_of(folder, *command):
    """The report of a run, and the most bytes that its process had in memory."""
    with open(folder / "said", "w") as said:
        process = subprocess.Popen([CLI, *map(str, command), "--json"], stdout=said, cwd=folder)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)  # it has been waited for
    assert process.returncode == 0
    return json.loads((folder / "said").read_text()), usage.ru_maxrss * 1024


@pytest.mark.parametrize("name", ["x.npz", "x.safetensors"])
def test_a_run_takes_what_it_says(tmp_path, name):
    """Outputs of 64 MiB: an archive that is put together in memory would take them twice."""
    q, k, v = (np.ones(shape, np.float32) for shape in ((1, 1, 1 << 16, 1), (1, 1, 1, 1), (1, 1, 1, 256)))
    save = save_file if name.endswith("s") else lambda x, path: np.savez(path, **x)
    save({"q": q, "k": k, "v": v}, tmp_path / name)
    flags = ("run", "--M", 4096, "--threads", 1, "--layout", "bhnd", "--input", name)
    _, nothing = peak_of(tmp_path, "plan", "--n", 8, "--d", 4, "--M", 1000)
    report, peak = peak_of(tmp_path, *flags, "--output", f"y{name}")
    ram = report["ram"]
    assert ram["inputs"] == q.nbytes + k.nbytes + v.nbytes and ram["outputs"] == 4 * (256 + 1) * (1 << 16)
    assert ram["total"] == ram["inputs"] + ram["outputs"] + ram["beside"]
    assert ram["total"] - 8 * MIB < peak < ram["total"] + nothing + 16 * MIB
    sizes = ("--nq", 1 << 16, "--nk", 1, "--d", 1, "--dv", 256, "--M", 4096, "--lse")
    planned = program.answer("plan", *sizes)["ram"]
    assert {name: planned[name] for name in ("inputs", "outputs")} == {name: ram[name] for name in ("inputs", "outputs")}


def test_much_memory_is_said_before_the_run():
    large, small = (program.redblue("plan", "--n", n, "--d", 64, "--heads", 16, "--window", "256,0", "--M", 16384).stdout for n in (200_000, 2000))
    assert "\na run takes 3.0" in large and " GiB for inputs" in large and "a run takes" not in small


@pytest.mark.parametrize("op", ["forward", "backward"])
def test_a_plan_of_python_says_what_the_program_says(op):
    options = {"n": 96, "d": 16, "heads": 3, "M": 2000, "dtype": "bf16", "threads": 1}
    ram = redblue.plan(op, **options).ram
    said = program.answer("plan", "--op", op, "--n", 96, "--d", 16, "--heads", 3, "--M", 2000, "--dtype", "bf16")["ram"]
    arrays = {name: said[name] for name in ("inputs", "outputs")}
    assert arrays == {name: ram[name] for name in arrays} and arrays["inputs"] >= 3 * 2 * 3 * 96 * 16
    assert ram["total"] == sum(ram[name] for name in ("inputs", "outputs", "beside")) and ram["beside"] > 0
