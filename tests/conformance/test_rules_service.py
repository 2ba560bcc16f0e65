"""Rules in the service: the life of alerts, restarts, two processes, files that change or break."""

import asyncio
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from alerts.rulebook.life import RESOLVED_RETENTION_S
from alerts.rulebook.model import INHIBITED_BY, Alert, AlertState, Found, Group
from api.base import edited
from api.base.metrics import ServiceMetrics
from api.data.ingest.commit import GroupCommit
from api.data.ingest.own import OwnSamples
from api.data.inventory.repository import Inventory
from api.http.settings import ServiceSettings
from api.oncall.evaluate.lead import LEASE_SECONDS, Lead
from api.oncall.rules.answer import RuleBook, Wanted
from api.oncall.rules.evaluate import Asker, Moment, RuleEvaluator
from api.oncall.rules.leads import GroupLeads
from api.oncall.rules.shelf import FileState, Shelf
from api.oncall.rules.task import Hooks, RuleTask
from api.promql.engine import Engine
from collector.contract.errors import InventoryError, StoreError
from collector.contract.model import Sample
from collector.contract.units import NS

START_S = 1_794_700_000.5
"""Groups are evaluated on whole seconds, which depend on the path of their file: never just now."""
INTERVAL_S = 30

ALERT = """
groups:
- name: links
  rules:
  - alert: LinkDown
    expr: link_up == 0
    for: 90s
    labels: {severity: critical}
    annotations: {summary: "{{ $labels.host }} is down"}
"""
RECORD = """
groups:
- name: sums
  rules:
  - {record: "host:links:sum", expr: sum by (host) (link_up)}
  - {alert: FewLinks, expr: "host:links:sum < 2"}
"""
DOWN = [Found({"__name__": "link_up", "host": "node1"}, 0.0)]


class Answers(Asker):
    """An engine that gives the test's answers."""

    def __init__(self, journal: list[str]) -> None:
        super().__init__(cast("Engine", None))
        self.rows: dict[str, list[Found] | Exception] = {}
        self._journal = journal

    def prepare(self, group: Group, at: Moment) -> Moment:
        del group
        return at

    def ask(self, text: str, at: Moment) -> list[Found]:
        del at
        self._journal.append(f"ask {text}")
        rows = self.rows.get(text, [])
        if isinstance(rows, Exception):
            raise rows
        return rows


class Writes(OwnSamples):
    """A store that remembers what is written."""

    def __init__(self, journal: list[str]) -> None:
        super().__init__(cast("GroupCommit", None))
        self.samples: list[Sample] = []
        self.error: Exception | None = None
        self._journal = journal

    async def write(self, samples: Sequence[Sample], *, at_once: bool = False) -> None:
        del at_once
        if self.error is not None:
            raise self.error
        self._journal.append(f"write {len(samples)}")
        self.samples += samples


class Process:
    """The rules of one service process, on a clock of the test's."""

    def __init__(self, inventory: Inventory, rules: Path, name: str = "first") -> None:
        self.now_s = START_S
        self.journal: list[str] = []
        self.told: list[tuple[Group, list[Alert]]] = []
        self.explanation: dict[str, str] = {}
        self.metrics = ServiceMetrics()
        self.lead = Lead(inventory, self.clock, holder=name)
        settings = ServiceSettings(rules_pack=False, rules_dir=str(rules))
        self.shelf = Shelf(settings.rules, self.metrics, self.clock)
        self.answers = Answers(self.journal)
        self.writes = Writes(self.journal)
        self.task = RuleTask(
            self.shelf,
            self.answers,
            RuleEvaluator(self.answers, {}, ""),
            inventory,
            GroupLeads([self.lead]),
            self.writes,
            self.metrics,
            self.clock,
            interval_s=INTERVAL_S,
            hooks=Hooks(explain=self.explain, notify=self.notify),
        )
        self.book = RuleBook(self.shelf, inventory, INTERVAL_S)

    def clock(self) -> float:
        return self.now_s

    def explain(self, alerts: Sequence[Alert]) -> Sequence[Alert]:
        if "fail" in self.explanation:
            raise InventoryError("away")
        return [
            msgspec.structs.replace(one, annotations={**one.annotations, **self.explanation})
            for one in alerts
        ]

    async def notify(self, group: Group, alerts: Sequence[Alert], now_ns: int) -> None:
        assert now_ns <= self.now_s * NS
        self.told.append((group, list(alerts)))

    def at(self, second: float, *, holds: bool = True) -> int:
        """What is due so many seconds after the start; how many groups that were."""
        self.now_s = START_S + second
        if holds:
            assert self.lead.renew()
        return asyncio.run(self.task.once())

    def states(self) -> list[tuple[str, str]]:
        """Name and state of every alert that stands."""
        found = self.book.alerts()
        return [(each["labels"]["alertname"], each["state"]) for each in found]

    def told_last(self) -> list[AlertState]:
        return [alert.state for alert in self.told[-1][1]]

    def written(self, metric: str) -> list[tuple[float, str]]:
        """Seconds since the start (rounded down to the interval), and value or `stale`."""
        return [
            (
                (each.time_ns / NS - START_S) // INTERVAL_S,
                "stale" if math.isnan(each.value) else f"{each.value:g}",
            )
            for each in self.writes.samples
            if each.series.metric == metric
        ]

    def number(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@pytest.fixture
def local_inventory(tmp_path: Path) -> Iterator[Inventory]:
    """An inventory for tests that are not about databases."""
    inventory = Inventory(f"sqlite:///{tmp_path}/local_inventory.db")
    inventory.migrate()
    yield inventory
    inventory.close()


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose files are written whole at once."""
    monkeypatch.setattr(edited, "SETTLED_SECONDS", 0.0)
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "a.yaml").write_text(ALERT)
    return folder


def test_an_alert_waits_fires_and_is_resolved(inventory: Inventory, rules: Path) -> None:
    process = Process(inventory, rules)
    process.answers.rows["link_up == 0"] = DOWN
    assert process.at(0) == 0  # a group begins at its next moment
    seen = []
    for second in (30, 60, 90, 120):
        assert process.at(second) == 1
        seen += process.states()
    assert seen == [("LinkDown", "pending")] * 3 + [("LinkDown", "firing")]
    (alert,) = process.book.alerts()
    assert alert["labels"] == {"alertname": "LinkDown", "host": "node1", "severity": "critical"}
    assert alert["annotations"] == {"summary": "node1 is down"}
    process.answers.rows.clear()
    process.at(150)
    assert process.states() == []
    assert process.told_last() == [AlertState.INACTIVE]
    process.at(150 + RESOLVED_RETENTION_S + INTERVAL_S)
    assert process.told_last() == []
    states = [
        (dict(one.series.labels)["alertstate"], "stale" if math.isnan(one.value) else "1")
        for one in process.writes.samples
        if one.series.metric == "ALERTS"
    ]
    assert states == [
        *[("pending", "1")] * 3,
        ("firing", "1"),
        ("pending", "stale"),
        ("firing", "stale"),
    ]


def test_a_restart_in_the_middle_of_the_wait_does_not_begin_it_anew(
    inventory: Inventory, rules: Path
) -> None:
    process = Process(inventory, rules)
    process.answers.rows["link_up == 0"] = DOWN
    for second in (0, 30, 60):
        process.at(second)
    (before,) = process.book.alerts()
    again = Process(inventory, rules)
    again.answers.rows["link_up == 0"] = DOWN
    again.at(75)
    again.at(105)
    again.at(135)
    (after,) = again.book.alerts()
    assert after["activeAt"] == before["activeAt"]
    assert after["state"] == "firing"


def test_a_long_outage_begins_a_wait_anew(local_inventory: Inventory, rules: Path) -> None:
    (rules / "a.yaml").write_text(ALERT.replace("90s", "20m"))
    process = Process(local_inventory, rules)
    process.answers.rows["link_up == 0"] = DOWN
    for second in (0, 30, 60):
        process.at(second)
    (before,) = process.book.alerts()
    again = Process(local_inventory, rules)
    again.answers.rows["link_up == 0"] = DOWN
    again.at(7_200)
    again.at(7_230)
    (after,) = again.book.alerts()
    assert after["activeAt"] > before["activeAt"]


def test_a_restart_leaves_what_fires_firing_and_its_end_is_told(
    local_inventory: Inventory, rules: Path
) -> None:
    (rules / "a.yaml").write_text(ALERT.replace("90s", "0s"))
    process = Process(local_inventory, rules)
    process.answers.rows["link_up == 0"] = DOWN
    process.at(0)
    process.at(30)
    fired = process.told[-1][1][0]
    assert fired.state is AlertState.FIRING
    again = Process(local_inventory, rules)
    again.answers.rows["link_up == 0"] = DOWN
    again.at(600)
    again.at(630)
    (alert,) = again.told[-1][1]
    assert (alert.active_ns, alert.fired_ns) == (fired.active_ns, fired.fired_ns)
    last = Process(local_inventory, rules)
    last.at(1_200)
    last.at(1_230)
    assert last.told_last() == [AlertState.INACTIVE]
    # The series that the dead process wrote ends as well.
    assert [value for _, value in last.written("ALERTS")] == ["stale"]


def test_who_has_lost_the_lease_keeps_nothing_and_tells_nobody(
    inventory: Inventory, rules: Path
) -> None:
    (rules / "a.yaml").write_text(ALERT.replace("90s", "0s"))
    first, second = Process(inventory, rules, "first"), Process(inventory, rules, "second")
    first.at(0)
    first.answers.rows["link_up == 0"] = DOWN
    second.now_s = START_S + LEASE_SECONDS + 1
    assert second.lead.renew()
    # The first one has not noticed: by its own clock the lease still runs.
    first.now_s = START_S + LEASE_SECONDS - 1
    group = first.shelf.groups[0]
    asyncio.run(first.task.evaluate(group, round(first.now_s * NS)))
    assert first.told == []
    assert first.writes.samples == []
    assert first.book.alerts() == []
    assert first.number("fabric_service_rule_groups_total", outcome="lost") == 1
    assert first.at(45, holds=False) == 0
    second.answers.rows["link_up == 0"] = DOWN
    second.at(30)
    second.at(60)
    assert second.states() == [("LinkDown", "firing")]


def test_an_expression_that_fails_leaves_its_alerts_and_they_are_told_again(
    local_inventory: Inventory, rules: Path
) -> None:
    (rules / "a.yaml").write_text(ALERT.replace("90s", "0s"))
    process = Process(local_inventory, rules)
    process.answers.rows["link_up == 0"] = DOWN
    process.at(0)
    process.at(30)
    process.answers.rows["link_up == 0"] = StoreError("the store is away")
    process.at(60)
    assert process.states() == [("LinkDown", "firing")]
    assert process.told_last() == [AlertState.FIRING]
    (rule,) = process.book.rules(Wanted())["groups"][0]["rules"]
    assert (rule["health"], rule["lastError"]) == ("err", "the store is away")
    assert process.number("fabric_service_rule_failures_total") == 1
    assert process.written("ALERTS") == [(0, "1")]
    process.answers.rows["link_up == 0"] = DOWN
    process.at(90)
    (rule,) = process.book.rules(Wanted())["groups"][0]["rules"]
    assert rule["health"] == "ok"
    assert "lastError" not in rule


def test_a_bug_that_one_rule_meets_silences_no_other(
    local_inventory: Inventory, rules: Path
) -> None:
    (rules / "a.yaml").write_text(RECORD)
    process = Process(local_inventory, rules)
    process.answers.rows["sum by (host) (link_up)"] = ZeroDivisionError("a bug")
    process.answers.rows["host:links:sum < 2"] = DOWN
    process.at(0)
    process.at(30)
    assert process.states() == [("FewLinks", "firing")]
    healths = [one["health"] for one in process.book.rules(Wanted())["groups"][0]["rules"]]
    assert healths == ["err", "ok"]


def test_a_store_that_takes_nothing_holds_up_no_page(
    local_inventory: Inventory, rules: Path
) -> None:
    (rules / "a.yaml").write_text(ALERT.replace("90s", "0s"))
    process = Process(local_inventory, rules)
    process.answers.rows["link_up == 0"] = DOWN
    process.at(0)
    process.writes.error = StoreError("full")
    process.at(30)
    assert process.told_last() == [AlertState.FIRING]
    assert process.number("fabric_service_rule_groups_total", outcome="store_away") == 1
    process.writes.error = None
    process.answers.rows.clear()
    process.at(60)
    # The process cannot know whether the first sample was written: it ends the series anyway.
    assert process.written("ALERTS") == [(1, "stale")]


def test_an_inventory_that_is_away_is_asked_again(
    local_inventory: Inventory, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(local_inventory, rules)
    process.answers.rows["link_up == 0"] = DOWN
    process.at(0)
    process.at(30)

    def away(*_: object, **__: object) -> bool:
        raise InventoryError("away")

    with monkeypatch.context() as broken:
        broken.setattr(local_inventory.alerts, "keep", away)
        process.at(60)
    told = len(process.told)
    assert told == 1
    process.at(90)
    process.at(120)
    assert process.states() == [("LinkDown", "firing")]


def test_rules_of_a_group_see_what_those_before_have_recorded(
    local_inventory: Inventory, rules: Path
) -> None:
    (rules / "a.yaml").write_text(RECORD)
    process = Process(local_inventory, rules)
    process.answers.rows["sum by (host) (link_up)"] = [Found({"host": "node1"}, 1.0)]
    process.at(0)
    process.at(30)
    assert process.journal == [
        "ask sum by (host) (link_up)",
        "write 1",
        "ask host:links:sum < 2",
        "write 0",
    ]
    process.answers.rows.clear()
    process.at(60)
    assert process.written("host:links:sum") == [(0, "1"), (1, "stale")]


def test_a_changed_file_keeps_the_alerts_of_rules_that_stay_and_ends_the_others(
    local_inventory: Inventory, rules: Path
) -> None:
    second_rule = "  - {alert: Other, expr: other == 0}\n"
    (rules / "a.yaml").write_text(ALERT + second_rule)
    process = Process(local_inventory, rules)
    process.answers.rows |= {"link_up == 0": DOWN, "other == 0": DOWN}
    for second in (0, 30):
        process.at(second)
    (before, _) = process.book.alerts()
    (rules / "a.yaml").write_text(
        ALERT.replace("rules:\n", "rules:\n  - {alert: New, expr: new}\n")
    )
    process.at(60)
    (after,) = process.book.alerts()
    assert after["activeAt"] == before["activeAt"]
    assert sorted(process.told_last()) == [AlertState.INACTIVE, AlertState.PENDING]
    assert process.number("fabric_service_rule_reloads_total", outcome="done") == 2


def test_a_file_that_is_removed_ends_its_alerts_and_series_and_is_forgotten(
    local_inventory: Inventory, rules: Path
) -> None:
    (rules / "a.yaml").write_text(RECORD)
    process = Process(local_inventory, rules)
    process.answers.rows |= {
        "sum by (host) (link_up)": [Found({"host": "node1"}, 1.0)],
        "host:links:sum < 2": [Found({"host": "node1"}, 1.0)],
    }
    process.at(0)
    process.at(30)
    (rules / "a.yaml").unlink()
    process.at(60)
    assert process.told_last() == [AlertState.INACTIVE]
    assert process.written("host:links:sum") == [(0, "1"), (1, "stale")]
    assert process.book.rules(Wanted())["groups"] == []
    process.at(60 + RESOLVED_RETENTION_S + 2 * INTERVAL_S)
    assert local_inventory.alerts.standing() == ([], [])


def test_a_file_that_was_removed_while_nobody_was_there_ends_its_alerts(
    local_inventory: Inventory, rules: Path
) -> None:
    (rules / "a.yaml").write_text(ALERT.replace("90s", "0s"))
    process = Process(local_inventory, rules)
    process.answers.rows["link_up == 0"] = DOWN
    process.at(0)
    process.at(30)
    (rules / "a.yaml").unlink()
    again = Process(local_inventory, rules)
    again.at(60)
    again.at(90)
    assert again.told_last() == [AlertState.INACTIVE]


def test_a_bad_file_is_named_and_what_it_said_before_goes_on(
    local_inventory: Inventory, rules: Path
) -> None:
    process = Process(local_inventory, rules)
    process.answers.rows["link_up == 0"] = DOWN
    process.at(0)
    process.at(30)
    (rules / "a.yaml").write_text(ALERT.replace("link_up == 0", "link_up =="))
    (rules / "b.yml").write_text(RECORD)
    process.at(60)
    bad, good = process.shelf.files
    assert (bad.state, good.state) == (FileState.KEPT, FileState.LOADED)
    assert "line 5" in bad.error
    assert "LinkDown" in bad.error
    assert process.states() == [("LinkDown", "pending")]
    assert process.number("fabric_service_rule_files", state="kept") == 1
    assert process.number("fabric_service_rule_reloads_total", outcome="failed") == 1
    (rules / "a.yaml").write_text(ALERT)
    process.at(90)
    assert [each.state for each in process.shelf.files] == [FileState.LOADED] * 2


def test_a_file_that_is_bad_after_a_restart_ends_nothing(
    local_inventory: Inventory, rules: Path
) -> None:
    (rules / "a.yaml").write_text(ALERT.replace("90s", "0s"))
    process = Process(local_inventory, rules)
    process.answers.rows["link_up == 0"] = DOWN
    process.at(0)
    process.at(30)
    (rules / "a.yaml").write_text("groups: [")
    again = Process(local_inventory, rules)
    again.at(60)
    again.at(90)
    assert again.states() == [("LinkDown", "firing")]
    assert again.told_last() == [AlertState.FIRING]


def test_a_folder_that_is_away_ends_nothing(local_inventory: Inventory, rules: Path) -> None:
    process = Process(local_inventory, rules)
    process.answers.rows["link_up == 0"] = DOWN
    process.at(0)
    process.at(30)
    rules.rename(rules.with_name("elsewhere"))
    process.at(60)
    assert process.states() == [("LinkDown", "pending")]
    assert len(process.shelf.groups) == 1
    again = Process(local_inventory, rules)
    again.at(90)
    again.at(120)
    assert again.states() == [("LinkDown", "pending")]


def test_moments_that_were_missed_are_left_out_and_counted(
    local_inventory: Inventory, rules: Path
) -> None:
    process = Process(local_inventory, rules)
    process.answers.rows["link_up == 0"] = DOWN
    process.at(0)
    process.at(30)
    assert process.at(30) == 0
    assert len(process.told) == 1
    process.at(150)
    assert len(process.told) == 2
    assert process.number("fabric_service_rule_groups_missed_total") == 3
    # They count towards `for` nevertheless: it holds since the first moment, as far as was seen.
    assert process.states() == [("LinkDown", "firing")]


def test_a_clock_that_goes_back_stops_nothing(local_inventory: Inventory, rules: Path) -> None:
    process = Process(local_inventory, rules)
    process.at(7_200)
    process.at(0)
    assert process.at(30) == 1


def test_too_many_alerts_of_one_rule_are_an_error_and_what_stood_stands(
    local_inventory: Inventory, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.oncall.rules.evaluate.ALERTS_PER_RULE_MAX", 2)
    process = Process(local_inventory, rules)
    process.answers.rows["link_up == 0"] = DOWN
    process.at(0)
    process.at(30)
    many = [Found({"host": f"node{number}"}, 0.0) for number in range(3)]
    process.answers.rows["link_up == 0"] = many
    process.at(60)
    assert process.states() == [("LinkDown", "pending")]
    (rule,) = process.book.rules(Wanted())["groups"][0]["rules"]
    assert "ALERTS_PER_RULE_MAX is 2" in rule["lastError"]


def test_too_many_alerts_in_all_are_an_error_of_the_rule_that_makes_them(
    local_inventory: Inventory, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.oncall.rules.task.ALERTS_MAX", 2)
    (rules / "b.yaml").write_text(RECORD)
    process = Process(local_inventory, rules)
    two = [Found({"host": f"node{number}"}, 0.0) for number in range(2)]
    process.answers.rows |= {"link_up == 0": two, "host:links:sum < 2": two}
    process.at(0)
    process.at(30)
    assert len(process.states()) == 2
    assert process.number("fabric_service_rule_failures_total") == 1


def test_past_the_limit_of_a_group_a_rule_forgets_its_alerts_as_prometheus_does(
    local_inventory: Inventory, rules: Path
) -> None:
    (rules / "a.yaml").write_text(ALERT.replace("- name: links", "- name: links\n  limit: 1"))
    process = Process(local_inventory, rules)
    process.answers.rows["link_up == 0"] = DOWN
    process.at(0)
    process.at(30)
    process.answers.rows["link_up == 0"] = [*DOWN, Found({"host": "node2"}, 0.0)]
    process.at(60)
    assert process.states() == []
    (rule,) = process.book.rules(Wanted())["groups"][0]["rules"]
    assert rule["lastError"] == "exceeded limit of 1 with 2 alerts"


def test_what_has_not_changed_is_not_written_again(
    local_inventory: Inventory, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[int, int]] = []
    keep = local_inventory.alerts.keep

    def watched(group: Any, changed: Any, gone: Any, **more: Any) -> bool:  # noqa: ANN401
        written.append((len(changed), len(gone)))
        return keep(group, changed, gone, **more)

    monkeypatch.setattr(local_inventory.alerts, "keep", watched)
    process = Process(local_inventory, rules)
    process.answers.rows["link_up == 0"] = DOWN
    for second in (0, 30, 60, 90, 120, 150):
        process.at(second)
    assert written == [(1, 0), (0, 0), (0, 0), (1, 0), (0, 0)]
    again = Process(local_inventory, rules)
    again.answers.rows["link_up == 0"] = DOWN
    again.at(180)
    again.at(210)
    assert written[-1] == (0, 0)


def test_no_number_is_a_value_that_survives_a_restart(
    local_inventory: Inventory, rules: Path
) -> None:
    process = Process(local_inventory, rules)
    process.answers.rows["link_up == 0"] = [
        Found({"host": name}, float(name)) for name in ("nan", "inf", "-0.0")
    ]
    process.at(0)
    process.at(30)
    again = Process(local_inventory, rules)
    values = {each["labels"]["host"]: each["value"] for each in again.book.alerts()}
    assert values == {"nan": "NaN", "inf": "+Inf", "-0.0": "-0e+00"}


def test_explanations_are_kept_and_told_and_their_failure_ends_nothing(
    local_inventory: Inventory, rules: Path
) -> None:
    process = Process(local_inventory, rules)
    process.answers.rows["link_up == 0"] = DOWN
    process.explanation = {INHIBITED_BY: "incident-1"}
    process.at(0)
    process.at(30)
    assert process.told[-1][1][0].inhibited_by == "incident-1"
    assert process.book.alerts()[0]["annotations"][INHIBITED_BY] == "incident-1"
    process.explanation = {"fail": ""}
    process.at(60)
    assert process.told[-1][1][0].inhibited_by == ""
    assert process.states() == [("LinkDown", "pending")]


def test_annotations_that_are_too_long_are_told_but_not_kept(
    local_inventory: Inventory, rules: Path
) -> None:
    process = Process(local_inventory, rules)
    process.answers.rows["link_up == 0"] = DOWN
    process.explanation = {"story": "x" * 20_000}
    process.at(0)
    process.at(30)
    assert "story" in process.told[-1][1][0].annotations
    assert process.book.alerts()[0]["annotations"] == {}
    assert process.number("fabric_service_alert_annotations_left_out_total") == 1


def test_labels_that_no_series_may_have_are_counted(
    local_inventory: Inventory, rules: Path
) -> None:
    process = Process(local_inventory, rules)
    process.answers.rows["link_up == 0"] = [Found({"host": "x" * 3_000}, 0.0)]
    process.at(0)
    process.at(30)
    assert process.states() == [("LinkDown", "pending")]
    assert process.number("fabric_service_rule_samples_left_out_total") == 2
    process.answers.rows["link_up == 0"] = [Found({"host": "x" * 9_000}, 0.0)]
    process.at(60)
    assert process.number("fabric_service_rule_failures_total") == 1


def test_alerts_by_state_are_counted_by_who_leads(local_inventory: Inventory, rules: Path) -> None:
    process = Process(local_inventory, rules)
    process.answers.rows["link_up == 0"] = DOWN
    process.at(0)
    process.at(30)
    assert process.number("fabric_service_alerts", state="pending") == 1
    process.now_s += LEASE_SECONDS
    process.at(30 + LEASE_SECONDS, holds=False)
    assert process.number("fabric_service_alerts", state="pending") == 0
