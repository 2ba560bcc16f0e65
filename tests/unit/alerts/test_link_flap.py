"""Links that go down: which are flaps, which are reboots, and when a link is dead."""

import pytest

from alerts.detectors.link_flap import COUNTERS, detect
from collector.contract.model import Event
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Reason
from tests.worlds.small_fabric import (
    START_NS,
    STEP_NS,
    SmallFabric,
    check_garbage_accuses_nobody,
    check_order_does_not_matter,
    host,
    leaf_port,
)

NODE_3 = Culprit(host="node3", device="mlx5_0", port="1", switch="leaf-0", switch_port="4")


@pytest.mark.parametrize("name", COUNTERS)
def test_any_count_of_a_down_is_a_flap(name: str) -> None:
    fabric = SmallFabric()
    fabric.set(name, host(3), 0.2, slice(23, None))
    (found,) = detect(fabric.window())
    assert (found.cause, found.reason, found.culprit) == (Cause.LINK_FLAP, Reason.CABLE, NODE_3)
    assert found.since_ns == START_NS + 23 * STEP_NS
    assert [victim.rank for victim in found.victims] == [3]


def test_both_ends_show_one_flap() -> None:
    fabric = SmallFabric()
    fabric.set("link_downed_total", host(3), 0.2, slice(20, 21))
    fabric.set("link_downed_total", leaf_port(3), 0.2, slice(19, 21))
    fabric.set("state", leaf_port(3), 1.0, slice(20, 21))
    (found,) = detect(fabric.window())
    assert found.culprit == NODE_3
    assert found.since_ns == START_NS + 19 * STEP_NS


def test_a_cable_between_switches_is_named_by_a_port() -> None:
    fabric = SmallFabric()
    fabric.set("link_downed_total", ("leaf-0", "6"), 0.2, slice(20, 21))
    (found,) = detect(fabric.window())
    assert found.culprit == Culprit(switch="leaf-0", switch_port="6")


def test_an_agent_s_event_gives_the_exact_time() -> None:
    fabric = SmallFabric()
    labels = {"host": "node3", "device": "mlx5_0", "port": "1"}
    time_ns = START_NS + 21 * STEP_NS + 123 * NS // 100
    fabric.events = [Event(kind="link_down", time_ns=time_ns, labels=labels, message="down")]
    (found,) = detect(fabric.window())
    assert (found.culprit, found.since_ns) == (NODE_3, time_ns)


def test_a_link_that_stays_down_is_down() -> None:
    fabric = SmallFabric()
    fabric.set("state", host(3), 1.0, slice(21, None))
    (found,) = detect(fabric.window())
    assert found.reason is Reason.LINK_DOWN
    fabric = SmallFabric()
    fabric.set("state", host(3), 1.0, slice(23, None))
    (found,) = detect(fabric.window())
    assert found.reason is Reason.CABLE


def test_a_link_that_came_back_is_not_down() -> None:
    fabric = SmallFabric()
    fabric.set("state", host(3), 1.0, slice(10, 20))
    (found,) = detect(fabric.window())
    assert (found.reason, found.until_ns) == (Reason.CABLE, START_NS + 20 * STEP_NS)


def test_a_port_that_was_never_up_is_not_used() -> None:
    fabric = SmallFabric()
    fabric.set("state", host(3), 1.0)
    fabric.set("state", leaf_port(3), 1.0)
    assert detect(fabric.window()) == []


def test_a_host_that_goes_with_all_its_links_is_no_flap() -> None:
    fabric = SmallFabric()
    # A host with two NICs: the window has a row for each.
    fabric.cables[3] = (host(3), leaf_port(3))
    window = fabric.window()
    for number, place in ((3, window.ports.row_of["node3", "mlx5_0", "1"]), (2, 2)):
        window.ports.host[place] = "twin"
        window.ports.device[place] = f"mlx5_{number}"
    state = window.ports.readings["state"].values
    for number in (2, 3):
        row = fabric.row[leaf_port(number)]
        state[row, 12:18] = 1.0
        state[fabric.row[host(number)], 10:] = float("nan")
    assert detect(window) == []


def test_a_switch_that_takes_its_links_along_is_named_once() -> None:
    fabric = SmallFabric()
    for number in (1, 2, 3, 4):
        fabric.set("state", ("spine-1", str(number)), 1.0, slice(20, None))
    (found,) = detect(fabric.window())
    assert (found.culprit, found.reason) == (Culprit(switch="spine-1"), Reason.SWITCH)


def test_a_flap_long_ago_and_one_now_are_found_as_the_one_now() -> None:
    fabric = SmallFabric()
    fabric.set("link_downed_total", host(3), 0.2, slice(2, 3))
    fabric.set("link_downed_total", host(3), 0.2, slice(20, 21))
    (found,) = detect(fabric.window())
    assert found.since_ns == START_NS + 20 * STEP_NS


def test_flaps_do_not_depend_on_the_order_of_ports() -> None:
    fabric = SmallFabric()
    fabric.set("link_downed_total", host(3), 0.2, slice(20, 21))
    fabric.set("state", ("leaf-1", "6"), 1.0, slice(20, None))
    check_order_does_not_matter(detect, fabric)


def test_garbage_accuses_no_link() -> None:
    check_garbage_accuses_nobody(detect, COUNTERS)


def test_a_state_is_shown_as_it_was_read_and_changes_are_counted() -> None:
    fabric = SmallFabric()
    fabric.set("state", host(3), 4.0)
    fabric.set("state", host(3), 1.0, slice(20, 22))
    fabric.set("link_downed_total", host(3), NS / STEP_NS, slice(20, 21))
    (found,) = detect(fabric.window())
    changes, state = found.evidence
    assert changes.value == pytest.approx(1.0)
    assert changes.unit == "changes"
    assert "1 change of its link" in changes.text
    assert (state.metric, state.value, state.baseline) == ("fabric_port_state", 1.0, 4.0)
    assert "(down)" in state.text
