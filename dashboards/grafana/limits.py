"""From which value on a link is worth a look: the rule pack's limits as colours.

The same numbers as the defaults of the knobs that are named here, so that a board is red where an
alert fires. Boards keep the default colours when an operator turns a knob; the texts name the
knob a limit is.
"""

from __future__ import annotations

from collections.abc import Mapping

from dashboards.grafana.model import Colour, Scale, Step, Unit


def colours(steps: Mapping[float | None, Colour], unit: Unit | None = Unit.NONE) -> Scale:
    return Scale(unit, tuple(Step(value, colour) for value, colour in steps.items()))


def fine_until(
    unit: Unit = Unit.NONE,
    *,
    look: float | None = None,
    warn: float | None = None,
    bad: float | None = None,
) -> Scale:
    """Green up to the first of these values; from each on, its colour.

    >>> [step.value for step in fine_until(warn=0.05, bad=0.3).steps]
    [None, 0.05, 0.3]
    """
    limits = ((look, Colour.LOOK), (warn, Colour.WARN), (bad, Colour.BAD))
    steps = (Step(value, colour) for value, colour in limits if value is not None)
    return Scale(unit, (Step(None, Colour.FINE), *steps))


def bad_until(
    unit: Unit = Unit.NONE, *, warn: float | None = None, fine: float, first: Colour = Colour.BAD
) -> Scale:
    """Red, or ``first``, up to the first of these values; from each on, its colour."""
    limits = ((warn, Colour.WARN), (fine, Colour.FINE))
    steps = (Step(value, colour) for value, colour in limits if value is not None)
    return Scale(unit, (Step(None, first), *steps))


ANY_IS_BAD = fine_until(bad=1)
ANY_IS_ODD = fine_until(warn=1)
SURE = 0.5
"""Knob incidents_confidence: from here on an incident pages."""
SURE_SHARE = colours({None: Colour.GREY, SURE: Colour.BAD}, Unit.RATIO)
GPU_HOURS = fine_until(warn=1, bad=8)
"""One GPU for an hour, a host of 8 for an hour: a policy of ours."""
STATES = {"1": "down", "2": "init", "3": "armed", "4": "active", "5": "deferred"}
"""As InfiniBand numbers the states of a port."""
STATE = colours({None: Colour.BAD, 2: Colour.WARN, 4: Colour.FINE}, None)
ERRORS = fine_until(Unit.SCIENTIFIC, look=1e-15, bad=1e-14)
"""Knobs errors_ber_long and errors_ber_short."""
RAW_ERRORS = fine_until(Unit.SCIENTIFIC, bad=1e-4)
"""Knob errors_raw_ber."""
FULL = fine_until(Unit.RATIO, look=0.6, warn=0.8, bad=0.95)
"""Knobs capacity_average and capacity_peak; 60 % is where a busy link begins, and no alert."""
NO_ROOM = fine_until(Unit.RATIO, warn=0.8, bad=0.95)
"""The same knobs alone."""
PEAK = fine_until(Unit.RATIO, bad=0.95)
"""Knob capacity_peak."""
STOPPED = fine_until(Unit.RATIO, warn=0.05, bad=0.3)
"""Knobs pause_share and pause_share_heavy."""
WAIT = fine_until(Unit.RATIO, warn=0.1, bad=0.3)
"""Knobs congestion_wait_share and congestion_wait_share_heavy."""
MARKED = fine_until(Unit.RATIO, warn=0.05)
"""Knob congestion_ecn_share."""
LOSS = fine_until(Unit.RATIO, look=1e-5, bad=1e-4)
"""Knobs loss_ratio_go_back_n and loss_ratio."""
QUEUE = fine_until(Unit.SECONDS, warn=0.0002, bad=0.0005)
"""Knobs congestion_queue_seconds and bursts_queue_seconds."""
UNEVEN = fine_until(warn=1.5)
"""Knob capacity_imbalance."""
MODULE = fine_until(Unit.CELSIUS, bad=70)
"""Knob errors_module_celsius."""
BURSTS = fine_until(Unit.EVENTS_PER_SECOND, warn=1)
"""Knob bursts_rate."""
HARM = fine_until(Unit.RATIO, warn=0.001)
"""Knob bursts_harmed_share."""
ONE_A_SECOND = fine_until(Unit.EVENTS_PER_SECOND, warn=1)
"""Knob congestion_retransmits."""
