"""Attention as docs/semantics.md defines it, in fp64, with the whole matrix of scores at once."""

import numpy as np


class Attention:
    """o, lse, the weights p, and gradients. Arrays are [..., heads, n, features]; keys and values may have fewer heads.

    `keep` says which pairs there are, `kept` is what dropout multiplies weights with, and `sinks` has a number for each
    head. A query that sees no key has o = 0 and lse = -inf."""

    def __init__(self, q, k, v, keep=True, bias=0.0, softcap=0.0, scale=None, sinks=None, kept=1.0):
        q, k, v = (x.astype(np.float64) for x in (q, k, v))
        self.q, self.kept = q, kept
        self.group = q.shape[-3] // k.shape[-3]
        self.k, self.v = (np.repeat(x, self.group, -3) for x in (k, v))
        self.scale = q.shape[-1] ** -0.5 if scale is None else scale
        s, self.slope = q @ self.k.swapaxes(-1, -2) * self.scale, 1.0
        if softcap:
            t = np.tanh(s / softcap)
            s, self.slope = softcap * t, 1 - t * t
        s = np.where(keep, s + np.asarray(bias, np.float64), -np.inf)
        heads = q.shape[-3]
        self.sinks = np.full((heads, 1), -np.inf) if sinks is None else sinks.astype(np.float64).reshape(heads, 1)
        top = np.maximum(s.max(-1, initial=-np.inf), self.sinks)
        safe = np.where(np.isfinite(top), top, 0)
        with np.errstate(divide="ignore"):
            self.lse = safe + np.log(np.exp(s - safe[..., None]).sum(-1) + np.exp(self.sinks - safe))
        self.shift = np.where(np.isfinite(self.lse), self.lse, 0)
        self.p = np.exp(s - self.shift[..., None])
        self.o = (self.p * kept) @ self.v

    def gradients(self, do, o=None):
        """Of q, k, v, bias and sinks, from this o or the true one."""
        def of_group(g):
            *batch, heads, n, d = g.shape
            return g.reshape(*batch, heads // self.group, self.group, n, d).sum(-3)

        do = do.astype(np.float64)
        D = (do * (self.o if o is None else o)).sum(-1)
        ds = self.p * (self.kept * (do @ self.v.swapaxes(-1, -2)) - D[..., None])
        raw = ds * self.slope * self.scale
        return {
            "dq": raw @ self.k,
            "dk": of_group(raw.swapaxes(-1, -2) @ self.q),
            "dv": of_group((self.p * self.kept).swapaxes(-1, -2) @ do),
            "dbias": ds,
            "dsinks": -(np.exp(np.minimum(0, self.sinks - self.shift)) * D).sum((0, 2)) if D.ndim == 3 else None,
        }


def attention(q, k, v, keep=True, **options):
    """o and lse."""
    a = Attention(q, k, v, keep, **options)
    return a.o, a.lse


def at(n_q, n_k, offset=None):
    """Positions of the queries, as a column: the last one is at the last key."""
    return np.arange(n_q)[:, None] + (n_k - n_q if offset is None else offset)


def causal(n_q, n_k, offset=None):
    return np.arange(n_k) <= at(n_q, n_k, offset)


def alibi(n_q, n_k, slopes, offset=None):
    """What it adds to the scores of each head."""
    return -np.asarray(slopes)[..., None, None] * abs(at(n_q, n_k, offset) - np.arange(n_k))


def alibi_of(heads, n_q, n_k):
    """With the slopes of the paper."""
    return alibi(n_q, n_k, 2.0 ** (-8 * np.arange(1, heads + 1) / heads))
