"""Maps members of communicators to the ranks of running jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alerts.window.series import Place, Places

if TYPE_CHECKING:  # it brings SQLAlchemy, which `diagnose` does not need
    from api.data.inventory.repository import Inventory


def job_ranks_of(inventory: Inventory, job: str) -> dict[tuple[str, int], int]:
    return {
        (member.communicator, member.rank): member.job_rank
        for member in inventory.jobs.members(job)
        if member.job_rank is not None
    }


class RunningPlaces:
    """The places of all running jobs; a job's members are read again only when it has changed."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._known: dict[str, tuple[object, Places]] = {}

    def __call__(self) -> Places:
        known: dict[str, tuple[object, Places]] = {}
        for job in self._inventory.jobs.running():
            state = (job.ranks, self._inventory.jobs.count_communicators(job.job))
            before = self._known.get(job.job)
            known[job.job] = (
                before if before and before[0] == state else (state, self._read(job.job))
            )
        self._known = known
        return {key: place for _, places in known.values() for key, place in places.items()}

    def _read(self, job: str) -> Places:
        return {
            (member.communicator, member.rank): Place(job, member.job_rank, member.host)
            for member in self._inventory.jobs.members(job)
            if member.job_rank is not None
        }
