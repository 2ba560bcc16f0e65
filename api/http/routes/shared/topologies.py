"""The topology for a request, and the names in it."""

from __future__ import annotations

import asyncio
import datetime as dt

from api.base.errors import Problem
from api.base.limits import TOPOLOGY_HOSTS_ASKED_MAX
from api.base.times import parse_moment
from api.fabric.cache import BuiltTopology
from api.fabric.model import Topology
from api.fabric.names import Endpoint, NoSuchName, find_endpoint
from api.fabric.shown import part_of
from api.http.context import Context
from collector.contract.errors import ContractError, SettingsError
from collector.contract.identity import LinkId, PortId


async def find(parts: Context, at: str | None) -> BuiltTopology:
    return await asyncio.to_thread(look, parts, parse_moment(at, "at"))


def look(parts: Context, moment: dt.datetime | None) -> BuiltTopology:
    """Blocks."""
    try:
        return parts.topologies.at(moment)
    except SettingsError as error:
        raise Problem(503, "the topology file cannot be read", str(error)) from error


def choose(whole: Topology, hosts: list[str], tier: int | None) -> Topology:
    if len(hosts) > TOPOLOGY_HOSTS_ASKED_MAX:
        why = f"{len(hosts)} host parameters, over {TOPOLOGY_HOSTS_ASKED_MAX}"
        raise Problem(422, "too many hosts", why, rule="topology_hosts_asked_max")
    if not hosts and tier is None:
        return whole
    chosen = {name for name, node in whole.nodes.items() if tier is not None and node.tier == tier}
    for name in hosts:
        if name not in whole.nodes:
            find_or_refuse(whole, name, "host")
        chosen.add(name)
    return part_of(whole, chosen)


def find_or_refuse(whole: Topology, text: str, name: str) -> Endpoint:
    """A 404 suggests similar names."""
    try:
        return find_endpoint(whole, text)
    except NoSuchName as error:
        raise Problem(404, "no such name", f"{name}={text[:80]!r}: {error}") from error


def port_of(text: str) -> PortId:
    """A port as operators write it: host/device/port, or switch/port."""
    host, slash, rest = text.partition("/")
    return PortId.parse(f"{host}/{host}/{rest}" if slash and "/" not in rest else text)


def link_named(built: BuiltTopology, text: str, name: str = "link") -> LinkId:
    """The link of an id or of a port; a Problem suggests similar names."""
    whole = built.topology
    try:
        if "|" in text:
            wanted = LinkId.parse(text)
            if wanted in whole.links:
                return wanted
            raise Problem(404, "no such link", f"{name}={text[:160]!r} is not cabled then")
        port = port_of(text)
    except ContractError as error:
        raise Problem(422, "not a link", str(error)) from error
    found = whole.link_of.get(port)
    if found is None:
        ports = find_or_refuse(whole, text, name).ports
        found = next((whole.link_of[one] for one in ports if one in whole.link_of), None)
    if found is None:
        raise Problem(404, "no such link", f"{name}={text[:160]!r}: no cable of this port is known")
    return found.id
