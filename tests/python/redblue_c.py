"""redblue.h through ctypes: the structs, with the defaults of their macros, and calls that raise what redblue says.

The library is that of the environment variable REDBLUE_C_LIBRARY, or load() sets LIB. bench/peers uses this file, too.
"""

import ctypes as c
import os

import numpy as np

LIBRARY = os.environ.get("REDBLUE_C_LIBRARY")
FORWARD, BACKWARD, SCORES, WEIGHTS = range(4)
INVALID_ARGUMENT, UNSUPPORTED, FAST_MEMORY_TOO_SMALL, NOT_ENOUGH_MEMORY, INTERNAL_ERROR = range(1, 6)
F64, F32, F16, BF16 = range(4)
MINIMISE_WORDS, MINIMISE_TIME = range(2)


class Struct(c.Structure):
    """Sets struct_size, and fields by name."""

    def __init__(self, **fields):
        super().__init__(**{"struct_size": c.sizeof(type(self)), **fields})


class Problem(Struct):
    _fields_ = [
        ("struct_size", c.c_size_t), ("operation", c.c_int32), ("causal", c.c_int32), ("batch", c.c_int64),
        ("heads", c.c_int64), ("kv_heads", c.c_int64), ("n_q", c.c_int64), ("n_k", c.c_int64), ("d", c.c_int64),
        ("d_v", c.c_int64), ("causal_offset", c.c_int64), ("scale", c.c_double), ("has_causal_offset", c.c_int32),
        ("has_scale", c.c_int32), ("lse_required", c.c_int32), ("forward_missing", c.c_int32),
        ("window_left", c.c_int64), ("window_right", c.c_int64), ("prefix", c.c_int64), ("has_window_left", c.c_int32),
        ("has_window_right", c.c_int32), ("softcap", c.c_double), ("bias_shape", c.c_int64 * 4),
        ("dropout", c.c_double), ("seed", c.c_int64), ("has_bias", c.c_int32), ("alibi", c.c_int32),
        ("sinks", c.c_int32), ("bias_gradient", c.c_int32), ("sinks_gradient", c.c_int32), ("sequences", c.c_int64),
        ("cu_seqlens_q", c.POINTER(c.c_int64)), ("cu_seqlens_k", c.POINTER(c.c_int64)),
        ("seqused_q", c.POINTER(c.c_int64)), ("seqused_k", c.POINTER(c.c_int64)),
        ("patterns", c.POINTER(c.c_void_p)), ("n_patterns", c.c_int64), ("order", c.c_int32),
        ("approximate_degree", c.c_int64), ("approximate_range", c.c_double), ("approximate", c.c_char_p),
    ]  # fmt: skip

    def __init__(self, **fields):
        super().__init__(**{"batch": 1, "heads": 1, **fields})


class PlanOptions(Struct):
    _fields_ = [
        ("struct_size", c.c_size_t), ("fast_memory_words", c.c_int64), ("schedule", c.c_char_p),
        ("objective", c.c_int32), ("compute", c.c_int32), ("dtype", c.c_int32), ("threads", c.c_int32),
        ("max_workspace", c.c_size_t),
        ("hardware_file", c.c_char_p),
    ]  # fmt: skip

    def __init__(self, **fields):
        super().__init__(**{"compute": F32, "dtype": F32, **fields})


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int32), ("strides", c.c_int64 * 4)]


def tensors_struct(names):
    return type("Tensors", (Struct,), {"_fields_": [("struct_size", c.c_size_t), *((n, Tensor) for n in names)]})


MODIFIERS = ["bias", "slopes", "sinks"]
ForwardTensors = tensors_struct(["q", "k", "v", "o", "lse", *MODIFIERS])
BackwardTensors = tensors_struct(["q", "k", "v", "o", "lse", "d_o", "dq", "dk", "dv", *MODIFIERS, "dbias", "dsinks"])
ScoresTensors = tensors_struct(["q", "k", "lse", "s", "bias", "slopes"])

TASK = c.CFUNCTYPE(None, c.c_void_p, c.c_int)
POOL_SIZE = c.CFUNCTYPE(c.c_int, c.c_void_p)
POOL_RUN = c.CFUNCTYPE(None, c.c_void_p, c.c_int, TASK, c.c_void_p)


class ThreadPool(Struct):
    _fields_ = [("struct_size", c.c_size_t), ("context", c.c_void_p), ("size", POOL_SIZE), ("run", POOL_RUN)]


class RunOptions(Struct):
    _fields_ = [
        ("struct_size", c.c_size_t), ("threads", c.c_int32), ("pool", c.POINTER(ThreadPool)),
        ("workspace", c.c_void_p), ("workspace_size", c.c_size_t),
    ]  # fmt: skip


class PlanInfo(Struct):
    _fields_ = [
        ("struct_size", c.c_size_t), ("schedule", c.c_char_p), ("forward_schedule", c.c_char_p),
        ("reason", c.c_char_p), ("bound_theorem", c.c_char_p), ("words_read", c.c_int64), ("words_written", c.c_int64),
        ("bound_words", c.c_int64), ("footprint_words", c.c_int64), ("flops", c.c_int64), ("ratio", c.c_double),
    ]  # fmt: skip


def load(path):
    lib = c.CDLL(path)
    for name in ["version", "last_error", "status_string"]:
        getattr(lib, f"redblue_{name}").restype = c.c_char_p
    lib.redblue_plan_create.argtypes = [c.POINTER(Problem), c.POINTER(PlanOptions), c.POINTER(c.c_void_p)]
    lib.redblue_plan_destroy.argtypes = [c.c_void_p]
    lib.redblue_plan_destroy.restype = None
    lib.redblue_plan_describe.argtypes = [c.c_void_p, c.POINTER(PlanInfo)]
    lib.redblue_pattern_blocks.argtypes = [*[c.c_int64] * 4, c.c_void_p, c.POINTER(c.c_void_p)]
    lib.redblue_pattern_destroy.argtypes = [c.c_void_p]
    lib.redblue_pattern_destroy.restype = None
    for name, tensors in [("forward", ForwardTensors), ("backward", BackwardTensors), ("scores", ScoresTensors)]:
        getattr(lib, f"redblue_{name}").argtypes = [c.c_void_p, c.POINTER(tensors), c.POINTER(RunOptions)]
        getattr(lib, f"redblue_{name}_workspace").argtypes = [
            c.c_void_p, c.POINTER(tensors), c.POINTER(RunOptions), c.POINTER(c.c_size_t),
        ]  # fmt: skip
    return lib


LIB = load(LIBRARY) if LIBRARY else None


class RedblueError(RuntimeError):
    def __init__(self, status):
        self.status = status
        super().__init__(LIB.redblue_last_error().decode())


def checked(status):
    if status != 0:
        raise RedblueError(status)


class Plan:
    def __init__(self, problem, options):
        self.handle = c.c_void_p()
        checked(LIB.redblue_plan_create(problem, options, self.handle))
        self.call = ["forward", "backward", "scores", "scores"][problem.operation]

    def __del__(self):
        LIB.redblue_plan_destroy(self.handle)

    def info(self):
        info = PlanInfo()
        checked(LIB.redblue_plan_describe(self.handle, info))
        return info

    def workspace(self, tensors=None, options=None):
        size = c.c_size_t()
        checked(getattr(LIB, f"redblue_{self.call}_workspace")(self.handle, tensors, options, size))
        return size.value

    def run(self, tensors, options=None):
        checked(getattr(LIB, f"redblue_{self.call}")(self.handle, tensors, options))


def tensor(array):
    """A view of an array of four dimensions. bf16 is uint16."""
    dtype = {"float64": F64, "float32": F32, "float16": F16, "uint16": BF16}[array.dtype.name]
    strides = [s // array.itemsize for s in array.strides]
    return Tensor(array.ctypes.data, dtype, (c.c_int64 * 4)(*strides))


def to_bf16(x):
    """Rounds to nearest even."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def numbers(array):
    """In fp64, bf16 too."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)
