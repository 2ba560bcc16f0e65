"""Floats as Go writes them."""

from __future__ import annotations

import math
from decimal import Decimal

PLAIN_EXPONENTS = range(-4, 6)
"""The shortest form of a float of these exponents has none: Go decides as if for six digits."""


def special(value: float) -> str | None:
    """How a value that is no number is written; None: it is one."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return None


def write_float(value: float) -> str:
    """The shortest text that is this float and no other, as Go's `%v` writes it.

    >>> write_float(0.1), write_float(1e6), write_float(1e21), write_float(1e-9)
    ('0.1', '1e+06', '1e+21', '1e-09')
    """
    return special(value) or shortest(value, "g")


def shortest(value: float, verb: str) -> str:
    """The shortest digits, as `%e`, `%f` or `%g` put them."""
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int), "infinities and NaN are written by special()"
    text = "".join(map(str, digits)).lstrip("0") or "0"
    stripped = text.rstrip("0") or "0"
    exponent += len(text) - len(stripped) if stripped != "0" else -exponent
    point = exponent + len(stripped) - 1
    minus = "-" if sign else ""
    if verb == "e" or (verb == "g" and point not in PLAIN_EXPONENTS):
        return minus + _with_exponent(stripped, point)
    return minus + format(Decimal(stripped).scaleb(exponent), "f")


def _with_exponent(digits: str, point: int) -> str:
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{'-' if point < 0 else '+'}{abs(point):02d}"


def hexadecimal(value: float) -> str:
    """The exact value in base 16, as Go's `%x` writes it.

    >>> hexadecimal(1.5), hexadecimal(-40.5), hexadecimal(0.0)
    ('0x1.8p+00', '-0x1.44p+05', '0x0p+00')
    """
    minus = "-" if math.copysign(1, value) < 0 else ""
    if value == 0:
        return f"{minus}0x0p+00"
    half, exponent = math.frexp(abs(value))
    digits = (half * 2).hex().partition("p")[0].rstrip("0").rstrip(".")
    return f"{minus}{digits}p{exponent - 1:+03d}"


def four_digits(value: float) -> str:
    """`%.4g`, in which the humanizing functions write."""
    return special(value) or f"{value:.4g}"
