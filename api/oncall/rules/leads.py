"""Which rule groups this process evaluates: those whose lease it has."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from api.oncall.evaluate.lead import Lead

Turn = tuple[str, int]
"""A task, and the how-manyth time it is that this process has it: what it knew from before a time
in which another had it is out of date."""


def turn_of(lead: Lead) -> Turn:
    return lead.task, lead.turns


class GroupLeads:
    """The leases of rule groups: each group belongs to one of them, by a hash of its key."""

    def __init__(self, leads: Sequence[Lead]) -> None:
        self._leads = leads

    def of(self, key: str) -> Lead:
        return self._leads[zlib.crc32(key.encode()) % len(self._leads)]

    def held(self) -> frozenset[Turn]:
        """Those that this process has."""
        return frozenset(turn_of(lead) for lead in self._leads if lead.is_held())

    def is_of(self, key: str, turns: frozenset[Turn]) -> bool:
        """Whether a group belongs to one of these."""
        return turn_of(self.of(key)) in turns

    @property
    def are_all_held(self) -> bool:
        return all(lead.is_held() for lead in self._leads)
