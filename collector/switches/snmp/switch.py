"""One switch, poll after poll: its identity, the names of its ports, and its readings.

A poll is made of *sections* (a table, the neighbours, the sensors of one kind). Before a poll every
section that is due is marked as not reached; each one that is read replaces its mark. So whatever
stops a poll, what was read is there and what was not is named. Sections that are not due keep their
last readings, with the times at which they were read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.switches.makers import SensorWalk, Switchbook, Switchbooks
from collector.switches.snmp.interfaces import INTERFACES, Choice, Interfaces, read_interfaces
from collector.switches.snmp.model import Oid, Session, SnmpError, Value
from collector.switches.snmp.neighbours import (
    LLDP_TABLE,
    LOCAL_CHASSIS,
    LOCAL_CHASSIS_KIND,
    chassis_text,
    read_neighbours,
)
from collector.switches.snmp.optics import SensorPlan, plan_sensors, read_entities, read_sensors
from collector.switches.snmp.plans import SERIES_MAX, Ledger, TablePlan
from collector.switches.snmp.words import DESCRIPTION_CHARACTERS_MAX, number_of, text_of

SYSTEM: Oid = (1, 3, 6, 1, 2, 1, 1)
SYSTEM_DESCRIPTION = (*SYSTEM, 1, 0)
SYSTEM_OBJECT_ID = (*SYSTEM, 2, 0)
SYSTEM_UPTIME = (*SYSTEM, 3, 0)
SYSTEM_NAME = (*SYSTEM, 5, 0)
IF_NUMBER: Oid = (1, 3, 6, 1, 2, 1, 2, 1, 0)
IF_TABLE_CHANGED: Oid = (1, 3, 6, 1, 2, 1, 31, 1, 5, 0)
"""When a row of ifTable last came or went. Where an agent has it, a reused ifIndex is noticed at
the next poll; elsewhere by the number of interfaces, or the next time that names are read."""

METHOD = "snmp"
ROWS_MAX = 20_000
"""Of one column: 1,152 ports with 16 queues. A walk that goes on is cut, and counted."""
FAILURES_MAX = 2
"""Sections in a row that fail before the rest of a poll is given up: one may be a slow table, two
are a switch that has gone."""
TICKS_PER_SECOND = 100
TICKS_END = 1 << 32
"""TimeTicks wrap after 497 days, which is no restart."""
UPTIME_SLACK = 0.02
"""Share of the time between two polls by which a switch's clock may differ from ours."""
UPTIME_SLACK_TICKS = 60 * TICKS_PER_SECOND
"""Plus the delay of an answer, or a step of our clock."""
NS_PER_TICK = 10_000_000


class Pace(NamedTuple):
    """How many polls go by from one reading to the next of what changes rarely."""

    names: int = 10
    neighbours: int = 4
    sensors: int = 4


class Uptime:
    """A switch's sysUpTime, made to go on beyond 497 days; a fall is a restart."""

    def __init__(self, state: tuple[int, int, int] | None = None) -> None:
        self.state = state
        """Ticks as sent, ticks since the restart, and when that was (our clock, nanoseconds)."""

    def update(self, ticks: int, now_ns: int) -> bool:
        """Take a reading; returns whether the switch has restarted since the last one."""
        if self.state is None:
            self.state = ticks, ticks, now_ns
            return False
        before, whole, at_ns = self.state
        forward = (ticks - before) % TICKS_END
        elapsed = max(0, now_ns - at_ns) / NS_PER_TICK
        allowed = elapsed * (1 + UPTIME_SLACK) + UPTIME_SLACK_TICKS
        restarted = ticks < before and forward > allowed
        self.state = ticks, ticks if restarted else whole + forward, now_ns
        return restarted

    @property
    def seconds(self) -> float:
        return self.state[1] / TICKS_PER_SECOND if self.state else 0.0


class Section(NamedTuple):
    """What was read of one part of a switch, or why it was not."""

    readings: list[Reading]
    flaws: Mapping[str, int]
    rows: int = 0
    failure: tuple[UnreadReason, str] | None = None


PENDING = Section([], {}, 0, (UnreadReason.TIMEOUT, "not reached in this poll"))


class SwitchReader:
    """One switch and everything that is known of it between polls."""

    def __init__(
        self,
        name: str,
        address: str,
        *,
        books: Switchbooks,
        profile: str,
        choice: Choice,
        pace: Pace,
        now_ns: Callable[[], int],
    ) -> None:
        self.name = name
        self.is_answered = False
        """Whether the switch answered anything in the last poll."""
        self._address = address
        self._books = books
        self._profile = profile
        self._choice = choice
        self._pace = pace
        self._now_ns = now_ns
        self._round = -1
        self._names_due = True
        self._uptime = Uptime()
        self._has_uptime = False
        self._stamp: tuple[Value | None, Value | None] | None = None
        self._ledger = Ledger(name)
        self._book: Switchbook | None = None
        self._interfaces = Interfaces([], {})
        self._ports: list[Series] = []
        self._plans: list[TablePlan] = []
        self._sensor_plans: dict[str, SensorPlan] = {}
        self._sections: dict[str, Section] = {}
        self._absent: list[Missing] = []
        self._info: dict[str, str] = {}
        self._known: dict[Series, Series] = {}
        self._values = 0
        self._failures = 0
        self._reserved: set[str] = set()
        self._left: set[str] = set()
        """Sections that the last poll did not reach: this one begins with them, or a switch that is
        too slow for all its tables would never give the last of them."""

    # State over restarts of the agent ----------------------------------------------------------

    def save(self) -> dict[str, object]:
        """State that has to outlive the agent; empty if there is none."""
        counters = self._ledger.state()
        uptime = self._uptime.state
        wrapped = uptime is not None and uptime[0] != uptime[1]
        return {"uptime": uptime, "counters": counters} if counters or wrapped else {}

    def restore(self, uptime: tuple[int, int, int], counters: dict[str, tuple[int, int]]) -> None:
        """Go on from what `save` returned before a restart. Before the first poll."""
        self._uptime = Uptime(uptime)
        self._ledger = Ledger(self.name, counters)

    # One poll ----------------------------------------------------------------------------------

    async def poll(self, session: Session) -> None:
        """Ask for all that is due; may be cancelled. SnmpError only if nothing is answered."""
        self._values = self._failures = 0
        self._reserved = set()
        self.is_answered = False
        self._left = {name for name, each in self._sections.items() if each is PENDING}
        self._mark_due(everything=self._names_due)
        ticks, changed, number = await session.get([SYSTEM_UPTIME, IF_TABLE_CHANGED, IF_NUMBER])
        self.is_answered = True
        self._note_uptime(ticks)
        self._round += 1
        if self._stamp is not None and self._stamp != (changed, number):
            self._names_due = True
        is_certain = self._stamp == (changed, number)
        self._stamp = changed, number
        if self._round % self._pace.names == 0:
            self._names_due = True
        is_full = self._names_due
        if is_full:
            self._mark_due(everything=True)
            try:
                await self._learn(session)
            except SnmpError as error:
                if not is_certain or self._book is None:
                    # Numbers under names that may belong to other ports are worse than none.
                    self._fail_all(error)
                    return
                is_full = False
        await self._read_sections(session)
        if is_full and not self._failures:
            self._settle()

    def _mark_due(self, *, everything: bool) -> None:
        """Mark the sections of this poll as not reached."""
        turn = self._round + 1
        for plan in self._plans:
            if everything or not plan.walk.slow or turn % self._pace.sensors == 0:
                self._sections[plan.walk.name] = PENDING
        if everything or turn % self._pace.neighbours == 0:
            self._sections[LLDP_TABLE] = PENDING
        for sensors in self._book.sensors if self._book else ():
            if everything or turn % self._pace.sensors == 0:
                self._sections[sensors.name] = PENDING

    def _note_uptime(self, ticks: Value | None) -> None:
        number = number_of(ticks)
        self._has_uptime = number is not None and 0 <= number < TICKS_END
        if number is not None and self._has_uptime and self._uptime.update(number, self._now_ns()):
            self._ledger.restart()
            self._names_due = True

    def _fail_all(self, error: SnmpError) -> None:
        for name, section in self._sections.items():
            if section is PENDING:
                self._sections[name] = Section([], {}, 0, (error.reason, error.detail))

    # Identity ------------------------------------------------------------------------------------

    async def _learn(self, session: Session) -> None:
        """Read the switch's identity and the names of its ports. Raises SnmpError."""
        wanted = [SYSTEM_DESCRIPTION, SYSTEM_OBJECT_ID, SYSTEM_NAME]
        description, object_id, name, kind, chassis = await session.get(
            [*wanted, LOCAL_CHASSIS_KIND, LOCAL_CHASSIS]
        )
        text = text_of(description, DESCRIPTION_CHARACTERS_MAX)
        identity = object_id if isinstance(object_id, tuple) else ()
        book = self._books.named(self._profile) or self._books.find(identity, text)
        interfaces = await read_interfaces(session, self._choice)
        if book is not self._book:
            self._book = book
            self._plans = [TablePlan(walk, self._ledger) for walk in book.walks]
            self._sections = {}
            self._mark_due(everything=True)
        for plan in self._plans:
            if interfaces == self._interfaces:
                plan.look_again()
            else:
                plan.clear()
        self._interfaces = interfaces
        self._ports = [
            self._intern(
                Series(
                    "fabric_port_info",
                    self._ledger.labels(each.name)
                    | {"link_layer": each.link_layer, "description": each.description},
                )
            )
            for each in interfaces.chosen
        ]
        self._sensor_plans = {}
        self._names_due = False
        self._info = {
            "host": self.name,
            "method": METHOD,
            "vendor": book.profile.vendor,
            "model": find_word(book.profile.model, text),
            "version": find_word(book.profile.version, text),
            "address": self._address,
            "description": text,
            "profile": book.profile.name,
            "system_name": text_of(name),
            "chassis": chassis_text(number_of(kind), chassis),
        }

    def _settle(self) -> None:
        """After everything was read: forget what is gone, name metrics that no table gives."""
        series = {each for plan in self._plans for each in plan.series}
        self._ledger.forget(series)
        given = {each.metric for each in series}
        wanted: dict[str, tuple[UnreadReason, str]] = {}
        for plan in self._plans:
            if self._sections[plan.walk.name].rows:
                for metric in sorted(plan.metrics - given):
                    wanted.setdefault(metric, plan.explain(metric))
        self._absent = []
        for metric, why in wanted.items():
            labels = {"host": self.name}
            if metric.startswith("fabric_port_"):
                labels["device"] = self.name
            self._absent.append(Missing(self._intern(Series(metric, labels)), *why))

    # Sections ------------------------------------------------------------------------------------

    def _is_due(self, name: str) -> bool:
        return self._sections.get(name) is PENDING

    def _fail(self, name: str, error: SnmpError) -> None:
        self._failures += 1
        self._sections[name] = Section([], {}, 0, (error.reason, error.detail))

    async def _read_sections(self, session: Session) -> None:
        """Everything that is due, beginning with what was left over."""
        tables = {plan.walk.name for plan in self._plans}
        if self._left - tables and tables - self._left:
            await self._read_rest(session)
        await self._read_tables(session)
        await self._read_rest(session)

    async def _read_tables(self, session: Session) -> None:
        in_a_row = 0
        for plan in sorted(self._plans, key=lambda plan: plan.walk.name not in self._left):
            name = plan.walk.name
            if not self._is_due(name):
                continue
            if in_a_row >= FAILURES_MAX:
                self._reserved |= plan.metrics
                continue
            columns = plan.columns()
            if not columns:
                self._sections[name] = Section([], {})
                continue
            try:
                walked = await session.walk(columns, ROWS_MAX)
            except SnmpError as error:
                self._fail(name, error)
                self._reserved |= plan.metrics
                in_a_row += 1
                continue
            in_a_row = 0
            taken = plan.take(walked, self._interfaces, self._now_ns(), self._reserved)
            if any(flaw.reason is UnreadReason.TIMEOUT for flaw in walked.flaws):
                self._reserved |= plan.metrics
            self._values += taken.values
            self._sections[name] = Section(taken.readings, taken.flaws, taken.rows)

    async def _read_rest(self, session: Session) -> None:
        if self._failures >= FAILURES_MAX:
            return
        if self._is_due(LLDP_TABLE):
            try:
                found = await read_neighbours(session, self._interfaces, self.name)
            except SnmpError as error:
                self._fail(LLDP_TABLE, error)
            else:
                time_ns = self._now_ns()
                links: list[Reading] = [Sample(self._intern(s), 1, time_ns) for s in found.links]
                self._values += found.values
                self._sections[LLDP_TABLE] = Section(links, found.flaws, found.rows)
        due = [each for each in self._book.sensors if self._is_due(each.name)] if self._book else []
        try:
            await self._read_sensors(session, due)
        except SnmpError as error:
            for sensors in due:
                if self._is_due(sensors.name):
                    self._fail(sensors.name, error)

    async def _read_sensors(self, session: Session, due: list[SensorWalk]) -> None:
        """Walk the sensors; their meaning and place are read as rarely as names."""
        if any(walk.name not in self._sensor_plans for walk in due):
            entities, flaws = await read_entities(session)
            for walk in due:
                plan = await plan_sensors(session, walk, entities, self._interfaces, self.name)
                plan.flaws.update(flaws)
                kept = {
                    index: sensor._replace(series=self._intern(sensor.series))
                    for index, sensor in plan.sensors.items()
                }
                self._sensor_plans[walk.name] = plan._replace(sensors=kept)
        given = {each for plan in self._plans if due for each in plan.series}
        for walk in due:
            measured = await read_sensors(session, self._sensor_plans[walk.name], self._now_ns)
            fresh: list[Reading] = [
                each
                for each in measured.readings
                if isinstance(each, Sample | Missing) and each.series not in given
            ]
            given |= {each.series for each in fresh if isinstance(each, Sample | Missing)}
            self._values += measured.values
            rows = len(self._sensor_plans[walk.name].sensors)
            self._sections[walk.name] = Section(fresh, measured.flaws, rows)

    # Readings ------------------------------------------------------------------------------------

    def report(self, seconds: float) -> Iterator[Reading]:
        """Everything that the last poll brought, and what it lacks."""
        time_ns = self._now_ns()
        own = {"host": self.name, "method": METHOD}
        yield Sample(self._intern(Series("fabric_switch_up", own)), 1, time_ns)
        uptime = self._intern(Series("fabric_switch_uptime_seconds", {"host": self.name}))
        if self._has_uptime:
            yield Sample(uptime, self._uptime.seconds, time_ns)
        else:
            yield Missing(uptime, UnreadReason.ABSENT, "the switch does not report its uptime")
        if self._info:
            yield Sample(self._intern(Series("fabric_switch_info", self._info)), 1, time_ns)
        yield Sample(self._intern(Series("fabric_switch_poll_seconds", own)), seconds, time_ns)
        yield Sample(self._intern(Series("fabric_switch_poll_values", own)), self._values, time_ns)
        yield from self._report_ports(time_ns)
        for name, section in self._sections.items():
            yield from section.readings
            yield self._report_rows(name, section, time_ns)
        yield from self._absent
        yield from self._report_flaws(time_ns)

    def _report_ports(self, time_ns: int) -> Iterator[Reading]:
        for series in self._ports:
            yield Sample(series, 1, time_ns)
        if self._book is not None and not self._interfaces.by_index:
            rows = self._rows_series(INTERFACES)
            yield Missing(rows, UnreadReason.ABSENT, "the switch names no interfaces")

    def _report_rows(self, name: str, section: Section, time_ns: int) -> Reading:
        rows = self._rows_series(name)
        if section.failure is not None:
            return Missing(rows, *section.failure)
        if not section.rows:
            return Missing(rows, UnreadReason.ABSENT, "the switch does not have this table")
        return Sample(rows, section.rows, time_ns)

    def _rows_series(self, table: str) -> Series:
        labels = {"host": self.name, "method": METHOD, "table": table}
        return self._intern(Series("fabric_switch_table_rows", labels))

    def _report_flaws(self, time_ns: int) -> Iterator[Reading]:
        all_flaws = {name: section.flaws for name, section in self._sections.items()}
        for table, flaws in {INTERFACES: Counter(self._interfaces.flaws), **all_flaws}.items():
            for flaw, count in sorted(flaws.items()):
                labels = {"host": self.name, "method": METHOD, "table": table, "flaw": flaw}
                series = self._intern(Series("fabric_switch_poll_flaws", labels))
                yield Sample(series, count, time_ns)

    def _intern(self, series: Series) -> Series:
        """The same object for the same series, poll after poll."""
        if len(self._known) > SERIES_MAX:
            self._known = {}
        return self._known.setdefault(series, series)


def find_word(pattern: str, text: str) -> str:
    r"""The match of the pattern's group in a description; empty if nothing.

    >>> find_word(r"version (\S+)", "EOS version 4.33.6M running")
    '4.33.6M'
    """
    match = re.search(pattern, text) if pattern else None
    return text_of((match[1] or "").encode()) if match else ""
