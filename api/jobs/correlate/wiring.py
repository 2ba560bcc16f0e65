"""Rings and trees of running jobs' communicators, from the inventory."""

from __future__ import annotations

from api.data.inventory.repository import Inventory
from api.jobs.correlate.pairs import Wire, Wiring


class RunningWiring:
    """Read again at each call: a log may report a ring long after its communicator."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def __call__(self) -> Wiring:
        return {
            row.communicator: Wire(
                row.ranks or 0,
                row.rings,
                [{int(rank): parent for rank, parent in tree.items()} for tree in row.trees],
                row.is_in_network,
            )
            for job in self._inventory.jobs.running()
            for row in self._inventory.jobs.communicators(job.job)
        }
