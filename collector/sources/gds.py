"""GPUDirect Storage: what the nvidia-fs driver counts of reads and writes into GPU memory.

`/proc/driver/nvidia-fs/stats`, as the driver's own source writes it (nvfs-stat.c of gds-nvidia-fs
2.17 to 2.25). Reads and writes are counted only where the module's `rw_stats_enabled` is 1: it is 0
by default, and each number of theirs is then missing with that as its reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from collector.contract.errors import HostError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.sources import SourceSettings

STATS = "proc/driver/nvidia-fs/stats"
TEXT_CHARS_MAX = 65_536
"""Sixteen GPUs have a line each; the whole is some 3,000 characters."""
MIB = 1 << 20
MICROSECONDS = 1e6

_LINE = re.compile(r"([A-Z][\w -]*?)\s*:\s(.*)")
_WORD = re.compile(r"([\w()/-]+)=(\d{1,20})(?!\d)")

OPERATIONS, BYTES = "fabric_gds_operations_total", "fabric_gds_bytes_total"
ERRORS, LATENCY = "fabric_gds_errors_total", "fabric_gds_latency_seconds"
MAPPING = "fabric_gds_mapping_errors_total"
OFF = (OPERATIONS, BYTES, LATENCY)
"""What the driver counts only if it is told to."""
_WANTED = (
    # Line, word of it, metric, the label's value, and what one of the driver's is of ours.
    ("Reads", "n", OPERATIONS, "read", 1.0),
    ("Writes", "n", OPERATIONS, "write", 1.0),
    ("Batches", "n", OPERATIONS, "batch", 1.0),
    ("Reads", "readMiB", BYTES, "read", MIB),
    ("Writes", "writeMiB", BYTES, "write", MIB),
    ("Reads", "err", ERRORS, "read", 1.0),
    ("Writes", "err", ERRORS, "write", 1.0),
    ("Reads", "Avg-Latency(usec)", LATENCY, "read", 1 / MICROSECONDS),
    ("Writes", "Avg-Latency(usec)", LATENCY, "write", 1 / MICROSECONDS),
    ("Bar1-map", "err", MAPPING, "bar1", 1.0),
    ("Error", "dma-map", MAPPING, "dma", 1.0),
    ("Error", "cpu-gpu-pages", MAPPING, "mixed_pages", 1.0),
)


class GpuDirectStorage:
    """The source."""

    name: ClassVar[str] = "gds"
    Settings: ClassVar[type[SourceSettings]] = SourceSettings

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._series = {
            (metric, kind): Series(metric, {"kind": kind}) for _, _, metric, kind, _ in _WANTED
        }

    def read(self, host: Host) -> Iterator[Reading]:
        try:
            text = host.read(STATS)[:TEXT_CHARS_MAX].decode("utf-8", "replace")
        except HostError as error:
            if error.reason is not UnreadReason.ABSENT:
                series = self._series[OPERATIONS, "read"]
                yield Missing(series, error.reason, error.detail)
            return
        now_ns, words = host.now_ns(), parse_words(text)
        is_off = "IO stats: Disabled" in text
        for line, word, metric, kind, factor in _WANTED:
            series, value = self._series[metric, kind], words.get((line, word))
            if value is not None:
                yield Sample(series, value * factor, now_ns)
            elif is_off and metric in OFF:
                detail = "the driver does not count: set rw_stats_enabled of nvidia_fs to 1"
                yield Missing(series, UnreadReason.NOT_SUPPORTED, detail)
            else:
                detail = f"no {word}= in a line {line!r} of {STATS}"
                yield Missing(series, UnreadReason.ABSENT, detail)


def parse_words(text: str) -> Mapping[tuple[str, str], int]:
    r"""Numbers by line and name; two lines of one name (counts, then rates) are one.

    >>> parse_words("Reads\t\t: n=3 ok=3 err=0 readMiB=48\nOps\t: Read=0")["Reads", "readMiB"]
    48
    """
    found: dict[tuple[str, str], int] = {}
    for line in text.splitlines():
        if match := _LINE.match(line):
            for name, number in _WORD.findall(match[2]):
                found.setdefault((match[1], name), int(number))
    return found


SOURCE = GpuDirectStorage
