"""Which capabilities a toolkit compiles, against the fixture that the format's description gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_builder.archs import (
    Capability,
    expected_code,
    gencode_flags,
    intersect_capabilities,
    parse_capability,
)

CASES = [
    case
    for case in json.loads((Path(__file__).parents[2] / "fixtures" / "archs.json").read_text())[
        "intersections"
    ]
    if not any(target.startswith("gfx") for target in case["targets"])
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["title"])
def test_intersection(case: dict) -> None:
    found = intersect_capabilities(case["sources"], case["targets"])
    assert list(found.archs) == case["result"]
    dropped = [{"arch": each.arch, "why": each.why.value} for each in found.dropped]
    assert dropped == sorted(case["dropped"], key=lambda each: each["arch"])
    assert ("error" in case) == (not found.archs)


def test_there_are_cases() -> None:
    assert len(CASES) > 30


CAPABILITIES = st.builds(
    Capability,
    st.integers(5, 13),
    st.integers(0, 9),
    st.sampled_from(["", "a", "f"]),
    st.booleans(),
)


@given(CAPABILITIES)
def test_round_trip(capability: Capability) -> None:
    assert parse_capability(str(capability)) == capability


@pytest.mark.parametrize(
    "text", ["90", "9", "sm_90", "9.0b", "9.0+ptx", "9.0 ", "", "09.0", "9.0a+PTX+PTX"]
)
def test_not_a_capability(text: str) -> None:
    assert parse_capability(text) is None


@given(st.lists(CAPABILITIES.map(str)), st.lists(CAPABILITIES.map(str)))
def test_nothing_is_lost(sources: list[str], targets: list[str]) -> None:
    found = intersect_capabilities(sources, targets)
    kept = {each.removesuffix("+PTX") for each in found.archs}
    gone = {each.arch.removesuffix("+PTX") for each in found.dropped}
    assert kept | gone == {each.removesuffix("+PTX") for each in sources}
    assert not kept & gone


def test_gencode_has_ptx_where_it_is_asked_for() -> None:
    assert gencode_flags(["12.1+PTX", "9.0a", "8.0"]) == (
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90a,code=sm_90a",
        "-gencode=arch=compute_121,code=[sm_121,compute_121]",
    )


def test_expected_code() -> None:
    assert expected_code(["8.0", "9.0a", "12.1+PTX"]) == ({"8.0", "9.0a", "12.1"}, {"12.1"})
