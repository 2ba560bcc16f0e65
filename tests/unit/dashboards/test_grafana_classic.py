"""From a board to Grafana's JSON: places, ids, links, tables and options of each panel type."""

from collections.abc import Mapping
from typing import Any

import msgspec
import promql_parser
import pytest

from dashboards.grafana.classic import text_of, to_classic
from dashboards.grafana.model import (
    Board,
    Colour,
    Column,
    Draw,
    Jump,
    Matrix,
    Panel,
    Query,
    Row,
    Step,
    Unit,
    Variable,
)
from dashboards.grafana.substitute import substituted
from tests.oracles.grafana_schema import schema_flaws

UP = Query(expr='up{host=~"$host"}', legend="{{host}}")
HOST = Variable(name="host", title="Host", query="label_values(up, host)", is_many=True)
CLUSTER = Variable(name="cluster", title="Cluster", query="label_values(up, cluster)")


def panel(title: str = "p", **more: Any) -> Panel:  # noqa: ANN401 - any field
    return Panel(**{"title": title, "text": "What it shows.", "queries": (UP,), **more})


def board(*panels: Panel, **more: Any) -> Board:  # noqa: ANN401 - any field
    rows = more.pop("rows", (Row(title="All", panels=panels),))
    found = {"title": "Board", "question": "What?", "variables": (HOST,), "rows": rows, **more}
    return Board(**found)


def made(*panels: Panel, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any field
    """The dashboard, decoded from the JSON file."""
    return msgspec.json.decode(text_of("a_board", board(*panels, **more)), type=dict[str, Any])


def only(one: Panel, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any field
    """The JSON of one panel."""
    panels = [each for each in made(one, **more)["panels"] if each["type"] != "row"]
    (found,) = panels
    return dict(found)


def places(dashboard: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {
        each["title"]: tuple(each["gridPos"][key] for key in "xywh") for each in dashboard["panels"]
    }


# --- the whole -----------------------------------------------------------------------------------


def test_panels_flow_from_left_to_right_and_wrap() -> None:
    found = places(
        made(
            panel("a", width=12, height=8),
            panel("b", width=6, height=4),
            panel("c", width=12, height=5),
            panel("d", width=12, height=5),
        )
    )
    assert found == {
        "All": (0, 0, 24, 1),
        "a": (0, 1, 12, 8),
        "b": (12, 1, 6, 4),
        "c": (0, 9, 12, 5),
        "d": (12, 9, 12, 5),
    }


def test_a_folded_row_holds_its_panels_and_takes_one_line() -> None:
    rows = (
        Row(title="Folded", panels=(panel("in"),), is_folded=True),
        Row(title="Next", panels=(panel("below"),)),
    )
    dashboard = made(rows=rows)
    assert [each["title"] for each in dashboard["panels"]] == ["Folded", "Next", "below"]
    assert places(dashboard)["Next"] == (0, 1, 24, 1)
    (folded,) = dashboard["panels"][0]["panels"]
    assert folded["title"] == "in"
    assert dashboard["panels"][0]["collapsed"] is True


def test_a_row_without_a_title_has_no_heading() -> None:
    dashboard = made(rows=(Row(title="", panels=(panel("a"),)),))
    assert places(dashboard) == {"a": (0, 0, 12, 8)}


def test_ids_count_through_rows_and_folded_panels() -> None:
    rows = (
        Row(title="One", panels=(panel("a"), panel("b")), is_folded=True),
        Row(title="Two", panels=(panel("c"),)),
    )
    one, two, last = made(rows=rows)["panels"]
    assert [one["id"], *(each["id"] for each in one["panels"]), two["id"], last["id"]] == [
        1, 2, 3, 4, 5,
    ]  # fmt: skip


def test_the_uid_comes_from_the_name_and_the_tag_is_there_once() -> None:
    dashboard = made(panel(), tags=("fabricscope", "network"))
    assert dashboard["uid"] == "fabricscope-a-board"
    assert dashboard["tags"] == ["fabricscope", "network"]


def test_all_kinds_of_panels_have_the_documented_structure() -> None:
    kinds = [panel(draw.value, draw=draw, steps=(Step(1, Colour.BAD),)) for draw in Draw]
    assert schema_flaws(made(*kinds)) == []


def test_every_question_goes_to_the_chosen_data_source() -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    dashboard = made(panel())
    first, host = dashboard["templating"]["list"]
    assert (first["type"], first["name"], first["query"]) == (
        "datasource", "datasource", "prometheus",
    )  # fmt: skip
    (found,) = dashboard["panels"][1:]
    sources = [found["datasource"], found["targets"][0]["datasource"], host["datasource"]]
    sources.append(dashboard["annotations"]["list"][0]["datasource"])
    assert sources == [chosen] * 4


def test_several_choices_stand_for_everything_also_without_the_label() -> None:
    every = msgspec.structs.replace(HOST, is_all_default=True)
    found = made(panel(), variables=(CLUSTER, every))["templating"]["list"]
    one, many = found[1:]
    assert (one["multi"], one["includeAll"], "allValue" in one, "current" in one) == (
        False, False, False, False,
    )  # fmt: skip
    assert (many["multi"], many["includeAll"], many["allValue"]) == (True, True, ".*")
    assert many["current"]["value"] == ["$__all"]


# --- incidents -----------------------------------------------------------------------------------


def test_an_incident_is_one_region_with_cause_and_culprit() -> None:
    (found,) = made(panel())["annotations"]["list"]
    promql_parser.parse(substituted(found["expr"], {}))
    assert "> bool 0" in found["expr"], "Grafana draws a region where the series is 1"
    assert "job" not in found["expr"], "one region for an incident, not one for each affected job"
    assert found["titleFormat"] == "{{cause}}"
    assert "{{culprit}}" in found["textFormat"]


def test_a_board_of_one_job_shows_that_job_s_incidents() -> None:
    job = Variable(name="job", title="Job", query="label_values(fabric_job_ranks, job)")
    (found,) = made(panel(), variables=(HOST, job))["annotations"]["list"]
    assert 'fabric_incident{job=~"$job"}' in found["expr"]


def test_a_board_may_leave_incidents_out() -> None:
    assert made(panel(), has_incidents=False)["annotations"]["list"] == []


# --- links ---------------------------------------------------------------------------------------


def test_a_link_of_a_series_carries_time_choices_and_labels() -> None:
    jump = Jump(title="The host", to="rank_by_rank", variables={"host": "instance"})
    found = only(panel(jump=jump), variables=(CLUSTER, HOST))
    (link,) = found["fieldConfig"]["defaults"]["links"]
    assert link["url"] == (
        "/d/fabricscope-rank-by-rank/rank-by-rank?${__url_time_range}&${datasource:queryparam}"
        "&${cluster:queryparam}&var-host=${__field.labels.instance}"
    )


def test_a_link_of_a_table_reads_the_row_also_from_a_column_that_is_not_shown() -> None:
    jump = Jump(title="The port", to="port", variables={"host": "host", "port": "port"})
    columns = (Column(label="host", title="Host", jump=jump), Column(label="Value", title="Rate"))
    found = only(panel(draw=Draw.TABLE, columns=columns))
    shown = overrides(found)
    assert "var-port=${__data.fields.port}" in shown["Host"]["links"][0]["url"]
    assert shown["port"]["custom.hidden"] is True
    kept = found["transformations"][0]["options"]["include"]["names"]
    assert kept == ["host", "Value", "Value #A", "port"]


# --- ways to draw --------------------------------------------------------------------------------


def overrides(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        each["matcher"]["options"]: {one["id"]: one["value"] for one in each["properties"]}
        for each in found["fieldConfig"]["overrides"]
    }


def test_a_table_shows_the_columns_asked_for_under_their_titles_in_order() -> None:
    columns = (
        Column(label="Value #B", title="Errors", unit=Unit.SCIENTIFIC, width=90),
        Column(label="port", title="Port"),
        Column(label="Value", title="Rate", steps=(Step(None, Colour.FINE), Step(9, Colour.BAD))),
    )
    found = only(
        panel(
            draw=Draw.TABLE,
            queries=(UP, UP),
            unit=Unit.BYTES_PER_SECOND,
            columns=columns,
            sort_by="Rate",
        )
    )
    merge, keep, organize = found["transformations"]
    assert (merge["id"], keep["id"], organize["id"]) == ("merge", "filterFieldsByName", "organize")
    order = organize["options"]["indexByName"]
    assert sorted(order, key=order.__getitem__) == ["Value #B", "port", "Value", "Value #A"]
    assert organize["options"]["renameByName"] == {
        "Value #B": "Errors", "port": "Port", "Value": "Rate", "Value #A": "Rate",
    }  # fmt: skip
    shown = overrides(found)
    assert (shown["Errors"]["unit"], shown["Errors"]["custom.width"]) == ("sci", 90)
    assert shown["Port"]["unit"] == "string", "port 1000000 is not 1 Mil"
    assert shown["Rate"]["unit"] == "Bps"
    assert shown["Rate"]["custom.cellOptions"] == {"type": "color-text"}
    assert found["options"]["sortBy"] == [{"desc": True, "displayName": "Rate"}]
    assert [target["format"] for target in found["targets"]] == ["table", "table"]
    assert [target["refId"] for target in found["targets"]] == ["A", "B"]


def test_words_for_values_of_a_table_do_not_touch_its_labels() -> None:
    columns = (Column(label="port", title="Port"), Column(label="Value", title="State"))
    found = only(panel(draw=Draw.TABLE, columns=columns, values={"1": "down"}))
    shown = overrides(found)
    assert found["fieldConfig"]["defaults"]["mappings"] == []
    assert "mappings" not in shown["Port"], "port 1 would read «down»"
    assert shown["State"]["mappings"][0]["options"]["1"]["text"] == "down"


def test_a_matrix_has_rows_and_columns_in_order() -> None:
    matrix = Matrix(rows="rank", columns="peer", is_numeric=True)
    found = only(panel(draw=Draw.TABLE, matrix=matrix))
    steps = [(step["id"], step["options"]) for step in found["transformations"]]
    assert [step for step, _ in steps] == [
        "convertFieldType", "sortBy", "groupingToMatrix", "sortBy",
    ]  # fmt: skip
    assert steps[1][1]["sort"][0]["field"] == "peer"
    assert steps[3][1]["sort"][0]["field"] == "rank\\peer"


def test_a_cell_without_a_value_is_empty_and_has_no_colour() -> None:
    """Grafana writes what an empty panel says into each of them, in the first step's colour."""
    steps = (Step(None, Colour.FINE), Step(2, Colour.BAD))
    matrix = Matrix(rows="rank", columns="peer")
    found = only(panel(draw=Draw.TABLE, matrix=matrix, steps=steps, empty_text="no pairs"))
    assert found["fieldConfig"]["defaults"]["noValue"] == "no pairs"
    every, cells, _ = found["fieldConfig"]["overrides"]
    assert every["matcher"] == {"id": "byRegexp", "options": "/.*/"}
    assert every["properties"] == [{"id": "noValue", "value": ""}]
    (mapping,) = {each["id"]: each["value"] for each in cells["properties"]}["mappings"]
    assert mapping["options"]["match"] == "null+nan"
    assert mapping["options"]["result"]["color"] == "transparent"


def test_powers_of_ten_have_one_digit_behind_the_point() -> None:
    """Grafana would write 1.9023713125e-7."""
    assert only(panel(unit=Unit.SCIENTIFIC))["fieldConfig"]["defaults"]["decimals"] == 1
    columns = (Column(label="Value", title="Errors", unit=Unit.SCIENTIFIC),)
    assert overrides(only(panel(draw=Draw.TABLE, columns=columns)))["Errors"]["decimals"] == 1
    assert "decimals" not in only(panel())["fieldConfig"]["defaults"]


def test_limits_are_lines_across_and_lines_without_limits_have_none() -> None:
    with_limit = only(panel(steps=(Step(0.8, Colour.WARN),)))
    defaults = with_limit["fieldConfig"]["defaults"]
    assert defaults["custom"]["thresholdsStyle"] == {"mode": "dashed"}
    assert [step["value"] for step in defaults["thresholds"]["steps"]] == [None, 0.8]
    without = only(panel())["fieldConfig"]["defaults"]
    assert without["custom"]["thresholdsStyle"] == {"mode": "off"}


def test_a_heat_map_takes_series_as_rows_and_does_not_hide_nought() -> None:
    found = only(panel(draw=Draw.HEAT, unit=Unit.SECONDS, most=2.0))
    assert found["targets"][0]["format"] == "time_series", "`heatmap` subtracts neighbours"
    options = found["options"]
    assert options["calculate"] is False
    assert options["filterValues"]["le"] < 0
    assert (options["cellValues"]["unit"], options["color"]["max"]) == ("s", 2.0)


@pytest.mark.parametrize(
    ("is_fine", "text", "shown", "colour"),
    [
        (False, "not measured", "not measured", "gray"),
        (True, "no incident", "no incident", "green"),
        (True, "", "Nothing to report", "green"),
    ],
)
def test_no_data_is_green_only_where_it_is_good_news(
    is_fine: bool,  # noqa: FBT001 - one of a table's columns
    text: str,
    shown: str,
    colour: str,
) -> None:
    found = only(panel(draw=Draw.NUMBER, is_empty_fine=is_fine, empty_text=text))
    defaults = found["fieldConfig"]["defaults"]
    assert defaults["noValue"] == shown
    (mapping,) = defaults["mappings"]
    assert mapping["options"]["match"] == "null+nan"
    assert (mapping["options"]["result"]["text"], mapping["options"]["result"]["color"]) == (
        shown, colour,
    )  # fmt: skip


def test_a_panel_with_nothing_to_say_when_empty_says_grafana_s_words() -> None:
    assert "noValue" not in only(panel())["fieldConfig"]["defaults"]


def test_the_text_has_keys_in_order_and_ends_in_a_newline() -> None:
    text = text_of("b", board(panel("…")))
    assert text.startswith('{\n  "annotations"')
    assert text.endswith("}\n")
    assert '"…"' in text
    assert msgspec.json.decode(text) == to_classic("b", board(panel("…")))
