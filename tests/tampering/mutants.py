"""Mutants of certificates of the pebble game: each field, each kind of move, cuts and noise, signed again or not."""

import re
import zlib

MOVES_OF_LINE = 20
OPS = ["input", "unknown", "constant", "copy", "sum", "difference", "product", "quotient", "multiply_add", "maximum", "exp",
       "log", "formula"]
RULES = ["place", "place once", "slide", "slide once", "partial", "place unused-inputs", "place once processors=2",
         "partial once", "glide", ""]


def signed(text):
    body = text.rpartition("crc32 ")[0] if "crc32 " in text else text
    return body + f"crc32 {zlib.crc32(body.encode()):08x}\n"


def parts(text):
    """The lines before the moves, the moves, the line of counts."""
    lines = text.split("\n")
    at = next(k for k, line in enumerate(lines) if line.startswith("moves "))
    return lines[:at], " ".join(lines[at + 1 : -3]).split(" "), lines[-3]


def joined(head, moves, counts, number=None):
    rows = [" ".join(moves[k : k + MOVES_OF_LINE]) for k in range(0, len(moves), MOVES_OF_LINE)]
    announced = len(moves) if number is None else number
    return signed("\n".join([*head, f"moves {announced}", *rows, counts, "crc32 "]))


def other_number(text, rng):
    return str(rng.choice([int(text) + 1, max(0, int(text) - 1), int(text) * 10, rng.randrange(100), 10**20]))


def field_of_head(text, rng):
    head, moves, counts = parts(text)
    k = rng.randrange(7)
    key, _, value = head[k].partition(" ")
    how = rng.randrange(4)
    if how == 0:  # gone, twice, or in another place
        head[k : k + 1] = rng.choice([[], [head[k]] * 2, [head[k + 1], head[k]]])
    elif how == 1:  # another key
        head[k] = f"{key[1:]} {value}"
    elif key in ("M", "nodes"):
        head[k] = f"{key} {other_number(value, rng)}"
    elif key == "rules":
        head[k] = f"rules {rng.choice(RULES)}"
    elif key == "problem" and value != "none":
        words = value.split(" ")
        at = rng.randrange(len(words))
        name, mark, size = words[at].partition("=")
        if not mark:
            words[at] = rng.choice(["forward", "backward", "gradient", "none"])
        elif size.isdecimal():
            words[at] = f"{name}={other_number(size, rng)}"
        else:
            words[at] = "mask=" + rng.choice(["full", "causal", "10/01", "111/000", "0"])
        head[k] = " ".join([key, *words])
    else:  # one letter
        at = rng.randrange(len(head[k]))
        head[k] = head[k][:at] + rng.choice("0123 =xyz") + head[k][at + 1 :]
    return joined(head, moves, counts)


def field_of_node(text, rng):
    head, moves, counts = parts(text)
    number = rng.randrange(7, len(head))
    fields = head[number].split(" ", 5)
    which = rng.randrange(len(fields))
    if which == 0:
        fields[0] = rng.choice(["-", fields[0] + "'", head[rng.randrange(7, len(head))].split(" ")[0], "O[0,0]", "l[0]"])
    elif which == 1:
        fields[1] = rng.choice(OPS)
    elif which == 2:
        fields[2] = rng.choice(["0", "2", "-1", "1.5", "inf", "nan", "0.001", "x"])
    elif which == 3:
        fields[3] = "out" if fields[3] == "." else "."
    elif which == 4:
        parents = [] if fields[4] == "-" else fields[4].split(",")
        other = str(rng.randrange(len(head) - 6))
        if parents and rng.randrange(2):
            parents[rng.randrange(len(parents))] = other
        elif parents and rng.randrange(2):
            del parents[rng.randrange(len(parents))]
        else:
            parents.insert(rng.randrange(len(parents) + 1), other)
        fields[4] = ",".join(parents) or "-"
    else:
        words = fields[5].split(" ")
        words[rng.randrange(len(words))] = rng.choice(["x0", "x1", "+", "*", "-", "max", "exp", "2", "neg"])
        fields[5] = " ".join(words)
    head[number] = " ".join(fields)
    return joined(head, moves, counts)


def line_of_node(text, rng):
    head, moves, counts = parts(text)
    a, b = rng.randrange(7, len(head)), rng.randrange(7, len(head))
    how = rng.randrange(3)
    if how == 0:
        head[a], head[b] = head[b], head[a]
    else:
        head[a : a + 1] = [[], [head[a], head[b]]][how - 1]
        if rng.randrange(2):
            head[6] = f"nodes {len(head) - 7}"
    return joined(head, moves, counts)


def field_of_move(text, rng):
    head, moves, counts = parts(text)
    at = rng.randrange(len(moves))
    letter, node, parent, processor = re.fullmatch(r"(.)(\d+)(?:<(\d+))?(?:@(\d+))?", moves[at]).groups()
    which = rng.randrange(4)
    if which == 0:
        letter = rng.choice([x for x in "rwcsudx" if x != letter])
        parent = (parent or str(rng.randrange(len(head) - 7))) if letter in "su" else None
    elif which == 1:
        node = other_number(node, rng)
    elif which == 2:
        parent = None if parent and rng.randrange(3) == 0 else other_number(parent or "0", rng)
    else:
        processor = None if processor and rng.randrange(2) else str(rng.choice([1, 2, 63, 64, 10**20]))
    marks = [f"<{parent}" if parent else "", f"@{processor}" if processor else ""]
    moves[at] = letter + node + "".join(marks)
    return joined(head, moves, counts)


def list_of_moves(text, rng):
    head, moves, counts = parts(text)
    number, at = len(moves), rng.randrange(len(moves))
    how = rng.randrange(6)
    if how == 0:
        del moves[at]
    elif how == 1:
        moves.insert(at, rng.choice([moves[at], rng.choice(moves), rng.choice("rwcd") + str(rng.randrange(len(head) - 7))]))
    elif how == 2:
        moves[at - 1], moves[at] = moves[at], moves[at - 1]
    elif how == 3:
        moves.insert(rng.randrange(number), moves.pop(at))
    elif how == 4:
        moves[at : at + 5] = reversed(moves[at : at + 5])
    else:
        number += rng.choice([-1, 1])
    return joined(head, moves, counts, number if how == 5 or rng.randrange(4) == 0 else None)


def count(text, rng):
    head, moves, counts = parts(text)
    words = counts.split(" ")
    at = rng.randrange(1, 5)
    name, _, value = words[at].partition("=")
    words[at] = f"{name}={other_number(value, rng)}"
    return joined(head, moves, " ".join(words))


def exchange_of_counts(text, rng):
    """One read more and one write fewer, and the like: their sum stays."""
    head, moves, counts = parts(text)
    reads, writes = map(int, re.match(r"counts reads=(\d+) writes=(\d+)", counts).groups())
    change = rng.choice([-2, -1, 1, 2])
    rest = counts.split(" ")[3:]
    return joined(head, moves, " ".join([f"counts reads={reads + change} writes={writes - change}", *rest]))


def digest(text, rng):
    at = rng.randrange(len(text) - 9, len(text) - 1)
    return text[:at] + rng.choice([c for c in "0123456789abcdef" if c != text[at]]) + text[at + 1 :]


def cut(text, rng):
    return text[: rng.randrange(len(text))]


def cut_and_signed(text, rng):
    end = rng.randrange(text.rindex("crc32 "))
    return signed(text[: rng.choice([end, text.rfind("\n", 0, end) + 1])])


def noise(text, rng, rounds=4):
    for _ in range(rng.randrange(1, rounds)):
        at, byte = rng.randrange(len(text)), rng.choice("0123456789 \n\t<@=,.-_xrwcsud\u0663\u00e9\0")
        text = text[:at] + rng.choice([byte, byte + text[at : at + 1], ""]) + text[at + 1 :]
    return text


def noise_and_signed(text, rng):
    body = noise(text[: text.rindex("crc32 ")], rng)
    return body + f"crc32 {zlib.crc32(body.encode()):08x}\n"


def spelling(text, rng):
    """A number in other letters, or a place too many in a mask: mostly of the same value, and never as redblue writes it."""
    lines = text[: text.rindex("crc32 ")].split("\n")[:-1]
    telling = [k for k, line in enumerate(lines) if " formula " in line or "mask=" in line]
    at = rng.choice(telling or [k for k, line in enumerate(lines) if re.search("[0-9]", line)])
    numbers = list(re.finditer("[0-9]+", lines[at]))
    begin, end = rng.choice(numbers).span()
    digits = lines[at][begin:end]
    arabic = digits.translate({48 + k: 0x660 + k for k in range(10)})
    other = rng.choice(["0" + digits, "+" + digits, "-" + digits, arabic, digits + ".0", digits + "_0", "", digits + "\r"])
    lines[at] = lines[at][:begin] + other + lines[at][end:] + rng.choice(["", "", " "])
    return signed("\n".join([*lines, "crc32 "]))


MUTATORS = [field_of_head, field_of_node, line_of_node, field_of_move, list_of_moves, count, exchange_of_counts, digest, cut,
            cut_and_signed, noise, noise_and_signed, spelling]
