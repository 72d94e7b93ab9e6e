"""include/redblue.h through ctypes: as much of it as a race needs."""

import ctypes as C
import math

FORWARD, BACKWARD = 0, 1
DTYPES = {"f64": 0, "f32": 1, "f16": 2, "bf16": 3}


class Problem(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("operation", C.c_int32), ("causal", C.c_int32)]
    _fields_ += [(name, C.c_int64) for name in "batch heads kv_heads n_q n_k d d_v causal_offset".split()]
    _fields_ += [("scale", C.c_double)]
    _fields_ += [(name, C.c_int32) for name in "has_causal_offset has_scale lse_required forward_missing".split()]


class PlanOptions(C.Structure):
    _fields_ = [
        ("struct_size", C.c_size_t),
        ("fast_memory_words", C.c_int64),
        ("schedule", C.c_char_p),
        ("objective", C.c_int32),
        ("compute", C.c_int32),
        ("dtype", C.c_int32),
        ("threads", C.c_int32),
        ("max_workspace", C.c_size_t),
        ("hardware_file", C.c_char_p),
    ]


class Tensor(C.Structure):
    _fields_ = [("data", C.c_void_p), ("dtype", C.c_int32), ("strides", C.c_int64 * 4)]


class ForwardTensors(C.Structure):
    _fields_ = [("struct_size", C.c_size_t)] + [(name, Tensor) for name in "q k v o lse".split()]


class BackwardTensors(C.Structure):
    _fields_ = [("struct_size", C.c_size_t)] + [(name, Tensor) for name in "q k v o lse dO dq dk dv".split()]


class RunOptions(C.Structure):
    _fields_ = [
        ("struct_size", C.c_size_t),
        ("threads", C.c_int32),
        ("pool", C.c_void_p),
        ("workspace", C.c_void_p),
        ("workspace_size", C.c_size_t),
    ]


class PlanInfo(C.Structure):
    _fields_ = [("struct_size", C.c_size_t)]
    _fields_ += [(name, C.c_char_p) for name in "schedule forward_schedule reason bound_theorem".split()]
    _fields_ += [(name, C.c_int64) for name in "words_read words_written bound_words footprint_words flops".split()]
    _fields_ += [("ratio", C.c_double)]


def made(kind, **fields):
    return kind(struct_size=C.sizeof(kind), **fields)


class Library:
    def __init__(self, path):
        self.lib = C.CDLL(path)
        for name in "redblue_version redblue_last_error redblue_status_string".split():
            getattr(self.lib, name).restype = C.c_char_p
        self.lib.redblue_plan_destroy.argtypes = [C.c_void_p]

    def version(self):
        return self.lib.redblue_version().decode()

    def check(self, status):
        if status != 0:
            raise RuntimeError(f"redblue: {self.lib.redblue_last_error().decode()}")


def tensor(array, dtype, strides=(0, 0, 0, 0)):
    return Tensor(array.ctypes.data, DTYPES[dtype], (C.c_int64 * 4)(*strides))


class Plan:
    """A plan and the workspace of its runs, both made before the first run."""

    def __init__(self, library, backward, tensors, dtypes, shape, causal, words, compute, threads, schedule=None, strides=None):
        """tensors: numpy arrays by name; dtypes: of each, by name; shape: (heads, n, d); strides: of all but lse."""
        self.library, lib = library, library.lib
        heads, n, d = shape
        problem = made(Problem, operation=BACKWARD if backward else FORWARD, causal=causal, batch=1, heads=heads, n_q=n, n_k=n, d=d)
        options = made(
            PlanOptions,
            fast_memory_words=words,
            schedule=schedule and schedule.encode(),
            objective=0 if words else 1,
            compute=DTYPES[compute],
            dtype=DTYPES[dtypes["q"]],
            threads=threads,
        )
        self.plan = C.c_void_p()
        library.check(lib.redblue_plan_create(C.byref(problem), C.byref(options), C.byref(self.plan)))
        kind = BackwardTensors if backward else ForwardTensors
        self.tensors = made(kind)
        for name, array in tensors.items():
            own = strides if strides and name != "lse" else (0, 0, 0, 0)
            setattr(self.tensors, name, tensor(array, dtypes[name], own))
        self.options = made(RunOptions, threads=threads)
        self.call = lib.redblue_backward if backward else lib.redblue_forward
        size = lib.redblue_backward_workspace if backward else lib.redblue_forward_workspace
        bytes_needed = C.c_size_t()
        library.check(size(self.plan, C.byref(self.tensors), C.byref(self.options), C.byref(bytes_needed)))
        self.workspace = C.create_string_buffer(max(1, bytes_needed.value))
        self.options.workspace = C.cast(self.workspace, C.c_void_p)
        self.options.workspace_size = bytes_needed.value
        self.arguments = (self.plan, C.byref(self.tensors), C.byref(self.options))

    def run(self):
        self.library.check(self.call(*self.arguments))

    def describe(self):
        info = made(PlanInfo)
        self.library.check(self.library.lib.redblue_plan_describe(self.plan, C.byref(info)))
        return {
            "schedule": info.schedule.decode(),
            "reason": info.reason.decode(),
            "words": info.words_read + info.words_written,
            "bound_words": info.bound_words,
            "ratio": info.ratio if math.isfinite(info.ratio) else None,
            "footprint": info.footprint_words,
            "workspace_bytes": self.options.workspace_size,
        }

    def __del__(self):
        if getattr(self, "plan", None):
            self.library.lib.redblue_plan_destroy(self.plan)
