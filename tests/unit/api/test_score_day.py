"""A day on call: what happens in it, which rules can page, and how its pages are marked."""

import asyncio
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from alerts.rulebook.file import parse_rules
from alerts.rulebook.model import Alert, AlertState, Group
from collector.contract.errors import SettingsError
from collector.contract.identity import canonical_labels
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Reason, Verdict
from simulator.engine import Simulation
from simulator.scenario import Truth
from simulator.score.day import FAULT_SECONDS, QUIET_SECONDS, Shift, fabric_links, make_shift
from simulator.score.oncall import Pager, play, write_paging_rules
from simulator.score.pages import Page, Watch, day_markdown, mark_day

START_NS = 1_800_000_000 * NS
DAY = [Shift(seed=3, number=number, shifts=4, hours=24, faults=20) for number in range(4)]


@pytest.mark.parametrize("shift", DAY, ids=lambda shift: f"shift {shift.number}")
def test_a_shift_has_its_share_of_faults_with_quiet_between_them(shift: Shift) -> None:
    scenario = make_shift(shift)
    faults = [one for one in scenario.injections if one.fault.causes]
    assert len(faults) == 5
    assert any(not one.fault.causes for one in scenario.injections), "nothing only looks like one"
    assert faults[0].start_s >= QUIET_SECONDS
    for before, after in pairwise(faults):
        assert after.start_s - before.end_s >= QUIET_SECONDS
    for one in faults:
        assert FAULT_SECONDS[0] <= one.end_s - one.start_s <= FAULT_SECONDS[1]
        assert one.end_s < scenario.seconds
    assert make_shift(shift).injections[0].place == scenario.injections[0].place


@pytest.mark.parametrize("seed", range(3))
def test_no_cable_between_switches_carries_bytes_of_both_jobs(seed: int) -> None:
    for number in range(4):
        scenario = make_shift(msgspec.structs.replace(DAY[number], seed=seed))
        one, other = (fabric_links(replace(scenario, jobs=(job,))) for job in scenario.jobs)
        assert not one & other
        assert len({host for job in scenario.jobs for host in job.hosts}) == 7


def test_a_day_has_many_kinds_of_faults_and_a_healthy_one_has_none() -> None:
    kinds = {
        one.fault.name for shift in DAY for one in make_shift(shift).injections if one.fault.causes
    }
    assert len(kinds) >= 15
    healthy = make_shift(Shift(seed=3, number=0, shifts=4, hours=24, faults=0))
    assert healthy.injections
    assert not any(one.fault.causes for one in healthy.injections)


def test_more_faults_than_fit_are_refused_with_what_to_do() -> None:
    with pytest.raises(SettingsError, match="ask for fewer or for more hours"):
        make_shift(Shift(seed=1, number=0, shifts=1, hours=1, faults=9))


def test_the_rules_that_page_are_the_critical_ones_and_what_they_read(tmp_path: Path) -> None:
    (path,) = write_paging_rules(tmp_path).glob("*.yaml")
    groups = parse_rules(path.read_text("utf-8"), path.name)
    rules = [rule for group in groups for rule in group.rules]
    alerts = [rule for rule in rules if rule.is_alert]
    assert {rule.labels["severity"] for rule in alerts} == {"critical"}
    assert {"FabricIncident", "FabricJobStopped"} <= {rule.name for rule in alerts}
    texts = " ".join(rule.expression for rule in rules)
    for rule in rules:
        assert rule.is_alert or rule.name in texts
    assert next(group for group in groups if group.name == "fabric-incidents").interval_s == 5


def incident_alert(severity: str = "critical", **names: str) -> Alert:
    """An alert about an incident."""
    labels = {"alertname": "FabricIncident", "severity": severity, "incident": "i", **names}
    return Alert(
        labels=canonical_labels(labels),
        annotations={"summary": "a NIC is slow"},
        value=0.9,
        state=AlertState.FIRING,
        active_ns=START_NS,
        fired_ns=START_NS,
    )


def test_an_incident_pages_once_and_a_warning_never() -> None:
    pager = Pager(START_NS)
    group = Group(file="a", name="b", rules=())
    alerts = [incident_alert(host="node1"), incident_alert("warning", host="node2")]
    for second in range(0, 600, 10):
        now_ns = START_NS + second * NS
        asyncio.run(pager.hear(group, alerts, now_ns))
        pager.look(now_ns, ())
    (page,) = pager.pages
    assert (page.incident, page.alerts, page.summary) == ("i", ("FabricIncident",), "a NIC is slow")
    assert len(pager.fired) == 2


TRUTH = Truth(
    fault="slow_nic",
    title="",
    causes=(Cause.SLOW_LINK,),
    reason=Reason.NIC,
    culprits=(Culprit(host="node1"),),
    strength=1.0,
    start_ns=START_NS,
    end_ns=START_NS + 100 * NS,
)


def page(second: int, host: str) -> Page:
    """A page that names a host."""
    verdict = Verdict(cause=Cause.SLOW_LINK, culprit=Culprit(host=host), since_ns=START_NS)
    return Page(
        sent_ns=START_NS + second * NS, why="first", alerts=("FabricIncident",), verdict=verdict
    )


def test_a_fault_is_covered_by_a_page_in_its_time_that_names_the_culprit() -> None:
    pages = [page(20, "node9"), page(30, "node1"), page(900, "node1")]
    watch = Watch(shift=DAY[0], seconds=3_600.0, truths=[TRUTH], pages=pages)
    marks = mark_day([watch])
    (covered,) = marks.faults
    assert (covered.pages, covered.delay_s) == (2, 30.0)
    assert marks.pages == 3
    assert marks.stray == [pages[2]]
    assert "1 faults: 3 pages, 1 faults covered" in day_markdown(marks)
    wrong = mark_day([Watch(shift=DAY[0], seconds=1.0, truths=[TRUTH], pages=pages[:1])])
    assert [each.truth for each in wrong.uncovered] == [TRUTH]


def test_a_minute_of_a_shift_is_played_and_pages_nobody(tmp_path: Path) -> None:
    scenario = replace(make_shift(DAY[0]), seconds=60.0, injections=())
    pager = asyncio.run(play(Simulation(scenario), tmp_path))
    assert pager.pages == []
    assert not pager.fired
