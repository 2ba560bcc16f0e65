"""One request for placement, from the known state to the answer. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from api.base.limits import PLACEMENT_PLACES_MAX, PLACEMENT_REFUSED_SHOWN_MAX
from api.fabric.spread import Longs
from api.fleet.placement.choose import choose
from api.fleet.placement.floor import NOWHERE, Floor
from api.fleet.placement.jobs import Traffic
from api.fleet.placement.model import Ask, Placed, Refused
from api.fleet.placement.refuse import Fleet, usable_hosts
from api.fleet.placement.score import Pool, Scale, Scored
from api.fleet.placement.ways import Ways
from api.fleet.placement.words import show_set


@dataclass(frozen=True, eq=False)
class Known:
    """The floor with the jobs on it, at one moment."""

    as_of_s: float
    floor: Floor
    ways: Ways
    traffic: Traffic
    gpus: dict[str, int]
    places: int
    """Of running jobs, that were read."""


def place(known: Known, fleet: Fleet, ask: Ask, doubts: tuple[str, ...] = ()) -> Placed:
    """Raises CannotPlace where the request contradicts itself or the fabric.

    ``doubts``: what of health cannot be trusted, in sentences.
    """
    floor = known.floor
    usable, refused = usable_hosts(floor, fleet, ask)
    pool = make_pool(known, fleet, ask, usable)
    chosen: list[Scored] = []
    if len(usable) >= ask.size:
        scale = Scale(pool, known.ways)
        chosen = choose(scale, ask.size, ask.sets, same_leaf=ask.same_leaf)
    found = [each for each in chosen if not each.is_torn]
    return Placed(
        as_of=known.as_of_s,
        sets=[show_set(pool, each) for each in found],
        none_because="" if found else none_because(pool, ask, refused, is_torn=bool(chosen)),
        unknown=[*unknowns(known, pool, ask), *doubts],
        usable=len(usable),
        refused_total=len(refused),
        refused_kinds=dict(sorted(Counter(each.kind.value for each in refused).items())),
        refused=refused[:PLACEMENT_REFUSED_SHOWN_MAX],
    )


def make_pool(known: Known, fleet: Fleet, ask: Ask, usable: Longs) -> Pool:
    floor = known.floor
    risk, lemon = np.zeros(len(floor.hosts)), np.zeros(len(floor.hosts))
    for host in usable.tolist():
        entry = fleet.entries[floor.hosts[host]]
        risk[host], lemon[host] = entry.risk, entry.lemon
    counted = Counter(floor.group[usable].tolist())
    return Pool(
        floor=floor,
        traffic=known.traffic,
        hosts=usable,
        risk=risk,
        lemon=lemon,
        part=nic_part(known, ask, usable),
        usable_in=counted,
    )


def nic_part(known: Known, ask: Ask, usable: Longs) -> float:
    """The part of its NICs that a job uses: as much as of the GPUs of most hosts."""
    gpus = Counter(known.gpus.get(known.floor.hosts[host], 0) for host in usable.tolist())
    gpus.pop(0, None)
    if ask.gpus_per_host is None or not gpus:
        return 1.0
    most = max(gpus, key=lambda count: (gpus[count], count))
    return min(1.0, ask.gpus_per_host / most)


def none_because(pool: Pool, ask: Ask, refused: list[Refused], *, is_torn: bool) -> str:
    """Why there is no set of this size; ``is_torn``: the sets found have hosts without a path."""
    usable = len(pool.hosts)
    if usable < ask.size:
        kinds = Counter(each.kind.value for each in refused)
        shown = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        return f"{usable} of the candidates can be placed, and {ask.size} are wanted: {shown}"
    if is_torn:
        return (
            f"no set of {ask.size} was found whose hosts all reach each other over links that are"
            " up; GET /v1/paths shows why two of them do not"
        )
    most, group = max(
        (count, -number) for number, count in pool.usable_in.items() if number != NOWHERE
    )
    names = pool.floor.leaf_names(-group)
    return (
        f"at most {most} usable hosts hang on one leaf ({names[0]}), and same_leaf wants {ask.size}"
    )


def unknowns(known: Known, pool: Pool, ask: Ask) -> Iterator[str]:
    floor = known.floor
    if not floor.is_known:
        yield "topology: no cable is known; sets are ranked by health, without bandwidth"
    elif not floor.has_rates:
        yield "rates: no link's rate is known; all are taken as equal, and only shares are given"
    elif floor.guessed:
        rate = f"{floor.rate_guessed / 1e9:.4g} Gb/s"
        yield f"rates: {floor.guessed} links have no known rate; taken as {rate}, as most have"
    if floor.is_known and not known.places:
        yield "jobs: none is known to run; whatever runs unseen shares the fabric, too"
    if known.places >= PLACEMENT_PLACES_MAX:
        limit = f"PLACEMENT_PLACES_MAX = {PLACEMENT_PLACES_MAX}"
        yield f"jobs: only {limit} places of running jobs were looked at"
    if ask.gpus_per_host is not None:
        silent = sum(1 for host in pool.hosts.tolist() if floor.hosts[host] not in known.gpus)
        if silent:
            yield f"gpus: {silent} usable hosts do not report how many they have; taken as enough"
