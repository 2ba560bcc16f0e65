"""NCCL's output with NCCL_DEBUG=INFO when a job starts: communicators, rings, trees, devices.

One file for each host holds the lines of all its ranks, as the job's output does. A rank of a
communicator has its ring's neighbours and its place in the trees, laid out as in the model of jobs;
connections name the NIC next to the rank's GPU.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from collector.contract.collective import COMMUNICATOR_HEX_MAX
from simulator.interfaces.inspector import FolderOf, append
from simulator.interfaces.machine_tree import gpu_address
from simulator.jobs.layout import Layout
from simulator.jobs.rings import ROOT, TREES, double_trees
from simulator.snapshot import JobStatus, Snapshot
from simulator.topology.model import Fabric, Ints, Topology

VERSION = "2.28.9+cuda13.0"
CHANNELS = TREES
"""Of a communicator: each has its ring and its tree."""
RING_CHARACTERS_MAX = 128
"""Rank 0 prints whole rings, and NCCL cuts the line."""
CHILDREN = 3
"""Places for children in a line about trees."""


class NcclDebugLogs:
    """The files of all hosts; each job is written once, when its communicators are known."""

    def __init__(self, topology: Topology, folder_of: FolderOf) -> None:
        self._topology = topology
        self._folder_of = folder_of
        self._written: dict[str, bytes] = {}
        """By job, the processes that have printed their lines."""

    def write(self, snapshot: Snapshot) -> None:
        for job in snapshot.jobs:
            processes = job.rank_pid.tobytes()
            if job.is_running and job.communicators and self._written.get(job.name) != processes:
                self._written[job.name] = processes
                self._write_job(job)

    def _write_job(self, job: JobStatus) -> None:
        lines: list[list[str]] = [self._greet(job, rank) for rank in range(job.ranks)]
        for communicator, (_, members) in job.communicators.items():
            parents = double_trees(members[None, :], place_ranks(job))[0]
            for place, rank in enumerate(members.tolist()):
                prefix = self._prefix(job, rank)
                printed = self._introduce(job, communicator, members, place, parents)
                lines[rank] += [f"{prefix}{line}\n" for line in printed]
        texts: dict[int, list[str]] = {}
        for rank, host in enumerate(job.rank_host.tolist()):
            texts.setdefault(host, []).extend(lines[rank])
        for host, of_host in texts.items():
            path = self._folder_of(job.name, host) / f"{self._topology.host_name(host)}.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            append(str(path), "".join(of_host))

    def _device(self, job: JobStatus, rank: int) -> int:
        """The rank's GPU as CUDA and NVML number it on its host."""
        return int(job.rank_gpu[rank]) % self._topology.gpus_per_host

    def _prefix(self, job: JobStatus, rank: int) -> str:
        host = self._topology.host_name(int(job.rank_host[rank]))
        pid = int(job.rank_pid[rank])
        return f"{host}:{pid}:{pid} [{self._device(job, rank)}] NCCL INFO "

    def _greet(self, job: JobStatus, rank: int) -> list[str]:
        topology = self._topology
        kind = "IB" if topology.fabric is Fabric.INFINIBAND else "RoCE"
        names = [topology.device_name(nic) for nic in range(topology.nics_per_host)]
        devices = " ".join(f"[{number}]{name}:1/{kind}" for number, name in enumerate(names))
        host = int(job.rank_host[rank])
        printed = (
            f"NCCL version {VERSION}",
            f"NET/IB : Using {devices} [RO]; OOB eth0:10.{host >> 8}.{host & 255}.1<0>",
            "Using network IB",
        )
        prefix = self._prefix(job, rank)
        return [f"{prefix}{line}\n" for line in printed]

    def _introduce(
        self, job: JobStatus, communicator: str, members: Ints, place: int, parents: Ints
    ) -> list[str]:
        size, rank = len(members), int(members[place])
        hosts = job.rank_host[members]
        local = np.flatnonzero(hosts == hosts[place]).tolist()
        pointer = blake2b(f"{communicator}/{place}".encode(), digest_size=4).hexdigest()
        device = self._device(job, rank)
        init = (
            f"ncclCommInitRankConfig comm 0x{pointer} rank {place} nranks {size} cudaDev {device} "
            f"nvmlDev {device} busId {bus_id(device)} commId {whole_hash(communicator)} - Init"
        )
        before, after = (place - 1) % size, (place + 1) % size
        channels = range(CHANNELS)
        ring = " ".join(map(str, range(size)))[:RING_CHARACTERS_MAX]
        whole = [f"Channel {each:02d}/{CHANNELS:02d} : {ring}" for each in channels]
        where = (
            f"comm 0x{pointer} rank {place} nRanks {size} nNodes {len(np.unique(hosts))} "
            f"localRanks {len(local)} localRank {local.index(place)} MNNVL 0"
        )
        return [
            f"{init} START",
            where,
            *(whole if place == 0 else ()),
            *(f"Ring {each:02d} : {before} -> {place} -> {after}" for each in channels),
            f"Trees {' '.join(_tree_text(each, parents[each], place) for each in channels)}",
            f"{init} COMPLETE",
            *self._connect(job, members, (before, place), "receive", place),
            *self._connect(job, members, (place, after), "send", place),
            *(self._hand_up(job, rank, place) if communicator in job.in_network else ()),
        ]

    def _hand_up(self, job: JobStatus, rank: int, place: int) -> list[str]:
        """The connections to the switches that add up."""
        nic = int(job.rank_nic[rank]) % self._topology.nics_per_host
        return [
            f"CollNet {channel:02d}/0 : {place} [{way}] via COLLNET/SHARP/{nic}/GDRDMA"
            for channel in range(CHANNELS)
            for way in ("send", "receive")
        ]

    def _connect(
        self, job: JobStatus, members: Ints, ends: tuple[int, int], way: str, place: int
    ) -> list[str]:
        """The connections of a ring's edge: over NVLink inside a host, else by the rank's NIC."""
        sender, receiver = (int(members[end]) for end in ends)
        devices = self._device(job, sender), self._device(job, receiver)
        edge = f"{ends[0]}[{devices[0]}] -> {ends[1]}[{devices[1]}]"
        if job.rank_host[sender] == job.rank_host[receiver]:
            by = " via P2P/CUMEM"
        else:
            nic = int(job.rank_nic[members[place]]) % self._topology.nics_per_host
            by = f" [{way}] via NET/IB/{nic}/GDRDMA"
        return [f"Channel {channel:02d}/0 : {edge}{by}" for channel in range(CHANNELS)]


def place_ranks(job: JobStatus) -> Layout:
    """Where the ranks run; the sizes of the job's dimensions do not matter for a tree."""
    return Layout(
        job=job.name,
        tensor=1,
        data=job.ranks,
        pipeline=1,
        expert=1,
        rank_host=job.rank_host,
        rank_gpu=job.rank_gpu,
        rank_nic=job.rank_nic,
    )


def _tree_text(channel: int, parents: Ints, place: int) -> str:
    """`[0] 1/3/-1->2->4`: children, the rank itself, its parent; -1 is none."""
    children = np.flatnonzero(parents == place).tolist()[:CHILDREN]
    below = "/".join(map(str, [*children, *[ROOT] * (CHILDREN - len(children))]))
    return f"[{channel}] {below}->{place}->{parents[place]}"


def whole_hash(communicator: str) -> str:
    """NCCL's own sixteen digits of a hash that Inspector cuts to fourteen.

    >>> whole_hash("0x4c2e4565980881"), whole_hash("0xab")
    ('0x4c2e456598088100', '0xab')
    """
    is_cut = len(communicator) == len("0x") + COMMUNICATOR_HEX_MAX
    return f"{communicator}00" if is_cut else communicator


def bus_id(gpu: int) -> str:
    """NCCL's way to write a PCI address: its digits in a row.

    >>> bus_id(0)
    '19000'
    """
    domain, bus, device = gpu_address(gpu).split(":")
    return f"{int(domain + bus + device.replace('.', ''), 16):x}"
