"""What people write in place of an option of redblue: one sentence names what was meant, or it is honoured."""

import json
import subprocess

import numpy as np
import pytest

import program
from program import CLI, needs_program

redblue = pytest.importorskip("redblue")
PLAN = ("plan", "--n", "64", "--d", "8")


@needs_program
@pytest.mark.parametrize(
    "command, says",
    [
        ((*PLAN, "--M", "64KiB"), "--M 64KiB: it takes words; for bytes give --memory 64KiB"),
        ((*PLAN, "--M", "1e6"), "--M 1e6: write the number out: 1000000"),
        ((*PLAN, "--m", "1000"), "did you mean --M?"),
        (("plan", "--seq-len", "64", "--d", "8", "--M", "1000"), "--seq-len 64 does not go with redblue plan: did you mean --n?"),
        (("plan", "--n", "64", "--head-dim", "8", "--M", "1000"), "--head-dim does not go with redblue plan: did you mean --d?"),
        (("plan", "--n", "64", "--head-dim=8", "--M", "1000"), "did you mean --d?"),
        ((*PLAN, "--M", "1000", "--num-heads", "8"), "did you mean --heads?"),
        ((*PLAN, "--M", "1000", "--sliding-window", "8"), "did you mean --window?"),
        ((*PLAN, "--M", "1000", "--op", "fwd"), "--op fwd: did you mean forward?"),
        ((*PLAN, "--M", "1000", "--op", "bakward"), "--op bakward: did you mean backward?"),
        ((*PLAN, "--M", "1000", "--dtype", "float32"), "--dtype float32: did you mean f32?"),
        ((*PLAN, "--M", "1000", "--dtype", "torch"), "--dtype torch: choose from f64, f32, f16, bf16"),
        ((*PLAN, "--M", "1000", "--compute-dtype", "BFloat16"), "--compute-dtype BFloat16: did you mean bf16?"),
        ((*PLAN, "--M", "1000", "--schedule", "Flash"), "no schedule of operation forward is called 'Flash': did you mean flash?"),
        ((*PLAN, "--M", "1000", "--approximate", "performer"), "approximation performer: give performer:FEATURES[,seed=N], such as performer:256"),
        ((*PLAN, "--M", "1000", "--approximate", "performr:8"), "performer:FEATURES"),
        ((*PLAN, "--M", "1000", "--mask", "X.npz"), "--mask X.npz: it takes a .npy file; "),
        (("run", "X.npz"), "X.npz does not go with redblue run: did you mean --input X.npz?"),
        (("compare", "X.safetensors", "--M", "1000"), "did you mean --input X.safetensors?"),
        (("run", "Q.npy", "--M", "1000"), "as in --q Q.npy"),
        (("plan", "X.npz"), "redblue info X.npz"),
        (("run", "--input", "X.npz", "--output", "O.txt", "--M", "1000"), "--output O.txt: it writes safetensors or .npz"),
        (("run", "--input", "X.npz", "--output", "O.npz", "--M", "1000", "--layout", "bxhd"), "--layout bxhd: give one of bhsd"),
    ],
)  # fmt: skip
def test_the_program_names_what_was_meant(tmp_path, command, says):
    np.savez(tmp_path / "X.npz", **{name: np.ones((1, 1, 8, 4), np.float32) for name in "qkv"})
    said = program.refused(tmp_path, *command, cwd=tmp_path)
    assert says in said and len(said) < 400


@needs_program
def test_a_memory_of_few_bytes_says_what_it_is():
    said = program.redblue(*PLAN, "--memory", "64")
    assert said.returncode == 0 and said.stderr == "redblue: --memory 64 is 64 bytes, 16 words of f32; 64KiB is 64 x 1024 bytes\n"
    for memory in ("64B", "4096", "64KiB"):
        assert program.redblue(*PLAN, "--memory", memory).stderr == ""


@needs_program
def test_help_is_a_word_too():
    for words, option in ((["help"], ["--help"]), (["help", "plan"], ["plan", "--help"])):
        asked, wanted = (subprocess.run([CLI, *x], capture_output=True, text=True) for x in (words, option))
        assert asked.returncode == 0 and asked.stdout == wanted.stdout != ""


@needs_program
@pytest.mark.parametrize("names", [("bhnd", "bhsd"), ("bnhd", "bshd")])
def test_layouts_have_the_same_names_everywhere(tmp_path, names):
    random = np.random.default_rng(5)
    x = {name: random.standard_normal((2, 5, 3, 4) if names[0] == "bnhd" else (2, 3, 5, 4)).astype(np.float32) for name in "qkv"}
    np.savez(tmp_path / "x.npz", **x)
    found = [redblue.attention(*x.values(), layout=name, M=200) for name in names]
    for name in names:
        command = ("run", "--M", "200", "--input", "x.npz", "--output", "y.npz", "--layout", name, "--json")
        assert json.loads(program.redblue(*command, cwd=tmp_path, check=True).stdout)["layout"] == names[0]
        found.append(np.load(tmp_path / "y.npz")["o"])
    for o in found:
        np.testing.assert_allclose(o, found[0], atol=1e-6)


@needs_program
@pytest.mark.parametrize(
    "n_q, alignment, options, says",
    [
        (64, 3, {"causal": True}, "causal, offset 3"),
        (64, -20, {"causal": True}, "causal, offset -20"),
        (32, "top-left", {"causal": True}, "causal, offset 0"),
        (32, "bottom-right", {"causal": True}, "causal"),
        (32, 32, {"causal": True}, "causal"),
        (64, "top-left", {"window": (8, 0)}, "window 8,0"),
        (64, 5, {"alibi": True}, "offset 5, ALiBi"),
        (64, 0, {"causal": True, "cu_seqlens_q": [0, 32, 64]}, "causal, offset 0, 2 packed sequences"),
    ],
)
def test_a_plan_says_an_offset_that_is_not_the_default(n_q, alignment, options, says):
    sizes = {"n_q": n_q, "n_k": 64, "d": 8, "M": 200}
    assert redblue.plan(**sizes, alignment=alignment, **options).mask == says
    flags = {"causal": ["--causal"], "window": ["--window", "8,0"], "alibi": ["--alibi"], "cu_seqlens_q": ["--seqlens", "32,32"]}
    words = [word for name in options for word in flags[name]]
    for command in ("plan", "explain"):
        said = program.did(command, "--nq", n_q, "--nk", 64, "--d", 8, "--M", 200, "--causal-offset", alignment, *words)
        assert f", {says};" in said or f", {says}\n" in said, said


def test_layouts_of_fewer_dimensions():
    q = np.random.default_rng(6).standard_normal((5, 3, 4)).astype(np.float32)
    o = redblue.attention(q, q, q, layout="shd")
    np.testing.assert_array_equal(redblue.attention(q, q, q, layout="nhd"), o)
    np.testing.assert_array_equal(redblue.attention(q, q, q, layout="bshd"), o)
    heads_first = redblue.attention(*(q.swapaxes(0, 1),) * 3, layout="hnd")
    np.testing.assert_allclose(heads_first.swapaxes(0, 1), o, atol=1e-6)
    with pytest.raises(redblue.InvalidProblem, match="q has 3 dimensions: give q, k and v the same number, 2 "):
        redblue.attention(q, q, q, layout="sd")
    with pytest.raises(redblue.InvalidProblem, match="layout = 'sbhd': give one of bhsd, bhnd, bshd"):
        redblue.attention(q, q, q, layout="sbhd")


Q = np.zeros((1, 1, 8, 4), np.float32)


@pytest.mark.parametrize(
    "options, says",
    [
        ({"mask": Q}, "attention has no option 'mask': give bias, where True keeps a pair"),
        ({"attn_mask": Q}, "attention has no option 'attn_mask': give bias, where True keeps a pair"),
        ({"seq_len": 8}, "attention has no option 'seq_len': sizes are those of the arrays"),
        ({"heads": 2}, "attention has no option 'heads': sizes are those of the arrays"),
        ({"kv_heads": 1}, "attention has no option 'kv_heads': sizes are those of the arrays"),
        ({"softmax_scale": 1.0}, "did you mean 'scale'?"),
        ({"dropout": 1.5}, "dropout = 1.5 is no share of the weights: give 0 <= share < 1"),
        ({"M": 1e6}, "M = 1000000.0: give a whole number, 1000000"),
        ({"M": "64KiB"}, "for bytes give memory='64KiB'"),
        ({"memory": "64 words"}, "memory = '64 words': give a number of bytes such as 65536, 64KiB"),
        ({"schedule": "Flash", "M": 1000}, "did you mean flash?"),
        ({"approximate": "performer"}, "performer:FEATURES[,seed=N], such as performer:256"),
    ],
)
def test_python_names_what_was_meant(options, says):
    with pytest.raises((TypeError, redblue.InvalidProblem)) as caught:
        redblue.attention(Q, Q, Q, **options)
    assert says in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "options, says",
    [
        ({"seq_len": 8, "d": 4}, "a plan has no option 'seq_len': did you mean 'n'?"),
        ({"n": 8, "head_dim": 4}, "a plan has no option 'head_dim': did you mean 'd'?"),
        ({"n": 8, "d": 4, "mask": 1}, "a plan has no option 'mask': give bias (its shape)"),
    ],
)
def test_plan_names_what_was_meant(options, says):
    with pytest.raises(TypeError) as caught:
        redblue.plan(**options)
    assert says in str(caught.value)


def test_a_plan_lists_each_of_its_options_once():
    with pytest.raises(TypeError, match="a plan has no option 'layout': give d, n, n_q, n_k, ") as caught:
        redblue.plan(layout="bhsd")
    listed = str(caught.value).split("give ")[1].split(", ")
    assert len(listed) == len(set(listed)) > 30 and {"threads", "causal", "seed", "no_workspace"} <= set(listed)
    with pytest.raises(redblue.InvalidProblem, match="op = 'fwd': did you mean 'forward'?"):
        redblue.plan("fwd", n=8, d=4)


@needs_program
@pytest.mark.parametrize(
    "elsewhere, here",
    [
        ("seqlen_kv", "n_k"),
        ("d_model", "d"),
        ("num_kv_heads", "kv_heads"),
        ("is_causal", "causal"),
        ("dropout_p", "dropout"),
        ("logit_cap", "softcap"),
        ("attn_bias", "bias"),
        ("s_aux", "sinks"),
        ("sliding_window", "window"),
    ],
)
def test_python_and_the_program_know_the_same_names_of_elsewhere(elsewhere, here):
    with pytest.raises(TypeError) as caught:
        redblue.plan(n=8, **{"d": 4, elsewhere: 1})
    assert f"did you mean '{here}'?" in str(caught.value)
    flag = {"n_k": "nk"}.get(here, here.replace("_", "-"))
    said = program.redblue(*PLAN, "--M", "1000", f"--{elsewhere.replace('_', '-')}", "1").stderr
    assert f"did you mean --{flag}?" in said


def test_memory_may_have_a_unit():
    for text, number in (("64KiB", 65536), ("2048", 2048), ("1.5MiB", 3 << 19)):
        assert redblue.plan(n=64, d=8, memory=text).to_dict() == redblue.plan(n=64, d=8, memory=number).to_dict()
    np.testing.assert_array_equal(redblue.attention(Q, Q, Q, memory="64KiB", max_workspace="1MiB"), Q)


def test_memory_may_have_a_unit_in_torch_and_jax():
    torch = pytest.importorskip("torch")
    q = torch.ones(1, 1, 8, 4, requires_grad=True)
    redblue.attention(q, q, q, memory="64KiB").sum().backward()
    assert q.grad.shape == q.shape
    jax = pytest.importorskip("jax")
    import redblue.jax as on_jax

    ones = jax.numpy.ones((1, 8, 2, 4))
    assert on_jax.attention(ones, ones, ones, memory="64KiB", layout="bnhd").shape == ones.shape
    with pytest.raises(redblue.InvalidProblem, match=r"dropout = 1.5 is no share"):
        on_jax.attention(ones, ones, ones, dropout=1.5)


def test_a_plan_says_its_mask():
    plan = redblue.plan(n=64, d=8, M=200, causal=True, softcap=3.0)
    assert plan.mask == "causal, softcap 3" and "; causal, softcap 3" in repr(plan) and "causal, softcap 3" in plan._repr_html_()
    assert "d_v 8, causal, softcap 3\n" in plan.loop_nest
    assert redblue.plan(n=64, d=8, M=200).mask is None
    dropped = redblue.plan(n=64, d=8, M=200, dropout=0.25, seed=7)
    assert dropped.mask == "dropout 0.25 seed 7" and "; dropout 0.25 seed 7" in repr(dropped) and ", dropout 0.25 seed 7" in dropped.loop_nest
    for fast in ({"M": 200}, {}):
        for seed in (7, 8):  # the plan is kept for both
            assert redblue.explain(Q, Q, Q, dropout=0.25, seed=seed, **fast).mask == f"dropout 0.25 seed {seed}"
            assert redblue.explain(Q, Q, Q, op="backward", dropout=0.25, seed=seed, **fast).mask == f"dropout 0.25 seed {seed}"
    windowed = redblue.plan(n=64, d=8, memory="2KiB", window=(8, 0), dtype="bf16")
    assert windowed.mask == "window 8,0" and f" of {2048:,} bytes" in repr(windowed)
    assert f"formula and footprint {windowed.io} {windowed.bytes} {windowed.footprint_bytes}" in " ".join(windowed.loop_nest.split())


@pytest.mark.parametrize("name, type_here", [("float32", "f32"), ("bfloat16", "bf16"), ("half", "f16"), ("double", "f64")])
def test_types_that_others_name_otherwise(name, type_here):
    with pytest.raises(redblue.InvalidProblem, match=f"type '{name}': did you mean {type_here}?"):
        redblue.plan(n=8, d=4, dtype=name)
