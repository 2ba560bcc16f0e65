"""Placement for requests: the floor is cached, and renewed in the background.

To read the cables of 4,096 hosts takes seconds, and they hardly change. So an answer takes the
floor that is there; when it is older than FLOOR_SECONDS the next one is made meanwhile. Only a
client that asks after FLOOR_STALE_SECONDS without requests waits for it. Health is always current.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from api.data.inventory.repository import Inventory
from api.fabric.cache import TopologyCache
from api.fabric.model import Link, Topology
from api.fleet.health.answers import Fleet as FleetHealth
from api.fleet.placement.floor import make_floor
from api.fleet.placement.jobs import traffic_of
from api.fleet.placement.model import Ask, Placed
from api.fleet.placement.place import Known, place
from api.fleet.placement.refuse import Fleet
from api.fleet.placement.ways import Ways
from collector.contract.errors import FabricscopeError

FLOOR_SECONDS: Final = 15.0
"""When a floor is this old another is made: states of ports come as often."""

FLOOR_STALE_SECONDS: Final = 60.0
"""A floor that is older is not used: links may have failed since."""

log = logging.getLogger(__name__)


class Floors:
    """Caches cables and jobs for placement. Belongs to the event loop."""

    def __init__(
        self, topologies: TopologyCache, inventory: Inventory, clock: Callable[[], float]
    ) -> None:
        self._topologies = topologies
        self._inventory = inventory
        self._clock = clock
        self._known: Known | None = None
        self._making: asyncio.Task[Known] | None = None

    async def latest(self) -> Known:
        """At most FLOOR_STALE_SECONDS old. Raises what reading it raises."""
        known = self._known
        age_s = self._clock() - known.as_of_s if known is not None else float("inf")
        if known is not None and 0 <= age_s < FLOOR_SECONDS:
            return known
        if self._making is None:
            self._making = asyncio.create_task(self._make(), name="placement floor")
            self._making.add_done_callback(self._made)
        if known is not None and 0 <= age_s < FLOOR_STALE_SECONDS:
            return known
        # Other requests may wait for the same floor: a cancelled one must not cancel it.
        return await asyncio.shield(self._making)

    async def _make(self) -> Known:
        self._known = await asyncio.to_thread(self._read)
        return self._known

    def _made(self, task: asyncio.Task[Known]) -> None:
        self._making = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, FabricscopeError):
            log.warning("the floor for placement cannot be made: %s", error)
        elif error is not None:
            log.error("the floor for placement cannot be made", exc_info=error)

    def _read(self) -> Known:
        """Read everything, in a thread; of cables only what has changed."""
        before, started_s = self._known, self._clock()
        built = self._topologies.at(None)
        places = self._inventory.places.running()
        gpus = self._inventory.places.gpu_counts()
        if before is not None and is_same(before, built.topology, gpus):
            floor = before.floor
        else:
            floor = make_floor(built.graph, gpus)
        ways = Ways(floor) if before is None else before.ways.again(floor)
        return Known(
            as_of_s=started_s,
            floor=floor,
            ways=ways,
            traffic=traffic_of(floor, ways, places),
            gpus=gpus,
            places=len(places),
        )


def is_same(before: Known, topology: Topology, hosts: Collection[str]) -> bool:
    """Whether a floor still matches a topology, and has these hosts."""
    floor = before.floor
    old = floor.graph.topology
    return (
        floor.number.keys() >= set(hosts)
        and old.nodes == topology.nodes
        and old.ports == topology.ports
        and [*map(what_counts, old.links.values())] == [*map(what_counts, topology.links.values())]
    )


def what_counts(link: Link) -> tuple[object, ...]:
    """The fields of a link that placement reads: when it was last seen changes every time."""
    return link.id, link.is_up, link.rate_bits_per_second


def answer(known: Known, health: FleetHealth, ask: Ask) -> Placed:
    fleet = Fleet(entries=health.hosts, gpus=known.gpus, is_busy=known.traffic.is_busy)
    return place(known, fleet, ask, tuple(f"health: {each}" for each in health.stale))
