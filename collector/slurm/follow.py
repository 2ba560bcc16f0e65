"""The executor: makes true in Slurm what stands in the service, again and again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

import msgspec

from collector.contract.errors import FabricscopeError, HostError, ParseError
from collector.contract.identity import printable
from collector.contract.reason import Reason
from collector.host import Host
from collector.slurm.reconcile import (
    SINFO,
    Change,
    Node,
    Note,
    Wanted,
    doubtful,
    parse_sinfo,
    plan,
)
from collector.slurm.service import Service, ServiceError, quoted

EXECUTOR = "slurm"
COMMAND_SECONDS = 20.0
"""For one program of Slurm: a controller that is busy answers within its own ten."""
CHANGES_MAX = 32
"""Nodes that are changed in one round. More at once is a mistake of somebody: nothing is done."""
ASKED_MAX = 200
"""Actions of our reasons that are asked for in one round; the others come in the next."""
INTERVAL_S = 15.0

log = logging.getLogger(__name__)


class Doubt(FabricscopeError):  # noqa: N818 - reads as the statement it is
    """Something cannot be known: nothing is changed."""


class Standing(msgspec.Struct, frozen=True):
    """The service's list of what stands."""

    actions: list[Wanted]
    evidence: str
    next: str | None
    stale: list[str] = []


class ActionState(msgspec.Struct, frozen=True):
    """Of one action, what it has come to."""

    state: str


class Executor:
    """Looks and does. ``show`` gets each command, done or not; ``is_dry``: none is done."""

    def __init__(
        self, service: Service, host: Host, show: Callable[[str], None], *, is_dry: bool
    ) -> None:
        self._service = service
        self._host = host
        self._show = show
        self._is_dry = is_dry
        self._told: dict[str, tuple[str, str]] = {}
        """What the service was told of each action last, so that it is told once."""

    def run(self, interval_s: float, stop: threading.Event) -> None:
        """Reconcile until told to stop; what fails is said once, and tried again."""
        trouble = ""
        while not stop.is_set():
            try:
                self.once()
                if trouble:
                    log.info("all is known again")
                trouble = ""
            except (Doubt, ServiceError, HostError, ParseError) as error:
                if str(error) != trouble:
                    log.warning("nothing is changed: %s", error)
                trouble = str(error)
            stop.wait(interval_s)

    def once(self, hosts: Sequence[str] | None = None) -> list[Change]:
        """One look, of these hosts or all; what was done. Raises on doubt, before any change."""
        standing = self._standing(hosts)
        nodes = self._nodes(standing, hosts)
        ended = self._ended(doubtful(standing, nodes), hosts)
        found = plan(standing, nodes, ended, hosts)
        if len(found.changes) > CHANGES_MAX:
            raise Doubt(
                f"{len(found.changes)} nodes would change at once, over CHANGES_MAX = "
                f"{CHANGES_MAX}: look at `fabricscope actions list` first"
            )
        for change in found.changes:
            self._do(change)
        for note in found.notes:
            self._tell(note)
        return found.changes

    # --- looking -------------------------------------------------------------------------------

    def _standing(self, hosts: Sequence[str] | None) -> list[Wanted]:
        """What stands; Doubt if that is not all, or rests on the past."""
        asked: dict[str, str | list[str]] = {"state": "standing"}
        if hosts is not None and len(hosts) == 1:
            asked["host"] = hosts[0]
        answer = self._service.get("/v1/actions", Standing, **asked)
        if answer.evidence != "fresh":
            why = printable("; ".join(answer.stale[:3])) or answer.evidence
            raise Doubt(f"the service's evidence is stale: {why}")
        if answer.next is not None:
            raise Doubt("the service did not list all that stands")
        if any(each.state != "standing" for each in answer.actions):
            raise Doubt("the service listed what does not stand")
        return answer.actions

    def _nodes(self, standing: Sequence[Wanted], hosts: Sequence[str] | None) -> dict[str, Node]:
        """How Slurm's nodes stand. Without Slurm a dry run takes all that stand for well."""
        words = SINFO if hosts is None else (*SINFO, f"--nodes={','.join(hosts)}")
        try:
            output = self._host.run(words, COMMAND_SECONDS)
        except HostError as error:
            if self._is_dry and error.reason is Reason.ABSENT:
                return {each.host: Node(each.host, "idle", "") for each in standing}
            raise
        if output.status or output.is_cut:
            said = printable(output.complaints.decode("utf-8", "replace").strip())[:300]
            raise Doubt(f"sinfo failed ({output.status}): {said}")
        nodes = parse_sinfo(output.text)
        if not nodes:
            raise Doubt("sinfo lists no node")
        return nodes

    def _ended(self, left: Sequence[Node], hosts: Sequence[str] | None) -> dict[str, bool]:
        """Of nodes that we drained and nothing holds: whether the service knows that it is over.

        A service that has lost its inventory knows nothing: then nothing is given back.
        """
        found: dict[str, bool] = {}
        asked = [node for node in left if hosts is None or node.name in hosts]
        for node in asked[:ASKED_MAX]:
            try:
                path = f"/v1/actions/{quoted(node.action or 'none')}"
                state = self._service.get(path, ActionState).state
            except ServiceError as error:
                if error.status != NOT_FOUND:
                    raise
                self._say_once(node, "the service does not know its action; give it back by hand")
                continue
            found[node.action] = state == "ended"
        return found

    def _say_once(self, node: Node, words: str) -> None:
        if self._told.get(node.name) != ("", words):
            log.warning("node %s stays drained (%s): %s", node.name, node.reason, words)
        self._told[node.name] = ("", words)

    # --- doing ---------------------------------------------------------------------------------

    def _do(self, change: Change) -> None:
        """One command; how it went is told."""
        self._show(" ".join(shell_word(word) for word in change.command))
        if self._is_dry:
            return
        outcome, words = "done", change.doing.value
        try:
            output = self._host.run(change.command, COMMAND_SECONDS)
            if output.status or output.is_cut:
                said = (output.complaints or output.text).decode("utf-8", "replace").strip()
                outcome, words = "failed", f"scontrol ({output.status}): {printable(said)[:300]}"
        except HostError as error:
            outcome, words = "failed", str(error)
        log.log(
            logging.INFO if outcome == "done" else logging.ERROR,
            "%s %s: %s (action %s)",
            change.doing,
            change.node,
            words if outcome == "failed" else outcome,
            change.action,
        )
        self._tell(Note(action=change.action, node=change.node, outcome=outcome, words=words))

    def _tell(self, note: Note) -> None:
        """Let the service know, once; a service that does not hear it is told again."""
        said = (note.outcome, note.words)
        if self._is_dry or self._told.get(note.action) == said:
            return
        body = {
            "executor": EXECUTOR,
            "outcome": note.outcome,
            "words": f"{note.node}: {note.words}",
        }
        try:
            self._service.send("POST", f"/v1/actions/{quoted(note.action)}/applied", body)
        except ServiceError as error:
            log.warning("action %s: the service was not told: %s", note.action, error)
            return
        if len(self._told) >= TOLD_MAX:
            self._told.clear()
        self._told[note.action] = said


NOT_FOUND = 404
TOLD_MAX = 10_000
"""Actions whose last word is remembered; past it all are told once more."""


def shell_word(word: str) -> str:
    """A word as it would be typed.

    >>> shell_word("Reason=fabricscope:a1 slow"), shell_word("State=DRAIN")
    ('"Reason=fabricscope:a1 slow"', 'State=DRAIN')
    """
    return f'"{word}"' if " " in word else word
