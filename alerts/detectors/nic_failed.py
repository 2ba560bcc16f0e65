"""NICs that are dead although their ports may be up: their drivers say so in the kernel's log.

*Phenomenon.* The firmware of a NIC stops, or the card leaves the PCIe bus. The port may stay up and
the counters stand still, as those of an idle port do. What waits on it waits for ever.

*Signal.* A message in the kernel's log that is fatal by its meaning (`kernel_message` events of
severity fatal about a NIC). The agent repeats it every half minute until the driver has started
the NIC again. One message is enough: drivers write these for nothing else.

*Assumptions.* The agent reads the log of the kernel itself and believes no program's lines. It ties
a line to its NIC by the PCI address.

*Misses.* A NIC that stops and whose driver does not notice. A host whose agent may not read the
log, or that dies with the NIC. A job that stays stuck after its driver has brought the NIC back:
the connections are gone, and by then nothing is wrong with the NIC.

*Reference.* drivers/net/ethernet/mellanox/mlx5/core/health.c: after a fatal sensor the driver moves
the device to its error state. The table of patterns names the source of each message.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from alerts.finding import Finding
from alerts.window.model import Ports, Window
from collector.contract.identity import whole_number
from collector.contract.kernel import (
    AGE,
    COMPONENT,
    COUNT,
    FATAL,
    KERNEL_MESSAGE,
    MESSAGE,
    MESSAGES,
    NETDEV,
    NIC_COMPONENTS,
    NIC_LIVES,
    SEVERITY,
)
from collector.contract.model import Event
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Evidence, Reason

NAME = "nic_failed"
STRENGTH = 0.93
"""A driver that gives its device up is right, and the PCI address says which NIC it is."""
AGE_SECONDS_MAX = 1 << 24
COUNT_MAX = 1 << 40
TEXT_MAX = 300


class Life(msgspec.Struct, kw_only=True):
    """What the kernel said of one NIC, in order."""

    culprit: Culprit
    first: Event
    since_ns: int
    count: int = 0
    until_ns: int | None = None
    """When its driver had started it again; None: it is dead."""


def detect(window: Window) -> list[Finding]:
    lives: dict[Culprit, Life] = {}
    for event in sorted(window.events, key=lambda one: one.time_ns):
        if event.kind != KERNEL_MESSAGE:
            continue
        culprit = nic_of(window.ports, event)
        if culprit is not None:
            take(lives, culprit, event)
    return [to_finding(window, life) for life in lives.values()]


def take(lives: dict[Culprit, Life], culprit: Culprit, event: Event) -> None:
    known = lives.get(culprit)
    if event.attributes.get(MESSAGE) in NIC_LIVES:
        if known is not None and known.until_ns is None:
            known.until_ns = event.time_ns
        return
    if not is_fatal(event.attributes):
        return
    if known is None or known.until_ns is not None:
        age = whole_number(event.attributes.get(AGE, ""), AGE_SECONDS_MAX) or 0
        since_ns = event.time_ns - age * NS
        if known is not None and known.until_ns is not None:
            since_ns = max(since_ns, known.until_ns)
        known = lives[culprit] = Life(culprit=culprit, first=event, since_ns=since_ns)
    known.count += whole_number(event.attributes.get(COUNT, ""), COUNT_MAX) or 1


def is_fatal(attributes: Mapping[str, str]) -> bool:
    return attributes.get(SEVERITY) == FATAL and attributes.get(COMPONENT) in NIC_COMPONENTS


def nic_of(ports: Ports, event: Event) -> Culprit | None:
    """The NIC that a message is about, by a port that is known; None for disks and the rest.

    A message about a NIC of which no port was ever read names it by itself.
    """
    host, device = event.labels.get("host", ""), event.labels.get("device", "")
    if not host or not device:
        return None
    rows = ports.rows_of_device.get((host, device), [])
    row = rows[0] if rows else ports.row_of_netdev.get((host, event.attributes.get(NETDEV, "")))
    whole = Culprit(host=host, device=device)
    if row is not None:
        has_more_ports = len(rows) > 1
        return whole if has_more_ports else ports.culprit(row)
    return whole if event.attributes.get(COMPONENT) == "nic" else None


def to_finding(window: Window, life: Life) -> Finding:
    event = life.first
    last_ns = window.to_ns if life.until_ns is None else life.until_ns
    kind = event.attributes.get(MESSAGE, "")
    return Finding(
        detector=NAME,
        cause=Cause.HANG,
        reason=Reason.NIC_FAILED,
        culprit=life.culprit,
        strength=STRENGTH,
        since_ns=life.since_ns,
        until_ns=life.until_ns,
        last_ns=last_ns,
        evidence=(
            Evidence(
                metric=MESSAGES,
                text=f"{event.labels['host']}: {event.message}"[:TEXT_MAX],
                value=float(life.count),
                unit="messages",
                baseline=0.0,
                from_ns=life.since_ns,
                to_ns=last_ns,
                labels={**event.labels, "kind": kind},
                samples=life.count,
            ),
        ),
    )
