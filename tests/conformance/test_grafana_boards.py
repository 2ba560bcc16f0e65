"""Every question of every board answers with data, on our API and on a real Prometheus the same.

The data is a simulated cluster with faults, RoCE and then InfiniBand (`tests.worlds.grafana_data`):
what the one fabric does not have, the other has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dashboards.grafana.boards import discover
from dashboards.grafana.classic import to_classic
from dashboards.grafana.model import Board, Panel, Query, Row, Variable
from tests.oracles.grafana_ask import HttpSource, Series, Span
from tests.oracles.grafana_judge import Outcome, Where, judge, metrics_asked
from tests.oracles.grafana_prometheus import loaded_prometheus, requests_of
from tests.worlds.grafana_data import DATA_SETS, kept_data, served

SILENT: dict[Where, str] = {
    Where("host", "Network: paused, or without credit", "C"): "hosts report ticks without "
    "credit; only a poller of the fabric's switches reports seconds, and only of switches",
}
"""Queries that no data set of ours answers, and why that is right."""


def all_boards() -> dict[str, dict[str, Any]]:
    """Every board as Grafana gets it."""
    return {name: to_classic(name, board) for name, board in discover().items()}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """What came of asking everything, of both data sets together."""
    boards = all_boards()
    found = Outcome()
    for data_set in DATA_SETS.values():
        folder = tmp_path_factory.mktemp(data_set.name)
        data, made = kept_data(data_set)
        span = Span(made.start_s, made.end_s)
        requests = requests_of(data, metrics_asked(boards, span))
        with (
            loaded_prometheus(folder, requests) as prometheus,
            served(data, folder) as service,
        ):
            ours, theirs = HttpSource(service.client), HttpSource(prometheus)
            found.add(judge(boards, ours, theirs, span))
    return found


def listed(lines: Sequence[str]) -> str:
    """Lines for a person who reads a failed test."""
    return "\n".join(["", *lines])


@pytest.mark.slow
@pytest.mark.rotating(6, turn=4)
@pytest.mark.peer("prometheus")
def test_no_question_is_refused(outcome: Outcome) -> None:
    assert not outcome.refused, listed(outcome.refused)


@pytest.mark.slow
@pytest.mark.rotating(6, turn=4)
@pytest.mark.peer("prometheus")
def test_every_question_of_every_board_shows_something(outcome: Outcome) -> None:
    silent = {where: text for where, text in outcome.silent.items() if where not in SILENT}
    assert not silent, listed(
        [f"{where} shows nothing: {text}" for where, text in sorted(silent.items())]
    )


@pytest.mark.slow
@pytest.mark.rotating(6, turn=4)
@pytest.mark.peer("prometheus")
def test_questions_that_are_excused_are_really_silent(outcome: Outcome) -> None:
    assert not SILENT.keys() & outcome.answered


@pytest.mark.slow
@pytest.mark.rotating(6, turn=4)
@pytest.mark.peer("prometheus")
def test_a_real_prometheus_answers_the_same(outcome: Outcome) -> None:
    assert outcome.compared >= len(outcome.answered)
    assert not outcome.differences, listed(outcome.differences)


# --- whether the check itself would notice -------------------------------------------------------


class Knows:
    """A server that knows one metric, with one sample."""

    def range(self, expr: str, span: Span) -> list[Series]:
        """One point, if it is about what is known."""
        return [Series({}, [(span.start_s, 1.0)])] if "there" in expr else []

    def instant(self, expr: str, at_s: float) -> list[Series]:
        """Nothing at the end of the range: what there was is over."""
        del expr, at_s
        return []

    def label_values(self, label: str, selector: str, span: Span) -> list[str]:
        """One value, of what is known."""
        del label, span
        return ["one"] if "there" in selector else []


class Lies(Knows):
    """The same, with another value."""

    def range(self, expr: str, span: Span) -> list[Series]:
        """One point that is wrong."""
        return [Series({}, [(span.start_s, 2.0)])] if "there" in expr else []


SPAN = Span(0.0, 600.0)


def board_of(*exprs: str, variable: str = "there") -> dict[str, dict[str, Any]]:
    """A board with a panel for each question."""
    panels = tuple(
        Panel(title=expr, text="", queries=(Query(expr=expr, is_instant=True),)) for expr in exprs
    )
    choice = Variable(name="x", title="X", query=f"label_values({variable}, x)")
    board = Board(
        title="One",
        question="",
        variables=(choice,),
        rows=(Row(title="", panels=panels),),
        has_incidents=False,
    )
    return {"one": to_classic("one", board)}


def test_a_panel_that_shows_nothing_is_found() -> None:
    found = judge(board_of('there{x="$x"}', "absent"), Knows(), None, SPAN)
    assert found.silent == {Where("one", "absent", "A"): "absent"}
    assert Where("one", 'there{x="$x"}', "A") in found.answered


def test_a_variable_without_values_is_found() -> None:
    found = judge(board_of("there", variable="absent"), Knows(), None, SPAN)
    assert Where("one", "$x", "") in found.silent


def test_an_answer_that_differs_is_found() -> None:
    assert not judge(board_of("there"), Knows(), Knows(), SPAN).differences
    (said,) = judge(board_of("there"), Knows(), Lies(), SPAN).differences
    assert "one / there / A" in said


def test_what_one_data_set_answers_is_no_longer_silent() -> None:
    where = Where("one", "a", "A")
    found = Outcome(silent={where: "a"})
    found.add(Outcome(answered={where}))
    assert not found.silent
    found.add(Outcome(silent={where: "a"}))
    assert not found.silent
