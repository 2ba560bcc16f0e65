"""What goes wrong in the demo, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from collector.contract.errors import SettingsError
from collector.contract.layers import unknown
from simulator.faults import discover
from simulator.faults.model import Cluster, Fault, Injection
from simulator.scenario import plan

FIRST_SECONDS = 30.0
"""Time without a fault at the start, to see what that looks like."""
FAULT_SECONDS = (60.0, 90.0)
"""The service's values of steps are half a minute old: a shorter fault would be over by then."""
PAUSE_SECONDS = 30.0

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
NOT_HERE = {"telemetry_loss": "the agents are real, and lose nothing on loopback"}
"""Faults that only the fast mode can have, and why."""


def showable() -> dict[str, Fault]:
    return {name: fault for name, fault in discover().items() if name not in NOT_HERE}


def choose_faults(
    known: Mapping[str, Fault], named: Sequence[str], cluster: Cluster, *, everything: bool
) -> list[Fault]:
    """The faults to show, in order; those that this cluster cannot have are left out."""
    for name in named:
        if name in NOT_HERE:
            raise SettingsError(f"--fault {name}: not in the demo: {NOT_HERE[name]}")
        if name not in known:
            raise SettingsError(unknown("fault", name, known))
        if not known[name].fits(cluster):
            fabric = cluster.topology.fabric
            raise SettingsError(f"--fault {name}: it cannot happen here, on {fabric}; see --list")
    names = named or (list(known) if everything else SHOWN)
    return [known[name] for name in names if known[name].fits(cluster)]


class Menu:
    """Serves one fault after the other, for ever. Nothing at all if there are none."""

    def __init__(self, faults: Sequence[Fault], cluster: Cluster, seed: int) -> None:
        self._faults = list(faults)
        self._cluster = cluster
        self._random = np.random.default_rng(seed)
        self._served = 0
        self._next_s = FIRST_SECONDS

    def serve(self, now_s: float) -> Injection | None:
        if not self._faults or now_s < self._next_s:
            return None
        fault = self._faults[self._served % len(self._faults)]
        self._served += 1
        planned = plan(fault, self._cluster, self._random, now_s)
        seconds = float(self._random.uniform(*FAULT_SECONDS))
        self._next_s = now_s + seconds + PAUSE_SECONDS
        # At least of middling strength: a demo shows what a fault does, the score how little of it
        # is enough to be found.
        low, high = fault.strengths
        strength = max(planned.strength, (low + high) / 2)
        return Injection(fault, planned.place, now_s, now_s + seconds, strength)
