"""Second derivatives for tensors of torch: torch.func, forward_ad, create_graph and torch.compile, against plain attention.

Skipped where torch is missing.
"""

import math

import pytest

torch = pytest.importorskip("torch")

import redblue.torch  # noqa: E402

forward_ad, func, leaves = torch.autograd.forward_ad, torch.func, torch.utils._pytree.tree_leaves
pytestmark = pytest.mark.usefixtures("hardware")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)
    torch.set_num_threads(1)


def arrays():
    """q, k, v, two query heads to a head of keys, and directions like them."""
    shapes = ((2, 4, 5, 3), (2, 2, 6, 3), (2, 2, 6, 2))
    return [torch.randn(s, dtype=torch.float64) for s in shapes], [torch.randn(s, dtype=torch.float64) for s in shapes]


def finite(o, lse):
    return o, torch.where(lse == -math.inf, 0.0, lse)


def ours(q, k, v, **options):
    return finite(*redblue.attention(q, k, v, return_lse=True, **options))


def plain(q, k, v):
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return torch.softmax(s, -1) @ v, torch.logsumexp(s, -1)


def loss_of(attend):
    def loss(q, k, v):
        o, lse = attend(q, k, v)
        return o.square().sum() + (lse**3).sum()

    return loss


ALL = (0, 1, 2)
TRANSFORMS = {
    "grad": lambda f, x, t: func.grad(loss_of(f), ALL)(*x),
    "jvp": lambda f, x, t: func.jvp(f, tuple(x), tuple(t)),
    "jvp along q alone": lambda f, x, t: func.jvp(lambda q: f(q, *x[1:]), (x[0],), (t[0],)),
    "grad of grad times v": lambda f, x, t: func.grad(
        lambda *x: sum((g * d).sum() for g, d in zip(func.grad(loss_of(f), ALL)(*x), t)), ALL
    )(*x),
    "jvp of grad": lambda f, x, t: func.jvp(func.grad(loss_of(f), ALL), tuple(x), tuple(t)),
    "grad of jvp": lambda f, x, t: func.grad(lambda *x: func.jvp(loss_of(f), x, tuple(t))[1], ALL)(*x),
    "hessian": lambda f, x, t: func.hessian(loss_of(f), (0, 2))(*x),
    "jacrev": lambda f, x, t: func.jacrev(f, ALL)(*x),
    "jacfwd": lambda f, x, t: func.jacfwd(f, ALL)(*x),
    "jacrev of jacfwd": lambda f, x, t: func.jacrev(func.jacfwd(loss_of(f)))(*x),
    "jacrev of jacrev": lambda f, x, t: func.jacrev(func.jacrev(loss_of(f)))(*x),
    "vmap over tangents": lambda f, x, t: func.vmap(lambda d: func.jvp(lambda q: f(q, *x[1:]), (x[0],), (d,))[1])(
        torch.stack([t[0], x[0]])
    ),
    "vmap over Hessian-vector products": lambda f, x, t: func.vmap(
        lambda d: func.jvp(func.grad(loss_of(f), ALL), tuple(x), (d, *t[1:]))[1], in_dims=1
    )(torch.stack([t[0], x[0]], 1)),
    "vmap of hessian": lambda f, x, t: func.vmap(lambda *x: func.hessian(loss_of(f))(*(y[None] for y in x)))(*x),
    "jvp of vmap": lambda f, x, t: func.jvp(
        func.vmap(lambda *x: tuple(y[0] for y in f(*(y[None] for y in x)))), tuple(x), tuple(t)
    ),
    "what moves of gradients": lambda f, x, t: moving_gradients(f, x, t),
    "many gradients, differentiated": lambda f, x, t: of_many(f, x),
}


def needing_gradients(x):
    return [y.clone().requires_grad_() for y in x]


def moving_gradients(f, x, t):
    with forward_ad.dual_level():
        inputs = [forward_ad.make_dual(y, d) for y, d in zip(needing_gradients(x), t)]
        return [forward_ad.unpack_dual(g).tangent for g in torch.autograd.grad(loss_of(f)(*inputs), inputs)]


def of_many(f, x):
    inputs = needing_gradients(x)
    o, _ = f(*inputs)
    do = torch.linspace(-1, 1, 3 * o.numel(), dtype=o.dtype).reshape(3, *o.shape).requires_grad_()
    found = torch.autograd.grad(o, inputs, do, is_grads_batched=True, create_graph=True)
    return torch.autograd.grad(sum(g.square().sum() for g in found), [*inputs, do])


def close(got, want):
    got, want = leaves(got), leaves(want)
    assert len(got) == len(want) > 0
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_those_of_plain_attention(name):
    x, t = arrays()
    close(TRANSFORMS[name](ours, x, t), TRANSFORMS[name](plain, x, t))


def test_gradients_of_what_moves_after_the_level_has_ended():
    """Of torch's own softmax they fail: "modified by an inplace operation"."""
    x, t = arrays()
    inputs = needing_gradients(x)
    with forward_ad.dual_level():
        dual = ours(*(forward_ad.make_dual(y, d) for y, d in zip(inputs, t)))
        o, lse = (forward_ad.unpack_dual(y).tangent for y in dual)
    want = lambda *x: (lambda o, lse: o.sin().sum() + lse.square().sum())(*func.jvp(plain, x, tuple(t))[1])
    close(torch.autograd.grad(o.sin().sum() + lse.square().sum(), inputs), func.grad(want, ALL)(*x))


CASES = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"window": (2, 1)},
    "softcap": {"softcap": 1.5},
    "dropout": {"dropout": 0.3, "seed": 7},
    "packed": {"cu_seqlens_q": [0, 2, 5], "cu_seqlens_k": [0, 3, 6]},
    "padded": {"seqused_k": [4, 0]},
    "tokens first": {"layout": "bshd"},
    "a small cache": {"M": 120},
    "pattern": {"pattern": "longformer"},
    "bias": {"bias": (4, 5, 6)},
    "mask": {"bias": "bool"},
    "alibi": {"alibi_slopes": (4,), "causal": True},
    "sinks": {"sinks": (4,)},
}


def case_of(name):
    """Inputs that require gradients, and the function of them."""
    options, (x, _) = dict(CASES[name]), arrays()
    if name == "tokens first":
        x = [y.transpose(1, 2).contiguous() for y in x]
    for key in ("bias", "alibi_slopes", "sinks"):
        if isinstance(options.get(key), tuple):
            options[key] = torch.rand(options[key], dtype=torch.float64)
    if name == "mask":
        options["bias"] = torch.rand(2, 1, 5, 6) < 0.6
        options["bias"][:, :, 1] = False  # a query that sees nothing
    if name == "pattern":
        options["pattern"] = redblue.patterns.longformer(5, 6, 1, 1, 1)
    return needing_gradients(x), lambda *x: ours(*x, **options)


@pytest.mark.parametrize("name", CASES)
def test_gradcheck_forward_and_batched(name):
    x, f = case_of(name)
    assert torch.autograd.gradcheck(f, x, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True)


@pytest.mark.parametrize("name", CASES)
def test_gradgradcheck_in_both_orders(name):
    x, f = case_of(name)
    assert torch.autograd.gradgradcheck(f, x, check_fwd_over_rev=True, check_batched_grad=True, fast_mode=True)


BIASES = {
    "of all": ((2, 4, 5, 6), {}),
    "of queries and keys": ((5, 6), {"causal": True}),
    "of keys": ((2, 1, 1, 6), {"dropout": 0.3, "seed": 7}),
    "of heads and queries": ((4, 5, 1), {"sinks": (4,)}),
    "one number": ((1,), {"sinks": (4,)}),
    "under a softcap": ((5, 6), {"softcap": 1.5}),
    "a small cache": ((4, 5, 6), {"M": 120, "seqused_k": [4, 0]}),
    "packed": ((1, 5, 6), {"cu_seqlens_q": [0, 2, 5], "cu_seqlens_k": [0, 3, 6]}),
    "pattern": ((2, 1, 5, 6), {"pattern": "longformer"}),
}


def case_of_bias(name):
    """Inputs that require gradients, a bias the last of them, and the function of them."""
    (shape, options), (x, _) = BIASES[name], arrays()
    options = dict(options)
    if "sinks" in options:
        options["sinks"] = torch.rand(options["sinks"], dtype=torch.float64)
    if name == "packed":
        x = [y[:1] for y in x]
    if name == "pattern":
        options["pattern"] = redblue.patterns.longformer(5, 6, 1, 1, 1)
    return needing_gradients([*x, torch.randn(shape, dtype=torch.float64)]), lambda *x: ours(*x[:3], bias=x[3], **options)


@pytest.mark.parametrize("name", BIASES)
def test_a_bias_is_differentiated_as_q_k_and_v_are(name):
    x, f = case_of_bias(name)
    assert torch.autograd.gradcheck(f, x, check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(f, x, check_fwd_over_rev=True, check_batched_grad=True, fast_mode=True)
    x = [y.detach() for y in x]
    loss = lambda *x: loss_of(lambda *_: f(*x))(*x[:3])
    close(func.hessian(loss, (0, 3))(*x), func.jacrev(func.jacrev(loss, (0, 3)), (0, 3))(*x))


def test_a_moving_bias_is_that_of_plain_attention():
    x, t = arrays()
    bias, moved = (torch.randn(4, 5, 6, dtype=torch.float64) for _ in range(2))

    def with_bias(q, k, v, bias):
        k, v = (y.repeat_interleave(2, 1) for y in (k, v))
        s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + bias
        return torch.softmax(s, -1) @ v, torch.logsumexp(s, -1)

    our = lambda q, k, v, bias: ours(q, k, v, bias=bias)
    for f in (lambda f: func.jvp(f, (*x, bias), (*t, moved)), lambda f: func.jvp(lambda bias: f(*x, bias), (bias,), (moved,))):
        close(f(our), f(with_bias))
    loss = lambda f: lambda *y: (lambda o, lse: o.sin().sum() + (lse**3).sum())(*f(*y))
    every = (0, 1, 2, 3)
    for second in (
        lambda f: func.jvp(func.grad(loss(f), every), (*x, bias), (*t, moved)),
        lambda f: func.grad(lambda *y: sum((g * d).sum() for g, d in zip(func.grad(loss(f), every)(*y), (*t, moved))), every)(*x, bias),
        lambda f: func.grad(lambda *y: func.jvp(loss(f), y, (*t, moved))[1], every)(*x, bias),
        lambda f: func.grad(lambda bias: func.grad(loss(f))(*x, bias).square().sum())(bias),
        lambda f: func.hessian(lambda bias: loss(f)(*x, bias))(bias),
        lambda f: func.vmap(lambda d: func.jvp(func.grad(loss(f), every), (*x, bias), (*t, d))[1])(torch.stack([moved, bias])),
    ):
        close(second(our), second(with_bias))


SINKS = {
    "with a bias": {"causal": True, "bias": (4, 5, 1)},
    "dropout and a softcap": {"dropout": 0.3, "seed": 7, "softcap": 1.5},
    "padded, with a small cache": {"M": 120, "seqused_k": [4, 0]},
    "packed": {"cu_seqlens_q": [0, 2, 5], "cu_seqlens_k": [0, 3, 6]},
}


def case_of_sinks(name):
    """Inputs that require gradients, sinks the last of them, or a bias behind them, and the function of them."""
    options, (x, _) = dict(SINKS[name]), arrays()
    shape = options.pop("bias", None)
    if name == "packed":
        x = [y[:1] for y in x]
    x.append(torch.randn(4, dtype=torch.float64))
    if shape is not None:
        x.append(torch.randn(shape, dtype=torch.float64))
    return needing_gradients(x), lambda q, k, v, sinks, bias=None: ours(q, k, v, sinks=sinks, bias=bias, **options)


@pytest.mark.parametrize("name", SINKS)
def test_sinks_are_differentiated_as_q_k_and_v_are(name):
    x, f = case_of_sinks(name)
    assert torch.autograd.gradcheck(f, x, check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(f, x, check_fwd_over_rev=True, check_batched_grad=True, fast_mode=True)
    x = [y.detach() for y in x]
    loss = lambda *x: loss_of(lambda *_: f(*x))(*x[:3])
    close(func.hessian(loss, (0, 3))(*x), func.jacrev(func.jacrev(loss, (0, 3)), (0, 3))(*x))


def test_moving_sinks_are_those_of_plain_attention():
    x, t = arrays()
    sinks, moved = (torch.randn(4, dtype=torch.float64) for _ in range(2))

    def with_sinks(q, k, v, sinks):
        k, v = (y.repeat_interleave(2, 1) for y in (k, v))
        s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        s = torch.cat([s, sinks.view(1, 4, 1, 1).expand(2, 4, 5, 1)], -1)
        return torch.softmax(s, -1)[..., :-1] @ v, torch.logsumexp(s, -1)

    our = lambda q, k, v, sinks: ours(q, k, v, sinks=sinks)
    loss = lambda f: lambda *y: (lambda o, lse: o.sin().sum() + (lse**3).sum())(*f(*y))
    every = (0, 1, 2, 3)
    for transform in (
        lambda f: func.jvp(f, (*x, sinks), (*t, moved)),
        lambda f: func.jvp(lambda sinks: f(*x, sinks), (sinks,), (moved,)),
        lambda f: func.jvp(func.grad(loss(f), every), (*x, sinks), (*t, moved)),
        lambda f: func.grad(lambda *y: sum((g * d).sum() for g, d in zip(func.grad(loss(f), every)(*y), (*t, moved))), every)(*x, sinks),
        lambda f: func.grad(lambda *y: func.jvp(loss(f), y, (*t, moved))[1], every)(*x, sinks),
        lambda f: func.grad(lambda sinks: func.grad(loss(f))(*x, sinks).square().sum())(sinks),
        lambda f: func.hessian(lambda sinks: loss(f)(*x, sinks))(sinks),
        lambda f: func.vmap(lambda d: func.jvp(func.grad(loss(f), every), (*x, sinks), (*t, d))[1])(torch.stack([moved, sinks])),
    ):
        close(transform(our), transform(with_sinks))


@pytest.mark.parametrize("name", CASES)
def test_a_hessian_has_the_same_numbers_in_both_orders(name):
    x, f = case_of(name)
    x = [y.detach() for y in x]
    close(func.hessian(loss_of(f), (0, 1))(*x), func.jacrev(func.jacrev(loss_of(f), (0, 1)), (0, 1))(*x))


def test_torchs_signature_has_them_too():
    (q, _, _), (t, _, _) = arrays()
    f = lambda q: torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).square().sum()
    with redblue.use():
        got = func.jvp(func.grad(f), (q,), (t,))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        close(got, func.jvp(func.grad(f), (q,), (t,)))


def test_flops_are_those_of_the_products():
    from torch.utils.flop_counter import FlopCounterMode

    inputs = needing_gradients(arrays()[0])
    with FlopCounterMode(display=False) as counted:
        (first,) = torch.autograd.grad(ours(*inputs)[0].sum(), inputs[0], create_graph=True)
        torch.autograd.grad(first.sum(), inputs)
    pairs = 2 * 4 * 5 * 6  # d = 3, d_v = 2: forward, the gradients, and those of gradients
    assert counted.get_total_flops() == 2 * pairs * (3 + 2 + 3 * 3 + 2 * 2 + 10 * 3 + 7 * 2)


def test_derivatives_hold_the_patterns_that_a_call_made():
    (q, _, _), _ = arrays()
    made = lambda: redblue.patterns.window(5, 5, 1, 1)
    f = lambda q: redblue.attention(q, q, q, pattern=made()).square().sum()
    windowed = lambda q: redblue.attention(q, q, q, window=(1, 1)).square().sum()
    close(func.hessian(f)(q), func.hessian(windowed)(q))


def test_a_gradient_of_a_bias_may_move_along_that_of_o():
    (q, k, v), _ = arrays()
    bias, do, moved = (torch.randn(s, dtype=torch.float64) for s in ((4, 5, 6), (2, 4, 5, 2), (2, 4, 5, 2)))
    _, vjp = func.vjp(lambda bias: redblue.attention(q, k, v, bias=bias), bias)
    close(func.jvp(vjp, (do,), (moved,))[1], vjp(moved))


def test_what_is_not_computed_is_refused():
    (q, k, v), (t, _, _) = arrays()
    loss = lambda q: loss_of(ours)(q, k, v)
    penalty = lambda q: func.grad(loss)(q).square().sum()
    with pytest.raises(redblue.Unsupported, match="third derivatives .*sdpa_kernel"):
        func.grad(lambda q: func.grad(penalty)(q).square().sum())(q)
    with pytest.raises(redblue.Unsupported, match="third derivatives .*sdpa_kernel"):
        func.jvp(func.grad(penalty), (q,), (t,))
    with pytest.raises(redblue.Unsupported, match="tangents of tangents .* gradient of a tangent"):
        func.jvp(lambda q: func.jvp(loss, (q,), (t,))[1], (q,), (t,))
    slopes = torch.rand(4, dtype=torch.float64)
    with pytest.raises(redblue.Unsupported, match="tangents of alibi_slopes are not computed"):
        func.jacfwd(lambda x: ours(q, k, v, alibi_slopes=x)[0].sum())(slopes)
    with pytest.raises(redblue.Unsupported, match="vmap with a gradient or a direction of sinks"):
        func.vmap(lambda q: func.grad(lambda sinks: ours(q, k, v, sinks=sinks)[0].sum())(slopes))(torch.stack([q, q]))
    with pytest.raises(redblue.Unsupported, match="alibi_slopes is not computed"):
        func.grad(lambda x: ours(q, k, v, alibi_slopes=x)[0].sum())(slopes)
    polynomial = lambda q: redblue.attention(q, k, v, approximate="2:4.0").square().sum()
    with pytest.raises(redblue.Unsupported, match="of approximations"):
        func.hessian(polynomial)(q)
    with pytest.raises(redblue.Unsupported, match="tangents of approximations"):
        func.jvp(polynomial, (q,), (t,))


@pytest.mark.parametrize("name", ["grad", "jvp", "jvp of grad", "grad of jvp"])
def test_transforms_inside_compiled_code(name):
    x, t = arrays()
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, t: TRANSFORMS[name](ours, x, t), backend="aot_eager")
    close(compiled(x, t), TRANSFORMS[name](ours, x, t))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="compiles no autograd.Function with a jvp"):
        torch.compile(lambda x, t: TRANSFORMS[name](ours, x, t), backend="aot_eager", fullgraph=True)(x, t)


def test_torch_compiles_no_double_backward():
    """PyTorch's own refusal, of any compiled function; docs/python.md says what works in its place."""
    inputs = needing_gradients(arrays()[0])
    torch._dynamo.reset()
    compiled = torch.compile(loss_of(ours), backend="aot_eager")
    (first,) = torch.autograd.grad(compiled(*inputs), inputs[0], create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        torch.autograd.grad(first.square().sum(), inputs)
    torch._dynamo.reset()
    traced = torch.compile(loss_of(ours), backend="eager")  # Dynamo alone
    (first,) = torch.autograd.grad(traced(*inputs), inputs[0], create_graph=True)
    (want,) = torch.autograd.grad(loss_of(plain)(*inputs), inputs[0], create_graph=True)
    close(torch.autograd.grad(first.square().sum(), inputs), torch.autograd.grad(want.square().sum(), inputs))
