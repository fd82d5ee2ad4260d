"""Proxies, certificates, tokens and hubs of the settings that the HTTP client cannot use, and a SOCKS proxy that fails."""

from __future__ import annotations

import base64
import sys
import time
from contextlib import contextmanager

import huggingface_hub
import pytest
from raw_server import serve_raw

import kernels
from kernel_spec.names import RepoId
from kernels import hub_http, hub_token
from kernels.errors import HubUnreachableError, SettingsError
from kernels.http_session import open_session
from kernels.hub_http import HttpHub
from kernels.hub_token import read_token
from kernels.settings import NETWORK_VARIABLES, TOKEN_VARIABLES, read_settings

REPO = RepoId("acme", "toy")
REFS = b'HTTP/1.1 200 OK\r\ncontent-length: 28\r\n\r\n{"branches": [], "tags": []}'
# RFC 1928: version 5 and the method taken; version 5, succeeded, address and port.
NO_PASSWORD = b"\x05\x00"
CONNECTED = b"\x05\x00\x00\x01" + bytes(6)


@contextmanager
def socks_proxy(*answers, then=""):
    """Answer each message of a handshake in turn; then close, or stay silent."""

    def serve(client, over):
        for answer in answers:
            client.recv(10_000)
            client.sendall(answer)
        if then == "silent":
            over.wait()

    with serve_raw(serve) as (address, connections):
        yield f"socks5://{address}", connections


@pytest.fixture(params=["httpx", "httpx2"])
def client(request):
    pytest.importorskip("socksio")
    return pytest.importorskip(request.param).Client


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(hub_http, "TIMEOUT", 0.2)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("answers", "then", "said"),
    [
        ((), "silent", "it does not answer"),
        ((NO_PASSWORD,), "silent", "it does not answer"),
        ((), "", ""),
        ((b"",), "", "Malformed"),
        ((b"\x05",), "", "Malformed"),
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "", "Malformed"),
        ((b"\x05\xff",), "", "NO ACCEPTABLE"),
        ((b"\x05\x02",), "", "PASSWORD"),
        ((NO_PASSWORD, b"\x05\x05\x00\x01" + bytes(6)), "", "refused"),
        ((NO_PASSWORD, b"\x05"), "", "Malformed"),
    ],
)
def test_a_socks_proxy_that_does_not_connect_is_given_up(client, answers, then, said):
    """Of two clients one reads in the handshake without a time-out, and both let errors of another package out."""
    with socks_proxy(*answers, then=then) as (proxy, connections), client(proxy=proxy) as session:
        hub = HttpHub(url="http://hub.invalid", session=lambda: session, pauses=())
        begin = time.monotonic()
        with pytest.raises(HubUnreachableError, match=f"SOCKS proxy did not connect.*{said}"):
            hub.read_refs(REPO)
        assert time.monotonic() - begin < 2.0
        assert len(connections) == 1


@pytest.mark.usefixtures("hasty")
def test_a_socks_proxy_that_connects_is_used_and_its_hub_bounded_as_any(client):
    answers = (NO_PASSWORD, CONNECTED, REFS)
    with socks_proxy(*answers, then="silent") as (proxy, connections):
        with client(proxy=proxy) as session:
            hub = HttpHub(url="http://hub.invalid", session=lambda: session, pauses=())
            assert hub.read_refs(REPO).branches == ()
            with pytest.raises(HubUnreachableError, match="timed out"):
                hub.read_refs(REPO)
        assert len(connections) == 1


@pytest.fixture
def network(monkeypatch):
    """Set variables for the real session of huggingface_hub."""
    for name in NETWORK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("KERNELS_HUB", "http://127.0.0.1:9")
    huggingface_hub.close_session()
    yield monkeypatch.setenv
    huggingface_hub.close_session()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTP_PROXY", "ftp://proxy:1"),
        ("http_proxy", "http://proxy:port"),
        ("HTTPS_PROXY", "socks4://proxy:1"),
        ("ALL_PROXY", "http://[::1"),
        ("SSL_CERT_FILE", "/nonexistent.pem"),
        ("SSL_CERT_FILE", __file__),
    ],
)
def test_what_the_client_cannot_use_is_named(network, name, value):
    network(name, value)
    with pytest.raises(SettingsError, match=f"^{name}: the HTTP client cannot use") as caught:
        kernels.get_kernel("acme/toy")
    assert caught.value.exit_code == 2
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("password", ["half/of-it", "half'/of-it", "half'\"/of-it"])
def test_a_password_is_not_repeated_where_a_proxy_cannot_be_used(network, password):
    network("HTTPS_PROXY", f"http://me:{password}@proxy:1")
    with pytest.raises(SettingsError, match="percent-encoded") as caught:
        kernels.get_kernel("acme/toy")
    assert "half" not in str(caught.value)


def test_a_socks_proxy_without_its_package_says_which(network, monkeypatch):
    monkeypatch.setitem(sys.modules, "socksio", None)
    network("ALL_PROXY", "socks5://127.0.0.1:1")
    with pytest.raises(SettingsError, match=r"ALL_PROXY.*pip install socksio"):
        kernels.get_kernel("acme/toy")


def test_another_package_that_is_missing_is_not_blamed_on_a_proxy(network, monkeypatch):
    def fail():
        raise ImportError("no module named h2")

    network("ALL_PROXY", "socks5://127.0.0.1:1")
    monkeypatch.setattr("huggingface_hub.utils.get_session", fail)
    with pytest.raises(ImportError, match="h2"):
        open_session()


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:99999",
        "http://a..b",
        "http://.",
        f"http://{'a' * 64}.invalid",
        "http://h\u00fcb..x",
        "http://me:secret@",
        "http://me:a@secret@c",
        "https://me:secret/secret@c",
        "acme=https://me:?secret@c",
    ],
)
def test_a_hub_that_no_socket_takes_is_named(network, url):
    network("KERNELS_HUB", url)
    with pytest.raises(SettingsError, match=r"KERNELS_HUB: .* is not a hub") as caught:
        kernels.get_kernel("acme/toy")
    assert ("percent-encoded" in str(caught.value)) is ("@" in url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://hub.corp.", "http://h\u00fcb.corp", "https://[::1]:80/x/"])
def test_a_hub_with_an_odd_name_is_one(url):
    (hub,) = read_settings({"KERNELS_HUB": url, "HOME": "/"}).hubs
    assert hub.url == url.rstrip("/")


@pytest.mark.parametrize("location", ["http://127.0.0.1:99999/x", f"http://{'a' * 64}/x"])
def test_a_redirect_to_where_no_socket_goes_is_an_error_of_ours(monkeypatch, location):
    with (
        redirecting(location) as url,
        pytest.raises(HubUnreachableError, match="cannot be reached"),
    ):
        HttpHub(url=url, pauses=()).read_refs(REPO)


@contextmanager
def redirecting(location):
    def serve(client, _):
        client.recv(10_000)
        head = f"HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"
        client.sendall(head.encode())

    with serve_raw(serve) as (address, _):
        yield f"http://{address}"


@pytest.mark.parametrize("token", ["hf_\u00fc", "hf_a b", "hf_a\x7f"])
def test_a_token_that_fits_in_no_header_is_not_sent_and_not_shown(
    web, publisher, token, monkeypatch
):
    publisher.publish()
    monkeypatch.setenv("HF_ENDPOINT", web.URL)
    monkeypatch.setattr("huggingface_hub.utils._headers.get_token", lambda: token)
    with pytest.raises(SettingsError, match="HF_TOKEN") as caught:
        kernels.get_kernel("acme/toy")
    assert token not in str(caught.value)
    assert web.requests == []


@pytest.mark.parametrize("name", TOKEN_VARIABLES)
def test_where_a_variable_holds_the_token_no_file_is_looked_at(web, publisher, name, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    publisher.publish()
    monkeypatch.setenv("HF_ENDPOINT", web.URL)
    monkeypatch.setattr("pathlib.Path.is_fifo", refuse)
    for each in TOKEN_VARIABLES:
        monkeypatch.delenv(each, raising=False)
    with pytest.raises(SettingsError, match="set HF_TOKEN"):
        read_token(web.URL)
    monkeypatch.setenv(name, "hf_word")
    assert read_token(web.URL) == "hf_word"
    assert kernels.get_kernel("acme/toy").VALUE == 1


@pytest.fixture
def exchange(monkeypatch):
    """A job that is to have a token in exchange for its identity; return what sets the hub that is asked."""
    pytest.importorskip("huggingface_hub._oidc")
    for name in (*TOKEN_VARIABLES, "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_OIDC_RESOURCE", "kernels/acme/toy")
    monkeypatch.setenv("HF_OIDC_ID_TOKEN", "head.claims.signature")
    monkeypatch.setattr("huggingface_hub.utils._auth._OIDC_TOKEN_CACHE", None)

    def ask(url):
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
        return read_token(url)

    return ask


def answering(status, body, *headers):
    """Serve one answer to whatever is asked."""
    head = "".join(f"{line}\r\n" for line in (f"content-length: {len(body)}", *headers))

    def serve(client, over):
        client.recv(100_000)
        client.sendall(f"HTTP/1.1 {status} X\r\n{head}\r\n{body}".encode())

    return serve_raw(serve)


def test_a_token_is_had_in_exchange_for_the_identity_of_a_job(exchange):
    with answering(200, '{"access_token": "hf_jwt_x", "expires_in": 60}') as (address, _):
        assert exchange(f"http://{address}") == "hf_jwt_x"


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (403, '{"error": "head.claims.signature is not of a trusted publisher"}', "answered 403"),
        (400, "", "answered 400"),
        (200, "{}", "its answer has no 'access_token'"),
        (200, "<html>", "Expecting value"),
    ],
)
def test_a_hub_that_exchanges_no_token_is_told_with_what_it_expects(exchange, status, body, said):
    served = answering(status, body, "content-type: application/json")
    with served as (address, _), pytest.raises(SettingsError, match=said) as caught:
        exchange(f"http://{address}")
    message = str(caught.value)
    assert message.startswith(
        f"HF_OIDC_RESOURCE='kernels/acme/toy': http://{address} gave no token"
    )
    for part in ("HF_OIDC_ID_TOKEN", "id-token: write", "among its trusted publishers"):
        assert part in message
    assert "head.claims.signature" not in message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_job_without_an_identity_is_told_how_to_have_one(exchange, monkeypatch):
    monkeypatch.delenv("HF_OIDC_ID_TOKEN")
    with pytest.raises(
        SettingsError, match=r"no OIDC id token is available.*Expected: HF_OIDC_ID_"
    ):
        exchange("http://hub.invalid")


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("fault", ["closed", "silent", "busy"])
def test_a_hub_that_does_not_answer_an_exchange_is_unreachable(exchange, fault, monkeypatch):
    """So that a record stands in, where there is one."""
    monkeypatch.setattr(hub_token, "EXCHANGE_SECONDS", 0.2)

    def serve(client, over):
        client.recv(100_000)
        if fault == "busy":
            client.sendall(b"HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n")
        elif fault == "silent":
            over.wait()

    with serve_raw(serve) as (address, _):
        begin = time.monotonic()
        with pytest.raises(HubUnreachableError, match="gave no token for the identity of this job"):
            exchange(f"http://{address}")
        assert time.monotonic() - begin < 5.0


def test_credentials_of_a_hub_go_to_it_and_nowhere_else(web, publisher, cache, monkeypatch, caplog):
    """Not into messages, not into the log, not into what is kept on the disk."""
    publisher.publish()
    monkeypatch.setenv("KERNELS_HUB", web.URL.replace("://", "://me:pass%20word@"))
    caplog.set_level("INFO", logger="kernels")
    assert kernels.get_kernel("acme/toy").VALUE == 1
    packed = base64.b64encode(b"me:pass word").decode()
    assert {headers["authorization"] for headers in web.headers} == {f"Basic {packed}"}
    with pytest.raises(LookupError) as caught:
        kernels.get_kernel("acme/nothing")
    texts = [str(caught.value), caplog.text, repr(read_settings())]
    texts += [path.read_text("latin-1") for path in cache.rglob("*") if path.is_file()]
    assert not [text for text in texts if "pass" in text and "word" in text]
    assert any(web.URL in text for text in texts)


def test_other_credentials_find_what_was_cached(web, publisher, monkeypatch):
    publisher.publish()
    monkeypatch.setenv("KERNELS_HUB", web.URL.replace("://", "://me:old@"))
    kernels.get_kernel("acme/toy")
    asked = len(web.requests)
    monkeypatch.setenv("KERNELS_HUB", web.URL.replace("://", "://me:new@"))
    kernels.load.forget()
    assert kernels.get_kernel("acme/toy").VALUE == 1
    assert len(web.requests) == asked
