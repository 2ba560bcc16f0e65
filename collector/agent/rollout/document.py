"""A configuration that comes from the service: what it may set, and whether an agent can use it.

The table says what may come from outside, and everything else is refused by name, so that a new
setting stays with the host's own file until it is added here. What never comes from outside: who
the host is, where it sends to and as whom, which files and addresses it reads, which programs it
starts, which secrets it uses, and whether it takes configurations at all. A service in wrong hands
can then make agents read more, less or nothing of what they read anyway, and no more.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from collector.agent.settings import AgentSettings, load_settings
from collector.contract.errors import SettingsError
from collector.contract.layers import Layer, unknown
from collector.contract.rollout import DOCUMENT_BYTES_MAX
from collector.sources import SourceSettings

OF_AGENT: Final = frozenset({"flush_seconds", "retry_seconds_max", "stop_seconds", "sources"})
OF_EVERY_SOURCE: Final = frozenset({"interval_seconds", "timeout_seconds"})
SWITCHED: Final = "enabled"
OF_SOURCE: Final[Mapping[str, frozenset[str]]] = {
    "bursts": frozenset(
        {
            *(SWITCHED, "devices", "interfaces", "period_seconds", "threshold", "release"),
            *("windows_min", "line_rates", "ring_seconds"),
        }
    ),
    # It starts programs of the host's time daemons.
    "clock": frozenset(),
    "configuration": frozenset({SWITCHED}),
    "dcgm": frozenset({SWITCHED}),
    "disks": frozenset({SWITCHED}),
    "ethtool": frozenset({SWITCHED, "exclude", "pass_through", "driver_values_max"}),
    "flight_recorder": frozenset({SWITCHED}),
    "gds": frozenset({SWITCHED}),
    # It logs in to switches: on from outside would be another address to reach.
    "gnmi": frozenset({"sample_seconds", "slow_seconds", "exclude"}),
    "host": frozenset({SWITCHED}),
    # It starts programs, with root's rights on some hosts.
    "ib_fabric": frozenset({"hcas", "answer_milliseconds", "topology_seconds"}),
    # It reads files of a folder that the agent's own file names.
    "ibdiagnet": frozenset({"old_seconds", "hcas"}),
    "ib_sysfs": frozenset({SWITCHED, "exclude", "driver_values_max"}),
    "kernel_log": frozenset({SWITCHED, "look_seconds"}),
    "kineto": frozenset({SWITCHED, "young_seconds"}),
    "links": frozenset({SWITCHED, "look_seconds", "include", "exclude"}),
    "lldp": frozenset({SWITCHED, "exclude"}),
    # It starts a program with root's rights.
    "mlxlink": frozenset({"port_seconds", "round_seconds"}),
    "modules": frozenset({SWITCHED, "exclude", "round_seconds"}),
    "mounts": frozenset({SWITCHED}),
    "nccl_debug": frozenset({SWITCHED}),
    "nccl_inspector": frozenset(
        {SWITCHED, "rows_per_second_max", "young_seconds", "stale_seconds"}
    ),
    "nccl_ras": frozenset({SWITCHED, "ask_seconds", "others_ask_seconds", "wait_seconds"}),
    "nccl_tests": frozenset({SWITCHED}),
    "netdev": frozenset({SWITCHED, "include", "exclude"}),
    "nvml": frozenset({SWITCHED, "per_link", "processes"}),
    # It follows the files that the agent's own file names.
    "opensm": frozenset(),
    # It sends to addresses of other hosts, and answers them: `networks` is the host's consent.
    "probes": frozenset({"flows"}),
    "rdma_resources": frozenset({SWITCHED, "queue_pairs_max"}),
    # It listens to the network, and reads a file that the agent's own file names.
    "sflow": frozenset({"busy_ratio", "counters"}),
    "snmp": frozenset(
        {
            *("answer_seconds", "retries", "rows_per_answer", "switch_seconds"),
            *("include", "exclude", "names_every", "neighbours_every", "sensors_every"),
        }
    ),
    "sriov": frozenset({SWITCHED}),
    "steps": frozenset({SWITCHED, "history_seconds"}),
}
"""What may come from the service, by source, beside `OF_EVERY_SOURCE`."""
NEAR: Final = 0.85
"""How alike a name must be to be taken for a slip of the pen."""
STAYS: Final = "comes from the agent's own file alone; leave it out of the configuration"

SourceTypes = Mapping[str, type[SourceSettings]]
Overlay = Callable[[Layer], AgentSettings]
"""The agent's settings with this layer over its own file."""


def read_document(document: bytes, place: str) -> Layer:
    """The document as a layer of settings; SettingsError names what it must not set, or is not."""
    if len(document) > DOCUMENT_BYTES_MAX:
        raise SettingsError(
            f"{place} has {len(document)} bytes; DOCUMENT_BYTES_MAX is {DOCUMENT_BYTES_MAX}"
        )
    try:
        values = tomllib.loads(document.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{place}: not a TOML file: {error}") from error
    refuse_local(values, place)
    return Layer(place, values, is_typed=True)


def refuse_local(values: Mapping[str, Any], place: str) -> None:
    """Refuse what stays with the host's own file. Values are not named: they may be secrets."""
    for key in values:
        if key in AgentSettings.__struct_fields__ and key not in OF_AGENT:
            raise SettingsError(f"{place}: {key} {STAYS}")
    tables = values.get("sources", {})
    if not isinstance(tables, dict):
        raise SettingsError(f"{place}: sources must be tables: [sources.NAME]")
    for name, table in tables.items():
        if name not in OF_SOURCE:
            raise SettingsError(f"{place}: {unknown('source', name, OF_SOURCE)}")
        if not isinstance(table, dict):
            raise SettingsError(f"{place}: sources.{name} must be a table")
        allowed = OF_EVERY_SOURCE | OF_SOURCE[name]
        for key in table:
            if key not in allowed:
                near = get_close_matches(key, sorted(allowed), 1, NEAR)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise SettingsError(f"{place}: sources.{name}.{key} {STAYS}{hint}")


def check_document(document: bytes, source_types: SourceTypes, place: str) -> None:
    """SettingsError if no agent of this release could use it over the defaults."""
    layer = read_document(document, place)
    load_settings(source_types, file=None, environment={}, flags={}, served=layer)
