"""Which rail a host's NIC is on: its place among the NICs that the host has in the fabric. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from collector.contract.identity import natural

NicClass = tuple[str, str, str]
"""Board, type and link layer: NICs of the fabric are bought together."""


class NicPlace(msgspec.Struct, frozen=True, kw_only=True):
    """An RDMA device of a host: where it sits and whether it has a cable."""

    device: str
    pci_path: str = ""
    kind: NicClass = ("", "", "")
    is_cabled: bool = False


def rails_of(nics: Iterable[NicPlace]) -> Mapping[str, int]:
    """The rail of each RDMA device of one host that is in the fabric, from 0.

    In the fabric is the class of NICs of which most have a cable, so that a NIC whose cable was
    pulled keeps its number, and so do those behind it, while the two for storage have none.
    In PCI order where all of them have a place there, else in the order of their names.
    """
    nics = list(nics)
    cabled = Counter(nic.kind for nic in nics if nic.is_cabled)
    if not cabled:
        return {}
    there = Counter(nic.kind for nic in nics)
    kind = min(cabled, key=lambda each: (-cabled[each], -there[each], each))
    chosen = [nic for nic in nics if nic.kind == kind]
    chosen.sort(key=lambda nic: natural(nic.device))
    if all(nic.pci_path for nic in chosen):
        chosen.sort(key=lambda nic: nic.pci_path.split("/"))
    return {nic.device: rail for rail, nic in enumerate(chosen)}
