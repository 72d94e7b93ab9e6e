"""redblue and its peers behind one face.

    runner = PEERS[name](threads)
    runner.about()                  what it is, in words
    run = runner.prepare(cell, arrays)      None if it cannot do the cell
    run(); run.outputs              numpy arrays by name: o, or dq, dk, dv
    run.notes                       what is worth keeping: a variant, a plan

`arrays` are those of cells.inputs in the runner's layout, and backward o and lse as well. What a library lets its user
do once, before the first run, is done in prepare.
"""

import ctypes as C
import math
import pathlib
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))
import redblue_c as rb  # noqa: E402


class Run:
    def __init__(self, call, outputs, notes, keep=None):
        self.call, self.outputs, self.notes, self.keep = call, outputs, notes, keep

    def __call__(self):
        self.call()


def empty_outputs(cell, shape):
    kind = np.uint16 if cell.dtype == "bf16" else np.float32
    return {name: np.zeros(shape, kind) for name in (("dq", "dk", "dv") if cell.op == "backward" else ("o",))}


class Redblue:
    def __init__(self, threads, library, words, schedules, layout):
        """schedules: names by operation, where the planner shall not choose."""
        self.threads, self.words, self.schedules, self.layout = threads, words, schedules, layout
        rb.LIB = rb.load(library)

    def about(self):
        return f"redblue {rb.LIB.redblue_version().decode()}"

    def tensor(self, cell, name, array):
        if name == "lse":
            return rb.tensor(array.reshape(1, cell.heads, cell.n, 1))
        return rb.tensor((array.transpose(1, 0, 2) if self.layout == "nhd" else array)[None])

    def run_on(self, cell, arrays, outputs):
        """A run with its plan and workspace at hand; `arrays` are inputs and outputs."""
        backward, schedule = cell.op == "backward", self.schedules.get(cell.op)
        dtype = rb.BF16 if cell.dtype == "bf16" else rb.F32
        shape = {"heads": cell.heads, "n_q": cell.n, "n_k": cell.n, "d": cell.d}
        plan = rb.Plan(
            rb.Problem(operation=rb.BACKWARD if backward else rb.FORWARD, causal=cell.causal, **shape),
            rb.PlanOptions(
                fast_memory_words=self.words,
                schedule=schedule and schedule.encode(),
                objective=rb.MINIMISE_WORDS if self.words else rb.MINIMISE_TIME,
                compute=dtype,
                dtype=dtype,
                threads=self.threads,
            ),
        )
        tensors = (rb.BackwardTensors if backward else rb.ForwardTensors)(
            **{"d_o" if name == "dO" else name: self.tensor(cell, name, array) for name, array in arrays.items()}
        )
        options = rb.RunOptions(threads=self.threads)
        options.workspace_size = plan.workspace(tensors, options)
        workspace = C.create_string_buffer(options.workspace_size)
        options.workspace = C.addressof(workspace)
        info = plan.info()
        notes = {
            "schedule": info.schedule.decode(),
            "reason": info.reason.decode(),
            "words": info.words_read + info.words_written,
            "bound_words": info.bound_words,
            "ratio": info.ratio if math.isfinite(info.ratio) else None,
            "footprint": info.footprint_words,
            "workspace_bytes": options.workspace_size,
        }
        return Run(lambda: plan.run(tensors, options), outputs, notes, (arrays, workspace))

    def prepare(self, cell, arrays):
        outputs = empty_outputs(cell, arrays["q"].shape)
        return self.run_on(cell, {**arrays, **outputs}, outputs)


class SharedLibrary:
    """A peer of peer.h."""

    layout = "hnd"

    class Cell(C.Structure):
        _fields_ = [(name, C.c_int) for name in "backward causal bf16 threads".split()]
        _fields_ += [(name, C.c_long) for name in "heads n d".split()]

    class Arrays(C.Structure):
        _fields_ = [(name, C.c_void_p) for name in "q k v o lse dO dq dk dv".split()]

    def __init__(self, threads):
        self.threads = threads
        self.lib = lib = C.CDLL(str(ROOT / f"build/peers/lib/{self.name}.so"))
        lib.peer_about.restype = lib.peer_variant_name.restype = C.c_char_p
        lib.peer_make.restype = C.c_void_p
        lib.peer_run.argtypes = [C.c_void_p, C.POINTER(self.Arrays)]
        lib.peer_free.argtypes = [C.c_void_p]

    def about(self):
        return self.lib.peer_about().decode()

    def prepare(self, cell, arrays):
        """Takes the variant that is fastest in two runs after a warm-up."""
        c = self.Cell(cell.op == "backward", cell.causal, cell.dtype == "bf16", self.threads, cell.heads, cell.n, cell.d)
        outputs = empty_outputs(cell, arrays["q"].shape)
        all_arrays = {**arrays, **outputs}
        pointers = self.Arrays(**{name: x.ctypes.data for name, x in all_arrays.items()})
        best = None
        for variant in range(self.lib.peer_variants(C.byref(c))):
            name = self.lib.peer_variant_name(C.byref(c), variant).decode()
            made = Made(self.lib, self.lib.peer_make(C.byref(c), variant), pointers)
            made()
            seconds = []
            for _ in range(2):
                start = time.perf_counter()
                made()
                seconds.append(time.perf_counter() - start)
            if best is None or min(seconds) < best[0]:
                best = (min(seconds), name, made)
        return best and Run(best[2], outputs, {"variant": best[1]}, all_arrays)


class Made:
    def __init__(self, lib, made, pointers):
        self.lib, self.made, self.pointers = lib, made, pointers

    def __call__(self):
        self.lib.peer_run(self.made, C.byref(self.pointers))

    def __del__(self):
        self.lib.peer_free(self.made)


class OpenBlas(SharedLibrary):
    name = "openblas"


class Libxsmm(SharedLibrary):
    name = "libxsmm"


class OneDnn(SharedLibrary):
    name = "onednn"


class PyTorch:
    name, layout = "pytorch", "hnd"

    def __init__(self, threads):
        import torch

        self.torch = torch
        torch.set_num_threads(threads)

    def about(self):
        t = self.torch
        return f"PyTorch {t.__version__}, {t.backends.cpu.get_cpu_capability()}, mkl {t.backends.mkl.is_available()}"

    def prepare(self, cell, arrays):
        t, attention = self.torch, self.torch.nn.functional.scaled_dot_product_attention
        bf16 = cell.dtype == "bf16"

        def tensor(x):
            x = t.from_numpy(x.view(np.int16) if bf16 else x).unsqueeze(0)
            return x.view(t.bfloat16) if bf16 else x

        def array(x):
            x = x.detach()[0]
            return x.view(t.int16).numpy().view(np.uint16) if bf16 else x.numpy()

        q, k, v = (tensor(arrays[name]) for name in ("q", "k", "v"))
        run = Run(None, {}, {})
        if cell.op == "forward":

            def call():
                with t.inference_mode():
                    run.outputs["o"] = attention(q, k, v, is_causal=cell.causal)

        else:  # its forward pass, which keeps what backward needs, is not timed
            leaves = [x.requires_grad_() for x in (q, k, v)]
            o, dO = attention(*leaves, is_causal=cell.causal), tensor(arrays["dO"])

            def call():
                run.outputs.update(zip(("dq", "dk", "dv"), t.autograd.grad(o, leaves, dO, retain_graph=True)))

        run.call = call
        run.finish = lambda: {name: array(x) for name, x in run.outputs.items()}
        return run


class OnnxRuntime:
    """MultiHeadAttention takes [n, heads, d] and so does redblue beside it."""

    name, layout = "onnxruntime", "nhd"

    def __init__(self, threads):
        import onnxruntime

        self.ort, self.threads = onnxruntime, threads

    def about(self):
        return f"ONNX Runtime {self.ort.__version__}, MultiHeadAttention"

    def prepare(self, cell, arrays):
        if cell.op == "backward" or cell.dtype != "f32":
            return None
        from onnx import TensorProto, helper

        shape = (1, cell.n, cell.heads * cell.d)
        value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        node = helper.make_node(
            "MultiHeadAttention",
            ["q", "k", "v"],
            ["o"],
            domain="com.microsoft",
            num_heads=cell.heads,
            unidirectional=int(cell.causal),
        )
        graph = helper.make_graph([node], "attention", [value(x) for x in "qkv"], [value("o")])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        options = self.ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        # Its threads spin during a run, but not after it: they would take time from redblue.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        session = self.ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        outputs = empty_outputs(cell, arrays["q"].shape)
        binding = session.io_binding()
        for name in "qkv":
            binding.bind_cpu_input(name, arrays[name].reshape(shape))
        o = outputs["o"]
        binding.bind_output("o", "cpu", 0, np.float32, shape, o.ctypes.data)
        return Run(lambda: session.run_with_iobinding(binding), outputs, {}, (session, arrays))


PEERS = {peer.name: peer for peer in (OnnxRuntime, PyTorch, OpenBlas, Libxsmm, OneDnn)}
