"""Looks at what the service keeps: store, inventory, tokens, hosts; and at rule files."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import text

from api.data.inventory import migrate
from api.data.inventory.engine import explained, open_engine, place
from api.data.inventory.repository import Inventory
from api.data.inventory.rollout_model import RolloutState
from api.data.inventory.token_model import Token
from api.data.store.migrate import load_migrations
from api.data.store.store import Store, StoreUrl
from api.http.operating.doctor.model import Look, ok, warning, wrong
from api.http.settings import ServiceSettings
from api.http.tokens.cli import inventory_file
from api.http.tokens.file import read_token_file
from api.oncall.rules.check import Lint, check_files
from collector.contract.errors import FabricscopeError, SettingsError, StoreError

CLOCK_APART_SECONDS = 1.0
"""Between this machine and a database: past it, ages and leases are wrong by as much."""
CLOCK_WRONG_SECONDS = 10.0
"""Half of a lease."""
TOKEN_DAYS_MIN = 14
SILENT_SECONDS = 600.0
"""Agents report every five seconds."""
NAMES_SHOWN = 5
HOSTS_LOOKED_MAX = 1_000
CLOCK_ADVICE = "synchronise both by NTP or PTP"


def look_at_store(settings: ServiceSettings, *, is_running: bool) -> Iterator[Look]:
    """An embedded store that a service has open is asked by that one alone."""
    url = StoreUrl.parse(settings.store_url)
    folder = Path(url.dsn.removeprefix("chdb://"))
    if url.scheme == "chdb" and is_running:
        yield ok("store", "the service has it open, and answers for it")
        return
    if url.scheme == "chdb" and not folder.is_dir():
        yield warning("store", f"{folder} is not there", "the first start makes it")
        return
    try:
        store = Store(url)
    except FabricscopeError as error:
        todo = "check `store`, its password, and that ClickHouse runs and is new enough"
        yield wrong("store", str(error), todo)
        return
    try:
        yield ok("store", f"{url.scheme}, engine {store.engine_version}")
        yield from look_at_migrations(store)
        if url.scheme != "chdb":
            there = store.query("SELECT toUnixTimestamp64Milli(now64(3)) AS t")["t"][0].as_py()
            yield clocks_apart("store's clock", there / 1000)
    finally:
        store.close()


def look_at_migrations(store: Store) -> Iterator[Look]:
    known = len(load_migrations())
    try:
        there = store.migration()
    except StoreError:
        yield warning("store schema", "it has none yet", "the first start makes it")
        return
    if there > known:
        todo = "run that release; a downgrade needs a backup that the older one made"
        found = f"migration {there}, this release knows {known}: a newer release wrote it"
        yield wrong("store schema", found, todo)
    elif there < known:
        todo = "the next start applies the rest; make a backup before"
        yield warning("store schema", f"migration {there} of {known}", todo)
    else:
        yield ok("store schema", f"migration {there}")


def clocks_apart(subject: str, there_s: float) -> Look:
    apart = there_s - time.time()
    found = f"{apart:+.1f} s from this machine's"
    if abs(apart) > CLOCK_WRONG_SECONDS:
        return wrong(subject, found, CLOCK_ADVICE)
    if abs(apart) > CLOCK_APART_SECONDS:
        return warning(subject, found, CLOCK_ADVICE)
    return ok(subject, found)


def look_at_inventory(settings: ServiceSettings) -> Iterator[Look]:
    file = inventory_file(settings.inventory_url)
    if file is not None and not file.is_file():
        yield warning("inventory", f"{file} is not there", "the first start makes it")
        return
    engine = open_engine(settings.inventory_url)
    try:
        with explained(engine.url, "be opened"), engine.connect() as connection:
            there = migrate.current(connection) or ""
            yield ok("inventory", place(engine.url))
            yield revision_of(there)
            if file is None:
                now_s = connection.scalar(text("SELECT extract(epoch FROM clock_timestamp())"))
                yield clocks_apart("inventory's clock", float(now_s or 0))
    except FabricscopeError as error:
        yield wrong("inventory", str(error), "check `inventory`, and that the database runs")
        return
    finally:
        engine.dispose()
    if there == migrate.head():
        yield from look_at_rows(settings)


def revision_of(there: str) -> Look:
    head = migrate.head()
    if there == head:
        return ok("inventory schema", f"revision {there}")
    if there > head:  # they are numbered
        todo = "run that release; a downgrade needs a backup that the older one made"
        return wrong("inventory schema", f"revision {there}, this release knows {head}", todo)
    todo = "the next start applies the rest; make a backup before"
    return warning("inventory schema", f"revision {there or 'none'} of {head}", todo)


def look_at_rows(settings: ServiceSettings) -> Iterator[Look]:
    inventory = Inventory(settings.inventory_url)
    try:
        now = dt.datetime.now(dt.UTC)
        yield from look_at_tokens(settings, inventory.tokens.all(), now)
        yield from look_at_hosts(inventory, now)
        yield from look_at_rollout(inventory)
    finally:
        inventory.close()


def look_at_tokens(
    settings: ServiceSettings, kept: list[Token], now: dt.datetime
) -> Iterator[Look]:
    given = read_token_file(Path(settings.token_file)) if settings.token_file else ()
    standing = [token for token in (*kept, *given) if token.stands(now)]
    if not settings.token_need:
        yield ok("tokens", f"none is needed on {settings.listen}; {len(standing)} stand")
        return
    if not standing:
        todo = "fabricscope token create NAME --scope admin"
        yield wrong("tokens", f"none stands, and one is needed: {settings.token_need}", todo)
        return
    soon = [
        token
        for token in standing
        if token.expires_at and token.expires_at < now + dt.timedelta(days=TOKEN_DAYS_MIN)
    ]
    if soon:
        names = shortened([token.name for token in soon])
        todo = "make new ones (fabricscope token create), and bring them to their users"
        yield warning("tokens", f"{len(soon)} end within {TOKEN_DAYS_MIN} days: {names}", todo)
    else:
        yield ok("tokens", f"{len(standing)} stand")


def look_at_hosts(inventory: Inventory, now: dt.datetime) -> Iterator[Look]:
    """Silent ones against the one that was seen last: with the service stopped all are silent."""
    hosts = inventory.hosts.page(limit=HOSTS_LOOKED_MAX, role=None, now=now)
    if not hosts:
        todo = "start agents, or send remote write"
        yield warning("agents", "no host has ever sent anything", todo)
        return
    last = max(host.last_seen for host in hosts)
    silent = [
        host.host for host in hosts if (last - host.last_seen).total_seconds() > SILENT_SECONDS
    ]
    if silent:
        todo = "are they gone? fabricscope hosts remove NAME; else see systemctl status there"
        found = f"{len(silent)} of {len(hosts)} are silent: {shortened(silent)}"
        yield warning("agents", found, todo)
    else:
        yield ok("agents", f"{len(hosts)} hosts and switches, the last seen {last:%Y-%m-%d %H:%M}Z")


def look_at_rollout(inventory: Inventory) -> Iterator[Look]:
    """The latest configuration for agents; nothing where none was ever pushed."""
    latest = inventory.rollouts.latest()
    if latest is None:
        return
    rollout = latest.rollout
    found = f"configuration {latest.version} is {rollout.state} at {rollout.share:g} %"
    if rollout.state is RolloutState.STOPPED:
        todo = "fabricscope config status says who failed; then config back, or resume"
        yield warning("roll-out", f"{found}: {rollout.reason or 'no reason was given'}", todo)
    elif rollout.state is RolloutState.WAITING:
        todo = "fabricscope config resume --share 100%, or config back"
        yield warning("roll-out", f"{found}, and waits for an operator", todo)
    else:
        yield ok("roll-out", found)


def look_at_rules(settings: ServiceSettings) -> Iterator[Look]:
    if not settings.rules_dir:
        yield ok("rule files", "none of your own")
        return
    try:
        checked = check_files([settings.rules_dir], Lint.WARN)
    except SettingsError as error:
        yield warning("rule files", str(error), "write some, or leave rules_dir out")
        return
    todo = "fabricscope rules check DIR lists all"
    if checked.problems:
        count, first = len(checked.problems), checked.problems[0]
        yield wrong("rule files", f"{count} problems, the first: {first}", todo)
    elif checked.warnings:
        count, first = len(checked.warnings), checked.warnings[0]
        yield warning("rule files", f"{count} warnings, the first: {first}", todo)
    else:
        yield ok("rule files", f"{checked.rules} rules in {checked.files} files")


def shortened(names: list[str]) -> str:
    """The first names, and how many more there are.

    >>> shortened(["a", "b"])
    'a, b'
    """
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
