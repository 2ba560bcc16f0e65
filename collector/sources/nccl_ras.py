"""NCCL's RAS: which ranks of a job are behind, do not answer or are dead, while the job hangs.

Every process with NCCL 2.24 or later listens at one local port, and any of them answers for the
whole job: a status is a small collective over the job's RAS threads, which takes no time from
training. Two hosts of a job ask every ten seconds, those of its first ranks; all others every five
minutes, to report where their own ranks run. While counts stand still the two ask every five.

An answer that shows progress is not sent: only its numbers are. Where nothing listens, a read is
one refused connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from collector.contract import communicator as words
from collector.contract.communicator import communicator_event
from collector.contract.errors import HostError, ParseError
from collector.contract.measurement import MeasurementKind, kind_requested
from collector.contract.model import Event, Missing, Reading, Sample, Series
from collector.contract.ras import RasReport, ras_event
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.contract.wire import CaptureRequest
from collector.doors.host import Host
from collector.parsing.nccl_ras import Member, RasAnswer, parse_answer
from collector.parsing.ras_reports import GONE, JobMemory, behind_of, has_gone, largest, reports_of
from collector.reading.addresses import local_addresses
from collector.reading.captures import CaptureQueue, capture_event
from collector.reading.jobs import GpuProcessFinder, has_gpus, read_inner_pids, read_process
from collector.sources import SourceSettings

ASKING_HOSTS: Final = 2
"""Hosts of a job that ask often, in the order of its ranks: one may be the one that hangs."""
STANDING_SECONDS: Final = 5.0
"""From one question to the next, while counts stand still or ranks are gone."""
GROWING_SECONDS: Final = 30.0
"""The same while communicators are being made: a job that starts makes them one after the other."""
REQUESTED_SECONDS: Final = 60
"""For how long a host asks and reports as the first ones do, after the service has requested it:
one answer does not show whether a job moves."""
MEMBERS_SENT_MAX: Final = 2_000
"""Ranks of communicators whose place is sent at once: sixteen processes with a hundred each."""
REPEAT_SECONDS: Final = 300
"""How often the places of this host's ranks are sent again: a job that nothing is heard of for
fifteen minutes has ended."""
JOBS_MAX: Final = 8
"""Jobs that are remembered. Several jobs of one user on a host take turns to answer."""
FORGET_SECONDS: Final = 1_800
SERIES_MAX: Final = 256
"""Series that are kept: six for each of some forty jobs, one after the other."""

UP = "fabric_job_ras_up"
ANSWERS = "fabric_job_ras_answers_total"
STANDING = "fabric_job_ras_standing_seconds"
BEHIND = "fabric_job_ras_ranks_behind"
ABSENT = "fabric_job_ras_ranks_absent"
COLLECTION = "fabric_job_ras_collection_seconds"


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `nccl_ras`."""

    timeout_seconds: float = 30.0
    """RAS waits for processes that do not answer, and larger answers are asked for twice."""
    address: str = "localhost:28028"
    """Where the processes of jobs listen: NCCL_RAS_ADDR of the jobs, if they set it."""
    ask_seconds: float = 10.0
    """How often the hosts of a job's first ranks ask, while the job moves."""
    others_ask_seconds: float = 300.0
    """How often all other hosts ask."""
    wait_seconds: float = 3.0
    """How long RAS may wait for processes that do not answer."""
    job: str = ""
    """The job that runs here, if only one does. Empty: as its processes' environment names it."""


class NcclRas:
    """The source; it remembers the last answer of each job."""

    name: ClassVar[str] = "nccl_ras"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        self._next_ns: int | None = None
        self._jobs: dict[str, JobMemory] = {}
        self._reported: dict[str, set[str]] = {}
        """By job the communicators whose last report was of trouble: it is said when that ends."""
        self._sent: dict[str, tuple[frozenset[tuple[str, int]], int]] = {}
        """By job the members whose places were sent, and when."""
        self._located: dict[int, int | None] = {}
        """By the number that a process has for itself: its number here. As many as were sent."""
        self._requests = CaptureQueue()
        self._requested_until_ns = 0
        self._finder = GpuProcessFinder()
        self._answers = 0
        self._series: dict[tuple[str, str], Series] = {}
        self._last: list[tuple[Series, float]] = []

    def read(self, host: Host) -> Iterator[Reading]:
        """Asks if it is time to; numbers of the last answer are repeated between."""
        now_ns = host.monotonic_ns()
        if self._requests:
            self._requested_until_ns = now_ns + REQUESTED_SECONDS * NS
        elif self._next_ns is not None and now_ns < self._next_ns:
            yield from self._repeat(host)
            return
        try:
            data = host.ras_status(self._settings.address, self._settings.wait_seconds)
            answer = parse_answer(data)
        except HostError as error:
            yield from self._no_answer(host, error)
            return
        except ParseError as error:
            refusal = HostError(UnreadReason.UNPARSEABLE, self._settings.address, str(error))
            yield from self._no_answer(host, refusal)
            return
        self._answers += 1
        yield from self._take(host, answer, now_ns)
        yield from self._repeat(host)
        for request in self._requests.take():
            count = len(answer.communicators)
            yield capture_event(request.id, host.now_ns(), "finished", samples=count)

    def capture(self, request: CaptureRequest) -> None:
        """Take a request to ask now, from any thread; the same again changes nothing."""
        if kind_requested(request.devices) is MeasurementKind.RAS_STATUS:
            self._requests.put(request)

    def _no_answer(self, host: Host, error: HostError) -> Iterator[Reading]:
        """Nothing listens, or none answers: it is tried again at the next read."""
        self._last, self._next_ns = [], None
        for request in self._requests.take():
            yield capture_event(request.id, host.now_ns(), "refused", str(error))
        if error.reason is not UnreadReason.ABSENT or has_gpus(host):
            yield Missing(self._series_of(UP, ""), error.reason, str(error))

    def _repeat(self, host: Host) -> Iterator[Sample]:
        time_ns = host.now_ns()
        yield from (Sample(series, value, time_ns) for series, value in self._last)

    def _take(self, host: Host, answer: RasAnswer, now_ns: int) -> Iterator[Reading]:
        self._last = [
            (self._series_of(UP, ""), 1.0),
            (self._series_of(ANSWERS, ""), float(self._answers)),
        ]
        world = largest(answer)
        if world is None:
            # A job of NCCL 2.24 to 2.28.6 in which all is well, or one that has not begun.
            self._jobs = {}
            self._wait(now_ns, self._period(leads=leads_by_rank(host, self._finder)))
            return
        here = local_addresses(host)
        memory = self._memory(world.name, now_ns)
        memory.take(answer, now_ns)
        reports = reports_of(answer, memory)
        self._count(self._job_here(host, world.members, here), answer, memory, reports)
        before = self._sent.get(world.name)
        if answer.is_whole:
            yield from self._places(host, world.name, answer, here, now_ns)
        after = self._sent.get(world.name)
        is_grown = after is not None and (before is None or before[0] != after[0])
        leads = (
            leads_by_address(world.members, here)
            if answer.is_whole
            else leads_by_rank(host, self._finder)
        )
        is_requested = now_ns < self._requested_until_ns
        leads = leads or is_requested
        is_still = (
            is_requested or memory.answers > 1 or any(has_gone(report) for _, report in reports)
        )
        if leads:
            yield from self._report(host, world.name, reports, is_told=is_still)
        self._wait(now_ns, self._period(leads=leads, is_still=is_still, is_grown=is_grown))

    def _wait(self, now_ns: int, seconds: float) -> None:
        """Ask again after so long, at the nearest read: reads come a little early, or late."""
        self._next_ns = now_ns + int((seconds - self._settings.interval_seconds / 2) * NS)

    def _period(self, *, leads: bool, is_still: bool = False, is_grown: bool = False) -> float:
        """Seconds until the next question."""
        if leads:
            return STANDING_SECONDS if is_still else self._settings.ask_seconds
        return GROWING_SECONDS if is_grown else self._settings.others_ask_seconds

    def _memory(self, world: str, now_ns: int) -> JobMemory:
        if world not in self._jobs:
            fresh_ns = now_ns - FORGET_SECONDS * NS
            kept = sorted(self._jobs.items(), key=lambda pair: -pair[1].seen_ns)[: JOBS_MAX - 1]
            self._jobs = {name: one for name, one in kept if one.seen_ns >= fresh_ns}
            self._reported = {name: self._reported.get(name, set()) for name in self._jobs}
            self._sent = {name: one for name, one in self._sent.items() if name in self._jobs}
            self._jobs[world] = JobMemory(launched={}, absent_since={})
        return self._jobs[world]

    # --- what is sent --------------------------------------------------------------------------

    def _report(
        self, host: Host, world: str, reports: Sequence[tuple[str, RasReport]], *, is_told: bool
    ) -> Iterator[Event]:
        """Reports while nothing moves or ranks are gone; and one more of each when that ends."""
        before = self._reported.get(world, set())
        self._reported[world] = {name for name, _ in reports} if is_told else set()
        time_ns = host.now_ns()
        for name, report in reports:
            if is_told or name in before:
                yield ras_event(name, report, time_ns)

    def _places(
        self, host: Host, world: str, answer: RasAnswer, here: frozenset[str], now_ns: int
    ) -> Iterator[Event]:
        """Where this host's ranks run, when one is new, and again from time to time."""
        own = [
            (one, member)
            for one in answer.communicators
            for member in one.members
            if member.address in here and member.pid
        ][:MEMBERS_SENT_MAX]
        known = frozenset((one.name, member.rank) for one, member in own)
        sent, sent_ns = self._sent.get(world, (frozenset(), 0))
        if known == sent and now_ns - sent_ns < REPEAT_SECONDS * NS:
            return
        self._sent[world] = known, now_ns
        self._located = {}
        time_ns = host.now_ns()
        for one, member in own:
            pid = self._locate(host, member.pid)
            if pid is None:
                continue  # another number than that of its other sources would be another process
            attributes = {
                words.RANKS: str(one.size),
                words.PID: str(pid),
                words.CUDA_DEVICE: text_of(member.cuda_device),
                words.NVML_DEVICE: text_of(member.nvml_device),
            }
            yield communicator_event(one.name, member.rank, time_ns, attributes)

    def _locate(self, host: Host, pid: int) -> int | None:
        """The number here of a process that RAS names by its own, which may be a container's.

        None unless exactly one process fits.
        """
        if pid not in self._located:
            inner = read_inner_pids(host).get(pid, [])
            gpus = {held.pid for held in self._finder.find(host)} if inner else set()
            fitting = [each for each in (pid, *inner) if each in gpus] if inner else [pid]
            self._located[pid] = fitting[0] if len(fitting) == 1 else None
        return self._located[pid]

    def _job_here(self, host: Host, members: Sequence[Member], here: frozenset[str]) -> str:
        """The job's name: as set, or from the environment of the first of its processes here."""
        own = next((one.pid for one in members if one.address in here and one.pid), None)
        pid = self._locate(host, own) if own is not None and not self._settings.job else None
        facts = read_process(host, pid) if pid is not None else None
        return facts.job if facts is not None else self._settings.job

    def _count(
        self,
        job: str,
        answer: RasAnswer,
        memory: JobMemory,
        reports: Sequence[tuple[str, RasReport]],
    ) -> None:
        gone = {
            (one.address, one.pid)
            for _, report in reports
            for one in report.odd
            if one.presence in GONE
        }
        behind = {(one.address, one.pid) for _, report in reports for one in behind_of(report)}
        values = {
            STANDING: memory.standing_ns / NS,
            BEHIND: float(len(behind)),
            ABSENT: float(len(gone)),
            COLLECTION: answer.seconds,
        }
        self._last += [(self._series_of(metric, job), value) for metric, value in values.items()]

    def _series_of(self, metric: str, job: str) -> Series:
        key = metric, job
        if key not in self._series:
            if len(self._series) >= SERIES_MAX:
                self._series.clear()
            self._series[key] = Series(metric, {"job": job} if job else {})
        return self._series[key]


SOURCE = NcclRas


def text_of(number: int | None) -> str:
    return "" if number is None else str(number)


def leads_by_address(members: Sequence[Member], here: frozenset[str]) -> bool:
    """Whether this host is one of the first ASKING_HOSTS in the order of ranks."""
    hosts = list(dict.fromkeys(member.address for member in members if member.address))
    return any(address in here for address in hosts[:ASKING_HOSTS])


def leads_by_rank(host: Host, finder: GpuProcessFinder) -> bool:
    """The same where an answer lists no addresses: whether a process here is its job's rank 0."""
    for held in finder.find(host):
        facts = read_process(host, held.pid)
        if facts is not None and facts.rank == 0:
            return True
    return False
