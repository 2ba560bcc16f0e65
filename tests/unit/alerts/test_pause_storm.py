"""Pause storms: NICs that hold their switch back, and ports that only wait."""

from alerts.detectors.pause_storm import detect
from collector.contract.verdict import Cause, Culprit, Reason
from tests.worlds.small_fabric import (
    SENT,
    SmallFabric,
    check_garbage_accuses_nobody,
    check_order_does_not_matter,
    host,
    leaf_port,
)

LATE = slice(20, None)
NODE_3 = Culprit(host="node3", device="mlx5_0", port="1", switch="leaf-0", switch_port="4")
SOURCES = (
    "transmit_wait_seconds_total",
    "receive_pause_seconds_total",
    "transmit_pause_seconds_total",
    "receive_pause_frames_total",
    "transmit_pause_frames_total",
    "transmit_wait_ticks_total",
)


def roce_storm() -> SmallFabric:
    """Node 3 pauses its leaf; the leaf pauses node 2 and, over a spine, node 4."""
    fabric = SmallFabric()
    fabric.set("transmit_pause_seconds_total", host(3), 0.45, LATE)
    fabric.set("receive_pause_seconds_total", host(2), 0.25, LATE)
    fabric.set("receive_pause_frames_total", ("spine-0", "1"), 9000.0, LATE)
    fabric.set("transmit_pause_frames_total", ("leaf-0", "5"), 9000.0, LATE)
    fabric.set("receive_pause_frames_total", ("leaf-1", "5"), 5000.0, LATE)
    fabric.set("receive_pause_seconds_total", host(4), 0.2, LATE)
    return fabric


def infiniband_storm() -> SmallFabric:
    """The same with credits: switches count the time, NICs ticks of unknown length."""
    fabric = SmallFabric()
    fabric.set("transmit_wait_seconds_total", leaf_port(3), 0.7, LATE)
    fabric.set("transmit_wait_seconds_total", ("spine-0", "1"), 0.6, LATE)
    fabric.set("transmit_wait_seconds_total", ("leaf-1", "5"), 0.5, LATE)
    fabric.set("transmit_wait_ticks_total", host(4), 3e8, LATE)
    return fabric


def test_the_nic_that_pauses_and_is_not_paused_is_the_root() -> None:
    (found,) = detect(roce_storm().window())
    assert (found.cause, found.reason) == (Cause.PAUSE_STORM, Reason.NIC)
    assert found.culprit == NODE_3
    assert {victim.rank for victim in found.victims} == {2, 3, 4}


def test_a_receiver_without_credits_is_the_root_on_infiniband() -> None:
    (found,) = detect(infiniband_storm().window())
    assert found.culprit == NODE_3
    assert {victim.rank for victim in found.victims} == {3, 4}


def test_a_nic_that_is_paused_itself_is_still_a_root_if_it_pauses() -> None:
    fabric = roce_storm()
    fabric.set("receive_pause_seconds_total", host(3), 0.3, LATE)
    assert [found.culprit for found in detect(fabric.window())] == [NODE_3]


def test_a_switch_that_holds_others_back_by_itself_is_no_storm() -> None:
    fabric = SmallFabric()
    fabric.set("receive_pause_seconds_total", host(2), 0.5, LATE)
    fabric.set("transmit_wait_seconds_total", ("spine-0", "1"), 0.6, LATE)
    assert detect(fabric.window()) == []


def test_one_reading_is_not_enough() -> None:
    fabric = SmallFabric()
    fabric.set("transmit_pause_seconds_total", host(3), 0.45, slice(23, None))
    assert detect(fabric.window()) == []


def test_a_little_pausing_is_health() -> None:
    fabric = SmallFabric()
    for number in range(8):
        fabric.set("transmit_pause_seconds_total", host(number), 0.02)
    assert detect(fabric.window()) == []


def test_a_storm_that_is_older_than_the_window_is_still_one() -> None:
    fabric = SmallFabric()
    for number in range(8):
        fabric.set("transmit_pause_seconds_total", host(number), 0.45 if number == 3 else 0.0)
    (found,) = detect(fabric.window())
    assert found.culprit == NODE_3
    # Its own past is the storm: its peers show what is usual.
    assert found.evidence[0].baseline == 0.0
    assert "0 % is usual" in found.evidence[0].text


def test_where_all_nics_always_pause_only_the_one_that_got_worse_is_named() -> None:
    fabric = SmallFabric()
    for number in range(8):
        fabric.set("transmit_pause_seconds_total", host(number), 0.1)
    assert detect(fabric.window()) == []
    fabric.set("transmit_pause_seconds_total", host(3), 0.5, LATE)
    assert [found.culprit for found in detect(fabric.window())] == [NODE_3]


def test_storms_do_not_depend_on_the_order_of_ports() -> None:
    check_order_does_not_matter(detect, roce_storm())
    check_order_does_not_matter(detect, infiniband_storm())


def test_garbage_is_no_storm() -> None:
    check_garbage_accuses_nobody(detect, SOURCES)


# By frames alone ----------------------------------------------------------------------------------


def frames_storm(fall: float = 0.6) -> SmallFabric:
    """Switches count frames, NICs have no agent: node 3 pauses its leaf, and that pauses node 2."""
    fabric = SmallFabric()
    for number in range(8):
        fabric.set("receive_pause_frames_total", leaf_port(number), 0.0)
        fabric.set("transmit_pause_frames_total", leaf_port(number), 0.0)
        fabric.carry(leaf_port(number), host(number), (1 - fall) * SENT, LATE)
    fabric.set("receive_pause_frames_total", leaf_port(3), 25_000.0, LATE)
    fabric.set("transmit_pause_frames_total", leaf_port(2), 9_000.0, LATE)
    return fabric


def test_frames_a_fall_and_ports_that_wait_behind_it_name_a_nic_without_an_agent() -> None:
    (found,) = detect(frames_storm().window())
    assert (found.cause, found.reason, found.culprit) == (Cause.PAUSE_STORM, Reason.NIC, NODE_3)
    assert {victim.rank for victim in found.victims} == {2, 3}
    assert "by 25,000 frames a second, 0 before" in found.evidence[0].text
    assert "fell to 40 % of before" in found.evidence[0].text
    assert "node2 mlx5_0 port 1 waits behind it" in found.evidence[1].text


def test_frames_without_a_fall_accuse_no_nic() -> None:
    assert detect(frames_storm(fall=0.05).window()) == []


def test_frames_behind_which_no_port_waits_accuse_no_nic() -> None:
    fabric = frames_storm()
    fabric.set("transmit_pause_frames_total", leaf_port(2), 0.0)
    assert detect(fabric.window()) == []


def test_frames_that_were_always_there_explain_no_fall() -> None:
    fabric = frames_storm()
    fabric.set("receive_pause_frames_total", leaf_port(3), 20_000.0, slice(0, 20))
    assert detect(fabric.window()) == []


def test_too_few_frames_to_stop_a_port_for_long_accuse_no_nic() -> None:
    fabric = frames_storm()
    fabric.set("receive_pause_frames_total", leaf_port(3), 3_000.0, LATE)  # a quarter at most
    assert detect(fabric.window()) == []


def test_of_two_nics_that_pause_one_switch_frames_name_neither() -> None:
    fabric = frames_storm()
    fabric.set("receive_pause_frames_total", leaf_port(1), 6_000.0, LATE)
    assert detect(fabric.window()) == []


def test_frames_from_a_switch_accuse_no_nic() -> None:
    fabric = frames_storm()
    fabric.set("receive_pause_frames_total", leaf_port(3), 0.0, LATE)
    fabric.set("receive_pause_frames_total", ("leaf-0", "7"), 25_000.0, LATE)
    assert detect(fabric.window()) == []


def test_a_nic_whose_agent_counts_the_time_is_judged_by_the_time() -> None:
    fabric = frames_storm()
    fabric.set("transmit_pause_seconds_total", host(3), 0.02, LATE)
    assert detect(fabric.window()) == []


def test_frames_that_are_older_than_the_window_accuse_no_nic() -> None:
    fabric = frames_storm()
    for name, key in (("receive", leaf_port(3)), ("transmit", leaf_port(2))):
        fabric.set(f"{name}_pause_frames_total", key, 25_000.0)
    assert detect(fabric.window()) == []


def test_storms_by_frames_do_not_depend_on_the_order_of_ports() -> None:
    check_order_does_not_matter(detect, frames_storm())
