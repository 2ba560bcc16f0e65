"""What NCCL's lines say of a host's settings: variables, the driver, what its NICs can do.

`NCCL_IB_TC set by environment to 106.`, `NCCL_SOCKET_IFNAME set to eth0`, `cudaDriverVersion
12060`, and of the topology `+ NET[25.0] - NET/0 (…/1/25.000000)`: 10**9 bytes a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from collector.contract.communicator import HOST
from collector.contract.model import Event

NCCL_SETTINGS = "nccl_settings"
"""The event's kind: one for each host of a log."""
CUDA_DRIVER = "cuda_driver"
NIC_RATE = "nic_rate."
"""An attribute with the NIC's number behind: bytes a second."""

HOSTS_MAX = 20_000
SETTINGS_MAX = 256
"""Of one host; NCCL knows some two hundred variables."""
TEXT_MAX = 200
"""Characters of a value: lists of devices and paths."""

_VARIABLE = re.compile(r"(NCCL_[A-Z0-9_]{1,64}) set (?:by environment )?to (.{1,400}?)\.?$")
_DRIVER = re.compile(r"cudaDriverVersion ([0-9]{4,9})")
_NIC = re.compile(
    r" *\+ NET\[[0-9.]{1,16}\] - NET/([0-9a-f\-]{1,32}) \([^)]{0,80}?([0-9.]{1,16})\)"
)
_RATE_MAX = 1e6
"""Gigabytes a second."""


class Settings:
    """The settings of all hosts in one stream."""

    def __init__(self) -> None:
        self._hosts: dict[str, dict[str, str]] = {}

    def hear(self, host: str, message: str) -> None:
        if " set " in message:
            match = _VARIABLE.match(message)
            self._note(host, match and match[1], match and match[2])
        elif "NET[" in message:
            match = _NIC.match(message)
            rate = to_rate(match[2]) if match else None
            if match and rate is not None:
                self._note(host, NIC_RATE + match[1], f"{rate:.0f}")
        elif message.startswith("cudaDriverVersion "):
            match = _DRIVER.match(message)
            self._note(host, CUDA_DRIVER, match and match[1])

    def _note(self, host: str, name: str | None, value: str | None) -> None:
        if name is None or value is None:
            return
        if host not in self._hosts and len(self._hosts) >= HOSTS_MAX:
            return
        known = self._hosts.setdefault(host, {})
        if name in known or len(known) < SETTINGS_MAX:
            known[name] = value[:TEXT_MAX]

    def events(self, time_ns: int) -> Iterator[Event]:
        for host, known in sorted(self._hosts.items()):
            yield Event(
                kind=NCCL_SETTINGS,
                time_ns=time_ns,
                labels={},
                message=f"NCCL's settings on {host}.",
                attributes={HOST: host, **dict(sorted(known.items()))},
            )


def to_rate(text: str) -> float | None:
    """Bytes a second of NCCL's gigabytes; None for what is no rate.

    >>> to_rate("25.000000"), to_rate("1.2.3"), to_rate("0")
    (25000000000.0, None, None)
    """
    try:
        value = float(text)
    except ValueError:
        return None
    return value * 1e9 if 0 < value < _RATE_MAX else None
