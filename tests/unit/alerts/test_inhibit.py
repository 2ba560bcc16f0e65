"""Which alerts an incident explains, and which it must not hide."""

from __future__ import annotations

import msgspec
import pytest

from alerts.judge.incident import Incident, Symptom, advance
from alerts.rulebook.inhibit import COVERED_MAX, ONSET_SECONDS, covered_by, explained, told
from alerts.rulebook.model import Alert, AlertState
from api.oncall.evaluate.series import FoundSeries
from collector.contract.identity import canonical_labels
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Reason, Verdict
from tests.worlds.incidents import slow_link, straggler

NOW = 1_800_000_000 * NS


def incident_of(verdict: Verdict) -> Incident:
    """The incident that begins with a verdict."""
    (incident,) = advance((), [verdict], NOW).incidents
    return incident


def alert(theme: str, scope: str, **names: str) -> Alert:
    """A firing alert of the pack."""
    labels = {"alertname": "FabricSomething", "theme": theme, "scope": scope, **names}
    return Alert(
        labels=canonical_labels(labels),
        annotations={"summary": "something"},
        value=1.0,
        state=AlertState.FIRING,
        active_ns=NOW,
        fired_ns=NOW,
    )


LINK = incident_of(slow_link(NOW))
RANK = incident_of(straggler(NOW))


@pytest.mark.parametrize(
    "symptom",
    [
        alert("loss", "port", host="node3", device="mlx5_0", port="1"),
        alert("links", "nic", host="node3", device="eth2"),
        alert("pause", "port", host="leaf0", device="leaf0", port="swp3"),
        alert("errors", "switch", host="leaf0"),
        alert("stragglers", "rank", job="train", rank="4"),
        alert("collectives", "job", job="train"),
    ],
)
def test_a_slow_link_explains_its_port_its_switch_port_and_its_job(symptom: Alert) -> None:
    (marked,) = explained([symptom], [LINK])
    assert marked.inhibited_by == LINK.id
    assert marked.labels == symptom.labels, "a mark must not make it another alert"


@pytest.mark.parametrize(
    "other",
    [
        alert("loss", "port", host="node3", device="mlx5_1", port="1"),
        alert("loss", "port", host="node4", device="mlx5_0", port="1"),
        alert("pause", "port", host="leaf0", device="leaf0", port="swp4"),
        alert("gpus", "gpu", host="node3", gpu="0"),
        alert("collectives", "job", job="another"),
        alert("self", "service"),
        alert("self", "host", host="node3"),
        alert("loss", "port", host="node3", device="mlx5_0", port="1", incident="some"),
    ],
)
def test_a_slow_link_explains_nobody_else(other: Alert) -> None:
    assert explained([other], [LINK]) == [other]


def test_a_late_rank_explains_its_gpu_and_not_its_links() -> None:
    hot = alert("gpus", "gpu", host="node9", gpu="1")
    neighbour = alert("gpus", "gpu", host="node9", gpu="2")
    link = alert("loss", "port", host="node9", device="mlx5_0", port="1")
    marks = [each.inhibited_by for each in explained([hot, neighbour, link], [RANK])]
    assert marks == [RANK.id, "", ""]


def test_what_began_long_before_is_no_symptom() -> None:
    then = alert("loss", "port", host="node3", device="mlx5_0", port="1")
    before, about_then = (
        msgspec.structs.replace(then, active_ns=NOW - (ONSET_SECONDS + more) * NS)
        for more in (1, -1)
    )
    marks = [each.inhibited_by for each in explained([before, about_then], [LINK])]
    assert marks == ["", LINK.id]


def test_a_storm_explains_pauses_anywhere_and_losses_only_where_it_is() -> None:
    storm = incident_of(
        Verdict(
            cause=Cause.PAUSE_STORM,
            culprit=Culprit(host="node3", device="mlx5_0", port="1"),
            since_ns=NOW,
            confidence=0.9,
        )
    )
    far = {"host": "spine7", "device": "spine7", "port": "swp1"}
    marks = [
        each.inhibited_by
        for each in explained(
            [alert("pause", "port", **far), alert("loss", "port", **far)], [storm]
        )
    ]
    assert marks == [storm.id, ""]


def test_the_mark_goes_with_the_incident() -> None:
    symptom = alert("collectives", "job", job="train")
    (marked,) = explained([symptom], [LINK])
    closed = msgspec.structs.replace(LINK, state="closed")
    assert explained([marked], [closed]) == [symptom]
    assert explained([marked], []) == [symptom]


def test_the_surest_of_several_is_named() -> None:
    surer = incident_of(slow_link(NOW, confidence=0.95))
    surer = msgspec.structs.replace(surer, id="z")
    symptom = alert("collectives", "job", job="train")
    for order in ([LINK, surer], [surer, LINK]):
        assert explained([symptom], order)[0].inhibited_by == "z"


def test_other_names_of_the_same_trouble_are_covered_too() -> None:
    named = Symptom(Cause.LOSSY_LINK, Culprit(host="node5", device="mlx5_2", port="1"))
    merged = msgspec.structs.replace(LINK, symptoms=(named,))
    thing = alert("errors", "port", host="node5", device="mlx5_2", port="1")
    assert explained([thing], [merged])[0].inhibited_by == LINK.id


def test_what_is_covered_is_bounded_and_the_accused_stay() -> None:
    victims = tuple(Culprit(host=f"n{k}", device="mlx5_0", port="1") for k in range(1_000))
    verdict = msgspec.structs.replace(LINK.verdict, victims=victims)
    many = covered_by(msgspec.structs.replace(LINK, verdict=verdict))
    assert len(many) == COVERED_MAX
    accused = {"host": "node3", "device": "mlx5_0", "port": "1", "scope": "port", "theme": "loss"}
    assert any(thing.has(accused) for thing in many)


def test_everything_covered_becomes_a_series_with_labels_of_the_catalog() -> None:
    samples = FoundSeries().samples(NOW, (), [LINK])
    victims = [dict(one.series.labels) for one in samples if "victim" in one.series.metric]
    assert {"incident": LINK.id, "scope": "job", "job": "train"} in victims
    port = {"incident": LINK.id, "scope": "port", "host": "node3", "device": "mlx5_0", "port": "1"}
    assert port in victims
    assert len(victims) == len(covered_by(LINK))


def test_an_alert_about_an_incident_says_what_the_incident_says() -> None:
    about = alert("incidents", "incident", incident=LINK.id)
    said = told(about, {LINK.id: LINK}, "http://fabric.example/").annotations
    assert said["verdict"] == "node3's NIC is slow"
    assert said["action"] == "look at it"
    assert "1.40 s instead of 1.00 s" in said["cost"]
    assert said["evidence_url"] == (f"http://fabric.example/#/incident/{LINK.id}?show=evidence")
    assert said["summary"] == "something"
    assert told(about, {}, "http://fabric.example") == about


@pytest.mark.parametrize(
    ("given", "link"),
    [
        ("https://wiki.example/incident", "https://wiki.example/bit-errors"),
        ("https://wiki.example/packet-loss", "https://wiki.example/bit-errors"),
        ("https://wiki.example/ours", "https://wiki.example/ours"),
    ],
)
def test_an_alert_about_an_incident_leads_to_the_runbook_of_its_reason(
    given: str, link: str
) -> None:
    lossy = msgspec.structs.replace(slow_link(NOW), cause=Cause.LOSSY_LINK, reason=Reason.CABLE)
    found = incident_of(lossy)
    about = alert("incidents", "incident", incident=found.id)
    about = msgspec.structs.replace(about, annotations={"runbook_url": given})
    assert told(about, {found.id: found}, "").annotations["runbook_url"] == link


def test_alerts_of_incidents_that_became_each_other_say_so() -> None:
    doubted = msgspec.structs.replace(slow_link(NOW), confidence=0.5)
    surer = msgspec.structs.replace(straggler(NOW), confidence=0.95, jobs=doubted.jobs)
    first = advance((), [doubted], NOW).incidents
    old, new = advance(first, [surer], NOW + NS).incidents
    by_id = {each.id: each for each in (old, new)}
    said = [
        told(alert("incidents", "incident", incident=each.id), by_id, "").annotations
        for each in (old, new)
    ]
    assert said[0]["became"].endswith(f"incident {new.id}")
    assert said[1]["taken_for"].endswith(f"incident {old.id}")
    assert "taken_for" not in said[0]
    assert "became" not in said[1]
