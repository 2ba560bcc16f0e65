"""Simulated switches of every maker, read by the `snmp` source: each counter under its own name.

Through recordings for all makers, and through the real snmpsim over UDP.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import numpy as np
import pytest

from collector.contract.model import Missing, Reading, Sample
from collector.doors.host import Host
from collector.sources.snmp import Settings, Snmp
from simulator.interfaces.columns import LOSSLESS_PRIORITY
from simulator.interfaces.switch_tables import (
    STANDARD_COLUMNS,
    Column,
    Flavour,
    Readings,
    Row,
    Syntax,
    interface_name,
    switch_rows,
    vendor_columns,
)
from simulator.interfaces.switch_tables import Reading as Kind
from simulator.snapshot import Counts, Snapshot
from simulator.topology.build import ClusterSpec, build
from simulator.topology.model import Fabric
from tests.doubles import snmp_responder
from tests.worlds.simulated import make_snapshot

NARROW = {Syntax.COUNTER32, Syntax.GAUGE32, Syntax.TIMETICKS}
WATTS_PER_UNIT = 1e-7
"""Simulated optics say ten-thousandths of a milliwatt."""

each_flavour = pytest.mark.parametrize("flavour", Flavour)

Named = tuple[str, dict[str, str]]
"""A metric and its labels besides those of the port."""

IF, IF_X, DOT3 = "1.3.6.1.2.1.2.2.1", "1.3.6.1.2.1.31.1.1.1", "1.3.6.1.2.1.10.7"
STANDARD: dict[str, Named] = {
    f"{IF}.8": ("state", {}),
    f"{IF}.13": ("receive_discards_total", {}),
    f"{IF}.14": ("receive_errors_total", {}),
    f"{IF}.19": ("transmit_discards_total", {}),
    f"{IF}.20": ("transmit_errors_total", {}),
    f"{IF_X}.6": ("receive_bytes_total", {}),
    f"{IF_X}.7": ("receive_unicast_packets_total", {}),
    f"{IF_X}.10": ("transmit_bytes_total", {}),
    f"{IF_X}.11": ("transmit_unicast_packets_total", {}),
    f"{IF_X}.15": ("rate_bits_per_second", {}),
    f"{DOT3}.2.1.3": ("receive_crc_errors_total", {}),
    f"{DOT3}.2.1.18": ("symbol_errors_total", {}),
    f"{DOT3}.10.1.3": ("receive_pause_frames_total", {"priority": "global"}),
    f"{DOT3}.10.1.4": ("transmit_pause_frames_total", {"priority": "global"}),
}
ELSEWHERE = {
    # The same number stands in a wider or finer column.
    f"{IF}.5",
    f"{IF}.10",
    f"{IF}.11",
    f"{IF}.16",
    f"{IF}.17",
    "1.3.6.1.4.1.9.9.813.1.1.1.1",
    "1.3.6.1.4.1.9.9.813.1.1.1.2",
    "1.3.6.1.4.1.2636.3.15.4.1.11",
    "1.3.6.1.4.1.40310.2.2.3.1.2",
    "1.3.6.1.4.1.40310.2.2.3.1.3",
}


def name_cisco(column: Column) -> Named:
    parts = column.suffix.strip(".").split(".")
    if column.oid.startswith("1.3.6.1.4.1.9.9.813"):
        metric = {"2": "transmit", "3": "receive"}[column.oid[-1]]
        return f"{metric}_pause_frames_total", {"priority": parts[0]}
    _, queue, statistic = parts
    metric = {
        "1": "queue_transmit_packets_total",
        "2": "queue_transmit_bytes_total",
        "5": "queue_discarded_packets_total",
        "6": "queue_discarded_bytes_total",
    }[statistic]
    return metric, {"queue": str(int(queue) - 1), "cast": "unicast"}


def name_arista(column: Column) -> Named:
    parts = column.suffix.strip(".").split(".")
    number = column.oid[-1]
    if ".3.11." in column.oid:
        return {"3": "transmit", "4": "receive"}[number] + "_pause_frames_total", {
            "priority": parts[0]
        }
    metric = {
        "4": "queue_transmit_packets_total",
        "5": "queue_transmit_bytes_total",
        "6": "queue_discarded_packets_total",
        "7": "queue_discarded_bytes_total",
    }[number]
    return metric, {"queue": parts[0], "cast": "unicast"}


def name_cumulus(column: Column) -> Named:
    number = int(column.oid.rpartition(".")[2])
    if ".40310.2.1.2.1." in column.oid:
        return "drops_total", {"drop_reason": "egress_queue_overflow"}
    if ".40310.2.2.3.1." in column.oid:
        direction = "transmit" if number % 2 else "receive"
        return f"{direction}_pause_frames_total", {"priority": str((number - 4) // 2)}
    if ".40310.2.2.4.1." in column.oid:
        kinds = ("transmit_packets", "discarded_packets", "early_discarded_packets")
        queue, kind = divmod(number - 2, 3)
        return f"queue_{kinds[kind]}_total", {"queue": str(queue)}
    assert number == 4
    return "carrier_changes_total", {}


def name_juniper(column: Column) -> Named:
    metric = {
        "3": "queue_offered_packets_total",
        "5": "queue_offered_bytes_total",
        "7": "queue_transmit_packets_total",
        "9": "queue_transmit_bytes_total",
        "53": "queue_discarded_packets_total",
        "57": "queue_depth_average_bytes",
        "58": "queue_depth_bytes",
        "59": "queue_peak_bytes",
    }[column.oid.rpartition(".")[2]]
    return metric, {"queue": column.suffix.strip(".")}


NAMES: dict[Flavour, Callable[[Column], Named]] = {
    Flavour.SONIC: name_cisco,
    Flavour.ARISTA: name_arista,
    Flavour.CUMULUS: name_cumulus,
    Flavour.JUNIPER: name_juniper,
}


@pytest.fixture(scope="module")
def start() -> Snapshot:
    topology = build(
        ClusterSpec(
            hosts=4,
            gpus_per_host=2,
            nics_per_host=2,
            fabric=Fabric.ROCE,
            speed="400GbE",
            switch_ports=4,
        )
    )
    return make_snapshot(topology)


def record(rows: list[Row], numbers: Counts) -> bytes:
    """A recording of the switch as it is now."""
    flat = numbers.reshape(-1)
    lines = []
    for row in rows:
        value = row.value if row.slot is None else int(flat[row.slot])
        if isinstance(value, int) and row.syntax in NARROW:
            value %= 1 << 32
        oid = ".".join(map(str, row.oid))
        is_bytes = isinstance(value, bytes)
        lines.append(f"{oid}|{row.syntax.value}{'x' if is_bytes else ''}|")
        lines[-1] += value.hex() if isinstance(value, bytes) else str(value)
    return ("\n".join(lines) + "\n").encode()


def write_tree(root: Path, snapshot: Snapshot, flavour: Flavour) -> Counts:
    """A captured tree with a recording of every switch; the numbers that they show."""
    readings = Readings(snapshot.topology)
    numbers = readings.update(snapshot)
    (root / "snmp").mkdir(exist_ok=True)
    for number, switch in enumerate(snapshot.topology.switches):
        rows = switch_rows(snapshot.topology, readings.ports, number, flavour)
        path = root / f"snmp/{quote(switch.name, safe='')}.snmprec"
        path.write_bytes(record(rows, numbers))
    return numbers


def make_source(snapshot: Snapshot, names: list[str] | None = None, **more: object) -> Snmp:
    switches = [
        {"name": name, "address": "127.0.0.1", "community": name, **more}
        for name in names or [switch.name for switch in snapshot.topology.switches]
    ]
    return Snmp(msgspec.convert({"switches": switches}, Settings))


def wanted_samples(
    snapshot: Snapshot, numbers: Counts, flavour: Flavour
) -> Iterator[tuple[str, str, str, dict[str, str], float]]:
    """Switch, port, metric, labels and value of every counter that is simulated."""
    ports = Readings(snapshot.topology).ports
    columns = (*STANDARD_COLUMNS, *vendor_columns(flavour))
    for position in range(len(ports.out)):
        switch = snapshot.topology.switches[ports.switch[position]].name
        port = interface_name(flavour, int(ports.number[position]))
        for column in columns:
            if column.oid in ELSEWHERE:
                continue
            named = STANDARD.get(column.oid) or NAMES[flavour](column)
            value = 0 if column.reading is None else int(numbers[column.reading, position])
            if column.reading is Kind.OPERATIONAL_STATUS:
                value = 4 if value == 1 else 1
            if column.reading is Kind.MEGABITS_PER_SECOND:
                value *= 10**6
            elif column.syntax in NARROW:
                value %= 1 << 32
            yield switch, port, f"fabric_port_{named[0]}", named[1], value


def check_samples(
    readings: list[Reading], snapshot: Snapshot, numbers: Counts, flavour: Flavour
) -> None:
    found = {
        (each.series.metric, each.series.labels): each.value
        for each in readings
        if isinstance(each, Sample)
    }
    wrong, count = [], 0
    polled = {dict(labels)["host"] for metric, labels in found if metric == "fabric_switch_up"}
    for switch, port, metric, labels, value in wanted_samples(snapshot, numbers, flavour):
        if switch not in polled:
            continue
        count += 1
        whole = {"host": switch, "device": switch, "port": port, **labels}
        if found.get((metric, tuple(sorted(whole.items())))) != value:
            wrong.append((metric, whole, value))
    assert count > 100
    assert wrong == []


@each_flavour
def test_every_simulated_counter_arrives_under_its_catalog_name(
    flavour: Flavour, start: Snapshot, tmp_path: Path
) -> None:
    numbers = write_tree(tmp_path, start, flavour)
    readings = list(make_source(start).read(Host(tmp_path)))
    check_samples(readings, start, numbers, flavour)
    flaws = [
        each
        for each in readings
        if isinstance(each, Sample) and each.series.metric == "fabric_switch_poll_flaws"
    ]
    assert flaws == []
    lossless = str(LOSSLESS_PRIORITY)
    if flavour is not Flavour.JUNIPER:
        paused = [
            each.value
            for each in readings
            if isinstance(each, Sample)
            and each.series.metric == "fabric_port_transmit_pause_frames_total"
            and dict(each.series.labels)["priority"] == lossless
        ]
        assert paused
        assert all(paused)


@each_flavour
def test_optics_arrive_in_watts(flavour: Flavour, start: Snapshot, tmp_path: Path) -> None:
    numbers = write_tree(tmp_path, start, flavour)
    ports = Readings(start.topology).ports
    wanted = {
        (
            start.topology.switches[ports.switch[position]].name,
            interface_name(flavour, int(ports.number[position])),
        ): numbers[Kind.RECEIVE_POWER, position] * WATTS_PER_UNIT
        for position in range(len(ports.out))
    }
    found = {}
    for each in make_source(start).read(Host(tmp_path)):
        if (
            isinstance(each, Sample)
            and each.series.metric == "fabric_port_module_receive_power_watts"
        ):
            labels = dict(each.series.labels)
            found[labels["host"], labels["port"]] = each.value
    assert found == pytest.approx(wanted)


@each_flavour
def test_the_cables_found_are_the_cables_simulated(
    flavour: Flavour, start: Snapshot, tmp_path: Path
) -> None:
    write_tree(tmp_path, start, flavour)
    found = set()
    for each in make_source(start).read(Host(tmp_path)):
        if isinstance(each, Sample) and each.series.metric == "fabric_link_info":
            labels = dict(each.series.labels)
            found.add((labels["host"], labels["port"], labels["peer_name"], labels["peer_port"]))
    assert found == simulated_cables(start, flavour)


def simulated_cables(snapshot: Snapshot, flavour: Flavour) -> set[tuple[str, str, str, str]]:
    """Every cable of a switch, as seen from it."""
    topology, cables = snapshot.topology, set()
    for link in np.flatnonzero(topology.source_switch >= 0):
        here = topology.switches[topology.source_switch[link]].name
        port = interface_name(flavour, int(topology.port[link]))
        back = int(topology.reverse[link])
        other = int(topology.source_switch[back])
        if other >= 0:
            far = (topology.switches[other].name, interface_name(flavour, int(topology.port[back])))
        else:
            nic = int(topology.source[back]) % topology.nics
            far = (topology.host_name(topology.host_of_nic(nic)), topology.interface_name(nic))
        cables.add((here, port, *far))
    return cables


@pytest.mark.parametrize(
    "flavour",
    [
        Flavour.SONIC,
        *(pytest.param(each, marks=pytest.mark.slow) for each in Flavour if each != Flavour.SONIC),
    ],
)
def test_real_answers_over_udp_say_the_same(flavour: Flavour, start: Snapshot) -> None:
    """A leaf and a spine: snmpsim takes most of a second for each switch."""
    ends = [start.topology.switches[number].name for number in (0, -1)]
    with snmp_responder.agent(start, flavour) as agent:
        host, source = Host(), make_source(start, ends, port=agent.port)
        try:
            readings = list(source.read(host))
            check_samples(readings, start, agent.switches._readings.values, flavour)
        finally:
            source.close()
            host.close()


def test_a_switch_that_nobody_answers_for_costs_only_itself(start: Snapshot) -> None:
    with snmp_responder.agent(start, Flavour.SONIC) as agent:
        leaf = start.topology.switches[0].name
        common = {"address": "127.0.0.1", "port": agent.port}
        switches = [{"name": name, "community": name, **common} for name in (leaf, "nobody")]
        settings = {"switches": switches, "answer_seconds": 0.2, "retries": 0}
        host, source = Host(), Snmp(msgspec.convert(settings, Settings))
        try:
            readings = list(source.read(host))
        finally:
            source.close()
            host.close()
    up = {
        dict(each.series.labels)["host"]: each.value
        for each in readings
        if isinstance(each, Sample) and each.series.metric == "fabric_switch_up"
    }
    assert up == {leaf: 1, "nobody": 0}
    silent = [
        each.reason.value
        for each in readings
        if isinstance(each, Missing) and ("host", "nobody") in each.series.labels
    ]
    assert silent == ["timeout"]
