"""Certificates of polynomial attention: written by the program, checked again by scripts/check_certificate.py, which
must refuse every field that was changed."""

import copy
import importlib.util
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from program import DATA, ROOT, did, needs_data, needs_program, redblue

SCRIPT = ROOT / "scripts" / "check_certificate.py"
spec = importlib.util.spec_from_file_location("check_certificate", SCRIPT)
script = importlib.util.module_from_spec(spec)
sys.path.insert(0, str(SCRIPT.parent))  # its other files
spec.loader.exec_module(script)

pytestmark = needs_program


def certified(folder, tensors, tolerance, *options, M="700", verified=True, approximate="3:1"):
    """The report, the certificate, and o."""
    source, target, certificate = folder / "x.safetensors", folder / "y.safetensors", folder / "c.json"
    save_file(tensors, source)
    command = ["run", "--M", M, "--input", source, "--output", target, "--json", "--verify", *options]
    asked = ["--tolerance", tolerance] if tolerance else ["--approximate", approximate]
    done = redblue(*command, *asked, "--certificate", certificate)
    assert done.returncode == 0 or not verified, done.stderr + done.stdout
    return json.loads(done.stdout), json.loads(certificate.read_text()), load_file(target)["o"]


def checked(*words, **options):
    """What the script says as a program."""
    command = [sys.executable, SCRIPT, *words]
    return subprocess.run(command, **{"capture_output": True, "text": True, **options})


def tensors_of(seed, batch=1, heads=2, kv_heads=2, n_q=160, n_k=170, d=3, d_v=3, size=0.25, dtype=np.float32):
    random = np.random.default_rng(seed)
    shapes = {"q": (batch, heads, n_q, d), "k": (batch, kv_heads, n_k, d), "v": (batch, kv_heads, n_k, d_v)}
    return {name: (random.standard_normal(shape) * size).astype(dtype) for name, shape in shapes.items()}


def wide(tensors, o):
    return [x.astype(np.float64) for x in (*(tensors[n] for n in "qkv"), o)]


@pytest.mark.parametrize("tolerance", [1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize("options", [(), ("--causal",), ("--causal", "--causal-offset", "0"), ("--scale", "-0.3")])
@pytest.mark.parametrize("shape", [{}, {"heads": 4, "batch": 2}, {"n_q": 190, "n_k": 400, "d": 1, "dtype": np.float64}])
def test_holds(shape, options, tolerance, tmp_path):
    tensors = tensors_of(1, **shape)
    report, certificate, o = certified(tmp_path, tensors, tolerance, *options)
    assert certificate["method"] == "polynomial", report["tolerance"]["reason"]
    assert certificate["output_error"] <= tolerance
    assert report["certificate"]["verify"]["ok"]
    assert report["tolerance"]["polynomial_words"] < report["tolerance"]["exact_words"]
    script.check(certificate, *wide(tensors, o))


def extreme(name):
    """Tensors whose scores keep to 1, and that are hard in some way."""
    x = tensors_of(7, n_q=9, n_k=11, heads=4, kv_heads=2, d=2, d_v=2)
    x["q"], x["k"] = (t / np.linalg.norm(t, axis=-1).max() for t in (x["q"], x["k"]))
    if name == "large keys":
        x["k"], x["q"] = x["k"] * 1e8, x["q"] * 1e-8
    elif name == "tiny values":
        x["v"] = x["v"] * 1e-7  # below the least normal number of f16
    elif name == "largest values":
        x["v"] = np.where(x["v"] > 0, 65504.0, -65504.0)
    elif name == "duplicated keys":
        x["k"][:] = x["k"][:, :, :1]
    elif name == "dominant key":
        x["k"][:, :, 1:] *= 1e-6
    elif name == "zero rows":
        x["q"][:, :, ::2], x["k"][:, :, ::3], x["v"][:, 1] = 0, 0, 0
    elif name == "one key":
        x["k"], x["v"] = x["k"][:, :, :1], x["v"][:, :, :1]
    elif name == "one coordinate":
        x = {n: np.ascontiguousarray(t[..., :1]) for n, t in x.items()}
    return x


@pytest.mark.parametrize("options", [(), ("--causal",), ("--scale", "0"), ("--scale", "-0.5")])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("name", ["large keys", "tiny values", "largest values", "duplicated keys", "dominant key",
                                  "zero rows", "one key", "one coordinate"])
def test_extremes(name, dtype, options, tmp_path):
    with np.errstate(over="ignore"):
        tensors = {n: t.astype(dtype) for n, t in extreme(name).items()}
    if not all(np.isfinite(t).all() for t in tensors.values()):
        pytest.skip("beyond the numbers of this type")
    # --verify compares o with the polynomial, too, in units of o itself: the steps of f16 near 0 are too wide for that.
    verified = name != "tiny values" or dtype != np.float16
    report, certificate, o = certified(tmp_path, tensors, None, *options, verified=verified)
    assert report["certificate"]["verify"]["ok"]
    assert certificate["method"] == "polynomial" and certificate["output_error"] < 0.05
    script.check(certificate, *wide(tensors, o))
    if name != "largest values" or dtype != np.float16:  # there a rounded mean may be beyond the largest number
        assert all(head["rounding"] is not None for head in certificate["per_head"])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("common", [1e2, 1e4, 3e5])
def test_centred_keys_with_a_large_common_part(common, dtype, tmp_path):
    """The mean is off by a share of the common part, which the rest of the keys must not notice."""
    tensors = tensors_of(5, n_q=40, n_k=50, d=2, d_v=2, dtype=dtype)
    tensors["k"] = (tensors["k"] + common).astype(dtype)
    tensors["q"] = (tensors["q"] / 4).astype(dtype)
    if dtype == np.float64:
        tensors["k"][:, :, ::2] = tensors["k"][:, :, :1]
    _, certificate, o = certified(tmp_path, tensors, None, M="400", approximate="2:1,centred")
    script.check(certificate, *wide(tensors, o))


def tiny_keys(name):
    tensors = tensors_of(1, n_q=20, n_k=20, d=2, d_v=2, heads=1, kv_heads=1, size=1, dtype=np.float64)
    if name == "denormal":
        return tensors | {"k": np.full_like(tensors["k"], 5e-324)}
    return tensors | {"k": 5 + float(name) * tensors["k"]}


@pytest.mark.parametrize("spread", ["1e-6", "1e-7", "1e-9", "1e-12", "0"])
def test_centred_keys_with_hardly_any_spread(spread, tmp_path):
    """The mean as redblue finds it is rounded, and lengths from it are no more exact than that."""
    tensors = tiny_keys(spread)
    _, certificate, o = certified(tmp_path, tensors, None, M="400", approximate="2:1,centred")
    script.check(certificate, *wide(tensors, o))
    head = certificate["per_head"][0]
    for factor in (1 - 2**-41, 1 + 2**-41):  # of what may go to roundings, one more than the script takes
        longest = head["longest"] + (factor - 1) * head["largest_k"]
        changed = certificate | {"per_head": [head | {"longest": longest}]}
        with pytest.raises(ValueError, match="longest"):
            script.check(changed, *wide(tensors, o))


@pytest.mark.parametrize("ways", ["2:1", "2:1,rows", "2:1,centred"])
def test_keys_next_to_0(ways, tmp_path):
    """Numbers that are rounded up to the next one are twice as large there."""
    tensors = tiny_keys("denormal")
    _, certificate, o = certified(tmp_path, tensors, None, M="400", approximate=ways)
    assert certificate["per_head"][0]["largest_k"] > 5e-324
    script.check(certificate, *wide(tensors, o))


@pytest.mark.parametrize("keys", [[-1.0819767068693265], [-1.3819767068693265, -0.7819767068693265]])
def test_nothing_is_proved_where_weights_may_add_up_to_nothing(keys, tmp_path):
    column = lambda *x: np.array(x).reshape(1, 1, -1, 1)
    tensors = {"q": column(1.0), "k": column(*keys), "v": column(*(3.0 for _ in keys))}
    _, certificate, o = certified(tmp_path, tensors, None, "--scale", "1", verified=False, approximate="1:0.5")
    assert certificate["output_error"] is None and certificate["per_head"][0]["output_error"] is None
    with pytest.raises(ValueError, match="proves nothing"):
        script.check(certificate, *wide(tensors, o))


@pytest.mark.parametrize("range_", [7.2, 8.1])
def test_high_degrees_for_wide_ranges(range_, tmp_path):
    tensors = tensors_of(6, heads=1, kv_heads=1, n_q=300, n_k=300, d=1, d_v=2, dtype=np.float64)
    longest = [np.abs(tensors[name]).max() for name in "qk"]
    tensors["q"] *= range_ / (longest[0] * longest[1])
    _, certificate, o = certified(tmp_path, tensors, 1e-2, M="60")
    assert certificate["method"] == "polynomial" and certificate["degree"] >= 10
    script.check(certificate, *wide(tensors, o))
    low = dict(certificate, per_head=[h | {"weight_error": h["weight_error"] * 0.99} for h in certificate["per_head"]])
    with pytest.raises(ValueError, match="weight_error"):
        script.check(low, *wide(tensors, o))


def by_rows(folder, seed, ways, *options, M="700", **of_tensors):
    """Queries of very different lengths, and keys that all point one way."""
    tensors = tensors_of(seed, **{"n_q": 40, "n_k": 50} | of_tensors)
    random = np.random.default_rng(seed)
    lengths = np.exp(random.standard_normal((*tensors["q"].shape[:-1], 1)))
    tensors["q"] = (tensors["q"] * 4 * lengths).astype(tensors["q"].dtype)
    tensors["k"] += 1
    return tensors, *certified(folder, tensors, None, *options, M=M, approximate=ways)


@pytest.mark.parametrize("ways", ["3:2,rows", "2:1.5,centred", "2:1,exact-keys=5", "3:2,centred,exact-keys=8",
                                  "2:1,exact-keys=500", "1:0.1,rows", "2:9,no-exact-rows"])
@pytest.mark.parametrize("shape", [{}, {"heads": 4, "dtype": np.float64}])
def test_rows_hold(ways, shape, tmp_path):
    M = "900" if "500" in ways else "400"
    if ways == "2:9,no-exact-rows":
        _, report, certificate, _ = by_rows(tmp_path, 11, ways, M=M, **shape)
        assert report["certificate"]["verify"]["ok"] and certificate["output_error"] is None
        return
    tensors, report, certificate, o = by_rows(tmp_path, 11, ways, M=M, **shape)
    assert report["certificate"]["verify"]["ok"] and certificate["method"] == "polynomial rows"
    exact = sum(head["exact_rows"] for head in certificate["per_head"])
    assert report["decisions"]["worst"] == exact
    assert (exact in (0, report["decisions"]["asked"])) == (ways in ("2:1,exact-keys=500", "1:0.1,rows"))
    assert "keeps" in script.check(certificate, *wide(tensors, o))


@pytest.mark.parametrize("options", [("--causal",), ("--causal", "--causal-offset", "-7"),
                                     ("--causal", "--causal-offset", "49")])
@pytest.mark.parametrize("ways", ["3:2,rows", "2:1.5,centred", "3:2,centred,exact-keys=8"])
@pytest.mark.parametrize("shape", [{}, {"heads": 4, "dtype": np.float64}])
def test_rows_hold_under_a_causal_mask(ways, shape, options, tmp_path):
    """A row reads the keys that it sees only, so that fewer rows may be exact than the lengths of all keys say."""
    tensors, report, certificate, o = by_rows(tmp_path, 11, ways, *options, M="400", **shape)
    assert report["certificate"]["verify"]["ok"] and certificate["method"] == "polynomial rows"
    exact = sum(head["exact_rows"] for head in certificate["per_head"])
    assert 0 < report["decisions"]["worst"] <= exact
    if "49" in options:  # it hides nothing
        assert report["decisions"]["worst"] == exact
    assert "keeps" in script.check(certificate, *wide(tensors, o))
    for head in certificate["per_head"]:  # keys that no row sees are no reason for what is proved of those that it does
        lower = copy.deepcopy(certificate)
        lower["per_head"][certificate["per_head"].index(head)]["longest"] *= 0.999
        with pytest.raises(ValueError, match="longest"):
            script.check(lower, *wide(tensors, o))


def test_rows_under_other_masks_are_not_checked(tmp_path):
    tensors, _, certificate, o = by_rows(tmp_path, 11, "3:2,rows", "--causal", "--prefix", "20", M="400")
    assert certificate["mask"] == "other"
    with pytest.raises(ValueError, match="without a mask and under a causal one only"):
        script.check(certificate, *wide(tensors, o))


@pytest.mark.parametrize("rows", ["", ",rows", ",centred,exact-keys=5"])
@pytest.mark.parametrize("degree", [2, 4])
def test_proves_the_error_of_the_coefficients_that_are_used(degree, rows, tmp_path):
    """Of Taylor and Chebyshev series, too: each is further off than the next, and no bound is another one's."""
    tensors = tensors_of(12, n_q=40, n_k=50)
    for x in (tensors["q"], tensors["k"]):
        x /= np.linalg.norm(x, axis=-1).max(-1)[..., None, None]
    proved, used = [], []
    for fit in ("taylor", "chebyshev", "minimax"):
        report, c, o = certified(tmp_path, tensors, None, "--scale", "0.9", M="400", approximate=f"{degree}:1,{fit}{rows}")
        assert report["certificate"]["verify"]["ok"] and report["problem"]["approximation"]["fit"] == fit
        assert "keeps" in script.check(c, *wide(tensors, o))
        used.append(c["coefficients"] if rows else [c["coefficients"]])
        proved.append(max(h["weight_error"] for h in c["per_head"]))
        if fit == "taylor":
            assert all(p == pytest.approx([1 / math.factorial(l) for l in range(degree + 1)], rel=1e-15) for p in used[0])
            taylor, taylor_o = c, o
    assert used[0] != used[1] != used[2] and proved[0] > 1.2 * proved[1] > 1.2 * proved[2]
    with pytest.raises(ValueError, match="weight_error"):  # those of Taylor, with the bound of the minimax ones
        heads = [h | {"weight_error": proved[2]} for h in taylor["per_head"]]
        script.check(taylor | {"per_head": heads}, *wide(tensors, taylor_o))


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("options", [("--causal",), ()])
def test_refuses_every_changed_number(options, rows, tmp_path):
    if rows:
        tensors, _, certificate, o = by_rows(tmp_path, 2, "2:1,centred,exact-keys=5", *options, n_q=50)
    else:
        tensors = tensors_of(2, heads=4)
        _, certificate, o = certified(tmp_path, tensors, 1e-2, *options)
    arrays = wide(tensors, o)
    script.check(certificate, *arrays)

    def places(node, path=()):
        if isinstance(node, (dict, list)):
            for key, value in node.items() if isinstance(node, dict) else enumerate(node):
                yield from places(value, (*path, key))
        else:
            yield path

    tried = 0
    for path in places(certificate):
        if "rows" in certificate and path[0] == "coefficients" and path[1] + 1 < len(certificate["coefficients"]):
            continue  # those of short rows may be further off without harm
        if path == ("tolerance",) and certificate["tolerance"] is None:
            continue
        for change in (lambda x: x * 1.2 + (x == 0), lambda x: x * 0.8 - 1e-3):
            tampered = copy.deepcopy(certificate)
            node = tampered
            for key in path[:-1]:
                node = node[key]
            old = node[path[-1]]
            new = old + "x" if isinstance(old, str) else change(old)
            if isinstance(old, bool):
                new = not old
            elif isinstance(old, int):
                new = int(new) if int(new) != old else old + 1
            if path == ("tolerance",):  # one that is still kept is no lie
                new = certificate["output_error"] * 0.99
            node[path[-1]] = new
            with pytest.raises((ValueError, KeyError, TypeError, ArithmeticError)):
                script.check(tampered, *arrays)
                print("accepted:", path, old, new)
            tried += 1
    assert tried > 80


@pytest.mark.parametrize("tolerance", [math.nan, math.inf, 0.0, -1e-2, 1.0, "x", True])
def test_refuses_a_tolerance_that_is_none_also_of_exact_attention(tolerance, tmp_path):
    tensors = tensors_of(2, n_q=20, n_k=20, size=9.0)
    _, certificate, o = certified(tmp_path, tensors, 1e-3)
    assert certificate["method"] == "exact"
    script.check(certificate, *wide(tensors, o))
    with pytest.raises(ValueError, match="tolerance"):
        script.check(certificate | {"tolerance": tolerance}, *wide(tensors, o))


def test_reads_bf16(tmp_path):
    """The bits of bf16 are the upper half of those of f32."""
    tensors = {n: (t.view(np.uint32) & 0xFFFF0000).view(np.float32) for n, t in tensors_of(4).items()}
    certified(tmp_path, tensors, 1e-2)
    raw, entries = b"", {}
    for name, t in tensors.items():
        data = (t.view(np.uint32) >> 16).astype("<u2").tobytes()
        entries[name] = {"dtype": "BF16", "shape": t.shape, "data_offsets": [len(raw), len(raw) + len(data)]}
        raw += data
    header = json.dumps(entries).encode()
    (tmp_path / "b.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + raw)
    files = ["--input", tmp_path / "b.safetensors", "--output", tmp_path / "y.safetensors"]
    did("run", "--M", 700, *files, "--quiet", "--tolerance", 1e-2, "--certificate", tmp_path / "c.json")
    done = checked(tmp_path / "c.json", tmp_path / "b.safetensors", "--output", tmp_path / "y.safetensors")
    assert done.returncode == 0 and "keeps" in done.stdout, done.stderr
    assert json.loads((tmp_path / "c.json").read_text())["output_dtype"] == "bf16"


def test_refuses_other_data(tmp_path):
    tensors = tensors_of(3)
    _, certificate, o = certified(tmp_path, tensors, 1e-2)
    assert certificate["method"] == "polynomial"
    for which in range(4):
        arrays = wide(tensors, o)
        script.check(certificate, *arrays)
        arrays[which][0, 1, 5, 1] += 3
        with pytest.raises(ValueError):
            script.check(certificate, *arrays)


@pytest.mark.parametrize("approximate", ["4:1", "6:2,rows"])
def test_outputs_that_are_not_finite_do_not_pass(approximate, tmp_path):
    """Scores are small, but monomials of the keys exceed f32."""
    tensors = tensors_of(6, n_q=9, n_k=11, d=4)
    tensors["q"], tensors["k"] = tensors["q"] * np.float32(1e-12), tensors["k"] * np.float32(1e12)
    files = [tmp_path / name for name in ("x.safetensors", "y.safetensors", "c.json")]
    save_file(tensors, files[0])
    command = ["run", "--M", 10000, "--input", files[0], "--output", files[1], "--approximate", approximate]
    for more in ([], ["--certificate", files[2]]):
        done = redblue(*command, "--quiet", *more)
        assert done.returncode == 1 and "o has a NaN at [0, 0, 0, 0], though all inputs are finite" in done.stderr
        assert not np.isfinite(load_file(files[1])["o"]).all()
    assert "nothing is proved of roundings" in redblue(*command, "--certificate", files[2]).stdout
    assert checked(files[2], files[0]).returncode == 0
    done = checked(files[2], files[0], "--output", files[1])
    assert done.returncode == 1 and "o has entries that are not finite, where v is finite" in done.stderr
    done = redblue(*command, "--quiet", "--compute-dtype", "f64")
    assert done.returncode == 0 and done.stderr == "" and np.isfinite(load_file(files[1])["o"]).all()


def test_inputs_that_are_not_finite_may_have_such_outputs(tmp_path):
    tensors = tensors_of(6, n_q=9, n_k=11)
    tensors["v"][0, 1, 3, 2] = np.inf
    save_file(tensors, tmp_path / "x.safetensors")
    files = ["--input", tmp_path / "x.safetensors", "--output", tmp_path / "y.safetensors"]
    did("run", "--M", 700, *files, "--approximate", "2:1")
    assert not np.isfinite(load_file(tmp_path / "y.safetensors")["o"]).all()


def test_is_a_program(tmp_path):
    certified(tmp_path, tensors_of(4), 1e-2)
    files = [tmp_path / "c.json", tmp_path / "x.safetensors"]
    done = checked(*files, "--output", tmp_path / "y.safetensors")
    assert done.returncode == 0 and done.stdout.startswith("ok"), done.stderr
    text = (tmp_path / "c.json").read_text()
    (tmp_path / "c.json").write_text(text.replace('"degree": ', '"degree": 1'))
    done = checked(*files)
    assert done.returncode != 0 and done.stderr.startswith("REFUSED"), done.stderr


def without_polynomial(certificate):
    bare = {n: x for n, x in certificate.items() if n not in ("degree", "coefficients", "output_error")}
    kept = ("batch", "head", "largest_q", "largest_k", "largest_v", "spread", "range")
    return bare | {"method": "exact", "per_head": [{n: h[n] for n in kept} for h in certificate["per_head"]]}


def test_does_not_say_that_o_keeps_to_what_is_not_checked(tmp_path):
    tensors = tensors_of(6)
    _, certificate, o = certified(tmp_path, tensors, 1e-2)
    arrays = wide(tensors, o)
    assert "keeps" in script.check(certificate, *arrays)
    assert script.check(certificate, *arrays[:3]) == ""
    with pytest.raises(ValueError, match="method"):
        script.check(certificate | {"method": "exact"}, *arrays)
    with pytest.raises(ValueError, match="method"):
        script.check(without_polynomial(certificate) | {"method": "polynomial"}, *arrays)
    assert "o not checked" in script.check(without_polynomial(certificate), *arrays)


def test_says_where_nothing_is_proved_of_o(tmp_path, monkeypatch):
    """Whether roundings are bounded is computed from the tensors; here nothing is."""
    tensors = tensors_of(6)
    _, certificate, o = certified(tmp_path, tensors, 1e-2)
    monkeypatch.setattr(script, "rounding", lambda *_, **__: None)
    certificate["per_head"] = [h | {"rounding": None} for h in certificate["per_head"]]
    assert "nothing is proved of o" in script.check(certificate, *wide(tensors, o))


@pytest.mark.parametrize("field, value", [("compute_dtype", "bf16"), ("compute_dtype", "f16"), ("compute_dtype", None),
                                          ("output_dtype", "junk"), ("tolerance", "junk"), ("mask", "causal"), ("mask", None), ("mask", {}),
                                          ("mask", {"causal_offset": 10.0}), ("mask", {"causal_offset": True}),
                                          ("mask", {"causal_offset": 10, "window": 2}), ("mask", ["none"])])
def test_refuses_what_it_does_not_know(field, value, tmp_path):
    tensors = tensors_of(8)
    _, certificate, o = certified(tmp_path, tensors, 1e-2, "--causal")
    for arrays in (wide(tensors, o), wide(tensors, o)[:3]):
        with pytest.raises((ValueError, KeyError)):
            script.check(certificate | {field: value}, *arrays)


def test_masks_that_hide_all_or_nothing(tmp_path):
    tensors = tensors_of(9)
    _, certificate, o = certified(tmp_path, tensors, 1e-2)
    arrays = wide(tensors, o)
    for offset in (170, 10**30):
        assert "keeps" in script.check(certificate | {"mask": {"causal_offset": offset}}, *arrays)
    for offset in (-160, -(10**30)):
        hidden = certificate | {"mask": {"causal_offset": offset}}
        assert "keeps" in script.check(hidden, *arrays[:3], np.zeros_like(arrays[3]))
        with pytest.raises(ValueError, match="further"):
            script.check(hidden, *arrays)


def test_refuses_o_of_another_shape(tmp_path):
    tensors = tensors_of(10)
    _, certificate, o = certified(tmp_path, tensors, 1e-2)
    for other in (o[:, :1], o[:, :, :-1], o[..., :1], o[:, :, :1], o[0]):
        with pytest.raises(ValueError, match="o is not"):
            script.check(certificate, *wide(tensors, other))


def test_says_what_it_cannot_read(tmp_path):
    tensors = tensors_of(4)
    _, _, o = certified(tmp_path, tensors, 1e-2)
    save_file({n: t[None] for n, t in tensors.items()}, tmp_path / "five.safetensors")
    save_file({"Q": tensors["q"]}, tmp_path / "names.safetensors")
    for name in ("five.safetensors", "names.safetensors", "missing.safetensors"):
        for files in ([name], ["x.safetensors", "--output", tmp_path / name]):
            done = checked("c.json", *files, cwd=tmp_path)
            assert done.returncode == 1 and done.stderr.startswith("REFUSED: reads safetensors"), done.stderr


def test_says_why_attention_is_exact(tmp_path):
    report, certificate, o = certified(tmp_path, tensors_of(5, size=8), 1e-3)
    assert certificate["method"] == "exact" and "no polynomial" in report["tolerance"]["reason"]
    script.check(certificate, *wide(tensors_of(5, size=8), o)[:3])
    report, _, _ = certified(tmp_path, tensors_of(5, n_q=8, n_k=8, d=8), 1e-3)
    assert report["tolerance"]["method"] == "exact"
    assert report["tolerance"]["exact_words"] <= report["tolerance"]["polynomial_words"]


@needs_data
@pytest.mark.parametrize("layer", ["minilm-layer0", "minilm-layer5"])
def test_real_data(layer, tmp_path):
    """Real scores reach too far for a polynomial; with q divided by 512, they do not."""
    given = load_file(DATA / f"{layer}.safetensors")
    tensors = {n: np.ascontiguousarray(given[n]) for n in "qkv"}
    report, certificate, _ = certified(tmp_path, tensors, 1e-3)
    assert certificate["method"] == "exact" and "no polynomial" in report["tolerance"]["reason"]
    script.check(certificate, *(tensors[n].astype(np.float64) for n in "qkv"))
    tensors["q"] = tensors["q"] / np.float32(512)
    report, certificate, o = certified(tmp_path, tensors, 1e-1, M="20000")
    assert certificate["method"] == "polynomial", report["tolerance"]["reason"]
    script.check(certificate, *wide(tensors, o))


def test_files_may_lack_axes_or_have_them_in_another_order():
    x = np.arange(24).reshape(2, 3, 4)
    wanted = x[None]
    for there, layout in ((x, None), (x, "hnd"), (wanted, "bhnd"), (x.transpose(1, 0, 2), "nhd"), (wanted.transpose(0, 2, 1, 3), "bnhd")):
        assert np.array_equal(script.in_order(there, layout), wanted)
    assert script.in_order(x[0], None).shape == (1, 1, 3, 4)


@pytest.mark.parametrize("name", ["check_certificate.py", "check_rows.py", "read_tensors.py"])
def test_can_be_read_in_one_sitting(name):
    assert len((SCRIPT.parent / name).read_text().splitlines()) < 150
