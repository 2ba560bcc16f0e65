"""Memories of transceivers: what is decoded, which pages are asked for, and that no bytes raise."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.doors.ethtool_netlink import recorded_piece
from collector.parsing.transceiver import (
    FIRST_LOOK,
    Memory,
    Module,
    Page,
    decode,
    live_pages,
    still_pages,
)
from collector.parsing.transceiver.cmis import short_float
from collector.parsing.transceiver.memory import EEPROM
from tests.doubles.transceivers import Plugged, copper, qsfp28, qsfp_dd, sfp28


def read_memory(plugged: Plugged) -> tuple[Memory, list[Page]]:
    """As the source reads it: a page that is not there holds nothing."""
    text, memory, asked = plugged.recording(), Memory(), []

    def take(page: Page) -> None:
        asked.append(page)
        try:
            memory.put(page, recorded_piece(text, page))
        except OSError:
            memory.put(page, b"")

    take(FIRST_LOOK)
    while missing := [one for one in still_pages(memory) if not memory.has(one)]:
        take(missing[0])
    for page in live_pages(memory):
        take(page)
    return memory, asked


def read_module(plugged: Plugged) -> Module:
    module = decode(read_memory(plugged)[0])
    assert module is not None
    return module


def test_a_cmis_module_has_names_lanes_limits_and_diagnostics() -> None:
    module = read_module(qsfp_dd())
    assert (module.kind, module.standard, module.firmware) == ("QSFP-DD", "CMIS", "3.17")
    assert (module.vendor, module.part, module.serial) == ("MAKER", "MK-400DR4", "MK2231X00042")
    assert [lane.number for lane in module.lanes] == [1, 2, 3, 4]
    assert module.lanes[1].receive_watts == 0.0002455
    assert module.lanes[0].bias_amperes == 0.043
    assert module.limits["temperature"] == (75.0, -5.0, 70.0, 0.0)
    assert module.raised["temperature"] == (0, 1)
    assert module.raised["receive_power"] == (0, 1)
    seen = {(one.what, one.side, one.lane): one.value for one in module.seen}
    assert seen["pre_fec_ber", "media", 1] == 2.4e-6
    assert seen["pre_fec_ber", "host", 1] == 1e-12
    assert math.isclose(10 * math.log10(seen["snr", "media", 3]), 18.5)
    assert len(seen) == 6  # averages and laser temperatures are not read


@pytest.mark.parametrize(("scale", "factor"), [(0, 1), (1, 2), (2, 4), (3, 1)])
def test_strong_lasers_count_their_current_in_larger_steps(scale: int, factor: int) -> None:
    module = read_module(qsfp_dd(bias_scale=scale))
    assert module.lanes[0].bias_amperes == pytest.approx(0.043 * factor)
    assert module.limits["bias"][0] == pytest.approx(0.08 * factor)


def test_a_copper_cable_has_names_and_no_light() -> None:
    memory, asked = read_memory(copper())
    module = decode(memory)
    assert module is not None
    assert (module.serial, module.lanes, module.temperature_celsius) == ("MKC0001", (), None)
    assert len(asked) == 2


def test_measurements_take_few_pieces() -> None:
    """Each piece costs milliseconds on the module's bus, and the kernel's lock meanwhile."""
    for make, most in ((qsfp_dd, 4), (qsfp28, 1), (sfp28, 1), (copper, 0)):
        memory, _ = read_memory(make())
        assert len(list(live_pages(memory))) == most


def test_a_fresh_measurement_wins_over_the_first_look() -> None:
    plugged = qsfp28()
    memory, _ = read_memory(plugged)
    plugged.numbers(22, 30 * 256)
    page = next(iter(live_pages(memory)))
    memory.put(page, recorded_piece(plugged.recording(), page))
    module = decode(memory)
    assert module is not None
    assert module.temperature_celsius == 30.0


@pytest.mark.parametrize("kind", [0x00, 0x05, 0x7F, 0xFF])
def test_an_unknown_kind_is_no_module(kind: int) -> None:
    plugged = Plugged()
    plugged.write(0, bytes([kind]))
    memory, asked = read_memory(plugged)
    assert decode(memory) is None
    assert asked == [FIRST_LOOK]


def test_names_that_are_no_text_stay_printable() -> None:
    plugged = qsfp28()
    plugged.write(148, b'MA"\x00\xff\x1b[31mKER\n')
    assert read_module(plugged).vendor == 'MA"???[31mKER?'


def test_cmis_floats() -> None:
    assert short_float(0) == 0.0
    assert short_float(24 << 11 | 1) == 1.0
    assert short_float(31 << 11 | 0x7FF) == 2047e7


@given(
    kind=st.sampled_from([0x03, 0x0C, 0x0D, 0x11, 0x18, 0x19, 0x1E, 0x1F]),
    noise=st.binary(min_size=256, max_size=256),
    cut=st.integers(0, 128),
)
def test_any_bytes_give_a_module(kind: int, noise: bytes, cut: int) -> None:
    """Also pages that come short; and never more pages than a module can have."""
    memory = Memory()
    memory.put(FIRST_LOOK, (bytes([kind]) + noise)[: max(1, cut)])
    asked = 0
    while missing := [one for one in still_pages(memory) if not memory.has(one)]:
        page = missing[0]
        memory.put(page, noise[page.page : page.page + min(cut, page.length)])
        asked += 1
    for page in live_pages(memory):
        is_first = (page.page, page.offset) == (0, 0)
        memory.put(page, (bytes([kind]) * is_first + noise)[: page.length])
        asked += 1
    module = decode(memory)
    assert module is not None
    assert asked <= 16
    for lane in module.lanes:
        for value in lane[1:]:
            assert value is None or 0.0 <= value <= 1.0 or kind == 0x03
    assert all(32 <= ord(letter) < 127 for letter in module.vendor + module.serial)
    assert all(math.isfinite(one.value) for one in module.seen)


def test_memory_knows_only_what_was_read() -> None:
    memory = Memory()
    memory.put(Page(EEPROM, 0, 0, 10, 4), b"\x01\x02")
    assert memory.byte(0, 11) == 2
    assert memory.byte(0, 12) is None
    assert memory.number(0, 11) is None
    assert memory.byte(1, 11) is None
    assert memory.text(0, 10, 4) == ""
