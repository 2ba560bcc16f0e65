"""NCCL Inspector's logs: odd lines, and what the source counts."""

import io
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.contract.collective import Collective, Operation
from collector.contract.errors import ParseError
from collector.contract.model import Event, Missing, Reading, Sample, Series
from collector.doors.host import Host
from collector.formats import Origin
from collector.formats.nccl_inspector import FORMAT, SPEAKERS_MAX, Reader
from collector.parsing.lines import LINE_BYTES_MAX
from collector.sources import nccl_inspector
from collector.sources.nccl_inspector import (
    FORGET_SECONDS,
    REORDER_MAX,
    SOURCE,
    Gaps,
    NcclInspectorFiles,
    Settings,
    Thinner,
    parse_prom,
)
from tests.bench.records import inspector_line, inspector_lines
from tests.doubles.fakes import HandClock, HandHost
from tests.fixtures.trees import write_files
from tests.tools.captures import RINGS

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures/formats/nccl_inspector"
START_US = 1_700_000_000_000_000


def a_line(sequence: int, rank: int = 0, operation: str = "AllReduce") -> bytes:
    start_us = START_US + 20_000 * sequence
    return inspector_line(
        "0xd8b8a9eb12e214", (rank, 8), (operation, 1024, sequence), (start_us, start_us + 10_000)
    )


def parse(content: bytes) -> list[Any]:
    return list(FORMAT.parse(io.BytesIO(content), Origin("x", 1)))


# --- the format ----------------------------------------------------------------------------------


def test_a_generated_line_is_understood() -> None:
    event, record = parse(a_line(7, rank=3))
    assert isinstance(event, Event)
    assert isinstance(record, Collective)
    assert (record.rank, record.sequence, record.operation) == (3, 7, Operation.ALL_REDUCE)
    assert record.entry_ns == (START_US + 140_000) * 1000
    assert record.exit_ns == (START_US + 150_000) * 1000
    assert (record.duration_ns, record.size_bytes) == (10_000_000, 1024)


@pytest.mark.parametrize("depth", [100, 5_000, 1_000_000])
def test_deep_nesting_is_a_named_line_and_nothing_worse(depth: int) -> None:
    nested = b'{"other":' + b"[" * depth + b"]" * depth + b"}\n"
    found = parse(a_line(0) + nested + a_line(1))
    assert [type(each) for each in found] == [Event, Collective, ParseError, Collective]
    assert found[2].where == "line 2"


def test_a_line_that_is_too_long_is_named_and_the_rest_is_used() -> None:
    found = parse(a_line(0) + b"x" * (LINE_BYTES_MAX + (1 << 20)) + b"\n" + a_line(1))
    assert [type(each) for each in found] == [Event, Collective, ParseError, Collective]


def test_repeated_lines_give_repeated_records() -> None:
    records = [each for each in parse(a_line(0) * 3) if isinstance(each, Collective)]
    assert records[0] == records[1] == records[2]
    assert len(records) == 3


def test_two_processes_in_one_stream_keep_their_names() -> None:
    other = a_line(1).replace(b'"pid":1000', b'"pid":2000').replace(b'"node0"', b'"node9"')
    records = [
        each for each in parse(a_line(0) + other + a_line(2)) if isinstance(each, Collective)
    ]
    assert [(each.host, each.pid) for each in records] == [
        ("node0", 1000),
        ("node9", 2000),
        ("node0", 1000),
    ]


def test_a_flood_of_communicators_is_bounded() -> None:
    reader = Reader(1)
    for number in range(0, 3 * SPEAKERS_MAX, 64):
        lines = [
            a_line(0).replace(b"0xd8b8a9eb12e214", b"0x%014x" % each)
            for each in range(number, number + 64)
        ]
        reader.read(b"".join(lines))
    assert len(reader._speakers) <= SPEAKERS_MAX
    assert len(reader._current) <= SPEAKERS_MAX


def test_a_saved_marker_speaks_for_the_lines_behind_it() -> None:
    content = (FIXTURES / "shared_header_v44/input.node0-pid644.log").read_bytes()
    lines = content.splitlines(keepends=True)
    first, second = Reader(1), Reader(1)
    first.read(b"".join(lines[:4]))
    second.load(json.loads(json.dumps(first.save())))
    records = second.read(lines[4])
    assert [type(each) for each in records] == [Event, Collective]
    assert records[1].rank == 2  # type: ignore[union-attr]


def test_anything_else_is_no_marker() -> None:
    reader = Reader(1)
    reader.load({"header": 3})
    assert reader.save() == {}


def test_every_collective_of_the_captures_joins_over_its_ranks() -> None:
    if not RINGS.exists():
        pytest.skip("the captures are not here")
    for run in ("healthy", "net3"):
        joined: Counter[tuple[str, str, int]] = Counter()
        for path in sorted((RINGS / run / "inspector").glob("*.log")):
            for record in FORMAT.parse(io.BytesIO(path.read_bytes()), Origin(path.name, 1)):
                if isinstance(record, Collective):
                    joined[record.communicator, record.operation, record.sequence] += 1
        assert set(joined.values()) == {8}
        by_operation = Counter(operation for _, operation, _ in joined)
        assert by_operation == {"all_reduce": 95, "all_gather": 95}


# --- losses and thinning -------------------------------------------------------------------------


def lost(sequences: Iterator[int] | list[int]) -> int:
    gaps = Gaps(Series("fabric_collective_lost_total"))
    for sequence in sequences:
        gaps.see(sequence, pid=1)
    return gaps.lost


def test_nothing_is_lost_in_order_or_in_small_disorder_or_twice() -> None:
    assert lost(list(range(1000))) == 0
    assert lost([number ^ 3 for number in range(1000)]) == 0
    assert lost([each for number in range(500) for each in (number, number)]) == 0


def test_gaps_are_lost_once_they_are_old() -> None:
    assert lost([0, 1, 5, *range(6, 6 + REORDER_MAX)]) == 3
    assert lost([0, 1_000_000, *range(1_000_001, 1_000_001 + REORDER_MAX)]) == 999_999


def test_a_gap_of_any_size_takes_little_memory() -> None:
    gaps = Gaps(Series("fabric_collective_lost_total"))
    for sequence in (0, 1 << 40, (1 << 62)):
        gaps.see(sequence, pid=1)
    assert len(gaps.missing) <= 2 * REORDER_MAX


def test_another_process_starts_its_own_count() -> None:
    gaps = Gaps(Series("fabric_collective_lost_total"))
    gaps.see(500, pid=1)
    gaps.see(0, pid=2)
    gaps.see(1, pid=2)
    assert gaps.lost == 0


def record(sequence: int, time_ns: int) -> Collective:
    return Collective(
        communicator="0x1",
        operation=Operation.ALL_REDUCE,
        sequence=sequence,
        rank=0,
        ranks=8,
        source="nccl_inspector",
        time_ns=time_ns,
    )


def test_the_power_follows_the_rate_and_kept_sets_are_nested() -> None:
    thinner = Thinner(rows_per_second_max=100)
    powers, kept = [], []
    for second, rate in enumerate([50, 1000, 1000, 1000, 50, 50, 50, 50, 50, 50]):
        begin_ns = second * 1_000_000_000
        kept.append(
            [n for n in range(rate) if thinner.keeps(record(n, begin_ns + n * 10**9 // rate))]
        )
        thinner.adapt(1.0)
        powers.append(thinner.power)
    assert powers == [0, 4, 4, 4, 3, 2, 1, 0, 0, 0]
    assert kept[2] == list(range(0, 1000, 16))
    assert thinner.thinned == 2 * (1000 - 63) + (50 - 4) + (50 - 7) + (50 - 13) + (50 - 25)


def test_an_hour_read_at_once_is_not_thinned() -> None:
    thinner = Thinner(rows_per_second_max=100)
    for second in range(3600):
        thinner.keeps(record(second, second * 1_000_000_000))
    thinner.adapt(1.0)
    assert thinner.power == 0


# --- the source ----------------------------------------------------------------------------------


class Job:
    """A folder of logs that a test writes, and the source that reads it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = HandClock()
        self.host: Host = HandHost(root, self.clock)
        self.log = root / "logs/node0-pid1000.log"
        self.log.parent.mkdir()
        self.source = self.make()

    def make(self, **settings: Any) -> NcclInspectorFiles:  # noqa: ANN401 - any setting
        return SOURCE(Settings(directories=("/logs",), young_seconds=1e9, **settings))

    def append(self, content: bytes, log: Path | None = None) -> None:
        with (log or self.log).open("ab") as file:
            file.write(content)

    def read(self) -> list[Reading]:
        self.clock.advance(1)
        return list(self.source.read(self.host))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def value(readings: list[Reading], metric: str) -> float:
    return sum(
        each.value
        for each in readings
        if isinstance(each, Sample) and each.series.metric == f"fabric_collective_{metric}"
    )


def sequences(readings: list[Reading]) -> list[int]:
    return [each.sequence for each in readings if isinstance(each, Collective)]


def test_records_come_once_and_counters_stay(job: Job) -> None:
    job.append(a_line(0) + a_line(1)[:100])
    assert sequences(job.read()) == [0]
    job.append(a_line(1)[100:])
    readings = job.read()
    assert sequences(readings) == [1]
    again = job.read()
    assert sequences(again) == []
    assert value(again, "operations_total") == 2
    assert value(again, "bytes_total") == 2048
    assert value(again, "seconds_total") == pytest.approx(0.02)


def test_a_restart_goes_on_where_it_was(job: Job) -> None:
    job.append(a_line(0))
    job.read()
    state = job.source.save_state()
    job.append(a_line(1))
    job.source = job.make()
    job.source.load_state(state)
    assert sequences(job.read()) == [1]


def test_a_restart_knows_the_shared_header(job: Job) -> None:
    content = (FIXTURES / "shared_header_v44/input.node0-pid644.log").read_bytes()
    lines = content.splitlines(keepends=True)[2:]
    job.append(b"".join(lines[:2]))
    assert sequences(job.read()) == [20]
    state = json.loads(json.dumps(job.source.save_state()))
    job.append(b"".join(lines[2:]))
    job.source = job.make()
    job.source.load_state(state)
    assert sequences(job.read()) == [21, 5, 2]


def test_the_inspector_s_own_losses_replace_the_gaps(job: Job) -> None:
    content = (FIXTURES / "dump_stats_v42/input.node0-pid644.log").read_bytes()
    job.append(content)
    assert value(job.read(), "lost_total") == 12


def test_a_bad_line_is_counted_and_named_once_per_read(job: Job) -> None:
    job.append(a_line(0) + b"bad\nworse\n" + a_line(1))
    readings = job.read()
    assert sequences(readings) == [0, 1]
    (missing,) = [each for each in readings if isinstance(each, Missing)]
    assert "logs/node0-pid1000.log" in missing.detail
    assert value(readings, "unparseable_lines_total") == 2
    assert not [each for each in job.read() if isinstance(each, Missing)]


def test_too_many_operations_are_thinned_and_counted(job: Job) -> None:
    job.source = job.make(rows_per_second_max=10)
    lines = inspector_lines(4000, 1, seed=1)  # some 130 a second
    half = lines.index(b"\n", len(lines) // 2) + 1
    job.append(lines[:half])
    job.read()
    job.append(lines[half:])
    readings = job.read()
    power = value(readings, "kept_one_in")
    assert power > 1
    assert all(sequence % power == 0 for sequence in sequences(readings))
    assert value(readings, "operations_total") == 4000
    assert value(readings, "thinned_total") > 1000


def test_ranks_that_ended_are_forgotten(job: Job) -> None:
    job.append(a_line(0))
    job.read()
    job.clock.advance(FORGET_SECONDS + 1)
    assert value(job.read(), "operations_total") == 0


def test_series_are_bounded(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_inspector, "SERIES_MAX", 2)
    job.append(b"".join(a_line(0, rank) for rank in range(5)))
    readings = job.read()
    assert len(sequences(readings)) == 5
    assert value(readings, "operations_total") == 2
    assert value(readings, "left_out_total") == 3


@pytest.mark.parametrize(
    ("folder", "expected"), [("nccl-inspector-4711", "4711"), ("nccl-inspector-unknown-jobid", "")]
)
def test_the_folder_names_the_job(job: Job, folder: str, expected: str) -> None:
    log = job.root / "logs" / folder / "node0-pid1.log"
    log.parent.mkdir()
    job.append(a_line(0), log)
    job.source = SOURCE(Settings(directories=("/logs/*",), young_seconds=1e9))
    (record,) = [each for each in job.read() if isinstance(each, Collective)]
    assert record.job == expected


def test_a_log_from_a_container_is_of_this_host(job: Job) -> None:
    """Inside, the process has another number and calls its host `node0`; the kernel knows both."""
    write_files(
        job.root,
        {
            "proc/sys/kernel/hostname": "gpu-1",
            "proc/5000/status": "Name:\tpython\nNSpid:\t5000\t1000",
            "proc/5000/stat": "5000 (python) S 1 1 1 0 -1 0 0 0 3 0 100 20 0 0 20 0 7 0 9 0 0",
            "proc/5000/environ": "HOSTNAME=node0\0SLURM_JOB_ID=77\0",
        },
    )
    job.append(a_line(0) + a_line(0, rank=1))
    found = job.read()
    records = [each for each in found if isinstance(each, Collective)]
    assert [(each.host, each.pid, each.job) for each in records] == [
        ("", 5000, "77"),
        ("node1", 1001, ""),
    ]
    event, other = (each for each in found if isinstance(each, Event))
    assert (event.attributes["pid"], "host" in event.attributes) == ("5000", False)
    assert other.attributes["host"] == "node1"


def test_own_files_of_a_shared_folder(job: Job) -> None:
    hostname = job.root / "proc/sys/kernel/hostname"
    hostname.parent.mkdir(parents=True)
    hostname.write_text("node0\n", "utf-8")
    job.append(a_line(0))
    job.append(a_line(1), job.root / "logs/node1-pid5.log")
    job.source = job.make(files=("{host}-pid*.log",))
    assert sequences(job.read()) == [0]


# --- the Prometheus mode -------------------------------------------------------------------------


def test_a_stale_file_is_not_reported(job: Job) -> None:
    file = job.root / "logs/nccl_inspector_metrics_0a1b2c3d-0000-1111-2222-333344445555.prom"
    file.write_text('nccl_bus_bandwidth_gbs{nranks="8",collective="AllReduce"} 2\n', "utf-8")
    metric = "reported_bus_bandwidth_bytes_per_second"

    def at(seconds_ago: int) -> float:
        time_ns = job.clock.wall_ns - seconds_ago * 10**9
        os.utime(file, ns=(time_ns, time_ns))
        return value(job.read(), metric)

    assert at(10) == 2e9
    assert at(3600) == 0


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"nccl_bus_bandwidth_gbs 3\n",
        b'nccl_bus_bandwidth_gbs{collective="AllReduce"} nan\n',
        b'nccl_bus_bandwidth_gbs{collective="AllReduce} 3\n',
        b'nccl_bus_bandwidth_gbs{collective="AllReduce"} 3',
        b"\xff\xfe\x00" * 100 + b"\n",
        b"nccl_bus_bandwidth_gbs{" + b'a="' * 10_000 + b"\n",
    ],
)
def test_what_is_no_number_is_passed_over(text: bytes) -> None:
    assert parse_prom(text, "GPU-0") == []


def test_the_first_operation_that_switches_add_up_marks_its_communicator_once() -> None:
    def said(sequence: int, algorithm: str, nodes: int) -> bytes:
        line = json.loads(a_line(sequence))
        line["header"]["nnodes"] = nodes
        line["coll_perf"]["coll_algo"] = algorithm
        return json.dumps(line).encode() + b"\n"

    def marks(*lines: bytes) -> int:
        events = [each for each in parse(b"".join(lines)) if isinstance(each, Event)]
        return sum(each.attributes.get("in_network") == "1" for each in events)

    assert marks(said(0, "RING", 4), said(1, "TREE", 4), said(2, "NVLS_TREE", 4)) == 0
    assert marks(said(0, "NVLS", 1)) == 0
    assert marks(said(0, "NVLS", 4)) == 1
    assert marks(*(said(number, "COLLNET_DIRECT", 4) for number in range(3))) == 1


# --- the network proxy ---------------------------------------------------------------------------

STEP_TIMES = {
    "send": {"send_gpu_wait_ts": 110, "send_peer_wait_ts": 120, "send_wait_ts": 150},
    "recv": {"recv_wait_ts": 110, "recv_flush_wait_ts": 120, "recv_gpu_wait_ts": 150},
}


def marked(*traces: dict[str, Any], rank: int = 2) -> bytes:
    """A dump of v4.4: the marker, and its records (README of NVIDIA/nccl's Inspector)."""
    marker = {
        "header": {"id": "0x7f8c496ae9f661", "rank": rank, "n_ranks": 8, "nnodes": 8},
        "metadata": {"dump_timestamp_us": START_US, "hostname": "node0", "pid": 644},
        "dump_stats": {"coll_records": 0, "p2p_records": 0, "proxy_records": len(traces)},
    }
    lines = [marker, *({"proxy_trace": trace} for trace in traces)]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def trace(record_type: str, direction: str = "send", **more: object) -> dict[str, Any]:
    whose = {"record_type": record_type, "peer": 3, "direction": direction, "parent_type": "p2p"}
    return {**whose, **more}


def proxied(job: Job) -> dict[tuple[str, ...], float]:
    """By metric's end, peer, direction and phase."""
    found: dict[tuple[str, ...], float] = {}
    for each in job.read():
        if isinstance(each, Sample) and "_proxy_" in each.series.metric:
            labels = dict(each.series.labels)
            key = (each.series.metric.partition("_proxy_")[2], labels["peer"], labels["direction"])
            found[(*key, labels.get("phase", ""))] = each.value
    return found


def test_what_a_proxy_waited_for_is_counted_by_peer_and_never_twice(job: Job) -> None:
    """Flat: a step and its operation; nested: an operation with its steps, a segment before it."""
    step: dict[str, Any] = {"gpu_produce_us": 10, "peer_credit_us": 20, "wire_us": 30}
    job.append(
        marked(
            trace("proxy_step", **step),
            trace("proxy_op", trans_size_bytes=1000, n_steps_completed=1),
            trace("proxy_op_start"),
            trace("proxy_op_segment", steps=[step, step], trans_size_bytes=77),
            trace("proxy_op", steps=[{"wire_us": 5}], trans_size_bytes=2000, is_final=True),
        )
    )
    wait = "wait_seconds_total"
    assert proxied(job) == {
        ("operations_total", "3", "send", ""): 2,
        ("bytes_total", "3", "send", ""): 3000,
        (wait, "3", "send", "gpu"): pytest.approx(30e-6),
        (wait, "3", "send", "peer"): pytest.approx(60e-6),
        (wait, "3", "send", "wire"): pytest.approx(95e-6),
    }
    job.append(marked(trace("proxy_step", wire_us=5)))
    assert proxied(job)[wait, "3", "send", "wire"] == pytest.approx(100e-6)


@pytest.mark.parametrize(
    ("direction", "expected"),
    [("send", {"gpu": 10, "peer": 30, "wire": 7}), ("recv", {"wire": 10, "flush": 30, "gpu": 7})],
)
def test_before_durations_were_written_times_give_them(
    job: Job, direction: str, expected: dict[str, int]
) -> None:
    """And one that was not seen to begin, or ends before it, is left out."""
    times = {**STEP_TIMES[direction], "proxy_step_stop_ts": 157}
    late = {**STEP_TIMES[direction], "proxy_step_stop_ts": 90}
    last = {"proxy_step_stop_ts": 157}
    traces = [trace("proxy_step", direction, event_trace_ts=each) for each in (times, late, last)]
    job.append(marked(*traces))
    found = proxied(job)
    waits = {phase: wait * 1e6 for (_, _, _, phase), wait in found.items() if phase}
    ends = [*expected][2]
    doubled = {phase: us if phase == ends else 2 * us for phase, us in expected.items()}
    assert waits == pytest.approx(doubled)


def test_odd_proxies_are_not_counted_and_peers_are_bounded(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.formats.nccl_inspector.PEERS_MAX", 2)
    odd = [trace("proxy_step", "sideways", wire_us=5), {"record_type": "proxy_step"}]
    peers = [{**trace("proxy_step", wire_us=5), "peer": number} for number in range(4)]
    job.append(marked(*odd, *peers))
    readings = job.read()
    assert value(readings, "left_out_total") == 2
    waits = [one for one in readings if isinstance(one, Sample) and "_wait_" in one.series.metric]
    assert len(waits) == 2


def test_a_proxy_without_work_is_forgotten(job: Job) -> None:
    job.append(marked(trace("proxy_step", wire_us=5)))
    assert proxied(job)
    job.clock.advance(FORGET_SECONDS + 1)
    assert proxied(job) == {}
