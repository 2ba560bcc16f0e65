"""What `diagnose` says while it works, on a terminal and elsewhere."""

from __future__ import annotations

import io
from unittest.mock import patch

from api.diagnose import progress
from api.diagnose.progress import CLEAR, Phases
from tests.stands.service import eventually


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_what_is_done_and_for_how_long() -> None:
    terminal, now_s = Terminal(), [100.0]
    with patch.object(progress, "TICK_SECONDS", 0.001):
        phases = Phases(terminal, clock=lambda: now_s[0])
        phases.say("looking for faults")
        # Once, or already again: the line is drawn anew every millisecond here.
        assert set(terminal.getvalue().split(CLEAR)) == {"", "looking for faults"}
        now_s[0] += 18
        eventually(
            lambda: terminal.getvalue().endswith("looking for faults, 18 s"), "the line moves"
        )
        phases.say("summing up")
        assert f"{CLEAR}summing up" in terminal.getvalue()
        phases.clear()
    said = terminal.getvalue()
    assert said.endswith(CLEAR)
    now_s[0] += 5
    assert terminal.getvalue() == said, "nothing is written into the report"


def test_a_file_gets_nothing() -> None:
    file = io.StringIO()
    phases = Phases(file)
    phases.say("looking for faults")
    phases.clear()
    assert file.getvalue() == ""
