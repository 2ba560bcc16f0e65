"""Pickles of plain containers: as Python reads them, and nothing of what an attacker writes."""

import os
import pickle
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.contract.errors import ParseError
from collector.parsing import plain_pickle
from collector.parsing.plain_pickle import load_beginning, load_plain

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures/formats/flight_recorder"
PICKLES = [path for path in FIXTURES.glob("*/input*") if path.suffix != ".json"]

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 80), 1 << 80)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(max_size=8), inner)
        | st.lists(inner, max_size=4).map(tuple)
    ),
)


class Marker:
    """Writes a file when it is unpickled by a reader that trusts pickles."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("path", PICKLES, ids=lambda path: path.name)
def test_real_dumps_are_what_python_reads(path: Path) -> None:
    assert load_plain(path.read_bytes()) == pickle.loads(path.read_bytes())  # noqa: S301 - ours


@given(value=plain, protocol=st.integers(2, 5))
def test_plain_values_are_what_python_reads(value: object, protocol: int) -> None:
    assert load_plain(pickle.dumps(value, protocol=protocol)) == value


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_executed(protocol: int, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    hostile = pickle.dumps({"entries": Marker(marker)}, protocol=protocol)
    with pytest.raises(ParseError, match=r"would execute code|is no part of plain data"):
        load_plain(hostile)
    assert not marker.exists()


@pytest.mark.parametrize("code", sorted(plain_pickle.EXECUTING))
def test_every_executing_instruction_is_named(code: str) -> None:
    byte = next(byte for byte, name in plain_pickle.NAMES.items() if name == code)
    with pytest.raises(ParseError, match=f"{code} would execute code"):
        load_plain(b"\x80\x02" + bytes([byte]) + b"os\nsystem\n.")


BOMBS = {
    "a text of four gigabytes": b"\x80\x02X\xff\xff\xff\xffabc.",
    "a text of sixteen exabytes": b"\x80\x04\x8d" + b"\xff" * 8 + b"abc.",
    "a frame of sixteen exabytes": b"\x80\x04\x95" + b"\xff" * 8 + b".",
    "a number of two gigabytes": b"\x80\x02\x8b" + struct.pack("<i", 0x7FFFFFFF) + b"1.",
    "bytes": b"\x80\x05B\xff\xff\xff\x7fabc.",
    "a hundred thousand open lists": b"\x80\x02" + b"(" * 100_000,
    "lists without an end": b"\x80\x02" + b"]" * 100_000,
    "a value from an empty memo": b"\x80\x02h\x07.",
    "nothing on the stack": b"\x80\x02.",
    "no mark": b"\x80\x02Nt.",
    "a list as a key": b"\x80\x02}]Ns.",
    "half a pair": b"\x80\x02}(Nu.",
    "an append to a number": b"\x80\x02K\x01Na.",
    "an unknown instruction": b"\x80\x02\xff.",
    "protocol 9": b"\x80\x09.",
    "nothing": b"",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_and_takes_no_memory(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ParseError):
            load_plain(BOMBS[name])
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_a_memo_of_four_billion_places_has_one_value() -> None:
    tracemalloc.start()
    try:
        assert load_plain(b"\x80\x02Nr\xff\xff\xff\xff.") is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_list_within_itself_is_only_a_value() -> None:
    value = load_plain(b"\x80\x02]q\x00h\x00a.")
    assert isinstance(value, list)
    assert value[0] is value


def test_a_deep_value_can_be_let_go() -> None:
    depth = 200_000
    nested = load_plain(b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b".")
    assert isinstance(nested, list)
    del nested


def test_the_number_of_instructions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_pickle, "INSTRUCTIONS_MAX", 1000)
    with pytest.raises(ParseError, match="INSTRUCTIONS_MAX"):
        load_plain(b"\x80\x02" + b"N0" * 1000 + b"N.")


def test_an_item_that_may_not_be_whole_is_no_part_of_a_beginning() -> None:
    """Its dictionary gets one key after the other: half of an operation looks like another one."""

    def text(word: str) -> bytes:
        return b"X" + len(word).to_bytes(4, "little") + word.encode()

    items = b"".join(b"}" + text("a") + b"K" + bytes([number]) + b"s" for number in range(3))
    found, cut = load_beginning(b"\x80\x02}(" + text("entries") + b"](" + items)
    assert found == {"entries": [{"a": 0}, {"a": 1}]}
    assert cut is not None
