"""The little of protobuf's wire format that remote write needs, without generated classes.

Generated Python classes build an object for every label of every sample and reach 100,000
samples a second; remote write is read here as what it is, lengths and bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from api.base.limits import FIELDS_MAX
from collector.contract.errors import WireError, WireTooLarge

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
VARINT_BYTES_MAX = 10
_MASK_64 = (1 << 64) - 1

Field = tuple[int, int, int, int]
"""Field number, wire type, and the start and end of its bytes. A varint's bytes are itself."""


def read_varint(body: bytes, position: int, end: int) -> tuple[int, int]:
    """The unsigned number at this position, and the position after it."""
    if position < end and body[position] < 0x80:
        return body[position], position + 1
    result = shift = 0
    for position in range(position, min(end, position + VARINT_BYTES_MAX)):  # noqa: B020, PLR1704
        byte = body[position]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & _MASK_64, position + 1
        shift += 7
    raise WireError(f"a number at byte {position} does not end")


def read_int64(body: bytes, position: int, end: int) -> int:
    unsigned, _ = read_varint(body, position, end)
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned


def fields(body: bytes, position: int, end: int) -> Iterator[Field]:
    """The fields of the message between two positions, in the order in which they stand."""
    for _ in range(FIELDS_MAX):
        if position >= end:
            return
        key, start = read_varint(body, position, end)
        number, wire_type = key >> 3, key & 7
        if wire_type == LENGTH:
            length, start = read_varint(body, start, end)
            position = start + length
        elif wire_type == VARINT:
            _, position = read_varint(body, start, end)
        elif wire_type == FIXED64:
            position = start + 8
        elif wire_type == FIXED32:
            position = start + 4
        else:
            raise WireError(f"wire type {wire_type} at byte {start} is none of protobuf's")
        if position > end or not number:
            raise WireError(f"field {number} at byte {start} reaches over the end of its message")
        yield number, wire_type, start, position
    if position < end:
        raise WireTooLarge(f"a message with over {FIELDS_MAX} fields; FIELDS_MAX is {FIELDS_MAX}")


def length_span(body: bytes, position: int) -> tuple[int, int]:
    """Where the content of the length-delimited field at this position starts and stops.

    For hot paths: the tag must have one byte; raises IndexError if the body is cut off.
    """
    length = body[position + 1]
    if length < 0x80:
        start = position + 2
    elif body[position + 2] < 0x80:
        length = length & 0x7F | body[position + 2] << 7
        start = position + 3
    else:
        length, start = read_varint(body, position + 1, len(body))
    if start + length > len(body):
        raise WireError(f"the field at byte {position} reaches over the end of the body")
    return start, start + length


def read_text(body: bytes, start: int, end: int) -> str:
    try:
        return body[start:end].decode()
    except UnicodeDecodeError as error:
        raise WireError(f"text at byte {start} is not UTF-8") from error


def expect(wire_type: int, expected: int | tuple[int, ...], what: str) -> None:
    """Raise WireError if a known field has a type that it cannot have."""
    allowed = expected if isinstance(expected, tuple) else (expected,)
    if wire_type not in allowed:
        msg = f"{what} has wire type {wire_type}; it must be {' or '.join(map(str, allowed))}"
        raise WireError(msg)
