"""Where the excess of slow steps is: by rank, by pair of ranks, by kind of operation. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
import numpy as np

from alerts.compare.model import Flow, KindCompared, Order, Parts, RankCompared, Role
from alerts.compare.sides import Side
from alerts.signals.ladder import ring_orders
from alerts.window.messages import is_pairwise
from alerts.window.model import JobWindow, Rank
from alerts.window.split import distinct, medians, reduced, starts_of
from alerts.window.statistics import median_known
from collector.contract.records import ABSENT

SLOWER_SHARE = 0.03
"""Of a normal step, by which slow ones must be longer before anything is said of them: an evenly
loaded job's steps differ by a percent, and a straggler is one from here on."""
LATE_SHARE = 0.1
"""Of a normal step, by which a rank must be late to be called so in steps that are no longer."""
ROLE_SHARE = 0.2
"""Of the excess of a step, from which on a part of it is worth a word."""
FLOWS_MAX = 256
"""Pairs of ranks that are shown, those with the most excess: a drawing has no room for more."""
KINDS_MAX = 32
ROLES = list(Role)
"""In the order of blame."""

KindName = tuple[str, str, int]
"""Communicator, operation, size in bytes."""


class Excess(msgspec.Struct, frozen=True, kw_only=True):
    """What is longer in slow steps than in normal ones."""

    step_ns: float
    normal_ns: float

    @property
    def is_slower(self) -> bool:
        return self.step_ns > SLOWER_SHARE * self.normal_ns

    @property
    def late_ns(self) -> float:
        return LATE_SHARE * self.normal_ns

    @property
    def notable_ns(self) -> float:
        return max(ROLE_SHARE * self.step_ns, SLOWER_SHARE * self.normal_ns)


def excess_between(slow: Side, normal: Side) -> Excess:
    return Excess(step_ns=slow.step_ns - normal.step_ns, normal_ns=normal.step_ns)


# Ranks -------------------------------------------------------------------------------------------


def compare_ranks(
    slow: Side, normal: Side, excess: Excess, flows: Mapping[tuple[int, int], float]
) -> list[RankCompared]:
    """Every rank that has records on either side, without a word about who is accused."""
    parts = {name: (slow.medians(name), normal.medians(name)) for name in PARTS}
    beyond = beyond_peers(slow, normal)
    waited_for: dict[int, float] = {}
    for (source, _), value in flows.items():
        waited_for[source] = waited_for.get(source, 0.0) + value
    found = []
    for rank in sorted({*slow.table.ranks.tolist(), *normal.table.ranks.tolist()}):
        now = {name: both[0].get(rank, np.nan) for name, both in parts.items()}
        before = {name: both[1].get(rank, np.nan) for name, both in parts.items()}
        more = {name: now[name] - before[name] for name in PARTS}
        own_beyond = beyond.get(rank, np.nan)
        others = max(0.0, waited_for.get(rank, 0.0))
        place = slow.job.ranks.get(rank) or normal.job.ranks.get(rank) or Rank(rank=rank)
        found.append(
            RankCompared(
                rank=rank,
                host=place.host,
                gpu=place.gpu,
                slow=to_parts(now),
                normal=to_parts(before),
                excess=to_parts(more),
                beyond_peers_ns=known(own_beyond),
                waited_for_ns=round(others),
                role=role_of(more, own_beyond, others, excess),
                is_accused=False,
            )
        )
    return found


PARTS = ("own_ns", "wait_ns", "transfer_ns")
ROLE_OF_PART = {"own_ns": Role.IDLE, "wait_ns": Role.WAITED, "transfer_ns": Role.TRANSFER}
"""Of a rank that is not late, by what grew most."""


def to_parts(values: Mapping[str, float]) -> Parts:
    return Parts(**{name: known(values[name]) for name in PARTS})


def known(value: float) -> int | None:
    return round(value) if np.isfinite(value) else None


def beyond_peers(slow: Side, normal: Side) -> dict[int, float]:
    """How much further above its peers each rank's own time is than in normal steps."""
    now, before = (
        {
            rank: median_known(row)
            for rank, row in zip(
                side.table.ranks.tolist(), side.table.excess_ns[:, side.steps], strict=True
            )
        }
        for side in (slow, normal)
    )
    # A rank is above its peers or not: below them it delays none, however far.
    return {
        rank: max(value, 0.0) - max(before.get(rank, np.nan), 0.0) for rank, value in now.items()
    }


def role_of(more: Mapping[str, float], beyond: float, others: float, excess: Excess) -> Role:
    if np.isnan(more["own_ns"]):
        return Role.UNKNOWN
    least = excess.notable_ns
    if min(more["own_ns"], beyond) >= (least if excess.is_slower else excess.late_ns):
        return Role.LATE
    if not excess.is_slower:
        return Role.AS_USUAL
    if others >= least:
        return Role.PASSED_ON
    most = max(PARTS, key=lambda name: more[name])
    return ROLE_OF_PART[most] if more[most] >= least else Role.AS_USUAL


def in_order_of_blame(ranks: list[RankCompared], accused: Collection[int]) -> list[RankCompared]:
    """The accused, then by role, then by what each had of its own and made others wait."""
    marked = [msgspec.structs.replace(one, is_accused=one.rank in accused) for one in ranks]
    return sorted(
        marked,
        key=lambda one: (
            not one.is_accused,
            ROLES.index(one.role),
            -max(one.beyond_peers_ns or 0, one.waited_for_ns),
            one.rank,
        ),
    )


# Pairs of ranks ----------------------------------------------------------------------------------


def waits_between(side: Side) -> dict[tuple[int, int], float]:
    """How long each rank waited for each other one, in a mean step: (waited for, waiting)."""
    table = side.table
    chosen = side.in_steps & (side.times.wait > 0)
    rank = table.rows.rank
    source, target = rank[side.meetings.last_row[chosen]], rank[chosen]
    if not len(source):
        return {}
    first, pair = distinct(source, target)
    total = np.bincount(pair, side.times.wait[chosen].astype(np.float64)) / len(side.steps)
    ends = zip(
        table.ranks[source[first]].tolist(), table.ranks[target[first]].tolist(), strict=True
    )
    return {key: float(value) for key, value in zip(ends, total, strict=True) if key[0] != key[1]}


def flows_between(slow: Side, normal: Side) -> dict[tuple[int, int], float]:
    """The same beyond normal steps."""
    before = waits_between(normal)
    return {pair: value - before.get(pair, 0.0) for pair, value in waits_between(slow).items()}


def largest_flows(flows: Mapping[tuple[int, int], float], least_ns: float) -> list[Flow]:
    chosen = sorted(flows.items(), key=lambda item: (-item[1], item[0]))
    return [
        Flow(source=source, target=target, excess_ns=round(value))
        for (source, target), value in chosen[:FLOWS_MAX]
        if value >= least_ns
    ]


# Kinds of operations -----------------------------------------------------------------------------


class KindTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Transfers of one kind on one side."""

    median_ns: float
    operations: int
    ranks: int


def transfers_of(side: Side) -> dict[KindName, KindTimes]:
    """The median transfer (last exit minus last entry) of each kind of collective."""
    rows = side.table.rows
    chosen = np.flatnonzero(side.in_steps & ~is_pairwise(rows.records))
    if not len(chosen):
        return {}
    order = chosen[np.argsort(side.meetings.number[chosen], kind="stable")]
    records = rows.records.select(order)
    starts = starts_of(distinct(side.meetings.number[order])[1])
    transfer = reduced(np.maximum, records.exit_ns, starts) - side.meetings.last_ns[order][starts]
    first, kind = distinct(
        records.communicator[starts], records.operation[starts], records.size_bytes[starts]
    )
    count, middle = np.bincount(kind), medians(np.maximum(transfer, 0), kind)
    return {
        (
            records.communicators[records.communicator[starts[row]]],
            records.operations[records.operation[starts[row]]],
            int(records.size_bytes[starts[row]]),
        ): KindTimes(
            median_ns=float(middle[number]),
            operations=int(count[number]),
            ranks=int(records.ranks[starts[row]]),
        )
        for number, row in enumerate(first.tolist())
    }


def compare_kinds(
    now: Mapping[KindName, KindTimes], before: Mapping[KindName, KindTimes], steps: int
) -> list[KindCompared]:
    """Kinds of both sides, those whose transfers grew most in a step first."""
    found = [
        KindCompared(
            communicator=name[0],
            operation=name[1],
            size_bytes=None if name[2] == ABSENT else name[2],
            ranks=times.ranks,
            slow_ns=round(times.median_ns),
            normal_ns=round(before[name].median_ns),
            operations=times.operations,
            excess_ns=round(
                (times.median_ns - before[name].median_ns) * times.operations / max(1, steps)
            ),
        )
        for name, times in now.items()
        if name in before
    ]
    return sorted(found, key=lambda one: (-one.excess_ns, one.communicator, one.operation))[
        :KINDS_MAX
    ]


# The order of ranks ------------------------------------------------------------------------------


def order_of(job: JobWindow) -> Order | None:
    """The ring of the job's largest communicator that has records; None: none is known."""
    names = [name for name in job.recorded if name in job.communicators]
    if not names:
        return None
    name = max(names, key=lambda one: (len(job.communicators[one].job_rank), one))
    known_one = job.communicators[name]
    rings = ring_orders(known_one, known_one.ranks)
    if not rings:
        return None
    number = known_one.job_rank
    parent = {
        str(number[child]): None if above is None else number.get(above)
        for child, above in (known_one.trees[0].items() if known_one.trees else ())
        if child in number
    }
    has_logged_ring = bool(known_one.rings) and not known_one.is_ring_assumed
    return Order(
        communicator=name,
        ring=[number[rank] for rank in rings[0].tolist() if rank in number],
        is_assumed=not has_logged_ring,
        parent=parent,
    )
