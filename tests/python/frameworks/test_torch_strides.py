"""How results of redblue.torch lie in memory: in the order of what they belong to, as those of torch's own attention."""

import contextlib

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import redblue  # noqa: E402
import redblue.torch as rt  # noqa: E402
from redblue._torch import attention as operators  # noqa: E402

pytestmark = pytest.mark.usefixtures("hardware")
B, H, N, D = 2, 3, 5, 8


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)
    torch.set_num_threads(1)


def fused():
    """q, k and v of one product, as nanoGPT and timm make them."""
    return [x.transpose(1, 2) for x in torch.randn(B, N, 3, H, D).unbind(2)]


INPUTS = {
    "contiguous": lambda: [torch.randn(B, H, N, D) for _ in range(3)],
    "heads last": lambda: [torch.randn(B, N, H, D).transpose(1, 2) for _ in range(3)],
    "fused": fused,
    "tokens outermost": lambda: [torch.randn(N, B, H, D).permute(1, 2, 0, 3) for _ in range(3)],
}
MASKS = {
    "none": lambda: {},
    "causal": lambda: {"is_causal": True},
    "bool": lambda: {"attn_mask": torch.ones(N, N).tril().bool()},
    "float": lambda: {"attn_mask": torch.randn(B, 1, N, N)},
}


def order(x):
    return sorted(range(x.dim()), key=x.stride, reverse=True)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("grad", [False, True])
def test_output_and_gradients_have_the_order_of_their_inputs(inputs, mask, grad):
    q, k, v = (x.detach().requires_grad_(grad) for x in INPUTS[inputs]())
    options = MASKS[mask]()
    o = redblue.scaled_dot_product_attention(q, k, v, **options)
    assert order(o) == order(q)
    if mask != "float" and inputs != "contiguous":  # else torch's math path may run, which keeps no order
        assert o.stride() == F.scaled_dot_product_attention(q, k, v, **options).stride()
    if grad:
        for x, g in zip((q, k, v), torch.autograd.grad(o, (q, k, v), torch.randn(o.shape))):
            assert order(g) == order(x)


def test_values_with_other_features_and_views_that_are_no_memory_of_their_own():
    q, k, _ = fused()
    o = redblue.attention(q, k, torch.randn(B, N, H, 4).transpose(1, 2))
    assert o.stride() == (N * H * 4, 4, H * 4, 1)
    many = q[:, :1].expand(B, H, N, D)
    assert redblue.attention(many, k, k).is_contiguous()
    last = torch.randn(B, H, D, N).transpose(2, 3)  # features do not lie side by side
    assert redblue.attention(last, k, k).is_contiguous()
    with redblue.use():
        five = F.scaled_dot_product_attention(*(torch.randn(2, B, N, H, D).transpose(2, 3) for _ in range(3)))
    five.transpose(2, 3).view(2, B, N, H * D)


class Block(torch.nn.Module):
    """Self-attention with one product for q, k and v, and .view after it."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(H * D, 3 * H * D), torch.nn.Linear(H * D, H * D)

    def forward(self, x, mask=None):
        q, k, v = (y.view(*x.shape[:2], H, D).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        o = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None)
        return self.out(o.transpose(1, 2).view(x.shape))


@pytest.mark.parametrize("mask", ["causal", "float"])
@pytest.mark.parametrize("backend", [None, "aot_eager", "inductor"])
def test_a_view_after_attention(backend, mask):
    """In eager mode, and compiled, where the shapes of results come from the fake operator; with sizes that are symbols, too."""
    block, x = Block(), torch.randn(B, N, H * D, requires_grad=True)
    bias = torch.randn(B, 1, N, N) if mask == "float" else None
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        q, k, v = (y.view(B, N, H, D).transpose(1, 2) for y in block.qkv(x).chunk(3, -1))
        o = F.scaled_dot_product_attention(q, k, v, bias, is_causal=bias is None)
        want = block.out(o.transpose(1, 2).reshape(x.shape))  # torch's math path keeps no order
    with redblue.use():
        model = block if backend is None else torch.compile(block, backend=backend, fullgraph=True, dynamic=backend == "aot_eager")
        got = model(x, bias)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), x)[0] for y in (got, want)))
        if backend == "aot_eager":
            model(torch.randn(3, 7, H * D, requires_grad=True), None if bias is None else torch.randn(3, 1, 7, 7)).sum().backward()


@pytest.mark.parametrize("inputs", INPUTS)
def test_fake_results_lie_as_real_ones(inputs):
    from torch._subclasses.fake_tensor import FakeTensorMode

    found = []
    for mode in (contextlib.nullcontext(), FakeTensorMode()):
        with mode:
            q, k, v = (x.requires_grad_() for x in INPUTS[inputs]())
            o, lse = rt.attention(q, k, v, bias=torch.zeros(N, N), return_lse=True)
            found.append([(x.shape, x.stride()) for x in (o, lse, *torch.autograd.grad(o.sum(), (q, k, v)))])
    assert found[0] == found[1]


@pytest.mark.parametrize("inputs", INPUTS)
def test_opcheck_of_strides(inputs):
    q, k, v = (x.requires_grad_() for x in INPUTS[inputs]())
    torch.library.opcheck(torch.ops.redblue.attention, (q, k, v, None, None, None, *operators._arguments()))
