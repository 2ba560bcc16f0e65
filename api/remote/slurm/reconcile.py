"""Changes for Slurm: nodes that are held and not drained, and the other way round. Pure.

Level-triggered: standing actions are compared with Slurm's current nodes. A node is ours only if
its reason begins with `fabricscope:`; nodes that others have drained stay as they are, and a node
is given back only if the service reports that the very action of its reason has ended.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Container, Iterable, Mapping
from typing import Literal

import msgspec

from api.remote.answers import Action, Report
from api.remote.executor import Plan, Share
from collector.contract.errors import ParseError
from collector.contract.identity import printable

MARK = "fabricscope:"
"""What the reasons of our drains begin with."""
SINFO = ("sinfo", "--Node", "--noheader", "--Format=NodeList:|,StateComplete:|,Reason:|")
"""One line for each node and partition: name, state with all its flags, reason.

The short state (`%T`) names one of several: of a drained node that is rebooted it says `reboot^`.
"""
SLURMS_OWN_REASONS = ("Not responding", "Node unexpectedly rebooted")
"""Why slurmctld itself sets a node down that it puts back to work as soon as it answers: such a
node is drained. With any other reason it is down by a person's or a program's decision."""
NODES_MAX = 100_000
REASON_CHARS_MAX = 200
"""Of a reason, as `sinfo -R` and people read it."""

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,254}")
_ACTION = re.compile(rf"{re.escape(MARK)}([A-Za-z0-9_.\-]{{1,100}})(?:\s|$)")


class Node(msgspec.Struct, frozen=True):
    """A node as Slurm shows it."""

    name: str
    state: str
    """In Slurm's words, with all flags: `idle`, `allocated+drain`, `down+not_responding`…"""
    reason: str

    @property
    def flags(self) -> frozenset[str]:
        return frozenset(self.state.split("+"))

    @property
    def is_drained(self) -> bool:
        """Whether an operator or a program has drained it: nothing new begins there."""
        return "drain" in self.flags

    @property
    def is_rebooting(self) -> bool:
        """Whether an operator reboots it: Slurm drains it for that, and refuses to undrain it."""
        return not self.flags.isdisjoint({"reboot_requested", "reboot_issued"})

    @property
    def is_down(self) -> bool:
        return not self.flags.isdisjoint({"down", "error", "fail"})

    @property
    def is_away(self) -> bool:
        """Whether nothing begins there, for any reason."""
        return self.is_drained or self.is_down or self.is_rebooting

    @property
    def is_ours(self) -> bool:
        return self.reason.startswith(MARK)

    @property
    def is_others(self) -> bool:
        """Whether another took it away, and its reason says why: both stay as they are.

        The words of a reason decide, not the user who gave it: slurmctld and root are both `root`
        where SlurmUser is.
        """
        if self.is_ours or not self.is_away:
            return False
        return self.is_drained or bool(self.reason and self.reason not in SLURMS_OWN_REASONS)

    @property
    def is_held(self) -> bool:
        return self.is_ours and self.is_drained

    @property
    def action(self) -> str:
        found = _ACTION.match(self.reason)
        return found[1] if found else ""


class Doing(enum.StrEnum):
    """What to do with a node."""

    DRAIN = "drain"
    UNDRAIN = "undrain"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change for Slurm."""

    doing: Doing
    node: str
    action: str
    reason: str = ""

    @property
    def command(self) -> tuple[str, ...]:
        """Program and arguments. UNDRAIN, not RESUME: that would also start what is down."""
        words = ("scontrol", "update", f"NodeName={self.node}")
        if self.doing is Doing.DRAIN:
            return (*words, "State=DRAIN", f"Reason={self.reason}")
        return (*words, "State=UNDRAIN")


def parse_sinfo(text: bytes) -> dict[str, Node]:
    r"""Nodes by name; a node of several partitions once. Raises ParseError for other lists.

    >>> parse_sinfo(b"n1|idle+drain|fabricscope:a1 slow_link|\nn2|idle|none|\n")["n1"].action
    'a1'
    """
    found: dict[str, Node] = {}
    for number, line in enumerate(text.decode("utf-8", "replace").split("\n"), start=1):
        if not line.strip():
            continue
        name, bar, rest = line.partition("|")
        state, second, reason = rest.partition("|")
        name = name.strip()
        if not bar or not second or _HOST.fullmatch(name) is None:
            raise ParseError(f"line {number}", f"{printable(line)[:80]!r} is no line of sinfo")
        if len(found) >= NODES_MAX and name not in found:
            raise ParseError("", f"more than NODES_MAX = {NODES_MAX} nodes")
        shown_reason = printable(reason.strip().removesuffix("|"))
        known_reason = "" if shown_reason.lower() == "none" else shown_reason
        found[name] = Node(name, printable(state.strip().lower()), known_reason)
    return found


def plan(
    standing: Iterable[Action],
    nodes: Mapping[str, Node],
    ended: Mapping[str, bool],
    share_max: float = 1.0,
) -> Plan[Change]:
    """``ended``: whether actions of our reasons are over; ``share_max``: of the nodes."""
    wanted = {each.host: each for each in standing}
    found: Plan[Change] = Plan(changes=[])
    held = sum(node.is_held for node in nodes.values())
    share = Share(share_max, nodes=len(nodes), held=held, doing="drained")
    for host, action in sorted(wanted.items()):
        node = nodes.get(host)
        if node is None:
            found.reports.append(report(action, "failed", f"Slurm has no node {host}"))
        elif node.is_others:
            doing = "drained" if node.is_drained else "taken away"
            words = f"{doing} by another already: {node.reason[:REASON_CHARS_MAX]}"
            found.reports.append(report(action, "done", words))
        elif node.is_away and node.action == action.id:
            found.reports.append(report(action, "done", node.state))
        elif not node.is_held and (why := share.take()):
            found.refused.append(f"{host}: {why}")
            found.reports.append(report(action, "failed", why))
        else:
            found.changes.append(drain_of(action))
    for node in left_over(wanted, nodes):
        if ended.get(node.action, False) and not node.is_rebooting:
            change = Change(doing=Doing.UNDRAIN, node=node.name, action=node.action)
            found.changes.append(change)
    return found


def left_over(wanted: Container[str], nodes: Mapping[str, Node]) -> list[Node]:
    """Nodes of ours that no action holds: the service must confirm that the action is over."""
    return [node for name, node in sorted(nodes.items()) if node.is_held and name not in wanted]


def report(action: Action, outcome: Literal["done", "failed"], words: str) -> Report:
    return Report(action.id, outcome, f"{action.host}: {words}")


def drain_of(action: Action) -> Change:
    """The drain for an action. A name that Slurm could read as another word is refused."""
    if _HOST.fullmatch(action.host) is None:
        raise ParseError("", f"{action.host[:80]!r} is no name of a node")
    # Slurm's own files and lists are lines with quotes and bars.
    words = re.sub(r"[\"'|\\\s\ufffd]+", " ", printable(action.reason)).strip()
    reason = f"{MARK}{action.id} {words}"[:REASON_CHARS_MAX]
    return Change(doing=Doing.DRAIN, node=action.host, action=action.id, reason=reason)
