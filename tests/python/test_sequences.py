"""Packed and padded sequences of `redblue run` against numpy, sequence by sequence. Bad lists are refused."""

import re

import numpy as np
import pytest

import dense
from program import answer, needs_program, redblue, solved

pytestmark = needs_program


def attention(q, k, v, causal):
    """O and lse of one sequence; bottom-right."""
    return dense.attention(q, k, v, dense.causal(q.shape[1], k.shape[1]) if causal else True)


def drawn(seed, batch, heads, n_q, n_k, d=8, d_v=6):
    draw = np.random.default_rng(seed)
    return {
        "q": draw.normal(size=(batch, heads, n_q, d)).astype(np.float32),
        "k": draw.normal(size=(batch, heads, n_k, d)).astype(np.float32),
        "v": draw.normal(size=(batch, heads, n_k, d_v)).astype(np.float32),
    }


def run(tmp_path, x, *options):
    return solved(tmp_path, x, "--layout", "bhnd", "--verify", *options)[0]


@pytest.mark.parametrize("causal", [False, True])
def test_packed_and_used_in_part(tmp_path, causal):
    """The other queries and keys stay where they are: no gradient reaches these keys."""
    lengths, keys, used_q, used_k = [7, 0, 20, 3], [9, 2, 14, 1], [7, 0, 11, 3], [4, 1, 14, 0]
    x = drawn(1, 2, 3, sum(lengths), sum(keys))
    join = lambda numbers: ",".join(map(str, numbers))
    options = ["--seqlens", join(lengths), "--seqlens-k", join(keys), "--seqused-q", join(used_q), "--seqused-k", join(used_k)]
    options += ["--M", 800, *["--causal"] * causal]
    y = run(tmp_path, x, *options)
    at_q, at_k = np.cumsum([0, *lengths]), np.cumsum([0, *keys])
    seen = np.zeros(30, bool), np.zeros(26, bool)
    for s in range(4):
        i, j = slice(at_q[s], at_q[s] + used_q[s]), slice(at_k[s], at_k[s] + used_k[s])
        seen[0][i] = seen[1][j] = True
        for b in range(2):
            o, lse = attention(x["q"][b, :, i], x["k"][b, :, j], x["v"][b, :, j], causal)
            np.testing.assert_allclose(y["o"][b, :, i], o, atol=1e-5)
            np.testing.assert_allclose(y["lse"][b, :, i].reshape(lse.shape), lse, atol=1e-5)
    assert (y["o"][:, :, ~seen[0]] == 0).all() and (y["lse"][:, :, ~seen[0]] == -np.inf).all()
    x["do"] = np.ones((2, 3, 30, 6), np.float32)
    y = run(tmp_path, x, "--op", "backward", *options)
    assert (y["dq"][:, :, ~seen[0]] == 0).all() and (y["dk"][:, :, ~seen[1]] == 0).all() and (y["dv"][:, :, ~seen[1]] == 0).all()


@pytest.mark.parametrize("causal", [False, True])
def test_padded(tmp_path, causal):
    x = drawn(2, 3, 2, 12, 20)
    y = run(tmp_path, x, "--seqused-k", "20,0,7", "--seqused-q", "12,12,5", "--M", 500, *["--causal"] * causal)
    for b, (n_q, n_k) in enumerate([(12, 20), (12, 0), (5, 7)]):
        o, lse = attention(x["q"][b, :, :n_q], x["k"][b, :, :n_k], x["v"][b, :, :n_k], causal)
        np.testing.assert_allclose(y["o"][b, :, :n_q], o, atol=1e-5)
        np.testing.assert_allclose(y["lse"][b, :, :n_q].reshape(lse.shape), lse, atol=1e-5)
        assert (y["o"][b, :, n_q:] == 0).all() and (y["lse"][b, :, n_q:] == -np.inf).all()


def test_plans_of_sequences():
    plan = lambda *options: answer("plan", "--d", 64, "--M", 20000, "--causal", *options)
    one = plan("--n", 512, "--batch", 4)
    packed = plan("--seqlens", "512,512,512,512")  # their sum is n
    assert packed["chosen"] == one["chosen"]
    assert packed["bound"]["words"] == one["bound"]["words"]
    assert packed["problem"]["cu_seqlens_k"] == [0, 512, 1024, 1536, 2048]
    for command in ("bound", "count", "explain", "trace"):
        done = redblue(command, "--seqlens", "40,24", "--d", 16, "--M", 2000)
        assert done.returncode == 0, done.stderr


def test_many_sequences_are_planned_fast():
    lengths = ",".join(str(1 + i * 37 % 701) for i in range(3000))
    done = redblue("plan", "--seqlens", lengths, "--d", 64, "--M", 20000, "--causal", "--op", "backward")
    assert done.returncode == 0, done.stderr
    assert "3000 packed sequences" in done.stdout


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--seqlens", "5,-1"], "'-1' is no length"),
        (["--seqlens", "missing.txt"], "No such file"),
        (["--seqlens", "5,x"], "--seqlens 5,x: this is no list of lengths such as 512,300,212, and no text file of them"),
        (["--seqlens", "."], "is a directory"),
        (["--seqlens", "/dev/zero"], "not a regular file"),
        (["--seqlens", "4,4,"], "--seqlens 4,4,: a comma has no length after it"),
        (["--seqlens", ",4,4"], "a comma has no length before it"),
        (["--seqlens", "4,,4"], "a comma has no length before it"),
        (["--seqlens", "4,4", "--seqlens-k", "4,4,"], "--seqlens-k 4,4,: a comma has no length after it"),
        (["--seqused-k", "4,", "--n", "9"], "--seqused-k 4,: a comma has no length after it"),
        (["--seqlens", ","], "a comma has no length before it"),
        (["--seqlens", " "], "it has no lengths"),
        (["--seqlens", "08"], "'08' is not a whole number in decimal digits"),
        (["--seqlens", "9223372036854775808"], "9223372036854775808 does not fit 64 bits"),
        (["--seqlens-k", "5,4", "--n", "9"], "--seqlens-k is for --seqlens"),
        (["--seqlens", "5,4", "--seqlens-k", "9"], "cu_seqlens_q has 2 sequences and cu_seqlens_k 1"),
        (["--seqused-k", "5,4", "--n", "9"], "2 lengths for a batch of 1"),
        (["--seqlens", "9223372036854775807,9"], "add up to more than"),
    ],
)
def test_bad_lists_are_refused(options, says):
    done = redblue("plan", "--d", 8, "--M", 500, *options)
    assert done.returncode == 2 and re.search(says, done.stderr), done.stderr


def test_lengths_in_a_file_of_numpy_are_refused(tmp_path):
    np.save(tmp_path / "lengths.npy", np.array([5, 4]))
    np.savez(tmp_path / "lengths.npz", np.array([5, 4]))
    for name in ("lengths.npy", "lengths.npz"):
        done = redblue("plan", "--d", 8, "--M", 500, "--seqlens", tmp_path / name)
        assert done.returncode == 2 and "this is a file of NumPy; give lengths as text" in done.stderr


@pytest.mark.parametrize(
    "options, words",  # at most, of the best plan: those of one tiling for all
    [
        (["--d", 64, "--M", 65536, "--seqlens", "680,457,424"], 488217),
        (["--op", "backward", "--d", 16, "--M", 2590, "--seqlens", "73,43,23,28"], 28551),
        (["--op", "backward", "--d", 64, "--M", 65536, "--n", 1024, "--batch", 4,
          "--seqused-q", "767,258,633,379", "--seqused-k", "767,258,633,379"], 2417973),
    ],
)  # fmt: skip
def test_tiles_suit_unlike_lengths(options, words):
    best = answer("plan", *options)["plans"][0]
    assert best["reads"] + best["writes"] <= words


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("4\n4\n", None),
        ("4,4\n", None),
        ("4 4\n", None),
        ("4,\n4\n", None),
        ("4\r\n\r\n4\r\n", None),
        ("4,4,\n", "a comma has no length after it"),
        ("4\n,,4", "a comma has no length before it"),
        ("", "it has no lengths"),
        ("4 four", "'four' is not a whole number"),
        ("4 \x1b[31m", r"'\\x1b\[31m' is not a whole number"),
    ],
)
def test_files_of_lengths(tmp_path, text, says):
    (tmp_path / "lengths.txt").write_bytes(text.encode())
    done = redblue("plan", "--d", 8, "--M", 500, "--n", 8, "--seqlens", tmp_path / "lengths.txt")
    assert done.returncode == (2 if says else 0), done.stderr
    assert re.search(f"--seqlens .*lengths.txt: .*{says}" if says else "", done.stderr), done.stderr
