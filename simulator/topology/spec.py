"""The specification of a cluster, and a shape's answer in cables.

A shape (`rail`, `fat_tree`, …) decides only which ports are cabled together; `build` checks the
specification and turns the answer into a `Topology`. Both use these two records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.topology.model import Fabric, Ints, LinkKind, Switch

OPPOSITE = {
    LinkKind.FABRIC_UP: LinkKind.FABRIC_DOWN,
    LinkKind.FABRIC_DOWN: LinkKind.FABRIC_UP,
    LinkKind.LOCAL: LinkKind.LOCAL,
    LinkKind.GLOBAL: LinkKind.GLOBAL,
}
"""The kind of a cable between switches, seen from its other end."""


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """A cluster as its buyer would order it. `simulator.topology.build.build` checks it."""

    topology: str = "rail"
    """`rail`, `fat_tree`, `dragonfly` or `single`."""
    hosts: int = 32
    gpus_per_host: int = 8
    nics_per_host: int = 8
    speed: str = "NDR"
    """Of NICs' ports and of cables between switches: a name of `SPEEDS` that fits ``fabric``."""
    fabric: Fabric = Fabric.INFINIBAND
    oversubscription: float = 1.0
    """Of leaves: bandwidth towards hosts divided by bandwidth towards the rest. In a dragonfly it
    thins out the cables between routers; one switch has nothing to oversubscribe."""
    hosts_per_leaf: int | None = None
    """Hosts with a NIC on the same leaf (or router). None: as many as leave half of the leaf's
    ports for the other side, a quarter in a dragonfly."""
    switch_ports: int = 64
    """At ``speed``: an NDR (QM9700) or 800GbE (SN5600) switch has 64."""


@dataclass(frozen=True, eq=False)
class Wiring:
    """A shape's answer. Cables are columns, each cable once; `build` adds the other direction."""

    switches: tuple[Switch, ...]
    nic_switch: Ints
    near: Ints
    """For each cable between switches: its lower end, or one of its ends."""
    far: Ints
    kind: NDArray[np.int8]
    """The `LinkKind` from near to far."""


def share_out(total: int, oversubscription: float) -> int:
    """Cables that stand against ``total`` ports: rounded up, so never thinner than requested.

    >>> share_out(32, 1.0), share_out(32, 3.0), share_out(1, 4.0)
    (32, 11, 1)
    """
    return max(1, int(np.ceil(total / oversubscription - 1e-9)))
