"""The service, wired: the one place where its parts meet."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url

from api.base.clocks import TrustedClock
from api.base.kept import Kept
from api.base.limits import HEATS_WAITING_MAX, HOSTS_KNOWN_MAX, TIMELINES_WAITING_MAX
from api.base.metrics import ServiceMetrics
from api.base.quarantine import Quarantine
from api.base.steady import Steady
from api.base.version import VERSION
from api.data.captures import Captures
from api.data.ingest.door import Names
from api.data.ingest.ingest import Ingest
from api.data.ingest.own import OwnSamples
from api.data.inventory.feed import InventoryFeed
from api.data.inventory.repository import Inventory
from api.data.rollouts.book import RolloutBook
from api.data.store.bounded import BytesBound
from api.data.store.rolling import RollupTask
from api.data.store.store import Store
from api.data.store.watch import StoreWatch
from api.fabric.cache import TopologyCache
from api.fabric.probe_targets import ProbeTargetBook
from api.fleet.actions.parts import make_acting
from api.fleet.audit.fleet_audit import FleetAudit, load_expectations
from api.fleet.health.parts import make_board
from api.fleet.kubernetes.gangs import Gangs
from api.fleet.optics.task import OpticsTask
from api.fleet.placement.floors import Floors
from api.http import page_files
from api.http.context import Context, Queues
from api.http.duties import EVERYTHING, Duties, works_for
from api.http.peer_answers import answer_peers, numbers_of
from api.http.settings import ServiceSettings
from api.http.tenants import Tenants
from api.http.tokens.parts import make_book, make_passes
from api.http.wellbeing import Wellbeing
from api.http.works import (
    Loop,
    Supervisor,
    Work,
    feed_inventory,
    follow_inserts,
    forget_ghosts,
    give_back_memory,
    watch_jobs,
    watch_orders,
    watch_ports,
    watch_wellbeing,
)
from api.jobs.correlate import ahead
from api.jobs.correlate.ahead import Ahead
from api.jobs.correlate.fabric import FabricReader
from api.jobs.correlate.pieces import JobPieces
from api.jobs.correlate.roll import RollTask, make_roll
from api.oncall.cases.keeper import CaseKeeper, Retention
from api.oncall.evaluate.asking import Asking
from api.oncall.evaluate.changes import Changes
from api.oncall.evaluate.detect import GuardedDetectors
from api.oncall.evaluate.members import HEALTH, NOTICES, ROLL, WATCH
from api.oncall.evaluate.parts import Evaluation, make_evaluation
from api.oncall.explain.explainer import Explainer
from api.oncall.notify.task import Notifying
from api.oncall.rules.elsewhere import GroupsElsewhere
from api.oncall.rules.explain import explain_by_incidents, with_dashboards
from api.oncall.rules.leads import GroupLeads
from api.oncall.rules.parts import Rules, make_rules
from api.oncall.rules.task import Hooks
from api.oncall.rules.watch import SelfWatch
from api.promql.engine import Engine
from api.promql.gate import Gate
from api.promql.values import Dialect
from collector.contract.catalog import load_catalog


def wire(
    settings: ServiceSettings,
    store: Store,
    inventory: Inventory,
    clock: Callable[[], float],
    duties: Duties = EVERYTHING,
) -> Context:
    """All parts over this store and inventory; ``duties`` decide which work. SettingsError."""
    metrics = make_metrics(store, clock)
    ingest = make_ingest(settings, store, inventory, metrics, clock, duties)
    ingest.captures = captures = Captures(inventory, clock)
    topologies = make_topologies(settings, inventory, clock)
    evaluation = make_judging(settings, store, inventory, topologies, ingest, metrics, clock)
    members, leads = evaluation.members, evaluation.members.leads
    is_watching = leads[WATCH].is_held
    ingest.rollouts = rollouts = RolloutBook(inventory, metrics, clock, is_watching)
    board = make_board(inventory, evaluation, OwnSamples(ingest.commit), metrics, clock)
    roll = make_roll(store, inventory, ingest.commit, metrics, clock, leads[ROLL].may_insert)
    engine = make_engine(settings, store)
    passes = make_passes(inventory.keys, clock, need=settings.token_need)
    notifying = Notifying(settings.notifier, inventory, leads[NOTICES], metrics, clock, passes)
    hooks = make_hooks(settings, inventory, notifying)
    group_leads = GroupLeads(members.of_rules)
    rules = make_rules(
        settings.rules, engine, inventory, group_leads, ingest.commit, metrics, clock, hooks
    )
    notifying.elsewhere = GroupsElsewhere(inventory, group_leads, rules.shelf)
    own_rules = make_self_watch(settings, rules, notifying, metrics, clock, duties)
    watch = make_store_watch(settings, store, metrics, is_watching, clock)
    ingest.budgets.tenants = tenants = Tenants(settings.tenant_limits, metrics)
    works: dict[str, Work] = {}
    queues, pieces = Queues(), make_pieces(store, metrics)
    context = Context(
        settings=settings,
        clock=clock,
        started_s=clock(),
        metrics=metrics,
        store=store,
        inventory=inventory,
        ingest=ingest,
        captures=captures,
        rollouts=rollouts,
        probe_targets=make_probe_targets(settings, store, topologies, ingest, metrics, clock),
        gate=Gate(engine),
        tenants=tenants,
        topologies=topologies,
        incidents=evaluation.book,
        changes=evaluation.changes,
        rules=rules.book,
        notifying=notifying,
        explainer=Explainer(store, inventory, topologies.seen_at, GuardedDetectors(metrics)),
        cases=make_cases(settings, store, inventory, topologies, metrics),
        health=board,
        acting=make_acting(settings.policy_file, inventory, board, leads[HEALTH], metrics, clock),
        audit=make_audit(settings, store, inventory, topologies),
        floors=Floors(topologies, inventory, clock),
        gangs=Gangs(clock),
        fabric_reader=make_fabric_reader(store, metrics),
        job_pieces=pieces,
        ahead=make_ahead(pieces, inventory, queues, evaluation.changes, metrics, clock),
        tokens=make_book(inventory.tokens, clock, settings.token_file, settings.token_need, passes),
        page=page_files.find_page(page_files.FOLDER),
        queues=queues,
        supervisor=Supervisor(works, metrics),
        wellbeing=Wellbeing(metrics.vitals, store, inventory, ingest.commit, watch, members.judge),
        duties=duties,
    )
    all_works = works_of(context, ingest.feed, evaluation, roll, rules)
    works |= own_works(context, {**all_works, "self watch": own_rules.run})
    return context


def make_metrics(store: Store, clock: Callable[[], float]) -> ServiceMetrics:
    metrics = ServiceMetrics(clock)
    metrics.inform("fabric_service_info", version=VERSION, store=store.url.scheme)
    return metrics


def make_store_watch(
    settings: ServiceSettings,
    store: Store,
    metrics: ServiceMetrics,
    is_watching: Callable[[], bool],
    clock: Callable[[], float],
) -> StoreWatch:
    watch = StoreWatch(store, metrics, sqlite_file(settings.inventory_url))
    watch.bound = BytesBound(store, settings.retention_bytes, metrics, is_watching, clock)
    return watch


def make_engine(settings: ServiceSettings, store: Store) -> Engine:
    aliases = load_catalog() if settings.promql_aliases else None
    return Engine(store, Dialect(settings.promql_dialect), aliases)


def make_topologies(
    settings: ServiceSettings, inventory: Inventory, clock: Callable[[], float]
) -> TopologyCache:
    return TopologyCache(inventory, clock, file=settings.topology_file, plan=settings.topology_plan)


def make_probe_targets(
    settings: ServiceSettings,
    store: Store,
    topologies: TopologyCache,
    ingest: Ingest,
    metrics: ServiceMetrics,
    clock: Callable[[], float],
) -> ProbeTargetBook:
    """Its news go with the receipts of ingest."""
    now = partial(topologies.at, None)
    book = ProbeTargetBook(store, now, metrics, clock, is_on=settings.probe_mesh)
    ingest.probe_targets = book.of
    return book


def own_works(parts: Context, works: dict[str, Work]) -> dict[str, Work]:
    """Those of all works that are this process' duties."""
    names = works_for(parts.duties)
    own = {name: work for name, work in works.items() if name in names}
    if parts.duties.socket is not None:
        own["peers"] = partial(answer_peers, parts, parts.duties.socket)
    return own


def make_self_watch(
    settings: ServiceSettings,
    rules: Rules,
    notifying: Notifying,
    metrics: ServiceMetrics,
    clock: Callable[[], float],
    duties: Duties,
) -> SelfWatch:
    """Judges the service itself, for all of its processes."""
    rules.own.name_process(duties.name)
    watch = SelfWatch(
        rules.shelf, settings.rules, metrics, rules.own.place, notifying.notify_own, clock
    )
    watch.others = partial(numbers_of, duties.peers)
    notifying.owned = watch.owns
    return watch


def make_audit(
    settings: ServiceSettings, store: Store, inventory: Inventory, topologies: TopologyCache
) -> FleetAudit:
    expectations = load_expectations(settings.audit_expectations)
    return FleetAudit(store, inventory, topologies, expectations)


def make_cases(
    settings: ServiceSettings,
    store: Store,
    inventory: Inventory,
    topologies: TopologyCache,
    metrics: ServiceMetrics,
) -> CaseKeeper:
    """Its own detectors: an operator's question must not touch the evaluator's."""
    days = settings.retention_days
    retention = Retention(samples=days.samples, events=days.events, collectives=days.collectives)
    panel = GuardedDetectors(metrics)
    return CaseKeeper(store, inventory, topologies.at, panel, metrics, retention)


def make_judging(
    settings: ServiceSettings,
    store: Store,
    inventory: Inventory,
    topologies: TopologyCache,
    ingest: Ingest,
    metrics: ServiceMetrics,
    clock: Callable[[], float],
) -> Evaluation:
    """The evaluator, which asks back what the settings allow."""
    assert ingest.captures is not None
    return make_evaluation(
        store,
        inventory,
        topologies,
        OwnSamples(ingest.commit),
        metrics,
        clock,
        # The data folder is locked, and of the processes of a service one may lead.
        is_alone=settings.is_store_embedded and settings.inventory_url.startswith("sqlite"),
        trusted=ingest.trusted,
        asking=Asking(ingest.captures, inventory, metrics, settings.kinds_asked),
    )


def make_pieces(store: Store, metrics: ServiceMetrics) -> JobPieces:
    pieces = JobPieces(store)
    watch_kept(metrics, "job", pieces.kept)
    return pieces


def make_ahead(
    pieces: JobPieces,
    inventory: Inventory,
    queues: Queues,
    pages: Changes,
    metrics: ServiceMetrics,
    clock: Callable[[], float],
) -> Ahead:
    """An open page hears news of incidents."""
    # One more than others may be: it is never refused, and they are one earlier at most.
    waiting_max = 1 + max(HEATS_WAITING_MAX, TIMELINES_WAITING_MAX)
    hooks = ahead.Hooks(
        in_turn=lambda step: queues.pieces.take(step, "AHEAD", waiting_max),
        has_pages=lambda: len(pages) > 0,
        is_answering=lambda: queues.is_answering,
        left_out=lambda rule, count: metrics.ahead_left_out.labels(rule).inc(count),
    )
    return Ahead(pieces, inventory, clock, hooks)


def make_fabric_reader(store: Store, metrics: ServiceMetrics) -> FabricReader:
    reader = FabricReader(store)
    watch_kept(metrics, "fabric", reader.kept)
    return reader


def watch_kept(metrics: ServiceMetrics, of: str, kept: Kept[Any]) -> None:
    """Show how much room parts of answers take, and how often they were there."""
    metrics.watch("fabric_service_kept_bytes", lambda: float(kept.bytes_used), of=of)
    kept.note = lambda outcome: metrics.kept_parts.labels(of, outcome).inc()


def make_ingest(
    settings: ServiceSettings,
    store: Store,
    inventory: Inventory,
    metrics: ServiceMetrics,
    clock: Callable[[], float],
    duties: Duties,
) -> Ingest:
    """The door for senders; hosts of the inventory are not new to it."""
    ingest = Ingest(
        store,
        make_feed(store, inventory, metrics, clock),
        metrics,
        clock,
        retention_days=settings.retention_days.samples,
        names=Names(load_catalog(), accepts_alerts=settings.accept_alerts),
    )
    ingest.sums_deltas, ingest.commit.sharers = duties.sums_deltas, duties.takers
    ingest.budgets.factor = settings.sender_budgets
    ingest.budgets.hosts.update(inventory.hosts.names(HOSTS_KNOWN_MAX // 2))
    # A clock of a test's own may do anything.
    ingest.trusted = TrustedClock(clock, time.monotonic) if clock is time.time else None
    return ingest


def make_feed(
    store: Store, inventory: Inventory, metrics: ServiceMetrics, clock: Callable[[], float]
) -> InventoryFeed:
    """The inventory's feed; odd rows of it, of the store and of the inventory meet in one place."""
    quarantine = Quarantine(clock, lambda road: metrics.quarantined.labels(road).inc())
    store.quarantine = inventory.quarantine = quarantine
    return InventoryFeed(
        inventory,
        load_catalog(),
        lambda: dt.datetime.fromtimestamp(clock(), tz=dt.UTC),
        quarantine,
    )


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite inventory; None: it is a server's."""
    parsed = make_url(url)
    is_file = parsed.get_backend_name() == "sqlite" and parsed.database
    return Path(str(parsed.database)) if is_file else None


def works_of(
    parts: Context, feed: InventoryFeed, evaluation: Evaluation, roll: RollTask, rules: Rules
) -> dict[str, Work]:
    """Background work, in the order in which it begins and is stopped."""
    store, inventory, clock = parts.store, parts.inventory, parts.clock
    kept_days = parts.settings.retention_days.steps
    # On several shards they were never made: the statements that make them have run in one engine.
    may_roll_up = parts.settings.rollups and not store.is_sharded
    if not store.is_sharded:
        # Whether they are made now or not: those that are there must learn of late samples.
        store.note_late_samples()
    watches = evaluation.members.leads[WATCH].is_held
    rollups = RollupTask(store, parts.metrics, evaluation.members.leads[ROLL].is_held)
    optics = OpticsTask(
        store,
        parts.gate.engine,
        parts.topologies,
        evaluation.members.leads[HEALTH],
        OwnSamples(parts.ingest.commit),
        parts.metrics,
        clock,
    )
    loops: dict[str, Loop] = {
        "sighting": parts.ingest.sight_remote_series,
        "inventory feed": lambda steady: feed_inventory(feed, parts.metrics, steady),
        "port watch": lambda steady: watch_ports(store, inventory, clock, watches, steady),
        "job watch": lambda steady: watch_jobs(
            store, inventory, clock, watches, steady, kept_days=kept_days
        ),
        "lead": evaluation.members.run,
        "roll": roll.run,
        "evaluator": evaluation.task.run,
        **({"roll-ups": rollups.run} if may_roll_up else {}),
        "news": parts.changes.run,
        "ahead": parts.ahead.run,
        "health": parts.health.run,
        "actions": parts.acting.task.run,
        "optics": optics.run,
        "ghosts": lambda steady: forget_ghosts(
            inventory,
            parts.metrics,
            clock,
            watches,
            steady,
            kept_days=parts.settings.hosts_kept_days,
        ),
        "wellbeing": lambda steady: watch_wellbeing(parts.wellbeing.disks, parts.metrics, steady),
        "memory": give_back_memory,
        **follow_work(store),
        "orders": lambda steady: watch_orders(
            parts.captures, parts.rollouts, parts.probe_targets, steady
        ),
        "tokens": parts.tokens.run,
        "rules": rules.task.run,
        "notifier": parts.notifying.run,
        **({"own numbers": rules.own.run} if parts.settings.own_numbers else {}),
    }
    steadily = {name: partial(loop, Steady(name, parts.metrics)) for name, loop in loops.items()}
    return {"commit": parts.ingest.run, **steadily}


def follow_work(store: Store) -> dict[str, Loop]:
    """Nothing where this process knows all inserts as its own, or none."""
    if not store.known.follows:
        return {}
    return {"inserts": lambda steady: follow_inserts(store, steady)}


def make_hooks(settings: ServiceSettings, inventory: Inventory, notifying: Notifying) -> Hooks:
    explain_alerts = with_dashboards(
        explain_by_incidents(inventory, settings.public_url), settings.grafana_url
    )
    return Hooks(explain=explain_alerts, notify=notifying.notify)
