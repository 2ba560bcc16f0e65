"""NIC counters by the driver's own names: one column of all NICs for each file.

The link and NIC counters of a snapshot are exact and wide. Hardware is neither: words instead of
bytes, ticks instead of seconds, counters that stop at 15 or wrap at 2**32. This module converts one
into the other, for files (`simulator.interfaces.fabric_tree`) and for batches alike, so that both
show the same values.

Names and order of a dictionary depend on the fabric alone, never on values. Columns are indexed by
NIC; several names may share one array, so no caller may write into them.

A NIC's port is named by its ``up`` link: it sends what ``up`` carries and receives what ``down``
carries, less what was lost on the way. Pause direction: pause on ``up`` was *received* by the NIC
(from its leaf), pause on ``down`` was *sent* by it (to its leaf).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collector.contract.units import NS, WORD_BYTES
from simulator.snapshot import Counts, LinkCounters, Snapshot
from simulator.topology.model import Bools, Fabric, Floats, Ints, Topology
from simulator.topology.world import World

# Widths -------------------------------------------------------------------------------------------

CLAMP_4 = (1 << 4) - 1
CLAMP_8 = (1 << 8) - 1
CLAMP_16 = (1 << 16) - 1
CLAMP_32 = (1 << 32) - 1
"""Classic InfiniBand counters stop at their end (IBTA volume 1, 16.1.3.5)."""
WRAP_32 = 1 << 32
"""mlx5 queue counters are 32 bits wide in hardware and wrap."""

WAIT_TICK_BYTES = 32
"""PortXmitWait goes on by one for each 32 bytes a lane could have sent: the longer of the two ticks
that are documented for switches. None is for ConnectX. At 400 Gb/s it is full after 11 s of
waiting, as its 32 bits are on real machines."""

# Constants ----------------------------------------------------------------------------------------

LIFESPAN_MS = 10
"""How old a number of `hw_counters` may be: the kernel's default."""
MESSAGE_BYTES = 512 << 10
"""NCCL sends a channel's chunk as one RDMA write: 512 KiB with its default buffers."""
PAUSE_FRAME_BYTES = 64
FRAMES_PER_PAUSE = 2
"""One frame to stop, one to go on."""
MANAGEMENT_PACKETS_PER_SECOND = 1.5
"""Neighbour discovery, LLDP, subnet management: what the kernel itself sends on a fabric port."""
MANAGEMENT_PACKET_BYTES = 94
MANAGEMENT_SPREAD = 0.3
"""Relative spread of management traffic between hosts."""
MULTICAST_SHARE = 0.25
"""Of what the kernel receives there."""

STALLED_SECONDS = 6e-6
"""Of line rate that stands in a NIC's buffer at least, while its host takes writes too slowly: 300
kB at 400 Gb/s. At about this depth it lets its leaf go on, and soon stops it again."""
PERCENT = 100

LOSSLESS_PRIORITY = 3
"""The one that RoCE traffic uses, by custom."""
PRIORITIES = 8
LANES = 4
"""Lanes that mlx5 has error counters for."""

PORT_ACTIVE, PORT_DOWN = 4, 1
PHYSICAL_UP, PHYSICAL_DISABLED, PHYSICAL_POLLING = 5, 3, 2
"""What sysfs calls LinkUp, Disabled (Ethernet without a link), Polling (InfiniBand without one)."""
SUBNET_MANAGER_LID = 1


class PortSpeed(NamedTuple):
    """How a port's rate is printed: InfiniBand's names, on Ethernet as well."""

    name: str
    lanes: int
    bits_per_second: float


NEAREST_SPEEDS = (
    PortSpeed("QDR", 1, 10e9),
    PortSpeed("EDR", 4, 100e9),
    PortSpeed("HDR", 4, 200e9),
    PortSpeed("NDR", 4, 400e9),
    PortSpeed("XDR", 4, 800e9),
)
DOWN_SPEEDS = {
    # mlx5 without a link: drivers/infiniband/hw/mlx5/main.c begins with 4X QDR for Ethernet, and an
    # InfiniBand port that polls is at its slowest.
    Fabric.ROCE: PortSpeed("QDR", 4, 40e9),
    Fabric.INFINIBAND: PortSpeed("SDR", 1, 2.5e9),
}


def port_speed(topology: Topology) -> PortSpeed:
    wanted = topology.speed.bits_per_second
    return min(NEAREST_SPEEDS, key=lambda speed: abs(speed.bits_per_second - wanted))


# Shared sums --------------------------------------------------------------------------------------


class Ports(NamedTuple):
    """Links of all NICs, and sums that several counters share."""

    links: LinkCounters
    up: Ints
    down: Ints
    pcie_in: Ints
    zero: Counts
    sent_bytes: Counts
    sent_packets: Counts
    arrived_bytes: Counts
    """At the port: without what was lost on the cable."""
    arrived_packets: Counts
    discarded_packets: Counts
    """Arrived, and dropped because the NIC's buffer was full."""
    received_bytes: Counts
    """Given to the host."""
    received_packets: Counts


def view_ports(snapshot: Snapshot) -> Ports:
    topology, links = snapshot.topology, snapshot.host_links
    nics = np.arange(topology.nics, dtype=np.int32)
    up, down, pcie_in = topology.up(nics), topology.down(nics), topology.pcie_in(nics)
    packet_bytes: Floats = links.bytes[down] / np.maximum(links.packets[down], 1)
    lost, discarded = links.lost_packets[down], links.dropped_packets[pcie_in]
    arrived_packets = np.maximum(links.packets[down] - lost, 0)
    return Ports(
        links=links,
        up=up,
        down=down,
        pcie_in=pcie_in,
        zero=np.zeros(topology.nics, dtype=np.int64),
        sent_bytes=links.bytes[up],
        sent_packets=links.packets[up],
        arrived_bytes=less_packets(links.bytes[down], lost, packet_bytes),
        arrived_packets=arrived_packets,
        discarded_packets=discarded,
        received_bytes=less_packets(links.bytes[down], lost + discarded, packet_bytes),
        received_packets=np.maximum(arrived_packets - discarded, 0),
    )


def less_packets(amount: Counts, packets: Counts, packet_bytes: Floats) -> Counts:
    removed: Counts = np.rint(packets * packet_bytes).astype(np.int64)
    left: Counts = np.maximum(amount - removed, 0)
    return left


def link_is_up(world: World) -> Bools:
    nics = np.arange(world.topology.nics, dtype=np.int32)
    is_up: Bools = world.link_is_live()[world.topology.up(nics)]
    return is_up


def link_downs(ports: Ports) -> Counts:
    """How often each NIC's link went down: both directions go together, and count as one."""
    return np.maximum(ports.links.downs[ports.up], ports.links.downs[ports.down])


def clamp(values: Counts, maximum: int) -> Counts:
    return np.minimum(values, maximum)


def wrap(values: Counts) -> Counts:
    wrapped: Counts = values % WRAP_32
    return wrapped


def scatter(nics: int) -> Floats:
    """A constant number in [0, 1) for each NIC, which makes NICs differ a little."""
    mixed = (np.arange(nics, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    spread: Floats = (mixed >> np.uint64(40)).astype(np.float64) / (1 << 24)
    return spread


def management_packets(snapshot: Snapshot) -> Counts:
    """What the kernel has sent on each fabric port since boot; it receives about as much."""
    topology = snapshot.topology
    now_ns = snapshot.start_unix_ns + round(snapshot.time_s * NS)
    uptime_s = np.maximum(now_ns - snapshot.hosts.boot_unix_ns, 0) / NS
    rate = MANAGEMENT_PACKETS_PER_SECOND * (1.0 + MANAGEMENT_SPREAD * scatter(topology.nics))
    packets: Counts = (uptime_s[snapshot.world.nic_host] * rate).astype(np.int64)
    return packets


def count_multicast(packets: Counts) -> Counts:
    multicast: Counts = (packets * MULTICAST_SHARE).astype(np.int64)
    return multicast


# The port itself ----------------------------------------------------------------------------------


def port_columns(snapshot: Snapshot) -> dict[str, Counts]:
    """The numbers in a port's description, below `sys/class/infiniband/<device>/ports/1/`.

    `state`, `phys_state`, `lid` and `sm_lid` are the numbers in those files; `rate` is in bits a
    second and `lanes` its width (both are in the file `rate`).
    """
    world, topology = snapshot.world, snapshot.topology
    ports = view_ports(snapshot)
    is_up = link_is_up(world)
    is_infiniband = world.is_infiniband
    built, down = port_speed(topology), DOWN_SPEEDS[topology.fabric]
    share = np.minimum(world.link_speed_share[ports.up], world.link_speed_share[ports.down])
    # A width downgrade leaves whole lanes; a port that has any speed at all has one.
    lanes = np.maximum(np.ceil(built.lanes * share - 1e-9), 1.0).astype(np.int64)
    rate = np.rint(built.bits_per_second * share).astype(np.int64)
    lid = len(topology.switches) + SUBNET_MANAGER_LID + 1 + np.arange(topology.nics)
    managed = is_up & is_infiniband
    without_link = PHYSICAL_POLLING if is_infiniband else PHYSICAL_DISABLED
    return {
        "state": np.where(is_up, PORT_ACTIVE, PORT_DOWN),
        "phys_state": np.where(is_up, PHYSICAL_UP, without_link),
        "rate": np.where(is_up, rate, round(down.bits_per_second)),
        "lanes": np.where(is_up, lanes, down.lanes),
        "lid": np.where(managed, lid, 0),
        "sm_lid": np.where(managed, SUBNET_MANAGER_LID, 0),
    }


# counters/ and hw_counters/ -----------------------------------------------------------------------


def hca_columns(snapshot: Snapshot) -> dict[str, Counts]:
    """``counters/…`` and ``hw_counters/…`` below `sys/class/infiniband/<device>/ports/1/`."""
    ports = view_ports(snapshot)
    columns = classic_traffic(snapshot, ports) | classic_errors(snapshot, ports)
    hardware = queue_counters(snapshot, ports)
    if not snapshot.world.is_infiniband:
        hardware |= congestion_counters(snapshot, ports)
    hardware["lifespan"] = np.full_like(ports.zero, LIFESPAN_MS)
    columns = {f"counters/{name}": column for name, column in columns.items()}
    return columns | {f"hw_counters/{name}": column for name, column in hardware.items()}


def classic_traffic(snapshot: Snapshot, ports: Ports) -> dict[str, Counts]:
    """PortCountersExtended: 64 bits each. On Ethernet they count RDMA traffic only."""
    kernel = management_packets(snapshot) if snapshot.world.is_infiniband else ports.zero
    multicast = count_multicast(kernel)
    kernel_bytes = kernel * MANAGEMENT_PACKET_BYTES
    return {
        "port_xmit_data": (ports.sent_bytes + kernel_bytes) // WORD_BYTES,
        "port_rcv_data": (ports.received_bytes + kernel_bytes) // WORD_BYTES,
        "port_xmit_packets": ports.sent_packets + kernel,
        "port_rcv_packets": ports.received_packets + kernel,
        "unicast_xmit_packets": ports.sent_packets + kernel - multicast,
        "unicast_rcv_packets": ports.received_packets + kernel - multicast,
        "multicast_xmit_packets": multicast,
        "multicast_rcv_packets": multicast,
    }


def classic_errors(snapshot: Snapshot, ports: Ports) -> dict[str, Counts]:
    """PortCounters: narrow, and they stop at their end. On Ethernet mlx5 leaves them all at 0."""
    links, zero = ports.links, ports.zero
    nothing = dict.fromkeys(CLASSIC_ERRORS, zero)
    if not snapshot.world.is_infiniband:
        return nothing
    recoveries = np.maximum(links.recoveries[ports.up], links.recoveries[ports.down])
    return nothing | {
        "symbol_error": clamp(links.symbol_errors[ports.down], CLAMP_16),
        "port_rcv_errors": clamp(links.corrupted_packets[ports.down], CLAMP_16),
        "port_xmit_discards": clamp(links.dropped_packets[ports.up], CLAMP_16),
        "link_error_recovery": clamp(recoveries, CLAMP_8),
        "link_downed": clamp(link_downs(ports), CLAMP_8),
        # The threshold of local errors that, once exceeded, makes a port retrain.
        "local_link_integrity_errors": clamp(recoveries, CLAMP_4),
        "port_xmit_wait": clamp(wait_ticks(snapshot.topology, ports), CLAMP_32),
    }


CLASSIC_ERRORS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_discards",
    "port_xmit_constraint_errors",
    "port_rcv_constraint_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
    "port_xmit_wait",
)


def wait_ticks(topology: Topology, ports: Ports) -> Counts:
    """Time without credit in the port's own ticks; before it is cut to 32 bits."""
    speed = port_speed(topology)
    bytes_per_ns = speed.bits_per_second / speed.lanes / 8 / NS
    ticks: Counts = (ports.links.wait_ns[ports.up] * (bytes_per_ns / WAIT_TICK_BYTES)).astype(
        np.int64
    )
    return ticks


def queue_counters(snapshot: Snapshot, ports: Ports) -> dict[str, Counts]:
    """mlx5's counters over its queue pairs; those without a cause in the model stay at 0."""
    nics = snapshot.nics
    timeouts = wrap(nics.ack_timeouts)
    return dict.fromkeys(QUEUE_COUNTERS, ports.zero) | {
        "rx_write_requests": wrap(ports.received_bytes // MESSAGE_BYTES),
        "out_of_sequence": wrap(nics.out_of_sequence),
        "packet_seq_err": wrap(nics.sequence_errors),
        "local_ack_timeout_err": timeouts,
        # Adaptive retransmission is on by default on RoCE, and there is none on InfiniBand.
        "roce_adp_retrans": ports.zero if snapshot.world.is_infiniband else timeouts,
    }


QUEUE_COUNTERS = (
    "rx_write_requests",
    "rx_read_requests",
    "rx_atomic_requests",
    "rx_dct_connect",
    "out_of_buffer",
    "out_of_sequence",
    "duplicate_request",
    "rnr_nak_retry_err",
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "resp_local_length_error",
    "resp_cqe_error",
    "req_cqe_error",
    "req_remote_invalid_request",
    "req_remote_access_errors",
    "resp_remote_access_errors",
    "resp_cqe_flush_error",
    "req_cqe_flush_error",
    "req_transport_retries_exceeded",
    "req_rnr_retries_exceeded",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "roce_slow_restart_cnps",
    "roce_slow_restart_trans",
)
"""drivers/infiniband/hw/mlx5/counters.c; the last five are there on InfiniBand as well."""


def congestion_counters(snapshot: Snapshot, ports: Ports) -> dict[str, Counts]:
    """Counters of RoCE ports only: DCQCN. 64 bits each."""
    return {
        "rp_cnp_ignored": ports.zero,
        "rp_cnp_handled": snapshot.nics.cnp_handled,
        "np_ecn_marked_roce_packets": snapshot.nics.marked_received,
        "np_cnp_sent": snapshot.nics.cnp_sent,
        "rx_icrc_encapsulated": ports.zero,
    }


# /sys/class/net -----------------------------------------------------------------------------------


def netdev_columns(snapshot: Snapshot) -> dict[str, Counts]:
    """Numbers below `sys/class/net/<interface>/`: ``statistics/…``, ``carrier_changes``.

    RDMA bypasses the kernel: only what the kernel itself sends is here. Damaged frames are, because
    mlx5 fills those in from the wire; on InfiniBand the interface is software and counts none.
    """
    ports = view_ports(snapshot)
    packets = management_packets(snapshot)
    damaged = ports.zero
    if not snapshot.world.is_infiniband:
        damaged = ports.links.corrupted_packets[ports.down]
    statistics = dict.fromkeys(NETDEV_STATISTICS, ports.zero) | {
        "rx_packets": packets,
        "tx_packets": packets,
        "rx_bytes": packets * MANAGEMENT_PACKET_BYTES,
        "tx_bytes": packets * MANAGEMENT_PACKET_BYTES,
        "multicast": count_multicast(packets),
        "rx_errors": damaged,
        "rx_crc_errors": damaged,
    }
    columns = {f"statistics/{name}": column for name, column in statistics.items()}
    # Once up at boot; every outage is two changes, and one that lasts only one so far.
    columns["carrier_changes"] = 1 + 2 * link_downs(ports) - ~link_is_up(snapshot.world)
    return columns


NETDEV_STATISTICS = (
    "collisions",
    "multicast",
    "rx_bytes",
    "rx_compressed",
    "rx_crc_errors",
    "rx_dropped",
    "rx_errors",
    "rx_fifo_errors",
    "rx_frame_errors",
    "rx_length_errors",
    "rx_missed_errors",
    "rx_nohandler",
    "rx_over_errors",
    "rx_packets",
    "tx_aborted_errors",
    "tx_bytes",
    "tx_carrier_errors",
    "tx_compressed",
    "tx_dropped",
    "tx_errors",
    "tx_fifo_errors",
    "tx_heartbeat_errors",
    "tx_packets",
    "tx_window_errors",
)


# ethtool -S ---------------------------------------------------------------------------------------


def ethtool_columns(snapshot: Snapshot) -> dict[str, Counts]:
    """Statistics of mlx5 by their names in ``ethtool -S``, in the driver's order.

    InfiniBand's interfaces have the groups of the wire and of PCIe too, but no flow control.
    """
    ports = view_ports(snapshot)
    columns = kernel_statistics(snapshot, ports)
    if not snapshot.world.is_infiniband:
        columns |= rdma_statistics(ports)
    columns |= wire_statistics(snapshot, ports) | lane_statistics(ports)
    columns |= pcie_statistics(snapshot, ports)
    if not snapshot.world.is_infiniband:
        columns |= priority_statistics(snapshot, ports)
    columns |= dict.fromkeys(MODULE_EVENTS, ports.zero)
    return columns


MODULE_EVENTS = ("module_unplug", "module_bus_stuck", "module_high_temp", "module_bad_shorted")


def kernel_statistics(snapshot: Snapshot, ports: Ports) -> dict[str, Counts]:
    """Packets through the kernel's own queues."""
    packets = management_packets(snapshot)
    multicast = count_multicast(packets)
    return {
        "rx_packets": packets,
        "rx_bytes": packets * MANAGEMENT_PACKET_BYTES,
        "tx_packets": packets,
        "tx_bytes": packets * MANAGEMENT_PACKET_BYTES,
        "rx_ecn_mark": ports.zero,
        "rx_out_of_buffer": ports.zero,
        "rx_vport_unicast_packets": packets - multicast,
        "rx_vport_unicast_bytes": (packets - multicast) * MANAGEMENT_PACKET_BYTES,
        "tx_vport_unicast_packets": packets - multicast,
        "tx_vport_unicast_bytes": (packets - multicast) * MANAGEMENT_PACKET_BYTES,
        "rx_vport_multicast_packets": multicast,
        "rx_vport_multicast_bytes": multicast * MANAGEMENT_PACKET_BYTES,
        "tx_vport_multicast_packets": multicast,
        "tx_vport_multicast_bytes": multicast * MANAGEMENT_PACKET_BYTES,
    }


def rdma_statistics(ports: Ports) -> dict[str, Counts]:
    """Traffic that bypasses the kernel, in bytes."""
    return {
        "rx_vport_rdma_unicast_packets": ports.received_packets,
        "rx_vport_rdma_unicast_bytes": ports.received_bytes,
        "tx_vport_rdma_unicast_packets": ports.sent_packets,
        "tx_vport_rdma_unicast_bytes": ports.sent_bytes,
        "rx_vport_rdma_multicast_packets": ports.zero,
        "rx_vport_rdma_multicast_bytes": ports.zero,
        "tx_vport_rdma_multicast_packets": ports.zero,
        "tx_vport_rdma_multicast_bytes": ports.zero,
    }


def wire_statistics(snapshot: Snapshot, ports: Ports) -> dict[str, Counts]:
    """The physical port: all frames, also pause frames and what the kernel sends."""
    links, zero = ports.links, ports.zero
    kernel = management_packets(snapshot)
    kernel_bytes = kernel * MANAGEMENT_PACKET_BYTES
    stopped, stopping = links.pause_frames[ports.up], links.pause_frames[ports.down]
    damaged = links.corrupted_packets[ports.down]
    sent_bytes = ports.sent_bytes + kernel_bytes + stopping * PAUSE_FRAME_BYTES
    arrived_bytes = ports.arrived_bytes + kernel_bytes + stopped * PAUSE_FRAME_BYTES
    return {
        "tx_packets_phy": ports.sent_packets + kernel + stopping,
        "rx_packets_phy": ports.arrived_packets + kernel + stopped,
        "rx_crc_errors_phy": damaged,
        "tx_bytes_phy": sent_bytes,
        "rx_bytes_phy": arrived_bytes,
        # A block that correction could not repair spoils its frames' code and their checksum.
        "rx_symbol_err_phy": damaged,
        "tx_mac_control_phy": stopping,
        "rx_mac_control_phy": stopped,
        "rx_pause_ctrl_phy": stopped,
        "tx_pause_ctrl_phy": stopping,
        "rx_discards_phy": ports.discarded_packets,
        "tx_discards_phy": links.dropped_packets[ports.up],
        "tx_errors_phy": zero,
        "rx_undersize_pkts_phy": zero,
        "rx_fragments_phy": zero,
        "rx_jabbers_phy": zero,
        "link_down_events_phy": link_downs(ports),
        "rx_bits_phy": links.bits[ports.down],
        "rx_pcs_symbol_err_phy": links.symbol_errors[ports.down],
        "rx_corrected_bits_phy": links.corrected_bits[ports.down],
        # A NIC's buffer passes its mark whenever it has to stop its leaf.
        "rx_buffer_passed_thres_phy": stopping // FRAMES_PER_PAUSE,
    }


def lane_statistics(ports: Ports) -> dict[str, Counts]:
    """Raw errors by lane: in every cable one lane is worse than the others."""
    links = ports.links
    raw = links.corrected_bits[ports.down] + links.symbol_errors[ports.down]
    worst = (scatter(len(raw)) * LANES).astype(np.int64)
    # The worst of four has two fifths, the others a fifth each. None ever falls as the sum grows.
    return {
        f"rx_err_lane_{lane}_phy": np.where(worst == lane, 2 * raw, raw) // (LANES + 1)
        for lane in range(LANES)
    }


def pcie_statistics(snapshot: Snapshot, ports: Ports) -> dict[str, Counts]:
    """Whether the host accepted what the NIC wrote into its memory.

    Stalls are a share of the last second on hardware, and of the last tick here: of it, the NIC's
    buffer was full. The events are seconds above 30 percent on hardware; here whole seconds for
    which the leaf was held up by this NIC, which is less when stalls come and go.
    """
    links = ports.links
    if snapshot.world.is_infiniband:
        held_up_s = links.wait_ns[ports.down] // NS
    else:
        held_up_s = links.paused_us[ports.down] // 1_000_000
    standing = round(STALLED_SECONDS * snapshot.topology.speed.bits_per_second / 8)
    full = np.minimum(links.queue_bytes[ports.pcie_in], standing)
    return {
        "rx_pci_signal_integrity": ports.zero,
        "tx_pci_signal_integrity": ports.zero,
        "outbound_pci_buffer_overflow": ports.discarded_packets,
        "outbound_pci_stalled_rd": ports.zero,
        "outbound_pci_stalled_wr": PERCENT * full // standing,
        "outbound_pci_stalled_rd_events": ports.zero,
        "outbound_pci_stalled_wr_events": held_up_s,
    }


def priority_statistics(snapshot: Snapshot, ports: Ports) -> dict[str, Counts]:
    """Traffic by priority, and pauses; a storm needs a host that takes nothing for seconds."""
    kernel = management_packets(snapshot)
    columns: dict[str, Counts] = {}
    for priority in range(PRIORITIES):
        columns |= traffic_of_priority(priority, kernel, ports)
    links, name = ports.links, f"prio{LOSSLESS_PRIORITY}"
    stopped, stopping = links.pause_frames[ports.up], links.pause_frames[ports.down]
    return columns | {
        f"rx_{name}_pause": stopped,
        f"rx_{name}_pause_duration": links.paused_us[ports.up],
        f"tx_{name}_pause": stopping,
        f"tx_{name}_pause_duration": links.paused_us[ports.down],
        f"rx_{name}_pause_transition": stopped // FRAMES_PER_PAUSE,
        "tx_pause_storm_warning_events": ports.zero,
        "tx_pause_storm_error_events": ports.zero,
    }


def traffic_of_priority(priority: int, kernel: Counts, ports: Ports) -> dict[str, Counts]:
    """RDMA on the lossless priority, the kernel's on the lowest, nothing on the others."""
    zero = ports.zero
    received_bytes = sent_bytes = received_packets = sent_packets = discarded = zero
    if priority == LOSSLESS_PRIORITY:
        received_bytes, sent_bytes = ports.arrived_bytes, ports.sent_bytes
        received_packets, sent_packets = ports.arrived_packets, ports.sent_packets
        discarded = ports.discarded_packets
    elif priority == 0:
        received_packets = sent_packets = kernel
        received_bytes = sent_bytes = kernel * MANAGEMENT_PACKET_BYTES
    return {
        f"rx_prio{priority}_bytes": received_bytes,
        f"rx_prio{priority}_packets": received_packets,
        f"rx_prio{priority}_discards": discarded,
        f"tx_prio{priority}_bytes": sent_bytes,
        f"tx_prio{priority}_packets": sent_packets,
        f"rx_prio{priority}_buf_discard": zero,
        f"rx_prio{priority}_cong_discard": zero,
        f"rx_prio{priority}_marked": zero,
    }
