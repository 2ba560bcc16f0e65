"""A host whose agent has died: it sends nothing, and its ranks go on.

Missing data is not evidence against a host.
"""

from __future__ import annotations

from simulator.faults.model import FOREVER, Place
from simulator.faults.places import HostFault
from simulator.topology.world import World


class AgentDeath(HostFault):
    """A host's agent is silent; its job goes on as before."""

    name = "agent_death"
    title = "A host's agent is silent; its job goes on as before."
    causes = ()

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """Strength does not matter: silence has no degrees."""
        world.host_agent_is_dead[place.host] = True
        return FOREVER


FAULT = AgentDeath()
