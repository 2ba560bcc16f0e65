"""The export's pieces: numbers that JSON does not have, and bounds that speak."""

import csv
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.base.errors import Problem
from api.data.export import (
    Chunk,
    CsvWriter,
    Pieces,
    check_bound,
    encode_arrow,
    encode_csv,
    encode_json,
    encode_ndjson,
    encode_parquet,
    number_text,
)
from api.http.routes.shared.exports import ExportFormat, negotiate


def chunk(*rows: tuple[int, int, float]) -> Chunk:
    series, times = [row[0] for row in rows], [row[1] for row in rows]
    values = [row[2] for row in rows]
    return Chunk(
        {one: {"__name__": "m", "n": str(one)} for one in (*series, 99)},
        pa.chunked_array([pa.array(series[:1], pa.uint64()), pa.array(series[1:], pa.uint64())]),
        pa.chunked_array([pa.array(times, pa.int64())]),
        pa.chunked_array([pa.array(values, pa.float64())]),
    )


def test_lines_hold_one_series_each() -> None:
    made = [chunk((1, 10, 0.5), (1, 20, float("nan")), (2, 10, float("-inf"))), chunk((3, 1, 1.0))]
    assert b"".join(encode_ndjson(iter(made))) == (
        b'{"labels":{"__name__":"m","n":"1"},"times_ms":[10,20],"values":[0.5,"NaN"]}\n'
        b'{"labels":{"__name__":"m","n":"2"},"times_ms":[10],"values":["-Inf"]}\n'
        b'{"labels":{"__name__":"m","n":"3"},"times_ms":[1],"values":[1.0]}\n'
    )
    assert encode_json(iter(made)).count(b"},{") == 2
    assert encode_json(iter([])) == b'{"items":[]}'


def test_arrow_streams_hold_all_chunks() -> None:
    pieces = list(encode_arrow(iter([chunk((1, 10, 0.5)), chunk((2, 5, 1.5), (2, 6, 2.5))])))
    table = pa.ipc.open_stream(b"".join(pieces)).read_all()
    assert table["series"].to_pylist() == [1, 2, 2]
    assert table["value"].to_pylist() == [0.5, 1.5, 2.5]
    assert table["labels"].to_pylist()[2] == '{"__name__":"m","n":"2"}'


def test_parquet_files_hold_all_chunks_and_may_be_empty() -> None:
    pieces = list(encode_parquet(iter([chunk((1, 10, 0.5)), chunk((2, 5, 1.5), (2, 6, 2.5))])))
    assert len([piece for piece in pieces if piece]) == 3, "it is sent as it is made"
    table = pq.read_table(pa.BufferReader(b"".join(pieces)))
    assert table["series"].to_pylist() == [1, 2, 2]
    assert table["value"].to_pylist() == [0.5, 1.5, 2.5]
    assert table["labels"].to_pylist()[2] == '{"__name__":"m","n":"2"}'
    assert table["time"].cast(pa.int64()).to_pylist() == [10, 5, 6]
    empty = pq.read_table(pa.BufferReader(b"".join(encode_parquet(iter([])))))
    assert (empty.num_rows, empty.column_names) == (0, ["series", "labels", "time", "value"])


def test_csv_has_a_sample_a_line_and_no_text_that_a_spreadsheet_runs() -> None:
    hostile = Chunk(
        {1: {"__name__": "m", "n": '=1+"2"'}},
        *(pa.chunked_array([pa.array([one], kind)]) for one, kind in (
            (1, pa.uint64()), (10, pa.int64()), (float("nan"), pa.float64())
        )),
    )  # fmt: skip
    made = [chunk((1, 10, 0.5), (2, 20, 1e300)), hostile]
    rows = list(csv.reader(io.StringIO(b"".join(encode_csv(iter(made))).decode())))
    assert rows[0] == ["series", "labels", "time", "value"]
    assert rows[1:3] == [
        ["1", '{"__name__":"m","n":"1"}', "1970-01-01 00:00:00.010Z", "0.5"],
        ["2", '{"__name__":"m","n":"2"}', "1970-01-01 00:00:00.020Z", "1e+300"],
    ]
    assert rows[3][3] == "nan"
    assert b"".join(encode_csv(iter([]))) == b'"series","labels","time","value"\n'
    sink = Pieces()
    with CsvWriter(sink, pa.schema([("host", pa.string())])) as writer:
        writer.write_batch(pa.record_batch([pa.array(["=cmd()", None, "a=b"])], names=["host"]))
    assert sink.take() == b'"host"\n"\'=cmd()"\n\n"a=b"\n'


def test_what_is_no_number_in_json_is_text() -> None:
    assert [number_text(float(text)) for text in ("nan", "inf", "-inf")] == ["NaN", "+Inf", "-Inf"]


def test_a_bound_names_itself() -> None:
    check_bound(10, 10, "RULE", "things")
    with pytest.raises(Problem) as caught:
        check_bound(11, 10, "RULE", "things")
    assert (caught.value.body.status, caught.value.body.rule) == (422, "RULE")
    assert "11 things; RULE is 10" in caught.value.body.detail


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", ExportFormat.JSON),
        ("*/*", ExportFormat.JSON),
        ("application/x-ndjson", ExportFormat.NDJSON),
        ("text/html,APPLICATION/X-NDJSON;q=0.5", ExportFormat.NDJSON),
        ("text/csv", ExportFormat.CSV),
        ("application/vnd.apache.arrow.stream", ExportFormat.ARROW),
        ("application/vnd.apache.parquet", ExportFormat.PARQUET),
    ],
)
def test_negotiation(accept: str, chosen: ExportFormat) -> None:
    assert negotiate(accept) is chosen
