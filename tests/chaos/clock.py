"""A clock of its own for one program: libfaketime, with the wall clock set by a file."""

from __future__ import annotations

from pathlib import Path

from tests.tools import peers

PEER = "libfaketime.so"


class FakeClock:
    """The wall clock of a program, which steps when a case wants; its monotonic one does not."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.step(0)

    def step(self, seconds: int) -> None:
        """Be so far ahead of the machine's clock, from within a second on."""
        whole = self._file.with_suffix(".new")
        whole.write_text(f"{seconds:+d}\n")
        whole.replace(self._file)

    @property
    def inside(self) -> list[str]:
        """The words that run a program by this clock."""
        return [
            "env",
            f"LD_PRELOAD={peers.find(PEER)}",
            f"FAKETIME_TIMESTAMP_FILE={self._file}",
            "FAKETIME_CACHE_DURATION=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
            "DONT_FAKE_MONOTONIC=1",
        ]
