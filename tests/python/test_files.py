"""redblue.files: where tensors lie in files, and runs over them."""

import logging
import os

import ml_dtypes
import numpy as np
import pytest

import redblue
from redblue import files

RNG = np.random.default_rng(5)


def drawn(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def found(t):
    """The array at a place, read as a test may."""
    dtype = {"f64": "f8", "f32": "f4", "f16": "f2", "bf16": ml_dtypes.bfloat16, "bool": "?"}[t.dtype]
    data = np.fromfile(t.path, np.uint8)[t.offset :]
    data = data[: len(data) // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize].view(dtype)
    return np.lib.stride_tricks.as_strided(data, t.shape, [s * data.itemsize for s in t.strides])


@pytest.fixture
def x(tmp_path):
    """An array, and a file of it behind 24 bytes."""
    array = drawn(3, 10, 8)
    (tmp_path / "x.bin").write_bytes(b"." * 24 + array.tobytes())
    return array, tmp_path / "x.bin"


def test_npy_files_lie_where_numpy_wrote_them(tmp_path):
    for dtype in (np.float64, np.float32, np.float16, bool):
        array = drawn(4, 6).astype(dtype)
        np.save(tmp_path / "x.npy", array)
        assert (found(files.tensor(tmp_path / "x.npy")) == array).all()
    np.save(tmp_path / "f.npy", np.asfortranarray(drawn(4, 6)))
    t = files.tensor(str(tmp_path / "f.npy"))
    assert t.strides == (1, 4) and t.dtype == "f32" and t.offset == 128
    np.save(tmp_path / "b.npy", drawn(4, 6).astype(">f4"))
    with pytest.raises(redblue.Unsupported, match="other byte order"):
        files.tensor(tmp_path / "b.npy")
    with pytest.raises(redblue.FileError, match="No such file"):
        files.tensor(tmp_path / "none.npy")


def test_tensors_of_safetensors_lie_where_their_names_say(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    arrays = {"q": drawn(2, 3), "k": drawn(5, 3, dtype=np.float16)}
    numpy.save_file(arrays, tmp_path / "x.safetensors")
    for name, array in arrays.items():
        assert (found(files.tensor(tmp_path / "x.safetensors", name)) == array).all()
    with pytest.raises(redblue.InvalidProblem, match="no tensor 'v'; it has k, q"):
        files.tensor(tmp_path / "x.safetensors", "v")
    with pytest.raises(redblue.InvalidProblem, match="give the name"):
        files.tensor(tmp_path / "x.safetensors")


def test_views_of_memmaps_are_found_without_a_copy(x):
    array, path = x
    for offset, shape in ((24, (3, 10, 8)), (24 + 320, (2, 10, 8))):
        mapped = np.memmap(path, np.float32, "r", offset=offset, shape=shape)
        for view in (
            lambda m: m,
            lambda m: m[1],
            lambda m: m[:, 2:, 1:5],
            lambda m: m[:, ::3],
            lambda m: m.transpose(1, 0, 2),
            lambda m: m[1:].reshape(-1, 8),
            lambda m: np.broadcast_to(m[1], (4, 10, 8), subok=True),
            lambda m: np.broadcast_to(m[1], (4, 10, 8)),
            lambda m: np.asarray(m[1:])[:, 2:],
            lambda m: np.asarray(m).transpose(2, 0, 1),
        ):
            part = view(mapped)
            t = files.tensor(part)
            assert t.shape == part.shape
            assert (found(t) == np.asarray(part)).all()
    half = np.memmap(path, np.float16, "r", offset=24, shape=(4, 3))
    assert files.tensor(half).dtype == "f16"


def test_a_memmap_beyond_a_page_has_the_offset_of_the_file(tmp_path):
    array = drawn(5000, 3)
    (tmp_path / "x.bin").write_bytes(b"." * 20004 + array.tobytes())
    mapped = np.memmap(tmp_path / "x.bin", np.float32, "r", offset=20004, shape=array.shape)
    assert files.tensor(mapped[100:]).offset == 20004 + 100 * 12
    assert (found(files.tensor(mapped[100:])) == array[100:]).all()


def test_memmaps_that_are_not_in_their_file_are_refused(x):
    _, path = x
    shape = (3, 10, 8)
    with pytest.raises(redblue.Unsupported, match="mode 'c'"):
        files.tensor(np.memmap(path, np.float32, "c", offset=24, shape=shape))
    with pytest.raises(redblue.InvalidProblem, match="in no file"):
        files.tensor(np.memmap(path, np.float32, "r", offset=24, shape=shape) + 1)
    with pytest.raises(redblue.Unsupported, match="rows backwards"):
        files.tensor(np.memmap(path, np.float32, "r", offset=24, shape=shape)[:, ::-1])
    with pytest.raises(TypeError, match="int32"):
        files.tensor(np.memmap(path, np.int32, "r", offset=24, shape=shape))
    fields = np.memmap(path, [("a", "f4"), ("b", "u1")], "r", offset=24, shape=8)["a"]
    with pytest.raises(redblue.Unsupported, match="no multiples of its 4"):
        files.tensor(fields)


def test_what_is_written_to_a_memmap_is_in_the_file_when_it_is_named(tmp_path):
    mapped = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (4, 8))
    mapped[...] = drawn(4, 8)
    assert (found(files.tensor(mapped[1:])) == mapped[1:]).all()


def test_files_without_a_header_are_described(x):
    array, path = x
    t = files.tensor(path, dtype="f32", shape=(3, 10, 8), offset=24)
    assert t.raw == f"{path}:f32:3x10x8/80x8x1@24"
    assert (found(t) == array).all()
    assert (found(files.tensor(path, dtype="f32", shape=(10, 3, 8), offset=24, strides=(8, 80, 1))) == array.transpose(1, 0, 2)).all()
    for wrong, says in (
        ({}, "neither in .npy nor in .safetensors"),
        ({"shape": (3, 10, 8)}, "shape: these describe a file without a header"),
        ({"dtype": "f4", "shape": (3,)}, "'f4': give one of f64"),
        ({"dtype": "f32", "shape": (3, 0)}, "none of them 0"),
        ({"dtype": "f32", "shape": (3, 4), "strides": (1,)}, "one for each of 2"),
        ({"dtype": "f32", "shape": (3, 4), "offset": -4}, "offset = -4: give a whole number from 0 on"),
        ({"dtype": "f32", "shape": (3, 4), "offset": 4.5}, "offset = 4.5: give a whole number"),
        ({"dtype": "f32", "shape": (3.0, 4)}, "a size of shape = 3.0: give a whole number"),
    ):
        with pytest.raises(redblue.InvalidProblem, match=says):
            files.tensor(path, **wrong)
    with pytest.raises(redblue.InvalidProblem, match="ndarray is in no file"):
        files.tensor(array)


def test_contiguous_datasets_of_hdf5_lie_where_h5py_says(tmp_path):
    h5py = pytest.importorskip("h5py")
    array = drawn(4, 6, 8)
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=512) as file:
        file["plain"] = array
        file.create_dataset("packed", data=array, chunks=(2, 6, 8), compression="gzip", shuffle=True)
        file.create_dataset("chunked", data=array, chunks=(2, 6, 8))
        file.create_dataset("empty", shape=(2, 3), dtype="f4")
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        file.create_dataset("compact", data=array[0], dcpl=compact)
        file["whole"] = np.arange(6)
        file["big"] = array.astype(">f4")
        assert (found(files.tensor(file["plain"])) == array).all(), "while it is open for writing, too"
    with h5py.File(tmp_path / "x.h5") as file:
        assert (found(files.tensor(file["plain"])) == array).all()
        for name, error, says in (
            ("packed", redblue.Unsupported, r"chunks of \(2, 6, 8\), filtered by gzip, shuffle: write it contiguous"),
            ("chunked", redblue.Unsupported, r"chunks of \(2, 6, 8\): write it contiguous"),
            ("empty", redblue.Unsupported, "nothing was written to it"),
            ("compact", redblue.Unsupported, "within the header of the file"),
            ("whole", TypeError, "int64"),
            ("big", TypeError, "other byte order"),
        ):
            with pytest.raises(error, match=says):
                files.tensor(file[name])


def test_arrays_of_zarr_that_are_one_chunk_of_bytes_are_its_file(tmp_path):
    zarr = pytest.importorskip("zarr", minversion="3")
    array = drawn(4, 6, 8)

    def made(name, **how):
        z = zarr.create_array(tmp_path / name, shape=array.shape, dtype="f4", **{"chunks": array.shape, "compressors": None, **how})
        if name != "empty":
            z[...] = array
        return z

    assert (found(files.tensor(made("plain"))) == array).all()
    assert (found(files.tensor(made("larger", chunks=(5, 6, 9)))) == array).all(), "the chunk has room to spare"
    group = zarr.open_group(tmp_path / "group", mode="w")
    inside = group.create_array("x", shape=(2, 3), chunks=(2, 3), dtype="f8", compressors=None)
    inside[...] = array[0, :2, :3]
    assert (found(files.tensor(inside)) == array[0, :2, :3]).all()
    for z, says in (
        (made("packed", compressors=zarr.codecs.GzipCodec()), "chunk codec gzip: write one chunk"),
        (made("turned", filters=[zarr.codecs.TransposeCodec(order=(2, 1, 0))]), "chunk codec transpose"),
        (made("many", chunks=(2, 6, 8)), r"chunks of \(2, 6, 8\) for a shape of \(4, 6, 8\)"),
        (made("shards", chunks=(2, 6, 8), shards=(4, 6, 8)), "shards of"),
        (made("old", zarr_format=2), "format 2"),
        (made("empty"), "nothing but its fill value"),
        (zarr.create_array(zarr.storage.MemoryStore(), data=array), "MemoryStore"),
    ):
        with pytest.raises(redblue.Unsupported, match=says):
            files.tensor(z)


@pytest.fixture
def qkv(tmp_path):
    arrays = drawn(2, 40, 8), drawn(2, 50, 8), drawn(2, 50, 8)
    for name, array in zip("qkv", arrays):
        np.save(tmp_path / f"{name}.npy", array)
    return arrays, [tmp_path / f"{name}.npy" for name in "qkv"]


def test_a_run_over_files_gives_what_a_call_in_memory_gives(qkv, tmp_path):
    (q, k, v), paths = qkv
    report = files.run(*paths, out=tmp_path / "o.npy", memory="16MiB", causal=True, scale=0.5)
    assert report["schema"] == "redblue.run/1" and report["moved"] == report["formula"]
    over = report["files"]
    assert over["word_bytes_read"] + over["word_bytes_written"] == 4 * report["moved"]["io"]
    assert over["process"]["peak_rss"] < over["limit"] + over["beside_limit"], "of the program alone, without this process"
    wanted, lse = redblue.attention(q, k, v, causal=True, scale=0.5, return_lse=True)
    np.testing.assert_allclose(np.load(tmp_path / "o.npy"), wanted, rtol=1e-4, atol=1e-5)
    mapped = [np.load(path, mmap_mode="r") for path in paths]
    out = {"o": tmp_path / "o2.npy", "lse": tmp_path / "lse.npy"}
    files.run(mapped[0], mapped[1], mapped[2], out=out, memory="16MiB", causal=True, scale=0.5)
    assert (tmp_path / "o2.npy").read_bytes() == (tmp_path / "o.npy").read_bytes()
    np.testing.assert_allclose(np.load(tmp_path / "lse.npy"), lse, rtol=1e-4, atol=1e-5)


def test_a_run_takes_views_and_options_by_name(qkv, tmp_path):
    (q, k, v), (q_path, k_path, v_path) = qkv
    turned = np.memmap(tmp_path / "k.bin", np.float32, "w+", shape=(2, 8, 50))
    turned[...] = k.transpose(0, 2, 1)
    k_view = turned.transpose(0, 2, 1)
    slopes = np.array([0.5, 0.25])
    files.run(q_path, k_view, v_path, out=tmp_path / "y.safetensors", memory="16MiB", window=(7, 0), alibi_slopes=slopes)
    o = found(files.tensor(tmp_path / "y.safetensors", "o"))
    wanted = redblue.attention(q, k, v, window=(7, 0), alibi_slopes=slopes.astype(np.float32))
    np.testing.assert_allclose(o, wanted, rtol=1e-4, atol=1e-5)


def test_options_may_be_what_numpy_and_python_have_for_them(qkv, tmp_path):
    (q, k, v), paths = qkv

    def problem(**options):
        return files.run(*paths, out=tmp_path / "o.npy", memory="16MiB", **options)["problem"]

    assert problem(causal=1)["causal"] and problem(causal=np.True_)["causal"]
    assert not problem(causal=0)["causal"] and not problem(causal=False)["causal"]
    assert problem(seqlens=np.array([15, 25]), seqlens_k=[20, 30])["cu_seqlens_q"] == [0, 15, 40]
    assert problem(scale=np.float32(0.3))["scale"] == float(np.float32(0.3))
    assert problem(causal=True, causal_offset=-3)["causal_offset"] == -3
    report = files.run(*paths, out=tmp_path / "o.npy", memory="16MiB", M=2000, multiple={"q": 16, "k": 2}, threads=1)
    assert report["formula"] == report["moved"]
    for wrong, says in (
        ({"threads": True}, "--threads 'true' is not a whole number"),
        ({"threads": False}, "--threads 'false' is not a whole number"),
        ({"mask": np.ones((40, 50), bool)}, r"mask is an array of bool \[40, 50\]: np.save it"),
    ):
        with pytest.raises(redblue.InvalidProblem, match=says):
            problem(**wrong)


def test_gradients_over_files(qkv, tmp_path):
    (q, k, v), paths = qkv
    do = drawn(2, 40, 8)
    np.save(tmp_path / "do.npy", do)
    out = {name: tmp_path / f"{name}.npy" for name in ("dq", "dk", "dv")}
    files.run(*paths, do=tmp_path / "do.npy", op="backward", out=out, memory="16MiB")
    o, lse = redblue.attention(q, k, v, return_lse=True)
    for name, wanted in zip(("dq", "dk", "dv"), redblue.attention_backward(do, q, k, v, o, lse)):
        np.testing.assert_allclose(np.load(out[name]), wanted, rtol=1e-3, atol=1e-4)


def test_a_run_says_how_far_it_is(qkv, tmp_path, monkeypatch, caplog):
    _, paths = qkv
    monkeypatch.setenv("REDBLUE_PROGRESS_SECONDS", "1e-9")
    with caplog.at_level("INFO", "redblue"):
        files.run(*paths, out=tmp_path / "o.npy", memory="16MiB")
    assert any("%" in message for message in caplog.messages), caplog.messages


def test_what_ends_the_call_ends_the_program(qkv, tmp_path, monkeypatch):
    _, paths = qkv
    before = sorted(os.listdir(tmp_path))
    monkeypatch.setenv("REDBLUE_PROGRESS_SECONDS", "1e-9")

    def interrupt(message):
        raise KeyboardInterrupt

    monkeypatch.setattr(logging.getLogger("redblue"), "info", interrupt)
    with pytest.raises(KeyboardInterrupt):
        files.run(*paths, out=tmp_path / "o.npy", memory="16MiB", M=200)
    assert set(os.listdir(tmp_path)) <= {*before, "o.npy", "o.npy.redblue-partial"}, "what --resume goes on with"
    if (tmp_path / "o.npy").exists():  # the program was faster
        assert np.load(tmp_path / "o.npy").shape == (2, 40, 8)


def test_a_run_that_fails_leaves_no_output_and_says_why(qkv, tmp_path):
    _, paths = qkv
    before = sorted(os.listdir(tmp_path))
    wrong = (
        ({"out": tmp_path / "o.txt"}, "give a .npy file, or .safetensors"),
        ({"out": {}}, "a .npy file for each output"),
        ({"out": tmp_path / "o.npy", "op": "backward"}, "several outputs"),
        ({"out": tmp_path / "o.npy", "raw": "q=x"}, "raw is no option"),
        ({"out": tmp_path / "o.npy", "windows": 3}, "--windows"),
        ({"out": tmp_path / "o.npy", "memory": "some"}, "some"),
        ({"out": tmp_path / "none" / "o.npy"}, "none"),
        ({"out": paths[0]}, "is also an input"),
    )
    for options, says in wrong:
        with pytest.raises(redblue.InvalidProblem, match=says):
            files.run(*paths, **options)
    assert sorted(os.listdir(tmp_path)) == before
    with open(paths[2], "r+b") as file:
        file.truncate(500)
    with pytest.raises(redblue.FileError, match="needs 3200 bytes of data, the file has 372"):
        files.run(*paths, out=tmp_path / "o.npy")
    assert sorted(os.listdir(tmp_path)) == before
