"""Who of many that died was the first, by their words; and that no victim is ever named."""

import msgspec

from alerts.detectors import crash
from alerts.judge.verdict import judge
from alerts.window.model import Rank, Window
from collector.contract.model import Event
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Reason
from collector.reading.kernel_log import understand
from collector.sources.kernel_log import last_words
from tests.worlds.late_jobs import make_job, make_window

END_NS = 1_800_000_100 * NS


def said(
    words: str,
    role: str,
    reason: Reason,
    second: int | None = None,
    *,
    line: int = 1,
    proof: bool = True,
    labels: dict[str, str] | None = None,
    **attributes: str,
) -> Event:
    more = {"words": words, "role": role, "reason": str(reason), "line": str(line), "file": "log"}
    more |= {"proof": "1"} if proof else {}
    more |= {"timed": "1"} if second is not None else {}
    return Event(
        kind="last_words",
        time_ns=END_NS + (second or 0) * NS,
        labels=labels or {},
        message=f"{words} of {labels}",
        attributes={**more, **attributes},
    )


def oom(rank: int, second: int | None = None, line: int = 1) -> Event:
    labels = {"rank": str(rank)}
    return said("gpu_memory", "own", Reason.GPU_MEMORY, second, labels=labels, line=line)


def lost(rank: int, second: int | None = 5, line: int = 1) -> Event:
    labels = {"rank": str(rank)}
    return said("async_exception", "peer", Reason.CONNECTION_LOST, second, labels=labels, line=line)


def timed_out(rank: int, second: int | None = 9, line: int = 1) -> Event:
    labels = {"rank": str(rank)}
    return said("collective_timeout", "peer", Reason.TIMED_OUT, second, labels=labels, line=line)


def window(*events: Event, has_job: bool = True) -> Window:
    made = make_window(make_job(hosts=4, gpus=2, steps=5))
    jobs = made.jobs if has_job else []
    ports = made.ports
    return msgspec.structs.replace(made, jobs=jobs, ports=ports, events=list(events), is_live=False)


def found(*events: Event, has_job: bool = True) -> tuple[Cause, int | None, str, Reason]:
    (finding,) = crash.detect(window(*events, has_job=has_job))
    culprit = finding.culprit
    return finding.cause, culprit.rank, culprit.host, finding.reason


NOBODY = (None, "")


def test_the_rank_that_failed_by_itself_is_named_and_the_others_are_victims() -> None:
    (finding,) = crash.detect(window(oom(4), lost(5), *(timed_out(rank) for rank in (0, 1, 2))))
    assert (finding.cause, finding.reason) == (Cause.CRASH, Reason.GPU_MEMORY)
    assert (finding.culprit.rank, finding.culprit.host) == (4, "node2")
    assert [one.rank for one in finding.victims] == [0, 1, 2, 5]
    assert finding.evidence[0].text.startswith("rank 4: gpu_memory")


def test_a_rank_that_complained_before_it_failed_is_a_victim() -> None:
    """Ranks whose communicator was aborted fail with errors of their own afterwards."""
    after = oom(5, line=7)
    cause, *who, reason = found(lost(5, None, line=3), after, timed_out(0))
    assert (cause, tuple(who)) == (Cause.CRASH, NOBODY)
    assert reason is Reason.CONNECTION_LOST


def test_an_error_of_a_gpu_after_others_complained_names_nobody() -> None:
    error = said("cuda_error", "own", Reason.UNKNOWN, None, labels={"rank": "7"})
    assert found(error, timed_out(0))[1:3] == NOBODY
    timed = said("cuda_error", "own", Reason.UNKNOWN, 20, labels={"rank": "7"})
    assert found(timed, timed_out(0))[1:3] == NOBODY
    early = said("cuda_error", "own", Reason.UNKNOWN, 1, labels={"rank": "7"})
    assert found(early, timed_out(0))[1] == 7


def test_a_failure_long_after_complaints_is_not_the_first() -> None:
    assert found(oom(4, 60), timed_out(0, 9))[1:3] == NOBODY
    assert found(oom(4, 8), timed_out(0, 9))[1] == 4


def test_of_two_that_failed_the_clearly_earlier_is_named() -> None:
    assert found(oom(4, 1), oom(6, 30))[1] == 4
    (finding,) = crash.detect(window(oom(4, 1), oom(6, 2)))
    assert [finding.culprit.rank, *(one.rank for one in finding.accomplices)] == [4, 6]


def test_where_most_ranks_fail_alike_no_rank_is_named() -> None:
    cause, *who, reason = found(*(oom(rank) for rank in range(8)))
    assert (cause, tuple(who), reason) == (Cause.CRASH, NOBODY, Reason.GPU_MEMORY)


def test_only_complaints_name_nobody() -> None:
    assert found(*(timed_out(rank) for rank in range(8)))[1:] == (*NOBODY, Reason.TIMED_OUT)
    assert found(lost(1), lost(3), timed_out(0))[1:] == (*NOBODY, Reason.CONNECTION_LOST)


def test_words_that_prove_no_death_are_no_finding() -> None:
    closed = said("peer_closed", "peer", Reason.CONNECTION_LOST, 1, proof=False)
    assert crash.detect(window(closed)) == []
    assert crash.detect(window()) == []


def test_a_launcher_names_whom_it_saw_killed_unless_that_one_complained_before() -> None:
    killed = said("root_cause", "own", Reason.KILLED, 6, labels={"rank": "3", "pid": "77"})
    assert found(killed, lost(2))[1:] == (3, "node1", Reason.KILLED)
    assert found(killed, timed_out(3, 2), timed_out(2, 2))[1:3] == NOBODY


def test_the_kernel_says_why_a_process_was_killed() -> None:
    """Three lines about one process, and one about its host, are one accusation."""
    events = (
        said(
            "root_cause", "own", Reason.KILLED, 6, labels={"rank": "3", "host": "node1", "pid": "7"}
        ),
        said("oom_killer", "own", Reason.HOST_MEMORY, 5, labels={"host": "node1", "pid": "7"}),
        said("elastic_exit", "own", Reason.KILLED, 6, labels={"local_rank": "1", "pid": "7"}),
        said("slurm_task", "own", Reason.KILLED, None, labels={"host": "node1"}),
        lost(2, 8),
    )
    assert found(*events)[1:] == (3, "node1", Reason.HOST_MEMORY)


def test_a_kernel_of_a_host_without_a_rank_of_the_job_is_not_heard() -> None:
    xid = said("xid", "own", Reason.GPU_ERROR, 1, labels={"host": "elsewhere"})
    assert found(xid, timed_out(0))[1:3] == NOBODY
    here = said("xid", "own", Reason.GPU_ERROR, 1, labels={"host": "node3.cluster"})
    assert found(here, timed_out(0))[1:] == (None, "node3.cluster", Reason.GPU_ERROR)


def test_a_kernel_is_not_heard_where_the_jobs_hosts_are_not_known() -> None:
    xid = said("xid", "own", Reason.GPU_ERROR, 1, labels={"host": "node3"})
    nowhere = window(xid, timed_out(0))
    ranks = {rank: Rank(rank=rank) for rank in range(8)}
    jobs = [msgspec.structs.replace(nowhere.jobs[0], ranks=ranks)]
    (finding,) = crash.detect(msgspec.structs.replace(nowhere, jobs=jobs))
    assert finding.culprit.host == ""
    # Without any job: it is the only one that speaks of a host, or another line names the host.
    assert found(xid, timed_out(0), has_job=False)[2] == "node3"
    elsewhere = broken("node7", "10.0.0.2")
    assert found(xid, elsewhere, has_job=False)[2] == ""


def test_a_job_that_was_ended_from_outside_has_no_culprit() -> None:
    limit = said("slurm_time_limit", "end", Reason.ENDED, 3)
    assert found(limit)[1:] == (*NOBODY, Reason.ENDED)
    assert found(limit, lost(1, 8))[1:] == (*NOBODY, Reason.ENDED)


# --- peers ---------------------------------------------------------------------------------------


def broken(host: str, peer: str, second: int = 5) -> Event:
    labels = {"host": host, "pid": "1"}
    return said("ib_completion", "peer", Reason.CONNECTION_LOST, second, labels=labels, peer=peer)


def address(host: str, text: str) -> Event:
    return Event(
        kind="host_address", time_ns=END_NS, labels={"host": host}, attributes={"address": text}
    )


ADDRESSES = [address(f"node{number}", f"10.0.0.{number}") for number in range(4)]


def test_a_silent_host_that_two_others_lost_is_named() -> None:
    both = (broken("node0", "10.0.0.2"), broken("node3", "10.0.0.2"))
    assert found(*both, *ADDRESSES)[1:] == (None, "node2", Reason.CONNECTION_LOST)


def test_of_one_connection_neither_end_is_named() -> None:
    assert found(broken("node0", "10.0.0.2"), *ADDRESSES)[1:3] == NOBODY
    mutual = (broken("node0", "10.0.0.2"), broken("node2", "10.0.0.0"), broken("node3", "10.0.0.2"))
    assert found(*mutual, *ADDRESSES)[1:3] == NOBODY


def test_a_peer_without_a_known_address_is_nobody() -> None:
    both = (broken("node0", "10.9.9.9"), broken("node3", "10.9.9.9"))
    assert found(*both, *ADDRESSES)[1:3] == NOBODY
    twice = [*ADDRESSES, address("node1", "10.0.0.2")]
    again = (broken("node0", "10.0.0.2"), broken("node3", "10.0.0.2"))
    assert found(*again, *twice)[1:3] == NOBODY


def test_evidence_says_whose_address_it_is() -> None:
    (finding,) = crash.detect(window(broken("node0", "10.0.0.2"), *ADDRESSES))
    assert "(10.0.0.2 is node2)" in finding.evidence[0].text


# --- desync reports ------------------------------------------------------------------------------


def absent(reporter: int, ranks: str, second: int = 9) -> Event:
    labels = {"rank": str(reporter)}
    return said("desync", "peer", Reason.TIMED_OUT, second, labels=labels, absent=ranks)


def test_a_rank_that_reports_agree_on_never_launched() -> None:
    assert found(absent(0, "3"), absent(1, "3")) == (Cause.HANG, 3, "node1", Reason.NOT_LAUNCHED)


def test_reports_are_not_believed_after_a_lost_connection_or_against_many() -> None:
    assert found(absent(0, "3"), absent(1, "3"), lost(2, 5))[1:3] == NOBODY
    assert found(absent(0, "3"))[1:3] == NOBODY
    assert found(absent(0, "3"), absent(1, "4"))[1:3] == NOBODY
    most = "0,1,2,3,4,6,7"
    assert found(absent(5, most), absent(6, most))[1:3] == NOBODY
    assert found(absent(0, "3"), absent(1, "3"), timed_out(3, 8))[1:3] == NOBODY


# --- beside other findings -----------------------------------------------------------------------


def test_without_any_job_the_words_are_a_verdict_of_their_own() -> None:
    (verdict,) = judge(window(timed_out(3), has_job=False))
    assert (verdict.cause, verdict.culprit) == (Cause.CRASH, Culprit())
    assert (
        verdict.summary == "The job died: a collective timed out; this evidence names no culprit."
    )


def test_a_rank_that_the_kernel_killed_is_named_as_its_agent_reports_it() -> None:
    """The event as the source `kernel_log` makes it; the agent adds the host."""
    made = window()
    job, host = made.jobs[0].job, made.jobs[0].ranks[3].host
    line = b"Memory cgroup out of memory: Killed process 4201 (python) total-vm:1kB"
    killed = understand(line)
    assert killed is not None
    event = last_words(killed, {"pid": "4201", "job": job, "rank": "3"}, END_NS)
    event = msgspec.structs.replace(event, labels=event.labels | {"host": host})
    (verdict,) = judge(window(event, lost(1), timed_out(0)))
    assert (verdict.cause, verdict.reason) == (Cause.CRASH, Reason.HOST_MEMORY)
    assert (verdict.culprit.rank, verdict.culprit.host) == (3, host)
    assert "Killed process 4201" in verdict.evidence[0].text


def test_words_of_two_jobs_are_judged_apart() -> None:
    one = window(oom(1))
    job = one.jobs[0]
    other = msgspec.structs.replace(job, job="other", ranks={0: Rank(rank=0, host="far")})
    events = [
        msgspec.structs.replace(oom(1), labels={"rank": "1", "job": job.job}),
        msgspec.structs.replace(timed_out(0), labels={"rank": "0", "job": "other"}),
    ]
    both = msgspec.structs.replace(one, jobs=[job, other], events=events)
    assert {(each.job, each.culprit.rank) for each in crash.detect(both)} == {
        (job.job, 1),
        ("other", None),
    }


def test_order_does_not_matter() -> None:
    events = [oom(4), lost(5), timed_out(0), timed_out(1)]
    assert crash.detect(window(*events)) == crash.detect(window(*reversed(events)))
