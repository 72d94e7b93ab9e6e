"""All node tests of Attention that ONNX publishes, through `redblue run`: Y, and qk_matmul_output where there is one."""

import os
import subprocess
import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import numpy_helper  # noqa: E402

CLI = os.environ["REDBLUE_CLI"]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of other operators' cases
    from onnx.backend.test.case.node import collect_testcases

    CASES = [c for c in collect_testcases("Attention") if not c.name.endswith("_expanded")]


def inputs_and_outputs(case):
    """Inputs and outputs by name, attributes."""
    node = case.model.graph.node[0]
    data, wanted = case.data_sets[0]
    array = lambda x: x if isinstance(x, np.ndarray) else numpy_helper.to_array(x)
    # Names of the graph are free; the place among the inputs says what an input is.
    names = ["Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"]
    results = ["Y", "present_key", "present_value", "qk_matmul_output"]
    given, made = iter(data), iter(wanted)
    x = {name: array(next(given)) for name, used in zip(names, node.input) if used}
    y = {name: array(next(made)) for name, used in zip(results, node.output) if used}
    return x, y, {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


WITH_SCORES = [c for c in CASES if "qk_matmul_output" in inputs_and_outputs(c)[1]]


def heads_first(x, heads):
    """[batch, n, heads d] as [batch, heads, n, d]."""
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def bias_of(mask, n_k):
    """ONNX's mask as a bias: it may have fewer keys than there are, of which the rest is hidden."""
    if mask.shape[-1] < n_k:
        hidden = False if mask.dtype == bool else -np.inf
        mask = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, n_k - mask.shape[-1])], constant_values=hidden)
    return mask


class Case:
    """A node test in redblue's words: tensors, and options by what they are about."""

    def __init__(self, case):
        x, self.wanted, attributes = inputs_and_outputs(case)
        self.rank = x["Q"].ndim
        self.mode = attributes.get("qk_matmul_output_mode", 0)
        q_heads = attributes.get("q_num_heads") or x["Q"].shape[1]
        kv_heads = attributes.get("kv_num_heads") or x["K"].shape[1]
        k, v = heads_first(x["K"], kv_heads), heads_first(x["V"], kv_heads)
        past = 0
        if "past_key" in x:
            past = x["past_key"].shape[2]
            k, v = np.concatenate([x["past_key"], k], 2), np.concatenate([x["past_value"], v], 2)
        self.tensors = {"q": heads_first(x["Q"], q_heads), "k": k, "v": v}
        self.bias = {"bias": bias_of(x["attn_mask"], k.shape[2])} if "attn_mask" in x else {}
        self.scale = ["--scale", str(attributes["scale"])] if attributes.get("scale") else []
        self.softcap = ["--softcap", str(attributes["softcap"])] if attributes.get("softcap", 0) > 0 else []
        left, right = attributes.get("left_window_size", -1), attributes.get("right_window_size", -1)
        causal = attributes.get("is_causal", 0)
        self.mask = ["--causal"] if causal else []
        self.mask += ["--window", f"{left},{right}"] if left >= 0 or right >= 0 else []
        if "nonpad_kv_seqlen" in x:  # the offset of each batch is that of its last query: redblue's own
            self.mask += ["--seqused-k", ",".join(str(n) for n in x["nonpad_kv_seqlen"])]
        elif self.mask:
            self.mask += ["--causal-offset", str(past)]


def run(folder, tensors, options):
    """What `redblue run` makes of these tensors."""
    np.savez(folder / "x.npz", **tensors)
    files = ["--input", folder / "x.npz", "--output", folder / "y.npz"]
    done = subprocess.run(
        [CLI, "run", *files, "--M", "2000", "--layout", "bhnd", *options], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return dict(np.load(folder / "y.npz"))


def require_close(ours, wanted):
    ours = ours.view(wanted.dtype) if ours.dtype.kind == "V" else ours  # bf16 by the name that numpy does not know
    assert ours.shape == wanted.shape
    rtol, atol = {"float16": (1e-3, 2e-3), "bfloat16": (1e-2, 1e-2)}.get(wanted.dtype.name, (1e-3, 1e-5))
    np.testing.assert_allclose(ours.astype(np.float64), wanted.astype(np.float64), rtol=rtol, atol=atol)


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_output(tmp_path, case):
    c = Case(case)
    o = run(tmp_path, c.tensors | c.bias, [*c.scale, *c.softcap, *c.mask])["o"]
    require_close(o if c.rank == 4 else o.swapaxes(1, 2).reshape(c.wanted["Y"].shape), c.wanted["Y"])
    for name, ours in [("present_key", "k"), ("present_value", "v")]:  # the caller's own concatenation
        if name in c.wanted:
            np.testing.assert_array_equal(c.tensors[ours], c.wanted[name])


@pytest.mark.parametrize("case", WITH_SCORES, ids=[c.name for c in WITH_SCORES])
def test_scores(tmp_path, case):
    c = Case(case)
    q_k = {name: c.tensors[name] for name in "qk"}
    options = ["--op", "scores", *c.scale, *(c.softcap if c.mode > 0 else []), *(c.mask if c.mode > 1 else [])]
    if c.mode < 2:  # neither mask nor bias
        ours = run(tmp_path, q_k, options)["s"]
    elif c.mode == 2:
        ours = run(tmp_path, q_k | c.bias, options)["s"]
    else:
        lse = run(tmp_path, c.tensors | c.bias, options[2:])["lse"]
        ours = run(tmp_path, q_k | c.bias | {"lse": lse}, ["--op", "weights", *options[2:]])["p"]
    require_close(ours, c.wanted["qk_matmul_output"])


def test_there_are_cases():
    assert len(CASES) >= 90
    assert {Case(c).mode for c in WITH_SCORES} == {0, 1, 2, 3} and len(WITH_SCORES) >= 18
