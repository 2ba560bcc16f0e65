"""The tree of a simulated host's machine, read by the production sources."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from collector.contract.model import Event, Missing, Reading, Sample
from collector.doors.host import Host
from collector.sources import discover
from simulator.interfaces.kernel import local_ranks
from simulator.interfaces.machine_tree import MachineTree, gpu_uuid
from simulator.snapshot import Counts, Happening
from simulator.topology.model import Floats, Ints
from tests.doubles.fakes import HandHost
from tests.worlds.simulated import make_snapshot, make_topology
from tests.worlds.simulated_jobs import FIRST_PID, JOB, make_busy_snapshot, make_job

TOPOLOGY = make_topology(hosts=2)
HOST = 1
"""The host that is looked at."""
SOURCES = discover()


def read(name: str, host: Host) -> list[Reading]:
    kind = SOURCES[name]
    return list(kind(kind.Settings()).read(host))


def values(readings: list[Reading], metric: str, label: str = "gpu") -> dict[str, float]:
    """The samples of one metric by one of their labels."""
    samples = (each for each in readings if isinstance(each, Sample))
    return {
        dict(each.series.labels).get(label, ""): each.value
        for each in samples
        if each.series.metric == metric
    }


@pytest.fixture
def tree(tmp_path: Path) -> MachineTree:
    made = MachineTree(tmp_path, TOPOLOGY)
    made.start(make_busy_snapshot(TOPOLOGY))
    return made


@pytest.fixture
def host(tree: MachineTree) -> Iterator[HandHost]:
    made = HandHost(tree.root(HOST))
    yield made
    made.close()


def test_nvml_gives_back_the_readings_of_every_gpu(host: Host) -> None:
    readings = read("nvml", host)
    gpus = make_busy_snapshot(TOPOLOGY).gpus
    expected: dict[str, Counts | Floats | Ints] = {
        "fabric_gpu_temperature_celsius": gpus.temperature_celsius,
        "fabric_gpu_sm_clock_hertz": gpus.sm_clock_mhz * 1e6,
        "fabric_gpu_power_watts": gpus.power_watts,
        "fabric_gpu_utilization_ratio": np.rint(100 * gpus.utilization_share) / 100,
        "fabric_gpu_tensor_active_ratio": gpus.tensor_share,
        "fabric_gpu_memory_used_bytes": gpus.memory_used_bytes,
        "fabric_gpu_energy_joules_total": gpus.energy_joules,
        "fabric_gpu_ecc_corrected_errors_total": gpus.correctable_errors,
        "fabric_gpu_thermal_violation_seconds_total": gpus.thermal_violation_ns / 1e9,
        "fabric_gpu_clock_event_reasons": gpus.throttle_reasons,
        "fabric_gpu_pcie_lanes": gpus.pcie_width,
        "fabric_gpu_pcie_replays_total": gpus.pcie_replays,
    }
    for metric, column in expected.items():
        found = values(readings, metric)
        own = column[HOST * 8 : HOST * 8 + 8]
        assert [found[str(gpu)] for gpu in range(8)] == pytest.approx(own.tolist()), metric


def test_nvlinks_add_up_to_what_the_gpu_sent(host: Host) -> None:
    found = values(read("nvml", host), "fabric_gpu_nvlink_transmit_bytes_total")
    sent = make_busy_snapshot(TOPOLOGY).gpus.nvlink_transmit_bytes[HOST * 8 :]
    assert [found[str(gpu)] for gpu in range(8)] == (sent // 1024 * 1024).tolist()


def test_nvml_of_a_healthy_host_misses_only_what_an_h200_refuses(host: Host) -> None:
    absent = {each.series.metric for each in read("nvml", host) if isinstance(each, Missing)}
    assert absent == {
        "fabric_gpu_nvlink_ecc_data_errors_total",
        "fabric_gpu_retired_pages_single_bit",
        "fabric_gpu_retired_pages_double_bit",
        "fabric_gpu_retired_pages_pending",
        # Of NVLink 5 only.
        "fabric_gpu_nvlink_link_errors_total",
        "fabric_gpu_nvlink_link_recovery_events_total",
        "fabric_gpu_nvlink_link_effective_errors_total",
        "fabric_gpu_nvlink_link_effective_error_ratio",
        "fabric_gpu_nvlink_link_symbol_errors_total",
        "fabric_gpu_nvlink_link_symbol_error_ratio",
        "fabric_gpu_nvlink_link_blocks_total",
        "fabric_gpu_nvlink_link_retry_blocks_total",
        "fabric_gpu_nvlink_link_fec_blocks_total",
    }


def test_nvml_knows_which_rank_computes_on_which_gpu(host: Host) -> None:
    found = values(read("nvml", host), "fabric_gpu_process_info", "pid")
    assert list(found) == [str(FIRST_PID + 7 * rank) for rank in range(8, 16)]


def test_an_update_is_seen_by_the_same_host(tree: MachineTree, host: Host) -> None:
    before = values(read("nvml", host), "fabric_gpu_power_watts")
    later = make_busy_snapshot(TOPOLOGY, seed=2, time_s=61.0)
    tree.update(later)
    after = values(read("nvml", host), "fabric_gpu_power_watts")
    assert after != before
    assert after["0"] == pytest.approx(later.gpus.power_watts[8])


def test_an_xid_is_told_once_however_often_the_agent_reads(tree: MachineTree, host: Host) -> None:
    source = SOURCES["nvml"](SOURCES["nvml"].Settings())
    list(source.read(host))
    happening = Happening("xid", 60.5, host=HOST, gpu=8 + 3, value=94)
    tree.update(make_busy_snapshot(TOPOLOGY, time_s=61.0, happenings=[happening]))
    # The agent reads seldom: the event must wait for it.
    tree.update(make_busy_snapshot(TOPOLOGY, time_s=62.0))
    events = [each for _ in range(3) for each in source.read(host) if isinstance(each, Event)]
    assert [(event.kind, event.labels["gpu"]) for event in events] == [("gpu_xid", "3")]
    counted = values(list(source.read(host)), "fabric_gpu_xid_errors_total", "xid")
    assert counted == {"94": 1}
    again = Happening("xid", 63.0, host=HOST, gpu=8 + 3, value=94)
    tree.update(make_busy_snapshot(TOPOLOGY, time_s=63.0, happenings=[again]))
    assert values(list(source.read(host)), "fabric_gpu_xid_errors_total", "xid") == {"94": 2}


def test_a_gpu_that_fell_off_the_bus_is_down_and_hides_no_other(
    tree: MachineTree, host: Host
) -> None:
    happening = Happening("xid", 60.5, host=HOST, gpu=8 + 2, value=79)
    later = make_busy_snapshot(TOPOLOGY, time_s=61.0, happenings=[happening])
    later.world.gpu_is_dead[8 + 2] = True
    tree.update(later)
    found = values(read("nvml", host), "fabric_gpu_up")
    assert found == {str(gpu): int(gpu != 2) for gpu in range(8)}


def test_a_gpu_that_only_hangs_still_answers(tree: MachineTree, host: Host) -> None:
    later = make_busy_snapshot(TOPOLOGY, time_s=61.0)
    later.world.gpu_is_dead[8 + 2] = True
    tree.update(later)
    assert set(values(read("nvml", host), "fabric_gpu_up").values()) == {1}


def test_the_host_gives_back_its_counters(host: Host) -> None:
    readings = read("host", host)
    hosts = make_busy_snapshot(TOPOLOGY).hosts
    modes = values(readings, "fabric_host_cpu_seconds_total", "mode")
    assert modes["user"] == pytest.approx(hosts.cpu_user_s[HOST], abs=0.01)
    assert modes["idle"] == pytest.approx(hosts.cpu_idle_s[HOST], abs=0.01)
    assert modes["iowait"] == pytest.approx(hosts.cpu_iowait_s[HOST], abs=0.01)
    whole = {
        "fabric_host_cpus": hosts.cpus,
        "fabric_host_memory_available_bytes": hosts.memory_available_bytes[HOST] // 1024 * 1024,
        "fabric_host_pressure_cpu_waiting_seconds_total": hosts.pressure_cpu_us[HOST] / 1e6,
        "fabric_host_pressure_io_waiting_seconds_total": hosts.pressure_io_us[HOST] / 1e6,
        "fabric_host_pressure_memory_stalled_seconds_total": hosts.pressure_memory_us[HOST] / 1e6,
        "fabric_host_load1": hosts.load_1m[HOST],
        "fabric_host_gpu_processes": 8,
    }
    for metric, value in whole.items():
        assert list(values(readings, metric).values()) == pytest.approx([value]), metric
    assert not [each for each in readings if isinstance(each, Missing)]


def test_ranks_are_named_with_job_gpu_and_local_rank(host: Host) -> None:
    infos = [
        dict(each.series.labels)
        for each in read("host", host)
        if isinstance(each, Sample) and each.series.metric == "fabric_job_info"
    ]
    assert [info["job"] for info in infos] == [JOB] * 8
    assert [info["rank"] for info in infos] == [str(rank) for rank in range(8, 16)]
    assert [info["local_rank"] for info in infos] == [str(gpu) for gpu in range(8)]
    assert [info["gpu"] for info in infos] == [str(gpu) for gpu in range(8)]
    assert {(info["user"], info["scheduler"]) for info in infos} == {("trainer", "slurm")}


def test_a_job_on_some_gpus_is_shown_on_those(tmp_path: Path) -> None:
    ranks = np.arange(4, dtype=np.int32)
    job = make_job(
        TOPOLOGY,
        name="4711",
        ranks=4,
        rank_host=np.full(4, HOST, dtype=np.int32),
        rank_gpu=8 + 4 + ranks,
        rank_nic=8 + 4 + ranks,
        rank_pid=900 + ranks,
    )
    tree = MachineTree(tmp_path, TOPOLOGY)
    tree.start(make_snapshot(TOPOLOGY, jobs=[job]))
    readings = read("host", Host(tree.root(HOST)))
    assert values(readings, "fabric_job_info", "gpu") == dict.fromkeys("4567", 1)
    assert values(readings, "fabric_job_info", "job") == {"4711": 1}


def test_a_job_that_ends_takes_its_processes_along(tree: MachineTree, host: Host) -> None:
    ended = make_job(TOPOLOGY, is_running=False)
    tree.update(make_busy_snapshot(TOPOLOGY, time_s=61.0, jobs=[ended]))
    assert list(values(read("host", host), "fabric_host_gpu_processes").values()) == [0]
    assert not values(read("nvml", host), "fabric_gpu_process_info", "pid")


def test_a_dead_locked_rank_sleeps_and_uses_no_processor(tree: MachineTree, host: Host) -> None:
    metric = "fabric_host_gpu_process_cpu_seconds_total"
    before = values(read("host", host), metric, "rank")
    later = make_busy_snapshot(TOPOLOGY, time_s=61.0)
    later.world.host_process_is_stopped[HOST] = True
    tree.update(later)
    readings = read("host", host)
    assert values(readings, metric, "rank") == before
    states = [
        dict(each.series.labels)["state"]
        for each in readings
        if isinstance(each, Sample)
        and each.series.metric == "fabric_host_gpu_process_state"
        and each.value == 1
    ]
    assert states == ["sleeping"] * 8
    tree.update(make_busy_snapshot(TOPOLOGY, time_s=62.0))
    after = values(read("host", host), metric, "rank")
    assert after["8"] == pytest.approx(before["8"] + 1.0)


def test_a_host_that_is_down_keeps_its_files(tree: MachineTree, host: Host) -> None:
    before = values(read("nvml", host), "fabric_gpu_power_watts")
    later = make_busy_snapshot(TOPOLOGY, seed=2, time_s=61.0)
    later.world.host_is_down[HOST] = True
    tree.update(later)
    assert values(read("nvml", host), "fabric_gpu_power_watts") == before


def test_a_shorter_text_leaves_nothing_of_the_longer_one(tree: MachineTree, host: Host) -> None:
    later = make_busy_snapshot(TOPOLOGY, time_s=61.0)
    later.hosts.load_1m[:] = 0.5
    later.hosts.pressure_io_us[:] = 7  # as after a boot
    tree.update(later)
    readings = read("host", host)
    waiting = values(readings, "fabric_host_pressure_io_waiting_seconds_total")
    assert list(waiting.values()) == [7e-6]
    assert list(values(readings, "fabric_host_load1").values()) == [0.5]
    text = (tree.root(HOST) / "proc/loadavg").read_text("utf-8")
    assert text.strip() == "0.50 0.50 0.50 3/2812 24140"


def test_the_same_snapshots_make_the_same_bytes(tmp_path: Path) -> None:
    contents = []
    for name in ("one", "two"):
        tree = MachineTree(tmp_path / name, TOPOLOGY)
        tree.start(make_busy_snapshot(TOPOLOGY))
        tree.update(make_busy_snapshot(TOPOLOGY, seed=3, time_s=61.0))
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        contents.append(
            [(str(path.relative_to(tmp_path / name)), path.read_bytes()) for path in files]
        )
    assert contents[0] == contents[1]
    assert len(contents[0]) > 40


def test_gpus_have_names_of_their_own() -> None:
    names = {gpu_uuid(TOPOLOGY, gpu) for gpu in range(TOPOLOGY.gpus)}
    assert len(names) == TOPOLOGY.gpus


def test_local_ranks_count_on_each_host() -> None:
    job = make_job(TOPOLOGY, ranks=4, rank_host=np.array([1, 0, 1, 0], dtype=np.int32))
    assert local_ranks(job).tolist() == [0, 0, 1, 1]
