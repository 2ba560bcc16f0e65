"""Series of pairs say what the matrix of the same minute says, through the service's own parts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import pytest

from alerts.traffic.places import By
from api.fabric.model import Topology
from api.jobs.correlate.pattern import read_pattern
from collector.contract.identity import metric_id
from collector.contract.units import NS
from collector.contract.verdict import Verdict
from simulator.engine import Simulation
from simulator.jobs.model import JobSpec
from simulator.scenario import START_UNIX_NS, Scenario
from simulator.score.handicap import Handicap
from simulator.score.run import play
from simulator.score.simulated_service import Evaluator, SimulatedService
from simulator.topology.build import ClusterSpec

SECONDS = 90
JOB = JobSpec(name="tiny", hosts=(0, 1, 2), tensor=2, compute_seconds=0.5, startup_seconds=1.0)

LAST_SQL = """
    SELECT named.words AS words, toUnixTimestamp(max(samples.time)) AS moment,
           argMax(samples.value, samples.time) AS value
    FROM samples
    INNER JOIN (
        SELECT series, any(labels) AS words FROM series
        WHERE metric_name = {name:String} GROUP BY series
    ) AS named USING series
    WHERE metric = {metric:UInt32} GROUP BY named.words
"""
Pair = tuple[str, str]


class Reader:
    """Reads pairs and the matrix of their minute, whenever there is a new one."""

    def __init__(self, service: SimulatedService) -> None:
        self._service = service
        self._end_s = 0
        self.by_series: dict[str, dict[Pair, float]] = {}
        self.by_matrix: dict[str, dict[Pair, float]] = {}

    def evaluate(self, _: int) -> Sequence[Verdict]:
        name = "fabric_pair_bytes_per_second"
        asked = {"name": name, "metric": metric_id(name)}
        rows = self._service.store.query(LAST_SQL, asked).to_pylist()
        if rows and rows[0]["moment"] > self._end_s:
            self._end_s = rows[0]["moment"]
            self._keep([(dict(row["words"]), row["value"]) for row in rows], rows[0]["moment"])
        return ()

    def _keep(self, rows: list[tuple[dict[str, str], float]], end_s: int) -> None:
        span = ((end_s - 60) * NS, end_s * NS - 1)
        nothing = Topology(
            at=dt.datetime.fromtimestamp(end_s, tz=dt.UTC), nodes={}, ports={}, links={}
        )
        pattern = read_pattern(
            self._service.store, self._service.inventory, JOB.name, span, lambda: nothing
        )
        for by in (By.RANK, By.HOST):
            cells, names = pattern.matrix(by).cells, pattern.places.names(by)
            self.by_matrix[by] = {
                (names[cells.source[row]], names[cells.target[row]]): cells.bytes[row] / 60
                for row in range(len(cells))
            }
            self.by_series[by] = {
                (words["source"], words["target"]): value
                for words, value in rows
                if words["by"] == by and value == value  # noqa: PLR0124 - a stale marker is a NaN
            }


def run(folder: Path) -> Reader:
    """A job of six ranks on three hosts, for a minute and what it takes to be looked at."""
    scenario = Scenario(
        cluster=ClusterSpec(topology="single", hosts=3, gpus_per_host=2, nics_per_host=2),
        jobs=(JOB,),
        seconds=float(SECONDS),
        tick_seconds=5.0,
    )
    seen: list[Reader] = []

    def reader(service: SimulatedService, _: Handicap) -> Evaluator:
        seen.append(Reader(service))
        return seen[0]

    play(Simulation(scenario), folder, reader)
    return seen[0]


def test_pairs_have_the_bytes_of_the_matrix(tmp_path: Path) -> None:
    assert START_UNIX_NS % (60 * NS) == 0, "a minute of the run must be a minute of the clock"
    found = run(tmp_path)
    assert found.by_series["rank"]
    for by in ("rank", "host"):
        assert found.by_series[by].keys() == found.by_matrix[by].keys()
        for pair, rate in found.by_matrix[by].items():
            # An operation belongs to the minute of its last exit, or of its records.
            assert found.by_series[by][pair] == pytest.approx(rate, rel=0.05), (by, pair)
