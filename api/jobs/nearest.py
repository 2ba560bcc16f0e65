"""Which NIC a rank uses where nobody says it: the one nearest to its GPU in the PCI tree."""

from __future__ import annotations

import msgspec

from api.inventory.job_model import JobFound, JobRank, Origin
from api.inventory.repository import Inventory
from api.inventory.tables import DeviceKind
from api.jobs.facts import nearest_devices

PATH = "pci_path"
"""The attribute of devices and GPUs that holds their way through the PCI tree."""


class NearestDevices:
    """Fills in ranks' NICs, by what agents say of their hosts' PCI trees. For one thread."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._near: dict[str, dict[str, list[str]]] = {}

    def forget(self) -> None:
        """Look at the hosts anew: agents may have said more since."""
        self._near = {}

    def fill(self, job: JobFound) -> JobFound:
        """The job, with the nearest NICs of those ranks whose NIC nobody said."""
        places = tuple(self._place(rank) for rank in job.places)
        return job if places == job.places else msgspec.structs.replace(job, places=places)

    def _place(self, rank: JobRank) -> JobRank:
        if rank.device is not None or rank.host is None or rank.gpu is None:
            return rank
        near = self._near_of(rank.host).get(rank.gpu)
        if not near:
            return rank
        origins = {**rank.origins, "device": str(Origin.PCI), "devices": str(Origin.PCI)}
        return msgspec.structs.replace(
            rank, device=near[0], devices=",".join(near), origins=origins
        )

    def _near_of(self, host: str) -> dict[str, list[str]]:
        """For each GPU of a host, by its index, the RDMA devices that are nearest to it."""
        if host not in self._near:
            paths: dict[DeviceKind, dict[str, str]] = {DeviceKind.GPU: {}, DeviceKind.RDMA: {}}
            for device in self._inventory.devices(host):
                if device.kind in paths and PATH in device.attributes:
                    paths[device.kind][device.device] = device.attributes[PATH]
            self._near[host] = {
                gpu: nearest_devices(path, paths[DeviceKind.RDMA])
                for gpu, path in paths[DeviceKind.GPU].items()
            }
        return self._near[host]
