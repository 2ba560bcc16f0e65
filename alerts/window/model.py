"""What a detector looks at: a stretch of time of a cluster, as columns. Pure data.

A `Window` has the jobs that ran in it (their collectives on one clock, steps, who is where and how
they are wired) and the machines' readings on one `Grid` of time: ports of NICs and switches, GPUs,
hosts. Names are given once; everything else are indexes into them. What was not seen is explicit:
NaN in readings, -1 in indexes, ABSENT in times. The service, `fabricscope diagnose`, the scoreboard
and a notebook all make the same windows (`api.jobs.correlate`), so that a detector sees no
difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar

import msgspec
import numpy as np

from alerts.window.columns import (
    ClockFit,
    Computing,
    Flags,
    Floats,
    Ints,
    Operations,
    Records,
    Step,
)
from collector.contract.collective import State
from collector.contract.model import Event
from collector.contract.units import NS
from collector.contract.verdict import Culprit


class Grid(msgspec.Struct, frozen=True):
    """Cells of equal length: cell ``i`` is the time from ``start_ns + i * step_ns``, half open."""

    start_ns: int
    step_ns: int
    cells: int

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.cells * self.step_ns

    @property
    def edges_ns(self) -> Ints:
        """The cells' beginnings, and the end of the last."""
        return self.start_ns + np.arange(self.cells + 1, dtype=np.int64) * self.step_ns

    def cell_of(self, time_ns: int) -> int:
        """The cell that a time falls in; may lie outside of the grid."""
        return (time_ns - self.start_ns) // self.step_ns


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of many things, on the window's grid.

    Counters are increases a second (a reset is no increase), averaged over the cell's time that
    was covered by two readings; gauges are the last value in the cell. NaN: not read.
    """

    metric: str
    """The catalog's name: what PromQL and evidence call it."""
    row: Ints
    """Which thing each line is of; each thing has one line at most."""
    values: Floats
    label: str = ""
    """The label that distinguishes lines of one metric and thing, if it was chosen by one."""
    others: Mapping[int, str] = {}
    """For rows that another metric counts the same for: that metric's name."""

    def metric_of(self, row: int) -> str:
        """What PromQL calls this reading of a thing."""
        return self.others.get(row, self.metric)


class Things(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """Rows of something that has readings; ``readings`` by the metric's name without its target."""

    grid: Grid
    host: list[str]
    readings: Mapping[str, Readings]
    seen_ns: Ints
    """When each was last read, by any of its readings; ABSENT if never."""

    def __len__(self) -> int:
        return len(self.host)

    def values(self, name: str) -> Floats:
        """[things, cells] of a reading; NaN all over where it is not read."""
        full = np.full((len(self), self.grid.cells), np.nan)
        found = self.readings.get(name)
        if found is not None:
            full[found.row] = found.values
        return full

    def metric(self, name: str, row: int = -1) -> str:
        """The catalog's name of a thing's reading, for evidence; ``name`` if it is not read."""
        found = self.readings.get(name)
        return found.metric_of(row) if found is not None else name


class Ports(Things, frozen=True, dict=True, kw_only=True):
    """Ports of NICs and of switches: a cable's two ends are two rows.

    Readings of `fabric_port_…` and, through the port's interface, of `fabric_nic_…` of a NIC are in
    one row: `transmit_bytes_total`, `receive_pause_frames_total`, … Where both targets have one
    the port's own stands, unless it has none.
    """

    device: list[str]
    port: list[str]
    is_switch: Flags
    other_end: Ints
    """The row at the other end of the cable; -1: not known."""
    rate_bits_per_second: Floats
    """What the port can do: the highest rate that is known of it or, where higher rates are known
    of most ports of the same kind, theirs. NaN: not known."""
    rail: Ints
    """Of a NIC: its place among its host's; -1 elsewhere."""
    tier: Ints
    """Of a switch's port: the switch's tier, 0 for leaves; -1 for NICs and where unknown."""
    netdev: list[str] = []
    """Each port's interface, empty where it is not known; no list at all: none is."""

    NIC_METRICS: ClassVar[str] = "fabric_nic_"
    """What series begin with that are named by an interface, and not by a device and its port."""

    def culprit(self, row: int) -> Culprit:
        """The names of a port; of a NIC's port also those of the switch port that it hangs on."""
        if self.is_switch[row]:
            return Culprit(switch=self.host[row], switch_port=self.port[row])
        far = int(self.other_end[row])
        has_switch = far >= 0 and bool(self.is_switch[far])
        return Culprit(
            host=self.host[row],
            device=self.device[row],
            port=self.port[row],
            switch=self.host[far] if has_switch else "",
            switch_port=self.port[far] if has_switch else "",
        )

    def labels(self, row: int, metric: str = "") -> dict[str, str]:
        """As PromQL selects a metric's series of the port; without one its `fabric_port_…`."""
        if metric.startswith(self.NIC_METRICS) and not self.is_switch[row]:
            interface = self.netdev[row] if row < len(self.netdev) else ""
            return {"host": self.host[row], "device": interface or self.device[row]}
        return {"host": self.host[row], "device": self.device[row], "port": self.port[row]}

    @cached_property
    def row_of(self) -> dict[tuple[str, str, str], int]:
        keys = zip(self.host, self.device, self.port, strict=True)
        return {key: row for row, key in enumerate(keys)}

    @cached_property
    def row_of_netdev(self) -> dict[tuple[str, str], int]:
        keys = zip(self.host, self.netdev, strict=False)
        return {key: row for row, key in enumerate(keys) if key[1]}

    @cached_property
    def rows_of_device(self) -> dict[tuple[str, str], list[int]]:
        found: dict[tuple[str, str], list[int]] = {}
        for row, key in enumerate(zip(self.host, self.device, strict=True)):
            found.setdefault(key, []).append(row)
        return found


class Gpus(Things, frozen=True, dict=True, kw_only=True):
    """GPUs, by host and index."""

    gpu: list[int]

    def culprit(self, row: int) -> Culprit:
        return Culprit(host=self.host[row], gpu=self.gpu[row])

    @cached_property
    def row_of(self) -> dict[tuple[str, int], int]:
        return {key: row for row, key in enumerate(zip(self.host, self.gpu, strict=True))}


class Hosts(Things, frozen=True, dict=True, kw_only=True):
    """Hosts that ranks run on, and those without a job."""

    def culprit(self, row: int) -> Culprit:
        return Culprit(host=self.host[row])

    @cached_property
    def row_of(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.host)}


# Jobs --------------------------------------------------------------------------------------------


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """A rank of a job and where it runs, as far as it is known."""

    rank: int
    host: str = ""
    gpu: int | None = None
    devices: tuple[str, ...] = ()
    """NICs that its bytes leave by, the first one first."""
    port: str = ""
    """The first NIC's port; empty: its only one."""


class Communicator(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that do collectives together, and how they are wired."""

    name: str
    ranks: int
    job_rank: Mapping[int, int]
    """The job's rank of each of its ranks that is known."""
    rings: Sequence[Sequence[int]] = ()
    """For each channel the communicator's ranks in the order in which bytes go round."""
    trees: Sequence[Mapping[int, int | None]] = ()
    """For each channel each rank's parent; None for the root."""
    is_ring_assumed: bool = False
    """Its wiring was not logged; ``rings`` are the ranks in their order, as NCCL does it where
    every host has one rank."""
    is_one_way: bool = False
    """Messages from its rank 0 to its rank 1, and none back."""
    is_in_network: bool = False
    """Switches of the network add up for it (CollNet): its bytes need not go round in rings."""


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that some rank has not left. Ranks are the communicator's."""

    communicator: str
    operation: str
    sequence: int
    ranks: int
    states: Mapping[int, State]
    """The state that each rank reports; a rank that is not here has reported none."""
    job_rank: Mapping[int, int] = {}
    """The job's rank of each member, in the order of the communicator's."""
    time_ns: int = 0
    """When the latest of them was launched; 0: not known."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks of a job that made the same call."""

    ranks: tuple[int, ...]
    """The job's, in order."""
    call: str
    """Operation, elements and type, in words; empty: they made none."""
    frames: tuple[str, ...] = ()
    """`file:line` of one of them, the innermost of the program first."""


class Calls(msgspec.Struct, frozen=True, kw_only=True):
    """A number under which the ranks of one group made different calls: the group's first."""

    communicator: str
    name: str
    """What the framework calls the group."""
    sequence: int
    sides: tuple[Side, ...]
    time_ns: int
    is_ahead: bool = False
    """All calls are alike, and the last side made one more than the others, which wait for none."""


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What was usual of one kind of operation, before the window: medians of the long past."""

    transfer_ns: float
    skew_ns: float
    operations: int


Kind = tuple[str, str, int]
"""Communicator, operation, size in bytes (ABSENT where unknown)."""


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """Which cables the bytes between ring neighbours cross: rows of `Ports`, those they leave by.

    Edge ``i`` crosses ``port[start[i]:start[i + 1]]``, each with the ``share`` of its bytes that
    can be expected there (1: all; below: one of several equal ways).
    """

    communicator: list[str]
    source: Ints
    """The communicator's rank that sends."""
    target: Ints
    start: Ints
    port: Ints
    share: Floats


class JobWindow(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """A job in a window: what its ranks did, all times on one clock.

    ``operations`` are all of its collectives, joined over ranks; ``records`` those of all ranks for
    every ``kept_one_in``-th of them, within ``slices`` if there are any, sorted as in `Records`.
    Sends and receives are in ``records`` only.
    """

    job: str
    size: int
    ranks: Mapping[int, Rank]
    communicators: Mapping[str, Communicator]
    source: str
    """Whose records these are."""
    is_estimate: bool = False
    """Only durations are known: entries and exits are as if all ranks had left together."""
    kept_one_in: int = 1
    slices: Sequence[tuple[int, int]] = ()
    """Of a job with too many records: the times, in order, in which ``records`` are complete. What
    lies between was not read, and is no silence; ``steps`` are those within, the first and the last
    of each may be cut off. Empty: everything was read."""
    records: Records
    operations: Operations
    clocks: Sequence[ClockFit]
    steps: Sequence[Step] = ()
    computing: Computing | None = None
    """What ranks' GPUs computed, where profiles were read and ranks send to each other."""
    pending: Sequence[Pending] = ()
    calls: Sequence[Calls] = ()
    """Where its ranks' calls differ, by their dumps; only `fabricscope diagnose` compares them."""
    past: Mapping[Kind, Past] = {}
    baselines: Mapping[Kind, float] = {}
    """What nccl-tests reached for operations like these: bus bandwidth in bytes a second."""
    paths: Paths | None = None
    is_running: bool = True
    """Whether it is known to be over: one that has ended does not hang."""
    ranks_read: int | None = None
    """Of ``size``, those with ``records``. None: not asked; a service knows who reports and why."""
    unread: Sequence[int] = ()
    """Ranks that are known to exist and have none of ``records``, as far as their numbers are."""
    guessed: frozenset[int] = frozenset()
    """Ranks whose numbers nothing says: they tell ranks apart, and no reader may see them."""
    dumped: frozenset[int] | None = None
    """Ranks whose Flight Recorder was read in full: one that is not here may wait in anything.
    None: not asked."""
    is_resting: bool = False
    """It keeps its pace (`alerts.window.pace`), and its records were not read this time: it has its
    ranks, communicators and paths, and nothing else."""

    @property
    def is_still(self) -> bool:
        """Whether nothing has moved in the whole window, though it runs."""
        is_looked_at = self.is_running and not self.is_resting
        return is_looked_at and not len(self.operations) and not self.records.timed().any()

    def at_rest(self) -> JobWindow:
        """The job without what it did: its ranks and how they are wired."""
        return msgspec.structs.replace(
            self,
            records=self.records.select(slice(0)),
            operations=self.operations.select(slice(0)),
            steps=(),
            pending=(),
            past={},
            baselines={},
            slices=(),
            is_resting=True,
        )

    @cached_property
    def recorded(self) -> dict[str, set[int]]:
        """The ranks of each communicator that have records."""
        records = self.records
        found: dict[str, set[int]] = {}
        pairs = np.unique(np.stack([records.communicator, records.rank]), axis=1)
        for code, rank in pairs.T.tolist():
            found.setdefault(records.communicators[code], set()).add(rank)
        return found

    def rank_of(self, communicator: str, rank: int) -> Rank | None:
        known = self.communicators.get(communicator)
        number = known.job_rank.get(rank) if known is not None else None
        return self.ranks.get(number) if number is not None else None

    def culprit(self, rank: int) -> Culprit:
        place = self.ranks.get(rank, Rank(rank=rank))
        number = None if rank in self.guessed and place.host else rank
        return Culprit(job=self.job, rank=number, host=place.host, gpu=place.gpu)

    @cached_property
    def clock_error_ns(self) -> int | None:
        """How far two hosts' clocks may be apart after alignment, at worst."""
        errors = [
            clock.residual_ns for fit in self.clocks for clock in fit.clocks if clock.is_known
        ]
        return max(errors) if errors else None

    @cached_property
    def hosts_left_out(self) -> frozenset[str]:
        """Hosts whose clocks could never be compared: their records have no times."""
        clocks = [clock for fit in self.clocks for clock in fit.clocks]
        known = {clock.host for clock in clocks if clock.is_known}
        return frozenset({clock.host for clock in clocks} - known)


class Captured(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes a second of some NICs' ports every few milliseconds, for some seconds: a capture.

    Its cells are as short as the counters allow. NaN: not read.
    """

    grid: Grid
    row: Ints
    """Which port of the window each line is of."""
    transmit: Floats
    receive: Floats


class Window(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """Everything that is known of a stretch of time."""

    from_ns: int
    to_ns: int
    """Until when data has come: the present, or the end of a capture."""
    jobs: Sequence[JobWindow] = ()
    jobs_ended_ns: int | None = None
    """Where none runs: when the last one that is known was last seen. None where none is known."""
    ports: Ports
    gpus: Gpus
    hosts: Hosts
    events: Sequence[Event] = ()
    """Link news, XIDs, bursts, log lines that matter; in order of time."""
    captured: Captured | None = None
    """The latest burst capture of its time that an agent finished, if one was requested."""
    is_live: bool = True
    """The present is the window's end: what reaches it goes on. A capture has simply ended."""

    OPEN_NS: ClassVar[int] = 10 * NS
    """What was still seen so shortly before the end goes on."""

    def until(self, last_ns: int) -> int | None:
        """The end of something that was last seen then; None while it may go on."""
        return None if self.is_live and last_ns >= self.to_ns - self.OPEN_NS else last_ns

    @cached_property
    def looked(self) -> list[JobWindow]:
        """The jobs whose records were read."""
        return [job for job in self.jobs if not job.is_resting]

    @cached_property
    def users_of_port(self) -> dict[int, list[tuple[JobWindow, int]]]:
        """For each row of ``ports`` the jobs' ranks whose NIC it is."""
        found: dict[int, list[tuple[JobWindow, int]]] = {}
        for job in self.jobs:
            for rank in job.ranks.values():
                for row in self.rows_of_rank(rank):
                    found.setdefault(row, []).append((job, rank.rank))
        return found

    def rows_of_rank(self, rank: Rank) -> list[int]:
        """The rows of ``ports`` that a rank's bytes leave by."""
        rows: list[int] = []
        for device in rank.devices:
            own = self.ports.rows_of_device.get((rank.host, device), [])
            chosen = [row for row in own if not rank.port or self.ports.port[row] == rank.port]
            rows += chosen or own
        return rows
