"""A server between a client and a hub: forwards, speaks TLS, is a proxy, or misbehaves as a test wants."""

from __future__ import annotations

import http.server
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# Answers in place of the hub where it returns True.
Fault = Callable[[http.server.BaseHTTPRequestHandler], bool]


class Gate:
    """A server on loopback that forwards to a hub and notes what it was asked for."""

    def __init__(self, hub: str, fault: Fault, context: ssl.SSLContext | None = None) -> None:
        self.asked: list[str] = []
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        gate = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                gate.asked.append(self.path)
                if fault(self):
                    return
                # A client asks a proxy for a whole URL, and a server for a path.
                url = self.path if "://" in self.path else f"{hub}{self.path}"
                try:
                    with direct.open(url, timeout=30) as answer:
                        status, headers, body = answer.status, answer.headers, answer.read()
                except urllib.error.HTTPError as err:
                    status, headers, body = err.code, err.headers, err.read()
                self.send_response(status)
                for name in ("content-type", "x-error-code", "link"):
                    if name in headers:
                        self.send_header(name, headers[name])
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        scheme = "http"
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            scheme = "https"
        self.url = f"{scheme}://127.0.0.1:{self.server.server_port}"


@contextmanager
def open_gate(
    hub: str, fault: Fault = lambda handler: False, context: ssl.SSLContext | None = None
) -> Iterator[Gate]:
    """Run a gate before a hub."""
    gate = Gate(hub, fault, context)
    thread = threading.Thread(target=gate.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield gate
    finally:
        gate.server.shutdown()
        gate.server.server_close()


def make_certificate(folder: Path) -> ssl.SSLContext:
    """Make ``ca.pem``, an authority of one's own, and a certificate of it for 127.0.0.1."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    (folder / "ext").write_text("subjectAltName=IP:127.0.0.1\n")
    new_key = ("-newkey", "rsa:2048", "-nodes")
    ca = ("-addext", "keyUsage=critical,keyCertSign", "-subj", "/CN=a company")
    openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", *ca)
    openssl("req", *new_key, "-keyout", "hub.key", "-out", "hub.csr", "-subj", "/CN=hub")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "ext")
    openssl("x509", "-req", "-in", "hub.csr", *signed, "-out", "hub.pem", "-days", "2")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "hub.pem", folder / "hub.key")
    return context
