"""The agent that polls all switches of a cluster: a machine beside the hosts, with a true clock.

It sends nothing about its own machine. A round of thousands of ports does not fit one batch:
switches travel in the same groups at every poll, each with the whole of its series table, as an
agent sends them.

Memory: the packed table of a port of 68 series (SONiC) has 8 kB, so 128 switches with 64 ports keep
65 MB. Making it takes 0.8 ms of the first poll for each port.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import msgspec
import numpy as np

from collector.contract import wire
from collector.contract.units import NS, NS_PER_MS
from simulator.interfaces.switch_tables import Flavour
from simulator.readings.series import EVERY
from simulator.readings.switches import Cell, View, make_view
from simulator.snapshot import Snapshot
from simulator.topology.model import Bools, Floats, Topology

ROUNDING_SECONDS = 1e-6
"""By which the time of a tick may fall short of a round number."""
BOOT_BYTES = 8

CellsOf = Callable[[int], list[Cell]]
"""The rows of a switch."""


@dataclass(frozen=True)
class PollerSpec:
    """The polling agent's name and interval."""

    name: str = "poller-0"
    interval_s: float = 10.0
    """From one poll to the next: real ones ask every 10 to 30 s."""
    flavour: Flavour = Flavour.SONIC
    """The vendor whose MIBs Ethernet switches answer; it decides which metrics there are."""


class Group:
    """Switches whose readings travel in one batch, and the table of their series."""

    def __init__(self, cells_of: CellsOf, view: View, switches: range, cells: list[Cell]) -> None:
        self._cells_of = cells_of
        self._switches = switches
        ports = len(view.ports.out)
        cells.sort()
        self._slots = np.array([number * ports + port for _, number, port in cells], dtype=np.int64)
        """Where each row's number stands in the flat matrix, in the order of the wire."""
        self._is_shown: Bools = np.ones(len(cells), dtype=np.bool_)
        self._packed, self._index = pack(cells)

    def columns(self, numbers: Floats) -> tuple[msgspec.Raw, bytes, Floats]:
        """The series table, and a value for each row of it with the row's number."""
        values: Floats = numbers[self._slots]
        is_shown: Bools = ~np.isnan(values)
        if not np.array_equal(is_shown, self._is_shown):
            # Rows are recomputed: keeping them would take five times the packed table.
            cells = sorted(cell for switch in self._switches for cell in self._cells_of(switch))
            chosen = [cell for cell, is_row in zip(cells, is_shown, strict=True) if is_row]
            self._packed, self._index = pack(chosen)
            self._is_shown = is_shown
        return self._packed, self._index, values[is_shown]


def pack(cells: Sequence[Cell]) -> tuple[msgspec.Raw, bytes]:
    """The series table of these cells, and the column that points into it, once for each row."""
    table = [(metric, dict(labels)) for (metric, labels), _, _ in cells]
    index = np.arange(len(table), dtype="<u4").tobytes()
    return msgspec.Raw(msgspec.msgpack.encode(table)), index


class Poller:
    """One agent that polls every switch."""

    def __init__(
        self,
        topology: Topology,
        spec: PollerSpec,
        cluster: str,
        run: str,
        samples_max: int,
        wanted: Container[str] = EVERY,
    ) -> None:
        """``run`` names this run of the simulation, ``samples_max`` bounds a batch.

        ``wanted``: metrics whose samples are reported.
        """
        self._wanted = wanted
        self._spec = spec
        self._common = {"host": spec.name, **({"cluster": cluster} if cluster else {})}
        self._boot = blake2b(f"{run} {spec.name}".encode(), digest_size=BOOT_BYTES).hexdigest()
        self._view = make_view(topology, spec.flavour)
        self._switches = len(topology.switches)
        self._samples_max = samples_max
        self._groups: list[Group] = []
        self._sequence = 0
        self._next_s = -np.inf

    def batches(self, snapshot: Snapshot) -> Iterator[wire.Batch]:
        """The batches of this tick: none, unless a poll is due."""
        if snapshot.time_s < self._next_s - ROUNDING_SECONDS:
            return
        self._next_s = snapshot.time_s + self._spec.interval_s
        if not self._groups:
            self._groups = list(self._divide())
        numbers = self._view.read(snapshot).ravel()
        time_ms = (snapshot.start_unix_ns + round(snapshot.time_s * NS)) // NS_PER_MS
        for group in self._groups:
            table, index, values = group.columns(numbers)
            yield wire.Batch(
                version=wire.VERSION,
                agent=self._spec.name,
                boot=self._boot,
                sequence=self._sequence,
                sent_ms=time_ms,
                common=self._common,
                series=table,
                index=index,
                time_ms=np.full(len(values), time_ms, dtype="<i8").tobytes(),
                value=values.astype("<f8", copy=False).tobytes(),
            )
            self._sequence += 1

    def _cells(self, switch: int) -> list[Cell]:
        return [cell for cell in self._view.cells(switch) if cell[0][0] in self._wanted]

    def _divide(self) -> Iterator[Group]:
        """Switches in groups that fit a batch; one that does not fit by itself goes alone."""
        start, cells = 0, list[Cell]()
        for switch in range(self._switches):
            own = self._cells(switch)
            if cells and len(cells) + len(own) > self._samples_max:
                yield Group(self._cells, self._view, range(start, switch), cells)
                start, cells = switch, []
            cells += own
        yield Group(self._cells, self._view, range(start, self._switches), cells)
