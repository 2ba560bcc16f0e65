"""*Phenomenon.* A GPU runs at a lower clock than others at the same work, and its rank is late.

*Signal.* The SM clock of a busy GPU lies below the median of its job's GPUs at the same time, by
more than they differ among themselves; and the driver gives a reason (bits of NVML's clock event
reasons, time spent in violation of a limit, more of it than its peers). Temperature and power limit
beside its peers' are evidence, never the accusation. When most GPUs of a host are slow at once, it
is the host that is named. A GPU that is about to slow down for heat is context. Causes are bad
cooling, a power limit of its own, a braking board.

*Assumptions.* GPUs of one job are of one model or differ in their highest clock. Clocks are read
while the GPU works; one that waits inside a collective keeps its clock and only draws less power.
What all peers have alike (a site's power cap, a warm aisle) slows all of them and accuses none.

*Misses.* A job whose GPUs all throttle alike; a dip shorter than two readings that left no trace in
the violation counters; jobs of fewer than four GPUs where the driver gives no reason but power.

*Reference.* NVML's clock event reasons; Azure's node health checks, which ignore idle and the
software power cap; OCI's rule of 20 % of time in violation; SuperBench, where 5 % less is a defect.
"""

from __future__ import annotations

import msgspec
import numpy as np

from alerts.finding import Finding
from alerts.signals.peers import Usual, groups_of_gpus, known_values, usual_of
from alerts.signals.ports import percent
from alerts.window.columns import Flags, Floats, Ints
from alerts.window.model import Gpus, Window
from alerts.window.statistics import median_known, runs
from collector.contract.verdict import Cause, Culprit, Evidence, Reason

NAME = "gpu_throttle"
LOOKS_FOR = Reason.GPU_THROTTLED.facts.looks_for

BUSY_SHARE = 0.1
"""Of time, from which on a GPU counts as working: one with nothing to do lowers its clock."""
DROP_UNEXPLAINED = 0.05
"""Below its peers' clock where no reason is given: what SuperBench's rules call a defect."""
DROP_EXPLAINED = 0.02
"""Below its peers' clock where the driver gives a reason: two and a half of the 15 MHz that clocks
go by, and about what a job's steps show."""
SPREADS = 4.0
"""How many standard deviations of its peers it must be lower: GPUs at a common power cap differ by
several percent for their silicon alone."""
HELD_SHARE = 0.2
"""Of time in violation, more than its peers: OCI's rule."""
CELLS_MIN = 2
"""Readings of a low clock that accuse by themselves. One, where both the reason and the time in
violation agree: that counter saw all of the time between two readings."""
GAP_CELLS = 3
"""Cells between two low ones that do not end it: a lost batch, a checkpoint."""
HOST_SHARE = 0.75
"""Of a host's busy GPUs, two at least: it is the host's power or air."""
HOT_CELSIUS = 3.0
"""Below the slowdown temperature (98 % of 89, in OCI's rules): about to slow down."""
HOTTER_CELSIUS = 8.0
"""Above its peers: more than cooling differs within a chassis."""
LIMIT_SHARE = 0.95
"""Of its peers' power limit, below which it is worth a word."""

MASK_MOST = float(1 << 53)
"""Bits that a sample's value holds exactly; NVML uses the lowest nine."""
IDLE_BIT = 0x1
POWER_CAP_BIT = 0x4
REASON_BITS = {
    0x2: "its clock was set lower",
    POWER_CAP_BIT: "a power cap",
    0x8: "a hardware slowdown",
    0x20: "heat (by the driver)",
    0x40: "heat (by the hardware)",
    0x80: "a power brake",
}
"""NVML's clock event reasons that slow one GPU. Not idle, not a group's sync boost, not display."""
PAST_BITS = 0x8 | 0x20 | 0x40 | 0x80
"""Those that accuse a GPU without peers: a power cap may hold for all GPUs."""
HELD_READINGS = {
    "power_violation_seconds_total": "by its power limit",
    "thermal_violation_seconds_total": "by heat",
    "board_limit_violation_seconds_total": "by its board's limit",
    "reliability_violation_seconds_total": "for reliability",
    "software_thermal_slowdown_seconds_total": "by heat (the driver)",
    "hardware_thermal_slowdown_seconds_total": "by heat (the hardware)",
    "power_brake_slowdown_seconds_total": "by a power brake",
}
"""Time in which the GPU would have gone faster. Not sync boost: there another one is slow."""

STRENGTH_UNEXPLAINED = 0.55
STRENGTH_EXPLAINED = 0.75
STRENGTH_EXPLAINED_TWICE = 0.87
"""A low clock alone; with the reason or the time in violation; with both."""
DEEP_DROP = 0.1
STRENGTH_DEEP = 0.07
"""More for a clock so far below its peers."""
STRENGTH_HOT = 0.3


class Slow(msgspec.Struct, frozen=True, kw_only=True):
    """Which GPUs are slow when, and what shows it: all [GPUs, cells]."""

    clock: Floats
    usual: Usual
    reasons: Ints
    held: Floats
    """Of time in violation beyond the peers', by the worst of the limits."""
    held_by: Ints
    """Which of HELD_READINGS that is."""
    is_busy: Flags
    is_named: Flags
    """The driver gives a reason that its peers do not have."""
    is_low: Flags


def detect(window: Window) -> list[Finding]:
    gpus = window.gpus
    if not len(gpus):
        return []
    group = groups_of_gpus(window)
    slow = look(gpus, group)
    found = []
    for row in np.flatnonzero(slow.is_low.any(axis=1)).tolist():
        for first, last in runs(slow.is_low[row], gap=GAP_CELLS):
            finding = accuse(window, slow, row, (first, last), group)
            if finding is not None:
                found.append(finding)
    return [*of_hosts(found, slow, gpus), *hot_ones(window, group, slow)]


def look(gpus: Gpus, group: Ints) -> Slow:
    clock, load = known_values(gpus, "sm_clock_hertz"), known_values(gpus, "utilization_ratio")
    reasons = masks_of(gpus)
    is_busy = (np.isnan(load) | (load >= BUSY_SHARE)) & (reasons & IDLE_BIT == 0)
    is_busy &= np.isfinite(clock) & (clock > 0)
    clock = np.where(is_busy, clock, np.nan)
    usual = usual_of(clock, group)
    wanted: Flags = np.any(clock < usual.level * (1 - DROP_EXPLAINED), axis=1)
    held, held_by = held_beyond_peers(gpus, group, wanted, is_busy)
    is_capped = np.where(is_busy, (reasons & POWER_CAP_BIT > 0).astype(np.float64), np.nan)
    cap_is_usual = usual_of(is_capped, group, wanted).level > 0
    telling = reasons & sum(REASON_BITS) & np.where(cap_is_usual, ~POWER_CAP_BIT, -1)
    telling = np.where(usual.is_past, telling & PAST_BITS, telling)
    is_explained = (telling > 0) | ((held >= HELD_SHARE) & ~usual.is_past)
    drop = np.where(is_explained, DROP_EXPLAINED, np.where(usual.is_past, 1.0, DROP_UNEXPLAINED))
    lower = usual.level - clock
    is_low = (lower > usual.level * drop) & (lower > SPREADS * usual.spread)
    return Slow(
        clock=clock,
        usual=usual,
        reasons=telling,
        held=held,
        held_by=held_by,
        is_busy=is_busy,
        is_named=telling > 0,
        is_low=is_low,
    )


def masks_of(gpus: Gpus) -> Ints:
    """[GPUs, cells]: the bits of the driver's reasons; none where they were not read."""
    mask = known_values(gpus, "clock_event_reasons")
    is_mask = (mask >= 0) & (mask < MASK_MOST)
    return np.where(is_mask, mask, 0).astype(np.int64)


def held_beyond_peers(
    gpus: Gpus, group: Ints, wanted: Flags, is_busy: Flags
) -> tuple[Floats, Ints]:
    shape = is_busy.shape
    held, held_by = np.zeros(shape), np.full(shape, -1, dtype=np.int64)
    for place, name in enumerate(HELD_READINGS):
        if name not in gpus.readings or not wanted.any():
            continue
        share = np.where(is_busy, known_values(gpus, name), np.nan)
        beyond = np.nan_to_num(share - usual_of(share, group, wanted).level)
        held_by = np.where(beyond > held, place, held_by)
        held = np.maximum(held, beyond)
    return held, held_by


def accuse(
    window: Window, slow: Slow, row: int, cells: tuple[int, int], group: Ints
) -> Finding | None:
    first, last = cells
    during = slice(first, last + 1)
    low = slow.is_low[row, during]
    is_named = bool((low & slow.is_named[row, during]).any())
    is_held = bool((low & (slow.held[row, during] >= HELD_SHARE)).any())
    if low.sum() < CELLS_MIN and not (is_named and is_held):
        return None
    clock = float(np.median(slow.clock[row, during][low]))
    usual = float(np.median(slow.usual.level[row, during][low]))
    strength = (STRENGTH_UNEXPLAINED, STRENGTH_EXPLAINED, STRENGTH_EXPLAINED_TWICE)[
        is_named + is_held
    ]
    strength += STRENGTH_DEEP if clock < usual * (1 - DEEP_DROP) else 0.0
    grid = window.gpus.grid
    last_ns = min(grid.start_ns + (last + 1) * grid.step_ns, window.to_ns)
    return Finding(
        detector=NAME,
        cause=Cause.STRAGGLER,
        reason=Reason.GPU_THROTTLED,
        culprit=window.gpus.culprit(row),
        strength=strength,
        since_ns=grid.start_ns + first * grid.step_ns,
        until_ns=window.until(last_ns),
        last_ns=last_ns,
        evidence=tuple(evidence_of(window.gpus, slow, row, cells, group)),
    )


def evidence_of(
    gpus: Gpus, slow: Slow, row: int, cells: tuple[int, int], group: Ints
) -> list[Evidence]:
    during = slice(cells[0], cells[1] + 1)
    low = slow.is_low[row, during]
    usual = float(np.median(slow.usual.level[row, during][low]))
    clock = median_known(known_values(gpus, "sm_clock_hertz")[row, during])
    whose = "it had before" if slow.usual.is_past[row, during][low].any() else "its peers have"
    sentences = Sentences(gpus, row, cells, int(low.sum()))
    found = [
        sentences.evidence(
            "sm_clock_hertz", clock, usual, "hertz",
            f"runs at {clock / 1e6:.0f} MHz, {whose} {usual / 1e6:.0f}",
        )
    ]  # fmt: skip
    telling = int(np.bitwise_or.reduce(slow.reasons[row, during][low]))
    if telling:
        why = ", ".join(word for bit, word in REASON_BITS.items() if telling & bit)
        text = f"is slowed down by {why}, as its driver reports; its peers are not"
        bits = int(np.bitwise_or.reduce(masks_of(gpus)[row, during]))
        found.append(sentences.evidence("clock_event_reasons", bits, None, "bits", text))
    worst = int(np.argmax(np.where(low, slow.held[row, during], -1.0)))
    if slow.held[row, during][worst] >= HELD_SHARE:
        name = list(HELD_READINGS)[slow.held_by[row, during][worst]]
        values = known_values(gpus, name)[row, during]
        held = float(np.mean(values[~np.isnan(values)]))
        peers = max(float(values[worst] - slow.held[row, during][worst]), 0.0)
        text = f"was held back {percent(held)} of the time {HELD_READINGS[name]}, its peers"
        found.append(sentences.evidence(name, held, peers, "ratio", f"{text} {percent(peers)}"))
    return found + beside_peers(gpus, sentences, during, group)


def beside_peers(gpus: Gpus, sentences: Sentences, during: slice, group: Ints) -> list[Evidence]:
    own = np.zeros(len(gpus), dtype=bool)
    own[sentences.row] = True
    found = []
    for name, unit, words in (
        ("temperature_celsius", "celsius", "is at {0:.0f} °C, its peers at {1:.0f}"),
        ("power_limit_watts", "watts", "may draw {0:.0f} W, its peers {1:.0f}"),
    ):
        if name not in gpus.readings:
            continue
        values = known_values(gpus, name)
        usual = usual_of(values, group, own)
        known = ~np.isnan(values[sentences.row, during]) & ~usual.is_past[sentences.row, during]
        if not known.any():
            continue
        value = float(values[sentences.row, during][known][-1])
        level = float(usual.level[sentences.row, during][known][-1])
        is_heat = name == "temperature_celsius"
        if value > level + HOTTER_CELSIUS if is_heat else value < level * LIMIT_SHARE:
            found.append(sentences.evidence(name, value, level, unit, words.format(value, level)))
    return found


class Sentences:
    """Sentences about one GPU in one stretch of time."""

    def __init__(self, gpus: Gpus, row: int, cells: tuple[int, int], samples: int) -> None:
        self.gpus, self.row, self.samples = gpus, row, samples
        grid = gpus.grid
        self.from_ns = grid.start_ns + cells[0] * grid.step_ns
        self.to_ns = grid.start_ns + (cells[1] + 1) * grid.step_ns

    def evidence(
        self, reading: str, value: float, baseline: float | None, unit: str, text: str
    ) -> Evidence:
        host, gpu = self.gpus.host[self.row], self.gpus.gpu[self.row]
        return Evidence(
            metric=self.gpus.metric(reading),
            text=f"GPU {gpu} of {host} {text}.",
            value=value,
            unit=unit,
            baseline=baseline,
            from_ns=self.from_ns,
            to_ns=self.to_ns,
            labels={"host": host, "gpu": str(gpu)},
            samples=self.samples,
        )


def of_hosts(found: list[Finding], slow: Slow, gpus: Gpus) -> list[Finding]:
    """Findings of most GPUs of a host at one time as one about the host; others as they are."""
    busy: dict[str, int] = {}
    for row in np.flatnonzero(slow.is_busy.any(axis=1)).tolist():
        busy[gpus.host[row]] = busy.get(gpus.host[row], 0) + 1
    by_host: dict[str, list[Finding]] = {}
    for finding in found:
        by_host.setdefault(finding.culprit.host, []).append(finding)
    result = []
    for host, own in sorted(by_host.items()):
        culprits = {finding.culprit.gpu: finding.culprit for finding in own}
        overlap = max(one.since_ns for one in own) < min(one.last_ns for one in own)
        if len(culprits) < max(2, HOST_SHARE * busy.get(host, 0)) or not overlap:
            result += own
            continue
        best = max(own, key=lambda one: (one.strength, -(one.culprit.gpu or 0)))
        last_ns = max(one.last_ns for one in own)
        ends = [one.until_ns for one in own if one.until_ns is not None]
        result.append(
            msgspec.structs.replace(
                best,
                culprit=Culprit(host=host),
                accomplices=tuple(culprits[gpu] for gpu in sorted(culprits, key=lambda g: g or 0)),
                since_ns=min(one.since_ns for one in own),
                last_ns=last_ns,
                until_ns=max(ends) if len(ends) == len(own) else None,
            )
        )
    return result


def hot_ones(window: Window, group: Ints, slow: Slow) -> list[Finding]:
    """GPUs that are about to slow down for heat, alone among their peers: context."""
    gpus = window.gpus
    heat, limit = (
        known_values(gpus, name) for name in ("temperature_celsius", "temperature_slowdown_celsius")
    )
    is_near = heat >= limit - HOT_CELSIUS
    wanted: Flags = np.any(is_near, axis=1) & ~slow.is_low.any(axis=1)
    if not wanted.any():
        return []
    usual = usual_of(heat, group, wanted)
    is_hot = is_near & wanted[:, None] & (heat > usual.level + HOTTER_CELSIUS)
    found = []
    for row in np.flatnonzero(is_hot.any(axis=1)).tolist():
        first, last = runs(is_hot[row], gap=GAP_CELLS)[-1]
        value, level = float(heat[row, last]), float(usual.level[row, last])
        sentences = Sentences(gpus, row, (first, last), int(is_hot[row].sum()))
        text = (
            f"is at {value:.0f} °C and slows down at {limit[row, last]:.0f}; usual is {level:.0f}"
        )
        last_ns = min(sentences.to_ns, window.to_ns)
        found.append(
            Finding(
                detector=NAME,
                cause=Cause.STRAGGLER,
                reason=Reason.GPU_THROTTLED,
                culprit=gpus.culprit(row),
                strength=STRENGTH_HOT,
                since_ns=sentences.from_ns,
                until_ns=window.until(last_ns),
                last_ns=last_ns,
                evidence=(
                    sentences.evidence("temperature_celsius", value, level, "celsius", text),
                ),
                is_context=True,
            )
        )
    return found
