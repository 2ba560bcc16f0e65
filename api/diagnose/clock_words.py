"""How the hosts' clocks stand, in words."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from alerts.window.columns import Clock, ClockFit
from api.diagnose import units
from collector.contract.units import NS

ZONE_NS = 900 * NS
"""Zones of time differ by multiples of a quarter of an hour..."""
ZONE_OFF_NS = 10 * NS
"""...and a clock that is set to another zone is off by little more."""
HOUR_NS = 3_600 * NS
ZONE_NS_MAX = 27 * HOUR_NS
"""From UTC-12 to UTC+14, and an hour of summer."""
FAR_NS = NS
"""What is further away is named host by host."""
HOSTS_NAMED_MAX = 8
SET_RESIDUALS = 3.0


def clock_lines(fits: Sequence[ClockFit]) -> list[str]:
    """Clocks that are far away, were set, or could not be compared; the first few by name."""
    hosts = sorted({clock.host for fit in fits for clock in fit.clocks})
    of_host: dict[str, list[Clock]] = {host: [] for host in hosts}
    for fit in fits:
        for clock in sorted(fit.clocks, key=begin):
            of_host[clock.host].append(clock)
    found = [line for host in hosts for line in lines_of(host or "a host", of_host[host])]
    shown = found[:HOSTS_NAMED_MAX]
    if len(found) > len(shown):
        shown.append(f"And {len(found) - len(shown):,} more like that; --json has all.")
    return shown


def begin(clock: Clock) -> int:
    return (clock.from_ns or 0) - clock.offset_ns


def lines_of(host: str, clocks: Sequence[Clock]) -> list[str]:
    known = [clock for clock in clocks if clock.is_known]
    if not known:
        return [f"{host}'s clock could not be compared: {host} is left out of what compares hosts."]
    found = []
    first = known[0].offset_ns if known[0].is_corrected else 0
    if abs(first) > FAR_NS:
        found.append(f"{host}'s clock is {away(first)}{zone(first)}.")
    for one, other in itertools.pairwise(known):
        before = one.offset_ns if one.is_corrected else 0
        after = other.offset_ns if other.is_corrected else 0
        error = one.residual_ns + other.residual_ns
        is_cut = one.to_ns is not None and other.from_ns is not None
        if is_cut and abs(after - before) > SET_RESIDUALS * error + drifted(one, other):
            how = "forward" if after > before else "back"
            when = units.moment((other.from_ns or 0) - after)
            by = long(abs(after - before))
            found.append(f"{host}'s clock was set {how} by {by} at {when}{zone(after - before)}.")
    if len(known) < len(clocks):
        found.append(f"{host}'s clock could not be compared for a part of the time.")
    return found


def drifted(one: Clock, other: Clock) -> float:
    """What drift explains between the first of one and the last of the other."""
    time_ns = abs((other.to_ns or 0) - (one.from_ns or 0) - other.offset_ns + one.offset_ns)
    return 2 * max(abs(one.drift), abs(other.drift)) * time_ns


def away(offset_ns: int) -> str:
    """How far a clock is ahead or behind.

    >>> away(2 * 3600 * NS), away(-19_800 * NS), away(-70 * NS)
    ('2 h ahead', '5.5 h behind', '70.0 s behind')
    """
    side = "ahead" if offset_ns > 0 else "behind"
    return f"{long(abs(offset_ns))} {side}"


def long(time_ns: int) -> str:
    is_hours = time_ns > HOUR_NS - ZONE_OFF_NS and zone(time_ns)
    return f"{round(time_ns / ZONE_NS) / 4:g} h" if is_hours else units.duration(time_ns)


def zone(offset_ns: int) -> str:
    """A guess, where it is a good one.

    >>> zone(2 * 3600 * NS), zone(19_800 * NS + 2 * NS), zone(1000 * NS), zone(5 * NS)
    (' (a time zone?)', ' (a time zone?)', '', '')
    """
    size = abs(offset_ns)
    quarters = round(size / ZONE_NS)
    is_zone = quarters > 0 and size < ZONE_NS_MAX and abs(size - quarters * ZONE_NS) < ZONE_OFF_NS
    return " (a time zone?)" if is_zone else ""
