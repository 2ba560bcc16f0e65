"""Late ranks, stalls and hangs in real captures: detectors name the culprit and no other rank.

The captures lie beside the checkout; without them the tests are skipped.
"""

import functools
import gzip
import io
import json
import re

import msgspec
import numpy as np
import pytest

from alerts.detectors import hang, stall, straggler
from alerts.window.clocks import align
from alerts.window.columns import Records
from alerts.window.common_clock import correct
from alerts.window.model import Communicator, JobWindow, Rank, Window
from alerts.window.split import split
from alerts.window.steps import infer_steps
from collector.contract.collective import Collective
from collector.contract.verdict import Cause
from collector.formats import Origin, discover
from tests.tools.captures import HANGS, RINGS
from tests.worlds.collectives import shift_clocks, to_columns
from tests.worlds.late_jobs import make_window
from tests.worlds.windows import capture_window

LATE = {"compute5": 5, "cpu2": 2, "groups_cpu6": 6}
"""Runs with a late rank, and which."""
RUNS = sorted(path.name for path in RINGS.glob("*/") if (path / "inspector").is_dir())
SHIFT_NS = 2_000_000_000

pytestmark = pytest.mark.skipif(not RUNS, reason="no captures beside the repository")

Members = dict[tuple[str, int], int]
"""The job's rank of each communicator's rank."""


@functools.cache
def records_of(run: str, part: str) -> tuple[Records, Members]:
    """The run's records by the Inspector's logs or by Kineto's traces, one file for each rank."""
    pattern, name = {
        "inspector": (r"node(\d+)-pid\d+\.log", "nccl_inspector"),
        "kineto": (r"rank(\d+)\.pt\.trace\.json\.gz", "kineto"),
    }[part]
    found: list[Collective] = []
    members: Members = {}
    for path in sorted((RINGS / run / part).iterdir()):
        matched = re.fullmatch(pattern, path.name)
        content = path.read_bytes()
        # An aborted start may have left a few lines of another job.
        if matched is None or (part == "inspector" and content.count(b"\n") <= 5):
            continue
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        origin = Origin(path.name.removesuffix(".gz"))
        for record in discover()[name].parse(io.BytesIO(content), origin):
            if isinstance(record, Collective):
                found.append(record)
                members[record.communicator, record.rank] = int(matched[1])
    return to_columns(found), members


def job_of(records: Records, members: Members) -> JobWindow:
    """The job that these records are of, on clocks that they align themselves."""
    clocks = align(records)
    aligned = correct(records, clocks)
    sizes = {name: sum(one == name for one, _ in members) for name, _ in members}
    return JobWindow(
        job="run",
        size=len(set(members.values())),
        ranks={rank: Rank(rank=rank, host=f"node{rank}", gpu=0) for rank in members.values()},
        communicators={
            name: Communicator(
                name=name,
                ranks=size,
                job_rank={rank: job for (one, rank), job in members.items() if one == name},
            )
            for name, size in sizes.items()
        },
        source="nccl_inspector",
        records=aligned,
        operations=split(aligned),
        clocks=clocks,
        steps=infer_steps(aligned, members),
        is_running=False,
    )


@functools.cache
def window_of(run: str, part: str = "inspector") -> Window:
    """The run as a window."""
    return make_window(job_of(*records_of(run, part)), is_live=False)


def accused(window: Window) -> list[int | None]:
    return [one.culprit.rank for one in straggler.detect(window)]


@pytest.mark.parametrize("part", ["inspector", "kineto"])
@pytest.mark.parametrize("run", RUNS)
def test_late_ranks_are_named_and_nobody_else(run: str, part: str) -> None:
    assert accused(window_of(run, part)) == ([LATE[run]] if run in LATE else [])


@pytest.mark.parametrize("part", ["inspector", "kineto"])
@pytest.mark.parametrize("run", RUNS)
def test_only_the_run_that_stood_still_is_stalled(run: str, part: str) -> None:
    found = stall.detect(window_of(run, part))
    assert [one.cause for one in found] == ([Cause.STALL] if run == "hang6" else [])
    assert all(one.culprit.rank is None and not one.culprit.host for one in found)
    assert not hang.detect(window_of(run, part))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("run", RUNS)
def test_clocks_that_are_wrong_by_seconds_change_nothing(run: str, seed: int) -> None:
    records, members = records_of(run, "inspector")
    random = np.random.default_rng([seed, len(run)])
    offsets = random.uniform(-SHIFT_NS, SHIFT_NS, len(records.hosts))
    moved = shift_clocks(records, offsets, np.zeros(len(offsets)))
    window = make_window(job_of(moved, members), is_live=False)
    assert accused(window) == ([LATE[run]] if run in LATE else [])
    assert len(stall.detect(window)) == (run == "hang6")


@pytest.mark.parametrize("run", LATE)
def test_half_of_a_host_s_records_lost_accuse_nobody_else(run: str) -> None:
    window = window_of(run)
    job = max(window.jobs, key=lambda one: len(one.records))
    lost = (job.records.rank == 0) & (job.records.sequence % 8 < 4)
    kept: Records = job.records.select(~lost)
    thin = msgspec.structs.replace(job, records=kept, operations=split(kept))
    assert accused(msgspec.structs.replace(window, jobs=[thin])) in ([LATE[run]], [])


@pytest.mark.skipif(not HANGS.is_dir(), reason="no dumps beside the repository")
@pytest.mark.parametrize("run", ["gpu_error", "lock_gil"])
def test_dumps_of_a_hang_name_exactly_the_ranks_that_were_stopped(run: str) -> None:
    truth = json.loads((HANGS / run / "truth.json").read_text())
    (finding,) = hang.detect(capture_window(*sorted((HANGS / run).glob("_dump_*"))))
    assert finding.cause is Cause.HANG
    named = [finding.culprit.rank, *(one.rank for one in finding.accomplices)]
    assert named == truth["ranks"]
