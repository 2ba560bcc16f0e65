"""Names of what agents' probes measure, for the agent, detectors and rules."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Sequence
from typing import Final

import msgspec

from collector.contract.errors import WireError

SENT: Final = "fabric_host_probe_sent_total"
LOST: Final = "fabric_host_probe_lost_total"
ROUND_TRIP: Final = "fabric_host_probe_round_trip_seconds"
FLOW_LOST: Final = "fabric_host_probe_flow_lost_total"

RAIL: Final = "fabric_host_probe_rail_info"
"""An agent that lets the service name its targets says with it where others reach its rails."""
TARGETS_MAX: Final = 512
"""Of an agent. A large cluster probes a part of itself from each host."""
LIST_BYTES_MAX: Final = 256 << 10
"""Of a list of targets: TARGETS_MAX with names as long as names may be."""


class ProbeTarget(msgspec.Struct, frozen=True):
    """A rail of another host."""

    rail: str
    """What both hosts' settings call the rail: no device and no interface."""
    host: str
    """The name under which the other host's own agent sends, its label `host`: detectors join both
    ends by it. An address, an alias or a name with another domain would be a second host."""
    address: str
    """IPv4, of that rail's interface."""


class ProbeTargets(msgspec.Struct, frozen=True):
    """What the service hands to one agent; its digest is the notice in receipts."""

    targets: list[ProbeTarget]


def encode_targets(targets: Sequence[ProbeTarget]) -> bytes:
    return msgspec.json.encode(ProbeTargets(list(targets)))


def decode_targets(body: bytes) -> list[ProbeTarget]:
    """The targets in a list of the service. Raises WireError, whatever the bytes are."""
    if len(body) > LIST_BYTES_MAX:
        raise WireError(f"a list of over LIST_BYTES_MAX = {LIST_BYTES_MAX} bytes")
    try:
        found = msgspec.json.decode(body, type=ProbeTargets).targets
        for each in found:
            ipaddress.IPv4Address(each.address)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise WireError(f"not a list of targets: {error}") from error
    if len(found) > TARGETS_MAX:
        raise WireError(f"{len(found)} targets; TARGETS_MAX is {TARGETS_MAX}")
    if not all(each.rail.isprintable() and each.host.isprintable() for each in found):
        raise WireError("a target's name has characters that cannot be printed")
    return found


def digest_of(body: bytes) -> str:
    """What names a list: 16 bytes of its SHA-256, hexadecimal."""
    return hashlib.sha256(body).hexdigest()[:32]


def far_end(host: str, rail: str) -> str:
    """The label `to`: a rail of another host, by its names and never by an address."""
    return f"{host}/{rail}"


def parse_far_end(to: str) -> tuple[str, str]:
    """Host and rail of the label `to`; the rail is empty where it names none.

    >>> parse_far_end(far_end("node-1", "rail0"))
    ('node-1', 'rail0')
    """
    host, _, rail = to.rpartition("/")
    return (host, rail) if host else (to, "")
