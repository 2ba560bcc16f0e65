"""The addresses of this host, from `/proc/net`: to know which processes of an answer are here."""

from __future__ import annotations

import ipaddress
import re

from collector.contract.errors import HostError
from collector.doors.host import Host

ADDRESSES_MAX = 4096
"""A host with a hundred containers has some three hundred."""

_LEAF = re.compile(r"\|-- (\d{1,3}(?:\.\d{1,3}){3})")
_INET6 = re.compile(r"([0-9a-f]{32}) ")


def local_addresses(host: Host) -> frozenset[str]:
    """Every address of the host in its usual spelling; those of loopback are always among them."""
    found = {"127.0.0.1", "::1"}
    for path, parse in (("proc/net/fib_trie", parse_fib_trie), ("proc/net/if_inet6", parse_inet6)):
        try:
            text = host.read(path).decode("ascii", "replace")
        except HostError:
            continue
        found |= set(sorted(parse(text))[:ADDRESSES_MAX])
    return frozenset(found)


def parse_fib_trie(text: str) -> set[str]:
    r"""IPv4 addresses: the leaves of the kernel's routing trie that are local.

    >>> parse_fib_trie("  |-- 10.0.0.7\n     /32 host LOCAL\n  |-- 10.0.0.0\n     /24 link\n")
    {'10.0.0.7'}
    """
    found = set()
    leaf = ""
    for line in text.splitlines():
        if match := _LEAF.search(line):
            leaf = match[1]
        elif leaf and line.strip() == "/32 host LOCAL":
            found.add(leaf)
    return found


def parse_inet6(text: str) -> set[str]:
    """IPv6 addresses: one to a line, as 32 digits.

    >>> parse_inet6("fe800000000000000000000000000001 02 40 20 80     eth0")
    {'fe80::1'}
    """
    lines = (_INET6.match(line) for line in text.splitlines())
    return {str(ipaddress.IPv6Address(int(match[1], 16))) for match in lines if match}
