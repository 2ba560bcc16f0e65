"""Events (a link that went down, an XID, a burst) read from the store, newest first."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from api.base.errors import Problem
from api.data.store.store import Store

Position = tuple[int, int]
"""Time (unix nanoseconds) and id of an event: both together are unique."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which events: of these kinds (all if none is named), with these labels, in this time."""

    from_ms: int
    to_ms: int
    kinds: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    attributes: Mapping[str, str] = {}
    at_least: Mapping[str, float] = {}
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
    within = "fromUnixTimestamp64Milli({from_ms:Int64}) AND fromUnixTimestamp64Milli({to_ms:Int64})"
    conditions = [f"time BETWEEN {within}"]
    parameters: dict[str, Any] = {"from_ms": wanted.from_ms, "to_ms": wanted.to_ms}
    if wanted.kinds:
        conditions.append("kind IN {kinds:Array(String)}")
        parameters["kinds"] = list(wanted.kinds)
    for place, (name, value) in enumerate(sorted(wanted.labels.items())):
        conditions.append(f"labels[{{name_{place}:String}}] = {{value_{place}:String}}")
        parameters |= {f"name_{place}": name, f"value_{place}": value}
    for place, (name, value) in enumerate(sorted(wanted.attributes.items())):
        conditions.append(f"attributes[{{word_{place}:String}}] = {{said_{place}:String}}")
        parameters |= {f"word_{place}": name, f"said_{place}": value}
    for place, (name, least) in enumerate(sorted(wanted.at_least.items())):
        number = f"toFloat64OrZero(attributes[{{number_{place}:String}}])"
        conditions.append(f"{number} >= {{least_{place}:Float64}}")
        parameters |= {f"number_{place}": name, f"least_{place}": least}
    if after is not None:
        conditions.append(
            "(time, id) < (fromUnixTimestamp64Nano({after_ns:Int64}), {after_id:UInt64})"
        )
        parameters |= {"after_ns": after[0], "after_id": after[1]}
    sql = (
        "SELECT kind, toUnixTimestamp64Nano(time) AS time_ns, id, labels, message, attributes "  # noqa: S608 - conditions are ours
        f"FROM events FINAL WHERE {' AND '.join(conditions)} "
        f"ORDER BY time DESC, id DESC LIMIT {limit:d}"
    )
    return [
        EventRow(**{**row, "labels": dict(row["labels"]), "attributes": dict(row["attributes"])})
        for row in store.query(sql, parameters).to_pylist()
    ]


def encode_position(position: Position) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def decode_position(text: str) -> Position:
    """Raises Problem if ``encode_position`` did not write the text."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        time_ns, number = msgspec.json.decode(raw, type=tuple[int, int])
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise bad_position(text) from error
    if not (0 <= time_ns < 1 << 63 and 0 <= number < 1 << 64):
        raise bad_position(text)
    return time_ns, number


def bad_position(text: str) -> Problem:
    """The answer to a position that this service never issued."""
    return Problem(400, "not a position", f"after={text[:40]!r}: pass `next` of the page before")
