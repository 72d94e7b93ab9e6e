"""What makes no sense is refused in Python and in the program, with one sentence for both."""

import os

import numpy as np
import pytest

import redblue
from program import needs_program
from program import redblue as program


def q_of(n, type=np.float32):
    return np.random.default_rng(1).standard_normal((n, 4)).astype(type)


def refused(call, error=redblue.InvalidProblem):
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


def said(*command):
    done = program(*command)
    assert done.returncode != 0, done
    return done.stderr


def test_masked_arrays():
    q, hidden = q_of(4), np.eye(4)
    starts = np.ma.masked_array([0, 1, 4], [0, 1, 0])
    for name, call in (
        ("q", lambda: redblue.attention(np.ma.masked_array(q, hidden), q, q)),
        ("bias", lambda: redblue.attention(q, q, q, bias=np.ma.masked_array(np.zeros((4, 4), np.float32), hidden))),
        ("cu_seqlens_q", lambda: redblue.attention(q, q, q, cu_seqlens_q=starts)),
        ("seen", lambda: redblue.patterns.mask(np.ma.masked_array(np.ones((4, 4), bool), hidden))),
        ("seen", lambda: redblue.patterns.blocks(8, 8, 2, 2, np.ma.masked_array(np.ones((4, 4), bool), hidden))),
        ("indptr", lambda: redblue.patterns.csr(2, 4, starts, [0, 1, 2, 3])),
        ("indices", lambda: redblue.patterns.csr(2, 4, [0, 1, 3], starts)),
    ):
        assert refused(call, TypeError).startswith(f"{name} is a masked array with masked elements, which would be read"), name
    assert redblue.patterns.mask(np.ma.masked_array(np.ones((4, 4), bool), False)).pairs == 16  # nothing is masked


def test_sequences_without_starts():
    q = q_of(6).reshape(6, 1, 4)
    for at in ((None, [0, 6]), ([0, 6], None), (None, None)):
        assert "= None: give where each sequence begins" in refused(lambda: redblue.flash_attn_varlen_func(q, q, q, *at))


@needs_program
def test_numbers_of_threads():
    q = q_of(4)
    for wrong in (0, -1, 1025):
        for call in (lambda: redblue.attention(q, q, q, threads=wrong), lambda: redblue.plan(n=4, d=4, threads=wrong)):
            assert refused(call) == f"threads = {wrong}: give a number from 1 to 1024, or leave it out"
    assert "--threads 0: give a number from 1 to" in said("bench", "--n", 4, "--d", 4, "--threads", 0)
    assert redblue.attention(q, q, q, threads=None).shape == redblue.attention(q, q, q, threads=1).shape == q.shape


@needs_program
def test_an_order_without_a_pattern():
    q = q_of(4)
    for order in ("rcm", "in-place"):
        text = f"order {order}: it is the order of a pattern's queries and keys, and there is no pattern; give one, or no order"
        assert refused(lambda: redblue.attention(q, q, q, order=order)) == text
        assert refused(lambda: redblue.plan(n=4, d=4, M=99, order=order, causal=True)) == text
        assert text in said("plan", "--n", 4, "--d", 4, "--M", 99, "--order", order)
    redblue.attention(q, q, q, order="rcm", pattern=redblue.patterns.mask(np.tri(4, dtype=bool)))


@needs_program
def test_seeds_without_dropout_and_dilations_without_a_window():
    q = q_of(4)
    calls = (lambda **o: redblue.attention(q, q, q, **o), lambda **o: redblue.plan(n=4, d=4, M=99, **o))
    for call in calls:
        assert "seed = 3 is for dropout: give that, too" in refused(lambda: call(seed=3))
        assert "dilation = 2 is for window: give that, too" in refused(lambda: call(dilation=2, causal=True))
        call(seed=3, dropout=0.0)  # dropout that its caller turned off
        call(dilation=2, window=(-1, -1))
    plan = ("plan", "--n", 4, "--d", 4, "--M", 99)
    assert "--seed 3 is for --dropout: give that, too" in said(*plan, "--seed", 3)
    assert "--dilation are for --window LEFT,RIGHT: give that, too" in said(*plan, "--dilation", 2)


def test_seeds_without_dropout_of_torch_and_jax():
    torch = pytest.importorskip("torch")
    q = torch.ones(1, 1, 4, 4, requires_grad=True)
    assert "seed = 3 is for dropout" in refused(lambda: redblue.attention(q, q, q, seed=3))
    redblue.attention(q, q, q, seed=3, dropout=0.0).sum().backward()
    for call in (redblue.attention, torch.compile(redblue.attention, fullgraph=True, backend="eager")):
        assert call(q, q, q, dilation=2, window=(-1, -1)).shape == q.shape
    jax = pytest.importorskip("jax")
    import redblue.jax as on_jax

    x = jax.numpy.ones((1, 1, 4, 4))
    assert "seed = 3 is for dropout" in refused(lambda: on_jax.attention(x, x, x, seed=3))


@needs_program
def test_dilated_windows_beyond_memory():
    n = 1 << 31  # more than the program takes of a pattern
    if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >= 128 * n:
        pytest.skip("this machine has memory for them")
    text = f"n_q = {n}, n_k = {n}: a pattern or a dilation of that many takes {128 * n} bytes or more, and this machine has "
    assert text in refused(lambda: redblue.plan(n=n, d=64, M=100000, window=(8, 0), dilation=4), redblue.NotEnoughMemory)
    assert text in said("plan", "--n", n, "--d", 64, "--M", 100000, "--window", "8,0", "--dilation", 4)


@needs_program
@pytest.mark.parametrize("type, cap, least", [(np.float32, 1e-38, "1.17"), (np.float64, 1e-320, "2.22")])
def test_softcaps_below_the_normal_numbers(type, cap, least):
    q = q_of(5, type)
    text = refused(lambda: redblue.attention(q, q, q, softcap=cap))
    assert "is below the smallest normal number of f" in text and f", {least}" in text
    dtype = "f64" if type is np.float64 else "f32"
    command = ("plan", "--n", 5, "--d", 4, "--M", 99, "--dtype", dtype, "--softcap", cap)
    assert text.split(":")[0] in said(*command)
    mean = q.astype(np.float64).mean(0)  # all scores are 0 beside 1
    np.testing.assert_allclose(redblue.attention(q, q, q, softcap=3 * float(np.finfo(type).tiny))[0], mean, atol=1e-6)


@pytest.mark.parametrize("M", [60, 200, 600, 3000, None])
def test_gradients_under_a_softcap_that_leaves_no_score(M):
    """All derivatives of scores are 0. Schedules that find them from weights would make some of them 1."""
    q, k, v, do = (np.random.default_rng(n).standard_normal((96, 16)).astype(np.float32) for n in range(4))
    options = {"softcap": 1e-8, "M": M}
    try:
        dq, dk, *_ = redblue.attention_backward(do, q, k, v, **options)
    except redblue.CapacityError:
        assert M == 60
        return
    assert np.abs(dq).max() == np.abs(dk).max() == 0
    with pytest.raises(redblue.Unsupported, match="too inexact for one below 1"):
        redblue.attention_backward(do, q, k, v, schedule="materialised", **options)
