"""Completes a rank's GPU (containers renumber it: by its bus address) and its nearest NIC."""

from __future__ import annotations

import msgspec

from api.data.inventory.job_model import JobFound, JobRank, Origin
from api.data.inventory.records import DeviceKind
from api.data.inventory.repository import Inventory
from api.jobs.facts import Facts, nearest_devices

PATH, ADDRESS = "pci_path", "pci_bus_id"
"""Attributes of devices: their path in the PCI tree, and their address."""
ADDRESS_CHARACTERS = len("0000:00:00.0")
"""NVML writes the domain with eight digits, NCCL and the kernel with four."""


class HostDevices(msgspec.Struct, frozen=True):
    """The GPUs of one host."""

    by_address: dict[str, str]
    nearest: dict[str, list[str]]
    """For each number the RDMA devices that are nearest."""


class KnownDevices:
    """Fills in ranks' GPUs and NICs from agents' reports of their hosts. For one thread."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._hosts: dict[str, HostDevices] = {}

    def forget(self) -> None:
        self._hosts = {}

    def resolve(self, facts: Facts) -> Facts:
        """The facts with the GPUs' numbers on their hosts, where their addresses are known."""
        ranks = dict(facts.ranks)
        for key, seen in facts.ranks.items():
            if seen.host and seen.bus_id:
                address = seen.bus_id[-ADDRESS_CHARACTERS:].lower()
                if gpu := self._devices_of(seen.host).by_address.get(address):
                    ranks[key] = msgspec.structs.replace(seen, gpu=gpu)
        return msgspec.structs.replace(facts, ranks=ranks)

    def fill(self, job: JobFound) -> JobFound:
        places = tuple(self._place(rank) for rank in job.places)
        return job if places == job.places else msgspec.structs.replace(job, places=places)

    def _place(self, rank: JobRank) -> JobRank:
        if rank.device is not None or rank.host is None or rank.gpu is None:
            return rank
        near = self._devices_of(rank.host).nearest.get(rank.gpu)
        if not near:
            return rank
        origins = {**rank.origins, "device": str(Origin.PCI), "devices": str(Origin.PCI)}
        return msgspec.structs.replace(
            rank, device=near[0], devices=",".join(near), origins=origins
        )

    def _devices_of(self, host: str) -> HostDevices:
        if host not in self._hosts:
            paths: dict[DeviceKind, dict[str, str]] = {DeviceKind.GPU: {}, DeviceKind.RDMA: {}}
            by_address: dict[str, str] = {}
            for device in self._inventory.hosts.devices(host):
                if device.kind in paths and PATH in device.attributes:
                    paths[device.kind][device.device] = device.attributes[PATH]
                if device.kind is DeviceKind.GPU and ADDRESS in device.attributes:
                    address = device.attributes[ADDRESS][-ADDRESS_CHARACTERS:].lower()
                    by_address[address] = device.device
            self._hosts[host] = HostDevices(
                by_address,
                {
                    gpu: nearest_devices(path, paths[DeviceKind.RDMA])
                    for gpu, path in paths[DeviceKind.GPU].items()
                },
            )
        return self._hosts[host]
