"""Hosts, and rails, whose probes are lost or slow. Context and a warning, never a verdict.

*Phenomenon.* A link, a port or a path loses packets that no counter shows, or holds them up: a grey
link. A job that comes to it is slow from its first step.

*Signal.* Agents probe each other over each rail (`fabric_host_probe_…`). A pair is bad if it loses
a hundredth of its probes, or takes five times as long as the rail's median pair and 200 µs more. A
host's end of a rail is named if it is bad with four of five of its peers, three at least, while
the pairs without it are good. It is not if those of its pairs that are good are too good for a bad
end, or if another bad end is good with it, or does not probe it: what they share (an uplink of
their leaf) explains it as well then, and it is said to be one of these, unknown which. Nor is it
if no other host of its leaf clears the leaf: one that is bad with it and good with others, or
several that are good beyond the leaf. Host and leaf are both said then, and what decides. Bad
pairs that no end explains are the rail's: no part is named.

*Assumptions.* Agents of both ends run: an end that answers no host and whose own probes are not
known has no agent, perhaps, and is left out; so is the time in which an end's own probes have a
gap. A part that is bad is bad for most of its peers. Hosts
that hang on all the leaves that a host hangs on share its rail's leaf. Where a host's leaf is not
known it may be the only one there: it is named with half the strength, and the doubt is said.

*Misses.* What RDMA alone loses: probes are UDP, in another class of traffic. Losses that are rarer
than one in a hundred. Which of its links is bad inside the fabric: paths are not known. A bad end
at a leaf without another host that probes is not told from the leaf. Meshes of three hosts and
fewer.

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
from alerts.window.columns import Flags
from alerts.window.model import Hosts, Ports, Window
from collector.contract.cause_facts import Sight, Sought
from collector.contract.figures import duration
from collector.contract.probes import LOST, ROUND_TRIP, SENT, parse_far_end
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Evidence

NAME = "probe_loss"
LOOKS_FOR = Sought(
    "probes that are lost or slow", (Sight("probes between hosts", "hosts", ("probe_",)),)
)

SENT_TO = SENT.removeprefix("fabric_host_") + ":"
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
UNSURE_STRENGTH = STRENGTH / 2
"""Of what names no host, or one that may be the only one of its leaf: below one half."""
PAIRS_SHOWN, ENDS_SHOWN = 4, 8
ONLY_ONE = "; its leaf is not known: if {} is the only host there, it may be the leaf as well"


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


class Group(msgspec.Struct, frozen=True):
    """Ends of which it cannot be told whether they are bad, or something that they share."""

    pairs: Sequence[Pair]
    leaves: tuple[str, ...] = ()
    """What they share, if no other host clears it: their leaf is one of these."""
    silent: tuple[str, ...] = ()
    """Other hosts there, of which nothing is heard."""


class Bad(msgspec.Struct, frozen=True):
    """One rail: the ends that explain its bad pairs, and the bad pairs that none explains."""

    rail: str
    what: str
    """`lost` or `slow`."""
    ends: Mapping[str, Sequence[Pair]]
    groups: Mapping[tuple[str, ...], Group]
    """Ends that something which they share explains as well: it cannot be told which it is."""
    rest: Sequence[Pair]


Leaves = Mapping[str, AbstractSet[str]]
"""The switches that each host hangs on, where known."""


def detect(window: Window) -> list[Finding]:
    leaves = leaves_of(window.ports)
    return [
        finding
        for rail, pairs in pairs_by_rail(window).items()
        for bad in localise(rail, pairs, leaves)
        for finding in to_findings(window, bad, leaves)
    ]


# Pairs -------------------------------------------------------------------------------------------


def pairs_by_rail(window: Window) -> dict[str, list[Pair]]:
    """Every pair that enough probes are known of, while the target's agent is known to run."""
    hosts, found = window.hosts, dict[str, list[Pair]]()
    step_s, running = hosts.grid.step_ns / NS, running_by_rail(hosts)
    for name in sorted(name for name in hosts.readings if name.startswith(SENT_TO)):
        to = name.removeprefix(SENT_TO)
        target, rail = parse_far_end(to)
        names = [f"{metric.removeprefix('fabric_host_')}:{to}" for metric in (LOST, ROUND_TRIP)]
        sent, lost = hosts.values(name), hosts.values(names[0])
        # A cell in which one of the two was not read says nothing about the other.
        known = np.isfinite(sent) & np.isfinite(lost)
        if target in running.get(rail, {}):
            known &= running[rail][target]
        sent_sum, lost_sum = (
            np.where(known, each, 0.0).sum(axis=1) * step_s for each in (sent, lost)
        )
        trips = hosts.values(names[1])
        for row in np.flatnonzero(sent_sum >= SENT_LEAST).tolist():
            own = trips[row][np.isfinite(trips[row])]
            trip = float(np.median(own)) if len(own) else float("nan")
            totals = float(sent_sum[row]), min(float(lost_sum[row]), float(sent_sum[row]))
            found.setdefault(rail, []).append(Pair(hosts.host[row], target, *totals, trip))
    return found


def running_by_rail(hosts: Hosts) -> dict[str, dict[str, Flags]]:
    """The cells in which each host's own probes are known: its agent runs, and answers others.

    Not those beside a gap: it may have begun or ended within them.
    """
    found: dict[str, dict[str, Flags]] = {}
    for name, readings in hosts.readings.items():
        if not name.startswith(SENT_TO):
            continue
        own = found.setdefault(parse_far_end(name.removeprefix(SENT_TO))[1], {})
        for row, values in zip(readings.row.tolist(), readings.values, strict=True):
            host, known = hosts.host[row], np.isfinite(values)
            own[host] = own[host] | known if host in own else known
    for own in found.values():
        for host, known in own.items():
            beside = np.pad(known, 1, constant_values=True)
            own[host] = known & beside[:-2] & beside[2:]
    return found


def leaves_of(ports: Ports) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for row in np.flatnonzero(~ports.is_switch & (ports.other_end >= 0)).tolist():
        far = int(ports.other_end[row])
        if ports.is_switch[far]:
            found.setdefault(ports.host[row], set()).add(ports.host[far])
    return {host: frozenset(own) for host, own in found.items()}


def localise(rail: str, pairs: Sequence[Pair], leaves: Leaves) -> Iterator[Bad]:
    """Who explains the bad pairs of a rail."""
    heard = [pair for pair in pairs if not is_unheard(pair, pairs)]
    lost = [pair for pair in heard if is_lossy(pair)]
    if lost:
        yield explain(rail, "lost", heard, lost, leaves)
    answered = [pair for pair in heard if np.isfinite(pair.round_trip_s)]
    if len(answered) > PEERS_LEAST:
        usual = float(np.median([pair.round_trip_s for pair in answered]))
        floor = max(usual * SLOWER, usual + SLOWER_S)
        slow = [pair for pair in answered if pair.round_trip_s > floor]
        if slow:
            yield explain(rail, "slow", answered, slow, leaves)


def is_unheard(pair: Pair, pairs: Sequence[Pair]) -> bool:
    """Whether its target answers no host and is not known to send: it has no agent, perhaps."""
    if pair.share < SILENT:
        return False
    answers = any(one.target == pair.target and one.share < SILENT for one in pairs)
    return not answers and all(one.source != pair.target for one in pairs)


def is_lossy(pair: Pair) -> bool:
    return pair.lost >= LOST_LEAST and pair.share >= SHARE_LEAST


def explain(
    rail: str, what: str, pairs: Sequence[Pair], bad: Sequence[Pair], leaves: Leaves
) -> Bad:
    """The ends that are bad with most of their peers, if the pairs without them are good."""
    named = ends_named(pairs, bad)
    rest = [pair for pair in bad if not touches(pair, named)]
    lost = {ends_of(pair) for pair in bad}
    unclear = {end for end in named if leaves.get(end) and not is_told(end, pairs, lost, leaves)}
    alone: dict[str, Sequence[Pair]] = {}
    groups: dict[tuple[str, ...], Group] = {}
    for leaf in {leaves[end] for end in unclear}:
        group = tuple(sorted(end for end in unclear if leaves[end] == leaf))
        groups[group] = Group(
            [one for one in bad if touches(one, set(group))],
            tuple(sorted(leaf)),
            silent_at(leaf, pairs, leaves),
        )
    for group in sharing(named - unclear, lost):
        own = [one for one in bad if touches(one, set(group))]
        good = [one for one in pairs if touches(one, set(group)) and ends_of(one) not in lost]
        if len(group) == 1 and not are_too_good(what, good, own):
            alone[group[0]] = own
        else:
            groups[group] = Group(own)
    return Bad(rail, what, alone, dict(sorted(groups.items())), rest)


def ends_named(pairs: Sequence[Pair], bad: Sequence[Pair]) -> set[str]:
    """Ends that are bad with most; none if there are too many, or other pairs are bad as well."""
    ends = {end for pair in pairs for end in (pair.source, pair.target)}
    suspects = {end for end in ends if is_bad_with_most(end, pairs, bad)}
    named = {
        end
        for end in suspects
        # What other suspects explain is not this end's.
        if is_bad_with_most(end, *(without(each, suspects - {end}) for each in (pairs, bad)))
    }
    others = sum(not touches(pair, named) for pair in pairs)
    if len(named) > len(ends) * NAMED_SHARE_MOST or not others:
        return set()
    rest = sum(not touches(pair, named) for pair in bad)
    return named if rest <= others * OTHERS_BAD_MOST else set()


def is_told(
    end: str, pairs: Sequence[Pair], lost: AbstractSet[tuple[str, str]], leaves: Leaves
) -> bool:
    """Whether other hosts of its leaf clear the leaf, and its uplinks.

    One that is bad with this end and good with another: what they share is its leaf alone. Or some
    that are good with hosts beyond the leaf, by several pairs: one may cross a good uplink.
    """
    own = leaves[end]
    mates = {host for host, theirs in leaves.items() if host != end and own <= theirs}
    good = {ends_of(pair) for pair in pairs if not touches(pair, {end})} - lost
    clear = mates & {each for ends in good for each in ends}
    if any(ends_of_two(end, mate) in lost for mate in clear):
        return True
    beyond = {host for host, theirs in leaves.items() if theirs.isdisjoint(own)}
    crossing = sum(not mates.isdisjoint(ends) and not beyond.isdisjoint(ends) for ends in good)
    return crossing >= PEERS_LEAST


def silent_at(leaf: AbstractSet[str], pairs: Sequence[Pair], leaves: Leaves) -> tuple[str, ...]:
    heard = {end for pair in pairs for end in (pair.source, pair.target)}
    return tuple(sorted(host for host, own in leaves.items() if leaf <= own and host not in heard))


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
    return ends_of_two(pair.source, pair.target)


def ends_of_two(one: str, other: str) -> tuple[str, str]:
    return min(one, other), max(one, other)


def touches(pair: Pair, ends: AbstractSet[str]) -> bool:
    return pair.source in ends or pair.target in ends


def without(pairs: Sequence[Pair], ends: AbstractSet[str]) -> list[Pair]:
    return [pair for pair in pairs if not touches(pair, ends)]


def is_bad_with_most(end: str, pairs: Sequence[Pair], bad: Sequence[Pair]) -> bool:
    peers = {other_of(pair, end) for pair in pairs if touches(pair, {end})}
    hurt = {other_of(pair, end) for pair in bad if touches(pair, {end})}
    return len(peers) >= PEERS_LEAST and len(hurt) >= MOST_PEERS * len(peers)


def other_of(pair: Pair, end: str) -> str:
    return pair.target if pair.source == end else pair.source


# Findings ----------------------------------------------------------------------------------------


def to_findings(window: Window, bad: Bad, leaves: Leaves) -> Iterator[Finding]:
    for end, pairs in bad.ends.items():
        doubt = "" if leaves.get(end) else ONLY_ONE.format(end)
        yield to_finding(window, bad, Culprit(host=end), pairs, doubt)
    for group, own in bad.groups.items():
        yield to_finding(window, bad, Culprit(), own.pairs, one_of(group, own))
    if bad.rest:
        yield to_finding(window, bad, Culprit(), bad.rest)


def one_of(ends: Sequence[str], group: Group) -> str:
    """What may be at fault, where it cannot be told, and what decides.

    >>> one_of(["a"], Group([])), one_of(["a", "b"], Group([]))
    ('; unknown: one of a and what it shares', '; unknown: one of a, b and what they share')
    >>> one_of(["a"], Group([], ("leaf-1",), ("b", "c")))  # doctest: +NORMALIZE_WHITESPACE
    '; unknown: one of a and its leaf leaf-1 with its uplinks; what decides: probes from
    another host at leaf-1 (b, c: silent)'
    """
    its, they = ("its", "it shares") if len(ends) == 1 else ("their", "they share")
    suspects = shown_ends(ends)
    if not group.leaves:
        return f"; unknown: one of {suspects} and what {they}"
    leaf = shown_ends(group.leaves)
    if len(group.leaves) > 1:
        leaf = f"one of {leaf}"
    others = f"{shown_ends(group.silent)}: silent" if group.silent else "none is known"
    return (
        f"; unknown: one of {suspects} and {its} leaf {leaf} with its uplinks;"
        f" what decides: probes from another host at {leaf} ({others})"
    )


def shown_ends(names: Sequence[str]) -> str:
    return ", ".join(names[:ENDS_SHOWN]) + (", …" if len(names) > ENDS_SHOWN else "")


def to_finding(
    window: Window, bad: Bad, culprit: Culprit, pairs: Sequence[Pair], doubt: str = ""
) -> Finding:
    worst = sorted(pairs, key=lambda one: (-one.share, one.source, one.target))[:PAIRS_SHOWN]
    return Finding(
        detector=NAME,
        cause=Cause.LOSSY_LINK if bad.what == "lost" else Cause.SLOW_LINK,
        culprit=culprit,
        strength=STRENGTH if culprit.host and not doubt else UNSURE_STRENGTH,
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
