"""What switches report of themselves, as labels: bounded, printable, and of any type."""

from __future__ import annotations

from collector.contract.identity import printable
from collector.switches.snmp.model import Oid, Value

LABEL_CHARACTERS_MAX = 128
"""Names of ports and systems have some 40; more is no name."""
DESCRIPTION_CHARACTERS_MAX = 256
"""sysDescr may have 255 octets (RFC 3418)."""
MAC_BYTES = 6
IPV4_BYTES = 4
IPV4_FAMILY, IPV6_FAMILY = 1, 2
"""First byte of an LLDP network address (IANA's numbers of address families)."""
SHOWN_CHARACTERS_MAX = 40
"""Characters of an unexpected value that a `Missing` quotes."""


def text_of(value: Value | None, characters_max: int = LABEL_CHARACTERS_MAX) -> str:
    r"""An octet string as a label; empty if it is none. Some agents send a final NUL, or quotes.

    >>> text_of(b'"Ethernet1/1"\n\x00')
    'Ethernet1/1'
    """
    if not isinstance(value, bytes):
        return ""
    text = value[: 4 * characters_max].decode("utf-8", "replace")
    return printable(text.strip("\0").strip().strip('"').strip())[:characters_max]


def mac_of(value: Value | None) -> str:
    """A hardware address; agents send six bytes or its text.

    >>> mac_of(bytes(range(6))), mac_of(b"74-86-E2-0A-0C-04"), mac_of(b"leaf")
    ('00:01:02:03:04:05', '74:86:e2:0a:0c:04', '')
    """
    if not isinstance(value, bytes):
        return ""
    if len(value) == MAC_BYTES:
        return value.hex(":")
    digits = text_of(value).lower().replace("-", "").replace(":", "").replace(".", "")
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        return ""
    return raw.hex(":") if len(raw) == MAC_BYTES else ""


def network_address_of(value: Value | None) -> str:
    r"""An LLDP network address: a byte for the family, then the address.

    >>> network_address_of(b"\x01\xc0\x00\x02\x07")
    '192.0.2.7'
    """
    if not isinstance(value, bytes) or not value:
        return ""
    family, address = value[0], value[1:]
    if family == IPV4_FAMILY and len(address) == IPV4_BYTES:
        return ".".join(map(str, address))
    if family == IPV6_FAMILY:
        return address[:16].hex(":", 2)
    return text_of(value)


def number_of(value: Value | None) -> int | None:
    return value if isinstance(value, int) else None


def shown(value: Value) -> str:
    text = dotted(value) if isinstance(value, tuple) else repr(value)
    return printable(text)[:SHOWN_CHARACTERS_MAX]


def dotted(oid: Oid) -> str:
    return ".".join(map(str, oid))
