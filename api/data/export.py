"""Raw samples out of the store, a bounded piece at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Self

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from api.base.errors import Problem
from api.base.limits import EXPORT_SAMPLES_MAX, EXPORT_SERIES_CHUNK, EXPORT_SERIES_MAX
from api.data.selectors import Condition, Selector
from api.data.store.store import Store
from collector.contract.errors import StoreError
from collector.contract.identity import METRIC_LABEL, metric_id

CHUNK_SAMPLES = 1_000_000
"""About as many samples are in memory at once: 24 MB."""


class Chunk(msgspec.Struct, frozen=True):
    """Some series and their samples: rows in order of series and time."""

    labels: dict[int, dict[str, str]]
    series: pa.ChunkedArray
    time_ms: pa.ChunkedArray
    value: pa.ChunkedArray


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """A planned export: the series with their labels, the range, the number of samples."""

    labels: dict[int, dict[str, str]]
    from_ms: int
    to_ms: int
    samples: int

    def chunks(self, store: Store) -> Iterator[Chunk]:
        series = sorted(self.labels)
        if not series:
            return
        share = CHUNK_SAMPLES * len(series) // max(1, self.samples)
        step = max(1, min(EXPORT_SERIES_CHUNK, share))
        for start in range(0, len(series), step):
            some = series[start : start + step]
            metrics = sorted({metric_id(self.labels[one][METRIC_LABEL]) for one in some})
            rows = store.query(
                """
                SELECT series, toUnixTimestamp64Milli(time) AS time_ms, value
                FROM samples FINAL
                WHERE metric IN {metrics:Array(UInt32)} AND series IN {series:Array(UInt64)}
                  AND time BETWEEN fromUnixTimestamp64Milli({from_ms:Int64})
                               AND fromUnixTimestamp64Milli({to_ms:Int64})
                ORDER BY series, time
                """,
                {"metrics": metrics, "series": some, "from_ms": self.from_ms, "to_ms": self.to_ms},
            )
            labels = {one: self.labels[one] for one in some}
            yield Chunk(labels, rows["series"], rows["time_ms"], rows["value"])


def plan_export(
    store: Store, selectors: list[Selector], from_ms: int, to_ms: int, samples_max: int | None
) -> Export:
    """Find the series and count their samples; a Problem if there are too many of either."""
    condition = Condition()
    matches = " OR ".join(f"({condition.matches(selector)})" for selector in selectors)
    where = f"{condition.days(from_ms, to_ms)} AND ({matches})"
    found = ask(
        store,
        f"SELECT series, any(metric_name) AS name, any(labels) AS pairs FROM series "  # noqa: S608 - placeholders only
        f"WHERE {where} GROUP BY series LIMIT {EXPORT_SERIES_MAX + 1}",
        condition.parameters,
    )
    check_bound(found.num_rows, EXPORT_SERIES_MAX, "EXPORT_SERIES_MAX", "series match")
    labels = {
        row["series"]: {METRIC_LABEL: row["name"], **dict(row["pairs"])}
        for row in found.to_pylist()
    }
    begin, end = (condition.bind(moment, "Int64") for moment in (from_ms, to_ms))
    counted = ask(
        store,
        f"SELECT count() AS samples FROM samples WHERE "  # noqa: S608 - placeholders only
        f"series IN (SELECT series FROM series WHERE {where}) "
        f"AND time BETWEEN fromUnixTimestamp64Milli({begin}) AND fromUnixTimestamp64Milli({end})",
        condition.parameters,
    )
    count = int(counted["samples"][0].as_py())
    if samples_max is not None:
        check_bound(
            count,
            samples_max,
            "EXPORT_JSON_SAMPLES_MAX",
            "samples match; ask for ndjson, arrow or parquet",
        )
    check_bound(count, EXPORT_SAMPLES_MAX, "EXPORT_SAMPLES_MAX", "samples match")
    return Export(labels=labels, from_ms=from_ms, to_ms=to_ms, samples=count)


def ask(store: Store, sql: str, parameters: dict[str, Any]) -> pa.Table:
    """Raises Problem for a pattern that the engine cannot compile: that is the client's mistake."""
    try:
        return store.query(sql, parameters)
    except StoreError as error:
        if "CANNOT_COMPILE_REGEXP" in str(error):
            raise Problem(400, "not a selector", str(error)) from error
        raise


def check_bound(count: int, bound: int, rule: str, what: str) -> None:
    if count > bound:
        detail = f"{count} {what}; {rule} is {bound}. Narrow the selector or the range."
        raise Problem(422, "too much at once", detail, rule=rule)


def encode_series(chunk: Chunk) -> list[bytes]:
    """An object for each series; NaN and the infinities as the strings that Prometheus uses."""
    return [
        msgspec.json.encode(
            {
                "labels": chunk.labels[series],
                "times_ms": times,
                "values": [v if math.isfinite(v) else number_text(v) for v in values],
            }
        )
        for series, times, values in by_series(chunk)
    ]


def encode_json(chunks: Iterator[Chunk]) -> bytes:
    return b'{"items":[' + b",".join(s for chunk in chunks for s in encode_series(chunk)) + b"]}"


def encode_ndjson(chunks: Iterator[Chunk]) -> Iterator[bytes]:
    for chunk in chunks:
        if lines := encode_series(chunk):
            yield b"\n".join([*lines, b""])


def number_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"


def by_series(chunk: Chunk) -> Iterator[tuple[int, list[int], list[float]]]:
    """Each series of the chunk with its times and values; the rows are in order of series."""
    encoded = pc.run_end_encode(chunk.series.combine_chunks())
    start = 0
    for end, series in zip(encoded.run_ends.to_pylist(), encoded.values.to_pylist(), strict=True):
        length = end - start
        yield (
            series,
            chunk.time_ms.slice(start, length).to_pylist(),
            chunk.value.slice(start, length).to_pylist(),
        )
        start = end


ARROW_SCHEMA = pa.schema(
    [
        ("series", pa.uint64()),
        ("labels", pa.dictionary(pa.int32(), pa.string())),
        ("time", pa.timestamp("ms", "UTC")),
        ("value", pa.float64()),
    ]
)
"""``labels`` is a JSON object, kept once a series and batch."""


class Pieces:
    """A file to write to whose content is taken away piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.closed = False

    def write(self, piece: bytes) -> int:
        """Keep a piece; pyarrow calls this."""
        self._pieces.append(bytes(piece))
        return len(piece)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        self.closed = True

    def take(self) -> bytes:
        taken = b"".join(self._pieces)
        self._pieces.clear()
        return taken


def new_stream(sink: Pieces, schema: pa.Schema) -> Any:  # noqa: ANN401 - pyarrow has no types
    """A writer of an Arrow IPC stream."""
    return pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), schema)


def new_parquet(sink: Pieces, schema: pa.Schema) -> Any:  # noqa: ANN401
    """A writer of a Parquet file. A batch is a row group: the file is sent as it is made."""
    return pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression="zstd")


FORMULA = r"^([=+\-@\t\r])"
"""A spreadsheet runs a text that begins so; names of hosts and jobs come from outside."""


class CsvWriter:
    """A writer of CSV as pyarrow's writers are; a value that is not known is an empty cell."""

    def __init__(self, sink: Pieces, schema: pa.Schema) -> None:
        self._schema = pa.schema(
            [pa.field(one.name, pa.string()) if is_text(one.type) else one for one in schema]
        )
        self._writer = pcsv.CSVWriter(pa.PythonFile(sink, mode="w"), self._schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        columns = [
            pc.replace_substring_regex(column.cast(pa.string()), FORMULA, r"'\1")
            if is_text(column.type)
            else column
            for column in batch.columns
        ]
        self._writer.write_batch(pa.record_batch(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_dictionary(kind))


def encode_csv(chunks: Iterator[Chunk]) -> Iterator[bytes]:
    return encode_columns(chunks, CsvWriter)


def encode_arrow(chunks: Iterator[Chunk]) -> Iterator[bytes]:
    return encode_columns(chunks, new_stream)


def encode_parquet(chunks: Iterator[Chunk]) -> Iterator[bytes]:
    return encode_columns(chunks, new_parquet)


def encode_columns(
    chunks: Iterator[Chunk], new_writer: Callable[[Pieces, pa.Schema], Any]
) -> Iterator[bytes]:
    sink = Pieces()
    with new_writer(sink, ARROW_SCHEMA) as writer:
        for chunk in chunks:
            writer.write_batch(batch_of(chunk))
            yield sink.take()
    yield sink.take()


def batch_of(chunk: Chunk) -> pa.RecordBatch:
    series = chunk.series.combine_chunks()
    codes = series.dictionary_encode()
    texts = [
        msgspec.json.encode(chunk.labels[one], order="sorted").decode()
        for one in codes.dictionary.to_pylist()
    ]
    columns = [
        series,
        pa.DictionaryArray.from_arrays(codes.indices, pa.array(texts, pa.string())),
        chunk.time_ms.combine_chunks().cast(pa.timestamp("ms", "UTC")),
        chunk.value.combine_chunks(),
    ]
    return pa.record_batch(columns, schema=ARROW_SCHEMA)
