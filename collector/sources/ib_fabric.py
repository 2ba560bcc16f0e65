"""InfiniBand switches: counters, link states and cables of a whole fabric, from one host of it.

Off by default: one or two hosts of a fabric should ask it, never all of them. It needs the
programs of infiniband-diags and read and write access to `/dev/infiniband/umad*`, or UFM's page
(`ufm_url`), and then no programs. `collector.reading.infiniband` asks; this source turns answers
into readings.

A switch is a host whose device is the switch itself. By default only ports of switches are read:
hosts with an agent see their own HCAs' counters, and more of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import msgspec

from collector.contract.counters import advance
from collector.contract.errors import HostError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.doors.host import Host
from collector.parsing.infiniband_diags import DOWN, Block, Peer, parse_name_map
from collector.reading.infiniband import (
    AGGREGATION,
    PORT_LINES_MAX,
    Answer,
    Asking,
    Details,
    Fabric,
    FabricNode,
    Port,
    Programs,
    ask_details,
    ask_hcas,
    ask_lanes,
    ask_switch,
    read_counter,
)
from collector.reading.partitions import Partitions
from collector.reading.subnet_manager import Managers
from collector.reading.ufm import Ufm
from collector.reading.ufm_rest import UfmRest
from collector.sources import SourceSettings
from collector.tables.infiniband_switches import (
    CLAMPS_64,
    COUNTERS,
    DISCARD_DETAILS,
    DISCARDS,
    HAS_EXTENDED,
    HAS_WAIT,
    LANE_WAIT,
    LANE_WAITS,
    SPEED_BY_NAME,
    TICKS,
    WAIT,
    WAIT_SECONDS,
)

METHOD = "ib"
COUNTED = [(name, counter) for name, counter in COUNTERS.items() if name != WAIT]
"""What `read_counters` reads: a thousand ports of this every few seconds."""
TIME_SHARE = 0.9
"""Of `timeout_seconds` that programs get; the rest is for parsing their output."""
PROCESSES_MAX = 16
"""Programs at once, whatever is set. Each holds a device file, and ibsim serves ten."""
DETAILS_MAX = 32
"""Ports whose discards are looked into at one read, a process each: some 0.1 s of one core."""
DETAILS_SECONDS = 60
"""After this time they are looked into again though the count is the same: it may stand at its
end."""
LANES_MAX = 8
"""Ports that are asked for the waits of their virtual lanes at one read, a process each."""
DETAILS_RETRY_SECONDS = 600
"""How long a switch that refused such a question is not asked again."""


MASTERS = "masters/"
"""The key of what is saved about subnet managers; no HCA has this name."""


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `ib_fabric`."""

    enabled: bool = False
    """Set it on one or two hosts of a fabric."""
    interval_seconds: float = 10.0
    timeout_seconds: float = 8.0
    through: tuple[str, ...] = ()
    """HCAs of this host, `mlx5_0` or `mlx5_0:1`, each in a fabric of its own; empty: the first that
    is active."""
    hcas: bool = False
    """Read ports of HCAs too, for hosts without an agent."""
    processes: int = 4
    """Programs at once. More than the cores of this host bring little."""
    answer_milliseconds: int = 200
    """How long a switch may take to answer before it is asked again, three times in all."""
    topology_seconds: float = 60.0
    """A scan for new, lost and changed links is made at least this often, and more often while it
    is cheap."""
    node_name_map: str = ""
    """A file with lines of GUID and "name", as opensm takes it."""
    programs_dir: str = ""
    """Where infiniband-diags is; empty: on PATH."""
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    """What programs get besides this agent's environment."""
    virtual_lanes: bool = False
    """Ask some of the ports that wait longest which virtual lanes wait: a process for each."""
    partitions: bool = False
    """Ask HCAs' ports which partitions they are in: a process for each, a few at every read."""
    ufm_url: str = ""
    """UFM's page, such as http://ufm:9001/metrics; where it is set, no programs are run."""
    ufm_rest: str = ""
    """UFM's address, such as https://ufm: states, rates, links, events and alarms from its REST
    interface; where it is set, no programs are run."""
    ufm_token_file: str = ""
    """A file with an access token of UFM's."""
    ufm_ca_file: str = ""
    """Certificates to trust for UFM; empty: the system's."""


class IbFabric:
    """The source; it keeps what it knows of each fabric, and the time that ports have waited."""

    name: ClassVar[str] = "ib_fabric"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        self._ufm = Ufm(settings.ufm_url, hcas=settings.hcas) if settings.ufm_url else None
        self._rest = (
            UfmRest(
                settings.ufm_rest,
                settings.ufm_token_file,
                settings.ufm_ca_file,
                hcas=settings.hcas,
            )
            if settings.ufm_rest
            else None
        )
        self._fabrics = {
            through: Poller(settings, through) for through in settings.through or ("",)
        }
        self._names: dict[str, str] = {}

    def read(self, host: Host) -> Iterator[Reading]:
        if not self._settings.enabled:
            return
        self._read_names(host)
        seconds = self._settings.timeout_seconds * TIME_SHARE
        if self._ufm or self._rest:
            # The page is the larger of both.
            share = seconds / 2 if self._ufm and self._rest else seconds
            if self._ufm:
                yield from self._ufm.read(host, share, self._names)
            if self._rest:
                alone = self._ufm is None
                yield from self._rest.read(host, share, self._names, with_switches=alone)
            return
        deadline_ns = host.monotonic_ns() + int(seconds * NS)
        taken: set[str] = set()
        for poller in self._fabrics.values():
            yield from poller.read(host, deadline_ns, self._names, taken)

    def save_state(self) -> dict[str, Any]:
        """The ticks and seconds that each port has waited, and the last master, by fabric."""
        waits: dict[str, Any] = {
            through: poller.waits() for through, poller in self._fabrics.items()
        }
        masters = {
            through: (poller.managers.master, poller.managers.changes)
            for through, poller in self._fabrics.items()
        }
        return waits | {MASTERS: masters}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a state; what has another shape starts at 0."""
        masters = state.get(MASTERS)
        for through, poller in self._fabrics.items():
            match masters.get(through) if isinstance(masters, dict) else None:
                case [str(guid), int(changes)] if changes >= 0:
                    poller.managers.master, poller.managers.changes = guid, changes
        for through, waits in state.items():
            if through in self._fabrics and isinstance(waits, dict):
                self._fabrics[through].restore(waits)

    def _read_names(self, host: Host) -> None:
        """The node name map as it is now; the last one that could be read stays."""
        path = self._settings.node_name_map
        if path:
            try:
                self._names = parse_name_map(host.read(path.lstrip("/")))
            except HostError:
                return


SOURCE = IbFabric


# One fabric -------------------------------------------------------------------------------------


class Poller:
    """Reads one fabric again and again."""

    def __init__(self, settings: Settings, through: str) -> None:
        self._asking = Asking(
            through, settings.answer_milliseconds, settings.programs_dir, settings.environment
        )
        self._processes = max(1, min(settings.processes, PROCESSES_MAX))
        self.fabric = Fabric(hcas=settings.hcas, topology_seconds=settings.topology_seconds)
        self.managers = Managers(through)
        self._has_lanes = settings.virtual_lanes
        self._partitions = Partitions() if settings.partitions else None
        self._silent: set[str] = set()
        self._restored: dict[str, tuple[int, float]] = {}
        labels = {"through": through}
        self._series = {
            what: Series(f"fabric_subnet_{what}", labels)
            for what in ("switches", "silent_switches", "scans_total", "programs", "broken_lines")
        }

    def read(
        self, host: Host, deadline_ns: int, names: dict[str, str], taken: set[str]
    ) -> Iterator[Reading]:
        """Every reading of this fabric, without nodes that another fabric's read has ``taken``."""
        programs = Programs(host, self._asking, deadline_ns)
        self.fabric.discover(programs, names)
        nodes = [node for guid, node in self.fabric.nodes.items() if guid not in taken]
        taken.update(node.guid for node in nodes)
        # Switches without an answer last time come first; readings stay in the order of the fabric.
        answered = self._ask(programs, sorted(nodes, key=lambda node: node.asked_ns))
        by_guid = {answer.node.guid: answer for answer in answered}
        answers = [by_guid[node.guid] for node in nodes]
        time_ns = host.now_ns()
        yield from self.managers.read(programs, self._name_of, time_ns)
        yield from self._read_subnet(programs, answers, time_ns)
        for answer in answers:
            if answer.node.is_switch:
                yield from read_switch(answer, time_ns)
            for port in answer.node.ports.values():
                yield from self._read_port(answer, port, time_ns)
        if self._partitions:
            # With the time that all else has left.
            yield from self._partitions.read(programs, self.fabric, names, time_ns)

    def _name_of(self, port_guid: str) -> str:
        return self.fabric.peer_name(self.fabric.node_guid(port_guid), "")

    def _ask(self, programs: Programs, nodes: list[FabricNode]) -> list[Answer]:
        """Ask every node, some at once, and then some ports about their discards."""
        switches = [node for node in nodes if node.is_switch]
        hcas = [node for node in nodes if not node.is_switch]
        with ThreadPoolExecutor(self._processes) as pool:
            of_hcas = pool.submit(ask_hcas, programs, self.fabric, hcas) if hcas else None
            answers = list(pool.map(lambda node: ask_switch(programs, node), switches))
            self._ask_details(programs, pool, answers)
            if self._has_lanes:
                self._ask_lanes(programs, pool, answers)
            answers += of_hcas.result() if of_hcas else []
        for answer in answers:
            if answer.extended or answer.plain:
                answer.node.asked_ns = programs.now_ns()
        return answers

    def _ask_details(
        self, programs: Programs, pool: ThreadPoolExecutor, answers: list[Answer]
    ) -> None:
        """Look into discards that are new, those first that were not looked into for longest."""
        now_ns = programs.now_ns()
        wanted: list[tuple[int, FabricNode, Port, int]] = []
        for answer in answers:
            if answer.node.details_ns > now_ns:
                continue
            for port in answer.node.ports.values():
                discards, _ = pick(answer, port.number, DISCARDS)
                last = port.details
                if discards and needs_details(last, discards, now_ns):
                    asked_ns = last.asked_ns if last else 0
                    wanted.append((asked_ns, answer.node, port, discards))
        wanted.sort(key=lambda each: each[0])
        chosen = wanted[:DETAILS_MAX]
        found = pool.map(lambda each: ask_details(programs, *each[1:]), chosen)
        for (_, node, port, _), details in zip(chosen, found, strict=True):
            port.details = details
            if details.failure:
                node.details_ns = now_ns + DETAILS_RETRY_SECONDS * NS

    def _ask_lanes(
        self, programs: Programs, pool: ThreadPoolExecutor, answers: list[Answer]
    ) -> None:
        """Which virtual lanes wait, of the ports that have waited longest since the last read."""
        waited: list[tuple[int, FabricNode, Port]] = []
        for answer in answers:
            for port in answer.node.ports.values():
                ticks, _ = pick(answer, port.number, WAIT)
                if ticks and ticks > max(port.ticks, 0):
                    waited.append((ticks, answer.node, port))
        waited.sort(key=lambda each: max(each[2].ticks, 0) - each[0])
        chosen = waited[:LANES_MAX]
        found = pool.map(lambda each: ask_lanes(programs, *each[1:]), chosen)
        for (ticks, _, port), lanes in zip(chosen, found, strict=True):
            port.lanes = ticks, lanes

    def _read_subnet(
        self, programs: Programs, answers: list[Answer], time_ns: int
    ) -> Iterator[Reading]:
        """Readings of the fabric as a whole, and of the poll itself."""
        discovery = self.fabric.discovery
        switches = [answer for answer in answers if answer.node.is_switch]
        silent = {each.node.guid for each in switches if not (each.extended or each.plain)}
        if silent - self._silent:
            self.fabric.is_suspect = True  # something has changed: look at once
        self._silent = silent
        series = self._series
        if discovery.failure:
            yield Missing(series["scans_total"], *discovery.failure)
        else:
            yield Sample(series["scans_total"], self.fabric.scans, time_ns)
        yield Sample(series["switches"], len(switches), time_ns)
        yield Sample(series["silent_switches"], len(silent), time_ns)
        yield Sample(series["programs"], programs.started, time_ns)
        broken = discovery.broken_lines + sum(answer.broken_lines for answer in answers)
        yield Sample(series["broken_lines"], broken, time_ns)

    def _read_port(self, answer: Answer, port: Port, time_ns: int) -> Iterator[Reading]:
        node = answer.node
        if port.seen_ns == self.fabric.discovered_ns:
            yield from read_link(self.fabric, node, port, time_ns)
        if port.number not in answer.extended and port.number not in answer.plain:
            if answer.failure and (answer.extended or answer.plain or not node.is_switch):
                # One absence for the port; a silent switch has a single one.
                yield Missing(
                    port_series(node, port, COUNTERS["PortXmitData"].metric), *answer.failure
                )
            return
        yield from read_counters(answer, port, time_ns)
        yield from self._read_wait(answer, port, time_ns)
        yield from read_details(answer, port, time_ns)
        yield from read_lanes(answer, port, time_ns)
        downs, _ = pick(answer, port.number, "LinkDownedCounter")
        if downs is not None:
            self.fabric.is_suspect |= 0 <= port.downs < downs
            port.downs = downs

    def _read_wait(self, answer: Answer, port: Port, time_ns: int) -> Iterator[Reading]:
        """The time that a port had to wait for credits, added up from ticks at the rate of now."""
        if port.ticks < 0 and (place := wait_place(answer.node, port)) in self._restored:
            port.ticks, port.wait_seconds = self._restored.pop(place)
        yield from read_wait(answer, port, time_ns)

    # What goes on over a restart ------------------------------------------------------------------

    def waits(self) -> dict[str, tuple[int, float]]:
        current = {
            wait_place(node, port): (port.ticks, port.wait_seconds)
            for node in self.fabric.nodes.values()
            for port in node.ports.values()
            if port.ticks >= 0
        }
        return self._restored | current

    def restore(self, waits: dict[Any, Any]) -> None:
        """Take over what was saved; entries of another shape are passed over."""
        for place, entry in list(waits.items())[:PORT_LINES_MAX]:
            match entry:
                case [int(ticks), float(seconds)] if ticks >= 0 and seconds >= 0:
                    self._restored[str(place)] = ticks, seconds
                case _:
                    pass


def wait_place(node: FabricNode, port: Port) -> str:
    return f"{node.guid}/{port.number}"


# Answers and readings ---------------------------------------------------------------------------


def port_series(node: FabricNode, port: Port, metric: str) -> Series:
    series = port.series.get(metric)
    if series is None:
        labels = node.labels | {"port": str(port.number)}
        series = port.series[metric] = Series(metric, labels)
    return series


def switch_series(node: FabricNode, metric: str) -> Series:
    series = node.series.get(metric)
    if series is None:
        labels = {"host": node.labels["host"], "method": METHOD}
        series = node.series[metric] = Series(metric, labels)
    return series


def read_switch(answer: Answer, time_ns: int) -> Iterator[Reading]:
    node = answer.node
    facts = {"guid": node.guid, "model": model_of(node), "description": node.description}
    info = Series("fabric_switch_info", {"host": node.labels["host"], "method": METHOD, **facts})
    if node.info != info:
        node.info = info
    yield Sample(node.info or info, 1, time_ns)
    blocks = (*answer.extended.values(), *answer.plain.values())
    values = sum(name in COUNTERS for block in blocks for name in block.values)
    yield Sample(switch_series(node, "fabric_switch_up"), 1 if values else 0, time_ns)
    if not values:
        reason, detail = answer.failure or (UnreadReason.ABSENT, "it has no ports")
        yield Missing(switch_series(node, "fabric_switch_poll_values"), reason, detail)
    else:
        yield Sample(switch_series(node, "fabric_switch_poll_values"), values, time_ns)


def model_of(node: FabricNode) -> str:
    return node.model or (node.chip.name if node.chip else "")


def read_link(fabric: Fabric, node: FabricNode, port: Port, time_ns: int) -> Iterator[Reading]:
    """A port's state, rate and neighbour, as the last scan showed them."""
    line = port.line
    if not node.is_switch:
        if port.info is None:
            facts = {"node_guid": node.guid, "link_layer": "InfiniBand"}
            labels = node.labels | {"port": str(port.number)}
            port.info = Series("fabric_port_info", labels | facts)
        yield Sample(port.info, 1, time_ns)
    state = port_series(node, port, "fabric_port_state")
    if line.state:
        yield Sample(state, line.state, time_ns)
    else:
        yield Missing(
            state, UnreadReason.NOT_SUPPORTED, "ibnetdiscover -p lacks it; see iblinkinfo"
        )
    if line.physical_state:
        physical = port_series(node, port, "fabric_port_physical_state")
        yield Sample(physical, line.physical_state, time_ns)
    if line.state == DOWN:
        return  # it has neither lanes nor a rate nor a neighbour
    lanes = port_series(node, port, "fabric_port_lanes")
    rate = port_series(node, port, "fabric_port_rate_bits_per_second")
    speed = SPEED_BY_NAME.get(line.speed)
    if line.lanes:
        yield Sample(lanes, line.lanes, time_ns)
    if line.lanes and speed:
        yield Sample(rate, line.lanes * speed.rate_bits, time_ns)
    else:
        yield Missing(rate, UnreadReason.UNPARSEABLE, f"{line.speed!r} is no speed that we know")
    if line.state:
        could_be = port_series(node, port, "fabric_port_could_be_faster")
        yield Sample(could_be, 1 if line.could_be else 0, time_ns)
    if line.peer:
        name = fabric.peer_name(fabric.node_guid(line.peer.guid), line.peer.name)
        read = read_aggregation if AGGREGATION in name else read_cable
        yield read(fabric, node, port, line.peer, time_ns)


def read_aggregation(
    fabric: Fabric, node: FabricNode, port: Port, peer: Peer, time_ns: int
) -> Sample:
    """The part of a switch that adds numbers up (SHARP), behind a port of its own: no cable."""
    labels = {
        "host": node.labels["host"],
        "method": METHOD,
        "port": str(port.number),
        "guid": fabric.node_guid(peer.guid),
    }
    info = Series("fabric_switch_aggregation_info", labels)
    if port.link != info:
        port.link = info
    return Sample(port.link or info, 1, time_ns)


def read_cable(fabric: Fabric, node: FabricNode, port: Port, peer: Peer, time_ns: int) -> Sample:
    guid = fabric.node_guid(peer.guid)
    labels = {
        **node.labels,
        "port": str(port.number),
        "method": METHOD,
        "peer_name": fabric.peer_name(guid, peer.name),
        "peer_port": str(peer.port),
        "peer_guid": guid,
    }
    link = Series("fabric_link_info", labels)
    if port.link != link:
        port.link = link
    return Sample(port.link or link, 1, time_ns)


def values_of(answer: Answer, number: int) -> tuple[dict[str, int], dict[str, int]]:
    """A port's counters that were read as 64 bits, which are preferred, and the narrow ones."""
    wide, narrow = answer.extended.get(number), answer.plain.get(number)
    is_meant = wide is not None and wide.capabilities & HAS_EXTENDED
    return (wide.values if wide and is_meant else {}), (narrow.values if narrow else {})


def pick(answer: Answer, number: int, name: str) -> tuple[int | None, bool]:
    wide, narrow = values_of(answer, number)
    return (wide[name], True) if name in wide else (narrow.get(name), False)


def block_of(answer: Answer, number: int) -> Block:
    """One of a port's blocks: both report the same abilities of the port."""
    return answer.extended.get(number) or answer.plain[number]


def read_counters(answer: Answer, port: Port, time_ns: int) -> Iterator[Reading]:
    """Every counter of a port but ticks (`read_wait`); an answer that is missing is one absence."""
    node, number, is_reported = answer.node, port.number, False
    wide, narrow = values_of(answer, number)
    for name, counter in COUNTED:
        series = port.series.get(counter.metric) or port_series(node, port, counter.metric)
        if name in wide:
            yield read_counter(series, counter, wide[name], is_wide=True, time_ns=time_ns)
        elif name in narrow:
            yield read_counter(series, counter, narrow[name], is_wide=False, time_ns=time_ns)
        elif counter.is_expected and not (is_reported and answer.failure):
            reason = answer.failure or (UnreadReason.ABSENT, "the port's answer has none")
            yield Missing(series, *reason)
            is_reported = True


def read_wait(answer: Answer, port: Port, time_ns: int) -> Iterator[Reading]:
    """How long a port had to wait for credits: its ticks, and seconds added up from them.

    Added up, because a tick is worth another time once the link has come up with another rate.
    """
    node, counter = answer.node, COUNTERS[WAIT]
    ticks_series = port_series(node, port, TICKS)
    seconds_series = port_series(node, port, WAIT_SECONDS)
    if not block_of(answer, port.number).capabilities & HAS_WAIT:
        yield Missing(
            ticks_series, UnreadReason.NOT_SUPPORTED, "the port reports that it does not count it"
        )
        return
    raw, is_wide = pick(answer, port.number, WAIT)
    if raw is None:
        yield Missing(
            ticks_series, *(answer.failure or (UnreadReason.ABSENT, "the answer has none"))
        )
        return
    ticks = read_counter(ticks_series, counter, raw, is_wide=is_wide, time_ns=time_ns)
    yield ticks
    if isinstance(ticks, Missing):
        yield Missing(seconds_series, ticks.reason, ticks.detail)
        return
    speed = SPEED_BY_NAME.get(port.line.speed)
    if node.chip is None:
        why = "how long a tick of this device is, is not known"
        yield Missing(seconds_series, UnreadReason.NOT_SUPPORTED, why)
        return
    if speed and port.line.lanes:
        width = CLAMPS_64 if is_wide else counter.narrow
        fresh = raw if port.ticks < 0 else advance(port.ticks, raw, width)[0]
        bits = node.chip.tick_bytes(node.tick, port.line.lanes) * 8
        port.wait_seconds += fresh * bits / (port.line.lanes * speed.data_bits)
        port.ticks = raw
    if port.ticks >= 0:
        yield Sample(seconds_series, port.wait_seconds, time_ns)
    elif port.line.state != DOWN:
        yield Missing(seconds_series, UnreadReason.NOT_SUPPORTED, "the link's rate is not known")


def read_lanes(answer: Answer, port: Port, time_ns: int) -> Iterator[Reading]:
    """How long each virtual lane has waited; still true as long as the port has waited no more."""
    node, ticks = answer.node, pick(answer, port.number, WAIT)[0]
    if port.lanes is None or port.lanes[0] != ticks:
        return
    lanes = port.lanes[1]
    if isinstance(lanes, tuple):
        yield Missing(port_series(node, port, LANE_WAIT.metric), *lanes)
        return
    for name, lane in LANE_WAITS.items():
        if name in lanes:
            key = f"{LANE_WAIT.metric}/{lane}"
            if key not in port.series:
                labels = node.labels | {"port": str(port.number), "lane": lane}
                port.series[key] = Series(LANE_WAIT.metric, labels)
            series = port.series[key]
            yield read_counter(series, LANE_WAIT, lanes[name], is_wide=False, time_ns=time_ns)


def needs_details(last: Details | None, discards: int, now_ns: int) -> bool:
    """Whether a port's discards must be looked into: never done, more by now, or long ago."""
    if last is None or last.discards != discards:
        return True
    return now_ns - last.asked_ns > DETAILS_SECONDS * NS


def read_details(answer: Answer, port: Port, time_ns: int) -> Iterator[Reading]:
    """Discarded packets by reason; still true as long as there are no more of them."""
    details = port.details
    discards, _ = pick(answer, port.number, DISCARDS)
    if details is None or discards != details.discards:
        return
    for name, counter in DISCARD_DETAILS.items():
        series = port_series(answer.node, port, counter.metric)
        if name in details.values:
            raw = details.values[name]
            yield read_counter(series, counter, raw, is_wide=False, time_ns=time_ns)
        elif details.failure and name == next(iter(DISCARD_DETAILS)):
            yield Missing(series, *details.failure)
