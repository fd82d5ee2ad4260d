"""What a user sees of a download: a bar on a terminal, lines in the log of a job, nothing of a quick one."""

from __future__ import annotations

import io

import httpx2
import pytest

import kernels
from kernels import progress
from kernels.progress import show_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def bars(monkeypatch):
    monkeypatch.setattr("huggingface_hub.utils.are_progress_bars_disabled", lambda: False)


def test_a_terminal_gets_a_bar_that_counts_bytes(bars, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress, "BAR_AFTER", 0.0)
    with show_progress("acme/toy (torch-cpu)", 2_000_000) as advance:
        advance(1_500_000)
        advance(-500_000)
        advance(1_000_000)
    assert "acme/toy (torch-cpu)" in terminal.getvalue()
    assert "2.00M/2.00M" in terminal.getvalue()


def test_the_log_of_a_job_gets_a_line_where_it_takes_long(bars, monkeypatch, warnings_of):
    clock = iter([0.0, 1.0, 12.0, 13.0, 45.0, 46.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with show_progress("acme/toy (torch-cpu)", 900_000_000) as advance:
        for _ in range(5):
            advance(100_000_000)
    assert warnings_of() == [
        "acme/toy (torch-cpu): 200 of 900 MB downloaded after 12 s",
        "acme/toy (torch-cpu): 400 of 900 MB downloaded after 45 s",
    ]


def test_it_is_silent_where_bars_are_turned_off(monkeypatch, warnings_of):
    monkeypatch.setattr("huggingface_hub.utils.are_progress_bars_disabled", lambda: True)
    monkeypatch.setattr(progress, "LINE_AFTER", 0.0)
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with show_progress("acme/toy", 100) as advance:
        advance(50)
    assert terminal.getvalue() == ""
    assert warnings_of() == []


def test_a_quick_download_says_nothing(bars, web, publisher, warnings_of, capsys):
    publisher.publish("acme/toy")
    assert kernels.get_kernel("acme/toy").VALUE == 1
    assert warnings_of() == []
    assert capsys.readouterr().err == ""


def test_bytes_that_come_again_are_not_counted_twice(web, publisher, monkeypatch):
    told = []

    def show(what, total):
        from contextlib import nullcontext

        return nullcontext(told.append)

    monkeypatch.setattr("kernels.receive.show_progress", show)
    publisher.publish(
        "acme/toy", variants={"torch-cpu": {"__init__.py": "VALUE = 1\n", "a.py": ""}}
    )
    broken = ["once"]

    class Half(httpx2.SyncByteStream):
        def __iter__(self):
            yield b"VALUE"
            raise httpx2.ReadError("reset")

    answer = web.__class__.__call__

    def call(self, request):
        if request.url.path.endswith("__init__.py") and broken:
            broken.clear()
            return httpx2.Response(200, stream=Half())
        return answer(self, request)

    monkeypatch.setattr(web.__class__, "__call__", call)
    assert kernels.get_kernel("acme/toy").VALUE == 1
    assert -5 in told
    listing = kernels.install_kernel("acme/toy")
    assert sum(told) == sum(path.stat().st_size for path in listing.rglob("*") if path.is_file())
