"""What correlation works on: columns of records, of joined operations, of ranks and of steps.

All are numpy columns of equal length; a name (communicator, host…) is an index into the list of
names beside it. Times are unix nanoseconds (int64) and durations nanoseconds; ABSENT stands where
nothing was seen, as on the wire.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from collector.contract.records import ABSENT

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Something made of columns: every field that is an array has one value a row."""

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        fields = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: value for name, value in fields if isinstance(value, np.ndarray)}

    def __len__(self) -> int:
        fields = (getattr(self, name) for name in self.__struct_fields__)
        return next(len(value) for value in fields if isinstance(value, np.ndarray))

    def select(self, rows: Any) -> Any:  # noqa: ANN401 - whatever numpy takes; the same type
        """These rows; no copy where flags choose all, as they mostly do: columns never change."""
        is_flags = isinstance(rows, np.ndarray) and rows.dtype == bool
        if is_flags and len(rows) == len(self) and rows.all():
            return self
        chosen = {name: column[rows] for name, column in self.arrays().items()}
        return msgspec.structs.replace(self, **chosen)


class Records(Columns, frozen=True, kw_only=True):
    """Records of collectives, sorted by communicator, operation, sequence and rank."""

    communicators: list[str]
    operations: list[str]
    hosts: list[str]

    communicator: Codes
    operation: Codes
    sequence: Ints
    rank: Codes
    host: Codes
    pid: Codes
    entry_ns: Ints
    exit_ns: Ints
    enqueue_ns: Ints
    duration_ns: Ints
    size_bytes: Ints
    ranks: Codes
    peer: Codes
    """The other rank of a send or receive, within the communicator; -1: none, or not known."""

    def timed(self) -> Flags:
        both: Flags = (self.entry_ns != ABSENT) & (self.exit_ns != ABSENT)
        return both


class Computing(Columns, frozen=True, kw_only=True):
    """Stretches in which a rank's GPU computed, on the clock of the records; in any order."""

    rank: Ints
    """The job's."""
    start_ns: Ints
    end_ns: Ints


class Operations(Columns, frozen=True, kw_only=True):
    """Collectives joined over their ranks, one row each; clocks are aligned.

    Skew is waiting for ranks, transfer (last exit minus last entry) is the network's part.
    Operations without times are not here. ``ranks_seen`` below ``ranks``: some records are missing,
    and the true skew may be larger, the true transfer smaller.
    """

    communicators: list[str]
    operations: list[str]

    communicator: Codes
    operation: Codes
    sequence: Ints
    size_bytes: Ints
    ranks: Codes
    ranks_seen: Codes
    first_entry_ns: Ints
    last_entry_ns: Ints
    first_exit_ns: Ints
    last_exit_ns: Ints
    last_in: Codes
    """The rank, within the communicator, that entered last."""
    least_inside: Codes
    """The rank that spent the least time inside."""
    last_out: Codes
    bus_bytes: Floats
    """What must cross each rank's link."""

    @property
    def skew_ns(self) -> Ints:
        return self.last_entry_ns - self.first_entry_ns

    @property
    def transfer_ns(self) -> Ints:
        return self.last_exit_ns - self.last_entry_ns

    @property
    def bus_bandwidth(self) -> Floats:
        """Bytes a second over the transfer; waiting does not count against the network."""
        return self.bus_bytes / np.maximum(self.transfer_ns, 1) * 1e9


class Lateness(Columns, frozen=True, kw_only=True):
    """How late ranks come, one row for each rank of each communicator and operation."""

    communicators: list[str]
    operations: list[str]
    hosts: list[str]

    communicator: Codes
    operation: Codes
    rank: Codes
    host: Codes
    pid: Codes
    count: Ints
    last_in: Ints
    least_inside: Ints
    median_late_ns: Ints
    """Median of its entry minus the median rank's entry; negative for one that waits."""
    most_late_ns: Ints
    median_inside_ns: Ints
    """Median of its exit minus its entry."""


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """How one host's clock stands against the others', in one stretch of time.

    At time t (by that host's clock) it is ahead of the common clock by
    ``offset_ns + drift * (t - offset_ns - middle_ns)``. ``residual_ns`` is how far that may be off,
    by the scatter of the evidence; ``bound_ns`` by causality alone: no rank leaves before all have
    come. A host whose clock was set in the stretch has one of these for each part.
    """

    host: str
    offset_ns: int
    drift: float
    """Seconds a second; 5e-5 is 50 ppm."""
    residual_ns: int
    bound_ns: int | None
    is_corrected: bool
    """Whether times of this host were changed: only if the hosts' clocks are not kept in step."""
    from_ns: int | None = None
    """The first and the last moment, by that host's clock, that the evidence covers; null: those of
    the stretch."""
    to_ns: int | None = None
    is_known: bool = True
    """False: the clock cannot be compared, and nothing that depends on it is computed."""


class ClockFit(msgspec.Struct, frozen=True, kw_only=True):
    """The clocks of all hosts that work together, in one stretch of time."""

    from_ns: int
    to_ns: int
    middle_ns: int
    clocks: list[Clock]
    operations: int
    """How many operations it rests on; 0: no fit was possible, and no time was changed."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a job, over all its ranks.

    ``compute``, ``wait`` and ``transfer`` are medians over ranks and add up to about the
    duration: outside collectives; inside, before the last rank had come; inside, after.
    """

    number: int
    start_ns: int
    end_ns: int
    ranks: int
    compute_ns: int
    wait_ns: int
    transfer_ns: int
    last_rank: int | None
    """The job's rank that was waited for longest, if one was."""
