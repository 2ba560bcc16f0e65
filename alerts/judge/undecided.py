"""What an unsure verdict needs: its suspects, and the one measurement that decides. Pure.

Naming a measurement changes no confidence: only what it shows can, in a later window. Which kinds
there are, and who can serve them, is in `collector.contract.measurement`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alerts.finding import Finding, Suspect
from alerts.judge.attendance import Doubt
from alerts.judge.places import is_same, port_row, with_all_names
from alerts.judge.words import DECIDED_MIN, UNSURE_MAX, capital, listed, short_name
from alerts.signals.peaks import PEAK
from alerts.signals.ras import words_of
from alerts.window.model import JobWindow, Window
from collector.contract.cause_facts import Family, Layer
from collector.contract.figures import shown
from collector.contract.verdict import (
    Culprit,
    MeasurementKind,
    Suspected,
    Undecided,
    Verdict,
)

SUSPECTS_MAX = 3
"""A measurement at more places than a person compares at a glance decides nothing for them."""
PAIR = 2
SUSPECT_SHARE_MIN = 0.3
"""Of the first one's share: a part with less does not explain the verdict as well as the first."""
RANKS_NAMED_MAX = 3


def undecided_of(
    window: Window, verdict: Verdict, findings: Sequence[Finding], doubt: Doubt | None
) -> Undecided | None:
    """None where the verdict is decided. ``findings``: its root, and the symptoms it explains."""
    is_unnamed = not names_a_part(verdict.culprit)
    if verdict.confidence >= DECIDED_MIN and not is_unnamed:
        return None
    if doubt is not None and verdict.confidence <= UNSURE_MAX:
        return of_unread(verdict, doubt)
    suspects = suspects_in(window, verdict, findings)
    family, layer = verdict.cause.facts.family, verdict.cause.facts.layer
    job = next((one for one in window.jobs if one.job in verdict.jobs), None)
    if family is Family.STUCK:
        return of_standstill(window, verdict, suspects, job)
    if family is Family.RANK and suspects:
        return of_late_rank(suspects, job)
    if layer is not Layer.NETWORK:
        return None
    return of_transfer(window, suspects, job) if suspects else of_many(window, job)


def names_a_part(culprit: Culprit) -> bool:
    return bool(culprit.host or culprit.switch or culprit.storage) or culprit.rank is not None


def suspects_in(
    window: Window, verdict: Verdict, findings: Sequence[Finding]
) -> list[tuple[Culprit, float]]:
    """The accused, and those that a job's own times accuse nearly as much; the likeliest first."""
    known = [one for finding in findings for one in finding.suspects]
    best = max((one.share for one in known), default=0.0)
    alike = [one for one in known if one.share >= SUSPECT_SHARE_MIN * best and one.share > 0]
    found: list[tuple[Culprit, float]] = []
    if names_a_part(verdict.culprit):
        own = [one.share for one in known if is_same(window.ports, one.culprit, verdict.culprit)]
        found.append((verdict.culprit, max(own, default=verdict.confidence)))
    elif len(alike) > SUSPECTS_MAX:
        return []  # one among many alike: no two or three of them are more suspect than the rest
    for one in sorted(alike, key=by_share):
        if not any(is_same(window.ports, one.culprit, other) for other, _ in found):
            found.append((with_all_names(window, one.culprit), one.share))
    return found[:SUSPECTS_MAX]


def by_share(one: Suspect) -> tuple[float, str]:
    return -one.share, repr(one.culprit)


# One kind each -----------------------------------------------------------------------------------


def of_unread(verdict: Verdict, doubt: Doubt) -> Undecided:
    """The files of ranks that were not read decide before anything else does."""
    suspects: tuple[Suspected, ...] = ()
    if names_a_part(verdict.culprit):
        accused = Suspected(
            culprit=verdict.culprit, share=verdict.confidence, name=short_name(verdict.culprit)
        )
        suspects = (accused,)
    return Undecided(
        kind=MeasurementKind.RANK_FILES,
        text=f"Collect {doubt.collect} and diagnose again.",
        suspects=suspects,
        otherwise="If they show nothing of their own, what was read stands.",
        collect=MeasurementKind.RANK_FILES.facts.by_hand,
    )


def of_standstill(
    window: Window,
    verdict: Verdict,
    suspects: Sequence[tuple[Culprit, float]],
    job: JobWindow | None,
) -> Undecided | None:
    """Who waits for whom: the state of NCCL, or the ranks' own recorders where that was read.

    Of files that lie in a folder the recorders come first: no process of the job can be asked.
    """
    if verdict.cause.facts.ends_jobs or verdict.until_ns is not None:
        return None  # it is over: no rank waits any more
    ranks = [one for one, _ in suspects if one.rank is not None][:RANKS_NAMED_MAX]
    whom = f"rank {ranks[0].rank}" if len(ranks) == 1 else "the ranks"
    if job is not None and (job.dumped or window.is_live) and not words_of(window, job):
        at = witnesses(job, ranks) or ranks
        kind = MeasurementKind.RAS_STATUS
        text = f"Read NCCL's RAS status of {job_words(job)}: it names processes that do not answer."
        proof = "It is {name} if its process is named as dead or unresponsive."
        dumps = by_hand(MeasurementKind.FLIGHT_RECORDER, ranks)
        otherwise = f"If it names none, or RAS is off, take Flight Recorder dumps: {dumps}."
    else:
        at = ranks
        kind = MeasurementKind.FLIGHT_RECORDER
        text = f"Take Flight Recorder dumps of all ranks of {job_words(job)}, {whom} first."
        proof = "It is {name} if its dump lacks the operation in which the others wait."
        otherwise = (
            "If all ranks wait in the same operation, none is at fault: look at the network."
        )
    return Undecided(
        kind=kind,
        text=text,
        suspects=with_proofs(suspects, proof),
        at=tuple(at),
        otherwise=otherwise,
        collect=by_hand(kind, ranks),
    )


def witnesses(job: JobWindow, suspects: Sequence[Culprit]) -> list[Culprit]:
    """Two ranks on hosts of no suspect: any process answers for the whole job.

    Not of the first two hosts, if there are others: those ask by themselves, and were not heard.
    """
    hosts = {one.host for one in suspects}
    found: dict[str, Culprit] = {}
    for number, rank in sorted(job.ranks.items()):
        if rank.host and rank.host not in hosts:
            found.setdefault(rank.host, job.culprit(number))
    chosen = list(found.values())
    return chosen[PAIR : 2 * PAIR] or chosen[:PAIR]


def of_late_rank(suspects: Sequence[tuple[Culprit, float]], job: JobWindow | None) -> Undecided:
    first = suspects[0][0]
    peer = yardstick(job, [one for one, _ in suspects])
    beside = (
        f" and of {short_name(peer)} beside it" if peer is not None else " and of one of its peers"
    )
    return Undecided(
        kind=MeasurementKind.PROFILE,
        text=f"Take a profiler trace of a few steps of {short_name(first)}{beside}.",
        suspects=with_proofs(
            suspects, "It is {name} if its kernels, or the gaps between them, take longer."
        ),
        at=(first, *([peer] if peer is not None else [])),
        otherwise="If both compute alike, the lateness comes from where ranks wait for each other.",
        collect=MeasurementKind.PROFILE.facts.by_hand,
    )


def of_transfer(
    window: Window, suspects: Sequence[tuple[Culprit, float]], job: JobWindow | None
) -> Undecided:
    """A capture where two NICs are suspected and none was taken yet; else a probe."""
    nics = [one for one, _ in suspects if one.device and one.host]
    peer = yardstick(job, nics)
    may_decide = len(nics) == len(suspects) >= PAIR and peer is not None
    if may_decide and peer is not None and not are_captured(window, nics):
        return Undecided(
            kind=MeasurementKind.BURST_CAPTURE,
            text=(
                f"Capture the byte counters of {listed([short_name(one) for one in nics])} every "
                f"millisecond for some seconds, and those of {short_name(peer)} as the yardstick."
            ),
            suspects=with_proofs(
                suspects,
                "It is {name} if bytes pass it evenly while they pass the others in bursts.",
            ),
            at=(*nics, peer),
            otherwise="If bytes pass the suspects alike, only a probe between two hosts decides.",
            collect=MeasurementKind.BURST_CAPTURE.facts.by_hand,
        )
    hosts = list(dict.fromkeys(shown(one.host) for one, _ in suspects if one.host))
    third = f"{shown(peer.host)}" if peer is not None and peer.host else "a healthy host"
    ends = f"between each of {listed(hosts)} and {third}" if hosts else "over the named link"
    return Undecided(
        kind=MeasurementKind.PROBE,
        text=f"Measure the bandwidth {ends}, both ways.",
        suspects=with_proofs(
            suspects, "It is {name} if it is slow with the third host too, and the others are not."
        ),
        at=(*(one for one, _ in suspects), *([peer] if peer is not None else [])),
        otherwise=(
            "If each is fast with the third host, what lies between the suspects is at fault."
        ),
        collect=MeasurementKind.PROBE.facts.by_hand,
    )


def of_many(window: Window, job: JobWindow | None) -> Undecided:
    """Slow bytes, and no two or three places that are more suspect than the rest."""
    text = "Measure the bandwidth between pairs of the job's hosts, both ways."
    has_trees = job is not None and any(one.trees for one in job.communicators.values())
    if has_trees and PEAK not in window.ports.readings:
        text += (
            " If it reduces over trees, the agent's fast sampler (source `bursts`) at its NICs"
            " decides: a NIC that sends too slowly is the one whose peak is its mean."
        )
    return Undecided(
        kind=MeasurementKind.PROBE,
        text=text,
        otherwise=(
            "The host that is in each slow pair is the culprit; if no pair is slow, it is what all "
            "of them share."
        ),
        collect=MeasurementKind.PROBE.facts.by_hand,
    )


# Parts -------------------------------------------------------------------------------------------


def with_proofs(suspects: Sequence[tuple[Culprit, float]], proof: str) -> tuple[Suspected, ...]:
    return tuple(
        Suspected(
            culprit=one,
            share=round(share, 3),
            name=short_name(one),
            # A name comes from outside: it is put in, and never read as a template.
            proof=capital(proof.replace("{name}", short_name(one))),
        )
        for one, share in suspects
    )


def by_hand(kind: MeasurementKind, ranks: Sequence[Culprit]) -> str:
    rank = ranks[0].rank if ranks else None
    return kind.facts.by_hand.format(rank="RANK" if rank is None else rank)


def job_words(job: JobWindow | None) -> str:
    return f"job {shown(job.job)}" if job is not None else "the job"


def yardstick(job: JobWindow | None, suspects: Sequence[Culprit]) -> Culprit | None:
    """A rank of the same job on a host of no suspect, by the NIC of the same name if it has it."""
    if job is None or not suspects:
        return None
    hosts = {one.host for one in suspects}
    device = suspects[0].device
    others = [one for _, one in sorted(job.ranks.items()) if one.host and one.host not in hosts]
    if not others:
        return None
    chosen = next((one for one in others if device in one.devices), others[0])
    own = device if device in chosen.devices else next(iter(chosen.devices), "")
    return Culprit(job=job.job, rank=chosen.rank, host=chosen.host, device=own, port=chosen.port)


def are_captured(window: Window, nics: Sequence[Culprit]) -> bool:
    """Whether this window has a capture of all of them already: another shows the same."""
    if window.captured is None:
        return False
    rows = [port_row(window.ports, one) for one in nics]
    return bool(np.isin([-1 if row is None else row for row in rows], window.captured.row).all())
