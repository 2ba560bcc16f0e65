"""Work in a thread that may become useless while it runs, because its askers have left.

A thread cannot be ended from outside, but nearly all of its time goes into questions to the store,
and those can be: the store tags what it is asked during an errand, refuses the next question of one
that was stopped, and ends the question that runs.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextvars import ContextVar

from collector.contract.errors import StoreError


class ErrandStopped(StoreError):  # noqa: N818 - reads as the statement it is
    """The askers of this answer have left."""


class Errand:
    """For any thread."""

    def __init__(self) -> None:
        self.tag = f"errand-{uuid.uuid4().hex}"
        self._stopped = threading.Event()
        self._end: Callable[[str], None] | None = None

    def begin(self, end: Callable[[str], None]) -> str:
        """The tag for a question that begins now; ``end`` ends questions by their tag."""
        if self._stopped.is_set():
            raise ErrandStopped("those who asked for this answer have left")
        self._end = end
        return self.tag

    def stop(self) -> None:
        """End the question that runs, and begin no other; may be called again."""
        self._stopped.set()
        if self._end is not None:
            self._end(self.tag)


ERRAND: ContextVar[Errand | None] = ContextVar("errand", default=None)
"""What the current task or thread works for; None: work that goes on when askers leave."""
