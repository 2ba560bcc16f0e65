"""The policy in force: a file that operators may edit while the service runs."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from alerts.policy.file import read_policy
from alerts.policy.model import Policy
from collector.contract.errors import SettingsError
from collector.contract.units import NS

log = logging.getLogger(__name__)

SHIPPED = "shipped"
"""The policy's name where no file is set."""
SETTLED_SECONDS = 1.0
"""A file that was written less long ago may be half of what it will be, and half a policy may be a
valid one."""


Stamp = tuple[int, int]
"""When a file was changed (unix nanoseconds), and its size."""


class PolicyFile:
    """Reads the file again when it has changed; a broken file leaves the policy as it was."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.policy = read_policy(path)
        self.problem = ""
        """What is wrong with the file on disk; empty: nothing."""
        self._stamp = self._look()

    def refresh(self) -> Policy:
        stamp = self._look()
        if stamp == self._stamp or is_being_written(stamp):
            return self.policy
        self._stamp = stamp
        try:
            self.policy = read_policy(self.path)
        except SettingsError as error:
            self.problem = str(error)
            log.error("the policy stays as it was: %s", error)  # noqa: TRY400 - the message suffices
        else:
            self.problem = ""
            log.info("policy %s was read anew: mode %s", self.path, self.policy.mode)
        return self.policy

    def _look(self) -> Stamp | None:
        """Changes when the file does; None: there is no file."""
        if not self.path:
            return None
        try:
            status = Path(self.path).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size


def is_being_written(stamp: Stamp | None) -> bool:
    """A file from the future, by another machine's clock, is taken as it is."""
    return stamp is not None and 0 <= time.time_ns() - stamp[0] < SETTLED_SECONDS * NS
