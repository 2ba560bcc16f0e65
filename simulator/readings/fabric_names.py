"""The agent's names of mlx5's counters: a copy of its tables for sysfs, netdev and ethtool.

The simulator may not import the agent, so names and factors are repeated here; a test compares
both. Keys are those of `simulator.interfaces.columns`.
"""

from __future__ import annotations

from typing import NamedTuple

from collector.contract.counters import Overflow, Width
from collector.contract.units import WORD_BYTES

WIDE = Width()
CLAMPS_4, CLAMPS_8, CLAMPS_16, CLAMPS_32 = (Width(bits, Overflow.CLAMP) for bits in (4, 8, 16, 32))
WRAPS_32 = Width(32, Overflow.WRAP)
MILLISECOND, MICROSECOND, PERCENT = 0.001, 0.000_001, 0.01
MEGABIT = 1e6


class Name(NamedTuple):
    """The metric of a native counter; ``factor`` times its number is the metric's value."""

    metric: str
    factor: float = 1.0
    width: Width = WIDE
    labels: tuple[tuple[str, str], ...] = ()


def _names(prefix: str, metrics: dict[str, str], width: Width) -> dict[str, Name]:
    return {
        f"{prefix}/{native}": Name(f"fabric_port_{metric}_total", width=width)
        for native, metric in metrics.items()
    }


PORT_ATTRIBUTES = {
    "state": "fabric_port_state",
    "phys_state": "fabric_port_physical_state",
    "rate": "fabric_port_rate_bits_per_second",
    "lanes": "fabric_port_lanes",
    "lid": "fabric_port_lid",
    "sm_lid": "fabric_port_sm_lid",
}

PORT_COUNTERS: dict[str, Name] = {
    "counters/port_xmit_data": Name("fabric_port_transmit_bytes_total", float(WORD_BYTES)),
    "counters/port_rcv_data": Name("fabric_port_receive_bytes_total", float(WORD_BYTES)),
    **_names(
        "counters",
        {
            "port_xmit_packets": "transmit_packets",
            "port_rcv_packets": "receive_packets",
            "unicast_xmit_packets": "transmit_unicast_packets",
            "unicast_rcv_packets": "receive_unicast_packets",
            "multicast_xmit_packets": "transmit_multicast_packets",
            "multicast_rcv_packets": "receive_multicast_packets",
        },
        WIDE,
    ),
    **_names("counters", {"port_xmit_wait": "transmit_wait_ticks"}, CLAMPS_32),
    **_names(
        "counters",
        {
            "port_xmit_discards": "transmit_discards",
            "symbol_error": "symbol_errors",
            "port_rcv_errors": "receive_errors",
            "port_rcv_remote_physical_errors": "receive_remote_physical_errors",
            "port_rcv_switch_relay_errors": "receive_switch_relay_errors",
            "VL15_dropped": "vl15_dropped",
        },
        CLAMPS_16,
    ),
    **_names(
        "counters",
        {
            "port_xmit_constraint_errors": "transmit_constraint_errors",
            "port_rcv_constraint_errors": "receive_constraint_errors",
            "link_error_recovery": "link_error_recoveries",
            "link_downed": "link_downed",
        },
        CLAMPS_8,
    ),
    **_names(
        "counters",
        {
            "local_link_integrity_errors": "local_link_integrity_errors",
            "excessive_buffer_overrun_errors": "excessive_buffer_overruns",
        },
        CLAMPS_4,
    ),
    "hw_counters/lifespan": Name("fabric_port_hw_counters_lifespan_seconds", MILLISECOND),
    **_names(
        "hw_counters",
        {
            "rx_write_requests": "receive_write_requests",
            "rx_read_requests": "receive_read_requests",
            "rx_atomic_requests": "receive_atomic_requests",
            "rx_dct_connect": "receive_dct_connects",
            "out_of_buffer": "receive_out_of_buffer",
            "out_of_sequence": "receive_out_of_sequence",
            "duplicate_request": "receive_duplicate_requests",
            "rnr_nak_retry_err": "rnr_naks",
            "packet_seq_err": "sequence_naks",
            "implied_nak_seq_err": "implied_sequence_naks",
            "local_ack_timeout_err": "ack_timeouts",
            "resp_local_length_error": "responder_local_length_errors",
            "resp_cqe_error": "responder_completion_errors",
            "resp_cqe_flush_error": "responder_flush_errors",
            "resp_remote_access_errors": "responder_remote_access_errors",
            "req_cqe_error": "requester_completion_errors",
            "req_cqe_flush_error": "requester_flush_errors",
            "req_remote_invalid_request": "requester_remote_invalid_requests",
            "req_remote_access_errors": "requester_remote_access_errors",
            "req_transport_retries_exceeded": "transport_retries_exceeded",
            "req_rnr_retries_exceeded": "rnr_retries_exceeded",
            "roce_adp_retrans": "adaptive_retransmits",
            "roce_adp_retrans_to": "adaptive_retransmit_timeouts",
            "roce_slow_restart": "slow_restarts_used",
            "roce_slow_restart_cnps": "slow_restart_cnps",
            "roce_slow_restart_trans": "slow_restart_transitions",
        },
        WRAPS_32,
    ),
    **_names(
        "hw_counters",
        {
            "rp_cnp_handled": "cnp_handled",
            "rp_cnp_ignored": "cnp_ignored",
            "np_cnp_sent": "cnp_sent",
            "np_ecn_marked_roce_packets": "receive_ecn_marked_packets",
            "rx_icrc_encapsulated": "receive_icrc_errors",
        },
        WIDE,
    ),
}

NETDEV_COUNTERS: dict[str, Name] = {
    native: Name(f"fabric_nic_{metric}_total")
    for native, metric in {
        "statistics/rx_bytes": "receive_bytes",
        "statistics/tx_bytes": "transmit_bytes",
        "statistics/rx_packets": "receive_packets",
        "statistics/tx_packets": "transmit_packets",
        "statistics/rx_errors": "receive_errors",
        "statistics/tx_errors": "transmit_errors",
        "statistics/rx_dropped": "receive_drops",
        "statistics/tx_dropped": "transmit_drops",
        "statistics/rx_missed_errors": "receive_missed",
        "statistics/rx_fifo_errors": "receive_fifo_errors",
        "statistics/tx_carrier_errors": "transmit_carrier_errors",
        "statistics/multicast": "receive_multicast_packets",
        "carrier_changes": "carrier_changes",
    }.items()
}

_PRIORITIES = range(8)
_LANES = range(4)
_UNICAST, _MULTICAST = (("cast", "unicast"),), (("cast", "multicast"),)

ETHTOOL_COUNTERS: dict[str, Name] = {
    **{
        native: Name(f"fabric_nic_{metric}_total")
        for native, metric in {
            "rx_pause_ctrl_phy": "phy_receive_pause_frames",
            "tx_pause_ctrl_phy": "phy_transmit_pause_frames",
            "tx_pause_storm_warning_events": "pause_storm_warnings",
            "tx_pause_storm_error_events": "pause_storm_errors",
            "rx_bytes_phy": "phy_receive_bytes",
            "tx_bytes_phy": "phy_transmit_bytes",
            "rx_bits_phy": "phy_receive_bits",
            "rx_discards_phy": "phy_receive_discards",
            "tx_discards_phy": "phy_transmit_discards",
            "rx_crc_errors_phy": "phy_receive_crc_errors",
            "rx_symbol_err_phy": "phy_receive_symbol_errors",
            "rx_pcs_symbol_err_phy": "phy_receive_pcs_symbol_errors",
            "rx_corrected_bits_phy": "phy_receive_corrected_bits",
            "link_down_events_phy": "link_down",
            "rx_out_of_buffer": "receive_out_of_buffer",
            "rx_buffer_passed_thres_phy": "receive_buffer_over_threshold",
            "rx_ecn_mark": "receive_ecn_marked_packets",
            "rx_pci_signal_integrity": "pcie_receive_signal_errors",
            "tx_pci_signal_integrity": "pcie_transmit_signal_errors",
            "outbound_pci_stalled_rd_events": "pcie_read_stalled_seconds",
            "outbound_pci_stalled_wr_events": "pcie_write_stalled_seconds",
            "outbound_pci_buffer_overflow": "pcie_buffer_overflow_packets",
        }.items()
    },
    "outbound_pci_stalled_rd": Name("fabric_nic_pcie_read_stalled_ratio", PERCENT),
    "outbound_pci_stalled_wr": Name("fabric_nic_pcie_write_stalled_ratio", PERCENT),
    **{
        f"{way}_vport_rdma_{cast}_{what}": Name(
            f"fabric_nic_rdma_{words}_{what}_total", labels=labels
        )
        for way, words in (("rx", "receive"), ("tx", "transmit"))
        for cast, labels in (("unicast", _UNICAST), ("multicast", _MULTICAST))
        for what in ("bytes", "packets")
    },
    **{
        native.format(priority): Name(
            f"fabric_nic_{metric}_total", factor, labels=(("priority", str(priority)),)
        )
        for priority in _PRIORITIES
        for native, metric, factor in (
            ("rx_prio{}_pause", "receive_pause_frames", 1.0),
            ("tx_prio{}_pause", "transmit_pause_frames", 1.0),
            ("rx_prio{}_pause_duration", "receive_pause_seconds", MICROSECOND),
            ("tx_prio{}_pause_duration", "transmit_pause_seconds", MICROSECOND),
            ("rx_prio{}_pause_transition", "receive_pause_transitions", 1.0),
            ("rx_prio{}_discards", "receive_priority_discards", 1.0),
            ("rx_prio{}_buf_discard", "receive_priority_buffer_discards", 1.0),
            ("rx_prio{}_cong_discard", "receive_priority_congestion_discards", 1.0),
            ("rx_prio{}_marked", "receive_priority_ecn_marked_packets", 1.0),
        )
    },
    **{
        f"rx_err_lane_{lane}_phy": Name(
            "fabric_nic_phy_receive_lane_errors_total", labels=(("lane", str(lane)),)
        )
        for lane in _LANES
    },
    **{
        f"module_{event}": Name("fabric_nic_module_events_total", labels=(("event", event),))
        for event in ("unplug", "bus_stuck", "high_temp", "bad_shorted")
    },
}
"""An agent does not send any other counter."""
