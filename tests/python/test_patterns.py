"""Masks that are no interval: which pairs each option shows, the exact words of every plan, and the numbers of runs,
against numpy. The counts here walk boolean matrices as the theory notes 2g say (sF1, sF2, sB, sE4, sE5, sE6), and share
nothing with the program.
"""

import json
import os
import re
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from dense import Attention, at
from program import SEED, answer, needs_program, redblue, refused, solved
from reference.cuts import cuts, key_blocks, row_blocks, row_blocks_of_intervals

pytestmark = needs_program

# Which pairs a pattern has


def window(p, n_k, left, right, step=1):
    distance = np.arange(n_k) - p
    far = np.full_like(distance, np.iinfo(np.int64).max)
    low, high = (-far if left < 0 else -left * step), (far if right < 0 else right * step)
    return (distance % step == 0) & (low <= distance) & (distance <= high)


def longformer(p, n_k, left, right, globals_, step=1):
    return window(p, n_k, left, right, step) | (np.arange(n_k) < globals_) | ((0 <= p) & (p < globals_))


def strided(p, n_k, stride):
    back = p - np.arange(n_k)
    return (back >= 0) & ((back < stride) | (back % stride == 0))


def fixed(p, n_k, stride, summary):
    j = np.arange(n_k)
    return (j <= p) & ((j // stride == p // stride) | (j % stride >= stride - summary))


def big_bird_certain(p, n_k, block, side, globals_):
    """Without the random blocks."""
    J, I = np.arange(n_k) // block, p // block
    return (abs(J - I) <= side) | (J < globals_) | ((0 <= I) & (I < globals_))


def of_blocks(n_q, n_k, blocks, rows, cols):
    return np.kron(blocks, np.ones((rows, cols), bool))[:n_q, :n_k]


def save_sparse(path, pairs, index="<i4", block=None, compressed=True, **instead):
    """What scipy.sparse.save_npz writes of a csr matrix, or of a bsr matrix with such blocks."""
    rows, cols = block or (1, 1)
    met = pairs.reshape(pairs.shape[0] // rows, rows, pairs.shape[1] // cols, cols).any((1, 3))
    indices = [np.flatnonzero(row) for row in met]
    parts = {
        "format": np.array("bsr" if block else "csr").astype("S" if compressed else "U"),
        "shape": np.array(pairs.shape),
        "indptr": np.cumsum([0, *map(len, indices)]).astype(index),
        "indices": np.concatenate(indices).astype(index),
    }
    count = len(parts["indices"])
    parts["data"] = np.ones((count, rows, cols) if block else count)
    (np.savez_compressed if compressed else np.savez)(path, **{**parts, **instead})
    return path


def shown(tmp_path, n_q, n_k, *options, batch=1, heads=1):
    """The pairs that the program shows: where all scores are 0, each output is the mean of the values seen."""
    x = {
        "q": np.zeros((batch, heads, n_q, 1)),
        "k": np.zeros((batch, heads, n_k, 1)),
        "v": np.broadcast_to(np.eye(n_k), (batch, heads, n_k, n_k)),
    }
    o = solved(tmp_path, x, "--layout", "bhnd", "--M", 100000, "--schedule", "flash", *options)[0]["o"]
    many = (o > 0).sum(-1, keepdims=True)
    np.testing.assert_allclose(o[o > 0], np.broadcast_to(1 / np.maximum(many, 1), o.shape)[o > 0], rtol=1e-6)
    return o > 0


def between(rng):
    """Numbers of queries and keys, an offset, and its option."""
    n_q, n_k = int(rng.integers(1, 20)), int(rng.integers(1, 20))
    if rng.random() < 0.5:
        n_k = n_q
    offset = None if rng.random() < 0.6 else int(rng.integers(0, 6))
    return n_q, n_k, offset, [] if offset is None else ["--causal-offset", offset]


@pytest.mark.parametrize("index", range(8), ids=lambda i: f"seed={SEED}-{i}")
def test_several_patterns_show_what_all_of_them_show(tmp_path, index):
    """Masks per head, blocks, CSR and rules together, and --window with them."""
    rng = np.random.default_rng([SEED, index, 77])
    n_q, n_k, heads = int(rng.integers(2, 20)), int(rng.integers(2, 20)), 3
    p = at(n_q, n_k)
    mask = rng.random((heads if index % 2 else 1, n_q, n_k)) < 0.8
    blocks = rng.random((-(-n_q // 2), -(-n_k // 3))) < 0.7
    pairs = rng.random((n_q, n_k)) < 0.8
    np.save(tmp_path / "mask.npy", mask)
    np.save(tmp_path / "blocks.npy", blocks)
    given = [
        (["--mask", tmp_path / "mask.npy"], mask),
        (["--blocks", tmp_path / "blocks.npy", "--block", "2,3"], of_blocks(n_q, n_k, blocks, 2, 3)),
        (["--csr", save_sparse(tmp_path / "s.npz", pairs)], pairs),
        (["--strided", 3], strided(p, n_k, 3)),
        (["--fixed", "4,1"], fixed(p, n_k, 4, 1)),
        (["--big-bird", "2,1,1,0"], big_bird_certain(p, n_k, 2, 1, 1)),
        (["--window", "3,2", "--globals", 1], longformer(p, n_k, 3, 2, 1)),
    ]
    chosen = [given[0], *(given[i] for i in rng.choice(np.arange(1, 7), int(rng.integers(1, 4)), replace=False))]
    want = np.ones((heads, n_q, n_k), bool)
    options = []
    for option, pairs_of in chosen:
        options += option
        want = want & pairs_of
    seen = shown(tmp_path, n_q, n_k, *options, heads=heads)[0]
    np.testing.assert_array_equal(seen, want)


@pytest.mark.parametrize("index", range(6), ids=lambda i: f"seed={SEED}-{i}")
def test_random_blocks_of_big_bird(tmp_path, index):
    """As many as asked for of those that are not there already, whole, the same for a seed."""
    rng = np.random.default_rng([SEED, index])
    block, side, first, randoms = (int(x) for x in rng.integers([1, 0, 0, 1], [5, 2, 3, 4]))
    n_q, n_k, offset, options = between(rng)
    n_q, n_k = 2 * n_q, 2 * n_k
    options += ["--big-bird", f"{block},{side},{first},{randoms}"]
    p = at(n_q, n_k, offset)
    certain = big_bird_certain(p, n_k, block, side, first)
    several = [shown(tmp_path, n_q, n_k, *options, "--pattern-seed", seed)[0, 0] for seed in (0, 0, 1, 2, 3)]
    np.testing.assert_array_equal(several[0], several[1])
    np.testing.assert_array_equal(several[0], shown(tmp_path, n_q, n_k, *options)[0, 0])
    number = -(-n_k // block)
    choices = 0
    for seen in several:
        assert seen[certain].all()
        for I in np.unique(p // block):
            rows = p[:, 0] // block == I
            assert (seen[rows] == seen[rows][0]).all()
            of_block = lambda line: [line[J * block : (J + 1) * block] for J in range(number)]
            have = [part.any() for part in of_block(certain[rows][0])]
            got = [part.any() for part in of_block(seen[rows][0])]
            assert all(part.all() or not part.any() for part in of_block(seen[rows][0]))
            assert sum(got) == min(number, sum(have) + randoms), (I, options)
            choices += 0 < number - sum(got)
    if choices > 20:
        assert any((several[0] != other).any() for other in several[2:])


# What a schedule moves, block by block


class Tally:
    """Words by array, and the most that are resident at a time; the same of a list of the pairs, apart."""

    def __init__(self):
        self.reads, self.writes, self.peak = Counter(), Counter(), 0
        self.index_reads = self.index_peak = 0

    def read(self, **words):
        self.reads.update(words)

    def write(self, **words):
        self.writes.update(words)

    def hold(self, words):
        self.peak = max(self.peak, words)

    def look(self, words, resident=0):
        self.index_reads += int(words)
        self.index_peak = max(self.index_peak, int(resident))

    def words(self):
        arrays = {a for a, n in (*self.reads.items(), *self.writes.items()) if n}
        return {a: {"reads": int(self.reads[a]), "writes": int(self.writes[a])} for a in arrays}


def listing(t, I, one=False):
    """The list of a block passes: how many keys it has, and of each key its number, how many rows see it, and which. The
    rows stay while the key does; or one of them at a time."""
    t.look(1)
    for j in np.flatnonzero(I.any(0)):
        rows = np.flatnonzero(I[:, j])
        t.look(2 + len(rows), 1 if one else len(rows))


def columns(width, b):
    return [min(b, width - c) for c in range(0, width, b)]


def met(E, axis):
    return int(E.any(axis).sum())


def flash(t, E, d, v, Br, Bc, w=None):
    for w in columns(v, w or v):
        for I in row_blocks(E, Br):
            n, U = len(I), met(I, 0)
            t.read(Q=n * d, K=U * d, V=U * w)
            t.write(O=n * w)
            listing(t, I)
            t.hold(n * (d + w + 2 + min(Bc, E.shape[1])) + (U > 0))
    t.write(lse=len(E))


def flash_pinned(t, E, d, v, Br, rho, Bc, cut=row_blocks):
    rho = min(rho, E.shape[1])
    pinned = met(E[:, :rho], 0)
    t.read(K=pinned * d, V=pinned * v)
    for I in cut(E, Br):
        n, U = len(I), met(I[:, rho:], 0)
        t.read(Q=n * d, K=U * d, V=U * v)
        t.write(O=n * v)
        listing(t, I)
        t.hold(rho * (d + v) + n * (d + v + 2 + min(Bc, E.shape[1])) + (U > 0))
    t.write(lse=len(E))


def intervals(E):
    """The first key of each row and the one after its last, where each row sees one run of keys, neither end ever goes
    back, neighbours share a key and every key is seen; else None."""
    if not E.any(1).all() or not E.any(0).all():
        return None
    begin, end = E.argmax(1), E.shape[1] - E[:, ::-1].argmax(1)
    one_run = (E.sum(1) == end - begin).all()
    on = (np.diff(begin) >= 0).all() and (np.diff(end) >= 0).all() and (begin[1:] < end[:-1]).all()
    return (begin, end) if one_run and on else None


def flash_pinned_of_intervals(t, E, d, v, Br, rho, Bc):
    """Where some row does not see the first key, the last rho keys of a block stay for the next one."""
    begin, end = intervals(E)
    if not begin.any():
        return flash_pinned(t, E, d, v, Br, rho, Bc, row_blocks_of_intervals)
    rows = [(max(0, last - Br), last) for last in range(len(E), 0, -Br)][::-1]
    blocks = [(begin[first], end[last - 1]) for first, last in rows]
    rho = min(rho, max(e - b for b, e in blocks))
    shared = [max(0, one[1] - other[0]) for one, other in zip(blocks, blocks[1:])]
    visits = E.shape[1] + sum(max(0, keys - rho) for keys in shared)
    new = [e - max(b, before) for (b, e), before in zip(blocks, [0, *(one[1] for one in blocks)])]
    whole = [keys for keys, (first, last) in zip(new, rows) if last - first == min(Br, len(E))]
    t.read(Q=len(E) * d, K=visits * d, V=visits * v)
    t.write(O=len(E) * v, lse=len(E))
    streams = max([0, *shared, *whole]) > rho
    t.hold(rho * (d + v) + min(Br, len(E)) * (d + v + 2 + min(Bc, E.shape[1])) + streams)
    for I in row_blocks_of_intervals(E, Br):
        listing(t, I)


def tiles(I, room):
    """Keys, as they come, while the pairs of a tile and its rows, or its keys, fit; (pairs, rows, keys) of each."""
    found, tile = [], []
    for j in np.flatnonzero(I.any(0)):
        wider = I[:, [*tile, j]]
        if tile and wider.sum() + min(met(wider, 1), wider.shape[1]) > room:
            found.append(tile)
            tile = []
        tile = [*tile, j]
    if tile:
        found.append(tile)
    return [(int(I[:, keys].sum()), met(I[:, keys], 1), len(keys)) for keys in found]


def sddmm(t, E, w, form, A, B, each_row=None, statistics=0):
    """In tiles, or in panels of rows or keys that stay while the others pass."""
    if form["panel"] == 1:
        for I in row_blocks(E, form["a"]):
            n, U = len(I), met(I, 0)
            t.read(**{A: n * w}), t.read(**{B: U * w})
            if each_row:
                t.read(**{each_row: n})
            t.hold(n * (w + statistics + bool(each_row)) + int(I.sum(0).max()) + 1)
            listing(t, I)
    elif form["panel"] == 2:
        for J in key_blocks(E, form["b"]):
            n, R = J.shape[1], met(J, 1)
            t.read(**{A: R * w}), t.read(**{B: n * w})
            t.read(**{each_row: R})
            t.hold(n * w + int(J.sum(1).max()) + 1)
            listing(t, J.T)
    else:
        tiled(t, E, w, form["a"], form["room"], A, B, each_row, statistics)


def tiled(t, E, w, a, room, A, B, each_row, statistics):
    for I in row_blocks(E, a):
        t.hold(statistics * len(I))
        for e, r, c in tiles(I, room):
            t.read(**{A: r * w}), t.read(**{B: c * w})
            if each_row:
                t.read(**{each_row: r})
            t.hold(statistics * len(I) + e + min(r, c) + 1)
            lists = [2, r, 2 * c, e]  # r and c, rows, (key, count), a row for each pair: all of it, for every term
            t.look(sum(lists), sum(lists))


def spmm(t, E, w, b1, b2, Z, X, statistics=0):
    """E in rows of the product; each of its blocks is formed in groups of columns."""
    for G in E:
        for c in columns(w, b2):
            t.read(**{Z: int(G.sum())}), t.read(**{X: met(G, 0) * c})
            t.hold(len(G) * (c + statistics) + (min(len(G), c) + 1 if G.any() else 0))
            listing(t, G, one=len(G) > c)  # then pairs stream, and the row of X stays


def transposed(E, b):
    return [J.T for J in key_blocks(E, b)]


def sparse_forward(t, E, d, v, a2, c2, **form):
    sddmm(t, E, d, form, "Q", "K", statistics=2)
    spmm(t, row_blocks(E, a2), v, a2, c2, "S", "V", statistics=0)
    for G in row_blocks(E, a2):  # the same beside lse and the sums of the exponentials
        for c in columns(v, c2):
            t.hold(len(G) * (c + 2) + (min(len(G), c) + 1 if G.any() else 0))
    t.read(lse=len(E))
    t.write(S=int(E.sum()), lse=len(E), O=len(E) * v)


def two_pass(t, E, d, v, Br, bc, Bc, br):
    for I in row_blocks(E, Br):
        n, U = len(I), met(I, 0)
        t.read(Q=n * d, dO=n * v, O=n * v, lse=n, K=U * d, V=U * v)
        t.write(D=n, dQ=n * d)
        listing(t, I)
        step = min(bc, E.shape[1])
        t.hold(n * (2 * d + v + 2 + 2 * step) + max(1, min(step, U) * d + 1 if U else 0))
    key_pass(t, E, d, v, Bc, br)


def key_pass(t, E, d, v, Bc, br):
    for J in key_blocks(E, Bc):
        n, R = J.shape[1], met(J, 1)
        t.read(K=n * d, V=n * v, Q=R * d, dO=R * v, lse=R, D=R)
        t.write(dK=n * d, dV=n * v)
        listing(t, J.T)
        step = min(br, R)
        t.hold(n * (2 * d + 2 * v + 2 * step) + (step * (d + 2) + 1 if R else 0))


def dots(t, E, v):
    t.read(dO=len(E) * v, O=len(E) * v)
    t.write(D=len(E))
    t.hold(3)


def fused_key_outer(t, E, d, v, Bc, br):
    dots(t, E, v)
    key_pass(t, E, d, v, Bc, br)
    has_dQ = ~E.any(1)  # rows without keys are written first
    t.write(dQ=int(has_dQ.sum()) * d)
    for J in key_blocks(E, Bc):
        seeing = J.any(1)
        t.read(dQ=int((seeing & has_dQ).sum()) * d)
        t.write(dQ=int(seeing.sum()) * d)
        has_dQ = has_dQ | seeing


def grouped_key_outer(t, E, d, v, Bc, br, G):
    dots(t, E, v)
    key_pass(t, E, d, v, Bc, br)
    blocks = list(key_blocks(E, Bc))
    before = np.cumsum([0, *(met(J, 1) * J.shape[1] for J in blocks)])  # twice the middle of block J: before[J] + before[J + 1]
    cuts = [0]
    for g in range(1, G):
        far = [J for J in range(1, len(blocks)) if (before[J] + before[J + 1]) * G >= 2 * g * before[-1]]
        cuts.append(far[0] if far else len(blocks))
    cuts.append(len(blocks))
    groups = [blocks[a:b] for a, b in zip(cuts, cuts[1:])]
    seen_by = np.array([np.any([J.any(1) for J in group], 0) if group else np.zeros(len(E), bool) for group in groups])
    copied = seen_by & (np.cumsum(seen_by, 0) > 1)
    t.write(dQ=int((~E.any(1)).sum()) * d)
    for group, of_copy in zip(groups, copied):
        met_here = np.zeros(len(E), bool)
        for J in group:
            seeing = J.any(1)
            for name, rows in (("dQ", seeing & ~of_copy), ("dQg", seeing & of_copy)):
                t.read(**{name: int((rows & met_here).sum()) * d})
                t.write(**{name: int(rows.sum()) * d})
            met_here |= seeing
    shared = np.flatnonzero(copied.any(0))
    r = shared[-1] - shared[0] + 1 if len(shared) else 0
    t.read(dQ=r * d, dQg=int(copied.sum()) * d), t.write(dQ=r * d)
    if r:
        t.hold(min(Bc, r) * d + 1)
        reads = -(-r // Bc) * (G - 1) + int(copied.sum())
        t.look(reads, min(1, reads))


def form_of(phase, knobs):
    return {name.removeprefix(phase): n for name, n in knobs.items() if name.startswith(phase)}


def probabilities(t, E, d, knobs):
    sddmm(t, E, d, form_of("P", knobs), "Q", "K", "lse")
    t.write(P=int(E.sum()))


def sparse_backward(t, E, d, v, dVb1, dVb2, dQb1, dQb2, dKb1, dKb2, **knobs):
    dots(t, E, v)
    probabilities(t, E, d, knobs)
    spmm(t, transposed(E, dVb1), v, dVb1, dVb2, "P", "dO")
    sddmm(t, E, v, form_of("dS", knobs), "dO", "V", "D")
    t.read(P=int(E.sum()))
    t.write(P=int(E.sum()))
    spmm(t, row_blocks(E, dQb1), d, dQb1, dQb2, "P", "K")
    spmm(t, transposed(E, dKb1), d, dKb1, dKb2, "P", "Q")
    t.write(dQ=len(E) * d, dK=E.shape[1] * d, dV=E.shape[1] * v)


def sparse_values(t, E, d, v, Bc, dQb1, dQb2, dKb1, dKb2, **knobs):
    dots(t, E, v)
    probabilities(t, E, d, knobs)
    for J in key_blocks(E, Bc):
        n, R = J.shape[1], met(J, 1)
        t.read(V=n * v, P=int(J.sum()), dO=R * v, D=R)
        t.write(P=int(J.sum()), dV=n * v)
        t.hold(2 * n * v + 2 * int(J.sum(1).max()) + (R > 0))
        listing(t, J.T)
    spmm(t, row_blocks(E, dQb1), d, dQb1, dQb2, "P", "K")
    spmm(t, transposed(E, dKb1), d, dKb1, dKb2, "P", "Q")
    t.write(dQ=len(E) * d, dK=E.shape[1] * d)


def sparse_spilled(t, E, d, v, Bc, dQb1, dQb2):
    dots(t, E, v)
    for J in key_blocks(E, Bc):
        n, R = J.shape[1], met(J, 1)
        t.read(K=n * d, V=n * v, Q=R * d, lse=R, dO=R * v, D=R)
        t.write(P=int(J.sum()), dK=n * d, dV=n * v)
        t.hold(2 * n * (d + v) + 2 * int(J.sum(1).max()) + (d + 1 if R else 0))
        listing(t, J.T)
    spmm(t, row_blocks(E, dQb1), d, dQb1, dQb2, "P", "K")
    t.write(dQ=len(E) * d)


def stays(blocks, side):
    """The blocks that meet each row (side 0) or key (side 1), from the first to the last; those that meet none are left
    out."""
    met_by = np.array([block.any(1 - side) for block in blocks]).reshape(len(blocks), -1)
    return [(int(b.argmax()), len(b) - 1 - int(b[::-1].argmax())) for b in met_by.T if b.any()]


def most_held(blocks, stays, most):
    """Places where those that leave make room for those that enter, and `most` at a time come and go with one block."""
    held = [sum(f < b <= l for f, l in stays) for b in range(len(blocks) + 1)]
    kept = [sum(f < b < l for f, l in stays) for b in range(len(blocks))]
    only = [min(most, sum(f == b == l for f, l in stays)) for b in range(len(blocks))]
    return max([*held, *(k + o for k, o in zip(kept, only)), 0])


def most_at_once(blocks, stays):
    return max([sum(f <= b <= l for f, l in stays) for b in range(len(blocks))])


class Passing:
    """Rows of E pass in blocks of `size`; the `count` of them that see the most, the first ones of those that see as
    many, do not, but are pinned: they meet each column when it enters. Columns that they alone see come with the last
    block."""

    def __init__(self, E, size, count, from_last):
        pins = sorted(range(len(E)), key=lambda i: -E[i].sum())[: max(0, min(count, len(E) - 1))]
        self.pins = self.neighbours(sorted(pins))
        self.blocks = []
        if not pins:
            begins = cuts(E, min(size, len(E)), from_last)
            self.blocks = [list(range(i, j)) for i, j in zip(begins, begins[1:])]
        for run in self.neighbours(sorted(set(range(len(E))) - set(pins))) if pins else []:
            extra = len(run) % size if from_last else 0
            begins = ([0] if extra else []) + list(range(extra, len(run), size))
            self.blocks += [run[i:j] for i, j in zip(begins, [*begins[1:], len(run)])]
        self.seen = [[bool(E[block][:, j].any()) for block in self.blocks] for j in range(E.shape[1])]
        for j, seen in enumerate(self.seen):
            seen[-1] |= bool(E[:, j].any()) and not any(seen)
        self.stays = [(s.index(True), len(s) - 1 - s[::-1].index(True)) for s in self.seen if any(s)]
        self.E, self.count, self.longest = E, len(pins), max([0, *map(len, self.pins)])

    @staticmethod
    def neighbours(numbers):
        runs = []
        for i in numbers:
            if runs and runs[-1][-1] == i - 1:
                runs[-1].append(i)
            else:
                runs.append([i])
        return runs

    def each(self):
        """The rows of each block; does it meet a column, and does one enter with it?"""
        for b, block in enumerate(self.blocks):
            yield len(block), any(s[b] for s in self.seen), any(first == b for first, _ in self.stays)

    def listing(self, t):
        for b, block in enumerate([*self.blocks, *([sum(self.pins, [])] if self.pins else [])]):
            t.look(1)
            for j, seen in enumerate(self.seen):
                if any(seen) if b == len(self.blocks) else seen[b]:
                    n = int(self.E[block][:, j].sum())
                    t.look(2 + n, n)


def ring(t, E, d, v, Br, Bc, pinned=0):
    x, Bc = Passing(E, Br, pinned, True), min(Bc, E.shape[1])
    s = most_held(x.blocks, x.stays, Bc)
    t.read(K=len(x.stays) * d, V=len(x.stays) * v, Q=len(E) * d)
    t.write(O=len(E) * v, lse=len(E))
    for n, _, enters in x.each():
        t.hold(s * (d + v) + x.count * (d + v + 2) + n * (d + v + 2 + Bc) + enters * min(Br, x.longest) * Bc)
    x.listing(t)


def ring_backward(t, E, d, v, Br, bv):
    blocks = list(row_blocks(E, Br))
    keys = stays(blocks, 1)
    s = most_at_once(blocks, keys)
    t.read(K=len(keys) * d, V=len(keys) * v, Q=len(E) * d, dO=len(E) * v)
    t.write(dQ=len(E) * d, dK=E.shape[1] * d, dV=E.shape[1] * v)
    for I in blocks:
        n, U = len(I), met(I, 0)
        t.hold(2 * s * (d + v) + n * U + max(n * (d + U + max(1, min(bv, v))), n * d))
        listing(t, I)


def ring_queries(t, E, d, v, Bc, br, pinned=0):
    x, rows, keys = Passing(E.T, Bc, pinned, False), *E.shape
    s, br = most_held(x.blocks, x.stays, br), min(br, rows)
    t.read(Q=len(x.stays) * d, O=len(x.stays) * v, lse=len(x.stays), dO=len(x.stays) * v, K=keys * d, V=keys * v)
    t.write(dQ=rows * d, dK=keys * d, dV=keys * v)
    for n, meets, enters in x.each():
        pairs = max(2 * br * n * meets, enters * max(1, 2 * br * min(Bc, x.longest)))
        t.hold(s * (2 * d + v + 2) + (x.count + n) * (2 * d + 2 * v) + pairs)
    x.listing(t)


def ring_two_pass(t, E, d, v, Br, Bc, bd, bv):
    by_rows, by_keys = list(row_blocks(E, Br)), list(key_blocks(E, Bc))
    keys, rows = stays(by_rows, 1), stays(by_keys, 0)
    s, r = most_at_once(by_rows, keys), most_at_once(by_keys, rows)
    columns = max(min(bd, d), min(bv, v))
    t.read(Q=len(E) * d, dO=len(E) * v, K=len(keys) * d, V=len(keys) * v)
    t.write(dQ=len(E) * d, D=len(E))
    for I in by_rows:
        t.hold(s * (d + v) + len(I) * (2 * met(I, 0) + columns))
    t.read(Q=len(rows) * d, dO=len(rows) * v, lse=len(rows), D=len(rows), K=E.shape[1] * d, V=E.shape[1] * v)
    t.write(dK=E.shape[1] * d, dV=E.shape[1] * v)
    for J in by_keys:
        t.hold(r * (d + v + 2) + J.shape[1] * (2 * met(J, 1) + columns))
    for block in [*by_rows, *(J.T for J in by_keys)]:
        listing(t, block)


WALKS = {
    "forward": {"flash": flash, "flash_pinned": flash_pinned, "column_split": flash, "sparse": sparse_forward,
                "ring": ring},
    "backward": {
        "two_pass": two_pass,
        "fused_key_outer": fused_key_outer,
        "grouped_key_outer": grouped_key_outer,
        "ring": ring_backward,
        "ring_queries": ring_queries,
        "ring_two_pass": ring_two_pass,
        "sparse": sparse_backward,
        "sparse_values": sparse_values,
        "sparse_spilled": sparse_spilled,
    },
}
SMALLEST = {
    "flash": {"Br": 1, "Bc": 1},
    "column_split": {"Br": 1, "Bc": 1, "w": 1},
    "two_pass": {"Br": 1, "bc": 1, "Bc": 1, "br": 1},
    "fused_key_outer": {"Bc": 1, "br": 1},
    "grouped_key_outer": {"Bc": 1, "br": 1, "G": 1},
    "ring_queries": {"Bc": 1, "br": 1},
    "ring_two_pass": {"Br": 1, "Bc": 1, "bd": 1, "bv": 1},
    "sparse_spilled": {"Bc": 1, "dQ.b1": 1, "dQ.b2": 1},
}


def pieces(E, group, drop):
    """Of rows (the heads of each position stacked) and keys: those that share no key with rows or keys before them or
    after. Positions without a key, and keys that nobody sees, are dropped first, or at the ends of a piece."""
    by_position = E.reshape(-1, group, E.shape[1])
    if drop:
        by_position = by_position[by_position.any((1, 2))]
        by_position = by_position[:, :, by_position.any((0, 1))]
    live = [(p, np.flatnonzero(rows.any(0))) for p, rows in enumerate(by_position) if rows.any()]
    found, begin = [], 0
    for k in range(len(live)):
        end = max(keys[-1] for _, keys in live[begin : k + 1])
        if k + 1 < len(live) and min(keys[0] for _, keys in live[k + 1 :]) <= end:
            continue
        first = min(keys[0] for _, keys in live[begin : k + 1])
        part = by_position[live[begin][0] : live[k][0] + 1, :, first : end + 1]
        found.append(part.reshape(-1, part.shape[2]))
        begin = k + 1
    return found


def tiling_of(piece, row, group):
    """That of the plan for a piece of this shape; of uneven intervals it has the narrowest lo and hi around them."""
    for own in row["own_tilings"]:
        if (own["rows"], own["keys"]) != piece.shape:
            continue
        r, j = np.indices(piece.shape)
        p = r // group
        if "prefix" not in own and intervals(piece) is not None:
            (begin, end), position = intervals(piece), p[:, 0]
            edges = (None if not begin.any() else (begin - position).min(), (end - position).max())
            if edges == (own.get("lo"), own.get("hi")):
                return own["tiling"]
        seen = ((j >= p + own.get("lo", -(10**9))) & (j < p + own.get("hi", 10**9))) | (j < own.get("prefix", 0))
        if (seen == piece).all():
            return own["tiling"]
    return row["tiling"]


def walk(op, schedule, row, case):
    """The tally of all heads and batches, with the tiling of this plan, or with this one."""
    row = row if "tiling" in row else {"tiling": row, "own_tilings": []}
    assert case.seen.shape == (case.batch, case.heads, case.n_q, case.n_k)
    d, v = case.d, case.v
    all_ = Tally()
    rows, keys = case.batch * case.heads * case.n_q, case.batch * case.kv * case.n_k
    found = [pieces(E, case.group, case.drop) for E in case.stacked()]
    step = WALKS[op][schedule]
    if schedule == "flash_pinned" and all(intervals(piece) is not None for list_ in found for piece in list_):
        step = flash_pinned_of_intervals
    for list_ in found:
        for piece in list_:
            tiles = tiling_of(piece, row, case.group)
            step(all_, piece, d, v, **{name.replace(".", ""): n for name, n in tiles.items()})
            rows -= len(piece)
            keys -= piece.shape[1]
    # Outputs of no piece are 0, written word by word.
    all_.write(**({"O": rows * v, "lse": rows} if op == "forward" else {"dQ": rows * d, "dK": keys * d, "dV": keys * v}))
    all_.hold(int(rows > 0 or (op == "backward" and keys > 0)))
    return all_


def index_words(case, mine):
    """Of a pattern that is no mask: read, and resident at a time."""
    if case.block_words is not None:  # once for each key-value head, and held
        return case.block_words * case.batch * case.kv, case.block_words
    return (mine.index_reads, mine.index_peak) if case.kind in ("mask", "csr", "blocks") else (0, 0)


class Case:
    """Sizes, options, and the pairs [batch, heads, n_q, n_k] that are seen."""

    def __init__(self, rng, tmp_path, kind):
        pick = lambda low, high: int(rng.integers(low, high))
        self.batch, self.kv, self.group = pick(1, 3), pick(1, 3), pick(1, 4)
        if rng.random() < 0.5:
            self.batch = self.kv = self.group = 1
        self.n_q, self.n_k, self.d, self.v = pick(1, 15), pick(1, 15), pick(1, 7), pick(1, 7)
        if rng.random() < 0.1:
            self.n_q, self.n_k = pick(20, 60), pick(20, 60)
        elif rng.random() < 0.3:
            self.n_k = self.n_q
        self.drop, self.kind, self.block_words = True, kind, None
        self.options, self.heads = [], self.kv * self.group
        self.offset = None
        pairs = self.draw(rng, tmp_path, kind)
        self.seen = np.broadcast_to(pairs, (self.batch, self.heads, self.n_q, self.n_k)).copy()
        self.pairs = self.seen.sum((2, 3)).ravel().tolist()  # of the pattern of each head
        self.hide(rng, kind)
        self.sizes = ["--batch", self.batch, "--heads", self.heads, "--kv-heads", self.kv, "--nq", self.n_q, "--nk",
                      self.n_k, "--d", self.d, "--dv", self.v]

    def stacked(self):
        """Rows of each key-value head of each batch: position by position, the heads that share it."""
        x = self.seen.reshape(self.batch * self.kv, self.group, self.n_q, self.n_k)
        return x.transpose(0, 2, 1, 3).reshape(len(x), -1, self.n_k)

    def noise(self, rng, shape):
        """Pairs with some structure: intervals that go on unevenly, empty rows and columns, parts that share no key, or blocks."""
        if rng.random() < 0.2 and shape[-2] > 1 and shape[-1] > 1:
            begin = np.sort(rng.integers(0, shape[-1], shape[-2]))
            end = np.maximum(np.sort(rng.integers(1, shape[-1] + 1, shape[-2])), begin + 1)
            keys = np.arange(shape[-1])
            return np.broadcast_to((begin[:, None] <= keys) & (keys < end[:, None]), shape).copy()
        m = rng.random(shape) < rng.choice([0.05, 0.15, 0.4, 0.8])
        if rng.random() < 0.5:
            m &= rng.random((*shape[:-1], 1)) < 0.7
        if rng.random() < 0.5:
            m &= rng.random((*shape[:-2], 1, shape[-1])) < 0.7
        if rng.random() < 0.3:  # packed sequences
            rows, keys = np.sort(rng.integers(0, 3, shape[-2])), np.sort(rng.integers(0, 3, shape[-1]))
            m &= rows[:, None] == keys
        return m

    def draw(self, rng, tmp_path, kind):
        pick = lambda low, high: int(rng.integers(low, high))
        n_q, n_k = self.n_q, self.n_k
        if kind in ("window", "longformer", "strided", "fixed", "big-bird") and rng.random() < 0.3:
            self.offset = pick(0, 5)
            self.options += ["--causal-offset", self.offset]
        p = at(n_q, n_k, self.offset)
        if kind == "mask":
            shape = [(n_q, n_k), (self.heads, n_q, n_k), (self.batch, self.heads, n_q, n_k), (self.batch, 1, n_q, n_k),
                     (1, n_k), (n_q, 1), (self.heads, 1, n_k)][pick(0, 7)]
            m = self.noise(rng, shape)
            np.save(tmp_path / "mask.npy", np.asfortranarray(m) if rng.random() < 0.5 else m)
            self.options += ["--mask", tmp_path / "mask.npy"]
            return m
        if kind == "csr":
            rows, cols = (pick(1, 4), pick(1, 4)) if rng.random() < 0.3 else (1, 1)
            rows, cols = rows if n_q % rows == 0 else 1, cols if n_k % cols == 0 else 1
            m = of_blocks(n_q, n_k, self.noise(rng, (n_q // rows, n_k // cols)), rows, cols)
            index, block = str(rng.choice(["<i4", "<i8"])), (rows, cols) if rows * cols > 1 else None
            self.options += ["--csr", save_sparse(tmp_path / "m.npz", m, index, block, bool(rng.random() < 0.5))]
            return m
        if kind == "blocks":
            rows, cols = pick(1, 5), pick(1, 5)
            blocks = self.noise(rng, (-(-n_q // rows), -(-n_k // cols)))
            np.save(tmp_path / "blocks.npy", blocks)
            self.options += ["--blocks", tmp_path / "blocks.npy", "--block", f"{rows},{cols}"]
            if rows * cols > 1:  # blocks of 1 x 1 are pairs
                self.block_words = len(blocks) + 1 + int(blocks.sum())
            return of_blocks(n_q, n_k, blocks, rows, cols)
        if kind in ("window", "longformer"):
            left, right, step, first = pick(-1, 5), pick(-1, 5), pick(1, 4), pick(0, 3) if kind == "longformer" else 0
            self.options += ["--window", f"{left},{right}", "--dilation", step]
            self.options += ["--globals", first] if kind == "longformer" else []
            return longformer(p, n_k, left, right, first, step)
        if kind == "strided":
            stride = pick(1, 5)
            self.options += ["--strided", stride]
            return strided(p, n_k, stride)
        if kind == "fixed":
            stride = pick(2, 6)
            summary = pick(1, stride + 1)
            self.options += ["--fixed", f"{stride},{summary}"]
            return fixed(p, n_k, stride, summary)
        assert kind == "big-bird"
        self.options += ["--big-bird", f"{pick(1, 4)},{pick(0, 2)},{pick(0, 2)},{pick(0, 3)}"]
        self.options += ["--pattern-seed", pick(0, 99)]
        return shown(tmp_path, n_q, n_k, *self.options)[0, 0]

    def hide(self, rng, kind):
        """A mask of another kind hides pairs of the pattern, too."""
        pick = lambda low, high: int(rng.integers(low, high))
        causal, wide = rng.random() < 0.3, kind not in ("window", "longformer") and rng.random() < 0.2
        left, right = pick(0, 8), -1 if causal else pick(-1, 6)
        sequences = [(b, 0, self.n_q, 0, self.n_k) for b in range(self.batch)]
        if rng.random() < 0.15:
            cut, cut_k = pick(0, self.n_q + 1), pick(0, self.n_k + 1)
            self.options += ["--seqlens", f"{cut},{self.n_q - cut}", "--seqlens-k", f"{cut_k},{self.n_k - cut_k}"]
            two = ((0, cut, 0, cut_k), (cut, self.n_q, cut_k, self.n_k))
            sequences = [(b, *one) for b in range(self.batch) for one in two]
        elif rng.random() < 0.15:
            used_q = rng.integers(0, self.n_q + 1, self.batch)
            used_k = rng.integers(0, self.n_k + 1, self.batch)
            self.options += ["--seqused-q", ",".join(map(str, used_q))]
            self.options += ["--seqused-k", ",".join(map(str, used_k))]
            sequences = [(b, 0, int(used_q[b]), 0, int(used_k[b])) for b in range(self.batch)]
        if causal:
            self.options += ["--causal"]
        if wide:
            self.options += ["--window", f"{left},{right}"]
        allowed = np.zeros((self.batch, self.n_q, self.n_k), bool)
        for b, i0, i1, j0, j1 in sequences:
            p = at(i1 - i0, j1 - j0, self.offset)
            one = np.ones((i1 - i0, j1 - j0), bool)
            if causal:
                one &= np.arange(j1 - j0) <= p
            if wide:
                one &= window(p, j1 - j0, left, right)
            allowed[b, i0:i1, j0:j1] = one
        self.seen &= allowed[:, None]


def trivial(op, case, lse=False):
    """The words that no schedule can save (theory notes 3.1)."""
    d, v, words = case.d, case.v, 0
    for E in case.stacked():
        two = E[E.sum(1) >= 2]
        if op == "forward":
            words += len(two) * d + met(two, 0) * d + met(E, 0) * v + len(E) * v
        else:
            words += len(two) * d + met(E, 1) * v + met(two, 0) * (d + v) + len(E) * d + case.n_k * (d + v)
    return words


# They form the pairs of an interval mask around a pattern; MasksCostNothing and the claims have them.
HIDING = {"forward": {"key_outer", "small_cache", "score_tiles", "naive", "strips"},
          "backward": {"fused_query_outer", "fused_values", "materialised", "spilled", "strips"}}


def has_pattern(case, extra=()):
    """Is what is given a pattern, and no mask after all? Only then flash_tiled does not take it."""
    command = [*case.sizes, *case.options, *extra, "--order", "natural", "--M", 1 << 30]
    done = redblue("plan", *command, "--schedule", "flash_tiled")
    patterns, modifiers = "knows only masks that are intervals", "knows no bias"
    assert done.returncode == 0 or patterns in done.stderr or modifiers in done.stderr, done.stderr
    return patterns in done.stderr


def check_rows(op, case, M, extra=()):
    """Every row of a plan, word by word, and what `count` says of it. Returns the schedules that were there."""
    command = ["--op", op, *case.sizes, *case.options, *extra, "--M", M, "--order", "natural"]
    done = redblue("plan", *command, "--json")
    known = WALKS[op]
    plan = json.loads(done.stdout) if done.returncode == 0 else {"plans": []}
    rows = {row["schedule"]: row for row in plan["plans"]}
    for name, tiling in SMALLEST.items():  # a row that is missing did not fit
        if name in known and name not in rows and not (name == "column_split" and case.v == 1):
            if name.startswith(("sparse", "ring")) and not has_pattern(case, extra):
                continue  # a mask after all: the planner speaks of these only where one is chosen
            assert walk(op, name, tiling, case).peak > M, (name, done.args, done.stderr)
    if not rows:
        return set()
    if not extra:
        assert {b["theorem"]: b["words"] for b in plan["bounds"]}["trivial"] == trivial(op, case)
    is_pattern = has_pattern(case, extra)
    if not is_pattern:
        known = {}  # a mask is cut as one: test_plans.py has its words
    for name, row in rows.items():
        got = (row["index_words"], row["index_footprint"])
        if is_pattern and name in HIDING[op]:
            continue
        want = index_words(case, walk(op, name, row, case)) if is_pattern else (0, 0)
        assert got == want, (done.args, name, row["tiling"])
    for name in known.keys() & rows.keys():
        row, mine = rows[name], walk(op, name, rows[name], case)
        got = {key: row[key] for key in ("reads", "writes", "footprint")}
        want = {"reads": mine.reads.total(), "writes": mine.writes.total(), "footprint": mine.peak}
        assert got == want, (done.args, name, row["tiling"])
        assert row["footprint"] <= M and row["io"] == row["reads"] + row["writes"]
        count = answer("count", *command, "--schedule", name)
        assert count["tiling"] == row["tiling"] and count["equal"] and count["counted"] == count["formula"], name
        assert count["counted"]["per_array"] == mine.words(), (done.args, name, row["tiling"])
        assert count["counted"]["peak"] == row["footprint"] and count["counted"]["flops"] == row["flops"]
    chosen = plan["plans"][plan["chosen"]]
    if is_pattern:
        assert set(rows) <= set(known) | HIDING[op], rows.keys()
    else:
        assert all(not name.startswith("sparse") or name == chosen["schedule"] for name in rows)
    count = answer("count", *command)
    assert (count["schedule"], count["tiling"]) == (chosen["schedule"], chosen["tiling"])
    assert {key: count["counted"][key] for key in ("reads", "writes", "io", "peak")} == {
        key: chosen["footprint" if key == "peak" else key] for key in ("reads", "writes", "io", "peak")
    }
    return known.keys() & rows.keys()


KINDS = ["mask", "csr", "blocks", "window", "longformer", "strided", "fixed", "big-bird"]


@pytest.mark.parametrize("index", range(15), ids=lambda i: f"seed={SEED}-{i}")
@pytest.mark.parametrize("kind", KINDS)
def test_pairs(tmp_path, kind, index):
    """Exactly those of the definition that no other mask hides, and as many in the pattern as `plan` and `count` say."""
    case = Case(np.random.default_rng([SEED, index, KINDS.index(kind), 2]), tmp_path, kind)
    seen = shown(tmp_path, case.n_q, case.n_k, *case.options, batch=case.batch, heads=case.heads)
    np.testing.assert_array_equal(seen, case.seen)
    for command, op in (("plan", "forward"), ("count", "backward")):
        report = answer(command, "--op", op, *case.sizes, *case.options, "--M", 300)
        found = [pattern["pairs"] for pattern in report["problem"]["patterns"]]
        assert found == case.pairs[: len(found)], (command, case.options)


@pytest.mark.parametrize("index", range(20), ids=lambda i: f"seed={SEED}-{i}")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", ["forward", "backward"])
def test_words(tmp_path, op, kind, index):
    for attempt in range(3):  # twice again where nothing is seen
        rng = np.random.default_rng([SEED, index, KINDS.index(kind), op == "forward", attempt])
        case = Case(rng, tmp_path, kind)
        if case.seen.any():
            break
    check_rows(op, case, int(3 * 60 ** rng.random()))


def test_words_of_a_row_without_keys_in_a_position(tmp_path):
    """Heads of a position stay together, so one that sees nothing is part of a block; a bias keeps all where it is."""
    mask = np.ones((3, 1, 6), bool)
    mask[1:] = mask[0, 0, 2] = False
    case = Case.__new__(Case)
    case.batch, case.kv, case.group, case.heads, case.n_q, case.n_k, case.d, case.v = 1, 1, 3, 3, 2, 6, 2, 3
    case.drop, case.seen = True, np.repeat(mask, 2, 1)[None]
    case.kind, case.block_words = "mask", None
    case.sizes = ["--heads", 3, "--kv-heads", 1, "--nq", 2, "--nk", 6, "--d", 2, "--dv", 3]
    np.save(tmp_path / "mask.npy", mask)
    case.options = ["--mask", tmp_path / "mask.npy"]
    for op, M in product(["forward", "backward"], [10, 20, 25, 40, 90]):
        check_rows(op, case, M)


# The same pattern given in two ways


def plans(op, *options):
    """Rows, their index words among them, and the bound."""
    plan = answer("plan", "--op", op, *options, "--order", "natural")
    keys = ("schedule", "tiling", "reads", "writes", "io", "footprint", "flops", "index_words", "index_footprint")
    return [[row[key] for key in keys] for row in plan["plans"]], plan["bound"]["words"]


def arrays(rng, batch, heads, kv, n_q, n_k, d, v, dtype=np.float64):
    normal = lambda *shape: rng.normal(size=shape).astype(dtype)
    return {"q": normal(batch, heads, n_q, d), "k": normal(batch, kv, n_k, d), "v": normal(batch, kv, n_k, v),
            "do": normal(batch, heads, n_q, v)}


def same_bits(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], name)


def two_ways(tmp_path):
    """Sizes, and a mask by its own options and as a pattern."""
    n_q, n_k = 13, 17
    i, j = np.arange(n_q)[:, None], np.arange(n_k)
    yield "causal", n_q, n_k, 1, ["--causal"], j <= i + 4
    yield "top-left", n_q, n_k, 1, ["--causal", "--causal-offset", "top-left"], j <= i
    yield "blind", n_q, n_k, 1, ["--causal", "--causal-offset", -5], j <= i - 5
    yield "window", n_q, n_k, 1, ["--window", "3,2"], window(i + 4, n_k, 3, 2)
    yield "narrow", n_q, n_k, 1, ["--window", "0,0", "--causal-offset", 0], i == j
    yield "left", n_q, n_k, 1, ["--window", "2,-1"], window(i + 4, n_k, 2, -1)
    yield "prefix", n_q, n_k, 1, ["--causal", "--prefix", 6], (j <= i + 4) | (j < 6)
    yield "dense", n_q, n_k, 1, [], np.ones((n_q, n_k), bool)
    yield "nothing", n_q, n_k, 1, ["--causal", "--causal-offset", -40], np.zeros((n_q, n_k), bool)
    which_i, which_j = np.repeat(np.arange(3), [4, 2, 7]), np.repeat(np.arange(3), [5, 9, 3])
    packed = which_i[:, None] == which_j
    lengths = ["--seqlens", "4,2,7", "--seqlens-k", "5,9,3"]
    yield "packed", n_q, n_k, 1, lengths, packed
    last = np.cumsum([5, 9, 3])[which_i] - np.cumsum([4, 2, 7])[which_i]
    yield "packed-causal", n_q, n_k, 1, [*lengths, "--causal"], packed & (j <= i + last[:, None])
    padded = np.zeros((2, 1, n_q, n_k), bool)
    padded[0, :, :, :9], padded[1, :, :6] = True, True
    yield "padded", n_q, n_k, 2, ["--seqused-q", "13,6", "--seqused-k", "9,17"], padded


WAYS = ["causal", "top-left", "blind", "window", "narrow", "left", "prefix", "dense", "nothing", "packed",
        "packed-causal", "padded"]


@pytest.mark.parametrize("name", WAYS)
def test_one_pattern_two_ways(tmp_path, name):
    _, n_q, n_k, batch, options, mask = next(way for way in two_ways(tmp_path) if way[0] == name)
    np.save(tmp_path / "mask.npy", mask)
    ways = [["--mask", tmp_path / "mask.npy"]]
    if mask.ndim == 2:
        ways += [["--csr", save_sparse(tmp_path / "mask.npz", mask)]]
        np.save(tmp_path / "blocks.npy", mask)
        ways += [["--blocks", tmp_path / "blocks.npy", "--block", "1,1"]]
    if name in ("window", "narrow", "left"):
        ways += [[*options, "--dilation", 1], [*options, "--globals", 0]]
    for way in ways:
        for op, M in product(["forward", "backward"], [25, 90, 400]):
            sizes = ["--batch", batch, "--heads", 4, "--kv-heads", 2, "--nq", n_q, "--nk", n_k, "--d", 5, "--dv", 4]
            assert plans(op, *sizes, "--M", M, *options) == plans(op, *sizes, "--M", M, *way), (op, M, way)
    x = arrays(np.random.default_rng(3), batch, 4, 2, n_q, n_k, 5, 4)
    both = ["--op", "backward", "--with-forward", "--layout", "bhnd", "--M", 120]
    same_bits(*(solved(tmp_path, x, *both, *way)[0] for way in (options, ways[-1])))


# Numbers


def dense(x, mask):
    """O, lse and the gradients; mask broadcasts to [batch, heads, n_q, n_k]."""
    a = Attention(x["q"], x["k"], x["v"], mask)
    return {"o": a.o, "lse": a.lse, **{name: a.gradients(x["do"])[name] for name in ("dq", "dk", "dv")}}


def close(got, want, tolerance):
    for name in got:
        a, b = np.asarray(got[name], np.float64).reshape(want[name].shape), want[name]
        finite = np.isfinite(b)
        np.testing.assert_array_equal(a[~finite], b[~finite], name)
        np.testing.assert_allclose(a[finite], b[finite], rtol=0, atol=tolerance * max(1, abs(b[finite]).max(initial=0)),
                                   err_msg=name)


def zeros(got, mask, kv):
    """Where a query sees no key, or nobody sees a key."""
    seen = np.broadcast_to(mask, (B, H, NQ, NK))
    blind, unseen = ~seen.any(3), ~seen.reshape(B, kv, -1, NQ, NK).any((2, 3))
    for name, a in got.items():
        part = a.reshape(B, H, NQ)[blind] if name == "lse" else a[unseen if name in ("dk", "dv") else blind]
        np.testing.assert_array_equal(part, -np.inf if name == "lse" else 0, name)


B, H, KV, NQ, NK, D, DV = 2, 4, 2, 19, 23, 5, 6


def pattern(tmp_path, kind):
    """Options, and the mask."""
    rng = np.random.default_rng([SEED, len(kind)])
    causal = np.arange(NK) <= at(NQ, NK)
    ragged = (rng.random((NQ, NK)) < 0.3) & (rng.random((NQ, 1)) < 0.8) & (rng.random(NK) < 0.8)
    if kind == "csr":
        return ["--csr", save_sparse(tmp_path / "p.npz", ragged)], ragged
    if kind == "csr-causal":
        return ["--csr", save_sparse(tmp_path / "p.npz", ragged), "--causal"], ragged & causal
    if kind == "blocks":
        blocks = rng.random((5, 8)) < 0.4
        blocks[2], blocks[:, 3] = False, False
        np.save(tmp_path / "p.npy", blocks)
        return ["--blocks", tmp_path / "p.npy", "--block", "4,3"], of_blocks(NQ, NK, blocks, 4, 3)
    if kind == "globals-causal":
        mask = longformer(at(NQ, NK, 2), NK, 2, 3, 3, 2)
        options = ["--causal-offset", 2, "--causal", "--window", "2,3", "--dilation", 2, "--globals", 3]
        return options, mask & (np.arange(NK) <= at(NQ, NK, 2))
    shapes = {"mask": (NQ, NK), "mask-heads": (H, NQ, NK), "mask-batches": (B, 1, NQ, NK), "mask-all": (B, H, NQ, NK)}
    shape = shapes[kind]
    mask = (rng.random(shape) < 0.3) & (rng.random((*shape[:-1], 1)) < 0.8)
    np.save(tmp_path / "p.npy", mask)
    return ["--mask", tmp_path / "p.npy"], mask


PATTERNS = ["csr", "csr-causal", "blocks", "globals-causal", "mask", "mask-heads", "mask-batches", "mask-all"]
FORWARD = ["flash", "flash_pinned", "column_split", "sparse", "ring"]
BACKWARD = ["two_pass", "fused_key_outer", "grouped_key_outer", "sparse", "sparse_values", "sparse_spilled", "ring", "ring_queries", "ring_two_pass"]


@pytest.mark.parametrize("kind", PATTERNS)
def test_numbers(tmp_path, kind):
    """Every schedule, in the orders in turn; threads change no bit. Orders.CostWhatTheirFormulasSay* has all of them."""
    options, mask = pattern(tmp_path, kind)
    suffix = "safetensors" if kind in ("csr", "mask-heads") else "npz"
    single = kind in ("blocks", "mask-all")
    x = arrays(np.random.default_rng(5), B, H, KV, NQ, NK, D, DV, np.float32 if single else np.float64)
    want = dense(x, mask)
    x |= {"o": want["o"].astype(x["q"].dtype), "lse": want["lse"].astype(x["q"].dtype)}
    save_file(x, tmp_path / "x.safetensors") if suffix == "safetensors" else np.savez(tmp_path / "x.npz", **x)
    rng = np.random.default_rng([SEED, len(kind)])
    for op, schedules in (("forward", FORWARD), ("backward", BACKWARD)):
        for turn, schedule in enumerate(schedules, PATTERNS.index(kind)):
            order = ["natural", "rcm", "jaccard", "in-place"][turn % 4]
            M = int(rng.integers(45, 400)) + (2000 if schedule.startswith("ring") else 0)
            command = ["run", "--op", op, "--input", tmp_path / f"x.{suffix}", "--layout", "bhnd", *options]
            command += ["--schedule", schedule, "--order", order, "--M", M]
            results = []
            for threads in (1, 2):
                out = tmp_path / f"y{threads}.{suffix}"
                report = answer(*command, "--output", out, "--threads", threads)
                assert report["moved"]["per_array"] == report["formula"]["per_array"], (schedule, order, M)
                assert report["problem"]["order"] == order
                results.append(load_file(out) if suffix == "safetensors" else dict(np.load(out)))
            same_bits(*results)
            assert set(results[0]) == ({"o", "lse"} if op == "forward" else {"dq", "dk", "dv"})
            close(results[0], want, 2e-5 if single else 1e-11)
            zeros(results[0], mask, KV)
        for order, M in product(["auto", "rcm"], [70, 300]):
            files = ["--input", tmp_path / f"x.{suffix}", "--output", tmp_path / f"y.{suffix}", "--layout", "bhnd"]
            answer("run", "--op", op, *files, "--order", order, "--M", M, *options, "--verify")


def test_words_with_a_bias(tmp_path):
    """Queries and keys stay, empty ones within a piece, too."""
    for index in range(8):
        rng = np.random.default_rng([SEED, index])
        case = Case(rng, tmp_path, "csr")
        case.drop = False
        for op, schedule in (("forward", "flash"), ("forward", "flash_pinned"), ("forward", "column_split"),
                             ("backward", "two_pass")):
            done = redblue("count", "--op", op, *case.sizes, *case.options, "--alibi", "--M", 120, "--json",
                           "--schedule", schedule)
            if done.returncode:
                assert schedule == "column_split" and case.v == 1 or "needs" in done.stderr, done.stderr
                continue
            count = json.loads(done.stdout)
            assert count["equal"] and count["counted"] == count["formula"]
            mine = walk(op, schedule, count, case).words()
            theirs = count["counted"]["per_array"]
            theirs.pop("slopes", None)
            assert theirs == mine, (done.args, count["tiling"])
            plan = answer("plan", "--op", op, *case.sizes, *case.options, "--alibi", "--M", 120)
            is_pattern = has_pattern(case, ["--alibi"])
            row = next(row for row in plan["plans"] if row["schedule"] == schedule)
            want = index_words(case, walk(op, schedule, row, case)) if is_pattern else (0, 0)
            assert (row["index_words"], row["index_footprint"]) == want, done.args


# Bad input


SMALL = ["--nq", 3, "--nk", 4, "--d", 2, "--M", 100]


def bad_patterns(directory):
    """Options, and what the refusal names."""
    pairs = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 1, 1]], bool)

    def sparse(name, **instead):
        return ["--csr", save_sparse(directory / f"{name}.npz", pairs, **instead)]

    def saved(name, option, array):
        np.save(directory / f"{name}.npy", array)
        return [option, directory / f"{name}.npy"]

    i4 = lambda *x: np.array(x, "i4")
    yield sparse("beyond", indices=i4(0, 2, 1, 2, 4)), ["4"]
    coo = directory / "coo.npz"  # has other arrays than a csr matrix
    np.savez(coo, format=b"coo", shape=[3, 4], row=i4(0, 2), col=i4(1, 3), data=np.ones(2))
    yield ["--csr", coo], ["format 'coo'", r"\.tocsr\(\)"]
    yield sparse("few", indptr=i4(0, 2, 5)), ["3"]
    yield sparse("far", indptr=np.array([0, 2, 2, 1 << 62])), [str(1 << 62)]
    yield sparse("floats", indices=np.array([0.0, 2, 1, 2, 3])), ["indices"]
    yield sparse("shape", shape=np.array([3, 5])), ["n_k = 4", "5"]
    yield sparse("rows", shape=np.array([2, 4])), ["n_q = 3", "2"]
    yield sparse("line", shape=np.array([12])), ["12"]
    yield sparse("csc", format=np.array(b"csc")), ["csc"]
    yield sparse("coo", format=np.array("coo")), ["coo"]
    np.savez(directory / "none.npz", indptr=np.arange(4))
    yield ["--csr", directory / "none.npz"], ["--csr .*none.npz", "format", "scipy.sparse.save_npz"]
    yield ["--csr", directory], ["is a directory"]
    yield sparse("square", shape=np.array([[3, 4]])), ["shape", "one dimension"]
    yield sparse("table", indptr=i4(0, 2, 2, 5).reshape(2, 2)), ["indptr", "one dimension"]
    yield sparse("values", data=np.ones(4)), ["data is \\(4\\)", "5 indices"]
    yield ["--csr", directory / "missing.npz"], ["missing.npz"]
    yield saved("text", "--csr", pairs), ["text.npy"]
    blocks = of_blocks(3, 4, np.ones((1, 2), bool), 3, 2)
    yield ["--csr", save_sparse(directory / "bsr.npz", blocks, block=(3, 2), data=np.ones((2, 2, 2)))], ["bsr.npz"]
    ragged = save_sparse(directory / "ragged.npz", pairs[:, :3], block=(3, 3), shape=np.array([3, 4]))
    yield ["--csr", ragged], ["ragged.npz"]
    more = save_sparse(directory / "more.npz", blocks, block=(3, 2), data=np.ones((3, 3, 2)))
    yield ["--csr", more], ["data is \\(3, 3, 2\\)", "2 indices"]
    yield ["--csr", save_sparse(directory / "flat.npz", blocks, block=(3, 2), data=np.ones(2))], ["flat.npz"]
    yield saved("float", "--mask", pairs.astype("f4")), ["f32", "bool", "astype\\(bool\\)"]
    yield saved("bytes", "--mask", pairs.astype("u1")), ["bytes.npy", "u1", "astype\\(bool\\)"]
    yield saved("ints", "--mask", pairs.astype("i8")), ["ints.npy", "i8", "astype\\(bool\\)"]
    yield saved("wide", "--mask", np.ones((3, 5), bool)), ["3, 5", "3, 4"]
    yield saved("high", "--mask", np.ones((2, 3, 4), bool)), ["2, 3, 4"]
    yield saved("five", "--mask", np.ones((1, 1, 1, 3, 4), bool)), ["1, 1, 1, 3, 4"]
    yield ["--mask", directory / "missing.npy"], ["missing.npy"]
    (directory / "empty.npy").touch()
    yield ["--mask", directory / "empty.npy"], ["empty.npy", "it is empty"]
    yield [*saved("b", "--blocks", np.ones((2, 2), bool)), "--block", "3,2"], ["2, 2", "1, 2"]
    yield saved("default", "--blocks", np.ones((1, 2), bool)), ["1, 2", "1, 1"]
    yield [*saved("zero", "--blocks", np.ones((1, 2), bool)), "--block", "0,2"], ["0,2"]
    yield [*saved("one", "--blocks", np.ones((1, 2), bool)), "--block", "3"], ["--block 3"]
    yield saved("ints", "--blocks", np.ones((1, 1), "f8")), ["f64", "bool"]
    yield ["--block", "3,2"], ["3,2", "--blocks"]
    yield ["--dilation", 2], ["--window"]
    yield ["--globals", 2], ["--window"]
    yield ["--window", "1,1", "--dilation", 2, "--prefix", 1], ["--prefix 1", "is a pattern"]
    yield ["--window", "1,1", "--dilation", -2], ["-2"]
    far = 1 << 62
    yield ["--window", "1,1", "--globals", 1 << 63], [f"{1 << 63} does not fit 64 bits"]
    yield ["--window", "1,1", "--globals", "010"], ["'010' is not a whole number in decimal digits"]
    yield ["--window", f"{far},0", "--globals", 1], [f"window_left = {far}", "0 to 2\\^48"]
    yield ["--window", f"0,{far}", "--dilation", 2], [f"window_right = {far}"]
    yield ["--window", "1,1", "--dilation", far], [f"{far}: give a number from 1 to 2\\^48"]
    yield ["--strided", far], [f"--strided {far}: stride"]
    yield ["--big-bird", f"1,{far},0,0"], [f"--big-bird 1,{far},0,0: window blocks"]
    yield ["--fixed", "2,1", "--causal-offset", far], [f"causal_offset = {far}"]
    yield ["--strided", -4], ["-4"]
    yield ["--fixed", "0,1"], ["0"]
    yield ["--fixed", "3,-1"], ["-1"]
    yield ["--fixed", "3"], ["--fixed 3"]
    yield ["--big-bird", "2,1,1"], ["2,1,1"]
    yield ["--big-bird", "2,-1,1,1"], ["-1"]
    yield ["--big-bird", "2,1,1,-7"], ["-7"]
    yield ["--big-bird", "2,1,x,1"], ["2,1,x,1"]
    yield ["--pattern-seed", 3], ["3", "--big-bird"]
    yield ["--big-bird", "2,1,1,1", "--pattern-seed", -3], ["seed = -3", "0 to 2\\^53"]
    yield [*saved("m", "--mask", pairs), "--strided", 0], ["0"]


def test_bad_patterns_are_refused(tmp_path):
    x = arrays(np.random.default_rng(1), 1, 1, 1, 3, 4, 2, 2)
    np.savez(tmp_path / "x.npz", **x)
    files = ["--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz", "--layout", "bhnd", "--M", 100]
    wrong = []
    for options, named in bad_patterns(tmp_path):
        for command in (["plan", *SMALL], ["run", *files]):
            try:
                said = refused(tmp_path, *command, *options)
                assert all(re.search(text, said) for text in named), (named, said)
            except AssertionError as e:
                wrong.append(f"{command[0]} {' '.join(str(o) for o in options)}: {str(e).splitlines()[0]}")
    assert not wrong, "\n".join(wrong)


def test_a_pattern_for_which_there_is_no_memory_is_refused_at_once(tmp_path):
    n = 1 << 31
    if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") >= 128 * n:
        pytest.skip("this machine has the memory")
    np.save(tmp_path / "one.npy", np.ones((1, 1), bool))
    for options in (["--strided", 8], ["--big-bird", "64,1,1,3"], ["--mask", tmp_path / "one.npy"]):
        said = refused(tmp_path, "plan", "--n", n, "--d", 64, "--M", 16384, *options)
        assert f"n_q = {n}, n_k = {n}: a pattern or a dilation of that many takes" in said, said


def test_queries_far_behind_the_keys(tmp_path):
    """As many steps as there are keys, not as there are positions."""
    for options in (["--fixed", "2,1"], ["--strided", 2], ["--window", "-1,-1", "--dilation", 3]):
        answer("plan", "--n", 8, "--d", 4, "--M", 200, *options, "--causal-offset", 1 << 48)


def test_schedules_that_know_no_pattern_or_modifier_say_so(tmp_path):
    for schedule in ("flash_tiled", "split_keys"):
        sizes = ["--n", 8, "--d", 2, "--M", 200, "--strided", 3]
        said = refused(tmp_path, "plan", *sizes, "--schedule", schedule)
        assert schedule in said
    for modifier in (["--alibi"], ["--softcap", 2], ["--dropout", 0.1], ["--sinks"], ["--bias", "1,1,8,8"]):
        of_pattern = ["--op", "backward", "--n", 8, "--d", 2, "--M", 200, "--strided", 3, *modifier, "--schedule"]
        assert "ring_two_pass" in refused(tmp_path, "plan", *of_pattern, "ring_two_pass")
        for schedule in ("sparse", "sparse_values", "sparse_spilled"):
            if "--softcap" in modifier and schedule != "sparse_spilled":
                assert "softcap needs two" in refused(tmp_path, "plan", *of_pattern, schedule)
            else:
                answer("plan", *of_pattern, schedule)


@pytest.mark.parametrize("kind", ["csr", "mask-all"])
def test_schedules_of_pairs_read_a_bias_pair_by_pair(tmp_path, kind):
    """As many words as there are pairs, in each pass over the scores, and twice that for its gradient."""
    options, mask = pattern(tmp_path, kind)
    pairs = int(np.broadcast_to(mask, (B, H, NQ, NK)).sum())
    sizes = ["--batch", B, "--heads", H, "--kv-heads", KV, "--nq", NQ, "--nk", NK, "--d", D, "--dv", DV, *options]
    for op, schedule in (("forward", "sparse"), *(("backward", f"sparse{name}") for name in ("", "_values", "_spilled"))):
        given = ["--op", op, "--M", 120, "--schedule", schedule, "--bias", f"1,{H},{NQ},{NK}", "--alibi"]
        given += ["--bias-gradient"] if op == "backward" else []
        count = answer("count", *sizes, *given)
        assert count["equal"] and count["counted"] == count["formula"]
        moved = count["counted"]["per_array"]
        assert moved["bias"]["reads"] == pairs, schedule
        if op == "backward":
            zeros_once = H * NQ * NK
            assert (moved["dBias"]["reads"], moved["dBias"]["writes"]) == (pairs, pairs + zeros_once), schedule


@pytest.mark.parametrize("shared", [False, True])
def test_the_bound_counts_each_word_of_a_bias_once(tmp_path, shared):
    """Heads with masks of their own, and a bias for each head, or one for all."""
    seen = np.zeros((2, 6, 6), bool)
    seen[0, :, [0, 3]] = seen[1, :, [1, 5]] = True
    np.save(tmp_path / "m.npy", seen)
    sizes = ["--n", 6, "--d", 2, "--heads", 2, "--M", 300, "--mask", tmp_path / "m.npy"]
    alone = answer("plan", *sizes)["bound"]["words"]
    plan = answer("plan", *sizes, "--bias", f"1,{1 if shared else 2},6,6")
    needed = 12 if shared else 24  # of one head at least; of both
    assert plan["bound"]["words"] == alone + needed
    assert min(row["io"] for row in plan["plans"]) >= plan["bound"]["words"]


def test_a_bias_with_a_NaN_is_refused_and_nothing_written(tmp_path):
    rng = np.random.default_rng(1)
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", rng.standard_normal((1, 1, 8, 4), np.float32))
    files = [x for name in ("q", "k", "v", "bias", "o", "lse") for x in (f"--{name}", tmp_path / f"{name}.npy")]
    for value, name in ((np.nan, "a NaN"), (np.inf, "+inf")):
        for dtype in ("f8", "f4", "f2"):
            bias = np.zeros((1, 1, 8, 8), dtype)
            bias[0, 0, 3, 3] = value
            np.save(tmp_path / "bias.npy", bias)
            done = redblue("run", *files, "--M", 500)
            assert done.returncode == 2 and f"bias has {name} at [0, 0, 3, 3]" in done.stderr, done
    np.save(tmp_path / "bias.npy", np.full((1, 1, 8, 8), -1e39))
    done = redblue("run", *files, "--M", 500, "--compute-dtype", "f32")
    assert done.returncode == 2 and "bias has a number beyond f32 at [0, 0, 0, 0]: compute in f64" in done.stderr, done
    assert not (tmp_path / "o.npy").exists()
    for name in ("sinks", "slopes"):
        np.save(tmp_path / f"{name}.npy", np.zeros(2))
        files[-6:-4] = [f"--{name}", tmp_path / f"{name}.npy"]
        done = redblue("run", *files, "--M", 500)
        assert done.returncode == 2 and f"{name} has 2 numbers, and q has 1 heads" in done.stderr, done
    for dtype in ("f8", "f4", "f2"):
        np.save(tmp_path / "slopes.npy", np.array([-np.inf], dtype))
        files[-6:-4] = ["--slopes", tmp_path / "slopes.npy"]
        done = redblue("run", *files, "--M", 500)
        assert done.returncode == 2 and "slopes has -inf at [0, 0, 0, 0]" in done.stderr, done
    assert not (tmp_path / "o.npy").exists() and not (tmp_path / "lse.npy").exists()


@pytest.mark.parametrize("op", ["forward", "backward"])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.9, 0.99])
def test_the_plan_says_when_masking_all_pairs_is_better(tmp_path, op, share):
    """With the index words of a pattern that is a list, and those of a bias where all pairs are masked; a rule has none."""
    rng = np.random.default_rng([SEED, int(100 * share)])
    sizes = ["--op", op, "--n", 256, "--d", 64, "--M", 1000]
    plan = answer("plan", *sizes, "--csr", save_sparse(tmp_path / "p.npz", rng.random((256, 256)) < share))
    chosen, dense = plan["plans"][plan["chosen"]], plan["dense"]
    biased = answer("plan", *sizes, "--bias", "1,1,256,256")
    assert dense["io"] == biased["plans"][biased["chosen"]]["io"]
    times = dense["io"] / (chosen["io"] + chosen["index_words"])
    sentence = plan["reason"].split("; forming all pairs")[1]
    assert f"{'is better: it moves' if times < 1 else 'would move'} {times:.2f}x as many words" in sentence
    assert f"with the {chosen['index_words']} index words here and those of a boolean bias there" in sentence
    of_rule = redblue("plan", *sizes, "--strided", 16).stdout
    assert "index words" not in of_rule and "x as many words" in of_rule


def test_the_plan_of_projected_attention_knows_no_bias(tmp_path):
    """Nor does what it says of masking all pairs."""
    np.save(tmp_path / "m.npy", np.random.default_rng(1).random((256, 256)) < 0.7)
    plan = answer("plan", "--op", "forward-x", "--n", 256, "--d", 16, "--M", 2000, "--mask", tmp_path / "m.npy")
    times = plan["dense"]["io"] / plan["plans"][plan["chosen"]]["io"]
    assert f"{times:.2f}x as many words" in plan["reason"] and "index words" not in plan["reason"]


def test_keys_that_all_show_are_not_numbered_anew(tmp_path):
    """Rows of very many runs that a window cuts, where each key is seen: nothing is copied."""
    rng = np.random.default_rng(2)
    n = 2300
    np.savez(tmp_path / "x.npz", **{name: rng.standard_normal((1, 1, n, 4)) for name in "qkv"})
    command = ["run", "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz", "--layout", "bhnd", "--M", 2000]
    command += ["--csr", save_sparse(tmp_path / "p.npz", rng.random((n, n)) < 0.4), "--window", "500,100"]
    natural, in_place = (answer(*command, "--order", order) for order in ("natural", "in-place"))
    assert natural["workspace_bytes"] == in_place["workspace_bytes"]
    assert natural["moved"] == in_place["moved"]


@pytest.mark.parametrize("objective", ["words", "time"])
def test_a_cap_that_leaves_no_room_for_copies(tmp_path, objective):
    """One block of queries sees nothing: to leave it out, all arrays are copied."""
    blocks = np.eye(12, dtype=bool)[5 * np.arange(12) % 12]
    blocks[3] = False
    np.save(tmp_path / "b.npy", blocks)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "x.npz", **{name: rng.standard_normal((1, 2, 768, 64), dtype=np.float32) for name in "qkv"})
    command = ["run", "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz", "--layout", "bhnd", "--M", 16384]
    if objective == "time":
        command += ["--objective", "time", "--machine", Path(__file__).parents[1] / "data/hardware.json"]
    command += ["--blocks", tmp_path / "b.npy", "--max-workspace", 300000, "--threads", 1, "--verify"]
    report = answer(*command)
    assert report["problem"]["order"] == "in-place"
    assert report["workspace_bytes"] <= 300000
