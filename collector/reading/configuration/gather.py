"""Gathers facts under their bounds, and what could not be read."""

from __future__ import annotations

import re

from collector.audit.facts import (
    DEVICE_CHARACTERS_MAX,
    FACTS_MAX,
    ORIGIN_CHARACTERS_MAX,
    VALUE_CHARACTERS_MAX,
    Fact,
    Facts,
    Unread,
    listed,
)
from collector.contract.errors import HostError
from collector.contract.identity import printable
from collector.contract.reason import UnreadReason
from collector.doors.host import Host

COMMAND_SECONDS = 2.0
"""One program's time. They read a few kilobytes from the kernel; `mlnx_qos` starts a Python."""
COMMANDS_SECONDS = 12.0
"""All programs' time in one read: sixteen NICs with three programs each, 0.1 s a program, twice."""
UNREAD_MAX = 256
"""Settings that are named as unread; alike ones of several devices are one."""
TEXT_BYTES_MAX = 64 << 10
"""Read of a program's output."""


class Gatherer:
    """Collects the facts of one read of one host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._facts: dict[tuple[str, str], Fact] = {}
        self._unread: dict[tuple[str, UnreadReason, str], list[str]] = {}
        self.left_out = 0
        self._absent: set[str] = set()
        self._deadline_ns = host.monotonic_ns() + int(COMMANDS_SECONDS * 1_000_000_000)

    def add(self, device: str, setting: str, value: str, origin: str) -> None:
        """Keep a fact; an empty value is no fact, and of two about the same the first is kept."""
        text = printable(value.strip())[:VALUE_CHARACTERS_MAX]
        name = printable(device)[:DEVICE_CHARACTERS_MAX]
        if not text or (name, setting) in self._facts:
            return
        if len(self._facts) >= FACTS_MAX:
            self.left_out += 1
            return
        shown = printable(origin)[:ORIGIN_CHARACTERS_MAX]
        self._facts[name, setting] = Fact(name, setting, text, shown)

    def miss(self, device: str, setting: str, reason: UnreadReason, detail: str) -> None:
        key = setting, reason, printable(detail)[:VALUE_CHARACTERS_MAX]
        if key in self._unread or len(self._unread) < UNREAD_MAX:
            self._unread.setdefault(key, []).append(printable(device)[:DEVICE_CHARACTERS_MAX])

    def refused(self, device: str, setting: str, error: HostError) -> None:
        """Note a refusal, unless it is only that this machine has no such thing."""
        if error.reason is not UnreadReason.ABSENT:
            self.miss(device, setting, error.reason, error.detail)

    def read(self, path: str) -> str:
        """A file's text, stripped; HostError if it cannot be read."""
        return self.host.read(path).decode("utf-8", "replace").strip()

    def text(self, device: str, setting: str, path: str) -> str:
        """The text of a file that need not be there, kept as a fact; empty if it is not."""
        try:
            value = self.read(path)
        except HostError as error:
            self.refused(device, setting, error)
            return ""
        self.add(device, setting, value, path)
        return value

    def matched(self, device: str, setting: str, path: str, pattern: re.Pattern[str]) -> str:
        """As `text`, for a file whose text must have a shape; the first group is the value."""
        try:
            value = self.read(path)
        except HostError as error:
            self.refused(device, setting, error)
            return ""
        found = pattern.fullmatch(value)
        if found is None:
            self.miss(device, setting, UnreadReason.UNPARSEABLE, f"{value[:40]!r} in {path}")
            return ""
        self.add(device, setting, found[1], path)
        return found[1]

    def run(self, setting: str, *words: str) -> str:
        """A program's output; empty if it is not installed (reported once) or prints nothing."""
        program = words[0]
        if program in self._absent:
            return ""
        if self.host.monotonic_ns() >= self._deadline_ns:
            self.miss("", setting, UnreadReason.TIMEOUT, "programs took over COMMANDS_SECONDS")
            return ""
        try:
            output = self.host.run(words, COMMAND_SECONDS)
        except HostError as error:
            if error.reason is UnreadReason.ABSENT and not error.path.startswith("commands/"):
                self._absent.add(program)
            self.miss("", setting, error.reason, f"{program}: {error.detail}")
            return ""
        if output.status != 0 or output.is_cut:
            complaint = output.complaints[:80].decode("utf-8", "replace").strip()
            reason = UnreadReason.TIMEOUT if output.is_cut else UnreadReason.NOT_SUPPORTED
            self.miss("", setting, reason, f"{' '.join(words)}: {complaint or output.status}")
            return ""
        return output.text[:TEXT_BYTES_MAX].decode("utf-8", "replace")

    def can_run(self, program: str) -> bool:
        """False once the program was found to be missing."""
        return program not in self._absent

    def finish(self) -> Facts:
        """The facts, and what could not be read; what several devices share is reported once."""
        unread = []
        settings = {setting for _, setting in self._facts}
        for (setting, reason, detail), devices in self._unread.items():
            named = [each for each in dict.fromkeys(devices) if (each, setting) not in self._facts]
            named = [each for each in named if each]
            if not named and ("" not in devices or setting in settings):
                continue  # another place has given it
            device = named[0] if len(named) == 1 else ""
            text = f"{listed(named)}: {detail}" if len(named) > 1 else detail
            unread.append(Unread(device, setting, reason, text))
        merged: dict[tuple[str, str], Unread] = {}
        for each in unread:
            merged.setdefault((each.device, each.setting), each)
        return Facts(self.host.name, self._facts.values(), merged.values(), self.left_out)
