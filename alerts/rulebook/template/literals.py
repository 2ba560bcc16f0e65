"""Go's literals: strings, characters, numbers."""

from __future__ import annotations

import math
import re

from alerts.rulebook.template.nodes import Number

_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\'\"])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|())"
)
_SIMPLE = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"',
}  # fmt: skip
_DIGITS = r"[0-9](?:_?[0-9])*"
_HEX_DIGITS = r"[0-9a-fA-F](?:_?[0-9a-fA-F])*"
_DECIMAL = re.compile(
    rf"[+-]?(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?", re.ASCII
)
_HEX_DECIMAL = re.compile(
    rf"[+-]?0[xX]_?(?:{_HEX_DIGITS}\.?(?:{_HEX_DIGITS})?|\.{_HEX_DIGITS})[pP][+-]?{_DIGITS}",
    re.ASCII,
)
_WHOLE = re.compile(r"[+-]?(?:0[xX]_?[0-9a-fA-F]|0[oO]_?[0-7]|0[bB]_?[01]|[0-9])[0-9a-fA-F_]*")
_OLD_OCTAL = re.compile(r"([+-]?)0_?([0-7_]+)")
_SPECIAL = re.compile(r"([+-]?)(inf|infinity|nan)", re.IGNORECASE)

WHOLE_MIN, WHOLE_MAX = -(2**63), 2**63 - 1
_NUMBER_LENGTH_MAX = 400
"""Digits of a number: as many as the largest float has, and more than any person writes."""
_SURROGATES = range(0xD800, 0xE000)
_UNICODE_END = 0x110000
_BYTE_END = 0x100
_ASCII_END = 0x80


def unquote(written: str) -> str:
    """What a string or raw string stands for. Raises ValueError."""
    if written.startswith("`"):
        return written[1:-1].replace("\r", "")
    parts: list[bytes] = []
    at, inside = 0, written[1:-1]
    for escape in _ESCAPE.finditer(inside):
        parts.append(inside[at : escape.start()].encode("utf-8", "surrogateescape"))
        parts.append(_escaped(escape, quote=written[0]))
        at = escape.end()
    parts.append(inside[at:].encode("utf-8", "surrogateescape"))
    # An escape gives a byte (`\xff`), and several of them may be one character.
    return b"".join(parts).decode("utf-8", "surrogateescape")


def _escaped(escape: re.Match[str], quote: str) -> bytes:
    simple, byte, four, eight, octal, _ = escape.groups()
    if simple is not None:
        # Go knows \' between single quotes only, and \" between double ones.
        if simple in "'\"" and simple != quote:
            raise ValueError("invalid syntax")
        return _SIMPLE[simple].encode()
    if byte or octal:
        code = int(byte, 16) if byte else int(octal, 8)
        if code >= _BYTE_END:
            raise ValueError("invalid syntax")
        return bytes([code])
    if not (four or eight):
        raise ValueError("invalid syntax")
    code = int(four or eight, 16)
    if code >= _UNICODE_END or code in _SURROGATES:
        raise ValueError("invalid syntax")
    return chr(code).encode()


def read_character(at: int, written: str) -> Number:
    """A character constant, which is a number. Raises ValueError."""
    value = unquote(written)
    if not value:
        raise ValueError("invalid syntax")
    if len(value) != 1:
        raise ValueError(f"malformed character constant: {written}")
    code = ord(value)
    if code in _SURROGATES:
        code -= 0xDC00
    return Number(at, written, code, float(code), is_decimal=False)


def read_number(at: int, written: str) -> Number:
    """A number as Go reads it. Raises ValueError."""
    if len(written) > _NUMBER_LENGTH_MAX:
        raise ValueError(f"a number of {len(written)} digits; at most {_NUMBER_LENGTH_MAX}")
    if written.endswith("i"):
        raise ValueError(f"complex numbers are not known here: {written}")
    whole = _read_whole(written)
    try:
        decimal = read_float(written) if whole is None else float(whole)
    except ValueError as error:
        raise ValueError(f'illegal number syntax: "{written}"') from error
    has_point = any(one in written for one in ".eEpP")
    if whole is None and not has_point:
        # Go's message for `08`, too.
        raise ValueError(f'integer overflow: "{written}"')
    is_hex = written[:2].lower() == "0x" and not any(one in written for one in "pP")
    is_decimal = not is_hex and has_point
    if whole is None and decimal.is_integer() and WHOLE_MIN <= decimal <= WHOLE_MAX:
        whole = int(decimal)
    return Number(at, written, whole, decimal, is_decimal)


def _read_whole(written: str) -> int | None:
    """A whole number in any of Go's bases; None if it is none, or none that int64 holds."""
    old = _OLD_OCTAL.fullmatch(written)
    if old is not None:
        written = f"{old[1]}0o{old[2]}"
    if _WHOLE.fullmatch(written) is None:
        return None
    try:
        whole = int(written, 0)
    except ValueError:
        return None
    return whole if WHOLE_MIN <= whole <= WHOLE_MAX else None


def read_float(written: str) -> float:
    """A float as Go's ``strconv.ParseFloat`` reads it. Raises ValueError in its words."""
    if special := _SPECIAL.fullmatch(written):
        return float(special[1] + special[2])
    if _DECIMAL.fullmatch(written):
        value = float(written.replace("_", ""))
        if math.isinf(value):
            raise ValueError("value out of range")
        return value
    if _HEX_DECIMAL.fullmatch(written) is None:
        raise ValueError("invalid syntax")
    try:
        return float.fromhex(written.replace("_", ""))
    except OverflowError as error:
        raise ValueError("value out of range") from error
