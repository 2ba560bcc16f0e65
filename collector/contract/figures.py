"""Numbers and names from outside as people read them: durations, shares, quantities with units.

One place for every program: verdicts, the report of `diagnose`, explanations and the terminal use
the same figures for the same number.
"""

from __future__ import annotations

import math

from collector.contract.identity import printable

NAME_LENGTH_MAX = 64
"""Characters of a name in a sentence: host names have 63 at most; longer ones are cut."""
TIME_UNITS = {"s": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "ns": 1e-9,
              "nanoseconds": 1e-9}  # fmt: skip
"""Units of evidence that are times, in seconds."""
SHARE_UNITS = frozenset({"share", "ratio", "seconds per second"})
"""Units of evidence that are parts of 1."""
SCALED_UNITS = {
    "bytes/s": "B/s", "B/s": "B/s", "bytes per second": "B/s", "bits/s": "b/s", "bit/s": "b/s",
    "b/s": "b/s", "bits per second": "b/s", "hertz": "Hz", "Hz": "Hz", "bytes": "B", "B": "B",
}  # fmt: skip
"""Units of evidence that are read in thousands, and how they are written."""
OTHER_UNITS = {"celsius": "°C", "watts": "W", "per second": "/s"}


def shown(text: str) -> str:
    """A name from outside as a sentence may hold it.

    >>> shown("node3"), shown("x" * 100)[-3:]
    ('node3', 'xx…')
    """
    clean = printable(text)
    return clean if len(clean) <= NAME_LENGTH_MAX else f"{clean[: NAME_LENGTH_MAX - 1]}…"


def share(part: float) -> str:
    """A share of 1 in percent.

    >>> share(0.293), share(0.004), share(0), share(0.9996), share(1), share(1.034)
    ('29 %', '0.4 %', '0 %', '99.9 %', '100 %', '103 %')
    """
    percent = part * 100
    if 0 < percent < 1:
        return f"{percent:.1f} %"
    if 99 < percent < 100:  # noqa: PLR2004 - what is not all must not look like all
        return f"{min(percent, 99.9):.1f} %"
    return f"{percent:.0f} %"


def duration(seconds: float) -> str:
    """A duration as people say it.

    >>> duration(0.000_25), duration(0.414), duration(1.2), duration(200), duration(7500)
    ('250 µs', '414 ms', '1.20 s', '3 min 20 s', '2 h 5 min')
    >>> duration(0), duration(12.34), duration(200_000), duration(float("nan")), duration(59.96)
    ('0 s', '12.3 s', '2 d 7 h', 'unknown', '1 min')
    """
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 0:
        return f"-{duration(-seconds)}"
    for limit, factor, unit in ((9.995e-4, 1e6, "µs"), (0.9995, 1e3, "ms"), (59.95, 1.0, "s")):
        if 0 < seconds < limit:
            return f"{figures(seconds * factor)} {unit}"
    whole = round(seconds)
    for length, unit, part, part_unit in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= length:
            return two_units(whole // part * part, length, unit, part, part_unit)
    return two_units(whole, 60, "min", 1, "s")


def two_units(whole: int, length: int, unit: str, part: int, part_unit: str) -> str:
    """A duration in a large unit and the next smaller one; zero parts are left out."""
    large, small = divmod(whole, length)
    parts = [f"{large:,} {unit}"] if large else []
    parts += [f"{small // part} {part_unit}"] if small // part or not large else []
    return " ".join(parts)


def figures(number: float) -> str:
    """Three figures, without needless zeros in whole numbers.

    >>> figures(1.2), figures(414.4), figures(14.04), figures(1234.5)
    ('1.20', '414', '14.0', '1,234')
    """
    whole = len(str(int(abs(number))))
    return f"{number:,.{max(0, 3 - whole)}f}"


def is_known_unit(unit: str) -> bool:
    """Whether numbers of this unit have a short form."""
    plain = unit.replace("_", " ")
    return any(plain in known for known in (TIME_UNITS, SHARE_UNITS, SCALED_UNITS, OTHER_UNITS))


def quantity(value: float | None, unit: str) -> str:
    """A number of evidence with its unit; a dash for what is not known.

    >>> quantity(0.425, "seconds"), quantity(0.07, "share"), quantity(None, "s")
    ('425 ms', '7 %', '-')
    >>> quantity(2.5e9, "bytes/s"), quantity(1.98e9, "hertz"), quantity(12.0, "errors")
    ('2.50 GB/s', '1.98 GHz', '12 errors')
    >>> quantity(0.0123, ""), quantity(1e-12, "1"), quantity(float("nan"), "s")
    ('0.0123', '1e-12', '-')
    >>> quantity(4e11, "bits_per_second"), quantity(751_289.2, "per_second")
    ('400 Gb/s', '751,289 /s')
    """
    if value is None or not math.isfinite(value):
        return "-"
    unit = unit.replace("_", " ")
    if unit in TIME_UNITS:
        return duration(value * TIME_UNITS[unit])
    if unit in SHARE_UNITS:
        return share(value)
    if unit in SCALED_UNITS:
        short = SCALED_UNITS[unit]
        for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(value) >= factor:
                return f"{figures(value / factor)} {prefix}{short}"
        return f"{value:.3g} {short}"
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"  # noqa: PLR2004 - 3 figures
    word = "" if unit in ("1", "") else f" {OTHER_UNITS.get(unit, shown(unit))}"
    return number + word
