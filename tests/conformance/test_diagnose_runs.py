"""`diagnose` on real runs: who is named, and what is read, held against scripts of their own.

Whole runs lie beside the repository (`tests.tools.captures`); three that are cut short are our own,
and every clone has them. Each run is diagnosed once, so all that is asked of it is in this file.
"""

import gzip
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from api.diagnose.report import Diagnosis, JobReport
from collector.contract.verdict import Cause, Verdict
from tests.stands.diagnosing import ROOT, diagnose, report_of
from tests.tools.captures import CAPTURES, HANGS, RINGS, WANTED

OWN = ROOT / "tests/fixtures/diagnose"
FIXTURE = OWN / "net3"
RUNS = sorted(path.parent for path in (*CAPTURES.glob("*/*/truth.json"), *OWN.glob("*/truth.json")))
STALLS = "hang6"
"""This run's truth is a hang, and that the capture holds no evidence against any rank."""


def named(path: Path) -> str:
    return f"own-{path.name}" if path.parent == OWN else path.name


def case(path: Path, *marks: pytest.MarkDecorator) -> Any:  # noqa: ANN401 - pytest's own
    """A run for a test: our own always, the others in turn, and each in all tests at once."""
    in_turn = [] if path.parent == OWN else [pytest.mark.rotating(3, path.name)]
    return pytest.param(path, id=named(path), marks=[*marks, *in_turn])


needs_captures = pytest.mark.skipif(
    not CAPTURES.is_dir(), reason="the captures are not beside the repository"
)
each_run = pytest.mark.parametrize("run", [case(path) for path in RUNS])


@cache
def answer(run: Path) -> Diagnosis:
    return report_of(run)


def truth_of(run: Path) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((run / "truth.json").read_text("utf-8"))
    return truth


def accused(verdict: Verdict) -> set[int | None]:
    return {one.rank for one in (verdict.culprit, *verdict.accomplices)}


@pytest.mark.slow
@pytest.mark.parametrize("run", [case(path) for path in RUNS])
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


Key = tuple[str, str, int]
NAMES = {"AllReduce": "all_reduce", "AllGather": "all_gather"}


# --- a straightforward script that knows nothing of our code ------------------------------------


def read_logs(run: Path) -> dict[Key, list[tuple[int, int, int]]]:
    """Rank, entry and exit (nanoseconds) of all ranks in each operation, as the logs have them."""
    found: dict[Key, list[tuple[int, int, int]]] = {}
    for path in sorted((run / "inspector").iterdir()):
        data = path.read_bytes()
        for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines():
            record: dict[str, Any] = json.loads(line)
            perf = record["coll_perf"]
            kernels = perf["event_trace_ts"]["kernel_events"]
            entry = min(kernel["kernel_start_ts"] for kernel in kernels) * 1000
            leave = max(kernel["kernel_stop_ts"] for kernel in kernels) * 1000
            key = record["header"]["id"], NAMES[perf["coll"]], perf["coll_sn"]
            found.setdefault(key, []).append((record["header"]["rank"], entry, leave))
    return found


def split_logs(run: Path) -> dict[Key, tuple[int, int, int]]:
    """How many ranks each operation has, its entry skew and its transfer."""
    found = {}
    for key, parts in read_logs(run).items():
        last_entry = max(entry for _, entry, _ in parts)
        first_entry = min(entry for _, entry, _ in parts)
        found[key] = len(parts), last_entry - first_entry, max(x for _, _, x in parts) - last_entry
    return found


def read_rings(run: Path) -> dict[str, list[list[int]]]:
    """The rings that rank 0 of each communicator prints."""
    rings: dict[str, list[list[int]]] = {}
    for path in sorted((run / "nccl_debug").iterdir()):
        current = ""
        for line in path.read_text("utf-8", "replace").splitlines():
            if started := re.search(r"commId (0x[0-9a-f]+) - Init START", line):
                current = started[1][:16]
            elif ring := re.search(r"Channel \d+/\d+ :((?: +\d+)+)\s*$", line):
                rings.setdefault(current, []).append([int(rank) for rank in ring[1].split()])
    return rings


# --- healthy joins -----------------------------------------------------------------------------


each_ring = pytest.mark.parametrize("ring", [case(RINGS / name) for name in WANTED[RINGS.name]])


def main_job(report: Diagnosis) -> JobReport:
    return max(report.jobs, key=lambda job: job.collectives_total)


@pytest.mark.slow
@needs_captures
@each_ring
def test_every_collective_is_joined_over_its_ranks(ring: Path) -> None:
    report = answer(ring)
    job = main_job(report)
    counts = Counter((each.operation, each.ranks) for each in job.collectives)
    if ring.name.startswith("groups_"):
        assert counts == {("all_reduce", 4): 2 * 380, ("all_reduce", 2): 4 * 95}
        assert sorted(each.count for each in job.operations) == [95] * 4 + [380] * 2
    else:
        assert counts == {("all_reduce", 8): 95, ("all_gather", 8): 95}
    assert all(each.ranks_seen == each.ranks for each in job.collectives)
    assert all(each.lost == 0 for each in report.read.losses)
    assert report.read.broken == []


@pytest.mark.slow
@needs_captures
@each_ring
def test_skew_and_transfer_are_what_the_logs_say(ring: Path) -> None:
    report = answer(ring)
    expected = split_logs(ring)
    job = main_job(report)
    assert not any(clock.is_corrected for fit in job.clocks for clock in fit.clocks)
    seen = {
        (each.communicator, each.operation, each.sequence): (
            each.ranks_seen,
            each.entry_skew_ns,
            each.transfer_ns,
        )
        for each in job.collectives
    }
    assert seen == {key: value for key, value in expected.items() if key in seen}
    others = sum(each.collectives_total for each in report.jobs if each is not job)
    assert len(expected) == len(seen) + others


@pytest.mark.slow
@needs_captures
@each_ring
def test_rings_and_trees_are_as_in_the_debug_logs(ring: Path) -> None:
    report = answer(ring)
    seen = {each.communicator: each for each in main_job(report).communicators if each.rings}
    assert {name: each.rings for name, each in seen.items()} == read_rings(ring)
    assert all(len(each.trees) == len(each.rings) for each in seen.values())


@pytest.mark.slow
@needs_captures
@each_ring
def test_ranks_are_where_they_ran(ring: Path) -> None:
    report = answer(ring)
    ranks = main_job(report).ranks
    assert [(rank.rank, rank.host) for rank in ranks] == [(r, f"node{r}") for r in range(8)]
    assert {rank.gpu for rank in ranks} == {"0"}
    assert {rank.device for rank in ranks} == {"eth0"}


@pytest.mark.slow
@needs_captures
@each_ring
def test_steps_are_found(ring: Path) -> None:
    job = main_job(answer(ring))
    assert job.steps_from == "collectives"
    assert 94 <= len(job.steps) <= 96


# --- several jobs ------------------------------------------------------------------------------


@pytest.mark.slow
@needs_captures
def test_an_aborted_run_in_the_same_folder_is_a_job_of_its_own() -> None:
    report = answer(RINGS / "tree_net2")
    first, second = report.jobs
    assert (first.collectives_total, second.collectives_total) == (1, 190)
    assert first.size == second.size == 8
    assert not {rank.pid for rank in first.ranks} & {rank.pid for rank in second.ranks}
    # Dumps and traces are of the run that went on.
    assert [each.source for each in first.communicators] == ["nccl"]
    assert "process group" in {each.source for each in second.communicators}


@pytest.mark.slow
@needs_captures
def test_two_folders_at_once_give_what_each_gives_alone() -> None:
    together = report_of(RINGS / "net3", RINGS / "groups_cpu6")
    assert len(together.jobs) == 2
    for name in ("net3", "groups_cpu6"):
        alone = answer(RINGS / name).jobs[0]
        same = next(job for job in together.jobs if job.job == alone.job)
        assert same.collectives == alone.collectives
        assert same.ranks == alone.ranks
        assert len(same.communicators) == len(alone.communicators)


# --- dumps of hangs ----------------------------------------------------------------------------


@pytest.mark.slow
@needs_captures
@pytest.mark.parametrize("name", ["gpu_error", "lock_gil"])
def test_a_hang_shows_who_waits_and_who_does_not(name: str) -> None:
    culprits = set(json.loads((HANGS / name / "truth.json").read_bytes())["ranks"])
    (job,) = answer(HANGS / name).jobs
    assert (job.size, len(job.ranks)) == (16, 16)
    assert job.pending_total > 0
    members = {
        each.communicator: {member.job_rank for member in each.members}
        for each in job.communicators
    }
    told: set[int | None] = set()
    for each in job.pending:
        inside = set(each.job_ranks)
        if name == "gpu_error":
            told |= inside & culprits
        else:
            told |= (members[each.communicator] - inside) & culprits
    assert told == culprits


@pytest.mark.slow
@needs_captures
def test_two_dumps_of_one_size_stay_two_jobs() -> None:
    report = report_of(HANGS)
    assert [job.size for job in report.jobs] == [16, 16]
    assert report.read.broken == []


# --- our own run, which is always there ----------------------------------------------------------


def test_the_text_of_a_slow_nic_begins_with_who_was_read_and_its_name() -> None:
    """And the page: tests/e2e/test_report.py."""
    done = diagnose(FIXTURE)
    assert done.returncode == 0, done.stderr.decode()
    said = done.stdout.decode()
    assert said.startswith("All 8 ranks read")
    assert said.splitlines()[1].startswith("node3's NIC eth0")
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
