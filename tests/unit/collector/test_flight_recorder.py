"""Flight Recorder dumps: sizes, ranks and states by hand; hostile dumps; the source over time."""

import io
import os
import pickle
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collector.contract.collective import Collective, Operation, State
from collector.contract.errors import ParseError
from collector.contract.model import Event, Missing, Reading, Sample
from collector.doors.host import Host
from collector.formats import Origin, Record, flight_recorder
from collector.formats.flight_recorder import FORMAT
from collector.parsing.plain_pickle import INSTRUCTIONS_MAX
from collector.sources.flight_recorder import SOURCE, Settings

CREATED_NS = 1_700_000_000_000_000_000


def entry(**changes: object) -> dict[str, Any]:
    return {
        "record_id": 1,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 7,
        "p2p_seq_id": 0,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": CREATED_NS,
        "input_sizes": [[2, 3]],
        "input_dtypes": ["Float"],
        "output_sizes": [[8]],
        "output_dtypes": ["Half"],
        "state": "completed",
        "time_discovered_started_ns": CREATED_NS + 1,
        "time_discovered_completed_ns": CREATED_NS + 2,
        "is_p2p": False,
        **changes,
    }


def dump(*entries: object, ranks: str = "[0, 2, 4]", **changes: object) -> dict[str, Any]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
    return {"version": "2.10", "pg_config": config, "entries": list(entries), **changes}


def parse(content: object, name: str = "nccl_trace_rank_2") -> list[Record | ParseError]:
    data = content if isinstance(content, bytes) else pickle.dumps(content, protocol=2)
    return list(FORMAT.parse(io.BytesIO(data), Origin(name)))


def one(**changes: object) -> Collective:
    (found,) = [each for each in parse(dump(entry(**changes))) if isinstance(each, Collective)]
    return found


def errors(records: list[Record | ParseError]) -> list[str]:
    return [str(each) for each in records if isinstance(each, ParseError)]


# --- operations ----------------------------------------------------------------------------------


def test_an_operation_is_one_rank_s_part() -> None:
    assert one() == Collective(
        communicator=one().communicator,
        operation=Operation.ALL_REDUCE,
        sequence=7,
        rank=1,
        ranks=3,
        source="flight_recorder",
        time_ns=CREATED_NS + 2,
        entry_ns=CREATED_NS + 1,
        exit_ns=CREATED_NS + 2,
        enqueue_ns=CREATED_NS,
        size_bytes=24,
        timing=one().timing,
        state=State.COMPLETED,
    )


@pytest.mark.parametrize(
    ("name", "operation", "size"),
    [
        ("nccl:all_reduce", "all_reduce", 24),
        ("nccl:allreduce_coalesced", "all_reduce", 24),
        ("nccl:_all_gather_base", "all_gather", 24),
        ("nccl:all_gather_into_tensor_coalesced", "all_gather", 24),
        ("nccl:_reduce_scatter_base", "reduce_scatter", 16),
        ("xccl:all_to_all", "all_to_all", 24),
        ("nccl:_broadcast_oop", "broadcast", 24),
        ("nccl:_reduce_oop", "reduce", 24),
        ("nccl:gather", "gather", 24),
        ("nccl:scatter", "scatter", 16),
        ("nccl:recv 1<-0", "recv", 16),
        ("nccl:coalesced", "other", 24),
        ("new:thing", "other", 24),
    ],
)
def test_names_and_sizes_are_ncc_ls(name: str, operation: str, size: int) -> None:
    found = one(profiling_name=name)
    assert (found.operation.value, found.size_bytes) == (operation, size)


def test_a_coalesced_point_to_point_is_send_recv() -> None:
    assert one(profiling_name="nccl:coalesced", is_p2p=True).operation is Operation.SEND_RECV


def batch(number: int, **ends: object) -> list[dict[str, Any]]:
    """What PyTorch 2.11 records of one `batch_isend_irecv`: its members never end by themselves."""
    waits: dict[str, Any] = {"state": "scheduled", "time_discovered_completed_ns": None}
    waits |= {"time_discovered_started_ns": None, "p2p_seq_id": number}
    return [
        entry(profiling_name="nccl:send 1->2", is_p2p=True, **waits),
        entry(profiling_name="nccl:recv 1<-0", is_p2p=True, **waits),
        entry(profiling_name="nccl:coalesced", is_p2p=False, input_sizes=[], **(waits | ends)),
    ]


def test_a_batch_of_messages_ends_with_its_last_entry() -> None:
    ended = {"state": "completed", "time_discovered_started_ns": 7, "duration_ms": 3.5}
    ended["time_discovered_completed_ns"] = 9
    records = parse(dump(*batch(11, **ended), *batch(12)))
    messages = [each for each in records if isinstance(each, Collective)]
    assert [(each.sequence, str(each.state), each.exit_ns) for each in messages] == [
        (11, "completed", 9),
        (11, "completed", 9),
        (12, "scheduled", None),
        (12, "scheduled", None),
    ]
    assert {each.duration_ns for each in messages[:2]} == {3_500_000}
    assert "2 operations pending" in next(
        each.message for each in records if isinstance(each, Event)
    )


def test_what_ends_a_batch_of_another_number_or_group_ends_nothing_else() -> None:
    ended = {"state": "completed", "time_discovered_completed_ns": 9, "is_p2p": False}
    ended["profiling_name"] = "nccl:coalesced"
    message = batch(11)[0]
    of_others = [entry(**ended, p2p_seq_id=10), entry(**ended, collective_seq_id=3, p2p_seq_id=0)]
    messages = [each for each in parse(dump(message, *of_others)) if isinstance(each, Collective)]
    assert [str(each.state) for each in messages] == ["scheduled", "completed", "completed"]


def test_point_to_point_has_its_own_sequence_and_a_peer() -> None:
    found = one(profiling_name="nccl:send 1->2", is_p2p=True, p2p_seq_id=3)
    assert (found.sequence, found.peer) == (3, 2)
    assert one(profiling_name="nccl:send 2->4").peer == 2, "ranks of the job"
    assert one(profiling_name="nccl:send 1->9").peer is None


@pytest.mark.parametrize("absent", [None, 0])
def test_absent_times_are_none(absent: int | None) -> None:
    found = one(
        state="scheduled", time_discovered_started_ns=absent, time_discovered_completed_ns=absent
    )
    assert (found.entry_ns, found.exit_ns, found.time_ns) == (None, None, CREATED_NS)


def test_a_start_after_the_end_is_no_start() -> None:
    assert one(time_discovered_started_ns=CREATED_NS + 9).entry_ns is None


@pytest.mark.parametrize("duration", [float("nan"), float("inf"), -1.0, 1e300])
def test_a_senseless_duration_is_none(duration: float) -> None:
    assert one(duration_ms=duration).duration_ns is None


@pytest.mark.parametrize(
    "changes",
    [
        {"input_dtypes": ["Strange"]},
        {"input_dtypes": []},
        {"input_sizes": [[-1]]},
        {"input_sizes": [[1 << 62, 1 << 62]]},
        {"input_sizes": [[1] * 65]},
        {"input_sizes": "many"},
        {"input_sizes": [["1"]]},
        {"input_sizes": [[1]] * 5000, "input_dtypes": ["Float"] * 5000},
    ],
)
def test_a_size_that_is_not_known_is_none(changes: dict[str, object]) -> None:
    assert one(**changes).size_bytes is None


@pytest.mark.parametrize(
    "changes",
    [
        {"collective_seq_id": "7"},
        {"collective_seq_id": True},
        {"collective_seq_id": 1 << 63},
        {"state": "gone"},
        {"state": None},
        {"process_group": "0"},
        {"process_group": ("1", "unknown")},
        {"time_created_ns": 0},
        {"time_created_ns": 1.5},
        {"duration_ms": "long"},
        {"profiling_name": 3},
        {"pg_id": []},
    ],
)
def test_a_wrong_operation_is_named_and_the_next_is_used(changes: dict[str, object]) -> None:
    found = parse(dump(entry(**changes), entry(collective_seq_id=8)))
    assert [each.sequence for each in found if isinstance(each, Collective)] == [8]
    (error,) = errors(found)
    assert error.startswith("entry 0: ")


def test_many_wrong_operations_are_named_in_sum() -> None:
    found = errors(parse(dump(*[1] * 100)))
    assert len(found) == flight_recorder.ERRORS_MAX + 1
    assert found[-1] == "80 more parts not understood"


# --- whose dump it is ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["nccl_trace_rank_2", "_dump_2", "comm_lib_trace_rank_2.json", "x2.pkl", "rank-02"]
)
def test_the_rank_stands_in_the_name(name: str) -> None:
    (event,) = [each for each in parse(dump(), name) if isinstance(each, Event)][:1]
    assert event.labels == {"rank": "2"}


def test_without_a_name_the_groups_or_a_peer_give_the_rank() -> None:
    of_groups = dump(entry())
    of_groups["pg_config"]["5"] = {"name": "5", "desc": "", "ranks": "[4, 9]"}
    (found,) = [each for each in parse(of_groups, "dump") if isinstance(each, Collective)]
    assert found.rank == 2
    of_a_peer = dump(entry(profiling_name="nccl:send 1->2"))
    (found,) = [each for each in parse(of_a_peer, "dump") if isinstance(each, Collective)]
    assert found.rank == 1
    with pytest.raises(ParseError, match="does not end in a rank"):
        parse(dump(entry()), "dump")


def test_a_rank_outside_its_group_is_an_error() -> None:
    found = parse(dump(entry()), "nccl_trace_rank_3")
    assert errors(found)[0] == "entry 0: pg_config: rank 3 is not in its group '0'"


def test_groups_of_equal_name_and_other_ranks_differ() -> None:
    names = {
        each.communicator
        for ranks in ("[0, 2]", "[2, 4]")
        for each in parse(dump(entry(), ranks=ranks))
        if isinstance(each, Collective)
    }
    assert len(names) == 2


def test_a_group_without_a_usable_name_still_has_one() -> None:
    odd = dump(entry(process_group=("\x00" * 500, "")))
    odd["pg_config"] = {"\x00" * 500: {"ranks": "[2]"}}
    (found,) = [each for each in parse(odd) if isinstance(each, Collective)]
    assert found.communicator.isprintable()
    assert len(found.communicator) < 255


# --- hostile dumps -------------------------------------------------------------------------------


def test_a_pickle_that_executes_is_named_and_does_not(tmp_path: Path) -> None:
    marker = tmp_path / "executed"

    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, (f"touch {marker}",)

    data = pickle.dumps(dump(Hostile()), protocol=2)
    assert FORMAT.recognises(data, Origin("x"))
    with pytest.raises(ParseError, match="GLOBAL would execute code"):
        parse(data)
    assert not marker.exists()


def test_a_pickle_by_a_dump_s_name_is_looked_at() -> None:
    assert FORMAT.recognises(b"\x80\x02cos\nsystem\n.", Origin("nccl_trace_rank_3"))
    assert not FORMAT.recognises(b"\x80\x02cos\nsystem\n.", Origin("model.pkl"))


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 1_000_000,
        b'{"entries":' + b"[" * 100_000,
        b'{"entries": 3}',
        b'{"entries": [}',
        b"[]",
        b"",
        b"\x80\x02].",
        b'{"a": "\xff"}',
    ],
)
def test_what_is_no_dump_is_refused(data: bytes) -> None:
    with pytest.raises(ParseError):
        parse(data)


def test_json_of_too_many_values_is_refused_before_it_is_read() -> None:
    data = b"[" + b"0," * (INSTRUCTIONS_MAX + 1) + b"0]"
    with pytest.raises(ParseError, match="INSTRUCTIONS_MAX"):
        parse(data)


def test_a_dump_over_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_recorder, "DUMP_BYTES_MAX", 100)
    with pytest.raises(ParseError, match="DUMP_BYTES_MAX"):
        parse(dump(entry()))


def test_what_is_shared_a_million_times_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickle of some bytes may hold one list a million times; it is never walked through."""
    shape = [1] * 50_000
    shared = dump(entry(input_sizes=[shape] * 50_000, input_dtypes=["Float"] * 50_000))
    assert errors(parse(shared)) == []
    monkeypatch.setattr(flight_recorder, "ENTRIES_MAX", 10)
    found = parse(dump(*[entry()] * 25))
    assert sum(isinstance(each, Collective) for each in found) == 10
    assert errors(found) == ["entries: 15 beyond ENTRIES_MAX = 10 left out"]


def test_members_of_all_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_recorder, "MEMBERS_MAX", 5)
    many = dump()
    many["pg_config"] = {str(n): {"ranks": "[0, 1, 2]"} for n in range(3)}
    assert len(errors(parse(many))) == 2


def test_json_and_pickle_of_the_same_dump_agree() -> None:
    content = dump(entry(time_discovered_started_ns=None), entry(process_group=["0", "x"]))
    of_json = msgspec.json.encode(content).replace(b"null", b"0")
    assert parse(of_json) == parse(content)


# --- the source ----------------------------------------------------------------------------------


def write(path: Path, content: bytes, age_seconds: float = 60) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    changed = time.time() - age_seconds
    os.utime(path, (changed, changed))


def read(source: Any, root: Path) -> list[Reading]:  # noqa: ANN401 - a protocol with Any in it
    host = Host(root)
    try:
        return list(source.read(host))
    finally:
        host.close()


def count(readings: list[Reading]) -> int:
    return sum(isinstance(each, Collective) for each in readings)


def test_a_dump_is_read_once_and_again_when_it_changes(tmp_path: Path) -> None:
    source = SOURCE(Settings(directories=("/dumps",), job="j"))
    path = tmp_path / "dumps/nccl_trace_rank_2"
    write(path, pickle.dumps(dump(entry())))
    first = read(source, tmp_path)
    assert count(first) == 1
    assert {each.job for each in first if isinstance(each, Collective)} == {"j"}
    assert {each.labels["job"] for each in first if isinstance(each, Event)} == {"j"}
    assert count(read(source, tmp_path)) == 0
    write(path, pickle.dumps(dump(entry(), entry(collective_seq_id=8))))
    assert count(read(source, tmp_path)) == 2


def test_a_dump_that_is_being_written_waits_until_it_stands_still(tmp_path: Path) -> None:
    source = SOURCE(Settings(directories=("/dumps",)))
    whole = pickle.dumps(dump(entry()))
    path = tmp_path / "dumps/nccl_trace_rank_2"
    write(path, whole[:50], age_seconds=-60)
    assert read(source, tmp_path) == []
    write(path, whole, age_seconds=-61)
    assert read(source, tmp_path) == []
    assert count(read(source, tmp_path)) == 1, "it was the same twice"


def test_a_dump_that_is_gone_is_not_shown_any_more(tmp_path: Path) -> None:
    source = SOURCE(Settings(directories=("/dumps",)))
    path = tmp_path / "dumps/_dump_2"
    write(path, pickle.dumps(dump(entry(state="started"))))
    pending = [each for each in read(source, tmp_path) if isinstance(each, Sample)][-1]
    assert (pending.series.metric, pending.value) == (
        "fabric_job_flight_recorder_pending_operations",
        1,
    )
    path.unlink()
    assert [each.series.metric for each in read(source, tmp_path) if isinstance(each, Sample)] == [
        "fabric_job_flight_recorder_dumps_total",
        "fabric_job_flight_recorder_unparsed_total",
        "fabric_job_flight_recorder_files_left_out",
    ]


def test_links_and_large_files_are_left_alone(tmp_path: Path) -> None:
    source = SOURCE(Settings(directories=("/dumps",)))
    write(tmp_path / "secret", pickle.dumps(dump(entry())))
    (tmp_path / "dumps").mkdir()
    (tmp_path / "dumps/nccl_trace_rank_1").symlink_to("../secret")
    large = tmp_path / "dumps/nccl_trace_rank_2"
    write(large, b"")
    os.truncate(large, flight_recorder.DUMP_BYTES_MAX + 1)
    os.utime(large, (1, 1))
    (missing,) = [each for each in read(source, tmp_path) if isinstance(each, Missing)]
    assert ("rank", "2") in missing.series.labels
    assert "at most" in missing.detail


# --- cut off -----------------------------------------------------------------------------------


def many(count: int = 20) -> dict[str, Any]:
    return dump(*(entry(collective_seq_id=number) for number in range(count)), pg_status={})


@pytest.mark.parametrize("protocol", [2, 4, 5, "json"])
@pytest.mark.parametrize("share", [0.35, 0.5, 0.9, 0.999])
def test_a_dump_that_is_cut_off_is_read_as_far_as_it_goes(
    protocol: int | str, share: float
) -> None:
    whole = many()
    data = (
        msgspec.json.encode(whole)
        if protocol == "json"
        else pickle.dumps(whole, protocol=int(protocol))
    )
    records = parse(data[: int(len(data) * share)])
    numbers = [one.sequence for one in records if isinstance(one, Collective)]
    assert numbers == list(range(len(numbers)))
    assert 20 * (share - 0.35) - 1 <= len(numbers) <= 20
    assert len(numbers) < 20 or share > 0.9
    (event,) = [
        one for one in records if isinstance(one, Event) and one.kind == "flight_recorder_dump"
    ]
    assert event.attributes["cut"] == "1"
    assert event.labels["rank"] == "2"
    assert any(isinstance(one, ParseError) and "cut off" in one.detail for one in records)


def test_a_whole_dump_is_not_called_cut_off() -> None:
    events = [one for one in parse(many()) if isinstance(one, Event)]
    assert all("cut" not in event.attributes for event in events)
    assert not any(isinstance(one, ParseError) for one in parse(many()))


@pytest.mark.parametrize("data", [b'{"entries": [{"collective_seq_id"', b"\x80\x02", b"{", b"[}"])
def test_a_dump_of_which_nothing_is_left_is_an_error(data: bytes) -> None:
    with pytest.raises(ParseError):
        parse(data)
