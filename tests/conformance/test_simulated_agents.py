"""Fast mode against the production agent: both send the same for the same snapshot.

Trees are written as for an agent, the agent's own sources read them with the settings that such an
agent has, and their readings must equal the fast mode's batches.
"""

import copy
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from api.http import works
from api.jobs import watch
from collector.agent.exposition import MISSING_METRIC, missing_series
from collector.agent.schedule import Remembers
from collector.agent.settings import load_settings
from collector.contract import communicator as words
from collector.contract.collective import Collective, State, StepSpan
from collector.contract.model import Event, Missing, Reading, Sample
from collector.contract.records import ABSENT, NUMBERS
from collector.contract.wire import CONTENT_TYPE, Batch, decode_batch
from collector.doors.host import Host
from collector.sources import Source, discover
from collector.sources.netdev import STATISTICS
from collector.tables import ethtool, nvml, rdma
from simulator.engine import Simulation
from simulator.interfaces.host_trees import HostTrees
from simulator.interfaces.run_folder import agent_settings
from simulator.jobs.model import JobSpec
from simulator.readings.batches import Reporter
from simulator.readings.fabric_names import ETHTOOL_COUNTERS, NETDEV_COUNTERS, PORT_COUNTERS
from simulator.readings.machines import XIDS, explain_xid
from simulator.scenario import Scenario
from simulator.snapshot import Happening, Snapshot
from simulator.topology.build import ClusterSpec
from simulator.topology.model import Fabric, Topology
from tests.stands.service import eventually, in_process
from tests.worlds.simulated import START_UNIX_NS, make_topology
from tests.worlds.simulated_jobs import JOB, make_blocks, make_full_snapshot, make_hang, make_step

SOURCES = (
    *("clock", "ethtool", "flight_recorder", "host", "ib_sysfs", "kernel_log", "links", "mounts"),
    *("nccl_debug", "nccl_inspector", "netdev", "nvml", "steps"),
)
"""What fast mode stands for."""
TIME_OF_READ = frozenset(
    {
        *("gpu_xid", "gpu_process_gone", "flight_recorder_dump", "process_group"),
        *("link_down", "link_up", "link_rate", "link_flap", "kernel_message"),
    }
)
"""Events whose time is that of the read: by a real clock there."""
OF_THE_AGENT_ITSELF = frozenset({"fabric_agent_link_messages_lost_total"})
"""Metrics that fast mode leaves out."""
OF_THE_FAST_SAMPLER = frozenset(
    {"fabric_burst_peak_bytes_per_second", "fabric_burst_resolution_seconds"}
)
"""Made of counters that are read every millisecond; these trees change once a second."""

each_fabric = pytest.mark.parametrize("fabric", list(Fabric))

SampleSet = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Trees:
    """The trees of all hosts, and an agent's sources on each."""

    def __init__(self, folder: Path, topology: Topology) -> None:
        self._trees = HostTrees(folder, topology)
        self._roots = [folder / topology.host_name(host) for host in range(topology.hosts)]
        self._sources: list[list[Source]] = []
        self._hosts: list[Host] = []

    def show(self, snapshot: Snapshot) -> None:
        """Write a snapshot: the first time all of it."""
        self._trees.write(snapshot)
        if not self._hosts:
            self._sources = [make_sources(root) for root in self._roots]
            self._hosts = [Host(root) for root in self._roots]

    def restart(self, host: int) -> None:
        """Let the agent of a host begin anew with what it saved when it last read."""
        before = self._sources[host]
        self._sources[host] = make_sources(self._roots[host])
        for old, new in zip(before, self._sources[host], strict=True):
            if isinstance(old, Remembers) and isinstance(new, Remembers):
                new.load_state(msgspec.msgpack.decode(msgspec.msgpack.encode(old.save_state())))

    def read(self, host: int) -> dict[str, list[Reading]]:
        """The readings of each source now.

        A dump is read when it looks the same for the second time, or after a while.
        """
        found: dict[str, list[Reading]] = {}
        for source in self._sources[host]:
            found[source.name] = list(source.read(self._hosts[host]))
            if source.name == "flight_recorder":
                before = (each for each in found[source.name] if not isinstance(each, Sample))
                found[source.name] = [*before, *source.read(self._hosts[host])]
        return found


def make_sources(root: Path) -> list[Source]:
    """The sources of an agent on this tree, with its settings."""
    kinds = discover()
    file = root / "agent.toml"
    file.write_text(agent_settings(root), encoding="utf-8")
    types = {name: kind.Settings for name, kind in kinds.items()}
    settings = load_settings(types, file=file, environment={}, flags={})
    return [kinds[name](settings.sources[name]) for name in SOURCES]


# Both outputs in one shape -----------------------------------------------------------------------


def samples_read(readings: dict[str, list[Reading]]) -> SampleSet:
    """Samples, and absences as the agent's buffer makes samples of them."""
    found: SampleSet = {}
    for source, each in ((source, each) for source, all_ in readings.items() for each in all_):
        if isinstance(each, Sample):
            if each.series.metric not in OF_THE_AGENT_ITSELF:
                found[each.series.metric, each.series.labels] = float(each.value)
        elif isinstance(each, Missing):
            series = missing_series(each, source)
            found[series.metric, series.labels] = 1.0
    return found


def samples_sent(batch: Batch) -> SampleSet:
    rows = batch.series_rows()
    index = np.frombuffer(batch.index, dtype="<u4").tolist()
    values = np.frombuffer(batch.value, dtype="<f8").tolist()
    assert index == sorted(index), "samples stand in the order of their series"
    found = {
        (rows[place][0], tuple(rows[place][1].items())): value
        for place, value in zip(index, values, strict=True)
    }
    assert len(found) == len(index), "no series comes twice"
    return found


def collectives_sent(batch: Batch) -> list[Collective]:
    packed = batch.collectives
    if packed is None:
        return []
    columns = [np.frombuffer(getattr(packed, name), dtype="<i8").tolist() for name in NUMBERS]
    records = []
    for place, row in zip(
        np.frombuffer(packed.context, dtype="<u4").tolist(),
        zip(*columns, strict=True),
        strict=True,
    ):
        numbers: dict[str, Any] = {
            name: None if value == ABSENT else value
            for name, value in zip(NUMBERS, row, strict=True)
        }
        records.append(Collective(**msgspec.structs.asdict(packed.contexts[place]), **numbers))
    return records


def canonical(records: Iterable[object]) -> list[str]:
    """Records as sorted texts; events of the moment of a read without their time."""
    texts = []
    for record in records:
        values = msgspec.to_builtins(record)
        if isinstance(record, Event) and (
            record.kind in TIME_OF_READ or words.NCCL_VERSION in record.attributes
        ):
            del values["time_ns"]
        texts.append(msgspec.json.encode(values, order="sorted").decode())
    return sorted(texts)


def check_equal(readings: dict[str, list[Reading]], batch: Batch) -> None:
    """Series, values, events and records of one host are the same both ways."""
    read, sent = samples_read(readings), samples_sent(batch)
    assert {name: read[name] for name in read.keys() - sent.keys()} == {}
    more = {key: sent[key] for key in sent.keys() - read.keys()}
    assert {key for key in more if key[0] not in OF_THE_FAST_SAMPLER} == set()
    wrong = {name: (value, sent[name]) for name, value in read.items() if value != sent[name]}
    assert wrong == {}
    records = [each for all_ in readings.values() for each in all_]

    def of(kind: type) -> list[object]:
        return [each for each in records if isinstance(each, kind)]

    assert canonical(batch.events) == canonical(of(Event))
    assert canonical(collectives_sent(batch)) == canonical(of(Collective))
    assert canonical(batch.steps) == canonical(of(StepSpan))


def run_both(folder: Path, topology: Topology, snapshots: Iterable[Snapshot]) -> list[Batch]:
    """Compare both on one snapshot after the other; returns the last batches."""
    trees = Trees(folder, topology)
    reporter = Reporter(topology, "", START_UNIX_NS, seed=5, poller=None)
    batches: list[Batch] = []
    for snapshot in snapshots:
        trees.show(snapshot)
        batches = [decode_batch(body) for body in reporter.batches(snapshot)]
        for host, batch in enumerate(batches):
            assert batch.agent == topology.host_name(host)
            check_equal(trees.read(host), batch)
    return batches


def next_tick(snapshot: Snapshot, **changes: object) -> Snapshot:
    """The same cluster a second later, without news but for the changes."""
    quiet: dict[str, Any] = {"collectives": [], "steps": [], "happenings": []}
    return replace(snapshot, **({"time_s": snapshot.time_s + 1.0} | quiet | changes))


# The proof ---------------------------------------------------------------------------------------


@each_fabric
def test_fast_mode_says_exactly_what_an_agent_says(fabric: Fabric, tmp_path: Path) -> None:
    topology = make_topology(fabric)
    batches = run_both(tmp_path, topology, [make_full_snapshot(topology)])
    assert all(batch.sample_count > 2000 for batch in batches)
    assert all(batch.collectives and batch.steps and batch.events for batch in batches)


@each_fabric
def test_a_second_tick_goes_on_where_the_first_ended(fabric: Fabric, tmp_path: Path) -> None:
    topology = make_topology(fabric, nics=2)
    first = make_full_snapshot(topology)
    first.nics.out_of_sequence[:] = (1 << 32) - 5
    later = copy.deepcopy(first)
    later.nics.out_of_sequence += 7
    later.links.bytes += 10**9
    later.gpus.nvlink_transmit_bytes += 10**10
    later.hosts.cpu_user_s += 0.77
    blocks, steps = make_blocks(topology, sequence=5), [make_step(topology, 8)]
    second = next_tick(later, collectives=blocks, steps=steps)
    batches = run_both(tmp_path, topology, [first, second])
    extended = samples_sent(batches[0])[
        "fabric_port_receive_out_of_sequence_total", (("device", "mlx5_1"), ("port", "1"))
    ]
    assert extended == (1 << 32) + 2


@each_fabric
def test_trouble_with_links_is_told_alike(fabric: Fabric, tmp_path: Path) -> None:
    """A link that is down, one that has lost lanes, and counters at their end."""
    topology = make_topology(fabric, nics=4)
    snapshot = make_full_snapshot(topology)
    world = snapshot.world
    world.link_up[topology.up(1)] = False
    world.link_speed_share[topology.up(2)] = 0.5
    world.link_speed_share[topology.down(3)] = 0.33
    snapshot.links.symbol_errors[:] = 1 << 20
    snapshot.links.recoveries[:] = 300
    snapshot.links.wait_ns[:] = 10**15
    batches = run_both(tmp_path, topology, [snapshot])
    absent = [labels for metric, labels in samples_sent(batches[0]) if metric == MISSING_METRIC]
    is_saturated = any(("reason", "saturated") in labels for labels in absent)
    assert is_saturated == (fabric is Fabric.INFINIBAND)


@each_fabric
def test_links_that_change_are_told_alike(fabric: Fabric, tmp_path: Path) -> None:
    """Down, up with half its lanes, all lanes again, and (where it is counted) a flap unseen."""
    topology = make_topology(fabric, nics=4)
    first = make_full_snapshot(topology)
    down, slow, whole, flapped = (copy.deepcopy(first) for _ in range(4))
    down.world.link_up[topology.up(1)] = False
    for later in (down, slow, whole, flapped):
        later.links.downs[topology.up(1)] += 1
    slow.world.link_speed_share[[topology.up(1), topology.down(1)]] = 0.5
    flapped.links.downs[topology.up(2)] += 300
    flapped.links.downs[topology.up(5)] += 2
    ticks = [first]
    for number, later in enumerate((down, slow, whole, flapped), start=1):
        later.host_links = later.links
        ticks.append(next_tick(later, time_s=60.0 + number))
    trees = Trees(tmp_path, topology)
    reporter = Reporter(topology, "", START_UNIX_NS, seed=5, poller=None)
    kinds: list[list[str]] = []
    for tick in ticks:
        trees.show(tick)
        batches = [decode_batch(body) for body in reporter.batches(tick)]
        kinds.append([])
        for host, batch in enumerate(batches):
            # Only this source: `ib_sysfs` looks at a port's name of a speed once a minute.
            read = {"links": trees.read(host)["links"]}
            sent = samples_sent(batch)
            assert samples_read(read) == {
                name: sent[name] for name in sent if name[0] == "fabric_port_downs_seen_total"
            }
            events = [each for each in batch.events if each.kind.startswith("link_")]
            reported = [each for each in read["links"] if isinstance(each, Event)]
            assert canonical(events) == canonical(reported)
            kinds[-1] += [each.kind for each in events]
    assert kinds[:4] == [[], ["link_down"], ["link_up", "link_rate"], ["link_rate"]]
    # On Ethernet mlx5 counts no downs there.
    assert kinds[4] == ([] if fabric is Fabric.ROCE else ["link_flap"] * 2)


def test_a_nic_whose_firmware_stops_is_told_alike(tmp_path: Path) -> None:
    topology = make_topology(nics=2)
    first = make_full_snapshot(topology)
    dead = copy.deepcopy(first)
    dead.world.nic_is_dead[1] = True
    ticks = [next_tick(dead), next_tick(dead, time_s=62.0), next_tick(first, time_s=63.0)]
    batches = run_both(tmp_path, topology, [first, *ticks])
    (event,) = [each for each in batches[0].events if each.kind == "kernel_message"]
    assert (event.labels, event.attributes["message"]) == ({"device": "mlx5_1"}, "nic_recovered")
    counted = {
        dict(labels)["kind"]: value
        for (metric, labels), value in samples_sent(batches[0]).items()
        if metric == "fabric_host_kernel_messages_total"
    }
    assert counted == {"nic_firmware_dead": 2, "nic_recovered": 1}


def test_a_change_of_a_link_has_the_time_of_the_look_that_saw_it() -> None:
    topology = make_topology(nics=2)
    first = make_full_snapshot(topology, clock_offset_s=np.array([0.25, -3.5]))
    down = next_tick(
        copy.deepcopy(first), happenings=[Happening("link_down", 60.42, link=topology.up(3))]
    )
    down.world.link_up[[topology.up(3), topology.down(3)]] = False
    reporter = Reporter(topology, "", START_UNIX_NS, seed=5, poller=None)
    list(reporter.batches(first))
    _, batch = [decode_batch(body) for body in reporter.batches(down)]
    (event,) = batch.events
    assert event.labels == {"device": "mlx5_1", "port": "1", "netdev": "eth1"}
    assert event.time_ns == START_UNIX_NS + 60_500_000_000 - 3_500_000_000


def test_trouble_with_machines_is_told_alike(tmp_path: Path) -> None:
    """A stopped rank, one that waits for its disk, an XID, a GPU off the bus, a job that ends."""
    topology = make_topology(nics=2)
    first = make_full_snapshot(topology)
    stopped = copy.deepcopy(first)
    stopped.world.host_process_is_stopped[0] = True
    stopped.world.host_io_stall_share[1] = 1.0
    stopped.world.gpu_is_dead[3] = True
    happened = [
        Happening("xid", 60.5, host=0, gpu=1, value=63),
        Happening("xid", 60.6, host=1, gpu=3, value=79),
    ]
    second = next_tick(stopped, happenings=happened)
    third = next_tick(first, time_s=62.0)
    ended = next_tick(first, time_s=63.0, jobs=[])
    batches = run_both(tmp_path, topology, [first, second, third, ended])
    assert {event.kind for event in batches[0].events} == {"gpu_process_gone"}


def test_an_agent_that_was_dead_catches_up_alike(tmp_path: Path) -> None:
    """It reads on in the logs where it had stopped; samples of the time between are lost."""
    topology = make_topology(nics=2)
    first = make_full_snapshot(topology)
    steps = [make_step(topology, 8)]
    missed = next_tick(first, collectives=make_blocks(topology, sequence=5), steps=steps)
    missed.world = copy.deepcopy(first.world)
    missed.world.host_agent_is_dead[1] = True
    back = next_tick(missed, world=first.world, collectives=make_blocks(topology, sequence=9))
    trees = Trees(tmp_path, topology)
    reporter = Reporter(topology, "", START_UNIX_NS, seed=5, poller=None)
    for snapshot, hosts in ((first, [0, 1]), (missed, [0]), (back, [0, 1])):
        trees.show(snapshot)
        if snapshot is back:
            trees.restart(1)
        batches = [decode_batch(body) for body in reporter.batches(snapshot)]
        for host, batch in zip(hosts, batches, strict=True):
            check_equal(trees.read(host), batch)
    assert {record.sequence for record in collectives_sent(batches[1])} == {5, 6, 9, 10}
    assert {span.step for span in batches[1].steps} == {8}


def test_a_hang_is_told_alike(tmp_path: Path) -> None:
    topology = make_topology(nics=2)
    first = make_full_snapshot(topology)
    hang = make_hang(topology, missing_rank=2)
    *_, pair = make_blocks(topology)
    pair.exit_s[0], pair.state = np.nan, State.STARTED
    hang.blocks.append(pair)
    second = next_tick(first, dumps=[hang])
    batches = run_both(tmp_path, topology, [first, second])
    records = collectives_sent(batches[0])
    assert {record.source for record in records} == {"flight_recorder"}
    assert {record.state for record in records} == {State.STARTED, State.COMPLETED}


@each_fabric
def test_a_simulated_run_is_told_alike_at_every_tick(fabric: Fabric, tmp_path: Path) -> None:
    speed = "NDR" if fabric is Fabric.INFINIBAND else "400GbE"
    spec = ClusterSpec(hosts=2, gpus_per_host=2, nics_per_host=2, fabric=fabric, speed=speed)
    job = JobSpec(name="12", hosts=(0, 1), tensor=1, pipeline=2, startup_seconds=1.0)
    scenario = Scenario(cluster=spec, jobs=(job,), seconds=5.0, start_unix_ns=START_UNIX_NS)
    simulation = Simulation(scenario)
    batches = run_both(tmp_path, simulation.topology, simulation.run())
    assert all(batch.collectives and batch.steps for batch in batches)


def test_the_agents_tables_are_the_same_as_ours() -> None:
    """Also names that no snapshot shows: the agent knows every mlx5 counter used here."""
    for path, name in PORT_COUNTERS.items():
        directory, _, native = path.partition("/")
        row = {"counters": rdma.CLASSIC, "hw_counters": rdma.MLX5}[directory][native]
        assert (name.metric, name.factor, name.width) == (row.metric, row.factor, row.width)
    for native, name in ETHTOOL_COUNTERS.items():
        found = ethtool.MLX5.find(native)
        assert found is not None
        assert (name.metric, name.factor, name.labels) == found
    assert {path: name.metric for path, name in NETDEV_COUNTERS.items()} == {
        path: metric for path, metric in STATISTICS.items() if path != "mtu"
    }
    for xid in XIDS:
        assert explain_xid(xid) == nvml.explain_xid(xid)


# The service -------------------------------------------------------------------------------------


def test_the_service_takes_the_batches_and_finds_hosts_ports_and_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(works, "JOBS_SECONDS", 0.05)
    monkeypatch.setattr(works, "JOBS_FORGOTTEN_SECONDS", 0.0)
    monkeypatch.setattr(watch, "FULL_LOOK_EVERY", 1)
    topology = make_topology(nics=4)
    start_ns = time.time_ns() - 70 * 10**9
    reporter = Reporter(topology, "lab", start_ns, seed=5, poller=None)
    snapshot = make_full_snapshot(topology, start_unix_ns=start_ns)
    headers = {"Content-Type": CONTENT_TYPE, "Content-Encoding": "zstd"}
    with in_process(tmp_path) as service:

        def get(path: str, **parameters: str) -> Any:  # noqa: ANN401 - JSON
            answer = service.client.get(path, params=parameters)
            return answer.json() if answer.is_success else {"items": []}

        for body in reporter.batches(snapshot):
            answer = service.client.post("/v1/ingest", content=body, headers=headers)
            assert answer.status_code == 200, answer.text
            assert answer.json()["refused"] == {}
            assert answer.json()["stored"] == decode_batch(body).reading_count
        eventually(lambda: len(get("/v1/ports")["items"]) == topology.nics, "the ports")
        hosts = get("/v1/hosts")["items"]
        assert [host["host"] for host in hosts] == ["node0000", "node0001"]
        count = get("/api/v1/query", query=f'count(fabric_job_info{{job="{JOB}",cluster="lab"}})')
        assert count["data"]["result"][0]["value"][1] == str(topology.gpus)

        def places() -> set[tuple[int, str, str, str | None]]:
            ranks = get(f"/v1/jobs/{JOB}/ranks")["items"]
            return {(each["rank"], each["host"], each["gpu"], each["device"]) for each in ranks}

        wanted = {
            (rank, topology.host_name(rank // 4), str(rank % 4), f"mlx5_{rank % 4}")
            for rank in range(topology.gpus)
        }
        eventually(lambda: places() == wanted, "where each rank runs, and its nearest NIC")
        records = get(f"/v1/jobs/{JOB}/collectives")["items"]
        assert len(records) == sum(block.members.size for block in snapshot.collectives)
        assert {record["job_rank"] for record in records} == set(range(topology.gpus))
        assert len(get(f"/v1/jobs/{JOB}/steps")["items"]) == 4 * topology.gpus
