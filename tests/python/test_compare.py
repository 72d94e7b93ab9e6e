"""redblue compare: errors, words and times of approximations beside exact attention."""

import csv
import io
import subprocess

import numpy as np
import pytest

import dense
from program import CLI, DATA, answer, did, needs_data, redblue
from safetensors.numpy import save_file


def compared(*arguments):
    return answer("compare", *arguments)


def exact(q, k, v, causal):
    """Attention, and the mean of the values that each query sees."""
    keep = dense.causal(q.shape[2], k.shape[2]) if causal else True
    return tuple(dense.attention(x, k, v, keep)[0] for x in (q, 0 * q))


def errors(o, wanted):
    difference = o - wanted
    frobenius = np.sqrt((difference**2).sum((-1, -2)) / (wanted**2).sum((-1, -2)))
    return frobenius.ravel(), (abs(difference).max((-1, -2)) / abs(wanted).max((-1, -2))).ravel()


@pytest.fixture
def tensors(tmp_path):
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 4, 64, 8), (2, 2, 64, 8), (2, 2, 64, 8)))
    q *= 0.3
    for name, x in (("q", q), ("k", k), ("v", v)):
        np.save(tmp_path / f"{name}.npy", x)
    save_file({"q": q, "k": k, "v": v}, tmp_path / "x.safetensors")
    return tmp_path / "x.safetensors", q, k, v


@pytest.mark.parametrize("causal", [False, True])
def test_errors_and_words_are_those_of_runs(tensors, tmp_path, causal):
    path, q, k, v = tensors
    flags = ["--M", 20000, *(["--causal"] if causal else [])]
    found = compared("--input", path, *flags)
    wanted, mean = exact(q, k, v, causal)
    for shown, expected in zip(([h[e] for h in found["mean_of_values"]] for e in ("frobenius", "max")), errors(mean, wanted)):
        np.testing.assert_allclose(shown, expected, rtol=1e-9)
    ran = 0
    for x in found["methods"]:
        if "refused" in x:
            continue
        files = [w for name in "qkvo" for w in (f"--{name}", tmp_path / f"{name}.npy")]
        report = answer("run", *files, *flags, *x["setting"].split())
        o = np.load(tmp_path / "o.npy")
        frobenius, largest = errors(o, wanted)
        np.testing.assert_allclose([h["frobenius"] for h in x["heads"]], frobenius, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose([h["max"] for h in x["heads"]], largest, rtol=1e-4, atol=1e-6)
        assert [(h["batch"], h["head"]) for h in x["heads"]] == [(b, h) for b in range(2) for h in range(4)]
        lse = report["moved"]["per_array"].get("lse", {"writes": 0})["writes"]
        assert x["io"] == report["moved"]["io"] - lse and x["footprint"] <= 20000 and x["seconds"] > 0
        ran += 1
    assert ran >= (8 if causal else 12) and found["methods"][0]["method"] == "exact" and found["methods"][0]["io_over_exact"] == 1


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_chosen_methods_have_the_errors_of_what_run_writes(tensors, tmp_path, dtype):
    _, q, k, v = tensors
    q, k, v = (x.astype(dtype) for x in (q, k, v))
    for name, x in (("q", q), ("k", k), ("v", v)):
        np.save(tmp_path / f"{name}.npy", x)
    files = [w for name in "qkv" for w in (f"--{name}", tmp_path / f"{name}.npy")]
    chosen = ["--approximate", "performer:16,seed=3", "--approximate", "smyrf:cluster=32"]
    found = compared(*files, "--M", 20000, *chosen)["methods"]
    assert [(x["method"], x["setting"]) for x in found] == [
        ("exact", ""), ("performer", " ".join(chosen[:2])), ("smyrf", " ".join(chosen[2:]))]
    wanted, _ = exact(q, k, v, False)
    for x in found[:2] if dtype == np.float16 else found:
        done = redblue("run", *files, "--o", tmp_path / "o.npy", "--M", 20000, *x["setting"].split())
        if done.returncode == 2 and x["method"] == "smyrf":  # heads that share keys
            assert "keys and values of its own" in x["refused"]
            continue
        assert done.returncode == 0, done.stderr
        o = np.load(tmp_path / "o.npy")
        assert o.dtype == dtype
        frobenius, _ = errors(o, wanted)
        np.testing.assert_allclose([h["frobenius"] for h in x["heads"]], frobenius, rtol=1e-3, atol=1e-15)
    if dtype == np.float16:
        assert min(h["frobenius"] for h in found[0]["heads"]) > 1e-5  # those of the numbers of f16


def test_table_and_csv_have_the_heads(tensors):
    path, *_ = tensors
    found = compared("--input", path, "--M", 20000)
    rows = list(csv.DictReader(io.StringIO(did("compare", "--format", "csv", "--input", path, "--M", 20000))))
    run = [x for x in found["methods"] if "heads" in x]
    assert len(rows) == 8 * (len(run) + 1) + len(found["methods"]) - len(run)
    by_method = {(r["method"], r["setting"], r["head"], r["batch"]): r for r in rows}
    for x in run:
        for h in x["heads"]:
            row = by_method[x["method"], x["setting"], str(h["head"]), str(h["batch"])]
            assert float(row["frobenius"]) == pytest.approx(h["frobenius"], rel=1e-5)
            assert (row["io"], row["schedule"]) == (str(x["io"]), x["schedule"])
    table = did("compare", "--input", path, "--M", 20000, "--per-head")
    assert table.count("head 1.3") == len(run) + 1
    for x in run:
        largest = max(x["heads"], key=lambda h: h["frobenius"])
        assert f"{largest['frobenius']:.3g} ({largest['batch']}.{largest['head']})" in table


# medians over heads of the Frobenius error, layers 0 and 5, of methods without random numbers; from other programs
PUBLISHED = {
    "--approximate 2:12,centred,no-exact-rows": (0.438, 0.725),
    "--approximate 2:64,gaussian,no-exact-rows": (0.120, 0.400),
    "--approximate 2:1,gaussian": (0.046, 0.051),
    "--approximate linear": (0.483, 0.782),
    "--approximate linformer:64": (0.368, 0.695),
    "--approximate linformer:256": (0.246, 0.534),
    "--approximate nystroem:16": (0.380, 0.402),
    "--approximate nystroem:64": (0.256, 0.349),
    "--window 32,32 --globals 1": (0.578, 1.033),
    "--window 64,64 --globals 16": (0.413, 0.780),
}


@needs_data
@pytest.mark.parametrize(("layer", "column", "mean"), [(0, 0, 0.506), (5, 1, 0.831)])
def test_medians_on_real_heads_are_those_of_the_published_table(layer, column, mean):
    found = compared("--input", DATA / f"minilm-layer{layer}.safetensors", "--M", 40000, "--repetitions", 1)
    median = lambda heads: np.median([h["frobenius"] for h in heads])
    assert median(found["mean_of_values"]) == pytest.approx(mean, abs=6e-4)
    shown = {x["setting"]: median(x["heads"]) for x in found["methods"] if "heads" in x}
    for setting, wanted in PUBLISHED.items():
        assert shown[setting] == pytest.approx(wanted[column], abs=6e-4), setting


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give the tensors q, k and v"),
        (["--input", "X", "--q", "Y"], "give the tensors q, k and v"),
        (["--input", "X", "--M", 2], "M = 2 words is too small"),
        (["--input", "X"], "--M"),
        (["--input", "X", "--M", 500, "--repetitions", 0], "repetitions = 0"),
        (["--input", "X", "--M", 500, "--approximate", "performr:8"], "approximation performr:8: give performer:FEATURES[,seed=N]"),
        (["--input", "X", "--M", 500, "--approximate", "linformer:65"], "linformer:65: method: rank = 65: give a number from 1 to 64"),
        (["--input", "X", "--M", 500, "--compute-dtype", "f16"], "f16"),
        (["--input", "missing.safetensors", "--M", 500], "missing.safetensors"),
        (["--input", "X", "--M", 500, "--name", "foo=q"], "--name foo=q: give TENSOR=NAME with TENSOR one of q, k, v"),
    ],
)
def test_bad_input_is_refused(tensors, options, message):
    done = redblue("compare", *(tensors[0] if x == "X" else x for x in options))
    assert done.returncode == 2 and message in done.stderr and done.stdout == "", done


def test_a_NaN_is_refused(tmp_path):
    x = np.ones((1, 1, 8, 4), np.float32)
    bad = x.copy()
    bad[0, 0, 3, 1] = np.nan
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", bad if name == "k" else x)
    done = redblue("compare", *(w for n in "qkv" for w in (f"--{n}", tmp_path / f"{n}.npy")), "--M", 500)
    assert done.returncode == 2 and "k has" in done.stderr and "row 3" in done.stderr


RANDOM = ["performer:16,seed=5", "linformer:8,signs", "smyrf:cluster=16", "hyper:block=16,samples=16", "reformer:chunk=16,buckets=4",
          "coreset:block=32,rank=8", "sample:16", "2:1.5,gaussian,cluster=16,no-exact-rows"]


def test_several_seeds_are_runs_with_each(tmp_path):
    """Errors are their mean and their largest; words and footprint those of the first."""
    rng = np.random.default_rng(6)
    save_file({name: rng.standard_normal((2, 2, 64, 8)).astype(np.float32) for name in "qkv"}, tmp_path / "x.safetensors")
    ask = lambda methods, *more: compared("--input", tmp_path / "x.safetensors", "--M", 20000, *more,
                                          *(w for m in methods for w in ("--approximate", m)))["methods"]  # fmt: skip
    steady = ["linear", "linformer:8", "2:6,rows"]
    found = ask([*RANDOM, *steady], "--seeds", 3)
    assert [x["seeds"] for x in found] == [1] + len(RANDOM) * [3] + 3 * [1]
    bare = [m.removesuffix(",seed=5") for m in RANDOM]
    each = [ask([f"{m},seed={seed + 5 * (m == 'performer:16')}" for m in bare])[1:] for seed in range(3)]
    for k, x in enumerate(found[1 : len(RANDOM) + 1]):
        assert x["io"] == each[0][k]["io"] and x["footprint"] == each[0][k]["footprint"]
        for name in ("frobenius", "max"):
            alone = np.array([[h[name] for h in runs[k]["heads"]] for runs in each])
            assert len(np.unique(alone[:, 0])) == 3  # they do differ
            np.testing.assert_allclose([h[name] for h in x["heads"]], alone.mean(0), rtol=1e-9)
            np.testing.assert_allclose([h[f"{name}_worst"] for h in x["heads"]], alone.max(0), rtol=1e-9)
    for x in found[:1] + found[len(RANDOM) + 1 :]:
        assert all(h["frobenius"] == h["frobenius_worst"] and h["max"] == h["max_worst"] for h in x["heads"])


def test_random_blocks_have_seeds_too(tensors):
    path, *_ = tensors
    ask = lambda *more: next(x for x in compared("--input", path, "--M", 20000, *more)["methods"] if x["method"] == "bigbird")
    one, two = ask(), ask("--seeds", 2)
    assert (one["seeds"], two["seeds"], two["io"]) == (1, 2, one["io"])
    for a, b in zip(one["heads"], two["heads"], strict=True):
        other = 2 * b["frobenius"] - a["frobenius"]  # of the second seed
        assert other != pytest.approx(a["frobenius"]) and b["frobenius_worst"] == pytest.approx(max(a["frobenius"], other))


def test_padded_keys_are_no_keys(tensors, tmp_path):
    """What stands behind the lengths is not looked at; methods that know no lengths are refused."""
    _, q, k, v = tensors
    lengths = (40, 64)
    for x in (k, v):
        x[0, :, 40:] = 7
    save_file({"q": q, "k": k, "v": v}, tmp_path / "p.safetensors")
    found = compared("--input", tmp_path / "p.safetensors", "--M", 20000, "--seqused-k", ",".join(map(str, lengths)))
    run = {x["setting"]: x for x in found["methods"] if "heads" in x}
    assert max(h["frobenius"] for h in run[""]["heads"]) < 1e-6
    assert {x["method"] for x in run.values()} >= {"exact", "linear", "performer", "longformer", "bigbird"}
    smyrf = [x["refused"] for x in found["methods"] if x["method"] == "smyrf"]
    assert all("knows no packed or padded sequences" in why or "keys and values of its own" in why for why in smyrf)
    by_batch = [exact(q[b : b + 1], k[b : b + 1, :, :n], v[b : b + 1, :, :n], False) for b, n in enumerate(lengths)]
    wanted, mean = (np.concatenate(x) for x in zip(*by_batch))
    np.testing.assert_allclose([h["frobenius"] for h in found["mean_of_values"]], errors(mean, wanted)[0], rtol=1e-9)
    q, k = (np.where(x > 0, x, np.expm1(x)) + 1 for x in (q.astype(float), k.astype(float).repeat(2, 1)))  # elu + 1
    w = q @ k.swapaxes(-1, -2) * (np.arange(64) < np.array(lengths)[:, None])[:, None, None]
    linear = w @ v.astype(float).repeat(2, 1) / w.sum(-1, keepdims=True)
    np.testing.assert_allclose([h["frobenius"] for h in run["--approximate linear"]["heads"]], errors(linear, wanted)[0], rtol=1e-4)


@pytest.mark.parametrize(("n_q", "n_k"), [(1, 1), (2, 2), (48, 48), (3, 100), (100, 5)])
def test_all_methods_run_on_short_sequences(tmp_path, n_q, n_k):
    """Reformer alone needs a key for each query."""
    rng = np.random.default_rng(8)
    sizes = {"q": n_q, "k": n_k, "v": n_k}
    save_file({name: 0.3 * rng.standard_normal((1, 2, n, 8)).astype(np.float32) for name, n in sizes.items()}, tmp_path / "x.safetensors")
    found = compared("--input", tmp_path / "x.safetensors", "--layout", "bhnd", "--M", 100000, "--repetitions", 1)["methods"]
    settings = [x["setting"] for x in found]
    assert len(settings) == len(set(settings))
    assert {x["method"] for x in found if "refused" in x} == (set() if n_q == n_k else {"reformer"})
    assert {"sample", "linformer", "nystroemformer", "smyrf", "hyper_attention", "coreset"} <= {x["method"] for x in found if "heads" in x}
    if n_k > 16:
        assert f"--approximate smyrf:rounds=4,cluster={min(64, n_k)}" in settings


def test_what_takes_far_more_work_than_exact_attention_runs_only_by_its_name(tmp_path):
    """Degree 4 at d = 64 has 814,385 monomials."""
    rng = np.random.default_rng(7)
    save_file({name: 0.3 * rng.standard_normal((1, 2, 48, 64)).astype(np.float32) for name in "qkv"}, tmp_path / "x.safetensors")
    flags = ["--input", tmp_path / "x.safetensors", "--M", 16384, "--repetitions", 1, "--threads", 1]
    found = {x["setting"]: x for x in compared(*flags)["methods"]}
    [left_out] = [x for setting, x in found.items() if setting.startswith("--approximate 4:")]
    assert "heads" not in left_out and "1.02e+10 multiply-adds, 1.72e+04 times as many as exact attention" in left_out["refused"]
    assert left_out["refused"].endswith(f"methods that are named always run: compare with {left_out['setting']}")
    assert all("heads" in x for setting, x in found.items() if setting.startswith(("--approximate 2:1.", "--approximate 3:")) and "gaussian" not in setting)
    assert f"not run: {left_out['refused']}" in redblue("compare", *flags, "--all").stdout
    [line] = [line for line in redblue("compare", *flags).stdout.splitlines() if "not run" in line]
    assert line.startswith("not run, for M is too small or for another reason that --all gives: polynomial (")
    lines = csv.DictReader(io.StringIO(redblue("compare", *flags, "--format", "csv").stdout))
    assert [row["refused"] for row in lines if row["setting"] == left_out["setting"]] == [left_out["refused"]]
    with pytest.raises(subprocess.TimeoutExpired):  # it runs
        subprocess.run([CLI, "compare", *map(str, flags), "--approximate", "4:1"], capture_output=True, timeout=2)


def test_seeds_out_of_range_are_refused(tensors):
    done = redblue("compare", "--input", tensors[0], "--M", 500, "--seeds", 0)
    assert done.returncode == 2 and "seeds = 0: give a number from 1 to 1000" in done.stderr


def test_a_row_that_is_no_number_shows(tmp_path):
    """Of finite inputs: scores of 1e0, but monomials that overflow."""
    rng = np.random.default_rng(3)
    q, k, v = (0.3 * rng.standard_normal((1, 2, 9, 4)).astype(np.float32) for _ in range(3))
    k *= 1e-12
    q[0, 1, 3] *= 1e12
    save_file({"q": q, "k": k, "v": v}, tmp_path / "x.safetensors")
    options = ["--M", 20000, "--repetitions", 1, "--approximate", "4:1", "--format", "csv"]
    text = did("compare", "--input", tmp_path / "x.safetensors", *options)
    heads = [row for row in csv.DictReader(io.StringIO(text)) if row["method"].startswith("polynomial")]
    assert [np.isfinite(float(row["max"])) for row in heads] == [True, False]


@pytest.mark.parametrize("size", [1e-170, 1e170])
def test_errors_of_tiny_and_of_huge_values(tmp_path, size):
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal((1, 1, 32, 4)) for _ in range(3))
    values = {}
    for scale in (1.0, size):
        save_file({"q": q, "k": k, "v": scale * v}, tmp_path / "x.safetensors")
        [method] = [
            m
            for m in compared("--input", tmp_path / "x.safetensors", "--M", 20000, "--repetitions", 1, "--approximate", "linear")["methods"]
            if m["method"].startswith("linear")
        ]
        values[scale] = method["heads"][0]["frobenius"]
    assert values[1.0] > 0.01
    np.testing.assert_allclose(values[size], values[1.0], rtol=1e-12)
