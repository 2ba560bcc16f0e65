"""Which port, cable, switch, host or rank a culprit is, and whether two culprits are one. Pure.

A cable has two ends and up to two names, and findings may name either end. So culprits are compared
as places of the window: rows of ports, cables, hosts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property

import msgspec
import numpy as np

from alerts.finding import Finding
from alerts.window.model import JobWindow, Ports, Window
from collector.contract.storage import server_of
from collector.contract.verdict import Culprit


def port_row(ports: Ports, culprit: Culprit) -> int | None:
    """The row of the port that a culprit names: the NIC's if it has one, or the switch's."""
    if culprit.host and culprit.device:
        own = ports.rows_of_device.get((culprit.host, culprit.device), [])
        chosen = [row for row in own if not culprit.port or ports.port[row] == culprit.port]
        if chosen:
            return chosen[0]
    if culprit.switch and culprit.switch_port:
        return ports.row_of.get((culprit.switch, culprit.switch, culprit.switch_port))
    return None


def cable_of(ports: Ports, row: int) -> int:
    far = int(ports.other_end[row])
    return row if far < 0 else min(row, far)


def feeds(ports: Ports, one: Culprit, other: Culprit) -> bool:
    """Whether a port of one switch leads to the switch at which the other's host is connected.

    What is too much for a host, or dropped in front of it, fills the queues on the way there, too.
    """
    row, at_host = port_row(ports, one), port_row(ports, other)
    if row is None or at_host is None or not ports.is_switch[row]:
        return False
    ends = [at_host, int(ports.other_end[at_host])]
    hosts = [end for end in ends if end >= 0 and not ports.is_switch[end]]
    leaves = [ports.host[end] for end in ends if end >= 0 and ports.is_switch[end]]
    far = int(ports.other_end[row])
    return bool(hosts and leaves) and far >= 0 and ports.host[far] == leaves[0]


class Surroundings(msgspec.Struct, frozen=True, dict=True):
    """A job's place in the fabric: its hosts, its NICs' cables, and those its bytes cross."""

    window: Window
    job: JobWindow

    @cached_property
    def hosts(self) -> frozenset[str]:
        return frozenset(rank.host for rank in self.job.ranks.values() if rank.host)

    @cached_property
    def own_cables(self) -> frozenset[int]:
        ports = self.window.ports
        return frozenset(
            cable_of(ports, row)
            for rank in self.job.ranks.values()
            for row in self.window.rows_of_rank(rank)
        )

    @cached_property
    def crossed(self) -> dict[str, dict[int, float]]:
        """For each communicator the cables that its ring's bytes cross, and the largest share."""
        found: dict[str, dict[int, float]] = {}
        paths = self.job.paths
        if paths is None:
            return found
        ports = self.window.ports
        for edge, name in enumerate(paths.communicator):
            own = found.setdefault(name, {})
            for place in range(int(paths.start[edge]), int(paths.start[edge + 1])):
                cable = cable_of(ports, int(paths.port[place]))
                own[cable] = max(own.get(cable, 0.0), float(paths.share[place]))
        return found

    def hosts_beside(self, culprit: Culprit) -> frozenset[str]:
        """Hosts at either end of the ring's edges whose bytes cross a port."""
        paths, ports = self.job.paths, self.window.ports
        row = port_row(ports, culprit)
        if paths is None or row is None:
            return frozenset()
        cable = cable_of(ports, row)
        found = set()
        for edge, name in enumerate(paths.communicator):
            way = paths.port[int(paths.start[edge]) : int(paths.start[edge + 1])].tolist()
            if any(cable_of(ports, one) == cable for one in way):
                ends = (int(paths.source[edge]), int(paths.target[edge]))
                ranks = (self.job.rank_of(name, end) for end in ends)
                found |= {rank.host for rank in ranks if rank is not None}
        return frozenset(found)

    def share_of(self, culprit: Culprit, communicators: tuple[str, ...] = ()) -> float:
        """Share of these communicators' bytes (all, if none) over the culprit; of a host 0 or 1."""
        row = port_row(self.window.ports, culprit)
        if row is None and culprit.host:
            return 1.0 if culprit.host in self.hosts else 0.0
        names = communicators or tuple(self.crossed)
        if row is None:
            return self._switch_share(culprit.switch, names)
        cable = cable_of(self.window.ports, row)
        shares = [self.crossed[name].get(cable, 0.0) for name in names if name in self.crossed]
        if any(shares):
            return max(shares)
        return 1.0 if cable in self.own_cables and not communicators else 0.0

    def _switch_share(self, switch: str, names: tuple[str, ...]) -> float:
        ports = self.window.ports
        best = 0.0
        for name in names:
            for cable, share in self.crossed.get(name, {}).items():
                far = int(ports.other_end[cable])
                ends = [cable] if far < 0 else [cable, far]
                if any(ports.host[end] == switch for end in ends):
                    best = max(best, share)
        return best


def is_near(
    culprit: Culprit, other: Culprit, feeling: Collection[str], around: Mapping[str, Surroundings]
) -> bool:
    """Whether bytes that meet the other's trouble cross this place, too, or lead to its host.

    ``feeling`` are the jobs whose times show the other's trouble. In a large cluster some cable is
    always damaged, and queues elsewhere are none of its effects. What cannot be told is near: a
    place without a port, trouble that no job's bytes meet, jobs whose ways are not known.
    """
    meeting = [
        place for job, place in around.items() if job in feeling or place.share_of(other) > 0.0
    ]
    if not meeting or any(place.job.paths is None for place in meeting):
        return True
    ports = meeting[0].window.ports
    if port_row(ports, culprit) is None or feeds(ports, culprit, other):
        return True
    return any(place.share_of(culprit) > 0.0 for place in meeting)


def is_same(ports: Ports, one: Culprit, other: Culprit) -> bool:
    """Whether two culprits are one thing, by either end of a cable, or one is part of the other."""
    if one.storage or other.storage:
        return bool(one.storage) and server_of(one.storage) == server_of(other.storage)
    rows = port_row(ports, one), port_row(ports, other)
    if rows[0] is not None and rows[1] is not None:
        return cable_of(ports, rows[0]) == cable_of(ports, rows[1])
    if rows[0] is not None or rows[1] is not None:
        whole, row = (other, rows[0]) if rows[0] is not None else (one, rows[1])
        assert row is not None
        far = int(ports.other_end[row])
        ends = {ports.host[row], ports.host[far] if far >= 0 else ""}
        name = whole.switch or whole.host
        return bool(name) and name in ends and (not whole.host or ports.host[row] == whole.host)
    if one.switch or other.switch:
        return one.switch == other.switch
    if one.host and other.host:
        gpus = {one.gpu, other.gpu} - {None}
        return one.host == other.host and len(gpus) <= 1
    return bool(one.job) and (one.job, one.rank) == (other.job, other.rank)


def share_last_out(job: JobWindow, slow: Finding, host: str) -> float:
    """Of the slow operations, the share that a rank of this host leaves last."""
    operations = job.operations
    names = operations.communicators
    own = [code for code, name in enumerate(names) if name in slow.communicators]
    inside = (operations.last_exit_ns >= slow.since_ns) & (operations.last_exit_ns <= slow.last_ns)
    rows = np.flatnonzero(inside & np.isin(operations.communicator, own))
    if not len(rows):
        return 0.0
    ranks = (
        job.rank_of(names[operations.communicator[row]], int(operations.last_out[row]))
        for row in rows.tolist()
    )
    return sum(rank is not None and rank.host == host for rank in ranks) / len(rows)


def with_all_names(window: Window, culprit: Culprit) -> Culprit:
    """The culprit with every name that its place has: both ends of a NIC's cable, the rank."""
    ports = window.ports
    row = port_row(ports, culprit)
    if row is None:
        return culprit
    far = int(ports.other_end[row])
    if ports.is_switch[row] and far >= 0 and not ports.is_switch[far]:
        row = far
    users = window.users_of_port.get(row, [])
    job, rank = culprit.job, culprit.rank
    if rank is None and len(users) == 1:
        its_job, number = users[0]
        job, rank = its_job.job, None if number in its_job.guessed else number
    return msgspec.structs.replace(ports.culprit(row), job=job, rank=rank, gpu=culprit.gpu)
