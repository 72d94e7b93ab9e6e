"""All node tests of Attention that ONNX publishes, through `redblue run`: the output Y."""

import os
import subprocess
import warnings

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

CLI = os.environ["REDBLUE_CLI"]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of other operators' cases
    from onnx.backend.test.case.node import collect_testcases

    CASES = [c for c in collect_testcases("Attention") if not c.name.endswith("_expanded")]


def inputs_and_output(case):
    """Inputs and Y by name, attributes."""
    node = case.model.graph.node[0]
    data, wanted = case.data_sets[0]
    array = lambda x: x if isinstance(x, np.ndarray) else numpy_helper.to_array(x)
    # Names of the graph are free; the place among the inputs says what an input is.
    names = ["Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"]
    given = iter(data)
    x = {name: array(next(given)) for name, used in zip(names, node.input) if used}
    return x, array(wanted[0]), {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def heads_first(x, heads):
    """[batch, n, heads d] as [batch, heads, n, d]."""
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def bias_of(mask, heads, n_k):
    """ONNX's mask as a bias: it may have fewer keys than there are, of which the rest is hidden."""
    if mask.shape[-1] < n_k:
        hidden = False if mask.dtype == bool else -np.inf
        mask = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, n_k - mask.shape[-1])], constant_values=hidden)
    return mask


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_output(tmp_path, case):
    x, wanted, attributes = inputs_and_output(case)
    q_heads = attributes.get("q_num_heads") or x["Q"].shape[1]
    kv_heads = attributes.get("kv_num_heads") or x["K"].shape[1]
    q = heads_first(x["Q"], q_heads)
    k, v = heads_first(x["K"], kv_heads), heads_first(x["V"], kv_heads)
    past = 0
    if "past_key" in x:
        past = x["past_key"].shape[2]
        k, v = np.concatenate([x["past_key"], k], 2), np.concatenate([x["past_value"], v], 2)
    tensors = {"q": q, "k": k, "v": v}
    if "attn_mask" in x:
        tensors["bias"] = bias_of(x["attn_mask"], q_heads, k.shape[2])
    options = ["--M", "2000", "--layout", "bhnd"]
    left, right = attributes.get("left_window_size", -1), attributes.get("right_window_size", -1)
    causal = attributes.get("is_causal", 0)
    options += ["--causal"] if causal else []
    options += ["--window", f"{left},{right}"] if left >= 0 or right >= 0 else []
    if "nonpad_kv_seqlen" in x:  # the offset of each batch is that of its last query: redblue's own
        options += ["--seqused-k", ",".join(str(n) for n in x["nonpad_kv_seqlen"])]
    elif causal or left >= 0 or right >= 0:
        options += ["--causal-offset", str(past)]
    options += ["--softcap", str(attributes["softcap"])] if attributes.get("softcap", 0) > 0 else []
    options += ["--scale", str(attributes["scale"])] if attributes.get("scale") else []
    np.savez(tmp_path / "x.npz", **tensors)
    files = ["--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz"]
    done = subprocess.run([CLI, "run", *files, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    o = np.load(tmp_path / "y.npz")["o"]
    o = o.view(wanted.dtype) if o.dtype.kind == "V" else o  # bf16 by the name that numpy does not know
    y = o if x["Q"].ndim == 4 else o.swapaxes(1, 2).reshape(wanted.shape)
    rtol, atol = {"float16": (1e-3, 2e-3), "bfloat16": (1e-2, 1e-2)}.get(wanted.dtype.name, (1e-3, 1e-5))
    np.testing.assert_allclose(y.astype(np.float64), wanted.astype(np.float64), rtol=rtol, atol=atol)


def test_there_are_cases():
    assert len(CASES) >= 90
