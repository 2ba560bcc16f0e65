"""One evaluation: read the last minutes, find, judge, advance the incidents, keep them.

Each round looks at the last minutes as a whole, so that the next round sees data that came late.
What stands is in the inventory; it is read when this process begins to lead, and again after a
failure.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from alerts.finding import Finding
from alerts.judge.incident import REOPEN_SECONDS, Advance, Incident, advance
from alerts.signals.measured_clocks import Contradiction, contradictions
from alerts.window.model import JobWindow, Window
from api.base.metrics import ServiceMetrics
from api.data.inventory.repository import Inventory
from api.jobs.correlate.windows import RECORDS_MAX
from api.oncall.evaluate.arrivals import Arrivals, Arrived, NotJudged
from api.oncall.evaluate.asking import Asking
from api.oncall.evaluate.detect import GuardedDetectors
from api.oncall.evaluate.lead import Lead, moment
from api.oncall.evaluate.resting import Resting
from collector.contract.errors import InventoryError
from collector.contract.units import NS
from collector.contract.verdict import Cause, Verdict

LOOK_SECONDS = 180
"""How much of the past is judged: a minute of trouble beside two of what is usual, for jobs whose
steps take seconds."""


EFFORT_RECORDS_MIN = 50_000
"""Records of a job that a round reads at least: 100 operations of 500 ranks."""

ReadWindow = Callable[[int, int, Mapping[str, JobWindow]], Window]
"""The window from one time to another (unix nanoseconds), with these jobs at rest."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a round."""

    now_ns: int
    findings: Sequence[Finding]
    verdicts: Sequence[Verdict]
    incident_of: Sequence[str]
    """For each verdict, its incident; empty: none."""
    incidents: Sequence[Incident]
    """All that are open, and those that were closed lately."""
    waiting: Sequence[NotJudged] = ()
    """Jobs whose verdicts wait for evidence."""
    contradicted: Sequence[Contradiction] = ()
    """Hosts whose measured clock is not where their collectives show it."""


class LostLead(Exception):  # noqa: N818 - reads as the statement it is
    """Another process evaluates by now: nothing was kept."""


class BrokenJudge(Exception):  # noqa: N818 - reads as the statement it is
    """Reading or judging broke: the round has no result, open incidents stay open."""


class Incomplete(Exception):  # noqa: N818 - reads as the statement it is
    """Data of many hosts are outstanding: the next windows end earlier, where they are complete."""


class Effort:
    """How many of a job's records a round reads: fewer while rounds take too long.

    Of a job with more, a window holds slices of its time, so a round that looks at less is less
    sure and not wrong.
    """

    def __init__(self) -> None:
        self.records_max = RECORDS_MAX

    def note(self, took_s: float, wanted_s: float) -> None:
        """A round took that long: at once less, and more again bit by bit."""
        if took_s > wanted_s:
            self.records_max = max(EFFORT_RECORDS_MIN, self.records_max // 2)
        elif took_s < wanted_s / 2:
            self.records_max = min(RECORDS_MAX, self.records_max * 5 // 4)


class Rounds:
    """Evaluates, one round after the other. For one thread at a time."""

    def __init__(
        self,
        read: ReadWindow,
        inventory: Inventory,
        lead: Lead,
        panel: GuardedDetectors,
        metrics: ServiceMetrics,
        effort: Effort | None = None,
        asking: Asking | None = None,
        resting: Resting | None = None,
    ) -> None:
        self._read = read
        self._resting = resting
        self._asking = asking
        self.effort = effort or Effort()
        self._inventory = inventory
        self._lead = lead
        self._panel = panel
        self._metrics = metrics
        self._standing: list[Incident] | None = None
        self._arrivals = Arrivals()
        self.behind_ns = 0
        """How much earlier than now the next window ends."""
        self.judged_ns = 0
        """The end of the last window: earlier than now while data come late."""
        self.arrived: Arrived | None = None
        """How complete the last window was."""
        self._contradicted: Sequence[Contradiction] = ()
        self.jobs = {"looked": 0, "resting": 0}
        """Jobs of the last window, by whether their records were read."""

    @property
    def open_count(self) -> int:
        return sum(each.is_open for each in self._standing or ())

    def forget(self) -> None:
        """Another process leads: the open incidents are no longer known here."""
        self._standing = self.arrived = None
        self._contradicted = ()
        if self._resting is not None:
            self._resting.forget()
        if self._asking is not None:
            self._asking.forget()

    def look(self, now_ns: int) -> Outcome:
        """One round.

        Raises StoreError, InventoryError, LostLead, BrokenJudge or Incomplete: then nothing was
        kept.
        """
        standing = self._recall(now_ns)
        # Never earlier than the last window's end: an incident must not be judged backwards.
        to_ns = min(now_ns, max(now_ns - self.behind_ns, self.judged_ns))
        from_ns = to_ns - LOOK_SECONDS * NS
        if self._asking is not None:
            self._asking.recall(now_ns)
        at_rest = self._resting.choose(standing, to_ns) if self._resting is not None else {}
        window = self._look_at(lambda: self._read(from_ns, to_ns, at_rest))
        arrived = self._arrivals.look(window, now_ns - to_ns)
        self.behind_ns = arrived.behind_ns
        self.arrived, self.judged_ns = arrived, to_ns
        if not arrived.is_complete:
            raise Incomplete
        window, findings = self._find(window)
        judged = self._panel.judge(window, findings)
        if judged is None:
            raise BrokenJudge
        self.jobs = {
            "looked": len(window.looked),
            "resting": len(window.jobs) - len(window.looked),
        }
        verdicts = [verdict for verdict in judged if arrived.may_say(verdict)]
        still = [job.job for job in window.looked if job.is_still]
        late = [one.culprit for one in findings if is_lasting_lateness(one)]
        after = advance(
            standing,
            verdicts,
            now_ns,
            seen_from_ns=from_ns,
            still=still,
            late=late,
            unjudged=arrived.waiting,
        )
        if self._asking is not None:
            incidents, changes = self._asking.look(after, verdicts, now_ns, to_ns)
            after = msgspec.structs.replace(after, incidents=incidents, changes=changes)
        self._metrics.verdicts_held_back.inc(len(judged) - len(verdicts))
        self._metrics.findings_left_out.inc(after.left_out)
        self._keep(standing, after, now_ns)
        if self._resting is not None:
            self._resting.learn(window, findings, arrived.waiting)
            findings = [*findings, *self._resting.carried()]
        return Outcome(
            now_ns=now_ns,
            findings=findings,
            verdicts=verdicts,
            incident_of=after.incident_of,
            incidents=after.incidents,
            waiting=tuple(arrived.waiting.values()),
            contradicted=self._compare_clocks(window),
        )

    def _compare_clocks(self, window: Window) -> Sequence[Contradiction]:
        """Hosts whose clocks are contradicted; of jobs that rest, as they were looked at last."""
        resting = {job.job for job in window.jobs if job.is_resting}
        carried = [one for one in self._contradicted if one.job in resting]
        self._contradicted = [*contradictions(window), *carried]
        return self._contradicted

    def _keep(self, standing: Sequence[Incident], after: Advance, now_ns: int) -> None:
        """Write what changed; from then on it stands. Raises InventoryError or LostLead."""
        known = {each.id: each for each in standing}
        news = [each for each in after.incidents if known.get(each.id) != each]
        # An incident may open and close at once, long ago: it is kept and not looked at again.
        kept = {each.id for each in after.incidents}
        news += [each.incident for each in after.changes if each.incident.id not in kept]
        try:
            is_kept = self._inventory.incidents.keep(
                news,
                after.changes,
                task=self._lead.task,
                holder=self._lead.holder,
                now=moment(now_ns / NS),
            )
        except InventoryError:
            # The inventory may have kept it nevertheless.
            self._standing = None
            raise
        if not is_kept:
            self._standing = None
            raise LostLead
        self._standing = after.incidents

    def _look_at(self, read: Callable[[], Window]) -> Window:
        window = self._panel.look(read)
        if window is None:
            raise BrokenJudge
        return window

    def _read_again(self, window: Window, resting: Resting) -> Window:
        if resting.read_again is None:
            return self._read(window.from_ns, window.to_ns, resting.jobs)
        return resting.read_again(window, resting.jobs)

    def _find(self, window: Window) -> tuple[Window, list[Finding]]:
        """What is found, in a window that has the records of all jobs that it concerns."""
        findings = self._panel.find(window)
        while self._resting is not None and self._resting.disturb(findings):
            window = self._look_at(partial(self._read_again, window, self._resting))
            findings = self._panel.find(window)
        return window, findings

    def _recall(self, now_ns: int) -> list[Incident]:
        if self._standing is None:
            since = moment(now_ns / NS) - dt.timedelta(seconds=REOPEN_SECONDS)
            self._standing = self._inventory.incidents.recent(since)
        return self._standing


def is_lasting_lateness(finding: Finding) -> bool:
    """Whether a rank comes late for as long as the window goes back, and still does."""
    is_lateness = finding.is_context and finding.cause is Cause.STRAGGLER
    return is_lateness and finding.until_ns is None
