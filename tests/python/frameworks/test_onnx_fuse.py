"""redblue.onnx.fuse: what becomes the operator Attention gives the same numbers, and what would not is left, with a reason."""

import re
import subprocess
import sys
import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
redblue = pytest.importorskip("redblue")
import redblue.onnx  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from redblue._onnx.program import main  # noqa: E402

LOWEST = float(np.finfo(np.float32).min)


def graph(body, inputs, results="float[B,H,N,E] y", opset=17, initializers=""):
    ir = 8 if opset < 23 else 11
    constants = f" <{initializers}>" if initializers else ""
    return onnx.parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}]> g ({inputs}) => ({results}){constants} {{ {body} }}')


def feeds_of(model, sizes):
    rng = np.random.default_rng(5)
    feeds = {}
    for value in model.graph.input:
        t = value.type.tensor_type
        shape = [d.dim_value or sizes[d.dim_param] for d in t.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
        x = rng.standard_normal(shape)
        if kind == bool:
            x = x > -0.5
            x[..., 0] = True
            if len(shape) > 1 and shape[-2] > 1:
                x[..., 1, :] = False  # a query that sees no key
        feeds[value.name] = np.asarray(x).astype(kind)
    return feeds


SIZES = {"B": 2, "H": 3, "N": 5, "M": 7, "D": 8, "E": 6}
QKV = "float[B,H,N,D] q, float[B,H,M,D] k, float[B,H,M,E] v"
SCORES = "kt = Transpose <perm = [0, 1, 3, 2]> (k) qk = MatMul (q, kt)"
OUT = "p = Softmax <axis = -1> (s) y = MatMul (p, v)"
C = "float c = {0.25}, float inf = {-inf}, float low = {%r}, float zero = {0}" % LOWEST


def test_what_is_fused_gives_the_same_numbers():
    cases = {
        "scale by Mul": (f"{SCORES} s = Mul (qk, c) {OUT}", QKV),
        "scale by Div": (f"{SCORES} s = Div (qk, c) {OUT}", QKV),
        "scale in front": (f"{SCORES} s = Mul (c, qk) {OUT}", QKV),
        "no scale": (f"kt = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul (q, kt) {OUT}", QKV),
        "scales of q and k": (
            f"a = Mul (q, c) t = Transpose <perm = [0, 1, 3, 2]> (k) kt = Mul (t, c) s = MatMul (a, kt) {OUT}",
            QKV,
        ),
        "scale of a run": (f"{SCORES} s = Div (qk, r) {OUT}", f"{QKV}, float r"),
        "negative scale": (f"{SCORES} s = Mul (qk, minus) {OUT}", QKV),
        "tokens before heads": (
            f"a = Transpose <perm = [0, 2, 1, 3]> (q) kt = Transpose <perm = [0, 2, 3, 1]> (k) qk = MatMul (a, kt) s = Mul (qk, c) "
            f"p = Softmax (s) w = Transpose <perm = [0, 2, 1, 3]> (v) y = MatMul (p, w)",
            "float[B,N,H,D] q, float[B,M,H,D] k, float[B,M,H,E] v",
        ),
        "another order": (
            f"kt = Transpose <perm = [1, 3, 0, 2]> (k) qk = MatMul (q, kt) s = Mul (qk, c) {OUT}",
            "float[B,H,N,D] q, float[D,B,M,H] k, float[B,H,M,E] v",
        ),
        "k transposed from the start": (f"qk = MatMul (q, k) s = Mul (qk, c) {OUT}", "float[B,H,N,D] q, float[B,H,D,M] k, float[B,H,M,E] v"),
        "added": (f"{SCORES} x = Mul (qk, c) s = Add (x, mask) {OUT}", f"{QKV}, float[N,M] mask"),
        "added in front": (f"{SCORES} s = Add (mask, qk) {OUT}", f"{QKV}, float[B,1,1,M] mask"),
        "one row": (f"{SCORES} s = Add (qk, mask) {OUT}", f"{QKV}, float[M] mask"),
        "one number": (f"{SCORES} s = Add (qk, mask) {OUT}", f"{QKV}, float mask"),
        "added twice": (f"{SCORES} x = Add (qk, mask) s = Add (x, more) {OUT}", f"{QKV}, float[B,1,1,M] mask, float[1,H,N,M] more"),
        "subtracted": (f"{SCORES} s = Sub (qk, mask) {OUT}", f"{QKV}, float[B,1,N,M] mask"),
        "one number for each query": (f"{SCORES} s = Add (qk, mask) {OUT}", f"{QKV}, float[B,H,N,1] mask"),
        "of an unknown size": (f"e = Expand (mask, to) {SCORES} s = Add (qk, e) {OUT}", f"{QKV}, float[N,1] mask, int64[2] to"),
        "shown": (f"{SCORES} s = Where (seen, qk, inf) {OUT}", f"{QKV}, bool[B,1,N,M] seen"),
        "hidden": (f"{SCORES} n = Not (seen) s = Where (n, inf, qk) {OUT}", f"{QKV}, bool[B,1,N,M] seen"),
        "hidden by the lowest number": (f"{SCORES} s = Where (seen, qk, low) {OUT}", f"{QKV}, bool[B,1,N,M] seen"),
        "hidden and added": (f"{SCORES} x = Add (qk, mask) s = Where (seen, x, inf) {OUT}", f"{QKV}, bool[N,M] seen, float[H,N,M] mask"),
        "hidden, then added": (f"{SCORES} x = Where (seen, qk, low) s = Add (x, mask) {OUT}", f"{QKV}, bool[N,M] seen, float[H,N,M] mask"),
        "guarded": (
            f"{SCORES} x = Where (seen, zero, inf) s = Add (qk, x) w = Softmax (s) b = IsNaN (w) p = Where (b, zero, w) y = MatMul (p, v)",
            f"{QKV}, bool[N,M] seen",
        ),
        "dropout": (f"{SCORES} i = Identity (qk) w = Softmax (i) p = Dropout (w) y = MatMul (p, v)", QKV),
        "capped": (f"{SCORES} a = Mul (qk, c) d = Div (a, five) t = Tanh (d) z = Mul (t, five) s = Add (z, mask) {OUT}", f"{QKV}, float[N,M] mask"),
        "capped and scaled": (f"{SCORES} t = Tanh (qk) z = Mul (t, minus) u = Div (z, c) s = Where (seen, u, inf) {OUT}", f"{QKV}, bool[N,M] seen"),
        "capped alone": (f"{SCORES} s = Tanh (qk) {OUT}", QKV),
        "scaled after a mask": (f"{SCORES} x = Add (qk, mask) s = Mul (x, c) {OUT}", f"{QKV}, float[N,M] mask"),
        "scaled after several masks": (
            f"{SCORES} x = Sub (qk, mask) z = Div (x, c) u = Where (seen, z, low) w = Mul (u, c) s = Add (w, mask) {OUT}",
            f"{QKV}, float[N,M] mask, bool[B,1,N,M] seen",
        ),
        "hidden, then scaled": (f"{SCORES} x = Where (seen, qk, inf) s = Div (x, five) {OUT}", f"{QKV}, bool[N,M] seen"),
        "Einsum": (
            'qk = Einsum <equation = "bhnd,bhmd->bhnm"> (q, k) s = Mul (qk, c) p = Softmax (s) y = Einsum <equation = "bhnm,bhme->bhne"> (p, v)',
            QKV,
        ),
        "Einsum of scores": (f'a = Mul (q, c) s = Einsum <equation = "...nd, ...md -> ...nm"> (a, k) {OUT}', QKV),
        "Einsum of values": (f'{SCORES} p = Softmax (qk) y = Einsum <equation = "bhme,bhnm->bhne"> (v, p)', QKV),
        "Einsum with tokens before heads": (
            'qk = Einsum <equation = "BSNH,BTNH->BNTS"> (k, q) z = Mul (qk, c) s = Add (z, mask) p = Softmax (s) '
            'x = Einsum <equation = "BNTS,BSNE->BTNE"> (p, v) y = Transpose <perm = [0, 2, 1, 3]> (x)',
            "float[B,N,H,D] q, float[B,M,H,D] k, float[B,M,H,E] v, float[N,M] mask",
        ),
        "one head of k": (f"{SCORES} s = Mul (qk, c) {OUT}", "float[B,H,N,D] q, float[B,1,M,D] k, float[B,1,M,E] v"),
    }
    for name, (body, inputs) in cases.items():
        model = graph(body, inputs, initializers=C + ", float minus = {-0.5}, float five = {5}")
        feeds = feeds_of(model, SIZES)
        if name == "of an unknown size":
            feeds["to"] = np.array([SIZES["N"], SIZES["M"]])
        check(name, model, feeds)


def check(name, model, feeds, tolerance=2e-6):
    """The model with Attention gives what the model gave, wherever that is a number; 0 elsewhere."""
    fused = redblue.onnx.fuse(model)
    assert fused.count == 1, f"{name}: {fused}"
    kinds = [node.op_type for node in fused.model.graph.node]
    assert kinds.count("Attention") == 1 and not {"Softmax", "MatMul", "Einsum", "Tanh"} & set(kinds), name
    onnx.checker.check_model(fused.model, full_check=True)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        want = ReferenceEvaluator(model).run(None, feeds)[0]
    for session in (redblue.onnx.evaluator(fused.model), ReferenceEvaluator(fused.model)):
        got = session.run(None, feeds)[0]
        assert got.dtype == want.dtype and got.shape == want.shape, name
        np.testing.assert_allclose(got, np.nan_to_num(want), rtol=0, atol=tolerance, err_msg=name)
    return fused


@pytest.mark.parametrize("rank", [2, 3])
def test_fewer_dimensions(rank):
    front = "B," * (rank - 2)
    perm = "[0, 2, 1]" if rank == 3 else "[1, 0]"
    body = f"kt = Transpose <perm = {perm}> (k) x = MatMul (q, kt) s = Add (x, mask) {OUT}"
    for mask in ("N,M", f"{front}N,M", f"{front}1,M", "N,1"):
        inputs = f"float[{front}N,D] q, float[{front}M,D] k, float[{front}M,E] v, float[{mask}] mask"
        model = graph(body, inputs, f"float[{front}N,E] y")
        check(mask, model, feeds_of(model, SIZES))


@pytest.mark.parametrize("opset", [11, 13, 23, 24])
def test_opsets(opset):
    body = SCORES + " s = Mul (qk, c) p = Softmax <axis = 3> (s) y = MatMul (p, v)"
    model = graph(body, QKV, opset=opset, initializers=C)
    before = model.SerializeToString()
    fused = check(str(opset), model, feeds_of(model, SIZES))
    assert model.SerializeToString() == before
    assert fused.converted == ("" if opset >= 23 else f"opset {opset} converted to 23")
    assert fused.model.opset_import[0].version == max(opset, 23)


def test_types():
    half = QKV.replace("float", "float16")
    body = f"{SCORES} x = Add (qk, mask) z = Cast <to = 1> (x) w = Softmax (z) p = Cast <to = 10> (w) y = MatMul (p, v)"
    model = graph(body, f"{half}, float16[N,M] mask", "float16[B,H,N,E] y")
    fused = check("softmax in fp32", model, feeds_of(model, SIZES), 4e-3)
    (node,) = [n for n in fused.model.graph.node if n.op_type == "Attention"]
    assert {a.name: a.i for a in node.attribute}["softmax_precision"] == onnx.TensorProto.FLOAT
    model = graph(f"{SCORES} s = Mul (qk, c) {OUT}", QKV.replace("float", "double"), "double[B,H,N,E] y", initializers="double c = {0.3}")
    check("a scale that fp32 does not hold", model, feeds_of(model, SIZES), 1e-14)


@pytest.mark.parametrize(
    "body, inputs, why",
    [
        (f"{SCORES} s = Mul (qk, r) {OUT}", f"{QKV}, float[N,1] r", "another thing than one number"),
        (f"{SCORES} x = Add (qk, mask) s = Mul (x, r) {OUT}", f"{QKV}, float[N,M] mask, float r", "only a run knows, after a mask is added"),
        (f"{SCORES} x = Add (qk, mask) s = Mul (x, few) {OUT}", f"{QKV}, float[N,M] mask", "scaled by -10000 after a mask is added"),
        (f"{SCORES} x = Add (qk, mask) s = Mul (x, zero) {OUT}", f"{QKV}, float[N,M] mask", "scaled by 0 after a mask is added"),
        (f"{SCORES} x = Where (seen, qk, low) s = Mul (x, tiny) {OUT}", f"{QKV}, bool[N,M] seen", "takes the place of hidden scores"),
        (f"{SCORES} x = Add (qk, mask) s = Tanh (x) {OUT}", f"{QKV}, float[N,M] mask", "Tanh acts on its scores after a mask"),
        (f"{SCORES} x = Tanh (qk) s = Tanh (x) {OUT}", QKV, "capped before"),
        (f"{SCORES} x = Tanh (qk) s = Mul (x, r) {OUT}", f"{QKV}, float r", "only a run knows, after a Tanh"),
        (f"{SCORES} x = Tanh (qk) s = Mul (x, zero) {OUT}", QKV, "scaled by 0 after a Tanh"),
        (f"{SCORES} s = Where (seen, qk, few) {OUT}", f"{QKV}, bool[N,M] seen", "-10000 takes the place of hidden scores"),
        (f"{SCORES} s = Where (seen, qk, mask) {OUT}", f"{QKV}, bool[N,M] seen, float[N,M] mask", "another thing than a constant number"),
        (f"{SCORES} s = Relu (qk) {OUT}", QKV, "Relu stands between"),
        (f"{SCORES} p = Softmax <axis = 2> (qk) y = MatMul (p, v)", QKV, "along the axis 2"),
        (f"s = Add (q, q) {OUT}", "float[B,H,N,M] q, float[B,H,M,E] v", "no product, but an input"),
        (f"{SCORES} s = Add (qk, mask) {OUT}", f"{QKV}, float[9,1,N,M] mask".replace("B,H,N,D", "1,H,N,D"), "differ"),
        (f"{SCORES} s = Mul (qk, c) {OUT}", "float[1,H,N,D] q, float[4,H,M,D] k, float[4,H,M,E] v", "batches of Q, K and V differ, 1 and 4"),
        (f"{SCORES} s = Mul (qk, c) {OUT}", "float[B,4,N,D] q, float[B,1,M,D] k, float[B,4,M,E] v", "heads of Q, K and V differ"),
        (f"{SCORES} p = Softmax (qk) t = Transpose <perm = [0, 1, 3, 2]> (p) y = MatMul (t, v)", QKV, "through Transpose to a MatMul"),
        (f"{SCORES} p = Softmax (qk) y = MatMul (v, p)", "float[B,H,N,D] q, float[B,H,M,D] k, float[B,H,E,N] v", "second factor"),
        (f'{SCORES} p = Softmax (qk) y = Einsum <equation = "bhnm,bkme->bhen"> (p, v)', QKV, "Einsum bhnm,bkme->bhen"),
        (f'{SCORES} p = Softmax (qk) y = Einsum <equation = "bhnm,bhme"> (p, v)', QKV, "Einsum bhnm,bhme is no product"),
        (f'{SCORES} p = Softmax (qk) t = Reshape (p, shape) y = Einsum <equation = "bhnm,bhme->bhne"> (t, v)', QKV, "through Reshape to a Einsum"),
        (f's = Einsum <equation = "bhnd,bgmd->bhnm"> (q, k) {OUT}', QKV, "Einsum bhnd,bgmd->bhnm"),
        (f"{SCORES} p = Softmax (qk) w = Dropout (p, ratio, on) y = MatMul (w, v)", QKV, "Dropout"),
    ],
)
def test_what_is_left(body, inputs, why):
    constants = C + ", float few = {-10000}, float ratio = {0.5}, bool on = {1}, float tiny = {1e-20}, int64[4] shape = {0, 0, 0, -1}"
    model = graph(body, inputs, initializers=constants)
    fused = redblue.onnx.fuse(model)
    assert fused.count == 0 and len(fused.found) == 1 and fused.model is model
    assert re.search(why, fused.found[0].why), fused


@pytest.mark.parametrize("name, what", [("p", "weights"), ("s", "scores"), ("qk", "scores")])
def test_what_is_read_elsewhere_stays(name, what):
    body = f"{SCORES} s = Mul (qk, c) {OUT}"
    for results, more, why in (
        (f"float[B,H,N,E] y, float[B,H,N,M] {name}", "", "a result of the graph"),
        ("float[B,H,N,E] y, float[B,H,N,M] z", f" z = Neg ({name})", "also read by Neg"),
        (
            "float[B,H,N,E] y, float[B,H,N,M] z",
            f" z = If (on) <then_branch = t () => (float[B,H,N,M] a) {{ a = Neg ({name}) }}, "
            f"else_branch = e () => (float[B,H,N,M] b) {{ b = Identity ({name}) }}>",
            "also read by If",
        ),
    ):
        model = graph(body + more, f"{QKV}, bool on", results, initializers=C)
        (found,) = redblue.onnx.fuse(model).found
        assert why in found.why and what in found.why, found


def test_bodies_are_left_and_other_nodes_stay():
    attention = f"{SCORES} s = Mul (qk, c) p = Softmax (s) "
    body = f"{attention} y = MatMul (p, v) z = Relu (y) u = Softmax (z)"
    model = graph(body, QKV, "float[B,H,N,E] u, float[B,H,M,D] k", initializers=C)
    fused = redblue.onnx.fuse(model)
    assert [f.why for f in fused.found] == [""]
    assert [n.op_type for n in fused.model.graph.node] == ["Attention", "Relu", "Softmax"]
    assert not fused.model.graph.initializer or {t.name for t in fused.model.graph.initializer} == {"inf", "low", "zero"}
    branch = attention + "a = MatMul (p, v)"
    body = f"y = If (on) <then_branch = t () => (float[B,H,N,E] a) {{ {branch} }}, else_branch = e () => (float[B,H,N,E] o) {{ o = Identity (v) }}>"
    (found,) = redblue.onnx.fuse(graph(body, f"{QKV}, bool on", initializers=C)).found
    assert "body of an If" in found.why


def test_sizes_that_are_taken_for_equal_are_refused_where_they_are_not():
    body = f"a = Reshape (q, to) {SCORES.replace('(q', '(a')} s = Mul (qk, c) {OUT}"
    model = graph(body, f"{QKV}, int64[4] to", initializers=C)
    fused = redblue.onnx.fuse(model)
    assert fused.count == 1 and "batches of Q, K and V" in fused.found[0].said
    feeds = feeds_of(model, {**SIZES, "N": 4})
    feeds["to"] = np.array([1, 3, 8, 8])  # MatMul broadcasts a batch of 1
    assert ReferenceEvaluator(model).run(None, feeds)[0].shape == (2, 3, 8, 6)
    with pytest.raises(redblue.InvalidProblem, match="batch"):
        redblue.onnx.evaluator(fused.model).run(None, feeds)


def test_an_attention_that_was_there_stays():
    model = graph(f"w = Attention (q, k, v) {SCORES} p = Softmax (qk) x = MatMul (p, v) y = Add (w, x)", QKV, opset=23)
    fused = redblue.onnx.fuse(model)
    assert str(fused).endswith("\n1 of 1 fused, and 1 there before"), fused
    model = graph("y = Attention (q, k, v)", QKV, opset=23)
    assert str(redblue.onnx.fuse(model)) == "0 of 0 fused, and 1 there before"


def test_operators_of_other_domains_stay():
    model = graph(f"{SCORES} s = Mul (qk, c) p = Softmax (s) x = MatMul (p, v) y = com.acme.Own (x)", QKV, initializers=C)
    model.opset_import.append(onnx.helper.make_opsetid("com.acme", 1))
    fused = redblue.onnx.fuse(model)
    assert [n.op_type for n in fused.model.graph.node] == ["Attention", "Own"]


def test_refusals():
    with pytest.raises(redblue.InvalidProblem, match="no graph"):
        redblue.onnx.fuse(onnx.ModelProto())
    model = graph(f"{SCORES} p = Softmax (qk) x = MatMul (p, v) y = Nowhere (x)", QKV)
    with pytest.raises(redblue.Unsupported, match="opset 17.*opset_version=23"):
        redblue.onnx.fuse(model)


def test_the_program(tmp_path, capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as status:
            main(["fuse", *map(str, arguments)])
        return status.value.code, *capsys.readouterr()

    model = graph(f"w = Add (k, big) {SCORES.replace('(k)', '(w)')} s = Mul (qk, c) {OUT}", QKV, initializers=C)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((7, 8), np.float32), "big"))
    source, elsewhere = tmp_path / "m.onnx", tmp_path / "there"
    elsewhere.mkdir()
    onnx.save_model(onnx.ModelProto.FromString(model.SerializeToString()), source, save_as_external_data=True, location="m.data", size_threshold=100)
    before = source.read_bytes()
    done = subprocess.run([sys.executable, "-m", "redblue.onnx", "fuse", source], capture_output=True, text=True)
    assert done.returncode == 0 and "1 of 1 fused" in done.stdout and "opset 17 converted to 23" in done.stdout, done
    assert run(source, "-o", elsewhere / "x.onnx")[0] == 0
    feeds = feeds_of(model, SIZES)
    for path in (tmp_path / "m.fused.onnx", elsewhere / "x.onnx"):
        got = redblue.onnx.evaluator(onnx.load(path)).run(None, feeds)[0]
        np.testing.assert_allclose(got, ReferenceEvaluator(model).run(None, feeds)[0], rtol=0, atol=2e-6)
    text, none = tmp_path / "text.onnx", tmp_path / "none.onnx"
    text.write_text("no model\n")
    onnx.save(graph("y = Neg (q)", QKV, "float[B,H,N,D] y"), none)
    for arguments, said in (
        ((source,), "m.fused.onnx exists"),
        ((source, "-o", source), "m.onnx exists"),
        ((source, "-o", tmp_path / "nowhere" / "x.onnx"), "nowhere is no folder"),
        ((tmp_path / "missing.onnx",), "there is no such file"),
        ((tmp_path,), "this is no file"),
        ((text,), "text.onnx is no model of ONNX"),
    ):
        status, _, error = run(*arguments)
        assert status == 2 and said in error, (arguments, error)
    status, report, _ = run(none)
    assert status == 1 and "0 of 0 fused" in report and not (tmp_path / "none.fused.onnx").exists()
    assert source.read_bytes() == before
