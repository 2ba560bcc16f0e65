"""Joins observations made at different times, in any order, into one row. Pure.

Each row is a join: the earliest first time, the latest last time, and for each attribute the value
that was seen last (of two seen at the same moment, the greater text). Joins can be made in any
order, any number of times, by any number of processes, and end in the same row.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, TypeVar

import msgspec

from api.data.inventory.sightings import Attributes, LinkEnd, Observation

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)

Stamped = dict[str, tuple[int, str]]
"""Attributes with the time (unix microseconds) at which each was last seen."""

HostKey = tuple[str]
DeviceKey = tuple[str, str, str]
"""Host, kind, device."""
PortKey = tuple[str, str, str]
"""Host, device, port."""


JobKey = tuple[str, int, str]
"""Job, rank (NO_RANK if it is not known) and host."""
NO_RANK: Final = -1
LinkKey = tuple[str, LinkEnd]
"""Host, and which port there names which neighbour."""
Key = TypeVar("Key", HostKey, DeviceKey, PortKey, JobKey)


class Seen(msgspec.Struct):
    """The joined observations of one thing."""

    first: datetime
    last: datetime
    attributes: Stamped


class Things(Generic[Key]):
    """Things of one table by key, joined as they are added."""

    def __init__(self) -> None:
        self._seen: dict[Key, Seen] = {}

    def add(self, key: Key, observation: Observation, attributes: Attributes) -> None:
        seen = self._seen.get(key)
        if seen is None:
            seen = Seen(observation.first_seen, observation.last_seen, {})
            self._seen[key] = seen
        seen.first = min(seen.first, observation.first_seen)
        seen.last = max(seen.last, observation.last_seen)
        if attributes:
            join(seen.attributes, stamped(attributes, observation.last_seen))

    def in_order(self) -> list[tuple[Key, Seen]]:
        """All of them by key: writers that take rows in one order never deadlock."""
        return sorted(self._seen.items(), key=lambda item: item[0])


class Tally:
    """Many observations as rows of the three tables, with their jobs and cables."""

    def __init__(self, observations: Iterable[Observation]) -> None:
        self.hosts: Things[HostKey] = Things()
        self.devices: Things[DeviceKey] = Things()
        self.ports: Things[PortKey] = Things()
        self.jobs: Things[JobKey] = Things()
        self.links: dict[LinkKey, tuple[datetime, datetime]] = {}
        """When each was seen first and last."""
        for observation in observations:
            self._add(observation)

    def _add(self, observation: Observation) -> None:
        """A port shows that its device exists, and a device its host."""
        seen = observation.sighting
        self.hosts.add((seen.host,), observation, seen.host_attributes)
        if seen.job:
            rank = NO_RANK if seen.rank is None else seen.rank
            self.jobs.add((seen.job, rank, seen.host), observation, seen.job_attributes)
        if seen.link is not None:
            self._add_link((seen.host, seen.link), observation)
        if seen.kind is None:
            return
        self.devices.add((seen.host, seen.kind, seen.device), observation, seen.device_attributes)
        if seen.port:
            self.ports.add((seen.host, seen.device, seen.port), observation, seen.port_attributes)

    def _add_link(self, key: LinkKey, observation: Observation) -> None:
        first, last = self.links.get(key, (observation.first_seen, observation.last_seen))
        self.links[key] = min(first, observation.first_seen), max(last, observation.last_seen)


def stamped(attributes: Attributes, moment: datetime) -> Stamped:
    time_us = (moment - EPOCH) // MICROSECOND
    return {name: (time_us, value) for name, value in attributes}


def join(into: Stamped, other: Stamped) -> bool:
    """Join attributes into a dictionary; True if that changed it."""
    changed = False
    for name, stamp in other.items():
        if name not in into or into[name] < stamp:
            into[name] = stamp
            changed = True
    return changed
