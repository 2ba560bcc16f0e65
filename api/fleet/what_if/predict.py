"""The outlook of every job: its transfers by the model before and after, and what was measured.

The model gives the least time that transfers need on the cables that are known. What was measured
is longer: headers, latency, a flow's hash, something else that binds. An outlook adds what the
model adds to what was measured; the range is between "only the slower of the two counts" and "all
of it grows in proportion". Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from alerts.traffic.flows import Traffic, traffic_of
from alerts.traffic.places import Places, places_of
from api.fabric.spread import Doubles
from api.fleet.placement.floor import NOWHERE
from api.fleet.what_if.change import moved_ranks
from api.fleet.what_if.load import (
    ROUNDING,
    Fabric,
    Laid,
    Least,
    Luck,
    detours,
    lay,
    least_seconds,
    phases_of,
    took_seconds,
)
from api.fleet.what_if.model import Ask, Bottleneck, JobSeen, Outlook
from api.jobs.correlate.pattern import nics_in

UNTOLD_SHARE_MAX = 0.05
"""Of a job's bytes, that may be without a place for an outlook to be given: less than what the
model itself is wrong by."""
FITS_BY = 1.25
"""The model's least time may be so much longer than what was measured: counted sizes are exact, and
rates of ports are nominal. Past it the cables that are known are not those that carry the job."""
MATTERS_SHARE = 1e-3
"""A change of transfers by a smaller part leaves a job as it is: rounding, detours of others."""
DAY_HOURS = 24.0
UNPLACED = "of its bytes are of operations of which shape or members are not known"
TREES = "of its bytes go by trees, and no log shows the trees' edges"
ADDED_UP = "of its bytes are added up by switches of the network, over unknown cables"
UNCABLED = "of its bytes leave by NICs whose name or cable is not known, or by too many pairs"


@dataclass(frozen=True, eq=False)
class Side:
    """A job before the change, or after it."""

    fabric: Fabric
    traffic: Traffic
    laid: Laid
    others: Doubles


@dataclass(frozen=True, eq=False)
class Times:
    """Sums over phases, seconds: as measured, expected, and the ends of the range."""

    now: float
    expected: float
    low: float
    high: float


def predict(before: Fabric, after: Fabric, jobs: Sequence[JobSeen], ask: Ask) -> list[Outlook]:
    """Those that change most first. Raises CannotTry for a move that cannot be made."""
    phases, was, then = [], [], []
    for job in jobs:
        places, traffic = modelled(before, job, ask, is_moved=False)
        phase_of = phases_of(traffic.flows)
        phases.append(phase_of)
        was.append(laid_on(before, places, traffic, phase_of))
        places, traffic = modelled(after, job, ask, is_moved=True)
        then.append(laid_on(after, places, traffic, phase_of))
    was, then = with_others(was, jobs), with_others(then, jobs)
    outlooks = [outlook(*each) for each in zip(jobs, was, then, phases, strict=True)]
    return sorted(outlooks, key=order_of)


def modelled(fabric: Fabric, job: JobSeen, ask: Ask, *, is_moved: bool) -> tuple[Places, Traffic]:
    ranks = moved_ranks(fabric.topology, job, ask.move) if is_moved else job.ranks
    rails, _ = nics_in(fabric.topology, {rank.host for rank in ranks.values()})
    places = places_of(ranks, rails)
    return places, traffic_of(job.sums, job.messages, job.communicators, places)


def laid_on(fabric: Fabric, places: Places, traffic: Traffic, phase_of: dict[int, int]) -> Side:
    laid = lay(fabric, traffic, places, phase_of)
    return Side(fabric, traffic, laid, np.zeros(fabric.directed))


def with_others(sides: list[Side], jobs: Sequence[JobSeen]) -> list[Side]:
    """Each with what all the other jobs send in the mean."""
    each = [
        side.laid.rates(job.seconds, side.fabric.directed)
        for side, job in zip(sides, jobs, strict=True)
    ]
    total = np.sum(each, axis=0) if each else np.zeros(0)
    return [
        Side(side.fabric, side.traffic, side.laid, np.maximum(total - own, 0.0))
        for side, own in zip(sides, each, strict=True)
    ]


def order_of(one: Outlook) -> tuple[bool, bool, float, str]:
    change = abs(one.slower or 0.0)
    return not one.stops_because, not one.is_affected, -change, one.job


def outlook(job: JobSeen, was: Side, then: Side, phase_of: dict[int, int]) -> Outlook:
    phases = max(phase_of.values(), default=-1) + 1
    took = took_seconds(was.traffic.flows, phase_of)
    least = [
        {luck: least_seconds(one.fabric, one.laid, phases, one.others, luck) for luck in Luck}
        for one in (was, then)
    ]
    even = [one[Luck.EVEN] for one in least]
    stops = "" if was.laid.torn else next(iter(then.laid.torn), "")
    reasons = list(cannot_tell(job, was, then, least[0][Luck.DIVIDED], took))
    times = (
        None
        if reasons or stops
        else times_of(took, least[0], least[1], detours(was.laid, then.laid, phases))
    )
    steps = job.seconds / (job.step_seconds or 1.0)
    now = expected = None
    reach: tuple[float, float] | None = None
    if times is not None and job.step_seconds is not None:
        now = job.step_seconds
        expected, reach = step_of(now, times, steps)
    slower = None if now is None or expected is None else expected / now - 1.0
    hours = None
    if now is not None and expected is not None:
        hours = len(job.ranks) * DAY_HOURS * (1.0 - now / expected)
    is_affected = bool(stops)
    if times is not None:
        is_affected = abs(times.expected - times.now) > MATTERS_SHARE * times.now
    return Outlook(
        job=job.job,
        title=job.title,
        is_affected=is_affected,
        stops_because=f"no way is left from {stops}" if stops else "",
        cannot_tell=reasons,
        step_seconds=now,
        step_seconds_expected=expected,
        step_seconds_range=reach,
        transfer_seconds=None if times is None else times.now / steps,
        transfer_seconds_expected=None if times is None else times.expected / steps,
        slower=slower,
        gpu_hours_per_day=hours,
        money_per_day=None,
        bottleneck=None if reasons else bottleneck(was, even[0]),
        bottleneck_expected=None if reasons or stops else bottleneck(then, even[1]),
        assumptions=list(then.traffic.assumptions),
    )


def cannot_tell(job: JobSeen, was: Side, then: Side, least: Least, took: Doubles) -> Iterator[str]:
    """Why the times of a job are not given."""
    fabric, traffic, laid = was.fabric, was.traffic, was.laid
    if not fabric.floor.is_known:
        yield "no cable is known"
        return
    if not fabric.floor.has_rates:
        yield "no cable's rate is known"
        return
    placed = float(traffic.flows.bytes.sum()) + float(traffic.up_bytes.sum())
    whole = placed + traffic.unplaced_bytes
    if whole <= 0:
        yield "none of its operations has a size: no byte is known"
        return
    uncabled = max(laid.uncabled_bytes, then.laid.uncabled_bytes)
    for bytes_, why in (
        (traffic.unplaced_bytes, UNPLACED),
        (traffic.guessed_tree_bytes, TREES),
        (float(traffic.up_bytes.sum()), ADDED_UP),
        (uncabled, UNCABLED),
    ):
        share = bytes_ / whole
        if share > UNTOLD_SHARE_MAX:
            yield f"{share:.0%} {why}"
    if was.laid.torn:
        yield f"no way is known from {was.laid.torn[0]} as it is now"
    if np.unique(then.traffic.flows.call).tolist() != np.unique(traffic.flows.call).tolist():
        yield "with the rank moved, its operations cannot be compared with those of now"
    timed = took > 0
    if not timed.any():
        yield "none of its transfers was timed"
    elif float(least.seconds[timed].sum()) > FITS_BY * float(took[timed].sum()):
        now, most = float(took[timed].sum()), float(least.seconds[timed].sum())
        yield (
            f"its transfers took {now:.3g} s, and on the cables that are known they would need"
            f" {most:.3g} s: those are not all"
        )
    if not job.ranks:
        yield "the hosts of its ranks are not known"


def times_of(
    took: Doubles, was: dict[Luck, Least], then: dict[Luck, Least], is_detour: np.ndarray
) -> Times:
    """What was measured, with what the model adds or takes away; see the module.

    Phases that take other cables may find them fuller or emptier than even: the ends of the range.
    """
    before, after = was[Luck.EVEN].seconds, then[Luck.EVEN].seconds
    now = np.where(took > 0, took, before)
    added = after - before
    added = np.where(np.abs(added) <= ROUNDING * np.maximum(before, after), 0.0, added)
    was_local = before <= 0
    expected = np.where(added < 0, np.maximum(now + added, np.minimum(now, after)), now + added)
    # What NVLink carried is carried by the network instead: the slower of the two counts.
    expected = np.where(was_local & (added > 0), np.maximum(now, after), expected)
    ratio = np.where(was_local, 1.0, after / np.maximum(before, 1e-12))
    high = np.where(added > 0, np.maximum(now * ratio, expected), now)
    high = np.where(was_local & (added > 0), now + after, high)
    low = np.where(added > 0, np.maximum(now, then[Luck.DIVIDED].seconds), now * ratio)
    unlucky = was[Luck.ONE_MORE].seconds
    best = now * np.minimum(then[Luck.DIVIDED].seconds / np.maximum(unlucky, 1e-12), 1.0)
    best = np.maximum(best, then[Luck.DIVIDED].seconds)
    low = np.where(is_detour & ~was_local, np.minimum(low, best), low)
    overhead = np.clip(now / np.maximum(before, 1e-12), 1.0, FITS_BY)
    worst = then[Luck.ONE_MORE].seconds * np.where(was_local, 1.0, overhead)
    high = np.where(is_detour, np.maximum(high, worst), high)
    low, high = np.minimum(low, expected), np.maximum(high, expected)
    is_same = (added == 0) & ~is_detour
    low, high = np.where(is_same, now, low), np.where(is_same, now, high)
    return Times(*(float(one.sum()) for one in (now, expected, low, high)))


def step_of(step: float, times: Times, steps: float) -> tuple[float, tuple[float, float]]:
    """A step, expected, and the range: how much of its transfers computing hides is not known."""
    expected, low, high = (
        max(step + (end - times.now) / steps, 0.0)
        for end in (times.expected, times.low, times.high)
    )
    if times.low > times.now:
        low = max(step, times.low / steps)
    return expected, (min(low, expected), max(high, step if times.high > times.low else high))


def bottleneck(side: Side, least: Least) -> Bottleneck | None:
    """Of the phase that takes longest."""
    if not len(least.seconds) or least.link[int(least.seconds.argmax())] == NOWHERE:
        return None
    directed = int(least.link[int(least.seconds.argmax())])
    link = side.fabric.floor.graph.links[directed >> 1]
    capacity = float(side.fabric.floor.capacity[directed >> 1])
    return Bottleneck(
        link=str(link.id),
        source=str(link.id.b if directed & 1 else link.id.a),
        bits_per_second=capacity,
        used_by_others=float(side.others[directed]) / max(capacity, 1e-9),
    )
