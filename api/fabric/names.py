"""Finds the ports that an operator names: `node-0`, `node-0/mlx5_0/1`, `leaf-0/4`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import islice
from urllib.parse import unquote

import msgspec

from api.fabric.cabling import natural_port
from api.fabric.mistake import name_of
from api.fabric.model import NodeKind, Topology
from api.fabric.paths import ports_of
from collector.contract.errors import FabricscopeError
from collector.contract.identity import PortId

NEAR_MISSES_MAX = 5

NEAR_AMONG_MAX = 20_000
"""Names among which a similar one is searched: to compare with more takes too long."""

NAME_PARTS_MAX = 3


class NoSuchName(FabricscopeError):  # noqa: N818 - what it is
    """No node or port has this name; the message offers similar names."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What a name stands for: ports of a host, or a switch."""

    name: str
    ports: tuple[PortId, ...]
    """Of a switch one, which stands for the switch."""
    is_switch: bool = False


def find_endpoint(topology: Topology, text: str) -> Endpoint:
    parts = [unquote(part) for part in text.split("/")]
    node = topology.nodes.get(parts[0])
    if node is None or len(parts) > NAME_PARTS_MAX:
        raise NoSuchName(f"nothing is called {text[:80]!r}" + offer(parts[0], topology.nodes))
    if node.kind is NodeKind.SWITCH:
        return find_switch_port(topology, node.name, parts[1:])
    known = [port.id for port in topology.ports_of.get(node.name, ())]
    wanted = [port for port in known if [port.device, port.port][: len(parts) - 1] == parts[1:]]
    linked = set(ports_of(topology, node.name))
    ports = [port for port in wanted if port in linked] or wanted
    if not ports:
        near = offer("/".join(parts), sorted({"/".join(named(port, parts)) for port in known}))
        raise NoSuchName(f"{node.name} has no port {'/'.join(parts[1:])[:80]!r}{near}")
    return Endpoint(name=text, ports=tuple(sorted(ports, key=natural_port)))


def named(port: PortId, parts: list[str]) -> list[str]:
    return [port.host, port.device, port.port][: len(parts)]


def find_switch_port(topology: Topology, switch: str, parts: list[str]) -> Endpoint:
    """A switch, by its name or one of its ports'; ways begin at the switch in any case."""
    known = [port.id for port in topology.ports_of.get(switch, ())]
    rest = parts[1:] if len(parts) == NAME_PARTS_MAX - 1 and parts[0] == switch else parts
    if not rest:
        stand_in = PortId(switch, switch, "any")
        return Endpoint(name=switch, ports=(stand_in,), is_switch=True)
    wanted = PortId(switch, switch, "/".join(rest) or "any")
    if wanted not in known:
        near = offer(name_of(wanted), [name_of(port) for port in known])
        raise NoSuchName(f"{switch} has no port {wanted.port[:80]!r}{near}")
    return Endpoint(name=name_of(wanted), ports=(wanted,), is_switch=True)


def offer(text: str, among: Iterable[str]) -> str:
    """The end of a sentence that says that there is none: similar names, if there are any."""
    return offered(similar(text, among))


def similar(text: str, among: Iterable[str]) -> list[str]:
    """Names that are written nearly so, the nearest first."""
    names = list(islice(among, NEAR_AMONG_MAX))
    return get_close_matches(text[:200], names, NEAR_MISSES_MAX)


def offered(names: Sequence[str]) -> str:
    return f"; did you mean {', '.join(names)}?" if names else ""
