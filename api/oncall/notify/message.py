"""The texts of a notice: plain text, Slack's blocks, PagerDuty's event, Alertmanager's webhook.

What the on-call person needs, in this order: what it is, where it is, since when, what
it costs, what to do, and where the evidence is. Labels and annotations come from outside: they are
cut to a length, lose their control characters, and are escaped where a format has commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any
from urllib.parse import quote

import msgspec
import orjson

from alerts.rulebook.inhibit import BECAME, TAKEN_FOR, evidence_link, incident_link
from alerts.rulebook.model import ALERT_NAME, INCIDENT_LABEL, WORK
from alerts.rulebook.notices import CULPRIT_LABELS, SEVERITY_LABEL, Line, Notice, Status, Why
from api.base import times
from api.base.passes import Passes
from api.oncall.rules.explain import ACKNOWLEDGED
from collector.contract.identity import Labels
from dashboards.grafana.links import ANNOTATION as DASHBOARD

VERDICT, SUMMARY, DESCRIPTION = "verdict", "summary", "description"
COST, ACTION, EVIDENCE, RUNBOOK = "cost", "action", "evidence_url", "runbook_url"
"""Annotations that a message shows, each where it belongs."""

ACKNOWLEDGE = "Acknowledge"
"""The link, or the button, that does."""
STANDS = {Why.REPEAT: "STILL FIRING", Why.WORK: "LOOKED AFTER"}
"""What a title says of alerts that fire, where it is not that they fire."""
LINE_CHARS_MAX = 500
"""Of one fact: some sentences."""
TITLE_CHARS_MAX = 150
"""Slack's bound for a header; a subject is shorter."""
TEXT_LINES_MAX = 20
"""Alerts that the text names one by one; a notice may have more."""
SLACK_SECTION_CHARS_MAX = 3_000
"""Slack's bound for the text of a section."""
SLACK_ACKNOWLEDGE, SLACK_OPEN = "fabricscope_acknowledge", "fabricscope_open"
"""Names of buttons; they come back with a click. The second is a link, which needs no answer."""
PAGERDUTY_SUMMARY_CHARS_MAX = 1_024
"""PagerDuty's bound."""
PAGERDUTY_SEVERITIES = {"critical": "critical", "error": "error", "warning": "warning"}
"""Severities that both know; the others are `info`."""
WEBHOOK_VERSION = "4"
"""Of Alertmanager's webhook."""
NEVER = "0001-01-01T00:00:00Z"
"""What Alertmanager writes for the end of something that goes on."""
rfc3339 = partial(times.rfc3339, decimals=3)
"""As in Prometheus' and Alertmanager's JSON."""


def generator_url(external_url: str, expression: str) -> str:
    """A link to the alert's expression; `external_url` itself if that is not known."""
    if not expression:
        return external_url
    return f"{external_url.rstrip('/')}/api/v1/query?query={quote(expression, safe='')}"


def clean(text: str, at_most: int = LINE_CHARS_MAX) -> str:
    r"""Text on one line, without control characters, cut.

    >>> clean("a\n\x1b[31mb"), clean("abcdef", 4)
    ('a [31mb', 'abc…')
    """
    plain = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return plain if len(plain) <= at_most else f"{plain[: at_most - 1]}…"


def dedup_key(notice: Notice) -> str:
    return dedup_key_of(notice.group)


def dedup_key_of(group: str) -> str:
    """PagerDuty's name for a group of alerts; it comes back as its incident's ``incident_key``."""
    return f"fabricscope-{blake2b(group.encode(), digest_size=16).hexdigest()}"


def who(labels: Mapping[str, str]) -> str:
    """The thing that an alert is about.

    >>> who({"port": "1", "host": "node7", "device": "mlx5_0", "severity": "critical"})
    'host node7, device mlx5_0, port 1'
    """
    names = (*CULPRIT_LABELS, "job", "cluster")
    return ", ".join(
        f"{name.replace('_', ' ')} {clean(labels[name], 80)}" for name in names if labels.get(name)
    )


class Wording(msgspec.Struct, frozen=True, kw_only=True):
    """The texts of a notice, before it gets a receiver's form. Empty: nothing to show."""

    title: str
    headline: str
    facts: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...]
    others: tuple[str, ...]
    """The other alerts of the group, a line each."""


def say(notice: Notice, external_url: str, page: str = "") -> Wording:
    """The first alert gives the headline; the others are listed. ``page``: see `page_url`."""
    first = notice.lines[0] if notice.lines else None
    labels = dict(first.labels) if first else dict(notice.group_labels)
    notes = first.annotations if first else {}
    name = labels.get(ALERT_NAME, "") or labels.get(INCIDENT_LABEL, "") or "alerts"
    headline = notes.get(VERDICT) or notes.get(SUMMARY) or name
    facts = {
        "Who": who(labels),
        "Since": rfc3339(first.starts_ns) if first else "",
        "Until": rfc3339(first.ends_ns) if first and first.ends_ns is not None else "",
        "Cost": notes.get(COST, ""),
        "What to do": notes.get(ACTION, ""),
        "Looked after": notes.get(WORK, ""),
        "First taken for": notes.get(TAKEN_FOR, ""),
        "Turned out to be": notes.get(BECAME, ""),
        "More": notes.get(DESCRIPTION, ""),
        "Alert": clean(name, 100) + severity_words(labels),
        "Incident": labels.get(INCIDENT_LABEL, ""),
    }
    links = {
        ACKNOWLEDGE: page,
        "Evidence": evidence_url(notes, labels, first, external_url, page),
        "Dashboard": notes.get(DASHBOARD, ""),
        "Runbook": notes.get(RUNBOOK, ""),
        "Silence": silence_url(external_url),
    }
    return Wording(
        title=clean(f"[{status_words(notice)}] {headline}", TITLE_CHARS_MAX),
        headline=clean(headline),
        facts=tuple((key, clean(text)) for key, text in facts.items() if text),
        links=tuple((key, link) for key, link in links.items() if is_link(link)),
        others=other_lines(notice),
    )


def status_words(notice: Notice) -> str:
    if notice.status is Status.RESOLVED:
        return "RESOLVED"
    number = sum(line.ends_ns is None for line in notice.lines) + notice.left_out
    count = f":{number}" if number > 1 else ""
    return f"{STANDS.get(notice.why, 'FIRING')}{count}"


def severity_words(labels: Mapping[str, str]) -> str:
    severity = labels.get(SEVERITY_LABEL, "")
    return f" ({clean(severity, 40)})" if severity else ""


def evidence_url(
    notes: Mapping[str, str],
    labels: Mapping[str, str],
    first: Line | None,
    external_url: str,
    page: str,
) -> str:
    """A link to the evidence: in the incident's page, or the alert's expression."""
    incident = labels.get(INCIDENT_LABEL, "")
    own = evidence_link(incident_link(external_url, incident)) if incident else ""
    if (link := notes.get(EVIDENCE, "")) and link != own:
        return link
    if incident:
        # With the pass, where the notice has one: who may acknowledge it may see why.
        return evidence_link(page) if page else own
    return generator_url(external_url, first.expression) if first else ""


def page_url(notice: Notice, external_url: str, passes: Passes | None) -> str:
    """A link to the incident in the page, with a pass that acknowledges it; empty: none.

    What stands behind the `#` is not sent: no log of a proxy has the pass.
    """
    first = dict(notice.lines[0].labels) if notice.lines else {}
    incident = first.get(INCIDENT_LABEL, "")
    if not incident or not external_url or notice.status is Status.RESOLVED:
        return ""
    link = incident_link(external_url, incident)
    made = "" if passes is None else passes.make(incident)
    return f"{link}?pass={made}" if made else link


def silence_url(external_url: str) -> str:
    return f"{external_url.rstrip('/')}/v1/silences" if external_url else ""


def is_link(text: str) -> bool:
    """Whether this is an absolute link: without external_url, our own is not."""
    return (
        text.startswith(("http://", "https://"))
        and text.isprintable()
        and not set(text) & set(" <>|")
    )


def other_lines(notice: Notice) -> tuple[str, ...]:
    """The alerts after the first, at most TEXT_LINES_MAX."""
    lines = []
    for line in notice.lines[1 : TEXT_LINES_MAX + 1]:
        labels = dict(line.labels)
        state = "firing" if line.ends_ns is None else "resolved"
        text = line.annotations.get(SUMMARY) or who(labels)
        if became := line.annotations.get(BECAME):
            text = f"{who(labels)} turned out to be {became}"
        lines.append(clean(f"{state}: {labels.get(ALERT_NAME, '')} {text}", 200))
    rest = len(notice.lines) - 1 - len(lines) + notice.left_out
    return (*lines, f"and {rest} more") if rest > 0 else tuple(lines)


def silenced(notice: Notice) -> Labels:
    """What a silence of this notice matches: its present incident, or the group's labels."""
    first = dict(notice.lines[0].labels) if notice.lines else {}
    incident = first.get(INCIDENT_LABEL, "")
    return ((INCIDENT_LABEL, incident),) if incident else notice.group_labels


def silence_body(labels: Labels) -> str:
    matchers = [{"name": name, "value": value} for name, value in labels]
    asked = {"matchers": matchers, "hours": 2, "created_by": "you", "comment": "why"}
    return orjson.dumps(asked).decode()


# --- plain text ---------------------------------------------------------------------------------


def plain_text(notice: Notice, external_url: str, page: str = "") -> str:
    wording = say(notice, external_url, page)
    lines = [wording.headline, ""]
    lines += [f"{key}: {text}" for key, text in wording.facts]
    if wording.others:
        lines += ["", *wording.others]
    lines += ["", *(f"{key}: {link}" for key, link in wording.links)]
    if external_url:
        lines.append(f"  (POST there: {clean(silence_body(silenced(notice)), 1_000)})")
    lines += ["", f"Notice {notice.id}, number {notice.number} of its group."]
    return "\n".join(lines) + "\n"


# --- Slack --------------------------------------------------------------------------------------


def escaped(text: str) -> str:
    """Text without Slack commands.

    >>> escaped("<!channel> a & b")
    '&lt;!channel&gt; a &amp; b'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def slack_mark(receiver: str) -> str:
    """How the name of a person ends who clicked in Slack: such a deed is not told there again."""
    return f"(Slack, {receiver})"


def slack_message(
    notice: Notice, external_url: str, page: str = "", *, has_buttons: bool = False
) -> dict[str, Any]:
    """``has_buttons``: a Slack app takes clicks; without one they would end in an error."""
    buttons = slack_buttons(notice, page) if has_buttons else []
    wording = say(notice, external_url, page)
    shown = [one for one in wording.links if not (buttons and one[0] == ACKNOWLEDGE)]
    facts = "\n".join(f"*{key}:* {escaped(text)}" for key, text in wording.facts)
    blocks: list[dict[str, Any]] = [
        {
            "type": "header",
            "text": {"type": "plain_text", "text": escaped(wording.title)[:TITLE_CHARS_MAX]},
        },
        slack_section(escaped(wording.headline)),
        slack_section(facts),
    ]
    if wording.others:
        blocks.append(slack_section("\n".join(f"• {escaped(line)}" for line in wording.others)))
    if shown:
        links = " · ".join(f"<{escaped(link)}|{key}>" for key, link in shown)
        blocks.append(slack_section(links))
    if buttons:
        blocks.append({"type": "actions", "elements": buttons})
    note = {"type": "mrkdwn", "text": f"Notice `{notice.id}`"}
    blocks.append({"type": "context", "elements": [note]})
    return {"text": escaped(wording.title), "blocks": blocks}


def slack_buttons(notice: Notice, page: str) -> list[dict[str, Any]]:
    """*Acknowledge*, until a person has, and *Open*; none for what is no incident, or is over."""
    incident = dict(silenced(notice)).get(INCIDENT_LABEL, "")
    if not incident or notice.status is Status.RESOLVED:
        return []
    buttons = []
    if not work_of(notice).startswith(ACKNOWLEDGED):
        acknowledge = slack_button(ACKNOWLEDGE, SLACK_ACKNOWLEDGE)
        buttons.append({**acknowledge, "style": "primary", "value": incident})
    if is_link(page):
        buttons.append({**slack_button("Open", SLACK_OPEN), "url": page})
    return buttons


def slack_button(label: str, action: str) -> dict[str, Any]:
    text = {"type": "plain_text", "text": label}
    return {"type": "button", "action_id": action, "text": text}


def slack_section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:SLACK_SECTION_CHARS_MAX]}}


# --- PagerDuty ----------------------------------------------------------------------------------


def work_of(notice: Notice) -> str:
    """Who looks after a notice's incident, in words; empty: no person."""
    return notice.lines[0].annotations.get(WORK, "") if notice.lines else ""


def from_pagerduty(who: str, receiver: str) -> bool:
    """Whether an acknowledgement came from this receiver of PagerDuty's.

    >>> from_pagerduty("acknowledged by Ann (PagerDuty, oncall)", "oncall")
    True
    >>> from_pagerduty("acknowledged by Ann", "oncall")
    False
    """
    return pagerduty_mark(receiver) in who


def pagerduty_mark(receiver: str) -> str:
    """How the name of a person ends who did something at PagerDuty."""
    return f"(PagerDuty, {receiver})"


def pagerduty_event(
    notice: Notice, routing_key: str, external_url: str, page: str = ""
) -> dict[str, Any]:
    """An event of PagerDuty's API, version 2. The group of alerts is its incident.

    Acknowledged here is acknowledged there. What is assigned only, or turned out to be something
    else, is not; nor is what was acknowledged there in the first place.
    """
    action = "resolve" if notice.status is Status.RESOLVED else "trigger"
    work = work_of(notice)
    if action == "trigger" and notice.why is not Why.CHANGED and work.startswith(ACKNOWLEDGED):
        action = "trigger" if from_pagerduty(work, notice.receiver) else "acknowledge"
    event: dict[str, Any] = {
        "routing_key": routing_key,
        "dedup_key": dedup_key(notice),
        "event_action": action,
    }
    if notice.status is Status.RESOLVED:
        return event
    wording = say(notice, external_url, page)
    labels = dict(notice.lines[0].labels) if notice.lines else {}
    severity = labels.get(SEVERITY_LABEL, "")
    event["payload"] = {
        "summary": wording.headline[:PAGERDUTY_SUMMARY_CHARS_MAX],
        "source": clean(labels.get("host") or labels.get("switch") or "fabricscope", 200),
        "severity": PAGERDUTY_SEVERITIES.get(severity, "info"),
        "timestamp": rfc3339(notice.lines[0].starts_ns if notice.lines else notice.planned_ns),
        "group": clean(notice.group, 200),
        "class": clean(labels.get(ALERT_NAME, ""), 200),
        "custom_details": {
            **{key.lower().replace(" ", "_"): text for key, text in wording.facts},
            "others": list(wording.others),
            "notice": notice.id,
        },
    }
    event["links"] = [{"href": link, "text": key} for key, link in wording.links]
    event["client"] = "Fabricscope"
    if is_link(external_url):
        event["client_url"] = external_url
    return event


# --- webhook ------------------------------------------------------------------------------------


def webhook_body(notice: Notice, external_url: str, page: str = "") -> dict[str, Any]:
    """Alertmanager's webhook body, so that programs written for it work; plus fields of our own."""
    wording = say(notice, external_url, page)
    return {
        "version": WEBHOOK_VERSION,
        "groupKey": notice.group,
        "truncatedAlerts": notice.left_out,
        "status": notice.status.value,
        "receiver": notice.receiver,
        "groupLabels": dict(notice.group_labels),
        "commonLabels": common([dict(line.labels) for line in notice.lines]),
        "commonAnnotations": common([line.annotations for line in notice.lines]),
        "externalURL": external_url,
        "alerts": [webhook_alert(line, external_url) for line in notice.lines],
        "fabricscope": {
            "id": notice.id,
            "number": notice.number,
            "why": notice.why.value,
            "planned": rfc3339(notice.planned_ns),
            "title": wording.title,
            "headline": wording.headline,
            "facts": dict(wording.facts),
            "links": dict(wording.links),
        },
    }


def webhook_alert(line: Line, external_url: str) -> dict[str, Any]:
    return {
        "status": Status.FIRING.value if line.ends_ns is None else Status.RESOLVED.value,
        "labels": dict(line.labels),
        "annotations": line.annotations,
        "startsAt": rfc3339(line.starts_ns),
        "endsAt": NEVER if line.ends_ns is None else rfc3339(line.ends_ns),
        "generatorURL": generator_url(external_url, line.expression),
        "fingerprint": line.fingerprint,
    }


def common(tables: Sequence[Mapping[str, str]]) -> dict[str, str]:
    if not tables:
        return {}
    return {
        key: value
        for key, value in tables[0].items()
        if all(table.get(key) == value for table in tables)
    }
