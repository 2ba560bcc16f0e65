"""From a question to an explanation: read the window, run every detector, return the data."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterable, Sequence

import msgspec

from alerts.compare.model import StepsCompared
from alerts.compare.stages import Stages
from alerts.finding import Finding
from alerts.window.model import JobWindow, Window
from api.base.limits import EXPLAIN_EVENTS_MAX, EXPLAIN_JOBS_MAX
from api.data.inventory.repository import Inventory
from api.data.store.store import Store
from api.fabric.cache import BuiltTopology
from api.oncall.evaluate.detect import GuardedDetectors
from api.oncall.explain import steps
from api.oncall.explain.answer import EventExplained, Explanation, JobExplained, LeftOut
from api.oncall.explain.job import Chosen, explain_job, leave_out
from api.oncall.explain.steps import StepsDiffer, StepsQuestion
from api.oncall.explain.things import Rows, explain_things, grid_of
from api.oncall.past import PastWindows
from collector.contract.identity import GPU_MAX, PortId, whole_number
from collector.contract.verdict import Culprit, Evidence, Verdict


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a client wants explained; one of job, host, ports or culprits is the subject."""

    from_ns: int
    to_ns: int
    about: dict[str, str]
    job: str | None = None
    hosts: tuple[str, ...] = ()
    ports: tuple[PortId, ...] = ()
    jobs: tuple[str, ...] = ()
    culprits: tuple[Culprit, ...] = ()
    since_ns: int | None = None
    communicator: str | None = None
    rank: int | None = None
    has_records: bool = False


class Explainer:
    """Makes explanations; thread-safe, one at a time: each holds a whole window in memory."""

    def __init__(
        self,
        store: Store,
        inventory: Inventory,
        topology: Callable[[dt.datetime | None], BuiltTopology],
        panel: GuardedDetectors,
    ) -> None:
        self._past = PastWindows(store, inventory, topology)
        self._panel = panel
        self._lock = threading.Lock()

    def explain(self, question: Question) -> Explanation:
        with self._lock:
            window = self._read(question)
            findings = self._panel.find(window)
            verdicts = self._panel.judge(window, findings)
            failed = self._panel.broken
        return explain(window, question, (findings, verdicts or [], failed))

    def compare_steps(self, question: StepsQuestion) -> StepsCompared:
        with self._lock:
            return steps.compare(self._past, self._panel, question)

    def differ(self, question: StepsQuestion) -> StepsDiffer:
        with self._lock:
            return steps.differ(self._past, question)

    def stages(self, question: StepsQuestion) -> Stages:
        with self._lock:
            return steps.stages(self._past, question)

    def _read(self, question: Question) -> Window:
        named = {*question.jobs, *([question.job] if question.job is not None else [])}
        return self._past.read(question.from_ns, question.to_ns, named)


def explain(
    window: Window,
    question: Question,
    results: tuple[Sequence[Finding], Sequence[Verdict], Sequence[str]],
) -> Explanation:
    """A window as data. ``results``: findings, verdicts, and the detectors that broke. Pure."""
    findings, verdicts, failed = results
    left: list[LeftOut] = []
    jobs = explain_jobs(window, question, findings, verdicts, left)
    things, peers, unshown = explain_things(window, rows_of(window, question, findings, verdicts))
    return Explanation(
        from_ns=window.from_ns,
        to_ns=window.to_ns,
        about=question.about,
        verdicts=verdicts,
        findings=findings,
        failed_detectors=list(failed),
        jobs=jobs,
        grid=grid_of(window.ports.grid),
        things=things,
        peers=peers,
        events=explain_events(window, question, left),
        left_out=[*left, *unshown],
    )


# Jobs --------------------------------------------------------------------------------------------


def explain_jobs(
    window: Window,
    question: Question,
    findings: Sequence[Finding],
    verdicts: Sequence[Verdict],
    left: list[LeftOut],
) -> list[JobExplained]:
    """The job of the question; else the incident's jobs, or those that run on the host."""
    shown = []
    chosen = [job for job in window.jobs if is_wanted(job, question)]
    leave_out(left, "jobs", len(chosen) - EXPLAIN_JOBS_MAX, "EXPLAIN_JOBS_MAX", "ask with job=")
    for job in chosen[:EXPLAIN_JOBS_MAX]:
        since_ns = question.since_ns
        if since_ns is None:
            since_ns = trouble_since(job.job, window, findings, verdicts)
        answer, unshown = explain_job(
            job,
            Chosen(
                communicator=question.communicator,
                rank=question.rank,
                since_ns=since_ns,
                has_records=question.has_records,
            ),
        )
        shown.append(answer)
        left += unshown
    return shown


def is_wanted(job: JobWindow, question: Question) -> bool:
    if question.job is not None:
        return job.job == question.job
    if question.jobs:
        return job.job in question.jobs
    if not question.hosts:
        return False  # a cable's readings suffice
    return any(rank.host in question.hosts for rank in job.ranks.values())


def trouble_since(
    job: str, window: Window, findings: Sequence[Finding], verdicts: Sequence[Verdict]
) -> int | None:
    """Within the window, from verdicts, or without one from the job's own findings; None: never."""
    begun = [verdict.since_ns for verdict in verdicts if job in verdict.jobs]
    if not begun:
        begun = [one.since_ns for one in findings if one.job == job and not one.is_context]
    inside = [time_ns for time_ns in begun if window.from_ns < time_ns <= window.to_ns]
    return min(inside, default=None)


# Machines ----------------------------------------------------------------------------------------


def rows_of(
    window: Window, question: Question, findings: Sequence[Finding], verdicts: Sequence[Verdict]
) -> Rows:
    """The question's subject first, then what verdicts and findings about machines name."""
    ports: dict[int, None] = {}
    gpus: dict[int, None] = {}
    hosts: dict[int, None] = {}
    for port in question.ports:
        row = window.ports.row_of.get((port.host, port.device, port.port))
        if row is not None:
            ports |= with_other_end(window, row)
    for host in question.hosts:
        for row, name in enumerate(window.ports.host):
            if name == host:
                ports[row] = None
        gpus |= {row: None for row, name in enumerate(window.gpus.host) if name == host}
        if host in window.hosts.row_of:
            hosts[window.hosts.row_of[host]] = None
    for culprit in named_by(question, findings, verdicts):
        own = rows_of_culprit(window, culprit)
        ports |= dict.fromkeys(own.ports)
        gpus |= dict.fromkeys(own.gpus)
        hosts |= dict.fromkeys(own.hosts)
    return Rows(ports=list(ports), gpus=list(gpus), hosts=list(hosts))


def named_by(
    question: Question, findings: Sequence[Finding], verdicts: Sequence[Verdict]
) -> Iterable[Culprit]:
    found: dict[Culprit, None] = dict.fromkeys(question.culprits)
    about_job = {question.job, *question.jobs} - {None}
    for verdict in verdicts:
        if not about_job or about_job & set(verdict.jobs):
            found |= dict.fromkeys((verdict.culprit, *verdict.accomplices))
            found |= dict.fromkeys(culprit_of(one) for one in verdict.evidence)
    if about_job:
        for finding in findings:
            if finding.job in about_job and not finding.is_context:
                found[finding.culprit] = None
    return found


def culprit_of(evidence: Evidence) -> Culprit:
    labels = evidence.labels
    return Culprit(
        host=labels.get("host", ""),
        device=labels.get("device", ""),
        port=labels.get("port", ""),
        gpu=whole_number(labels.get("gpu", ""), GPU_MAX),
    )


def rows_of_culprit(window: Window, culprit: Culprit) -> Rows:
    ports: dict[int, None] = {}
    table = window.ports
    if culprit.host and culprit.device:
        named = (culprit.host, culprit.device)
        by_interface = [table.row_of_netdev[named]] if named in table.row_of_netdev else []
        for row in table.rows_of_device.get(named, by_interface):
            if not culprit.port or table.port[row] == culprit.port:
                ports |= with_other_end(window, row)
    if culprit.switch and culprit.switch_port:
        row = table.row_of.get((culprit.switch, culprit.switch, culprit.switch_port), -1)
        if row >= 0:
            ports |= with_other_end(window, row)
    elif culprit.switch:
        for row in table.rows_of_device.get((culprit.switch, culprit.switch), []):
            ports |= with_other_end(window, row)
    gpu = window.gpus.row_of.get((culprit.host, culprit.gpu)) if culprit.gpu is not None else None
    host = window.hosts.row_of.get(culprit.host)
    # The others of its host too: their last readings show that this one has fallen silent.
    beside = [row for row, name in enumerate(window.gpus.host) if name == culprit.host]
    return Rows(
        ports=list(ports),
        gpus=[] if gpu is None else [gpu, *(row for row in beside if row != gpu)],
        hosts=[] if host is None else [host],
    )


def with_other_end(window: Window, row: int) -> dict[int, None]:
    far = int(window.ports.other_end[row])
    return dict.fromkeys([row] if far < 0 else [row, far])


def explain_events(window: Window, question: Question, left: list[LeftOut]) -> list[EventExplained]:
    """Events of the question's subject; all events where that is a job."""
    hosts = {*question.hosts, *(port.host for port in question.ports)}
    hosts |= {one for culprit in question.culprits for one in (culprit.host, culprit.switch) if one}
    for job in window.jobs:
        if job.job == question.job or job.job in question.jobs:
            hosts |= {rank.host for rank in job.ranks.values()}
    own = [event for event in window.events if event.labels.get("host", "") in hosts]
    leave_out(left, "events", len(own) - EXPLAIN_EVENTS_MAX, "EXPLAIN_EVENTS_MAX", "GET /v1/events")
    return [
        EventExplained(
            kind=event.kind,
            time_ns=event.time_ns,
            labels=dict(event.labels),
            message=event.message,
            attributes=dict(event.attributes),
        )
        for event in own[-EXPLAIN_EVENTS_MAX:]
    ]
