"""Numbers as Grafana writes them: with the unit's own prefixes and three digits that matter."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence

DIGITS = 3
"""That matter: what fits on an axis, and as fine as anybody compares by eye."""

SI = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
SMALL = ((1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p"))
WORDS = ((1e12, " Tri"), (1e9, " Bil"), (1e6, " Mil"), (1e3, " K"), (1.0, ""))
BINARY = tuple((1024.0**power, f"{prefix}i") for power, prefix in ((4, "T"), (3, "G"), (2, "M")))
TIMES = (
    (86_400.0, " days"),
    (3_600.0, " hours"),
    (60.0, " min"),
    (1.0, " s"),
    (1e-3, " ms"),
    (1e-6, " µs"),
    (1e-9, " ns"),
)

Prefixes = Sequence[tuple[float, str]]


def shown(value: float, unit: str = "short", decimals: int | None = None) -> str:
    """A value in one of Grafana's units.

    >>> shown(1.2e9, "Bps"), shown(0.0034, "s"), shown(0.45, "percentunit")
    ('1.2 GB/s', '3.4 ms', '45%')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return FORMATS.get(unit, FORMATS["short"])(value, decimals)


def digits(value: float, decimals: int | None) -> str:
    """A number without its unit: as many decimals as asked for, or as many as matter.

    >>> digits(3.40, None), digits(1234.5, None), digits(2, 1), digits(-0.0001, None)
    ('3.4', '1234', '2.0', '-0.0001')
    """
    if decimals is not None:
        return f"{value:.{decimals}f}"
    if value == 0:
        return "0"
    places = DIGITS - 1 - math.floor(math.log10(abs(value)))
    text = f"{value:.{min(max(places, 0), 15)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def scaled(value: float, decimals: int | None, prefixes: Prefixes, unit: str) -> str:
    """The value with the largest prefix that leaves something before the point."""
    size = abs(value)
    factor, prefix = next(
        ((factor, prefix) for factor, prefix in prefixes if size >= factor * (1 - 1e-9)),
        prefixes[-1] if size else (1.0, unprefixed(prefixes)),
    )
    return f"{digits(value / factor, decimals)}{prefix}{unit}"


def unprefixed(prefixes: Prefixes) -> str:
    """What stands for a factor of one."""
    return next((prefix for factor, prefix in prefixes if factor == 1.0), "")


def with_prefixes(unit: str, prefixes: Prefixes) -> Callable[[float, int | None], str]:
    """A format: number, a space, prefix and unit."""
    spaced = [(factor, f" {prefix}") for factor, prefix in prefixes]
    return lambda value, decimals: scaled(value, decimals, spaced, unit)


def with_words(unit: str) -> Callable[[float, int | None], str]:
    """A format of counts: Grafana says K, Mil and Bil."""
    return lambda value, decimals: scaled(value, decimals, WORDS, unit)


def seconds(value: float, decimals: int | None) -> str:
    """Time, in whatever fits."""
    return scaled(value, decimals, TIMES, "")


def moment(value: float, _: int | None) -> str:
    """A time in milliseconds since 1970, as a date."""
    try:
        return dt.datetime.fromtimestamp(value / 1_000, tz=dt.UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return digits(value, None)


def scientific(value: float, decimals: int | None) -> str:
    """A power of ten.

    >>> scientific(1.25e-13, None)
    '1.25e-13'
    """
    if value == 0:
        return "0"
    return f"{value:.{2 if decimals is None else decimals}e}"


FORMATS: dict[str, Callable[[float, int | None], str]] = {
    "short": with_words(""),
    "none": digits,
    "string": digits,
    "bytes": with_prefixes("B", (*BINARY, (1024.0, "Ki"), (1.0, ""))),
    "Bps": with_prefixes("B/s", SI),
    "bps": with_prefixes("b/s", SI),
    "pps": with_words(" p/s"),
    "cps": with_words(" c/s"),
    "s": seconds,
    "ns": lambda value, decimals: seconds(value / 1e9, decimals),
    "h": lambda value, decimals: seconds(value * 3_600, decimals),
    "percentunit": lambda value, decimals: f"{digits(value * 100, decimals)}%",
    "percent": lambda value, decimals: f"{digits(value, decimals)}%",
    "celsius": lambda value, decimals: f"{digits(value, decimals)} °C",
    "watt": with_prefixes("W", (*SI, *SMALL)),
    "hertz": with_prefixes("Hz", SI),
    "volt": with_prefixes("V", (*SI, *SMALL)),
    "amp": with_prefixes("A", (*SI, *SMALL)),
    "dBm": lambda value, decimals: f"{digits(value, decimals)} dBm",
    "sci": scientific,
    "dateTimeAsIso": moment,
}
"""Grafana's ids of units; one that is not here is shown as a plain number."""
