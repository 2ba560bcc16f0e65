"""Shared storage as this host's own client counts it: NFS mounts, and Lustre's storage targets.

NFS from `mountstats` of process 1, or of the agent's own where that may not be read: the same for a
mount that both see. Lustre from `/proc/fs/lustre` or, newer, the kernel's debug folder, which only
root may read. What programs read from the page cache is in neither.

A host that has mounted neither costs one read of a small file and reports nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from collector.contract.errors import HostError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.contract.storage import storage_name
from collector.doors.host import Host
from collector.parsing.lustre_stats import Tally, parse_stats
from collector.parsing.mountstats import NfsMount, parse_mountstats, unescape
from collector.reading.sysfs import list_or_nothing
from collector.sources import SourceSettings

MOUNTSTATS = ("proc/1/mountstats", "proc/self/mountstats")
MOUNTS = ("proc/1/mounts", "proc/self/mounts")
LUSTRE_STATS = ("proc/fs/lustre/osc", "sys/kernel/debug/lustre/osc")
LUSTRE_FACTS = ("proc/fs/lustre/osc", "sys/fs/lustre/osc")

MOUNTS_MAX = 64
"""NFS mounts of one host; those that moved the most bytes since they were mounted are kept. A host
with an automounter has hundreds of home directories, which no job waits for."""
TARGETS_MAX = 256
"""Lustre targets of one host: a large file system has a few hundred."""
NAME_CHARS_MAX = 256
DISCOVER_SECONDS = 60
"""How long the list of Lustre's targets, their servers and their mounts is believed."""
UNITS = {"usec": 1e6, "usecs": 1e6, "nsec": 1e9, "nsecs": 1e9}

_READS = "fabric_mount_reads_total"
_METRICS = (
    *("fabric_mount_read_bytes_total", "fabric_mount_written_bytes_total", _READS),
    *("fabric_mount_read_response_seconds_total", "fabric_mount_read_queue_seconds_total"),
    *("fabric_mount_writes_total", "fabric_mount_write_response_seconds_total"),
    *("fabric_mount_write_queue_seconds_total", "fabric_mount_other_operations_total"),
    *("fabric_mount_other_response_seconds_total", "fabric_mount_retransmissions_total"),
    "fabric_mount_timeouts_total",
)
_OF_LUSTRE = tuple(
    name
    for name in _METRICS
    if not any(word in name for word in ("queue", "other", "retr", "time"))
)
_UNREAD = {
    what: Series(_READS, {"filesystem": what}) for what in ("nfs", "lustre")
}  # fmt: skip
_LEFT_OUT = Series("fabric_mount_left_out")

Key = tuple[str, str, str]
"""Storage, mount and file system: the labels of one mount."""


class Target:
    """One of Lustre's object storage targets, as this client knows it."""

    def __init__(self, folder: str, key: Key) -> None:
        self.stats = f"{folder}/stats"
        self.key = key


class Mounts:
    """The source; it keeps the series of each mount."""

    name: ClassVar[str] = "mounts"
    Settings: ClassVar[type[SourceSettings]] = SourceSettings

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._series: dict[Key, dict[str, Series]] = {}
        self._targets: list[Target] = []
        self._target_trouble: list[Missing] = []
        self._targets_left_out = 0
        self._discover_ns = 0

    def read(self, host: Host) -> Iterator[Reading]:
        seen: dict[Key, None] = {}
        mounts, troubles = self._nfs(host)
        yield from troubles
        left_out = max(0, len(mounts) - MOUNTS_MAX)
        if left_out:
            mounts = sorted(mounts, key=bytes_of, reverse=True)[:MOUNTS_MAX]
        for mount in mounts:
            key = (mount.storage, mount.mount, mount.filesystem)
            if key not in seen:
                seen[key] = None
                yield from nfs_readings(mount, self._series_of(key), host.now_ns())
        if host.monotonic_ns() >= self._discover_ns:
            self._discover_ns = host.monotonic_ns() + DISCOVER_SECONDS * 1_000_000_000
            self._find_targets(host)
        yield from self._target_trouble
        for target in self._targets:
            seen[target.key] = None
            yield from self._lustre(host, target)
        if seen:
            yield Sample(_LEFT_OUT, left_out + self._targets_left_out, host.now_ns())
        self._series = {key: self._series[key] for key in seen if key in self._series}

    def _series_of(self, key: Key) -> dict[str, Series]:
        found = self._series.get(key)
        if found is None:
            labels = dict(zip(("storage", "mount", "filesystem"), key, strict=True))
            found = self._series[key] = {name: Series(name, labels) for name in _METRICS}
        return found

    # --- NFS -----------------------------------------------------------------------------------

    def _nfs(self, host: Host) -> tuple[list[NfsMount], list[Missing]]:
        try:
            text = first_of(host, MOUNTSTATS)
        except HostError as error:
            if error.reason is UnreadReason.ABSENT:
                return [], []
            return [], [Missing(_UNREAD["nfs"], error.reason, error.detail)]
        found, troubles = [], []
        for one in parse_mountstats(text):
            if isinstance(one, NfsMount):
                found.append(one)
            else:
                troubles.append(str(one))
        if not troubles:
            return found, []
        detail = f"{len(troubles)} of {len(found) + len(troubles)} mounts; first: {troubles[0]}"
        return found, [Missing(_UNREAD["nfs"], UnreadReason.UNPARSEABLE, detail)]

    # --- Lustre --------------------------------------------------------------------------------

    def _find_targets(self, host: Host) -> None:
        """The targets, by the folder that has their counters."""
        self._targets, self._target_trouble, self._targets_left_out = [], [], 0
        mounts = lustre_mounts(host)
        if not mounts:
            return
        folder = next((one for one in LUSTRE_STATS if list_or_nothing(host, one)), "")
        names = sorted(name for name in list_or_nothing(host, folder) if "-osc-" in name)
        if not names:
            detail = f"Lustre is mounted, and there is nothing in {' or '.join(LUSTRE_STATS)}"
            detail += ": run the agent as root, with debugfs mounted"
            self._target_trouble = [Missing(_UNREAD["lustre"], UnreadReason.ABSENT, detail)]
        self._targets_left_out = max(0, len(names) - TARGETS_MAX)
        for name in names[:TARGETS_MAX]:
            target = name.partition("-osc-")[0]
            storage = storage_name(server_of_target(host, name), target)
            mount = mounts.get(target.rpartition("-OST")[0], "")
            self._targets.append(Target(f"{folder}/{name}", (storage, mount, "lustre")))

    def _lustre(self, host: Host, target: Target) -> Iterator[Reading]:
        series = self._series_of(target.key)
        try:
            tallies = parse_stats(host.read(target.stats).decode("utf-8", "replace"))
        except HostError as error:
            yield from (Missing(series[name], error.reason, error.detail) for name in _OF_LUSTRE)
            return
        if "req_waittime" not in tallies:
            detail = f"{target.stats} has no line req_waittime"
            yield Missing(series[_READS], UnreadReason.UNPARSEABLE, detail)
            return
        now_ns = host.now_ns()
        # A counter without a sample has no line: the client has sent nothing of that kind.
        for kind, what in (("read", "read_bytes"), ("write", "written_bytes")):
            answered = tallies.get(f"ost_{kind}", Tally(0, 0, "usec"))
            yield Sample(series[f"fabric_mount_{kind}s_total"], answered.samples, now_ns)
            response = series[f"fabric_mount_{kind}_response_seconds_total"]
            if answered.unit in UNITS:
                yield Sample(response, answered.total / UNITS[answered.unit], now_ns)
            else:
                detail = f"ost_{kind} is counted in {answered.unit!r}, not in usec"
                yield Missing(response, UnreadReason.UNPARSEABLE, detail)
            moved = tallies.get(f"{kind}_bytes", Tally(0, 0, "bytes"))
            yield Sample(series[f"fabric_mount_{what}_total"], moved.total, now_ns)


def first_of(host: Host, paths: tuple[str, ...]) -> str:
    """The first of these files that can be read; the last one's error if none can."""
    for path in paths[:-1]:
        try:
            return host.read(path).decode("utf-8", "replace")
        except HostError:
            continue
    return host.read(paths[-1]).decode("utf-8", "replace")


def bytes_of(mount: NfsMount) -> int:
    return (mount.read_bytes or 0) + (mount.written_bytes or 0)


def nfs_readings(mount: NfsMount, series: dict[str, Series], now_ns: int) -> Iterator[Reading]:
    for what, moved in (("read", mount.read_bytes), ("written", mount.written_bytes)):
        own = series[f"fabric_mount_{what}_bytes_total"]
        if moved is None:
            yield Missing(own, UnreadReason.UNPARSEABLE, f"{mount.mount}: no line 'bytes:'")
        else:
            yield Sample(own, moved, now_ns)
    for kind, count, work in (
        ("read", _READS, mount.read),
        ("write", "fabric_mount_writes_total", mount.write),
        ("other", "fabric_mount_other_operations_total", mount.other),
    ):
        yield Sample(series[count], work.operations, now_ns)
        response = series[f"fabric_mount_{kind}_response_seconds_total"]
        yield Sample(response, work.response_seconds, now_ns)
        queue = series.get(f"fabric_mount_{kind}_queue_seconds_total")
        if queue is not None:
            yield Sample(queue, work.queue_seconds, now_ns)
    resent = series["fabric_mount_retransmissions_total"]
    yield Sample(resent, mount.retransmissions, now_ns)
    yield Sample(series["fabric_mount_timeouts_total"], mount.timeouts, now_ns)


def lustre_mounts(host: Host) -> dict[str, str]:
    """Where Lustre is mounted, by the file system's name: `MGS:/scratch` is `scratch`."""
    try:
        text = first_of(host, MOUNTS)
    except HostError:
        return {}
    found: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split(" ")
        if len(words) > 2 and words[2] == "lustre":  # noqa: PLR2004 - the third word of a mount
            name = words[0].rpartition(":/")[2].partition("/")[0]
            found.setdefault(name, unescape(words[1])[:NAME_CHARS_MAX])
    return found


def server_of_target(host: Host, name: str) -> str:
    """The server (NID) that serves a target now, `unknown` where that cannot be read."""
    for folder in LUSTRE_FACTS:
        try:
            text = host.read(f"{folder}/{name}/ost_conn_uuid").decode("utf-8", "replace")
        except HostError:
            continue
        return text.strip()[:NAME_CHARS_MAX] or "unknown"
    return "unknown"


SOURCE = Mounts
