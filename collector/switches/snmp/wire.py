"""Datagrams to one switch and back: one question at a time, and everything else counted.

A socket for each switch: with one question outstanding the kernel's buffer cannot overflow, and
the port, chosen at random, is one more thing that a forger has to guess. It is not connected, so
that an answer from another address is seen and named; many a switch answers from the wrong
interface.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from collector.contract.reason import UnreadReason
from collector.switches.snmp.ber import BerError
from collector.switches.snmp.model import SnmpError

STRAYS_PER_TRY_MAX = 64
"""Datagrams that are no answer, while one is awaited. More are a flood, and the try is over."""

CLOSED = "the session was closed"
PORT_MAX = 65535

Read = TypeVar("Read")


class Strays:
    """Datagrams that were no answer, since the last answer: for the error when none comes."""

    def __init__(self) -> None:
        self.nonsense = 0
        self.nonsense_detail = ""
        self.late = 0
        self.foreign = 0
        self.foreign_address = ""

    def describe(self) -> str:
        """A description; empty when nothing came."""
        parts = []
        if self.nonsense:
            parts.append(f"{self.nonsense} datagrams that are no answer ({self.nonsense_detail})")
        if self.late:
            parts.append(f"{self.late} answers to other questions")
        if self.foreign:
            parts.append(f"{self.foreign} datagrams from another address, {self.foreign_address}")
        return ", ".join(parts)


class Wire(asyncio.DatagramProtocol):
    """A socket and the switch at its other end."""

    def __init__(self, peer: tuple[Any, ...]) -> None:
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.DatagramTransport | None = None
        self._waiting: asyncio.Future[Any] | None = None
        self._accept: Callable[[bytes], Any] | None = None
        self._strays_left = 0
        self.strays = Strays()

    async def ask(
        self, message: bytes, accept: Callable[[bytes], Read | None], seconds: float
    ) -> Read | None:
        """What ``accept`` makes of the answer; None when none comes in time.

        ``accept`` returns None for another question's answer, and raises BerError for nonsense.
        """
        if self._transport is None or self._transport.is_closing():
            raise SnmpError(UnreadReason.UNREADABLE, CLOSED)
        self._accept, self._strays_left = accept, STRAYS_PER_TRY_MAX
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            self._transport.sendto(message, self._peer)
            async with asyncio.timeout(seconds):
                answer: Read = await self._waiting
        except TimeoutError:
            return None
        finally:
            self._waiting = self._accept = None
        self.strays = Strays()
        return answer

    def is_usable(self) -> bool:
        """Whether it is open, on the event loop that runs now."""
        return (
            self._transport is not None
            and not self._transport.is_closing()
            and self._loop is asyncio.get_running_loop()
        )

    def close(self) -> None:
        """Close the socket; with a closed event loop it is closed already."""
        if self._transport is not None and not self._loop.is_closed():
            self._transport.close()

    # Called by the event loop ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there; asyncio's own is of this kind, and of no public class."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        """Something came: read at once, so that nothing is ever queued."""
        waiting = self._waiting
        if addr[:2] != self._peer[:2]:
            self.strays.foreign += 1
            self.strays.foreign_address = str(addr[0])
        elif waiting is None or waiting.done() or self._accept is None:
            self.strays.late += 1
        else:
            try:
                answer = self._accept(data)
            except BerError as error:
                self.strays.nonsense += 1
                self.strays.nonsense_detail = str(error)
            else:
                if answer is not None:
                    waiting.set_result(answer)
                    return
                self.strays.late += 1
        self._strays_left -= 1
        if self._strays_left <= 0 and waiting is not None and not waiting.done():
            detail = f"flooded: {self.strays.describe()}"
            waiting.set_exception(SnmpError(UnreadReason.UNPARSEABLE, detail))

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone: end the wait for an answer."""
        if self._waiting is not None and not self._waiting.done():
            detail = f"{CLOSED}: {exc}" if exc else CLOSED
            self._waiting.set_exception(SnmpError(UnreadReason.UNREADABLE, detail))

    def error_received(self, exc: Exception) -> None:
        """The kernel would not send: no route, or too long."""
        if self._waiting is not None and not self._waiting.done():
            detail = f"cannot be reached: {exc}"
            self._waiting.set_exception(SnmpError(UnreadReason.UNREADABLE, detail))


async def open_wire(address: str, port: int, seconds: float, turn: int) -> Wire:
    """A wire to a switch, by its address (of either version) or its name.

    Of a name's addresses the one whose ``turn`` it is: a switch need not answer on all of them.
    """
    if not 0 < port <= PORT_MAX:
        raise SnmpError(UnreadReason.UNREADABLE, f"{port} is no port")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            found = await _resolve(address, port)
        family, _, _, _, peer = found[turn % len(found)]
        _, wire = await loop.create_datagram_endpoint(lambda: Wire(peer), family=family)
    except TimeoutError as error:
        detail = f"{address!r}: its name was not resolved in {seconds:g} s"
        raise SnmpError(UnreadReason.TIMEOUT, detail) from error
    except (OSError, UnicodeError, ValueError) as error:
        raise SnmpError(UnreadReason.UNREADABLE, f"{address!r}: {error}") from error
    return wire


async def _resolve(address: str, port: int) -> Sequence[tuple[Any, ...]]:
    """The addresses from getaddrinfo; a numeric address needs no thread."""
    kind = socket.SOCK_DGRAM
    try:
        return socket.getaddrinfo(address, port, type=kind, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return await asyncio.get_running_loop().getaddrinfo(address, port, type=kind)
