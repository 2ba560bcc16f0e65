"""Verdicts of a folder: detectors one by one, and how the answer is put before a reader."""

import io
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from alerts.detectors import Detect, discover, looks_for
from alerts.finding import Finding
from alerts.window.columns import Records
from alerts.window.model import Readings, Window
from api.diagnose import page, text, verdict_page, verdicts
from api.diagnose.page_data import Figure, Lines
from api.diagnose.report import DetectorReport, Diagnosis, Read, to_json
from api.diagnose.verdicts import Judged, judge_window
from collector.contract.units import NS
from collector.contract.verdict import (
    Cause,
    Cost,
    Culprit,
    Evidence,
    Layer,
    Reason,
    RuledOut,
    Verdict,
)
from tests.worlds.machines import GRID, gpu_values, machines

EVIL = '<img src=x onerror="alert(1)">&[bold red]\x1b[2J`id`'
START_NS = GRID.start_ns
NOTHING = Read(
    files=0, size_bytes=0, formats=[], not_understood=[], not_understood_count=0, broken=[],
    broken_count=0, left_out=[], losses=[],
)  # fmt: skip


def a_verdict(name: str = "node3") -> Verdict:
    return Verdict(
        cause=Cause.SLOW_LINK,
        reason=Reason.CABLE,
        culprit=Culprit(host=name, device="mlx5_3", port="1"),
        since_ns=START_NS + 3 * NS,
        until_ns=START_NS + 15 * NS,
        confidence=0.93,
        layer=Layer.NETWORK,
        summary=f"{name}'s NIC is slow.",
        action=f"Run `ib_write_bw` on {name}.",
        jobs=("job0",),
        victims=(Culprit(rank=4, host=name),),
        evidence=(
            Evidence(
                metric="collective_transfer", text=f"transfers over {name} take longer",
                value=0.425, unit="seconds", baseline=0.014, samples=1_027,
            ),
            Evidence(
                metric="fabric_gpu_sm_clock_hertz", text="its clock", value=1.2e9, unit="hertz",
                labels={"host": "node0", "gpu": "1"},
            ),
        ),
        ruled_out=(RuledOut(what="straggler", why=f"nobody of {name} is late"),),
        costs=(
            Cost(
                job="job0", lost_seconds=7.5, step_seconds=0.6, step_seconds_without=0.19,
                lost_share=0.62, gpu_hours=0.0167,
            ),
        ),
        clock_error_ns=1_200_000,
    )  # fmt: skip


def a_finding(detector: str, since_ns: int = 1) -> Finding:
    return Finding(
        detector=detector, cause=Cause.STRAGGLER, culprit=Culprit(host="a"), strength=0.9,
        since_ns=since_ns, until_ns=None, last_ns=5,
    )  # fmt: skip


def nobody(_: Window, __: Sequence[Finding]) -> list[Verdict]:
    return []


def shown(diagnosis: Diagnosis, columns: int = 100) -> str:
    out = io.StringIO()
    text.print_report(diagnosis, out, columns=columns, is_plain=True, is_verbose=False)
    return out.getvalue()


def figures_of(verdict: Verdict, window: Window | None) -> list[Figure]:
    diagnosis = Diagnosis(read=NOTHING, jobs=[], verdicts=[verdict])
    (shown,) = verdict_page.verdict_data(diagnosis, [], window)
    return shown.figures


# --- judging -----------------------------------------------------------------------------------


def test_a_detector_that_fails_is_named_and_the_others_are_heard() -> None:
    def broken(_: Window) -> list[Finding]:
        raise IndexError("index 3 is out of bounds\n\x1b[2J" + "x" * 1000)

    heard: list[str] = []

    def judged_by(_: Window, findings: Sequence[Finding]) -> list[Verdict]:
        heard.extend(one.detector for one in findings)
        return [a_verdict()]

    detectors = {"straggler": lambda _: [a_finding("straggler")], "slow_link": broken}
    judged = judge_window(machines(), detectors=detectors, judged_by=judged_by)
    assert heard == ["straggler"]
    assert judged.verdicts == [a_verdict()]
    failed, fine = judged.detectors
    assert (fine.detector, fine.findings, fine.problem) == ("straggler", 1, "")
    assert failed.problem.startswith("IndexError: index 3 is out of bounds")
    assert failed.problem.isprintable()
    assert len(failed.problem) <= verdicts.PROBLEM_LENGTH_MAX
    diagnosis = Diagnosis(read=NOTHING, jobs=[], detectors=judged.detectors)
    assert "Failed to look for slow links (slow_link): IndexError" in shown(diagnosis)
    (line,) = page.page_data(diagnosis, [], [], None).failed
    assert "Failed to look for slow links (slow_link): IndexError" in line


def test_a_judge_that_fails_costs_the_verdicts_and_not_the_report() -> None:
    def judged_by(_: Window, __: Sequence[Finding]) -> list[Verdict]:
        raise ZeroDivisionError

    judged = judge_window(machines(), detectors={}, judged_by=judged_by)
    assert judged.verdicts == []
    assert judged.detectors[-1].detector == verdicts.JUDGE
    assert "ZeroDivisionError" in judged.detectors[-1].problem


def test_an_interrupt_is_not_mistaken_for_a_failed_detector() -> None:
    def stopped(_: Window) -> list[Finding]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge_window(machines(), detectors={"stall": stopped}, judged_by=nobody)


def test_the_judge_hears_findings_in_an_order_that_names_do_not_change() -> None:
    heard: list[list[str]] = []

    def judged_by(_: Window, findings: Sequence[Finding]) -> list[Verdict]:
        heard.append([one.detector for one in findings])
        return []

    late, early = a_finding("a", since_ns=9), a_finding("z", since_ns=1)
    judge_window(
        machines(), detectors={"a": lambda _: [late], "z": lambda _: [early]}, judged_by=judged_by
    )
    assert heard == [["z", "a"]]


def test_a_verdict_without_sentences_gets_them_and_one_with_them_keeps_them() -> None:
    said = a_verdict()
    bare = msgspec.structs.replace(said, summary="", action="")
    judged = judge_window(machines(), detectors={}, judged_by=lambda _, __: [said, bare])
    assert judged.verdicts[0] == said
    assert judged.verdicts[1].summary.startswith("node3's NIC mlx5_3 moves bytes too slowly")
    assert "mlxlink -d mlx5_3" in judged.verdicts[1].action


def test_every_detector_that_exists_says_what_it_looks_for() -> None:
    assert [name for name in discover() if not looks_for(name).needs] == []


def by_name(judged: Judged) -> dict[str, DetectorReport]:
    return {one.detector: one for one in judged.detectors}


def test_who_could_not_see_is_told_from_who_saw_nothing() -> None:
    detectors: dict[str, Detect] = dict.fromkeys(discover(), lambda _: [])
    judged = judge_window(machines(hosts=2), detectors=detectors, judged_by=nobody)
    found = by_name(judged)
    assert found["gpu_throttle"].missing == found["host_stall"].missing == []
    assert found["pause_storm"].missing == ["pause counters"]
    assert found["straggler"].missing == ["times of collectives"]
    assert found["hang"].missing == ["dumps of the Flight Recorder"]
    assert judged.looked_at["gpus"] == 16
    with_dumps = judge_window(
        machines(), {"flight_recorder"}, detectors=detectors, judged_by=nobody
    )
    assert by_name(with_dumps)["hang"].missing == []


def test_a_detector_that_nobody_described_is_taken_to_see() -> None:
    judged = judge_window(machines(), detectors={"my_own": lambda _: []}, judged_by=nobody)
    assert judged.detectors == [DetectorReport(detector="my_own", title="my own")]


# --- text --------------------------------------------------------------------------------------


def test_the_verdict_comes_first_and_says_everything() -> None:
    said = shown(Diagnosis(read=NOTHING, jobs=[], verdicts=[a_verdict()]))
    lines = [line.strip() for line in said.splitlines()]
    assert lines[0] == "node3's NIC is slow."
    order = [
        "slow_link (cable), almost certain (93 %)", "since the start",
        "Cost: job job0: 7.50 s lost",
        "compared to within 1.20 ms", "transfers over node3 take longer", "Late only because of it",
        "Ruled out: straggler: nobody of node3 is late", "What to do: Run `ib_write_bw`",
        "Read 0 files",
    ]  # fmt: skip
    places = [said.index(piece) for piece in order]
    assert places == sorted(places)
    (row,) = [line for line in lines if line.startswith("transfers over node3")]
    assert row.split()[-5:] == ["425", "ms", "14.0", "ms", "1,027"]


@pytest.mark.parametrize("columns", [80, 110, 200])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    diagnosis = Diagnosis(read=NOTHING, jobs=[], verdicts=[a_verdict("n" * 60)])
    verdict_lines = shown(diagnosis, columns).partition("Read 0 files")[0].splitlines()
    assert max(map(len, verdict_lines)) <= columns


def test_times_are_counted_from_the_start_of_the_job_and_by_the_clock() -> None:
    verdict = a_verdict()
    assert verdicts.when(verdict, START_NS) == (
        "since 3.00 s after the start (2027-01-15 08:00:03 UTC), "
        "until 15.0 s after the start: 12.0 s long"
    )
    lasting = msgspec.structs.replace(verdict, until_ns=None)
    assert verdicts.when(lasting, START_NS).endswith("and not over where the files end")


def test_nothing_stands_out_and_what_was_looked_at_is_said() -> None:
    detectors = [
        DetectorReport(detector="straggler", title="late ranks"),
        DetectorReport(detector="pause_storm", title="pause storms", missing=["pause counters"]),
    ]
    looked_at = {"collectives": 190, "ports": 0, "gpus": 1}
    diagnosis = Diagnosis(read=NOTHING, jobs=[], detectors=detectors, looked_at=looked_at)
    said = shown(diagnosis, 200)
    assert said.startswith("Nothing stands out.\n")
    assert "Looked for late ranks in 190 collectives, 1 GPU.\n" in said
    assert "Could not look for pause storms. These files do not have pause counters." in said
    data = page.page_data(diagnosis, [], [], None)
    assert data.verdicts == []
    assert data.looked == [
        "Looked for late ranks in 190 collectives, 1 GPU.",
        "Could not look for pause storms. These files do not have pause counters.",
    ]


def test_of_a_hundred_verdicts_the_terminal_shows_the_first() -> None:
    diagnosis = Diagnosis(read=NOTHING, jobs=[], verdicts=[a_verdict()] * 100)
    said = shown(diagnosis)
    above, _, last = said.partition("In short: ")
    assert above.count("node3's NIC is slow.") == text.VERDICTS_SHOWN
    assert last.strip() == "node3's NIC is slow. (99 more verdicts above)"
    assert "90 more verdicts; --json has all." in said


def test_names_give_the_terminal_no_orders() -> None:
    said = shown(Diagnosis(read=NOTHING, jobs=[], verdicts=[a_verdict(EVIL)]), 400)
    assert "\x1b" not in said
    assert "[bold red]" in said


# --- JSON --------------------------------------------------------------------------------------


def test_json_has_every_field_of_a_verdict() -> None:
    diagnosis = Diagnosis(read=NOTHING, jobs=[], verdicts=[a_verdict()])
    written = msgspec.json.decode(to_json(diagnosis))
    (verdict,) = written["verdicts"]
    assert set(verdict) == set(Verdict.__struct_fields__)
    assert verdict["cause"] == "slow_link"
    assert verdict["culprit"] == {"host": "node3", "device": "mlx5_3", "port": "1"}
    assert msgspec.json.decode(to_json(diagnosis), type=Diagnosis) == diagnosis


# --- page --------------------------------------------------------------------------------------


def test_a_verdict_on_the_page_has_everything_that_the_text_has() -> None:
    diagnosis = Diagnosis(read=NOTHING, jobs=[], verdicts=[a_verdict()])
    (data,) = verdict_page.verdict_data(diagnosis, [], machines())
    assert data.verdict == a_verdict()
    assert data.when.startswith("since the start (")
    (cost,) = data.costs
    assert cost.startswith("job job0: 7.50 s lost, 62 % of the time while it lasted; a step takes")
    assert cost.endswith("600 ms instead of 190 ms; 0.0167 GPU-hours")
    assert data.clock == "Clocks of hosts were compared to within 1.20 ms."
    assert (data.blamed.start, data.blamed.end) == (START_NS / NS + 3, START_NS / NS + 15)


def test_verdicts_beyond_the_bound_are_counted() -> None:
    many = [a_verdict()] * (verdict_page.VERDICTS_MAX + 2)
    diagnosis = Diagnosis(read=NOTHING, jobs=[], verdicts=many)
    data = page.page_data(diagnosis, [], [], None)
    assert len(data.verdicts) == verdict_page.VERDICTS_MAX
    assert data.verdicts_note == "2 more verdicts in --json."


def test_a_metric_of_the_evidence_is_drawn_with_its_peers() -> None:
    window = machines(hosts=2)
    gpu_values(window, "sm_clock_hertz")[1, 3:] = 1.2e9
    (figure,) = (one for one in figures_of(a_verdict(), window) if one.evidence == 1)
    assert figure.title == "fabric_gpu_sm_clock_hertz"
    drawn = figure.drawing
    assert isinstance(drawn, Lines)
    culprits = [line.label for line in drawn.lines if line.is_culprit]
    assert culprits == ["node0 GPU 1"]
    assert (len(drawn.lines), drawn.peers) == (16, 15)


def test_evidence_that_names_no_host_draws_nobody_as_the_culprit() -> None:
    evidence = Evidence(
        metric="fabric_gpu_sm_clock_hertz", text="", value=1.0, unit="hertz", labels={"gpu": "1"}
    )
    verdict = msgspec.structs.replace(a_verdict(), evidence=(evidence,))
    assert figures_of(verdict, machines()) == []


def test_readings_that_nobody_read_draw_nothing_and_break_nothing() -> None:
    window = machines(hosts=1)
    gpu_values(window, "sm_clock_hertz")[:] = np.nan
    assert figures_of(a_verdict(), window) == []
    assert figures_of(a_verdict(), None) == []


def test_exits_are_medians_after_the_first_of_the_operation_that_takes_longest() -> None:
    """All-reduces of three ranks that leave 0, 10 and 30 ms after the first, and a gather."""
    (job,) = machines(hosts=1).jobs
    steps = [(0, 0, rank, leaves) for rank, leaves in enumerate((0, 10, 30))]
    steps += [(0, 1, rank, 500 + leaves) for rank, leaves in enumerate((0, 12, 30))]
    steps += [(0, 2, rank, 700 + leaves) for rank, leaves in enumerate((0, 10, 30))]
    steps += [(1, 0, rank, 900) for rank in range(3)]
    columns = np.array(steps, dtype=np.int64).T
    exits = START_NS + columns[3] * 1_000_000 + 400_000_000
    took = np.where(columns[0] == 0, 400_000_000, 1_000)
    given: dict[str, Any] = {
        name: np.zeros(len(steps), dtype=np.int64) for name in job.records.arrays()
    }
    given |= {"operation": columns[0], "sequence": columns[1], "rank": columns[2]}
    given |= {"exit_ns": exits, "entry_ns": exits - took}
    records = Records(
        communicators=["c"], operations=["all_reduce", "all_gather"], hosts=["a"], **given
    )
    timed = msgspec.structs.replace(job, records=records)
    whole = (START_NS, START_NS + 10 * NS)
    assert verdict_page.exits_of(timed, "c", whole) == {0: 0.0, 1: 10.0, 2: 30.0}
    assert verdict_page.exits_of(timed, "c", (START_NS + 850 * 10**6, START_NS + 1000 * 10**6)) == {
        0: 0.0,
        1: 12.0,
        2: 30.0,
    }
    assert verdict_page.exits_of(timed, "other", whole) == {}
    assert verdict_page.exits_of(timed, "c", (0, 1)) == {}


def test_variation_of_a_steady_rate_is_nothing_and_of_gaps_unknown() -> None:
    values = np.array([[5.0, 5.0, np.nan], [0.0, 10.0, np.nan], [np.nan] * 3])
    found = verdict_page.variation_of(values)
    assert found[:2].tolist() == [0.0, 1.0]
    assert np.isnan(found[2])


def test_long_series_are_thinned_to_what_a_plot_can_show() -> None:
    window = machines(hosts=1)
    cells = verdict_page.SERIES_POINTS * 5 + 3
    grid = msgspec.structs.replace(GRID, cells=cells)
    values = np.tile(np.arange(cells, dtype=np.float64), (8, 1))
    readings = {"x": Readings(metric="x", row=np.arange(8), values=values)}
    gpus = msgspec.structs.replace(window.gpus, grid=grid, readings=readings)
    times, means = verdict_page.thinned_cells(gpus, values)
    assert len(times) == means.shape[1] <= verdict_page.SERIES_POINTS
    assert means[0, 0] == np.mean(np.arange(6))
    assert (np.diff(means[0]) > 0).all()
