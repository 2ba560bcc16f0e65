"""The policy in force: a file that operators may edit while the service runs."""

from __future__ import annotations

import logging
from pathlib import Path

from alerts.policy.file import read_policy
from alerts.policy.model import Policy
from api.base.edited import Stamp, is_being_written, stamp_of
from collector.contract.errors import SettingsError

log = logging.getLogger(__name__)

SHIPPED = "shipped"
"""The policy's name where no file is set."""


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
        return stamp_of(Path(self.path)) if self.path else None
