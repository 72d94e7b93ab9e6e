"""Calls that came before are run by the core, which finds them by types, sizes and plain options: they give what a first call gives."""

import numpy as np
import pytest

import redblue
from redblue._call import calls

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("hardware")


def tensors(*shape, dtype=torch.float32, count=3):
    generator = torch.Generator().manual_seed(sum(shape))
    return [torch.randn(*shape, generator=generator).to(dtype) for _ in range(count)]


def found_again(call, *, keys=1):
    """call() twice, which must remember it once and give the same bits."""
    calls._as_given.clear()
    first = call()
    assert len(calls._as_given) == keys
    second = call()
    assert len(calls._as_given) == keys
    for x, y in zip(*(z if isinstance(z, tuple) else (z,) for z in (first, second))):
        assert (x is None and y is None) or (x.dtype == y.dtype and x.shape == y.shape and (x == y).all())
    return second


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_tensors(dtype):
    q, k, v = tensors(1, 3, 9, 16, dtype=dtype)
    found_again(lambda: redblue.attention(q, k, v))
    o, lse = found_again(lambda: redblue.attention(q, k, v, return_lse=True, window=(2, 0)))
    found_again(lambda: redblue.attention_backward(o, q, k, v, o, lse, window=(2, 0)))


def test_the_order_of_dimensions_is_that_of_q():
    q, k, v = (x.transpose(1, 2) for x in tensors(2, 9, 3, 16))
    o = found_again(lambda: redblue.attention(q, k, v))
    assert o.stride() == q.stride()
    assert torch.equal(o, redblue.attention(q.contiguous(), k.contiguous(), v.contiguous()))


@pytest.mark.parametrize("bias", [torch.zeros(1, 3, 9, 9), torch.arange(9.0).expand(9, 9), (torch.arange(9) > 2)[None], torch.ones(1, 1, 1, 9)])
def test_a_small_bias_of_tensors(bias):
    q, k, v = tensors(1, 3, 9, 16)
    o = found_again(lambda: redblue.attention(q, k, v, bias=bias))
    other = bias.clone()
    other[..., -1] = -3.0 if bias.dtype != torch.bool else False
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=other)
    changed = redblue.attention(q, k, v, bias=other)  # by the same key, with other numbers
    assert len(calls._as_given) == 1 and not torch.equal(o, changed)
    torch.testing.assert_close(changed, wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(redblue.InvalidProblem, match="bias"):
        redblue.attention(q, k, v, bias=torch.zeros(1, 3, 9, 8))


def test_a_bias_that_may_be_a_mask_is_read_at_each_call():
    q, k, v = tensors(1, 4, 300, 8)
    causal = torch.full((300, 300), -torch.inf).triu(1)
    calls._as_given.clear()
    redblue.attention(q, k, v, bias=causal)
    assert len(calls._as_given) == 0
    torch.testing.assert_close(redblue.attention(q, k, v, bias=causal), redblue.attention(q, k, v, causal=True))


def test_a_negated_view_has_no_key():
    q, k, v = tensors(1, 1, 4, 8)
    redblue.attention(q, k, v)
    negated = torch._neg_view(q)
    assert torch.equal(redblue.attention(negated, k, v), redblue.attention(-q, k, v))


def test_numbers_of_16_bits_are_no_bfloat16():
    q, k, v = tensors(1, 1, 4, 8, dtype=torch.bfloat16)
    redblue.attention(q, k, v)
    words = [x.view(torch.uint16).numpy() for x in (q, k, v)]
    for _ in range(2):
        with pytest.raises(TypeError, match="uint16"):
            redblue.attention(*words)


def test_strides_choose_the_arithmetic_of_bfloat16():
    q, k, v = tensors(1, 1, 8, 16, dtype=torch.bfloat16)
    strided = [x.transpose(2, 3).contiguous().transpose(2, 3) for x in (q, k, v)]
    calls._as_given.clear()
    redblue.attention(q, k, v)
    for _ in range(2):
        torch.testing.assert_close(redblue.attention(*strided), redblue.attention(q, k, v), rtol=0.02, atol=0.02)
    assert len(calls._as_given) == 2


def test_an_output_of_the_callers_own():
    q, k, v = tensors(1, 2, 5, 8)
    wanted, out = redblue.attention(q, k, v), torch.empty(1, 2, 5, 8, dtype=torch.float16)
    version = out._version
    for _ in range(2):
        assert redblue.attention(q, k, v, out=out) is out
    assert out._version == version + 2
    torch.testing.assert_close(out.float(), wanted, rtol=1e-3, atol=1e-3)
    with pytest.raises(redblue.InvalidProblem, match=r"out is \[1, 2, 5, 7\]"):
        redblue.attention(q, k, v, out=torch.empty(1, 2, 5, 7))
    with pytest.raises(redblue.InvalidProblem, match="overlaps"):
        redblue.attention(q, k, v, out=q)


def test_a_seed_a_tolerance_and_arrays_of_numpy_among_the_options_have_no_key():
    q = np.random.default_rng(0).standard_normal((1, 2, 5, 8), dtype=np.float32)
    calls._as_given.clear()
    redblue.attention(q, q, q, dropout=0.5, seed=3)
    redblue.attention(q, q, q, tolerance=0.5)
    redblue.attention(q, q, q, bias=np.zeros((5, 5), np.float32))
    assert len(calls._as_given) == 0
    for _ in range(2):
        with pytest.raises(redblue.InvalidProblem, match="bias has nan"):
            redblue.attention(q, q, q, bias=np.full((5, 5), np.nan, np.float32))


def test_a_profiled_call_has_its_range():
    q, k, v = tensors(1, 2, 5, 8)
    redblue.attention(q, k, v)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        redblue.attention(q, k, v)
    assert any("redblue::forward" in event.key for event in profile.key_averages())


def test_gradients_are_found_again():
    q, k, v = (x.requires_grad_() for x in tensors(1, 2, 7, 8))
    do = torch.ones(1, 2, 7, 8)
    found_again(lambda: torch.autograd.grad(redblue.attention(q, k, v, causal=True), (q, k, v), do), keys=2)
    found_again(lambda: torch.autograd.grad(redblue.attention(q, k, v, causal=True).sum(), (q, k, v)), keys=2)
