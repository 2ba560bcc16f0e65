"""Boards of jobs, ranks and hosts: limits are the rule pack's, and every selector is bounded."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from alerts.rulebook.knobs import default_knobs
from dashboards.grafana.boards import host, job, ranks
from dashboards.grafana.limits import SURE
from dashboards.grafana.model import Panel

BOARDS = {"job": job.BOARD, "ranks": ranks.BOARD, "host": host.BOARD}
KNOBS = {name: knob.value for name, knob in default_knobs().items()}
THEMES = {name.split("_")[0] for name in KNOBS} - {"runbook"}
KNOB = re.compile(rf"\b(?:{'|'.join(sorted(THEMES))})_[a-z0-9_]+\b")
SELECTOR = re.compile(r"\b(fabric_\w+)(\{[^}]*\})?")
OF_NO_CLUSTER = ("fabric_incident", "fabric_finding", "fabric_service_")
"""What may span several clusters, and what the service says of itself."""


def panels() -> Iterator[tuple[str, Panel]]:
    """Every panel of these boards, with a name for it."""
    for name, board in BOARDS.items():
        for row in board.rows:
            for panel in row.panels:
                yield f"{name}: {panel.title}", panel


PANELS = list(panels())


@pytest.mark.parametrize(
    ("limit", "knob"),
    [
        (job.NETWORK_SHARE, "collectives_network_share"),
        (job.JOB_WAIT, "stragglers_job_wait"),
        (job.STEP_SLOWER, "collectives_step_slower"),
        (job.WAITED_FOR, "stragglers_waited_for"),
        (job.LATE, "stragglers_lateness"),
        (job.REGRESSION, "collectives_regression"),
        (job.LONG, "collectives_transfer_min_seconds"),
        (job.TAIL_FACTOR, "collectives_tail_factor"),
        (ranks.WAITED_FOR, "stragglers_waited_for"),
        (ranks.UNEVEN, "capacity_imbalance"),
        (ranks.SLOWER - 1, "collectives_regression"),
        (host.THROTTLE, "gpus_throttle"),
        (host.HOT, "gpus_hot"),
        (host.REPLAYS * 60, "gpus_pcie_replays_per_minute"),
        (host.PAUSED, "pause_share"),
        (host.PAUSED_MUCH, "pause_share_heavy"),
        (host.STALLED, "congestion_pcie_stalled"),
        (host.FULL, "capacity_average"),
        (host.FULL_PEAK, "capacity_peak"),
        (host.RESENT, "loss_ack_timeouts"),
        (SURE, "incidents_confidence"),
    ],
)
def test_limits_are_those_of_the_rule_pack(limit: float, knob: str) -> None:
    assert limit == pytest.approx(KNOBS[knob])


@pytest.mark.parametrize(("name", "panel"), PANELS, ids=[name for name, _ in PANELS])
def test_a_panel_names_only_knobs_that_exist(name: str, panel: Panel) -> None:
    named = set(KNOB.findall(panel.text))
    assert named <= KNOBS.keys(), name


@pytest.mark.parametrize(("name", "panel"), PANELS, ids=[name for name, _ in PANELS])
def test_a_panel_asks_about_this_cluster_and_this_job_or_host(name: str, panel: Panel) -> None:
    for query in panel.queries:
        for metric, chosen in SELECTOR.findall(query.expr):
            if not metric.startswith(OF_NO_CLUSTER):
                assert 'cluster=~"$cluster' in chosen, (name, metric)


def test_no_question_of_a_job_asks_for_every_rank_at_once() -> None:
    """A job may have ten thousand: lines and rows of ranks are always the worst few."""
    for name, panel in PANELS:
        if name.startswith("job: "):
            for query in panel.queries:
                if "by (rank, host)" in query.expr:
                    assert "topk(" in query.expr, name
