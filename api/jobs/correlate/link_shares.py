"""Which jobs' bytes cross a link, and by which flows: modelled, and spread evenly over equal ways.

What a job's NICs send to each other comes from its collectives (`alerts.traffic`); which links that
can cross from the topology (`api.fabric.spread`). Which of several equal ways a flow takes is the
switches' choice and is not recorded, so each way counts with its share of the flow's bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from alerts.traffic.flows import Assumption
from alerts.traffic.matrix import Cells, matrix_of
from alerts.traffic.places import By, places_of
from alerts.window.columns import Floats
from api.base.compare_limits import LINK_FLOWS_MAX, LINK_JOBS_MAX, LINK_PAIRS_MAX
from api.data.inventory.records import Job
from api.data.inventory.repository import Inventory
from api.data.store.store import Store
from api.fabric.cache import BuiltTopology
from api.fabric.model import NodeKind, Topology
from api.jobs.correlate.pattern import JOBS_MAX, best_model, nics_in
from api.jobs.correlate.places import job_ranks_of
from api.jobs.correlate.traffic import find_records, newest_of, read_traffic
from api.jobs.correlate.windows import read_communicators, to_rank
from api.jobs.tenants import TenantShare, tenants_on
from collector.contract.identity import LinkId, PortId
from collector.contract.units import NS

UP_UNKNOWN = (
    "its hosts hand {:.3g} bytes up to switches that add up (CollNet); which links those cross is"
    " not known"
)


WAYS_UNKNOWN = (
    "{flows} of its flows have other ways of equal length, and which one their switches choose is"
    " recorded nowhere (no flow labels): {low:.4g} bytes at least, {high:.4g} at most"
)
PAIRS_CUT = "{count} of its pairs of NICs, those with the fewest bytes, were not looked at ({name})"
SURELY = 1.0 - 1e-6
"""Of a flow's bytes, from which on all of them cross: shares are sums of 32 bits."""


class FlowShare(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes from one NIC to another that are expected on the link."""

    source: str
    """host/device"""
    target: str
    bytes: int
    crossing: float
    """Of the flow's bytes, 0 to 1: below 1 it has other ways of equal length."""


class JobShare(msgspec.Struct, frozen=True, kw_only=True):
    """A job on the link."""

    job: str
    bytes: int
    bytes_per_second: float
    share: float
    """Of what all jobs together are expected to send over the link."""
    flows: list[FlowShare]
    """Those with the most bytes first."""
    flows_left_out: int
    assumptions: list[Assumption]
    user: str = ""
    """Whose job it is, where known."""
    known_bytes: int = 0
    """Of flows that have no other way: these crossed the link, if the topology is right."""
    unknown_because: str = ""
    """Why no more is known than what is expected of equal ways; empty: all ways are known."""
    newest_ns: int | None = None
    """When the last of the operations was recorded that this is made of."""


class UserShare(msgspec.Struct, frozen=True, kw_only=True):
    """What all jobs of a user are expected to send over the link."""

    user: str
    """Empty: of jobs whose user is not known."""
    jobs: list[str]
    bytes: int
    known_bytes: int
    share: float


class LinkShares(msgspec.Struct, frozen=True, kw_only=True):
    """Who shares a link in a stretch of time; payload bytes, both directions together."""

    link: str
    from_ns: int
    to_ns: int
    bytes: int
    jobs: list[JobShare]
    """Those with bytes on it, the most first."""
    jobs_looked_at: int
    jobs_left_out: int
    """That ran then and were not looked at: there were too many."""
    unknown: list[str]
    """Jobs of which nothing can be said, each with its reason."""
    tenants: list[TenantShare] = []
    """Measured, at NICs that are an end of the link, while one tenant had the device alone."""
    tenants_unknown_bytes: int = 0
    """Measured there beside it: several had the device, or it is not known who."""
    users: list[UserShare] = []
    """Modelled, as the jobs are; also of links between switches."""
    newest_ns: int | None = None
    """When the last operation was recorded that any of it is made of; null: there is none."""
    age_seconds: float | None = None
    """How old that was at the end of the time."""
    link_seen_ns: int | None = None
    """When a port last reported the cable."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A job's bytes on the link, before shares of all are known."""

    job: str
    names: list[str]
    cells: Cells
    crossing: Floats
    up_bytes: float
    """Handed to switches that add up: which links carry them is not known."""
    assumptions: list[Assumption]
    user: str
    pairs_left_out: int
    newest_ns: int | None

    @property
    def bytes(self) -> Floats:
        return self.cells.bytes * self.crossing


def link_shares(
    store: Store, inventory: Inventory, built: BuiltTopology, link: LinkId, span_ns: tuple[int, int]
) -> LinkShares:
    """``link`` is one of the topology's."""
    jobs = jobs_near(inventory, built.topology, link, span_ns)
    found: list[Found] = []
    unknown: list[str] = []
    for job in jobs[:LINK_JOBS_MAX]:
        one = on_link(store, inventory, built, link, job, span_ns)
        if isinstance(one, str):
            unknown.append(f"{job.job}: {one}")
            continue
        if one.up_bytes > 0:
            unknown.append(f"{job.job}: {UP_UNKNOWN.format(one.up_bytes)}")
        if one.pairs_left_out:
            cut = PAIRS_CUT.format(count=one.pairs_left_out, name="LINK_PAIRS_MAX")
            unknown.append(f"{job.job}: {cut}")
        if float(one.bytes.sum()) > 0:
            found.append(one)
    total = sum(float(one.bytes.sum()) for one in found)
    seconds = max(1e-9, (span_ns[1] - span_ns[0]) / NS)
    shown = sorted(
        (show(one, total, seconds) for one in found), key=lambda one: (-one.bytes, one.job)
    )
    newest_ns = max((one.newest_ns for one in found if one.newest_ns is not None), default=None)
    seen = built.topology.links[link].last_seen
    nics = [end for end in (link.a, link.b) if is_host(built.topology, end.host)]
    tenants = tenants_on(store, [(end.host, end.device, end.port) for end in nics], span_ns)
    return LinkShares(
        link=str(link),
        from_ns=span_ns[0],
        to_ns=span_ns[1],
        bytes=round(total),
        jobs=shown,
        jobs_looked_at=min(len(jobs), LINK_JOBS_MAX),
        jobs_left_out=max(0, len(jobs) - LINK_JOBS_MAX),
        unknown=unknown,
        tenants=tenants.shares,
        tenants_unknown_bytes=tenants.unknown_bytes,
        users=by_user(shown),
        newest_ns=newest_ns,
        age_seconds=None if newest_ns is None else max(0.0, (span_ns[1] - newest_ns) / NS),
        link_seen_ns=round(seen.timestamp() * NS),
    )


def by_user(jobs: Sequence[JobShare]) -> list[UserShare]:
    """The shares of all jobs of each user, the largest first."""
    of_user: dict[str, list[JobShare]] = {}
    for one in jobs:
        of_user.setdefault(one.user, []).append(one)
    found = [
        UserShare(
            user=user,
            jobs=[one.job for one in own],
            bytes=sum(one.bytes for one in own),
            known_bytes=sum(one.known_bytes for one in own),
            share=min(1.0, sum(one.share for one in own)),
        )
        for user, own in of_user.items()
    ]
    return sorted(found, key=lambda one: (-one.bytes, one.user))


def is_host(topology: Topology, name: str) -> bool:
    node = topology.nodes.get(name)
    return node is not None and node.kind is NodeKind.HOST


def jobs_near(
    inventory: Inventory, topology: Topology, link: LinkId, span_ns: tuple[int, int]
) -> list[Job]:
    """Jobs that ran in the time and can be on the link, the largest first.

    At a host's own cable only that host's jobs can be.
    """
    hosts = {end.host for end in (link.a, link.b) if is_host(topology, end.host)}
    found = []
    for job in inventory.jobs.page(limit=JOBS_MAX):
        began, ended = job.first_seen.timestamp() * NS, job.last_seen.timestamp() * NS
        if began > span_ns[1] or ended < span_ns[0] or job.alias_of is not None:
            continue
        if not hosts or not hosts.isdisjoint(inventory.jobs.hosts(job.job)):
            found.append(job)
    return sorted(found, key=lambda job: (-(job.ranks or 0), job.job))


def on_link(
    store: Store,
    inventory: Inventory,
    built: BuiltTopology,
    link: LinkId,
    its: Job,
    span_ns: tuple[int, int],
) -> Found | str:
    """What the job is expected to send over the link, or why nothing can be said."""
    job = its.job
    job_rank = job_ranks_of(inventory, job)
    ranks = {place.rank: to_rank(place) for place in inventory.jobs.ranks(job)}
    rails, _ = nics_in(built.topology, {rank.host for rank in ranks.values()})
    places = places_of(ranks, rails)
    if not places.nics:
        return "the NICs of its ranks are not known"
    records = find_records(store, job_rank, *span_ns)
    read = read_traffic(store, records)
    if not read.seen:
        return "no collective of it was recorded in this time"
    communicators = read_communicators(inventory, job, job_rank, ranks)
    traffic, _ = best_model(read, communicators, places, np.full(len(places.nics), np.nan))
    matrix = matrix_of(traffic.flows, places, By.NIC)
    ports = [port_of_nic(built.topology, *nic) for nic in places.nics]
    is_cabled = np.array([port is not None for port in ports], dtype=bool)
    known = is_cabled[matrix.cells.source] & is_cabled[matrix.cells.target]
    chosen = np.flatnonzero(known)
    cells: Cells = matrix.cells.select(chosen[:LINK_PAIRS_MAX])
    pairs = [
        (one, other)
        for source, target in zip(cells.source.tolist(), cells.target.tolist(), strict=True)
        if (one := ports[source]) is not None and (other := ports[target]) is not None
    ]
    return Found(
        job=job,
        names=places.names(By.NIC),
        cells=cells,
        crossing=crossing_of(built, link, pairs),
        up_bytes=float(traffic.up_bytes.sum()),
        assumptions=list(traffic.assumptions),
        user=its.user or "",
        pairs_left_out=max(0, len(chosen) - LINK_PAIRS_MAX),
        newest_ns=newest_of(store, records),
    )


def port_of_nic(topology: Topology, host: str, device: str) -> PortId | None:
    """The cabled port of a NIC, by its device or its interface; None: no cable of it is known."""
    ports = [
        port.id
        for port in topology.ports_of.get(host, ())
        if device in (port.id.device, port.netdev)
    ]
    cabled = [port for port in ports if port in topology.link_of]
    return min(cabled, default=None)


def crossing_of(
    built: BuiltTopology, link: LinkId, pairs: Sequence[tuple[PortId, PortId]]
) -> Floats:
    """Of each pair's bytes, the part that can be expected on the link."""
    graph = built.graph
    number = next((place for place, one in enumerate(graph.links) if one.id == link), -1)
    spread = built.spread(pairs)
    here = np.flatnonzero(spread.link == number)
    pair = np.searchsorted(spread.start, here, side="right") - 1
    found = np.bincount(pair, spread.share[here].astype(np.float64), len(pairs))
    return np.minimum(found.astype(np.float64), 1.0)


def show(one: Found, total: float, seconds: float) -> JobShare:
    bytes_ = one.bytes
    order = np.argsort(-bytes_, kind="stable")
    there = order[bytes_[order] > 0]
    own, whole = float(bytes_.sum()), one.cells.bytes[there]
    is_known = one.crossing[there] >= SURELY
    low, high = float(whole[is_known].sum()), float(whole.sum())
    why = WAYS_UNKNOWN.format(flows=int((~is_known).sum()), low=low, high=high)
    return JobShare(
        job=one.job,
        bytes=round(own),
        bytes_per_second=own / seconds,
        share=own / total if total > 0 else 0.0,
        flows=[
            FlowShare(
                source=one.names[one.cells.source[row]],
                target=one.names[one.cells.target[row]],
                bytes=round(float(bytes_[row])),
                crossing=round(float(one.crossing[row]), 4),
            )
            for row in there[:LINK_FLOWS_MAX].tolist()
        ],
        flows_left_out=max(0, len(there) - LINK_FLOWS_MAX),
        assumptions=one.assumptions,
        user=one.user,
        known_bytes=round(low),
        unknown_because="" if is_known.all() else why,
        newest_ns=one.newest_ns,
    )
