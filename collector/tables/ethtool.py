"""Statistics of Ethernet drivers: native name of ``ethtool -S`` → catalog metric, factor, labels.

A driver offers some hundreds of statistics per interface, most of them per queue. Only those about
the fabric are named here; the rest is passed on when a setting asks for it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MICROSECOND = 0.000_001
PERCENT = 0.01


class Row(NamedTuple):
    """Our metric for one native statistic; ``factor`` times its number is the metric's value."""

    metric: str
    factor: float = 1
    labels: tuple[tuple[str, str], ...] = ()


class Pattern(NamedTuple):
    """A family of names that differ in one number or word, which becomes a label."""

    names: re.Pattern[str]
    metric: str
    label: str
    factor: float = 1


class Table(NamedTuple):
    """The statistics of one driver."""

    rows: dict[str, Row]
    patterns: tuple[Pattern, ...] = ()

    def find(self, name: str) -> Row | None:
        """The metric of this name; None if the table lacks it.

        >>> MLX5.find("rx_prio3_pause")
        Row(metric='fabric_nic_receive_pause_frames_total', factor=1, labels=(('priority', '3'),))
        """
        if name in self.rows:
            return self.rows[name]
        for pattern in self.patterns:
            if match := pattern.names.fullmatch(name):
                return Row(pattern.metric, pattern.factor, ((pattern.label, match[1]),))
        return None


def _pattern(names: str, metric: str, label: str = "priority", factor: float = 1) -> Pattern:
    return Pattern(re.compile(names), metric, label, factor)


_GLOBAL = (("priority", "global"),)
_UNICAST, _MULTICAST = (("cast", "unicast"),), (("cast", "multicast"),)

MLX5 = Table(
    # Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst
    rows={
        # 802.3x pause for the whole link; the per-priority ones below exist only where enabled.
        "rx_global_pause": Row("fabric_nic_receive_pause_frames_total", labels=_GLOBAL),
        "tx_global_pause": Row("fabric_nic_transmit_pause_frames_total", labels=_GLOBAL),
        "rx_global_pause_duration": Row(
            "fabric_nic_receive_pause_seconds_total", MICROSECOND, _GLOBAL
        ),
        "tx_global_pause_duration": Row(
            "fabric_nic_transmit_pause_seconds_total", MICROSECOND, _GLOBAL
        ),
        "rx_global_pause_transition": Row(
            "fabric_nic_receive_pause_transitions_total", labels=_GLOBAL
        ),
        "rx_pause_ctrl_phy": Row("fabric_nic_phy_receive_pause_frames_total"),
        "tx_pause_ctrl_phy": Row("fabric_nic_phy_transmit_pause_frames_total"),
        "tx_pause_storm_warning_events": Row("fabric_nic_pause_storm_warnings_total"),
        "tx_pause_storm_error_events": Row("fabric_nic_pause_storm_errors_total"),
        "rx_bytes_phy": Row("fabric_nic_phy_receive_bytes_total"),
        "tx_bytes_phy": Row("fabric_nic_phy_transmit_bytes_total"),
        "rx_bits_phy": Row("fabric_nic_phy_receive_bits_total"),
        "rx_discards_phy": Row("fabric_nic_phy_receive_discards_total"),
        "tx_discards_phy": Row("fabric_nic_phy_transmit_discards_total"),
        "rx_crc_errors_phy": Row("fabric_nic_phy_receive_crc_errors_total"),
        "rx_symbol_err_phy": Row("fabric_nic_phy_receive_symbol_errors_total"),
        "rx_pcs_symbol_err_phy": Row("fabric_nic_phy_receive_pcs_symbol_errors_total"),
        "rx_corrected_bits_phy": Row("fabric_nic_phy_receive_corrected_bits_total"),
        "link_down_events_phy": Row("fabric_nic_link_down_total"),
        "rx_out_of_buffer": Row("fabric_nic_receive_out_of_buffer_total"),
        "rx_buffer_passed_thres_phy": Row("fabric_nic_receive_buffer_over_threshold_total"),
        "rx_ecn_mark": Row("fabric_nic_receive_ecn_marked_packets_total"),
        "rx_pci_signal_integrity": Row("fabric_nic_pcie_receive_signal_errors_total"),
        "tx_pci_signal_integrity": Row("fabric_nic_pcie_transmit_signal_errors_total"),
        # Percent of the last second, and the number of seconds in which it was above 30.
        "outbound_pci_stalled_rd": Row("fabric_nic_pcie_read_stalled_ratio", PERCENT),
        "outbound_pci_stalled_wr": Row("fabric_nic_pcie_write_stalled_ratio", PERCENT),
        "outbound_pci_stalled_rd_events": Row("fabric_nic_pcie_read_stalled_seconds_total"),
        "outbound_pci_stalled_wr_events": Row("fabric_nic_pcie_write_stalled_seconds_total"),
        "outbound_pci_buffer_overflow": Row("fabric_nic_pcie_buffer_overflow_packets_total"),
        "rx_vport_rdma_unicast_bytes": Row("fabric_nic_rdma_receive_bytes_total", labels=_UNICAST),
        "tx_vport_rdma_unicast_bytes": Row("fabric_nic_rdma_transmit_bytes_total", labels=_UNICAST),
        "rx_vport_rdma_unicast_packets": Row(
            "fabric_nic_rdma_receive_packets_total", labels=_UNICAST
        ),
        "tx_vport_rdma_unicast_packets": Row(
            "fabric_nic_rdma_transmit_packets_total", labels=_UNICAST
        ),
        "rx_vport_rdma_multicast_bytes": Row(
            "fabric_nic_rdma_receive_bytes_total", labels=_MULTICAST
        ),
        "tx_vport_rdma_multicast_bytes": Row(
            "fabric_nic_rdma_transmit_bytes_total", labels=_MULTICAST
        ),
        "rx_vport_rdma_multicast_packets": Row(
            "fabric_nic_rdma_receive_packets_total", labels=_MULTICAST
        ),
        "tx_vport_rdma_multicast_packets": Row(
            "fabric_nic_rdma_transmit_packets_total", labels=_MULTICAST
        ),
    },
    patterns=(
        _pattern(r"rx_prio([0-7])_pause", "fabric_nic_receive_pause_frames_total"),
        _pattern(r"tx_prio([0-7])_pause", "fabric_nic_transmit_pause_frames_total"),
        # Microseconds. Pages that call them quanta are wrong: the driver's documentation is not.
        _pattern(
            r"rx_prio([0-7])_pause_duration",
            "fabric_nic_receive_pause_seconds_total",
            factor=MICROSECOND,
        ),
        _pattern(
            r"tx_prio([0-7])_pause_duration",
            "fabric_nic_transmit_pause_seconds_total",
            factor=MICROSECOND,
        ),
        _pattern(r"rx_prio([0-7])_pause_transition", "fabric_nic_receive_pause_transitions_total"),
        _pattern(r"rx_prio([0-7])_discards", "fabric_nic_receive_priority_discards_total"),
        _pattern(
            r"rx_prio([0-7])_buf_discard", "fabric_nic_receive_priority_buffer_discards_total"
        ),
        _pattern(
            r"rx_prio([0-7])_cong_discard", "fabric_nic_receive_priority_congestion_discards_total"
        ),
        _pattern(r"rx_prio([0-7])_marked", "fabric_nic_receive_priority_ecn_marked_packets_total"),
        _pattern(
            r"rx_err_lane_([0-9]{1,2})_phy", "fabric_nic_phy_receive_lane_errors_total", "lane"
        ),
        _pattern(
            r"module_(unplug|bus_stuck|high_temp|bad_shorted)",
            "fabric_nic_module_events_total",
            "event",
        ),
    ),
)

BNXT = Table(
    # drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c
    rows={
        "rx_pause_frames": Row("fabric_nic_phy_receive_pause_frames_total"),
        "tx_pause_frames": Row("fabric_nic_phy_transmit_pause_frames_total"),
        "rx_fcs_err_frames": Row("fabric_nic_phy_receive_crc_errors_total"),
        "rx_bits": Row("fabric_nic_phy_receive_bits_total"),
        "rx_pcs_symbol_err": Row("fabric_nic_phy_receive_pcs_symbol_errors_total"),
        "rx_corrected_bits": Row("fabric_nic_phy_receive_corrected_bits_total"),
        "rx_fec_corrected_blocks": Row("fabric_nic_phy_receive_fec_corrected_blocks_total"),
        "rx_fec_uncorrectable_blocks": Row("fabric_nic_phy_receive_fec_uncorrectable_blocks_total"),
        "rx_buffer_passed_threshold": Row("fabric_nic_receive_buffer_over_threshold_total"),
        "link_down_events": Row("fabric_nic_link_down_total"),
    },
    patterns=(
        _pattern(r"rx_pfc_ena_frames_pri([0-7])", "fabric_nic_receive_pause_frames_total"),
        _pattern(r"tx_pfc_ena_frames_pri([0-7])", "fabric_nic_transmit_pause_frames_total"),
        _pattern(
            r"pfc_pri([0-7])_rx_duration_us",
            "fabric_nic_receive_pause_seconds_total",
            factor=MICROSECOND,
        ),
        _pattern(
            r"pfc_pri([0-7])_tx_duration_us",
            "fabric_nic_transmit_pause_seconds_total",
            factor=MICROSECOND,
        ),
        _pattern(r"pfc_pri([0-7])_rx_transitions", "fabric_nic_receive_pause_transitions_total"),
        _pattern(r"pfc_pri([0-7])_tx_transitions", "fabric_nic_transmit_pause_transitions_total"),
        _pattern(
            r"rx_discard_packets_cos([0-7])", "fabric_nic_receive_queue_discards_total", "queue"
        ),
    ),
)

INTEL = Table(
    # drivers/net/ethernet/intel/{ice/ice_ethtool.c,i40e/i40e_ethtool.c}: the same names, with
    # ".nic" behind them in ice and "port." before them in i40e.
    rows={
        f"{before}{name}{after}": row
        for before, after in (("", ".nic"), ("port.", ""))
        for name, row in {
            "link_xoff_rx": Row("fabric_nic_phy_receive_pause_frames_total"),
            "link_xoff_tx": Row("fabric_nic_phy_transmit_pause_frames_total"),
            "rx_crc_errors": Row("fabric_nic_phy_receive_crc_errors_total"),
        }.items()
    },
    patterns=(
        _pattern(
            r"(?:port\.)?rx_priority_([0-7])_xoff(?:\.nic)?",
            "fabric_nic_receive_pause_frames_total",
        ),
        _pattern(
            r"(?:port\.)?tx_priority_([0-7])_xoff(?:\.nic)?",
            "fabric_nic_transmit_pause_frames_total",
        ),
    ),
)

IONIC = Table(
    # drivers/net/ethernet/pensando/ionic/ionic_stats.c, ionic_port_stats_desc (Linux): AMD
    # Pensando. Without frames_[rt]x_pripause, which counts all priorities together: times
    # below are by priority.
    rows={
        "frames_rx_pause": Row("fabric_nic_phy_receive_pause_frames_total"),
        "frames_tx_pause": Row("fabric_nic_phy_transmit_pause_frames_total"),
        "frames_rx_bad_fcs": Row("fabric_nic_phy_receive_crc_errors_total"),
        "rx_pause_1us_count": Row("fabric_nic_receive_pause_seconds_total", MICROSECOND, _GLOBAL),
    },
    patterns=(
        _pattern(
            r"rx_pripause_([0-7])_1us_count",
            "fabric_nic_receive_pause_seconds_total",
            factor=MICROSECOND,
        ),
        _pattern(
            r"tx_pripause_([0-7])_1us_count",
            "fabric_nic_transmit_pause_seconds_total",
            factor=MICROSECOND,
        ),
    ),
)

NOTHING = Table({})

BY_DRIVER: dict[str, Table] = {
    "mlx5_core": MLX5,
    "bnxt_en": BNXT,
    "ice": INTEL,
    "i40e": INTEL,
    "ionic": IONIC,
}


def table_of(driver: str) -> Table:
    """The table of a driver by the name that ``ethtool -i`` gives.

    The word behind it in brackets is the role in which the driver runs the interface and changes
    none of its names: mlx5 writes it for IP over InfiniBand.

    >>> table_of("mlx5_core[ib_ipoib]") is MLX5
    True
    """
    return BY_DRIVER.get(driver.partition("[")[0], NOTHING)
