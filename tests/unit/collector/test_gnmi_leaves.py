"""The latest values of a switch: their meaning, how old they may be, and when they are gone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.contract.model import Event, Missing, Reading, Sample
from collector.contract.units import NS
from collector.switches.gnmi import leaves as leaves_module
from collector.switches.gnmi.decode import Unreadable, parse_path
from collector.switches.gnmi.leaves import AGE_SECONDS_MAX, FORGET_SECONDS, Feed, SwitchLeaves
from collector.switches.gnmi.model import GnmiError, Notification, Path, Subscription, Update
from collector.switches.gnmi.tables import profile_named

NOW_NS = 1_790_000_000 * NS
STEADY_NS = 5_000 * NS
SECONDS = 10.0
PORT = "/interfaces/interface[name=e1]"
OCTETS = f"{PORT}/state/counters/in-octets"
BYTES = "fabric_port_receive_bytes_total"


class Bench:
    """Leaves of a switch with one feed that is live, and time that the test moves."""

    def __init__(self, profile: str = "openconfig", stream: int = 0, **leaves: Any) -> None:  # noqa: ANN401
        self.leaves = SwitchLeaves("leaf-1", {"method": "gnmi"}, **leaves)
        table = profile_named(profile).streams[stream]
        self.feed = Feed(table)
        self.subscriptions = tuple(
            Subscription(each.path, each.on_change, SECONDS) for each in table.subscriptions
        )
        self.passed_ns = 0
        self.begin()

    def begin(self) -> None:
        self.leaves.begin(self.feed, self.subscriptions)
        self.feed.is_live = True

    def send_tree(
        self, tree: dict[str, Any], deletes: tuple[str, ...] = (), said_ns: int | None = None
    ) -> int:
        now_ns = NOW_NS + self.passed_ns
        message = Notification(
            now_ns if said_ns is None else said_ns,
            [Update(Path(parse_path(path)), value) for path, value in tree.items()],
            [Path(parse_path(path)) for path in deletes],
        )
        return self.leaves.apply(self.feed, message, now_ns, STEADY_NS + self.passed_ns)

    def read(self) -> list[Reading]:
        return self.leaves.readings(NOW_NS + self.passed_ns, STEADY_NS + self.passed_ns)

    def samples(self) -> dict[str, float]:
        return {each.series.metric: each.value for each in self.read() if isinstance(each, Sample)}


# --- how old -------------------------------------------------------------------------------------


def test_a_sampled_value_that_is_not_renewed_is_not_shown_and_then_forgotten() -> None:
    bench = Bench()
    bench.send_tree({OCTETS: 1})
    bench.passed_ns = int((3 * SECONDS + 5) * NS)
    assert BYTES in bench.samples()
    bench.passed_ns += 1
    assert BYTES not in bench.samples()
    assert bench.leaves.take_flaws()["stale"] == 1
    bench.passed_ns += FORGET_SECONDS * NS
    bench.read()
    assert bench.leaves._count == 0
    assert bench.leaves.take_flaws()["stale"] == 0


def test_an_on_change_value_holds_until_the_stream_is_away() -> None:
    bench = Bench()
    bench.send_tree({f"{PORT}/state/oper-status": "UP"})
    bench.passed_ns = 86_400 * NS
    (sample,) = (each for each in bench.read() if isinstance(each, Sample))
    assert (sample.value, sample.time_ns) == (4, NOW_NS + bench.passed_ns)
    bench.feed.is_live = False
    assert bench.read() == []


@pytest.mark.parametrize(
    ("age_seconds", "is_believed"),
    [(0, True), (AGE_SECONDS_MAX, True), (AGE_SECONDS_MAX + 1, False), (-1, True), (-2, False)],
)
def test_times_of_the_switch_are_believed_within_bounds(
    age_seconds: int,
    is_believed: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    bench = Bench()
    said_ns = NOW_NS - age_seconds * NS
    bench.send_tree({OCTETS: 1}, said_ns=said_ns)
    (sample,) = bench.read()
    assert isinstance(sample, Sample)
    assert sample.time_ns == (said_ns if is_believed else NOW_NS)
    assert bench.leaves.take_flaws()["clock"] == (0 if is_believed else 1)


def test_the_time_since_the_switch_started_goes_on_between_messages() -> None:
    bench = Bench()
    bench.send_tree({"/system/state/boot-time": str(NOW_NS - 90 * NS)})
    bench.passed_ns = 5 * NS
    assert bench.samples() == {"fabric_switch_uptime_seconds": 95.0}


# --- readings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [-1, 2**64, "1_000", "nan", "inf", "", " 5", True, None, float("nan"), [1], Unreadable("x")],
)
def test_what_is_no_counter_is_missing_and_the_next_value_heals_it(value: object) -> None:
    bench = Bench()
    bench.send_tree({OCTETS: value})
    (absence,) = bench.read()
    assert isinstance(absence, Missing)
    assert absence.series.metric == BYTES
    bench.send_tree({OCTETS: "18446744073709551615"})
    assert bench.samples() == {BYTES: 2**64 - 1}


def test_of_two_leaves_with_one_meaning_the_better_one_counts_and_the_other_inherits() -> None:
    bench = Bench()
    old = f"{PORT}/state/counters/in-fcs-errors"
    new = f"{PORT}/ethernet/state/counters/in-crc-errors"
    bench.send_tree({old: 1})
    assert bench.samples() == {"fabric_port_receive_crc_errors_total": 1}
    bench.send_tree({new: 2})
    assert bench.samples() == {"fabric_port_receive_crc_errors_total": 2}
    bench.send_tree({}, (new,))
    assert bench.samples() == {"fabric_port_receive_crc_errors_total": 1}


def test_optics_become_their_port_s_when_the_switch_maps_them() -> None:
    bench = Bench()
    bench.send_tree({"/components/component[name=xcvr1]/state/temperature/instant": 40})
    assert bench.samples() == {"fabric_switch_temperature_celsius": 40}
    bench.send_tree({f"{PORT}/state/transceiver": "xcvr1"})
    (sample,) = bench.read()
    assert isinstance(sample, Sample)
    assert sample.series.metric == "fabric_port_module_temperature_celsius"
    assert dict(sample.series.labels) == {"host": "leaf-1", "device": "leaf-1", "port": "e1"}
    bench.send_tree({f"{PORT}/state/transceiver": ""})
    assert bench.samples() == {"fabric_switch_temperature_celsius": 40}


def test_a_neighbour_that_changes_is_another_link() -> None:
    bench = Bench()
    state = "/lldp/interfaces/interface[name=e1]/neighbors/neighbor[id=1]/state"
    bench.send_tree({f"{state}/system-name": "node-0", f"{state}/port-id": "eth0"})
    bench.send_tree({f"{state}/system-name": "node-1"})
    (sample,) = bench.read()
    assert isinstance(sample, Sample)
    labels = dict(sample.series.labels)
    assert (labels["peer_name"], labels["peer_port"], labels["method"]) == (
        "node-1",
        "eth0",
        "lldp",
    )


def test_texts_that_become_labels_are_printable_and_short() -> None:
    bench = Bench()
    bench.send_tree({f"{PORT}/state/description": "a\nb" + "x" * 5000})
    (sample,) = bench.read()
    assert isinstance(sample, Sample)
    description = dict(sample.series.labels)["description"]
    assert description.startswith("a?b")
    assert len(description) == 256


def test_ports_without_a_cable_are_left_alone() -> None:
    bench = Bench(exclude=("Vlan*",))
    bench.send_tree({"/interfaces/interface[name=Vlan7]/state/counters/in-octets": 1, OCTETS: 2})
    assert bench.samples() == {BYTES: 2}


# --- what is gone --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "left"),
    [
        (OCTETS, {"e2"}),
        (f"{PORT}/state/counters", {"e2"}),
        (PORT, {"e2"}),
        ("/interfaces/interface[name=*]/state", set()),
        ("/interfaces/*", set()),
        ("/openconfig-interfaces:interfaces", set()),
        ("/", set()),
        ("/interfaces/interface[name=e3]", {"e1", "e2"}),
        ("/qos", {"e1", "e2"}),
        ("/interfaces/interface[name=e1]/state/counters/in-octets/deeper", {"e1", "e2"}),
    ],
)
@pytest.mark.parametrize("is_subtree", [False, True])
def test_a_delete_takes_what_is_below_it(
    path: str,
    left: set[str],
    is_subtree: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    bench = Bench()
    for name in ("e1", "e2"):
        counters = f"/interfaces/interface[name={name}]/state/counters"
        bench.send_tree(
            {counters: {"in-octets": 1}} if is_subtree else {f"{counters}/in-octets": 1}
        )
    bench.send_tree({}, (path,))
    ports = {dict(each.series.labels)["port"] for each in bench.read() if isinstance(each, Sample)}
    assert ports == left


def test_what_was_deleted_and_is_sent_again_is_back() -> None:
    bench = Bench()
    bench.send_tree({OCTETS: 1})
    bench.send_tree({}, (PORT,))
    bench.send_tree({OCTETS: 2})
    assert bench.samples() == {BYTES: 2}


def test_deletes_in_a_database_name_table_object_or_field() -> None:
    bench = Bench("sonic", 1)
    bench.send_tree({"/PORT_TABLE": {"Ethernet0": {"mtu": "9100"}, "Ethernet4": {"mtu": "1500"}}})
    bench.send_tree({}, ("/PORT_TABLE/PORT_TABLE:Ethernet4",))
    assert bench.samples() == {"fabric_port_mtu_bytes": 9100}
    bench.send_tree({}, ("/APPL_DB/localhost/PORT_TABLE/Ethernet0/mtu",))
    assert bench.samples() == {}


def test_too_many_deletes_by_pattern_at_once_end_the_stream() -> None:
    bench = Bench()
    bench.send_tree({OCTETS: 1})
    with pytest.raises(GnmiError, match="WILD_DELETES_MAX"):
        bench.send_tree({}, tuple(f"/interfaces/*/{number}" for number in range(17)))


def test_work_is_counted_so_that_deletes_cannot_be_had_for_nothing() -> None:
    bench = Bench()
    for number in range(50):
        bench.send_tree({f"/interfaces/interface[name=e{number}]/state/counters/in-octets": 1})
    assert bench.send_tree({}, ("/qos",)) >= 50


def test_after_a_sync_only_resent_on_change_values_hold() -> None:
    bench = Bench()
    bench.send_tree({f"{PORT}/state/oper-status": "UP", f"{PORT}/state/mtu": 9000, OCTETS: 1})
    bench.begin()
    bench.send_tree({f"{PORT}/state/mtu": 9000})
    bench.leaves.sync(bench.feed)
    assert bench.samples() == {"fabric_port_mtu_bytes": 9000, BYTES: 1}


def test_a_state_that_comes_only_after_an_early_sync_is_still_compared() -> None:
    bench = Bench()
    bench.send_tree({f"{PORT}/state/oper-status": "UP"})
    bench.begin()
    bench.leaves.sync(bench.feed)
    bench.send_tree({f"{PORT}/state/oper-status": "DOWN"})
    assert [each.kind for each in bench.read() if isinstance(each, Event)] == ["link_down"]


def test_nothing_is_left_behind_when_everything_is_deleted() -> None:
    bench = Bench()
    bench.send_tree(
        {
            OCTETS: 1,
            f"{PORT}/state/transceiver": "xcvr1",
            f"{PORT}/state/description": "x",
            f"{PORT}/state/counters/in-fcs-errors": 1,
            f"{PORT}/ethernet/state/counters/in-crc-errors": 1,
            "/components/component[name=xcvr1]/transceiver/state/supply-voltage/instant": 3,
        }
    )
    bench.send_tree({}, ("/",))
    leaves = bench.leaves
    assert leaves._count == 0
    kept = [leaves._slots, leaves._entries, leaves._owners, leaves._rivals, leaves._aliases]
    assert not any(kept)
    assert leaves._components == {}


def test_leaves_beyond_the_bound_are_dropped_and_room_is_made_by_deletes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leaves_module, "LEAVES_MAX", 1)
    bench = Bench()
    other = "/interfaces/interface[name=e2]/state/counters/in-octets"
    bench.send_tree({OCTETS: 1, other: 2})
    assert (bench.samples(), bench.leaves.dropped["leaves"]) == ({BYTES: 1}, 1)
    bench.send_tree({other: 2}, (OCTETS,))
    assert bench.samples() == {BYTES: 2}


# --- anything at all -----------------------------------------------------------------------------

names = st.sampled_from(
    [
        *("interfaces", "interface", "state", "counters", "in-octets", "oper-status", "name"),
        *("openconfig:state", "COUNTERS", "Ethernet0", "Ethernet0:3", "SAI_QUEUE_STAT_BYTES"),
        *("PORT_TABLE", "mtu", "alias", "TRANSCEIVER_DOM_SENSOR", "rx1power", "*", ""),
    ]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | names
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)
elements = st.lists(
    st.tuples(names, st.lists(st.tuples(names, names), max_size=2).map(tuple)), max_size=6
)


@given(
    st.lists(st.tuples(elements, trees, st.integers()), max_size=6), st.lists(elements, max_size=3)
)
def test_whatever_a_switch_sends_is_taken_or_counted(
    messages: list[tuple[list[Any], Any, int]], deletes: list[list[Any]]
) -> None:
    for profile, stream in (("openconfig", 0), ("sonic", 0), ("sonic", 1), ("sonic", 2)):
        bench = Bench(profile, stream)
        for path, tree, time_ns in messages:
            update = Update(Path(tuple(path)), tree)
            gone = [Path(tuple(each)) for each in deletes]
            message = Notification(time_ns, [update], gone)
            bench.leaves.apply(bench.feed, message, NOW_NS, STEADY_NS)
        series = [each.series for each in bench.read() if isinstance(each, Sample | Missing)]
        assert len(series) == len(set(series))
