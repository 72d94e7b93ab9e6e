"""redblue.jax: lengths that only a run knows, and jax.nn.dot_product_attention by redblue. Skipped where jax is missing."""

import inspect

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import redblue  # noqa: E402
import redblue.jax as rj  # noqa: E402

pytestmark = pytest.mark.usefixtures("hardware")


def arrays(*shapes, dtype="float32"):
    rng = np.random.default_rng(3)
    return [jnp.asarray(rng.standard_normal(s), dtype) for s in shapes]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": True},
        {"causal": True, "alignment": "top-left", "prefix": 2},
        {"window": (2, 1)},
        {"window": (2, -1), "causal": True, "alignment": 1},
        {"window": (2, -1), "causal": True},
        {"dropout": 0.3, "seed": 5},
        {"softcap": 2.0, "scale": 0.5},
    ],
    ids=str,
)
def test_lengths_of_a_run_are_those_of_a_trace(options):
    q, k, v, bias = arrays((3, 4, 6, 8), (3, 2, 9, 8), (3, 2, 9, 5), (4, 6, 9))
    traces = []

    @jax.jit
    def of_run(x, lengths, more):
        traces.append(0)
        f = lambda x: rj.attention(*x, return_lse=True, **lengths, **more, **options)
        (o, lse), back = jax.vjp(f, x)
        return o, lse, back((jnp.cos(o), jnp.where(lse == -jnp.inf, 0, jnp.sin(lse))))

    numpys = [np.asarray(x) for x in (q, k, v)]
    more = {"sinks": jnp.arange(4.0)} if options.get("causal") else {}
    more |= {"bias": bias} if "alignment" in options else {}  # numbers at the bottom right have no gradients for lists of lengths
    for n_q, n_k in (([6, 3, 0], [9, 4, 0]), ([2, 6, 1], [1, 9, 5])):
        lengths = {"seqused_q": n_q, "seqused_k": n_k}
        got = of_run((q, k, v), {name: jnp.array(n) for name, n in lengths.items()}, more)
        plain = {name: np.asarray(x) for name, x in more.items()}
        o, lse = redblue.attention(*numpys, return_lse=True, **lengths, **plain, **options)
        np.testing.assert_allclose(got[0], o, rtol=0, atol=2e-6)
        np.testing.assert_allclose(got[1], lse, rtol=1e-5, atol=2e-6)
        of_lists = lambda x: rj.attention(*x, return_lse=True, **lengths, **more, **options)
        _, back = jax.vjp(of_lists, (q, k, v))
        wanted = back((jnp.cos(got[0]), jnp.where(got[1] == -jnp.inf, 0, jnp.sin(got[1]))))
        for g, w in zip(jax.tree.leaves(got[2]), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(g, w, rtol=0, atol=5e-6)
    assert len(traces) == 1  # other lengths are no other program


@pytest.mark.parametrize("layout, shape", [("bshd", (1, 5, 2, 8)), ("shd", (5, 2, 8)), ("hsd", (2, 5, 8)), ("sd", (5, 8))])
def test_lengths_in_other_layouts(layout, shape):
    (q,) = arrays(shape)
    f = jax.jit(lambda q, a, b: rj.attention(q, q, q, layout=layout, causal=True, seqused_q=a, seqused_k=b, return_lse=True))
    want = redblue.attention(*[np.asarray(q)] * 3, layout=layout, causal=True, seqused_q=[3], seqused_k=[4], return_lse=True)
    for g, w in zip(f(q, jnp.array([3]), jnp.array([4])), want):
        np.testing.assert_allclose(g, w, atol=1e-6)


def test_a_mask_and_lengths():
    q, k, v = arrays((2, 2, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8))
    keep = np.random.default_rng(1).random((2, 1, 5, 5)) > 0.3
    got = rj.attention(q, k, v, bias=jnp.asarray(keep), seqused_k=jnp.array([3, 9]))  # more than there are: all
    want = redblue.attention(*map(np.asarray, (q, k, v)), bias=keep, seqused_k=[3, 5])
    np.testing.assert_allclose(got, want, atol=1e-6)
    slopes = jnp.array([0.5, 0.25])
    got = rj.attention(q, k, v, alibi_slopes=slopes, alignment=0, seqused_k=jnp.array([3, 5]))
    want = redblue.attention(*map(np.asarray, (q, k, v)), alibi_slopes=np.asarray(slopes), alignment=0, seqused_k=[3, 5])
    np.testing.assert_allclose(got, want, atol=1e-6)
    mapped = jax.vmap(lambda n: rj.attention(q, k, v, seqused_k=n))(jnp.array([[3, 1], [5, 2]]))
    for got, n in zip(mapped, ([3, 1], [5, 2])):
        np.testing.assert_allclose(got, rj.attention(q, k, v, seqused_k=n), atol=1e-6)


def test_lengths_that_are_refused():
    (q,) = arrays((2, 2, 5, 8))
    n = jnp.array([3, 4])
    for options, error, text in (
        ({"seqused_k": jnp.array([3])}, redblue.InvalidProblem, "seqused_k is of shape .1. .*each of 2 batches"),
        ({"seqused_q": jnp.array([3.0, 4.0])}, redblue.InvalidProblem, "type float32"),
        ({"seqused_k": n, "causal": True, "prefix": 1}, redblue.Unsupported, 'prefix beside lengths.*alignment = "top-left"'),
        ({"seqused_k": n, "window": (2, 2), "dilation": 2}, redblue.Unsupported, "dilation beside lengths"),
        ({"seqused_k": n, "alibi_slopes": jnp.ones(2)}, redblue.Unsupported, "alibi_slopes beside lengths"),
        ({"seqused_k": n, "cu_seqlens_k": [0, 5]}, redblue.Unsupported, "packed sequences is an array of JAX"),
        ({"seqused_k": n, "bias": jnp.ones((5, 5), int)}, TypeError, "bias has elements of type int32"),
    ):
        with pytest.raises(error, match=text):
            rj.attention(q, q, q, **options)


def test_the_signature_is_jaxs():
    ours = inspect.signature(rj.dot_product_attention).parameters
    for name, theirs in inspect.signature(jax.nn.dot_product_attention).parameters.items():
        assert ours[name].kind == theirs.kind and ours[name].default == theirs.default


def compared(q, k, v, bias=None, mask=None, atol=5e-6, **options):
    """Values, residual and gradients beside JAX's own, in one jit each."""

    def of(function, **more):
        def f(q, k, v, bias, lengths):
            o, lse = function(q, k, v, bias, mask, return_residual=True, **lengths, **options, **more)
            return jnp.sin(o.astype(jnp.float32)).sum(), (o, lse)

        wanted = (0, 1, 2) if bias is None else (0, 1, 2, 3)
        return jax.jit(jax.value_and_grad(f, wanted, has_aux=True))

    lengths = {name: options.pop(name) for name in list(options) if name.endswith("lengths")}
    ((_, got), gradients), ((_, want), wanted) = (
        of(f, **more)(q, k, v, bias, lengths)
        for f, more in ((rj.dot_product_attention, {}), (jax.nn.dot_product_attention, {"implementation": "xla"}))
    )
    for g, w in zip((*got, *gradients), (*want, *wanted), strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype
        g, w = (np.asarray(x, np.float64) for x in (g, w))
        np.testing.assert_allclose(g, w, rtol=1e-6 if atol < 1e-3 else 2e-2, atol=atol)


INTS = lambda *n: jnp.array(n, jnp.int32)


@pytest.mark.parametrize(
    "causal, window, biased, masked, with_lengths",
    [
        (True, None, False, False, False),
        (False, 2, True, False, False),
        (False, None, True, True, False),
        (False, (1, 0), False, False, True),
        (True, (1, 3), True, True, True),
    ],
)
def test_each_argument_beside_jaxs(causal, window, biased, masked, with_lengths):
    q, k, v, bias = arrays((2, 7, 4, 8), (2, 9, 2, 8), (2, 9, 2, 8), (1, 4, 7, 9))
    mask = np.random.default_rng(2).random((2, 1, 7, 9)) > 0.5
    mask[0, 0, 3] = False  # a query that sees no key
    lengths = {"query_seq_lengths": INTS(7, 4), "key_value_seq_lengths": INTS(9, 3)} if with_lengths else {}
    bias, mask = bias if biased else None, jnp.asarray(mask) if masked else None
    compared(q, k, v, bias, mask, is_causal=causal, local_window_size=window, scale=0.3, **lengths)


def test_types():
    q, k, v = arrays((2, 7, 2, 8), (2, 9, 2, 8), (2, 9, 2, 8), dtype="bfloat16")
    compared(q, k, v, arrays((2, 7, 9))[0], atol=4e-2, key_value_seq_lengths=INTS(9, 0))
    q, k, v = arrays((2, 7, 2, 8), (2, 9, 2, 8), (2, 9, 2, 8), dtype="float16")
    o, lse = rj.dot_product_attention(q, k, v, is_causal=True, return_residual=True)  # JAX has no such products on the CPU
    want, wanted = jax.nn.dot_product_attention(*(x.astype("float32") for x in (q, k, v)), is_causal=True, return_residual=True)
    assert o.dtype == lse.dtype == "float16"
    np.testing.assert_allclose(o, want, atol=4e-3)
    np.testing.assert_allclose(lse, wanted, atol=4e-3)


def test_shapes():
    q, k, v = arrays((7, 4, 8), (9, 2, 8), (9, 2, 8))
    even = jnp.asarray(np.arange(9) % 2 == 0)[None]
    compared(q, k, v, arrays((4, 1, 9))[0], even, key_value_seq_lengths=INTS(5), query_seq_lengths=INTS(6))
    q, k, v = arrays((1, 9, 2, 8), (1, 3, 2, 8), (1, 3, 2, 8))
    compared(q, k, v, local_window_size=(1, 1))  # the last queries see no key
    (v,) = arrays((1, 3, 2, 5))  # which JAX refuses
    want = redblue.attention(*map(np.asarray, (q, k, v)), layout="bshd")
    np.testing.assert_allclose(rj.dot_product_attention(q, k, v), want, atol=1e-6)


def test_vmap_of_both():
    q, k, v = arrays((3, 2, 5, 2, 8), (3, 2, 5, 2, 8), (3, 2, 5, 2, 8))
    n = INTS(5, 1, 2, 3, 4, 5).reshape(3, 2)
    got, want = (
        jax.jit(jax.vmap(lambda q, k, v, n: jax.grad(lambda q: f(q, k, v, key_value_seq_lengths=n).sum())(q)))(q, k, v, n)
        for f in (rj.dot_product_attention, jax.nn.dot_product_attention)
    )
    np.testing.assert_allclose(got, want, atol=2e-6)


def test_what_dot_product_attention_refuses():
    (q,) = arrays((2, 5, 2, 8))
    for options, text in (
        ({"implementation": "xla"}, "implementation = 'xla'"),
        ({"implementation": "cudnn"}, "implementation = 'cudnn'"),
        ({"mask": jnp.ones((1, 1, 5, 5))}, "mask has elements of type float32"),
        ({"bias": jnp.ones((1, 1, 5, 5), bool)}, "bias has elements of type bool"),
        ({"mask": jnp.ones((1, 1, 1, 5, 5), bool)}, "mask has 5 dimensions"),
        ({"local_window_size": (-1, 2)}, "local_window_size = .-1, 2.: give numbers from 0 on"),
        ({"local_window_size": 2.0}, "local_window_size = 2.0"),
        ({"is_causal": 2}, "is_causal = 2"),
        ({"key_value_seq_lengths": INTS(5)}, "key_value_seq_lengths is of shape .1."),
        ({"query_seq_lengths": jnp.ones(2)}, "query_seq_lengths is of shape .2. and type float32"),
        ({"key": q[0]}, "query, key and value are"),
    ):
        with pytest.raises(redblue.InvalidProblem, match=text):
            rj.dot_product_attention(**{"query": q, "key": q, "value": q, **options})
    for name in ("scale", "is_causal", "local_window_size"):
        with pytest.raises(redblue.InvalidProblem, match=f"{name} is traced"):
            jax.jit(lambda q, x: rj.dot_product_attention(q, q, q, **{name: x}))(q, 1)
