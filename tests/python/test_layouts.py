"""Names of an order of dimensions: one set in Python, C and the program."""

import ctypes

import numpy as np
import pytest

import program
import redblue
import redblue_c as c
from redblue._call.settings import LAYOUTS

ORDER = {"b": 0, "h": 1, "n": 2, "s": 2, "d": 3}


def test_there_are_ten():
    assert sorted(LAYOUTS) == sorted("bhsd bhnd bshd bnhd hsd hnd shd nhd sd nd".split())


@pytest.mark.skipif(c.LIB is None, reason="set REDBLUE_C_LIBRARY")
@pytest.mark.parametrize("name", LAYOUTS)
def test_strides_of_c_are_those_of_a_dense_array(name):
    sizes = [s if letter in name.replace("s", "n") else 1 for letter, s in zip("bhnd", (2, 3, 5, 7))]
    dense = np.empty([sizes[ORDER[letter]] for letter in name], np.uint8)
    strides = (ctypes.c_int64 * 4)()
    c.checked(c.LIB.redblue_strides(name.encode(), (ctypes.c_int64 * 4)(*sizes), strides))
    assert {letter: strides[ORDER[letter]] for letter in name} == dict(zip(name, dense.strides))


@pytest.mark.skipif(c.LIB is None, reason="set REDBLUE_C_LIBRARY")
def test_c_refuses_other_names_and_sizes_that_a_name_lacks():
    strides = (ctypes.c_int64 * 4)()
    with pytest.raises(c.RedblueError, match="layout 'sbhd': give one of bhsd, bhnd"):
        c.checked(c.LIB.redblue_strides(b"sbhd", (ctypes.c_int64 * 4)(1, 1, 1, 1), strides))
    with pytest.raises(c.RedblueError, match="layout 'hsd' has no dimension b, and the array has 2 there"):
        c.checked(c.LIB.redblue_strides(b"hsd", (ctypes.c_int64 * 4)(2, 1, 1, 1), strides))


@program.needs_program
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_program_takes_each(tmp_path, name):
    rng = np.random.default_rng(1)
    sizes = {"b": 2, "h": 3, "n": 6, "s": 6, "d": 4}
    x = {t: rng.standard_normal([sizes[letter] for letter in name], dtype=np.float32) for t in "qkv"}
    y, _ = program.solved(tmp_path, x, "--layout", name, "--M", 200)
    np.testing.assert_allclose(y["o"], redblue.attention(x["q"], x["k"], x["v"], layout=name), atol=1e-5)


@program.needs_program
def test_one_sentence_says_which_there_are(tmp_path):
    np.savez(tmp_path / "x.npz", q=np.ones((2, 2), np.float32))
    said = program.refused(
        tmp_path, "run", "--M", 100, "--input", "x.npz", "--output", "y.npz", "--layout", "sbhd", cwd=tmp_path
    )
    with pytest.raises(redblue.InvalidProblem) as error:
        redblue.attention(*[np.ones((1, 1, 2, 2), np.float32)] * 3, layout="sbhd")
    assert said.split(": ", 2)[2].strip() == str(error.value).split(": ", 1)[1]
