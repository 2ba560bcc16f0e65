"""A link, NIC or port over which bytes take longer than over its peers.

*Phenomenon.* A NIC that lost a part of its rate, a slot with fewer lanes, a cable that repeats, a
full port: every collective that crosses it takes longer, although all ranks come as before. A ring
goes at the pace of its slowest edge, so counters of bytes look alike on all hosts.

*Signal.* Transfer (last exit minus last entry) of a kind of operation far above the rest of the
window or the long past, nearly all of the time (`alerts.signals.transfer`). Where it is: the exits
of a ring form a ladder that begins behind the slow edge (`alerts.signals.ladder`); slow
communicators share what healthy ones do not cross (`alerts.signals.edges`); the slow NIC is the
smooth one (`alerts.signals.smoothness`), and in a tree the one whose bytes never come faster than
in the mean (`alerts.signals.peaks`). A stretch must be clear by its times alone or by its
ladder. Where nothing changed at all, a ladder that is in long operations and not in short ones
beside them is enough (`alerts.signals.lasting`).

Where no collective is slow, messages between two ranks are looked at in the same way, each
direction by itself: what is slow of a rank's sends or receives, and of no other's, is its NIC.

*Assumptions.* Clocks are aligned. Rings are as NCCL logged, or in the order of ranks. Operations of
one kind move the same bytes. One fault at a time in one job.

*Misses.* What is slow from the beginning of the window, has no known past and no ladder (trees, two
ranks, bytes that go round in many small pieces, operations of one length only). The direction of a
cable that alone is slow has two ends, and a ring cannot separate them: both are suspects, and
counters must decide (nothing waits in front of a receiver that is fast: `alerts.signals.backlog`),
or a burst capture (a slow receiver takes in evenly what comes in bursts:
`alerts.signals.captured`). A slow edge between leaves has many ways beside its two NICs: none is
named while transfers take less than three times as long and no counter shows which.
All-reduces over trees show that they are slow, not where, if no fast sampler reads the NICs, or its
counters are too coarse to see that the others send ahead; one that receives too slowly is not told
there at all, and neither is any NIC where switches add up. Where none can be named and the job's
own steps are longer by a tenth for a minute, that much is said, and why no part can be told.
Jobs that are too small for a ladder (two ranks) and share no communicator with others: both ends
are suspects.

*Reference.* C4 (Alibaba, HPCA 2025) compares rank with rank: a hot cell is a link, a row a sender.
Holmes (NSDI 2025) looks for the group whose members alone are slow. Greyhound (ATC 2025) takes a
change point as the trigger. The ladder follows from how a ring waits (`simulator.jobs.ladder` has
the recurrence), and was seen in measured rings of four and eight ranks.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

import msgspec
import numpy as np

from alerts.finding import Finding, Suspect
from alerts.signals import peaks
from alerts.signals.backlog import free_inflow
from alerts.signals.captured import Even, by_capture, even_evidence, even_one, rows_alike
from alerts.signals.edges import (
    ENDS,
    LEAD,
    ONE_EDGE_SHARE,
    Fabric,
    Vote,
    crosses_network,
    fabric_of,
    free_receivers,
    receiver_of,
    stands_out,
    suspects_of,
)
from alerts.signals.gaps import latest_own_ns
from alerts.signals.inside import host_of_edge
from alerts.signals.ladder import RANKS_MIN, Ladder, is_of_late_rank, ladder_of
from alerts.signals.lasting import Lasting, lasting
from alerts.signals.pipelines import by_messages
from alerts.signals.smoothness import Smoothest, smoothest
from alerts.signals.step_times import cost_by_steps, is_worth_telling
from alerts.signals.storage import READ
from alerts.signals.storage_traffic import storage_at, what_fills
from alerts.signals.transfer import (
    MANY,
    TRANSFER,
    Company,
    Stretch,
    company_in,
    shown_size,
    slow_stretches,
    sorted_kinds,
    together_evidence,
)
from alerts.window.columns import Ints
from alerts.window.model import JobWindow, Window
from collector.contract.figures import duration
from collector.contract.figures import share as percentage
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Evidence, Reason, RuledOut

LADDERS_MAX = 64
"""Communicators whose exits are looked at, the slowest ones: one fault makes a few slow."""
EPISODES_MAX = 4
"""Findings of one job in one window."""
OVER_SECONDS_MIN = 5.0
OVER_SHARE_MIN = 0.1
"""What is over by the window's end must have lasted so long, or for such a share of the window's
operations: single connections were seen to be slow for half a second in healthy jobs."""
BRIEF_SECONDS = 1.0
BRIEF_RATIO = 12.0
"""What is shorter is believed only of a ladder that one NIC explains, if times are clear as well
or, while it goes on, both edges of the NIC are slow: single connections stumble for half a second,
and then make a ladder, too. Where no ladder can be, it must go on and be so many times slower."""
LIVE_SECONDS_MIN = 2.0
"""The same of what goes on: a moment later more is known."""
MESSAGE_SECONDS_MIN = 1.0
"""The same of messages, always: a pass of micro-batches sends many within milliseconds, and in a
healthy pipeline four of them in a row took 25 times as long as usual."""
WITHOUT_LADDER_SIGMAS = 8.0
"""How clear times must be that no ladder supports. Small all-reduces of healthy jobs change between
two paces, eight times apart; in parts of such a run nearly all of these were below 7.5."""
STANDS_OUT_SIGMAS = 5.0
"""Or so clear and `BRIEF_RATIO` times slower, for `OVER_SECONDS_MIN` and `MANY` operations: further
than those two paces are apart. A NIC of 300 Mb/s had 6.4 and 15 times in a group of two."""
LADDER_BELIEF_MIN = 0.6
"""Of a ladder beside times that are clear, but not so clear that they need none: behind slow NICs
it was 0.87 and more; a small ring of four that fell back into its slower pace had 0.33."""
LADDER_FOCUS_MIN, LADDER_STEP_MIN = 0.85, 0.6
"""Of a ladder that supports times which are not clear by themselves: a slow NIC's had 0.95 and 0.9,
single connections that stumble for half a second 0.65 and 0.7, chance 0.5 and 0.3."""
FULL_RATIO = 2.0
"""From so many times longer than usual a communicator has a whole vote: one that is ten percent
slower beside one that is four times slower may suffer from something else."""
SMOOTH_WEIGHT = 1.5
"""How much more likely the smooth one is; never enough to overrule a ladder."""
VICTIMS_MAX = 32
UNNAMED_STRENGTH = 0.3
TOLD_STRENGTH = 0.35
"""The same where it goes on and the job's own steps show that people must hear of it: just enough
for an incident, which names nobody and gives way to any verdict on that job that does."""
FILLED_SHARE = 0.3
"""Of suspicion, of a receiver that is full of what others send: whether the queue stands there, or
on their way to it, no counter of a NIC tells."""
INCOMPLETE = 0.7
"""How much less is believed where records of ranks are missing."""
WITHOUT_USUAL = 0.7
"""How much less where no healthy time is known, and a ring's ladder is the only evidence."""
SHOWN_NS_MIN = 100_000.0
"""Less than this is not worth a figure."""
OWN_SHARE_MAX = 0.25
"""Of what transfers take too long, which a rank may be late by through its own doing without
being called a straggler."""


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which communicators of a job were slow, and all that is known of it."""

    since_ns: int
    last_ns: int
    goes_on: bool
    worst: Stretch
    votes: list[Vote]
    company: Company
    smooth: Smoothest | None
    free_rows: Collection[int] = ()
    """Ports of NICs of slow communicators with nothing waiting in front of them."""
    short: Stretch | None = None
    """Where no healthy time is known: the short operations that the long ones are held against."""


def detect(window: Window) -> list[Finding]:
    return [finding for job in window.looked for finding in of_job_or_messages(window, job)]


def of_job_or_messages(window: Window, job: JobWindow) -> list[Finding]:
    """By collectives, which say more; and by messages where these say nothing."""
    found = of_job(window, job)
    between = None if found else by_messages(job)
    return found if between is None else of_job(window, between)


def of_job(window: Window, job: JobWindow) -> list[Finding]:
    if job.hosts_left_out:  # a ladder of exits with a gap in it leads to the wrong link
        return []
    kinds = sorted_kinds(job.operations)
    found = [one for one in slow_stretches(job, kinds) if crosses_network(job, one.communicator)]
    seeds = [one for one in found[:LADDERS_MAX] if is_certain(window, job, one)]
    if not seeds:
        names = {name for name in job.operations.communicators if crosses_network(job, name)}
        always = [
            one
            for one in lasting(job, kinds, names)
            if not host_of_edge(job, one.stretch, one.ladder)
        ]
        if not always:
            return []
        fabric = fabric_of(window, job)
        return [to_finding(fabric, lasting_episode(fabric, always))]
    fabric = fabric_of(window, job)
    episodes = [episode_of(fabric, group) for group in together(seeds)[-EPISODES_MAX:]]
    return [to_finding(fabric, one) for one in episodes if not is_contradicted(job, one)]


def is_certain(window: Window, job: JobWindow, stretch: Stretch) -> bool:
    """Whether a stretch is more than chance: long enough, and clear by its times or its ladder."""
    seconds = (stretch.last_ns - stretch.since_ns) / NS
    if stretch.goes_on:
        is_long = not window.is_live or seconds >= LIVE_SECONDS_MIN
    else:
        lasted = seconds >= OVER_SECONDS_MIN or stretch.share >= OVER_SHARE_MIN
        is_long = lasted and len(stretch.slow) >= MANY
    if not is_long or (is_of_messages(job, stretch) and seconds < MESSAGE_SECONDS_MIN):
        return False
    ladder = None if job.is_estimate else ladder_of(job, stretch)
    if host_of_edge(job, stretch, ladder):
        return False  # `scale_up` reports what is slow inside a host: no NIC is
    is_late = ladder is not None and is_of_late_rank(job, stretch, ladder)
    is_fine = is_explained(stretch, ladder, is_late=is_late)
    if seconds >= BRIEF_SECONDS or not is_fine:
        return is_fine
    if ladder is None or stretch.ranks < RANKS_MIN:
        return stretch.goes_on and stretch.ratio >= BRIEF_RATIO
    is_twice = stretch.is_clear or (stretch.goes_on and ladder.is_of_nic)
    return is_twice and is_of_one(ladder) and not is_late


def is_of_messages(job: JobWindow, stretch: Stretch) -> bool:
    known = job.communicators.get(stretch.communicator)
    return known is not None and known.is_one_way


def is_of_one(ladder: Ladder | None) -> bool:
    """Whether it is a ladder beyond doubt, by one NIC, and as high as transfers are long."""
    if ladder is None or not ladder.is_clear:
        return False
    return ladder.focus >= LADDER_FOCUS_MIN and ladder.step_share >= LADDER_STEP_MIN


def is_explained(stretch: Stretch, ladder: Ladder | None, *, is_late: bool) -> bool:
    """Whether times and exits together leave no doubt.

    Where times alone are not clear, exits must be a ladder that one NIC explains, as high as the
    operation is long, and higher than a rank that comes late could make it (``is_late``). Where
    they are clear, a ring should still show one: what becomes slower without it is a different way
    of doing the same (a tree, a processor's clock), so more is asked.
    """
    if ladder is None or stretch.ranks < RANKS_MIN:
        return is_clear_alone(stretch)
    if stretch.is_clear:
        return ladder.belief >= LADDER_BELIEF_MIN or stretch.clarity >= WITHOUT_LADDER_SIGMAS
    return is_of_one(ladder) and not is_late


def is_clear_alone(stretch: Stretch) -> bool:
    """Whether times need no ladder: they are beyond doubt, or far apart and so for long."""
    is_long = (stretch.last_ns - stretch.since_ns) / NS >= OVER_SECONDS_MIN
    is_far = stretch.clarity >= STANDS_OUT_SIGMAS and stretch.ratio >= BRIEF_RATIO
    return stretch.clarity >= WITHOUT_LADDER_SIGMAS or (
        is_far and is_long and len(stretch.slow) >= MANY
    )


def together(stretches: Sequence[Stretch]) -> list[list[Stretch]]:
    """Stretches that overlap in time, in order of time."""
    groups: list[list[Stretch]] = []
    until = 0
    for one in sorted(stretches, key=lambda stretch: (stretch.since_ns, stretch.communicator)):
        if not groups or one.since_ns > until:
            groups.append([])
        groups[-1].append(one)
        until = max(until, one.last_ns)
    return groups


def episode_of(fabric: Fabric, seeds: Sequence[Stretch]) -> Episode:
    """All that is known of the time in which these were slow."""
    job, ports = fabric.job, fabric.window.ports
    worst = max(seeds, key=lambda one: (one.ratio, one.communicator))
    since_ns, last_ns = min(one.since_ns for one in seeds), max(one.last_ns for one in seeds)
    goes_on = any(one.goes_on for one in seeds)
    # What follows the last slow operation of one kind in the same step belongs to it.
    period_ns = (worst.last_ns - worst.since_ns) // len(worst.slow)
    wanted = {name for name in job.operations.communicators if crosses_network(job, name)}
    until_ns = window_end(job) if goes_on else last_ns + period_ns
    moved = float(job.operations.bus_bytes[worst.slow[0]])
    pace = worst.excess_ns / moved if moved else math.inf
    company = company_in(job, since_ns, until_ns, wanted, pace)
    rows = rows_of(fabric, {one.communicator for one in [*seeds, *company.slower]})
    votes = votes_of(job, [*seeds, *company.slower])
    return Episode(
        since_ns=since_ns,
        last_ns=last_ns,
        goes_on=goes_on,
        worst=worst,
        votes=votes,
        company=company,
        smooth=smoothest(ports, rows, since_ns, last_ns),
        free_rows=free_inflow(ports, rows, since_ns, last_ns),
    )


def lasting_episode(fabric: Fabric, found: Sequence[Lasting]) -> Episode:
    """All of the window, in which these were slow; nothing is known of any other time."""
    since_ns = min(one.stretch.since_ns for one in found)
    last_ns = max(one.stretch.last_ns for one in found)
    rows = rows_of(fabric, {one.stretch.communicator for one in found})
    return Episode(
        since_ns=since_ns,
        last_ns=last_ns,
        goes_on=True,
        worst=found[0].stretch,
        votes=[
            Vote(communicator=one.stretch.communicator, ladder=one.ladder, weight=1.0)
            for one in found
        ],
        company=Company(slower=[], as_usual=frozenset()),
        smooth=smoothest(fabric.window.ports, rows, since_ns, last_ns),
        free_rows=free_inflow(fabric.window.ports, rows, since_ns, last_ns),
        short=found[0].other,
    )


def rows_of(fabric: Fabric, communicators: Iterable[str]) -> Ints:
    job = fabric.job
    used = [
        fabric.nic_of_rank.get(rank, -1) for name in communicators for rank in members(job, name)
    ]
    rows = sorted({fabric.nics[number].row for number in used if number >= 0} - {-1})
    return np.array(rows, dtype=np.int64)


def window_end(job: JobWindow) -> int:
    return int(job.operations.last_exit_ns.max())


def is_contradicted(job: JobWindow, episode: Episode) -> bool:
    """Whether every member of the slow communicators is as fast as ever in another one.

    Then no NIC is slow. Where the ways between hosts are known some cable between switches may be;
    where they are not, nothing is left that could be.
    """
    if job.paths is not None:
        return False
    slow = {side for vote in episode.votes for side in sides(job, vote.communicator)}
    fast = {side for name in episode.company.as_usual for side in sides(job, name)}
    return bool(slow) and slow <= fast


def sides(job: JobWindow, communicator: str) -> list[tuple[int, str]]:
    """The members and what they do there: of messages one sends and the other one receives."""
    known = job.communicators.get(communicator)
    if known is None or not known.is_one_way:
        return [(rank, "") for rank in members(job, communicator)]
    return [(rank, "in" if place else "out") for place, rank in known.job_rank.items()]


def members(job: JobWindow, communicator: str) -> list[int]:
    known = job.communicators.get(communicator)
    return sorted(known.job_rank.values()) if known is not None else []


def votes_of(job: JobWindow, stretches: Sequence[Stretch]) -> list[Vote]:
    """One vote a communicator: by the kind whose exits show most, as heavy as its slowest."""
    ladders: dict[str, Ladder] = {}
    slowest: dict[str, float] = {}
    for one in stretches:
        name = one.communicator
        if (name not in slowest and len(slowest) >= LADDERS_MAX) or not crosses_network(job, name):
            continue
        slowest[name] = max(slowest.get(name, 0.0), math.log(max(one.ratio, 1.0)))
        ladder = None if job.is_estimate else ladder_of(job, one)
        if ladder is not None and (name not in ladders or ladder.belief > ladders[name].belief):
            ladders[name] = ladder
    most = min(max(slowest.values(), default=0.0), math.log(FULL_RATIO))
    return [
        Vote(communicator=name, ladder=ladders[name], weight=min(1.0, slowest[name] / most))
        for name in sorted(ladders, key=lambda name: (-slowest[name], name))
        if most > 0
    ]


# The finding -------------------------------------------------------------------------------------


def to_finding(fabric: Fabric, episode: Episode) -> Finding:
    job, window = fabric.job, fabric.window
    healthy = sorted(episode.company.as_usual)
    suspects = suspects_of(fabric, episode.votes, healthy, episode.free_rows)
    suspects = with_smoothness(fabric, episode, suspects)
    even = even_in(fabric, episode, suspects)
    suspects = by_capture(even, window.ports, suspects)
    limits = peaks.evenest(
        fabric, slow_of(episode), episode.since_ns, episode.last_ns, episode.free_rows
    )
    suspects = peaks.by_peaks(limits, window.ports, suspects)
    first = suspects[0] if suspects else None
    slow = slow_of(episode)
    is_named = (
        first is not None
        and stands_out(suspects, episode.worst.ratio)
        and is_surrounded(fabric, slow, first)
    )
    culprit = first.culprit if first is not None and is_named else Culprit()
    cost = None
    if episode.short is None:
        lost_s = episode.worst.excess_ns * len(episode.worst.slow) / NS
        cost = cost_by_steps(job, episode.since_ns, episode.last_ns, lost_s)
    when, ratio = (episode.since_ns, episode.last_ns), episode.worst.ratio
    filled = what_fills(window, culprit, when, ratio)
    receiver = receiver_of(fabric, episode.votes) if filled is None else None
    if receiver is not None and (into := what_fills(window, receiver, when, ratio, READ)):
        filled, culprit, is_named = into, receiver, True
        suspects = [Suspect(culprit=receiver, share=FILLED_SHARE)]
    return Finding(
        detector="slow_link",
        cause=Cause.SLOW_LINK if filled is None else Cause.CONGESTION,
        reason=filled or Reason.UNKNOWN,
        culprit=culprit,
        strength=(
            strength_of(episode, suspects) if is_named else unnamed_strength(job, episode, suspects)
        ),
        since_ns=episode.since_ns,
        until_ns=window.until(episode.last_ns) if episode.goes_on else episode.last_ns,
        last_ns=episode.last_ns,
        job=job.job,
        suspects=tuple(suspects),
        communicators=slow,
        victims=victims_of(fabric, slow, culprit) if is_named else (),
        evidence=(
            *evidence_of(fabric, episode, culprit, healthy),
            *([even_evidence(window, even)] if even is not None else []),
            *(
                [peaks.peak_evidence(window, limits, episode.since_ns, episode.last_ns)]
                if limits is not None
                else []
            ),
        ),
        ruled_out=ruled_out_of(job, episode),
        cost=cost,
    )


def slow_of(episode: Episode) -> tuple[str, ...]:
    """The communicators that were slow."""
    names = tuple(dict.fromkeys(vote.communicator for vote in episode.votes))
    return names or (episode.worst.communicator,)


def is_surrounded(fabric: Fabric, slow: Sequence[str], suspect: Suspect) -> bool:
    """Whether the suspect and its neighbours in the slow rings were all read.

    Where a neighbour was not, what is slow may be its NIC, or the rank itself, which comes late.
    """
    job = fabric.job
    if job.ranks_read is None or job.ranks_read >= job.size:
        return True
    own = {rank for rank, nic in fabric.nic_of_rank.items() if is_its(fabric, nic, suspect)}
    for name in slow:
        known, read = job.communicators.get(name), job.recorded.get(name, set())
        if known is None:
            continue
        accused = {rank for rank, number in known.job_rank.items() if number in own}
        for ring in known.rings or [range(known.ranks)]:
            for place, rank in enumerate(ring):
                beside = {rank, ring[place - 1], ring[(place + 1) % len(ring)]}
                if rank in accused and not beside <= read:
                    return False
    return True


def is_its(fabric: Fabric, nic: int, suspect: Suspect) -> bool:
    return 0 <= nic < len(fabric.nics) and fabric.nics[nic].culprit == suspect.culprit


def even_in(fabric: Fabric, episode: Episode, suspects: Sequence[Suspect]) -> Even | None:
    """The NIC that a burst capture accuses, of those that the job's times accuse alike."""
    ports, captured = fabric.window.ports, fabric.window.captured
    rows = rows_alike(ports, suspects, LEAD) if captured is not None and suspects else None
    if rows is None or len(rows) > ENDS:
        return None
    clearest = max(episode.votes, key=lambda vote: vote.ladder.belief)
    largest = int(np.argmax(clearest.ladder.share))
    ends = [
        fabric.nic_row(clearest.communicator, int(rank[largest]))
        for rank in (clearest.ladder.source, clearest.ladder.target)
    ]
    edge = (ends[0], ends[1])
    return even_one(captured, rows.tolist(), edge, episode.since_ns, episode.last_ns)


def with_smoothness(fabric: Fabric, episode: Episode, suspects: Sequence[Suspect]) -> list[Suspect]:
    """The suspects, with the smooth one believed a little more."""
    smooth = episode.smooth
    if smooth is None or not smooth.is_clear:
        return list(suspects)
    name = fabric.window.ports.culprit(smooth.row)
    weights = [one.share * (SMOOTH_WEIGHT if one.culprit == name else 1.0) for one in suspects]
    total = sum(weights) or 1.0
    changed = [
        msgspec.structs.replace(one, share=weight / total)
        for one, weight in zip(suspects, weights, strict=True)
    ]
    return sorted(changed, key=lambda one: -one.share)


def strength_of(episode: Episode, suspects: Sequence[Suspect]) -> float:
    """0 to 1: how clear the slowness is, and how clear the culprit.

    Of two with nearly the same share one is named because an operator must look at one first: its
    strength is no more than that share.
    """
    share = min(1.0, suspects[0].share)
    is_tied = len(suspects) > 1 and LEAD * suspects[1].share >= share
    return clear_strength(episode) * (share if is_tied else 0.5 + 0.5 * share)


def unnamed_strength(job: JobWindow, episode: Episode, suspects: Sequence[Suspect]) -> float:
    """The same where no culprit is named."""
    if episode.goes_on and is_worth_telling(job, episode.since_ns, episode.last_ns):
        # That many are alike is no doubt here, for which `judge.confidence` takes it.
        return TOLD_STRENGTH * clear_strength(episode) * (ENDS if len(suspects) > 1 else 1)
    return UNNAMED_STRENGTH * (clear_strength(episode) if episode.worst.is_complete else 1.0)


def clear_strength(episode: Episode) -> float:
    belief = max((vote.ladder.belief for vote in episode.votes), default=0.0)
    clear = 1.0 - math.exp(-(episode.worst.clarity + 4.0 * belief) / 2.0)
    known = clear * (1.0 if episode.worst.is_complete else INCOMPLETE)
    return known * (1.0 if episode.short is None else WITHOUT_USUAL)


def victims_of(fabric: Fabric, slow: Sequence[str], culprit: Culprit) -> tuple[Culprit, ...]:
    job = fabric.job
    own = {
        rank
        for rank, number in fabric.nic_of_rank.items()
        if fabric.nics[number].culprit == culprit
    }
    ranks = sorted({rank for name in slow for rank in members(job, name)} - own)
    return tuple(job.culprit(rank) for rank in ranks[:VICTIMS_MAX])


def evidence_of(
    fabric: Fabric, episode: Episode, culprit: Culprit, healthy: Sequence[str]
) -> tuple[Evidence, ...]:
    found = [transfer_evidence(fabric.job, episode)]
    clearest = max(episode.votes, key=lambda vote: vote.ladder.belief, default=None)
    if clearest is not None and clearest.ladder.belief > 0:
        found.append(ladder_evidence(fabric, episode, clearest))
    if healthy:
        found.append(vote_evidence(fabric.job, episode, len(healthy)))
    smooth, ports = episode.smooth, fabric.window.ports
    if smooth is not None and smooth.is_clear and ports.culprit(smooth.row) == culprit:
        found.append(smooth_evidence(fabric.window, episode, smooth))
    found += storage_at(fabric.window, culprit, episode.since_ns, episode.last_ns)
    if culprit == Culprit() and episode.short is None:
        found += together_evidence(fabric.job, episode.worst)
    return tuple(found)


def transfer_evidence(job: JobWindow, episode: Episode) -> Evidence:
    worst = episode.worst
    has_usual = episode.short is None
    took = f"{kind_name(worst)} took {duration(worst.slow_ns / NS)} after the last rank had come"
    other = (
        f"usually {duration(worst.usual_ns / NS)}"
        if has_usual
        else "all the time: no other time is known to compare it with"
    )
    return Evidence(
        metric=TRANSFER,
        text=f"{took}, {other}.",
        value=worst.slow_ns / NS,
        baseline=worst.usual_ns / NS if has_usual else None,
        unit="seconds",
        from_ns=episode.since_ns,
        to_ns=episode.last_ns,
        labels={
            "job": job.job,
            "communicator": worst.communicator,
            "operation": worst.operation,
            "size_bytes": str(worst.size_bytes),
        },
        samples=len(worst.slow),
    )


def kind_name(stretch: Stretch) -> str:
    size = shown_size(stretch.size_bytes)
    return f"{stretch.operation} of {size}" if size else stretch.operation


def ladder_evidence(fabric: Fabric, episode: Episode, vote: Vote) -> Evidence:
    """Which rank leaves first, which last, and by how much exits fall from one to the next."""
    job, ladder = fabric.job, vote.ladder
    ends = [rank_name(job, vote.communicator, rank) for rank in (ladder.first_out, ladder.last_out)]
    largest = int(np.argmax(ladder.share))
    edge = [
        rank_name(job, vote.communicator, int(rank[largest]))
        for rank in (ladder.source, ladder.target)
    ]
    more = ""
    if free_receivers(fabric, [vote], episode.free_rows):
        more += f" Nothing waits in front of {edge[1]}'s NIC, so that {edge[0]}'s sends too slowly."
    elif ladder.share[largest] >= ONE_EDGE_SHARE:
        more += " Only this direction is slow: its sender or its receiver may be at fault."
    if episode.short is not None:
        beside = kind_name(episode.short)
        more += f" It is the difference to {beside} beside it, so that clocks drop out."
    shape = (
        f"round the ring exits fall by {duration(ladder.step_ns / NS)} from one rank to the next "
        f"and jump from {edge[0]} to {edge[1]}."
    )
    if len(ladder.source) < RANKS_MIN:
        shape = f"what {edge[0]} sends to {edge[1]} takes longer than what comes back."
    return Evidence(
        metric="exit_ladder",
        text=(
            f"{ends[0]} leaves first and {ends[1]} last, {duration(ladder.height_ns / NS)} apart: "
            f"{shape}{more}"
        ),
        value=ladder.height_ns / NS,
        baseline=None if ladder.usual_ns is None else ladder.usual_ns / NS,
        unit="seconds",
        from_ns=episode.since_ns,
        to_ns=episode.last_ns,
        labels={"job": job.job, "communicator": vote.communicator},
        samples=ladder.samples,
    )


def rank_name(job: JobWindow, communicator: str, rank: int) -> str:
    place = job.rank_of(communicator, rank)
    if place is None:
        return f"rank {rank} of {communicator}"
    if place.rank in job.guessed and place.host:
        return place.host
    return f"rank {place.rank} ({place.host})" if place.host else f"rank {place.rank}"


def vote_evidence(job: JobWindow, episode: Episode, healthy: int) -> Evidence:
    slow = len(episode.votes)
    are = "communicator is" if slow == 1 else "communicators are"
    return Evidence(
        metric="communicator_vote",
        text=f"{slow} {are} slow, and {healthy} others over the network are as fast as ever.",
        value=float(slow),
        baseline=float(healthy),
        unit="communicators",
        from_ns=episode.since_ns,
        to_ns=episode.last_ns,
        labels={"job": job.job},
        samples=slow + healthy,
    )


def smooth_evidence(window: Window, episode: Episode, smooth: Smoothest) -> Evidence:
    return Evidence(
        metric="nic_smoothness",
        text=(
            f"{window.ports.host[smooth.row]} {window.ports.device[smooth.row]} is never much "
            f"faster than its mean (by {percentage(smooth.variation)}; every other is, by "
            f"{percentage(smooth.others)} and more): it works without a pause, and the others wait "
            "for it."
        ),
        value=smooth.variation,
        baseline=smooth.others,
        unit="ratio",
        from_ns=episode.since_ns,
        to_ns=episode.last_ns,
        labels=window.ports.labels(smooth.row),
        samples=smooth.cells,
    )


# What else it is not, and what it costs ----------------------------------------------------------


def ruled_out_of(job: JobWindow, episode: Episode) -> tuple[RuledOut, ...]:
    """Why it is not a rank that comes late; nothing, where that is not certain."""
    worst = episode.worst
    skew = duration(float(np.median(job.operations.skew_ns[worst.slow])) / NS)
    if episode.short is not None:
        height = max(vote.ladder.height_ns for vote in episode.votes)
        why = (
            f"Ranks come within {skew} and leave {duration(height / NS)} apart: coming late "
            "cannot move exits further apart than entries."
        )
        return (RuledOut(what=str(Cause.STRAGGLER), why=why),)
    late_ns = latest_own_ns(job, episode.since_ns, episode.last_ns)
    if late_ns is None:
        why = (
            "Only the time after the last rank had come is counted; "
            f"until then they waited for each other {skew}."
        )
    elif late_ns <= OWN_SHARE_MAX * worst.excess_ns:
        late = duration(max(late_ns, SHOWN_NS_MIN) / NS)
        why = (
            f"No rank comes later than its peers by more than {late} a step through what it does "
            f"outside of collectives; {kind_name(worst)} alone takes "
            f"{duration(worst.excess_ns / NS)} longer."
        )
    else:
        return ()
    return (RuledOut(what=str(Cause.STRAGGLER), why=why),)
