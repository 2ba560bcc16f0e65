"""Server-sent events: news as they happen, and those that a client missed.

Written out by hand (WHATWG HTML §9.2): a message is a few lines of text. The library for it,
sse-starlette, keeps whether to stop in one place for the whole process; here two services may live
in one, each ends its own streams, and a client that does not read is dropped by a bound of ours.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any, Generic, Protocol, TypeVar

import msgspec
from fastapi import Header, Query, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from api.base.errors import Problem
from api.base.limits import LIVE_QUIET_SECONDS, LIVE_RESUMED_MAX, LIVE_SEND_SECONDS
from api.oncall.evaluate.changes import (
    SUBSCRIBERS_MAX,
    Closed,
    Hub,
    Missed,
    Subscription,
    TooManySubscribers,
)

log = logging.getLogger(__name__)

MEDIA_TYPE = "text/event-stream"
RETRY_MS = 3_000
"""How long a client that lost its connection waits: short beside the evaluation's interval
and long enough that a hundred of them do not storm a service that restarts."""
NUMBER_DIGITS_MAX = 18
"""Of an event's number; more fit no 64-bit number."""
BEGIN = f"retry: {RETRY_MS}\n\n".encode()
HEADERS = {
    "Cache-Control": "no-store",
    # nginx would hold events back until its buffer is full.
    "X-Accel-Buffering": "no",
}


class HasNumber(Protocol):
    """News have a number, which grows over all processes."""

    @property
    def number(self) -> int: ...


Numbered = TypeVar("Numbered", bound=HasNumber)
Show = Callable[[Numbered], bytes | None]
"""News as an event; None: this client does not want them."""


AfterEvent = Annotated[str | None, Query(description="Number of the last event that was seen.")]
LastEventId = Annotated[str | None, Header(description="The same, as browsers send it; it wins.")]


def streamed(events: str) -> dict[str, Any]:
    description = f"Events {events}, each with JSON as data."
    return {
        "response_class": Response,
        "responses": {
            200: {"description": description, "content": {MEDIA_TYPE: {}}},
            503: {"description": "As many clients as there may be are listening."},
        },
    }


class MissedOut(msgspec.Struct, frozen=True, kw_only=True):
    """The data of `missed`: changes that this client will not get."""

    count: int | None
    """How many; null if that is not known."""
    why: str
    hint: str


class LiveResponse(StreamingResponse):
    """A stream whose client must read: one that does not within LIVE_SEND_SECONDS is dropped."""

    def __init__(self, subscription: Subscription[Any], pieces: AsyncIterator[bytes]) -> None:
        super().__init__(pieces, media_type=MEDIA_TYPE, headers=HEADERS)
        self._subscription = subscription

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream; the subscription is released however the stream ends."""
        async with self._subscription:
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        """Send piece by piece; the end of the stream is the end of the connection."""
        start = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        await send(start)
        try:
            async for piece in self.body_iterator:
                body = {"type": "http.response.body", "body": piece, "more_body": True}
                async with asyncio.timeout(LIVE_SEND_SECONDS):
                    await send(body)
            end = {"type": "http.response.body", "body": b"", "more_body": False}
            async with asyncio.timeout(LIVE_SEND_SECONDS):
                await send(end)
        except TimeoutError:
            log.info("a live stream's client did not read for %.0f s: dropped", LIVE_SEND_SECONDS)


def listen_to(hub: Hub[Numbered]) -> Subscription[Numbered]:
    """A subscription; a Problem if there is no room."""
    try:
        return hub.subscribe()
    except TooManySubscribers as error:
        why = f"SUBSCRIBERS_MAX = {SUBSCRIBERS_MAX} clients listen already"
        raise Problem(503, "too many listeners", why, rule="SUBSCRIBERS_MAX") from error


def read_number(text: str | None) -> int | None:
    """The number of an event; None if there is none, a Problem if it is no number."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= NUMBER_DIGITS_MAX):
        raise Problem(400, "not an event", f"Last-Event-ID is {text[:40]!r}; send an id as it came")
    return int(text)


class Opening(msgspec.Struct, Generic[Numbered], frozen=True, kw_only=True):
    """What a client gets before it listens."""

    number: int
    changes: Sequence[Numbered] = ()
    missed: MissedOut | None = None

    def pieces(self, show: Show[Numbered]) -> list[bytes]:
        shown = [piece for each in self.changes if (piece := show(each)) is not None]
        return [*([message("missed", self.missed)] if self.missed is not None else []), *shown]


def look_back(
    seen: int | None,
    span: tuple[int, int] | None,
    read: Callable[[int, int], Sequence[Numbered]],
    hint: str,
) -> Opening[Numbered]:
    """What happened since the event that a client saw last; nothing if it saw none.

    ``span``: the oldest and newest numbers that are kept. ``read`` gives those after a number, at
    most so many.
    """
    oldest, newest = span if span is not None else (1, 0)
    if seen is None or seen == newest:
        return Opening(number=newest)
    if seen > newest:
        why = f"event {seen} is unknown here; the latest is {newest}"
        return Opening(number=newest, missed=MissedOut(count=None, why=why, hint=hint))
    if newest - seen > LIVE_RESUMED_MAX:
        why = f"more than LIVE_RESUMED_MAX = {LIVE_RESUMED_MAX} changes happened since event {seen}"
        return Opening(number=newest, missed=MissedOut(count=newest - seen, why=why, hint=hint))
    why = f"changes before event {oldest} are no longer kept"
    lost = MissedOut(count=oldest - 1 - seen, why=why, hint=hint) if seen < oldest - 1 else None
    changes = read(seen, LIVE_RESUMED_MAX)
    latest = max([newest, *(each.number for each in changes)])
    return Opening(number=latest, changes=changes, missed=lost)


async def pass_on(
    subscription: Subscription[Numbered], latest: int, show: Show[Numbered], hint: str
) -> AsyncIterator[bytes]:
    """News after a number as they come, until the client or the service ends it."""
    while True:
        try:
            news = await subscription.next(LIVE_QUIET_SECONDS)
        except Closed:
            return
        if news is None:
            yield quiet(latest)
        elif isinstance(news, Missed):
            # The client is too slow. Its place is what it has read: it reconnects and gets the
            # rest.
            why = "this client reads too slowly; it is disconnected and may resume"
            yield message("missed", MissedOut(count=news.count, why=why, hint=hint))
            return
        elif news.number > latest:
            latest = news.number
            if (shown := show(news)) is not None:
                yield shown


async def follow(
    subscription: Subscription[Numbered],
    look: Callable[[], tuple[Opening[Numbered], msgspec.Struct]],
    show: Show[Numbered],
    hint: str,
) -> AsyncIterator[bytes]:
    """What was missed, `ready`, then news. The subscription is older than the look back: no gap."""
    yield BEGIN
    opening, ready = await asyncio.to_thread(look)
    for piece in opening.pieces(show):
        yield piece
    yield message("ready", ready, opening.number)
    async for piece in pass_on(subscription, opening.number, show, hint):
        yield piece


def quiet(number: int) -> bytes:
    """A keep-alive. An id without data moves the client's place and shows nothing."""
    return f": quiet\nid: {number}\n\n".encode()


def message(name: str, data: msgspec.Struct, number: int | None = None) -> bytes:
    """One event. JSON has no line breaks outside of strings, and inside they are escaped."""
    place = b"" if number is None else f"id: {number}\n".encode()
    return place + f"event: {name}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"
