"""Results of nccl-tests: rows of every age, secrets that stay inside, and the source over time."""

import io
import os
from pathlib import Path

import msgspec
import pytest

from collector.contract.errors import ParseError
from collector.contract.model import Event, Missing, Reading, Sample
from collector.doors.host import Host
from collector.formats import Origin, Record, nccl_tests
from collector.formats.nccl_tests import FORMAT, parse_row
from collector.sources import nccl_tests as source_module
from collector.sources.nccl_tests import SOURCE, Settings

HEADER = "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 1 minBytes 8\n"
DEVICES = "#  Rank  0 Group  0 Pid 1 on n0 device  0\n#  Rank  1 Group  0 Pid 2 on n0 device  1\n"
ROW = "1048576 262144 float sum -1 30.5 34.4 60.1 0 30.0 34.9 61.2 0\n"


def parse(content: str | bytes, name: str = "x") -> list[Record | ParseError]:
    data = content.encode() if isinstance(content, str) else content
    return list(FORMAT.parse(io.BytesIO(data), Origin(name, 5)))


def series(records: list[Record | ParseError]) -> list[dict[str, str]]:
    return [dict(each.series.labels) for each in records if isinstance(each, Sample)]


# --- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "first", "second"),
    [
        ("8 2 float sum -1 1.5 2 3 0 4 5 6 1", (1.5, 2, 3, 0), (4, 5, 6, 1)),
        ("8 2 float sum 1.5 2 3 0 4 5 6 1", (1.5, 2, 3, 0), (4, 5, 6, 1)),
        ("8 2 float 0 1.5 2 3 0 4 5 6 1", (1.5, 2, 3, 0), (4, 5, 6, 1)),
        ("8 2 float 1.5 2 3 0e+00 4 5 6 N/A", (1.5, 2, 3, None), (4, 5, 6, None)),
        ("8 2 float none -1 1e+06 0 0 N/A N/A N/A N/A N/A", (1e6, 0, 0, None), (None,) * 4),
        ("8 2 half sum -1 1 2 3 0 4 5 6 1 RING LL 32", (1, 2, 3, 0), (4, 5, 6, 1)),
    ],
)
def test_rows_of_every_age(
    row: str, first: tuple[float | None, ...], second: tuple[float | None, ...]
) -> None:
    assert [found[4:] for found in parse_row(row.split())] == [first, second]


@pytest.mark.parametrize(
    "row",
    [
        "x 2 float sum -1 1 2 3 0 4 5 6 1",
        "8 -2 float sum -1 1 2 3 0 4 5 6 1",
        "8 2 float sum -1 1 2 3 0 4 five 6 1",
        "8 2 float sum -1 nan 2 3 0 4 5 6 1",
        "8 2 float sum -1 1 2 3 0 4 5 6",
        "99999999999999999999 2 float sum -1 1 2 3 0 4 5 6 1",
    ],
)
def test_a_row_that_is_none_is_named(row: str) -> None:
    found = parse(HEADER + row + "\n" + ROW)
    assert [each.where for each in found if isinstance(each, ParseError)] == ["line 3"]
    assert len(series(found)) == 8


def test_the_ranks_and_the_operation_are_labels() -> None:
    labels = series(parse(HEADER + DEVICES + ROW))[0]
    assert labels == {
        "operation": "all_reduce",
        "ranks": "2",
        "size": "1MiB",
        "bytes": "1048576",
        "type": "float",
        "placement": "out_of_place",
    }


@pytest.mark.parametrize(
    ("text", "name", "operation"),
    [
        ("# nThread 1\n" + ROW, "all_gather.txt", "all_gather"),
        ("mpirun ./build/alltoall_perf -b 8\n# nThread 1\n" + ROW, "x", "all_to_all"),
        ("# nThread 1\n" + ROW, "x", "other"),
        ("# Collective test starting: hypercube_perf\n" + ROW, "all_reduce", "other"),
    ],
)
def test_the_operation_is_found_where_it_is_named(text: str, name: str, operation: str) -> None:
    assert series(parse(text, name))[0]["operation"] == operation


def test_sizes_are_one_rank_s_part_where_nccl_counts_so() -> None:
    gather = HEADER.replace("all_reduce", "all_gather") + DEVICES
    assert series(parse(gather + ROW))[0]["bytes"] == str(262144 * 4)
    unknown_type = gather + ROW.replace("262144 float", "0 float")
    assert series(parse(unknown_type))[0]["bytes"] == str(1048576 // 2)


def test_many_broken_rows_are_named_in_sum() -> None:
    found = parse(HEADER + "x 1 float sum -1 1 2 3 0 4 5 6 1\n" * 50)
    assert len(found) == nccl_tests.ERRORS_MAX + 1
    assert str(found[-1]) == "30 more rows not understood"


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "0: "])
def test_launchers_put_things_before_a_line(prefix: str) -> None:
    text = "".join(prefix + line for line in (HEADER + ROW).splitlines(keepends=True))
    assert FORMAT.recognises(text.encode(), Origin("x"))
    assert len(series(parse(text))) == 8


# --- JSON ----------------------------------------------------------------------------------------


def json(**changes: object) -> bytes:
    content = {
        "args": ["./all_reduce_perf"],
        "env": ["TOKEN=secret"],
        "config": {"minimum_bytes": 8, "maximum_bytes": 8, "devices": [{}, {}]},
        "results": [
            {"size": 8, "count": 2, "type": "float", "in_place": {"time": 2, "bus_bw": "nan"}}
        ],
    }
    return msgspec.json.encode(content | changes)


def test_the_environment_stays_inside() -> None:
    found = parse(json())
    assert [each for each in found if isinstance(each, Sample)] == found
    assert [each.value for each in found if isinstance(each, Sample)] == [2e-6]
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"results": []}',
        b'{"config": {}, "results": 3}',
        b'{"config": {}, "results": ' + b"[" * 100_000,
        b'{"config": {}, "results": [\xff]}',
        b'{"x": [' + b"0," * (nccl_tests.RESULT_VALUES_MAX + 1) + b"0]}",
    ],
)
def test_what_is_no_result_is_refused(content: bytes) -> None:
    with pytest.raises(ParseError):
        parse(content)


def test_a_file_over_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_tests, "RESULT_BYTES_MAX", 100)
    with pytest.raises(ParseError, match="RESULT_BYTES_MAX"):
        parse(json())


@pytest.mark.parametrize("result", [{"size": -1, "count": 0, "type": "float", "in_place": {}}, 3])
def test_a_result_that_is_none_gives_nothing(result: object) -> None:
    assert series(parse(json(results=[result]))) == []


# --- the source ----------------------------------------------------------------------------------


def read(source: SOURCE, root: Path) -> list[Reading]:
    host = Host(root)
    try:
        return list(source.read(host))
    finally:
        host.close()


def write(path: Path, text: str, changed: int) -> None:
    path.write_text(text)
    os.utime(path, (changed, changed))


def bus_bandwidth(readings: list[Reading]) -> float | None:
    for each in readings:
        if isinstance(each, Sample) and each.series.metric == nccl_tests.BUS:
            return each.value
    return None


def test_the_latest_file_counts_and_its_numbers_stay(tmp_path: Path) -> None:
    source = SOURCE(Settings(files=("/*.txt",)))
    write(tmp_path / "b.txt", HEADER + ROW, 100)
    write(tmp_path / "a.txt", HEADER + ROW.replace("60.1", "70"), 200)
    assert [bus_bandwidth(read(source, tmp_path)) for _ in range(2)] == [70e9, 70e9]
    (tmp_path / "a.txt").unlink()
    assert bus_bandwidth(read(source, tmp_path)) == 60.1e9
    (tmp_path / "b.txt").unlink()
    assert read(source, tmp_path) == []


def test_more_numbers_than_a_host_may_have_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "SERIES_MAX", 12)
    source = SOURCE(Settings(files=("/results/*.txt",)))
    (tmp_path / "results").mkdir()
    write(tmp_path / "results/a.txt", HEADER + ROW, 100)
    write(tmp_path / "results/b.txt", HEADER + ROW, 200)
    found = read(source, tmp_path)
    (missing,) = [each for each in found if isinstance(each, Missing)]
    assert missing.series.labels == (("file", "results/a.txt"),)
    assert bus_bandwidth(found) == 60.1e9


def test_debug_lines_in_a_result_are_events_once(tmp_path: Path) -> None:
    source = SOURCE(Settings(files=("/*.txt",)))
    line = (
        "n0:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 "
        "busId 60 commId 0xaa - Init COMPLETE\n"
    )
    write(tmp_path / "a.txt", HEADER + line + ROW, 100)
    assert [
        len([each for each in read(source, tmp_path) if isinstance(each, Event)]) for _ in range(2)
    ] == [1, 0]
