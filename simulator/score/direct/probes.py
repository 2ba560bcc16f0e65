"""A case without a service in which agents probe each other: what probes alone warn of."""

from __future__ import annotations

from alerts.detectors.probe_loss import detect
from alerts.finding import Finding
from api.oncall.evaluate.rounds import LOOK_SECONDS
from collector.contract.units import NS
from collector.contract.verdict import Verdict
from simulator.engine import Simulation
from simulator.readings.batches import Reporter
from simulator.readings.probes import ProbeMesh
from simulator.score.direct.windows import DirectWindows
from simulator.score.marks import Saying

CLUSTER_NAME = "simulated"
APART_SECONDS = 15.0
"""Between two looks: probes are slow to prove anything."""


def play_probes(simulation: Simulation, mesh: ProbeMesh | None = None) -> list[Saying]:
    """The warnings that name a host, each when it is first given, as if they were verdicts.

    A warning that names no part accuses nobody, and is left out.
    """
    scenario = simulation.scenario
    topology, start_ns = simulation.topology, scenario.start_unix_ns
    windows = DirectWindows(topology, start_ns, scenario.tick_seconds)
    reporter = Reporter(
        topology,
        cluster=CLUSTER_NAME,
        start_unix_ns=start_ns,
        seed=scenario.seed,
        wanted=windows.wanted,
        probes=mesh or ProbeMesh(),
    )
    sayings: list[Saying] = []
    standing: set[object] = set()
    looked_s = 0.0
    for snapshot in simulation.run():
        now_ns = start_ns + round(snapshot.time_s * NS)
        windows.take(snapshot, list(reporter.unpacked(snapshot)), now_ns)
        if snapshot.time_s - looked_s < APART_SECONDS:
            continue
        looked_s = snapshot.time_s
        window = windows.read(now_ns - LOOK_SECONDS * NS, now_ns)
        found = {(one.cause, one.culprit): one for one in detect(window) if one.culprit.host}
        sayings += [Saying(said(found[key]), now_ns) for key in found if key not in standing]
        standing = set(found)
    return sayings


def said(finding: Finding) -> Verdict:
    return Verdict(
        cause=finding.cause,
        culprit=finding.culprit,
        since_ns=finding.since_ns,
        confidence=finding.strength,
        evidence=finding.evidence,
    )
