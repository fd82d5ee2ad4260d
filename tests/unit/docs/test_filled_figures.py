"""Cards and pages of kernels show what was measured last, all that is lost, and no figure typed by hand."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import fill_figures
import pytest
from fill_figures import FIRST, LAST, fill

from kernel_builder.card import fill_card
from kernels.bench.pages import format_page
from kernels.bench.row import Row, format_document, parse_document

ROOT = Path(__file__).parents[3]
PAGES = list(fill_figures.pages())
LEAST = 0.98  # of the best peer's speed: what counts as not slower

# Sections on runs of their own, which they name: no later measurement changes them.
HISTORY = {"What was tried", "What autograd recording costs", "Accuracy"}
MEASURED = re.compile(
    r"\d[\d.,]*\s?(?:µs|us|ms|seconds|[GT]B/s|TFLOP|%|x faster|times (?:as|the))|\b\d+\.\d{2,}\b|\d\u00d7\s"
)


@pytest.fixture(scope="module")
def document() -> tuple[dict[str, Any], list[Row]]:
    return parse_document(fill_figures.SOURCE.read_text("utf-8"), fill_figures.SOURCE)


def make_row(**changes: Any) -> Row:
    fields = {
        "kernel": "org/toy.op",
        "shape": (4, 8),
        "dtype": "float16",
        "flush": True,
        "way": "cold",
        "ours_us": 10.0,
        "peers": {"eager": 20.0, "compile": 9.0},
        "ratios": {"eager": 2.0, "compile": 0.9},
        "references": {"copy": 8.0},
        "commit": "abc1234",
        "spread_us": (9.5, 1234.0),
    }
    return Row(**(fields | changes))


META = {"org/toy": {"device": "A GPU", "torch": "9.9"}}


def table(query: str, *rows: Row) -> list[str]:
    filled = fill(f"{FIRST}{query} -->\n{LAST}\n", list(rows) or [make_row()], META)
    return [line for line in filled.splitlines() if line.startswith("| ")]


def test_every_kernel_has_a_card_of_measured_figures() -> None:
    assert {page.parent for page in PAGES} >= set((ROOT / "kernels-community").iterdir())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_are_of_what_was_measured_last(
    page: Path, document: tuple[dict[str, Any], list[Row]]
) -> None:
    meta, rows = document
    text = page.read_text("utf-8")
    assert fill(text, rows, meta) == text, "run: make docs"
    typed = re.sub(r"\| \d[\d.]* \|", "| 1.234 |", text, count=1)
    assert typed != text
    assert fill(typed, rows, meta) == text


def test_the_page_of_all_rows_is_of_the_file(document: tuple[dict[str, Any], list[Row]]) -> None:
    meta, rows = document
    page = fill_figures.SOURCE.with_suffix(".md").read_text("utf-8")
    assert page == format_page(meta, rows, "h200", plotted=True), "run: make docs"
    assert sum(line.startswith("| ") for line in page.splitlines()) == len(rows) + 2 * len(meta)


@pytest.mark.parametrize("name", ["activation", "img2gray", "triton-layer-norm"])
@pytest.mark.parametrize("place", ["kernels-community/{}/CARD.md", "docs/kernels/{}.md"])
def test_what_is_lost_is_told(name: str, place: str) -> None:
    """Read from the file once more, in another way than the tables are written."""
    rows = json.loads((ROOT / "docs/benchmarks/h200.json").read_text())["rows"]
    lost = {
        (row["kernel"].split(".", 1)[1], " x ".join(map(str, row["shape"])), row["way"])
        for row in rows
        if row["kernel"].startswith(f"kernels-community/{name}.")
        and min(row["ratios"].values()) < LEAST
    }
    text = (ROOT / place.format(name)).read_text("utf-8")
    block = next(each for each in text.split(FIRST) if f"below={LEAST} " in each).split(LAST)[0]
    assert (f"No row is below {LEAST}." in block) is (not lost)
    table = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in block.splitlines()
        if line.startswith("|")
    ]
    head, _, *lines = table or [[], []]
    told = {
        (op, cells["shape"], cells["way"])
        for cells in (dict(zip(head, line, strict=True)) for line in lines)
        for op in re.findall(r"`([^`]+)`", cells["op"])
    }
    assert told == lost


def prose(text: str) -> str:
    """Return what a page says outside of its tables of figures, code, names and goals."""
    allowed = set(re.findall(r"below=([\d.]+)", text))
    text = re.sub(rf"{FIRST}.*?{LAST}", "", text, flags=re.DOTALL)
    text = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    text = re.sub(r"\bWanted: .*?\.\s", "", text, flags=re.DOTALL)
    for number in allowed:
        text = text.replace(f"less than {number} of our time", "")
    return text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_states_no_measured_figure_by_hand(page: Path) -> None:
    text = page.read_text("utf-8")
    if page.name == "CARD.md":  # the rest of a card is formulas and bounds
        sections = ["Speed" + text.split("## Speed", 1)[1].split("\n## ")[0]]
    else:
        sections = text.split("\n## ")
    found = [
        match[0]
        for section in sections
        if section.partition("\n")[0] not in HISTORY
        for match in MEASURED.finditer(prose(section))
    ]
    assert found == []


@pytest.mark.parametrize(
    "said",
    [
        "it takes 126 µs",
        "4228 GB/s",
        "3 % faster",
        "0.99 of a copy",
        "1.9\u00d7 of eager",
        "6 times as fast",
    ],
)
def test_a_figure_in_prose_is_seen(said: str) -> None:
    assert MEASURED.search(prose(f"{FIRST}x -->\n{LAST}\nHere {said}."))


@pytest.mark.parametrize("name", sorted(p.name for p in (ROOT / "kernels-community").iterdir()))
def test_cards_are_filled_in_with_their_tables(name: str) -> None:
    card = ROOT / "kernels-community" / name
    filled = fill_card(card, repo_id="me/mine")
    template = (card / "CARD.md").read_text("utf-8")
    blocks = [block[0] for block in fill_figures.BLOCK.finditer(template)]
    assert blocks
    assert all(block in filled for block in blocks)
    assert "{{" not in filled


def test_a_table_has_the_columns_that_were_asked_for() -> None:
    assert table(
        "kernel=toy 'columns=op,shape,ours,spread,peer,best,ratio,ratio:eager,copy,ratio:copy,wanted:1.5'"
    ) == [
        "| op | shape | ours, µs | its rounds | best peer | its µs | best peer / ours | eager / ours "
        "| copy, µs | copy / ours | wanted |",
        "| --- | --- | --: | --- | --- | --: | --: | --: | --: | --: | --- |",
        "| `op` | 4 x 8 | 10.00 | 9.500 to 1234 | compile | 9.000 | 0.900 | 2.000 | 8.000 | 0.800 | 1.5 |",
    ]


def test_rows_are_chosen_and_put_together() -> None:
    rows = [
        make_row(),
        make_row(kernel="org/toy.other", ours_us=12.0, ratios={"eager": 1.5}),
        make_row(way="warm", ratios={"eager": 1.25}),
        make_row(kernel="org/toyish.op"),
    ]
    grouped = table("kernel=toy group=way columns=way,op,ours,ratio", *rows)
    assert grouped[2:] == [
        "| cold | `op`, `other` | 10.00 to 12.00 | 0.900 to 1.500 |",
        "| warm | `op` | 10.00 | 1.250 |",
    ]
    assert table("kernel=toy op=other,op way=cold columns=op", *rows)[2:] == [
        "| `op` |",
        "| `other` |",
    ]
    assert table("kernel=toy below=1 columns=op,way", *rows)[2:] == ["| `op` | cold |"]


def test_no_loss_is_said_so() -> None:
    assert "No row is below 0.5." in fill(
        f"{FIRST}kernel=toy below=0.5 columns=op -->\n{LAST}\n", [make_row()], META
    )


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("kernel=toy", "expected kernel, columns"),
        ("kernel=toy columns=op kernel=toy", "once each"),
        ("kernel=toy columns=op colour=red", "expected kernel, columns"),
        ("kernel=gone columns=op", "no row of kernel=gone"),
        ("kernel=toy op=op,gone columns=op", "no row of op=gone"),
        ("kernel=toy columns=liger", "has a column 'liger'"),
        ("kernel=toy columns=ratio:liger", "has a column 'liger'"),
        ("kernel=toy group=liger columns=op", "has a column 'liger'"),
        ("kernel=toy below=low columns=op", "low"),
    ],
)
def test_a_marker_that_asks_for_what_is_not_there_is_refused(query: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        table(query)


def test_a_row_without_a_peer_has_no_best_one() -> None:
    with pytest.raises(ValueError, match="no peer at 4x8"):
        table("kernel=toy columns=ratio", make_row(peers={}, ratios={}))


@pytest.mark.parametrize("page", [f"{FIRST}kernel=toy columns=op -->\n", f"a {LAST}\n"])
def test_a_marker_without_its_other_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="at the start of a line"):
        fill(page, [make_row()], META)


def test_the_command_tells_every_fault_and_writes_what_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fill_figures, "ROOT", tmp_path)
    monkeypatch.setattr(fill_figures, "SOURCE", tmp_path / "h200.json")
    (tmp_path / "h200.json").write_text(format_document(META, [make_row()]))
    (tmp_path / "docs/kernels").mkdir(parents=True)
    good, bad = (tmp_path / "docs/kernels" / name for name in ("good.md", "bad.md"))
    good.write_text(f"{FIRST}kernel=toy columns=ours -->\n{LAST}\n")
    wrong = f"{FIRST}kernel=gone columns=op -->\n{LAST}\n{FIRST}kernel=toy columns=x -->\n{LAST}\n"
    bad.write_text(wrong)
    monkeypatch.setattr(sys, "argv", ["fill_figures.py", "--check"])
    assert fill_figures.main() == 1
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        "docs/kernels/bad.md",
        "docs/kernels/bad.md",
        "docs/kernels/good.md shows older figures",
    ]
    monkeypatch.setattr(sys, "argv", ["fill_figures.py"])
    assert fill_figures.main() == 1
    assert "| 10.00 |" in good.read_text()
    assert bad.read_text() == wrong
    bad.unlink()
    monkeypatch.setattr(sys, "argv", ["fill_figures.py", "--check"])
    assert fill_figures.main() == 0


def test_the_first_table_of_gemm_is_of_its_file() -> None:
    rows = json.loads((ROOT / "docs/kernels/gemm.json").read_text())["rows"]
    text = (ROOT / "docs/kernels/gemm.md").read_text("utf-8")
    section = text.split("## Against cuBLAS", 1)[1].split("\n## ")[0]
    lines = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(lines) == len(rows)
    for row, cells in zip(rows, lines, strict=True):
        shape, ours, cublas, one_scale, _, ratio, _, turned, call, call_cublas, call_ratio = (
            cell.strip() for cell in cells
        )
        graph, python = row["graph"], row["call"]
        assert shape == ", ".join(map(str, row["shape"]))
        assert [ours, one_scale, turned, call] == [
            f"{graph['ours_us']:.1f}",
            f"{graph['one scale_us']:.1f}",
            f"{graph['turned/ours']:.2f}",
            f"{python['ours_us']:.1f}",
        ]
        if cublas != "-":
            assert [cublas, ratio, call_cublas, call_ratio] == [
                f"{graph['cuBLAS_us']:.1f}",
                f"{graph['ours/cuBLAS']:.3f}",
                f"{python['cuBLAS_us']:.1f}",
                f"{python['ours/cuBLAS']:.3f}",
            ]


def test_the_table_of_gemm_is_of_its_own_file() -> None:
    page = (ROOT / "docs/kernels/gemm.md").read_text("utf-8")
    measured = json.loads((ROOT / "docs/kernels/gemm.json").read_text("utf-8"))
    lines = page.split("## Against cuBLAS")[1].split("\n\n")[1].splitlines()
    head, _, *table = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    assert len(table) == len(measured["rows"])
    ratios, goals, missed = [], [], set()
    for cells, row in zip(table, measured["rows"], strict=True):
        told = dict(zip(head, cells, strict=True))
        graph, call = row["graph"], row["call"]
        flops = 2 * row["shape"][0] * row["shape"][1] * row["shape"][2]
        found = {
            "ours": f"{graph['ours_us']:.1f}",
            "one scale": f"{graph['one scale_us']:.1f}",
            "TFLOP/s": f"{flops / graph['ours_us'] / 1e6:.0f}",
            "turned / ours": f"{graph['turned/ours']:.2f}",
            "call: ours": f"{call['ours_us']:.1f}",
        }
        if "cuBLAS_us" in graph:
            found |= {
                "cuBLAS": f"{graph['cuBLAS_us']:.1f}",
                "ours / cuBLAS": f"{graph['ours/cuBLAS']:.3f}",
                "call: cuBLAS": f"{call['cuBLAS_us']:.1f}",
                "call: ours / cuBLAS": f"{call['ours/cuBLAS']:.3f}",
            }
            assert graph["ours/cuBLAS"] < 1, "the page says that ours is nowhere slower"
        assert {name: told[name] for name in found} == found, row["shape"]
        if told["goal"] != "-":
            ratios.append(graph["ours/cuBLAS"])
            goals.append(float(told["goal"]))
            if ratios[-1] > goals[-1]:
                missed.add(told["M, N, K"])
    means = [f"{geometric_mean(each):.3f}" for each in (ratios, goals)]
    assert f"geometric mean of the ratio is {means[0]}, that of the goals {means[1]}" in page
    paragraph = page.split("misses the goal at", 1)[1].split("The published", 1)[0]
    assert set(re.findall(r"\d+, \d+, \d+(?= \()", paragraph)) == missed
