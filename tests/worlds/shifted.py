"""Windows whose hosts' clocks are wrong: what was written by such clocks, looked at again."""

import msgspec
import numpy as np

from alerts.window.clocks import align
from alerts.window.columns import Records
from alerts.window.common_clock import correct
from alerts.window.model import JobWindow, Window
from alerts.window.split import split
from alerts.window.steps import infer_steps
from api.diagnose.verdicts import judge_window
from collector.contract.verdict import Verdict
from tests.worlds.collectives import set_clocks, shift_clocks


def realigned(job: JobWindow, written: Records) -> JobWindow:
    """The job as it looks if these are its records, with clocks that they align themselves."""
    fits = align(written)
    records = correct(written, fits)
    operations = split(records)
    ranks = {
        (name, rank): number
        for name, communicator in job.communicators.items()
        for rank, number in communicator.job_rank.items()
    }
    return msgspec.structs.replace(
        job,
        records=records,
        operations=operations,
        clocks=fits,
        steps=infer_steps(records, ranks, operations),
    )


def shifted(
    window: Window, host: str, *, offset_ns: float = 0, drift: float = 0, step_ns: float = 0
) -> Window:
    """The window if this host's clock had been ahead, drifted, and was set in the middle."""
    jobs = []
    for job in window.jobs:
        records = job.records
        if host in records.hosts and records.timed().any():
            code = records.hosts.index(host)
            is_odd = np.arange(len(records.hosts)) == code
            written = set_clocks(records, {code: (0.5, step_ns)}) if step_ns else records
            written = shift_clocks(written, offset_ns * is_odd, drift * is_odd)
            jobs.append(realigned(job, written))
        else:
            jobs.append(job)
    return msgspec.structs.replace(window, jobs=jobs)


def verdicts_of(window: Window) -> list[Verdict]:
    judged = judge_window(window)
    assert [one for one in judged.detectors if one.problem] == []
    return judged.verdicts
