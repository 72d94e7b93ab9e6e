"""Masks of more than four dimensions are broadcast without copies: no call of redblue gets more of a mask than was given."""

import pytest

torch = pytest.importorskip("torch")

import redblue.torch as rt  # noqa: E402
from redblue._torch import sdpa  # noqa: E402

pytestmark = pytest.mark.usefixtures("hardware")
SDPA = torch.nn.functional.scaled_dot_product_attention


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)
    torch.set_num_threads(1)


CASES = {  # sizes in front of q, and of the mask
    "inner": ((2, 3, 4), (2, 1, 4)),
    "inner, of one head": ((2, 3, 4), (2, 1, 1)),
    "outer": ((2, 3, 4), (1, 3, 4)),
    "both": ((2, 3, 4), (1, 1, 4)),
    "neither": ((2, 3, 4), (2, 3, 4)),
    "missing": ((2, 3, 4), (3, 4)),
    "one batch": ((1, 3, 4), (1, 1, 4)),
    "in the middle": ((2, 3, 2, 4), (2, 1, 2, 4)),
    "around": ((2, 3, 2, 4), (1, 3, 1, 4)),
    "no batch": ((2, 0, 4), (2, 1, 4)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["float", "gradient", "bool", "expanded"])
def test_as_torch_computes_it_from_the_mask_itself(case, kind, monkeypatch):
    front, of_mask = CASES[case]
    q, k, v = (torch.randn(*front[:-1], n, front[-1], 8, dtype=torch.float64).transpose(-2, -3).requires_grad_() for n in (5, 7, 7))
    given = torch.randn(*of_mask, 5, 7, dtype=torch.float64)
    mask = {"gradient": given.requires_grad_(), "bool": given > -1}.get(kind, given)
    mask = mask.expand(*front, 5, 7) if kind == "expanded" else mask
    seen, own = [], sdpa.of_tensors
    monkeypatch.setattr(sdpa, "of_tensors", lambda *x: seen.append(x[-1]["bias"]) or own(*x))
    o = rt.scaled_dot_product_attention(q, k, v, mask)
    assert all(x.untyped_storage().data_ptr() == mask.untyped_storage().data_ptr() for x in seen)
    if kind != "expanded":
        assert sum(x.numel() for x in seen) <= given.numel()
    if case not in ("around", "no batch"):  # .view after it works as with four dimensions
        o.transpose(-2, -3).view(*front[:-1], 5, front[-1] * 8)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        want = SDPA(q, k, v, mask)
    torch.testing.assert_close(o, torch.nan_to_num(want))
    do, inputs = torch.randn_like(want), (q, k, v, *((given,) if kind == "gradient" else ()))
    for g, w in zip(torch.autograd.grad(o, inputs, do), torch.autograd.grad(want, inputs, do, materialize_grads=True)):
        torch.testing.assert_close(g, torch.nan_to_num(w))


def test_compiled_and_mapped():
    q, bias = torch.randn(2, 3, 4, 5, 8, requires_grad=True), torch.randn(2, 1, 4, 5, 5, requires_grad=True)
    f = lambda q, bias: rt.scaled_dot_product_attention(q, q, q, bias)
    want, do = f(q, bias), torch.randn(2, 3, 4, 5, 8)
    wanted = torch.autograd.grad(want, (q, bias), do)
    got = torch.compile(f, backend="aot_eager", fullgraph=True)(q, bias)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(torch.autograd.grad(got, (q, bias), do), wanted)
    torch.testing.assert_close(torch.func.vmap(f)(q[None], bias[None])[0], want)


@pytest.mark.parametrize("of_mask", [(5, 1, 4), (2, 2, 4), (4, 2, 3, 4)], ids=str)
def test_masks_that_do_not_broadcast_are_refused(of_mask):
    q = torch.randn(2, 3, 4, 5, 8)
    with pytest.raises(RuntimeError, match="expand"):
        rt.scaled_dot_product_attention(q, q, q, torch.randn(*of_mask, 5, 5))
