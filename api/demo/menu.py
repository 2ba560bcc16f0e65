"""What goes wrong in the demo, and when."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collector.contract.errors import SettingsError
from collector.contract.layers import unknown
from simulator.faults.model import Cluster, Fault, Injection
from simulator.scenario import plan

FIRST_SECONDS = 20.0
"""All is well for so long, to see what that looks like."""
FAULT_SECONDS = (45.0, 70.0)
PAUSE_SECONDS = 30.0
"""Between two faults."""

SHOWN = (
    "slow_nic",
    "thermal_throttle",
    "bad_cable",
    "slow_loader",
    "slow_receiver",
    "link_flap",
    "pcie_downtrain",
    "host_steal",
)
"""What the demo shows unless told otherwise: late ranks and slow links take turns."""


def choose_faults(
    known: dict[str, Fault], named: Sequence[str], *, everything: bool, fabric: str
) -> list[Fault]:
    """The faults to show, in order; those that this fabric cannot have are left out."""
    for name in named:
        if name not in known:
            raise SettingsError(unknown("fault", name, known))
        if fabric not in known[name].fabrics:
            raise SettingsError(
                f"--fault {name}: it cannot happen on {fabric}; try another of --list"
            )
    names = named or (list(known) if everything else SHOWN)
    return [known[name] for name in names if fabric in known[name].fabrics]


class Menu:
    """Serves one fault after the other, for ever. Nothing at all if there are none."""

    def __init__(self, faults: Sequence[Fault], cluster: Cluster, seed: int) -> None:
        self._faults = list(faults)
        self._cluster = cluster
        self._random = np.random.default_rng(seed)
        self._served = 0
        self._next_s = FIRST_SECONDS

    def serve(self, now_s: float) -> Injection | None:
        """The fault that is due now, if one is."""
        if not self._faults or now_s < self._next_s:
            return None
        fault = self._faults[self._served % len(self._faults)]
        self._served += 1
        planned = plan(fault, self._cluster, self._random, now_s)
        seconds = float(self._random.uniform(*FAULT_SECONDS))
        self._next_s = now_s + seconds + PAUSE_SECONDS
        return Injection(fault, planned.place, now_s, now_s + seconds, planned.strength)
