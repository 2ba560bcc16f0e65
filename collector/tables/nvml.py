"""NVML's calls and fields as our metrics, and the meaning of XID numbers.

Units: NVML counts in percent, MHz, mW, mJ, KiB, MB/s and nanoseconds; a row's factor makes base
units of them. Fields are those of `nvmlDeviceGetFieldValues` (nvml.h, NVML_FI_DEV_…).
"""

from __future__ import annotations

from typing import NamedTuple

FieldKey = tuple[int, int]
"""A field of `nvmlDeviceGetFieldValues` and its scope: a link's number, ALL_LINKS, or else 0."""

PERCENT = 0.01
MEGAHERTZ = 1e6
MILLI = 1e-3
NANO = 1e-9
KIBIBYTE = 1024
MEBIBYTES_PER_SECOND = 8 * (1 << 20)
MEGABYTES_PER_SECOND = 8_000_000
"""In bits per second."""

Labels = tuple[tuple[str, str], ...]


class Part(NamedTuple):
    """One number of an answer and the series that it becomes."""

    name: str
    metric: str
    factor: float = 1
    labels: Labels = ()


class Question(NamedTuple):
    """One call and what its answer holds."""

    call: str
    parts: tuple[Part, ...]
    arguments: tuple[int, ...] = ()


def _one(call: str, metric: str, factor: float = 1, arguments: tuple[int, ...] = ()) -> Question:
    return Question(call, (Part("value", metric, factor),), arguments)


QUESTIONS = (
    Question(
        "utilization",
        (
            Part("gpu", "fabric_gpu_utilization_ratio", PERCENT),
            Part("memory", "fabric_gpu_memory_busy_ratio", PERCENT),
        ),
    ),
    Question(
        "memory",
        (
            Part("total", "fabric_gpu_memory_total_bytes"),
            Part("free", "fabric_gpu_memory_free_bytes"),
            Part("used", "fabric_gpu_memory_used_bytes"),
            Part("reserved", "fabric_gpu_memory_reserved_bytes"),
        ),
    ),
    _one("clock", "fabric_gpu_sm_clock_hertz", MEGAHERTZ, (1,)),
    _one("clock", "fabric_gpu_memory_clock_hertz", MEGAHERTZ, (2,)),
    _one("performance_state", "fabric_gpu_performance_state"),
    _one("clock_event_reasons", "fabric_gpu_clock_event_reasons"),
    _one("power", "fabric_gpu_power_watts", MILLI),
    _one("power_limit", "fabric_gpu_power_limit_watts", MILLI),
    _one("temperature", "fabric_gpu_temperature_celsius"),
    _one("temperature_margin", "fabric_gpu_temperature_margin_celsius"),
    _one("pcie_generation", "fabric_gpu_pcie_generation"),
    _one("pcie_width", "fabric_gpu_pcie_lanes"),
    Question(
        "row_remapper",
        tuple(
            Part(level, "fabric_gpu_row_remap_banks", 1, (("availability", level),))
            for level in ("max", "high", "partial", "low", "none")
        ),
    ),
    Question(
        "gpm",
        (
            Part("1", "fabric_gpu_graphics_active_ratio", PERCENT),
            Part("2", "fabric_gpu_sm_active_ratio", PERCENT),
            Part("3", "fabric_gpu_sm_occupancy_ratio", PERCENT),
            Part("5", "fabric_gpu_tensor_active_ratio", PERCENT),
            Part("10", "fabric_gpu_dram_active_ratio", PERCENT),
            Part("20", "fabric_gpu_pcie_transmit_rate_bits_per_second", MEBIBYTES_PER_SECOND),
            Part("21", "fabric_gpu_pcie_receive_rate_bits_per_second", MEBIBYTES_PER_SECOND),
            Part("60", "fabric_gpu_nvlink_receive_rate_bits_per_second", MEBIBYTES_PER_SECOND),
            Part("61", "fabric_gpu_nvlink_transmit_rate_bits_per_second", MEBIBYTES_PER_SECOND),
        ),
    ),
)
"""Asked at every read."""

STEADY_QUESTIONS = (
    _one("max_clock", "fabric_gpu_sm_clock_max_hertz", MEGAHERTZ, (1,)),
    _one("max_clock", "fabric_gpu_memory_clock_max_hertz", MEGAHERTZ, (2,)),
    _one("temperature_threshold", "fabric_gpu_temperature_shutdown_celsius", 1, (0,)),
    _one("temperature_threshold", "fabric_gpu_temperature_slowdown_celsius", 1, (1,)),
    _one("temperature_threshold", "fabric_gpu_memory_temperature_max_celsius", 1, (2,)),
    _one("temperature_threshold", "fabric_gpu_temperature_max_celsius", 1, (3,)),
    _one("pcie_generation_max", "fabric_gpu_pcie_generation_max"),
    _one("pcie_width_max", "fabric_gpu_pcie_lanes_max"),
)
"""What hardly ever changes: asked when a GPU is looked at again."""


class Field(NamedTuple):
    """A field and the series that it becomes. Of several for one series the first answer counts."""

    number: int
    metric: str
    factor: float = 1
    labels: Labels = ()
    is_packed_ratio: bool = False
    """A bit error ratio as mantissa and exponent: see `unpack_ratio`."""


LINK_COUNT: FieldKey = (91, 0)

FIELDS = (
    Field(3, "fabric_gpu_ecc_corrected_errors_total"),
    Field(4, "fabric_gpu_ecc_uncorrected_errors_total"),
    Field(5, "fabric_gpu_ecc_corrected_errors_lifetime_total"),
    Field(6, "fabric_gpu_ecc_uncorrected_errors_lifetime_total"),
    Field(29, "fabric_gpu_retired_pages_single_bit"),
    Field(30, "fabric_gpu_retired_pages_double_bit"),
    Field(31, "fabric_gpu_retired_pages_pending"),
    Field(38, "fabric_gpu_nvlink_crc_flit_errors_total"),
    Field(45, "fabric_gpu_nvlink_crc_data_errors_total"),
    Field(52, "fabric_gpu_nvlink_replay_errors_total"),
    Field(59, "fabric_gpu_nvlink_recovery_errors_total"),
    Field(160, "fabric_gpu_nvlink_ecc_data_errors_total"),
    Field(74, "fabric_gpu_power_violation_seconds_total", NANO),
    Field(75, "fabric_gpu_thermal_violation_seconds_total", NANO),
    Field(76, "fabric_gpu_sync_boost_violation_seconds_total", NANO),
    Field(77, "fabric_gpu_board_limit_violation_seconds_total", NANO),
    Field(78, "fabric_gpu_low_utilization_violation_seconds_total", NANO),
    Field(79, "fabric_gpu_reliability_violation_seconds_total", NANO),
    Field(80, "fabric_gpu_app_clocks_violation_seconds_total", NANO),
    Field(81, "fabric_gpu_base_clocks_violation_seconds_total", NANO),
    Field(269, "fabric_gpu_software_thermal_slowdown_seconds_total", NANO),
    Field(270, "fabric_gpu_hardware_thermal_slowdown_seconds_total", NANO),
    Field(271, "fabric_gpu_power_brake_slowdown_seconds_total", NANO),
    Field(82, "fabric_gpu_memory_temperature_celsius"),
    Field(83, "fabric_gpu_energy_joules_total", MILLI),
    Field(91, "fabric_gpu_nvlink_links"),
    Field(147, "fabric_gpu_nvlink_switch_links"),
    Field(94, "fabric_gpu_pcie_replays_total"),
    Field(95, "fabric_gpu_pcie_replay_rollovers_total"),
    Field(169, "fabric_gpu_pcie_recoveries_total"),
    Field(173, "fabric_gpu_pcie_correctable_errors_total"),
    Field(179, "fabric_gpu_pcie_non_fatal_errors_total"),
    Field(180, "fabric_gpu_pcie_fatal_errors_total"),
    Field(174, "fabric_gpu_pcie_link_errors_total", 1, (("error", "nak_received"),)),
    Field(175, "fabric_gpu_pcie_link_errors_total", 1, (("error", "receiver"),)),
    Field(176, "fabric_gpu_pcie_link_errors_total", 1, (("error", "bad_tlp"),)),
    Field(177, "fabric_gpu_pcie_link_errors_total", 1, (("error", "nak_sent"),)),
    Field(178, "fabric_gpu_pcie_link_errors_total", 1, (("error", "bad_dllp"),)),
    Field(181, "fabric_gpu_pcie_link_errors_total", 1, (("error", "unsupported_request"),)),
    Field(182, "fabric_gpu_pcie_link_errors_total", 1, (("error", "lcrc"),)),
    Field(142, "fabric_gpu_remapped_rows_corrected"),
    Field(143, "fabric_gpu_remapped_rows_uncorrected"),
    Field(144, "fabric_gpu_row_remap_pending"),
    Field(145, "fabric_gpu_row_remap_failed"),
    Field(230, "fabric_gpu_recovery_action"),
)
"""Of the whole GPU, all asked in one call.

Without 197 and 198, bytes over PCIe: they are 32 bits wide (H200, driver 580) and wrap within four
seconds at 1 GB/s, so that a difference between two reads is useless; GPM has the rates.
Without 183, errors of a PCIe lane: its scope is the lane, and each costs a tenth of a millisecond.
"""

LINK_STATE = 165
LINK_STATES_UP = frozenset({1, 2})
"""Active, and asleep to save power: a link that sleeps wakes when something is sent."""

LINK_TRANSMIT = "fabric_gpu_nvlink_link_transmit_bytes_total"
LINK_RECEIVE = "fabric_gpu_nvlink_link_receive_bytes_total"
LINK_TOTALS = {
    LINK_TRANSMIT: "fabric_gpu_nvlink_transmit_bytes_total",
    LINK_RECEIVE: "fabric_gpu_nvlink_receive_bytes_total",
}
"""Sums over links, made here: NVML gives them on some generations only."""

_LINK_ERRORS = {
    206: "malformed_packet",
    207: "buffer_overrun",
    208: "receive",
    209: "receive_remote",
    210: "receive_general",
    211: "local_integrity",
    212: "transmit_discard",
}

LINK_FIELDS = (
    Field(LINK_STATE, "fabric_gpu_nvlink_link_up"),
    Field(164, "fabric_gpu_nvlink_link_speed_bits_per_second", MEGABYTES_PER_SECOND),
    Field(138, LINK_TRANSMIT, KIBIBYTE),
    Field(139, LINK_RECEIVE, KIBIBYTE),
    Field(202, LINK_TRANSMIT),
    Field(204, LINK_RECEIVE),
    Field(161, "fabric_gpu_nvlink_link_replays_total"),
    Field(162, "fabric_gpu_nvlink_link_recoveries_total"),
    Field(163, "fabric_gpu_nvlink_link_crc_errors_total"),
    # From here on NVLink 5 (Blackwell) and later.
    *(
        Field(number, "fabric_gpu_nvlink_link_errors_total", 1, (("error", error),))
        for number, error in _LINK_ERRORS.items()
    ),
    Field(213, "fabric_gpu_nvlink_link_recovery_events_total", 1, (("result", "successful"),)),
    Field(214, "fabric_gpu_nvlink_link_recovery_events_total", 1, (("result", "failed"),)),
    Field(219, "fabric_gpu_nvlink_link_effective_errors_total"),
    Field(220, "fabric_gpu_nvlink_link_effective_error_ratio", is_packed_ratio=True),
    Field(221, "fabric_gpu_nvlink_link_symbol_errors_total"),
    Field(222, "fabric_gpu_nvlink_link_symbol_error_ratio", is_packed_ratio=True),
    Field(294, "fabric_gpu_nvlink_link_blocks_total"),
    Field(295, "fabric_gpu_nvlink_link_retry_blocks_total"),
)
"""Of each NVLink, asked in the same call; the scope is the link's number. Numbers and meaning are
those of nvidia-ml-py 13.615.71 (`pynvml.py`), which is nvml.h of that release."""

FEC_BLOCKS = "fabric_gpu_nvlink_link_fec_blocks_total"
_FEC_FIRST = 235
FEC_GROUPS = {
    "0": range(_FEC_FIRST, _FEC_FIRST + 1),
    "1-3": range(_FEC_FIRST + 1, _FEC_FIRST + 4),
    "4-15": range(_FEC_FIRST + 4, _FEC_FIRST + 16),
}
"""Fields of an NVLink's history of error correction, which has a bin for each number of wrong
symbols in a block. Three groups of them are kept, with the bound between light and heavy that
Datadog's agent has (`nvlinkFECLightErrorThreshold`): sixteen bins of 18 links would triple what a
GPU has in series, to say the same."""
FEC_SECONDS = 60
"""Between two reads of that history: it tells of days, and is 288 fields of a GPU."""


def unpack_ratio(packed: int) -> float:
    """A bit error ratio: four bits of mantissa over eight bits of negative decimal exponent.

    >>> unpack_ratio(0x30C), unpack_ratio(0)
    (3e-12, 0.0)
    """
    mantissa, exponent = packed >> 8 & 0xF, packed & 0xFF
    return float(f"{mantissa}e-{exponent}")


FABRIC_COMPLETED = 3
"""nvmlGpuFabricState_t: the GPU has ended its registration; ``status`` says how."""


class Condition(NamedTuple):
    """Where in the health mask a condition is, and what its number says; 0 is: not known."""

    shift: int
    width: int
    healthy: int
    unhealthy: range

    def judge(self, mask: int) -> bool | None:
        """Whether the domain is in this condition; None if the driver does not tell."""
        number = mask >> self.shift & (1 << self.width) - 1
        if number == self.healthy:
            return False
        return True if number in self.unhealthy else None


FABRIC_CONDITIONS = {
    "degraded_bandwidth": Condition(0, 2, 2, range(1, 2)),
    "route_recovery": Condition(2, 2, 2, range(1, 2)),
    "route_unhealthy": Condition(4, 2, 2, range(1, 2)),
    "access_timeout_recovery": Condition(6, 2, 2, range(1, 2)),
    # Which one of seven mistakes it is stands in fabric_gpu_fabric_health.
    "incorrect_configuration": Condition(8, 4, 1, range(2, 9)),
    "manager_disconnected": Condition(14, 2, 1, range(2, 3)),
}
"""NVML_GPU_FABRIC_HEALTH_MASK_* (nvidia-ml-py 13.615.71). Left out is whether a partition is
assigned: a tray that waits for its tenant has none, and nothing is wrong with it."""


class Xid(NamedTuple):
    """The meaning of an XID number, and the remedy."""

    meaning: str
    action: str


_APPLICATION = "restart the job; look for a bug in it if no other GPU error came with it"
_RESET = "drain the host and reset the GPU"
_SUPPORT = "drain the host, run NVIDIA's field diagnostics, replace the GPU if it comes again"
_LINK = "check the NVLink's neighbours and the fabric manager's log, then reset the GPU"

XIDS: dict[int, Xid] = {
    13: Xid("a kernel raised an exception in the graphics engine", _APPLICATION),
    31: Xid("a kernel touched memory that is not mapped", _APPLICATION),
    32: Xid("the command stream to the GPU was corrupted", _APPLICATION),
    38: Xid("the driver's firmware reported an error", _RESET),
    43: Xid("the GPU stopped processing for this application", _APPLICATION),
    45: Xid("the driver cleaned up after an earlier error", "look what came first"),
    46: Xid("the GPU stopped processing", _RESET),
    48: Xid("memory error that could not be corrected", _RESET),
    61: Xid("an internal micro-controller stopped at a breakpoint", _RESET),
    62: Xid("an internal micro-controller halted", _RESET),
    63: Xid("a memory row is to be replaced", "reset the GPU when the job is done"),
    64: Xid("a memory row could not be replaced", _SUPPORT),
    69: Xid("an invalid graphics command", _APPLICATION),
    74: Xid("an NVLink failed", _LINK),
    79: Xid("the GPU has fallen off the bus", "reboot the host; check its power, slot and heat"),
    92: Xid("many memory errors were corrected", _SUPPORT),
    94: Xid("memory error that hit one application only", "restart the job, then reset the GPU"),
    95: Xid("memory error that may have hit every application", _RESET),
    109: Xid("a context switch took too long", _RESET),
    119: Xid("the GPU's system processor did not answer", _RESET),
    120: Xid("the GPU's system processor failed", _RESET),
    121: Xid("the link between CPU and GPU recovered from an error", "reset the GPU if it repeats"),
    136: Xid("an NVLink did not train", _LINK),
    137: Xid("a remote GPU was refused access over NVLink", _APPLICATION),
    140: Xid("memory error that was not recovered", _RESET),
    143: Xid("the GPU could not be initialised", _SUPPORT),
    **dict.fromkeys(range(144, 151), Xid("an NVLink reported an error of its hardware", _LINK)),
    154: Xid("the recovery that the GPU asks for has changed", "see fabric_gpu_recovery_action"),
    155: Xid("an NVLink went down", _LINK),
    156: Xid("a part of the GPU was retired", "reset the GPU when the job is done"),
    157: Xid("a part of the GPU could not be retired", _SUPPORT),
    158: Xid("a fatal time-out inside the GPU", _RESET),
    167: Xid("a fatal time-out of PCIe", "reboot the host; check its slot and riser"),
}
"""NVIDIA's XID catalogue, those that end or slow a job. Others are reported by number."""


def explain_xid(number: int) -> str:
    """The meaning and the remedy of an XID, in a sentence.

    >>> explain_xid(79)
    'XID 79: the GPU has fallen off the bus; reboot the host; check its power, slot and heat'
    """
    xid = XIDS.get(number)
    if xid is None:
        return f"XID {number}: see NVIDIA's XID catalogue"
    return f"XID {number}: {xid.meaning}; {xid.action}"
