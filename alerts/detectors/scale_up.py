"""NVLink or xGMI inside a host, over which its GPUs exchange data too slowly.

*Phenomenon.* Links between the GPUs of a host are down in part, retrain, or send much of it again.
To the job it looks like a slow network.

*Signal.* Collectives whose ranks are all on one host take far longer than before, once the last of
them has come, while those of the job's other hosts are as fast as ever; or the ladder of a ring
over several hosts begins at an edge inside one of them. Such bytes cross no NIC, so none is
suspected. Errors of NVLink that one GPU of the host counts at that time name the GPU.

*Assumptions.* Hosts of a job do the same inside. What becomes slow on many of them together is the
program's. Where no other host shows what is usual, errors of NVLink must, too.

*Misses.* What is slow from the beginning of the window and has no known past. Jobs without
collectives inside hosts whose rings are limited by NICs all the same: NVLink is an order of
magnitude faster, and half of it costs them nothing.

*Reference.* SuperBench (ATC 2024) and Alibaba's C4 (HPCA 2025) measure NVLink apart from the
network. The margins are those of `slow_link`; the ladder is `alerts.signals.ladder`'s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from alerts.finding import Finding
from alerts.signals.inside import host_of, host_of_edge
from alerts.signals.ladder import ladder_of
from alerts.signals.peers import known_values
from alerts.signals.ports import amount
from alerts.signals.step_times import cost_by_steps
from alerts.signals.transfer import MANY, TRANSFER, Stretch, shown_size, slow_stretches
from alerts.window.model import JobWindow, Window
from collector.contract.figures import duration
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Evidence, Reason, RuledOut

NAME = "scale_up"
RATIO_MIN = 1.5
"""Times longer than usual: a GPU at half its clock copies and adds up more slowly by less."""
SECONDS_MIN = 3.0
SHARE_MIN = 0.02
"""Of the time that it lasts, which these operations take longer: less costs a job nothing."""
COMMON = 1 / 3
"""Where more than this share of a job's hosts is slow alike, it is the job's own doing."""
OTHERS_MIN = 2
"""Hosts that are as fast as ever, so that one may be accused by times alone."""
STRENGTH_MAX = 0.95
ERRORS = (
    ("nvlink_recovery_errors_total", 1e-3, "has an NVLink that recovers {} times a second"),
    ("nvlink_replay_errors_total", 1.0, "sends {} NVLink packets a second again"),
    ("nvlink_crc_flit_errors_total", 1.0, "has {} damaged NVLink packets a second"),
)
"""Readings, from which rate on they speak, and what they say."""
STANDS_OUT = 10.0
"""Times the errors of any other GPU of the host: both ends of a link count some."""


class Witness(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU whose NVLinks make errors at that time."""

    row: int
    evidence: Evidence


def detect(window: Window) -> list[Finding]:
    return [finding for job in window.looked for finding in of_job(window, job)]


def of_job(window: Window, job: JobWindow) -> list[Finding]:
    if job.is_estimate:  # without exits there is no transfer
        return []
    by_host: dict[str, list[Stretch]] = {}
    # A few in a row that are slower happen on every host: they say nothing for or against it.
    for stretch in filter(is_long, slow_stretches(job)):
        host = host_of(job, stretch.communicator)
        if not host:
            host = host_of_edge(job, stretch, ladder_of(job, stretch))
        if host:
            by_host.setdefault(host, []).append(stretch)
    if not by_host:
        return []
    names = job.operations.communicators
    others = {rank.host for rank in job.ranks.values()} - {""}
    if all(host_of(job, one.communicator) for found in by_host.values() for one in found):
        others = {host_of(job, name) for name in names} - {""}
    if len(by_host) > max(1, int(COMMON * len(others))):
        return []
    found = []
    for host, stretches in sorted(by_host.items()):
        clear = [one for one in stretches if is_clear(one)]
        if clear:
            witness = witness_of(window, host, clear)
            if witness is not None or len(others - by_host.keys()) >= OTHERS_MIN:
                found.append(to_finding(window, job, host, clear, witness, len(others) - 1))
    return found


def is_long(stretch: Stretch) -> bool:
    seconds = (stretch.last_ns - stretch.since_ns) / NS
    return seconds >= SECONDS_MIN and len(stretch.slow) >= MANY


def is_clear(stretch: Stretch) -> bool:
    """Whether a stretch is beyond chance, known by all its ranks, and costs the job something."""
    lasted_ns = max(stretch.last_ns - stretch.since_ns, 1)
    return (
        stretch.is_complete
        and stretch.is_clear
        and stretch.ratio >= RATIO_MIN
        and stretch.excess_ns * len(stretch.slow) >= SHARE_MIN * lasted_ns
    )


def witness_of(window: Window, host: str, stretches: Sequence[Stretch]) -> Witness | None:
    """The one GPU of the host whose NVLinks make errors meanwhile, far more than the others'."""
    gpus, grid = window.gpus, window.gpus.grid
    rows = np.array([row for row, name in enumerate(gpus.host) if name == host], dtype=np.int64)
    since_ns = min(one.since_ns for one in stretches)
    last_ns = max(one.last_ns for one in stretches)
    first = max(0, int((since_ns - grid.start_ns) // grid.step_ns))
    cells = slice(first, int((last_ns - grid.start_ns) // grid.step_ns) + 1)
    for reading, least, words in ERRORS:
        if reading not in gpus.readings or not len(rows):
            continue
        known = np.nan_to_num(known_values(gpus, reading)[rows, cells])
        if not known.shape[1]:
            continue
        mean = known.mean(axis=1)
        place = int(np.argmax(mean))
        rest = float(np.delete(mean, place).max(initial=0.0))
        if mean[place] >= least and mean[place] >= STANDS_OUT * rest:
            row = int(rows[place])
            said = words.format(amount(float(mean[place])))
            evidence = Evidence(
                metric=gpus.metric(reading),
                text=f"GPU {gpus.gpu[row]} of {host} {said}, its neighbours {amount(rest)}.",
                value=float(mean[place]),
                unit="errors per second",
                baseline=rest,
                from_ns=since_ns,
                to_ns=last_ns,
                labels={"host": host, "gpu": str(gpus.gpu[row])},
                samples=int(known.shape[1]),
            )
            return Witness(row=row, evidence=evidence)
    return None


def to_finding(
    window: Window,
    job: JobWindow,
    host: str,
    stretches: Sequence[Stretch],
    witness: Witness | None,
    others: int,
) -> Finding:
    worst = max(stretches, key=lambda one: (one.excess_ns * len(one.slow), one.communicator))
    since_ns = min(one.since_ns for one in stretches)
    last_ns = max(one.last_ns for one in stretches)
    lost_s = sum(one.excess_ns * len(one.slow) for one in stretches) / NS
    named = Culprit(host=host) if witness is None else window.gpus.culprit(witness.row)
    seen = [] if witness is None else [witness.evidence]
    return Finding(
        detector=NAME,
        cause=Cause.STRAGGLER,
        reason=Reason.SCALE_UP,
        culprit=msgspec.structs.replace(named, job=job.job),
        strength=min(STRENGTH_MAX, 1.0 - math.exp(-worst.clarity / 2.0)),
        since_ns=since_ns,
        until_ns=window.until(last_ns) if any(one.goes_on for one in stretches) else last_ns,
        last_ns=last_ns,
        job=job.job,
        communicators=tuple(dict.fromkeys(one.communicator for one in stretches)),
        evidence=(transfer_evidence(job, host, worst, others), *seen),
        ruled_out=(
            RuledOut(
                what="network",
                why=f"these bytes go from GPU to GPU inside {host} and cross no NIC",
            ),
        ),
        cost=cost_by_steps(job, since_ns, last_ns, lost_s),
    )


def transfer_evidence(job: JobWindow, host: str, worst: Stretch, others: int) -> Evidence:
    size = shown_size(worst.size_bytes)
    kind = f"{worst.operation} of {size}" if size else worst.operation
    is_inside = bool(host_of(job, worst.communicator))
    where = f"among the GPUs of {host}" if is_inside else f"over its slow edge, inside {host},"
    beside = f"; the same on {others} other hosts is as fast as ever" if is_inside else ""
    return Evidence(
        metric=TRANSFER,
        text=(
            f"{kind} {where} took {duration(worst.slow_ns / NS)} after the last rank had come, "
            f"usually {duration(worst.usual_ns / NS)}{beside}."
        ),
        value=worst.slow_ns / NS,
        baseline=worst.usual_ns / NS,
        unit="seconds",
        from_ns=worst.since_ns,
        to_ns=worst.last_ns,
        labels={
            "job": job.job,
            "host": host,
            "communicator": worst.communicator,
            "operation": worst.operation,
            "size_bytes": str(worst.size_bytes),
        },
        samples=len(worst.slow),
    )
