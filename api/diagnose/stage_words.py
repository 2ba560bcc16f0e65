"""A pipeline's stages in words and cells, for the text and the page of the report."""

from __future__ import annotations

from collections.abc import Sequence

from alerts.compare.stages import Basis, Stages, StageTimes
from api.diagnose import units

TITLE = "Stages of the pipeline"
HEADINGS = ("stage", "ranks", "own work", "waits", "transfer", "bubble", "most own work")
NUMBERS_FROM = 2
"""The first of HEADINGS that is of numbers."""


def stage_lines(stages: Stages) -> list[str]:
    """What a typical step looks like, which stage sets the pace, and what is not known."""
    if not stages.stages:
        return [f"Not told apart: {reason}." for reason in stages.unknown]
    lines = []
    if stages.bubble_share is not None:
        copies = units.count(stages.pipelines, "pipeline")
        lines.append(
            f"{copies} of {len(stages.stages)} stages: in a typical step ranks wait "
            f"{stages.bubble_share:.0%} of the time for others (the bubble)."
        )
    lines.append(pace_line(stages))
    if stages.basis is Basis.OUTSIDE:
        lines.append("Own work: time outside of messages and collectives; no profile shows more.")
    return [*lines, *(f"Not known: {reason}." for reason in stages.unknown)]


def pace_line(stages: Stages) -> str:
    if stages.pace is None:
        return "No stage sets the pace by itself."
    times = stages.stages[stages.pace]
    saved = f"{times.saved_share:.1%}" if times.saved_share is not None else "not known how much"
    return (
        f"Stage {times.stage} sets the pace: with a tenth less work of its own a step would be "
        f"{saved} shorter. That accuses no part: verdicts tell uneven work from a slow rank."
    )


def stage_cells(times: StageTimes) -> Sequence[str]:
    """One row, as HEADINGS has it."""
    more = times.ranks_total - len(times.ranks)
    return (
        str(times.stage),
        units.ranks(times.ranks) + (f" and {more:,} more" if more else ""),
        units.duration(times.own_ns),
        units.duration(times.wait_ns),
        units.duration(times.transfer_ns),
        f"{times.bubble_share:.0%}",
        f"{units.duration(times.own_most_ns)} (rank {times.own_most_rank})",
    )
