"""Where ranks run, and which ranks form a group.

Ranks fill the GPUs of the job's hosts in order: tensor-parallel neighbours are next to each other
(one host, one NVLink domain), then come data-parallel copies, then pipeline stages. Experts are
spread over neighbouring data-parallel copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np

from collector.contract.collective import COMMUNICATOR_HEX_MAX
from collector.contract.errors import SettingsError
from simulator.jobs.model import JobSpec
from simulator.topology.model import Ints, Topology

TENSOR, DATA, PIPELINE, EXPERT = "tensor", "data", "pipeline", "expert"
"""Kinds of communicators. A pipeline's are pairs of neighbouring stages, as PyTorch makes them for
sends and receives; the other kinds lie within one stage."""


@dataclass(frozen=True, eq=False)
class Layout:
    """A job's ranks on a cluster. Columns have one value for each rank."""

    job: str
    tensor: int
    data: int
    pipeline: int
    expert: int
    rank_host: Ints
    rank_gpu: Ints
    rank_nic: Ints
    """The NIC nearest to the rank's GPU, number in the cluster."""

    @property
    def ranks(self) -> int:
        return len(self.rank_host)

    @cached_property
    def rank_stage(self) -> Ints:
        return (np.arange(self.ranks) // (self.tensor * self.data)).astype(np.int32)

    @cached_property
    def rank_copy(self) -> Ints:
        """The data-parallel copy of the model of each rank; a copy's ranks share batches."""
        return (np.arange(self.ranks) // self.tensor % self.data).astype(np.int32)

    @cached_property
    def groups(self) -> dict[str, Ints]:
        """Kind to [groups, ranks of a group], stage by stage.

        Only kinds with groups of two or more. A pipeline's pairs come edge by edge, the lower stage
        first; the stage of a pair is its lower one's.
        """
        grid = np.arange(self.ranks, dtype=np.int32).reshape(self.pipeline, self.data, self.tensor)
        by_lane = grid.transpose(0, 2, 1)
        pairs = np.stack([grid[:-1].reshape(-1), grid[1:].reshape(-1)], axis=1)
        groups = {
            TENSOR: grid.reshape(-1, self.tensor),
            DATA: by_lane.reshape(-1, self.data),
            PIPELINE: pairs,
            EXPERT: by_lane.reshape(-1, self.expert),
        }
        return {
            kind: np.ascontiguousarray(members)
            for kind, members in groups.items()
            if members.shape[0] > 0 and members.shape[1] > 1
        }

    @cached_property
    def hashes(self) -> dict[str, tuple[str, ...]]:
        return {
            kind: tuple(communicator_hash(self.job, kind, index) for index in range(len(members)))
            for kind, members in self.groups.items()
        }

    def communicators(self) -> dict[str, tuple[str, Ints]]:
        """Hash to kind and ranks, for all groups."""
        return {
            one: (kind, ranks)
            for kind, members in self.groups.items()
            for one, ranks in zip(self.hashes[kind], members, strict=True)
        }


def communicator_hash(job: str, kind: str, index: int) -> str:
    """A hash as NCCL Inspector would print it: the same in every run of the same job.

    >>> communicator_hash("llama", "data", 0)
    '0xef1333926d5449'
    """
    digest = blake2b(f"{job}/{kind}/{index}".encode(), digest_size=8).hexdigest()
    return "0x" + digest[:COMMUNICATOR_HEX_MAX]


def lay_out(spec: JobSpec, topology: Topology) -> Layout:
    """The ranks of a job on its hosts' GPUs; a SettingsError if the numbers do not fit."""
    _check_hosts(spec, topology)
    _check_numbers(spec)
    ranks = len(spec.hosts) * topology.gpus_per_host
    per_copy = spec.tensor * spec.pipeline
    if ranks % per_copy:
        raise SettingsError(
            f"job {spec.name}: {ranks} GPUs are no multiple of tensor {spec.tensor} x pipeline "
            f"{spec.pipeline}"
        )
    data = ranks // per_copy
    if data % spec.expert:
        raise SettingsError(
            f"job {spec.name}: expert {spec.expert} does not divide the {data} data-parallel copies"
        )
    if ranks == 1:
        raise SettingsError(f"job {spec.name}: one GPU has no peer; give the job two GPUs or more")
    host = np.repeat(np.array(spec.hosts, dtype=np.int32), topology.gpus_per_host)
    slot = np.tile(np.arange(topology.gpus_per_host, dtype=np.int32), len(spec.hosts))
    nic = slot * topology.nics_per_host // topology.gpus_per_host
    return Layout(
        job=spec.name,
        tensor=spec.tensor,
        data=data,
        pipeline=spec.pipeline,
        expert=spec.expert,
        rank_host=host,
        rank_gpu=(host * topology.gpus_per_host + slot).astype(np.int32),
        rank_nic=(host * topology.nics_per_host + nic).astype(np.int32),
    )


def _check_hosts(spec: JobSpec, topology: Topology) -> None:
    if not spec.hosts:
        raise SettingsError(f"job {spec.name}: no hosts")
    strangers = [host for host in spec.hosts if not 0 <= host < topology.hosts]
    if strangers:
        raise SettingsError(
            f"job {spec.name}: no host {strangers[0]} in a cluster of {topology.hosts}"
        )
    if len(set(spec.hosts)) < len(spec.hosts):
        raise SettingsError(f"job {spec.name}: a host is named twice")


def _check_numbers(spec: JobSpec) -> None:
    for name in ("tensor", "pipeline", "expert", "buckets", "microbatches"):
        if getattr(spec, name) < 1:
            raise SettingsError(
                f"job {spec.name}: {name} is {getattr(spec, name)}, expected 1 or more"
            )
    for name in ("gradient_bytes", "activation_bytes", "expert_bytes", "compute_seconds"):
        if getattr(spec, name) <= 0:
            raise SettingsError(
                f"job {spec.name}: {name} is {getattr(spec, name)}, expected more than 0"
            )
