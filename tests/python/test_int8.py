"""Keys and values of int8 with scales, against attention to their words times the scales."""

import numpy as np
import pytest

import redblue

pytestmark = pytest.mark.usefixtures("hardware")
B, HEADS, KV_HEADS, D = 2, 4, 2, 32


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def arrays(rng, n_q, n_k, blocks=None, dtype=np.float32):
    """q, int8 k and v, and their scales, a head's or a block's."""
    q = rng.standard_normal((B, HEADS, n_q, D)).astype(dtype)
    k, v = (rng.integers(-127, 128, (B, KV_HEADS, n_k, D), dtype=np.int8) for _ in range(2))
    shape = (B, KV_HEADS) if blocks is None else (B, KV_HEADS, blocks)
    return q, k, v, *(rng.uniform(0.003, 0.02, shape).astype(np.float32) for _ in range(2))


def numbers(x, scale, keys=None):
    """What the words stand for, heads first."""
    full = scale[..., None] if keys is None else np.repeat(scale, keys, axis=2)[:, :, : x.shape[2]]
    return x * full[..., None].astype(np.float64)


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (9, 2), "softcap": 3.0}, {"M": 2000}, {"memory": "16KiB"}], ids=str)
@pytest.mark.parametrize(("n_q", "n_k", "keys"), [(1, 200, None), (1, 200, 64), (50, 70, None), (50, 70, 16)])
def test_the_output_is_that_of_words_times_scales(rng, n_q, n_k, keys, options):
    q, k, v, k_scale, v_scale = arrays(rng, n_q, n_k, None if keys is None else -(-n_k // keys))
    o, lse = redblue.attention(q, k, v, k_scale=k_scale, v_scale=v_scale, keys_per_scale=keys, return_lse=True, **options)
    plain = {name: x for name, x in options.items() if name not in ("M", "memory")}
    want = redblue.attention(q.astype(float), numbers(k, k_scale, keys), numbers(v, v_scale, keys), return_lse=True, **plain)
    assert o.dtype == np.float32
    np.testing.assert_allclose(o, want[0], atol=1e-5)
    np.testing.assert_allclose(lse, want[1], atol=1e-5)


def test_forms_of_scales(rng):
    q, k, v, k_scale, v_scale = arrays(rng, 3, 40)
    k_scale[:], v_scale[:] = k_scale[0], v_scale[0]
    want = redblue.attention(q, k, v, k_scale=k_scale, v_scale=v_scale)
    for form in (lambda x: x[0], lambda x: x[:1], lambda x: x[..., None], lambda x: x.astype(np.float64)):
        np.testing.assert_array_equal(redblue.attention(q, k, v, k_scale=form(k_scale), v_scale=form(v_scale)), want)
    one = redblue.attention(q, k, v, k_scale=0.01, v_scale=np.float32(0.02))
    np.testing.assert_allclose(one, redblue.attention(q, k * np.float32(0.01), v * np.float32(0.02)), atol=1e-5)
    swapped = [x.swapaxes(1, 2) for x in (q, k, v)]
    o = redblue.attention(*swapped, k_scale=k_scale, v_scale=v_scale, layout="bshd")
    np.testing.assert_allclose(o.swapaxes(1, 2), want, atol=1e-6)


def test_types_of_queries(rng):
    for dtype, most in ((np.float64, 1e-6), (np.float16, 2e-3)):
        q, k, v, k_scale, v_scale = arrays(rng, 3, 40, dtype=dtype)
        o = redblue.attention(q, k, v, k_scale=k_scale, v_scale=v_scale)
        assert o.dtype == dtype
        np.testing.assert_allclose(o, redblue.attention(q.astype(float), numbers(k, k_scale), numbers(v, v_scale)), atol=most)


@pytest.mark.parametrize("keys", [None, 8])
def test_caches_grow(rng, keys):
    n_cache = 24
    q, k, v, k_scale, v_scale = arrays(rng, 1, n_cache, None if keys is None else n_cache // keys)
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    k_cache, v_cache = np.zeros_like(k), np.zeros_like(v)
    lengths = [17, 9]
    for b, n in enumerate(lengths):
        k_cache[b, : n - 1], v_cache[b, : n - 1] = k[b, : n - 1], v[b, : n - 1]
    new = [np.stack([x[b, n - 1 : n] for b, n in enumerate(lengths)]) for x in (k, v)]
    o = redblue.flash_attn_with_kvcache(
        q, k_cache, v_cache, *new, cache_seqlens=[n - 1 for n in lengths], causal=True, k_descale=k_scale, v_descale=v_scale,
        keys_per_scale=keys,
    )  # fmt: skip
    for b, n in enumerate(lengths):
        np.testing.assert_array_equal(k_cache[b, :n], k[b, :n])
        of_b = [numbers(x.swapaxes(1, 2)[b : b + 1], s[b : b + 1], keys)[:, :, :n] for x, s in ((k, k_scale), (v, v_scale))]
        np.testing.assert_allclose(o[b], redblue.attention(q[b : b + 1].swapaxes(1, 2).astype(float), *of_b)[0].swapaxes(0, 1), atol=1e-5)


def test_pages(rng):
    size, lengths = 4, [11, 6]
    q, k, v, k_scale, v_scale = arrays(rng, 2, 12)
    table = np.array([[5, 0, 3], [1, 4, 2]], np.int32)
    pools = []
    for x in (k, v):
        pool = np.zeros((6, size, KV_HEADS, D), np.int8)
        for b in range(B):
            pool[table[b]] = x[b].swapaxes(0, 1).reshape(3, size, KV_HEADS, D)
        pools.append(pool)
    o, lse = redblue.flash_attn_with_kvcache(
        q.swapaxes(1, 2), *pools, cache_seqlens=lengths, block_table=table, causal=True, k_descale=k_scale, v_descale=v_scale,
        return_softmax_lse=True,
    )  # fmt: skip
    for b, n in enumerate(lengths):
        parts = [numbers(x, s)[b, :, :n] for x, s in ((k, k_scale), (v, v_scale))]
        want = redblue.attention(q[b].astype(float), *parts, causal=True, return_lse=True)
        np.testing.assert_allclose(o[b].swapaxes(0, 1), want[0], atol=1e-5)
        np.testing.assert_allclose(lse[b], want[1], atol=1e-5)


def test_large_pages_are_read_where_they_lie(rng):
    size = 2048  # 128 KiB of keys
    q, k, v, k_scale, v_scale = arrays(rng, 1, 2 * size)
    pools = [np.concatenate([x[:, :, size:], x[:, :, :size]]).swapaxes(1, 2).copy() for x in (k, v)]
    table = np.array([[2, 0], [3, 1]], np.int32)  # the second halves lie in front
    o = redblue.flash_attn_with_kvcache(
        q.swapaxes(1, 2), *pools, cache_seqlens=2 * size - 5, block_table=table, k_descale=k_scale, v_descale=v_scale
    )
    want = redblue.attention(q.astype(float), *(numbers(x, s)[:, :, :-5] for x, s in ((k, k_scale), (v, v_scale))))
    np.testing.assert_allclose(o.swapaxes(1, 2), want, atol=1e-5)


def test_plans_count_the_bytes_of_words_and_scales():
    sizes = {"n_q": 1, "n_k": 1000, "d": 64, "heads": 8, "kv_heads": 2, "memory": "64KiB", "schedule": "flash"}
    words, others = 2 * 1000 * 64, (2 * 8 * 64 + 8) * 4  # q, o and lse
    for keys, scales in ((1000, 2), (300, 8)):
        plan = redblue.plan(**sizes, keys_per_scale=keys)
        assert plan.bytes == 2 * (words + 4 * scales) + others
        assert plan.count()["io"] == plan.io
        assert "scales" in plan.loop_nest
    assert redblue.plan(**sizes).bytes == 2 * 4 * words + others


def test_explain_tells_the_plan(rng):
    q, k, v, k_scale, v_scale = arrays(rng, 1, 300)
    plan = redblue.explain(q, k, v, k_scale=k_scale, v_scale=v_scale, memory="16KiB")
    assert plan.bytes < redblue.explain(q, k.astype(np.float32), v.astype(np.float32), memory="16KiB").bytes / 3


REFUSED = {
    "give both; v_scale is missing": {"k_scale": 0.1},
    "without scales": {"keys_per_scale": 4},
    "k_scale is \\[3\\]": {"k_scale": np.ones(3, np.float32), "v_scale": 1.0},
    "for blocks of keys give keys_per_scale": {"k_scale": np.ones((B, KV_HEADS, 5), np.float32), "v_scale": 1.0},
    "here \\[2, 2, 10\\]": {"k_scale": np.ones((B, KV_HEADS, 5), np.float32), "v_scale": 1.0, "keys_per_scale": 4},
    "from 1 on": {"k_scale": 1.0, "v_scale": 1.0, "keys_per_scale": 0},
    "q must be bf16": {"k_scale": 1.0, "v_scale": 1.0, "compute": "bf16"},
    "nothing is proved": {"k_scale": 1.0, "v_scale": 1.0, "tolerance": 1e-3},
    "give float32": {"k_scale": np.ones(2, np.int64), "v_scale": 1.0},
    "k_scale has inf": {"k_scale": 1e39, "v_scale": 1.0},
    "v_scale has nan": {"k_scale": 1.0, "v_scale": np.full(KV_HEADS, np.nan, np.float32)},
    "take k and v of int8, both, with their scales": {},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_has_no_meaning_is_refused(rng, message):
    q, k, v, *_ = arrays(rng, 2, 40)
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=message):
        redblue.attention(q, k, v, **REFUSED[message])


def test_other_functions_refuse_int8(rng):
    q, k, v, k_scale, v_scale = arrays(rng, 40, 40)
    scales = {"k_scale": k_scale, "v_scale": v_scale}
    wanted = "take k and v of int8|int8 keys and values are for"
    for call in (
        lambda: redblue.attention_backward(q, q, k, v),
        lambda: redblue.attention_backward(q, q, k, v, **scales),
        lambda: redblue.scores(q, k),
        lambda: redblue.attention_partial(q, k, v),
        lambda: redblue.certify(q, k, v, tolerance=1e-3),
        lambda: redblue.compare(q, k, v, M=1000),
        lambda: redblue.flash_attn_func(q, k, v),
        lambda: redblue.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        lambda: redblue.flash_attn_with_kvcache(*(x.swapaxes(1, 2) for x in (q, k, v)), cache_seqlens=40),
    ):
        with pytest.raises(TypeError, match=wanted):
            call()
    with pytest.raises(TypeError, match="these are for int8"):
        redblue.attention(q, k.astype(np.float32), v.astype(np.float32), **scales)
    with pytest.raises(TypeError, match="k and v are of int8 and f32"):
        redblue.attention(q, k, v.astype(np.float32), **scales)
    with pytest.raises(NotImplementedError, match="one scale for each head"):
        redblue.attention(q, k, v, k_scale=np.ones((B, KV_HEADS, 4), np.float32), v_scale=np.ones((B, KV_HEADS, 4), np.float32),
                          keys_per_scale=10, pattern=redblue.patterns.mask(np.tri(40, dtype=bool)))  # fmt: skip
    with pytest.raises(NotImplementedError, match="blocks are of rows of a cache"):
        redblue.flash_attn_with_kvcache(
            *(x.swapaxes(1, 2) for x in (q, k, v)), cache_batch_idx=[0, 1], k_descale=k_scale, v_descale=v_scale, keys_per_scale=10
        )


def test_tensors():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    for dtype, most in ((torch.float32, 1e-5), (torch.bfloat16, 3e-2)):
        q = torch.randn(B, HEADS, 1, D).to(dtype)
        k, v = (torch.randint(-127, 128, (B, KV_HEADS, 90, D), dtype=torch.int8) for _ in range(2))
        k_scale, v_scale = (torch.rand(B, KV_HEADS) / 50 for _ in range(2))
        o = redblue.attention(q, k, v, k_scale=k_scale, v_scale=v_scale)
        assert o.dtype == dtype
        wide = [(x * s[..., None, None]).double() for x, s in ((k, k_scale), (v, v_scale))]
        torch.testing.assert_close(o.double(), redblue.attention(q.double(), *wide), atol=most, rtol=0)
        cached = redblue.flash_attn_with_kvcache(*(x.transpose(1, 2) for x in (q, k, v)), cache_seqlens=90, k_descale=k_scale, v_descale=v_scale)
        torch.testing.assert_close(cached.transpose(1, 2), o, atol=most, rtol=0)
    wants = torch.randn(B, HEADS, 1, D, requires_grad=True)
    with pytest.raises(NotImplementedError, match="have no gradients"):
        redblue.attention(wants, k, v, k_scale=k_scale, v_scale=v_scale)
    with torch.no_grad():
        redblue.attention(wants, k, v, k_scale=k_scale, v_scale=v_scale)
    with pytest.raises(NotImplementedError, match="not in what torch traces or maps"):
        torch.vmap(lambda x: redblue.attention(x, k[0], v[0], k_scale=k_scale[0], v_scale=v_scale[0]))(wants.detach())


def test_few_queries_of_bfloat16_take_products_of_bf16():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    k, v = (torch.randint(-127, 128, (B, KV_HEADS, 90, D), dtype=torch.int8) for _ in range(2))
    for n_q, dtype, compute in ((1, torch.bfloat16, "bf16"), (4, torch.bfloat16, "bf16"), (5, torch.bfloat16, "f32"), (1, torch.float32, "f32")):
        q = torch.randn(B, HEADS, n_q, D).to(dtype)
        assert redblue.explain(q, k, v, k_scale=0.01, v_scale=0.01).compute == compute
        o = redblue.attention(q, k, v, k_scale=0.01, v_scale=0.01)
        for other in ("f32", "bf16") if dtype == torch.bfloat16 else ("f32",):
            torch.testing.assert_close(redblue.attention(q, k, v, k_scale=0.01, v_scale=0.01, compute=other), o, atol=1e-2, rtol=0)
    apart = torch.randn(B, HEADS, D, 1).bfloat16().transpose(2, 3)  # features of a row lie side by side all the same
    assert redblue.explain(apart[..., ::2], k[..., ::2], v, k_scale=0.01, v_scale=0.01).compute == "f32"
