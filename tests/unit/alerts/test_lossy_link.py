"""Damaged, dropped and vanished packets: which part is named, and when none is."""

import numpy as np

from alerts.detectors.lossy_link import DAMAGE, DISCARDS, GAPS, RESENT, detect
from collector.contract.model import Event
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Reason
from tests.worlds.small_fabric import (
    PACKET_BYTES,
    SENT,
    STEP_NS,
    SmallFabric,
    check_garbage_accuses_nobody,
    check_order_does_not_matter,
    host,
    leaf_port,
)

LATE = slice(18, None)
NODE_3 = Culprit(host="node3", device="mlx5_0", port="1", switch="leaf-0", switch_port="4")


def resend(fabric: SmallFabric, source: int, target: int, rate: float = 500.0) -> None:
    """Let a flow lose packets: both of its NICs notice."""
    for number in range(8):
        for name in (RESENT[0], GAPS[0]):
            fabric.set(name, host(number), 0.0, slice(0, 0))
    fabric.set(RESENT[0], host(source), rate, LATE)
    fabric.set(GAPS[0], host(target), rate, LATE)


def cross(fabric: SmallFabric, uplink: int, spine: str, port: str, lost: float = 0.0) -> None:
    """Traffic over one cable from leaf-0 to a spine, of which a share is lost late."""
    fabric.carry(("leaf-0", str(uplink)), (spine, port), SENT, slice(None))
    left = SENT / PACKET_BYTES * (1 - lost)
    fabric.set("receive_packets_total", (spine, port), left, LATE)


def test_damage_at_a_nic_names_its_cable_at_the_first_reading() -> None:
    fabric = SmallFabric()
    fabric.set("symbol_errors_total", host(3), 2000.0, slice(23, None))
    (found,) = detect(fabric.window())
    assert (found.cause, found.reason, found.culprit) == (Cause.LOSSY_LINK, Reason.CABLE, NODE_3)
    assert found.since_ns == fabric.grid.start_ns + 23 * STEP_NS
    assert found.until_ns is None
    assert found.strength > 0.9
    assert [victim.rank for victim in found.victims] == [3]


def test_damage_at_the_leaf_names_the_nic_that_sends_there() -> None:
    fabric = SmallFabric()
    fabric.set("receive_crc_errors_total", leaf_port(3), 50.0, LATE)
    (found,) = detect(fabric.window())
    assert found.culprit == NODE_3


def test_damage_between_switches_names_the_port_that_receives_it() -> None:
    fabric = SmallFabric()
    fabric.set("symbol_errors_total", ("spine-1", "2"), 1e5, LATE)
    (found,) = detect(fabric.window())
    assert found.culprit == Culprit(switch="spine-1", switch_port="2")


def test_both_ends_of_one_cable_are_one_finding() -> None:
    fabric = SmallFabric()
    fabric.set("symbol_errors_total", host(3), 20.0, LATE)
    fabric.set("symbol_errors_total", leaf_port(3), 900.0, LATE)
    (found,) = detect(fabric.window())
    assert found.culprit == NODE_3
    assert "900" in found.evidence[0].text


def test_the_same_count_is_a_fault_on_a_slow_link_only() -> None:
    fabric = SmallFabric()
    fabric.set("symbol_errors_total", host(3), 0.3, LATE)  # 9 errors in 30 s
    assert detect(fabric.window()) == []  # 7.5e-13 at 400 Gb/s
    window = fabric.window()
    window.ports.rate_bits_per_second[:] = 100e9
    (found,) = detect(window)
    assert found.culprit == NODE_3  # 3e-12


def test_one_error_is_chance() -> None:
    fabric = SmallFabric()
    fabric.set("symbol_errors_total", host(3), 0.4, slice(20, 21))  # 2 errors
    assert detect(fabric.window()) == []


def test_corrected_bits_are_no_loss() -> None:
    fabric = SmallFabric()
    fabric.set("phy_receive_corrected_bits_total", host(3), 1e7)
    fabric.set("phy_receive_fec_corrected_blocks_total", host(3), 1e5)
    assert detect(fabric.window()) == []


def test_damage_that_is_over_has_an_end() -> None:
    fabric = SmallFabric()
    fabric.set("symbol_errors_total", host(3), 900.0, slice(5, 8))
    (found,) = detect(fabric.window())
    assert found.until_ns == fabric.grid.start_ns + 8 * STEP_NS


def test_a_port_that_drops_where_it_should_pause_is_misconfigured() -> None:
    fabric = SmallFabric()
    fabric.set("queue_discarded_packets_total", leaf_port(3), 5e4, LATE)
    fabric.set("queue_discarded_packets_total", ("spine-0", "1"), 9e3, LATE)
    (found,) = detect(fabric.window())
    assert (found.culprit, found.reason) == (NODE_3, Reason.CONFIGURATION)


def drops_told(fabric: SmallFabric, switch: str, port: str, reasons: str) -> Event:
    return Event(
        kind="port_drops",
        time_ns=fabric.grid.start_ns + 22 * STEP_NS,
        labels={"host": switch, "device": switch, "port": port},
        attributes={"reasons": reasons, "talkers": "192.0.2.1>192.0.2.4=100"},
    )


def test_whose_packets_a_full_queue_dropped_is_shown_beside() -> None:
    fabric = SmallFabric()
    fabric.set("queue_discarded_packets_total", leaf_port(3), 5e4, LATE)
    (before,) = detect(fabric.window())
    fabric.events = [drops_told(fabric, "leaf-0", "4", "no_buffer_space=8")]
    (found,) = detect(fabric.window())
    (drops,) = [each for each in found.evidence if each not in before.evidence]
    assert drops.text == (
        "leaf-0 told of 8 packets that its port 4 dropped (no_buffer_space): from "
        "192.0.2.1 to 192.0.2.4 100 %"
    )
    assert (found.culprit, found.strength) == (before.culprit, before.strength)


def test_drops_of_a_port_that_its_far_end_holds_back_are_not_its_own() -> None:
    fabric = SmallFabric()
    fabric.set("transmit_discards_total", leaf_port(3), 5e4, LATE)
    fabric.set("transmit_wait_seconds_total", leaf_port(3), 0.6, LATE)
    assert detect(fabric.window()) == []


def test_drops_of_a_port_without_a_link_are_not_a_full_queue() -> None:
    fabric = SmallFabric()
    fabric.set("transmit_discards_total", leaf_port(3), 5e4, LATE)
    fabric.set("state", leaf_port(3), 1.0, LATE)
    assert detect(fabric.window()) == []


def test_several_senders_that_lose_to_one_receiver_name_its_port() -> None:
    fabric = SmallFabric()
    resend(fabric, 2, 3)
    fabric.set(RESENT[0], host(7), 300.0, LATE)
    (found,) = detect(fabric.window())
    assert found.culprit == NODE_3
    assert {victim.rank for victim in found.victims} == {2, 3}


def test_drops_told_where_no_port_counts_one_are_shown_beside() -> None:
    """By the port to the one receiver; a switch that swallows shows those of all its ports."""
    fabric = SmallFabric()
    resend(fabric, 2, 3)
    fabric.set(RESENT[0], host(7), 300.0, LATE)
    (before,) = detect(fabric.window())
    fabric.events = [
        drops_told(fabric, "leaf-0", "4", "no_buffer_space=8"),
        drops_told(fabric, "leaf-0", "5", "acl=9"),
    ]
    (found,) = detect(fabric.window())
    (drops,) = [each for each in found.evidence if each not in before.evidence]
    assert drops.text.startswith("leaf-0 told of 8 packets that its port 4 dropped")
    assert (found.culprit, found.strength) == (before.culprit, before.strength)
    fabric = swallowing()
    (before,) = detect(fabric.window())
    fabric.events = [
        drops_told(fabric, "spine-1", "1", "unknown_l3=3"),
        drops_told(fabric, "spine-1", "2", "unknown_l3=8"),
        drops_told(fabric, "spine-0", "1", "acl=99"),
    ]
    (found,) = detect(fabric.window())
    shown = [each.value for each in found.evidence if each not in before.evidence]
    assert shown == [8.0, 3.0]
    assert (found.culprit, found.strength) == (before.culprit, before.strength)


def swallowing() -> SmallFabric:
    """Between spine-1 and its leaves packets vanish, and no port counts one."""
    fabric = SmallFabric()
    resend(fabric, 3, 4)
    resend(fabric, 5, 0)
    fabric.set(RESENT[0], host(3), 500.0, LATE)
    fabric.set(GAPS[0], host(4), 500.0, LATE)
    cross(fabric, 5, "spine-0", "1")
    cross(fabric, 7, "spine-1", "1", lost=3e-3)
    cross(fabric, 8, "spine-1", "2", lost=3e-3)
    return fabric


def test_a_switch_whose_cables_swallow_packets_is_named() -> None:
    fabric = swallowing()
    (found,) = detect(fabric.window())
    assert (found.culprit, found.reason) == (Culprit(switch="spine-1"), Reason.SWITCH)
    check_order_does_not_matter(detect, fabric)


def test_a_silent_switch_is_not_named_before_it_was_read() -> None:
    fabric = SmallFabric()
    resend(fabric, 3, 4)
    resend(fabric, 5, 0)
    cross(fabric, 5, "spine-0", "1")
    cross(fabric, 7, "spine-1", "1", lost=3e-3)
    cross(fabric, 8, "spine-1", "2", lost=3e-3)
    read = fabric.seen_ns.copy()
    fabric.seen_ns[8:] = fabric.grid.start_ns + 18 * STEP_NS + NS
    assert detect(fabric.window()) == []
    fabric.seen_ns = read
    assert len(detect(fabric.window())) == 1


def test_one_cable_that_swallows_packets_is_named_by_its_port() -> None:
    fabric = SmallFabric()
    resend(fabric, 3, 4)
    cross(fabric, 5, "spine-0", "1")
    cross(fabric, 7, "spine-1", "1", lost=3e-3)
    (found,) = detect(fabric.window())
    assert found.culprit == Culprit(switch="leaf-0", switch_port="7")


def swallow(fabric: SmallFabric, number: int, lost: float = 0.005) -> None:
    """A share of what a leaf sends to a NIC never arrives, from late on."""
    fabric.carry(leaf_port(number), host(number), SENT, slice(None))
    fabric.set("receive_packets_total", host(number), SENT / PACKET_BYTES * (1 - lost), LATE)


def test_a_nic_s_cable_that_swallows_packets_is_named_though_one_flow_alone_meets_it() -> None:
    fabric = SmallFabric()
    swallow(fabric, 3)
    resend(fabric, 2, 3)
    (found,) = detect(fabric.window())
    assert (found.cause, found.reason) == (Cause.LOSSY_LINK, Reason.UNKNOWN)
    assert found.culprit == Culprit(switch="leaf-0", switch_port="4")


def test_of_two_nics_cables_that_swallow_packets_neither_is_named_alone() -> None:
    fabric = SmallFabric()
    swallow(fabric, 3)
    swallow(fabric, 1)
    resend(fabric, 2, 3)
    assert not detect(fabric.window())


def test_ends_that_never_agree_exactly_accuse_no_switch() -> None:
    fabric = SmallFabric()
    resend(fabric, 3, 4)
    scatter = np.random.default_rng(1)
    for number, (spine, port) in ((7, ("spine-1", "1")), (8, ("spine-1", "2"))):
        cross(fabric, number, spine, port)
        line = fabric.readings["receive_packets_total"][fabric.row[spine, port]]
        line *= 1 + 3e-3 * scatter.standard_normal(len(line))
    assert detect(fabric.window()) == []


def lose_little(fabric: SmallFabric, lost: dict[str, float], noise: float = 0.0) -> None:
    """Traffic both ways between all switches; of each spine's ways a share is lost late."""
    scatter = np.random.default_rng(2)
    for ends in fabric.cables:
        spine = next((end[0] for end in ends if end[0].startswith("spine")), None)
        if spine is None:
            continue
        for source, target in (ends, ends[::-1]):
            fabric.carry(source, target, SENT, slice(None))
            left = SENT / PACKET_BYTES * (1 - lost.get(spine, 0.0))
            fabric.set("receive_packets_total", target, left, LATE)
            line = fabric.readings["receive_packets_total"][fabric.row[target]]
            line *= 1 + noise * scatter.standard_normal(len(line))


def test_a_switch_all_of_whose_ways_lose_a_little_is_named_where_no_other_way_does() -> None:
    fabric = SmallFabric()
    resend(fabric, 3, 4)
    lose_little(fabric, {"spine-1": 3e-5})
    (found,) = detect(fabric.window())
    assert (found.culprit, found.reason) == (Culprit(switch="spine-1"), Reason.SWITCH)
    check_order_does_not_matter(detect, fabric)


def test_a_little_that_vanishes_everywhere_or_in_noise_accuses_no_switch() -> None:
    for lost, noise in (
        ({"spine-0": 3e-5, "spine-1": 3e-5}, 0.0),
        ({"spine-1": 3e-5}, 1e-3),
        ({"spine-1": 5e-6}, 0.0),
    ):
        fabric = SmallFabric()
        resend(fabric, 3, 4)
        lose_little(fabric, lost, noise)
        assert not detect(fabric.window()), (lost, noise)


def test_the_best_of_bad_explanations_accuses_no_switch() -> None:
    """Losses of flows that nobody knows of (all-to-all) show at NICs on every leaf."""
    fabric = SmallFabric()
    resend(fabric, 0, 1)
    for source, target in ((1, 2), (2, 3), (4, 5)):
        fabric.set(RESENT[0], host(source), 500.0, LATE)
        fabric.set(GAPS[0], host(target), 500.0, LATE)
    assert not detect(fabric.window())


def test_lossy_flows_vote_where_packets_are_not_counted() -> None:
    fabric = SmallFabric()
    resend(fabric, 0, 1)
    for source, target in ((1, 2), (2, 3)):
        fabric.set(RESENT[0], host(source), 500.0, LATE)
        fabric.set(GAPS[0], host(target), 500.0, LATE)
    (found,) = detect(fabric.window())
    assert (found.culprit, found.reason) == (Culprit(switch="leaf-0"), Reason.SWITCH)


def test_where_all_are_always_out_of_sequence_none_is_accused() -> None:
    fabric = SmallFabric()
    for number in range(8):
        fabric.set(GAPS[0], host(number), 40.0)
        fabric.set(RESENT[0], host(number), 40.0)
    assert detect(fabric.window()) == []


def test_damage_does_not_depend_on_the_order_of_ports() -> None:
    fabric = SmallFabric()
    fabric.set("symbol_errors_total", host(3), 2000.0, LATE)
    fabric.set("symbol_errors_total", ("spine-1", "2"), 2000.0, LATE)
    check_order_does_not_matter(detect, fabric)


def test_garbage_accuses_none_of_losing() -> None:
    check_garbage_accuses_nobody(detect, (*DAMAGE, *DISCARDS, *RESENT, *GAPS))
