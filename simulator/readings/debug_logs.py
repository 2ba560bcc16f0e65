"""The agent's `nccl_debug` source: the peers and NICs of each rank in each communicator.

NCCL prints it once, when a job begins (`simulator.interfaces.nccl_debug`); the agent sends it at
its next read, and an agent that was away sends it later.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collector.contract import communicator as words
from collector.contract.collective import communicator_id
from collector.contract.model import Event
from simulator.interfaces.machine_tree import gpu_address
from simulator.interfaces.nccl_debug import (
    CHANNELS,
    CHILDREN,
    RING_CHARACTERS_MAX,
    VERSION,
    place_ranks,
)
from simulator.interfaces.run_folder import DEBUG
from simulator.jobs.rings import double_trees
from simulator.readings.ranks import Ranks
from simulator.readings.series import ABSENT, Rows, make_row
from simulator.snapshot import JobStatus, Snapshot
from simulator.topology.model import Bools, Floats, Ints, Topology

_ITSELF = tuple(
    f"fabric_job_nccl_{what}"
    for what in ("warnings_total", "debug_skipped_bytes_total", "debug_files_left_out")
)
"""The source's metrics about itself: always 0 here."""


class DebugSection:
    """The source on every host."""

    def __init__(self, topology: Topology, ranks: Ranks) -> None:
        self._topology = topology
        self._ranks = ranks
        self._editions: dict[str, int] = {}
        self._waiting: list[list[Event]] = [[] for _ in range(topology.hosts)]
        """Events from the logs of each host that its agent has not read."""
        self._files: list[dict[str, int]] = [{} for _ in range(topology.hosts)]
        """For each host, by file: the number of ranks of communicators read from it; -1 if not
        read."""
        self._rows: list[Rows] = [()] * topology.hosts
        self._events: dict[int, list[Event]] = {}

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:
        for name, job in self._ranks.jobs.items():
            edition = self._ranks.edition(name)
            if job.communicators and self._editions.get(name) != edition:
                self._editions[name] = edition
                self._introduce(job)
        self._events = {}
        for host in np.flatnonzero(is_read).tolist():
            if waiting := self._waiting[host]:
                time_ns = int(snapshot.host_unix_ns(host, snapshot.time_s))
                self._events[host] = [
                    Event(
                        kind=words.COMMUNICATOR,
                        time_ns=time_ns,
                        labels=event.labels,
                        attributes=event.attributes,
                    )
                    for event in waiting
                ]
                self._waiting[host] = []

    def restart(self, started: Sequence[int], booted: Sequence[int]) -> None:  # noqa: ARG002
        """A restarted agent continues where it stopped, and its counts start again."""
        for host in started:
            self._files[host] = dict.fromkeys(self._files[host], -1)

    def rows(self, host: int) -> Rows:
        """Empty until there is a log."""
        return self._rows[host]

    def values(self, host: int) -> Floats:
        files = self._files[host]
        if not files:
            return np.zeros(0)
        counts = [ABSENT if count < 0 else float(count) for count in files.values()]
        return np.array([0.0] * len(_ITSELF) + counts)

    def events(self, host: int) -> list[Event]:
        """One for each rank of each communicator, when its job begins."""
        return self._events.get(host, [])

    # One job -------------------------------------------------------------------------------------

    def _introduce(self, job: JobStatus) -> None:
        hosts = job.rank_host.tolist()
        counts: dict[int, int] = {}
        layout = place_ranks(job)
        for communicator, (_, members) in job.communicators.items():
            parents = double_trees(members[None, :], layout)[0]
            for place, rank in enumerate(members.tolist()):
                event = self._describe(job, communicator, members, place, parents)
                self._waiting[hosts[rank]].append(event)
                counts[hosts[rank]] = counts.get(hosts[rank], 0) + 1
        for host, count in counts.items():
            file = f"{DEBUG}/{job.name}/{self._topology.host_name(host)}.log"
            self._files[host][file] = count
            self._rows[host] = (
                *(make_row(metric) for metric in _ITSELF),
                *(
                    make_row("fabric_job_nccl_communicators", {"file": each})
                    for each in self._files[host]
                ),
            )

    def _describe(
        self, job: JobStatus, communicator: str, members: Ints, place: int, parents: Ints
    ) -> Event:
        """One rank of one communicator; its time is that of the read."""
        size, rank = len(members), int(members[place])
        hosts = job.rank_host[members]
        local = np.flatnonzero(hosts == hosts[place]).tolist()
        gpu = int(job.rank_gpu[rank]) % self._topology.gpus_per_host
        before, after = (place - 1) % size, (place + 1) % size
        attributes = {
            words.RANKS: str(size),
            words.NCCL_VERSION: VERSION,
            words.PID: str(job.rank_pid[rank]),
            words.CUDA_DEVICE: str(gpu),
            words.NET: "IB",
            words.NVML_DEVICE: str(gpu),
            words.BUS_ID: gpu_address(gpu),
            words.NODES: str(len(np.unique(hosts))),
            words.LOCAL_RANKS: str(len(local)),
            words.LOCAL_RANK: str(local.index(place)),
        }
        if hosts[before] != hosts[place] or hosts[after] != hosts[place]:
            attributes[words.GPU_DIRECT] = "1"
            attributes[words.DEVICES] = self._topology.device_name(int(job.rank_nic[rank]))
        if communicator in job.in_network:
            attributes[words.IN_NETWORK] = "1"
        for channel in range(CHANNELS):
            attributes[words.ring_attribute(channel)] = words.encode_neighbours(before, after)
            above = int(parents[channel][place])
            below = np.flatnonzero(parents[channel] == place).tolist()[:CHILDREN]
            branch = words.encode_branch(above if above >= 0 else None, below)
            attributes[words.tree_attribute(channel)] = branch
        # Rank 0 prints whole rings, and NCCL cuts the line.
        if place == 0 and len(" ".join(map(str, range(size)))) <= RING_CHARACTERS_MAX:
            attributes[words.RINGS] = words.encode_rings([list(range(size))] * CHANNELS)
        labels = {words.COMMUNICATOR: communicator_id(communicator), words.RANK: str(place)}
        known = {name: text for name, text in attributes.items() if text}
        return Event(kind=words.COMMUNICATOR, time_ns=0, labels=labels, attributes=known)
