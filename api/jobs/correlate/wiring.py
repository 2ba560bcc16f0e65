"""How the communicators of running jobs are wired: their rings and trees, out of the inventory."""

from __future__ import annotations

from api.data.inventory.repository import Inventory
from api.jobs.correlate.pairs import Wire, Wiring


class RunningWiring:
    """The rings and trees of all running jobs, as processes told them so far.

    Read anew whenever it is asked, which is once a minute: a log may tell of a ring long after its
    communicator was first seen.
    """

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def __call__(self) -> Wiring:
        """All of them, as the inventory has them now."""
        return {
            row.communicator: Wire(
                row.ranks or 0,
                row.rings,
                [{int(rank): parent for rank, parent in tree.items()} for tree in row.trees],
            )
            for job in self._inventory.jobs.running()
            for row in self._inventory.jobs.communicators(job.job)
        }
