"""A line of a given rate between a client and a server on loopback: a proxy that waits before it sends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CHUNK = 64 * 1024
# A process that is woken up late makes up for this much, so that a busy machine is no slower line.
CATCH_UP_SECONDS = 0.02


class Line:
    """What all connections share: bytes leave when those ahead of them have had their time."""

    def __init__(self, bits_per_second: float) -> None:
        self.bits_per_second = bits_per_second
        self.free_at = 0.0
        self.carried = 0

    async def carry(self, count: int) -> None:
        """Wait until the line has carried `count` bytes more."""
        now = asyncio.get_running_loop().time()
        begin = max(now - CATCH_UP_SECONDS, self.free_at)
        self.free_at = begin + 8 * count / self.bits_per_second
        self.carried += count
        if self.free_at > now:
            await asyncio.sleep(self.free_at - now)


async def pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: Line | None
) -> None:
    """Move bytes until one side ends, then end the other."""
    with suppress(ConnectionError):
        while data := await reader.read(CHUNK):
            if line is not None:
                await line.carry(len(data))
            writer.write(data)
            await writer.drain()
    writer.close()


@contextmanager
def throttle(port: int, bits_per_second: float) -> Iterator[tuple[int, Line]]:
    """Serve loopback's `port` under another one, with a limited rate towards the client.

    Yields:
        The port to connect to, and the line, whose ``carried`` counts bytes.
    """
    line = Line(bits_per_second)
    loop = asyncio.new_event_loop()
    started = threading.Event()
    ports: list[int] = []

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Cancelled at the end of the block, which is no error to tell of.
        with suppress(asyncio.CancelledError):
            await join(reader, writer)

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(
            pump(reader, upstream_writer, None), pump(upstream_reader, writer, line)
        )

    async def serve(stop: asyncio.Event) -> None:
        server = await asyncio.start_server(connect, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        started.set()
        await stop.wait()
        server.close()

    async def serve_and_end(stop: asyncio.Event) -> None:
        await serve(stop)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    stop = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=[serve_and_end(stop)])
    thread.start()
    started.wait()
    try:
        yield ports[0], line
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
