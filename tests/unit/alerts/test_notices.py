"""Which notices the planner sends, to which receiver and when; no clock, database or network."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from alerts.rulebook import notices
from alerts.rulebook.model import INHIBITED_BY, Alert, AlertState
from alerts.rulebook.notices import (
    GONE_SECONDS,
    LINES_MAX,
    Matcher,
    Notice,
    Operator,
    Plan,
    Route,
    Scene,
    Silence,
    Standing,
    Status,
    Talk,
    Why,
    fingerprint,
)
from collector.contract.identity import canonical_labels
from collector.contract.units import NS

START_NS = 1_794_000_000 * NS
SOURCE = "links.yaml;links"
PAGER = Route(receiver="pager", matchers=(Matcher("severity", Operator.IS, "critical"),))


def at(second: float) -> int:
    return START_NS + round(second * NS)


def fits(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None


def alert(
    name: str = "LinkDown",
    *,
    fired: float = 0,
    ended: float | None = None,
    pending: bool = False,
    notes: Mapping[str, str] | None = None,
    **labels: str,
) -> Alert:
    state = AlertState.FIRING if ended is None else AlertState.INACTIVE
    return Alert(
        labels=canonical_labels({"alertname": name, "severity": "critical", **labels}),
        annotations=dict(notes or {}),
        value=1.0,
        state=AlertState.PENDING if pending else state,
        active_ns=at(fired),
        fired_ns=None if pending else at(fired),
        resolved_ns=None if ended is None else at(ended),
    )


class Desk:
    """Plans notices repeatedly over the alerts of each turn, as the service does."""

    def __init__(self, *routes: Route) -> None:
        self.routes = routes or (PAGER,)
        self.talks: dict[str, Talk] = {}
        self.silences: list[Silence] = []
        self.said: list[Notice] = []
        self.since_ns = at(0)

    def look(
        self, second: float, *alerts: Alert, evaluated: Mapping[str, float] | None = None
    ) -> Plan:
        times = {SOURCE: second} if evaluated is None else evaluated
        made = notices.plan(
            self.routes,
            Scene(
                alerts=tuple(
                    Standing(labels=each.labels, alert=each, source=SOURCE) for each in alerts
                ),
                evaluated={key: at(value) for key, value in times.items()},
                since_ns=self.since_ns,
            ),
            self.talks,
            at(second),
            silences=self.silences,
            fits=fits,
        )
        self.talks = made.talks
        self.said += made.notices
        return made

    def restart(self, second: float) -> None:
        """Restart the service, which loses each talk that sent no notice."""
        self.talks = {key: talk for key, talk in self.talks.items() if talk.number}
        self.since_ns = at(second)

    def told(self) -> list[tuple[str, str]]:
        return [(notice.status.value, notice.why.value) for notice in self.said]


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    ids = [notice.id for notice in desk.said]
    assert len(ids) == len(set(ids)), "each notice has its own id"


# --- one group ----------------------------------------------------------------------------------


def test_a_page_waits_for_company_and_then_names_all(desk: Desk) -> None:
    first, second = alert(host="a"), alert(host="b", fired=6)
    desk.look(0, first)
    desk.look(6, first, second)
    assert desk.said == []
    desk.look(10, first, second)
    assert desk.told() == [("firing", "first")]
    assert [dict(line.labels)["host"] for line in desk.said[0].lines] == ["a", "b"]


def test_what_ends_before_its_page_is_never_told(desk: Desk) -> None:
    desk.look(0, alert())
    desk.look(9, alert(ended=9))
    desk.look(20, alert(ended=9))
    assert desk.said == []
    assert desk.talks == {}


def test_nothing_is_said_twice_until_the_repeat_interval(desk: Desk) -> None:
    for second in range(0, 14_400 + 10, 10):
        desk.look(second, alert())
    assert desk.told() == [("firing", "first")]
    desk.look(14_410, alert())
    assert desk.told() == [("firing", "first"), ("firing", "repeat")]


def test_new_alerts_are_told_after_the_interval_all_at_once(desk: Desk) -> None:
    desk.look(10, alert(host="a"))
    for second in range(20, 310, 10):
        desk.look(second, alert(host="a"), alert(host="b", fired=20))
    assert len(desk.said) == 1
    desk.look(310, alert(host="a"), alert(host="b", fired=20), alert(host="c", fired=300))
    assert desk.told()[1:] == [("firing", "changed")]
    assert len(desk.said[1].lines) == 3


def test_an_end_is_told_once_with_its_moment(desk: Desk) -> None:
    desk.look(10, alert())
    desk.look(400, alert(ended=395))
    desk.look(410, alert(ended=395))
    desk.look(5_000)
    assert desk.told() == [("firing", "first"), ("resolved", "over")]
    assert desk.said[1].lines[0].ends_ns == at(395)


def test_what_comes_and_goes_is_one_page_an_interval(desk: Desk) -> None:
    desk.look(10, alert())
    for second in range(20, 300, 20):
        desk.look(second, alert(ended=second))
        desk.look(second + 10, alert(fired=second + 10))
    assert len(desk.said) == 1
    desk.look(310, alert(ended=305))
    assert desk.told()[1:] == [("resolved", "over")]


def test_one_that_ends_among_others_is_told_with_those_that_go_on(desk: Desk) -> None:
    desk.look(10, alert(host="a"), alert(host="b"))
    desk.look(310, alert(host="a"), alert(host="b", ended=100))
    assert desk.told()[1:] == [("firing", "changed")]
    ends = {dict(line.labels)["host"]: line.ends_ns for line in desk.said[1].lines}
    assert ends == {"a": None, "b": at(100)}
    desk.look(700, alert(host="a", ended=650))
    assert [dict(line.labels)["host"] for line in desk.said[2].lines] == ["a"]


def test_who_does_not_want_to_hear_of_ends_does_not(desk: Desk) -> None:
    desk.routes = (msgspec.structs.replace(PAGER, send_resolved=False),)
    desk.look(10, alert(host="a"), alert(host="b"))
    desk.look(400, alert(host="a"), alert(host="b", ended=100))
    made = desk.look(500, alert(host="a", ended=450))
    assert desk.told() == [("firing", "first")]
    assert made.forgotten == ['pager{alertname="LinkDown"}'], "queued notices are dropped"


def test_it_pages_again_when_it_comes_back_after_its_end(desk: Desk) -> None:
    desk.look(10, alert())
    desk.look(400, alert(ended=390))
    desk.look(500, alert(fired=500))
    desk.look(510, alert(fired=500))
    assert [status for status, _ in desk.told()] == ["firing", "resolved", "firing"]


def test_a_clock_that_is_set_back_does_not_hold_pages_up(desk: Desk) -> None:
    desk.look(100_000, alert())
    desk.look(100_010, alert())
    for second in range(0, 320, 10):
        desk.look(second, alert(), alert(host="b", fired=0))
    assert desk.told() == [("firing", "first"), ("firing", "changed")]


# --- incidents ----------------------------------------------------------------------------------


def incident(cause: str = "slow_link", job: str = "llama", fired: float = 0, **more: Any) -> Alert:  # noqa: ANN401
    return alert("FabricIncident", incident="i-1", cause=cause, job=job, fired=fired, **more)


def test_an_incident_is_one_page_whatever_joins_it(desk: Desk) -> None:
    desk.look(10, incident(host="n1"))
    for second in range(20, 2_000, 10):
        desk.look(
            second,
            incident(host="n1"),
            incident(host="n1", job="bert", fired=20),
            alert("Other", incident="i-1", fired=30),
        )
    assert desk.told() == [("firing", "first")]
    assert desk.said[0].group == 'pager{incident="i-1"}'


def test_another_culprit_of_an_incident_is_an_update_not_too_soon(desk: Desk) -> None:
    desk.look(10, incident(host="n1"))
    desk.look(60, incident("lossy_link", host="n2", fired=60))
    assert len(desk.said) == 1
    desk.look(310, incident("lossy_link", host="n2", fired=60))
    desk.look(700, incident("lossy_link", host="n2", fired=60))
    assert desk.told() == [("firing", "first"), ("firing", "changed")]


def test_who_looks_after_an_incident_is_told_once_and_soon(desk: Desk) -> None:
    taken = {"work": "acknowledged by ann"}
    desk.look(10, incident(host="n1"))
    desk.look(15, incident(host="n1", notes=taken))
    assert len(desk.said) == 1
    desk.look(40, incident(host="n1", notes=taken))
    desk.look(900, incident(host="n1", notes=taken))
    assert desk.told() == [("firing", "first"), ("firing", "work")]
    desk.look(910, incident(host="n1"))
    assert desk.told()[-1] == ("firing", "work")
    assert desk.said[-1].lines[0].annotations == {}


def test_a_name_for_what_nobody_was_accused_of_is_news(desk: Desk) -> None:
    desk.look(10, incident("stall"))
    desk.look(400, incident("hang", host="n1", rank="3", fired=400))
    assert desk.told() == [("firing", "first"), ("firing", "changed")]


def test_another_cause_and_more_names_of_the_same_culprit_are_no_news(desk: Desk) -> None:
    desk.look(10, incident(host="n1"))
    desk.look(400, incident("lossy_link", host="n1", device="mlx5_0", fired=400))
    desk.look(900, incident("hang", host="n1", fired=900))
    assert desk.told() == [("firing", "first")]


def test_an_incident_that_turns_out_to_be_another_stays_the_same_page(desk: Desk) -> None:
    old = alert("FabricIncident", incident="i-1", first_incident="i-1", host="n1")
    kept = msgspec.structs.replace(old, keep_firing_since_ns=at(60))
    new = alert("FabricIncident", incident="i-2", first_incident="i-1", host="n2", fired=60)
    desk.look(10, old)
    desk.look(60, kept, new)
    over = msgspec.structs.replace(old, state=AlertState.INACTIVE, resolved_ns=at(120))
    desk.look(310, over, new)
    assert desk.told() == [("firing", "first"), ("firing", "changed")]
    assert len({notice.group for notice in desk.said}) == 1
    lines = desk.said[-1].lines
    assert [dict(line.labels)["incident"] for line in lines] == ["i-2", "i-1"]
    assert [line.ends_ns for line in lines] == [None, at(120)]


def test_of_two_explanations_before_the_first_page_the_present_one_is_the_headline(
    desk: Desk,
) -> None:
    old = alert("FabricIncident", incident="i-1", first_incident="i-1", host="n1")
    kept = msgspec.structs.replace(old, keep_firing_since_ns=at(5))
    new = alert("FabricIncident", incident="i-2", first_incident="i-1", host="n2", fired=5)
    desk.look(1, old)
    desk.look(10, kept, new)
    assert desk.told() == [("firing", "first")]
    assert dict(desk.said[0].lines[0].labels)["incident"] == "i-2"


def test_an_incident_s_confidence_and_cost_are_no_news(desk: Desk) -> None:
    for second in range(10, 3_000, 10):
        desk.look(second, incident(host="n1", notes={"cost": f"{second} s"}))
    assert len(desk.said) == 1


# --- alerts without a notice --------------------------------------------------------------------


def silence(starts: float, ends: float, *matchers: Matcher) -> Silence:
    return Silence(
        id="s",
        matchers=matchers,
        starts_ns=at(starts),
        ends_ns=at(ends),
        created_by="me",
        comment="why",
        updated_ns=at(starts),
    )


def test_what_is_explained_by_an_incident_does_not_page(desk: Desk) -> None:
    for second in range(0, 100, 10):
        desk.look(second, alert(notes={INHIBITED_BY: "i-1"}))
    assert desk.said == []
    desk.look(100, alert())
    desk.look(110, alert())
    assert desk.told() == [("firing", "first")], "the alert still fires after the incident ended"


def test_a_silence_holds_from_its_start_to_its_end(desk: Desk) -> None:
    desk.silences = [silence(0, 100, Matcher("host", Operator.FITS, "n[0-9]+"))]
    for second in range(0, 100, 10):
        desk.look(second, alert(host="n12"), alert(host="other"))
    assert [len(notice.lines) for notice in desk.said] == [1]
    desk.look(310, alert(host="n12"), alert(host="other"))
    assert len(desk.said[1].lines) == 2


def test_what_was_told_and_then_silenced_is_not_repeated_but_its_end_is_told(desk: Desk) -> None:
    desk.look(10, alert())
    desk.silences = [silence(20, 1e9, Matcher("alertname", Operator.IS, "LinkDown"))]
    for second in range(20, 30_000, 100):
        desk.look(second, alert())
    assert len(desk.said) == 1
    desk.look(30_010, alert(ended=30_005))
    assert desk.told()[1:] == [("resolved", "over")]


@pytest.mark.parametrize(
    ("operator", "value", "labels", "expected"),
    [
        ("=", "a", {"x": "a"}, True),
        ("=", "", {}, True),
        ("!=", "a", {}, True),
        ("!=", "a", {"x": "a"}, False),
        ("=~", "a|b", {"x": "b"}, True),
        ("=~", "a", {"x": "ab"}, False),
        ("!~", "a.*", {"x": "ab"}, False),
        ("!~", "a.*", {}, True),
    ],
)
def test_matchers_mean_what_they_mean_in_promql(
    operator: str,
    value: str,
    labels: dict[str, str],
    expected: bool,  # noqa: FBT001
) -> None:
    assert Matcher("x", Operator(operator), value).meets(labels, fits) is expected


# --- routes -------------------------------------------------------------------------------------


def receivers(said: Sequence[Notice]) -> list[str]:
    return sorted(notice.receiver for notice in said)


def test_the_first_route_takes_an_alert_unless_it_says_go_on() -> None:
    chat = Route(receiver="chat", goes_on=True)
    last = Route(receiver="last")
    desk = Desk(chat, PAGER, last)
    desk.look(0, alert(host="a"), alert(severity="info", host="b"))
    desk.look(10, alert(host="a"), alert(severity="info", host="b"))
    assert receivers(desk.said) == ["chat", "last", "pager"]
    assert [len(notice.lines) for notice in desk.said if notice.receiver == "chat"] == [2]


def test_two_routes_to_one_receiver_tell_an_alert_once() -> None:
    desk = Desk(Route(receiver="chat", goes_on=True), Route(receiver="chat"))
    desk.look(0, alert(), alert(host="b"))
    desk.look(10, alert(), alert(host="b"))
    assert [len(notice.lines) for notice in desk.said] == [2]


def test_groups_are_by_name_and_cluster_or_as_the_route_says() -> None:
    by_host = msgspec.structs.replace(PAGER, receiver="hosts", group_by=("host",))
    desk = Desk(msgspec.structs.replace(PAGER, goes_on=True), by_host)
    alerts = [alert(host=host, cluster=cluster) for host in "abc" for cluster in "xy"]
    desk.look(0, *alerts)
    desk.look(10, *alerts)
    assert receivers(desk.said) == ["hosts"] * 3 + ["pager"] * 2


def test_a_receiver_that_is_gone_is_forgotten(desk: Desk) -> None:
    desk.look(10, alert())
    desk.routes = (msgspec.structs.replace(PAGER, receiver="new"),)
    made = desk.look(20, alert())
    assert made.forgotten == ['pager{alertname="LinkDown"}']


# --- restarts -----------------------------------------------------------------------------------


def test_after_a_restart_nothing_is_over_before_it_was_evaluated(desk: Desk) -> None:
    desk.look(10, alert())
    desk.restart(400)
    desk.look(401, evaluated={})
    desk.look(402, evaluated={"other.yaml;other": 402})
    assert len(desk.said) == 1
    desk.look(410, alert())
    assert len(desk.said) == 1
    desk.look(420)
    assert desk.told()[1:] == [("resolved", "over")]


def test_what_is_pending_again_after_a_restart_is_not_over(desk: Desk) -> None:
    desk.look(10, alert())
    desk.restart(400)
    desk.look(410, alert(pending=True, fired=405))
    assert len(desk.said) == 1


def test_alerts_of_rules_that_nobody_evaluates_any_more_end(desk: Desk) -> None:
    desk.look(10, alert())
    desk.restart(400)
    desk.look(400 + GONE_SECONDS, evaluated={"other": 400 + GONE_SECONDS})
    assert len(desk.said) == 1
    desk.look(401 + GONE_SECONDS, evaluated={"other": 401 + GONE_SECONDS})
    assert desk.told()[1:] == [("resolved", "over")]


def test_a_page_that_was_lost_with_a_crash_gets_the_same_name_again(desk: Desk) -> None:
    other = Desk()
    for second in (0, 10):
        desk.look(second, alert())
    other.look(40, alert())
    assert [notice.id for notice in other.said] == [notice.id for notice in desk.said]


def test_a_group_that_is_forgotten_in_silence_takes_nothing_with_it(desk: Desk) -> None:
    """The queue may still hold the resolved notice of an earlier talk in the same group."""
    desk.look(10, alert())
    desk.look(400, alert(ended=390))
    desk.look(500, alert(fired=500))
    assert desk.look(505, alert(ended=504)).forgotten == []


# --- bounds -------------------------------------------------------------------------------------


def test_a_notice_describes_so_many_and_counts_the_rest(desk: Desk) -> None:
    crowd = [alert(host=f"n{number}") for number in range(LINES_MAX + 23)]
    desk.look(10, *crowd)
    assert (len(desk.said[0].lines), desk.said[0].left_out) == (LINES_MAX, 23)


def test_groups_past_the_bound_are_left_out_and_counted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "TALKS_MAX", 3)
    made = desk.look(10, *(alert(f"A{number}") for number in range(5)))
    assert (len(made.talks), made.left_out) == (3, 2)


def test_critical_alerts_speak_first() -> None:
    desk = Desk(Route(receiver="all"))
    desk.look(10, alert(severity="warning", host="w"), alert(host="c", fired=9))
    assert [dict(line.labels)["host"] for line in desk.said[0].lines] == ["c", "w"]
    assert desk.said[0].is_critical
    assert (desk.said[0].status, desk.said[0].why) == (Status.FIRING, Why.FIRST)


def test_fingerprints_are_alertmanager_s() -> None:
    """The fingerprint that Alertmanager 0.25 returned for this alert."""
    labels = canonical_labels({"alertname": "LinkDown", "host": "n1", "severity": "critical"})
    assert fingerprint(labels) == "6c38d0d201d3b839"
