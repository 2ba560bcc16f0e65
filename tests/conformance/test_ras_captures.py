"""NCCL's RAS as it was recorded: what the agent sends of it, and who is named when.

No threshold was chosen to make these runs come out: the truth is in tests/fixtures/ras/ORIGIN.
"""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from alerts.detectors import hang
from alerts.finding import Finding
from collector.contract.communicator import COMMUNICATOR, RANK
from collector.contract.model import Sample
from collector.contract.ras import RAS, Presence, decode_report
from collector.contract.verdict import Cause, Reason
from collector.parsing.nccl_ras import parse_answer
from tests.stands.diagnosing import report_of
from tests.worlds.ras import Replayed, answers_of, replay, window_at

RUNS = ("healthy", "stopped3", "killed2", "skips5", "mismatch5", "pipeline_stopped1")
WATCHDOG_SECONDS = 40.0
each_run = pytest.mark.parametrize("run", RUNS)
each_phase = pytest.mark.parametrize("phase", [0.0, 1.7, 3.4, 4.9])


def first_finding(found: Replayed, until: float) -> tuple[float, Finding] | None:
    """When a round every five seconds first finds something, and what."""
    events = found.events(RAS)
    seconds = found.host.answers[0].seconds
    while seconds <= until:
        findings = hang.detect(window_at(seconds, events))
        if findings:
            return seconds, findings[0]
        seconds += 5.0
    return None


@each_run
@pytest.mark.parametrize("kind", ["json", "text"])
def test_every_answer_is_understood(run: str, kind: str) -> None:
    for answer in answers_of(run, kind):
        found = parse_answer(answer.status)
        assert found.version == "2.28.9"
        assert found.is_whole is (kind == "json")
        for one in found.communicators:
            members = {member.rank for member in one.members}
            assert members == set(range(one.size)) if kind == "json" else members <= set(range(8))


def test_json_and_text_say_the_same_of_ranks_in_trouble() -> None:
    for run, rank, presence in (
        ("stopped3", 3, Presence.UNRESPONSIVE),
        ("skips5", 5, Presence.ANSWERS),
    ):
        pair = [
            next(one for one in answers_of(run, kind) if one.seconds > 30.0)
            for kind in ("json", "text")
        ]
        whole, short = (parse_answer(one.status) for one in pair)
        by_name = {one.name: one for one in whole.communicators}
        (trouble, *_) = short.communicators
        (listed,) = trouble.members
        same = by_name[trouble.name].members[rank]
        assert (listed.rank, listed.presence) == (same.rank, same.presence) == (rank, presence)
        assert (listed.address, listed.pid) == (same.address, same.pid)
        for operation, count in (listed.launched or {}).items():
            assert same.launched is not None
            assert same.launched[operation] == count


@each_phase
@pytest.mark.parametrize(
    ("run", "rank"), [("stopped3", 3), ("killed2", 2), ("pipeline_stopped1", 1)]
)
def test_a_rank_that_is_gone_is_named_within_half_a_minute(
    run: str, rank: int, phase: float, tmp_path: Path
) -> None:
    found = first_finding(replay(tmp_path, answers_of(run), phase=phase), WATCHDOG_SECONDS)
    assert found is not None
    seconds, finding = found
    assert 0 < seconds <= 30.0
    assert (finding.cause, finding.reason) == (Cause.HANG, Reason.NOT_LAUNCHED)
    assert finding.culprit.rank == rank
    assert finding.accomplices == ()
    assert finding.strength >= 0.85
    assert finding.until_ns is None


@each_phase
def test_a_rank_that_left_a_collective_out_is_named_within_half_a_minute_of_the_hang(
    phase: float, tmp_path: Path
) -> None:
    found = first_finding(replay(tmp_path, answers_of("skips5"), phase=phase), 60.0)
    assert found is not None
    seconds, finding = found
    hangs_at = 19.0  # until then its calls were paired with those of others, wrongly
    assert hangs_at < seconds <= hangs_at + 31.0
    assert finding.culprit.rank == 5
    assert 0.7 <= finding.strength < 0.85  # nothing but RAS says it, and the rank is alive
    assert "202 all_reduce, 7 of 8 ranks 203" in finding.evidence[0].text


@each_phase
@pytest.mark.parametrize("run", ["healthy", "mismatch5"])
def test_no_rank_is_accused_where_none_is_behind(run: str, phase: float, tmp_path: Path) -> None:
    """A rank ahead of all others may wait for them: RAS alone cannot tell who is wrong."""
    assert first_finding(replay(tmp_path, answers_of(run), phase=phase), 60.0) is None


def test_nothing_is_reported_of_a_job_that_moves(tmp_path: Path) -> None:
    found = replay(tmp_path, answers_of("skips5"))
    assert found.events(RAS, until=15.0) == []
    first = decode_report(found.events(RAS)[0])
    assert first is not None
    assert first.answers >= 2


def test_two_hosts_ask_often_and_the_others_seldom(tmp_path: Path) -> None:
    answers = answers_of("healthy")
    asked = [
        len(replay(tmp_path / str(node), answers, node=node).host.asked) for node in (0, 1, 2, 7)
    ]
    assert asked[0] == asked[1] >= 3
    assert asked[2] == asked[3] <= 2


def test_a_first_host_asks_every_ten_seconds_and_every_five_while_nothing_moves(
    tmp_path: Path,
) -> None:
    asked = replay(tmp_path, answers_of("stopped3")).host.asked
    gaps = {(one >= 0.0, round(other - one)) for one, other in pairwise(asked)}
    assert gaps == {(False, 10), (True, 5)}


def test_every_host_says_where_its_own_ranks_run(tmp_path: Path) -> None:
    found = replay(tmp_path, answers_of("pipeline_stopped1"), node=6)
    places = found.events(COMMUNICATOR)
    assert {event.attributes["pid"] for event in places} == {"2241"}
    ranks = {(event.attributes["ranks"], event.labels[RANK]) for event in places}
    assert ranks == {("8", "6"), ("4", "2"), ("2", "1")}
    assert all("host" not in event.attributes for event in places)  # the agent's own name is


def test_numbers_of_an_answer_are_repeated_until_the_next(tmp_path: Path) -> None:
    found = replay(tmp_path, answers_of("stopped3"))
    absent = {
        seconds: each.value
        for seconds, each in found.readings
        if isinstance(each, Sample) and each.series.metric == "fabric_job_ras_ranks_absent"
    }
    assert {value for seconds, value in absent.items() if seconds < -1.0} == {0.0}
    assert {value for seconds, value in absent.items() if 15.0 < seconds < 55.0} == {1.0}


# --- saved answers -------------------------------------------------------------------------------

RECORDED_S = 1_794_984_463
INIT = (
    "node{rank}:{pid}:{pid} [0] NCCL INFO ncclCommInitRankConfig comm 0x36754400 rank {rank} "
    "nranks 8 cudaDev 0 nvmlDev 0 busId 60 commId 0x253d7158f7d8880b - Init COMPLETE\n"
)
"""As NCCL 2.28.9 wrote it in the run `stopped3`: its commId is the hash of RAS."""


def saved(folder: Path, run: str, kind: str, *seconds: float) -> Path:
    """The output of each rank, and answers that were saved at these times after the fault."""
    folder.mkdir(exist_ok=True)
    for rank in range(8):
        log = folder / f"node{rank}.log"
        log.write_text(INIT.format(rank=rank, pid=872 + rank), "utf-8")
        os.utime(log, (RECORDED_S, RECORDED_S))
    for number, moment in enumerate(seconds):
        answer = next(one for one in answers_of(run, kind) if one.seconds >= moment)
        file = folder / f"ras-{number}.{kind}"
        file.write_bytes(answer.status)
        os.utime(file, (RECORDED_S + answer.seconds,) * 2)
    return folder


def test_two_saved_answers_name_who_a_hung_job_waited_for(tmp_path: Path) -> None:
    (verdict,) = report_of(saved(tmp_path, "stopped3", "json", 8.0, 20.0)).verdicts
    assert verdict.cause is Cause.HANG
    assert (verdict.culprit.rank, verdict.culprit.host) == (3, "node3")


def test_one_saved_answer_does_not_show_that_a_job_stands(tmp_path: Path) -> None:
    assert report_of(saved(tmp_path, "stopped3", "json", 20.0)).verdicts == []


def test_saved_answers_of_a_job_that_moves_accuse_none(tmp_path: Path) -> None:
    assert report_of(saved(tmp_path, "stopped3", "json", -14.0, -4.0)).verdicts == []
