"""How many connections there may be, and how long one may take to send a request's headers.

Uvicorn closes a connection that is idle after an answer, and none that never asked anything or
stopped within its headers. This closes those after `HEADER_SECONDS` or `HEADER_BYTES_MAX`, and
refuses connections past `CONNECTIONS_MAX` in all and `CONNECTIONS_PER_ADDRESS_MAX` of one address.

A request may be answered before its body has come (401, 413). The rest of the body is passed over,
so that the client can read the answer and ask again; it has `BODY_SECONDS`. Its bytes have no bound
of their own: a client may have sent the last ones when the first that pass a bound are seen here,
and a connection that ends then takes the client's next request with it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.base.limits import (
    BODY_SECONDS,
    CONNECTIONS_MAX,
    CONNECTIONS_PER_ADDRESS_MAX,
    HEADER_BYTES_MAX,
    HEADER_SECONDS,
)
from api.base.metrics import ServiceMetrics

REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\nconnection: close\r\n"
    b"content-type: application/problem+json\r\ncontent-length: %d\r\n\r\n%b"
)


class Connections:
    """The open connections of one service, counted by address. For one event loop."""

    def __init__(self, metrics: ServiceMetrics) -> None:
        self.metrics = metrics
        self._open: Counter[str] = Counter()
        metrics.watch("fabric_service_connections", lambda: float(self._open.total()))

    def take(self, address: str) -> str:
        """Count one more of this address; the name of the bound that refuses it, or nothing."""
        if self._open.total() >= CONNECTIONS_MAX:
            return "CONNECTIONS_MAX"
        if self._open[address] >= CONNECTIONS_PER_ADDRESS_MAX:
            return "CONNECTIONS_PER_ADDRESS_MAX"
        self._open[address] += 1
        return ""

    def give(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]

    def protocol(self) -> type[asyncio.Protocol]:
        """The class of this service's connections, for uvicorn."""
        connections = self

        class Bounded(BoundedProtocol):
            """A connection that this service counts."""

            counted_by = connections

        return Bounded


class BoundedProtocol(HttpToolsProtocol):
    """Uvicorn's connection, counted, and closed when headers do not come."""

    counted_by: Connections

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(*arguments, **named)
        self._patience: asyncio.TimerHandle | None = None
        self._is_in_message = False
        self._has_headers = False
        self._awaited_bytes = 0
        self._address: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it, or refuse it."""
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if rule := self.counted_by.take(address):
            self.counted_by.metrics.connections_refused.labels(rule).inc()
            body = b'{"status":503,"title":"busy","detail":"too many connections","rule":"%b"}'
            body %= rule.encode()
            transport.write(REFUSAL % (len(body), body))
            transport.close()
            return
        self._address = address
        self._wait("HEADER_SECONDS", HEADER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is not None:
            self.counted_by.give(self._address)
            self._address = None
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes outside of a message begin the next request's headers."""
        if self.transport.is_closing():  # refused
            return
        if not self._is_in_message:
            self._wait("HEADER_SECONDS", HEADER_SECONDS)
        elif self._is_rest_of_body():
            self._wait("BODY_SECONDS", BODY_SECONDS)
        if self._patience is not None:
            self._awaited_bytes += len(data)
        super().data_received(data)
        are_headers = self._patience is not None and not self._has_headers
        if are_headers and self._awaited_bytes > HEADER_BYTES_MAX:
            self._give_up("HEADER_BYTES_MAX")

    def on_message_begin(self) -> None:
        """Of a request that follows another within the same bytes, too."""
        self._is_in_message = True
        self._wait("HEADER_SECONDS", HEADER_SECONDS)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        self._has_headers = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_waiting()
        self._is_in_message = self._has_headers = False
        super().on_message_complete()

    def _is_rest_of_body(self) -> bool:
        return self._has_headers and self.cycle is not None and self.cycle.response_complete

    def _wait(self, rule: str, seconds: float) -> None:
        if self._patience is None:
            self._awaited_bytes = 0
            self._patience = self.loop.call_later(seconds, self._give_up, rule)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self, rule: str) -> None:
        self._stop_waiting()
        self.counted_by.metrics.connections_refused.labels(rule).inc()
        self.transport.close()
