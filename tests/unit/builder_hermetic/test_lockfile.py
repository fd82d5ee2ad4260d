"""Locks: their text, what differs, and which differences a build may live with."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_builder.errors import LockError
from kernel_builder.lockfile import (
    FILE_NAME,
    Kind,
    compare_inputs,
    find_lock,
    format_lock,
    judge_drift,
    parse_lock,
    write_lock,
)

TORCH = {"kind": "headers", "version": "2.13.0+cpu", "sha256": "a" * 64}
OLDER = {"kind": "headers", "version": "2.12.0+cpu", "sha256": "b" * 64}
GCC = {"kind": "system", "version": "g++ 12.2.0"}
NEWER_GCC = {"kind": "system", "version": "g++ 13.1.0"}

texts = st.text(max_size=8)
facts = st.fixed_dictionaries({"kind": st.sampled_from([kind.value for kind in Kind])}).flatmap(
    lambda base: st.dictionaries(
        texts, texts | st.dictionaries(texts, texts, max_size=2), max_size=3
    ).map(lambda more: {**more, **base})
)


@given(st.dictionaries(texts, facts, max_size=4))
def test_what_is_written_is_read(inputs: dict[str, dict[str, object]]) -> None:
    assert parse_lock(format_lock(inputs)) == inputs
    # Equal inputs in another order are equal bytes.
    assert format_lock(dict(reversed(inputs.items()))) == format_lock(inputs)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no JSON"),
        ("<<<<<<< HEAD\n", "no JSON"),
        ("[]", "expected a table with format and inputs"),
        ('{"inputs": {}}', "expected a table with format and inputs"),
        ('{"format": 2, "inputs": {}}', "found format 2, this version reads 1"),
        ('{"format": 1}', "inputs: expected a table of tables"),
        ('{"format": 1, "inputs": {"torch": "2.13"}}', "inputs: expected a table of tables"),
        ('{"format": 1, "inputs": {"torch": {"kind": "x"}}}', "inputs: expected a table of tables"),
    ],
)
def test_what_is_no_lock_says_what_to_do(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(LockError, match=said) as caught:
        find_lock(tmp_path)
    assert str(tmp_path / FILE_NAME) in str(caught.value)


def test_a_project_without_a_lock(tmp_path: Path) -> None:
    assert find_lock(tmp_path) is None


def test_a_lock_is_written_whole(tmp_path: Path) -> None:
    place = write_lock(tmp_path, {"torch": TORCH})
    assert find_lock(tmp_path) == {"torch": TORCH}
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    assert place.stat().st_mode & 0o777 == 0o644
    assert json.loads(place.read_text())["format"] == 1


def test_equal_inputs_do_not_differ() -> None:
    assert compare_inputs({"torch": TORCH}, {"torch": dict(TORCH)}, whole=True) == ()


def test_a_part_of_a_project_needs_a_part_of_the_lock() -> None:
    locked = {"torch": TORCH, "cuda-13.0": {"kind": "wheels"}}
    assert compare_inputs(locked, {"torch": TORCH}, whole=False) == ()
    (gone,) = compare_inputs(locked, {"torch": TORCH}, whole=True)
    assert str(gone).startswith("cuda-13.0: not used any more")


def test_a_drift_is_refused_and_names_the_command() -> None:
    drifts = compare_inputs({"torch": OLDER}, {"torch": TORCH, "eigen": TORCH}, whole=False)
    with pytest.raises(LockError) as caught:
        judge_drift(drifts, strict=False)
    text = str(caught.value)
    assert "version: locked 2.12.0+cpu, found 2.13.0+cpu" in text
    assert "eigen: not in the lock; found 2.13.0+cpu (sha256 aaaaaaaaaaaa)" in text
    assert text.endswith("kernel-builder update eigen torch")


def test_what_the_system_brings_is_told_and_refused_only_where_asked() -> None:
    drifts = compare_inputs({"compiler": GCC}, {"compiler": NEWER_GCC}, whole=False)
    (told,) = judge_drift(drifts, strict=False)
    assert "locked g++ 12.2.0, found g++ 13.1.0" in told
    assert "\n" not in told
    with pytest.raises(LockError, match="g\\+\\+ 13"):
        judge_drift(drifts, strict=True)


def test_pinned_wheels_in_place_of_the_system_is_no_small_thing() -> None:
    system = {"kind": "system", "version": "13.0"}
    wheels = {"kind": "wheels", "version": "13.0"}
    for locked, found in ((system, wheels), (wheels, system)):
        drifts = compare_inputs({"cuda-13.0": locked}, {"cuda-13.0": found}, whole=False)
        with pytest.raises(LockError):
            judge_drift(drifts, strict=False)


def test_a_difference_deep_inside_is_named() -> None:
    def wheels(sha256: str) -> dict[str, object]:
        return {"kind": "wheels", "wheels": {"x86_64": {"nvidia-nvvm": {"sha256": sha256}}}}

    (drift,) = compare_inputs({"cuda": wheels("a")}, {"cuda": wheels("b")}, whole=True)
    assert "wheels.x86_64.nvidia-nvvm.sha256: locked a, found b" in str(drift)


def test_a_table_that_came_or_went_is_shown_whole() -> None:
    wheels = {"nvcc": {"version": "13.0.88"}}
    locked = {"cuda": {"kind": "wheels", "wheels": wheels, "archs": "9.0"}}
    found = {"cuda": {"kind": "wheels", "archs": {"sm": "90"}}}
    assert "wheels: locked " + json.dumps(wheels) + ", found nothing" in told(locked, found)
    assert "wheels: locked nothing, found " + json.dumps(wheels) in told(found, locked)
    assert 'archs: locked 9.0, found {"sm": "90"}' in told(locked, found)


def told(locked: dict[str, dict[str, object]], found: dict[str, dict[str, object]]) -> str:
    """Return what is said of the one difference of two locks."""
    [drift] = compare_inputs(locked, found, whole=True)
    return str(drift)
