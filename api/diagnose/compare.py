"""Two reports, held against each other: what changed, in words with both figures. Pure.

Only like is compared with like: operations of communicators of the same size and class of sizes,
tests of the same operation, size and number of ranks. A figure that differs by less than its noise
is equal, and that is said as well; what only one of the two has is named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np

from api.diagnose import units
from api.diagnose.report import Change, Comparison, Diagnosis, JobReport
from collector.contract.collective import Operation, size_class

T = TypeVar("T")

STEPS_MIN = 5
"""Steps of a run whose median is compared: of fewer, the first ones' warm-up is too much."""
OPERATIONS_MIN = 5
LARGE_BYTES = 1 << 20
"""From here on a test measures bandwidth; below it, latency, which differs from run to run."""

STEP_NOISE = 0.05
"""Shares by which figures of two runs of the same differ."""
OPERATION_NOISE = 0.10
TEST_NOISE = 0.05
LATENCY_NOISE = 0.25
WAIT_NOISE_NS = 200_000
"""Waiting is what is left of everything else: below this it is noise whatever its share."""

CHANGES_MAX = 200
FACTOR_MAX = 7.0
"""Of the logarithm of a change: a thousandfold is as important as more."""
NAMES_MAX = 16


WHOLE_STEP: Final = "a step takes"
WEIGHTS: Final = {
    "steps": 30.0,
    "collectives": 20.0,
    "nccl_tests": 20.0,
    "kernels": 12.0,
    "ranks": 11.0,
    "settings": 10.0,
    "topology": 10.0,
}
"""What users feel comes first; of one kind the largest factor."""


def weight(change: Change) -> float:
    """How important it is: figures by their factor, then what may be the cause of them."""
    by = min(abs(math.log(change.ratio)), FACTOR_MAX) if change.ratio else 0.0
    return WEIGHTS[change.kind] + by + (FACTOR_MAX if change.what == WHOLE_STEP else 0.0)


class Findings:
    """Collects what a comparison finds."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.equal: list[str] = []
        self.missing: list[str] = []

    def figure(
        self,
        kind: str,
        what: str,
        pair: tuple[float, float],
        noise: float,
        show: Callable[[float], str],
        *,
        is_rate: bool = False,
    ) -> bool:
        """Compare a figure; whether it changed. ``is_rate``: less is slower."""
        now, before = pair
        if now <= 0 or before <= 0:
            return False
        ratio = before / now if is_rate else now / before
        if abs(math.log(ratio)) < math.log1p(noise):
            return False
        text = f"{what}: {show(now)}, was {show(before)} ({factor(ratio)})"
        self.changes.append(
            Change(kind=kind, what=what, now=show(now), before=show(before), text=text, ratio=ratio)
        )
        return True

    def words(self, kind: str, what: str, now: str, before: str) -> None:
        """Compare what is no figure; an empty text is what the files do not have."""
        if not now and not before:
            return
        if not now or not before:
            where = "this run's" if not now else "the other run's"
            self.missing.append(f"{what}: not in {where} files")
        elif now == before:
            self.equal.append(f"{what}: {now}")
        else:
            text = f"{what}: {now}, was {before}"
            self.changes.append(Change(kind=kind, what=what, now=now, before=before, text=text))


def factor(ratio: float) -> str:
    """By how much slower or faster, as people say it.

    >>> factor(1.5), factor(0.5), factor(19.3), factor(1.07)
    ('50 % slower', '2 times as fast', '19 times as slow', '7 % slower')
    """
    if ratio >= 2:  # noqa: PLR2004 - from here on people say "times"
        return f"{ratio:.2g} times as slow"
    if ratio > 1:
        return f"{(ratio - 1) * 100:.0f} % slower"
    if ratio > 0.5:  # noqa: PLR2004 - the same
        return f"{(1 / ratio - 1) * 100:.0f} % faster"
    return f"{1 / ratio:.2g} times as fast"


def compare(now: Diagnosis, before: Diagnosis, against: Sequence[str]) -> Comparison:
    found = Findings()
    compare_steps(found, now, before)
    compare_collectives(found, now, before)
    compare_tests(found, now, before)
    compare_kernels(found, now, before)
    compare_settings(found, now, before)
    compare_topology(found, now, before)
    ordered = sorted(found.changes, key=lambda change: (-weight(change), change.what))
    return Comparison(
        against=list(against),
        changes=ordered[:CHANGES_MAX],
        changes_total=len(ordered),
        equal=found.equal[:CHANGES_MAX],
        missing=found.missing[:CHANGES_MAX],
    )


# Figures -----------------------------------------------------------------------------------------


def largest(diagnosis: Diagnosis) -> JobReport | None:
    """The job that is compared: of several, the one with the most ranks and then operations."""
    return max(diagnosis.jobs, key=lambda job: (job.size, job.collectives_total), default=None)


def compare_steps(found: Findings, now: Diagnosis, before: Diagnosis) -> None:
    jobs = [largest(now), largest(before)]
    counts = [len(job.steps) if job is not None else 0 for job in jobs]
    if not any(counts):
        return
    if min(counts) < STEPS_MIN:
        found.missing.append(
            f"steps: {counts[0]} in this run and {counts[1]} in the other; "
            f"{STEPS_MIN} are needed of both"
        )
        return
    medians = [step_medians(job) for job in jobs if job is not None]
    changed = []
    for name in ("step", "compute", "wait", "transfer"):
        pair = medians[0][name], medians[1][name]
        is_noise = name != "step" and abs(pair[0] - pair[1]) < WAIT_NOISE_NS
        what = WHOLE_STEP if name == "step" else f"{name} in a step"
        if not is_noise and found.figure("steps", what, pair, STEP_NOISE, units.duration):
            changed.append(name)
    if "step" not in changed:
        found.equal.append(
            f"steps: median {units.duration(medians[0]['step'])} (of {counts[0]:,}), "
            f"was {units.duration(medians[1]['step'])} (of {counts[1]:,})"
        )


def step_medians(job: JobReport) -> dict[str, float]:
    columns = {
        "step": [step.end_ns - step.start_ns for step in job.steps],
        "compute": [step.compute_ns for step in job.steps],
        "wait": [step.wait_ns for step in job.steps],
        "transfer": [step.transfer_ns for step in job.steps],
    }
    return {name: float(np.median(values)) for name, values in columns.items()}


Kind = tuple[int, str, str]
"""The communicator's size, the operation, the class of sizes."""


def compare_collectives(found: Findings, now: Diagnosis, before: Diagnosis) -> None:
    ours, theirs = (bandwidths(one) for one in (now, before))
    equal = 0
    for kind in sorted(ours.keys() & theirs.keys()):
        ranks, operation, size = kind
        what = f"{operation} up to {size} of {ranks} ranks, bus bandwidth"
        pair = ours[kind], theirs[kind]
        is_changed = found.figure(
            "collectives", what, pair, OPERATION_NOISE, units.rate, is_rate=True
        )
        equal += not is_changed
    if equal:
        kinds = units.count(equal, "kind")
        found.equal.append(f"bus bandwidth of {kinds} of collectives, within 10 %")
    name_others(found, "collectives", ours.keys(), theirs.keys(), show_kind)


def show_kind(kind: Kind) -> str:
    return f"{kind[1]} up to {kind[2]} of {kind[0]} ranks"


def bandwidths(diagnosis: Diagnosis) -> dict[Kind, float]:
    """The median bus bandwidth of each kind of operation, over all communicators of its size."""
    seen: dict[Kind, list[tuple[float, int]]] = {}
    for job in diagnosis.jobs:
        sizes = {each.communicator: each.ranks for each in job.communicators}
        for one in job.operations:
            bus = one.bus_bandwidth_bytes_per_second
            if bus and one.size_bytes is not None:
                kind = sizes.get(one.communicator, 0), one.operation, size_class(one.size_bytes)
                seen.setdefault(kind, []).append((bus, one.count))
    return {
        kind: weighted_median(values)
        for kind, values in seen.items()
        if sum(count for _, count in values) >= OPERATIONS_MIN
    }


def weighted_median(values: Iterable[tuple[float, int]]) -> float:
    ordered = sorted(values)
    half = sum(count for _, count in ordered) / 2
    for value, count in ordered:
        half -= count
        if half <= 0:
            return value
    return ordered[-1][0]


Measured = tuple[str, int, int, str]
"""The operation, its ranks, the size, the placement."""


def compare_tests(found: Findings, now: Diagnosis, before: Diagnosis) -> None:
    """Of each operation the size that changed most; wrong values whatever they were before."""
    ours, theirs = (results(one) for one in (now, before))
    by_test: dict[tuple[str, int], list[Measured]] = {}
    for key in ours.keys() & theirs.keys():
        by_test.setdefault(key[:2], []).append(key)
    for (operation, ranks), keys in sorted(by_test.items()):
        who = f"{operation} of nccl-tests, {ranks} ranks"
        large = [key for key in keys if key[2] >= LARGE_BYTES] or keys
        noise = TEST_NOISE if large is not keys else LATENCY_NOISE
        worst = max(large, key=lambda key: abs(math.log(theirs[key] / ours[key])))
        what = f"{who}, bus bandwidth at {units.size(worst[2])} {worst[3].replace('_', ' ')}"
        pair = ours[worst], theirs[worst]
        if not found.figure("nccl_tests", what, pair, noise, units.rate, is_rate=True):
            most = max(large, key=lambda key: key[2])
            found.equal.append(
                f"{who}: {units.rate(ours[most])} bus at {units.size(most[2])}, was "
                f"{units.rate(theirs[most])}; {units.count(len(large), 'size')} within "
                f"{noise:.0%}"
            )
    wrong = [sum(test.wrong for test in one.nccl_tests) for one in (now, before)]
    if any(wrong):
        found.words("nccl_tests", "rows of nccl-tests with wrong values", *map(str, wrong))
    tests = [{(key[0], key[1]) for key in one} for one in (ours, theirs)]
    name_others(
        found, "nccl-tests", tests[0], tests[1], lambda test: f"{test[0]} of {test[1]} ranks"
    )
    for side, one in (("this run", now), ("the other run", before)):
        unknown = [t.path for t in one.nccl_tests if not t.ranks or t.operation == Operation.OTHER]
        if unknown:
            found.missing.append(
                f"nccl-tests of {side} whose operation or number of ranks the file does not say: "
                f"{names(unknown)}"
            )


def results(diagnosis: Diagnosis) -> dict[Measured, float]:
    """The best bus bandwidth of each test; those that are too small for a figure are left out.

    A table whose operation or ranks are not known is like no other.
    """
    found: dict[Measured, float] = {}
    for test in diagnosis.nccl_tests:
        if test.ranks is None or test.operation == Operation.OTHER.value:
            continue
        for row in test.rows:
            bus = row.bus_bytes_per_second
            if bus:
                key = test.operation, test.ranks, row.size_bytes, row.placement
                found[key] = max(bus, found.get(key, 0.0))
    return found


def compare_kernels(found: Findings, now: Diagnosis, before: Diagnosis) -> None:
    """What profiles say of the GPU's time, as shares of it: windows differ in length."""
    ours, theirs = (shares(one) for one in (now, before))
    for name in sorted(ours.keys() & theirs.keys()):
        pair = ours[name], theirs[name]
        if abs(pair[0] - pair[1]) < STEP_NOISE:
            found.equal.append(f"GPU's time for {name}: {pair[0]:.0%}, was {pair[1]:.0%}")
        else:
            what = f"GPU's time for {name}, by profiles"
            text = f"{what}: {pair[0]:.0%}, was {pair[1]:.0%}"
            found.changes.append(
                Change(
                    kind="kernels", what=what, now=f"{pair[0]:.0%}", before=f"{pair[1]:.0%}",
                    text=text,
                )
            )  # fmt: skip


def shares(diagnosis: Diagnosis) -> dict[str, float]:
    """By phase, the median share over the profiled ranks."""
    seen: dict[str, list[float]] = {}
    for profile in diagnosis.profiles:
        whole = profile.milliseconds.get("window", 0.0)
        for phase, value in profile.milliseconds.items():
            if whole > 0 and phase != "window":
                seen.setdefault(phase, []).append(value / whole)
    return {phase: float(np.median(values)) for phase, values in seen.items()}


# What is no figure -------------------------------------------------------------------------------


def compare_settings(found: Findings, now: Diagnosis, before: Diagnosis) -> None:
    """Versions and variables. One that only one run sets is a change where both have logs."""
    versions = [
        ", ".join(sorted({version for job in one.jobs for version in job.nccl_versions}))
        for one in (now, before)
    ]
    found.words("settings", "NCCL", *versions)
    ours, theirs = ({each.name: each.values for each in one.nccl_settings} for one in (now, before))
    if not ours and not theirs:
        return
    if not ours or not theirs:
        where = "this run" if not ours else "the other run"
        found.missing.append(f"NCCL's settings: no log of {where} has any (NCCL_DEBUG=INFO)")
        return
    equal = 0
    for name in sorted(ours.keys() | theirs.keys()):
        pair = [shown_values(one.get(name, {})) for one in (ours, theirs)]
        if pair[0] == pair[1]:
            equal += 1
        else:
            found.words("settings", name, pair[0] or "not set", pair[1] or "not set")
    if equal:
        found.equal.append(f"{units.count(equal, 'setting')} of NCCL and the driver")


def shown_values(values: Mapping[str, int]) -> str:
    """A setting's values; with how many hosts, where they differ."""
    if len(values) == 1:
        return next(iter(values))
    return ", ".join(f"{value} ({units.count(hosts, 'host')})" for value, hosts in values.items())


def compare_topology(found: Findings, now: Diagnosis, before: Diagnosis) -> None:
    jobs = largest(now), largest(before)
    if jobs[0] is None or jobs[1] is None:
        if any(job is not None for job in jobs):
            where = "this run" if jobs[0] is None else "the other run"
            found.missing.append(f"jobs: the files of {where} have none")
        return
    found.words("ranks", "ranks", *(f"{job.size:,}" for job in jobs if job is not None))
    places = [sorted({rank.host for rank in job.ranks if rank.host}) for job in jobs if job]
    if places[0] and places[1] and places[0] != places[1]:
        gone, new = (sorted(set(a) - set(b)) for a, b in (places[::-1], places))
        now_text, before_text = (f"{len(each)}: {names(each)}" for each in places)
        text = f"hosts: {names(new) or 'none'} new, {names(gone) or 'none'} gone"
        found.changes.append(
            Change(kind="ranks", what="hosts", now=now_text, before=before_text, text=text)
        )
    else:
        found.words("ranks", "hosts", *(names(each) for each in places))
    pair = [job for job in jobs if job is not None]
    found.words("topology", "network", *(", ".join(job.networks) for job in pair))
    found.words("topology", "NICs of ranks", *(devices(job) for job in pair))
    found.words("topology", "rings and trees of the largest communicator", *(map(wiring, pair)))


def devices(job: JobReport) -> str:
    """The distinct NICs, by how many ranks use each."""
    seen: dict[str, int] = {}
    for rank in job.ranks:
        if rank.device:
            seen[rank.device] = seen.get(rank.device, 0) + 1
    shown = [f"{name} ({units.count(count, 'rank')})" for name, count in sorted(seen.items())]
    return names(shown)


def wiring(job: JobReport) -> str:
    wired = [each for each in job.communicators if each.wiring]
    if not wired:
        return ""
    first = max(wired, key=lambda each: each.ranks)
    order = " ".join(map(str, first.rings[0][:NAMES_MAX])) if first.rings else ""
    return f"{first.wiring} of {first.ranks} ranks" + (f", the first {order}" if order else "")


def names(some: Sequence[str]) -> str:
    more = f" and {len(some) - NAMES_MAX} more" if len(some) > NAMES_MAX else ""
    return ", ".join(some[:NAMES_MAX]) + more


def name_others(
    found: Findings, what: str, ours: Iterable[T], theirs: Iterable[T], show: Callable[[T], str]
) -> None:
    """Note what only one of the runs has."""
    mine, other = set(ours), set(theirs)
    for side, only in (("this run", mine - other), ("the other run", other - mine)):
        if only and (mine and other):
            found.missing.append(f"{what} only in {side}: {names(sorted(map(show, only)))}")
    if bool(mine) != bool(other):
        side = "this run" if mine else "the other run"
        found.missing.append(f"{what}: only {side} has any")
