"""Series as unit tests of rules write them: `errors_total{port="1"} 0+5x3 _ stale`.

The notation is that of Prometheus' own tests and of `promtool test rules`. Values stand one after
the other, an interval apart; `0+5x3` is 0 5 10 15, `7x2` is 7 7 7, `_` is no value at all, `_x4`
four times none, `stale` the marker by which a series ends.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator

import promql_parser

from api.base.limits import SELECTOR_BYTES_MAX
from api.data.selectors import read_selector
from collector.contract.errors import FabricscopeError
from collector.contract.identity import METRIC_LABEL, printable

VALUES_MAX = 1_000_000
"""Values of one series: two years of minutes. `0x999999999` is one short word."""

VALUES_BYTES_MAX = 1 << 20
"""Text of one series' values; longer ones are written with `x`."""

STALE_MARKER: float = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
"""The NaN by which Prometheus marks a series' end; its bits make it, not its value."""

SHOWN_MAX = 60

# No hexadecimal: `0x10` is ten more zeros.
_NUMBER = r"(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[iI][nN][fF]|[nN][aA][nN])"
_REPEATED = re.compile(
    rf"(?P<start>[+-]?{_NUMBER})(?:(?P<sign>[+-])(?P<change>{_NUMBER}))?x(?P<times>\d+)"
)
_SINGLE = re.compile(rf"[+-]?{_NUMBER}")
_GAPS = re.compile(r"_x(?P<times>\d+)")

Values = list[float | None]
ReadWord = Callable[[str], float | None]


class NotationError(FabricscopeError):
    """A series or a value that is not written as it should be."""


def read_series(series: str, values: str) -> tuple[dict[str, str], Values]:
    return read_metric(series), read_values(values)


def read_metric(text: str) -> dict[str, str]:
    r"""The labels of a series, the metric's name among them.

    >>> read_metric('up{host="a"}'), read_metric('{host="a"}'), read_metric("{}")
    ({'host': 'a', '__name__': 'up'}, {'host': 'a'}, {})
    """
    shown = printable(text)[:SHOWN_MAX]
    bare = text.strip()
    if not bare:
        raise NotationError('a series without a name; write up{host="a"}, or {} for no labels')
    if len(text.encode()) > SELECTOR_BYTES_MAX:
        raise NotationError(f"{shown}…: over {SELECTOR_BYTES_MAX} bytes")
    if re.fullmatch(r"\{\s*\}", bare):
        return {}
    if named := re.fullmatch(r"([A-Za-z_:][\w:]*)\s*\{\s*\}", bare, re.ASCII):
        return {METRIC_LABEL: named[1]}
    # A selector must have a matcher that is not empty; a series need not.
    try:
        expression = promql_parser.parse(bare)
    except ValueError as error:
        raise NotationError(f"{shown}: {error}") from error
    if not isinstance(expression, promql_parser.VectorSelector):
        raise NotationError(f'{shown} is not a series; write up{{host="a"}}')
    try:
        selector = read_selector(expression)
    except ValueError as error:
        raise NotationError(f"{shown}: {error}") from error
    if expression.offset is not None or expression.at is not None:
        raise NotationError(f"{shown}: a series has neither offset nor @")
    if any(matcher.operator != "=" for matcher in selector.matchers):
        raise NotationError(f"{shown}: a series' labels are written with =")
    return {matcher.label: matcher.value for matcher in selector.matchers if matcher.value}


def read_values(text: str, read_other: ReadWord | None = None) -> Values:
    """The values in this text. ``read_other`` reads words of a larger notation.

    >>> read_values("1 2+3x2 _ _x2 5-1x1 7x1")
    [1.0, 2.0, 5.0, 8.0, None, None, None, 5.0, 4.0, 7.0, 7.0]
    """
    if len(text) > VALUES_BYTES_MAX:
        raise NotationError(f"values of {len(text)} characters; at most {VALUES_BYTES_MAX}")
    if "{{" in text:
        raise NotationError(
            "native histograms ({{…}}) are not supported; write the series of a classic "
            "histogram: _bucket, _sum and _count"
        )
    values: Values = []
    for word in text.split():
        for value in read_word(word, read_other):
            values.append(value)
            if len(values) > VALUES_MAX:
                raise NotationError(f"{text[:SHOWN_MAX]}: more than {VALUES_MAX} values")
    return values


def read_word(word: str, read_other: ReadWord | None = None) -> Iterator[float | None]:
    if word == "_":
        yield None
    elif word == "stale":
        yield STALE_MARKER
    elif gaps := _GAPS.fullmatch(word):
        for _ in range(count_of(gaps["times"])):
            yield None
    elif _SINGLE.fullmatch(word):
        yield float(word)
    elif repeated := _REPEATED.fullmatch(word):
        value, change = float(repeated["start"]), 0.0
        if repeated["change"]:
            change = float(repeated["sign"] + repeated["change"])
        # Added one by one, as Prometheus does: so the last digits are the same.
        for _ in range(count_of(repeated["times"]) + 1):
            yield value
            value += change
    elif read_other is not None:
        yield read_other(word)
    else:
        raise NotationError(
            f"{printable(word)[:SHOWN_MAX]!r} is not a value; write 3, 0+5x3, 7x2, _, _x4 or stale"
        )


def count_of(text: str) -> int:
    if len(text) > len(str(VALUES_MAX)):
        raise NotationError(f"{text[:SHOWN_MAX]} repetitions; at most {VALUES_MAX}")
    return int(text)
