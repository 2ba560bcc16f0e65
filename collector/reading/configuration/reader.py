"""One read of everything that the audit judges."""

from __future__ import annotations

from collector.audit.facts import Facts
from collector.doors.host import Host
from collector.reading.configuration.gather import Gatherer
from collector.reading.configuration.gpus import find_gpus, read_gpus
from collector.reading.configuration.nics import RDMA, read_nics
from collector.reading.configuration.processes import read_jobs
from collector.reading.configuration.system import read_system
from collector.reading.jobs import GpuProcessFinder
from collector.reading.sysfs import list_or_nothing


class ConfigurationReader:
    """Reads a host again and again; it remembers which processes hold GPUs. For one thread."""

    def __init__(self) -> None:
        self._finder = GpuProcessFinder()

    def read(self, host: Host) -> Facts | None:
        """The host's facts; None where there is neither an RDMA device nor a GPU: no training."""
        gatherer = Gatherer(host)
        gpus = find_gpus(gatherer)
        if not gpus and not list_or_nothing(host, RDMA):
            return None
        read_system(gatherer)
        read_nics(gatherer)
        read_gpus(gatherer, gpus)
        read_jobs(gatherer, self._finder)
        return gatherer.finish()
