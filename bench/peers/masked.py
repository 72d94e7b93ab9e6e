"""redblue under masks: what bench/peers/masks.py measures and races."""

import ctypes as C

import numpy as np
from runners import rb


def mixed_lengths(n):
    """Ends of packed sequences, from n / 64 to n / 4 long."""
    random, lengths = np.random.default_rng(7), []
    while sum(lengths) < n:
        lengths.append(min(int(random.integers(n // 64, n // 4)), n - sum(lengths)))
    return np.cumsum([0, *lengths])


def packed(ends):
    """The fields of a problem whose queries and keys are packed sequences with these ends."""
    return {"sequences": len(ends) - 1, "cu_seqlens_q": (C.c_int64 * len(ends))(*ends)}


def window(left, right=None, **fields):
    if right is not None:
        fields |= {"has_window_right": 1, "window_right": right}
    return {"has_window_left": 1, "window_left": left, **fields}


def drawn_blocks(rows, percent):
    """Booleans [rows, rows]: the diagonal, and this share of the other blocks."""
    seen = np.random.default_rng(percent).random((rows, rows)) < percent / 100
    np.fill_diagonal(seen, True)
    return seen


class Redblue:
    """A run with its plan and workspace at hand. arrays, outputs: by name, [heads, rows, d]."""

    def __init__(self, op, arrays, outputs, threads, problem=(), blocks=None, block=64, slopes=None):
        """problem: fields of redblue_problem. blocks: booleans for blocks of `block` queries and keys."""
        heads, n_q, d = arrays["q"].shape
        n_k, fields = arrays["k"].shape[1], dict(problem)
        if blocks is not None:
            self.pattern, seen = (C.c_void_p * 1)(), np.ascontiguousarray(blocks, np.uint8)
            rb.checked(rb.LIB.redblue_pattern_blocks(n_q, n_k, block, block, seen.ctypes.data, self.pattern))
            fields |= {"patterns": self.pattern, "n_patterns": 1}
        self.plan = rb.Plan(rb.Problem(operation=op, heads=heads, n_q=n_q, n_k=n_k, d=d, **fields),
                            rb.PlanOptions(threads=threads, objective=rb.MINIMISE_TIME))  # fmt: skip
        named = {k: rb.tensor(x[None]) for k, x in {**arrays, **outputs}.items()}
        if slopes is not None:
            named["slopes"] = rb.tensor(slopes[None, :, None, None])
        self.tensors = (rb.BackwardTensors if op == rb.BACKWARD else rb.ForwardTensors)(**named)
        self.options = rb.RunOptions(threads=threads)
        self.options.workspace_size = self.plan.workspace(self.tensors, self.options)
        self.workspace = C.create_string_buffer(self.options.workspace_size)
        self.options.workspace = C.addressof(self.workspace)
        self.keep = (arrays, outputs, problem)

    def __call__(self):
        self.plan.run(self.tensors, self.options)
