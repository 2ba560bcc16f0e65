"""GPUs whose nearest training NIC is at another socket, or that share one while another idles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from collector.audit.checks import Check
from collector.audit.facts import Facts, listed
from collector.audit.finding import Finding, Severity, evidence_of
from collector.audit.settings import NUMA_NODE, PCI_PATH

SOURCE = "NVIDIA, GPUDirect RDMA: devices should share an upstream PCI Express root complex"
BESIDE_HOPS = 2
"""Of the way through the PCI tree that GPU and NIC share: the root, and a port below it."""
COST = "Each byte crosses the link between sockets, which is slower than a 400 Gb/s NIC."


def judge(facts: Facts) -> Iterator[Finding]:
    nics = facts.fabric_nics
    if not nics or not facts.gpus:
        return
    yield from judge_sockets(facts, nics)
    yield from judge_sharing(facts, nics)


def judge_sockets(facts: Facts, nics: list[str]) -> Iterator[Finding]:
    node_of = {device: facts.number(device, NUMA_NODE) for device in (*facts.gpus, *nics)}
    if any(node is None for node in node_of.values()):
        return  # a virtual machine often does not report it
    nic_nodes = {node_of[nic] for nic in nics}
    gpu_nodes = {node_of[gpu] for gpu in facts.gpus}
    far = [gpu for gpu in facts.gpus if node_of[gpu] not in nic_nodes]
    if not far:
        return
    # With fewer NICs than sockets, some GPU has to be far: the machine was built that way.
    is_mistake = len(nics) >= len(gpu_nodes)
    known = [facts.get(device, NUMA_NODE) for device in (*far, *nics)]
    yield Finding(
        check="gpu_nic_affinity",
        severity=Severity.WARNING if is_mistake else Severity.INFO,
        device=far[0] if len(far) == 1 else "",
        title=f"{listed(far)}: no training NIC at the same NUMA node",
        read=evidence_of(known[:8]),
        expected="a training NIC at the NUMA node of each GPU",
        why="Traffic between GPU and NIC then crosses the link between the sockets.",
        source=SOURCE,
        fix="move a NIC to a slot of that socket; nvidia-smi topo -m shows SYS for such pairs",
        confidence=0.9 if is_mistake else 0.6,
        cost=COST,
    )


def judge_sharing(facts: Facts, nics: list[str]) -> Iterator[Finding]:
    """GPUs without a NIC of their own beside them, where there is one for each."""
    paths = {device: facts.value(device, PCI_PATH) for device in (*facts.gpus, *nics)}
    if len(nics) < len(facts.gpus) or not all(paths.values()):
        return
    nearest = {
        gpu: nearest_nics(paths[gpu], {nic: paths[nic] for nic in nics}) for gpu in facts.gpus
    }
    alone = [gpu for gpu, (hops, _) in nearest.items() if hops < BESIDE_HOPS]
    if len(alone) == len(facts.gpus):
        return  # without switches all NICs of a socket are equally near
    shared = Counter(nic for _, near in nearest.values() if len(near) == 1 for nic in near)
    crowded = [nic for nic, gpus in shared.items() if gpus > 1]
    used = {nic for hops, near in nearest.values() if hops >= BESIDE_HOPS for nic in near}
    idle = [nic for nic in nics if nic not in used]
    if not alone and not (crowded and idle):
        return
    if alone:
        title = f"{listed(alone)}: no training NIC behind the same PCI Express switch"
    else:
        title = f"Several GPUs share {listed(crowded)}, and {listed(idle)} is near to no GPU"
    known = [facts.get(device, PCI_PATH) for device in (*alone, *crowded, *idle)]
    yield Finding(
        check="gpu_nic_affinity",
        severity=Severity.WARNING,
        device=(alone or crowded)[0],
        title=title,
        read=evidence_of(known[:8]),
        expected="one training NIC behind the PCI Express switch of each GPU",
        why="NCCL gives each GPU its nearest NIC: some then carry twice the traffic of others.",
        source=SOURCE,
        fix="move the NIC to the slot beside the GPU that has none; see nvidia-smi topo -m",
        confidence=0.8,
        cost="Half of the bandwidth of the GPUs that share, and a longer way.",
    )


def nearest_nics(path: str, nics: dict[str, str]) -> tuple[int, list[str]]:
    shared = {nic: shared_hops(path, other) for nic, other in nics.items()}
    most = max(shared.values())
    return most, [nic for nic, hops in shared.items() if hops == most]


def shared_hops(one: str, other: str) -> int:
    """How many parts two paths through the PCI tree share from the root on.

    >>> shared_hops("pci0000:15/0000:15:01.0/0000:16:00.0", "pci0000:15/0000:15:01.0/0000:17:00.0")
    2
    """
    count = 0
    for mine, theirs in zip(one.split("/"), other.split("/"), strict=False):
        if mine != theirs:
            break
        count += 1
    return count


CHECK = Check(name="gpu_nic_affinity", reads=frozenset({NUMA_NODE, PCI_PATH}), judge=judge)
