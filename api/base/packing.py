"""Gzip for large JSON answers to clients that accept it.

A fabric's map is megabytes, and browsers can be on slow links. Packing takes some 5 ms a megabyte,
and saves 25 (matrices) to 70 ms (names) of each over 100 Mb/s. Only `/v1/…`: Prometheus' clients
always accept gzip, mostly over a fast network, and their answers are many. Only JSON: events must
not wait for each other, and programs nearby read exports. An answer that its route has packed
stays as it is.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

import cramjam
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PATHS: Final = "/v1/"
JSON: Final = "application/json"
PACKED_BYTES_MIN: Final = 64 << 10
"""Smaller answers are a few packets anyway. A stream's size is not known: it is packed."""
LEVEL: Final = 1
"""Higher ones take three times as long, or more, for a hundredth of the size."""


class Packing:
    """ASGI middleware that compresses large JSON answers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PATHS):
            await self._app(scope, receive, send)
            return
        accepted = Headers(scope=scope).get("accept-encoding", "")
        packer = Packer(send, is_wanted=takes_gzip(accepted))
        await self._app(scope, receive, packer.send)


class Packer:
    """One answer. Its headers wait for the first bytes, whose size decides whether it is packed."""

    def __init__(self, send: Send, *, is_wanted: bool) -> None:
        self._send = send
        self._is_wanted = is_wanted
        self._start: Message | None = None
        self._stream: cramjam.gzip.Compressor | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and is_plain_json(message):
            self._start = message
        elif self._start is not None:
            start, self._start = self._start, None
            await self._begin(start, message)
        elif self._stream is not None:
            await self._send(self._packed_piece(self._stream, message))
        else:
            await self._send(message)

    async def _begin(self, start: Message, first: Message) -> None:
        body, is_stream = first.get("body", b""), first.get("more_body", False)
        if not is_stream and len(body) < PACKED_BYTES_MIN:
            await self._send(start)
            await self._send(first)
            return
        headers = MutableHeaders(raw=start["headers"])
        headers.add_vary_header("Accept-Encoding")
        if self._is_wanted:
            headers["Content-Encoding"] = "gzip"
            if is_stream:
                del headers["Content-Length"]
                self._stream = cramjam.gzip.Compressor(LEVEL)
                first = self._packed_piece(self._stream, first)
            else:
                packed = await asyncio.to_thread(cramjam.gzip.compress, body, LEVEL)
                headers["Content-Length"] = str(len(packed))
                first = {**first, "body": bytes(packed)}
        start["headers"] = headers.raw
        await self._send(start)
        await self._send(first)

    @staticmethod
    def _packed_piece(stream: cramjam.gzip.Compressor, message: Message) -> Message:
        stream.compress(message.get("body", b""))
        is_last = not message.get("more_body", False)
        return {**message, "body": bytes(stream.finish() if is_last else stream.flush())}


def is_plain_json(start: Message) -> bool:
    """Whether an answer is JSON that its route has neither packed nor left plain on purpose."""
    headers = Headers(raw=start["headers"])
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    is_decided = "accept-encoding" in headers.get("vary", "").lower()
    return kind == JSON and not is_decided and "content-encoding" not in headers


def takes_gzip(accept_encoding: str) -> bool:
    """Whether a client's header accepts gzip.

    >>> takes_gzip("br, gzip;q=0.8"), takes_gzip("gzip;q=0"), takes_gzip("identity"), takes_gzip("")
    (True, False, False, False)
    """
    for part in accept_encoding.lower().split(","):
        coding, _, weight = part.partition(";")
        if coding.strip() in {"gzip", "x-gzip", "*"}:
            return re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", weight) is None
    return False
