"""Counters of RDMA devices by driver: native file name → catalog metric, factor, width.

The names are the file names below `/sys/class/infiniband/<device>/ports/<port>/`. A driver is never
a fixed structure: names come and go with kernel, firmware and what an administrator switched on.
So a table only maps a name if it is there; which names *must* be there stands separately
(`Driver.expected`).
"""

from __future__ import annotations

from typing import NamedTuple

from collector.contract.counters import WIDE, WRAPS_32, Overflow, Width
from collector.contract.units import WORD_BYTES

CLAMPS_4 = Width(4, Overflow.CLAMP)
CLAMPS_8 = Width(8, Overflow.CLAMP)
CLAMPS_16 = Width(16, Overflow.CLAMP)
CLAMPS_32 = Width(32, Overflow.CLAMP)

MILLISECOND = 0.001


class Row(NamedTuple):
    """Our metric for one native counter; ``factor`` times its number is the metric's value."""

    metric: str
    width: Width = WIDE
    factor: float = 1
    labels: tuple[tuple[str, str], ...] = ()


Table = dict[str, Row]

CLASSIC: Table = {
    # IBTA volume 1, 16.1.3.5 PortCounters and 16.1.4 PortCountersExtended. The widths are those of
    # the attribute that the kernel reads (drivers/infiniband/core/sysfs.c, PORT_PMA_ATTR). Narrow
    # ones stop at their end: a 15 in a 4-bit counter means "at least 15, and blind since".
    "port_xmit_data": Row("fabric_port_transmit_bytes_total", factor=WORD_BYTES),
    "port_rcv_data": Row("fabric_port_receive_bytes_total", factor=WORD_BYTES),
    "port_xmit_packets": Row("fabric_port_transmit_packets_total"),
    "port_rcv_packets": Row("fabric_port_receive_packets_total"),
    "unicast_xmit_packets": Row("fabric_port_transmit_unicast_packets_total"),
    "unicast_rcv_packets": Row("fabric_port_receive_unicast_packets_total"),
    "multicast_xmit_packets": Row("fabric_port_transmit_multicast_packets_total"),
    "multicast_rcv_packets": Row("fabric_port_receive_multicast_packets_total"),
    "port_xmit_wait": Row("fabric_port_transmit_wait_ticks_total", CLAMPS_32),
    "port_xmit_discards": Row("fabric_port_transmit_discards_total", CLAMPS_16),
    "symbol_error": Row("fabric_port_symbol_errors_total", CLAMPS_16),
    "port_rcv_errors": Row("fabric_port_receive_errors_total", CLAMPS_16),
    "port_rcv_remote_physical_errors": Row(
        "fabric_port_receive_remote_physical_errors_total", CLAMPS_16
    ),
    "port_rcv_switch_relay_errors": Row("fabric_port_receive_switch_relay_errors_total", CLAMPS_16),
    "port_xmit_constraint_errors": Row("fabric_port_transmit_constraint_errors_total", CLAMPS_8),
    "port_rcv_constraint_errors": Row("fabric_port_receive_constraint_errors_total", CLAMPS_8),
    "link_error_recovery": Row("fabric_port_link_error_recoveries_total", CLAMPS_8),
    "link_downed": Row("fabric_port_link_downed_total", CLAMPS_8),
    "local_link_integrity_errors": Row("fabric_port_local_link_integrity_errors_total", CLAMPS_4),
    "excessive_buffer_overrun_errors": Row("fabric_port_excessive_buffer_overruns_total", CLAMPS_4),
    "VL15_dropped": Row("fabric_port_vl15_dropped_total", CLAMPS_16),
}

# For drivers that count traffic in hw_counters under labels of their own: twice would be too much.
CLASSIC_WITHOUT_TRAFFIC: Table = {
    name: row for name, row in CLASSIC.items() if not name.endswith(("_data", "_packets"))
}

# Only devices with the extended attribute have these; their absence is no news.
CLASSIC_EXPECTED = frozenset(CLASSIC) - {
    "unicast_xmit_packets",
    "unicast_rcv_packets",
    "multicast_xmit_packets",
    "multicast_rcv_packets",
}

LIFESPAN: Table = {
    # How old a number in hw_counters may be: the core asks the firmware again only after this.
    "lifespan": Row("fabric_port_hw_counters_lifespan_seconds", factor=MILLISECOND)
}

MLX5: Table = LIFESPAN | {
    # Queue counters: 32 bits in hardware and widened by the driver, so they wrap
    # (drivers/infiniband/hw/mlx5/counters.c; DPDK commit c5193a0b agrees).
    "rx_write_requests": Row("fabric_port_receive_write_requests_total", WRAPS_32),
    "rx_read_requests": Row("fabric_port_receive_read_requests_total", WRAPS_32),
    "rx_atomic_requests": Row("fabric_port_receive_atomic_requests_total", WRAPS_32),
    "rx_dct_connect": Row("fabric_port_receive_dct_connects_total", WRAPS_32),
    "out_of_buffer": Row("fabric_port_receive_out_of_buffer_total", WRAPS_32),
    "out_of_sequence": Row("fabric_port_receive_out_of_sequence_total", WRAPS_32),
    "duplicate_request": Row("fabric_port_receive_duplicate_requests_total", WRAPS_32),
    "rnr_nak_retry_err": Row("fabric_port_rnr_naks_total", WRAPS_32),
    "packet_seq_err": Row("fabric_port_sequence_naks_total", WRAPS_32),
    "implied_nak_seq_err": Row("fabric_port_implied_sequence_naks_total", WRAPS_32),
    "local_ack_timeout_err": Row("fabric_port_ack_timeouts_total", WRAPS_32),
    "resp_local_length_error": Row("fabric_port_responder_local_length_errors_total", WRAPS_32),
    "resp_cqe_error": Row("fabric_port_responder_completion_errors_total", WRAPS_32),
    "resp_cqe_flush_error": Row("fabric_port_responder_flush_errors_total", WRAPS_32),
    "resp_remote_access_errors": Row("fabric_port_responder_remote_access_errors_total", WRAPS_32),
    "req_cqe_error": Row("fabric_port_requester_completion_errors_total", WRAPS_32),
    "req_cqe_flush_error": Row("fabric_port_requester_flush_errors_total", WRAPS_32),
    "req_remote_invalid_request": Row(
        "fabric_port_requester_remote_invalid_requests_total", WRAPS_32
    ),
    "req_remote_access_errors": Row("fabric_port_requester_remote_access_errors_total", WRAPS_32),
    "req_transport_retries_exceeded": Row("fabric_port_transport_retries_exceeded_total", WRAPS_32),
    "req_rnr_retries_exceeded": Row("fabric_port_rnr_retries_exceeded_total", WRAPS_32),
    "roce_adp_retrans": Row("fabric_port_adaptive_retransmits_total", WRAPS_32),
    "roce_adp_retrans_to": Row("fabric_port_adaptive_retransmit_timeouts_total", WRAPS_32),
    "roce_slow_restart": Row("fabric_port_slow_restarts_used_total", WRAPS_32),
    "roce_slow_restart_cnps": Row("fabric_port_slow_restart_cnps_total", WRAPS_32),
    "roce_slow_restart_trans": Row("fabric_port_slow_restart_transitions_total", WRAPS_32),
    # Congestion and port counters: 64 bits.
    "rp_cnp_handled": Row("fabric_port_cnp_handled_total"),
    "rp_cnp_ignored": Row("fabric_port_cnp_ignored_total"),
    "np_cnp_sent": Row("fabric_port_cnp_sent_total"),
    "np_ecn_marked_roce_packets": Row("fabric_port_receive_ecn_marked_packets_total"),
    "rx_icrc_encapsulated": Row("fabric_port_receive_icrc_errors_total"),
    # Optional: there once `rdma statistic set link … optional-counters …` was given.
    "cc_rx_ce_pkts": Row("fabric_port_optional_receive_ce_packets_total"),
    "cc_rx_cnp_pkts": Row("fabric_port_optional_receive_cnp_packets_total"),
    "cc_tx_cnp_pkts": Row("fabric_port_optional_transmit_cnp_packets_total"),
    "rdma_tx_packets": Row("fabric_port_rdma_transmit_packets_total"),
    "rdma_tx_bytes": Row("fabric_port_rdma_transmit_bytes_total"),
    "rdma_rx_packets": Row("fabric_port_rdma_receive_packets_total"),
    "rdma_rx_bytes": Row("fabric_port_rdma_receive_bytes_total"),
}

BNXT_RE: Table = LIFESPAN | {
    # drivers/infiniband/hw/bnxt_re/hw_counters.c. Bytes here are bytes, not words.
    "rx_bytes": Row("fabric_port_receive_bytes_total"),
    "tx_bytes": Row("fabric_port_transmit_bytes_total"),
    "rx_pkts": Row("fabric_port_receive_packets_total"),
    "tx_pkts": Row("fabric_port_transmit_packets_total"),
    "rx_roce_errors": Row("fabric_port_receive_errors_total"),
    "rx_roce_discards": Row("fabric_port_receive_discards_total"),
    "to_retransmits": Row("fabric_port_ack_timeouts_total"),
    "seq_err_naks_rcvd": Row("fabric_port_sequence_naks_total"),
    "max_retry_exceeded": Row("fabric_port_transport_retries_exceeded_total"),
    "rnr_naks_rcvd": Row("fabric_port_rnr_naks_total"),
    "dup_req": Row("fabric_port_receive_duplicate_requests_total"),
    "oos_drop_count": Row("fabric_port_receive_out_of_sequence_total"),
    "rx_out_of_buffer": Row("fabric_port_receive_out_of_buffer_total"),
    "remote_invalid_req_err": Row("fabric_port_requester_remote_invalid_requests_total"),
    "remote_access_err": Row("fabric_port_requester_remote_access_errors_total"),
    "rx_write_req": Row("fabric_port_receive_write_requests_total"),
    "rx_read_req": Row("fabric_port_receive_read_requests_total"),
    "rx_send_req": Row("fabric_port_receive_send_requests_total"),
    "rx_atomic_req": Row("fabric_port_receive_atomic_requests_total"),
    "tx_write_req": Row("fabric_port_transmit_write_requests_total"),
    "tx_read_req": Row("fabric_port_transmit_read_requests_total"),
    "tx_send_req": Row("fabric_port_transmit_send_requests_total"),
    "rx_cnp_pkts": Row("fabric_port_cnp_handled_total"),
    "tx_cnp_pkts": Row("fabric_port_cnp_sent_total"),
    "rx_ecn_marked_pkts": Row("fabric_port_receive_ecn_marked_packets_total"),
    # Gauges among the counters: how many of each exist now.
    "active_qps": Row("fabric_port_queue_pairs"),
    "active_cqs": Row("fabric_port_completion_queues"),
    "active_mrs": Row("fabric_port_memory_regions"),
}

_V4, _V6 = (("ip_version", "4"),), (("ip_version", "6"),)

IRDMA: Table = LIFESPAN | {
    # drivers/infiniband/hw/irdma/verbs.c. Narrow hardware counters are accumulated to 64 bits by
    # the driver. Traffic is counted per IP version; the sum over ip_version is the port's.
    "ip4InOctets": Row("fabric_port_receive_bytes_total", labels=_V4),
    "ip6InOctets": Row("fabric_port_receive_bytes_total", labels=_V6),
    "ip4OutOctets": Row("fabric_port_transmit_bytes_total", labels=_V4),
    "ip6OutOctets": Row("fabric_port_transmit_bytes_total", labels=_V6),
    "ip4InPkts": Row("fabric_port_receive_packets_total", labels=_V4),
    "ip6InPkts": Row("fabric_port_receive_packets_total", labels=_V6),
    "ip4OutPkts": Row("fabric_port_transmit_packets_total", labels=_V4),
    "ip6OutPkts": Row("fabric_port_transmit_packets_total", labels=_V6),
    "ip4InDiscards": Row("fabric_port_receive_discards_total", labels=_V4),
    "ip6InDiscards": Row("fabric_port_receive_discards_total", labels=_V6),
    "tcpRetransSegs": Row("fabric_port_tcp_retransmit_segments_total"),
    "InRdmaWrites": Row("fabric_port_receive_write_requests_total"),
    "InRdmaReads": Row("fabric_port_receive_read_requests_total"),
    "InRdmaSends": Row("fabric_port_receive_send_requests_total"),
    "OutRdmaWrites": Row("fabric_port_transmit_write_requests_total"),
    "OutRdmaReads": Row("fabric_port_transmit_read_requests_total"),
    "OutRdmaSends": Row("fabric_port_transmit_send_requests_total"),
    "cnpHandled": Row("fabric_port_cnp_handled_total"),
    "cnpIgnored": Row("fabric_port_cnp_ignored_total"),
    "cnpSent": Row("fabric_port_cnp_sent_total"),
    "RxECNMrkd": Row("fabric_port_receive_ecn_marked_packets_total"),
}
# i40iw and early irdma wrote the same names with "iw" in front.
IRDMA |= {f"iw{name}": row for name, row in IRDMA.items() if name.startswith(("InRdma", "OutRdma"))}

EFA: Table = LIFESPAN | {
    # drivers/infiniband/hw/efa/efa_verbs.c; retransmissions from Nitro v4 on.
    "tx_bytes": Row("fabric_port_transmit_bytes_total"),
    "rx_bytes": Row("fabric_port_receive_bytes_total"),
    "tx_pkts": Row("fabric_port_transmit_packets_total"),
    "rx_pkts": Row("fabric_port_receive_packets_total"),
    "rx_drops": Row("fabric_port_receive_discards_total"),
    "send_bytes": Row("fabric_port_send_message_bytes_total"),
    "send_wrs": Row("fabric_port_send_messages_total"),
    "recv_bytes": Row("fabric_port_receive_message_bytes_total"),
    "recv_wrs": Row("fabric_port_receive_messages_total"),
    "rdma_read_wrs": Row("fabric_port_rdma_reads_total"),
    "rdma_read_bytes": Row("fabric_port_rdma_read_bytes_total"),
    "rdma_read_wr_err": Row("fabric_port_rdma_read_errors_total"),
    "rdma_read_resp_bytes": Row("fabric_port_rdma_read_response_bytes_total"),
    "rdma_write_wrs": Row("fabric_port_rdma_writes_total"),
    "rdma_write_bytes": Row("fabric_port_rdma_write_bytes_total"),
    "rdma_write_wr_err": Row("fabric_port_rdma_write_errors_total"),
    "rdma_write_recv_bytes": Row("fabric_port_rdma_write_receive_bytes_total"),
    "retrans_bytes": Row("fabric_port_retransmit_bytes_total"),
    "retrans_pkts": Row("fabric_port_retransmit_packets_total"),
    "retrans_timeout_events": Row("fabric_port_retransmit_timeouts_total"),
    "unresponsive_remote_events": Row("fabric_port_unresponsive_remotes_total"),
    "impaired_remote_conn_events": Row("fabric_port_impaired_connections_total"),
}

EFA_DEVICE: Table = LIFESPAN | {
    # Counters of the device as a whole (`<device>/hw_counters`): its series have no port.
    "submitted_cmds": Row("fabric_port_admin_commands_submitted_total"),
    "completed_cmds": Row("fabric_port_admin_commands_completed_total"),
    "cmds_err": Row("fabric_port_admin_command_errors_total"),
    "keep_alive_rcvd": Row("fabric_port_keepalives_total"),
}

HFI1: Table = LIFESPAN | {
    # drivers/infiniband/hw/hfi1/chip.c appends ",32" to the names of its 32-bit counters. About 200
    # names; those without a shared meaning pass through under their own.
    "SwLinkUp,32": Row("fabric_port_link_ups_total", WRAPS_32)
}


class Driver(NamedTuple):
    """The tables and expectations of one driver."""

    name: str
    classic: Table = CLASSIC
    hardware: Table = LIFESPAN
    device: Table = LIFESPAN
    expected: frozenset[str] = frozenset()
    """Files of `counters/` whose absence is reported: every device of this driver has them."""
    directories: frozenset[str] = frozenset()
    """Directories of a port whose absence is reported."""


_BOTH = frozenset({"counters", "hw_counters"})
_HARDWARE = frozenset({"hw_counters"})

GENERIC = Driver("")
"""A driver without a table: classic names mean what IBTA defines, others pass through."""

_MLX5 = Driver("mlx5", hardware=MLX5, expected=CLASSIC_EXPECTED, directories=_BOTH)
_MLX4 = Driver("mlx4", expected=CLASSIC_EXPECTED, directories=frozenset({"counters"}))
_BNXT_RE = Driver("bnxt_re", hardware=BNXT_RE, directories=_HARDWARE)
_IRDMA = Driver("irdma", classic=CLASSIC_WITHOUT_TRAFFIC, hardware=IRDMA, directories=_HARDWARE)
_EFA = Driver("efa", hardware=EFA, device=EFA_DEVICE, directories=_HARDWARE)
_HFI1 = Driver("hfi1", hardware=HFI1, expected=CLASSIC_EXPECTED, directories=_BOTH)

BY_KERNEL_NAME: dict[str, Driver] = {
    # What `device/driver` points to. An RDMA device hangs on its PCI function, so for some it is
    # the Ethernet driver's name that is found there.
    "mlx5_core": _MLX5,
    "mlx4_core": _MLX4,
    "bnxt_en": _BNXT_RE,
    "bnxt_re": _BNXT_RE,
    "ice": _IRDMA,
    "i40e": _IRDMA,
    "idpf": _IRDMA,
    "irdma": _IRDMA,
    "i40iw": _IRDMA,
    "efa": _EFA,
    "hfi1": _HFI1,
}

BY_DEVICE_PREFIX: dict[str, Driver] = {
    # For captured trees without the link; right only while no administrator renamed the devices.
    "mlx5_": _MLX5,
    "mlx4_": _MLX4,
    "bnxt_re": _BNXT_RE,
    "irdma": _IRDMA,
    "i40iw": _IRDMA,
    "efa_": _EFA,
    "rdmap": _EFA,
    "hfi1_": _HFI1,
}


def driver_of(kernel_name: str, device: str) -> Driver:
    """The driver by what `device/driver` is called, or by the device's name where that is unknown.

    >>> driver_of("", "bnxt_re0").name
    'bnxt_re'
    """
    if kernel_name:
        return BY_KERNEL_NAME.get(kernel_name, GENERIC._replace(name=kernel_name))
    for prefix, driver in BY_DEVICE_PREFIX.items():
        if device.startswith(prefix):
            return driver
    return GENERIC
