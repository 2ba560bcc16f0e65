"""`fabricscope kubernetes extender`: runs beside kube-scheduler with the token that it lacks.

A scheduler can send an extender no token: it has fields for certificates only, and what is written
into the address it writes into its log. So this listens on loopback, in the scheduler's pod, and
passes its two requests on. It answers nothing itself: when the service is unavailable it answers
503, and `ignorable: true` lets the scheduler go on without.
"""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from api.remote.answers import Service
from api.remote.client import ServiceError
from api.remote.kubernetes.probe import answer_to, reply, serve
from collector.contract.errors import FabricscopeError

REQUEST_SECONDS_MAX = 10.0
"""For one request as a whole; the scheduler gives up after 5 unless configured otherwise."""
HEAD_BYTES_MAX = 16 << 10
"""Of a request's first lines; Go's have 200."""
BODY_BYTES_MAX = 16 << 20
"""Of a question, as the service takes it: with `nodeCacheCapable: true` 5,000 nodes have 100 kB."""
CONNECTIONS_MAX = 64
"""At once: a scheduler has one or two."""
VERBS = frozenset({"/filter", "/prioritize"})


class TooLarge(FabricscopeError):  # noqa: N818 - reads as the statement it is
    """A request over the bound."""


class Gateway:
    """Passes a scheduler's requests on."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._open = 0

    def is_alive(self) -> bool:
        """Always: it is alive while it answers."""
        return True

    def state(self) -> dict[str, object]:
        return {"service": self._service.url}

    def serve(self, listen: str) -> contextlib.AbstractAsyncContextManager[int]:
        return serve(listen, self._handle, HEAD_BYTES_MAX)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection with one request: Go opens the next by itself."""
        self._open += 1
        with contextlib.suppress(
            OSError,
            ValueError,
            TimeoutError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ):
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                writer.write(await self._answer(reader))
                await writer.drain()
        self._open -= 1
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        method, path, *_ = [*head[0].decode("latin-1").split(" "), ""]
        if method != "POST" or path not in VERBS:
            return answer_to(head[0], self)
        if self._open > CONNECTIONS_MAX:
            return reply("503 Service Unavailable", problem("too many questions at once"))
        try:
            body = await reader.readexactly(length_of(head[1:]))
            return reply("200 OK", await self._service.forward(f"/v1/kubernetes{path}", body))
        except TooLarge as error:
            return reply("413 Content Too Large", problem(str(error)))
        except ServiceError as error:
            return reply("503 Service Unavailable", problem(str(error)))


def length_of(lines: list[bytes]) -> int:
    """The body's length; TooLarge past the bound, ValueError without a length."""
    fields = dict(line.lower().partition(b":")[::2] for line in lines)
    length = int(fields[b"content-length"]) if b"content-length" in fields else -1
    if length < 0:
        raise ValueError("a question without a length")
    if length > BODY_BYTES_MAX:
        raise TooLarge(
            f"{length} bytes; at most {BODY_BYTES_MAX} (BODY_BYTES_MAX): nodeCacheCapable: true in"
            " the scheduler's configuration sends names alone"
        )
    return length


def problem(words: str) -> bytes:
    return msgspec.json.encode({"detail": words})
