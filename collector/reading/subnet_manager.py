"""Which subnet manager is master of a fabric, asked with `sminfo` over the fabric itself.

For `collector.sources.ib_fabric`. The question goes to the address that this host's own port holds
for the subnet manager: while a new master has not reached the port, nothing answers there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from collector.contract.errors import HostError
from collector.contract.model import Event, Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.parsing.subnet_manager import MASTER, Manager, parse_sminfo
from collector.reading.infiniband import Programs, explain_failure

CHANGED = "subnet_manager_changed"
"""The kind of event: another subnet manager is master than before."""


class Managers:
    """The master of one fabric over time."""

    def __init__(self, through: str) -> None:
        self._labels = {"through": through}
        self.master = ""
        """GUID of the last one that answered; it outlives a restart of the agent."""
        self.changes = 0
        self._info: Series | None = None
        self._up = Series("fabric_subnet_manager_up", self._labels)
        self._changes = Series("fabric_subnet_manager_changes_total", self._labels)
        self._activity = Series("fabric_subnet_manager_activity_total", self._labels)

    def read(
        self, programs: Programs, name_of: Callable[[str], str], time_ns: int
    ) -> Iterator[Reading]:
        """Who is master, or that none answers; an event when it is another one than before."""
        try:
            output = programs.run("sminfo")
        except HostError as error:
            yield Missing(self._up, error.reason, f"sminfo: {error.detail}")
            return
        found = parse_sminfo(output.text)
        if found is None or found.state != MASTER:
            reason, detail = explain_failure(output)
            if found is None and reason is not UnreadReason.TIMEOUT:
                # The program itself failed: that is no word about the manager.
                yield Missing(self._up, reason, f"sminfo: {detail}")
                return
            yield Sample(self._up, 0, time_ns)
            yield Missing(self._activity, reason, f"no master answers: {detail}")
        else:
            yield from self._note(found, name_of(found.guid), time_ns)
        yield Sample(self._changes, self.changes, time_ns)

    def _note(self, found: Manager, name: str, time_ns: int) -> Iterator[Reading]:
        if self.master and found.guid != self.master:
            self.changes += 1
            yield Event(
                kind=CHANGED,
                time_ns=time_ns,
                labels=dict(self._labels),
                message=(
                    f"The subnet manager has changed: {name or found.guid} is master now, and"
                    f" {self.master} was before."
                ),
                attributes={
                    "guid": found.guid,
                    "name": name,
                    "priority": str(found.priority),
                    "before": self.master,
                },
            )
        self.master = found.guid
        facts = {"guid": found.guid, "name": name, "priority": str(found.priority)}
        info = Series("fabric_subnet_manager_info", self._labels | facts)
        if self._info != info:
            self._info = info
        yield Sample(self._up, 1, time_ns)
        yield Sample(self._info or info, 1, time_ns)
        yield Sample(self._activity, found.activity, time_ns)
