"""A hub that sends a byte now and then, in every place where that is no byte of an answer."""

from __future__ import annotations

import gzip
import itertools
import time
from contextlib import contextmanager

import pytest
from raw_server import serve_raw

from kernel_spec.names import RepoId
from kernel_spec.wire import TreeFile
from kernels import hub_http
from kernels.errors import HubUnreachableError
from kernels.hub_http import HttpHub
from kernels.waiting import TooSlowError, Wait

REPO = RepoId("acme", "toy")
FILE = TreeFile(path="a.py", size=2, oid="0" * 40, sha256=None, executable=False)
OK = b"HTTP/1.1 200 OK\r\n"
WHOLE = OK + b'content-length: 28\r\n\r\n{"branches": [], "tags": []}'
PATIENCE = 0.2


def in_a_header():
    return OK + b"x-long: ", b"x"


def in_a_chunk_extension():
    return OK + b"transfer-encoding: chunked\r\n\r\n1;why=", b"x"


def in_informational_answers():
    return b"", b"HTTP/1.1 100 Continue\r\n\r\n"


def in_packed_nothing():
    head = b"content-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n"
    empty = b"\0\0\0\xff\xff"
    packed = gzip.compress(b"")[:10]
    return OK + head + b"a\r\n%s\r\n" % packed, b"5\r\n%s\r\n" % empty


def in_what_a_redirect_says():
    head = b"HTTP/1.1 302 Found\r\nlocation: /x\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"1;why=", b"x"


PLACES = [
    in_a_header,
    in_a_chunk_extension,
    in_informational_answers,
    in_packed_nothing,
    in_what_a_redirect_says,
]


@contextmanager
def dribbling_server(first, drop, *, good=0):
    """Serve so many good answers on each connection, then an answer without end."""

    def answer(client, over):
        for _ in range(good):
            client.recv(10_000)
            client.sendall(WHOLE)
        client.recv(10_000)
        client.sendall(first)
        while not over.wait(0.02):
            client.sendall(drop)

    with serve_raw(answer) as (address, connections):
        yield f"http://{address}", connections


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(hub_http, "PATIENCE_SECONDS", PATIENCE)
    monkeypatch.setattr(hub_http, "LISTING_TIMEOUT", PATIENCE)


@pytest.fixture(params=["httpx", "httpx2"])
def session(request):
    with pytest.importorskip(request.param).Client() as client:
        yield lambda: client


@contextmanager
def given_up_soon():
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < 2.0


@pytest.mark.parametrize("place", PLACES)
def test_a_question_is_given_up(session, place):
    with dribbling_server(*place()) as (url, connections):
        hub = HttpHub(url=url, session=session)
        with given_up_soon(), pytest.raises(HubUnreachableError, match="too slowly") as caught:
            hub.read_refs(REPO)
    assert f"{url}/api/kernels/acme/toy/refs" in str(caught.value)
    # It is not asked again: that would be as long a wait once more.
    assert len(connections) == 1


@pytest.mark.parametrize("place", PLACES)
def test_a_file_and_a_suggestion_are_given_up(session, place):
    with dribbling_server(*place()) as (url, _):
        hub = HttpHub(url=url, session=session)
        with given_up_soon(), pytest.raises(HubUnreachableError, match="too slowly"):
            list(hub.read_chunks(REPO, "a" * 40, FILE))
        with given_up_soon():
            assert hub.find_similar(REPO) == ()
            assert hub.has_model(REPO) is (
                place is in_a_chunk_extension or place is in_packed_nothing
            )


def test_a_last_read_that_runs_out_of_time_is_no_reason_to_ask_again(session):
    """Reads get whole seconds, so the last one may end by its own time-out."""
    with dribbling_server(OK, b"", good=1) as (url, connections):
        hub = HttpHub(url=url, session=session)
        hub.read_refs(REPO)
        with given_up_soon(), pytest.raises(HubUnreachableError, match="too slowly"):
            hub.read_refs(REPO)
    assert len(connections) == 1


def test_on_a_connection_that_served_well_before(session):
    with dribbling_server(*in_a_header(), good=2) as (url, connections):
        hub = HttpHub(url=url, session=session)
        for _ in range(2):
            assert hub.read_refs(REPO).branches == ()
        with given_up_soon(), pytest.raises(HubUnreachableError, match="too slowly"):
            hub.read_refs(REPO)
    assert len(connections) == 1


def test_a_body_may_take_longer_than_a_wait_for_its_next_piece(session):
    pieces = (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        b"400\r\n%s\r\n" % bytes(1024),
    )
    with dribbling_server(*pieces) as (url, _):
        chunks = HttpHub(url=url, session=session).read_chunks(REPO, "a" * 40, FILE)
        begin, size = time.monotonic(), 0
        while time.monotonic() < begin + 2 * PATIENCE:
            size += len(next(chunks))
        chunks.close()
    assert size > 5 * 1024


def test_a_wait_gives_whole_seconds_until_none_are_left(monkeypatch):
    times = itertools.count(100.0, 0.75)
    monkeypatch.setattr("kernels.waiting.time.monotonic", lambda: next(times))
    wait = Wait(read=2.0, whole=3.0)
    # 2.25, 1.5, 0.75 and 0 seconds are left.
    assert [wait.__index__() for _ in range(3)] == [2, 2, 1]
    with pytest.raises(TooSlowError):
        wait.__index__()
    wait.begin()
    assert wait.__index__() == 2


def test_a_client_that_reckons_with_its_time_outs_asks_all_the_same():
    """Clients hand the object on to the socket today; one that would not must not fail at it."""

    httpx2 = pytest.importorskip("httpx2")

    class Reckoning(httpx2.BaseTransport):
        def handle_request(self, request):
            seen.append(request.extensions["timeout"]["read"] * 2)
            return httpx2.Response(200, json={"branches": [], "tags": []})

    seen = []
    with httpx2.Client(transport=Reckoning()) as client:
        assert not HttpHub(url="http://hub.test", session=lambda: client).read_refs(REPO).branches
    assert seen == [2 * hub_http.TIMEOUT]
