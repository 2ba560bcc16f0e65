"""The page and the text that `diagnose` shows, with hostile names (HTML, escapes)."""

import io
import json
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from alerts.window.columns import Step
from api.diagnose import page, page_data, text, units
from api.diagnose.analyse import Analysis, RankRows
from api.diagnose.readings import PLOTS, Line, Readings
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
    RanksRead,
    Read,
    Warned,
    to_json,
)
from api.diagnose.verdicts import in_part
from collector.contract.errors import SettingsError
from collector.contract.identity import printable

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
        job=EVIL, was_said=False, size=ranks,
        ranks_read=RanksRead(
            known=ranks, count=ranks, read=list(range(ranks)), unread=[], by_source={EVIL: [0]},
            cut=[], ended_early=[], text=EVIL,
        ),
        first_ns=START_NS, last_ns=START_NS + 10**9,
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
    assert "No job: none of the files has collectives." in shown(empty)


def test_json_is_one_line_that_reads_back() -> None:
    diagnosis = a_diagnosis()
    line = to_json(diagnosis)
    assert b"\n" not in line
    assert msgspec.json.decode(line, type=Diagnosis) == diagnosis


# --- page --------------------------------------------------------------------------------------

TEMPLATE = f"<!doctype html><html><body><p>before</p>{page.DATA_MARK}</body></html>"


class Scripts(HTMLParser):
    """The tags of a page, and the text of its scripts, as a browser would find them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, _: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script":
            self.scripts.append(data)


def an_analysis(job: JobReport) -> Analysis:
    """Every rank of the job enters once in each step, rank by rank later."""
    number, rank = np.divmod(np.arange(len(job.steps) * job.size), job.size)
    late_ns = rank * 1000
    by_rank = RankRows(
        rank=rank.astype(np.int32),
        entry_ns=START_NS + number * MS + late_ns,
        late_ns=late_ns,
        inside_ns=late_ns,
        is_last=late_ns,
        is_least=late_ns,
    )
    # The page reads only these fields of an analysis; the text reads the others.
    return cast(
        "Analysis",
        SimpleNamespace(by_rank=by_rank, job=SimpleNamespace(name=job.job, guessed=frozenset())),
    )


def some_readings() -> list[Readings]:
    times = START_NS + np.arange(10.0) * 1e8
    values = np.arange(10.0)
    values[4] = np.nan
    return [Readings(PLOTS[0], [Line(EVIL, EVIL, times, values)], left_out=3)]


def shown_page(diagnosis: Diagnosis) -> Any:  # noqa: ANN401 - JSON
    analyses = [an_analysis(job) for job in diagnosis.jobs]
    readings = [some_readings() for _ in diagnosis.jobs]
    whole = "".join(page.render(diagnosis, analyses, readings, template=TEMPLATE))
    found = Scripts()
    found.feed(whole)
    assert found.tags == ["html", "body", "p", "script"], "no name became a tag"
    (script,) = found.scripts
    return json.loads(script)


def test_no_name_ends_the_data_or_gives_orders() -> None:
    for evil in (EVIL, "</script><script>alert(1)</script>", "<!--<script>", "\u2028]]>"):
        diagnosis = msgspec.structs.replace(
            a_diagnosis(), warnings=[Warned(message=evil, count=2, hosts=[evil])]
        )
        (row,) = shown_page(diagnosis)["warnings"]["rows"]
        assert row["cells"] == ["2", printable(evil), printable(evil)]


def test_the_page_has_every_part_of_a_job() -> None:
    data = shown_page(a_diagnosis())
    assert data["about"] == "1 job in 3 files, 10 B"
    (job,) = data["jobs"]
    assert job["explanation"].startswith("inferred from who talks to whom; times of nccl_inspector")
    facts = dict(job["facts"])
    assert facts["ranks"] == "3"
    assert facts["steps"] == "50"
    assert facts["median step"] == "1.00 ms"
    assert "one in 2" in facts.values()
    assert facts["operations that did not end"] == "1"
    assert [table["title"] for table in job["tables"]] == [
        "Collectives", "Ranks", "Slowest collectives", "Communicators",
    ]  # fmt: skip
    operations, ranks, slowest, communicators = (table["rows"] for table in job["tables"])
    assert operations[0]["cells"][3:7] == ["20", "1", "1 ns / 2 ns / 3 ns", "1 ns / 2 ns / 3 ns"]
    assert [row["is_marked"] for row in ranks] == [False, False, True]
    assert slowest[0]["cells"][4] == "19 ns"
    assert communicators[0]["cells"][4] == "0 1 2"
    (pending,) = job["pending"]["rows"]
    assert pending["cells"][3:] == ["0", "2 not read"]
    assert [one["title"] for one in data["problems"]] == [
        "Read in part: 1 file", "Not understood: 1 file", "Left out: 1 file",
    ]  # fmt: skip
    assert data["problems"][0]["files"][0][1].endswith("(and 1 more)")


def test_the_page_draws_steps_ranks_collectives_and_readings() -> None:
    (job,) = shown_page(a_diagnosis())["jobs"]
    steps = job["steps"]
    assert steps["parts"][0] == [0.0005, 0.00025, 0.00025]
    assert steps["said"][7] == "step 7, 7.00 ms after the start, waited for rank 1"
    heat = job["heat"]
    assert [each["rank"] for each in heat["ranks"]] == [0, 1, 2]
    assert (len(heat["columns"]), heat["steps_in_one"], heat["is_by_step"]) == (50, 1, True)
    (panel,) = job["collectives"]
    (dots,) = panel["dots"]["sets"]
    assert [one["label"] for one in dots["series"]] == ["wait (entry skew)", "transfer"]
    assert dots["said"][3].startswith("number 3, last in <img")
    (readings,) = job["readings"]
    assert readings["explanation"] == "1 series, in Gb/s. 3 quieter lines not shown."
    (line,) = readings["lines"]
    assert line["values"][0] == 0
    assert line["values"][-1] == 9
    assert (readings["middles"], readings["mosts"]) == ([5], [9])


def test_a_step_that_took_a_minute_does_not_flatten_the_others() -> None:
    job = a_job()
    odd = msgspec.structs.replace(job.steps[7], compute_ns=60_000 * MS)
    job = msgspec.structs.replace(job, steps=[*job.steps[:7], odd, *job.steps[8:]])
    bars = page.step_bars(job)
    assert bars is not None
    assert "1 bar higher than the plot." in bars.note
    assert bars.top < 0.002


def test_thousands_of_steps_become_hundreds_of_bars() -> None:
    job = a_job()
    many = [msgspec.structs.replace(job.steps[0], number=number) for number in range(10_000)]
    bars = page.step_bars(msgspec.structs.replace(job, steps=many))
    assert bars is not None
    assert len(bars.spans) == len(bars.parts) == len(bars.said) == page.STEP_BARS_MAX


def test_of_many_ranks_the_heat_map_shows_the_latest() -> None:
    job = a_job(ranks=200)
    heat = page.heat_data(job, an_analysis(job))
    assert heat is not None
    assert [each.rank for each in heat.ranks] == list(range(200 - page.HEAT_ROWS_MAX, 200))
    assert heat.ranks_left_out == 200 - page.HEAT_ROWS_MAX


def test_many_jobs_share_one_page() -> None:
    """Sixteen jobs must not make sixteen times the page of one."""
    job = a_job()
    long = msgspec.structs.replace(job, steps=job.steps * 20, collectives=job.collectives * 200)
    sizes = []
    for jobs in (1, 16):
        diagnosis = msgspec.structs.replace(a_diagnosis(), jobs=[long] * jobs)
        analyses = [an_analysis(job)] * jobs
        data = page.page_data(diagnosis, analyses, [some_readings()] * jobs, None)
        sizes.append(len(page_data.to_script(data)))
    assert sizes[1] < 3 * sizes[0]


def test_a_line_is_broken_where_nobody_read() -> None:
    times = np.array([0.0, 1.0, 2.0, 3.0, 9.0, 10.0])
    at = page.line_at(Line("a", "a", times, times * 2), np.arange(11.0))
    assert at[:4].tolist() == [0, 2, 4, 6]
    assert np.isnan(at[5:8]).all()
    assert at[9:].tolist() == [18, 20]


def test_without_a_built_page_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"--html needs the built-in page.*make page"):
        page.read_template(tmp_path)
    (tmp_path / page.TEMPLATE).write_text("<html>an old one</html>")
    with pytest.raises(SettingsError, match=r"no place for the data.*make page"):
        page.read_template(tmp_path)


def test_thinning_keeps_the_peaks() -> None:
    values = np.zeros(1000)
    values[333] = 5
    kept = page_data.thinned(values, 10)
    assert len(kept) == 10
    assert 333 in kept


def test_times_keep_their_microseconds() -> None:
    assert page_data.seconds(1_794_700_000_123_456_789) == 1_794_700_000.123457
    assert page_data.seconds(1_234) == 1.234e-06
    assert page_data.seconds(-2_500_000) == -0.0025


def test_blocks_and_ranges_are_short() -> None:
    assert units.blocks([0, 1, None, 2], 2) == "▁▅ █"
    assert units.blocks([0, None], 0) == "▁ "
    assert units.ranks(list(range(100_000))) == "0-99999"


def test_of_a_part_of_the_ranks_there_is_no_all_clear() -> None:
    whole = a_job()
    assert in_part([whole]) == []
    read = msgspec.structs.replace(whole.ranks_read, known=8)
    some = msgspec.structs.replace(whole, ranks_read=read)
    assert in_part([some]) == ["Nothing stands out in what was read: 3 of 8 ranks."]
    read = msgspec.structs.replace(whole.ranks_read, by_source={"nccl_inspector": [0, 2]})
    some = msgspec.structs.replace(whole, ranks_read=read)
    assert in_part([some]) == ["Nothing stands out in what was read: times of 2 of 3 ranks."]
    read = msgspec.structs.replace(whole.ranks_read, ended_early=[2], cut=[1])
    short = msgspec.structs.replace(whole, job="b", ranks_read=read)
    (line,) = in_part([whole, short])
    assert line == (
        "Nothing stands out in what was read of job b: what there is of ranks 1, 2 ends early."
    )
