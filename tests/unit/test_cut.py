"""The rotating part of the long proofs: what a run takes, and that nothing is left out for long."""

import os
import subprocess
from pathlib import Path
from typing import Any, ClassVar, cast

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests import conftest
from tests.tools.cut import (
    ALL,
    DEAR,
    EXAMPLES_MIN,
    SHARES,
    VARIABLE,
    Cut,
    DearFile,
    commits,
    current,
    parse,
    read_table,
)

COUNTS = st.integers(1, 40)
MOMENTS = st.integers(0, 100_000)


@given(COUNTS, MOMENTS, MOMENTS)
def test_each_share_of_the_files_takes_every_part_within_so_many_days_or_commits(
    parts: int, day: int, commit: int
) -> None:
    runs = range(SHARES * parts)
    dear = {name: DearFile(name, 1.0, is_always=False) for name in "abc"}
    for cuts in ([Cut(day + n, commit) for n in runs], [Cut(day, commit + n) for n in runs]):
        taken = [
            (file, part) for cut in cuts for file in cut.files(dear) for part in cut.parts(parts)
        ]
        assert sorted(taken) == [(file, part) for file in "abc" for part in range(parts)]


@given(st.lists(st.integers(1, 300), max_size=60), MOMENTS)
def test_shares_cost_the_same_but_for_the_dearest_file(costs: list[int], commit: int) -> None:
    dear = {str(at): DearFile(str(at), cost, is_always=False) for at, cost in enumerate(costs)}
    always = {"always": DearFile("always", 500.0, is_always=True)}
    shares = [Cut(0, commit + run).files({**dear, **always}) for run in range(SHARES)]
    assert all("always" in share for share in shares)
    assert sorted(path for share in shares for path in share - set(always)) == sorted(dear)
    sums = [sum(dear[path].seconds for path in share - set(always)) for share in shares]
    assert max(sums) - min(sums) <= max(costs, default=0)


def test_the_table_of_dear_files_is_of_files_that_are_there() -> None:
    assert len(DEAR) > 20
    assert [path for path in DEAR if not (conftest.ROOT / path).is_file()] == []


@pytest.mark.parametrize("line", ["tests/a.py 5", "5", "5 tests/a.py sometimes", "-5 tests/a.py"])
def test_a_bad_line_of_the_table_is_named(line: str) -> None:
    with pytest.raises(ValueError, match=r"dear_files\.txt:2: must be SECONDS PATH \[always\]"):
        read_table(f"# comment\n{line}\n")


@given(COUNTS, MOMENTS, MOMENTS, st.integers(0, 200), st.text())
def test_every_case_runs_in_one_of_so_many_runs(
    parts: int, day: int, commit: int, cases: int, name: str
) -> None:
    numbers = list(range(cases))
    runs = range(0, SHARES * parts, SHARES)
    taken = [Cut(day, commit + run).choose(numbers, parts, name) for run in runs]
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
        self.path = conftest.ROOT / nodeid.partition("::")[0]
        self.markers = [pytest.mark.rotating(*marker, **named).mark] if marker else []

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        assert name == "rotating"
        return self.markers


class FakeConfig:
    """Of a process that shares the tests; notes what was left out."""

    workerinput: ClassVar = dict[str, str]()

    def __init__(self, *args: str) -> None:
        self.hook, self.left_out = self, list[FakeItem]()
        self.args = args
        self.invocation_params = self
        self.dir = conftest.ROOT

    def pytest_deselected(self, items: list[FakeItem]) -> None:
        self.left_out += items


def kept_of(
    cut: Cut, items: list[FakeItem], monkeypatch: pytest.MonkeyPatch, *args: str
) -> set[str]:
    """The tests that a run with this cut keeps; the others are counted as deselected."""
    monkeypatch.setattr(conftest, "CUT", cut)
    config, remaining = FakeConfig(*args), list(items)
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
    runs = [kept_of(Cut(7, commit), items, monkeypatch) for commit in range(0, 5 * SHARES, SHARES)]
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
    runs = [kept_of(Cut(7, commit), items, monkeypatch) for commit in range(0, 3 * SHARES, SHARES)]
    assert sorted(map(len, runs)) == [1, 1, 1]
    assert set.union(*runs) == {item.nodeid for item in items}


COSTS = (("b.py", 9), ("c.py", 90), ("d.py", 5))
FILES = {name: DearFile(name, cost, is_always=False) for name, cost in COSTS}


def test_a_run_takes_a_share_of_the_dear_files_and_one_that_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conftest, "DEAR", FILES)
    items = [FakeItem(f"{name}.py::test") for name in "abcd"]
    runs = [kept_of(Cut(7, commit), items, monkeypatch) for commit in range(SHARES)]
    assert [len(run) for run in runs] == [2, 2, 2]
    assert set.union(*runs) == {item.nodeid for item in items}
    named = [f"{name}.py" for name in "bcd"]
    assert kept_of(Cut(7, 0), items, monkeypatch, *named) == {item.nodeid for item in items}


def test_where_processes_share_the_tests_the_dearest_files_come_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conftest, "DEAR", FILES)
    items = [FakeItem(f"{name}.py::test") for name in "adbc"]
    conftest.pytest_collection_modifyitems(cast("Any", FakeConfig("x::y")), cast("Any", items))
    assert [item.nodeid[0] for item in items] == list("cbda")
