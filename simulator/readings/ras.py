"""The agent's `nccl_ras` source: what RAS says of a stuck job, as its first two hosts report it.

Only standstills are reported, as by the agent. Counts are of launches: a kernel that never ends was
launched, and RAS sees nothing wrong with its rank. A process that is stopped does not answer, and
sends and receives are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from collector.contract.collective import Operation
from collector.contract.model import Event
from collector.contract.ras import ODD_MAX, OddRank, Presence, RasReport, ras_event
from collector.contract.units import NS
from simulator.readings.series import Rows
from simulator.snapshot import HangDump, JobStatus, Snapshot
from simulator.topology.model import Bools, Floats, Topology

ASKING_HOSTS: Final = 2
REPORTS_MAX: Final = 8
DEAD_AFTER_SECONDS: Final = 60.0
"""RAS gives up on a process of a host that is down after this long."""
PAIRS: Final = frozenset({Operation.SEND, Operation.RECV, Operation.SEND_RECV})
NCCL_VERSION: Final = "2.28.9"

Launched = dict[Operation, int]


class RasSection:
    """The source on every host."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._events: dict[int, list[Event]] = {}

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:
        self._events = {}
        jobs = {job.name: job for job in snapshot.jobs}
        for standing in snapshot.standing:
            job = jobs.get(standing.job)
            if job is not None:
                self._ask(snapshot, job, standing, is_read)

    def restart(self, started: Sequence[int], booted: Sequence[int]) -> None:
        """Nothing is remembered: how long a job stands is in the snapshot."""

    def rows(self, host: int) -> Rows:  # noqa: ARG002 - a section's seam
        """Its own numbers are not simulated."""
        return ()

    def values(self, host: int) -> Floats:  # noqa: ARG002 - a section's seam
        return np.zeros(0)

    def events(self, host: int) -> list[Event]:
        return self._events.get(host, [])

    def _ask(self, snapshot: Snapshot, job: JobStatus, standing: HangDump, is_read: Bools) -> None:
        reports = reports_of(snapshot, job, standing)
        for host in list(dict.fromkeys(job.rank_host.tolist()))[:ASKING_HOSTS]:
            is_deaf = not is_read[host] or is_stopped(snapshot, host)
            if not is_deaf:
                time_ns = int(snapshot.host_unix_ns(host, snapshot.time_s))
                self._events[host] = [
                    *self._events.get(host, []),
                    *(ras_event(name, report, time_ns) for name, report in reports),
                ]


def is_stopped(snapshot: Snapshot, host: int) -> bool:
    world = snapshot.world
    return bool(world.host_process_is_stopped[host] or world.host_is_down[host])


def reports_of(
    snapshot: Snapshot, job: JobStatus, standing: HangDump
) -> list[tuple[str, RasReport]]:
    """Of communicators whose ranks differ, the largest first; else of the largest alone."""
    counted = launched_by(standing)
    gone = {rank for rank in range(job.ranks) if is_stopped(snapshot, int(job.rank_host[rank]))}
    waits = waits_of(counted, gone)
    seconds = snapshot.time_s - (job.hung_since_s or snapshot.time_s)
    made = []
    for name, own in counted.items():
        report = report_of(name, own, gone, waits, seconds)
        made.append((bool(report.odd), report.size, name, report))
    made.sort(key=lambda one: (not one[0], -one[1], one[2]))
    told = [(name, report) for is_odd, _, name, report in made if is_odd]
    return told[:REPORTS_MAX] or [(name, report) for _, _, name, report in made[:1]]


def launched_by(standing: HangDump) -> dict[str, dict[int, Launched]]:
    """By communicator, then by the job's rank in the communicator's order: what was launched."""
    found: dict[str, dict[int, Launched]] = {}
    for block in standing.blocks:
        if block.operation in PAIRS:
            continue
        for unit, name in enumerate(block.communicators):
            own = found.setdefault(name, {})
            for place, rank in enumerate(block.members[unit].tolist()):
                has_launched = bool(np.isfinite(block.entry_s[unit, place]))
                count = block.sequence + has_launched
                launched = own.setdefault(rank, {})
                launched[block.operation] = max(count, launched.get(block.operation, 0))
    return found


def waits_of(counted: dict[str, dict[int, Launched]], gone: set[int]) -> dict[int, list[str]]:
    """By the job's rank: communicators in which it has launched what others there have not."""
    found: dict[int, list[str]] = {}
    for name, own in counted.items():
        there = {rank: launched for rank, launched in own.items() if rank not in gone}
        most = most_of(there.values())
        is_waited = len(there) < len(own) or any(launched != most for launched in there.values())
        for rank, launched in there.items():
            if is_waited and launched == most:
                found.setdefault(rank, []).append(name)
    return found


def most_of(counts: Iterable[Launched]) -> Launched:
    found: Launched = {}
    for launched in counts:
        for operation, count in launched.items():
            found[operation] = max(count, found.get(operation, 0))
    return found


def report_of(
    name: str,
    own: dict[int, Launched],
    gone: set[int],
    waits: dict[int, list[str]],
    seconds: float,
) -> RasReport:
    seen = Counter(tuple(sorted(each.items())) for rank, each in own.items() if rank not in gone)
    common = max(seen, key=lambda each: (seen[each], each)) if seen else ()
    odd = []
    for place, (rank, launched) in enumerate(own.items()):
        if rank not in gone and tuple(sorted(launched.items())) == common:
            continue
        is_dead = seconds >= DEAD_AFTER_SECONDS
        absent = Presence.DEAD if is_dead else Presence.UNRESPONSIVE
        odd.append(
            OddRank(
                rank=place,
                world=rank,
                presence=absent if rank in gone else Presence.ANSWERS,
                launched=launched,
                absent_ns=int(seconds * NS) if rank in gone else 0,
                waits_in=next((one for one in waits.get(rank, ()) if one != name), ""),
            )
        )
    return RasReport(
        size=len(own),
        launched=dict(common),
        alike=seen[common] if seen else 0,
        odd=tuple(odd[:ODD_MAX]),
        odd_left_out=len(odd[ODD_MAX:]),
        standing_ns=int(seconds * NS),
        answers=1 + int(seconds // 5),
        nccl=NCCL_VERSION,
    )
