"""Jobs, faults and false verdicts of a week, the same for every arm. All by seed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

import msgspec

from simulator.score.week.model import DAY_S, HOUR_S, SLOWING, STOPPING, Kind, Spec


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a user submits."""

    name: str
    at_s: float
    size: int
    """Hosts."""
    work_s: float
    """Seconds that it needs where nothing is wrong."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that breaks, with all that chance decides about it."""

    number: int
    host: int
    at_s: float
    kind: Kind
    slowdown: float
    part: int
    heals_s: float | None
    found_s: float
    """After its first victim, by an operator alone."""
    is_seen_at_once: bool
    is_told: bool
    """Whether a verdict comes of it."""
    wrong_host: float | None
    """The verdict names another host of the job, at this share of the others; None: the right."""
    response_s: float
    repair_s: float


class FalseAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict about nothing."""

    host: int
    at_s: float
    lasts_s: float
    kind: Kind
    part: int


class Week(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    jobs: list[Wanted]
    faults: list[Fault]
    alarms: list[FalseAlarm]


def draw(spec: Spec, seed: int) -> Week:
    return Week(
        jobs=list(draw_jobs(spec, random.Random(f"jobs {seed}"))),  # noqa: S311
        faults=draw_faults(spec, random.Random(f"faults {seed}")),  # noqa: S311
        alarms=list(draw_alarms(spec, random.Random(f"alarms {seed}"))),  # noqa: S311
    )


def draw_jobs(spec: Spec, chance: random.Random) -> Iterator[Wanted]:
    """Jobs at random times, so many that together they ask for `load` of the fleet."""
    sizes, weights = zip(*spec.sizes, strict=True)
    mean_s = sum(size * weight for size, weight in spec.sizes) / sum(weights) * mean_work_s(spec)
    every_s = mean_s / (spec.load * spec.hosts)
    # The fleet does not begin empty: the first hours' jobs come all at once.
    at_s, number = -spec.job_hours_median * HOUR_S, 0
    while (at_s := at_s + chance.expovariate(1 / every_s)) < spec.days * DAY_S:
        size = min(chance.choices(sizes, weights)[0], spec.hosts)
        drawn_s = chance.lognormvariate(math.log(spec.job_hours_median), spec.job_hours_sigma)
        work_s = min(drawn_s, spec.job_hours_max) * HOUR_S
        yield Wanted(name=f"job{number:05}", at_s=max(0.0, at_s), size=size, work_s=work_s)
        number += 1


def mean_work_s(spec: Spec) -> float:
    """The mean of a job's work, were it not cut at `job_hours_max`."""
    return spec.job_hours_median * math.exp(spec.job_hours_sigma**2 / 2) * HOUR_S


def draw_faults(spec: Spec, chance: random.Random) -> list[Fault]:
    lemons = chance.sample(range(spec.hosts), round(spec.lemons * spec.hosts))
    others = sorted(set(range(spec.hosts)) - set(lemons))
    found: list[Fault] = []
    for kinds, per_host_day in (
        (STOPPING, spec.stops_per_host_day),
        (SLOWING, spec.slows_per_host_day),
    ):
        at_s = 0.0
        every_s = DAY_S / (per_host_day * spec.hosts)
        while (at_s := at_s + chance.expovariate(1 / every_s)) < spec.days * DAY_S:
            is_lemon = lemons and chance.random() < spec.lemon_share
            host = chance.choice(lemons if is_lemon else others)
            found.append(draw_fault(spec, chance, at_s, host, kinds))
    found.sort(key=lambda fault: fault.at_s)
    return [msgspec.structs.replace(fault, number=place) for place, fault in enumerate(found)]


def draw_fault(
    spec: Spec, chance: random.Random, at_s: float, host: int, kinds: Sequence[Kind]
) -> Fault:
    kind = chance.choices(kinds, [kind.weight for kind in kinds])[0]

    def around(median_s: float) -> float:
        return median_s * chance.lognormvariate(0.0, spec.found_sigma)

    least, most = spec.slowdown
    return Fault(
        number=0,
        host=host,
        at_s=at_s,
        kind=kind,
        slowdown=1.0 if kind.stops else least * (most / least) ** chance.random(),
        part=chance.randrange(spec.gpus_per_host),
        heals_s=None if kind.heals_s is None else around(kind.heals_s),
        found_s=around(spec.stop_found_s if kind.stops else spec.slow_found_s),
        is_seen_at_once=kind.stops and chance.random() < spec.seen_at_once,
        is_told=chance.random() < spec.recall,
        wrong_host=chance.random() if chance.random() < spec.wrong else None,
        response_s=around(spec.response_s),
        repair_s=around(spec.repair_s),
    )


def draw_alarms(spec: Spec, chance: random.Random) -> Iterator[FalseAlarm]:
    kinds = (*STOPPING, *SLOWING)
    if not spec.false_per_day:
        return
    at_s = 0.0
    while (at_s := at_s + chance.expovariate(spec.false_per_day / DAY_S)) < spec.days * DAY_S:
        yield FalseAlarm(
            host=chance.randrange(spec.hosts),
            at_s=at_s,
            lasts_s=spec.false_s * chance.lognormvariate(0.0, spec.found_sigma),
            kind=chance.choice(kinds),
            part=chance.randrange(spec.gpus_per_host),
        )
