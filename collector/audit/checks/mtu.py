"""Packets of training NICs that are smaller than they could be."""

from __future__ import annotations

from collections.abc import Iterator

from collector.audit.checks import Check
from collector.audit.facts import Facts
from collector.audit.finding import Finding, Severity, evidence_of
from collector.audit.settings import (
    ACTIVE_MTU,
    DRIVER,
    ETHERNET,
    INFINIBAND,
    INTERFACE,
    INTERFACE_MTU,
    LINK_LAYER,
    MAX_MTU,
)

RDMA_MTU = 4096
"""The largest packet of InfiniBand and RoCE."""
ROCE_MTU_MIN = 4200
"""What an interface needs so that RoCE's packets of 4096 bytes fit with their headers."""
JUMBO_MTU = 9000
INFINIBAND_SOURCE = (
    "InfiniBand Architecture Specification: MTUs of 256 to 4096 bytes; the partition sets it"
)
ROCE_SOURCE = "NVIDIA MLNX_OFED documentation, RoCE: the RDMA MTU follows from the interface's MTU"
COST = "More packets and more headers for the same data: some percent of bandwidth."


def judge(facts: Facts) -> Iterator[Finding]:
    for nic in facts.active_fabric_nics:
        layer = facts.value(nic, LINK_LAYER)
        if layer == INFINIBAND:
            yield from judge_infiniband(facts, nic)
        elif layer == ETHERNET and facts.value(nic, DRIVER) != "efa":
            yield from judge_ethernet(facts, nic)


def judge_infiniband(facts: Facts, nic: str) -> Iterator[Finding]:
    active, most = facts.number(nic, ACTIVE_MTU), facts.number(nic, MAX_MTU)
    if active is None or active >= RDMA_MTU or (most is not None and most < RDMA_MTU):
        return
    yield Finding(
        check="mtu",
        severity=Severity.WARNING,
        device=nic,
        title=f"{nic} uses packets of {active:g} bytes, and could use {RDMA_MTU}",
        read=evidence_of([facts.get(nic, ACTIVE_MTU), facts.get(nic, MAX_MTU)]),
        expected=f"active_mtu {RDMA_MTU}",
        why="The subnet manager or the partition sets the MTU; connections use it for all data.",
        source=INFINIBAND_SOURCE,
        fix="in opensm's partitions.conf: Default=0x7fff,ipoib,mtu=5:ALL=full; then restart opensm",
        confidence=0.9,
        cost=COST,
    )


def judge_ethernet(facts: Facts, nic: str) -> Iterator[Finding]:
    """A RoCE interface that is too small for full packets, or for jumbo frames."""
    mtu, active = facts.number(nic, INTERFACE_MTU), facts.number(nic, ACTIVE_MTU)
    if mtu is None or mtu >= JUMBO_MTU:
        return
    interface = facts.value(nic, INTERFACE)
    is_small = mtu < ROCE_MTU_MIN and (active is None or active < RDMA_MTU)
    limit = "RDMA then uses smaller packets" if is_small else "RDMA's own packets still fit"
    yield Finding(
        check="mtu",
        severity=Severity.WARNING if is_small else Severity.INFO,
        device=nic,
        title=f"{interface} ({nic}) has an MTU of {mtu:g}: {limit}",
        read=evidence_of([facts.get(nic, INTERFACE_MTU), facts.get(nic, ACTIVE_MTU)]),
        expected=f"{JUMBO_MTU} or more, here and on every switch on the way",
        why=f"RoCE takes the largest of 256 … {RDMA_MTU} that fits into the interface's MTU.",
        source=ROCE_SOURCE,
        fix=f"ip link set dev {interface} mtu {JUMBO_MTU}",
        confidence=0.9 if is_small else 0.4,
        cost=COST if is_small else "None for RDMA; TCP over this interface pays for its headers.",
    )


CHECK = Check(
    name="mtu",
    reads=frozenset({ACTIVE_MTU, MAX_MTU, INTERFACE, INTERFACE_MTU, DRIVER}),
    judge=judge,
)
