"""What people do in a Slack channel comes here: clicks on the buttons of our messages.

Slack posts each click, signed, to the app's request URL, as a form whose `payload` is JSON, and
shows a warning unless it is answered within three seconds. The message itself changes by a post to
the click's `response_url` (five times within half an hour), which is why an address from outside is
posted to at all: it must be Slack's.

What a click may do is what a notice's link may do: acknowledge the one incident that the message is
about. It takes nothing over: who has acknowledged it already is shown instead.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec
import orjson

from alerts.rulebook.model import INCIDENT_LABEL, WORK
from alerts.rulebook.notices import Line, Notice, Status, Talk, Why, notice_id
from api.base.errors import Problem, decode_json
from api.data.inventory.feedback import Dropped, name_feedback
from api.data.inventory.repository import Inventory
from api.data.inventory.work import Deed, Does, state_of
from api.oncall.notify.deeds import Result, keep
from api.oncall.notify.http import Delivery, Outcome, post
from api.oncall.notify.message import (
    SLACK_ACKNOWLEDGE,
    clean,
    slack_mark,
    slack_message,
)
from api.oncall.notify.receivers import Means
from api.oncall.notify.table import ReceiverTable, secret_of
from api.oncall.rules.explain import work_words
from collector.contract.errors import SettingsError

SIGNATURE_HEADER: Final = "X-Slack-Signature"
TIMESTAMP_HEADER: Final = "X-Slack-Request-Timestamp"
_VERSION: Final = "v0"
TOLERANCE_SECONDS: Final = 300
"""How far a request's time may be from ours, as Slack advises: a recorded one is of no use."""
ANSWER_HOSTS: Final = frozenset({"hooks.slack.com", "hooks.slack-gov.com"})
"""Where a `response_url` may lead. Any other address would make this service post for others."""
CLICKED: Final = "block_actions"
NOT_A_CLICK: Final = "not a click of Slack's"
_FIELDS_MAX: Final = 10
_ID_CHARS_MAX: Final = 100
_NAME_CHARS_MAX: Final = 80
GONE: Final = (
    "This message is not about an incident that stands: it is over, or turned out to be "
    "another one, of which a newer message tells."
)
FULL: Final = "Not acknowledged: its record is full. Open it in Fabricscope to see who looks at it."


class User(msgspec.Struct, frozen=True):
    """Who clicked. The id stays, the name may change."""

    id: str
    username: str = ""
    name: str = ""


class Team(msgspec.Struct, frozen=True):
    """The workspace."""

    id: str = ""


class Action(msgspec.Struct, frozen=True):
    """One element that was clicked."""

    action_id: str = ""
    value: str = ""
    action_ts: str = ""


class Click(msgspec.Struct, frozen=True):
    """The payload of an interaction. Fields that are not listed are Slack's affair."""

    type: str
    user: User
    team: Team | None = None
    actions: list[Action] = []
    response_url: str = ""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a click, and what Slack is answered."""

    result: Result
    dropped: Dropped = {}
    answer_url: str = ""
    """Empty: there is nothing to answer."""
    message: dict[str, Any] = {}


def is_signed(body: bytes, timestamp: str, signature: str, secret: str, now_s: float) -> bool:
    """Whether Slack signed this body with the secret, within TOLERANCE_SECONDS of now.

    >>> is_signed(b"payload={}", "1", "v0=00", "secret", 1.0)
    False
    """
    is_number = timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= len("9" * 12)
    if not is_number or abs(now_s - int(timestamp)) > TOLERANCE_SECONDS:
        return False
    signed = b":".join((_VERSION.encode(), timestamp.encode(), body))
    own = f"{_VERSION}={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"
    # As bytes: a header may have letters that the comparison of texts refuses.
    return hmac.compare_digest(signature.encode(), own.encode())


def read(body: bytes) -> Click:
    """Raises Problem for what is no click, or wants its answer elsewhere than at Slack."""
    try:
        fields = parse_qs(body.decode("utf-8"), max_num_fields=_FIELDS_MAX)
        (payload,) = fields["payload"]
    except (ValueError, KeyError) as error:
        why = "the body is no form with one field `payload`"
        raise Problem(422, NOT_A_CLICK, why) from error
    click = decode_json(payload.encode(), Click, NOT_A_CLICK)
    names = [click.user.id, *(each.action_ts for each in click.actions)]
    if max(map(len, names)) > _ID_CHARS_MAX:
        raise Problem(422, NOT_A_CLICK, f"an id has more than {_ID_CHARS_MAX} characters")
    if click.response_url and not is_slacks(click.response_url):
        hosts = ", ".join(sorted(ANSWER_HOSTS))
        raise Problem(422, NOT_A_CLICK, f"response_url is not an https address of {hosts}")
    return click


def is_slacks(address: str) -> bool:
    """Whether an answer may be posted there.

    >>> is_slacks("https://hooks.slack.com/actions/T/1/x"), is_slacks("https://hooks.slack.com@a/")
    (True, False)
    """
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return False
    # The whole of it: no user, no password, no port.
    is_plain = parts.netloc in ANSWER_HOSTS and port is None
    return parts.scheme == "https" and is_plain and address.isprintable() and "\\" not in address


class SlackActions:
    """Takes clicks, whose signature was checked, and answers them."""

    def __init__(self, inventory: Inventory, means: Means) -> None:
        self._inventory = inventory
        self._means = means

    def take(self, body: bytes, receiver: str, now_ns: int) -> Taken:
        """Raises Problem for what is no click, InventoryError if it could not be kept.

        It blocks: call it from a thread.
        """
        click = read(body)
        ours = (each for each in click.actions if each.action_id == SLACK_ACKNOWLEDGE)
        action = next(ours, None)
        if click.type != CLICKED or action is None:
            return Taken(result=Result.IGNORED)
        url = click.response_url
        talk = self._find(action.value, receiver)
        if talk is None:
            return Taken(result=Result.UNKNOWN, answer_url=url, message=whispered(GONE))
        result, dropped = self._acknowledge(click, action, receiver, now_ns)
        if result is Result.FULL:
            return Taken(result=result, answer_url=url, message=whispered(FULL))
        message = self._message(talk, action.value, now_ns)
        return Taken(result=result, dropped=dropped, answer_url=url, message=message)

    def _find(self, incident: str, receiver: str) -> Talk | None:
        """The standing page of this receiver that is about the incident now."""
        for talk in self._inventory.notices.talks().values():
            if talk.receiver == receiver and talk.lines and talk.present_incident == incident:
                return talk
        return None

    def _acknowledge(
        self, click: Click, action: Action, receiver: str, now_ns: int
    ) -> tuple[Result, Dropped]:
        if state_of(self._inventory.work.of(action.value)).acknowledged_by:
            return Result.STANDS, {}
        team = clean(click.team.id, _ID_CHARS_MAX) if click.team is not None else ""
        deed = Deed(
            id=name_feedback(now_ns),
            incident=action.value,
            at_ns=now_ns,
            by=signature(click.user, receiver),
            does=Does.ACKNOWLEDGE,
            origin=f"slack:{team}:{click.user.id}:{action.action_ts}",
        )
        return keep(self._inventory, deed)

    def _message(self, talk: Talk, incident: str, now_ns: int) -> dict[str, Any]:
        """The page as it stands now, in our own words: nothing of the click comes back."""
        story = self._inventory.incidents.get(incident)
        names = [incident]
        if story is not None and story.taken_for is not None:
            names.append(story.taken_for.incident)
        words = "" if story is None else work_words(story, self._inventory.work.states(names))
        notice = Notice(
            id=notice_id(talk),
            group=talk.key,
            receiver=talk.receiver,
            group_labels=talk.labels,
            number=talk.number,
            status=Status.FIRING,
            why=Why.WORK,
            planned_ns=now_ns,
            lines=tuple(with_words(line, incident, words) for line in talk.lines),
        )
        means = self._means
        page = means.page_of(notice)
        made = slack_message(notice, means.external_url, page, has_buttons=True)
        return {"replace_original": True, **made}

    async def answer(self, taken: Taken, table: ReceiverTable) -> Outcome:
        """Changes the message; where that fails, a new one says it: the notice of it is left out.

        Never raises for what the other side does.
        """
        outcome = await self._post(taken.answer_url, taken.message, table)
        if outcome.delivery is Delivery.SENT or taken.result is not Result.KEPT:
            return outcome
        try:
            url = secret_of(table, "url", f"receiver {table.name}")
        except SettingsError as error:
            return Outcome(delivery=Delivery.RETRY, detail=str(error))
        anew = {key: each for key, each in taken.message.items() if key != "replace_original"}
        return await self._post(url, anew, table)

    async def _post(self, url: str, message: dict[str, Any], table: ReceiverTable) -> Outcome:
        if not url:
            return Outcome(delivery=Delivery.REFUSED, detail="the click has no response_url")
        return await post(
            self._means.client,
            url,
            orjson.dumps(message),
            {},
            timeout_s=table.timeout_s,
            now_s=self._means.clock(),
        )


def whispered(text: str) -> dict[str, Any]:
    """A message that only the person who clicked sees."""
    return {"response_type": "ephemeral", "replace_original": False, "text": text}


def with_words(line: Line, incident: str, words: str) -> Line:
    """The line with who looks after its incident now."""
    if dict(line.labels).get(INCIDENT_LABEL) != incident:
        return line
    notes = {name: text for name, text in line.annotations.items() if name != WORK}
    if words:
        notes[WORK] = words
    return msgspec.structs.replace(line, annotations=notes)


def signature(user: User, receiver: str) -> str:
    """Who clicked, as Slack knows them: its id is verified, the name is for readers."""
    name = clean(user.username or user.name, _NAME_CHARS_MAX)
    return " ".join(filter(None, (name, clean(user.id, _ID_CHARS_MAX), slack_mark(receiver))))
