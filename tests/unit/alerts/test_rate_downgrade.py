"""Links below their rate: against their own past, their peers and their own word."""

import numpy as np
import pytest

from alerts.detectors.rate_downgrade import FELL_STRENGTH, PEERS_STRENGTH, detect
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
RATE = "rate_bits_per_second"


def test_a_rate_that_fell_is_found_at_the_first_reading() -> None:
    fabric = SmallFabric()
    fabric.set(RATE, host(3), 100e9, slice(23, None))
    (found,) = detect(fabric.window())
    assert (found.cause, found.reason) == (Cause.SLOW_LINK, Reason.RATE_DOWNGRADE)
    assert (found.culprit, found.strength) == (NODE_3, FELL_STRENGTH)
    assert (found.evidence[0].value, found.evidence[0].baseline) == (100e9, 400e9)


def test_both_ends_are_one_finding() -> None:
    fabric = SmallFabric()
    fabric.set(RATE, host(3), 100e9, slice(20, None))
    fabric.set(RATE, leaf_port(3), 100e9, slice(21, None))
    assert [found.culprit for found in detect(fabric.window())] == [NODE_3]


def test_a_port_that_was_always_slower_than_its_peers_is_found_with_less_certainty() -> None:
    fabric = SmallFabric()
    fabric.set(RATE, host(3), 200e9)
    window = fabric.window()
    window.ports.rate_bits_per_second[3] = 200e9
    (found,) = detect(window)
    assert (found.culprit, found.strength) == (NODE_3, PEERS_STRENGTH)


def test_a_mixed_fabric_has_no_slow_ports() -> None:
    fabric = SmallFabric()
    window = fabric.window()
    for number in (0, 1, 2):
        window.ports.readings[RATE].values[fabric.row[host(number)]] = 200e9
        window.ports.rate_bits_per_second[fabric.row[host(number)]] = 200e9
    assert detect(window) == []


def test_lost_lanes_and_a_switch_s_own_word_count() -> None:
    fabric = SmallFabric()
    fabric.set("lanes", host(3), 4.0)
    fabric.set("lanes", host(3), 1.0, slice(22, None))
    fabric.set("could_be_faster", ("leaf-0", "6"), 1.0, slice(22, None))
    culprits = {found.culprit for found in detect(fabric.window())}
    assert culprits == {NODE_3, Culprit(switch="leaf-0", switch_port="6")}


def test_a_port_without_a_link_has_no_rate() -> None:
    fabric = SmallFabric()
    fabric.set(RATE, host(3), 10e9, slice(20, None))
    fabric.set("state", host(3), 1.0, slice(20, None))
    assert detect(fabric.window()) == []


def test_a_rate_that_is_back_has_an_end() -> None:
    fabric = SmallFabric()
    fabric.set(RATE, host(3), 100e9, slice(10, 14))
    (found,) = detect(fabric.window())
    assert found.until_ns == START_NS + 14 * STEP_NS


def test_an_agent_s_event_gives_when_it_fell() -> None:
    fabric = SmallFabric()
    fabric.set(RATE, host(3), 100e9, slice(20, None))
    time_ns = START_NS + 20 * STEP_NS - 2 * NS
    labels = {"host": "node3", "device": "mlx5_0", "port": "1"}
    fabric.events = [Event(kind="link_rate", time_ns=time_ns, labels=labels, message="")]
    (found,) = detect(fabric.window())
    assert found.since_ns == time_ns


@pytest.mark.parametrize("rate", [np.nan, 0.0, -1.0])
def test_a_rate_that_is_none_accuses_no_port(rate: float) -> None:
    fabric = SmallFabric()
    fabric.set(RATE, host(3), rate, slice(20, None))
    assert detect(fabric.window()) == []


def test_slow_ports_do_not_depend_on_the_order_of_ports() -> None:
    fabric = SmallFabric()
    fabric.set(RATE, host(3), 100e9, slice(20, None))
    fabric.set(RATE, ("leaf-1", "6"), 100e9, slice(20, None))
    check_order_does_not_matter(detect, fabric)


def test_garbage_accuses_no_rate() -> None:
    check_garbage_accuses_nobody(detect, ("could_be_faster",))
