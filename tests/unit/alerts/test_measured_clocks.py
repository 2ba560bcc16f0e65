"""Measured clocks against the collectives': who is contradicted, and who never is."""

import msgspec
import numpy as np
import pytest

from alerts.signals.measured_clocks import (
    HOSTS_LEAST,
    LEAST_S,
    Contradiction,
    contradictions,
    last_clocks,
)
from alerts.window.model import Hosts, Readings, Window
from api.base.metrics import ServiceMetrics
from api.oncall.evaluate.detect import GuardedDetectors
from api.oncall.evaluate.series import STALE, FoundSeries
from collector.contract.clocks import CONTRADICTION
from collector.contract.units import NS
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.faults.model import Injection, Place
from simulator.readings.batches import Reporter
from simulator.score.direct.play import is_quiet
from simulator.score.direct.windows import DirectWindows
from tests.worlds.simulated_cluster import JOB_HOSTS, small_scenario

FAULTS = discover()
STRUCK = 2
SECONDS = 26.0
OFFSET, ERROR = "clock_offset_seconds:chrony", "clock_error_seconds:chrony"


def play(name: str, strength: float) -> tuple[Window, list[str]]:
    """The last window of a small cluster with this fault, and the simulated hosts' names."""
    injection = Injection(FAULTS[name], Place(host=STRUCK), 1.0, SECONDS + 1, strength)
    scenario = small_scenario(seconds=SECONDS, injections=(injection,))
    simulation = Simulation(scenario)
    windows = DirectWindows(simulation.topology, scenario.start_unix_ns)
    reporter = Reporter(
        simulation.topology,
        cluster="c",
        start_unix_ns=scenario.start_unix_ns,
        seed=1,
        wanted=windows.wanted,
    )
    now_ns = scenario.start_unix_ns
    for snapshot in simulation.run():
        now_ns = scenario.start_unix_ns + round(snapshot.time_s * NS)
        windows.take(snapshot, list(reporter.unpacked(snapshot)), now_ns)
    names = [simulation.topology.host_name(host) for host in range(simulation.topology.hosts)]
    return windows.read(now_ns - 20 * NS, now_ns), names


@pytest.fixture(scope="module")
def wrong() -> tuple[Window, list[str]]:
    """A host follows a time server that is 0.2 s off."""
    return play("wrong_time_server", 0.5)


def with_readings(window: Window, name: str, values: np.ndarray) -> Window:
    """The window with another reading of its hosts."""
    hosts = window.hosts
    old = hosts.readings[name]
    new = Readings(metric=old.metric, row=np.arange(len(hosts)), values=values, label=old.label)
    readings = {**hosts.readings, name: new}
    changed = Hosts(grid=hosts.grid, host=hosts.host, readings=readings, seen_ns=hosts.seen_ns)
    return msgspec.structs.replace(window, hosts=changed)


def test_a_wrong_time_server_is_found_by_this_alone(wrong: tuple[Window, list[str]]) -> None:
    window, names = wrong
    (found,) = contradictions(window)
    assert (found.host, found.by, found.job) == (names[STRUCK], "chrony", window.jobs[0].job)
    assert found.apart_s == pytest.approx(0.2, abs=0.002)
    assert abs(found.measured_s) < 0.002, "its daemon says that all is well"
    assert found.error_s < 0.05
    assert is_quiet(GuardedDetectors(ServiceMetrics()).find(window)), "and no detector accuses"


@pytest.mark.parametrize("name", ["clock_skew", "clock_drift"])
def test_a_clock_that_is_right_or_known_to_be_wrong_is_not_contradicted(name: str) -> None:
    window, names = play(name, 1.0)
    (job,) = window.looked
    inferred = {host: clock for host, (_, clock) in last_clocks(job.clocks).items()}
    others = np.median([clock.offset_ns for clock in inferred.values()])
    assert abs(inferred[names[STRUCK]].offset_ns - others) > LEAST_S * NS, "it is off"
    assert OFFSET in window.hosts.readings
    assert contradictions(window) == []


def test_what_is_not_measured_is_not_contradicted(wrong: tuple[Window, list[str]]) -> None:
    window, names = wrong
    for name in (OFFSET, ERROR):
        values = window.hosts.values(name).copy()
        values[window.hosts.row_of[names[STRUCK]]] = np.nan
        assert contradictions(with_readings(window, name, values)) == []


def test_two_hosts_contradict_each_other_and_accuse_neither(
    wrong: tuple[Window, list[str]],
) -> None:
    window, names = wrong
    values = window.hosts.values(OFFSET).copy()
    measured = [names[STRUCK], names[0]]
    assert len(measured) < HOSTS_LEAST < JOB_HOSTS
    for host, row in window.hosts.row_of.items():
        if host not in measured:
            values[row] = np.nan
    assert contradictions(with_readings(window, OFFSET, values)) == []


def test_an_unsure_measurement_contradicts_nothing(wrong: tuple[Window, list[str]]) -> None:
    """A daemon that knows its clock to a second only, and all clocks at that."""
    window, _ = wrong
    values = np.where(np.isfinite(window.hosts.values(ERROR)), 1.0, np.nan)
    assert contradictions(with_readings(window, ERROR, values)) == []
    assert LEAST_S > 0.55e-3, "the largest error of a fit of decision 13"


def test_the_series_stands_as_long_as_the_contradiction() -> None:
    one = Contradiction("j", "node-2", "chrony", 0.0, 0.2, 0.005)
    series = FoundSeries()
    (sample,) = series.samples(1, [], [], contradicted=[one])
    assert sample.series.metric == CONTRADICTION
    assert dict(sample.series.labels) == {"host": "node-2", "job": "j", "by": "chrony"}
    assert sample.value == pytest.approx(0.2)
    (over,) = series.samples(2, [], [])
    assert (over.series, np.float64(over.value).tobytes()) == (
        sample.series,
        np.float64(STALE).tobytes(),
    )
