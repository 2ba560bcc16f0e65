"""Simulated switches tell of the packets that they drop, and the source `sflow` hears them.

A port that drops where it should pause: the verdict names it by its counters, and shows beside it
whose packets its switch says that it dropped.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collector.contract.model import Event, Reading, Sample
from collector.contract.units import NS
from collector.contract.verdict import Verdict
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.interfaces.sflow import nic_address
from simulator.jobs.model import JobSpec
from simulator.readings.batches import Reporter
from simulator.scenario import Scenario, plan
from simulator.score.evaluate import Incidents
from simulator.score.run import CLUSTER_NAME
from simulator.score.simulated_service import SimulatedService
from simulator.score.sources.readers import SflowDelivery
from simulator.topology.build import ClusterSpec
from simulator.topology.model import Fabric

SEED = 11
QUIET_SECONDS = 40.0
JOB = JobSpec(
    name="train", hosts=(0, 1, 2), tensor=2, compute_seconds=0.5, gradient_bytes=8_000_000_000
)
CLUSTER = ClusterSpec(
    hosts=4, gpus_per_host=2, nics_per_host=2, fabric=Fabric.ROCE, speed="400GbE", switch_ports=4
)


def lossy() -> Simulation:
    """One port, and bursts that fill its queue from the 40th second on."""
    scenario = Scenario(cluster=CLUSTER, jobs=(JOB,), seed=SEED, tick_seconds=5.0)
    cluster = Simulation(scenario).cluster
    random = np.random.default_rng(SEED)
    injection = plan(discover()["pfc_misconfigured"], cluster, random, QUIET_SECONDS)
    return Simulation(replace(scenario, injections=(injection,), seconds=QUIET_SECONDS + 60.0))


async def watch(simulation: Simulation, service: SimulatedService) -> list[Verdict]:
    """The verdicts that stand once notices are shown: agents on hosts, switches over SNMP."""
    start_ns = simulation.scenario.start_unix_ns
    reporter = Reporter(
        simulation.topology, cluster=CLUSTER_NAME, start_unix_ns=start_ns, seed=SEED, poller=None
    )
    source = SflowDelivery(simulation)
    judge = Incidents(service)
    async with service.running():
        for snapshot in simulation.run():
            now_ns = start_ns + round(snapshot.time_s * NS)
            batches, _ = source.deliver(snapshot)
            await service.work(now_ns / NS, [*reporter.batches(snapshot), *batches], [])
            found = list(judge.evaluate(now_ns))
            if any(texts_of(one) for one in found):
                return found
    return found


def texts_of(verdict: Verdict) -> list[str]:
    """What it shows of notices."""
    return [each.text for each in verdict.evidence if "told of" in each.text]


def test_a_verdict_of_loss_shows_whose_packets_the_port_dropped(tmp_path: Path) -> None:
    simulation = lossy()
    (truth,) = simulation.truths()
    service = SimulatedService(tmp_path, simulation.scenario.start_unix_ns / NS)
    (found,) = asyncio.run(watch(simulation, service))
    assert found.culprit.switch_port == truth.culprits[0].switch_port
    (shown,) = texts_of(found)
    assert "(no_buffer_space; trap tail_drop; queue 3): from " in shown
    assert f"{truth.culprits[0].host} of job train (" in shown


def told(simulation: Simulation) -> Iterator[tuple[list[Reading], int]]:
    """What the source reads at each snapshot, and how many packets were dropped meanwhile."""
    source = SflowDelivery(simulation)
    before = np.zeros(simulation.topology.links, dtype=np.int64)
    for snapshot in simulation.run():
        new = int((snapshot.links.dropped_packets - before).sum())
        before = snapshot.links.dropped_packets.copy()
        yield source.hear(snapshot), new


def test_notices_and_what_is_withheld_add_up_to_what_was_dropped() -> None:
    """The source counts what was withheld from a switch's first notice on."""
    simulation = lossy()
    (truth,) = simulation.truths()
    places = {(one.switch, one.switch_port) for one in truth.culprits}
    dropped = 0
    counts: Counter[str] = Counter()
    events: list[Event] = []
    for readings, new in told(simulation):
        dropped += new
        counts = Counter()
        for each in readings:
            if isinstance(each, Sample):
                counts[each.series.metric] += round(each.value)
        events += [each for each in readings if isinstance(each, Event)]
    assert not counts["fabric_switch_flow_left_out_total"]
    notices = counts["fabric_switch_drop_notices_total"]
    withheld = counts["fabric_switch_drop_notices_withheld_total"]
    assert notices == sum(int(each.attributes["count"]) for each in events)
    assert 0 < notices < dropped
    assert 0.9 * dropped < notices + withheld <= dropped
    here = [each for each in events if (each.labels["host"], each.labels["port"]) in places]
    pairs = {pair.partition("=")[0] for each in here for pair in each.attributes["talkers"].split()}
    assert len({pair.partition(">")[2] for pair in pairs}) == 1, "one port, one receiver"
    assert all(each.attributes["details"].startswith("trap:tail_drop=") for each in events)


def test_a_cable_that_swallows_packets_tells_nothing() -> None:
    scenario = Scenario(cluster=CLUSTER, jobs=(JOB,), seed=SEED, tick_seconds=5.0)
    cluster = Simulation(scenario).cluster
    random = np.random.default_rng(SEED)
    injection = plan(discover()["bad_cable"], cluster, random, QUIET_SECONDS)
    simulation = Simulation(
        replace(scenario, injections=(injection,), seconds=QUIET_SECONDS + 20.0)
    )
    assert not any(isinstance(each, Event) for readings, _ in told(simulation) for each in readings)


@pytest.mark.parametrize(("nic", "address"), [(0, "198.18.0.1"), (255, "198.18.1.0")])
def test_nics_have_addresses(nic: int, address: str) -> None:
    assert nic_address(nic) == address
