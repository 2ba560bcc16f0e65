"""From columns to the report: analyses of jobs in the shape of `report`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np

from alerts.compare.stages import has_messages, stages_in
from alerts.window.columns import Ints, Operations, Records
from alerts.window.model import JobWindow
from alerts.window.split import PAIRWISE, distinct, starts_of
from api.diagnose import units
from api.diagnose.analyse import Analysis, RankRows
from api.diagnose.jobs import Job
from api.diagnose.load import FileRead, Loaded, by_format
from api.diagnose.report import (
    COLLECTIVES_MAX,
    FILES_NAMED_MAX,
    LATENESS_MAX,
    PENDING_MAX,
    PROFILES_MAX,
    STEPS_MAX,
    CollectiveReport,
    CommunicatorReport,
    JobReport,
    LatenessReport,
    Loss,
    MemberReport,
    OperationReport,
    PendingReport,
    Problem,
    ProfileReport,
    Quantiles,
    RankReport,
    RanksRead,
    Read,
    SettingReport,
    Warned,
)
from api.diagnose.throw_away import ThrowAwayStore
from api.jobs.correlate.baseline import Baselines
from collector.contract import communicator as words
from collector.contract.ranks_read import FILES, numbers, rank_words
from collector.contract.records import ABSENT
from collector.formats import discover
from collector.formats.nccl_debug import WARNING
from collector.parsing.nccl_settings import NCCL_SETTINGS, NIC_RATE

OUTLIER_TIMES_FAIR = 3.0
"""A rank that is last in so many times more often than its fair share stands out..."""
OUTLIER_COUNT_MIN = 5
"""...if it was so often last in at all: two of three operations are chance."""

PENDING_SQL = """
    SELECT communicator, operation, sequence, max(ranks) AS ranks,
           groupArrayIf(rank, state = 'scheduled') AS scheduled,
           groupArrayIf(rank, state = 'started') AS started,
           groupArrayIf(rank, state = 'completed') AS completed
    FROM collectives FINAL
    WHERE communicator IN {communicators:Array(String)} AND source = 'flight_recorder'
    GROUP BY communicator, operation, sequence
    HAVING length(scheduled) + length(started) > 0
    ORDER BY communicator, sequence, operation
"""
NICS = "NICs of a host"
WARNINGS_MAX = 100
WARNED_HOSTS_MAX = 100


def summarise_read(loaded: Loaded, analyses: Sequence[Analysis]) -> Read:
    titles = {name: reader.title for name, reader in discover().items()}
    unknown = [to_problem(file) for file in loaded.files if not file.format]
    broken = [
        to_problem(file)
        for file in loaded.files
        if file.format and (file.problem_count or file.refused)
    ]
    return Read(
        files=len(loaded.files),
        size_bytes=sum(file.size_bytes for file in loaded.files),
        formats=by_format(loaded.files, titles),
        not_understood=unknown[:FILES_NAMED_MAX],
        not_understood_count=len(unknown),
        broken=broken[:FILES_NAMED_MAX],
        broken_count=len(broken),
        left_out=[
            Problem(path=path, problem_count=1, problems=[why])
            for path, why in loaded.left_out[:FILES_NAMED_MAX]
        ],
        losses=[loss for analysis in analyses for loss in find_losses(analysis)],
    )


def find_warnings(store: ThrowAwayStore) -> list[Warned]:
    """Equal messages are one; the most frequent first."""
    hosts: dict[str, list[str]] = {}
    for event in store.events((WARNING,)):
        hosts.setdefault(event.message, []).append(event.attributes.get(words.HOST, ""))
    ordered = sorted(hosts, key=lambda message: (-len(hosts[message]), message))
    return [
        Warned(
            message=message,
            count=len(hosts[message]),
            hosts=sorted(set(hosts[message]))[:WARNED_HOSTS_MAX],
        )
        for message in ordered[:WARNINGS_MAX]
    ]


def find_settings(store: ThrowAwayStore) -> list[SettingReport]:
    """NCCL's variables and versions, each with its values; what NICs can do as one line."""
    seen: dict[str, dict[str, set[str]]] = {}
    rates: dict[str, list[float]] = {}
    for event in store.events((NCCL_SETTINGS,)):
        host = event.attributes.get(words.HOST, "")
        for name, value in event.attributes.items():
            if name.startswith(NIC_RATE) and value.isdigit():
                rates.setdefault(host, []).append(float(value))
            elif name != words.HOST:
                seen.setdefault(name, {}).setdefault(value, set()).add(host)
    for host, own in rates.items():
        shown = " + ".join(
            f"{count} x {units.rate(rate)}" for rate, count in sorted(Counter(own).items())
        )
        seen.setdefault(NICS, {}).setdefault(shown, set()).add(host)
    return [
        SettingReport(
            name=name,
            values={value: len(hosts) for value, hosts in sorted(values.items())},
        )
        for name, values in sorted(seen.items())
    ]


def find_profiles(store: ThrowAwayStore) -> list[ProfileReport]:
    reports = []
    for event in islice(store.events(("profile",)), PROFILES_MAX):
        ranks = words.parse_ranks(event.labels.get(words.RANK, ""))
        numbers = {
            name.removesuffix("_ms"): float(value)
            for name, value in event.attributes.items()
            if name.endswith("_ms") and value.replace(".", "", 1).isdigit()
        }
        kernels = event.attributes.get("kernels", "")
        reports.append(
            ProfileReport(
                rank=ranks[0] if ranks else None,
                kernels=int(kernels) if kernels.isdigit() else 0,
                milliseconds=numbers,
            )
        )
    return reports


def to_problem(file: FileRead) -> Problem:
    refused = [f"{count} records left out: {why}" for why, count in file.refused.items()]
    return Problem(
        path=file.path,
        format=file.format,
        records=file.records,
        problem_count=file.problem_count + len(refused),
        problems=[*file.problems, *refused],
    )


def find_losses(analysis: Analysis) -> list[Loss]:
    """Only NCCL Inspector counts each kind by itself; numbers of others have gaps by design."""
    if analysis.choice.source != "nccl_inspector" or not len(analysis.records):
        return []
    records = analysis.records
    group = np.array([name not in PAIRWISE for name in records.operations], dtype=bool)
    rows: Records = records.select(group[records.operation])
    losses = []
    streams = rows.communicator.astype(np.int64) * (len(rows.operations) + 1) + rows.operation
    for stream in np.unique(streams):
        own: Records = rows.select(streams == stream)
        numbers = np.unique(own.sequence)
        stride = int(np.gcd.reduce(np.diff(numbers))) if len(numbers) > 1 else 1
        ranks = len(np.unique(own.rank))
        expected = ((int(numbers[-1]) - int(numbers[0])) // stride + 1) * ranks
        losses.append(
            Loss(
                source=analysis.choice.source,
                communicator=own.communicators[own.communicator[0]],
                operation=own.operations[own.operation[0]],
                records=len(own),
                lost=max(0, expected - len(own)),
                kept_one_in=stride,
            )
        )
    return losses


def summarise_job(
    store: ThrowAwayStore, analysis: Analysis, windows: Mapping[str, JobWindow]
) -> JobReport:
    """``windows``: what detectors saw of each job, by its name."""
    job, found = analysis.job, analysis.job.found
    window = windows.get(job.name)
    collectives = report_collectives(analysis)
    pending = find_pending(store, job)
    return JobReport(
        job=job.name,
        was_said=found.was_said,
        size=job.size,
        ranks_read=count_read(analysis),
        first_ns=job.first_ns,
        last_ns=job.last_ns,
        nccl_versions=job.values_of(words.NCCL_VERSION),
        networks=job.values_of(words.NET),
        source=analysis.choice.source,
        source_reason=analysis.choice.reason,
        kept_one_in=analysis.kept_one_in,
        ranks=report_ranks(job, analysis.by_rank),
        communicators=report_communicators(analysis),
        clocks=analysis.fits if len(analysis.records) else [],
        steps_from=analysis.steps_from,
        steps=analysis.steps[-STEPS_MAX:],
        operations=report_operations(analysis.operations, store.results.baselines()),
        collectives=collectives,
        collectives_total=len(analysis.operations),
        lateness=report_lateness(analysis),
        pending=pending[:PENDING_MAX],
        pending_total=len(pending),
        stages=stages_in(window) if window is not None and has_messages(window) else None,
    )


EARLY_SHARE = 0.1
"""Of a job's time: a rank whose last record is further from its end has ended early."""


def ended_early(analysis: Analysis) -> list[int]:
    """Ranks that stop long before the job does."""
    rows, job = analysis.by_rank, analysis.job
    known = rows.rank >= 0
    if not known.any():
        return []
    entries, ranks = rows.entry_ns[known], rows.rank[known]
    last, first = int(entries.max()), int(entries.min())
    late = set(ranks[entries >= last - EARLY_SHARE * (last - first)].tolist())
    return sorted(set(ranks.tolist()) - late - job.guessed)


def count_read(analysis: Analysis) -> RanksRead:
    """Who is known to exist, who was read, and what is missing of whom."""
    job, early = analysis.job, ended_early(analysis)
    seen = {rank for ranks in job.by_source.values() for rank in ranks}
    # One without a number may be any of those that nothing else was read of.
    unread = [] if seen & job.guessed else job.lacks(seen)
    cut = sorted(rank for each in job.collections for rank in each.cut)
    return RanksRead(
        known=job.size,
        count=count_seen(job),
        read=sorted(seen - job.guessed),
        unread=unread,
        by_source={
            source: sorted(ranks - job.guessed) for source, ranks in sorted(job.by_source.items())
        },
        cut=cut,
        ended_early=early,
        text=read_text(job, unread, cut, early),
    )


def count_seen(job: Job) -> int:
    """How many ranks were read, at least: two sources may have the same one, without a number."""
    seen = {rank for ranks in job.by_source.values() for rank in ranks}
    most = max((len(ranks) for ranks in job.by_source.values()), default=0)
    return min(job.size, max(len(seen - job.guessed), most))


def read_text(job: Job, unread: Sequence[int], cut: Sequence[int], early: Sequence[int]) -> str:
    """`12 of 16 ranks read; none from 3, 8, 10, 15`, and what single sources lack."""
    seen = {rank for ranks in job.by_source.values() for rank in ranks}
    read = count_seen(job)
    if unnumbered := len(seen & job.guessed):
        text = f"at least {read:,} of {job.size:,} ranks read"
        text += f"; no file says the numbers of {unnumbered:,} of them"
    elif read >= job.size:
        text = f"all {job.size:,} ranks read" if job.size > 1 else "the only rank read"
    else:
        text = f"{read:,} of {job.size:,} ranks read"
        text += f"; none from {numbers(unread)}" if len(unread) == job.size - read else ""
    for source, ranks in sorted(job.by_source.items()):
        lacking = sorted(seen - ranks - job.guessed)
        if lacking and source in FILES and not ranks & job.guessed:
            text += f"; no {FILES[source][0]} from {numbers(lacking)}"
    text += f"; the dump of {rank_words(cut)} is cut off" if cut else ""
    return text + (f"; the records of {rank_words(early)} end early" if early else "")


# Ranks and communicators -------------------------------------------------------------------------


def report_ranks(job: Job, rows: RankRows) -> list[RankReport]:
    late = rank_sums(rows)
    places = job.places
    fair = sum(int(each["last_in"]) for each in late.values()) / max(1, len(late))
    reports = []
    for rank in sorted({*places, *late}):
        place = places.get(rank)
        own = late.get(rank, {})
        last_in = own.get("last_in", 0)
        reports.append(
            RankReport(
                rank=None if rank in job.guessed else rank,
                host=place.host if place else None,
                pid=place.pid if place else None,
                gpu=place.gpu if place else None,
                device=place.devices if place else None,
                local_rank=place.local_rank if place else None,
                origins=dict(place.origins) if place else {},
                is_outlier=last_in >= max(OUTLIER_COUNT_MIN, OUTLIER_TIMES_FAIR * fair),
                **own,
            )
        )
    return reports


def rank_sums(rows: RankRows) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    if not len(rows.rank):
        return found
    order = np.argsort(rows.rank, kind="stable")
    ranks, starts = np.unique(rows.rank[order], return_index=True)
    for rank, own in zip(ranks.tolist(), np.split(order, starts[1:]), strict=True):
        if rank < 0:
            continue
        found[rank] = {
            "operations": len(own),
            "last_in": int(rows.is_last[own].sum()),
            "least_inside": int(rows.is_least[own].sum()),
            "median_late_ns": int(np.median(rows.late_ns[own])),
            "most_late_ns": int(rows.late_ns[own].max()),
            "median_inside_ns": int(np.median(rows.inside_ns[own])),
        }
    return found


def report_communicators(analysis: Analysis) -> list[CommunicatorReport]:
    """Every communicator that has operations, or that NCCL's lines name."""
    counts = operation_counts(analysis.operations)
    job = analysis.job
    names = {name: text for each in job.collections for name, text in each.descriptions.items()}
    reports = [
        CommunicatorReport(
            communicator=found.communicator,
            name=names.get(found.communicator) or found.name,
            source="process group" if found.communicator.startswith("pg:") else "nccl",
            ranks=found.ranks,
            nodes=found.nodes,
            members=[
                MemberReport(
                    rank=each.rank,
                    job_rank=None if each.job_rank in job.guessed else each.job_rank,
                    host=each.host,
                )
                for each in found.members
            ],
            rings=found.rings,
            trees=found.trees,
            operations=counts.get(found.communicator, {}),
        )
        for found in job.found.communicators
    ]
    known = {report.communicator for report in reports}
    members: dict[str, dict[int, int]] = {}
    for (name, rank), job_rank in job.said_ranks.items():
        members.setdefault(name, {})[rank] = job_rank
    for collection in job.collections:
        for name, size in sorted(collection.sizes.items()):
            if name not in known:
                known.add(name)
                own = members.get(name, {})
                reports.append(
                    group_report(name, size, counts.get(name, {}), job, names.get(name), own)
                )
    return reports


def group_report(
    name: str,
    size: int,
    counts: dict[str, int],
    job: Job,
    description: str | None,
    known_members: dict[int, int],
) -> CommunicatorReport:
    """A process group of the framework, as traces and dumps name it."""
    places = job.places
    members = []
    for rank, mine in sorted(known_members.items()):
        place = places.get(mine)
        host = place.host if place is not None and place.host else ""
        members.append(MemberReport(rank=rank, job_rank=mine, host=host))
    return CommunicatorReport(
        communicator=name,
        name=description or None,
        source="process group",
        ranks=size,
        nodes=None,
        members=members,
        rings=[],
        trees=[],
        operations=counts,
    )


def operation_counts(operations: Operations) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    kinds = len(operations.operations) + 1
    pairs = operations.communicator.astype(np.int64) * kinds + operations.operation
    unique, counts = np.unique(pairs, return_counts=True)
    for pair, count in zip(unique.tolist(), counts.tolist(), strict=True):
        communicator, operation = divmod(pair, kinds)
        own = found.setdefault(operations.communicators[communicator], {})
        own[operations.operations[operation]] = count
    return found


# Operations --------------------------------------------------------------------------------------


def kinds_of(operations: Operations) -> Ints:
    return distinct(operations.communicator, operations.operation, operations.size_bytes)[1]


def report_operations(operations: Operations, baselines: Baselines) -> list[OperationReport]:
    if not len(operations):
        return []
    kinds = kinds_of(operations)
    reports = []
    for kind in range(int(kinds.max()) + 1):
        own: Operations = operations.select(kinds == kind)
        whole = np.maximum(own.ranks, own.ranks_seen)
        has_size = own.bus_bytes[0] > 0
        operation, size = own.operations[own.operation[0]], known(int(own.size_bytes[0]))
        reports.append(
            OperationReport(
                communicator=own.communicators[own.communicator[0]],
                operation=operation,
                size_bytes=size,
                count=len(own),
                complete=int((own.ranks_seen == whole).sum()),
                lost=int((whole - own.ranks_seen).sum()),
                entry_skew=quantiles(own.skew_ns),
                transfer=quantiles(own.transfer_ns),
                bus_bandwidth_bytes_per_second=(
                    float(np.median(own.bus_bandwidth)) if has_size else None
                ),
                baseline_bytes_per_second=baselines.find(operation, int(own.ranks[0]), size),
            )
        )
    return reports


def known(number: int) -> int | None:
    """None where it was not seen."""
    return None if number == ABSENT else number


def quantiles(values: Ints) -> Quantiles:
    p50, p95 = np.quantile(values, [0.5, 0.95])
    return Quantiles(p50_ns=int(p50), p95_ns=int(p95), max_ns=int(values.max()))


def slower_than_usual(operations: Operations) -> Ints:
    """How much longer each operation took than the median of its communicator, kind and size."""
    took = operations.last_exit_ns - operations.first_entry_ns
    kinds = kinds_of(operations)
    order = np.argsort(kinds, kind="stable")
    usual = np.zeros(len(operations), dtype=np.int64)
    for own in np.split(order, starts_of(kinds[order])[1:]):
        usual[own] = int(np.median(took[own])) if len(own) else 0
    return took - usual


def report_collectives(analysis: Analysis) -> list[CollectiveReport]:
    """Every joined operation in order of time; of too many those that were slowest."""
    operations = analysis.operations
    if not len(operations):
        return []
    slower = slower_than_usual(operations)
    chosen = np.arange(len(operations))
    if len(chosen) > COLLECTIVES_MAX:
        chosen = np.argsort(-slower, kind="stable")[:COLLECTIVES_MAX]
    chosen = chosen[np.argsort(operations.first_entry_ns[chosen], kind="stable")]
    hosts = host_of_ranks(analysis.records)
    job_ranks = analysis.job.job_ranks
    places, guessed = analysis.job.places, analysis.job.guessed
    reports = []
    skew, transfer = operations.skew_ns, operations.transfer_ns
    for row in chosen.tolist():
        communicator = operations.communicators[operations.communicator[row]]
        last_in = int(operations.last_in[row])
        job_rank = job_ranks.get((communicator, last_in))
        place = places.get(job_rank) if job_rank is not None else None
        host = hosts.get((communicator, last_in), "") or (place.host if place else "") or ""
        reports.append(
            CollectiveReport(
                communicator=communicator,
                operation=operations.operations[operations.operation[row]],
                sequence=int(operations.sequence[row]),
                size_bytes=known(int(operations.size_bytes[row])),
                ranks=int(operations.ranks[row]),
                ranks_seen=int(operations.ranks_seen[row]),
                start_ns=int(operations.first_entry_ns[row]),
                end_ns=int(operations.last_exit_ns[row]),
                entry_skew_ns=int(skew[row]),
                transfer_ns=int(transfer[row]),
                last_in=last_in,
                last_in_job_rank=None if job_rank in guessed else job_rank,
                last_in_host=host,
                slower_ns=int(slower[row]),
            )
        )
    return reports


def host_of_ranks(records: Records) -> dict[tuple[str, int], str]:
    first, _ = distinct(records.communicator, records.rank)
    return {
        (records.communicators[records.communicator[row]], int(records.rank[row])): records.hosts[
            records.host[row]
        ]
        for row in first.tolist()
    }


def report_lateness(analysis: Analysis) -> list[LatenessReport]:
    late = analysis.lateness
    job_ranks = analysis.job.said_ranks
    reports = []
    for row in range(min(len(late), LATENESS_MAX)):
        communicator = late.communicators[late.communicator[row]]
        rank = int(late.rank[row])
        reports.append(
            LatenessReport(
                rank=job_ranks.get((communicator, rank)),
                communicator=communicator,
                communicator_rank=rank,
                operation=late.operations[late.operation[row]],
                host=late.hosts[late.host[row]],
                operations=int(late.count[row]),
                last_in=int(late.last_in[row]),
                least_inside=int(late.least_inside[row]),
                median_late_ns=int(late.median_late_ns[row]),
                most_late_ns=int(late.most_late_ns[row]),
                median_inside_ns=int(late.median_inside_ns[row]),
            )
        )
    return reports


def find_pending(store: ThrowAwayStore, job: Job) -> list[PendingReport]:
    """Operations that did not end, from dumps of the Flight Recorder."""
    names = {
        name
        for collection in job.collections
        if collection.source == "flight_recorder"
        for name in collection.sizes
    }
    if not names:
        return []
    job_ranks = job.said_ranks
    reports = []
    for row in store.rows("collectives", PENDING_SQL, {"communicators": sorted(names)}):
        waiting = sorted([*row["scheduled"], *row["started"]])
        known_ranks = (job_ranks.get((row["communicator"], rank)) for rank in waiting)
        reports.append(
            PendingReport(
                communicator=row["communicator"],
                operation=row["operation"],
                sequence=row["sequence"],
                ranks=row["ranks"],
                scheduled=sorted(row["scheduled"]),
                started=sorted(row["started"]),
                completed=sorted(row["completed"]),
                job_ranks=sorted(rank for rank in known_ranks if rank is not None),
            )
        )
    return reports
