"""Where ranks run: the ranks of all jobs as the agents see them."""

from __future__ import annotations

from simulator.snapshot import JobStatus, Snapshot


class Ranks:
    """The jobs of the last tick, each with a number that changes when its processes do."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobStatus] = {}
        self._known: dict[str, tuple[bytes, bytes]] = {}
        self._editions: dict[str, int] = {}

    def update(self, snapshot: Snapshot) -> None:
        self.jobs = {job.name: job for job in snapshot.jobs if job.is_running}
        for job in snapshot.jobs:
            processes = job.rank_host.tobytes(), job.rank_pid.tobytes()
            if self._known.get(job.name) != processes:
                self._known[job.name] = processes
                self._editions[job.name] = self._editions.get(job.name, -1) + 1

    def edition(self, job: str) -> int:
        """Counts changes of a job's processes; -1 for a job never seen."""
        return self._editions.get(job, -1)
