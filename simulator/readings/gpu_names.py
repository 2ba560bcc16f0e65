"""The agent's names of `machine_tree.gpu_columns`: a copy of its tables that a test compares."""

from __future__ import annotations

from typing import NamedTuple

from simulator.interfaces.machine_tree import (
    FABRIC_HEALTHY,
    FIELDS_ZERO,
    LINK_ERRORS_REFUSED,
    MEMORY_BYTES,
    NVLINK_MEGABYTES_PER_SECOND,
    NVLINKS,
    RESERVED_BYTES,
    TEMPERATURE_MAX_CELSIUS,
)

PERCENT, MEGAHERTZ, MILLI, NANO = 0.01, 1e6, 1e-3, 1e-9
MEBIBYTES_PER_SECOND, MEGABYTES_PER_SECOND = 8.0 * (1 << 20), 8e6
KIBIBYTE = 1024.0

Labels = tuple[tuple[str, str], ...]


class Number(NamedTuple):
    """A column of NVML's numbers and the metric that it becomes."""

    column: str
    metric: str
    factor: float = 1.0


class Steady(NamedTuple):
    """A number that never changes, in base units."""

    metric: str
    value: float
    labels: Labels = ()


NUMBERS = tuple(
    Number(column, f"fabric_gpu_{metric}", factor)
    for column, metric, factor in (
        ("utilization gpu", "utilization_ratio", PERCENT),
        ("utilization memory", "memory_busy_ratio", PERCENT),
        ("memory free", "memory_free_bytes", 1.0),
        ("memory used", "memory_used_bytes", 1.0),
        ("clock 1", "sm_clock_hertz", MEGAHERTZ),
        ("clock 2", "memory_clock_hertz", MEGAHERTZ),
        ("clock_event_reasons", "clock_event_reasons", 1.0),
        ("power", "power_watts", MILLI),
        ("power_limit", "power_limit_watts", MILLI),
        ("temperature", "temperature_celsius", 1.0),
        ("temperature_margin", "temperature_margin_celsius", 1.0),
        ("pcie_generation", "pcie_generation", 1.0),
        ("pcie_width", "pcie_lanes", 1.0),
        ("gpm 1", "graphics_active_ratio", PERCENT),
        ("gpm 2", "sm_active_ratio", PERCENT),
        ("gpm 3", "sm_occupancy_ratio", PERCENT),
        ("gpm 5", "tensor_active_ratio", PERCENT),
        ("gpm 10", "dram_active_ratio", PERCENT),
        ("gpm 20", "pcie_transmit_rate_bits_per_second", MEBIBYTES_PER_SECOND),
        ("gpm 21", "pcie_receive_rate_bits_per_second", MEBIBYTES_PER_SECOND),
        ("gpm 60", "nvlink_receive_rate_bits_per_second", MEBIBYTES_PER_SECOND),
        ("gpm 61", "nvlink_transmit_rate_bits_per_second", MEBIBYTES_PER_SECOND),
        ("field 3", "ecc_corrected_errors_total", 1.0),
        ("field 4", "ecc_uncorrected_errors_total", 1.0),
        ("field 5", "ecc_corrected_errors_lifetime_total", 1.0),
        ("field 6", "ecc_uncorrected_errors_lifetime_total", 1.0),
        ("field 74", "power_violation_seconds_total", NANO),
        ("field 75", "thermal_violation_seconds_total", NANO),
        ("field 269", "software_thermal_slowdown_seconds_total", NANO),
        ("field 82", "memory_temperature_celsius", 1.0),
        ("field 83", "energy_joules_total", MILLI),
        ("field 94", "pcie_replays_total", 1.0),
        ("field 52", "nvlink_replay_errors_total", 1.0),
    )
)

_PCIE_ERRORS = {
    174: "nak_received",
    175: "receiver",
    176: "bad_tlp",
    177: "nak_sent",
    178: "bad_dllp",
    181: "unsupported_request",
    182: "lcrc",
}
FIELDS = {
    29: "retired_pages_single_bit",
    30: "retired_pages_double_bit",
    31: "retired_pages_pending",
    38: "nvlink_crc_flit_errors_total",
    45: "nvlink_crc_data_errors_total",
    59: "nvlink_recovery_errors_total",
    160: "nvlink_ecc_data_errors_total",
    76: "sync_boost_violation_seconds_total",
    77: "board_limit_violation_seconds_total",
    78: "low_utilization_violation_seconds_total",
    79: "reliability_violation_seconds_total",
    80: "app_clocks_violation_seconds_total",
    81: "base_clocks_violation_seconds_total",
    270: "hardware_thermal_slowdown_seconds_total",
    271: "power_brake_slowdown_seconds_total",
    95: "pcie_replay_rollovers_total",
    169: "pcie_recoveries_total",
    173: "pcie_correctable_errors_total",
    179: "pcie_non_fatal_errors_total",
    180: "pcie_fatal_errors_total",
    142: "remapped_rows_corrected",
    143: "remapped_rows_uncorrected",
    144: "row_remap_pending",
    145: "row_remap_failed",
    230: "recovery_action",
    **dict.fromkeys(_PCIE_ERRORS, "pcie_link_errors_total"),
}
"""Fields of the whole GPU that stay constant or are refused."""


def _labels_of_field(number: int) -> Labels:
    return (("error", _PCIE_ERRORS[number]),) if number in _PCIE_ERRORS else ()


STEADY = (
    Steady("fabric_gpu_memory_total_bytes", MEMORY_BYTES),
    Steady("fabric_gpu_memory_reserved_bytes", RESERVED_BYTES),
    Steady("fabric_gpu_performance_state", 0),
    Steady("fabric_gpu_sm_clock_max_hertz", 1980 * MEGAHERTZ),
    Steady("fabric_gpu_memory_clock_max_hertz", 3201 * MEGAHERTZ),
    Steady("fabric_gpu_temperature_shutdown_celsius", 95),
    Steady("fabric_gpu_temperature_slowdown_celsius", 89),
    Steady("fabric_gpu_memory_temperature_max_celsius", 95),
    Steady("fabric_gpu_temperature_max_celsius", TEMPERATURE_MAX_CELSIUS),
    Steady("fabric_gpu_pcie_generation_max", 5),
    Steady("fabric_gpu_pcie_lanes_max", 16),
    *(
        Steady("fabric_gpu_row_remap_banks", banks, (("availability", level),))
        for level, banks in (("max", 3072), ("high", 0), ("partial", 0), ("low", 0), ("none", 0))
    ),
    Steady("fabric_gpu_fabric_state", 3),
    Steady("fabric_gpu_fabric_status", 0),
    Steady("fabric_gpu_fabric_health", FABRIC_HEALTHY),
    *(
        Steady("fabric_gpu_fabric_unhealthy", 0, (("condition", condition),))
        for condition in (
            "degraded_bandwidth",
            "route_recovery",
            "route_unhealthy",
            "access_timeout_recovery",
        )
    ),
    Steady("fabric_gpu_nvlink_links", NVLINKS),
    Steady("fabric_gpu_nvlink_switch_links", NVLINKS),
    *(
        Steady(f"fabric_gpu_{FIELDS[number]}", 0, _labels_of_field(number))
        for number in FIELDS_ZERO
    ),
)

LINK_STEADY = (
    Steady("fabric_gpu_nvlink_link_up", 1),
    Steady(
        "fabric_gpu_nvlink_link_speed_bits_per_second",
        NVLINK_MEGABYTES_PER_SECOND * MEGABYTES_PER_SECOND,
    ),
    Steady("fabric_gpu_nvlink_link_recoveries_total", 0),
    Steady("fabric_gpu_nvlink_link_crc_errors_total", 0),
)
LINK_BYTES = {
    "field 138": ("fabric_gpu_nvlink_link_transmit_bytes_total", "transmit"),
    "field 139": ("fabric_gpu_nvlink_link_receive_bytes_total", "receive"),
}
"""In kibibytes by link, and the direction of their sum."""
LINK_REPLAYS = ("field 161", "fabric_gpu_nvlink_link_replays_total")

_LINK = "fabric_gpu_nvlink_link"
REFUSED: tuple[tuple[str, Labels], ...] = (
    *((f"fabric_gpu_{FIELDS[number]}", ()) for number in LINK_ERRORS_REFUSED),
    # What only NVLink 5 has.
    *(
        (f"{_LINK}_errors_total", (("error", error),))
        for error in (
            "malformed_packet",
            "buffer_overrun",
            "receive",
            "receive_remote",
            "receive_general",
            "local_integrity",
            "transmit_discard",
        )
    ),
    *(
        (f"{_LINK}_recovery_events_total", (("result", result),))
        for result in ("successful", "failed")
    ),
    (f"{_LINK}_effective_errors_total", ()),
    (f"{_LINK}_effective_error_ratio", ()),
    (f"{_LINK}_symbol_errors_total", ()),
    (f"{_LINK}_symbol_error_ratio", ()),
    (f"{_LINK}_blocks_total", ()),
    (f"{_LINK}_retry_blocks_total", ()),
    (f"{_LINK}_fec_blocks_total", ()),
)
"""Metrics that an H200 lacks: reported as missing."""
