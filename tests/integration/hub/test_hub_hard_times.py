"""The hub as a process in hard times: clients that mean harm, a full disk, kills, a second hub beside it.

Budget: 90 s.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import pytest
from lacking import give_up

API = "/api/kernels/acme/toy"


def ask(url, method, path, body=None, *, token=None, timeout=30):
    """Send a request; return its status and what it says. A connection that is cut is status 0."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode() if body else None
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url + path, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as err:
        return err.code, json.loads(err.read() or b"{}")
    except OSError:
        return 0, {}


def create(url, token):
    table = {"type": "kernel", "organization": "acme", "name": "toy"}
    return ask(url, "POST", "/api/repos/create", table, token=token)[0]


def commit(url, token, files):
    """Commit ``{path: bytes}`` on top of whatever is on main."""
    lines = [{"key": "header", "value": {"summary": "m"}}]
    for path, data in files.items():
        content = base64.b64encode(data).decode()
        lines.append(
            {"key": "file", "value": {"path": path, "content": content, "encoding": "base64"}}
        )
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return ask(url, "POST", f"{API}/commit/main", body, token=token)


def connect(url):
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


def receive(connection):
    parts = []
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


SLOW = (
    b"GET /api/kernels HTTP/1.1\r\nHost: a\r\nX-A: ",
    b"POST /api/kernels/acme/toy/paths-info/main HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\npaths=",
    b"",
)


def test_many_slow_clients_keep_nobody_else_waiting(writable):
    url = writable.hub.url
    assert create(url, writable.token) == 200
    with ExitStack() as stack:
        for number in range(300):
            slow = stack.enter_context(connect(url))
            slow.sendall(SLOW[number % len(SLOW)])
        began = time.monotonic()
        assert ask(url, "GET", API)[0] == 200
        assert commit(url, writable.token, {"a.txt": b"a"})[0] == 200
        assert time.monotonic() - began < 5
    assert writable.whole() == {"main": {"a.txt": b"a"}}
    assert "Traceback" not in writable.hub.log.read_text()


def test_who_asks_byte_by_byte_is_let_go(writable):
    with connect(writable.hub.url) as slow:
        slow.sendall(b"GET /api/kernels HTTP/1.1\r\nX-A: ")
        began = time.monotonic()
        receive(slow)
        assert 5 < time.monotonic() - began < 25


@pytest.mark.parametrize(
    "head",
    [
        b"X-A: " + b"a" * 2_000_000,
        b"\r\n".join(b"X-%d: a" % n for n in range(20_000)),
        b"Authorization: Bearer " + b"k" * 500_000,
        b"Content-Length: 99999999999999999999999",
        b"Content-Length: -1",
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        b"Authorization: Bearer \xff\x00\xfe",
        b"Expect: 100-continue\r\nContent-Length: 1000000000000",
        b"Range: bytes=" + b",".join(b"%d-%d" % (n, n) for n in range(5000)),
    ],
    ids=range(10),
)
def test_heads_that_mean_harm(writable, head):
    with connect(writable.hub.url) as connection:
        with suppress(OSError):
            connection.sendall(
                b"POST /api/repos/create HTTP/1.1\r\nHost: a\r\nConnection: close\r\n%s\r\n\r\n"
                % head
            )
            connection.shutdown(socket.SHUT_WR)
        answer = receive(connection)
    assert answer == b"" or answer.split(b" ", 2)[1][:1] == b"4", answer[:200]
    assert ask(writable.hub.url, "GET", "/api/kernels") == (200, []), "the hub goes on"


def test_a_large_body_of_somebody_unknown_is_refused_before_it_comes(writable):
    with connect(writable.hub.url) as connection:
        connection.sendall(
            b"POST /api/repos/create HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000000\r\n\r\n{"
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 401")


@pytest.fixture
def cramped(writable, tmp_path):
    """Another hub on the same tokens whose disk has room for 16 MB; yields its URL."""
    unshare = shutil.which("unshare")
    probe = [unshare or "unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)]
    if unshare is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        give_up("unshare cannot make a namespace with a small disk here")
    place = tmp_path / "small"
    place.mkdir()
    serve = f"{sys.executable} -m kernel_hub serve {place} --port 0 --tokens {writable.tokens}"
    script = f"mount -t tmpfs -o size=16m tmpfs {place} && exec {serve}"
    process = subprocess.Popen(
        [unshare, "-rm", "sh", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        _, log = process.communicate(timeout=20)
        assert "Traceback" not in log


def test_a_full_disk_keeps_what_is_there_and_takes_what_fits(cramped, writable):
    token = writable.token
    assert create(cramped, token) == 200
    assert commit(cramped, token, {"a.txt": b"a" * 1000})[0] == 200
    before = ask(cramped, "GET", API)[1]["sha"]
    for _ in range(3):
        status, said = commit(cramped, token, {"big.bin": os.urandom(12_000_000)})
        assert (status, "disk of this hub is full" in said["error"]) == (507, True)
        assert ask(cramped, "GET", API)[1]["sha"] == before
    with urllib.request.urlopen(f"{cramped}/kernels/acme/toy/resolve/main/a.txt") as answer:
        assert answer.read() == b"a" * 1000
    assert commit(cramped, token, {"b.txt": b"b" * 1_000_000})[0] == 200, "nothing was left behind"


def test_a_hub_that_is_killed_at_any_moment_stands_as_before_or_after(writable):
    assert create(writable.hub.url, writable.token) == 200
    expected, rounds, cut = {}, 12, 0
    for number in range(rounds):
        files = {f"{number}/{n}.bin": os.urandom(40_000) for n in range(20)}
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(commit, writable.hub.url, writable.token, files)
            time.sleep(0.006 * number)
            writable.hub.process.kill()
            status, _ = asked.result()
        writable.hub.process.wait()
        found = writable.whole()["main"]
        assert found in (expected, expected | files)
        assert status != 200 or found == expected | files, "what was answered is kept"
        cut += status != 200
        expected = found
        writable.hub = writable.start()
    assert cut, "no kill came in time: the test shows nothing"
    assert commit(writable.hub.url, writable.token, {"last": b"x"})[0] == 200
    assert writable.whole()["main"] == expected | {"last": b"x"}
    assert not (writable.root / "acme/toy/.staging").exists()


def test_two_hubs_on_one_folder_lose_nothing(writable):
    first, second = writable.hub, writable.start()
    assert create(first.url, writable.token) == 200
    with ThreadPoolExecutor(8) as pool:
        urls = [first.url, second.url] * 12
        files = [{f"{number}.txt": b"x"} for number in range(24)]
        found = pool.map(lambda url, each: commit(url, writable.token, each)[0], urls, files)
        assert set(found) == {200}
    assert len(writable.whole()["main"]) == 24
    assert ask(first.url, "GET", API) == ask(second.url, "GET", API)


def test_links_in_the_folder_lead_nowhere(writable, tmp_path):
    """Whoever can write to the folder is its owner; a link that a backup made is still not followed out of it."""
    url, secret = writable.hub.url, tmp_path / "secret.txt"
    secret.write_bytes(b"secret")
    assert create(url, writable.token) == 200
    assert commit(url, writable.token, {"a.txt": b"secret", "d/b.txt": b"b"})[0] == 200
    sha = ask(url, "GET", API)[1]["sha"]
    snapshot = writable.root / "acme/toy/snapshots" / sha
    for folder in (snapshot, snapshot.parent):
        folder.chmod(0o755)
    (snapshot / "a.txt").unlink()
    (snapshot / "a.txt").symlink_to(secret)
    with pytest.raises(urllib.error.HTTPError, match="500"):
        urllib.request.urlopen(f"{url}/kernels/acme/toy/resolve/main/a.txt")
    (writable.root / "evil").symlink_to(tmp_path)
    (tmp_path / "x/refs/heads").mkdir(parents=True)
    (tmp_path / "x/refs/heads/main").symlink_to(secret)
    assert ask(url, "GET", "/api/kernels/evil/x")[0] in (404, 500)
    assert [each["id"] for each in ask(url, "GET", "/api/kernels")[1]] == ["acme/toy"]
