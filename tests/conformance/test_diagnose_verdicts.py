"""`diagnose` on real runs with known faults: it names the culprit, and none in a healthy run.

Whole runs lie beside the repository (`tests.tools.captures`); three that are cut short are our own,
and every clone has them.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from api.diagnose.report import Diagnosis
from collector.contract.verdict import Cause, Verdict
from tests.stands.diagnosing import ROOT, diagnose, report_of
from tests.tools.captures import CAPTURES

OWN = ROOT / "tests/fixtures/diagnose"
FIXTURE = OWN / "net3"
RUNS = sorted(path.parent for path in (*CAPTURES.glob("*/*/truth.json"), *OWN.glob("*/truth.json")))
STALLS = "hang6"
"""This run's truth is a hang, and that the capture holds no evidence against any rank."""

MISSED = {
    "h200-pipeline/late0": "a pipeline's late rank waits in send and receive, which no detector"
    " follows from rank to rank yet: `diagnose` reports nothing where it should name rank 0",
}
"""Runs whose culprit `diagnose` is known to miss. Strict: the entry goes when the miss does."""


def named(path: Path) -> str:
    return f"own-{path.name}" if path.parent == OWN else path.name


def judged(path: Path) -> object:
    missed = MISSED.get(f"{path.parent.name}/{path.name}")
    marks = [pytest.mark.xfail(reason=missed, raises=ValueError, strict=True)] if missed else []
    return pytest.param(path, id=named(path), marks=marks)


each_run = pytest.mark.parametrize("run", RUNS, ids=named)


@cache
def answer(run: Path) -> Diagnosis:
    return report_of(run)


def truth_of(run: Path) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((run / "truth.json").read_text("utf-8"))
    return truth


def accused(verdict: Verdict) -> set[int | None]:
    return {one.rank for one in (verdict.culprit, *verdict.accomplices)}


@pytest.mark.slow
@pytest.mark.parametrize("run", [judged(path) for path in RUNS])
def test_the_culprit_is_named_and_nobody_else(run: Path) -> None:
    truth, verdicts = truth_of(run), answer(run).verdicts
    if truth["cause"] == "none":
        assert verdicts == []
        return
    (verdict,) = verdicts
    if run.name == STALLS:
        assert (verdict.cause, verdict.culprit.rank, verdict.culprit.host) == (
            Cause.STALL,
            None,
            "",
        )
    elif "ranks" in truth:
        assert verdict.cause is Cause.HANG
        assert accused(verdict) == set(truth["ranks"])
    else:
        assert (verdict.cause, verdict.culprit.host) == (truth["cause"], truth["host"])
        assert verdict.accomplices == ()
        if truth["cause"] == "slow_link":
            assert verdict.culprit.device, "a NIC is named by its name"
        else:
            assert verdict.culprit.rank == truth["rank"]


@pytest.mark.slow
@each_run
def test_every_verdict_has_words_evidence_and_a_time_within_the_run(run: Path) -> None:
    diagnosis = answer(run)
    first = min(job.first_ns for job in diagnosis.jobs)
    last = max(job.last_ns for job in diagnosis.jobs)
    for verdict in diagnosis.verdicts:
        assert verdict.summary.endswith(".")
        assert verdict.action.endswith(".")
        assert verdict.evidence
        assert 0.5 <= verdict.confidence <= 1
        assert first <= verdict.since_ns <= last
        assert verdict.until_ns is None or verdict.since_ns <= verdict.until_ns <= last
        assert verdict.culprit not in verdict.victims
        for cost in verdict.costs:
            assert 0 <= cost.lost_share <= 1


@pytest.mark.slow
@each_run
def test_no_detector_failed_on_real_data(run: Path) -> None:
    assert [one for one in answer(run).detectors if one.problem] == []


@pytest.mark.slow
@each_run
def test_a_fault_is_placed_where_it_was(run: Path) -> None:
    """Half of the time that is blamed, and half of the fault, must be the same time."""
    truth = truth_of(run)
    if "fault_off_ns" not in truth:
        pytest.skip("the truth has no end of the fault")
    diagnosis = answer(run)
    # A run that was cut short ends while its fault acts.
    off_ns = min(truth["fault_off_ns"], max(job.last_ns for job in diagnosis.jobs))
    for verdict in diagnosis.verdicts:
        until = verdict.until_ns or off_ns
        both = min(until, off_ns) - max(verdict.since_ns, truth["fault_on_ns"])
        fault = off_ns - truth["fault_on_ns"]
        assert both > 0.5 * fault
        assert both > 0.5 * (until - verdict.since_ns)


# --- our own run, which is always there ----------------------------------------------------------


def test_the_text_of_a_slow_nic_begins_with_its_name() -> None:
    """And the page: tests/e2e/test_report.py."""
    done = diagnose(FIXTURE)
    assert done.returncode == 0, done.stderr.decode()
    said = done.stdout.decode()
    assert said.startswith("node3's NIC eth0")
    assert "\nRead " in said


def test_a_time_before_the_fault_has_no_verdict() -> None:
    """The run's first second is healthy, whatever comes later."""
    whole = report_of(FIXTURE)
    (verdict,) = whole.verdicts
    assert verdict.culprit.host == "node3"
    end = f"{(verdict.since_ns - 300_000_000) / 1e9:.3f}"
    assert report_of(FIXTURE, "--to", end).verdicts == []


def test_readings_without_a_job_are_looked_at_too(tmp_path: Path) -> None:
    """A file of counters alone has a time of its own, and detectors see it."""
    lines = ["# TYPE node_network_transmit_bytes_total counter"]
    lines += [
        f'node_network_transmit_bytes_total{{instance="a",device="eth0"}} {second * 1000} '
        f"{1_800_000_000 + second}"
        for second in range(30)
    ]
    (tmp_path / "nic.openmetrics").write_text("\n".join([*lines, "# EOF", ""]))
    diagnosis = report_of(tmp_path)
    assert diagnosis.jobs == []
    assert diagnosis.verdicts == []
    assert diagnosis.looked_at["ports"] == 1
