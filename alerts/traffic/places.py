"""Where a job's ranks are, as columns: what a matrix can be drawn over."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec
import numpy as np

from alerts.window.columns import Codes
from alerts.window.model import Rank
from collector.contract.identity import natural

NAMELESS = -1
"""Stands for an unknown place."""


class By(enum.StrEnum):
    """What the rows and columns of a matrix are."""

    RANK = "rank"
    GPU = "gpu"
    HOST = "host"
    NIC = "nic"
    RAIL = "rail"

    @property
    def is_network(self) -> bool:
        """Whether only what leaves a host has a place in it."""
        return self in {By.NIC, By.RAIL}


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks of a job, one row each, in order; NAMELESS where a place is not known."""

    ranks: list[int]
    row_of: Mapping[int, int]
    hosts: list[str]
    host: Codes
    gpus: list[str]
    gpu: Codes
    nics: list[tuple[str, str]]
    """Host and device of every NIC that a rank uses."""
    nic: Codes
    """[ranks, most NICs of a rank]: those that its bytes leave by, in equal parts."""
    rail_of_nic: Codes
    rails: list[str]

    def __len__(self) -> int:
        return len(self.ranks)

    @property
    def nics_of_rank(self) -> Codes:
        count: Codes = (self.nic != NAMELESS).sum(axis=1).astype(np.int32)
        return count

    @property
    def rail(self) -> Codes:
        first = self.nic[:, 0]
        known: Codes = np.append(self.rail_of_nic, NAMELESS).astype(np.int32)[first]
        return known

    def names(self, by: By) -> list[str]:
        if by is By.RANK:
            return [str(rank) for rank in self.ranks]
        if by is By.NIC:
            return [f"{host}/{device}" for host, device in self.nics]
        return {By.GPU: self.gpus, By.HOST: self.hosts, By.RAIL: self.rails}[by]

    def group(self, by: By) -> Codes:
        """The row or column that each rank belongs to, where it belongs to one."""
        if by is By.RANK:
            return np.arange(len(self), dtype=np.int32)
        return {By.GPU: self.gpu, By.HOST: self.host, By.NIC: self.nic[:, 0], By.RAIL: self.rail}[
            by
        ]


def places_of(
    ranks: Mapping[int, Rank], rails: Mapping[tuple[str, str], int] | None = None
) -> Places:
    """The columns. ``rails`` maps (host, device) to its number among its host's NICs.

    Without it, NICs are counted by name among those of the host that the job uses: right
    for a job that uses them all.
    """
    order = sorted(ranks)
    rows = [ranks[number] for number in order]
    hosts = sorted({row.host for row in rows if row.host})
    gpus = sorted({(row.host, row.gpu) for row in rows if row.host and row.gpu is not None})
    pairs = {(row.host, device) for row in rows if row.host for device in row.devices}
    nics = sorted(pairs, key=lambda pair: (pair[0], natural(pair[1])))
    host_code = {name: code for code, name in enumerate(hosts)}
    gpu_code = {key: code for code, key in enumerate(gpus)}
    nic_code = {key: code for code, key in enumerate(nics)}
    nic = np.full((len(rows), max([1, *(len(row.devices) for row in rows)])), NAMELESS, np.int32)
    for place, row in enumerate(rows):
        if row.host:
            nic[place, : len(row.devices)] = [nic_code[row.host, name] for name in row.devices]
    rail = rails_of(nics, rails or {})
    return Places(
        ranks=order,
        row_of={number: row for row, number in enumerate(order)},
        hosts=hosts,
        host=np.array([host_code.get(row.host, NAMELESS) for row in rows], dtype=np.int32),
        gpus=[f"{host}/{gpu}" for host, gpu in gpus],
        gpu=np.array(
            [
                NAMELESS if row.gpu is None else gpu_code.get((row.host, row.gpu), NAMELESS)
                for row in rows
            ],
            dtype=np.int32,
        ),
        nics=nics,
        nic=nic,
        rail_of_nic=rail,
        rails=[str(number) for number in range(int(rail.max(initial=NAMELESS)) + 1)],
    )


RAILS_MAX = 1_024
"""Rails that are distinguished; hosts have eight or sixteen NICs. A number past it is no rail."""


def rails_of(nics: list[tuple[str, str]], known: Mapping[tuple[str, str], int]) -> Codes:
    """The rail of each NIC: as it is known, or else its place among its host's."""
    found: list[int] = []
    before, count = "", 0
    for host, device in nics:
        count = count + 1 if host == before else 0
        before = host
        rail = known.get((host, device), count)
        found.append(rail if 0 <= rail < RAILS_MAX else NAMELESS)
    return np.array(found, dtype=np.int32)
