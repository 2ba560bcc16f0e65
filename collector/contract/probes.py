"""Names of what agents' probes measure, for the agent, detectors and rules."""

from __future__ import annotations

from typing import Final

SENT: Final = "fabric_host_probe_sent_total"
LOST: Final = "fabric_host_probe_lost_total"
ROUND_TRIP: Final = "fabric_host_probe_round_trip_seconds"
FLOW_LOST: Final = "fabric_host_probe_flow_lost_total"


def far_end(host: str, rail: str) -> str:
    """The label `to`: a rail of another host."""
    return f"{host}/{rail}"


def parse_far_end(to: str) -> tuple[str, str]:
    """Host and rail of the label `to`; the rail is empty where it names none.

    >>> parse_far_end(far_end("node-1", "rail0"))
    ('node-1', 'rail0')
    """
    host, _, rail = to.rpartition("/")
    return (host, rail) if host else (to, "")
