"""A cluster whose switches are seen through one source alone: what it shows is found.

Small clusters and short runs of what `fabricscope score --sources` plays in full.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulator.engine import Simulation
from simulator.faults import discover
from simulator.jobs.model import JobSpec
from simulator.scenario import Scenario, plan
from simulator.score.accuracy.costs import Harm, HarmMeter
from simulator.score.marks import Run
from simulator.score.sources.play import Outcome, Trial, fabric_faults, play
from simulator.score.sources.readers import SOURCES
from simulator.score.sources.table import state, to_markdown
from simulator.score.sources.visible import SHOWS_IN
from simulator.topology.build import ClusterSpec
from simulator.topology.model import Fabric

QUIET_SECONDS = 40.0
SEED = 11
SPEEDS = {Fabric.ROCE: "400GbE", Fabric.INFINIBAND: "NDR"}
JOB = JobSpec(name="train", hosts=(0, 1, 2, 3), compute_seconds=0.5, gradient_bytes=2_000_000_000)
BUSY = replace(JOB, tensor=2, gradient_bytes=8_000_000_000)
"""It reduces its gradient between hosts, so that it waits for a slow receiver."""


def healthy(source: str, job: JobSpec = JOB) -> Scenario:
    """Four hosts whose leaves and spines are all that is seen."""
    fabric = SOURCES[source].fabric
    cluster = ClusterSpec(
        hosts=4,
        gpus_per_host=2,
        nics_per_host=2,
        fabric=fabric,
        speed=SPEEDS[fabric],
        switch_ports=4,
    )
    return Scenario(cluster=cluster, jobs=(job,), seed=SEED, tick_seconds=5.0)


def seen(fault: str, source: str, folder: Path, job: JobSpec = JOB) -> Outcome:
    scenario = healthy(source, job)
    cluster = Simulation(scenario).cluster
    random = np.random.default_rng(SEED)
    injection = plan(discover()[fault], cluster, random, QUIET_SECONDS)
    made = replace(scenario, injections=(injection,), seconds=QUIET_SECONDS + 60.0)
    return play(Trial(fault, SEED, source, is_alone=True), folder, made)


@pytest.mark.parametrize("fault", ["link_flap", "pfc_misconfigured"])
def test_faults_that_are_pushed_over_otlp_alone_are_found(fault: str, tmp_path: Path) -> None:
    outcome = seen(fault, "otlp", tmp_path)
    assert outcome.shows
    assert outcome.is_found, outcome.run.sayings


def test_sonic_s_databases_show_a_link_that_flaps(tmp_path: Path) -> None:
    assert seen("link_flap", "gnmi", tmp_path).is_found


@pytest.mark.parametrize("source", ["otlp", "ib"])
def test_switches_alone_show_a_nic_that_stops_them(source: str, tmp_path: Path) -> None:
    """By frames, a fall and who waits behind it; on InfiniBand by the time without credit."""
    assert seen("slow_receiver", source, tmp_path, BUSY).is_found


def test_ufm_s_pages_show_a_link_that_flaps(tmp_path: Path) -> None:
    assert seen("link_flap", "ufm", tmp_path).is_found


def test_ufm_that_is_asked_for_hcas_shows_damage_at_a_nic(tmp_path: Path) -> None:
    """On a cable that damages what the NIC receives no port of a switch counts anything."""
    outcome = seen("bad_cable", "ufm_hcas", tmp_path)
    assert "symbol_errors_total" in outcome.shows
    assert outcome.is_found, outcome.run.sayings


@pytest.mark.parametrize("source", list(SOURCES))
def test_a_healthy_job_behind_switches_alone_accuses_none(source: str, tmp_path: Path) -> None:
    scenario = replace(healthy(source), seconds=90.0)
    outcome = play(Trial("healthy", SEED, source, is_alone=True), tmp_path, scenario)
    assert outcome.run.seconds == 90.0
    assert outcome.run.sayings == []


def test_the_table_says_for_every_fault_where_it_shows() -> None:
    for column in SOURCES.values():
        assert set(fabric_faults(column)) <= SHOWS_IN.keys()


def test_a_fault_that_shows_nowhere_is_not_visible_and_one_that_shows_is_missed() -> None:
    run = Run(case="bad_cable", seed=1, seconds=1.0, truths=[], sayings=[])
    trial = Trial("bad_cable", 1, "otlp", is_alone=True)
    hidden = Outcome(trial=trial, run=run, shows=[])
    assert "| bad_cable | not visible | nothing at a switch |" in to_markdown([hidden], [1])
    plain = Outcome(trial=trial, run=run, shows=["symbol_errors_total"])
    assert "| bad_cable | missed | `symbol_errors_total` |" in to_markdown([plain], [1])


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (Harm(step=0.002, nic=0.01, link=0.002), "costs nothing"),
        (Harm(step=0.02, nic=0.01, link=0.002), "missed"),
        (Harm(step=None, nic=0.0, link=0.0), "missed"),  # the job stood still
        (Harm(step=0.0, nic=0.2, link=0.0), "missed"),
        (Harm(step=0.0, nic=0.0, link=0.2), "missed"),
        (None, "missed"),  # not measured
    ],
)
def test_only_what_made_nothing_worse_costs_nothing(harm: Harm | None, words: str) -> None:
    run = Run(case="link_flap", seed=1, seconds=1.0, truths=[], sayings=[])
    trial = Trial("link_flap", 1, "snmp", is_alone=True)
    outcome = Outcome(trial=trial, run=run, shows=["state"], harm=harm)
    assert state(outcome) == words


def harm_of(fault: str, seconds: float) -> Harm | None:
    """What a fault does to the small cluster from the 40th second on."""
    scenario = healthy("snmp", BUSY)
    cluster = Simulation(scenario).cluster
    injection = plan(discover()[fault], cluster, np.random.default_rng(SEED), QUIET_SECONDS)
    made = replace(scenario, injections=(injection,), seconds=QUIET_SECONDS + seconds)
    simulation = Simulation(made)
    meter = HarmMeter(made.start_unix_ns)
    for snapshot in simulation.run():
        meter.note(snapshot)
    (truth,) = simulation.truths()
    return meter.of(truth.start_ns, truth.end_ns)


def test_a_fault_s_harm_is_measured_by_steps_nics_and_links() -> None:
    slow = harm_of("slow_nic", 60.0)
    assert slow is not None
    assert not slow.is_nothing, slow
    assert slow.step is None or slow.step > 0.05
    assert slow.nic > 0.05
    quiet = harm_of("counter_reset", 60.0)
    assert quiet is not None
    assert quiet.is_nothing, quiet
    assert harm_of("slow_nic", 5.0) is None  # the one snapshot tells of before, too
