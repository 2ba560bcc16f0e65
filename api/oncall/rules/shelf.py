"""Which rules there are: those of the pack that is shipped, and those of a folder of the user's.

Files are checked every few seconds. One that changed is read again; one that cannot be used is
reported, and its last valid rules stay in force, while the others are loaded.
"""

from __future__ import annotations

import enum
import logging
import stat
import threading
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from alerts.rulebook.file import RULE_FILE_BYTES_MAX, parse_rules
from alerts.rulebook.knobs import fill_pack
from alerts.rulebook.model import Group
from api.base.edited import Stamp, is_being_written, stamp_of
from api.base.limits import RULE_FILES_MAX, RULE_GROUPS_MAX, RULES_MAX
from api.base.metrics import ServiceMetrics
from api.oncall.rules.files import problems_of
from api.oncall.rules.settings import RuleSettings
from collector.contract.errors import FabricscopeError, RuleFileError, SettingsError

PACK = "fabricscope"
"""What the names of the pack's files begin with, where a user's have their folder."""
SUFFIXES = frozenset({".yaml", ".yml"})
KNOBS_BYTES_MAX = 1 << 20
"""A file of knobs: a thousand lines of their longest texts are less."""
PROBLEMS_MAX = 20
"""Rules of one file that are named as bad; more are counted."""
ERROR_CHARS_MAX = 4_000
"""Of an error that is shown: a file can have many."""
RUNBOOKS = "/runbooks"
RUNBOOK_KNOB = "runbook_base"

NO_FILE: Stamp = (0, 0, 0, 0)
"""Of what is no file: the pack without a file of knobs."""
NEVER: Stamp = (-1, 0, 0, 0)
"""Of files that were not read yet."""

log = logging.getLogger(__name__)


class FileState(enum.StrEnum):
    """The state of a rule file."""

    LOADED = "loaded"
    KEPT = "kept"
    """It cannot be used as it is now: its last valid rules are evaluated."""
    REFUSED = "refused"
    """It cannot be used, and never could: nothing of it is evaluated."""


class RuleFile(msgspec.Struct, frozen=True, kw_only=True):
    """A rule file and its state."""

    name: str
    state: FileState
    error: str = ""
    loaded_s: float | None = None
    groups: tuple[Group, ...] = ()


class Read(msgspec.Struct, frozen=True):
    """One read of a file: its text, or why there is none."""

    stamp: Stamp | None
    text: str = ""
    error: str = ""


class Shelf:
    """The rule files, as last read. For any thread. ``clock``: unix seconds."""

    def __init__(
        self, settings: RuleSettings, metrics: ServiceMetrics, clock: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._files: dict[str, RuleFile] = {}
        self._stamps: dict[str, Stamp | None] = {}
        self._folder_is_away = False
        self._left_out = 0
        self._has_looked = False
        self._changed_s = 0.0
        self._guard = threading.Lock()
        for state in FileState:
            metrics.watch(
                "fabric_service_rule_files",
                lambda state=state: float(self._count(state)),  # type: ignore[misc]
                state=state.value,
            )
        metrics.watch("fabric_service_rules_loaded_time_seconds", lambda: self._changed_s)

    @property
    def files(self) -> list[RuleFile]:
        return [self._files[name] for name in sorted(self._files)]

    @property
    def groups(self) -> list[Group]:
        """In the order of files and, in a file, of the text."""
        return [group for file in self.files for group in file.groups]

    def knows(self, file: str) -> bool:
        """Not of a file or folder that cannot be read: then nothing of it has ended."""
        found = self._files.get(file)
        if found is not None:
            return found.state is not FileState.REFUSED
        return not (self._folder_is_away and file.startswith(f"{self._settings.folder}"))

    def look(self) -> bool:
        """Check all files; whether the evaluated rules have changed."""
        with self._guard:
            before = self.groups
            self._look_at_pack()
            self._look_at_folder()
            self._has_looked = True
            changed = self.groups != before
            if changed:
                self._changed_s = self._clock()
            return changed

    def _count(self, state: FileState) -> int:
        return sum(each.state is state for each in self.files)

    # --- the pack ------------------------------------------------------------------------------

    def _look_at_pack(self) -> None:
        path = self._settings.knobs
        stamp = stamp_of(Path(path)) if path else NO_FILE
        if not self._settings.pack or self._is_as_read(path, stamp):
            return
        self._stamps[path] = stamp
        read = read_small(Path(path), KNOBS_BYTES_MAX) if path else Read(stamp)
        try:
            texts = fill_pack(self._knobs(read))
            self._drop(path)
        except SettingsError as error:
            self._refuse(path, str(error))
            if self._has_pack():
                return
            texts = fill_pack(self._knobs(Read(stamp)))  # better the defaults than no rules
        for name, text in texts.items():
            self._load(f"{PACK}/{name}", text)

    def _has_pack(self) -> bool:
        return any(name.startswith(f"{PACK}/") for name in self._files)

    def _knobs(self, read: Read) -> dict[str, object]:
        """The user's knobs; runbooks are this service's, unless a knob names another address."""
        if read.error:
            raise SettingsError(read.error)
        try:
            given: dict[str, object] = tomllib.loads(read.text)
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(f"not a TOML file: {error}") from error
        given.setdefault(RUNBOOK_KNOB, self._settings.public_url + RUNBOOKS)
        return given

    # --- the user's folder ---------------------------------------------------------------------

    def _look_at_folder(self) -> None:
        if not self._settings.folder:
            return
        folder = Path(self._settings.folder)
        try:
            found = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
        except OSError as error:
            if not self._folder_is_away:
                log.warning("rules_dir %s: %s; its rules stay as they were", folder, error.strerror)
            self._folder_is_away = True
            return
        self._folder_is_away = False
        left_out = max(0, len(found) - RULE_FILES_MAX)
        if left_out > self._left_out:
            log.error(
                "rules_dir %s has %d files; RULE_FILES_MAX is %d, the last ones are not read",
                folder,
                len(found),
                RULE_FILES_MAX,
            )
        self._metrics.rule_files_left_out.inc(max(0, left_out - self._left_out))
        self._left_out = left_out
        wanted = {str(path) for path in found[:RULE_FILES_MAX]}
        for name in [name for name in self._files if self._is_users(name) and name not in wanted]:
            log.info("rule file %s is gone: its rules end", name)
            self._drop(name)
            self._stamps.pop(name, None)
        for name in sorted(wanted):
            self._look_at(name)

    def _is_users(self, name: str) -> bool:
        return not name.startswith(f"{PACK}/") and name != self._settings.knobs

    def _look_at(self, name: str) -> None:
        path = Path(name)
        stamp = stamp_of(path)
        if stamp is not None and self._is_as_read(name, stamp):
            return
        read = read_small(path, RULE_FILE_BYTES_MAX)
        self._stamps[name] = read.stamp
        if read.error:
            self._refuse(name, read.error)
        else:
            self._load(name, read.text)

    # --- either --------------------------------------------------------------------------------

    def _is_as_read(self, name: str, stamp: Stamp | None) -> bool:
        """Whether what was read still holds: also while the file is being written.

        What is there when the service starts is taken as it is: it should begin with all its rules.
        """
        known = self._stamps.get(name, NEVER)
        return known == stamp or (self._has_looked and is_being_written(stamp))

    def _load(self, name: str, text: str) -> None:
        """Take a file's rules, if all of them can be evaluated."""
        try:
            groups = tuple(read_groups(text, name))
            self._check_room(name, groups)
        except FabricscopeError as error:
            self._refuse(name, error_lines(error))
            return
        had = self._files.get(name)
        if had is not None:
            log.info("rule file %s: read again, %d groups", name, len(groups))
        self._metrics.rule_reloads.labels("done").inc()
        self._put(
            RuleFile(name=name, state=FileState.LOADED, loaded_s=self._clock(), groups=groups)
        )

    def _check_room(self, name: str, groups: Sequence[Group]) -> None:
        """Raise RuleFileError if these groups would exceed the bound on rules."""
        others = [group for file in self.files if file.name != name for group in file.groups]
        all_groups = [*others, *groups]
        rules = sum(len(group.rules) for group in all_groups)
        if len(all_groups) > RULE_GROUPS_MAX:
            detail = f"{len(all_groups)} groups in all; RULE_GROUPS_MAX is {RULE_GROUPS_MAX}"
            raise RuleFileError(name, [(0, detail)])
        if rules > RULES_MAX:
            detail = f"{rules} rules in all; RULES_MAX is {RULES_MAX}"
            raise RuleFileError(name, [(0, detail)])

    def _refuse(self, name: str, error: str) -> None:
        """Keep a file's last valid rules, and record why."""
        error = error[:ERROR_CHARS_MAX]
        had = self._files.get(name)
        if had is None or had.error != error:
            log.error("rule file %s cannot be used: %s", name, error)
            self._metrics.rule_reloads.labels("failed").inc()
        if had is None or had.loaded_s is None:
            self._put(RuleFile(name=name, state=FileState.REFUSED, error=error))
        else:
            self._put(msgspec.structs.replace(had, state=FileState.KEPT, error=error))

    def _put(self, file: RuleFile) -> None:
        """A new dict every time: others may be reading the old one."""
        self._files = {**self._files, file.name: file}

    def _drop(self, name: str) -> None:
        self._files = {known: file for known, file in self._files.items() if known != name}


# --- reading ------------------------------------------------------------------------------------


def read_small(path: Path, bytes_max: int) -> Read:
    """A regular file's text, if it is not too large."""
    stamp = stamp_of(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for, for ever
            return Read(stamp, error="not a plain file")
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
        if len(data) > bytes_max:
            return Read(stamp, error=f"over {bytes_max} bytes; a file has at most so many")
        return Read(stamp, text=data.decode())
    except OSError as error:
        return Read(stamp, error=error.strerror or str(error))
    except UnicodeDecodeError as error:
        return Read(stamp, error=f"not UTF-8 text: {error}")


def read_groups(text: str, name: str) -> list[Group]:
    """The groups of a file, every rule of which can be evaluated. Raises RuleFileError."""
    groups = parse_rules(text, name)
    problems = [
        (rule.line, f"group {group.name!r}, rule {rule.name!r}: {problem}")
        for group in groups
        for rule in group.rules
        for problem in problems_of(rule)
    ]
    if problems:
        left_out = max(0, len(problems) - PROBLEMS_MAX)
        raise RuleFileError(name, problems[:PROBLEMS_MAX], left_out)
    return groups


def error_lines(error: FabricscopeError) -> str:
    """An error with everything that is wrong with a file, a line each."""
    if not isinstance(error, RuleFileError):
        return str(error)
    lines = [f"line {line}: {detail}" if line else detail for line, detail in error.problems]
    more = [f"and {error.left_out} more"] if error.left_out else []
    return "\n".join([*lines, *more])
