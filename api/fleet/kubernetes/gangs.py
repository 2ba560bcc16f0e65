"""Hosts that were chosen for a job as a whole, remembered while its pods come one by one.

kube-scheduler asks for each pod by itself, and only names nodes that are free by then. So the first
pod of a job that names how many hosts it needs has a set chosen (`api.fleet.placement`), and the
others are sent there too. It is advice, kept in this process alone: a service that was restarted,
or another process beside it, chooses again among the hosts that are free then.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection

import msgspec

from api.base.limits import EXTENDER_GANG_SECONDS, EXTENDER_GANGS_MAX

Choose = Callable[[int, Collection[str]], Awaitable[Collection[str]]]
"""Chooses so many hosts among these; none if it cannot."""


class Gang(msgspec.Struct, frozen=True):
    """The hosts of a job."""

    hosts: frozenset[str]
    size: int
    at_s: float


class Gangs:
    """Remembers chosen hosts. Belongs to the event loop. ``clock``: unix seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, Gang] = OrderedDict()

    async def hosts_for(
        self, job: str, size: int, among: Collection[str], choose: Choose
    ) -> frozenset[str] | None:
        """The hosts of a job, some of them free; None if none could be chosen."""
        now_s = self._clock()
        known = self._kept.get(job)
        if known is None or not self._counts(known, size, among, now_s):
            chosen = frozenset(await choose(size, among))
            # Another pod of the job may have been faster.
            known = self._kept.get(job)
            if known is None or not self._counts(known, size, among, now_s):
                known = Gang(chosen, size, now_s)
                self._kept[job] = known
                self._kept.move_to_end(job)
                if len(self._kept) > EXTENDER_GANGS_MAX:
                    self._kept.popitem(last=False)
        return known.hosts or None

    def _counts(self, gang: Gang, size: int, among: Collection[str], now_s: float) -> bool:
        """Whether the chosen set is still good: recent, of this size, and not all taken."""
        is_recent = 0 <= now_s - gang.at_s < EXTENDER_GANG_SECONDS
        return is_recent and gang.size == size and any(host in gang.hosts for host in among)
