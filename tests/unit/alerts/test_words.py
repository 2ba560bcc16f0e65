"""Verdicts in words: every cause and reason has some, and none says more than its fields."""

import itertools
import re

import msgspec
import pytest

from alerts.judge import words
from collector.contract import figures
from collector.contract.verdict import Cause, Cost, Culprit, Evidence, Reason, Verdict

NIC = Culprit(host="node3", device="mlx5_3", port="1", switch="leaf1", switch_port="Eth4")
RANK = Culprit(job="llama", rank=5, host="node5", gpu=2)
CULPRITS = (
    NIC,
    RANK,
    Culprit(host="node3", device="eth0"),
    Culprit(switch="spine0", switch_port="Eth1"),
    Culprit(switch="spine0"),
    Culprit(host="node5", gpu=2),
    Culprit(host="node5"),
    Culprit(job="llama", rank=5),
    Culprit(),
)
PAIRS = list(itertools.product(Cause, Reason))


def a_verdict(cause: Cause, reason: Reason, culprit: Culprit) -> Verdict:
    return Verdict(cause=cause, reason=reason, culprit=culprit, since_ns=1)


def a_cost(job: str = "llama", lost: float = 12.0, **changed: float | None) -> Cost:
    given: dict[str, float | None] = {"step_seconds": 1.5, "step_seconds_without": 1.0, **changed}
    return Cost(
        job=job,
        lost_seconds=lost,
        step_seconds=given["step_seconds"],
        step_seconds_without=given["step_seconds_without"],
        lost_share=given.get("lost_share") or 0.33,
        gpu_hours=given.get("gpu_hours") or 1.0,
    )


def test_a_cost_against_steps_that_were_slow_too_is_a_lower_bound() -> None:
    by_steps = msgspec.structs.replace(a_cost(), is_at_least=True)
    assert words.cost([by_steps]) == "a step of llama takes 1.50 s instead of 1.00 s or less"
    without = a_cost(step_seconds=None, step_seconds_without=None)
    without = msgspec.structs.replace(without, is_at_least=True)
    assert words.cost([without]) == "llama has lost at least 12.0 s, 33 % of its time meanwhile"


@pytest.mark.parametrize(("cause", "reason"), PAIRS)
def test_every_cause_and_reason_has_a_sentence_and_an_action(cause: Cause, reason: Reason) -> None:
    for culprit in CULPRITS:
        verdict = a_verdict(cause, reason, culprit)
        for text in (words.summary(verdict), words.action(verdict)):
            assert re.fullmatch(r"\S.*[.?]", text), text
            assert not re.search(r"[{}]|  | ,|\.\.|None|\(\)", text), text
            assert text.count("`") % 2 == 0, text


@pytest.mark.parametrize(("cause", "reason"), PAIRS)
def test_a_sentence_names_the_culprit_if_there_is_one(cause: Cause, reason: Reason) -> None:
    assert "node3's NIC mlx5_3" in words.summary(a_verdict(cause, reason, NIC))
    assert "ank 5 on node5 (GPU 2)" in words.summary(a_verdict(cause, reason, RANK))
    nobody = words.summary(a_verdict(cause, reason, Culprit()))
    assert re.search(r"is not known|names no culprit", nobody)


@pytest.mark.parametrize("cause", Cause)
def test_without_evidence_and_cost_no_number_is_claimed(cause: Cause) -> None:
    culprit = Culprit(host="a", device="b")
    assert not re.search(r"\d", words.summary(a_verdict(cause, Reason.UNKNOWN, culprit)))


def test_every_reason_but_unknown_changes_the_sentence() -> None:
    culprit = Culprit(host="node5", rank=5)
    said = {words.summary(a_verdict(Cause.STRAGGLER, each, culprit)) for each in Reason}
    assert len(said) == len(Reason)


def test_a_slow_nic_is_not_slow_because_of_the_nic() -> None:
    verdict = a_verdict(Cause.SLOW_LINK, Reason.NIC, Culprit(host="node3", device="eth0"))
    assert words.summary(verdict) == "node3's NIC eth0 moves bytes too slowly."


def test_the_effect_is_said_with_the_numbers_that_were_measured() -> None:
    verdict = Verdict(
        cause=Cause.SLOW_LINK,
        culprit=Culprit(host="node3", device="eth0", port="1"),
        since_ns=1,
        evidence=(
            Evidence(
                metric="collective_transfer", text="", value=0.425, unit="seconds", baseline=0.014
            ),
        ),
        costs=(a_cost("inferred-0x1", step_seconds=0.6, step_seconds_without=0.19),),
    )
    assert words.summary(verdict) == (
        "node3's NIC eth0 moves bytes too slowly: transfers take 30 times as long as usual, "
        "and a step takes 600 ms instead of 190 ms."
    )


@pytest.mark.parametrize(("value", "baseline"), [(1.0, 0.0), (1.0, None), (1.0, 1.0), (0.5, 1.0)])
def test_what_is_not_slower_is_not_called_slower(value: float, baseline: float | None) -> None:
    evidence = Evidence(
        metric="collective_transfer", text="", value=value, unit="s", baseline=baseline
    )
    verdict = Verdict(cause=Cause.SLOW_LINK, culprit=NIC, since_ns=1, evidence=(evidence,))
    assert "times" not in words.summary(verdict)


def test_of_several_jobs_the_one_that_loses_most_is_named() -> None:
    costs = (a_cost("small"), a_cost("large", gpu_hours=9.0), a_cost("free", lost=0.0))
    assert words.cost(costs) == (
        "a step of large takes 1.50 s instead of 1.00 s (1 more job loses time too)"
    )


def test_where_steps_are_not_known_the_loss_is_said() -> None:
    cost = a_cost(step_seconds=None, step_seconds_without=None)
    assert words.cost([cost]) == "llama has lost 12.0 s, 33 % of its time meanwhile"
    assert words.cost([]) == words.cost([a_cost(lost=0.0)]) == words.cost([a_cost(lost=-1)]) == ""
    assert words.cost([a_cost(lost=float("nan"))]) == ""


def test_all_who_hang_are_named_and_of_many_how_many() -> None:
    ranks = [Culprit(rank=rank, host=f"n{rank}") for rank in (7, 1, 3)]
    verdict = Verdict(
        cause=Cause.HANG,
        reason=Reason.NOT_LAUNCHED,
        culprit=ranks[0],
        accomplices=tuple(ranks[1:]),
        since_ns=1,
    )
    assert words.summary(verdict) == (
        "Ranks 1 (n1), 3 (n3) and 7 (n7) never launched a collective that the others wait in."
    )
    many = words.names([Culprit(rank=rank) for rank in range(1000)])
    assert many == "ranks 0-999"
    odd = words.names([Culprit(rank=rank) for rank in range(0, 2000, 2)])
    assert odd == "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 992 more"
    hosts = words.names([Culprit(rank=rank, host=f"n{rank}") for rank in range(1000)])
    assert hosts.endswith("7 (n7) and 992 more")


def test_a_host_that_is_late_is_said_of_its_ranks() -> None:
    verdict = a_verdict(Cause.STRAGGLER, Reason.HOST_STALL, Culprit(host="node3"))
    assert words.summary(verdict) == (
        "The ranks on node3 come late to their collectives, because the host is short of CPU, "
        "memory or disk."
    )


@pytest.mark.parametrize("cause", Cause)
def test_only_a_job_that_hangs_is_told_to_restart(cause: Cause) -> None:
    said = words.action(a_verdict(cause, Reason.GPU_ERROR, RANK))
    assert ("restart the job from its last checkpoint" in said) == (cause is Cause.HANG)


def test_of_several_ranks_the_action_speaks_in_the_plural() -> None:
    for reason, said in (
        (Reason.NOT_LAUNCHED, "read the end of their log: they are"),
        (Reason.NOT_FINISHED, "look on their hosts for GPU errors"),
    ):
        one = a_verdict(Cause.HANG, reason, RANK)
        assert said not in words.action(one)
        both = msgspec.structs.replace(one, accomplices=(Culprit(rank=6),))
        assert said in words.action(both)


def test_a_stall_says_how_long_and_accuses_nobody() -> None:
    stall = Verdict(
        cause=Cause.STALL,
        culprit=Culprit(job="llama"),
        jobs=("llama",),
        since_ns=1,
        until_ns=8_030_000_001,
        costs=(a_cost(),),
    )
    blameless = "this evidence names no culprit."
    assert words.summary(stall) == f"Job llama stood still for 8.03 s; {blameless}"
    lasting = msgspec.structs.replace(stall, until_ns=None, jobs=("llama", "other"))
    assert words.summary(lasting) == f"2 jobs stand still; {blameless}"
    inferred = msgspec.structs.replace(stall, culprit=Culprit(), jobs=("inferred-1",))
    assert words.summary(inferred) == f"The job stood still for 8.03 s; {blameless}"


@pytest.mark.parametrize("cause", Cause)
def test_a_job_is_never_its_own_culprit(cause: Cause) -> None:
    said = words.summary(a_verdict(cause, Reason.UNKNOWN, Culprit(job="llama")))
    assert re.search(r"is not known|names no culprit", said)


@pytest.mark.parametrize("cause", Cause)
@pytest.mark.parametrize("reason", Reason)
def test_no_name_from_outside_becomes_a_command_or_moves_the_terminal(
    cause: Cause, reason: Reason
) -> None:
    evil = "x; rm -rf ~ `id` {who}\x1b[2J" + "y" * 500
    culprit = Culprit(host=evil, device=evil, port=evil, switch=evil, switch_port=evil, job=evil)
    verdict = a_verdict(cause, reason, culprit)
    for text in (words.summary(verdict), words.action(verdict)):
        assert text.isprintable()
        assert len(text) < 2_000
    for command in re.findall(
        r"(?:mlxlink -d|ib_write_bw -d|ethtool|ethtool -\w) ([^-\s]\S*)", words.action(verdict)
    ):
        assert command.startswith("'")


def test_a_port_of_a_switch_is_taken_out_of_routing_and_a_host_is_drained() -> None:
    verdict = a_verdict(Cause.LOSSY_LINK, Reason.CABLE, Culprit(switch="s", switch_port="p"))
    assert "take port p of switch s out of routing" in words.action(verdict).lower()
    assert "drain node3" in words.action(a_verdict(Cause.LOSSY_LINK, Reason.CABLE, NIC)).lower()


def test_rdma_devices_are_measured_with_rdma_tools_and_others_are_not() -> None:
    plain = a_verdict(Cause.SLOW_LINK, Reason.UNKNOWN, Culprit(host="a", device="eth0"))
    assert "ib_write_bw -d mlx5_3" in words.action(a_verdict(Cause.SLOW_LINK, Reason.UNKNOWN, NIC))
    assert "iperf3" in words.action(plain)


def test_confidence_has_words_that_grow_with_it() -> None:
    said = [words.sure(value) for value in (0.3, 0.5, 0.7, 0.9)]
    assert said == [
        "a suspicion (30 %)",
        "more likely than not (50 %)",
        "likely (70 %)",
        "almost certain (90 %)",
    ]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (1e-7, "0.10 µs"), (0.000_999_9, "1.00 ms"), (0.999_9, "1.00 s"), (59.99, "1 min"),
        (60, "1 min"), (3599.6, "1 h"), (3600, "1 h"), (86_399, "23 h 59 min"), (86_400, "1 d"),
        (-0.5, "-500 ms"), (float("inf"), "unknown"), (0, "0 s"),
    ],
)  # fmt: skip
def test_durations_have_sensible_units(seconds: float, said: str) -> None:
    assert figures.duration(seconds) == said
