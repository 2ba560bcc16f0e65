"""The rotating part of the long proofs: what a run takes, and that nothing is left out for long."""

import os
import subprocess
from pathlib import Path
from typing import Any, cast

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests import conftest
from tests.tools.cut import ALL, EXAMPLES_MIN, VARIABLE, Cut, commits, current, parse

COUNTS = st.integers(1, 40)
MOMENTS = st.integers(0, 100_000)


@given(COUNTS, MOMENTS, MOMENTS)
def test_every_part_is_taken_within_as_many_days_and_within_as_many_commits(
    parts: int, day: int, commit: int
) -> None:
    by_day = [Cut(day + later, commit) for later in range(parts)]
    by_commit = [Cut(day, commit + later) for later in range(parts)]
    for cuts in (by_day, by_commit):
        assert sorted(part for cut in cuts for part in cut.parts(parts)) == list(range(parts))


@given(COUNTS, MOMENTS, MOMENTS, st.integers(0, 200), st.text())
def test_every_case_runs_in_one_of_so_many_runs(
    parts: int, day: int, commit: int, cases: int, name: str
) -> None:
    numbers = list(range(cases))
    taken = [Cut(day, commit + run).choose(numbers, parts, name) for run in range(parts)]
    assert sorted({case for run in taken for case in run}) == numbers
    assert all(run == sorted(run) for run in taken)
    # A run takes one part: that is what makes it short.
    assert all(len(run) <= -(-cases // parts) for run in taken)


def test_all_takes_everything() -> None:
    cut = parse(ALL)
    assert cut.choose("abcdefg", 3) == list("abcdefg")
    assert cut.parts(4) == [0, 1, 2, 3]
    assert cut.examples(300) == 300


def test_a_cut_tries_fewer_examples_but_some() -> None:
    assert Cut(1, 1).examples(300) == 60
    assert Cut(1, 1).examples(12) == EXAMPLES_MIN
    assert Cut(1, 1).examples(3) == 3


def test_a_cut_is_repeated_by_what_it_prints() -> None:
    for cut in (Cut(20_400, 1_500), Cut(0, 0, is_all=True)):
        assert parse(str(cut)) == cut
        assert parse(str(cut)).seed == cut.seed
    assert Cut(1, 2).seed != Cut(2, 1).seed


@pytest.mark.parametrize("text", ["", "1", "1.2.3", "ALL", "-1.2"])
def test_what_is_no_cut_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be 'all' or DAY\.COMMIT"):
        parse(text)


def test_processes_that_a_run_starts_have_its_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    assert os.environ.get(VARIABLE) is None
    cut = current()
    assert os.environ[VARIABLE] == str(cut)
    assert not cut.is_all
    monkeypatch.setattr("tests.tools.cut.time.time", lambda: 0.0)
    assert current() == cut


def test_commits_are_counted_and_merges_once(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    assert commits(tmp_path) == 0
    git("init", "--initial-branch=main")
    for _ in range(2):
        git("commit", "--allow-empty", "--message=x")
    git("checkout", "-b", "other")
    for _ in range(3):
        git("commit", "--allow-empty", "--message=y")
    git("checkout", "main")
    git("merge", "--no-ff", "--no-edit", "other")
    assert commits(tmp_path) == 3


# --- the marker ---------------------------------------------------------------------------------


class FakeItem:
    """A test that was collected."""

    def __init__(self, nodeid: str, *marker: object, **named: object) -> None:
        self.nodeid = nodeid
        self.markers = [pytest.mark.rotating(*marker, **named).mark] if marker else []

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        assert name == "rotating"
        return self.markers


class FakeConfig:
    """Notes what was left out."""

    def __init__(self) -> None:
        self.hook, self.left_out = self, list[FakeItem]()

    def pytest_deselected(self, items: list[FakeItem]) -> None:
        self.left_out += items


def kept_of(cut: Cut, items: list[FakeItem], monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The tests that a run with this cut keeps; the others are counted as deselected."""
    monkeypatch.setattr(conftest, "CUT", cut)
    config, remaining = FakeConfig(), list(items)
    conftest.keep_cut(cast("Any", config), cast("Any", remaining))
    kept, left_out = ({item.nodeid for item in some} for some in (remaining, config.left_out))
    assert kept | left_out == {item.nodeid for item in items}
    assert not kept & left_out
    return kept


def test_marked_tests_run_in_turn_and_others_always(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = [FakeItem(f"a.py::always[{n}]") for n in range(3)]
    items = [
        *plain,
        *(FakeItem(f"a.py::some[{n}]", 5) for n in range(10)),
        FakeItem("b.py::one", 3),
    ]
    names = {item.nodeid for item in items}
    runs = [kept_of(Cut(7, commit), items, monkeypatch) for commit in range(5)]
    assert set.union(*runs) == names
    assert all({item.nodeid for item in plain} <= run for run in runs)
    assert max(map(len, runs)) <= 3 + 2 + 1
    assert kept_of(parse(ALL), items, monkeypatch) == names


def test_functions_with_one_name_take_the_same_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [FakeItem(f"a.py::{test}[{n}]", 6, "views") for test in "xy" for n in range(18)]
    kept = kept_of(Cut(3, 20), items, monkeypatch)
    cases = [{name.partition("[")[2] for name in kept if f"::{test}[" in name} for test in "xy"]
    assert cases[0] == cases[1]
    assert len(cases[0]) == 3


def test_of_dear_tests_with_turns_no_run_has_two(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [FakeItem(f"a.py::dear{turn}", 3, turn=turn) for turn in range(3)]
    runs = [kept_of(Cut(7, commit), items, monkeypatch) for commit in range(3)]
    assert sorted(map(len, runs)) == [1, 1, 1]
    assert set.union(*runs) == {item.nodeid for item in items}
