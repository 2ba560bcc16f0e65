"""Floors for tests and benches of placement: simulated clusters, with health and running jobs."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np

from alerts.health.model import HealthState
from api.data.inventory.placing import RunningPlace
from api.fabric.graph import compile_graph
from api.fabric.model import Topology
from api.fabric.tiers import with_tiers
from api.fleet.health.answers import HostEntry
from api.fleet.placement.floor import make_floor
from api.fleet.placement.jobs import traffic_of
from api.fleet.placement.model import Ask, Placed
from api.fleet.placement.place import Known, make_pool, place
from api.fleet.placement.refuse import Fleet, usable_hosts
from api.fleet.placement.score import Scale
from api.fleet.placement.ways import Ways

GPUS = 8
LEMON = 0.9


class Stand:
    """A cluster whose hosts are all well and idle, until a test says otherwise."""

    def __init__(
        self,
        topology: Topology,
        jobs: Mapping[str, Sequence[str]] | None = None,
        names: Iterable[str] = (),
    ) -> None:
        floor = make_floor(compile_graph(with_tiers(topology)), names)
        ways = Ways(floor)
        places = [
            RunningPlace(job, job, host, rank)
            for job, hosts in sorted((jobs or {}).items())
            for rank, host in enumerate(hosts)
        ]
        self.known = Known(
            as_of_s=0.0,
            floor=floor,
            ways=ways,
            traffic=traffic_of(floor, ways, places),
            gpus=dict.fromkeys(floor.hosts, GPUS),
            places=len(places),
        )
        self.entries = {name: well(name) for name in floor.hosts}

    def say(
        self,
        host: str,
        state: HealthState = HealthState.HEALTHY,
        risk: float = 0.0,
        lemon: float = 0.0,
        reasons: tuple[str, ...] = (),
    ) -> None:
        """How a host is."""
        self.entries[host] = HostEntry(
            host=host, state=state, risk=risk, lemon=lemon, reasons=reasons
        )

    @property
    def fleet(self) -> Fleet:
        """What is known of the hosts."""
        known = self.known
        return Fleet(entries=self.entries, gpus=known.gpus, is_busy=known.traffic.is_busy)

    def place(self, size: int, **asked: object) -> Placed:
        """The answer to a question."""
        ask = Ask(size=size, **asked)  # type: ignore[arg-type]
        return place(self.known, self.fleet, ask)

    def best_score(self, size: int) -> float:
        """The score of the best of all sets, by trying each."""
        ask = Ask(size=size)
        usable, _ = usable_hosts(self.known.floor, self.fleet, ask)
        scale = Scale(make_pool(self.known, self.fleet, ask, usable), self.known.ways)
        every = combinations(usable.tolist(), size)
        return max(scale.weigh(np.array(hosts, dtype=np.int64)).score for hosts in every)


def well(name: str) -> HostEntry:
    """A host of which nothing bad is known."""
    return HostEntry(host=name, state=HealthState.HEALTHY, risk=0.0, lemon=0.0)
