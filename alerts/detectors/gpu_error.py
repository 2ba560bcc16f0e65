"""*Phenomenon.* A GPU's memory, links or bus make errors: it is late, or gone and all wait for it.

*Signal.* Errors of its driver by their XID, weighed by the action that NVIDIA's catalogue gives
for them; uncorrected memory errors; storms of corrected ones, of PCIe replays and of NVLink errors
beyond what its peers have; memory rows that could not be replaced; what the GPU itself asks for.
A GPU that the driver can no longer read, or whose readings stop while its host's others go on, is
gone: that is a hang's reason. All of a GPU is one finding, as clear as its signs together.

*Assumptions.* XIDs come as events (`gpu_xid`, else of the kernel's log) or as the last one's
number. What the catalogue calls harmless (a row was replaced, many errors were corrected) explains
and does not accuse. Errors that an application causes (13, 31) weigh little: the same program then
fails anywhere.

*Misses.* A GPU that computes wrong numbers; one that hangs before its driver notices; errors of
NVSwitches, which no agent reads; a driver that reports no XID.

*Reference.* NVIDIA's XID catalogue (October 2025) by its actions, rather than the lists of Azure's
and Imbue's checks, which drain hosts for XIDs that it calls harmless; DCGM's health checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from alerts.finding import Finding
from alerts.signals.peers import groups_of_gpus, known_values, usual_of
from alerts.signals.ports import amount, counted
from alerts.window.columns import Floats, Ints
from alerts.window.model import Gpus, Window
from alerts.window.statistics import runs
from collector.contract.identity import GPU_MAX, XID_MAX, whole_number
from collector.contract.kernel import KERNEL_MESSAGE
from collector.contract.records import ABSENT
from collector.contract.units import NS
from collector.contract.verdict import Cause, Evidence, Reason

NAME = "gpu_error"

XID_EVENT = "gpu_xid"
XIDS_GONE = frozenset({79, 167})
"""The GPU has left the bus, or the bus has failed."""
XIDS_STUCK = frozenset({46, 62, 109, 119, 120, 158})
"""The GPU or its own processor has stopped: nothing on it ends any more."""
XIDS_RESET = frozenset({64, 95, 110, 136, 140, 143, 155, 156, 157})
"""The catalogue's action: reset or exchange the GPU."""
XIDS_LOOK = frozenset({48, 74, *range(144, 151)})
"""Memory and NVLink errors that the catalogue has a procedure for."""
XIDS_RESTART = frozenset({8, 13, 31, 32, 39, 40, 41, 45, 69, 80, 94})
"""Restart the application: most are its own fault."""
XIDS_HARMLESS = frozenset({37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 121, 137, 154})
"""The catalogue's action: ignore. They come with another error, or nothing is wrong."""
XID_STRENGTHS = (
    (XIDS_GONE, 0.95),
    (XIDS_STUCK, 0.9),
    (XIDS_RESET, 0.85),
    (XIDS_LOOK, 0.8),
    (XIDS_RESTART, 0.45),
    (XIDS_HARMLESS, 0.15),
)
"""How strongly each accuses this GPU."""
XID_STRENGTH_OTHER = 0.3
"""Of a number that is not in the lists: new ones come with new drivers."""
XIDS_MAX = 16
"""Different XIDs of one GPU in a finding; a broken one has a handful."""

PEER_FACTOR = 10.0
"""Times the peers' rate, from which on errors are this GPU's own."""
GAP_CELLS = 3
"""Cells without an error that do not end a storm."""
SILENT_SECONDS = 20
"""A GPU that was not read for so long while its host's others were: four readings of theirs."""
SILENT_OTHERS_MIN = 2
"""GPUs of the host that must still be read, so that it is not the agent that stopped."""
STRENGTH_UNREADABLE = 0.95
STRENGTH_SILENT = 0.7
"""A GPU that its driver cannot read, and one whose readings have stopped."""
CONTEXT_BELOW = 0.35
"""What is less clear explains others and is no finding by itself."""
STRENGTH_MAX = 0.97
STRENGTH_PER_DECADE = 0.1
STRENGTH_DECADES_MAX = 2.0
"""More for ten and a hundred times as many errors as a clue needs."""
LAST_READ = "last_read"
"""What evidence calls how long after the last reading of a thing others like it were still read."""
STANDING_SHARE = 0.5
"""Of a state's strength, when it stood like this through the whole window: it is nothing new."""


class Sign(msgspec.Struct, frozen=True):
    """A reading that shows errors: from which value on, how clearly, in which words."""

    reading: str
    least: float
    """A second for counters; for levels the value itself."""
    strength: float
    words: str
    """With {0} for the value and {1} for what is usual."""


RATES = (
    Sign("ecc_uncorrected_errors_total", 1e-6, 0.85,
         "has {0} uncorrected memory errors a second, its peers {1}"),
    # 5 a second cost a GPU nothing yet; maintainers call twenty a storm.
    Sign("ecc_corrected_errors_total", 5.0, 0.7,
         "corrects {0} memory errors a second, its peers {1}"),
    # Each replay costs microseconds: below some a second they are noise of a good slot.
    Sign("pcie_replays_total", 5.0, 0.5,
         "repeats {0} PCIe packets a second, its peers {1}"),
    Sign("pcie_correctable_errors_total", 10.0, 0.4,
         "has {0} PCIe errors a second, its peers {1}"),
    # A link that recovers stands still meanwhile; a rising count came days before a link was lost.
    Sign("nvlink_recovery_errors_total", 1e-6, 0.5,
         "has an NVLink that recovers {0} times a second, its peers {1}"),
    Sign("nvlink_replay_errors_total", 10.0, 0.4,
         "repeats {0} NVLink packets a second, its peers {1}"),
    Sign("nvlink_crc_flit_errors_total", 100.0, 0.4,
         "has {0} damaged NVLink packets a second, its peers {1}"),
)  # fmt: skip
LEVELS = (
    Sign("row_remap_failed", 1.0, 0.8, "could not replace a bad memory row"),
    Sign("recovery_action", 1.0, 0.8,
         "asks for recovery {0} (1 reset, 2 reboot, 3 and 4 drain)"),
    Sign("row_remap_pending", 1.0, 0.3, "waits for a reset to replace a bad memory row"),
)  # fmt: skip
RISES = (
    Sign("remapped_rows_uncorrected", 1.0, 0.6, "replaced {0} after a failure"),
    Sign("remapped_rows_corrected", 1.0, 0.2,
         "replaced {0} that had needed mending"),
)  # fmt: skip
"""States whose growth within the window shows errors."""


class Clue(msgspec.Struct, frozen=True, kw_only=True):
    """One sign of one GPU."""

    row: int
    strength: float
    since_ns: int
    last_ns: int
    evidence: Evidence
    is_gone: bool = False


def detect(window: Window) -> list[Finding]:
    if not len(window.gpus):
        return []
    group = groups_of_gpus(window)
    clues: dict[int, list[Clue]] = {}
    for clue in (
        *xid_clues(window), *rate_clues(window, group), *level_clues(window),
        *rise_clues(window), *gone_clues(window),
    ):  # fmt: skip
        clues.setdefault(clue.row, []).append(clue)
    return [to_finding(window, row, clues[row]) for row in sorted(clues)]


def to_finding(window: Window, row: int, clues: list[Clue]) -> Finding:
    """All evidence against one GPU. A reason why it is gone comes first, then the clearest."""
    ordered = sorted(
        clues, key=lambda one: (not one.is_gone, -one.strength, one.since_ns, one.evidence.text)
    )
    strength = min(STRENGTH_MAX, 1.0 - float(np.prod([1.0 - one.strength for one in ordered])))
    accusing = [one for one in ordered if one.strength >= CONTEXT_BELOW] or ordered
    last_ns = max(one.last_ns for one in accusing)
    return Finding(
        detector=NAME,
        cause=Cause.HANG if ordered[0].is_gone else Cause.STRAGGLER,
        reason=Reason.GPU_ERROR,
        culprit=window.gpus.culprit(row),
        strength=strength,
        since_ns=min(one.since_ns for one in accusing),
        until_ns=window.until(last_ns),
        last_ns=last_ns,
        evidence=tuple(one.evidence for one in ordered),
        is_context=strength < CONTEXT_BELOW,
    )


def make_clue(
    window: Window,
    row: int,
    cells: tuple[int, int],
    seen: tuple[str, float, float | None, str, str],
    strength: float,
    *,
    is_gone: bool = False,
) -> Clue:
    """A clue from readings in these cells; ``seen`` is reading, value, baseline, unit and words."""
    gpus, grid = window.gpus, window.gpus.grid
    reading, value, baseline, unit, text = seen
    since_ns = grid.start_ns + cells[0] * grid.step_ns
    last_ns = min(grid.start_ns + (cells[1] + 1) * grid.step_ns, window.to_ns)
    host, gpu = gpus.host[row], gpus.gpu[row]
    evidence = Evidence(
        metric=gpus.metric(reading),
        text=f"GPU {gpu} of {host} {text}.",
        value=value,
        unit=unit,
        baseline=baseline,
        from_ns=since_ns,
        to_ns=last_ns,
        labels={"host": host, "gpu": str(gpu)},
        samples=cells[1] - cells[0] + 1,
    )
    return Clue(
        row=row,
        strength=strength,
        since_ns=since_ns,
        last_ns=last_ns,
        evidence=evidence,
        is_gone=is_gone,
    )


# XIDs --------------------------------------------------------------------------------------------


def xid_clues(window: Window) -> Iterator[Clue]:
    """XIDs of events, and of the last one's number where no event reports it."""
    gpus = window.gpus
    reported: dict[tuple[int, int], list[tuple[int, str]]] = {}
    logged: dict[tuple[int, int], list[tuple[int, str]]] = {}
    for event in window.events:
        if event.kind not in (XID_EVENT, KERNEL_MESSAGE):
            continue
        xid = whole_number(event.attributes.get("xid", ""), XID_MAX)
        gpu = whole_number(event.labels.get("gpu", ""), GPU_MAX)
        row = None if gpu is None else gpus.row_of.get((event.labels.get("host", ""), gpu))
        if row is not None and xid is not None:
            book = reported if event.kind == XID_EVENT else logged
            book.setdefault((row, xid), []).append((event.time_ns, event.message))
    # The kernel's log has the same XIDs: it speaks where NVML does not.
    reported = logged | reported
    grid = gpus.grid
    for place, cell, number in changed_xids(gpus.values("xid_last")):
        time_ns = min(grid.start_ns + cell * grid.step_ns, window.to_ns)
        reported.setdefault((place, number), [(time_ns, "")])
    count: dict[int, int] = {}
    for (row, number), times in sorted(reported.items()):
        count[row] = count.get(row, 0) + 1
        if count[row] <= XIDS_MAX:
            yield to_xid_clue(window, row, number, sorted(times))


def changed_xids(last: Floats) -> Iterator[tuple[int, int, int]]:
    """Row, cell and number wherever the last XID became another one."""
    if not last.size:
        return
    known = np.isfinite(last)
    # The number before: carried over cells without a reading.
    place = np.maximum.accumulate(np.where(known, np.arange(last.shape[1]), 0), axis=1)
    filled = np.take_along_axis(last, place, axis=1)
    changed = np.zeros(last.shape, dtype=bool)
    changed[:, 1:] = known[:, 1:] & np.isfinite(filled[:, :-1]) & (filled[:, 1:] != filled[:, :-1])
    for row, cell in np.argwhere(changed & (last > 0)).tolist():
        yield row, cell, int(last[row, cell])


def to_xid_clue(window: Window, row: int, number: int, times: list[tuple[int, str]]) -> Clue:
    """One XID of one GPU, however often it came."""
    strength = next(
        (share for numbers, share in XID_STRENGTHS if number in numbers), XID_STRENGTH_OTHER
    )
    host, gpu = window.gpus.host[row], window.gpus.gpu[row]
    words = times[0][1] or f"GPU {gpu}: XID {number}."
    since_ns, last_ns = times[0][0], times[-1][0]
    is_gone = number in XIDS_GONE | XIDS_STUCK
    return Clue(
        row=row,
        strength=strength,
        since_ns=since_ns,
        # A stopped GPU stays so until an operator acts.
        last_ns=max(last_ns, window.to_ns) if is_gone else last_ns,
        evidence=Evidence(
            metric="fabric_gpu_xid_errors_total",
            text=f"{host}, {words}",
            value=float(len(times)),
            unit="errors",
            baseline=0.0,
            from_ns=since_ns,
            to_ns=last_ns,
            labels={"host": host, "gpu": str(gpu), "xid": str(number)},
            samples=len(times),
        ),
        is_gone=is_gone,
    )


# Readings ----------------------------------------------------------------------------------------


def read_signs(gpus: Gpus, signs: Iterable[Sign]) -> Iterator[tuple[Sign, Floats]]:
    for sign in signs:
        if sign.reading in gpus.readings:
            yield sign, known_values(gpus, sign.reading)


def rate_clues(window: Window, group: Ints) -> Iterator[Clue]:
    gpus = window.gpus
    for sign, values in read_signs(gpus, RATES):
        wanted = np.any(values >= sign.least, axis=1)
        if not wanted.any():
            continue
        usual = usual_of(values, group, wanted)
        # A GPU without peers that has errors all the time is compared with zero.
        level = np.nan_to_num(np.where(usual.is_past, 0.0, usual.level))
        beyond = (values >= sign.least) & (values > PEER_FACTOR * level)
        for row in np.flatnonzero(beyond.any(axis=1)).tolist():
            first, last = runs(beyond[row], gap=GAP_CELLS)[-1]
            during = beyond[row, first : last + 1]
            own = values[row, first : last + 1]
            value, peers = (
                float(np.mean(part[~np.isnan(own)])) for part in (own, level[row, first : last + 1])
            )
            words = sign.words.format(amount(value), amount(peers))
            seen = (sign.reading, value, peers, "errors per second", words)
            more = np.log10(float(np.mean(own[during])) / sign.least)
            more = np.clip(more, 0.0, STRENGTH_DECADES_MAX)
            # Of errors that count from the first on, more are not clearer.
            more = more * STRENGTH_PER_DECADE if sign.least >= 1 else 0.0
            yield make_clue(window, row, (first, last), seen, sign.strength + float(more))


def level_clues(window: Window) -> Iterator[Clue]:
    gpus = window.gpus
    for sign, values in read_signs(gpus, LEVELS):
        wrong = values >= sign.least
        for row in np.flatnonzero(wrong.any(axis=1)).tolist():
            first, last = runs(wrong[row], gap=GAP_CELLS)[-1]
            known = np.flatnonzero(np.isfinite(values[row]))
            share = STANDING_SHARE if first == known[0] else 1.0
            value = float(values[row, last])
            seen = (sign.reading, value, None, "", sign.words.format(amount(value)))
            yield make_clue(window, row, (first, last), seen, sign.strength * share)


def rise_clues(window: Window) -> Iterator[Clue]:
    gpus = window.gpus
    for sign, values in read_signs(gpus, RISES):
        lowest = np.fmin.reduce(values, axis=1) if values.shape[1] else np.zeros(0)
        highest = np.fmax.reduce(values, axis=1) if values.shape[1] else np.zeros(0)
        for row in np.flatnonzero(highest - lowest >= sign.least).tolist():
            known = np.flatnonzero(np.isfinite(values[row]))
            grown = known[1:][np.diff(values[row][known]) > 0]
            if len(grown):
                value = float(highest[row] - lowest[row])
                words = sign.words.format(counted(value, "memory row"))
                seen = (sign.reading, value, 0.0, "rows", words)
                cells = (int(grown[0]), int(grown[-1]))
                yield make_clue(window, row, cells, seen, sign.strength)


def gone_clues(window: Window) -> Iterator[Clue]:
    gpus = window.gpus
    up = gpus.values("up")
    is_down = up == 0
    used = {
        (rank.host, rank.gpu)
        for job in window.jobs
        if job.is_running
        for rank in job.ranks.values()
    }
    for row in np.flatnonzero(is_down.any(axis=1)).tolist():
        first, last = runs(is_down[row], gap=GAP_CELLS)[-1]
        # One that a running job needs does not become less wrong by lasting.
        is_needed = (gpus.host[row], gpus.gpu[row]) in used
        share = 1.0 if is_needed or np.any(up[row] > 0) else STANDING_SHARE
        text = "cannot be read any more by its driver"
        seen = ("up", 0.0, 1.0, "", f"{text} (`up` is 0)")
        yield make_clue(window, row, (first, last), seen, STRENGTH_UNREADABLE * share, is_gone=True)
    for row, last_ns, others_ns in silent_ones(window):
        if is_down[row].any():
            continue
        grid = gpus.grid
        cells = (max(0, min(grid.cell_of(last_ns) + 1, grid.cells - 1)), grid.cells - 1)
        seconds = (others_ns - last_ns) / NS
        text = f"was last read {seconds:.0f} s before the other GPUs of its host"
        seen = (LAST_READ, seconds, 0.0, "seconds", text)
        yield make_clue(window, row, cells, seen, STRENGTH_SILENT, is_gone=True)


def silent_ones(window: Window) -> Iterator[tuple[int, int, int]]:
    """GPUs that were read and no longer are, with when, and when its host's others were."""
    gpus = window.gpus
    _, host = np.unique(np.array(gpus.host), return_inverse=True)
    host = host.reshape(-1)
    seen = gpus.seen_ns
    latest = np.full(int(host.max(initial=-1)) + 1, ABSENT, dtype=np.int64)
    np.maximum.at(latest, host, seen)
    is_fresh = (seen != ABSENT) & (latest[host] - seen < SILENT_SECONDS * NS)
    fresh = np.bincount(host[is_fresh], minlength=len(latest))
    silent = (seen != ABSENT) & ~is_fresh & (fresh[host] >= SILENT_OTHERS_MIN)
    for row in np.flatnonzero(silent).tolist():
        yield row, int(seen[row]), int(latest[host[row]])
