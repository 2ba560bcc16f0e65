"""The task that turns collectives into series: every ten seconds, a little behind the present.

Records come late (agents collect for seconds, and repeat what a busy service refused), so a
stretch of time is processed when most of its records must have come. Later ones are kept as records
and are in no series. Stretches begin at multiples of ten seconds of the clock, so that a restarted
service goes on where it stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from alerts.window.columns import ClockFit
from alerts.window.common_clock import correct
from alerts.window.series import Places, Roller, members_of_lowest
from alerts.window.slices import align_whole
from api.base.metrics import ServiceMetrics
from api.base.steady import Steady
from api.data.ingest.commit import GroupCommit, Overloaded
from api.data.ingest.own import OwnSamples
from api.data.inventory.repository import Inventory
from api.data.store.store import Store
from api.jobs.correlate.pairs import PAIRS_SECONDS, Pairs, Thinning, Wiring
from api.jobs.correlate.places import RunningPlaces
from api.jobs.correlate.read import (
    RECORDS_MAX,
    Question,
    query_records,
    read_members,
    read_records,
)
from api.jobs.correlate.traffic import NUMBERED
from api.jobs.correlate.window import best_source, power_of_two
from api.jobs.correlate.wiring import RunningWiring
from collector.contract.errors import InventoryError, StoreError
from collector.contract.identity import metric_id
from collector.contract.model import Sample
from collector.contract.units import NS

ROLL_SECONDS = 10
LOOK_SECONDS = 5.0
DELAY_SECONDS = 20
"""How far behind the present: agents collect for five seconds, and retry a busy service within
seconds."""
LOOKBACK_SECONDS = 110
"""How much before a stretch is read of a job's lowest rank, for the rhythm, and once a minute of
all: for clocks, and for the rest of the minute that pairs cover."""
BEGUN_SECONDS = 20
"""How much before a stretch is read of all ranks in any case: a record's time is its end, and what
one rank ended in the stretch, others may have ended before."""
BEGUN = " AND ifNull(entry, time) < fromUnixTimestamp64Nano({begun_ns:Int64})"
"""Operations that began after a stretch are of no use to it."""
CATCH_UP_SECONDS = 3_600
"""How far back a service that was down goes; older collectives stay records without series."""
STRETCH = "roll of a stretch"
"""Under which stretches that broke are counted among background work."""

log = logging.getLogger(__name__)


class RollTask:
    """Rolls only while ``leads()``: two would write the same series. ``clock``: unix seconds.

    ``leads`` must hold for as long as an insert takes: a stretch is written once.
    """

    def __init__(
        self,
        store: Store,
        own: OwnSamples,
        places: Callable[[], Places],
        metrics: ServiceMetrics,
        clock: Callable[[], float],
        leads: Callable[[], bool] = lambda: True,
        wiring: Callable[[], Wiring] = dict,
    ) -> None:
        self._store = store
        self._own = own
        self._leads = leads
        self._places = places
        self._wiring = wiring
        self._metrics = metrics
        self._clock = clock
        self._roller = Roller()
        self._pairs = Pairs()
        self._rolled_s: int | None = None
        self._clocks: list[ClockFit] = []
        """As they were fitted last, at a whole minute."""

    async def run(self, steady: Steady) -> None:
        """Roll until cancelled; retries while the store or the inventory is down."""
        failing = False
        while True:
            with steady.round():
                try:
                    await self._roll_on()
                    failing = False
                except (StoreError, InventoryError, Overloaded) as error:
                    if not failing:
                        log.warning("collectives cannot be made into series: %s", error)
                    failing = True
            await asyncio.sleep(LOOK_SECONDS)

    async def _roll_on(self) -> None:
        if self._leads():
            await self.catch_up()
        else:
            # The leader goes on; a process that leads again finds where that one stopped.
            self._rolled_s = None

    async def catch_up(self) -> int:
        """Roll every stretch that is due; how many there were."""
        due_s = int(self._clock() - DELAY_SECONDS) // ROLL_SECONDS * ROLL_SECONDS
        if self._rolled_s is None:
            self._rolled_s = await asyncio.to_thread(self._find_rolled, due_s)
        count = 0
        while self._rolled_s + ROLL_SECONDS <= due_s and self._leads():
            samples = await self._rolled(self._rolled_s)
            if not self._leads():
                break  # another may roll this stretch by now
            await self._own.write(samples)
            self._metrics.rolled.inc(len(samples))
            self._count_left_out()
            self._rolled_s += ROLL_SECONDS
            count += 1
        return count

    async def _rolled(self, from_s: int) -> list[Sample]:
        """The series of a stretch. One that breaks is left out: it would break again for ever."""
        try:
            return await asyncio.to_thread(self._roll, from_s)
        except (StoreError, InventoryError):
            raise
        except Exception:
            self._metrics.work_failures.labels(STRETCH).inc()
            log.exception("the collectives of %d s from %d on make no series", ROLL_SECONDS, from_s)
            return []

    def _find_rolled(self, due_s: int) -> int:
        """Where to begin: behind the last stretch that was rolled, or at the first record."""
        earliest_s = due_s - CATCH_UP_SECONDS
        sql = """
            SELECT toUnixTimestamp(max(time)) AS moment FROM samples
            WHERE metric = {metric:UInt32} AND time > fromUnixTimestamp({from:Int64})
        """
        rolled = {"metric": metric_id("fabric_communicator_operations_total"), "from": earliest_s}
        last_s = int(self._store.query(sql, rolled)["moment"][0].as_py() or 0)
        if last_s > earliest_s:
            return last_s // ROLL_SECONDS * ROLL_SECONDS
        sql = """
            SELECT minOrNull(toUnixTimestamp(time)) AS moment FROM collectives
            WHERE time > fromUnixTimestamp({from:Int64})
        """
        first_s = self._store.query(sql, {"from": earliest_s})["moment"][0].as_py()
        return min(due_s, first_s // ROLL_SECONDS * ROLL_SECONDS) if first_s else due_s

    def _roll(self, from_s: int) -> list[Sample]:
        from_ns, to_ns = from_s * NS, (from_s + ROLL_SECONDS) * NS
        read_to = to_ns + DELAY_SECONDS * NS
        source, count = best_source(self._store, None, from_ns, read_to)
        if not count:
            return self._pairs.end(to_ns)
        # Series are made of all operations of the stretch, or of every nth if they are too many.
        keep = power_of_two(-(-count * (LOOKBACK_SECONDS // ROLL_SECONDS) // RECORDS_MAX))
        is_minute = to_ns % (PAIRS_SECONDS * NS) == 0
        asked = Question(None, from_ns - LOOKBACK_SECONDS * NS, read_to, [source])
        places = self._places()
        if is_minute or not self._clocks:
            records = rhythm = read_records(self._store, asked, keep_one_in=keep)
            self._clocks = align_whole(records)
        else:
            near = asked.narrowed(from_ns - self._back_ns(), read_to)
            begun = {"begun_ns": to_ns}
            records = query_records(self._store, near, BEGUN, begun, keep_one_in=keep)
            lowest = members_of_lowest(places)
            rhythm = read_members(self._store, asked, lowest, keep_one_in=keep)
        aligned = correct(records, self._clocks)
        rhythm = aligned if rhythm is records else correct(rhythm, self._clocks)
        samples = self._roller.roll(aligned, places, from_ns, to_ns, rhythm)
        if is_minute:
            thinning = Thinning(keep, is_numbered=source == NUMBERED)
            samples += self._pairs.roll(aligned, places, self._wiring(), to_ns, thinning)
        return samples

    def _back_ns(self) -> int:
        """Further back, by as much as the hosts' clocks differ."""
        clocks = [clock for fit in self._clocks for clock in fit.clocks if clock.is_corrected]
        apart_ns = max((abs(clock.offset_ns) for clock in clocks), default=0)
        return min(BEGUN_SECONDS * NS + apart_ns, LOOKBACK_SECONDS * NS)

    def _count_left_out(self) -> None:
        for by, count in self._pairs.left_out.items():
            self._metrics.pairs_left_out.labels(by).inc(count)
        self._pairs.left_out.clear()


def make_roll(
    store: Store,
    inventory: Inventory,
    commit: GroupCommit,
    metrics: ServiceMetrics,
    clock: Callable[[], float],
    leads: Callable[[], bool] = lambda: True,
) -> RollTask:
    places, wiring = RunningPlaces(inventory), RunningWiring(inventory)
    return RollTask(store, OwnSamples(commit), places, metrics, clock, leads, wiring)
