"""Wiring of the evaluator: the same parts in the service and on the scoreboard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from alerts.finding import Finding
from alerts.judge.verdict import judge
from alerts.window.columns import Records
from alerts.window.model import JobWindow, Window
from api.base.clocks import TrustedClock
from api.base.metrics import ServiceMetrics
from api.data.ingest.own import OwnSamples
from api.data.inventory.repository import Inventory
from api.data.store.store import Store
from api.fabric.cache import TopologyCache
from api.jobs.correlate.read import Question, read_members
from api.jobs.correlate.windows import WindowReader
from api.jobs.tenants import with_tenants
from api.oncall.evaluate.asking import Asking
from api.oncall.evaluate.book import IncidentBook
from api.oncall.evaluate.changes import Changes
from api.oncall.evaluate.detect import GuardedDetectors
from api.oncall.evaluate.lead import Lead
from api.oncall.evaluate.members import Members
from api.oncall.evaluate.resting import Looks, Member, ReadAgain, Resting
from api.oncall.evaluate.rounds import Effort, Rounds
from api.oncall.evaluate.scout import Scout, Watched
from api.oncall.evaluate.task import EvaluateTask
from collector.contract.verdict import Verdict


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that other modules hold: the leases, the task, the book and its news."""

    members: Members
    task: EvaluateTask
    book: IncidentBook
    changes: Changes


def make_rounds(
    store: Store,
    inventory: Inventory,
    topologies: TopologyCache,
    lead: Lead,
    metrics: ServiceMetrics,
    *,
    see: Callable[[Window], Window] | None = None,
    asking: Asking | None = None,
    looks: Looks = lambda _: {},
) -> Rounds:
    """``see`` may take something away from a window, to learn what is found without it."""
    reader = WindowReader(store, inventory, topologies.at)
    effort = Effort()

    def read(from_ns: int, to_ns: int, at_rest: Mapping[str, JobWindow]) -> Window:
        window = reader.read(from_ns, to_ns, at_rest, records_max=effort.records_max)
        return window if see is None else see(window)

    def read_again(window: Window, at_rest: Mapping[str, JobWindow]) -> Window:
        return reader.again(window, at_rest, records_max=effort.records_max)

    def judge_with_tenants(window: Window, findings: Sequence[Finding]) -> list[Verdict]:
        return [with_tenants(store, one, window.to_ns) for one in judge(window, findings)]

    panel = GuardedDetectors(metrics, judge_by=judge_with_tenants)
    # Of a window that something was taken away from, the rest does not suffice for another look.
    resting = make_resting(store, looks, read_again if see is None else None)
    return Rounds(read, inventory, lead, panel, metrics, effort, asking, resting)


def make_resting(
    store: Store, looks: Looks = lambda _: {}, read_again: ReadAgain | None = None
) -> Resting:
    def hear(source: str, members: Sequence[Member], from_ns: int, to_ns: int) -> Records:
        names = sorted({name for name, _ in members})
        return read_members(store, Question(names, from_ns, to_ns, [source]), members)

    return Resting(hear, looks, read_again)


def make_scout(
    store: Store,
    inventory: Inventory,
    topologies: TopologyCache,
    members: Members,
    metrics: ServiceMetrics,
    clock: Callable[[], float],
) -> Scout:
    reader = WindowReader(store, inventory, topologies.at)

    def read(
        from_ns: int, to_ns: int, at_rest: Mapping[str, JobWindow], is_own: Callable[[str], bool]
    ) -> Window:
        return reader.read(from_ns, to_ns, at_rest, is_wanted=is_own)

    panel = GuardedDetectors(metrics)
    return Scout(read, make_resting(store), panel, inventory, members, clock)


def make_evaluation(  # noqa: PLR0913 - the parts that it consists of
    store: Store,
    inventory: Inventory,
    topologies: TopologyCache,
    own: OwnSamples,
    metrics: ServiceMetrics,
    clock: Callable[[], float],
    *,
    is_alone: bool,
    trusted: TrustedClock | None = None,
    asking: Asking | None = None,
) -> Evaluation:
    pulse = metrics.vitals.inventory
    members = Members(inventory, clock, is_alone=is_alone, pulse=pulse, trusted=trusted)
    lead = members.judge
    metrics.watch("fabric_service_evaluators", lambda: float(len(members.settled)))
    metrics.watch("fabric_service_inventory_up", lambda: float(not pulse.failing_s))
    looks = Watched(inventory, members).looks
    rounds = make_rounds(store, inventory, topologies, lead, metrics, asking=asking, looks=looks)
    scout = make_scout(store, inventory, topologies, members, metrics, clock)
    return Evaluation(
        members=members,
        task=EvaluateTask(rounds, lead, store, own, metrics, clock, scout),
        book=IncidentBook(inventory, store),
        changes=Changes(inventory, metrics),
    )
