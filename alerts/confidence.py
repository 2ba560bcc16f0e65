"""How sure a verdict is: the share of verdicts with evidence like this that were right. Pure.

Evidence gives a raw score: independent pieces (what the job's own times say, what machines say)
leave doubt that multiplies. The scoreboard then says how often verdicts of such a score were right
(CALIBRATION), so that 0.9 means nine of ten.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alerts.finding import Finding

CALIBRATION = ((0.0, 0.5), (0.3, 0.7), (0.6, 0.85), (0.8, 0.93), (0.95, 0.98), (1.0, 0.99))
"""Raw score, and the share of verdicts of the scoreboard with that score that were right."""


def confidence(root: Finding, symptoms: Sequence[Finding], support: Sequence[Finding]) -> float:
    """0 to 1, from the finding that stands for the verdict and those beside it."""
    doubt = 1.0 - accusing(root)
    for kind in (symptoms, support):
        others = [one for one in kind if one is not root]
        if others:
            # Findings of one kind rest on much the same data: the best of them counts.
            doubt *= 1.0 - 0.5 * max(accusing(one) for one in others)
    scores, shares = zip(*CALIBRATION, strict=True)
    return round(float(np.interp(1.0 - doubt, scores, shares)), 3)


def accusing(finding: Finding) -> float:
    """How clearly a finding accuses the one whom it names: less where there are other suspects."""
    if not finding.suspects:
        return finding.strength
    best = max(suspect.share for suspect in finding.suspects)
    return finding.strength * (0.5 + 0.5 * best)
