"""QSFP-DD, OSFP and newer QSFP and SFP modules: CMIS 5.2 (OIF-CMIS-05.2). Eight lanes a bank.

Flags are latched and cleared by reading them, as `ethtool -m` clears them too: what is raised here
has been up at some time since the last read.
"""

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
    Seen,
    count_bits,
)

STANDARD = "CMIS"
LANES = 8
LOWER = Page(EEPROM, 0, 0, 0, 64)
NAMES = Page(EEPROM, 0, 0, UPPER, 128)
ABILITIES = Page(EEPROM, 0, 1, UPPER, 128)
LIMITS = Page(EEPROM, 0, 2, UPPER, 128)
LANE_STATES = Page(EEPROM, 0, 0x11, UPPER, 80)
DIAGNOSTICS_ABILITIES = Page(EEPROM, 0, 0x2F, UPPER, 1)
FLAT = 0x80
"""Of byte 2: no page but 00h, as in copper cables."""
MEDIA, COPPER_FROM = 212, 0x0A
"""Byte that names the transmitter's technology; from this value on it is a copper cable."""
HAS_DIAGNOSTICS = 0x40
"""Of byte 142 of page 01h: pages 20h to 2Fh are there."""
GROUPS_MAX = 4
DESCRIPTORS, SAMPLES = 0x20, 0x24
"""First of four pages each: what a place measures, and what it measured."""
PLACES = 64
OBSERVED = {
    5: ("snr", "media"),
    6: ("snr", "host"),
    15: ("pre_fec_ber", "media"),
    16: ("pre_fec_ber", "host"),
}
"""Types of OIF-CMIS-05.2, table 8-170, that are read: the present value, not its least or most."""
SNR_STEPS = 256
"""A decibel."""


def still_pages(memory: Memory) -> Iterator[Page]:
    yield NAMES
    if has_pages(memory):
        yield ABILITIES
        yield LIMITS
        if has_diagnostics(memory):
            yield DIAGNOSTICS_ABILITIES
            yield from (
                Page(EEPROM, 0, DESCRIPTORS + group, UPPER, 128) for group in groups_of(memory)
            )


def live_pages(memory: Memory) -> Iterator[Page]:
    yield LOWER
    if has_pages(memory):
        yield LANE_STATES
        for group in groups_of(memory):
            if any(described(memory, group)):
                yield Page(EEPROM, 0, SAMPLES + group, UPPER, 128)


def has_pages(memory: Memory) -> bool:
    """Whether it has lasers, and pages about them."""
    media = memory.byte(0, MEDIA)
    is_copper = media is None or media >= COPPER_FROM
    return not is_copper and not (memory.byte(0, 2) or 0) & FLAT


def has_diagnostics(memory: Memory) -> bool:
    return bool((memory.byte(1, 142) or 0) & HAS_DIAGNOSTICS)


def groups_of(memory: Memory) -> range:
    count = memory.byte(0x2F, 128)
    if count is None or not has_diagnostics(memory):
        return range(0)
    return range(min((count & 0b11) + 1, GROUPS_MAX))


def decode(memory: Memory, kind: str) -> Module:
    major, minor = memory.byte(0, 39), memory.byte(0, 40)
    module = Module(
        kind=kind,
        standard=STANDARD,
        vendor=memory.text(0, 129, 16),
        part=memory.text(0, 148, 16),
        revision=memory.text(0, 164, 2),
        serial=memory.text(0, 166, 16),
        firmware=f"{major}.{minor}" if has_pages(memory) and (major or minor) else "",
    )
    if not has_pages(memory):
        return module
    return module._replace(
        temperature_celsius=memory.degrees(0, 14),
        supply_volts=memory.scaled(0, 16, STEPS_PER_VOLT),
        lanes=tuple(lanes_of(memory)),
        limits=limits_of(memory),
        raised=raised_of(memory),
        seen=tuple(seen_in(memory)),
    )


# Lanes -------------------------------------------------------------------------------------------


def bias_steps(memory: Memory) -> int:
    """Steps an ampere: byte 160 of page 01h names a factor for modules with strong lasers."""
    scale = (memory.byte(1, 160) or 0) >> 3 & 0b11
    return STEPS_PER_AMPERE // (1, 2, 4, 1)[scale]


def lanes_of(memory: Memory) -> Iterator[Lane]:
    abilities = memory.byte(1, 160)
    if abilities is None or memory.byte(0x11, 154) is None:
        return
    unused = memory.byte(0, 210) or 0
    for lane in range(LANES):
        if unused >> lane & 1:
            continue  # the media has fewer lanes than the module (page 00h, byte 210)
        yield Lane(
            lane + 1,
            memory.scaled(0x11, 186 + 2 * lane, STEPS_PER_WATT) if abilities & 0b100 else None,
            memory.scaled(0x11, 154 + 2 * lane, STEPS_PER_WATT) if abilities & 0b010 else None,
            memory.scaled(0x11, 170 + 2 * lane, bias_steps(memory)) if abilities & 0b001 else None,
        )


def limits_of(memory: Memory) -> dict[str, tuple[float, ...]]:
    found: dict[str, tuple[float, ...]] = {}
    for reading, start, steps in (
        (TEMPERATURE, 128, 0),
        (SUPPLY, 136, STEPS_PER_VOLT),
        (TRANSMIT_POWER, 176, STEPS_PER_WATT),
        (BIAS, 184, bias_steps(memory)),
        (RECEIVE_POWER, 192, STEPS_PER_WATT),
    ):
        values = [
            memory.scaled(2, at, steps) if steps else memory.degrees(2, at)
            for at in range(start, start + 8, 2)
        ]
        known = tuple(value for value in values if value is not None)
        if len(known) == len(values):
            found[reading] = known
    return found


def raised_of(memory: Memory) -> dict[str, Raised]:
    flags = memory.byte(0, 9)
    if flags is None:
        return {}
    found = {
        TEMPERATURE: Raised(int(bool(flags & 0b0011)), int(bool(flags & 0b1100))),
        SUPPLY: Raised(int(bool(flags >> 4 & 0b0011)), int(bool(flags >> 4 & 0b1100))),
    }
    if memory.byte(0x11, 152) is None:
        return found
    for reading, start in ((TRANSMIT_POWER, 139), (BIAS, 143), (RECEIVE_POWER, 149)):
        high, low, high_warning, low_warning = (
            memory.byte(0x11, start + level) or 0 for level in range(4)
        )
        found[reading] = Raised(count_bits(high | low), count_bits(high_warning | low_warning))
    found[NO_LIGHT] = Raised(count_bits(memory.byte(0x11, 147)))
    found[FAULT] = Raised(count_bits(memory.byte(0x11, 135)))
    return found


# The module's own signal processor ---------------------------------------------------------------


def described(memory: Memory, group: int) -> Iterator[tuple[int, str, str, int]]:
    """Places of a group that hold something we read: place, what, side, lane."""
    for place in range(PLACES):
        descriptor = memory.number(DESCRIPTORS + group, UPPER + 2 * place)
        what = OBSERVED.get((descriptor or 0) & 0xFF)
        if descriptor is not None and what is not None:
            yield place, what[0], what[1], (descriptor >> 8 & 0x0F) + 1


def seen_in(memory: Memory) -> Iterator[Seen]:
    for group in groups_of(memory):
        for place, what, side, lane in described(memory, group):
            raw = memory.number(SAMPLES + group, UPPER + 2 * place)
            if raw is None:
                continue
            value = 10.0 ** (raw / SNR_STEPS / 10.0) if what == "snr" else short_float(raw)
            if what == "snr" or value <= 1.0:
                yield Seen(what, side, lane, value)


def short_float(raw: int) -> float:
    """CMIS' F16: five bits of exponent, eleven of mantissa.

    >>> short_float(20 << 11 | 15)
    0.0015
    """
    exponent = (raw >> 11) - 24
    mantissa = raw & 0x7FF
    return mantissa * 10.0**exponent if exponent > 0 else mantissa / 10.0**-exponent
