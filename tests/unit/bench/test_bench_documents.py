"""The documents: JSON that is read back, merged, tabulated and drawn."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_spec.errors import DocumentError
from kernels.bench.pages import write_pages
from kernels.bench.report import draw_plots, fit_table, format_table
from kernels.bench.row import Row, format_document, merge_rows, parse_document

ROW = Row(
    kernel="acme/toy.double",
    shape=(16384, 8192),
    dtype="float16",
    flush=True,
    way="cold",
    ours_us=129.5,
    spread_us=(129.0, 131.2),
    peers={"eager": 151.7, "compile": 158.1},
    ratios={"eager": 1.171, "compile": 1.221},
    references={"copy": 128.9},
    gb_per_s=4146.0,
    fraction_of_ceiling=0.976,
    max_error=3.1e-4,
    tolerance=5e-4,
    commit="0123456789ab",
)


def test_what_is_written_is_read_back() -> None:
    text = format_document({"device": "a GPU", "ceiling": 4246.123456}, [ROW])
    meta, rows = parse_document(text, "x.json")
    assert meta == {"device": "a GPU", "ceiling": 4246.0}
    assert rows == [ROW]


def test_an_infinite_error_stays_valid_json() -> None:
    text = format_document({}, [replace(ROW, max_error=float("inf"))])
    assert json.loads(text)["rows"][0]["max_error"] is None
    assert "Infinity" not in text


def test_keys_of_later_versions_are_passed_over() -> None:
    document = json.loads(format_document({}, [ROW]))
    document["rows"][0]["colour"] = "green"
    assert parse_document(json.dumps(document), "x.json")[1] == [ROW]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "not JSON"),
        ("{'meta': 1}", "not JSON"),
        ('{"meta": {}, "rows": [], "rows": []}', "rows: given twice"),
        ('{"meta": {}, "rows": NaN}', "NaN is not JSON"),
        ("[]", "expected an object, found an array"),
        ("{}", "rows: is required"),
        ('{"meta": [], "rows": {}}', "meta: expected an object, found an array"),
        ('{"meta": {}, "rows": [7]}', r"rows\[0\]: expected an object, found a whole number"),
        ('{"meta": {}, "rows": [{"kernel": "x"}]}', r"rows\[0\].ours_us: is required"),
    ],
)
def test_another_document_is_named(text: str, fault: str) -> None:
    with pytest.raises(DocumentError, match=r"(?s)x\.json: expected a benchmark's JSON.*" + fault):
        parse_document(text, "x.json")


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("kernel", None, "rows[0].kernel: expected a text, found null"),
        ("shape", "4x4", "rows[0].shape: expected an array, found a text"),
        ("shape", [4, "4"], "rows[0].shape[1]: expected a whole number, found a text"),
        ("flush", "yes", "rows[0].flush: expected true or false, found a text"),
        ("way", "hot", "rows[0].way: expected cold or warm or loop, found 'hot'"),
        ("way", ["cold"], "rows[0].way: expected cold or warm or loop, found ['cold']"),
        ("ours_us", True, "rows[0].ours_us: expected a number, found true or false"),
        ("ours_us", -1.0, "rows[0].ours_us: expected zero or more, and finite, found -1.0"),
        ("gb_per_s", 10**400, "rows[0].gb_per_s: expected zero or more, and finite"),
        ("spread_us", [1.0], "rows[0].spread_us: expected 2 values, found 1"),
        ("peers", {"eager": "fast"}, "rows[0].peers.eager: expected a number, found a text"),
        ("ratios", [1.0], "rows[0].ratios: expected an object, found an array"),
        ("wrong", "ours", "rows[0].wrong: expected an array, found a text"),
        ("commit", 7, "rows[0].commit: expected a text, found a whole number"),
    ],
)
def test_every_value_of_a_row_is_looked_at(key: str, value: object, fault: str) -> None:
    document = json.loads(format_document({}, [ROW]))
    document["rows"][0][key] = value
    document["rows"].append({"kernel": 1})
    with pytest.raises(DocumentError) as caught:
        parse_document(json.dumps(document), "x.json")
    assert fault in str(caught.value)
    assert "rows[1].kernel: expected a text" in str(caught.value)


def test_an_infinite_error_is_read_back_and_shown() -> None:
    far = replace(ROW, max_error=float("inf"), wrong=("ours: error inf, allowed 0.0005",))
    [read] = parse_document(format_document({}, [far]), "x.json")[1]
    assert read == far
    assert "inf WRONG" in format_table([read])


def test_the_guide_describes_every_key_of_a_row() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "benchmark.md").read_text()
    section = guide.partition("## The JSON")[2].partition("\n## ")[0]
    described = [
        name
        for cell in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", cell)
    ]
    assert sorted(described) == sorted(json.loads(format_document({}, [ROW]))["rows"][0])


def test_a_new_measurement_replaces_the_old_one_of_the_same_call() -> None:
    other = replace(ROW, way="warm")
    newer = replace(ROW, ours_us=100.0, commit="fedcba987654")
    assert merge_rows([ROW, other], [newer]) == [newer, other]


def test_a_table_names_the_fastest_peer() -> None:
    heading, ruler, line = format_table([ROW]).splitlines()
    assert set(ruler) <= set("|- ")
    assert len(heading) == len(line)
    for word in (
        "double",
        "16384 x 8192",
        "float16",
        "129.5",
        "129 to 131.2",
        "eager 151.7",
        "1.17",
        "0.98",
    ):
        assert word in line
    assert "WRONG" in format_table([replace(ROW, wrong=("ours: far off",))])
    alone = format_table([replace(ROW, peers={}, ratios={}, ours_us=20480.4)])
    assert "| -" in alone
    assert "20480 " in alone


def test_the_best_peer_is_the_best_round_by_round() -> None:
    level = replace(
        ROW, peers={"eager": 10.0, "compile": 10.1}, ratios={"eager": 1.1, "compile": 1.0}
    )
    assert level.best_peer == "compile"
    assert "| compile 10.1 | 1.00 " in format_table([level])
    assert replace(level, ratios={}).best_peer == "eager"


@pytest.mark.parametrize("width", [200, 120, 90, 80, 60, 1])
@pytest.mark.parametrize("wrong", [(), ("ours: far off",)])
def test_a_narrow_terminal_gets_fewer_columns_and_no_broken_lines(
    width: int, wrong: tuple[str, ...]
) -> None:
    table, left_out = fit_table([ROW, replace(ROW, wrong=wrong)], width)
    lines = table.splitlines()
    heading = lines[0]
    assert max(map(len, lines)) <= max(width, 78)
    assert all(name not in heading for name in left_out)
    assert all(word in heading for word in ("op", "shape", "way", "ours µs", "best peer"))
    assert ("WRONG" in table) is bool(wrong)
    assert (heading.startswith("|")) is (not left_out and width == 200)


def test_a_plot_appears_whole(tmp_path: Path) -> None:
    place = tmp_path / "plot.png"
    draw_plots([ROW, replace(ROW, way="warm"), replace(ROW, way="loop")], place, title="A GPU")
    assert place.read_bytes().startswith(b"\x89PNG")
    # matplotlib keeps its fonts below the home directory.
    assert [path for path in tmp_path.iterdir() if path.name != "home"] == [place]


def test_pages_show_every_kernel(tmp_path: Path) -> None:
    rows = [ROW, replace(ROW, kernel="acme/other.half", commit=None)]
    meta = {
        "acme/toy": {
            "device": "a GPU",
            "driver": "580",
            "torch": "2.11",
            "ceiling_gb_per_s": 4246.0,
        }
    }
    write_pages(tmp_path / "h200", meta, rows)
    page = (tmp_path / "h200.md").read_text()
    assert "## acme/toy\n\na GPU, driver 580, torch 2.11, a copy moved 4246 GB/s" in page
    assert "Commit: 0123456789ab." in page
    assert "## acme/other" in page
    assert "Commit: unknown." in page
    assert "(h200.svg)" in page
    assert parse_document((tmp_path / "h200.json").read_text(), "h200.json")[0] == meta
    written = sorted(path.name for path in tmp_path.iterdir() if path.name != "home")
    assert written == ["h200.json", "h200.md", "h200.svg"]
