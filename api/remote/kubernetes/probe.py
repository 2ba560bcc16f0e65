"""`/healthz` of the controller: for the probes of its pod, and for operators."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

import msgspec

from collector.contract.errors import SettingsError

REQUEST_SECONDS_MAX = 5.0
"""Until a request's first line has come."""
LINE_BYTES_MAX = 4_096

Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Watched(Protocol):
    """A part with a health state."""

    def is_alive(self) -> bool:
        """Whether it still makes progress."""

    def state(self) -> dict[str, object]: ...


@contextlib.asynccontextmanager
async def serve(listen: str, handle: Handle, line_bytes: int) -> AsyncIterator[int]:
    """Answer at HOST:PORT while the context is open; yields the port."""
    host, port = parse_address(listen)
    try:
        server = await asyncio.start_server(handle, host, port, limit=line_bytes)
    except OSError as error:
        raise SettingsError(f"--listen {listen}: {error.strerror}") from error
    async with server:
        yield server.sockets[0].getsockname()[1]


def serve_state(listen: str, watched: Watched) -> contextlib.AbstractAsyncContextManager[int]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                line = await reader.readline()
                writer.write(answer_to(line, watched))
                await writer.drain()
        writer.close()

    return serve(listen, handle, LINE_BYTES_MAX)


def parse_address(listen: str) -> tuple[str, int]:
    """Host and port; SettingsError for an invalid one.

    >>> parse_address("[::1]:9702")
    ('::1', 9702)
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) >= 1 << 16:
        raise SettingsError(f"--listen {listen!r}: write HOST:PORT, as 127.0.0.1:9702")
    return host.strip("[]"), int(port)


def answer_to(line: bytes, watched: Watched) -> bytes:
    """The whole answer to a request's first line."""
    method, _, rest = line.decode("latin-1").partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    if method not in {"GET", "HEAD"}:
        status, body = "405 Method Not Allowed", b"only GET\n"
    elif path != "/healthz":
        status, body = "404 Not Found", b"there is /healthz\n"
    else:
        status = "200 OK" if watched.is_alive() else "503 Service Unavailable"
        body = msgspec.json.encode(watched.state()) + b"\n"
    whole = reply(status, body)
    return whole.removesuffix(body) if method == "HEAD" else whole


def reply(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body
