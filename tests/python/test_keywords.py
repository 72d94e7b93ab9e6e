"""Each keyword of each function: a value of a type that it does not take is refused, in a sentence that names the keyword."""

import numpy as np
import pytest

import redblue
from redblue._call.options import OPTIONS, PLAN_OPTIONS, Settings
from redblue._plan import _problem

X = np.ones((1, 2, 4, 3))
ROWS = np.ones((1, 2, 4))
OF_PLANS = sorted({*_problem.__kwdefaults__, *PLAN_OPTIONS, *Settings._fields, "seed"} - {"n_q", "n_k", "layout"})
OF_ARRAYS = [name for name in OPTIONS if name != "tolerance"]
SIZES = {"n": 4, "d": 3, "M": 200}

#: For each function: how to call it with a keyword, and its keywords.
CALLS = {
    "plan": (lambda **k: redblue.plan(**{**SIZES, **k}), [*OF_PLANS, "n_q", "n_k", "op", "tolerance", "range"]),
    "count": (lambda **k: redblue.count(**{**SIZES, **k}), [*OF_PLANS, "op", "tolerance", "range"]),
    "bound": (lambda **k: redblue.bound(**{**SIZES, **k}), [*OF_PLANS, "op"]),
    "attention": (lambda **k: redblue.attention(X, X, X, **k), [*OPTIONS, "return_lse", "out"]),
    "attention_backward": (
        lambda **k: redblue.attention_backward(X, X, X, X, **k),
        [*OF_ARRAYS, "o", "lse", "dlse", "bias_gradient", "sinks_gradient", "out"],
    ),
    "attention_partial": (lambda **k: redblue.attention_partial(X, X, X, **k), [*OF_ARRAYS, "o", "lse"]),
    "attention_partial_backward": (
        lambda **k: redblue.attention_partial_backward(X, X, X, X, X, ROWS, **k),
        [*OF_ARRAYS, "dq", "dk", "dv"],
    ),
    "attention_tangent": (lambda **k: redblue.attention_tangent(X, X, X, X, X, X, **k), [*OF_ARRAYS, "o", "lse", "tbias", "tsinks"]),
    "attention_second": (
        lambda **k: redblue.attention_second(X, X, X, X, X, X, X, **k),
        [*OF_ARRAYS, "o", "lse", "dlse", "gbias", "bias_gradient", "gsinks", "sinks_gradient"],
    ),
    "merge": (lambda **k: redblue.merge(X, ROWS, X, ROWS, **k), ["out", "layout", "threads"]),
}
GIVEN = {  # what a keyword is judged beside
    "seed": {"dropout": 0.5},
    "range": {"tolerance": 1e-3},
    "tolerance": {"range": 1.0},
    "o": {"lse": ROWS},
    "lse": {"o": X},
    **dict.fromkeys(("bias_gradient", "tbias", "gbias"), {"bias": np.ones((4, 4))}),
    **dict.fromkeys(("sinks_gradient", "tsinks", "gsinks"), {"sinks": np.ones(2)}),
}


class Strange:
    """No number, no text, no list and no array."""


@pytest.mark.parametrize(("function", "keyword"), [(f, k) for f, (_, keywords) in CALLS.items() for k in keywords])
def test_a_value_of_a_wrong_type_is_refused_by_name(function, keyword):
    call = CALLS[function][0]
    beside = {} if function in ("plan", "count", "bound") and keyword not in ("range", "tolerance", "seed") else GIVEN.get(keyword, {})
    with pytest.raises((TypeError, ValueError, NotImplementedError), match=rf"\b{keyword}\b"):
        call(**{keyword: Strange()}, **beside)


def test_words_that_are_none_of_a_keyword_are_refused_by_name():
    for keyword in ("forward_given", "return_lse", "bias_gradient", "sinks_gradient", "lse_gradient", "bias_direction", "sinks_direction", "accumulate", "alibi", "sinks", "causal"):
        for call in (redblue.plan, redblue.bound):
            with pytest.raises(redblue.InvalidProblem, match=f"{keyword} = 'x': give True or False"):
                call("backward", **SIZES, **{keyword: "x"})
    with pytest.raises(redblue.InvalidProblem, match="max_workspace = False: give a whole number"):
        redblue.plan(**SIZES, max_workspace=False)
    with pytest.raises(redblue.InvalidProblem, match="max_workspace = 0: give 1 byte or more"):
        redblue.plan(**SIZES, max_workspace=0)
    with pytest.raises(redblue.InvalidProblem, match="write_cost = nan: give a number from 0 to 1000000"):
        redblue.plan(**SIZES, write_cost=float("nan"))
    with pytest.raises(redblue.InvalidProblem, match="softcap = ''"):
        redblue.plan(**SIZES, softcap="")
    with pytest.raises(redblue.InvalidProblem, match="schedule = False: give a text"):
        redblue.plan(**SIZES, schedule=False)


def test_what_would_not_count_is_refused():
    with pytest.raises(TypeError, match="a plan has no option 'layout'"):
        redblue.plan(**SIZES, layout="bshd")
    for unused in ({"memory": 4096}, {"max_workspace": 4096}, {"threads": 2}, {"write_cost": 0.0}):
        with pytest.raises(redblue.InvalidProblem, match=f"{next(iter(unused))}: a bound holds"):
            redblue.bound(**SIZES, **unused)
    for op, unused in (
        ("forward", {"forward_given": False}),
        ("backward", {"return_lse": True}),
        ("merge", {"scale": 2.0}),
        ("merge", {"n_k": 7}),
        ("merge", {"heads": 4, "kv_heads": 2}),
        ("merge", {"d": 3, "d_v": 5}),
    ):
        name = {"return_lse": "lse_required", "heads": "kv_heads"}.get(next(iter(unused)), next(iter(unused)))
        with pytest.raises(redblue.InvalidProblem, match=rf"\b{name}\b"):
            redblue.plan(op, **{**SIZES, **unused})
    assert redblue.plan("merge", n=4, d=3, M=200).io == redblue.plan("merge", n_q=4, d_v=3, M=200).io == 3 * 4 * (3 + 1)
