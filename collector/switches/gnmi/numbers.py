"""A leaf's value as a number in base units, and every reason why it is none. Pure."""

from __future__ import annotations

import math
import re
from functools import cache

from collector.contract.catalog import Kind, load_catalog
from collector.switches.gnmi.decode import Unreadable
from collector.switches.gnmi.feed import strip_module
from collector.switches.gnmi.model import Value
from collector.switches.gnmi.tables import Leaf

COUNTER_END = 1 << 64
"""No counter is wider."""
DBM_MAX = 100.0
"""Ten megawatts: beyond it nothing is a power in dBm."""
NO_LIGHT = "-inf"
"""SONiC's dBm of a fibre without light: the logarithm of zero."""
BOOT_NS_MIN = 946_684_800 * 1_000_000_000
"""2000-01-01: a switch whose clock was never set reports 1970."""
TEXT_CHARS_MAX = 256
"""Of a text that becomes a label. LLDP's longest has 255 bytes."""
SAID_CHARS_MAX = 60

_NUMBER = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?")
"""JSON of RFC 7951 writes 64-bit numbers and decimals as strings. Not `float`'s own idea of a
number, which takes 1_000, nan and infinity."""


@cache
def is_counter(metric: str) -> bool:
    found = load_catalog().metric(metric)
    return found is not None and found.kind is Kind.COUNTER


def to_number(leaf: Leaf, value: Value) -> float:
    """The value in the metric's unit; ValueError names what it is instead."""
    if leaf.values:
        return leaf.factor * word_number(leaf, value)
    if leaf.unit == "dbm" and value == NO_LIGHT:
        return 0.0
    number = plain_number(value)
    if is_counter(leaf.metric) and not 0 <= number < COUNTER_END:
        raise ValueError(f"{number} is no counter")
    if leaf.unit == "dbm":
        if abs(number) > DBM_MAX:
            raise ValueError(f"{number} dBm is no power")
        return float(10 ** (number / 10) / 1000)
    if leaf.unit == "boot_ns" and number < BOOT_NS_MIN:
        raise ValueError(f"{number} is no time of a start")
    # Whole numbers stay whole: a float would round counters beyond 2**53.
    return number if leaf.factor == 1 else number * leaf.factor


def word_number(leaf: Leaf, value: Value) -> float:
    """The number that the profile gives this word; identities may carry their module's name."""
    word = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else value
    if isinstance(word, str) and strip_module(word) in leaf.values:
        return leaf.values[strip_module(word)]
    raise ValueError(f"its value is {short(value)}")


def plain_number(value: Value) -> float:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        number = float(value) if any(sign in value for sign in ".eE") else int(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = value
    elif isinstance(value, Unreadable):
        raise ValueError(value.why)
    else:
        raise ValueError(f"its value is {short(value)}")
    if not math.isfinite(number):
        raise ValueError(f"{number} is no number")
    return number


def to_text(value: Value) -> str:
    """The value as part of a label: printable and short; empty for what is no text."""
    if isinstance(value, list):
        return ",".join(filter(None, (to_text(each) for each in value[:64])))[:TEXT_CHARS_MAX]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    text = str(value)[:TEXT_CHARS_MAX]
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def short(value: Value) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool) else type(value).__name__
    return text if len(text) <= SAID_CHARS_MAX else text[:SAID_CHARS_MAX] + "…"
