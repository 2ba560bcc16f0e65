"""Facts of hosts for tests of the audit: those of a good host, and changes to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from collector.audit.facts import Fact, Facts
from collector.doors.host import Host
from collector.reading.configuration.reader import ConfigurationReader
from tests.fixtures.trees import tree_of

CASES = Path(__file__).resolve().parents[1] / "fixtures/sources/configuration"

Changes = Mapping[tuple[str, str], str]
"""Values by device and setting; an empty one takes the fact away."""


@cache
def facts_of(case: str) -> tuple[Fact, ...]:
    """The facts of a case's tree, in a fixed order."""
    host = Host(tree_of(CASES / case))
    try:
        facts = ConfigurationReader().read(host)
    finally:
        host.close()
    assert facts is not None
    return tuple(sorted(facts.all()))


def change(facts: Iterable[Fact], changes: Changes) -> tuple[Fact, ...]:
    """Facts with some of them changed, added or taken away; the others stay the same objects."""
    kept = [fact for fact in facts if (fact.device, fact.setting) not in changes]
    new = [Fact(*key, value, "a test") for key, value in changes.items() if value]
    return tuple(sorted((*kept, *new)))


def good_host(changes: Changes | None = None) -> Facts:
    """The good host, with changes."""
    return Facts("node-0", change(facts_of("good_h100"), changes or {}))
