"""Wiring of the service's rules."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from api.base.metrics import ServiceMetrics
from api.data.ingest.commit import GroupCommit
from api.data.ingest.own import OwnSamples
from api.data.inventory.repository import Inventory
from api.oncall.rules.answer import RuleBook
from api.oncall.rules.evaluate import Asker, RuleEvaluator
from api.oncall.rules.leads import GroupLeads
from api.oncall.rules.own import OwnNumbers
from api.oncall.rules.settings import RuleSettings
from api.oncall.rules.shelf import Shelf
from api.oncall.rules.task import NO_HOOKS, Hooks, RuleTask
from api.promql.engine import Engine


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that other modules hold: the task, the answers, and the service's own metrics."""

    shelf: Shelf
    task: RuleTask
    book: RuleBook
    own: OwnNumbers


def make_rules(
    settings: RuleSettings,
    engine: Engine,
    inventory: Inventory,
    leads: GroupLeads,
    commit: GroupCommit,
    metrics: ServiceMetrics,
    clock: Callable[[], float],
    hooks: Hooks = NO_HOOKS,
) -> Rules:
    """The engine is shared with clients' queries, the threads are not. Reads rule files at once."""
    shelf = Shelf(settings, metrics, clock)
    shelf.look()
    asker = Asker(engine)
    evaluator = RuleEvaluator(asker, settings.external_labels, settings.public_url)
    interval_s = settings.interval_s
    task = RuleTask(
        shelf,
        asker,
        evaluator,
        inventory,
        leads,
        OwnSamples(commit),
        metrics,
        clock,
        interval_s=interval_s,
        hooks=hooks,
    )
    return Rules(
        shelf=shelf,
        task=task,
        book=RuleBook(shelf, inventory, interval_s),
        own=OwnNumbers(metrics, OwnSamples(commit), clock, settings.port),
    )
