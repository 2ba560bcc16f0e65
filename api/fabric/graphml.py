"""A topology as GraphML, for yEd, Gephi, networkx and their like. Written piece by piece. Pure.

Hosts and switches are nodes, links are edges with their ports as data: GraphML's own ports are
read by few. Parallel links are edges of their own with different ids. The schema allows data only
under keys that are declared first, and no empty values of numbers: unknown values are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from api.fabric.model import Link, Node, Topology
from collector.contract.identity import printable

MEDIA_TYPE = "application/graphml+xml"

NODE_KEYS = {"label": "string", "kind": "string", "tier": "int", "rail": "int", "pod": "int"}
"""Attributes of nodes and their types. yEd and Gephi show `label`."""

EDGE_KEYS = {
    "source_port": "string",
    "target_port": "string",
    "is_up": "boolean",
    "rate_bits_per_second": "long",
    "since": "string",
    "last_seen": "string",
    "methods": "string",
}

HEAD = """\
<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" \
xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns \
http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">
"""

CHUNK_LINES = 1_000
"""Elements that are sent together: about 300 KiB."""


def write_graphml(topology: Topology) -> Iterator[str]:
    yield HEAD + "".join(keys())
    yield '<graph id="fabric" edgedefault="undirected">\n'
    waiting: list[str] = []
    for element in elements(topology):
        waiting.append(element)
        if len(waiting) >= CHUNK_LINES:
            yield "".join(waiting)
            waiting.clear()
    yield "".join(waiting) + "</graph>\n</graphml>\n"


def keys() -> Iterator[str]:
    for what, names in (("node", NODE_KEYS), ("edge", EDGE_KEYS)):
        for name, kind in names.items():
            yield (
                f'<key id="{what}_{name}" for="{what}" attr.name="{name}" attr.type="{kind}"/>\n'
            )


def elements(topology: Topology) -> Iterator[str]:
    for node in topology.nodes.values():
        yield f"<node id={attribute(node.name)}>{''.join(node_data(node))}</node>\n"
    for link in topology.links.values():
        yield (
            f"<edge id={attribute(str(link.id))} source={attribute(link.id.a.host)}"
            f" target={attribute(link.id.b.host)}>{''.join(edge_data(link))}</edge>\n"
        )


def node_data(node: Node) -> Iterator[str]:
    yield data("node_label", node.name)
    yield data("node_kind", node.kind)
    for name in ("tier", "rail", "pod"):
        value = getattr(node, name)
        if value is not None:
            yield data(f"node_{name}", value)


def edge_data(link: Link) -> Iterator[str]:
    yield data("edge_source_port", link.id.a)
    yield data("edge_target_port", link.id.b)
    if link.is_up is not None:
        yield data("edge_is_up", "true" if link.is_up else "false")
    if link.rate_bits_per_second is not None:
        yield data("edge_rate_bits_per_second", link.rate_bits_per_second)
    yield data("edge_since", link.since.isoformat())
    yield data("edge_last_seen", link.last_seen.isoformat())
    if link.methods:
        yield data("edge_methods", " ".join(link.methods))


def data(key: str, value: object) -> str:
    return f'<data key="{key}">{escape(printable(str(value)))}</data>'


def attribute(value: str) -> str:
    """A value in quotes. Characters that XML cannot hold are replaced."""
    return quoteattr(printable(value))
