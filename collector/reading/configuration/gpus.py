"""GPUs: their place in the PCI tree, the state of their slot, and their driver."""

from __future__ import annotations

import re

from collector.audit.settings import FIRMWARE, KIND, KIND_GPU, MODEL
from collector.contract.errors import HostError
from collector.reading.configuration.gather import Gatherer
from collector.reading.configuration.pci import DEVICES, read_slot
from collector.reading.sysfs import list_or_nothing, read_label, read_pci_path

GPUS = "proc/driver/nvidia/gpus"
GPUS_MAX = 32
"""GPUs that are read. Servers have eight or sixteen."""
PCI_DEVICES_MAX = 4_096
"""PCI devices that are searched where the driver lists no GPU."""
NVIDIA, DISPLAY_CLASSES = "0x10de", ("0x0300", "0x0302")
"""Vendor, and classes of VGA and 3D controllers."""

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_MODEL = re.compile(r"^Model:\s*(\S.*?)\s*$", re.MULTILINE)
_BIOS = re.compile(r"^Video BIOS:\s*([0-9a-fA-F.]+)\s*$", re.MULTILINE)


def find_gpus(gatherer: Gatherer) -> list[str]:
    host = gatherer.host
    listed = [name for name in list_or_nothing(host, GPUS) if _ADDRESS.fullmatch(name)]
    if listed:
        return listed[:GPUS_MAX]
    found = [
        name
        for name in list_or_nothing(host, DEVICES)[:PCI_DEVICES_MAX]
        if _ADDRESS.fullmatch(name)
        and read_label(host, f"{DEVICES}/{name}/vendor") == NVIDIA
        and read_label(host, f"{DEVICES}/{name}/class").startswith(DISPLAY_CLASSES)
    ]
    return found[:GPUS_MAX]


def read_gpus(gatherer: Gatherer, addresses: list[str]) -> None:
    """Everything about every GPU; the driver's text is in `/proc`, so no library is loaded."""
    for index, address in enumerate(addresses):
        device, place = f"gpu{index}", f"{GPUS}/{address}/information"
        gatherer.add(device, KIND, KIND_GPU, f"{GPUS}/{address}")
        path = read_pci_path(gatherer.host, f"{DEVICES}/{address}")
        if path:
            read_slot(gatherer, device, address, path)
        try:
            text = gatherer.read(place)
        except HostError as error:
            gatherer.refused(device, MODEL, error)
            continue
        for setting, pattern in ((MODEL, _MODEL), (FIRMWARE, _BIOS)):
            if found := pattern.search(text):
                gatherer.add(device, setting, found[1], place)
