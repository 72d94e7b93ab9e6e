"""flash_attn_with_kvcache and the packed functions, against attention in fp64 of each sequence alone."""

import numpy as np
import pytest

import redblue
from dense import alibi, at, attention

pytestmark = pytest.mark.usefixtures("hardware")
B, N_Q, N_CACHE, HEADS, KV_HEADS, D = 3, 4, 11, 4, 2, 8


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def dense(q, k, v, length, causal=False, window=(-1, -1), softcap=0.0, slopes=None, scale=None):
    """(o, lse) of one sequence, q [n_q, heads, d], the first keys of its cache, in fp64."""
    position, j = at(len(q), length), np.arange(length)
    left, right = window
    keep = ~((j > position) & causal) & ((j >= position - left) | (left < 0)) & ((j <= position + right) | (right < 0))
    bias = 0.0 if slopes is None else alibi(len(q), length, slopes)
    o, lse = attention(*(x.swapaxes(0, 1) for x in (q, k[:length], v[:length])), keep, bias=bias, softcap=softcap, scale=scale)
    return o.swapaxes(0, 1), lse


def caches(rng, n_new):
    shapes = (B, N_Q, HEADS, D), *((B, n, KV_HEADS, D) for n in (N_CACHE, N_CACHE, n_new, n_new))
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"window_size": (3, 1)},
    "causal window": {"causal": True, "window_size": (2, 0)},
    "softcap and scale": {"causal": True, "softcap": 1.5, "softmax_scale": 0.7},
    "slopes": {"causal": True, "alibi_slopes": np.array([[0.5, 0.25, 0.1, 1.0]], np.float32)},
    "slopes of batches": {"alibi_slopes": np.linspace(0.1, 1, 12, dtype=np.float32).reshape(3, 4)},
}


CASES = [(name, [5, 0, 9], 2) for name in OPTIONS] + [("causal", 5, 0), ("slopes", np.array([2, 7, 7], np.int32), 0)]


@pytest.mark.parametrize(("options", "lengths", "n_new"), CASES, ids=str)
def test_each_sequence_sees_its_keys(rng, options, lengths, n_new):
    options = OPTIONS[options]
    q, k_cache, v_cache, k, v = caches(rng, n_new)
    wanted_k, wanted_v = k_cache.copy(), v_cache.copy()
    new = {"k": k, "v": v} if n_new else {}
    o, lse = redblue.flash_attn_with_kvcache(
        q, k_cache, v_cache, cache_seqlens=lengths, return_softmax_lse=True, **new, **options
    )
    slopes = options.get("alibi_slopes")
    for b, n in enumerate(np.broadcast_to(lengths, B)):
        wanted_k[b, n : n + n_new], wanted_v[b, n : n + n_new] = k[b], v[b]
        want = dense(
            q[b], wanted_k[b], wanted_v[b], n + n_new, options.get("causal", False), options.get("window_size", (-1, -1)),
            options.get("softcap", 0.0), None if slopes is None else slopes[b % len(slopes)], options.get("softmax_scale"),
        )  # fmt: skip
        np.testing.assert_allclose(o[b], want[0], atol=3e-6)
        np.testing.assert_allclose(lse[b], want[1], atol=3e-6)
    np.testing.assert_array_equal(k_cache, wanted_k)
    np.testing.assert_array_equal(v_cache, wanted_v)


def test_tokens_one_by_one_are_those_of_the_whole(rng):
    q, k, v = (rng.standard_normal((2, 6, h, D), dtype=np.float32) for h in (HEADS, KV_HEADS, KV_HEADS))
    k_cache, v_cache = np.full((2, 2, 8, KV_HEADS, D), np.nan, np.float32)
    whole = redblue.flash_attn_func(q, k, v, causal=True)
    for t in range(6):
        now = slice(t, t + 1)
        o = redblue.flash_attn_with_kvcache(q[:, now], k_cache, v_cache, k[:, now], v[:, now], cache_seqlens=t, causal=True)
        np.testing.assert_allclose(o, whole[:, now], atol=2e-6)


def test_a_full_cache_needs_no_lengths(rng):
    q, k_cache, v_cache, *_ = caches(rng, 0)
    np.testing.assert_array_equal(redblue.flash_attn_with_kvcache(q, k_cache, v_cache), redblue.flash_attn_func(q, k_cache, v_cache))


def test_refusals(rng):
    q, k_cache, v_cache, k, v = caches(rng, 2)
    before = k_cache.copy()
    read_only = v_cache.copy()
    read_only.flags.writeable = False
    call = redblue.flash_attn_with_kvcache
    for arrays, options, error, text in (
        ((q, k_cache, v_cache), {"cache_seqlens": [1, 2]}, redblue.InvalidProblem, "each of 3 sequences"),
        ((q, k_cache, v_cache), {"cache_seqlens": 12}, redblue.InvalidProblem, "from 0 to 11"),
        ((q, k_cache, v_cache), {"cache_seqlens": True}, redblue.InvalidProblem, "True and False are no whole numbers"),
        ((q, k_cache, v_cache), {"window_size": 3}, redblue.InvalidProblem, "window_size = 3"),
        ((q[0], k_cache, v_cache), {}, redblue.InvalidProblem, "q is"),
        ((q, k_cache, v_cache, k), {"cache_seqlens": 1}, redblue.InvalidProblem, "give both"),
        ((q, k_cache, v_cache, k, v), {}, redblue.InvalidProblem, "without cache_seqlens"),
        ((q, k_cache, v_cache, k, v), {"cache_seqlens": 10}, redblue.InvalidProblem, "room for 11"),
        ((q, k_cache, v_cache, k, v[:, :1]), {"cache_seqlens": 1}, redblue.InvalidProblem, r"v is \[3, 1, 2, 8\]"),
        ((q, k_cache, v_cache, k, v.astype(np.float64)), {"cache_seqlens": 1}, TypeError, "one type"),
        ((q, k_cache, read_only, k, v), {"cache_seqlens": 1}, redblue.InvalidProblem, "v_cache is read-only"),
    ):
        with pytest.raises(error, match=text):
            call(*arrays, **options)
    np.testing.assert_array_equal(k_cache, before)


@pytest.mark.parametrize("options", [{"window_size": 5}, {"softcap": -1.0}, {"softmax_scale": np.nan}, {"alibi_slopes": np.ones(3)}])
def test_what_is_refused_is_not_appended(rng, options):
    q, k_cache, v_cache, k, v = caches(rng, 2)
    before = k_cache.copy()
    with pytest.raises(redblue.InvalidProblem):
        redblue.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=3, **options)
    np.testing.assert_array_equal(k_cache, before)


def test_new_keys_may_be_views_of_the_cache(rng):
    q, k_cache, v_cache, _, v = caches(rng, 1)
    want = k_cache.copy()
    want[:, 2] = k_cache[::-1, 2]
    redblue.flash_attn_with_kvcache(q, k_cache, v_cache, k_cache[::-1, 2:3], v, cache_seqlens=2)
    np.testing.assert_array_equal(k_cache, want)


def test_packed_functions_are_flash_attn_func_of_their_parts(rng):
    qkv = rng.standard_normal((2, 5, 3, 4, 8), dtype=np.float32)
    q, k, v = (qkv[:, :, i] for i in range(3))
    want = redblue.flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    for got in (
        redblue.flash_attn_qkvpacked_func(qkv, causal=True, return_attn_probs=True),
        redblue.flash_attn_qkvpacked_func(memoryview(qkv), causal=True, return_attn_probs=True),
        redblue.flash_attn_kvpacked_func(q, qkv[:, :, 1:], causal=True, return_attn_probs=True),
    ):
        assert got[2] is None
        for g, w in zip(got[:2], want):
            np.testing.assert_array_equal(g, w)
    assert np.array_equal(redblue.flash_attn_qkvpacked_func(qkv), redblue.flash_attn_func(q, k, v))
    with pytest.raises(redblue.InvalidProblem, match=r"kv is .*\[batch, sequence, 2, heads, features\]"):
        redblue.flash_attn_kvpacked_func(q, qkv)


LENGTHS = [0, 3, 3, 8]  # where three sequences begin, one of them empty


def of_each_sequence(qkv, causal, slopes=None):
    """(o, lse) of packed qkv [3, total, heads, d], sequence by sequence."""
    parts = [
        dense(*qkv[:, a:b], b - a, causal, slopes=None if slopes is None else slopes[i])
        for i, (a, b) in enumerate(zip(LENGTHS, LENGTHS[1:]))
        if b > a
    ]
    return np.concatenate([o for o, _ in parts]), np.concatenate([lse for _, lse in parts], -1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("slopes", [None, np.linspace(0.1, 1, 6, dtype=np.float32).reshape(3, 2)], ids=["", "slopes"])
def test_packed_sequences_in_one_array(rng, causal, slopes):
    qkv = rng.standard_normal((8, 3, 2, D), dtype=np.float32)
    want = of_each_sequence(qkv.swapaxes(0, 1), causal, slopes)
    options = {"causal": causal, "alibi_slopes": slopes, "return_attn_probs": True}
    for got in (
        redblue.flash_attn_varlen_qkvpacked_func(qkv, LENGTHS, 5, **options),
        redblue.flash_attn_varlen_qkvpacked_func(memoryview(qkv), np.array(LENGTHS, np.int32), max_seqlen=5, **options),
        redblue.flash_attn_varlen_kvpacked_func(qkv[:, 0], qkv[:, 1:], LENGTHS, LENGTHS, 5, 5, **options),
    ):
        assert got[2] is None
        for g, w in zip(got[:2], want):
            np.testing.assert_allclose(g, w, atol=3e-6)
    o = redblue.flash_attn_varlen_qkvpacked_func(qkv, LENGTHS, 5, 0.0, 0.3, causal, (2, 0), 1.5)
    q, k, v = (qkv[:, i] for i in range(3))
    np.testing.assert_array_equal(o, redblue.flash_attn_varlen_func(q, k, v, LENGTHS, LENGTHS, 5, 5, 0.0, 0.3, causal, (2, 0), 1.5))


def test_packed_sequences_of_other_shapes_are_refused(rng):
    qkv = rng.standard_normal((8, 3, 2, D), dtype=np.float32)
    with pytest.raises(redblue.InvalidProblem, match=r"kv is .*\[tokens, 2, heads, features\]"):
        redblue.flash_attn_varlen_kvpacked_func(qkv[:, 0], qkv, LENGTHS, LENGTHS)
    with pytest.raises(redblue.InvalidProblem, match=r"qkv is .*\[tokens, 3, heads, features\]"):
        redblue.flash_attn_varlen_qkvpacked_func(qkv[None], LENGTHS)
    with pytest.raises(redblue.InvalidProblem, match="cu_seqlens"):
        redblue.flash_attn_varlen_qkvpacked_func(qkv, [0, 3])


def test_gradients_of_packed_sequences():
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    x = torch.randn(8, 3, 2, 4, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: redblue.flash_attn_varlen_qkvpacked_func(x, LENGTHS, 5, causal=True), (x,))
    q, kv = (x.detach().clone().requires_grad_() for x in (x[:, 0], x[:, 1:]))
    torch.autograd.gradcheck(lambda q, kv: redblue.flash_attn_varlen_kvpacked_func(q, kv, LENGTHS, LENGTHS), (q, kv))


def test_tensors(rng):
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    arrays = caches(rng, 2)
    want = redblue.flash_attn_with_kvcache(*(x.copy() for x in arrays), cache_seqlens=[1, 4, 2], causal=True)
    tensors = [torch.tensor(x) for x in arrays]
    version = tensors[1]._version
    lengths = torch.tensor([1, 4, 2], dtype=torch.int32)
    o = redblue.flash_attn_with_kvcache(*tensors, cache_seqlens=lengths, causal=True)
    assert isinstance(o, torch.Tensor) and tensors[1]._version > version
    np.testing.assert_array_equal(o, want)
    tensors[0].requires_grad_()
    with pytest.raises(redblue.Unsupported, match="no gradients"):
        redblue.flash_attn_with_kvcache(*tensors, cache_seqlens=lengths)
    with torch.no_grad():
        redblue.flash_attn_with_kvcache(*tensors, cache_seqlens=torch.tensor(3))
    qkv = torch.randn(2, 5, 3, 4, 8, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: redblue.flash_attn_qkvpacked_func(x, causal=True), (qkv[:1, :3, :, :1, :4].detach().requires_grad_(),))
