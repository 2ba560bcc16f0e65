"""The inventory's cables: the neighbour that each port reports, now and in the past."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Select, func, or_, select

from api.data.inventory.cabling_spans import NOBODY, UNPLUGGED
from api.data.inventory.database import Part, Record, in_pieces, table_of
from api.data.inventory.link_rows import CABLINGS, lock_hosts, write_links
from api.data.inventory.records import (
    UP_STATES,
    Cabling,
    DeviceKind,
    FabricDevice,
    FabricEnd,
    FabricPort,
    FabricRows,
    Host,
)
from api.data.inventory.sightings import PEER_LABELS, LinkEnd, is_name
from api.data.inventory.tables import DeviceRow, HostRow, PortRow
from collector.contract.errors import InventoryError
from collector.contract.identity import PortId

LOOK_BACK_DAYS: Final = 7
"""A thing unseen for this long is no part of the fabric any more: otherwise a switch that was
renamed or removed would keep its old neighbours for ever. Longer than a poller's outage lasts."""
LOOK_BACK: Final = timedelta(days=LOOK_BACK_DAYS)

FABRIC_ROWS_MAX: Final = 1_000_000
"""Rows of one table that are read at once: ten times the ports of a hundred thousand GPUs, some
gigabytes. Past it reading the fabric fails with an error that names the bound."""

UNPLUGGED_LOOKED_AT_MAX: Final = 10_000
"""Ends that one round checks for a lost neighbour, those first that lost it last.
The ends of a poller that died are among them and stay as they are."""


PORTS: Final = table_of(PortRow)
DEVICES: Final = table_of(DeviceRow)
HOSTS: Final = table_of(HostRow)

Place = tuple[str, str, str]
"""Host, device, port."""


class Signs(msgspec.Struct, frozen=True):
    """When ports and their pollers last reported: the evidence for an unplugged cable."""

    port: dict[Place, datetime]
    """Ports, and network interfaces as the port 1 that they have."""
    down: set[Place]
    """Ports that report their own link as down."""
    method: dict[tuple[str, str], datetime]
    """By host and method: the latest report of any neighbour."""

    def since_when_unplugged(self, row: Cabling) -> datetime | None:
        """Until when the port was reported without its neighbour; None if that is not certain.

        Either the port reports its link as down, or the source of its neighbours still reports
        those of other ports of the same machine. A poller that died reports none.
        """
        place = (row.host, row.device, row.port)
        heard = self.port.get(place)
        if heard is None:
            return None
        if place not in self.down:
            heard = min(heard, self.method.get((row.host, row.method), row.last_seen))
        return heard if heard >= row.last_seen + UNPLUGGED else None


class LinkTables(Part):
    """Cables: asking for them, and noting that one was unplugged."""

    def cablings(self, port: PortId) -> list[Cabling]:
        """By every method, the latest first. A neighbour without any name: the port had none."""
        if not all(is_name(name) for name in (port.host, port.device, port.port)):
            return []
        columns = CABLINGS.c
        query = wanted(Cabling, CABLINGS).where(
            columns.host == port.host, columns.device == port.device, columns.port == port.port
        )
        query = query.order_by(columns.since.desc(), columns.method, columns.number.desc())
        with self._database.reading("list a port's cablings") as connection:
            return read_all(connection, Cabling, query)

    def fabric(self, at: datetime, *, is_now: bool) -> FabricRows:
        """``is_now``: the moment is the present, so that only what has ended is left out."""
        seen_since, cabling = at - LOOK_BACK, CABLINGS.c
        is_named = or_(*(cabling[name] != "" for name in PEER_LABELS))
        cabled = wanted(FabricEnd, CABLINGS).where(cabling.last_seen >= seen_since, is_named)
        if is_now:
            cabled = cabled.where(cabling.until.is_(None))
        else:
            cabled = cabled.where(cabling.since <= at)
            cabled = cabled.where(cabling.until.is_(None) | (cabling.until >= at))
        of_fabric = DEVICES.c.kind != DeviceKind.GPU
        with self._database.reading("read the fabric") as connection:
            return FabricRows(
                hosts=read_all(connection, Host, there(Host, HOSTS, at)),
                devices=read_all(
                    connection, FabricDevice, there(FabricDevice, DEVICES, at).where(of_fabric)
                ),
                ports=read_all(connection, FabricPort, there(FabricPort, PORTS, at)),
                ends=read_all(connection, FabricEnd, cabled),
            )

    def note_unplugged(self, now: datetime) -> int:
        """End cablings of reported ports that name no neighbour; returns how many."""
        with self._database.reading("look for unplugged cables") as connection:
            rows = quiet_cablings(connection, now)
            signs = read_signs(connection, rows)
        found = {
            (row.host, LinkEnd(device=row.device, port=row.port, method=row.method)): heard
            for row in rows
            if (heard := signs.since_when_unplugged(row)) is not None
        }
        if found:
            with self._database.writing("note unplugged cables") as connection:
                hosts = lock_hosts(connection, (host for host, _ in found))
                ends = {key: (at, at) for key, at in found.items() if key[0] in hosts}
                write_links(connection, ends)
        return len(found)


def wanted(record: type[msgspec.Struct], table: Any) -> Select[Any]:  # noqa: ANN401 - any table
    """A query for what a record has: columns, or attributes that are none."""
    names = record.__struct_fields__
    return select(
        *(
            table.c[name] if name in table.c else table.c.attributes[name].as_string()
            for name in names
        )
    )


def there(record: type[msgspec.Struct], table: Any, at: datetime) -> Select[Any]:  # noqa: ANN401
    query = wanted(record, table).where(table.c.last_seen >= at - LOOK_BACK)
    return query.where(table.c.first_seen <= at)


def read_all(connection: Connection, record: type[Record], query: Select[Any]) -> list[Record]:
    """All rows as records; an error if there are over FABRIC_ROWS_MAX."""
    rows = connection.execute(query.limit(FABRIC_ROWS_MAX + 1)).all()
    if len(rows) > FABRIC_ROWS_MAX:
        raise InventoryError(f"over {FABRIC_ROWS_MAX} rows (FABRIC_ROWS_MAX) of {record.__name__}")
    names = record.__struct_fields__
    return [record(**dict(zip(names, row, strict=True))) for row in rows]


# --- unplugged ----------------------------------------------------------------------------------


def quiet_cablings(connection: Connection, now: datetime) -> list[Cabling]:
    columns = CABLINGS.c
    query = wanted(Cabling, CABLINGS).where(
        columns.until.is_(None),
        columns.last_seen <= now - UNPLUGGED,
        columns.last_seen >= now - LOOK_BACK,
    )
    query = query.order_by(columns.last_seen.desc()).limit(UNPLUGGED_LOOKED_AT_MAX)
    rows = read_all(connection, Cabling, query)
    return [row for row in rows if tuple(getattr(row, name) for name in PEER_LABELS) != NOBODY]


def read_signs(connection: Connection, rows: Iterable[Cabling]) -> Signs:
    signs = Signs({}, set(), {})
    for some in in_pieces(sorted({row.host for row in rows})):
        add_signs(connection, signs, some)
    return signs


def add_signs(connection: Connection, signs: Signs, hosts: Sequence[str]) -> None:
    nics = select(DEVICES.c.host, DEVICES.c.device, DEVICES.c.last_seen)
    nics = nics.where(DEVICES.c.host.in_(hosts), DEVICES.c.kind == DeviceKind.NIC)
    for host, device, last_seen in connection.execute(nics):
        signs.port[host, device, "1"] = last_seen
    ports = select(PORTS.c.host, PORTS.c.device, PORTS.c.port, PORTS.c.last_seen, PORTS.c.state)
    for host, device, port, last_seen, state in connection.execute(
        ports.where(PORTS.c.host.in_(hosts))
    ):
        signs.port[host, device, port] = last_seen
        if state is not None and state not in UP_STATES:
            signs.down.add((host, device, port))
    columns = CABLINGS.c
    methods = select(columns.host, columns.method, func.max(columns.last_seen))
    # The absence of a neighbour may be the port's own report, and proves no poller alive.
    is_named = or_(*(columns[name] != "" for name in PEER_LABELS))
    methods = methods.where(columns.host.in_(hosts), is_named)
    methods = methods.group_by(columns.host, columns.method)
    for host, method, last_seen in connection.execute(methods):
        signs.method[host, method] = last_seen
