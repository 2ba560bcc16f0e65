"""Which packets a switch has dropped, where and why, by its own notices (sFlow).

Each notice is one packet, up to a limit that the switch has: counts are the least that was dropped.
Notices are added up by port, reason and pair of addresses, and told as an event for each port;
between two reads, everything is bounded, and what is beyond a bound is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from collector.contract.drop_reasons import OTHER, REASONS
from collector.contract.model import Event
from collector.parsing.sflow import Discard
from collector.switches.talkers import PERCENT

KIND: Final = "port_drops"
PORTS_MAX: Final = 64
"""Ports of one switch that are told of at one read."""
PAIRS_MAX: Final = 4_096
"""Pairs of addresses at all ports of one switch between two reads."""
TOLD_MAX: Final = 5
"""Pairs, reasons, queues and names of what dropped, in one event."""
DETAILS_MAX: Final = 64
"""Names of what dropped, at one port between two reads."""
PARTS_MAX: Final = 64
"""Parts of one switch that count what they do not tell (the cards of a chassis)."""


class PortDrops:
    """The notices of one port since the last read."""

    __slots__ = ("details", "pairs", "queues", "reasons", "total")

    def __init__(self) -> None:
        self.total = 0
        self.reasons: Counter[str] = Counter()
        self.queues: Counter[int] = Counter()
        self.details: Counter[str] = Counter()
        """By what the switch says dropped them: an access list, a trap, a function."""
        self.pairs: Counter[tuple[str, str]] = Counter()


class Drops:
    """The notices of one switch."""

    def __init__(self) -> None:
        self._ports: dict[int, PortDrops] = {}
        self._pairs = 0
        self._untold: dict[tuple[int, int], int] = {}
        self.told: Counter[str] = Counter()
        """Notices by reason, since the beginning."""
        self.untold = 0
        """Drops that the switch did not tell of, since its first notice."""
        self.left_out = 0
        """Notices of which the port, the addresses or a name were not kept, for a bound."""

    def count(self, drop: Discard) -> None:
        reason = REASONS.get(drop.reason, OTHER)
        self.told[reason] += 1
        self._note_untold(drop)
        index = drop.output or drop.input
        port = self._ports.get(index)
        if port is None:
            if not index or len(self._ports) >= PORTS_MAX:
                self.left_out += 1
                return
            port = self._ports[index] = PortDrops()
        port.total += 1
        port.reasons[reason] += 1
        if drop.queue is not None and (drop.queue in port.queues or len(port.queues) < PARTS_MAX):
            port.queues[drop.queue] += 1
        is_kept = True
        if drop.detail:
            is_kept = drop.detail in port.details or len(port.details) < DETAILS_MAX
            if is_kept:
                port.details[drop.detail] += 1
        pair = drop.source, drop.destination
        if all(pair):
            is_new = pair not in port.pairs
            if is_new and self._pairs >= PAIRS_MAX:
                is_kept = False
            else:
                self._pairs += is_new
                port.pairs[pair] += 1
        self.left_out += not is_kept

    def _note_untold(self, drop: Discard) -> None:
        last = self._untold.get(drop.source_id)
        if last is None and len(self._untold) >= PARTS_MAX:
            return
        self._untold[drop.source_id] = drop.untold
        self.untold += max(0, drop.untold - last) if last is not None else 0

    def take(self) -> list[tuple[int, PortDrops]]:
        """Ports with notices since the last call, by ifIndex; most notices first."""
        found = sorted(self._ports.items(), key=lambda item: (-item[1].total, item[0]))
        self._ports = {}
        self._pairs = 0
        return found


def event_of(
    drops: PortDrops, labels: dict[str, str], seconds: float, time_ns: int, hosts: Mapping[str, str]
) -> Event:
    """What is told of a port that dropped; ``hosts``: the host of an address."""
    pairs = sorted(drops.pairs.items(), key=lambda item: (-item[1], item[0]))[:TOLD_MAX]
    known = {one: hosts[one] for pair, _ in pairs for one in pair if one in hosts}
    reasons = " ".join(f"{name}={count}" for name, count in drops.reasons.most_common(TOLD_MAX))
    shares = [(f"{a}>{b}", count * PERCENT / drops.total) for (a, b), count in pairs]
    words = ", ".join(f"{pair.replace('>', ' to ')} {share:.0f} %" for pair, share in shares)
    return Event(
        time_ns=time_ns,
        kind=KIND,
        labels=labels,
        message=(
            f"{labels['host']} told of {drops.total} packets that {labels['port']} dropped in "
            f"{seconds:.3g} s ({reasons}){': ' if words else ''}{words}"
        ),
        attributes={
            "count": str(drops.total),
            "reasons": reasons,
            "details": " ".join(f"{d}={n}" for d, n in drops.details.most_common(TOLD_MAX)),
            "queues": " ".join(f"{q}={n}" for q, n in drops.queues.most_common(TOLD_MAX)),
            "talkers": " ".join(f"{pair}={share:.0f}" for pair, share in shares),
            "hosts": " ".join(f"{address}={host}" for address, host in known.items()),
            "milliseconds": f"{seconds * 1000:.0f}",
        },
    )
