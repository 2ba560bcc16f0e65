"""What `GET /v1/explain` answers. Columns of equal length; null is what was not observed.

Times are unix nanoseconds on the job's common clock (collectives) or by the host's clock (readings
and events); durations are nanoseconds. Fields are only ever added.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from alerts.finding import Finding
from collector.contract.verdict import Verdict

Number = float | None


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """What is not in the answer, to keep it small, and how to ask for it."""

    what: str
    count: int
    rule: str
    hint: str


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over some operations; null of none."""

    operations: int
    skew_ns: int | None = None
    transfer_ns: int | None = None


class KindExplained(msgspec.Struct, frozen=True, kw_only=True):
    """Operations of one kind: of one communicator, operation and size, one after the other."""

    communicator: str
    operation: str
    size_bytes: int | None
    ranks: int
    before: Times
    """Those that ended before ``since_ns``."""
    during: Times
    """Those that ended since; all of them where nothing has begun."""
    past_transfer_ns: Number
    """What was usual in the hour before this window."""
    past_skew_ns: Number
    baseline_bytes_per_second: Number
    """Bus bandwidth that nccl-tests reached with as many ranks and bytes."""
    bus_bytes: float
    """What must cross each rank's link in one of them."""
    sequence: list[int]
    end_ns: list[int]
    skew_ns: list[int]
    """Last entry minus first entry: waiting for ranks."""
    transfer_ns: list[int]
    """Last exit minus last entry: the network."""
    last_in: list[int]
    """The communicator's rank that entered last."""
    least_inside: list[int]
    ranks_seen: list[int]


class RankTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over a rank's operations; null of none."""

    operations: int
    gap_ns: int | None = None
    """Entry minus the latest exit before it, of any communicator: the rank's own time."""
    inside_ns: int | None = None
    """Exit minus entry."""
    late_ns: int | None = None
    """Entry minus the median entry of the same operation."""
    last_in: int = 0
    """Operations that it entered last."""
    least_inside: int = 0
    """Operations in which no rank spent less time."""


class RankExplained(msgspec.Struct, frozen=True, kw_only=True):
    """A rank in one communicator's operations of one name and size."""

    communicator: str
    operation: str
    size_bytes: int | None
    rank: int
    job_rank: int | None
    host: str
    gpu: int | None
    before: RankTimes
    during: RankTimes


class OwnTimes(msgspec.Struct, frozen=True, kw_only=True):
    """What ranks do outside of collectives, step by step: one row a rank, one value a step.

    Where steps are not known they are equal pieces of the window.
    """

    ranks: list[int]
    start_ns: list[int]
    end_ns: list[int]
    outside_ns: list[list[Number]]
    """The sum of the rank's gaps in the step; null where records are missing."""
    late_ns: list[list[Number]]
    """How much later than its peers' median it entered, summed over the step's collectives."""
    excess_ns: list[list[Number]]
    """Time outside beyond the peers' median, as far as it made the rank late."""
    peers_ns: list[list[Number]]
    """The peers' time outside."""


class LadderPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A place of a ring: when its rank leaves, against the mean of all ranks of the operation."""

    rank: int
    job_rank: int | None
    host: str
    before_ns: int | None
    during_ns: int | None
    change_ns: int | None
    """``during`` less ``before``: clock offsets fall out of it."""
    jump_ns: int | None
    """The change of the next rank of the ring less this one's: above 0 only behind a slow edge."""


class Ladder(msgspec.Struct, frozen=True, kw_only=True):
    """Exits around a ring, in its order."""

    communicator: str
    operation: str
    size_bytes: int | None
    is_ring_assumed: bool
    operations_before: int
    operations_during: int
    places: list[LadderPlace]


class ClockExplained(msgspec.Struct, frozen=True, kw_only=True):
    """A host's clock against the others', in a stretch of time."""

    from_ns: int
    to_ns: int
    host: str
    offset_ns: int
    drift: float
    residual_ns: int
    bound_ns: int | None
    is_corrected: bool
    is_known: bool = True
    """False: it cannot be compared, and nothing is computed from it."""


class StepColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Steps over all ranks of the job, in order."""

    number: list[int]
    start_ns: list[int]
    end_ns: list[int]
    compute_ns: list[int]
    wait_ns: list[int]
    transfer_ns: list[int]
    last_rank: list[int | None]


class PendingExplained(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that some rank has not left. Ranks are the communicator's."""

    communicator: str
    operation: str
    sequence: int
    ranks: int
    states: dict[str, str]
    """Of each rank that recorded something."""
    silent: list[int]
    """Ranks without a record of it."""
    job_rank: dict[str, int]
    time_ns: int | None


class RecordColumns(msgspec.Struct, frozen=True, kw_only=True):
    """What single ranks did, in order of communicator, operation, sequence and rank."""

    communicators: list[str]
    operations: list[str]
    communicator: list[int]
    """An index into ``communicators``."""
    operation: list[int]
    sequence: list[int]
    size_bytes: list[int | None]
    rank: list[int]
    job_rank: list[int | None]
    entry_ns: list[int]
    exit_ns: list[int]
    gap_ns: list[int | None]
    """Entry minus the latest exit of the same rank before it; null for its first."""
    step: list[int | None]
    """The place of its step in ``own_times``: gaps of one rank and step add up to its time outside.
    Operations are counted into steps, because who is late enters in the others' next step."""


class JobExplained(msgspec.Struct, frozen=True, kw_only=True):
    """A job in the window."""

    job: str
    size: int
    source: str
    is_estimate: bool
    """Only durations were known: entries and exits are as if all ranks had left together."""
    kept_one_in: int
    """Of so many operations the ranks' records were looked at."""
    since_ns: int | None
    """Where ``before`` ends and ``during`` begins; null: all is ``during``."""
    kinds: list[KindExplained] = []
    ranks: list[RankExplained] = []
    own_times: OwnTimes | None = None
    """`rank_gap` of verdicts; null where every rank stands alone or records were thinned."""
    ladders: list[Ladder] = []
    clocks: list[ClockExplained] = []
    steps: StepColumns | None = None
    pending: list[PendingExplained] = []
    records: RecordColumns | None = None


class SeriesExplained(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of one port, GPU or host on the grid.

    Counters are increases a second, gauges the last value of the cell.
    """

    metric: str
    labels: dict[str, str]
    query: str
    """PromQL for the same, at the cells' ends; empty where another exporter has other labels."""
    is_rate: bool
    values: list[Number]


class ThingExplained(msgspec.Struct, frozen=True, kw_only=True):
    """A port, GPU or host, and what was read of it."""

    kind: str
    name: str
    other_end: str
    """Of a port: what is cabled to it."""
    seen_ns: int | None
    rate_bits_per_second: Number
    readings: list[SeriesExplained]
    still: list[str]
    """Counters that were read and did not move."""


class PeersExplained(msgspec.Struct, frozen=True, kw_only=True):
    """The median over everything of one kind, cell by cell: what is usual at the same time."""

    kind: str
    metric: str
    things: int
    median: list[Number]


class GridExplained(msgspec.Struct, frozen=True, kw_only=True):
    """The cells of readings: cell ``i`` begins at ``start_ns + i * step_ns``."""

    start_ns: int
    step_ns: int
    cells: int


class EventExplained(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened."""

    kind: str
    time_ns: int
    labels: dict[str, str]
    message: str
    attributes: dict[str, str]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of time as detectors see it, what they find in it, and what follows."""

    from_ns: int
    to_ns: int
    """Taken for the present: what was still seen then goes on."""
    about: dict[str, str]
    """What was asked: job, host, link or incident."""
    verdicts: Sequence[Verdict]
    findings: Sequence[Finding]
    """Of all detectors, context too."""
    failed_detectors: list[str]
    """Those that broke on this window: their findings are missing."""
    jobs: list[JobExplained]
    grid: GridExplained
    things: list[ThingExplained]
    peers: list[PeersExplained]
    events: list[EventExplained]
    left_out: list[LeftOut]
