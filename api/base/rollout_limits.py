"""Bounds of rolling configurations out to agents; as in `api.base.limits`."""

from __future__ import annotations

from typing import Final

CONFIGURATIONS_KEPT_MAX: Final = 50
"""Versions that are kept, beside the one that agents go back to; older ones are deleted."""

ROLLOUT_SHARES_MAX: Final = 10
"""Shares that one roll-out goes through. → 422"""

ROLLOUT_TRIAL_SECONDS_MAX: Final = 86_400.0
"""How long an agent may try a configuration before it reports it as good: a day. → 422"""

ROLLOUT_PENDING_SECONDS: Final = 900.0
"""An agent that reports and has not taken a configuration since then is left behind, and holds the
roll-out up no longer; it takes the configuration whenever it can."""

ROLLOUT_SILENT_SECONDS: Final = 120.0
"""An agent without a batch since then is not there: it holds nothing up, and counts as no failure.
Agents report every five seconds."""

ROLLOUT_LOOK_SECONDS: Final = 5.0
"""How often a service process writes agents' reports and moves a roll-out on, while there are any.
It learns of a new configuration within a second."""

CONFIGURATION_REPORTS_MAX: Final = 10_000
"""Agents' reports that wait for the inventory; more are dropped and counted, and the agents repeat
them."""

CONFIGURATION_AGENTS_MAX: Final = 200_000
"""Agents whose reports a service process holds; the reports of others are dropped and counted."""

CONFIGURATION_CHECK_SECONDS_MAX: Final = 60.0
"""For the check of a configuration by the agent's own reader. → 503"""
