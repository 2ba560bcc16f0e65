"""What the kernel said about the accused part: evidence, and never an accusation. Pure.

A slow link whose NIC did not answer its driver, a GPU with PCIe errors: the verdict stands by other
evidence, and the kernel's line tells the person on call where to look.
"""

from __future__ import annotations

from alerts.window.model import Window
from collector.contract.identity import whole_number
from collector.contract.kernel import COUNT, KERNEL_MESSAGE, MESSAGE, MESSAGES
from collector.contract.model import Event
from collector.contract.units import NS
from collector.contract.verdict import Culprit, Evidence

BEFORE_NS = 300 * NS
"""How long before the start of a verdict a line may be part of its story."""
LINES_MAX = 4
"""Kinds of messages of one verdict: a device that fails has a handful."""
COUNT_MAX = 1 << 40
TEXT_MAX = 300


def kernel_words(window: Window, culprit: Culprit, since_ns: int) -> list[Evidence]:
    """The kinds of messages about the culprit, the first first."""
    if not culprit.host:
        return []
    found: dict[str, list[Event]] = {}
    for event in window.events:
        if event.kind != KERNEL_MESSAGE or event.time_ns < since_ns - BEFORE_NS:
            continue
        if is_about(event, culprit):
            found.setdefault(event.attributes.get(MESSAGE, ""), []).append(event)
    kinds = sorted(found.items(), key=lambda each: (min(one.time_ns for one in each[1]), each[0]))
    return [to_evidence(kind, events) for kind, events in kinds[:LINES_MAX]]


def is_about(event: Event, culprit: Culprit) -> bool:
    labels = event.labels
    if labels.get("host") != culprit.host:
        return False
    if culprit.device and labels.get("device") == culprit.device:
        return True
    if culprit.gpu is not None and labels.get("gpu") == str(culprit.gpu):
        return True
    is_rank = culprit.rank is not None and labels.get("rank") == str(culprit.rank)
    return is_rank and labels.get("job", "") in ("", culprit.job)


def to_evidence(kind: str, events: list[Event]) -> Evidence:
    first = min(events, key=lambda one: one.time_ns)
    count = sum(whole_number(one.attributes.get(COUNT, ""), COUNT_MAX) or 1 for one in events)
    return Evidence(
        metric=MESSAGES,
        text=f"{first.labels['host']}: {first.message}"[:TEXT_MAX],
        value=float(count),
        unit="messages",
        baseline=0.0,
        from_ns=first.time_ns,
        to_ns=max(one.time_ns for one in events),
        labels={**first.labels, "kind": kind},
        samples=count,
    )
