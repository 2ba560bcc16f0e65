"""Who uses the RDMA devices: queue pairs and memory by process, with its job, pod and user.

From the kernel's list of resources (RDMA netlink, what `rdma resource` shows), `/proc` and cgroups.
Queue pairs that statistics are bound to (`rdma statistic qp set link mlx5_0/1 auto type,pid on`)
are shown with them: only so is congestion known by process. Limits of the cgroup controller `rdma`
are shown as they are set; nothing is set here.

A list of queue pairs costs a question to the firmware for each of them, so that it is asked for
once a minute, and not at all where there are more than the setting allows. Memory that is
registered twice counts twice. Processes outside of the agent's PID namespace have no number and are
nobody's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from collector.contract.errors import HostError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.doors.rdma_netlink import (
    BoundCounter,
    Device,
    MemoryRegion,
    Owner,
    Question,
    QueuePair,
    parse_counters,
    parse_devices,
    parse_memory_regions,
    parse_queue_pairs,
    parse_summaries,
)
from collector.reading.cgroups import folders_above, path_below, read_cgroups
from collector.reading.jobs import ProcessFacts, read_process, read_stat
from collector.reading.kept_series import KeptSeries
from collector.reading.sysfs import list_or_nothing
from collector.sources import SourceSettings

RDMA_CLASS = "sys/class/infiniband"
DEVICES_MAX = 128
"""Of a host: eight NICs with sixteen virtual functions each."""
MEMORY_REGIONS_MAX = 65_536
"""Of a device. A rank of NCCL registers some hundred; a key-value store perhaps a thousand."""
USERS_MAX = 512
"""Pairs of a device and a process: thirty-two processes that each use sixteen devices."""
COUNTERS_MAX = 128
"""Sets of bound statistics; each has some twenty numbers."""
COUNTER_NAMES_MAX = 40
"""Of one set: mlx5 has about twenty."""
CGROUPS_MAX = 64
QUOTA_CHARACTERS_MAX = 65_536

RESOURCES = "fabric_rdma_resources"
USER = "fabric_rdma_user_info"
QUEUE_PAIRS = "fabric_rdma_user_queue_pairs"
REGIONS, BYTES = "fabric_rdma_user_memory_regions", "fabric_rdma_user_memory_bytes"
COUNTER = "fabric_rdma_bound_counter_total"
TENANT = "fabric_rdma_sole_tenant_info"
LIMIT, USED = "fabric_rdma_cgroup_limit", "fabric_rdma_cgroup_used"
LEFT_OUT = "fabric_rdma_left_out"

STATES = {"rts": "ready", "error": "error", "sqe": "error"}
"""Names of states that matter to a reader; all others are on their way up or down."""
STATE_NAMES = ("ready", "error", "other")
MANAGEMENT = frozenset({"smi", "gsi"})
"""Each port has these two: they carry management alone."""
KERNEL_QUIET = MANAGEMENT | {"ud"}
"""Of the kernel's own: IPoIB has one per interface, used or not."""
LEFT_OUT_KINDS = ("devices", "users", "counters", "cgroups")


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `rdma_resources`."""

    interval_seconds: float = 60.0
    timeout_seconds: float = 10.0
    queue_pairs_max: Annotated[int, Meta(ge=0, le=100_000)] = 4_096
    """Of a device, that are asked about one by one: some ten microseconds of its firmware each.
    With more, users are told by their memory alone. 0: never."""


class Held:
    """What one owner holds of one device."""

    def __init__(self) -> None:
        self.pairs = dict.fromkeys(STATE_NAMES, 0)
        self.kinds: set[str] = set()
        self.regions = self.size = 0


class User:
    """The series of one owner at one device."""

    def __init__(self, device: str, owner: Owner, facts: ProcessFacts | None) -> None:
        self.facts = facts
        pid = str(owner.pid) if owner.pid else ""
        command = facts.command if facts else owner.kernel
        self.labels = {"device": device, "pid": pid, "command": command}
        self.labels["job"] = facts.job if facts else ""
        more = dict.fromkeys(("rank", "user", "scheduler", "step", "pod", "namespace"), "")
        more["container"] = ""
        if facts:
            more = {name: getattr(facts, name) for name in more}
            more["rank"] = "" if facts.rank is None else str(facts.rank)
        self.info = Series(USER, self.labels | more)
        self.pairs = {
            state: Series(QUEUE_PAIRS, self.labels | {"state": state}) for state in STATE_NAMES
        }
        self.regions, self.size = Series(REGIONS, self.labels), Series(BYTES, self.labels)


class RdmaResources:
    """The source; it keeps the series of each user as long as that one is there."""

    name: ClassVar[str] = "rdma_resources"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        self._users: dict[tuple[str, Owner, int], User] = {}
        self._kept = KeptSeries()
        self._left_out = {what: Series(LEFT_OUT, {"what": what}) for what in LEFT_OUT_KINDS}
        self._lost = dict.fromkeys(LEFT_OUT_KINDS, 0)
        self._counters_shown = 0

    def read(self, host: Host) -> Iterator[Reading]:
        self._kept.begin_read()
        # Looked up first: the mere question makes a kernel load its RDMA modules.
        if not list_or_nothing(host, RDMA_CLASS):
            return
        try:
            devices = parse_devices(host.rdma(Question.DEVICES))
            counts = parse_summaries(host.rdma(Question.SUMMARY))
        except HostError as error:
            yield Missing(self._kept.find(RESOURCES), error.reason, error.detail)
            return
        before, self._users = self._users, {}
        self._counters_shown, self._lost = 0, dict.fromkeys(LEFT_OUT_KINDS, 0)
        self._lost["devices"] = max(0, len(devices) - DEVICES_MAX)
        for device in devices[:DEVICES_MAX]:
            yield from self._device(host, device, counts.get(device.name, {}), before)
        yield from self._quotas(host)
        for what, series in self._left_out.items():
            yield Sample(series, self._lost[what], host.now_ns())

    # A device --------------------------------------------------------------------------------

    def _device(
        self,
        host: Host,
        device: Device,
        counts: Mapping[str, int],
        before: Mapping[tuple[str, Owner, int], User],
    ) -> Iterator[Reading]:
        time_ns = host.now_ns()
        for kind, count in counts.items():
            yield Sample(self._kept.find(RESOURCES, device=device.name, kind=kind), count, time_ns)
        held: dict[Owner, Held] = {}
        pairs: list[QueuePair] | None = None
        try:
            pairs = self._queue_pairs(host, device, counts.get("qp", 0))
        except HostError as error:
            yield Missing(
                self._kept.find(QUEUE_PAIRS, device=device.name), error.reason, error.detail
            )
        for pair in pairs or ():
            own = held.setdefault(pair.owner, Held())
            own.pairs[STATES.get(pair.state, "other")] += 1
            own.kinds.add(pair.kind)
        has_regions = False
        try:
            for region in self._regions(host, device, counts.get("mr", 0)):
                own = held.setdefault(region.owner, Held())
                own.regions, own.size = own.regions + 1, own.size + region.size
            has_regions = True
        except HostError as error:
            yield Missing(self._kept.find(REGIONS, device=device.name), error.reason, error.detail)
        users = self._find_users(host, device.name, held, before)
        for owner, user in users.items():
            own = held[owner]
            yield Sample(user.info, 1, time_ns)
            if pairs is not None:
                for state, series in user.pairs.items():
                    yield Sample(series, own.pairs[state], time_ns)
            if has_regions:
                yield Sample(user.regions, own.regions, time_ns)
                yield Sample(user.size, own.size, time_ns)
        tenant = None if pairs is None else sole_tenant(held, users)
        if tenant is not None:
            yield Sample(self._kept.find(TENANT, device=device.name, **tenant), 1, time_ns)
        yield from self._counters(host, device, pairs or (), users)

    def _queue_pairs(self, host: Host, device: Device, count: int) -> list[QueuePair]:
        most = self._settings.queue_pairs_max
        if count > most:
            detail = f"{count} queue pairs; queue_pairs_max = {most} are asked about"
            raise HostError(UnreadReason.NOT_SUPPORTED, device.name, detail)
        return parse_queue_pairs(host.rdma(Question.QUEUE_PAIRS, device.number)) if count else []

    def _regions(self, host: Host, device: Device, count: int) -> list[MemoryRegion]:
        if count > MEMORY_REGIONS_MAX:
            detail = f"{count} regions; MEMORY_REGIONS_MAX is {MEMORY_REGIONS_MAX}"
            raise HostError(UnreadReason.NOT_SUPPORTED, device.name, detail)
        return (
            parse_memory_regions(host.rdma(Question.MEMORY_REGIONS, device.number)) if count else []
        )

    def _find_users(
        self,
        host: Host,
        device: str,
        held: Mapping[Owner, Held],
        before: Mapping[tuple[str, Owner, int], User],
    ) -> dict[Owner, User]:
        """Owners that have a name: processes that are there, and parts of the kernel."""
        found: dict[Owner, User] = {}
        for owner in sorted(held):
            if not owner.pid and not owner.kernel:
                continue
            stat = read_stat(host, owner.pid) if owner.pid else None
            if owner.pid and stat is None:
                continue  # it has ended since
            key = device, owner, stat.start_ticks if stat else 0
            user = before.get(key)
            if user is None:
                facts = read_process(host, owner.pid) if owner.pid else None
                if owner.pid and facts is None:
                    continue
                user = User(device, owner, facts)
            if len(self._users) >= USERS_MAX:
                self._lost["users"] += 1
                continue
            self._users[key] = found[owner] = user
        return found

    # Bound statistics ------------------------------------------------------------------------

    def _counters(
        self,
        host: Host,
        device: Device,
        pairs: Sequence[QueuePair],
        users: Mapping[Owner, User],
    ) -> Iterator[Reading]:
        try:
            counters = parse_counters(host.rdma(Question.COUNTERS, device.number))
        except HostError as error:
            yield Missing(self._kept.find(COUNTER, device=device.name), error.reason, error.detail)
            return
        owners = {pair.number: pair.owner for pair in pairs}
        room = COUNTERS_MAX - self._counters_shown
        self._counters_shown += min(room, len(counters))
        self._lost["counters"] += max(0, len(counters) - room)
        for counter in counters[:room]:
            user = users.get(owner_of(counter, owners))
            who = user.labels if user else dict.fromkeys(("pid", "command", "job"), "")
            labels = {"device": device.name, "port": str(counter.port), "id": str(counter.number)}
            labels |= {name: who[name] for name in ("pid", "command", "job")}
            names = sorted(counter.values)
            self._lost["counters"] += len(names) > COUNTER_NAMES_MAX
            for name in names[:COUNTER_NAMES_MAX]:
                series = self._kept.find(COUNTER, **labels, counter=name)
                yield Sample(series, counter.values[name], host.now_ns())

    # Quotas ----------------------------------------------------------------------------------

    def _quotas(self, host: Host) -> Iterator[Reading]:
        folders: dict[str, None] = {}
        for pid in sorted({owner.pid for _, owner, _ in self._users if owner.pid}):
            for controllers, path in read_cgroups(host, pid):
                folders |= dict.fromkeys(folders_above("rdma", controllers, path))
        there = [folder for folder in folders if host.exists(f"{folder}/rdma.max")]
        self._lost["cgroups"] = max(0, len(there) - CGROUPS_MAX)
        for folder in there[:CGROUPS_MAX]:
            path = path_below("rdma", folder)
            for metric, file in ((LIMIT, "rdma.max"), (USED, "rdma.current")):
                try:
                    text = host.read(f"{folder}/{file}")[:QUOTA_CHARACTERS_MAX]
                except HostError:
                    continue  # it went with its processes
                for device, kind, count in parse_quota(text.decode("utf-8", "replace")):
                    series = self._kept.find(metric, device=device, cgroup=path, kind=kind)
                    yield Sample(series, count, host.now_ns())


SOURCE = RdmaResources


def owner_of(counter: BoundCounter, owners: Mapping[int, Owner]) -> Owner:
    """Who all of its queue pairs belong to, by the counter's own word or by theirs; else nobody."""
    if counter.owner.pid or counter.owner.kernel:
        return counter.owner
    found = {owners.get(pair, Owner()) for pair in counter.queue_pairs}
    return found.pop() if len(found) == 1 else Owner()


def sole_tenant(held: Mapping[Owner, Held], users: Mapping[Owner, User]) -> dict[str, str] | None:
    """The one job, or pod, or user that a device carries bytes for; None where it is not sure.

    Datagrams of the kernel's own (IPoIB) are not counted as someone's; storage over RDMA is.
    """
    jobs: list[ProcessFacts] = []
    for owner, own in held.items():
        if not own.kinds - (KERNEL_QUIET if owner.kernel else MANAGEMENT):
            continue
        user = users.get(owner)
        if user is None or user.facts is None:
            return None
        jobs.append(user.facts)
    if len({tenant_of(facts) for facts in jobs}) != 1 or not any(tenant_of(jobs[0])):
        return None
    return {name: common(jobs, name) for name in ("job", "user", "pod", "namespace")}


def tenant_of(facts: ProcessFacts) -> tuple[str, ...]:
    """What tells tenants apart: the job; without one the pod; without one the user."""
    if facts.job:
        return "job", facts.job
    if facts.pod:
        return "pod", facts.namespace, facts.pod
    return ("user", facts.user) if facts.user else ()


def common(facts: Sequence[ProcessFacts], name: str) -> str:
    texts = {getattr(each, name) for each in facts}
    return str(texts.pop()) if len(texts) == 1 else ""


def parse_quota(text: str) -> Iterator[tuple[str, str, int]]:
    r"""Device, kind and number of `rdma.max` or `rdma.current`; none for what is not limited.

    >>> list(parse_quota("mlx5_0 hca_handle=2 hca_object=max\n"))
    [('mlx5_0', 'hca_handle', 2)]
    """
    for line in text.splitlines():
        device, *words = line.split()[:8] or [""]
        for word in words:
            kind, _, number = word.partition("=")
            if number.isdecimal() and len(number) <= 10:  # noqa: PLR2004 - digits of 32 bits
                yield device, kind, int(number)
