"""Writes ports' reports of their neighbours as rows of `cablings`.

A writer of a host's cablings holds the lock of the host's row until the transaction ends: so
several service processes join into the same history one after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from itertools import groupby
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, bindparam, delete, insert, select, update

from api.data.inventory.cabling_spans import Span, join_seen
from api.data.inventory.database import in_pieces, table_of
from api.data.inventory.merge import LinkKey
from api.data.inventory.sightings import PEER_LABELS, LinkEnd
from api.data.inventory.tables import CablingRow, HostRow

log = logging.getLogger(__name__)

CABLINGS: Final = table_of(CablingRow)
HOSTS: Final = table_of(HostRow)

ENDS_PER_HOST_MAX: Final = 8_192
"""Ports with neighbours of one host or switch, counted once for each method. The largest director
switches have 2,048 ports; past it a new one is left out, counted and logged as a warning."""

EndKey = tuple[str, str, str, str]
"""Host, device, port and method."""
KEY: Final = ("host", "device", "port", "method")
Seen = tuple[datetime, datetime]
Spans = dict[EndKey, list[Span]]


class Changes(msgspec.Struct):
    """Rows to insert, update and delete."""

    new: list[dict[str, Any]]
    changed: list[dict[str, Any]]
    gone: list[dict[str, Any]]


def lock_hosts(connection: Connection, hosts: Iterable[str]) -> set[str]:
    """Lock these hosts' rows, in the order that all writers use; returns those that exist."""
    found: set[str] = set()
    for some in in_pieces(sorted(set(hosts))):
        query = select(HOSTS.c.host).where(HOSTS.c.host.in_(some)).order_by(HOSTS.c.host)
        found.update(connection.scalars(query.with_for_update()))
    return found


def write_links(connection: Connection, seen: Mapping[LinkKey, Seen]) -> int:
    """Returns how many ends were left out. The hosts' rows exist and are locked."""
    left_out = 0
    ordered = sorted(seen.items(), key=lambda item: (item[0][0], end_key(*item[0]), item[1]))
    by_host = [(host, list(items)) for host, items in groupby(ordered, lambda item: item[0][0])]
    for some in in_pieces(by_host):
        known = read_spans(connection, [host for host, _ in some])
        changes = Changes([], [], [])
        for host, items in some:
            left_out += join_host(host, items, known.get(host, {}), changes)
        apply_changes(connection, changes)
    return left_out


def join_host(host: str, items: list[tuple[LinkKey, Seen]], known: Spans, changes: Changes) -> int:
    """Join what was seen of one host's ports, and note what that changes; how many had no room."""
    left_out = 0
    for key, group in groupby(items, lambda item: end_key(*item[0])):
        spans = known.get(key, [])
        if not spans and len(known) >= ENDS_PER_HOST_MAX:
            left_out += 1
            continue
        before = {span.number: msgspec.structs.replace(span) for span in spans}
        # In order of time, so that observations made during a database outage fall into place.
        for (_, end), (first, last) in sorted(group, key=lambda item: item[1]):
            join_seen(spans, end.peer, first, last)
        known[key] = spans
        note_changes(key, before, spans, changes)
    if left_out:
        log.warning(
            "%s: %d ports with neighbours are left out; ENDS_PER_HOST_MAX is %d",
            host,
            left_out,
            ENDS_PER_HOST_MAX,
        )
    return left_out


def end_key(host: str, end: LinkEnd) -> EndKey:
    return host, end.device, end.port, end.method


def read_spans(connection: Connection, hosts: Collection[str]) -> dict[str, Spans]:
    names = (*KEY, *PEER_LABELS, "number", "since", "last_seen", "until")
    query = select(*(CABLINGS.c[name] for name in names)).where(CABLINGS.c.host.in_(hosts))
    peer_at, rest_at = len(KEY), len(KEY) + len(PEER_LABELS)
    found: dict[str, Spans] = {}
    for row in connection.execute(query):
        values = tuple(row)
        number, since, last_seen, until = values[rest_at:]
        peer = values[peer_at:rest_at]
        span = Span(number=number, peer=peer, since=since, last_seen=last_seen, until=until)
        found.setdefault(values[0], {}).setdefault(values[:peer_at], []).append(span)
    return found


def note_changes(key: EndKey, before: dict[int, Span], now: list[Span], changes: Changes) -> None:
    place = dict(zip(KEY, key, strict=True))
    for span in now:
        times = {"since": span.since, "last_seen": span.last_seen, "until": span.until}
        old = before.pop(span.number, None)
        if old is None:
            peer = dict(zip(PEER_LABELS, span.peer, strict=True))
            changes.new.append({**place, "number": span.number, **peer, **times})
        elif old != span:
            changes.changed.append({**as_keys(place, span.number), **times})
    changes.gone += [as_keys(place, number) for number in before]


def as_keys(place: Mapping[str, str], number: int) -> dict[str, Any]:
    """The key of a row under names that cannot be mistaken for its columns."""
    return {f"key_{name}": value for name, value in {**place, "number": number}.items()}


def apply_changes(connection: Connection, changes: Changes) -> None:
    which = [CABLINGS.c[name] == bindparam(f"key_{name}") for name in (*KEY, "number")]
    if changes.gone:
        connection.execute(delete(CABLINGS).where(*which), changes.gone)
    if changes.changed:
        values: dict[str, Any] = {name: bindparam(name) for name in ("since", "last_seen", "until")}
        connection.execute(update(CABLINGS).where(*which).values(values), changes.changed)
    if changes.new:
        connection.execute(insert(CABLINGS), changes.new)
