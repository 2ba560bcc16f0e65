"""The kinds of collectives that a job's step consists of, each made once and used at every step.

In a pipeline not every stage is busy all the time: while it fills and drains, only a range of
stages works. Each such range has patterns of its own, because a pattern's units all take part.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from collector.contract.collective import Operation
from simulator.jobs.layout import DATA, EXPERT, PIPELINE, TENSOR, Layout
from simulator.jobs.model import JobSpec
from simulator.jobs.rings import (
    TREES,
    Flows,
    direct_flows,
    double_trees,
    is_local_edge,
    leaf_edges,
    pair_flows,
    ring_flows,
    starred,
    switch_flows,
    tree_flows,
)
from simulator.pattern import Algorithm, Pattern
from simulator.topology.model import Bools, Floats, Ints, Topology

NVLINK_BYTES_PER_SECOND = 450e9 * 0.8
"""One direction of an H100's NVLink, and the share of it that NCCL reaches (nccl-tests)."""
NETWORK_STEP_SECONDS = 10e-6
"""Cost of a step between hosts beside its bytes: proxy, doorbell, wire, flush."""
NVLINK_STEP_SECONDS = 2e-6
"""The same between GPUs of a host: a flag in memory."""
BUFFER_BYTES = 16 << 20
"""What a flow may send before its receiver has passed it on: NCCL's buffer of a channel
(NCCL_BUFFSIZE, 4 MiB) for four channels that share a NIC, half of them for each tree. Measured
rings and trees of eight NCCL ranks sent 2 to 5 MB at once while one NIC was slow, over one or two
channels."""
LAUNCH_SECONDS = 20e-6
"""From the first kernel's start to its first byte."""
LOSS_BYTES = 64
"""All-reduced by data-parallel ranks at the end of a step: loss, gradient norm, token counts.
Nothing to move, but it aligns the ranks for the next step."""
LATENCY_BYTES_MAX = 4 << 10
"""A message that fits one packet: at 100 Gb/s it is on a wire for a third of a microsecond."""

WAVES = 2
"""Stretches that forward and backward are cut into without a pipeline. Each ends with one of the
tensor-parallel and expert collectives, for the hundreds of a real step."""
PIPELINE_WAVES_MAX = 4
"""Microbatches that a pipeline simulates separately; more of them travel together."""

StageRange = tuple[int, int]
"""First and last stage that take part."""


@dataclass(frozen=True, eq=False)
class Collective:
    """A pattern, and the job's own data about it."""

    pattern: Pattern
    kind: str
    group: Ints
    """For each unit: which of the layout's groups of this kind it is."""
    stage: Ints
    """For each unit: its pipeline stage; of a pair the lower one."""
    steps: int
    """Of a ring: how often each member sends."""
    chunk_bytes: float
    """Of a ring: bytes that a member sends in a step."""
    is_local: Bools
    """[units, members]: the member sends to the next one over NVLink."""
    parents: Ints | None
    """Of trees: `double_trees`."""
    depths: Ints | None
    """Of trees, shaped as `parents`: how far each member is below the root."""
    nvlink_bytes: float
    """Bytes that a rank sends over NVLink, in the mean."""
    local_bytes: float = 0.0
    """Of direct transfers, and where switches add up: the most that one rank sends over NVLink."""

    @property
    def has_flows(self) -> bool:
        return len(self.pattern.flow_unit) > 0

    @property
    def is_latency(self) -> bool:
        return self.pattern.size_bytes <= LATENCY_BYTES_MAX


def waves(spec: JobSpec) -> int:
    most = PIPELINE_WAVES_MAX if spec.pipeline > 1 else WAVES
    return min(spec.microbatches, most)


def stage_ranges(spec: JobSpec) -> list[StageRange]:
    """Which stages work in each slot of a pipeline's forward pass, in order.

    In slot ``k`` stage ``s`` works on wave ``k - s``, if there is one. Backward is the same in
    reverse order.

    >>> stage_ranges(JobSpec(name="a", hosts=(0,), pipeline=3, microbatches=2))
    [(0, 0), (0, 1), (1, 2), (2, 2)]
    """
    count, last = waves(spec), spec.pipeline - 1
    return [(max(0, slot - count + 1), min(last, slot)) for slot in range(count + last)]


def edge_range(stages: StageRange, pipeline: int) -> StageRange | None:
    """The pairs (by their lower stage) over which these stages send forward, or None."""
    first, last = stages[0], min(stages[1], pipeline - 2)
    return (first, last) if first <= last else None


class Collectives:
    """All collectives of one job, by what they are for."""

    def __init__(self, spec: JobSpec, layout: Layout, topology: Topology) -> None:
        self._spec = spec
        self._layout = layout
        self._topology = topology
        every = (0, spec.pipeline - 1)
        ranges = sorted(set(stage_ranges(spec)))
        kinds = layout.groups
        self.tensor: dict[StageRange, Collective] = {}
        self.expert: dict[StageRange, Collective] = {}
        self.forward: dict[StageRange, Collective] = {}
        self.backward: dict[StageRange, Collective] = {}
        for stages in ranges:
            if TENSOR in kinds:
                size = spec.activation_bytes
                self.tensor[stages] = self._reduction(TENSOR, Operation.ALL_REDUCE, size, stages)
            if EXPERT in kinds:
                self.expert[stages] = self._all_to_all(stages)
            edges = edge_range(stages, spec.pipeline)
            if edges is not None and edges not in self.forward:
                self.forward[edges] = self._pairs(edges, sender=0)
                self.backward[edges] = self._pairs(edges, sender=1)
        self.reduce: Collective | None = None
        self.gather: Collective | None = None
        self.exchange: Collective | None = None
        """Of data that ranks exchange at every step."""
        self.loss: Collective | None = None
        if DATA in kinds:
            if spec.gather_bytes:
                gather = Operation.ALL_GATHER
                self.exchange = self._reduction(DATA, gather, spec.gather_bytes, every)
            if spec.shares_loss:
                self.loss = self._reduction(DATA, Operation.ALL_REDUCE, LOSS_BYTES, every)
            bucket = max(1, spec.gradient_bytes // spec.buckets)
            if spec.is_sharded:
                part = max(1, bucket // layout.data)
                self.reduce = self._reduction(DATA, Operation.REDUCE_SCATTER, part, every)
                self.gather = self._reduction(DATA, Operation.ALL_GATHER, part, every)
            else:
                self.reduce = self._reduction(DATA, Operation.ALL_REDUCE, bucket, every)

    def all(self) -> list[Collective]:
        found = [*self.tensor.values(), *self.expert.values()]
        found += [*self.forward.values(), *self.backward.values()]
        for one in (self.reduce, self.gather, self.exchange, self.loss):
            found += [] if one is None else [one]
        return found

    # Kinds -------------------------------------------------------------------------------------

    def _members(
        self, kind: str, stages: StageRange
    ) -> tuple[Ints, tuple[str, ...], tuple[Ints, Ints]]:
        members = self._layout.groups[kind]
        stage = self._layout.rank_stage[members[:, 0]]
        chosen = np.flatnonzero((stage >= stages[0]) & (stage <= stages[1])).astype(np.int32)
        hashes = tuple(self._layout.hashes[kind][group] for group in chosen)
        return members[chosen], hashes, (chosen, stage[chosen])

    def _name(self, kind: str, operation: Operation, size_bytes: int, stages: StageRange) -> str:
        """For people: `llama/data/all_reduce/64`, and the stages where they are not all."""
        name = f"{self._spec.name}/{kind}/{operation.value}/{size_bytes}"
        if stages != (0, self._spec.pipeline - 1):
            name += f"/{stages[0]}-{stages[1]}"
        return name

    def _reduction(
        self, kind: str, operation: Operation, size_bytes: int, stages: StageRange
    ) -> Collective:
        """A ring, or two trees where an all-reduce is small and leaves its host.

        Or as the job's ``large_algorithm`` says, where it is large.
        """
        members, hashes, origin = self._members(kind, stages)
        size = members.shape[1]
        host = self._layout.rank_host[members]
        crosses = bool((host != host[:, :1]).any(axis=1).all())
        is_all_reduce = operation is Operation.ALL_REDUCE
        algorithm = Algorithm.RING
        if is_all_reduce and crosses:
            is_small = size_bytes < self._spec.tree_bytes_max
            algorithm = Algorithm.TREE if is_small else self._spec.large_algorithm
        steps = 2 * (size - 1) if is_all_reduce else size - 1
        chunk = size_bytes / size if is_all_reduce else float(size_bytes)
        is_local = is_local_edge(members, self._layout)
        parents = depths = None
        local_bytes = 0.0
        if algorithm.is_tree:
            parents = double_trees(members, self._layout)
            if algorithm is Algorithm.NVLS_TREE:
                parents = starred(parents, members, self._layout)
            depths = np.stack([tree_depths(parents[:, tree]) for tree in range(TREES)], axis=1)
            flows = tree_flows(members, self._layout, parents)
            flow_bytes = flows.share * size_bytes
            leaves = leaf_edges(members, self._layout, parents)
            edges = zip(
                *(one.tolist() for one in (flows.unit, flows.member, flows.peer)), strict=True
            )
            is_leaf = np.array([edge in leaves for edge in edges], dtype=np.bool_)
            ahead = np.where(is_leaf, np.minimum(flow_bytes, BUFFER_BYTES / TREES), 0.0)
            floor = _tree_floor(depths, len(members))
        elif algorithm.is_in_network:
            flows = switch_flows(members, self._layout)
            flow_bytes = flows.share * size_bytes
            ahead = np.zeros(len(flows))  # switches add up what has come, and hold nothing
            local_bytes = float(size_bytes) if is_local.any() else 0.0
            floor = _direct_floor(np.full(len(members), local_bytes), flows, len(members))
        else:
            flows = ring_flows(members, self._layout)
            flow_bytes = flows.share * steps * chunk
            ahead = np.minimum(flows.share * chunk, BUFFER_BYTES)
            floor = LAUNCH_SECONDS + steps * local_step_seconds(is_local, chunk).max(axis=1)
        pattern = _pattern(
            self._name(kind, operation, size_bytes, stages),
            (operation, algorithm, size_bytes),
            (members, hashes),
            (flows, flow_bytes),
            floor,
            ahead,
        )
        nvlink = float(is_local.mean()) * steps * chunk
        return Collective(
            pattern, kind, *origin, steps, chunk, is_local, parents, depths, nvlink, local_bytes
        )

    def _all_to_all(self, stages: StageRange) -> Collective:
        """Every rank sends every other an equal part of its bytes."""
        members, hashes, origin = self._members(EXPERT, stages)
        size = members.shape[1]
        part = self._spec.expert_bytes / size
        flows = direct_flows(members, self._layout, self._topology)
        host = self._layout.rank_host[members]
        neighbours = (host[:, :, None] == host[:, None, :]).sum(axis=2) - 1
        local_bytes = neighbours * part
        floor = _direct_floor(local_bytes.max(axis=1), flows, len(members))
        pattern = _pattern(
            self._name(EXPERT, Operation.ALL_TO_ALL, self._spec.expert_bytes, stages),
            (Operation.ALL_TO_ALL, Algorithm.DIRECT, self._spec.expert_bytes),
            (members, hashes),
            (flows, flows.share * part),
            floor,
        )
        is_local = np.asarray(neighbours > 0, dtype=np.bool_)
        nvlink, most = float(local_bytes.mean()), float(local_bytes.max())
        return Collective(
            pattern, EXPERT, *origin, 1, part, is_local, None, None, nvlink, local_bytes=most
        )

    def _pairs(self, edges: StageRange, sender: int) -> Collective:
        """Activations to the next stage (the sender is column 0), or gradients back (column 1)."""
        members, hashes, origin = self._members(PIPELINE, edges)
        # Microbatches beyond those simulated separately travel with the others.
        size = self._spec.activation_bytes * self._spec.microbatches // waves(self._spec)
        flows = pair_flows(members, self._layout, sender)
        host = self._layout.rank_host[members]
        is_local = np.repeat(host[:, :1] == host[:, 1:], 2, axis=1)
        floor = _direct_floor(np.where(is_local[:, 0], float(size), 0.0), flows, len(members))
        direction = "forward" if sender == 0 else "backward"
        pattern = _pattern(
            self._name(PIPELINE, Operation.SEND_RECV, size, edges) + f"/{direction}",
            (Operation.SEND_RECV, Algorithm.DIRECT, size),
            (members, hashes),
            (flows, flows.share * size),
            floor,
        )
        nvlink, most = float(is_local.mean()) * size / 2, float(size)
        return Collective(
            pattern, PIPELINE, *origin, 1, most, is_local, None, None, nvlink, local_bytes=most
        )


# Parts of a pattern ------------------------------------------------------------------------------


def local_step_seconds(
    is_local: Bools, chunk_bytes: float, edge_share: Floats | float = 1.0
) -> Floats:
    """Seconds of a ring's step beside its bytes on the network, for each edge.

    ``edge_share``: of NVLink's speed, what is left of each edge.
    """
    nvlink = NVLINK_STEP_SECONDS + chunk_bytes / (NVLINK_BYTES_PER_SECOND * edge_share)
    seconds: Floats = np.where(is_local, nvlink, NETWORK_STEP_SECONDS)
    return seconds


def ring_edge_share(member_share: Floats) -> Floats:
    """What is left of each edge to the next member, of what is left of each member's NVLink."""
    share: Floats = np.minimum(member_share, np.roll(member_share, -1, axis=1))
    return share


def floor_of(collective: Collective, member_share: Floats) -> Floats:
    """The least duration of each unit with what is left of its members' NVLink."""
    pattern, healthy = collective.pattern, collective.pattern.floor_seconds
    if pattern.algorithm is Algorithm.RING:
        edge_share = ring_edge_share(member_share)
        step = local_step_seconds(collective.is_local, collective.chunk_bytes, edge_share)
        return np.asarray(LAUNCH_SECONDS + collective.steps * step.max(axis=1))
    worst = member_share.min(axis=1)
    if pattern.algorithm.is_tree:
        # A healthy tree's floor has no bytes in it: the network is always slower than NVLink.
        half = pattern.size_bytes / TREES / NVLINK_BYTES_PER_SECOND
        return np.asarray(healthy + np.where(worst < 1.0, half / worst, 0.0))
    has_local = collective.is_local.any(axis=1)
    local = np.where(has_local, collective.local_bytes / NVLINK_BYTES_PER_SECOND, 0.0)
    return np.asarray(healthy + local * (1.0 / worst - 1.0))


def _tree_floor(depths: Ints, units: int) -> Floats:
    """Up and down the deepest branch, with nothing to carry."""
    deepest = int(depths.max())
    return np.full(units, LAUNCH_SECONDS + 2 * deepest * NETWORK_STEP_SECONDS)


def tree_depths(parents: Ints) -> Ints:
    """[units, members]: distance of each member from its root."""
    depth = np.zeros(parents.shape, dtype=np.int32)
    above = parents
    row = np.arange(len(parents))[:, None]
    while (above >= 0).any():
        depth += above >= 0
        above = np.where(above >= 0, parents[row, above], -1)
    return depth


def _direct_floor(local_bytes: Floats, flows: Flows, units: int) -> Floats:
    """NVLink's share of it, or one message's latency."""
    latency = np.full(units, NVLINK_STEP_SECONDS)
    latency[flows.unit] = NETWORK_STEP_SECONDS
    floor: Floats = LAUNCH_SECONDS + latency + local_bytes / NVLINK_BYTES_PER_SECOND
    return floor


def _pattern(
    name: str,
    what: tuple[Operation, Algorithm, int],
    group: tuple[Ints, tuple[str, ...]],
    traffic: tuple[Flows, Floats],
    floor_seconds: Floats,
    ahead_bytes: Floats | None = None,
) -> Pattern:
    operation, algorithm, size_bytes = what
    members, hashes = group
    flows, flow_bytes = traffic
    return Pattern(
        name=name,
        operation=operation,
        algorithm=algorithm,
        size_bytes=size_bytes,
        members=members,
        communicators=hashes,
        flow_unit=flows.unit,
        flow_source=flows.source,
        flow_target=flows.target,
        flow_member=flows.member,
        flow_peer=flows.peer,
        flow_bytes=np.asarray(flow_bytes, dtype=np.float64),
        flow_key=_flow_keys(hashes, flows),
        is_coupled=algorithm is not Algorithm.DIRECT,
        floor_seconds=np.asarray(floor_seconds, dtype=np.float64),
        flow_ahead_bytes=ahead_bytes,
    )


_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""Multipliers of splitmix64's finalizer: every bit of the input reaches every bit of the key."""


def _flow_keys(hashes: tuple[str, ...], flows: Flows) -> Ints:
    """ECMP keys by connection; all collectives of a communicator share its connections."""
    seeds = np.array(
        [int.from_bytes(blake2b(one.encode(), digest_size=8).digest()) for one in hashes],
        dtype=np.uint64,
    )
    ends = flows.source.astype(np.uint64) << np.uint64(32) | flows.target.astype(np.uint64)
    pair = flows.member.astype(np.uint64) << np.uint64(32) | flows.peer.astype(np.uint64)
    key: NDArray[np.uint64] = _mixed(_mixed(seeds[flows.unit] ^ ends) ^ pair)
    return (key >> np.uint64(33)).astype(np.int32)


def _mixed(key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    key = (key ^ (key >> np.uint64(30))) * np.uint64(_MIX[0])
    key = (key ^ (key >> np.uint64(27))) * np.uint64(_MIX[1])
    return np.asarray(key ^ (key >> np.uint64(31)), dtype=np.uint64)
