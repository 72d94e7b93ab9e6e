"""Tensors of a file that a command does not read: said, refused under --strict, and refused where the name of one says that it
changes the result."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

import dense
import program
from program import needs_program

pytestmark = needs_program
RANDOM = np.random.default_rng(3)
X = {name: RANDOM.standard_normal((1, 2, 12, 4)).astype(np.float32) for name in "qkv"}
SEEN = RANDOM.random((12, 12)) < 0.7
SEEN[:, 0] = True
RUN = ("run", "--M", "400")


def saved(folder, name, **tensors):
    (save_file if name.endswith(".safetensors") else lambda x, path: np.savez(path, **x))({**X, **tensors}, folder / name)
    return ("--input", name, "--output", "y.npz")


def did(folder, *command):
    return program.redblue(*command, cwd=folder, check=True)


def refused(folder, *command):
    return program.refused(folder, *command, cwd=folder)


@pytest.mark.parametrize("name", ["x.npz", "x.safetensors"])
@pytest.mark.parametrize("mask", ["mask", "attn_mask", "attention_mask", "AttnMask", "block_mask", "attn_bias", "rel_pos_bias"])
def test_a_mask_in_the_file_is_not_passed_over(tmp_path, name, mask):
    files = saved(tmp_path, name, **{mask: SEEN})
    said = refused(tmp_path, *RUN, *files)
    assert f"{name} holds {mask} [12, 12]" in said and f"--name bias={mask} (bool: true keeps)" in said and f"--ignore {mask}" in said
    done = did(tmp_path, *RUN, *files, "--name", f"bias={mask}", "--verify")
    assert done.stderr == ""
    o, _ = dense.attention(X["q"], X["k"], X["v"], SEEN)
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["o"], o, atol=1e-5)
    did(tmp_path, *RUN, *files, "--ignore", mask)
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["o"], dense.attention(X["q"], X["k"], X["v"])[0], atol=1e-5)


@pytest.mark.parametrize(
    "name, array, option",
    [
        ("cu_seqlens", np.array([0, 5, 12], np.int32), ["--seqlens", "5,7"]),
        ("key_padding_mask", np.ones((1, 12), bool), ["--seqused-k", "7"]),
        ("softcap", np.float32(30), ["--softcap", "30"]),
        ("sm_scale", np.array(0.25), ["--scale", "0.25"]),
        ("is_causal", np.array(True), ["--causal"]),
        ("window_size", np.array([2, 0]), ["--window", "2,0"]),
        ("alibi", np.ones(2, np.float32), ["--name", "slopes=alibi"]),
        ("s_aux_sink", np.ones(2, np.float32), ["--name", "sinks=s_aux_sink"]),
        ("s_aux", np.ones(2, np.float32), ["--name", "sinks=s_aux"]),
    ],
)
def test_what_else_changes_the_result_names_its_option(tmp_path, name, array, option):
    files = saved(tmp_path, "x.npz", **{name: array})
    said = refused(tmp_path, *RUN, *files)
    assert f"x.npz holds {name} " in said and f"give {' '.join(option[:1 if option[0] != '--name' else 2])}" in said
    done = did(tmp_path, *RUN, *files, *option)
    assert done.stderr == ("" if option[0] == "--name" else f"redblue: x.npz also holds {name}, which is not used (--strict refuses that)\n")


MODIFIERS = {"bias": RANDOM.standard_normal((12, 12)), "slopes": np.array([0.5, 0.25]), "sinks": np.array([1.0, 2.0])}


@pytest.mark.parametrize("op", ["forward", "backward", "scores", "weights"])
def test_what_is_ignored_is_left_out_of_every_operation(tmp_path, op):
    others = {"o": X["q"], "lse": X["q"][..., 0], "do": X["v"]}
    run = (*RUN, "--op", op, "--input", "x.npz", "--output", "y.npz", "--json")

    def outputs(kept, *options):
        np.savez(tmp_path / "x.npz", **X, **others, **kept)
        report = json.loads(did(tmp_path, *run, *options).stdout)
        return report, dict(np.load(tmp_path / "y.npz"))

    taken = [name for name in MODIFIERS if op in ("forward", "backward") or name != "sinks"]
    for ignored in MODIFIERS:
        kept = {name: MODIFIERS[name] for name in taken if name != ignored}
        wanted, y = outputs(kept)
        left_out = [word for name in MODIFIERS if name not in kept for word in ("--ignore", name)]
        found, z = outputs(MODIFIERS, *left_out)
        assert found["problem"] == wanted["problem"]
        for name in y:
            np.testing.assert_array_equal(y[name], z[name])


def test_scores_do_not_take_sinks(tmp_path):
    files = saved(tmp_path, "x.npz", **MODIFIERS)
    said = refused(tmp_path, *RUN, "--op", "scores", *files)
    assert "give an operation that takes one: --op scores does not, or leave it out with --ignore sinks" in said
    done = did(tmp_path, *RUN, "--op", "scores", *files, "--ignore", "sinks").stdout
    assert "with bias [1, 1, 12, 12], ALiBi\n" in done
    done = did(tmp_path, *RUN, *files, "--ignore", "slopes", "--ignore", "sinks", "--ignore", "bias", "--alibi").stdout
    assert "with ALiBi\n" in done  # with the slopes of its authors
    np.save(tmp_path / "sinks.npy", MODIFIERS["sinks"])
    assert "too: leave one of them out" in refused(tmp_path, *RUN, *files, "--sinks", "sinks.npy")
    assert "sinks" in did(tmp_path, *RUN, *files, "--sinks", "sinks.npy", "--ignore", "sinks").stdout


def test_other_tensors_are_named_or_refused(tmp_path):
    files = saved(tmp_path, "x.npz", ids=np.arange(3), do=X["q"])
    assert did(tmp_path, *RUN, *files).stderr == "redblue: x.npz also holds do, ids, which are not used (--strict refuses that)\n"
    assert did(tmp_path, *RUN, *files, "--quiet").stderr == ""
    assert json.loads(did(tmp_path, *RUN, *files, "--json").stdout)["unused"] == ["do", "ids"]
    assert "--strict: x.npz holds do, ids" in refused(tmp_path, *RUN, *files, "--strict")
    did(tmp_path, *RUN, *files, "--strict", "--ignore", "ids", "--ignore", "do")
    assert did(tmp_path, "run", "--op", "backward", "--M", "400", *files, "--strict", "--ignore", "ids").stderr == ""
    for more, why in ((["--ignore", "idx"], "no tensor of this name"), (["--ignore", "q"], "it is used")):
        assert why in refused(tmp_path, *RUN, *files, *more)
    assert "has no tensor 'maks'" in refused(tmp_path, *RUN, *files, "--name", "bias=maks")
    for name, x in X.items():
        np.save(tmp_path / f"{name}.npy", x)
    npy = ("--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--o", "o.npy")
    assert "--strict is for --input" in refused(tmp_path, *RUN, *npy, "--strict")


def test_tensors_of_other_layers_are_only_named(tmp_path):
    layer = {f"layer.0.{name}": x for name, x in X.items()}
    np.savez(tmp_path / "x.npz", **layer, **{"layer.1.bias": SEEN})
    names = [word for name in "qkv" for word in ("--name", f"{name}=layer.0.{name}")]
    files = ("--input", "x.npz", "--output", "y.npz")
    assert "also holds layer.1.bias" in did(tmp_path, *RUN, *files, *names).stderr
    np.savez(tmp_path / "x.npz", **layer, **{"layer.0.bias": SEEN})
    assert "--name bias=layer.0.bias" in refused(tmp_path, *RUN, *files, *names)


def test_names_that_may_be_meant_are_named(tmp_path):
    np.savez(tmp_path / "x.npz", Q=X["q"], Key=X["k"], V=X["v"])
    files = ("--input", "x.npz", "--output", "y.npz")
    names = "--name q=Q --name k=Key --name v=V"
    assert names in refused(tmp_path, *RUN, *files)
    assert did(tmp_path, *RUN, *files, *names.split()).stderr == ""
    assert "has no tensor 'nowhere'" in refused(tmp_path, *RUN, *files, *names.replace("q=Q", "q=nowhere").split())
    assert f"q, k, v missing ({names} says" in did(tmp_path, "info", "x.npz").stdout
    assert names in refused(tmp_path, "compare", "--input", "x.npz", "--M", "400")


def test_info_and_compare_say_the_same(tmp_path):
    saved(tmp_path, "x.npz", mask=SEEN)
    said = did(tmp_path, "info", "x.npz").stdout
    assert "forward: cannot be run: x.npz holds mask [12, 12]" in said and "--name bias=mask" in said
    assert "redblue run with --name bias=mask" in refused(tmp_path, "compare", "--input", "x.npz", "--M", "400", "--approximate", "linear")
    compare = ("compare", "--input", "x.npz", "--M", "400", "--approximate", "linear", "--ignore", "mask")
    assert did(tmp_path, *compare).stderr == ""
    saved(tmp_path, "x.npz", bias=SEEN, do=X["q"])
    runs = {r["op"]: r for r in json.loads(did(tmp_path, "info", "x.npz", "--json").stdout)["runs"]}
    assert runs["forward"]["unused"] == ["do"] and runs["forward"]["problem"]["bias"] and runs["backward"]["unused"] == []
    assert "x.npz holds bias [12, 12]" in refused(tmp_path, *compare[:-2])


def test_the_json_of_compare_names_them(tmp_path):
    input_only = saved(tmp_path, "x.npz", w=np.ones(3, np.float32))[:2]
    compared = ("compare", *input_only, "--M", "400", "--approximate", "linear", "--json")
    assert json.loads(did(tmp_path, *compared).stdout)["unused"] == ["w"]
    saved(tmp_path, "x.npz")
    assert json.loads(did(tmp_path, *compared).stdout)["unused"] == []
