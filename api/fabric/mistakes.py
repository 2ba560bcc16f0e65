"""Finds all cabling mistakes, by a plan or a clear majority; uncertain cases are not reported."""

from __future__ import annotations

from api.fabric.host_cables import check_hosts
from api.fabric.mistake import Mistake, MistakeKind
from api.fabric.model import Topology
from api.fabric.plan import Plan, expect
from api.fabric.planned_cables import Comparison
from api.fabric.seen_cables import check_seen
from api.fabric.switch_cables import check_switches

_ORDER = {kind: place for place, kind in enumerate(MistakeKind)}


def find_mistakes(topology: Topology, plan: Plan | None = None) -> list[Mistake]:
    """The topology must have its tiers; by kind, then by falling confidence."""
    plan = plan if plan is not None else Plan()
    found: list[Mistake] = []
    if plan.links is not None:
        found.extend(Comparison(topology, plan.links).check())
    else:
        expectation = expect(topology, plan)
        found.extend(check_hosts(topology, expectation, plan))
        found.extend(check_switches(topology, expectation, plan))
    found.extend(check_seen(topology, plan))
    return sorted(found, key=lambda mistake: (_ORDER[mistake.kind], -mistake.confidence))
