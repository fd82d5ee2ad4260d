"""Answers that are packed, and pauses that are asked for, in ways that no hub means."""

from __future__ import annotations

import gzip
import zlib

import httpx2
import pytest

from kernel_spec.names import RepoId
from kernel_spec.wire import TreeFile
from kernels import fetch
from kernels.errors import HubUnreachableError
from kernels.hub_http import HttpHub

REPO = RepoId("acme", "toy")
FILE = TreeFile(path="a.py", size=2, oid="0" * 40)
REFS = b'{"branches": [], "tags": []}'


def hub_of(handler):
    client = httpx2.Client(transport=httpx2.MockTransport(handler))
    return HttpHub(url="http://hub.test", session=lambda: client, pauses=())


@pytest.mark.parametrize(
    ("coding", "pack"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("", bytes)],
)
def test_an_answer_may_be_packed_once(coding, pack):
    def handler(request):
        assert request.headers["accept-encoding"] == "gzip"
        return httpx2.Response(200, headers={"content-encoding": coding}, content=pack(REFS))

    assert hub_of(handler).read_refs(REPO).branches == ()


@pytest.mark.parametrize(
    "coding", ["gzip, gzip", "gzip,gzip,gzip", "br", "zstd", "rot13", "x" * 999]
)
@pytest.mark.parametrize("redirected", [False, True])
def test_an_answer_that_could_unpack_to_anything_is_not_unpacked(coding, redirected):
    """Packed twice, 64 KB become 64 GB before any limit is looked at."""
    body = gzip.compress(gzip.compress(bytes(1 << 20)))

    class Body(httpx2.SyncByteStream):
        def __iter__(self):
            yield body

    def handler(request):
        if redirected and request.url.path != "/there":
            location = {"location": "http://hub.test/there", "content-encoding": coding}
            return httpx2.Response(302, headers=location, stream=Body())
        return httpx2.Response(200, headers={"content-encoding": coding}, stream=Body())

    hub = hub_of(handler)
    with pytest.raises(HubUnreachableError, match="packed as") as caught:
        hub.read_refs(REPO)
    assert len(str(caught.value)) < 700
    with pytest.raises(HubUnreachableError, match="packed as"):
        list(hub.read_chunks(REPO, "a" * 40, FILE))
    assert hub.find_similar(REPO) == ()


@pytest.mark.parametrize(
    "text", ["nan", "NaN", "inf", "-inf", "1e999", "soon", "", "٣", "9" * 5000]
)
def test_a_pause_that_is_no_number_is_not_slept(text, monkeypatch):
    slept = []
    monkeypatch.setattr(fetch.time, "sleep", slept.append)
    answers = iter([503, 503, 200])

    def handler(request):
        headers = {"retry-after": text.encode()}
        return httpx2.Response(next(answers), headers=headers, content=b"ok")

    hub = hub_of(handler)
    assert fetch.again(lambda: b"".join(hub.read_chunks(REPO, "a" * 40, FILE)), hub) == b"ok"
    assert all(0 <= pause < fetch.LONGEST_PAUSE for pause in slept)
    assert len(slept) == 2
