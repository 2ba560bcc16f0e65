"""A switch with SONiC's gNMI server (sonic-gnmi): databases of ours, and its answers from them.

What the server does was read in its source and is held against its own recorded answers
(tests/conformance/test_sonic_recordings.py). What matters here: a pattern of ports is answered
with the names on the front plate; objects without fields are left out; a deleted object comes as
an empty one; a path below `COUNTERS/Ethernet*` that does not exist is taken and answered with
nothing; less than a second between samples is refused.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import grpc
from pygnmi.spec.v080 import gnmi_pb2

from tests.doubles.gnmi_server import GnmiServer, tell

Fields = dict[str, str]
Databases = dict[str, dict[str, Fields]]
"""Database → key → fields, as redis has them."""

SAMPLE_NS_MIN = 1_000_000_000
DATABASES = ("APPL_DB", "CONFIG_DB", "COUNTERS_DB", "STATE_DB")
_PERIODIC_FIELD = "SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES"
_BY_OWN_NAME = {
    "PORT*": "COUNTERS_FABRIC_PORT_NAME_MAP",
    "SWITCH*": "COUNTERS_DEBUG_NAME_SWITCH_STAT_MAP",
}


class UnknownPathError(Exception):
    """A path that the server refuses."""


class Change(NamedTuple):
    """A message for the streams of one database."""

    database: str
    message: Any


def separator_of(database: str) -> str:
    return "|" if database in ("CONFIG_DB", "STATE_DB") else ":"


def answer(
    databases: Databases, database: str, path: list[str], *, is_old: bool = False
) -> dict[str, Any]:
    """What the server sends for a subscription; ``is_old``: it refuses tables that are not there.

    >>> tables = {"APPL_DB": {"PORT_TABLE:Ethernet0": {"mtu": "9100"}}}
    >>> answer(tables, "APPL_DB", ["PORT_TABLE"])
    {'Ethernet0': {'mtu': '9100'}}
    """
    if database == "COUNTERS_DB" and len(path) > 1 and path[1].endswith("*"):
        return _virtual(databases, path, is_old=is_old)
    sign = separator_of(database)
    table = sign.join(path)
    keys = databases.get(database, {})
    found = {
        key.removeprefix(table + sign): dict(fields)
        for key, fields in keys.items()
        if key.startswith(table + sign) and fields
    }
    if not found and is_old:
        raise UnknownPathError(f"Failed to find {database} {table}")
    return found


def _virtual(databases: Databases, path: list[str], *, is_old: bool) -> dict[str, Any]:
    """The paths that the server translates: patterns of ports in COUNTERS_DB."""
    table, pattern, kind = (*path, "", "")[:3]
    counters = databases.get("COUNTERS_DB", {})
    if is_old and pattern == "SWITCH*":
        raise UnknownPathError(f"No valid entry found on {':'.join(path)}")
    if (table, kind) == ("COUNTERS", "") and pattern in _BY_OWN_NAME:
        return _by_name(counters, table, counters.get(_BY_OWN_NAME[pattern], {}), {})
    aliases = {
        key.removeprefix("PORT|"): fields["alias"]
        for key, fields in databases.get("CONFIG_DB", {}).items()
        if key.startswith("PORT|") and "alias" in fields
    }
    ports = counters.get("COUNTERS_PORT_NAME_MAP", {})
    if (table, kind) in (("COUNTERS", ""), ("RATES", "")) and not (is_old and table == "RATES"):
        return _by_name(counters, table, ports, aliases)
    if (table, kind) == ("COUNTERS", "Queues"):
        queues = counters.get("COUNTERS_QUEUE_NAME_MAP", {})
        found = _by_name(counters, table, queues, aliases)
        for name, fields in _by_name(counters, "PERIODIC_WATERMARKS", queues, aliases).items():
            if _PERIODIC_FIELD in fields:
                found[f"{name}:periodic"] = {_PERIODIC_FIELD: fields[_PERIODIC_FIELD]}
        return found
    if (table, kind) == ("PERIODIC_WATERMARKS", "PriorityGroups") and not is_old:
        groups = counters.get("COUNTERS_PG_NAME_MAP", {})
        return _by_name(counters, table, groups, aliases)
    if table == "COUNTERS":  # taken for a field of ports; one that no port has is no error
        named = _by_name(counters, table, ports, aliases)
        return {port: {kind: has[kind]} for port, has in named.items() if kind in has}
    if is_old:
        raise UnknownPathError(f"No valid entry found on {':'.join(path)}")
    return {}


def _by_name(
    counters: Mapping[str, Fields], table: str, oids: Fields, aliases: Mapping[str, str]
) -> dict[str, Any]:
    found = {}
    for name, oid in oids.items():
        port, sign, rest = name.partition(":")
        if fields := counters.get(f"{table}:{oid}"):
            found[f"{aliases.get(port, port)}{sign}{rest}"] = dict(fields)
    return found


class SonicServer(GnmiServer):
    """The server. ``is_old``: it refuses what newer ones take and leave unanswered."""

    def __init__(self, databases: Databases, *, is_old: bool = False) -> None:
        super().__init__()
        self.databases = databases
        self.is_old = is_old

    def change(self, database: str, key: str, fields: Fields | None) -> None:
        """Set an object, or delete it, and send that to those who listen for changes."""
        table, _, name = key.partition(separator_of(database))
        if fields is None:
            self.databases[database].pop(key, None)
        else:
            self.databases[database][key] = fields
        self.say(Change(database, tell({f"/{table}": {name: fields or {}}})))

    def _refuse(self, wanted: Any, context: Any) -> None:  # noqa: ANN401 - untyped
        super()._refuse(wanted, context)
        database = wanted.prefix.target
        if database not in DATABASES:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Invalid target dbName {database}")
        for each in wanted.subscription:
            is_sampled = each.mode == gnmi_pb2.SAMPLE
            if is_sampled and 0 < each.sample_interval < SAMPLE_NS_MIN:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "invalid interval")
            try:
                self._answer(database, each)
            except UnknownPathError as error:
                context.abort(grpc.StatusCode.NOT_FOUND, str(error))

    def _answer(self, database: str, subscription: Any) -> dict[str, Any]:  # noqa: ANN401 - untyped
        path = [element.name for element in subscription.path.elem]
        return answer(self.databases, database, path, is_old=self.is_old)

    def _tell_tree(self, wanted: Any) -> Iterator[Any]:  # noqa: ANN401 - untyped
        for each in wanted.subscription:
            path = "/" + "/".join(element.name for element in each.path.elem)
            yield tell({path: self._answer(wanted.prefix.target, each)})

    def _go_on(self, wanted: Any, news: Any) -> Iterator[Any]:  # noqa: ANN401 - untyped
        for message in super()._go_on(wanted, news):
            if not isinstance(message, Change):
                yield message
            elif message.database == wanted.prefix.target:
                yield message.message


# --- a switch of ours ----------------------------------------------------------------------------


_SMALL_SWITCH: Databases = {
    "CONFIG_DB": {"PORT|Ethernet0": {"alias": "etp1"}, "PORT|Ethernet8": {"alias": "etp2"}},
    "APPL_DB": {
        "PORT_TABLE:Ethernet0": {"alias": "etp1", "oper_status": "up", "speed": "400000"},
        "PORT_TABLE:Ethernet8": {"alias": "etp2", "oper_status": "down", "speed": "400000"},
        "PORT_TABLE:Ethernet16": {"oper_status": "up", "speed": "100000"},
        "LLDP_ENTRY_TABLE:Ethernet0": {
            "lldp_rem_sys_name": "spine-1",
            "lldp_rem_port_id": "Ethernet64",
        },
    },
    "STATE_DB": {
        "TRANSCEIVER_DOM_SENSOR|Ethernet0": {
            "temperature": "41.5",
            "rx1power": "-3.0103",
            "rx2power": "-inf",
            "rx3power": "N/A",
        },
        "TRANSCEIVER_INFO|Ethernet0": {
            "type": "OSFP 8X Pluggable Transceiver",
            "manufacturer": "MAKER",
            "model": "OSFP-400G-DR4",
            "vendor_rev": "1A",
            "serial": "MK00XXX0001",
            "active_firmware": "1.2.0",
        },
        "TRANSCEIVER_INFO|Ethernet8": {
            "type": "QSFP28 or later",
            "manufacturename": "MAKER",
            "modelname": "QSFP-100G-DAC",
            "hardwarerev": "A3",
            "serialnum": "MK00XXX0002",
        },
    },
    "COUNTERS_DB": {
        "COUNTERS_PORT_NAME_MAP": {
            "Ethernet0": "oid:0x1",
            "Ethernet8": "oid:0x2",
            "Ethernet16": "oid:0x3",
        },
        "COUNTERS_QUEUE_NAME_MAP": {"Ethernet0:3": "oid:0x13", "Ethernet0:4": "oid:0x14"},
        "COUNTERS_PG_NAME_MAP": {"Ethernet0:3": "oid:0x23", "Ethernet8:3": "oid:0x24"},
        "COUNTERS_DEBUG_NAME_SWITCH_STAT_MAP": {"SWITCH_ID": "oid:0x31"},
        "COUNTERS:oid:0x1": {
            "SAI_PORT_STAT_IF_IN_OCTETS": "1001",
            "SAI_PORT_STAT_PFC_3_RX_PKTS": "41",
            "SAI_PORT_STAT_IF_IN_FEC_CODEWORD_ERRORS_S12": "7",
        },
        "COUNTERS:oid:0x2": {"SAI_PORT_STAT_IF_IN_OCTETS": "1008"},
        "COUNTERS:oid:0x3": {"SAI_PORT_STAT_IF_IN_OCTETS": "1016"},
        "COUNTERS:oid:0x13": {
            "SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES": "4096",
            "PFC_WD_STATUS": "stormed",
        },
        "PERIODIC_WATERMARKS:oid:0x13": {"SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES": "8192"},
        "PERIODIC_WATERMARKS:oid:0x14": {"SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES": "512"},
        "PERIODIC_WATERMARKS:oid:0x23": {
            "SAI_INGRESS_PRIORITY_GROUP_STAT_XOFF_ROOM_WATERMARK_BYTES": "2048"
        },
        "COUNTERS:oid:0x31": {"SAI_SWITCH_STAT_PACKET_INTEGRITY_DROP": "5"},
        "RATES:oid:0x1": {"FEC_PRE_BER": "3.5e-09", "FEC_POST_BER": "0", "RX_BPS": "1.5"},
    },
}


def small_switch() -> Databases:
    """Two ports with names on the front plate and one without; made by hand.

    The layout is that of sonic-gnmi's test data, none of which is copied.
    """
    return copy.deepcopy(_SMALL_SWITCH)
