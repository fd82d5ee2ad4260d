"""Many processes that start at once: one download, bounded requests, no stale locks, threads, copies."""

from __future__ import annotations

import signal
import time
from collections import Counter

import pytest

SIXTY = {"__init__.py": "from .m0 import VALUE\n", "big.bin": b"\1" * 2_000_000} | {
    f"m{number}.py": f"VALUE = {number}\n" for number in range(57)
}
LOAD = "import kernels; print(kernels.get_kernel('acme/toy').VALUE)"


def asked(hub):
    return Counter(f"{request.method} {request.path}" for request in hub.requests())


def test_twelve_cold_processes_ask_what_one_asks(web, root, host, publish, finish):
    publish(root, SIXTY)
    assert host.run(LOAD) == "0"
    one = len(web.requests())
    assert one == 60 + 3, "the files, the refs, the listing and the publisher"
    host.environ["KERNELS_CACHE"] = str(host.home / "another")
    assert finish([host.start(LOAD) for _ in range(12)]) == ["0"] * 12
    assert len(web.requests()) - one <= 1.2 * one
    # Nothing is left to be asked: neither by a new process nor by one that names the commit.
    before = len(web.requests())
    commit = "import os; r = os.listdir(os.environ['KERNELS_CACHE'] + '/store-v1/trees')[0]\n"
    assert host.run(commit + LOAD) == "0"
    assert len(web.requests()) == before


def test_a_full_commit_costs_no_request_even_when_its_record_is_old(web, root, host, publish):
    commit = publish(root)
    host.run(LOAD)
    before = asked(web)
    pinned = f"import kernels; print(kernels.get_kernel('acme/toy', revision='{commit}').VALUE)"
    assert host.run(pinned, KERNELS_REF_TTL="0") == "1"
    assert asked(web) == before


def test_who_asks_for_all_may_be_killed(web, root, host, publish, finish):
    """The others wait for its answer, see it die, and one of them asks in its place."""
    publish(root)
    stuck = (
        "import kernels.hub_http as h, time\n"
        "h.HttpHub.read_refs = lambda *a: (print('asking', flush=True), time.sleep(600))\n"
    )
    leader = host.start(stuck + LOAD)
    assert leader.stdout.readline() == "asking\n"
    others = [host.start(LOAD) for _ in range(3)]
    time.sleep(1.0)
    leader.send_signal(signal.SIGKILL)
    leader.wait()
    begin = time.monotonic()
    assert finish(others) == ["1"] * 3
    assert time.monotonic() - begin < 30
    assert asked(web)["GET /api/kernels/acme/toy/refs"] == 1


def test_threads_and_processes_share_one_download(web, root, host, publish, finish):
    publish(root, SIXTY)
    threads = """
import threading, kernels
found = []
def load():
    found.append(kernels.get_kernel('acme/toy'))
threads = [threading.Thread(target=load) for _ in range(6)]
for t in threads: t.start()
for t in threads: t.join()
assert len(found) == 6 and len(set(map(id, found))) == 1, found
print(found[0].VALUE)
"""
    assert finish([host.start(threads) for _ in range(2)]) == ["0", "0"]
    files = {line: n for line, n in asked(web).items() if "/resolve/" in line}
    assert set(files.values()) == {1}, files


def test_two_versions_in_one_process_never_meet(web, root, host, publish):
    first = publish(root, {"__init__.py": "from . import state\n", "state.py": "VALUE = 1\n"})
    second = publish(root, {"__init__.py": "from . import state\n", "state.py": "VALUE = 2\n"})
    code = f"""
import kernels
old = kernels.get_kernel('acme/toy', revision='{first}')
new = kernels.get_kernel('acme/toy', revision='{second}')
old.state.VALUE = 10
print(old.state.VALUE, new.state.VALUE, old.__name__ != new.__name__)
"""
    assert host.run(code) == "10 2 True"


@pytest.mark.parametrize("word", ["never", "cached-only", "allow"])
def test_the_switch_holds_for_every_caller_of_the_process(web, root, host, publish, word):
    publish(root)
    code = "import kernels; print(kernels.has_kernel('acme/toy'))"
    assert host.run(code, KERNELS_LOAD=word) == str(word == "allow")
    assert bool(web.requests()) is (word == "allow")


def test_an_owner_is_looked_up_only_where_it_is_bound(web, root, host, publish, tmp_path):
    publish(root)
    empty = tmp_path / "empty"
    empty.mkdir()
    host.hub = f"acme=file://{empty} {web.url}"
    assert "RepoNotFoundError" in host.run(fails=True)
    assert web.requests() == []
