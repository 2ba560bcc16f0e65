"""`diagnose` on whole real runs, held against a script that knows nothing of our code.

The captures lie beside the repository; where they are not, these tests are skipped.
"""

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from api.diagnose.report import Diagnosis, JobReport
from tests.stands.diagnosing import report_of
from tests.tools.captures import CAPTURES, HANGS, RINGS, WANTED

RUNS = WANTED[RINGS.name]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CAPTURES.is_dir(), reason="the captures are not beside the repository"),
]

Key = tuple[str, str, int]
NAMES = {"AllReduce": "all_reduce", "AllGather": "all_gather"}


# --- the straightforward script ----------------------------------------------------------------


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


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest) -> tuple[Path, Diagnosis]:
    return RINGS / request.param, report_of(RINGS / request.param)


def main_job(report: Diagnosis) -> JobReport:
    return max(report.jobs, key=lambda job: job.collectives_total)


def test_every_collective_is_joined_over_its_ranks(run: tuple[Path, Diagnosis]) -> None:
    path, report = run
    job = main_job(report)
    counts = Counter((each.operation, each.ranks) for each in job.collectives)
    if path.name.startswith("groups_"):
        assert counts == {("all_reduce", 4): 2 * 380, ("all_reduce", 2): 4 * 95}
        assert sorted(each.count for each in job.operations) == [95] * 4 + [380] * 2
    else:
        assert counts == {("all_reduce", 8): 95, ("all_gather", 8): 95}
    assert all(each.ranks_seen == each.ranks for each in job.collectives)
    assert all(each.lost == 0 for each in report.read.losses)
    assert report.read.broken == []


def test_skew_and_transfer_are_what_the_logs_say(run: tuple[Path, Diagnosis]) -> None:
    path, report = run
    expected = split_logs(path)
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


def test_rings_and_trees_are_as_in_the_debug_logs(run: tuple[Path, Diagnosis]) -> None:
    path, report = run
    seen = {each.communicator: each for each in main_job(report).communicators if each.rings}
    assert {name: each.rings for name, each in seen.items()} == read_rings(path)
    assert all(len(each.trees) == len(each.rings) for each in seen.values())


def test_ranks_are_where_they_ran(run: tuple[Path, Diagnosis]) -> None:
    _, report = run
    ranks = main_job(report).ranks
    assert [(rank.rank, rank.host) for rank in ranks] == [(r, f"node{r}") for r in range(8)]
    assert {rank.gpu for rank in ranks} == {"0"}
    assert {rank.device for rank in ranks} == {"eth0"}


def test_steps_are_found(run: tuple[Path, Diagnosis]) -> None:
    job = main_job(run[1])
    assert job.steps_from == "collectives"
    assert 94 <= len(job.steps) <= 96


# --- several jobs ------------------------------------------------------------------------------


def test_an_aborted_run_in_the_same_folder_is_a_job_of_its_own() -> None:
    report = report_of(RINGS / "tree_net2")
    first, second = report.jobs
    assert (first.collectives_total, second.collectives_total) == (1, 190)
    assert first.size == second.size == 8
    assert not {rank.pid for rank in first.ranks} & {rank.pid for rank in second.ranks}
    # Dumps and traces are of the run that went on.
    assert [each.source for each in first.communicators] == ["nccl"]
    assert "process group" in {each.source for each in second.communicators}


def test_two_folders_at_once_give_what_each_gives_alone() -> None:
    together = report_of(RINGS / "net3", RINGS / "groups_cpu6")
    assert len(together.jobs) == 2
    for name in ("net3", "groups_cpu6"):
        alone = report_of(RINGS / name).jobs[0]
        same = next(job for job in together.jobs if job.job == alone.job)
        assert same.collectives == alone.collectives
        assert same.ranks == alone.ranks
        assert len(same.communicators) == len(alone.communicators)


# --- dumps of hangs ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpu_error", "lock_gil"])
def test_a_hang_shows_who_waits_and_who_does_not(name: str) -> None:
    culprits = set(json.loads((HANGS / name / "truth.json").read_bytes())["ranks"])
    (job,) = report_of(HANGS / name).jobs
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


def test_two_dumps_of_one_size_stay_two_jobs() -> None:
    report = report_of(HANGS)
    assert [job.size for job in report.jobs] == [16, 16]
    assert report.read.broken == []
