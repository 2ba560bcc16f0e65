"""Names ports whose optic or cable is dying, before error correction fails.

*Phenomenon.* A laser ages, a connector is dirty or a module overheats: less light arrives, the
levels of the signal come closer to its noise, and bits are wrong more and more often. Correction
(FEC) repairs them all until, within a factor of two in the error rate, it repairs none: then blocks
are lost, packets are sent again, and at last the link goes down.

*Signal.* The logarithm of the error rate before correction rises in every quarter of a window, by a
decade at least, by itself and against the ports beside it; extended as a line it reaches the limit
of the code within a day. Beside it, or where no error rate is read: light that falls by 2 dB in the
same way. Heat: the module is above its own alarm limit, and far above its neighbours.

*Assumptions.* Ports of one switch or NICs of one host share air and power: what all do is not the
optic. A link that was down, and a module that was swapped, begin anew. A high rate that stays is
healthy, however high.

*Misses.* Deaths of less than 40 minutes, of more than days (the rule `FabricFecTrend` compares with
yesterday), and those in steps: a bent fibre, a pulled cable. More than a quarter of a group at once
is taken for a common cause and withheld.

*Reference.* IEEE 802.3bs: RS(544,514) is designed for 2.4e-4; 802.3bj: RS(528,514) for 5e-5. Meza
et al. (IMC 2018) and Zhuo et al. (SIGCOMM 2017): corruption follows falling receive power.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from alerts.finding import Finding
from alerts.optics.history import End, History
from alerts.optics.trend import Trend, common_shift, find_trend, share_rising, since_break
from alerts.window.columns import Floats
from collector.contract.units import NS
from collector.contract.verdict import Cause, Evidence, Reason

NAME = "dying_optic"
FLOOR = 1e-12
"""An error rate below it counts as this: eight decades away from trouble, and a few errors an hour
are chance."""
RATE_LEAST = 1e-9
"""Below it no rise is called dying."""
DECADES_LEAST = 1.0
HORIZON_S = 86_400.0
"""What is more than a day away waits until it is nearer: lines do not stay straight for so long."""
FALL_LEAST_DB = 1.5
"""Between the middles of the first and the last quarter, so 2 dB from end to end: a receiver that
makes 1e-9 errors is beyond correction with 2.4 dB less light. Beside a rising error rate less is
enough to agree."""
AGREES_DB = 0.7
DARK_WATTS = 1e-6
"""Less is no light (-30 dBm): switched off, not dying."""
HOT_LIMIT = 75.0
"""Of modules that do not say theirs: what most of them have."""
HOTTER_LEAST = 8.0
"""Degrees above the median of its group: warm air warms all."""
HOT_CELLS = 3
SETTLE_CELLS = 3
"""After a break: a module that was plugged in warms up for a quarter of an hour."""
COMMON_SHARE = 0.25
COMMON_LEAST = 3
"""So many of a group that rise at once, or begin to, have a cause in common."""

BY_ERRORS, BY_LIGHT, BY_HEAT = 0.8, 0.7, 0.6
AGREES = 0.1
"""What a second sign adds to the strength."""


class Dying(msgspec.Struct, frozen=True, kw_only=True):
    """A port that is named."""

    end: End
    finding: Finding
    signs: tuple[str, ...]
    """Of `errors`, `light`, `heat`, the clearest first."""
    seconds_left: float | None
    """Until error correction is expected to fail; None where only heat shows it."""
    seconds_least: float | None = None
    """With 99 %, if the line stays straight."""


class Judged(NamedTuple):
    """What is dying, and how many were withheld: ports of a group that change together."""

    dying: list[Dying]
    withheld: int


class Sign(NamedTuple):
    """One reason to name a port."""

    kind: str
    strength: float
    evidence: Evidence
    since_ns: int
    seconds_left: float | None = None
    seconds_least: float | None = None
    is_common: bool = False
    """Whether much of its group does the same."""


def judge(history: History) -> Judged:
    """The ports that are dying, the most urgent first. One a cable: the end that shows it best."""
    signs: dict[int, list[Sign]] = defaultdict(list)
    settled = since_break(history.breaks, SETTLE_CELLS)
    groups = groups_of(history.ends)
    for row, sign in (
        *rising_errors(history, settled, groups),
        *falling_light(history, settled, groups),
        *heat(history, settled, groups),
    ):
        signs[row].append(sign)
    named = {row: found for row, found in signs.items() if any(one.strength for one in found)}
    common = {row for row, found in named.items() if any(one.is_common for one in found)}
    best: dict[str, Dying] = {}
    for row, found in named.items():
        if row in common:
            continue
        dying = name(history, row, found)
        known = best.get(dying.end.cable)
        if known is None or urgency(dying) < urgency(known):
            best[dying.end.cable] = dying
    return Judged(sorted(best.values(), key=urgency), len(common))


def urgency(dying: Dying) -> tuple[float, float, str]:
    left = math.inf if dying.seconds_left is None else dying.seconds_left
    return (-dying.finding.strength, left, dying.end.name)


def groups_of(ends: Sequence[End]) -> list[list[int]]:
    found: dict[str, list[int]] = {}
    for row, end in enumerate(ends):
        found.setdefault(end.group, []).append(row)
    return list(found.values())


def places_of(groups: Sequence[Sequence[int]]) -> dict[int, int]:
    """The place of each row's group."""
    return {row: place for place, rows in enumerate(groups) for row in rows}


def is_common(lines: Floats, rows: Sequence[int], trend: Trend, rise_least: float) -> bool:
    count, share = share_rising(lines[list(rows)], trend.first, rise_least)
    return count >= COMMON_LEAST and share > COMMON_SHARE


# Signs -------------------------------------------------------------------------------------------


def rising_errors(
    history: History, settled: Floats, groups: Sequence[Sequence[int]]
) -> Iterator[tuple[int, Sign]]:
    lines = np.log10(np.fmax(history.pre_fec, FLOOR)) + settled
    rows = candidates(lines, DECADES_LEAST)
    if not rows:
        return
    shift, of_group = common_shift(lines, groups), places_of(groups)
    for row in rows:
        trend = find_trend(lines[row], shift[row], DECADES_LEAST)
        end = history.ends[row]
        if trend is None or trend.now < math.log10(RATE_LEAST):
            continue
        left, least = seconds_until(history, trend, math.log10(end.limit))
        if left > HORIZON_S:
            continue
        text = (
            f"{end.name} had {10**trend.now:.1e} of its bits wrong before correction, "
            f"{10**trend.before:.1e} {hours(history, trend)} before, and rises steadily; "
            f"correction fails from {end.limit:.1e} on, in {duration(left)} at this pace"
        )
        evidence = observed(history, end, trend, text, 10**trend.now, 10**trend.before)
        since = begin_ns(history, trend.first)
        common = is_common(lines, groups[of_group[row]], trend, DECADES_LEAST)
        yield row, Sign("errors", BY_ERRORS, evidence, since, left, least, common)


def falling_light(
    history: History, settled: Floats, groups: Sequence[Sequence[int]]
) -> Iterator[tuple[int, Sign]]:
    """Lanes whose light falls; without the strength to name a port where it has fallen little."""
    if not len(history.lane_end):
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        lit = np.where(history.watts > DARK_WATTS, history.watts, np.nan)
        # Upside down, so that a fall is a rise; in dB below a milliwatt.
        lines = -10.0 * np.log10(lit * 1e3) + settled[history.lane_end]
    dimmer = candidates(lines, AGREES_DB)
    if not dimmer:
        return
    of_group = places_of(groups)
    lanes: list[list[int]] = [[] for _ in groups]
    for lane, row in enumerate(history.lane_end.tolist()):
        lanes[of_group[row]].append(lane)
    shift = common_shift(lines, lanes)
    worst: dict[int, Sign] = {}
    for lane in dimmer:
        trend = find_trend(lines[lane], shift[lane], FALL_LEAST_DB)
        trend = trend or find_trend(lines[lane], shift[lane], AGREES_DB)
        if trend is None:
            continue
        row = int(history.lane_end[lane])
        common = is_common(lines, lanes[of_group[row]], trend, AGREES_DB)
        sign = dimming(history, lane, row, trend)._replace(is_common=common)
        if row not in worst or worst[row].evidence.value > sign.evidence.value:
            worst[row] = sign
    yield from worst.items()


def dimming(history: History, lane: int, row: int, trend: Trend) -> Sign:
    end, limit = history.ends[row], float(history.watts_limit[lane])
    level = -10.0 * math.log10(limit * 1e3) if limit > 0 else trend.now + FALL_LEAST_DB
    left, least = seconds_until(history, trend, level)
    is_clear = trend.rise >= FALL_LEAST_DB and left <= HORIZON_S
    which = f" on lane {history.lane_name[lane]}" if history.lane_name[lane] else ""
    text = (
        f"{end.name} receives {-trend.now:.1f} dBm{which}, {trend.rise:.1f} dB less than "
        f"{hours(history, trend)} before, and it falls steadily"
    )
    watts, before = (10 ** (-each / 10) / 1e3 for each in (trend.now, trend.before))
    evidence = observed(history, end, trend, text, watts, before)
    is_port = bool(end.culprit.switch) and not end.culprit.host
    metric = f"fabric_{'port' if is_port else 'nic'}_module_receive_power_watts"
    evidence = msgspec.structs.replace(
        evidence,
        metric=metric,
        unit="watts",
        labels=end.labels | ({"lane": history.lane_name[lane]} if which else {}),
    )
    since = begin_ns(history, trend.first)
    strength = BY_LIGHT if is_clear else 0.0
    return Sign("light", strength, evidence, since, left if is_clear else None, least)


def heat(
    history: History, settled: Floats, groups: Sequence[Sequence[int]]
) -> Iterator[tuple[int, Sign]]:
    cells = min(HOT_CELLS, history.cells)
    if not cells:
        return
    late = (history.celsius + settled)[:, -cells:]
    limit = np.where(np.isnan(history.celsius_limit), HOT_LIMIT, history.celsius_limit)
    with np.errstate(invalid="ignore"):
        hot = np.atleast_1d((late >= limit[:, None]).all(axis=1))
    for rows in groups:
        last = history.celsius[rows, -1]
        known = last[~np.isnan(last)]
        for row in rows:
            end, now = history.ends[row], float(late[row, -1])
            if not hot[row] or not len(known) or now - np.median(known) < HOTTER_LEAST:
                continue
            usual = float(np.median(known))
            text = (
                f"the module of {end.name} has {now:.0f} degrees, and its neighbours {usual:.0f}; "
                f"its own alarm is at {limit[row]:.0f}"
            )
            is_port = bool(end.culprit.switch) and not end.culprit.host
            evidence = Evidence(
                metric=f"fabric_{'port' if is_port else 'nic'}_module_temperature_celsius",
                text=text,
                value=now,
                unit="celsius",
                baseline=usual,
                from_ns=begin_ns(history, history.cells - cells),
                to_ns=history.until_ns,
                labels=end.labels,
                samples=cells,
            )
            since = begin_ns(history, history.cells - cells)
            yield row, Sign("heat", BY_HEAT, evidence, since)


def candidates(lines: Floats, rise_least: float) -> list[int]:
    """Lines whose last known value is high enough above their least to be worth a closer look."""
    found = []
    for row in np.flatnonzero((~np.isnan(lines)).any(axis=1)).tolist():
        known = lines[row][~np.isnan(lines[row])]
        if known[-1] - known.min() >= rise_least:
            found.append(row)
    return found


# Naming ------------------------------------------------------------------------------------------


def name(history: History, row: int, signs: Sequence[Sign]) -> Dying:
    ordered = sorted(signs, key=lambda one: -one.strength)
    first, end = ordered[0], history.ends[row]
    timed = [one for one in ordered if one.seconds_left is not None]
    finding = Finding(
        detector=NAME,
        cause=Cause.LOSSY_LINK,
        reason=Reason.CABLE,
        culprit=end.culprit,
        strength=min(0.95, first.strength + AGREES * (len(ordered) - 1)),
        since_ns=min(one.since_ns for one in ordered),
        until_ns=None,
        last_ns=history.until_ns,
        evidence=tuple(one.evidence for one in ordered),
        is_context=True,
        is_forecast=True,
    )
    return Dying(
        end=end,
        finding=finding,
        signs=tuple(one.kind for one in ordered),
        seconds_left=timed[0].seconds_left if timed else None,
        seconds_least=timed[0].seconds_least if timed else None,
    )


def seconds_until(history: History, trend: Trend, level: float) -> tuple[float, float]:
    """Expected, and at least."""
    return (
        trend.cells_until(level, trend.slope) * history.step_s,
        trend.cells_until(level, trend.slope_most) * history.step_s,
    )


def begin_ns(history: History, cell: int) -> int:
    return history.until_ns - round((history.cells - cell) * history.step_s * NS)


def observed(
    history: History, end: End, trend: Trend, text: str, value: float, baseline: float
) -> Evidence:
    return Evidence(
        metric=end.metric,
        text=text,
        value=value,
        unit="ratio",
        baseline=baseline,
        from_ns=begin_ns(history, trend.first),
        to_ns=history.until_ns,
        labels=end.labels,
        samples=history.cells - trend.first,
    )


def hours(history: History, trend: Trend) -> str:
    return duration((history.cells - trend.first) * history.step_s)


def duration(seconds: float) -> str:
    """In words that are as exact as such a forecast.

    >>> duration(1_500), duration(9_000), duration(0)
    ('25 minutes', '2.5 hours', 'no time')
    """
    if seconds < 60:  # noqa: PLR2004 - a minute
        return "no time"
    if seconds < 5_400:  # noqa: PLR2004 - an hour and a half
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3_600:.1f} hours"
