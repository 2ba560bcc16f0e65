"""Actions, and the holds that they are: the one place that makes and ends holds.

A hold and the action behind it change in one transaction, so that the answers to schedulers and the
record never differ.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, delete, or_, select, update

from alerts.health.model import Target
from alerts.policy.action import Action, ActionState, Ending, Refused, ended
from alerts.policy.record import BY_POLICY
from api.base.limits import (
    ACTIONS_KEPT_DAYS,
    ACTIONS_KEPT_MAX,
    ACTIONS_READ_MAX,
    HOLDS_MAX,
    PAGE_DEFAULT,
)
from api.data.inventory.database import Part, before_nul, delete_past, table_of
from api.data.inventory.health import HOLDS, KeptHold, end_holds, find_hold, put_hold, unix_ns
from api.data.inventory.incidents import moment_of
from api.data.inventory.leases import is_holder
from api.data.inventory.sightings import is_name
from api.data.inventory.tables import ActionRow
from collector.contract.errors import InventoryError

ACTIONS: Final = table_of(ActionRow)

LIVE_STATES: Final = (ActionState.SHADOWED, ActionState.PROPOSED, ActionState.STANDING)


class TooManyHoldsError(InventoryError):
    """HOLDS_MAX things are held already."""


class HeldError(InventoryError):
    """The host is held by another action."""


class ActionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which actions: all conditions that are given."""

    states: frozenset[ActionState] = frozenset()
    """Empty: all."""
    host: str | None = None
    incident: str | None = None
    live: bool | None = None
    """Whether they are not over."""


class ActionTables(Part):
    """Actions; and through them, holds."""

    # --- people --------------------------------------------------------------------------------

    def take_host(self, action: Action) -> None:
        """In the place of what held the host. Raises TooManyHoldsError."""
        with self._database.writing("keep an action") as connection:
            for before in standing_on(connection, action.host, action.at_ns):
                words = f"by action {action.id}"
                keep(connection, ended(before, Ending.REPLACED, action.by, words, action.at_ns))
            if not put_hold(connection, action.id, action.as_hold()):
                raise too_many()
            insert(connection, [action])
            forget(connection, moment_of(action.at_ns))

    def give_back(self, host: str, by: str, words: str, now: dt.datetime) -> KeptHold | None:
        """End what holds a host, and its action; None if nothing does."""
        if not is_name(host):
            return None
        target = Target.of_host(host)
        with self._database.writing("end a hold") as connection:
            found = find_hold(connection, target, now)
            if found is None:
                return None
            for action in standing_on(connection, host, unix_ns(now)):
                keep(connection, ended(action, Ending.OPERATOR, by, words, unix_ns(now)))
            end_holds(connection, target, by, now)
        return msgspec.structs.replace(found, ended_at=now, ended_by=by)

    def change(
        self, number: str, change: Callable[[Action], Action], now: dt.datetime
    ) -> Action | None:
        """None if there is none. Nothing is changed if ``change``, or a bound, raises."""
        with self._database.writing("change an action") as connection:
            before = find(connection, number)
            if before is None:
                return None
            after = change(before)
            follow(connection, before, after, unix_ns(now))
            keep(connection, after)
        return after

    # --- the policy ----------------------------------------------------------------------------

    def keep(
        self,
        begun: Sequence[Action],
        changed: Iterable[Action],
        known: Mapping[str, Action],
        *,
        task: str,
        holder: str,
        now: dt.datetime,
    ) -> list[Action] | None:
        """The actions of a policy's round that were written; None if others do the task.

        ``known`` is what the policy saw. An action that an operator changed in the meantime stays
        as the operator left it: the next round sees that.
        """
        now_ns = unix_ns(now)
        written: list[Action] = []
        with self._database.writing("keep actions") as connection:
            if not is_holder(connection, task, holder):
                return None
            for after in changed:
                before = find(connection, after.id)
                if before is not None and before == known.get(after.id):
                    follow(connection, before, after, now_ns)
                    keep(connection, after)
                    written.append(after)
            for action in begun:
                made = self._begin(connection, action, now)
                if made is not None:
                    insert(connection, [made])
                    written.append(made)
            forget(connection, now)
        return written

    def _begin(self, connection: Connection, action: Action, now: dt.datetime) -> Action | None:
        """A new action of the policy as it can be kept; None if another action came first."""
        if action.state is not ActionState.STANDING:
            return action
        if find_hold(connection, Target.of_host(action.host), now) is not None:
            return None
        if put_hold(connection, action.id, action.as_hold()):
            return action
        return msgspec.structs.replace(
            action,
            state=ActionState.REFUSED,
            refused=Refused.HOLDS_LIMIT,
            ended_ns=action.at_ns,
            ended_by=BY_POLICY,
        )

    def for_policy(self, since: dt.datetime) -> list[Action]:
        """All that are live, and those that began or ended since; the latest ACTIONS_READ_MAX."""
        lately = select(ACTIONS.c.document).where(
            or_(ACTIONS.c.at >= since, ACTIONS.c.ended_at >= since), ACTIONS.c.ended_at.is_not(None)
        )
        with self._database.reading("list actions") as connection:
            live = connection.execute(open_ones().order_by(ACTIONS.c.id)).scalars().all()
            query = lately.order_by(ACTIONS.c.id.desc()).limit(ACTIONS_READ_MAX)
            past = connection.execute(query).scalars().all()
        return [read_action(document) for document in (*live, *reversed(past))]

    # --- asking --------------------------------------------------------------------------------

    def get(self, number: str) -> Action | None:
        with self._database.reading("look up an action") as connection:
            return find(connection, number)

    def page(
        self, wanted: ActionQuery, after: str | None = None, limit: int = PAGE_DEFAULT
    ) -> list[Action]:
        """A page of actions, the newest first: those before the id `after`."""
        query = select(ACTIONS.c.document).where(*conditions(wanted))
        if after is not None:
            query = query.where(ACTIONS.c.id < before_nul(after))
        query = query.order_by(ACTIONS.c.id.desc()).limit(limit)
        return self._database.documents("list actions", query, Action)

    def standing(self) -> list[Action]:
        """All that were not ended, by id: what executors make true. Some may be over by time."""
        query = open_ones(ActionState.STANDING).order_by(ACTIONS.c.id).limit(HOLDS_MAX)
        return self._database.documents("list standing actions", query, Action)


# --- rows ---------------------------------------------------------------------------------------


def follow(connection: Connection, before: Action, after: Action, now_ns: int) -> None:
    target, now = Target.of_host(after.host), moment_of(now_ns)
    was, is_ = before.stands(now_ns), after.stands(now_ns)
    if is_ and not was:
        held = find_hold(connection, target, now)
        if held is not None:
            raise HeldError(f"{after.host} is held already: {held.hold.short}")
        if not put_hold(connection, after.id, after.as_hold()):
            raise too_many()
    elif was and not is_:
        end_holds(connection, target, after.ended_by, now)
    elif is_ and before.until_ns != after.until_ns:
        until = None if after.until_ns is None else moment_of(after.until_ns)
        connection.execute(update(HOLDS).where(HOLDS.c.id == after.id).values(until=until))


def too_many() -> TooManyHoldsError:
    why = f"HOLDS_MAX = {HOLDS_MAX} things are held already; end a hold that is not needed"
    return TooManyHoldsError(why)


def insert(connection: Connection, actions: Sequence[Action]) -> None:
    connection.execute(ACTIONS.insert(), [{"id": each.id, **row_of(each)} for each in actions])


def keep(connection: Connection, action: Action) -> None:
    connection.execute(update(ACTIONS).where(ACTIONS.c.id == action.id).values(row_of(action)))


def row_of(action: Action) -> dict[str, Any]:
    return {
        "host": action.host,
        "incident": action.why.incident if action.why is not None else "",
        "state": action.state.value,
        "at": moment_of(action.at_ns),
        "ended_at": None if action.ended_ns is None else moment_of(action.ended_ns),
        "document": msgspec.json.encode(action).decode(),
    }


def read_action(document: str) -> Action:
    return msgspec.json.decode(document, type=Action)


def find(connection: Connection, number: str) -> Action | None:
    """The action of this id; its row is locked until the transaction ends."""
    if not is_name(number):
        return None
    query = select(ACTIONS.c.document).where(ACTIONS.c.id == number).with_for_update()
    document = connection.scalar(query)
    return None if document is None else read_action(document)


def open_ones(*states: ActionState) -> Select[Any]:
    """Query for actions that were not ended, in these states; without states: all live ones."""
    names = [state.value for state in states or LIVE_STATES]
    return select(ACTIONS.c.document).where(
        ACTIONS.c.state.in_(names), ACTIONS.c.ended_at.is_(None)
    )


def standing_on(connection: Connection, host: str, now_ns: int) -> list[Action]:
    query = open_ones(ActionState.STANDING).where(ACTIONS.c.host == host).with_for_update()
    found = [read_action(document) for document in connection.execute(query).scalars().all()]
    return [action for action in found if action.stands(now_ns)]


def conditions(wanted: ActionQuery) -> Iterable[ColumnElement[bool]]:
    if wanted.states:
        yield ACTIONS.c.state.in_([state.value for state in wanted.states])
    if wanted.host is not None:
        yield ACTIONS.c.host == before_nul(wanted.host)
    if wanted.incident is not None:
        yield ACTIONS.c.incident == before_nul(wanted.incident)
    if wanted.live is not None:
        is_over = ACTIONS.c.ended_at
        yield is_over.is_(None) if wanted.live else is_over.is_not(None)


def forget(connection: Connection, now: dt.datetime) -> None:
    old = now - dt.timedelta(days=ACTIONS_KEPT_DAYS)
    connection.execute(delete(ACTIONS).where(ACTIONS.c.ended_at < old))
    over = ACTIONS.c.ended_at.is_not(None)
    delete_past(connection, ACTIONS.c.id, over, ACTIONS_KEPT_MAX)
