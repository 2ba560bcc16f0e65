"""The `snmp` source: rounds over many switches, counters over time, and switches that misbehave."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from collector.contract.errors import SettingsError
from collector.contract.model import Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.sources.snmp import (
    BACKOFF_SECONDS_MAX,
    Settings,
    Snmp,
    Switch,
    pause_seconds,
)
from collector.switches.snmp.model import Oid, SnmpError, Value
from tests.doubles.snmp_fake import (
    IF,
    IF_X,
    TABLE_CHANGED,
    UPTIME,
    FakeHost,
    FakeSwitch,
    absences,
    ports,
    values,
)

ERRORS = "fabric_port_receive_errors_total"
BYTES = "fabric_port_receive_bytes_total"
UP = "fabric_switch_up"
ROWS = "fabric_switch_table_rows"
INTERVAL = 30.0


class Bench:
    """A source with fake switches, read again and again."""

    def __init__(self, root: Path, switches: dict[str, FakeSwitch], **settings: object) -> None:
        chosen = tuple(Switch(name=name, address="192.0.2.1") for name in switches)
        self.host = FakeHost(root, switches)
        given = {"switches": chosen, "interval_seconds": INTERVAL, **settings}
        self.source = Snmp(msgspec.convert(given, Settings))

    def read(self) -> list[Reading]:
        readings = list(self.source.read(self.host))
        self.host.sleep(INTERVAL)
        return readings


def one(root: Path, switch: FakeSwitch, **settings: object) -> Bench:
    return Bench(root, {"leaf": switch}, **settings)


# --- many switches -------------------------------------------------------------------------------


def test_a_dead_switch_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    dead, well = FakeSwitch(ports("Ethernet0")), FakeSwitch(ports("Ethernet0"))
    dead.is_dead = True
    readings = Bench(tmp_path, {"dead": dead, "well": well}).read()
    assert values(readings, UP, "host") == {"dead": 0, "well": 1}
    assert values(readings, BYTES, "host") == {"well": 10**12 + 1}
    missing = [each for each in readings if isinstance(each, Missing)]
    assert [
        (each.reason, each.detail) for each in missing if ("host", "dead") in each.series.labels
    ] == [(UnreadReason.TIMEOUT, "no answer")]


def test_a_switch_that_hangs_keeps_its_readings_and_delays_no_other(tmp_path: Path) -> None:
    slow, well = FakeSwitch(ports("Ethernet0")), FakeSwitch(ports("Ethernet0"))
    slow.hanging = {IF + ".8"}
    readings = Bench(tmp_path, {"slow": slow, "well": well}, switch_seconds=0.05).read()
    assert values(readings, UP, "host") == {"slow": 1, "well": 1}
    assert values(readings, BYTES, "host") == {"slow": 10**12 + 1, "well": 10**12 + 1}
    assert values(readings, ERRORS, "host") == {"well": 0}
    assert (ROWS, "if-mib", "timeout") in absences(readings)


def test_a_switch_that_is_too_slow_for_all_its_tables_gives_the_last_ones_next_time(
    tmp_path: Path,
) -> None:
    spine = {"1.0.8802.1.1.2.1.4.1.1.9.0.1.1": b"spine"}
    switch = FakeSwitch(ports("Ethernet0") | spine)
    switch.hanging = {"1.3.6.1.2.1.10"}
    bench = one(tmp_path, switch, switch_seconds=0.05)
    first = bench.read()
    assert values(first, "fabric_link_info") == {}
    assert (ROWS, "lldp", "timeout") in absences(first)
    assert values(first, BYTES) == {"Ethernet0": 10**12 + 1}
    # What was left over goes first, and costs the others this turn.
    second = bench.read()
    assert values(second, "fabric_link_info") == {"Ethernet0": 1}
    assert (ROWS, "if-mib-64", "timeout") in absences(second)
    assert values(bench.read(), BYTES) == {"Ethernet0": 10**12 + 1}


def test_a_switch_that_hangs_from_the_first_question_is_down(tmp_path: Path) -> None:
    mute = FakeSwitch({})
    mute.is_mute = True
    readings = one(tmp_path, mute, switch_seconds=0.05).read()
    assert values(readings, UP, "host") == {"leaf": 0}
    assert absences(readings) == {("fabric_switch_uptime_seconds", "", "timeout")}


def test_more_switches_than_are_asked_at_once_are_all_asked(tmp_path: Path) -> None:
    switches = {f"leaf-{number}": FakeSwitch(ports("Ethernet0")) for number in range(150)}
    readings = Bench(tmp_path, switches).read()
    assert set(values(readings, UP, "host").values()) == {1}
    assert len(values(readings, UP, "host")) == 150


def test_a_refusal_has_a_reason(tmp_path: Path) -> None:
    switch = FakeSwitch(ports("Ethernet0"))
    switch.refusal = SnmpError(UnreadReason.UNREADABLE, "user monitor: wrong key")
    readings = one(tmp_path, switch).read()
    assert absences(readings) == {("fabric_switch_uptime_seconds", "", "unreadable")}


def test_a_bug_that_one_switch_brings_out_costs_only_that_switch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(FakeSwitch):
        async def get(self, oids: list[Oid]) -> list[Value | None]:
            raise ZeroDivisionError(f"of {len(oids)}")

    bench = Bench(tmp_path, {"odd": Odd({}), "well": FakeSwitch(ports("Ethernet0"))})
    for _ in range(2):
        readings = bench.read()
        assert values(readings, UP, "host") == {"odd": 0, "well": 1}
        assert ("fabric_switch_uptime_seconds", "", "failed") in absences(readings)
    assert caplog.text.count("bug of ours") == 1


# --- leaving dead switches alone -----------------------------------------------------------------


def test_a_dead_switch_is_asked_less_and_less_often_until_it_answers(tmp_path: Path) -> None:
    switch = FakeSwitch(ports("Ethernet0"))
    switch.is_dead = True
    bench = one(tmp_path, switch)
    asked = []
    for _ in range(60):
        before = switch.gets
        readings = bench.read()
        asked.append(switch.gets > before)
        assert values(readings, UP, "host") == {"leaf": 0}
    assert asked[:2] == [True, True]
    assert sum(asked) < 15
    # At the longest pause of 300 s, one round in ten asks.
    assert any(asked[-11:])
    switch.is_dead = False
    for _ in range(11):
        readings = bench.read()
    assert values(readings, UP, "host") == {"leaf": 1}
    before = switch.gets
    bench.read()
    assert switch.gets > before, "once it answers it is asked every round again"


def test_pauses_double_up_to_a_bound_and_differ_by_name() -> None:
    pauses = [pause_seconds("leaf-0", failures, 30) for failures in range(1, 60)]
    assert pauses == sorted(pauses)
    assert pauses[0] <= 30
    assert pauses[-1] <= BACKOFF_SECONDS_MAX
    assert len({pause_seconds(f"leaf-{number}", 9, 30) for number in range(50)}) > 40
    assert pause_seconds("leaf-7", 3, 30) == pause_seconds("leaf-7", 3, 30)


# --- counters over time --------------------------------------------------------------------------


def test_a_counter_of_32_bits_goes_on_beyond_its_end(tmp_path: Path) -> None:
    switch = FakeSwitch(ports("Ethernet0"))
    switch[f"{IF}.14.1"] = 2**32 - 10
    bench = one(tmp_path, switch)
    assert values(bench.read(), ERRORS) == {"Ethernet0": 2**32 - 10}
    switch[f"{IF}.14.1"] = 5
    switch[UPTIME] = 8_640_000 + 3000
    assert values(bench.read(), ERRORS) == {"Ethernet0": 2**32 + 5}


def test_after_a_restart_counters_begin_again(tmp_path: Path) -> None:
    switch = FakeSwitch(ports("Ethernet0"))
    switch[f"{IF}.14.1"] = 2**32 - 10
    bench = one(tmp_path, switch)
    bench.read()
    switch[f"{IF}.14.1"] = 5
    switch[UPTIME] = 100
    readings = bench.read()
    assert values(readings, ERRORS) == {"Ethernet0": 5}
    assert values(readings, "fabric_switch_uptime_seconds", "host") == {"leaf": 1.0}


def test_a_port_reports_the_discontinuity_of_its_counters(tmp_path: Path) -> None:
    switch = FakeSwitch(ports("Ethernet0", "Ethernet4"))
    for index in (1, 2):
        switch[f"{IF}.14.{index}"] = 2**32 - 10
    bench = one(tmp_path, switch)
    bench.read()
    for index in (1, 2):
        switch[f"{IF}.14.{index}"] = 5
    switch[UPTIME] = 8_643_000
    switch[f"{IF_X}.19.2"] = 8_642_000
    assert values(bench.read(), ERRORS) == {"Ethernet0": 2**32 + 5, "Ethernet4": 5}


def test_an_uptime_of_more_than_497_days_is_no_restart(tmp_path: Path) -> None:
    switch = FakeSwitch(ports("Ethernet0"))
    switch[f"{IF}.14.1"] = 2**32 - 10
    switch[UPTIME] = 2**32 - 1000
    bench = one(tmp_path, switch)
    bench.read()
    switch[f"{IF}.14.1"] = 5
    switch[UPTIME] = 2000
    readings = bench.read()
    assert values(readings, ERRORS) == {"Ethernet0": 2**32 + 5}
    uptime = values(readings, "fabric_switch_uptime_seconds", "host")
    assert uptime == {"leaf": (2**32 + 2000) / 100}


def test_a_counter_of_64_bits_that_falls_is_passed_on(tmp_path: Path) -> None:
    switch = FakeSwitch(ports("Ethernet0"))
    bench = one(tmp_path, switch)
    bench.read()
    switch[f"{IF_X}.6.1"] = 7
    assert values(bench.read(), BYTES) == {"Ethernet0": 7}


def test_series_follow_the_name_when_an_index_is_used_again(tmp_path: Path) -> None:
    switch = FakeSwitch(ports("Ethernet0", "Ethernet4"))
    switch[f"{IF}.14.1"], switch[f"{IF}.14.2"] = 2**32 - 10, 2**32 - 20
    bench = one(tmp_path, switch)
    bench.read()
    for column in (f"{IF}.2", f"{IF_X}.1"):
        switch[f"{column}.1"], switch[f"{column}.2"] = b"Ethernet4", b"Ethernet8"
    switch[TABLE_CHANGED] = 8_641_000
    switch[UPTIME] = 8_643_000
    switch[f"{IF}.14.1"], switch[f"{IF}.14.2"] = 3, 4
    # Neither goes on from what stood under its index, nor from what stood under its name.
    assert values(bench.read(), ERRORS) == {"Ethernet4": 3, "Ethernet8": 4}


def test_a_change_of_names_that_the_agent_does_not_report_is_found_in_time(tmp_path: Path) -> None:
    switch = FakeSwitch(ports("Ethernet0"))
    bench = one(tmp_path, switch, names_every=3)
    bench.read()
    for column in (f"{IF}.2", f"{IF_X}.1"):
        switch[f"{column}.1"] = b"Ethernet99"
    seen = [set(values(bench.read(), BYTES)) for _ in range(3)]
    assert seen[-1] == {"Ethernet99"}


def test_wide_and_narrow_copies_of_a_counter_do_not_take_turns(tmp_path: Path) -> None:
    rows = ports("Ethernet0") | {f"{IF}.10.1": 17}
    switch = FakeSwitch(rows)
    switch.silent = {f"{IF_X}.6"}
    bench = one(tmp_path, switch)
    first = bench.read()
    assert values(first, BYTES) == {}
    assert (ROWS, "if-mib-64", "timeout") in absences(first)
    switch.silent = set()
    assert values(bench.read(), BYTES) == {"Ethernet0": 10**12 + 1}
    switch.silent = {f"{IF_X}.6"}
    assert values(bench.read(), BYTES) == {}


def test_of_a_wide_and_a_narrow_copy_of_a_counter_the_wide_one_is_used(tmp_path: Path) -> None:
    bench = one(tmp_path, FakeSwitch(ports("Ethernet0") | {f"{IF}.10.1": 17}))
    for _ in range(2):
        samples = [each for each in bench.read() if isinstance(each, Sample)]
        assert [each.value for each in samples if each.series.metric == BYTES] == [10**12 + 1]


def test_a_switch_without_wide_counters_gives_the_narrow_ones(tmp_path: Path) -> None:
    switch = FakeSwitch(ports("Ethernet0") | {f"{IF}.10.1": 17})
    switch.remove(f"{IF_X}.6")
    assert values(one(tmp_path, switch).read(), BYTES) == {"Ethernet0": 17}


# --- state ---------------------------------------------------------------------------------------


def test_a_wrapped_counter_goes_on_after_a_restart_of_the_agent(tmp_path: Path) -> None:
    switch = FakeSwitch(ports("Ethernet0", "Ethernet4"))
    switch[f"{IF}.14.1"] = 2**32 - 10
    bench = one(tmp_path, switch)
    bench.read()
    switch[f"{IF}.14.1"] = 5
    bench.read()
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(bench.source.save_state()))
    assert len(state["leaf"]["counters"]) == 1, "only what has wrapped is worth keeping"
    other = one(tmp_path, switch)
    other.host.clock_ns = bench.host.clock_ns
    other.source.load_state(state)
    assert other.source.save_state() == state
    switch[f"{IF}.14.1"] = 8
    assert values(other.read(), ERRORS)["Ethernet0"] == 2**32 + 8


def test_a_switch_that_restarted_while_the_agent_was_away_begins_again(tmp_path: Path) -> None:
    switch = FakeSwitch(ports("Ethernet0"))
    switch[f"{IF}.14.1"] = 2**32 - 10
    bench = one(tmp_path, switch)
    bench.read()
    switch[f"{IF}.14.1"] = 5
    bench.read()
    other = one(tmp_path, switch)
    other.host.clock_ns = bench.host.clock_ns
    other.source.load_state(bench.source.save_state())
    switch[UPTIME] = 50
    switch[f"{IF}.14.1"] = 9
    assert values(other.read(), ERRORS) == {"Ethernet0": 9}


@pytest.mark.parametrize(
    "entry",
    [
        None,
        7,
        {"uptime": None, "counters": {}},
        {"uptime": [1, 2, 3], "counters": {"x": [9, 1], "y": "z"}},
    ],
)
def test_a_state_of_another_shape_is_passed_over(tmp_path: Path, entry: object) -> None:
    bench = one(tmp_path, FakeSwitch(ports("Ethernet0")))
    bench.source.load_state({"leaf": entry, "unknown": entry})
    assert values(bench.read(), UP, "host") == {"leaf": 1}


# --- tables that come and go ----------------------------------------------------------------------


def test_a_table_that_is_not_there_is_one_absence(tmp_path: Path) -> None:
    switch = FakeSwitch(ports(*(f"Ethernet{number}" for number in range(64))))
    bench = one(tmp_path, switch)
    for _ in range(2):
        absent = [each for each in bench.read() if isinstance(each, Missing)]
        tables = [each for each in absent if each.series.metric == ROWS]
        assert len({each.series for each in tables}) == len(tables) == 6
        assert len(absent) < 30


def test_a_table_that_is_not_there_is_not_asked_for_at_every_round(tmp_path: Path) -> None:
    switch = FakeSwitch(ports("Ethernet0"))
    bench = one(tmp_path, switch, names_every=5)
    bench.read()
    symbol_errors = (1, 3, 6, 1, 2, 1, 10, 7, 2, 1, 18)
    assert symbol_errors in switch.walked
    switch.walked.clear()
    bench.read()
    assert symbol_errors not in switch.walked
    switch["1.3.6.1.2.1.10.7.2.1.18.1"] = 3
    for _ in range(4):
        readings = bench.read()
    assert values(readings, "fabric_port_symbol_errors_total") == {"Ethernet0": 3}


def test_a_table_that_vanishes_is_one_absence_and_comes_back_at_once(tmp_path: Path) -> None:
    switch = FakeSwitch(ports(*(f"Ethernet{number}" for number in range(64))))
    bench = one(tmp_path, switch)
    bench.read()
    kept = dict(switch.rows)
    switch.remove("1.3.6.1.2.1.2.2.1.8")
    switch.remove("1.3.6.1.2.1.2.2.1.14")
    gone = bench.read()
    assert values(gone, ERRORS) == {}
    assert (ROWS, "if-mib", "absent") in absences(gone)
    assert ("fabric_port_state", "Ethernet0", "absent") not in absences(gone)
    switch.rows = kept
    assert len(values(bench.read(), ERRORS)) == 64


def test_a_row_that_goes_is_named_once_and_the_others_are_read(tmp_path: Path) -> None:
    switch = FakeSwitch(ports("Ethernet0", "Ethernet4"))
    bench = one(tmp_path, switch)
    bench.read()
    switch.remove(f"{IF}.14.2")
    readings = bench.read()
    assert values(readings, ERRORS) == {"Ethernet0": 0}
    assert (ERRORS, "Ethernet4", "absent") in absences(readings)
    assert (ERRORS, "Ethernet4", "absent") not in absences(bench.read())


def test_two_tables_in_a_row_without_an_answer_end_the_poll(tmp_path: Path) -> None:
    crc_errors = "1.3.6.1.2.1.10.7.2.1.3.1"
    switch = FakeSwitch(ports("Ethernet0") | {crc_errors: 5})
    bench = one(tmp_path, switch)
    assert values(bench.read(), "fabric_port_receive_crc_errors_total") == {"Ethernet0": 5}
    switch.silent = {IF, IF_X}
    readings = bench.read()
    assert values(readings, UP, "host") == {"leaf": 1}
    assert {(ROWS, "if-mib", "timeout"), (ROWS, "if-mib-64", "timeout")} <= absences(readings)
    assert values(readings, "fabric_port_receive_crc_errors_total") == {}


# --- what changes rarely --------------------------------------------------------------------------


def test_sensors_and_neighbours_keep_the_time_at_which_they_were_read(tmp_path: Path) -> None:
    rows = ports("Ethernet0") | {
        "1.3.6.1.2.1.47.1.1.1.1.7.9": b"cpu",
        "1.3.6.1.2.1.99.1.1.1.1.9": 8,
        "1.3.6.1.2.1.99.1.1.1.2.9": 9,
        "1.3.6.1.2.1.99.1.1.1.3.9": 0,
        "1.3.6.1.2.1.99.1.1.1.4.9": 40,
        "1.0.8802.1.1.2.1.4.1.1.9.0.1.1": b"spine",
    }
    switch = FakeSwitch(rows)
    bench = one(tmp_path, switch, sensors_every=3, neighbours_every=2)
    seen: list[dict[str, Sample]] = []
    for _ in range(4):
        chosen = {"fabric_switch_temperature_celsius", "fabric_link_info"}
        seen.append(
            {
                each.series.metric: each
                for each in bench.read()
                if isinstance(each, Sample) and each.series.metric in chosen
            }
        )
        switch["1.3.6.1.2.1.99.1.1.1.4.9"] = 50
    temperatures = [each["fabric_switch_temperature_celsius"] for each in seen]
    assert [each.value for each in temperatures] == [40, 40, 40, 50]
    assert [each.time_ns == temperatures[0].time_ns for each in temperatures[:3]] == [True] * 3
    links = [each["fabric_link_info"].time_ns for each in seen]
    assert links[0] == links[1] < links[2] == links[3]


# --- settings -------------------------------------------------------------------------------------


def test_secrets_come_from_files_and_a_switch_may_have_its_own(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/community").write_text("everybody\n")
    (tmp_path / "etc/key").write_text("own-key\n")
    own = {"version": "3", "user": "monitor", "auth": "sha256", "auth_key_file": "/etc/key"}
    switches = [
        {"name": "common", "address": "192.0.2.1"},
        {"name": "own", "address": "192.0.2.2", "port": 1161, **own},
        {"name": "plain", "address": "192.0.2.3", "community": "mine"},
    ]
    settings = {"switches": switches, "community_file": "/etc/community"}
    host = FakeHost(tmp_path, {name: FakeSwitch({}) for name in ("common", "own", "plain")})
    list(Snmp(msgspec.convert(settings, Settings)).read(host))
    credentials = {name: target.credentials for name, target in host.targets.items()}
    assert credentials["common"].community == "everybody"
    assert credentials["plain"].community == "mine"
    assert (credentials["own"].user, credentials["own"].auth_key) == ("monitor", "own-key")
    assert host.targets["own"].port == 1161


def test_a_secret_that_cannot_be_read_costs_its_switch(tmp_path: Path) -> None:
    switches = [
        {"name": "a", "address": "192.0.2.1", "community_file": "/etc/nothing"},
        {"name": "b", "address": "192.0.2.2"},
    ]
    host = FakeHost(tmp_path, {name: FakeSwitch(ports("Ethernet0")) for name in "ab"})
    readings = list(Snmp(msgspec.convert({"switches": switches}, Settings)).read(host))
    assert values(readings, UP, "host") == {"a": 0, "b": 1}
    assert ("fabric_switch_uptime_seconds", "", "absent") in absences(readings)


@pytest.mark.parametrize(
    "settings",
    [
        {"switches": [{"name": "a", "address": "x"}, {"name": "a", "address": "y"}]},
        {"switches": [{"name": "", "address": "x"}]},
        {"switches": [{"name": "a", "address": "x", "port": 0}]},
        {"names_every": 0},
        {"answer_seconds": 0},
        {"rows_per_answer": 0},
        {"switches": [{"name": f"s{n}", "address": "x"} for n in range(1025)]},
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=r"sources\.snmp"):
        msgspec.convert(settings, Settings)


def test_an_unknown_profile_is_reported_and_the_switch_is_recognised(tmp_path: Path) -> None:
    settings = {"switches": [{"name": "leaf", "address": "x", "profile": "arsta"}]}
    host = FakeHost(tmp_path, {"leaf": FakeSwitch(ports("Ethernet0"))})
    readings = list(Snmp(msgspec.convert(settings, Settings)).read(host))
    assert (ROWS, "arsta", "absent") in absences(readings)
    assert values(readings, BYTES) == {"Ethernet0": 10**12 + 1}


def test_a_profile_that_is_set_goes_before_recognition(tmp_path: Path) -> None:
    settings = {"switches": [{"name": "leaf", "address": "x", "profile": "juniper"}]}
    queue = {"1.3.6.1.4.1.2636.3.15.4.1.59.1.3": 77}
    host = FakeHost(tmp_path, {"leaf": FakeSwitch(ports("Ethernet0") | queue)})
    readings = list(Snmp(msgspec.convert(settings, Settings)).read(host))
    assert values(readings, "fabric_port_queue_peak_bytes") == {"Ethernet0": 77}


def test_sessions_are_kept_and_closed_with_the_source(tmp_path: Path) -> None:
    switch = FakeSwitch(ports("Ethernet0"))
    bench = one(tmp_path, switch)
    bench.read()
    bench.read()
    assert not switch.is_closed
    bench.source.close()
    bench.source.close()
    assert switch.is_closed


def test_an_agent_without_switches_loads_no_snmp_library() -> None:
    code = (
        "import sys; from collector.sources import discover; discover(); "
        "sys.exit(any(name.startswith('pysnmp') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_pysnmp_the_switch_is_missing_with_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['pysnmp'] = None\n"
        "from pathlib import Path\n"
        "from collector.contract.model import Missing\n"
        "from collector.doors.host import Host\n"
        "from collector.sources.snmp import Settings, Snmp, Switch\n"
        "source = Snmp(Settings(switches=(Switch(name='leaf', address='127.0.0.1', port=9),)))\n"
        "print([each.detail for each in source.read(Host()) if isinstance(each, Missing)])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert "pip install 'fabricscope[poller]'" in done.stdout, done.stderr
