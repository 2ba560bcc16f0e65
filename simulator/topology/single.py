"""One switch with all hosts on it.

Small real captures come from such a network (eight hosts in a ring at 10 Gb/s); tests compare the
simulator with them here, where routing cannot cause a difference.
"""

from __future__ import annotations

import numpy as np

from collector.contract.errors import SettingsError
from simulator.topology.model import Switch
from simulator.topology.spec import ClusterSpec, Wiring


def wire(spec: ClusterSpec) -> Wiring:
    """All NICs on one switch; hosts_per_leaf and oversubscription mean nothing here."""
    nics = spec.hosts * spec.nics_per_host
    if nics > spec.switch_ports:
        raise SettingsError(
            f"hosts = {spec.hosts}: {nics} NICs do not fit one switch of {spec.switch_ports} ports;"
            " take fewer hosts or NICs, more switch_ports, or another topology"
        )
    none = np.zeros(0, dtype=np.int32)
    return Wiring(
        switches=(Switch("switch-0", tier=0, pod=0),),
        nic_switch=np.zeros(nics, dtype=np.int32),
        near=none,
        far=none,
        kind=none.astype(np.int8),
    )
