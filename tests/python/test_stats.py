"""How a user knows what redblue does: stats, explain of the last call, ranges in torch's profiler, and warnings of measurements."""

import json
import threading

import numpy as np
import pytest
from process import run_python

import redblue
from redblue._call import calls

pytestmark = pytest.mark.usefixtures("hardware")


def x(n=16, d=8):
    return np.ones((1, 1, n, d), np.float32)


@pytest.fixture(autouse=True)
def fresh():
    redblue.stats(reset=True)


def test_calls_plans_and_hits_are_counted_by_schedule():
    q = x(17, 9)
    for _ in range(5):
        redblue.attention(q, q, q, M=700)
    redblue.attention(q, q, q, M=700, schedule="key_outer")
    s = redblue.stats()
    assert (s["calls"], s["plans"], s["cache_hits"], s["refusals"]) == (6, 2, 4, 0)
    assert s["schedules"] == {redblue.plan(n=17, d=9, M=700).schedule: 5, "key_outer": 1}
    assert s["plan_ms"] > 0


def test_a_plan_that_explain_made_is_no_hit_before_it_runs():
    q = x(18, 9)
    redblue.explain(q, q, q, M=700)
    redblue.attention(q, q, q, M=700)
    assert [redblue.stats()[name] for name in ("plans", "calls", "cache_hits")] == [1, 1, 0]


def test_reset_returns_the_numbers_and_begins_anew():
    q = x()
    redblue.attention(q, q, q)
    assert redblue.stats(reset=True)["calls"] == 1
    empty = {"calls": 0, "refusals": 0, "plans": 0, "plan_ms": 0, "cache_hits": 0, "schedules": {}}
    assert redblue.stats() == empty
    redblue.attention(q, q, q)
    assert redblue.stats()["cache_hits"] == 1
    with pytest.raises(redblue.InvalidProblem, match="reset = 'all': give True or False"):
        redblue.stats(reset="all")


def test_gradients_parts_and_scores_count():
    q = x()
    o, lse = redblue.attention(q, q, q, return_lse=True)
    redblue.attention_backward(o, q, q, q, o, lse)
    redblue.attention_partial(q, q, q)
    redblue.scores(q, q)
    assert redblue.stats()["calls"] == 4


def test_refusals_are_counted():
    q = x()
    with pytest.raises(redblue.InvalidProblem):
        redblue.attention(q, q, q, dropout=0.5)  # Python refuses it
    with pytest.raises(redblue.CapacityError):
        redblue.attention(q, q, q, M=1)  # the library does
    s = redblue.stats()
    assert (s["refusals"], s["calls"]) == (2, 0)


def test_calls_of_threads_are_all_counted():
    arrays = [x(n) for n in (5, 6, 7, 8)]

    def call(q):
        for _ in range(300):
            redblue.attention(q, q, q, M=300)

    threads = [threading.Thread(target=call, args=(q,)) for q in arrays]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    s = redblue.stats()
    assert s["calls"] == 1200 and s["cache_hits"] == 1196 and s["plans"] == 4


def test_explain_without_arguments_is_of_the_last_call():
    q, k = x(16), x(24)
    redblue.attention(q, k, k, M=600, causal=True)
    last, asked = redblue.explain(), redblue.explain(q, k, k, M=600, causal=True)
    assert last.to_dict() == asked.to_dict()
    o, lse = redblue.attention(q, q, q, return_lse=True)
    assert redblue.explain().to_dict() == redblue.explain(q, q, q, return_lse=True).to_dict()
    redblue.attention_backward(o, q, q, q, o, lse)
    assert redblue.explain().operation == "backward"


def test_the_last_call_keeps_its_plan_and_its_seed():
    q = x(19)
    redblue.attention(q, q, q, dropout=0.5, seed=41, M=900)
    redblue.attention(q, q, q, dropout=0.5, seed=42, M=900)
    calls._calls.clear()
    calls._as_given.clear()
    assert redblue.explain().to_dict() == redblue.explain(q, q, q, dropout=0.5, seed=42, M=900).to_dict()


def test_explain_without_arrays_takes_no_options():
    with pytest.raises(redblue.InvalidProblem, match="options and no arrays"):
        redblue.explain(causal=True)
    with pytest.raises(redblue.InvalidProblem, match="options and no arrays"):
        redblue.explain(op="backward")
    code = "import redblue\ntry: redblue.explain()\nexcept redblue.InvalidProblem as e: print(e)"
    assert run_python(code).startswith("nothing has run in this process")


def test_a_child_of_fork_counts_on():
    code = """import os, numpy as np, redblue
q = np.ones((1, 1, 8, 4), np.float32)
redblue.attention(q, q, q, M=300)
if os.fork() == 0:
    try:
        redblue.explain()
    except redblue.InvalidProblem:
        redblue.attention(q, q, q, M=300)
        print(redblue.stats()["calls"], redblue.explain().sizes["n_q"], flush=True)
    os._exit(0)
os.wait()"""
    assert run_python(code) == "2 8"


def test_calls_of_torch_count_and_have_a_range_in_its_profiler():
    torch = pytest.importorskip("torch")
    q = torch.ones(1, 2, 16, 8, requires_grad=True)
    redblue.scaled_dot_product_attention(q, q, q).sum().backward()
    assert redblue.stats()["calls"] == 2
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        o = redblue.attention(q, q, q)
        forward = redblue.explain().schedule
        o.sum().backward()
        backward = redblue.explain().schedule
    names = [event.name for event in profile.events()]
    assert f"redblue::forward {forward} n_q=16 n_k=16 d=8" in names
    assert f"redblue::backward {backward} n_q=16 n_k=16 d=8" in names


def test_calls_of_jax_count_and_are_the_last():
    jax = pytest.importorskip("jax")
    q = jax.numpy.ones((1, 2, 20, 8), "float32")
    call = jax.jit(lambda q: redblue.jax.attention(q, q, q, causal=True))
    for _ in range(3):
        call(q).block_until_ready()
    assert redblue.stats()["calls"] == 3 and redblue.stats()["plans"] == 1
    assert redblue.explain().sizes["n_q"] == 20


def test_a_first_plan_measures_briefly_and_keeps_it(tmp_path):
    code = "import numpy as np, redblue; q = np.ones((1, 1, 16, 8), np.float32); print(redblue.explain(q, q, q).reason)"
    run_python(code, XDG_CONFIG_HOME=str(tmp_path))
    kept = json.loads((tmp_path / "redblue/hardware.json").read_text())
    assert kept["measured"]["brief"] and kept["measured"]["version"] == redblue.__version__


def test_a_measurement_of_another_processor_is_said_once():
    """In a process of its own: this one may have measured before the file was there."""
    code = "import logging, sys; logging.basicConfig(stream=sys.stdout); from redblue._call import calls; [calls.measure_once() for _ in '123']"
    said = run_python(code)
    assert said.count("is of another processor, and plans of least time are made for that") == 1
