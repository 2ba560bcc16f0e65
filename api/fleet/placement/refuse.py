"""The hosts that a request may get, and why the others are refused. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from alerts.health.model import HealthState
from api.fabric.names import offer
from api.fabric.spread import Bools, Longs
from api.fleet.health.answers import HostEntry
from api.fleet.placement.floor import NOWHERE, Floor
from api.fleet.placement.model import Ask, CannotPlace, Refusal, Refused, Rule

NAMES_SHOWN_MAX = 5


@dataclass(frozen=True, eq=False)
class Fleet:
    """What is known of hosts beside their cables."""

    entries: Mapping[str, HostEntry]
    gpus: Mapping[str, int]
    is_busy: Bools
    """[host of the floor] some job runs there."""


def usable_hosts(floor: Floor, fleet: Fleet, ask: Ask) -> tuple[Longs, list[Refused]]:
    """Numbers of hosts that may be placed, ascending, and the refused; raises CannotPlace."""
    names = sorted(set(fleet.entries if ask.candidates is None else ask.candidates))
    check_names(floor, fleet, names, ask)
    check_constraints(floor, names, ask)
    doorman = Doorman(floor, fleet, ask)
    usable: list[int] = []
    refused: list[Refused] = []
    for name in names:
        against = next(doorman.refusals(name), None)
        if against is None:
            usable.append(floor.number[name])
        else:
            refused.append(Refused(host=name, kind=against[0], reason=against[1]))
    if names and all(each.kind is Refusal.AVOIDED for each in refused) and not usable:
        raise CannotPlace(Rule.ALL_AVOIDED, f"avoid names all {len(names)} candidates")
    return np.array(sorted(usable), dtype=np.int64), refused


def check_names(floor: Floor, fleet: Fleet, names: list[str], ask: Ask) -> None:
    switches = floor.graph.switch_number
    unknown = [name for name in names if name not in fleet.entries]
    where = "candidates"
    if not unknown:
        known = (fleet.entries, floor.number, switches)
        unknown = [name for name in ask.avoid if not any(name in each for each in known)]
        where = "avoid"
    if unknown:
        near = offer(unknown[0], fleet.entries)
        raise CannotPlace(
            Rule.UNKNOWN_HOSTS, f"{where}: no sample of {some_of(unknown)} has ever come{near}"
        )
    if ask.size > len(names):
        raise CannotPlace(
            Rule.SIZE_OVER_CANDIDATES,
            f"size is {ask.size}, and there are {len(names)} candidates: name more, or ask for"
            " fewer",
        )


def check_constraints(floor: Floor, names: list[str], ask: Ask) -> None:
    wanted = [name for name in ("same_leaf", "rail_aligned") if getattr(ask, name)]
    if wanted and not floor.is_known:
        raise CannotPlace(
            Rule.NO_TOPOLOGY,
            f"{' and '.join(wanted)}: no cable is known, so this cannot be checked; ask without,"
            " or see that switches are polled (GET /v1/topology)",
        )
    if ask.rail_aligned and not floor.has_rails:
        raise CannotPlace(
            Rule.NO_RAILS, "rail_aligned: the leaves of this fabric are not of rails; ask without"
        )
    if ask.same_leaf:
        groups = [floor.group[floor.number[name]] for name in names if name in floor.number]
        counts = Counter(int(group) for group in groups if group != NOWHERE)
        most = max(counts.values(), default=0)
        if most < ask.size:
            raise CannotPlace(
                Rule.LEAF_TOO_SMALL,
                f"same_leaf with size {ask.size}: at most {most} candidates hang on one leaf; ask"
                " for fewer, or without same_leaf",
            )


def some_of(names: list[str]) -> str:
    shown = ", ".join(repr(name[:80]) for name in names[:NAMES_SHOWN_MAX])
    more = len(names) - NAMES_SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


class Doorman:
    """Lists the reasons against a host."""

    def __init__(self, floor: Floor, fleet: Fleet, ask: Ask) -> None:
        self._floor, self._fleet, self._ask = floor, fleet, ask
        self._avoided = set(ask.avoid)
        numbers = floor.graph.switch_number
        self._switches = [numbers[name] for name in sorted(self._avoided) if name in numbers]
        # As lists: to read one place of an array takes longer than all the rest.
        self._group: list[int] = floor.group.tolist()
        self._is_live: list[bool] = (floor.nic_link != NOWHERE).any(axis=1).tolist()
        self._is_aligned: list[bool] = floor.is_aligned.tolist()
        self._is_busy: list[bool] = fleet.is_busy.tolist()

    def refusals(self, name: str) -> Iterator[tuple[Refusal, str]]:
        ask, entry, host = self._ask, self._fleet.entries[name], self._floor.number.get(name)
        if name in self._avoided:
            yield Refusal.AVOIDED, "the question avoids it"
        if entry.state is not HealthState.HEALTHY and entry.state not in ask.allow:
            yield Refusal(entry.state.value), "; ".join(entry.reasons) or f"it is {entry.state}"
        gpus = self._fleet.gpus.get(name)
        if ask.gpus_per_host is not None and gpus is not None and gpus < ask.gpus_per_host:
            yield Refusal.GPUS, f"it has {gpus} GPUs, and {ask.gpus_per_host} are wanted"
        if host is None:
            yield Refusal.UNPLACED, "it is new, and its cables are not known yet; ask again soon"
        else:
            yield from self._by_place(host)

    def _by_place(self, host: int) -> Iterator[tuple[Refusal, str]]:
        ask, group = self._ask, self._group[host]
        for switch in self._switches:
            if group != NOWHERE and switch in self._floor.groups[group]:
                leaf = self._floor.graph.switches[switch]
                yield Refusal.AVOIDED, f"it hangs on {leaf}, which the question avoids"
        if ask.candidates is None and self._is_busy[host]:
            yield Refusal.BUSY, "a job runs there; name it among the candidates if it is free"
        if self._floor.is_known and not self._is_live[host]:
            yield (
                Refusal.UNPLACED,
                ("no cable of it is known" if group == NOWHERE else "none of its links is up"),
            )
        if ask.rail_aligned and not self._is_aligned[host]:
            yield Refusal.RAILS, "not every NIC of it is up and on a leaf of its own rail"
