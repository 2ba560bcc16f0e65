"""The judge: findings of jobs and of machines become one root with its victims."""

import msgspec
import numpy as np
import pytest

from alerts.finding import Finding, Suspect
from alerts.judge.confidence import confidence
from alerts.judge.explains import lasts_with
from alerts.judge.verdict import BARE_WAIT_NS, SOFT_WAIT_NS, judge
from alerts.window.columns import Operations
from alerts.window.model import JobWindow, Window
from collector.contract.units import NS
from collector.contract.verdict import Cause, Cost, Culprit, Evidence, Layer, Reason
from tests.worlds.machines import empty_columns
from tests.worlds.small_fabric import SmallFabric

JOB = "ring"
AGE_NS = 40 * NS


def nic(number: int) -> Culprit:
    return Culprit(host=f"node{number}", device="mlx5_0", port="1")


def leaf(number: int) -> Culprit:
    """The other end of the same cable."""
    return Culprit(switch=f"leaf-{number // 4}", switch_port=str(number % 4 + 1))


@pytest.fixture(name="window")
def make_window() -> Window:
    window = SmallFabric().window()
    assert [job.job for job in window.jobs] == [JOB]
    return window


def found(
    window: Window,
    cause: Cause,
    culprit: Culprit,
    *,
    reason: Reason = Reason.UNKNOWN,
    job: str = "",
    age_ns: int = AGE_NS,
    strength: float = 0.9,
    suspects: tuple[tuple[Culprit, float], ...] = (),
) -> Finding:
    """A finding that began so long ago and lasts."""
    communicators = tuple(window.jobs[0].communicators) if job and window.jobs else ()
    return Finding(
        detector=str(cause),
        cause=cause,
        reason=reason,
        culprit=culprit,
        strength=strength,
        job=job,
        since_ns=window.to_ns - age_ns,
        last_ns=window.to_ns,
        until_ns=None,
        communicators=communicators,
        suspects=tuple(Suspect(culprit=one, share=share) for one, share in suspects),
        evidence=(Evidence(metric=str(cause), text="seen", value=1.0, unit="ratio"),),
        cost=(
            Cost(
                job=job,
                lost_seconds=10.0,
                step_seconds=2.0,
                step_seconds_without=1.0,
                lost_share=0.5,
                gpu_hours=1.0,
            )
            if job
            else None
        ),
    )


def slow(window: Window, culprit: Culprit, **more: int) -> Finding:
    """The job's own times accuse two NICs alike, the first by its name."""
    both = ((culprit, 0.5), (nic(2), 0.5))
    return found(
        window, Cause.SLOW_LINK, culprit, job=JOB, suspects=both, age_ns=more.get("age_ns", AGE_NS)
    )


def test_a_slow_transfer_is_explained_by_what_the_accused_port_counts(window: Window) -> None:
    damage = found(window, Cause.LOSSY_LINK, leaf(2), reason=Reason.CABLE)
    [verdict] = judge(window, [slow(window, nic(1)), damage])
    assert (verdict.cause, verdict.reason) == (Cause.LOSSY_LINK, Reason.CABLE)
    assert (verdict.culprit.host, verdict.culprit.switch_port) == ("node2", "3")
    assert verdict.culprit.rank == 2
    assert verdict.jobs == (JOB,)
    assert [cost.lost_share for cost in verdict.costs] == [0.5]
    assert {one.metric for one in verdict.evidence} == {"lossy_link", "slow_link"}
    assert verdict.layer is Layer.NETWORK
    assert verdict.summary
    assert verdict.action


def test_of_several_findings_on_one_way_the_one_nearest_to_the_root_stands(window: Window) -> None:
    findings = [
        slow(window, nic(2)),
        found(window, Cause.CONGESTION, leaf(2)),
        found(window, Cause.PAUSE_STORM, nic(2), reason=Reason.NIC),
        found(window, Cause.SLOW_LINK, nic(2), reason=Reason.RATE_DOWNGRADE),
    ]
    [verdict] = judge(window, findings)
    assert (verdict.cause, verdict.reason) == (Cause.SLOW_LINK, Reason.RATE_DOWNGRADE)


def test_what_happens_to_hosts_without_a_job_is_no_verdict(window: Window) -> None:
    assert judge(window, [found(window, Cause.LINK_FLAP, nic(7), reason=Reason.CABLE)]) == []
    assert judge(window, [found(window, Cause.LINK_FLAP, nic(3), reason=Reason.CABLE)]) != []


def test_what_begins_between_two_jobs_is_no_verdict(window: Window) -> None:
    flap = found(window, Cause.LINK_FLAP, nic(3), reason=Reason.CABLE)
    idle = msgspec.structs.replace(window, jobs=(), jobs_ended_ns=flap.since_ns - 120 * NS)
    assert judge(idle, [flap]) == []
    held_up = msgspec.structs.replace(idle, jobs_ended_ns=flap.since_ns + NS)
    assert judge(held_up, [flap]) != [], "it began while a job ran"
    unknown = msgspec.structs.replace(idle, jobs_ended_ns=None)
    assert judge(unknown, [flap]) != [], "no job was ever seen here"


@pytest.mark.parametrize(
    ("since_s", "last_s", "is_one"),
    [(0, 60, True), (0, 32, True), (38, 60, True), (45, 55, False), (0, 15, False)],
    ids=["all of it", "most of it", "a good part and still", "a moment ago", "long over"],
)
def test_a_slight_lateness_needs_a_reason_that_lasts(
    window: Window, since_s: int, last_s: int, *, is_one: bool
) -> None:
    start = window.to_ns - 60 * NS

    def lasting(finding: Finding, since: int, last: int) -> Finding:
        since_ns, last_ns = start + since * NS, start + last * NS
        return msgspec.structs.replace(finding, since_ns=since_ns, last_ns=last_ns)

    late = found(window, Cause.STRAGGLER, Culprit(job=JOB, host="node3"), job=JOB)
    loader = found(window, Cause.STRAGGLER, Culprit(host="node3"), reason=Reason.DATA_LOADING)
    assert lasts_with(lasting(loader, since_s, last_s), lasting(late, 0, 60)) is is_one


def test_a_port_far_from_the_slow_bytes_explains_nothing(window: Window) -> None:
    elsewhere = found(window, Cause.LOSSY_LINK, nic(7), reason=Reason.CABLE)
    [verdict] = judge(window, [slow(window, nic(1)), elsewhere])
    assert (verdict.cause, verdict.culprit.host) == (Cause.SLOW_LINK, "node1")


def test_what_ended_before_the_trouble_began_explains_nothing(window: Window) -> None:
    before = msgspec.structs.replace(
        found(window, Cause.LOSSY_LINK, nic(2), reason=Reason.CABLE),
        since_ns=window.from_ns,
        last_ns=window.from_ns + 5 * NS,
        until_ns=window.from_ns + 5 * NS,
    )
    verdicts = judge(window, [slow(window, nic(1)), before])
    assert Cause.SLOW_LINK in {verdict.cause for verdict in verdicts}


@pytest.mark.parametrize(
    ("cause", "wait_ns"), [(Cause.CONGESTION, SOFT_WAIT_NS), (Cause.SLOW_LINK, BARE_WAIT_NS)]
)
def test_nothing_is_said_before_better_evidence_had_its_turn(
    window: Window, cause: Cause, wait_ns: int
) -> None:
    def at(age_ns: int) -> list[Finding]:
        if cause is Cause.SLOW_LINK:
            return [slow(window, nic(1), age_ns=age_ns)]
        return [found(window, cause, leaf(1), age_ns=age_ns)]

    assert judge(window, at(wait_ns - NS)) == []
    assert [verdict.cause for verdict in judge(window, at(wait_ns))] == [cause]
    ended = msgspec.structs.replace(window, is_live=False)
    assert [verdict.cause for verdict in judge(ended, at(wait_ns - NS))] == [cause]


def test_a_late_rank_gets_the_reason_of_its_own_gpu_and_of_no_other(window: Window) -> None:
    late = found(window, Cause.STRAGGLER, Culprit(job=JOB, rank=3, host="node3", gpu=0), job=JOB)
    hot = found(window, Cause.STRAGGLER, Culprit(host="node3", gpu=0), reason=Reason.GPU_THROTTLED)
    other = found(window, Cause.STRAGGLER, Culprit(host="node4", gpu=0), reason=Reason.GPU_ERROR)
    [verdict] = judge(window, [late, hot, other])
    assert (verdict.cause, verdict.reason) == (Cause.STRAGGLER, Reason.GPU_THROTTLED)
    assert verdict.layer is Layer.COMPUTE
    [bare] = judge(window, [late, other])
    assert bare.reason is Reason.UNKNOWN


def ended_at(window: Window, host: str) -> Window:
    """The job's operations of the last minute, of which three in four end at a rank of the host."""
    (job,) = window.jobs
    name, communicator = next(iter(job.communicators.items()))
    last = next(rank for rank in communicator.job_rank if job.rank_of(name, rank).host == host)  # type: ignore[union-attr]
    other = next(rank for rank in communicator.job_rank if rank != last)
    moments = window.to_ns - np.arange(60, dtype=np.int64) * NS
    column = {key: np.zeros(60, dtype=np.int64) for key in empty_columns(Operations).arrays()}
    operations = Operations(
        communicators=[name],
        operations=["all_reduce"],
        **{
            **column,
            "last_exit_ns": moments,
            "last_out": np.where(np.arange(60) % 4, last, other),
        },
    )
    return msgspec.structs.replace(
        window, jobs=[msgspec.structs.replace(job, operations=operations)]
    )


def test_ranks_where_slow_transfers_end_are_late_by_them_unless_they_have_a_reason(
    window: Window,
) -> None:
    """They leave last, so they come late to what follows."""
    late = found(window, Cause.STRAGGLER, Culprit(job=JOB, host="node3"), job=JOB)
    link = slow(window, nic(1))
    assert len(judge(ended_at(window, "node5"), [late, link])) == 2
    (only,) = judge(ended_at(window, "node3"), [late, link])
    assert only.cause is Cause.SLOW_LINK
    busy = found(window, Cause.STRAGGLER, Culprit(host="node3"), reason=Reason.HOST_STALL)
    assert len(judge(ended_at(window, "node3"), [late, link, busy])) == 2
    before = msgspec.structs.replace(late, since_ns=link.since_ns - 60 * NS)
    assert len(judge(ended_at(window, "node3"), [before, link])) == 2
    over_ns = late.since_ns - 15 * NS
    over = msgspec.structs.replace(
        link, since_ns=over_ns - 20 * NS, last_ns=over_ns, until_ns=over_ns
    )
    assert len(judge(ended_at(window, "node3"), [late, over])) == 2


@pytest.mark.parametrize(
    ("host", "strength", "accused"),
    [("node1", 0.5, False), ("node3", 0.5, False), ("node6", 0.5, True), ("node1", 0.9, True)],
)
def test_ranks_whose_bytes_pass_the_trouble_are_late_by_it_unless_they_surely_are(
    window: Window, host: str, strength: float, *, accused: bool
) -> None:
    """No operation of a job whose steps became long has ended often enough to show more."""
    bursts = found(window, Cause.MICROBURST, nic(2), reason=Reason.NEIGHBOUR)
    late = found(window, Cause.STRAGGLER, Culprit(job=JOB, host=host), job=JOB, strength=strength)
    said = [one.cause for one in judge(window, [late, bursts])]
    assert (Cause.STRAGGLER in said) is accused
    assert Cause.MICROBURST in said
    earlier = msgspec.structs.replace(late, since_ns=bursts.since_ns - 60 * NS)
    assert len(judge(window, [earlier, bursts])) == 2
    reason = found(window, Cause.STRAGGLER, Culprit(host=host), reason=Reason.HOST_STALL)
    assert len(judge(window, [late, bursts, reason])) == 2


@pytest.mark.parametrize("cause", [Cause.CONGESTION, Cause.LOSSY_LINK])
def test_a_queue_on_the_way_to_a_host_in_trouble_is_no_trouble_of_its_own(
    window: Window, cause: Cause
) -> None:
    reason = Reason.CONFIGURATION if cause is Cause.LOSSY_LINK else Reason.NEIGHBOUR
    alone = msgspec.structs.replace(window, jobs=())
    at_host = found(window, cause, nic(2), reason=reason)
    before, beside = (
        found(window, cause, Culprit(switch="spine-0", switch_port=port), reason=reason)
        for port in ("1", "3")
    )
    [only] = judge(alone, [at_host, before])
    assert only.culprit.host == "node2"
    assert len(judge(alone, [at_host, beside])) == 2
    assert len(judge(alone, [before])) == 1
    damaged = msgspec.structs.replace(before, cause=Cause.LOSSY_LINK, reason=Reason.CABLE)
    assert "spine-0" in {one.culprit.switch for one in judge(alone, [at_host, damaged])}


def of_many_ways(window: Window) -> Window:
    """The same job, where what leaves a leaf has thirty-two equal ways."""
    (job,) = window.jobs
    ways = job.paths
    assert ways is not None
    shares = np.where(ways.share < 1.0, 1 / 32, 1.0)
    paths = msgspec.structs.replace(ways, share=shares)
    return msgspec.structs.replace(window, jobs=(msgspec.structs.replace(job, paths=paths),))


def test_one_of_many_ways_is_to_blame_where_bytes_are_slow_since_it_is_full(
    window: Window,
) -> None:
    """Fat tree of seed 41301: three flows on one of 32 uplinks cost a quarter of each step."""
    many, uplink = of_many_ways(window), Culprit(switch="leaf-0", switch_port="7")
    full = found(window, Cause.CONGESTION, uplink, reason=Reason.ROUTING, strength=0.72)
    slight = found(window, Cause.SLOW_LINK, Culprit(), job=JOB, strength=0.299)
    [verdict] = judge(many, [full, slight])
    assert (verdict.cause, verdict.reason) == (Cause.CONGESTION, Reason.ROUTING)
    assert (verdict.culprit.switch, verdict.culprit.switch_port) == ("leaf-0", "7")
    assert [cost.lost_share for cost in verdict.costs] == [0.5]
    [verdict] = judge(many, [full, slow(window, nic(1))])
    assert verdict.culprit.switch_port == "7", "and no NIC that waits for it"


def test_one_of_many_ways_is_not_to_blame_by_itself_or_for_something_else(window: Window) -> None:
    many, uplink = of_many_ways(window), Culprit(switch="leaf-0", switch_port="7")
    full = found(window, Cause.CONGESTION, uplink, reason=Reason.ROUTING, strength=0.72)
    slight = found(window, Cause.SLOW_LINK, Culprit(), job=JOB, strength=0.299)
    assert judge(many, [full]) == []
    assert judge(many, [slight]) == []
    begun = msgspec.structs.replace(slight, since_ns=full.since_ns - 40 * NS)
    assert judge(many, [full, begun]) == [], "bytes were slow before"
    other = msgspec.structs.replace(full, reason=Reason.NEIGHBOUR)
    assert judge(many, [other, slight]) == [], "ways may be equal"
    flap = found(window, Cause.LINK_FLAP, leaf(1), reason=Reason.CABLE)
    [verdict] = judge(many, [full, slight, flap])
    assert verdict.cause is Cause.LINK_FLAP, "the flows had to go another way"


def job_of_edges(window: Window, name: str, edges: range) -> JobWindow:
    """A job with some of the ring's edges alone, and the ranks at their ends."""
    whole = window.jobs[0]
    ways = whole.paths
    assert ways is not None
    parts = [slice(int(ways.start[edge]), int(ways.start[edge + 1])) for edge in edges]
    ends = {end for edge in edges for end in (int(ways.source[edge]), int(ways.target[edge]))}
    return msgspec.structs.replace(
        whole,
        job=name,
        ranks={rank: one for rank, one in whole.ranks.items() if rank in ends},
        paths=msgspec.structs.replace(
            ways,
            communicator=[ways.communicator[edge] for edge in edges],
            source=ways.source[edges],
            target=ways.target[edges],
            start=np.cumsum([0, *(part.stop - part.start for part in parts)]),
            port=np.concatenate([ways.port[part] for part in parts]),
            share=np.concatenate([ways.share[part] for part in parts]),
        ),
    )


def test_bursts_are_an_effect_of_a_bad_cable_only_where_the_same_bytes_may_pass(
    window: Window,
) -> None:
    near, far = job_of_edges(window, JOB, range(3)), job_of_edges(window, "other", range(4, 5))
    two = msgspec.structs.replace(window, jobs=(near, far))
    damage = found(window, Cause.LOSSY_LINK, leaf(1), reason=Reason.CABLE)
    of_other, of_same = (
        found(window, Cause.MICROBURST, leaf(number), reason=Reason.NEIGHBOUR) for number in (5, 2)
    )
    causes = {one.culprit.host: one.cause for one in judge(two, [damage, of_other])}
    assert causes == {"node1": Cause.LOSSY_LINK, "node5": Cause.MICROBURST}
    [only] = judge(two, [damage, of_same])
    assert only.cause is Cause.LOSSY_LINK
    unknown = msgspec.structs.replace(near, paths=None)
    [only] = judge(msgspec.structs.replace(two, jobs=(unknown, far)), [damage, of_other])
    assert only.cause is Cause.LOSSY_LINK


def test_a_machine_that_makes_nobody_late_is_no_verdict_unless_no_job_is_known(
    window: Window,
) -> None:
    hot = found(window, Cause.STRAGGLER, Culprit(host="node3", gpu=0), reason=Reason.GPU_THROTTLED)
    assert judge(window, [hot]) == []
    [verdict] = judge(msgspec.structs.replace(window, jobs=()), [hot])
    assert verdict.culprit.host == "node3"


def test_of_a_job_that_stands_still_nothing_else_is_said(window: Window) -> None:
    hang = found(
        window, Cause.HANG, Culprit(job=JOB, rank=2, host="node2"), job=JOB, reason=Reason.LINK_DOWN
    )
    down = found(window, Cause.LINK_FLAP, nic(2), reason=Reason.LINK_DOWN)
    stall = found(window, Cause.STALL, Culprit(job=JOB), job=JOB)
    [verdict] = judge(window, [hang, down, stall, slow(window, nic(1))])
    assert verdict.cause is Cause.HANG
    assert verdict.layer is Layer.NETWORK


def test_a_stall_accuses_nobody(window: Window) -> None:
    [verdict] = judge(window, [found(window, Cause.STALL, Culprit(job=JOB), job=JOB)])
    assert verdict.cause is Cause.STALL
    assert (verdict.culprit.rank, verdict.culprit.host) == (None, "")


def test_context_and_weak_findings_are_never_said(window: Window) -> None:
    weak = found(window, Cause.LOSSY_LINK, nic(1), strength=0.2)
    context = msgspec.structs.replace(found(window, Cause.CONGESTION, nic(1)), is_context=True)
    assert judge(window, [weak, context]) == []


def test_what_had_data_and_was_not_found_is_ruled_out(window: Window) -> None:
    [verdict] = judge(window, [slow(window, nic(1))])
    ruled = {one.what: one.why for one in verdict.ruled_out}
    assert "link_flap" in ruled
    assert "ports were read" in ruled["link_flap"]
    assert "gpu_throttled" not in ruled  # no GPU was read


def test_the_order_of_findings_does_not_matter(window: Window) -> None:
    findings = [
        slow(window, nic(1)),
        found(window, Cause.LOSSY_LINK, nic(2), reason=Reason.CABLE),
        found(window, Cause.PAUSE_STORM, nic(2)),
        found(window, Cause.CONGESTION, leaf(4)),
    ]
    assert judge(window, findings) == judge(window, findings[::-1])


def test_two_suspects_alike_are_a_coin_toss_and_evidence_of_machines_adds(window: Window) -> None:
    tie = slow(window, nic(1))
    clear = found(window, Cause.SLOW_LINK, nic(1), job=JOB, suspects=((nic(1), 0.9), (nic(2), 0.1)))
    damage = found(window, Cause.LOSSY_LINK, nic(1), reason=Reason.CABLE)
    toss, sure, both = (
        confidence(tie, [tie], []),
        confidence(clear, [clear], []),
        confidence(damage, [clear], []),
    )
    assert 0.45 <= toss <= 0.7 < sure < both <= 1.0


def test_many_links_of_one_switch_that_go_down_together_are_the_switch(window: Window) -> None:
    flaps = [
        found(window, Cause.LINK_FLAP, leaf(number), reason=Reason.CABLE) for number in range(4)
    ]
    [verdict] = judge(window, flaps)
    assert (verdict.cause, verdict.reason) == (Cause.LINK_FLAP, Reason.SWITCH)
    assert (verdict.culprit.switch, verdict.culprit.host) == ("leaf-0", "")
    assert sorted(each.host for each in verdict.accomplices) == ["node0", "node1", "node2", "node3"]
    assert "leaf-0" in verdict.summary
    two = judge(window, flaps[:2])
    assert sorted(verdict.culprit.host for verdict in two) == ["node0", "node1"]


def test_a_thousand_symptoms_are_weighed_in_bounded_numbers(window: Window) -> None:
    noise = [
        msgspec.structs.replace(found(window, Cause.CONGESTION, leaf(number % 4)), since_ns=number)
        for number in range(2000)
    ]
    root = found(window, Cause.LOSSY_LINK, nic(1), reason=Reason.CABLE)
    verdicts = judge(window, [*noise, slow(window, nic(1)), root])
    assert verdicts[0].cause is Cause.LOSSY_LINK
    assert len(verdicts) < 10
