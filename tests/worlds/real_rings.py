"""Recorded rings and pipelines, one after the other as one job, in live rounds of verdicts.

`diagnose` reads a recording as a whole. A service looks at the last three minutes every five
seconds, reads counters seldom, and has seen other things before: so parts of recordings are put
together (some calm ones, a fault that is repeated until it lasts, calm ones again), and what they
would have sent is judged round by round, by the service's own windows, detectors and judge.

Nothing is made up but the seams, where the job's ranks wait for a moment.
"""

import datetime as dt
import functools
import gzip
import json
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import msgspec

from api.fabric.cache import BuiltTopology
from api.fabric.model import make_topology
from collector.contract.collective import Collective, Operation
from collector.contract.model import Event, Sample, Series
from collector.contract.units import NS, NS_PER_MS
from collector.contract.verdict import Cause, Culprit, Verdict
from collector.contract.wire import Batch, pack_batch
from collector.formats.nccl_inspector import Reader
from simulator.score.direct.held import HeldRecords, HeldSamples, Names
from simulator.score.direct.play import DirectEvaluator
from simulator.score.direct.windows import DirectWindows
from simulator.snapshot import Snapshot
from simulator.topology.model import Topology

SEAM_NS = 30_000_000
"""Between two parts: about a step."""
ROUND_SECONDS = 5.0
AFTER_SECONDS = 10.0
"""How long is looked on after the last record."""
EDGE_NS = 300_000_000
"""At the ends of a fault, which are not of its middle."""
COUNTERS = {
    f"node_network_{way}_{what}_total": f"fabric_nic_{way}_{what}_total"
    for way in ("transmit", "receive")
    for what in ("bytes", "packets")
}
MESSAGES = frozenset({Operation.SEND, Operation.RECV})
COUNTED = re.compile(r'(\w+)\{instance="(\w+)",device="(\w+)"\} (\S+) (\S+)')


class Part(NamedTuple):
    """A recorded run: all of it, or the time before its fault, or the fault's middle."""

    folder: Path
    which: str = "all"


class Fault(NamedTuple):
    """What was wrong from when to when, in seconds since the beginning."""

    cause: str
    rank: int
    first_s: float
    last_s: float


class Said(NamedTuple):
    """A verdict that began to stand, in seconds since the beginning."""

    at_s: float
    verdict: Verdict

    @property
    def rank(self) -> int | None:
        """Of the culprit; on these machines host node3 has rank 3."""
        culprit = self.verdict.culprit
        host = culprit.host.removeprefix("node") if culprit.host else ""
        return culprit.rank if culprit.rank is not None else int(host) if host else None


class Recorded(NamedTuple):
    """What the agents of a run would have sent."""

    records: list[Collective]
    events: list[Event]
    counters: dict[tuple[str, str, str], list[tuple[int, float]]]
    """By host, device and metric: times and values."""


@functools.cache
def read_run(folder: Path) -> Recorded:
    found: list[Collective | Event] = []
    for path in sorted((folder / "inspector").iterdir()):
        packed = path.read_bytes()
        own = Reader().read(gzip.decompress(packed) if path.suffix == ".gz" else packed)
        found += [one for one in own if isinstance(one, Collective | Event)]
    counters: dict[tuple[str, str, str], list[tuple[int, float]]] = defaultdict(list)
    path = folder / "nic.openmetrics.gz"
    text = gzip.decompress(path.read_bytes()).decode() if path.is_file() else ""
    for line in text.splitlines():
        match = COUNTED.match(line)
        if match and match[1] in COUNTERS:
            moment = round(float(match[5]) * 1000) * NS_PER_MS
            counters[match[2], match[3], COUNTERS[match[1]]].append((moment, float(match[4])))
    return Recorded(
        [one for one in found if isinstance(one, Collective)],
        [one for one in found if isinstance(one, Event)],
        dict(counters),
    )


def truth_of(folder: Path) -> dict[str, int | str]:
    truth: dict[str, int | str] = json.loads((folder / "truth.json").read_text("utf-8"))
    return truth


def read_part(part: Part) -> Recorded:
    """Whole operations of this part, numbered from 0."""
    run = read_run(part.folder)
    if part.which == "all":
        return run
    truth = truth_of(part.folder)
    on, off = int(truth["fault_on_ns"]), int(truth["fault_off_ns"])
    first, last = (on + EDGE_NS, off - EDGE_NS) if part.which == "fault" else (0, on)
    inside = [one for one in run.records if first <= (one.entry_ns or 0) and one.time_ns <= last]
    ranks: dict[tuple[str, str, int], set[int]] = defaultdict(set)
    for one in inside:
        ranks[*numbering_of(one), one.sequence].add(one.rank)
    inside = [
        one
        for one in inside
        if one.operation in MESSAGES
        or len(ranks[*numbering_of(one), one.sequence]) == size_of(run, one.communicator)
    ]
    lowest: dict[tuple[str, str], int] = {}
    for one in inside:
        key = numbering_of(one)
        lowest[key] = min(lowest.get(key, one.sequence), one.sequence)
    records = [
        msgspec.structs.replace(one, sequence=one.sequence - lowest[numbering_of(one)])
        for one in inside
    ]
    counters = {
        key: [point for point in points if first <= point[0] <= last]
        for key, points in run.counters.items()
    }
    return Recorded(records, run.events, counters)


def numbering_of(record: Collective) -> tuple[str, str]:
    """What is numbered together: an operation of a communicator, or all its messages."""
    kind = "message" if record.operation in MESSAGES else record.operation
    return record.communicator, kind


def size_of(run: Recorded, communicator: str) -> int:
    return max(one.ranks for one in run.records if one.communicator == communicator)


class Spliced:
    """Parts as one job: the same communicators, processes and counters go on."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.records: list[Collective] = []
        self.events: list[Event] = []
        self.counters: dict[tuple[str, str, str], list[tuple[int, float]]] = defaultdict(list)
        self.start_ns = self.end_ns = 0
        self.faults: list[Fault] = []
        self._names: dict[frozenset[str], str] = {}
        self._pids: dict[str, int] = {}
        self._next: dict[tuple[str, str], int] = defaultdict(int)
        for part in parts:
            self._add(part)
        if not all(read_run(part.folder).counters for part in parts):
            # Agents that read them now and then would look as if they came late.
            self.counters.clear()

    def _add(self, part: Part) -> None:
        run = read_part(part)
        first = min(one.entry_ns or one.time_ns for one in run.records)
        if not self.end_ns:
            self.start_ns, self.end_ns = first, first - SEAM_NS
        moved = self.end_ns + SEAM_NS - first
        began_ns = first + moved
        names = self._name(run)
        numbers = dict(self._next)
        for one in run.records:
            name = names[one.communicator]
            key = (name, numbering_of(one)[1])
            sequence = one.sequence + numbers.get(key, 0)
            self._next[key] = max(self._next[key], sequence + 1)
            self.records.append(
                msgspec.structs.replace(
                    one,
                    communicator=name,
                    pid=self._pids.setdefault(one.host, one.pid),
                    sequence=sequence,
                    **{
                        column: moment + moved
                        for column in ("time_ns", "entry_ns", "exit_ns", "enqueue_ns")
                        if (moment := getattr(one, column)) is not None
                    },
                )
            )
        self.end_ns = max(one.time_ns for one in run.records) + moved
        self.events += [self._renamed(one, names, moved) for one in run.events]
        for counter, points in run.counters.items():
            self._count(counter, points, moved)
        self._judge(part, moved, began_ns)

    def _name(self, run: Recorded) -> dict[str, str]:
        hosts: dict[str, set[str]] = defaultdict(set)
        for one in run.records:
            hosts[one.communicator].add(one.host)
        return {
            name: self._names.setdefault(frozenset(members), name)
            for name, members in hosts.items()
        }

    def _renamed(self, event: Event, names: dict[str, str], moved: int) -> Event:
        labels = dict(event.labels)
        if (name := labels.get("communicator", "")) in names:
            labels["communicator"] = names[name]
        if (host := labels.get("host", "")) in self._pids and "pid" in labels:
            labels["pid"] = str(self._pids[host])
        return msgspec.structs.replace(event, labels=labels, time_ns=event.time_ns + moved)

    def _count(
        self, key: tuple[str, str, str], points: Sequence[tuple[int, float]], moved: int
    ) -> None:
        own = self.counters[key]
        base = own[-1][1] if own else 0.0
        own += [(moment + moved, base + value - points[0][1]) for moment, value in points]

    def _judge(self, part: Part, moved: int, began_ns: int) -> None:
        truth = truth_of(part.folder)
        if part.which == "calm" or truth.get("cause") in (None, "none"):
            return
        begin, end = began_ns, self.end_ns
        if part.which == "all":
            begin, end = int(truth["fault_on_ns"]) + moved, int(truth["fault_off_ns"]) + moved
        new = Fault(
            str(truth["cause"]), int(truth["rank"]), self._seconds(begin), self._seconds(end)
        )
        last = self.faults[-1] if self.faults else None
        if last is not None and last[:2] == new[:2] and new.first_s - last.last_s < 1.0:
            self.faults[-1] = last._replace(last_s=new.last_s)
        else:
            self.faults.append(new)

    def _seconds(self, moment_ns: int) -> float:
        return (moment_ns - self.start_ns) / NS

    def batches(self, seconds: float) -> Iterator[tuple[int, list[Batch]]]:
        """What arrives by each moment, an agent's batch for each host."""
        tick = round(seconds * NS)
        by_tick: dict[int, list[Collective]] = defaultdict(list)
        for one in self.records:
            by_tick[(one.time_ns - self.start_ns) // tick].append(one)
        noted: dict[int, list[Event]] = defaultdict(list)
        for event in self.events:
            noted[max(0, event.time_ns - self.start_ns) // tick].append(event)
        places = dict.fromkeys(self.counters, 0)
        last = (self.end_ns - self.start_ns + round(AFTER_SECONDS * NS)) // tick
        for number in range(last + 1):
            now_ns = self.start_ns + (number + 1) * tick
            readings = self._readings(places, now_ns) if now_ns <= self.end_ns + tick else {}
            hosts = sorted({one.host for one in self.records})
            yield (
                now_ns,
                [
                    pack_batch(
                        readings.get(host, ()),
                        [one for one in noted[number] if one.labels.get("host") == host],
                        [one for one in by_tick[number] if one.host == host],
                        agent=host,
                        boot="recorded",
                        sequence=number,
                        sent_ms=now_ns // NS_PER_MS,
                        common={"host": host, "cluster": "lab"},
                    )
                    for host in hosts
                ],
            )

    def _readings(
        self, places: dict[tuple[str, str, str], int], now_ns: int
    ) -> dict[str, list[Sample]]:
        """An agent reads a counter once: what it was at the end of the tick."""
        found: dict[str, list[Sample]] = defaultdict(list)
        for key, points in self.counters.items():
            while places[key] < len(points) and points[places[key]][0] <= now_ns:
                places[key] += 1
            if places[key]:
                host, device, metric = key
                moment, value = points[places[key] - 1]
                found[host].append(Sample(Series(metric, {"device": device}), value, moment))
        return found


class RealWindows(DirectWindows):
    """Windows of what was recorded: no cables are known, and NICs only by their counters."""

    def __init__(self, start_ns: int) -> None:
        self._topology = cast("Topology", None)
        self._start_ns = self._looked_ns = start_ns
        self._looked_ns -= 3600 * NS
        self._samples = HeldSamples(start_ns // NS_PER_MS - 1)
        self._records = HeldRecords()
        self._events = deque(maxlen=10_000)
        self._facts, self._marked, self._status = {}, {}, {}
        at = dt.datetime.fromtimestamp(start_ns / NS, tz=dt.UTC)
        self._built = BuiltTopology(make_topology(at, [], [], []))
        self._jobs, self._names = [], Names(())
        self._is_news = False
        self._last_ns, self.past, self._rows = {}, {}, None


class NoJobs(NamedTuple):
    """In place of a simulator's snapshot."""

    jobs: tuple[()] = ()


def play(spliced: Spliced, seconds: float = ROUND_SECONDS) -> list[Said]:
    """What a service says: each verdict when it begins to stand."""
    windows = RealWindows(spliced.start_ns)
    evaluator = DirectEvaluator(windows)
    said: list[Said] = []
    standing: set[tuple[Cause, Culprit]] = set()
    for now_ns, batches in spliced.batches(seconds):
        windows.take(cast("Snapshot", NoJobs()), batches, now_ns)
        for moment_ns, verdicts in evaluator.evaluate(now_ns):
            keys = {(one.cause, one.culprit) for one in verdicts}
            at_s = (moment_ns - spliced.start_ns) / NS
            said += [
                Said(at_s, one) for one in verdicts if (one.cause, one.culprit) not in standing
            ]
            standing = keys
    return said
