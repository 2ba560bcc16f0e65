"""Numbers as people read them."""

from __future__ import annotations

import datetime as dt
import itertools

from collector.contract.figures import figures

_NS_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
_BYTE_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_RATE_UNITS = ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))
_MINUTES_FROM_NS = 600 * 1_000_000_000
"""From ten minutes on, seconds are read as minutes."""

BLOCKS = "▁▂▃▄▅▆▇█"
GAP = " "


def duration(time_ns: float | None) -> str:
    """A duration in three figures; a dash for what is not known.

    >>> duration(15_341_000), duration(-2_500), duration(0), duration(None), duration(7.3e12)
    ('15.3 ms', '-2.50 µs', '0 ms', '-', '122 min')
    """
    if time_ns is None:
        return "-"
    if not time_ns:
        return "0 ms"
    if abs(time_ns) >= _MINUTES_FROM_NS:
        return f"{time_ns / 6e10:,.0f} min"
    for factor, unit in _NS_UNITS:
        if abs(time_ns) >= factor:
            return f"{figures(time_ns / factor)} {unit}"
    return f"{time_ns:.0f} ns"


def size(count: int | None) -> str:
    """Bytes in binary units.

    >>> size(8 << 20), size(1000), size(None), size(1536)
    ('8 MiB', '1000 B', '-', '1.5 KiB')
    """
    if count is None:
        return "-"
    for factor, unit in _BYTE_UNITS:
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} B"


def rate(bytes_per_second: float | None) -> str:
    """Bytes a second in decimal units, as NCCL and its tools print bandwidths.

    >>> rate(1.0678e9), rate(None)
    ('1.07 GB/s', '-')
    """
    if bytes_per_second is None:
        return "-"
    for factor, unit in _RATE_UNITS:
        if bytes_per_second >= factor:
            return f"{bytes_per_second / factor:.3g} {unit}"
    return f"{bytes_per_second:.0f} B/s"


def moment(time_ns: int | None) -> str:
    """A time in UTC, to the second.

    >>> moment(1_700_000_000_000_000_000)
    '2023-11-14 22:13:20 UTC'
    """
    if time_ns is None:
        return "-"
    return dt.datetime.fromtimestamp(time_ns // 1_000_000_000, dt.UTC).strftime(
        "%Y-%m-%d %H:%M:%S UTC"
    )


def span(first_ns: int | None, last_ns: int | None) -> str:
    if first_ns is None or last_ns is None:
        return "-"
    return f"{moment(first_ns)} + {duration(last_ns - first_ns)}"


def count(number: int, one: str, many: str = "") -> str:
    """A number with its noun.

    >>> count(1, "file"), count(2000, "file"), count(0, "reply", "replies")
    ('1 file', '2,000 files', '0 replies')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def counts(numbers: dict[str, int]) -> str:
    """Records by kind; the kinds are plural.

    >>> counts({"collectives": 2, "events": 1}), counts({})
    ('2 collectives, 1 event', 'none')
    """
    return (
        ", ".join(count(each, kind.removesuffix("s")) for kind, each in numbers.items()) or "none"
    )


def ranks(numbers: list[int], shown: int = 8) -> str:
    """Ranks as ranges, in order; cut where there are many.

    >>> ranks([0, 1, 2, 3, 7]), ranks([]), ranks([1, 3, 5, 7], shown=2)
    ('0-3, 7', 'none', '1, 3, …')
    """
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    words = [str(a) if a == b else f"{a}-{b}" for a, b in parts]
    return ", ".join([*words[:shown], *(["…"] if len(words) > shown else [])]) or "none"


def blocks(values: list[float | None], top: float) -> str:
    """One character for each value, the higher the fuller; a space where there is none.

    >>> blocks([0, 0.5, 1, None], 1)
    '▁▅█ '
    """
    if top <= 0:
        return "".join(GAP if value is None else BLOCKS[0] for value in values)
    last = len(BLOCKS) - 1
    return "".join(
        GAP if value is None else BLOCKS[min(last, max(0, round(value / top * last)))]
        for value in values
    )


PEAKS_CUT_MAX = 3
"""Values that may stand out of a picture: a step during which a profile was written, a restart."""
PEAK_TIMES = 3.0


def scale_top(values: list[float]) -> float:
    """The height of a picture of these values: the highest, but for a few far above all others.

    >>> scale_top([1, 2, 3, 90]), scale_top([1, 2, 3, 4]), scale_top([])
    (3, 4, 0.0)
    """
    ordered = sorted(values, reverse=True)
    for higher, lower in itertools.pairwise(ordered[: PEAKS_CUT_MAX + 1]):
        if higher > PEAK_TIMES * lower > 0:
            return lower
    return ordered[0] if ordered else 0.0
