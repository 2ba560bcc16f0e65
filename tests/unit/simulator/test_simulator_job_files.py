"""What simulated jobs write, read by the production sources and parsers."""

import io
import json
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from api.jobs.facts import facts_of
from collector.agent.settings import AgentSettings
from collector.contract.collective import Collective, Operation, State, StepSpan, bus_bytes
from collector.contract.communicator import communicator_rings, communicator_trees
from collector.contract.errors import ParseError
from collector.contract.model import Event, Missing, Reading, Sample
from collector.formats import Origin, Record
from collector.formats.flight_recorder import FORMAT as FLIGHT_RECORDER
from collector.formats.nccl_debug import FORMAT as NCCL_DEBUG
from collector.formats.openmetrics import FORMAT as OPENMETRICS
from collector.sources import discover
from simulator.interfaces.flight_recorder import FlightRecorderDumps
from simulator.interfaces.machine_tree import MachineTree
from simulator.interfaces.nccl_debug import NcclDebugLogs
from simulator.interfaces.run_folder import JobFiles, RunFolder, agent_settings, host_places
from simulator.pattern import Algorithm
from simulator.snapshot import Happening, Snapshot
from simulator.topology.model import Fabric
from tests.doubles.fakes import HandHost
from tests.stands.diagnosing import report_of
from tests.worlds.simulated import START_UNIX_NS, make_topology
from tests.worlds.simulated_jobs import (
    FIRST_PID,
    JOB,
    make_block,
    make_busy_snapshot,
    make_hang,
    make_job,
    make_reduction,
    make_step,
)

TOPOLOGY = make_topology(hosts=4, nics=2)
HOST = 1
SOURCES = discover()
US = 1000


def to_ns(time_s: float) -> int:
    return START_UNIX_NS + int(time_s * 1e9)


def close_to(time_ns: int | None, time_s: float) -> bool:
    """Whether a time of a file is this one, to the microsecond that files have."""
    return time_ns is not None and abs(time_ns - to_ns(time_s)) <= US


class Tree:
    """The trees of all hosts, and an agent's sources on one of them."""

    def __init__(self, folder: Path) -> None:
        self.machines = MachineTree(folder, TOPOLOGY)
        self.files = JobFiles(TOPOLOGY, host_places(folder, TOPOLOGY))
        self.root = self.machines.root(HOST)
        self.host = HandHost(self.root)
        self.host.clock.wall_ns = 1  # files are young
        sources = tomllib.loads(agent_settings(self.root))["sources"]
        self.sources = {
            name: SOURCES[name](msgspec.convert(sources[name], SOURCES[name].Settings))
            for name in sources
        }

    def write(self, snapshot: Snapshot) -> None:
        self.files.write(snapshot)

    def read(self, name: str) -> list[Reading]:
        return list(self.sources[name].read(self.host))


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    made = Tree(tmp_path)
    made.machines.start(make_busy_snapshot(TOPOLOGY))
    yield made
    made.host.close()


def collectives(readings: list[Reading]) -> list[Collective]:
    assert not [each for each in readings if isinstance(each, Missing)]
    return [each for each in readings if isinstance(each, Collective)]


def parse(format_: Any, path: Path) -> list[Record]:  # noqa: ANN401 - a format
    records = list(format_.parse(io.BytesIO(path.read_bytes()), Origin(path.name, 1)))
    assert not [each for each in records if isinstance(each, ParseError)]
    return records


# --- NCCL Inspector ------------------------------------------------------------------------------


def test_inspector_gives_back_every_collective_to_the_microsecond(tree: Tree) -> None:
    block = make_reduction(TOPOLOGY)
    tree.write(make_busy_snapshot(TOPOLOGY))
    found = {record.communicator: record for record in collectives(tree.read("nccl_inspector"))}
    assert len(found) == TOPOLOGY.gpus_per_host
    for unit, communicator in enumerate(block.communicators):
        record = found[communicator]
        assert (record.rank, record.ranks, record.job) == (HOST, 4, JOB)
        assert (record.operation, record.sequence) == (Operation.ALL_REDUCE, 41)
        assert record.size_bytes == block.size_bytes
        assert record.pid == FIRST_PID + 7 * int(block.members[unit, HOST])
        entry_s, exit_s = block.entry_s[unit, HOST], block.exit_s[unit, HOST]
        assert close_to(record.entry_ns, entry_s)
        assert close_to(record.exit_ns, exit_s)
        assert record.duration_ns == pytest.approx((exit_s - entry_s) * 1e9, abs=2 * US)


def test_inspector_writes_lines_as_the_plugin_does(tree: Tree) -> None:
    tree.write(make_busy_snapshot(TOPOLOGY))
    path = tree.root / f"var/log/nccl/nccl-inspector-{JOB}/node0001-pid{FIRST_PID + 14}.log"
    real = (
        '{"header":{"id":"0x1","comm_name":"unknown","rank":0,"n_ranks":8,"nnodes":8},'
        '"metadata":{"inspector_output_format_version":"v4.0","git_rev":"unknown",'
        '"rec_mechanism":"nccl_profiler_interface","dump_timestamp_us":1,"hostname":"node0",'
        '"pid":1123},"coll_perf":{"coll":"AllReduce","coll_sn":25,"coll_msg_size_bytes":8388608,'
        '"coll_exec_time_us":12723,"coll_timing_source":"kernel_gpu","coll_algobw_gbs":0.659326,'
        '"coll_busbw_gbs":1.153821,"event_trace_sn":{"coll_start_sn":1,"coll_stop_sn":2,'
        '"kernel_events":[{"channel_id":0,"kernel_start_sn":4,"kernel_stop_sn":6,'
        '"kernel_record_sn":5}]},"event_trace_ts":{"coll_start_ts":1,"coll_stop_ts":1,'
        '"kernel_events":[{"channel_id":0,"kernel_start_ts":1,"kernel_stop_ts":2,'
        '"kernel_record_ts":2}]}}}'
    )
    line = path.read_text("utf-8").splitlines()[0]
    assert keys(json.loads(line)) == keys(json.loads(real))
    performance = json.loads(line)["coll_perf"]
    whole = bus_bytes(Operation.ALL_REDUCE, 1 << 28, 4) / performance["coll_exec_time_us"] / 1e3
    assert performance["coll_busbw_gbs"] == pytest.approx(whole, rel=1e-5)


def keys(value: object) -> object:
    """The names in a JSON value in their order, without what they stand for."""
    if isinstance(value, dict):
        return [(name, keys(each)) for name, each in value.items()]
    return keys(value[0]) if isinstance(value, list) else type(value)


def test_inspector_tells_the_time_of_the_host(tree: Tree) -> None:
    offset_s = np.zeros(TOPOLOGY.hosts)
    offset_s[HOST] = 0.25
    tree.write(make_busy_snapshot(TOPOLOGY, clock_offset_s=offset_s))
    record = collectives(tree.read("nccl_inspector"))[0]
    assert close_to(record.entry_ns, make_reduction(TOPOLOGY).entry_s[0, HOST] + 0.25)


def test_inspector_does_not_know_of_what_has_not_ended(tree: Tree) -> None:
    block = make_reduction(TOPOLOGY)
    block.exit_s[0, HOST] = np.nan
    tree.write(make_busy_snapshot(TOPOLOGY, collectives=[block]))
    found = collectives(tree.read("nccl_inspector"))
    assert [record.communicator for record in found] == [block.communicators[1]]


def test_inspector_logs_grow_and_the_agent_follows(tree: Tree) -> None:
    tree.write(make_busy_snapshot(TOPOLOGY))
    assert len(collectives(tree.read("nccl_inspector"))) == TOPOLOGY.gpus_per_host
    tree.write(make_busy_snapshot(TOPOLOGY, collectives=[make_reduction(TOPOLOGY, sequence=42)]))
    found = collectives(tree.read("nccl_inspector"))
    assert [record.sequence for record in found] == [42] * TOPOLOGY.gpus_per_host


def test_an_exchange_of_two_ranks_is_point_to_point(tree: Tree) -> None:
    pair = make_block(
        np.array([[2, 4]], dtype=np.int32),
        Operation.SEND_RECV,
        algorithm=Algorithm.DIRECT,
        communicators=("0x55",),
        entry_s=np.array([[59.0, 59.1]]),
        exit_s=np.array([[59.5, 59.5]]),
    )
    tree.write(make_busy_snapshot(TOPOLOGY, collectives=[pair]))
    (record,) = collectives(tree.read("nccl_inspector"))
    assert (record.operation, record.rank, record.peer) == (Operation.SEND_RECV, 0, 1)
    assert close_to(record.entry_ns, 59.0)


# --- steps ---------------------------------------------------------------------------------------


def test_steps_and_phases_come_back_with_their_rank(tree: Tree) -> None:
    tree.write(make_busy_snapshot(TOPOLOGY))
    readings = tree.read("steps")
    spans = [each for each in readings if isinstance(each, StepSpan)]
    block = make_step(TOPOLOGY)
    ranks = (2, 3)
    assert {(span.rank, span.phase) for span in spans} == {
        (rank, phase) for rank in ranks for phase in ("", "data", "forward", "backward")
    }
    for span in spans:
        assert span.rank is not None
        assert (span.job, span.step) == (JOB, 3)
        start_s, end_s = block.phases.get(span.phase, (block.start_s, block.end_s))
        assert close_to(span.start_ns, start_s[span.rank])
        assert close_to(span.end_ns, end_s[span.rank])
    assert {span.pid for span in spans} == {FIRST_PID + 7 * rank for rank in ranks}


def test_the_agent_knows_whose_marks_they_are_and_sees_the_end(tree: Tree) -> None:
    tree.write(make_busy_snapshot(TOPOLOGY))
    assert [each for each in tree.read("steps") if isinstance(each, Sample)]
    # The agent sees the end at once only if the process began at the time in the file.
    ended = make_job(TOPOLOGY, is_running=False)
    tree.machines.update(make_busy_snapshot(TOPOLOGY, time_s=61.0, jobs=[ended]))
    assert not [each for each in tree.read("steps") if isinstance(each, Sample)]


# --- NCCL's debug lines --------------------------------------------------------------------------


@pytest.mark.parametrize("fabric", Fabric)
def test_debug_lines_tell_rings_trees_and_devices(tmp_path: Path, fabric: Fabric) -> None:
    topology = make_topology(fabric, hosts=5, nics=2)
    logs = NcclDebugLogs(topology, lambda *_: tmp_path)
    snapshot = make_busy_snapshot(topology, jobs=[make_job(topology)])
    logs.write(snapshot)
    size = (tmp_path / "node0002.log").stat().st_size
    logs.write(snapshot)
    assert (tmp_path / "node0002.log").stat().st_size == size, "a job introduces itself once"
    records = [each for path in sorted(tmp_path.iterdir()) for each in parse(NCCL_DEBUG, path)]
    events = [each for each in records if isinstance(each, Event)]
    data, tensor = f"0xda{1:012x}", f"0x7e{3:012x}"
    rings = communicator_rings(events)
    assert set(rings) == set(make_job(topology).communicators)
    assert rings[data] == [[0, 1, 2, 3, 4]] * 2
    assert rings[tensor] == [[0, 1]] * 2
    # The second tree is the first one shifted, because five hosts have no middle.
    first, second = communicator_trees(events)[data]
    assert first == {0: None, 1: 2, 2: 4, 3: 2, 4: 0}
    assert second == {1: None, 2: 3, 3: 0, 4: 3, 0: 1}
    of_rank = {
        (each.labels["communicator"], each.labels["rank"]): each
        for each in events
        if "communicator" in each.labels
    }
    attributes = of_rank[data, "2"].attributes
    assert (attributes["host"], attributes["pid"]) == ("node0002", str(FIRST_PID + 7 * 5))
    assert (attributes["devices"], attributes["nodes"], attributes["nvml_device"]) == (
        "mlx5_1",
        "5",
        "1",
    )
    assert (attributes["bus_id"], attributes["ring_00"]) == ("0000:31:00.0", "1,3")
    assert sum("communicator" in each.labels for each in events) == len(of_rank)


def test_debug_lines_tell_where_switches_add_up(tmp_path: Path) -> None:
    topology = make_topology(Fabric.INFINIBAND, hosts=5, nics=2)
    data = f"0xda{1:012x}"
    job = replace(make_job(topology), in_network=frozenset({data}))
    NcclDebugLogs(topology, lambda *_: tmp_path).write(make_busy_snapshot(topology, jobs=[job]))
    events = [
        each
        for path in sorted(tmp_path.iterdir())
        for each in parse(NCCL_DEBUG, path)
        if isinstance(each, Event) and "communicator" in each.labels
    ]
    marked = {
        each.labels["communicator"] for each in events if each.attributes.get("in_network") == "1"
    }
    assert marked == {data}
    assert facts_of(events).in_network == {data}


def test_the_agent_finds_the_debug_lines(tree: Tree) -> None:
    tree.write(make_busy_snapshot(TOPOLOGY))
    events = [each for each in tree.read("nccl_debug") if isinstance(each, Event)]
    assert {event.attributes["pid"] for event in events} == {
        str(FIRST_PID + 7 * rank) for rank in (2, 3)
    }


# --- Flight Recorder -----------------------------------------------------------------------------

MISSING = 2
"""The rank that never launches; it is rank HOST of the first data-parallel group."""


def find_culprits(records: list[Collective]) -> set[int]:
    """Members of one group that hold the others up, as the group's ranks.

    A member that alone is still in an older operation than the others did not finish it; else a
    member without a pending operation never launched it.
    """
    pending: dict[int, int] = {}
    for record in records:
        if record.state is not State.COMPLETED:
            pending[record.rank] = min(record.sequence, pending.get(record.rank, 1 << 62))
    oldest = {rank for rank in pending if pending[rank] == min(pending.values())}
    everyone = set(range(records[0].ranks))
    return oldest if len(oldest) < len(pending) else everyone - set(pending)


def test_dumps_name_the_rank_that_never_launched(tmp_path: Path) -> None:
    dumps = FlightRecorderDumps(TOPOLOGY, lambda *_: tmp_path)
    hang = make_hang(TOPOLOGY, MISSING)
    dumps.write(make_busy_snapshot(TOPOLOGY, time_s=120.0, dumps=[hang]))
    paths = sorted(tmp_path.iterdir())
    assert len(paths) == TOPOLOGY.gpus
    groups: dict[str, list[Collective]] = {}
    for path in paths:
        for record in parse(FLIGHT_RECORDER, path):
            if isinstance(record, Collective):
                groups.setdefault(record.communicator, []).append(record)
    stuck = [group for group in groups.values() if find_culprits(group) != set(range(4))]
    (group,) = stuck
    assert find_culprits(group) == {HOST}
    states = sorted((each.rank, each.sequence, each.state) for each in group)
    assert [state for rank, _, state in states if rank == HOST] == [State.COMPLETED]
    assert {sequence for _, sequence, _ in states} == {42, 43}
    assert {each.size_bytes for each in group} == {1 << 28}
    assert close_to(group[0].enqueue_ns, hang.blocks[0].entry_s[0, 0])


def test_a_rank_that_alone_does_not_finish_is_named(tmp_path: Path) -> None:
    dumps = FlightRecorderDumps(TOPOLOGY, lambda *_: tmp_path)
    hang = make_hang(TOPOLOGY, MISSING)
    first, second = hang.blocks
    first.exit_s[0, 3] = np.nan
    second.entry_s[0, :] = 59.9
    dumps.write(make_busy_snapshot(TOPOLOGY, time_s=120.0, dumps=[hang]))
    records = [each for path in sorted(tmp_path.iterdir()) for each in parse(FLIGHT_RECORDER, path)]
    found = [each for each in records if isinstance(each, Collective)]
    stuck = {each.communicator for each in found if each.state is State.STARTED}
    assert len(stuck) == 1
    assert find_culprits([each for each in found if each.communicator in stuck]) == {3}


def test_the_agent_reads_the_dumps_of_its_host(tree: Tree) -> None:
    hang = make_hang(TOPOLOGY, MISSING)
    tree.write(make_busy_snapshot(TOPOLOGY, time_s=120.0, dumps=[hang]))
    tree.read("flight_recorder")  # a dump is read when it has stood still for one look
    readings = [*tree.read("flight_recorder"), *tree.read("flight_recorder")]
    pending = {
        dict(each.series.labels)["rank"]: each.value
        for each in readings
        if isinstance(each, Sample)
        and each.series.metric == "fabric_job_flight_recorder_pending_operations"
    }
    assert pending == {"2": 0, "3": 0}


def test_a_host_that_is_down_writes_no_dump(tmp_path: Path) -> None:
    dumps = FlightRecorderDumps(TOPOLOGY, lambda *_: tmp_path)
    snapshot = make_busy_snapshot(TOPOLOGY, dumps=[make_hang(TOPOLOGY, MISSING)])
    snapshot.world.host_is_down[HOST] = True
    dumps.write(snapshot)
    ranks = {int(path.name.rpartition("_")[2]) for path in tmp_path.iterdir()}
    assert ranks == {0, 1, 4, 5, 6, 7}


# --- a run's folder ------------------------------------------------------------------------------


def write_run(folder: Path) -> None:
    """Three ticks and a hang."""
    run = RunFolder(folder)
    xid = Happening("xid", 60.5, host=0, gpu=1, value=94)
    run.write(make_busy_snapshot(TOPOLOGY, seed=1))
    blocks = [make_reduction(TOPOLOGY, sequence=40 + each) for each in range(2, 9)]
    for place, block in enumerate(blocks):
        block.entry_s += 0.3 * place
        block.exit_s += 0.3 * place
    second = make_busy_snapshot(TOPOLOGY, time_s=61.0, happenings=[xid], collectives=blocks)
    run.write(second)
    hang = make_hang(TOPOLOGY, MISSING)
    run.write(make_busy_snapshot(TOPOLOGY, time_s=120.0, dumps=[hang], collectives=[], steps=[]))
    run.close({"cause": "hang", "rank": MISSING})


def test_a_run_is_diagnosed_like_a_capture(tmp_path: Path) -> None:
    write_run(tmp_path)
    report = report_of(tmp_path)
    (job,) = [job for job in report.jobs if job.size == TOPOLOGY.gpus and job.pending]
    (pending,) = job.pending
    assert (pending.operation, pending.ranks) == ("all_reduce", 4)
    assert pending.started == [0, 2, 3]
    assert not pending.scheduled
    assert not pending.completed
    assert json.loads((tmp_path / "truth.json").read_text("utf-8")) == {"cause": "hang", "rank": 2}


def test_pages_of_counters_hold_every_tick(tmp_path: Path) -> None:
    write_run(tmp_path)
    nics = parse(OPENMETRICS, tmp_path / "nic.openmetrics")
    snapshot = make_busy_snapshot(TOPOLOGY)
    sent = [
        each
        for each in nics
        if isinstance(each, Sample)
        and each.series.metric == "fabric_port_transmit_bytes_total"
        and dict(each.series.labels) == {"host": "node0001", "device": "mlx5_1", "port": "1"}
    ]
    assert [each.time_ns for each in sent] == [to_ns(60), to_ns(61), to_ns(120)]
    link = TOPOLOGY.up(3)
    assert sent[0].value == pytest.approx(snapshot.links.bytes[link], rel=1e-9)
    gpus = [
        (dict(each.series.labels)["Hostname"], dict(each.series.labels)["gpu"], each.value)
        for each in parse(OPENMETRICS, tmp_path / "gpu.openmetrics")
        if isinstance(each, Sample) and each.series.metric == "DCGM_FI_DEV_XID_ERRORS"
    ]
    assert [value for host, gpu, value in gpus if (host, gpu) == ("node0000", "1")] == [0, 94, 94]
    assert {value for host, gpu, value in gpus if (host, gpu) != ("node0000", "1")} == {0}


def test_a_counter_that_begins_to_count_has_the_tick_before(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for second, count in enumerate((0, 0, 0, 5, 5)):
        snapshot = make_busy_snapshot(TOPOLOGY, time_s=60.0 + second)
        snapshot.host_links.downs[:] = count
        run.write(snapshot)
    run.close(None)
    downs = [
        (each.time_ns, each.value)
        for each in parse(OPENMETRICS, tmp_path / "nic.openmetrics")
        if isinstance(each, Sample)
        and each.series.metric == "fabric_nic_link_down_total"
        and ("host", "node0000") in each.series.labels
        and ("device", "eth0") in each.series.labels
    ]
    assert downs == [(to_ns(60), 0), (to_ns(62), 0), (to_ns(63), 5), (to_ns(64), 5)]


def test_the_same_snapshots_make_the_same_folder(tmp_path: Path) -> None:
    contents = []
    for name in ("one", "two"):
        write_run(tmp_path / name)
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        contents.append([(path.name, path.read_bytes()) for path in files])
    assert contents[0] == contents[1]


def test_the_settings_are_those_of_a_production_agent(tmp_path: Path) -> None:
    loaded = tomllib.loads(agent_settings(tmp_path / "node0001", "http://127.0.0.1:9999"))
    tables = loaded.pop("sources")
    settings = msgspec.convert(loaded, AgentSettings)
    assert settings.service_url == "http://127.0.0.1:9999"
    assert settings.listen == ""
    assert settings.spool_dir.startswith(str(tmp_path / "node0001"))
    assert set(tables) == {"nccl_inspector", "steps", "flight_recorder", "nccl_debug"}
