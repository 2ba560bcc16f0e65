"""The same run as other versions of NCCL Inspector would have written it, and on other clocks."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from api.diagnose.report import Diagnosis, JobReport
from tests.stands.diagnosing import ROOT, diagnose, report_of

LOGS = sorted((ROOT / "tests/fixtures/diagnose/net3/inspector").glob("*.gz"))
START_US = 1_794_700_790_000_000

Line = dict[str, Any]


def rewrite(folder: Path, change: Callable[[list[Line]], list[Line]]) -> Path:
    """The fixture's logs with each file's lines changed."""
    for path in LOGS:
        lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        text = "".join(json.dumps(line) + "\n" for line in change(lines))
        (folder / path.name.removesuffix(".gz")).write_text(text, encoding="utf-8")
    return folder


def job_of(report: Diagnosis) -> JobReport:
    (job,) = report.jobs
    return job


@pytest.fixture(scope="module")
def verbose() -> JobReport:
    return job_of(report_of(LOGS[0].parent))


def test_durations_alone_still_tell_who_was_waited_for(tmp_path: Path, verbose: JobReport) -> None:
    """Not verbose: no entry times, but durations show which rank spent the least time inside."""

    def silence(lines: list[Line]) -> list[Line]:
        for line in lines:
            del line["coll_perf"]["event_trace_ts"], line["coll_perf"]["event_trace_sn"]
        return lines

    job = job_of(report_of(rewrite(tmp_path, silence)))
    assert job.source == "nccl_inspector"
    assert "an estimate" in job.source_reason
    counts = [(each.operation, each.count, each.complete) for each in job.operations]
    assert counts == [(each.operation, each.count, each.complete) for each in verbose.operations]
    # Waiting is a difference of durations, which the estimate does not change by much.
    pairs = zip(job.collectives, verbose.collectives, strict=True)
    ratios = [one.entry_skew_ns / max(1, other.entry_skew_ns) for one, other in pairs]
    assert 0.5 < float(np.median(ratios)) < 2


def test_headers_that_many_lines_share_change_nothing(tmp_path: Path, verbose: JobReport) -> None:
    """Format 4.3: one marker holds for the lines after it."""
    random = Random(4)

    def share(lines: list[Line]) -> list[Line]:
        shared: list[Line] = []
        while lines:
            some, lines = lines[: (count := random.randint(1, 9))], lines[count:]
            marker = {key: some[-1][key] for key in ("header", "metadata")}
            shared.append(marker | {"dump_stats": {"coll_records": len(some), "p2p_records": 0}})
            shared += [{"coll_perf": line["coll_perf"]} for line in some]
        return shared

    job = job_of(report_of(rewrite(tmp_path, share)))
    assert job.collectives == verbose.collectives


def test_clocks_that_stand_apart_are_said_and_put_right(tmp_path: Path, verbose: JobReport) -> None:
    random = Random(7)
    clocks: dict[str, tuple[float, float]] = {}

    def shift(lines: list[Line]) -> list[Line]:
        host = lines[0]["metadata"]["hostname"]
        offset, drift = clocks[host] = random.uniform(-2.5e5, 2.5e5), random.uniform(-5e-5, 5e-5)
        for line in lines:
            trace = line["coll_perf"]["event_trace_ts"]
            for moment in (line["metadata"], trace, *trace["kernel_events"]):
                for key, time_us in moment.items():
                    if key.endswith(("_ts", "_us")):
                        moment[key] = round(time_us + offset + drift * (time_us - START_US))
        return lines

    job = job_of(report_of(rewrite(tmp_path, shift)))
    (fit,) = job.clocks
    assert all(clock.is_corrected for clock in fit.clocks)
    elapsed_us = fit.middle_ns / 1000 - START_US
    errors = np.array(
        [
            clock.offset_ns / 1000 - clocks[clock.host][0] - clocks[clock.host][1] * elapsed_us
            for clock in fit.clocks
        ]
    )
    errors = np.abs(errors - np.median(errors)) * 1000
    assert errors.max() < 1_000_000
    assert (errors <= [clock.residual_ns for clock in fit.clocks]).mean() > 0.7
    skews = [
        abs(one.entry_skew_ns - other.entry_skew_ns)
        for one, other in zip(job.collectives, verbose.collectives, strict=True)
    ]
    assert float(np.median(skews)) < 1_000_000


def test_a_host_in_another_time_zone_is_said_and_joined_with_the_others(
    tmp_path: Path, verbose: JobReport
) -> None:
    """And the job lasts as long as it did."""

    def shift(lines: list[Line]) -> list[Line]:
        if lines[0]["metadata"]["hostname"] == "node3":
            for line in lines:
                trace = line["coll_perf"]["event_trace_ts"]
                for moment in (line["metadata"], trace, *trace["kernel_events"]):
                    for key, time_us in moment.items():
                        if key.endswith(("_ts", "_us")):
                            moment[key] = time_us + 19_800_000_000
        return lines

    folder = rewrite(tmp_path, shift)
    job = job_of(report_of(folder))
    assert len(job.collectives) == len(verbose.collectives)
    assert all(each.ranks_seen == each.ranks for each in job.collectives)
    took, usual = (each.last_ns - each.first_ns for each in (job, verbose))
    assert abs(took - usual) < 1_000_000
    skews = [
        abs(one.entry_skew_ns - other.entry_skew_ns)
        for one, other in zip(job.collectives, verbose.collectives, strict=True)
    ]
    assert max(skews) < 2_000_000
    said = diagnose(folder).stdout.decode()
    assert "node3's clock is 5.5 h ahead (a time zone?)." in said


def test_durations_alone_are_put_in_order_though_a_host_is_hours_away(tmp_path: Path) -> None:
    """Not verbose: there is only when a line was written."""

    def shift(lines: list[Line]) -> list[Line]:
        ahead_us = 7_200_000_000 if lines[0]["metadata"]["hostname"] == "node3" else 0
        for line in lines:
            line["coll_perf"].pop("event_trace_ts", None)
            line["coll_perf"].pop("event_trace_sn", None)
            line["metadata"]["dump_timestamp_us"] += ahead_us
        return lines

    job = job_of(report_of(rewrite(tmp_path, shift)))
    assert "estimate" in job.source_reason
    (moved,) = [c for fit in job.clocks for c in fit.clocks if c.is_corrected]
    assert (moved.host, round(moved.offset_ns / 6e10)) == ("node3", 120)
    assert job.last_ns - job.first_ns < 60_000_000_000
    starts = [each.start_ns for each in job.collectives]
    assert max(starts) - min(starts) < 60_000_000_000


BASELINE = """\
# nccl-tests version 2.18.3 nccl-headers=23003 nccl-library=23003
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8388608 maxBytes 8388608 step: 2(factor) warmup iters: 1 iters: 20
{ranks}
     4194304       1048576     float     sum      -1  9973.2    0.84    1.47      0   9969.7    0.84    1.49      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 1.48
"""  # noqa: E501 - as it is printed


def test_results_of_nccl_tests_stand_beside_the_job_s(tmp_path: Path) -> None:
    """The best of as many ranks and a size nearby; other operations have none."""
    ranks = "\n".join(
        f"#  Rank  {rank} Group  0 Pid   {rank} on node{rank} device  0 [0000:04:00] NVIDIA H200"
        for rank in range(8)
    )
    (tmp_path / "all_reduce.txt").write_text(BASELINE.format(ranks=ranks), encoding="utf-8")
    job = job_of(report_of(rewrite(tmp_path, lambda lines: lines)))
    reached = {each.operation: each.baseline_bytes_per_second for each in job.operations}
    assert reached == {"all_reduce": pytest.approx(1.49e9), "all_gather": None}
