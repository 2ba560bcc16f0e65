"""Jobs in which nothing moves any more, and the rank, GPU, port or host that holds them up.

*Phenomenon.* One rank does not launch its next collective, or does not get out of one: its process
has stopped, its GPU is dead, its link is down. All other ranks wait inside, with busy GPUs,
until a watchdog kills the job half an hour later.

*Signal.* No rank has completed anything for several seconds and several steps, while the agents of
its hosts report and its GPUs have stopped computing without becoming idle. Then the culprit, by the
first evidence that there is: a GPU with an error that is fatal, or that cannot be read; a port of a
rank that is down; NCCL's RAS (`alerts.signals.ras`) and dumps of the Flight Recorder
(`alerts.signals.blocked`), each the witness of the other; GPUs that are idle while all others wait
inside of a collective, on a host whose processes use no CPU; a GPU that draws far less than all
others that wait; a host that fell silent when the job stopped. A job whose GPUs all wait alike for
half a minute is stalled, without a culprit.

*Assumptions.* A GPU that waits in a collective spins: it counts as utilised and draws more than an
idle one. Clocks of agents and service agree to within seconds. By RAS: where nothing is launched,
a rank that has launched less than most is what they wait for.

*Misses.* A job without GPU readings, without RAS and without dumps. A rank that spins by itself and
looks like those that wait. A checkpoint that one rank writes alone for minutes looks like a rank
that does not launch, so one idle GPU on a busy host is named only after two minutes. By RAS alone:
a kernel that never ends, sends and receives, and a rank that makes a call which no other makes.

*Reference.* Missing ranks of the wavefront group: NVIDIA's resiliency extension, attribution by
Flight Recorder. Not launched against launched and not finished: Aegis (NSDI'25). High utilisation
with low tensor activity and low power: DLRover's hang watermarks, ClusterMAX.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from alerts.detectors.crash import LAST_WORDS
from alerts.finding import Finding, Suspect
from alerts.signals.blocked import Blame, blame
from alerts.signals.ras import Waited, waited_for
from alerts.window.columns import Flags, Floats, Ints
from alerts.window.model import JobWindow, Rank, Window
from alerts.window.statistics import median_known
from collector.contract.identity import GPU_MAX, XID_MAX, whole_number
from collector.contract.ranks_read import rank_words
from collector.contract.records import ABSENT
from collector.contract.units import NS
from collector.contract.verdict import Cause, Cost, Culprit, Evidence, Reason

NAMED_NS_MIN = 5 * NS
"""So long nothing must have moved before a culprit is named, even with a broken part at hand."""
STEPS_MIN = 4
"""And so many usual steps."""
ALONE_NS_MIN = 120 * NS
"""How long an idle GPU on a busy host must keep all waiting: rank 0 may write a checkpoint."""
UNNAMED_NS_MIN = 30 * NS
PAUSES_MIN = 2.0
"""Without a broken part at hand: so many times the longest pause that the window has seen."""
EXITS_MIN = 20
"""Fewer completions do not show what is usual."""
FRESH_NS = 15 * NS
"""Whose agent has not reported for longer is not known to wait: three reports of 5 s."""
FRESH_SHARE_MIN = 0.6
"""Of a job's GPUs: with fewer it may be the telemetry that has stopped, not the job."""
SILENT_NS_MIN = 20 * NS
"""So long a whole host must have been silent to be named: its agent may just be slow."""
BUSY_RATIO, IDLE_RATIO = 0.9, 0.1
"""GPU utilisation inside of a collective (DLRover: above 0.98), and of one that has nothing."""
CALM_SHARE = 0.7
"""Of a GPU's usual power, below which it does not compute. Spinning takes about half."""
TENSOR_SHARE = 0.1
"""The same of tensor activity. DLRover calls a job hung below 0.001."""
POWER_SHARE = 0.75
"""Of the median power of those that wait: GPUs of one kind that spin differ by a few percent."""
POWER_ALIKE = 0.1
"""So little the others may differ, relative, for one to stand out."""
CPU_SHARE = 0.3
"""Of a host's usual CPU time, below which its training processes do not run."""
WAIT_SHARE = 0.5
"""Of the job's GPUs that must wait for others to be accused of not coming."""
ALIKE_MIN = 3
"""GPUs that are needed to find the odd one."""
MINORITY = 1 / 3
"""Of a job's ranks that may be accused."""
BEFORE_NS = 10 * NS
"""What broke so long before the last completion may still be why."""
PORT_ACTIVE = 4
XIDS_FATAL = frozenset(
    {
        13, 31, 32, 46, 48, 62, 64, 69, 74, 79, 94, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156,
        158,
    }
)  # fmt: skip
"""That end a process or need a reset, by NVIDIA's catalogue of XIDs."""
ACCOMPLICES_MAX = 64
"""Names that a finding lists."""
MOVED_NS_MIN = 2 * NS
"""A completion so long after RAS saw the last launch contradicts it: the job moves. Less is within
what clocks differ by."""
RAS_GONE_STRENGTH, RAS_BEHIND_STRENGTH, AGREED_STRENGTH = 0.9, 0.75, 0.97
"""Of a rank that does not answer, of one that is behind and alive, and where dumps say the same."""


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """A job in which nothing moves."""

    since_ns: int
    """The last completion of any rank."""
    for_ns: int
    step_ns: int
    longest_ns: int
    """Without any completion, before."""
    ranks: tuple[Rank, ...]
    """Those whose GPU is read."""
    gpu: Ints
    """Its row of the window's GPUs, for each of those."""
    after: Flags
    """Cells that lie after the last completion as a whole."""
    before: Flags


WITNESSES_MIN = 2
"""Ranks that lost a peer: one may have lost its own network."""


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """The culprit, and the evidence against it."""

    culprit: Culprit
    reason: Reason
    strength: float
    evidence: tuple[Evidence, ...]
    accomplices: tuple[Culprit, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    communicators: tuple[str, ...] = ()
    unread: tuple[int, ...] = ()
    is_unsure: bool = False
    since_ns: int = 0
    """When nothing moved any more, where this evidence shows it; 0: it does not."""

    @property
    def ranks(self) -> frozenset[int]:
        """The accused ranks."""
        everyone = (self.culprit, *self.accomplices)
        return frozenset(one.rank for one in everyone if one.rank is not None)


def detect(window: Window) -> list[Finding]:
    found = [
        detect_live(window, job) if window.is_live else detect_dumped(window, job)
        for job in window.looked
    ]
    return [finding for finding in found if finding is not None]


def detect_dumped(window: Window, job: JobWindow) -> Finding | None:
    """What has hung where its own words alone can show it: the records of a capture simply end."""
    named = by_witnesses(window, job)
    times = [pending.time_ns for pending in job.pending if pending.time_ns]
    if named is not None and named.since_ns:
        times.append(named.since_ns)
    if named is None or not times:
        return None
    records = job.records
    ended = records.exit_ns[records.exit_ns != ABSENT] if len(records) else np.zeros(0)
    if len(ended) and int(ended.max()) > max(times):
        return None
    last_ns = window.to_ns if window.is_live else max(times)
    return to_finding(window, job, named, min(times), last_ns)


def detect_live(window: Window, job: JobWindow) -> Finding | None:
    stopped = stop_of(window, job)
    if stopped is None:
        return detect_by_words(window, job) if job.is_running else None
    if not is_waiting(window, stopped):
        # Half of a small job may never have launched, and then most of it does not wait.
        named = by_witnesses(window, job, stopped) if some_wait(window, stopped) else None
        if named is None:
            return None
        return to_finding(window, job, named, stopped.since_ns, window.to_ns)
    named = (
        by_error(window, job, stopped)
        or by_link(window, job, stopped)
        or by_witnesses(window, job, stopped)
        or by_idle(window, job, stopped)
        or by_power(window, job, stopped)
        or by_silence(window, job, stopped)
        or unnamed(window, job, stopped)
    )
    if named is None:
        return None
    return to_finding(window, job, named, stopped.since_ns, window.to_ns)


def detect_by_words(window: Window, job: JobWindow) -> Finding | None:
    """The same where records and GPUs do not show that it stands: by RAS, or by dumps alone."""
    # Without any reading of its GPUs a job that stands looks like one whose records were lost.
    found = detect_dumped(window, job) if not has_gpus(window, job) else None
    named = by_ras(window, job) if found is None else None
    if named is None:
        return found
    return to_finding(window, job, named, named.since_ns, window.to_ns)


def has_gpus(window: Window, job: JobWindow) -> bool:
    """Whether any GPU of the job was read lately."""
    known = window.gpus.row_of
    rows = [
        known[rank.host, rank.gpu]
        for rank in job.ranks.values()
        if rank.gpu is not None and (rank.host, rank.gpu) in known
    ]
    return bool((window.gpus.seen_ns[rows] >= window.to_ns - FRESH_NS).any()) if rows else False


def stop_of(window: Window, job: JobWindow) -> Stopped | None:
    """How the job has stopped; None while it moves, has ended, or too little is known of it."""
    records = job.records
    # Between slices records were not read; joined operations are all there.
    exits = np.concatenate([records.exit_ns[records.timed()], job.operations.last_exit_ns])
    if not job.is_running or not len(exits):
        return None
    last = int(exits.max())
    step = int(np.median([one.end_ns - one.start_ns for one in job.steps])) if job.steps else NS
    silent = window.to_ns - last
    if silent < max(NAMED_NS_MIN, STEPS_MIN * step):
        return None
    exits = np.unique(exits)
    if len(exits) < EXITS_MIN:
        return None
    placed = [
        (rank, window.gpus.row_of[rank.host, rank.gpu])
        for _, rank in sorted(job.ranks.items())
        if rank.gpu is not None and (rank.host, rank.gpu) in window.gpus.row_of
    ]
    rows = np.array([row for _, row in placed], dtype=np.int64)
    if not len(rows):
        return None
    fresh = window.gpus.seen_ns[rows] >= window.to_ns - FRESH_NS
    edges = window.gpus.grid.edges_ns
    after = edges[:-1] >= last
    stopped = Stopped(
        since_ns=last,
        for_ns=silent,
        step_ns=step,
        longest_ns=int(np.diff(exits).max()),
        ranks=tuple(rank for rank, _ in placed),
        gpu=rows,
        after=after,
        before=edges[1:] <= last,
    )
    return stopped if fresh.mean() >= FRESH_SHARE_MIN and after.any() else None


def some_wait(window: Window, stopped: Stopped) -> bool:
    """Whether any GPU is in a kernel: the job's processes have not all ended."""
    busy = typical(window.gpus.values("utilization_ratio"), stopped, stopped.after)
    return bool((busy >= BUSY_RATIO).any())


def is_waiting(window: Window, stopped: Stopped) -> bool:
    """Whether most GPUs are in a kernel and have stopped computing: records are not just lost.

    Idle GPUs of a job that has ended, or that all write a checkpoint, do not wait.
    """
    busy = typical(window.gpus.values("utilization_ratio"), stopped, stopped.after)
    if not median_known(busy) >= BUSY_RATIO:
        return False
    for name, share in (("tensor_active_ratio", TENSOR_SHARE), ("power_watts", CALM_SHARE)):
        values = window.gpus.values(name)
        now = typical(values, stopped, stopped.after)
        usual = typical(values, stopped, stopped.before)
        both = ~np.isnan(now) & ~np.isnan(usual) & (usual > 0)
        if both.any():
            return bool(np.median(now[both] / usual[both]) < share)
    return False


def typical(values: Floats, stopped: Stopped, cells: Flags) -> Floats:
    """The median over these cells, for each of the job's GPUs; NaN where nothing was read."""
    chosen = values[stopped.gpu][:, cells]
    found = np.full(len(chosen), np.nan)
    known = ~np.isnan(chosen).all(axis=1) if chosen.size else np.zeros(len(chosen), dtype=bool)
    found[known] = np.nanmedian(chosen[known], axis=1)
    return found


# The culprit -------------------------------------------------------------------------------------


def by_error(window: Window, job: JobWindow, stopped: Stopped) -> Named | None:
    """A GPU of the job with a fatal XID since shortly before, or that cannot be read any more."""
    ranks = {(rank.host, rank.gpu): rank for rank in stopped.ranks}
    broken: dict[int, Evidence] = {}
    for event in window.events:
        gpu, xid = event.labels.get("gpu", ""), event.attributes.get("xid", "")
        if whole_number(xid, XID_MAX) not in XIDS_FATAL:
            continue
        number = whole_number(gpu, GPU_MAX)
        rank = ranks.get((event.labels.get("host", ""), number)) if number is not None else None
        if rank is not None and event.time_ns >= stopped.since_ns - BEFORE_NS:
            text = f"GPU {gpu} of {rank.host} reports XID {xid}"
            evidence = Evidence(
                metric="fabric_gpu_xid_errors_total", text=text, value=1.0, unit="errors",
                baseline=0.0, from_ns=event.time_ns, to_ns=event.time_ns, samples=1,
                labels={"host": rank.host, "gpu": gpu, "xid": xid},
            )  # fmt: skip
            broken.setdefault(rank.rank, evidence)
    up = window.gpus.values("up")[stopped.gpu]
    for place, rank in enumerate(stopped.ranks):
        known = up[place][~np.isnan(up[place])]
        if len(known) and known[-1] == 0.0:
            text = f"GPU {rank.gpu} of {rank.host} cannot be read any more"
            broken.setdefault(
                rank.rank,
                evidence_at(
                    window,
                    stopped,
                    window.gpus.metric("up"),
                    text,
                    0.0,
                    1.0,
                    {"host": rank.host, "gpu": str(rank.gpu)},
                ),
            )
    if not broken or len(broken) > max(1, MINORITY * job.size):
        return None
    return named_ranks(job, sorted(broken), Reason.GPU_ERROR, 0.95, tuple(broken.values()))


def by_link(window: Window, job: JobWindow, stopped: Stopped) -> Named | None:
    """A port that a rank's bytes leave by is down."""
    state, physical = window.ports.values("state"), window.ports.values("up")
    down: dict[int, int] = {}
    for _, rank in sorted(job.ranks.items()):
        for row in window.rows_of_rank(rank):
            known = state[row][~np.isnan(state[row])]
            levels = physical[row][~np.isnan(physical[row])]
            is_down = known[-1] < PORT_ACTIVE if len(known) else len(levels) and levels[-1] == 0.0
            if is_down:
                down.setdefault(row, rank.rank)
    if not down or len(down) > max(1, MINORITY * job.size):
        return None
    rows = sorted(down)
    culprits = [window.ports.culprit(row) for row in rows]
    evidence = tuple(
        evidence_at(
            window, stopped, window.ports.metric("state"),
            f"port {one.port} of {one.device} on {one.host} is down, rank {down[row]} needs it",
            1.0, float(PORT_ACTIVE), window.ports.labels(row),
        )
        for row, one in zip(rows, culprits, strict=True)
    )  # fmt: skip
    share = 1 / len(culprits)
    return Named(
        culprit=msgspec.structs.replace(culprits[0], job=job.job),
        reason=Reason.LINK_DOWN,
        strength=0.95 if len(culprits) == 1 else 0.7,
        evidence=evidence[:ACCOMPLICES_MAX],
        accomplices=tuple(culprits[1 : 1 + ACCOMPLICES_MAX]),
        suspects=tuple(Suspect(culprit=one, share=share) for one in culprits)
        if len(culprits) > 1
        else (),
    )


def by_witnesses(window: Window, job: JobWindow, stopped: Stopped | None = None) -> Named | None:
    """Ranks that RAS or dumps show to be waited for: both, if both speak."""
    ras, dumps = by_ras(window, job, stopped), by_dumps(job, window, stopped)
    if ras is None or dumps is None:
        return ras or dumps
    evidence = (*dumps.evidence, *ras.evidence)
    if not dumps.ranks or not ras.ranks:
        chosen = dumps if dumps.ranks else ras
        return msgspec.structs.replace(chosen, evidence=evidence)
    if dumps.ranks == ras.ranks:
        reason = ras.reason if dumps.reason is Reason.UNKNOWN else dumps.reason
        return msgspec.structs.replace(
            dumps, reason=reason, strength=AGREED_STRENGTH, evidence=evidence, unread=(),
            is_unsure=False,
        )  # fmt: skip
    differ = [
        msgspec.structs.replace(one, text=f"{one.text} (dumps differ)") for one in ras.evidence
    ]
    return msgspec.structs.replace(
        dumps,
        evidence=(*dumps.evidence, *differ),
        suspects=tuple(Suspect(culprit=one.culprit, share=0.5) for one in (dumps, ras)),
    )


def by_ras(window: Window, job: JobWindow, stopped: Stopped | None = None) -> Named | None:
    """Ranks that NCCL's RAS shows to be gone, or behind all others, while nothing moves."""
    waited = waited_for(window, job, stopped.for_ns if stopped is not None else 0)
    if waited is None or not waited.ranks or has_moved(job, waited.since_ns + MOVED_NS_MIN):
        return None
    idle = idle_gpus(window, job)
    if idle and all(idle.values()):
        return None  # its GPUs are all idle: it has ended, or does something else
    own = [idle[rank] for rank in waited.ranks if rank in idle]
    if not waited.are_gone and own and not all(own):
        return None  # it is behind, and its GPU works or waits as well: it is a victim, or at work
    evidence = ras_evidence(job, waited)
    if not waited.is_one_place:
        culprits = [job.culprit(rank) for rank in waited.ranks]
        share = 1 / len(culprits)
        named = Named(
            culprit=Culprit(),
            reason=Reason.UNKNOWN,
            strength=0.6,
            evidence=(evidence,),
            suspects=tuple(Suspect(culprit=one, share=share) for one in culprits),
        )
    else:
        is_sure = waited.are_gone or bool(own)
        strength = RAS_GONE_STRENGTH if is_sure else RAS_BEHIND_STRENGTH
        named = named_ranks(job, list(waited.ranks), Reason.NOT_LAUNCHED, strength, (evidence,))
    return msgspec.structs.replace(
        named,
        communicators=waited.communicators[:ACCOMPLICES_MAX],
        since_ns=waited.since_ns,
    )


def has_moved(job: JobWindow, since_ns: int) -> bool:
    """Whether any rank has completed something since."""
    records = job.records
    exits = (records.exit_ns[records.timed()], job.operations.last_exit_ns)
    return any(len(one) and int(one.max()) > since_ns for one in exits)


def idle_gpus(window: Window, job: JobWindow) -> dict[int, bool]:
    """By rank whether its GPU is idle now, where it was read lately and has no other rank."""
    rows: dict[int, list[int]] = {}
    for number, rank in job.ranks.items():
        row = window.gpus.row_of.get((rank.host, rank.gpu)) if rank.gpu is not None else None
        if row is not None and window.gpus.seen_ns[row] >= window.to_ns - FRESH_NS:
            rows.setdefault(row, []).append(number)
    if not rows:
        return {}
    values = window.gpus.values("utilization_ratio")
    found = {}
    for row, ranks in rows.items():
        known = values[row][~np.isnan(values[row])]
        if len(ranks) == 1 and len(known):
            found[ranks[0]] = bool(known[-1] < IDLE_RATIO)
    return found


def ras_evidence(job: JobWindow, waited: Waited) -> Evidence:
    return Evidence(
        metric="fabric_job_ras_standing_seconds", text=waited.text,
        value=waited.standing_ns / NS, unit="seconds", from_ns=waited.since_ns,
        to_ns=waited.time_ns, labels={"job": job.job},
    )  # fmt: skip


def by_dumps(job: JobWindow, window: Window, stopped: Stopped | None = None) -> Named | None:
    """Ranks that the job's own recorders show to be waited for."""
    found = blame(job)
    if found is None:
        return None
    if stopped is not None and found.time_ns < stopped.since_ns - stopped.longest_ns - BEFORE_NS:
        # Of an earlier hang that went on after all.
        return None
    evidence = Evidence(
        metric="pending_operations", text=waits_text(found), value=float(found.operations),
        unit="operations", from_ns=found.time_ns, to_ns=window.to_ns, labels={"job": job.job},
        samples=len(job.pending),
    )  # fmt: skip
    is_certain = found.is_certain or is_witnessed(window, job, found)
    strength = 0.95 if is_certain else 0.6
    named = Named(culprit=Culprit(), reason=Reason.UNKNOWN, strength=strength, evidence=(evidence,))
    if found.ranks:
        reason = Reason.NOT_LAUNCHED if is_certain and not found.is_certain else found.reason
        named = named_ranks(job, list(found.ranks), reason, strength, (evidence,))
    return msgspec.structs.replace(
        named,
        communicators=found.communicators[:ACCOMPLICES_MAX],
        unread=found.unread if found.is_certain else (*found.unread, *unread_of(job, found.ranks)),
        is_unsure=not is_certain,
    )


def is_witnessed(window: Window, job: JobWindow, found: Blame) -> bool:
    """Whether last words of others show that the only rank without a dump went away.

    It is what the others wait for, all of these have dumped, and WITNESSES_MIN of them say that a
    peer of theirs is gone: a killed process writes no dump.
    """
    if len(found.ranks) != 1 or found.unread or job.dumped is None:
        return False
    (rank,) = found.ranks
    if rank in job.dumped or len(job.dumped) < job.size - 1:
        return False
    said = {
        event.labels.get("rank", "")
        for event in window.events
        if event.kind == LAST_WORDS
        and event.attributes.get("reason") == Reason.CONNECTION_LOST
        and event.labels.get("job", job.job) == job.job
    }
    return len(said - {"", str(rank)}) >= WITNESSES_MIN


def unread_of(job: JobWindow, ranks: Sequence[int]) -> list[int]:
    return [rank for rank in ranks if job.dumped is not None and rank not in job.dumped]


def waits_text(found: Blame) -> str:
    words = {
        Reason.NOT_LAUNCHED: "never launched what the others wait in",
        Reason.NOT_FINISHED: "did not finish what the others have left",
        Reason.UNKNOWN: "is waited for, and no whole dump of it was read"
        if len(found.ranks) == 1
        else "are waited for, and no whole dumps of them were read",
    }
    pending = "1 operation is" if found.operations == 1 else f"{found.operations} operations are"
    if not found.ranks:
        return f"{pending} pending, and those that are waited for have no dump, or one cut off"
    return f"{rank_words(found.ranks)} {words[found.reason]}: {pending} pending"


def by_idle(window: Window, job: JobWindow, stopped: Stopped) -> Named | None:
    """GPUs that do nothing while all others wait inside: their processes have launched nothing."""
    busy = typical(window.gpus.values("utilization_ratio"), stopped, stopped.after)
    idle = busy < IDLE_RATIO
    if (
        not idle.any()
        or idle.sum() > MINORITY * len(busy)
        or (busy >= BUSY_RATIO).mean() < WAIT_SHARE
    ):
        return None
    ranks = [rank for rank, is_idle in zip(stopped.ranks, idle, strict=True) if is_idle]
    strong = all(has_stopped(window, stopped, host) for host in {rank.host for rank in ranks})
    patience = max(ALONE_NS_MIN, PAUSES_MIN * stopped.longest_ns)
    if not strong and stopped.for_ns < patience:
        return None
    value, usual = float(busy[idle].max()), median_known(busy)
    hosts = ", ".join(sorted({rank.host for rank in ranks})[:4])
    text = f"{len(ranks)} GPUs of {hosts} are idle ({value:.0%}), all others wait ({usual:.0%})"
    evidence = evidence_at(
        window, stopped, window.gpus.metric("utilization_ratio"), text, value, usual
    )
    numbers = [rank.rank for rank in ranks]
    return named_ranks(job, numbers, Reason.NOT_LAUNCHED, 0.9 if strong else 0.6, (evidence,))


def has_stopped(window: Window, stopped: Stopped, host: str) -> bool:
    """Whether a host uses hardly any of the CPU time that it used before."""
    row = window.hosts.row_of.get(host)
    if row is None:
        return False
    values = window.hosts.values("cpu_seconds_total:user")[row]
    edges = window.hosts.grid.edges_ns
    now = values[edges[:-1] >= stopped.since_ns]
    usual = values[edges[1:] <= stopped.since_ns]
    return median_known(now) < CPU_SHARE * median_known(usual)


def by_power(window: Window, job: JobWindow, stopped: Stopped) -> Named | None:
    """A GPU that is busy like the others and draws far less: nothing switches in its kernel."""
    busy = typical(window.gpus.values("utilization_ratio"), stopped, stopped.after)
    power = typical(window.gpus.values("power_watts"), stopped, stopped.after)
    chosen = (busy >= BUSY_RATIO) & ~np.isnan(power)
    if chosen.sum() < ALIKE_MIN:
        return None
    usual = float(np.median(power[chosen]))
    low = chosen & (power < POWER_SHARE * usual)
    others = power[chosen & ~low]
    if low.sum() != 1 or np.quantile(np.abs(others - usual), 0.9) > POWER_ALIKE * usual:
        return None
    place = int(np.flatnonzero(low)[0])
    rank = stopped.ranks[place]
    text = (
        f"GPU {rank.gpu} of {rank.host} draws {power[place]:.0f} W, "
        f"all others that wait {usual:.0f} W"
    )
    evidence = evidence_at(
        window, stopped, window.gpus.metric("power_watts"), text, float(power[place]), usual,
        {"host": rank.host, "gpu": str(rank.gpu)},
    )  # fmt: skip
    return named_ranks(job, [rank.rank], Reason.NOT_FINISHED, 0.85, (evidence,))


def by_silence(window: Window, job: JobWindow, stopped: Stopped) -> Named | None:
    """A host that has fallen silent with the job, while all others report and wait."""
    if stopped.for_ns < max(SILENT_NS_MIN, stopped.longest_ns):
        return None
    seen = window.gpus.seen_ns[stopped.gpu]
    silent = seen < window.to_ns - FRESH_NS
    hosts = {rank.host for rank, gone in zip(stopped.ranks, silent, strict=True) if gone}
    ranks = [rank.rank for rank in stopped.ranks if rank.host in hosts]
    if len(hosts) != 1 or len(ranks) != silent.sum() or len(ranks) > MINORITY * job.size:
        return None
    gone_ns = window.to_ns - int(seen[silent].max())
    if abs(gone_ns - stopped.for_ns) > FRESH_NS:
        return None
    (host,) = hosts
    seconds = gone_ns / NS
    text = f"{host} has not reported for {seconds:.0f} s, all others report and wait"
    evidence = evidence_at(window, stopped, "fabric_gpu_up", text, seconds, 0.0, {"host": host})
    return named_ranks(job, ranks, Reason.NOT_LAUNCHED, 0.7, (evidence,))


def unnamed(window: Window, job: JobWindow, stopped: Stopped) -> Named | None:
    """After half a minute: that the job has stopped, without a culprit."""
    if stopped.for_ns < max(UNNAMED_NS_MIN, PAUSES_MIN * stopped.longest_ns):
        return None
    seconds, usual = stopped.for_ns / NS, stopped.longest_ns / NS
    text = f"no rank has completed anything for {seconds:.0f} s; it never took over {usual:.2g} s"
    evidence = [evidence_at(window, stopped, "collective_pause", text, seconds, usual)]
    waited = waited_for(window, job)
    if waited is not None and not waited.ranks:
        evidence.append(ras_evidence(job, waited))
    return Named(culprit=Culprit(), reason=Reason.UNKNOWN, strength=0.6, evidence=tuple(evidence))


# The finding -------------------------------------------------------------------------------------


def named_ranks(
    job: JobWindow,
    ranks: list[int],
    reason: Reason,
    strength: float,
    evidence: tuple[Evidence, ...],
) -> Named:
    """The host, if all its ranks and no others are to blame; else the first, with accomplices."""
    culprits = [job.culprit(rank) for rank in ranks]
    hosts = {one.host for one in culprits}
    whole = {
        number for number, rank in job.ranks.items() if rank.host in hosts and rank.host
    } == set(ranks)
    if len(hosts) == 1 and whole and len(ranks) > 1:
        first = Culprit(job=job.job, host=culprits[0].host)
        rest = culprits
    else:
        first, rest = culprits[0], culprits[1:]
    return Named(
        culprit=first,
        reason=reason,
        strength=strength,
        evidence=evidence[:ACCOMPLICES_MAX],
        accomplices=tuple(rest[:ACCOMPLICES_MAX]),
    )


def evidence_at(
    window: Window,
    stopped: Stopped,
    metric: str,
    text: str,
    value: float,
    baseline: float,
    labels: dict[str, str] | None = None,
) -> Evidence:
    units = {"power_watts": "watts", "utilization_ratio": "ratio", "collective_pause": "seconds"}
    unit = next((word for name, word in units.items() if metric.endswith(name)), "")
    return Evidence(
        metric=metric, text=text, value=value, unit=unit, baseline=baseline,
        from_ns=stopped.since_ns, to_ns=window.to_ns, labels=labels or {},
        samples=int(stopped.after.sum()),
    )  # fmt: skip


def to_finding(window: Window, job: JobWindow, named: Named, since: int, last: int) -> Finding:
    seconds = (last - since) / NS
    is_named = named.culprit != Culprit()
    cost = Cost(
        job=job.job, lost_seconds=seconds, step_seconds=None, step_seconds_without=None,
        lost_share=1.0, gpu_hours=seconds * job.size / 3600,
    )  # fmt: skip
    return Finding(
        detector="hang",
        cause=Cause.HANG if is_named else Cause.STALL,
        culprit=named.culprit if is_named else Culprit(job=job.job),
        strength=named.strength,
        since_ns=since,
        until_ns=None,
        last_ns=last,
        reason=named.reason,
        job=job.job,
        suspects=named.suspects,
        communicators=named.communicators,
        accomplices=named.accomplices,
        evidence=named.evidence,
        cost=cost if window.is_live else None,
        unread=tuple(sorted(named.unread)),
        is_unsure=named.is_unsure,
    )
