"""A set in an answer: its numbers, the jobs that share hosts or links with it, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from api.base.limits import PLACEMENT_JOBS_SHOWN_MAX
from api.fabric.spread import Bools
from api.fleet.placement.floor import NOWHERE, Floor
from api.fleet.placement.jobs import RunningJob, leaves_of
from api.fleet.placement.model import PlacedSet, SharedJob
from api.fleet.placement.score import Pool, Scored, carried

DIGITS = 4
JOBS_IN_WORDS_MAX = 3
LEAVES_IN_WORDS_MAX = 4
RISKY_IN_WORDS_MAX = 3
FULL = 0.995
"""A share from here on is all of it."""
GIGA = 1e9


def show_set(pool: Pool, scored: Scored) -> PlacedSet:
    floor = pool.floor
    jobs = shared_jobs(pool, scored)
    over = oversubscription(pool, scored)
    bandwidth = scored.bandwidth if floor.has_rates else None
    return PlacedSet(
        hosts=[floor.hosts[host] for host in scored.ring.tolist()],
        score=round(scored.score, DIGITS),
        expected_bandwidth_bits_per_second=None if bandwidth is None else round(bandwidth),
        bandwidth_share=None if scored.share is None else round(scored.share, DIGITS),
        oversubscription=None if over is None else round(over[0], DIGITS),
        risk=round(1 - scored.chance, DIGITS),
        leaves=leaf_counts(floor, scored),
        shared_jobs=jobs[:PLACEMENT_JOBS_SHOWN_MAX],
        shared_jobs_total=len(jobs),
        why=list(reasons(pool, scored, jobs, over)),
    )


def leaf_counts(floor: Floor, scored: Scored) -> dict[str, int]:
    leaf = floor.nic_leaf[scored.ring].ravel()
    leaf = leaf[leaf != NOWHERE]
    names, first, counts = np.unique(leaf, return_index=True, return_counts=True)
    order = np.argsort(first)
    return {floor.graph.switches[names[place]]: int(counts[place]) for place in order.tolist()}


def oversubscription(pool: Pool, scored: Scored) -> tuple[float, str] | None:
    """The worst leaf that the set leaves: its NICs' bits for one of the uplinks', and its name."""
    if not scored.is_crossing:
        return None
    floor = pool.floor
    link, leaf = floor.nic_link[scored.ring].ravel(), floor.nic_leaf[scored.ring].ravel()
    is_live = leaf != NOWHERE
    wanted = np.bincount(leaf[is_live], carried(floor, link[is_live]), len(floor.graph.switches))
    used = np.flatnonzero(wanted)
    # A leaf without uplinks has no ways out, so nothing of the set leaves it.
    used = used[floor.up_capacity[used] > 0]
    if not len(used):
        return None
    ratio = pool.part * wanted[used] / floor.up_capacity[used]
    names = [floor.graph.switches[switch] for switch in used.tolist()]
    worst = min(
        range(len(used)), key=lambda place: (-round(float(ratio[place]), DIGITS), names[place])
    )
    return float(ratio[worst]), names[worst]


# --- shared fate --------------------------------------------------------------------------------


def shared_jobs(pool: Pool, scored: Scored) -> list[SharedJob]:
    """Running jobs that share hosts, uplinks or leaves with the set; most shared first."""
    floor = pool.floor
    is_taken = scored.flows.crossed(2 * len(floor.graph.links))
    is_host = np.zeros(len(floor.hosts), dtype=bool)
    is_host[scored.ring] = True
    is_leaf = leaves_of(floor, scored.ring)
    found = []
    for job in pool.traffic.jobs:
        if not (is_leaf & job.leaves).any() and not is_taken[job.crossed].any():
            continue
        found.append(share_of(floor, job, is_taken, is_host, is_leaf))
    found.sort(key=lambda job: (-job.hosts, -job.uplinks, -job.leaf_hosts, job.job))
    return found


def share_of(
    floor: Floor, job: RunningJob, is_taken: Bools, is_host: Bools, is_leaf: Bools
) -> SharedJob:
    both = is_taken[job.crossed]
    leaf = floor.nic_leaf[job.hosts]
    near = (is_leaf[leaf] & (leaf != NOWHERE)).any(axis=1)
    most = float(job.load[both].max(initial=0.0))
    return SharedJob(
        job=job.job,
        title=job.title,
        hosts=int(is_host[job.hosts].sum()),
        leaf_hosts=int(near.sum()),
        uplinks=len(np.unique(job.crossed[both] >> 1)),
        bits_per_second=round(most) if floor.has_rates else None,
    )


# --- sentences ----------------------------------------------------------------------------------


def reasons(
    pool: Pool, scored: Scored, jobs: list[SharedJob], over: tuple[float, str] | None
) -> Iterator[str]:
    """Why the set has its rank among the others."""
    floor = pool.floor
    if not floor.is_known:
        yield "no cable is known: ranked by health alone"
    elif len(scored.ring) == 1:
        yield "one host: nothing crosses the network"
    else:
        yield where(floor, scored)
        yield speed(pool, scored)
    if over is not None and over[0] > 1:
        yield (
            f"traffic of all to all would suffer: at {over[1]} the set's NICs carry"
            f" {over[0]:.2g} times what the uplinks do"
        )
    yield from (job_words(job) for job in jobs[:JOBS_IN_WORDS_MAX])
    if len(jobs) > JOBS_IN_WORDS_MAX:
        yield f"shares leaves or uplinks with {len(jobs) - JOBS_IN_WORDS_MAX} more running jobs"
    if not jobs and floor.is_known:
        yield "no running job is on its leaves or uplinks"
    yield from risk_words(pool, scored)


def where(floor: Floor, scored: Scored) -> str:
    leaves = list(leaf_counts(floor, scored))
    shown = ", ".join(leaves[:LEAVES_IN_WORDS_MAX])
    if len(leaves) > LEAVES_IN_WORDS_MAX:
        shown += f" and {len(leaves) - LEAVES_IN_WORDS_MAX} more leaves"
    number = len(scored.ring)
    if not scored.is_crossing:
        return f"all {number} under {shown}; no uplink is used"
    groups, counts = np.unique(floor.group[scored.ring], return_counts=True)
    crossing = len(np.unique(scored.flows.edge[scored.flows.is_crossing]))
    parts = "+".join(str(count) for count in sorted(counts.tolist(), reverse=True)[:8])
    more = "+…" if len(groups) > 8 else ""  # noqa: PLR2004 - as many as are written
    return (
        f"{number} hosts in {len(groups)} groups of leaves ({parts}{more}), under {shown};"
        f" {crossing} of {number} edges of the ring cross uplinks"
    )


def speed(pool: Pool, scored: Scored) -> str:
    assert scored.share is not None
    floor = pool.floor
    place = int(scored.edges.argmin())
    near, far = scored.ring[place], scored.ring[(place + 1) % len(scored.ring)]
    bits = f"{scored.edges[place] / GIGA:.4g} Gb/s" if floor.has_rates else "unknown bits"
    if scored.share >= FULL:
        return f"every edge of the ring has the whole of its NICs: {bits} a host"
    return (
        f"the worst edge, {floor.hosts[near]} to {floor.hosts[far]}, has {scored.share:.0%} of what"
        f" NICs can carry: {bits} a host"
    ).replace("%", " %")


def job_words(job: SharedJob) -> str:
    title = job.title if job.title == job.job else f"{job.title} ({job.job})"
    what = []
    if job.hosts:
        what.append(f"{job.hosts} of its own hosts")
    if job.uplinks:
        what.append(f"{job.uplinks} uplinks")
    if job.leaf_hosts:
        what.append(f"leaves ({job.leaf_hosts} hosts)")
    return f"shares {' and '.join(what)} with job {title}"


def risk_words(pool: Pool, scored: Scored) -> Iterator[str]:
    floor = pool.floor
    risky = [host for host in scored.ring.tolist() if pool.risk[host] > 0]
    if not risky:
        return
    risky.sort(key=lambda host: (-pool.risk[host], host))
    shown = ", ".join(
        f"{floor.hosts[host]} ({pool.risk[host]:.2f})" for host in risky[:RISKY_IN_WORDS_MAX]
    )
    more = len(risky) - RISKY_IN_WORDS_MAX
    yield f"at risk: {shown}" + (f" and {more} more" if more > 0 else "")
