"""Uploads that are cut off, at the client's end or at the hub's: nothing half-done is ever seen.

Budget: 60 s.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from urllib.parse import urlsplit

import pytest

from kernel_spec.directory import DirectoryHub
from kernel_spec.names import RepoId
from kernel_spec.publishing import publish

MEGABYTES = 60
UPLOAD = f"""
import sys
from huggingface_hub import CommitOperationAdd as Add, HfApi
api, kind = HfApi(), {{"repo_type": "kernel"}}
api.create_repo("acme/toy", exist_ok=True, **kind)
files = [Add(f"build/torch-cpu/{{name}}.so", name.encode() * {MEGABYTES} * 2**20) for name in "ab"]
files += [Add(f"build/torch-cpu/{{n}}.py", f"N = {{n}}\\n".encode()) for n in range(200)]
print("ready", flush=True)
result = api.create_commit("acme/toy", files, commit_message="m", **kind).oid
print("\\nRESULT", result)
"""


@pytest.fixture
def upload(reference, writable):
    """Start the client that uploads two large files and 200 small ones in one commit."""
    started = []

    def start():
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(writable.home),
            "HF_HOME": str(writable.home / "hf"),
            "HF_ENDPOINT": writable.hub.url,
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            **writable.environ,
        }
        process = subprocess.Popen(
            [str(reference.folder / "bin/python"), "-c", UPLOAD],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_for(find, process):
    deadline = time.monotonic() + 30
    while not (found := find()):
        assert process.poll() is None, "it was done before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return found


def finish(upload):
    process = upload()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return out.rpartition("RESULT ")[2].strip()


def complete():
    files = {f"build/torch-cpu/{n}.py": f"N = {n}\n".encode() for n in range(200)}
    return files | {f"build/torch-cpu/{n}.so": n.encode() * MEGABYTES * 2**20 for n in "ab"}


def received(writable):
    """Return how many bytes of large files the hub has taken."""
    return sum(
        request.status == 200 and request.method == "PUT" for request in writable.hub.requests()
    )


def test_a_client_that_is_killed_has_changed_nothing_and_goes_on(upload, writable):
    process = upload()
    wait_for(lambda: list(writable.root.glob("acme/toy/.uploads/*.part")), process)
    process.kill()
    process.wait()
    assert writable.whole() == {"main": {}}
    deadline = time.monotonic() + 10
    while any(name.endswith(".part") for name in writable.waiting()):
        assert time.monotonic() < deadline, "what the client left half is removed"
        time.sleep(0.02)
    finish(upload)
    assert writable.whole() == {"main": complete()}
    assert writable.waiting() == []


def test_large_files_that_came_whole_are_not_sent_again(upload, writable):
    process = upload()
    is_whole = lambda: [name for name in writable.waiting() if "-" in name]  # noqa: E731
    wait_for(is_whole, process)
    process.kill()
    process.wait()
    before, kept = received(writable), len(is_whole())
    assert kept >= 1
    finish(upload)
    assert received(writable) - before == 2 - kept
    assert writable.whole() == {"main": complete()}


def test_a_hub_that_is_killed_while_bytes_come_stands_as_before(upload, writable):
    process = upload()
    wait_for(lambda: list(writable.root.glob("acme/toy/.uploads/*.part")), process)
    writable.hub.process.kill()
    # It would try again for a while.
    process.kill()
    process.wait()
    assert writable.whole() == {"main": {}}
    writable.hub = writable.start()
    finish(upload)
    assert writable.whole() == {"main": complete()}


def test_a_hub_that_is_killed_within_the_commit_stands_as_before_or_after(upload, writable):
    process = upload()
    wait_for(lambda: list(writable.root.glob("acme/toy/.staging/snapshot/build")), process)
    writable.hub.process.kill()
    # It would try again for a while.
    process.kill()
    process.wait()
    assert writable.whole() in ({"main": {}}, {"main": complete()})
    writable.hub = writable.start()
    finish(upload)
    assert writable.whole() == {"main": complete()}
    assert not (writable.root / "acme/toy/.staging").exists()


def test_a_hub_that_is_stopped_ends_in_time_while_a_client_sends(writable, reference):
    url = urlsplit(writable.hub.url)
    code = 'from huggingface_hub import HfApi; result = HfApi().create_repo("acme/toy", repo_type="kernel")'
    reference.python(writable.hub, writable.home, code, environ=writable.environ)
    with socket.create_connection((url.hostname, url.port), timeout=20) as slow:
        slow.sendall(
            b"POST /api/kernels/acme/toy/commit/main HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n"
            b"Authorization: Bearer %s\r\n\r\n{" % writable.token.encode()
        )
        deadline = time.monotonic() + 10
        while not writable.waiting():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        began = time.monotonic()
        assert writable.hub.stop(signal.SIGTERM) == 0
        assert time.monotonic() - began < 12
    assert writable.whole() == {"main": {}}


def test_publishers_at_the_hub_and_at_its_folder_do_not_lose_each_others_work(
    writable, reference, tmp_path
):
    """A directory hub may be written to by its own machine while it is served."""
    code = """
from huggingface_hub import CommitOperationAdd as Add, HfApi
api, kind = HfApi(), {"repo_type": "kernel"}
api.create_repo("acme/toy", **kind)
result = None
"""
    reference.python(writable.hub, writable.home, code, environ=writable.environ)
    (tmp_path / "local").write_bytes(b"local")

    def publish_locally():
        for n in range(10):
            publish(
                DirectoryHub(writable.root),
                RepoId("acme", "toy"),
                {"a": tmp_path / "local"},
                branch=f"local{n}",
                parent=None,
            )

    thread = threading.Thread(target=publish_locally)
    thread.start()
    code = code.replace('create_repo("acme/toy", **kind)', 'list_repo_refs("acme/toy", **kind)')
    code += """
for n in range(10):
    api.create_commit("acme/toy", [Add(f"{n}.txt", b"x")], commit_message="m", **kind)
"""
    reference.python(writable.hub, writable.home, code, environ=writable.environ)
    thread.join()
    branches = writable.whole()
    assert len(branches.pop("main")) == 10
    assert len(branches) == 10


def test_an_upload_that_is_refused_answers_before_its_bytes(writable, reference):
    """A client that sends a large body to a URL that is not good gets the reason, not a cut line."""
    code = f"""
import httpx2
from huggingface_hub import HfApi
HfApi().create_repo("acme/toy", repo_type="kernel")
answer = httpx2.put("{writable.hub.url}/kernels/acme/toy.git/info/lfs/objects/" + "0" * 64,
                    content=bytes(50_000_000))
result = [answer.status_code, answer.json()["error"]]
"""
    status, said = reference.python(writable.hub, writable.home, code, environ=writable.environ)
    assert (status, "upload URL" in said) == (403, True)
