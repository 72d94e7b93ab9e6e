#!/usr/bin/env python3
"""Writes the seed corpora beside this script: corpus/npy, corpus/safetensors and corpus/trace.

Names start with ok_ where redblue must read the file, bad_ where it must refuse it; corpus_test.cpp checks that.
Files named fuzz_* are findings of the fuzzers, kept by hand; this script leaves them alone.
Standard library only; the same bytes every time.
"""
import json
import struct
from pathlib import Path

HERE = Path(__file__).resolve().parent / "corpus"


def npy(header, data, version=1, length=None):
    """A file of format `version` with the header text as given, padded so that the data is aligned to 64."""
    size = 2 if version == 1 else 4
    text = header.encode("utf-8")
    text += b" " * (63 - (8 + size + len(text)) % 64) + b"\n"
    length = len(text) if length is None else length
    return b"\x93NUMPY" + bytes([version, 0]) + length.to_bytes(size, "little") + text + data


def head(descr="<f4", fortran="False", shape="(2, 3)"):
    return f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}"


def npy_files():
    f4 = struct.pack("<6f", *range(6))
    f4_big = struct.pack(">6f", *range(6))
    f8 = struct.pack("<6d", *range(6))
    f2 = struct.pack("<6e", *range(6))
    bf16 = b"".join(struct.pack("<f", x)[2:] for x in range(6))
    ok = {
        "v1_f4": npy(head(), f4),
        "v2_f4": npy(head(), f4, 2),
        "v3_f4": npy(head(), f4, 3),
        "f8": npy(head("<f8"), f8),
        "f2": npy(head("<f2"), f2),
        "bf16": npy(head("<V2"), bf16),
        "bf16_void": npy(head("|V2"), bf16),
        "native": npy(head("=f4"), f4),
        "unmarked": npy(head("f4"), f4),
        "bar": npy(head("|f4"), f4),
        "big_f4": npy(head(">f4"), f4_big),
        "big_f8": npy(head(">f8"), struct.pack(">6d", *range(6))),
        "big_f2": npy(head(">f2"), struct.pack(">6e", *range(6))),
        "fortran": npy(head(fortran="True"), f4),
        "fortran_big_v3": npy(head(">f4", "True"), f4_big, 3),
        "scalar": npy(head(shape="()"), f4[:4]),
        "vector": npy(head(shape="(6,)"), f4),
        "rank4": npy(head(shape="(1, 2, 1, 3)"), f4),
        "rank4_fortran": npy(head(fortran="True", shape="(1, 2, 1, 3)"), f4),
        "empty": npy(head(shape="(0, 3)"), b""),
        "empty_large": npy(head(shape="(0, 1000000000)"), b""),
        "long": npy(head(shape="(2L, 3L)"), f4),
        "double_quotes": npy(head().replace("'", '"'), f4),
        "other_order": npy("{'shape': (2, 3), 'fortran_order': False, 'descr': '<f4'}", f4),
        "misaligned": b"\x93NUMPY\1\0" + struct.pack("<H", len(head("<f8"))) + head("<f8").encode() + f8,
    }
    bad = {
        "nothing": b"",
        "magic": b"\x93NUMPZ" + npy(head(), f4)[6:],
        "magic_only": b"\x93NUMPY",
        "v0": npy(head(), f4, 1)[:6] + b"\0" + npy(head(), f4)[7:],
        "v4": npy(head(), f4, 4),
        "minor": b"\x93NUMPY\1\1" + npy(head(), f4)[8:],
        "length_past_end": npy(head(), f4, 1, 60000),
        "length_huge": npy(head(), f4, 2, 2**32 - 1),
        "length_short": npy(head(), f4, 1, 20),
        "data_short": npy(head(), f4[:-1]),
        "data_long": npy(head(), f4 + b"x"),
        "no_shape": npy("{'descr': '<f4', 'fortran_order': False}", f4),
        "no_descr": npy("{'shape': (6,), 'fortran_order': False}", f4),
        "twice": npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (6,)}", f4),
        "unknown_key": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'x': 1}", f4),
        "after": npy(head() + " x", f4),
        "negative": npy(head(shape="(-2, -3)"), f4),
        "overflow": npy(head(shape="(4294967296, 4294967296)"), f4),
        "overflow_empty": npy(head(shape="(0, 4294967296, 4294967296)"), b""),
        "overflow_bytes": npy(head(shape="(4611686018427387904,)"), f4),
        "too_large": npy(head(shape="(99999999999999999999,)"), f4),
        "number_shape": npy(head(shape="(6)"), f4),
        "real_shape": npy(head(shape="(6.0,)"), f4),
        "list_shape": npy(head(shape="[2, 3]"), f4),
        "not_boolean": npy(head(fortran="0"), f4),
        "int": npy(head("<i4"), f4),
        "complex": npy(head("<c8"), f4),
        "object": npy(head("|O"), f4),
        "big_void": npy(head(">V2"), bf16),
        "record": npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,)}", f4),
        "open_string": npy("{'descr': '<f4, ", f4),
        "open_dict": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (6,", f4),
        "nul": npy(head().replace(", }", ",\0}"), f4),
        "utf8": npy(head("<f4\u00e9"), f4, 3),
    }
    return ok, bad


def safetensors(header, data, length=None):
    """A file with the header (a dict, or text as it shall stand), padded to 8 when it is a dict."""
    if isinstance(header, str):
        text = header.encode("utf-8", "surrogateescape")
    else:
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
    length = len(text) if length is None else length
    return length.to_bytes(8, "little") + text + data


def info(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_files():
    data = bytes(range(24))
    one = {"q": info("F32", [2, 3], 0, 24)}
    text = json.dumps(one)
    ok = {
        "f32": safetensors(one, data),
        "f64": safetensors({"q": info("F64", [3], 0, 24)}, data),
        "f16": safetensors({"q": info("F16", [3, 4], 0, 24)}, data),
        "bf16": safetensors({"q": info("BF16", [3, 4], 0, 24)}, data),
        "two": safetensors({"k": info("F32", [2], 0, 8), "q": info("F64", [2], 8, 24)}, data),
        "out_of_order": safetensors({"q": info("F64", [2], 8, 24), "k": info("F32", [2], 0, 8)}, data),
        "metadata": safetensors({"__metadata__": {"format": "pt"}, **one}, data),
        "no_tensors": safetensors({}, b""),
        "metadata_only": safetensors({"__metadata__": {}}, b""),
        "scalar": safetensors({"q": info("F32", [], 0, 4)}, data[:4]),
        "empty": safetensors({"q": info("F32", [0, 3], 0, 0)}, b""),
        "empties": safetensors({"a": info("F32", [0], 0, 0), **one, "z": info("F32", [0], 24, 24)}, data),
        "ints": safetensors({"lengths": info("I64", [3], 0, 24)}, data),
        "half_bytes": safetensors({"q": info("F4", [6, 8], 0, 24)}, data),
        "unknown_dtype": safetensors({"a": info("X3", [7], 0, 8), "q": info("F64", [2], 8, 24)}, data),
        "misaligned": safetensors(text + " " * ((3 - len(text)) % 8), data),
        "misaligned_inside": safetensors({"a": info("U8", [3], 0, 3), "q": info("F32", [2], 3, 11)}, data[:11]),
        "extra_field": safetensors({"q": {**one["q"], "note": [1, {"a": None}]}}, data),
        "unicode_name": safetensors({"\u00e9\n": info("F32", [2, 3], 0, 24)}, data),
        "empty_name": safetensors({"": info("F32", [2, 3], 0, 24)}, data),
    }
    bad = {
        "nothing": b"",
        "short": b"\x10\0\0\0\0\0\0",
        "length_past_end": safetensors(one, data, 1000),
        "length_100mb": safetensors(one, data, 100_000_001),
        "length_max": safetensors(one, data, 2**64 - 1),
        "length_zero": safetensors(one, data, 0),
        "length_short": safetensors(one, data, 20),
        "bom": safetensors("\ufeff" + text, data),
        "space_first": safetensors(" " + text, data),
        "list": safetensors("[]", b""),
        "trailing_text": safetensors(text + "x", data),
        "text_after_nul": safetensors(text + "\0x", data),
        "padded_with_nul": safetensors(text + "\0" * (-len(text) % 8), data),
        "not_utf8": safetensors(text.replace("q", "\udcff"), data),
        "duplicate": safetensors(text[:-1] + ", " + text[1:], data),
        "duplicate_field": safetensors(text.replace('"shape"', '"dtype": "F32", "shape"'), data),
        "duplicate_metadata": safetensors('{"__metadata__":{"a":"1","a":"2"}}', b""),
        "metadata_number": safetensors({"__metadata__": {"a": 1}}, b""),
        "metadata_list": safetensors({"__metadata__": []}, b""),
        "no_dtype": safetensors({"q": {"shape": [2, 3], "data_offsets": [0, 24]}}, data),
        "no_offsets": safetensors({"q": {"dtype": "F32", "shape": [2, 3]}}, data),
        "tensor_list": safetensors({"q": [1]}, data),
        "dtype_number": safetensors({"q": info(4, [2, 3], 0, 24)}, data),
        "shape_number": safetensors({"q": info("F32", 6, 0, 24)}, data),
        "shape_negative": safetensors({"q": info("F32", [-2, -3], 0, 24)}, data),
        "shape_real": safetensors({"q": info("F32", [2.0, 3], 0, 24)}, data),
        "shape_string": safetensors({"q": info("F32", ["2", 3], 0, 24)}, data),
        "shape_overflow": safetensors({"q": info("F32", [2**32, 2**32], 0, 24)}, data),
        "shape_2_to_63": safetensors({"q": info("F32", [2**63], 0, 24)}, data),
        "shape_2_to_64": safetensors({"q": info("F32", [2**64], 0, 24)}, data),
        "offsets_three": safetensors({"q": {**one["q"], "data_offsets": [0, 24, 24]}}, data),
        "offsets_backwards": safetensors({"q": info("F32", [2, 3], 24, 0)}, data),
        "offsets_negative": safetensors({"q": info("F32", [2, 3], -24, 0)}, data),
        "offsets_past_end": safetensors({"q": info("F32", [2, 4], 0, 32)}, data),
        "size": safetensors({"q": info("F32", [2, 2], 0, 24)}, data),
        "size_half_bytes": safetensors({"q": info("F4", [47], 0, 24)}, data),
        "overlap": safetensors({"a": info("F32", [4], 0, 16), "q": info("F32", [4], 8, 24)}, data),
        "same": safetensors({"a": info("F32", [6], 0, 24), "q": info("F32", [6], 0, 24)}, data),
        "hole": safetensors({"a": info("F32", [2], 0, 8), "q": info("F32", [2], 16, 24)}, data),
        "hole_first": safetensors({"q": info("F32", [4], 8, 24)}, data),
        "hole_last": safetensors({"q": info("F32", [4], 0, 16)}, data),
        "no_tensor_for_data": safetensors({}, data),
        "deep": safetensors('{"a":' + "[" * 100 + "]" * 100 + "}", b""),
        "huge_number": safetensors('{"a":1e999}', b""),
        "open": safetensors(text[:-3], data),
    }
    return ok, bad


SCORES = "scores(scale=0.5,lo=-inf,hi=1,prefix=0,group=1,row=0,col=0)"
T1, T2, T3 = "t0[0:2,0:2]", "t1[0:2,0:2]", "t2[0:2,0:2]"


def with_tiles(*lines, tiles=3):
    """The lines between the birth of tiles of 2x2, which are filled with zeros, and their end."""
    opened = [line for t in range(tiles) for line in (f"open t{t} 2x2", f"compute zero t{t}[0:2,0:2]")]
    closed = [f"close t{t} 2x2" for t in reversed(range(tiles))]
    return [*opened, *lines, *closed]


def trace(lines):
    return "\n".join(["# redblue.trace/2", *lines, ""]).encode("utf-8", "surrogateescape")


def trace_files():
    ok = {
        "nothing": [],
        "comment": ["# open t0 2x2", ""],
        "steps": ["step 0", "step 1", "step 9223372036854775807"],
        "tile": ["open t0 8x8", "close t0 8x8"],
        "layouts": ["open t0 2x2 read_only", "open t1 2x2 key_panels", "close t1 2x2", "close t0 2x2"],
        "empty_tile": ["open t0 3x0", "compute zero t0[0:3,0:0]", "close t0 3x0"],
        "moves": ["open t0 8x8", "read t0[0:8,0:8] Q#0[0:8,0:8]", "write O#0[0:8,0:8] t0[0:8,0:8]", "close t0 8x8"],
        "part": with_tiles("read t0[1:2,0:1] K#0[7:8,7:8]", "write dK#0[0:1,3:4] t0[0:1,1:2]"),
        "every_array": with_tiles(*(f"read {T1} {a}#0[0:2,0:2]" for a in ["Q", "lse", "S", "D", "A1X", "WQ", "Z", "lse_g", "dQg"])),
        "stream": with_tiles(f"compute {SCORES} {T1} {T2} K#0[3:5,0:2]"),
        "gemm": with_tiles(*(f"compute gemm(transpose_a={a},transpose_b={b}) {T1} {T2} {T3}" for a in "01" for b in "01")),
        "gemm_transposed": ["open t0 2x3", "open t1 4x2", "compute zero t1[0:4,0:2]",
                            "update gemm_over(transpose_a=1,transpose_b=1,first=1,lo=-inf,hi=inf,prefix=0,group=1,row=0,col=0) "
                            "dK#0[0:2,0:2] t1[0:4,0:2] V#0[0:2,0:4]", "close t1 4x2", "close t0 2x3"],
        "update": ["update zero_over(first=1) S#0[0:8,0:8]", "update zero_over(first=0) S#0[1:2,0:0]"],
        "softmax": ["open t0 2x2", "open t1 2x2", "open t2 2x1", "open t3 2x1",
                    "compute softmax_init t1[0:2,0:2] t2[0:2,0:1] t3[0:2,0:1]",
                    f"compute {SCORES} t0[0:2,0:2] Q#0[0:2,0:8] K#0[0:2,0:8]",
                    "compute online_softmax t0[0:2,0:2] t1[0:2,0:2] t2[0:2,0:1] t3[0:2,0:1]",
                    "compute divide_rows t1[0:2,0:2] t3[0:2,0:1]", "compute log_sum t2[0:2,0:1] t3[0:2,0:1]",
                    "close t3 2x1", "close t2 2x1", "close t1 2x2", "close t0 2x2"],
        "weights": with_tiles("compute weights(score=3,scale=-1e300) t0[0:2,0:2] lse#0[0:2,0:1]",
                              "compute score_gradient(score=0,scale=2,lo=-6,hi=-2,prefix=1,group=2,row=5,col=1) "
                              "t0[0:2,0:2] t1[0:2,0:2] D#0[0:2,0:1]"),
        "mask_far": with_tiles(f"compute {SCORES.replace('hi=1', 'hi=-4503599627370495')} {T1} {T2} {T3}"),
        "scale_nan": with_tiles(f"compute scale(factor=nan) {T1}", f"compute scale(factor=-inf) {T1}"),
        "long_and_empty": ["open t0 1000000000000x0", "close t0 1000000000000x0"],
    }
    bad = {
        "text": ["what is this"],
        "space": [" open t0 2x2", "close t0 2x2"],
        "trailing": ["open t0 2x2 ", "close t0 2x2"],
        "carriage_return": ["open t0 2x2\r", "close t0 2x2\r"],
        "nul": ["open t0 2x2\0", "close t0 2x2"],
        "open_end": ["open t0 2x2"],
        "open_again": ["open t0 2x2", "open t0 2x2", "close t0 2x2", "close t0 2x2"],
        "open_later": ["open t1 2x2", "close t1 2x2"],
        "open_negative": ["open t-1 2x2"],
        "open_size": ["open t0 -2x2", "close t0 -2x2"],
        "open_overflow": ["open t0 4294967296x4294967296", "close t0 4294967296x4294967296"],
        "open_large": ["open t0 9223372036854775808x1"],
        "open_too_large": ["open t0 16x16", "open t1 16x16", "open t2 1x1", "close t2 1x1", "close t1 16x16", "close t0 16x16"],
        "layout": ["open t0 2x2 diagonal", "close t0 2x2"],
        "close_first": ["close t0 2x2"],
        "close_order": ["open t0 2x2", "open t1 2x2", "close t0 2x2", "close t1 2x2"],
        "close_shape": ["open t0 2x2", "close t0 2x3"],
        "step_negative": ["step -1"],
        "many_words": [f"open t{t} 2147483648x2147483647" for t in range(3)] + [f"close t{t} 2147483648x2147483647" for t in (2, 1, 0)],
        "much_moved": ["update zero_over(first=1) S#0[0:2147483648,0:2147483647]"] * 3,
        "read_no_tile": ["read t0[0:2,0:2] Q#0[0:2,0:2]"],
        "read_outside_tile": with_tiles("read t0[1:3,0:2] Q#0[0:2,0:2]"),
        "read_outside_array": with_tiles("read t0[0:2,0:2] Q#0[7:9,0:2]"),
        "read_instance": with_tiles("read t0[0:2,0:2] Q#1[0:2,0:2]"),
        "read_shape": with_tiles("read t0[0:2,0:2] Q#0[0:2,0:1]"),
        "read_backwards": with_tiles("read t0[2:0,0:2] Q#0[2:0,0:2]"),
        "read_overflow": with_tiles("read t0[-9223372036854775808:9223372036854775807,0:2] Q#0[0:2,0:2]"),
        "read_turned": with_tiles("read Q#0[0:2,0:2] t0[0:2,0:2]"),
        "read_alone": with_tiles("read t0[0:2,0:2]"),
        "read_array": with_tiles("read t0[0:2,0:2] W#0[0:2,0:2]"),
        "write_tiles": with_tiles(f"write {T1} {T2}"),
        "kernel": with_tiles(f"compute nothing {T1}"),
        "kernel_arguments": with_tiles(f"compute zero {T1} {T2}"),
        "kernel_shapes": with_tiles("compute add t0[0:2,0:2] t1[0:2,0:1]"),
        "kernel_transposed": ["open t0 2x2", "open t1 3x2", "open t2 3x2",
                              "compute gemm(transpose_a=0,transpose_b=0) t0[0:2,0:2] t1[0:3,0:2] t2[0:3,0:2]",
                              "close t2 3x2", "close t1 3x2", "close t0 2x2"],
        "kernel_streamed_output": ["compute zero S#0[0:2,0:2]"],
        "kernel_statistics": ["open t0 2x3", "open t1 2x3", "compute statistics_init t0[0:2,0:3] t1[0:2,0:3]",
                              "close t1 2x3", "close t0 2x3"],
        "kernel_empty_statistics": ["open t0 3x0", "compute log t0[0:3,0:0]", "close t0 3x0"],
        "update_tile": with_tiles(f"update zero_over(first=1) {T1}"),
        "update_plain": ["update zero S#0[0:2,0:2]"],
        "bool": ["update zero_over(first=2) S#0[0:2,0:2]"],
        "bool_nan": ["update zero_over(first=nan) S#0[0:2,0:2]"],
        "score": with_tiles("compute weights(score=4,scale=1) t0[0:2,0:2] lse#0[0:2,0:1]"),
        "score_half": with_tiles("compute weights(score=0.5,scale=1) t0[0:2,0:2] lse#0[0:2,0:1]"),
        "group": with_tiles(f"compute {SCORES.replace('group=1', 'group=0')} {T1} {T2} {T3}"),
        "offset": with_tiles(f"compute {SCORES.replace('hi=1', 'hi=1e300')} {T1} {T2} {T3}"),
        "offset_and_group": with_tiles(f"compute {SCORES.replace('hi=1,prefix=0,group=1', 'hi=-4e15,prefix=0,group=4e15')} {T1} {T2} {T3}"),
        "row": with_tiles(f"compute {SCORES.replace('row=0', 'row=-1')} {T1} {T2} {T3}"),
        "names": with_tiles(f"compute {SCORES.replace('scale', 'size')} {T1} {T2} {T3}"),
        "parameters": with_tiles(f"compute scores(scale=1) {T1} {T2} {T3}"),
    }
    return [{name: trace(lines) for name, lines in files.items()} for files in (ok, bad)]


def main():
    corpora = (("npy", npy_files()), ("safetensors", safetensors_files()), ("trace", trace_files()))
    for folder, (ok, bad) in corpora:
        (HERE / folder).mkdir(parents=True, exist_ok=True)
        for kind, files in (("ok", ok), ("bad", bad)):
            for name, content in files.items():
                (HERE / folder / f"{kind}_{name}").write_bytes(content)


if __name__ == "__main__":
    main()
