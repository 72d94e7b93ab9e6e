"""redblue.torch: the operators, their gradients, and what replaces torch's own function. Skipped where torch is missing."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from process import run_python  # noqa: E402

import redblue  # noqa: E402
import redblue.torch as rt  # noqa: E402
from redblue._torch import attention as operators  # noqa: E402

pytestmark = pytest.mark.usefixtures("hardware")
SDPA, OURS = F.scaled_dot_product_attention, rt._replaced.function
TOLERANCE = {torch.float64: 1e-12, torch.float32: 5e-6, torch.float16: 5e-3, torch.bfloat16: 4e-2}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)
    torch.set_num_threads(1)  # OpenMP's threads wait for each other for long where other programs run


def tensors(*shapes, dtype=torch.float32, grad=True):
    return [torch.randn(shape, dtype=dtype).requires_grad_(grad) for shape in shapes]


def masks(n_q, n_k):
    keep = torch.rand(n_q, n_k) < 0.7
    keep[:, 0] = True
    return {"none": None, "bool": keep, "padding": keep[:1].expand(2, 1, n_q, n_k), "float": torch.randn(2, 1, n_q, n_k)}


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("mask", ["none", "bool", "padding", "float", "causal"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_as_torch_computes_it(dtype, mask, kv_heads):
    """Output and gradients against torch's math path in fp64."""
    inputs = tensors((2, 4, 17, 8), (2, kv_heads, 19, 8), (2, kv_heads, 19, 8), dtype=dtype)
    options = {"is_causal": True} if mask == "causal" else {"attn_mask": masks(17, 19)[mask]}
    if mask == "float":
        options["attn_mask"] = options["attn_mask"].to(dtype)
    o = redblue.scaled_dot_product_attention(*inputs, enable_gqa=True, **options)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    if mask == "float":
        options["attn_mask"] = options["attn_mask"].double()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        want = SDPA(*wide, enable_gqa=True, **options)
    assert o.dtype == dtype and o.shape == want.shape
    torch.testing.assert_close(o.double(), want, rtol=0, atol=TOLERANCE[dtype])
    do = torch.randn_like(want)
    got = torch.autograd.grad(o, inputs, do.to(dtype))
    for g, w in zip(got, torch.autograd.grad(want, wide, do)):
        assert g.dtype == dtype
        torch.testing.assert_close(g.double(), w, rtol=0, atol=8 * TOLERANCE[dtype])


def test_gradcheck():
    q, k, v, bias = tensors((1, 4, 5, 4), (1, 2, 6, 4), (1, 2, 6, 3), (1, 4, 5, 6), dtype=torch.float64)
    sinks = torch.randn(4, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda *x: rt.attention(*x, causal=True, window=(4, -1)), (q, k, v))
    torch.autograd.gradcheck(
        lambda q, k, v, b, s: rt.attention(q, k, v, bias=b, sinks=s, softcap=2.0, dropout=0.2, seed=5),
        (q, k, v, bias, sinks),
    )


def seen_by(kind, n_q, n_k):
    """A pattern, or one for each of 4 heads, and what it shows, [n_q, n_k] or [4, n_q, n_k]."""
    make = redblue.patterns
    masks = torch.rand(4, n_q, n_k) < 0.4
    rows, cols = masks[0].nonzero(as_tuple=True)
    indptr = np.searchsorted(rows.numpy(), np.arange(n_q + 1))
    near = (torch.arange(n_q)[:, None] + n_k - n_q - torch.arange(n_k)).abs() <= 2
    return {
        "window": (make.window(n_q, n_k, 2, 2), near),
        "csr": (make.csr(n_q, n_k, indptr, cols.numpy()), masks[0]),
        "mask": (make.mask(masks[0].numpy()), masks[0]),
        "heads": ([make.mask(m.numpy()) for m in masks], masks),
    }[kind]


@pytest.mark.parametrize("order", [None, "natural"])
@pytest.mark.parametrize("kind", ["window", "csr", "mask", "heads"])
def test_gradients_of_patterns(kind, order):
    """As those of a bool mask, whose schedules know nothing of patterns."""
    pattern, mask = seen_by(kind, 9, 11)
    inputs = tensors((2, 4, 9, 8), (2, 2, 11, 8), (2, 2, 11, 8), dtype=torch.float64)
    want = rt.attention(*inputs, bias=mask)
    got = rt.attention(*inputs, pattern=pattern, order=order)
    del pattern  # the graph keeps it
    torch.testing.assert_close(got, want)
    do = torch.randn_like(want)
    for g, w in zip(torch.autograd.grad(got, inputs, do), torch.autograd.grad(want, inputs, do)):
        torch.testing.assert_close(g, w)


def test_gradients_of_polynomials_and_in_another_arithmetic():
    inputs = [(0.3 * x).detach().requires_grad_() for x in tensors(*[(1, 2, 6, 4)] * 3, dtype=torch.float64)]
    torch.autograd.gradcheck(lambda *x: rt.attention(*x, approximate="2:0.8"), inputs)
    exact = torch.autograd.grad(rt.attention(*inputs).sum(), inputs)
    half = torch.autograd.grad(rt.attention(*inputs, compute="f32").sum(), inputs)
    for g, w in zip(half, exact):
        torch.testing.assert_close(g, w, rtol=0, atol=1e-5)
        assert not torch.equal(g, w)


def test_patterns_under_compile_break_the_graph_and_give_the_same():
    step = lambda q, k, v, p: redblue.attention(q, k, v, pattern=p).sin().sum()
    inputs = tensors((1, 4, 9, 8), (1, 4, 11, 8), (1, 4, 11, 8))
    compiled = torch.compile(step, backend="aot_eager")
    for kind in ("window", "csr"):  # the second has the same type as the first
        pattern, _ = seen_by(kind, 9, 11)
        got = torch.autograd.grad(compiled(*inputs, pattern), inputs)
        for g, w in zip(got, torch.autograd.grad(step(*inputs, pattern), inputs)):
            torch.testing.assert_close(g, w)
    with pytest.raises(Exception, match="disable"):
        torch.compile(lambda q: redblue.attention(q, q, q, pattern=pattern), fullgraph=True)(inputs[1])


@pytest.mark.parametrize("name", ["q", "k", "lse", "bias"])
def test_scores_and_weights_refuse_what_requires_gradients(name):
    arrays = {"q": torch.randn(1, 2, 5, 4), "k": torch.randn(1, 2, 5, 4), "bias": torch.randn(5, 5)}
    _, lse = redblue.attention(arrays["q"], arrays["k"], arrays["k"], bias=arrays["bias"], return_lse=True)
    wanted = redblue.weights(lse=lse, **arrays)
    arrays["lse"] = lse
    arrays[name].requires_grad_()
    with pytest.raises(redblue.Unsupported, match="^weights has no gradients.*detach.*attention"):
        redblue.weights(**arrays)
    with torch.no_grad():
        assert torch.equal(redblue.weights(**arrays), wanted)
    del arrays["lse"]
    if name != "lse":
        with pytest.raises(redblue.Unsupported, match="^scores has no gradients"):
            redblue.scores(**arrays)


def test_a_pattern_that_is_gone_is_refused():
    (q,) = tensors((1, 2, 9, 8))
    numbers = operators.numbers_of(redblue.patterns.window(9, 9, 1, 1)).clone()  # as compiled code has them
    with pytest.raises(redblue.InvalidProblem, match="deleted"):
        operators._forward_op(*(numbers if name == "pattern" else x for name, x in zip(operators.NAMES, (q, q, q, *(None,) * 3, *operators._arguments()))))


def test_gradients_are_those_of_the_options_that_the_forward_pass_had():
    q, k, v = tensors((9, 2, 4), (9, 2, 4), (9, 2, 3))
    given = {"cu_seqlens_q": torch.tensor([0, 4, 9]), "cu_seqlens_k": np.array([0, 4, 9]), "window": [2, 0], "seed": torch.tensor(3)}
    options = {"layout": "bshd", "dropout": 0.2}
    o = rt.attention(q, k, v, **options, **given)
    wanted = torch.autograd.grad(o.sum(), (q, k, v), retain_graph=True)
    for name, changed in (("cu_seqlens_q", 2), ("cu_seqlens_k", 2), ("window", 1)):
        given[name][1] = changed
    given["seed"].fill_(4)
    for g, w in zip(torch.autograd.grad(o.sum(), (q, k, v)), wanted):
        assert torch.equal(g, w)


@pytest.fixture
def products_of_bf16(monkeypatch):
    """As on a machine that multiplies bf16 fast."""
    monkeypatch.setattr(redblue._call.calls._core, "bf16_is_faster", lambda: True)
    monkeypatch.setattr(redblue._call.calls, "_calls", {})


@pytest.mark.parametrize("case", ["plain", "biased", "packed", "patterned", "approximate", "bf16"])
def test_opcheck(case, request):
    arrays = (None,) * 3
    q, k, v = tensors((1, 4, 5, 4), (1, 2, 6, 4), (1, 2, 6, 3))
    options = {"causal": True, "alignment": 0, "window": (3, -1), "scale": 0.5, "softcap": 1.0}
    if case == "approximate":
        options = {"alignment": 0, "scale": 0.5, "approximate": "2:0.8"}
    elif case == "packed":
        q, k, v = tensors((9, 2, 4), (9, 2, 4), (9, 2, 3))
        ends = torch.tensor([0, 4, 9], dtype=torch.int32)
        options = {"layout": "bshd", "causal": True, "cu_seqlens_q": ends, "cu_seqlens_k": ends}
    elif case == "patterned":
        options |= {"order": "natural", "compute": "f64", "pattern": redblue.patterns.window(5, 6, 2, 0)}
    elif case == "biased":
        arrays = (*tensors((4, 5, 6)), None, *tensors((4,)))
    elif case == "bf16":
        request.getfixturevalue("products_of_bf16")
        q, k, v = tensors(*[(2, 4, 8, 8)] * 3, dtype=torch.bfloat16)
        options = {"causal": True, "alignment": 0}
    torch.library.opcheck(torch.ops.redblue.attention.default, (q, k, v, *arrays, *operators._arguments(**options)))


def test_gradients_of_bf16_do_not_depend_on_the_strides_of_do(products_of_bf16):
    inputs = tensors(*[(2, 4, 8, 8)] * 3, dtype=torch.bfloat16)
    o = redblue.attention(*inputs)
    gradients = lambda do: torch.autograd.grad(o, inputs, do, retain_graph=True)
    for do in (torch.randn(8, 1).bfloat16().expand_as(o), torch.randn(2, 4, 8, 8).bfloat16().mT):
        assert all(map(torch.equal, gradients(do), gradients(do.clone(memory_format=torch.contiguous_format))))


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_flops_are_those_of_torchs_attention(layout):
    """Torch's formulas are of its fused attention on GPUs; they take [batch, heads, n, features]."""
    count = torch.utils.flop_counter
    shapes = (2, 4, 5, 8), (2, 2, 6, 8), (2, 2, 6, 3)
    inputs = tensors(*shapes)
    if layout == "bshd":
        inputs = [x.transpose(1, 2) for x in inputs]
    with count.FlopCounterMode(display=False) as counter:
        o = redblue.attention(*inputs, layout=layout, causal=True)
    assert counter.get_total_flops() == count.sdpa_flop_count(*shapes) > 0
    with count.FlopCounterMode(display=False) as counter:
        o.sum().backward()
    assert counter.get_total_flops() == count.sdpa_backward_flop_count((2, 4, 5, 3), *shapes) > 0


def test_compile_without_a_graph_break():
    def step(q, k, v, mask):
        o = redblue.scaled_dot_product_attention(q, k, v, mask) + redblue.scaled_dot_product_attention(q, k, v, is_causal=True)
        return (o + redblue.flash_attn_func(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)).sum()

    inputs = tensors((1, 2, 6, 4), (1, 2, 6, 4), (1, 2, 6, 4))
    mask = torch.randn(6, 6)
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    got = torch.autograd.grad(compiled(*inputs, mask), inputs)
    for g, w in zip(got, torch.autograd.grad(step(*inputs, mask), inputs)):
        torch.testing.assert_close(g, w)


def test_use_replaces_torchs_function_and_gives_it_back():
    model = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    x = torch.randn(2, 9, 16)
    want = model(x, x, x, need_weights=False)[0]
    with redblue.use(), redblue.use():
        assert F.scaled_dot_product_attention is OURS
        got = model(x, x, x, need_weights=False)[0]
    assert F.scaled_dot_product_attention is SDPA
    torch.testing.assert_close(got, want)
    redblue.install()
    redblue.install()
    assert F.scaled_dot_product_attention is OURS
    redblue.uninstall()
    assert F.scaled_dot_product_attention is SDPA
    with pytest.raises(ZeroDivisionError), redblue.use():
        1 / 0
    assert F.scaled_dot_product_attention is SDPA


def test_use_may_overlap():
    first, second = redblue.use(), redblue.use()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert F.scaled_dot_product_attention is OURS
    second.__exit__(None, None, None)
    assert F.scaled_dot_product_attention is SDPA
    redblue.install()
    with redblue.use():
        pass
    assert F.scaled_dot_product_attention is OURS
    redblue.uninstall()


def test_install_in_a_block_lasts_and_uninstall_waits_for_its_end():
    with redblue.use():
        redblue.install()
    assert F.scaled_dot_product_attention is OURS
    redblue.uninstall()
    assert F.scaled_dot_product_attention is SDPA
    redblue.install()
    with redblue.use():
        redblue.uninstall()
        with redblue.use():
            pass
        assert F.scaled_dot_product_attention is OURS
    assert F.scaled_dot_product_attention is SDPA


class Attends(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.keys = torch.nn.Parameter(torch.randn(2, 1, 7, 4))

    def forward(self, q, v, mask):
        causal = F.scaled_dot_product_attention(q, self.keys, v, is_causal=True, scale=0.3)
        return causal + F.scaled_dot_product_attention(q, v, value=v, attn_mask=mask)


def test_fx_records_the_call():
    """A traced module calls redblue's function, also outside of a block, and a proxy may stand at any place."""
    module = Attends()
    q, v = tensors((2, 1, 7, 4), (2, 1, 7, 4), grad=False)
    mask = torch.rand(7, 7) < 0.7
    want = module(q, v, mask)
    with redblue.use():
        traced = torch.fx.symbolic_trace(module)
        only_mask = torch.fx.symbolic_trace(module, concrete_args={"q": q, "v": v})
    calls = [node.target for node in traced.graph.nodes if node.op == "call_function"]
    assert calls.count(rt.scaled_dot_product_attention) == 2 and SDPA not in calls
    torch.testing.assert_close(traced(q, v, mask), want)
    assert rt.scaled_dot_product_attention in [node.target for node in only_mask.graph.nodes]


@pytest.mark.parametrize("n_k", [5, 8])
def test_causal_bias(n_k):
    """A tensor without memory of its own."""
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    q, k, v = torch.randn(1, 4, 5, 8), torch.randn(1, 4, n_k, 8), torch.randn(1, 4, n_k, 8)
    for bias in (causal_upper_left(5, n_k), causal_lower_right(5, n_k)):
        torch.testing.assert_close(rt.scaled_dot_product_attention(q, k, v, bias), SDPA(q, k, v, bias))
    with pytest.raises(redblue.InvalidProblem, match="CausalBias"):
        rt.scaled_dot_product_attention(q, k, v, causal_upper_left(5, n_k), is_causal=True)


def test_slopes_of_each_packed_sequence():
    q = torch.randn(11, 2, 4, dtype=torch.float64, requires_grad=True)
    slopes, at = torch.rand(2, 2, dtype=torch.float64), torch.tensor([0, 4, 11], dtype=torch.int32)
    o = redblue.flash_attn_varlen_func(q, q, q, at, at, 7, 7, alibi_slopes=slopes)
    parts = [redblue.flash_attn_func(q[None, a:b], q[None, a:b], q[None, a:b], alibi_slopes=s)[0]
             for a, b, s in zip(at[:-1], at[1:], slopes)]
    torch.testing.assert_close(o, torch.cat(parts))
    torch.testing.assert_close(torch.autograd.grad(o.sum(), q), torch.autograd.grad(torch.cat(parts).sum(), q))
    with pytest.raises(torch._dynamo.exc.Unsupported, match="slopes of each packed sequence: cu_seqlens is read"):
        torch.compile(lambda q: redblue.flash_attn_varlen_func(q, q, q, at, at, alibi_slopes=slopes), fullgraph=True)(q)


def test_keys_out_of_use_of_packed_sequences_have_no_gradient():
    at, used = torch.tensor([0, 4, 11], dtype=torch.int32), torch.tensor([3, 5], dtype=torch.int32)
    q, k, v = (torch.randn(11, 2, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    slopes = torch.rand(2, 2, dtype=torch.float64)
    call = lambda **options: redblue.flash_attn_varlen_func(q, k, v, at, at, 7, 7, causal=True, seqused_k=used, **options)
    do = torch.randn(11, 2, 4, dtype=torch.float64)
    for options, of_each in (({}, (None, None)), ({"alibi_slopes": slopes}, slopes)):
        alone = [
            redblue.flash_attn_func(q[None, a:b], k[None, a : a + n], v[None, a : a + n], causal=True, alibi_slopes=one)[0]
            for a, b, n, one in zip(at[:-1], at[1:], used, of_each)
        ]
        o, want = call(**options), torch.cat(alone)
        torch.testing.assert_close(o, want)
        g, expected = (torch.autograd.grad(x, (q, k, v), do) for x in (o, want))
        torch.testing.assert_close(g, expected)
        for dx in g[1:]:
            assert not dx[3].any() and not dx[9:].any() and dx[:3].any() and dx[4:9].any()
    compiled = torch.compile(call, fullgraph=True)()
    torch.testing.assert_close(compiled, call())


def test_training_follows_the_same_curve():
    """A small transformer, trained with torch's function and with redblue's."""

    def losses():
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        head = torch.nn.Linear(32, 8)
        parameters = [*layer.parameters(), *head.parameters()]
        optimiser = torch.optim.SGD(parameters, lr=0.1)
        data, labels = torch.randn(4, 24, 32), torch.randint(8, (4, 24))
        mask = torch.nn.Transformer.generate_square_subsequent_mask(24)
        curve = []
        for _ in range(20):
            optimiser.zero_grad()
            loss = F.cross_entropy(head(layer(data, src_mask=mask, is_causal=True)).flatten(0, 1), labels.flatten())
            loss.backward()
            optimiser.step()
            curve.append(loss.item())
        return curve

    theirs = losses()
    with redblue.use():
        ours = losses()
    assert ours[-1] < ours[0] - 0.1
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


def test_dropout_follows_torchs_generator():
    (x,) = tensors((1, 2, 16, 8))
    outputs = []
    for s in (3, 3, 4):
        torch.manual_seed(s)
        outputs.append(redblue.scaled_dot_product_attention(x, x, x, dropout_p=0.3))
    assert torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[0], outputs[2])


def test_tensors_come_back_as_tensors_without_gradients_too():
    q, k, v = tensors((2, 2, 6, 4), (2, 2, 6, 4), (2, 2, 6, 4), dtype=torch.bfloat16, grad=False)
    o, lse = redblue.attention(q, k, v, return_lse=True)
    assert o.dtype == torch.bfloat16 and lse.dtype == torch.float32
    out = torch.empty_like(q)
    assert redblue.attention(q, k, v, out=out) is out and torch.equal(out, o)
    pattern = redblue.patterns.mask(np.eye(6))
    assert torch.equal(redblue.attention(q, k, v, pattern=pattern), v)
    assert redblue.explain(q, k, v).tensors == "bf16"
    gradients = redblue.attention_backward(o, q, k, v, o, lse)
    assert gradients.dq.dtype == torch.bfloat16


def test_refusals():
    q, k, v = tensors((2, 2, 6, 4), (2, 2, 6, 4), (2, 2, 6, 4))
    for options, error, text in (
        ({"out": torch.empty_like(q)}, redblue.Unsupported, "out"),
        ({"pattern": np.eye(6)}, redblue.InvalidProblem, r"ndarray: redblue.patterns makes patterns"),
        ({"schedule": "flash"}, redblue.Unsupported, "schedule"),
        ({"tolerance": 0.1}, redblue.Unsupported, "tolerance"),
        ({"approximate": "2:0.8", "return_lse": True}, redblue.InvalidProblem, "no lse"),
        ({"bias": np.zeros((6, 6), np.float32)}, TypeError, "bias"),
        ({"bias": torch.zeros(5, 6)}, redblue.InvalidProblem, "bias"),
        ({"alibi_slopes": torch.ones(2, requires_grad=True)}, redblue.Unsupported, "alibi_slopes"),
    ):
        with pytest.raises((error, RuntimeError), match=text):
            redblue.attention(q, k, v, **options).sum().backward()
    plain = q.detach()
    with pytest.raises(TypeError, match="one kind"):
        redblue.attention(plain, plain.numpy(), plain)
    with pytest.raises(TypeError, match="dense"):
        redblue.attention(plain[0].to_sparse(), plain[0], plain[0])
    with pytest.raises(TypeError, match="complex"):
        redblue.attention(plain.cfloat(), plain.cfloat(), plain.cfloat())
    with pytest.raises(TypeError, match="meta"):
        redblue.attention(plain.to("meta"), plain, plain)


def test_negated_views_are_read_as_torch_shows_them():
    q, k, v = (torch.randn(1, 2, 5, 4, dtype=torch.cfloat).conj().imag for _ in range(3))
    assert q.is_neg()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        want = SDPA(q, k, v)
    torch.testing.assert_close(redblue.attention(q, k, v), want)
    with pytest.raises(TypeError, match="negated"):
        redblue.attention(q.clone(), k, v, out=q)


def test_traces_hold_the_call_and_not_its_result():
    f = lambda q: redblue.scaled_dot_product_attention(q, q, q, is_causal=True) + redblue.attention(q, q, q)
    traced = torch.jit.trace(f, torch.randn(1, 2, 5, 4))
    x = torch.randn(1, 2, 5, 4)
    assert torch.equal(traced(x), f(x))
    exported = torch.export.export(type("Model", (torch.nn.Module,), {"forward": lambda self, q: f(q)})(), (x,)).module()
    assert torch.equal(exported(x), f(x))


def test_meta_tensors_give_shapes_and_mixtures_are_refused():
    q = torch.randn(1, 2, 5, 4)
    m = q.to("meta")
    o, lse = redblue.attention(m, m, m, return_lse=True)
    assert o.is_meta and o.shape == q.shape and lse.shape == q.shape[:-1]
    grad = q.clone().requires_grad_()
    for arrays, options in (((grad, q, m), {}), ((m, q, q), {}), ((grad, q, q), {"bias": torch.zeros(5, 5, device="meta")})):
        with pytest.raises(TypeError, match="meta"):
            redblue.attention(*arrays, **options)
    with pytest.raises(TypeError, match="ndarray"):
        redblue.attention(grad, q, q.numpy())
    with pytest.raises(TypeError, match="out is a Tensor on a device"):
        redblue.attention(*[q.numpy()] * 3, out=m)
    with torch.device("meta"):  # where new tensors go; not where q is
        assert torch.equal(redblue.attention(q, q, q), redblue.attention(grad, q, q, cu_seqlens_q=[0, 5], cu_seqlens_k=[0, 5]))
        assert redblue.scaled_dot_product_attention(q, q, q, dropout_p=0.1).is_cpu
    with torch._subclasses.fake_tensor.FakeTensorMode() as mode:
        assert redblue.attention(*[mode.from_tensor(q)] * 3).shape == q.shape


def test_meta_tensors_are_judged_as_others_are():
    def meta(*shape, dtype=torch.float32):
        return torch.empty(shape, device="meta", dtype=dtype)

    q, k = meta(2, 4, 10, 8), meta(2, 2, 12, 8)
    empty = meta(2, 2, 0, 8)
    fits = {"bias": meta(4, 1, 12), "sinks": meta(4), "alibi_slopes": meta(2, 4), "causal": True, "dropout": 0.1, "seed": 1}
    assert redblue.attention(q, k, k, **fits).shape == redblue.attention(q, empty, empty).shape == q.shape
    for (q_, k_, v_), options, text in (
        ((q, meta(2, 2, 12, 7), k), {}, "features of k and q"),
        ((q, meta(2, 3, 12, 8), meta(2, 3, 12, 8)), {}, "heads = 4 is not a multiple of kv_heads = 3"),
        ((meta(2, 4, 10, 0), meta(2, 4, 10, 0), meta(2, 4, 10, 3)), {}, "d = 0"),
        ((q, k, meta(2, 2, 11, 8)), {}, "sequence of v and k"),
        ((q, k, k), {"bias": meta(3, 10, 12)}, "does not broadcast"),
        ((q, k, k), {"sinks": meta(3)}, r"sinks is \[3\]"),
        ((q, empty, empty), {"bias": meta(10, 9)}, r"bias is \[10, 9\]"),
        ((q, k, k), {"window": (-3, 1)}, "window"),
    ):
        with pytest.raises(redblue.InvalidProblem, match=text):
            redblue.attention(q_, k_, v_, **options)
    with pytest.raises(TypeError, match="one type"):
        redblue.attention(q, k, meta(2, 2, 12, 8, dtype=torch.float64))
    with pytest.raises(TypeError, match="int32"):
        redblue.attention(*[meta(2, 2, 12, 8, dtype=torch.int32)] * 3)


def test_autograd_sees_what_out_overwrites():
    for written in (lambda x, w: redblue.attention(x, x, x, out=w), lambda x, w: redblue.attention_backward(
        x, x, x, x, out=redblue.Gradients(torch.empty_like(x), w, torch.empty_like(x))
    )):  # fmt: skip
        x, w = torch.randn(1, 2, 3, 4, requires_grad=True), torch.randn(1, 2, 3, 4)
        y = (x * w).sum()
        written(torch.randn(1, 2, 3, 4), w)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()
    q = torch.randn(1, 2, 3, 4)
    out = torch.empty_like(q, requires_grad=True)
    with pytest.raises(TypeError, match=r"out requires a gradient.*out.detach\(\)"):
        redblue.attention(q, q, q, out=out)
    with torch.no_grad():
        assert redblue.attention(q, q, q, out=out) is out
    assert torch.equal(out, redblue.attention(q, q, q))


def test_a_mask_has_a_gradient_without_products():
    q, k, v = tensors((1, 2, 5, 4), (1, 2, 6, 4), (1, 2, 6, 3), dtype=torch.float64)
    (mask,) = tensors((5, 6), dtype=torch.float64)
    do = torch.randn(1, 2, 5, 3, dtype=torch.float64)
    got, want = (
        torch.autograd.grad(f(q, k, v, attn_mask=mask, scale=0.0), (q, k, v, mask), do)
        for f in (redblue.scaled_dot_product_attention, SDPA)
    )
    for g, w in zip(got, want):
        torch.testing.assert_close(g, w, rtol=0, atol=1e-12)


def test_tensors_of_mkldnn_are_refused_wherever_they_stand():
    (x,) = tensors((1, 1, 8, 4), grad=False)
    redblue.attention(x, x, x)
    for place in range(3):
        arrays = [x.to_mkldnn() if place == i else x for i in range(3)]
        for f in (redblue.attention, redblue.scaled_dot_product_attention):
            with pytest.raises(TypeError, match="to_dense"):
                f(*arrays)


def test_tensors_are_read_alike_by_the_core_and_by_their_attributes(monkeypatch):
    """By DLPack's C functions, where torch has them, and through Python: the same addresses, sizes, strides and types."""
    import redblue._call.torch_arrays as arrays

    base = torch.randn(3, 9, 2, 20)
    given = [
        (base[1:, 2:, :, 3:11].transpose(1, 2),) * 3,
        (base[:1, ::2, :, ::2].transpose(1, 2),) * 3,
        (base[:, :, 1:, :4].expand(3, 9, 4, 4),) * 3,
        (base[0], base[1], base[2]),
        (torch.randn(1, 1, 1, 5), torch.randn(1, 1, 7, 5), torch.randn(1, 1, 7, 1)),
        (torch.nn.Parameter(torch.randn(4, 5)),) * 3,
    ]
    for type in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        for qkv in given:
            qkv = [x.to(type) for x in qkv]
            found = []
            for by_core in (arrays._READ_BY_CORE, False):
                monkeypatch.setattr(arrays, "_READ_BY_CORE", by_core)
                with torch.no_grad():
                    found.append(redblue.attention(*qkv, bias=torch.randn(1).to(type) * 0, return_lse=True))
            for x, y in zip(*found):
                assert x.dtype == y.dtype and torch.equal(x, y)
    assert arrays._core.read_by_exchange(int) is False


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_tensors_are_refused_by_name_at_every_call():
    x = torch.randn(20, 16)
    redblue.attention(x, x, x)
    for _ in range(2):
        for f in (redblue.attention, redblue.scaled_dot_product_attention):
            with pytest.raises(TypeError, match="q is no dense tensor .*to_dense|q has no dense memory"):
                f(x.to_sparse_csr(), x, x)
            with pytest.raises(TypeError, match="v is no dense tensor|v has no dense memory of its own"):
                f(x, x, x.to_sparse())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused_by_name(dtype):
    for layout in (torch.strided, torch.jagged):
        x = torch.nested.nested_tensor([torch.randn(2, 3, 4), torch.randn(2, 3, 4)], layout=layout, dtype=dtype)
        for f in (redblue.attention, redblue.scaled_dot_product_attention, redblue.flash_attn_func):
            with pytest.raises(TypeError, match="is a nested tensor: give .*cu_seqlens"):
                f(x, x, x)


@pytest.mark.parametrize("grad", [False, True])
def test_autocast_is_that_of_torchs_function(grad):
    q, k, v = tensors((1, 2, 5, 4), (1, 2, 6, 4), (1, 2, 6, 4), grad=grad)
    for to in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=to):
            for mask in (None, torch.randn(5, 6), torch.rand(5, 6) < 2):
                want = SDPA(q, k.to(to), v, mask)
                for o in (redblue.scaled_dot_product_attention(q, k.to(to), v, mask), redblue.attention(q, k.to(to), v, bias=mask)):
                    assert o.dtype == want.dtype == to and o.requires_grad == grad
                    torch.testing.assert_close(o, want, rtol=0, atol=0.05)
            assert redblue.attention(q.double(), k.double(), v.double()).dtype == torch.float64


@pytest.mark.parametrize("shapes", [
    ((2, 3, 4, 5, 8), (2, 3, 4, 7, 8)), ((2, 1, 4, 5, 8), (1, 3, 1, 7, 8)), ((4, 5, 8), (2, 4, 7, 8)), ((2, 4, 5, 8), (2, 1, 7, 8)),
    ((2, 1, 5, 8), (2, 4, 7, 8)), ((5, 8), (2, 4, 7, 8)), ((1, 2, 3, 4, 5, 8), (7, 8)), ((0, 4, 5, 8), (0, 4, 7, 8)),
    ((0, 3, 4, 5, 8), (1, 3, 4, 7, 8)), ((2, 4, 5, 8), (2, 4, 0, 8)), ((2, 4, 0, 8), (2, 4, 7, 8)),
], ids=str)  # fmt: skip
def test_shapes_broadcast_as_torchs_do(shapes):
    q, k, v = tensors(shapes[0], shapes[1], shapes[1], dtype=torch.float64)
    front = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    masks = [None, torch.randn(()).double(), torch.rand(5, k.shape[-2]) < 2, torch.randn(*front[-2:], q.shape[-2], 1).double()]
    if len(front) > 2:
        masks.append(torch.randn(*front[:-1], 1, q.shape[-2], k.shape[-2]).double())
    for mask in masks if q.shape[-2] else [None]:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            want = SDPA(q, k, v, mask)
        got = redblue.scaled_dot_product_attention(q, k, v, mask)
        torch.testing.assert_close(got, torch.nan_to_num(want))
        do = torch.randn_like(want)
        for g, w in zip(torch.autograd.grad(got, (q, k, v), do), torch.autograd.grad(want, (q, k, v), do)):
            torch.testing.assert_close(g, torch.nan_to_num(w))


def test_what_would_lose_a_gradient_is_refused():
    (q,) = tensors((1, 2, 5, 4))
    for scale in (torch.tensor(0.5), torch.tensor(0.5, requires_grad=True)):
        for x in (q, q.detach()):
            with pytest.raises(redblue.InvalidProblem, match="scale = tensor"):
                redblue.attention(x, x, x, scale=scale)
    for f in (redblue.attention, redblue.scaled_dot_product_attention):
        with torch.autograd.forward_ad.dual_level():
            assert f(q, q, q).shape == q.shape
    with pytest.raises(TypeError, match="mean 'causal'"):
        redblue.attention(q, q, q, is_causal=True)
    with pytest.raises(redblue.InvalidProblem, match="alignment"):
        redblue.attention(q, q, q, alignment="left")


def test_vmap_of_torchs_signature():
    q = torch.randn(3, 2, 4, 5, 8)
    f = lambda q: redblue.scaled_dot_product_attention(q, q, q, is_causal=True)
    torch.testing.assert_close(torch.func.vmap(f)(q), torch.stack([f(x) for x in q]))


def test_threads_follow_torch():
    from redblue._call.threads import default_threads

    torch.set_num_threads(3)
    assert default_threads() == 3


ON_OPENMP = """
import os, threading, time, numpy as np, torch, redblue
torch.set_num_threads(2)
q = torch.randn(1, 4, 256, 64)
run = lambda: redblue.scaled_dot_product_attention(q, q, q).numpy()
wanted = run()
torch.set_num_threads(1)
assert np.array_equal(run(), wanted)
torch.set_num_threads(2)

def often():
    for _ in range(50):
        assert np.array_equal(run(), wanted)

threads = [threading.Thread(target=often) for _ in range(3)]
for t in threads: t.start()
for t in threads: t.join()
pid = os.fork()
if pid == 0:  # the threads of OpenMP stayed in the parent
    os._exit(0 if np.array_equal(run(), wanted) else 1)
end = time.time() + 60
while (found := os.waitpid(pid, os.WNOHANG))[0] == 0 and time.time() < end:
    time.sleep(0.01)
if found[0] == 0: os.kill(pid, 9)
print(found == (pid, 0))
"""


def test_runs_on_threads_of_openmp_and_not_after_fork():
    assert run_python(ON_OPENMP) == "True"


def _one(i):
    q = torch.full((1, 2, 64, 32), float(i))
    return float(redblue.attention(q, q, q).mean())


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return _one(i)


def test_workers_of_a_data_loader():
    _one(1)
    rows = torch.utils.data.DataLoader(Rows(), num_workers=2, timeout=60)
    np.testing.assert_allclose([float(x) for x in rows], range(6), rtol=1e-5)


@pytest.mark.parametrize("shape", [(2, 4, 5, 8), (4, 5, 8), (5, 8)])
def test_vmap_is_a_loop_over_calls(shape):
    f = lambda q, k, v: redblue.attention(q, k, v, causal=True)
    q, k, v = (torch.randn(3, *shape, dtype=torch.float64) for _ in range(3))
    torch.testing.assert_close(torch.func.vmap(f)(q, k, v), torch.stack([f(*x) for x in zip(q, k, v)]))
    got = torch.func.vmap(f, in_dims=(1, None, 2), out_dims=1)(q.movedim(0, 1), k[0], v.movedim(0, 2))
    torch.testing.assert_close(got, torch.stack([f(x, k[0], y) for x, y in zip(q, v)], 1))


@pytest.mark.parametrize("each", ["one", "head", "batch"])
def test_vmap_with_patterns(each):
    patterns = [redblue.patterns.mask(m.numpy()) for m in torch.rand(8, 5, 5) < 0.5]
    pattern = {"one": patterns[0], "head": patterns[:4], "batch": patterns}[each]
    f = lambda q: redblue.attention(q, q, q, pattern=pattern)
    q = torch.randn(3, 2, 4, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(torch.func.vmap(f)(q), torch.stack([f(x) for x in q]))
    g = lambda q: redblue.attention(0.1 * q, q, q, approximate="2:0.8")
    torch.testing.assert_close(torch.func.vmap(g)(q), torch.stack([g(x) for x in q]))


def test_gradients_of_several_losses_at_once():
    """is_grads_batched maps the backward operator."""
    inputs = [torch.randn(2, 4, 5, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    inputs.append(torch.randn(4, 1, 5, dtype=torch.float64, requires_grad=True))
    o = redblue.attention(*inputs[:3], bias=inputs[3], causal=True)
    do = torch.randn(3, *o.shape, dtype=torch.float64)
    got = torch.autograd.grad(o, inputs, do, is_grads_batched=True, retain_graph=True)
    for i in range(3):
        for mine, wanted in zip(got, torch.autograd.grad(o, inputs, do[i], retain_graph=True)):
            torch.testing.assert_close(mine[i], wanted)


def test_vmap_with_dropout_is_one_call_of_all_batches():
    q = torch.randn(3, 1, 2, 8, 4)
    outputs = []
    for call in (
        lambda: torch.func.vmap(lambda q: redblue.attention(q, q, q, dropout=0.5), randomness="different")(q)[:, 0],
        lambda: redblue.attention(q[:, 0], q[:, 0], q[:, 0], dropout=0.5),
    ):
        torch.manual_seed(3)
        outputs.append(call())
    torch.testing.assert_close(*outputs)


def test_vmap_refuses_what_it_cannot_map():
    q = torch.randn(3, 2, 4, 5, 8)
    with pytest.raises(redblue.Unsupported, match="sinks"):
        torch.func.vmap(lambda q, s: redblue.attention(q, q, q, sinks=s))(q, torch.randn(3, 4))
    with pytest.raises(redblue.Unsupported, match="different"):
        torch.func.vmap(lambda q: redblue.attention(q, q, q, dropout=0.5, seed=3), randomness="same")(q)
    with pytest.raises(redblue.Unsupported, match="over seeds"):
        seeds = torch.tensor([1, 2, 3])
        torch.func.vmap(lambda q, s: redblue.attention(q, q, q, dropout=0.5, seed=s), randomness="different")(q, seeds)
    with pytest.raises(redblue.Unsupported, match="packed"):
        torch.func.vmap(lambda q: redblue.attention(q, q, q, cu_seqlens_q=[0, 2, 5], cu_seqlens_k=[0, 2, 5]))(q[:, :1])


def test_a_refused_out_keeps_its_version():
    q, wrong = torch.randn(1, 2, 5, 4), torch.empty(1, 2, 5, 3)
    given = redblue.attention_backward(q, q, q, q)
    versions = [x._version for x in (wrong, *given[:3])]
    with pytest.raises(redblue.InvalidProblem, match="out is"):
        rt.attention(q, q, q, out=wrong)
    with pytest.raises(redblue.InvalidProblem, match="out.dq is"):
        redblue.attention_backward(q, q, q, q, out=given._replace(dq=wrong))
    assert [x._version for x in (wrong, *given[:3])] == versions
    redblue.attention_backward(q, q, q, q, out=given)
    assert [x._version for x in given[:3]] == [v + 1 for v in versions[1:]]


@pytest.mark.parametrize("compiled", [False, True])
def test_dropout_of_all_weights_gives_0_as_torch_does(compiled):
    q, k, v = tensors((1, 2, 5, 4), (1, 2, 6, 4), (1, 2, 6, 3), dtype=torch.bfloat16)
    results = []
    for f in (SDPA, redblue.scaled_dot_product_attention):
        f = torch.compile(f, backend="aot_eager", fullgraph=True) if compiled and f is not SDPA else f
        o = f(q, k, v, dropout_p=1.0)
        results.append((o, *torch.autograd.grad(o.sum(), (q, k, v))))
    for want, got in zip(*results):
        assert torch.equal(want, got) and (got == 0).all() and got.dtype == want.dtype
    for x in (torch.ones(2, 5, 4).numpy(), torch.ones(5, 4).double().numpy()):
        o = redblue.scaled_dot_product_attention(x, x, x, dropout_p=1.0)
        assert (o == 0).all() and o.shape == x.shape and o.dtype == x.dtype
    with pytest.raises(redblue.InvalidProblem, match="features"):
        redblue.scaled_dot_product_attention(q, k[..., :2], v, dropout_p=1.0)
    with pytest.raises(redblue.InvalidProblem, match="dropout = 1"):
        redblue.flash_attn_func(q, q, q, dropout_p=1.0)


@pytest.fixture
def masks_at_once(monkeypatch):
    """Masks in a bias are recognised at the first call, and small ones too. The list holds what ran: op and is it a mask?"""
    from redblue._call import masks

    for name in ("LEAST_PAIRS", "PRODUCTS_OF_TOKEN", "PRODUCTS_OF_PART"):
        monkeypatch.setattr(masks, name, 0)
    ran, recognised = [], masks.recognised

    def noted(op, r, *rest, **options):
        r, text = recognised(op, r, *rest, **options)
        ran.append((op, r.bias is None))
        return r, text

    monkeypatch.setattr(masks, "recognised", noted)
    return ran


RECOGNISED = {
    "causal": torch.ones(19, 19, dtype=torch.bool).tril(),
    "window": torch.ones(19, 19, dtype=torch.bool).tril().triu(-4),
    "padding": torch.arange(19) < torch.tensor([11, 17])[:, None, None, None],
    "in front": (torch.arange(19) >= torch.tensor([3, 0])[:, None, None, None]) & torch.ones(19, 19, dtype=torch.bool).tril(),
    "documents": torch.arange(19)[:, None] // 7 == torch.arange(19) // 7,
}


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("name", RECOGNISED)
def test_recognised_masks_are_as_torch_computes_them(masks_at_once, name, kind, dtype):
    keep = RECOGNISED[name]
    mask = keep if kind == "bool" else torch.zeros(keep.shape, dtype=dtype).masked_fill(~keep, -torch.inf)
    inputs = tensors((2, 4, 19, 8), (2, 4, 19, 8), (2, 4, 19, 8), dtype=dtype)
    o = redblue.scaled_dot_product_attention(*inputs, attn_mask=mask)
    do = torch.randn_like(o)
    got = o, *torch.autograd.grad(o, inputs, do)
    assert masks_at_once == [("forward", True), ("backward", True)]
    wide = [x.detach().double().requires_grad_() for x in inputs]
    bias = torch.zeros(keep.shape, dtype=torch.double).masked_fill(~keep, -1e30)  # a row that sees nothing is no NaN
    want = SDPA(*wide, attn_mask=bias) * keep.any(-1, keepdim=True)
    want = want, *torch.autograd.grad(want, wide, do.double())
    for g, w in zip(got, want):
        torch.testing.assert_close(g.double(), w, rtol=0, atol=8 * TOLERANCE[dtype])


@pytest.mark.parametrize("name", RECOGNISED)
def test_recognised_masks_compiled_mapped_and_installed(masks_at_once, name):
    inputs = tensors((2, 4, 19, 8), (2, 4, 19, 8), (2, 4, 19, 8), dtype=torch.float64)
    mask = RECOGNISED[name]
    f = lambda q, k, v, m: redblue.scaled_dot_product_attention(q, k, v, attn_mask=m)
    want = f(*inputs, mask)
    want = want, *torch.autograd.grad(want.sum(), inputs)
    masks_at_once.clear()
    o = torch.compile(f, fullgraph=True, backend="aot_eager")(*inputs, mask)
    got = o, *torch.autograd.grad(o.sum(), inputs)
    assert masks_at_once == [("forward", True), ("backward", True)]
    for g, w in zip(got, want):
        torch.testing.assert_close(g, w)
    masks_at_once.clear()
    each = mask if mask.dim() == 4 else mask.expand(2, 1, 19, 19)
    torch.testing.assert_close(torch.func.vmap(f)(*inputs, each), want[0])
    assert masks_at_once == [("forward", True)]
    with redblue.use():
        torch.testing.assert_close(F.scaled_dot_product_attention(*inputs, attn_mask=mask), want[0])


@pytest.mark.parametrize("compiled", [False, True])
def test_masks_that_require_gradients_stay_a_bias(masks_at_once, compiled):
    q = torch.randn(1, 2, 19, 8, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(19, 19, dtype=torch.float64).masked_fill(~RECOGNISED["causal"], -torch.inf).requires_grad_()
    f = lambda q, b: redblue.scaled_dot_product_attention(q, q, q, attn_mask=b)
    f = torch.compile(f, backend="aot_eager") if compiled else f
    dq, dbias = torch.autograd.grad(f(q, bias).square().sum(), (q, bias))
    assert masks_at_once[:1] == [("forward", False)] and not any(mask for _, mask in masks_at_once)
    assert dbias.abs().max() > 0 and (dbias[~RECOGNISED["causal"]] == 0).all()
    with torch.no_grad():
        f(q, bias)
    assert masks_at_once[-1] == ("forward", False)


def test_recognised_masks_drop_the_same_weights(masks_at_once):
    q = torch.randn(2, 4, 19, 8, dtype=torch.float64)
    for mask in RECOGNISED.values():
        got = rt.attention(q, q, q, bias=mask, dropout=0.4, seed=3)
        assert masks_at_once.pop() == ("forward", True)
        want = rt.attention(q, q, q, bias=torch.zeros(mask.shape).masked_fill(~mask, -torch.inf).requires_grad_(), dropout=0.4, seed=3)
        assert masks_at_once.pop() == ("forward", False)
        torch.testing.assert_close(got, want)
