"""One store, two places: chDB in this process, or a ClickHouse server by URL."""

from __future__ import annotations

import contextlib
import queue
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
import numpy as np
import pyarrow as pa

from api.base.errand import ERRAND
from api.base.limits import ENGINE_CACHE_BYTES_MAX
from api.base.memory import memory_bytes
from api.base.process_limits import GATHER_BYTES_MAX
from api.base.quarantine import Quarantine
from api.data.store.blocks import encode_block
from api.data.store.cluster import (
    CLUSTER_WRITE_SETTINGS,
    SHARD_READ_SETTINGS,
    SHARD_WRITE_SETTINGS,
    check_cluster,
    tables_missing,
)
from api.data.store.errors import StoreBusy, is_damage, opening_errors, store_errors
from api.data.store.insert_log import InsertLog
from api.data.store.known import RECORDS, SAMPLES, SERIES, Known
from api.data.store.migrate import Placement, apply_migrations, statements_again
from api.data.store.notes import headers_of, note_of, record_places
from api.data.store.owner_client import OwnerClient
from api.data.store.rings import Samples
from api.data.store.rollups import ROLLUP_TABLES, Late, LateNotes, late_rows
from api.data.store.shards import UInt32s, split_rows, split_samples
from api.data.store.together import Inserting, Int64s, Together, WritableSamples, times_of
from collector.contract.errors import SettingsError, StoreError

if (
    TYPE_CHECKING
):  # the driver is a third of the imports of `diagnose`, which rarely starts the engine
    from clickhouse_connect.driver.client import Client

VERSION_MIN = (26, 9)
"""What chDB embeds. Older servers lack the time-series aggregates that queries use."""

READERS_MAX = 8
"""Concurrent queries: PromQL's (api.base.limits.QUERIES_MAX) with two helpers (api.promql.fetch),
and two for short ones. More would only take the cores from each other and from ingest."""
READER_WAIT_SECONDS = 10.0
"""How long a query waits for its turn before it is refused."""
QUERY_SECONDS_MAX = 60
"""No query may hold the store longer; the engine itself stops it."""
QUERY_MEMORY_BYTES_MAX = min(4 << 30, memory_bytes() // 4)

EMBEDDED_OPTIONS = {
    # Its defaults are those of a server that has a machine to itself: 5 GiB for each cache.
    "mark_cache_size": str(ENGINE_CACHE_BYTES_MAX),
    "index_mark_cache_size": str(ENGINE_CACHE_BYTES_MAX),
    "primary_index_cache_size": str(ENGINE_CACHE_BYTES_MAX),
}
"""How the engine is started in this process; a ClickHouse server has its own configuration."""
EMBEDDED_TABLE_SETTINGS = {
    # From 100 merged parts on it starts 128 threads to remove them, and keeps these for ever: 50 MB
    # and 400 open files. One thread removes hundreds of parts in a second.
    "concurrent_part_removal_threshold": "1000000",
}
"""Of every table with many parts, where the engine is a part of a service."""
WRITE_SETTINGS = {
    # Repeats are rare and merges remove them: looking for them in every insert costs as much as
    # the rest of the insert.
    "optimize_on_insert": "0",
    # One insert is one small pipeline; a second thread costs it a third more and no time.
    "max_threads": "1",
    # A backlog of many days arrives in one insert, and each day is a partition.
    "max_partitions_per_insert_block": "1000",
}
READ_SETTINGS = {
    "max_execution_time": str(QUERY_SECONDS_MAX),
    "max_memory_usage": str(QUERY_MEMORY_BYTES_MAX),
    # A row's partition follows from its key, so repeats never lie in two partitions.
    "do_not_merge_across_partitions_select_final": "1",
    "enable_time_series_aggregate_functions": "1",
    # It keeps which parts of a table a condition excludes, for the next question with the same one.
    # Nearly every question of ours is about another time, so it fills (100 MB) and is never right.
    "use_query_condition_cache": "0",
    # The answer does not leave the machine, or leaves it over a fast network.
    "output_format_arrow_compression_method": "none",
}

SHARDS_MAX = 1_000
LEDGER_SHARD = 1
"""Which shard has the ledger of migrations, and notes of moves."""

RECENT_WHERE = (
    "metric IN {metrics:Array(UInt32)} AND time > fromUnixTimestamp64Milli({after_ms:Int64})"
)

RECORD_TABLES = ("samples", "events", "exemplars", "collectives", "steps", "findings")
"""What was sent and what was said of it."""
RETAINED_TABLES = (*RECORD_TABLES, "series", *ROLLUP_TABLES)
EXPIRES_BY = {"series": "day", "steps": "toDateTime(start)"} | dict.fromkeys(ROLLUP_TABLES, "time")
"""The column from which retention counts a row's age, where that is not `time`."""
RETENTION_DAYS_DEFAULT = 30

_KEPT_DAYS = re.compile(r"toIntervalDay\((\d+)\)")

SHADOW, SHADOW_PREFIX = "shadow", "fabricscope_backup_"
"""Where the engine keeps frozen parts, and what the names of ours begin with. The engine writes
other signs than letters, digits and this one in a way of its own."""


class StoreUrl(msgspec.Struct, frozen=True):
    """Where the store is: ``chdb:///path`` or ``clickhouse://user:password@host:port/database``.

    ``?cluster=NAME`` puts the tables on a replicated cluster, ``&shards=N`` says that it has so
    many shards, ``?secure=1`` uses TLS.
    """

    scheme: str
    dsn: str
    database: str
    cluster: str | None = None
    shards: int = 1
    socket: str = ""
    """Path of a Unix socket, in place of the host: another process of this service owns the
    store (`api.data.store.owner`)."""
    owned_folder: str = ""
    """Where that process keeps it."""

    @classmethod
    def owned_elsewhere(cls, path: Path, owned: StoreUrl) -> StoreUrl:
        """The embedded store that the process which listens on this Unix socket owns."""
        return cls(
            "clickhouse",
            "http://localhost/default",
            "default",
            socket=str(path),
            owned_folder=owned.folder,
        )

    @property
    def shown(self) -> str:
        """For errors: without who may enter."""
        if self.scheme == "chdb" or self.socket:
            return self.socket or self.dsn
        parts = urlsplit(self.dsn)
        return f"{self.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def folder(self) -> str:
        """Of an embedded store; empty: it is a server's."""
        return self.dsn.removeprefix("chdb://") if self.scheme == "chdb" else self.owned_folder

    @classmethod
    def parse(cls, text: str) -> StoreUrl:
        """Raises a SettingsError that names the mistake in the text."""
        parts = urlsplit(text)
        if parts.scheme == "chdb":
            if parts.netloc or not parts.path.strip("/"):
                raise SettingsError(f"store {text!r}: write chdb:///absolute/path (three slashes)")
            return cls("chdb", f"chdb://{parts.path}", "default")
        if parts.scheme != "clickhouse":
            msg = f"store {text!r}: write chdb:///path or clickhouse://host:8123/database"
            raise SettingsError(msg)
        given = parse_qs(parts.query, keep_blank_values=True)
        options = {name: values[-1] for name, values in given.items()}
        cluster = options.pop("cluster", None)
        secure = options.pop("secure", "0") in {"1", "true"}
        shards = options.pop("shards", "1")
        if options:
            msg = f"store: unknown option {min(options)!r}; there are cluster, shards and secure"
            raise SettingsError(msg)
        if cluster is not None and not re.fullmatch(r"[\w.-]+", cluster):
            raise SettingsError(f"store: {cluster!r} is not a cluster's name")
        database = unquote(parts.path.strip("/")) or "default"
        if not re.fullmatch(r"[1-9][0-9]{0,3}", shards) or int(shards) > SHARDS_MAX:
            raise SettingsError(f"store: shards={shards!r} is no number from 1 to {SHARDS_MAX}")
        if int(shards) > 1 and cluster is None:
            raise SettingsError(f"store: shards={shards} needs the cluster's name: cluster=NAME")
        if cluster is not None and not re.fullmatch(r"[\w.-]+", database):
            raise SettingsError(f"store: {database!r} is not a database's name on a cluster")
        dsn = f"{'https' if secure else 'http'}://{parts.netloc}/{database}"
        return cls("clickhouse", dsn, database, cluster, int(shards))


class Store:
    """Writes blocks and answers SQL. Thread-safe; one writer at a time, a few readers beside it."""

    def __init__(
        self,
        url: StoreUrl,
        *,
        retention_days: Mapping[str, int] | None = None,
        clock: Callable[[], float] = time.time,
        is_connected: bool = True,
        inserts: InsertLog | None = None,
        sharers: int = 1,
    ) -> None:
        """``clock``: unix seconds, by which the last minutes are held in memory.

        ``is_connected``: at once, so that a wrong address is known at once; else when it is used.
        ``inserts``: what all processes insert, as the one that owns the store logs it; ``sharers``:
        how many of them hold samples in memory.
        """
        self.url = url
        self.quarantine = Quarantine()
        """Where readers note stored things that they cannot use; a service sets its own."""
        self._retention_days = dict.fromkeys(RETAINED_TABLES, RETENTION_DAYS_DEFAULT)
        self._retention_days.update(retention_days or {})
        self._clock = clock
        self._late: LateNotes | None = None
        self._placement = Placement(url.cluster, url.shards, url.database)
        self._connected = self._connect(self._write_settings) if is_connected else None
        self._write_lock = threading.Lock()
        self._owner = OwnerClient(Path(url.socket), self._write_settings) if url.socket else None
        self.known = Known(
            self._load_recent,
            self._count_recent,
            is_alone=url.scheme == "chdb",
            inserts=inserts,
            sharers=sharers,
            now_ms=self.now_ms,
        )
        """What is in memory, as long as no insert contradicts it."""
        self.recent = self.known.recent
        self.touched_records = self.known.touched_records
        """When `collectives` were written to, by group of communicators."""
        self.touched_samples = self.known.touched_samples
        """When `samples` were written to; of the metrics that are watched alone."""
        self.damaged_reads = 0
        """Queries that met damaged data."""
        self._damaged_at: float | None = None
        self._stopper: Client | None = None
        self._stop_lock = threading.Lock()
        # Connected when they are needed: each asks the engine for all of its settings (40 ms).
        self._readers: queue.LifoQueue[Client | OwnerClient | None] = queue.LifoQueue()
        for _ in range(READERS_MAX):
            self._readers.put(None)

    def now_ms(self) -> int:
        """By this store's clock."""
        return round(self._clock() * 1000)

    def note_late_samples(self) -> None:
        """From now on: roll-ups are made of this store, and must learn of late samples."""
        self._late = LateNotes(self._clock)

    def kept_days(self, table: str) -> int:
        """Days that a table keeps its rows, by the settings that this was opened with."""
        return self._retention_days[table]

    @property
    def _writer(self) -> Client:
        """Used under the write lock."""
        if self._connected is None:
            self._connected = self._connect(self._write_settings)
        return self._connected

    @property
    def is_sharded(self) -> bool:
        """Whether samples that are inserted must say where their series stand."""
        return self._placement.is_sharded

    @property
    def is_owned_elsewhere(self) -> bool:
        """Whether another process of the service writes what several of them insert."""
        return self._owner is not None

    @property
    def placement(self) -> Placement:
        return self._placement

    @property
    def _write_settings(self) -> dict[str, str]:
        of_cluster = CLUSTER_WRITE_SETTINGS if self.url.cluster else {}
        of_shards = SHARD_READ_SETTINGS | SHARD_WRITE_SETTINGS if self.is_sharded else {}
        return WRITE_SETTINGS | of_cluster | of_shards

    @property
    def _read_settings(self) -> dict[str, str]:
        return READ_SETTINGS | (SHARD_READ_SETTINGS if self.is_sharded else {})

    def _connect(self, settings: Mapping[str, str]) -> Client:
        import clickhouse_connect  # noqa: PLC0415 - see above

        with opening_errors(self.url.shown):
            options = self._connect_options()
            client: Client = clickhouse_connect.get_client(
                dsn=self.url.dsn, settings=dict(settings), **options
            )
        version = tuple(int(part) for part in str(client.server_version).split(".")[:2])
        if version < VERSION_MIN:
            client.close()
            raise StoreError(
                f"ClickHouse {client.server_version} is too old: "
                f"{'.'.join(map(str, VERSION_MIN))} or later is needed"
            )
        return client

    def _connect_options(self) -> dict[str, Any]:
        if self.url.scheme == "chdb":
            return {"chdb_options": EMBEDDED_OPTIONS}
        # A session would make ClickHouse refuse two concurrent queries on one connection.
        options: dict[str, Any] = {"autogenerate_session_id": False}
        if self.url.socket:
            from api.data.store.unix_pool import unix_pool  # noqa: PLC0415 - see above

            # To pack what does not leave the machine costs more than to copy it.
            options |= {"pool_mgr": unix_pool(Path(self.url.socket)), "compress": False}
        return options

    def migrate(self) -> list[str]:
        """Bring tables and retention up to date; returns the migrations that were applied now.

        Raises StoreError for a cluster whose layout would make answers wrong.
        """
        with self._write_lock, store_errors("migration"):
            if self.url.cluster:
                check_cluster(self._ask_rows, self._placement)
            done = apply_migrations(
                lambda statement: _discard(self._writer.command(statement)),
                self._applied_migrations,
                lambda migration: _discard(
                    self._writer.insert(
                        "migrations",
                        [[migration.number, migration.name, migration.digest]],
                        column_names=["number", "name", "digest"],
                        settings=self.shard_settings(LEDGER_SHARD),
                    )
                ),
                self._placement,
                RETENTION_DAYS_DEFAULT,
            )
            if self.is_sharded:
                self._catch_up()
            for table, days in self._retention_days.items():
                self._retain(table, days)
        return done

    def _catch_up(self) -> None:
        """Make what a node lacks that was away for longer than the cluster's queue remembers."""
        if not tables_missing(self._ask_rows, self._placement):
            return
        for statement in statements_again(self._placement, RETENTION_DAYS_DEFAULT):
            self._writer.command(statement)
        if missing := tables_missing(self._ask_rows, self._placement):
            raise StoreError("; ".join(missing))

    def _ask_rows(self, sql: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Rows of a small answer, by the connection that writes."""
        answer = self._writer.query(sql, parameters=dict(parameters))
        return [dict(zip(answer.column_names, row, strict=True)) for row in answer.result_rows]

    def shard_settings(self, shard: int) -> dict[str, str] | None:
        """With which an insert into a table over all shards goes to this one."""
        return {"insert_shard_id": str(shard)} if self.is_sharded else None

    def migrate_only(self) -> None:
        """Bring tables up to date, and keep their retention as it is."""
        kept, self._retention_days = self._retention_days, {}
        try:
            self.migrate()
        finally:
            self._retention_days = kept

    def retention(self, table: str) -> int:
        """Days that a table keeps its rows."""
        with self._write_lock, store_errors("retention"):
            local = self._placement.local(table)
            created = str(self._writer.command(f"SHOW CREATE TABLE {local}"))
        found = _KEPT_DAYS.search(created)
        return int(found[1]) if found else RETENTION_DAYS_DEFAULT

    def statements(self, text: str) -> list[str]:
        """Statements with this store's engine and cluster in their blanks."""
        return self._placement.statements(text, RETENTION_DAYS_DEFAULT)

    def sync(self, table: str) -> None:
        """Wait until the replica that is asked has what was written to another one."""
        if self.url.cluster is not None:
            with self.holding_writes("wait for replicas") as client:
                local, on = self._placement.local(table), self._placement.on_cluster
                client.command(f"SYSTEM SYNC REPLICA {on if self.is_sharded else ''} {local}")

    def prepare_to_stay(self) -> None:
        """Give an embedded store's tables the settings of a service that runs for months, once.

        Apart from `migrate`: it takes as long as a fifth of that, and a store that lives for
        seconds (diagnose) has no use for it.
        """
        if self.url.scheme != "chdb":
            return
        self.remove_frozen()
        with self._write_lock, store_errors("preparation"):
            for table in RETAINED_TABLES:
                self._set_up(table)

    @contextlib.contextmanager
    def holding_writes(self, doing: str) -> Iterator[Client]:
        """The writer's connection, while no insert runs: for statements that change tables."""
        with self._write_lock, store_errors(doing):
            yield self._writer

    def remove_frozen(self) -> None:
        """Remove what a backup froze that was killed: it would keep merged parts for ever."""
        if self.folder is not None:
            for left in (self.folder / SHADOW).glob(f"{SHADOW_PREFIX}*"):
                shutil.rmtree(left, ignore_errors=True)

    @property
    def engine_version(self) -> str:
        """As 26.9.1.1."""
        with self.holding_writes("version") as client:
            return str(client.server_version)

    def migration(self) -> int:
        """The number of the last migration that was applied."""
        with self._write_lock, store_errors("migration"):
            return max(self._applied_migrations(), default=0)

    def _applied_migrations(self) -> dict[int, str]:
        ledger = self._writer.query("SELECT number, digest FROM migrations FINAL").result_rows
        return {int(number): str(digest) for number, digest in ledger}

    def _set_up(self, table: str) -> None:
        created = str(self._writer.command(f"SHOW CREATE TABLE {table}"))
        wanted = [f"{name} = {value}" for name, value in EMBEDDED_TABLE_SETTINGS.items()]
        missing = [setting for setting in wanted if setting not in created]
        if missing:
            self._writer.command(f"ALTER TABLE {table} MODIFY SETTING {', '.join(missing)}")

    def _retain(self, table: str, days: int) -> None:
        local = self._placement.local(table)
        created = str(self._writer.command(f"SHOW CREATE TABLE {local}"))
        current = _KEPT_DAYS.search(created)
        if current is None or int(current[1]) != days:
            column = EXPIRES_BY.get(table, "toDateTime(time)")
            on_cluster = self._placement.on_cluster
            self._writer.command(
                f"ALTER TABLE {local} {on_cluster} MODIFY TTL {column} + toIntervalDay({days})"
            )

    @contextlib.contextmanager
    def together(self) -> Iterator[Inserting]:
        """What takes the rows of a group, in their order; at the end all of them are written.

        Where another process owns the store it gets them as one request, and puts them together
        with those of others. Else they are written one after another, as they come.
        """
        if self._owner is None:
            yield self
            return
        group = Together()
        yield group
        if group.rows:
            with self._write_lock, store_errors(f"insert into {group.tables}"):
                self._send(self._owner, group)

    def _send(self, owner: OwnerClient, group: Together) -> None:
        with self._late_notes(group.times) as notes:
            first = Together()
            if notes:
                first.insert_arrow("rollup_late", late_rows(notes, is_rolled=False))
            rows, parts = first.rows + group.rows, first.parts + group.parts
            if first.length + group.length <= GATHER_BYTES_MAX:
                owner.insert(rows, parts)
                return
            for each, part in zip(rows, parts, strict=True):
                self._writer.raw_insert(
                    each.table,
                    each.columns,
                    part,
                    fmt=each.form,
                    transport_settings=headers_of(each.note),
                )

    def insert_samples(self, samples: WritableSamples) -> None:
        """Append a block of samples. When this returns, they survive a kill."""
        if self._owner is not None:
            with self.together() as group:
                group.insert_samples(samples)
            return
        parts = split_samples(samples, self.url.shards) if self.is_sharded else ((1, samples),)
        try:
            with self._write_lock, store_errors("insert into samples"):
                self._write_late((samples.metric, samples.time_ms))
                for shard, part in parts:
                    columns = part.to_block()
                    self._writer.raw_insert(
                        "samples",
                        [column.name for column in columns],
                        encode_block(columns),
                        settings=self.shard_settings(shard),
                        fmt="Native",
                    )
        finally:
            # After it, so that who notes the number reads the rows; and where it failed, too:
            # some of them may be there.
            self.known.note_samples(samples)
        self.recent.add(samples)

    def insert_arrow(self, table: str, rows: pa.Table, places: UInt32s | None = None) -> None:
        """Append rows of any types. When this returns, they survive a kill.

        ``places``: of rows that are of a series, where it stands (`api.data.store.shards`).
        """
        if self._owner is not None:
            with self.together() as group:
                group.insert_arrow(table, rows)
            return
        shards = self.url.shards
        parts = split_rows(table, rows, shards, places) if self.is_sharded else ((1, rows),)
        try:
            with self._write_lock, store_errors(f"insert into {table}"):
                if table == SAMPLES:
                    self._write_late(times_of(rows))
                for shard, part in parts:
                    self._writer.insert_arrow(table, part, settings=self.shard_settings(shard))
                if table == SERIES:
                    self.known.note_series(note_of(table, rows).names)
        finally:
            self._note_arrow(table, rows)
        if table == SAMPLES:
            self.recent.forget()

    def _note_arrow(self, table: str, rows: pa.Table) -> None:
        if table == SAMPLES:
            self.touched_samples.note_all()
        elif table == RECORDS:
            self.touched_records.note(*record_places(rows))

    def _write_late(self, times: tuple[UInt32s, Int64s]) -> None:
        """Before the samples: a question that sees them knows that roll-ups lack them."""
        with self._late_notes([times]) as notes:
            if notes:
                self._writer.insert_arrow("rollup_late", late_rows(notes, is_rolled=False))

    @contextlib.contextmanager
    def _late_notes(self, times: Sequence[tuple[UInt32s, Int64s]]) -> Iterator[list[Late]]:
        """Notes of samples that came late; taken again if they cannot be written."""
        late = self._late
        notes = [note for each in times for note in late.take(*each)] if late else []
        is_written = not notes
        try:
            yield notes
            is_written = True
        finally:
            if late and not is_written:
                late.forget()

    def execute(self, sql: str, parameters: Mapping[str, Any], settings: Mapping[str, str]) -> None:
        """A statement that fills one table from others, while inserts go on. Blocks."""
        own = ", ".join(f"{name} = '{value}'" for name, value in settings.items())
        with self._reader() as client, store_errors("statement"):
            client.command(f"{sql} SETTINGS {own}", dict(parameters))

    def query(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        tag: str = "",
        settings: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """Run one query; the engine fills ``{name:Type}`` in the SQL.

        `stop` finds the query by ``tag``; without one, by that of the errand that it is asked in
        (`api.base.errand`). ``settings`` are the engine's, for this query; they and
        the tag come from this program, never from a client. They are part of the SQL: given apart,
        they would be set and reset around the query, which takes longer than most queries.
        """
        errand = ERRAND.get()
        if errand is not None and not tag:
            tag = errand.begin(self.stop)
        own = {**(settings or {}), **({"log_comment": tag} if tag else {})}
        if own:
            sql += " SETTINGS " + ", ".join(f"{name} = '{value}'" for name, value in own.items())
        try:
            with self._reader() as client, store_errors("query"):
                answer: pa.Table = client.query_arrow(sql, bindable(parameters or {}))
                return answer
        except StoreError as error:
            if is_damage(error):
                self.damaged_reads += 1
                self._damaged_at = time.monotonic()
            raise

    def _load_recent(self, metrics: Sequence[int], after_ms: int) -> Samples:
        sql = f"SELECT metric, series, time, value FROM samples WHERE {RECENT_WHERE}"  # noqa: S608 - our words
        rows = self.query(sql, {"metrics": list(metrics), "after_ms": after_ms})
        metric, series, value = (rows[name].to_numpy() for name in ("metric", "series", "value"))
        return Samples(metric, series, rows["time"].to_numpy().view(np.int64), value)

    def _count_recent(self, metrics: Sequence[int], after_ms: int) -> dict[int, int]:
        sql = f"SELECT metric, count() AS n FROM samples WHERE {RECENT_WHERE} GROUP BY metric"  # noqa: S608 - our words
        rows = self.query(sql, {"metrics": list(metrics), "after_ms": after_ms})
        return dict(zip(rows["metric"].to_pylist(), rows["n"].to_pylist(), strict=True))

    @property
    def damage_age_s(self) -> float:
        """Seconds since a query last met damaged data; infinite: none has."""
        at = self._damaged_at
        return float("inf") if at is None else time.monotonic() - at

    @property
    def folder(self) -> Path | None:
        """Where an embedded store lies, this process' or another one's; None: it is a server's."""
        return Path(self.url.folder) if self.url.folder else None

    def stop(self, tag: str) -> None:
        """End every query with this tag, wherever it runs; it then raises StoreError."""
        with self._stop_lock, store_errors("stop"):
            self._stopper = self._stopper or self._connect(self._read_settings)
            on_cluster = self._placement.on_cluster
            self._stopper.command(
                f"KILL QUERY {on_cluster} WHERE Settings['log_comment'] = {{tag:String}} ASYNC",
                parameters={"tag": tag},
                # The cluster's queue takes it; to wait for every node would hold up the others.
                settings={"distributed_ddl_task_timeout": "0"} if on_cluster else None,
            )

    @contextlib.contextmanager
    def _reader(self) -> Iterator[Client | OwnerClient]:
        """Not used after a failure: chDB puts what the failed query had before the next answer."""
        try:
            client = self._readers.get(timeout=READER_WAIT_SECONDS)
        except queue.Empty:
            msg = f"{READERS_MAX} questions are running; none ended in {READER_WAIT_SECONDS:.0f} s"
            raise StoreBusy(msg) from None
        usable = None
        try:
            client = client or self._open_reader()
            yield client
            usable = client
        finally:
            if usable is None and client is not None:
                client.close()
            self._readers.put(usable)

    def _open_reader(self) -> Client | OwnerClient:
        if self.url.socket:
            return OwnerClient(Path(self.url.socket), self._read_settings)
        return self._connect(self._read_settings)

    def ping(self) -> None:
        self.query("SELECT 1")

    def close(self) -> None:
        with self._write_lock:
            if self._connected is not None:
                self._connected.close()
            if self._owner is not None:
                self._owner.close()
        with self._stop_lock:
            if self._stopper is not None:
                self._stopper.close()
        with contextlib.suppress(queue.Empty):
            while True:
                if client := self._readers.get_nowait():
                    client.close()


def _discard(_: object) -> None:
    """For statements whose answer is not needed."""


class Numbers:
    """Whole numbers of a parameter, which the driver takes as the text that they are.

    Of a list it looks at each number by itself: 12,000 series take a quarter of a second.

    >>> str(Numbers([3, 18446744073709551615]))
    '[3, 18446744073709551615]'
    """

    def __init__(self, values: list[int]) -> None:
        self._values = values

    def __str__(self) -> str:
        return str(self._values)


def bindable(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters as the driver binds them soonest."""

    def is_whole(value: Any) -> bool:  # noqa: ANN401 - what the driver takes
        return isinstance(value, list) and all(type(each) is int for each in value)

    return {name: Numbers(one) if is_whole(one) else one for name, one in parameters.items()}
