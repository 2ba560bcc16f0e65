"""Names of what is measured of a host's clock, for agents, detectors and simulated clusters."""

from __future__ import annotations

from typing import Final

OFFSET: Final = "fabric_host_clock_offset_seconds"
"""Positive: the clock is ahead."""
ERROR: Final = "fabric_host_clock_error_seconds"
SYNCHRONISED: Final = "fabric_host_clock_synchronized"
CONTRADICTION: Final = "fabric_host_clock_contradiction_seconds"

KERNEL: Final = "kernel"
CHRONY: Final = "chrony"
PTP: Final = "ptp4l"
