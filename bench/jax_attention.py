"""Times redblue.jax beside redblue from NumPy and JAX's own attention: fp32, causal, 8 heads, d = 64.

python bench/jax_attention.py N [NAME...]    names: those that it prints
"""

import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import redblue
import redblue.jax


def passes(attention, arrays):
    """Calls of the compiled forward pass, and of it with the gradients."""
    both = jax.jit(jax.value_and_grad(lambda *x: attention(*x).sum(), argnums=(0, 1, 2)))
    forward = jax.jit(attention)
    return lambda: forward(*arrays), lambda: both(*arrays)


def from_numpy(q, k, v):
    o, lse = redblue.attention(q, k, v, causal=True, return_lse=True)
    return redblue.attention_backward(np.ones_like(o), q, k, v, o, lse, causal=True)


def main(n, names):
    arrays = np.random.default_rng(0).standard_normal((3, 1, 8, n, 64), dtype=np.float32)
    heads_first, tokens_first = map(jnp.asarray, arrays), map(jnp.asarray, arrays.swapaxes(2, 3))
    ours = lambda *x: redblue.jax.attention(*x, causal=True)
    theirs = lambda *x: jax.nn.dot_product_attention(*x, is_causal=True)
    q, k, v = heads_first
    calls = {"without jit, forward": lambda: ours(q, k, v), "NumPy, forward": lambda: redblue.attention(*arrays, causal=True)}
    calls["NumPy, both"] = lambda: from_numpy(*arrays)
    calls["redblue.jax, forward"], calls["redblue.jax, both"] = passes(ours, (q, k, v))
    calls["jax.nn, forward"], calls["jax.nn, both"] = passes(theirs, tuple(tokens_first))
    for name in names or calls:
        for _ in range(5):
            jax.block_until_ready(calls[name]())
        times, end = [], time.perf_counter() + 1.5
        while len(times) < 9 or time.perf_counter() < end:
            start = time.perf_counter()
            jax.block_until_ready(calls[name]())
            times.append(time.perf_counter() - start)
        print(f"n = {n}, {name}: {1e3 * statistics.median(times):.3f} ms, median of {len(times)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
