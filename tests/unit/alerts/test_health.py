"""Health: which components a verdict charges, how a charge fades, which states follow."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.finding import Finding
from alerts.health.blame import CULPRITS_MAX, FINDING_SHARE, charges_of, signs_of
from alerts.health.judge import (
    CHARGES_KEPT_MAX,
    DEGRADED_FROM,
    DEGRADED_KEPT,
    SILENCE_RISK,
    SUSPECT_FROM,
    SUSPECT_KEPT,
    combine,
    stand,
)
from alerts.health.lemon import LEMON_FROM, lemon_score, usual_count
from alerts.health.model import SEVERITY, Charge, HealthState, Hold, Standing, Target
from alerts.judge.incident import Incident, IncidentState, Linked
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Evidence, Reason, Verdict

NOW = 1_800_000_000 * NS
HOUR, DAY = 3_600 * NS, 86_400 * NS
HOST = Target.of_host("node3")
NIC = Target.of_device("node3", "mlx5_0")
CABLE = Target.of_link("node3", "mlx5_0", "1")
GPU = Target.of_gpu("node3", "2")
SWITCH = Target.of_switch("leaf0")
AT_NIC = Culprit(host="node3", device="mlx5_0", port="1", switch="leaf0", switch_port="swp3")
AT_GPU = Culprit(job="train", rank=7, host="node3", gpu=2)
AT_SWITCH = Culprit(switch="leaf0", switch_port="swp9")


def incident(
    cause: Cause,
    culprit: Culprit,
    reason: Reason = Reason.UNKNOWN,
    *,
    confidence: float = 1.0,
    ended_ns: int | None = None,
    accomplices: tuple[Culprit, ...] = (),
    victims: tuple[Culprit, ...] = (),
    name: str = "20270115-080000-lusab-zuzuz",
) -> Incident:
    """An incident that began an hour ago; open, unless it ended."""
    verdict = Verdict(
        cause=cause,
        culprit=culprit,
        reason=reason,
        since_ns=NOW - HOUR if ended_ns is None else ended_ns - HOUR,
        until_ns=ended_ns,
        confidence=confidence,
        summary="somebody does something",
        accomplices=accomplices,
        victims=victims,
    )
    return Incident(
        id=name,
        state=IncidentState.OPEN if ended_ns is None else IncidentState.CLOSED,
        verdict=verdict,
        first_said_ns=verdict.since_ns,
        last_seen_ns=ended_ns or NOW,
        confirmed_ns=NOW,
        closed_ns=ended_ns,
    )


def weights(one: Incident) -> dict[Target, float]:
    return {charge.target: charge.weight for charge in charges_of(one)}


def host_charge(cause: Cause, reason: Reason, culprit: Culprit, ended_ns: int | None) -> Charge:
    [charge] = [
        each
        for each in charges_of(incident(cause, culprit, reason, ended_ns=ended_ns))
        if each.target == HOST
    ]
    return charge


def standing_of(*incidents: Incident, target: Target = HOST) -> Standing:
    charges = [each for one in incidents for each in charges_of(one) if each.target == target]
    return stand(charges, NOW)


# --- which components a verdict charges ---------------------------------------------------------


def test_what_turned_out_to_be_another_incident_charges_its_culprit_no_more() -> None:
    accusing = incident(Cause.STRAGGLER, AT_GPU, Reason.GPU_ERROR, ended_ns=NOW)
    assert charges_of(accusing)
    other = Linked(incident="other", cause=Cause.SLOW_LINK, culprit=AT_NIC)
    assert charges_of(msgspec.structs.replace(accusing, became=other)) == []


def test_every_verdict_has_a_weight_and_none_counts_more_than_itself() -> None:
    for cause, reason in itertools.product(Cause, Reason):
        for culprit in (AT_NIC, AT_GPU, AT_SWITCH, Culprit(), Culprit(job="train")):
            for charge in charges_of(incident(cause, culprit, reason)):
                assert 0 < charge.weight <= 1, (cause, reason)
                assert charge.half_life_s > 0


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (Cause.CONGESTION, Reason.ROUTING),
        (Cause.CONGESTION, Reason.NEIGHBOUR),
        (Cause.MICROBURST, Reason.UNKNOWN),
        (Cause.LOSSY_LINK, Reason.SWITCH),
        (Cause.LINK_FLAP, Reason.SWITCH),
        (Cause.STRAGGLER, Reason.IMBALANCE),
        (Cause.STALL, Reason.UNKNOWN),
    ],
)
def test_what_is_no_fault_of_the_host_is_not_charged_to_it(cause: Cause, reason: Reason) -> None:
    for culprit in (AT_NIC, AT_GPU):
        charged = weights(incident(cause, culprit, reason))
        assert not {HOST, NIC, GPU} & set(charged)


def test_a_switch_port_speaks_against_its_link_and_against_no_host() -> None:
    charged = weights(incident(Cause.SLOW_LINK, AT_SWITCH, Reason.SWITCH))
    assert set(charged) == {Target.of_link("leaf0", "leaf0", "swp9"), SWITCH}


def test_a_link_counts_for_both_ends_less_until_one_is_named() -> None:
    nobody = weights(incident(Cause.SLOW_LINK, AT_NIC))
    named = weights(incident(Cause.SLOW_LINK, AT_NIC, Reason.NIC))
    assert nobody[HOST] == nobody[NIC] < nobody[CABLE]
    assert nobody[HOST] < named[HOST] == named[NIC] == 1.0
    assert named[CABLE] < nobody[CABLE]
    assert SWITCH not in nobody


def test_a_rank_or_gpu_counts_for_its_host_too() -> None:
    charges = charges_of(incident(Cause.STRAGGLER, AT_GPU, Reason.GPU_ERROR))
    assert {each.target: each.weight for each in charges} == {HOST: 1.0, GPU: 1.0}
    # The host's charge names the GPU that the verdict accuses.
    assert {each.about for each in charges} == {GPU}


def test_a_victim_is_never_charged() -> None:
    victim = Culprit(host="node4", device="mlx5_0", port="1")
    charged = charges_of(incident(Cause.LINK_FLAP, AT_NIC, victims=(victim,)))
    assert charged
    assert not [each for each in charged if each.target.host == "node4"]


def test_hosts_that_are_accused_together_share_the_blame() -> None:
    others = tuple(Culprit(job="train", rank=rank, host=f"node{rank}") for rank in range(10, 13))
    alone = weights(incident(Cause.HANG, AT_GPU, Reason.NOT_LAUNCHED))
    together = weights(incident(Cause.HANG, AT_GPU, Reason.NOT_LAUNCHED, accomplices=others))
    assert together[HOST] == pytest.approx(alone[HOST] / 4)
    assert together[Target.of_host("node11")] == pytest.approx(alone[HOST] / 4)


def test_links_that_a_switch_took_down_are_charged_and_their_hosts_are_not() -> None:
    downed = tuple(msgspec.structs.replace(AT_NIC, host=f"node{n}") for n in range(4))
    charged = weights(
        incident(Cause.LINK_FLAP, Culprit(switch="leaf0"), Reason.SWITCH, accomplices=downed)
    )
    assert charged[SWITCH] == 1.0
    assert charged[Target.of_link("node2", "mlx5_0", "1")] == 0.5
    assert Target.of_host("node2") not in charged


def test_accomplices_are_bounded_and_odd_names_name_nothing() -> None:
    many = tuple(Culprit(host=f"node{n}") for n in range(10 * CULPRITS_MAX))
    charged = charges_of(incident(Cause.HANG, AT_GPU, accomplices=many))
    assert len(charged) <= 3 * (CULPRITS_MAX + 1)
    odd = Culprit(host="node3", device="mlx5\x00", port="1")
    assert set(weights(incident(Cause.LINK_FLAP, odd))) == {HOST}
    slashed = Culprit(switch="leaf0", switch_port="Ethernet1/1")
    [link] = weights(incident(Cause.CONGESTION, slashed))
    assert link.name == "leaf0/leaf0/Ethernet1%2F1"


# --- how a charge fades -------------------------------------------------------------------------


def test_what_stands_open_does_not_fade() -> None:
    charge = host_charge(Cause.LINK_FLAP, Reason.CABLE, AT_NIC, None)
    assert charge.risk_at(NOW) == charge.risk_at(NOW + 30 * DAY) == charge.weight


def test_a_flap_of_yesterday_weighs_and_a_throttle_of_yesterday_does_not() -> None:
    flap = host_charge(Cause.LINK_FLAP, Reason.CABLE, AT_NIC, NOW - DAY)
    throttle = host_charge(Cause.STRAGGLER, Reason.GPU_THROTTLED, AT_GPU, NOW - DAY)
    assert flap.risk_at(NOW) > SUSPECT_FROM
    assert throttle.risk_at(NOW) < 0.01


@given(
    half_life=st.floats(60, 1e6),
    ages=st.lists(st.integers(0, 10**16), min_size=2, max_size=2).map(sorted),
)
def test_risk_only_falls_with_age_and_halves_in_a_half_life(
    half_life: float, ages: list[int]
) -> None:
    base = host_charge(Cause.LINK_FLAP, Reason.CABLE, AT_NIC, NOW)
    charge = msgspec.structs.replace(base, half_life_s=half_life)
    younger, older = (charge.risk_at(NOW + age) for age in ages)
    assert 0 <= older <= younger <= charge.weight
    assert charge.risk_at(NOW + round(half_life * NS)) == pytest.approx(charge.weight / 2)
    # Evidence from a clock ahead of the service's clock counts in full, not more.
    assert charge.risk_at(NOW - DAY) == charge.weight


@given(st.lists(st.floats(0, 1), max_size=20), st.floats(0, 1))
def test_risks_add_up_as_chances_do(risks: list[float], more: float) -> None:
    whole = combine(risks)
    assert 0 <= whole <= 1
    assert whole == pytest.approx(combine(sorted(risks)))
    assert combine([*risks, more]) >= max(whole, more) - 1e-9


# --- states -------------------------------------------------------------------------------------


def test_certain_and_now_is_degraded_weak_or_past_is_suspect() -> None:
    flap = incident(Cause.LINK_FLAP, AT_NIC, Reason.CABLE, confidence=0.9)
    assert standing_of(flap).state is HealthState.DEGRADED
    weak = incident(Cause.SLOW_LINK, AT_NIC, confidence=0.8)
    assert standing_of(weak).state is HealthState.SUSPECT
    assert standing_of(weak, target=CABLE).state is HealthState.DEGRADED
    past = [
        incident(Cause.LINK_FLAP, AT_NIC, ended_ns=NOW - n * HOUR, name=f"2027-{n}")
        for n in range(1, 9)
    ]
    often = standing_of(*past)
    assert often.state is HealthState.SUSPECT
    assert often.risk > 0.95
    assert standing_of().state is HealthState.HEALTHY
    assert len(standing_of(*past).charges) == 8


def test_only_the_heaviest_charges_are_kept_and_all_count() -> None:
    base = host_charge(Cause.STRAGGLER, Reason.UNKNOWN, AT_GPU, NOW)
    many = [
        msgspec.structs.replace(base, incident=f"2027-{n:04d}", confidence=0.02 + n / 10_000)
        for n in range(3 * CHARGES_KEPT_MAX)
    ]
    standing = stand(many, NOW)
    assert len(standing.charges) == CHARGES_KEPT_MAX
    assert standing.charges[0].confidence == max(each.confidence for each in many)
    assert standing.risk == pytest.approx(combine([each.risk_at(NOW) for each in many]), abs=0.005)


def test_a_risk_that_wavers_does_not_make_the_state_waver() -> None:
    base = host_charge(Cause.STRAGGLER, Reason.GPU_ERROR, AT_GPU, None)

    def at(risk: float, before: HealthState) -> HealthState:
        return stand([msgspec.structs.replace(base, confidence=risk)], NOW, before=before).state

    assert at(DEGRADED_FROM, HealthState.HEALTHY) is HealthState.DEGRADED
    between = (DEGRADED_FROM + DEGRADED_KEPT) / 2
    assert at(between, HealthState.HEALTHY) is HealthState.SUSPECT
    assert at(between, HealthState.DEGRADED) is HealthState.DEGRADED
    assert at(DEGRADED_KEPT - 0.01, HealthState.DEGRADED) is HealthState.SUSPECT
    between = (SUSPECT_FROM + SUSPECT_KEPT) / 2
    assert at(between, HealthState.HEALTHY) is HealthState.HEALTHY
    assert at(between, HealthState.SUSPECT) is HealthState.SUSPECT
    assert at(SUSPECT_KEPT - 0.01, HealthState.SUSPECT) is HealthState.HEALTHY


def test_a_host_that_is_silent_is_suspect_and_never_healthy_or_out() -> None:
    silent = stand([], NOW, silent_since_ns=NOW - HOUR)
    assert (silent.state, silent.risk) == (HealthState.SUSPECT, SILENCE_RISK)
    assert silent.silent_since_ns == NOW - HOUR


@given(
    confidence=st.lists(st.floats(0, 1), max_size=5),
    before=st.sampled_from(list(HealthState)),
    silent=st.booleans(),
)
def test_nothing_measured_takes_anything_out(
    confidence: list[float], before: HealthState, *, silent: bool
) -> None:
    base = host_charge(Cause.HANG, Reason.GPU_ERROR, AT_GPU, None)
    charges = [msgspec.structs.replace(base, confidence=each) for each in confidence]
    standing = stand(charges, NOW, before=before, silent_since_ns=NOW - HOUR if silent else None)
    assert standing.state not in (HealthState.OUT, HealthState.DRAINING)
    assert 0 <= standing.risk <= 1


def test_a_hold_stands_above_all_until_it_ends_and_hides_no_risk() -> None:
    hold = Hold(
        target=HOST,
        state=HealthState.OUT,
        reason="a cable is being swapped",
        by="ada",
        since_ns=NOW - HOUR,
        until_ns=NOW + HOUR,
    )
    charge = host_charge(Cause.STRAGGLER, Reason.GPU_ERROR, AT_GPU, None)
    held = stand([charge], NOW, hold=hold)
    assert (held.state, held.risk, held.hold) == (HealthState.OUT, 1.0, hold)
    after = stand([], NOW + HOUR, hold=hold, before=HealthState.OUT)
    assert (after.state, after.hold) == (HealthState.HEALTHY, None)
    assert hold.short == "out by ada: a cable is being swapped"


def test_states_are_ordered_from_best_to_worst() -> None:
    assert sorted(SEVERITY, key=SEVERITY.__getitem__) == [
        "healthy", "suspect", "degraded", "draining", "out",
    ]  # fmt: skip


def test_reasons_say_what_who_and_which_incident_and_do_not_change_with_time() -> None:
    charge = host_charge(Cause.LINK_FLAP, Reason.CABLE, AT_NIC, None)
    assert charge.short == ("link_flap (cable) of link mlx5_0/1, open, 20270115-080000-lusab-zuzuz")
    over = host_charge(Cause.STRAGGLER, Reason.UNKNOWN, Culprit(host="node3"), NOW)
    assert over.short == "straggler, over, 20270115-080000-lusab-zuzuz"


# --- lemons -------------------------------------------------------------------------------------


def test_a_lemon_has_three_incidents_where_others_have_none() -> None:
    usual = usual_count([3.0], hosts=1_000)
    assert lemon_score(3.0, usual, 1.0) >= LEMON_FROM
    assert lemon_score(2.0, usual, 1.0) < LEMON_FROM


def test_where_everybody_has_trouble_nobody_is_a_lemon_for_it() -> None:
    usual = usual_count([4.0] * 60, hosts=100)
    assert lemon_score(4.0, usual, 1.0) == 0.0
    assert lemon_score(40.0, usual, 1.0) >= LEMON_FROM


@given(count=st.floats(0, 100), usual=st.floats(0.5, 20), share=st.floats(-1, 2))
def test_lemon_scores_are_bounded_and_grow_with_incidents(
    count: float, usual: float, share: float
) -> None:
    score = lemon_score(count, usual, share)
    assert 0 <= score <= 1
    assert lemon_score(count + 1, usual, share) >= score
    # The score shrinks a short history to the fleet's: two incidents on day one make no lemon.
    assert lemon_score(2.0, 0.5, 0.0) < LEMON_FROM


# --- findings -----------------------------------------------------------------------------------


def finding(cause: Cause = Cause.LINK_FLAP, culprit: Culprit = AT_NIC, **more: object) -> Finding:
    base = Finding(
        detector="link_flap",
        cause=cause,
        culprit=culprit,
        strength=0.9,
        since_ns=NOW - HOUR,
        until_ns=None,
        last_ns=NOW,
        evidence=(Evidence(metric="m", text="went down twice", value=2, unit=""),),
    )
    return msgspec.structs.replace(base, **more)


def test_what_an_idle_host_shows_makes_it_suspect_and_no_more() -> None:
    signs = signs_of([finding()], [])
    [of_host] = [each for each in signs if each.target == HOST]
    assert of_host.text == "went down twice"
    assert of_host.risk_at(NOW) == pytest.approx(0.9 * 0.8 * FINDING_SHARE)
    assert stand([of_host], NOW).state is HealthState.SUSPECT
    [of_cable] = [each for each in signs if each.target == CABLE]
    sure = msgspec.structs.replace(of_cable, confidence=1.0)
    assert stand([sure] * 5, NOW).state is HealthState.SUSPECT
    assert of_host.short == "link_flap of link mlx5_0/1, found"


@pytest.mark.parametrize(
    "not_a_sign",
    [
        finding(job="train"),
        finding(is_context=True),
        finding(strength=0.5),
        finding(Cause.CONGESTION),
        finding(Cause.PAUSE_STORM),
        finding(Cause.STRAGGLER, AT_GPU, reason=Reason.IMBALANCE),
        finding(culprit=Culprit()),
    ],
)
def test_weak_and_explained_findings_say_nothing(not_a_sign: Finding) -> None:
    assert signs_of([not_a_sign], []) == []


def test_what_an_incident_speaks_of_is_not_counted_again() -> None:
    accused = incident(Cause.SLOW_LINK, AT_NIC)
    elsewhere = Culprit(host="node9", device="mlx5_0", port="1")
    explained = incident(Cause.LOSSY_LINK, elsewhere, victims=(AT_NIC,))
    other_nic = msgspec.structs.replace(AT_NIC, device="mlx5_5", switch="leaf5", switch_port="swp3")
    assert signs_of([finding()], [accused]) == signs_of([finding()], [explained]) == []
    assert signs_of([finding(culprit=other_nic)], [accused, explained])


def test_of_several_findings_about_one_thing_the_clearest_counts() -> None:
    both = [finding(strength=0.7), finding(strength=0.95), finding(strength=0.8)]
    for order in itertools.permutations(both):
        assert {each.confidence for each in signs_of(order, [])} == {0.95}
