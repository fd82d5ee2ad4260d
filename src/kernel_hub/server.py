"""The hub as a process: it listens, says so, and stops cleanly when told to."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack

from starlette.types import ASGIApp

from kernel_hub.errors import ListenError

# Waiting connections, and connections served at a time.
BACKLOG = 1024

# Who opens a connection and asks nothing, or asks byte by byte, does not keep it longer.
HEADER_SECONDS = 15

# How long transfers that are under way may take once the hub was told to stop.
GRACE_SECONDS = 5.0
STARTUP_SECONDS = 30.0


def serve(app: ASGIApp, *, host: str, port: int, on_listening: Callable[[str], None]) -> None:
    """Serve an application in this process until SIGTERM or SIGINT.

    Args:
        app: the application.
        host: the address to listen at.
        port: the port; 0 for any free one.
        on_listening: called once with the URL, when connections are accepted.

    Raises:
        ListenError: the address is not ours, or the port is taken.
    """
    with _reserve(host, port) as reserved:
        asyncio.run(_serve(app, host, reserved, on_listening))


def _reserve(host: str, port: int) -> socket.socket:
    """Bind a port that nobody else listens at, without listening.

    granian cannot say which free port it took, and on Linux it shares a port with any other
    process of the user that shares it too. So the port is first bound alone, which fails if it
    is taken, and then held in a way that lets granian listen there.
    """
    try:
        # A name such as localhost stands for addresses, of which the first is taken.
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as alone:
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind(address)
            address = alone.getsockname()
        with ExitStack() as stack:
            held = stack.enter_context(socket.socket(family))
            if hasattr(socket, "SO_REUSEPORT"):
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            held.bind(address)
            stack.pop_all()
    except OSError as err:
        raise ListenError(
            f"Cannot listen at {host}:{port}: {err.strerror or err}. "
            f"Choose another --host or --port; --port 0 takes any free port."
        ) from err
    return held


async def _serve(
    app: ASGIApp, host: str, reserved: socket.socket, on_listening: Callable[[str], None]
) -> None:
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.server.embed import Server

    address, port, *_ = reserved.getsockname()
    server = Server(
        app,
        address=address,
        port=port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        http1_settings=HTTP1Settings(header_read_timeout=HEADER_SECONDS * 1000),
        websockets=False,
        backlog=BACKLOG,
        backpressure=BACKLOG,
        log_enabled=False,
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    running = asyncio.create_task(server.serve())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait_for(_until_listening(address, port, running), STARTUP_SECONDS)
        reserved.close()
        name = f"[{host}]" if ":" in host else host
        on_listening(f"http://{name}:{port}")
        await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        server.stop()
        await asyncio.wait((running,), timeout=GRACE_SECONDS)
    if running.done():
        running.result()


async def _until_listening(address: str, port: int, running: asyncio.Task[None]) -> None:
    # A wildcard address is reached at loopback.
    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    while True:
        try:
            _, writer = await asyncio.open_connection(target, port)
        except OSError:
            if running.done():
                message = f"The server ended before it listened at {address}:{port}."
                raise ListenError(message) from running.exception()
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return
