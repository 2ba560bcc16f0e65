"""Counters of simulated switches, and their OIDs."""

from dataclasses import replace

import numpy as np
import pytest

from collector.contract.errors import SettingsError
from simulator.interfaces import ibsim
from simulator.interfaces.snmpsim_variation import as_shown
from simulator.interfaces.switch_tables import (
    Flavour,
    Ports,
    Reading,
    Readings,
    interface_index,
    switch_rows,
)
from simulator.network.optics import received_milliwatts
from simulator.snapshot import Snapshot
from simulator.topology.build import ClusterSpec, build
from simulator.topology.model import Fabric, Topology
from tests.worlds.simulated import make_snapshot

# (sent, received) of priority 3; the rest of the OID is the ifIndex and what follows it.
PAUSES = {
    Flavour.SONIC: ("1.3.6.1.4.1.9.9.813.1.2.1.2.{}.3", "1.3.6.1.4.1.9.9.813.1.2.1.3.{}.3"),
    Flavour.ARISTA: ("1.3.6.1.4.1.30065.3.11.1.1.1.3.{}.3", "1.3.6.1.4.1.30065.3.11.1.1.1.4.{}.3"),
    Flavour.CUMULUS: ("1.3.6.1.4.1.40310.2.2.3.1.11.{}", "1.3.6.1.4.1.40310.2.2.3.1.10.{}"),
}
# (sent packets, dropped packets) of queue 3.
QUEUES = {
    Flavour.SONIC: (
        "1.3.6.1.4.1.9.9.580.1.5.5.1.4.{}.2.4.1",
        "1.3.6.1.4.1.9.9.580.1.5.5.1.4.{}.2.4.5",
    ),
    Flavour.ARISTA: (
        "1.3.6.1.4.1.30065.3.6.1.2.1.4.{}.3.0",
        "1.3.6.1.4.1.30065.3.6.1.2.1.6.{}.3.0",
    ),
    Flavour.CUMULUS: ("1.3.6.1.4.1.40310.2.2.4.1.11.{}", "1.3.6.1.4.1.40310.2.2.4.1.12.{}"),
    Flavour.JUNIPER: (
        "1.3.6.1.4.1.2636.3.15.4.1.7.{}.3",
        "1.3.6.1.4.1.2636.3.15.4.1.11.{}.3",
    ),
}
JUNIPER_DEPTH, JUNIPER_PEAK = (
    "1.3.6.1.4.1.2636.3.15.4.1.58.{}.3",
    "1.3.6.1.4.1.2636.3.15.4.1.59.{}.3",
)


def cluster(fabric: Fabric = Fabric.ROCE) -> Topology:
    speed = "400GbE" if fabric is Fabric.ROCE else "NDR"
    return build(
        ClusterSpec(
            hosts=4, gpus_per_host=2, nics_per_host=2, fabric=fabric, speed=speed, switch_ports=4
        )
    )


def answers(snapshot: Snapshot, switch: int, flavour: Flavour) -> dict[str, int]:
    """All numbers that a switch would answer with now, by OID."""
    readings = Readings(snapshot.topology)
    flat = readings.update(snapshot).ravel()
    found = {}
    for row in switch_rows(snapshot.topology, readings.ports, switch, flavour):
        number = row.value if row.slot is None else int(flat[row.slot])
        if isinstance(number, int):
            found[".".join(map(str, row.oid))] = as_shown(str(row.syntax.value), number)
    return found


@pytest.mark.parametrize("flavour", list(Flavour))
def test_every_flavour_shows_pauses_and_queues_under_its_own_names(flavour: Flavour) -> None:
    snapshot = make_snapshot(cluster())
    topology, links = snapshot.topology, snapshot.links
    port = topology.down(3)
    index = interface_index(flavour, int(topology.port[port]))
    values = answers(snapshot, int(topology.source_switch[port]), flavour)
    sent, dropped = (values[oid.format(index)] for oid in QUEUES[flavour])
    assert (sent, dropped) == (links.packets[port], links.dropped_packets[port])
    if flavour is Flavour.JUNIPER:
        assert values[JUNIPER_DEPTH.format(index)] == links.queue_bytes[port]
        assert values[JUNIPER_PEAK.format(index)] == links.queue_peak_bytes[port]
        return
    stopped, was_stopped = (values[oid.format(index)] for oid in PAUSES[flavour])
    assert stopped == links.pause_frames[topology.up(3)]
    assert was_stopped == links.pause_frames[port]


@pytest.mark.parametrize("flavour", list(Flavour))
def test_rows_come_in_the_order_of_walks_and_none_twice(flavour: Flavour) -> None:
    topology = cluster()
    oids = [row.oid for row in switch_rows(topology, Ports(topology), 0, flavour)]
    assert oids == sorted(set(oids))


def test_other_priorities_count_nothing() -> None:
    snapshot = make_snapshot(cluster())
    values = answers(snapshot, 0, Flavour.SONIC)
    by_priority = {
        oid.rpartition(".")[2]: count
        for oid, count in values.items()
        if oid.startswith("1.3.6.1.4.1.9.9.813.1.2.1.2.1.")
    }
    assert sorted(by_priority) == list("01234567")
    assert [priority for priority, count in by_priority.items() if count] == ["3"]


def test_a_counter_never_falls_when_chance_takes_more_than_was_sent() -> None:
    snapshot = make_snapshot(cluster())
    readings = Readings(snapshot.topology)
    before = readings.update(snapshot)[Reading.RECEIVED_PACKETS].copy()
    links = replace(snapshot.links, lost_packets=snapshot.links.lost_packets + 1)
    after = readings.update(replace(snapshot, links=links))[Reading.RECEIVED_PACKETS]
    assert (after == before).all()


def test_gauges_may_fall() -> None:
    snapshot = make_snapshot(cluster())
    readings = Readings(snapshot.topology)
    assert readings.update(snapshot)[Reading.QUEUE_BYTES].any()
    empty = replace(snapshot.links, queue_bytes=np.zeros_like(snapshot.links.queue_bytes))
    assert not readings.update(replace(snapshot, links=empty))[Reading.QUEUE_BYTES].any()


def test_speed_says_the_lanes_that_are_left_and_old_gauges_stop_at_their_top() -> None:
    snapshot = make_snapshot(cluster())
    topology = snapshot.topology
    snapshot.world.link_speed_share[topology.down(0)] = 0.5
    index = interface_index(Flavour.ARISTA, int(topology.port[topology.down(0)]))
    values = answers(snapshot, int(topology.source_switch[topology.down(0)]), Flavour.ARISTA)
    assert values[f"1.3.6.1.2.1.31.1.1.1.15.{index}"] == 200_000
    assert values[f"1.3.6.1.2.1.2.2.1.5.{index}"] == 2**32 - 1


def test_less_light_arrives_where_more_bits_flip() -> None:
    rates = np.array([1e-12, 1e-9, 1e-6, 1e-4])
    power = received_milliwatts(rates)
    assert (np.diff(power) < 0).all()
    assert power[1] == pytest.approx(0.8)
    # Q is 6.00 at 1e-9 and 3.72 at 1e-4: -2.1 dB.
    assert 10 * np.log10(power[3] / power[1]) == pytest.approx(-2.07, abs=0.01)


def test_a_flap_is_two_changes_of_carrier_and_half_a_flap_is_one() -> None:
    snapshot = make_snapshot(cluster())
    topology = snapshot.topology
    downs = np.zeros_like(snapshot.links.downs)
    downs[topology.down(0)] = downs[topology.down(1)] = 3
    snapshot.world.link_up[topology.down(1)] = False
    readings = Readings(topology)
    values = readings.update(replace(snapshot, links=replace(snapshot.links, downs=downs)))
    changes = dict(zip(readings.ports.out, values[Reading.CARRIER_CHANGES], strict=True))
    assert changes[topology.down(0)] == 6
    assert changes[topology.down(1)] == 5


def test_a_fabric_too_large_for_ibsim_is_refused_with_its_own_numbers() -> None:
    topology = build(ClusterSpec(hosts=256))
    with pytest.raises(SettingsError, match="2048 that ibsim holds"):
        ibsim.topology_text(topology)


def test_a_fabric_faster_than_ibsim_knows_claims_hdr() -> None:
    text = ibsim.topology_text(cluster(Fabric.INFINIBAND))
    assert "4xHDR" in text
    assert "NDR" not in text


def test_counters_at_their_end_are_not_set_again() -> None:
    snapshot = make_snapshot(cluster(Fabric.INFINIBAND))
    console = ibsim.Console(snapshot.topology)
    full = replace(snapshot.links, downs=np.full_like(snapshot.links.downs, 300))
    first = console.commands(replace(snapshot, links=full, host_links=full))
    assert sum("LinkDownedCounter=255" in command for command in first) > 0
    fuller = replace(full, downs=full.downs + 1)
    assert console.commands(replace(snapshot, links=fuller, host_links=fuller)) == []
