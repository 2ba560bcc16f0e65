"""Group commit: everything that waits is written in one insert, and acknowledged after it.

A request's rows are durable when `GroupCommit.write` returns, and only then may it be answered.
While one insert runs, the next group gathers; a small group waits a moment for more rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import accumulate

import msgspec
import numpy as np
import pyarrow as pa

from api.base.limits import (
    COMMIT_ROWS_EAGER,
    COMMIT_ROWS_MAX,
    PENDING_ROWS_MAX,
)
from api.base.threads import Threads
from api.base.vitals import Pulse, Vitals
from api.data.ingest.columns import SampleColumns
from api.data.ingest.overtaken import without_overtaken
from api.data.ingest.records import COLLECTIVES, STEPS, joined
from api.data.ingest.series import NewSeries, metric_of
from api.data.store.store import Store
from collector.contract.errors import ContractError, FabricscopeError, StoreError
from collector.contract.identity import METRIC_LABEL, Labels
from collector.contract.model import Event

log = logging.getLogger(__name__)

COMMIT_WAIT_SECONDS = 1.0
"""How long a small group waits while rows keep coming: each insert leaves parts that the engine
merges, and that every question looks into."""
COMMIT_SHARE = 8
"""Where inserts are slow a group waits for longer: so many times as long as the last one took, so
that writing takes a small part of the time. Not past COMMIT_WAIT_SECONDS_MAX: agents' samples are
judged within seconds."""
COMMIT_WAIT_SECONDS_MAX = 2.5
COMMIT_QUIET_SECONDS = 0.1
"""How long it waits without a new row. Senders that wait for their answer before they send again
have all sent by then; ten agents or more, which send each second, keep a group open. Of N processes
that share the senders each waits N times as long, COMMIT_WAIT_SECONDS at most: it sees one request
in N, and an insert costs the one store as much as before. Where another process owns the store,
groups end at the same moments instead (`next_tick_s`)."""
COMMIT_SPACING_SECONDS = 0.02
"""The least time from one insert's begin to the next one's: what an insert costs hardly depends on
its rows, and one sender that answers in a millisecond could ask for a hundred a second."""
UNWRITABLE_CHARS_MAX = 500
"""Of an error's words in the answer to a request that cannot be written."""


class Overloaded(FabricscopeError):  # noqa: N818 - reads as the statement it is
    """More is waiting than the service may hold; the sender should try again later."""


class Exemplar(msgspec.Struct, frozen=True):
    """A sample that points to a trace."""

    series: int
    time_ms: int
    value: float
    labels: Labels
    place: int = 0
    """Where the series stands on a cluster; of no use where there are no shards."""


class Metadata(msgspec.Struct, frozen=True):
    """A sender's description of a metric."""

    metric: str
    type: str
    help: str
    unit: str


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one request."""

    samples: SampleColumns
    series: list[NewSeries] = []
    events: list[Event] = []
    exemplars: list[Exemplar] = []
    metadata: list[Metadata] = []
    collectives: pa.Table | None = None
    steps: pa.Table | None = None

    @property
    def records(self) -> dict[str, int]:
        tables = {COLLECTIVES: self.collectives, STEPS: self.steps}
        return {name: rows.num_rows for name, rows in tables.items() if rows is not None}

    @property
    def rows(self) -> int:
        others = len(self.series) + len(self.events) + len(self.exemplars) + len(self.metadata)
        return len(self.samples) + others + sum(self.records.values())


class Awaited:
    """Who was in the last group and has sent nothing since: by name, and by connection.

    A collector sends for many agents over few connections, one that opens a connection for each
    request has a name: both wait for their answers before they send more.
    """

    def __init__(self, senders: list[tuple[str, str]]) -> None:
        self._names = Counter(name for name, _ in senders)
        self._lines = Counter(line for _, line in senders)

    def note(self, name: str, line: str) -> None:
        for awaited, one in ((self._names, name), (self._lines, line)):
            if awaited[one] > 1:
                awaited[one] -= 1
            else:
                del awaited[one]  # a Counter lets what is not there be deleted

    @property
    def is_over(self) -> bool:
        return not (self._names and self._lines)


class GroupCommit:
    """Inserts writes in groups. ``observe`` gets of each: success, rows, seconds."""

    def __init__(
        self,
        store: Store,
        observe: Callable[[bool, int, float], None],
        pulse: Pulse | None = None,
    ) -> None:
        self._store = store
        self._observe = observe
        self._pulse = pulse or Vitals().commit
        self._waiting: list[tuple[Write, asyncio.Future[None]]] = []
        self._senders: list[tuple[str, str]] = []
        """Of what waits: name and connection."""
        self._arrived = asyncio.Event()
        self._enough = asyncio.Event()
        self._thread = Threads(1, work="commit")
        self.pending_rows = 0
        """Rows that are waiting or being inserted."""
        self._waiting_rows = 0
        self._coming = 0
        self._awaited: Awaited | None = None
        """None: the last group had no senders."""
        self._moved_s = 0.0
        """When rows began to wait, or the last insert ended; by a clock that is never set."""
        self._begun_s = float("-inf")
        """When the last insert began; by the event loop's clock."""
        self._took_s = 0.0
        """How long it took."""
        self.sharers = 1
        """Processes of the service that take what is sent, this one among them."""

    @property
    def is_placed(self) -> bool:
        """Whether samples must say where their series stand: the store has several shards."""
        return self._store.is_sharded

    @property
    def stuck_s(self) -> float:
        """For how long rows have waited without one insert that ended."""
        return time.monotonic() - self._moved_s if self.pending_rows else 0.0

    async def write(
        self, write: Write, *, sender: str = "", line: str = "", at_once: bool = False
    ) -> None:
        """Return when all of it is durable; raise StoreError when none of it may be.

        ``sender``, ``line``: who waits for it before it sends more, and over which connection.
        ``at_once``: it is read next, so its group does not wait for more rows.
        """
        if not write.rows:
            return
        if self.pending_rows + write.rows > PENDING_ROWS_MAX:
            raise Overloaded(
                f"{self.pending_rows} rows wait for the store; "
                f"PENDING_ROWS_MAX is {PENDING_ROWS_MAX}"
            )
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((write, done))
        if sender:
            self._senders.append((sender, line or sender))
        if self._awaited is not None:
            self._awaited.note(sender, line or sender)
        if not self.pending_rows:
            self._moved_s = time.monotonic()
        self.pending_rows += write.rows
        self._waiting_rows += write.rows
        self._arrived.set()
        if at_once:
            self._enough.set()
        self._look()
        await done

    @contextlib.contextmanager
    def coming(self) -> Iterator[None]:
        """Announce a request that is being decoded: a group waits a moment for it."""
        self._coming += 1
        try:
            yield
        finally:
            self._coming -= 1
            self._look()

    def _look(self) -> None:
        """Commit at once when the group is large, or nothing is on its way that is worth a wait.

        That is: it is of a fair size, or all who were in the last group have sent again, as those
        do who wait for an answer before they send more.
        """
        is_full = self._waiting_rows >= COMMIT_ROWS_MAX
        is_met = self._awaited is not None and self._awaited.is_over
        is_fair = self._waiting_rows >= COMMIT_ROWS_EAGER or is_met
        if is_full or (is_fair and self._waiting and not self._coming):
            self._enough.set()

    async def run(self) -> None:
        """Commit groups until cancelled; what waits then is still written."""
        try:
            while True:
                await self._arrived.wait()
                await self._gather()
                next_s = self._begun_s + COMMIT_SPACING_SECONDS
                await asyncio.sleep(next_s - asyncio.get_running_loop().time())
                await self._commit()
        finally:
            while self._waiting:
                await self._commit()
            self._thread.shutdown()

    async def _gather(self) -> None:
        """Wait for more rows: until they are enough, or none comes, or the time is up."""
        loop = asyncio.get_running_loop()
        wait_s = min(COMMIT_SHARE * self._took_s, COMMIT_WAIT_SECONDS_MAX)
        longest_s = max(COMMIT_WAIT_SECONDS, wait_s)
        until_s = loop.time() + longest_s
        quiet_s = min(COMMIT_QUIET_SECONDS * self.sharers, COMMIT_WAIT_SECONDS)
        if self._store.is_owned_elsewhere:
            until_s, quiet_s = next_tick_s(loop.time(), longest_s), longest_s
        while loop.time() < until_s:
            seen_rows = self._waiting_rows
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(loop.time() + quiet_s, until_s)):
                    await self._enough.wait()
                    return
            if self._waiting_rows == seen_rows:
                return

    async def _commit(self) -> None:
        group, self._waiting = self._waiting, []
        self._awaited = Awaited(self._senders) if self._senders else None
        self._senders = []
        rows, self._waiting_rows = self._waiting_rows, 0
        self._arrived.clear()
        self._enough.clear()
        loop = asyncio.get_running_loop()
        started = loop.time()
        self._begun_s = started
        writes = [write for write, _ in group]
        failures: list[FabricscopeError | None] = [StoreError("the commit loop broke")] * len(group)
        try:
            failures = await loop.run_in_executor(self._thread, insert_each, self._store, writes)
        finally:
            # Also when something unforeseen ends the loop: no request may wait for ever or take
            # silence for success.
            self.pending_rows -= rows
            self._moved_s = time.monotonic()
            self._note(failures)
            for (_, done), failure in zip(group, failures, strict=True):
                if done.done():
                    continue  # its client has gone; the rows are kept all the same
                if failure is None:
                    done.set_result(None)
                else:
                    done.set_exception(failure)
        self._took_s = loop.time() - started
        self._observe(not any(failures), rows, self._took_s)

    def _note(self, failures: list[FabricscopeError | None]) -> None:
        """The store works if it took one of the group: a request that it refuses is odd itself."""
        if not all(failures):
            self._pulse.succeed()
        elif away := next((one for one in failures if isinstance(one, StoreError)), None):
            self._pulse.fail(str(away))


def next_tick_s(now_s: float, longest_s: float) -> float:
    """When a group ends that is gathered by one of several processes.

    Each sees one request in so many, and would have as many inserts as all together need: they end
    their groups at the same moments, and the store process makes one insert of them
    (`api.data.store.gathering`). The clock is the machine's, which all of them read.

    >>> next_tick_s(17.2, 1.0)
    18.0
    >>> next_tick_s(17.2, 2.5)
    18.0
    """
    tick_s = COMMIT_WAIT_SECONDS * max(1, longest_s // COMMIT_WAIT_SECONDS)
    return (math.floor(now_s / tick_s) + 1) * tick_s


class Unwritable(ContractError):  # noqa: N818 - reads as the statement it is
    """Rows that no store can hold, whatever the sender tries: the request is refused for good."""


def insert_each(store: Store, group: list[Write]) -> list[FabricscopeError | None]:
    """Insert the group; why each of its writes failed, None where it is durable.

    A group that fails as a whole is inserted again one by one, if the store is there: one request
    with an odd row must not fail the others. Rows that are then inserted twice are recognised.
    """
    try:
        insert_group(store, group)
    except StoreError as error:
        if len(group) == 1 or not is_there(store):
            return [error] * len(group)
    except Exception as error:
        if len(group) == 1:
            log.exception("a request cannot be written")
            words = f"the request cannot be written: {type(error).__name__}: {error}"
            return [Unwritable(words[:UNWRITABLE_CHARS_MAX])]
    else:
        return [None] * len(group)
    return [failure for write in group for failure in insert_each(store, [write])]


def is_there(store: Store) -> bool:
    try:
        store.ping()
    except StoreError:
        return False
    return True


def insert_group(store: Store, group: list[Write]) -> None:
    """Insert everything in the group: names first, so that no sample is ever without one."""
    with store.together() as rows:
        if series := [entry for write in group for entry in write.series]:
            rows.insert_arrow("series", series_rows(series))
        if metadata := [entry for write in group for entry in write.metadata]:
            rows.insert_arrow("metadata", metadata_rows(metadata))
        if events := [event for write in group for event in write.events]:
            rows.insert_arrow("events", event_rows(events))
        if exemplars := [exemplar for write in group for exemplar in write.exemplars]:
            places = np.array([exemplar.place for exemplar in exemplars], dtype=np.uint32)
            rows.insert_arrow("exemplars", exemplar_rows(exemplars), places)
        if (collectives := joined(write.collectives for write in group)) is not None:
            rows.insert_arrow(COLLECTIVES, without_overtaken(store, collectives))
        if (steps := joined(write.steps for write in group)) is not None:
            rows.insert_arrow(STEPS, steps)
        samples = SampleColumns.concatenate([write.samples for write in group])
        if len(samples):
            rows.insert_samples(samples)


def series_rows(series: list[NewSeries]) -> pa.Table:
    """Rows of the `series` table; the name's label is a column of its own."""
    unique = {(entry.day, entry.series): entry for entry in series}.values()
    days = pa.array([entry.day for entry in unique], pa.int32())
    return pa.table(
        {
            "day": days.cast(pa.date32()),
            "metric_name": pa.array([metric_of(entry.labels) for entry in unique]),
            "series": pa.array([entry.series for entry in unique], pa.uint64()),
            "labels": label_maps(
                [[pair for pair in entry.labels if pair[0] != METRIC_LABEL] for entry in unique]
            ),
        }
    )


def label_maps(all_pairs: list[list[tuple[str, str]]]) -> pa.MapArray:
    """A column of maps from text to text; built flat, which takes a third of the time."""
    offsets = [0, *accumulate(len(pairs) for pairs in all_pairs)]
    flat = [pair for pairs in all_pairs for pair in pairs]
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()),
        pa.array([name for name, _ in flat], pa.string()),
        pa.array([value for _, value in flat], pa.string()),
    )


def event_rows(events: list[Event]) -> pa.Table:
    """Rows of the `events` table, each with the digest that recognises a resend."""
    encoder = msgspec.msgpack.Encoder(order="sorted")
    ids = [
        int.from_bytes(blake2b(encoder.encode(event), digest_size=8).digest(), "little")
        for event in events
    ]
    return pa.table(
        {
            "kind": pa.array([event.kind for event in events]),
            "time": pa.array([event.time_ns for event in events], pa.timestamp("ns", "UTC")),
            "id": pa.array(ids, pa.uint64()),
            "labels": label_maps([list(event.labels.items()) for event in events]),
            "message": pa.array([event.message for event in events]),
            "attributes": label_maps([list(event.attributes.items()) for event in events]),
        }
    )


def exemplar_rows(exemplars: list[Exemplar]) -> pa.Table:
    return pa.table(
        {
            "series": pa.array([exemplar.series for exemplar in exemplars], pa.uint64()),
            "time": pa.array([e.time_ms for e in exemplars], pa.timestamp("ms", "UTC")),
            "value": pa.array([exemplar.value for exemplar in exemplars], pa.float64()),
            "labels": label_maps([list(exemplar.labels) for exemplar in exemplars]),
        }
    )


def metadata_rows(metadata: list[Metadata]) -> pa.Table:
    return pa.table(
        {
            "metric_name": pa.array([entry.metric for entry in metadata]),
            "type": pa.array([entry.type for entry in metadata]),
            "help": pa.array([entry.help for entry in metadata]),
            "unit": pa.array([entry.unit for entry in metadata]),
        }
    )
