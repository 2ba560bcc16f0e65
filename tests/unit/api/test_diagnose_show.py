"""What is shown: plots, the page and the text, with names that were made to do harm."""

import io
import re

import msgspec
import numpy as np
import pytest

from alerts.columns import Step
from api.diagnose import cards, page, plots, text, units
from api.diagnose.plots import Plot, Scale
from api.diagnose.report import (
    CollectiveReport,
    CommunicatorReport,
    Diagnosis,
    JobReport,
    LatenessReport,
    MemberReport,
    OperationReport,
    PendingReport,
    Problem,
    Quantiles,
    RankReport,
    Read,
    Warned,
    to_json,
)

EVIL = '<img src=x onerror="alert(1)">&[bold red]\x1b[2J'
START_NS = 1_794_700_000_000_000_000
MS = 1_000_000


def a_job(ranks: int = 3) -> JobReport:
    collectives = [
        CollectiveReport(
            communicator=EVIL, operation=EVIL, sequence=number, size_bytes=None, ranks=ranks,
            ranks_seen=ranks, start_ns=START_NS + number * MS, end_ns=START_NS + number * MS + MS,
            entry_skew_ns=number * 1000, transfer_ns=5, last_in=1, last_in_job_rank=None,
            last_in_host=EVIL, slower_ns=number,
        )
        for number in range(20)
    ]  # fmt: skip
    steps = [
        Step(
            number=number, start_ns=START_NS + number * MS, end_ns=START_NS + (number + 1) * MS,
            ranks=ranks, compute_ns=MS // 2, wait_ns=MS // 4, transfer_ns=MS // 4, last_rank=1,
        )
        for number in range(50)
    ]  # fmt: skip
    return JobReport(
        job=EVIL, was_said=False, size=ranks, first_ns=START_NS, last_ns=START_NS + 10**9,
        nccl_versions=[EVIL], networks=[EVIL], source="nccl_inspector", source_reason=EVIL,
        kept_one_in=2,
        ranks=[
            RankReport(
                rank=rank, host=EVIL, pid=1, gpu=EVIL, device=EVIL, local_rank=0, origins={},
                operations=20, last_in=rank, is_outlier=rank == 2,
            )
            for rank in range(ranks)
        ],
        communicators=[
            CommunicatorReport(
                communicator=EVIL, name=EVIL, source="nccl", ranks=ranks, nodes=None,
                members=[MemberReport(rank=0, job_rank=0, host=EVIL)], rings=[[0, 1, 2]],
                trees=[], operations={EVIL: 20},
            )
        ],
        clocks=[], steps_from="collectives", steps=steps,
        operations=[
            OperationReport(
                communicator=EVIL, operation=EVIL, size_bytes=1, count=20, complete=19, lost=1,
                entry_skew=Quantiles(p50_ns=1, p95_ns=2, max_ns=3),
                transfer=Quantiles(p50_ns=1, p95_ns=2, max_ns=3),
                bus_bandwidth_bytes_per_second=None,
            )
        ],
        collectives=collectives, collectives_total=20,
        lateness=[
            LatenessReport(
                rank=0, communicator=EVIL, communicator_rank=0, operation=EVIL, host=EVIL,
                operations=1, last_in=1, least_inside=1, median_late_ns=1, most_late_ns=1,
                median_inside_ns=1,
            )
        ],
        pending=[
            PendingReport(
                communicator=EVIL, operation=EVIL, sequence=1, ranks=3, scheduled=[0], started=[],
                completed=[], job_ranks=[0],
            )
        ],
        pending_total=1,
    )  # fmt: skip


def a_diagnosis(ranks: int = 3) -> Diagnosis:
    problem = Problem(path=EVIL, format="", problem_count=2, problems=[EVIL, EVIL])
    read = Read(
        files=3, size_bytes=10, formats=[], not_understood=[problem], not_understood_count=1,
        broken=[problem], broken_count=1, left_out=[problem], losses=[],
    )  # fmt: skip
    warned = Warned(message=EVIL, count=2, hosts=[EVIL])
    return Diagnosis(read=read, jobs=[a_job(ranks)], warnings=[warned])


def shown(diagnosis: Diagnosis, *, columns: int = 110) -> str:
    out = io.StringIO()
    text.print_report(diagnosis, out, columns=columns, is_plain=True, is_verbose=True)
    return out.getvalue()


# --- text --------------------------------------------------------------------------------------


def test_text_shows_names_as_they_are_and_gives_no_orders() -> None:
    said = shown(a_diagnosis(), columns=400)
    assert "\x1b" not in said
    assert '<img src=x onerror="alert(1)">&[bold red]\ufffd[2J' in said


def test_text_names_who_is_waited_for_and_who_is_missing() -> None:
    said = shown(a_diagnosis(), columns=400)
    assert "Last in far more often than its share: rank 2" in said
    assert "one operation in 2 is looked at" in said
    assert "Operations that did not end (1)" in said


def test_many_ranks_are_cut_to_those_that_matter() -> None:
    said = shown(a_diagnosis(ranks=500))
    table = said.partition("Who is waited for")[2]
    assert "  499 " in table
    assert "    5   <img" not in table
    assert "468 ranks that are last in less often" in table


def test_a_report_without_jobs_says_so() -> None:
    empty = msgspec.structs.replace(a_diagnosis(), jobs=[])
    assert "No job: none of the files tells of collectives." in shown(empty)


def test_json_is_one_line_that_reads_back() -> None:
    diagnosis = a_diagnosis()
    line = to_json(diagnosis)
    assert b"\n" not in line
    assert msgspec.json.decode(line, type=Diagnosis) == diagnosis


# --- page --------------------------------------------------------------------------------------


def test_no_part_of_the_page_lets_a_name_through() -> None:
    diagnosis = a_diagnosis()
    (job,) = diagnosis.jobs
    parts = [
        *page.header(diagnosis), cards.facts(page.job_facts(job)), *page.step_part(job),
        *page.pending_part(job), *page.collective_part(job), *page.rank_part(job),
        *page.slowest_part(job), *page.communicator_part(job), *page.warning_part(diagnosis),
        *page.read_part(diagnosis),
    ]  # fmt: skip
    whole = "".join(parts)
    assert "&lt;img" in whole
    assert "<img" not in whole
    assert not re.search(r'<[^>]*onerror=[^>]*"alert', whole)
    assert "\x1b" not in whole


def test_a_step_that_took_a_minute_does_not_flatten_the_others() -> None:
    job = a_job()
    odd = msgspec.structs.replace(job.steps[7], compute_ns=60_000 * MS)
    job = msgspec.structs.replace(job, steps=[*job.steps[:7], odd, *job.steps[8:]])
    (part,) = page.step_part(job)
    assert "1 bar higher than the plot." in part


def test_thousands_of_steps_become_hundreds_of_bars() -> None:
    job = a_job()
    many = [msgspec.structs.replace(job.steps[0], number=number) for number in range(10_000)]
    (part,) = page.step_part(msgspec.structs.replace(job, steps=many))
    assert part.count("<rect") == 3 * page.STEP_BARS_MAX


# --- plots -------------------------------------------------------------------------------------


def test_scales_have_round_ticks_and_stay_inside() -> None:
    scale = Scale(0, 47, 100, 200)
    assert scale.ticks() == [0, 10, 20, 30, 40]
    assert (scale.at(0), scale.at(47)) == (100, 200)
    assert scale.at(1e12) <= 202
    assert Scale(0.01, 500, 0, 1, is_log=True).ticks() == [0.01, 0.1, 1, 10, 100]
    assert Scale(3, 3, 0, 10).at(3) == 5


@pytest.mark.parametrize("step", [0.0, float("nan"), float("inf"), -1.0])
def test_a_step_of_an_axis_is_never_nothing(step: float) -> None:
    assert plots.round_step(step) == 1.0


def test_a_line_is_broken_where_there_is_no_number() -> None:
    plot = Plot((0, 4), 10)
    values = np.array([1.0, 2.0, np.nan, 4.0])
    plots.line(plot, "l0", np.arange(4.0), values, "<x>")
    drawn = plot.svg("<y>")
    assert drawn.count("M") == 2
    assert "&lt;x&gt;" in drawn
    assert "&lt;y&gt;" in drawn


def test_thinning_keeps_the_peaks() -> None:
    values = np.zeros(1000)
    values[333] = 5
    kept = plots.thinned(values, 10)
    assert len(kept) == 10
    assert 333 in kept


def test_blocks_and_ranges_are_short() -> None:
    assert units.blocks([0, 1, None, 2], 2) == "▁▅ █"
    assert units.blocks([0, None], 0) == "▁ "
    assert units.ranks(list(range(100_000))) == "0-99999"
