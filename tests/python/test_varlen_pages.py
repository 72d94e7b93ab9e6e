"""flash_attn_varlen_func with block_table, against attention in fp64 of each sequence alone."""

import itertools

import numpy as np
import pytest

import redblue
from dense import alibi, at, attention

pytestmark = pytest.mark.usefixtures("hardware")
HEADS, KV_HEADS, D, SIZE, PAGES = 4, 2, 8, 3, 14
LENGTHS_Q, LENGTHS_K = np.array([4, 1, 0, 2, 1]), np.array([11, 7, 3, 0, 12])
MASKS = (
    {}, {"causal": True}, {"window_size": (3, 1)}, {"causal": True, "window_size": (2, 0), "softcap": 1.5},
    {"softmax_scale": 0.3, "alibi_slopes": np.linspace(0.1, 1, HEADS, dtype=np.float32)},
    {"causal": True, "alibi_slopes": np.linspace(0.1, 1, 5 * HEADS, dtype=np.float32).reshape(5, HEADS)},
)  # fmt: skip


def starts(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


@pytest.fixture
def drawn():
    """q, pages of keys and of values, and the table: of what it names beyond the lengths nothing is a page, or a number."""
    rng = np.random.default_rng(11)
    q = rng.standard_normal((LENGTHS_Q.sum(), HEADS, D), dtype=np.float32)
    caches = np.full((2, PAGES, SIZE, KV_HEADS, D), np.nan, np.float32)
    table, free = np.full((5, 4), -9, np.int32), iter(rng.permutation(PAGES))
    for b, n in enumerate(LENGTHS_K):
        for t in range(n):
            if t % SIZE == 0:
                table[b, t // SIZE] = next(free)
            caches[:, table[b, t // SIZE], t % SIZE] = rng.standard_normal((2, KV_HEADS, D))
    return q, *caches, table


def dense(q, k_cache, v_cache, table, lengths_q, lengths_k, mask):
    """o and lse, rows without queries 0 and -inf, all of fp64."""
    o, lse = np.zeros(q.shape), np.full((HEADS, len(q)), -np.inf)
    for b, (first, n_q, n_k) in enumerate(zip(starts(LENGTHS_Q), lengths_q, lengths_k)):
        k, v = (np.array([x[table[b, t // SIZE], t % SIZE] for t in range(n_k)]).reshape(-1, KV_HEADS, D) for x in (k_cache, v_cache))
        position, j = at(n_q, n_k), np.arange(n_k)
        left, right = mask.get("window_size", (-1, -1))
        keep = ~((j > position) & mask.get("causal", False))
        keep &= ((j >= position - left) | (left < 0)) & ((j <= position + right) | (right < 0))
        slopes = mask.get("alibi_slopes")
        bias = 0.0 if slopes is None else alibi(n_q, n_k, slopes if slopes.ndim == 1 else slopes[b])
        here = slice(first, first + n_q)
        if n_q and n_k:
            one, lse[:, here] = attention(
                *(x.swapaxes(0, 1) for x in (q[here], k, v)), keep, bias=bias, softcap=mask.get("softcap", 0.0),
                scale=mask.get("softmax_scale"),
            )  # fmt: skip
            o[here] = one.swapaxes(0, 1)
    return o, lse


def call(q, k, v, table, **options):
    return redblue.flash_attn_varlen_func(
        q, k, v, starts(LENGTHS_Q), options.pop("cu_seqlens_k", starts(LENGTHS_K)), block_table=table, return_attn_probs=True, **options
    )


@pytest.mark.parametrize("mask, large", list(itertools.product(MASKS, (False, True))), ids=lambda x: "" if isinstance(x, dict) else str(x))
def test_each_sequence_sees_its_pages(monkeypatch, drawn, mask, large):
    monkeypatch.setattr(redblue._flash.one_by_one, "_LARGE", 1 if large else 1 << 30)
    o, lse, _ = call(*drawn, **mask)
    want = dense(*drawn, LENGTHS_Q, LENGTHS_K, mask)
    np.testing.assert_allclose(o, want[0], atol=3e-6)
    np.testing.assert_allclose(lse, want[1], atol=3e-6)


@pytest.mark.parametrize("given", [True, False], ids=["cu_seqlens_k", "no cu_seqlens_k"])
def test_what_is_used_of_each_sequence(drawn, given):
    used_q, used_k = np.array([2, 1, 0, 0, 1], np.int32), np.array([8, 0, 2, 0, 12], np.int32)
    options = {} if given else {"cu_seqlens_k": None}
    o, lse, _ = call(*drawn, seqused_q=used_q, seqused_k=used_k, causal=True, **options)
    want = dense(*drawn, used_q, used_k, {"causal": True})
    np.testing.assert_allclose(o, want[0], atol=3e-6)
    np.testing.assert_allclose(lse, want[1], atol=3e-6)


def test_tensors_are_read_as_arrays_are(drawn):
    torch = pytest.importorskip("torch")
    o, lse, _ = call(*drawn, causal=True)
    tensors = [torch.from_numpy(x) for x in drawn]
    of_tensors = call(*tensors, causal=True)
    np.testing.assert_array_equal(of_tensors[0], o)
    np.testing.assert_array_equal(of_tensors[1], lse)
    halves = [x.bfloat16() for x in tensors[:3]]
    narrow = call(*halves, tensors[3], causal=True)
    wide = call(*(x.float() for x in halves), tensors[3], causal=True)
    assert narrow[0].dtype is torch.bfloat16
    np.testing.assert_allclose(narrow[0].float(), wide[0], atol=2e-2)
    with pytest.raises(redblue.Unsupported, match="have no gradients"):
        call(tensors[0].clone().requires_grad_(), *tensors[1:])


WRONG = {
    "dropout": ({"dropout_p": 0.1}, redblue.Unsupported, "dropout_p = 0.1 with block_table"),
    "no lengths": ({"cu_seqlens_k": None}, redblue.InvalidProblem, "cu_seqlens_k = None: give where .* or seqused_k"),
    "lengths of other sequences": ({"cu_seqlens_k": [0, 3]}, redblue.InvalidProblem, r"lengths of cu_seqlens_k = \[3\]: give a length for each of 5"),
    "no room": ({"cu_seqlens_k": [0, 13, 14, 15, 16, 17]}, redblue.InvalidProblem, r"lengths of cu_seqlens_k = \[13, .*up to \[12, 12"),
    "descending": ({"cu_seqlens_k": [0, 3, 2, 4, 5, 6]}, redblue.InvalidProblem, "cu_seqlens_k = .*ascending"),
    "more used than there are": ({"seqused_k": [12, 0, 0, 0, 0]}, redblue.InvalidProblem, r"seqused_k = \[12, .*up to \[11, 7"),
    "more queries used": ({"seqused_q": [4, 1, 1, 2, 1]}, redblue.InvalidProblem, r"seqused_q = .*up to \[4, 1, 0"),
    "no page": ({"cu_seqlens_k": [0, 11, 18, 22, 22, 34]}, redblue.InvalidProblem, "page -9 for sequence 2"),
    "slopes of other heads": ({"alibi_slopes": np.ones(3, np.float32)}, redblue.InvalidProblem, "alibi_slopes"),
}  # fmt: skip


@pytest.mark.parametrize("options, error, text", WRONG.values(), ids=WRONG)
def test_refusals(drawn, options, error, text):
    with pytest.raises(error, match=text):
        call(*drawn, **options)


def test_arrays_of_other_shapes_are_refused(drawn):
    q, k, v, table = drawn
    for arrays, text in (
        ((q[None], k, v, table), r"q is .*: with block_table give \[total_q, heads, d\]"),
        ((q, k[0], v, table), r"k is .*\[pages, page_size, kv_heads, d\]"),
        ((q, k, v[:-1], table), "make all but their features equal"),
        ((q[..., :4], k, v, table), "the features of k and q are of sizes 8 and 4"),
        ((q, k, v, table[:4]), "one row of pages for each of 5 sequences"),
    ):
        with pytest.raises((redblue.InvalidProblem, TypeError), match=text):
            call(*arrays)
