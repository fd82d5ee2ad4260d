"""What tests of more than one package ask for."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator

import pytest

from kernels import in_use

# capget(2), capability.h: the third form of the interface; who overrides the modes of files.
_CAPABILITIES_3 = 0x20080522
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1, 2


@pytest.fixture(autouse=True)
def no_marks() -> Iterator[None]:
    """Let no test hold handles on the variants of its cache for the whole session."""
    yield
    in_use.forget()


@pytest.fixture
def ordinary_user() -> Iterator[None]:
    """Let the modes of files hold for this thread, be its user root or not."""
    if os.name == "nt":
        pytest.skip("needs POSIX modes")
    if os.geteuid() != 0:
        yield
        return
    if sys.platform != "linux":
        pytest.skip("root reads everything")
    libc = ctypes.CDLL(None, use_errno=True)
    who = (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0)
    # Effective, permitted and inheritable ones, of the first 32 and of the rest.
    sets = (ctypes.c_uint32 * 6)()
    assert libc.capget(who, sets) == 0, os.strerror(ctypes.get_errno())
    effective = sets[0]
    sets[0] &= ~(1 << _DAC_OVERRIDE | 1 << _DAC_READ_SEARCH)
    assert libc.capset(who, sets) == 0, os.strerror(ctypes.get_errno())
    yield
    sets[0] = effective
    assert libc.capset(who, sets) == 0, os.strerror(ctypes.get_errno())


@pytest.fixture
def warnings_of(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return the loader's warnings so far."""
    return lambda: [
        record.getMessage()
        for record in caplog.records
        if record.name == "kernels" and record.levelname == "WARNING"
    ]
