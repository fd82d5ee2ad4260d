"""What measures the promises measures what it says, and the page is what the figures give."""

from __future__ import annotations

import http.server
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from bench_promises import clean
from bench_promises_page import measured_on, render
from process_tree import run_counted
from throttle import CATCH_UP_SECONDS, throttle

RESULTS = Path(__file__).parents[3] / "docs" / "results"
PAYLOAD = bytes(range(256)) * 512  # 128 KiB
BITS = 8 * len(PAYLOAD) / 0.2  # what takes 0.2 s


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(PAYLOAD)))
        self.end_headers()
        self.wfile.write(PAYLOAD)

    def log_message(self, *_words: object) -> None:
        pass


@pytest.fixture
def port():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def fetch(port: int) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/", timeout=10) as answer:
        return answer.read()


def test_a_line_is_no_faster_than_its_rate_however_many_share_it(port: int) -> None:
    with throttle(port, BITS) as (limited, line):
        begin = time.perf_counter()
        answers: list[bytes] = []
        threads = [
            threading.Thread(target=lambda: answers.append(fetch(limited))) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.perf_counter() - begin >= 0.4 - CATCH_UP_SECONDS
        assert answers == [PAYLOAD, PAYLOAD]
        assert line.carried >= 2 * len(PAYLOAD)


def test_a_fast_line_does_not_wait_and_ends_with_its_block(port: int) -> None:
    with throttle(port, 1e12) as (limited, _):
        begin = time.perf_counter()
        assert fetch(limited) == PAYLOAD
        assert time.perf_counter() - begin < 5
    with pytest.raises(urllib.error.URLError):
        fetch(limited)


def test_memory_and_time_of_children_count() -> None:
    child = "x = bytearray(150_000_000); import time; e = time.process_time() + 0.2\nwhile time.process_time() < e: pass"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    used = run_counted([sys.executable, "-c", code], dict(os.environ))
    assert used.peak_bytes > 140_000_000
    assert used.cpu_seconds >= 0.2
    assert used.seconds >= 0.2


def test_a_command_that_fails_ends_the_run_with_its_words() -> None:
    with pytest.raises(SystemExit, match="what went wrong"):
        run_counted([sys.executable, "-c", "raise ValueError('what went wrong')"], dict(os.environ))


def test_the_caches_and_hubs_of_the_caller_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KERNELS_CACHE", "LOCAL_KERNELS", "HF_HUB_OFFLINE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "mine")
    assert "mine" not in clean().values()
    assert clean({"KERNELS_CACHE": "new"})["KERNELS_CACHE"] == "new"


def test_the_page_says_where_the_machine_was_shared() -> None:
    machine = {
        "cpu": "a processor",
        "cores": 2,
        "load": 7.5,
        "shared": True,
        "python": "3.11.7",
        "torch": "2.13.0",
        "commit": "0123456789ab",
        "date": "2026-01-01",
    }
    assert "shared machine (load 7.5 before the run)" in measured_on(machine)
    assert "shared" not in measured_on({**machine, "shared": False})


def test_the_page_is_what_the_figures_give() -> None:
    results = json.loads((RESULTS / "promises.json").read_text())
    assert set(results) == {"first", "line", "source", "llama", "binary"}
    assert (RESULTS / "promises.md").read_text() == render(results)
    assert results["llama"]["changed_files"] == []
    assert results["llama"]["kernels"] == results["llama"]["layers"] > 0
    assert results["binary"]["same_bytes"]
