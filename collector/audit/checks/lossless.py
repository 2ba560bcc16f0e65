"""Settings of a RoCE NIC that contradict each other: trust, PFC, ECN and the mark of the traffic.

Which of lossless, lossy or something between is right is the fabric's choice; this check only
reports combinations that are wrong in any.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from collector.audit.checks import Check
from collector.audit.facts import Fact, Facts
from collector.audit.finding import Finding, Severity, evidence_of
from collector.audit.settings import (
    CMA_TOS,
    DSCP_MAP,
    ECN_NOTIFY,
    ECN_REACT,
    ETHERNET,
    INTERFACE,
    LINK_LAYER,
    NONE,
    PAUSE,
    PFC,
    TRAFFIC_CLASS,
    TRUST,
)

NCCL_CLASS = "NCCL_IB_TC"
PFC_SOURCE = "IEEE 802.1Qbb; NVIDIA, recommended network configuration examples for RoCE"
DSCP_SHIFT = 2
"""A traffic class is DSCP and two bits of ECN."""


def judge(facts: Facts) -> Iterator[Finding]:
    for nic in facts.active_fabric_nics:
        if facts.value(nic, LINK_LAYER) != ETHERNET:
            continue
        yield from judge_pause(facts, nic)
        yield from judge_ecn(facts, nic)
        marks = [facts.get(nic, TRAFFIC_CLASS), facts.get(nic, CMA_TOS)]
        for mark in marks:
            if mark is not None:
                yield from judge_mark(facts, nic, mark)
    roce = [n for n in facts.active_fabric_nics if facts.value(n, LINK_LAYER) == ETHERNET]
    for job in facts.jobs:
        mark = facts.get(job, NCCL_CLASS)
        # The NICs of a host are alike, or `unlike_nics` reports it: the first stands for all.
        if mark is not None and roce:
            yield from judge_mark(facts, roce[0], mark)


def judge_pause(facts: Facts, nic: str) -> Iterator[Finding]:
    pause, pfc = facts.value(nic, PAUSE), facts.value(nic, PFC)
    if not pfc or pfc == NONE or not pause or pause == NONE:
        return
    interface = facts.value(nic, INTERFACE)
    yield Finding(
        check="lossless",
        severity=Severity.WARNING,
        device=nic,
        title=f"{interface} ({nic}) has global pause on ({pause}) beside PFC on priority {pfc}",
        read=evidence_of([facts.get(nic, PAUSE), facts.get(nic, PFC)]),
        expected="global pause off where PFC is on",
        why="Global pause stops every priority; the two exclude each other on a link.",
        source=PFC_SOURCE,
        fix=f"ethtool -A {interface} rx off tx off",
        confidence=0.8,
        cost="A pause for one class stops all of them.",
    )


def judge_ecn(facts: Facts, nic: str) -> Iterator[Finding]:
    """Priorities that are marked and not obeyed, or paused without congestion control."""
    notify, react = facts.get(nic, ECN_NOTIFY), facts.get(nic, ECN_REACT)
    if notify is None or react is None:
        return
    interface, pfc = facts.value(nic, INTERFACE), numbers(facts.value(nic, PFC))
    one_sided = numbers(notify.value) ^ numbers(react.value)
    bare = pfc - numbers(notify.value) - numbers(react.value)
    if not one_sided and not bare:
        return
    wrong = sorted(one_sided or bare)
    shown = ",".join(str(priority) for priority in wrong)
    what = "has only one half of congestion control on" if one_sided else "has PFC without ECN on"
    yield Finding(
        check="lossless",
        severity=Severity.WARNING,
        device=nic,
        title=f"{interface} ({nic}) {what} priority {shown}",
        read=evidence_of([notify, react, facts.get(nic, PFC)]),
        expected="notification and reaction point on for the priority of RDMA",
        why="Without both halves senders do not slow down, and pause spreads through the fabric.",
        source="Zhu et al., Congestion control for large-scale RDMA deployments, SIGCOMM 2015",
        fix=f"echo 1 > /sys/class/net/{interface}/ecn/roce_{{np,rp}}/enable/{wrong[0]}",
        confidence=0.7,
        cost="Congestion turns into pause, which also stops flows that did not cause it.",
    )


def judge_mark(facts: Facts, nic: str, mark: Fact) -> Iterator[Finding]:
    """Traffic whose mark the NIC ignores, or that it puts outside the lossless class."""
    trust, pfc = facts.value(nic, TRUST), numbers(facts.value(nic, PFC))
    if not mark.value.isdecimal() or int(mark.value) > 255 or not int(mark.value):  # noqa: PLR2004 - a byte
        return
    code = int(mark.value) >> DSCP_SHIFT
    priority = priority_of(facts.value(nic, DSCP_MAP), code)
    interface = facts.value(nic, INTERFACE)
    if trust == "pcp":
        title = f"{mark.setting}={mark.value} marks DSCP {code}, but {interface} trusts PCP"
        expected, fix = "trust dscp", f"mlnx_qos -i {interface} --trust dscp"
    elif pfc and priority is not None and priority not in pfc:
        paused = facts.value(nic, PFC)
        title = (
            f"{mark.setting}={mark.value} puts RDMA on priority {priority}; PFC is on for {paused}"
        )
        expected = f"a DSCP that {interface} maps to priority {paused}"
        fix = f"choose a traffic class of that priority, or mlnx_qos -i {interface} --dscp2prio …"
    else:
        return
    settings = (TRUST, PFC, DSCP_MAP)
    yield Finding(
        check="lossless",
        severity=Severity.WARNING,
        device=mark.device,
        title=title,
        read=evidence_of([mark, *(facts.get(nic, setting) for setting in settings)]),
        expected=expected,
        why="What is not in the lossless class is dropped when a buffer is full.",
        source=PFC_SOURCE,
        fix=fix,
        confidence=0.8,
        cost="Lost packets: RoCE repeats all that followed, and throughput collapses under load.",
    )


@lru_cache(maxsize=1024)
def numbers(text: str) -> frozenset[int]:
    """The numbers of a list with commas.

    >>> sorted(numbers("3,4")), numbers("none")
    ([3, 4], frozenset())
    """
    return frozenset(int(part) for part in text.split(",") if part.isdecimal())


@lru_cache(maxsize=1024)
def priority_of(mapping: str, code: int) -> int | None:
    """The priority of a DSCP by a map as `0:0-7 3:24-31`; None if the map lacks it.

    >>> priority_of("0:0-25 3:26", 26), priority_of("", 26)
    (3, None)
    """
    for part in mapping.split():
        priority, _, ranges = part.partition(":")
        for each in ranges.split(","):
            first, _, last = each.partition("-")
            is_range = first.isdecimal() and (last or first).isdecimal()
            if is_range and priority.isdecimal() and int(first) <= code <= int(last or first):
                return int(priority)
    return None


CHECK = Check(
    name="lossless",
    reads=frozenset(
        {
            *(TRUST, PFC, DSCP_MAP, PAUSE, ECN_NOTIFY, ECN_REACT, TRAFFIC_CLASS, CMA_TOS),
            *(INTERFACE, NCCL_CLASS),
        }
    ),
    judge=judge,
)
