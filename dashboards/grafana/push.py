"""Brings our boards into a Grafana: compares first, reports differences, changes only those.

What a person changed in Grafana is not overwritten unasked. Such changes are found in the
version history: the newest version of an untouched board has our message, with the
fingerprint of what was pushed (`difference`). And Grafana itself refuses a write that is not based
on the newest version, so that no edit between our read and our write is lost.

Everything is looked at before anything is written. A second push of the same boards writes nothing.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from dashboards.grafana.connection import Grafana, Target
from dashboards.grafana.difference import (
    describe,
    fingerprint,
    normalised,
    push_message,
    pushed_fingerprint,
    unified,
)
from dashboards.grafana.failures import Conflict, GrafanaError, NotAllowed, Refused
from dashboards.grafana.jumps import UID_PREFIX
from dashboards.grafana.structure import Dashboard, listed

FOLDER = "Fabricscope"
DATASOURCE_NAME = "Fabricscope"
UID_CHARS_MAX = 40
"""Grafana's bound for a uid."""
PROMETHEUS_VERSION = "2.50.0"
"""The server version that Grafana gets. From 2.24 on it asks for the values of a label with a
selector, instead of fetching whole series; all that it asks of 2.50 our API answers."""
SCRAPE_INTERVAL = "15s"
"""`$__rate_interval` is at least four of these. Exporters are scraped that often as a rule, and our
agents report more often."""
FOLDERS_MAX = 1_000
"""That Grafana lists at once. A title behind them is not found, and a folder with it is made."""
PRUNE_MAX = 200
"""Boards of ours that are looked at for pruning; there are a dozen."""

Json = dict[str, Any]


class Kind(enum.StrEnum):
    """Kinds of things that are pushed."""

    FOLDER = "folder"
    DATASOURCE = "data source"
    DASHBOARD = "dashboard"


class Action(enum.StrEnum):
    """What a push does with one thing."""

    CREATE = "create"
    UPDATE = "update"
    KEEP = "keep"
    REMOVE = "remove"
    CONFLICT = "conflict"
    """Another user's work is there; nothing is done."""
    FAIL = "fail"


WRITES = frozenset({Action.CREATE, Action.UPDATE, Action.REMOVE})
BAD = frozenset({Action.CONFLICT, Action.FAIL})


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One thing, and what a push does with it."""

    kind: Kind
    name: str
    uid: str
    action: Action
    details: tuple[str, ...] = ()
    """What differs, or why nothing can be done, a line each."""
    diff: str = ""
    body: Json = {}


class PushSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is pushed, the target, and whether it overwrites or prunes."""

    target: Target
    boards: Mapping[str, Dashboard]
    """By their names; each has a `uid` and a `title`."""
    folder: str = FOLDER
    service_url: str = ""
    """Of Fabricscope, as Grafana's server reaches it. Empty: no data source is made."""
    service_token: str = ""
    """What Grafana shows to the service. It cannot be read back from Grafana, so it is sent when
    the data source is made or changed otherwise, or with ``renews_service_token``."""
    renews_service_token: bool = False
    datasource: str = ""
    """Name of the data source to make; without ``service_url`` the uid or name of one that is
    there. Boards choose it first."""
    is_dry_run: bool = False
    overwrites: bool = False
    prunes: bool = False
    """Whether boards of ours that are no longer among ``boards`` are removed."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, or would be."""

    version: str
    steps: Sequence[Step]
    is_dry_run: bool
    retries: int

    def count(self, action: Action) -> int:
        return sum(step.action is action for step in self.steps)

    @property
    def is_bad(self) -> bool:
        return any(step.action in BAD for step in self.steps)

    @property
    def has_writes(self) -> bool:
        return any(step.action in WRITES for step in self.steps)


def push(settings: PushSettings, report: Callable[[Step], None] = lambda _: None) -> Report:
    """``report`` gets each step before it is done, and again if it failed.

    GrafanaError for what concerns everything (no answer, no Grafana, the token); what concerns one
    board is a step that ends in conflict or failure, and the others go on.
    """
    with closing(Grafana(settings.target)) as grafana:
        version = grafana.check()
        steps = list(plan(grafana, settings))
        for step in steps:
            report(step)
        if not settings.is_dry_run:
            steps = [perform(grafana, step, report) for step in steps]
    return Report(
        version=version, steps=steps, is_dry_run=settings.is_dry_run, retries=grafana.retries
    )


def slug(title: str) -> str:
    """A uid from a title.

    >>> slug("Fabricscope"), slug("Network / north (new)")
    ('fabricscope', 'network-north-new')
    """
    plain = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:UID_CHARS_MAX].strip("-")
    return plain or "fabricscope"


# --- looking -------------------------------------------------------------------------------------


def plan(grafana: Grafana, settings: PushSettings) -> Iterator[Step]:
    """What is to be done, in the order in which it is to be done. It only reads."""
    folder = plan_folder(grafana, settings)
    yield folder
    choice: Json | None = None
    if source := plan_datasource(grafana, settings):
        yield source
        choice = {"selected": True, "text": source.name, "value": source.uid}
    for name, board in settings.boards.items():
        yield plan_board(grafana, settings, name, with_choice(board, choice), folder.uid)
    if settings.prunes and folder.action is Action.KEEP:
        yield from plan_pruning(grafana, settings, folder.uid)


def plan_folder(grafana: Grafana, settings: PushSettings) -> Step:
    """The folder: the one with our uid, whatever it is called by now, or with the title."""
    uid, title = slug(settings.folder), settings.folder
    found = get_folder(grafana, uid)
    if found is None:
        listed = grafana.ask("list the folders", lambda sdk: sdk.call("GET", "/folders"))
        rows = listed[:FOLDERS_MAX] if isinstance(listed, list) else []
        found = next((row for row in rows if row.get("title") == title), None)
    if found is not None:
        return Step(
            kind=Kind.FOLDER,
            name=str(found.get("title", title)),
            uid=str(found.get("uid", uid)),
            action=Action.KEEP,
        )
    return Step(kind=Kind.FOLDER, name=title, uid=uid, action=Action.CREATE)


def get_folder(grafana: Grafana, uid: str) -> Json | None:
    return grafana.find(f"read folder {uid}", lambda sdk: sdk.folder.get_folder_by_uid(uid))


def get_dashboard(grafana: Grafana, uid: str) -> Json | None:
    what = f"read dashboard {uid}"
    return grafana.find(what, lambda sdk: sdk.dashboard.get_dashboard_by_uid(uid))


def wanted_datasource(settings: PushSettings) -> Json:
    """The data source as we want it; what it does not name is left as it is."""
    json_data: Json = {
        "httpMethod": "POST",
        "prometheusType": "Prometheus",
        "prometheusVersion": PROMETHEUS_VERSION,
        "timeInterval": SCRAPE_INTERVAL,
    }
    name = settings.datasource or DATASOURCE_NAME
    wanted: Json = {
        "uid": slug(name),
        "name": name,
        "type": "prometheus",
        "access": "proxy",
        "url": settings.service_url,
        "jsonData": json_data,
    }
    if settings.service_token:
        json_data["httpHeaderName1"] = "Authorization"
        wanted["secureJsonData"] = {"httpHeaderValue1": f"Bearer {settings.service_token}"}
    return wanted


def plan_datasource(grafana: Grafana, settings: PushSettings) -> Step | None:
    """The data source that boards choose first; None: Grafana's default."""
    try:
        if settings.service_url:
            return plan_own_datasource(grafana, settings)
        return find_datasource(grafana, settings.datasource) if settings.datasource else None
    except NotAllowed as error:
        # Editors may push boards and may not look at data sources: the boards still help them.
        name = settings.datasource or DATASOURCE_NAME
        why = (str(error), "let an administrator push it once, or push without --service")
        return Step(
            kind=Kind.DATASOURCE, name=name, uid=slug(name), action=Action.FAIL, details=why
        )


def get_datasource(grafana: Grafana, uid: str, name: str) -> Json | None:
    """A data source by its uid, else by its name."""
    return grafana.find(
        f"read data source {uid}",
        lambda sdk: sdk.datasource.get_datasource_by_uid(quote(uid, safe="")),
    ) or grafana.find(
        f"read data source {name!r}",
        lambda sdk: sdk.datasource.get_datasource_by_name(quote(name, safe="")),
    )


def find_datasource(grafana: Grafana, name: str) -> Step:
    found = get_datasource(grafana, name, name)
    if found is None:
        raise Refused(f"there is no data source with the uid or name {name!r}", 404)
    return Step(
        kind=Kind.DATASOURCE, name=str(found["name"]), uid=str(found["uid"]), action=Action.KEEP
    )


def plan_own_datasource(grafana: Grafana, settings: PushSettings) -> Step:
    wanted = wanted_datasource(settings)
    found = get_datasource(grafana, wanted["uid"], wanted["name"])
    if found is None:
        return Step(
            kind=Kind.DATASOURCE,
            name=wanted["name"],
            uid=wanted["uid"],
            action=Action.CREATE,
            body=wanted,
        )
    name, uid = str(found.get("name", "")), str(found.get("uid", ""))
    step = Step(kind=Kind.DATASOURCE, name=name, uid=uid, action=Action.KEEP)
    details = datasource_details(found, wanted, renews=settings.renews_service_token)
    if not details:
        return step
    if uid != wanted["uid"]:
        why = f"another data source has this name, with uid {uid}: choose another --datasource"
        return replace(step, action=Action.CONFLICT, details=(*details, why))
    if found.get("readOnly"):
        why = "it comes from a file of Grafana's provisioning: change it there"
        return replace(step, action=Action.CONFLICT, details=(*details, why))
    # What people set besides (a longer time-out, certificates) stays.
    had = found.get("jsonData") or {}
    body = {**found, **wanted, "name": name, "jsonData": {**had, **wanted["jsonData"]}}
    return replace(step, action=Action.UPDATE, details=details, body=body)


def datasource_details(found: Json, wanted: Json, *, renews: bool) -> tuple[str, ...]:
    """What differs, a line each; settings that are not ours do not count."""
    lines = [
        f"~ {key}: {found.get(key)!r} → {wanted[key]!r}"
        for key in ("type", "access", "url")
        if found.get(key) != wanted[key]
    ]
    had = found.get("jsonData") or {}
    lines += [
        f"~ {key}: {had.get(key)!r} → {value!r}"
        for key, value in wanted["jsonData"].items()
        if had.get(key) != value
    ]
    if "secureJsonData" in wanted:
        has_secret = (found.get("secureJsonFields") or {}).get("httpHeaderValue1")
        lines += [] if has_secret and not renews else ["~ the token for the service"]
    return tuple(lines)


def datasource_variables(board: Dashboard) -> list[Json]:
    return [
        each
        for each in listed(board, "templating")
        if each.get("type") == each.get("name") == "datasource"
    ]


def choice_of(board: Dashboard) -> Json | None:
    """The data source that a board chooses first; None: it leaves that to Grafana."""
    return next((each.get("current") or None for each in datasource_variables(board)), None)


def with_choice(board: Dashboard, choice: Json | None) -> Dashboard:
    """A board that chooses this data source first; None: as it is."""
    if choice is None:
        return board
    made: Json = msgspec.json.decode(msgspec.json.encode(board))
    for variable in datasource_variables(made):
        variable["current"] = choice
    return made


def plan_board(
    grafana: Grafana, settings: PushSettings, name: str, board: Dashboard, folder_uid: str
) -> Step:
    uid = str(board["uid"])
    step = Step(kind=Kind.DASHBOARD, name=name, uid=uid, action=Action.KEEP)
    found = get_dashboard(grafana, uid)
    there, meta = (found.get("dashboard") or {}, found.get("meta") or {}) if found else ({}, {})
    if choice_of(board) is None:
        # No data source is given: the one that was chosen at an earlier push stays.
        board = with_choice(board, choice_of(there))
    body: Json = {
        "dashboard": {**normalised(board), "id": None},
        "folderUid": folder_uid,
        "message": push_message(board),
        "overwrite": settings.overwrites,
    }
    if found is None:
        return replace(step, action=Action.CREATE, body=body)
    pushed = pushed_fingerprint(newest_message(grafana, uid))
    is_same = pushed == fingerprint(board) or normalised(there) == normalised(board)
    details = () if is_same else describe(there, board)
    folder = meta.get("folderUid") or ""
    is_moved = "folderUid" in meta and folder != folder_uid
    if is_moved:
        where = f"in the folder {meta.get('folderTitle') or folder or 'General'!r}"
        if settings.overwrites:
            details = (*details, f"~ {where}, and goes to the one asked for")
        else:
            # A user moved it there, or pushed it there: the folder is that user's choice.
            details = (*details, f"it stays {where}; --overwrite moves it")
            body["folderUid"] = folder
    if is_same and not (is_moved and settings.overwrites):
        return replace(step, details=details)
    body["dashboard"]["version"] = there.get("version", 0)
    step = replace(
        step,
        action=Action.UPDATE,
        details=details,
        diff="" if is_same else unified(there, board),
        body=body,
    )
    return guarded(step, meta, is_ours=bool(pushed) or settings.overwrites)


def guarded(step: Step, meta: Json, *, is_ours: bool) -> Step:
    if meta.get("provisioned"):
        why = "it comes from a file of Grafana's provisioning: change the file instead"
    elif not is_ours:
        why = (
            "a person has changed it in Grafana: --overwrite takes ours, and theirs stays in the "
            "version history"
        )
    else:
        return step
    details = (*step.details, why)
    return replace(step, action=Action.CONFLICT, details=details, body={})


def newest_message(grafana: Grafana, uid: str) -> str:
    """The message of the newest version; empty if it has none, or may not be seen."""
    try:
        answer = grafana.ask(
            f"read versions of dashboard {uid}",
            lambda sdk: sdk.call("GET", f"/dashboards/uid/{uid}/versions?limit=1"),
        )
    except (Refused, NotAllowed):
        return ""
    # A list until Grafana 11.4; since then in an object, with a token for the next page.
    rows = answer.get("versions") if isinstance(answer, dict) else answer
    newest: Json = max(rows or [], key=lambda row: int(row.get("version") or 0), default={})
    return str(newest.get("message") or "")


def plan_pruning(grafana: Grafana, settings: PushSettings, folder_uid: str) -> Iterator[Step]:
    """Boards of ours in the folder that are no longer made: those of an older version."""
    wanted = {str(board["uid"]) for board in settings.boards.values()}
    rows = grafana.ask(
        "list the dashboards of the folder",
        lambda sdk: sdk.call(
            "GET", f"/search?type=dash-db&folderUIDs={folder_uid}&limit={PRUNE_MAX}"
        ),
    )
    for row in rows if isinstance(rows, list) else []:
        uid = str(row.get("uid", ""))
        if not uid.startswith(UID_PREFIX) or uid in wanted:
            continue
        name = uid.removeprefix(UID_PREFIX)
        step = Step(kind=Kind.DASHBOARD, name=name, uid=uid, action=Action.REMOVE)
        if not pushed_fingerprint(newest_message(grafana, uid)) and not settings.overwrites:
            why = "a person has changed it in Grafana: --overwrite removes it all the same"
            step = replace(step, action=Action.CONFLICT, details=(why,))
        yield step


# --- doing ---------------------------------------------------------------------------------------


def perform(grafana: Grafana, step: Step, report: Callable[[Step], None]) -> Step:
    if step.action not in WRITES:
        return step
    retries = grafana.retries
    try:
        write(grafana, step)
    except (Conflict, Refused, NotAllowed) as error:
        if grafana.retries > retries and is_done(grafana, step):
            return step
        if step.kind is Kind.FOLDER:
            raise  # Nothing can be put into it.
        action = Action.CONFLICT if isinstance(error, Conflict) else Action.FAIL
        failed = replace(step, action=action, details=(str(error),), diff="")
        report(failed)
        return failed
    return step


def write(grafana: Grafana, step: Step) -> None:
    what = f"{step.action} {step.kind} {step.name}"
    match step.kind, step.action:
        case Kind.FOLDER, _:
            grafana.ask(what, lambda sdk: sdk.folder.create_folder(step.name, step.uid))
        case Kind.DATASOURCE, Action.CREATE:
            grafana.ask(what, lambda sdk: sdk.datasource.create_datasource(step.body))
        case Kind.DATASOURCE, _:
            grafana.ask(
                what,
                lambda sdk: sdk.datasource.update_datasource(step.body, datasource_uid=step.uid),
            )
        case _, Action.REMOVE:
            grafana.ask(what, lambda sdk: sdk.call("DELETE", f"/dashboards/uid/{step.uid}"))
        case _:
            grafana.ask(what, lambda sdk: sdk.call("POST", "/dashboards/db", step.body))


def is_done(grafana: Grafana, step: Step) -> bool:
    """Whether the first of several attempts was done after all, and only its answer was lost."""
    uid = step.uid
    try:
        match step.kind:
            case Kind.FOLDER:
                return get_folder(grafana, uid) is not None
            case Kind.DATASOURCE:
                found = get_datasource(grafana, uid, step.name)
                return found is not None and found.get("url") == step.body.get("url")
        if step.action is Action.REMOVE:
            return get_dashboard(grafana, uid) is None
        return newest_message(grafana, uid) == str(step.body["message"])
    except GrafanaError:
        return False
