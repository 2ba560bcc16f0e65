"""The leaves of each host, as labels of Kubernetes' nodes. Pure.

| label below `topology.fabricscope.io/` | its value |
|---|---|
| `pod` | hosts with the same value hang on the same leaves: the first of these by name |
| `leaf` | the switch on which all NICs of the host hang; none where they hang on several |
| `rail-0`, `rail-1`, … | the leaf on which the NIC of that rail hangs, where they hang on several |

A pod is named by a leaf and not numbered, since numbers move when a pod is added. A neighbour that
no collector polls is a leaf too, if several hosts name it: LLDP alone is enough.
"""

from __future__ import annotations

from collections import Counter

from api.fabric.model import Node, NodeKind, Topology
from collector.contract.node_labels import PREFIX, RAILS_MAX, label_value

HOSTS_OF_A_LEAF = 2
"""That name a neighbour of which nothing else is known: one could be anything."""


def labels_of(topology: Topology) -> dict[str, dict[str, str]]:
    """The labels of each host of which a cable to a leaf is known, by name."""
    first_of_pod: dict[int, str] = {}
    for name in sorted(topology.nodes):
        pod = topology.nodes[name].pod
        if pod is not None:
            first_of_pod.setdefault(pod, name)
    named = Counter(
        other
        for name, node in topology.nodes.items()
        if node.kind is NodeKind.HOST
        for other in {other for _, other in cables_of(topology, name)}
    )
    found: dict[str, dict[str, str]] = {}
    for name in sorted(topology.nodes):
        if topology.nodes[name].kind is NodeKind.HOST:
            leaves = [
                (rail, other)
                for rail, other in cables_of(topology, name)
                if is_leaf(topology.nodes[other], named[other])
            ]
            if leaves:
                found[name] = labels_for(leaves, topology, first_of_pod)
    return found


def cables_of(topology: Topology, host: str) -> list[tuple[int | None, str]]:
    found = []
    for port in topology.ports_of.get(host, ()):
        end = topology.other_end(port.id)
        if end is not None:
            found.append((port.rail, end.host))
    return found


def is_leaf(node: Node, hosts: int) -> bool:
    """Whether a neighbour of so many hosts is a switch on which hosts are meant to hang."""
    if node.kind is NodeKind.UNKNOWN:
        return hosts >= HOSTS_OF_A_LEAF
    return node.kind is NodeKind.SWITCH and node.tier == 0


def labels_for(
    leaves: list[tuple[int | None, str]], topology: Topology, first_of_pod: dict[int, str]
) -> dict[str, str]:
    """The labels of a host whose NICs, by their rails, hang on these leaves."""
    names = sorted({leaf for _, leaf in leaves})
    labels: dict[str, str] = {}
    if len(names) == 1:
        labels["leaf"] = names[0]
    else:
        rails = ((rail, leaf) for rail, leaf in leaves if rail is not None and rail < RAILS_MAX)
        labels |= {f"rail-{rail}": leaf for rail, leaf in rails}
    pods = Counter(topology.nodes[leaf].pod for _, leaf in leaves)
    # Of a host with a cable into another pod by mistake, where most of its cables are.
    pod = max(pods, key=lambda each: (pods[each], each is not None, -(each or 0)))
    labels["pod"] = names[0] if pod is None else first_of_pod[pod]
    return {f"{PREFIX}{name}": label_value(value) for name, value in sorted(labels.items())}
