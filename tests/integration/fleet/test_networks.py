"""Proxies, certificates of one's own, rate limits, and servers that are slow, cut off or no hub at all."""

from __future__ import annotations

import base64
import shutil
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest
from gateway import make_certificate, open_gate
from raw_server import serve_raw

LOAD = "import kernels; print(kernels.get_kernel('acme/toy').VALUE)"
# Patience is tested, not exercised: seconds become tenths.
HASTY = (
    "import kernels.hub_http as h; h.TIMEOUT = 0.5; h.PATIENCE_SECONDS = 1.0; h.SLOWEST = 1024\n"
)


@pytest.fixture(autouse=True)
def published(root, publish):
    publish(root)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_hub_with_a_certificate_of_the_company(web, host, tmp_path):
    with open_gate(web.url, context=make_certificate(tmp_path)) as gate:
        host.hub = gate.url
        said = host.run(fails=True)
        assert "certificate" in said.lower()
        assert "HubUnreachableError" in said
        for word in ("verify=false", "insecure", "disable"):
            assert word not in said.lower()
        assert gate.asked == []
        assert host.run(SSL_CERT_FILE=str(tmp_path / "ca.pem")) == "1"


def test_a_proxy_is_used_unless_the_host_is_exempt(web, host):
    with open_gate(web.url) as proxy:
        host.environ = {"HTTP_PROXY": proxy.url, "NO_PROXY": ""}
        host.hub = web.url.replace("127.0.0.1", "hub.invalid")
        # Only the proxy could find such a name; it does not, which shows who was asked.
        host.run(fails=True)
        assert proxy.asked
        assert all(url.startswith("http://hub.invalid:") for url in proxy.asked)
        proxy.asked.clear()
        host.hub = web.url
        assert host.run() == "1"
        assert any("/refs" in url for url in proxy.asked)
        proxy.asked.clear()
        host.environ["NO_PROXY"] = "127.0.0.1"
        host.environ["KERNELS_CACHE"] = str(host.home / "another")
        assert host.run() == "1"
        assert proxy.asked == []


@contextmanager
def tunnel(password):
    """Run a proxy that connects whoever names the password; yield its port, and the hosts asked for."""
    asked = []
    wanted = f"Basic {base64.b64encode(f'me:{password}'.encode()).decode()}"

    def serve(client, _):
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(4096)
        lines = head.decode().split("\r\n")
        asked.append(lines[0])
        if f"proxy-authorization: {wanted}".lower() not in [line.lower() for line in lines]:
            client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            return
        host, _, port = lines[0].split()[1].partition(":")
        with socket.create_connection((host, int(port))) as server:
            client.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
            back = threading.Thread(target=pump, args=(server, client), daemon=True)
            back.start()
            pump(client, server)
            back.join(5)

    with serve_raw(serve) as (address, _):
        yield address.rpartition(":")[2], asked


def pump(source, target):
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_company_s_proxy_with_a_password_before_a_company_s_certificate(web, host, tmp_path):
    context = make_certificate(tmp_path)
    with open_gate(web.url, context=context) as gate, tunnel("secret-word") as (port, asked):
        host.hub = gate.url
        host.environ = {"SSL_CERT_FILE": str(tmp_path / "ca.pem"), "NO_PROXY": ""}
        host.environ["HTTPS_PROXY"] = f"http://me:wrong-word@127.0.0.1:{port}"
        said = host.run(fails=True)
        assert "HubUnreachableError" in said
        assert "407" in said
        assert "wrong-word" not in said
        assert gate.asked == []
        host.environ["HTTPS_PROXY"] = f"http://me:secret-word@127.0.0.1:{port}"
        assert host.run() == "1"
        assert gate.asked
        assert set(asked) == {f"CONNECT {gate.url.removeprefix('https://')} HTTP/1.1"}


def test_a_rate_limit_is_waited_for_and_never_called_distrust(web, host):
    limited, times = ["/refs", "/overview", "__init__.py"], []

    def limit(handler):
        word = next(
            (word for word in limited if handler.path.partition("?")[0].endswith(word)), None
        )
        if word is None:
            return False
        limited.remove(word)
        times.append(time.monotonic())
        handler.send_response(429)
        handler.send_header("retry-after", "1")
        handler.send_header("content-length", "0")
        handler.end_headers()
        return True

    with open_gate(web.url, limit) as gate:
        host.hub = gate.url
        begin = time.monotonic()
        assert host.run() == "1"
        assert time.monotonic() - begin > 3.0
        assert len(times) == 3


@pytest.mark.parametrize("path", ["/refs", "/overview", "/a.py"])
def test_a_limit_of_an_hour_is_an_error_that_says_so_at_once(web, host, path):
    def limit(handler):
        if not handler.path.partition("?")[0].endswith(path):
            return False
        handler.send_response(429)
        handler.send_header("retry-after", "3600")
        handler.send_header("content-length", "0")
        handler.end_headers()
        return True

    with open_gate(web.url, limit) as gate:
        host.hub = gate.url
        begin = time.monotonic()
        said = host.run(fails=True)
        assert time.monotonic() - begin < 20
        assert "the rate limit is reached" in said
        assert "3600 s" in said
        assert "TrustError" not in said
        assert not (host.store / "variants").exists()


def test_a_connection_that_is_cut_in_the_middle_is_begun_anew(web, host):
    cut = ["/metadata.json", "/data.bin"]

    def fault(handler):
        word = next((word for word in cut if handler.path.endswith(word)), None)
        if word is None:
            return False
        cut.remove(word)
        handler.send_response(200)
        handler.send_header("content-length", "100000")
        handler.end_headers()
        handler.wfile.write(b"\0" * 100)
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)
        return True

    with open_gate(web.url, fault) as gate:
        host.hub = gate.url
        assert host.run() == "1"
        assert cut == []


def test_other_bytes_than_promised_are_refused(web, host):
    def fault(handler):
        if not handler.path.endswith("/a.py"):
            return False
        body = b"VALUE = 6\n"
        handler.send_response(200)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        return True

    with open_gate(web.url, fault) as gate:
        host.hub = gate.url
        said = host.run(fails=True)
        assert "IntegrityError" in said
        assert "a.py" in said
        assert list((host.store / "tmp").iterdir()) == []
        assert not (host.store / "variants").exists()


def silent(client, over):
    over.wait()


def garbage(client, _):
    client.recv(1000)
    client.sendall(b"\x00\x01\x02 this is no HTTP\r\n\r\n")


def closed_at_once(client, _):
    client.recv(1)


def a_web_page(client, _):
    client.recv(1000)
    client.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n<html>hi</html>")


def dripping(client, over):
    client.recv(1000)
    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n[")
    while not over.wait(0.2):
        client.sendall(b" ")


@pytest.mark.parametrize("serve", [silent, garbage, closed_at_once, a_web_page, dripping])
def test_what_is_no_good_hub_is_named_and_nobody_waits_for_ever(host, serve):
    with serve_raw(serve) as (address, _):
        host.hub = url = f"http://{address}"
        begin = time.monotonic()
        said = host.run(HASTY + LOAD, fails=True)
        assert time.monotonic() - begin < 30
        assert url in said
        assert "HubUnreachableError" in said or "WireError" in said
        assert not (host.store / "variants").exists()
