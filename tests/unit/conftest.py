"""What tests of more than one package ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kernels import in_use


@pytest.fixture(autouse=True)
def no_marks() -> Iterator[None]:
    """Let no test hold handles on the variants of its cache for the whole session."""
    yield
    in_use.forget()


@pytest.fixture
def warnings_of(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return the loader's warnings so far."""
    return lambda: [
        record.getMessage()
        for record in caplog.records
        if record.name == "kernels" and record.levelname == "WARNING"
    ]
