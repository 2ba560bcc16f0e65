"""NICs that cannot reach GPUs' memory by themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

from collector.audit.checks import Check
from collector.audit.facts import Facts
from collector.audit.finding import Finding, Severity, evidence_of
from collector.audit.settings import (
    DRIVER,
    KERNEL,
    NONE,
    NVIDIA_DRIVER,
    NVIDIA_FLAVOUR,
    PEER_MEMORY,
)

DMA_BUF_KERNEL = (5, 12)
"""The first kernel whose RDMA drivers take memory by dma-buf."""
DMA_BUF_DRIVER = 515
"""The first open driver that gives it."""
_VERSION = re.compile(r"(\d+)\.(\d+)")


def judge(facts: Facts) -> Iterator[Finding]:
    module = facts.get("", PEER_MEMORY)
    nics = [nic for nic in facts.active_fabric_nics if facts.value(nic, DRIVER) != "efa"]
    if not nics or not facts.gpus or module is None or module.value != NONE:
        return
    flavour = facts.value("", NVIDIA_FLAVOUR)
    if not flavour or (flavour == "open" and may_use_dma_buf(facts)):
        return
    known = [facts.get("", name) for name in (NVIDIA_FLAVOUR, NVIDIA_DRIVER, KERNEL)]
    yield Finding(
        check="gpudirect",
        severity=Severity.CRITICAL,
        title="GPUDirect RDMA is missing: no peer-memory module, and no dma-buf",
        read=evidence_of([module, *known]),
        expected="nvidia_peermem loaded, or the open driver on Linux 5.12 or later (dma-buf)",
        why="Without either, NCCL copies everything through the host's memory.",
        source="NVIDIA, GPUDirect RDMA; NCCL user guide, troubleshooting: GPUDirect RDMA",
        fix="modprobe nvidia-peermem; to keep it: "
        "echo nvidia-peermem > /etc/modules-load.d/nvidia-peermem.conf",
        confidence=0.85,
        cost="A good part of the bandwidth between hosts, and load on the processors.",
    )


def may_use_dma_buf(facts: Facts) -> bool:
    """Whether kernel and driver are new enough, or do not report their versions."""
    kernel = _VERSION.match(facts.value("", KERNEL))
    driver = facts.value("", NVIDIA_DRIVER).partition(".")[0]
    is_new = kernel is None or (int(kernel[1]), int(kernel[2])) >= DMA_BUF_KERNEL
    return is_new and (not driver.isdecimal() or int(driver) >= DMA_BUF_DRIVER)


CHECK = Check(
    name="gpudirect",
    reads=frozenset({PEER_MEMORY, NVIDIA_FLAVOUR, NVIDIA_DRIVER, KERNEL, DRIVER}),
    judge=judge,
)
