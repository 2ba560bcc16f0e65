"""Rail-optimised: the i-th NICs of a pod's hosts share a leaf, and a ring of them never leaves it.

This is how DGX SuperPODs are cabled, and most training clusters copy it: a pod (NVIDIA's scalable
unit, 32 hosts) has one leaf for each rail, and spines reach *all* leaves, not only those of one
rail. Separate rails are cheaper, but then one host's NIC 0 cannot reach another's NIC 1, which
all-to-all needs; spines for each rail with a core above cost a tier more than shared spines. So
traffic between hosts of a pod on one rail crosses one switch, and all other traffic goes over
spines (and cores, see `fat_tree.wire_above`).
"""

from __future__ import annotations

import numpy as np

from simulator.topology.fat_tree import check_leaf, wire_above
from simulator.topology.model import Switch
from simulator.topology.spec import ClusterSpec, Wiring, share_out


def wire(spec: ClusterSpec) -> Wiring:
    """One leaf for each rail of each pod. The last pod may be half empty, its leaves are whole."""
    pod_hosts = min(spec.hosts, spec.hosts_per_leaf or spec.switch_ports // 2)
    rails = spec.nics_per_host
    uplinks = share_out(pod_hosts, spec.oversubscription)
    check_leaf(spec, pod_hosts, uplinks)
    pods = -(-spec.hosts // pod_hosts)
    leaves = [
        Switch(f"leaf-pod{pod}-rail{rail}", tier=0, rail=rail, pod=pod)
        for pod in range(pods)
        for rail in range(rails)
    ]
    nic = np.arange(spec.hosts * rails)
    pod_of_nic = nic // rails // pod_hosts
    leaf = (pod_of_nic * rails + nic % rails).astype(np.int32)
    return wire_above(spec, leaves, leaf, uplinks)
