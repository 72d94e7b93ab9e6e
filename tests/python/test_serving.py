"""flash_attn_with_kvcache with pages, rows, left padding and rotation, against its definition in fp64, key by key."""

import itertools

import numpy as np
import pytest

import redblue

pytestmark = pytest.mark.usefixtures("hardware")
HEADS, KV_HEADS, D = 4, 2, 8


def turned(x, cos, sin, position, interleaved):
    """x [heads, d] at this position, as numbers of the complex plane."""
    x, half = x.astype(np.float64), cos.shape[1]
    first = np.arange(half) * 2 if interleaved else np.arange(half)
    second = first + 1 if interleaved else first + half
    z = (x[:, first] + 1j * x[:, second]) * (cos[position].astype(np.float64) + 1j * sin[position].astype(np.float64))
    x[:, first], x[:, second] = z.real, z.imag
    return x


def defined(q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, cache_batch_idx=None,
            cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
            rotary_interleaved=True, alibi_slopes=None):  # fmt: skip
    """o, lse and both caches afterwards, all of fp64."""
    batch, n_q, heads, d = q.shape
    k_cache, v_cache = k_cache.astype(np.float64), v_cache.astype(np.float64)
    group, size = heads // k_cache.shape[2], k_cache.shape[1]
    o, lse = np.zeros((*q.shape[:3], v_cache.shape[3])), np.full((batch, heads, n_q), -np.inf)
    left, right = window_size
    moving = causal or (left, right) != (-1, -1)

    def place(b, t):
        if block_table is not None:
            return int(block_table[b][t // size]), t % size
        return int(b if cache_batch_idx is None else cache_batch_idx[b]), t

    rooms = size * (1 if block_table is None else len(block_table[0]))
    held = np.broadcast_to(rooms if cache_seqlens is None else cache_seqlens, batch)
    n_new = 0 if k is None else k.shape[1]
    for b, t in itertools.product(range(batch), range(n_new)):
        new = k[b, t]
        if rotary_cos is not None:
            new = turned(new, rotary_cos, rotary_sin, held[b] + t, rotary_interleaved)
        k_cache[place(b, held[b] + t)], v_cache[place(b, held[b] + t)] = new, v[b, t]
    for b, i in itertools.product(range(batch), range(n_q)):
        end = held[b] + n_new
        position = end - n_q + i
        begin = 0 if cache_leftpad is None else cache_leftpad[b]
        seen = [
            t
            for t in range(begin, end)
            if not (causal and t > position) and not (0 <= left < position - t) and not (0 <= right < t - position)
        ]
        if not seen:
            continue
        row = q[b, i].astype(np.float64)
        if rotary_cos is not None:
            row = turned(row, rotary_cos, rotary_sin, held[b] + (i if moving else 0), rotary_interleaved)
        for h in range(heads):
            keys = np.array([k_cache[place(b, t)][h // group] for t in seen])
            values = np.array([v_cache[place(b, t)][h // group] for t in seen])
            s = keys @ row[h] * (d**-0.5 if softmax_scale is None else softmax_scale)
            if softcap:
                s = softcap * np.tanh(s / softcap)
            if alibi_slopes is not None:
                slope = alibi_slopes[h] if alibi_slopes.ndim == 1 else alibi_slopes[b % len(alibi_slopes), h]
                s = s - slope * abs(position - np.array(seen))
            p = np.exp(s - s.max())
            o[b, i, h], lse[b, h, i] = p / p.sum() @ values, s.max() + np.log(p.sum())
    return o, lse, k_cache, v_cache


def as_defined(q, k_cache, v_cache, k=None, v=None, atol=4e-6, convert=lambda x: x, back=np.asarray, **options):
    """Calls flash_attn_with_kvcache on what `convert` makes of the arrays, and holds all that it gives and writes against the
    definition."""
    want = defined(*(None if x is None else back(x).astype(np.float64) for x in (q, k_cache, v_cache, k, v)), **options)
    arrays = [None if x is None else convert(x) for x in (q, k_cache, v_cache, k, v)]
    options = {name: convert(x) if isinstance(x, np.ndarray) else x for name, x in options.items()}
    o, lse = redblue.flash_attn_with_kvcache(*arrays, return_softmax_lse=True, **options)
    for got, wanted in ((o, want[0]), (lse, want[1]), (arrays[1], want[2]), (arrays[2], want[3])):
        np.testing.assert_allclose(back(got), wanted, atol=atol, rtol=atol)
    return o, lse


class Drawn:
    """A random call: arrays, and options of flash_attn_with_kvcache."""

    def __init__(self, rng, where, pad, rotary, new, mask, slopes, n_q, size=3):
        batch, n_new = int(rng.integers(1, 4)), int(rng.integers(1, 5)) if new else 0
        most = 12
        held = rng.integers(0, most - n_new + 1, batch)
        rows = batch + 2
        self.options = {"cache_seqlens": held.astype(np.int32), **mask}
        if where == "pages":
            per = most // size
            rows = batch * per + 2
            self.options["block_table"] = rng.permutation(rows)[: batch * per].reshape(batch, per).astype(np.int32)
        elif where == "rows":
            self.options["cache_batch_idx"] = rng.permutation(rows)[:batch].astype(np.int32)
        shape = (rows if where else batch, size if where == "pages" else most)
        if pad:
            self.options["cache_leftpad"] = rng.integers(0, held + 1).astype(np.int32)
        if rotary and new:
            half = int(rng.choice([1, D // 4, D // 2]))
            angles = rng.uniform(0, 7, (most + 8, half))
            self.options.update(
                rotary_cos=np.cos(angles).astype(np.float32), rotary_sin=np.sin(angles).astype(np.float32),
                rotary_interleaved=rotary == "neighbours",
            )  # fmt: skip
        if slopes:
            shape_of = {"heads": (HEADS,), "one": (1, HEADS), "batch": (batch, HEADS)}[slopes]
            self.options["alibi_slopes"] = rng.uniform(0.1, 1, shape_of).astype(np.float32)
        shapes = [(batch, n_q, HEADS), (*shape, KV_HEADS), (*shape, KV_HEADS)]
        shapes += [(batch, n_new, KV_HEADS)] * 2 if new else []
        self.arrays = [rng.standard_normal((*x, D), dtype=np.float32) for x in shapes]


MASKS = (
    {}, {"causal": True}, {"window_size": (3, 1)}, {"causal": True, "window_size": (2, 0), "softcap": 1.5},
    {"window_size": (-1, 0), "softmax_scale": 0.3}, {"window_size": (4, -1)},
)  # fmt: skip
KINDS = list(itertools.product(("", "rows", "pages"), (False, True), ("", "neighbours", "halves"), (False, True)))


@pytest.mark.parametrize("where, pad, rotary, new", [x for x in KINDS if x[3] or not x[2]])
def test_all_arguments_together(monkeypatch, where, pad, rotary, new):
    """Pages of all sizes are taken for large ones, or for small ones."""
    rng = np.random.default_rng(len(where) * 64 + pad * 32 + len(rotary) * 2 + new)
    for mask, n_q in itertools.product(MASKS, (1, 2, 5)):
        monkeypatch.setattr(redblue._flash.one_by_one, "_LARGE", int(rng.choice([1, 1 << 30])))
        drawn = Drawn(rng, where, pad, rotary, new, mask, rng.choice(["", "", "heads", "one", "batch"]), n_q, int(rng.choice([1, 3, 4])))
        as_defined(*drawn.arrays, **drawn.options)


@pytest.mark.parametrize("mask", [{}, {"causal": True}, {"window_size": (300, 0)}])
@pytest.mark.parametrize("n_q", [1, 3])
def test_large_pages_are_read_where_they_lie(monkeypatch, mask, n_q):
    """Pages of 128 KiB: 128 keys of 2 heads of 128 features."""
    rng = np.random.default_rng(1)
    copies = []
    monkeypatch.setattr(redblue._flash.one_by_one, "copied", lambda *x, own=redblue._flash.one_by_one.copied: copies.append(1) or own(*x))
    table = np.array([[5, 0, 3, -1], [4, 1, 2, 6]], np.int32)
    q, *caches = (rng.standard_normal(shape, dtype=np.float32) for shape in ((2, n_q, 4, 128), *[(7, 128, 2, 128)] * 2))
    as_defined(q, *caches, block_table=table, cache_seqlens=np.array([300, 512]), **mask)
    assert bool(copies) == (n_q > 1 and bool(mask))


def test_pages_side_by_side_are_read_where_they_lie(monkeypatch):
    rng = np.random.default_rng(2)
    monkeypatch.setattr(redblue._flash.one_by_one, "copied", None)
    q, *caches = (rng.standard_normal((2, *shape, D), dtype=np.float32) for shape in ((3, HEADS), *[(4, 4, KV_HEADS)] * 2))
    caches = [x.reshape(8, 4, KV_HEADS, D) for x in caches]
    as_defined(q, *caches, block_table=np.array([[2, 3, 4], [5, 6, 7]]), cache_seqlens=np.array([10, 12]), causal=True)


def test_a_table_may_share_pages_that_are_only_read():
    rng = np.random.default_rng(3)
    shapes = (2, 1, HEADS, D), *[(6, 4, KV_HEADS, D)] * 2, *[(2, 1, KV_HEADS, D)] * 2
    arrays = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    as_defined(*arrays, block_table=[[1, 4, 0], [1, 4, 5]], cache_seqlens=[8, 9])
    as_defined(*arrays[:3], cache_batch_idx=[3, 3], cache_leftpad=[1, 0], cache_seqlens=4)


def test_entries_of_a_table_that_no_key_needs_may_be_anything():
    rng = np.random.default_rng(4)
    q, *caches = (rng.standard_normal(shape, dtype=np.float32) for shape in ((2, 1, HEADS, D), *[(6, 4, KV_HEADS, D)] * 2))
    o, _ = as_defined(q, *caches, block_table=[[2, -7, 99], [-1, -1, -1]], cache_seqlens=[3, 0])
    assert not o[1].any()


def test_unused_keys_are_never_read():
    rng = np.random.default_rng(5)
    q = rng.standard_normal((2, 2, HEADS, D), dtype=np.float32)
    caches = np.full((2, 6, 4, KV_HEADS, D), np.nan, np.float32)
    table, lengths, pads = [[5, 1], [0, 3]], [6, 3], [2, 1]
    for b, t in [(0, 2), (0, 3), (0, 4), (0, 5), (1, 1), (1, 2)]:
        caches[:, table[b][t // 4], t % 4] = rng.standard_normal((2, KV_HEADS, D))
    as_defined(q, *caches, block_table=table, cache_seqlens=lengths, cache_leftpad=pads, causal=True)


def test_tokens_one_by_one_in_pages_are_those_of_the_whole():
    rng = np.random.default_rng(6)
    q, k, v = (rng.standard_normal((2, 9, h, D), dtype=np.float32) for h in (HEADS, KV_HEADS, KV_HEADS))
    caches = np.full((2, 8, 3, KV_HEADS, D), np.nan, np.float32)
    whole = redblue.flash_attn_func(q, k, v, causal=True)
    for t in range(9):
        now, options = slice(t, t + 1), {"cache_seqlens": t, "causal": True, "block_table": [[7, 1, 4], [2, 6, 0]]}
        o = redblue.flash_attn_with_kvcache(q[:, now], *caches, k[:, now], v[:, now], **options)
        np.testing.assert_allclose(o, whole[:, now], atol=2e-6)


def layouts(rng, shape):
    """Caches whose pages, tokens or heads lie in memory in other ways."""
    both = rng.standard_normal((*shape[:2], 2, *shape[2:]), dtype=np.float32)
    yield both[:, :, 0], both[:, :, 1]
    both = rng.standard_normal((shape[0], 2, *shape[1:]), dtype=np.float32)
    yield both[:, 0], both[:, 1]
    yield tuple(rng.standard_normal((2, shape[0], shape[2], shape[1], shape[3]), dtype=np.float32).swapaxes(2, 3))
    yield tuple(rng.standard_normal((2, *shape), dtype=np.float32)[:, ::-1, :, ::-1])


@pytest.mark.parametrize("options", [{"block_table": [[3, 4], [0, 2]]}, {"cache_batch_idx": [4, 1]}, {}], ids=lambda x: "".join(x))
def test_caches_of_any_strides(options):
    rng = np.random.default_rng(7)
    count = 5 if options else 2
    for caches in layouts(rng, (count, 6, KV_HEADS, D)):
        new = [rng.standard_normal((2, 2, h, D), dtype=np.float32) for h in (HEADS, KV_HEADS, KV_HEADS)]
        as_defined(new[0], *caches, *new[1:], cache_seqlens=[2, 4], causal=True, **options)


def test_small_pages_of_tensors_of_any_strides():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(13)
    q = rng.standard_normal((2, 2, HEADS, D), dtype=np.float32)
    for caches in layouts(rng, (9, 3, KV_HEADS, D)):
        if min(caches[0].strides) < 0:  # torch has none
            continue
        for convert in (torch.from_numpy, lambda x: x):
            options = {"block_table": np.array([[7, 4, 0, 2], [1, 3, 5, 6]]), "cache_seqlens": np.array([11, 12])}
            want = defined(q, *caches, causal=True, **options)
            o = redblue.flash_attn_with_kvcache(convert(q), *map(convert, caches), causal=True, **options)
            np.testing.assert_allclose(np.asarray(o), want[0], atol=3e-6)


def test_q_and_k_may_be_views_of_the_caches():
    rng = np.random.default_rng(8)
    caches = rng.standard_normal((2, 3, 8, KV_HEADS, D), dtype=np.float32)
    q, k = caches[0, :, 2:4], caches[0, ::-1, 2:4]
    want = defined(q.copy(), *caches.copy(), k.copy(), k.copy(), cache_seqlens=2)
    o = redblue.flash_attn_with_kvcache(q, *caches, k, k, cache_seqlens=2)
    np.testing.assert_allclose(o, want[0], atol=3e-6)
    np.testing.assert_allclose(caches[0], want[2])


def call_with(changed):
    """The arguments of a call that is right, some of them changed."""
    rng = np.random.default_rng(9)
    shapes = {"q": (2, 1, HEADS, D), "k_cache": (6, 4, KV_HEADS, D), "v_cache": (6, 4, KV_HEADS, D), "k": (2, 2, KV_HEADS, D), "v": (2, 2, KV_HEADS, D)}
    given = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    given.update(cache_seqlens=[3, 5], block_table=[[2, 1], [0, 5]])
    given.update(changed(given) if callable(changed) else changed)
    return given


def rotation(n, half, kind=np.float32):
    return {"rotary_cos": np.ones((n, half), kind), "rotary_sin": np.ones((n, half), kind)}


ROWS = {"block_table": None, "cache_seqlens": [1, 2], "cache_batch_idx": [1, 4]}
REFUSED = {
    "page out of range": ({"block_table": [[2, 6], [0, 5]]}, "page 6 for sequence 0: the cache has the pages 0 to 5"),
    "negative page": ({"block_table": [[2, 1], [-1, 5]]}, "page -1 for sequence 1"),
    "new page out of range": ({"block_table": [[2, 9], [0, 5]]}, "page 9 for sequence 0"),
    "shared page": ({"block_table": [[2, 5], [0, 5]]}, "page 5 stands 2 times in block_table"),
    "own page twice": ({"block_table": [[2, 2], [0, 5]]}, "page 2 stands 2 times"),
    "short table": ({"cache_seqlens": [3, 7]}, "the cache has room for 8; give a table with more pages"),
    "long": ({"cache_seqlens": [3, 9]}, "from 0 to 8"),
    "rows of a table": ({"block_table": [[2, 1]]}, "one row of pages for each of 2 sequences"),
    "ragged table": ({"block_table": [[2, 1], [0]]}, "one row of pages"),
    "flat table": ({"block_table": [2, 1]}, r"\[batch, pages of a sequence\]"),
    "table of three dimensions": ({"block_table": np.zeros((2, 2, 1), int)}, r"\[batch, pages of a sequence\]"),
    "table of floats": ({"block_table": np.ones((2, 2))}, "block_table = "),
    "table and rows": ({"cache_batch_idx": [0, 1]}, "give one of them"),
    "repeated row": ({**ROWS, "cache_batch_idx": [4, 4]}, "row 4 stands 2 times in cache_batch_idx"),
    "row out of range": ({**ROWS, "cache_batch_idx": [4, 6]}, "from 0 to 5 for each of 2"),
    "one row": ({**ROWS, "cache_batch_idx": [4]}, "for each of 2"),
    "more rows than sequences": ({"block_table": None, "cache_seqlens": 1}, "k_cache has 6 rows and q 2 sequences"),
    "cache runs out": ({**ROWS, "cache_seqlens": [1, 3]}, "room for 4; give a longer one"),
    "padding beyond the keys": ({"cache_leftpad": [4, 0]}, "from 0 to cache_seqlens"),
    "negative padding": ({"cache_leftpad": [-1, 0]}, "cache_leftpad"),
    "one padding": ({"cache_leftpad": [1]}, "cache_leftpad"),
    "cos alone": ({"rotary_cos": np.ones((9, 2), np.float32)}, "give both, or neither"),
    "wide cos": (rotation(9, 5), "rotary_dim of at most 8"),
    "short cos": (rotation(6, 2), "have 6 positions: give 7"),
    "short cos of q": (lambda g: {"q": np.ones((2, 3, HEADS, D), np.float32), "causal": True, **rotation(7, 2)}, "have 7 positions: give 8"),
    "rotation of nothing new": ({"k": None, "v": None, **rotation(9, 2)}, "without k and v"),
    "interleaved": ({"rotary_interleaved": 2, **rotation(9, 2)}, "rotary_interleaved = 2"),
    "expanded heads": (lambda g: {"k_cache": np.lib.stride_tricks.as_strided(g["k_cache"].copy(), (6, 4, 2, 8), (128, 32, 0, 4))}, "k_cache is expanded"),
    "overlapping pages": (lambda g: {"v_cache": np.lib.stride_tricks.as_strided(g["v_cache"].copy(), (6, 4, 2, 8), (64, 64, 32, 4))}, "v_cache is expanded"),
    "one cache for both": (lambda g: {"v_cache": g["k_cache"]}, "share memory"),
    "caches that meet": (lambda g: (lambda x: {"k_cache": x[:6], "v_cache": x[1:]})(np.zeros((7, 4, 2, 8), np.float32)), "share memory"),
    "other pages of values": (lambda g: {"v_cache": g["v_cache"][:5]}, "all but their features equal"),
    "infinite slopes": ({"alibi_slopes": np.array([1, 2, np.inf, 4], np.float32)}, "alibi_slopes has inf"),
    "heads": (lambda g: {"q": g["q"][:, :, :3]}, "3"),
    "features": (lambda g: {"q": g["q"][..., :4]}, "features"),
    "batch of k": (lambda g: {"k": g["k"][:1]}, r"k is \[1, 2, 2, 8\]"),
    "softcap": ({"softcap": -1.0}, "softcap"),
    "lse": ({"return_softmax_lse": 2}, "return_softmax_lse = 2"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_writes_nothing(case):
    changed, text = REFUSED[case]
    given = call_with(changed)
    before = [given[name].copy() for name in ("k_cache", "v_cache")]
    with pytest.raises((redblue.InvalidProblem, redblue.Unsupported), match=text):
        redblue.flash_attn_with_kvcache(**given)
    for name, x in zip(("k_cache", "v_cache"), before):
        np.testing.assert_array_equal(given[name], x)


def test_types_that_differ_are_refused():
    for changed in (
        lambda g: {"q": g["q"].astype(np.float64)},
        lambda g: {"k": g["k"].astype(np.float16)},
        rotation(9, 2, bool),
        {"rotary_cos": np.ones((9, 2), np.float32), "rotary_sin": np.ones((9, 2), int)},
    ):
        given = call_with(changed)
        before = given["k_cache"].copy()
        with pytest.raises(TypeError):
            redblue.flash_attn_with_kvcache(**given)
        np.testing.assert_array_equal(given["k_cache"], before)


def test_the_right_call_is_not_refused():
    given = call_with({})
    as_defined(**given)
    as_defined(**call_with(ROWS))


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64"])
def test_other_types(kind):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype, atol = (ml_dtypes.bfloat16, 3e-2) if kind == "bfloat16" else (np.dtype(kind), {"float16": 4e-3, "float64": 1e-12}[kind])
    rng = np.random.default_rng(10)
    for where, n_q in itertools.product(("rows", "pages"), (1, 3)):
        drawn = Drawn(rng, where, True, "halves", True, {"causal": True}, "", n_q)
        arrays = [x.astype(dtype) for x in drawn.arrays]
        as_defined(*arrays, atol=atol, **drawn.options)
    table = np.array([[2, 0, 1]])  # of large pages
    caches = [rng.standard_normal((3, 512, 2, 64)).astype(dtype) for _ in range(2)]
    o, _ = as_defined(rng.standard_normal((1, 1, 4, 64)).astype(dtype), *caches, block_table=table, atol=atol)
    assert o.dtype == dtype


def test_tensors():
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    rng = np.random.default_rng(11)
    for where, rotary, mask in itertools.product(("", "rows", "pages"), ("", "neighbours", "halves"), MASKS[:3]):
        for n_q in (1, 2):
            drawn = Drawn(rng, where, True, rotary, True, mask, rng.choice(["", "batch"]), n_q)
            as_defined(*drawn.arrays, convert=torch.tensor, **drawn.options)
    caches = torch.zeros(2, 6, 4, KV_HEADS, D)
    q, k = torch.randn(2, 1, HEADS, D), torch.randn(2, 1, KV_HEADS, D)
    options = {"cache_seqlens": torch.tensor([3, 5]), "block_table": torch.tensor([[2, 1], [0, 5]], dtype=torch.int32)}
    versions = [x._version for x in caches]
    redblue.flash_attn_with_kvcache(q, *caches, k, k, **options)
    assert caches[0]._version > versions[0] and caches[0, 2, 3].any() and caches[1, 5, 1].any() and not caches[:, 1].any()
    expanded = torch.zeros(6, 4, 1, D).expand(6, 4, KV_HEADS, D)
    with pytest.raises(redblue.InvalidProblem, match="k_cache is expanded"):
        redblue.flash_attn_with_kvcache(q, expanded, caches[1], k, k, **options)
    redblue.flash_attn_with_kvcache(q, expanded, expanded, **options)  # which reads alone
    bf16 = [x.bfloat16() for x in (q, *caches, k, k)]
    cos = torch.rand(9, 4)
    redblue.flash_attn_with_kvcache(*bf16, cos, cos, **options)
    with torch.inference_mode():
        redblue.flash_attn_with_kvcache(q, *(torch.zeros(6, 4, KV_HEADS, D) for _ in range(2)), k, k, **options)


def test_compiled_code_appends_and_attends():
    torch = pytest.importorskip("torch")
    q, k = torch.randn(2, 1, HEADS, D), torch.randn(2, 1, KV_HEADS, D)

    def step(q, k_cache, v_cache, k, lengths):
        return 2 * redblue.flash_attn_with_kvcache(2 * q, k_cache, v_cache, k, k, cache_seqlens=lengths, block_table=table)

    table, lengths = torch.tensor([[2, 1], [0, 3]]), torch.tensor([3, 5])
    caches = [torch.randn(2, 4, 4, KV_HEADS, D)] * 2
    caches[1] = caches[0].clone()
    want = step(q, *caches[0], k, lengths)
    torch.testing.assert_close(torch.compile(step, backend="eager")(q, *caches[1], k, lengths), want)
    torch.testing.assert_close(caches[1], caches[0])


def test_arrays_of_jax_are_read_and_not_written():
    jnp = pytest.importorskip("jax.numpy")
    rng = np.random.default_rng(12)
    for where in ("rows", "pages"):
        drawn = Drawn(rng, where, True, "", False, {"causal": True}, "batch", 2)
        o, _ = as_defined(*drawn.arrays, convert=jnp.asarray, **drawn.options)
        assert isinstance(o, jnp.ndarray)
    with pytest.raises(redblue.InvalidProblem, match="k_cache is read-only"):
        redblue.flash_attn_with_kvcache(**{n: jnp.asarray(x) for n, x in call_with({}).items()})
