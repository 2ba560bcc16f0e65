"""Ports, GPUs and hosts in a stretch of time, from the store and the topology."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from alerts.columns import Floats, Ints
from alerts.window import Gpus, Grid, Hosts, Ports, Readings
from api.correlate.readings import (
    Choice,
    GridReader,
    Known,
    Samples,
    Target,
    gathered,
    keys_in,
)
from api.topology.model import Topology
from collector.contract.identity import PortId

PORT = "fabric_port_"
NIC = "fabric_nic_"
GPU = "fabric_gpu_"
HOST = "fabric_host_"
STEP = "fabric_step_"

PORT_READINGS = (
    "transmit_bytes_total", "receive_bytes_total", "transmit_packets_total",
    "receive_packets_total", "transmit_unicast_packets_total", "receive_unicast_packets_total",
    "symbol_errors_total", "receive_errors_total", "receive_crc_errors_total",
    "receive_icrc_errors_total", "receive_remote_physical_errors_total",
    "link_error_recoveries_total", "link_downed_total", "carrier_changes_total",
    "downs_seen_total", "local_link_integrity_errors_total",
    "excessive_buffer_overruns_total", "transmit_wait_seconds_total",
    "transmit_wait_ticks_total", "transmit_discards_total", "receive_discards_total",
    "receive_out_of_buffer_total", "receive_out_of_sequence_total", "sequence_naks_total",
    "implied_sequence_naks_total", "ack_timeouts_total", "rnr_naks_total",
    "adaptive_retransmits_total", "adaptive_retransmit_timeouts_total",
    "slow_restarts_used_total", "retransmit_packets_total", "tcp_retransmit_segments_total",
    "transport_retries_exceeded_total", "receive_ecn_marked_packets_total", "cnp_sent_total",
    "cnp_handled_total", "receive_pause_frames_total", "transmit_pause_frames_total",
    "receive_pause_seconds_total", "transmit_pause_seconds_total",
    "pause_watchdog_stuck_total", "queue_discarded_packets_total",
    "queue_ecn_marked_packets_total", "ingress_queue_discarded_packets_total",
    "drops_total", "transmit_lifetime_discards_total",
)  # fmt: skip
"""Counters of `fabric_port_…` that windows have. What differs in other labels (queue, priority) is
added up."""
PORT_LEVELS = (
    "state", "physical_state", "rate_bits_per_second", "lanes", "could_be_faster",
    "queue_depth_bytes", "queue_peak_bytes", "module_receive_power_watts",
    "module_temperature_celsius",
)  # fmt: skip
"""Gauges; of several queues the fullest."""
NIC_READINGS = (
    "transmit_bytes_total", "receive_bytes_total", "transmit_packets_total",
    "receive_packets_total", "receive_errors_total", "transmit_errors_total",
    "carrier_changes_total", "downs_seen_total", "link_down_total",
    "receive_pause_frames_total", "transmit_pause_frames_total",
    "receive_pause_seconds_total", "transmit_pause_seconds_total",
    "phy_receive_pause_frames_total", "phy_transmit_pause_frames_total",
    "pause_storm_warnings_total", "pause_storm_errors_total",
    "phy_receive_discards_total", "phy_transmit_discards_total",
    "receive_priority_discards_total", "receive_out_of_buffer_total",
    "receive_buffer_over_threshold_total", "phy_receive_crc_errors_total",
    "phy_receive_symbol_errors_total", "phy_receive_pcs_symbol_errors_total",
    "phy_receive_corrected_bits_total", "phy_receive_fec_corrected_blocks_total",
    "phy_receive_fec_uncorrectable_blocks_total", "pcie_read_stalled_seconds_total",
    "pcie_write_stalled_seconds_total", "pcie_buffer_overflow_packets_total",
    "pcie_receive_signal_errors_total", "pcie_transmit_signal_errors_total",
)  # fmt: skip
NIC_LEVELS = (
    "up", "speed_bits_per_second", "pcie_read_stalled_ratio", "pcie_write_stalled_ratio",
)  # fmt: skip
GPU_READINGS = (
    "power_violation_seconds_total", "thermal_violation_seconds_total",
    "reliability_violation_seconds_total", "board_limit_violation_seconds_total",
    "sync_boost_violation_seconds_total", "software_thermal_slowdown_seconds_total",
    "hardware_thermal_slowdown_seconds_total", "power_brake_slowdown_seconds_total",
    "ecc_corrected_errors_total", "ecc_uncorrected_errors_total", "xid_errors_total",
    "pcie_replays_total", "pcie_correctable_errors_total", "nvlink_recovery_errors_total",
    "nvlink_replay_errors_total", "nvlink_crc_flit_errors_total", "energy_joules_total",
)  # fmt: skip
GPU_LEVELS = (
    "up", "utilization_ratio", "sm_active_ratio", "tensor_active_ratio", "sm_clock_hertz",
    "sm_clock_max_hertz", "clock_event_reasons", "temperature_celsius",
    "temperature_slowdown_celsius", "memory_temperature_celsius", "power_watts",
    "power_limit_watts", "performance_state", "xid_last", "remapped_rows_corrected",
    "remapped_rows_uncorrected", "row_remap_failed", "row_remap_pending", "recovery_action",
    "pcie_generation", "pcie_generation_max", "pcie_lanes", "pcie_lanes_max", "processes",
)  # fmt: skip
HOST_READINGS = (
    "pressure_cpu_waiting_seconds_total", "pressure_memory_stalled_seconds_total",
    "pressure_memory_waiting_seconds_total", "pressure_io_stalled_seconds_total",
    "pressure_io_waiting_seconds_total", "pressure_irq_stalled_seconds_total",
    "major_faults_total", "swap_in_pages_total", "swap_out_pages_total",
    "allocation_stalls_total", "oom_kills_total", "cgroup_cpu_throttled_seconds_total",
    "context_switches_total",
)  # fmt: skip
HOST_LEVELS = (
    "cpus", "tasks_running", "tasks_blocked", "load1", "memory_total_bytes",
    "memory_available_bytes", "memory_dirty_bytes", "memory_writeback_bytes",
)  # fmt: skip

PORT_CHOICES = (
    *(Choice(PORT + name, name) for name in PORT_READINGS),
    *(Choice(PORT + name, name, is_max=True) for name in PORT_LEVELS),
)
NIC_CHOICES = (
    *(Choice(NIC + name, name) for name in NIC_READINGS),
    *(Choice(NIC + name, name, is_max=True) for name in NIC_LEVELS),
)
GPU_CHOICES = (
    *(Choice(GPU + name, name) for name in GPU_READINGS),
    *(Choice(GPU + name, name, is_max=True) for name in GPU_LEVELS),
)
HOST_CHOICES = (
    *(Choice(HOST + name, name) for name in HOST_READINGS),
    *(Choice(HOST + name, name, is_max=True) for name in HOST_LEVELS),
    Choice(HOST + "cpu_seconds_total", "cpu_seconds_total", split="mode"),
    # Of all ranks of a host together: seconds a second, so 8 for eight ranks that always wait.
    Choice(STEP + "phase_seconds_total", "step_phase_seconds_total", split="phase"),
)


PORTS = Target(PORT_CHOICES, ("host", "device", "port"))
NICS = Target(NIC_CHOICES, ("host", "device"))
GPUS = Target(GPU_CHOICES, ("host", "gpu"))
HOSTS = Target(HOST_CHOICES, ("host",))

Key = tuple[str, ...]


def read_samples(reader: GridReader, grid: Grid) -> Samples:
    """All that ports, GPUs and hosts of one window are made of, in one question."""
    return reader.ask((PORTS, NICS, GPUS, HOSTS), grid)


def read_ports(
    reader: GridReader,
    topology: Topology | None,
    grid: Grid,
    samples: Samples | None = None,
    targets: tuple[Target, Target] = (PORTS, NICS),
) -> Ports:
    """Every port that was read in this time or is cabled; ``targets`` are ports and interfaces."""
    samples = reader.ask(targets, grid) if samples is None else samples
    own_parts, nic_parts = (reader.parts(target, samples) for target in targets)
    own, nic = (reader.known(target) for target in targets)
    own_keys = {code: own.keys[code] for code in keys_in(own, own_parts)}
    netdevs: dict[Key, Key] = {}
    keys: dict[Key, None] = {}
    if topology is not None:
        for port in topology.ports.values():
            keys[port.id.host, port.id.device, port.id.port] = None
            if port.netdev:
                netdevs[port.id.host, port.netdev] = (port.id.host, port.id.device, port.id.port)
    # An interface without an RDMA device is a port of its own, called 1 as in the topology.
    nic_keys = {
        code: netdevs.get(nic.keys[code], (*nic.keys[code], "1"))
        for code in keys_in(nic, nic_parts)
    }
    keys |= dict.fromkeys(own_keys.values()) | dict.fromkeys(nic_keys.values())
    ordered = sorted(keys)
    row_of = {key: row for row, key in enumerate(ordered)}
    readings, seen_ns = gathered(
        own, own_parts, samples, rows_of_codes(own, own_keys, row_of), len(ordered)
    )
    more, seen_by_nic = gathered(
        nic, nic_parts, samples, rows_of_codes(nic, nic_keys, row_of), len(ordered)
    )
    found = (without_doubles(readings, more), np.maximum(seen_ns, seen_by_nic))
    return make_ports(ordered, topology, found, grid)  # type: ignore[arg-type]


def rows_of_codes(known: Known, keys: Mapping[int, Key], row_of: Mapping[Key, int]) -> Ints:
    """The row of each known thing; -1 for those that are not in this window."""
    rows = np.full(len(known.keys), -1, dtype=np.int64)
    for code, key in keys.items():
        rows[code] = row_of[key]
    return rows


def without_doubles(
    own: Mapping[str, Readings], nic: Mapping[str, Readings]
) -> dict[str, Readings]:
    """All readings; of what both targets say of one port, the port's own."""
    found = {**nic, **own}
    for name in own.keys() & nic.keys():
        more = ~np.isin(nic[name].row, own[name].row)
        row = np.concatenate([own[name].row, nic[name].row[more]])
        values = np.concatenate([own[name].values, nic[name].values[more]])
        order = np.argsort(row, kind="stable")
        found[name] = Readings(
            metric=own[name].metric,
            row=row[order],
            values=values[order],
            label=own[name].label,
            others=dict.fromkeys(nic[name].row[more].tolist(), nic[name].metric),
        )
    return found


def make_ports(
    keys: Sequence[tuple[str, str, str]],
    topology: Topology | None,
    found: tuple[dict[str, Readings], np.ndarray],
    grid: Grid,
) -> Ports:
    """The rows with what the topology knows of them."""
    readings, seen_ns = found
    row_of = {key: row for row, key in enumerate(keys)}
    other_end = np.full(len(keys), -1, dtype=np.int64)
    rail = np.full(len(keys), -1, dtype=np.int64)
    tier = np.full(len(keys), -1, dtype=np.int64)
    rate = best_rates(len(keys), readings)
    netdev = [""] * len(keys)
    is_switch = np.array([host == device for host, device, _ in keys], dtype=bool)
    if topology is not None:
        for row, key in enumerate(keys):
            place = PortId(*key)
            port = topology.ports.get(place)
            if port is not None:
                rail[row] = -1 if port.rail is None else port.rail
                netdev[row] = port.netdev or ""
                rate[row] = np.fmax(rate[row], port.rate_bits_per_second or np.nan)
            far = topology.other_end(place)
            if far is not None:
                other_end[row] = row_of.get((far.host, far.device, far.port), -1)
            node = topology.nodes.get(key[0])
            if is_switch[row] and node is not None and node.tier is not None:
                tier[row] = node.tier
    return Ports(
        grid=grid,
        host=[host for host, _, _ in keys],
        device=[device for _, device, _ in keys],
        port=[port for _, _, port in keys],
        readings=readings,
        seen_ns=seen_ns,
        is_switch=is_switch,
        other_end=other_end,
        rate_bits_per_second=rate,
        rail=rail,
        tier=tier,
        netdev=netdev,
    )


def best_rates(count: int, readings: dict[str, Readings]) -> Floats:
    """The highest rate that was read of each port in this time; NaN where none was."""
    rate = np.full(count, np.nan)
    for name in ("rate_bits_per_second", "speed_bits_per_second"):
        found = readings.get(name)
        if found is not None and found.values.size:
            best = np.fmax.reduce(found.values, axis=1)
            rate[found.row] = np.fmax(rate[found.row], np.where(best > 0, best, np.nan))
    return rate


def read_gpus(reader: GridReader, grid: Grid, samples: Samples | None = None) -> Gpus:
    """Every GPU that was read in this time."""
    samples = reader.ask((GPUS,), grid) if samples is None else samples
    parts, known = reader.parts(GPUS, samples), reader.known(GPUS)
    # An exporter that names GPUs by something else than their index names none of ours.
    found = {code: known.keys[code] for code in keys_in(known, parts)}
    found = {code: key for code, key in found.items() if key[1].isdecimal()}
    keys = sorted(found.values(), key=lambda key: (key[0], int(key[1])))
    row_of = {key: row for row, key in enumerate(keys)}
    rows = rows_of_codes(known, found, row_of)
    readings, seen_ns = gathered(known, parts, samples, rows, len(keys))
    return Gpus(
        grid=grid,
        host=[key[0] for key in keys],
        gpu=[int(key[1]) for key in keys],
        readings=readings,
        seen_ns=seen_ns,
    )


def read_hosts(reader: GridReader, grid: Grid, samples: Samples | None = None) -> Hosts:
    """Every host that was read in this time."""
    samples = reader.ask((HOSTS,), grid) if samples is None else samples
    parts, known = reader.parts(HOSTS, samples), reader.known(HOSTS)
    found = {code: known.keys[code] for code in keys_in(known, parts)}
    keys = sorted(found.values())
    rows = rows_of_codes(known, found, {key: row for row, key in enumerate(keys)})
    readings, seen_ns = gathered(known, parts, samples, rows, len(keys))
    return Hosts(grid=grid, host=[key[0] for key in keys], readings=readings, seen_ns=seen_ns)
