"""What fires, what of it an incident explains, and how verdicts came and went.

An alert that an open incident explains is a sign of it and does not page; what is left is what a
person has to look at by hand. `EXPLAINED` repeats in PromQL what the service itself does; it does
not know since when (an alert that is older than the incident is no sign of it).
"""

from __future__ import annotations

from dashboards.grafana.expressions import (
    CULPRITS,
    HERE_OR_NOWHERE,
    INCIDENTS,
    LOST_GPU_HOURS,
    LOST_GPUS,
    SOMEBODY_LOOKS,
)
from dashboards.grafana.limits import GPU_HOURS_STEPS, PLAIN, SURE, fine_until
from dashboards.grafana.model import Board, Colour, Column, Draw, Row, Step, Unit
from dashboards.grafana.shapes import (
    ANY_IS_BAD,
    ANY_IS_ODD,
    asked,
    lines,
    named,
    number,
    over_time,
    table,
    value,
)
from dashboards.grafana.variables import CLUSTER

SURE_STEPS = (Step(None, Colour.LOOK), Step(SURE, Colour.BAD))
NETWORK_THEMES = "loss|errors|links|pause|congestion|bursts|capacity"
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
        covered("gpu", "gpus", "host, gpu", 'scope="gpu", gpu!=""'),
        covered("gpu", "gpus", "host", 'scope="gpu", gpu=""'),
        covered("host", "gpus", "host", 'scope="host"'),
        covered("job|rank", "stragglers|collectives", "job", 'scope="job"'),
        covered(".*", SPREADING_THEMES, "", 'scope="fabric"'),
    )
)

NOW = Row(
    title="Now",
    panels=(
        number(
            "Critical",
            "Alerts that fire and page. In a sound rule pack these are incidents, and trouble of "
            "Fabricscope itself. Usual: 0. Nothing at all means that rules are not evaluated.",
            f'count(ALERTS{{{EVERYTHING}, severity="critical"}}) or {WATCHED}',
        ),
        number(
            "Warnings",
            "Alerts that fire and do not page. Usual: few, and the same ones as yesterday.",
            f'count(ALERTS{{{EVERYTHING}, severity="warning"}}) or {WATCHED}',
            ANY_IS_ODD,
        ),
        number(
            "Unexplained",
            "Alerts that fire, are not about an incident, and are not the sign of one that is "
            "open: what the judge has no word for. Usual: few. Many of them at once are a "
            "trouble that the judge does not know.",
            f'count(ALERTS{{{EVERYTHING}, incident=""}} unless ({EXPLAINED})) or {WATCHED}',
            fine_until(look=1),
        ),
        number(
            "Pending",
            "Alerts whose condition holds, but not yet for as long as their rule asks.",
            f'count(ALERTS{{alertstate="pending", {HERE_OR_NOWHERE}}}) or {WATCHED}',
            PLAIN,
        ),
        number(
            "Incidents",
            "Open incidents, sure or only suspected (the table below). Usual: 0. Nothing "
            "at all means that no service of ours evaluates.",
            f"count(max by (incident) (fabric_incident)) or {SOMEBODY_LOOKS}",
            ANY_IS_BAD,
        ),
        number(
            "GPU hours lost",
            "What jobs lost to incidents within the range shown, over all of their GPUs. The "
            "colours begin at one GPU for an hour and at a host of 8 for an hour (a policy of "
            "ours).",
            f"{LOST_GPU_HOURS} or {SOMEBODY_LOOKS}",
            GPU_HOURS_STEPS,
            decimals=1,
        ),
    ),
)

ALERT_COLUMNS = (
    *named("alertname severity owner host device port gpu rank job"),
    Column(label="Value", title="Number", width=80),
)

WHAT = Row(
    title="What fires, and why",
    panels=(
        table(
            "Verdicts: open incidents",
            "One row for each incident and job that suffers. `Sure` is the judge's "
            "confidence; from 50 % on it pages (incidents_confidence, a policy of ours, "
            "on a confidence that simulated faults calibrate).",
            asked(INCIDENTS),
            (
                *named("cause reason host device gpu rank switch switch_port job"),
                value("Sure", Unit.RATIO, SURE_STEPS),
            ),
            silence="No incident is open. The numbers above show whether a service evaluates.",
            sort_by="Sure",
            width=24,
            height=6,
        ),
        table(
            "Alerts that nothing explains",
            "What fires, is not about an incident and is not the sign of one that is open. "
            "Look at these by hand: the alert's runbook describes how.",
            asked(f'count by ({WHOSE}) (ALERTS{{{EVERYTHING}, incident=""}} unless ({EXPLAINED}))'),
            ALERT_COLUMNS,
            silence="Nothing is left unexplained.",
            sort_by="Number",
            width=24,
        ),
        table(
            "Alerts that an incident explains",
            "What fires on things that an open incident covers (fabric_incident_victim): its "
            "signs and its victims. The notifier holds these back; they need no attention.",
            asked(f"count by ({WHOSE}) ({EXPLAINED})"),
            ALERT_COLUMNS,
            silence="No alert is the sign of an open incident.",
            sort_by="Number",
            width=24,
        ),
    ),
)

OVER_TIME = Row(
    title="Over time",
    panels=(
        over_time(
            Draw.STATES,
            "Verdicts",
            "Each incident from its first verdict until it was over, with how sure the "
            "judge was: red from 50 % on, where it pages (incidents_confidence). A verdict "
            "that changes its mind shows as two lines, one after the other.",
            {"{{cause}}: {{culprit}}": CULPRITS},
            Unit.RATIO,
            SURE_STEPS,
            decimals=0,
            most=1.0,
            width=24,
            silence="No incident in this time.",
        ),
        over_time(
            Draw.STATES,
            "Alerts",
            "Each alert of the pack that fired or was about to, for all hosts and jobs. Alerts "
            "are kept for minutes after the last sign, so that one trouble is one bar.",
            {
                "{{alertname}}": "max by (alertname) ("
                f'2 * ALERTS{{{EVERYTHING}}} or ALERTS{{alertstate="pending", '
                f"{HERE_OR_NOWHERE}}})"
            },
            values={"1": "pending", "2": "firing"},
            steps=(Step(None, Colour.GREY), Step(1, Colour.LOOK), Step(2, Colour.BAD)),
            width=24,
            height=12,
            silence="No alert in this time.",
        ),
        over_time(
            Draw.STATES,
            "Findings",
            "How clear the strongest finding of each detector is, from 0 to 1. A finding is "
            "one detector's evidence and no verdict: the judge weighs them all. One that stands "
            "for long without an incident is worth a look. Yellow from 30 % on, where the judge "
            "begins to weigh it (collectives_hang_strength), orange from 70 % on (our policy).",
            {"{{detector}}: {{cause}}": "max by (detector, cause) (fabric_finding)"},
            Unit.RATIO,
            (Step(None, Colour.GREY), Step(0.3, Colour.LOOK), Step(0.7, Colour.WARN)),
            decimals=0,
            most=1.0,
            width=24,
            height=9,
            silence="No detector found anything in this time.",
        ),
    ),
)

HOW_MANY = Row(
    title="How many",
    panels=(
        lines(
            "Alerts by severity",
            "Alerts that fire, without the watchdog and the marks of victims.",
            {"{{severity}}": f"count by (severity) ({FIRING})"},
            is_stacked=True,
            silence="No alert in this time.",
        ),
        lines(
            "Alerts by theme",
            "The same by what kind of trouble it is. One fault shows in several themes; "
            "what all of them have in common is the incident.",
            {"{{theme}}": f"count by (theme) ({FIRING})"},
            is_stacked=True,
            silence="No alert in this time.",
        ),
        lines(
            "Incidents by cause",
            "Incidents that are open, by the cause that the judge names.",
            {"{{cause}}": "count by (cause) (max by (incident, cause) (fabric_incident))"},
            is_stacked=True,
            silence="No incident in this time.",
        ),
        lines(
            "GPUs lost to incidents",
            "GPU seconds lost in a second, by cause: how many GPUs' work is lost at each moment.",
            {"{{cause}}": LOST_GPUS},
            is_stacked=True,
            silence="No job lost time to an incident.",
        ),
        lines(
            "How sure the verdicts are",
            "Confidence of each open incident: of a hundred at 90 %, ninety are right. It "
            "rises with the evidence; above 50 % it pages (incidents_confidence), and once "
            "it did it goes on to (incidents_memory, 10 minutes).",
            {"{{cause}}: {{culprit}}": CULPRITS},
            Unit.RATIO,
            (Step(None, Colour.LOOK), Step(SURE, Colour.BAD)),
            most=1.0,
            silence="No incident in this time.",
        ),
        lines(
            "Notices",
            "What the built-in notifier did, in notices a second: sent, held back by a newer "
            "one, tried again, refused or dropped. Nothing where only an Alertmanager is notified.",
            {
                "{{outcome}}": "sum by (outcome)"
                " (rate(fabric_service_notices_total[$__rate_interval]))"
            },
            Unit.EVENTS_PER_SECOND,
            silence="The built-in notifier has sent nothing.",
        ),
    ),
)

BOARD = Board(
    title="Alerts and verdicts",
    question="What fires, what of it is explained, and which verdicts were there over time?",
    tags=("overview",),
    variables=(CLUSTER,),
    rows=(NOW, WHAT, OVER_TIME, HOW_MANY),
    has_incidents=False,
)
