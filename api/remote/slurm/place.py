"""Words for `sbatch` that put a job on the hosts which the service ranks first.

The service is asked about the nodes that Slurm shows as idle at this moment. In doubt there are no
words: the job is then submitted as it would be without us.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from api.remote.client import Client
from api.remote.slurm.hostlist import compress
from api.remote.slurm.reconcile import Node

FREE = frozenset({"idle", "cloud", "dynamic_norm"})
"""All flags that a node may have on which a job begins at once."""


class RankedHosts(msgspec.Struct, frozen=True):
    """A set of hosts, and why it stands where it does."""

    hosts: list[str]
    why: list[str] = []


class Placed(msgspec.Struct, frozen=True):
    """What `/v1/placement` answers, as far as it is used here."""

    sets: list[RankedHosts]
    none_because: str = ""


def free_nodes(nodes: Mapping[str, Node]) -> list[str]:
    """The nodes on which a job would begin at once."""
    return sorted(name for name, node in nodes.items() if "idle" in node.flags <= FREE)


def ask_placement(service: Client, size: int, candidates: Sequence[str]) -> Placed:
    """The best set of hosts. Raises ServiceError."""
    asked: dict[str, Any] = {"size": size, "candidates": list(candidates), "sets": 1}
    return service.send("POST", "/v1/placement", msgspec.json.encode(asked), Placed)


def sbatch_words(hosts: Sequence[str]) -> str:
    """The hosts as `sbatch` takes them.

    >>> sbatch_words(["node2", "node1", "gpu7"])
    '--nodelist=gpu7,node[1-2]'
    """
    return f"--nodelist={compress(hosts)}"
