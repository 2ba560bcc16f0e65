"""The poller of fast mode by itself: when it polls, how its batches are numbered and divided.

`tests/conformance/test_simulated_poller.py` compares it with the production sources.
"""

import copy
from dataclasses import replace

import numpy as np
import pytest

from collector.contract.catalog import load_catalog
from collector.contract.units import NS_PER_MS
from collector.contract.wire import Batch, decode_batch
from simulator.interfaces.switch_tables import Flavour
from simulator.readings import batches
from simulator.readings.batches import Reporter
from simulator.readings.poller import PollerSpec
from simulator.snapshot import Snapshot
from simulator.topology.model import Fabric, Topology
from tests.worlds.simulated import START_UNIX_NS, make_snapshot, make_topology

each_fabric = pytest.mark.parametrize("fabric", list(Fabric))


def polled(reporter: Reporter, snapshot: Snapshot, name: str = "poller-0") -> list[Batch]:
    """The batches of the poller; those of hosts come before them."""
    found = [decode_batch(body) for body in reporter.batches(snapshot)]
    own = [batch for batch in found if batch.agent == name]
    assert found[len(found) - len(own) :] == own
    return own


def make_reporter(topology: Topology, spec: PollerSpec | None = None, seed: int = 7) -> Reporter:
    return Reporter(topology, "lab", START_UNIX_NS, seed=seed, poller=spec or PollerSpec())


def values_of(found: list[Batch], metric: str) -> list[float]:
    values = []
    for batch in found:
        numbers = np.frombuffer(batch.value, "<f8").tolist()
        rows = zip(batch.series_rows(), numbers, strict=True)
        values += [value for (name, _), value in rows if name == metric]
    return values


def test_switches_are_polled_every_ten_seconds_by_a_true_clock() -> None:
    topology = make_topology(nics=2)
    reporter = make_reporter(topology)
    snapshot = make_snapshot(topology, clock_offset_s=np.array([5.0, -5.0]))
    times = []
    for tick in range(25):
        for batch in polled(reporter, replace(snapshot, time_s=60.0 + tick * 1.0)):
            assert set(np.frombuffer(batch.time_ms, "<i8").tolist()) == {batch.sent_ms}
            times.append(batch.sent_ms - START_UNIX_NS // NS_PER_MS)
    assert times == [60_000, 70_000, 80_000]


def test_the_poller_has_a_name_a_pace_and_a_numbering_of_its_own() -> None:
    topology = make_topology(nics=2)
    spec = PollerSpec(name="switch-watch", interval_s=2.0, flavour=Flavour.JUNIPER)
    reporter, snapshot = make_reporter(topology, spec), make_snapshot(topology)
    found = [
        batch
        for tick in range(5)
        for batch in polled(reporter, replace(snapshot, time_s=60.0 + tick), "switch-watch")
    ]
    assert [batch.sequence for batch in found] == [0, 1, 2]
    assert {batch.boot for batch in found} != {""}
    assert found[0].common == {"host": "switch-watch", "cluster": "lab"}
    assert values_of(found, "fabric_port_queue_depth_bytes") != []


def test_without_a_poller_nobody_tells_of_switches() -> None:
    topology = make_topology(nics=2)
    reporter = Reporter(topology, "lab", START_UNIX_NS, seed=7, poller=None)
    assert polled(reporter, make_snapshot(topology)) == []


@each_fabric
def test_the_same_seed_gives_the_same_bytes(fabric: Fabric) -> None:
    topology = make_topology(fabric, nics=2)
    snapshot = make_snapshot(topology)
    first, second, other = (
        list(make_reporter(topology, seed=seed).batches(copy.deepcopy(snapshot)))
        for seed in (7, 7, 8)
    )
    assert first == second
    assert decode_batch(first[-1]).boot != decode_batch(other[-1]).boot


@each_fabric
def test_more_than_a_batch_holds_is_divided_by_switches(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = make_topology(fabric, nics=4)
    snapshot = make_snapshot(topology)
    (whole,) = polled(make_reporter(topology), snapshot)
    monkeypatch.setattr(batches, "BATCH_SAMPLES_MAX", 600)
    parts = polled(make_reporter(topology), snapshot)
    assert [batch.sequence for batch in parts] == list(range(len(parts)))
    assert len(parts) > 1
    assert all(batch.sample_count <= 600 for batch in parts)
    hosts = [{labels["host"] for _, labels in batch.series_rows()} for batch in parts]
    assert sum(map(len, hosts)) == len(topology.switches)
    rows = [row for batch in parts for row in batch.series_rows()]
    assert sorted(rows, key=repr) == sorted(whole.series_rows(), key=repr)


def test_a_table_stays_the_same_until_a_link_changes() -> None:
    topology = make_topology(Fabric.INFINIBAND, nics=2)
    reporter, first = make_reporter(topology, PollerSpec(interval_s=0.0)), make_snapshot(topology)
    down = replace(first, world=copy.deepcopy(first.world))
    down.world.link_up[topology.up(0)] = False
    digests = [
        polled(reporter, snapshot)[0].table_digest()
        for snapshot in (first, first, down, down, first)
    ]
    assert digests[0] == digests[1] == digests[4] != digests[2] == digests[3]


@each_fabric
@pytest.mark.parametrize("flavour", list(Flavour))
def test_every_metric_and_label_is_in_the_catalog(fabric: Fabric, flavour: Flavour) -> None:
    topology, catalog = make_topology(fabric, nics=2), load_catalog()
    (batch,) = polled(make_reporter(topology, PollerSpec(flavour=flavour)), make_snapshot(topology))
    for metric, labels in batch.series_rows():
        if metric != "fabric_agent_reading_missing":
            assert set(labels) <= catalog.labels_of(metric), (metric, labels)
