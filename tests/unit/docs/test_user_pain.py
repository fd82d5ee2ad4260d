"""Every report that `tests/user_pain.toml` lists is held by tests that exist, or says why by none."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
REPORTS = tomllib.loads((TESTS / "user_pain.toml").read_text())


@cache
def names_in(path: str) -> frozenset[str]:
    """Return the names of the tests of a file, those of classes too."""
    tree = ast.parse((TESTS / path).read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_is_held_by_tests_that_exist(report: str) -> None:
    entry = REPORTS[report]
    assert set(entry) in ({"tests"}, {"why_not"})
    for test in entry.get("tests", ()):
        path, _, name = test.partition("::")
        assert (TESTS / path).is_file(), test
        assert names_in(path) if name == "*" else name in names_in(path), test
    assert entry.get("tests") or entry["why_not"].strip()


def test_nearly_all_are_held() -> None:
    assert len(REPORTS) > 80
    assert sum("why_not" in entry for entry in REPORTS.values()) <= 3
