"""The stretches of time in which a trouble was confirmed, and what each of them cost. Pure.

A trouble that comes and goes lasts, and costs, only while it was seen. Between two stretches it was
not, so that neither its duration nor its cost grows there.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from collector.contract.units import NS
from collector.contract.verdict import Cost

GAP_SECONDS = 60
"""Evidence that begins later than this after the last begins a new stretch: an agent that missed
some of its reports, or a job's checkpoint, is no end."""
STRETCHES_KEPT_MAX = 20
"""Earlier stretches of an incident that are listed: the first, and the latest. The others stay in
the sums."""


class Stretch(msgspec.Struct, frozen=True):
    """A time (unix nanoseconds) in which a trouble was confirmed without a longer gap."""

    since_ns: int
    until_ns: int

    @property
    def lasted_ns(self) -> int:
        return max(0, self.until_ns - self.since_ns)


class Earlier(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stretches of an incident before the present one."""

    stretches: tuple[Stretch, ...] = ()
    """In order of time, at most STRETCHES_KEPT_MAX."""
    count: int = 0
    """All of them, also those that are not listed."""
    lasted_ns: int = 0
    costs: tuple[Cost, ...] = ()
    """Of all of them together, for each job."""
    over_ns: int = 0
    """When the last of them was over: the present stretch began no earlier."""


def with_stretch(
    earlier: Earlier, ended: Stretch, costs: tuple[Cost, ...], over_ns: int
) -> Earlier:
    """With one more stretch that has ended; ``costs`` are those of all, with this one."""
    kept = (*earlier.stretches, ended)
    if len(kept) > STRETCHES_KEPT_MAX:
        kept = (kept[0], *kept[2:])
    return Earlier(
        stretches=kept,
        count=earlier.count + 1,
        lasted_ns=earlier.lasted_ns + ended.lasted_ns,
        costs=costs,
        over_ns=max(over_ns, ended.until_ns),
    )


def of_present(total: Iterable[Cost], earlier: Earlier) -> dict[str, Cost]:
    """By job: what the present stretch has cost, of a total over all stretches."""
    before = {cost.job: cost for cost in earlier.costs}
    return {
        cost.job: less(cost, before[cost.job]) if cost.job in before else cost for cost in total
    }


def over_all(present: dict[str, Cost], earlier: Earlier, lasted_ns: int) -> tuple[Cost, ...]:
    """What all stretches have cost; the present one, which lasts so long, at most all its time.

    The share is of all of that time, as the seconds are: a round's own is that of its window.
    """
    total = {cost.job: cost for cost in earlier.costs}
    for job, cost in present.items():
        own = bounded(cost, lasted_ns / NS)
        total[job] = more(own, total[job]) if job in total else own
    whole_s = (lasted_ns + earlier.lasted_ns) / NS
    return tuple(with_share(total[job], whole_s) for job in sorted(total))


def with_share(cost: Cost, lasted_s: float) -> Cost:
    """With the share of the time that its seconds are; as it is where no time has passed."""
    if lasted_s <= 0.0:
        return cost
    return msgspec.structs.replace(cost, lost_share=min(1.0, cost.lost_seconds / lasted_s))


def bounded(cost: Cost, lasted_s: float) -> Cost:
    """A job loses no more than all of the time."""
    if cost.lost_seconds <= lasted_s:
        return cost
    return share_of(cost, lasted_s / cost.lost_seconds)


def share_of(cost: Cost, share: float) -> Cost:
    return msgspec.structs.replace(
        cost, lost_seconds=cost.lost_seconds * share, gpu_hours=cost.gpu_hours * share
    )


def part_since(cost: Cost, from_ns: int, since_ns: int, to_ns: int) -> Cost:
    """A verdict's cost, of which only what lies after ``since_ns`` counts."""
    if since_ns <= from_ns or to_ns <= from_ns:
        return cost
    return share_of(cost, max(0, to_ns - since_ns) / (to_ns - from_ns))


def more(cost: Cost, other: Cost) -> Cost:
    return msgspec.structs.replace(
        cost,
        lost_seconds=cost.lost_seconds + other.lost_seconds,
        gpu_hours=cost.gpu_hours + other.gpu_hours,
    )


def less(cost: Cost, other: Cost) -> Cost:
    return msgspec.structs.replace(
        cost,
        lost_seconds=max(0.0, cost.lost_seconds - other.lost_seconds),
        gpu_hours=max(0.0, cost.gpu_hours - other.gpu_hours),
    )
