"""The host itself: kernel, driver of the GPUs, memory, processors."""

from __future__ import annotations

import re
from collections import Counter

from collector.audit.settings import (
    CPU_GOVERNOR,
    HUGE_PAGES,
    IOMMU_COMMAND_LINE,
    KERNEL,
    KIND,
    KIND_HOST,
    NONE,
    NUMA_BALANCING,
    NUMA_NODES,
    NVIDIA_DRIVER,
    NVIDIA_FLAVOUR,
    PEER_MEMORY,
)
from collector.contract.errors import HostError
from collector.contract.reason import UnreadReason
from collector.reading.configuration.gather import Gatherer
from collector.reading.sysfs import list_or_nothing, read_label

PROCESSORS = "sys/devices/system/cpu"
PROCESSORS_MAX = 1_024
"""Processors whose governor is read. Two sockets have 512 at most today."""
PEER_MODULES = ("nvidia_peermem", "nv_peer_mem", "efa_nv_peermem")
"""Modules that let a NIC write to a GPU's memory: the driver's own, its predecessor, and AWS'."""

_VERSION = re.compile(r"(?:Kernel Module|Open Kernel Module for \S+)\s+([0-9]+(?:\.[0-9]+)+)")
_CHOSEN = re.compile(r"\[(\w+)\]")
_IOMMU_WORDS = re.compile(r"(?:^|\s)((?:intel_|amd_)?iommu(?:\.passthrough)?=\S+)")
_NODE = re.compile(r"node[0-9]+")


def read_system(gatherer: Gatherer) -> None:
    gatherer.add("", KIND, KIND_HOST, "")
    gatherer.text("", KERNEL, "proc/sys/kernel/osrelease")
    gatherer.text("", NUMA_BALANCING, "proc/sys/kernel/numa_balancing")
    nodes = [
        name
        for name in list_or_nothing(gatherer.host, "sys/devices/system/node")
        if _NODE.fullmatch(name)
    ]
    if nodes:
        gatherer.add("", NUMA_NODES, str(len(nodes)), "sys/devices/system/node")
    read_nvidia(gatherer)
    read_modules(gatherer)
    read_command_line(gatherer)
    read_governors(gatherer)
    path = "sys/kernel/mm/transparent_hugepage/enabled"
    if found := _CHOSEN.search(read_label(gatherer.host, path)):
        gatherer.add("", HUGE_PAGES, found[1], path)


def read_nvidia(gatherer: Gatherer) -> None:
    """Version and kind of the GPUs' driver: only the open one can export dma-buf."""
    path = "proc/driver/nvidia/version"
    try:
        text = gatherer.read(path)
    except HostError as error:
        gatherer.refused("", NVIDIA_DRIVER, error)
        return
    found = _VERSION.search(text)
    if found is None:
        gatherer.miss("", NVIDIA_DRIVER, UnreadReason.UNPARSEABLE, f"no version in {path}")
        return
    gatherer.add("", NVIDIA_DRIVER, found[1], path)
    flavour = "open" if "Open Kernel Module" in text else "proprietary"
    gatherer.add("", NVIDIA_FLAVOUR, flavour, path)


def read_modules(gatherer: Gatherer) -> None:
    path = "proc/modules"
    try:
        names = {line.partition(" ")[0] for line in gatherer.read(path).splitlines()}
    except HostError as error:
        gatherer.refused("", PEER_MEMORY, error)
        return
    found = [name for name in PEER_MODULES if name in names]
    gatherer.add("", PEER_MEMORY, ",".join(found) or NONE, path)


def read_command_line(gatherer: Gatherer) -> None:
    """The IOMMU options of the kernel's command line; nothing else of that line."""
    path = "proc/cmdline"
    try:
        words = _IOMMU_WORDS.findall(gatherer.read(path))
    except HostError as error:
        gatherer.refused("", IOMMU_COMMAND_LINE, error)
        return
    gatherer.add("", IOMMU_COMMAND_LINE, " ".join(words) or NONE, path)


def read_governors(gatherer: Gatherer) -> None:
    """How the processors choose their clock; several ways are joined, the commonest first."""
    names = [
        name
        for name in list_or_nothing(gatherer.host, PROCESSORS)
        if name.startswith("cpu") and name[3:].isdigit()
    ]
    counts: Counter[str] = Counter()
    for name in names[:PROCESSORS_MAX]:
        path = f"{PROCESSORS}/{name}/cpufreq/scaling_governor"
        if text := read_label(gatherer.host, path):
            counts[text] += 1
    if counts:
        value = ",".join(name for name, _ in counts.most_common())
        gatherer.add("", CPU_GOVERNOR, value, f"{PROCESSORS}/cpu*/cpufreq/scaling_governor")
