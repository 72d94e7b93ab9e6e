"""Attention of a real sentence encoder, whose outputs were computed elsewhere: o and lse for every schedule.

The full data lie beside the checkout, or where REDBLUE_DATA says; without them these tests are skipped. A small part of
them is examples/data, which the C++ tests use everywhere.
"""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from program import CLI, needs_program, schedules_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("REDBLUE_DATA", ROOT.parent / "shared" / "data"))
SCHEDULES = schedules_of("forward")

pytestmark = [
    needs_program,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is not there"),
]


def run(source, target, M, schedule, dtype):
    command = [CLI, "run", "--op", "forward", "--M", str(M), "--schedule", schedule, "--compute-dtype", dtype]
    done = subprocess.run([*command, "--input", source, "--output", target, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    reply = json.loads(done.stdout)
    assert reply["moved"] == reply["formula"]
    assert reply["moved"]["peak"] <= M
    return load_file(target)


def error(ours, theirs):
    """The largest difference over the largest entry."""
    assert ours.shape == theirs.shape
    return np.abs(ours.astype(np.float64) - theirs).max() / np.abs(theirs).max()


def plain(q, k, v):
    """Attention as anyone would write it, in the type of its inputs."""
    s = q @ np.swapaxes(k, -1, -2) * q.dtype.type(q.shape[-1] ** -0.5)
    m = s.max(-1, keepdims=True)
    p = np.exp(s - m)
    l = p.sum(-1, keepdims=True)
    return (p / l) @ v, (m + np.log(l))[..., 0]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("layer", ["minilm-layer0", "minilm-layer5"])
@pytest.mark.parametrize("M", [1024, 4096, 16384])
def test_layer(layer, schedule, M, tmp_path):
    source = DATA / f"{layer}.safetensors"
    given = load_file(source)
    exact = run(source, tmp_path / "f64.safetensors", M, schedule, "f64")
    assert error(exact["o"], given["o"]) < 5e-7
    assert error(exact["lse"], given["lse"]) < 5e-7

    single = run(source, tmp_path / "f32.safetensors", M, schedule, "f32")
    truth_o, truth_lse = plain(*(given[name].astype(np.float64) for name in "qkv"))
    plain_o, plain_lse = plain(*(given[name] for name in "qkv"))
    roundings = 4 * 2.0**-24
    assert error(single["o"], truth_o) <= 2 * error(plain_o, truth_o) + roundings
    assert error(single["lse"], truth_lse) <= 2 * error(plain_lse, truth_lse) + roundings


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_padded_sequences_one_by_one(schedule, tmp_path):
    """Keys beyond a sequence's length are masked: the same as keys that are not there (n_q = 128 > n_k)."""
    given = load_file(DATA / "minilm-padded.safetensors")
    for b, length in enumerate(given["lengths"]):
        one = {"q": given["q"][b : b + 1], "k": given["k"][b : b + 1, :, :length], "v": given["v"][b : b + 1, :, :length]}
        source = tmp_path / f"{b}.safetensors"
        save_file({name: np.ascontiguousarray(array) for name, array in one.items()}, source)
        ours = run(source, tmp_path / f"{b}-out.safetensors", 2048, schedule, "f64")
        assert error(ours["o"], given["o"][b : b + 1]) < 5e-7
        assert error(ours["lse"], given["lse"][b : b + 1]) < 5e-7
