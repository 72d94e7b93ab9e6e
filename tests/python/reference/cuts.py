"""How a pattern, a boolean matrix, is cut into blocks of rows and of keys (docs/model.md)."""

import numpy as np


def cuts(E, size, ragged_first):
    """Where blocks of at most `size` rows begin, and the end: from either end, or where a row and the next one differ in more
    than two keys, whichever meets the fewest keys. Where they tie, the ragged block comes first or last."""
    n = len(E)
    last, first = [*range(0, n, size), n], [0, *range(n % size or size, n, size), n]
    ends, group = [0], 0
    for row in range(1, n + 1):
        if row < n and (E[row] != E[row - 1]).sum() <= 2:
            continue
        if row - ends[-1] > size and group > ends[-1]:
            ends.append(group)
        while row - ends[-1] > size:
            ends.append(ends[-1] + size)
        group = row
    ends.append(n)
    ways = [first, last] if ragged_first else [last, first]
    if any(b - a == size and E[a:b].any() for a, b in zip(ends, ends[1:])):
        ways.append(ends)
    met = [sum(E[a:b].any(0).sum() for a, b in zip(way, way[1:])) for way in ways]
    return ways[int(np.argmin(met))]


def row_blocks_of_intervals(E, a):
    """From the last row."""
    return [E[max(0, end - a) : end] for end in range(len(E), 0, -a)]


def row_blocks(E, a):
    begins = cuts(E, min(a, len(E)), True)
    return [E[begin:end] for begin, end in zip(begins, begins[1:])]


def key_blocks(E, b):
    begins = cuts(E.T, min(b, E.shape[1]), False)
    return [E[:, begin:end] for begin, end in zip(begins, begins[1:])]
