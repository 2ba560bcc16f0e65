"""Links that go down, and come back or stay down.

*Phenomenon.* A link loses its signal, trains again and comes up: a loose or dirty connector, a weak
laser, a NIC that resets. What was in flight waits for timers; a job stands still for seconds. A
link that stays down stops whatever waits on it.

*Signal.* Any increase of a counter of downs (`link_downed`, `carrier_changes`, `downs_seen`) at
either end of a cable, a state below active, or an agent's event (`link_down`, `link_flap`). One
sighting is enough: in health none of them moves. Down at the last sight and for `DOWN_SECONDS` is
`link_down`, else it is the cable.

*Assumptions.* Both ends of a cable show the same flap, and one finding names it, by the NIC's
end where there is one. A host most of whose links go down within `TOGETHER_SECONDS` was shut down
or rebooted, which is no flap; a switch that loses most of its links is named as a whole.

*Misses.* A flap between two looks at ports that count none (Ethernet switches without carrier
changes). Retraining without a down (`link_error_recoveries`) is `lossy_link`'s.

*Reference.* sysfs `link_downed` and `carrier_changes`, IBTA LinkDownedCounter. Others alert on any
increment during a job (NVRx), or on several in hours (gpud: 3 in 12 h, Azure: 5 in 24 h): those are
limits for draining a host, not for explaining why a job has just stood still.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np

from alerts.finding import Finding
from alerts.signals.ports import (
    ACTIVE,
    Span,
    cable_of,
    called,
    counted,
    gap_cells,
    latest,
    line_of,
    loudest,
    most_of,
    nic_end,
    observe,
    report,
    rows_with,
    values_of,
)
from alerts.window.columns import Flags
from alerts.window.model import Ports, Window
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Evidence, Reason

NAME = "link_flap"
COUNTERS = ("link_downed_total", "downs_seen_total", "link_down_total", "carrier_changes_total")
EVENTS = frozenset({"link_down", "link_flap"})
DOWN_SECONDS = 10.0
"""Longer is down: a link of 100 Gb/s a lane trains within one to several seconds."""
TOGETHER_SECONDS = 20.0
"""Links that go down within this go together: agent and switch are read 5 to 10 s apart."""
TOGETHER_SHARE = 0.5
"""Of a host's links, from which on the host went and not a link."""
TOGETHER_LEAST = 2
SWITCH_LINKS_LEAST = 4
"""Links of a switch that must go down together before the switch is blamed."""
STATES = {1.0: "down", 2.0: "init", 3.0: "armed"}
"""A port's states without a working link (IBTA)."""
STRENGTH = 0.95
"""The counters of downs count nothing else."""
EVENTS_MAX = 20_000
"""Events that are read, the newest; a window has no more than 10,000."""


class Outage(msgspec.Struct):
    """What is known of one cable that went down."""

    row: int
    """The end that names it."""
    seen: list[int]
    span: Span
    since_ns: int | None = None
    """The exact time, if an event reported it."""


def detect(window: Window) -> list[Finding]:
    ports = window.ports
    if not len(ports) or not ports.grid.cells:
        return []
    flags = (most_of(ports, COUNTERS) > 0) | is_down(ports)
    reported = event_times(window, flags)
    outages = gather(ports, flags, reported)
    groups = hosts_of(ports, outages.values())
    links = Counter(ports.host)
    gone = {host for host, own in groups.items() if is_together(ports, own, host, links[host])}
    findings = [
        whole_switch(window, groups[host]) for host in sorted(gone) if is_switch(host, ports)
    ]
    for _, outage in sorted(outages.items()):
        if not gone.intersection(ends_of(ports, outage.row)):
            findings.append(one_link(window, outage))
    return findings


def is_down(ports: Ports) -> Flags:
    """Cells in which a port reports no link, of ports that were up in the window: in use."""
    state, up = values_of(ports, "state"), values_of(ports, "up")
    had = (state >= ACTIVE).any(axis=1) | (up > 0).any(axis=1)
    down: Flags = ((state < ACTIVE) | (up == 0)) & np.atleast_1d(had)[:, None]
    return down


def event_times(window: Window, flags: Flags) -> dict[int, int]:
    """When an agent reported each port's latest outage; marks the cells of all in ``flags``."""
    ports = window.ports
    reported: dict[int, list[int]] = {}
    for event in window.events[-EVENTS_MAX:]:
        if event.kind not in EVENTS:
            continue
        labels = event.labels
        key = (labels.get("host", ""), labels.get("device", ""), labels.get("port", "1"))
        row = ports.row_of.get(key)
        cell = ports.grid.cell_of(event.time_ns)
        if row is not None and 0 <= cell < ports.grid.cells:
            flags[row, cell] = True
            reported.setdefault(row, []).append(event.time_ns)
    first: dict[int, int] = {}
    for row, times in reported.items():
        # The first event of the latest episode.
        times.sort()
        breaks = np.flatnonzero(np.diff(times) > (gap_cells(ports) + 1) * ports.grid.step_ns)
        first[row] = times[int(breaks[-1]) + 1 if len(breaks) else 0]
    return first


def gather(ports: Ports, flags: Flags, reported: dict[int, int]) -> dict[tuple[int, int], Outage]:
    outages: dict[tuple[int, int], Outage] = {}
    for row in rows_with(flags):
        span = latest(ports, flags[row])
        if span is None:
            continue
        key = cable_of(ports, row)
        known = outages.get(key)
        if known is None:
            outages[key] = Outage(nic_end(ports, row), [row], span, reported.get(row))
            continue
        known.seen.append(row)
        # Of a cable without a NIC, or with two, the end whose name comes first.
        known.row = min(known.row, nic_end(ports, row), key=lambda end: called(ports, end))
        known.span = Span(min(known.span.first, span.first), max(known.span.last, span.last))
        times = [time for time in (known.since_ns, reported.get(row)) if time is not None]
        known.since_ns = min(times, default=None)
    return outages


# Whole hosts and switches -------------------------------------------------------------------------


def ends_of(ports: Ports, row: int) -> set[str]:
    far = int(ports.other_end[row])
    return {ports.host[row]} | ({ports.host[far]} if far >= 0 else set())


def hosts_of(ports: Ports, outages: Iterable[Outage]) -> dict[str, list[Outage]]:
    found: dict[str, list[Outage]] = {}
    for outage in outages:
        for host in ends_of(ports, outage.row):
            found.setdefault(host, []).append(outage)
    return found


def is_switch(host: str, ports: Ports) -> bool:
    return (host, host) in ports.rows_of_device


def is_together(ports: Ports, outages: list[Outage], host: str, links: int) -> bool:
    """Whether most of a host's links went down at one time: it went, and not they."""
    firsts = sorted(outage.span.first for outage in outages)
    reach = TOGETHER_SECONDS * NS / max(ports.grid.step_ns, 1)
    most = max(sum(first <= other <= first + reach for other in firsts) for first in firsts)
    least = SWITCH_LINKS_LEAST if is_switch(host, ports) else TOGETHER_LEAST
    return most >= max(least, TOGETHER_SHARE * links)


# The findings -------------------------------------------------------------------------------------


def is_still_down(ports: Ports, outage: Outage) -> bool:
    """Down at the last sight, and long enough not to be training."""
    for row in outage.seen:
        state, up = line_of(ports, "state", row), line_of(ports, "up", row)
        down = (state < ACTIVE) | (up == 0)
        known = np.flatnonzero(~np.isnan(state) | ~np.isnan(up))
        if not len(known) or not down[known[-1]]:
            continue
        before = known[~down[known]]
        began = int(before[-1]) + 1 if len(before) else 0
        if (int(known[-1]) - began + 1) * ports.grid.step_ns > DOWN_SECONDS * NS:
            return True
    return False


def one_link(window: Window, outage: Outage) -> Finding:
    ports, span = window.ports, outage.span
    stays = is_still_down(ports, outage)
    return report(
        window,
        span,
        detector=NAME,
        cause=Cause.LINK_FLAP,
        reason=Reason.LINK_DOWN if stays else Reason.CABLE,
        culprit=ports.culprit(outage.row),
        strength=STRENGTH,
        rows=[outage.row],
        evidence=evidence_of(window, outage),
        since_ns=outage.since_ns,
    )


def evidence_of(window: Window, outage: Outage) -> list[Evidence]:
    ports, span = window.ports, outage.span
    seconds = ports.grid.step_ns / NS
    found: list[Evidence] = []
    for row in sorted(outage.seen):
        name = loudest(ports, COUNTERS, row, span)
        changes = float(np.nansum(line_of(ports, name, row)[span.cells]) * seconds)
        if changes > 0:
            text = f"{called(ports, row)} counted {counted(round(changes), 'change')} of its link"
            found.append(
                observe(
                    window, row, name, span, text=text, value=changes, unit="changes", baseline=0.0
                )
            )
        found += seen_down(window, row, span)
    return found


def seen_down(window: Window, row: int, span: Span) -> list[Evidence]:
    ports = window.ports
    for name, healthy in (("state", ACTIVE), ("up", 1.0)):
        levels = line_of(ports, name, row)[span.cells]
        known = levels[~np.isnan(levels)]
        if len(known) and known.min() < healthy:
            lowest = float(known.min())
            word = STATES.get(lowest, "no link") if name == "state" else "no link"
            text = (
                f"{called(ports, row)} was seen without a link: its {name} is {lowest:g} "
                f"({word}), and {healthy:g} with one"
            )
            return [
                observe(window, row, name, span, text=text, value=lowest, unit="", baseline=healthy)
            ]
    return []


def whole_switch(window: Window, outages: list[Outage]) -> Finding:
    ports = window.ports
    counts: dict[str, int] = {}
    for outage in outages:
        for host in ends_of(ports, outage.row):
            counts[host] = counts.get(host, 0) + 1
    switch = min(
        (host for host in counts if is_switch(host, ports)), key=lambda one: (-counts[one], one)
    )
    span = Span(
        min(outage.span.first for outage in outages), max(outage.span.last for outage in outages)
    )
    evidence = [one for outage in outages for one in evidence_of(window, outage)[:1]]
    if evidence:
        text = f"{counted(len(outages), 'link')} of {switch} went down together: {evidence[0].text}"
        evidence[0] = msgspec.structs.replace(evidence[0], text=text)
    return report(
        window,
        span,
        detector=NAME,
        cause=Cause.LINK_FLAP,
        reason=Reason.SWITCH,
        culprit=Culprit(switch=switch),
        strength=STRENGTH,
        rows=[outage.row for outage in outages],
        evidence=evidence,
    )
