"""A bias that is a mask runs as that mask: what is recognised, what is not, and that the result is the bias's."""

import numpy as np
import pytest

redblue = pytest.importorskip("redblue")

from redblue._call import calls, masks  # noqa: E402

pytestmark = pytest.mark.usefixtures("hardware")
N = 48
I, J = np.arange(N)[:, None], np.arange(N)[None]
DOCUMENTS = np.searchsorted([7, 20, 36], np.arange(N), side="right")


def padding(*lengths):
    return np.arange(N) < np.array(lengths)[:, None, None, None]


KINDS = {
    "a mask that hides nothing": J >= 0 * I,
    "causal (query i sees the keys up to i)": J <= I,
    "causal (query i sees the keys up to i - 3)": J <= I - 3,
    "causal (query i sees the keys up to i + 5)": J <= I + 5,
    "causal (query i sees the keys up to i, and the first 9)": (J <= I) | (J < 9),
    "a window (query i sees the keys from i - 6 up to i)": (J <= I) & (J >= I - 6),
    "a window (query i sees the keys from i - 6 up to i + 4)": (J <= I + 4) & (J >= I - 6),
    "a window (query i sees the keys from i)": J >= I,
    "a window (query i sees the keys from i + 2 up to i + 2)": J == I + 2,
    "the first 29 keys in use": padding(29),
    "the first 0 to 40 keys in use": padding(40, 17, 0),
    "causal (query i sees the keys up to i), the first 17 to 40 keys in use": padding(40, 17, 33) & (J <= I),
    "causal (query i sees the keys up to i), the first 11 queries in use": (J <= I) & (I < 11),
    "the first 20 to 40 queries in use, the first 20 to 40 keys in use": padding(40, 20, 33) & padding(40, 20, 33).swapaxes(2, 3),
    "packed sequences (4)": DOCUMENTS[:, None] == DOCUMENTS,
    "packed sequences (4) ": (DOCUMENTS[:, None] == DOCUMENTS) & (J <= I),
    "packed sequences (4)  ": (DOCUMENTS[:, None] == DOCUMENTS) & (J <= I) & (J > I - 5),
    "one sequence between padding": (J <= I) & (J >= 13),
    "one sequence between padding in each batch": ~padding(13, 5, 0) & (J <= I),
}


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Small masks, from the first call on."""
    monkeypatch.setattr(masks, "LEAST_PAIRS", 1)
    monkeypatch.setattr(masks, "PRODUCTS_OF_TOKEN", 0)
    monkeypatch.setattr(masks, "PRODUCTS_OF_PART", 0)


def arrays(batch=3, heads=2, kv_heads=2, n_q=N, n_k=N, dtype=np.float64):
    rng = np.random.default_rng(0)
    shapes = [(heads, n_q, 8), (kv_heads, n_k, 8), (kv_heads, n_k, 4), (heads, n_q, 4)]
    return [rng.standard_normal((batch, *shape)).astype(dtype) for shape in shapes]


def found(bias, q, k, v, **options):
    """The settings that run, and what was found."""
    from redblue._attention import request

    r, text = masks.recognised("forward", request(q, k, v, bias=bias, **options), bias)
    return r, text


def shown(r):
    """The pairs that the settings of a request show, by the matrix of scores."""
    s = r.settings
    names = ("causal", "alignment", "window", "prefix", "seqused_q", "seqused_k", "pattern", "order")
    return ~np.isneginf(redblue.scores(r.q, r.k, **{name: getattr(s, name) for name in names if getattr(s, name) != ()}))


def as_a_bias(monkeypatch, call):
    with monkeypatch.context() as patch:
        patch.setattr(masks, "LEAST_PAIRS", 1 << 62)
        return call()


def passes(bias, q, k, v, do, **options):
    o, lse = redblue.attention(q, k, v, bias=bias, return_lse=True, **options)
    return o, lse, *redblue.attention_backward(do, q, k, v, o, lse, bias=bias, **options)[:3]


def assert_as_bias(monkeypatch, bias, *inputs, **options):
    got = passes(bias, *inputs, **options)
    want = as_a_bias(monkeypatch, lambda: passes(bias, *inputs, **options))
    for g, w in zip(got, want):
        np.testing.assert_allclose(g, w, rtol=0, atol=1e-12)


@pytest.mark.parametrize("float_type", [None, np.float64, np.float32, np.float16])
@pytest.mark.parametrize("name", KINDS)
def test_each_kind_is_recognised_and_gives_the_same(monkeypatch, name, float_type):
    mask = KINDS[name]
    bias = mask if float_type is None else np.where(mask, -0.0, -np.inf).astype(float_type)
    q, k, v, do = arrays()
    r, text = found(bias, q, k, v)
    assert text == name.strip()
    assert r.bias is None
    np.testing.assert_array_equal(shown(r), np.broadcast_to(mask, (3, 2, N, N)))
    assert_as_bias(monkeypatch, bias, q, k, v, do)


@pytest.mark.parametrize("name", KINDS)
def test_with_one_bit_flipped_it_is_what_it_then_is(monkeypatch, name):
    """What is recognised shows exactly the pairs of the mask; another number of runs in a row is never recognised."""
    q, k, v, do = arrays()
    rng = np.random.default_rng(1)
    others = 0
    for trial in range(60):
        mask = np.array(np.broadcast_to(KINDS[name], (3, 1, N, N) if KINDS[name].ndim > 2 else (N, N)))
        place = tuple(rng.integers(size) for size in mask.shape)
        if trial % 2:  # beside an edge
            row = mask[place[:-1]]
            place = (*place[:-1], min(N - 1, int(row.argmin()) if row[0] else int(row.argmax())))
        mask[place] = ~mask[place]
        runs = np.diff(mask.astype(int), prepend=0, axis=-1).clip(0).sum(-1)
        r, text = found(mask, q, k, v)
        if runs.max() > 1 or mask.sum() == 0:
            assert text == ""
        if text == "":
            others += 1
            assert r.bias is not None
        else:
            np.testing.assert_array_equal(shown(r), np.broadcast_to(mask, (3, 2, N, N)))
        if trial < 4:
            assert_as_bias(monkeypatch, mask, q, k, v, do)
    assert others > 0


LOWEST = np.finfo(np.float32).min


@pytest.mark.parametrize("value", [1e-30, -1e38, np.nan, -np.nan, np.inf, -LOWEST, np.nextafter(LOWEST, np.float32(0))])
def test_other_numbers_stay_a_bias(value):
    bias = np.where(J <= I, 0.0, -np.inf).astype(np.float32)
    for place in ((N - 1, 0), (0, N - 1)):
        one = bias.copy()
        one[place] = value
        assert found(one, *arrays()[:3])[1] == ""


def lowest(float_type):
    return (pytest.importorskip("ml_dtypes") if float_type == "bfloat16" else np).finfo(float_type).min


@pytest.mark.parametrize("float_type", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("name", KINDS)
def test_the_lowest_number_hides_beside_a_key_that_is_seen(monkeypatch, name, float_type):
    """torch.finfo(dtype).min, as in masks of Hugging Face, alone and among -inf."""
    least = lowest(float_type)
    mask = np.array(KINDS[name])
    hidden = np.where(np.random.default_rng(2).random(mask.shape) < 0.3, -np.inf, least)
    q, k, v, do = arrays()
    for values in (hidden, np.full(mask.shape, least)):
        bias = np.where(mask, 0, np.where(mask.any(-1, keepdims=True), values, -np.inf)).astype(least.dtype)
        r, text = found(bias, q, k, v)
        assert text == name.strip() and r.bias is None
        np.testing.assert_array_equal(shown(r), np.broadcast_to(mask, (3, 2, N, N)))
        assert_as_bias(monkeypatch, bias, q, k, v, do)


@pytest.mark.parametrize("float_type", ["float64", "float32", "bfloat16"])
def test_a_row_of_lowest_numbers_is_the_mean_of_all_values(monkeypatch, float_type):
    least = lowest(float_type)
    q, k, v, do = arrays()
    masks = [J <= I - 3, (J <= I) & (I < 11), padding(40, 17, 0), ~padding(13, 5, 0) & (J <= I), (I < 20) & (J >= 0)]
    for mask in masks:
        bias = np.where(mask, 0, least).astype(least.dtype)
        assert found(bias, q, k, v)[1] == ""
        o = redblue.attention(q, k, v, bias=bias)
        rows = np.broadcast_to(~mask.any(-1), (3, 1, N))[:, 0]
        assert rows.any()
        mean = np.broadcast_to(v.mean(-2, keepdims=True), o.shape).swapaxes(1, 2)[rows]
        np.testing.assert_allclose(o.swapaxes(1, 2)[rows], mean, rtol=0, atol=1e-12)
        bias[..., 0][np.broadcast_to(~mask.any(-1), bias.shape[:-1])] = -np.inf  # one word of such a row is -inf
        assert found(bias, q, k, v)[1] == ""
    assert found(np.where(I < 20, 0, least).astype(least.dtype), q, k, v)[1] == ""  # [n_q, 1]


def test_the_lowest_float16_stays_a_bias():
    """It is -65504, and scores may be that far apart."""
    assert found(np.where(J <= I, 0, np.finfo(np.float16).min).astype(np.float16), *arrays()[:3])[1] == ""
    q, k, v, _ = arrays()
    q, k = q * 300, k * 300
    bias = np.where(J <= I, 0, np.finfo(np.float16).min).astype(np.float16)
    hard = np.where(J <= I, 0, -np.inf).astype(np.float16)
    assert np.abs(redblue.attention(q, k, v, bias=bias) - redblue.attention(q, k, v, bias=hard)).max() > 0.1


def test_a_query_that_sees_no_key_has_output_0(monkeypatch):
    mask = (J <= I - 3) & (J < 30) & (I < 44)
    q, k, v, do = arrays()
    assert found(mask, q, k, v)[1] != ""
    o, lse, dq, _, _ = passes(mask, q, k, v, do)
    for empty in (slice(0, 3), slice(44, N)):
        assert (o[:, :, empty] == 0).all() and np.isneginf(lse[:, :, empty]).all() and (dq[:, :, empty] == 0).all()
    assert np.isfinite(lse[:, :, 3:44]).all()
    assert_as_bias(monkeypatch, mask, q, k, v, do)
    assert found(np.zeros((N, N), bool), q, k, v)[1] == ""


def test_sizes_that_all_share(monkeypatch):
    """[n_k], [n_q, 1], sizes of 1, and memory that is shared by a stride of 0; masks of heads are left alone."""
    q, k, v, do = arrays()
    row = padding(29).reshape(N)
    for mask in (row, row[None], row[None, None, None], np.broadcast_to(J <= I, (3, 2, N, N)), np.broadcast_to(row, (3, 1, N, N)), I < 20):
        assert found(mask, q, k, v)[1] != ""
        assert_as_bias(monkeypatch, mask, q, k, v, do)
    heads = np.stack([J <= I, J <= I + 1])
    assert found(heads, q, k, v)[1] == ""
    assert found(np.stack([J <= I, J <= I]), q, k, v)[1] == ""
    wrong = np.ones((N, N - 1), bool)
    with pytest.raises(redblue.InvalidProblem, match="bias"):
        redblue.attention(q, k, v, bias=wrong)


def test_memory_with_gaps(monkeypatch):
    q, k, v, do = arrays()
    wide = np.ones((N, N + 9), bool)
    wide[:, 4 : 4 + N] = J <= I
    every_other = np.ones((2 * N, N), np.float32)
    every_other[::2] = np.where(J <= I, 0, -np.inf)
    for mask in (wide[:, 4 : 4 + N], every_other[::2], (J <= I)[::-1].copy()[::-1]):
        assert found(mask, q, k, v)[1] != ""
        assert_as_bias(monkeypatch, mask, q, k, v, do)
    transposed = np.ascontiguousarray(J >= I).T  # keys of a query do not lie side by side
    assert found(transposed, q, k, v)[1] == ""
    assert_as_bias(monkeypatch, transposed, q, k, v, do)


@pytest.mark.parametrize("options", [{"dropout": 0.3, "seed": 5}, {"softcap": 2.0}, {"scale": 0.3}, {"sinks": np.ones(2)}], ids=str)
@pytest.mark.parametrize("name", list(KINDS)[1:])
def test_with_the_other_options(monkeypatch, name, options):
    inputs = arrays()
    assert found(KINDS[name], *inputs[:3], **options)[1] != ""
    assert_as_bias(monkeypatch, KINDS[name], *inputs, **options)


def test_grouped_heads_other_sizes_and_layouts(monkeypatch):
    q, k, v, do = arrays(heads=4, kv_heads=2, n_q=31)
    for mask in (J <= I[:31], padding(40, 17, 33), ~padding(13, 5, 1) & (J <= I[:31] + 17)):
        assert found(mask, q, k, v)[1] != ""
        assert_as_bias(monkeypatch, mask, q, k, v, do)
        first = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v, do)]
        assert found(mask, *first[:3], layout="bshd")[1] != ""
        assert_as_bias(monkeypatch, mask, *first, layout="bshd")
    for mask in (J <= I[:31], J < 20 + 0 * I[:31]):
        alone = [x[0, 0] for x in (q, k, v, do)]
        assert found(mask, *alone[:3])[1] != ""
        assert_as_bias(monkeypatch, mask, *alone)


@pytest.mark.parametrize(
    "options",
    [{"causal": True}, {"window": (3, 0)}, {"prefix": 4}, {"seqused_k": [9, 9, 9]}, {"alibi_slopes": np.ones(2)},
     {"cu_seqlens_q": [0, 8, N], "cu_seqlens_k": [0, 8, N]}, {"schedule": "flash"}, {"max_workspace": 10**6},
     {"pattern": redblue.patterns.window(N, N, 3, 3)}],
    ids=str,
)  # fmt: skip
def test_calls_that_are_left_alone(options):
    """Other options that hide pairs or count from where they begin, and a schedule that was named for a bias."""
    assert found(J <= I, *arrays()[:3], **options)[1] == ""


def test_gradients_of_the_bias_are_those_of_a_bias(monkeypatch):
    q, k, v, do = arrays()
    bias = np.where(J <= I, 0.0, -np.inf)
    g = redblue.attention_backward(do, q, k, v, bias=bias, bias_gradient=True)
    want = as_a_bias(monkeypatch, lambda: redblue.attention_backward(do, q, k, v, bias=bias, bias_gradient=True))
    np.testing.assert_allclose(g.dbias, want.dbias, atol=1e-12)
    assert np.abs(g.dbias).max() > 0


def test_few_pairs_are_not_read(monkeypatch):
    for least, read in ((6 * N * N + 1, False), (6 * N * N, True)):  # three batches of two heads
        monkeypatch.setattr(masks, "LEAST_PAIRS", least)
        assert (found(J <= I, *arrays()[:3])[1] != "") == read


def test_a_plan_is_made_once_it_pays(monkeypatch):
    """The first calls run lengths as a bias, explain says so; a mask without lengths, and a plan by words, are planned at
    once. Every mask counts for itself."""
    q, k, v, _ = arrays(dtype=np.float32)
    mask, other = (J <= I) & padding(40), (J <= I) & padding(41)
    saved = 3 * 2 * N * N * ((1 - mask.mean()) * 12 + masks.PRODUCTS_OF_WORD)  # products of 8 + 4 features
    monkeypatch.setattr(masks, "PRODUCTS_OF_TOKEN", 2.5 * saved / N)
    monkeypatch.setattr(masks, "_known", {})

    def ran_as_mask(mask):
        kept = dict(calls._calls)
        try:
            calls._calls.clear()
            redblue.attention(q, k, v, bias=mask, threads=1)
            return [key[8].bias is None for key in calls._calls] == [True]
        finally:
            calls._calls.update(kept)

    explained = lambda: redblue.explain(q, k, v, bias=mask, threads=1).decision
    assert [ran_as_mask(mask) for _ in range(2)] == [False, False]
    assert [ran_as_mask(other) for _ in range(2)] == [False, False]
    assert explained() == "the bias is causal (query i sees the keys up to i), the first 40 keys in use, and runs as that"
    assert explained() == explained()  # does not count
    assert [ran_as_mask(mask) for _ in range(3)] == [True, True, True]
    monkeypatch.setattr(masks, "_known", {})
    assert explained() == "the bias is causal (query i sees the keys up to i), the first 40 keys in use: it runs as that once that pays for a plan"
    assert redblue.explain(q, k, v, bias=mask, M=4096).decision.endswith("and runs as that")
    assert redblue.explain(q, k, v, bias=mask, M=4096).io < redblue.explain(q, k, v, bias=np.random.rand(N, N) < 0.5, M=4096).io
    assert ran_as_mask(J <= I)


def test_bf16_gradients_do_not_depend_on_earlier_calls(monkeypatch):
    """With compute = bf16 a bias has no gradients, so that a mask is one at the first call."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    monkeypatch.setattr(masks, "_known", {})
    monkeypatch.setattr(masks, "PRODUCTS_OF_TOKEN", 1 << 40)
    q, k, v, do = (x.astype(ml_dtypes.bfloat16) for x in arrays())
    redblue.attention_backward(do, q, k, v, bias=padding(40))  # waits, as a bias in fp32
    redblue.attention_backward(do, q, k, v, bias=padding(40), compute="bf16")


def test_the_same_mask_makes_no_new_plan_and_new_masks_are_forgotten(monkeypatch):
    q, k, v, do = arrays()
    monkeypatch.setattr(masks, "_known", {})
    monkeypatch.setattr(masks, "MOST_MASKS", 4)
    passes(KINDS["packed sequences (4)"], q, k, v, do)
    plans = set(calls._calls)
    for _ in range(3):
        passes(KINDS["packed sequences (4)"].copy(), q, k, v, do)
    assert set(calls._calls) == plans
    for length in range(1, 30):
        redblue.attention(q, k, v, bias=padding(length))
        passes(KINDS["packed sequences (4)"], q, k, v, do)
        assert len(masks._known) <= 4
    assert len([key for key in calls._calls if key[8].pattern is not None and key not in plans]) == 0


def window_with_globals(left, right, first):
    return (J >= I - left) & (J <= I + right) | (J < first) | (I < first)


@pytest.mark.parametrize("float_type", [None, "float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("left, right, first", [(3, 3, 1), (5, 2, 4), (0, 9, 2), (7, 0, 8)])
def test_a_window_with_global_tokens_runs_as_its_pattern(monkeypatch, left, right, first, float_type):
    mask = window_with_globals(left, right, first)
    bias = mask
    if float_type:
        bias = np.where(mask, 0, -np.inf).astype(lowest(float_type).dtype)
        if float_type != "float16":  # whose lowest number scores reach
            bias[I > J + 3 * N // 4] = np.where(mask, 0, lowest(float_type))[I > J + 3 * N // 4]
    q, k, v, do = arrays()
    for given in (bias, bias[None, None]):
        r, text = found(given, q, k, v)
        assert text.startswith(f"a window with global tokens (query i sees the keys from i - {left} up to i + {right}; the first {first} ")
        np.testing.assert_array_equal(shown(r), np.broadcast_to(mask, (3, 2, N, N)))
        assert_as_bias(monkeypatch, given, q, k, v, do)


def test_what_is_no_window_with_global_tokens_stays_a_bias():
    q, k, v, _ = arrays()
    rng = np.random.default_rng(3)
    whole = window_with_globals(3, 3, 2)
    for _ in range(40):
        mask = whole.copy()
        place = tuple(rng.integers(N, size=2))
        mask[place] = ~mask[place]
        assert found(mask, q, k, v)[1] == ""
    bias = np.where(whole, 0, -np.inf)
    for number in (1.0, np.nan, -1e300):
        for place in ((N - 1, 0), (0, N - 1), (N // 3, N // 2)):
            other = bias.copy()
            other[place] = number
            assert found(other, q, k, v)[1] == ""
    assert found(np.stack([whole, whole]), q, k, v)[1] == ""  # of heads
    q, k, v, _ = arrays(n_q=31)
    assert found(whole[:31], q, k, v)[1] == ""


def test_plans_say_what_the_drop_in_functions_run(monkeypatch):
    q, k, v, _ = arrays(dtype=np.float32)
    o = redblue.scaled_dot_product_attention(q, k, v, attn_mask=J <= I)
    np.testing.assert_array_equal(o, redblue.attention(q, k, v, causal=True, alignment=0))
