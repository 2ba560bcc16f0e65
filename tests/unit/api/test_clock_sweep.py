"""Clocks of any kind, with ground truth: errors are within what is stated, and nobody is guessed.

Offsets from 1 ms to 24 h, drifts of 200 ppm, clocks that are set while a job runs, few operations,
slow links, late ranks, several hosts at once. The table of each sweep is printed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pytest

from alerts.detectors import slow_link, straggler
from alerts.window.clocks import align
from alerts.window.columns import ClockFit, Records
from alerts.window.common_clock import correct, host_clocks
from alerts.window.split import lateness
from collector.contract.records import ABSENT
from collector.contract.units import NS
from tests.tools.cut import CUT
from tests.worlds.collectives import make_records, placing_errors, set_clocks, shift_clocks
from tests.worlds.late_jobs import make_job, make_window
from tests.worlds.shifted import realigned

MS = 1_000_000
HOUR = 3_600 * NS
WITHIN_MIN = 0.95
OFFSETS = (MS, 50 * MS, NS, 60 * NS, HOUR // 2, HOUR, 11 * HOUR // 2, 24 * HOUR, -HOUR)
STEPS = (5 * MS, 50 * MS, 200 * MS, NS, 60 * NS, HOUR)
JOBS: dict[str, dict[str, Any]] = {
    "usual": {},
    "4 steps": {"steps": 4},
    "a late rank": {"late": {3: 0.03}},
    "a slow link": {"transfer_seconds": 0.1},
    "4 ranks a host": {"hosts": 4, "ranks_per_host": 4},
    "5 minutes": {"steps": 300, "step_seconds": 1.0},
    "2 hosts": {"hosts": 2},
    "3 hosts": {"hosts": 3},
}


@dataclass
class Case:
    """A job, and what is wrong with its hosts' clocks."""

    job: str
    seed: int
    offsets: Mapping[int, float] = field(default_factory=dict)
    drifts: Mapping[int, float] = field(default_factory=dict)
    steps: Mapping[int, tuple[float, float]] = field(default_factory=dict)

    def records(self) -> tuple[Records, Records]:
        """As it was, and as it was written."""
        truth = make_records(seed=self.seed, **JOBS[self.job])
        offsets, drifts = np.zeros(len(truth.hosts)), np.zeros(len(truth.hosts))
        for host, offset in self.offsets.items():
            offsets[host] = offset
        for host, drift in self.drifts.items():
            drifts[host] = drift
        return truth, shift_clocks(set_clocks(truth, self.steps), offsets, drifts)


def odd_host(job: str) -> int:
    return min(2, int(JOBS[job].get("hosts", 8)) - 1)


def shifted_cases() -> Iterator[tuple[str, Case]]:
    for number, offset in enumerate(OFFSETS):
        for drift in (0.0, 2e-4, -2e-4):
            for job in JOBS:
                host = odd_host(job)
                yield f"{offset / NS:g} s", Case(job, number, {host: offset}, {host: drift})


def set_cases() -> Iterator[tuple[str, Case]]:
    for number, size in enumerate(STEPS):
        for step in (size, -size):
            for share in (0.1, 0.5, 0.9):
                for job in (name for name in JOBS if name != "4 steps"):
                    steps = {odd_host(job): (share, float(step))}
                    yield f"{step / NS:g} s", Case(job, 100 + number, steps=steps)


def mixed_cases() -> Iterator[tuple[str, Case]]:
    """Most hosts off, all drifting, some set: no two alike."""
    for seed in range(40):
        random = np.random.default_rng(seed)
        some = random.choice(8, random.integers(1, 7), replace=False).tolist()
        stepping = random.choice(8, random.integers(0, 3), replace=False).tolist()
        sign = random.choice([-1, 1], 16)
        yield (
            "mixed",
            Case(
                str(random.choice(["usual", "a late rank", "5 minutes"])),
                seed,
                {host: float(sign[host] * 10 ** random.uniform(6, 13.9)) for host in some},
                {host: float(random.uniform(-2e-4, 2e-4)) for host in range(8)},
                {
                    host: (
                        float(random.uniform(0.1, 0.9)),
                        float(sign[8 + host] * 10 ** random.uniform(6.7, 12.5)),
                    )
                    for host in stepping
                },
            ),
        )


def stated(fits: list[ClockFit], hosts: list[str]) -> np.ndarray:
    worst = dict.fromkeys(hosts, 0)
    for fit in fits:
        for clock in fit.clocks:
            worst[clock.host] = max(worst[clock.host], clock.residual_ns)
    return np.array([worst[host] for host in hosts], dtype=np.float64)


@pytest.mark.parametrize("sweep", [shifted_cases, set_cases, mixed_cases])
def test_errors_are_within_what_is_stated(sweep: Any) -> None:  # noqa: ANN401 - a generator
    table: dict[str, list[float]] = {}
    for name, case in CUT.choose(list(sweep()), 4):
        truth, written = case.records()
        fits = align(written)
        errors = placing_errors(correct(written, fits), truth)
        known = np.isfinite(errors)
        row = table.setdefault(name, [0, 0, 0, 0.0])
        row[0] += int(known.sum())
        row[1] += int((errors <= stated(fits, truth.hosts))[known].sum())
        row[2] += int((~known).sum())
        row[3] = max(row[3], float(errors[known].max(initial=0)) / MS)
    print(f"\n{'':10s} {'hosts':>6s} {'within':>7s} {'left out':>9s} {'worst error':>14s}")  # noqa: T201 - the table of the sweep
    for name, (hosts, within, left_out, worst) in table.items():
        print(f"{name:10s} {hosts:6.0f} {within:7.0f} {left_out:9.0f} {worst:11.3f} ms")  # noqa: T201 - the table of the sweep
    hosts, within, left_out, _ = np.array(list(table.values())).sum(0)
    assert within >= WITHIN_MIN * hosts
    assert left_out <= 0.01 * hosts


@pytest.mark.parametrize("offset", [HOUR, -24 * HOUR, 11 * HOUR // 2])
def test_a_late_rank_is_seen_wherever_its_clock_stands(offset: int) -> None:
    """And the host with the wrong clock is last no more often than before."""
    truth = make_records(late={3: 0.03}, seed=4)
    for odd in (3, 5):
        offsets = np.zeros(8)
        offsets[odd] = offset
        written = shift_clocks(truth, offsets, np.full(8, 1e-4) * (np.arange(8) == odd))
        late = lateness(correct(written, align(written)))
        rows = late.operation == late.operations.index("all_reduce")
        assert late.rank[rows][late.last_in[rows].argmax()] == 3
        assert late.last_in[rows][late.rank[rows] == 5][0] <= 2


def test_each_part_of_a_clock_that_was_set_says_where_it_stands() -> None:
    truth = make_records(seed=2)
    (fit,) = align(set_clocks(truth, {4: (0.5, 200 * MS)}))
    parts = [clock for clock in fit.clocks if clock.host == "node4"]
    assert len(parts) == 2
    assert len(fit.clocks) == 9
    before, after = sorted(parts, key=lambda clock: clock.from_ns or 0)
    assert before.to_ns is not None
    assert after.from_ns is not None
    assert before.to_ns < after.from_ns
    assert after.offset_ns - before.offset_ns == pytest.approx(200 * MS, abs=MS)


def test_an_operation_in_which_a_clock_was_set_has_no_times_on_that_host() -> None:
    truth = make_records(seed=2)
    # Between entry and exit of the 50th all-reduce.
    row = np.flatnonzero((truth.operation == 1) & (truth.sequence == 50) & (truth.host == 4))[0]
    start, end = int(truth.exit_ns.min()), int(truth.exit_ns.max())
    middle = (int(truth.entry_ns[row]) + int(truth.exit_ns[row])) // 2
    for step in (HOUR, -HOUR, -200 * MS):
        written = set_clocks(truth, {4: ((middle - start) / (end - start), float(step))})
        corrected = correct(written, align(written))
        assert corrected.exit_ns[row] == corrected.entry_ns[row] == ABSENT
        assert (corrected.exit_ns == ABSENT).sum() == 1
        assert np.nanmax(placing_errors(corrected, truth)) < MS


def wild(truth: Records, host: int, seed: int = 3) -> Records:
    """The same with a clock that jumps by seconds from one operation to the next."""
    random = np.random.default_rng(seed)
    jumps = random.uniform(-9 * NS, 9 * NS, int(truth.sequence.max()) + 1).astype(np.int64)
    ahead = np.where(truth.host == host, jumps[truth.sequence], 0)
    return msgspec.structs.replace(
        truth, entry_ns=truth.entry_ns + ahead, exit_ns=truth.exit_ns + ahead
    )


def test_a_clock_that_nothing_explains_is_left_out_by_name() -> None:
    truth = make_records(late={3: 0.03})
    written = wild(truth, 6)
    fits = align(written)
    corrected = correct(written, fits)
    assert {clock.host for fit in fits for clock in fit.clocks if not clock.is_known} == {"node6"}
    assert (corrected.exit_ns[truth.host == 6] == ABSENT).all()
    assert (corrected.exit_ns[truth.host != 6] == truth.exit_ns[truth.host != 6]).all()


def test_who_is_late_is_not_known_where_a_host_is_left_out() -> None:
    """The others may have waited for it."""
    extra = np.zeros((40, 8))
    extra[10:, 3] = 60.0
    job = make_job(extra_ms=extra)
    for written, accused in ((job.records, [3]), (wild(job.records, 3), [])):
        again = realigned(job, written)
        window = make_window(again, is_live=False)
        assert again.hosts_left_out == (set() if accused else {"node3"})
        assert [one.culprit.rank for one in straggler.detect(window)] == accused
        assert slow_link.detect(window) == []


def test_beyond_its_evidence_a_line_is_held() -> None:
    """A drift of 200 ppm would be 0.7 s in an hour; nobody has seen that hour."""
    truth = make_records(seed=5)
    offsets, drifts = np.zeros(8), np.zeros(8)
    offsets[2], drifts[2] = HOUR, 2e-4
    clock = host_clocks(align(shift_clocks(truth, offsets, drifts)))["node2"]
    last = int(clock.to_ns[-1])
    later = np.array([last, last + 10 * NS, last + HOUR], dtype=np.int64)
    ahead = clock.ahead_ns(np.zeros(3, dtype=np.int64), later)
    assert abs(ahead[0] - HOUR) < 2 * MS
    assert ahead[2] == ahead[1]
    assert ahead[1] - ahead[0] < 2e-4 * 1.1 * NS
