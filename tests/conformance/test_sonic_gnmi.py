"""SONiC over gNMI: one port is one port, whichever of its names a database gives it.

The switch is a double with databases of ours (tests/doubles/sonic_server.py), which
test_sonic_recordings.py holds against answers of sonic-gnmi.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collector.contract.model import Event, Missing
from collector.contract.reason import UnreadReason
from collector.switches.gnmi import stream as stream_module
from tests.doubles.gnmi_server import running, wait_until
from tests.doubles.sonic_redis import NUMBERS, Redis, RedisSonicServer, redis
from tests.doubles.sonic_server import SonicServer, small_switch
from tests.stands.sonic import Bench
from tests.stands.streaming import Listener, target_of

BYTES = "fabric_port_receive_bytes_total"
RATES, MARKS = "/RATES/Ethernet*", "/PERIODIC_WATERMARKS/Ethernet*/PriorityGroups"
OPTICS, MODULES = "/TRANSCEIVER_DOM_SENSOR", "/TRANSCEIVER_INFO"
MODULE = ("kind", "vendor", "part", "revision", "serial", "firmware")


# --- without a network ---------------------------------------------------------------------------


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


def test_modules_are_known_by_the_field_names_of_old_and_new_images() -> None:
    bench = Bench()
    bench.send_answers(small_switch())
    modules = {
        labels["port"]: tuple(labels.get(name, "") for name in MODULE)
        for labels in (
            dict(each.series.labels)
            for each in bench.samples()
            if each.series.metric == "fabric_port_module_info"
        )
    }
    new = ("OSFP 8X Pluggable Transceiver", "MAKER", "OSFP-400G-DR4", "1A", "MK00XXX0001", "1.2.0")
    old = ("QSFP28 or later", "MAKER", "QSFP-100G-DAC", "A3", "MK00XXX0002", "")
    assert modules == {"Ethernet0": new, "Ethernet8": old}


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
        wanted = dict.fromkeys([("silent", OPTICS), ("silent", MODULES)], UnreadReason.ABSENT)
        wait_until(lambda: absences(listener) == wanted, f"{wanted}; {listener.readings[-8:]}")


def test_what_an_old_server_refuses_is_named_and_the_rest_comes(listen: Listen) -> None:
    with running(SonicServer(small_switch(), is_old=True)) as server:
        listener = listen(server)
        listener.wait_for(BYTES, 1001, port="Ethernet0")
        listener.wait_for("fabric_port_queue_peak_bytes", 4096, port="Ethernet0", queue="3")
        # It refuses COUNTERS/SWITCH* too, which only a chassis has.
        wanted = dict.fromkeys([("refused", RATES), ("refused", MARKS)], UnreadReason.NOT_SUPPORTED)
        wait_until(lambda: absences(listener) == wanted, f"{wanted}; {listener.readings[-8:]}")


# --- on a real redis -----------------------------------------------------------------------------


@pytest.mark.peer("redis-server")
def test_what_redis_holds_is_read_and_what_changes_there_is_told(
    listen: Listen, tmp_path: Path
) -> None:
    with redis(tmp_path) as port:
        writer = Redis(port)
        writer.write(small_switch())
        server = RedisSonicServer(port)
        try:
            with running(server):
                listener = listen(server)
                listener.wait_for(BYTES, 1001, port="Ethernet0")
                listener.wait_for("fabric_port_state", 4, port="Ethernet0")
                listener.wait_for("fabric_port_module_temperature_celsius", 41.5, port="Ethernet0")
                assert listener.values(BYTES, port="etp1") == []
                wait_until(lambda: absences(listener) == {}, "nothing is absent")
                # A counter is sampled again, a port that goes down is told at once.
                writer.ask("SELECT", NUMBERS["COUNTERS_DB"])
                writer.ask("HSET", "COUNTERS:oid:0x1", "SAI_PORT_STAT_IF_IN_OCTETS", 2002)
                writer.ask("SELECT", NUMBERS["APPL_DB"])
                writer.ask("HSET", "PORT_TABLE:Ethernet0", "oper_status", "down")
                listener.wait_for("fabric_port_state", 1, port="Ethernet0")
                listener.wait_for(BYTES, 2002, port="Ethernet0")
                events = [(each.kind, each.labels["port"]) for each in listener.events]
                assert ("link_down", "Ethernet0") in events
                writer.ask("DEL", "LLDP_ENTRY_TABLE:Ethernet0")
                wait_until(lambda: not listener.values("fabric_link_info"), "no neighbour")
        finally:
            server.stop_following()
            writer.close()
