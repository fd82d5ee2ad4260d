"""The README's figures are those that were measured last, and stand nowhere else in it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import geometric_mean
from xml.etree import ElementTree

import draw_figures
import pytest

ROOT = Path(__file__).parents[3]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def picture() -> str:
    return draw_figures.TARGET.read_text("utf-8")


def test_the_picture_is_of_what_was_measured_last(picture: str) -> None:
    assert picture == draw_figures.draw(list(draw_figures.read_groups())), "run: make docs"


def test_the_picture_shows_the_figures_of_the_files(picture: str) -> None:
    """Read from the files once more, in another way than the picture is drawn."""
    shown = [text.text or "" for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]

    def seconds_after(label: str) -> list[float]:
        place = shown.index(label)
        words = [text.split() for text in shown[place + 1 : place + 3]]
        return [float(value) * {"s": 1, "ms": 1e-3}[unit] for value, unit in words]

    loads = json.loads((ROOT / "docs/results/load.json").read_text())["clients"]
    ours, peer = loads["ours"], loads["published 0.17.2"]
    assert seconds_after("from kernels import get_kernel") == pytest.approx(
        [ours["named_ms"] / 1000, peer["named_ms"] / 1000], abs=0.5e-3
    )
    assert seconds_after("12 processes at once, empty cache") == pytest.approx(
        [ours["fleet_s"], peer["fleet_s"]], rel=0.06
    )
    small = json.loads((ROOT / "docs/results/main-job.json").read_text())["load"]
    assert seconds_after("first call, empty cache, a small kernel") == pytest.approx(
        [small[name]["cold_ms"] / 1000 for name in ("ours", "published 0.17.2")], abs=0.5e-3
    )
    builds = json.loads((ROOT / "docs/results/build.json").read_text())["figures"]
    assert seconds_after(
        f"activation, {len(builds['archs'])} CUDA archs, CPU time"
    ) == pytest.approx([builds["ours"]["cpu_seconds"], builds["peer"]["cpu_seconds"]], rel=0.06)
    assert seconds_after("the peer with our files, not in its usual form") == pytest.approx(
        [builds["ours"]["cpu_seconds"], builds["lean_peer"]["cpu_seconds"]], rel=0.06
    )
    rows = json.loads((ROOT / "docs/benchmarks/h200.json").read_text())["rows"]
    for kernel in {row["kernel"].split("/")[1].split(".")[0] for row in rows}:
        on_device = [
            min(row["ratios"].values())
            for row in rows
            if f"/{kernel}." in row["kernel"] and row["way"] in {"cold", "warm"}
        ]
        least, most = min(on_device), max(on_device)
        label = f"{kernel}: {len(on_device)} calls, {least:.2f}x to {most:.2f}x as fast"
        assert shown[shown.index(label) + 1] == f"mean {geometric_mean(on_device):.2f}x"


def test_a_telephone_shows_letters_that_can_be_read(picture: str) -> None:
    root = ElementTree.fromstring(picture)
    scale = 360 / float(root.attrib["width"])
    sizes = [int(size) for size in re.findall(r"font-size: (\d+)px", picture)]
    assert min(sizes) * scale >= 9
    for text in root.iter(f"{SVG}text"):  # a letter is about half as wide as high
        end = float(text.attrib["x"]) + 0.6 * max(sizes) * len(text.text or "")
        assert end <= float(root.attrib["width"])


def test_bars_are_as_long_as_the_figures_say() -> None:
    row = draw_figures.Row(label="<a & b>", ours=1, peer=4, ours_text="1 s", peer_text="4 s")
    group = draw_figures.Group(title="t", rows=(row,))
    root = ElementTree.fromstring(draw_figures.draw([group]))
    ours, peer = (float(rect.attrib["width"]) for rect in root.iter(f"{SVG}rect"))
    assert peer == draw_figures.BAR == 4 * ours


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (560.28, "560 s"),
        (1.035, "1.0 s"),
        (0.2057, "206 ms"),
        (1.4762e-5, "15 µs"),
        (2e-7, "0.2 µs"),
    ],
)
def test_durations_have_a_fitting_unit(seconds: float, text: str) -> None:
    assert draw_figures.format_seconds(seconds) == text


def test_the_readme_states_no_figure_by_hand() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert "docs/results/figures.svg" in text
    measured = re.findall(
        r"\d[\d.,]*\s?(?:ms|µs|us|s|seconds|minutes|MB|GB|GB/s|TFLOPS?|%|x)\b|\d+ times|\d+-fold",
        text,
    )
    assert measured == []
