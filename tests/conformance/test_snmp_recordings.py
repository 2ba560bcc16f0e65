"""Walks of real switches (librenms): every number that has a metric comes out of `snmp`, once.

What a number means is written down here a second time, from the MIBs themselves (RFC 2863, RFC
3635, RFC 3433), and files are parsed by a line of our own: nothing of the source's tables is used.
Numbers without a metric are in `UNREAD`, by their table and with the reason: another one fails the
test. The recordings are other people's, and lie beside the repository, if at all.
"""

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from collector.contract.model import Sample
from collector.doors.host import Host
from collector.sources.snmp import Settings, Snmp, Switch
from tests.tools.unmapped import unmapped

ROOT = Path(__file__).resolve().parents[2]
WALKS = ROOT.parent / "shared/recordings/snmp"
NAMES = sorted(each.stem for each in WALKS.glob("*.snmprec")) if WALKS.is_dir() else []
pytestmark = pytest.mark.skipif(not NAMES, reason="recorded walks of switches are not there")

NUMBERS = {"2": "INTEGER", "65": "Counter32", "66": "Gauge32", "70": "Counter64"}
"""Types of values that are numbers (67, TimeTicks, are times)."""
TICKS = "67"
IF, IFX = "1.3.6.1.2.1.2.2.1", "1.3.6.1.2.1.31.1.1.1"
DOT3, PAUSE, DOT3_WIDE = "1.3.6.1.2.1.10.7.2.1", "1.3.6.1.2.1.10.7.10.1", "1.3.6.1.2.1.10.7.11.1"
ETHERNET = {"6", "26", "62", "69", "117", "199"}
"""ifType of what a cable goes into."""
PORT = "fabric_port_"


class Meaning(NamedTuple):
    """A metric and the number that it has; None: a value that says nothing."""

    metric: str
    factor: float = 1.0
    states: dict[int, int] | None = None
    nothing: frozenset[int] = frozenset()
    labels: tuple[tuple[str, str], ...] = ()

    def value(self, number: int) -> float | None:
        if number in self.nothing:
            return None
        if self.states is not None:
            return self.states.get(number)
        return number * self.factor


GLOBAL = (("priority", "global"),)
MEANINGS: list[list[tuple[str, Meaning]]] = [
    # Of two columns with the same meaning the first that a port has counts.
    [(f"{IFX}.6", Meaning("receive_bytes_total")), (f"{IF}.10", Meaning("receive_bytes_total"))],
    [
        (f"{IFX}.7", Meaning("receive_unicast_packets_total")),
        (f"{IF}.11", Meaning("receive_unicast_packets_total")),
    ],
    [(f"{IFX}.8", Meaning("receive_multicast_packets_total"))],
    [(f"{IFX}.9", Meaning("receive_broadcast_packets_total"))],
    [(f"{IFX}.10", Meaning("transmit_bytes_total")), (f"{IF}.16", Meaning("transmit_bytes_total"))],
    [
        (f"{IFX}.11", Meaning("transmit_unicast_packets_total")),
        (f"{IF}.17", Meaning("transmit_unicast_packets_total")),
    ],
    [(f"{IFX}.12", Meaning("transmit_multicast_packets_total"))],
    [(f"{IFX}.13", Meaning("transmit_broadcast_packets_total"))],
    [
        (f"{IFX}.15", Meaning("rate_bits_per_second", 1e6, nothing=frozenset({0}))),
        (f"{IF}.5", Meaning("rate_bits_per_second", nothing=frozenset({0, 4294967295}))),
    ],
    [(f"{IF}.4", Meaning("mtu_bytes", nothing=frozenset({0})))],
    [(f"{IF}.7", Meaning("enabled", states={1: 1, 2: 0, 3: 0}))],
    [(f"{IF}.8", Meaning("state", states={1: 4, 2: 1, 3: 1, 5: 2, 6: 1, 7: 1}))],
    [(f"{IF}.13", Meaning("receive_discards_total"))],
    [(f"{IF}.14", Meaning("receive_errors_total"))],
    [(f"{IF}.19", Meaning("transmit_discards_total"))],
    [(f"{IF}.20", Meaning("transmit_errors_total"))],
    [
        (f"{DOT3_WIDE}.2", Meaning("receive_crc_errors_total")),
        (f"{DOT3}.3", Meaning("receive_crc_errors_total")),
    ],
    [
        (f"{DOT3_WIDE}.1", Meaning("receive_alignment_errors_total")),
        (f"{DOT3}.2", Meaning("receive_alignment_errors_total")),
    ],
    [
        (f"{DOT3_WIDE}.5", Meaning("receive_mac_errors_total")),
        (f"{DOT3}.16", Meaning("receive_mac_errors_total")),
    ],
    [
        (f"{DOT3_WIDE}.6", Meaning("symbol_errors_total")),
        (f"{DOT3}.18", Meaning("symbol_errors_total")),
    ],
    [(f"{PAUSE}.3", Meaning("receive_pause_frames_total", labels=GLOBAL))],
    [(f"{PAUSE}.4", Meaning("transmit_pause_frames_total", labels=GLOBAL))],
]
NOT_MEASURED = (
    f"{IF}.1.", f"{IF}.3.", f"{IFX}.14.", f"{IFX}.16.", f"{IFX}.17.", f"{DOT3}.19.",
)  # fmt: skip
"""Numbers that measure nothing: indexes, types, flags of the agent, the duplex."""


UNREAD = unmapped("snmp", "tables")
"""Tables whose numbers have no metric, and why."""
OPTICS = ("1.3.6.1.2.1.99.1.", "1.3.6.1.4.1.9.9.91.", "1.3.6.1.4.1.2636.3.60.")
"""Sensors: modules' and the switch's own temperatures are compared below; no more is read."""
DBM, CELSIUS = "14", "8"
BEYOND = {"-1000000000", "1000000000"}
"""EntitySensorValue: underflow and overflow."""
SENSOR = re.compile(
    r"^(?:DOM (?P<what_after>(?:TX|RX) (?:Power|Bias)|Temperature|Voltage) Sensor for (?P<port>\S+)"
    r"|(?P<before>\S+) Lane \d+ Transceiver (?P<what>[A-Za-z ]+) Sensor)$"
)
SENSORS = {
    "rx power": "module_receive_power_watts",
    "receive power": "module_receive_power_watts",
    "tx power": "module_transmit_power_watts",
    "transmit power": "module_transmit_power_watts",
    "tx bias": "module_bias_amperes",
    "bias current": "module_bias_amperes",
    "temperature": "module_temperature_celsius",
    "voltage": "module_supply_volts",
}
JUNIPER = {
    5: "module_receive_power_watts",
    6: "module_bias_amperes",
    7: "module_transmit_power_watts",
    8: "module_temperature_celsius",
}


class Walk:
    """One file: rows by name, and the ports that its ifTable names."""

    def __init__(self, name: str) -> None:
        self.rows: dict[str, tuple[str, str]] = {}
        for line in (WALKS / f"{name}.snmprec").read_text(errors="replace").split("\n"):
            oid, bar, rest = line.partition("|")
            if bar:
                kind, _, value = rest.partition("|")
                self.rows[oid] = kind, value
        types = self.column(f"{IF}.3")
        names, described = self.column(f"{IFX}.1"), self.column(f"{IF}.2")
        indexes = {*types, *names, *described}
        called = {index: names.get(index) or described.get(index) or index for index in indexes}
        twice = Counter(called.values())
        self.ports = {
            index: text if twice[text] == 1 else f"{text}#{index}"
            for index, text in called.items()
            if types.get(index, "6") in ETHERNET
        }

    def column(self, oid: str) -> dict[str, str]:
        head = f"{oid}."
        return {
            name.removeprefix(head): value
            for name, (_, value) in self.rows.items()
            if name.startswith(head) and "." not in name.removeprefix(head)
        }

    def wanted(self) -> dict[tuple[str, str, tuple[tuple[str, str], ...]], float]:
        """What must come out: by metric, port and labels beside it."""
        found: dict[tuple[str, str, tuple[tuple[str, str], ...]], float] = {}
        for columns in MEANINGS:
            for oid, meaning in columns:
                for index, text in self.column(oid).items():
                    value = meaning.value(int(text)) if text.lstrip("-").isdigit() else None
                    place = PORT + meaning.metric, self.ports.get(index, ""), meaning.labels
                    if place[1] and value is not None and place not in found:
                        found[place] = value
        return found

    def unread(self) -> set[str]:
        """Names of numbers that have no meaning above and are in no table of `UNREAD`."""
        known = tuple(f"{oid}." for columns in MEANINGS for oid, _ in columns)
        named = (*known, *NOT_MEASURED, *(f"{table}." for table in UNREAD), *OPTICS)
        return {
            name
            for name, (kind, _) in self.rows.items()
            if kind in NUMBERS and not name.startswith(named)
        }

    def sensed(self) -> dict[tuple[str, str], float]:
        """Modules' sensors by RFC 3433 and Cisco's copy of it, whose texts name the port."""
        found: dict[tuple[str, str], float] = {}
        texts = self.column("1.3.6.1.2.1.47.1.1.1.1.2")
        for table in ("1.3.6.1.2.1.99.1.1.1", "1.3.6.1.4.1.9.9.91.1.1.1.1"):
            kind, scale, digits, value, status = (self.column(f"{table}.{n}") for n in range(1, 6))
            for index, number in value.items():
                match = SENSOR.search(texts.get(index, ""))
                if match is None or status.get(index, "1") != "1" or number in BEYOND:
                    continue
                exponent = 3 * (int(scale[index]) - 9) - int(digits[index])
                measured = int(number) * 10.0**exponent
                if kind[index] == DBM:
                    if not measured:
                        continue  # a copper cable
                    measured = 0.001 * 10 ** (measured / 10)
                name = (match["what"] or match["what_after"]).lower()
                port = match["port"] or match["before"]
                if port in self.ports.values():
                    found.setdefault((SENSORS[name], port), measured)
        return found

    def juniper_optics(self) -> dict[tuple[str, str], float]:
        """JUNIPER-DOM-MIB: hundredths of dBm, microamperes, degrees; 0 is nothing."""
        found: dict[tuple[str, str], float] = {}
        for column, metric in JUNIPER.items():
            for index, text in self.column(f"1.3.6.1.4.1.2636.3.60.1.1.1.1.{column}").items():
                number = int(text)
                if number and index in self.ports:
                    value = {
                        "module_bias_amperes": number * 1e-6,
                        "module_temperature_celsius": float(number),
                    }.get(metric, 0.001 * 10 ** (number / 1000))
                    found[metric, self.ports[index]] = value
        return found

    def heat(self) -> list[float]:
        """Temperatures of the switch itself: of sensors that no module has."""
        found: list[float] = []
        texts = self.column("1.3.6.1.2.1.47.1.1.1.1.2")
        for table in ("1.3.6.1.2.1.99.1.1.1", "1.3.6.1.4.1.9.9.91.1.1.1.1"):
            kind, scale, digits, value, status = (self.column(f"{table}.{n}") for n in range(1, 6))
            found += [
                int(number) * 10.0 ** (3 * (int(scale[index]) - 9) - int(digits[index]))
                for index, number in value.items()
                if kind[index] == CELSIUS
                and status.get(index, "1") == "1"
                and number not in BEYOND
                and not SENSOR.search(texts.get(index, ""))
            ]
        return sorted(found)


def read(name: str, folder: Path) -> list[Sample]:
    """All that the source reads of a walk."""
    (folder / "snmp").mkdir()
    (folder / f"snmp/{name}.snmprec").write_bytes((WALKS / f"{name}.snmprec").read_bytes())
    settings = Settings(switches=(Switch(name=name, address="192.0.2.1"),))
    source = Snmp(settings)
    try:
        return [each for each in source.read(Host(folder)) if isinstance(each, Sample)]
    finally:
        source.close()


@pytest.mark.parametrize("name", NAMES)
def test_every_number_with_a_metric_comes_out_once_at_its_port(name: str, tmp_path: Path) -> None:
    walk, samples = Walk(name), read(name, tmp_path)
    wanted = walk.wanted()
    metrics = {metric for metric, _, _ in wanted}
    found: dict[tuple[str, str, tuple[tuple[str, str], ...]], float] = {}
    for sample in samples:
        labels = dict(sample.series.labels)
        if sample.series.metric not in metrics:
            continue
        more = tuple(
            sorted((k, v) for k, v in labels.items() if k not in {"host", "device", "port"})
        )
        key = sample.series.metric, labels["port"], more
        if more and more != GLOBAL:
            continue  # of one priority, by a maker's own table
        assert key not in found, f"{key} is there twice"
        found[key] = float(sample.value)
    assert {key: wanted[key] for key in wanted.keys() - found.keys()} == {}
    assert {key: found[key] for key in found.keys() - wanted.keys()} == {}
    assert {key: (wanted[key], found[key]) for key in wanted if wanted[key] != found[key]} == {}
    assert walk.unread() == set()


@pytest.mark.parametrize("name", NAMES)
def test_light_of_every_module_comes_out_once_and_none_is_made_up(
    name: str, tmp_path: Path
) -> None:
    walk, samples = Walk(name), read(name, tmp_path)
    wanted = {**walk.sensed(), **walk.juniper_optics()}
    found = {
        (each.series.metric.removeprefix(PORT), dict(each.series.labels)["port"]): each.value
        for each in samples
        if each.series.metric.startswith(f"{PORT}module_")
    }
    assert len(found) == sum(each.series.metric.startswith(f"{PORT}module_") for each in samples)
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key] == pytest.approx(value, rel=1e-9), key


def test_every_reason_is_of_a_table_that_was_recorded() -> None:
    numbers = {
        name
        for each in NAMES
        for name, (kind, _) in Walk(each).rows.items()
        if kind in NUMBERS or kind == TICKS
    }
    unused = [table for table in UNREAD if not any(n.startswith(f"{table}.") for n in numbers)]
    assert unused == []


@pytest.mark.parametrize("name", NAMES)
def test_every_temperature_of_the_switch_comes_out_once(name: str, tmp_path: Path) -> None:
    walk, samples = Walk(name), read(name, tmp_path)
    found = [s for s in samples if s.series.metric == "fabric_switch_temperature_celsius"]
    assert len({each.series for each in found}) == len(found)
    assert sorted(each.value for each in found) == pytest.approx(walk.heat(), rel=1e-9)
