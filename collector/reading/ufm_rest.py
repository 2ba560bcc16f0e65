"""Ports, links, events and alarms of an InfiniBand fabric from UFM's REST interface.

For `collector.sources.ib_fabric` beside UFM's page of counters (`collector.reading.ufm`). By the
NVIDIA UFM Enterprise REST API Guide, 6.11 to 6.22: `/resources/ports`, `/resources/links`,
`/app/events` and `/app/alarms`, below `/ufmRestV3` with a token. Every field is optional here:
releases differ, and one odd entry hides no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from collector.contract.errors import HostError
from collector.contract.model import Event, Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.doors.fetch import Access
from collector.doors.host import Host
from collector.parsing.infiniband_diags import PORT_MAX, STATES, clean_name, guid_of, speed_name
from collector.reading.infiniband import (
    AGGREGATION,
    PORT_LINES_MAX,
    FabricNode,
    label_nodes,
)
from collector.tables.infiniband_switches import SPEED_BY_NAME

THROUGH = "ufm"
TOKEN_BYTES_MAX = 4_096
NEWS_SECONDS = 60
"""From one question for events and alarms to the next: UFM itself notices within its own 30 s."""
NEWS_MAX = 64
"""Events and alarms that are passed on at one read; the counts have all of them."""
TEXT_CHARS_MAX = 512
SEVERITIES = ("info", "warning", "minor", "critical")
"""UFM's own; another word counts as `other`."""
PASSED_ON = frozenset({"warning", "minor", "critical"})
OTHER = "other"
PHYSICAL_STATES = {
    "sleep": 1,
    "polling": 2,
    "disabled": 3,
    "training": 4,
    "linkup": 5,
    "active": 5,
    "linkerrorrecovery": 6,
    "phytest": 7,
}
"""UFM's words without blanks; releases write `Link Up` and `Active`."""

UFM_EVENT, UFM_ALARM = "ufm_event", "ufm_alarm"
"""Kinds of events."""

_GUID = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})")
_PLACE = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})_([0-9]{1,3})")
_WIDTH = re.compile(r"(?:IB_)?([0-9]{1,2})x", re.IGNORECASE)


class Place(NamedTuple):
    """A port: its node's GUID and its number."""

    guid: str
    port: int


class PortState(NamedTuple):
    """What UFM reports of a port, in our words; 0 and empty: it does not."""

    place: Place
    state: int
    physical_state: int
    lanes: int
    speed: str


class UfmRest:
    """UFM's answers; it keeps series, and the last event and alarms that it has passed on."""

    def __init__(self, url: str, token_file: str, ca_file: str, *, hcas: bool) -> None:
        self._base = url.rstrip("/") + ("/ufmRestV3" if token_file else "/ufmRest")
        self._token_file, self._ca_file, self._hcas = token_file, ca_file, hcas
        self._series: dict[tuple[str, tuple[tuple[str, str], ...]], Series] = {}
        self._news_due_ns = 0
        self._last_event: int | None = None
        self._alarms: set[int] | None = None
        self._events_seen = dict.fromkeys((*SEVERITIES, OTHER), 0)
        self._standing: dict[str, int] = {}
        self._dropped = 0

    def read(
        self, host: Host, seconds: float, names: dict[str, str], *, with_switches: bool
    ) -> Iterator[Reading]:
        """States, links and news; ``with_switches``: no page of counters reports the switches."""
        deadline_ns = host.monotonic_ns() + int(seconds * NS)
        missing = self._find("fabric_subnet_ufm_up", {})
        try:
            access = self._access(host)
            ports = self._ask(host, "resources/ports", deadline_ns, access)
            links = self._ask(host, "resources/links", deadline_ns, access)
        except HostError as error:
            yield Missing(missing, error.reason, f"{error.path}: {error.detail}"[:TEXT_CHARS_MAX])
            return
        time_ns = host.now_ns()
        yield Sample(missing, 1, time_ns)
        states, nodes = read_ports(ports)
        labels = label_nodes(nodes.values(), names)
        if with_switches:
            yield from self._read_switches(nodes, labels, time_ns)
        for one in states:
            node = nodes[one.place.guid]
            if node.is_switch or self._hcas:
                own = labels[one.place.guid] | {"port": str(one.place.port)}
                yield from self._read_port(one, own, time_ns)
        for near, far in dict.fromkeys(read_links(links)):
            if near.guid in nodes and nodes[near.guid].is_switch:
                yield self._read_link(near, far, nodes, labels, time_ns)
        yield from self._read_news(host, deadline_ns, access)

    # Asking --------------------------------------------------------------------------------------

    def _access(self, host: Host) -> Access:
        if not self._token_file:
            return Access("", self._ca_file)
        token = host.read(self._token_file.lstrip("/"), TOKEN_BYTES_MAX).decode("ascii", "replace")
        if not token.strip() or not token.strip().isprintable():
            detail = "holds no token: make one with POST /ufmRest/app/tokens"
            raise HostError(UnreadReason.UNPARSEABLE, self._token_file, detail)
        # UFM wants the token itself behind the word Basic.
        return Access(f"Basic {token.strip()}", self._ca_file)

    def _ask(
        self, host: Host, path: str, deadline_ns: int, access: Access
    ) -> list[Mapping[str, Any]]:
        url = f"{self._base}/{path}"
        seconds = max((deadline_ns - host.monotonic_ns()) / NS, 0.0)
        body = host.fetch(url, seconds, access)
        try:
            found = msgspec.json.decode(body)
        except (ValueError, RecursionError) as error:  # broken JSON, or text that is no UTF-8
            raise HostError(UnreadReason.UNPARSEABLE, url, f"no JSON: {error}") from error
        if not isinstance(found, list):
            raise HostError(UnreadReason.UNPARSEABLE, url, "no list of objects")
        return [each for each in found[:PORT_LINES_MAX] if isinstance(each, dict)]

    def _find(self, metric: str, labels: Mapping[str, str]) -> Series:
        key = metric, tuple(labels.items())
        if key not in self._series:
            if len(self._series) >= PORT_LINES_MAX * len(SEVERITIES):
                self._series.clear()
            self._series[key] = Series(metric, labels)
        return self._series[key]

    # States and links ----------------------------------------------------------------------------

    def _read_switches(
        self, nodes: Mapping[str, FabricNode], labels: Mapping[str, dict[str, str]], time_ns: int
    ) -> Iterator[Reading]:
        switches = [node for node in nodes.values() if node.is_switch]
        series = self._find("fabric_subnet_switches", {"through": THROUGH})
        yield Sample(series, len(switches), time_ns)
        for node in switches:
            facts = {"method": THROUGH, "guid": node.guid, "description": node.description}
            info = {"host": labels[node.guid]["host"], **facts}
            yield Sample(self._find("fabric_switch_info", info), 1, time_ns)

    def _read_port(
        self, one: PortState, labels: Mapping[str, str], time_ns: int
    ) -> Iterator[Reading]:
        state = self._find("fabric_port_state", labels)
        if not one.state:
            yield Missing(state, UnreadReason.ABSENT, "UFM gives no state that we know")
        else:
            yield Sample(state, one.state, time_ns)
        if one.physical_state:
            series = self._find("fabric_port_physical_state", labels)
            yield Sample(series, one.physical_state, time_ns)
        if one.state == STATES["down"]:
            return
        speed = SPEED_BY_NAME.get(one.speed)
        rate = self._find("fabric_port_rate_bits_per_second", labels)
        if one.lanes:
            yield Sample(self._find("fabric_port_lanes", labels), one.lanes, time_ns)
        if one.lanes and speed:
            yield Sample(rate, one.lanes * speed.rate_bits, time_ns)
        else:
            yield Missing(rate, UnreadReason.UNPARSEABLE, f"{one.speed!r} is no speed that we know")

    def _read_link(
        self,
        near: Place,
        far: Place,
        nodes: Mapping[str, FabricNode],
        labels: Mapping[str, dict[str, str]],
        time_ns: int,
    ) -> Sample:
        other = nodes.get(far.guid)
        name = other.description if other is not None else ""
        if other is not None and other.is_switch:
            name = labels[far.guid]["host"]
        if AGGREGATION in name:
            part = {"host": labels[near.guid]["host"], "method": THROUGH}
            part |= {"port": str(near.port), "guid": far.guid}
            return Sample(self._find("fabric_switch_aggregation_info", part), 1, time_ns)
        cable = {
            **labels[near.guid],
            "port": str(near.port),
            "method": THROUGH,
            "peer_name": name,
            "peer_port": str(far.port),
            "peer_guid": far.guid,
        }
        return Sample(self._find("fabric_link_info", cable), 1, time_ns)

    # Events and alarms ---------------------------------------------------------------------------

    def _read_news(self, host: Host, deadline_ns: int, access: Access) -> Iterator[Reading]:
        now_ns = host.monotonic_ns()
        failed = self._find("fabric_subnet_ufm_alarms", {"severity": OTHER})
        if now_ns >= self._news_due_ns:
            self._news_due_ns = now_ns + NEWS_SECONDS * NS
            try:
                alarms = self._ask(host, "app/alarms", deadline_ns, access)
                events = self._ask(host, "app/events", deadline_ns, access)
            except HostError as error:
                yield Missing(
                    failed, error.reason, f"{error.path}: {error.detail}"[:TEXT_CHARS_MAX]
                )
                return
            self._standing = count_by_severity(alarms)
            yield from self._pass_on(self._new_alarms(alarms), UFM_ALARM, host.now_ns())
            yield from self._pass_on(self._new_events(events), UFM_EVENT, host.now_ns())
        time_ns = host.now_ns()
        for severity, count in self._standing.items():
            series = self._find("fabric_subnet_ufm_alarms", {"severity": severity})
            yield Sample(series, count, time_ns)
        for severity, count in self._events_seen.items():
            series = self._find("fabric_subnet_ufm_events_total", {"severity": severity})
            yield Sample(series, count, time_ns)
        yield Sample(
            self._find("fabric_subnet_ufm_dropped_events_total", {}), self._dropped, time_ns
        )

    def _new_alarms(self, alarms: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Alarms that were not there at the last look; none at the first."""
        ids = {one["id"]: one for one in alarms if isinstance(one.get("id"), int)}
        known, self._alarms = self._alarms, set(ids)
        return [] if known is None else [one for key, one in ids.items() if key not in known]

    def _new_events(self, events: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Events after the last one that was seen; none at the first look."""
        ids = {one["id"]: one for one in events if isinstance(one.get("id"), int)}
        last = self._last_event
        self._last_event = max([last or 0, *ids])
        if last is None:
            return []
        fresh = [one for key, one in sorted(ids.items()) if key > last]
        for one in fresh:
            self._events_seen[severity_of(one)] += 1
        return fresh

    def _pass_on(self, found: list[Mapping[str, Any]], kind: str, now_ns: int) -> Iterator[Event]:
        wanted = [one for one in found if severity_of(one) in PASSED_ON]
        self._dropped += max(0, len(wanted) - NEWS_MAX)
        for one in wanted[-NEWS_MAX:]:
            yield news_event(one, kind, now_ns)


# Pure -------------------------------------------------------------------------------------------


def text_of(entry: Mapping[str, Any], name: str) -> str:
    word = entry.get(name)
    return clean_name(str(word)) if isinstance(word, str | int) else ""


def number_of(entry: Mapping[str, Any], name: str) -> int:
    word = text_of(entry, name)
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 3 else 0  # noqa: PLR2004


def read_ports(entries: list[Mapping[str, Any]]) -> tuple[list[PortState], dict[str, FabricNode]]:
    """Ports and the nodes that they are of; entries without a GUID or a number are passed over."""
    states: dict[Place, PortState] = {}
    nodes: dict[str, FabricNode] = {}
    for entry in entries:
        guid, port = _GUID.fullmatch(text_of(entry, "guid")), number_of(entry, "number")
        if guid is None or not 0 < port <= PORT_MAX:
            continue
        place = Place(guid_of(guid[1]), port)
        is_switch = is_of_switch(entry)
        if place.guid not in nodes:
            named = "system_name" if is_switch else "node_description"
            nodes[place.guid] = FabricNode(place.guid, is_switch, description=text_of(entry, named))
        width = _WIDTH.fullmatch(text_of(entry, "active_width"))
        physical = text_of(entry, "physical_state").lower().replace(" ", "")
        states[place] = PortState(
            place,
            STATES.get(text_of(entry, "logical_state").lower(), 0),
            PHYSICAL_STATES.get(physical, 0),
            int(width[1]) if width else 0,
            speed_name(text_of(entry, "active_speed")),
        )
    return list(states.values()), nodes


def is_of_switch(entry: Mapping[str, Any]) -> bool:
    """Whether a port is a switch's: UFM's path says so, `default / Switch: leaf-0 / 6`."""
    path = str(entry.get("path", ""))[:TEXT_CHARS_MAX]
    if "Switch:" in path:
        return True
    if "Computer:" in path or "Host:" in path:
        return False
    words = text_of(entry, "node_description")
    return " mlx" not in words and " HCA" not in words


def read_links(entries: list[Mapping[str, Any]]) -> Iterator[tuple[Place, Place]]:
    """Both ends of each link, from each side."""
    for entry in entries:
        ends = []
        for side in ("source", "destination"):
            guid = _GUID.fullmatch(text_of(entry, f"{side}_guid"))
            port = number_of(entry, f"{side}_port")
            if guid is not None and 0 < port <= PORT_MAX:
                ends.append(Place(guid_of(guid[1]), port))
        if len(ends) == 2:  # noqa: PLR2004 - both
            yield ends[0], ends[1]
            yield ends[1], ends[0]


def severity_of(entry: Mapping[str, Any]) -> str:
    word = text_of(entry, "severity").lower()
    return word if word in SEVERITIES else OTHER


def count_by_severity(entries: list[Mapping[str, Any]]) -> dict[str, int]:
    counts = dict.fromkeys((*SEVERITIES, OTHER), 0)
    for entry in entries:
        counts[severity_of(entry)] += 1
    return counts


def news_event(entry: Mapping[str, Any], kind: str, now_ns: int) -> Event:
    """An event or alarm of UFM's; where it names a port, the port's GUID and number with it."""
    thing = text_of(entry, "object_name") or text_of(entry, "related_object_name")
    place = _PLACE.fullmatch(thing)
    what = text_of(entry, "reason") or text_of(entry, "description") or text_of(entry, "summary")
    facts = {
        "severity": severity_of(entry),
        "name": text_of(entry, "name"),
        "object": thing,
        "path": text_of(entry, "object_path") or text_of(entry, "related_object_path"),
        "guid": guid_of(place[1]) if place else "",
        "port": place[2] if place else "",
    }
    return Event(
        kind=kind,
        time_ns=time_of(text_of(entry, "timestamp"), now_ns),
        labels={},
        message=f"UFM: {what or facts['name']} ({facts['path'] or thing})"[:TEXT_CHARS_MAX],
        attributes={name: word for name, word in facts.items() if word},
    )


def time_of(text: str, now_ns: int) -> int:
    """UFM's time, which has no zone and is read as UTC; never ahead of ours."""
    try:
        moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
        return min(int(moment.timestamp()) * NS, now_ns)
    except (ValueError, OverflowError):
        return now_ns
