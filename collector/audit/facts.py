"""The settings of a host: small facts, each with the place where it was read.

A fact is a text: `("mlx5_0", "interface_mtu", "9000", "sys/class/net/eth2/mtu")`. The device is
empty for the host itself, an RDMA device, an interface without RDMA, `gpu0`, or `job NAME`. The
settings are listed in `collector.audit.settings`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import msgspec

from collector.audit.settings import (
    ACTIVE,
    KIND,
    KIND_GPU,
    KIND_JOB,
    KIND_RDMA,
    LINK_LAYER,
    MODEL,
    NCCL_PREFIX,
    PORT_RATE,
    PORT_STATE,
)
from collector.contract.identity import natural
from collector.contract.reason import UnreadReason

FACTS_MAX = 2_048
"""Facts of one host. Sixteen NICs of forty settings, sixteen GPUs of ten and a few jobs of twenty
variables make 1,100; the rest is left out and counted."""
VALUE_CHARACTERS_MAX = 256
"""Of a value: lists of devices and paths of files have some 150. A longer one is cut."""
ORIGIN_CHARACTERS_MAX = 200
DEVICE_CHARACTERS_MAX = 160


class Fact(msgspec.Struct, frozen=True, order=True, gc=False):
    """One setting, and where it was read: a path below the root, or a command."""

    device: str
    setting: str
    value: str
    origin: str = ""


class Unread(msgspec.Struct, frozen=True, order=True, gc=False):
    """A setting that could not be read, and why."""

    device: str
    setting: str
    reason: UnreadReason
    detail: str = ""


class Facts:
    """The facts of one host, looked up by device and setting. Of two about the same the first."""

    def __init__(
        self, host: str, facts: Iterable[Fact], unread: Iterable[Unread] = (), left_out: int = 0
    ) -> None:
        self.host = host
        self.left_out = left_out
        """Facts beyond FACTS_MAX, which were not kept."""
        self.by_device: dict[str, dict[str, Fact]] = {}
        self.unread = tuple(unread)
        for fact in facts:
            self.by_device.setdefault(fact.device, {}).setdefault(fact.setting, fact)

    def all(self) -> Iterator[Fact]:
        for of_device in self.by_device.values():
            yield from of_device.values()

    def get(self, device: str, setting: str) -> Fact | None:
        return self.by_device.get(device, {}).get(setting)

    def value(self, device: str, setting: str) -> str:
        """What the setting is; empty if it was not read."""
        fact = self.get(device, setting)
        return fact.value if fact else ""

    def number(self, device: str, setting: str) -> float | None:
        """What the setting is, where that is a number that is not negative."""
        return parse_number(self.value(device, setting))

    def each(self, setting: str, devices: Iterable[str]) -> dict[str, Fact]:
        """The facts about one setting, by device, of those devices that have it."""
        found = ((device, self.get(device, setting)) for device in devices)
        return {device: fact for device, fact in found if fact is not None}

    def of_kind(self, kind: str) -> list[str]:
        """The devices of a kind, as they are counted: mlx5_2 before mlx5_10."""
        return self._kinds.get(kind, [])

    @cached_property
    def _kinds(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for device, of_device in self.by_device.items():
            if KIND in of_device:
                found.setdefault(of_device[KIND].value, []).append(device)
        return {kind: sorted(devices, key=natural) for kind, devices in found.items()}

    @property
    def gpus(self) -> list[str]:
        return self.of_kind(KIND_GPU)

    @property
    def jobs(self) -> list[str]:
        """The jobs whose environment was read, and ranks whose environment differs from theirs."""
        return self.of_kind(KIND_JOB)

    @cached_property
    def fabric_nics(self) -> list[str]:
        """The RDMA devices that training uses, as far as that can be inferred.

        A host often has more: for storage, for its management. Of RDMA devices that are alike
        (model and link layer), the training NICs are those of which there are most; of two such
        groups the faster one. A device whose link is slow or down is still one of its group.
        """
        groups: dict[tuple[str, str], list[str]] = {}
        for device in self.of_kind(KIND_RDMA):
            key = self.value(device, MODEL), self.value(device, LINK_LAYER)
            groups.setdefault(key, []).append(device)

        def weight(devices: list[str]) -> tuple[int, int, float]:
            """How likely it is that these are the training NICs."""
            active = sum(self.value(device, PORT_STATE) == ACTIVE for device in devices)
            rates = [self.number(device, PORT_RATE) or 0.0 for device in devices]
            return min(active, 1), len(devices), max(rates)

        return max(groups.values(), key=weight, default=[])

    @cached_property
    def active_fabric_nics(self) -> list[str]:
        return [nic for nic in self.fabric_nics if self.value(nic, PORT_STATE) == ACTIVE]

    def with_jobs(self, jobs: Iterable[Fact]) -> Facts:
        """These facts and those of jobs, which change nothing about the host's NICs."""
        found = Facts(self.host, jobs)
        for device, of_device in self.by_device.items():
            found.by_device.setdefault(device, of_device)
        found.fabric_nics = self.fabric_nics
        found.active_fabric_nics = self.active_fabric_nics
        return found

    def environment(self, device: str) -> Mapping[str, Fact]:
        of_device = self.by_device.get(device, {})
        return {name: fact for name, fact in of_device.items() if name.startswith(NCCL_PREFIX)}


def parse_number(text: str) -> float | None:
    """The number that a text is, if it is one and not negative.

    >>> parse_number("4096"), parse_number("2.5"), parse_number("-1"), parse_number("inf")
    (4096.0, 2.5, None, None)
    """
    digits = text.replace(".", "", 1)
    return float(text) if digits.isascii() and digits.isdigit() else None


def listed(names: Iterable[str], most: int = 4) -> str:
    """Names in a sentence: a few, and how many more.

    >>> listed(["a", "b"]), listed(["a", "b", "c"], most=2)
    ('a, b', 'a, b and 1 more')
    """
    all_names = list(names)
    shown = ", ".join(all_names[:most])
    return shown if len(all_names) <= most else f"{shown} and {len(all_names) - most} more"
