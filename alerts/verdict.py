"""From findings to verdicts: one root, its victims, what was ruled out. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from alerts.detectors import detect_all
from alerts.finding import Finding
from alerts.window import Window
from collector.contract.verdict import LAYER_OF, Verdict


def judge(window: Window, findings: Sequence[Finding] | None = None) -> list[Verdict]:
    """What is wrong in this window, the most costly first; nothing is an answer too."""
    found = detect_all(window) if findings is None else findings
    return [to_verdict(finding) for finding in found if not finding.is_context]


def to_verdict(finding: Finding) -> Verdict:
    """A finding that stands for itself."""
    return Verdict(
        cause=finding.cause,
        culprit=finding.culprit,
        since_ns=finding.since_ns,
        until_ns=finding.until_ns,
        reason=finding.reason,
        confidence=finding.strength,
        layer=LAYER_OF[finding.cause],
        jobs=(finding.job,) if finding.job else (),
        accomplices=finding.accomplices,
        victims=finding.victims,
        evidence=finding.evidence,
        ruled_out=finding.ruled_out,
        costs=(finding.cost,) if finding.cost is not None else (),
    )
