"""Which configuration of the service an agent runs, on disk: the last good one, and a trial.

    <spool_dir>/configuration/state.json      the good version, the trial, what failed before
    <spool_dir>/configuration/<version>.toml  documents: of the good version and of the trial

Every step is one rename, synced to the disk. A trial is in the state before the first setting of
it is used, and an agent that starts and finds one there breaks it off before it reads any
document: whatever ended the agent, it comes up with the last good configuration.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import msgspec

from collector.contract.errors import SettingsError
from collector.contract.rollout import DOCUMENT_BYTES_MAX, LOCAL_VERSION, Outcome, digest_of

TRIES_MAX = 3
"""Trials of one version that may be broken off (a restart, a service that is away) before the
version counts as failed here: a configuration that kills the agent must not be tried for ever."""
FAILED_KEPT_MAX = 16
"""Versions that an agent remembers not to try again."""
STATE_BYTES_MAX = 64 << 10

log = logging.getLogger(__name__)


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What the file holds. `good` 0: the host's own file alone."""

    good: int = LOCAL_VERSION
    good_sha256: str = ""
    trying: int | None = None
    trying_sha256: str = ""
    tried: int = LOCAL_VERSION
    """The version that was tried last, and how often its trials were broken off or run."""
    tries: int = 0
    failed: dict[int, str] = {}
    """Why, by version; the latest."""


class Keeper:
    """The state on disk. For any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.RLock()
        self._state = self._read()

    @property
    def state(self) -> State:
        return self._state

    @property
    def version(self) -> int:
        """The one to run now."""
        state = self._state
        return state.good if state.trying is None else state.trying

    def recover(self) -> tuple[int, Outcome, str] | None:
        """At a start: break off the trial that the last process left; its version and outcome."""
        trying = self._state.trying
        if trying is None:
            return None
        why = "the agent ended during the trial"
        return trying, self.interrupted(trying, why), why

    def document(self) -> bytes | None:
        """The document to run; None: the host's own file alone. SettingsError if it is damaged."""
        with self._lock:
            state, version = self._state, self.version
            sha256 = state.good_sha256 if state.trying is None else state.trying_sha256
        if version == LOCAL_VERSION:
            return None
        path = self._path(version)
        try:
            with path.open("rb") as opened:
                document = opened.read(DOCUMENT_BYTES_MAX + 1)
        except OSError as error:
            raise SettingsError(f"{path}: {error.strerror}") from error
        if digest_of(document) != sha256:
            raise SettingsError(f"{path} is not what the service sent: its SHA-256 differs")
        return document

    # --- steps -------------------------------------------------------------------------------

    def begin(self, version: int, document: bytes) -> None:
        """Keep the document and that it is tried; nothing of it is used before this returns."""
        with self._lock:
            if version != LOCAL_VERSION:
                self._write(self._path(version), document)
            tries = self._state.tries + 1 if self._state.tried == version else 1
            sha256 = digest_of(document) if version != LOCAL_VERSION else ""
            self._change(trying=version, trying_sha256=sha256, tried=version, tries=tries)

    def passed(self, version: int) -> bool:
        """The trial of this version is good; False if another one has begun meanwhile."""
        with self._lock:
            state = self._state
            if state.trying != version:
                return False
            failed = {each: why for each, why in state.failed.items() if each != version}
            self._change(
                good=version,
                good_sha256=state.trying_sha256,
                failed=failed,
                tries=0,
                **NO_TRIAL,
            )
            self._tidy()
            return True

    def failed(self, version: int, why: str) -> None:
        """Do not try this version again; the good one is to be run."""
        with self._lock:
            latest = [*((n, w) for n, w in self._state.failed.items() if n != version)]
            failed = dict([*latest, (version, why)][-FAILED_KEPT_MAX:])
            trial = {} if self._state.trying not in {version, None} else NO_TRIAL
            self._give_up(failed=failed, **trial)
            self._tidy()

    def interrupted(self, version: int, why: str) -> Outcome:
        """Break the trial off without proof; FAILED if that happened too often."""
        with self._lock:
            if self._state.tried == version and self._state.tries >= TRIES_MAX:
                self.failed(version, f"{why}; it was tried {self._state.tries} times")
                return Outcome.FAILED
            self._give_up(**NO_TRIAL)
            self._tidy()
            return Outcome.INTERRUPTED

    def forget_good(self) -> None:
        """The good document cannot be used any more: run the host's own file alone."""
        with self._lock:
            self._give_up(good=LOCAL_VERSION, good_sha256="")

    # --- the disk ----------------------------------------------------------------------------

    def _change(self, **values: object) -> None:
        state = msgspec.structs.replace(self._state, **values)
        self._write(self._folder / "state.json", msgspec.json.encode(state))
        self._state = state

    def _give_up(self, **values: object) -> None:
        """As `_change`, and in memory alone where the disk fails: going back waits for no disk.

        The trial is still in the file then, and the next start breaks it off.
        """
        try:
            self._change(**values)
        except SettingsError as error:
            log.warning("%s", error)
            self._state = msgspec.structs.replace(self._state, **values)

    def _read(self) -> State:
        """The state; a new one if there is none, or none that can be read."""
        path = self._folder / "state.json"
        try:
            with path.open("rb") as opened:
                return msgspec.json.decode(opened.read(STATE_BYTES_MAX), type=State)
        except FileNotFoundError:
            return State()
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            log.warning("%s cannot be read, and begins anew: %s", path, error)
            return State()

    def _path(self, version: int) -> Path:
        return self._folder / f"{version}.toml"

    def _write(self, path: Path, content: bytes) -> None:
        """Replace the file as a whole, also over a power cut. SettingsError if it cannot be."""
        temporary = path.with_name(f"{path.name}.writing")
        try:
            self._folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            with temporary.open("wb") as opened:
                opened.write(content)
                opened.flush()
                os.fsync(opened.fileno())
            temporary.replace(path)
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise SettingsError(f"{path} cannot be written: {error.strerror}") from error

    def _tidy(self) -> None:
        """Remove documents that no step needs; one that cannot be removed is removed later."""
        needed = {f"{self._state.good}.toml", f"{self._state.trying}.toml", "state.json"}
        try:
            for path in self._folder.iterdir():
                if path.name not in needed:
                    path.unlink()
        except OSError as error:
            log.debug("old configurations stay: %s", error)


NO_TRIAL: dict[str, object] = {"trying": None, "trying_sha256": ""}
