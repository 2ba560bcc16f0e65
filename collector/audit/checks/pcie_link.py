"""Slots that run narrower or slower than device and slot can."""

from __future__ import annotations

from collections.abc import Iterator

from collector.audit.checks import Check
from collector.audit.facts import Facts
from collector.audit.finding import Finding, Severity, evidence_of
from collector.audit.settings import (
    PCIE_SPEED,
    PCIE_SPEED_MAX,
    PCIE_WIDTH,
    PCIE_WIDTH_MAX,
    PORT_RATE,
)

PAYLOAD_SHARE = 0.85
"""Of a slot's raw speed that is data: encoding, headers and flow control take the rest."""
SOURCE = "Linux, sysfs-bus-pci: current_link_* against max_link_*, of the device and of its slot"


def judge(facts: Facts) -> Iterator[Finding]:
    for nic in facts.fabric_nics:
        yield from judge_slot(facts, nic, with_speed=True)
    for gpu in facts.gpus:
        # An idle GPU lowers the speed of its slot, and raises it again when it has work.
        yield from judge_slot(facts, gpu, with_speed=False)


def judge_slot(facts: Facts, device: str, *, with_speed: bool) -> Iterator[Finding]:
    width, width_most = facts.number(device, PCIE_WIDTH), facts.number(device, PCIE_WIDTH_MAX)
    speed, speed_most = facts.number(device, PCIE_SPEED), facts.number(device, PCIE_SPEED_MAX)
    if width is None or width_most is None or speed is None or speed_most is None:
        return
    is_narrow, is_slow = 0 < width < width_most, with_speed and 0 < speed < speed_most
    if not is_narrow and not is_slow:
        return
    has_now, had = width * speed * PAYLOAD_SHARE, width_most * speed_most * PAYLOAD_SHARE
    rate = facts.number(device, PORT_RATE)
    is_bound = rate is None or has_now < rate
    shown = f"x{width:g} at {speed:g} GT/s" if is_slow else f"x{width:g}"
    could = f"x{width_most:g} at {speed_most:g} GT/s" if is_slow else f"x{width_most:g}"
    settings = (PCIE_WIDTH, PCIE_WIDTH_MAX, PCIE_SPEED, PCIE_SPEED_MAX, PORT_RATE)
    share = 100 * width / width_most if not with_speed else 100 * has_now / had
    yield Finding(
        check="pcie_link",
        severity=Severity.WARNING if is_bound else Severity.INFO,
        device=device,
        title=f"The slot of {device} runs {shown}, and could run {could}",
        read=evidence_of([facts.get(device, setting) for setting in settings]),
        expected=could,
        why="A slot trains down when a contact is bad, a riser is wrong or the BIOS limits it.",
        source=SOURCE,
        fix="power off, reseat card and riser; compare lspci -vv: LnkSta against LnkCap",
        confidence=0.9 if is_narrow else 0.8,
        cost=f"{share:.0f} % of the slot's bandwidth is left"
        + ("." if is_bound else f", which is still more than the port's {rate:g} Gb/s."),
    )


CHECK = Check(
    name="pcie_link",
    reads=frozenset({PCIE_SPEED, PCIE_SPEED_MAX, PCIE_WIDTH, PCIE_WIDTH_MAX}),
    judge=judge,
)
