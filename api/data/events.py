"""Events (a link that went down, an XID, a burst) read from the store, newest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from api.base.positions import bad_position, encode_position, read_position
from api.data.selectors import Condition
from api.data.store.store import Store

Position = tuple[int, int]
"""Time (unix nanoseconds) and id of an event: both together are unique."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which events. No kinds: all; labels and attributes that are None do not count."""

    from_ms: int
    to_ms: int
    kinds: tuple[str, ...] = ()
    labels: Mapping[str, str | None] = {}
    attributes: Mapping[str, str | None] = {}
    at_least: Mapping[str, float | None] = {}
    """Attributes that are numbers, and the least that they must be."""


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it is stored."""

    kind: str
    time_ns: int
    id: int
    labels: dict[str, str]
    message: str
    attributes: dict[str, str]

    @property
    def position(self) -> Position:
        return self.time_ns, self.id


def read_events(store: Store, wanted: Wanted, after: Position | None, limit: int) -> list[EventRow]:
    """The newest matching events older than a position, at most ``limit``."""
    condition = Condition()
    bind = condition.bind
    within = (
        f"fromUnixTimestamp64Milli({bind(at, 'Int64')})" for at in (wanted.from_ms, wanted.to_ms)
    )
    conditions = [f"time BETWEEN {' AND '.join(within)}"]
    if wanted.kinds:
        conditions.append(f"kind IN {bind(list(wanted.kinds), 'Array(String)')}")
    for column, asked in (("labels", wanted.labels), ("attributes", wanted.attributes)):
        conditions += [
            f"{column}[{bind(name, 'String')}] = {bind(value, 'String')}"
            for name, value in asked.items()
            if value is not None
        ]
    conditions += [
        f"toFloat64OrZero(attributes[{bind(name, 'String')}]) >= {bind(least, 'Float64')}"
        for name, least in wanted.at_least.items()
        if least is not None
    ]
    if after is not None:
        time_ns, number = bind(after[0], "Int64"), bind(after[1], "UInt64")
        conditions.append(f"(time, id) < (fromUnixTimestamp64Nano({time_ns}), {number})")
    sql = (
        "SELECT kind, toUnixTimestamp64Nano(time) AS time_ns, id, labels, message, attributes "  # noqa: S608 - conditions are ours
        f"FROM events FINAL WHERE {' AND '.join(conditions)} "
        f"ORDER BY time DESC, id DESC LIMIT {limit:d}"
    )
    return [
        EventRow(**{**row, "labels": dict(row["labels"]), "attributes": dict(row["attributes"])})
        for row in store.query(sql, condition.parameters).to_pylist()
    ]


class HasPosition(Protocol):
    """An entry of a list that goes on behind it."""

    @property
    def position(self) -> Position: ...


def next_position(found: Sequence[HasPosition], limit: int) -> str | None:
    return encode_position(found[-1].position) if len(found) == limit else None


def decode_position(text: str | None) -> Position | None:
    """Raises Problem if ``encode_position`` did not write the text."""
    if text is None:
        return None
    time_ns, number = read_position(text, Position)
    if not (0 <= time_ns < 1 << 63 and 0 <= number < 1 << 64):
        raise bad_position(text)
    return time_ns, number
