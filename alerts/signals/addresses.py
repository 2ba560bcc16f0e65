"""Which host an address is of, as hosts have said."""

from __future__ import annotations

from collections.abc import Sequence

from collector.contract.communicator import HOST
from collector.contract.model import Event

HOST_ADDRESS = "host_address"


def addresses_of(events: Sequence[Event]) -> dict[str, str]:
    """The host of each address that hosts said is theirs; an address of two hosts names neither."""
    hosts: dict[str, set[str]] = {}
    for event in events:
        if event.kind == HOST_ADDRESS:
            address = event.attributes.get("address", "")
            hosts.setdefault(address, set()).add(event.labels.get(HOST, ""))
    return {address: next(iter(own)) for address, own in hosts.items() if len(own) == 1}
