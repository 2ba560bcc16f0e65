"""A simulated shift on call: the cluster, the service with its rules, and a pager.

Everything between a counter and the pager is the service's own: evaluator, the rules of the pack
that page, incidents that explain alerts, and the planning of notices. The pager only records
what it is sent.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import tempfile
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import msgspec

from alerts.judge.incident import Incident
from alerts.rulebook.file import parse_rules, write_duration
from alerts.rulebook.knobs import fill_pack
from alerts.rulebook.model import ALERT_NAME, INCIDENT_LABEL, Alert, AlertState, Group
from alerts.rulebook.notices import (
    CRITICAL,
    SEVERITY_LABEL,
    Matcher,
    Notice,
    Operator,
    Route,
    Scene,
    Standing,
    Status,
    Talk,
    plan,
)
from api.base.metrics import ServiceMetrics
from api.data.ingest.own import OwnSamples
from api.http.settings import ServiceSettings
from api.oncall.evaluate.series import FoundSeries
from api.oncall.rules.explain import explain_by_incidents
from api.oncall.rules.leads import GroupLeads
from api.oncall.rules.parts import make_rules
from api.oncall.rules.task import Hooks
from api.promql.engine import Engine
from api.promql.values import Dialect
from collector.contract.catalog import load_catalog
from collector.contract.errors import FabricscopeError
from collector.contract.identity import Labels
from collector.contract.units import NS
from simulator.engine import Simulation
from simulator.readings.batches import Reporter
from simulator.score.day import Shift, make_shift
from simulator.score.evaluate import Incidents
from simulator.score.pages import Page, Watch
from simulator.score.simulated_service import SimulatedService

CLUSTER_NAME = "simulated"
FOLDER_PREFIX = "fabricscope-day-"
PAGER = Route(
    receiver="pager", matchers=(Matcher(SEVERITY_LABEL, Operator.IS, CRITICAL),), group_wait_s=10.0
)


class Pager:
    """Records the notices that the on-call person gets, and all other firing alerts."""

    def __init__(self, started_ns: int) -> None:
        self.pages: list[Page] = []
        self.fired: dict[Labels, Alert] = {}
        self.inhibited: set[Labels] = set()
        self._standing: dict[str, tuple[Standing, ...]] = {}
        self._evaluated: dict[str, int] = {}
        self._talks: dict[str, Talk] = {}
        self._started_ns = started_ns

    async def hear(self, group: Group, alerts: Sequence[Alert], now_ns: int) -> None:
        self._evaluated[group.key] = now_ns
        self._standing[group.key] = tuple(
            Standing(labels=each.labels, alert=each, source=group.key) for each in alerts
        )
        firing = [each for each in alerts if each.state is AlertState.FIRING]
        self.fired.update((each.labels, each) for each in firing)
        self.inhibited.update(each.labels for each in firing if each.inhibited_by)

    def look(self, now_ns: int, incidents: Sequence[Incident]) -> None:
        scene = Scene(
            alerts=tuple(one for each in self._standing.values() for one in each),
            evaluated=self._evaluated,
            since_ns=self._started_ns,
        )
        planned = plan([PAGER], scene, self._talks, now_ns, fits=no_patterns)
        self._talks = planned.talks
        by_id = {each.id: each for each in incidents}
        self.pages += [
            page_of(notice, by_id) for notice in planned.notices if notice.status is Status.FIRING
        ]


def no_patterns(pattern: str, text: str) -> bool:
    """The pager's only route has no pattern."""
    raise AssertionError(f"{pattern!r} is held against {text!r}")


def page_of(notice: Notice, incidents: dict[str, Incident]) -> Page:
    """A page, with its incident's verdict at that time."""
    firing = [line for line in notice.lines if line.ends_ns is None]
    named = dict(firing[0].labels if firing else notice.group_labels)
    number = named.get(INCIDENT_LABEL, "")
    incident = incidents.get(number)
    return Page(
        sent_ns=notice.planned_ns,
        why=str(notice.why),
        alerts=tuple(sorted({dict(line.labels).get(ALERT_NAME, "") for line in firing})),
        incident=number,
        verdict=incident.verdict if incident is not None else None,
        summary=firing[0].annotations.get("summary", "") if firing else "",
    )


def write_paging_rules(folder: Path) -> Path:
    """A folder with the rules that can page and those they read: all of them would take hours."""
    groups = [group for name, text in fill_pack().items() for group in parse_rules(text, name)]
    recorded = {
        rule.name: rule.expression for group in groups for rule in group.rules if not rule.is_alert
    }
    wanted = {
        rule.name
        for group in groups
        for rule in group.rules
        if rule.is_alert and rule.labels.get(SEVERITY_LABEL) == CRITICAL
    }
    asked = [rule.expression for group in groups for rule in group.rules if rule.name in wanted]
    while asked:
        text = asked.pop()
        read = {name for name in recorded if name in text} - wanted
        wanted |= read
        asked += [recorded[name] for name in read]
    kept = [paging_group(group, wanted) for group in groups]
    rules = folder / "rules"
    rules.mkdir()
    # JSON is YAML.
    text = msgspec.json.encode({"groups": [each for each in kept if each["rules"]]}).decode()
    (rules / "paging.yaml").write_text(text, "utf-8")
    return rules


def paging_group(group: Group, wanted: set[str]) -> dict[str, object]:
    """A group as a rule file has it, with some of its rules."""
    rules = []
    for rule in group.rules:
        if rule.name not in wanted:
            continue
        fields: dict[str, object] = {"expr": rule.expression, "labels": dict(rule.labels)}
        if rule.is_alert:
            fields |= {
                "alert": rule.name,
                "for": write_duration(rule.for_s),
                "keep_firing_for": write_duration(rule.keep_firing_for_s),
                "annotations": dict(rule.annotations),
            }
        else:
            fields["record"] = rule.name
        rules.append(fields)
    interval = {} if group.interval_s is None else {"interval": write_duration(group.interval_s)}
    return {"name": group.name, **interval, "rules": rules}


class Desk:
    """The service's evaluator, those of its rules that page, and its notices."""

    def __init__(self, service: SimulatedService, folder: Path, started_ns: int) -> None:
        self._evaluator = Incidents(service)
        self._series = FoundSeries()
        self._own = OwnSamples(service.commit)
        self.pager = Pager(started_ns)
        settings = ServiceSettings(rules_pack=False, rules_dir=str(write_paging_rules(folder)))
        engine = Engine(service.store, Dialect.PROMETHEUS_3, load_catalog())
        self._rules = make_rules(
            settings.rules,
            engine,
            service.inventory,
            GroupLeads([self._evaluator.lead]),
            service.commit,
            ServiceMetrics(),
            service.clock,
            Hooks(
                explain=explain_by_incidents(service.inventory, settings.public_url),
                notify=self.pager.hear,
            ),
        )

    async def look(self, now_ns: int) -> None:
        """One round of everything that the service does every few seconds."""
        outcome = self._evaluator.look(now_ns)
        if outcome is not None:
            samples = self._series.samples(now_ns, outcome.findings, outcome.incidents)
            await self._own.write(samples)
        await self._rules.task.once()
        if outcome is not None:
            self.pager.look(now_ns, outcome.incidents)


def watch(shift: Shift) -> Watch:
    """Play a shift to its end, in a process of its own. A bug ends it with its trace."""
    # Ctrl-C reaches every process of a terminal; the parent process ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    simulation = Simulation(make_shift(shift))
    truths = simulation.truths()
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as folder:
        try:
            pager = asyncio.run(play(simulation, Path(folder)))
        except FabricscopeError as error:
            return Watch(shift=shift, seconds=0.0, truths=truths, pages=[], error=str(error))
    names: dict[str, int] = {}
    for alert in pager.fired.values():
        names[alert.name] = names.get(alert.name, 0) + 1
    return Watch(
        shift=shift,
        seconds=simulation.scenario.seconds,
        truths=truths,
        pages=pager.pages,
        inhibited=len(pager.inhibited),
        names=names,
    )


async def play(simulation: Simulation, folder: Path) -> Pager:
    scenario = simulation.scenario
    service = SimulatedService(folder, scenario.start_unix_ns / NS)
    desk = Desk(service, folder, scenario.start_unix_ns)
    reporter = Reporter(
        simulation.topology,
        cluster=CLUSTER_NAME,
        start_unix_ns=scenario.start_unix_ns,
        seed=scenario.seed,
    )
    async with service.running():
        for snapshot in simulation.run():
            now_ns = scenario.start_unix_ns + round(snapshot.time_s * NS)
            await service.work(now_ns / NS, list(reporter.batches(snapshot)))
            await desk.look(now_ns)
    return desk.pager


def watch_all(shifts: Sequence[Shift], processes: int) -> Generator[Watch]:
    """All shifts, as they end; each in a process of its own (the store allows one folder)."""
    with ProcessPoolExecutor(
        processes, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        for done in as_completed([pool.submit(watch, shift) for shift in shifts]):
            yield done.result()
