"""Ports of Ethernet switches, over SNMP: traffic, errors, pauses, queues, cables and optics.

Which tables a switch is asked for depends on its maker and stands in `collector/switches/makers/`,
one TOML each. This file decides *when* each switch is asked: all of them in one round, side by
side, each with a time of its own. A switch that is slow or dead costs its own readings, not
another's, and is asked less and less often until it answers again.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple

import msgspec

from collector.contract.errors import CatalogError, HostError, SettingsError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.doors.host import Host
from collector.sources import SourceSettings
from collector.switches.makers import Switchbooks, load_shipped, parse_switch_file
from collector.switches.peaks import Peaks
from collector.switches.snmp.interfaces import Choice
from collector.switches.snmp.model import Credentials, Session, SnmpError, Target
from collector.switches.snmp.switch import METHOD, Pace, SwitchReader

SWITCHES_MAX = 1024
"""Of one agent. 128 switches of 64 ports already are 160,000 numbers a round; more agents share
more switches."""
SWITCHES_AT_ONCE = 64
"""Asked at the same time: as many sockets and half-read answers as an agent can hold easily."""
ROUND_SHARE = 0.9
"""Of `timeout_seconds`, for asking; the rest is for the readings."""
BACKOFF_SECONDS_MAX = 300.0
"""The longest pause for a silent switch: after a repair it is back within this time."""
BACKOFF_DOUBLINGS_MAX = 10
JITTER_SHARE = 0.25
"""By which pauses of different switches differ, so that those that died together are not asked
together. It comes from the name: the same at every start."""
STATE_ENTRIES_MAX = 200_000
"""Counters that have wrapped, of all switches: 24 for each port of 128 switches. Others of a state
file are passed over; they begin at 0, as after a reset."""
TABLES_DIR = "tables_dir"

SECRETS = ("community", "auth_key", "privacy_key")
"""Settings that may stand in a file of their own: `community_file` and so on."""

log = logging.getLogger(__name__)


class Switch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One switch. None takes the source's setting."""

    name: str
    address: str
    port: int = 161
    profile: str = ""
    version: str | None = None
    community: str | None = None
    community_file: str | None = None
    user: str | None = None
    auth: str | None = None
    auth_key: str | None = None
    auth_key_file: str | None = None
    privacy: str | None = None
    privacy_key: str | None = None
    privacy_key_file: str | None = None
    context: str | None = None

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable() or not self.address:
            raise SettingsError(
                f"sources.snmp: a switch needs a name and an address: {self.name!r}"
            )
        if not 0 < self.port < 1 << 16:
            raise SettingsError(f"sources.snmp: switch {self.name!r}: port = {self.port}")


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `snmp`."""

    interval_seconds: float = 30.0
    """Agents of switches renew their numbers every few seconds, and are slow to answer."""
    timeout_seconds: float = 25.0
    """A round is over by then; what was not reached is named."""
    switches: tuple[Switch, ...] = ()
    """`[[sources.snmp.switches]]`: `name` and `address`; if they differ from the others', also
    `port`, `profile` and any of the credentials below. None: this source is off."""
    version: str = "2c"
    """`2c` or `3`."""
    community: str = "public"
    """For 2c. Better in `community_file`: a settings file is read by many."""
    community_file: str = ""
    user: str = ""
    """For 3."""
    auth: str = ""
    """`md5`, `sha`, `sha224`, `sha256`, `sha384`, `sha512`; empty for none."""
    auth_key: str = ""
    auth_key_file: str = ""
    privacy: str = ""
    """`des`, `3des`, `aes`, `aes192`, `aes256`; empty for none."""
    privacy_key: str = ""
    privacy_key_file: str = ""
    context: str = ""
    answer_seconds: float = 2.0
    """For one answer; a switch under load takes a second."""
    retries: int = 1
    rows_per_answer: int = 40
    switch_seconds: float = 20.0
    """For one switch in one round. A slower one gives a part of its tables, and the others in the
    next round."""
    include: tuple[str, ...] = ()
    """Ports that are not physical (LAGs, VLANs) to read as well, as shell patterns."""
    exclude: tuple[str, ...] = ()
    """Ports to leave alone, as shell patterns; wins over ``include``."""
    tables_dir: str = ""
    """A folder with more TOML files of makers' tables; one with a known name replaces ours."""
    names_every: int = 10
    """Rounds from one reading of names to the next; at once when the switch reports a change."""
    neighbours_every: int = 4
    """Rounds from one reading of LLDP to the next; LLDP itself forgets a neighbour in 120 s."""
    sensors_every: int = 4
    """Rounds from one reading of optics to the next: for the switch they are slow to read."""

    def __post_init__(self) -> None:
        def refuse(why: str) -> None:
            raise SettingsError(f"sources.snmp: {why}")

        names = [switch.name for switch in self.switches]
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            refuse(f"switches of the same name: {', '.join(twice)}")
        if len(names) > SWITCHES_MAX:
            refuse(f"{len(names)} switches; an agent polls at most {SWITCHES_MAX}")
        if min(self.names_every, self.neighbours_every, self.sensors_every) < 1:
            refuse("names_every, neighbours_every and sensors_every are at least 1")
        if self.answer_seconds <= 0 or self.switch_seconds <= 0 or self.retries < 0:
            refuse("answer_seconds and switch_seconds are above 0, retries is at least 0")
        if not 0 < self.rows_per_answer <= 1000:  # noqa: PLR2004 - no datagram holds more
            refuse("rows_per_answer is from 1 to 1000")


class Trouble(NamedTuple):
    """The reason why a switch is not up."""

    reason: UnreadReason
    detail: str


class Polled:
    """One switch: its session, what is known of it, and its back-off."""

    def __init__(self, settings: Switch, reader: SwitchReader) -> None:
        self.settings = settings
        self.reader = reader
        self.session: Session | None = None
        self.failures = 0
        self.next_ns = 0
        self.trouble: Trouble | None = None
        self.seconds = 0.0
        self.is_fresh = False
        self._peaks = Peaks()
        own = {"host": settings.name, "method": METHOD}
        self._up = Series("fabric_switch_up", own)
        self._uptime = Series("fabric_switch_uptime_seconds", {"host": settings.name})

    def fail(self, trouble: Trouble, now_ns: int, interval_seconds: float) -> None:
        """Count a failure and set the time of the next attempt."""
        self.trouble = trouble
        self.failures += 1
        pause = pause_seconds(self.settings.name, self.failures, interval_seconds)
        self.next_ns = now_ns + int(pause * NS)

    def succeed(self) -> None:
        self.trouble = None
        self.failures = 0
        self.next_ns = 0

    def report(self, time_ns: int) -> Iterator[Reading]:
        if self.trouble is None:
            yield from self._peaks.with_bursts(self.reader.report(self.seconds))
            return
        yield Sample(self._up, 0, time_ns)
        yield Missing(self._uptime, *self.trouble)


def pause_seconds(name: str, failures: int, interval_seconds: float) -> float:
    """How long a switch rests after so many failures; after the first the next round asks again."""
    doubled = interval_seconds * 2.0 ** min(failures - 1, BACKOFF_DOUBLINGS_MAX)
    spread = blake2b(name.encode(), digest_size=2).digest()
    jitter = 1 - JITTER_SHARE * int.from_bytes(spread, "little") / 0xFFFF
    return min(BACKOFF_SECONDS_MAX, doubled) * jitter


class Snmp:
    """The source; it keeps sessions, series and the counters that it extends between rounds."""

    name: ClassVar[str] = "snmp"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        self._shipped = load_shipped() if settings.switches else {}
        self._switches: list[Polled] = []
        self._complaints: list[Missing] = []
        self._restored: dict[str, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn = 0

    def read(self, host: Host) -> Iterator[Reading]:
        if not self._settings.switches:
            return
        if not self._switches:
            self._prepare(host)
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._round(host))
        time_ns = host.now_ns()
        yield from self._complaints
        for switch in self._switches:
            yield from switch.report(time_ns)

    def close(self) -> None:
        if self._loop is None or self._loop.is_closed():
            return
        for switch in self._switches:
            if switch.session is not None:
                switch.session.close()
                switch.session = None
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            # Transports close in the loop's next turn, which cannot run inside another running
            # loop: a finalizer cannot choose where it runs.
            self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def __del__(self) -> None:
        """A source that is replaced by new settings is only dropped."""
        if getattr(self, "_loop", None) is not None and not sys.is_finalizing():
            self.close()

    # State over restarts of the agent ----------------------------------------------------------

    def save_state(self) -> dict[str, Any]:
        """What must be kept so that extended counters go on after a restart, by switch."""
        if not self._switches:
            return self._restored
        saved: dict[str, Any] = {}
        left = STATE_ENTRIES_MAX
        for switch in self._switches:
            state = switch.reader.save()
            counters = state.get("counters")
            left -= len(counters) if isinstance(counters, dict) else 0
            if state and left >= 0:
                saved[switch.settings.name] = state
        return saved

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; what has another shape is passed over."""
        self._restored = dict(list(state.items())[:SWITCHES_MAX])

    # Before the first round ----------------------------------------------------------------------

    def _prepare(self, host: Host) -> None:
        """Read the makers' tables and build what polls each switch."""
        files = dict(self._shipped)
        complaints: list[Missing] = []
        for name, text in self._read_tables_dir(host, complaints):
            try:
                files[name] = parse_switch_file(text, f"{name}.toml")
            except CatalogError as error:
                complaints.append(complain(name, UnreadReason.UNPARSEABLE, str(error)))
        books = Switchbooks(files)
        settings = self._settings
        for switch in settings.switches:
            if switch.profile and books.named(switch.profile) is None:
                detail = f"profile {switch.profile!r} of {switch.name}; there are {books.names}"
                complaints.append(complain(switch.profile, UnreadReason.ABSENT, detail))
            reader = SwitchReader(
                switch.name,
                switch.address,
                books=books,
                profile=switch.profile,
                choice=Choice(settings.include, settings.exclude),
                pace=Pace(settings.names_every, settings.neighbours_every, settings.sensors_every),
                now_ns=host.now_ns,
            )
            restore(reader, self._restored.get(switch.name))
            self._switches.append(Polled(switch, reader))
        self._complaints = list({each.series: each for each in complaints}.values())

    def _read_tables_dir(self, host: Host, complaints: list[Missing]) -> list[tuple[str, str]]:
        folder = self._settings.tables_dir.lstrip("/")
        if not folder:
            return []
        found: list[tuple[str, str]] = []
        try:
            for name in host.list(folder):
                if fnmatchcase(name, "*.toml"):
                    text = host.read(f"{folder}/{name}").decode("utf-8", "replace")
                    found.append((name.removesuffix(".toml"), text))
        except HostError as error:
            complaints.append(complain(TABLES_DIR, error.reason, str(error)))
        return found

    # One round -----------------------------------------------------------------------------------

    async def _round(self, host: Host) -> None:
        """Ask every switch that is due; over in ROUND_SHARE of the timeout."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.timeout_seconds * ROUND_SHARE
        gate = asyncio.Semaphore(SWITCHES_AT_ONCE)
        now_ns = host.monotonic_ns()
        due = [switch for switch in self._switches if now_ns >= switch.next_ns]
        # Another one begins each time: if time runs out, it is not always the same that wait.
        if due:
            start = self._turn % len(due)
            due = due[start:] + due[:start]
            self._turn += SWITCHES_AT_ONCE
        polls = (self._poll(switch, host, gate, deadline) for switch in due)
        outcomes = await asyncio.gather(*polls, return_exceptions=True)
        for switch, outcome in zip(due, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self._note_bug(switch, outcome, host.monotonic_ns())
            elif outcome is not None:
                raise outcome

    def _note_bug(self, switch: Polled, error: Exception, now_ns: int) -> None:
        """An answer of one switch caused a bug: it is paused, the others are not."""
        if not switch.failures:
            log.error(
                "switch %s broke the poll; this is a bug of ours, please report it with this trace",
                switch.settings.name,
                exc_info=error,
            )
        trouble = Trouble(UnreadReason.FAILED, f"{type(error).__name__}: {error}")
        switch.fail(trouble, now_ns, self._settings.interval_seconds)

    async def _poll(
        self, switch: Polled, host: Host, gate: asyncio.Semaphore, deadline: float
    ) -> None:
        """Ask one switch, in its time. Raises only if we have a bug."""
        loop = asyncio.get_running_loop()
        answered = False
        trouble = Trouble(UnreadReason.TIMEOUT, "not asked: the round was over")
        try:
            async with asyncio.timeout_at(deadline), gate:
                if switch.session is None or is_recorded(switch.session):
                    # A recording may have been rewritten since.
                    switch.session = self._open(switch.settings, host)
                began = loop.time()
                seconds = self._settings.switch_seconds
                trouble = Trouble(UnreadReason.TIMEOUT, f"no answer in {seconds:g} s")
                try:
                    async with asyncio.timeout(seconds):
                        await switch.reader.poll(switch.session)
                finally:
                    answered = switch.reader.is_answered
                    switch.seconds = 0.0 if is_recorded(switch.session) else loop.time() - began
        except TimeoutError:
            pass  # tables that were reached are reported; a silent switch is in trouble
        except (SnmpError, HostError) as error:
            answered = False
            trouble = Trouble(error.reason, error.detail)
        if answered:
            switch.succeed()
        else:
            switch.fail(trouble, host.monotonic_ns(), self._settings.interval_seconds)

    def _open(self, switch: Switch, host: Host) -> Session:
        settings = self._settings
        target = Target(
            name=switch.name,
            address=switch.address,
            port=switch.port,
            credentials=credentials_of(settings, switch, host),
            answer_seconds=settings.answer_seconds,
            retries=settings.retries,
            rows_per_answer=settings.rows_per_answer,
        )
        return host.snmp(target)


SOURCE = Snmp


def is_recorded(session: Session) -> bool:
    """Whether the answers come from a captured tree: their delays are then meaningless."""
    from collector.switches.snmp.replay import Recording  # noqa: PLC0415 - only pollers of switches need it

    return isinstance(session, Recording)


def credentials_of(settings: Settings, switch: Switch, host: Host) -> Credentials:
    """The credentials for a switch: its own, else those for all. Raises HostError.

    A secret in a file goes before one in the settings, the switch's before the others'.
    """
    chosen: dict[str, str] = {}
    for field in msgspec.structs.fields(Credentials):
        own = getattr(switch, field.name, None)
        common = getattr(settings, field.name)
        chosen[field.name] = own if own is not None else common
        if field.name in SECRETS:
            own_file = getattr(switch, f"{field.name}_file")
            file = own_file or ("" if own is not None else getattr(settings, f"{field.name}_file"))
            if file:
                text = host.read(file.lstrip("/")).decode("utf-8", "replace")
                chosen[field.name] = text.strip()
    return Credentials(**chosen)


def complain(table: str, reason: UnreadReason, detail: str) -> Missing:
    """A fault in the makers' tables, reported at every round."""
    return Missing(
        Series("fabric_switch_table_rows", {"method": METHOD, "table": table}), reason, detail
    )


def restore(reader: SwitchReader, entry: object) -> None:
    """Give a reader back what it had saved, where it has the right shape."""
    match entry:
        case {"uptime": [int(raw), int(whole), int(at_ns)], "counters": dict(counters)}:
            kept = {
                str(key): (state[0], state[1])
                for key, state in list(counters.items())[:STATE_ENTRIES_MAX]
                if is_counter_state(state)
            }
            reader.restore((raw, whole, at_ns), kept)
        case _:
            pass


def is_counter_state(state: object) -> bool:
    """Whether this is what `Extender` keeps: a raw reading, and what it was extended to."""
    match state:
        case [int(raw), int(extended)]:
            return 0 <= raw <= extended
        case _:
            return False
