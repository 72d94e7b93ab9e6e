"""Every backward algorithm as a sequence of calls of the two-level memory of `simulator`.

e1..e6 take Q, K, V, dO and give dQ, dK, dV; the others take A1, A2, A3, X, Y, dO and give g = dL/dX of
O = softmax(A1 X A2^T) A3 Y (no scale: X holds it). What the forward pass left behind (O, lse) lies in slow memory from
the start. Each asserts that its result is the dense gradient and returns (reads, writes, peak) in words.
"""

import numpy as np

from reference import simulator
from reference.simulator import Mem, all_keys, blocks, dense, finish, length, matmul, scale, unwritten


def probabilities(S, lse):
    """exp(S - lse) of a tile whose rows are queries; hidden scores are -inf, also where a row sees nothing."""
    with np.errstate(invalid="ignore"):
        return np.where(S > -np.inf, np.exp(S - np.reshape(lse, (-1, 1))), 0)


def dense_gradients(Q, K, V, dO, visible=None):
    """(dQ, dK, dV) by the textbook."""
    O, lse = dense(Q, K, V, visible)
    S = scale(Q) * Q @ K.T
    S[np.arange(len(K))[None, :] >= all_keys(Q, K, visible)[:, None]] = -np.inf
    P = probabilities(S, lse)
    dS = scale(Q) * P * (dO @ V.T - (dO * O).sum(axis=1)[:, None])
    return dS @ K, dS.T @ Q, P.T @ dO


def dense_layer(A1, A2, A3, X, Y):
    """(O, lse) of the layer: the forward pass of `dense` with the scale undone."""
    S = A1 @ X
    return dense(S / scale(S), A2, A3 @ Y)


def dense_gradient_x(A1, A2, A3, X, Y, dO):
    O, lse = dense_layer(A1, A2, A3, X, Y)
    f = np.exp(A1 @ X @ A2.T - lse[:, None])
    q = dO @ (A3 @ Y).T
    return A1.T @ (f * (q - (dO * O).sum(axis=1)[:, None])) @ A2


def row_products(mem, dO, O, D):
    """D := rowsum(dO o O), both operands streamed pairwise: a word each, and the sum."""
    for i in range(len(dO)):
        total = mem.alloc(1)
        for t in range(dO.shape[1]):
            x, y = mem.load(dO[i, t : t + 1]), mem.load(O[i, t : t + 1])
            total += x * y
            mem.free(x, y)
        mem.put(D, slice(i, i + 1), total)
        mem.free(total)


def resident_row_products(mem, dO_I, O_I):
    """The D of a row block whose dO is resident, allocated here."""
    D = mem.alloc(len(dO_I))
    for t in range(dO_I.shape[1]):
        D += dO_I[:, t] * mem.stream(O_I[:, t])
    return D


def hide(S, I, J, visible):
    """Set the scores that the rows of I do not see among the keys of J."""
    S[np.arange(J.start, J.stop)[None, :] >= visible[I, None]] = -np.inf


def open_query_block(mem, Q, dO, O, lse, I):
    """Q, dO, lse resident; dQ, two score columns p and dp, and D, made from O as it streams by."""
    q, do, l = mem.load(Q[I]), mem.load(dO[I]), mem.load(lse[I])
    dq, p, dp = mem.alloc(q.shape), mem.alloc(length(I)), mem.alloc(length(I))
    return q, do, l, dq, p, dp, resident_row_products(mem, do, O[I])


def query_pass(mem, Q, K, V, O, dO, lse, D, dQ, Br, visible):
    for I in blocks(len(Q), Br):
        q, do, l, dq, p, dp, d = open_query_block(mem, Q, dO, O, lse, I)
        mem.put(D, I, d)
        for j in range(visible[I].max()):
            k = mem.load(K[j])
            S = scale(Q) * q @ k[:, None]
            hide(S, I, slice(j, j + 1), visible)
            p[:] = probabilities(S, l)[:, 0]
            dp[:] = 0
            for t in range(V.shape[1]):
                dp += do[:, t] * mem.stream(V[j, t])
            dp[:] = scale(Q) * p * (dp - d)
            dq += np.outer(dp, k)
            mem.free(k)
        mem.put(dQ, I, dq)
        mem.free(q, do, l, dq, p, dp, d)


def key_pass(mem, Q, K, V, dO, lse, D, dK, dV, key_blocks, visible, dS=None, also=None):
    """dK and dV; with dS its entries go to slow memory too. also(J, i, dS_iJ, K_J) does what else there is to do."""
    for J in key_blocks:
        k, v = mem.load(K[J]), mem.load(V[J])
        dk, dv, p, dp = mem.alloc(k.shape), mem.alloc(v.shape), mem.alloc(length(J)), mem.alloc(length(J))
        for i in np.flatnonzero(visible > J.start):
            I = slice(i, i + 1)
            l, d, q = mem.load(lse[I]), mem.load(D[I]), mem.load(Q[i])
            S = scale(Q) * q[None, :] @ k.T
            hide(S, I, J, visible)
            p[:] = probabilities(S, l)[0]
            dp[:] = 0
            for t in range(V.shape[1]):
                w = mem.stream(dO[i, t])
                dp += v[:, t] * w
                dv[:, t] += p * w
            dp[:] = scale(Q) * p * (dp - d)
            dk += np.outer(dp, q)
            if dS is not None:
                mem.put(dS, (i, J), dp)
            if also is not None:
                also(J, i, dp, k)
            mem.free(l, d, q)
        mem.put(dK, J, dk)
        mem.put(dV, J, dv)
        mem.free(k, v, dk, dv, p, dp)


def gradients(Q, K, V):
    return unwritten(*Q.shape), unwritten(*K.shape), unwritten(*V.shape)


def e1(Q, K, V, dO, Bc):
    mem, (O, lse), D = Mem(), dense(Q, K, V), unwritten(len(Q))
    dQ, dK, dV = gradients(Q, K, V)
    row_products(mem, dO, O, D)
    for J in blocks(len(K), Bc):
        k, v = mem.load(K[J]), mem.load(V[J])
        dk, dv, p, dp = mem.alloc(k.shape), mem.alloc(v.shape), mem.alloc(length(J)), mem.alloc(length(J))
        for i in range(len(Q)):
            l, d, q = mem.load(lse[i : i + 1]), mem.load(D[i : i + 1]), mem.load(Q[i])
            p[:] = np.exp(scale(Q) * k @ q - l)
            dp[:] = 0
            for t in range(V.shape[1]):
                w = mem.stream(dO[i, t])
                dp += v[:, t] * w
                dv[:, t] += p * w
            dp[:] = scale(Q) * p * (dp - d)
            dk += np.outer(dp, q)
            for t in range(Q.shape[1]):
                mem.rmw(dQ, (i, t), lambda old: old + dp @ k[:, t], J.start == 0)
            mem.free(l, d, q)
        mem.put(dK, J, dk)
        mem.put(dV, J, dv)
        mem.free(k, v, dk, dv, p, dp)
    return finish(mem, [dQ, dK, dV], dense_gradients(Q, K, V, dO))


def grouped_key_outer(Q, K, V, dO, Bc, G, visible=None):
    mem, (O, lse), D = Mem(), dense(Q, K, V, visible), unwritten(len(Q))
    unit = Bc if visible is None else min(Bc, 16)
    visible = all_keys(Q, K, visible)
    dQ, dK, dV = gradients(Q, K, V)
    copies = [dQ, *(unwritten(*Q.shape) for _ in range(1, G))]
    # A cut may be at any multiple of `unit`; the g-th is the first one with g/G of all pairs before the middle of the
    # `unit` keys after it.
    pairs = [np.minimum(visible, key).sum() for key in range(len(K) + 1)]
    ends = [0, *range(unit, len(K), unit), len(K)]
    first = [0]
    for g in range(1, G):
        passed = [a for a, b in zip(ends[1:-1], ends[2:]) if G * (pairs[a] + pairs[b]) >= 2 * g * pairs[-1]]
        first.append(min(passed, default=len(K)))
    groups = [[slice(a + J.start, a + J.stop) for J in blocks(b - a, Bc)] for a, b in zip(first, [*first[1:], len(K)])]
    row_products(mem, dO, O, D)
    for i in np.flatnonzero(visible == 0):
        for t in range(Q.shape[1]):
            mem.rmw(dQ, (i, t), lambda old: old, True)

    for g, group in enumerate(groups):

        def add(J, i, dp, k):
            for t in range(Q.shape[1]):
                mem.rmw(copies[g], (i, t), lambda old: old + dp @ k[:, t], J.start == first[g])

        key_pass(mem, Q, K, V, dO, lse, D, dK, dV, group, visible, also=add)
    later = [g for g in range(1, G) if groups[g]]
    rows = np.flatnonzero(visible > min((first[g] for g in later), default=len(K)))
    for I in (rows[i : i + Bc] for i in range(0, len(rows), Bc)):
        total = mem.load(dQ[I])
        for g in later:
            total[visible[I] > first[g]] += mem.stream(copies[g][I[visible[I] > first[g]]])
        mem.put(dQ, I, total)
        mem.free(total)
    return finish(mem, [dQ, dK, dV], dense_gradients(Q, K, V, dO, visible))


def e2(Q, K, V, dO, Br):
    mem, (O, lse) = Mem(), dense(Q, K, V)
    dQ, dK, dV = gradients(Q, K, V)
    for I in blocks(len(Q), Br):
        first = I.start == 0
        q, do, l, dq, p, dp, d = open_query_block(mem, Q, dO, O, lse, I)
        for j in range(len(K)):
            k = mem.load(K[j])
            p[:] = np.exp(scale(Q) * q @ k - l)
            dp[:] = 0
            for t in range(V.shape[1]):
                dp += do[:, t] * mem.stream(V[j, t])
                mem.rmw(dV, (j, t), lambda old: old + p @ do[:, t], first)
            dp[:] = scale(Q) * p * (dp - d)
            dq += np.outer(dp, k)
            for t in range(Q.shape[1]):
                mem.rmw(dK, (j, t), lambda old: old + dp @ q[:, t], first)
            mem.free(k)
        mem.put(dQ, I, dq)
        mem.free(q, do, l, dq, p, dp, d)
    return finish(mem, [dQ, dK, dV], dense_gradients(Q, K, V, dO))


def e3(Q, K, V, dO, Br, Bc, visible=None):
    mem, (O, lse), D = Mem(), dense(Q, K, V, visible), unwritten(len(Q))
    visible = all_keys(Q, K, visible)
    dQ, dK, dV = gradients(Q, K, V)
    query_pass(mem, Q, K, V, O, dO, lse, D, dQ, Br, visible)
    key_pass(mem, Q, K, V, dO, lse, D, dK, dV, blocks(len(K), Bc), visible)
    return finish(mem, [dQ, dK, dV], dense_gradients(Q, K, V, dO, visible))


def e4(Q, K, V, dO, Bc, t):
    mem, (O, lse), D, dS = Mem(), dense(Q, K, V), unwritten(len(Q)), unwritten(len(Q), len(K))
    dQ, dK, dV = gradients(Q, K, V)
    row_products(mem, dO, O, D)
    key_pass(mem, Q, K, V, dO, lse, D, dK, dV, blocks(len(K), Bc), all_keys(Q, K, None), dS)
    matmul(mem, dS, K, dQ, *t)
    return finish(mem, [dQ, dK, dV], dense_gradients(Q, K, V, dO))


def scores(mem, A, B, statistic, out, tile, finish_row):
    """out[i, j] := finish_row(A_i . B_j, statistic_i, i, columns) with the statistics of a row block resident.

    tile = (a, b) as in `matmul`, or (a, None): the a rows of A are resident and B streams past them.
    """
    a, b = tile
    for I in blocks(len(A), a):
        s = mem.load(statistic[I])
        panel = mem.load(A[I]) if b is None else None
        for J in blocks(len(B), b or 1):
            T = mem.alloc((length(I), length(J)))
            for t in range(A.shape[1]):
                if panel is not None:
                    T += np.outer(panel[:, t], mem.stream(B[J, t]))
                elif length(I) <= length(J):
                    x = mem.load(A[I, t])
                    T += np.outer(x, mem.stream(B[J, t]))
                    mem.free(x)
                else:
                    x = mem.load(B[J, t])
                    T += np.outer(mem.stream(A[I, t]), x)
                    mem.free(x)
            for r in range(length(I)):
                T[r] = finish_row(T[r], s[r], I.start + r, J)
            mem.put(out, (I, J), T)
            mem.free(T)
        mem.free(s) if panel is None else mem.free(s, panel)


def store_probabilities(mem, A, B, lse, P, tile, factor=1.0):
    scores(mem, A, B, lse, P, tile, lambda T, l, i, J: np.exp(factor * T - l))


def overwrite_probabilities(mem, A, B, D, P, tile, factor=1.0):
    """P := factor P o (A B^T - D), P streamed entry by entry."""
    scores(mem, A, B, D, P, tile, lambda T, d, i, J: factor * mem.stream(P[i, J]) * (T - d))


def e5(Q, K, V, dO, t1, t2, t3, t4, t5):
    mem, (O, lse), D, P = Mem(), dense(Q, K, V), unwritten(len(Q)), unwritten(len(Q), len(K))
    dQ, dK, dV = gradients(Q, K, V)
    row_products(mem, dO, O, D)
    store_probabilities(mem, Q, K, lse, P, t1, scale(Q))
    matmul(mem, P.T, dO, dV, *t3)
    overwrite_probabilities(mem, dO, V, D, P, t2, scale(Q))
    matmul(mem, P, K, dQ, *t4)
    matmul(mem, P.T, Q, dK, *t5)
    return finish(mem, [dQ, dK, dV], dense_gradients(Q, K, V, dO))


def e6(Q, K, V, dO, t1, Bc, t4, t5):
    mem, (O, lse), D, P = Mem(), dense(Q, K, V), unwritten(len(Q)), unwritten(len(Q), len(K))
    dQ, dK, dV = gradients(Q, K, V)
    row_products(mem, dO, O, D)
    store_probabilities(mem, Q, K, lse, P, t1, scale(Q))
    for J in blocks(len(K), Bc):
        v = mem.load(V[J])
        dv, dp = mem.alloc(v.shape), mem.alloc(length(J))
        for i in range(len(Q)):
            d, p = mem.load(D[i : i + 1]), mem.load(P[i, J])
            dp[:] = 0
            for t in range(V.shape[1]):
                w = mem.stream(dO[i, t])
                dp += v[:, t] * w
                dv[:, t] += p * w
            dp[:] = scale(Q) * p * (dp - d)
            mem.put(P, (i, J), dp)
            mem.free(d, p)
        mem.put(dV, J, dv)
        mem.free(v, dv, dp)
    matmul(mem, P, K, dQ, *t4)
    matmul(mem, P.T, Q, dK, *t5)
    return finish(mem, [dQ, dK, dV], dense_gradients(Q, K, V, dO))


def alg1(A1, A2, A3, X, Y, dO, in_place):
    """Li et al. 2024 (arXiv 2410.09397), Algorithm 1: no limit on fast memory. A1 X has no place of its own there."""
    mem, (n, m) = Mem(), (len(A1), len(A2))
    a1, a2, x = mem.load(A1), mem.load(A2), mem.load(X)
    A = mem.alloc((n, m))
    A += a1 @ x @ a2.T
    mem.free(x)
    A[:] = np.exp(A)
    l = mem.alloc(n)
    l += A.sum(axis=1)
    f = A if in_place else mem.alloc((n, m))
    f[:] = A / l[:, None]
    mem.free(l) if in_place else mem.free(A, l)
    a3, y, h = mem.load(A3), mem.load(Y), mem.alloc((m, Y.shape[1]))
    h += a3 @ y
    mem.free(a3, y)
    do, q = mem.load(dO), mem.alloc((n, m))
    q += do @ h.T
    mem.free(do, h)
    v = mem.alloc(n)
    v += (f * q).sum(axis=1)
    p = f if in_place else mem.alloc((n, m))
    p[:] = f * q - v[:, None] * f
    mem.free(q, v) if in_place else mem.free(f, q, v)
    g, out = mem.alloc(X.shape), unwritten(*X.shape)
    g += a1.T @ p @ a2
    mem.free(a1, a2, p)
    mem.put(out, ..., g)
    mem.free(g)
    return finish(mem, [out], [dense_gradient_x(A1, A2, A3, X, Y, dO)])


def tile_product(mem, P, R, I, J, B):
    """The tile of P R, allocated here, from B x B tiles of both."""
    T = mem.alloc((length(I), length(J)))
    for k in blocks(P.shape[1], B):
        x, y = mem.load(P[I, k]), mem.load(R[k, J])
        T += x @ y
        mem.free(x, y)
    return T


def three_tiles(mem, P, R, C, B):
    for I in blocks(P.shape[0], B):
        for J in blocks(R.shape[1], B):
            T = tile_product(mem, P, R, I, J, B)
            mem.put(C, (I, J), T)
            mem.free(T)


def alg6(A1, A2, A3, X, Y, dO, B):
    """Li et al. 2024, Algorithms 2 to 6: three resident tiles, unshifted exponentials."""
    mem, (n, m), (d, d_v) = Mem(), (len(A1), len(A2)), Y.shape
    S, A, f, h, q, p = (unwritten(*shape) for shape in [(n, d), (n, m), (n, m), (m, d_v), (n, m), (n, m)])
    three_tiles(mem, A1, X, S, B)
    for I in blocks(n, B):
        l = mem.alloc(length(I))
        for J in blocks(m, B):
            T = tile_product(mem, S, A2.T, I, J, B)
            T[:] = np.exp(T)
            mem.put(A, (I, J), T)
            l += T.sum(axis=1)
            mem.free(T)
        for J in blocks(m, B):
            F, T = mem.alloc((length(I), length(J))), mem.load(A[I, J])
            F += T / l[:, None]
            mem.put(f, (I, J), F)
            mem.free(F, T)
        mem.free(l)
    three_tiles(mem, A3, Y, h, B)
    three_tiles(mem, dO, h.T, q, B)
    for I in blocks(n, B):
        v = mem.alloc(length(I))
        for J in blocks(m, B):
            F, T = mem.load(f[I, J]), mem.load(q[I, J])
            v += (F * T).sum(axis=1)
            mem.free(F, T)
        for J in blocks(m, B):
            G, F, T = mem.alloc((length(I), length(J))), mem.load(f[I, J]), mem.load(q[I, J])
            G += F * T - v[:, None] * F
            mem.put(p, (I, J), G)
            mem.free(G, F, T)
        mem.free(v)
    T, g = unwritten(d, m), unwritten(d, d)
    three_tiles(mem, A1.T, p, T, B)
    three_tiles(mem, T, A2, g, B)
    return finish(mem, [g], [dense_gradient_x(A1, A2, A3, X, Y, dO)])


def alg9(A1, A2, A3, X, Y, dO, Br, Bc):
    """Li et al. 2024, Algorithms 7 and 8: l is the row sum of unshifted exponentials."""
    mem, (n, d), (O, lse) = Mem(), A1.shape, dense_layer(A1, A2, A3, X, Y)
    L, S, h, out = np.exp(lse), unwritten(n, d), unwritten(n, d), unwritten(d, d)
    for I in blocks(n, Br):
        a1, a3 = mem.load(A1[I]), mem.load(A3[I])
        for J in blocks(d, Bc):
            for left, right, product in [(a1, X, S), (a3, Y, h)]:
                x, T = mem.load(right[:, J]), mem.alloc((length(I), length(J)))
                T += left @ x
                mem.put(product, (I, J), T)
                mem.free(x, T)
        mem.free(a1, a3)
    g = mem.alloc((d, d))
    for I in blocks(n, Br):
        s, o, do, a1, l = (mem.load(x[I]) for x in (S, O, dO, A1, L))
        v = mem.alloc(length(I))
        v += (do * o).sum(axis=1)
        mem.free(o)
        for J in blocks(n, Bc):
            shape = length(I), length(J)
            hj, q, a2, A, f = mem.load(h[J]), mem.alloc(shape), mem.load(A2[J]), mem.alloc(shape), mem.alloc(shape)
            q += do @ hj.T
            A += np.exp(s @ a2.T)
            f += A / l[:, None]
            mem.free(A)
            p = mem.alloc(shape)
            p += f * q - v[:, None] * f
            mem.free(f, q)
            T = mem.alloc((d, length(J)))
            T += a1.T @ p
            g += T @ a2
            mem.free(T, a2, p, hj)
        mem.free(s, do, a1, l, v)
    mem.put(out, ..., g)
    mem.free(g)
    return finish(mem, [out], [dense_gradient_x(A1, A2, A3, X, Y, dO)])


def projections(mem, A1, A3, X, Y, ts, th):
    S, h = unwritten(len(A1), X.shape[1]), unwritten(len(A3), Y.shape[1])
    matmul(mem, A1, X, S, *ts)
    matmul(mem, A3, Y, h, *th)
    return S, h


def r6(A1, A2, A3, X, Y, dO, ts, th, t1, t2, tu, tg):
    mem, (O, lse) = Mem(), dense_layer(A1, A2, A3, X, Y)
    D, P, U, g = unwritten(len(A1)), unwritten(len(A1), len(A2)), unwritten(*A1.shape), unwritten(*X.shape)
    S, h = projections(mem, A1, A3, X, Y, ts, th)
    row_products(mem, dO, O, D)
    store_probabilities(mem, S, A2, lse, P, t1)
    overwrite_probabilities(mem, dO, h, D, P, t2)
    matmul(mem, P, A2, U, *tu)
    matmul(mem, A1.T, U, g, *tg)
    return finish(mem, [g], [dense_gradient_x(A1, A2, A3, X, Y, dO)])


def gradient_pass(mem, S, A2, h, O, dO, lse, Br):
    """The query-outer pass of 9R-a, b, c: every row block I with its resident U, which the caller frees."""
    for I in blocks(len(S), Br):
        s, do, l, U, p, q, D = open_query_block(mem, S, dO, O, lse, I)
        for j in range(len(A2)):
            a2 = mem.load(A2[j])
            p[:] = np.exp(s @ a2 - l)
            q[:] = 0
            for t in range(h.shape[1]):
                q += do[:, t] * mem.stream(h[j, t])
            p *= q - D
            U += np.outer(p, a2)
            mem.free(a2)
        mem.free(s, do, l, p, q, D)
        yield I, U


def add_outer_products(mem, G, A1_I, U):
    """G += A1_I^T U, A1_I streamed: each word meets a row of U and a row of G."""
    for r in range(len(U)):
        for t in range(len(G)):
            G[t] += mem.stream(A1_I[r, t]) * U[r]


def r9a(A1, A2, A3, X, Y, dO, Br, ts, th):
    mem, (O, lse), g = Mem(), dense_layer(A1, A2, A3, X, Y), unwritten(*X.shape)
    S, h = projections(mem, A1, A3, X, Y, ts, th)
    G = mem.alloc(X.shape)
    for I, U in gradient_pass(mem, S, A2, h, O, dO, lse, Br):
        add_outer_products(mem, G, A1[I], U)
        mem.free(U)
    mem.put(g, ..., G)
    mem.free(G)
    return finish(mem, [g], [dense_gradient_x(A1, A2, A3, X, Y, dO)])


def r9b(A1, A2, A3, X, Y, dO, Br, ts, th):
    mem, (O, lse), g = Mem(), dense_layer(A1, A2, A3, X, Y), unwritten(*X.shape)
    S, h = projections(mem, A1, A3, X, Y, ts, th)
    for I, U in gradient_pass(mem, S, A2, h, O, dO, lse, Br):
        a1 = mem.load(A1[I])
        for s, t in np.ndindex(g.shape):
            mem.rmw(g, (s, t), lambda old: old + a1[:, s] @ U[:, t], I.start == 0)
        mem.free(U, a1)
    return finish(mem, [g], [dense_gradient_x(A1, A2, A3, X, Y, dO)])


def r9c(A1, A2, A3, X, Y, dO, Br, ts, th, tg):
    mem, (O, lse), g = Mem(), dense_layer(A1, A2, A3, X, Y), unwritten(*X.shape)
    S, h = projections(mem, A1, A3, X, Y, ts, th)
    all_U = unwritten(*A1.shape)
    for I, U in gradient_pass(mem, S, A2, h, O, dO, lse, Br):
        mem.put(all_U, I, U)
        mem.free(U)
    matmul(mem, A1.T, all_U, g, *tg)
    return finish(mem, [g], [dense_gradient_x(A1, A2, A3, X, Y, dO)])


def streamed_product(mem, a, B):
    """a B with a resident, B streamed word by word; allocated here."""
    T = mem.alloc((len(a), B.shape[1]))
    for s, t in np.ndindex(B.shape):
        T[:, t] += a[:, s] * mem.stream(B[s, t])
    return T


def r9d(A1, A2, A3, X, Y, dO, Br):
    mem, (O, lse), g = Mem(), dense_layer(A1, A2, A3, X, Y), unwritten(*X.shape)
    y, G = mem.load(Y), mem.alloc(X.shape)
    for I in blocks(len(A1), Br):
        a1 = mem.load(A1[I])
        s = streamed_product(mem, a1, X)
        mem.free(a1)
        do, l = mem.load(dO[I]), mem.load(lse[I])
        U, p, q = mem.alloc(s.shape), mem.alloc(length(I)), mem.alloc(length(I))
        D = resident_row_products(mem, do, O[I])
        for j in range(len(A2)):
            h = mem.alloc(Y.shape[1])
            for t in range(len(Y)):
                h += mem.stream(A3[j, t]) * y[t]
            a2 = mem.load(A2[j])
            p[:] = np.exp(s @ a2 - l)
            q[:] = do @ h
            p *= q - D
            U += np.outer(p, a2)
            mem.free(a2, h)
        mem.free(s, do, l, p, q, D)
        add_outer_products(mem, G, A1[I], U)
        mem.free(U)
    mem.put(g, ..., G)
    mem.free(G, y)
    return finish(mem, [g], [dense_gradient_x(A1, A2, A3, X, Y, dO)])


def resident_gradient(mem, A1, A2, X, dO, lse, D, g, Bc, load_h):
    """9R-e, 9R-f: X and G are resident, S_i and U_i exist for one row. load_h(J) makes h_J resident."""
    x, G = mem.load(X), mem.alloc(X.shape)
    for J in blocks(len(A2), Bc):
        h, a2 = load_h(J), mem.load(A2[J])
        p, q = mem.alloc(length(J)), mem.alloc(length(J))
        for i in range(len(A1)):
            l, d, a1, s = mem.load(lse[i : i + 1]), mem.load(D[i : i + 1]), mem.load(A1[i]), mem.alloc(X.shape[1])
            s += a1 @ x
            p[:] = np.exp(a2 @ s - l)
            q[:] = 0
            for t in range(dO.shape[1]):
                q += h[:, t] * mem.stream(dO[i, t])
            p *= q - d
            s[:] = p @ a2
            G += np.outer(a1, s)
            mem.free(l, d, a1, s)
        mem.free(h, a2, p, q)
    mem.put(g, ..., G)
    mem.free(x, G)


def r9e(A1, A2, A3, X, Y, dO, Bc, th):
    mem, (O, lse), D, g = Mem(), dense_layer(A1, A2, A3, X, Y), unwritten(len(A1)), unwritten(*X.shape)
    h = unwritten(len(A3), Y.shape[1])
    matmul(mem, A3, Y, h, *th)
    row_products(mem, dO, O, D)
    resident_gradient(mem, A1, A2, X, dO, lse, D, g, Bc, lambda J: mem.load(h[J]))
    return finish(mem, [g], [dense_gradient_x(A1, A2, A3, X, Y, dO)])


def r9f(A1, A2, A3, X, Y, dO, Bc):
    mem, (O, lse), D, g = Mem(), dense_layer(A1, A2, A3, X, Y), unwritten(len(A1)), unwritten(*X.shape)

    def project(J):
        a3 = mem.load(A3[J])
        h = streamed_product(mem, a3, Y)
        mem.free(a3)
        return h

    row_products(mem, dO, O, D)
    resident_gradient(mem, A1, A2, X, dO, lse, D, g, Bc, project)
    return finish(mem, [g], [dense_gradient_x(A1, A2, A3, X, Y, dO)])


def shared_forward(A1, A, X, Y, Br, ts, to):
    """O = softmax(A1 X A^T) A Y: keys and values are the same rows."""
    mem, S, U = Mem(), unwritten(*A1.shape), unwritten(*A1.shape)
    lse, O = unwritten(len(A1)), unwritten(len(A1), Y.shape[1])
    matmul(mem, A1, X, S, *ts)
    for I in blocks(len(S), Br):
        s, u, m, l = simulator.open_rows(mem, S, I, S.shape[1])
        p = mem.alloc((length(I), 1))
        for j in range(len(A)):
            a = mem.load(A[j])
            p[:, 0] = s @ a
            simulator.absorb(p, m, l, u)
            u += np.outer(p, a)
            mem.free(a)
        mem.free(p)
        simulator.close_rows(mem, U, lse, I, s, u, m, l)
    matmul(mem, U, Y, O, *to)
    return finish(mem, [O, lse], dense_layer(A1, A, A, X, Y))


def shared_backward(A1, A, X, Y, dO, Br, ts, to, tg):
    mem, (O, lse), D, g = Mem(), dense_layer(A1, A, A, X, Y), unwritten(len(A1)), unwritten(*X.shape)
    S, R, all_U = unwritten(*A1.shape), unwritten(*A1.shape), unwritten(*A1.shape)
    matmul(mem, A1, X, S, *ts)
    matmul(mem, dO, Y.T, R, *to)
    row_products(mem, dO, O, D)
    for I in blocks(len(S), Br):
        s, r, l, d = mem.load(S[I]), mem.load(R[I]), mem.load(lse[I]), mem.load(D[I])
        U, p, q = mem.alloc(s.shape), mem.alloc(length(I)), mem.alloc(length(I))
        for j in range(len(A)):
            a = mem.load(A[j])
            p[:] = np.exp(s @ a - l)
            q[:] = r @ a
            p *= q - d
            U += np.outer(p, a)
            mem.free(a)
        mem.put(all_U, I, U)
        mem.free(s, r, l, d, U, p, q)
    matmul(mem, A1.T, all_U, g, *tg)
    return finish(mem, [g], [dense_gradient_x(A1, A, A, X, Y, dO)])


def projected(A1, A2, A3, X, Y, ts, th, schedule, tiling):
    """A forward algorithm on (A1 X, A2, A3 Y), which the algorithm compares with the dense result itself."""
    mem = Mem()
    S, h = projections(mem, A1, A3, X, Y, ts, th)
    R, W, peak = finish(mem, [S, h], [A1 @ X, A3 @ Y])
    r, w, f = getattr(simulator, schedule)(S, A2, h, **tiling)
    return R + r, W + w, max(peak, f)
