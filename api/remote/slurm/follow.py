"""The executor: drains hosts in Slurm by the service's standing actions, and returns them later."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

from api.remote.answers import Action, Actions, Report, Service
from api.remote.client import Odd
from api.remote.executor import Attempt, Doubt, Executor, Plan, Said
from api.remote.slurm.reconcile import SINFO, Change, Node, left_over, parse_sinfo, plan
from collector.contract.errors import HostError
from collector.contract.identity import printable
from collector.contract.reason import UnreadReason
from collector.doors.host import Host

COMMAND_SECONDS = 20.0
"""For one program of Slurm: a controller that is busy answers within its own ten."""
CHANGES_MAX = 32
"""Nodes that are changed in one round. More at once is a mistake: nothing is done."""
ASKED_MAX = 200
"""Actions of our reasons that are asked for in one round; the others come in the next."""
INTERVAL_S = 15.0
NOT_FOUND = 404

log = logging.getLogger(__name__)


class SlurmExecutor(Executor[Mapping[str, Node] | None, Change]):
    """Slurm. ``show`` gets each command; ``is_dry``: none is run. ``node``: only this one."""

    name = "slurm"

    def __init__(
        self,
        service: Service,
        host: Host,
        show: Callable[[str], None],
        *,
        is_dry: bool,
        share_max: float = 1.0,
        node: str = "",
    ) -> None:
        super().__init__()
        self._service = service
        self._host = host
        self._show = show
        self._is_dry = is_dry
        self._share_max = share_max
        self._node = node

    async def observe(self) -> Mapping[str, Node] | None:
        """Slurm's nodes; None: there is no Slurm here, which a dry run does not need."""
        try:
            return read_nodes(self._host, node=self._node)
        except HostError as error:
            if self._is_dry and error.reason is UnreadReason.ABSENT:
                return None
            raise

    async def plan(self, nodes: Mapping[str, Node] | None, said: Said) -> Plan[Change]:
        """Drains and returns; Doubt if the service does not know all, or too many would change."""
        standing = [each for each in standing_of(said.actions) if self._node in {"", each.host}]
        if nodes is None:
            nodes = {each.host: Node(each.host, "idle", "") for each in standing}
        left = left_over({each.host for each in standing}, nodes)
        ended, unknown = await self._ended(left)
        found = plan(standing, nodes, ended, self._share_max)
        found.refused += unknown
        if len(found.changes) > CHANGES_MAX:
            raise Doubt(
                f"{len(found.changes)} nodes would change at once, over CHANGES_MAX = "
                f"{CHANGES_MAX}: look at `fabricscope actions list` first"
            )
        return found

    async def _ended(self, left: Sequence[Node]) -> tuple[dict[str, bool], list[str]]:
        """Of nodes that we drained and no action holds: whether the service has ended the action.

        A service that has lost its inventory knows no actions: then no host is returned.
        """
        found: dict[str, bool] = {}
        unknown: list[str] = []
        for node in left[:ASKED_MAX]:
            try:
                action = await self._service.action(node.action or "none")
            except Odd as error:
                if error.status != NOT_FOUND:
                    raise
                unknown.append(
                    f"node {node.name} stays drained ({node.reason}): the service does not know its"
                    " action; give it back by hand"
                )
                continue
            found[node.action] = action.state == "ended"
        return found, unknown

    async def apply(self, changes: Sequence[Change]) -> AsyncGenerator[Attempt]:
        """One command for each; a failure of one is reported and does not stop the others."""
        for change in changes:
            self._show(" ".join(shell_word(word) for word in change.command))
            if not self._is_dry:
                yield self._run(change)

    def _run(self, change: Change) -> Attempt:
        """One command. Blocks, so that a signal never separates a command from its report."""
        failure = ""
        try:
            output = self._host.run(change.command, COMMAND_SECONDS)
            if output.status or output.is_cut:
                message = (output.complaints or output.text).decode("utf-8", "replace").strip()
                failure = f"scontrol ({output.status}): {printable(message)[:300]}"
        except HostError as error:
            failure = str(error)
        log.log(
            logging.ERROR if failure else logging.INFO,
            "%s %s: %s (action %s)",
            change.doing,
            change.node,
            failure or "done",
            change.action,
        )
        words = f"{change.node}: {failure or change.doing.value}"
        report = Report(change.action, "failed" if failure else "done", words)
        return Attempt(is_done=not failure, reports=[report])


def read_nodes(host: Host, *, node: str = "", partition: str = "") -> dict[str, Node]:
    """Slurm's nodes, or only some of them. Raises Doubt, HostError, ParseError."""
    # Hidden partitions' nodes too; sinfo takes not both of these flags.
    chosen = [f"--partition={partition}" if partition else "--all"]
    chosen += [f"--nodes={node}"] if node else []
    output = host.run((*SINFO, *chosen), COMMAND_SECONDS)
    if output.status or output.is_cut:
        message = printable(output.complaints.decode("utf-8", "replace").strip())[:300]
        raise Doubt(f"sinfo failed ({output.status}): {message}")
    nodes = parse_sinfo(output.text)
    if not nodes:
        raise Doubt("sinfo lists no node")
    return nodes


def standing_of(answer: Actions | None) -> list[Action]:
    """Standing actions; Doubt if the list is incomplete or stale."""
    if answer is None:
        raise Doubt("the service's answer is too old")
    if answer.evidence != "fresh":
        why = printable("; ".join(answer.stale[:3])) or answer.evidence
        raise Doubt(f"the service's evidence is stale: {why}")
    if answer.next is not None:
        raise Doubt("the service did not list all that stands")
    if any(each.state != "standing" for each in answer.actions):
        raise Doubt("the service listed what does not stand")
    return answer.actions


def shell_word(word: str) -> str:
    """A word quoted for the shell.

    >>> shell_word("Reason=fabricscope:a1 slow"), shell_word("State=DRAIN")
    ('"Reason=fabricscope:a1 slow"', 'State=DRAIN')
    """
    return f'"{word}"' if " " in word else word
