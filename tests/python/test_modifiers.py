"""Bias, ALiBi, softcap, sinks and dropout of `redblue run`, against numpy written from docs/semantics.md alone."""

import numpy as np
import pytest

from dense import Attention, alibi_of, at
from dense import causal as causal_mask
from program import answer, did, needs_program, redblue, refused, solved
from reference.words import Piece

pytestmark = needs_program



def philox(counter, key):
    """Philox4x32-10 (Salmon et al. 2011) on arrays of uint64 that hold 32-bit words."""
    x = [np.broadcast_to(np.uint64(c), np.broadcast_shapes(*(np.shape(c) for c in counter))) for c in counter]
    low, key = np.uint64(0xFFFFFFFF), [np.uint64(k) for k in key]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * x[0], np.uint64(0xCD9E8D57) * x[2]
        x = [(b >> np.uint64(32)) ^ x[1] ^ key[0], b & low, (a >> np.uint64(32)) ^ x[3] ^ key[1], a & low]
        key = [(key[0] + np.uint64(0x9E3779B9)) & low, (key[1] + np.uint64(0xBB67AE85)) & low]
    return x


def kept(shape, share, seed):
    """What dropout multiplies weights [batch, heads, n_q, n_k] with."""
    batch, heads, n_q, n_k = shape
    j = np.arange(n_k)
    head = np.arange(batch * heads).reshape(batch, heads, 1, 1).astype(np.uint64)
    i = np.arange(n_q).reshape(1, 1, n_q, 1).astype(np.uint64)
    words = philox([(j // 4).astype(np.uint64), i, head, 0], [seed, 0])
    word = np.choose(np.broadcast_to(j % 4, shape), [np.broadcast_to(w, shape) for w in words])
    return np.where(word >= int(share * 2**32), 1 / (1 - share), 0.0)


def summed_to(gradient, shape):
    """The gradient of what was broadcast."""
    shape = (1,) * (4 - len(shape)) + tuple(shape)
    return gradient.sum(tuple(a for a in range(4) if shape[a] == 1 < gradient.shape[a]), keepdims=True)


def attention(x, causal, softcap, with_alibi, dropout, seed, left=None):
    """Of a problem that is run with these options."""
    (batch, heads, n_q, _), n_k = x["q"].shape, x["k"].shape[2]
    keep = causal_mask(n_q, n_k) if causal else np.ones((n_q, n_k), bool)
    if left is not None:
        keep = keep & (np.arange(n_k) >= at(n_q, n_k) - left)
    bias = x.get("bias", 0.0) + (alibi_of(heads, n_q, n_k) if with_alibi else 0.0)
    z = kept((batch, heads, n_q, n_k), dropout, seed) if dropout else 1.0
    return Attention(x["q"], x["k"], x["v"], keep, bias=bias, softcap=softcap, sinks=x.get("sinks"), kept=z)


def run_and_report(tmp_path, x, *options):
    return solved(tmp_path, x, "--layout", "bhnd", *options)


def run(tmp_path, x, *options):
    return run_and_report(tmp_path, x, *options)[0]


def close(a, b):
    a, b = np.asarray(a, np.float64).reshape(np.shape(b)), np.asarray(b, np.float64)
    finite = np.isfinite(b)
    assert (a[~finite] == b[~finite]).all()
    assert np.abs(a[finite] - b[finite]).max(initial=0) <= 2e-5 * max(1, np.abs(b[finite]).max(initial=0))


@pytest.mark.parametrize("seed", range(40))
def test_equals_numpy(tmp_path, seed):
    draw = np.random.default_rng(seed)
    batch, kv, group = draw.integers(1, 3, 3)
    heads, n_q, n_k, d, d_v = kv * group, *draw.integers([1, 8, 1, 1], [40, 40, 24, 24])
    normal = lambda *shape: draw.normal(size=shape).astype(np.float32)
    x = {"q": normal(batch, heads, n_q, d), "k": normal(batch, kv, n_k, d), "v": normal(batch, kv, n_k, d_v)}
    yes = lambda: draw.random() < 0.5
    if yes():
        shape = [size if yes() else 1 for size in (batch, heads, n_q, n_k)]
        x["bias"] = normal(*shape[draw.integers(0, 4) if shape[:3] == [1, 1, 1] else 0 :])
    if yes():
        x["sinks"] = normal(heads)
    causal, alibi, softcap, dropout = yes(), yes(), 2.0 if yes() else 0.0, 0.3 if yes() else 0.0
    options = ["--M", 3000, *(["--causal"] if causal else []), *(["--alibi"] if alibi else [])]
    options += ["--softcap", softcap] if softcap else []
    options += ["--dropout", dropout, "--seed", seed] if dropout else []
    wanted = attention(x, causal, softcap, alibi, dropout, seed)
    y = run(tmp_path, x, *options)
    close(y["o"], wanted.o)
    close(y["lse"], wanted.lse)

    x["do"] = normal(batch, heads, n_q, d_v)
    gradients = wanted.gradients(x["do"])
    options += ["--bias-gradient"] if "bias" in x else []
    options += ["--sinks-gradient"] if "sinks" in x else []
    y = run(tmp_path, x, "--op", "backward", *options)
    for name in ("dq", "dk", "dv", *(["dsinks"] if "sinks" in x else [])):
        close(y[name], gradients[name])
    if "bias" in x:
        close(y["dbias"], summed_to(gradients["dbias"], x["bias"].shape))


def test_scores_and_weights_are_the_matrices_inside_attention(tmp_path):
    draw = np.random.default_rng(2)
    shapes = {"q": (2, 4, 9, 5), "k": (2, 2, 12, 5), "v": (2, 2, 12, 3), "bias": (1, 4, 9, 12)}
    x = {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    options = ["--causal", "--softcap", 2.0, "--M", 1000]
    wanted = attention(x, True, 2.0, False, 0.0, 0)
    x["lse"] = run(tmp_path, x, *options)["lse"]
    of = lambda *names: {name: x[name] for name in names}
    close(run(tmp_path, of("q", "k", "bias", "lse"), "--op", "weights", *options)["p"], wanted.p)
    with np.errstate(divide="ignore"):  # -inf where a query does not see the key
        close(run(tmp_path, of("q", "k", "bias"), "--op", "scores", *options)["s"], np.log(wanted.p) + wanted.lse[..., None])


def test_a_number_that_is_0_to_a_computer_is_refused():
    sizes = ["plan", "--n", "8", "--d", "4", "--M", "100"]
    for option in ("--dropout", "--softcap"):
        assert f"{option} 1e-400: this number is too small" in refused(".", *sizes, option, "1e-400")
    for zero in ("0", "0.0", "0e-400"):
        did(*sizes, "--dropout", zero)


def test_plans_take_the_shape_of_a_bias_from_its_file(tmp_path):
    np.save(tmp_path / "b.npy", np.zeros((6, 9), np.float16))
    np.save(tmp_path / "five.npy", np.zeros((1, 1, 1, 6, 9)))
    command = ["plan", "--nq", 6, "--nk", 9, "--heads", 2, "--d", 4, "--M", 200, "--bias"]
    assert answer(*command, tmp_path / "b.npy") == answer(*command, "1,1,6,9")
    assert "[1, 1, 1, 6, 9]: give batch,heads,n_q,n_k" in refused(tmp_path, *command, tmp_path / "five.npy")


def test_a_mask_of_bool_keeps_where_it_is_true(tmp_path):
    draw = np.random.default_rng(1)
    x = {n: draw.normal(size=(2, 3, 20, 8)).astype(np.float32) for n in "qkv"}
    mask = draw.random((2, 1, 20, 20)) < 0.6
    a = run(tmp_path, {**x, "bias": mask}, "--M", 1000)
    b = run(tmp_path, {**x, "bias": np.where(mask, 0, -np.inf).astype(np.float32)}, "--M", 1000)
    assert (a["o"] == b["o"]).all() and (a["lse"] == b["lse"]).all()


def test_a_mask_of_bool_has_no_gradient(tmp_path):
    draw = np.random.default_rng(1)
    x = {n: draw.normal(size=(1, 1, 6, 4)).astype(np.float32) for n in ("q", "k", "v", "do")}
    np.savez(tmp_path / "x.npz", **x, bias=np.ones((1, 1, 6, 6), bool))
    files = ["--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz"]
    command = ["run", "--op", "backward", "--with-forward", "--bias-gradient", "--M", 1000]
    assert "bias is of bool and has no gradient" in refused(tmp_path, *command, *files)


class Boxes(Piece):
    """Where rows of a group, stacked position by position, see the keys lo <= j < hi of rows[row]."""

    def __init__(self, n, group, causal, left):
        lo = lambda i: 0 if left is None else max(0, i - left)
        super().__init__([(lo(r // group), r // group + 1 if causal else n) for r in range(n * group)], n)
        self.group = group

    def of_queries(self, size):
        """Pairs, keys that blocks visit, and blocks."""
        blocks = list(self.blocks(size))
        return sum(n * keys for n, keys in blocks), self.A(size), len(blocks)

    def of_keys(self, size):
        """Pairs of blocks of keys and all rows that see one of them."""
        seeing = lambda j, end: sum(lo < end and hi > j for lo, hi in self.rows)
        ends = ((j, min(j + size, self.k)) for j in range(0, self.k, size))
        return sum(seeing(j, end) * (end - j) for j, end in ends)

    def of_tiles(self, a, b):
        """The smallest boxes around the pairs of each tile."""
        words = 0
        for end in range(self.n, 0, -a):
            rows = self.rows[max(0, end - a) : end]
            for j in range(0, self.k, b):
                met = [(max(lo, j), min(hi, j + b)) for lo, hi in rows if max(lo, j) < min(hi, j + b)]
                if met:
                    words += len(met) * (max(hi for _, hi in met) - min(lo for lo, _ in met))
        return words


def words_of_modifiers(schedule, t, x):
    """Of one group of heads: bias for each pair, bias for each key, slopes, sinks."""
    if schedule == "key_outer":
        return x.of_keys(t["Bc"]), x.k, x.group, x.group
    pairs, visits, blocks = x.of_queries(t[{"naive": "b1", "strips": "a"}.get(schedule, "Br")])
    if schedule == "strips":
        return x.of_tiles(1, x.k), visits, blocks * x.group, blocks * x.group
    if schedule == "naive":
        return x.of_tiles(t["b1"], t["b2"]), visits, blocks * x.group, x.n
    return pairs, visits, blocks * x.group, blocks * x.group


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("schedule", ["ring", "key_outer", "flash_tiled", "naive", "strips"])
def test_a_schedule_equals_numpy_and_its_words_are_those_of_its_boxes(tmp_path, schedule, seed):
    draw = np.random.default_rng([seed, len(schedule)])
    batch, kv, group, n = *draw.integers(1, 3, 3), draw.integers(6, 30)
    heads, d, d_v = kv * group, *draw.integers(1, 12, 2)
    normal = lambda *shape: draw.normal(size=shape).astype(np.float32)
    x = {"q": normal(batch, heads, n, d), "k": normal(batch, kv, n, d), "v": normal(batch, kv, n, d_v)}
    yes = lambda: draw.random() < 0.5
    shared_row = yes()
    x["bias"] = normal(*((1, 1, 1, n) if shared_row else (1, heads, n, n)))
    if yes():
        x["sinks"] = normal(heads)
    alibi, softcap = yes(), 2.0 if yes() else 0.0
    dropout = 0.3 if yes() else 0.0
    causal, left = yes() or schedule == "ring", int(draw.integers(1, 9)) if yes() or schedule == "ring" else None
    options = ["--schedule", schedule, "--M", int(draw.integers(800, 3000)), *(["--causal"] if causal else [])]
    options += ["--window", f"{left},-1"] if left is not None else []
    options += ["--alibi"] if alibi else []
    options += ["--softcap", softcap] if softcap else []
    options += ["--dropout", dropout, "--seed", seed] if dropout else []
    wanted = attention(x, causal, softcap, alibi, dropout, seed, left)
    boxes = Boxes(n, group, causal, left)
    if schedule == "ring":
        x |= {"do": normal(batch, heads, n, d_v), "o": wanted.o.astype(np.float32), "lse": wanted.lse.astype(np.float32)}
        gradients = wanted.gradients(x["do"])
        options += ["--op", "backward", "--bias-gradient", *(["--sinks-gradient"] if "sinks" in x else [])]
        y, report = run_and_report(tmp_path, x, *options)
        for name in ("dq", "dk", "dv", *(["dsinks"] if "sinks" in x else [])):
            close(y[name], gradients[name])
        close(y["dbias"], summed_to(gradients["dbias"], x["bias"].shape))
    else:
        y, report = run_and_report(tmp_path, x, *options)
        close(y["o"], wanted.o)
        close(y["lse"], wanted.lse)
    assert report["schedule"] == schedule
    read = lambda array: report["moved"]["per_array"].get(array, {"reads": 0})["reads"]
    of_pairs, of_keys, slopes, sinks = words_of_modifiers(schedule, report["tiling"], boxes)
    bias = of_keys if shared_row else of_pairs
    more = group if schedule == "ring" else 0  # for dsinks, after the ring
    assert read("bias") == batch * kv * bias
    assert read("slopes") == (batch * kv * slopes if alibi else 0)
    assert read("sinks") == (batch * kv * (sinks + more) if "sinks" in x else 0)
    if schedule == "ring":
        assert read("dBias") == batch * kv * bias


@pytest.mark.parametrize("offset", ["top-left", 3, -2])
def test_alibi_has_an_offset_without_a_mask(tmp_path, offset):
    """It is then the bias that says so."""
    draw = np.random.default_rng(7)
    x = {name: draw.normal(size=(1, 2, n, 4)).astype(np.float32) for name, n in zip("qkv", (5, 9, 9))}
    slopes = np.array([0.5, 0.25], np.float32)
    first = 0 if offset == "top-left" else offset
    distance = np.abs(np.arange(5)[:, None] + first - np.arange(9))
    options = ["--alibi", "--causal-offset", offset, "--M", 500]
    y, report = run_and_report(tmp_path, {**x, "slopes": slopes}, *options)
    assert report["problem"]["causal_offset"] == first
    close(y["o"], run(tmp_path, {**x, "bias": -slopes[:, None, None] * distance.astype(np.float32)}, "--M", 500)["o"])


@pytest.mark.parametrize("index", range(6))
def test_verify_accepts_a_gradient_that_is_0_but_for_roundings(tmp_path, index):
    """Without sinks a bias of one value for all keys has the gradient 0, and o and lse are rounded."""
    rng = np.random.default_rng(index)
    x = {name: rng.normal(size=(2, 2, 40, 8)) for name in ("q", "k", "v", "do")}
    x["bias"] = rng.normal(size=(1, 2, 1, 1) if index % 2 else (1, 2, 40, 1))
    x |= run(tmp_path, x, "--M", 2000)
    g = run(tmp_path, x, "--M", 2000, "--op", "backward", "--bias-gradient", "--verify")
    assert np.abs(g["dbias"]).max() < 1e-12


def test_modifiers_may_be_files_beside_the_input(tmp_path):
    rng = np.random.default_rng(3)
    x = {name: rng.normal(size=(1, 2, 9, 4)) for name in "qkv"}
    more = {"bias": rng.normal(size=(2, 9, 9)), "sinks": rng.normal(size=2)}
    np.savez(tmp_path / "x.npz", **x)
    np.savez(tmp_path / "all.npz", **x, **more)
    for name, array in more.items():
        np.save(tmp_path / f"{name}.npy", array)

    def command(input, output, *names):
        files = [w for name in names for w in (f"--{name}", tmp_path / f"{name}.npy")]
        words = ["--M", "500", "--layout", "bhnd", "--input", tmp_path / input, "--output", tmp_path / output, *files]
        return redblue("run", *words)

    assert command("all.npz", "a.npz").returncode == command("x.npz", "b.npz", *more).returncode == 0
    assert np.array_equal(np.load(tmp_path / "a.npz")["o"], np.load(tmp_path / "b.npz")["o"])
    twice = command("all.npz", "c.npz", "bias")
    assert twice.returncode == 2 and "has a tensor bias, too" in twice.stderr
    assert not (tmp_path / "c.npz").exists()
