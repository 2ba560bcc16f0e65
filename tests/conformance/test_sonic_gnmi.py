"""SONiC over gNMI: one port is one port, whichever of its names a database gives it.

The switch is a double with databases of ours (tests/doubles/sonic_server.py). What sonic-gnmi's own
tests hold, lies beside the repository, if at all: there the double is held against the server's
recorded answers, and every recorded number is accounted for.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path as FilePath
from typing import Any

import pytest

from collector.contract.model import Event, Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.sources.gnmi import Settings, Switch
from collector.switches.gnmi import stream as stream_module
from collector.switches.gnmi.decode import parse_path
from collector.switches.gnmi.model import Notification, Path, Target, Update
from tests.doubles.gnmi_server import running, wait_until
from tests.doubles.sonic_server import Databases, SonicServer, answer, small_switch
from tests.stands.streaming import Listener, target_of

ROOT = FilePath(__file__).resolve().parents[2]
OTHERS = ROOT.parent / "shared/recordings/sonic-gnmi"
needs_others = pytest.mark.skipif(not OTHERS.is_dir(), reason="sonic-gnmi's test data is not there")

NOW_NS = 1_790_000_000 * NS
STEADY_NS = 5_000 * NS
BYTES = "fabric_port_receive_bytes_total"
RATES, MARKS = "/RATES/Ethernet*", "/PERIODIC_WATERMARKS/Ethernet*/PriorityGroups"
OPTICS = "/TRANSCEIVER_DOM_SENSOR"


# --- without a network ---------------------------------------------------------------------------


class Bench:
    """A SONiC switch whose streams the test speaks for."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - settings
        self.switch = Switch(Target(name="leaf-1", profile="sonic"), Settings(**settings))
        self.feeds = {feed.table.name: feed for feed in self.switch._feeds}
        for feed in self.feeds.values():
            self.switch.leaves.begin(feed, self.switch._request(feed.table).subscriptions)
            feed.is_live = True

    def send(self, stream: str, path: str, value: object) -> None:
        update = Update(Path(parse_path(path)), value)
        message = Notification(NOW_NS, [update], [])
        self.switch.leaves.apply(self.feeds[stream], message, NOW_NS, STEADY_NS)

    def sync(self, *streams: str) -> None:
        for name in streams or self.feeds:
            self.switch.leaves.sync(self.feeds[name])

    def send_answers(self, databases: Databases, *streams: str) -> None:
        """What the double answers to everything that the profile asks for, and a sync."""
        for name in streams or self.feeds:
            table = self.feeds[name].table
            for ask in table.subscriptions:
                names = ask.path.strip("/").split("/")
                self.send(name, ask.path, answer(databases, table.target, names))
            self.sync(name)

    def read(self) -> list[Reading]:
        return self.switch.leaves.readings(NOW_NS, STEADY_NS)

    def samples(self) -> list[Sample]:
        return [each for each in self.read() if isinstance(each, Sample)]

    def by_port(self, metric: str) -> dict[str, float]:
        found = [each for each in self.samples() if each.series.metric == metric]
        ports = {dict(each.series.labels)["port"]: each.value for each in found}
        assert len(ports) == len(found), "a port is there twice"
        return ports


def test_counters_are_their_port_s_whichever_stream_comes_first() -> None:
    wanted = {"Ethernet0": 1001, "Ethernet8": 1008, "Ethernet16": 1016}
    for order in (("appl_db", "counters_db"), ("counters_db", "appl_db")):
        bench = Bench()
        bench.send_answers(small_switch(), *order)
        assert bench.by_port(BYTES) == wanted, order


def test_a_server_that_answers_with_sonic_s_names_is_understood_too() -> None:
    switch = small_switch()
    switch["CONFIG_DB"].clear()  # the server's source of names; PORT_TABLE still has them
    bench = Bench()
    bench.send_answers(switch)
    assert bench.by_port(BYTES) == {"Ethernet0": 1001, "Ethernet8": 1008, "Ethernet16": 1016}


def test_counters_wait_until_it_is_known_whose_they_are() -> None:
    bench = Bench()
    bench.send_answers(small_switch(), "counters_db")
    assert bench.by_port(BYTES) == {}
    bench.feeds["appl_db"].has_answered = True  # it failed: names stay as they came
    assert bench.by_port(BYTES) == {"etp1": 1001, "etp2": 1008, "Ethernet16": 1016}
    bench.send_answers(small_switch(), "appl_db")
    assert bench.by_port(BYTES) == {"Ethernet0": 1001, "Ethernet8": 1008, "Ethernet16": 1016}


def test_a_front_plate_name_that_changes_takes_the_numbers_along() -> None:
    bench = Bench()
    bench.send_answers(small_switch())
    bench.send("appl_db", "/PORT_TABLE", {"Ethernet0": {"alias": "etp9"}})
    assert bench.by_port(BYTES) == {"etp1": 1001, "Ethernet8": 1008, "Ethernet16": 1016}
    bench.send("appl_db", "/PORT_TABLE", {"Ethernet0": {"alias": "etp1"}})
    assert bench.by_port(BYTES) == {"Ethernet0": 1001, "Ethernet8": 1008, "Ethernet16": 1016}


def test_a_front_plate_name_may_be_another_port_s_own_name() -> None:
    switch = small_switch()
    for database, table in (("CONFIG_DB", "PORT|"), ("APPL_DB", "PORT_TABLE:")):
        switch[database][f"{table}Ethernet0"]["alias"] = "Ethernet8"
        switch[database][f"{table}Ethernet8"]["alias"] = "Ethernet0"
    for order in (("appl_db", "counters_db"), ("counters_db", "appl_db")):
        bench = Bench()
        bench.send_answers(switch, *order)
        wanted = {"Ethernet0": 1001, "Ethernet8": 1008, "Ethernet16": 1016}
        assert bench.by_port(BYTES) == wanted, order


def test_two_ports_of_one_front_plate_name_are_not_guessed_apart() -> None:
    bench = Bench()
    bench.send_answers(small_switch())
    bench.send("appl_db", "/PORT_TABLE", {"Ethernet8": {"alias": "etp1"}})
    assert bench.by_port(BYTES) == {"etp1": 1001, "etp2": 1008, "Ethernet16": 1016}
    assert bench.switch.leaves.take_flaws()["alias"] > 0


def test_ports_are_left_out_by_their_own_name() -> None:
    bench = Bench(exclude=("Ethernet0",))
    bench.send_answers(small_switch())
    assert bench.by_port(BYTES) == {"Ethernet8": 1008, "Ethernet16": 1016}


def test_numbers_come_under_their_metrics() -> None:
    bench = Bench()
    bench.send_answers(small_switch())
    found = {
        (each.series.metric, tuple(v for n, v in each.series.labels if n not in ("host", "device")))
        for each in bench.samples()
    }
    values = {each.series.metric: each.value for each in bench.samples()}
    assert ("fabric_port_receive_fec_blocks_total", ("Ethernet0", "12")) in found
    assert values["fabric_port_receive_fec_pre_bit_error_ratio"] == 3.5e-9
    assert values["fabric_port_pause_watchdog_active"] == 1
    assert values["fabric_port_priority_group_headroom_peak_bytes"] == 2048
    assert values["fabric_switch_drops_total"] == 5
    assert values["fabric_port_module_temperature_celsius"] == 41.5


def test_a_queue_has_one_mark_and_the_longer_one_only_where_it_is_alone() -> None:
    bench = Bench()
    bench.send_answers(small_switch())
    marks = {
        dict(each.series.labels)["queue"]: each.value
        for each in bench.samples()
        if each.series.metric == "fabric_port_queue_peak_bytes"
    }
    assert marks == {"3": 4096, "4": 512}


def test_a_lane_without_light_is_dark_and_one_that_is_not_there_is_nothing() -> None:
    bench = Bench()
    bench.send_answers(small_switch())
    power = "fabric_port_module_receive_power_watts"
    lanes = {
        dict(each.series.labels)["lane"]: each.value
        for each in bench.samples()
        if each.series.metric == power
    }
    assert lanes == {"1": pytest.approx(0.0005, rel=1e-4), "2": 0}
    assert not [each for each in bench.read() if isinstance(each, Missing)]


def test_a_deleted_object_comes_as_an_empty_one() -> None:
    bench = Bench()
    bench.send_answers(small_switch())
    bench.send("appl_db", "/LLDP_ENTRY_TABLE", {"Ethernet0": {}})
    assert "fabric_link_info" not in {each.series.metric for each in bench.samples()}
    bench.send("appl_db", "/PORT_TABLE", {"Ethernet16": {}})
    assert "Ethernet16" not in bench.by_port("fabric_port_state")
    # Sampled: an object without fields is one that has none today. Staleness decides.
    bench.send("counters_db", "/COUNTERS/Ethernet*", {"etp1": {}})
    assert bench.by_port(BYTES)["Ethernet0"] == 1001


def test_a_path_that_is_taken_and_not_answered_is_known_after_the_sync() -> None:
    switch = small_switch()
    del switch["COUNTERS_DB"]["RATES:oid:0x1"]
    bench = Bench()
    bench.send_answers(switch, "appl_db", "counters_db")
    silent = bench.switch.leaves.silent
    assert silent(bench.feeds["counters_db"]) == [RATES]  # not COUNTERS/PORT*, of a chassis
    assert silent(bench.feeds["state_db"]) == []  # not synced yet
    bench.send("counters_db", RATES, {"etp1": {"FEC_PRE_BER": "0"}})
    assert silent(bench.feeds["counters_db"]) == []


# --- over gRPC -----------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "RETRY_SECONDS_MIN", 0.02)
    monkeypatch.setattr(stream_module, "RETRY_SECONDS_MAX", 0.1)


Listen = Callable[[SonicServer], Listener]


@pytest.fixture
def listen() -> Iterator[Listen]:
    made: list[Listener] = []

    def make(server: SonicServer) -> Listener:
        target = target_of(server, profile="sonic")
        # SONiC refuses less than a second.
        made.append(Listener(target, sample_seconds=1.0, slow_seconds=1.0))
        return made[-1]

    yield make
    for each in made:
        each.close()


def absences(listener: Listener) -> dict[tuple[str, str], UnreadReason]:
    """(flaw, table) → reason."""
    found = {}
    for each in listener.absences():
        labels = dict(each.series.labels)
        found[labels.get("flaw", ""), labels.get("table", "")] = each.reason
    return found


def test_a_switch_is_joined_over_the_wire(listen: Listen) -> None:
    with running(SonicServer(small_switch())) as server:
        listener = listen(server)
        listener.wait_for("fabric_port_rate_bits_per_second", 4e11, port="Ethernet0")
        listener.wait_for(BYTES, 1001, port="Ethernet0")
        listener.wait_for("fabric_port_module_temperature_celsius", 41.5, port="Ethernet0")
        listener.wait_for("fabric_port_info", 1, port="Ethernet0", alias="etp1")
        assert listener.values(BYTES, port="etp1") == []
        wait_until(lambda: absences(listener) == {}, "nothing is absent")


def test_changes_of_a_switch_come_under_the_port_s_own_name(listen: Listen) -> None:
    with running(SonicServer(small_switch())) as server:
        listener = listen(server)
        listener.wait_for("fabric_link_info", 1, port="Ethernet0", peer_name="spine-1")
        listener.wait_for("fabric_port_state", 4, port="Ethernet0")
        server.change("APPL_DB", "LLDP_ENTRY_TABLE:Ethernet0", None)
        wait_until(lambda: not listener.values("fabric_link_info"), "the neighbour is gone")
        server.change("APPL_DB", "PORT_TABLE:Ethernet0", {"alias": "etp1", "oper_status": "down"})
        listener.wait_for("fabric_port_state", 1, port="Ethernet0")
        events = [(each.kind, each.labels["port"]) for each in listener.events]
        assert events == [("link_down", "Ethernet0")]
        assert all(isinstance(each, Event) for each in listener.events)


def test_what_a_new_server_takes_and_does_not_have_is_named(listen: Listen) -> None:
    switch = small_switch()
    switch["STATE_DB"].clear()
    with running(SonicServer(switch)) as server:
        listener = listen(server)
        listener.wait_for(BYTES, 1001, port="Ethernet0")
        wanted = {("silent", OPTICS): UnreadReason.ABSENT}
        wait_until(lambda: absences(listener) == wanted, f"{wanted}; {listener.readings[-8:]}")


def test_what_an_old_server_refuses_is_named_and_the_rest_comes(listen: Listen) -> None:
    with running(SonicServer(small_switch(), is_old=True)) as server:
        listener = listen(server)
        listener.wait_for(BYTES, 1001, port="Ethernet0")
        listener.wait_for("fabric_port_queue_peak_bytes", 4096, port="Ethernet0", queue="3")
        # It refuses COUNTERS/SWITCH* too, which only a chassis has.
        wanted = dict.fromkeys([("refused", RATES), ("refused", MARKS)], UnreadReason.NOT_SUPPORTED)
        wait_until(lambda: absences(listener) == wanted, f"{wanted}; {listener.readings[-8:]}")


# --- what sonic-gnmi's tests have recorded -------------------------------------------------------

RECORDED_ANSWERS = {
    "COUNTERS/Ethernet*": "COUNTERS_Ethernet_wildcard_alias_expected.txt",
    "COUNTERS/Ethernet*/Queues": "COUNTERS_Ethernet_wildcard_Queues_alias_expected.txt",
    "COUNTERS/Ethernet*/SAI_PORT_STAT_PFC_7_RX_PKTS": (
        "COUNTERS_Ethernet_wildcard_PFC_7_RX_alias.txt"
    ),
    "PERIODIC_WATERMARKS/Ethernet*/PriorityGroups": (
        "PERIODIC_WATERMARKS_Ethernet_wildcard_PriorityGroups_alias_expected.txt"
    ),
    "RATES/Ethernet*": "RATES_Ethernet_wildcard_alias_expected.txt",
    "COUNTERS/PORT*": "COUNTERS_PORT_wildcard.txt",
    "COUNTERS/SWITCH*": "COUNTERS_SWITCH_wildcard.txt",
}
WITHOUT_METRIC = {
    r"SAI_PORT_STAT_ETHER_(IN|OUT|STATS)_PKTS.*": "sizes of packets",
    r"SAI_PORT_STAT_ETHER_(RX|TX|STATS)_(UNDER|OVER)SIZE_PKTS": "sizes of packets",
    r"SAI_PORT_STAT_ETHER_STATS_(FRAGMENTS|JABBERS)": "sizes of packets",
    r"SAI_PORT_STAT_ETHER_STATS_(BROADCAST_PKTS|MULTICAST_PKTS|OCTETS|[RT]X_NO_ERRORS)": (
        "RMON's count of what IF_ counts"
    ),
    r"SAI_PORT_STAT_ETHER_STATS_(COLLISIONS|DROP_EVENTS)": "of half duplex, and of a probe",
    r"SAI_PORT_STAT_IF_(IN|OUT)_NON_UCAST_PKTS": "the sum of multicast and broadcast",
    r"SAI_PORT_STAT_IF_IN_(UNKNOWN_PROTOS|VLAN_DISCARDS)": "a part of the discards",
    r"SAI_PORT_STAT_(IN|OUT)_DROPPED_PKTS": "overlaps IF_…_DISCARDS: a packet would count twice",
    r"SAI_PORT_STAT_IF_OUT_QLEN": "of all queues together",
    r"SAI_PORT_STAT_(IP|IPV6)_.*": "layer 3: a part of the port's traffic",
    r"SAI_PORT_STAT_PFC_[0-7]_ON2OFF_RX_PKTS": "ends of pauses, of which the frames are counted",
    r"SAI_PORT_STAT_IF_(IN|OUT)_FABRIC_DATA_UNITS": "cells between the cards of a chassis",
    r".*_last": "the switch's own memory of its round before",
    r"[RT]X_[BP]PS": "rates, which the service computes from the counters",
    r"PFC_WD_(ACTION|DETECTION_TIME|DETECTION_TIME_LEFT|RESTORATION_TIME)": "settings",
    r"SAI_QUEUE_ATTR_PAUSE_STATUS": "of one moment; the pause frames are counted",
}
"""Fields of the recorded answers that the catalog has no metric for, and why."""
WORDS = {"operational": 0.0}


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((OTHERS / name).read_text("utf-8"))
    return found


def chassis() -> Databases:
    """The databases behind RECORDED_ANSWERS."""
    maps = ("PORT", "QUEUE", "PG", "FABRIC_PORT")
    counters = {
        f"COUNTERS_{name}_NAME_MAP": recorded(f"COUNTERS_{name}_NAME_MAP.txt") for name in maps
    }
    debug = "COUNTERS_DEBUG_NAME_SWITCH_STAT_MAP"
    counters[debug] = recorded(f"{debug}.txt")
    ports = counters["COUNTERS_PORT_NAME_MAP"]
    for name in ("Ethernet1", "Ethernet68"):
        counters[f"COUNTERS:{ports[name]}"] = recorded(f"COUNTERS_{name}.txt")
    counters[f"RATES:{ports['Ethernet89']}"] = recorded("RATES_oid_Ethernet89.txt")
    for table in ("COUNTERS", "PERIODIC_WATERMARKS"):
        for file in OTHERS.glob(f"{table}_oid_*.txt"):
            oid = file.stem.removeprefix(f"{table}_oid_")
            counters[f"{table}:oid:{oid}"] = recorded(file.name)
    names = recorded("COUNTERS_PORT_ALIAS_MAP.txt")
    table_of_ports = {key.replace("PORT|", "PORT_TABLE:"): fields for key, fields in names.items()}
    return {"CONFIG_DB": names, "COUNTERS_DB": counters, "APPL_DB": table_of_ports}


def leaf() -> Databases:
    """Another recorded switch: three ports with FEC and rates."""
    counters = recorded("PORT_COUNTERS.txt") | recorded("PORT_RATES.txt")
    counters |= recorded("PORT_COUNTERS_MAPPING.txt")
    return {
        "CONFIG_DB": recorded("PORTS.txt"),
        "COUNTERS_DB": counters,
        "APPL_DB": recorded("PORT_TABLE.txt"),
    }


def ports_of(databases: Databases) -> list[tuple[str, dict[str, str]]]:
    return [each for each in databases["CONFIG_DB"].items() if each[0].startswith("PORT|")]


def is_without_metric(field: str) -> bool:
    return any(re.fullmatch(pattern, field) for pattern in WITHOUT_METRIC)


Place = tuple[str, str, str]
"""Port (or chip), queue, priority group."""


def wanted_values(databases: Databases) -> dict[Place, Counter[float]]:
    """Every number of the answers by where it must come out."""
    names = {has["alias"]: key.split("|")[1] for key, has in ports_of(databases)}
    wanted: dict[Place, Counter[float]] = {}
    for path in RECORDED_ANSWERS:
        table, _, kind = (*path.split("/"), "")[:3]
        if kind.startswith("SAI_"):
            continue  # a single field, which the profile does not ask for by itself
        objects = answer(databases, "COUNTERS_DB", path.split("/"))
        for name, fields in objects.items():
            alias, index, mark = (*name.split(":"), "", "")[:3]
            if mark and fields.keys() <= objects.get(f"{alias}:{index}", {}).keys():
                continue  # the queue has a mark of its own
            queue, group = (index, "") if table == "COUNTERS" else ("", index)
            place = names.get(alias, alias), queue, group
            for field, value in fields.items():
                if not is_without_metric(field):
                    number = WORDS[value] if value in WORDS else float(value)
                    wanted.setdefault(place, Counter())[number] += 1
    return wanted


def found_values(samples: list[Sample]) -> dict[Place, Counter[float]]:
    found: dict[Place, Counter[float]] = {}
    for each in samples:
        labels = dict(each.series.labels)
        is_group = each.series.metric.startswith("fabric_port_priority_group_")
        group = labels["priority"] if is_group else ""
        place = labels.get("chip") or labels["port"], labels.get("queue", ""), group
        found.setdefault(place, Counter())[float(each.value)] += 1
    return found


@needs_others
@pytest.mark.parametrize("path", RECORDED_ANSWERS)
def test_the_double_answers_as_the_server_did(path: str) -> None:
    wanted = recorded(RECORDED_ANSWERS[path])
    assert answer(chassis(), "COUNTERS_DB", path.split("/")) == wanted


@needs_others
@pytest.mark.parametrize("make", [chassis, leaf])
def test_every_recorded_number_comes_out_once_at_its_port_or_has_a_reason(
    make: Callable[[], Databases],
) -> None:
    databases = make()
    bench = Bench()
    aliases = {key.split("|")[1]: {"alias": has["alias"]} for key, has in ports_of(databases)}
    bench.send("appl_db", "/PORT_TABLE", aliases)
    bench.sync("appl_db")
    bench.send_answers(databases, "counters_db")
    samples = [each for each in bench.samples() if each.series.metric != "fabric_port_info"]
    assert found_values(samples) == wanted_values(databases)
    assert len({each.series for each in samples}) == len(samples)


@needs_others
def test_every_reason_is_of_a_field_that_was_recorded() -> None:
    fields = {
        field
        for databases in (chassis(), leaf())
        for path in RECORDED_ANSWERS
        for has in answer(databases, "COUNTERS_DB", path.split("/")).values()
        for field in has
    }
    unused = [each for each in WITHOUT_METRIC if not any(re.fullmatch(each, f) for f in fields)]
    assert unused == []


@needs_others
def test_recorded_ports_are_the_same_by_either_name() -> None:
    both = []
    for file in ("COUNTERS_Ethernet_wildcard_expected.txt", RECORDED_ANSWERS["COUNTERS/Ethernet*"]):
        bench = Bench()
        bench.send_answers(chassis(), "appl_db")
        bench.send("counters_db", "/COUNTERS/Ethernet*", recorded(file))
        both.append({(each.series, each.value) for each in bench.samples()})
    assert both[0] == both[1]
    assert {dict(series.labels)["port"] for series, _ in both[0]} >= {"Ethernet1", "Ethernet68"}


@needs_others
def test_a_recorded_port_s_state_is_its_own() -> None:
    bench = Bench()
    bench.send("appl_db", "/PORT_TABLE", recorded("PORT_TABLE.txt"))
    bench.sync("appl_db")
    values = {
        each.series.metric: each.value
        for each in bench.samples()
        if dict(each.series.labels)["port"] == "Ethernet40"
    }
    assert values == {
        "fabric_port_mtu_bytes": 9100,
        "fabric_port_rate_bits_per_second": 1e11,
        "fabric_port_state": 4,
        "fabric_port_enabled": 1,
        "fabric_port_carrier_changes_total": 3,
        "fabric_port_info": 1,
    }
    bench.send("appl_db", "/PORT_TABLE", recorded("OPER_DOWN_PORT_TABLE.json"))
    downs = {each.labels["port"] for each in bench.read() if isinstance(each, Event)}
    assert downs == {"Ethernet0", "Ethernet80"}


@needs_others
def test_a_recorded_deletion_is_one() -> None:
    file = recorded("NEIGH_STATE_TABLE_key_deletion_57.txt")
    assert list(file.values()) == [{}]  # as the double sends it
