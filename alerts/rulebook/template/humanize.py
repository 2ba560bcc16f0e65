"""Numbers for people, in the words of Prometheus' functions."""

from __future__ import annotations

import math
import re

from alerts.rulebook.template import numbers
from alerts.rulebook.template.errors import CallError
from alerts.rulebook.template.lex import quoted
from alerts.rulebook.template.literals import WHOLE_MAX, WHOLE_MIN, read_float
from alerts.rulebook.template.printing import write_moment
from alerts.rulebook.template.values import Byte, Html, Moment, Value, type_name

LARGE = ("k", "M", "G", "T", "P", "E", "Z", "Y")
LARGE_1024 = ("ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")
SMALL = ("m", "u", "n", "p", "f", "a", "z", "y")
_NS, _NS_PER_MS = 1e9, 1_000_000
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400

_DURATION = re.compile(
    r"(?:([0-9]+)y)?(?:([0-9]+)w)?(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?"
    r"(?:([0-9]+)ms)?",
    re.ASCII,
)
_DURATION_MS = (365 * 86_400_000, 7 * 86_400_000, 86_400_000, 3_600_000, 60_000, 1_000, 1)
_DURATION_LENGTH_MAX = 100
"""Characters of a duration: more than seven numbers that int64 holds."""


def as_float(value: Value) -> float:
    """A number, or a text that is one. Raises CallError."""
    if isinstance(value, float):
        return value
    if isinstance(value, str) and not isinstance(value, Html):
        try:
            return read_float(value)
        except ValueError as error:
            raise CallError(f"strconv.ParseFloat: parsing {quoted(value)}: {error}") from error
    if isinstance(value, int) and not isinstance(value, bool | Byte):
        return float(value)
    raise CallError(f"can't convert {type_name(value)} to float")


def _scaled(value: float, base: int, prefixes: tuple[str, ...]) -> str:
    """A value of one or more with the prefix that leaves a few digits."""
    prefix = ""
    for larger in prefixes:
        if abs(value) < base:
            break
        prefix = larger
        value /= base
    return numbers.four_digits(value) + prefix


def _scaled_down(value: float) -> str:
    """A value below one with the prefix that makes it one or more."""
    prefix = ""
    for smaller in SMALL:
        if abs(value) >= 1:
            break
        prefix = smaller
        value *= 1000
    return numbers.four_digits(value) + prefix


def humanize(given: Value) -> str:
    """With metric prefixes.

    >>> humanize(1234567.0), humanize(0.001), humanize("0")
    ('1.235M', '1m', '0')
    """
    value = as_float(given)
    if value == 0 or not math.isfinite(value):
        return numbers.four_digits(value)
    return _scaled(value, 1000, LARGE) if abs(value) >= 1 else _scaled_down(value)


def humanize_1024(given: Value) -> str:
    value = as_float(given)
    if abs(value) <= 1 or not math.isfinite(value):
        return numbers.four_digits(value)
    return _scaled(value, 1024, LARGE_1024)


def humanize_duration(given: Value) -> str:
    """Seconds as days, hours, minutes, seconds, or parts of one.

    >>> humanize_duration(899.99), humanize_duration(-0.5)
    ('14m 59s', '-500ms')
    """
    value = as_float(given)
    if not math.isfinite(value):
        return numbers.four_digits(value)
    if abs(value) < 1:
        return (_scaled_down(value) if value else numbers.four_digits(value)) + "s"
    sign, value = ("-", -value) if value < 0 else ("", value)
    # What int64 does not hold: Go leaves it to the processor; ours is the largest.
    whole = min(int(value), WHOLE_MAX)
    days, hours = whole // _DAY, whole // _HOUR % 24
    minutes, seconds = whole // _MINUTE % 60, whole % 60
    if whole < _MINUTE:
        return f"{sign}{numbers.four_digits(value)}s"
    parts = f"{minutes}m {seconds}s"
    if hours or days:
        parts = f"{hours}h {parts}"
    return f"{sign}{days}d {parts}" if days else f"{sign}{parts}"


def humanize_percentage(given: Value) -> str:
    return numbers.four_digits(as_float(given) * 100) + "%"


def to_time(given: Value) -> Moment:
    """Unix seconds as a point in time. Raises CallError for what cannot be one."""
    value = as_float(given)
    if not math.isfinite(value):
        raise CallError("value is NaN or Inf")
    nanoseconds = value * _NS
    if not WHOLE_MIN <= nanoseconds <= WHOLE_MAX:
        raise CallError(
            f"{numbers.write_float(value)} cannot be represented as a nanoseconds timestamp "
            "since it overflows int64"
        )
    # Go's division of whole numbers goes towards zero.
    return Moment(int(math.copysign(abs(int(nanoseconds)) // _NS_PER_MS, nanoseconds)))


def humanize_timestamp(given: Value) -> str:
    value = as_float(given)
    if not math.isfinite(value):
        return numbers.four_digits(value)
    return write_moment(to_time(value))


def parse_duration(text: str) -> float:
    """A duration as rule files write it (`1h30m`), in seconds. Raises CallError."""
    if text == "0":
        return 0.0
    if not text:
        raise CallError("empty duration string")
    found = _DURATION.fullmatch(text) if len(text) <= _DURATION_LENGTH_MAX else None
    if found is None:
        raise CallError(f"not a valid duration string: {quoted(text)}")
    parts = zip(found.groups(default="0"), _DURATION_MS, strict=True)
    milliseconds = sum(int(number) * unit for number, unit in parts)
    if milliseconds * _NS_PER_MS > WHOLE_MAX:
        raise CallError("duration out of range")
    return milliseconds / 1000
