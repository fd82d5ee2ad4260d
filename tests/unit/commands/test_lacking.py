"""Tests that lack something here: skipped on a machine of one's own, failed in CI."""

from __future__ import annotations

import pytest
from lacking import give_up, require_commands


@pytest.mark.parametrize(
    ("ci", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)]
)
def test_what_is_lacking_fails_in_ci_and_skips_elsewhere(monkeypatch, ci, outcome):
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match=r"^no network$"):
        give_up(OSError("no network"))
    with pytest.raises(outcome, match=r"^not installed: no-such-command, nor-this$"):
        require_commands("sh", "no-such-command", "nor-this")


def test_what_is_there_is_not_missed():
    require_commands("sh")
