"""*Phenomenon.* A host lets its processes wait for CPUs, memory, disks or data: its ranks are late.

*Signal.* Of time: CPUs stolen by a hypervisor, tasks that wait for a CPU, for memory or for disks
(the kernel's pressure), groups held back by their CPU quota; of events: major faults, swapping,
stalls of allocations, killed processes. Each is compared with the median of its job's hosts at the
same time, and must be clearly above it. Where the training loop marks its phases, the time that a
rank spends waiting for its batch, beside its job's other hosts: with no trouble of the host's own
the reason is data loading.

*Assumptions.* Hosts of a job do the same work. A checkpoint or an evaluation runs on all hosts, so
that the peers' median rises too; what one host alone does for a moment (one slow batch) is shorter
than two readings, and is reported only if it lasts.

*Misses.* A host that is always as slow as all others; processes pinned to a few CPUs that others
take, where the host as a whole has time to spare; kernels without pressure information (before
4.20) unless time is stolen; loops that mark no phases, for data loading.

*Reference.* The kernel's pressure stall information (Weiner, 2018); Minder (NSDI 2025) for peers of
one job that should look alike, and for asking that a difference lasts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np

from alerts.finding import Finding
from alerts.signals.peers import groups_of_hosts, usual_of
from alerts.signals.ports import amount, percent
from alerts.signals.storage import DATA_PHASES, PHASE_PREFIX, answers_alike
from alerts.window.columns import Flags, Floats, Ints
from alerts.window.model import Hosts, Window
from alerts.window.statistics import runs
from collector.contract.figures import duration
from collector.contract.verdict import Cause, Evidence, Reason, RuledOut

NAME = "host_stall"

SPREADS = 6.0
"""How many standard deviations of its peers it must be higher: of a thousand hosts none is by
chance, in any of a dozen readings."""
GAP_CELLS = 2
"""Cells in between that do not end it: a lost batch."""
CELLS_MIN = 2
"""Readings that must show it. One is enough if it is CLEAR; of data never: one slow batch is no
fault, and between two readings it may fall into both."""
CLEAR = 3.0
"""Times what a sign needs at least."""
FEW_STRENGTH_SHARE = 0.8
"""Of a sign's strength, when no more readings show it than must."""
STRENGTH_MAX = 0.95
CONTEXT_BELOW = 0.35

CPU_PREFIX = "cpu_seconds_total:"
WAIT_SHARE_MIN = 0.03
"""Of a rank's time, more than its peers': about what a job's steps show."""
DATA_STRENGTH = 0.8


class Sign(msgspec.Struct, frozen=True):
    """A reading that shows a stalled host: from how much above its peers on, how clearly."""

    reading: str
    least: float
    strength: float
    unit: str
    words: str
    """With {0} for the value and {1} for what is usual."""


SHARE = "ratio"
SIGNS = (
    # From about a tenth on, launching cannot keep ahead of the GPU; half of that is worth a word.
    Sign("steal_share", 0.05, 0.85, "ratio",
         "has {0} of its CPU time taken away, its peers {1}"),
    # Some task waits for a CPU on every busy host; a fifth of the time more is a queue.
    Sign("pressure_cpu_waiting_seconds_total", 0.2, 0.6, SHARE,
         "lets tasks wait for a CPU {0} of the time, its peers {1}"),
    # All tasks at once stand still: every percent is lost.
    Sign("pressure_io_stalled_seconds_total", 0.05, 0.8, SHARE,
         "stands still for its disks {0} of the time, its peers {1}"),
    Sign("pressure_memory_stalled_seconds_total", 0.03, 0.8, SHARE,
         "stands still for memory {0} of the time, its peers {1}"),
    Sign("pressure_irq_stalled_seconds_total", 0.1, 0.6, SHARE,
         "stands still for interrupts {0} of the time, its peers {1}"),
    # Some task waits: writers of logs and checkpoints do so without harm.
    Sign("pressure_io_waiting_seconds_total", 0.3, 0.4, SHARE,
         "lets tasks wait for its disks {0} of the time, its peers {1}"),
    Sign("pressure_memory_waiting_seconds_total", 0.2, 0.5, SHARE,
         "lets tasks wait for memory {0} of the time, its peers {1}"),
    # Summed over groups, each in seconds of one CPU.
    Sign("cgroup_cpu_throttled_seconds_total", 0.2, 0.6, SHARE,
         "holds groups back by their CPU quota for {0} of a CPU's time, its peers {1}"),
    # A page from disk takes some 0.1 ms: a thousand are a tenth of a second of a process's time.
    Sign("major_faults_total", 1000.0, 0.5, "faults per second",
         "reads {0} pages a second back from disk, its peers {1}"),
    Sign("swap_in_pages_total", 500.0, 0.6, "pages per second",
         "swaps {0} pages a second in, its peers {1}"),
    Sign("swap_out_pages_total", 2000.0, 0.4, "pages per second",
         "swaps {0} pages a second out, its peers {1}"),
    Sign("allocation_stalls_total", 20.0, 0.5, "stalls per second",
         "stops {0} allocations a second until memory is freed, its peers {1}"),
    Sign("oom_kills_total", 0.01, 0.7, "kills per second",
         "kills processes for want of memory, {0} a second, its peers {1}"),
    # Threads in disk sleep: a rank has a handful of loaders.
    Sign("tasks_blocked", 16.0, 0.3, "tasks",
         "has {0} tasks blocked, its peers {1}"),
)  # fmt: skip
METRICS = {"steal_share": "cpu_seconds_total:steal"}
"""Readings that are computed here, by the one that they come from."""


class Clue(msgspec.Struct, frozen=True, kw_only=True):
    """One sign of one host."""

    row: int
    strength: float
    since_ns: int
    last_ns: int
    evidence: Evidence
    is_data: bool = False


def detect(window: Window) -> list[Finding]:
    hosts = window.hosts
    if not len(hosts):
        return []
    group = groups_of_hosts(window)
    clues: dict[int, list[Clue]] = {}
    for sign in SIGNS:
        for clue in look(window, sign, values_of(hosts, sign.reading), group):
            clues.setdefault(clue.row, []).append(clue)
    for clue in data_clues(window, group):
        clues.setdefault(clue.row, []).append(clue)
    return [to_finding(window, row, clues[row]) for row in sorted(clues)]


def values_of(hosts: Hosts, reading: str) -> Floats | None:
    """[hosts, cells] of a sign's reading; None where no host has it."""
    if reading != "steal_share":
        return hosts.values(reading) if reading in hosts.readings else None
    modes = [name for name in hosts.readings if name.startswith(CPU_PREFIX)]
    if CPU_PREFIX + "steal" not in modes:
        return None
    total = np.zeros((len(hosts), hosts.grid.cells))
    for name in sorted(modes):
        total += np.nan_to_num(hosts.values(name), posinf=0.0, neginf=0.0)
    stolen = hosts.values(CPU_PREFIX + "steal")
    share: Floats = np.where(total > 0, stolen / np.where(total > 0, total, 1.0), np.nan)
    return share


def look(
    window: Window, sign: Sign, values: Floats | None, group: Ints, *, is_data: bool = False
) -> Iterator[Clue]:
    if values is None:
        return
    values = np.where(np.isfinite(values), values, np.nan)
    wanted: Flags = np.any(values >= sign.least, axis=1)
    if not wanted.any():
        return
    usual = usual_of(values, group, wanted)
    level = np.nan_to_num(usual.level)
    beyond = values - level
    high = (beyond >= sign.least) & (beyond > SPREADS * usual.spread)
    for row in np.flatnonzero(high.any(axis=1)).tolist():
        for first, last in runs(high[row], gap=GAP_CELLS)[-1:]:
            chosen = high[row, first : last + 1]
            value = float(np.mean(values[row, first : last + 1][chosen]))
            peers = float(np.mean(level[row, first : last + 1][chosen]))
            count = int(chosen.sum())
            is_clear = value - peers >= CLEAR * sign.least and not is_data
            needed = 1 if is_clear else CELLS_MIN
            if count < needed:
                continue
            share = 1.0 if count > needed else FEW_STRENGTH_SHARE
            seen = (*means_of(values[row], level[row], first, last), count)
            yield make_clue(
                window, row, (first, last), sign, seen, sign.strength * share, is_data=is_data
            )


def means_of(values: Floats, level: Floats, first: int, last: int) -> tuple[float, float]:
    inside = slice(first, last + 1)
    known = ~np.isnan(values[inside])
    return float(np.mean(values[inside][known])), float(np.mean(level[inside][known]))


def make_clue(
    window: Window,
    row: int,
    cells: tuple[int, int],
    sign: Sign,
    seen: tuple[float, float, int],
    strength: float,
    *,
    is_data: bool,
) -> Clue:
    """A clue from these cells; ``seen`` is the value, what is usual, and how many readings."""
    hosts, grid = window.hosts, window.hosts.grid
    value, peers, count = seen
    since_ns = grid.start_ns + cells[0] * grid.step_ns
    last_ns = min(grid.start_ns + (cells[1] + 1) * grid.step_ns, window.to_ns)
    reading = METRICS.get(sign.reading, sign.reading)
    found = hosts.readings.get(reading)
    labels = {"host": hosts.host[row]}
    if found is not None and found.label:
        labels["phase" if is_data else "mode"] = found.label
    return Clue(
        row=row,
        strength=strength,
        since_ns=since_ns,
        last_ns=last_ns,
        evidence=Evidence(
            metric=hosts.metric(reading),
            text=f"{hosts.host[row]} {in_words(sign, value, peers)}.",
            value=value,
            unit=sign.unit,
            baseline=peers,
            from_ns=since_ns,
            to_ns=last_ns,
            labels=labels,
            samples=count,
        ),
        is_data=is_data,
    )


def in_words(sign: Sign, value: float, peers: float) -> str:
    write = percent if sign.unit == SHARE else amount
    return sign.words.format(write(value), write(peers))


def data_clues(window: Window, group: Ints) -> Iterator[Clue]:
    """Hosts whose ranks wait for their batches longer than their peers'."""
    hosts = window.hosts
    ranks = ranks_of_hosts(window)
    count = np.array([ranks.get(name, 0) for name in hosts.host], dtype=np.float64)
    for name in sorted(hosts.readings):
        phase = name.removeprefix(PHASE_PREFIX)
        if phase == name or phase.lower() not in DATA_PHASES:
            continue
        sign = Sign(
            name, WAIT_SHARE_MIN, DATA_STRENGTH, SHARE,
            "keeps each of its ranks waiting for data {0} of the time, its peers {1}",
        )  # fmt: skip
        # Of hosts whose ranks are not known, one is assumed: too high a share, for all of them.
        values = hosts.values(name) / np.maximum(count, 1.0)[:, None]
        yield from look(window, sign, values, group, is_data=True)


def ranks_of_hosts(window: Window) -> Mapping[str, int]:
    count: dict[str, int] = {}
    for job in window.jobs:
        for rank in job.ranks.values():
            count[rank.host] = count.get(rank.host, 0) + 1
    return count


def storage_ruled_out(window: Window, row: int, clue: Clue) -> tuple[RuledOut, ...]:
    """That the mounts which all hosts share answer this one as they answer its peers."""
    hosts = window.hosts
    peers = np.flatnonzero(groups_of_hosts(window) == groups_of_hosts(window)[row])
    found = answers_alike(hosts, row, peers, (clue.since_ns, clue.last_ns))
    if found is None:
        return ()
    storage, own, others = found
    why = f"{storage} answers {hosts.host[row]} in {duration(own)}, its peers in {duration(others)}"
    return (RuledOut(what=str(Reason.STORAGE), why=why),)


def to_finding(window: Window, row: int, clues: list[Clue]) -> Finding:
    """The clearest first. Late data on a host with troubles of its own is one of their effects."""
    ordered = sorted(clues, key=lambda one: (-one.strength, one.since_ns, one.evidence.text))
    strength = min(STRENGTH_MAX, 1.0 - float(np.prod([1.0 - one.strength for one in ordered])))
    accusing = [one for one in ordered if one.strength >= CONTEXT_BELOW] or ordered
    last_ns = max(one.last_ns for one in accusing)
    own = [one for one in accusing if not one.is_data]
    return Finding(
        detector=NAME,
        cause=Cause.STRAGGLER,
        reason=Reason.HOST_STALL if own else Reason.DATA_LOADING,
        culprit=window.hosts.culprit(row),
        strength=strength,
        since_ns=min(one.since_ns for one in accusing),
        until_ns=window.until(last_ns),
        last_ns=last_ns,
        evidence=tuple(one.evidence for one in ordered),
        ruled_out=() if own else storage_ruled_out(window, row, accusing[0]),
        is_context=strength < CONTEXT_BELOW,
    )
