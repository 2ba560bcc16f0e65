"""Inhibition: alerts that an incident explains are its symptoms and do not page.

While an incident names a root, its victims' alerts only repeat that they suffer. `covered_by` gives
what an incident covers, as scopes with labels: the service marks alerts with it, and writes it as
series (`fabric_incident_victim`) by which an Alertmanager can do the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

import msgspec

from alerts.judge.incident import Incident
from alerts.judge.incident_model import linked_words
from alerts.judge.words import cost as cost_words
from alerts.rulebook.model import INCIDENT_LABEL, INHIBITED_BY, Alert
from collector.contract.cause_facts import Family
from collector.contract.causes import runbook_of
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Reason, Verdict

RUNBOOK = "runbook_url"
ANY_INCIDENT = "/incident"
"""The end of a link to the runbook of incidents in general."""
TAKEN_FOR, BECAME = "taken_for", "became"
"""Annotations: what an incident was first taken for, and what it turned out to be."""
SCOPE_LABEL, THEME_LABEL = "scope", "theme"
"""Labels of every alert of the pack: which labels name its thing, and what kind of trouble it is.
A rule without them is never taken for a symptom."""

NETWORK_THEMES = frozenset({"loss", "errors", "links", "pause", "congestion", "bursts", "capacity"})
MACHINE_THEMES = frozenset({"gpus", "kernel"})
STORAGE_THEMES = frozenset({"storage"})
JOB_THEMES = frozenset({"stragglers", "collectives"})
SPREADING_THEMES = frozenset({"pause", "congestion", "bursts"})
"""Back-pressure carries these through a fabric, to ports that no verdict lists as victims."""

ONSET_SECONDS = 120
"""An alert that began this long before an incident is not its symptom. Starts of incidents are
known to a cell of the window; of an alert, to the range of its expression."""
COVERED_MAX = 200
"""Things that one incident covers, the accused first. An outage has more victims; their jobs, and
the fabric's scope, cover what is left."""


class Covered(msgspec.Struct, frozen=True):
    """Alerts of one scope and some themes, whose labels are these."""

    scope: str
    labels: tuple[tuple[str, str], ...]
    themes: frozenset[str]

    def has(self, labels: Mapping[str, str]) -> bool:
        # The fabric's scope covers every alert; a job's covers those of its ranks, too.
        scopes = {"fabric": None, "job": ("job", "rank")}.get(self.scope, (self.scope,))
        if scopes is not None and labels.get(SCOPE_LABEL) not in scopes:
            return False
        return labels.get(THEME_LABEL) in self.themes and all(
            labels.get(name) == value for name, value in self.labels
        )


def covered_by(incident: Incident) -> list[Covered]:
    verdict = incident.verdict
    family = verdict.cause.facts.family
    accused = (verdict.culprit, *verdict.accomplices, *(each.culprit for each in incident.symptoms))
    found: dict[Covered, None] = {}
    for job in incident.jobs:
        found[Covered("job", (("job", job),), JOB_THEMES)] = None
    if verdict.cause.facts.spreads:
        found[Covered("fabric", (), SPREADING_THEMES)] = None
    for culprit in (*accused, *verdict.victims):
        found.update(dict.fromkeys(things_of(culprit, family)))
    return list(found)[:COVERED_MAX]


def things_of(culprit: Culprit, family: Family) -> Iterable[Covered]:
    """A culprit as alerts label it: trouble of links does not explain a GPU's, nor the reverse."""
    if culprit.storage:
        yield Covered("storage", (("storage", culprit.storage),), STORAGE_THEMES)
    if family is not Family.RANK:
        if culprit.switch:
            # A switch is a host whose device is the switch itself.
            names = {"host": culprit.switch, "device": culprit.switch}
            if culprit.switch_port:
                names["port"] = culprit.switch_port
            yield Covered("port", tuple(sorted(names.items())), NETWORK_THEMES)
            yield Covered("switch", (("host", culprit.switch),), NETWORK_THEMES)
        if culprit.host and culprit.device:
            names = {"host": culprit.host, "device": culprit.device}
            if culprit.port:
                names["port"] = culprit.port
            yield Covered("port", tuple(sorted(names.items())), NETWORK_THEMES)
            # Interfaces have other names than RDMA devices; the host's is common to both.
            yield Covered("nic", (("host", culprit.host),), NETWORK_THEMES)
    if family is not Family.LINK and culprit.host:
        if culprit.gpu is not None:
            gpu = (("gpu", str(culprit.gpu)), ("host", culprit.host))
            yield Covered("gpu", gpu, MACHINE_THEMES)
        elif culprit.rank is None:
            yield Covered("gpu", (("host", culprit.host),), MACHINE_THEMES)
        yield Covered("host", (("host", culprit.host),), MACHINE_THEMES)


def explained(alerts: Sequence[Alert], incidents: Sequence[Incident]) -> list[Alert]:
    """The alerts, marked with the surest open incident that explains them; none about incidents."""
    standing = sorted(
        (each for each in incidents if each.is_open),
        key=lambda each: (-each.verdict.confidence, each.id),
    )
    covered = [(each, covered_by(each)) for each in standing]
    return [mark(alert, covered) for alert in alerts]


def mark(alert: Alert, covered: Iterable[tuple[Incident, Sequence[Covered]]]) -> Alert:
    """The alert, marked if an incident explains it; otherwise without an earlier mark."""
    labels = dict(alert.labels)
    annotations = {name: text for name, text in alert.annotations.items() if name != INHIBITED_BY}
    if not labels.get(INCIDENT_LABEL):
        for incident, things in covered:
            is_older = alert.active_ns < incident.first_since_ns - ONSET_SECONDS * NS
            if not is_older and any(thing.has(labels) for thing in things):
                annotations[INHIBITED_BY] = incident.id
                break
    if annotations == alert.annotations:
        return alert
    return msgspec.structs.replace(alert, annotations=annotations)


def told(alert: Alert, incidents: Mapping[str, Incident], external_url: str) -> Alert:
    """An alert about an incident, with the incident's verdict, action, cost and evidence."""
    incident = incidents.get(alert.incident)
    if incident is None:
        return alert
    verdict = incident.verdict
    added = {
        "verdict": verdict.summary,
        "action": verdict.action,
        "cost": cost_words(verdict.costs) if verdict.costs else "",
        "evidence_url": evidence_link(incident_link(external_url, incident.id)),
        RUNBOOK: runbook_link(alert.annotations.get(RUNBOOK, ""), verdict),
        TAKEN_FOR: linked_words(incident.taken_for) if incident.taken_for is not None else "",
        BECAME: linked_words(incident.became) if incident.became is not None else "",
    }
    annotations = {**alert.annotations, **{name: text for name, text in added.items() if text}}
    return msgspec.structs.replace(alert, annotations=annotations)


def incident_link(external_url: str, incident: str) -> str:
    """An incident in the built-in page."""
    return f"{external_url.rstrip('/')}/#/incident/{quote(incident, safe='')}"


def evidence_link(page: str) -> str:
    """The evidence in the page of an incident; `page` may have parameters.

    >>> evidence_link("https://fabric.example/#/incident/i-1?pass=p")
    'https://fabric.example/#/incident/i-1?pass=p&show=evidence'
    """
    return f"{page}{'&' if '?' in page else '?'}show=evidence"


def runbook_link(given: str, verdict: Verdict) -> str:
    """The runbook of a verdict, where its rule's own are; a link to anything else stays."""
    if not given.endswith((ANY_INCIDENT, *KNOWN_ENDS)):
        return given
    base, _, _ = given.rpartition("/")
    return f"{base}/{runbook_of(verdict.cause, verdict.reason)}"


KNOWN_ENDS = tuple({f"/{runbook_of(cause, reason)}" for cause in Cause for reason in Reason})
"""Those of an earlier round, when the incident had another cause or reason."""
