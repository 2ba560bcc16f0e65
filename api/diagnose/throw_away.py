"""The store of one run. Its engine starts with the first row that needs it.

The engine takes 200 MB and half a second before its first answer. A log of a job that died, or a
table of nccl-tests, has a few events and results: those are held here, and no engine is started. A
folder with collectives, steps or readings has one, as the service does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from api.data.store.store import RETAINED_TABLES, Store, StoreUrl
from api.data.store.together import WritableSamples
from api.diagnose.bandwidth import Results
from collector.contract.model import Event

if TYPE_CHECKING:
    import pyarrow as pa

    from api.data.store.shards import UInt32s

RETENTION_DAYS = 20_000
"""Old captures are what this is for: nothing may expire while it is analysed."""
EVENTS_MAX = 2_000_000
"""Events that are kept. Ten thousand ranks have a few each."""
EVENTS_BYTES_MAX = 1 << 30
"""What they may take, packed: a communicator of 10,000 ranks names each of them to each of them."""
EVENTS_AT_ONCE = 50_000
"""Events of one insert."""

_pack = msgspec.msgpack.Encoder(order="sorted").encode
_unpack = msgspec.msgpack.Decoder(Event).decode


class HeldEvent(NamedTuple):
    """An event as it is held: in this order it is given out."""

    time_ns: int
    id: bytes
    kind: str
    packed: bytes


class ThrowAwayStore(Store):
    """Empty at first, in a folder that goes at the end."""

    def __init__(self, folder: Path) -> None:
        retention = dict.fromkeys(RETAINED_TABLES, RETENTION_DAYS)
        super().__init__(
            StoreUrl.parse(f"chdb://{folder}"), retention_days=retention, is_connected=False
        )
        self.results = Results()
        """What nccl-tests measured."""
        self.is_started = False
        self._tables: set[str] = set()
        self._events: dict[bytes, HeldEvent] = {}
        self._event_bytes = 0
        self._events_sent = 0
        """How many of them the engine has: the first so many."""

    # Events ----------------------------------------------------------------------------------

    def add_event(self, event: Event) -> str | None:
        """The reason if it is refused. An event that comes twice is kept once."""
        packed = _pack(event)
        identity = blake2b(packed, digest_size=16).digest()
        if identity in self._events:
            return None
        if len(self._events) >= EVENTS_MAX:
            return f"over EVENTS_MAX = {EVENTS_MAX} events"
        if self._event_bytes + len(packed) > EVENTS_BYTES_MAX:
            return f"over EVENTS_BYTES_MAX = {EVENTS_BYTES_MAX} bytes of events"
        self._event_bytes += len(packed)
        self._events[identity] = HeldEvent(event.time_ns, identity, event.kind, packed)
        return None

    def events(
        self, kinds: Collection[str] = (), *, without: Collection[str] = ()
    ) -> Iterator[Event]:
        """Events of these kinds (none: of all), without those, in order of time."""
        chosen = [
            held
            for held in self._events.values()
            if (not kinds or held.kind in kinds) and held.kind not in without
        ]
        for held in sorted(chosen):
            yield _unpack(held.packed)

    # Rows ------------------------------------------------------------------------------------

    def holds(self, table: str) -> bool:
        return table in self._tables

    def rows(
        self, table: str, sql: str, parameters: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """The answer about one table; none where nothing was put into it, without an engine."""
        if not self.holds(table):
            return []
        found: list[dict[str, Any]] = self.query(sql, parameters).to_pylist()
        return found

    def start(self) -> None:
        if not self.is_started:
            self.is_started = True
            self.migrate()

    def _send_events(self) -> None:
        """Nothing of `diagnose` itself asks for events in SQL; what does, finds them."""
        from api.data.ingest.commit import event_rows  # noqa: PLC0415 - rarely needed

        waiting = list(self._events.values())[self._events_sent :]
        for first in range(0, len(waiting), EVENTS_AT_ONCE):
            some = waiting[first : first + EVENTS_AT_ONCE]
            super().insert_arrow("events", event_rows([_unpack(held.packed) for held in some]))
        self._events_sent = len(self._events)

    def query(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        tag: str = "",
        settings: Mapping[str, str] | None = None,
    ) -> pa.Table:
        self.start()
        if "events" in sql:
            self._send_events()
        return super().query(sql, parameters, tag=tag, settings=settings)

    def insert_arrow(self, table: str, rows: pa.Table, places: UInt32s | None = None) -> None:
        self.start()
        self._tables.add(table)
        super().insert_arrow(table, rows, places)

    def insert_samples(self, samples: WritableSamples) -> None:
        self.start()
        self._tables.add("samples")
        super().insert_samples(samples)


@contextmanager
def throw_away_store(folder: Path) -> Iterator[ThrowAwayStore]:
    """An empty store in this folder, in which nothing expires."""
    store = ThrowAwayStore(folder)
    try:
        yield store
    finally:
        store.close()
