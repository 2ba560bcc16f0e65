"""The agent's `probes` source: a mesh of probes over each rail, for those who ask for one.

Each host probes its rail's next few hosts, on some flows, over the path that a flow of the fabric
takes; a probe is lost as packets of its path are, on the way there and on the way back. Queues do
not delay it: a round trip is the idle fabric's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.contract.probes import LOST, ROUND_TRIP, SENT, far_end
from simulator.network.losses import link_errors
from simulator.readings.devices import DeviceSection
from simulator.readings.series import Rows, make_row
from simulator.snapshot import Counts, Snapshot
from simulator.topology.model import Bools, Floats, Ints, Topology
from simulator.topology.routing import route

ROUND_SECONDS = 5.0
"""As the agent's."""
HOP_SECONDS = 2e-6
"""A link with the switch behind it."""
ENDS_SECONDS = 10e-6
"""Both hosts' kernels, after their time stamps are taken off."""


@dataclass(frozen=True, kw_only=True)
class ProbeMesh:
    """Who probes whom: hosts in a ring, each the next ones."""

    peers: int = 8
    flows: int = 4


class ProbeSection(DeviceSection):
    """The source on every host; the same number of targets on each."""

    def __init__(self, topology: Topology, mesh: ProbeMesh, seed: int) -> None:
        super().__init__(topology.hosts)
        self._topology, self._mesh = topology, mesh
        self._random = np.random.default_rng([seed, *b"probes"])
        peers = min(mesh.peers, topology.hosts - 1)
        rails = topology.nics_per_host
        host, rail, step = (
            each.ravel().astype(np.int32)
            for each in np.meshgrid(
                np.arange(topology.hosts), np.arange(rails), np.arange(peers), indexing="ij"
            )
        )
        self._host, self._rail = host, rail
        self._target: Ints = (host + 1 + step) % np.int32(topology.hosts)
        self._sent: Counts = np.zeros(len(host), dtype=np.int64)
        self._lost: Counts = np.zeros(len(host), dtype=np.int64)
        self._trip: Floats = np.full(len(host), np.nan)
        self._rounds = 0

    def make_rows(self, host: int) -> Rows:
        own = np.flatnonzero(self._host == host).tolist()
        return tuple(
            make_row(
                metric,
                {
                    "rail": f"rail{self._rail[pair]}",
                    "to": far_end(
                        self._topology.host_name(int(self._target[pair])), f"rail{self._rail[pair]}"
                    ),
                },
            )
            for pair in own
            for metric in (SENT, LOST, ROUND_TRIP)
        )

    def read(self, snapshot: Snapshot, is_read: Bools) -> None:
        rounds = int(snapshot.time_s // ROUND_SECONDS)
        for _ in range(rounds - self._rounds):
            self._round(snapshot, is_read)
        self._rounds = rounds
        self.show([self._sent, self._lost, self._trip])

    def _round(self, snapshot: Snapshot, is_read: Bools) -> None:
        world, nics = snapshot.world, self._topology.nics_per_host
        arrives = np.append(1 - link_errors(world).packet_loss, 1.0)  # the last: no link
        arrives[:-1] *= world.link_up
        source, target = self._host * nics + self._rail, self._target * nics + self._rail
        asks = is_read[self._host]
        lost = np.zeros(len(source), dtype=np.int64)
        for flow in range(self._mesh.flows):
            key = np.arange(len(source), dtype=np.int32) * self._mesh.flows + np.int32(flow)
            there, back = (
                route(world, *ends, key) for ends in ((source, target), (target, source))
            )
            share = arrives[there].prod(axis=1) * arrives[back].prod(axis=1)
            share = share * is_read[self._target]
            lost += self._random.random(len(share)) >= share
            hops = ((there >= 0).sum(axis=1) + (back >= 0).sum(axis=1)) * HOP_SECONDS
            self._trip = np.where(asks, hops + ENDS_SECONDS, self._trip)
        self._trip = np.where(asks & (lost == self._mesh.flows), np.nan, self._trip)
        self._sent += np.where(asks, self._mesh.flows, 0)
        self._lost += np.where(asks, lost, 0)
