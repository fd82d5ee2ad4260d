"""What a hub can do to the loader: answer without end, lie about files, lead elsewhere."""

from __future__ import annotations

import gzip
import json
import time

import httpx2
import pytest

import kernels
from kernel_spec.errors import IntegrityError, KernelError, WireError
from kernel_spec.names import RepoId
from kernel_spec.wire import TreeFile
from kernels import hub_http
from kernels.errors import HubAccessError, HubUnreachableError
from kernels.hub_address import hide_secrets
from kernels.hub_http import HttpHub

REPO = RepoId("acme", "toy")
COMMIT = "a" * 40


@pytest.fixture
def commit(publisher, web):
    return publisher.publish("acme/toy")


def entry(path, size=1):
    return {"type": "file", "path": path, "size": size, "oid": "0" * 40}


def answer_trees(web, entries, **headers):
    body = json.dumps(entries).encode()
    web.fault = lambda path: (200, headers, body) if "/tree/" in path else None


def hub_of(handler):
    """Return a hub at the other end of which is a function."""
    client = httpx2.Client(transport=httpx2.MockTransport(handler))
    return HttpHub(url="http://hub.test", session=lambda: client, pauses=())


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([entry("build/torch-cpu/../../x")], "unsafe"),
        ([entry("/etc/passwd")], "absolute"),
        ([entry("build/torch-cpu/a.py"), entry("build/torch-cpu/a.py", 2)], "twice"),
        ([entry("build/torch-cpu/a"), entry("build/torch-cpu/a/b.py")], "a file and a folder"),
        ([entry("build/torch-cpu/" + "d/" * 1500 + "a.py")], "longer than 1024 bytes"),
        ([entry("build/torch-cpu/" + "d/" * 300 + "a.py")], "more than 100 parts"),
        ([entry("build/torch-cpu/a.py", -1)], "size"),
        ([entry("build/torch-cpu/a.py", 1e999)], "size"),
    ],
)
def test_a_listing_that_cannot_be_is_refused(web, commit, entries, said, cache):
    answer_trees(web, entries)
    with pytest.raises(WireError, match=said):
        kernels.get_kernel("acme/toy")
    assert not (cache / "variants").exists()


def test_a_listing_whose_pages_go_in_a_circle(web, commit):
    url = f"{web.URL}/api/kernels/acme/toy/tree/{commit}/build?cursor=1"
    answer_trees(web, [], link=f'<{url}>; rel="next"')
    with pytest.raises(WireError, match="no end"):
        kernels.get_kernel("acme/toy")


def test_a_listing_of_ever_new_pages(monkeypatch):
    monkeypatch.setattr(hub_http, "PAGES", 5)
    asked = []

    def handler(request):
        asked.append(request)
        link = f'<http://hub.test/api/kernels/acme/toy/tree/x?cursor={len(asked)}>; rel="next"'
        return httpx2.Response(200, headers={"link": link}, content=b"[]")

    with pytest.raises(WireError, match="no end"):
        hub_of(handler).read_tree(REPO, COMMIT)
    assert len(asked) == 5


def test_a_listing_of_ever_more_files(monkeypatch):
    """Each page is in bounds; all of them together filled the memory."""
    monkeypatch.setattr(hub_http, "LISTED_FILES", 50)
    asked = []

    def handler(request):
        asked.append(request)
        link = f'<http://hub.test/api/kernels/acme/toy/tree/x?cursor={len(asked)}>; rel="next"'
        files = [entry(f"build/torch-cpu/{len(asked)}_{number}.py") for number in range(20)]
        return httpx2.Response(200, headers={"link": link}, json=files)

    with pytest.raises(WireError, match="no end"):
        hub_of(handler).read_tree(REPO, COMMIT)
    assert len(asked) == 3


def test_pages_at_another_place_are_not_asked_for(web, commit):
    answer_trees(web, [], link='<http://evil.test/x>; rel="next"')
    with pytest.raises(WireError, match="another place"):
        kernels.get_kernel("acme/toy")
    assert all("evil" not in headers["host"] for headers in web.headers)


@pytest.mark.parametrize("packed", [False, True])
def test_an_answer_without_end(monkeypatch, packed):
    monkeypatch.setattr(hub_http, "ANSWER_BYTES", 1 << 20)
    body = b"[" + b" " * (8 << 20)
    headers = {"content-encoding": "gzip"} if packed else {}
    body = gzip.compress(body) if packed else body
    hub = hub_of(lambda _: httpx2.Response(200, headers=headers, content=body))
    with pytest.raises(WireError, match="more than 1 MiB"):
        hub.read_refs(REPO)


def test_an_answer_of_endless_depth(web, commit):
    web.fault = lambda path: (200, {}, b"[" * 200_000)
    with pytest.raises(WireError, match="expected JSON"):
        kernels.get_kernel("acme/toy")


def test_a_hub_that_dribbles_is_given_up(monkeypatch):
    clock = iter(range(0, 10_000, 14))
    monkeypatch.setattr(hub_http.time, "monotonic", lambda: float(next(clock)))

    class Dribble(httpx2.SyncByteStream):
        sent = 0

        def __iter__(self):
            while True:
                Dribble.sent += 1
                yield b" "

    hub = hub_of(lambda _: httpx2.Response(200, stream=Dribble()))
    with pytest.raises(HubUnreachableError, match="too slowly"):
        hub.read_refs(REPO)
    assert Dribble.sent < 10


def test_metadata_beyond_any_reason_is_not_fetched(web, commit):
    answer_trees(web, [entry("build/torch-cpu/metadata.json", 10**12)])
    with pytest.raises(IntegrityError, match="1000000000000 bytes"):
        kernels.get_kernel("acme/toy")
    assert not any("resolve" in request for request in web.requests)


def test_a_redirect_does_not_take_the_token_along(web, commit, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", web.URL)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setattr("huggingface_hub.utils._headers.get_token", lambda: "hf_secret")

    def fault(path):
        if "resolve" in path and "moved" not in path:
            return 302, {"location": f"http://cdn.test{path}?moved"}, b""
        return None

    web.fault = fault
    assert kernels.get_kernel("acme/toy").VALUE == 1
    sent = {headers["host"]: "authorization" in headers for headers in web.headers}
    assert sent == {"hub.test": True, "cdn.test": False}


class Endless(httpx2.SyncByteStream):
    """A body that is given up after some megabytes, so that a failing test ends."""

    def __init__(self):
        self.sent = 0

    def __iter__(self):
        while self.sent < 64 << 20:
            self.sent += 1 << 20
            yield bytes(1 << 20)


def test_a_redirect_is_followed_without_reading_all_that_it_says():
    body = Endless()

    def handler(request):
        if request.url.path.startswith("/moved"):
            return httpx2.Response(200, json={"branches": [], "tags": []})
        return httpx2.Response(302, headers={"location": "/moved"}, stream=body)

    assert hub_of(handler).read_refs(REPO).branches == ()
    assert body.sent <= 2 << 20


@pytest.mark.parametrize("to", ["/again", "http://[::1", "//", "ftp://hub.test/x"])
def test_redirects_that_lead_nowhere_are_an_error(to):
    hub = hub_of(lambda request: httpx2.Response(302, headers={"location": to}))
    with pytest.raises((HubUnreachableError, HubAccessError)):
        hub.read_refs(REPO)


def test_a_redirect_from_https_to_plain_http_is_refused():
    asked = []

    def handler(request):
        asked.append(request.url.scheme)
        return httpx2.Response(302, headers={"location": "http://hub.test/x"})

    client = httpx2.Client(transport=httpx2.MockTransport(handler))
    hub = HttpHub(url="https://hub.test", session=lambda: client, pauses=())
    with pytest.raises(HubUnreachableError, match="from https to http"):
        hub.read_refs(REPO)
    assert asked == ["https"]


SIGNED = "http://reader:word@cdn.test/blob?X-Signature=hunter2#hunter2"


def lead_to_cdn(status, headers=(), **body):
    """Return what answers of a hub that sends everybody on to a signed URL, which answers so."""

    def handler(request):
        if request.url.host == "cdn.test":
            return httpx2.Response(status, headers=dict(headers), **body)
        return httpx2.Response(302, headers={"location": SIGNED})

    return handler


def refuse_to_connect(request):
    if request.url.host == "cdn.test":
        raise httpx2.ConnectError(f"cannot connect to {request.url}")
    return httpx2.Response(302, headers={"location": SIGNED})


def signed_pages(request):
    if "/tree/" not in request.url.path:
        return httpx2.Response(200, content=b"no JSON")
    return httpx2.Response(200, headers={"link": f'<{SIGNED}>; rel="next"'}, json=[])


def signed_pages_of_its_own(request):
    link = '<http://hub.test/more?page=hunter2>; rel="next"'
    return httpx2.Response(200, headers={"link": link}, json=[])


@pytest.mark.parametrize(
    "handler",
    [
        *map(lead_to_cdn, [401, 403, 404, 416, 429, 503]),
        lead_to_cdn(404, {"x-error-code": "EntryNotFound"}),
        lead_to_cdn(403, {"x-error-message": f"see {SIGNED}"}),
        lead_to_cdn(302, {"location": SIGNED}),
        lead_to_cdn(200, content=b"no JSON"),
        refuse_to_connect,
        signed_pages,
        signed_pages_of_its_own,
    ],
)
def test_no_message_shows_what_is_secret_in_the_url_of_an_answer(handler):
    hub, messages = hub_of(handler), []
    for ask in (
        lambda: hub.read_tree(REPO, COMMIT),
        lambda: list(hub.read_chunks(REPO, COMMIT, TreeFile("a", 1, "0" * 40))),
        lambda: hub.read_organization("acme"),
    ):
        try:
            ask()
        except KernelError as err:
            messages.append(str(err))
    assert messages
    assert not [each for each in messages if "hunter2" in each or "word@" in each]
    assert any("hub.test" in each or "cdn.test/blob" in each for each in messages)


def test_what_is_left_out_of_a_url_leaves_the_sentence_whole():
    said = "see https://u:p@a.b/c?d=e#f, 'http://a.b/?x' (http://a.b#y), file:///a?b. Why? http://a.b/c?z."
    shown = "see https://a.b/c?..., 'http://a.b/?...' (http://a.b?...), file:///a?b. Why? http://a.b/c?...."
    assert hide_secrets(said) == shown
    assert hide_secrets(shown) == shown


def test_a_quote_in_a_url_ends_no_secret():
    said = "GET 'https://a.b/it's?f=UTF-8''x&sig=hunter2' failed"
    assert hide_secrets(said) == "GET 'https://a.b/it's?...' failed"


@pytest.mark.parametrize("long", ["." * 100_000 + "x", "a." * 50_000, "http://" * 15_000 + "?x"])
def test_a_long_text_of_a_hub_is_shown_at_once(long):
    began = time.process_time()
    hide_secrets(f"http://a.b/?{long}")
    hide_secrets(long)
    assert time.process_time() - began < 2


def test_nor_does_that_of_a_redirect_that_gives_up_encryption():
    client = httpx2.Client(transport=httpx2.MockTransport(lead_to_cdn(200)))
    hub = HttpHub(url="https://hub.test", session=lambda: client, pauses=())
    with pytest.raises(HubUnreachableError, match=r"http://cdn\.test/blob\?\.\.\.,") as caught:
        hub.read_refs(REPO)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 502, 204])
@pytest.mark.parametrize("where", ["refs", "tree", "resolve", "organizations"])
def test_every_refusal_is_an_error_of_ours(web, commit, status, where, cache):
    web.fault = lambda path: (status, {}, b"<html>") if where in path else None
    with pytest.raises(KernelError) as caught:
        kernels.get_kernel("acme/toy")
    assert web.URL in str(caught.value)
    if status in (401, 403):
        assert isinstance(caught.value, HubAccessError)
    assert not list(cache.glob("variants/*"))
    assert not list(cache.glob("tmp/*"))
