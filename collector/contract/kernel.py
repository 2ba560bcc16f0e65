"""The vocabulary of events from a kernel's log: the agent writes them, detectors read them."""

from __future__ import annotations

from typing import Final, Literal

KERNEL_MESSAGE: Final = "kernel_message"
"""The kind of event."""
MESSAGES: Final = "fabric_host_kernel_messages_total"

Component = Literal["nic", "pcie", "gpu", "nvswitch", "memory", "disk", "process", "clock"]
Severity = Literal["info", "warning", "error", "fatal"]

MESSAGE: Final = "message"
"""Attribute: the kind of message, by the agent's table of patterns."""
COMPONENT: Final = "component"
SEVERITY: Final = "severity"
COUNT: Final = "count"
"""Attribute: how many such messages came since the event before."""
AGE: Final = "age_seconds"
"""Attribute: how long before the event the first such message about the thing came."""
NETDEV: Final = "netdev"

FATAL: Final = "fatal"
"""By its meaning the thing is dead until it is reset."""
NIC_COMPONENTS: Final = frozenset({"nic", "pcie"})
"""Components whose fatal messages are about a NIC, where they name one."""
NIC_LIVES: Final = frozenset({"nic_recovered", "nic_started"})
"""Messages after which a NIC is no longer dead."""
