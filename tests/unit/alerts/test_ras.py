"""Who a job waits for by NCCL's RAS: named, not named, and in doubt."""

import msgspec
import numpy as np
import pytest

from alerts.cases.events import EventScrub
from alerts.cases.names import NameBook
from alerts.cases.times import TimeShift
from alerts.detectors import hang
from alerts.finding import Finding
from alerts.signals.ras import ALONE_NS_MIN, words_of
from alerts.window.model import Pending, Window
from collector.contract.collective import Operation, State
from collector.contract.model import Event
from collector.contract.ras import OddRank, Presence, RasReport, decode_report, ras_event
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Reason
from tests.worlds.late_jobs import make_job, make_window

SPIN = {
    "utilization_ratio": (1.0, 1.0),
    "power_watts": (600.0, 225.0),
    "tensor_active_ratio": (0.5, 0.0),
}
ALL, LESS = {Operation.ALL_REDUCE: 42}, {Operation.ALL_REDUCE: 41}
WORLD = "0x04"
"""A communicator of `make_job`: ranks 0, 2, 4 and 6 of eight, one of each host."""


def behind(rank: int, **more: object) -> OddRank:
    return OddRank(rank=rank, launched=LESS, **more)  # type: ignore[arg-type]


def gone(rank: int, presence: Presence = Presence.UNRESPONSIVE, seconds: float = 20.0) -> OddRank:
    return OddRank(rank=rank, presence=presence, absent_ns=int(seconds * NS))


def report(*odd: OddRank, seconds: float = 20.0, **more: object) -> RasReport:
    given: dict[str, object] = {"size": 4, "alike": 4 - len(odd), "answers": 5, "launched": ALL}
    return RasReport(odd=odd, standing_ns=int(seconds * NS), **(given | more))  # type: ignore[arg-type]


def hung(*reports: RasReport, silent: float = 25.0, **more: object) -> Window:
    """A job whose records end and whose GPUs spin; RAS has just said this, oldest first."""
    window = make_window(
        make_job(compute_ms=500.0, steps=30),
        silent_ns=int(silent * NS),
        **{"gpu_levels": SPIN, **more},  # type: ignore[arg-type]
    )
    return telling(window, *reports)


def telling(window: Window, *reports: RasReport, name: str = WORLD) -> Window:
    times = range(window.to_ns - 5 * NS * (len(reports) - 1), window.to_ns + 1, 5 * NS)
    events = [ras_event(name, one, time_ns) for one, time_ns in zip(reports, times, strict=False)]
    return msgspec.structs.replace(window, events=[*window.events, *events])


def without_machines(window: Window) -> Window:
    """Only what RAS says: no record, no reading."""
    jobs = [msgspec.structs.replace(job.at_rest(), is_resting=False) for job in window.jobs]
    never = np.zeros(len(window.gpus.host), dtype=np.int64)
    gpus = msgspec.structs.replace(window.gpus, readings={}, seen_ns=never)
    return msgspec.structs.replace(window, jobs=jobs, gpus=gpus)


def only(window: Window) -> list[Finding]:
    return hang.detect(without_machines(window))


# Named -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("presence", [Presence.UNRESPONSIVE, Presence.DEAD])
def test_a_rank_that_does_not_answer_is_named_by_ras_alone(presence: Presence) -> None:
    (finding,) = only(hung(report(gone(2, presence))))
    assert (finding.cause, finding.reason) == (Cause.HANG, Reason.NOT_LAUNCHED)
    assert finding.culprit == Culprit(job="training", rank=4, host="node2", gpu=0)
    assert finding.strength == pytest.approx(0.9)


def test_a_rank_that_is_behind_is_named_by_ras_alone_with_less_certainty() -> None:
    (finding,) = only(hung(report(behind(2))))
    assert finding.culprit.rank == 4
    assert finding.strength == pytest.approx(0.75)
    assert "launched 41 all_reduce, 3 of 4 ranks 42" in finding.evidence[0].text


def test_an_idle_gpu_is_a_second_witness() -> None:
    idle = {"utilization_ratio": {4: 0.0}, "power_watts": {4: 75.0}}
    (finding,) = hang.detect(hung(report(behind(2)), odd=idle))
    assert finding.culprit.rank == 4
    assert finding.strength == pytest.approx(0.9)


def test_all_ranks_of_one_host_are_the_host() -> None:
    window = telling(
        telling(hung(), report(gone(1))), report(gone(0), gone(1), size=2, alike=0), name="0x01"
    )
    (finding,) = only(telling(window, report(gone(1)), name="0x05"))
    assert finding.culprit == Culprit(job="training", host="node1")


def test_the_place_of_a_rank_that_no_agent_told_is_that_in_the_largest_communicator() -> None:
    window = hung(report(behind(2, world=6)))
    (job,) = window.jobs
    known = {
        name: msgspec.structs.replace(one, job_rank={}) if name == WORLD else one
        for name, one in job.communicators.items()
    }
    jobs = [msgspec.structs.replace(job, communicators=known)]
    (finding,) = only(msgspec.structs.replace(window, jobs=jobs))
    assert finding.culprit.rank == 6


# Not named ---------------------------------------------------------------------------------------


def test_counts_that_stand_still_while_all_are_alike_are_no_hang() -> None:
    """An evaluation, or a checkpoint that all ranks write."""
    assert only(hung(report(seconds=600.0))) == []


@pytest.mark.parametrize("seconds", [0.0, 7.0])
def test_a_short_pause_is_no_hang(seconds: float) -> None:
    assert only(hung(report(behind(2), gone(1, seconds=seconds), seconds=seconds))) == []


def test_a_rank_that_waits_elsewhere_is_a_victim() -> None:
    assert only(hung(report(behind(2, waits_in="0x01")))) == []


def test_rank_0_by_itself_may_write_a_checkpoint() -> None:
    seconds = ALONE_NS_MIN / NS
    assert only(hung(report(behind(0), seconds=seconds - 1))) == []
    (finding,) = only(hung(report(behind(0), seconds=seconds)))
    assert finding.culprit.rank == 0


def test_a_job_that_has_stood_for_longer_before_gets_more_time() -> None:
    usual = {"longest_ns": 30 * NS}
    assert only(hung(report(behind(2), seconds=59.0, **usual))) == []
    assert only(hung(report(behind(2), seconds=60.0, **usual)))


def test_a_rank_ahead_of_all_others_is_not_accused() -> None:
    more = OddRank(rank=2, launched={Operation.ALL_REDUCE: 43})
    assert only(hung(report(more, seconds=600.0))) == []


def test_most_ranks_are_never_accused() -> None:
    assert only(hung(report(*(gone(rank) for rank in range(3))))) == []
    assert only(hung(report(*(behind(rank) for rank in range(3))))) == []


def test_a_job_whose_ranks_are_dead_has_ended() -> None:
    window = hung(report(*(gone(rank, Presence.DEAD) for rank in (1, 2, 3))))
    assert only(window) == []


def test_ranks_of_two_hosts_are_suspects_and_none_is_accused() -> None:
    """One of them may wait for the other in a receive, which RAS does not count."""
    (finding,) = only(hung(report(behind(1), behind(2))))
    assert finding.cause is Cause.STALL
    assert finding.culprit == Culprit(job="training")
    assert [one.culprit.rank for one in finding.suspects] == [2, 4]


def test_ranks_that_differ_and_are_not_listed_make_it_undecided() -> None:
    assert only(hung(report(behind(2), odd_left_out=40))) == []


def test_old_words_say_nothing() -> None:
    window = hung(report(gone(2)))
    later = msgspec.structs.replace(window, to_ns=window.to_ns + 31 * NS)
    assert words_of(window, window.jobs[0])
    assert only(later) == []


def test_the_last_word_counts() -> None:
    assert only(hung(report(gone(2)), report(seconds=0.0, answers=1))) == []


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "{" * 10_000, '{"size":4,"launched":{},"alike":9}x']
)
def test_words_that_are_no_report_are_none(text: str) -> None:
    event = Event(kind="ras_status", time_ns=1, labels={}, attributes={"report": text})
    assert decode_report(event) is None


# Contradictions ----------------------------------------------------------------------------------


def test_a_completion_after_the_standstill_began_contradicts_it() -> None:
    assert hang.detect(hung(report(gone(2), seconds=20.0), silent=1.0)) == []


def test_a_rank_that_is_behind_with_a_busy_gpu_is_at_work_or_a_victim() -> None:
    assert hang.detect(hung(report(behind(2)))) == []


def test_idle_gpus_all_over_contradict_a_hang() -> None:
    window = hung(report(gone(2)))
    usual = window.gpus.readings["utilization_ratio"]
    idle = msgspec.structs.replace(usual, values=np.zeros_like(usual.values))
    gpus = msgspec.structs.replace(
        window.gpus, readings={**window.gpus.readings, "utilization_ratio": idle}
    )
    jobs = [msgspec.structs.replace(job.at_rest(), is_resting=False) for job in window.jobs]
    assert hang.detect(msgspec.structs.replace(window, gpus=gpus, jobs=jobs)) == []


def test_a_gpu_that_several_ranks_share_says_nothing_of_one() -> None:
    window = hung(report(behind(2)))
    (job,) = window.jobs
    shared = {
        number: msgspec.structs.replace(rank, host="node0", gpu=0)
        for number, rank in job.ranks.items()
    }
    jobs = [msgspec.structs.replace(job.at_rest(), is_resting=False, ranks=shared)]
    (finding,) = hang.detect(msgspec.structs.replace(window, jobs=jobs))
    assert finding.culprit.rank == 4


# The second witness ------------------------------------------------------------------------------


def with_dumps(window: Window, missing: int) -> Window:
    """Dumps of all ranks: all but one wait in an all-reduce of all of them."""
    (job,) = window.jobs
    last = int(job.operations.last_exit_ns.max())
    pending = Pending(
        communicator="pg:0",
        operation="all_reduce",
        sequence=31,
        ranks=8,
        states={rank: State.STARTED for rank in range(8) if rank != missing},
        job_rank={rank: rank for rank in range(8)},
        time_ns=last,
    )
    jobs = [msgspec.structs.replace(job, pending=[pending], dumped=frozenset(range(8)))]
    return msgspec.structs.replace(window, jobs=jobs)


def test_dumps_that_accuse_the_same_rank_make_it_certain() -> None:
    (finding,) = hang.detect(with_dumps(hung(report(gone(2))), missing=4))
    assert finding.culprit.rank == 4
    assert finding.strength == pytest.approx(0.97)
    assert [one.metric for one in finding.evidence] == [
        "pending_operations",
        "fabric_job_ras_standing_seconds",
    ]


def test_dumps_that_accuse_another_rank_make_both_suspects() -> None:
    (finding,) = hang.detect(with_dumps(hung(report(gone(2))), missing=6))
    assert [(one.culprit.rank, one.share) for one in finding.suspects] == [(6, 0.5), (4, 0.5)]
    assert finding.evidence[-1].text.endswith("(dumps differ)")


def test_a_standstill_without_a_culprit_says_what_ras_saw() -> None:
    (finding,) = hang.detect(hung(report(seconds=60.0), silent=60.0))
    assert finding.cause is Cause.STALL
    assert "none is missing" in finding.evidence[-1].text


def test_text_without_counts_names_who_is_gone_where_records_show_that_the_job_stands() -> None:
    short = report(gone(2), seconds=0.0, answers=1, launched={}, alike=0)
    (finding,) = hang.detect(hung(short))
    assert finding.culprit.rank == 4
    assert only(hung(short)) == []


# Cases that leave the service --------------------------------------------------------------------


def test_a_case_keeps_what_ras_said_and_neither_addresses_nor_processes() -> None:
    odd = OddRank(rank=2, launched=LESS, address="10.9.8.7", pid=4711, waits_in="0xsecret")
    window = telling(hung(), report(odd, nccl="2.28.9"))
    names = NameBook(())
    work = EventScrub(names, TimeShift(window.from_ns))
    work.events(window.events)
    names.close()
    (event,) = work.events(window.events)
    kept = decode_report(event)
    assert kept is not None
    assert kept.odd[0].launched == LESS
    assert kept.odd[0].waits_in not in {"", "0xsecret"}
    for secret in ("10.9.8.7", "4711", "0xsecret", "2.28.9", WORLD):
        assert secret not in str(event)
