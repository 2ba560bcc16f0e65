"""The way from the ingest path into the inventory, which can never hold up ingest.

`seen` and `batch` only note things in memory and may be called from the event loop and from any
thread; `run_once`, which the service calls every second from a worker thread, writes them to the
database. During an outage of the database the notes wait, joined to one per thing, up to a bound.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, Protocol, TypeVar

from api.base.quarantine import Quarantine
from api.data.inventory.batches import SEQUENCE_MAX, BatchRun
from api.data.inventory.database import ROAD
from api.data.inventory.engine import InventoryRefusedError
from api.data.inventory.sightings import Observation, Sighting, is_name, sight
from collector.contract.catalog import Catalog, Kind
from collector.contract.errors import InventoryError
from collector.contract.identity import METRIC_LABEL, Labels

TOUCH_SECONDS: Final = 30
"""A thing that is seen all the time moves its `last_seen` this often: the 12,500 hosts of a hundred
thousand GPUs then cost the database some 400 rows a second."""
TOUCH: Final = timedelta(seconds=TOUCH_SECONDS)
PART_TOUCH: Final = timedelta(seconds=4 * TOUCH_SECONDS)
"""The same of devices and ports, most of all things: a port's state is believed for ten minutes
(`api.fabric.read.STATE_BELIEVED`). Cables and jobs are noted as often as hosts: a neighbour counts
as replaced after 90 s."""
PENDING_MAX: Final = 400_000
"""Things that wait for the database: such a cluster with all its devices, about 300 MB.
Past it a new thing is dropped and counted; it is noted when it is next seen."""
AGENTS_PENDING_MAX: Final = 100_000
"""Agents whose batches wait for the database. Past it a batch is dropped and counted."""
KNOWN_MAX: Final = 1_000_000
"""Things that are remembered as written. Past it all are forgotten, and written once more."""
FLUSH_ROWS: Final = 2_000
"""Things in one transaction: below a second of work, so that other writers wait briefly for its
locks."""
FLUSHES_MAX: Final = 10
"""Transactions of one `run_once`, so that it ends."""

log = logging.getLogger(__name__)

Item = TypeVar("Item", Observation, BatchRun)
Key = TypeVar("Key")


class Keeper(Protocol):
    """The part of `api.data.inventory.repository.Inventory` that the feed uses."""

    def observe(self, observations: Iterable[Observation], /) -> int | None:
        """Keep what was seen, all of it or nothing; returns how much a bound left out."""

    def note_batches(self, runs: Iterable[BatchRun], /) -> int | None:
        """Keep how far agents' batches have come, all of it or nothing."""


class InventoryFeed:
    """Observations of ingest that wait to be written to the inventory.

    `clock` gives the service's time in UTC. Counters: `flushed` things and runs of batches that
    were written; `dropped` ones that were not noted for want of room or that the database refused;
    `errors`, attempts to write that failed.
    """

    def __init__(
        self,
        inventory: Keeper,
        catalog: Catalog,
        clock: Callable[[], datetime],
        quarantine: Quarantine | None = None,
    ) -> None:
        self._quarantine = quarantine or Quarantine()
        self.flushed = 0
        self.dropped = 0
        self.errors = 0
        self._inventory = inventory
        self._catalog = catalog
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[Sighting, datetime] = {}
        self._shared: dict[Sighting, Sighting] = {}
        """Things that callers keep, each once: an agent's many tables show the same. One thread."""
        self._pending: dict[Sighting, Observation] = {}
        self._runs: dict[tuple[str, str], BatchRun] = {}
        self._failing = False

    @property
    def pending(self) -> int:
        return len(self._pending) + len(self._runs)

    def things(self, series: Iterable[Labels]) -> tuple[Sighting, ...]:
        """The things that these series name, each once: for `seen`, and for a caller's cache.

        For one thread at a time.
        """
        shown: dict[tuple[str, Labels], Sighting | None] = {}
        for labels in series:
            name = next((value for label, value in labels if label == METRIC_LABEL), "")
            metric, target = self._catalog.metric(name), self._catalog.target_of(name)
            # The sixty counters of a port differ in their names alone, and all show the port.
            alike = metric is not None and target is not None and metric.kind is not Kind.INFO
            family = target.name if alike and target is not None else name
            key = family, tuple(pair for pair in labels if pair[0] != METRIC_LABEL)
            if key not in shown:
                shown[key] = self._sight(labels)
        if len(self._shared) >= KNOWN_MAX:
            self._shared.clear()
        share = self._shared.setdefault
        return tuple(
            dict.fromkeys(share(thing, thing) for thing in shown.values() if thing is not None)
        )

    def _sight(self, labels: Labels) -> Sighting | None:
        """One series that cannot be read hides none of the others."""
        read = self._quarantine.sound(
            ROAD, "a series", [labels], lambda one: sight(one, self._catalog)
        )
        return read[0] if read else None

    def seen(self, things: Iterable[Sighting], at: datetime | None = None) -> None:
        """Note these as seen now, or at an earlier time: what was seen later then counts."""
        when = at or self._clock()
        with self._lock:
            for sighting in things:
                self._note(sighting, when)

    def batch(
        self,
        *,
        agent: str,
        boot: str,
        sequence: int,
        received_at: datetime,
        host: str = "",
        first: int | None = None,
    ) -> None:
        """Note a batch; with ``first``, one of a backlog that holds all from that number on."""
        run = BatchRun.of_one(
            agent=agent, boot=boot, sequence=sequence, received_at=received_at, first=first
        )
        with self._lock:
            if is_name(host):
                # Apart from the run, which moves every second: the host's row need not.
                alive = Sighting(host=host, host_attributes=(("agent", agent),))
                self._note(alive, received_at)
            earlier = self._runs.get((agent, boot))
            room = earlier is not None or len(self._runs) < AGENTS_PENDING_MAX
            if room and sequence <= SEQUENCE_MAX:
                self._runs[agent, boot] = earlier.followed_by(run) if earlier else run
            else:
                self.dropped += 1

    def _note(self, sighting: Sighting, now: datetime) -> None:
        """Let a sighting wait for the next flush, unless it was noted just now; needs the lock."""
        touched = self._known.get(sighting)
        if touched is not None and now - touched < touch_of(sighting):
            return
        if sighting not in self._pending and len(self._pending) >= PENDING_MAX:
            self.dropped += 1
            return
        self._add(Observation.at(sighting, now))
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[sighting] = now

    def _add(self, observation: Observation) -> None:
        """Join an observation with the one of the same sighting that waits; needs the lock."""
        waiting = self._pending.get(observation.sighting, observation)
        self._pending[observation.sighting] = Observation(
            observation.sighting,
            min(waiting.first_seen, observation.first_seen),
            max(waiting.last_seen, observation.last_seen),
        )

    # --- writing -------------------------------------------------------------------------------

    def run_once(self) -> None:
        """Write what waits, until nothing does or the database fails. Failures are counted."""
        for _ in range(FLUSHES_MAX):
            with self._lock:
                observations = take(self._pending)
                runs = take(self._runs)
            if not observations and not runs:
                return
            # Both are tried: each has its own transaction, and what failed goes back.
            seen = self._write(self._inventory.observe, observations, self._add)
            noted = self._write(self._inventory.note_batches, runs, self._add_back)
            if not (seen and noted):
                return

    def _write(
        self,
        write: Callable[[list[Item]], int | None],
        items: list[Item],
        put_back: Callable[[Item], None],
    ) -> bool:
        """Write these; False if the database failed and they wait again."""
        if not items:
            return True
        try:
            left_out = write(items)
        except InventoryError as error:
            if isinstance(error, InventoryRefusedError):
                return self._write_apart(write, items, put_back, error)
            self.errors += 1
            with self._lock:
                for item in items:
                    put_back(item)
            # Once an outage, not once a second: the counter shows how long it lasts.
            if not self._failing:
                log.warning("the inventory waits (%d entries): %s", self.pending, error)
            self._failing = True
            return False
        except Exception as error:  # noqa: BLE001 - whatever keeps one of them from being written
            # Not the database's: one of these cannot be written, and the others can.
            return self._write_apart(write, items, put_back, error)
        self.flushed += len(items)
        self.dropped += left_out or 0
        if self._failing:
            log.info("the inventory is written again")
        self._failing = False
        return True

    def _write_apart(
        self,
        write: Callable[[list[Item]], int | None],
        items: list[Item],
        put_back: Callable[[Item], None],
        error: Exception,
    ) -> bool:
        """Write these one half at a time, so that the one that is refused holds up no other."""
        if len(items) == 1:
            self.errors += 1
            self.dropped += 1
            log.error("the inventory refuses %r: %s", items[0], error)
            self._quarantine.put(ROAD, type(error).__name__, str(items[0]))
            return True
        middle = len(items) // 2
        halves = [self._write(write, half, put_back) for half in (items[:middle], items[middle:])]
        return all(halves)

    def _add_back(self, run: BatchRun) -> None:
        """Let a run wait again, before what came meanwhile; needs the lock."""
        later = self._runs.get((run.agent, run.boot))
        self._runs[run.agent, run.boot] = run.followed_by(later) if later else run


def touch_of(sighting: Sighting) -> timedelta:
    is_part = sighting.device and sighting.link is None and not sighting.job
    return PART_TOUCH if is_part else TOUCH


def take(waiting: dict[Key, Item]) -> list[Item]:
    """The oldest FLUSH_ROWS of what waits, which then waits no more."""
    keys = list(islice(waiting, FLUSH_ROWS))
    return [waiting.pop(key) for key in keys]
