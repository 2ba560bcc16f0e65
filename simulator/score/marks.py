"""The marks: the verdicts of a run, compared with its truths. Pure; no store, no clock.

A run has truths (what was injected) and sayings (verdicts, each with its first time).
Benign things have truths too, without a right cause: any verdict on them is wrong. A verdict that
names nobody while a fault acts is neither right nor wrong: it says that it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np

from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Verdict
from simulator.scenario import Collision, Truth

GRACE_NS = 30 * NS
"""How long after the end of a fault a verdict on it still counts: windows close late."""
DAY_SECONDS = 86_400.0
CONFIDENCES = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.01)
"""Edges of the table that compares confidence with the share of right verdicts."""
NOTHING = "nothing"
"""In tables: no cause, or no verdict."""


class Saying(msgspec.Struct, frozen=True):
    """A verdict, and when it was first given (unix nanoseconds)."""

    verdict: Verdict
    said_ns: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario with one seed, run to its end."""

    case: str
    seed: int
    seconds: float
    """Simulated."""
    truths: list[Truth]
    sayings: list[Saying]
    error: str = ""
    """Why the run broke off, if it did: it then counts as a miss of everything."""
    collisions: list[Collision] = []
    """Flows that met by chance: verdicts about these are true, and about no fault."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How one truth was found."""

    truth: Truth
    first: Verdict | None
    is_found: bool
    is_first_right: bool
    delay_s: float | None
    """From the fault's start to the first right verdict."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The marks of one cause, or of one fault."""

    name: str
    truths: int
    found: int
    first_right: int
    sayings: int
    right: int
    delay_median_s: float | None
    delay_p90_s: float | None

    @property
    def recall(self) -> float | None:
        return self.found / self.truths if self.truths else None

    @property
    def top_1(self) -> float | None:
        return self.first_right / self.truths if self.truths else None

    @property
    def precision(self) -> float | None:
        """Share of verdicts that were right; None without verdicts."""
        return self.right / self.sayings if self.sayings else None


class Sureness(msgspec.Struct, frozen=True, kw_only=True):
    """Verdicts of about one confidence, and how many of them were right."""

    from_confidence: float
    to_confidence: float
    said: int
    right: int
    mean_confidence: float


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a scoreboard shows."""

    runs: int
    broken: list[str]
    """Runs that broke off, with their reason."""
    overall: Row
    by_cause: list[Row]
    by_fault: list[Row]
    confusion: dict[str, dict[str, int]]
    """The best right cause, then the cause of the first verdict, then how often."""
    benign_seconds: float
    """Simulated time in which nothing was wrong."""
    false_incidents: int
    """Verdicts in that time, but for those about flows that did meet by chance."""
    by_chance: int = 0
    """Verdicts of all runs about flows that did meet by chance: true, and about no fault."""
    sureness: list[Sureness] = []
    """Confidence against what was right: a calibrated 0.9 is right nine times of ten."""

    @property
    def false_per_day(self) -> float | None:
        if not self.benign_seconds:
            return None
        return self.false_incidents / self.benign_seconds * DAY_SECONDS


def names(given: Culprit, right: Culprit) -> bool:
    """Whether the given culprit has every name of the right one, and the same.

    >>> names(Culprit(host="a", device="mlx5_0", port="1"), Culprit(host="a", device="mlx5_0"))
    True
    >>> names(Culprit(host="a"), Culprit(host="a", device="mlx5_0"))
    False
    """
    empty = Culprit()
    return all(
        getattr(given, name) == getattr(right, name)
        for name in Culprit.__struct_fields__
        if getattr(right, name) != getattr(empty, name)
    )


def is_right(verdict: Verdict, truth: Truth) -> bool:
    return verdict.cause in truth.causes and any(
        names(verdict.culprit, right) for right in truth.culprits
    )


def is_about(saying: Saying, truth: Truth) -> bool:
    """Whether it was given while the truth acted, or shortly after."""
    return truth.start_ns <= saying.said_ns <= truth.end_ns + GRACE_NS


def judge(run: Run) -> list[Result]:
    """The result of each fault of a run. Benign things have none: see `false_sayings`."""
    results = []
    for truth in run.truths:
        if not truth.causes:
            continue
        about = sorted(
            (one for one in run.sayings if is_about(one, truth)),
            key=lambda one: (one.said_ns, -one.verdict.confidence),
        )
        right = [one for one in about if is_right(one.verdict, truth)]
        results.append(
            Result(
                truth=truth,
                first=about[0].verdict if about else None,
                is_found=bool(right),
                is_first_right=bool(about) and about[0] in right[:1],
                delay_s=(right[0].said_ns - truth.start_ns) / NS if right else None,
            )
        )
    return results


def is_injected(saying: Saying, run: Run) -> bool:
    """Whether it is right about a fault of its run."""
    return any(is_about(saying, truth) and is_right(saying.verdict, truth) for truth in run.truths)


def is_by_chance(saying: Saying, run: Run) -> bool:
    """Whether it is about no fault, and flows did meet by chance at that port at that time."""
    return (
        not is_injected(saying, run)
        and saying.verdict.cause is Cause.CONGESTION
        and any(
            one.start_ns <= saying.said_ns <= one.end_ns + GRACE_NS
            and any(names(saying.verdict.culprit, right) for right in one.culprits)
            for one in run.collisions
        )
    )


def is_true(saying: Saying, run: Run) -> bool:
    return is_injected(saying, run) or is_by_chance(saying, run)


def is_of_nobody(saying: Saying, run: Run) -> bool:
    """Whether it says, while a fault acts, that a job suffers and not from what.

    It is not right, as no part is named, and not false, as none is accused. In peace it is false.
    """
    culprit = saying.verdict.culprit
    return culprit == Culprit(job=culprit.job) and any(
        is_about(saying, truth) for truth in run.truths if truth.causes
    )


def false_sayings(run: Run) -> list[Saying]:
    """Verdicts of a run that are right for no truth of it, and for nothing that chance did."""
    return [saying for saying in accusing(run) if not is_true(saying, run)]


def accusing(run: Run) -> list[Saying]:
    """The verdicts that are right or false: all but those of nobody."""
    return [saying for saying in run.sayings if not is_of_nobody(saying, run)]


def is_benign(run: Run) -> bool:
    return not any(truth.causes for truth in run.truths)


def mark(runs: Sequence[Run]) -> Marks:
    results = [(run, result) for run in runs for result in judge(run)]
    wrong = [(run, saying) for run in runs for saying in false_sayings(run)]
    by_cause: dict[str, list[Result]] = {}
    by_fault: dict[str, list[Result]] = {}
    confusion: dict[str, dict[str, int]] = {}
    for _, result in results:
        cause = str(result.truth.causes[0])
        by_cause.setdefault(cause, []).append(result)
        by_fault.setdefault(result.truth.fault, []).append(result)
        first = str(result.first.cause) if result.first else NOTHING
        row = confusion.setdefault(cause, {})
        row[first] = row.get(first, 0) + 1
    benign = [run for run in runs if is_benign(run)]
    for run in benign:
        said = false_sayings(run)
        first = str(said[0].verdict.cause) if said else NOTHING
        row = confusion.setdefault(NOTHING, {})
        row[first] = row.get(first, 0) + 1
    wrong_causes = [str(saying.verdict.cause) for _, saying in wrong]
    wrong_faults = [run.case for run, _ in wrong]
    for cause in wrong_causes:
        by_cause.setdefault(cause, [])
    return Marks(
        runs=len(runs),
        broken=[f"{run.case}, seed {run.seed}: {run.error}" for run in runs if run.error],
        overall=make_row("all", [result for _, result in results], len(wrong)),
        by_cause=[
            make_row(name, rows, wrong_causes.count(name))
            for name, rows in sorted(by_cause.items())
        ],
        by_fault=[
            make_row(name, rows, wrong_faults.count(name))
            for name, rows in sorted(by_fault.items())
        ],
        confusion={cause: dict(sorted(row.items())) for cause, row in sorted(confusion.items())},
        benign_seconds=sum(run.seconds for run in benign),
        false_incidents=sum(len(false_sayings(run)) for run in benign),
        by_chance=sum(is_by_chance(saying, run) for run in runs for saying in run.sayings),
        sureness=mark_sureness(runs),
    )


def mark_sureness(runs: Sequence[Run]) -> list[Sureness]:
    """How often verdicts of each confidence were right; ranges without verdicts are left out."""
    sayings = [
        (saying.verdict.confidence, is_true(saying, run))
        for run in runs
        for saying in accusing(run)
    ]
    rows = []
    for low, high in pairwise(CONFIDENCES):
        own = [(sure, right) for sure, right in sayings if low <= sure < high]
        if own:
            rows.append(
                Sureness(
                    from_confidence=low,
                    to_confidence=min(high, 1.0),
                    said=len(own),
                    right=sum(right for _, right in own),
                    mean_confidence=float(np.mean([sure for sure, _ in own])),
                )
            )
    return rows


def make_row(name: str, results: Sequence[Result], wrong: int) -> Row:
    delays = [result.delay_s for result in results if result.delay_s is not None]
    found = sum(result.is_found for result in results)
    return Row(
        name=name,
        truths=len(results),
        found=found,
        first_right=sum(result.is_first_right for result in results),
        sayings=found + wrong,
        right=found,
        delay_median_s=float(np.median(delays)) if delays else None,
        delay_p90_s=float(np.quantile(delays, 0.9)) if delays else None,
    )
