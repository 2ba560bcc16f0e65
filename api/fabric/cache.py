"""The topology for requests: built once for a few seconds, with what is derived from it."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from api.base.edited import Stamp, is_being_written, stamp_of
from api.fabric.file import TopologyDocument, naming, read_file, topology_of
from api.fabric.graph import Graph, compile_graph
from api.fabric.mistake import Mistake
from api.fabric.mistakes import find_mistakes
from api.fabric.model import Topology
from api.fabric.plan import Plan, plan_of
from api.fabric.read import ROAD, read_topology
from api.fabric.shown import tag_of, write_json
from api.fabric.spread import Spread, edge_paths
from api.fabric.tiers import with_tiers
from collector.contract.errors import SettingsError
from collector.contract.identity import PortId

if TYPE_CHECKING:  # it brings SQLAlchemy, which `diagnose` does not need
    from api.data.inventory.repository import Inventory

CACHE_SECONDS: Final = 5.0
"""How old an answer may be at least: cables move more slowly."""
CACHE_SECONDS_MAX: Final = 300.0
"""And at most: half of the time for which the state of a port is believed."""
BUILDS: Final = 40
"""It is kept for so many times the CPU time that it took: verdicts ask for it in every round, and
to build it may take a fortieth of a core. That is 20 s for 64 hosts."""

PRESENT_SECONDS: Final = 15.0
"""A window that ended so shortly ago sees the cables as they are now: moving one takes longer."""

MOMENTS_CACHED_MAX: Final = 4
"""Least recently used go; up to 300 MB each: the present, and past ones for comparison."""

JSON_KEPT_BYTES_MAX: Final = 16 << 20
"""A topology that is no longer as JSON is written once for all who ask, as long as it is kept:
1,000 hosts. A longer one is written piece by piece for each of them."""

PLANS_CACHED_MAX: Final = 8


class BuiltTopology:
    """A topology with its tiers, and values derived from it at first use."""

    def __init__(self, topology: Topology) -> None:
        self.topology = with_tiers(topology)
        self._lock = threading.Lock()
        self._mistakes: list[tuple[Plan, list[Mistake]]] = []
        self._json: list[bytes] | None = None

    @cached_property
    def graph(self) -> Graph:
        return compile_graph(self.topology)

    def json(self) -> Iterable[bytes]:
        """All of it, as `write_json` writes it."""
        with self._lock:
            if self._json is not None:
                return self._json
            found: list[bytes] = []
            size = 0
            whole = write_json(self.topology)
            for piece in whole:
                found.append(piece)
                size += len(piece)
                if size > JSON_KEPT_BYTES_MAX:
                    return chain(found, whole)
            self._json = [b"".join(found)]
            return self._json

    @cached_property
    def tag(self) -> str:
        return tag_of(self.topology)

    @cached_property
    def cables(self) -> int:
        """Changes with links, rates and interfaces of ports; not with their state, nor by time."""
        whole, links = self.topology, self.topology.links.values()
        ports = ((one.id, one.netdev, one.rate_bits_per_second) for one in whole.ports.values())
        tiers = ((one.name, one.tier) for one in whole.nodes.values())
        ends = ((one.id, one.rate_bits_per_second) for one in links)
        return hash((*ports, *tiers, *ends))

    def spread(self, pairs: Sequence[tuple[PortId, PortId]]) -> Spread:
        """The links that many pairs of ports use, and how much each carries."""
        return edge_paths(self.graph, pairs)

    def mistakes(self, plan: Plan) -> list[Mistake]:
        with self._lock:
            for known, found in self._mistakes:
                if known == plan:
                    return found
            found = find_mistakes(self.topology, plan)
            self._mistakes = [(plan, found), *self._mistakes[: PLANS_CACHED_MAX - 1]]
            return found


class WrittenFile:
    """A file that operators edit while the service runs: read again when it has changed."""

    def __init__(self, path: str) -> None:
        self.path = Path(path) if path else None
        self._known: tuple[Stamp | None, TopologyDocument] | None = None

    def read(self) -> TopologyDocument | None:
        if self.path is None:
            return None
        with naming(self.path):
            stamp = stamp_of(self.path)
            known = self._known
            if known is None or (known[0] != stamp and not is_being_written(stamp)):
                self._known = known = (stamp, read_file(self.path))
            return known[1]


class Kept(NamedTuple):
    """A topology, when it was begun and for how long it is good."""

    started: float
    seconds: float
    built: BuiltTopology


def kept_seconds(cpu_seconds: float) -> float:
    """For how long a topology is kept that took so much CPU time.

    >>> kept_seconds(0.01), kept_seconds(0.5), kept_seconds(60.0)
    (5.0, 20.0, 300.0)
    """
    return min(max(CACHE_SECONDS, BUILDS * cpu_seconds), CACHE_SECONDS_MAX)


class TopologyCache:
    """Thread-safe; one request builds, the others wait: dashboards open together build once."""

    def __init__(
        self, inventory: Inventory, clock: Callable[[], float], *, file: str = "", plan: str = ""
    ) -> None:
        self._inventory = inventory
        self._clock = clock
        self._file = WrittenFile(file)
        self._plan = WrittenFile(plan)
        self._sound: TopologyDocument | None = None
        """The last content of the file that made a topology."""
        self._lock = threading.Lock()
        self._built: OrderedDict[dt.datetime | None, Kept] = OrderedDict()

    def at(self, moment: dt.datetime | None) -> BuiltTopology:
        """The topology at a moment, or now; not much older than CACHE_SECONDS, by what it costs."""
        with self._lock:
            kept = self._built.get(moment)
            if kept is not None and 0 <= self._clock() - kept.started < kept.seconds:
                self._built.move_to_end(moment)
                return kept.built
            started, cpu = self._clock(), time.thread_time()
            built = BuiltTopology(self._read(moment))
            self._built[moment] = Kept(started, kept_seconds(time.thread_time() - cpu), built)
            self._built.move_to_end(moment)
            while len(self._built) > MOMENTS_CACHED_MAX:
                self._built.popitem(last=False)
            return built

    def seen_at(self, moment: dt.datetime | None) -> BuiltTopology:
        """The same for a window that ends at the moment: the present one where it just ended.

        That one is built already, and has rates, as the evaluator saw them.
        """
        is_over = moment is not None and self._clock() - moment.timestamp() > PRESENT_SECONDS
        return self.at(moment if is_over else None)

    def _read(self, moment: dt.datetime | None) -> Topology:
        """The topology as the inventory has it, and the file's where there is one."""
        now = dt.datetime.fromtimestamp(self._clock(), tz=dt.UTC)
        extra = self._of_file(moment or now)
        return read_topology(self._inventory.links, moment, extra, now=now)

    def _of_file(self, moment: dt.datetime) -> Topology | None:
        """The file's topology as it was last sound: an editor's slip must not stop evaluation."""
        try:
            document = self._file.read()
            with naming(self._file.path or Path()):
                extra = None if document is None else topology_of(document, moment)
        except SettingsError as error:
            if self._sound is None:
                raise
            self._inventory.quarantine.put(ROAD, "the file is not sound", str(error))
            return topology_of(self._sound, moment)
        self._sound = document
        return extra

    def plan(self) -> Plan:
        """The plan of the settings; without one, the majority of like hosts and switches."""
        document = self._plan.read()
        with naming(self._plan.path or Path()):
            return Plan() if document is None else plan_of(document)
