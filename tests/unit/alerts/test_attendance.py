"""What a verdict on a part of the ranks is worth."""

import msgspec
import pytest

from alerts.finding import Finding
from alerts.judge.attendance import Doubt, doubt_of
from alerts.judge.undecided import of_unread
from alerts.judge.words import action, summary
from alerts.window.model import Communicator, Window
from collector.contract.verdict import Cause, Culprit, Verdict
from tests.unit.alerts.test_hang_stall import hung


def partly_read(read: int | None, **fields: object) -> Window:
    """A window of a job of eight ranks, of which so many have records."""
    window = hung()
    (job,) = window.jobs
    unread = list(range(read, 8)) if read is not None else []
    given = {"size": 8, "ranks_read": read, "unread": unread, "source": "nccl_inspector", **fields}
    job = msgspec.structs.replace(job, **given)
    return msgspec.structs.replace(window, jobs=[job])


def finding(cause: Cause, job: str = "training") -> Finding:
    culprit = Culprit(job=job, rank=1, host="node0")
    return Finding(
        detector="any", cause=cause, culprit=culprit, strength=0.9, since_ns=1, until_ns=None,
        last_ns=2, job=job,
    )  # fmt: skip


def doubt(window: Window, found: Finding) -> Doubt:
    seen = doubt_of(window, found, [found])
    assert seen is not None
    return seen


@pytest.mark.parametrize(
    ("cause", "read", "most"),
    [
        (Cause.STRAGGLER, 6, 0.875),
        (Cause.STRAGGLER, 4, 0.5),
        (Cause.STRAGGLER, 2, 0.5),
        (Cause.SLOW_LINK, 7, 0.5),
    ],
)
def test_confidence_falls_with_what_was_not_read(cause: Cause, read: int, most: float) -> None:
    window = partly_read(read)
    # All that the job's records have: only the number of those that were read is varied here.
    assert doubt(window, finding(cause)).confidence_max == pytest.approx(most)


def test_a_late_rank_is_not_sure_where_transfers_are_slow_and_ranks_were_not_read() -> None:
    late, slow = finding(Cause.STRAGGLER), finding(Cause.SLOW_LINK)
    seen = doubt_of(partly_read(6), late, [slow])
    assert seen is not None
    assert seen.confidence_max == 0.5
    assert doubt_of(partly_read(8), late, [slow]) is None


@pytest.mark.parametrize("read", [8, None])
@pytest.mark.parametrize("cause", [Cause.STRAGGLER, Cause.SLOW_LINK, Cause.HANG])
def test_nothing_is_doubted_where_all_was_read_or_nobody_asked(
    cause: Cause, read: int | None
) -> None:
    window = partly_read(read, dumped=None if read is None else frozenset(range(8)))
    assert doubt_of(window, finding(cause), []) is None


def test_a_machines_own_finding_needs_no_ranks() -> None:
    alone = finding(Cause.LOSSY_LINK, job="")
    assert doubt_of(partly_read(2), alone, []) is None


@pytest.mark.parametrize(("seen", "most"), [(4, 0.5), (6, 0.875)])
def test_a_communicator_of_which_half_was_read_shows_no_majority(seen: int, most: float) -> None:
    world = Communicator(name="world", ranks=8, job_rank={rank: rank for rank in range(8)})
    window = partly_read(7, communicators={"world": world})
    vars(window.jobs[0])["recorded"] = {"world": set(range(seen))}
    assert doubt(window, finding(Cause.STRAGGLER)).confidence_max == most


def test_what_is_to_do_is_to_collect_and_not_to_drain() -> None:
    found = doubt(partly_read(3), finding(Cause.SLOW_LINK))
    verdict = Verdict(
        cause=Cause.SLOW_LINK,
        culprit=Culprit(host="node0", device="eth0", rank=1),
        since_ns=1,
        confidence=0.44,
        evidence=(found.evidence,),
    )
    verdict = msgspec.structs.replace(verdict, undecided=of_unread(verdict, found))
    assert action(verdict).startswith("Collect the NCCL Inspector logs of ranks 3-7")
    assert "drain" not in action(verdict)
    assert "as far as 3 of 8 ranks show" in summary(verdict)
    sure = msgspec.structs.replace(verdict, confidence=0.9)
    assert "drain node0" in action(sure)
    assert "as far as" not in summary(sure)
