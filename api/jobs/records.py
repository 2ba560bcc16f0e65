"""Records of one job from the store: a page, or a stream in bounded pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from api.base.limits import RECORDS_EXPORT_CHUNK, RECORDS_EXPORT_MAX
from api.base.positions import bad_position, read_position
from api.data.export import CsvWriter, Pieces, check_bound, new_parquet, new_stream
from api.data.inventory.repository import Inventory
from api.data.store.store import Store

_FINAL: Final = {
    # A record's day is not part of its key: one that began before midnight and is known to have
    # ended after it is one record all the same.
    "do_not_merge_across_partitions_select_final": "0"
}

_TIME: Final = "toUnixTimestamp64Nano({0}) AS {0}_ns"


class Table(msgspec.Struct, frozen=True):
    """A table of records: its key, in order, and what is shown of it."""

    name: str
    key: tuple[str, ...]
    key_types: tuple[str, ...]
    columns: tuple[str, ...]
    time: str


COLLECTIVES: Final = Table(
    "collectives",
    ("communicator", "operation", "sequence", "rank", "source", "host", "pid"),
    ("String", "String", "UInt64", "UInt32", "String", "String", "UInt32"),
    (
        "communicator", "operation", "sequence", "rank", "ranks", "source", "host", "pid",
        *(_TIME.format(name) for name in ("time", "entry", "exit", "enqueue")),
        "duration_ns", "size_bytes", "peer", "algorithm", "protocol", "timing", "state",
    ),
    "time",
)  # fmt: skip

STEPS: Final = Table(
    "steps",
    ("job", "step", "rank", "phase", "start", "source", "host", "pid"),
    ("String", "UInt64", "Int32", "String", "Int64", "String", "String", "UInt32"),
    (
        "job", "step", "rank", "phase", _TIME.format("start"), _TIME.format("end"),
        "source", "host", "pid",
    ),
    "start",
)  # fmt: skip

Key = tuple[str | int, ...]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A query for records: conditions with placeholders, and their parameters."""

    table: Table
    conditions: tuple[str, ...]
    parameters: dict[str, Any]

    def page(self, store: Store, after: Key | None, limit: int) -> list[dict[str, Any]]:
        """Records by key: those after one, at most `limit`, repeats read once."""
        rows: list[dict[str, Any]] = self._ask(store, after, limit).to_pylist()
        return rows

    def tables(self, store: Store) -> Iterator[pa.Table]:
        count = self.count(store)
        check_bound(count, RECORDS_EXPORT_MAX, "RECORDS_EXPORT_MAX", "records match")
        return self._pieces(store)

    def _pieces(self, store: Store) -> Iterator[pa.Table]:
        after: Key | None = None
        while True:
            rows = self._ask(store, after, RECORDS_EXPORT_CHUNK)
            yield rows
            if rows.num_rows < RECORDS_EXPORT_CHUNK:
                return
            after = key_of(self.table, rows.slice(rows.num_rows - 1).to_pylist()[0])

    def count(self, store: Store) -> int:
        where = " AND ".join(self.conditions)
        sql = f"SELECT count() AS n FROM {self.table.name} WHERE {where}"  # noqa: S608 - ours
        return int(store.query(sql, self.parameters)["n"][0].as_py())

    def _ask(self, store: Store, after: Key | None, limit: int) -> pa.Table:
        table, parameters = self.table, dict(self.parameters)
        conditions = list(self.conditions)
        if after is not None:
            names = [f"after_{place}" for place in range(len(after))]
            parameters.update(zip(names, after, strict=True))
            marks = [
                mark(name, kind, column)
                for name, kind, column in zip(names, table.key_types, table.key, strict=True)
            ]
            conditions.append(f"({', '.join(table.key)}) > ({', '.join(marks)})")
        sql = (
            f"SELECT {', '.join(table.columns)} FROM {table.name} FINAL "  # noqa: S608 - ours
            f"WHERE {' AND '.join(conditions)} ORDER BY {', '.join(table.key)} LIMIT {limit}"
        )
        return store.query(sql, parameters, settings=_FINAL)


def mark(name: str, kind: str, column: str) -> str:
    """A placeholder for a part of a key; a time is given in nanoseconds."""
    placeholder = f"{{{name}:{kind}}}"
    return f"fromUnixTimestamp64Nano({placeholder})" if column == "start" else placeholder


def key_of(table: Table, row: Mapping[str, Any]) -> Key:
    return tuple(row.get(name, row.get(f"{name}_ns")) for name in table.key)


def decode_position(table: Table, text: str) -> Key:
    kinds = [str if kind == "String" else int for kind in table.key_types]
    key: list[str | int] = read_position(text, list[str | int])
    if [type(part) for part in key] != kinds:
        raise bad_position(text)
    limits = {"UInt64": 1 << 64, "UInt32": 1 << 32, "Int32": 1 << 31, "Int64": 1 << 63}
    for part, kind in zip(key, table.key_types, strict=True):
        if isinstance(part, int) and not -1 <= part < limits[kind]:
            raise bad_position(text)
    return tuple(key)


# --- which records are a job's ------------------------------------------------------------------


def within(table: Table, from_ms: int, to_ms: int) -> tuple[list[str], dict[str, Any]]:
    condition = (
        f"{table.time} BETWEEN fromUnixTimestamp64Milli({{from_ms:Int64}}) "
        f"AND fromUnixTimestamp64Milli({{to_ms:Int64}})"
    )
    return [condition], {"from_ms": from_ms, "to_ms": to_ms}


def collectives_of(
    inventory: Inventory,
    job: str,
    from_ms: int,
    to_ms: int,
    *,
    communicator: str | None = None,
    operation: str | None = None,
    rank: int | None = None,
) -> Question:
    conditions, parameters = within(COLLECTIVES, from_ms, to_ms)
    names = inventory.jobs.communicator_names(job)
    if communicator is not None:
        names = [name for name in names if name == communicator]
    parameters |= {"communicators": names, "job": job}
    conditions.append("communicator IN {communicators:Array(String)}")
    conditions.append("job IN ('', {job:String})")
    if shared := sorted(set(inventory.jobs.shared_communicators(job)) & set(names)):
        # Two jobs have a communicator of this name; their hosts distinguish them.
        parameters |= {"shared": shared, "hosts": inventory.jobs.hosts(job)}
        conditions.append(
            "(communicator NOT IN {shared:Array(String)} OR host IN {hosts:Array(String)})"
        )
    if operation is not None:
        parameters["operation"] = operation
        conditions.append("operation = {operation:String}")
    if rank is not None:
        parameters["rank"] = rank
        conditions.append("rank = {rank:UInt32}")
    return Question(table=COLLECTIVES, conditions=tuple(conditions), parameters=parameters)


def steps_of(
    job: str,
    processes: Mapping[tuple[str, int], int],
    from_ms: int,
    to_ms: int,
    *,
    rank: int | None = None,
    phase: str | None = None,
) -> Question:
    """The query for a job's steps; ``processes`` are its ranks by host and process id."""
    conditions, parameters = within(STEPS, from_ms, to_ms)
    parameters |= {"job": job, "processes": list(processes)}
    known = "(host, pid) IN {processes:Array(Tuple(String, UInt32))}" if processes else "0"
    conditions.append(f"(job = {{job:String}} OR (job = '' AND {known}))")
    if phase is not None:
        parameters["phase"] = phase
        conditions.append("phase = {phase:String}")
    if rank is not None:
        own = [process for process, number in processes.items() if number == rank]
        parameters |= {"rank": rank, "own": own}
        unmarked = "(host, pid) IN {own:Array(Tuple(String, UInt32))}" if own else "0"
        conditions.append(f"(rank = {{rank:Int32}} OR (rank = -1 AND {unmarked}))")
    return Question(table=STEPS, conditions=tuple(conditions), parameters=parameters)


# --- streams ------------------------------------------------------------------------------------


def encode_ndjson(tables: Iterator[pa.Table]) -> Iterator[bytes]:
    encoder = msgspec.json.Encoder()
    for rows in tables:
        if rows.num_rows:
            yield encoder.encode_lines(rows.to_pylist())


def encode_arrow(tables: Iterator[pa.Table]) -> Iterator[bytes]:
    """An Arrow IPC stream with a record batch for each piece."""
    return encode_columns(tables, new_stream)


def encode_parquet(tables: Iterator[pa.Table]) -> Iterator[bytes]:
    """A Parquet file with a row group for each piece."""
    return encode_columns(tables, new_parquet)


def encode_csv(tables: Iterator[pa.Table]) -> Iterator[bytes]:
    return encode_columns(tables, CsvWriter)


def encode_columns(
    tables: Iterator[pa.Table], new_writer: Callable[[Pieces, pa.Schema], Any]
) -> Iterator[bytes]:
    sink = Pieces()
    writer: Any = None
    for rows in tables:
        plain = plain_texts(rows)
        if writer is None:
            writer = new_writer(sink, plain.schema)
        for batch in plain.combine_chunks().to_batches():
            writer.write_batch(batch)
        yield sink.take()
    writer.close()
    yield sink.take()


def plain_texts(rows: pa.Table) -> pa.Table:
    """The rows with texts as texts: the engine's dictionaries change from piece to piece."""
    fields: Sequence[pa.Field] = [
        pa.field(field.name, pa.string(), field.nullable)
        if pa.types.is_dictionary(field.type)
        else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))
