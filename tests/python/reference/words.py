"""Words and footprints of schedules, from the theory notes (2j and 4) alone, and the best tiling of each by trying them
all. Which schedules there are: reference.schedules.

A problem is a list of pieces: rows and keys that hang together. A schedule is a list of phases, of which each says what
tiles there are, how the program's tiling names one of them, and its reads, writes and footprint. Phases follow each
other: words add up, the largest footprint counts.
"""

from functools import cache
from itertools import pairwise, product
from typing import Callable, NamedTuple

SMALL = 40  # up to this size every tile size is tried


def ceil_div(a, b):
    return -(-a // b)


@cache
def sizes(n):
    """Of a dimension n. Costs without a mask depend on ceil(n / b) alone and footprints grow with b: the smallest b of
    each ceiling is enough."""
    return range(1, n + 1) if n <= SMALL else sorted({ceil_div(n, t) for t in range(1, n + 1)})


class Piece:
    """Rows and keys that hang together, counted from 0: row i sees the keys lo <= j < hi of rows[i]."""

    def __init__(self, rows, n_k):
        self.rows, self.n, self.k = rows, len(rows), n_k
        self.nnz = sum(hi - lo for lo, hi in rows)
        self.widest = max(hi - lo for lo, hi in rows)
        self.A, self.B = cache(self._A), cache(self._B)

    def _A(self, a):
        """Keys that blocks of a rows see; blocks are cut from the last row."""
        return sum(keys for _, keys in self.blocks(a))

    def _B(self, b):
        """Rows that see a key of a block of b keys."""
        return sum(sum(hi > j and lo < min(j + b, self.k) for lo, hi in self.rows) for j in range(0, self.k, b))

    def blocks(self, a):
        """The rows of each block of a rows, and the keys that it sees."""
        for end in range(self.n, 0, -a):
            begin = max(0, end - a)
            yield end - begin, self.rows[end - 1][1] - self.rows[begin][0]

    def kept(self, a):
        """The most keys that a block of a rows and the next one both see."""
        ends = range(self.n - a, 0, -a)
        return max((self.rows[end - 1][1] - self.rows[end][0] for end in ends), default=0)

    def staying(self, a, rho):
        """Of blocks of a rows where rho keys stay: the keys that are loaded or stream past, and for each block its rows
        and whether any stream. The first keys stay if all rows see the first, else the last ones of a block stay for
        the next one."""
        first_seen_by_all = self.rows[-1][0] == 0
        visits, blocks, stay = 0, [], set()
        for end in reversed(range(self.n, 0, -a)):
            begin = max(0, end - a)
            keys = range(self.rows[begin][0], self.rows[end - 1][1])
            later = set(range(rho)) if first_seen_by_all else set(keys[max(0, len(keys) - rho):])
            visits += len({*keys, *(later if not blocks else ())} - stay)
            blocks.append((end - begin, len({*keys} - stay - later) > 0))
            stay = later
        return visits, blocks

    def seeing(self, b):
        """The rows that see each block of b keys, from the first to the one after the last."""
        for j in range(0, self.k, b):
            rows = [i for i, (lo, hi) in enumerate(self.rows) if hi > j and lo < min(j + b, self.k)]
            yield rows[0], rows[-1] + 1

    def kept_rows(self, b):
        """The most rows that see a block of b keys and the next one."""
        return max((one[1] - after[0] for one, after in pairwise(self.seeing(b))), default=0)

    def strip(self, rows, keys):
        """Pairs of these rows and keys."""
        return sum(max(0, min(self.rows[i][1], keys[-1] + 1) - max(self.rows[i][0], keys[0])) for i in rows)

    def row_strips(self, a):
        """The rows of each block of a rows, and its pairs."""
        for end in range(self.n, 0, -a):
            rows = range(max(0, end - a), end)
            yield len(rows), self.strip(rows, range(self.k))

    def key_strips(self, b):
        """The keys of each block of b keys, and its pairs."""
        for begin in range(0, self.k, b):
            keys = range(begin, min(self.k, begin + b))
            yield len(keys), self.strip(range(self.n), keys)

    def pins(self, M, words):
        """(rows, keys that stay) to try. A row of Q and O, or a key and its value, takes `words`."""
        return product(sizes(self.n), range(self.k + 1))


class Dense(Piece):
    """Every row sees every key."""

    def __init__(self, n, k):
        super().__init__([(0, k)] * n, k)

    def _A(self, a):
        return ceil_div(self.n, a) * self.k

    def _B(self, b):
        return ceil_div(self.k, b) * self.n

    def staying(self, a, rho):
        return rho + ceil_div(self.n, a) * (self.k - rho), [(min(a, self.n), rho < self.k)]

    def pins(self, M, words):
        """Reads fall with the keys that stay, or do not depend on them: the most that fit, or none."""
        if max(self.n, self.k) <= SMALL:
            yield from super().pins(M, words)
            return
        for a in sizes(self.n):
            rest = M - a * (words + 3)
            yield a, 0
            yield a, self.k if rest >= self.k * words else min(self.k - 1, max(0, (rest - 1) // words))


class All:
    """Of all pieces together."""

    def __init__(self, pieces):
        self.pieces = pieces
        self.n, self.k, self.nnz = (sum(getattr(x, name) for x in pieces) for name in ("n", "k", "nnz"))

    def A(self, a):
        return sum(x.A(a) for x in self.pieces)

    def B(self, b):
        return sum(x.B(b) for x in self.pieces)

    def shared_blocks(self, size, side):
        """Blocks of `size`: neighbours that have no more together lie in one, longer ones are cut by themselves."""
        blocks = room = 0
        for n in (getattr(x, side) for x in self.pieces):
            if n > room:
                blocks, room = blocks + ceil_div(n, size), max(0, size - n)
            else:
                room -= n
        return blocks


def pieces_of(n_q, n_k, lo, hi, prefix, group):
    """The pieces of a mask, and how many rows and keys none of them holds."""
    rows = []
    for row in range(n_q * group):
        p = row // group
        end = n_k if hi is None else min(n_k, max(p + hi, prefix, 0))
        first = 0 if lo is None else min(max(0, p + lo), n_k)
        rows.append((first, max(first, end)))
    found, run = [], []
    for row in [*rows, (n_k, n_k)]:
        if run and (row[0] >= run[-1][1] or row[0] == row[1]):
            start = run[0][0]
            found.append(Piece([(a - start, b - start) for a, b in run], run[-1][1] - start))
            run = []
        if row[0] < row[1]:
            run.append(row)
    return found, len(rows) - sum(x.n for x in found), n_k - sum(x.k for x in found)


class Phase(NamedTuple):
    tiles: Callable  # of a piece and M
    cost: Callable  # of a piece, or of All where it is whole, and a tile: reads, writes, footprint
    read: Callable  # the tile that a tiling of the program names
    whole: bool = False


def no_tile(cost):
    return Phase(lambda x, M: [1], cost, lambda t: 1)


def row_blocks(cost, name="Br", whole=False):
    return Phase(lambda x, M: sizes(x.n), cost, lambda t: t[name], whole)


def key_blocks(cost, whole=False):
    return Phase(lambda x, M: sizes(x.k), cost, lambda t: t["Bc"], whole)


def score_tile(prefix):
    def read(t):
        if t.get(prefix + "panel"):
            assert t.get(prefix + "b", 1) == 1, "a streamed block larger than need be"
            return t[prefix + "a"], None
        return t[prefix + "a"], t[prefix + "b"]

    return read


def score_phase(cost, prefix=""):
    """In tiles, or in panels of rows."""
    return Phase(lambda x, M: product(sizes(x.n), [None, *sizes(x.k)]), cost, score_tile(prefix))


def product_phase(m, n, cost, b1, b2, whole=False):
    """A product of m(x) rows and n(x) columns in resident tiles."""
    return Phase(lambda x, M: product(sizes(m(x)), sizes(n(x))), cost, lambda t: (t[b1], t[b2]), whole)


def resident(m, n, b1, b2, rows=0):
    """Footprint of a tile of the product, with `rows` numbers for each of its rows."""
    x, y = min(b1, m), min(b2, n)
    return x * y + min(x, y) + 1 + rows * x


def scores(x, w, tile, stats):
    """(reads, footprint) of a score phase: (a, b), or (a, None) for a panel."""
    a, b = tile
    if b is None:
        return w * (x.n + x.A(a)), min(a, x.n) * (w + stats + 1) + 1
    return w * (x.A(a) + x.B(b)), resident(x.n, x.k, a, b, stats)


def rows_product(x, w, tile, stats=0):
    b1, b2 = tile
    return ceil_div(w, b2) * x.nnz + w * x.A(b1), resident(x.n, w, b1, b2, stats)


def keys_product(x, w, tile):
    b1, b2 = tile
    return ceil_div(w, b2) * x.nnz + w * x.B(b1), resident(x.k, w, b1, b2)


def by_rows(w, prefix):
    cost = lambda x, t: (rows_product(x, w, t)[0], x.n * w, rows_product(x, w, t)[1])
    return product_phase(lambda x: x.n, lambda x: w, cost, prefix + "b1", prefix + "b2")


def by_keys(w, prefix):
    cost = lambda x, t: (keys_product(x, w, t)[0], x.k * w, keys_product(x, w, t)[1])
    return product_phase(lambda x: x.k, lambda x: w, cost, prefix + "b1", prefix + "b2")


def stored_product(m, k, n, prefix):
    """C := A B in slow memory; m, k and n are sizes, or say which of All."""
    of = lambda x, size: size if isinstance(size, int) else getattr(x, size[0])

    def cost(x, tile):
        rows, inner, columns = (of(x, size) for size in (m, k, n))
        b1, b2 = tile
        reads = ceil_div(columns, min(b2, columns)) * rows * inner + ceil_div(rows, min(b1, rows)) * inner * columns
        return reads, rows * columns, resident(rows, columns, b1, b2)

    return product_phase(lambda x: of(x, m), lambda x: of(x, n), cost, prefix + "b1", prefix + "b2", whole=True)


def together(phases):
    """The cost of phases one after the other."""
    reads, writes, footprints = zip(*phases)
    return sum(reads), sum(writes), max(footprints)


def of_phase(phase, pieces, tile_of):
    return together([phase.cost(x, tile_of(x)) for x in ([All(pieces)] if phase.whole else pieces)])


def least(phases, pieces, M):
    """The fewest words of all phases, each with its best tile that fits all pieces; None if one has none."""
    total = 0
    for phase in phases:
        largest = All(pieces) if phase.whole else max(pieces, key=lambda x: x.n * x.k)
        costs = (of_phase(phase, pieces, lambda _: tile) for tile in phase.tiles(largest, M))
        found = min((r + w for r, w, f in costs if f <= M), default=None)
        if found is None:
            return None
        total += found
    return total


class Tiling(dict):
    """That of a plan. Sizes of streamed blocks cost no words: those that no phase reads must be as small as can be."""

    def __init__(self, tiling):
        super().__init__(tiling)
        self.known = set()

    def __getitem__(self, name):
        self.known.add(name)
        return super().__getitem__(name)

    def get(self, name, default=None):
        self.known.add(name)
        return super().get(name, default)


def cost_of(phases, pieces, tiling, own=None):
    """Reads, writes and footprint with the tiling of a plan. Pieces of some (rows, keys) have tilings of their own."""
    tiling, own = Tiling(tiling), {} if own is None else own
    cost = together([
        of_phase(p, pieces, lambda x, p=p: p.read(tiling if p.whole else own.get((x.n, x.k), tiling))) for p in phases
    ])
    assert all(size == 1 for name, size in tiling.items() if name not in tiling.known), tiling
    return cost
