"""Prometheus' texts of numbers and labels: Go's digits are those of `repr`, the layout differs."""

from __future__ import annotations

import json
import math
from decimal import Decimal

from api.data.export import number_text
from api.promql.values import Labels, label_order

_PLAIN_EXPONENTS = range(-4, 6)
"""Decimal exponents that Go's `%g` does not write out."""


def decimal_text(value: float) -> str:
    """The number without an exponent, as Go's `strconv.FormatFloat(value, 'f', -1, 64)`.

    >>> decimal_text(1e22), decimal_text(-0.0), decimal_text(float("inf"))
    ('10000000000000000000000', '-0', '+Inf')
    """
    if not math.isfinite(value):
        return number_text(value)
    return format(Decimal(repr(float(value))), "f").removesuffix(".0")


def general_text(value: float) -> str:
    """The number as Go's `%g` and `%v` write it: with an exponent if it is far from one.

    >>> general_text(1.5), general_text(1234567.0), general_text(0.00001)
    ('1.5', '1.234567e+06', '1e-05')
    """
    if not math.isfinite(value) or value == 0:
        return decimal_text(value)
    exponent = Decimal(repr(float(value))).adjusted()
    if exponent in _PLAIN_EXPONENTS:
        return decimal_text(value)
    digits = str(Decimal(repr(float(value))).scaleb(-exponent).normalize())
    return f"{digits}e{exponent:+03d}"


def labels_text(labels: Labels) -> str:
    """The label set as Prometheus shows it in errors, sorted by name.

    >>> labels_text({"port": "1", "__name__": "up"})
    '{__name__="up", port="1"}'
    """
    pairs = [
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in label_order(labels)
    ]
    return f"{{{', '.join(pairs)}}}"
