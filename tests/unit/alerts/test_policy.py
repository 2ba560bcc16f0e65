"""A policy: which hosts it drains, which drains it refuses and why, and how an action ends."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.health.blame import charges_of
from alerts.health.judge import stand
from alerts.health.model import Charge, HealthState, Hold, Standing, Target
from alerts.judge.incident import Incident, IncidentState
from alerts.policy.action import (
    HISTORY_MAX,
    Action,
    ActionState,
    Applied,
    Checked,
    Ending,
    Outcome,
    Refused,
    WrongState,
    applied,
    approved,
    begun,
    checked,
    ended,
    refused,
)
from alerts.policy.decide import CONFIRM_S, SETTLED_S, Decision, FleetHealth, Memory, decide
from alerts.policy.file import parse_policy, shipped_policy
from alerts.policy.model import Breaker, Limits, Match, Mode, Policy, Quiet, ReturnOn, Rule
from alerts.policy.record import BY_POLICY, record
from collector.contract.errors import SettingsError
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Reason, Verdict

START = 1_794_740_400 * NS  # a Sunday, 11:00 UTC
FLEET = tuple(f"node{number}" for number in range(100))
GPU = Rule(
    name="broken-gpu",
    causes=(Match(Cause.STRAGGLER, Reason.GPU_ERROR),),
    stands_s=60,
    ttl_s=3_600,
    clean_s=600,
)
POLICY = Policy(
    mode=Mode.ENFORCE, rules=(GPU,), limits=Limits(share_max=0.03, hosts_max=16, cooldown_s=1_800)
)


class Fleet:
    """A fleet, its incidents, and a policy that evaluates both every ten seconds."""

    def __init__(self, policy: Policy = POLICY, hosts: tuple[str, ...] = FLEET) -> None:
        self.policy = policy
        self.hosts = hosts
        self.now_ns = START
        self.actions: dict[str, Action] = {}
        self.memory = Memory()
        self.trouble: dict[str, Incident] = {}
        self.holds: dict[str, Hold] = {}
        self.silent: set[str] = set()
        self.stale: tuple[str, ...] = ()
        self.last: Decision | None = None
        self._numbers = itertools.count()

    def accuse(
        self, *hosts: str, reason: Reason = Reason.GPU_ERROR, confidence: float = 0.9
    ) -> None:
        """Open an incident that accuses each of these hosts."""
        for host in hosts:
            verdict = Verdict(
                cause=Cause.STRAGGLER,
                culprit=Culprit(host=host, gpu=1),
                reason=reason,
                since_ns=self.now_ns,
                confidence=confidence,
                summary=f"{host}'s GPU is broken",
            )
            self.trouble[host] = Incident(
                id=f"{self.now_ns // NS}-{host}",
                state=IncidentState.OPEN,
                verdict=verdict,
                first_said_ns=self.now_ns,
                last_seen_ns=self.now_ns,
                confirmed_ns=self.now_ns,
            )

    def acquit(self, *hosts: str) -> None:
        """Close the incidents of these hosts."""
        for host in hosts:
            old = self.trouble[host]
            self.trouble[host] = Incident(
                id=old.id,
                state=IncidentState.CLOSED,
                verdict=old.verdict,
                first_said_ns=old.first_said_ns,
                last_seen_ns=self.now_ns,
                confirmed_ns=self.now_ns,
                closed_ns=self.now_ns,
            )

    def health(self) -> FleetHealth:
        """The fleet's health as the health monitor reports it."""
        standings: dict[str, Standing] = {}
        for host in {*self.trouble, *self.holds, *self.silent, *self.held()}:
            charges: list[Charge] = []
            if host in self.trouble:
                found = charges_of(self.trouble[host])
                charges = [each for each in found if each.target == Target.of_host(host)]
            action = next((each for each in self.standing() if each.host == host), None)
            standings[host] = stand(
                charges,
                self.now_ns,
                hold=self.holds.get(host) or (action.as_hold() if action else None),
                silent_since_ns=START if host in self.silent else None,
            )
        return FleetHealth(hosts=self.hosts, standings=standings, stale=self.stale)

    def look(self, seconds: float = 10) -> Decision:
        """Make and record one decision ``seconds`` later."""
        self.now_ns += round(seconds * NS)
        known = list(self.actions.values())
        decision = decide(self.policy, self.health(), known, self.memory, self.now_ns)
        self.memory = decision.memory
        records = record(
            self.policy, decision, known, self.now_ns, lambda: f"a{next(self._numbers):05}"
        )
        self.actions = records.onto(known)
        self.last = decision
        return decision

    def run(self, seconds: float) -> None:
        """Make decisions for ``seconds``."""
        for _ in range(round(seconds / 10)):
            self.look()

    def standing(self) -> list[Action]:
        return [each for each in self.actions.values() if each.stands(self.now_ns)]

    def held(self) -> list[str]:
        return sorted(each.host for each in self.standing())

    def refusals(self) -> dict[str, Refused]:
        assert self.last is not None
        return {each.drain.host: each.refused for each in self.last.refusals}

    def only(self) -> Action:
        [action] = self.actions.values()
        return action


# --- when a host is drained ----------------------------------------------------------------------


def test_a_verdict_that_stands_for_long_enough_drains_its_host() -> None:
    fleet = Fleet()
    fleet.accuse("node3")
    fleet.run(60)
    assert fleet.held() == []
    fleet.look()
    assert fleet.held() == ["node3"]
    action = fleet.only()
    assert (action.by, action.hold, action.reason) == (
        BY_POLICY,
        HealthState.DRAINING,
        f"straggler (gpu_error) of gpu 1, {START // NS}-node3",
    )
    assert action.why is not None
    assert (action.why.confidence, action.why.rule) == (0.9, "broken-gpu")
    assert action.until_ns == action.at_ns + 3_600 * NS
    assert [event.words for event in action.history] == ["node3's GPU is broken"]
    fleet.run(300)
    assert len(fleet.actions) == 1, "the policy does not drain a held host again"


@pytest.mark.parametrize(
    ("reason", "confidence"), [(Reason.GPU_ERROR, 0.79), (Reason.IMBALANCE, 1.0)]
)
def test_what_no_rule_asks_for_drains_nobody(reason: Reason, confidence: float) -> None:
    fleet = Fleet()
    fleet.accuse("node3", reason=reason, confidence=confidence)
    fleet.run(300)
    assert fleet.actions == {}


def test_a_verdict_that_comes_and_goes_begins_to_wait_anew() -> None:
    fleet = Fleet()
    for _ in range(5):
        fleet.accuse("node3")
        fleet.run(50)
        fleet.acquit("node3")
        fleet.look()
    assert fleet.actions == {}


def test_a_weak_charge_against_the_host_is_below_a_rule_s_risk() -> None:
    """A link whose bad end is unknown charges each host with half: certain, but too weak."""
    rule = Rule(name="lossy", causes=(Match(Cause.LOSSY_LINK),), stands_s=60)
    charge = Charge(
        target=Target.of_host("node3"),
        incident="i",
        cause=Cause.LOSSY_LINK,
        reason=Reason.UNKNOWN,
        confidence=0.9,
        weight=Cause.LOSSY_LINK.facts.blame.host,
        half_life_s=60,
        since_ns=START,
        until_ns=None,
        about=Target.of_link("node3", "mlx5_0", "1"),
    )
    assert not rule.meets(charge)
    assert Rule(name="any", causes=rule.causes, risk_min=0.4).meets(charge)


# --- limits that stop a drain --------------------------------------------------------------------


def test_never_more_than_the_share_is_held_and_the_heaviest_go_first() -> None:
    fleet = Fleet()
    for host, confidence in (("node1", 0.85), ("node2", 0.95), ("node3", 0.9), ("node4", 0.99)):
        fleet.accuse(host, confidence=confidence)
    fleet.run(120)
    assert fleet.held() == ["node2", "node3", "node4"]
    assert fleet.refusals() == {"node1": Refused.SHARE_LIMIT}
    turned_down = [each for each in fleet.actions.values() if each.host == "node1"]
    assert [each.refused for each in turned_down] == [Refused.SHARE_LIMIT], "one record"
    assert "of 100 at most 3 may be" in turned_down[0].history[0].words


def test_holds_of_operators_take_room_too() -> None:
    fleet = Fleet()
    for host in ("node7", "node8", "node9"):
        fleet.holds[host] = Hold(
            target=Target.of_host(host),
            state=HealthState.OUT,
            reason="maintenance",
            by="ada",
            since_ns=START,
            until_ns=None,
        )
    fleet.accuse("node3", "node7")
    fleet.run(120)
    assert fleet.held() == []
    assert fleet.refusals() == {"node3": Refused.SHARE_LIMIT}, "node7 is held already"


def test_a_fleet_that_is_too_small_for_its_share_keeps_all_hosts() -> None:
    fleet = Fleet(hosts=("node1", "node2", "node3"))
    fleet.accuse("node3")
    fleet.run(120)
    assert fleet.refusals() == {"node3": Refused.SHARE_LIMIT}


def test_doubt_is_refused_by_name() -> None:
    fleet = Fleet()
    fleet.accuse("node3", "elsewhere", "node4")
    fleet.silent = {"node4"}
    fleet.run(120)
    assert fleet.refusals() == {
        "elsewhere": Refused.UNKNOWN_HOST,
        "node4": Refused.STALE_EVIDENCE,
    }
    assert fleet.held() == ["node3"]
    fleet.accuse("node5")
    fleet.stale = ("verdicts: nothing was evaluated since noon",)
    fleet.run(120)
    assert fleet.refusals()["node5"] is Refused.STALE_EVIDENCE
    assert fleet.held() == ["node3"], "stale evidence ends no standing drain"
    fleet.stale = ()
    fleet.look()
    assert fleet.held() == ["node3", "node5"]


def test_too_many_at_once_open_the_breaker_and_nobody_is_drained() -> None:
    policy = Policy(
        mode=Mode.ENFORCE,
        rules=(GPU,),
        limits=Limits(share_max=0.25, hosts_max=50),
        breaker=Breaker(hosts_max=4, within_s=600, rest_s=1_200),
    )
    fleet = Fleet(policy)
    many = [f"node{number}" for number in range(20, 25)]
    fleet.accuse(*many)
    fleet.run(120)
    assert fleet.held() == []
    assert set(fleet.refusals().values()) == {Refused.BREAKER}
    assert fleet.last is not None
    assert fleet.last.breaker_until_ns == fleet.now_ns + 1_200 * NS
    # The breaker stays open while these hosts are due for a drain, also over a restart.
    fleet.run(3_600)
    fleet.memory = Memory(matched=fleet.memory.matched)
    fleet.run(3_600)
    assert fleet.held() == []
    # The policy drains fewer hosts than the breaker's limit after the breaker's rest.
    fleet.acquit(*many[1:])
    fleet.run(1_100)
    assert fleet.held() == []
    fleet.run(200)
    assert fleet.held() == many[:1]


def test_the_breaker_counts_what_was_done_before() -> None:
    policy = Policy(
        mode=Mode.ENFORCE,
        rules=(GPU,),
        limits=Limits(share_max=0.25, hosts_max=50),
        breaker=Breaker(hosts_max=2, within_s=600),
    )
    fleet = Fleet(policy)
    for number in range(3):
        fleet.accuse(f"node{number}")
        fleet.run(120)
    assert fleet.held() == ["node0", "node1"]
    assert fleet.refusals() == {"node2": Refused.BREAKER}


def test_hosts_that_wait_for_room_do_not_open_the_breaker_after_a_restart() -> None:
    fleet = Fleet(
        Policy(
            mode=Mode.ENFORCE,
            rules=(GPU,),
            limits=Limits(share_max=0.0),
            breaker=Breaker(hosts_max=2, within_s=600),
        )
    )
    for number in range(5):
        fleet.accuse(f"node{number}")
        fleet.run(700)
    fleet.memory = Memory()
    fleet.run(120)
    assert set(fleet.refusals().values()) == {Refused.SHARE_LIMIT}


def test_in_quiet_hours_nothing_is_changed_and_after_them_it_is() -> None:
    quiet = Quiet(begin=11 * 60, end=12 * 60)
    fleet = Fleet(Policy(mode=Mode.ENFORCE, rules=(GPU,), quiet=(quiet,), limits=POLICY.limits))
    fleet.accuse("node3")
    fleet.run(3_590)
    assert fleet.refusals() == {"node3": Refused.QUIET_HOURS}
    fleet.look()
    assert fleet.held() == ["node3"]


def test_quiet_hours_are_those_of_the_policy_s_zone() -> None:
    quiet = Quiet(begin=20 * 60, end=21 * 60)
    tokyo = Policy(zone="Asia/Tokyo", quiet=(quiet,))
    assert tokyo.is_quiet(START)
    assert not Policy(quiet=(quiet,)).is_quiet(START)


# --- how an action ends --------------------------------------------------------------------------


def test_clean_evidence_returns_a_host_and_it_is_not_taken_again_at_once() -> None:
    fleet = Fleet()
    fleet.accuse("node3")
    fleet.run(120)
    fleet.acquit("node3")
    fleet.run(600)
    assert fleet.held() == ["node3"]
    fleet.run(20)
    action = fleet.only()
    assert (action.state, action.ended_why, action.ended_by) == (
        ActionState.ENDED,
        Ending.CLEAN,
        BY_POLICY,
    )
    fleet.accuse("node3")
    fleet.run(120)
    assert fleet.refusals() == {"node3": Refused.COOLDOWN}
    fleet.run(1_800)
    assert fleet.held() == ["node3"]


def test_silence_and_doubt_are_no_clean_evidence() -> None:
    fleet = Fleet()
    fleet.accuse("node3")
    fleet.run(120)
    fleet.acquit("node3")
    fleet.silent = {"node3"}
    fleet.run(700)
    fleet.silent = set()
    fleet.run(590)
    fleet.stale = ("the store cannot be read",)
    fleet.look()
    fleet.stale = ()
    fleet.run(500)
    assert fleet.held() == ["node3"]


def test_a_hold_ends_by_itself_and_goes_on_while_its_incident_is_open() -> None:
    rule = Rule(name=GPU.name, causes=GPU.causes, stands_s=60, ttl_s=3_600, return_on=frozenset())
    fleet = Fleet(Policy(mode=Mode.ENFORCE, rules=(rule,), limits=POLICY.limits))
    fleet.accuse("node3")
    fleet.run(4 * 3_600)
    assert fleet.held() == ["node3"]
    fleet.acquit("node3")
    fleet.run(3_700)
    assert fleet.held() == []
    assert fleet.only().ended_why is Ending.TTL


def test_only_a_check_returns_what_only_a_check_may() -> None:
    rule = Rule(
        name=GPU.name,
        causes=GPU.causes,
        stands_s=60,
        ttl_s=None,
        clean_s=60,
        return_on=frozenset({ReturnOn.CHECK}),
    )
    fleet = Fleet(Policy(mode=Mode.ENFORCE, rules=(rule,), limits=POLICY.limits))
    fleet.accuse("node3")
    fleet.run(120)
    fleet.acquit("node3")
    fleet.run(86_400)
    assert fleet.held() == ["node3"]
    action = fleet.only()
    for passed in (False, True):
        result = Checked(time_ns=fleet.now_ns, passed=passed, words=f"passed: {passed}")
        fleet.actions[action.id] = checked(fleet.actions[action.id], result, "ada")
        fleet.look()
    assert fleet.only().ended_why is Ending.CHECK


def test_a_person_s_no_holds_for_the_incident_and_no_longer() -> None:
    fleet = Fleet(Policy(mode=Mode.ENFORCE, rules=(GPU,), limits=Limits(share_max=0.1)))
    fleet.accuse("node3")
    fleet.run(120)
    action = fleet.only()
    fleet.actions[action.id] = ended(action, Ending.OPERATOR, "ada", "I need it", fleet.now_ns)
    fleet.run(7 * 3_600)
    assert fleet.refusals() == {"node3": Refused.REJECTED}
    fleet.accuse("node3")
    fleet.run(120)
    assert fleet.held() == ["node3"]


# --- modes ---------------------------------------------------------------------------------------


def test_a_proposal_waits_for_a_person_takes_room_and_stands_when_granted() -> None:
    policy = Policy(mode=Mode.APPROVE, rules=(GPU,), limits=Limits(share_max=0.01))
    fleet = Fleet(policy)
    fleet.accuse("node3")
    fleet.run(120)
    action = fleet.only()
    assert action.state is ActionState.PROPOSED
    assert fleet.held() == []
    fleet.accuse("node4")
    fleet.run(120)
    assert fleet.refusals() == {"node4": Refused.SHARE_LIMIT}
    until_ns = GPU.until_ns(fleet.now_ns)
    fleet.actions[action.id] = approved(action, "ada", "yes", fleet.now_ns, until_ns)
    fleet.look()
    assert fleet.held() == ["node3"]


@pytest.mark.parametrize("ending", [Refused.EXPIRED, Refused.WITHDRAWN, Refused.REJECTED])
def test_a_proposal_ends_when_nobody_answers_its_ground_is_gone_or_somebody_says_no(
    ending: Refused,
) -> None:
    fleet = Fleet(
        Policy(mode=Mode.APPROVE, rules=(GPU,), limits=Limits(share_max=0.01, proposal_s=300))
    )
    fleet.accuse("node3")
    fleet.run(70)
    action = fleet.only()
    if ending is Refused.WITHDRAWN:
        fleet.acquit("node3")
    elif ending is Refused.REJECTED:
        fleet.actions[action.id] = refused(action, ending, "ada", "no", fleet.now_ns)
    fleet.run(300)
    assert fleet.actions[action.id].refused is ending
    fleet.run(60)
    others = [each for each in fleet.actions.values() if each.id != action.id]
    if ending is Refused.REJECTED:
        assert fleet.refusals() == {"node3": Refused.REJECTED}
        assert others == [], "the policy does not ask again after an operator's rejection"
    elif ending is Refused.EXPIRED:
        assert [each.state for each in others] == [ActionState.PROPOSED], "the policy asks again"


def test_a_shadow_holds_nobody_and_is_judged_by_what_came_later() -> None:
    fleet = Fleet(Policy(mode=Mode.SHADOW, rules=(GPU,), limits=Limits(share_max=0.1)))
    fleet.accuse("node1", "node2")
    fleet.run(120)
    fleet.acquit("node2")
    fleet.run(CONFIRM_S)
    outcomes = {each.host: each.outcome for each in fleet.actions.values()}
    assert outcomes == {"node1": Outcome.CONFIRMED, "node2": Outcome.CLEARED}
    assert fleet.held() == []
    assert {each.state for each in fleet.actions.values()} == {ActionState.SHADOWED}


def test_a_shadow_whose_incident_accuses_another_was_no_hit() -> None:
    rule = Rule(name=GPU.name, causes=GPU.causes, stands_s=60, ttl_s=86_400, clean_s=80_000)
    fleet = Fleet(Policy(mode=Mode.SHADOW, rules=(rule,), limits=Limits(share_max=0.1)))
    fleet.accuse("node1")
    fleet.run(120)
    del fleet.trouble["node1"]
    fleet.run(CONFIRM_S + SETTLED_S)
    assert fleet.only().outcome is Outcome.CLEARED


def test_a_shadow_takes_no_room_from_what_acts() -> None:
    trial = Rule(
        name="trial",
        causes=(Match(Cause.STRAGGLER, Reason.PCIE),),
        stands_s=60,
        mode=Mode.SHADOW,
    )
    fleet = Fleet(Policy(mode=Mode.ENFORCE, rules=(GPU, trial), limits=Limits(share_max=0.01)))
    fleet.accuse("node1", "node2", reason=Reason.PCIE, confidence=0.95)
    fleet.run(120)
    fleet.accuse("node3", "node1")
    fleet.run(120)
    shadows = [each.host for each in fleet.actions.values() if each.outcome is not None]
    assert shadows == ["node1"], "the limit allows one shadow"
    assert fleet.held() == ["node1"], "a shadow on the same host blocks no drain"


def test_a_policy_that_is_turned_on_ends_its_shadows() -> None:
    fleet = Fleet(Policy(mode=Mode.SHADOW, rules=(GPU,), limits=POLICY.limits))
    fleet.accuse("node3")
    fleet.run(120)
    fleet.policy = POLICY
    fleet.run(20)
    ends = [each.ended_why for each in fleet.actions.values()]
    assert ends == [Ending.POLICY, None]
    assert fleet.held() == ["node3"]
    fleet.policy = Policy(mode=Mode.OFF, rules=(GPU,), limits=POLICY.limits)
    fleet.run(120)
    assert fleet.held() == ["node3"], "mode off ends no standing drain"
    fleet.accuse("node4")
    fleet.run(120)
    assert fleet.held() == ["node3"]


# --- for all fleets ------------------------------------------------------------------------------


@given(
    share=st.sampled_from([0.0, 0.02, 0.05]),
    mode=st.sampled_from([Mode.SHADOW, Mode.APPROVE, Mode.ENFORCE]),
    strokes=st.lists(
        st.tuples(
            st.sampled_from(["accuse", "acquit", "silence", "speak", "stale", "fresh", "wait"]),
            st.integers(0, 39),
        ),
        max_size=40,
    ),
)
def test_whatever_happens_the_share_is_kept_and_nothing_is_done_on_doubt(
    share: float, mode: Mode, strokes: list[tuple[str, int]]
) -> None:
    limits = Limits(share_max=share, cooldown_s=60)
    hosts = FLEET[:40]
    fleet = Fleet(Policy(mode=mode, rules=(GPU,), limits=limits), hosts)
    for stroke, number in strokes:
        host = hosts[number]
        before = set(fleet.actions)
        if stroke == "accuse":
            fleet.accuse(host)
        elif stroke == "acquit" and host in fleet.trouble:
            fleet.acquit(host)
        elif stroke in {"silence", "speak"}:
            fleet.silent ^= {host}
        elif stroke in {"stale", "fresh"}:
            fleet.stale = ("doubt",) if stroke == "stale" else ()
        fleet.look(70)
        live = [each for each in fleet.actions.values() if each.is_live(fleet.now_ns)]
        assert len({each.host for each in live}) <= limits.room(len(hosts))
        new = [each for key, each in fleet.actions.items() if key not in before]
        if fleet.stale:
            assert all(each.refused is not None for each in new)
        assert not [each for each in new if each.refused is None and each.host in fleet.silent]
        assert {each.host for each in live if each.state is ActionState.STANDING} == set(
            fleet.held() if mode is Mode.ENFORCE else ()
        )


# --- records -------------------------------------------------------------------------------------


def an_action(state: ActionState = ActionState.STANDING, until_ns: int | None = None) -> Action:
    return begun(
        Action(
            id="a1",
            host="node3",
            hold=HealthState.OUT,
            state=state,
            by="ada",
            reason="a cable",
            at_ns=START,
            until_ns=until_ns,
        )
    )


def test_what_cannot_be_in_a_state_is_refused_by_name() -> None:
    standing, proposed = an_action(), an_action(ActionState.PROPOSED)
    over = ended(standing, Ending.OPERATOR, "ada", "", START)
    said = Applied(executor="slurm", outcome="done", words="", time_ns=START)
    result = Checked(time_ns=START, passed=True, words="")
    changes: tuple[Callable[[], Action], ...] = (
        lambda: approved(standing, "ada", "", START, None),
        lambda: approved(an_action(ActionState.PROPOSED, START), "ada", "", START, None),
        lambda: refused(standing, Refused.REJECTED, "ada", "", START),
        lambda: ended(over, Ending.OPERATOR, "ada", "", START),
        lambda: ended(proposed, Ending.OPERATOR, "ada", "", START),
        lambda: applied(proposed, said),
        lambda: checked(over, result, "ada"),
    )
    for change in changes:
        with pytest.raises(WrongState, match=r"action a1 is .*; it must be"):
            change()


def test_an_executor_s_word_replaces_its_last_and_the_same_again_is_no_news() -> None:
    action = an_action()
    for outcome, seconds in (("failed", 1), ("failed", 2), ("done", 3)):
        said = Applied(executor="slurm", outcome=outcome, words="w", time_ns=START + seconds)
        action = applied(action, said)
    assert [(each.executor, each.outcome) for each in action.applied] == [("slurm", "done")]
    assert [event.words for event in action.history[1:]] == ["failed: w", "done: w"]
    for number in range(2 * HISTORY_MAX):
        said = Applied(executor="k8s", outcome="done", words=str(number), time_ns=START)
        action = applied(action, said)
    assert len(action.history) == HISTORY_MAX
    assert action.history[0].what == "held"


# --- the file ------------------------------------------------------------------------------------


def test_the_shipped_policy_only_watches() -> None:
    policy = shipped_policy()
    assert policy.mode is Mode.SHADOW
    assert {policy.mode_of(rule) for rule in policy.rules} == {Mode.SHADOW}
    assert len(policy.rules) > 3
    assert policy.limits.room(512) == 10


def test_a_file_is_read_whole() -> None:
    text = """
        mode = "approve"
        zone = "Europe/Berlin"
        quiet = [{begin = "22:00", end = "06:00", days = ["fri"]}]
        limits.share_max = 0.05
        check.bus_bandwidth_min.all_reduce = 340.0
        [[rules]]
        name = "x"
        causes = ["lossy_link/nic", "link_flap"]
        ttl_s = 0
        hold = "out"
        return_on = []
    """
    policy = parse_policy(text, "p.toml")
    [rule] = policy.rules
    assert rule.causes == (Match(Cause.LOSSY_LINK, Reason.NIC), Match(Cause.LINK_FLAP))
    assert (rule.ttl_s, rule.hold, rule.return_on) == (None, HealthState.OUT, frozenset())
    assert policy.quiet == (Quiet(days=frozenset({4}), begin=1_320, end=360),)
    assert policy.limits.share_max == 0.05
    assert policy.limits.hosts_max == Limits().hosts_max


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mode = 'on'", "p.toml: mode = 'on'"),
        ("mod = 'off'", "unknown setting 'mod'; did you mean 'mode'?"),
        ("zone = 'Berlin'", "zone is 'Berlin'"),
        ("zone = '../etc/passwd'", "zone is"),
        ("limits.share_max = 0.5", "limits.share_max is 0.5; between 0 and 0.25"),
        ("limits.share_max = nan", "limits.share_max is nan"),
        ("breaker.hosts_max = 0", "breaker.hosts_max is 0"),
        ("quiet = [{begin = '25:00', end = '06:00'}]", "'25:00'; write a time as 22:30"),
        ("quiet = [{begin = '06:00', end = '06:00'}]", "begin and end are both"),
        ("quiet = [{begin = '1:00', end = '06:00', days = ['sunday']}]", "there are mon"),
        ("check.bus_bandwidth_min.allreduce = 1.0", "there are all_gather"),
        ("[[rules]]\nname = 'x'\ncauses = []", "causes is empty"),
        ("[[rules]]\nname = 'a b'\ncauses = ['hang']", "rules.name is 'a b'"),
        ("[[rules]]\nname = 'x'\ncauses = ['slow']", "no cause is called 'slow'"),
        ("[[rules]]\nname = 'x'\ncauses = ['hang/nic2']", "no reason is called 'nic2'"),
        ("[[rules]]\nname = 'x'\ncauses = ['congestion']", "it would never act"),
        ("[[rules]]\nname = 'x'\ncauses = ['link_flap']\nstands_s = 1", "stands_s is 1"),
        ("[[rules]]\nname = 'x'\ncauses = ['link_flap']\nhold = 'healthy'", "draining or out"),
        ("[[rules]]\nname = 'x'\ncauses = ['link_flap']\n" * 2, "x is there twice"),
        ("[", "not a TOML file"),
    ],
)
def test_a_mistake_is_named(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as raised:
        parse_policy(text, "p.toml")
    assert said in str(raised.value)
    assert str(raised.value).startswith("p.toml")
