"""A host whose agent has died while its ranks go on: missing data is no evidence against a host."""

from __future__ import annotations

from simulator.faults.model import FOREVER, Place
from simulator.faults.places import HostFault
from simulator.topology.world import World


class AgentDeath(HostFault):
    name = "agent_death"
    title = "A host's agent is silent; its job goes on as before."
    causes = ()

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Strength does not matter: silence has no degrees."""
        world.host_agent_is_dead[place.host] = True
        return FOREVER


FAULT = AgentDeath()
