"""Pictures of boards: units, scales, what is drawn where, and labels that want to be markup."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from dashboards.grafana.boards import discover
from dashboards.grafana.classic import to_classic
from dashboards.grafana.model import (
    Board,
    Colour,
    Column,
    Draw,
    Panel,
    Query,
    Row,
    Step,
    Unit,
    Variable,
)
from dashboards.grafana.picture import ask
from dashboards.grafana.picture.ask import AskError, Series, Span
from dashboards.grafana.picture.board import HEIGHT_MAX, draw_board
from dashboards.grafana.picture.draw import Region, pieces, united
from dashboards.grafana.picture.marks import colour, escaped, fitting
from dashboards.grafana.picture.parts import Dashboard, Target, read
from dashboards.grafana.picture.scales import Axis, ends, nice_step, ticks, time_ticks
from dashboards.grafana.picture.tables import merged
from dashboards.grafana.picture.units import FORMATS, shown

SPAN = Span(1_800_000_000.0, 1_800_001_200.0)
HOSTILE = '"><script>alert(1)</script>&\x00\x1b]]>'


class Said:
    """Answers every question with the same series."""

    def __init__(self, *series: Series, values: tuple[str, ...] = ("one",)) -> None:
        self._series = list(series)
        self._values = list(values)
        self.asked: list[str] = []

    def range(self, expr: str, span: Span) -> list[Series]:
        """The series, whatever is asked."""
        del span
        self.asked.append(expr)
        return self._series

    def instant(self, expr: str, at_s: float) -> list[Series]:
        """The last point of each."""
        del at_s
        self.asked.append(expr)
        return [Series(one.labels, one.points[-1:]) for one in self._series]

    def label_values(self, label: str, selector: str, span: Span) -> list[str]:
        """Some values."""
        del label, selector, span
        return self._values


def series(value: float = 1.0, **labels: str) -> Series:
    """A series over the whole span."""
    points = [(SPAN.start_s + 15.0 * place, value) for place in range(80)]
    return Series(labels, points)


def board_of(*panels: Panel, variables: tuple[Variable, ...] = ()) -> Dashboard:
    """A board as it is read from its JSON."""
    made = Board(
        title="T", question="q", rows=(Row(title="R", panels=panels),), variables=variables
    )
    return read(to_classic("t", made))


def panel(draw: Draw = Draw.LINES, **changes: Any) -> Panel:  # noqa: ANN401 - fields of any type
    """A panel that asks one question."""
    queries = (Query(expr="a", legend="{{host}}"),)
    return Panel(**{"title": "P", "text": "", "draw": draw, "queries": queries, **changes})


# --- units ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0.0, "short", "0"),
        (1_234.0, "short", "1.23 K"),
        (-2.5e6, "short", "-2.5 Mil"),
        (1.2e9, "Bps", "1.2 GB/s"),
        (400e9, "bps", "400 Gb/s"),
        (1536.0, "bytes", "1.5 KiB"),
        (3 * 1024.0**3, "bytes", "3 GiB"),
        (0.0034, "s", "3.4 ms"),
        (90.0, "s", "1.5 min"),
        (0.0, "s", "0 s"),
        (250.0, "ns", "250 ns"),
        (0.45, "percentunit", "45%"),
        (62.0, "celsius", "62 °C"),
        (0.0005, "watt", "500 µW"),
        (0.0, "watt", "0 W"),
        (1.98e9, "hertz", "1.98 GHz"),
        (2e-15, "sci", "2.00e-15"),
        (12_000.0, "pps", "12 K p/s"),
        (0.25, "h", "15 min"),
        (-3.5, "dBm", "-3.5 dBm"),
        (1_800_000_000_000.0, "dateTimeAsIso", "2027-01-15 08:00:00"),
        (1e300, "dateTimeAsIso", f"{1e300:.0f}"),
        (math.nan, "s", "NaN"),
        (-math.inf, "Bps", "-Inf"),
        (999.9996, "short", "1000"),
    ],
)
def test_a_value_is_shown_in_its_unit(value: float, unit: str, said: str) -> None:
    assert shown(value, unit) == said


def test_every_unit_of_our_boards_can_be_shown() -> None:
    assert {unit.value for unit in Unit} <= FORMATS.keys()


def test_decimals_are_kept_when_asked_for() -> None:
    assert shown(0.12346, "percentunit", 2) == "12.35%"
    assert shown(3.0, "s", 1) == "3.0 s"


# --- scales ---------------------------------------------------------------------------------------


def test_marks_of_an_axis_are_round_and_inside() -> None:
    assert ticks(0.0, 0.93, 4) == [0.0, 0.25, 0.5, 0.75]
    assert ticks(0.0, 3 * 2.0**20, 3, "bytes") == [0.0, 2.0**20, 2 * 2.0**20, 3 * 2.0**20]
    assert time_ticks(100.0, 700.0, 5) == [120.0, 240.0, 360.0, 480.0, 600.0]


@pytest.mark.parametrize("span", [0.0, -1.0, math.inf, math.nan])
def test_an_axis_of_nothing_ends(span: float) -> None:
    assert nice_step(span, 4) == 1.0


def test_values_beyond_an_axis_stand_at_its_ends() -> None:
    axis = Axis(0.0, 10.0, 100.0, 0.0)
    assert [axis.at(value) for value in (-5.0, 5.0, 50.0)] == [100.0, 50.0, 0.0]
    assert ends([3.0, 3.0], None, None)[1] > 3.0


def test_a_gap_ends_a_line() -> None:
    found = pieces([(0.0, 1.0), (15.0, 1.0), (60.0, 2.0), (75.0, math.nan), (90.0, 3.0)], 15.0)
    assert [len(piece) for piece in found] == [2, 1, 1]


def test_annotations_that_overlap_are_one() -> None:
    found = united([Region(5, 9, "a"), Region(0, 6, "a"), Region(20, 21, "a")])
    assert [(one.start_s, one.end_s) for one in found] == [(0, 9), (20, 21)]


# --- what cannot be trusted -----------------------------------------------------------------------


@pytest.mark.parametrize("draw", [each for each in Draw if each is not Draw.TEXT])
def test_no_label_becomes_markup(draw: Draw) -> None:
    columns = (Column(label="host", title="Host"), Column(label="Value", title="V"))
    made = panel(draw, columns=columns if draw is Draw.TABLE else (), title=HOSTILE)
    svg = draw_board(board_of(made), Said(series(host=HOSTILE), series(2.0, host="b")), SPAN)
    found = ET.fromstring(svg)  # noqa: S314 - our own page
    assert not [one for one in found.iter() if one.tag.endswith("script")]
    assert "alert(1)" in "".join(found.itertext())


def test_texts_of_a_board_are_text() -> None:
    made = Panel(title="x", text="", draw=Draw.TEXT, content=f"# {HOSTILE}\nplain [link](http://x)")
    choice = Variable(name="v", title=HOSTILE, query="label_values(a, v)")
    svg = draw_board(board_of(made, variables=(choice,)), Said(values=(HOSTILE,)), SPAN)
    assert "<script>" not in svg
    assert "plain link" in svg


def test_a_colour_that_is_none_is_grey() -> None:
    assert colour('red"/><x') == colour("gray")
    assert colour("#12aB9f") == "#12aB9f"


def test_characters_that_xml_lacks_are_replaced() -> None:
    assert escaped("a\x00b\x1b<") == "a\ufffdb\ufffd&lt;"
    assert fitting("abcdefghij", 30.0, 10.0) == "abcd…"


def test_a_page_has_a_bottom() -> None:
    board = board_of(panel(height=10), panel(width=24, height=100_000))
    svg = draw_board(board, Said(series(host="a")), SPAN)
    height = float(svg.split('height="')[1].split('"')[0])
    assert height <= HEIGHT_MAX + 10


# --- what is drawn --------------------------------------------------------------------------------


def test_values_that_are_no_numbers_are_left_out_of_a_line() -> None:
    broken = Series({"host": "a"}, [(SPAN.start_s, math.nan), (SPAN.start_s + 15, math.inf)])
    for draw in Draw:
        svg = draw_board(board_of(panel(draw)), Said(broken), SPAN)
        assert "nan" not in svg.replace("NaN", "")
        ET.fromstring(svg)  # noqa: S314 - our own page


def test_an_empty_panel_says_what_it_says_in_grafana() -> None:
    made = panel(is_empty_fine=True, empty_text="All is well.")
    assert "All is well." in draw_board(board_of(made), Said(), SPAN)
    assert "No data" in draw_board(board_of(panel()), Said(), SPAN)


def test_a_refused_question_is_told_in_its_panel() -> None:
    class Refuses(Said):
        """Refuses what the panel asks, and answers the annotation."""

        def range(self, expr: str, span: Span) -> list[Series]:
            """A refusal."""
            if expr == "a":
                raise AskError("a: 400 no such thing")
            return super().range(expr, span)

    assert "no such thing" in draw_board(board_of(panel()), Refuses(), SPAN)


def test_a_limit_is_a_line_and_a_colour() -> None:
    steps = (Step(None, Colour.FINE), Step(0.5, Colour.BAD))
    svg = draw_board(board_of(panel(steps=steps)), Said(series(1.0, host="a")), SPAN)
    assert f'stroke="{colour("red")}" stroke-dasharray' in svg
    svg = draw_board(board_of(panel(Draw.NUMBER, steps=steps)), Said(series(1.0)), SPAN)
    assert f'fill="{colour("red")}"' in svg


def test_words_stand_for_values() -> None:
    made = panel(Draw.NUMBER, values={"1": "down"})
    assert ">down<" in draw_board(board_of(made), Said(series(1.0)), SPAN)


def test_a_table_has_its_columns_in_order_and_is_sorted() -> None:
    columns = (
        Column(label="Value", title="Load", unit=Unit.RATIO),
        Column(label="host", title="H"),
    )
    made = panel(Draw.TABLE, columns=columns, sort_by="Load")
    source = Said(series(0.25, host="low", gone="x"), series(0.5, host="high", gone="y"))
    svg = draw_board(board_of(made), source, SPAN)
    places = [svg.index(f">{word}<") for word in ("Load", "H", "50%", "high", "25%", "low")]
    assert places == sorted(places)
    assert ">gone<" not in svg
    assert ">x<" not in svg


def test_answers_are_merged_by_the_labels_that_they_share() -> None:
    first = ask.Answer(Target(expr="a", ref_id="A"), [series(1.0, host="n", job="j")])
    second = ask.Answer(
        Target(expr="b", ref_id="B"), [series(2.0, host="n"), series(3.0, host="m")]
    )
    assert merged([first, second]) == [
        {"host": "n", "job": "j", "Value #A": 1.0, "Value #B": 2.0},
        {"host": "m", "Value #B": 3.0},
    ]


def test_variables_are_chosen_in_order_and_put_in() -> None:
    variables = (
        Variable(name="all", title="All", query="label_values(a, x)", is_all_default=True),
        Variable(name="one", title="One", query='label_values(a{x=~"$all"}, y)'),
    )
    made = panel(queries=(Query(expr='a{x=~"$all", y="$one"}[$__rate_interval]'),))
    source = Said(series(), values=("n10", "n9"))
    draw_board(board_of(made, variables=variables), source, SPAN)
    assert 'a{x=~".*", y="n9"}[60s]' in source.asked


def test_a_query_of_a_variable_that_is_none_is_named() -> None:
    variable = Variable(name="v", title="V", query="query_result(a)")
    with pytest.raises(AskError, match="query_result"):
        draw_board(board_of(panel(), variables=(variable,)), Said(), SPAN)


@pytest.mark.parametrize(
    "data", [None, [], {"resultType": "vector"}, {"resultType": "x", "result": 5}]
)
def test_an_answer_that_is_none_is_an_error(data: object) -> None:
    with pytest.raises(AskError):
        ask.read_series(data)


def test_every_board_of_ours_can_be_drawn() -> None:
    source = Said(series(1.0, host="n", rank="1", source="0", target="1"), series(0.0, host="m"))
    for name, board in discover().items():
        ET.fromstring(draw_board(read(to_classic(name, board)), source, SPAN))  # noqa: S314
