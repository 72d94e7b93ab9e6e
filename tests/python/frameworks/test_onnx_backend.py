"""redblue.onnx: the node tests of Attention that ONNX publishes, run by ONNX's own runner, and what the backend refuses."""

import unittest
import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
redblue = pytest.importorskip("redblue")
import redblue.onnx  # noqa: E402

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of other operators' cases
    import onnx.backend.test

    runner = onnx.backend.test.BackendTest(redblue.onnx.Backend, __name__)
    # Those of other operators, and those that spell Attention out in other operators, say nothing of redblue.
    ours = {
        name: test
        for name, test in vars(runner.test_cases["OnnxBackendNodeModelTest"]).items()
        if name.startswith("test_attention_") and name.endswith("_cpu") and "expanded" not in name
    }
    TestNodes = type("TestNodes", (unittest.TestCase,), ours)


def node(outputs=("Y",), **attributes):
    return onnx.helper.make_node("Attention", ["Q", "K", "V"], list(outputs), **attributes)


def arrays(*shape, kind=np.float32):
    rng = np.random.default_rng(1)
    return [rng.standard_normal(shape).astype(kind) for _ in range(3)]


def test_a_scale_of_0_is_no_default():
    q, k, v = arrays(1, 2, 4, 8)
    (y,) = redblue.onnx.evaluator(node(scale=0.0)).run(None, {"Q": q, "K": k, "V": v})
    np.testing.assert_allclose(y, np.broadcast_to(v.mean(2, keepdims=True), y.shape), atol=1e-6)
    with pytest.raises(redblue.InvalidProblem, match="qk_matmul_output_mode = 7"):
        redblue.onnx.evaluator(node(("Y", "", "", "S"), qk_matmul_output_mode=7)).run(None, {"Q": q, "K": k, "V": v})


def test_there_are_node_tests():
    assert len(ours) >= 90 and sum("_qk_matmul" in name for name in ours) >= 17


def test_a_node_alone_gives_what_attention_gives():
    q, k, v = arrays(2, 3, 5, 8)
    (y,) = redblue.onnx.run_node(node(is_causal=1), [q, k, v])
    np.testing.assert_array_equal(y, redblue.attention(q, k, v, causal=True, alignment="top-left"))


def test_attention_among_other_operators():
    """Of a model only Attention is redblue's."""
    q, k, v = arrays(1, 2, 4, 8)
    graph = onnx.helper.make_graph(
        [node(), onnx.helper.make_node("Neg", ["Y"], ["Z"])],
        "g",
        [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 2, 4, 8]) for n in "QKV"],
        [onnx.helper.make_tensor_value_info("Z", onnx.TensorProto.FLOAT, [1, 2, 4, 8])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 24)])
    (z,) = redblue.onnx.run_model(model, [q, k, v])
    np.testing.assert_array_equal(z, -redblue.attention(q, k, v))


@pytest.mark.parametrize("values", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["float64", "float32", "float16", "bfloat16"])
def test_values_of_another_type(kind, values):
    """The result has the type of Q, the cache of values that of V; products are as exact as the wider type."""
    pytest.importorskip("ml_dtypes")
    q, k, v, past_k, past_v = (*arrays(2, 4, 5, 8), *arrays(2, 4, 3, 8)[:2])
    q, k, past_k = (x.astype(kind) for x in (q, k, past_k))
    v, past_v = (x.astype(values) for x in (v, past_v))
    bias = np.linspace(-1, 1, 40).reshape(5, 8).astype(kind)
    names = ["Q", "K", "V", "M", "PK", "PV"]
    one = onnx.helper.make_node("Attention", names, ["Y", "NK", "NV", "P"], qk_matmul_output_mode=3, softmax_precision=1)
    y, new_k, new_v, p = redblue.onnx.evaluator(one).run(None, dict(zip(names, (q, k, v, bias, past_k, past_v))))
    assert (y.dtype, p.dtype, new_k.dtype, new_v.dtype) == (kind, kind, kind, values)
    np.testing.assert_array_equal(new_v, np.concatenate([past_v, v], 2))
    exact = [x.astype(np.float64) for x in (q, new_k, new_v)]
    want, lse = redblue.attention(*exact, bias=bias.astype(np.float64), return_lse=True)
    rounding = {"float64": 1e-14, "float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
    np.testing.assert_allclose(y.astype(float), want, rtol=0, atol=rounding[kind])
    np.testing.assert_allclose(p.astype(float), redblue.weights(*exact[:2], lse, bias=bias.astype(float)), rtol=0, atol=rounding[kind])


@pytest.mark.parametrize(
    "kind, shape, attributes, device, error, message",
    [
        (np.float32, (1, 4, 16), {}, "CPU", redblue.InvalidProblem, "q_num_heads"),
        (np.int32, (1, 2, 4, 8), {}, "CPU", redblue.Unsupported, "int32"),
        (np.float32, (1, 2, 4, 8), {}, "CUDA", redblue.Unsupported, "CUDA"),
    ],
)
def test_refused(kind, shape, attributes, device, error, message):
    with pytest.raises(error, match=message):
        redblue.onnx.run_node(node(**attributes), arrays(*shape, kind=kind), device)


def test_k_has_the_type_of_q():
    q, k, v = arrays(1, 2, 4, 8)
    with pytest.raises(redblue.Unsupported, match="K has elements of type float16 and Q of float32"):
        redblue.onnx.run_node(node(), [q, k.astype(np.float16), v])
    with pytest.raises(redblue.Unsupported, match="V has elements of type int32"):
        redblue.onnx.run_node(node(), [q, k, v.astype(np.int32)])
