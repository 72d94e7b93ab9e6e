#!/usr/bin/env python3
"""Replays a certificate of the red-blue pebble game (docs/pebbling.md) without redblue: each move with M enforced, the
counts, and, where it says what its outputs are, their values in fp64 by definition, for 8 sets of inputs (1 if it has
many nodes), or of FILE, a line `NAME VALUE` for each. Exit codes: 0 all holds, 1 a claim is wrong, 2 no certificate."""

import argparse
import math
import re
import sys
import zlib
from collections import Counter

NUMBER = "(0|[1-9][0-9]{0,18})"
whole = lambda text: demand(re.fullmatch(NUMBER, text), f"{text[:40]} is no number", ValueError) or int(text)
real = lambda text: demand(repr(float(text)).removesuffix(".0") == text != "nan", text, ValueError) or float(text)
log = lambda x: math.log(x) if x else -math.inf

# The fewest and the most parents, and the value from the constant k and those of the parents.
OPS = {"input": (0, 0, None), "unknown": (1, math.inf, None), "formula": (1, math.inf, None),
       "constant": (0, 0, lambda k, x: k), "sum": (1, math.inf, lambda k, x: sum(x)),
       "difference": (2, 2, lambda k, x: x[0] - x[1]), "product": (1, math.inf, lambda k, x: k * math.prod(x)),
       "quotient": (2, 2, lambda k, x: x[0] / x[1]), "multiply_add": (3, 3, lambda k, x: x[0] + k * x[1] * x[2]),
       "maximum": (1, math.inf, lambda k, x: max(x)), "exp": (1, 2, lambda k, x: math.exp(k * x[0] - sum(x[1:]))),
       "log": (1, 1, lambda k, x: log(x[0])), "copy": (1, 1, lambda k, x: x[0])}
TOKENS = {"+": (2, lambda a, b: a + b), "-": (2, lambda a, b: a - b), "*": (2, lambda a, b: a * b), "max": (2, max),
          "/": (2, lambda a, b: a / b), "exp": (1, math.exp), "log": (1, log), "tanh": (1, math.tanh)}


def demand(condition, what, error=AssertionError):
    if not condition:
        raise error(what)


class Node:
    def __init__(self, number, line):
        fields = line.split(" ", 5)
        name, self.op, k, out, parents = fields[:5]
        self.label, self.k, self.out = name if name != "-" else f"node {number}", real(k), out == "out"
        self.parents = [] if parents == "-" else [whole(p) for p in parents.split(",")]
        (least, most, self.function), self.formula, height = OPS[self.op], [], 0
        ok = [least <= len(self.parents) <= most, k == "1" or self.op in ("constant", "product", "multiply_add", "exp")]
        for token in fields[5].split(" ") if len(fields) > 5 else []:
            taken, made = TOKENS.get(token) or (0, whole(token[1:]) if token[:1] == "x" else real(token))
            ok.append(taken <= height and not (type(made) is int and made >= len(self.parents)))
            self.formula, height = [*self.formula, (taken, made)], height - taken + 1
        ok += [max(self.parents, default=-1) < number, height == (self.op == "formula") == len(fields) - 5]
        demand(all(ok) and min(name) > " " and out in ("out", "."), line, ValueError)

    def value(self, x):
        stack = [self.function(self.k, x)] if self.function else []
        for taken, made in self.formula:
            of = [stack.pop() for _ in range(taken)][::-1]
            stack.append(made(*of) if taken else x[made] if type(made) is int else made)
        return demand(stack, f"{self.label} has no operation, so that outputs have no values") or stack[0]


def read(text):
    body, _, digest = text.rpartition("crc32 ")
    demand(f"{zlib.crc32(body.encode()):08x}\n" == digest and "\r" not in text, "the digest is wrong", ValueError)
    lines = iter(body.split("\n"))
    demand(next(lines) == "redblue pebbling certificate 1", "it is no certificate of version 1", ValueError)
    head = {}
    for key in ["schedule", "graph", "problem", "rules", "M", "nodes"]:
        word, _, head[key] = next(lines).partition(" ")
        demand(word == key and head[key], f"{key} is missing", ValueError)
    nodes = [Node(v, next(lines)) for v in range(whole(head["nodes"]))]
    demand(len({n.label for n in nodes}) == len(nodes), "two nodes have one name", ValueError)
    announced, *rows, counts, end = lines
    moves = " ".join(rows).split(" ") if rows else []
    counts = re.fullmatch(f"counts reads={NUMBER} writes={NUMBER} computed={NUMBER} peak={NUMBER}", counts)
    laid_out = [f"moves {len(moves)}"] + [" ".join(moves[k : k + 20]) for k in range(0, len(moves), 20)]
    demand([announced, *rows] == laid_out and counts and not end, "moves are not as announced", ValueError)
    return head, nodes, moves, [int(c) for c in counts.groups()]


def play(head, nodes, moves):
    several = "( processors=([2-9]|[1-5][0-9]|6[0-4]))?"
    rules = re.fullmatch(f"(place|slide|partial)( once)?( unused-inputs)?{several}", head["rules"])
    demand(rules and (rules[1] != "partial" or rules[2] == rules[4]), f"rules {head['rules']}", ValueError)
    game, once, M = rules[1], rules[1] == "partial" or rules[2], whole(head["M"])
    inputs = {v for v, node in enumerate(nodes) if node.op == "input"}
    red, blue, done, was_read = [set() for _ in range(int(rules[5] or 1))], set(inputs), set(inputs), set()
    edges = {(p, v) for v, node in enumerate(nodes) for p in node.parents} if game == "partial" else set()
    edges_in, edges_out = Counter(v for _, v in edges), Counter(p for p, _ in edges)
    reads = writes = computed = peak = 0
    for number, text in enumerate(moves, 1):
        match = re.fullmatch(f"(?:([rwcd]){NUMBER}|([su]){NUMBER}<{NUMBER})(?:@([1-9][0-9]?))?", text) or [0] * 7
        kind = match[1] or match[3]
        v, parent, processor = (int(x or 0) for x in (match[2] or match[4], match[5], match[6]))
        demand(kind and v < len(nodes) and processor < len(red), f"move {number}: {text} is no move", ValueError)
        mine, node = red[processor], nodes[v]
        legal = lambda holds, what, where=f"move {number}, {text} ({node.label})": demand(holds, f"{where}: {what}")
        if kind == "r":
            legal(v in blue, "it is not blue")
        elif kind in "wd":
            legal(v in mine, "it is not red")
            legal(kind == "w" or v in blue or edges_in[v] + edges_out[v] == 0, "its word would be lost")
        elif kind == "u":
            legal((parent, v) in edges, "there is no such edge, or it was computed before")
            legal(edges_in[parent] == 0 and parent in mine, "its parent is not whole and red")
            legal(v in mine or v not in blue, "it is blue only")
            edges.remove((parent, v))
            edges_in[v], edges_out[parent] = edges_in[v] - 1, edges_out[parent] - 1
            blue.discard(v)
        else:
            legal(game != "partial" or not node.parents, "edges are computed one by one")
            legal(v not in inputs and not (once and v in done), "it is an input, or was computed before")
            legal(mine.issuperset(node.parents), "a parent is not red")
            legal(kind == "c" or (game == "slide" and parent in node.parents), "the rules do not allow it")
        reads, writes, computed = reads + (kind == "r"), writes + (kind == "w"), computed + (kind in "csu")
        if kind == "w":
            blue.add(v)
        elif kind == "d":
            mine.remove(v)
        else:
            mine.discard(parent if kind == "s" else None)
            mine.add(v)
            (was_read if kind == "r" else done).add(v)
        legal(len(mine) <= M, f"more than {M} red pebbles")
        peak = max(peak, len(mine))
    for v, node in enumerate(nodes):
        demand(not node.out or (v in blue and v in done and edges_in[v] == 0), f"output {node.label} is not made")
    demand(not rules[3] or was_read >= inputs, "an input was never read")
    return [reads, writes, computed, peak]


product = lambda a, b, k=1.0: [[k * sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]
named = lambda name, matrix: {f"{name}[{i},{t}]": x for i, row in enumerate(matrix) for t, x in enumerate(row)}


def definition(problem, matrix, most):
    pattern = "(forward|backward|gradient) nq=N nk=N d=N dv=N mask=(full|causal|[01/]+)".replace("N", "([1-9][0-9]*)")
    demand(found := re.fullmatch(pattern, problem), f"problem {problem}", ValueError)
    kind, (nq, nk, d, dv), rows = found[1], map(int, found.groups()[1:5]), found[6].split("/")
    demand(min(nq, nk) ** 2 <= 2 * most if rows[0].isalpha() else [*map(len, rows)] == [nk] * nq, problem, ValueError)
    A1, scale = (matrix("A1", nq, d), 1.0) if kind == "gradient" else (None, d**-0.5)
    Q = product(A1, matrix("X", d, d)) if A1 else matrix("Q", nq, d)
    K = matrix("A2" if A1 else "K", nk, d)
    V = product(matrix("A3", nk, d), matrix("Y", d, dv)) if A1 else matrix("V", nk, dv)
    sees = lambda i, j: rows == ["full"] or (j <= i + nk - nq if rows == ["causal"] else rows[i][j] == "1")
    e = [[sees(i, j) and math.exp(s) for j, s in enumerate(row)] for i, row in enumerate(product(Q, [*zip(*K)], scale))]
    total = [sum(row) for row in e]
    P = [[x / (total[i] or 1) for x in e[i]] for i in range(nq)]
    out = product(P, V)
    known = named("O", out) | {f"lse[{i}]": log(x) for i, x in enumerate(total)}
    if kind == "forward":
        return {}, known | {f"l[{i}]": x for i, x in enumerate(total)}
    dO = matrix("dO", nq, dv)
    D = [sum(x * y for x, y in zip(dO[i], out[i])) for i in range(nq)]
    dS = [[p * (x - D[i]) for p, x in zip(P[i], row)] for i, row in enumerate(product(dO, list(zip(*V))))]
    if A1:
        return known, named("g", product(list(zip(*A1)), product(dS, K)))
    dQ, dK, dV = product(dS, K, scale), product(list(zip(*dS)), Q, scale), product(list(zip(*P)), dO)
    return known | {f"D[{i}]": x for i, x in enumerate(D)}, named("dQ", dQ) | named("dK", dK) | named("dV", dV)


def compare(problem, nodes, seed, path):
    table, given = dict(line.split() for line in open(path, encoding="utf-8")) if path else {}, {}
    def matrix(name, rows, columns):
        demand(rows * columns <= len(nodes), f"{problem} is not of its graph")
        for key in named(name, [[0] * columns] * rows):
            given[key] = float(table[key]) if path else zlib.crc32(f"{seed} {key}".encode()) * 69069 / 2**31 % 2 - 1
        return [[given[f"{name}[{i},{t}]"] for t in range(columns)] for i in range(rows)]
    known, expected = definition(problem, matrix, len(nodes))
    words, values, differences = known | given, [], [0.0]
    for node in nodes:
        demand(node.op != "input" or node.label in words, f"{node.label} is no input of {problem}")
        values.append(words[node.label] if node.op == "input" else node.value([values[p] for p in node.parents]))
    found = {node.label: values[v] for v, node in enumerate(nodes) if node.out}
    needed = {name for name, x in expected.items() if x and name[0] != "l"}
    demand(needed <= found.keys() <= expected.keys(), f"outputs are not those of {problem}")
    for name, x in found.items():
        differences.append(0.0 if x == expected[name] else abs(x - expected[name]))
        demand(differences[-1] <= 1e-9 * max(1, abs(expected[name])), f"{name} is {x}, not {expected[name]}")
    return max(differences)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, options in (("certificate", {}), ("--seed", {"default": "0"}), ("--inputs", {"metavar": "FILE"})):
        parser.add_argument(name, **options)
    args = parser.parse_args()
    try:
        head, nodes, moves, counts = read(open(args.certificate, encoding="utf-8", newline="\n").read())
        found = play(head, nodes, moves)
        demand(found == counts, f"reads, writes, computed, peak are {found}; the certificate says {counts}")
        seeds = [args.seed + "+" * k for k in range(1 if args.inputs else min(8, 1 + 200_000 // max(1, len(nodes))))]
        difference = head["problem"] != "none" and max(compare(head["problem"], nodes, s, args.inputs) for s in seeds)
        print("{schedule} on {graph}, rules {rules}, M = {M}:".format(**head))
        print("legal, reads={} writes={} computed={} peak={} io={}".format(*found, found[0] + found[1]))
        print("no outputs to compare" if head["problem"] == "none" else f"outputs differ by {difference:.1e} at most")
    except (AssertionError, ArithmeticError) as error:
        sys.exit(print(f"refused: {error}", file=sys.stderr) or 1)
    except (ValueError, LookupError, StopIteration, OSError) as error:
        sys.exit(print(f"cannot replay {args.certificate}: {error or 'it was cut'}", file=sys.stderr) or 2)


if __name__ == "__main__":
    main()
