"""The bench of views: what a load came to, what it cost, and how one that does not end is told."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.bench import views
from tests.bench.player import Played
from tests.bench.processes import tree_cpu_seconds, tree_of
from tests.bench.recording import CYCLE_MS, CYCLE_TICKS, TICK_SECONDS, Recording, record
from tests.bench.shown import Answer, HowFar, Load, load_of
from tests.bench.views import Cost, Measured, Plan, result_of
from tests.stands.browser import STREAM
from tests.stands.service import eventually

SPIN = "import sys, time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\n"
PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, '-c', {SPIN!r}])
sys.stdin.read()
"""
HOSTS, GPUS = 4, 1


def answer(path: str, began: float, ended: float) -> Answer:
    return Answer(f"http://host{path}", began, ended, waited=ended - began, packed=10, size=20)


def test_a_view_is_complete_when_its_last_answer_has_come() -> None:
    far = HowFar(first=400.0, complete=900.0, open=[f"http://host{STREAM}"])
    load = load_of(far, [answer("/v1/jobs?from=1", 100.0, 1_200.0), answer(STREAM, 50.0, 0.0)])
    assert (load.first, load.complete, load.waits) == (0.4, 1.2, [])


def test_what_the_pulse_asks_after_a_view_was_complete_is_no_part_of_it() -> None:
    first, again = answer("/v1/jobs?from=1", 100.0, 800.0), answer("/v1/jobs?from=2", 950.0, 9e3)
    load = load_of(HowFar(first=400.0, complete=900.0), [again, first])
    assert load.complete == 0.9
    assert load.answers == [first]


def test_a_view_that_waits_at_its_limit_is_not_complete_and_says_for_what() -> None:
    far = HowFar(first=400.0, waits=["Asking for the heat map"], open=["http://host/v1/heat?a=1"])
    load = load_of(far, [answer("/v1/jobs", 100.0, 800.0)])
    assert (load.first, load.complete) == (0.4, None)
    assert load.waits == ["Asking for the heat map", "/v1/heat"]


def test_a_question_without_an_answer_keeps_a_view_from_being_complete() -> None:
    far = HowFar(first=400.0, complete=900.0, open=["http://host/v1/heat?a=1"])
    assert load_of(far, []).complete is None


def measured(first: float | None, complete: float | None, *waits: str) -> Measured:
    load = Load(first=first, complete=complete, busy=0.1, answers=[], waits=list(waits))
    return Measured(load, Cost(seconds=4.0, service=3.0, browser=2.0, player=0.5))


def test_rows_tell_apart_who_paid_and_what_no_page_costs() -> None:
    found = {
        "fine": [measured(0.5, 2.0), measured(0.6, 1.0)],
        "late": [measured(0.5, 2.6), measured(0.5, 2.4)],
        "blank": [measured(None, None, "the page"), measured(2.0, 9.0)],
    }
    idle = Cost(seconds=10.0, service=5.0, browser=0.0, player=1.0)
    result = result_of(Plan(hosts=16), idle, found, "a note", is_quick=False)
    rows = {
        row[0]: dict(zip(result.tables[0].columns, row, strict=True))
        for row in result.tables[0].rows
    }
    assert rows["fine"]["complete"] == "2.00 s"  # of two loads the worse
    assert [rows[name]["budget"] for name in found] == ["met", "missed", "missed"]
    assert rows["blank"]["complete"] == "not in 30 s"
    assert rows["fine"]["CPU: service"] == "3.00 s"
    assert rows["fine"]["idle"] == "2.00 s"  # half a core for four seconds
    assert result.notes == ["a note", "blank did not end; it awaits the page"]
    assert [bar.value for bar in result.bars] == [16.0, 30.0]
    assert not any(bar.is_met for bar in result.bars)


def test_the_note_says_what_the_idle_service_took_and_how_the_player_fared() -> None:
    idle = Cost(seconds=10.0, service=5.0, browser=0.0, player=1.0)
    note = views.note_of(idle, Played(sent=1_234, refused=2, late_seconds=3.0), 512.0)
    assert "took 0.50 cores and the player 0.10; 512 MiB; 1,234 batches, 2 refused, 3 s" in note


def test_the_cpu_time_of_a_tree_has_children_that_ended_and_not_those_left_out() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE) as parent:
        try:
            assert parent.pid in tree_of(os.getpid())
            assert parent.pid not in tree_of(os.getpid(), {parent.pid})
            others = tree_cpu_seconds(os.getpid(), {parent.pid})
            eventually(
                lambda: tree_cpu_seconds(os.getpid()) - others >= 0.3, "the child's CPU time counts"
            )
        finally:
            parent.kill()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("recording") / "two.rec"
    record(HOSTS, file, GPUS)
    return file


def test_a_recording_goes_on_from_any_tick(recording: Path) -> None:
    held = Recording(recording)
    start_ms = 1_700_000_000_000
    for cycle, tick in ((0, 3), (31, 3)):
        batches = list(held.batches(cycle, tick, start_ms))
        due_ms = start_ms + cycle * CYCLE_MS + tick * TICK_SECONDS * 1000
        times = np.concatenate([np.frombuffer(one.time_ms, dtype="<i8") for one in batches])
        assert due_ms - TICK_SECONDS * 1000 <= times.min() <= times.max() <= due_ms + 5_000
    first, later = (sequences(held, cycle, start_ms) for cycle in (0, 31))
    assert not first & later, "no batch is a resend of another"


def sequences(held: Recording, cycle: int, start_ms: int) -> set[tuple[str, int]]:
    ticks = range(CYCLE_TICKS)
    return {
        (one.agent, one.sequence) for tick in ticks for one in held.batches(cycle, tick, start_ms)
    }


def test_who_does_not_read_sends_no_table(recording: Path) -> None:
    held = Recording(recording)
    read, unread = (len(b"".join(held.played(1, tick, 0, 2))) for tick in (0, 1))
    whole = len(b"".join(held.played(1, 0, 0)))
    assert read < whole
    assert unread < whole
