"""Clocks that are set back, and files from the future: what a hub said holds no longer for that."""

from __future__ import annotations

import os
import time

import pytest

import kernels
import kernels.load
from kernels import answers

YEAR = 365 * 86400.0


@pytest.fixture
def commit(publisher, web):
    return publisher.publish("acme/toy")


@pytest.fixture
def set_clock(monkeypatch):
    real = time.time

    def move(seconds: float) -> None:
        monkeypatch.setattr("kernels.answers.time.time", lambda: real() + seconds)

    return move


def asked(web):
    return sum("refs" in request for request in web.requests)


@pytest.mark.parametrize("seconds", [-YEAR, YEAR])
def test_what_was_remembered_is_asked_again_after_a_jump(web, commit, set_clock, seconds):
    kernels.get_kernel("acme/toy")
    kernels.get_kernel("acme/toy")
    assert asked(web) == 1
    set_clock(seconds)
    assert kernels.get_kernel("acme/toy").VALUE == 1
    assert asked(web) == 2
    kernels.get_kernel("acme/toy")
    assert asked(web) == 2


@pytest.mark.parametrize("seconds", [-YEAR / 2, 2 * answers.RETRY_SECONDS])
def test_a_silent_hub_is_asked_again_after_a_jump(web, commit, set_clock, seconds):
    kernels.get_kernel("acme/toy")
    set_clock(YEAR)
    web.fault = lambda path: (503, {}, b"") if "refs" in path else None
    kernels.get_kernel("acme/toy")
    before = asked(web)
    kernels.get_kernel("acme/toy")
    assert asked(web) == before, "it was silent a moment ago"
    web.fault = lambda path: None
    set_clock(YEAR + seconds)
    kernels.get_kernel("acme/toy")
    assert asked(web) == before + 1


@pytest.mark.parametrize("moment", [0, 1 << 33])
def test_a_cache_whose_files_have_odd_times_loads_and_is_pruned(publisher, cache, moment):
    publisher.publish()
    kernels.get_kernel("acme/toy")
    for path in cache.rglob("*"):
        os.utime(path, (moment, moment))
    kernels.load.forget()
    assert kernels.get_kernel("acme/toy").VALUE == 1
