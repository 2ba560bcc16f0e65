"""Rings and trees of running jobs' communicators, from the inventory."""

from __future__ import annotations

from api.data.inventory.repository import Inventory
from api.jobs.correlate.pairs import Wire, Wiring


class RunningWiring:
    """The rings and trees of all running jobs, as their processes reported them so far.

    Each call, once a minute, reads them again: a log may report a ring long after its communicator
    was first seen.
    """

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def __call__(self) -> Wiring:
        return {
            row.communicator: Wire(
                row.ranks or 0,
                row.rings,
                [{int(rank): parent for rank, parent in tree.items()} for tree in row.trees],
            )
            for job in self._inventory.jobs.running()
            for row in self._inventory.jobs.communicators(job.job)
        }
