"""Windows of GPUs and hosts for detectors' tests: all healthy, until a test changes a reading."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from alerts.window.columns import Floats, Operations, Records
from alerts.window.model import Gpus, Grid, Hosts, JobWindow, Ports, Rank, Readings, Window
from collector.contract.model import Event
from collector.contract.units import NS

CELLS = 30
GRID = Grid(1_800_000_000 * NS, 5 * NS, CELLS)
GPUS_PER_HOST = 8

GPU_HEALTHY = {
    "up": 1.0,
    "utilization_ratio": 1.0,
    "sm_clock_hertz": 1980e6,
    "sm_clock_max_hertz": 1980e6,
    "clock_event_reasons": 0.0,
    "power_violation_seconds_total": 0.0,
    "thermal_violation_seconds_total": 0.0,
    "temperature_celsius": 58.0,
    "temperature_slowdown_celsius": 89.0,
    "power_limit_watts": 700.0,
    "ecc_corrected_errors_total": 0.0,
    "ecc_uncorrected_errors_total": 0.0,
    "pcie_replays_total": 0.0,
    "nvlink_recovery_errors_total": 0.0,
    "row_remap_failed": 0.0,
    "recovery_action": 0.0,
    "remapped_rows_uncorrected": 0.0,
    "xid_last": 0.0,
}
HOST_HEALTHY = {
    "cpu_seconds_total:user": 24.0,
    "cpu_seconds_total:idle": 168.0,
    "cpu_seconds_total:steal": 0.0,
    "pressure_cpu_waiting_seconds_total": 0.002,
    "pressure_io_stalled_seconds_total": 0.0,
    "pressure_io_waiting_seconds_total": 0.0,
    "pressure_memory_stalled_seconds_total": 0.0,
    "major_faults_total": 0.0,
    "tasks_blocked": 0.0,
    "step_phase_seconds_total:data": 0.02,
}


def readings_of(healthy: Mapping[str, float], rows: int, prefix: str) -> dict[str, Readings]:
    """The same value everywhere; tests write into ``values``."""
    found = {}
    for name, value in healthy.items():
        metric, _, label = name.partition(":")
        is_step = metric.startswith("step_")
        found[name] = Readings(
            metric=f"fabric_{metric}" if is_step else f"{prefix}{metric}",
            row=np.arange(rows, dtype=np.int64),
            values=np.full((rows, CELLS), value),
            label=label,
        )
    return found


def machines(hosts: int = 4, *, jobs: int = 1, events: tuple[Event, ...] = ()) -> Window:
    """Hosts of eight GPUs, shared out over jobs in turn; nothing is wrong with any of them."""
    names = [f"node{number}" for number in range(hosts)]
    gpus = hosts * GPUS_PER_HOST
    seen = np.full(gpus, GRID.end_ns, dtype=np.int64)
    return Window(
        from_ns=GRID.start_ns,
        to_ns=GRID.end_ns,
        jobs=[
            job_on(f"job{number}", names[number::jobs]) for number in range(jobs) if names[number:]
        ],
        ports=no_ports(),
        gpus=Gpus(
            grid=GRID,
            host=[name for name in names for _ in range(GPUS_PER_HOST)],
            gpu=[gpu for _ in names for gpu in range(GPUS_PER_HOST)],
            readings=readings_of(GPU_HEALTHY, gpus, "fabric_gpu_"),
            seen_ns=seen,
        ),
        hosts=Hosts(
            grid=GRID,
            host=names,
            readings=readings_of(HOST_HEALTHY, hosts, "fabric_host_"),
            seen_ns=np.full(hosts, GRID.end_ns, dtype=np.int64),
        ),
        events=events,
    )


def no_ports() -> Ports:
    """None at all."""
    empty = np.zeros(0, dtype=np.int64)
    return Ports(
        grid=GRID, host=[], device=[], port=[], readings={}, seen_ns=empty,
        is_switch=np.zeros(0, dtype=bool), other_end=empty, rate_bits_per_second=np.zeros(0),
        rail=empty, tier=empty,
    )  # fmt: skip


def job_on(name: str, hosts: list[str]) -> JobWindow:
    """A rank on every GPU of these hosts, without any records."""
    ranks = {
        place * GPUS_PER_HOST + gpu: Rank(rank=place * GPUS_PER_HOST + gpu, host=host, gpu=gpu)
        for place, host in enumerate(hosts)
        for gpu in range(GPUS_PER_HOST)
    }
    return JobWindow(
        job=name, size=len(ranks), ranks=ranks, communicators={}, source="nccl_inspector",
        records=empty_columns(Records), operations=empty_columns(Operations), clocks=[],
    )  # fmt: skip


def empty_columns(kind: type[Any]) -> Any:  # noqa: ANN401 - an empty one of that kind
    """Columns of no rows."""
    lists = ("communicators", "operations", "hosts")
    fields = kind.__struct_fields__
    return kind(**{name: [] if name in lists else np.zeros(0, dtype=np.int64) for name in fields})


def gpu_values(window: Window, reading: str) -> Floats:
    """The reading of all GPUs, to be written to."""
    return window.gpus.readings[reading].values


def host_values(window: Window, reading: str) -> Floats:
    """The reading of all hosts, to be written to."""
    return window.hosts.readings[reading].values


def reordered(window: Window) -> Window:
    """The same window with GPUs and hosts in another order."""
    gpus, hosts = window.gpus, window.hosts
    rows, places = np.arange(len(gpus))[::-1], np.arange(len(hosts))[::-1]
    return Window(
        from_ns=window.from_ns,
        to_ns=window.to_ns,
        jobs=window.jobs[::-1],
        ports=window.ports,
        gpus=Gpus(
            grid=GRID,
            host=[gpus.host[row] for row in rows],
            gpu=[gpus.gpu[row] for row in rows],
            readings=turned(gpus.readings, rows),
            seen_ns=gpus.seen_ns[rows],
        ),
        hosts=Hosts(
            grid=GRID,
            host=[hosts.host[place] for place in places],
            readings=turned(hosts.readings, places),
            seen_ns=hosts.seen_ns[places],
        ),
        events=window.events,
    )


def turned(
    readings: Mapping[str, Readings], rows: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> dict[str, Readings]:
    """The readings of things in another order."""
    return {
        name: Readings(metric=one.metric, row=one.row, values=one.values[rows], label=one.label)
        for name, one in reversed(list(readings.items()))
    }
