"""The table of a race: losses, failures and wrong outputs show, and the documents have what its results make."""

import copy
import json
import pathlib
import re
import sys
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import bench_table  # noqa: E402
import blocks  # noqa: E402
import masks_table  # noqa: E402

sys.path.insert(0, str(ROOT / "bench"))
import models  # noqa: E402
import shares  # noqa: E402


def test_documents_show_what_the_results_make():
    shown = blocks.read("docs/speed.md", "bench")
    file = re.search(r"\]\(\.\./(bench/results/[^)]*)\)", shown)[1]
    assert shown == bench_table.table(file)
    assert blocks.read("README.md", "speed") == bench_table.three_rows(file)


def test_the_table_of_masks_is_what_its_results_make():
    shown = blocks.read("docs/speed.md", "masks")
    assert shown == masks_table.table(re.search(r"\]\(\.\./(bench/results/[^)]*)\)", shown)[1])


def test_the_table_of_shares_is_what_its_results_make():
    shown = blocks.read("docs/speed.md", "shares")
    assert shown == shares.table(re.search(r"\]\(\.\./(bench/results/[^)]*)\)", shown)[1])


def test_the_table_of_models_is_what_its_results_make():
    shown = blocks.read("docs/speed-models.md", "models")
    assert shown == models.table(re.search(r"\]\(\.\./(bench/results/[^)]*)\)", shown)[1])


def test_every_result_is_shown_by_a_document():
    pages = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    assert [file.name for file in (ROOT / "bench/results").glob("*.json") if file.name not in pages] == []


def test_shares_below_the_aim_are_bold(tmp_path, monkeypatch):
    monkeypatch.setattr(shares, "ROOT", tmp_path)
    e = {"cell": "window", "op": "forward", "d": 64, "threads": 1, "tile_share": 0.84, "pair_share": 0.9, "time": 0.5}
    results = [
        {**e, "aim": ["tile_share", 0.85]},
        {**e, "d": 128, "aim": ["pair_share", 0.9]},
        {**e, "cell": "decode", "aim": None},
    ]
    about = dict.fromkeys(["command", "commit", "date", "cpu", "cpus", "compiler", "flags", "n", "heads"], "x")
    (tmp_path / "r.json").write_text(json.dumps({"schema": shares.SCHEMA, **about, "results": results}))
    text = shares.table("r.json").splitlines()
    assert "| window | **84 %, 90 %**, 0.50 | 84 %, 90 %, 0.50 |" in text
    assert "| decode | 84 %, 90 %, 0.50 |  |" in text
    assert "1 of 2 cells reach it" in " ".join(text)


def test_models_that_lose_are_bold_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "ROOT", tmp_path)
    e = {"model": "BERT", "what": "16 texts", "when": "unseen", "ratio": 0.994, "redblue_cpu_s": 2, "sdpa_cpu_s": 1.99}
    e |= {"redblue_wall_s": 9, "sdpa_wall_s": 8, "sdpa_share": 0.05, "redblue_share": 0.061}
    first = {k: x for k, x in e.items() if not k.endswith("share")} | {"what": "first call", "when": "process", "ratio": 1.5}
    about = dict.fromkeys(["command", "commit", "date", "cpu", "cpus", "versions"], "x")
    about |= {"type": "fp32", "threads": 1}
    e |= {"commit": "x", "load_average": 1}
    first |= {"commit": "y", "load_average": 2}
    results = []
    for row in (e, {**e, "when": "warm", "ratio": 5, "sdpa_cpu_s": 0.0125}, first, {**e, "when": "warm", "ratio": 1.25, "sdpa_cpu_s": 0.0125}):
        models.put(results, row)
    (tmp_path / "r.json").write_text(json.dumps({"schema": models.SCHEMA, **about, "results": results}))
    text = models.table("r.json").splitlines()
    assert "| BERT | 16 texts, unseen lengths | 2000 | 1990 | **0.99** | 5 %, 6 % |" in text
    assert "| BERT | 16 texts, again | 2000 | 12.5 | 1.25 | 5 %, 6 % |" in text
    assert "| BERT | first call | 2000 | 1990 | 1.50 |  |" in text
    for said in ("in 1 of 3 rows", ", 1 rows of them again at commit y", "Load averages: 1.0 to 2.0"):
        assert said in " ".join(text)


def test_models_are_timed_by_the_clock_of_their_threads():
    seconds = {"redblue": [(1, 4), (3, 6)], "sdpa": [(2, 4), (3, 12)], "rest": [(1, 2), (1, 3)]}
    row = types.SimpleNamespace(model="m", what="w")
    cpu, wall = models.entry(row, "warm", seconds, 0.0, False), models.entry(row, "warm", seconds, 0.0, True)
    assert (cpu["ratio"], wall["ratio"]) == (1.5, 1.5) and cpu["quartiles"] == [1, 2]
    assert (cpu["redblue_cpu_s"], cpu["redblue_wall_s"], cpu["rest_cpu_s"]) == (2, 5, 1)
    assert (cpu["redblue_share"], wall["redblue_share"], cpu["sdpa_share"]) == (0.5, 0.5, 0.6)


def test_models_with_other_outputs_fail():
    torch = pytest.importorskip("torch")
    x = torch.tensor([[1.0, -2.0]])
    assert models.error_of([x], [x + 0.5]) == pytest.approx(0.5 / 1.5)
    assert not models.error_of([x * float("nan"), x], [x, x]) <= 1e9
    with pytest.raises(models.Different, match="tokens"):
        models.error_of([torch.tensor([1, 2])], [torch.tensor([1, 3])])


def test_visited_tiles_lie_on_multiples_of_64():
    cells = {c.name: c for c in shares.cells(256)}
    assert cells["causal window"].tiles == (4 + 3) * 64 * 64  # 32 keys back: each diagonal tile, and the one before
    assert cells["window"].tiles == (4 + 3 + 3) * 64 * 64
    assert cells["decode, window"].pairs == 512 == cells["decode, window"].tiles


def test_a_cell_under_a_mask_shows_its_nearest_peer_and_losses():
    e = {"cell": "window", "gflops": 80.4, "share": 0.9, "peers": {"a": {"ratio": 0.5, "agrees": True}, "b": {"failed": "x"}}}
    assert masks_table.text_of(e) == "80 (90 %), **0.50 a**"
    e["peers"]["a"] = {"ratio": 2.0, "agrees": False}
    assert masks_table.text_of(e) == "80 (90 %), 2.00 a, outputs differ"
    assert masks_table.text_of({**e, "cell": "full", "peers": {}}) == "80"


def entry(peer, d, redblue_ms, peer_ms, **more):
    """n = 100, so flops are 4e4 d, and GFLOP/s 4e-2 d over milliseconds."""
    return {
        "op": "forward",
        "dtype": "f32",
        "n": 100,
        "d": d,
        "heads": 1,
        "causal": False,
        "peer": peer,
        "threads": 1,
        "redblue_gflops": 4e-2 * d / redblue_ms,
        "ratio": peer_ms / redblue_ms,
        "agrees": True,
        **more,
    }


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Peer a is twice as slow at d = 25 and at d = 50; b wins at d = 50. The peak is 4 GFLOP/s."""
    monkeypatch.setattr(bench_table, "ROOT", tmp_path)
    worker = {"threads": 1, "hardware": {"peaks": [{"dtype": "f32", "flops": 4e9}, {"dtype": "f64", "flops": 9e9}]}}
    return {
        "context": {
            "command": "race.py --quick",
            "commit": "0123abc",
            "date": "2026-01-02T03:04:05Z",
            "machine": {"cpu": "a processor", "cpus": 2},
            "redblue": {"compiler": "a compiler", "flags": "-O3"},
        },
        "workers": [{"peer": "a", "about": "Peer A 1.0", **worker}, {"peer": "b", "about": "Peer B", **worker}],
        "results": [
            entry("a", 25, 1, 2),
            entry("b", 25, 1, 3),
            entry("a", 50, 1, 2),
            entry("b", 50, 1, 0.5),
        ],
    }


def lines(results):
    (bench_table.ROOT / "r.json").write_text(json.dumps(results))
    return bench_table.table("r.json").splitlines()


def test_a_cell_shows_rate_share_and_the_nearest_peer(results):
    assert "| 1 | f32 | forward | 100 | 1 (25 %), 2.00 a | 2 (50 %), **0.50 b** |" in lines(results)


def test_summary_counts_wins_and_takes_geometric_means(results):
    text = lines(results)
    assert "| Peer A 1.0 | 2 | 2 | 2.00 | 2.00 |" in text
    assert "| Peer B | 2 | 1 | 1.22 | 0.50 |" in text  # sqrt(3 / 2)
    assert "| the best peer of each cell | 2 | 1 | 1.00 | 0.50 |" in text


def test_where_it_comes_from_is_said(results):
    head = " ".join(lines(results)[:2])
    for what in ("r.json", "race.py --quick", "0123abc", "2026-01-02", "a processor", "a compiler", "-O3"):
        assert what in head


def test_what_went_wrong_is_said(results):
    bad = copy.deepcopy(results)
    bad["results"][0]["agrees"] = False
    bad["results"][2] = entry("a", 50, 1, 2) | {"failed": "no memory"}
    text = lines(bad)
    assert "| 1 | f32 | forward | 100 | 1 (25 %), 2.00 a, outputs differ | 2 (50 %), **0.50 b** |" in text
    assert text[-1] == "1 cells beside a failed: no memory"


def test_readme_has_a_row_for_each_kind_of_work(results):
    backward = [entry("a", 25, 1, 0.25, op="backward"), entry("a", 50, 1, 1, op="backward", failed="no memory")]
    results["results"] += backward
    (bench_table.ROOT / "r.json").write_text(json.dumps(results))
    text = bench_table.three_rows("r.json").splitlines()
    # The peers nearest to redblue take 2 and 0.5 times its time; it reaches 1 and 2 of 4 GFLOP/s.
    assert ": 1 heads, n = 100, d = 25 and 50, 1 threads. Times" in text[0]
    assert text[-2:] == [
        "| forward f32 | 38 % |  | 1.00 (0.50) | in 1 of 2 cells |",
        "| backward f32 | 25 % |  | 0.25 (0.25) | in 0 of 1 cells |",
    ]


def test_readme_names_pytorch(results):
    results["results"] += [entry("pytorch", 25, 1, 4), entry("pytorch", 50, 1, 1)]
    (bench_table.ROOT / "r.json").write_text(json.dumps(results))
    assert "| forward f32 | 38 % | 2.00 (1.00) | 1.00 (0.50) | in 1 of 2 cells |" in bench_table.three_rows("r.json")


def test_rows_that_a_quick_race_left_out_are_empty(results):
    results["results"].append(entry("a", 25, 1, 2, n=200))
    assert "| 1 | f32 | forward | 200 | 1 (25 %), 2.00 a |  |" in lines(results)
