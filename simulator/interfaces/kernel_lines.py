"""What the kernel of a simulated host writes into its log about its NICs: mlx5's lines.

The forms are those of drivers/net/ethernet/mellanox/mlx5/core/health.c, Linux 6.8.
"""

from __future__ import annotations

from simulator.interfaces.fabric_tree import nic_pci_path
from simulator.topology.model import Topology

HEALTH = "Health issue observed, firmware internal error, severity(3) ERROR:"
DEAD_LINES = (
    "poll_health:825:(pid 0): Fatal error 1 detected",
    f"print_health_info:430:(pid 0): {HEALTH}",
)
ALIVE_LINE = "health recovery succeeded"


def nic_address(topology: Topology, nic: int) -> str:
    return nic_pci_path(nic % topology.nics_per_host).rpartition("/")[2]


def nic_lines(topology: Topology, nic: int, *, is_dead: bool) -> list[str]:
    """The lines at the moment when a NIC's firmware stops, or its driver has started it again."""
    prefix = f"mlx5_core {nic_address(topology, nic)}: "
    return [prefix + line for line in (DEAD_LINES if is_dead else (ALIVE_LINE,))]
