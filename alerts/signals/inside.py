"""Slow transfers that stay inside a host, or whose slow edge does: no NIC is in them. Pure.

Ranks of one host reach each other over NVLink, xGMI or PCIe. A communicator of one host crosses no
network at all; a ring over hosts has edges of both kinds, and its ladder says which one is slow.
"""

from __future__ import annotations

import numpy as np

from alerts.signals.ladder import Ladder
from alerts.signals.transfer import Stretch
from alerts.window.model import JobWindow

RANKS_MIN = 2
"""One rank alone exchanges nothing."""


def host_of(job: JobWindow, communicator: str) -> str:
    """The host that all members of a communicator are on; empty: several, or not all are known."""
    known = job.communicators.get(communicator)
    if known is None or known.ranks < RANKS_MIN:
        return ""
    ranks = [job.ranks.get(number) for number in known.job_rank.values()]
    hosts = {"" if rank is None else rank.host for rank in ranks}
    return hosts.pop() if len(ranks) == known.ranks and len(hosts) == 1 else ""


def host_of_edge(job: JobWindow, stretch: Stretch, ladder: Ladder | None) -> str:
    """The host inside which a ring's slow edge is, as its ladder clearly shows; else empty."""
    if ladder is None or not ladder.is_clear:
        return ""
    edge = int(np.argmax(ladder.share))
    ends = [
        job.rank_of(stretch.communicator, int(rank[edge]))
        for rank in (ladder.source, ladder.target)
    ]
    hosts = {"" if rank is None else rank.host for rank in ends}
    return hosts.pop() if len(hosts) == 1 else ""
