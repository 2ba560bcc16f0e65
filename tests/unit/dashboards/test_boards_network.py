"""Boards of ports, switches, congestion and bursts show and name the rule pack's limits."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from alerts.rulebook.knobs import default_knobs
from dashboards.grafana import limits
from dashboards.grafana.boards import congestion, microbursts, port, switch
from dashboards.grafana.cable import FAR_END, leading
from dashboards.grafana.jumps import TO_PORT
from dashboards.grafana.model import Draw, Panel, Scale
from dashboards.grafana.substitute import variables_in

BOARDS = {
    "port": port.BOARD,
    "switch": switch.BOARD,
    "congestion": congestion.BOARD,
    "microbursts": microbursts.BOARD,
}
KNOBS = {name: knob.value for name, knob in default_knobs().items()}
THEMES = {name.split("_")[0] for name in KNOBS} - {"runbook"}
KNOB = re.compile(rf"\b(?:{'|'.join(sorted(THEMES))})_[a-z0-9_]+\b")
SELECTOR = re.compile(r"\b((?:\w+:)?fabric_\w+(?::\w+)?)(\{[^}]*\})?")


def panels() -> Iterator[tuple[str, Panel]]:
    """Every panel of these boards, with a name for it."""
    for name, board in BOARDS.items():
        for row in board.rows:
            for panel in row.panels:
                yield f"{name}: {panel.title}", panel


PANELS = list(panels())


def values(scale: Scale) -> list[float]:
    """The values at which colours change."""
    return [step.value for step in scale.steps if step.value is not None]


@pytest.mark.parametrize(
    ("scale", "knobs"),
    [
        (limits.ERRORS, ["errors_ber_long", "errors_ber_short"]),
        (limits.RAW_ERRORS, ["errors_raw_ber"]),
        (Scale(steps=limits.FULL.steps[2:]), ["capacity_average", "capacity_peak"]),
        (limits.NO_ROOM, ["capacity_average", "capacity_peak"]),
        (limits.PEAK, ["capacity_peak"]),
        (limits.STOPPED, ["pause_share", "pause_share_heavy"]),
        (limits.WAIT, ["congestion_wait_share", "congestion_wait_share_heavy"]),
        (limits.MARKED, ["congestion_ecn_share"]),
        (limits.LOSS, ["loss_ratio_go_back_n", "loss_ratio"]),
        (limits.QUEUE, ["congestion_queue_seconds", "bursts_queue_seconds"]),
        (limits.UNEVEN, ["capacity_imbalance"]),
        (limits.MODULE, ["errors_module_celsius"]),
        (limits.BURSTS, ["bursts_rate"]),
        (limits.HARM, ["bursts_harmed_share"]),
        (limits.ONE_A_SECOND, ["congestion_retransmits"]),
        (microbursts.COARSE, ["bursts_resolution"]),
        (microbursts.TICKS_MISSED, ["bursts_missed_share"]),
    ],
)
def test_colours_change_where_the_rules_do(scale: Scale, knobs: list[str]) -> None:
    assert values(scale) == [float(KNOBS[name]) for name in knobs]


@pytest.mark.parametrize(
    ("number", "knob"),
    [
        (congestion.SHARE, "pause_share"),
        (congestion.SHARE_OF_ROOT, "pause_root_received"),
        (congestion.FRAMES_SHARE, "pause_frames_share"),
        (congestion.BUSY, "capacity_average"),
        (congestion.LOADED, "capacity_imbalance_load"),
        (congestion.PACKETS, "congestion_packets_least"),
    ],
)
def test_numbers_in_queries_are_the_rules(number: float, knob: str) -> None:
    assert number == float(KNOBS[knob])


def test_every_knob_that_a_text_names_exists() -> None:
    for name, panel in PANELS:
        words = re.sub(r"\bfabric_[a-z0-9_]+", "", panel.text)
        assert set(KNOB.findall(words)) <= KNOBS.keys(), name


def test_a_panel_that_may_be_empty_says_what_that_means() -> None:
    for name, panel in PANELS:
        assert panel.empty_text.endswith(".") or not panel.is_empty_fine, name


def test_tables_and_numbers_ask_for_the_last_value_only() -> None:
    for name, panel in PANELS:
        at_once = panel.draw in {Draw.TABLE, Draw.NUMBER, Draw.SPREAD}
        assert {query.is_instant for query in panel.queries} == {at_once}, name


def test_every_query_keeps_to_the_chosen_cluster() -> None:
    """Every query selects the cluster, except queries for incidents and the service."""
    for name, panel in PANELS:
        for query in panel.queries:
            for metric, matchers in SELECTOR.findall(query.expr):
                has_none = metric.startswith(("fabric_incident", "fabric_service"))
                assert has_none or 'cluster=~"$cluster"' in matchers, f"{name}: {metric}"


def test_the_far_end_needs_nothing_but_the_board_s_own_variables() -> None:
    """Nor `$1`, which Grafana would take for a variable."""
    assert variables_in(FAR_END) <= {"cluster", "host", "device", "port"}


def test_ranks_of_worst_things_never_choose_among_noughts() -> None:
    """`topk` picks arbitrary series among zeros, so the query leaves zeros out."""
    assert " > 0))" in leading("m")


def test_lines_that_are_ports_lead_to_them() -> None:
    leading = {name for name, panel in PANELS if panel.jump == TO_PORT}
    assert {"switch: Held back", "congestion: Sent again", "microbursts: Peaks"} <= leading
    assert "microbursts: Ticks missed" not in leading
