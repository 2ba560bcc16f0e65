"""From which value on a link is worth a look: the rule pack's limits as colours.

The same numbers as the defaults of the knobs that are named here, so that a board is red where an
alert fires. Boards keep the default colours when an operator turns a knob; the texts name the
knob a limit is.
"""

from __future__ import annotations

from dashboards.grafana.model import Colour, Step


def fine_until(
    *, look: float | None = None, warn: float | None = None, bad: float | None = None
) -> tuple[Step, ...]:
    """Green up to the first of these values; from each on, its colour.

    >>> [step.value for step in fine_until(warn=0.05, bad=0.3)]
    [None, 0.05, 0.3]
    """
    limits = ((look, Colour.LOOK), (warn, Colour.WARN), (bad, Colour.BAD))
    steps = (Step(value, colour) for value, colour in limits if value is not None)
    return (Step(None, Colour.FINE), *steps)


PLAIN = (Step(None, Colour.PLAIN),)
"""A number of which no value is good or bad."""
SURE = 0.5
"""Knob incidents_confidence: from here on an incident pages."""
SURE_STEPS = (Step(None, Colour.GREY), Step(SURE, Colour.BAD))
GPU_HOURS_STEPS = fine_until(warn=1, bad=8)
"""One GPU for an hour, a host of 8 for an hour: a policy of ours."""
STATES = {"1": "down", "2": "init", "3": "armed", "4": "active", "5": "deferred"}
"""As InfiniBand numbers the states of a port."""
STATE_STEPS = (Step(None, Colour.BAD), Step(2, Colour.WARN), Step(4, Colour.FINE))
ERROR_STEPS = fine_until(look=1e-15, bad=1e-14)
"""Knobs errors_ber_long and errors_ber_short."""
RAW_ERROR_STEPS = fine_until(bad=1e-4)
"""Knob errors_raw_ber."""
FULL_STEPS = fine_until(look=0.6, warn=0.8, bad=0.95)
"""Knobs capacity_average and capacity_peak; 60 % is where a busy link begins, and no alert."""
PEAK_STEPS = fine_until(bad=0.95)
"""Knob capacity_peak."""
STOPPED_STEPS = fine_until(warn=0.05, bad=0.3)
"""Knobs pause_share and pause_share_heavy."""
WAIT_STEPS = fine_until(warn=0.1, bad=0.3)
"""Knobs congestion_wait_share and congestion_wait_share_heavy."""
MARKED_STEPS = fine_until(warn=0.05)
"""Knob congestion_ecn_share."""
LOSS_STEPS = fine_until(look=1e-5, bad=1e-4)
"""Knobs loss_ratio_go_back_n and loss_ratio."""
QUEUE_STEPS = fine_until(warn=0.0002, bad=0.0005)
"""Knobs congestion_queue_seconds and bursts_queue_seconds."""
UNEVEN_STEPS = fine_until(warn=1.5)
"""Knob capacity_imbalance."""
MODULE_STEPS = fine_until(bad=70)
"""Knob errors_module_celsius."""
BURSTS_STEPS = fine_until(warn=1)
"""Knob bursts_rate."""
HARM_STEPS = fine_until(warn=0.001)
"""Knob bursts_harmed_share."""
ONE_A_SECOND = fine_until(warn=1)
"""Knob congestion_retransmits."""
