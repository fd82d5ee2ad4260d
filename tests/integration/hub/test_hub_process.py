"""The server as a process: it says where it listens, holds its port and stops when told."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from kernel_spec.directory import DirectoryHub
from kernel_spec.names import RepoId
from kernel_spec.publishing import publish

BIG = 32 * 1024 * 1024
BIG_PATH = "/kernels/acme/big/resolve/v1/build/torch-cpu/big.bin"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("big")
    (folder / "big.bin").write_bytes(bytes(range(256)) * (BIG // 256))
    publish(
        DirectoryHub(folder / "root"),
        RepoId("acme", "big"),
        {"build/torch-cpu/big.bin": folder / "big.bin"},
        branch="v1",
        parent=None,
    )
    return folder / "root"


@pytest.fixture(scope="module")
def shared_hub(serve, root):
    return serve(root)


def connect(hub):
    host, _, port = hub.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def send(hub, data):
    """Send raw bytes and return all that comes back until the server closes."""
    with connect(hub) as connection:
        connection.sendall(data)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stops_cleanly(serve, root, number):
    hub = serve(root)
    idle = connect(hub)
    idle.sendall(b"GET /api/whoami-v2 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert idle.recv(65536).startswith(b"HTTP/1.1 401")
    began = time.monotonic()
    assert hub.stop(number) == 0
    assert time.monotonic() - began < 8
    idle.close()
    assert "Traceback" not in hub.log.read_text()
    with pytest.raises(OSError, match="refused"):
        connect(hub)


def test_stops_in_spite_of_a_client_that_does_not_read(serve, root):
    hub = serve(root)
    with connect(hub) as slow:
        slow.sendall(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % BIG_PATH.encode())
        slow.recv(10)
        began = time.monotonic()
        assert hub.stop() == 0
        assert time.monotonic() - began < 12


def test_a_port_has_one_owner(shared_hub, root):
    hub = shared_hub
    command = [sys.executable, "-m", "kernel_hub", "serve", str(root)]
    done = subprocess.run(
        [*command, "--port", hub.url.rpartition(":")[2]],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: Cannot listen at 127.0.0.1:")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0"])
def test_names_and_wildcards(serve, root, host):
    hub = serve(root, host=host)
    assert hub.url.startswith(f"http://{host}:")
    with urllib.request.urlopen(f"{hub.url}/api/kernels/acme/big") as answer:
        assert answer.status == 200


def test_an_address_of_another_machine(root):
    command = [sys.executable, "-m", "kernel_hub", "serve", str(root), "--host", "203.0.113.5"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert "Choose another --host or --port" in done.stderr
    assert "Traceback" not in done.stderr


def test_one_process(shared_hub):
    hub = shared_hub
    found = subprocess.run(
        ["ps", "--no-headers", "-o", "pid", "--ppid", str(hub.process.pid)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert found.stdout.split() == []


def test_whole_files_and_parts(shared_hub):
    hub = shared_hub
    with urllib.request.urlopen(hub.url + BIG_PATH) as answer:
        assert answer.read() == bytes(range(256)) * (BIG // 256)
        assert int(answer.headers["X-Linked-Size"]) == BIG
    request = urllib.request.Request(hub.url + BIG_PATH, headers={"Range": f"bytes={BIG - 3}-"})
    with urllib.request.urlopen(request) as answer:
        assert (answer.status, answer.read()) == (206, b"\xfd\xfe\xff")
    whole, part = hub.requests()[-2:]
    assert (whole.bytes, part.bytes) == (BIG, 3)


def test_head_announces_the_size_without_a_body(shared_hub):
    hub = shared_hub
    head = f"HEAD {BIG_PATH} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()
    answer = send(hub, head)
    assert f"content-length: {BIG}".encode() in answer.lower()
    assert answer.endswith(b"\r\n\r\n")


def test_a_client_that_leaves_does_no_harm(serve, root):
    hub = serve(root)
    for extra in (b"", b"Range: bytes=1-\r\n"):
        with connect(hub) as connection:
            connection.sendall(b"GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n" % (BIG_PATH.encode(), extra))
            connection.recv(10)
    with urllib.request.urlopen(f"{hub.url}/api/kernels/acme/big") as alive:
        assert alive.status == 200
    assert "Traceback" not in hub.log.read_text()


@pytest.mark.parametrize(
    "path",
    [
        b"/kernels/acme/big/resolve/v1/../../../../../../etc/passwd",
        b"/kernels/acme/big/resolve/v1/%2e%2e/%2e%2e/refs/heads/v1",
        b"/kernels/acme/big/resolve/v1/..%2f..%2frefs%2fheads%2fv1",
        b"/kernels/acme/../acme/big/resolve/v1/x",
        b"//etc/passwd",
        b"/kernels/acme/big/resolve/v1/%00",
        b"/kernels/acme/big/resolve/v1/" + b"a/" * 20_000,
        b"/kernels/acme/big/resolve/v1/" + b"a" * 200_000,
        b"/kernels/acme/big/resolve/v1/\xff\xfe",
        b"http://other/kernels/acme/big/resolve/v1/x",
        b"*",
    ],
)
def test_raw_paths_that_mean_harm(shared_hub, path):
    hub = shared_hub
    answer = send(hub, b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % path)
    assert answer.split(b" ", 2)[1] in (b"400", b"404", b"414", b"431"), answer[:200]
    assert b"root:" not in answer
    # And the hub still answers.
    with urllib.request.urlopen(f"{hub.url}/api/kernels/acme/big") as alive:
        assert alive.status == 200


def test_help_is_fast_and_imports_no_server():
    code = (
        "import sys; from kernel_hub.cli import cli; "
        "cli(['--help'], standalone_mode=False); "
        "print({'starlette', 'granian', 'asyncio'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "set()"
