"""The `host` source over time: a process that stops, hangs in the kernel, ends, or comes again."""

from pathlib import Path

import pytest

from collector.contract.model import Event, Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.sources import host as source_module
from collector.sources.host import (
    UNINTERRUPTIBLE_SECONDS,
    HostStalls,
    Settings,
    parse_cpu_stat,
    parse_numbers_by_name,
    parse_pressure,
)
from tests.fixtures.trees import write_files, write_link

PID = 42
STAT = "{pid} (python) {state} 1 1 1 0 -1 0 0 0 3 0 {cpu} 0 0 0 20 0 7 0 {start} 0 0"


class Machine(Host):
    """A tree with a clock that stands until it is moved."""

    seconds = 100.0

    def monotonic_ns(self) -> int:
        return int(self.seconds * 1e9)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    write_files(tmp_path, {"proc/stat": "cpu 1 2 3 4 5 6 7 8\ncpu0 1", "dev/nvidiactl": ""})
    set_process(tmp_path, "S")
    for number, target in enumerate(("/dev/nvidia-uvm", "/dev/nvidia0")):
        write_link(tmp_path, f"proc/{PID}/fd/{number}", target)
    return Machine(tmp_path)


def set_process(root: Path, state: str, *, cpu: int = 10, start: int = 5) -> None:
    write_files(
        root,
        {
            f"proc/{PID}/stat": STAT.format(pid=PID, state=state, cpu=cpu, start=start),
            f"proc/{PID}/wchan": "nfs_wait_client",
        },
    )


def events(readings: list[Reading]) -> list[str]:
    return [each.kind for each in readings if isinstance(each, Event)]


class Watch:
    """A source with its machine: each read after so many seconds."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.source = HostStalls(Settings())

    def read(self, seconds: float = 5) -> list[Reading]:
        self.machine.seconds += seconds
        return list(self.source.read(self.machine))


def test_a_stopped_process_is_reported_once_and_again_after_it_ran(machine: Machine) -> None:
    watch = Watch(machine)
    assert events(watch.read()) == []
    set_process(machine.root, "T")
    assert events(watch.read()) == ["gpu_process_stopped"]
    assert events(watch.read()) == []
    set_process(machine.root, "S")
    assert events(watch.read()) == []
    set_process(machine.root, "T")
    assert events(watch.read()) == ["gpu_process_stopped"]


def test_a_profiler_s_moments_are_no_stop(machine: Machine) -> None:
    watch = Watch(machine)
    set_process(machine.root, "t")
    assert events(watch.read()) == []
    assert events(watch.read(UNINTERRUPTIBLE_SECONDS)) == ["gpu_process_stopped"]


def test_the_kernel_must_hold_it_for_long_and_without_work(machine: Machine) -> None:
    watch = Watch(machine)
    for ticks in (10, 20, 30):  # busy reading files: it moves between the looks
        set_process(machine.root, "D", cpu=ticks)
        assert events(watch.read(UNINTERRUPTIBLE_SECONDS)) == []
    (event,) = [each for each in watch.read(UNINTERRUPTIBLE_SECONDS) if isinstance(each, Event)]
    assert event.kind == "gpu_process_uninterruptible"
    assert event.attributes["wait_channel"] == "nfs_wait_client"
    assert event.labels == {"pid": "42", "gpu": "0"}
    assert events(watch.read()) == []


def test_a_process_that_ends_is_reported_and_its_series_stop(machine: Machine) -> None:
    watch = Watch(machine)
    watch.read()
    for path in sorted((machine.root / f"proc/{PID}").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    (machine.root / f"proc/{PID}").rmdir()
    readings = watch.read()
    assert events(readings) == ["gpu_process_gone"]
    shown = [each for each in readings if isinstance(each, Sample) and each.series.labels]
    assert not [each for each in shown if ("pid", "42") in each.series.labels]
    assert events(watch.read()) == []


def test_a_zombie_is_gone_once(machine: Machine) -> None:
    watch = Watch(machine)
    watch.read()
    set_process(machine.root, "Z")
    assert events(watch.read()) == ["gpu_process_gone"]
    assert events(watch.read()) == []


def test_a_pid_that_came_again_is_another_process(machine: Machine) -> None:
    watch = Watch(machine)
    watch.read()
    set_process(machine.root, "S", start=6)
    kinds = events(watch.read()) + events(watch.read())
    assert kinds == ["gpu_process_gone"]


def test_a_process_that_closes_its_gpu_is_not_gone(machine: Machine) -> None:
    watch = Watch(machine)
    watch.read()
    for path in (machine.root / f"proc/{PID}/fd").iterdir():
        path.unlink()
    assert events(watch.read()) == []


def test_missing_permission_is_reported(machine: Machine) -> None:
    for path in (machine.root / f"proc/{PID}/fd").iterdir():
        path.unlink()
    (machine.root / f"proc/{PID}/fd").rmdir()
    write_link(machine.root, f"proc/{PID}/fd", "fd")  # ELOOP stands in for EACCES
    (missing,) = [
        each
        for each in Watch(machine).read()
        if isinstance(each, Missing) and each.series.metric == "fabric_host_gpu_processes"
    ]
    assert missing.reason is UnreadReason.UNREADABLE
    assert "CAP_SYS_PTRACE" in missing.detail


def test_cgroups_have_a_bound_that_is_counted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "CGROUPS_MAX", 2)
    write_files(machine.root, {f"proc/{PID}/cgroup": "0::/a/b/c"})
    for folder in ("a", "a/b", "a/b/c"):
        write_files(machine.root, {f"sys/fs/cgroup/{folder}/cpu.stat": "nr_periods 5"})
    readings = [each for each in Watch(machine).read() if isinstance(each, Sample)]
    periods = {
        dict(each.series.labels)["cgroup"]: each.value
        for each in readings
        if each.series.metric == "fabric_host_cgroup_cpu_periods_total"
    }
    assert periods == {"/a/b/c": 5, "/a/b": 5}
    (left_out,) = [each for each in readings if ("what", "cgroups") in each.series.labels]
    assert left_out.value == 1


def test_a_host_without_a_gpu_reports_no_processes(machine: Machine) -> None:
    (machine.root / "dev/nvidiactl").unlink()
    metrics = {each.series.metric for each in Watch(machine).read() if isinstance(each, Sample)}
    assert "fabric_host_cpus" in metrics
    assert not {metric for metric in metrics if "gpu" in metric or "left_out" in metric}


def test_this_very_machine() -> None:
    readings = list(HostStalls(Settings()).read(Host()))
    values = {each.series: each.value for each in readings if isinstance(each, Sample)}
    by_metric = {series.metric: value for series, value in values.items()}
    assert by_metric["fabric_host_cpus"] >= 1
    assert by_metric["fabric_host_memory_total_bytes"] > 1 << 20


@pytest.mark.parametrize("text", [b"", b"\0\xff", b"cpu\n\ncpu0", b"some total=", b"a: b\n: 3\n"])
def test_parsers_take_anything(text: bytes) -> None:
    parse_pressure(text)
    parse_cpu_stat(text)
    parse_numbers_by_name(text)
