"""Two-level memory simulator and every forward algorithm as a sequence of its calls.

Each algorithm takes Q (rows x d), K (n_k x d), V (n_k x d_v) and an explicit tiling, computes in fp64, asserts that the
result is the dense softmax attention, and returns (reads, writes, peak) in words. Where a mask is supported,
`visible[r]` is the number of leading keys that row r sees (non-decreasing in r; default: all).
"""

import math

import numpy as np


class Mem:
    """Word counter of a fast memory. `stream` is legal only where each word meets resident operands on its own."""

    def __init__(self):
        self.R = self.W = self.cur = self.peak = 0

    def _add(self, words):
        self.cur += words
        self.peak = max(self.peak, self.cur)

    def load(self, x):
        self.R += x.size
        self._add(x.size)
        return x.copy()

    def reload(self, x):
        """Into a tile that is resident."""
        self.R += x.size
        return x.copy()

    def alloc(self, shape):
        x = np.zeros(shape)
        self._add(x.size)
        return x

    def stream(self, x):
        self.R += x.size
        self.peak = max(self.peak, self.cur + (x.size > 0))
        return x.copy()

    def put(self, slow, index, value):
        slow[index] = value
        self.W += value.size

    def rmw(self, slow, index, update, first):
        """Read-modify-write through one word, which is occupied even when `first` makes the read unnecessary."""
        size = slow[index].size
        self.R += 0 if first else size
        slow[index] = update(0 if first else slow[index])
        self.W += size
        self.peak = max(self.peak, self.cur + 1)

    def free(self, *tiles):
        self.cur -= sum(tile.size for tile in tiles)


def blocks(n, b):
    return [slice(i, min(i + b, n)) for i in range(0, n, b)]


def length(block):
    return block.stop - block.start


def scale(Q):
    return 1 / math.sqrt(Q.shape[1])


def unwritten(*shape):
    """Slow memory that no one has written: NaN, so that reading it too early ruins the result."""
    return np.full(shape, np.nan)


def dense(Q, K, V, visible=None):
    """Reference (O, lse) by the textbook; a row that sees no key has O = 0, lse = -inf."""
    S = scale(Q) * Q @ K.T
    if visible is not None:
        S[np.arange(len(K))[None, :] >= visible[:, None]] = -np.inf
    m = S.max(axis=1)
    P = np.exp(S - np.where(np.isfinite(m), m, 0)[:, None])
    l = P.sum(axis=1)
    with np.errstate(divide="ignore"):
        return P @ V / np.where(l > 0, l, 1)[:, None], m + np.log(l)


def finish(mem, got, want):
    assert mem.cur == 0, "fast memory must end empty"
    for g, w in zip(got, want):
        np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-12)
    return mem.R, mem.W, mem.peak


def matmul(mem, A, B, C, b1, b2, factor=1.0):
    """C := factor A B, output stationary: the shorter operand vector is resident, the longer one streams past it."""
    for I in blocks(A.shape[0], b1):
        for J in blocks(B.shape[1], b2):
            T = mem.alloc((length(I), length(J)))
            for t in range(A.shape[1]):
                if length(I) <= length(J):
                    a = mem.load(A[I, t])
                    T += np.outer(a, mem.stream(B[t, J]))
                    mem.free(a)
                else:
                    b = mem.load(B[t, J])
                    T += np.outer(mem.stream(A[I, t]), b)
                    mem.free(b)
            T *= factor
            mem.put(C, (I, J), T)
            mem.free(T)


def naive(Q, K, V, b1, b2, b3, b4, rho):
    mem = Mem()
    n_q, n_k = len(Q), len(K)
    S, P, O = unwritten(n_q, n_k), unwritten(n_q, n_k), unwritten(n_q, V.shape[1])
    matmul(mem, Q, K.T, S, b1, b2, scale(Q))
    for i in range(n_q):
        if rho == 1:
            s = mem.load(S[i])
            m, l = mem.alloc(1), mem.alloc(1)
            m[0] = s.max()
            s[:] = np.exp(s - m)
            l[0] = s.sum()
            s /= l
            mem.put(P, i, s)
            mem.free(s)
        else:
            m, l = mem.alloc(1), mem.alloc(1)
            m[0] = -np.inf
            for s in mem.stream(S[i]):
                new = max(m[0], s)
                l[0] = l[0] * math.exp(m[0] - new) + math.exp(s - new)
                m[0] = new
            mem.put(P, i, np.exp(mem.stream(S[i]) - m) / l)
        mem.free(m, l)
    matmul(mem, P, V, O, b3, b4)
    return finish(mem, [O], dense(Q, K, V)[:1])


def absorb(S, m, l, O):
    """Online softmax: S := exp(S - m') with m, l, O rescaled to the new maximum, row by row: no word is kept."""
    for r in range(len(m)):
        new = max(m[r], S[r].max())
        if new == -np.inf:
            S[r] = 0
            continue
        alpha = math.exp(m[r] - new)
        O[r] *= alpha
        S[r] = np.exp(S[r] - new)
        l[r] = alpha * l[r] + S[r].sum()
        m[r] = new


def open_rows(mem, Q, I, d_v):
    q, o, m, l = mem.load(Q[I]), mem.alloc((length(I), d_v)), mem.alloc(length(I)), mem.alloc(length(I))
    m[:] = -np.inf
    return q, o, m, l


def close_rows(mem, O, lse, I, q, o, m, l):
    o /= np.where(l > 0, l, 1)[:, None]
    mem.put(O, I, o)
    with np.errstate(divide="ignore"):
        m += np.log(l)
    if lse is not None:
        mem.put(lse, I, m)
    mem.free(q, o, m, l)


def masked(S, I, J, visible):
    S[np.arange(J.start, J.stop)[None, :] >= visible[I, None]] = -np.inf


def flash_pass(mem, Q, K, V, O, lse, Br, Bc, visible, width=None):
    """width: columns of the tile of scores, where there are more than there are keys."""
    for I in blocks(len(Q), Br):
        q, o, m, l = open_rows(mem, Q, I, V.shape[1])
        s = mem.alloc((length(I), min(Bc, len(K)) if width is None else width))
        for J in blocks(visible[I].max(), Bc):
            S = s[:, : length(J)]
            S[:] = scale(Q) * q @ mem.stream(K[J]).T
            masked(S, I, J, visible)
            absorb(S, m, l, o)
            o += S @ mem.stream(V[J])
        mem.free(s)
        close_rows(mem, O, lse, I, q, o, m, l)


def all_keys(Q, K, visible):
    return np.full(len(Q), len(K)) if visible is None else visible


def flash(Q, K, V, Br, Bc=1, visible=None):
    mem, visible = Mem(), all_keys(Q, K, visible)
    O, lse = unwritten(len(Q), V.shape[1]), unwritten(len(Q))
    flash_pass(mem, Q, K, V, O, lse, Br, Bc, visible)
    return finish(mem, [O, lse], dense(Q, K, V, visible))


def column_split(Q, K, V, Br, Bc, h, visible=None):
    """h passes over balanced column groups of V, the widest ceil(d_v / h); the statistics are equal in every pass."""
    mem, visible = Mem(), all_keys(Q, K, visible)
    O, lse = unwritten(len(Q), V.shape[1]), unwritten(len(Q))
    for group, columns in enumerate(np.array_split(np.arange(V.shape[1]), h)):
        C = slice(columns[0], columns[-1] + 1)
        flash_pass(mem, Q, K, V[:, C], O[:, C], lse if group == 0 else None, Br, Bc, visible)
    return finish(mem, [O, lse], dense(Q, K, V, visible))


def split_keys(Q, K, V, Br, Bc, G, visible=None):
    """flash on each of G groups of whole steps of keys, then the merge, in the order of the groups."""
    if G == 1:
        return flash(Q, K, V, Br, Bc, visible)
    mem, visible = Mem(), all_keys(Q, K, visible)
    n_q, d_v = len(Q), V.shape[1]
    O, lse, parts, lses = unwritten(n_q, d_v), unwritten(n_q), unwritten(G, n_q, d_v), unwritten(G, n_q)
    keys = -(-(-(-len(K) // Bc)) // G) * Bc
    for g in range(G):
        group = slice(g * keys, (g + 1) * keys)
        seen = np.clip(visible - g * keys, 0, len(K[group]))
        flash_pass(mem, Q, K[group], V[group], parts[g], lses[g], Br, Bc, seen, min(Bc, len(K)))
    for I in blocks(n_q, Br):
        o, ln = mem.alloc((length(I), d_v)), mem.alloc(length(I))
        old, share = mem.alloc(length(I)), mem.alloc(length(I))
        ln[:] = -np.inf
        for g in range(G):
            share[:] = mem.reload(lses[g, I])
            both = np.logaddexp(ln, share)
            seen = both > -np.inf
            old[:] = np.where(seen, np.exp(ln - np.where(seen, both, 0)), 0)
            share[:] = np.where(seen, np.exp(share - np.where(seen, both, 0)), 0)
            ln[:] = both
            o *= old[:, None]
            o += share[:, None] * mem.stream(parts[g, I])
        mem.put(O, I, o)
        mem.put(lse, I, ln)
        mem.free(o, ln, old, share)
    return finish(mem, [O, lse], dense(Q, K, V, visible))


def flash_tiled(Q, K, V, Br, Bc, visible=None):
    mem, visible = Mem(), all_keys(Q, K, visible)
    O, lse = unwritten(len(Q), V.shape[1]), unwritten(len(Q))
    for I in blocks(len(Q), Br):
        q, o, m, l = open_rows(mem, Q, I, V.shape[1])
        for J in blocks(visible[I].max(), Bc):
            S = mem.alloc((length(I), length(J)))
            k = mem.load(K[J])
            S[:] = scale(Q) * q @ k.T
            mem.free(k)
            masked(S, I, J, visible)
            absorb(S, m, l, o)
            v = mem.load(V[J])
            o += S @ v
            mem.free(v, S)
        close_rows(mem, O, lse, I, q, o, m, l)
    return finish(mem, [O, lse], dense(Q, K, V, visible))


def flash_pinned(Q, K, V, Br, rho):
    mem = Mem()
    O, lse = unwritten(len(Q), V.shape[1]), unwritten(len(Q))
    k_pin, v_pin = mem.load(K[:rho]), mem.load(V[:rho])
    for I in blocks(len(Q), Br):
        q, o, m, l = open_rows(mem, Q, I, V.shape[1])
        s = mem.alloc((length(I), 1))
        for j in range(len(K)):
            s[:, 0] = scale(Q) * q @ (k_pin[j] if j < rho else mem.stream(K[j]))
            absorb(s, m, l, o)
            o += np.outer(s, v_pin[j] if j < rho else mem.stream(V[j]))
        mem.free(s)
        close_rows(mem, O, lse, I, q, o, m, l)
    mem.free(k_pin, v_pin)
    return finish(mem, [O, lse], dense(Q, K, V))


def key_outer(Q, K, V, Bc):
    mem = Mem()
    n_q, d_v = len(Q), V.shape[1]
    O, lse = unwritten(n_q, d_v), unwritten(n_q)
    for J in blocks(len(K), Bc):
        first = J.start == 0
        k, v, s = mem.load(K[J]), mem.load(V[J]), mem.alloc(length(J))
        for i in range(n_q):
            mx, ln = mem.alloc(1), mem.alloc(1)
            s[:] = scale(Q) * k @ mem.stream(Q[i])
            mx[0] = s.max()
            s[:] = np.exp(s - mx)
            ln[0] = mx[0] + math.log(s.sum())
            if first:
                alpha = mem.alloc(1)
            else:
                alpha = mem.load(lse[i : i + 1])
                ln[0] = np.logaddexp(alpha[0], ln[0])
                alpha[0] = math.exp(alpha[0] - ln[0])
            s *= math.exp(mx[0] - ln[0])
            for t in range(d_v):
                mem.rmw(O, (i, t), lambda old: alpha[0] * old + s @ v[:, t], first)
            mem.put(lse, slice(i, i + 1), ln)
            mem.free(mx, ln, alpha)
        mem.free(k, v, s)
    return finish(mem, [O, lse], dense(Q, K, V))


def scores_by_tile(mem, Q, K, S, lse, a, b):
    for I in blocks(len(Q), a):
        m, l = mem.alloc(length(I)), mem.alloc(length(I))
        m[:] = -np.inf
        for J in blocks(len(K), b):
            T = mem.alloc((length(I), length(J)))
            for t in range(Q.shape[1]):
                if length(I) <= length(J):
                    x = mem.load(Q[I, t])
                    T += np.outer(x, mem.stream(K[J, t]))
                else:
                    x = mem.load(K[J, t])
                    T += np.outer(mem.stream(Q[I, t]), x)
                mem.free(x)
            T *= scale(Q)
            update_statistics(T, m, l)
            mem.put(S, (I, J), T)
            mem.free(T)
        m += np.log(l)
        mem.put(lse, I, m)
        mem.free(m, l)


def scores_by_panel(mem, Q, K, S, lse, a):
    for I in blocks(len(Q), a):
        q, m, l, s = mem.load(Q[I]), mem.alloc(length(I)), mem.alloc(length(I)), mem.alloc((length(I), 1))
        m[:] = -np.inf
        for j in range(len(K)):
            s[:, 0] = scale(Q) * q @ mem.stream(K[j])
            update_statistics(s, m, l)
            mem.put(S, (I, slice(j, j + 1)), s)
        m += np.log(l)
        mem.put(lse, I, m)
        mem.free(q, m, l, s)


def update_statistics(T, m, l):
    for r in range(len(m)):
        new = max(m[r], T[r].max())
        l[r] = l[r] * math.exp(m[r] - new) + np.exp(T[r] - new).sum()
        m[r] = new


def small_cache(Q, K, V, a, b, a2, c2):
    """Raw scores go through slow memory. b = None: panel form of phase 1."""
    mem = Mem()
    n_q, n_k, d_v = len(Q), len(K), V.shape[1]
    S, lse, O = unwritten(n_q, n_k), unwritten(n_q), unwritten(n_q, d_v)
    if b is None:
        scores_by_panel(mem, Q, K, S, lse, a)
    else:
        scores_by_tile(mem, Q, K, S, lse, a, b)
    for I in blocks(n_q, a2):
        stat = mem.load(lse[I])
        for C in blocks(d_v, c2):
            o, z = mem.alloc((length(I), length(C))), mem.alloc(length(I))
            for j in range(n_k):
                if length(I) <= length(C):
                    x = mem.load(S[I, j])
                    p = np.exp(x - stat)
                    o += np.outer(p, mem.stream(V[j, C]))
                else:
                    x = mem.load(V[j, C])
                    p = np.exp(mem.stream(S[I, j]) - stat)
                    o += np.outer(p, x)
                z += p
                mem.free(x)
            mem.put(O, (I, C), o / z[:, None])
            mem.free(o, z)
        mem.free(stat)
    return finish(mem, [O, lse], dense(Q, K, V))


def saha_ye(Q, K, V, B):
    """Saha and Ye 2024 (arXiv 2402.07443), Algorithm 1: three B x B tiles; the unshifted exponentials can overflow."""
    mem = Mem()
    n_q, n_k, d, d_v = len(Q), len(K), Q.shape[1], V.shape[1]
    A, sums, O = unwritten(n_q, n_k), unwritten(n_q), unwritten(n_q, d_v)
    for I in blocks(n_q, B):
        total = mem.alloc(length(I))
        for J in blocks(n_k, B):
            T = mem.alloc((length(I), length(J)))
            for t in blocks(d, B):
                q, k = mem.load(Q[I, t]), mem.load(K[J, t])
                T += q @ k.T
                mem.free(q, k)
            T[:] = np.exp(scale(Q) * T)
            total += T.sum(axis=1)
            mem.put(A, (I, J), T)
            mem.free(T)
        mem.put(sums, I, total)
        mem.free(total)
    for I in blocks(n_q, B):
        total = mem.load(sums[I])
        for C in blocks(d_v, B):
            o = mem.alloc((length(I), length(C)))
            for J in blocks(n_k, B):
                p, v = mem.load(A[I, J]), mem.load(V[J, C])
                p /= total[:, None]
                o += p @ v
                mem.free(p, v)
            mem.put(O, (I, C), o)
            mem.free(o)
        mem.free(total)
    return finish(mem, [O], dense(Q, K, V)[:1])


def score_tiles(Q, K, V, a, b):
    mem = Mem()
    n_q, n_k, d_v = len(Q), len(K), V.shape[1]
    O, lse = unwritten(n_q, d_v), unwritten(n_q)
    for I in blocks(n_q, a):
        m, l = mem.alloc(length(I)), mem.alloc(length(I))
        m[:] = -np.inf
        for J in blocks(n_k, b):
            S = mem.alloc((length(I), length(J)))
            for t in range(Q.shape[1]):
                q = mem.load(Q[I, t])
                S += np.outer(q, mem.stream(K[J, t]))
                mem.free(q)
            S *= scale(Q)
            alpha = mem.alloc(length(I))
            for r in range(length(I)):
                new = max(m[r], S[r].max())
                alpha[r] = math.exp(m[r] - new)
                S[r] = np.exp(S[r] - new)
                l[r] = alpha[r] * l[r] + S[r].sum()
                m[r] = new
            for t in range(d_v):
                o = mem.alloc(length(I)) if J.start == 0 else mem.load(O[I, t])
                o *= alpha
                o += S @ mem.stream(V[J, t])
                if J.stop == n_k:
                    o /= l
                mem.put(O, (I, t), o)
                mem.free(o)
            mem.free(S, alpha)
        m += np.log(l)
        mem.put(lse, I, m)
        mem.free(m, l)
    return finish(mem, [O, lse], dense(Q, K, V))
