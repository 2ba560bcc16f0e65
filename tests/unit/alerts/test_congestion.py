"""Full ports: into NICs by a neighbour, between switches by a bad spread."""

import msgspec
import numpy as np

from alerts.detectors.congestion import detect
from alerts.judge.verdict import judge
from alerts.window.model import Hosts, Readings, Window
from collector.contract.model import Event
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
FULL = 0.97 * LINE / 8


def steady_neighbour() -> SmallFabric:
    """Foreign traffic fills node 3's port, and its packets arrive marked."""
    fabric = SmallFabric()
    fabric.carry(leaf_port(3), host(3), FULL, LATE)
    fabric.set("receive_ecn_marked_packets_total", host(3), FULL / PACKET_BYTES / 50, LATE)
    return fabric


def polarised() -> SmallFabric:
    """Four NICs' flows on one uplink of leaf-0, that were on four before."""
    fabric = SmallFabric()
    for port, (spine, end) in zip(
        "5678",
        (("spine-0", "1"), ("spine-0", "2"), ("spine-1", "1"), ("spine-1", "2")),
        strict=True,
    ):
        fabric.carry(("leaf-0", port), (spine, end), SENT, slice(None))
        fabric.carry(("leaf-0", port), (spine, end), 0.0, LATE)
    fabric.carry(("leaf-0", "7"), ("spine-1", "1"), 0.8 * LINE / 8, LATE)
    for number in range(8):
        fabric.carry(host(number), leaf_port(number), 0.2 * LINE / 8, LATE)
        fabric.set("cnp_handled_total", host(number), 8000.0 if number < 4 else 0.0, LATE)
    return fabric


def test_a_neighbour_that_fills_a_nic_s_port_is_congestion_there() -> None:
    (found,) = detect(steady_neighbour().window())
    assert (found.cause, found.reason) == (Cause.CONGESTION, Reason.NEIGHBOUR)
    assert found.culprit == NODE_3
    assert [victim.rank for victim in found.victims] == [3]
    assert len(found.evidence) == 2


def test_a_full_port_is_found_at_the_first_reading() -> None:
    fabric = SmallFabric()
    fabric.carry(leaf_port(3), host(3), FULL, slice(23, None))
    fabric.set("receive_ecn_marked_packets_total", host(3), 3e5, slice(23, None))
    assert [found.culprit for found in detect(fabric.window())] == [NODE_3]


def test_without_a_queue_much_traffic_is_no_trouble() -> None:
    fabric = SmallFabric()
    fabric.carry(leaf_port(3), host(3), FULL, LATE)
    assert detect(fabric.window()) == []


def test_a_switch_that_holds_its_senders_back_shows_the_queue() -> None:
    fabric = SmallFabric()
    fabric.carry(leaf_port(3), host(3), FULL, LATE)
    fabric.set("transmit_wait_seconds_total", ("spine-0", "1"), 0.4, LATE)
    (found,) = detect(fabric.window())
    assert found.culprit == NODE_3
    assert "spine-0 port 1" in found.evidence[-1].text


def test_a_neighbour_who_stays_longer_than_the_window_is_still_one() -> None:
    fabric = SmallFabric()
    fabric.carry(leaf_port(3), host(3), FULL, slice(None))
    fabric.set("receive_ecn_marked_packets_total", host(3), FULL / PACKET_BYTES / 50)
    assert [found.culprit for found in detect(fabric.window())] == [NODE_3]


def test_a_nic_that_loses_packets_is_left_to_lossy_link() -> None:
    fabric = steady_neighbour()
    fabric.set("receive_out_of_sequence_total", host(3), 1e4, LATE)
    assert detect(fabric.window()) == []


def test_a_ring_that_is_marked_as_always_is_healthy() -> None:
    fabric = SmallFabric()
    for number in range(8):
        fabric.set("receive_ecn_marked_packets_total", host(number), 5e4)
    assert detect(fabric.window()) == []


def thinned(foreign: float, marks: float) -> SmallFabric:
    """Node 3's ring has marks on every fiftieth packet as a rule; then others send as well."""
    fabric, own = SmallFabric(), 0.13 * LINE / 8
    for number in range(8):
        fabric.carry(host(number), leaf_port(number), own, slice(None))
        fabric.carry(leaf_port(number), host(number), own, slice(None))
    fabric.set("receive_ecn_marked_packets_total", host(3), own / PACKET_BYTES / 50)
    received = own + foreign * LINE / 8
    fabric.carry(leaf_port(3), host(3), received, LATE)
    fabric.set("receive_ecn_marked_packets_total", host(3), received / PACKET_BYTES * marks, LATE)
    return fabric


def test_marks_of_a_ring_are_thinned_out_by_the_packets_of_others() -> None:
    """`storage_reads` of seed 41301: 2.1 % of packets before, 1.3 % of six times as many now."""
    (found,) = detect(thinned(foreign=0.7, marks=0.013).window())
    assert found.culprit == NODE_3


def test_as_many_marks_as_ever_are_no_queue_however_many_packets_come() -> None:
    assert detect(thinned(foreign=0.7, marks=0.02 * 0.13 / 0.83).window()) == []
    assert detect(thinned(foreign=0.3, marks=0.02).window()) == [], "most may be its own"


def test_flows_that_moved_onto_one_uplink_are_routing() -> None:
    (found,) = detect(polarised().window())
    assert (found.cause, found.reason) == (Cause.CONGESTION, Reason.ROUTING)
    assert found.culprit == Culprit(switch="leaf-0", switch_port="7")
    assert {victim.rank for victim in found.victims} == {0, 1, 2, 3}


def test_an_uplink_that_was_always_that_full_is_no_news() -> None:
    fabric = SmallFabric()
    fabric.carry(("leaf-0", "7"), ("spine-1", "1"), 0.8 * LINE / 8, slice(None))
    for number in range(8):
        fabric.carry(host(number), leaf_port(number), 0.2 * LINE / 8, slice(None))
    assert detect(fabric.window()) == []


def test_a_job_that_goes_on_after_standing_still_overloads_nothing() -> None:
    fabric = polarised()
    fabric.carry(("leaf-0", "7"), ("spine-1", "1"), 0.8 * LINE / 8, slice(None))
    stood = slice(2, 16)
    fabric.carry(("leaf-0", "7"), ("spine-1", "1"), 0.24 * LINE / 8, stood)
    for number in range(8):
        fabric.carry(host(number), leaf_port(number), 0.2 * LINE / 8, slice(None))
        fabric.carry(host(number), leaf_port(number), 0.06 * LINE / 8, stood)
    assert detect(fabric.window()) == []


def told(kind: str, port: str, **attributes: str) -> Event:
    return Event(
        kind=kind,
        time_ns=START_NS + 22 * STEP_NS,
        labels={"host": "leaf-0", "device": "leaf-0", "port": port},
        attributes=attributes,
    )


def test_flows_that_fill_an_uplink_and_its_drops_are_evidence_and_no_more() -> None:
    fabric = polarised()
    (before,) = detect(fabric.window())
    fabric.events = [
        told("port_talkers", "7", talkers="192.0.2.1>192.0.2.9=60", hosts="192.0.2.1=node0"),
        told("port_talkers", "8", talkers="192.0.2.8>192.0.2.9=99"),  # of another port
        told(
            "port_drops",
            "7",
            reasons="no_buffer_space=30 red=10 evil=9",
            queues="3=40",
            details="trap:tail_drop=12 trap:early_drop=3 trap:<b>=99",
            talkers="192.0.2.1>192.0.2.9=75",
            hosts="192.0.2.1=node0",
        ),
    ]
    (found,) = detect(fabric.window())
    drops, talkers = [each for each in found.evidence if each not in before.evidence]
    assert drops.text == (
        "leaf-0 told of 40 packets that its port 7 dropped (no_buffer_space, red; trap tail_drop; "
        "queue 3): from node0 of job ring (192.0.2.1) to 192.0.2.9 75 %"
    )
    assert (drops.value, drops.unit) == (40.0, "packets")
    assert talkers.text == (
        "by sampled packets, what leaf-0 port 7 sends comes from node0 of job ring (192.0.2.1) 60 %"
    )
    assert (found.culprit, found.strength) == (before.culprit, before.strength)


def test_drops_that_a_switch_tells_accuse_no_one() -> None:
    fabric = SmallFabric()
    fabric.events = [told("port_drops", "4", reasons="no_buffer_space=99999")]
    assert detect(fabric.window()) == []


def test_more_traffic_on_an_uplink_is_a_neighbour() -> None:
    fabric = polarised()
    fabric.carry(("leaf-0", "5"), ("spine-0", "1"), 2 * SENT, LATE)
    fabric.carry(("leaf-0", "6"), ("spine-0", "2"), 0.35 * LINE / 8, LATE)
    fabric.carry(("leaf-0", "7"), ("spine-1", "1"), 0.98 * LINE / 8, LATE)
    fabric.carry(("leaf-0", "8"), ("spine-1", "2"), 0.3 * LINE / 8, LATE)
    (found,) = detect(fabric.window())
    assert found.reason is Reason.NEIGHBOUR


def test_uplinks_that_are_all_full_are_not_polarised() -> None:
    fabric = polarised()
    for port, end in (("5", ("spine-0", "1")), ("6", ("spine-0", "2")), ("8", ("spine-1", "2"))):
        fabric.carry(("leaf-0", port), end, 0.7 * LINE / 8, LATE)
    assert detect(fabric.window()) == []


def test_an_uplink_that_its_far_end_holds_back_is_not_the_root() -> None:
    fabric = polarised()
    fabric.set("transmit_wait_seconds_total", ("leaf-0", "7"), 0.5, LATE)
    assert detect(fabric.window()) == []


def test_bytes_that_are_sent_again_are_no_demand() -> None:
    fabric = polarised()
    fabric.set("sequence_naks_total", host(2), 5000.0, LATE)
    assert detect(fabric.window()) == []


def test_congestion_does_not_depend_on_the_order_of_ports() -> None:
    check_order_does_not_matter(detect, steady_neighbour())
    check_order_does_not_matter(detect, polarised())


def test_garbage_is_no_congestion() -> None:
    names = ("receive_ecn_marked_packets_total", "cnp_handled_total", "transmit_wait_seconds_total")
    check_garbage_accuses_nobody(detect, names)


# Storage over the NIC of collectives --------------------------------------------------------------

STORAGE = "filer1:/checkpoints"
FOREIGN = FULL - SENT


def reading(fabric: SmallFabric, rate: float, cells: slice = LATE, kind: str = "read") -> Window:
    """The window, in which node 3 moves so many bytes a second between itself and a filer."""
    values = np.zeros((8, fabric.grid.cells))
    values[3, cells] = rate
    name = {"read": "mount_read_bytes_total", "write": "mount_written_bytes_total"}[kind]
    hosts = Hosts(
        grid=fabric.grid,
        host=[f"node{number}" for number in range(8)],
        readings={
            f"{name}:{STORAGE}": Readings(
                metric=f"fabric_{name}", row=np.arange(8), values=values, label=STORAGE
            )
        },
        seen_ns=np.full(8, fabric.grid.end_ns, dtype=np.int64),
    )
    return msgspec.structs.replace(fabric.window(), hosts=hosts)


def test_a_host_that_reads_what_fills_its_port_is_told_with_mount_and_server() -> None:
    (found,) = detect(reading(steady_neighbour(), FOREIGN))
    assert (found.cause, found.reason) == (Cause.CONGESTION, Reason.STORAGE_TRAFFIC)
    assert found.culprit == NODE_3
    told = found.evidence[-1]
    assert (told.labels["host"], told.labels["storage"]) == ("node3", STORAGE)
    assert "(server filer1)" in told.text
    (verdict,) = judge(reading(steady_neighbour(), FOREIGN))
    assert "reads from its storage" in verdict.summary
    assert "node3" in verdict.action


def test_a_neighbour_is_a_neighbour_beside_a_host_that_reads_little() -> None:
    (found,) = detect(reading(steady_neighbour(), 0.3 * FOREIGN))
    assert found.reason is Reason.NEIGHBOUR
    assert STORAGE in found.evidence[-1].text, "worth a word, and no reason"
    (found,) = detect(reading(steady_neighbour(), 0.01 * LINE / 8))
    assert len(found.evidence) == 2


def test_reads_that_were_there_before_the_port_was_full_go_another_way() -> None:
    (found,) = detect(reading(steady_neighbour(), FOREIGN, slice(None)))
    assert found.reason is Reason.NEIGHBOUR


def test_more_than_the_port_took_in_went_another_way_too() -> None:
    (found,) = detect(reading(steady_neighbour(), 2.0 * FOREIGN))
    assert found.reason is Reason.NEIGHBOUR


def test_what_a_host_writes_does_not_come_in() -> None:
    (found,) = detect(reading(steady_neighbour(), FOREIGN, kind="write"))
    assert found.reason is Reason.NEIGHBOUR


def test_reads_without_a_queue_are_no_trouble() -> None:
    fabric = SmallFabric()
    fabric.carry(leaf_port(3), host(3), FULL, LATE)
    assert detect(reading(fabric, FOREIGN)) == []


def test_an_uplink_names_the_storage_behind_it_and_accuses_nobody_for_it() -> None:
    (found,) = detect(reading(polarised(), 0.4 * LINE / 8, kind="write"))
    assert found.reason is Reason.ROUTING
    assert found.culprit == Culprit(switch="leaf-0", switch_port="7")
    assert f"node3 writes 20.0 GB/s to {STORAGE}" in found.evidence[-1].text
