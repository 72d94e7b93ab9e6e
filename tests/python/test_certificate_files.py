"""Files that scripts/check_certificate.py reads beside safetensors, and the example on which a tolerance pays."""

import json
import subprocess
import sys

import numpy as np
import pytest

from program import needs_program
from program import CLI, ROOT
from test_certificates import SCRIPT, certified, script, tensors_of

pytestmark = needs_program


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_is_read_as_safetensors_are(tmp_path, save):
    tensors = tensors_of(4)
    _, _, o = certified(tmp_path, tensors, 1e-2)
    save(tmp_path / "x.npz", ids=np.arange(3), **tensors)
    np.savez(tmp_path / "y.npz", o=o)
    asked = [sys.executable, SCRIPT, tmp_path / "c.json", tmp_path / "x.npz", "--output", tmp_path / "y.npz"]
    assert subprocess.run(asked, capture_output=True, text=True).stdout == "ok: the certificate holds, and o keeps to it\n"
    np.savez(tmp_path / "y.npz", o=o + 0.1)
    assert "REFUSED: batch 0, head 0: o is further" in subprocess.run(asked, capture_output=True, text=True).stderr


def test_bf16_of_npz_is_two_bytes_without_a_meaning(tmp_path):
    bits = np.array([0x3F80, 0xC040, 0], np.uint16)
    np.savez(tmp_path / "x.npz", q=bits.view("V2"), ids=np.arange(3))
    [(name, x)] = script.load_file(tmp_path / "x.npz").items()
    assert name == "q" and x.tolist() == [1, -3, 0]


def test_a_tolerance_pays_on_the_flat_example(tmp_path):
    """The file is what its script writes; which answer is chosen depends on the tolerance and on M."""
    flat = ROOT / "examples/data/flat.safetensors"
    subprocess.run([sys.executable, ROOT / "scripts/make_flat_data.py", tmp_path / "again.safetensors"], check=True)
    assert flat.read_bytes() == (tmp_path / "again.safetensors").read_bytes() and flat.stat().st_size < 300_000
    run = [CLI, "run", "--input", flat, "--output", tmp_path / "y.safetensors", "--certificate", tmp_path / "c.json", "--json"]
    for tolerance, M, method in ((1e-2, 16384, "polynomial"), (1e-1, 4096, "polynomial rows"), (1e-3, 4096, "exact")):
        done = subprocess.run([*map(str, run), "--tolerance", str(tolerance), "--M", str(M)], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)["tolerance"]
        assert found["method"] == method, found
        words = found["row_words"] or found["polynomial_words"]
        assert (words < found["exact_words"]) == (method != "exact")
        asked = [sys.executable, SCRIPT, tmp_path / "c.json", flat, "--output", tmp_path / "y.safetensors"]
        assert subprocess.run(asked, capture_output=True, text=True).stdout.startswith("ok: the certificate holds")
