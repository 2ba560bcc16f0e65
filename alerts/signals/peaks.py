"""The NIC whose bytes never come faster than on average: what limits a tree of ranks. Pure.

All ranks leave a tree within a piece of its message, so that no ladder of exits leads to the slow
one, and all send as many bytes as ever. But whoever has nothing to wait for sends ahead: a rank is
a leaf of one of NCCL's two trees, and when an operation begins it sends at line rate until the
buffers of its parent are full. Then it goes at the pace of the slowest. A NIC that sends too slowly
has no such moment: its peak, over the finest time that its counter allows, is its mean while the
operation lasts. That holds for the fast sampler's peaks (`collector.bursts`) of one second each.

What is no witness: a NIC that moves more or fewer bytes than its place in the trees explains (other
traffic, an idle GPU), one whose peak is below its mean (a sampler that stands still), one sampled
more finely than the candidate was, one that is a leaf of no tree. No candidate is: a NIC at its own
line rate (it is a slower model), one that is held back by what lies behind it (pauses, missing
credits, notifications), one whose parent may be what is slow: another leaf's bytes must come there
faster, or nothing may wait in front of it (`backlog`). Where operations go round in rings, bytes do
not follow the trees, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from alerts.finding import Suspect
from alerts.signals.backlog import USUAL_FACTOR
from alerts.signals.edges import Fabric
from alerts.signals.ports import called, waited
from alerts.window.columns import Flags, Floats, Ints
from alerts.window.model import JobWindow, Ports, Window
from alerts.window.statistics import median_known
from collector.contract.figures import share as percentage
from collector.contract.units import NS
from collector.contract.verdict import Evidence

PEAK, RESOLUTION = "burst_peak_bytes_per_second:transmit", "burst_resolution_seconds:transmit"
SENT = "transmit_bytes_total"
PEAK_IN, TAKEN = "burst_peak_bytes_per_second:receive", "receive_bytes_total"
SECONDS_MIN, CELLS_MIN = 8.0, 2
"""Of the slow time, in whole cells: a peak is the largest of many operations' beginnings."""
WITNESSES_MIN = 3
"""NICs beside the candidate whose peaks say something."""
WITNESS_SHARE_MIN = 0.5
"""Of all NICs that the slow operations cross: of fewer the slow one may be among the others."""
CARRIES = (0.6, 1.6)
"""Of what a NIC's place in the trees explains it may carry so little and so much."""
FINER = 1.5
"""A counter that is read so many times more finely than the candidate's has higher peaks."""
SANE = 0.9
"""Of its mean, which a peak reaches at least."""
EVEN_MAX = 0.8
CLEARLY = 0.75
"""How far the peak of the slow one is above its mean in operations at most; and of the next one's,
both in means of their own. In the one measured run over trees (`tree_net2`, peaks over 10 ms) it
was 0.54 above, and the next NIC 3.75: a third. Simulated slow ones have none, and the next 0.7."""
LINE_MAX = 0.75
"""Of the port's rate, which the peak of a slow NIC does not reach."""
WAITED_MIN = 0.02
"""Of the time, in which a NIC that is held back may not send."""
NOTIFIED_MIN = 100.0
"""Congestion notifications a second that slow a sender down."""
TIMES_DECIDE = 0.5
"""Of all suspicion: what falls on one part by times alone. Over trees it was 0.06 to 0.2."""
PEAK_SHARE = 0.75
"""Of all suspicion that falls on the candidate: one measurement speaks for it, and that it is right
was seen in a handful of trials only."""


class Even(msgspec.Struct, frozen=True, kw_only=True):
    """The NIC whose peak is its mean, though the others' are not."""

    row: int
    above: float
    """How far its peak is above its mean in operations: 0.2 is a fifth."""
    others: float
    """The least of the witnesses'."""
    peak: float
    """Bytes a second."""
    parents: float
    """How far peaks of what its parents receive are above their means, by the least."""
    witnesses: int
    nics: int
    """All that the operations cross."""
    cells: int

    @property
    def is_clear(self) -> bool:
        is_enough = self.witnesses >= max(WITNESSES_MIN, WITNESS_SHARE_MIN * (self.nics - 1))
        is_far = 1 + self.above < CLEARLY * (1 + self.others)
        return is_enough and is_far and self.above <= EVEN_MAX

    @property
    def parents_clear(self) -> bool:
        """Whether bytes come faster to its parents than it sends them."""
        return 1 + self.above < CLEARLY * (1 + self.parents)


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """The NICs that slow operations leave by, and what the trees make of them."""

    rows: Ints
    sends: Floats
    """Edges of trees over which it sends."""
    parents: Sequence[Ints]
    """Of each, the rows of NICs that it sends to as a leaf."""


def places_of(fabric: Fabric, communicators: Collection[str]) -> Places | None:
    """None where a slow communicator's trees, or a member's NIC, are not known."""
    sends: dict[int, float] = {}
    parents: dict[int, set[int]] = {}
    for name in communicators:
        known = fabric.job.communicators.get(name)
        if known is None or not known.trees or known.is_in_network:
            return None
        row = {rank: fabric.nic_row(name, rank) for rank in range(known.ranks)}
        host = {rank: place.host for rank in row if (place := fabric.job.rank_of(name, rank))}
        if min(row.values(), default=-1) < 0 or len(host) < known.ranks:
            return None
        for tree in known.trees:
            edges = [(child, parent) for child, parent in tree.items() if parent is not None]
            if any(end not in row for edge in edges for end in edge):
                return None
            edges = [edge for edge in edges if host[edge[0]] != host[edge[1]]]
            inside = {host[parent] for _, parent in edges}
            for child, parent in edges:
                for end in (row[child], row[parent]):
                    sends[end] = sends.get(end, 0.0) + 1.0
                if host[child] not in inside:
                    parents.setdefault(row[child], set()).add(row[parent])
    rows = sorted(sends)
    return Places(
        rows=np.array(rows, dtype=np.int64),
        sends=np.array([sends[row] for row in rows]),
        parents=[np.array(sorted(parents.get(row, ())), dtype=np.int64) for row in rows],
    )


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What each of the places sent in some cells, by the place."""

    above: Floats
    """How far its peak is above its mean in operations; NaN or infinite: not known."""
    peak: Floats
    fine: Floats
    """Seconds between two readings of its counter."""
    is_known: Flags
    """Whether it carries what the trees give it, and its peak is sound."""


def evenest(
    fabric: Fabric,
    communicators: Collection[str],
    since_ns: int,
    last_ns: int,
    free_rows: Collection[int] = (),
) -> Even | None:
    """The NIC that limits these communicators' operations in this time; None: nothing decides.

    ``free_rows``: NICs' ports with nothing waiting in front of them.
    """
    ports, grid = fabric.window.ports, fabric.window.ports.grid
    first, last = max(0, grid.cell_of(since_ns) + 1), min(grid.cells, grid.cell_of(last_ns))
    is_long = last - first >= CELLS_MIN and (last - first) * grid.step_ns >= SECONDS_MIN * NS
    if PEAK not in ports.readings or not is_long:
        return None
    places, cells = places_of(fabric, communicators), slice(first, last)
    if places is None or len(places.rows) <= WITNESSES_MIN:
        return None
    busy = busy_share(fabric.job, communicators, ports, cells)
    sent = sent_by(fabric, places, busy, cells)
    if sent is None:
        return None
    found = lowest(ports, places, sent, busy, cells)
    line = float(ports.rate_bits_per_second[found.row]) / 8
    # Where the rate is not known it is NaN, and nothing is said.
    suspected = set(places.parents[int(np.searchsorted(places.rows, found.row))].tolist())
    is_told = suspected <= set(free_rows) or found.parents_clear
    is_slow = found.is_clear and is_told and found.peak <= LINE_MAX * line
    return found if is_slow and not is_held_back(ports, found.row, cells) else None


def sent_by(fabric: Fabric, places: Places, busy: float, cells: slice) -> Sent | None:
    """None where bytes do not follow the trees, or no NIC's peak is known."""
    ports = fabric.window.ports
    peak, sent = (usual_of(ports, name, places.rows, cells) for name in (PEAK, SENT))
    if busy <= 0 or not follows_trees(sent, places.sends):
        return None
    each = sent / places.sends
    part = each / median_known(each)
    fine = usual_of(ports, RESOLUTION, places.rows, cells)
    with np.errstate(invalid="ignore", divide="ignore"):
        above = peak * busy / sent - 1.0
        is_known = np.isfinite(above) & np.isfinite(fine) & (peak >= SANE * sent)
        is_known &= (part >= CARRIES[0]) & (part <= CARRIES[1])
    is_known &= np.array([len(rows) > 0 for rows in places.parents])
    return Sent(above=above, peak=peak, fine=fine, is_known=is_known) if is_known.any() else None


def lowest(ports: Ports, places: Places, sent: Sent, busy: float, cells: slice) -> Even:
    """The NIC with the lowest peak, and what speaks for it."""
    best = int(np.argmin(np.where(sent.is_known, sent.above, np.inf)))
    others = sent.is_known & (sent.fine * FINER >= sent.fine[best])
    others[best] = False
    return Even(
        row=int(places.rows[best]),
        above=max(0.0, float(sent.above[best])),
        others=float(sent.above[others].min()) if others.any() else 0.0,
        peak=float(sent.peak[best]),
        parents=received_above(ports, places.parents[best], busy, cells),
        witnesses=int(others.sum()),
        nics=len(places.rows),
        cells=cells.stop - cells.start,
    )


def received_above(ports: Ports, rows: Ints, busy: float, cells: slice) -> float:
    """How far peaks of what these receive are above their means, by the least; 0: not known."""
    peak, taken = (usual_of(ports, name, rows, cells) for name in (PEAK_IN, TAKEN))
    with np.errstate(invalid="ignore", divide="ignore"):
        above = np.where((taken > 0) & (peak >= SANE * taken), peak * busy / taken - 1.0, 0.0)
    return max(0.0, float(np.nan_to_num(above).min()))


def usual_of(ports: Ports, name: str, rows: Ints, cells: slice) -> Floats:
    """The median of a reading's cells of each row; NaN where most are not known."""
    values = ports.values(name)[rows, cells]
    is_known = np.isfinite(values).mean(axis=1) > 1 / 2
    return np.array(
        [
            median_known(one) if known else np.nan
            for one, known in zip(values, is_known, strict=True)
        ]
    )


def follows_trees(sent: Floats, sends: Floats) -> bool:
    """Whether bytes are as the trees have them, and not equal as in a ring.

    By how far NICs are from their median: it must be less than half as far by trees.
    """
    known = np.isfinite(sent) & (sent > 0)
    if not known.any() or np.ptp(sends[known]) <= 0:
        return False
    by_ring, by_tree = (np.log(one[known]) for one in (sent, sent / sends))
    apart = [float(np.abs(one - np.median(one)).sum()) for one in (by_ring, by_tree)]
    return apart[1] < apart[0] / 2


def busy_share(job: JobWindow, communicators: Collection[str], ports: Ports, cells: slice) -> float:
    """Of these cells' time, that in which operations of these communicators moved bytes."""
    edges = ports.grid.edges_ns
    begin, end = int(edges[cells.start]), int(edges[cells.stop])
    operations = job.operations
    codes = [
        code for code, name in enumerate(operations.communicators) if name in set(communicators)
    ]
    chosen: Flags = np.isin(operations.communicator, codes)
    leave = operations.last_exit_ns[chosen]
    enter = np.clip(leave - operations.transfer_ns[chosen], begin, end)
    leave = np.clip(leave, begin, end)
    order = np.argsort(enter, kind="stable")
    enter, leave = enter[order], leave[order]
    reached = np.maximum.accumulate(np.append(begin, leave))[:-1]
    busy = np.maximum(leave - np.maximum(enter, reached), 0)
    return float(busy.sum()) / max(1, end - begin)


def is_held_back(ports: Ports, row: int, cells: slice) -> bool:
    """Whether what lies behind a NIC keeps it from sending, more than before this time."""
    for values, floor in (
        (waited(ports)[row], WAITED_MIN),
        (ports.values("cnp_handled_total")[row], NOTIFIED_MIN),
    ):
        now, before = (np.nan_to_num(one) for one in (values[cells], values[: cells.start]))
        usual = float(before.mean()) if len(before) else 0.0
        if float(now.mean()) > USUAL_FACTOR * usual + floor:
            return True
    return False


def by_peaks(even: Even | None, ports: Ports, suspects: Sequence[Suspect]) -> list[Suspect]:
    """The suspects, most of the suspicion on the even one if the job's times accuse it as well.

    Where they accuse another one clearly, they stand: exits of trees differ, too, and some of
    these differences look like a ring's.
    """
    if even is None or not suspects:
        return list(suspects)
    name = ports.culprit(even.row)
    share = sum(one.share for one in suspects if one.culprit == name)
    if not share or suspects[0].share > TIMES_DECIDE:
        return list(suspects)
    own = max(share, PEAK_SHARE)
    left = (1.0 - own) / (1.0 - share) if share < 1.0 else 0.0
    changed = [
        msgspec.structs.replace(
            one, share=one.share * (own / share if one.culprit == name else left)
        )
        for one in suspects
    ]
    return sorted(changed, key=lambda one: -one.share)


def peak_evidence(window: Window, even: Even, since_ns: int, last_ns: int) -> Evidence:
    ports = window.ports
    return Evidence(
        metric=ports.metric(PEAK, even.row),
        text=(
            f"{called(ports, even.row)} never sends much faster than its mean in these operations "
            f"(by {percentage(even.above)}); each of {even.witnesses} others does, by "
            f"{percentage(even.others)} and more: they send ahead, and then wait for it."
        ),
        value=even.peak,
        unit="bytes_per_second",
        from_ns=since_ns,
        to_ns=last_ns,
        labels={**ports.labels(even.row, ports.metric(PEAK, even.row)), "direction": "transmit"},
        samples=even.cells,
    )
