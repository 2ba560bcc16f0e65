"""Everything that is cabled otherwise than it should be. Pure.

A plan of cables is held against every cable. Without one, like hosts and like switches are held
against each other, and whoever differs from a clear majority is named. What needs no plan (down,
contradictory, unknown, slow) is looked at in any case. What cannot be known is not said.
"""

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
    """What is wrong with a topology, which must have its tiers; kind by kind, the surest first."""
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
