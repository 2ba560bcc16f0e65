"""A host with many lost batches: detectors must not take gaps in data for gaps in the job."""

from __future__ import annotations

from simulator.faults.model import FOREVER, Place
from simulator.faults.places import HostFault
from simulator.topology.world import World

LOSS_MOST = 0.9
"""Of batches, at strength 1."""


class TelemetryLoss(HostFault):
    name = "telemetry_loss"
    title = "Many of a host's measurements are lost; its job goes on as before."
    causes = ()

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        world.host_telemetry_loss[place.host] = LOSS_MOST * strength
        return FOREVER


FAULT = TelemetryLoss()
