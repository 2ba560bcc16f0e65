"""The inventory itself: stores sightings and batches, and answers queries about them.

Synchronous and thread-safe: the service calls it from worker threads. Every failure is an
InventoryError that names the operation and the reason, without a password.

Writers of all service processes take their rows in one order (agents, hosts, devices, ports,
cablings, jobs, each by key), so they wait for each other and never deadlock.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import (
    Connection,
    RowMapping,
    Table,
    case,
    delete,
    func,
    not_,
    select,
    tuple_,
    update,
)
from sqlalchemy.sql.expression import bindparam

from api.base.limits import GHOST_KEPT_DAYS, GHOSTS_FORGOTTEN_AT_ONCE, PAGE_DEFAULT, PAGE_MAX
from api.base.operating_limits import GONE_FORGOTTEN_AT_ONCE
from api.base.quarantine import Quarantine
from api.data.inventory.actions import ActionTables
from api.data.inventory.alerts import AlertTables
from api.data.inventory.batches import BatchRun
from api.data.inventory.captures import CaptureTables
from api.data.inventory.database import (
    Database,
    Part,
    Query,
    before_nul,
    in_pieces,
    insert_into,
    table_of,
)
from api.data.inventory.feedback import FeedbackTables
from api.data.inventory.ghosts import is_ghost
from api.data.inventory.health import HOLDS, HealthTables
from api.data.inventory.incidents import IncidentTables
from api.data.inventory.job_sightings import write_job_sightings
from api.data.inventory.jobs import JobTables
from api.data.inventory.keys import KeyTables
from api.data.inventory.leases import LeaseTables
from api.data.inventory.link_rows import write_links
from api.data.inventory.links import LinkTables
from api.data.inventory.merge import Key, Seen, Stamped, Tally, Things, join
from api.data.inventory.notices import NoticeTables, SilenceTables
from api.data.inventory.orders import OrderTables
from api.data.inventory.placing import PlaceTables
from api.data.inventory.records import Agent, Device, DeviceKind, Host, HostRole, Port
from api.data.inventory.rollouts import REPORTS, RolloutTables
from api.data.inventory.sightings import Observation, PortValues, Sighting, is_name
from api.data.inventory.tables import AgentRow, DeviceRow, HostRow, PortRow
from api.data.inventory.tokens import TokenTables
from api.data.inventory.work import WorkTables
from collector.contract.identity import PortId


class Kept(msgspec.Struct, frozen=True):
    """How things of one table are kept: the table, and the attributes that are columns there."""

    table: Table
    columns: dict[str, Callable[[str], object]]
    """Attribute to what makes the column's value of its text."""
    defaults: dict[str, object] = {}
    """Column values for attributes that no series has reported; null in the others."""


HOSTS: Final = Kept(
    table_of(HostRow),
    dict.fromkeys(("cluster", "agent", "agent_version", "role"), str),
    {"role": HostRole.HOST.value},
)
DEVICES: Final = Kept(table_of(DeviceRow), dict.fromkeys(("driver", "firmware"), str))
PORTS: Final = Kept(
    table_of(PortRow),
    dict.fromkeys(("link_layer", "state", "netdev", "guid"), str) | {"rate_bits_per_second": int},
)
AGENTS: Final = table_of(AgentRow)


class HostTables(Part):
    """Hosts, their devices and ports, and their agents."""

    def get(self, name: str) -> Host | None:
        return self._database.one(Host, HOSTS.table, name) if is_name(name) else None

    def page(
        self,
        after: str | None = None,
        limit: int = PAGE_DEFAULT,
        role: HostRole | None = HostRole.HOST,
        now: dt.datetime | None = None,
    ) -> list[Host]:
        """By name. Machines, unless asked for switches; None: both. ``now``: without ghosts."""

        def narrow(query: Query, of: Any) -> Query:  # noqa: ANN401 - a table's columns
            if role is not None:
                query = query.where(of.role == role)
            if now is not None:
                query = query.where(not_(is_ghost(HOSTS.table, now)))
            return query if after is None else query.where(of.host > before_nul(after))

        return self._database.ask(Host, HOSTS.table, narrow, limit)

    def names(self, limit: int) -> list[str]:
        """The hosts and switches that were seen last, at most ``limit``."""
        table = HOSTS.table
        query = select(table.c.host).order_by(table.c.last_seen.desc()).limit(limit)
        with self._database.reading("list names of hosts") as connection:
            return list(connection.execute(query).scalars())

    def last_seen(self) -> dt.datetime | None:
        """When any of them was last seen, to half a minute; None: none ever was."""
        query = select(func.max(HOSTS.table.c.last_seen))
        with self._database.reading("find when a host was last seen") as connection:
            return connection.execute(query).scalar()

    def forget_ghosts(self, now: dt.datetime) -> int:
        """Delete the ghosts of long ago with their devices; how many there were.

        A host that is held stays, and so do the records of jobs that ran there.
        """
        table = HOSTS.table
        old = table.c.last_seen < now - dt.timedelta(days=GHOST_KEPT_DAYS)
        held = select(HOLDS.c.host).where(HOLDS.c.ended_at.is_(None))
        some = (
            select(table.c.host)
            .where(old, is_ghost(table, now), table.c.host.not_in(held))
            .limit(GHOSTS_FORGOTTEN_AT_ONCE)
        )
        with self._database.writing("forget ghosts") as connection:
            names = list(connection.execute(some).scalars())
            for part in in_pieces(names):
                connection.execute(delete(table).where(table.c.host.in_(part)))
        return len(names)

    def forget_gone(self, now: dt.datetime, kept_days: int) -> list[str]:
        """Delete hosts and switches that were not seen for so many days; their names.

        One that is held stays: an operator waits for it. Records of jobs and incidents stay.
        """
        table = HOSTS.table
        old = table.c.last_seen < now - dt.timedelta(days=kept_days)
        held = select(HOLDS.c.host).where(HOLDS.c.ended_at.is_(None))
        some = (
            select(table.c.host)
            .where(old, table.c.host.not_in(held))
            .order_by(table.c.last_seen)
            .limit(GONE_FORGOTTEN_AT_ONCE)
        )
        with self._database.writing("forget hosts that are gone") as connection:
            names = list(connection.execute(some).scalars())
            delete_hosts(connection, names)
        return names

    def remove(self, name: str) -> bool:
        """Delete a host or switch with its devices, ports, cables and agent; whether it was."""
        if not is_name(name):
            return False
        with self._database.writing("remove a host") as connection:
            return delete_hosts(connection, [name]) > 0

    def named(self, names: Sequence[str]) -> list[Host]:
        """The hosts of these names, by name; a page of names at most."""
        asked = [name for name in names if is_name(name)]
        if not asked:
            return []
        return self._database.ask(
            Host, HOSTS.table, lambda query, of: query.where(of.host.in_(asked)), len(names)
        )

    def devices(
        self, host: str, after: tuple[DeviceKind, str] | None = None, limit: int = PAGE_MAX
    ) -> list[Device]:
        """A page of a host's devices by kind and name: those after one, at most `limit`."""
        if not is_name(host):
            return []

        def narrow(query: Query, of: Any) -> Query:  # noqa: ANN401 - a table's columns
            query = query.where(of.host == host)
            if after is None:
                return query
            return query.where(
                tuple_(of.kind, of.device) > tuple_(str(after[0]), before_nul(after[1]))
            )

        return self._database.ask(Device, DEVICES.table, narrow, limit)

    def ports(
        self,
        host: str | None = None,
        device: str | None = None,
        after: PortId | None = None,
        limit: int = PAGE_DEFAULT,
    ) -> list[Port]:
        """A page of ports by host, device and port, of all hosts or one, of all devices or one."""
        if not all(is_name(name) for name in (host, device) if name is not None):
            return []

        def narrow(query: Query, of: Any) -> Query:  # noqa: ANN401 - a table's columns
            if host is not None:
                query = query.where(of.host == host)
            if device is not None:
                query = query.where(of.device == device)
            if after is None:
                return query
            position = tuple_(after.host, after.device, after.port)
            return query.where(tuple_(of.host, of.device, of.port) > position)

        return self._database.ask(Port, PORTS.table, narrow, limit)

    def agent(self, name: str) -> Agent | None:
        return self._database.one(Agent, AGENTS, name) if name.isprintable() else None


class Inventory:
    """All tables, by subject. `migrate` must have run once before the rest."""

    def __init__(self, url: str) -> None:
        self._database = database = Database(url)
        self.migrate, self.ping, self.close = database.migrate, database.ping, database.close
        self.hosts = HostTables(database)
        self.links = LinkTables(database)
        self.jobs = JobTables(database)
        self.places = PlaceTables(database)
        self.captures = CaptureTables(database)
        self.leases = LeaseTables(database)
        self.incidents = IncidentTables(database)
        self.alerts = AlertTables(database)
        self.notices = NoticeTables(database)
        self.silences = SilenceTables(database)
        self.health = HealthTables(database)
        self.actions = ActionTables(database)
        self.feedback = FeedbackTables(database)
        self.work = WorkTables(database)
        self.tokens = TokenTables(database)
        self.keys = KeyTables(database)
        self.rollouts = RolloutTables(database)
        self.orders = OrderTables(database)

    @property
    def quarantine(self) -> Quarantine:
        """Where readers note rows that they cannot use; a service sets its own."""
        return self._database.quarantine

    @quarantine.setter
    def quarantine(self, quarantine: Quarantine) -> None:
        self._database.quarantine = quarantine

    def observe(self, observations: Iterable[Observation]) -> int:
        """In any order, also again; how many ends were left out (`ENDS_PER_HOST_MAX`)."""
        tally = Tally(observations)
        with self._database.writing("keep sightings") as connection:
            write_tally(connection, tally)
            left_out = write_links(connection, tally.links)
            write_job_sightings(connection, tally.jobs)
        return left_out

    def set_port_values(self, rows: Iterable[PortValues]) -> None:
        """Keep the latest values of ports, which thereby have been seen."""
        self.observe(
            Observation.at(sighting, row.seen_at)
            for row in rows
            if (sighting := row.sighting()) is not None
        )

    def note_batches(self, runs: Iterable[BatchRun]) -> None:
        """Each run must be one agent's batches of one boot."""
        by_agent: dict[str, list[BatchRun]] = {}
        for run in sorted(runs, key=lambda run: (run.received_at, run.last)):
            by_agent.setdefault(run.agent, []).append(run)
        tally = Tally(host_observations(by_agent))
        with self._database.writing("note batches") as connection:
            write_agents(connection, by_agent)
            write_tally(connection, tally)


def host_observations(by_agent: dict[str, list[BatchRun]]) -> Iterator[Observation]:
    for agent, runs in by_agent.items():
        for run in runs:
            if run.host:
                sighting = Sighting(host=run.host, host_attributes=(("agent", agent),))
                yield Observation.at(sighting, run.received_at)


def delete_hosts(connection: Connection, names: Sequence[str]) -> int:
    """Delete hosts and what refers to them, and agents that report for no other host."""
    table, count = HOSTS.table, 0
    for some in in_pieces(names):
        theirs = select(table.c.agent).where(table.c.host.in_(some), table.c.agent.is_not(None))
        agents = set(connection.execute(theirs).scalars())
        count += connection.execute(delete(table).where(table.c.host.in_(some))).rowcount
        others = select(table.c.agent).where(table.c.agent.in_(agents))
        alone = agents - set(connection.execute(others).scalars())
        connection.execute(delete(AGENTS).where(AGENTS.c.agent.in_(alone)))
        connection.execute(delete(REPORTS).where(REPORTS.c.agent.in_(alone)))
    return count


# --- rows ---------------------------------------------------------------------------------------


def write_tally(connection: Connection, tally: Tally) -> None:
    """Write all three tables; hosts first, because the others refer to them."""
    write_things(connection, HOSTS, tally.hosts)
    write_things(connection, DEVICES, tally.devices)
    write_things(connection, PORTS, tally.ports)


def write_things(connection: Connection, kept: Kept, things: Things[Key]) -> None:
    """Join these things with the rows that are there.

    The upsert inserts new rows whole and moves the times of old ones, which locks them. Attributes
    of old rows are then joined here, because no two databases join JSON alike.
    """
    names = [column.name for column in kept.table.primary_key]
    for some in in_pieces(things.in_order()):
        write = widened(connection, kept.table)
        values = [row_of(kept, names, *item) for item in some]
        if any(seen.attributes for _, seen in some):
            old = connection.execute(write.returning(*kept.table.c), values).mappings().all()
            join_attributes(connection, kept, dict(some), old)
        else:
            connection.execute(write, values)


def widened(connection: Connection, table: Table) -> Any:  # noqa: ANN401 - either dialect's Insert
    """Insert a row; where it is there already, only widen the time in which it was seen."""
    insert = insert_into(connection, table)
    old, new = table.c, insert.excluded
    return insert.on_conflict_do_update(
        index_elements=list(table.primary_key),
        set_={
            "first_seen": case(
                (new.first_seen < old.first_seen, new.first_seen), else_=old.first_seen
            ),
            "last_seen": case((new.last_seen > old.last_seen, new.last_seen), else_=old.last_seen),
        },
    )


def join_attributes(
    connection: Connection, kept: Kept, new: dict[Key, Seen], rows: Sequence[RowMapping]
) -> None:
    """Join attributes into rows, which must be locked; rows that it would not change stay."""
    table, keys = kept.table, [column.name for column in kept.table.primary_key]
    changed = []
    for row in rows:
        key: Any = tuple(row[name] for name in keys)
        stamps = stamps_of(kept, row)
        if join(stamps, new[key].attributes):
            found = {f"key_{name}": row[name] for name in keys}
            changed.append(found | values_of(kept, stamps))
    if changed:
        which = [table.c[name] == bindparam(f"key_{name}") for name in keys]
        names = ("attributes", "attribute_times", *kept.columns)
        values: dict[str, Any] = {name: bindparam(name) for name in names}
        connection.execute(update(table).where(*which).values(values), changed)


def row_of(
    kept: Kept, names: Sequence[str], key: tuple[object, ...], seen: Seen
) -> dict[str, object]:
    """A new thing's row; ``names`` are its key's columns."""
    times = {"first_seen": seen.first, "last_seen": seen.last}
    return dict(zip(names, key, strict=True)) | times | values_of(kept, seen.attributes)


def values_of(kept: Kept, stamps: Stamped) -> dict[str, object]:
    """Attributes as they stand in a row: some as columns, the others together."""
    values: dict[str, object] = {
        name: convert(stamps[name][1]) if name in stamps else kept.defaults.get(name)
        for name, convert in kept.columns.items()
    }
    rest = {name: value for name, (_, value) in stamps.items() if name not in kept.columns}
    times = {name: time_us for name, (time_us, _) in stamps.items()}
    return values | {"attributes": rest, "attribute_times": times}


def stamps_of(kept: Kept, row: RowMapping) -> Stamped:
    """The attributes of a row, out of its columns and its documents: `values_of` undone."""
    rest, times = row["attributes"], row["attribute_times"]
    return {
        name: (time_us, str(row[name] if name in kept.columns else rest[name]))
        for name, time_us in times.items()
    }


def write_agents(connection: Connection, by_agent: dict[str, list[BatchRun]]) -> None:
    """Advance agents' rows by their runs, each agent's in the order in which they were received."""
    agents = sorted(by_agent)
    if not agents:
        return
    # An agent that is new gets a row which ends just before its first batch: then all agents have
    # one, and a row can be locked.
    fresh = [before(by_agent[agent][0]) for agent in agents]
    connection.execute(insert_into(connection, AGENTS).on_conflict_do_nothing(), fresh)
    for some in in_pieces(agents):
        advance_agents(connection, {agent: by_agent[agent] for agent in some})


def before(run: BatchRun) -> dict[str, object]:
    return {
        "agent": run.agent,
        "boot": run.boot,
        "first_sequence": run.first,
        "last_sequence": run.first - 1,
        "last_received_at": run.received_at,
        "batches_missing": 0,
        "gaps": [],
    }


def run_of(row: RowMapping) -> BatchRun:
    gaps = tuple((first, last) for first, last in row["gaps"])
    placed = sum(last - first + 1 for first, last in gaps)
    return BatchRun(
        agent=row["agent"],
        boot=row["boot"],
        first=row["first_sequence"],
        last=row["last_sequence"],
        received_at=row["last_received_at"],
        counted=max(0, row["batches_missing"] - placed),
        gaps=gaps,
    )


def advance_agents(connection: Connection, by_agent: dict[str, list[BatchRun]]) -> None:
    query = select(AGENTS).where(AGENTS.c.agent.in_(by_agent)).order_by(AGENTS.c.agent)
    changed = []
    for row in connection.execute(query.with_for_update()).mappings().all():
        stands = stored = run_of(row)
        for run in by_agent[row["agent"]]:
            stands = stands.succeeded_by(run)
        if stands is not stored:
            changed.append(
                {
                    "key_agent": stands.agent,
                    "boot": stands.boot,
                    "first_sequence": stands.first,
                    "last_sequence": stands.last,
                    "last_received_at": stands.received_at,
                    "batches_missing": stands.missing,
                    "gaps": [list(gap) for gap in stands.gaps],
                }
            )
    if changed:
        which = AGENTS.c.agent == bindparam("key_agent")
        names = changed[0].keys() - {"key_agent"}
        values: dict[str, Any] = {
            name: bindparam(name, type_=AGENTS.c[name].type) for name in sorted(names)
        }
        connection.execute(update(AGENTS).where(which).values(values), changed)
