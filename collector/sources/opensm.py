"""What opensm writes to its log: its own state, sweeps, routing, traps and errors.

For the hosts that run a subnet manager (opensm, or UFM, which runs one): set `files`. `ib_fabric`
sees from any host which manager is master; only the log shows what it does, and what switches have
reported to it. A log that is first seen shows the state; events are of what is added to it later.

A heavy sweep (every node asked, every route set anew) is read from its end, `SUBNET UP`: at its
ordinary verbosity opensm logs no beginning, and no light sweeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from collector.contract.errors import HostError
from collector.contract.model import Event, Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.parsing.subnet_manager import (
    STATES,
    TRAPS,
    TROUBLE,
    LogLine,
    What,
    parse_log_line,
)
from collector.reading.follow import Chunk, Follower
from collector.reading.whole_files import split_patterns
from collector.sources import SourceSettings

YOUNG_SECONDS = 10 * 365 * 86_400.0
"""However old a log is, it is read: who has been master for a year said so a year ago."""
EVENTS_MAX = 64
"""Events of one read: a switch that restarts makes each of its links send a trap. Counters have all
of them."""
OTHER = "other"

STATE_EVENT = "subnet_manager_state"
TRAP_EVENT = "subnet_trap"
ROUTING_EVENT = "subnet_routing_changed"

STATE = "fabric_subnet_manager_state"
SWEEPS = "fabric_subnet_manager_heavy_sweeps_total"
TRAPS_SEEN = "fabric_subnet_manager_traps_total"
ERRORS = "fabric_subnet_manager_log_errors_total"
ROUTING = "fabric_subnet_manager_routing_info"
DROPPED = "fabric_subnet_manager_log_dropped_events_total"

NAMES = {number: name.lower() for name, number in STATES.items()}


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `opensm`."""

    files: tuple[str, ...] = ()
    """Logs of opensm, as shell patterns: `/var/log/opensm.log`, with UFM
    `/opt/ufm/files/log/opensm.log`."""


class OpensmLog:
    """The source; its place in the log and its counts survive a restart of the agent."""

    name: ClassVar[str] = "opensm"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._followers = {
            folder: Follower([folder], names, young_seconds=YOUNG_SECONDS)
            for folder, names in split_patterns(settings.files).items()
        }
        self._files = settings.files
        self._state = -1
        self._engine = ""
        self._counts = {SWEEPS: 0, ERRORS: 0, DROPPED: 0}
        self._traps: dict[str, int] = {}
        self._series: dict[tuple[str, str], Series] = {}
        self._events_left = 0

    def read(self, host: Host) -> Iterator[Reading]:
        """The state as the log shows it, counts, and events of what was added."""
        self._events_left = EVENTS_MAX
        for follower in self._followers.values():
            for chunk in follower.poll(host):
                if isinstance(chunk, HostError):
                    yield Missing(self._find(STATE), chunk.reason, f"{chunk.path}: {chunk.detail}")
                    continue
                for line in chunk.lines.removesuffix(b"\n").split(b"\n"):
                    said = parse_log_line(line, host.now_ns())
                    if said is not None:
                        yield from self._hear(said, chunk)
        if any(follower.files for follower in self._followers.values()):
            yield from self._report(host.now_ns())
        elif self._files:
            detail = f"no file matches {', '.join(self._files)}"
            yield Missing(self._find(STATE), UnreadReason.ABSENT, detail)

    def _hear(self, said: LogLine, chunk: Chunk) -> Iterator[Event]:
        event: Event | None = None
        match said.what:
            case What.STATE:
                if said.state != self._state:
                    event = state_event(said, self._state)
                self._state = said.state
            case What.SWEPT:
                self._counts[SWEEPS] += 1
            case What.ROUTED:
                if self._engine and said.engine != self._engine:
                    event = routing_event(said, self._engine)
                self._engine = said.engine
            case What.TRAP:
                word = str(said.trap) if said.trap in TRAPS else OTHER
                self._traps[word] = self._traps.get(word, 0) + 1
                if said.trap in TROUBLE:
                    event = trap_event(said)
            case What.ERROR:
                self._counts[ERRORS] += 1
        if event is None or not chunk.is_continued:
            return
        if self._events_left:
            self._events_left -= 1
            yield event
        else:
            self._counts[DROPPED] += 1

    def _report(self, time_ns: int) -> Iterator[Reading]:
        if self._state >= 0:
            yield Sample(self._find(STATE), self._state, time_ns)
        for metric, count in self._counts.items():
            yield Sample(self._find(metric), count, time_ns)
        for trap, count in sorted(self._traps.items()):
            yield Sample(self._find(TRAPS_SEEN, trap), count, time_ns)
        if self._engine:
            yield Sample(self._find(ROUTING, self._engine), 1, time_ns)

    def _find(self, metric: str, word: str = "") -> Series:
        key = metric, word
        if key not in self._series:
            label = {TRAPS_SEEN: "trap", ROUTING: "engine"}.get(metric, "")
            self._series[key] = Series(metric, {label: word} if label else {})
        return self._series[key]

    # Over a restart --------------------------------------------------------------------------

    def save_state(self) -> dict[str, Any]:
        """How far each log was read, and what was counted."""
        return {
            "files": {folder: each.save_state() for folder, each in self._followers.items()},
            "state": self._state,
            "engine": self._engine,
            "counts": dict(self._counts),
            "traps": dict(self._traps),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a state; one of another shape is passed over, and the logs are read again."""
        match state:
            case {
                "files": dict(files),
                "state": int(now),
                "engine": str(engine),
                "counts": dict(counts),
                "traps": dict(traps),
            } if now in NAMES or now < 0:
                self._state, self._engine = now, engine
                self._counts |= {name: int(counts.get(name, 0)) for name in self._counts}
                known = {*map(str, TRAPS), OTHER}
                self._traps = {word: int(number) for word, number in traps.items() if word in known}
                for folder, follower in self._followers.items():
                    if isinstance(saved := files.get(folder), dict):
                        follower.load_state(saved)
            case _:
                pass


SOURCE = OpensmLog


def state_event(said: LogLine, before: int) -> Event:
    was = f", and was {NAMES[before]} before" if before in NAMES else ""
    return Event(
        kind=STATE_EVENT,
        time_ns=said.time_ns,
        labels={},
        message=f"The subnet manager on this host is {NAMES[said.state]} now{was}.",
        attributes={"state": NAMES[said.state], "before": NAMES.get(before, "")},
    )


def routing_event(said: LogLine, before: str) -> Event:
    return Event(
        kind=ROUTING_EVENT,
        time_ns=said.time_ns,
        labels={},
        message=(
            f"The subnet manager routes with {said.engine} now, and with {before} before: where the"
            " engine that was set cannot be used, opensm falls back to another."
        ),
        attributes={"engine": said.engine, "before": before},
    )


def trap_event(said: LogLine) -> Event:
    return Event(
        kind=TRAP_EVENT,
        time_ns=said.time_ns,
        labels={},
        message=f"LID {said.lid} reports to the subnet manager: {TRAPS[said.trap]}.",
        attributes={"trap": str(said.trap), "lid": str(said.lid), "line": said.text},
    )
