"""What fires, what of it an incident explains, and how verdicts came and went.

An alert that an open incident explains is a sign of it and does not page; what is left is what a
person has to look at by hand. `EXPLAINED` repeats in PromQL what the service itself does; it does
not know since when (an alert that is older than the incident is no sign of it).
"""

from __future__ import annotations

from dashboards.grafana import limits
from dashboards.grafana.expressions import (
    CULPRITS,
    HERE_OR_NOWHERE,
    INCIDENTS,
    LOST_GPU_HOURS,
    LOST_GPUS,
    SOMEBODY_LOOKS,
)
from dashboards.grafana.limits import colours, fine_until
from dashboards.grafana.model import Colour, Column, Unit
from dashboards.grafana.shapes import board, lines, named, number, states, table
from dashboards.grafana.variables import CLUSTER

SURE_SHARE = colours({None: Colour.LOOK, limits.SURE: Colour.BAD}, Unit.RATIO)
NETWORK_THEMES = "loss|errors|links|pause|congestion|bursts|capacity"
MACHINE_THEMES = "gpus|kernel"
SPREADING_THEMES = "pause|congestion|bursts"
"""What back-pressure carries through a fabric."""
WATCHED = '0 * count(ALERTS{alertname="FabricWatchdog"})'
"""0 while rules are evaluated (this alert always fires), and nothing otherwise."""
EVERYTHING = f'alertstate="firing", severity!="none", {HERE_OR_NOWHERE}'
"""All that fires but the watchdog and the marks of victims."""
FIRING = f"ALERTS{{{EVERYTHING}}}"
WHOSE = "alertname, severity, owner, cluster, host, device, port, gpu, rank, job, switch"


def covered(scopes: str, themes: str, labels: str, victims: str) -> str:
    """Alerts of some scopes and themes whose labels are those of an incident's victims."""
    alerts = f'ALERTS{{{EVERYTHING}, scope=~"{scopes}", theme=~"{themes}", incident=""}}'
    return f"{alerts} and on ({labels}) fabric_incident_victim{{{victims}}}"


EXPLAINED = " or ".join(
    (
        covered("port", NETWORK_THEMES, "host, device, port", 'scope="port", port!=""'),
        covered("port", NETWORK_THEMES, "host, device", 'scope="port", port=""'),
        covered("nic", NETWORK_THEMES, "host", 'scope="nic"'),
        covered("switch", NETWORK_THEMES, "host", 'scope="switch"'),
        covered("gpu", MACHINE_THEMES, "host, gpu", 'scope="gpu", gpu!=""'),
        covered("gpu", MACHINE_THEMES, "host", 'scope="gpu", gpu=""'),
        covered("host", MACHINE_THEMES, "host", 'scope="host"'),
        covered("job|rank", "stragglers|collectives", "job", 'scope="job"'),
        covered(".*", SPREADING_THEMES, "", 'scope="fabric"'),
    )
)

NO_INCIDENT = "No incident in this time."
NO_ALERT = "No alert in this time."

NOW = {
    "Critical": number(
        "Alerts that fire and page. In a sound rule pack these are incidents, and trouble of "
        "Fabricscope itself. Usual: 0. Nothing at all means that rules are not evaluated.",
        f'count(ALERTS{{{EVERYTHING}, severity="critical"}}) or {WATCHED}',
    ),
    "Warnings": number.of(limits.ANY_IS_ODD)(
        "Alerts that fire and do not page. Usual: few, and the same ones as yesterday.",
        f'count(ALERTS{{{EVERYTHING}, severity="warning"}}) or {WATCHED}',
    ),
    "Unexplained": number.of(fine_until(look=1))(
        "Alerts that fire, are not about an incident, and are not the sign of one that is open: "
        "what the judge has no word for. Usual: few. Many of them at once are a trouble that the "
        "judge does not know.",
        f'count(ALERTS{{{EVERYTHING}, incident=""}} unless ({EXPLAINED})) or {WATCHED}',
    ),
    "Pending": number.of(Unit.NONE)(
        "Alerts whose condition holds, but not yet for as long as their rule asks.",
        f'count(ALERTS{{alertstate="pending", {HERE_OR_NOWHERE}}}) or {WATCHED}',
    ),
    "Incidents": number.of(limits.ANY_IS_BAD)(
        "Open incidents, sure or only suspected (the table below). Usual: 0. Nothing at all means "
        "that no service of ours evaluates.",
        f"count(max by (incident) (fabric_incident)) or {SOMEBODY_LOOKS}",
    ),
    "GPU hours lost": number.of(limits.GPU_HOURS, decimals=1)(
        "What jobs lost to incidents within the range shown, over all of their GPUs. The colours "
        "begin at one GPU for an hour and at a host of 8 for an hour (a policy of ours).",
        f"{LOST_GPU_HOURS} or {SOMEBODY_LOOKS}",
    ),
}

ALERT_COLUMNS = (
    *named("alertname severity owner host device port gpu rank job"),
    Column(label="Value", title="Number", width=80),
)

WHAT = {
    "Verdicts: open incidents": table.of(width=24, height=6)(
        "One row for each incident and job that suffers. `Sure` is the judge's confidence; from "
        "50 % on it pages (incidents_confidence, a policy of ours, on a confidence that simulated "
        "faults calibrate).",
        "cause reason host device gpu rank switch switch_port job",
        {("Sure", SURE_SHARE): INCIDENTS},
        silence="No incident is open. The numbers above show whether a service evaluates.",
    ),
    "Alerts that nothing explains": table.of(sort_by="Number", width=24)(
        "What fires, is not about an incident and is not the sign of one that is open. Look at "
        "these by hand: the alert's runbook describes how.",
        ALERT_COLUMNS,
        {},
        f'count by ({WHOSE}) (ALERTS{{{EVERYTHING}, incident=""}} unless ({EXPLAINED}))',
        silence="Nothing is left unexplained.",
    ),
    "Alerts that an incident explains": table.of(sort_by="Number", width=24)(
        "What fires on things that an open incident covers (fabric_incident_victim): its signs and "
        "its victims. The notifier holds these back; they need no attention.",
        ALERT_COLUMNS,
        {},
        f"count by ({WHOSE}) ({EXPLAINED})",
        silence="No alert is the sign of an open incident.",
    ),
}

OVER_TIME = {
    "Verdicts": states.of(SURE_SHARE, width=24, decimals=0, most=1.0, silence=NO_INCIDENT)(
        "Each incident from its first verdict until it was over, with how sure the judge was: red "
        "from 50 % on, where it pages (incidents_confidence). A verdict that changes its mind "
        "shows as two lines, one after the other.",
        {"{{cause}}: {{culprit}}": CULPRITS},
    ),
    "Alerts": states.of(
        colours({None: Colour.GREY, 1: Colour.LOOK, 2: Colour.BAD}),
        width=24,
        values={"1": "pending", "2": "firing"},
        height=12,
        silence=NO_ALERT,
    )(
        "Each alert of the pack that fired or was about to, for all hosts and jobs. Alerts are "
        "kept for minutes after the last sign, so that one trouble is one bar.",
        {
            "{{alertname}}": "max by (alertname) ("
            f'2 * ALERTS{{{EVERYTHING}}} or ALERTS{{alertstate="pending", '
            f"{HERE_OR_NOWHERE}}})"
        },
    ),
    "Findings": states.of(
        colours({None: Colour.GREY, 0.3: Colour.LOOK, 0.7: Colour.WARN}, Unit.RATIO),
        width=24,
        decimals=0,
        most=1.0,
        height=9,
    )(
        "How clear the strongest finding of each detector is, from 0 to 1. A finding is one "
        "detector's evidence and no verdict: the judge weighs them all. One that stands for long "
        "without an incident is worth a look. Yellow from 30 % on, where the judge begins to weigh "
        "it (collectives_hang_strength), orange from 70 % on (our policy).",
        {"{{detector}}: {{cause}}": "max by (detector, cause) (fabric_finding)"},
        silence="No detector found anything in this time.",
    ),
}

HOW_MANY = {
    "Alerts by severity": lines.of(is_stacked=True, silence=NO_ALERT)(
        "Alerts that fire, without the watchdog and the marks of victims.",
        {"{{severity}}": f"count by (severity) ({FIRING})"},
    ),
    "Alerts by theme": lines.of(is_stacked=True, silence=NO_ALERT)(
        "The same by what kind of trouble it is. One fault shows in several themes; what all of "
        "them have in common is the incident.",
        {"{{theme}}": f"count by (theme) ({FIRING})"},
    ),
    "Incidents by cause": lines.of(is_stacked=True, silence=NO_INCIDENT)(
        "Incidents that are open, by the cause that the judge names.",
        {"{{cause}}": "count by (cause) (max by (incident, cause) (fabric_incident))"},
    ),
    "GPUs lost to incidents": lines.of(is_stacked=True)(
        "GPU seconds lost in a second, by cause: how many GPUs' work is lost at each moment.",
        {"{{cause}}": LOST_GPUS},
        silence="No job lost time to an incident.",
    ),
    "How sure the verdicts are": lines.of(SURE_SHARE, most=1.0, silence=NO_INCIDENT)(
        "Confidence of each open incident: of a hundred at 90 %, ninety are right. It rises with "
        "the evidence; above 50 % it pages (incidents_confidence), and once it did it goes on to "
        "(incidents_memory, 10 minutes).",
        {"{{cause}}: {{culprit}}": CULPRITS},
    ),
    "Notices": lines.of(Unit.EVENTS_PER_SECOND)(
        "What the built-in notifier did, in notices a second: sent, held back by a newer one, "
        "tried again, refused or dropped. Nothing where only an Alertmanager is notified.",
        {"{{outcome}}": "sum by (outcome) (rate(fabric_service_notices_total[$__rate_interval]))"},
        silence="The built-in notifier has sent nothing.",
    ),
}

BOARD = board(
    title="Alerts and verdicts",
    question="What fires, what of it is explained, and which verdicts were there over time?",
    tags=("overview",),
    variables=(CLUSTER,),
    rows={"Now": NOW, "What fires, and why": WHAT, "Over time": OVER_TIME, "How many": HOW_MANY},
    has_incidents=False,
)
