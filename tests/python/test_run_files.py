"""`redblue run` and `redblue info` on files that numpy writes: .npz, every layout, forward and gradients in one run."""

import json
import shlex
import subprocess
import zipfile
from itertools import product

import numpy as np
import pytest

import dense
import program
from program import CLI, needs_program

pytestmark = needs_program
BHND = "bhnd"


def refused(directory, *command):
    return program.refused(directory, *command, cwd=directory)


def did(directory, *command):
    return program.redblue(*command, cwd=directory, check=True)


def in_layout(x, layout):
    """From [batch, heads, n, d], lse without d."""
    order = BHND[: x.ndim]
    dropped = tuple(i for i, letter in enumerate(order) if letter not in layout)
    kept = "".join(letter for letter in order if letter in layout)
    wanted = [letter for letter in layout if letter in kept]
    return np.ascontiguousarray(np.transpose(x.squeeze(dropped), [kept.index(letter) for letter in wanted]))


def tensors(batch=2, heads=4, kv_heads=2, n_q=10, n_k=15, d=8, dtype="f4"):
    random = np.random.default_rng(heads * n_q)
    shapes = {
        "q": (batch, heads, n_q, d),
        "k": (batch, kv_heads, n_k, d),
        "v": (batch, kv_heads, n_k, d),
        "do": (batch, heads, n_q, d),
    }
    return {name: random.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}


def attention(x):
    """o and lse."""
    return dense.attention(x["q"], x["k"], x["v"])


@pytest.mark.parametrize("save, dtype", list(product((np.savez, np.savez_compressed), ("f4", "f8", "f2"))))
def test_npz_is_read_and_written(tmp_path, save, dtype):
    x = tensors(dtype=dtype)
    save(tmp_path / "x.npz", **x)
    did(tmp_path, "run", "--M", "400", "--input", "x.npz", "--output", "y.npz", "--verify")
    assert zipfile.ZipFile(tmp_path / "y.npz").testzip() is None
    y = np.load(tmp_path / "y.npz")
    o, lse = attention(x)
    assert sorted(y) == ["lse", "o"] and y["o"].dtype == dtype
    np.testing.assert_allclose(y["o"], o, atol=4e-3 if dtype == "f2" else 1e-5)
    np.testing.assert_allclose(y["lse"], lse, rtol=1e-5)
    did(tmp_path, "run", "--M", "400", "--input", "x.npz", "--output", "again.npz")
    assert (tmp_path / "y.npz").read_bytes() == (tmp_path / "again.npz").read_bytes()


@pytest.mark.parametrize("op, layout", list(product(("forward", "backward"), ("bhnd", "bnhd", "hnd", "nhd", "nd"))))
def test_every_layout_gives_the_same_numbers(tmp_path, op, layout):
    x = tensors(batch=2 if "b" in layout else 1, heads=4 if "h" in layout else 1, kv_heads=2 if "h" in layout else 1)
    np.savez(tmp_path / "x.npz", **x)
    np.savez(tmp_path / "l.npz", **{name: in_layout(a, layout) for name, a in x.items()})
    command = ["run", "--op", op, "--M", "400", "--verify"] + (["--with-forward"] if op == "backward" else [])
    did(tmp_path, *command, "--input", "x.npz", "--output", "y.npz", "--layout", "bhnd")
    did(tmp_path, *command, "--input", "l.npz", "--output", "z.npz", "--layout", layout)
    y, z = np.load(tmp_path / "y.npz"), np.load(tmp_path / "z.npz")
    assert sorted(y) == sorted(z) == sorted(["o", "lse"] + (["dq", "dk", "dv"] if op == "backward" else []))
    for name in y:
        np.testing.assert_array_equal(in_layout(y[name], layout), z[name])


@pytest.mark.parametrize("dtype, compute", [("f4", "f32"), ("f2", "f32"), ("f4", "f64"), ("f8", "f64")])
def test_one_run_writes_what_two_write(tmp_path, dtype, compute):
    np.savez(tmp_path / "x.npz", **tensors(dtype=dtype))
    common = ["--M", "400", "--compute-dtype", compute, "--input", "x.npz"]
    did(tmp_path, "run", *common, "--output", "o.npz")
    did(tmp_path, "run", *common, "--op", "backward", "--output", "g.npz")
    did(tmp_path, "run", *common, "--op", "backward", "--with-forward", "--output", "all.npz")
    both = {**np.load(tmp_path / "o.npz"), **np.load(tmp_path / "g.npz")}
    one = np.load(tmp_path / "all.npz")
    assert sorted(one) == sorted(both)
    for name in one:
        np.testing.assert_array_equal(one[name], both[name])


def test_one_run_writes_npy_files(tmp_path):
    x = tensors()
    for name, a in x.items():
        np.save(tmp_path / f"{name}.npy", a)
    files = [word for name in ("q", "k", "v", "do", "dq", "dk", "dv") for word in (f"--{name}", f"{name}.npy")]
    command = ["run", "--op", "backward", "--M", "400", *files, "--with-forward"]
    assert "--o, --lse or both" in refused(tmp_path, *command)
    did(tmp_path, *command, "--lse", "lse.npy")
    did(tmp_path, *command, "--o", "o.npy", "--verify")
    o, lse = attention(x)
    np.testing.assert_allclose(np.load(tmp_path / "o.npy"), o, atol=1e-5)
    np.testing.assert_allclose(np.load(tmp_path / "lse.npy"), lse, rtol=1e-5)


def test_with_forward_is_for_gradients_of_softmax(tmp_path):
    np.savez(tmp_path / "x.npz", **tensors())
    command = ["run", "--M", "400", "--input", "x.npz", "--output", "y.npz", "--with-forward"]
    assert "for gradients" in refused(tmp_path, *command)
    assert "--score softmax" in refused(tmp_path, *command, "--op", "backward", "--score", "relu")


# heads, key-value heads, queries, keys in the file's order; what a reading as [b, h, n, d] gets
@pytest.mark.parametrize(
    "q, k, answer",
    [
        ((1, 4, 10, 8), (1, 4, 10, 8), "taken"),
        ((1, 16, 32, 8), (1, 16, 8, 8), "asked"),  # 16 tokens, 32 heads that share 8?
        ((1, 2, 5, 8), (1, 2, 7, 8), "taken"),
        ((1, 4, 1, 8), (1, 2, 100, 8), "taken"),  # 1 head does not share 100
        ((1, 10, 4, 8), (1, 10, 4, 8), "asked"),
        ((1, 4, 4, 8), (1, 4, 4, 8), "asked"),
        ((1, 4, 1, 8), (1, 4, 1, 8), "asked"),
        ((1, 10, 4, 8), (1, 10, 2, 8), "asked"),
        ((1, 10, 4, 8), (1, 15, 4, 8), "refused"),  # 10 heads do not share 15
        ((1, 1, 32, 8), (1, 100, 8, 8), "refused"),
        ((10, 4, 8), (10, 4, 8), "asked"),
        ((4, 10, 8), (4, 10, 8), "taken"),
        ((10, 8), (10, 8), "taken"),
    ],
)
def test_ambiguous_shapes_are_asked_about(tmp_path, q, k, answer):
    np.savez(tmp_path / "x.npz", q=np.ones(q, "f4"), k=np.ones(k, "f4"), v=np.ones(k, "f4"))
    command = ["run", "--M", "1000", "--input", "x.npz", "--output", "y.npz"]
    tokens_first = "bnhd" if len(q) == 4 else "nhd"
    if answer == "taken":
        assert f"q as {BHND[4 - len(q):]}:" in did(tmp_path, *command).stdout
    else:
        said = refused(tmp_path, *command)
        assert f"--layout {tokens_first}" in said and str(list(q)) in said and str(list(k)) in said
        assert (f"--layout {BHND[4 - len(q):]} " in said) == (answer == "asked")
        assert f"q as {tokens_first}:" in did(tmp_path, *command, "--layout", tokens_first).stdout


def test_info_says_what_can_be_run(tmp_path):
    np.savez(tmp_path / "x.npz", ids=np.arange(5), **tensors())
    said = did(tmp_path, "info", "x.npz").stdout
    for line in ("q            f32 [2, 4, 10, 8]", "ids          <i8 [5]: redblue does not compute with this type"):
        assert line in said
    info = json.loads(did(tmp_path, "info", "x.npz", "--json").stdout)
    runs = {r["op"]: r for r in info["runs"]}
    assert info["format"] == "npz" and runs["gradient-x"]["missing"] == ["a1", "a2", "a3", "x", "y"]
    for op in ("forward", "backward"):
        command = runs[op]["command"].replace("OUT", op).split()
        assert command[0] == "redblue" and command in [line.split() for line in said.replace("OUT", op).splitlines()]
        did(tmp_path, *command[1:], "--M", "400", "--verify")
        assert runs[op]["problem"]["kv_heads"] == 2


def test_info_asks_about_the_layout_and_takes_names(tmp_path):
    x = {name: in_layout(a, "bnhd") for name, a in tensors(n_k=10).items()}
    np.savez(tmp_path / "x.npz", query=x["q"], k=x["k"], v=x["v"])
    assert "forward: q missing (--name q=query says" in did(tmp_path, "info", "x.npz").stdout
    named = ["info", "x.npz", "--name", "q=query"]
    assert "--layout bhnd or --layout bnhd" in did(tmp_path, *named).stdout
    said = did(tmp_path, *named, "--layout", "bnhd").stdout
    command = next(line for line in said.splitlines() if "redblue run" in line).replace("OUT", "y").split()
    did(tmp_path, *command[1:], "--M", "400", "--verify")


def test_info_reads_npy(tmp_path):
    np.save(tmp_path / "q.npy", np.zeros((2, 3)))
    np.save(tmp_path / "i.npy", np.arange(3))
    assert "q.npy: npy, f64 [2, 3]\nredblue run takes" in did(tmp_path, "info", "q.npy").stdout
    assert did(tmp_path, "info", "i.npy").stdout == "i.npy: npy, <i8 [3]: redblue does not compute with this type\n"
    np.save(tmp_path / "m.npy", np.ones((3, 3), bool))
    assert "m.npy: npy, bool [3, 3]\nredblue run takes a file of bool as --mask" in did(tmp_path, "info", "m.npy").stdout
    assert json.loads(did(tmp_path, "info", "q.npy", "--json").stdout)["tensors"][0]["shape"] == [2, 3]
    assert "--name and --layout are for" in refused(tmp_path, "info", "q.npy", "--layout", "nd")
    (tmp_path / "short.npy").write_bytes((tmp_path / "q.npy").read_bytes()[:-8])
    assert "needs 48 bytes of data" in refused(tmp_path, "info", "short.npy")
    np.savez(tmp_path / "x.npz", **tensors())
    assert "give one of bhsd" in refused(tmp_path, "info", "x.npz", "--layout", "zz")
    assert "has no tensor 'query'" in refused(tmp_path, "info", "x.npz", "--name", "q=query")


def test_info_says_that_a_file_is_a_sparse_matrix_and_how_to_use_it(tmp_path):
    parts = {"format": np.array(b"csr"), "shape": [3, 5], "indptr": [0, 2, 2, 3], "indices": np.array([0, 4, 1], "i4")}
    np.savez(tmp_path / "p.npz", **parts, data=np.ones(3))
    said = did(tmp_path, "info", "p.npz").stdout
    assert "p.npz: npz, a sparse matrix of scipy.sparse.save_npz (csr)\n" in said
    assert "3 queries x 5 keys, 3 pairs" in said and "does not compute" not in said and "missing" not in said
    command = next(line for line in said.splitlines() if "--csr p.npz" in line).split()
    did(tmp_path, *command[1:], "--d", "2", "--M", "60")
    sparse = json.loads(did(tmp_path, "info", "p.npz", "--json").stdout)["sparse"]
    assert sparse == {"format": "csr", "shape": [3, 5], "pairs": 3, "command": " ".join(command)}
    np.savez(tmp_path / "c.npz", **{**parts, "format": np.array(b"csc")})
    assert "c.npz: it is a sparse matrix of format 'csc'" in refused(tmp_path, "info", "c.npz")


def test_info_offers_commands_that_run(tmp_path):
    x = tensors()
    np.savez(tmp_path / "a b.npz", **{"the query": x["q"], "k": x["k"], "v": x["v"], "grad": x["do"]})
    said = did(tmp_path, "info", "a b.npz", "--name", "q=the query", "--name", "do=grad").stdout
    commands = [shlex.split(line) for line in said.splitlines() if "redblue run" in line]
    assert len(commands) == 3  # forward, backward, scores
    for i, command in enumerate(commands):
        did(tmp_path, *[word.replace("OUT", f"y{i}") for word in command[1:]], "--M", "400", "--verify")


def test_info_looks_at_headers_alone(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", **{name: np.zeros((1, 8, 40000, 64), "f4") for name in "qkv"})
    done = subprocess.run(["bash", "-c", f"ulimit -v 200000; exec {CLI} info x.npz"], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr  # three arrays of 80 MB would not fit


def test_names_of_tensors_survive(tmp_path):
    np.savez(tmp_path / "x.npz", **tensors())
    did(tmp_path, "run", "--M", "400", "--input", "x.npz", "--output", "y.npz", "--name", "o=é")
    assert np.load(tmp_path / "y.npz").files == ["é", "lse"]
    np.savez(tmp_path / "z.npz", **{"q\x1b[31m": np.zeros(3)})
    assert "q\\x1b[31m" in did(tmp_path, "info", "z.npz").stdout


def bad_files(directory):
    """Files that cannot be read, each with a part of the error message."""
    good = directory / "good.npz"
    np.savez(good, **tensors())
    whole = good.read_bytes()
    (directory / "short.npz").write_bytes(whole[:-100])
    damaged = bytearray(whole)
    damaged[200] ^= 1
    (directory / "damaged.npz").write_bytes(damaged)
    np.savez(directory / "object.npz", **{**tensors(), "q": np.array([{}], dtype=object)})
    with zipfile.ZipFile(directory / "text.npz", "w") as z:
        z.writestr("readme.txt", "hello")
    with zipfile.ZipFile(directory / "nonsense.npz", "w") as z:
        z.writestr("q.npy", "hello")
    (directory / "empty.npz").write_bytes(b"")
    np.savez(directory / "nothing.npz")
    return {
        "short.npz": "is the file whole?",
        "damaged.npz": "checksum",
        "object.npz": "dtype '|O'",
        "text.npz": "readme.txt",
        "nonsense.npz": "NUMPY",
        "empty.npz": "empty.npz",
        "nothing.npz": "is the file whole?",
        "missing.npz": "No such file",
    }


def test_extensions_do_not_lie(tmp_path):
    np.savez(tmp_path / "x.npz", **tensors())
    for name, a in tensors().items():
        np.save(tmp_path / f"{name}.npy", a)
    run_npz = ["run", "--M", "400", "--input", "x.npz", "--output"]
    assert "give .npy files by name" in refused(tmp_path, *run_npz, "Y.NPY")
    did(tmp_path, *run_npz, "Y.NPZ")
    assert (tmp_path / "Y.NPZ").read_bytes()[:2] == b"PK"
    npy = ["run", "--M", "400", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--o"]
    assert "it takes a .npy file" in refused(tmp_path, *npy, "o.npz")


def test_bad_files_are_refused(tmp_path):
    for name, part in bad_files(tmp_path).items():
        assert part in refused(tmp_path, "run", "--M", "400", "--input", name, "--output", "y.npz"), name


@pytest.mark.parametrize(
    "options, part",
    [
        (["--layout", "bhdn"], "give one of bhsd, bhnd, bshd, bnhd, hsd, hnd, shd, nhd, sd, nd (b batch, h heads, s or n tokens"),
        (["--layout", "hnd"], "q is [2, 4, 10, 8]: in the layout hnd it must be [h, n, d]"),
        (["--op", "gradient-x", "--layout", "bnhd"], "gradient-x are [batch, heads, rows, columns]"),
        (["--name", "o=x", "--name", "lse=x"], "would both be named x"),
        (["--name", "q"], "give TENSOR=NAME"),
        (["--name", "o=../o"], "names in .npz have no /"),
        (["--name", "o=" + 300 * "o"], "at most 255 bytes"),
    ],
)
def test_bad_options_are_refused(tmp_path, options, part):
    np.savez(tmp_path / "x.npz", **tensors())
    assert part in refused(tmp_path, "run", "--M", "400", "--input", "x.npz", "--output", "y.npz", *options)
