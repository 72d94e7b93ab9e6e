"""The gradient of lse, by which attention to parts of the keys is merged: of torch and of JAX, against plain attention in fp64."""

import numpy as np
import pytest

import redblue

pytestmark = pytest.mark.usefixtures("hardware")
torch = pytest.importorskip("torch")

OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "a row that sees nothing": {"causal": True, "alignment": -1},
    "window": {"window": (2, 1)},
    "softcap": {"softcap": 1.5},
    "dropout": {"dropout": 0.3, "seed": 7},
    "seqused": {"seqused_k": [4, 6]},
    "packed": {"cu_seqlens_q": [0, 2, 5], "cu_seqlens_k": [0, 3, 6]},
    "tokens first": {"layout": "bshd", "causal": True},
    "fewest words": {"M": 200},
}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)
    torch.set_num_threads(1)


def tensors(*shapes, dtype=torch.float64):
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]


def finite(lse):
    """lse of rows that see a key."""
    return lse.masked_fill(lse.isinf(), 0)


@pytest.mark.parametrize("case", OPTIONS)
def test_gradcheck(case):
    options = OPTIONS[case]
    q, k, v = tensors((2, 4, 5, 3), (2, 2, 6, 3), (2, 2, 6, 4))
    if options.get("layout") == "bshd":
        q, k, v = (x.detach().transpose(1, 2).requires_grad_() for x in (q, k, v))

    def both(*x):
        o, lse = redblue.attention(*x, return_lse=True, **options)
        return o, finite(lse)

    torch.autograd.gradcheck(both, (q, k, v))
    torch.autograd.gradcheck(lambda q, k: both(q, k, v)[1], (q, k))  # of lse alone


def test_gradcheck_with_bias_sinks_and_a_pattern():
    q, k, v, bias, sinks = tensors((1, 4, 5, 3), (1, 2, 6, 3), (1, 2, 6, 4), (1, 4, 5, 6), (4,))
    torch.autograd.gradcheck(
        lambda q, k, v, b, s: redblue.attention(q, k, v, bias=b, sinks=s, return_lse=True), (q, k, v, bias, sinks)
    )
    pattern = redblue.patterns.mask(np.tri(5, 6, dtype=bool))
    torch.autograd.gradcheck(lambda *x: redblue.attention(*x, pattern=pattern, return_lse=True), (q, k, v))


def merged(attention, q, k, v):
    """Attention to the keys in two parts, which their lse weigh."""
    parts = [attention(q, k[:, :, a:b], v[:, :, a:b]) for a, b in ((0, 5), (5, 11))]
    weights = torch.stack([lse for _, lse in parts]).softmax(0)
    return sum(w.unsqueeze(-1).to(o.dtype) * o for w, (o, _) in zip(weights, parts))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("compiled", [False, True])
def test_merged_parts_have_the_gradients_of_the_whole(dtype, compiled):
    inputs = tensors((2, 2, 7, 8), (2, 2, 11, 8), (2, 2, 11, 8), dtype=dtype)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    f = lambda *x: merged(lambda *part: redblue.attention(*part, return_lse=True), *x)
    o = (torch.compile(f, backend="aot_eager", fullgraph=True) if compiled else f)(*inputs)
    want = torch.softmax(wide[0] @ wide[1].mT / 8**0.5, -1) @ wide[2]
    do = torch.randn_like(want)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}[dtype]
    torch.testing.assert_close(o.double(), want, rtol=0, atol=tolerance)
    for g, w in zip(torch.autograd.grad(o, inputs, do.to(dtype)), torch.autograd.grad(want, wide, do)):
        assert g.dtype == dtype
        torch.testing.assert_close(g.double(), w, rtol=0, atol=4 * tolerance)


def test_lse_of_16_bits_loses_no_digits_of_its_gradient():
    """dlse is of fp32 where tensors are of bf16. In fp32 arithmetic, only dq is rounded to bf16, once."""
    q, k, v = tensors((1, 1, 4, 8), (1, 1, 6, 8), (1, 1, 6, 8), dtype=torch.bfloat16)
    dlse = torch.randn(1, 1, 4)
    dq, dk = torch.autograd.grad(redblue.attention(q, k, v, return_lse=True, compute="f32")[1], (q, k), dlse)
    wide = [x.detach().double().requires_grad_() for x in (q, k)]
    wanted = torch.autograd.grad(torch.logsumexp(wide[0] @ wide[1].mT / 8**0.5, -1), wide, dlse.double())
    for g, w in zip((dq, dk), wanted):
        torch.testing.assert_close(g.double(), w, rtol=2**-8, atol=1e-6)


def test_several_losses_at_once_and_signatures_of_others():
    inputs = tensors((2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4))
    results = redblue.attention(*inputs, return_lse=True)
    given = [torch.randn(3, *x.shape, dtype=torch.float64) for x in results]
    got = torch.autograd.grad(results, inputs, given, is_grads_batched=True, retain_graph=True)
    for i in range(3):
        for mine, wanted in zip(got, torch.autograd.grad(results, inputs, [x[i] for x in given], retain_graph=True)):
            torch.testing.assert_close(mine[i], wanted)
    both = lambda *x: torch.func.vmap(lambda *y: redblue.attention(*y, return_lse=True))(*x)
    given = [x[0] for x in given]
    mapped = torch.autograd.grad(both(*inputs), inputs, given)
    for mine, wanted in zip(mapped, torch.autograd.grad(results, inputs, given, retain_graph=True)):
        torch.testing.assert_close(mine, wanted)
    q = tensors((1, 5, 2, 4))[0]
    lse = redblue.flash_attn_func(q, q, q, return_attn_probs=True)[1]
    x = q.detach().transpose(1, 2).requires_grad_()
    want = torch.logsumexp(x @ x.mT / 2, -1)
    torch.testing.assert_close(torch.autograd.grad(lse.sum(), q)[0].transpose(1, 2), torch.autograd.grad(want.sum(), x)[0])


@pytest.mark.parametrize("keys", [1, 6])
@pytest.mark.parametrize("shape", [(5, 1), (1,), (2, 1, 5, 1), (1, 4, 1, 1)], ids=str)
@pytest.mark.parametrize("with_sinks", [False, True])
def test_a_bias_that_all_keys_share(keys, shape, with_sinks):
    """Without sinks it changes no weight, but lse."""
    inputs = tensors((2, 4, 5, 3), (2, 2, keys, 3), (2, 2, keys, 4), shape, *[(4,)] * with_sinks)
    options = {"causal": True, "alignment": -1}  # the first query sees no key

    def both(q, k, v, bias, sinks=None, attention=redblue.attention):
        return attention(q, k, v, bias=bias, sinks=sinks, return_lse=True, **options)

    def weighed(*x):
        o, lse = both(*x)
        return o, finite(lse)

    torch.autograd.gradcheck(weighed, inputs)
    o, lse = both(*inputs)
    dlse = torch.randn_like(lse)
    wanted = torch.autograd.grad((finite(lse) * dlse).sum(), inputs[3])[0]
    if shape == (5, 1):
        compiled = torch.compile(lambda *x: both(*x)[1], backend="aot_eager")(*inputs)
        torch.testing.assert_close(torch.autograd.grad((finite(compiled) * dlse).sum(), inputs[3])[0], wanted)
    jax = pytest.importorskip("jax")
    import redblue.jax as rj

    arrays = [x.detach().numpy().astype(np.float32) for x in inputs]
    loss = lambda bias: (jax.numpy.where(lse.isinf().numpy(), 0, both(*arrays[:3], bias, *arrays[4:], attention=rj.attention)[1]) * dlse.numpy()).sum()
    np.testing.assert_allclose(jax.grad(loss)(arrays[3]), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", ["bshd", "bnhd", "shd", "nhd"])
def test_every_name_of_tokens_first(layout):
    """As many heads as tokens: then shapes do not tell one from the other."""
    inputs = tensors((4, 4, 3), (4, 4, 3), (4, 4, 5), dtype=torch.float32)
    if len(layout) == 4:
        inputs = [x.detach()[None].requires_grad_() for x in inputs]
    wanted_of = [x.detach().transpose(-3, -2).requires_grad_() for x in inputs]
    dlse = torch.randn(inputs[0].shape[:-1])
    lse = redblue.attention(*wanted_of, return_lse=True)[1]
    wanted = [g.transpose(-3, -2) for g in torch.autograd.grad(lse, wanted_of[:2], dlse)]
    lse = redblue.attention(*inputs, layout=layout, return_lse=True)[1]
    for g, w in zip(torch.autograd.grad(lse, inputs[:2], dlse), wanted):
        torch.testing.assert_close(g, w)
    jax = pytest.importorskip("jax")
    import redblue.jax as rj

    loss = lambda q, k, v: (rj.attention(q, k, v, layout=layout, return_lse=True)[1] * dlse.numpy()).sum()
    for g, w in zip(jax.grad(loss, argnums=(0, 1))(*(x.detach().numpy() for x in inputs)), wanted):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)


def test_sinks_without_keys_are_refused():
    q, sinks = tensors((1, 2, 3, 4), (2,))
    none = torch.empty(1, 2, 0, 4, dtype=torch.float64)
    lse = redblue.attention(q, none, none, sinks=sinks, return_lse=True)[1]
    with pytest.raises(redblue.Unsupported, match="sinks and no keys"):
        lse.sum().backward()


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("case", OPTIONS)
def test_of_jax_is_that_of_torch(case, jit):
    jax = pytest.importorskip("jax")
    import redblue.jax as rj

    options = dict(OPTIONS[case])
    arrays = tensors((2, 4, 5, 3), (2, 2, 6, 3), (2, 2, 6, 4), (4,), dtype=torch.float32)
    if options.get("layout") == "bshd":
        arrays[:3] = (x.detach().transpose(1, 2).requires_grad_() for x in arrays[:3])
    o, lse = redblue.attention(*arrays[:3], sinks=arrays[3], return_lse=True, **options)
    do, dlse = torch.randn_like(o), torch.randn_like(lse)
    for of_o in (True, False):
        wanted = torch.autograd.grad(((o * do).sum() if of_o else 0) + (lse * dlse).sum(), arrays, retain_graph=True, allow_unused=True)

        def loss(q, k, v, sinks):
            o, lse = rj.attention(q, k, v, sinks=sinks, return_lse=True, **options)
            return ((o * do.numpy()).sum() if of_o else 0) + (lse * dlse.numpy()).sum()

        given = [x.detach().numpy() for x in arrays]
        if "seed" in options:
            options["seed"] = np.int32(options["seed"])
        gradients = jax.grad(loss, argnums=(0, 1, 2, 3))
        for g, w in zip((jax.jit(gradients) if jit else gradients)(*given), wanted):
            np.testing.assert_allclose(g, 0 if w is None else w, rtol=1e-5, atol=1e-5)
