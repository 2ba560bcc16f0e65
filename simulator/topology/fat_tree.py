"""A fat tree: leaves, spines, and cores where there are too many leaves for spines alone.

All NICs of a host hang on one leaf, the switch of its rack: that is the difference from the
rail-optimised kind, which shares the tiers above the leaves (`wire_above`). Leaves may be
oversubscribed, spines never are: sites save at the leaf, where they control which hosts are
neighbours.
"""

from __future__ import annotations

import numpy as np

from collector.contract.errors import SettingsError
from simulator.topology.model import Ints, LinkKind, Switch
from simulator.topology.spec import ClusterSpec, Wiring, share_out


def wire(spec: ClusterSpec) -> Wiring:
    """Leaves with whole hosts on them. The last leaf may be half empty, its uplinks are whole."""
    fitting = max(1, spec.switch_ports // 2 // spec.nics_per_host)
    # Two leaves at least, unless the spec sets hosts_per_leaf: one leaf alone is no tree.
    leaf_hosts = min(spec.hosts, spec.hosts_per_leaf or min(fitting, -(-spec.hosts // 2)))
    ports = leaf_hosts * spec.nics_per_host
    uplinks = share_out(ports, spec.oversubscription)
    check_leaf(spec, ports, uplinks)
    leaves = [Switch(f"leaf-{leaf}", tier=0) for leaf in range(-(-spec.hosts // leaf_hosts))]
    nic = np.arange(spec.hosts * spec.nics_per_host)
    leaf = (nic // spec.nics_per_host // leaf_hosts).astype(np.int32)
    return wire_above(spec, leaves, leaf, uplinks)


def check_leaf(spec: ClusterSpec, down: int, up: int) -> None:
    """Refuse a leaf that would need more ports than a switch has."""
    if down + up > spec.switch_ports:
        raise SettingsError(
            f"hosts_per_leaf = {spec.hosts_per_leaf}: a leaf would need {down} ports down and {up}"
            f" up, and has {spec.switch_ports}; take fewer hosts_per_leaf, more oversubscription or"
            " more switch_ports"
        )


def wire_above(spec: ClusterSpec, leaves: list[Switch], nic_switch: Ints, uplinks: int) -> Wiring:
    """Everything above the leaves: spines that reach all of them, or pods of leaves and cores."""
    if len(leaves) <= spec.switch_ports:
        return _wire_two_tiers(spec, leaves, nic_switch, uplinks)
    return _wire_three_tiers(spec, leaves, nic_switch, uplinks)


def fewest(uplinks: int, lower: int, ports: int) -> int:
    """How many upper switches: the fewest that divide the uplinks and have the ports for them.

    Each of ``lower`` switches then has equally many cables to each. At least two, where there are
    two uplinks: a fabric must survive the loss of one switch. For 8, 16, 24 and 32 leaves
    of 32 uplinks this gives 4, 8, 16 and 16 spines of 64 ports, as NVIDIA's tables for 1 to 4
    scalable units do.

    >>> [fewest(32, lower, 64) for lower in (8, 16, 24, 32)]
    [4, 8, 16, 16]
    """
    fitting = (
        upper
        for upper in range(min(2, uplinks), uplinks + 1)
        if uplinks % upper == 0 and lower * (uplinks // upper) <= ports
    )
    return next(fitting)


def mesh(lower: Ints, upper: Ints, parallel: int) -> tuple[Ints, Ints]:
    """Cables from each lower to each upper switch; parallel ones side by side, as routing needs."""
    near = np.repeat(lower, len(upper) * parallel)
    far = np.tile(np.repeat(upper, parallel), len(lower))
    return near, far


def _wire_two_tiers(
    spec: ClusterSpec, leaves: list[Switch], nic_switch: Ints, uplinks: int
) -> Wiring:
    count = fewest(uplinks, len(leaves), spec.switch_ports) if len(leaves) > 1 else 0
    first = len(leaves)
    lower = np.arange(first, dtype=np.int32)
    upper = np.arange(first, first + count, dtype=np.int32)
    near, far = mesh(lower, upper, uplinks // count if count else 1)
    spines = [Switch(f"spine-{number}", tier=1) for number in range(count)]
    return Wiring(
        switches=(*leaves, *spines),
        nic_switch=nic_switch,
        near=near,
        far=far,
        kind=np.full(len(near), LinkKind.FABRIC_UP, dtype=np.int8),
    )


def _wire_three_tiers(
    spec: ClusterSpec, leaves: list[Switch], nic_switch: Ints, uplinks: int
) -> Wiring:
    """Blocks of leaves with spines of their own, and cores between the blocks.

    Spines have half of their ports down and as many up. The n-th spines of all blocks share the
    n-th plane of cores, so a flow's spine on the way up fixes the one on the way down.
    """
    half = spec.switch_ports // 2
    blocks = -(-len(leaves) // half)
    spines_per_block = fewest(uplinks, half, half)
    rising = half * uplinks // spines_per_block
    if blocks > spec.switch_ports:
        raise SettingsError(
            f"hosts = {spec.hosts}: {len(leaves)} leaves need more than three tiers of switches of"
            f" {spec.switch_ports} ports; take more hosts_per_leaf or more switch_ports"
        )
    cores_per_plane = fewest(rising, blocks, spec.switch_ports)
    first_spine = len(leaves)
    first_core = first_spine + blocks * spines_per_block
    ends = []
    leaf = np.arange(len(leaves), dtype=np.int32)
    spine = np.arange(first_spine, first_core, dtype=np.int32).reshape(blocks, spines_per_block)
    for block in range(blocks):
        inside = leaf[block * half : (block + 1) * half]
        ends.append(mesh(inside, spine[block], uplinks // spines_per_block))
    for plane in range(spines_per_block):
        start = first_core + plane * cores_per_plane
        core = np.arange(start, start + cores_per_plane, dtype=np.int32)
        ends.append(mesh(spine[:, plane], core, rising // cores_per_plane))
    near = np.concatenate([near for near, _ in ends])
    return Wiring(
        switches=(
            *leaves,
            *(
                Switch(f"spine-block{block}-{number}", tier=1)
                for block in range(blocks)
                for number in range(spines_per_block)
            ),
            *(
                Switch(f"core-plane{plane}-{number}", tier=2)
                for plane in range(spines_per_block)
                for number in range(cores_per_plane)
            ),
        ),
        nic_switch=nic_switch,
        near=near,
        far=np.concatenate([far for _, far in ends]),
        kind=np.full(len(near), LinkKind.FABRIC_UP, dtype=np.int8),
    )
