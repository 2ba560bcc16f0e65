"""What fires, what of it an incident explains, and how verdicts came and went.

An alert that an open incident explains is a sign of it and pages nobody; what is left is what a
person has to look at by hand. `EXPLAINED` says in PromQL what the service itself does; it does
not know since when (an alert that is older than the incident is no sign of it).
"""

from __future__ import annotations

from dashboards.grafana.expressions import (
    CULPRITS,
    HERE_OR_NOWHERE,
    INCIDENTS,
    LOST_GPU_HOURS,
    LOST_GPUS,
)
from dashboards.grafana.model import (
    Board,
    Colour,
    Column,
    Draw,
    Panel,
    Query,
    Row,
    Step,
    Unit,
)
from dashboards.grafana.shapes import (
    ANY_IS_BAD,
    ANY_IS_ODD,
    TO_HOST,
    TO_JOB,
    TO_PORT,
    TO_SWITCH,
    TO_SWITCH_PORT,
    asked,
    number,
)
from dashboards.grafana.variables import CLUSTER

SURE = 0.5
"""Knob incidents_confidence: from here on an incident pages."""
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
            "Alerts that fire and do not wake anybody. Usual: few, and the same ones as yesterday.",
            f'count(ALERTS{{{EVERYTHING}, severity="warning"}}) or {WATCHED}',
            ANY_IS_ODD,
        ),
        number(
            "Unexplained",
            "Alerts that fire, are not about an incident, and are not the sign of one that is "
            "open: what the judge has no word for. Usual: few. Many of them at once are a "
            "trouble that the judge does not know.",
            f'count(ALERTS{{{EVERYTHING}, incident=""}} unless ({EXPLAINED})) or {WATCHED}',
            (Step(None, Colour.FINE), Step(1, Colour.LOOK)),
        ),
        number(
            "Pending",
            "Alerts whose condition holds, but not yet for as long as their rule asks.",
            f'count(ALERTS{{alertstate="pending", {HERE_OR_NOWHERE}}}) or {WATCHED}',
            (Step(None, Colour.PLAIN),),
        ),
        number(
            "Incidents",
            "Open incidents, sure or only suspected: the table below says which. Usual: 0. Nothing "
            "at all means that no service of ours evaluates.",
            "count(max by (incident) (fabric_incident))"
            " or 0 * max(fabric_service_evaluation_leads == 1)",
            ANY_IS_BAD,
        ),
        number(
            "GPU hours lost",
            "What jobs lost to incidents within the range shown, over all of their GPUs. The "
            "colours begin at one GPU for an hour and at a host of 8 for an hour (a policy of "
            "ours).",
            f"{LOST_GPU_HOURS} or 0 * max(fabric_service_evaluation_leads == 1)",
            (Step(None, Colour.FINE), Step(1, Colour.WARN), Step(8, Colour.BAD)),
            decimals=1,
        ),
    ),
)

ALERT_COLUMNS = (
    Column(label="alertname", title="Alert"),
    Column(label="severity", title="Severity", width=90),
    Column(label="owner", title="Owner", width=90),
    Column(label="host", title="Host", jump=TO_HOST),
    Column(label="device", title="Device", jump=TO_PORT),
    Column(label="port", title="Port", jump=TO_PORT),
    Column(label="gpu", title="GPU", width=60),
    Column(label="rank", title="Rank", width=60),
    Column(label="job", title="Job", jump=TO_JOB),
    Column(label="Value", title="Number", width=80),
)

WHAT = Row(
    title="What fires, and why",
    panels=(
        Panel(
            title="Verdicts: open incidents",
            text="One row for each incident and job that suffers. `Sure` is the judge's "
            "confidence; from 50 % on it pages (incidents_confidence, a policy of ours, "
            "on a confidence that simulated faults calibrate).",
            draw=Draw.TABLE,
            queries=asked(INCIDENTS),
            columns=(
                Column(label="cause", title="Cause"),
                Column(label="reason", title="Reason"),
                Column(label="host", title="Host", jump=TO_HOST),
                Column(label="device", title="Device", jump=TO_PORT),
                Column(label="gpu", title="GPU", width=60),
                Column(label="rank", title="Rank", width=60),
                Column(label="switch", title="Switch", jump=TO_SWITCH),
                Column(label="switch_port", title="Switch port", jump=TO_SWITCH_PORT),
                Column(label="job", title="Job", jump=TO_JOB),
                Column(label="Value", title="Sure", unit=Unit.RATIO, steps=SURE_STEPS),
            ),
            sort_by="Sure",
            width=24,
            height=6,
            is_empty_fine=True,
            empty_text="No incident is open. Whether anybody looks is said by the numbers above.",
        ),
        Panel(
            title="Alerts that nothing explains",
            text="What fires, is not about an incident and is not the sign of one that is open. "
            "Look at these by hand: the alert's runbook says how.",
            draw=Draw.TABLE,
            queries=asked(
                f'count by ({WHOSE}) (ALERTS{{{EVERYTHING}, incident=""}} unless ({EXPLAINED}))'
            ),
            columns=ALERT_COLUMNS,
            sort_by="Number",
            width=24,
            is_empty_fine=True,
            empty_text="Nothing is left unexplained.",
        ),
        Panel(
            title="Alerts that an incident explains",
            text="What fires on things that an open incident covers (fabric_incident_victim): its "
            "signs and its victims. The notifier holds these back; nobody needs to look at them.",
            draw=Draw.TABLE,
            queries=asked(f"count by ({WHOSE}) ({EXPLAINED})"),
            columns=ALERT_COLUMNS,
            sort_by="Number",
            width=24,
            is_empty_fine=True,
            empty_text="No alert is the sign of an open incident.",
        ),
    ),
)

OVER_TIME = Row(
    title="Over time",
    panels=(
        Panel(
            title="Verdicts",
            text="Each incident from when it was first said until it was over, with how sure the "
            "judge was: red from 50 % on, where it pages (incidents_confidence). A verdict "
            "that changes its mind shows as two lines, one after the other.",
            draw=Draw.STATES,
            queries=(
                Query(
                    expr=CULPRITS,
                    legend="{{cause}}: {{culprit}}",
                ),
            ),
            unit=Unit.RATIO,
            decimals=0,
            steps=SURE_STEPS,
            most=1.0,
            width=24,
            is_empty_fine=True,
            empty_text="No incident in this time.",
        ),
        Panel(
            title="Alerts",
            text="Each alert of the pack that fired or was about to, whoever it was about. Alerts "
            "are kept for minutes after the last sign, so that one trouble is one bar.",
            draw=Draw.STATES,
            queries=(
                Query(
                    expr="max by (alertname) ("
                    f'2 * ALERTS{{{EVERYTHING}}} or ALERTS{{alertstate="pending", '
                    f"{HERE_OR_NOWHERE}}})",
                    legend="{{alertname}}",
                ),
            ),
            values={"1": "pending", "2": "firing"},
            steps=(Step(None, Colour.GREY), Step(1, Colour.LOOK), Step(2, Colour.BAD)),
            width=24,
            height=12,
            is_empty_fine=True,
            empty_text="No alert in this time.",
        ),
        Panel(
            title="Findings",
            text="How clear the strongest finding of each detector is, from 0 to 1. A finding is "
            "one detector's evidence and no verdict: the judge weighs them all. One that stands "
            "for long without an incident is worth a look. Yellow from 30 % on, where the judge "
            "begins to weigh it (collectives_hang_strength), orange from 70 % on (our policy).",
            draw=Draw.STATES,
            queries=(
                Query(
                    expr="max by (detector, cause) (fabric_finding)",
                    legend="{{detector}}: {{cause}}",
                ),
            ),
            unit=Unit.RATIO,
            decimals=0,
            steps=(Step(None, Colour.GREY), Step(0.3, Colour.LOOK), Step(0.7, Colour.WARN)),
            most=1.0,
            width=24,
            height=9,
            is_empty_fine=True,
            empty_text="No detector found anything in this time.",
        ),
    ),
)

HOW_MANY = Row(
    title="How many",
    panels=(
        Panel(
            title="Alerts by severity",
            text="Alerts that fire, without the watchdog and the marks of victims.",
            queries=(Query(expr=f"count by (severity) ({FIRING})", legend="{{severity}}"),),
            is_stacked=True,
            is_empty_fine=True,
            empty_text="No alert in this time.",
        ),
        Panel(
            title="Alerts by theme",
            text="The same by what kind of trouble it is. One fault shows in several themes; "
            "what all of them have in common is the incident.",
            queries=(Query(expr=f"count by (theme) ({FIRING})", legend="{{theme}}"),),
            is_stacked=True,
            is_empty_fine=True,
            empty_text="No alert in this time.",
        ),
        Panel(
            title="Incidents by cause",
            text="Incidents that are open, by the cause that the judge names.",
            queries=(
                Query(
                    expr="count by (cause) (max by (incident, cause) (fabric_incident))",
                    legend="{{cause}}",
                ),
            ),
            is_stacked=True,
            is_empty_fine=True,
            empty_text="No incident in this time.",
        ),
        Panel(
            title="GPUs lost to incidents",
            text="GPU seconds lost in a second, by cause: how many GPUs' work is lost at each "
            "moment.",
            queries=(Query(expr=LOST_GPUS, legend="{{cause}}"),),
            is_stacked=True,
            is_empty_fine=True,
            empty_text="No job lost time to an incident.",
        ),
        Panel(
            title="How sure the verdicts are",
            text="Confidence of each open incident: of a hundred at 90 %, ninety are right. It "
            "rises with the evidence; above 50 % it pages (incidents_confidence), and once "
            "it did it goes on to (incidents_memory, 10 minutes).",
            queries=(
                Query(
                    expr=CULPRITS,
                    legend="{{cause}}: {{culprit}}",
                ),
            ),
            unit=Unit.RATIO,
            steps=(Step(None, Colour.LOOK), Step(SURE, Colour.BAD)),
            most=1.0,
            is_empty_fine=True,
            empty_text="No incident in this time.",
        ),
        Panel(
            title="Notices",
            text="What the built-in notifier did, in notices a second: sent, held back by a newer "
            "one, tried again, refused or dropped. Nothing where only an Alertmanager is told.",
            queries=(
                Query(
                    expr="sum by (outcome) (rate(fabric_service_notices_total[$__rate_interval]))",
                    legend="{{outcome}}",
                ),
            ),
            unit=Unit.EVENTS_PER_SECOND,
            is_empty_fine=True,
            empty_text="The built-in notifier has sent nothing.",
        ),
    ),
)

BOARD = Board(
    title="Alerts and verdicts",
    question="What fires, what of it is explained, and what did the judge say over time?",
    tags=("overview",),
    variables=(CLUSTER,),
    rows=(NOW, WHAT, OVER_TIME, HOW_MANY),
    has_incidents=False,
)
