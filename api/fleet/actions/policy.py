"""The policy in force: a file that people mend while the service runs."""

from __future__ import annotations

import logging
from pathlib import Path

from alerts.policy.file import read_policy
from alerts.policy.model import Policy
from collector.contract.errors import SettingsError

log = logging.getLogger(__name__)

SHIPPED = "shipped"
"""The name of the policy of whoever has set no file."""


class PolicyFile:
    """Reads the file anew when it has changed; one that is broken leaves the policy as it was."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.policy = read_policy(path)
        self.problem = ""
        """What is wrong with the file as it lies there; empty: nothing."""
        self._stamp = self._look()

    def refresh(self) -> Policy:
        """The policy now."""
        stamp = self._look()
        if stamp == self._stamp:
            return self.policy
        self._stamp = stamp
        try:
            self.policy = read_policy(self.path)
        except SettingsError as error:
            self.problem = str(error)
            log.error("the policy stays as it was: %s", error)  # noqa: TRY400 - it says all
        else:
            self.problem = ""
            log.info("policy %s was read anew: mode %s", self.path, self.policy.mode)
        return self.policy

    def _look(self) -> tuple[int, int] | None:
        """What changes when the file does; None: it is not there."""
        if not self.path:
            return None
        try:
            status = Path(self.path).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size
