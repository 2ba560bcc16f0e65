"""The partitions that HCAs' ports are in, asked port by port with `smpquery` over the fabric.

For `collector.sources.ib_fabric`. The ports themselves are asked, not the subnet manager's data:
an HCA goes by its port's own table, and a manager gives tables (`saquery`) only to those who have
its key. A few ports at each read: a question is a process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collector.audit.partitions import ENTRIES_MAX, is_key, to_text
from collector.contract.errors import HostError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.parsing.infiniband_diags import Peer, parse_keys
from collector.reading.infiniband import (
    AGGREGATION,
    PORT_LINES_MAX,
    Fabric,
    FabricNode,
    Failure,
    Programs,
    explain_failure,
    label_hca,
)

METRIC = "fabric_port_partitions_info"
ASKED_MAX = 16
"""Ports that are asked at one read, some 20 ms of one core each: a thousand every ten minutes."""
AGAIN_SECONDS = 240
"""After this time a port is asked again: partitions change with tenants."""

Place = tuple[str, int]
"""GUID of a port, and its number."""


@dataclass(slots=True)
class Asked:
    """A port's answer, and when it was asked."""

    asked_ns: int
    series: Series
    failure: Failure | None


class Partitions:
    """The tables of one fabric's HCAs."""

    def __init__(self) -> None:
        self._known: dict[Place, Asked] = {}

    def read(
        self, programs: Programs, fabric: Fabric, names: dict[str, str], time_ns: int
    ) -> Iterator[Reading]:
        """Every table that is known; those that were not asked for longest are asked first."""
        ends = far_ends(fabric)
        self._known = {place: asked for place, asked in self._known.items() if place in ends}
        now_ns = programs.now_ns()
        due = [place for place in ends if now_ns - self._asked_ns(place) >= AGAIN_SECONDS * NS]
        due.sort(key=self._asked_ns)
        for place in due[:ASKED_MAX]:
            peer = ends[place]
            guid = fabric.node_guid(peer.guid)
            hca = FabricNode(guid, is_switch=False, description=fabric.peer_name(guid, peer.name))
            self._known[place] = ask(programs, peer, label_hca(hca, names))
        for asked in self._known.values():
            if asked.failure:
                yield Missing(asked.series, *asked.failure)
            else:
                yield Sample(asked.series, 1, time_ns)

    def _asked_ns(self, place: Place) -> int:
        known = self._known.get(place)
        return known.asked_ns if known else -AGAIN_SECONDS * NS


def far_ends(fabric: Fabric) -> dict[Place, Peer]:
    """The HCAs' ports behind switches, as the last scan showed them."""
    found: dict[Place, Peer] = {}
    for node in fabric.nodes.values():
        for port in node.ports.values() if node.is_switch else ():
            peer = port.line.peer
            if peer is None or AGGREGATION in peer.name or len(found) >= PORT_LINES_MAX:
                continue
            if fabric.is_hca(peer.guid):
                found[peer.guid, peer.port] = peer
    return found


def ask(programs: Programs, peer: Peer, labels: dict[str, str]) -> Asked:
    """One port's table as a series, or why there is none."""
    asked_ns = programs.now_ns()
    port = labels | {"port": str(peer.port), "method": "ib", "guid": peer.guid}
    bare = Series(METRIC, port)
    try:
        output = programs.run("smpquery", "pkeys", str(peer.lid), str(peer.port))
    except HostError as error:
        return Asked(asked_ns, bare, (error.reason, f"smpquery: {error.detail}"))
    table = parse_keys(output.text)
    if table is None:
        return Asked(asked_ns, bare, explain_failure(output))
    keys = {index: key for index, key in table.items() if is_key(key)}
    if len(keys) > ENTRIES_MAX:
        detail = f"{len(keys)} partitions, more than ENTRIES_MAX = {ENTRIES_MAX}"
        return Asked(asked_ns, bare, (UnreadReason.NOT_SUPPORTED, detail))
    return Asked(asked_ns, Series(METRIC, port | {"partitions": to_text(keys)}), None)
