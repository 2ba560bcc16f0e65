"""The `gnmi` source against a switch of ours that speaks the real protobufs."""

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collector.agent.schedule import Looks
from collector.contract.catalog import load_catalog
from collector.contract.errors import SettingsError
from collector.contract.model import Event, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.sources.gnmi import Gnmi, Settings
from collector.switches.gnmi import leaves as leaves_module
from collector.switches.gnmi import stream as stream_module
from collector.switches.gnmi.model import Target
from tests.doubles.gnmi_server import (
    SYNC,
    Certificates,
    GnmiServer,
    Tree,
    make_certificates,
    running,
    tell,
    wait_until,
)
from tests.stands.streaming import Listener, target_of

PORT = "/interfaces/interface[name=Ethernet1/1]"
OCTETS = f"{PORT}/state/counters/in-octets"
STATUS = f"{PORT}/state/oper-status"
BIG = 2**63 + 1
TREE: Tree = {OCTETS: BIG, STATUS: "UP", f"{PORT}/state/mtu": 9216}


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "RETRY_SECONDS_MIN", 0.02)
    monkeypatch.setattr(stream_module, "RETRY_SECONDS_MAX", 0.1)


@pytest.fixture
def server() -> Iterator[GnmiServer]:
    with running(GnmiServer(TREE)) as switch:
        yield switch


Listen = Callable[..., Listener]


@pytest.fixture
def listen() -> Iterator[Listen]:
    made: list[Listener] = []

    def make(*targets: Target, **settings: Any) -> Listener:  # noqa: ANN401 - settings
        made.append(Listener(*targets, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["json", "json_ietf", "proto"])
def test_values_come_under_their_catalog_names_in_every_encoding(
    listen: Listen, encoding: str
) -> None:
    with running(GnmiServer(TREE)) as server:
        server.encodings = (encoding.upper(),)
        listener = listen(target_of(server))
        labels = {"host": "leaf-1", "device": "leaf-1", "port": "Ethernet1/1"}
        listener.wait_for("fabric_port_receive_bytes_total", BIG, **labels)
        assert listener.values("fabric_port_state", **labels) == [4]
        assert listener.values("fabric_port_mtu_bytes", **labels) == [9216]
        assert listener.values("fabric_switch_up", host="leaf-1", method="gnmi") == [1]


def test_a_switch_that_says_nothing_of_its_encodings_is_asked_for_ietf_json(
    server: GnmiServer, listen: Listen
) -> None:
    server.has_capabilities = False
    listen(target_of(server)).wait_for("fabric_port_receive_bytes_total", BIG)
    assert server.requests[0].encoding == 4


def test_counters_are_sampled_and_states_told_on_change(server: GnmiServer, listen: Listen) -> None:
    listen(target_of(server)).wait_for("fabric_port_state", 4)
    asked = {
        "/".join(each.name for each in one.path.elem): (one.mode, one.sample_interval)
        for one in server.requests[0].subscription
    }
    assert asked["interfaces/interface/state/counters"] == (2, 100_000_000)
    assert asked["interfaces/interface/state/oper-status"] == (1, 0)


def test_a_new_sample_replaces_the_old_one_with_the_switch_s_own_time(
    server: GnmiServer, listen: Listen
) -> None:
    listener = listen(target_of(server), sample_seconds=3600.0)
    listener.wait_for("fabric_port_receive_bytes_total", BIG)
    said_ns = listener.host.now_ns() - 2_000_000_000
    server.say(tell({OCTETS: 7}, time_ns=said_ns))
    listener.wait_for("fabric_port_receive_bytes_total", 7)
    times = {
        each.time_ns
        for each in listener.readings
        if isinstance(each, Sample) and each.series.metric == "fabric_port_receive_bytes_total"
    }
    assert times == {said_ns}


def test_a_time_that_cannot_be_is_replaced_by_the_time_of_arrival_and_said(
    server: GnmiServer, listen: Listen
) -> None:
    listener = listen(target_of(server), sample_seconds=3600.0)
    listener.wait_for("fabric_port_receive_bytes_total", BIG)
    before_ns = listener.host.now_ns()
    server.say(tell({OCTETS: 8}, time_ns=before_ns + 3_600_000_000_000))
    listener.wait_for("fabric_port_receive_bytes_total", 8)
    (sample,) = (
        each
        for each in listener.readings
        if isinstance(each, Sample) and each.series.metric == "fabric_port_receive_bytes_total"
    )
    assert before_ns <= sample.time_ns <= listener.host.now_ns()
    flaws = [e for e in listener.readings if isinstance(e, Sample) and "clock" in repr(e.series)]
    assert [each.value for each in flaws] == [1]


def test_subtrees_prefixes_and_odd_keys_are_understood(server: GnmiServer, listen: Listen) -> None:
    listener = listen(target_of(server), sample_seconds=3600.0)
    listener.wait_for("fabric_port_state", 4)
    server.say(tell({"counters/out-octets": 5}, prefix=r"/interfaces/interface[name=a\]b=c]/state"))
    entry = {
        "openconfig-interfaces:interface": [
            {"name": "Ethernet9", "state": {"counters": {"out-octets": 6}}},
            {"state": {"name": "Ethernet10", "counters": {"out-octets": 7}}},
            {"state": {"counters": {"out-octets": 8}}},
        ]
    }
    server.say(tell({"/interfaces": entry}))
    listener.wait_for("fabric_port_transmit_bytes_total", 7, port="Ethernet10")
    sent = {
        dict(each.series.labels)["port"]: each.value
        for each in listener.readings
        if isinstance(each, Sample) and each.series.metric == "fabric_port_transmit_bytes_total"
    }
    assert sent == {"a]b=c": 5, "Ethernet9": 6, "Ethernet10": 7}


def test_what_is_deleted_is_gone(server: GnmiServer, listen: Listen) -> None:
    listener = listen(target_of(server), sample_seconds=3600.0)
    server.tree["/interfaces/interface[name=Ethernet2]/state/counters/in-octets"] = 3
    listener.wait_for("fabric_port_receive_bytes_total", 3)
    server.say(tell({}, deletes=("/interfaces/interface[name=Ethernet2]",)))
    wait_until(
        lambda: listener.values("fabric_port_receive_bytes_total") == [BIG], "Ethernet2 gone"
    )


# --- changes -------------------------------------------------------------------------------------


def test_a_flap_between_two_reads_gives_both_events(server: GnmiServer, listen: Listen) -> None:
    listener = listen(target_of(server), sample_seconds=3600.0)
    listener.wait_for("fabric_port_state", 4)
    assert listener.events == []
    server.set(STATUS, "DOWN")
    server.set(STATUS, "LOWER_LAYER_DOWN")
    server.set(STATUS, "UP")
    server.set(OCTETS, 1)
    listener.wait_for("fabric_port_receive_bytes_total", 1)
    assert [
        (each.kind, each.attributes["from"], each.attributes["to"]) for each in listener.events
    ] == [
        ("link_down", "up", "down"),
        ("link_up", "down", "up"),
    ]
    assert listener.events[0].labels == {
        "host": "leaf-1",
        "device": "leaf-1",
        "port": "Ethernet1/1",
    }


def test_a_look_gives_changes_without_a_read(server: GnmiServer, listen: Listen) -> None:
    listener = listen(target_of(server), sample_seconds=3600.0)
    assert isinstance(listener.source, Looks)
    listener.wait_for("fabric_port_state", 4)
    server.set(STATUS, "DOWN")
    seen: list[Reading] = []

    def look() -> bool:
        seen.extend(listener.source.look(listener.host))
        return bool(seen)

    wait_until(look, "an event")
    assert [each.kind for each in seen if isinstance(each, Event)] == ["link_down"]
    listener.read()
    assert listener.events == []


def test_an_agent_without_switches_is_not_woken_up_to_look() -> None:
    assert not isinstance(Gnmi(Settings()), Looks)


def test_a_link_that_went_down_while_the_stream_was_away_is_an_event(
    server: GnmiServer, listen: Listen
) -> None:
    listener = listen(target_of(server))
    listener.wait_for("fabric_port_state", 4)
    server.tree[STATUS] = "DOWN"
    server.hang_up()
    listener.wait_for("fabric_port_state", 1)
    assert [each.kind for each in listener.events] == ["link_down"]


def test_a_port_that_is_not_told_of_any_more_after_a_reconnect_is_gone(
    server: GnmiServer, listen: Listen
) -> None:
    listener = listen(target_of(server))
    listener.wait_for("fabric_port_state", 4)
    del server.tree[STATUS]
    server.hang_up()
    listener.wait_for("fabric_switch_stream_connects_total", 2)
    wait_until(lambda: not listener.values("fabric_port_state"), "no state any more")


# --- a switch that cannot do everything ----------------------------------------------------------


def test_states_are_sampled_where_on_change_is_refused(server: GnmiServer, listen: Listen) -> None:
    server.refuses_on_change = True
    listener = listen(target_of(server))
    listener.wait_for("fabric_port_state", 4)
    assert {each.mode for each in server.requests[-1].subscription} == {2}
    assert listener.absences() == []


def test_a_path_that_the_switch_does_not_have_is_named_and_hides_no_other(
    server: GnmiServer, listen: Listen
) -> None:
    server.refused = ("/qos",)
    listener = listen(target_of(server))
    listener.wait_for("fabric_port_receive_bytes_total", BIG)
    (refused,) = listener.absences()
    assert refused.reason is UnreadReason.NOT_SUPPORTED
    assert dict(refused.series.labels)["table"].startswith("/qos/interfaces")
    assert "no such path" in refused.detail
    assert any(each.mode == 1 for each in server.requests[-1].subscription)


# --- a switch that is away, or another server at its address -------------------------------------


def test_it_comes_back_after_the_switch_has_restarted(server: GnmiServer, listen: Listen) -> None:
    listener = listen(target_of(server))
    listener.wait_for("fabric_port_receive_bytes_total", BIG)
    server.stop()
    listener.wait_for("fabric_switch_up", 0)
    assert listener.values("fabric_port_state") == []  # unknown while the switch is away
    server.tree[OCTETS] = 12
    server.start()
    listener.wait_for("fabric_port_receive_bytes_total", 12)
    assert listener.values("fabric_switch_up") == [1]


def test_a_wrong_password_is_named_and_the_right_one_is_taken_when_it_is_there(
    server: GnmiServer, listen: Listen, tmp_path: Path
) -> None:
    password_file = tmp_path / "password"
    password_file.write_text("wrong\n", "utf-8")
    server.login = ("admin", "right")
    listener = listen(target_of(server, user="admin", password_file=str(password_file)))
    absence = listener.wait_for_absence("refuses user 'admin'")
    assert absence.reason is UnreadReason.UNREADABLE
    assert "wrong" not in absence.detail.replace("wrong user or password", "")
    password_file.write_text("right\n", "utf-8")
    listener.wait_for("fabric_port_receive_bytes_total", BIG)


def test_one_switch_that_is_away_does_not_touch_the_others(
    server: GnmiServer, listen: Listen
) -> None:
    away = Target(name="away", address="127.0.0.1", port=1, tls=False)
    listener = listen(away, target_of(server))
    listener.wait_for("fabric_port_receive_bytes_total", BIG, host="leaf-1")
    absence = listener.wait_for_absence("out of reach")
    assert dict(absence.series.labels)["host"] == "away"
    assert listener.values("fabric_switch_up", host="away") == [0]
    assert listener.values("fabric_switch_up", host="leaf-1") == [1]


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path)


def test_tls_is_checked_against_the_given_authority(
    listen: Listen, certificates: Certificates
) -> None:
    with running(GnmiServer(TREE, certificates)) as server:
        given: dict[str, Any] = {"tls": True, "ca_file": str(certificates.ca_file)}
        good = target_of(server, server_name="leaf-1.example", **given)
        listen(good).wait_for("fabric_port_receive_bytes_total", BIG)
        wrong_name = listen(target_of(server, **given)).wait_for_absence("TLS: ")
        assert wrong_name.reason is UnreadReason.UNREADABLE


def test_a_certificate_of_another_authority_is_refused(
    listen: Listen, certificates: Certificates, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = make_certificates(tmp_path / "other")
    with running(GnmiServer(TREE, certificates)) as server:
        target = target_of(
            server, tls=True, ca_file=str(other.ca_file), server_name="leaf-1.example"
        )
        assert "certificate" in listen(target).wait_for_absence("TLS: ").detail


def test_skip_verify_trusts_what_is_shown(listen: Listen, certificates: Certificates) -> None:
    with running(GnmiServer(TREE, certificates)) as server:
        target = target_of(server, tls=True, skip_verify=True)
        listen(target).wait_for("fabric_port_receive_bytes_total", BIG)


def test_plain_text_to_a_switch_with_tls_and_the_reverse_are_named(
    server: GnmiServer, listen: Listen, certificates: Certificates
) -> None:
    listen(target_of(server, tls=True)).wait_for_absence("TLS: ")
    with running(GnmiServer(TREE, certificates)) as secure:
        listen(target_of(secure)).wait_for_absence("tls = true")


def test_a_missing_certificate_file_is_named(server: GnmiServer, listen: Listen) -> None:
    target = target_of(server, tls=True, ca_file="/nowhere/ca.pem")
    assert "/nowhere/ca.pem" in listen(target).wait_for_absence("No such file").detail


def test_without_pygnmi_it_says_what_to_install(
    server: GnmiServer, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    listener = listen(target_of(server))
    absence = listener.wait_for_absence("pip install 'fabricscope[gnmi]'")
    assert absence.reason is UnreadReason.ABSENT
    assert listener.values("fabric_switch_up") == [0]


# --- a switch that misbehaves --------------------------------------------------------------------


def test_garbage_is_counted_and_the_stream_goes_on(server: GnmiServer, listen: Listen) -> None:
    listener = listen(target_of(server), sample_seconds=3600.0)
    listener.wait_for("fabric_port_receive_bytes_total", BIG)
    server.say(b"\xff\xff\xff\xff")
    server.say(tell({f"{PORT}/state/counters": "{not json", OCTETS: 2}, encoding="proto"))
    listener.wait_for("fabric_port_receive_bytes_total", 2)
    assert listener.values("fabric_switch_stream_dropped_total", drop_reason="nonsense") == [1]
    assert listener.values("fabric_switch_stream_connects_total") == [1]


def test_a_value_that_is_no_number_is_missing_by_name(server: GnmiServer, listen: Listen) -> None:
    listener = listen(target_of(server), sample_seconds=3600.0)
    listener.wait_for("fabric_port_receive_bytes_total", BIG)
    server.say(tell({OCTETS: "many", STATUS: "SIDEWAYS"}))
    listener.wait_for_absence("'many'")
    assert {each.series.metric: each.detail for each in listener.absences()} == {
        "fabric_port_receive_bytes_total": "its value is 'many'",
        "fabric_port_state": "its value is 'SIDEWAYS'",
    }


def test_a_switch_that_never_syncs_is_used_and_named(
    server: GnmiServer, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "SYNC_SECONDS", 0)
    server.syncs = False
    listener = listen(target_of(server))
    listener.wait_for("fabric_port_receive_bytes_total", BIG)
    listener.wait_for("fabric_switch_poll_flaws", 1, flaw="no_sync")


def test_a_switch_that_falls_silent_is_asked_anew(
    server: GnmiServer, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "SILENCE_SECONDS", 0.2)
    server.talk = lambda: iter((tell(TREE),))
    monkeypatch.setattr(server, "_go_on", lambda _, news: iter(news.get, None))
    listener = listen(target_of(server))
    listener.wait_for("fabric_switch_stream_connects_total", 2)


def test_a_switch_that_takes_the_question_and_says_nothing_is_named(
    server: GnmiServer, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "FIRST_MESSAGE_SECONDS", 0.2)
    server.talk = lambda: iter(())
    server.syncs = False
    monkeypatch.setattr(server, "_go_on", lambda _, news: iter(news.get, None))
    listener = listen(target_of(server), timeout_seconds=0.1)
    absence = listener.wait_for_absence("connected and silent for 0.2 s")
    assert absence.reason is UnreadReason.TIMEOUT
    wait_until(lambda: len(server.requests) > 1, "it was asked again")


def test_a_flood_of_paths_is_bounded_and_counted(
    server: GnmiServer, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaves_module, "LEAVES_MAX", 100)

    def flood() -> Iterator[Any]:
        for first in range(0, 5000, 500):
            yield tell(
                {
                    f"/interfaces/interface[name=e{number}]/state/counters/in-octets": number
                    for number in range(first, first + 500)
                }
            )

    server.talk = flood
    listener = listen(target_of(server), sample_seconds=3600.0)
    listener.wait_for("fabric_switch_stream_dropped_total", 4900, drop_reason="leaves")
    assert len(listener.values("fabric_port_receive_bytes_total")) == 100


def test_a_flood_of_messages_is_slowed_down_and_the_last_value_counts(
    server: GnmiServer, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So low that a busy machine, too, takes more in a second.
    monkeypatch.setattr(stream_module, "UPDATES_PER_SECOND_MAX", 100)
    server.talk = lambda: (tell({OCTETS: number}) for number in range(101))
    listener = listen(target_of(server), sample_seconds=3600.0, slow_seconds=3600.0)
    flaws: list[float] = []

    def is_done() -> bool:
        flaws.extend(listener.values("fabric_switch_poll_flaws", flaw="throttled"))
        # Of the same read: flaws are told once.
        return any(
            isinstance(each, Sample)
            and (each.series.metric, each.value) == ("fabric_port_receive_bytes_total", 100)
            for each in listener.readings
        )

    wait_until(is_done, "the last value")
    assert sum(flaws) >= 1


def test_a_flood_of_changes_keeps_the_first_ones_and_counts_the_rest(
    server: GnmiServer, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaves_module, "EVENTS_MAX", 10)
    states = ("UP", "DOWN")
    server.talk = lambda: (tell({STATUS: states[number % 2]}) for number in range(51))
    listener = listen(target_of(server), sample_seconds=3600.0)
    listener.read()  # starts listening
    leaves = listener.source._switches[0].leaves
    wait_until(lambda: leaves.dropped["events"] == 40, "forty events dropped")
    listener.read()
    assert len(listener.events) == 10


# --- its end -------------------------------------------------------------------------------------


def gnmi_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("gnmi ")]


def test_its_threads_end_when_the_agent_drops_the_source(server: GnmiServer) -> None:
    listener = Listener(target_of(server, "dropped"))
    listener.wait_for("fabric_port_receive_bytes_total", BIG)
    assert [each.name for each in gnmi_threads()] == ["gnmi dropped openconfig"]
    assert all(each.daemon for each in gnmi_threads())
    del listener
    gc.collect()
    wait_until(lambda: not gnmi_threads(), "no thread of it")
    wait_until(lambda: not server.listeners, "no stream of it")


def test_a_stream_that_nobody_asks_for_ends_by_itself_and_begins_again_when_asked(
    server: GnmiServer, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "LEASE_SECONDS", 0)
    listener = listen(target_of(server), interval_seconds=0.05)
    listener.read()
    wait_until(lambda: not gnmi_threads(), "the thread has ended")
    monkeypatch.setattr(stream_module, "LEASE_SECONDS", 15)
    listener.wait_for("fabric_port_receive_bytes_total", BIG)


def test_the_catalog_is_loaded_before_there_are_threads() -> None:
    """Loaded by two threads at once, it crashes the process: msgspec's types are built late."""
    load_catalog.cache_clear()
    Gnmi(Settings(targets=(Target(name="leaf-1"),)))
    assert load_catalog.cache_info().currsize == 1


def test_two_targets_of_one_name_are_refused() -> None:
    twice = (Target(name="leaf-1"), Target(name="leaf-1"))
    with pytest.raises(SettingsError, match="'leaf-1' is there twice"):
        Gnmi(Settings(targets=twice))


def test_an_unknown_profile_is_refused_with_those_there_are() -> None:
    with pytest.raises(SettingsError, match="there are: openconfig, sonic"):
        Gnmi(Settings(targets=(Target(name="leaf-1", profile="opencnofig"),)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a", "port": 0},
        {"name": "a", "cert_file": "x"},
        {"name": "a", "skip_verify": True, "ca_file": "x"},
        {"name": "a", "encoding": "xml"},
        {"name": "a", "pasword_file": "x"},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, Target)


# --- SONiC ---------------------------------------------------------------------------------------


def test_sonic_is_asked_by_database_and_its_objects_are_understood(listen: Listen) -> None:
    ports = {"Ethernet0": {"SAI_PORT_STAT_PFC_3_RX_PKTS": "41", "SAI_PORT_STAT_ODD": "1"}}
    queues = {"Ethernet0:3": {"SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES": "4096"}}
    tree: Tree = {
        "/COUNTERS/Ethernet*": ports,
        "/COUNTERS/Ethernet*/Queues": queues,
        "/COUNTERS/Ethernet4/SAI_PORT_STAT_IF_IN_OCTETS": {"SAI_PORT_STAT_IF_IN_OCTETS": "9"},
        "/PORT_TABLE": {"Ethernet0": {"oper_status": "up", "speed": "400000"}},
    }
    with running(GnmiServer(tree)) as server:
        listener = listen(target_of(server, profile="sonic"))
        listener.wait_for("fabric_port_rate_bits_per_second", 4e11, port="Ethernet0")
        listener.wait_for("fabric_port_queue_peak_bytes", 4096, port="Ethernet0", queue="3")
        pauses = listener.values("fabric_port_receive_pause_frames_total", priority="3")
        assert pauses == [41]
        assert listener.values("fabric_port_receive_bytes_total", port="Ethernet4") == [9]
        asked = {"APPL_DB", "COUNTERS_DB", "STATE_DB"}
        wait_until(
            lambda: {each.prefix.target for each in server.requests} == asked, f"{asked} asked for"
        )


def test_a_sync_before_the_first_value_loses_nothing(server: GnmiServer, listen: Listen) -> None:
    server.talk = lambda: iter((SYNC, tell(TREE)))
    listen(target_of(server)).wait_for("fabric_port_state", 4)
