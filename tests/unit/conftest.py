"""What tests of more than one package ask for."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def warnings_of(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return the loader's warnings so far."""
    return lambda: [
        record.getMessage()
        for record in caplog.records
        if record.name == "kernels" and record.levelname == "WARNING"
    ]
