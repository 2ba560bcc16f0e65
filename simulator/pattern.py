"""What a collective asks of the network: which rank sends how many bytes to which.

A pattern is made once for each kind of collective of a job and used at every step. It holds one
*unit* for each communicator that does it at the same time (eight rails of a data-parallel group are
eight units), and the flows of all units as columns.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from collector.contract.collective import Operation
from simulator.topology.model import Floats, Ints


class Algorithm(enum.StrEnum):
    """How NCCL moves a collective's bytes."""

    RING = "ring"
    TREE = "tree"
    DIRECT = "direct"
    """Every rank to every other at once (all-to-all), or one to one (send and receive)."""
    NVLS_TREE = "nvls_tree"
    """Added up in each host's NVSwitch, and over a tree between hosts."""
    NVLS = "nvls"
    """Added up in each host's NVSwitch, and between hosts by switches of the network."""
    COLLNET_DIRECT = "collnet_direct"
    """Added up by switches of the network (SHARP); GPUs hand their parts to those by the NICs."""
    COLLNET_CHAIN = "collnet_chain"
    """The same; inside a host the numbers go from GPU to GPU."""

    @property
    def is_tree(self) -> bool:
        return self in {Algorithm.TREE, Algorithm.NVLS_TREE}

    @property
    def is_in_network(self) -> bool:
        """Whether switches of the network add up: no rank sends to another then."""
        return self in {Algorithm.NVLS, Algorithm.COLLNET_DIRECT, Algorithm.COLLNET_CHAIN}


@dataclass(frozen=True, eq=False)
class Pattern:
    """One kind of collective of one job. Compared by identity."""

    name: str
    operation: Operation
    algorithm: Algorithm
    size_bytes: int
    """As NCCL counts it (`collector.contract.collective`)."""
    members: Ints
    """[units, ranks of a unit]: the job's rank numbers, in the order of the ring."""
    communicators: tuple[str, ...]
    """One hash for each unit, as NCCL Inspector writes it."""
    flow_unit: Ints
    flow_source: Ints
    flow_target: Ints
    flow_member: Ints
    """Column of ``members`` that sends; it sends to the next column of a ring."""
    flow_peer: Ints
    """Column of ``members`` that receives."""
    flow_bytes: Floats
    """Bytes of one whole collective."""
    flow_key: Ints
    """Identity of the connection for ECMP; constant for the life of the job."""
    is_coupled: bool
    """The flows of a unit advance together, at the pace of the slowest (rings and trees)."""
    floor_seconds: Floats
    """For each unit: its least duration (NVLink inside the hosts, launch, latency)."""
    flow_ahead_bytes: Floats | None = None
    """What each flow may send at once when an operation begins, before it waits for the others;
    None: nothing."""

    @property
    def units(self) -> int:
        return len(self.communicators)
