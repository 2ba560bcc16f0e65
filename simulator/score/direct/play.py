"""A case played without a service: the simulated agents' columns straight to the judge.

A service judges every five seconds and a quiet cluster says the same each time. So while all is
quiet only every nth moment is looked at; where something is found there, the moments that were left
out are judged after all, in their order and by what had come by then. What stirs for less than
that and leaves no trace in the three minutes that each look goes back would be missed:
`tests/conformance/test_score_direct.py` holds both ways against the service.

Hours in peace are full of findings that mean nothing: a host was busy, a cable was worked on. There
moments are also left out while the judge makes nothing of them, not even a verdict that nothing
would open an incident for.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

from alerts.finding import Finding
from alerts.judge.explains import is_solid
from alerts.judge.incident import Change, Incident, standing_verdicts
from alerts.window.model import JobWindow, Window
from api.base.metrics import ServiceMetrics
from api.data.inventory.repository import Inventory
from api.jobs.correlate.windows import NO_JOBS
from api.oncall.evaluate.detect import GuardedDetectors
from api.oncall.evaluate.lead import EVALUATOR, Lead
from api.oncall.evaluate.resting import Resting
from api.oncall.evaluate.rounds import LOOK_SECONDS, BrokenJudge, Incomplete, Rounds
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Verdict
from simulator.engine import Simulation
from simulator.readings.batches import Reporter
from simulator.score.broken import BrokenEvaluator, broken_detectors
from simulator.score.direct.windows import DirectWindows
from simulator.score.handicap import Handicap, is_silent, seen
from simulator.score.marks import Saying
from simulator.snapshot import Snapshot

CLUSTER_NAME = "simulated"
EVERY_TICK = 1
QUIET_SECONDS = 30.0
"""While all is quiet, looks are so far apart. A look goes back by six times that."""


class KeptIncidents:
    """In place of the inventory: incidents stand in the rounds' own memory."""

    def __init__(self) -> None:
        self.incidents = self

    def keep(self, news: Sequence[Incident], changes: Sequence[Change], **_: object) -> bool:
        del news, changes
        return True

    def recent(self, closed_since: dt.datetime) -> list[Incident]:
        del closed_since
        return []


class Alone:
    """In place of the lease: there is one evaluator."""

    task = EVALUATOR
    holder = "scoreboard"


class DirectEvaluator:
    """Detectors, judge and incidents of the service over windows from memory."""

    def __init__(
        self,
        windows: DirectWindows,
        handicap: Handicap = Handicap.NONE,
        ticks_apart: int = 1,
        calm_apart: int = 1,
        *,
        may_rest: bool = True,
    ) -> None:
        """Looks are so many ticks apart: where nothing is found, and where nothing comes of it."""
        self._windows = windows
        self._handicap = handicap
        self._quiet_apart = ticks_apart
        self._calm_apart = calm_apart
        self._apart = EVERY_TICK
        self._metrics = ServiceMetrics()
        self._panel = GuardedDetectors(self._metrics)
        self._rounds = Rounds(
            self._read,
            cast("Inventory", KeptIncidents()),
            cast("Lead", Alone()),
            self._panel,
            self._metrics,
            resting=Resting(windows.hear) if may_rest else None,
        )
        self._looked: tuple[int, frozenset[str], Window] | None = None
        self._left_out: list[int] = []
        self._standing: Sequence[Verdict] = ()
        self.rounds = 0

    def _read(self, from_ns: int, to_ns: int, at_rest: Mapping[str, JobWindow] = NO_JOBS) -> Window:
        asked = to_ns, frozenset(at_rest)
        if self._looked is None or self._looked[:2] != asked:
            self._looked = None  # of 1,024 hosts a window is a gigabyte: not two of them
            window = seen(self._windows.read(from_ns, to_ns, at_rest), self._handicap)
            self._looked = *asked, window
        return self._looked[2]

    def evaluate(self, now_ns: int) -> Iterator[tuple[int, Sequence[Verdict]]]:
        """The verdicts that stand, at each moment that is judged by now, in order."""
        if len(self._left_out) + 1 < self._apart:
            self._left_out.append(now_ns)
            return
        due, self._left_out = [*self._left_out, now_ns], []
        if len(due) > 1:
            window = self._read(now_ns - LOOK_SECONDS * NS, now_ns)
            findings = self._panel.find(window)
            if is_quiet(findings):
                self._apart = self._quiet_apart
                return  # a round over the same window would find the same: nothing to judge
            if self._calm_apart > EVERY_TICK and self._panel.judge(window, findings) == []:
                self._apart = self._calm_apart
                return
        for moment_ns in due:
            yield moment_ns, self._look(moment_ns)

    def _look(self, now_ns: int) -> Sequence[Verdict]:
        self.rounds += 1
        self._apart = EVERY_TICK
        try:
            outcome = self._rounds.look(now_ns)
        except Incomplete:
            return self._standing
        except BrokenJudge as error:
            raise BrokenEvaluator("the judge broke: the log has its trace") from error
        if broken := broken_detectors(self._metrics):
            raise BrokenEvaluator(f"{', '.join(broken)} broke: the log has the trace")
        self._standing = standing_verdicts(outcome.incidents)
        has_open = any(incident.is_open for incident in outcome.incidents)
        if not has_open and not outcome.waiting:
            if is_quiet(outcome.findings):
                self._apart = self._quiet_apart
            elif not outcome.verdicts:
                self._apart = self._calm_apart
        return self._standing


def is_quiet(findings: Sequence[Finding]) -> bool:
    """Whether nothing was found that may become a verdict."""
    return not any(map(is_solid, findings))


def play_directly(
    simulation: Simulation,
    handicap: Handicap = Handicap.NONE,
    quiet_seconds: float = QUIET_SECONDS,
    note: Callable[[Snapshot], object] = lambda _: None,
    *,
    calm_seconds: float = 0.0,
    may_rest: bool = True,
    first_look_s: float = 0.0,
    is_over: Callable[[Sequence[Saying]], bool] = lambda _: False,
) -> list[Saying]:
    """As `simulator.score.run.play`. ``quiet_seconds`` 0: every tick is judged.

    Looks are ``calm_seconds`` apart while nothing comes of what is found; 0: every tick then.
    The first one is at ``first_look_s`` of the scenario, and what agents sent before it is there.
    Once what was said until then ``is_over`` nobody looks any more: the cluster is played alone.

    ``may_rest`` False: every job is looked at whenever any is, as in services of before.

    ``note`` is called with every snapshot.
    """
    scenario = simulation.scenario
    windows = DirectWindows(simulation.topology, scenario.start_unix_ns, scenario.tick_seconds)
    reporter = Reporter(
        simulation.topology,
        cluster=CLUSTER_NAME,
        start_unix_ns=scenario.start_unix_ns,
        seed=scenario.seed,
        wanted=windows.wanted,
    )
    quiet, calm = (
        max(EVERY_TICK, round(seconds / scenario.tick_seconds))
        for seconds in (quiet_seconds, calm_seconds)
    )
    evaluator = DirectEvaluator(windows, handicap, quiet, calm, may_rest=may_rest)
    sayings: list[Saying] = []
    standing: set[tuple[Cause, Culprit]] = set()
    for snapshot in simulation.run():
        note(snapshot)
        now_ns = scenario.start_unix_ns + round(snapshot.time_s * NS)
        batches = [
            batch for batch in reporter.unpacked(snapshot) if not is_silent(batch.agent, handicap)
        ]
        windows.take(snapshot, batches, now_ns)
        if snapshot.time_s < first_look_s:
            continue
        for moment_ns, verdicts in evaluator.evaluate(now_ns):
            found = {(each.cause, each.culprit): each for each in verdicts}
            sayings += [Saying(found[key], moment_ns) for key in found if key not in standing]
            standing = set(found)
        if is_over(sayings):
            for rest in simulation.run():
                note(rest)
            break
    return sayings
