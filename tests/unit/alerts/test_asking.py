"""When an unsure verdict asks, how often, and what is said of it: bounds hold for any history."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.judge.asking import (
    AT_ONCE_MAX,
    HOST_PER_HOUR_MAX,
    HOUR_NS,
    PER_HOUR_MAX,
    ROUNDS_UNSURE,
    WAIT_SECONDS,
    Asked,
    AskState,
    Patience,
    asked_words,
    ended_words,
    forbidden,
    is_overdue,
    needs,
    trouble_of,
)
from alerts.judge.incident import HISTORY_MAX, Incident, IncidentState, News, noted
from alerts.judge.words import DECIDED_MIN
from collector.contract.units import NS
from collector.contract.verdict import (
    Cause,
    Culprit,
    MeasurementKind,
    Suspected,
    Undecided,
    Verdict,
)

BURSTS = frozenset({MeasurementKind.BURST_CAPTURE})
NOW_NS = 1_800_000_000 * NS


def nic(host: str) -> Culprit:
    return Culprit(host=host, device="mlx5_0", port="1")


def unsure(
    confidence: float = 0.48, kind: MeasurementKind = MeasurementKind.BURST_CAPTURE
) -> Verdict:
    suspects = tuple(Suspected(culprit=nic(one), share=0.5, name=f"{one}'s NIC") for one in "ab")
    return Verdict(
        cause=Cause.SLOW_LINK,
        culprit=nic("a"),
        since_ns=NOW_NS,
        confidence=confidence,
        jobs=("llama",),
        undecided=Undecided(
            kind=kind, text="Measure it.", suspects=suspects, at=(nic("a"), nic("b"), nic("c"))
        ),
    )


def asked_of(*hosts: str, ago_s: float = 0.0, state: AskState = AskState.WAITING) -> Asked:
    asked_ns = NOW_NS - round(ago_s * NS)
    return Asked(
        trouble=f"t{asked_ns}", kind=MeasurementKind.BURST_CAPTURE, asked_ns=asked_ns, hosts=hosts,
        state=state, ended_ns=NOW_NS,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("confidence", "is_asked"),
    [(0.34, False), (0.36, True), (0.5, True), (0.69, True), (DECIDED_MIN, False), (0.9, False)],
)
def test_only_a_verdict_that_is_unsure_and_near_the_bar_asks(
    confidence: float, *, is_asked: bool
) -> None:
    assert (needs(unsure(confidence), BURSTS) is not None) is is_asked


def test_the_switch_and_what_nothing_serves_keep_it_from_asking() -> None:
    assert needs(unsure(), frozenset()) is None
    for kind in set(MeasurementKind) - BURSTS - {MeasurementKind.RAS_STATUS}:
        assert needs(unsure(kind=kind), frozenset(MeasurementKind)) is None
    assert needs(msgspec.structs.replace(unsure(), undecided=None), BURSTS) is None


@given(st.lists(st.sets(st.sampled_from("abcd")), max_size=30))
def test_a_trouble_waits_for_rounds_in_a_row(rounds: list[set[str]]) -> None:
    patience = Patience()
    for number, troubles in enumerate(rounds):
        ready = set(patience.note(sorted(troubles)))
        before = rounds[max(0, number - ROUNDS_UNSURE + 1) : number + 1]
        always = set.intersection(*before) if len(before) == ROUNDS_UNSURE else set()
        assert ready == always


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 600),  # seconds until the next wish
            st.sets(st.sampled_from("abcdefgh"), min_size=1, max_size=3),
            st.one_of(st.none(), st.floats(0, 2 * WAIT_SECONDS)),  # when it is answered
        ),
        max_size=60,
    )
)
def test_no_history_of_wishes_breaks_a_bound(
    wishes: list[tuple[float, set[str], float | None]],
) -> None:
    now_ns = NOW_NS
    past: list[Asked] = []
    answers: dict[str, int | None] = {}
    for number, (pause_s, hosts, answer_s) in enumerate(wishes):
        now_ns += round(pause_s * NS)
        past = [ended(one, answers[one.trouble], now_ns) for one in past]
        if not forbidden(sorted(hosts), past, now_ns):
            one = Asked(
                trouble=str(number), kind=MeasurementKind.BURST_CAPTURE, asked_ns=now_ns,
                hosts=tuple(sorted(hosts)),
            )  # fmt: skip
            answers[one.trouble] = None if answer_s is None else now_ns + round(answer_s * NS)
            past.append(one)
        recent = [one for one in past if one.asked_ns > now_ns - HOUR_NS]
        assert sum(one.state is AskState.WAITING for one in past) <= AT_ONCE_MAX
        assert len(recent) <= PER_HOUR_MAX
        for host in "abcdefgh":
            assert sum(host in one.hosts for one in recent) <= HOST_PER_HOUR_MAX
        assert all(
            now_ns - one.asked_ns < WAIT_SECONDS * NS
            for one in past
            if one.state is AskState.WAITING
        )


def ended(one: Asked, answer_ns: int | None, now_ns: int) -> Asked:
    """As the service does it: what came is noted first, what is overdue is given up."""
    if one.state is AskState.WAITING and answer_ns is not None and answer_ns <= now_ns:
        return msgspec.structs.replace(one, state=AskState.ANSWERED, ended_ns=answer_ns)
    if is_overdue(one, now_ns):
        return msgspec.structs.replace(one, state=AskState.TIMED_OUT, ended_ns=now_ns)
    return one


def test_each_bound_names_itself() -> None:
    waiting = [asked_of(str(number), ago_s=number) for number in range(AT_ONCE_MAX)]
    assert forbidden(["x"], waiting, NOW_NS) == "AT_ONCE_MAX"
    done = [
        asked_of("y", ago_s=60 + number, state=AskState.ANSWERED)
        for number in range(HOST_PER_HOUR_MAX)
    ]
    assert forbidden(["x", "y"], done, NOW_NS) == "HOST_PER_HOUR_MAX"
    assert forbidden(["x"], done, NOW_NS) == ""
    many = [
        asked_of(str(number), ago_s=60 + number, state=AskState.ANSWERED)
        for number in range(PER_HOUR_MAX)
    ]
    assert forbidden(["x"], many, NOW_NS) == "PER_HOUR_MAX"
    assert forbidden(["x"], many, NOW_NS + HOUR_NS) == ""


# --- words ----------------------------------------------------------------------------------------


def test_what_was_asked_and_what_came_is_said_with_both_verdicts() -> None:
    before = unsure()
    assert before.undecided is not None
    assert asked_words(before.undecided) == (
        "The service asked a, b and c for a burst capture, to decide between a's NIC and b's NIC."
    )
    sure = msgspec.structs.replace(before, culprit=nic("b"), confidence=0.87, undecided=None)
    came = msgspec.structs.replace(asked_of("a", ago_s=12, state=AskState.ANSWERED), samples=90_000)
    assert ended_words(came, before, sure) == (
        "A burst capture came after 12.0 s (90,000 samples); the verdict went from slow_link of "
        "a's NIC mlx5_0 (48 %) to slow_link of b's NIC mlx5_0 (87 %)."
    )
    text = ended_words(came, before, unsure(kind=MeasurementKind.PROBE))
    assert "the verdict stays unsure (slow_link of a's NIC mlx5_0 (48 %))" in text
    assert text.endswith("what would decide now: measure it.")


def test_a_request_that_was_given_up_or_refused_says_so() -> None:
    late = msgspec.structs.replace(
        asked_of("a", ago_s=WAIT_SECONDS, state=AskState.TIMED_OUT), why="a: did not answer in time"
    )
    text = ended_words(late, None, unsure())
    assert text.startswith("The service gave up on a burst capture after 2 min")
    assert "a: did not answer in time" in text
    refused = msgspec.structs.replace(late, state=AskState.REFUSED, why="a: no sampler runs")
    assert ended_words(refused, None, unsure()).startswith(
        "The agents could not take a burst capture: a: no sampler runs; the verdict"
    )


def test_a_trouble_keeps_its_name_while_its_suspects_take_turns() -> None:
    other = msgspec.structs.replace(unsure(), culprit=nic("b"))
    assert trouble_of(other) == trouble_of(unsure()) == "slow_link of llama"


def test_an_incident_never_forgets_that_it_asked() -> None:
    incident = Incident(
        id="i", state=IncidentState.OPEN, verdict=unsure(), first_said_ns=0, last_seen_ns=0,
        confirmed_ns=0,
    )  # fmt: skip
    incident = noted(incident, News.ASKED, "asked", 1)
    for number in range(3 * HISTORY_MAX):
        incident = noted(incident, News.UPDATED, "", number)
    assert len(incident.history) == HISTORY_MAX
    assert any(turn.news is News.ASKED for turn in incident.history)
