"""Tables of numbers: which row is which series, worked out once and used at every poll.

A *plan* maps the index of a row to its `Entry`. What a poll costs is spent in `TablePlan.take`, so
it does little per number: look up the entry, make a sample. A plan is dropped when the names of
ports change; the series and the extended counters live on in the switch's `Ledger`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from collector.contract.counters import WRAPS_32, Extender
from collector.contract.identity import printable
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.switches.makers import INTERFACE, Cell, Part, Walk
from collector.switches.snmp.interfaces import Interfaces
from collector.switches.snmp.model import Flaw, Oid, Value, Walked
from collector.switches.snmp.words import LABEL_CHARACTERS_MAX, dotted, shown

COUNTER_MAX = (1 << 64) - 1
SERIES_MAX = 100_000
"""Of one switch: a chassis of 1,152 ports with ten numbers for each of eight queues. More is an
agent that makes up rows; they are counted and passed over."""
ABSENCES_MAX = 64
"""Rows of a column that are named when they are gone or nonsense; the others are only counted. A
line card that goes takes 64 ports with it, a table of queues thousands."""
DBM_MAX = 100.0
MILLIWATT = 0.001
TEXT_BYTES_MAX = 64
"""Of a text in an index."""

UNKNOWN_INTERFACE = "unknown_interface"
ODD_INDEX = "odd_index"
DUPLICATE_SERIES = "duplicate_series"
TOO_MANY_SERIES = "too_many_series"
ROW_GONE = "row_gone"


class Slot:
    """One series of a switch and what is remembered of it from poll to poll."""

    __slots__ = ("extender", "index", "interface", "owner", "series")

    def __init__(self, series: Series, interface: int | None) -> None:
        self.series = series
        self.interface = interface
        self.index: Oid = ()
        self.owner: Oid | None = None
        """The column that gives it. It stays so until that column lacks the row: a counter of 64
        bits and its copy of 32 must not take turns, or their difference would look like traffic."""
        self.extender: Extender | None = None


class Ledger:
    """All series of one switch, kept over every change of plan."""

    def __init__(self, host: str, restored: Mapping[str, tuple[int, int]] | None = None) -> None:
        self._host = host
        self._restored = dict(restored or {})
        self.slots: dict[Series, Slot] = {}

    def labels(self, port: str = "") -> dict[str, str]:
        return {"host": self._host, "device": self._host, "port": port}

    def slot(self, series: Series, interface: int | None) -> Slot | None:
        """The slot of this series; None if there are too many."""
        slot = self.slots.get(series)
        if slot is None:
            if len(self.slots) >= SERIES_MAX:
                return None
            slot = self.slots[series] = Slot(series, interface)
        return slot

    def claim(self, slot: Slot, cell: Cell, index: Oid, interface: int | None) -> None:
        """Let this row feed the slot from now on."""
        # Another index means another counter, even under the same name: the old one's value does
        # not apply to it.
        is_same = slot.owner == cell.oid and slot.index == index
        if cell.wraps and not (is_same and slot.extender is not None):
            before = self._restored.pop(repr(slot.series), None) if not slot.index else None
            slot.extender = Extender(WRAPS_32, before)
        elif not cell.wraps:
            slot.extender = None
        slot.owner, slot.index, slot.interface = cell.oid, index, interface

    def restart(self, interfaces: set[int] | None = None) -> None:
        """Forget the last values of narrow counters: of these interfaces, or of all."""
        if interfaces is None:
            self._restored = {}
        for slot in self.slots.values():
            if slot.extender is not None and (interfaces is None or slot.interface in interfaces):
                slot.extender = Extender(WRAPS_32)

    def forget(self, kept: set[Series]) -> None:
        self.slots = {series: slot for series, slot in self.slots.items() if series in kept}

    def state(self) -> dict[str, tuple[int, int]]:
        """Counters that have wrapped: they must outlive the agent, even if not read since."""
        states = {
            repr(slot.series): slot.extender.state
            for slot in self.slots.values()
            if slot.extender is not None
        }
        wrapped = {key: state for key, state in states.items() if state[0] != state[1]}
        return self._restored | wrapped


class Entry:
    """The series and conversion of one row of one column."""

    __slots__ = ("cell", "is_plain", "series", "slot")

    def __init__(self, slot: Slot, cell: Cell) -> None:
        spec = cell.spec
        self.slot = slot
        self.series = slot.series
        self.cell = cell
        self.is_plain = not (
            cell.wraps or spec.values or spec.none or spec.dbm or spec.signed or spec.factor != 1
        )


class Taken(NamedTuple):
    """The result of a walk of a table."""

    readings: list[Reading]
    flaws: Counter[str]
    rows: int
    """Of the longest column."""
    values: int


class Row(NamedTuple):
    """An index, taken apart."""

    interface: int | None
    numbers: dict[str, int]
    labels: dict[str, str]


class TablePlan:
    """One table of one switch."""

    def __init__(self, walk: Walk, ledger: Ledger) -> None:
        self.walk = walk
        self._ledger = ledger
        self._cells: dict[Oid, list[Cell]] = {}
        for cell in walk.cells:
            self._cells.setdefault(cell.oid, []).append(cell)
        self._plans: dict[Oid, dict[Oid, Entry | None]] = {}
        self._discontinuities: dict[Oid, Value] = {}
        self._flaws: Counter[str] = Counter()
        """Rows that are passed over in every poll."""
        self._flawed: dict[Oid, Flaw] = {}

    def clear(self) -> None:
        """Plan all rows again at the next walk: names have changed."""
        self._plans = {}
        self._flaws = Counter()

    def look_again(self) -> None:
        """Try again what gave nothing; what gives something stays: 160,000 series take seconds."""
        for oid, plan in list(self._plans.items()):
            for index in [index for index, entry in plan.items() if entry is None]:
                del plan[index]
            if not plan:
                del self._plans[oid]
        self._flaws = Counter()

    def columns(self) -> list[Oid]:
        """The columns to walk: those that give something, and those not tried yet."""
        plans = self._plans
        chosen = [oid for oid in self.walk.columns if oid not in plans or any(plans[oid].values())]
        if chosen and self.walk.discontinuity is not None:
            chosen.append(self.walk.discontinuity)
        return chosen

    @property
    def series(self) -> set[Series]:
        """Every series that this table gives now."""
        return {entry.series for plan in self._plans.values() for entry in plan.values() if entry}

    @property
    def metrics(self) -> set[str]:
        return {cell.spec.metric for cell in self.walk.cells}

    def explain(self, metric: str) -> tuple[UnreadReason, str]:
        """Why this table, which is there, does not give one of its metrics."""
        for cell in self.walk.cells:
            flaw = self._flawed.get(cell.oid)
            if cell.spec.metric == metric and flaw is not None:
                return flaw.reason, flaw.detail
        return (
            UnreadReason.ABSENT,
            f"the switch does not have this column of its table {self.walk.name}",
        )

    def take(
        self, walked: Walked, interfaces: Interfaces, time_ns: int, reserved: set[str]
    ) -> Taken:
        """Readings of all rows. Metrics in ``reserved`` get no new series: see `Slot.owner`."""
        flawed = self._flawed = {flaw.column: flaw for flaw in walked.flaws}
        if not flawed and not any(walked.columns.values()):
            self._let_go()
            return Taken([], Counter(), 0, 0)
        self._note_discontinuities(walked)
        readings: list[Reading] = []
        flaws = Counter(flaw.reason.value for flaw in walked.flaws)
        rows_most = 0
        for oid in self.walk.columns:
            rows = walked.columns.get(oid)
            if rows is None:
                continue
            rows_most = max(rows_most, len(rows))
            if not rows and oid not in self._plans:
                if oid not in flawed:
                    self._plans[oid] = {}  # it has none: not asked for until names are read again
                continue
            before = len(readings)
            self._take_column(oid, rows, interfaces, time_ns, reserved, readings)
            flaws.update(self._name_gone(oid, rows, flawed.get(oid), readings))
            _shorten(readings, before, flaws)
        return Taken(
            readings, flaws + self._flaws, rows_most, sum(map(len, walked.columns.values()))
        )

    def _take_column(
        self,
        oid: Oid,
        rows: Mapping[Oid, Value],
        interfaces: Interfaces,
        time_ns: int,
        reserved: set[str],
        readings: list[Reading],
    ) -> None:
        plan = self._plans.setdefault(oid, {})
        append = readings.append
        for index, value in rows.items():
            try:
                entry = plan[index]
            except KeyError:
                entry = plan[index] = self._plan_row(oid, index, interfaces, reserved)
            if entry is None:
                continue
            if entry.is_plain and isinstance(value, int) and 0 <= value <= COUNTER_MAX:
                append(Sample(entry.series, value, time_ns))
            else:
                append(convert(entry, value, time_ns))

    def _let_go(self) -> None:
        """The whole table is missing: one absence stands for it, not one for each row."""
        was_there = any(self._plans.values())
        for plan in self._plans.values():
            for entry in plan.values():
                if entry is not None:
                    entry.slot.owner = None
        # One that was there is looked for at every poll: its part of the agent may restart.
        self._plans = {} if was_there else {oid: {} for oid in self.walk.columns}
        self._flaws = Counter()

    def _name_gone(
        self, oid: Oid, rows: Mapping[Oid, Value], flaw: Flaw | None, readings: list[Reading]
    ) -> Counter[str]:
        """Report planned rows that did not come; forget them unless the walk was cut short."""
        plan, flaws = self._plans[oid], Counter[str]()
        if len(plan) == len(rows):
            return flaws
        for index in [index for index in plan if index not in rows]:
            entry = plan[index] if flaw else plan.pop(index)
            if entry is None:
                continue
            flaws[ROW_GONE] += 1
            reason = flaw.reason if flaw else UnreadReason.ABSENT
            detail = flaw.detail if flaw else f"{self.walk.name}: the row {dotted(index)} is gone"
            readings.append(Missing(entry.series, reason, detail))
            if not flaw:
                entry.slot.owner = None
        return flaws

    # Planning ------------------------------------------------------------------------------------

    def _plan_row(
        self, oid: Oid, index: Oid, interfaces: Interfaces, reserved: set[str]
    ) -> Entry | None:
        """The entry of this row; None for a row that is passed over, counted where it is odd."""
        row = read_index(self.walk.parts, index)
        if row is None:
            self._flaws[ODD_INDEX] += 1
            return None
        labels = {"host": self._ledger.labels()["host"]}
        if row.interface is not None:
            interface = interfaces.by_index.get(row.interface)
            if interface is None:
                self._flaws[UNKNOWN_INTERFACE] += 1
                return None
            if not interface.is_chosen:
                return None
            labels = self._ledger.labels(interface.name)
        for cell in self._cells[oid]:
            if all(row.numbers.get(name) == number for name, number in cell.spec.where.items()):
                return self._enter(cell, index, row, labels, reserved)
        return None

    def _enter(
        self, cell: Cell, index: Oid, row: Row, labels: dict[str, str], reserved: set[str]
    ) -> Entry | None:
        """The entry of a row, unless another column gives its series already."""
        series = Series(cell.spec.metric, labels | row.labels | cell.labels)
        slot = self._ledger.slot(series, row.interface)
        if slot is None:
            self._flaws[TOO_MANY_SERIES] += 1
            return None
        if slot.owner is not None and slot.owner != cell.oid:
            return None
        taken = self._plans.get(cell.oid, {}).get(slot.index) if slot.owner else None
        if taken is not None and taken.slot is slot:
            self._flaws[DUPLICATE_SERIES] += 1
            return None
        if slot.owner is None and series.metric in reserved:
            return None
        self._ledger.claim(slot, cell, index, row.interface)
        return Entry(slot, cell)

    def _note_discontinuities(self, walked: Walked) -> None:
        """Restart the narrow counters of interfaces that report a discontinuity."""
        column = self.walk.discontinuity
        if column is None:
            return
        now, before = walked.columns.get(column, {}), self._discontinuities
        changed = {
            index[0]
            for index, value in now.items()
            if len(index) == 1 and before.get(index, value) != value
        }
        if changed:
            self._ledger.restart(changed)
        self._discontinuities = dict(now)


def _shorten(readings: list[Reading], start: int, flaws: Counter[str]) -> None:
    """Keep at most ABSENCES_MAX absences among a column's readings; count nonsense and the rest."""
    absent = 0
    for position in range(start, len(readings)):
        reading = readings[position]
        if isinstance(reading, Missing):
            absent += 1
            if reading.reason is UnreadReason.UNPARSEABLE:
                flaws[UnreadReason.UNPARSEABLE.value] += 1
    if absent <= ABSENCES_MAX:
        return
    kept: list[Reading] = []
    left = ABSENCES_MAX
    for reading in readings[start:]:
        if isinstance(reading, Missing):
            left -= 1
            if left < 0:
                continue
        kept.append(reading)
    flaws["absences_left_out"] += absent - ABSENCES_MAX
    readings[start:] = kept


def read_index(parts: tuple[Part, ...], index: Oid) -> Row | None:
    """An index, split as its table defines; None if it does not fit.

    >>> read_index((Part(name="interface"), Part(name="queue", label="queue", add=-1)), (7, 4))
    Row(interface=7, numbers={'interface': 7, 'queue': 4}, labels={'queue': '3'})
    """
    interface, at = None, 0
    numbers: dict[str, int] = {}
    labels: dict[str, str] = {}
    for part in parts:
        if at >= len(index):
            return None
        number = index[at]
        at += 1
        if part.text:
            text = index_text(index[at : at + number], number)
            if text is None:
                return None
            at += number
            labels[part.label] = text
            continue
        numbers[part.name] = number
        if part.name == INTERFACE:
            interface = number
        elif part.label:
            if number + part.add < 0:
                return None
            labels[part.label] = part.names.get(str(number), str(number + part.add))
    return Row(interface, numbers, labels) if at == len(index) else None


def index_text(numbers: Oid, length: int) -> str | None:
    """A text in an index, one number for each of its bytes; None if it is none."""
    if not 0 < length <= TEXT_BYTES_MAX or len(numbers) != length:
        return None
    try:
        text = bytes(numbers).decode("utf-8", "replace")
    except ValueError:
        return None
    return printable(text)[:LABEL_CHARACTERS_MAX]


# Numbers -----------------------------------------------------------------------------------------


def convert(entry: Entry, value: Value, time_ns: int) -> Sample | Missing:
    """The metric's value that a column's number stands for, or why there is none."""
    cell, spec, series = entry.cell, entry.cell.spec, entry.series
    if not isinstance(value, int):
        return Missing(series, UnreadReason.UNPARSEABLE, f"is no number: {shown(value)}")
    if value in spec.none:
        return Missing(
            series, UnreadReason.NOT_SUPPORTED, f"the switch reports {value}: it has none"
        )
    if spec.values:
        known = spec.values.get(str(value))
        if known is None:
            return Missing(series, UnreadReason.NOT_SUPPORTED, f"the switch reports {shown(value)}")
        return Sample(series, known, time_ns)
    is_odd = value > COUNTER_MAX or (value < 0 and (cell.is_counter or not spec.signed))
    if is_odd or (spec.dbm and abs(value * spec.factor) > DBM_MAX):
        return Missing(series, UnreadReason.UNPARSEABLE, f"is {shown(value)}")
    extender = entry.slot.extender
    number: float = value if extender is None else extender.extend(value)
    if spec.factor != 1:
        number *= spec.factor
    return Sample(series, watts_of(number) if spec.dbm else number, time_ns)


def watts_of(dbm: float) -> float:
    """Decibel-milliwatts as watts.

    >>> round(watts_of(-3.0), 6)
    0.000501
    """
    return float(10.0 ** (dbm / 10.0)) * MILLIWATT
