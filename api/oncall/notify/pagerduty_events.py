"""What people do at PagerDuty comes here: its webhooks, version 3.

PagerDuty posts one event at a time, signed, and again until it is answered; the order is not
promised. What an event may do here is small: acknowledge, take that back, or note. An incident goes
by its evidence, so that "resolved" there is a note here.

Whose incident it is: its ``incident_key`` is the ``dedup_key`` that our notice had. Events about
notes carry PagerDuty's own id only, which earlier events told.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from typing import Final

import msgspec

from api.base.case_limits import PAGERDUTY_IDS_MAX
from api.base.errors import Problem, decode_json
from api.base.limits import COMMENT_CHARS_MAX
from api.data.inventory.feedback import Dropped, name_feedback
from api.data.inventory.repository import Inventory
from api.data.inventory.work import Deed, Does, state_of
from api.oncall.notify.deeds import Result, keep
from api.oncall.notify.message import clean, dedup_key_of, from_pagerduty, pagerduty_mark

SIGNATURE_HEADER: Final = "X-PagerDuty-Signature"
_VERSION: Final = "v1="
_SIGNATURES_MAX: Final = 10
"""While a secret is changed there are two."""
PERSON: Final = "user_reference"
"""The type of an agent that is a person; our own events come back under their integration's."""
_NAME_CHARS_MAX: Final = 100
_ID_CHARS_MAX: Final = 100
NOT_AN_EVENT: Final = "not an event of PagerDuty's"


class Reference(msgspec.Struct, frozen=True):
    """A user, an incident or an integration, as PagerDuty refers to it."""

    id: str = ""
    type: str = ""
    summary: str | None = None


class IncidentData(msgspec.Struct, frozen=True):
    """`data` of an event about an incident."""

    id: str
    incident_key: str | None = None
    assignees: list[Reference] | None = None


class NoteData(msgspec.Struct, frozen=True):
    """`data` of an event about a note."""

    incident: Reference
    content: str | None = None


class Event(msgspec.Struct, frozen=True):
    """What happened. Fields that are not listed are PagerDuty's affair, and new ones may come."""

    id: str
    event_type: str
    data: msgspec.Raw
    agent: Reference | None = None


class Body(msgspec.Struct, frozen=True):
    """A webhook's body."""

    event: Event


NOTED: Final = "incident.annotated"
DOES: Final = {
    "incident.triggered": None,
    "incident.acknowledged": Does.ACKNOWLEDGE,
    "incident.unacknowledged": Does.UNACKNOWLEDGE,
    "incident.resolved": Does.NOTE,
    "incident.reassigned": Does.NOTE,
}
"""Events about incidents, and what they do here; the first tells whose key it is, no more."""


def is_signed(body: bytes, header: str, secret: str) -> bool:
    """Whether one of the signatures is the secret's: HMAC-SHA256 over the body as it came.

    >>> is_signed(b"{}", "v1=00", "secret")
    False
    """
    own = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    given = [each.strip() for each in header.split(",")[:_SIGNATURES_MAX]]
    # As bytes: a header may have letters that the comparison of texts refuses.
    return any(
        hmac.compare_digest(each.removeprefix(_VERSION).encode(), own.encode())
        for each in given
        if each.startswith(_VERSION)
    )


class PagerDutyEvents:
    """Takes events, whose signature was checked. It blocks: call it from a thread."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._keys: OrderedDict[str, str] = OrderedDict()
        """PagerDuty's ids and the keys of ours; the oldest are forgotten past PAGERDUTY_IDS_MAX."""

    def take(self, body: bytes, receiver: str, now_ns: int) -> tuple[Result, Dropped]:
        """Raises Problem for what is no event, InventoryError if it could not be kept."""
        event = decode_json(body, Body, NOT_AN_EVENT).event
        if len(event.id) > _ID_CHARS_MAX:
            raise Problem(422, NOT_AN_EVENT, f"event.id has more than {_ID_CHARS_MAX} characters")
        told = read(event)
        self._learn(told)
        deed = self._deed(event, told, receiver, now_ns)
        if isinstance(deed, Result):
            return deed, {}
        return keep(self._inventory, deed)

    def _learn(self, told: Told) -> None:
        if not told.key or max(len(told.there), len(told.key)) > _ID_CHARS_MAX:
            return
        self._keys[told.there] = told.key
        self._keys.move_to_end(told.there)
        while len(self._keys) > PAGERDUTY_IDS_MAX:
            self._keys.popitem(last=False)

    def _find(self, told: Told, receiver: str) -> str:
        """Our incident; empty: no open page of this receiver is about it."""
        wanted = told.key or self._keys.get(told.there, "")
        prefix = origin_of(told.there, "")
        for talk in self._inventory.notices.talks().values():
            if talk.receiver != receiver or not talk.is_incident:
                continue
            incident = talk.present_incident
            if wanted:
                if dedup_key_of(talk.key) == wanted:
                    return incident
            elif any(each.origin.startswith(prefix) for each in self._inventory.work.of(incident)):
                # Told before this process started: by a deed that came from there.
                return incident
        return ""

    def _deed(self, event: Event, told: Told, receiver: str, now_ns: int) -> Deed | Result:
        """What to keep, or why nothing is."""
        if told.does is None:
            return Result.IGNORED
        incident = self._find(told, receiver)
        if not incident:
            return Result.UNKNOWN
        if told.does is Does.UNACKNOWLEDGE:
            # Also by time alone, without a person; but never what was acknowledged elsewhere.
            stands = state_of(self._inventory.work.of(incident)).acknowledged_by
            is_ours = from_pagerduty(stands, receiver)
        else:
            is_ours = event.agent is not None and event.agent.type == PERSON
        if not is_ours or (told.does is Does.NOTE and not told.note):
            return Result.IGNORED
        return Deed(
            id=name_feedback(now_ns),
            incident=incident,
            at_ns=now_ns,
            by=signature(event.agent, receiver),
            does=told.does,
            note=told.note,
            origin=origin_of(told.there, event.id),
        )


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What an event says, in our words."""

    there: str = ""
    """PagerDuty's id of its incident."""
    key: str = ""
    """Our key of it; empty: the event does not carry it."""
    does: Does | None = None
    """None: nothing that is kept."""
    note: str = ""


def read(event: Event) -> Told:
    """Raises Problem for an event whose data has another shape than its kind."""
    if event.event_type == NOTED:
        note = decode_json(bytes(event.data), NoteData, NOT_AN_EVENT)
        words = clean(note.content or "", COMMENT_CHARS_MAX)
        return Told(there=note.incident.id, does=Does.NOTE, note=words)
    if event.event_type not in DOES:
        return Told()
    about = decode_json(bytes(event.data), IncidentData, NOT_AN_EVENT)
    words = clean(said(event.event_type, about), COMMENT_CHARS_MAX)
    return Told(
        there=about.id, key=about.incident_key or "", does=DOES[event.event_type], note=words
    )


def said(kind: str, about: IncidentData) -> str:
    """The note of an event that is one here."""
    if kind == "incident.resolved":
        return "resolved at PagerDuty; here it is open until its trouble is over"
    if kind == "incident.reassigned":
        names = [each.summary or each.id for each in about.assignees or ()]
        return f"reassigned at PagerDuty to {', '.join(names) or 'no person'}"
    return ""


def signature(agent: Reference | None, receiver: str) -> str:
    """Who did it, and that it came from PagerDuty: such a deed is not sent back there."""
    name = (agent.summary or agent.id) if agent is not None else ""
    return f"{clean(name, _NAME_CHARS_MAX) or 'no person'} {pagerduty_mark(receiver)}"


def origin_of(there: str, event: str) -> str:
    """The name of an event, below that of PagerDuty's incident."""
    return f"pagerduty:{there}:{event}"
