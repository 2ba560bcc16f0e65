"""Builds a port's cabling history from its repeated reports of a neighbour. Pure.

A *span* is a neighbour that one port named by one method, from when to when. Naming the same one
again makes its span longer; a span ends when the port has named only others, or no neighbour, for
REPLACED. So one that comes back later gets a span of its own (A, B, A are three), while two that
are named side by side have two spans at the same time: a network card whose firmware sends LLDP
and the host behind it are two neighbours of one switch port.

It makes no difference in which order or how often observations are joined, as long as none that
would have parted a span comes after the one that closed the gap: the past is not reopened.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from api.data.inventory.sightings import Peer

REPLACED_SECONDS: Final = 90
"""A neighbour counts as replaced after the port named only others for this long. Two simultaneous
neighbours are noted up to a minute apart: the feed writes each every 30 s, or when its source is
read, which for LLDP is every 60 s."""
REPLACED: Final = timedelta(seconds=REPLACED_SECONDS)
UNPLUGGED_SECONDS: Final = 600
"""A cable counts as unplugged after its port, still reported, named no neighbour for this long. An
LLDP neighbour is remembered for 120 s, a poller's round may be cut short, and the inventory takes
a port for reported for five minutes after its last sample."""
UNPLUGGED: Final = timedelta(seconds=UNPLUGGED_SECONDS)
SPANS_MAX: Final = 64
"""Of one port and method. Cables are changed a few times a year; a port that names a new neighbour
at each look keeps the latest of them, and the span that was seen longest ago goes."""

NOBODY: Final[Peer] = ("", "", "", "", "")
"""The neighbour of a port that has none."""


class Span(msgspec.Struct, kw_only=True):
    """A neighbour, and from when to when it was named."""

    number: int
    peer: Peer
    since: datetime
    last_seen: datetime
    until: datetime | None = None
    """Set, to `last_seen`, when evidence contradicts the cable."""


def join_seen(spans: list[Span], peer: Peer, first: datetime, last: datetime) -> None:
    """Join an observation of a neighbour into a port's spans, whatever their order."""
    if peer == NOBODY and any(span.last_seen > last - UNPLUGGED for span in spans):
        return  # the port named a neighbour meanwhile, or its absence was noted already
    same = sorted((span for span in spans if span.peer == peer), key=lambda span: span.since)
    before = [span for span in same if span.since <= last]
    after = [span for span in same if span.since > last]
    if before and not is_parted(spans, before[-1], first):
        grown = before[-1]
        grown.since, grown.last_seen = min(grown.since, first), max(grown.last_seen, last)
    else:
        number = 1 + max((span.number for span in spans), default=0)
        grown = Span(number=number, peer=peer, since=first, last_seen=last)
        spans.append(grown)
    if after and not is_parted(spans, grown, after[0].since):
        grown.last_seen = max(grown.last_seen, after[0].last_seen)
        spans.remove(after[0])
    drop_oldest(spans)
    set_ends(spans)


def is_parted(spans: list[Span], span: Span, moment: datetime) -> bool:
    """Whether only others were named between a span and a later moment, for REPLACED or longer."""
    gone = span.last_seen + REPLACED
    return moment >= gone and any(
        other.peer != span.peer and other.last_seen >= gone and other.since <= moment
        for other in spans
    )


def set_ends(spans: list[Span]) -> None:
    for span in spans:
        is_over = any(
            other.peer != span.peer and other.last_seen >= span.last_seen + REPLACED
            for other in spans
        )
        span.until = span.last_seen if is_over else None


def drop_oldest(spans: list[Span]) -> None:
    while len(spans) > SPANS_MAX:
        spans.remove(min(spans, key=lambda span: (span.last_seen, span.number)))
