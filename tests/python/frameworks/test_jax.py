"""redblue.jax: results and gradients as NumPy's, under jit and vmap. Skipped where jax is missing."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import redblue  # noqa: E402
import redblue.jax as rj  # noqa: E402
from process import resident, run_python  # noqa: E402

pytestmark = pytest.mark.usefixtures("hardware")
TOLERANCE = {"float64": 1e-14, "float32": 5e-6, "float16": 5e-3, "bfloat16": 4e-2}


def arrays(*shapes, dtype="float32"):
    rng = np.random.default_rng(3)
    return [jnp.asarray(rng.standard_normal(s), dtype) for s in shapes]


def plain(q, k, v, bias=None, seen=None):
    """Attention by JAX's own operations; k and v have the heads of q."""
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + (0 if bias is None else bias)
    return jax.nn.softmax(s if seen is None else jnp.where(seen, s, -jnp.inf)) @ v


@pytest.fixture
def x64():
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_values_and_gradients(dtype, jit, request):
    if dtype == "float64":
        request.getfixturevalue("x64")
    exact = "float64" if dtype == "float64" else "float32"
    inputs = arrays((2, 4, 7, 8), (2, 4, 9, 8), (2, 4, 9, 3), (4, 1, 9), dtype=dtype)
    seen = np.tril(np.ones((7, 9), bool), 2)
    loss = lambda f: jax.value_and_grad(lambda *x: jnp.sin(f(*x).astype(exact)).sum(), argnums=(0, 1, 2, 3))
    ours = loss(lambda q, k, v, b: rj.attention(q, k, v, bias=b, causal=True))
    (o, got), (want, wanted) = (jax.jit(ours) if jit else ours)(*inputs), loss(lambda *x: plain(*x, seen))(
        *(x.astype(exact) for x in inputs)
    )
    np.testing.assert_allclose(o, want, rtol=0, atol=300 * TOLERANCE[dtype])
    for g, w, x in zip(got, wanted, inputs):
        assert g.dtype == x.dtype and g.shape == x.shape
        np.testing.assert_allclose(g.astype(exact), w, rtol=0, atol=10 * TOLERANCE[dtype])


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


@pytest.mark.parametrize("sizes", [(0, 3, 4), (3, 0, 4), (3, 5, 0)])  # n_q, n_k, d_v
@pytest.mark.parametrize("sinks", [False, True])
def test_arrays_of_no_size(sizes, sinks):
    n_q, n_k, d_v = sizes
    q, k, v = arrays((2, n_q, 8), (2, n_k, 8), (2, n_k, d_v))
    more = {"sinks": jnp.arange(2.0)} if sinks else {}
    want = redblue.attention(*map(np.asarray, (q, k, v)), return_lse=True, **{n: np.asarray(x) for n, x in more.items()})
    f = lambda q, k, v, more: rj.attention(q, k, v, return_lse=True, **more)
    for got in (f(q, k, v, more), jax.jit(f)(q, k, v, more)):
        for g, w in zip(got, want):
            assert g.dtype == w.dtype
            np.testing.assert_array_equal(g, w)
    gradients = jax.jit(jax.grad(lambda *x: f(*x)[0].sum(), argnums=(0, 1, 2, 3)))(q, k, v, more)
    for g, x in zip(jax.tree.leaves(gradients), (q, k, v, *more.values()), strict=True):
        np.testing.assert_array_equal(g, np.zeros(x.shape))


def test_lse_has_the_type_of_the_sums(x64):
    for dtype, wanted in (("float64", "float64"), ("float32", "float32"), ("float16", "float32"), ("bfloat16", "float32")):
        q, k, v = arrays((2, 5, 8), (2, 5, 8), (2, 5, 8), dtype=dtype)
        o, lse = jax.jit(lambda *x: rj.attention(*x, return_lse=True))(q, k, v)
        assert (o.dtype, lse.dtype) == (dtype, wanted)
        want = redblue.attention(*map(np.asarray, (q, k, v)), return_lse=True)
        for g, w in zip((o, lse), want):
            np.testing.assert_array_equal(g, w)


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_donated_buffers_may_be_overwritten():
    q, k, v = arrays((2, 64, 16), (2, 64, 16), (2, 64, 16))
    want = redblue.attention(*map(np.asarray, (q, k, v)), return_lse=True)
    f = jax.jit(lambda *x: rj.attention(*x), donate_argnums=(0, 1, 2))
    np.testing.assert_array_equal(f(*(x + 0 for x in (q, k, v))), want[0])
    wanted = redblue.attention_backward(np.ones_like(want[0]), *map(np.asarray, (q, k, v)), *want)
    g = jax.jit(jax.grad(lambda *x: rj.attention(*x).sum(), argnums=(0, 1, 2)), donate_argnums=(0, 1, 2))
    for x, w in zip(g(*(x + 0 for x in (q, k, v))), wanted):
        np.testing.assert_array_equal(x, w)


def test_arrays_in_another_order_of_dimensions():
    q, k, v = arrays((2, 16, 9), (2, 16, 9), (2, 16, 9))
    turned = [x.swapaxes(1, 2) for x in (q, k, v)]
    want = redblue.attention(*(np.ascontiguousarray(x) for x in turned))
    np.testing.assert_array_equal(jax.jit(lambda *x: rj.attention(*(y.swapaxes(1, 2) for y in x)))(q, k, v), want)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_seeds_of_any_whole_type(dtype, x64):
    (q,) = arrays((2, 6, 8))
    x = np.asarray(q)
    f = jax.jit(lambda q, seed: rj.attention(q, q, q, dropout=0.4, seed=seed))
    seeds = [5, np.iinfo(dtype).max] if np.iinfo(dtype).bits <= 32 else [5, 2**53]
    for seed in seeds:
        np.testing.assert_array_equal(f(q, np.asarray(seed, dtype)), redblue.attention(x, x, x, dropout=0.4, seed=seed))


def test_errors_of_runs_are_errors_of_jax_with_their_text(x64):
    (q,) = arrays((2, 6, 8))
    f = jax.jit(lambda q, seed: rj.attention(q, q, q, dropout=0.4, seed=seed))
    for seed in (-1, 2**53 + 1):
        with pytest.raises(jax.errors.JaxRuntimeError, match=f"seed = {seed} is out of range: give 0 to 2.53"):
            f(q, seed).block_until_ready()
    assert np.isfinite(f(q, 1)).all()  # nothing is left behind
    for seed in (1.5, np.ones(2, int)):
        with pytest.raises(redblue.InvalidProblem, match="seed is of shape"):
            f(q, seed)


def test_custom_calls_that_redblue_did_not_make_are_refused():
    (q,) = arrays((2, 6, 8))
    rj.attention(q, q, q)
    name = next(reversed(rj._names.values()))
    result = [jax.ShapeDtypeStruct(q.shape, q.dtype)]
    call = jax.ffi.ffi_call("redblue_attention", result)
    np.testing.assert_array_equal(call(q, q, q, plan=name)[0], rj.attention(q, q, q))
    for run, text in (
        (lambda: call(q, q, q, plan="x"), "made by another process"),
        (lambda: call(q, q, q), "no attribute 'plan'"),
        (lambda: call(q, q, q, plan=np.int32(1)), "no attribute 'plan'"),
        (lambda: call(q, q, plan=name), "2 arguments and its plan takes 3"),
        (lambda: jax.ffi.ffi_call("redblue_attention", result * 2)(q, q, q, plan=name), "2 results and its plan takes 1"),
        (lambda: call(q, q, q[:, :5], plan=name), "tensor v is .1, 2, 5, 8."),
        (lambda: call(q, q, q.astype("int32"), plan=name), "v has elements of XLA's type 4"),
        (lambda: call(q, q, q[None, None, None], plan=name), "v has 6 dimensions"),
    ):
        with pytest.raises(jax.errors.JaxRuntimeError, match=text):
            jax.block_until_ready(run())


def test_threads_of_python_run_one_program():
    inputs = [arrays((2, 64, 16), (2, 64, 16), (2, 64, 16), dtype=t) for t in ("float32", "float16")]
    step = jax.jit(jax.value_and_grad(lambda q, k, v: (rj.attention(q, k, v, causal=True) ** 2).astype("float32").sum()))
    wanted = [jax.tree.map(np.asarray, step(*x)) for x in inputs]
    jax.clear_caches()  # threads trace at once, too

    def work(i):
        for _ in range(50):
            got = step(*inputs[i % 2])
            assert all(jax.tree.leaves(jax.tree.map(np.array_equal, got, wanted[i % 2])))

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(6)))


def test_ten_thousand_calls_take_no_more_memory():
    q, k, v = arrays((2, 64, 16), (2, 64, 16), (2, 64, 16))
    f = jax.jit(lambda *x: rj.attention(*x, causal=True))
    g = jax.jit(jax.grad(lambda *x: f(*x).sum(), argnums=(0, 1, 2)))
    bad = jax.jit(lambda q: rj.attention(q, q, q, dropout=0.5, seed=-1))

    def calls(n):
        for _ in range(n):
            jax.block_until_ready((f(q, k, v), rj.attention(q, k, v, causal=True)))
            jax.block_until_ready(g(q, k, v))
        for _ in range(n // 50):
            with pytest.raises(jax.errors.JaxRuntimeError):
                bad(q).block_until_ready()

    calls(1000)
    names, before = len(rj._names), resident()
    calls(3334)
    assert len(rj._names) == names
    assert resident() - before < 4 << 20  # 1 KB lost in each of 10,000 calls would be 10 MB


def alone(code, **environment):
    return run_python("import numpy as np, jax, jax.numpy as jnp, redblue, redblue.jax as rj\n" + code, **environment)


def test_several_devices():
    alone(
        """
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
a = np.random.default_rng(0).standard_normal((3, 2, 4, 32, 8)).astype("float32")
want, lse = redblue.attention(*a, causal=True, return_lse=True)
wanted = redblue.attention_backward(np.ones_like(want), *a, want, lse, causal=True)
f = lambda q, k, v: rj.attention(q, k, v, causal=True)
g = jax.grad(lambda *x: f(*x).sum(), argnums=(0, 1, 2))
one, two = jax.devices()
mesh = Mesh(np.array([one, two]), ("batch",))
split = NamedSharding(mesh, P("batch"))
for place in (two, split):
    x = [jax.device_put(y, place) for y in a]
    np.testing.assert_array_equal(jax.jit(f)(*x), want)
    for got, w in zip(jax.jit(g)(*x), wanted):
        np.testing.assert_array_equal(got, w)
assert jax.jit(f)(*(jax.device_put(y, two) for y in a)).devices() == {two}
try:
    mapped = lambda f: jax.shard_map(f, mesh=mesh, in_specs=P("batch"), out_specs=P("batch"), check_vma=False)
    mapped(f)
except AttributeError:
    from jax.experimental.shard_map import shard_map
    mapped = lambda f: shard_map(f, mesh=mesh, in_specs=P("batch"), out_specs=P("batch"), check_rep=False)
o = jax.jit(mapped(f))(*x)
np.testing.assert_array_equal(o, want)
assert o.sharding.is_equivalent_to(split, 4)  # each device has computed its half
for got, w in zip(jax.jit(mapped(g))(*x), wanted):
    np.testing.assert_array_equal(got, w)
""",
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )


def test_programs_kept_in_files_run_the_plan_of_their_options(tmp_path):
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    code = """
import os
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
x = np.random.default_rng(0).standard_normal((3, 2, 32, 8)).astype("float32")
even = redblue.patterns.strided(32, 32, 2)
for options in ({"causal": True}, {"window": (3, 0)}, {"pattern": even})[::STEP]:
    np.testing.assert_array_equal(jax.jit(lambda *x: rj.attention(*x, **options))(*x), redblue.attention(*x, **options))
print(len([f for f in os.listdir(os.environ["JAX_COMPILATION_CACHE_DIR"]) if f.endswith("-cache")]))
"""
    counts = [int(alone(code.replace("STEP", step), **cache)) for step in ("1", "-1")]
    assert counts[0] >= 3 and counts[1] == counts[0] + 1  # a pattern is of its process


def test_sizes_of_zero_keep_the_lse():
    q, k, v = arrays((2, 3, 8), (2, 5, 8), (2, 5, 4))
    for options in ({}, {"sinks": jnp.arange(2.0)}):
        want = rj.attention(q, k, v, return_lse=True, **options)[1]
        np.testing.assert_allclose(rj.attention(q, k, v[..., :0], return_lse=True, **options)[1], want, rtol=1e-6)
    for shape in ((2,), (1, 2), (1, 2, 1, 1)):
        lse = jax.jit(lambda s: rj.attention(q, k[:, :0], v[:, :0], sinks=s, return_lse=True)[1])(jnp.arange(2.0).reshape(shape))
        np.testing.assert_array_equal(lse, [[0.0] * 3, [1.0] * 3])
    with pytest.raises(redblue.InvalidProblem, match="sinks"):
        rj.attention(q, k[:, :0], v[:, :0], sinks=jnp.ones(3))


def test_the_gradient_of_slopes_is_refused_and_of_others_is_not():
    (q,) = arrays((2, 6, 8))
    slopes = jnp.array([0.5, 0.25])
    f = lambda q, s: rj.attention(q, q, q, alibi_slopes=s).sum()
    want = jax.grad(f)(q, slopes)
    for g in (jax.grad(f, argnums=1), jax.jit(jax.grad(f, argnums=(0, 1))), jax.grad(lambda q, s: f(q, s * s), argnums=1)):
        with pytest.raises(redblue.Unsupported, match="alibi_slopes"):
            g(q, slopes)
    stopped = lambda q, s: f(q, jax.lax.stop_gradient(s))
    np.testing.assert_array_equal(jax.jit(jax.grad(stopped, argnums=(0, 1)))(q, slopes)[0], want)
    np.testing.assert_array_equal(jax.vmap(jax.grad(f), in_axes=(0, None))(q[None], slopes)[0], want)


def test_a_bias_has_a_gradient_without_products():
    q, k, v, bias = arrays((2, 3, 8), (2, 5, 8), (2, 5, 4), (3, 5))
    f = lambda b: (rj.attention(q, k, v, bias=b, scale=0.0) ** 2).sum()
    plain = lambda b: ((jax.nn.softmax(b) @ v) ** 2).sum()
    np.testing.assert_allclose(jax.grad(f)(bias), jax.grad(plain)(bias), atol=1e-5)


@pytest.mark.parametrize("name, good, bad", [("M", 300, 300.0), ("causal", True, 1.0), ("window", (2, 0), (2.0, 0.0))])
def test_what_is_refused_is_refused_after_a_call_with_an_equal_value(name, good, bad):
    (q,) = arrays((2, 6, 8))
    for _ in range(2):
        with pytest.raises(redblue.InvalidProblem, match=name):
            rj.attention(q, q, q, **{name: bad})
        rj.attention(q, q, q, **{name: good})


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
    for name, wrong in (("q", [1.0]), ("v", None), ("bias", [0.0])):
        with pytest.raises(TypeError, match=f"^{name} is a .*give an array of JAX or NumPy"):
            rj.attention(**{"q": q, "k": q, "v": q, name: wrong})
    with pytest.raises(TypeError, match="q is a tracer of JAX.*redblue.jax"):
        jax.jit(lambda q: redblue.attention(q, q, q))(q)
    with pytest.raises(redblue.InvalidProblem, match="prefix is traced"):
        jax.jit(lambda q, n: rj.attention(q, q, q, prefix=n))(q, 2)
    with pytest.raises(redblue.CapacityError, match="M = 1"):
        jax.jit(lambda q: rj.attention(q, q, q, M=1))(q)
