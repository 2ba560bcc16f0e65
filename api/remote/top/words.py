"""Numbers, times and names as a terminal shows them: short, and never raw. Pure."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence

from collector.contract.units import NS
from collector.contract.verdict import Culprit

NOTHING = "-"
"""Where a number is not known: a 0 would be one."""
BARS = "▁▂▃▄▅▆▇█"

SECOND, MINUTE, HOUR, DAY = 1, 60, 3_600, 86_400
QUIET_SECONDS = 60
"""Evidence this old still counts as of now: a busy service looks, and agents send, every half
minute."""
FIGURES_FROM = 9.95
"""From here on a number in thousands is written without a decimal."""
PER_MILLE_BELOW = 0.0995
"""Shares below it get a decimal: 0.4 % of the time is not nothing."""


def whole(number: float | None) -> str:
    return NOTHING if number is None else f"{number:.0f}"


def share(part: float | None) -> str:
    """A part of 1 in per cent.

    >>> share(0.256), share(0.004), share(0.0), share(None)
    ('26%', '0.4%', '0%', '-')
    """
    if part is None:
        return NOTHING
    is_small = 0 < part < PER_MILLE_BELOW
    return f"{part:.1%}" if is_small else f"{part:.0%}"


def scaled(number: float | None, unit: str) -> str:
    """A number in thousands, millions and so on.

    >>> scaled(387.2e9, "b/s"), scaled(2.5e9, "b/s"), scaled(0.0, "b/s"), scaled(None, "b/s")
    ('387 Gb/s', '2.5 Gb/s', '0 b/s', '-')
    """
    if number is None:
        return NOTHING
    prefixes = ("", "k", "M", "G", "T", "P")
    size = abs(number)
    # 999.6 is written as 1000, which has a prefix of its own.
    power = min(len(prefixes) - 1, int(math.log10(size + size / 1e3) // 3)) if size >= 1 else 0
    value = number / 1_000**power
    digits = 0 if value == 0 or abs(value) >= FIGURES_FROM else 1
    return f"{value:.{digits}f} {prefixes[power]}{unit}"


def per_second(rate: float | None) -> str:
    """How often in a second.

    >>> per_second(0.02), per_second(1234.0), per_second(0.0), per_second(None)
    ('0.02/s', '1.2 k/s', '0', '-')
    """
    if rate is None:
        return NOTHING
    if rate == 0:
        return "0"
    return f"{rate:.2g}/s" if rate < 1 else scaled(rate, "/s").replace(" /s", "/s")


def step(seconds: float | None) -> str:
    """How long a training step takes.

    >>> step(0.512), step(12.34), step(None)
    ('512 ms', '12.3 s', '-')
    """
    if seconds is None:
        return NOTHING
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def span(seconds: float) -> str:
    """How long something lasts, in its two largest units.

    >>> span(7.4), span(125), span(7260), span(90_000), span(-3)
    ('7 s', '2 min 5 s', '2 h 1 min', '1 d 1 h', '0 s')
    """
    whole = max(0, int(seconds))
    if whole < MINUTE:
        return f"{whole} s"
    for length, name, part, part_name in (
        (DAY, "d", HOUR, "h"),
        (HOUR, "h", MINUTE, "min"),
        (MINUTE, "min", SECOND, "s"),
    ):
        if whole >= length:
            rest = whole % length // part
            return f"{whole // length} {name}" + (f" {rest} {part_name}" if rest else "")
    return f"{whole} s"


def lasts(seconds: float, last_seen_ns: int | None, now_s: float) -> str:
    """How long an open incident was confirmed, and how long ago the last time, if not just now.

    >>> lasts(100.0, 990 * NS, 1000.0), lasts(100.0, 700 * NS, 1000.0)
    ('1 min 40 s', '1 min 40 s, last seen 5 min ago')
    """
    ago_s = 0.0 if last_seen_ns is None else now_s - last_seen_ns / NS
    if ago_s < QUIET_SECONDS:
        return span(seconds)
    return f"{span(seconds)}, last seen {brief(ago_s)} ago"


def brief(seconds: float) -> str:
    """How long something lasts, in its largest unit.

    >>> brief(7.4), brief(125), brief(90_000)
    ('7 s', '2 min', '1 d')
    """
    return " ".join(span(seconds).split()[:2])


def moment(time_s: float, now_s: float, zone: dt.tzinfo | None) -> str:
    """A time of day; with its date, if that was another day.

    >>> moment(0.0, 10.0, dt.UTC), moment(0.0, 1e6, dt.UTC)
    ('00:00:00', '01-01 00:00')
    """
    then = dt.datetime.fromtimestamp(time_s, tz=dt.UTC).astimezone(zone)
    now = dt.datetime.fromtimestamp(now_s, tz=dt.UTC).astimezone(zone)
    return then.strftime("%H:%M:%S" if then.date() == now.date() else "%m-%d %H:%M")


def culprit(who: Culprit) -> str:
    """The culprit that an incident names, in one short line.

    >>> culprit(Culprit(host="node3", device="mlx5_0", port="1", switch="leaf0", switch_port="s3"))
    'node3 mlx5_0/1 ↔ leaf0 s3'
    >>> culprit(Culprit(job="train", rank=7, host="node9", gpu=1)), culprit(Culprit())
    ('node9 gpu 1 (rank 7 of train)', 'no culprit known')
    """
    words = [who.host] if who.host else []
    if who.gpu is not None:
        words.append(f"gpu {who.gpu}")
    if who.device:
        words.append(f"{who.device}/{who.port}" if who.port else who.device)
    machine = " ".join(words)
    switch = " ".join(part for part in (who.switch, who.switch_port) if part)
    place = " ↔ ".join(part for part in (machine, switch) if part)
    rank = "" if who.rank is None else f"rank {who.rank}" + (f" of {who.job}" if who.job else "")
    if place:
        return f"{place} ({rank})" if rank else place
    return rank or (f"job {who.job}" if who.job else "no culprit known")


def sparkline(values: Sequence[float], width: int) -> str:
    """The last values as bars: half as high as they can be for the median, full at twice as much.

    >>> sparkline([1.0, 1.0, 1.0, 1.5, 9.0], 4), sparkline([], 4)
    ('▄▄▆█', '')
    """
    usual = median(values)
    if usual is None or usual <= 0:
        return ""
    heights = (round(value / usual * len(BARS) / 2) for value in values[-width:])
    return "".join(BARS[min(max(1, height), len(BARS)) - 1] for height in heights)


def median(values: Sequence[float]) -> float | None:
    """The value in the middle, the upper one of two.

    >>> median([3.0, 1.0]), median([])
    (3.0, None)
    """
    return sorted(values)[len(values) // 2] if values else None
