"""Attention to some of the keys at a time, and merges, against NumPy over all keys in fp64."""

import numpy as np
import pytest

import redblue
from dense import attention, causal

pytestmark = pytest.mark.usefixtures("hardware")


@pytest.fixture
def qkv():
    rng = np.random.default_rng(5)
    shapes = (2, 4, 9, 5), (2, 2, 14, 5), (2, 2, 14, 3), (2, 4, 9, 3)
    return [rng.standard_normal(shape) for shape in shapes]


def whole(q, k, v, offset=None):
    """o and lse of all keys; query i sees keys j <= i + offset."""
    return attention(q, k, v, True if offset is None else causal(q.shape[2], k.shape[2], offset))


def place(offset, s):
    return {} if offset is None else {"causal": True, "alignment": offset - s}


@pytest.mark.parametrize("offset", [None, 5, -3])
@pytest.mark.parametrize("cuts", [(), (6,), (1, 2, 13), (5, 5, 9)])
@pytest.mark.parametrize("type_", [np.float32, np.float64])
def test_parts_of_the_keys_are_all_keys(qkv, offset, cuts, type_):
    q, k, v, do = (x.astype(type_) for x in qkv)
    wanted = whole(*qkv[:3], offset)
    parts = [*zip((0, *cuts), (*cuts, 14))]
    o = lse = merged = None
    for s, end in reversed(parts):
        keys = k[:, :, s:end], v[:, :, s:end]
        o, lse = redblue.attention_partial(q, *keys, o, lse, **place(offset, s))
        one = redblue.attention_partial(q, *keys, **place(offset, s))
        merged = one if merged is None else redblue.merge(*merged, *one)
    near = {"rtol": 0, "atol": 1e-5 if type_ is np.float32 else 1e-13}
    for ours in ((o, lse), merged):
        for x, y in zip(ours, wanted):
            assert x.dtype == type_
            np.testing.assert_allclose(x, y, **near)

    dq, dk, dv = (np.zeros_like(x) for x in (q, k, v))
    for s, end in parts:
        got = redblue.attention_partial_backward(
            do, q, k[:, :, s:end], v[:, :, s:end], o, lse, dq, dk[:, :, s:end], dv[:, :, s:end], **place(offset, s)
        )
        assert got.dq is dq
    exact = redblue.attention_backward(do, q, k, v, o, lse, **place(offset, 0))
    for x, y in zip((dq, dk, dv), exact):
        np.testing.assert_allclose(x, y, rtol=0, atol=10 * near["atol"])


def test_merge_writes_where_it_is_asked_to(qkv):
    q, k, v, _ = qkv
    a, b = (redblue.attention_partial(q, k[:, :, s:e], v[:, :, s:e]) for s, e in ((0, 4), (4, 14)))
    kept = a[0].copy()
    new = redblue.merge(*a, *b)
    assert (a[0] == kept).all()
    assert redblue.merge(*a, *b, out=a)[0] is a[0]
    for x, y, z in zip(a, new, whole(q, k, v)):
        np.testing.assert_array_equal(x, y)
        np.testing.assert_allclose(x, z, rtol=0, atol=1e-13)


def test_merge_with_tokens_first(qkv):
    q, k, v, _ = (np.ascontiguousarray(x.swapaxes(1, 2)) for x in qkv)
    parts = [redblue.attention_partial(q, k[:, s:e], v[:, s:e], layout="bshd") for s, e in ((0, 3), (3, 14))]
    o, lse = redblue.merge(*parts[0], *parts[1], layout="bshd")
    wanted = whole(*qkv[:3])
    np.testing.assert_allclose(o.swapaxes(1, 2), wanted[0], rtol=0, atol=1e-13)
    np.testing.assert_allclose(lse, wanted[1], rtol=0, atol=1e-13)


def test_halves_accumulate_in_fp32(qkv):
    q, k, v, _ = (x.astype(np.float16) for x in qkv)
    o, lse = redblue.attention_partial(q, k[:, :, :7], v[:, :, :7])
    assert o.dtype == lse.dtype == np.float32
    redblue.attention_partial(q, k[:, :, 7:], v[:, :, 7:], o, lse)
    wanted = whole(*(x.astype(float) for x in (q, k, v)))
    np.testing.assert_allclose(o, wanted[0], rtol=0, atol=1e-5)
    with pytest.raises(redblue.InvalidProblem, match="o has elements of type f16"):
        redblue.attention_partial(q, k, v, o.astype(np.float16), lse)


def test_no_keys_change_nothing(qkv):
    q, k, v, _ = qkv
    o, lse = redblue.attention_partial(q, k[:, :, :0], v[:, :, :0])
    assert (o == 0).all() and (lse == -np.inf).all()
    redblue.attention_partial(q, k, v, o, lse)
    kept = o.copy()
    redblue.attention_partial(q, k[:, :, :0], v[:, :, :0], o, lse)
    np.testing.assert_array_equal(o, kept)
    np.testing.assert_allclose(o, whole(q, k, v)[0], rtol=0, atol=1e-13)


def test_refusals(qkv):
    q, k, v, _ = qkv
    o, lse = redblue.attention_partial(q, k, v)
    with pytest.raises(redblue.InvalidProblem, match="alignment"):
        redblue.attention_partial(q, k, v, o, lse, causal=True)
    with pytest.raises(redblue.InvalidProblem, match="give both"):
        redblue.attention_partial(q, k, v, o)
    with pytest.raises(redblue.InvalidProblem, match="sink"):
        redblue.attention_partial(q, k, v, o, lse, sinks=np.zeros(4))
    with pytest.raises(redblue.InvalidProblem, match=r"o is \[2, 4, 8, 3\]"):
        redblue.attention_partial(q, k, v, o[:, :, :8], lse)
    with pytest.raises(redblue.InvalidProblem, match="lse2"):
        redblue.merge(o, lse, o, lse[:, :, :8])
    with pytest.raises(redblue.InvalidProblem, match="exact"):
        redblue.attention_partial(q, k, v, o, lse, approximate="linear")


@pytest.mark.parametrize("keys", [16, 0])
@pytest.mark.parametrize(
    "options, said",
    [({"approximate": "linear"}, "exact"), ({"sinks": np.zeros(4)}, "sink"), ({"dropout": 0.5, "seed": 1}, "dropout")],
)
def test_the_first_part_refuses_what_later_ones_do(qkv, options, said, keys):
    q, k, v, _ = qkv
    with pytest.raises(redblue.InvalidProblem, match=said):
        redblue.attention_partial(q, k[:, :, :keys], v[:, :, :keys], **options)


def test_tensors(qkv):
    torch = pytest.importorskip("torch")
    q, k, v, _ = (torch.from_numpy(x) for x in qkv)
    o, lse = redblue.attention_partial(q, k[:, :, :5], v[:, :, :5])
    assert redblue.attention_partial(q, k[:, :, 5:], v[:, :, 5:], o, lse)[0] is o
    np.testing.assert_allclose(o.numpy(), whole(*qkv[:3])[0], rtol=0, atol=1e-13)
    with pytest.raises(redblue.Unsupported, match="no gradients"):
        redblue.attention_partial(q.requires_grad_(), k, v)


@pytest.mark.parametrize("options", [{"causal": True}, {"window": (3, 0)}, {"dilation": 2, "window": (-1, -1)}])
def test_a_part_says_where_it_lies(options):
    q = np.ones((1, 2, 8, 4), np.float32)
    with pytest.raises(redblue.InvalidProblem, match="for a part of the keys give a number"):
        redblue.attention_partial(q, q[:, :, :3], q[:, :, :3], **options)


@pytest.mark.parametrize("option", ["prefix", "dilation", "threads"])
def test_whole_numbers_of_more_than_63_bits_are_refused(option):
    q = np.ones((1, 2, 8, 4), np.float32)
    with pytest.raises(redblue.InvalidProblem, match=f"{option} = .*63 bits"):
        redblue.attention(q, q, q, **{option: 1 << 70})
