"""Slow steps of a job against normal ones: rank by rank, who waited for whom, without whom. Pure.

*What is compared.* Medians over the steps of each side, for each rank: its own time (outside of
collectives), its waiting (inside, before the last rank had come) and the rest inside (transfer).
The excess is the difference of the two sides. Time is measured on the common clock; a rank's own
time on its own.

*Whom it accuses.* None by itself: verdicts and findings of the same time do, with all their care
about chance (`alerts.detectors`). Ranks that were late in these steps are called late, which is a
measurement. Of few steps no more is said.

*What is not known.* Where ranks have no records in the slow steps, the one that was waited for may
be one of them: reasons stand in ``unknown``, and the sentence says so.

*Without it.* See `alerts.compare.without` for the model and its assumptions.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from alerts.compare.blame import (
    SLOWER_SHARE,
    compare_kinds,
    compare_ranks,
    excess_between,
    flows_between,
    in_order_of_blame,
    largest_flows,
    order_of,
    transfers_of,
)
from alerts.compare.model import (
    Accused,
    Order,
    RankCompared,
    Role,
    Row,
    SideSummary,
    StepsCompared,
)
from alerts.compare.sides import Side, rows_drawn, side_of, steps_in, why_not
from alerts.compare.without import ASSUMPTIONS, Replay, Taken
from alerts.compare.words import Told, rank_words, sentence
from alerts.signals.gaps import OwnTime, own_time
from alerts.window.columns import Ints
from alerts.window.model import JobWindow, Window
from collector.contract.cause_facts import Layer
from collector.contract.verdict import Cause, Culprit, Verdict

RANKS_MAX = 512
"""Ranks with numbers in an answer, the first in the order of blame."""
DRAWN_MAX = 64
"""Ranks whose steps are drawn: the screen of a person has as many lines."""
CONFIDENCE_MIN = 0.5
"""Of a verdict that is repeated here: one that is rather wrong than right names none."""
REPLAYED_MAX = 4
"""Ranks that are late by themselves, each of which a step is replayed without."""
MOST_SEEN = 2
"""One in so many ranks silent is too many to call any of the others late."""
NORMAL_STEPS_MIN = 4
"""Fewer steps before the slow ones show nothing usual: then all others are normal."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Which steps: those of these times, in unix nanoseconds. A moment means the step around it."""

    slow: tuple[int, int]
    normal: tuple[int, int] | None = None
    """None: the steps before the slow ones or, of fewer than four, all other steps."""
    troubled: tuple[tuple[int, int], ...] = ()
    """Times of other incidents: their steps are normal only where fewer than four others are."""


class Blamed(msgspec.Struct, frozen=True, kw_only=True):
    """What a verdict or a finding says, as far as a comparison needs it."""

    cause: Cause
    culprit: Culprit
    since_ns: int
    until_ns: int | None
    summary: str = ""
    confidence: float | None = None
    accomplices: tuple[Culprit, ...] = ()


def blamed_of(verdicts: Sequence[Verdict], job: str) -> list[Blamed]:
    """The verdicts about a job that are sure enough to repeat."""
    return [
        Blamed(
            cause=one.cause,
            culprit=one.culprit,
            since_ns=one.since_ns,
            until_ns=one.until_ns,
            summary=one.summary,
            confidence=one.confidence,
            accomplices=one.accomplices,
        )
        for one in verdicts
        if job in (*one.jobs, one.culprit.job) and one.confidence >= CONFIDENCE_MIN
    ]


def compare_steps(
    window: Window,
    job: JobWindow,
    asked: Asked,
    blamed: Sequence[Blamed] = (),
    normal_job: JobWindow | None = None,
) -> StepsCompared:
    """``normal_job``: the same job, or another run, in another window; its steps are normal."""
    other = normal_job if normal_job is not None else job
    for each in (job, other):
        if reason := why_not(each):
            return not_known(job.job, asked, [f"{each.job}: {reason}"])
    slow_table, normal_table = own_time(job), own_time(other)
    assert slow_table is not None and normal_table is not None, "why_not was asked"  # noqa: PT018
    slow_steps = steps_in(slow_table, *asked.slow)
    if not len(slow_steps):
        return not_known(job.job, asked, [nothing_there("slow", slow_table)])
    normal_steps = normal_of(normal_table, asked, slow_steps if other is job else None)
    if not len(normal_steps):
        return not_known(job.job, asked, [nothing_there("normal", normal_table)])
    return compare_sides(window, side_of(job, slow_steps), side_of(other, normal_steps), blamed)


def normal_of(table: OwnTime, asked: Asked, slow: Ints | None) -> Ints:
    """The normal steps: none of the slow ones."""
    if asked.normal is not None:
        found = steps_in(table, *asked.normal)
        return found if slow is None else np.setdiff1d(found, slow)
    others = np.arange(len(table.start_ns), dtype=np.int64)
    if slow is None:
        return others
    before = others[: int(slow.min())]
    troubled = [steps_in(table, *span) for span in asked.troubled]
    untroubled = np.setdiff1d(before, np.concatenate(troubled)) if troubled else before
    enough = (one for one in (untroubled, before) if len(one) >= NORMAL_STEPS_MIN)
    return next(enough, np.setdiff1d(others, slow))


def nothing_there(word: str, table: OwnTime) -> str:
    known = f"{len(table.start_ns):,} steps are known" if len(table.start_ns) else "no step is"
    return f"no whole step lies in the {word} time; {known} in what was read"


def not_known(job: str, asked: Asked, reasons: list[str]) -> StepsCompared:
    normal = asked.normal or asked.slow
    return StepsCompared(
        job=job,
        sentence=f"The steps cannot be compared: {'; '.join(reasons)}.",
        slow=SideSummary(from_ns=asked.slow[0], to_ns=asked.slow[1], steps=0, step_ns=None),
        normal=SideSummary(from_ns=normal[0], to_ns=normal[1], steps=0, step_ns=None),
        excess_ns=None,
        unknown=reasons,
        accused=[],
        ranks=[],
        ranks_left_out=0,
        silent=[],
        flows=[],
        kinds=[],
        order=None,
        rows_slow=[],
        rows_normal=[],
        without=[],
        assumptions=[],
    )


def compare_sides(
    window: Window, slow: Side, normal: Side, blamed: Sequence[Blamed]
) -> StepsCompared:
    job, excess = slow.job, excess_between(slow, normal)
    summary = slow.summary()
    accused = accused_in(window, job, blamed, (summary.from_ns, summary.to_ns))
    guilty = {rank for one in accused for rank in one.ranks}
    flows = flows_between(slow, normal)
    ranks = in_order_of_blame(compare_ranks(slow, normal, excess, flows), guilty)
    usual = transfers_of(normal)
    kinds = compare_kinds(transfers_of(slow), usual, len(slow.steps))
    silent = silent_ranks(job, ranks)
    reasons = silence(job, silent, len(ranks))
    ranks = as_far_as_known(ranks, job.size, len(silent))
    order = order_of(job)
    drawn = drawn_ranks(ranks, order)
    replay = Replay(slow, normal)
    idle = [
        one.rank
        for one in ranks
        if one.role is not Role.LATE and (one.excess.own_ns or 0) >= SLOWER_SHARE * normal.step_ns
    ]
    unknown = [*reasons, *([replay.why_not] if replay.why_not else [])]
    without = [
        played
        for taken in to_take_away(ranks, accused, is_slower=excess.is_slower)
        if not replay.why_not and (played := replay.play(taken, usual, idle, drawn)) is not None
    ]
    said = sentence(
        Told(
            excess=excess,
            slow=summary,
            normal=normal.summary(),
            ranks=ranks,
            kinds=kinds,
            accused=accused,
            without=without,
            unknown=reasons,
        )
    )
    return StepsCompared(
        job=job.job,
        sentence=said,
        slow=summary,
        normal=normal.summary(),
        excess_ns=round(excess.step_ns),
        unknown=unknown,
        accused=accused,
        ranks=ranks[:RANKS_MAX],
        ranks_left_out=max(0, len(ranks) - RANKS_MAX),
        silent=silent[:RANKS_MAX],
        flows=largest_flows(flows, excess.notable_ns / max(1, len(ranks))),
        kinds=kinds,
        order=order,
        rows_slow=measured_rows(slow, drawn),
        rows_normal=measured_rows(normal, drawn),
        without=without,
        assumptions=ASSUMPTIONS if without else [],
    )


def measured_rows(side: Side, ranks: list[int]) -> list[Row]:
    records = side.table.rows.records
    return rows_drawn(side, ranks, records.entry_ns, records.exit_ns, side.meetings.last_ns)


def drawn_ranks(ranks: Sequence[RankCompared], order: Order | None) -> list[int]:
    """The first in the order of blame, and then as they stand in the ring."""
    chosen = {one.rank for one in ranks[:DRAWN_MAX]}
    ring = order.ring if order is not None else []
    return [*(rank for rank in ring if rank in chosen), *sorted(chosen - {*ring})]


# Those that are not known -------------------------------------------------------------------------


def silent_ranks(job: JobWindow, ranks: Sequence[RankCompared]) -> list[int]:
    """Ranks of the job that have no whole slow step on record."""
    seen = {one.rank for one in ranks if one.slow.own_ns is not None}
    return sorted({*job.ranks, *job.unread} - seen)


def as_far_as_known(ranks: Sequence[RankCompared], size: int, silent: int) -> list[RankCompared]:
    """The ranks without what a silent one may explain.

    Time that is waited for a rank without records looks like transfer. Where half of all ranks are
    silent those that are left are no peers to hold a rank against.
    """
    doubtful = (
        {Role.TRANSFER, Role.IDLE} if silent * MOST_SEEN < size else {*Role} - {Role.AS_USUAL}
    )
    return [
        msgspec.structs.replace(one, role=Role.UNKNOWN) if silent and one.role in doubtful else one
        for one in ranks
    ]


def silence(job: JobWindow, silent: Sequence[int], seen: int) -> list[str]:
    missing = max(len(silent), job.size - seen)
    if not missing:
        return []
    part = f"{missing:,} of {max(job.size, missing):,} ranks"
    return [f"{part} have no whole record of these steps: any of them may have been waited for"]


# The accused -------------------------------------------------------------------------------------


def accused_in(
    window: Window, job: JobWindow, blamed: Sequence[Blamed], span: tuple[int, int]
) -> list[Accused]:
    """What is accused in this time, with the job's ranks that it concerns; none twice."""
    found: list[Accused] = []
    for one in blamed:
        if one.since_ns > span[1] or (one.until_ns is not None and one.until_ns < span[0]):
            continue
        culprits = [one.culprit, *one.accomplices]
        ranks = sorted({rank for each in culprits for rank in ranks_of(window, job, each)})
        if ranks and all(ranks != other.ranks for other in found):
            found.append(
                Accused(
                    cause=one.cause,
                    culprit=one.culprit,
                    summary=one.summary,
                    ranks=ranks,
                    confidence=one.confidence,
                )
            )
    return found


def ranks_of(window: Window, job: JobWindow, culprit: Culprit) -> list[int]:
    """The job's ranks that run on a culprit, or whose bytes cross it."""
    if culprit.rank is not None:
        return [culprit.rank] if culprit.job in ("", job.job) and culprit.rank in job.ranks else []
    on_host = [rank for rank in job.ranks.values() if culprit.host and rank.host == culprit.host]
    if on_host and culprit.gpu is not None:
        return [one.rank for one in on_host if one.gpu in (None, culprit.gpu)]
    if on_host and culprit.device:
        own = [one.rank for one in on_host if culprit.device in one.devices]
        return own or [one.rank for one in on_host if not one.devices]
    if on_host:
        return [one.rank for one in on_host]
    return crossing(window, job, culprit) if culprit.switch else []


def crossing(window: Window, job: JobWindow, culprit: Culprit) -> list[int]:
    """Ranks that send over a switch, or over one port of it; none where no way is known."""
    ports, paths = window.ports, job.paths
    if paths is None:
        return []
    rows = {
        row
        for row, (host, port) in enumerate(zip(ports.host, ports.port, strict=True))
        if host == culprit.switch and culprit.switch_port in ("", port)
    }
    both = rows | {int(ports.other_end[row]) for row in rows if ports.other_end[row] >= 0}
    place = np.flatnonzero(np.isin(paths.port, list(both)))
    edge = np.searchsorted(paths.start, place, side="right") - 1
    found = {
        rank.rank
        for one in np.unique(edge).tolist()
        if (rank := job.rank_of(paths.communicator[one], int(paths.source[one]))) is not None
    }
    return sorted(found)


# What to replay without ---------------------------------------------------------------------------


def to_take_away(
    ranks: Sequence[RankCompared], accused: Sequence[Accused], *, is_slower: bool
) -> list[Taken]:
    """The accused first, then the latest ranks one by one, then the network as a whole."""
    host_of = {one.rank: one.host for one in ranks}
    found: list[Taken] = []
    for one in accused:
        is_network = one.cause.facts.layer is Layer.NETWORK
        names = ", ".join(rank_words(rank, host_of.get(rank, "")) for rank in one.ranks[:2])
        more = f" and {len(one.ranks) - 2} more" if len(one.ranks) > 2 else ""  # noqa: PLR2004
        what = f"slow transfers of {names}{more}" if is_network else f"lateness of {names}{more}"
        found.append(
            Taken(
                what="network" if is_network else "rank",
                ranks=one.ranks,
                title=f"without the {what}",
            )
        )
    late = [one for one in ranks if one.role is Role.LATE]
    for rank in late[:REPLAYED_MAX]:
        taken = Taken(
            what="rank",
            ranks=[rank.rank],
            title=f"without the lateness of {rank_words(rank.rank, rank.host)}",
        )
        if all((one.what, one.ranks) != (taken.what, taken.ranks) for one in found):
            found.append(taken)
    if is_slower and (any(one.role is Role.TRANSFER for one in ranks) or not found):
        found.append(Taken(what="network", ranks=[], title="with every transfer as usual"))
    return found
