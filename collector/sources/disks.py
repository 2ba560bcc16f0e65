"""Disks as the kernel's block layer counts them, and the states of NVMe controllers.

Whole disks with hardware below them: partitions, loop devices, RAM disks and devices made of others
(md, dm) would count bytes twice. A page of `/proc` for all of them: one read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from collector.contract.errors import HostError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.sources import SourceSettings

DISKSTATS = "proc/diskstats"
DISKS_MAX = 64
"""Whole disks of one host: a storage server has some sixty."""
SECTOR_BYTES = 512
"""Of diskstats, whatever the disk's own sectors are (Documentation/admin-guide/iostats.rst)."""
MILLISECONDS = 1000.0
FIELDS_MIN = 14
"""Major, minor, name and eleven numbers: all kernels since 2.6 have them."""
STATES = ("new", "live", "resetting", "connecting", "deleting", "dead")
"""Of nvme_sysfs_show_state (drivers/nvme/host/sysfs.c, Linux 6.12)."""

_COLUMNS = (
    # Place in the line, metric, and what one of the kernel's is of ours.
    (3, "fabric_disk_reads_total", 1.0),
    (5, "fabric_disk_read_bytes_total", SECTOR_BYTES),
    (6, "fabric_disk_read_seconds_total", 1 / MILLISECONDS),
    (7, "fabric_disk_writes_total", 1.0),
    (9, "fabric_disk_written_bytes_total", SECTOR_BYTES),
    (10, "fabric_disk_write_seconds_total", 1 / MILLISECONDS),
    (11, "fabric_disk_in_flight", 1.0),
    (12, "fabric_disk_busy_seconds_total", 1 / MILLISECONDS),
    (13, "fabric_disk_waiting_seconds_total", 1 / MILLISECONDS),
)
_UNREAD = Series("fabric_disk_reads_total")
_LEFT_OUT = Series("fabric_disk_left_out")
_CONTROLLER = re.compile(r"(nvme\d{1,4})n\d{1,4}\Z")


class Disks:
    """The source; it keeps the series of each disk, and which names are whole disks."""

    name: ClassVar[str] = "disks"
    Settings: ClassVar[type[SourceSettings]] = SourceSettings

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._is_disk: dict[str, bool] = {}
        self._series: dict[str, list[Series]] = {}
        self._states: dict[str, dict[str, Series]] = {}

    def read(self, host: Host) -> Iterator[Reading]:
        try:
            text = host.read(DISKSTATS).decode("utf-8", "replace")
        except HostError as error:
            if error.reason is not UnreadReason.ABSENT:
                yield Missing(_UNREAD, error.reason, error.detail)
            return
        now_ns = host.now_ns()
        lines = [line.split() for line in text.splitlines()]
        names = {words[2] for words in lines if len(words) > 2}  # noqa: PLR2004 - the name is third
        self._is_disk = {name: is_disk for name, is_disk in self._is_disk.items() if name in names}
        shown = left_out = 0
        for words in lines:
            if len(words) < FIELDS_MIN or not self._is_whole(host, words[2]):
                continue
            if shown >= DISKS_MAX:
                left_out += 1
                continue
            shown += 1
            yield from self._disk(words, now_ns)
            yield from self._state(host, words[2])
        if shown:
            yield Sample(_LEFT_OUT, left_out, now_ns)

    def _is_whole(self, host: Host, name: str) -> bool:
        """Whether it has hardware of its own: then sysfs has a `device` beside its numbers."""
        known = self._is_disk.get(name)
        if known is None:
            # sysfs writes ! where a name has a slash (cciss/c0d0).
            path = f"sys/block/{name.replace('/', '!')}/device"
            known = self._is_disk[name] = host.exists(path)
        return known

    def _disk(self, words: list[str], now_ns: int) -> Iterator[Reading]:
        name = words[2]
        series = self._series.get(name)
        if series is None:
            series = [Series(metric, {"device": name}) for _, metric, _ in _COLUMNS]
            self._series[name] = series
        for own, (place, _, factor) in zip(series, _COLUMNS, strict=True):
            if words[place].isdecimal():
                yield Sample(own, int(words[place]) * factor, now_ns)
            else:
                detail = f"{words[place][:20]!r} is no number"
                yield Missing(own, UnreadReason.UNPARSEABLE, detail)

    def _state(self, host: Host, name: str) -> Iterator[Reading]:
        controller = _CONTROLLER.match(name)
        if not controller:
            return
        series = self._states.get(name)
        if series is None:
            metric = "fabric_disk_nvme_state"
            series = {one: Series(metric, {"device": name, "state": one}) for one in STATES}
            self._states[name] = series
        try:
            text = host.read(f"sys/class/nvme/{controller[1]}/state").decode("utf-8", "replace")
        except HostError as error:
            yield from (Missing(own, error.reason, error.detail) for own in series.values())
            return
        state = text.strip().partition(" ")[0]
        for one, own in series.items():
            yield Sample(own, float(one == state), host.now_ns())


SOURCE = Disks
