"""From charges, holds and silence to a state and a risk. Pure.

Independent charges add up as chances do: a thing is well if none of them comes true. *Degraded* is
certain and now, *suspect* is weak, past, or silence, and no measurement ever takes a thing out.
Between entering and leaving a state lies a band, so that noise in a risk does not flip what a
scheduler sees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from alerts.health.model import Charge, HealthState, Hold, Standing

RISK_DIGITS = 2
RISK_STEP = 10.0**-RISK_DIGITS
"""Risks are reported in steps of this: a decaying risk then changes its value, and invalidates
clients' cached answers, once in a minute rather than at every evaluation."""
CHARGES_KEPT_MAX = 50
"""Of one thing, the heaviest, for people to read. All of them count towards the risk."""

DEGRADED_FROM, DEGRADED_KEPT = 0.5, 0.4
"""More likely than not a job would suffer from open incidents; left again below the second."""
SUSPECT_FROM, SUSPECT_KEPT = 0.2, 0.15
"""One chance in five that the next job suffers is worth another host while there are others. A
verdict moves by a few hundredths from one evaluation to the next, hence the band."""
SILENCE_RISK = 0.5
"""Of a host that has stopped reporting: dead and alive are equally likely."""


def combine(risks: Sequence[float]) -> float:
    """The risk of several independent ones.

    >>> combine([0.5, 0.5]), combine([])
    (0.75, 0.0)
    """
    return 1.0 - math.prod(1.0 - risk for risk in risks)


def stand(
    charges: Sequence[Charge],
    now_ns: int,
    *,
    before: HealthState = HealthState.HEALTHY,
    hold: Hold | None = None,
    silent_since_ns: int | None = None,
) -> Standing:
    """Where a thing stands now, given its state ``before``. A hold adds nothing to the risk."""
    weighed = sorted(
        ((charge.risk_at(now_ns), charge) for charge in charges),
        key=lambda each: (-each[0], each[1].incident, each[1].short),
    )
    certain = combine([risk for risk, charge in weighed if charge.is_certain])
    silence = [] if silent_since_ns is None else [SILENCE_RISK]
    risk = combine([*(risk for risk, _ in weighed), *silence])
    standing_hold = hold if hold is not None and hold.stands_at(now_ns) else None
    state = measured_state(risk, certain, before, is_silent=bool(silence))
    return Standing(
        state=standing_hold.state if standing_hold is not None else state,
        risk=quantised(risk),
        charges=tuple(charge for risk, charge in weighed if risk >= RISK_STEP)[:CHARGES_KEPT_MAX],
        hold=standing_hold,
        silent_since_ns=silent_since_ns,
    )


def measured_state(
    risk: float, certain: float, before: HealthState, *, is_silent: bool
) -> HealthState:
    """The state by what is measured alone: never draining, never out."""
    is_kept = before is HealthState.DEGRADED
    if certain >= (DEGRADED_KEPT if is_kept else DEGRADED_FROM):
        return HealthState.DEGRADED
    is_kept = before in (HealthState.SUSPECT, HealthState.DEGRADED)
    if is_silent or risk >= (SUSPECT_KEPT if is_kept else SUSPECT_FROM):
        return HealthState.SUSPECT
    return HealthState.HEALTHY


def quantised(risk: float) -> float:
    """A risk in steps of RISK_STEP.

    >>> quantised(0.123), quantised(0.0049), quantised(0.999)
    (0.12, 0.0, 1.0)
    """
    return round(risk, RISK_DIGITS)
