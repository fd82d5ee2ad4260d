"""Connections of our own: kept, redirected, cut off, and when ``huggingface_hub`` is asked instead."""

from __future__ import annotations

import gzip
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from kernels import direct, hub_http, settings
from kernels.direct import DirectError, DirectSession

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"


Answer = bytes | Callable[[], Iterator[bytes]]


class Server:
    """Answers each request on loopback with the next of a list of bytes; the last one stays."""

    def __init__(self, *answers: Answer, closes: bool = False):
        self.answers = list(answers)
        self.closes = closes
        self.asked: list[str] = []
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self.connections += 1
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with suppress(OSError), connection, connection.makefile("rb") as lines:
            while line := lines.readline():
                head = [line.decode()]
                while (line := lines.readline()) not in {b"\r\n", b""}:
                    head.append(line.decode().lower())
                self.asked.append("".join(head))
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if callable(answer):
                    for piece in answer():
                        connection.sendall(piece)
                    return
                connection.sendall(answer)
                if self.closes or b"connection: close" in answer:
                    connection.shutdown(socket.SHUT_RDWR)
                    return

    def drop_all(self):
        """Close every connection, as a server does with those that are idle."""
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self):
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.drop_all()


@pytest.fixture
def serve():
    servers = []

    def start(*answers, **options):
        servers.append(Server(*answers, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def session():
    return DirectSession()


def get(session, url, *, timeout=5.0, **headers):
    with session.stream("GET", url, headers=headers, timeout=timeout) as answer:
        return answer.status_code, b"".join(answer.iter_bytes())


def test_one_connection_serves_one_question_after_another(serve, session):
    server = serve(OK)
    assert [get(session, f"{server.url}/a?b=1") for _ in range(5)] == [(200, b"hello")] * 5
    assert server.connections == 1
    assert server.asked[0].startswith("GET /a?b=1 HTTP/1.1")
    assert "accept-encoding: identity" in server.asked[0]


def test_a_connection_that_the_hub_closed_meanwhile_is_replaced(serve, session):
    server = serve(OK)
    get(session, server.url)
    server.drop_all()
    assert get(session, server.url) == (200, b"hello")
    assert server.connections == 2


def test_an_answer_that_was_not_read_to_its_end_costs_its_connection(serve, session):
    server = serve(OK.replace(b"5", b"500000") + bytes(499995), OK)
    with session.stream("GET", server.url, headers={}, timeout=5.0) as answer:
        next(answer.iter_bytes())
    assert get(session, server.url) == (200, b"hello")
    assert server.connections == 2


def test_threads_share_no_connection(serve, session):
    server = serve(OK)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: get(session, server.url), range(200))) == {(200, b"hello")}
    assert server.connections <= 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_does_not_talk_on_its_parents_connections(serve):
    server = serve(OK)
    code = (
        "import os, sys\n"
        "from kernels.direct import direct_session\n"
        "def get():\n"
        "    with direct_session().stream('GET', sys.argv[1], headers={}, timeout=5) as answer:\n"
        "        return b''.join(answer.iter_bytes())\n"
        "assert get() == b'hello'\n"
        "child = os.fork()\n"
        "assert get() == b'hello'\n"
        "if child: sys.exit(os.waitpid(child, 0)[1])\n"
        "os._exit(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, server.url], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 20",
        b"hello\r\n\r\n",
        b"",
    ],
)
def test_what_is_no_whole_answer_is_an_error(serve, session, answer):
    server = serve(answer, closes=True)
    with pytest.raises(DirectError):
        get(session, server.url)


def test_compressed_text_without_its_end_is_an_error(serve, session):
    body = gzip.compress(b"hello")[:-8]
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {len(body)}\r\n\r\n"
    with pytest.raises(DirectError, match="cut off"):
        get(session, serve(head.encode() + body).url)


def test_what_was_compressed_unasked_is_unpacked_in_pieces(serve, session):
    bomb = gzip.compress(bytes(50 << 20))
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {len(bomb)}\r\n\r\n"
    server = serve(head.encode() + bomb)
    with session.stream("GET", server.url, headers={}, timeout=5.0) as answer:
        sizes = [len(chunk) for chunk in answer.iter_bytes()]
    assert sum(sizes) == 50 << 20
    assert max(sizes) <= direct.CHUNK_BYTES


def test_chunks_and_answers_without_a_length_are_read(serve, session):
    chunked = (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
    )
    server = serve(chunked, chunked, b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello")
    assert [get(session, server.url) for _ in range(3)] == [(200, b"hello")] * 3
    assert server.connections == 1


def test_silence_ends_at_the_timeout(serve, session):
    server = serve(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello")
    with pytest.raises(DirectError, match="timed out"):
        get(session, server.url, timeout=0.2)


def without_end(head, piece, *, pause=0.0):
    def pieces():
        yield head
        while True:
            time.sleep(pause)
            yield piece

    return pieces


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
DRIBBLES = {
    "status": without_end(b"HTTP/1.1 ", b" ", pause=0.01),
    "header": without_end(b"HTTP/1.1 200 OK\r\nx: ", b"y", pause=0.01),
    "interim answers": without_end(b"", b"HTTP/1.1 100 Continue\r\n\r\n", pause=0.01),
    "chunk extension": without_end(CHUNKED + b"1;", b"x", pause=0.01),
    "trailers": without_end(CHUNKED + b"0\r\n", b"x: y\r\n", pause=0.01),
}
FLOODS = {
    "interim answers": without_end(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "trailers": without_end(CHUNKED + b"0\r\n", b"x: y\r\n" * 1000),
}


@pytest.mark.parametrize("dribble", DRIBBLES.values(), ids=DRIBBLES)
def test_an_answer_that_dribbles_between_its_pieces_is_given_up(
    serve, session, monkeypatch, dribble
):
    """Every byte begins the socket's timeout anew, so that alone waits for ever."""
    monkeypatch.setattr(direct, "WAIT_SECONDS", 0.2)
    with pytest.raises(DirectError, match="no piece of an answer"):
        get(session, serve(dribble).url, timeout=5.0)


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_an_answer_of_nothing_but_frames_is_given_up(serve, session, monkeypatch, flood):
    monkeypatch.setattr(direct, "OVERHEAD_BYTES", 1 << 20)
    with pytest.raises(DirectError, match="1 MiB came, and no piece of an answer"):
        get(session, serve(flood).url)


def test_a_redirect_is_followed_before_its_own_text_has_an_end(serve, session, monkeypatch):
    monkeypatch.setattr(direct, "_REDIRECT_SECONDS", 0.1)
    head = b"HTTP/1.1 302 Found\r\nlocation: /b\r\ncontent-length: 60000\r\n\r\n"
    server = serve(without_end(head, b"x", pause=0.01), OK)
    assert get(session, server.url) == (200, b"hello")


def test_a_place_where_nobody_listens_is_an_error(serve, session):
    server = serve(OK)
    server.close()
    with pytest.raises(DirectError, match="refused"):
        get(session, server.url)


def redirect(to, status=302):
    return f"HTTP/1.1 {status} Found\r\nlocation: {to}\r\ncontent-length: 2\r\n\r\nno".encode()


def test_a_token_stays_with_the_place_it_is_for(serve, session):
    other = serve(OK)
    server = serve(redirect("/b c"), redirect(f"{other.url}/d"))
    assert get(session, server.url, authorization="Bearer x") == (200, b"hello")
    assert ["bearer" in asked for asked in server.asked] == [True, True]
    assert server.asked[1].startswith("GET /b%20c ")
    assert server.connections == 1
    assert "bearer" not in other.asked[0]


@pytest.mark.parametrize("to", ["/again", "ftp://hub.test/x", "http://[::1", "//", "http://h:x/"])
def test_redirects_that_lead_nowhere_are_an_error(serve, session, to):
    with pytest.raises(DirectError):
        get(session, serve(redirect(to)).url)


def test_a_redirect_from_https_to_plain_http_is_refused(serve, session, monkeypatch):
    server = serve(redirect("http://hub.test/x"))
    plain = direct.HTTPConnection
    monkeypatch.setattr(
        direct, "HTTPSConnection", lambda host, port, timeout, context: plain(host, port, timeout)
    )
    with pytest.raises(DirectError, match="from https to http"):
        get(session, server.url.replace("http:", "https:"))


def test_the_next_page_is_in_the_link_header(serve, session):
    link = b'HTTP/1.1 200 OK\r\nlink: </p?a=1>; rel="prev", </p?c=2>; rel="next"\r\ncontent-length: 0\r\n\r\n'
    with session.stream("GET", serve(link).url, headers={}, timeout=5.0) as answer:
        assert answer.links["next"]["url"] == "/p?c=2"
    with session.stream("GET", serve(OK).url, headers={}, timeout=5.0) as answer:
        assert answer.links == {}


def test_certificates_are_checked_and_names_too(session):
    import ssl

    context = session._context
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


@pytest.fixture
def plain(monkeypatch):
    """An environment without proxies, certificates of one's own and tokens."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(("SSL_CERT", "HF_", "HUGGING")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(hub_http, "_has_own_session", lambda: False)


def test_a_plain_network_needs_no_huggingface_hub(plain):
    assert hub_http.is_direct("http://hub.test")
    assert isinstance(hub_http.open_session("http://hub.test"), DirectSession)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTPS_PROXY", "http://proxy.test:3128"),
        ("all_proxy", "socks5://proxy.test"),
        ("SSL_CERT_FILE", "/etc/company.pem"),
        ("SSL_CERT_DIR", "/etc/company"),
    ],
)
def test_proxies_and_certificates_of_ones_own_are_left_to_huggingface_hub(
    plain, monkeypatch, name, value
):
    monkeypatch.setenv(name, value)
    assert not hub_http.is_direct("https://hub.test")


def test_an_exemption_alone_is_no_proxy(plain, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    assert hub_http.is_direct("http://hub.test")


def test_a_password_in_the_url_is_left_to_huggingface_hub(plain):
    assert not hub_http.is_direct("https://me:secret@hub.test")


def test_https_without_the_systems_authorities_is_left_to_huggingface_hub(plain, monkeypatch):
    monkeypatch.setattr(direct, "knows_authorities", lambda: False)
    assert not hub_http.is_direct("https://hub.test")
    assert hub_http.is_direct("http://hub.test")


def test_a_session_that_the_program_made_is_used(monkeypatch):
    import httpx2

    assert not hub_http._has_own_session()
    mine = httpx2.Client()
    monkeypatch.setattr("huggingface_hub.utils._http._GLOBAL_CLIENT_FACTORY", lambda: mine)
    monkeypatch.setattr("huggingface_hub.utils._http._GLOBAL_CLIENT", None)
    assert hub_http._has_own_session()
    assert hub_http.open_session("http://hub.test") is mine


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_OIDC_RESOURCE"]
)
def test_a_token_may_be_where_a_variable_names_one(plain, tmp_path, name):
    home = {"HF_HOME": str(tmp_path)}
    assert not settings.may_have_token(home)
    assert settings.may_have_token({**home, name: "x"})


def test_a_token_may_be_in_the_file_that_a_login_leaves(tmp_path):
    assert not settings.may_have_token({"HF_HOME": str(tmp_path)})
    (tmp_path / "token").write_text("hf_secret")
    assert settings.may_have_token({"HF_HOME": str(tmp_path)})


def test_a_cold_load_from_a_plain_hub_imports_no_client(serve, tmp_path):
    """The whole flow, against a hub that is not there: what it would have imported, it has."""
    server = serve(
        b"HTTP/1.1 404 Not Found\r\nx-error-code: RepoNotFound\r\ncontent-length: 0\r\n\r\n"
    )
    code = (
        "import sys, kernels\n"
        "assert not kernels.has_kernel('acme/toy')\n"
        "print(sorted({'huggingface_hub', 'httpx2', 'httpx', 'yaml', 'tqdm'} & set(sys.modules)))\n"
    )
    environ = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("HF_", "KERNELS_", "SSL_")) and not key.lower().endswith("_proxy")
    }
    environ |= {"KERNELS_HUB": server.url, "HF_HOME": str(tmp_path), "NO_PROXY": "*"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
    assert any("/api/kernels/acme/toy/refs" in asked for asked in server.asked)
