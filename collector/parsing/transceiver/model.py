"""What a module says of itself, in base units. None: it does not measure it, or it was not read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

TEMPERATURE, SUPPLY, RECEIVE_POWER, TRANSMIT_POWER, BIAS = READINGS = (
    "temperature",
    "supply",
    "receive_power",
    "transmit_power",
    "bias",
)
"""Readings that have limits and alarms."""
NO_LIGHT, FAULT = "loss_of_signal", "fault"
"""What else a module raises."""
HIGH_ALARM, LOW_ALARM, HIGH_WARNING, LOW_WARNING = LEVELS = (
    "high_alarm",
    "low_alarm",
    "high_warning",
    "low_warning",
)
"""In this order in all three maps."""


class Lane(NamedTuple):
    """One lane's light and current; lanes count from 1, as in the documents."""

    number: int
    receive_watts: float | None = None
    transmit_watts: float | None = None
    bias_amperes: float | None = None


class Seen(NamedTuple):
    """A reading of the module's own signal processor (CMIS: versatile diagnostics)."""

    what: str
    """`snr` as a ratio of powers, or `pre_fec_ber` as a ratio of bits."""
    side: str
    """`media`: the fibre; `host`: the few centimetres to the NIC."""
    lane: int
    value: float


class Raised(NamedTuple):
    """On how many lanes (or once, of the module as a whole) a flag is up."""

    alarms: int = 0
    warnings: int = 0


class Module(NamedTuple):
    """One transceiver or cable."""

    kind: str
    """`QSFP-DD`, `OSFP`, `SFP`…"""
    standard: str
    vendor: str = ""
    part: str = ""
    revision: str = ""
    serial: str = ""
    firmware: str = ""
    temperature_celsius: float | None = None
    supply_volts: float | None = None
    lanes: Sequence[Lane] = ()
    limits: Mapping[str, Sequence[float]] = {}
    """Of a reading the four limits, in the order of LEVELS and in its unit."""
    raised: Mapping[str, Raised] = {}
    seen: Sequence[Seen] = ()


def count_bits(number: int | None) -> int:
    return (number or 0).bit_count()
