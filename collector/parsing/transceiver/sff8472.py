"""SFP modules: SFF-8472 revision 12.4. One lane; measurements at a second address, A2h."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from collector.parsing.transceiver.memory import (
    DEGREE_STEPS,
    DIAGNOSTICS,
    EEPROM,
    STEPS_PER_AMPERE,
    STEPS_PER_VOLT,
    STEPS_PER_WATT,
    Memory,
    Page,
)
from collector.parsing.transceiver.model import (
    BIAS,
    FAULT,
    NO_LIGHT,
    RECEIVE_POWER,
    SUPPLY,
    TEMPERATURE,
    TRANSMIT_POWER,
    Lane,
    Module,
    Raised,
)

STANDARD = "SFF-8472"
NAMES = Page(EEPROM, 0, 0, 0, 128)
LIMITS = Page(DIAGNOSTICS, 0, 0, 0, 96)
"""Limits, and the constants of modules that leave calibration to the reader."""
LIVE = Page(DIAGNOSTICS, 0, 0, 96, 32)
MONITORING = 92
"""Byte of A0h: which diagnostics there are."""
HAS_DIAGNOSTICS, EXTERNALLY_CALIBRATED, NEEDS_ADDRESS_CHANGE = 0x40, 0x10, 0x04


def still_pages(memory: Memory) -> Iterator[Page]:
    yield NAMES
    if has_diagnostics(memory):
        yield LIMITS


def live_pages(memory: Memory) -> Iterator[Page]:
    if has_diagnostics(memory):
        yield LIVE


def has_diagnostics(memory: Memory) -> bool:
    monitoring = memory.byte(0, MONITORING) or 0
    # A module that wants its address switched first has its diagnostics where none can read them.
    return bool(monitoring & HAS_DIAGNOSTICS) and not monitoring & NEEDS_ADDRESS_CHANGE


def decode(memory: Memory, kind: str) -> Module:
    module = Module(
        kind=kind,
        standard=STANDARD,
        vendor=memory.text(0, 20, 16),
        part=memory.text(0, 40, 16),
        revision=memory.text(0, 56, 4),
        serial=memory.text(0, 68, 16),
    )
    if not has_diagnostics(memory):
        return module
    units = Units.of(memory)
    receive, transmit, bias = (
        scale(memory.number(0, at, address=DIAGNOSTICS))
        for at, scale in ((104, units.received), (102, units.sent), (100, units.current))
    )
    return module._replace(
        temperature_celsius=units.degrees(memory.number(0, 96, address=DIAGNOSTICS, signed=True)),
        supply_volts=units.volts(memory.number(0, 98, address=DIAGNOSTICS)),
        lanes=(Lane(1, receive, transmit, bias),),
        limits=limits_of(memory, units),
        raised=raised_of(memory),
    )


class Line(NamedTuple):
    """Slope and offset of a reading that the module has not calibrated itself."""

    slope: float = 1.0
    offset: float = 0.0

    def at(self, number: float) -> float:
        return self.slope * number + self.offset


class Units(NamedTuple):
    """From raw numbers to base units."""

    temperature: Line = Line()
    supply: Line = Line()
    transmit: Line = Line()
    bias: Line = Line()
    receive: tuple[float, ...] = (0.0, 1.0)
    """Coefficients of the powers 0, 1, 2… of the raw number."""

    @classmethod
    def of(cls, memory: Memory) -> Units:
        constants = memory.bytes_at(0, 56, 36, DIAGNOSTICS)
        if not (memory.byte(0, MONITORING) or 0) & EXTERNALLY_CALIBRATED or constants is None:
            return cls()
        *powers, i_slope, i_add, p_slope, p_add, t_slope, t_add, v_slope, v_add = struct.unpack(
            ">5f HhHhHhHh", constants
        )
        return cls(
            temperature=Line(t_slope / 256, t_add),
            supply=Line(v_slope / 256, v_add),
            transmit=Line(p_slope / 256, p_add),
            bias=Line(i_slope / 256, i_add),
            receive=tuple(reversed(powers)),
        )

    def degrees(self, raw: int | None) -> float | None:
        return None if raw is None else self.temperature.at(raw) / DEGREE_STEPS

    def volts(self, raw: int | None) -> float | None:
        return None if raw is None else self.supply.at(raw) / STEPS_PER_VOLT

    def current(self, raw: int | None) -> float | None:
        return None if raw is None else self.bias.at(raw) / STEPS_PER_AMPERE

    def sent(self, raw: int | None) -> float | None:
        return None if raw is None else self.transmit.at(raw) / STEPS_PER_WATT

    def received(self, raw: int | None) -> float | None:
        if raw is None:
            return None
        watts = sum(each * raw**power for power, each in enumerate(self.receive)) / STEPS_PER_WATT
        # The constants are floats of the module: not a number and a million watts are possible.
        return watts if 0.0 <= watts <= 1.0 else None


def limits_of(memory: Memory, units: Units) -> dict[str, tuple[float, ...]]:
    found: dict[str, tuple[float, ...]] = {}
    scales = (
        (TEMPERATURE, 0, units.degrees),
        (SUPPLY, 8, units.volts),
        (BIAS, 16, units.current),
        (TRANSMIT_POWER, 24, units.sent),
        (RECEIVE_POWER, 32, units.received),
    )
    for reading, start, scale in scales:
        raw = (
            memory.number(0, at, address=DIAGNOSTICS, signed=reading == TEMPERATURE)
            for at in range(start, start + 8, 2)
        )
        values = [value for value in map(scale, raw) if value is not None]
        if len(values) == 4:  # noqa: PLR2004 - one of each level
            found[reading] = tuple(values)
    return found


def raised_of(memory: Memory) -> dict[str, Raised]:
    alarms, warnings = (memory.number(0, at, address=DIAGNOSTICS) for at in (112, 116))
    status = memory.byte(0, 110, address=DIAGNOSTICS)
    if alarms is None or warnings is None or status is None:
        return {}
    found = {
        # Two bits each from the highest on: too high, too low.
        reading: Raised(int(bool(alarms >> shift & 0b11)), int(bool(warnings >> shift & 0b11)))
        for reading, shift in (
            (TEMPERATURE, 14),
            (SUPPLY, 12),
            (BIAS, 10),
            (TRANSMIT_POWER, 8),
            (RECEIVE_POWER, 6),
        )
    }
    return found | {
        NO_LIGHT: Raised(status >> 1 & 1),
        FAULT: Raised(status >> 2 & 1),
    }
