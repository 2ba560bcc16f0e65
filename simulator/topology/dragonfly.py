"""A dragonfly: groups of routers, every two routers of a group cabled, every two groups cabled.

The balance is the canonical one (a router's ports: a quarter to NICs, half inside the group, a
quarter to other groups), so that minimal paths (local, global, local) carry uniform traffic at full
rate. Groups are smaller than they could be where hosts are few; the cables that a full group would
have to its absent routers and groups then run in parallel to those that are there. All NICs of a
host hang on one router. Groups are built whole: routers without hosts may be left at the end.
"""

from __future__ import annotations

import math

import numpy as np

from collector.contract.errors import SettingsError
from simulator.topology.model import Ints, LinkKind, Switch
from simulator.topology.spec import ClusterSpec, Wiring, share_out

ROUTERS_WANTED = 4
"""Hosts are spread over so many, if they suffice: two groups of two are the least."""


def wire(spec: ClusterSpec) -> Wiring:
    """As many groups as routers of a group, about: that keeps both kinds of cables thick."""
    router_hosts = _hosts_per_router(spec)
    ports = router_hosts * spec.nics_per_host
    local_ports = share_out(2 * ports, spec.oversubscription)
    global_ports = share_out(ports, spec.oversubscription)
    if ports + local_ports + global_ports > spec.switch_ports:
        raise SettingsError(
            f"hosts_per_leaf = {spec.hosts_per_leaf}: a router would need {ports} ports to NICs,"
            f" {local_ports} inside its group and {global_ports} to others, and has"
            f" {spec.switch_ports}; take fewer hosts_per_leaf or more switch_ports"
        )
    routers = -(-spec.hosts // router_hosts)
    group = min(local_ports + 1, max(2, math.isqrt(routers - 1) + 1))
    groups = -(-routers // group)
    if groups - 1 > group * global_ports:
        raise SettingsError(
            f"hosts = {spec.hosts}: a group's {group * global_ports} global cables do not reach"
            f" {groups - 1} other groups; take more hosts_per_leaf, less oversubscription or more"
            " switch_ports"
        )
    inside = _local_cables(groups, group, local_ports)
    between = _global_cables(groups, group, global_ports)
    host = np.arange(spec.hosts * spec.nics_per_host) // spec.nics_per_host
    kinds = (LinkKind.LOCAL, LinkKind.GLOBAL)
    return Wiring(
        switches=tuple(
            Switch(f"router-group{number // group}-{number % group}", tier=0, pod=number // group)
            for number in range(groups * group)
        ),
        nic_switch=(host // router_hosts).astype(np.int32),
        near=np.concatenate([inside[0], between[0]]),
        far=np.concatenate([inside[1], between[1]]),
        kind=np.repeat(np.array(kinds, dtype=np.int8), [len(inside[0]), len(between[0])]),
    )


def _hosts_per_router(spec: ClusterSpec) -> int:
    """As the spec asks, or as a quarter of a router's ports and `ROUTERS_WANTED` allow."""
    if spec.hosts_per_leaf:
        return min(spec.hosts_per_leaf, spec.hosts)
    fitting = spec.switch_ports // 4 // spec.nics_per_host
    return max(1, min(fitting, -(-spec.hosts // ROUTERS_WANTED)))


def _local_cables(groups: int, group: int, ports: int) -> tuple[Ints, Ints]:
    """All pairs of routers inside each group; a router's ports are dealt evenly to its peers."""
    one, other = np.triu_indices(group, k=1)
    parallel = ports // (group - 1)
    first = np.repeat(np.arange(groups) * group, len(one) * parallel)
    near = np.tile(np.repeat(one, parallel), groups) + first
    far = np.tile(np.repeat(other, parallel), groups) + first
    return near.astype(np.int32), far.astype(np.int32)


def _global_cables(groups: int, group: int, ports: int) -> tuple[Ints, Ints]:
    """All pairs of groups, equally many cables each, dealt to the routers in turn at both ends.

    A group numbers its cables by the other group, then within the pair; cable ``n`` is on router
    ``n % group``, so no router has more than its ``ports``.
    """
    if groups == 1:
        return np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
    parallel = group * ports // (groups - 1)
    low, high = (np.repeat(ends, parallel) for ends in np.triu_indices(groups, k=1))
    within = np.tile(np.arange(parallel), len(low) // parallel)
    # Seen from the lower group, the higher one is one place nearer: a group skips itself.
    near = low * group + ((high - 1) * parallel + within) % group
    far = high * group + (low * parallel + within) % group
    return near.astype(np.int32), far.astype(np.int32)
