"""Gradients of queries whose bias holds nothing but huge numbers: those of the maths, as torch's math path in fp64 has them."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import program  # noqa: E402
import redblue  # noqa: E402

pytestmark = pytest.mark.usefixtures("hardware")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)
    torch.set_num_threads(1)


def gradients_of_math(do, inputs, bias, **options):
    q, k, v = (x.detach().double().requires_grad_() for x in inputs)
    bias = bias.detach().double().requires_grad_()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, bias, **options)
    return torch.autograd.grad(o, (q, k, v, bias), do.double())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("n_k", [7, 300])
def test_rows_of_lowest_numbers(dtype, layout, n_k):
    inputs = [torch.randn(2, 4, n, 8, dtype=dtype) for n in (5, n_k, n_k)]
    bias = torch.randn(2, 1, 5, n_k, dtype=dtype)
    bias[0, :, 1] = bias[1, :, 3] = torch.finfo(dtype).min
    bias[1, :, 4, : n_k // 2] = torch.finfo(dtype).min
    bias[0, :, 1, 0] = -torch.inf  # n is the number of the others
    turned = [(x.transpose(1, 2) if layout == "bshd" else x).requires_grad_() for x in inputs]
    bias.requires_grad_()
    o = redblue.attention(*turned, bias=bias, layout=layout)
    do = torch.randn(2, 4, 5, 8, dtype=dtype)
    got = torch.autograd.grad(o, (*turned, bias), do.transpose(1, 2) if layout == "bshd" else do)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 4e-2}[dtype]
    wanted = gradients_of_math(do, inputs, bias)
    for g, w in zip((*(x.transpose(1, 2) if layout == "bshd" else x for x in got[:3]), got[3]), wanted):
        torch.testing.assert_close(g.double(), w, rtol=0, atol=tolerance)


@pytest.mark.parametrize("lowest", [-1e4, -1e9, -1e30, 1e9])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"pattern": "tril"}, {"sinks": True}, {"dropout": True}, {"M": 200}], ids=str)
def test_rows_of_any_huge_number(lowest, options):
    q, k, v = (torch.randn(2, 4, 9, 8, requires_grad=True) for _ in range(3))
    bias = torch.zeros(2, 1, 9, 9)
    bias[:, :, ::2] = lowest
    wide = bias
    if options:
        options = dict(options)
        if "causal" in options or "pattern" in options:
            wide = bias.masked_fill(~torch.ones(9, 9).tril().bool(), -torch.inf)
        if "pattern" in options:
            options["pattern"] = redblue.patterns.mask(np.tri(9, dtype=bool))
        if "sinks" in options:
            options["sinks"] = torch.full((4,), -torch.inf)  # of no weight
        if "dropout" in options:
            options = {"dropout": 0.3, "seed": 3}
    o = redblue.attention(q, k, v, bias=bias, **options)
    do = torch.randn_like(o)
    if "dropout" in options:
        one = torch.eye(9).expand(2, 4, 9, 9)
        kept = redblue.attention(q.detach(), k.detach(), one, **options) != 0
        want = (torch.softmax(q @ k.mT / 8**0.5 + wide, -1) * kept / 0.7) @ v
    else:  # scores are rounded beside a huge bias in torch as they are in redblue
        want = torch.softmax(q @ k.mT / 8**0.5 + wide, -1) @ v
    for g, w in zip(torch.autograd.grad(o, (q, k, v), do), torch.autograd.grad(want, (q, k, v), do)):
        torch.testing.assert_close(g, w, rtol=0, atol=5e-3 if lowest == -1e4 else 1e-5)


@pytest.mark.parametrize("options", [{"compute": "f64"}, {"M": 4}, {"M": 40}, {"memory": 400}], ids=str)
def test_arithmetic_and_least_fast_memory(options):
    """The pass that adds up the weights needs more than gradients do: then it has a plan of its own."""
    q, k, v, do = (torch.randn(1, 2, 6, 8) for _ in range(4))
    bias = torch.zeros(6, 6)
    bias[2], bias[4] = torch.finfo(torch.float32).min, -1e9
    o, lse = redblue.attention(q, k, v, bias=bias, return_lse=True, **options)
    got = redblue.attention_backward(do, q, k, v, o, lse, bias=bias, **options)
    if options != {"compute": "f64"}:
        bias[4] = torch.finfo(torch.float32).min  # in fp32 scores vanish beside -1e9, too
    for g, w in zip(got[:3], gradients_of_math(do, (q, k, v), bias)):
        torch.testing.assert_close(g.double(), w, rtol=0, atol=1e-5)


PLACED = {
    "causal": {"causal": True},
    "top-left": {"causal": True, "alignment": "top-left"},
    "a number": {"causal": True, "alignment": 1},
    "window": {"window": (3, 1)},
    "dilation": {"window": (2, 0), "dilation": 2},
    "alibi": {"alibi_slopes": np.full(4, 0.5, np.float32)},
    "packed": {"cu_seqlens_q": [0, 2, 6], "cu_seqlens_k": [0, 3, 7]},
    "in use": {"seqused_q": [3, 5], "seqused_k": [4, 6], "causal": True},
    "padded": {"seqused_k": [4, 6]},
}


@pytest.mark.parametrize("case", PLACED)
@pytest.mark.parametrize("first", [False, True])
def test_weights_of_a_row_add_up_to_1(case, first):
    """The sum over dv of do = 1 is that of all weights: the number of rows that see a key."""
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((2, h, n, 8), dtype=np.float32) for h, n in ((4, 6), (2, 7), (2, 7)))
    bias = np.zeros((6, 7), np.float32)
    bias[1::2] = np.finfo(np.float32).min
    options = {**PLACED[case], "bias": bias, "layout": "bshd" if first else "bhsd"}
    q, k, v = ((x.swapaxes(1, 2) for x in (q, k, v)) if first else (q, k, v))
    o, lse = redblue.attention(q, k, v, return_lse=True, **options)
    dv = redblue.attention_backward(np.ones_like(o), q, k, v, o, lse, **options).dv
    np.testing.assert_allclose(dv.sum() / 8, np.isfinite(lse).sum(), rtol=1e-5)


def test_sequences_of_other_offsets():
    rng = np.random.default_rng(1)
    q, k, v, do = (rng.standard_normal((2, 1, 5, 4), dtype=np.float32) for _ in range(4))
    bias = np.zeros((5, 5), np.float32)
    bias[3] = np.finfo(np.float32).min
    o, lse = redblue.attention(q, k, v, return_lse=True, bias=bias, causal=True, seqused_k=[3, 5])
    got = redblue.attention_backward(do, q, k, v, o, lse, bias=bias, causal=True, seqused_k=[3, 5])
    for i, n_k in enumerate((3, 5)):  # query r sees keys up to n_k - 5 + r
        hidden = ~torch.ones(5, n_k).tril(n_k - 5).bool()
        mask = torch.from_numpy(bias)[:, :n_k].masked_fill(hidden, -torch.inf)
        some = hidden.all(-1)
        mask[some] = 0  # math gives NaN there
        inputs = [torch.from_numpy(x[i : i + 1]) for x in (q, k[:, :, :n_k], v[:, :, :n_k])]
        wanted = gradients_of_math(torch.from_numpy(do[i : i + 1]).masked_fill(some[:, None], 0), inputs, mask)
        for g, w in zip(got[:3], wanted):
            np.testing.assert_allclose(g[i : i + 1, :, : w.shape[2]], w, rtol=0, atol=1e-5)


SECOND = {
    "plain": {},
    "least fast memory": {"M": 60},
    "causal": {"causal": True},
    "sinks": {"sinks": torch.full((4,), -torch.inf)},  # of no weight
    "tokens first": {"layout": "bshd"},
}


@pytest.mark.parametrize("case", SECOND)
@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("with_lse", [False, True])
def test_gradients_of_gradients(case, size, with_lse):
    """size 100: huge scores, of which lse is known to 1e-3, beside rows of lowest numbers."""
    options = SECOND[case]
    q, k, v, do, *g = (torch.randn(1, 4, 7, 8) for _ in range(7))
    bias, dlse = torch.randn(7, 7), torch.randn(1, 4, 7)
    bias[2::3] = torch.finfo(torch.float32).min
    q, k = size * q, size * k
    seen = torch.ones(7, 7).tril().bool() if "causal" in options else torch.ones(7, 7).bool()
    dlse[:, :, 2::3] = 0  # lse of these rows is a constant in fp32

    def second(inputs, attention):
        q, k, v, do, bias = (x.detach().requires_grad_() for x in inputs)
        o, lse = attention(q, k, v, bias)
        first = torch.autograd.grad((o * do).sum() + ((lse * dlse.to(lse)).sum() if with_lse else 0), (q, k, v, bias), create_graph=True)
        along = (*g, 0.1 * torch.ones_like(bias).tril(1) * (bias.detach() > -100))
        return torch.autograd.grad(sum((x * y.to(x)).sum() for x, y in zip(first, along)), (q, k, v, do, bias))

    def ours(q, k, v, bias):
        turned = [x.transpose(1, 2) if "layout" in options else x for x in (q, k, v)]
        o, lse = redblue.attention(*turned, bias=bias, return_lse=True, **options)
        return (o.transpose(1, 2) if "layout" in options else o), lse

    def math(q, k, v, bias):
        scores = (q @ k.mT / 8**0.5 + bias).masked_fill(~seen, -torch.inf)
        return torch.softmax(scores, -1) @ v, torch.where(bias[:, :1].T > -100, torch.logsumexp(scores, -1), 0)[0]

    wanted = second([x.double() for x in (q, k, v, do, bias)], math)
    for a, w in zip(second((q, k, v, do, bias), ours), wanted):
        torch.testing.assert_close(a.double(), w, rtol=0, atol=1e-4 if size == 1 else 3e-4 * size)


def test_of_numpy_too():
    rng = np.random.default_rng(1)
    q, k, v, do = (rng.standard_normal((1, 2, 6, 4), dtype=np.float32) for _ in range(4))
    bias = np.zeros((6, 6), np.float32)
    bias[2] = np.finfo(np.float32).min
    o, lse = redblue.attention(q, k, v, bias=bias, return_lse=True)
    wanted = gradients_of_math(torch.from_numpy(do), [torch.from_numpy(x) for x in (q, k, v)], torch.from_numpy(bias))
    for given in ((o, lse), (None, None)):
        got = redblue.attention_backward(do, q, k, v, *given, bias=bias, bias_gradient=True)
        for g, w in zip(got, wanted):
            np.testing.assert_allclose(g, w, rtol=0, atol=1e-5)


WITH_JAX = {
    "plain": {},
    "fewest words": {"M": 200},
    "least fast memory": {"M": 40},
    "causal": {"causal": True},
    "tokens first": {"layout": "bshd"},
    "sinks": {"sinks": np.array([-np.inf, 0.5, -np.inf, 2], np.float32)},
    "lse": {"return_lse": True},
    "16 bits": {"dtype": "bfloat16"},
    "no such row": {"lowest": -3.0},
}


@pytest.mark.parametrize("case", WITH_JAX)
@pytest.mark.parametrize("jit", [False, True])
def test_of_jax_as_of_torch(case, jit):
    jax = pytest.importorskip("jax")
    import redblue.jax as rj

    options = dict(WITH_JAX[case])
    dtype, sinks = options.pop("dtype", "float32"), options.pop("sinks", None)
    bias = torch.randn(2, 1, 9, 9)
    bias[:, :, ::2] = options.pop("lowest", torch.finfo(torch.float32).min)
    inputs = [*(torch.randn(2, heads, 9, 8) for heads in (4, 2, 2)), bias]
    do, dlse = torch.randn(2, 4, 9, 8), torch.randn(2, 4, 9)
    if options.get("layout") == "bshd":
        inputs[:3], do = [x.transpose(1, 2) for x in inputs[:3]], do.transpose(1, 2)
    theirs = [x.to(getattr(torch, dtype)).requires_grad_() for x in inputs]

    def loss(attention, sinks, do, dlse, *x):
        found = attention(*x[:3], bias=x[3], **({} if sinks is None else {"sinks": sinks}), **options)
        if not options.get("return_lse"):
            return (do * found).sum()
        return (do * found[0]).sum() + (dlse * found[1] * (abs(found[1]) < 100)).sum()

    of_torch = None if sinks is None else torch.from_numpy(sinks)
    wanted = torch.autograd.grad(loss(redblue.attention, of_torch, do, dlse, *theirs), theirs)
    gradients = jax.grad(lambda *x: loss(rj.attention, sinks, do.numpy(), dlse.numpy(), *x), (0, 1, 2, 3))
    got = (jax.jit(gradients) if jit else gradients)(*(jax.numpy.asarray(x.detach().float().numpy(), dtype) for x in theirs))
    for g, w in zip(got, wanted):
        np.testing.assert_allclose(np.asarray(g, np.float32), w.float().numpy(), rtol=0, atol=1e-5 if dtype == "float32" else 4e-2)


def test_jax_refuses_what_it_cannot_add_up():
    jax = pytest.importorskip("jax")
    import redblue.jax as rj

    q = jax.numpy.ones((1, 3, 4))
    with pytest.raises(redblue.Unsupported, match="jax_enable_x64"):
        jax.grad(lambda b: rj.attention(q, q, q, bias=b, compute="f64").sum())(jax.numpy.zeros((3, 3)))


def test_parts_of_the_keys_refuse_such_rows():
    """Each weight of such a row is 1 by its lse; that they are of n keys only all parts together know."""
    q, k, v, do = (torch.randn(1, 2, 6, 4) for _ in range(4))
    bias = torch.zeros(6, 6)
    bias[2] = torch.finfo(torch.float32).min
    o, lse = redblue.attention(q, k, v, bias=bias, return_lse=True)
    part = lambda do: redblue.attention_partial_backward(do, q, k[:, :, :3], v[:, :, :3], o, lse, bias=bias[:, :3])
    with pytest.raises(redblue.Unsupported, match="huge numbers.*all parts"):
        part(do)
    do[:, :, 2] = 0
    wanted = gradients_of_math(do, (q, k, v), bias)
    torch.testing.assert_close(part(do).dv.double(), wanted[2][:, :, :3], rtol=0, atol=1e-5)


@program.needs_program
@pytest.mark.parametrize("forward_given", [False, True])
def test_the_program_says_that_it_has_such_rows(tmp_path, forward_given):
    rng = np.random.default_rng(1)
    x = {name: rng.standard_normal((1, 2, 6, 4), dtype=np.float32) for name in ("q", "k", "v", "do")}
    x["bias"] = np.zeros((6, 6), np.float32)
    x["bias"][2] = np.finfo(np.float32).min
    if forward_given:
        x["o"], x["lse"] = redblue.attention(x["q"], x["k"], x["v"], bias=x["bias"], return_lse=True)

    def said():
        np.savez(tmp_path / "x.npz", **x)
        return program.redblue(
            "run", "--op", "backward", "--M", "400", "--input", "x.npz", "--output", "y.npz", "--quiet", cwd=tmp_path, check=True
        ).stderr

    text = said()
    assert "the bias of 2 queries" in text and "rows of do to 0" in text, text
    x["do"][:, :, 2] = 0
    assert said() == ""
    x["do"][:, :, 2] = 1
    x["bias"] = x["bias"] == 0
    if forward_given:
        x["o"], x["lse"] = redblue.attention(x["q"], x["k"], x["v"], bias=x["bias"], return_lse=True)
    assert said() == ""
