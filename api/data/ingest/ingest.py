"""Ingest as one object: bodies in, acknowledgements out.

Decoding happens in one thread of its own, so that the event loop stays free to answer and the
memories of known series need no locks; inserts happen in another, outside Python's lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
import numpy as np

from api.base.clocks import TrustedClock
from api.base.host_names import HOST, Hosts
from api.base.limits import (
    INFLIGHT_BYTES_MAX,
    INFLIGHT_BYTES_PER_SENDER_MAX,
    METADATA_CACHED_BYTES_MAX,
    METADATA_CACHED_MAX,
)
from api.base.metrics import ServiceMetrics
from api.base.quarantine import Oddities
from api.base.steady import Steady
from api.base.threads import Threads
from api.data.captures import Captures
from api.data.ingest.budgets import RULES, Budgets, Over, Sender
from api.data.ingest.columns import MS_PER_SECOND, Acceptance, SampleColumns
from api.data.ingest.commit import GroupCommit, Metadata, Overloaded, Write
from api.data.ingest.door import NAMES, OPEN, Door, Names
from api.data.ingest.native import NativeRequest, decode_native
from api.data.ingest.otlp import OtlpRequest, OtlpSeries, decode_otlp
from api.data.ingest.remote_write import RemoteRequest, unpack
from api.data.ingest.remote_write_v1 import decode_v1
from api.data.ingest.remote_write_v2 import decode_v2
from api.data.ingest.series import NativeTable, NativeTables, RemoteSeries, read_labels
from api.data.inventory.feed import InventoryFeed
from api.data.rollouts.book import RolloutBook
from api.data.store.store import Store
from collector.contract.errors import FabricscopeError
from collector.contract.wire import Batch, Receipt

Made = TypeVar("Made")
NATIVE, REMOTE_WRITE, OTLP = "native", "remote_write", "otlp"

SIGHT_SECONDS = 30.0
"""How often an agent's things are noted again in the inventory."""
REMOTE_SIGHT_SECONDS = 10.0
"""How often remote-write series are noted there: the longest delay before a new one appears."""


class Holding:
    """Bytes of one request that count as held, for its sender and for all."""

    def __init__(self, inflight: Counter[str], sender: str) -> None:
        self._inflight = inflight
        self._sender = sender
        self._size = 0

    def add(self, size: int) -> None:
        """Count these bytes, too; Overloaded if that would be too many."""
        whole, own = self._inflight.total() + size, self._inflight[self._sender] + size
        if whole > INFLIGHT_BYTES_MAX:
            raise Overloaded(
                f"{whole} bytes of requests are being worked on; "
                f"INFLIGHT_BYTES_MAX is {INFLIGHT_BYTES_MAX}"
            )
        if own > INFLIGHT_BYTES_PER_SENDER_MAX:
            raise Overloaded(
                f"{own} bytes of requests of {self._sender!r} are being worked on; "
                f"INFLIGHT_BYTES_PER_SENDER_MAX is {INFLIGHT_BYTES_PER_SENDER_MAX}"
            )
        self._inflight[self._sender] = own
        self._size += size

    def release(self) -> None:
        self._inflight[self._sender] -= self._size
        if not self._inflight[self._sender]:
            del self._inflight[self._sender]


def name_of(sender: Sender | None) -> str:
    return sender.name if sender is not None else ""


def line_of(sender: Sender | None) -> str:
    return sender.line if sender is not None else ""


def speaks_for(hosts: Hosts, batch: Batch) -> bool:
    """Whether a batch is of an agent of these hosts: agents have their host's name."""
    return hosts.allow(filter(None, [batch.agent, batch.common.get(HOST, "")]))


class Ingest:
    """Decodes, commits, acknowledges. ``clock`` gives unix seconds."""

    def __init__(
        self,
        store: Store,
        feed: InventoryFeed,
        metrics: ServiceMetrics,
        clock: Callable[[], float],
        *,
        retention_days: int,
        names: Names = NAMES,
    ) -> None:
        self.feed = feed
        self._metrics = metrics
        self._clock = clock
        self._retention_days = retention_days
        is_placed = store.is_sharded
        self._tables = NativeTables(names, is_placed=is_placed)
        self._remote = RemoteSeries(names, is_placed=is_placed)
        self._otlp = OtlpSeries(names, is_placed=is_placed)
        self._said: dict[str, Metadata] = {}
        self._said_bytes = 0
        self.budgets = Budgets(clock)
        self.trusted: TrustedClock | None = None
        """Looks for jumps of the clock; None: nothing does."""
        self.captures: Captures | None = None
        """Requests that receipts carry to agents; None: receipts carry none."""
        self.rollouts: RolloutBook | None = None
        """Configurations that they carry; None: they carry none."""
        self.probe_targets: Callable[[str], str | None] = lambda _: None
        """The name of an agent's list of probe targets, which they carry; None: it has none."""
        self.refusals = Oddities(clock)
        """The latest refusals, by protocol, rule and sender."""
        self._decoder = Threads(1, work="decode")
        self._inflight: Counter[str] = Counter()
        self._newest_s: dict[str, float] = {}
        self.commit = GroupCommit(store, self._observe_commit, metrics.vitals.commit)
        metrics.watch("fabric_service_pending_rows", lambda: self.commit.pending_rows)
        metrics.watch("fabric_service_senders", lambda: len(self.budgets))
        metrics.watch("fabric_service_inflight_bytes", self._inflight.total)
        self._watch_series()

    @property
    def sums_deltas(self) -> bool:
        """Whether OTLP's deltas are taken: all of a series must come to this process."""
        return self._otlp.takes_deltas

    @sums_deltas.setter
    def sums_deltas(self, takes: bool) -> None:
        self._otlp.takes_deltas = takes

    def _watch_series(self) -> None:
        """Show how many series are remembered, and what they take."""
        counts: dict[str, Callable[[], float]] = {
            NATIVE: lambda: len(self._tables),
            REMOTE_WRITE: lambda: len(self._remote.labels),
            OTLP: lambda: len(self._otlp.rows),
        }
        sizes: dict[str, Callable[[], float]] = {
            NATIVE: lambda: self._tables.bytes,
            REMOTE_WRITE: lambda: self._remote.bytes,
            OTLP: lambda: self._otlp.known.bytes,
        }
        self._metrics.watch("fabric_service_uncached_series", lambda: self._remote.uncached)
        for protocol, count in counts.items():
            self._metrics.watch("fabric_service_known_series", count, protocol=protocol)
            self._metrics.watch(
                "fabric_service_known_series_bytes", sizes[protocol], protocol=protocol
            )

    @contextlib.contextmanager
    def holding(self, sender: str) -> Iterator[Holding]:
        """Counts bytes of one sender's request as held, until it is closed."""
        holding = Holding(self._inflight, sender)
        try:
            yield holding
        finally:
            holding.release()

    async def native(self, body: bytes, sender: Sender | None = None) -> Receipt:
        """Make a native batch durable; the receipt may be sent when this returns.

        ``sender`` None: nothing but the rules of the format and the clock bind it.
        """
        request = await self._decoded(self._decode_native, body, sender)
        await self.commit.write(request.write, sender=request.batch.agent, line=line_of(sender))
        batch, write = request.batch, request.write
        self._tables.written(batch.agent, request.table, request.days)
        is_own = sender is None or speaks_for(sender.hosts, batch)
        if is_own:
            self._sight_batch(request)
        self._count(NATIVE, write, request.refused)
        self.note_refused(
            NATIVE, request.refused, request.complaint, name_of(sender) or batch.agent
        )
        captures = configuration = None
        if is_own and self.captures is not None:
            self.captures.note(batch.agent, write.events)
            captures = self.captures.of(batch.agent)
        if is_own and self.rollouts is not None:
            self.rollouts.note(batch.agent, write.events)
            configuration = self.rollouts.of(batch.agent)
        return Receipt(
            boot=batch.boot,
            sequence=batch.sequence,
            stored=len(write.samples) + len(write.events) + sum(write.records.values()),
            refused=request.refused,
            captures=captures or msgspec.UNSET,
            configuration=configuration or msgspec.UNSET,
            probe_targets=(self.probe_targets(batch.agent) if is_own else None) or msgspec.UNSET,
            any_order=True,
        )

    async def remote_write(
        self, body: bytes, version: int, sender: Sender | None = None
    ) -> RemoteRequest:
        request = await self._decoded(self._decode_remote, body, version, sender)
        await self.commit.write(request.write, sender=name_of(sender), line=line_of(sender))
        self._remote.written(request.write.series)
        self._remember(request.write.metadata)
        self._count(REMOTE_WRITE, request.write, request.refused)
        self._metrics.blank.labels(REMOTE_WRITE).inc(request.blank)
        self.note_refused(REMOTE_WRITE, request.refused, request.complaint, name_of(sender))
        return request

    async def otlp(
        self, body: bytes, parse: Callable[[bytes], Any], sender: Sender | None = None
    ) -> OtlpRequest:
        """Make what is valid in an OTLP request durable; ``parse`` knows how it is written."""
        decoded = await self._decoded(self._decode_otlp, body, parse, sender)
        write = decoded.request.write
        try:
            await self.commit.write(write, sender=name_of(sender), line=line_of(sender))
        except FabricscopeError:
            # The sender will try again, and what it then adds must not be there already.
            await self._in_decoder(self._otlp.deltas.forget, decoded.added)
            raise
        self._otlp.known.written(write.series)
        self._remember(write.metadata)
        self._count(OTLP, write, decoded.request.refused)
        self._metrics.blank.labels(OTLP).inc(decoded.request.blank)
        self.note_refused(OTLP, decoded.request.refused, decoded.request.complaint, name_of(sender))
        self._metrics.merged.labels(OTLP).inc(decoded.merged)
        return decoded

    def over(self, sender: Sender, refused: Mapping[str, int]) -> Over | None:
        """The answer to a request of which a budget refused some; None: none did."""
        for rule in RULES & refused.keys():
            return self.budgets.of(sender).over(rule, refused[rule])
        return None

    async def _decoded(self, decode: Callable[..., Made], *given: object) -> Made:
        with self.commit.coming():
            return await self._in_decoder(decode, *given)

    async def _in_decoder(self, work: Callable[..., Made], *given: object) -> Made:
        return await asyncio.get_running_loop().run_in_executor(self._decoder, work, *given)

    def _door(self, sender: Sender | None) -> Door:
        """In the thread that decodes: requests that wait for it must not count on the same room."""
        if sender is None:
            return OPEN
        return Door(sender.hosts, self.budgets.allowance(sender), self.budgets.hosts)

    def _decode_native(self, body: bytes, sender: Sender | None) -> NativeRequest:
        return decode_native(body, self._tables, self._acceptance(), self._door(sender))

    def _decode_otlp(
        self, body: bytes, parse: Callable[[bytes], Any], sender: Sender | None
    ) -> OtlpRequest:
        decoded = decode_otlp(parse(body), self._otlp, self._acceptance(), self._door(sender))
        return decoded._replace(request=self._only_news(decoded.request))

    def _decode_remote(self, body: bytes, version: int, sender: Sender | None) -> RemoteRequest:
        decode = decode_v1 if version == 1 else decode_v2
        door = self._door(sender)
        return self._only_news(decode(unpack(body), self._remote, self._acceptance(), door))

    def _only_news(self, request: RemoteRequest) -> RemoteRequest:
        """Drop metadata that is stored already: senders repeat it with every request."""
        is_full = len(self._said) >= METADATA_CACHED_MAX
        if is_full or self._said_bytes >= METADATA_CACHED_BYTES_MAX:
            self._said, self._said_bytes = {}, 0
        news = [each for each in request.write.metadata if self._said.get(each.metric) != each]
        write = msgspec.structs.replace(request.write, metadata=news)
        return msgspec.structs.replace(request, write=write)

    def _remember(self, news: list[Metadata]) -> None:
        for each in news:
            self._said[each.metric] = each
            self._said_bytes += len(each.metric) + len(each.help) + len(each.unit)

    def _acceptance(self) -> Acceptance:
        """Overloaded while the clock has just jumped: what is refused by it is lost for good."""
        if self.trusted is not None and not self.trusted.is_steady():
            raise Overloaded("this machine's clock was set a moment ago; see the service's log")
        return Acceptance.at(int(self._clock() * 1000), self._retention_days)

    def _sight_batch(self, request: NativeRequest) -> None:
        batch, table, now = request.batch, request.table, self._clock()
        self.feed.batch(
            agent=batch.agent,
            boot=batch.boot,
            sequence=batch.sequence,
            received_at=dt.datetime.fromtimestamp(now, tz=dt.UTC),
            host=batch.common.get(HOST, ""),
            first=batch.backlog_first,
        )
        if now - table.sighted >= SIGHT_SECONDS:
            table.sighted = now
            self._decoder.submit(self._sight_table, batch, table)

    async def sighted(self) -> None:
        """Return when every batch that was acknowledged before is noted for the inventory."""
        await self._in_decoder(lambda: None)

    def _sight_table(self, batch: Batch, table: NativeTable) -> None:
        if table.things is None:
            labels = read_labels(batch, np.flatnonzero(table.valid).tolist())
            self._tables.show(table, self.feed.things(labels.values()))
        self.feed.seen(table.things or (), self._seen_at(batch))

    def _seen_at(self, batch: Batch) -> dt.datetime | None:
        """When a backlog's things were seen: what a later batch said of them counts; None: now."""
        times_ms = np.frombuffer(batch.time_ms, dtype="<i8")
        if batch.backlog_first is None or not len(times_ms):
            return None
        seen_s = min(int(times_ms.max()) / MS_PER_SECOND, self._clock())
        return dt.datetime.fromtimestamp(max(0.0, seen_s), tz=dt.UTC)

    async def sight_remote_series(self, steady: Steady) -> None:
        while True:
            await asyncio.sleep(REMOTE_SIGHT_SECONDS)
            with steady.round():
                await self.sight_now()

    async def sight_now(self) -> None:
        """Note the remote-write series that had samples since the last call."""
        await self._in_decoder(self._sight_remote)

    def _sight_remote(self) -> None:
        """Reading a series' labels takes microseconds, so each is read once and remembered."""
        for known in (self._remote, self._otlp.known):
            for row in known.take_used():
                things = known.things[row]
                if things is None:
                    is_shown = known.names.show_hosts(known.metric_name(row))
                    labels = [known.labels[row]] if is_shown else []
                    things = known.things[row] = self.feed.things(labels)
                self.feed.seen(things)

    def note_refused(
        self, protocol: str, refused: Mapping[str, int], complaint: str, sender: str
    ) -> None:
        """Remember what was refused, and whose it was, for `GET /v1/refused`."""
        for rule, count in refused.items():
            self.refusals.note(protocol, rule, complaint, sender=sender, count=count)

    def _count(self, protocol: str, write: Write, refused: dict[str, int]) -> None:
        self._metrics.samples.labels(protocol).inc(len(write.samples))
        self._note_newest(protocol, write.samples)
        self._metrics.events.labels(protocol).inc(len(write.events))
        for table, count in write.records.items():
            self._metrics.records.labels(protocol, table).inc(count)
        self._metrics.refuse(protocol, refused)

    @property
    def newest_s(self) -> float | None:
        """Unix seconds of the newest sample that this process received; None: it received none."""
        return max(self._newest_s.values(), default=None)

    def _note_newest(self, protocol: str, samples: SampleColumns) -> None:
        """Not later than now: a sample of the future would hide that its sender fell silent."""
        if not len(samples):
            return
        newest_s = min(int(samples.time_ms.max()) / MS_PER_SECOND, self._clock())
        if newest_s > self._newest_s.get(protocol, 0.0):
            self._newest_s[protocol] = newest_s
            self._metrics.newest_sample.labels(protocol).set(newest_s)

    def _observe_commit(self, ok: bool, rows: int, seconds: float) -> None:  # noqa: FBT001
        self._metrics.commits.labels("stored" if ok else "failed").inc()
        self._metrics.commit_rows.observe(rows)
        self._metrics.commit_seconds.observe(seconds)

    async def run(self) -> None:
        try:
            await self.commit.run()
        finally:
            self._decoder.shutdown()
