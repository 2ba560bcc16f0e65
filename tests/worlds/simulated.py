"""Snapshots that no simulation made: plausible counters for tests of what is shown of them."""

from dataclasses import fields
from typing import Any

import numpy as np

from collector.contract.units import NS
from simulator.snapshot import (
    Counts,
    GpuReadings,
    HostReadings,
    LinkCounters,
    NicCounters,
    Snapshot,
)
from simulator.topology.build import ClusterSpec, build
from simulator.topology.model import Fabric, Floats, Topology
from simulator.topology.world import World

START_UNIX_NS = 1_794_700_000 * NS
UPTIME_NS = 3 * 86_400 * NS
PACKET_BYTES = 4_154
"""A full packet of RoCEv2."""

LINK_RANGES = {
    # Rare things below the ends of narrow counters, so that a test that wants one there says so.
    "lost_packets": 900,
    "corrupted_packets": 800,
    "dropped_packets": 700,
    "marked_packets": 10**7,
    "paused_us": 10**8,
    "pause_frames": 10**6,
    "wait_ns": 10**8,
    "corrected_bits": 10**9,
    "symbol_errors": 60_000,
    "recoveries": 14,
    "downs": 200,
    "queue_bytes": 1 << 20,
    "queue_peak_bytes": 1 << 22,
}
"""Where counters of links lie, at random."""


def make_topology(fabric: Fabric = Fabric.ROCE, hosts: int = 2, nics: int = 8) -> Topology:
    """A small rail-optimised cluster at 400 Gb/s, with as many GPUs as NICs."""
    speed = "NDR" if fabric is Fabric.INFINIBAND else "400GbE"
    return build(
        ClusterSpec(hosts=hosts, gpus_per_host=nics, nics_per_host=nics, fabric=fabric, speed=speed)
    )


def make_link_counters(topology: Topology, random: np.random.Generator) -> LinkCounters:
    """Counters of every link after some hours of work.

    Ethernet pauses, InfiniBand waits: the other's counters stay at zero.
    """
    links = topology.links
    packets = random.integers(10**9, 10**11, links)
    values = {name: random.integers(1, end, links) for name, end in LINK_RANGES.items()}
    values["lost_packets"] += values["corrupted_packets"]
    is_infiniband = topology.fabric is Fabric.INFINIBAND
    for name in ("pause_frames", "paused_us") if is_infiniband else ("wait_ns",):
        values[name][:] = 0
    return LinkCounters(
        bytes=packets * PACKET_BYTES,
        packets=packets,
        bits=random.integers(10**15, 10**16, links),
        **values,
    )


def make_gpu_readings(topology: Topology, random: np.random.Generator) -> GpuReadings:
    """GPUs at work, none of them in trouble."""
    gpus = topology.gpus

    def between(low: float, high: float) -> Floats:
        return random.uniform(low, high, gpus).round(3)

    def count(end: int) -> Counts:
        return random.integers(0, end, gpus)

    return GpuReadings(
        utilization_share=between(0.8, 1.0),
        tensor_share=between(0.4, 0.7),
        sm_clock_mhz=between(1500, 1980).round(),
        memory_clock_mhz=np.full(gpus, 3201.0),
        temperature_celsius=between(45, 70).round(),
        memory_temperature_celsius=between(50, 80).round(),
        power_watts=between(400, 690),
        power_limit_watts=np.full(gpus, 700.0),
        energy_joules=between(1e6, 1e9),
        memory_used_bytes=random.integers(1 << 30, 120 << 30, gpus),
        throttle_reasons=np.zeros(gpus, dtype=np.int32),
        power_violation_ns=count(10**12),
        thermal_violation_ns=count(10**6),
        correctable_errors=count(5),
        uncorrectable_errors=np.zeros(gpus, dtype=np.int64),
        pcie_generation=np.full(gpus, 5, dtype=np.int32),
        pcie_width=np.full(gpus, 16, dtype=np.int32),
        pcie_replays=count(3),
        nvlink_transmit_bytes=count(10**15),
        nvlink_receive_bytes=count(10**15),
        nvlink_replays=count(10**9),
        pcie_transmit_bytes_per_second=between(1e9, 2e10),
        pcie_receive_bytes_per_second=between(1e9, 2e10),
    )


def make_host_readings(topology: Topology, random: np.random.Generator) -> HostReadings:
    """Hosts that have been up for three days."""
    hosts = topology.hosts
    return HostReadings(
        cpus=192,
        memory_total_bytes=2 << 40,
        boot_unix_ns=START_UNIX_NS - UPTIME_NS - random.integers(0, NS, hosts),
        cpu_user_s=random.uniform(1e5, 1e6, hosts),
        cpu_system_s=random.uniform(1e4, 1e5, hosts),
        cpu_idle_s=random.uniform(1e6, 1e7, hosts),
        cpu_iowait_s=random.uniform(1e2, 1e3, hosts),
        cpu_steal_s=np.zeros(hosts),
        memory_available_bytes=random.integers(1 << 38, 1 << 40, hosts),
        pressure_cpu_us=random.integers(0, 10**9, hosts),
        pressure_io_us=random.integers(0, 10**8, hosts),
        pressure_memory_us=random.integers(0, 10**7, hosts),
        load_1m=random.uniform(8, 64, hosts).round(2),
        # From here on by rule, so that the numbers of what follows stay as they were.
        mount_reads=np.arange(hosts, dtype=np.int64) * 1_000,
        mount_read_bytes=np.arange(hosts, dtype=np.int64) * 1_000 << 20,
        mount_response_ms=np.arange(hosts, dtype=np.int64) * 2_345,
        mount_writes=np.zeros(hosts, dtype=np.int64),
        mount_written_bytes=np.zeros(hosts, dtype=np.int64),
        mount_write_response_ms=np.zeros(hosts, dtype=np.int64),
    )


def make_snapshot(topology: Topology, *, seed: int = 1, **changes: object) -> Snapshot:
    """A tick of a healthy world with random counters; ``changes`` replace fields of `Snapshot`.

    The same seed gives the same numbers. Counters are as hosts see them too, unless given.
    """
    random = np.random.default_rng(seed)
    values: dict[str, Any] = {
        "topology": topology,
        "world": World(topology, random),
        "time_s": 60.0,
        "start_unix_ns": START_UNIX_NS,
        "interval_s": 1.0,
        "links": make_link_counters(topology, random),
        "nics": NicCounters(
            **{
                field.name: random.integers(1, 10**6, topology.nics)
                for field in fields(NicCounters)
            }
        ),
        "gpus": make_gpu_readings(topology, random),
        "hosts": make_host_readings(topology, random),
        "jobs": [],
        "collectives": [],
        "steps": [],
        "dumps": [],
        "happenings": [],
        "clock_offset_s": np.zeros(topology.hosts),
        "reporting": np.ones(topology.hosts, dtype=np.bool_),
    }
    values |= changes
    values.setdefault("host_links", values["links"])
    return Snapshot(**values)
