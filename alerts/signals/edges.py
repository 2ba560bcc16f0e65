"""What lies on a job's slow edges: a weighted vote over NICs, cables and switches. Pure.

Every place that bytes between ring neighbours cross is a candidate: the sending side of a NIC, the
receiving side of one, a NIC as a whole, a port between switches, a switch. Each slow communicator
votes for those that its slow edges cross (`alerts.signals.ladder` finds those edges), by how much
of the delay they explain; it votes harder the slower it is. Each edge that is as fast as ever
exonerates all that lies on it. One place is looked for: several at once are seldom, and a second
fault shows when the first is gone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from alerts.finding import Suspect
from alerts.signals.ladder import Ladder, ring_orders
from alerts.window.columns import Floats, Ints
from alerts.window.model import JobWindow, Rank, Window
from collector.contract.verdict import Culprit

SHARPNESS = 3.0
"""How much harder a place is believed that explains all of a clear ladder than one that explains a
part: half of the delay is an eighth and less of the belief."""
UNEXPLAINED = 0.02
"""The chance that a slow communicator has nothing to do with the culprit."""
INNOCENT = 0.2
"""The chance that an edge over the culprit is as fast as ever."""
HEALTHY_SHARE = 0.08
"""An edge with a smaller share of a ladder is as fast as the others."""
EDGES_MAX = 128
"""Edges of one communicator, those with the largest shares: the others are healthy."""
ONE_EDGE_SHARE = 0.9
"""Of a ladder, from which on one edge alone is slow: of slow NICs the larger one had up to 0.83."""
CLEAR_BELIEF = 0.6
"""Of a ladder that may show it."""
FREE = 0.2
"""The chance that a NIC receives too slowly, and nothing that waits before it is counted."""
SUSPECTS_MAX = 64
SUSPECT_SHARE_MIN = 1e-3
"""A suspect with less is left out, unless it is a NIC of a slow communicator: a reader with
counters wants to compare those."""
NAMED_SHARE_MIN = 0.4
"""No culprit is named with a smaller share of all suspicion than this: the ends of a slow edge on
one leaf share nearly all of it. Between leaves a NIC that stands out of many ways has less than a
third; of four so named, in trials of unseen seeds, by transfers 1.3 to 1.6 times as long, all were
innocent (the queue was at the other end, or a spine lost packets)."""
PLAIN_RATIO, PLAIN_SHARE_MIN = 3.0, 0.15
"""The same where transfers take so many times as long: what slows a flow that much on its way shows
at switches (loss, pauses, a lower rate), and a NIC that sends slowly shows nowhere."""
LEAD, ENDS = 1.5, 2
"""Nor where more than two have nearly the first one's share: below so many times less is nearly."""

SHARE_DIGITS = 2
"""Suspects that differ by less are alike, and stand in the order of their names."""

SENDING, RECEIVING, NIC, PORT, SWITCH = "sending", "receiving", "nic", "port", "switch"
PRIORS = {NIC: 1.0, SENDING: 0.5, RECEIVING: 0.5, PORT: 0.5, SWITCH: 0.1}
"""How often such places are at fault before anything is known: NICs, slots, modules and cables
fail far more often than whole switches do."""

Place = tuple[str, str, int]
"""One of the words above; the switch's name for switches; the row, or the number of a NIC."""


class Vote(msgspec.Struct, frozen=True, kw_only=True):
    """The vote of one slow communicator."""

    communicator: str
    ladder: Ladder
    weight: float
    """0 to 1: 1 for the slowest."""


class Nic(msgspec.Struct, frozen=True, kw_only=True):
    """A NIC that ranks send by, as far as it is known: its port, its device, or only a rank."""

    culprit: Culprit
    row: int
    """Of the window's ports; -1: not known."""


class Fabric(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """The places of a job in a window."""

    window: Window
    job: JobWindow
    nics: list[Nic]
    nic_of_rank: Mapping[int, int]
    nic_of_row: Mapping[int, int]
    edge_of: Mapping[tuple[str, int, int], int]
    """Rows of the job's paths by communicator, source and target."""

    def crossing(self, communicator: str, source: int, target: int) -> Mapping[Place, float]:
        """What lies between two neighbours. Nothing, if they are on one host."""
        edge = self.edge_of.get((communicator, source, target))
        if edge is not None and self.job.paths is not None:
            places = self._on_path(edge, *self.hosts_of(communicator, source, target))
            if places:
                return places
        return self._by_ranks(communicator, source, target)

    def hosts_of(self, communicator: str, source: int, target: int) -> tuple[str, str]:
        """Of both ends; empty where not known."""
        sender, receiver = (self.job.rank_of(communicator, rank) for rank in (source, target))
        return sender.host if sender else "", receiver.host if receiver else ""

    def nic_row(self, communicator: str, rank: int) -> int:
        """The port of a communicator's rank, as a row of the window's; -1: not known."""
        place = self.job.rank_of(communicator, rank)
        number = self.nic_of_rank.get(place.rank, -1) if place is not None else -1
        return self.nics[number].row if number >= 0 else -1

    def _on_path(self, edge: int, source: str, target: str) -> Mapping[Place, float]:
        """By the fabric's paths: bytes leave the source's NIC, and reach the target's."""
        paths, ports = self.job.paths, self.window.ports
        assert paths is not None
        found: dict[Place, float] = {}
        for place in range(int(paths.start[edge]), int(paths.start[edge + 1])):
            row, share = int(paths.port[place]), float(paths.share[place])
            far = int(ports.other_end[row])
            keys: list[Place] = []
            if not ports.is_switch[row]:
                if ports.host[row] == source:
                    keys = [(SENDING, "", self.nic_of_row.get(row, -1))]
            elif far >= 0 and not ports.is_switch[far]:
                if ports.host[far] == target:
                    keys = [(RECEIVING, "", self.nic_of_row.get(far, -1))]
            else:
                # Of a switch only its ports to other switches stand for it as a whole.
                keys = [(PORT, "", row), (SWITCH, ports.host[row], 0)]
            for key in keys:
                found[key] = min(1.0, found.get(key, 0.0) + share)
        return with_whole_nics(found)

    def _by_ranks(self, communicator: str, source: int, target: int) -> Mapping[Place, float]:
        """Where no path is known: out of one rank's NIC and into the other's."""
        ends = [self.job.rank_of(communicator, rank) for rank in (source, target)]
        if ends[0] is not None and ends[1] is not None and is_one_host(ends[0], ends[1]):
            return {}
        found: dict[Place, float] = {}
        for word, end in zip((SENDING, RECEIVING), ends, strict=True):
            if end is not None and end.rank in self.nic_of_rank:
                found[word, "", self.nic_of_rank[end.rank]] = 1.0
        return with_whole_nics(found)

    def culprit(self, place: Place) -> Culprit:
        """A place by its names; both sides of a NIC are the NIC."""
        word, name, number = place
        if word == SWITCH:
            return Culprit(switch=name)
        if word == PORT:
            return self.window.ports.culprit(number)
        return self.nics[number].culprit


def is_one_host(one: Rank, other: Rank) -> bool:
    return bool(one.host) and one.host == other.host


def with_whole_nics(places: dict[Place, float]) -> Mapping[Place, float]:
    """The same, and each NIC as a whole beside its sides; sides without a NIC are left out."""
    known = {key: share for key, share in places.items() if key[2] >= 0}
    for (word, _, number), share in list(known.items()):
        if word in {SENDING, RECEIVING}:
            whole = (NIC, "", number)
            known[whole] = max(known.get(whole, 0.0), share)
    return known


def fabric_of(window: Window, job: JobWindow) -> Fabric:
    """The places of a job. A rank with several NICs is known by its first one."""
    nics: list[Nic] = []
    nic_of_rank: dict[int, int] = {}
    nic_of_row: dict[int, int] = {}
    by_name: dict[tuple[str, str, str], int] = {}
    for number in sorted(job.ranks):
        rank = job.ranks[number]
        rows = window.rows_of_rank(rank)
        device = rank.devices[0] if rank.devices else ""
        if rows:
            key = ("row", str(rows[0]), "")
            culprit = window.ports.culprit(rows[0])
        elif rank.host and device:
            key = (rank.host, device, rank.port)
            culprit = Culprit(host=rank.host, device=device, port=rank.port)
        elif rank.host and rank.gpu is None:
            key = (rank.host, "", "")
            culprit = Culprit(host=rank.host)
        else:
            key = ("", "", str(number))
            culprit = job.culprit(number)
        if key not in by_name:
            by_name[key] = len(nics)
            nics.append(Nic(culprit=culprit, row=rows[0] if rows else -1))
        nic_of_rank[number] = by_name[key]
        for row in rows:
            if row not in nic_of_row:
                nic_of_row[row] = by_name[key] if row == rows[0] else len(nics)
                if row != rows[0]:
                    nics.append(Nic(culprit=window.ports.culprit(row), row=row))
    return Fabric(
        window=window,
        job=job,
        nics=nics,
        nic_of_rank=nic_of_rank,
        nic_of_row=nic_of_row,
        edge_of=edges_by_name(job),
    )


def edges_by_name(job: JobWindow) -> dict[tuple[str, int, int], int]:
    if job.paths is None:
        return {}
    ends = zip(
        job.paths.communicator, job.paths.source.tolist(), job.paths.target.tolist(), strict=True
    )
    return {key: row for row, key in enumerate(ends)}


def crosses_network(job: JobWindow, communicator: str) -> bool:
    known = job.communicators.get(communicator)
    if known is None:
        return True
    hosts = [job.ranks[rank].host for rank in known.job_rank.values() if rank in job.ranks]
    return len(hosts) < known.ranks or "" in hosts or len(set(hosts)) > 1


# Voting ------------------------------------------------------------------------------------------


def suspects_of(
    fabric: Fabric, votes: Sequence[Vote], healthy: Iterable[str], free_rows: Collection[int] = ()
) -> list[Suspect]:
    """The suspects, the most likely first. ``free_rows``: NICs' ports with no queue before them."""
    belief: dict[Place, list[float]] = {}
    for number, vote in enumerate(votes):
        for place, explained in explained_by(fabric, vote).items():
            belief.setdefault(place, [0.0] * len(votes))[number] = explained
    if not belief:
        return []
    places = sorted(belief)
    weight = np.array([vote.weight for vote in votes])
    explained_share = np.array([belief[place] for place in places])
    score = (np.log(explained_share + UNEXPLAINED) * weight).sum(axis=1)
    score += np.log([PRIORS[place[0]] for place in places])
    score += exonerated(fabric, places, votes, healthy)
    free = free_receivers(fabric, votes, free_rows)
    is_free = [word in {RECEIVING, NIC} and number in free for word, _, number in places]
    score += np.where(is_free, math.log(FREE), 0.0)
    shares = np.exp(score - score.max())
    return folded(fabric, places, shares / shares.sum(), own_nics(fabric, votes))


def free_receivers(fabric: Fabric, votes: Sequence[Vote], rows: Collection[int]) -> set[int]:
    """NICs behind one slow edge without a queue before them; with two, they send slowly, too."""
    ends: tuple[set[int], set[int]] = (set(), set())
    for vote in votes:
        ladder = vote.ladder
        edge = int(np.argmax(ladder.share))
        if ladder.belief < CLEAR_BELIEF or ladder.share[edge] < ONE_EDGE_SHARE:
            continue
        for rank, found in zip((ladder.source[edge], ladder.target[edge]), ends, strict=True):
            place = fabric.job.rank_of(vote.communicator, int(rank))
            if place is not None and place.rank in fabric.nic_of_rank:
                found.add(fabric.nic_of_rank[place.rank])
    sources, targets = ends
    return {number for number in targets - sources if fabric.nics[number].row in rows}


def receiver_of(fabric: Fabric, votes: Sequence[Vote]) -> Culprit | None:
    """The NIC that the slowest edge of all leads to; None where no ladder shows one clearly."""
    clearest = max(votes, key=lambda vote: vote.weight * vote.ladder.belief, default=None)
    if clearest is None or clearest.ladder.belief < CLEAR_BELIEF:
        return None
    target = int(clearest.ladder.target[int(np.argmax(clearest.ladder.share))])
    place = fabric.job.rank_of(clearest.communicator, target)
    number = fabric.nic_of_rank.get(place.rank, -1) if place is not None else -1
    return fabric.nics[number].culprit if number >= 0 else None


def explained_by(fabric: Fabric, vote: Vote) -> dict[Place, float]:
    """How much of a slow communicator's delay each place explains, 0 to 1."""
    ladder = vote.ladder
    share = blended(ladder)
    chosen = around_slow_edges(share)
    total: dict[Place, float] = {}
    most: dict[Place, float] = {}
    for edge in chosen.tolist():
        ends = int(ladder.source[edge]), int(ladder.target[edge])
        for place, crossing in fabric.crossing(vote.communicator, *ends).items():
            total[place] = total.get(place, 0.0) + float(share[edge]) * crossing
            if share[edge] > 0:
                most[place] = max(most.get(place, 0.0), crossing)
    sharpness = 1.0 + (SHARPNESS - 1.0) * ladder.belief
    # Which of several equal ways a flow takes is chance, separate from what the ladder shows.
    return {
        place: most[place] * min(1.0, total[place] / most[place]) ** sharpness for place in most
    }


def around_slow_edges(share: Floats) -> Ints:
    """The edges of a ring that are looked at: the slow ones and those beside them first."""
    near = np.maximum(share, np.maximum(np.roll(share, 1), np.roll(share, -1)))
    chosen: Ints = np.lexsort((-share, -near))[:EDGES_MAX].astype(np.int64)
    return chosen


def blended(ladder: Ladder) -> Floats:
    """Shares of the edges as far as the ladder is believed, and equal ones for the rest."""
    blend: Floats = ladder.belief * ladder.share + (1.0 - ladder.belief) / len(ladder.share)
    return blend


def exonerated(
    fabric: Fabric, places: Sequence[Place], votes: Sequence[Vote], healthy: Iterable[str]
) -> Floats:
    """How much edges that are as fast as ever exonerate each place (logarithms)."""
    score_of: dict[Place, float] = dict.fromkeys(places, 0.0)
    paths = fabric.job.paths
    trust_of_edge = np.zeros(len(paths.source) if paths is not None else 0)
    for name, ends, trust in healthy_edges(fabric.job, votes, healthy):
        edge = fabric.edge_of.get((name, *ends))
        if edge is not None:
            trust_of_edge[edge] += trust
            continue
        for place, share in fabric.crossing(name, *ends).items():
            if place in score_of:
                score_of[place] += trust * math.log(1.0 - share * (1.0 - INNOCENT))
    if trust_of_edge.any():
        for place, score in exonerated_by_paths(fabric, trust_of_edge).items():
            if place in score_of:
                score_of[place] += score
    return np.array([score_of[place] for place in places])


def exonerated_by_paths(fabric: Fabric, trust: Floats) -> dict[Place, float]:
    """The same for edges whose ways are known, all at once: a large job has ten thousand.

    ``trust``: for each edge of the paths, how sure it is that it is as fast as ever.
    """
    paths, ports = fabric.job.paths, fabric.window.ports
    assert paths is not None
    edge = np.repeat(np.arange(len(trust)), np.diff(paths.start))
    kept = np.flatnonzero(trust[edge] > 0)
    edge, row, share = edge[kept], paths.port[kept], paths.share[kept]
    scores = trust[edge] * np.log(1.0 - np.minimum(share, 1.0) * (1.0 - INNOCENT))
    host = np.array([*ports.host, ""], dtype=object)
    ends = np.array(
        [
            fabric.hosts_of(paths.communicator[one], int(paths.source[one]), int(paths.target[one]))
            if trust[one] > 0
            else ("", "")
            for one in range(len(trust))
        ],
        dtype=object,
    ).reshape(-1, 2)
    far = ports.other_end[row]
    is_switch = ports.is_switch[row]
    to_nic = is_switch & (far >= 0) & ~ports.is_switch[far]
    leaves = ~is_switch & (host[row] == ends[edge, 0])
    reaches = to_nic & (host[far] == ends[edge, 1])
    between = is_switch & ~to_nic
    found: dict[Place, float] = {}

    def add(key: Place, score: float) -> None:
        found[key] = found.get(key, 0.0) + score

    for word, chosen, where in ((SENDING, leaves, row), (RECEIVING, reaches, far)):
        total = np.bincount(where[chosen], scores[chosen], len(ports))
        for one in np.unique(where[chosen]).tolist():
            number = fabric.nic_of_row.get(one, -1)
            add((word, "", number), float(total[one]))
            add((NIC, "", number), float(total[one]))
    total = np.bincount(row[between], scores[between], len(ports))
    for one in np.unique(row[between]).tolist():
        add((PORT, "", one), float(total[one]))
        add((SWITCH, ports.host[one], 0), float(total[one]))
    return found


def healthy_edges(
    job: JobWindow, votes: Sequence[Vote], healthy: Iterable[str]
) -> Iterable[tuple[str, tuple[int, int], float]]:
    """Edges that are as fast as ever, and how sure that is."""
    for vote in votes:
        ladder = vote.ladder
        chosen = around_slow_edges(ladder.share)
        for edge in chosen[ladder.share[chosen] < HEALTHY_SHARE].tolist():
            ends = int(ladder.source[edge]), int(ladder.target[edge])
            yield vote.communicator, ends, ladder.belief * vote.weight
    for name in sorted(healthy):
        known = job.communicators.get(name)
        if known is not None and known.is_one_way:
            yield name, (0, 1), 1.0
            continue
        for order in ring_orders(known, known.ranks if known is not None else 0)[:1]:
            for source, target in zip(order.tolist(), np.roll(order, -1).tolist(), strict=True):
                yield name, (source, target), 1.0


def own_nics(fabric: Fabric, votes: Sequence[Vote]) -> set[int]:
    found: set[int] = set()
    for vote in votes:
        for rank in vote.ladder.source.tolist():
            place = fabric.job.rank_of(vote.communicator, rank)
            if place is not None and place.rank in fabric.nic_of_rank:
                found.add(fabric.nic_of_rank[place.rank])
    return found


def folded(fabric: Fabric, places: Sequence[Place], shares: Floats, own: set[int]) -> list[Suspect]:
    """Places as suspects: what a technician inspects as one part counts together."""
    total: dict[str, float] = {}
    culprits: dict[str, Culprit] = {}
    for place, share in zip(places, shares.tolist(), strict=True):
        key = name_of(fabric, place)
        culprits.setdefault(key, fabric.culprit(place))
        total[key] = total.get(key, 0.0) + share
    kept = {name_of(fabric, (NIC, "", number)) for number in own}
    order = sorted(total, key=lambda key: (-round(total[key], SHARE_DIGITS), key))
    chosen = [key for key in order if total[key] >= SUSPECT_SHARE_MIN or key in kept]
    return [Suspect(culprit=culprits[key], share=total[key]) for key in chosen[:SUSPECTS_MAX]]


def stands_out(suspects: Sequence[Suspect], ratio: float) -> bool:
    """Whether the first is more than one among many alike; the two ends of an edge may be.

    ``ratio``: how many times as long as usual transfers take.
    """
    alike = sum(1 for one in suspects if LEAD * one.share >= suspects[0].share)
    least = PLAIN_SHARE_MIN if ratio >= PLAIN_RATIO else NAMED_SHARE_MIN
    return suspects[0].share >= least and alike <= ENDS


def name_of(fabric: Fabric, place: Place) -> str:
    """One key for all that a technician inspects as one part."""
    word, name, number = place
    if word == SWITCH:
        return f"switch {name}"
    if word == PORT:
        far = int(fabric.window.ports.other_end[number])
        return f"cable {number if far < 0 else min(number, far):09d}"
    return f"nic {number:09d}"
