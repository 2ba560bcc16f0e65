"""Lines that processes wrote to files while the agent of their host was dead.

An agent saves its position in every log and continues there after a restart: records and marks come
late, and none is missing. A production agent then reads some megabytes a second; here all comes at
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, Self, TypeVar

from simulator.readings.records import Places
from simulator.topology.model import Bools

HISTORY_SECONDS = 3600.0
"""How long unread lines are kept: as far back as an agent reads in a file that it sees for the
first time. An agent that was away for longer would find older lines, too; they are left out to save
memory: a host of 8 ranks with 100 operations a second each has 250 MB an hour."""


class Written(Protocol):
    """Some lines of logs, of ranks on different hosts."""

    @property
    def host(self) -> Places: ...
    def select(self, which: Bools) -> Self: ...


WrittenT = TypeVar("WrittenT", bound=Written)


class Unread(Generic[WrittenT]):
    """Lines that wait for their agents, in the order in which they were written."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, WrittenT]] = []
        """With the true time of the tick at which they were written."""

    def read(self, fresh: Iterable[WrittenT], time_s: float, is_read: Bools) -> Iterator[WrittenT]:
        """Lines for the agents that read now; the rest stays."""
        before, self._waiting = self._waiting, []
        if is_read.all() and not before:
            yield from fresh
            return
        for since_s, written in (*before, *((time_s, each) for each in fresh)):
            is_found = is_read[written.host]
            if is_found.any():
                yield written.select(is_found)
            if not is_found.all() and since_s >= time_s - HISTORY_SECONDS:
                self._waiting.append((since_s, written.select(~is_found)))
