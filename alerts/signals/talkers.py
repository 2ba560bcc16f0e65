"""Who fills a port of a switch, by the packets that it sampled: context, and nothing more.

`collector.switches.talkers` tells of ports that are busy with several senders. Samples are an
estimate and many senders are no fault, so that this is shown beside what others have found, and
accuses no one.
"""

from __future__ import annotations

from alerts.signals.addresses import addresses_of
from alerts.signals.ports import Span, called, observe
from alerts.window.model import Window
from collector.contract.verdict import Evidence

PORT_TALKERS = "port_talkers"
SHOWN_MAX = 3
SHARE_MAX = 100
ADDRESS_CHARS_MAX = 45
"""Of an IPv6 address in text: events come from outside."""
HOST_CHARS_MAX = 253


def talker_evidence(window: Window, port: int, span: Span) -> list[Evidence]:
    """The greatest senders to a switch's port while something lasted, as its switch sampled them.

    ``port``: the row of the switch's port; below 0: it is not known.
    """
    if port < 0:
        return []
    ports, edges = window.ports, window.ports.grid.edges_ns
    told = [
        event
        for event in window.events
        if event.kind == PORT_TALKERS
        and int(edges[span.first]) <= event.time_ns < int(edges[span.last + 1])
        and event.labels.get("host") == ports.host[port]
        and event.labels.get("port") == ports.port[port]
    ]
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
