"""What small calls and the import leave out, and what they must not."""

import pytest
from process import run_python

import redblue
from redblue._call import calls

pytestmark = pytest.mark.usefixtures("hardware")


def test_other_devices_are_refused_by_the_core():
    torch = pytest.importorskip("torch")
    q = torch.ones(1, 1, 16, 8)
    redblue.attention(q, q, q)
    plan = calls.call_for("forward", redblue._call.torch_arrays.Torch, q, q, q, redblue._attention.request(q, q, q).settings, (False,))
    elsewhere = torch.empty(1, 1, 16, 8, device="meta")
    with pytest.raises(TypeError, match="a tensor is on device meta: redblue runs on the CPU"):
        redblue._call.torch_arrays.Torch.run(plan.plan, (elsewhere, q, q, torch.empty_like(q), *(None,) * 32), False, 0)


def test_an_import_brings_no_modules_that_few_programs_need():
    code = "import numpy, sys; before = set(sys.modules); import redblue; print(*sorted(set(sys.modules) - before))"
    brought = set(run_python(code).split())
    assert not brought & {"difflib", "html", "logging", "secrets", "statistics", "torch", "jax", "onnx", "matplotlib"}
