"""Serves connections on loopback as a function says, byte by byte: for hubs and proxies that misbehave in tests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Serve = Callable[[socket.socket, threading.Event], None]


@contextmanager
def serve_raw(serve: Serve) -> Iterator[tuple[str, list[socket.socket]]]:
    """Accept connections until the end; yields ``127.0.0.1:PORT`` and the connections so far.

    Args:
        serve: called with each connection, in a thread of its own, and with what is set at the end.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []
    over = threading.Event()

    def run(client: socket.socket) -> None:
        with client, suppress(OSError):
            serve(client, over)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                connections.append(client)
                threading.Thread(target=run, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", connections
    finally:
        over.set()
        listener.close()
