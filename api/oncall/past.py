"""Windows of the past, as the evaluator saw them at their end."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection
from functools import partial

import msgspec

from alerts.window.model import JobWindow, Window
from api.data.inventory.records import JobState
from api.data.inventory.repository import Inventory
from api.data.store.store import Store
from api.fabric.cache import BuiltTopology
from api.jobs.correlate.windows import RECORDS_MAX, WindowReader
from collector.contract.units import NS


class PastWindows:
    """Reads them again from the store; for one thread at a time."""

    def __init__(
        self,
        store: Store,
        inventory: Inventory,
        topology: Callable[[dt.datetime | None], BuiltTopology],
    ) -> None:
        self._inventory = inventory
        self._reader = WindowReader(store, inventory, topology)

    def read(
        self,
        from_ns: int,
        to_ns: int,
        named: Collection[str] = (),
        *,
        records_max: int = RECORDS_MAX,
    ) -> Window:
        """All jobs that ran then, because a verdict about one may need to see the others.

        ``named`` are jobs that belong to it even if the inventory saw them at other times.
        """
        read = partial(self._reader.read, is_live=False, records_max=records_max)
        window = read(from_ns, to_ns)
        jobs = list(window.jobs)
        for name in sorted({*named} - {job.job for job in jobs}):
            jobs += read(from_ns, to_ns, job=name).jobs
        running = [self._as_it_was(job, to_ns) for job in jobs]
        return msgspec.structs.replace(window, jobs=running, is_live=True)

    def of_job(self, from_ns: int, to_ns: int, job: str) -> Window:
        """One job, for what is no verdict: see `WindowReader.read_alone`."""
        window = self._reader.read_alone(job, from_ns, to_ns)
        running = [self._as_it_was(one, to_ns) for one in window.jobs]
        return msgspec.structs.replace(window, jobs=running, is_live=True)

    def job_alone(self, from_ns: int, to_ns: int, job: str) -> JobWindow | None:
        """The same without any machines; None: no record of it could be read."""
        found = self._reader.job_alone(job, from_ns, to_ns)
        return None if found is None else self._as_it_was(found, to_ns)

    def _as_it_was(self, job: JobWindow, moment_ns: int) -> JobWindow:
        """The job with its state at that moment: one that has ended since was running then."""
        known = self._inventory.jobs.get(job.job)
        if known is None or known.state is not JobState.ENDED:
            return job
        ended = known.ended_at or known.last_seen
        return msgspec.structs.replace(job, is_running=ended.timestamp() * NS > moment_ns)
