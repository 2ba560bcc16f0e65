"""Who is waited for, where dumps are missing or cut off: absence is no evidence."""

from collections.abc import Iterable

import msgspec
import pytest

from alerts.detectors import hang
from alerts.judge.verdict import judge
from alerts.signals.blocked import Blame, blame
from alerts.window.model import Pending, Window
from collector.contract.model import Event
from collector.contract.verdict import Cause, Reason, Verdict
from tests.unit.alerts.test_hang_stall import DONE, LAUNCHED, OPEN, hung, wait

EVERYBODY = range(8)


def dumped(pending: list[Pending], ranks: Iterable[int]) -> Window:
    """A capture of the job of eight, with the dumps of these ranks."""
    window = hung()
    (job,) = window.jobs
    late = int(job.operations.last_exit_ns.max()) + 1
    waits = [msgspec.structs.replace(one, time_ns=late) for one in pending]
    job = msgspec.structs.replace(job, pending=waits, dumped=frozenset(ranks), is_running=False)
    return msgspec.structs.replace(window, jobs=[job], is_live=False, to_ns=late + 1)


def blamed(pending: list[Pending], ranks: Iterable[int]) -> Blame:
    found = blame(dumped(pending, ranks).jobs[0])
    assert found is not None
    return found


def verdict_of(pending: list[Pending], ranks: Iterable[int]) -> Verdict:
    window = dumped(pending, ranks)
    (verdict,) = judge(window, hang.detect(window))
    return verdict


def all_but(*ranks: int) -> list[int]:
    return [rank for rank in EVERYBODY if rank not in ranks]


def everybody_waits_but(*ranks: int) -> list[Pending]:
    return [wait("a", 5, dict.fromkeys(all_but(*ranks), OPEN), list(EVERYBODY))]


def test_a_rank_whose_own_dump_waits_in_nothing_never_launched() -> None:
    verdict = verdict_of(everybody_waits_but(3), EVERYBODY)
    assert (verdict.culprit.rank, verdict.reason) == (3, Reason.NOT_LAUNCHED)
    assert verdict.confidence > 0.9


def test_a_rank_without_a_dump_is_a_suspect_and_has_not_failed_to_launch() -> None:
    verdict = verdict_of(everybody_waits_but(3), all_but(3))
    assert (verdict.cause, verdict.culprit.rank) == (Cause.HANG, 3)
    assert verdict.reason is Reason.UNKNOWN
    assert verdict.confidence <= 0.5
    assert "never launched" not in verdict.summary
    assert "nccl_trace_rank_3" in verdict.action
    assert "drain" not in verdict.action.lower()


def test_two_innocents_without_dumps_do_not_hide_the_one_that_has_not_launched() -> None:
    found = blamed(everybody_waits_but(1, 2, 3), all_but(1, 2))
    assert (found.ranks, found.unread, found.is_certain) == ((3,), (1, 2), True)


def test_of_many_without_dumps_nobody_is_named_and_the_standstill_is() -> None:
    verdict = verdict_of(everybody_waits_but(1, 2, 3, 4, 5), all_but(1, 2, 3, 4, 5))
    assert (verdict.cause, verdict.culprit.rank) == (Cause.STALL, None)
    assert verdict.confidence <= 0.5
    assert "ranks 1-5" in verdict.action


def test_one_that_waits_alone_proves_nothing_against_the_only_other_that_was_read() -> None:
    alone = [wait("a", 5, {0: OPEN}, list(EVERYBODY))]
    assert blame(dumped(alone, [0, 1]).jobs[0]) is None


def test_a_rank_in_what_others_have_left_may_wait_for_one_that_was_not_read() -> None:
    left = [
        wait("a", 5, {0: DONE, 1: DONE, 2: LAUNCHED}, [0, 1, 2, 3]),
        wait("a", 6, {0: OPEN, 1: OPEN}, [0, 1, 2, 3]),
    ]
    whole = blamed([*left, wait("a", 6, {3: OPEN}, [0, 1, 2, 3])], EVERYBODY)
    assert (whole.ranks, whole.reason, whole.is_certain) == ((2,), Reason.NOT_FINISHED, True)
    part = verdict_of(left, all_but(3))
    assert part.confidence <= 0.5
    assert "rank 3" in part.action


@pytest.mark.parametrize("ranks", [EVERYBODY, all_but(7)])
def test_dumps_in_which_nobody_is_missing_accuse_nobody(ranks: Iterable[int]) -> None:
    waits = [wait("a", 5, dict.fromkeys(EVERYBODY, OPEN), list(EVERYBODY))]
    assert blame(dumped(waits, ranks).jobs[0]) is None


@pytest.mark.parametrize(
    ("lost_by", "dumps", "is_sure"),
    [((2, 4), all_but(3), True), ((2,), all_but(3), False), ((2, 4), all_but(3, 5), False)],
)
def test_peers_that_lost_it_are_a_second_witness_against_a_rank_without_a_dump(
    lost_by: tuple[int, ...], dumps: list[int], *, is_sure: bool
) -> None:
    """Two must have lost a peer, and all others must have dumped."""
    window = dumped(everybody_waits_but(3), dumps)
    words = [
        Event(
            kind="last_words",
            time_ns=window.to_ns,
            labels={"rank": str(rank), "job": window.jobs[0].job},
            attributes={"role": "peer", "reason": "connection_lost"},
        )
        for rank in lost_by
    ]
    window = msgspec.structs.replace(window, events=words)
    (verdict,) = judge(window, hang.detect(window))
    assert (verdict.confidence > 0.9, verdict.reason is Reason.NOT_LAUNCHED) == (is_sure, is_sure)
    assert verdict.culprit.rank == 3
