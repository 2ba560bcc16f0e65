"""The disks of the machine that runs this, beside what sysfs has of each by itself."""

from pathlib import Path

import pytest

from collector.contract.model import Sample
from collector.doors.host import Host
from collector.sources import SourceSettings
from collector.sources.disks import SECTOR_BYTES, Disks

COLUMNS = {"reads_total": 0, "read_bytes_total": 2, "writes_total": 4, "written_bytes_total": 6}
"""Places in `/sys/block/DISK/stat` (Documentation/block/stat.rst)."""


def stat_of(disk: Path) -> list[int]:
    return [int(word) for word in (disk / "stat").read_text("ascii").split()]


def test_the_running_kernel_counts_alike_in_both_places() -> None:
    disks = [one for one in Path("/sys/block").glob("*") if (one / "device").exists()]
    if not disks:
        pytest.skip("this machine has no disk with hardware below it")
    before = {one.name: stat_of(one) for one in disks}
    host = Host()
    found = {
        (sample.series.metric.removeprefix("fabric_disk_"), dict(sample.series.labels)["device"]): (
            sample.value
        )
        for sample in Disks(SourceSettings()).read(host)
        if isinstance(sample, Sample) and dict(sample.series.labels).get("device")
    }
    host.close()
    for one in disks:
        after = stat_of(one)
        for name, place in COLUMNS.items():
            unit = SECTOR_BYTES if "bytes" in name else 1
            least, most = before[one.name][place] * unit, after[place] * unit
            assert least <= found[name, one.name] <= most, (one.name, name)
