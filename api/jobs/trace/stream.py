"""Events written as one JSON document, in pieces: whatever its size, a piece is in memory."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec

from api.jobs.trace.event import Event

PIECE_EVENTS_MAX = 500
"""Events that are held until they are written, about 100 kB: large enough that a piece's way to the
client costs less than its making."""
TRACE_EVENTS_MAX = 10_000_000
"""Events of one trace; viewers in a browser are slow from a tenth of that on. The trace ends there,
whole, and its summary names this bound."""
TRACE_BYTES_MAX = 1 << 30
"""Of the document before it is packed: as much as a viewer in a browser can open. Likewise."""
GZIP_LEVEL = 4
"""Repeating texts pack to a fifteenth; higher levels take twice the time for a tenth of that."""
GZIP_BITS = 31

HEAD = b'{"displayTimeUnit":"ms","traceEvents":['
"""The unit comes first: a reader that meets it later has drawn already."""


class Account:
    """Counts of written and left-out events, with the reasons; the end of the document has them."""

    def __init__(self) -> None:
        self.events = 0
        self.bytes = 0
        self.left_out: Counter[str] = Counter()
        """By rule: the name of the bound, or what could not be drawn."""
        self.ended_by = ""

    def leave_out(self, rule: str, count: int = 1) -> None:
        if count > 0:
            self.left_out[rule] += count

    def tail(self, facts: Event) -> bytes:
        """Comes last: a reader that does not know its name stops there, where nothing follows."""
        summary = {
            **facts,
            "events": self.events,
            "is_complete": not self.ended_by,
            "ended_by": self.ended_by or None,
            "left_out": dict(self.left_out),
        }
        return b'\n],"fabricscope":' + msgspec.json.encode(summary) + b"}\n"


def pieces(
    events: Iterable[Event], account: Account, facts: Callable[[], Event]
) -> Iterator[bytes]:
    """The document; ``facts`` are asked for at its end. One piece of events is held at a time."""
    encoder = msgspec.json.Encoder()
    held: list[bytes] = []
    yield HEAD
    mark = b"\n"
    for event in events:
        text = encoder.encode(event)
        account.ended_by = bound_at(account, len(text))
        if account.ended_by:
            break
        account.events += 1
        account.bytes += len(text) + 2
        held.append(text)
        if len(held) >= PIECE_EVENTS_MAX:
            yield mark + b",\n".join(held)
            mark = b",\n"
            held.clear()
    if held:
        yield mark + b",\n".join(held)
    yield account.tail(facts())


def bound_at(account: Account, more_bytes: int) -> str:
    if account.events >= TRACE_EVENTS_MAX:
        return "TRACE_EVENTS_MAX"
    if account.bytes + more_bytes > TRACE_BYTES_MAX:
        return "TRACE_BYTES_MAX"
    return ""


def packed(document: Iterable[bytes]) -> Iterator[bytes]:
    """The same in gzip, in pieces; pieces that the packer keeps to itself are not empty ones."""
    packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_BITS)
    for piece in document:
        if done := packer.compress(piece):
            yield done
    yield packer.flush()
