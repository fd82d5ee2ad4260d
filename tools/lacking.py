"""What a test does on a machine that lacks something: in CI it fails, elsewhere it is skipped; both say why."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def give_up(why: object) -> NoReturn:
    """End the test, or all that need the fixture."""
    __tracebackhide__ = True
    if os.environ.get("CI"):
        pytest.fail(str(why))
    pytest.skip(str(why))


def require_commands(*names: str) -> None:
    """Give up where one of these commands is not installed."""
    __tracebackhide__ = True
    if missing := [name for name in names if shutil.which(name) is None]:
        give_up(f"not installed: {', '.join(missing)}")
