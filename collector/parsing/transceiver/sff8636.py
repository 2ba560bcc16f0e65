"""QSFP modules: SFF-8636 revision 2.10a. Four lanes; limits on page 03h."""

from __future__ import annotations

from collections.abc import Iterator

from collector.parsing.transceiver.memory import (
    EEPROM,
    STEPS_PER_AMPERE,
    STEPS_PER_VOLT,
    STEPS_PER_WATT,
    UPPER,
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
    count_bits,
)

STANDARD = "SFF-8636"
NAMES = Page(EEPROM, 0, 0, UPPER, 128)
LIMITS = Page(EEPROM, 0, 3, UPPER, 128)
LIVE = Page(EEPROM, 0, 0, 0, 64)
"""Flags and measurements, in the part without pages."""
LANES = 4
FLAT = 0x04
"""Of byte 2: there is no page but 00h, as in copper cables."""
TECHNOLOGY, COPPER_FROM = 147, 0xA
"""Byte whose upper half names the transmitter; from this value on it is a copper cable."""
ABILITIES, HAS_TRANSMIT_POWER = 220, 0x04


def still_pages(memory: Memory) -> Iterator[Page]:
    yield NAMES
    if not is_copper(memory) and not (memory.byte(0, 2) or 0) & FLAT:
        yield LIMITS


def live_pages(memory: Memory) -> Iterator[Page]:
    if not is_copper(memory):
        yield LIVE


def is_copper(memory: Memory) -> bool:
    """Whether it is a cable without lasers: its places for light hold nothing of meaning."""
    technology = memory.byte(0, TECHNOLOGY)
    return technology is None or technology >> 4 >= COPPER_FROM


def decode(memory: Memory, kind: str) -> Module:
    module = Module(
        kind=kind,
        standard=STANDARD,
        vendor=memory.text(0, 148, 16),
        part=memory.text(0, 168, 16),
        revision=memory.text(0, 184, 2),
        serial=memory.text(0, 196, 16),
    )
    if is_copper(memory):
        return module
    sends_power = bool((memory.byte(0, ABILITIES) or 0) & HAS_TRANSMIT_POWER)
    lanes = (
        Lane(
            lane + 1,
            memory.scaled(0, 34 + 2 * lane, STEPS_PER_WATT),
            memory.scaled(0, 50 + 2 * lane, STEPS_PER_WATT) if sends_power else None,
            memory.scaled(0, 42 + 2 * lane, STEPS_PER_AMPERE),
        )
        for lane in range(LANES)
    )
    return module._replace(
        temperature_celsius=memory.degrees(0, 22),
        supply_volts=memory.scaled(0, 26, STEPS_PER_VOLT),
        lanes=tuple(lanes),
        limits=limits_of(memory, sends_power=sends_power),
        raised=raised_of(memory, sends_power=sends_power),
    )


def limits_of(memory: Memory, *, sends_power: bool) -> dict[str, tuple[float, ...]]:
    found: dict[str, tuple[float, ...]] = {}
    for reading, start, steps in (
        (TEMPERATURE, 128, 0),
        (SUPPLY, 144, STEPS_PER_VOLT),
        (RECEIVE_POWER, 176, STEPS_PER_WATT),
        (BIAS, 184, STEPS_PER_AMPERE),
        (TRANSMIT_POWER, 192, STEPS_PER_WATT),
    ):
        if reading == TRANSMIT_POWER and not sends_power:
            continue
        values = [
            memory.scaled(3, at, steps) if steps else memory.degrees(3, at)
            for at in range(start, start + 8, 2)
        ]
        known = tuple(value for value in values if value is not None)
        if len(known) == len(values):
            found[reading] = known
    return found


def raised_of(memory: Memory, *, sends_power: bool) -> dict[str, Raised]:
    if memory.byte(0, 3) is None:
        return {}
    found = {
        reading: Raised(int(bool(flags & 0b1100_0000)), int(bool(flags & 0b0011_0000)))
        for reading, flags in (
            (TEMPERATURE, memory.byte(0, 6) or 0),
            (SUPPLY, memory.byte(0, 7) or 0),
        )
    }
    for reading, start in ((RECEIVE_POWER, 9), (BIAS, 11), (TRANSMIT_POWER, 13)):
        if reading != TRANSMIT_POWER or sends_power:
            found[reading] = of_lanes(memory.number(0, start) or 0)
    found[NO_LIGHT] = Raised(count_bits((memory.byte(0, 3) or 0) & 0x0F))
    found[FAULT] = Raised(count_bits((memory.byte(0, 4) or 0) & 0x0F))
    return found


def of_lanes(flags: int) -> Raised:
    """Four bits a lane: too high, too low as an alarm, then as a warning."""
    nibbles = [flags >> shift & 0xF for shift in (12, 8, 4, 0)]
    return Raised(
        sum(bool(nibble & 0b1100) for nibble in nibbles),
        sum(bool(nibble & 0b0011) for nibble in nibbles),
    )
