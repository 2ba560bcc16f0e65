"""One evaluation: read the last minutes, find, judge, advance the incidents, keep them.

Each round looks at the last minutes as a whole, so that the next round sees data that came late.
What stands is in the inventory; it is read when this process begins to lead, and again after a
failure.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence

import msgspec

from alerts.finding import Finding
from alerts.judge.incident import REOPEN_SECONDS, Incident, advance
from alerts.window.model import Window
from api.base.metrics import ServiceMetrics
from api.data.inventory.repository import Inventory
from api.oncall.evaluate.detect import GuardedDetectors
from api.oncall.evaluate.lead import EVALUATOR, Lead, moment
from collector.contract.errors import InventoryError
from collector.contract.units import NS
from collector.contract.verdict import Cause, Verdict

LOOK_SECONDS = 180
"""How much of the past is judged: a minute of trouble beside two of what is usual, for jobs whose
steps take seconds."""


ReadWindow = Callable[[int, int], Window]
"""The window from one time to another (unix nanoseconds)."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a round."""

    now_ns: int
    findings: Sequence[Finding]
    verdicts: Sequence[Verdict]
    incident_of: Sequence[str]
    """For each verdict, its incident; empty: none."""
    incidents: Sequence[Incident]
    """All that are open, and those that were closed lately."""


class LostLead(Exception):  # noqa: N818 - reads as the statement it is
    """Another process evaluates by now: nothing was kept."""


class BrokenJudge(Exception):  # noqa: N818 - reads as the statement it is
    """Reading or judging broke: the round has no result, open incidents stay open."""


class Rounds:
    """Evaluates, one round after the other. For one thread at a time."""

    def __init__(
        self,
        read: ReadWindow,
        inventory: Inventory,
        lead: Lead,
        panel: GuardedDetectors,
        metrics: ServiceMetrics,
    ) -> None:
        self._read = read
        self._inventory = inventory
        self._lead = lead
        self._panel = panel
        self._metrics = metrics
        self._standing: list[Incident] | None = None

    @property
    def open_count(self) -> int:
        return sum(each.is_open for each in self._standing or ())

    def forget(self) -> None:
        """Another process leads: the open incidents are no longer known here."""
        self._standing = None

    def look(self, now_ns: int) -> Outcome:
        """Raises StoreError, InventoryError, LostLead or BrokenJudge: then nothing was kept."""
        from_ns = now_ns - LOOK_SECONDS * NS
        standing = self._recall(now_ns)
        window = self._panel.look(lambda: self._read(from_ns, now_ns))
        if window is None:
            raise BrokenJudge
        findings = self._panel.find(window)
        verdicts = self._panel.judge(window, findings)
        if verdicts is None:
            raise BrokenJudge
        still = [job.job for job in window.jobs if job.is_still]
        late = [one.culprit for one in findings if is_lasting_lateness(one)]
        after = advance(standing, verdicts, now_ns, seen_from_ns=from_ns, still=still, late=late)
        self._metrics.findings_left_out.inc(after.left_out)
        known = {each.id: each for each in standing}
        news = [each for each in after.incidents if known.get(each.id) != each]
        # An incident may open and close at once, long ago: it is kept and not looked at again.
        kept = {each.id for each in after.incidents}
        news += [each.incident for each in after.changes if each.incident.id not in kept]
        try:
            is_kept = self._inventory.incidents.keep(
                news,
                after.changes,
                task=EVALUATOR,
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
        return Outcome(
            now_ns=now_ns,
            findings=findings,
            verdicts=verdicts,
            incident_of=after.incident_of,
            incidents=after.incidents,
        )

    def _recall(self, now_ns: int) -> list[Incident]:
        if self._standing is None:
            since = moment(now_ns / NS) - dt.timedelta(seconds=REOPEN_SECONDS)
            self._standing = self._inventory.incidents.recent(since)
        return self._standing


def is_lasting_lateness(finding: Finding) -> bool:
    """Whether a rank comes late for as long as the window goes back, and still does."""
    is_lateness = finding.is_context and finding.cause is Cause.STRAGGLER
    return is_lateness and finding.until_ns is None
