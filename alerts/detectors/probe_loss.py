"""Hosts, and rails, whose probes are lost or slow. Context and a warning, never a verdict.

*Phenomenon.* A link, a port or a path loses packets that no counter shows, or holds them up: a grey
link. A job that comes to it is slow from its first step.

*Signal.* Agents probe each other over each rail (`fabric_host_probe_…`). A pair is bad if it loses
a hundredth of its probes, or takes five times as long as the rail's median pair and 200 µs more. A
host's end of a rail is named if it is bad with four of five of its peers, three at least, while
the pairs without it are good. It is not if those of its pairs that are good are too good for a bad
end, or if another bad end is good with it, or does not probe it: what they share (an uplink of
their leaf) explains it as well then, and it is said to be one of these, unknown which. Bad pairs
that no end explains are the rail's: no part is named.

*Assumptions.* Agents of both ends run: an end that answers no host and whose own probes are not
known has no agent, perhaps, and is left out. A part that is bad is bad for most of its peers.

*Misses.* What RDMA alone loses: probes are UDP, in another class of traffic. Losses that are rarer
than one in a hundred. Which of its links is bad inside the fabric: paths are not known. A leaf with
one probing host alone: its uplinks look like that host's end. Meshes of three hosts and fewer.

*Reference.* R-Pingmesh (SIGCOMM 2024): a NIC that fails to most peers of its mesh is bad, and what
no NIC explains is the network's. Pingmesh (SIGCOMM 2015): healthy fabrics lose 1e-5 to 1e-4.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec
import numpy as np

from alerts.finding import Finding
from alerts.window.model import Window
from collector.contract.cause_facts import Sight, Sought
from collector.contract.figures import duration
from collector.contract.probes import LOST, ROUND_TRIP, SENT, parse_far_end
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Evidence

NAME = "probe_loss"
LOOKS_FOR = Sought(
    "probes that are lost or slow", (Sight("probes between hosts", "hosts", ("probe_",)),)
)

SHARE_LEAST = 0.01
"""A hundred times what a healthy fabric loses; with 240 probes in a window three of them."""
LOST_LEAST = 3
"""One or two may be chance."""
SENT_LEAST = 60
"""Fewer prove nothing about such shares."""
SILENT = 0.99
"""Nothing comes back: the other end is down, or has no agent."""
SLOWER = 5.0
SLOWER_S = 200e-6
PEERS_LEAST = 3
MOST_PEERS = 0.8
OTHERS_BAD_MOST = 0.05
"""Of the pairs without the named ends: more of them, and it is not the ends."""
NAMED_SHARE_MOST = 1 / 3
"""Of a rail's ends. If more look bad, it is the rail."""
EXPECTED_LEAST = 10.0
"""Probes that an end's good pairs would have lost if it were as bad with them as with the others;
fewer prove nothing. Of ten expected, chance leaves two or fewer once in 360 times."""
EXCUSES = 0.25
"""Of what is expected: pairs that lost no more, or one that is no slower, have no bad end."""
STRENGTH = 0.8
PAIRS_SHOWN, ENDS_SHOWN = 4, 8


class Pair(msgspec.Struct, frozen=True):
    """What one end knows of its way to another and back."""

    source: str
    target: str
    sent: float
    lost: float
    round_trip_s: float
    """NaN: none was answered."""

    @property
    def share(self) -> float:
        return self.lost / self.sent


class Bad(msgspec.Struct, frozen=True):
    """One rail: the ends that explain its bad pairs, and the bad pairs that none explains."""

    rail: str
    what: str
    """`lost` or `slow`."""
    ends: Mapping[str, Sequence[Pair]]
    groups: Mapping[tuple[str, ...], Sequence[Pair]]
    """Ends that something which they share explains as well: it cannot be told which it is."""
    rest: Sequence[Pair]


def detect(window: Window) -> list[Finding]:
    return [
        finding
        for rail, pairs in pairs_by_rail(window).items()
        for bad in localise(rail, pairs)
        for finding in to_findings(window, bad)
    ]


# Pairs -------------------------------------------------------------------------------------------


def pairs_by_rail(window: Window) -> dict[str, list[Pair]]:
    """Every pair that enough probes are known of."""
    hosts, found = window.hosts, dict[str, list[Pair]]()
    prefix, step_s = SENT.removeprefix("fabric_host_") + ":", window.hosts.grid.step_ns / NS
    for name in sorted(hosts.readings):
        if not name.startswith(prefix):
            continue
        to = name.removeprefix(prefix)
        target, rail = parse_far_end(to)
        names = [f"{metric.removeprefix('fabric_host_')}:{to}" for metric in (LOST, ROUND_TRIP)]
        sent, lost = hosts.values(name), hosts.values(names[0])
        # A cell in which one of the two was not read says nothing about the other.
        known = np.isfinite(sent) & np.isfinite(lost)
        sent_sum = np.where(known, sent, 0.0).sum(axis=1) * step_s
        lost_sum = np.where(known, lost, 0.0).sum(axis=1) * step_s
        trips = hosts.values(names[1])
        for row in np.flatnonzero(sent_sum >= SENT_LEAST).tolist():
            own = trips[row][np.isfinite(trips[row])]
            trip = float(np.median(own)) if len(own) else float("nan")
            totals = float(sent_sum[row]), min(float(lost_sum[row]), float(sent_sum[row]))
            found.setdefault(rail, []).append(Pair(hosts.host[row], target, *totals, trip))
    return found


def localise(rail: str, pairs: Sequence[Pair]) -> Iterator[Bad]:
    """Who explains the bad pairs of a rail."""
    heard = [pair for pair in pairs if not is_unheard(pair, pairs)]
    lost = [pair for pair in heard if is_lossy(pair)]
    if lost:
        yield explain(rail, "lost", heard, lost)
    answered = [pair for pair in heard if np.isfinite(pair.round_trip_s)]
    if len(answered) > PEERS_LEAST:
        usual = float(np.median([pair.round_trip_s for pair in answered]))
        floor = max(usual * SLOWER, usual + SLOWER_S)
        slow = [pair for pair in answered if pair.round_trip_s > floor]
        if slow:
            yield explain(rail, "slow", answered, slow)


def is_unheard(pair: Pair, pairs: Sequence[Pair]) -> bool:
    """Whether its target answers no host and is not known to send: it has no agent, perhaps."""
    if pair.share < SILENT:
        return False
    answers = any(one.target == pair.target and one.share < SILENT for one in pairs)
    return not answers and all(one.source != pair.target for one in pairs)


def is_lossy(pair: Pair) -> bool:
    return pair.lost >= LOST_LEAST and pair.share >= SHARE_LEAST


def explain(rail: str, what: str, pairs: Sequence[Pair], bad: Sequence[Pair]) -> Bad:
    """The ends that are bad with most of their peers, if the pairs without them are good."""
    ends = {end for pair in pairs for end in (pair.source, pair.target)}
    named = {end for end in ends if is_bad_with_most(end, pairs, bad)}
    rest = [pair for pair in bad if not touches(pair, named)]
    others = sum(not touches(pair, named) for pair in pairs)
    is_rail = len(named) > len(ends) * NAMED_SHARE_MOST or not others
    if is_rail or len(rest) > others * OTHERS_BAD_MOST:
        named, rest = set(), list(bad)
    lost = {ends_of(pair) for pair in bad}
    alone: dict[str, Sequence[Pair]] = {}
    groups: dict[tuple[str, ...], Sequence[Pair]] = {}
    for group in sharing(named, lost):
        own = [one for one in bad if touches(one, set(group))]
        good = [one for one in pairs if touches(one, set(group)) and ends_of(one) not in lost]
        if len(group) == 1 and not are_too_good(what, good, own):
            alone[group[0]] = own
        else:
            groups[group] = own
    return Bad(rail, what, alone, groups, rest)


def sharing(named: AbstractSet[str], bad: AbstractSet[tuple[str, str]]) -> list[tuple[str, ...]]:
    """The named ends, those together that a part which they share would explain as well.

    Two ends that are bad each by itself are bad with each other, too. If that is not known, or if
    they are good with each other, they may both be innocent.
    """
    group = {end: {end} for end in named}
    for one, other in itertools.combinations(sorted(named), 2):
        if (one, other) not in bad and group[one] is not group[other]:
            joined = group[one] | group[other]
            group.update(dict.fromkeys(joined, joined))
    return sorted({tuple(sorted(each)) for each in group.values()})


def are_too_good(what: str, good: Sequence[Pair], bad: Sequence[Pair]) -> bool:
    """Whether an end's good pairs prove that it is not as bad with everyone as with the others."""
    if what == "slow":
        usual = float(np.median([one.round_trip_s for one in bad]))
        return any(one.round_trip_s <= EXCUSES * usual for one in good)
    usual = float(np.median([one.share for one in bad]))
    expected = sum(one.sent for one in good) * usual
    return expected >= EXPECTED_LEAST and sum(one.lost for one in good) <= EXCUSES * expected


def ends_of(pair: Pair) -> tuple[str, str]:
    """Both ends, whichever asks."""
    return min(pair.source, pair.target), max(pair.source, pair.target)


def touches(pair: Pair, ends: AbstractSet[str]) -> bool:
    return pair.source in ends or pair.target in ends


def is_bad_with_most(end: str, pairs: Sequence[Pair], bad: Sequence[Pair]) -> bool:
    peers = {other_of(pair, end) for pair in pairs if touches(pair, {end})}
    hurt = {other_of(pair, end) for pair in bad if touches(pair, {end})}
    return len(peers) >= PEERS_LEAST and len(hurt) >= MOST_PEERS * len(peers)


def other_of(pair: Pair, end: str) -> str:
    return pair.target if pair.source == end else pair.source


# Findings ----------------------------------------------------------------------------------------


def to_findings(window: Window, bad: Bad) -> Iterator[Finding]:
    for end, pairs in bad.ends.items():
        yield to_finding(window, bad, Culprit(host=end), pairs)
    for group, pairs in bad.groups.items():
        yield to_finding(window, bad, Culprit(), pairs, one_of(group))
    if bad.rest:
        yield to_finding(window, bad, Culprit(), bad.rest)


def one_of(group: Sequence[str]) -> str:
    """What may be at fault, where it cannot be told.

    >>> one_of(["a"]), one_of(["a", "b"])
    ('; unknown: one of a and what it shares', '; unknown: one of a, b and what they share')
    """
    shown = ", ".join(group[:ENDS_SHOWN]) + (", …" if len(group) > ENDS_SHOWN else "")
    return f"; unknown: one of {shown} and what {'it shares' if len(group) == 1 else 'they share'}"


def to_finding(
    window: Window, bad: Bad, culprit: Culprit, pairs: Sequence[Pair], doubt: str = ""
) -> Finding:
    worst = sorted(pairs, key=lambda one: (-one.share, one.source, one.target))[:PAIRS_SHOWN]
    return Finding(
        detector=NAME,
        cause=Cause.LOSSY_LINK if bad.what == "lost" else Cause.SLOW_LINK,
        culprit=culprit,
        strength=STRENGTH if culprit.host else STRENGTH / 2,
        since_ns=window.from_ns,
        until_ns=window.until(window.to_ns),
        last_ns=window.to_ns,
        evidence=tuple(to_evidence(window, bad, pair, len(pairs), doubt) for pair in worst),
        is_context=True,
    )


def to_evidence(window: Window, bad: Bad, pair: Pair, pairs: int, doubt: str) -> Evidence:
    way = f"{bad.rail}: from {pair.source} to {pair.target} and back"
    if bad.what == "lost":
        text = f"{way} {pair.share:.1%} of {pair.sent:.0f} probes were lost; {pairs} pairs lose"
        metric, value, unit = LOST, pair.share, "ratio"
    else:
        text = f"{way} a probe takes {duration(pair.round_trip_s)}; {pairs} pairs are slow"
        metric, value, unit = ROUND_TRIP, pair.round_trip_s, "seconds"
    return Evidence(
        metric=metric,
        text=text + doubt,
        value=value,
        unit=unit,
        baseline=SHARE_LEAST if bad.what == "lost" else None,
        from_ns=window.from_ns,
        to_ns=window.to_ns,
        labels={"host": pair.source, "rail": bad.rail, "to": f"{pair.target}/{bad.rail}"},
        samples=round(pair.sent),
    )
