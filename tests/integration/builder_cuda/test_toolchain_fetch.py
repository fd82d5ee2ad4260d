"""Fetching one toolchain from several processes, and being killed in the middle of it."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

NAME = "tiny_toolchain-1.0-py3-none-any.whl"

_FETCH = """
import os, sys
from pathlib import Path
from kernel_builder.toolchain.wheels import Wheel, WheelSet, fetch_wheels
from kernel_spec.version import MajorMinor
wheels = WheelSet(name="tiny", version=MajorMinor(1, 0), machine="any",
                  wheels=(Wheel("tiny-toolchain", "1.0", sys.argv[2]),))
said = lambda *each: print("told:", *each)
print(fetch_wheels(wheels, store=Path(sys.argv[1]), variables=dict(os.environ), on_fetch=said))
"""


def make_wheel() -> bytes:
    """Make a wheel of one program, which must stay executable."""
    info = "tiny_toolchain-1.0.dist-info"
    texts = {
        "tiny/bin/tool": "#!/bin/sh\necho tool\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny-toolchain\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    records = []
    for name, text in texts.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        records.append(f"{name},sha256={digest.decode()},{len(text)}")
    texts[f"{info}/RECORD"] = "\n".join([*records, f"{info}/RECORD,,", ""])
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in texts.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100755 if name.endswith("tool") else 0o100644) << 16
            archive.writestr(entry, text)
    return data.getvalue()


class Index:
    """A page with one wheel on it, which counts downloads and can hold them up."""

    def __init__(self) -> None:
        self.wheel = make_wheel()
        self.sha256 = hashlib.sha256(self.wheel).hexdigest()
        self.downloads = 0
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.url = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        body = f'<!doctype html><a href="{NAME}">{NAME}</a>'.encode()
        if request.path.endswith(".whl"):
            self.downloads += 1
            self.begun.set()
            self.go_on.wait(60)
            body = self.wheel
        request.send_response(200)
        request.send_header("Content-Type", "text/html" if body[:1] == b"<" else "application/zip")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


@pytest.fixture
def index() -> Iterator[Index]:
    found = Index()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with suppress(ConnectionError):  # whoever asked was killed
                found.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_address[1]}/"
    yield found
    found.go_on.set()
    server.shutdown()
    server.server_close()


@contextmanager
def fetching(store: Path, index: Index, count: int = 1) -> Iterator[list[subprocess.Popen[str]]]:
    variables = {
        **os.environ,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": index.url,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_CACHE_DIR": "1",
        "PIP_TRUSTED_HOST": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    command = [sys.executable, "-c", _FETCH, str(store), index.sha256]
    started = [
        subprocess.Popen(
            command, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for _ in range(count)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_processes_share_one_download(index: Index, tmp_path: Path) -> None:
    store = tmp_path / "toolchains"
    with fetching(store, index, count=3) as processes:
        assert index.begun.wait(60)
        time.sleep(0.5)  # the others wait for the lock meanwhile
        index.go_on.set()
        everything = [process.communicate(timeout=60)[0].strip() for process in processes]
    said = [text.splitlines()[-1] for text in everything]
    told = sum("told: tiny is not here yet: 1 wheel through pip" in text for text in everything)
    assert told == 1
    assert sum("told: fetching tiny-toolchain 1.0" in text for text in everything) == 1
    assert [process.returncode for process in processes] == [0, 0, 0], said
    assert len(set(said)) == 1
    assert index.downloads == 1
    tool = Path(said[0]) / "tiny" / "bin" / "tool"
    assert os.access(tool, os.X_OK)
    assert [path.name for path in store.iterdir() if path.name.startswith(".")] == []


def test_a_killed_fetch_leaves_nothing_half_made(index: Index, tmp_path: Path) -> None:
    store = tmp_path / "toolchains"
    with fetching(store, index) as (process,):
        assert index.begun.wait(60)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    whole = [path for path in store.iterdir() if path.is_dir() and path.name[0] != "."]
    assert whole == []
    index.go_on.set()
    with fetching(store, index) as (process,):
        said = process.communicate(timeout=60)[0].strip().splitlines()[-1]
    assert process.returncode == 0, said
    assert (Path(said) / "tiny" / "bin" / "tool").is_file()


def test_a_wheel_of_another_hash_is_refused(index: Index, tmp_path: Path) -> None:
    index.go_on.set()
    index.sha256 = "0" * 64
    with fetching(tmp_path / "toolchains", index) as (process,):
        said = process.communicate(timeout=60)[0]
    assert process.returncode == 1
    # Not ToolchainUnavailableError, for which other backends would go on.
    assert "kernel_builder.errors.ToolchainError: tiny" in said
    assert "DO NOT MATCH THE HASHES" in said
    left = [path.name for path in (tmp_path / "toolchains").iterdir()]
    assert [name for name in left if not name.endswith(".lock")] == []
