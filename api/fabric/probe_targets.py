"""The lists of probe targets that agents get: for whom there is one, and by which name.

Agents that let the service name targets say where their rails are by a metric, so that every
process finds it in the store, and computes the same lists. Receipts carry a list's name, and the
agent fetches the list when the name is new: the way on which configurations reach agents. An agent
that falls silent leaves the mesh after a while, so that a restart changes no list.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from api.base.host_names import HOST
from api.base.metrics import ServiceMetrics
from api.data.store.store import Store
from api.fabric.cache import BuiltTopology
from api.fabric.model import NodeKind, Topology
from api.fabric.probe_mesh import PEERS_MOST, End, make_mesh
from collector.contract.errors import InventoryError, SettingsError, StoreError
from collector.contract.identity import metric_id
from collector.contract.probes import (
    RAIL,
    TARGETS_MAX,
    ProbeTarget,
    digest_of,
    encode_targets,
)

LOOK_SECONDS: Final = 60.0
"""How often the mesh is looked at anew; an agent takes a new list within two minutes."""
SILENT: Final = dt.timedelta(minutes=15)
"""An agent that has not said where its rails are for so long is not probed any more."""
PROBE_RAILS_MAX: Final = 65_536
"""Rails in the mesh: 8,192 hosts of eight. The lists of as many take four seconds of a core."""
RAIL_CHARS_MAX: Final = 64
SERIES_KEPT_MAX: Final = 4 * PROBE_RAILS_MAX
"""Series whose labels are remembered; past it they are read anew."""

_LATEST = """
    SELECT series, toUnixTimestamp64Milli(max(time)) AS time_ms FROM samples
    WHERE metric = {metric:UInt32} AND time >= {since:DateTime64(3)} GROUP BY series
"""
_NAMES = """
    SELECT series, any(labels) AS pairs FROM series
    WHERE metric_name = {name:String} AND day >= toDate({since:DateTime64(3)}) GROUP BY series
"""

log = logging.getLogger(__name__)


class RailSeen(msgspec.Struct, frozen=True, order=True):
    """A rail as an agent reports it."""

    host: str
    rail: str
    address: str
    interface: str


class ProbeTargetBook:
    """What this process hands out. `look` is for one thread at a time, the rest for any."""

    def __init__(
        self,
        store: Store,
        topology: Callable[[], BuiltTopology],
        metrics: ServiceMetrics,
        clock: Callable[[], float],
        *,
        is_on: bool,
    ) -> None:
        self._store = store
        self._topology = topology
        self._clock = clock
        self._is_on = is_on
        self._labels: dict[int, RailSeen | None] = {}
        self._looked_s = float("-inf")
        """By a clock that is never set."""
        self._is_failing = False
        self._known: tuple[list[End], Mapping[str, int]] | None = None
        self._lists: Mapping[str, list[ProbeTarget]] = {}
        self._digests: Mapping[str, str] = {}
        self._counts = {"known": 0, "unknown": 0}
        self._left_out = 0
        for leaf in self._counts if is_on else ():
            metrics.watch("fabric_service_probe_mesh_rails", partial(self._count, leaf), leaf=leaf)
        if is_on:
            metrics.watch("fabric_service_probe_mesh_left_out", lambda: float(self._left_out))

    # --- receipts and answers ------------------------------------------------------------------

    def of(self, agent: str) -> str | None:
        """The name of an agent's list; None for all that take none."""
        return self._digests.get(agent)

    def targets(self, agent: str) -> list[ProbeTarget] | None:
        return self._lists.get(agent)

    # --- looking -------------------------------------------------------------------------------

    def is_due(self) -> bool:
        return self._is_on and time.monotonic() - self._looked_s >= LOOK_SECONDS

    def look(self) -> None:
        """Read who takes part, and choose anew if that or the cables have changed."""
        self._looked_s = time.monotonic()
        try:
            seen = self._read()
            topology = self._topology().topology if seen else None
        except (StoreError, InventoryError, SettingsError) as error:
            if not self._is_failing:
                log.warning("probe targets stay as they are: %s", error)
            self._is_failing = True
            return
        self._is_failing = False
        leaves, uplinks = ({}, {}) if topology is None else leaves_of(topology)
        ends = sorted(
            End(one.host, one.rail, one.address, leaves.get((one.host, one.interface), ""))
            for one in seen
        )
        if (ends, uplinks) != self._known:
            self._choose(ends, uplinks)
            self._known = ends, uplinks

    def _choose(self, ends: list[End], uplinks: Mapping[str, int]) -> None:
        rails: dict[str, int] = {}
        for end in ends:
            rails[end.host] = rails.get(end.host, 0) + 1
        most = min(PEERS_MOST, TARGETS_MAX // max(rails.values(), default=1))
        lists: dict[str, list[ProbeTarget]] = {host: [] for host in rails}
        for end, peers in make_mesh(ends, uplinks, max(1, most)).items():
            lists[end.host] += [ProbeTarget(one.rail, one.host, one.address) for one in peers]
        self._digests = {
            host: digest_of(encode_targets(own[:TARGETS_MAX])) for host, own in lists.items()
        }
        self._lists = {host: own[:TARGETS_MAX] for host, own in lists.items()}
        known = sum(bool(end.leaf) for end in ends)
        self._counts = {"known": known, "unknown": len(ends) - known}

    def _read(self) -> list[RailSeen]:
        """The rails of agents that take part, each once: as it was reported last."""
        since = dt.datetime.fromtimestamp(self._clock(), tz=dt.UTC) - SILENT
        asked: dict[str, Any] = {"metric": metric_id(RAIL), "since": since}
        rows = self._store.query(_LATEST, asked).to_pylist()
        if any(row["series"] not in self._labels for row in rows):
            if len(self._labels) > SERIES_KEPT_MAX:
                self._labels = {}
            for row in self._store.query(_NAMES, {"name": RAIL, "since": since}).to_pylist():
                self._labels[row["series"]] = rail_seen(dict(row["pairs"]))
        newest: dict[tuple[str, str], RailSeen] = {}
        odd = 0
        for row in sorted(rows, key=lambda row: (row["time_ms"], row["series"])):
            one = self._labels.get(row["series"])
            if one is None:
                odd += 1
            else:
                newest[one.host, one.rail] = one
        found = sorted(newest.values())
        self._left_out = odd + max(0, len(found) - PROBE_RAILS_MAX)
        return found[:PROBE_RAILS_MAX]

    def _count(self, leaf: str) -> float:
        return float(self._counts[leaf])


def rail_seen(labels: Mapping[str, str]) -> RailSeen | None:
    """The rail that a series is of; None if other agents could not use it."""
    host, rail, address = (labels.get(name, "") for name in (HOST, "rail", "address"))
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        return None
    if not host or not 0 < len(rail) <= RAIL_CHARS_MAX or not (host + rail).isprintable():
        return None
    return RailSeen(host, rail, address, labels.get("interface", ""))


def leaves_of(whole: Topology) -> tuple[dict[tuple[str, str], str], dict[str, int]]:
    """The switch at each interface of a host, and how many uplinks each of these has."""
    found: dict[tuple[str, str], str] = {}
    for port in whole.ports.values():
        far = whole.other_end(port.id) if port.netdev else None
        if far is not None and port.netdev and is_switch(whole, far.host):
            found[port.id.host, port.netdev] = far.host
    return found, {leaf: uplinks_of(whole, leaf) for leaf in sorted(set(found.values()))}


def uplinks_of(whole: Topology, leaf: str) -> int:
    """Links to other switches; those that are down for a while count, so that lists stay."""
    ends: Iterable[tuple[str, str]] = (
        (link.id.a.host, link.id.b.host) for link in whole.neighbours.get(leaf, ())
    )
    return sum(is_switch(whole, one) and is_switch(whole, other) for one, other in ends)


def is_switch(whole: Topology, name: str) -> bool:
    node = whole.nodes.get(name)
    return node is not None and node.kind is NodeKind.SWITCH
