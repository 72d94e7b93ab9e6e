"""Who reads torch.nn.functional.scaled_dot_product_attention while redblue's function stands there, and who does not."""

import subprocess
import sys
import types
import warnings

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import redblue  # noqa: E402
import redblue.torch as rt  # noqa: E402
from redblue._torch import sdpa  # noqa: E402

pytestmark = pytest.mark.usefixtures("hardware")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)
    torch.set_num_threads(1)


@pytest.fixture
def calls(monkeypatch):
    """A list that grows with each call of redblue's attention."""
    found, own = [], sdpa.of_tensors
    monkeypatch.setattr(sdpa, "of_tensors", lambda *arguments: found.append(None) or own(*arguments))
    return found


class Attends(torch.nn.Module):
    def forward(self, q):
        return F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.3)


def module_of(name, text):
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(text, module.__dict__)
    return module


def test_modules_that_imported_the_function_before_and_in_a_block(calls):
    text = "from torch.nn.functional import scaled_dot_product_attention\ndef f(x): return scaled_dot_product_attention(x, x, x)"
    ours = "from redblue.torch import scaled_dot_product_attention"
    x = torch.randn(1, 2, 5, 4)
    names = ["imported_before", "imported_in_the_block", "imported_redblues"]
    try:
        before, own = module_of(names[0], text), module_of(names[2], ours)
        with redblue.use():
            inside = module_of(names[1], text)
            for module in (before, inside):
                module.f(x)
            assert len(calls) == 2
        for module in (before, inside):
            module.f(x)
            assert module.scaled_dot_product_attention is F.scaled_dot_product_attention
        assert len(calls) == 2 and own.scaled_dot_product_attention is rt.scaled_dot_product_attention
        assert torch._C._nn.scaled_dot_product_attention is F.scaled_dot_product_attention
    finally:
        for name in names:
            sys.modules.pop(name, None)


def test_who_keeps_torchs_function_is_named_once():
    program = """
import warnings
import torch, redblue
from torch.nn.functional import scaled_dot_product_attention as sdpa
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = sdpa
class Config:
    attend = sdpa
def attend(q, by=sdpa):
    return by(q, q, q)
models = [Model(), Model()]
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    for _ in range(2):
        with redblue.use():
            assert sdpa is torch._C._nn.scaled_dot_product_attention
    class Later:
        also = sdpa
    with redblue.use():
        pass
print(*(w.message for w in found if "does not replace" in str(w.message)), sep="\\n")
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split(":")[0] for line in out] == [
        "__main__.Config.attend, __main__.Model.attend, __main__.attend, __main__.sdpa", "__main__.Later.also"
    ]


@pytest.mark.parametrize("make", [
    lambda: torch.nn.MultiheadAttention(8, 2, batch_first=True),
    lambda: torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
    lambda: torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1),
], ids=["heads", "layer", "encoder"])  # fmt: skip
@pytest.mark.parametrize("fast", [True, False])
def test_modules_of_torch_in_inference(make, fast, calls):
    """torch has a fused encoder for them, which calls no function that could be replaced."""
    model, x = make().eval(), torch.randn(2, 5, 8)
    call = (lambda: model(x, x, x, need_weights=False)[0]) if isinstance(model, torch.nn.MultiheadAttention) else lambda: model(x)
    torch.backends.mha.set_fastpath_enabled(fast)
    try:
        with torch.no_grad():
            want = call()
            with redblue.use():
                got = call()
        assert len(calls) == 1 and torch.backends.mha.get_fastpath_enabled() == fast
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("training", [True, False])
def test_weights_of_heads_are_computed_without_redblue_which_is_said_once(training, calls, monkeypatch):
    monkeypatch.setattr(rt._replaced, "_warned_of_weights", False)
    model, x = torch.nn.MultiheadAttention(8, 2, batch_first=True).train(training), torch.randn(2, 5, 8)
    own = F.multi_head_attention_forward
    with redblue.use():
        with pytest.warns(UserWarning, match="need_weights=False"):
            model(x, x, x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model(x, x, x)
    assert not calls and F.multi_head_attention_forward is own


@pytest.mark.filterwarnings("ignore")
def test_what_is_written_down_for_others_is_torchs_own(calls):
    x = torch.randn(1, 2, 5, 4)
    model = Attends()
    want = model(x)
    with redblue.use():
        scripted, traced = torch.jit.script(model), torch.jit.trace(model, x, check_trace=False)
        heads = torch.jit.script(torch.nn.MultiheadAttention(8, 2))
        exported = [torch.export.export(model, (x,), strict=strict) for strict in (False, True)]
        assert not calls
        model(x)
        assert len(calls) == 1
    for program in (scripted, traced):
        assert "aten::scaled_dot_product_attention" in str(program.graph)
        torch.testing.assert_close(program(x), want)
    for program in exported:
        assert torch.ops.aten.scaled_dot_product_attention.default in [node.target for node in program.graph.nodes]
        torch.testing.assert_close(program.module()(x), want)
    y = torch.randn(5, 1, 8)
    assert heads(y, y, y)[0].shape == y.shape


@pytest.mark.filterwarnings("ignore")
def test_a_causal_bias_is_known_to_torchs_own_function_too():
    """It has no memory of its own, and compares calls with what stands in torch.nn.functional."""
    from torch.nn.attention.bias import CausalBias, causal_lower_right

    class Model(torch.nn.Module):
        def forward(self, q, k):
            return F.scaled_dot_product_attention(q, k, k, causal_lower_right(5, 7))

    q, k = torch.randn(1, 2, 5, 4), torch.randn(1, 2, 7, 4)
    own, dispatch = F.scaled_dot_product_attention, vars(CausalBias)["__torch_function__"]
    want = Model()(q, k)
    with redblue.use():
        for f in (Model(), torch.jit.trace(Model(), (q, k), check_trace=False), lambda q, k: own(q, k, k, causal_lower_right(5, 7))):
            torch.testing.assert_close(f(q, k), want)
    assert vars(CausalBias)["__torch_function__"] is dispatch


def test_torchs_compiler_is_not_imported_for_redblue():
    """It takes longer than all else. A CausalBias, whose module imports it, is known to torch's own function all the same."""
    program = """
import sys, torch, redblue, redblue.torch
own = torch.nn.functional.scaled_dot_product_attention
q, k = torch.randn(1, 2, 5, 4), torch.randn(1, 2, 7, 4)
redblue.torch.attention(q, k, k)
for _ in range(2):
    with redblue.use():
        torch.nn.functional.scaled_dot_product_attention(q, k, k)
with redblue.use():
    assert "torch._dynamo" not in sys.modules
    from torch.nn.attention import bias
    mask = bias.causal_lower_right(5, 7)
    ours = own(q, k, k, mask)
assert "_replaced" not in vars(bias.CausalBias)["__torch_function__"].__func__.__module__
torch.testing.assert_close(ours, own(q, k, k, mask))
with redblue.use():
    torch.testing.assert_close(ours, own(q, k, k, mask))
assert not [finder for finder in sys.meta_path if type(finder).__name__ == "OnImport"]
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


def test_a_function_that_was_kept_works_after_the_block(calls):
    with redblue.use():
        kept = F.scaled_dot_product_attention
    x = torch.randn(1, 2, 5, 4)
    traced = torch.jit.trace(lambda x: kept(x, x, x), x, check_trace=False)
    assert not calls
    torch.testing.assert_close(kept(x, x, x), traced(x))
    assert len(calls) == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [False, True])
def test_onnx_has_an_operator_for_it(dynamo, tmp_path):
    onnx = pytest.importorskip("onnx")
    if dynamo:
        pytest.importorskip("onnxscript")
    x = torch.randn(1, 2, 5, 4)
    with redblue.use():
        torch.onnx.export(Attends(), (x,), str(tmp_path / "model.onnx"), dynamo=dynamo)
    nodes = onnx.load(tmp_path / "model.onnx").graph.node
    assert {node.domain for node in nodes} == {""} and "MatMul" in [node.op_type for node in nodes]


def test_compiled_before_and_in_a_block(calls):
    x = torch.randn(1, 2, 5, 4)
    model = torch.compile(Attends(), backend="aot_eager", fullgraph=True)
    want = model(x)
    with redblue.use():
        torch.testing.assert_close(model(x), want)
    assert len(calls) == 1
    model(x)
    assert len(calls) == 1


def test_vmap_around_a_block_and_inside(calls):
    def f(x):
        with redblue.use():
            return F.scaled_dot_product_attention(x, x, x, is_causal=True)

    x = torch.randn(3, 1, 2, 5, 4)
    want = torch.stack([F.scaled_dot_product_attention(y, y, y, is_causal=True) for y in x])
    torch.testing.assert_close(torch.func.vmap(f)(x), want)
    with redblue.use():
        torch.testing.assert_close(torch.func.vmap(lambda y: F.scaled_dot_product_attention(y, y, y, is_causal=True))(x), want)
    assert len(calls) == 2
    inputs = x.clone().requires_grad_()  # gradients of each, through the mapped call
    (got,) = torch.autograd.grad(torch.func.vmap(f)(inputs).square().sum(), inputs)
    (wanted,) = torch.autograd.grad(torch.stack([F.scaled_dot_product_attention(y, y, y, is_causal=True) for y in inputs]).square().sum(), inputs)
    torch.testing.assert_close(got, wanted)
