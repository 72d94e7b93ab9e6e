"""The gradient of lse, tangents, and gradients of gradients, against NumPy's central differences and torch's own."""

import math

import numpy as np
import pytest

import redblue

CASES = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"window": (2, 1)},
    "softcap": {"softcap": 1.5},
    "dropout": {"dropout": 0.3, "seed": 7},
    "packed": {"cu_seqlens_q": [0, 3, 7], "cu_seqlens_k": [0, 2, 9]},
    "padded": {"seqused_k": [5, 0]},
    "tokens first": {"layout": "bshd"},
    "a small cache": {"M": 120},
}


def arrays(case, seed=0):
    """q, k, v, and o like them, as float64, two query heads to a head of keys."""
    random = np.random.default_rng(seed)
    batch = 1 if case == "packed" else 2
    shapes = [(batch, 4, 7, 5), (batch, 2, 9, 5), (batch, 2, 9, 3), (batch, 4, 7, 3)]
    found = [random.standard_normal(s) for s in shapes]
    return [x.swapaxes(1, 2).copy() for x in found] if case == "tokens first" else found


@pytest.mark.parametrize("case", CASES)
def test_tangents_are_central_differences(case):
    options = CASES[case]
    q, k, v, _ = arrays(case)
    directions = arrays(case, 1)[:3]
    step = 1e-5
    ends = [redblue.attention(*(x + by * t for x, t in zip((q, k, v), directions)), return_lse=True, **options) for by in (step, -step)]
    o, lse = redblue.attention(q, k, v, return_lse=True, **options)
    for given in ((o, lse), (None, None)):
        found = redblue.attention_tangent(*directions, q, k, v, *given, **options)
        seen = np.isfinite(lse)
        np.testing.assert_allclose(found.o, (ends[0][0] - ends[1][0]) / (2 * step), atol=1e-8)
        np.testing.assert_allclose(found.lse[seen], (ends[0][1][seen] - ends[1][1][seen]) / (2 * step), atol=1e-8)


@pytest.mark.parametrize("with_lse", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_gradients_of_gradients_are_central_differences(case, with_lse):
    options = CASES[case]
    q, k, v, do = arrays(case)
    gq, gk, gv, _ = arrays(case, 1)
    o, lse = redblue.attention(q, k, v, return_lse=True, **options)
    dlse = np.random.default_rng(2).standard_normal(lse.shape) * np.isfinite(lse) if with_lse else None

    def loss(q, k, v, do, dlse=None):
        own = redblue.attention(q, k, v, return_lse=True, **options)
        found = redblue.attention_backward(do, q, k, v, *own, dlse=dlse, **options)
        return (gq * found.dq).sum() + (gk * found.dk).sum() + (gv * found.dv).sum()

    found = redblue.attention_second(gq, gk, gv, do, q, k, v, o, lse, dlse=dlse, **options)
    assert (found.dlse is None) == (dlse is None)
    at = [q, k, v, do] + ([dlse] if with_lse else [])
    for i, gradient in enumerate(found[: len(at)]):
        u = np.random.default_rng(3 + i).standard_normal(at[i].shape)
        step = 1e-5
        ends = [loss(*(x + by * u if j == i else x for j, x in enumerate(at))) for by in (step, -step)]
        assert (gradient * u).sum() == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-6, rel=1e-6)


BIASES = {
    "of all": ((2, 4, 7, 9), {}),
    "of queries and keys": ((7, 9), {"causal": True}),
    "of keys": ((2, 1, 1, 9), {"dropout": 0.3, "seed": 7}),
    "of queries": ((4, 7, 1), {"seqused_k": [5, 0]}),
    "tokens first": ((1, 4, 7, 9), {"layout": "bshd"}),
    "under a softcap": ((4, 7, 9), {"softcap": 1.5, "causal": True}),
    "of keys under a softcap": ((2, 1, 1, 9), {"softcap": 1.5, "M": 150}),
}


@pytest.mark.parametrize("case", BIASES)
def test_a_bias_moves_and_has_gradients_of_gradients(case):
    shape, options = BIASES[case]
    random = np.random.default_rng(5)
    bias, tbias, u = (random.standard_normal(shape) for _ in range(3))
    q, k, v, do = arrays(case)
    t = arrays(case, 1)[:3]
    step = 1e-5
    attend = lambda by: redblue.attention(*(x + by * d for x, d in zip((q, k, v), t)), bias=bias + by * tbias, return_lse=True, **options)
    ends, (o, lse) = [attend(by) for by in (step, -step)], attend(0)
    found, seen = redblue.attention_tangent(*t, q, k, v, o, lse, tbias=tbias, bias=bias, **options), np.isfinite(lse)
    np.testing.assert_allclose(found.o, (ends[0][0] - ends[1][0]) / (2 * step), atol=1e-8)
    np.testing.assert_allclose(found.lse[seen], (ends[0][1][seen] - ends[1][1][seen]) / (2 * step), atol=1e-8)

    def loss(bias):
        o, lse = redblue.attention(q, k, v, bias=bias, return_lse=True, **options)
        of = redblue.attention_backward(do, q, k, v, o, lse, bias=bias, bias_gradient=True, **options)
        return sum((g * d).sum() for g, d in zip(of, (*t, tbias)))

    second = redblue.attention_second(*t, do, q, k, v, o, lse, gbias=tbias, bias=bias, **options)
    assert second.bias.shape == shape
    assert (second.bias * u).sum() == pytest.approx((loss(bias + step * u) - loss(bias - step * u)) / (2 * step), abs=1e-6, rel=1e-6)
    at_rest = redblue.attention_second(*t, do, q, k, v, o, lse, bias_gradient=True, bias=bias, **options)
    zeros = redblue.attention_second(*t, do, q, k, v, o, lse, gbias=0 * tbias, bias=bias, **options)
    for a, b in zip(at_rest, zeros):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("case", CASES)
def test_sinks_move_and_have_gradients_of_gradients(case):
    options = CASES[case]
    random = np.random.default_rng(5)
    sinks, tsinks, u = (random.standard_normal(4) for _ in range(3))
    q, k, v, do = arrays(case)
    t = arrays(case, 1)[:3]
    step = 1e-5
    attend = lambda by: redblue.attention(*(x + by * d for x, d in zip((q, k, v), t)), sinks=sinks + by * tsinks, return_lse=True, **options)
    ends, (o, lse) = [attend(by) for by in (step, -step)], attend(0)
    dlse = random.standard_normal(lse.shape)
    for given in ((o, lse), (None, None)):
        found = redblue.attention_tangent(*t, q, k, v, *given, tsinks=tsinks, sinks=sinks, **options)
        for ours, above, below in zip(found, *ends):
            np.testing.assert_allclose(ours, (above - below) / (2 * step), atol=1e-8)

    def loss(sinks):
        o, lse = redblue.attention(q, k, v, sinks=sinks, return_lse=True, **options)
        of = redblue.attention_backward(do, q, k, v, o, lse, dlse=dlse, sinks=sinks, sinks_gradient=True, **options)
        return sum((g * d).sum() for g, d in zip((*of[:3], of.dsinks), (*t, tsinks)))

    second = redblue.attention_second(*t, do, q, k, v, o, lse, dlse=dlse, gsinks=tsinks, sinks=sinks, **options)
    assert second.sinks.shape == (4,)
    assert (second.sinks * u).sum() == pytest.approx((loss(sinks + step * u) - loss(sinks - step * u)) / (2 * step), abs=1e-6, rel=1e-6)
    at_rest = redblue.attention_second(*t, do, q, k, v, o, lse, sinks_gradient=True, sinks=sinks, **options)
    zeros = redblue.attention_second(*t, do, q, k, v, o, lse, gsinks=0 * tsinks, sinks=sinks, **options)
    for a, b in zip(at_rest, zeros):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("sinks", [None, -1e6])
@pytest.mark.parametrize("schedule", ["three_sweeps", "fused_key_outer", "materialised"])
def test_queries_with_one_key_have_no_gradient_of_a_gradient_whatever_lse_is(size, sinks, schedule):
    """How their outputs move is gv; lse is 26,000 for entries of 100, and known within 1e-3."""
    random = np.random.default_rng(0)
    q, do, gq, v, gk, gv, k = (random.standard_normal((1, 2, 32 if i < 3 else 1, 64)).astype("float32") for i in range(7))
    q, k = size * q, size * k
    options = {} if sinks is None else {"sinks": np.full(2, sinks, "float32")}
    own = redblue.attention(q, k, v, return_lse=True, **options)
    found = redblue.attention_second(gq, gk, gv, do, q, k, v, *own, schedule=schedule, **options)
    moves = np.abs(np.einsum("bhid,bhjd->bhij", gq, k) + np.einsum("bhid,bhjd->bhij", q, gk)).max() / 8
    for got in (found.q / size, found.k / size, found.v, found.do - gv):
        assert np.abs(got).max() < 1e-6 * (1 + moves)


def test_without_o_and_lse_a_forward_pass_runs_first():
    q, k, v, do = arrays("plain")
    g = arrays("plain", 1)[:3]
    own = redblue.attention(q, k, v, return_lse=True)
    for a, b in zip(redblue.attention_second(*g, do, q, k, v, *own)[:4], redblue.attention_second(*g, do, q, k, v)[:4]):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_arrays_at_rest_need_not_be_given():
    q, k, v, do = arrays("plain")
    _, _, gv, _ = arrays("plain", 1)
    found = redblue.attention_tangent(None, None, gv, q, k, v)
    np.testing.assert_allclose(found.o, redblue.attention(q, k, gv), atol=1e-12)
    np.testing.assert_array_equal(found.lse, 0)
    assert redblue.attention_second(None, None, gv, do, q, k, v).do.shape == do.shape


def test_queries_with_nothing_but_lowest_numbers_move_by_the_mean():
    q, k, v, do = (x.astype("float32") for x in arrays("plain"))
    t = [x.astype("float32") for x in arrays("plain", 1)[:3]]
    bias = np.zeros((7, 9), "float32")
    bias[2] = np.finfo("float32").min
    o, lse = redblue.attention(q, k, v, bias=bias, return_lse=True)
    for given in ((o, lse), (None, None)):
        found = redblue.attention_tangent(t[0] * 0, t[1] * 0, t[2], q, k, v, *given, bias=bias)
        mean = t[2].mean(2).repeat(2, 1)
        np.testing.assert_allclose(found.o[:, :, 2], mean, atol=1e-5)
        keys = (np.einsum("bhid,bhjd->bhij", t[0], k.repeat(2, 1)) + np.einsum("bhid,bhjd->bhij", q, t[1].repeat(2, 1))) / math.sqrt(5)
        moved = redblue.attention_tangent(*t, q, k, v, *given, bias=bias).lse
        np.testing.assert_allclose(moved[:, :, 2], keys[:, :, 2].mean(-1), atol=1e-5)
        second = redblue.attention_second(*t, do, q, k, v, *given, bias=bias)
        np.testing.assert_allclose(second.do[:, :, 2], redblue.attention_tangent(*t, q, k, v, *given, bias=bias).o[:, :, 2], atol=1e-5)


@pytest.mark.parametrize("op", ["tangent", "second"])
def test_explain_has_the_plan_of_the_call(op):
    q, k, v, do = arrays("plain")
    bias = np.zeros((7, 9))
    moves = {"tbias": bias} if op == "tangent" else {"bias_gradient": True}
    for options, of_call, asked in ({}, {}, {}), ({"causal": True}, {}, {}), ({"bias": bias}, moves, {"bias_gradient": True}):
        told = redblue.explain(q, k, v, op=op, **options, **asked)
        if op == "tangent":
            redblue.attention_tangent(q, k, v, q, k, v, *redblue.attention(q, k, v, return_lse=True, **options), **of_call, **options)
        else:
            redblue.attention_second(q, k, v, do, q, k, v, *redblue.attention(q, k, v, return_lse=True, **options), **of_call, **options)
        ran = redblue.explain().to_dict()
        assert told.to_dict()["io"] == ran["io"] and told.to_dict()["schedule"] == ran["schedule"]
    for wrong, match in (({"bias_gradient": True}, "there is no bias"), ({"return_lse": True}, "return_lse is for op")):
        with pytest.raises(redblue.InvalidProblem, match=match):
            redblue.explain(q, k, v, op=op, **wrong)


def test_what_is_not_computed_is_refused():
    q, k, v, do = arrays("plain")
    with pytest.raises(redblue.InvalidProblem, match="attention_tangent with approximate"):
        redblue.attention_tangent(q, k, v, q, k, v, approximate="2:1.0")
    with pytest.raises(redblue.InvalidProblem, match="dlse with approximate"):
        redblue.attention_backward(do, q, k, v, dlse=np.ones(do.shape[:-1]), approximate="2:4.0")
    bias, mask = np.zeros((7, 9)), np.ones((7, 9), bool)
    for options, match in (
        ({"tbias": bias}, "tbias: there is no bias"),
        ({"tbias": bias, "bias": mask}, "tbias: bias is of bool and does not move"),
        ({"tbias": bias[:, :1], "bias": bias}, "tbias is"),
        ({"tsinks": np.zeros(4)}, "tsinks: there are no sinks"),
        ({"tsinks": np.zeros(3), "sinks": np.zeros(4)}, "tsinks is"),
    ):
        with pytest.raises(redblue.InvalidProblem, match=match):
            redblue.attention_tangent(q, k, v, q, k, v, **options)
    with pytest.raises(TypeError, match="out: this function returns new arrays"):
        redblue.attention_tangent(q, k, v, q, k, v, out=q)
    with pytest.raises(redblue.InvalidProblem, match="tk is"):
        redblue.attention_tangent(q, v, v, q, k, v)


def torch_functions():
    torch = pytest.importorskip("torch")
    import redblue.torch as ours

    return torch, ours.attention


@pytest.mark.parametrize("case", ["plain", "causal", "softcap", "padded", "tokens first"])
def test_torch_differentiates_twice(case):
    torch, attention = torch_functions()
    q, k, v = (torch.tensor(x, requires_grad=True) for x in arrays(case)[:3])

    def f(q, k, v):
        o, lse = attention(q, k, v, return_lse=True, **CASES[case])
        return o, torch.where(lse == -math.inf, 0.0, lse)

    assert torch.autograd.gradcheck(f, (q, k, v), check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(f, (q, k, v), fast_mode=True)


def test_torch_refuses_third_derivatives():
    torch, attention = torch_functions()
    q = torch.tensor(arrays("plain")[0], requires_grad=True)
    (first,) = torch.autograd.grad(attention(q, q, q).square().sum(), q, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), q, create_graph=True)
    with pytest.raises(redblue.Unsupported, match="third derivatives"):
        torch.autograd.grad(second.square().sum(), q)


def test_a_gradient_penalty_is_that_of_plain_attention():
    torch, attention = torch_functions()
    q, k, v = (torch.tensor(x, requires_grad=True) for x in arrays("plain")[:3])

    def penalty(attend):
        (g,) = torch.autograd.grad(attend(q, k, v).square().sum(), q, create_graph=True)
        return torch.autograd.grad(g.square().sum(), (q, k, v))

    def plain(q, k, v):
        k, v = (x.repeat_interleave(2, 1) for x in (k, v))
        return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v

    for ours, theirs in zip(penalty(attention), penalty(plain)):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-10)


def test_a_schedule_is_that_of_the_pass_asked_for_where_a_forward_pass_comes_first():
    q, k, v, do = arrays("of all")
    bias = np.random.default_rng(5).standard_normal((7, 9))
    tangents = redblue.attention_tangent(q, k, v, q, k, v, bias=bias, schedule="query_outer")
    assert redblue.explain().schedule == "query_outer"
    assert all(np.allclose(a, b) for a, b in zip(tangents, redblue.attention_tangent(q, k, v, q, k, v, bias=bias)))
    redblue.attention_second(q, k, v, do, q, k, v, bias=bias, schedule="three_sweeps")
    assert redblue.explain().schedule == "three_sweeps"
