"""Switches that are dictionaries, and a host that reaches them."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from collector.contract.model import Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.switches.snmp.model import Flaw, Oid, Session, SnmpError, Target, Value, Walked

IF = "1.3.6.1.2.1.2.2.1"
IF_X = "1.3.6.1.2.1.31.1.1.1"
UPTIME = "1.3.6.1.2.1.1.3.0"
TABLE_CHANGED = "1.3.6.1.2.1.31.1.5.0"


def oid(text: str) -> Oid:
    return tuple(int(part) for part in text.split("."))


class FakeSwitch:
    """Answers from a dictionary; a test changes it between polls."""

    def __init__(self, rows: Mapping[str, Value]) -> None:
        self.rows = {oid(name): value for name, value in rows.items()}
        self.is_dead = False
        self.is_mute = False
        self.refusal: SnmpError | None = None
        self.silent: set[str] = set()
        """Beginnings of names below which every walk times out."""
        self.hanging: set[str] = set()
        """Beginnings of names below which a walk never ends."""
        self.flaws: list[Flaw] = []
        self.gets = 0
        self.walked: list[Oid] = []
        self.is_closed = False

    def __setitem__(self, name: str, value: Value) -> None:
        self.rows[oid(name)] = value

    def remove(self, beginning: str) -> None:
        start = oid(beginning)
        self.rows = {n: v for n, v in self.rows.items() if n[: len(start)] != start}

    async def get(self, oids: list[Oid]) -> list[Value | None]:
        self.gets += 1
        if self.is_mute:
            await asyncio.Event().wait()
        if self.refusal:
            raise self.refusal
        if self.is_dead:
            raise SnmpError(UnreadReason.TIMEOUT, "no answer")
        return [self.rows.get(name) for name in oids]

    async def walk(self, columns: list[Oid], rows_max: int) -> Walked:  # noqa: ARG002
        found: dict[Oid, dict[Oid, Value]] = {}
        for column in columns:
            self.walked.append(column)
            if any(column[: len(oid(each))] == oid(each) for each in self.hanging):
                await asyncio.Event().wait()
            if any(column[: len(oid(each))] == oid(each) for each in self.silent):
                raise SnmpError(UnreadReason.TIMEOUT, "no answer")
            size = len(column)
            found[column] = {
                name[size:]: value
                for name, value in sorted(self.rows.items())
                if name[:size] == column and len(name) > size
            }
        asked = set(columns)
        return Walked(found, [flaw for flaw in self.flaws if flaw.column in asked])

    def close(self) -> None:
        self.is_closed = True


class FakeHost(Host):
    """A captured tree whose switches are fakes and whose clocks are set by hand."""

    def __init__(self, root: Path, switches: Mapping[str, FakeSwitch]) -> None:
        super().__init__(root)
        self.switches = switches
        self.targets: dict[str, Target] = {}
        self.clock_ns = 1_700_000_000_000_000_000

    def snmp(self, target: Target) -> Session:
        self.targets[target.name] = target
        return self.switches[target.name]

    def now_ns(self) -> int:
        return self.clock_ns

    def monotonic_ns(self) -> int:
        return self.clock_ns

    def sleep(self, seconds: float) -> None:
        self.clock_ns += int(seconds * 1e9)


def ports(*names: str, first: int = 1) -> dict[str, Value]:
    """A small switch: names of ports, 64-bit traffic, 32-bit errors, uptime of a day."""
    rows: dict[str, Value] = {
        "1.3.6.1.2.1.1.1.0": b"a switch",
        UPTIME: 8_640_000,
        TABLE_CHANGED: 0,
    }
    for index, name in enumerate(names, start=first):
        rows[f"{IF}.2.{index}"] = name.encode()
        rows[f"{IF}.3.{index}"] = 6
        rows[f"{IF}.8.{index}"] = 1
        rows[f"{IF}.14.{index}"] = 0
        rows[f"{IF_X}.1.{index}"] = name.encode()
        rows[f"{IF_X}.6.{index}"] = 10**12 + index
        rows[f"{IF_X}.19.{index}"] = 0
    return rows


def values(readings: list[Reading], metric: str, label: str = "port") -> dict[str, float]:
    """The samples of a metric, by one label."""
    return {
        dict(each.series.labels).get(label, ""): each.value
        for each in readings
        if isinstance(each, Sample) and each.series.metric == metric
    }


def absences(readings: list[Reading]) -> set[tuple[str, str, str]]:
    """Metric, table or port, and reason of everything that is missing."""
    found = set()
    for each in readings:
        if isinstance(each, Missing):
            labels = dict(each.series.labels)
            place = labels.get("table", labels.get("port", ""))
            found.add((each.series.metric, place, each.reason.value))
    return found
