"""Windows out of a store: of a small simulated cluster, and of samples written by hand."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from alerts.detectors import detect_all
from alerts.window.model import Grid, JobWindow, Window
from api.data.store.store import Store, StoreUrl
from api.fabric.cache import TopologyCache
from api.jobs.correlate.readings import GridReader
from api.jobs.correlate.things import read_hosts, read_ports, read_samples
from api.jobs.correlate.wanted import JOBS_KEPT_MAX, Wanted, series_of
from api.jobs.correlate.windows import WindowReader
from collector.contract.identity import metric_id, series_id
from collector.contract.units import NS
from simulator.engine import Simulation
from simulator.readings.batches import Reporter
from simulator.score.simulated_service import SimulatedService
from tests.worlds.simulated_cluster import small_cluster, small_scenario
from tests.worlds.topologies import simulated_topology

SECONDS = 40
CELL = 5
WINDOW_SECONDS = 30


class Read(NamedTuple):
    """A simulated cluster's windows, and what its NICs really sent."""

    whole: Window
    thinned: Window
    again: Window
    resting: Window
    """Its job is at rest."""
    roused: Window
    """The same one, whose job rests no more."""
    transmitted: np.ndarray[tuple[int, int], np.dtype[np.float64]]
    """[ticks, NICs]: bytes since the start, at whole seconds."""


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Read:
    """A minute of the small cluster."""
    return asyncio.run(simulate(tmp_path_factory.mktemp("cluster")))


async def simulate(folder: Path) -> Read:
    """Through the service's own parts, on a simulated clock."""
    simulation = Simulation(small_scenario(seconds=float(SECONDS), cluster=small_cluster()))
    scenario = simulation.scenario
    start_ns = scenario.start_unix_ns
    service = SimulatedService(folder, start_ns / NS)
    reporter = Reporter(
        simulation.topology, cluster="small", start_unix_ns=start_ns, seed=scenario.seed
    )
    transmitted = []
    async with service.running():
        for snapshot in simulation.run():
            up = [simulation.topology.up(nic) for nic in range(simulation.topology.nics)]
            transmitted.append(snapshot.links.bytes[up].copy())
            now_s = start_ns / NS + snapshot.time_s
            await service.work(now_s, reporter.batches(snapshot))
        cables = TopologyCache(service.inventory, lambda: service.now_s)
        reader = WindowReader(service.store, service.inventory, cables.at)
        end_ns = round(service.now_s * NS)
        from_ns = end_ns - WINDOW_SECONDS * NS
        whole = reader.read(from_ns, end_ns)
        resting = reader.read(from_ns, end_ns, {one.job: one.at_rest() for one in whole.jobs})
        return Read(
            whole,
            reader.read(from_ns, end_ns, records_max=300),
            reader.read(from_ns, end_ns),
            resting,
            reader.again(resting, {}),
            np.array(transmitted, dtype=np.float64),
        )


def job_of(window: Window) -> JobWindow:
    (job,) = window.jobs
    return job


def test_rates_are_what_the_nics_really_sent(read: Read) -> None:
    ports = read.whole.ports
    rates = ports.values("transmit_bytes_total")
    nics = [row for row in range(len(ports)) if not ports.is_switch[row]]
    assert len(nics) == read.transmitted.shape[1]
    # Counters are read at whole seconds, and the grid's cells end at them.
    ends = np.arange(SECONDS - WINDOW_SECONDS, SECONDS + 1, CELL) - 1
    true = np.diff(read.transmitted[ends], axis=0).T / CELL
    assert true.max() > 1e9
    assert np.allclose(rates[nics], true, rtol=0.02, atol=1e6)


def test_every_gpu_and_host_is_there_with_its_readings(read: Read) -> None:
    window = read.whole
    assert len(window.hosts) == 6
    assert len(window.gpus) == 12
    assert (window.gpus.values("up") == 1).all()
    assert (window.gpus.values("sm_clock_hertz")[:8] == 1980e6).all()
    assert set(window.hosts.values("cpus")[:, -1].tolist()) == {192.0}
    modes = [name for name in window.hosts.readings if name.startswith("cpu_seconds_total:")]
    total = np.sum([window.hosts.values(mode) for mode in modes], axis=0)
    assert np.allclose(total, 192.0, rtol=0.02)


def test_what_most_operations_left_out_is_still_joined(read: Read) -> None:
    whole, thinned = job_of(read.whole), job_of(read.thinned)
    assert (whole.kept_one_in, whole.slices) == (1, ())
    assert thinned.kept_one_in == 1
    assert len(thinned.slices) > 0
    assert len(thinned.records) < len(whole.records) / 2
    assert len(thinned.operations) == len(whole.operations) > 0


def test_paths_leave_by_the_senders_port_and_end_before_the_receivers(read: Read) -> None:
    job, ports = job_of(read.whole), read.whole.ports
    paths = job.paths
    assert paths is not None
    for edge, name in enumerate(paths.communicator):
        source = job.rank_of(name, int(paths.source[edge]))
        target = job.rank_of(name, int(paths.target[edge]))
        assert source is not None
        assert target is not None
        crossed = paths.port[paths.start[edge] : paths.start[edge + 1]].tolist()
        hosts = [ports.host[row] for row in crossed]
        assert source.host in hosts
        assert target.host not in hosts
        # The last cable is left by the switch that the receiver hangs on.
        far = {ports.host[int(ports.other_end[row])] for row in crossed}
        assert target.host in far


def test_a_job_that_rests_no_more_is_read_and_the_rest_stays_as_it_was(read: Read) -> None:
    assert job_of(read.resting).is_resting
    for part in ("ports", "gpus", "hosts", "events"):
        assert getattr(read.roused, part) is getattr(read.resting, part)
    found, whole = job_of(read.roused), job_of(read.whole)
    for table, other in ((found.records, whole.records), (found.operations, whole.operations)):
        assert len(table) == len(other) > 0
        for name in table.__struct_fields__:
            assert np.array_equal(getattr(table, name), getattr(other, name)), name
    assert found.steps == whole.steps
    assert (found.past, found.pending, found.dumped) == (whole.past, whole.pending, whole.dumped)
    assert found.paths is not None
    assert whole.paths is not None
    assert found.paths.port.tolist() == whole.paths.port.tolist()
    assert detect_all(read.roused) == detect_all(read.whole)


def test_a_window_read_again_says_the_same(read: Read) -> None:
    for kind in ("ports", "gpus", "hosts"):
        one, other = getattr(read.whole, kind), getattr(read.again, kind)
        assert one.host == other.host
        assert list(one.readings) == list(other.readings)
        for name in one.readings:
            assert np.array_equal(one.values(name), other.values(name), equal_nan=True), name
    assert job_of(read.whole).steps == job_of(read.again).steps
    assert job_of(read.whole).past == job_of(read.again).past


# Samples by hand ---------------------------------------------------------------------------------

START_S = 1_800_000_000
GRID = Grid(START_S * NS, CELL * NS, 4)
BYTES = "fabric_port_transmit_bytes_total"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(StoreUrl.parse(f"chdb://{tmp_path}/telemetry"))
    opened.migrate()
    yield opened
    opened.close()


def write(
    store: Store, metric: str, labels: dict[str, str], points: list[tuple[float, float]]
) -> None:
    """A series with these values, at seconds after the start."""
    named = tuple(sorted([("__name__", metric), *labels.items()]))
    series = series_id(named)
    times = [round((START_S + second) * 1000) for second, _ in points]
    columns = {
        "metric": pa.array([metric_id(metric)] * len(points), pa.uint32()),
        "series": pa.array([series] * len(points), pa.uint64()),
        "time": pa.array(times, pa.timestamp("ms", tz="UTC")),
        "whole": pa.array([0] * len(points), pa.int64()),
        "fraction": pa.array([value for _, value in points], pa.float64()),
    }
    store.insert_arrow("samples", pa.table(columns))
    words = pa.map_(pa.string(), pa.string())
    days = pa.array([START_S // 86_400], pa.int32()).cast(pa.date32())
    row = {
        "day": days,
        "metric_name": pa.array([metric]),
        "series": pa.array([series], pa.uint64()),
        "labels": pa.array([list(labels.items())], words),
    }
    store.insert_arrow("series", pa.table(row))


def test_gaps_resets_and_other_exporters_are_read_from_the_store(store: Store) -> None:
    first = {"host": "node0000", "device": "mlx5_0", "port": "1"}
    write(store, BYTES, first, [(0, 1e9), (5, 2e9), (10, 1e6), (15, 2e6)])
    theirs = {"instance": "node0001", "device": "mlx5_0", "port": "1"}
    write(store, "node_infiniband_port_data_transmitted_bytes_total", theirs, [(0, 0), (20, 4e9)])
    topology = simulated_topology(hosts=2, nics_per_host=2, gpus_per_host=2)
    ports = read_ports(GridReader(store), topology, GRID)
    rates = ports.values("transmit_bytes_total")
    own = ports.row_of["node0000", "mlx5_0", "1"]
    assert np.allclose(rates[own], [2e8, np.nan, 2e5, np.nan], equal_nan=True)
    alias = ports.row_of["node0001", "mlx5_0", "1"]
    assert np.allclose(rates[alias], 2e8)
    assert ports.seen_ns[own] == (START_S + 15) * NS
    # A port that no agent reads is there by its cable, without values.
    silent = ports.row_of["node0001", "mlx5_1", "1"]
    assert np.isnan(rates[silent]).all()
    assert ports.is_switch[ports.other_end[silent]]


def test_both_names_of_a_port_are_one_row_and_the_ports_own_counts(store: Store) -> None:
    write(store, BYTES, {"host": "n", "device": "eth0", "port": "1"}, [(0, 0.0), (20, 200.0)])
    nic = {"host": "n", "device": "eth0"}
    write(store, "fabric_nic_transmit_bytes_total", nic, [(0, 0.0), (20, 800.0)])
    write(store, "fabric_nic_receive_bytes_total", nic, [(0, 0.0), (20, 400.0)])
    ports = read_ports(GridReader(store), None, GRID)
    assert (len(ports), ports.metric("transmit_bytes_total")) == (1, BYTES)
    assert np.allclose(ports.values("transmit_bytes_total"), 10.0)
    assert np.allclose(ports.values("receive_bytes_total"), 20.0)


def test_series_of_a_jobs_machines_are_looked_for_anew_when_there_are_new_ones(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Wanted] = []

    def noted(*given: Any) -> Any:  # noqa: ANN401 - passed on
        looked.append(given[3])
        return series_of(*given)

    monkeypatch.setattr("api.jobs.correlate.wanted.series_of", noted)
    reader, wanted = GridReader(store), Wanted(hosts=["n"], switches=[], ports=[])

    def read_rates(device: str, grid: Grid = GRID) -> list[float]:
        ports = read_ports(reader, None, grid, read_samples(reader, grid, wanted))
        row = ports.row_of["n", device, "1"]
        return [float(rate) for rate in ports.values("transmit_bytes_total")[row]]

    write(store, BYTES, {"host": "n", "device": "a", "port": "1"}, [(0, 0.0), (20, 200.0)])
    assert read_rates("a") == read_rates("a") == [10.0] * 4
    assert len(looked) == 1
    write(store, BYTES, {"host": "n", "device": "b", "port": "1"}, [(0, 0.0), (20, 400.0)])
    assert read_rates("b") == [20.0] * 4
    assert len(looked) == 2
    write(store, "fabric_pair_wait_ratio", {"source": "n"}, [(0, 0.5)])
    assert read_rates("b") == [20.0] * 4
    assert len(looked) == 2, "series of other metrics are nothing to it"
    for number in range(JOBS_KEPT_MAX):
        read_samples(reader, GRID, wanted._replace(ports=[str(number)]))
    read_rates("a")
    assert len(looked) == 2 + JOBS_KEPT_MAX + 1, "it was asked for longest ago"


def test_a_host_without_data_is_not_there(store: Store) -> None:
    assert len(read_hosts(GridReader(store), GRID)) == 0
    write(store, "fabric_host_cpus", {"host": "node0000"}, [(0, 64.0), (20, 64.0)])
    hosts = read_hosts(GridReader(store), GRID)
    assert hosts.host == ["node0000"]
    assert hosts.values("cpus").tolist() == [[64.0] * 4]
