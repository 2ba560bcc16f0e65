"""Profiler traces: hostile and odd ones, bounds, and the source that reads them in slices."""

import gzip
import io
import json
import os
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from collector.contract.collective import Collective, Operation, StepSpan
from collector.contract.communicator import group_communicator
from collector.contract.errors import ParseError
from collector.contract.model import Event, Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.formats import Origin, Record, kineto
from collector.formats.kineto import FORMAT, read_trace
from collector.parsing import intervals, kineto_operations
from collector.parsing.json_stream import PIECE_BYTES
from collector.sources import kineto as source_module
from collector.sources.kineto import KinetoSource, Settings
from tests.bench.traces import kineto_trace

BASE_NS = 1_700_000_000_000_000_000
INFO = {"backend": "nccl", "rank": 1, "world_size": 2}
ALL_REDUCE = {
    "Collective name": "allreduce",
    "In msg nelems": 8,
    "Out msg nelems": 8,
    "Group size": 2,
    "dtype": "Float",
    "Process Group Name": "0",
    "Process Group Ranks": "[0, 1]",
}
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"


def kernel(start: float, duration: float, name: str = "gemm", **args: object) -> dict[str, Any]:
    event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7}
    return {**event, "ts": start, "dur": duration, "args": args}


def step(number: int, start: float, duration: float) -> dict[str, Any]:
    name = f"ProfilerStep#{number}"
    return {**kernel(start, duration, name), "cat": "user_annotation", "pid": 9, "tid": 9}


def trace(events: Iterable[object], **members: object) -> bytes:
    usual = {"schemaVersion": 1, "distributedInfo": INFO, "baseTimeNanoseconds": BASE_NS}
    return json.dumps({**usual, **members, "traceEvents": list(events)}).encode()


def parse(content: bytes, name: str = "trace.json") -> list[Record | ParseError]:
    found: list[Record | ParseError] = []
    try:
        found.extend(FORMAT.parse(io.BytesIO(content), Origin(name, 5)))
    except ParseError as error:
        found.append(error)
    return found


def collectives(content: bytes, name: str = "trace.json") -> list[Collective]:
    return [each for each in parse(content, name) if isinstance(each, Collective)]


def phases(content: bytes) -> dict[str, list[tuple[int, int]]]:
    """Stretches of each phase, in microseconds after the base."""
    found: dict[str, list[tuple[int, int]]] = {}
    for each in parse(content):
        if isinstance(each, StepSpan):
            pair = ((each.start_ns - BASE_NS) // 1000, (each.end_ns - BASE_NS) // 1000)
            found.setdefault(each.phase, []).append(pair)
    return found


def errors(content: bytes, name: str = "trace.json") -> str:
    return "\n".join(str(each) for each in parse(content, name) if isinstance(each, ParseError))


# --- recognising ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "is_ours"),
    [
        (b'{"schemaVersion": 1, "deviceProperties": [', True),
        (b'\n {"traceEvents": [{"ph": "X", "cat": "kernel"', True),
        (b'[{"ph": "X", "cat": "kernel"', True),
        (b'[{"ph": "X", "cat": "v8", "name": "x"', False),
        (b'{"traceEvents": [{"ph": "X", "cat": "v8"', False),
        (b'{"traceEvents": [{"ph": "M", "name": "process_name"', False),
        (b'{"version": "2.4", "entries": []}', False),
        (b"", False),
    ],
)
def test_traces_of_other_programs_are_not_ours(head: bytes, *, is_ours: bool) -> None:
    assert FORMAT.recognises(head, Origin("x")) is is_ours


# --- operations ----------------------------------------------------------------------------------


def test_the_group_is_named_as_flight_recorder_names_it() -> None:
    (record,) = collectives(trace([kernel(10, 5, NCCL, **ALL_REDUCE)]))
    assert record.communicator == group_communicator("0", [1, 0])
    assert (record.rank, record.ranks, record.size_bytes) == (1, 2, 32)


def test_operations_are_numbered_in_order_of_time_from_the_first_step_on() -> None:
    events = [kernel(at, 1, NCCL, **ALL_REDUCE) for at in (300, 100, 200)]
    found = collectives(trace([*events, step(4, 0, 500)]))
    assert [each.entry_ns for each in found] == [BASE_NS + at * 1000 for at in (100, 200, 300)]
    assert [each.sequence for each in found] == [4_000_000, 4_000_001, 4_000_002]


def test_the_call_may_come_after_its_kernel() -> None:
    call = kernel(1, 1, "record_param_comms", **{**ALL_REDUCE, "External id": 5})
    events = [kernel(10, 5, NCCL, **{"External id": 5}), {**call, "cat": "cpu_op", "pid": 77}]
    (record,) = collectives(trace(events))
    assert (record.communicator, record.pid) == (group_communicator("0", [0, 1]), 77)


def test_an_operation_id_is_no_communicator() -> None:
    arguments = [{**ALL_REDUCE, "Seq": number, "Comms Id": number + 99} for number in range(2)]
    found = collectives(trace([kernel(at, 5, NCCL, **arguments[at]) for at in range(2)]))
    assert len({each.communicator for each in found}) == 1
    assert [each.sequence for each in found] == [0, 1]


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("_allgather_base", Operation.ALL_GATHER),
        ("reduce_scatter_tensor_coalesced", Operation.REDUCE_SCATTER),
        ("all_to_allv", Operation.ALL_TO_ALL),
        ("_broadcast_oop", Operation.BROADCAST),
        ("wait", Operation.ALL_REDUCE),  # from the kernel's name
    ],
)
def test_the_framework_s_name_comes_before_the_kernel_s(name: str, operation: Operation) -> None:
    (record,) = collectives(trace([kernel(1, 1, NCCL, **{**ALL_REDUCE, "Collective name": name})]))
    assert record.operation is operation


SEND_RECV = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)"


def annotation(cat: str, start: float, duration: float, name: str, **args: object) -> object:
    return {**kernel(start, duration, name, **args), "cat": cat}


@pytest.mark.parametrize(
    "annotated",
    [
        annotation("gpu_user_annotation", 99, 12, "nccl:all_to_all"),
        {**annotation("user_annotation", 3, 1, "nccl:all_to_all", **{"External id": 5}), "tid": 1},  # type: ignore[dict-item]
    ],
    ids=["on the GPU", "on the host"],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_an_all_to_all_is_known_by_the_stretch_around_it(
    annotated: object, *, is_first: bool
) -> None:
    """Before 2023 its kernel says no more than that it sends and receives."""
    ours = kernel(100, 10, SEND_RECV, **{"External id": 5})
    later = kernel(200, 10, SEND_RECV, **{"External id": 6})
    content = trace([annotated, ours, later] if is_first else [later, ours, annotated])
    assert [each.operation for each in collectives(content)] == [
        Operation.ALL_TO_ALL,
        Operation.SEND_RECV,
    ]
    assert "1 sends and receives in one kernel" in errors(content)


def test_a_stretch_of_another_stream_or_time_names_no_kernel() -> None:
    ours = kernel(100, 10, SEND_RECV)
    other = {**annotation("gpu_user_annotation", 99, 12, "nccl:all_to_all"), "tid": 8}  # type: ignore[dict-item]
    early = annotation("gpu_user_annotation", 90, 15, "nccl:all_to_all")
    for stretch in (other, early):
        (found,) = collectives(trace([stretch, ours]))
        assert found.operation is Operation.SEND_RECV


def test_an_unknown_rank_is_not_guessed() -> None:
    content = trace([kernel(1, 1, NCCL, **ALL_REDUCE)], distributedInfo={})
    assert collectives(content) == []
    assert "1 left out: neither distributedInfo nor the file's name" in errors(content)
    assert [each.rank for each in collectives(content, "rank_1.json")] == [1]


def test_a_rank_outside_the_group_is_no_member_of_it() -> None:
    arguments = {**ALL_REDUCE, "Process Group Ranks": "[5, 6]"}
    assert collectives(trace([kernel(1, 1, NCCL, **arguments)])) == []


def test_a_trace_without_a_base_has_no_times() -> None:
    content = trace([kernel(1, 1, NCCL, **ALL_REDUCE)], baseTimeNanoseconds=None)
    assert collectives(content) == []
    assert "baseTimeNanoseconds" in errors(content)


def test_too_many_operations_are_let_go_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_operations, "PENDING_MAX", 100)
    content = b"".join(kineto_trace(2, seed=3))
    found = collectives(content)
    assert len(found) > 100
    assert [each.sequence for each in found] == list(range(len(found)))
    assert [each.entry_ns for each in found] == sorted(each.entry_ns or 0 for each in found)


# --- phases --------------------------------------------------------------------------------------


def test_phases_cover_the_step_and_overlap_is_in_both() -> None:
    copy = {**kernel(700, 100, "Memcpy"), "cat": "gpu_memcpy"}
    events = [step(1, 0, 1000), kernel(100, 300), kernel(300, 300, NCCL, **ALL_REDUCE), copy]
    assert phases(trace(events)) == {
        "": [(0, 1000)],
        "gpu.compute": [(100, 400)],
        "gpu.communication": [(300, 600)],
        "gpu.copy": [(700, 800)],
        "gpu.idle": [(0, 100), (600, 700), (800, 1000)],
    }


def test_work_is_cut_at_the_ends_of_steps_and_small_gaps_are_closed() -> None:
    events = [step(1, 0, 1000), step(2, 1000, 1000), kernel(900, 300), kernel(1220, 80)]
    found = phases(trace(events))
    assert found["gpu.compute"] == [(900, 1000), (1000, 1300)]


def test_many_stretches_are_shown_coarser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "INTERVALS_MAX", 64)
    events = [kernel(at * 200, 100) for at in range(1000)]
    content = trace([step(1, 0, 200_000), *events])
    found = phases(content)
    assert len(found["gpu.compute"]) <= 64
    busy = sum(end - start for phase in ("compute", "idle") for start, end in found[f"gpu.{phase}"])
    assert busy == 200_000
    (event,) = [each for each in parse(content) if isinstance(each, Event)]
    assert int(event.attributes["resolution_ns"]) >= 100_000


def test_a_trace_that_is_cut_has_no_idle_time() -> None:
    content = trace([step(1, 0, 1000), kernel(10, 20, NCCL, **ALL_REDUCE), kernel(100, 300)])
    found = parse(content[:-20])
    assert [each.phase for each in found if isinstance(each, StepSpan)] == [""]
    assert len([each for each in found if isinstance(each, Collective)]) == 1
    assert str(found[-1]) == f"cut off at byte {len(content) - 20}"


# --- hostile -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"dur": -1},
        {"dur": 1e15},
        {"ts": -1},
        {"ts": 1e18},
        {"ts": None},
        {"ts": "now"},
        {"args": {**ALL_REDUCE, "In msg nelems": "many"}},
        {"args": {**ALL_REDUCE, "Process Group Name": 10**30}},
        {"name": 7},
        {"cat": []},
    ],
)
def test_an_impossible_event_is_named_and_the_rest_used(changed: dict[str, Any]) -> None:
    good = kernel(10, 5, NCCL, **ALL_REDUCE)
    content = trace([good, {**good, **changed}, {**good, "ts": 20}])
    assert [each.sequence for each in collectives(content)] == [0, 1]
    assert errors(content)


def test_absurd_sizes_and_numbers_are_unknown() -> None:
    arguments = {**ALL_REDUCE, "In msg nelems": 2**62, "Seq": -5, "Src Rank": 10**18}
    (record,) = collectives(trace([kernel(1, 1, NCCL, **arguments)]))
    assert (record.size_bytes, record.sequence, record.peer) == (None, 0, None)


def test_many_errors_are_a_sum() -> None:
    content = trace([kernel(-1, 1)] * 1000)
    assert len(errors(content).splitlines()) == 21
    assert "980 more parts" in errors(content)


def test_a_trace_that_is_broken_all_over_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto, "BROKEN_MAX", 1000)
    good = json.dumps(kernel(10, 5, NCCL, **ALL_REDUCE)).encode()
    content = trace([])[:-2] + good + b",1" * 10**6 + b"," + good + b"]}"
    assert len(collectives(content)) == 1
    assert "BROKEN_MAX = 1000 parts are broken" in errors(content)


def test_a_trace_of_members_alone_is_given_up() -> None:
    members = b",".join([b'"a": 1'] * 10**5)
    assert "MEMBERS_MAX" in errors(b'{"schemaVersion": 1, ' + members + b"}")


def test_more_groups_than_there_can_be_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto_operations, "GROUPS_MAX", 3)
    arguments = [{**ALL_REDUCE, "Process Group Name": str(number)} for number in range(10)]
    content = trace([kernel(at, 1, NCCL, **arguments[at]) for at in range(10)])
    named = {each.communicator for each in collectives(content)}
    assert {group_communicator(str(number), [0, 1]) for number in range(3)} < named
    assert "7 left out: more than GROUPS_MAX = 3" in errors(content)


def test_a_large_trace_is_never_held() -> None:
    class Pieces:
        """The trace as it is made: it exists nowhere as a whole."""

        def __init__(self) -> None:
            self._pieces = kineto_trace(12, seed=1)
            self._data = b""

        def read(self, size: int, /) -> bytes:
            while len(self._data) < size and (piece := next(self._pieces, b"")):
                self._data += piece
            data, self._data = self._data[:size], self._data[size:]
            return data

    tracemalloc.start()
    try:
        found = [record is None for record in read_trace(Pieces(), Origin("x"))]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.count(True) > 10
    assert peak < 16 * PIECE_BYTES


# --- the source ----------------------------------------------------------------------------------


def make_source(**settings: Any) -> KinetoSource:  # noqa: ANN401 - whatever can be set
    return KinetoSource(Settings(directories=("/traces",), **settings))


def put(root: Path, name: str, content: bytes, *, age_seconds: float = 60) -> Path:
    path = root / "traces" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    age(path, age_seconds)
    return path


def age(path: Path, seconds: float) -> None:
    """Make the file look as if it was last changed this long ago."""
    changed_ns = Host().now_ns() - int(seconds * 1e9)
    os.utime(path, ns=(changed_ns, changed_ns))


def value(readings: list[Reading], metric: str) -> float:
    (sample,) = [r for r in readings if isinstance(r, Sample) and r.series.metric == metric]
    return sample.value


def count(readings: list[Reading]) -> int:
    return sum(isinstance(each, Collective) for each in readings)


def test_a_trace_is_read_once_and_again_when_it_is_rewritten(tmp_path: Path) -> None:
    content = trace([kernel(10, 5, NCCL, **ALL_REDUCE)])
    put(tmp_path, "rank1.json.gz", gzip.compress(content[:50]) + gzip.compress(content[50:]))
    host, source = Host(tmp_path), make_source()
    assert [count(list(source.read(host))) for _ in range(3)] == [1, 0, 0]
    put(tmp_path, "rank1.json.gz", gzip.compress(content), age_seconds=30)
    assert [count(list(source.read(host))) for _ in range(2)] == [1, 0]


def test_a_trace_that_is_being_written_waits_until_it_rests(tmp_path: Path) -> None:
    content = trace([kernel(10, 5, NCCL, **ALL_REDUCE)])
    put(tmp_path, "rank1.json", content[:-5], age_seconds=-5)
    host, source = Host(tmp_path), make_source()
    assert count(list(source.read(host))) == 0
    put(tmp_path, "rank1.json", content, age_seconds=-6)
    assert [count(list(source.read(host))) for _ in range(2)] == [0, 1]


def test_old_traces_are_left_alone(tmp_path: Path) -> None:
    put(tmp_path, "rank1.json", trace([kernel(10, 5, NCCL, **ALL_REDUCE)]), age_seconds=9999)
    source = make_source()
    assert [count(list(source.read(Host(tmp_path)))) for _ in range(2)] == [0, 0]


def test_a_large_trace_is_read_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "SLICE_BYTES", 2 << 20)
    monkeypatch.setattr(source_module, "SLICE_RECORDS", 200)
    content = b"".join(kineto_trace(8, seed=2))
    put(tmp_path, "rank3.json", content)
    host, source = Host(tmp_path), make_source()
    reads = [list(source.read(host)) for _ in range(60)]
    records = [sum(not isinstance(r, Sample | Missing) for r in each) for each in reads]
    assert records[:2] == [0, 0]
    assert max(records) == 200
    assert sum(count(each) for each in reads) == len(collectives(content))
    backlog = [value(each, "fabric_step_profile_backlog_bytes") for each in reads]
    assert (backlog[0], backlog[-1]) == (len(content), 0)
    assert value(reads[-1], "fabric_step_profiles_total") == 1


def test_a_trace_that_goes_while_it_is_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "SLICE_BYTES", 1 << 20)
    path = put(tmp_path, "rank3.json", b"".join(kineto_trace(8, seed=2)))
    host, source = Host(tmp_path), make_source()
    list(source.read(host))
    path.unlink()
    put(tmp_path, "rank3.json", trace([]))
    absences = [each for each in source.read(host) if isinstance(each, Missing)]
    assert {each.reason for each in absences} <= {UnreadReason.ABSENT}
    assert value(list(source.read(host)), "fabric_step_profile_backlog_bytes") == 0


def test_what_unpacks_to_too_much_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "TRACE_BYTES_MAX", 1 << 20)
    bomb = trace([])[:-1] + b', "x": "' + b"x" * (8 << 20) + b'"}'
    put(tmp_path, "rank5.json.gz", gzip.compress(bomb))
    put(tmp_path, "rank0.json", trace([kernel(10, 5, NCCL, **ALL_REDUCE)]))
    readings = list(make_source().read(Host(tmp_path)))
    (detail,) = {each.detail for each in readings if isinstance(each, Missing)}
    assert "TRACE_BYTES_MAX" in detail
    assert count(readings) == 1


def test_what_was_read_is_remembered_over_a_restart(tmp_path: Path) -> None:
    put(tmp_path, "rank1.json", trace([kernel(10, 5, NCCL, **ALL_REDUCE)]))
    host, first, second = Host(tmp_path), make_source(), make_source()
    list(first.read(host))
    second.load_state({"read": [*first.save_state()["read"], 7, ["x", None, 1, 2, 3]]})
    assert count(list(second.read(host))) == 0
    second.load_state({"read": 5})
