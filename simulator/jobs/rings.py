"""Which member sends to which inside a communicator, as in NCCL: rings, trees, all-to-all.

A ring goes from host to host in order, and inside a host from GPU to GPU over NVLink. It leaves a
host through every NIC that the communicator's GPUs there have next to them, a *channel* each, and
arrives by the NIC of the same index: rails are not crossed. A small message goes up and down two
binary trees instead, whose depth grows with the logarithm of the hosts.

Columns of a communicator (its *members*) are in the order of the ring throughout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simulator.jobs.layout import Layout
from simulator.topology.model import Bools, Floats, Ints, Topology

TREES = 2
"""NCCL's double binary tree: a leaf of one tree is inside the other, so that each NIC sends as much
as it receives. Each tree carries half of the message."""
ROOT = -1
"""The parent of a tree's root."""


@dataclass(frozen=True, eq=False)
class Flows:
    """Flows over the network: columns as in `Pattern`, and ``share`` in place of bytes."""

    unit: Ints
    source: Ints
    target: Ints
    member: Ints
    peer: Ints
    share: Floats
    """Of what the member sends to the peer: one over the number of channels."""

    def __len__(self) -> int:
        return len(self.unit)


def is_local_edge(members: Ints, layout: Layout) -> Bools:
    host = layout.rank_host[members]
    return np.asarray(host == np.roll(host, -1, axis=1), dtype=np.bool_)


def ring_flows(members: Ints, layout: Layout) -> Flows:
    """The edges of every unit's ring that leave a host, split over the channels."""
    unit, member = np.nonzero(~is_local_edge(members, layout))
    peer = (member + 1) % members.shape[1]
    return _channelled(members, layout, (unit, member, peer))


def tree_flows(members: Ints, layout: Layout, parents: Ints) -> Flows:
    """Both ways of edges to ``parents`` on other hosts; a share is of the message, one way."""
    tree_unit, tree, child = np.nonzero(parents != ROOT)
    parent = parents[tree_unit, tree, child]
    host = layout.rank_host[members]
    crosses = host[tree_unit, child] != host[tree_unit, parent]
    unit, child, parent = tree_unit[crosses], child[crosses], parent[crosses]
    up = _channelled(members, layout, (unit, child, parent))
    down = _channelled(members, layout, (unit, parent, child))
    both = {
        name: np.concatenate([getattr(up, name), getattr(down, name)])
        for name in ("unit", "source", "target", "member", "peer", "share")
    }
    both["share"] = both["share"] / TREES
    return Flows(**both)


def leaf_edges(members: Ints, layout: Layout, parents: Ints) -> set[tuple[int, int, int]]:
    """(unit, child, parent) of the edges out of hosts to which a tree's edges lead from no other.

    What these send is their own: it waits for no other host.
    """
    unit, tree, child = np.nonzero(parents != ROOT)
    parent = parents[unit, tree, child]
    host = layout.rank_host[members]
    crosses = host[unit, child] != host[unit, parent]
    unit, tree, child, parent = (one[crosses].tolist() for one in (unit, tree, child, parent))
    into = {(u, t, host[u, p]) for u, t, p in zip(unit, tree, parent, strict=True)}
    return {
        (u, c, p)
        for u, t, c, p in zip(unit, tree, child, parent, strict=True)
        if (u, t, host[u, c]) not in into
    }


def direct_flows(members: Ints, layout: Layout, topology: Topology) -> Flows:
    """A flow for every two members on different hosts, each way: an all-to-all.

    Where leaves are rails, a GPU hands its bytes over NVLink to the GPU next to the NIC of the
    receiver's rail (NCCL's PXN), if that GPU is in the communicator; else it uses its own NIC.
    """
    host = layout.rank_host[members]
    unit, member, peer = np.nonzero(host[:, :, None] != host[:, None, :])
    nic = layout.rank_nic[members]
    source, target = nic[unit, member], nic[unit, peer]
    if any(switch.rail is not None for switch in topology.switches):
        rails = topology.nics_per_host
        reachable = np.zeros((len(members), topology.nics), dtype=np.bool_)
        reachable[np.arange(len(members))[:, None], nic] = True
        aligned = source // rails * rails + target % rails
        source = np.where(reachable[unit, aligned], aligned, source)
    return _flows(unit, source, target, member, peer)


def pair_flows(members: Ints, layout: Layout, sender: int) -> Flows:
    """From one column of each pair to the other, where they are on different hosts."""
    host, nic = layout.rank_host[members], layout.rank_nic[members]
    unit = np.flatnonzero(host[:, 0] != host[:, 1])
    receiver = 1 - sender
    member, peer = np.full(len(unit), sender), np.full(len(unit), receiver)
    return _flows(unit, nic[unit, sender], nic[unit, receiver], member, peer)


def _flows(
    unit: NDArray[np.integer],
    source: NDArray[np.integer],
    target: NDArray[np.integer],
    member: NDArray[np.integer],
    peer: NDArray[np.integer],
) -> Flows:
    """Flows that have a connection to themselves."""
    return Flows(
        unit=unit.astype(np.int32),
        source=source.astype(np.int32),
        target=target.astype(np.int32),
        member=member.astype(np.int32),
        peer=peer.astype(np.int32),
        share=np.ones(len(unit)),
    )


def _channelled(members: Ints, layout: Layout, edges: tuple[NDArray[np.integer], ...]) -> Flows:
    """Edges between hosts (unit, member, peer) split over the NICs that both ends can reach."""
    reach = _reachable_nics(members, layout)
    host = layout.rank_host[members]
    columns: list[tuple[int, int, int, int, int, float]] = []
    for unit, member, peer in zip(*(edge.tolist() for edge in edges), strict=True):
        sources = reach[unit][int(host[unit, member])]
        targets = reach[unit][int(host[unit, peer])]
        channels = min(len(sources), len(targets))
        columns.extend(
            (unit, source, target, member, peer, 1.0 / channels)
            for source, target in zip(sources[:channels], targets[:channels], strict=True)
        )
    table = np.array(columns, dtype=np.float64).reshape(-1, 6).T
    flows = _flows(*table[:5].astype(np.int32))
    return replace(flows, share=table[5].copy())


def _reachable_nics(members: Ints, layout: Layout) -> list[dict[int, list[int]]]:
    """For each unit: host to the NICs next to the unit's GPUs there, ascending."""
    hosts = layout.rank_host[members].tolist()
    nics = layout.rank_nic[members].tolist()
    reach: list[dict[int, list[int]]] = []
    for unit_hosts, unit_nics in zip(hosts, nics, strict=True):
        found: dict[int, list[int]] = {}
        for host, nic in zip(unit_hosts, unit_nics, strict=True):
            known = found.setdefault(host, [])
            if nic not in known:
                known.append(nic)
        reach.append({host: sorted(known) for host, known in found.items()})
    return reach


def switch_flows(members: Ints, layout: Layout) -> Flows:
    """What each host hands to the switches and gets from them, by its NICs; a share is of that.

    A flow goes from a host's NIC to the next host's: every NIC sends its part once and gets the sum
    once, and of a leaf's hosts one flow goes on and one comes back, as much as its switch passes on
    of what it has added up. Which host is at a flow's other end means nothing.
    """
    return ring_flows(members, layout)


# Trees -------------------------------------------------------------------------------------------


def binary_tree(nodes: int) -> Ints:
    """For each node: its parent, ROOT for node 0, the root.

    NCCL's numbering: below the root, nodes with ``k`` trailing zero bits stand ``k`` levels above
    the leaves, so neighbours in number are close in the tree and odd nodes are leaves.

    >>> binary_tree(8).tolist()
    [-1, 2, 4, 2, 0, 6, 4, 6]
    """
    parents = np.full(nodes, ROOT, dtype=np.int32)
    for node in range(1, nodes):
        bit = node & -node
        parent = (node ^ bit) | (bit << 1)
        # Past the end the parent is the next one that exists: the same without the higher bit.
        parents[node] = parent if parent < nodes else node ^ bit
    return parents


def double_trees(members: Ints, layout: Layout) -> Ints:
    """[units, TREES, members]: the column of each member's parent, or ROOT.

    The trees are over hosts, one member a host; inside a host a chain hangs on it. The second tree
    is the first one mirrored (an even number of hosts) or shifted by one (odd).
    """
    units, size = members.shape
    parents = np.full((units, TREES, size), ROOT, dtype=np.int32)
    host = layout.rank_host[members]
    is_first = np.ones((units, size), dtype=np.bool_)
    is_first[:, 1:] = host[:, 1:] != host[:, :-1]
    column = np.arange(size, dtype=np.int32)
    for unit in range(units):
        heads = column[is_first[unit]]
        count = len(heads)
        first = binary_tree(count)
        order = np.arange(count)
        renamed = count - 1 - order if count % 2 == 0 else (order + 1) % count
        for tree, name in enumerate((order, renamed)):
            has_parent = first != ROOT
            chain = column - 1
            chain[heads] = ROOT
            chain[heads[name[has_parent]]] = heads[name[first[has_parent]]]
            parents[unit, tree] = chain
    return parents


def starred(parents: Ints, members: Ints, layout: Layout) -> Ints:
    """The same trees with all of a host's members below its first one, as an NVSwitch adds up."""
    host = layout.rank_host[members]
    is_first = np.ones(host.shape, dtype=np.bool_)
    is_first[:, 1:] = host[:, 1:] != host[:, :-1]
    column = np.arange(host.shape[1], dtype=np.int32)
    head = np.maximum.accumulate(np.where(is_first, column, 0), axis=1)[:, None, :]
    found: Ints = np.where(is_first[:, None, :], parents, head).astype(np.int32)
    return found
