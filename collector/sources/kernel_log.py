"""What the kernel and its drivers say when hardware fails: `/dev/kmsg`, by a table of patterns.

A NIC whose firmware has stopped is `up`, and dead: only its driver says so. The same for a PCIe
link that was cut off, a disk that is reset, a rank that ran out of memory. Lines that
`collector/tables/kernel_messages.toml` knows are counted by kind and thing, and the first of each
is an event at once; repeats are one event in EVENT_SECONDS with their number. All others are not
kept, and none is sent.

Only lines of the kernel itself count: a program that may write to `/dev/kmsg` (root) can write any
text. The times of records drift against the wall clock; between two looks they are held to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import msgspec

from collector.contract.errors import HostError
from collector.contract.kernel import (
    AGE,
    COMPONENT,
    COUNT,
    FATAL,
    KERNEL_MESSAGE,
    MESSAGE,
    MESSAGES,
    NETDEV,
    NIC_COMPONENTS,
    NIC_LIVES,
    SEVERITY,
)
from collector.contract.model import Event, Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.contract.verdict import Reason
from collector.doors.host import Host
from collector.doors.kernel_log import KernelNews
from collector.parsing.last_words import LAST_WORDS
from collector.reading.jobs import GpuProcessFinder, choose_gpus, has_gpus, read_process
from collector.reading.kernel_log import KERNEL, Record, Said, explain, parse_record, understand
from collector.reading.pci_devices import PciDevices, Thing
from collector.sources import SourceSettings

RECORDS_PER_LOOK = 2_000
"""Records that are read at once: a boot writes some thousands. More wait for the next look."""
RECENT_SECONDS = 60
"""Before the first start of an agent on a boot: older lines are no news. A later start goes on
where the last one ended."""
EVENT_SECONDS = 300
"""From one event of a kind about a thing to the next, where it repeats."""
STANDING_EVENT_SECONDS = 30
"""The same of what stays as it is (a NIC whose firmware is dead), whether or not it is said again:
windows of detectors have some minutes."""
STANDING_SECONDS = 86_400
"""How long such a state is believed without another word."""
SERIES_MAX = 256
"""Kinds and things that are counted one by one; those beyond it share a series for each kind."""
RANKS_MAX = 1_024
"""Processes whose rank is remembered after their end: the kernel names those that it killed."""
FIND_SECONDS = 10
"""From one search for ranks to the next."""

RECORDS = "fabric_host_kernel_log_records_total"
DROPPED = "fabric_host_kernel_log_dropped_total"
OVERWRITTEN, MALFORMED = "overwritten", "malformed"
OTHER = "other"
OOM_KILL = "oom_kill"
PERMISSION = "run the agent with CAP_SYSLOG, or set kernel.dmesg_restrict to 0"


NOUNS = {
    "nic": ("NIC", "A NIC"),
    "pcie": ("PCI device", "A PCI device"),
    "gpu": ("GPU", "A GPU"),
    "nvswitch": ("NVSwitch", "An NVSwitch"),
    "memory": ("Memory controller", "The host's memory or processor"),
    "disk": ("Disk", "A disk"),
    "clock": ("Clock", "The host's clock"),
}
"""How a sentence names a component with its device, and without."""


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `kernel_log`."""

    look_seconds: float = 1.0
    """From one look to the next: how late an event is. A look that finds nothing is one call."""
    programs: bool = False
    """Also believe lines that programs wrote to the log: to try alerts with a made-up line."""


class Known(msgspec.Struct, kw_only=True):
    """A kind of message about one thing: how often it came, and what was said of it last."""

    series: Series
    count: int = 0
    told: int = 0
    """Of ``count``, what events have reported."""
    told_ns: int = 0
    """Of the last event, by the monotonic clock."""
    since_ns: int = 0
    """Of the first message, by the wall clock."""


class Standing(msgspec.Struct, kw_only=True):
    """A thing that is dead until it is reset, and the event to send again meanwhile."""

    event: Event
    since_ns: int
    seen_ns: int
    """Of the last message, by the wall clock: a state outlives a restart of the agent."""
    told_ns: int = 0


class KernelLogSource:
    """The source; it keeps its place in the log, its counts, and which ranks there were."""

    name: ClassVar[str] = "kernel_log"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self.look_seconds = settings.look_seconds
        self._programs = settings.programs
        self._records = Series(RECORDS)
        self._missing = Series(MESSAGES)
        self._dropped = {why: Series(DROPPED, {"why": why}) for why in (OVERWRITTEN, MALFORMED)}
        self._drops = dict.fromkeys(self._dropped, 0)
        self._taken = 0
        self._sequence: int | None = None
        self._skip_before_ns: int | None = None
        self._looked_ns = 0
        self._known: dict[tuple[str, ...], Known] = {}
        self._standing: dict[str, Standing] = {}
        self._devices = PciDevices()
        self._finder = GpuProcessFinder()
        self._find_ns = 0
        self._ranks: dict[int, dict[str, str]] = {}
        self._killed: dict[str, None] = {}
        """Processes whose end was reported: the kernel writes up to three lines about one."""
        self._trouble: HostError | None = None

    def save_state(self) -> dict[str, Any]:
        """The place in the log, and what is dead: it is still so after a restart of the agent."""
        if self._sequence is None:
            return {}
        standing = {key: msgspec.to_builtins(each) for key, each in self._standing.items()}
        return {"sequence": self._sequence, "standing": standing}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on behind the last record that was read on this boot."""
        match state:
            case {"sequence": int(sequence), "standing": dict(standing)} if sequence >= 0:
                self._sequence = sequence
                try:
                    self._standing = msgspec.convert(standing, dict[str, Standing])
                except msgspec.ValidationError:
                    self._standing = {}
                for each in self._standing.values():
                    each.told_ns = 0
            case _:
                pass

    def read(self, host: Host) -> Iterator[Reading]:
        """Counts by kind and thing; events of what came since the last look."""
        if not host.exists("dev/kmsg"):
            if host.exists("proc/kmsg"):
                detail = "there is no /dev/kmsg: a container has it only if it is given"
                yield Missing(self._missing, UnreadReason.ABSENT, detail)
            return
        self._find_ranks(host)
        yield from self.look(host)
        if self._trouble is not None:
            detail = f"{self._trouble.detail}; {PERMISSION}"
            yield Missing(self._missing, self._trouble.reason, detail)
            return
        time_ns = host.now_ns()
        yield Sample(self._records, self._taken, time_ns)
        for why, series in self._dropped.items():
            yield Sample(series, self._drops[why], time_ns)
        for known in self._known.values():
            yield Sample(known.series, known.count, time_ns)

    def look(self, host: Host) -> Iterable[Reading]:
        """Events of the records since the last look, and again of what is still dead."""
        try:
            news = host.kernel_news(RECORDS_PER_LOOK)
        except HostError as error:
            if error.reason is not UnreadReason.ABSENT:
                self._trouble = error
            return []
        self._trouble = None
        if self._sequence is None and self._skip_before_ns is None:
            self._skip_before_ns = news.now_ns - RECENT_SECONDS * NS
        events = [event for data in news.records for event in self._take(host, data, news)]
        if len(news.records) < RECORDS_PER_LOOK:
            self._looked_ns = news.now_ns
        return [*events, *self._tell_standing(host, news.now_ns)]

    # One record ----------------------------------------------------------------------------------

    def _take(self, host: Host, data: bytes, news: KernelNews) -> Iterator[Event]:
        record = parse_record(data)
        if record is None:
            self._drops[MALFORMED] += 1
            return
        if self._sequence is not None:
            if record.sequence <= self._sequence:
                return
            self._drops[OVERWRITTEN] += record.sequence - self._sequence - 1
        self._sequence = record.sequence
        self._taken += 1
        if record.facility != KERNEL and not self._programs:
            return
        said = understand(record.text)
        if said is None:
            return
        time_ns = news.boot_ns + record.time_us * 1_000
        if self._looked_ns:
            time_ns = max(time_ns, self._looked_ns)
        elif self._skip_before_ns is not None and time_ns < self._skip_before_ns:
            return
        yield from self._note(host, record, said, min(time_ns, news.now_ns))

    def _note(self, host: Host, record: Record, said: Said, time_ns: int) -> Iterator[Event]:
        thing = self._thing_of(host, record, said)
        rank = self._rank_of(host, said)
        labels = dict(thing.labels) if thing is not None else bare_labels(said, record)
        if said.kind.component == "process":
            labels = {name: rank[name] for name in ("job", "rank", "gpu") if rank.get(name)}
        known = self._count(said, labels)
        if not known.since_ns:
            known.since_ns = time_ns
        known.count += 1
        if said.kind.kind in NIC_LIVES:
            self._standing.pop(labels.get("device", ""), None)
        event = self._event(said, rank | labels, thing, known, time_ns)
        if is_standing(said) and thing is not None and "device" in labels:
            key = labels["device"]
            before = self._standing.get(key)
            self._standing[key] = Standing(
                event=event,
                since_ns=before.since_ns if before is not None else time_ns,
                seen_ns=time_ns,
                told_ns=before.told_ns if before is not None else 0,
            )
        if is_rank_killed(said, rank) and rank["pid"] not in self._killed:
            self._killed[rank["pid"]] = None
            while len(self._killed) > RANKS_MAX:
                del self._killed[next(iter(self._killed))]
            yield last_words(said, rank, time_ns)
        if said.kind.severity == "info" or not self._is_due(host, known):
            return
        known.told, known.told_ns = known.count, host.monotonic_ns()
        yield event

    def _is_due(self, host: Host, known: Known) -> bool:
        return not known.told or host.monotonic_ns() - known.told_ns >= EVENT_SECONDS * NS

    def _count(self, said: Said, labels: Mapping[str, str]) -> Known:
        kind = said.kind
        own = {name: labels[name] for name in ("device", "gpu", "job", "rank") if name in labels}
        key = (kind.kind, *own.values(), said.words.get("xid", ""), said.words.get("sxid", ""))
        if key not in self._known and len(self._known) >= SERIES_MAX:
            own, key = {"device": OTHER}, (kind.kind, OTHER)
        if key not in self._known:
            fixed = {"kind": kind.kind, "component": kind.component, "severity": kind.severity}
            number = said.words.get("xid") or said.words.get("sxid") or ""
            code = {"code": number} if number and OTHER not in own.values() else {}
            self._known[key] = Known(series=Series(MESSAGES, fixed | own | code))
        return self._known[key]

    # About whom ----------------------------------------------------------------------------------

    def _thing_of(self, host: Host, record: Record, said: Said) -> Thing | None:
        words = said.words
        for address in (words.get("pci", ""), record.pci):
            if address and (thing := self._devices.at(host, address)):
                return thing
        unit = words.get("unit") or words.get("disk") or ""
        return self._devices.named(host, unit) if unit else None

    def _rank_of(self, host: Host, said: Said) -> dict[str, str]:
        """Process, job and rank of the pid that a line names; empty if it names none."""
        pid = said.words.get("pid", "")
        if not pid:
            return {}
        known = self._ranks.get(int(pid))
        if known is not None:
            return {"pid": pid, **known}
        facts = read_process(host, int(pid))
        job = {"job": facts.job} if facts is not None and facts.job else {}
        return {"pid": pid, **job}

    def _find_ranks(self, host: Host) -> None:
        """Remember which process is which rank: when the kernel has killed it, it is too late."""
        if host.monotonic_ns() < self._find_ns or not has_gpus(host):
            return
        self._find_ns = host.monotonic_ns() + FIND_SECONDS * NS
        for held in self._finder.find(host):
            facts = read_process(host, held.pid)
            if facts is None or facts.rank is None:
                continue
            gpus = choose_gpus(held.gpus, facts)
            labels = {"job": facts.job, "rank": str(facts.rank)}
            if len(gpus) == 1:
                labels["gpu"] = str(gpus[0])
            self._ranks.pop(held.pid, None)
            self._killed.pop(str(held.pid), None)
            self._ranks[held.pid] = {name: value for name, value in labels.items() if value}
        while len(self._ranks) > RANKS_MAX:
            del self._ranks[next(iter(self._ranks))]

    # Events --------------------------------------------------------------------------------------

    def _event(
        self,
        said: Said,
        labels: Mapping[str, str],
        thing: Thing | None,
        known: Known,
        time_ns: int,
    ) -> Event:
        kind = said.kind
        attributes = {
            MESSAGE: kind.kind,
            COMPONENT: kind.component,
            SEVERITY: kind.severity,
            COUNT: str(known.count - known.told),
            AGE: f"{(time_ns - known.since_ns) / NS:.0f}",
            NETDEV: thing.netdev if thing is not None else "",
            "line": said.line,
            **{name: said.words.get(name, "") for name in ("pci", "detail", "xid", "sxid")},
        }
        return Event(
            kind=KERNEL_MESSAGE,
            time_ns=time_ns,
            labels=dict(labels),
            message=f"{subject_of(said, labels)} {explain(said)}. The kernel: {said.line}",
            attributes={name: value for name, value in attributes.items() if value},
        )

    def _tell_standing(self, host: Host, now_ns: int) -> Iterator[Event]:
        for device, standing in list(self._standing.items()):
            if now_ns - standing.seen_ns > STANDING_SECONDS * NS:
                del self._standing[device]
                continue
            monotonic_ns = host.monotonic_ns()
            if not standing.told_ns:
                standing.told_ns = monotonic_ns  # it was told just now
            elif monotonic_ns - standing.told_ns >= STANDING_EVENT_SECONDS * NS:
                standing.told_ns = monotonic_ns
                age = {AGE: f"{(now_ns - standing.since_ns) / NS:.0f}"}
                attributes = standing.event.attributes | age
                yield msgspec.structs.replace(standing.event, time_ns=now_ns, attributes=attributes)


SOURCE = KernelLogSource


# --- pure ----------------------------------------------------------------------------------------


def bare_labels(said: Said, record: Record) -> dict[str, str]:
    """What the line itself calls a thing that sysfs does not show."""
    words = said.words
    name = words.get("unit") or words.get("disk") or words.get("pci") or record.pci
    return {"device": name} if name else {}


def subject_of(said: Said, labels: Mapping[str, str]) -> str:
    """The beginning of a sentence: `NIC mlx5_3`, `Rank 5, process 4201 (python)`."""
    if said.kind.component == "process":
        command = said.words.get("command", "")
        if "pid" not in labels:
            return "The host"
        process = f"rocess {labels['pid']}" + (f" ({command})" if command else "")
        return f"Rank {labels['rank']}, p{process}" if "rank" in labels else f"P{process}"
    if "gpu" in labels:
        return f"GPU {labels['gpu']}"
    noun, whole = NOUNS[said.kind.component]
    return f"{noun} {labels['device']}" if labels.get("device") else whole


def is_standing(said: Said) -> bool:
    """Whether it is about a NIC, or a device on its bus, that is dead from now on."""
    return said.kind.severity == FATAL and said.kind.component in NIC_COMPONENTS


def is_rank_killed(said: Said, rank: Mapping[str, str]) -> bool:
    return said.kind.kind == OOM_KILL and "rank" in rank and "job" in rank


def last_words(said: Said, rank: Mapping[str, str], time_ns: int) -> Event:
    """What a rank could not say itself: the kernel has killed it (`alerts.detectors.crash`)."""
    return Event(
        kind=LAST_WORDS,
        time_ns=time_ns,
        labels=dict(rank),
        message=said.line,
        attributes={
            "words": "oom_killer",
            "role": "own",
            "reason": str(Reason.HOST_MEMORY),
            "proof": "1",
            "timed": "1",
        },
    )
