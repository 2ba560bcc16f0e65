"""Tables of what was found, by what it cost; with intervals, because trials are few. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from collector.contract.units import NS
from simulator.scenario import START_UNIX_NS
from simulator.score.accuracy.peace import Watched
from simulator.score.accuracy.shapes import FAULTS, SHAPE, SHAPES, SIGHT, SIGHTS
from simulator.score.accuracy.trials import BEFORE, Played
from simulator.score.marks import Result, Run, accusing, false_sayings, is_by_chance, is_true, judge
from simulator.score.report import percent, seconds

COSTS = ((0.0, 0.01), (0.01, 0.03), (0.03, 0.1), (0.1, 0.3), (0.3, math.inf))
"""Classes of costs: by how much a step became longer."""
SOON_SECONDS, PATIENT_SECONDS = 15.0, 120.0
Z95 = 1.96
CONFIDENCES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.01)
PEACE_GPUS = 512
NONE_SEEN = 3.0
"""Of a rare thing that was not seen, the number that would have been with a chance of a twentieth
at most: the rule of three."""


class Found(NamedTuple):
    """One fault of one trial."""

    played: Played
    result: Result
    cost: float
    """Infinite where a job stood still."""


def faults_in(trials: Sequence[Played]) -> list[Found]:
    return [
        Found(played, result, math.inf if cost is None else cost)
        for played in trials
        if not played.run.error
        for result, cost in zip(judge(played.run), played.costs, strict=True)
    ]


def interval(hits: int, count: int) -> tuple[float, float]:
    """Wilson's interval of 95 % for a share.

    >>> [round(end, 2) for end in interval(9, 10)]
    [0.6, 0.98]
    """
    if not count:
        return 0.0, 1.0
    share = hits / count
    middle = share + Z95**2 / (2 * count)
    wide = Z95 * math.sqrt(share * (1 - share) / count + Z95**2 / (4 * count**2))
    scale = 1 + Z95**2 / count
    return (middle - wide) / scale, (middle + wide) / scale


def share_words(hits: int, count: int) -> str:
    if not count:
        return "-"
    low, high = interval(hits, count)
    return f"{hits / count:.0%} ({low:.0%} to {high:.0%})"


def cost_words(low: float, high: float) -> str:
    if math.isinf(high):
        return f"{low:.0%} and more, or it stands still"
    return f"{low:.0%} to {high:.0%}"


def by_cost(found: Sequence[Found]) -> list[str]:
    """How many were named right, how soon, and how many verdicts were wrong, by cost."""
    lines = [
        "| a step is longer by | faults | named right | in 15 s | in 2 min | p90 | wrongly said |",
        "|---|---:|---|---:|---:|---:|---:|",
    ]
    for low, high in COSTS:
        own = [one for one in found if low <= max(one.cost, 0.0) < high or (one.cost == high)]
        delays = [one.result.delay_s for one in own if one.result.delay_s is not None]
        wrong = sum(len(false_sayings(one.played.run)) for one in own)
        p90 = float(np.quantile(delays, 0.9)) if delays else None
        lines.append(
            f"| {cost_words(low, high)} | {len(own)} | {share_words(len(delays), len(own))} "
            f"| {percent(share(delays, SOON_SECONDS, len(own)))} "
            f"| {percent(share(delays, PATIENT_SECONDS, len(own)))} | {seconds(p90)} | {wrong} |"
        )
    return lines


def share(delays: Sequence[float], within: float, count: int) -> float | None:
    return sum(delay <= within for delay in delays) / count if count else None


def by_group(found: Sequence[Found], key: Callable[[Found], str], name: str) -> list[str]:
    """Of faults that cost 3 % and more."""
    lines = [
        f"| {name} | faults that cost ≥ 3 % | named right | p90 | smallest cost that was named |",
        "|---|---:|---|---:|---:|",
    ]
    for group in sorted({key(one) for one in found}):
        own = [one for one in found if key(one) == group]
        felt = [one for one in own if one.cost >= COSTS[2][0]]
        delays = [one.result.delay_s for one in felt if one.result.delay_s is not None]
        named = [one.cost for one in own if one.result.is_found]
        least = f"{max(0.0, min(named)):.1%}" if named and min(named) < math.inf else "-"
        p90 = seconds(float(np.quantile(delays, 0.9)) if delays else None)
        lines.append(
            f"| {group} | {len(felt)} | {share_words(len(delays), len(felt))} | {p90} | {least} |"
        )
    return lines


def told(trials: Sequence[Played], kind: str, names: Iterable[str], title: str) -> list[str]:
    """For each shape and fault how soon it was named right, or what was said instead."""
    lines = [f"| {title} | {' | '.join(FAULTS)} |", f"|---|{'---|' * len(FAULTS)}"]
    for name in names:
        own = {
            one.trial.faults[0]: one
            for one in trials
            if (one.trial.kind, one.trial.shape) == (kind, name)
        }
        cells = [outcome(own[fault]) if fault in own else "" for fault in FAULTS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def warned(trials: Sequence[Played]) -> list[str]:
    """Of faults that no job feels: how many hosts were warned of rightly, how soon, and wrongly."""
    lines = [
        "| strength | faults | host named | p90 | wrongly named |",
        "|---|---:|---|---:|---:|",
    ]
    for strength in sorted({one.trial.strength or 0.0 for one in trials}):
        own = [one for one in trials if one.trial.strength == strength and not one.run.error]
        results = [result for one in own for result in judge(one.run)]
        delays = [one.delay_s for one in results if one.delay_s is not None]
        p90 = seconds(float(np.quantile(delays, 0.9)) if delays else None)
        wrong = sum(len(false_sayings(one.run)) for one in own)
        named = share_words(len(delays), len(results))
        lines.append(f"| {strength:g} | {len(results)} | {named} | {p90} | {wrong} |")
    return lines


def outcome(played: Played) -> str:
    """In words: how soon it was named right, what was said wrongly, what it cost."""
    if played.run.error:
        return "no place"
    (result,), (cost,) = judge(played.run), played.costs
    wrong = ["wrong: " + str(one.verdict.cause) for one in false_sayings(played.run)[:1]]
    cost_said = "stands" if cost is None else f"{max(cost, 0.0):.0%}"
    if result.delay_s is not None:
        return ", ".join([seconds(result.delay_s), *wrong])
    return ", ".join([f"not named ({cost_said})", *wrong])


def reliability(
    trials: Sequence[Played], peace: Sequence[Watched]
) -> tuple[list[str], float | None]:
    """Confidence against the share that was right, and the Brier score."""
    said = [
        (saying.verdict.confidence, is_true(saying, run))
        for run in (*(one.run for one in trials), *(one.run for one in peace))
        for saying in accusing(run)
    ]
    lines = ["| said with | verdicts | mean | right |", "|---|---:|---:|---|"]
    for low, high in pairwise(CONFIDENCES):
        own = [(sure, right) for sure, right in said if low <= sure < high]
        if own:
            mean = float(np.mean([sure for sure, _ in own]))
            right = sum(right for _, right in own)
            words = share_words(right, len(own))
            edges = f"{low:.0%} to {min(high, 1.0):.0%}"
            lines.append(f"| {edges} | {len(own)} | {mean:.0%} | {words} |")
    brier = float(np.mean([(sure - right) ** 2 for sure, right in said])) if said else None
    return lines, brier


def peace_words(peace: Sequence[Watched]) -> list[str]:
    days = sum(one.gpu_days for one in peace) / PEACE_GPUS
    false = [(one, saying) for one in peace for saying in false_sayings(one.run)]
    if not days:
        return []
    most = (NONE_SEEN if not false else upper(len(false))) / days
    sums = (
        f"{days:.1f} days of {PEACE_GPUS} GPUs in {len(peace)} watches: {len(false)} false "
        f"incidents, {len(false) / days:.2g} a day; with 95 % certainty below {most:.2g} a day."
    )
    lines = [sums, ""]
    if false:
        lines += ["| seed | after | said with | what |", "|---:|---:|---:|---|"]
    for one, saying in false:
        after = (saying.said_ns - START_UNIX_NS) / NS
        lines.append(
            f"| {one.watch.seed} | {after:.0f} s | {saying.verdict.confidence:.0%} "
            f"| {saying.verdict.summary} |"
        )
    return lines


def by_chance(run: Run) -> int:
    return sum(is_by_chance(saying, run) for saying in run.sayings)


def upper(count: int) -> float:
    """The upper end of a one-sided interval of 95 % for a count (Wilson and Hilferty)."""
    z = 1.645
    k = count + 1
    return k * (1 - 1 / (9 * k) + z / (3 * math.sqrt(k))) ** 3


def markdown(trials: Sequence[Played], peace: Sequence[Watched]) -> str:
    single = [one for one in faults_in(trials) if one.played.trial.kind == "ladder"]
    unfelt = [one for one in trials if one.trial.kind == BEFORE]
    trials = [one for one in trials if one.trial.kind != BEFORE]
    broken = [one for one in trials if one.run.error]
    # Without those that had no place: nothing was played that a verdict could be wrong about.
    timed = [
        one
        for one in trials
        if one.trial.kind not in ("ladder", SHAPE, SIGHT) and not one.run.error
    ]
    several = faults_in(timed)
    reliable, brier = reliability(trials, peace)
    lines = ["## How small", "", *by_cost(single), ""]
    lines += ["By fault:", "", *by_group(single, lambda one: one.result.truth.fault, "fault"), ""]
    places = by_group(single, lambda one: f"{one.played.topology}, {one.played.fabric}", "fabric")
    lines += ["By fabric:", "", *places, ""]
    sizes = by_group(single, lambda one: f"{one.played.trial.hosts:5,} hosts", "size")
    lines += ["By size:", "", *sizes, ""]
    lines += [
        "## Several at once",
        "",
        *by_group(several, lambda one: one.played.trial.kind, "timing"),
        "",
    ]
    wrong = sum(len(false_sayings(one.run)) for one in timed)
    lines += [f"{wrong} verdicts in {len(timed)} such trials accused a part that had no fault.", ""]
    lines += ["## What can be told from what", ""]
    lines += [*told(trials, SHAPE, SHAPES, "shape of the jobs"), ""]
    lines += [*told(trials, SIGHT, SIGHTS, "what is seen"), ""]
    lines += ["## Before a job, by probes alone", "", *warned(unfelt), ""]
    lines += ["## In peace", "", *peace_words(peace), ""]
    brier_words = "-" if brier is None else f"{brier:.3f}"
    lines += [
        "## How sure, and how often right",
        "",
        *reliable,
        "",
        f"Brier score {brier_words}.",
        "",
    ]
    runs = [*(one.run for one in trials), *(one.run for one in peace)]
    if chance := sum(map(by_chance, runs)):
        lines += [f"{chance} verdicts are about flows that did meet by chance: not counted.", ""]
    if broken:
        lines += [f"{len(broken)} trials had no place for their faults and were left out.", ""]
    return "\n".join(lines)
