"""A job's traffic pattern in a stretch of time: read, modelled, and checked against counters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from typing import NamedTuple

import msgspec
import numpy as np

from alerts.traffic.flows import Traffic, summed, traffic_of
from alerts.traffic.matrix import (
    Check,
    Matrix,
    check_of,
    handed_up,
    matrix_of,
    misfit,
    sent_and_received,
)
from alerts.traffic.places import By, Places, places_of
from alerts.traffic.rhythm import Rhythm, Sent, rhythm_of, sent_of
from alerts.window.columns import Flags, Floats
from alerts.window.model import Communicator, Rank
from alerts.window.split import members_in
from alerts.window.steps import Bounds, infer_bounds, to_work
from api.base.threads import Threads
from api.data.inventory.repository import Inventory
from api.data.store.store import Store
from api.fabric.model import Topology
from api.jobs.correlate.places import job_ranks_of
from api.jobs.correlate.traffic import (
    Found,
    Read,
    find_records,
    read_counted,
    read_some,
    read_traffic,
)
from api.jobs.correlate.window import JobRanks
from api.jobs.correlate.windows import read_communicators, to_rank
from collector.contract.units import NS

JOBS_MAX = 1_000
"""Jobs that are searched for others on the same NICs; the first by name."""
BETTER_BY = 0.02
"""By how much the share of misplaced bytes must fall before ring or tree are chosen otherwise than
by size: counters of a healthy job are within 1 % of the model."""


class HostRhythm(msgspec.Struct, frozen=True, kw_only=True):
    """The rhythm of one host's rank."""

    host: str
    rank: int
    rhythm: Rhythm


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """A job's traffic in a stretch of time: modelled and counted."""

    read: Read
    places: Places
    traffic: Traffic
    modelled: Floats
    """[NICs] sent bytes."""
    compared: Floats
    """[NICs] counted as sent; NaN where the counter was not read or another job uses the NIC."""
    is_shared: Flags
    check: Check | None
    rhythm: Rhythm
    rhythm_from_ns: int | None
    hosts: list[HostRhythm]

    def matrix(self, by: By) -> Matrix:
        return matrix_of(self.traffic.flows, self.places, by)

    def sent(self, over: By, *, is_counted: bool) -> Floats:
        names = self.places.names(over)
        if is_counted and over is By.NIC:
            return self.compared
        if is_counted and over is By.RAIL:
            rail = self.places.rail_of_nic
            known = rail >= 0
            return summed(rail[known].astype(np.int64), self.compared[known], len(names))
        return sent_and_received(self.matrix(over).cells, len(names))[0]


class Counted(NamedTuple):
    """What a job's NICs counted."""

    places: Places
    is_shared: Flags
    compared: Floats
    """See `Pattern.compared`."""


def read_pattern(
    store: Store,
    inventory: Inventory,
    job: str,
    span_ns: tuple[int, int],
    topology: Callable[[], Topology],
) -> Pattern:
    job_rank = job_ranks_of(inventory, job)
    ranks = {place.rank: to_rank(place) for place in inventory.jobs.ranks(job)}
    with Threads(2) as beside:
        # Cables, counters, and arithmetic over a few ranks' records, while the engine adds up those
        # of all. What this is an errand of holds for all threads.
        counting = beside.submit(
            copy_context().run, read_nics, store, inventory, job, ranks, span_ns, topology
        )
        found = find_records(store, job_rank, *span_ns)
        rhythms = beside.submit(
            copy_context().run, read_rhythm, store, job_rank, ranks, found, span_ns
        )
        read = read_traffic(store, found)
        communicators = read_communicators(inventory, job, job_rank, ranks)
        places, shared, compared = counting.result()
        traffic, modelled = best_model(read, communicators, places, compared)
        rhythm, from_ns, hosts = rhythms.result()
    return Pattern(
        read=read,
        places=places,
        traffic=traffic,
        modelled=modelled,
        compared=compared,
        is_shared=shared,
        check=check_of(modelled, compared),
        rhythm=rhythm,
        rhythm_from_ns=from_ns,
        hosts=hosts,
    )


def read_nics(
    store: Store,
    inventory: Inventory,
    job: str,
    ranks: Mapping[int, Rank],
    span_ns: tuple[int, int],
    topology: Callable[[], Topology],
) -> Counted:
    rails, netdevs = nics_in(topology(), {rank.host for rank in ranks.values()})
    places = places_of(ranks, rails)
    counted = read_counted(store, places.nics, netdevs, *span_ns)
    shared = shared_nics(inventory, job, places.nics, span_ns)
    return Counted(places, shared, np.where(shared, np.nan, counted))


def nics_in(
    topology: Topology, hosts: set[str]
) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], tuple[str, str]]]:
    rails: dict[tuple[str, str], int] = {}
    netdevs: dict[tuple[str, str], tuple[str, str]] = {}
    for port in topology.ports.values():
        if port.id.host in hosts:
            nic = port.id.host, port.id.device
            if port.rail is not None:
                rails[nic] = port.rail
            if port.netdev:
                netdevs[port.id.host, port.netdev] = nic
    return rails, netdevs


def shared_nics(
    inventory: Inventory, job: str, nics: Sequence[tuple[str, str]], span_ns: tuple[int, int]
) -> Flags:
    """NICs that another job used too. A rank whose NIC is not known may use any of its host's."""
    hosts = {host for host, _ in nics}
    used: set[tuple[str, str]] = set()
    for other in inventory.jobs.page(limit=JOBS_MAX):
        began, ended = other.first_seen.timestamp() * NS, other.last_seen.timestamp() * NS
        if other.job == job or began > span_ns[1] or ended < span_ns[0]:
            continue
        if hosts.isdisjoint(inventory.jobs.hosts(other.job)):
            continue
        for place in inventory.jobs.ranks(other.job):
            rank = to_rank(place)
            used.update((rank.host, device) for device in rank.devices or ("",))
    return np.array([nic in used or (nic[0], "") in used for nic in nics], dtype=bool)


def best_model(
    read: Read, communicators: Mapping[str, Communicator], places: Places, counted: Floats
) -> tuple[Traffic, Floats]:
    """The traffic and what each NIC sent by it; ring or tree by size, unless counters disagree.

    Where records do not name the algorithm, the user may have set it (NCCL_ALGO), or NCCL's tuning
    may have crossed over elsewhere. Rings send the same by every NIC and trees do not, so that
    counters can decide.
    """
    best: tuple[Traffic, Floats] | None = None
    least = np.inf
    for is_tree in (None, False, True):
        traffic = traffic_of(read.sums, read.messages, communicators, places, is_tree=is_tree)
        cells = matrix_of(traffic.flows, places, By.NIC).cells
        modelled = sent_and_received(cells, len(places.nics))[0]
        modelled = modelled + handed_up(traffic.up_bytes, places)
        wrong = misfit(modelled, counted)
        if best is None or wrong < least - BETTER_BY:
            best, least = (traffic, modelled), wrong
        if least <= BETTER_BY or not np.isfinite(counted).any():
            break
    assert best is not None
    return best


def read_rhythm(
    store: Store,
    job_rank: JobRanks,
    ranks: Mapping[int, Rank],
    found: Found,
    span_ns: tuple[int, int],
) -> tuple[Rhythm, int | None, list[HostRhythm]]:
    """The rhythm by some ranks' records, the time from which they were read, and each host's."""
    hosts = {number: rank.host for number, rank in ranks.items()}
    records, members = read_some(store, job_rank, hosts, found, span_ns)
    if not len(records):
        return rhythm_of([]), None, []
    keys, which = members_in(records)
    number = np.array([members.get(key, -1) for key in keys], dtype=np.int64)[which]
    bounds = infer_bounds(to_work(records, members))
    sent = {
        rank: with_steps(sent_of(records.select(number == rank)), bounds, rank)
        for rank in np.unique(number).tolist()
        if rank >= 0
    }
    each = [
        HostRhythm(host=hosts.get(rank, ""), rank=rank, rhythm=rhythm_of([sent[rank]]))
        for rank in sorted(sent)
    ]
    timed = records.entry_ns[records.timed()]
    from_ns = int(timed.min()) if len(timed) else None
    return rhythm_of([sent[rank] for rank in sorted(sent)]), from_ns, each


def with_steps(sent: Sent, bounds: Bounds | None, rank: int) -> Sent:
    if bounds is None:
        return sent
    own: Bounds = bounds.select(bounds.rank == rank)
    own = own.select(np.argsort(own.number, kind="stable"))
    return msgspec.structs.replace(sent, start_ns=own.start_ns, end_ns=own.end_ns)
