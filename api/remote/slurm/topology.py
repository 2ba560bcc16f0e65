"""`topology.conf` from the cables: switches and blocks for Slurm's plugins. Pure.

Slurm's tree lets each node hang on one switch. A host of a rail-optimised fabric hangs on a leaf of
every rail, so leaves that serve the same hosts are one switch here: hosts are joined by what they
reach over leaves alone, then over the tier above, and so on. What joins nothing new is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from api.remote.slurm.hostlist import compress
from collector.contract.errors import ParseError
from collector.contract.identity import natural

TIERS_MAX = 8
_NAME = re.compile(r"[A-Za-z0-9._\-]{1,255}")


class NodeSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A host or a switch, as `/v1/topology` shows it."""

    name: str
    kind: str
    tier: int | None = None


class LinkSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A cable; its ends are host/device/port."""

    a: str
    b: str


class Cables(msgspec.Struct, frozen=True):
    """What is cabled."""

    nodes: list[NodeSeen]
    links: list[LinkSeen]


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts that reach each other within a tier, and the groups below."""

    name: str
    hosts: tuple[str, ...]
    parts: tuple[Group, ...] = ()


class _Sets:
    """Things that belong together, joined pair by pair."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def root(self, name: str) -> str:
        above = self._above.setdefault(name, name)
        while above != self._above[above]:
            self._above[name] = above = self._above[above]
        return above

    def join(self, one: str, other: str) -> None:
        self._above[self.root(one)] = self.root(other)


def groups_of(cables: Cables) -> tuple[list[Group], list[str]]:
    """The largest groups, and hosts that hang on no leaf."""
    tiers = {node.name: node.tier for node in cables.nodes if node.kind == "switch"}
    hosts = sorted(node.name for node in cables.nodes if node.kind == "host")
    links = [(machine(link.a), machine(link.b)) for link in cables.links]
    sets = _Sets()
    groups: list[Group] = []
    for tier in range(TIERS_MAX):
        reached = {name for name, at in tiers.items() if at is not None and at <= tier}
        if tier and not any(at == tier for at in tiers.values()):
            break
        for a, b in links:
            if all(each in reached or each not in tiers for each in (a, b)):
                sets.join(a, b)
        groups = merged(groups, members(hosts, links, tiers, sets), tier)
    placed = {host for group in groups for host in group.hosts}
    return groups, [host for host in hosts if host not in placed]


def members(
    hosts: Iterable[str],
    links: Iterable[tuple[str, str]],
    tiers: Mapping[str, int | None],
    sets: _Sets,
) -> dict[str, list[str]]:
    """Hosts with a cable to a leaf, by what they belong to so far."""
    cabled = {a for a, b in links if tiers.get(b) == 0} | {b for a, b in links if tiers.get(a) == 0}
    found: dict[str, list[str]] = {}
    for host in hosts:
        if host in cabled:
            found.setdefault(sets.root(host), []).append(host)
    return found


def merged(before: Sequence[Group], found: Mapping[str, list[str]], tier: int) -> list[Group]:
    """The groups of a tier, made of those below; one that joins nothing stays as it was."""
    of_host = {host: group for group in before for host in group.hosts}
    made: list[Group] = []
    for number, hosts in enumerate(sorted(found.values())):
        parts = {of_host[host].name: of_host[host] for host in hosts if host in of_host}
        ordered = tuple(parts[name] for name in sorted(parts, key=natural))
        if len(ordered) == 1 and len(ordered[0].hosts) == len(hosts):
            made.append(ordered[0])
        else:
            name = f"leaf{number}" if tier == 0 else f"tier{tier}-{number}"
            made.append(Group(name=name, hosts=tuple(hosts), parts=ordered))
    return made


def machine(end: str) -> str:
    return end.partition("/")[0]


def tree_lines(groups: Sequence[Group], left: Sequence[str]) -> Iterator[str]:
    """Lines of `topology.conf` for topology/tree: leaves first."""
    yield "# Made by `fabricscope slurm topology` from what is cabled; topology/tree."
    written: dict[str, str] = {}
    for group in groups:
        for each in below(group):
            if not each.parts:
                written[each.name] = f"SwitchName={each.name} Nodes={nodes_of(each.hosts)}"
            else:
                switches = ",".join(part.name for part in each.parts)
                written[each.name] = f"SwitchName={each.name} Switches={switches}"
    yield from written.values()
    if len(groups) > 1:
        yield f"SwitchName=fabric Switches={','.join(group.name for group in groups)}"
    if left:
        yield f"# Not cabled to any leaf, as far as is known: {nodes_of(left)}"


def block_lines(groups: Sequence[Group], left: Sequence[str]) -> Iterator[str]:
    """Lines of `topology.conf` for topology/block: one block for each group of leaves."""
    yield "# Made by `fabricscope slurm topology` from what is cabled; topology/block."
    leaves = [each for group in groups for each in below(group) if not each.parts]
    for each in leaves:
        yield f"BlockName={each.name} Nodes={nodes_of(each.hosts)}"
    if leaves:
        yield f"BlockSizes={min(len(each.hosts) for each in leaves)}"
    if left:
        yield f"# Not cabled to any leaf, as far as is known: {nodes_of(left)}"


def below(group: Group) -> Iterator[Group]:
    """A group after the groups below it."""
    for part in group.parts:
        yield from below(part)
    yield group


def nodes_of(hosts: Iterable[str]) -> str:
    """Hosts as Slurm writes them. Raises ParseError for a name that no node can have."""
    names = list(hosts)
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise ParseError("", f"{name[:80]!r} is no name of a node")
    return compress(names)
