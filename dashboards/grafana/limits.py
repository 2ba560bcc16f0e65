"""From which value on a link is worth a look: the rule pack's limits as colours.

The same numbers as the defaults of the knobs that are named here, so that a board is red where an
alert fires. Who turns a knob of the rules has the old colour on the boards; the texts say which
knob a limit is.
"""

from __future__ import annotations

from dashboards.grafana.model import Colour, Step

STATES = {"1": "down", "2": "init", "3": "armed", "4": "active", "5": "deferred"}
"""As InfiniBand numbers the states of a port."""
STATE_STEPS = (Step(None, Colour.BAD), Step(2, Colour.WARN), Step(4, Colour.FINE))
ERROR_STEPS = (Step(None, Colour.FINE), Step(1e-15, Colour.LOOK), Step(1e-14, Colour.BAD))
"""Knobs errors_ber_long and errors_ber_short."""
RAW_ERROR_STEPS = (Step(None, Colour.FINE), Step(1e-4, Colour.BAD))
"""Knob errors_raw_ber."""
FULL_STEPS = (
    Step(None, Colour.FINE),
    Step(0.6, Colour.LOOK),
    Step(0.8, Colour.WARN),
    Step(0.95, Colour.BAD),
)
"""Knobs capacity_average and capacity_peak; 60 % is where a busy link begins, and no alert."""
PEAK_STEPS = (Step(None, Colour.FINE), Step(0.95, Colour.BAD))
"""Knob capacity_peak."""
STOPPED_STEPS = (Step(None, Colour.FINE), Step(0.05, Colour.WARN), Step(0.3, Colour.BAD))
"""Knobs pause_share and pause_share_heavy."""
WAIT_STEPS = (Step(None, Colour.FINE), Step(0.1, Colour.WARN), Step(0.3, Colour.BAD))
"""Knobs congestion_wait_share and congestion_wait_share_heavy."""
MARKED_STEPS = (Step(None, Colour.FINE), Step(0.05, Colour.WARN))
"""Knob congestion_ecn_share."""
LOSS_STEPS = (Step(None, Colour.FINE), Step(1e-5, Colour.LOOK), Step(1e-4, Colour.BAD))
"""Knobs loss_ratio_go_back_n and loss_ratio."""
QUEUE_STEPS = (Step(None, Colour.FINE), Step(0.0002, Colour.WARN), Step(0.0005, Colour.BAD))
"""Knobs congestion_queue_seconds and bursts_queue_seconds."""
UNEVEN_STEPS = (Step(None, Colour.FINE), Step(1.5, Colour.WARN))
"""Knob capacity_imbalance."""
MODULE_STEPS = (Step(None, Colour.FINE), Step(70, Colour.BAD))
"""Knob errors_module_celsius."""
BURSTS_STEPS = (Step(None, Colour.FINE), Step(1, Colour.WARN))
"""Knob bursts_rate."""
HARM_STEPS = (Step(None, Colour.FINE), Step(0.001, Colour.WARN))
"""Knob bursts_harmed_share."""
ONE_A_SECOND = (Step(None, Colour.FINE), Step(1, Colour.WARN))
"""Knob congestion_retransmits."""
