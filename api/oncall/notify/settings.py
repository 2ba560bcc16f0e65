"""Receivers: Alertmanagers, and the file of the built-in notifier (`notify_file`, TOML).

    [[receivers]]
    name = "oncall"
    type = "pagerduty"
    key_file = "/etc/fabricscope/pagerduty.key"

    [[routes]]
    receiver = "oncall"
    match = ['severity="critical"']

Everything is checked at the start, and a mistake names the key, the value and what to do. Secrets
(`url`, `key` and what their files hold) are never shown: not in errors, logs or answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from alerts.rulebook.notices import (
    CRITICAL,
    GROUP_BY_DEFAULT,
    SEVERITY_LABEL,
    Matcher,
    Operator,
    Route,
)
from api.base.limits import SILENCE_MATCHERS_MAX
from api.oncall.notify.matching import parse_matcher
from api.oncall.notify.receivers import discover
from api.oncall.notify.table import ReceiverTable, read_secret, secret_of
from collector.contract.errors import SettingsError
from collector.contract.layers import Layer, convert_table, read_toml, unknown

RECEIVERS_MAX = 100
ROUTES_MAX = 100
"""An alert is held against each of them, every second."""
ALERTMANAGERS_MAX = 20
"""Each has a queue of its own; clusters of them have three or four."""
WAIT_S_MAX = 3_600.0
INTERVAL_S_MAX = 86_400.0
REPEAT_S_MAX = 30 * 86_400.0
"""A month: more is never."""
TIMEOUT_S_MIN, TIMEOUT_S_MAX = 0.1, 15.0
"""Of one attempt. Below the lease by which one process sends (20 s): when another takes over, no
attempt of the one before is still under way."""

FILE = "_file"
"""How the key of a file ends that holds a secret: `key_file` has what `key` would have."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class AlertmanagerTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One Alertmanager. Passwords are in files, which are read each time."""

    url: str
    username: str = ""
    password_file: str = ""
    bearer_token_file: str = ""
    timeout_s: float = 10.0


class RouteTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One route, as the file has it. Seconds; see `Route`."""

    receiver: str
    match: tuple[str, ...] = ()
    group_by: tuple[str, ...] = GROUP_BY_DEFAULT
    group_wait_s: float = 10.0
    group_interval_s: float = 300.0
    repeat_interval_s: float = 14_400.0
    send_resolved: bool = True


class NotifySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Receivers, and routes to them."""

    receivers: tuple[ReceiverTable, ...] = ()
    routes: tuple[Route, ...] = ()


# --- Alertmanagers ------------------------------------------------------------------------------


class NotifierSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The notifier's settings; `api.http.settings` makes it of the service's settings."""

    file: NotifySettings
    alertmanagers: Sequence[AlertmanagerTable]
    interval_s: float
    """Of rule groups that name none: Alertmanagers get an alert again before it expires."""
    external_labels: dict[str, str]
    public_url: str


def read_alertmanagers(given: str | Sequence[str | AlertmanagerTable]) -> list[AlertmanagerTable]:
    """From a list, or text with commas as the environment has it."""
    entries = [one.strip() for one in given.split(",")] if isinstance(given, str) else given
    tables = [AlertmanagerTable(url=one) if isinstance(one, str) else one for one in entries if one]
    if len(tables) > ALERTMANAGERS_MAX:
        raise SettingsError(
            f"alertmanagers: {len(tables)} of them; ALERTMANAGERS_MAX is {ALERTMANAGERS_MAX}"
        )
    for place, table in enumerate(tables):
        where = f"alertmanagers[{place}]"
        check_address(f"{where}.url", table.url)
        check_timeout(f"{where}.timeout_s", table.timeout_s)
        if table.bearer_token_file and (table.username or table.password_file):
            raise SettingsError(f"{where}: a bearer token or a password, not both")
        if bool(table.username) != bool(table.password_file):
            raise SettingsError(f"{where}: username and password_file go together")
        for key in ("password_file", "bearer_token_file"):
            if file := getattr(table, key):
                read_secret(f"{where}.{key}", file)
    urls = [table.url.rstrip("/") for table in tables]
    if twice := {url for url in urls if urls.count(url) > 1}:
        raise SettingsError(f"alertmanagers: {', '.join(sorted(twice))} is listed twice")
    return tables


def check_address(where: str, url: str) -> None:
    """Raise SettingsError unless this is an address without a secret in it."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        fine = False
    if not fine:
        raise SettingsError(f"{where} is {url[:80]!r}; write http://HOST:PORT or https://HOST/PATH")
    if parts.username or parts.password:
        # Without the value: the message goes to logs.
        raise SettingsError(f"{where} has a user or password in it; use username, password_file")
    if parts.query or parts.fragment:
        raise SettingsError(f"{where} is {url[:80]!r}; write it without ? and #")


def check_timeout(where: str, seconds: float) -> None:
    if not TIMEOUT_S_MIN <= seconds <= TIMEOUT_S_MAX:
        raise SettingsError(
            f"{where} is {seconds:g}; between {TIMEOUT_S_MIN:g} and {TIMEOUT_S_MAX:g} seconds"
        )


# --- the built-in notifier ----------------------------------------------------------------------


def read_notify_file(file: str) -> NotifySettings:
    """The receivers and routes of a file, checked. Without a file there are none."""
    if not file:
        return NotifySettings()
    values = read_toml(Path(file))
    for key in values:
        if key not in NotifySettings.__struct_fields__:
            raise SettingsError(f"{file}: {unknown('key', key, NotifySettings.__struct_fields__)}")
    receivers = [
        read_receiver(table, file, place)
        for place, table in enumerate(tables_of(values, "receivers", file, RECEIVERS_MAX))
    ]
    names = [receiver.name for receiver in receivers]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SettingsError(f"{file}: receivers: {twice[0]!r} is there twice; names are unique")
    if not receivers:
        raise SettingsError(f"{file}: receivers: there are none; write [[receivers]]")
    given = tables_of(values, "routes", file, ROUTES_MAX)
    if not given:
        # No routes: every receiver gets critical alerts.
        given = [{"receiver": name, "continue": True} for name in names]
    routes = [read_route(table, names, file, place) for place, table in enumerate(given)]
    return NotifySettings(receivers=tuple(receivers), routes=tuple(routes))


def tables_of(values: Mapping[str, Any], key: str, file: str, at_most: int) -> list[dict[str, Any]]:
    """The tables under a key of the file; raises SettingsError for another type."""
    tables = values.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise SettingsError(f"{file}: {key}: must be tables; write [[{key}]]")
    if len(tables) > at_most:
        raise SettingsError(f"{file}: {key}: {len(tables)} of them; at most {at_most}")
    return tables


def read_receiver(values: dict[str, Any], file: str, place: int) -> ReceiverTable:
    """One receiver, checked; files with secrets are read once to see that they are readable."""
    where = f"receivers[{place}]"
    layer = Layer(file, {}, is_typed=True)
    for key in ("name", "type"):
        if key not in values:
            raise SettingsError(f"{file}: {where}.{key}: is missing")
    kinds = discover()
    kind = kinds.get(str(values["type"]))
    tables = ReceiverTable if kind is None else kind.Table
    secrets = [name[: -len(FILE)] for name in tables.__struct_fields__ if name.endswith(FILE)]
    for key in secrets:
        if not isinstance(values.get(key, ""), str):
            raise SettingsError(f"{file}: {where}.{key}: must be text")
    table = msgspec.convert(convert_table(tables, values, layer, f"{where}."), tables)
    where = f"{file}: {where}"
    if not _NAME.fullmatch(table.name):
        raise SettingsError(
            f"{where}.name is {table.name[:80]!r}; write up to 64 letters, digits, _, . and -"
        )
    if kind is None:
        raise SettingsError(f"{where}: {unknown('type', table.type[:80], kinds)}")
    check_timeout(f"{where}.timeout_s", table.timeout_s)
    for key in secrets:
        if getattr(table, key) and getattr(table, f"{key}_file"):
            raise SettingsError(f"{where}: {key} or {key}_file, not both")
    if not secret_of(table, kind.needs, where):
        needed = f"{kind.needs} or {kind.needs}_file"
        raise SettingsError(f"{where}: a {table.type} receiver needs {needed}")
    address = secret_of(table, "url", where)
    if address and not kind.takes(address):
        raise SettingsError(f"{where}.url: not an address; write https://HOST/PATH")
    for key in secrets:
        secret_of(table, key, where)
    return table


def read_route(values: dict[str, Any], receivers: Iterable[str], file: str, place: int) -> Route:
    """One route, checked. One without a matcher for severity takes critical alerts."""
    where = f"routes[{place}]"
    values = dict(values)
    if not isinstance(values.get("continue", False), bool):
        raise SettingsError(f"{file}: {where}.continue: must be true or false")
    goes_on = values.pop("continue", False)
    if "receiver" not in values:
        raise SettingsError(f"{file}: {where}.receiver: is missing")
    layer = Layer(file, {}, is_typed=True)
    table = msgspec.convert(convert_table(RouteTable, values, layer, f"{where}."), RouteTable)
    where = f"{file}: {where}"
    if table.receiver not in set(receivers):
        raise SettingsError(f"{where}: {unknown('receiver', table.receiver[:80], receivers)}")
    if len(table.match) > SILENCE_MATCHERS_MAX or len(table.group_by) > SILENCE_MATCHERS_MAX:
        raise SettingsError(f"{where}: more than {SILENCE_MATCHERS_MAX} in match or group_by")
    check_times(where, table)
    try:
        matchers = [parse_matcher(text) for text in table.match]
    except SettingsError as error:
        raise SettingsError(f"{where}.match: {error}") from error
    if all(matcher.label != SEVERITY_LABEL for matcher in matchers):
        matchers.append(Matcher(SEVERITY_LABEL, Operator.IS, CRITICAL))
    return Route(
        receiver=table.receiver,
        matchers=tuple(matchers),
        group_by=table.group_by,
        group_wait_s=table.group_wait_s,
        group_interval_s=table.group_interval_s,
        repeat_interval_s=table.repeat_interval_s,
        send_resolved=table.send_resolved,
        goes_on=goes_on,
    )


def check_times(where: str, table: RouteTable) -> None:
    bounds = {
        "group_wait_s": (0.0, WAIT_S_MAX),
        "group_interval_s": (1.0, INTERVAL_S_MAX),
        "repeat_interval_s": (table.group_interval_s, REPEAT_S_MAX),
    }
    for key, (least, most) in bounds.items():
        seconds: float = getattr(table, key)
        if not least <= seconds <= most:
            raise SettingsError(
                f"{where}.{key} is {seconds:g}; between {least:g} and {most:g} seconds"
            )
