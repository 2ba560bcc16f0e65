"""A strict reader for the part of BER that SNMP answers are made of.

pyasn1's decoder builds objects from a description of the type and takes about 110 µs for one value
of a table; this reader takes two. It reads with lengths checked against what holds them, without
recursion, and into Python's own types. pysnmp writes requests and does all of SNMPv3's security.

Two kinds of error are distinguished. A structure that does not hold together (`BerError`) makes the
whole datagram worthless. A single value that is none (`Odd`) leaves the others of its answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, final

from collector.contract.errors import FabricscopeError
from collector.switches.snmp.model import Oid, Value

SUB_IDENTIFIERS_MAX = 128
"""Of one name: SNMP's own limit (RFC 3416, section 4.1)."""
SUB_IDENTIFIER_MAX = (1 << 32) - 1
NAMES_KEPT = 1 << 13
"""Decoded names: the indexes of a fleet repeat with every column, switch and poll. A MB; the
longest names that a broken switch could send, 45."""
LENGTH_BYTES_MAX = 4
"""Of a long length; a datagram has no more than 64 kB, two would do."""
COUNTER32_MAX = (1 << 32) - 1
COUNTER64_MAX = (1 << 64) - 1
SIGNED_BYTES_MAX = 8
"""Of an INTEGER. SNMP's are 32 bits wide; some agents send wider, valid ones."""

INTEGER, OCTETS, NULL, NAME, SEQUENCE = 0x02, 0x04, 0x05, 0x06, 0x30
ADDRESS, COUNTER32, GAUGE32, TIME_TICKS, OPAQUE, COUNTER64 = 0x40, 0x41, 0x42, 0x43, 0x44, 0x46
NO_SUCH_OBJECT, NO_SUCH_INSTANCE, END_OF_VIEW = 0x80, 0x81, 0x82
RESPONSE, REPORT = 0xA2, 0xA8

_LONG_FORM = 0x80
_SIGN_BIT = 0x80
_CONTINUES = 0x80
_SEVEN_BITS = 0x7F
_ARCS = 40
"""How a name's first two numbers share one (X.690, section 8.19.4)."""
_WIDTHS = {
    COUNTER32: (COUNTER32_MAX, 4),
    GAUGE32: (COUNTER32_MAX, 4),
    TIME_TICKS: (COUNTER32_MAX, 4),
    COUNTER64: (COUNTER64_MAX, 8),
}
"""Unsigned types: their greatest value, and the bytes of it without a leading zero."""


class BerError(FabricscopeError):
    """Bytes that are no BER, or not of the shape that SNMP gives its messages."""


@final
@dataclass(frozen=True, slots=True)
class Odd:
    """A value that is none, in words; ``is_absent`` where the switch reports SNMP's own absence."""

    detail: str
    is_absent: bool = False
    is_end: bool = False


_ABSENCES = {
    NULL: Odd("null"),
    NO_SUCH_OBJECT: Odd("noSuchObject", is_absent=True),
    NO_SUCH_INSTANCE: Odd("noSuchInstance", is_absent=True),
    END_OF_VIEW: Odd("endOfMibView", is_absent=True, is_end=True),
}

Binding = tuple[bytes, Value | Odd]
"""A name, still encoded (without tag and length), and its value."""


class Element(NamedTuple):
    """A tag, and where the content stands."""

    tag: int
    start: int
    end: int


def read_element(data: bytes, position: int, end: int) -> Element:
    """The element at a position, which must not reach beyond ``end``."""
    if position + 2 > end:
        raise BerError("it ends inside a header")
    tag, length = data[position], data[position + 1]
    start = position + 2
    if length >= _LONG_FORM:
        start, length = _read_long_length(data, start, end, length & _SEVEN_BITS)
    if start + length > end:
        raise BerError(f"{length} bytes are announced, and {end - start} are there")
    return Element(tag, start, start + length)


def _read_long_length(data: bytes, position: int, end: int, count: int) -> tuple[int, int]:
    """Where the content begins, and its length. Leading zeros occur: agents patch lengths in."""
    if not 0 < count <= LENGTH_BYTES_MAX:
        raise BerError(f"a length of {count} bytes")
    if position + count > end:
        raise BerError("it ends inside a length")
    return position + count, int.from_bytes(data[position : position + count], "big")


def expect(data: bytes, position: int, end: int, tag: int) -> Element:
    found = read_element(data, position, end)
    if found.tag != tag:
        raise BerError(f"tag {found.tag:#04x} where {tag:#04x} belongs")
    return found


def read_integer(data: bytes, position: int, end: int) -> tuple[int, int]:
    """A small INTEGER of a header, and where the next element begins."""
    found = expect(data, position, end, INTEGER)
    if not 0 < found.end - found.start <= SIGNED_BYTES_MAX:
        raise BerError(f"an integer of {found.end - found.start} bytes")
    return int.from_bytes(data[found.start : found.end], "big", signed=True), found.end


def read_octets(data: bytes, position: int, end: int) -> tuple[bytes, int]:
    """An OCTET STRING of a header, and where the next element begins."""
    found = expect(data, position, end, OCTETS)
    return data[found.start : found.end], found.end


@lru_cache(NAMES_KEPT)
def read_numbers(content: bytes) -> Oid:
    """The numbers of a name, or of the end of one; without the first two's special rule."""
    numbers: list[int] = []
    number = 0
    is_inside = False
    for byte in content:
        if byte == _CONTINUES and not is_inside:
            raise BerError("a name's number with leading zeros")
        number = (number << 7) | (byte & _SEVEN_BITS)
        is_inside = bool(byte & _CONTINUES)
        if not is_inside:
            if number > SUB_IDENTIFIER_MAX:
                raise BerError(f"a name with the number {number}")
            numbers.append(number)
            number = 0
        elif number > SUB_IDENTIFIER_MAX:
            raise BerError("a name's number without end")
    if is_inside:
        raise BerError("a name that ends inside a number")
    if len(numbers) > SUB_IDENTIFIERS_MAX:
        raise BerError(f"a name of {len(numbers)} numbers")
    return tuple(numbers)


def read_name(content: bytes) -> Oid:
    numbers = read_numbers(content)
    if not numbers:
        raise BerError("an empty name")
    first = min(numbers[0] // _ARCS, 2)
    return (first, numbers[0] - first * _ARCS, *numbers[1:])


def write_name(name: Oid) -> bytes:
    """The content of an object identifier: what `read_name` reads; for comparing names as bytes."""
    if len(name) < 2:  # noqa: PLR2004 - the first two share a number, so there are two
        raise BerError(f"a name of {len(name)} numbers")
    content = bytearray()
    for number in (name[0] * _ARCS + name[1], *name[2:]):
        pieces = [number & _SEVEN_BITS]
        while number := number >> 7:
            pieces.append(_CONTINUES | (number & _SEVEN_BITS))
        content.extend(reversed(pieces))
    return bytes(content)


def write_element(tag: int, content: bytes) -> bytes:
    """An element with its length in the shortest form."""
    size = len(content)
    if size < _LONG_FORM:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, _LONG_FORM | len(length))) + length + content


def write_integer(value: int) -> bytes:
    """A whole INTEGER that is not negative."""
    return write_element(INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def read_bindings(data: bytes, position: int, end: int) -> list[Binding]:
    """All pairs of a list; ``end`` is the end of the list.

    The one loop that runs for every value of every switch: what `read_element` does stands here
    again for short lengths, because a call costs as much as all of it.
    """
    bindings: list[Binding] = []
    while position < end:
        if position + 6 > end or data[position] != SEQUENCE:
            raise BerError("a pair that is none")
        length = data[position + 1]
        start = position + 2
        if length >= _LONG_FORM:
            start, length = _read_long_length(data, start, end, length & _SEVEN_BITS)
        position = start + length
        if position > end:
            raise BerError("a pair that reaches beyond its list")
        if start + 2 > position or data[start] != NAME:
            raise BerError("a pair without a name")
        length = data[start + 1]
        start += 2
        if length >= _LONG_FORM:
            start, length = _read_long_length(data, start, position, length & _SEVEN_BITS)
        middle = start + length
        if middle + 2 > position:
            raise BerError("a name that reaches beyond its pair")
        tag, length = data[middle], data[middle + 1]
        content = middle + 2
        if length >= _LONG_FORM:
            content, length = _read_long_length(data, content, position, length & _SEVEN_BITS)
        if content + length != position:
            raise BerError("a value that does not fill its pair")
        bindings.append((data[start:middle], read_value(tag, data[content:position])))
    return bindings


def read_value(tag: int, content: bytes) -> Value | Odd:
    """A value as a Python type, or what is wrong with it."""
    if tag in _WIDTHS:
        return _read_unsigned(tag, content)
    if tag in (OCTETS, ADDRESS, OPAQUE):
        return content
    if tag == INTEGER and 0 < len(content) <= SIGNED_BYTES_MAX:
        return int.from_bytes(content, "big", signed=True)
    if tag == INTEGER:
        return Odd(f"an integer of {len(content)} bytes")
    if tag == NAME:
        return _read_name_value(content)
    return _ABSENCES.get(tag) or Odd(f"a value of the unknown type {tag:#04x}")


def _read_name_value(content: bytes) -> Oid | Odd:
    """A name that is a value: a broken one loses this value, not the answer."""
    try:
        return read_name(content)
    except BerError as error:
        return Odd(str(error))


def _read_unsigned(tag: int, content: bytes) -> int | Odd:
    """A counter, gauge or time. A leading zero byte is often forgotten; then all bits count."""
    limit, width = _WIDTHS[tag]
    if not content or len(content) > width + 1:
        return Odd(f"an unsigned number of {len(content)} bytes")
    if content[0] & _SIGN_BIT and len(content) != width:
        return Odd(f"the negative number {int.from_bytes(content, 'big', signed=True)}")
    value = int.from_bytes(content, "big")
    return value if value <= limit else Odd(f"{value} where at most {limit} fits")
