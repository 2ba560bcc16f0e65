"""Who fills a port of a switch, and whose packets it dropped: context, and nothing more.

`collector.switches.talkers` tells of ports that are busy with several senders, by the packets that
the switch sampled, and `collector.switches.drops` which packets it dropped, by its notices. Samples
are an estimate, many senders are no fault, and whose packets were dropped is no proof of who filled
the queue: this is shown beside what others have found, and accuses no one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container

from alerts.signals.addresses import addresses_of
from alerts.signals.ports import Span, called, observe
from alerts.window.model import Window
from collector.contract.drop_reasons import NAMES as DROP_REASONS
from collector.contract.drop_reasons import is_detail
from collector.contract.model import Event
from collector.contract.verdict import Evidence

PORT_TALKERS = "port_talkers"
PORT_DROPS = "port_drops"
SHOWN_MAX = 3
SHARE_MAX = 100
DROPPED = "queue_discarded_packets_total"
"""The counter of what the notices are about, if the port has it."""
COUNTS_MAX, DIGITS = 16, 12
"""Of an event's counts: events come from outside."""
QUEUES = frozenset(map(str, range(64)))
"""Of a port: eight with priorities, and as many again for unicast and multicast."""
ADDRESS_CHARS_MAX = 45
"""Of an IPv6 address in text: events come from outside."""
HOST_CHARS_MAX = 253


def flow_evidence(window: Window, port: int, span: Span) -> list[Evidence]:
    """Whose packets a switch's port dropped while something lasted, and who sent through it.

    ``port``: the row of the switch's port; below 0: it is not known.
    """
    if port < 0 or not window.ports.is_switch[port]:
        return []
    return [*drop_evidence(window, port, span), *talker_evidence(window, port, span)]


def switch_drops(window: Window, switch: str, span: Span) -> list[Evidence]:
    """What one switch told of drops at all of its ports: those with most of them."""
    ports = window.ports
    told = [
        one
        for row in range(len(ports.host))
        if ports.is_switch[row] and ports.host[row] == switch
        for one in drop_evidence(window, row, span)
    ]
    return sorted(told, key=lambda one: (-one.value, one.text))[:SHOWN_MAX]


def events_at(window: Window, kind: str, port: int, span: Span) -> list[Event]:
    """What was told of a port while something lasted."""
    ports, edges = window.ports, window.ports.grid.edges_ns
    return [
        event
        for event in window.events
        if event.kind == kind
        and int(edges[span.first]) <= event.time_ns < int(edges[span.last + 1])
        and event.labels.get("host") == ports.host[port]
        and event.labels.get("port") == ports.port[port]
    ]


def drop_evidence(window: Window, port: int, span: Span) -> list[Evidence]:
    """Packets that the switch told it dropped at this port: how many at least, why, and whose."""
    ports = window.ports
    told = events_at(window, PORT_DROPS, port, span)
    reasons: Counter[str] = Counter()
    queues: Counter[str] = Counter()
    details: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    hosts: dict[str, str] = {}
    for event in told:
        counted = parse_counts(event.attributes.get("reasons", ""), DROP_REASONS)
        reasons.update(counted)
        queues.update(parse_counts(event.attributes.get("queues", ""), QUEUES))
        details.update(parse_details(event.attributes.get("details", "")))
        total = sum(counted.values())
        for source, target, share in parse_talkers(event.attributes.get("talkers", "")):
            pairs[source, target] += share * total
        hosts |= parse_hosts(event.attributes.get("hosts", ""))
    total = sum(reasons.values())
    if not total:
        return []
    hosts |= addresses_of(window.events)
    why = ", ".join(name for name, _ in reasons.most_common(SHOWN_MAX))
    why += f"; {details.most_common(1)[0][0].replace(':', ' ')}" if details else ""
    why += f"; queue {queues.most_common(1)[0][0]}" if queues else ""
    text = f"{ports.host[port]} told of {total} packets that its port {ports.port[port]} dropped"
    words = ", ".join(
        f"{owner(window, source, hosts)} to {owner(window, target, hosts)} {share / total:.0f} %"
        for (source, target), share in pairs.most_common(SHOWN_MAX)
    )
    text += f" ({why}){': from ' if words else ''}{words}"
    value = float(total)
    return [observe(window, port, DROPPED, span, text=text, value=value, unit="packets")]


def talker_evidence(window: Window, port: int, span: Span) -> list[Evidence]:
    """The greatest senders to a switch's port while something lasted, by sampled packets."""
    ports, told = window.ports, events_at(window, PORT_TALKERS, port, span)
    if not told:
        return []
    latest = max(told, key=lambda event: (event.time_ns, event.attributes.get("talkers", "")))
    pairs = parse_talkers(latest.attributes.get("talkers", ""))[:SHOWN_MAX]
    if not pairs:
        return []
    hosts = parse_hosts(latest.attributes.get("hosts", "")) | addresses_of(window.events)
    words = ", ".join(f"{owner(window, one, hosts)} {share} %" for one, _, share in pairs)
    text = f"by sampled packets, what {called(ports, port)} sends comes from {words}"
    value = pairs[0][2] / SHARE_MAX
    return [
        observe(window, port, "transmit_bytes_total", span, text=text, value=value, unit="ratio")
    ]


def owner(window: Window, address: str, hosts: dict[str, str]) -> str:
    """An address with the host that it is of and the jobs that run there, where they are known."""
    host = hosts.get(address, "")
    if not host:
        return address
    jobs = sorted(
        {job.job for job in window.jobs if any(each.host == host for each in job.ranks.values())}
    )
    of_job = f" of job {', '.join(jobs)}" if jobs else ""
    return f"{host}{of_job} ({address})"


def parse_details(text: str) -> dict[str, int]:
    """Counts by what dropped packets; what has another shape is passed over.

    >>> parse_details("trap:tail_drop=4 acl:<b>=9 own:x=7")
    {'trap:tail_drop': 4}
    """
    names = {name for name in (word.partition("=")[0] for word in text.split()) if is_detail(name)}
    return parse_counts(text, names)


def parse_counts(text: str, known: Container[str]) -> dict[str, int]:
    """Counts by known names; what has another shape is passed over.

    >>> parse_counts("no_buffer_space=41 nonsense red=x own=7", {"no_buffer_space", "red"})
    {'no_buffer_space': 41}
    """
    words = (word.partition("=") for word in text.split()[:COUNTS_MAX])
    return {
        name: int(count)
        for name, _, count in words
        if name in known and count.isascii() and count.isdigit() and len(count) <= DIGITS
    }


def parse_hosts(text: str) -> dict[str, str]:
    """Host of each address, as the collector resolved it.

    >>> parse_hosts("192.0.2.1=host-1 nonsense")
    {'192.0.2.1': 'host-1'}
    """
    words = (word.partition("=") for word in text.split())
    return {
        address: host[:HOST_CHARS_MAX]
        for address, sign, host in words
        if sign and host and 0 < len(address) <= ADDRESS_CHARS_MAX
    }


def parse_talkers(text: str) -> list[tuple[str, str, int]]:
    """Sender, receiver and percent of each pair; what has another shape is passed over.

    >>> parse_talkers("192.0.2.1>192.0.2.9=41 nonsense 2001:db8::1>2001:db8::9=7")
    [('192.0.2.1', '192.0.2.9', 41), ('2001:db8::1', '2001:db8::9', 7)]
    """
    found = []
    for word in text.split():
        pair, _, share = word.partition("=")
        source, _, destination = pair.partition(">")
        is_number = share.isascii() and share.isdigit() and len(share) <= len(str(SHARE_MAX))
        if is_number and 0 < len(source) <= ADDRESS_CHARS_MAX >= len(destination) > 0:
            found.append((source, destination, min(int(share), SHARE_MAX)))
    return found
