"""The report as data: what `--json` prints, and the source of text and page.

Times are whole nanoseconds since 1970 and durations whole nanoseconds, all names end in `_ns`; what
was not seen is null. The shape is documented in docs/reference/diagnose-json.md; FORMAT grows when
a reader of the old shape could misunderstand the new one.
"""

from __future__ import annotations

import msgspec

from alerts.compare.stages import Stages
from alerts.window.columns import ClockFit, Step
from api.diagnose import units
from api.diagnose.bandwidth import BandwidthReport
from api.diagnose.load import FormatRead
from collector.contract.verdict import Verdict

FORMAT = 1

FILES_NAMED_MAX = 10_000
"""Files that are named one by one as broken or not understood; all are counted."""
COLLECTIVES_MAX = 200_000
"""Joined operations in the report: some 60 MB of JSON. The slowest stay, and the report notes how
many there were."""
LATENESS_MAX = 200_000
"""Rows of lateness: 10,000 ranks in twenty kinds of operations."""
STEPS_MAX = 200_000
"""Steps in the report: two days of a step each second."""
JOBS_MAX = 64
"""Jobs that are analysed, the largest: a folder of a week has a few dozen."""
PROFILES_MAX = 10_000
"""Profiles in the report: one for each rank of the largest jobs."""
PENDING_MAX = 10_000
"""Operations that did not end. A job that hangs has one to a few in each group."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was not read in full, and why."""

    path: str
    format: str = ""
    records: int = 0
    problem_count: int = 0
    problems: list[str] = []


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Records that are not there although their neighbours are."""

    source: str
    communicator: str
    operation: str
    records: int
    lost: int
    kept_one_in: int
    """Numbers are this far apart: the records were thinned on purpose."""


class Warned(msgspec.Struct, frozen=True, kw_only=True):
    """What NCCL warned of (`NCCL WARN` lines): equal messages are one."""

    message: str
    count: int
    hosts: list[str]
    """Up to 100 of them."""


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """The files that were read."""

    files: int
    size_bytes: int
    formats: list[FormatRead]
    not_understood: list[Problem]
    not_understood_count: int
    broken: list[Problem]
    """Understood, but not all of it."""
    broken_count: int
    left_out: list[Problem]
    losses: list[Loss]


class SettingReport(msgspec.Struct, frozen=True, kw_only=True):
    """A variable of NCCL's, or a version, as its logs have it."""

    name: str
    values: dict[str, int]
    """Each value, and on how many hosts."""


class ProfileReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a profile says of one rank's GPU."""

    rank: int | None
    kernels: int
    milliseconds: dict[str, float]
    """Of each phase (`compute`, `communication`, `copy`, `idle`), and of the whole `window`."""


class RankReport(msgspec.Struct, frozen=True, kw_only=True):
    """A rank of the job: where it runs, and how late it comes over all its operations."""

    rank: int | None
    """Null where no file says its number: it is not made up from those that happen to be there."""
    host: str | None
    pid: int | None
    gpu: str | None
    device: str | None
    local_rank: int | None
    origins: dict[str, str]
    operations: int = 0
    last_in: int = 0
    least_inside: int = 0
    median_late_ns: int | None = None
    most_late_ns: int | None = None
    median_inside_ns: int | None = None
    is_outlier: bool = False


class MemberReport(msgspec.Struct, frozen=True, kw_only=True):
    """A rank of a communicator and the job's rank that it is."""

    rank: int
    job_rank: int | None
    host: str


class CommunicatorReport(msgspec.Struct, frozen=True, kw_only=True):
    """A communicator: its members, and its rings and trees where known."""

    communicator: str
    name: str | None
    source: str
    ranks: int
    nodes: int | None
    members: list[MemberReport]
    rings: list[list[int]]
    trees: list[dict[int, int | None]]
    """For each channel the parent of each rank that recorded it; null for roots."""
    operations: dict[str, int]

    @property
    def job_ranks(self) -> list[int]:
        """The members whose rank in the job is known."""
        return [each.job_rank for each in self.members if each.job_rank is not None]

    @property
    def wiring(self) -> str:
        """`2 rings, 1 tree`; empty where nothing is known."""
        counts = ((len(self.rings), "ring"), (len(self.trees), "tree"))
        return ", ".join(units.count(number, what) for number, what in counts if number)


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    """Of many durations: the median, the 95th percentile, the longest."""

    p50_ns: int
    p95_ns: int
    max_ns: int


class OperationReport(msgspec.Struct, frozen=True, kw_only=True):
    """All operations of one kind and size in one communicator."""

    communicator: str
    operation: str
    size_bytes: int | None
    count: int
    complete: int
    """Those in which every rank was seen."""
    lost: int
    """Ranks' records that are missing in the others."""
    entry_skew: Quantiles
    transfer: Quantiles
    bus_bandwidth_bytes_per_second: float | None
    """The median, over the transfer; waiting does not count against the network."""
    baseline_bytes_per_second: float | None = None
    """What nccl-tests reached with as many ranks and about this size, if its results are there."""


class CollectiveReport(msgspec.Struct, frozen=True, kw_only=True):
    """One operation, joined over its ranks, on the common clock."""

    communicator: str
    operation: str
    sequence: int
    size_bytes: int | None
    ranks: int
    ranks_seen: int
    start_ns: int
    end_ns: int
    entry_skew_ns: int
    transfer_ns: int
    last_in: int
    last_in_job_rank: int | None
    last_in_host: str
    slower_ns: int
    """How much longer it took, from first entry to last exit, than the median of its kind."""


class LatenessReport(msgspec.Struct, frozen=True, kw_only=True):
    """How late one rank comes to one kind of operation of one communicator."""

    rank: int | None
    communicator: str
    communicator_rank: int
    operation: str
    host: str
    operations: int
    last_in: int
    least_inside: int
    median_late_ns: int
    most_late_ns: int
    median_inside_ns: int


class PendingReport(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that did not end on some rank. Ranks are the communicator's."""

    communicator: str
    operation: str
    sequence: int
    ranks: int
    scheduled: list[int]
    started: list[int]
    completed: list[int]
    job_ranks: list[int]


class RanksRead(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the ranks that are known to exist were read. Absence is no evidence of anything."""

    known: int
    """At least so many there are."""
    count: int
    """So many were read, by any source."""
    read: list[int]
    """Those of them whose numbers are known."""
    unread: list[int]
    """Those that are known to exist, by number; of more than UNREAD_MAX the first."""
    by_source: dict[str, list[int]]
    """The ranks that each source has something of."""
    cut: list[int]
    """Ranks whose Flight Recorder dump is cut off."""
    ended_early: list[int]
    """Ranks whose last record is long before the job's: their log is cut off, or they stopped."""
    text: str
    """The same in one line."""


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """One job."""

    job: str
    was_said: bool
    """Whether a file names it; else it was inferred from communicators."""
    size: int
    ranks_read: RanksRead
    first_ns: int
    last_ns: int
    nccl_versions: list[str]
    networks: list[str]
    source: str | None
    """Whose times were used for splitting; null if no source has times."""
    source_reason: str
    kept_one_in: int
    """Only every nth operation was analysed, since there were too many."""
    ranks: list[RankReport]
    communicators: list[CommunicatorReport]
    clocks: list[ClockFit]
    steps_from: str
    """`marks` of the training loop, `collectives` that repeat, `profile`, or `nothing`."""
    steps: list[Step]
    operations: list[OperationReport]
    collectives: list[CollectiveReport]
    collectives_total: int
    lateness: list[LatenessReport]
    pending: list[PendingReport]
    pending_total: int
    stages: Stages | None = None
    """What each stage of its pipelines did; null where its ranks send each other nothing."""


class DetectorReport(msgspec.Struct, frozen=True, kw_only=True):
    """One detector: what it looks for, and whether it had the data."""

    detector: str
    title: str
    findings: int = 0
    """What it found out of the ordinary; verdicts are made of several detectors' findings."""
    missing: list[str] = []
    """Data that it needs, any one of these, and that the files do not have; empty: it looked."""
    problem: str = ""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that differs between the runs."""

    kind: str
    """`steps`, `collectives`, `nccl_tests`, `kernels`, `settings`, `topology` or `ranks`."""
    what: str
    now: str
    before: str
    text: str
    """The same in a sentence."""
    ratio: float | None = None
    """Now over before, of a figure; above 1 is slower: of bandwidths it is turned around."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What changed from one run to another."""

    against: list[str]
    """The paths of the other run."""
    changes: list[Change]
    """The most important first."""
    changes_total: int
    equal: list[str]
    """What was compared and did not change."""
    missing: list[str]
    """What could not be compared, and why."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Everything."""

    format: int = FORMAT
    read: Read
    jobs: list[JobReport]
    jobs_left_out: int = 0
    """Smaller jobs, beyond JOBS_MAX."""
    warnings: list[Warned] = []
    nccl_tests: list[BandwidthReport] = []
    """What nccl-tests measured."""
    nccl_settings: list[SettingReport] = []
    profiles: list[ProfileReport] = []
    verdicts: list[Verdict] = []
    """What is wrong, the most costly first; empty if nothing stands out."""
    also_seen: list[str] = []
    """What costs time and is no fault of any part: uneven work. Sentences."""
    unclear: list[str] = []
    """Without a verdict: why this is no all-clear, one sentence each; empty: nothing stands out."""
    looked_at: dict[str, int] = {}
    """How much of each kind of data detectors had."""
    detectors: list[DetectorReport] = []
    """What was looked for, in alphabetical order."""
    compared: Comparison | None = None
    """What changed since another run; null unless one was given."""


def to_json(diagnosis: Diagnosis) -> bytes:
    return msgspec.json.encode(diagnosis)
