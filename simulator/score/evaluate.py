"""The service's own evaluator, run by the scoreboard instead of by a clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from alerts.judge.incident import standing_verdicts
from alerts.window.model import Window
from api.base.metrics import ServiceMetrics
from api.fabric.cache import TopologyCache
from api.oncall.evaluate.lead import Lead
from api.oncall.evaluate.parts import make_rounds
from api.oncall.evaluate.rounds import BrokenJudge, Incomplete, Outcome
from collector.contract.verdict import Verdict
from simulator.score.broken import BrokenEvaluator, broken_detectors
from simulator.score.handicap import Handicap, seen
from simulator.score.simulated_service import Evaluator, SimulatedService

HOLDER = "scoreboard"


class Incidents:
    """Returns the verdict of every open incident: what the on-call person would see."""

    def __init__(
        self,
        service: SimulatedService,
        handicap: Handicap = Handicap.NONE,
        see: Callable[[Window], Window] | None = None,
    ) -> None:
        """``see``: what every window passes through, instead of the handicap."""
        self._metrics = ServiceMetrics()
        self._standing: Sequence[Verdict] = ()
        self.lead = Lead(service.inventory, service.clock, holder=HOLDER, is_alone=True)
        topologies = TopologyCache(service.inventory, service.clock)
        self._rounds = make_rounds(
            service.store,
            service.inventory,
            topologies,
            self.lead,
            self._metrics,
            see=see or (lambda window: seen(window, handicap)),
        )

    def evaluate(self, now_ns: int) -> Sequence[Verdict]:
        """Every verdict that stands now, by data that has arrived by now."""
        outcome = self.look(now_ns)
        if outcome is not None:
            self._standing = standing_verdicts(outcome.incidents)
        return self._standing

    def look(self, now_ns: int) -> Outcome | None:
        """None: too much is outstanding, and the incidents stand as they were."""
        self.lead.renew()
        try:
            outcome = self._rounds.look(now_ns)
        except Incomplete:
            return None
        except BrokenJudge as error:
            raise BrokenEvaluator("the judge broke: the log has its trace") from error
        if broken := broken_detectors(self._metrics):
            raise BrokenEvaluator(f"{', '.join(broken)} broke: the log has the trace")
        return outcome


def with_detectors(service: SimulatedService, handicap: Handicap = Handicap.NONE) -> Evaluator:
    """The evaluator of this version: detectors, judge and incidents, as in the service."""
    return Incidents(service, handicap)
