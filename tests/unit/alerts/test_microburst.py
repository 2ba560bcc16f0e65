"""Bursts into a NIC: separated from congestion by the room that the mean leaves."""

import pytest

from alerts.detectors import congestion
from alerts.detectors.microburst import detect
from collector.contract.model import Event
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Reason
from tests.worlds.small_fabric import (
    LINE,
    PACKET_BYTES,
    SENT,
    START_NS,
    STEP_NS,
    SmallFabric,
    check_garbage_accuses_nobody,
    check_order_does_not_matter,
    host,
    leaf_port,
)

LATE = slice(20, None)
NODE_3 = Culprit(host="node3", device="mlx5_0", port="1", switch="leaf-0", switch_port="4")


def bursts(load: float, cells: slice = LATE) -> SmallFabric:
    """Others send so much of the line into node 3, and its packets arrive marked."""
    fabric = SmallFabric()
    received = SENT + load * LINE / 8
    fabric.carry(leaf_port(3), host(3), received, cells)
    fabric.set("receive_ecn_marked_packets_total", host(3), received / PACKET_BYTES / 20, cells)
    return fabric


@pytest.mark.parametrize("load", [0.12, 0.25, 0.38])
def test_a_half_empty_port_with_a_queue_is_hit_by_bursts(load: float) -> None:
    window = bursts(load).window()
    (found,) = detect(window)
    assert (found.cause, found.reason) == (Cause.MICROBURST, Reason.NEIGHBOUR)
    assert found.culprit == NODE_3
    assert congestion.detect(window) == []


@pytest.mark.parametrize("load", [0.42, 0.55, 0.69])
def test_a_port_whose_queue_would_stand_is_congested_and_not_bursty(load: float) -> None:
    window = bursts(load).window()
    assert detect(window) == []
    assert [found.culprit for found in congestion.detect(window)] == [NODE_3]


def heeding(load: float) -> SmallFabric:
    """Others send so much of the line into node 3, and few of its packets are marked."""
    fabric = bursts(load)
    received = SENT + load * LINE / 8
    fabric.set("receive_ecn_marked_packets_total", host(3), received / PACKET_BYTES / 250, LATE)
    return fabric


@pytest.mark.parametrize("load", [0.12, 0.33, 0.38])
def test_senders_that_heed_marks_go_on_and_are_no_burst(load: float) -> None:
    """`storage_neighbour` of seed 41301: 0.4 % of packets were marked, and nobody was paused."""
    window = heeding(load).window()
    assert detect(window) == []
    (found,) = congestion.detect(window)
    assert (found.culprit, found.reason) == (NODE_3, Reason.NEIGHBOUR)


def test_few_marks_are_bursts_all_the_same_where_more_than_marks_was_needed() -> None:
    paused, deep, uncounted = heeding(0.33), heeding(0.33), heeding(0.33)
    paused.set("receive_pause_frames_total", host(2), 2e3, LATE)
    deep.set("queue_peak_bytes", leaf_port(3), 4e6, slice(22, None))
    marks = uncounted.readings.pop("receive_ecn_marked_packets_total")
    uncounted.readings["cnp_sent_total"] = marks
    for fabric in (paused, deep, uncounted):
        assert [found.culprit for found in detect(fabric.window())] == [NODE_3]
        assert congestion.detect(fabric.window()) == []


def test_waits_for_credits_show_the_queue_on_infiniband() -> None:
    fabric = SmallFabric()
    fabric.carry(leaf_port(3), host(3), SENT + 0.2 * LINE / 8, LATE)
    assert detect(fabric.window()) == []
    fabric.set("transmit_wait_ticks_total", host(2), 4e8, LATE)
    assert [found.culprit for found in detect(fabric.window())] == [NODE_3]


def test_waits_at_another_leaf_are_another_queue() -> None:
    fabric = SmallFabric()
    fabric.carry(leaf_port(3), host(3), SENT + 0.2 * LINE / 8, LATE)
    fabric.set("transmit_wait_seconds_total", ("spine-0", "3"), 0.4, LATE)  # into leaf-1
    assert detect(fabric.window()) == []


def marked(*marks: float) -> SmallFabric:
    """Bursts into node 3, and the watermarks of its leaf's queue in the last cells."""
    fabric = SmallFabric()
    fabric.carry(leaf_port(3), host(3), SENT + 0.2 * LINE / 8, LATE)
    for place, mark in enumerate(marks):
        fabric.set("queue_peak_bytes", leaf_port(3), mark, slice(20 + place, 21 + place))
    return fabric


def test_a_deep_queue_shows_it_too() -> None:
    fabric = marked(1e3, 4e6, 5e6, 4.5e6)
    assert [found.culprit for found in detect(fabric.window())] == [NODE_3]


def test_a_mark_that_stands_tells_of_an_old_burst() -> None:
    """Nothing has reset it since: it says nothing about now."""
    fabric = marked()
    fabric.set("queue_peak_bytes", leaf_port(3), 4e6, slice(0, None))
    assert detect(fabric.window()) == []


def test_a_watermark_is_evidence_as_fine_as_it_was_read() -> None:
    fabric = marked(1e3, 4e6, 5e6, 4.5e6)
    event = Event(
        kind="queue_burst",
        time_ns=START_NS + 22 * STEP_NS,
        labels={"host": "leaf-0", "device": "leaf-0", "port": "4"},
        attributes={"queue": "3", "peak_bytes": "5000000", "milliseconds": "10000"},
    )
    odd = Event(
        kind="queue_burst",
        time_ns=START_NS + 22 * STEP_NS,
        labels=event.labels,
        attributes={"peak_bytes": "much", "milliseconds": "nan"},
    )
    fabric.events = [event, odd]
    (found,) = detect(fabric.window())
    (told,) = [each for each in found.evidence if each.metric.endswith("queue_peak_bytes")]
    assert "5.0 MB stood in the queue of leaf-0 port 4 at some moment within 10 s" in told.text
    assert (told.value, told.unit) == (5e6, "bytes")


def sampled(talkers: str, **attributes: str) -> Event:
    return Event(
        kind="port_talkers",
        time_ns=START_NS + 22 * STEP_NS,
        labels={"host": "leaf-0", "device": "leaf-0", "port": "4"},
        attributes={"talkers": talkers, **attributes},
    )


def test_who_sends_to_the_port_is_shown_beside_and_changes_nothing() -> None:
    fabric = marked(1e3, 4e6, 5e6, 4.5e6)
    (before,) = detect(fabric.window())
    pairs = "192.0.2.2>192.0.2.9=41 192.0.2.8>192.0.2.9=39"
    fabric.events = [sampled(pairs, hosts="192.0.2.2=storage-1")]
    (found,) = detect(fabric.window())
    (told,) = [each for each in found.evidence if each not in before.evidence]
    assert told.text == (
        "by sampled packets, what leaf-0 port 4 sends comes from "
        "storage-1 (192.0.2.2) 41 %, 192.0.2.8 39 %"
    )
    assert (found.culprit, found.strength) == (before.culprit, before.strength)


@pytest.mark.parametrize("talkers", ["", "nonsense", "a>b=x", "x" * 99 + ">b=1", ">=5"])
def test_talkers_that_are_none_show_nothing(talkers: str) -> None:
    fabric = marked(1e3, 4e6, 5e6, 4.5e6)
    (before,) = detect(fabric.window())
    fabric.events = [sampled(talkers)]
    assert [each.evidence for each in detect(fabric.window())] == [before.evidence]


def test_who_sends_is_no_evidence_by_itself() -> None:
    fabric = SmallFabric()
    fabric.events = [sampled("192.0.2.2>192.0.2.9=99")]
    window = fabric.window()
    assert detect(window) == []
    assert congestion.detect(window) == []


def test_one_weak_reading_is_not_enough_and_one_whole_clear_one_is() -> None:
    for load, count in ((0.12, 0), (0.4, 1)):
        fabric = bursts(load, slice(23, None))
        fabric.carry(leaf_port(3), host(3), SENT + 0.05 * LINE / 8, slice(22, 23))
        assert len(detect(fabric.window())) == count


def test_what_began_within_the_only_cell_may_be_anything() -> None:
    window = bursts(0.4, slice(23, None)).window()
    assert detect(window) == []
    assert congestion.detect(window) == []


def test_traffic_of_a_neighbour_without_a_queue_is_no_fault() -> None:
    fabric = SmallFabric()
    fabric.carry(leaf_port(7), host(7), 0.2 * LINE / 8, LATE)
    assert detect(fabric.window()) == []


def test_a_nic_that_only_sends_more_is_left_alone() -> None:
    fabric = SmallFabric()
    fabric.carry(host(3), leaf_port(3), SENT + 0.4 * LINE / 8, LATE)
    fabric.set("receive_ecn_marked_packets_total", host(3), 2e5, LATE)
    assert detect(fabric.window()) == []


def test_bursts_that_a_sampler_saw_are_evidence_and_no_more() -> None:
    labels = {"host": "node3", "device": "mlx5_0", "port": "1"}
    event = Event(
        kind="burst",
        time_ns=START_NS + 21 * STEP_NS + NS,
        labels=labels,
        message="",
        attributes={"direction": "receive"},
    )
    fabric = SmallFabric()
    fabric.events = [event]
    assert detect(fabric.window()) == []
    fabric = bursts(0.4)
    fabric.events = [event]
    (found,) = detect(fabric.window())
    assert found.evidence[-1].value == 1.0


def test_bursts_do_not_depend_on_the_order_of_ports() -> None:
    check_order_does_not_matter(detect, bursts(0.4))


def test_garbage_is_no_burst() -> None:
    names = ("receive_ecn_marked_packets_total", "cnp_sent_total", "transmit_wait_ticks_total")
    check_garbage_accuses_nobody(detect, (*names, "queue_peak_bytes"))
