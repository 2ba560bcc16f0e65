"""Events written as one JSON document, in pieces: whatever its size, a piece is in memory."""

from __future__ import annotations

import logging
import math
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec

from api.jobs.trace.event import Event
from collector.contract.errors import StoreError

log = logging.getLogger(__name__)

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
        """The bound that ended it, or why the rest could not be read."""
        self.last_us: float | None = None
        """Of the last event that has a time: from the trace's beginning, in microseconds."""

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
            "ended_at_us": self.last_us if self.ended_by else None,
            "left_out": dict(self.left_out),
        }
        return b'\n],"fabricscope":' + msgspec.json.encode(summary) + b"}\n"


def pieces(
    events: Iterable[Event],
    account: Account,
    facts: Callable[[], Event],
    *,
    seconds_max: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[bytes]:
    """The document; ``facts`` are asked for at its end. One piece of events is held at a time.

    However it ends, it is whole: past ``seconds_max`` since its first piece was taken, or when the
    rest cannot be read, its summary says so and where it ends.
    """
    encoder = msgspec.json.Encoder()
    held: list[bytes] = []
    began = clock()
    yield HEAD
    mark = b"\n"
    for event in until_broken(events, account):
        text = encoder.encode(event)
        is_late = clock() - began > seconds_max
        account.ended_by = "TRACE_MAKE_SECONDS_MAX" if is_late else bound_at(account, len(text))
        if account.ended_by:
            break
        account.events += 1
        account.bytes += len(text) + 2
        account.last_us = event.get("ts", account.last_us)
        held.append(text)
        if len(held) >= PIECE_EVENTS_MAX:
            yield mark + b",\n".join(held)
            mark = b",\n"
            held.clear()
    if held:
        yield mark + b",\n".join(held)
    yield account.tail(facts())


def until_broken(events: Iterable[Event], account: Account) -> Iterator[Event]:
    """The events until the store gives no more: what was sent before must stay readable."""
    try:
        yield from events
    except StoreError as error:
        log.warning("a trace ends early: %s", error)
        # The engine's own text goes to the log: it may name paths.
        account.ended_by = "the store did not give the rest; try again"


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
