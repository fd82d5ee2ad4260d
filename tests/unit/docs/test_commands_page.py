"""The table of commands has a row for every verb, and no row for a verb that is not there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from kernel_builder.cli import BUILD2CMAKE, VERBS

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "commands.md"


def test_every_verb_has_a_row() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), re.MULTILINE)
    shown = {tuple(shlex.split(row)[:2]) for row in rows}
    expected = {("kernel-builder", verb) for verb in VERBS}
    expected |= {("build2cmake", verb) for verb in BUILD2CMAKE}
    assert shown == expected
