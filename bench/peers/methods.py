#!/usr/bin/env python3
"""Approximate attention on real data: errors against exact attention, and against the packages of others.

    bench/peers/methods.py REDBLUE DATA            the table of docs/algorithms/methods.md
    bench/peers/methods.py REDBLUE DATA --peers    the same inputs through performer-pytorch, linformer, nystrom-attention,
                                                   reformer-pytorch

REDBLUE is the program, DATA the folder with minilm-layer0.safetensors and minilm-layer5.safetensors. Random numbers are
made here a second time, from their description. It needs numpy and safetensors; --peers also torch, einops, and, installed
with --no-deps, performer-pytorch 1.1.4, local-attention, hyper-connections, axial-positional-embedding, linformer 0.2.3,
nystrom-attention 0.0.14, reformer-pytorch 1.4.4, product-key-memory.
"""
import argparse
import pathlib
import subprocess
import tempfile

import numpy as np
from safetensors.numpy import load_file, save_file

LAYERS = ("minilm-layer0", "minilm-layer5")
MASK = 0xFFFFFFFF


def philox(counter, seed):
    """Philox4x32-10 of arrays of counters (..., 4)."""
    x = [counter[..., i].astype(np.uint64) for i in range(4)]
    a, b = seed & MASK, seed >> 32
    for _ in range(10):
        p, q = x[0] * np.uint64(0xD2511F53), x[2] * np.uint64(0xCD9E8D57)
        x = [
            (q >> np.uint64(32)) ^ x[1] ^ np.uint64(a), q & np.uint64(MASK),
            (p >> np.uint64(32)) ^ x[3] ^ np.uint64(b), p & np.uint64(MASK),
        ]  # fmt: skip
        a, b = (a + 0x9E3779B9) & MASK, (b + 0xBB67AE85) & MASK
    return np.stack(x, -1)


def random_features(m, d, seed):
    """Blocks of d orthogonal rows, as long as vectors of d normal numbers."""
    a, t = np.meshgrid(np.arange(m), np.arange(d), indexing="ij")
    words = philox(np.stack([t, a, 0 * a, 0 * a], -1), seed)
    u = (words.astype(np.float64) + 0.5) * 2.0**-32
    normal = np.sqrt(-2 * np.log(u[..., 0::2])) * np.cos(2 * np.pi * u[..., 1::2])
    omega, lengths = normal[..., 0].copy(), np.linalg.norm(normal[..., 1], axis=1)
    for first in range(0, m, d):
        q, r = np.linalg.qr(omega[first : first + d].T)
        omega[first : first + d] = (q * np.sign(np.diag(r))).T
    return omega * lengths[:, None]


def random_signs(rank, n, seed):
    a, j = np.meshgrid(np.arange(rank), np.arange(n), indexing="ij")
    words = philox(np.stack([j, 0 * j, a // 128, 0 * a + 1], -1), seed)
    word = np.take_along_axis(words, (a // 32 % 4)[..., None], -1)[..., 0]
    return np.where((word >> (a % 32).astype(np.uint64)) & np.uint64(1), -1.0, 1.0) / np.sqrt(rank)


def random_normals(rows, d, seed):
    """Independent normal numbers."""
    a, t = np.meshgrid(np.arange(rows), np.arange(d), indexing="ij")
    words = philox(np.stack([t, a, 0 * a, 0 * a + 2], -1), seed)
    u = (words.astype(np.float64) + 0.5) * 2.0**-32
    return np.sqrt(-2 * np.log(u[..., 0])) * np.cos(2 * np.pi * u[..., 1])


def means(rank, n):
    E = np.zeros((rank, n))
    for a in range(rank):
        rows = slice(a * n // rank, (a + 1) * n // rank)
        E[a, rows] = 1 / (rows.stop - rows.start)
    return E


BY_TOKENS = "BigBird, window of 48 tokens"


def big_bird_by_tokens(n, seed, window=48, globals=16, block=32, randoms=3):
    """The mask of the notes' BigBird: a window by tokens, global tokens, random blocks of keys for blocks of queries."""
    i, j = np.arange(n)[:, None], np.arange(n)
    seen = (abs(i - j) <= window) | (i < globals) | (j < globals)
    random = np.random.default_rng(seed)
    for first in range(0, n, block):
        for k in random.choice(n // block, randoms, replace=False):
            seen[first : first + block, k * block : (k + 1) * block] = True
    return seen


def run(redblue, x, method, *options):
    """o of a run in f64, inputs and outputs too."""
    with tempfile.TemporaryDirectory() as folder:
        given, out, mask = (pathlib.Path(folder) / name for name in ("x.safetensors", "o.safetensors", "mask.npy"))
        if method.startswith(BY_TOKENS):
            np.save(mask, big_bird_by_tokens(x["q"].shape[-2], int(method.rsplit("=", 1)[1])))
            method = f"--mask {mask}"
        save_file({name: x[name].astype(np.float64) for name in "qkv"}, given)
        asked = method.split() if method.startswith("--") else ["--approximate", method]
        subprocess.run([redblue, "run", *asked, "--input", given, "--output", out, "--quiet",
                        "--compute-dtype", "f64", "--M", "4000000", *options], check=True)  # fmt: skip
        return load_file(out)["o"]


def unit(q):
    return q / np.linalg.norm(q, axis=-1, keepdims=True)


def exact(x, method=""):
    """Exact attention; for Reformer, with its own keys and a row itself only where there is nothing else."""
    q, k, v = (x[name].astype(np.float64) for name in "qkv")
    own = method.startswith("reformer")
    s = q @ (unit(q) if own else k).swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if own:
        s = np.where(np.eye(q.shape[-2], dtype=bool), -1e5, s)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p @ v / p.sum(-1, keepdims=True)


# method, or the options of a pattern, is it random, the notes' figures (None: they have no such row): Frobenius median of layer 0 and of layer 5, head 2 of layer 0, worst head; largest
# entry, median and worst
TABLE = [
    ("linear", False, (0.483, 0.782, 0.91, 1.16, 0.891, 1.06)),
    ("performer:64", True, (0.728, 0.813, 1.12, 1.57, 0.968, 1.65)),
    ("performer:256", True, (0.630, 0.735, 1.11, 1.28, 0.898, 2.72)),
    ("performer:1024", True, (0.463, 0.672, 1.09, 1.34, 0.895, 2.36)),
    ("linformer:64", False, (0.368, 0.695, 0.80, 0.878, 0.815, 1.11)),
    ("linformer:256", False, (0.246, 0.534, 0.60, 0.635, 0.592, 0.934)),
    ("linformer:256,signs", True, (1.637, 2.826, 1.65, 4.76, 1.909, 5.27)),
    ("nystroem:16", False, (0.380, 0.402, 0.98, 0.981, 0.678, 1.3)),
    ("nystroem:64", False, (0.256, 0.349, 0.94, 0.936, 0.610, 1.1)),
    ("nystroem:128", False, (0.192, 0.297, 1.18, 1.18, 0.505, 5.4)),
    ("nystroem:64,iterations=20", False, (0.490, 0.470, 0.94, 4.44, 0.918, 20.9)),
    ("reformer:rounds=1,chunk=64,buckets=16", True, (0.525, 0.559, 0.41, 0.948, 0.690, 1.93)),
    ("reformer:rounds=4,chunk=64,buckets=16", True, (0.316, 0.318, 0.24, 0.656, 0.472, 1.68)),
    ("reformer:rounds=8,chunk=32,buckets=16", True, (0.451, 0.443, 0.28, 0.749, 0.709, 2.46)),
    ("smyrf:rounds=1,cluster=64", True, (0.777, 1.204, 0.86, 1.95, 1.038, 3.19)),
    ("smyrf:rounds=4,cluster=64", True, (0.378, 0.670, 0.33, 0.932, 0.699, 1.33)),
    ("smyrf:rounds=8,cluster=64", True, (0.281, 0.496, 0.17, 0.641, 0.533, 1.2)),
    ("smyrf:rounds=4,cluster=128", True, (0.294, 0.465, 0.16, 0.616, 0.541, 1.23)),
    ("hyper:block=64,samples=64", True, (0.411, 1.019, 0.82, 1.74, 0.848, 2.95)),
    ("hyper:block=64,samples=256", True, (0.223, 0.645, 0.74, 0.877, 0.669, 1.54)),
    ("hyper:block=128,samples=128", True, (0.302, 0.744, 0.67, 1.46, 0.727, 2.15)),
    ("--window 32,32 --globals 1", False, (0.578, 1.033, 0.48, 1.3, 0.921, 1.86)),
    ("--window 64,64 --globals 16", False, (0.413, 0.780, 0.44, 0.933, 0.690, 1.4)),
    ("--big-bird 32,1,1,3", True, None),
    ("--big-bird 16,3,1,3", True, None),
    (BY_TOKENS, True, (0.340, 0.635, 0.43, 0.768, 0.571, 1.39)),
    ("2:12,centred,no-exact-rows", False, (0.438, 0.725, 0.86, 0.975, 0.853, 1.06)),
    ("4:12,centred,no-exact-rows", False, (0.281, 0.620, 0.79, 0.791, 0.781, 1.02)),
    ("2:3,centred,exact-keys=16", False, (0.000, 0.000, 0.00, 0.0131, 0.000, 0.0588)),
    ("2:6,centred,exact-keys=64", False, (0.132, 0.164, 0.00, 0.428, 0.257, 0.459)),
    ("sample:64", True, (0.476, 1.143, 1.07, 1.9, 0.833, 2.36)),
    ("sample:256", True, (0.175, 0.579, 0.73, 0.739, 0.469, 1.69)),
    ("2:27,gaussian,no-exact-rows", False, (0.120, 0.400, 11.65, 11.7, 0.580, 16.5)),
    ("4:27,gaussian,no-exact-rows", False, (0.025, 0.472, 0.97, 28.9, 0.592, 272)),
    ("2:0.75,gaussian", False, (0.012, 0.000, 0.00, 0.0533, 0.015, 0.173)),
    ("2:1,gaussian", False, (0.046, 0.051, 0.00, 0.209, 0.117, 0.272)),
    ("2:1.5,gaussian", False, (0.076, 0.282, 0.00, 0.815, 0.348, 0.848)),
    ("2:1.5,gaussian,cluster=64,no-exact-rows", True, None),
    ("2:1.5,gaussian,cluster=128,no-exact-rows", True, None),
    ("2:1.5,gaussian,cluster=64", True, None),
    ("coreset:block=128,rank=8", True, (0.890, 0.926, 1.23, 1.73, 0.748, 1.71)),
    ("coreset:block=128,rank=32", True, (0.242, 0.191, 0.96, 0.963, 0.202, 1.53)),
    ("coreset:block=128,rank=32,tau=balanced", True, (0.164, 0.136, 0.95, 0.961, 0.154, 1.54)),
    ("coreset:block=128,rank=64,tau=balanced", True, (0.051, 0.027, 0.72, 0.727, 0.049, 1.52)),
    ("coreset:block=512,rank=128,tau=balanced", True, (0.110, 0.092, 0.87, 0.87, 0.142, 1.34)),
    ("coreset:block=64,rank=32,carried", True, (1.046, 0.926, 1.20, 1.64, 0.729, 1.62)),
    ("coreset:block=64,rank=64,carried", True, (0.566, 0.453, 1.05, 1.29, 0.367, 1.54)),
    ("coreset:block=64,rank=64,tau=balanced,carried", True, (0.413, 0.344, 1.06, 1.31, 0.304, 1.54)),
    ("coreset:block=128,rank=128,carried", True, (0.214, 0.090, 0.87, 0.922, 0.183, 1.52)),
    ("coreset:block=128,rank=128,tau=balanced,carried", True, (0.128, 0.066, 0.87, 0.918, 0.139, 1.52)),
]


def resampled(values, of, draws=3, rounds=2000):
    """Of `draws` draws for each head, chosen anew many times: where 5 % and 95 % of of(..) lie. values: draw, head."""
    random = np.random.default_rng(1)
    some = random.integers(len(values), size=(rounds, draws, values.shape[1]))
    return np.quantile([of(np.take_along_axis(values, one, 0)) for one in some], (0.05, 0.95))


def table(redblue, data, draws, only):
    columns = ("L0", "L5", "L0h2", "worst", "max", "max worst")
    print("| method | " + " | ".join(f"{c}: here / notes" for c in columns) + " |")
    for method, is_random, notes in TABLE:
        if only not in method:
            continue
        frobenius, largest = [], []
        for layer in LAYERS:
            x = load_file(data / f"{layer}.safetensors")
            o = exact(x, method)[0]
            each_f, each_m = [], []
            for seed in range(draws if is_random else 1):
                seeded = f"{method} --pattern-seed {seed}" if method.startswith("--") else f"{method},seed={seed}"
                gap = run(redblue, x, seeded if is_random else method)[0] - o
                each_f.append(np.linalg.norm(gap, axis=(1, 2)) / np.linalg.norm(o, axis=(1, 2)))
                each_m.append(np.abs(gap).max((1, 2)) / np.abs(o).max((1, 2)))
            frobenius.append(np.array(each_f))
            largest.append(np.array(each_m))
        f, m = np.concatenate(frobenius, 1), np.concatenate(largest, 1)  # draw, head of both layers
        figures = (
            (frobenius[0], np.median), (frobenius[1], np.median), (f[:, 2:3], np.mean), (f, np.max), (m, np.median), (m, np.max)
        )  # fmt: skip
        cells = []
        for (values, of), theirs in zip(figures, notes or [None] * 6):
            here = f"{of(values):.3f}"
            if is_random:
                here += " ({:.3f} .. {:.3f})".format(*resampled(values, of))
            cells.append(f"{here} / {'-' if theirs is None else f'{theirs:.3f}'}")
        print(f"| {method} | " + " | ".join(cells) + " |", flush=True)


def peers(redblue, data):
    import torch
    from linformer import LinformerSelfAttention
    from nystrom_attention import NystromAttention
    from performer_pytorch.performer_pytorch import linear_attention, softmax_kernel

    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    x = load_file(data / "minilm-layer5.safetensors")
    q, k, v = (torch.from_numpy(x[name].astype(np.float64)) for name in "qkv")
    n, d = q.shape[-2:]

    def compare(name, method, theirs):
        gap = np.abs(run(redblue, x, method) - theirs.numpy()).max() / np.abs(theirs.numpy()).max()
        print(f"{name:<40} {method:<32} largest difference / largest entry {gap:.2e}")

    for m, seed in ((64, 0), (256, 7)):
        omega = torch.from_numpy(random_features(m, d, seed))
        kernel = {"projection_matrix": omega, "device": q.device, "eps": 0}
        theirs = linear_attention(softmax_kernel(q, is_query=True, **kernel), softmax_kernel(k, is_query=False, **kernel), v)
        compare("performer-pytorch, eps 0", f"performer:{m},seed={seed}", theirs)
        kernel["eps"] = 1e-4
        theirs = linear_attention(softmax_kernel(q, is_query=True, **kernel), softmax_kernel(k, is_query=False, **kernel), v)
        compare("performer-pytorch, its eps of 1e-4", f"performer:{m},seed={seed}", theirs)
    elu = torch.nn.functional.elu
    compare("linear_attention of performer-pytorch", "linear", linear_attention(elu(q) + 1, elu(k) + 1, v))

    for method, E in (("linformer:64", means(64, n)), ("linformer:256,signs,seed=7", random_signs(256, n, 7))):
        layer = LinformerSelfAttention(dim=d, seq_len=n, k=len(E), heads=1, dim_head=d, share_kv=False)
        layer.proj_k.copy_(torch.from_numpy(E.T)), layer.proj_v.copy_(torch.from_numpy(E.T))
        eye = torch.eye(d)
        heads = []
        for h in range(q.shape[1]):  # its keys and values are projections of one context: give each its own
            layer.to_q.weight.copy_(eye), layer.to_out.weight.copy_(eye), layer.to_out.bias.zero_()
            layer.to_k, layer.to_v = (torch.nn.Linear(2 * d, d, bias=False) for _ in range(2))
            layer.to_k.weight.copy_(torch.cat([eye, 0 * eye], 1)), layer.to_v.weight.copy_(torch.cat([0 * eye, eye], 1))
            heads.append(layer(q[:, h], context=torch.cat([k[:, h], v[:, h]], -1)))
        compare("linformer", method, torch.stack(heads, 1))

    for L, iterations in ((64, 6), (64, 20), (16, 6)):
        layer = NystromAttention(3 * d, dim_head=d, heads=1, num_landmarks=L, pinv_iterations=iterations, residual=False)
        layer.to_qkv.weight.copy_(torch.eye(3 * d))
        layer.to_out[0].weight.copy_(torch.cat([torch.eye(d), torch.zeros(2 * d, d)]))
        layer.to_out[0].bias.zero_()
        layer.eval()
        heads = [layer(torch.cat([q[:, h], k[:, h], v[:, h]], -1))[..., :d] for h in range(q.shape[1])]
        compare("nystrom-attention", f"nystroem:{L},iterations={iterations}", torch.stack(heads, 1))


    reformer_peers(redblue, x)


def reformer_peers(redblue, x):
    """reformer-pytorch on the same rotations, which are made in place of its random ones."""
    import torch
    from reformer_pytorch import LSHAttention

    q, v = (torch.from_numpy(x[name].astype(np.float64)) for name in "qv")
    heads, n, d = q.shape[1:]
    for rounds, seed, causal in ((1, 0, False), (1, 7, True), (4, 0, False)):
        chunk, buckets = n // 16, 16
        method = f"reformer:rounds={rounds},chunk={chunk},buckets={buckets},seed={seed}"
        rotations = random_normals(rounds * buckets // 2, d, seed).reshape(rounds, buckets // 2, d)
        layer = LSHAttention(bucket_size=chunk, n_hashes=rounds, causal=causal, dropout=0.0)
        made = torch.from_numpy(rotations.transpose(2, 0, 1).copy())[None]  # 1, d, rounds, buckets/2
        drawn, torch.randn = torch.randn, lambda shape, **kw: made.reshape(shape)
        try:
            theirs, _, hashes = layer(q[0], v[0])
        finally:
            torch.randn = drawn
        theirs = theirs.numpy()[None]
        # Its first chunk of a round looks at the last one of the round before, also where it is causal: leave out its rows.
        keep = np.ones((1, heads, n), bool)
        for r in range(rounds if rounds > 1 or causal else 0):
            ids = hashes.numpy().reshape(heads, rounds, n)[:, r]
            order = np.argsort(ids, axis=-1, kind="stable")[:, :chunk]
            np.put_along_axis(keep[0], order, False, -1)
        ours = run(redblue, x, method, *(["--causal"] if causal else []))
        gap = np.abs(ours - theirs)[keep].max() / np.abs(theirs[keep]).max()
        name = "reformer-pytorch" + (", causal" if causal else "") + (f", {keep.mean():.0%} of rows" if not keep.all() else "")
        print(f"{name:<40} {method:<32} largest difference / largest entry {gap:.2e}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("redblue", type=pathlib.Path)
    p.add_argument("data", type=pathlib.Path)
    p.add_argument("--peers", action="store_true", help="compare with the packages of others")
    p.add_argument("--only", default="", help="methods whose text has this in it")
    p.add_argument("--draws", type=int, default=30,
                   help="seeds of random methods, from 0 on; in brackets: what 3 draws for each head give, 5 %% to 95 %%")  # fmt: skip
    args = p.parse_args()
    if args.peers:
        peers(args.redblue.resolve(), args.data)
    else:
        table(args.redblue.resolve(), args.data, args.draws, args.only)


if __name__ == "__main__":
    main()
