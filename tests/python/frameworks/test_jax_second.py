"""jax.jvp and jax.grad of attention, and both of both, against plain attention. Skipped where JAX is missing."""

import math

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

import redblue  # noqa: E402
import redblue.jax as rj  # noqa: E402

pytestmark = pytest.mark.usefixtures("hardware")
ALL = (0, 1, 2)


@pytest.fixture(autouse=True)
def x64():
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def arrays(seed=0):
    """q, k, v, two query heads to a head of keys."""
    random = np.random.default_rng(seed)
    return tuple(jnp.array(random.standard_normal(s)) for s in ((2, 4, 5, 3), (2, 2, 6, 3), (2, 2, 6, 2)))


def ours(q, k, v, **options):
    o, lse = rj.attention(q, k, v, return_lse=True, **options)
    return o, jnp.where(lse == -jnp.inf, 0.0, lse)


def plain(q, k, v):
    k, v = (jnp.repeat(x, 2, 1) for x in (k, v))
    s = q @ jnp.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    return jax.nn.softmax(s) @ v, jax.nn.logsumexp(s, -1)


def loss_of(attend):
    def loss(q, k, v):
        o, lse = attend(q, k, v)
        return (o**2).sum() + (lse**3).sum()

    return loss


def times(gradients, t):
    return sum((g * d).sum() for g, d in zip(gradients, t))


TRANSFORMS = {
    "jvp": lambda f, x, t: jax.jvp(f, x, t),
    "jvp along q alone": lambda f, x, t: jax.jvp(lambda q: f(q, *x[1:]), x[:1], t[:1]),
    "grad of grad times v": lambda f, x, t: jax.grad(lambda *x: times(jax.grad(loss_of(f), ALL)(*x), t), ALL)(*x),
    "a gradient penalty": lambda f, x, t: jax.grad(lambda *x: (jax.grad(loss_of(f))(*x) ** 2).sum(), ALL)(*x),
    "jvp of grad": lambda f, x, t: jax.jvp(jax.grad(loss_of(f), ALL), x, t),
    "grad of jvp": lambda f, x, t: jax.grad(lambda *x: jax.jvp(loss_of(f), x, t)[1], ALL)(*x),
    "grad of jvp, of its direction too": lambda f, x, t: jax.grad(
        lambda q, d: (jax.jvp(lambda q: f(q, *x[1:])[0], (q,), (d,))[1] ** 2).sum(), (0, 1)
    )(x[0], t[0]),
    "hessian": lambda f, x, t: jax.hessian(loss_of(f), (0, 2))(*x),
    "jacrev of jacrev": lambda f, x, t: jax.jacrev(jax.jacrev(loss_of(f)))(*x),
    "vmap over tangents": lambda f, x, t: jax.vmap(lambda d: jax.jvp(lambda q: f(q, *x[1:]), x[:1], (d,))[1])(
        jnp.stack([t[0], x[0]])
    ),
    "of lse alone": lambda f, x, t: jax.jvp(jax.grad(lambda q: (f(q, *x[1:])[1] ** 2).sum()), x[:1], t[:1]),
    "checkpoint": lambda f, x, t: jax.grad(
        lambda *x: times(jax.grad(jax.checkpoint(loss_of(f)), ALL)(*x), t), ALL
    )(*x),
}


STEP_BY_STEP = ("jvp", "grad of grad times v", "vmap over tangents")  # JAX compiles each step of the others: seconds of CPU


@pytest.mark.parametrize("name, jit", [*((name, True) for name in TRANSFORMS), *((name, False) for name in STEP_BY_STEP)])
def test_transforms_are_those_of_plain_attention(name, jit):
    x, t = arrays(), arrays(1)
    f = jax.jit(TRANSFORMS[name], static_argnums=0) if jit else TRANSFORMS[name]
    got, want = (jax.tree.leaves(f(attend, x, t)) for attend in (ours, plain))
    assert len(got) == len(want) > 0
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, atol=1e-10, rtol=1e-10)


CASES = {
    "causal": {"causal": True},
    "window": {"window": (2, 1)},
    "softcap": {"softcap": 1.5},
    "dropout": {"dropout": 0.3, "seed": 7},
    "packed": {"cu_seqlens_q": [0, 2, 5], "cu_seqlens_k": [0, 3, 6]},
    "padded": {"seqused_k": [4, 0]},
    "a small cache": {"M": 120},
    "bias": {"bias": (5, 6)},
    "mask": {"bias": "bool"},
    "alibi": {"alibi_slopes": (4,), "causal": True},
    "sinks": {"sinks": (4,)},
}


@pytest.mark.parametrize("name", CASES)
def test_second_derivatives_are_central_differences(name):
    options, random = dict(CASES[name]), np.random.default_rng(2)
    for key in ("bias", "alibi_slopes", "sinks"):
        if isinstance(options.get(key), tuple):
            options[key] = jnp.array(random.random(options[key]))
    if name == "mask":
        options["bias"] = jnp.array(random.random((5, 6)) < 0.6).at[1].set(False)  # a query that sees nothing
    f, x, t = lambda *x: ours(*x, **options), arrays(), arrays(1)
    moved = lambda g, step: g(*(y + step * d for y, d in zip(x, t)))
    for g in (f, jax.grad(loss_of(f), ALL)):
        found = jax.jvp(g, x, t)[1]
        for a, above, below in zip(found, moved(g, 1e-5), moved(g, -1e-5)):
            np.testing.assert_allclose(a, (above - below) / 2e-5, atol=1e-6, rtol=1e-6)
    forward = jax.jvp(jax.grad(loss_of(f), ALL), x, t)[1]
    backward = jax.grad(lambda *x: times(jax.grad(loss_of(f), ALL)(*x), t), ALL)(*x)
    for a, b in zip(forward, backward):  # the Hessian is symmetric
        np.testing.assert_allclose(a, b, atol=1e-10, rtol=1e-10)


VMAPS = {  # options, whether they are mapped or move, and whether vmap then makes one call
    "plain": ({}, "", True),
    "causal, sinks": ({"causal": True, "sinks": (4,)}, "", True),
    "a bias for all": ({"bias": (5, 6)}, "", True),
    "a bias of each": ({"bias": (3, 2, 1, 5, 6)}, "mapped", True),
    "a bias of each that moves": ({"bias": (3, 2, 1, 5, 6)}, "mapped, moves", True),
    "a bias for all that moves": ({"bias": (5, 6)}, "moves", False),
    "sinks that move": ({"sinks": (4,)}, "moves", False),
    "dropout": ({"dropout": 0.3, "seed": 7}, "", False),
    "padded": ({"seqused_k": [4, 0]}, "", False),
}


@pytest.mark.parametrize("name", VMAPS)
def test_vmap_is_one_call_where_that_is_the_same(name):
    options, how, one = VMAPS[name]
    random = np.random.default_rng(3)
    (q, k, v), (t, _, _) = arrays(), arrays(1)
    key = next((key for key in ("bias", "sinks") if key in options), None)
    given = jnp.zeros(3) if key is None else jnp.array(random.standard_normal(options[key]))
    fixed = {key: x for key, x in options.items() if key not in ("bias", "sinks")}
    of = lambda q, given: loss_of(lambda q, k, v: ours(q, k, v, **fixed, **({} if key is None else {key: given})))(q, k, v)

    def product(q, given):
        if "moves" in how:
            return jax.jvp(jax.grad(of, (0, 1)), (q, given), (t, jnp.ones_like(given)))[1]
        return jax.jvp(lambda q: jax.grad(of)(q, given), (q,), (t,))[1]

    queries = jnp.stack([q, t, q + t])
    mapped = jax.vmap(product, (0, 0 if "mapped" in how else None))
    assert ("scan" not in str(jax.make_jaxpr(mapped)(queries, given))) == one


def test_vmap_of_one_call_is_a_loop_over_calls():
    (q, k, v), (t, _, _) = arrays(), arrays(1)
    queries, bias = jnp.stack([q, t, q + t]), jnp.array(np.random.default_rng(3).standard_normal((3, 2, 1, 5, 6)))
    tangent = lambda q, bias: jax.jvp(lambda q, bias: rj.attention(q, k, v, bias=bias), (q, bias), (t, jnp.ones_like(bias)))[1]
    one = jax.jit(tangent)
    want = jnp.stack([one(*x) for x in zip(queries, bias)])
    np.testing.assert_allclose(jax.jit(jax.vmap(tangent))(queries, bias), want, atol=1e-12)


def agree(ours, plain, last):
    """Do derivatives along every input agree, those of a bias or of sinks (the last input) among them?"""
    x, t = ((*arrays(i), jnp.array(np.random.default_rng(i + 2).standard_normal(last))) for i in range(2))
    every = (0, 1, 2, 3)
    loss = lambda f: lambda *y: (lambda o, lse: jnp.sin(o).sum() + (lse**3).sum())(*f(*y))
    for transform in (
        lambda f: jax.jvp(f, x, t),
        lambda f: jax.jvp(jax.grad(loss(f), every), x, t),
        lambda f: jax.grad(lambda *y: times(jax.grad(loss(f), every)(*y), t), every)(*x),
        lambda f: jax.grad(lambda *y: jax.jvp(loss(f), y, t)[1], every)(*x),
        lambda f: jax.grad(lambda moves: (jax.grad(loss(f))(*x[:3], moves) ** 2).sum())(x[3]),
        lambda f: jax.hessian(lambda moves: loss(f)(*x[:3], moves))(x[3]),
    ):
        got, want = (jax.tree.leaves(jax.jit(transform, static_argnums=0)(f)) for f in (ours, plain))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("shape, softcap", [((5, 6), None), ((2, 1, 1, 6), None), ((4, 5, 1), 1.5)])
def test_a_moving_bias_is_that_of_plain_attention(shape, softcap):
    def with_bias(q, k, v, bias):
        k, v = (jnp.repeat(x, 2, 1) for x in (k, v))
        s = q @ jnp.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
        s = (s if softcap is None else softcap * jnp.tanh(s / softcap)) + bias
        return jax.nn.softmax(s) @ v, jax.nn.logsumexp(s, -1)

    agree(lambda q, k, v, bias: ours(q, k, v, bias=bias, softcap=softcap), with_bias, shape)


def test_moving_sinks_are_those_of_plain_attention():
    def with_sinks(q, k, v, sinks):
        k, v = (jnp.repeat(x, 2, 1) for x in (k, v))
        s = q @ jnp.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
        s = jnp.concatenate([s, jnp.broadcast_to(sinks[:, None, None], (2, 4, 5, 1))], -1)
        return jax.nn.softmax(s)[..., :-1] @ v, jax.nn.logsumexp(s, -1)

    agree(lambda q, k, v, sinks: ours(q, k, v, sinks=sinks), with_sinks, 4)


def test_the_gradient_of_a_bias_may_move_along_that_of_o():
    q, k, v = arrays()
    bias, do, moved = (jnp.array(np.random.default_rng(i).standard_normal(s)) for i, s in enumerate(((5, 6), (2, 4, 5, 2), (2, 4, 5, 2))))
    vjp = jax.vjp(lambda bias: rj.attention(q, k, v, bias=bias), bias)[1]
    np.testing.assert_allclose(jax.jvp(vjp, (do,), (moved,))[1][0], vjp(moved)[0], atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_queries_with_nothing_but_lowest_numbers_have_the_weights_of_the_maths(dtype):
    q, k, v = (x.astype(dtype) for x in arrays())
    bias = jnp.zeros((5, 6), dtype).at[2].set(jnp.finfo(dtype).min)

    def theirs(q, k, v):
        k, v = (jnp.repeat(x.astype(jnp.float64), 2, 1) for x in (k, v))
        scores = jnp.einsum("bhid,bhjd->bhij", q.astype(jnp.float64), k) / math.sqrt(q.shape[-1])
        return jnp.einsum("bhij,bhje->bhie", jax.nn.softmax(scores + bias.astype(jnp.float64), -1), v)

    of_ours = lambda q, k, v: rj.attention(q, k, v, bias=bias)
    tolerance = {"float32": 1e-5, "bfloat16": 0.1}[dtype]
    moved = [jax.jit(lambda v, f=f: jax.jvp(lambda v: f(q, k, v), (v,), (v,))[1])(v) for f in (of_ours, theirs)]
    np.testing.assert_allclose(*(x.astype(jnp.float64) for x in moved), atol=tolerance)
    loss = lambda f: lambda x: (f(*x).astype(jnp.float64) ** 2).sum()
    penalty = lambda f: jax.jit(jax.grad(lambda x: sum((g.astype(jnp.float64) ** 2).sum() for g in jax.grad(loss(f))(x))))
    for a, b in zip(penalty(of_ours)((q, k, v)), penalty(theirs)((q, k, v))):
        np.testing.assert_allclose(a.astype(jnp.float64), b.astype(jnp.float64), rtol=tolerance, atol=10 * tolerance)


def test_what_is_not_computed_is_refused():
    (q, k, v), (t, _, _) = arrays(), arrays(1)
    loss = lambda q: loss_of(ours)(q, k, v)
    penalty = lambda q: (jax.grad(loss)(q) ** 2).sum()
    for third in (lambda: jax.grad(lambda q: jax.grad(penalty)(q).sum())(q), lambda: jax.jvp(jax.grad(penalty), (q,), (t,))):
        with pytest.raises(redblue.Unsupported, match="third derivatives .*dot_product_attention"):
            third()
    with pytest.raises(redblue.Unsupported, match="tangents of tangents .*gradient of a tangent"):
        jax.jvp(lambda q: jax.jvp(loss, (q,), (t,))[1], (q,), (t,))
    slopes = jnp.ones(4)
    f = lambda slopes, q=q: (rj.attention(q, k, v, alibi_slopes=slopes) ** 2).sum()
    for wrong in (
        lambda: jax.jvp(f, (slopes,), (slopes,)),
        lambda: jax.jvp(lambda slopes: jax.grad(f, 1)(slopes, q), (slopes,), (slopes,)),
    ):
        with pytest.raises(redblue.Unsupported, match="alibi_slopes (is|are) not computed"):
            wrong()
    assert jnp.isfinite(jax.grad(lambda q: (jax.grad(f, 1)(slopes, q) ** 2).sum())(q)).all()  # slopes at rest are none of these
