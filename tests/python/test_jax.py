"""redblue.jax: results and gradients as NumPy's, under jit and vmap. Skipped where jax is missing."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import redblue  # noqa: E402
import redblue.jax as rj  # noqa: E402

pytestmark = pytest.mark.usefixtures("hardware")
TOLERANCE = {"float32": 5e-6, "float16": 5e-3, "bfloat16": 4e-2}


def arrays(*shapes, dtype="float32"):
    rng = np.random.default_rng(3)
    return [jnp.asarray(rng.standard_normal(s), dtype) for s in shapes]


def plain(q, k, v, bias=None, seen=None):
    """Attention by JAX's own operations; k and v have the heads of q."""
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + (0 if bias is None else bias)
    return jax.nn.softmax(s if seen is None else jnp.where(seen, s, -jnp.inf)) @ v


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_values_and_gradients(dtype, jit):
    inputs = arrays((2, 4, 7, 8), (2, 4, 9, 8), (2, 4, 9, 3), (4, 1, 9), dtype=dtype)
    seen = np.tril(np.ones((7, 9), bool), 2)
    loss = lambda f: jax.value_and_grad(lambda *x: jnp.sin(f(*x).astype("float32")).sum(), argnums=(0, 1, 2, 3))
    ours = loss(lambda q, k, v, b: rj.attention(q, k, v, bias=b, causal=True))
    (o, got), (want, wanted) = (jax.jit(ours) if jit else ours)(*inputs), loss(lambda *x: plain(*x, seen))(
        *(x.astype("float32") for x in inputs)
    )
    np.testing.assert_allclose(o, want, rtol=0, atol=300 * TOLERANCE[dtype])
    for g, w, x in zip(got, wanted, inputs):
        assert g.dtype == x.dtype and g.shape == x.shape
        np.testing.assert_allclose(g.astype("float32"), w, rtol=0, atol=10 * TOLERANCE[dtype])


@pytest.mark.parametrize("case", ["groups", "bshd", "sequences", "pattern", "bool", "dropout", "sinks"])
def test_options_pass_as_numpys(case):
    heads_last = case in ("bshd", "sequences")
    q, k, v = arrays((6, 4, 8), (6, 2, 8), (6, 2, 8)) if heads_last else arrays((4, 6, 8), (2, 6, 8), (2, 6, 8))
    static, arrays_of = {
        "groups": ({"window": (2, 1), "softcap": 2.0, "scale": 0.5, "M": 500}, {}),
        "bshd": ({"layout": "bshd"}, {}),
        "sequences": ({"layout": "bshd", "cu_seqlens_q": [0, 2, 6], "cu_seqlens_k": np.array([0, 2, 6])}, {}),
        "pattern": ({"pattern": redblue.patterns.strided(6, 6, 2)}, {}),
        "bool": ({}, {"bias": jnp.asarray(np.tri(6) > 0)}),
        "dropout": ({"dropout": 0.3}, {"seed": 7}),
        "sinks": ({}, {"sinks": jnp.arange(4.0), "alibi_slopes": jnp.ones(4) / 8}),
    }[case]
    plain_arrays = {name: x if name == "seed" else np.asarray(x) for name, x in arrays_of.items()}
    numpys = [np.asarray(x) for x in (q, k, v)]
    o, lse = redblue.attention(*numpys, return_lse=True, **static, **plain_arrays)
    call = jax.jit(lambda q, k, v, more: rj.attention(q, k, v, return_lse=True, **static, **more))
    for g, w in zip(call(q, k, v, arrays_of), (o, lse)):
        np.testing.assert_array_equal(g, w)
    wanted = redblue.attention_backward(np.ones_like(o), *numpys, o, lse, sinks_gradient=case == "sinks", **static, **plain_arrays)
    got = jax.jit(jax.grad(lambda x, more: rj.attention(*x, **static, **more).sum(), allow_int=True))((q, k, v), arrays_of)
    for g, w in zip(got, wanted):
        np.testing.assert_array_equal(g, w)
    if case == "sinks":
        dsinks = jax.grad(lambda s: rj.attention(q, k, v, alibi_slopes=arrays_of["alibi_slopes"], sinks=s).sum())(arrays_of["sinks"])
        np.testing.assert_array_equal(dsinks, wanted.dsinks)


def test_vmap_is_a_loop_over_calls():
    q, k, v = arrays((3, 2, 5, 8), (3, 2, 5, 8), (3, 2, 5, 8))
    f = lambda q, k, v: rj.attention(q, k, v, causal=True)
    np.testing.assert_array_equal(jax.vmap(f)(q, k, v), jnp.stack([f(*x) for x in zip(q, k, v)]))


def test_large_arrays_do_not_wait_for_themselves():
    q, k, v = arrays((1, 8, 1024, 64), (1, 8, 1024, 64), (1, 8, 1024, 64))
    step = jax.jit(jax.grad(lambda q, k, v: (rj.attention(q * 2, k * 2, v * 2, causal=True) ** 2).sum()))
    assert np.isfinite(step(q, k, v)).all()


def test_refusals():
    (q,) = arrays((2, 6, 8))
    for options, error, text in (
        ({"tolerance": 0.1}, redblue.Unsupported, "tolerance"),
        ({"casual": True}, TypeError, "casual"),
        ({"dropout": 0.1}, redblue.InvalidProblem, "no seed"),
        ({"layout": "sbhd"}, redblue.InvalidProblem, "sbhd"),
    ):
        with pytest.raises(error, match=text):
            rj.attention(q, q, q, **options)
    with pytest.raises(redblue.InvalidProblem, match="prefix is traced"):
        jax.jit(lambda q, n: rj.attention(q, q, q, prefix=n))(q, 2)
    with pytest.raises(Exception, match="M = 1"):  # of a run: an error of JAX with redblue's text
        jax.jit(lambda q: rj.attention(q, q, q, M=1))(q).block_until_ready()
