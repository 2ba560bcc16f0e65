"""An InfiniBand fabric as infiniband-diags shows it: its nodes, links and port counters.

For `collector.sources.ib_fabric`. Three questions, each with its own pace:

1. *Links* (`iblinkinfo -l`): every port with its state, width, speed and neighbour. As often as
   DISCOVERY_SHARE allows, and at the next read when a link seems to have changed.
2. *Nodes* (`ibnetdiscover`): which port GUID belongs to which node, and which chip a switch has.
   Only when a new GUID turns up.
3. *Counters*: one or two `perfquery` for each switch, some at once. A switch that does not answer
   delays no other. For HCAs two `ibqueryerrors` for all of them.

`ibqueryerrors` would read switches with a third of the processor time. But it asks one port after
the other, so that a switch that answers nothing holds up all others; it prints no zeros, so that
silence reads as health; and it scans the whole fabric again each time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from collector.contract.errors import HostError
from collector.contract.model import Missing, Sample, Series
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.doors.commands import Output
from collector.doors.host import Host
from collector.parsing.infiniband_diags import (
    PORT_MAX,
    Block,
    Nodes,
    PortLine,
    clean_name,
    name_nodes,
    parse_blocks,
    parse_counted,
    parse_failures,
    parse_links,
    parse_nodes,
    parse_ports,
    system_of,
)
from collector.tables.infiniband_switches import (
    COUNTERS,
    ERRORS_FIRST,
    HAS_EXTENDED,
    HAS_WAIT,
    WAIT,
    WIDE_END,
    Chip,
    Counter,
    find_chip,
)

NODES_MAX = 49_151
"""Unicast addresses of a subnet (IBTA volume 1, 4.1.3): there cannot be more nodes."""
PORT_LINES_MAX = 200_000
"""Ports that are taken from one scan; four for each node that there can be."""
DISCOVERY_SHARE = 0.02
"""Largest share of the time spent in scans of the fabric. Each scan asks every node, over the one
lane that the subnet manager needs too. A scan of 50 ms may be repeated every 2.5 s, one of 2 s
every 100 s, or every `topology_seconds`."""
FORGET_SECONDS = 3600
"""How long a switch that is not found any more is still asked, and reported as down."""
ATTEMPTS_MAX = 3
"""Times that a switch is asked for the ports that it left out: perfquery stops at the first one."""
TICK_MAX = 255
"""PortSamplesControl's Tick has eight bits."""
LEFT_SECONDS_MIN = 0.02
"""With less time than this nothing is started any more: a program takes about that long."""
COMPLAINT_CHARS_MAX = 160
"""Of the end of an output: perfquery prints there why it gave up."""

AGGREGATION = "Aggregation Node"
"""In the description of the HCA inside a switch that adds numbers up (SHARP). It belongs to no
host, and to the switch; the switch's port to it is read like any other."""

Failure = tuple[UnreadReason, str]


class Asking(NamedTuple):
    """The options that every program gets."""

    through: str = ""
    """The HCA, or HCA:port, of this machine; empty: the first that is active."""
    answer_milliseconds: int = 200
    programs_dir: str = ""
    environment: dict[str, str] = {}  # noqa: RUF012 - a NamedTuple's default; never written to


class Programs:
    """infiniband-diags on this machine, until one deadline. Several threads may use it."""

    def __init__(self, host: Host, asking: Asking, deadline_ns: int) -> None:
        self._host = host
        self._asking = asking
        self._deadline_ns = deadline_ns
        self._started: list[str] = []

    def run(self, program: str, *arguments: str) -> Output:
        """A program's output; HostError if it is not there, or no time is left."""
        left = (self._deadline_ns - self._host.monotonic_ns()) / NS
        if left < LEFT_SECONDS_MIN:
            raise HostError(UnreadReason.TIMEOUT, program, "no time was left to ask")
        device, _, port = self._asking.through.partition(":")
        words = [
            program if not self._asking.programs_dir else f"{self._asking.programs_dir}/{program}"
        ]
        words += ["-C", device] if device else []
        words += ["-P", port] if port else []
        words += ["-t", str(self._asking.answer_milliseconds), *arguments]
        self._started.append(program)  # as one step: other threads do the same
        return self._host.run(words, left, self._asking.environment)

    @property
    def started(self) -> int:
        return len(self._started)

    def now_ns(self) -> int:
        return self._host.monotonic_ns()


_NUMBERED = re.compile(r"^ibwarn: \[[0-9]+\] ")
"""What a warning begins with: the id of a process that has ended is of no use."""


def explain_failure(output: Output) -> Failure:
    if output.is_cut:
        return UnreadReason.TIMEOUT, "it was stopped because its time was up"
    text = output.complaints + b"\n" + output.text[-COMPLAINT_CHARS_MAX:]
    lines = [line for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
    last = lines[-1] if lines else f"it ended with {output.status}"
    detail = next((line.partition("iberror: ")[2] for line in lines if "iberror: " in line), last)
    is_silence = b"timed out" in text or b"_do_madrpc failed" in text
    reason = UnreadReason.TIMEOUT if is_silence else UnreadReason.UNREADABLE
    return reason, clean_name(_NUMBERED.sub("", detail))


# Nodes and ports --------------------------------------------------------------------------------


@dataclass(slots=True)
class Details:
    """A port's discards by reason, and its count of discards when it was asked."""

    discards: int
    asked_ns: int
    values: dict[str, int]
    failure: Failure | None = None


@dataclass(slots=True)
class Port:
    """A port of a node, with its series and what is kept of it between reads."""

    number: int
    line: PortLine
    seen_ns: int = 0
    """When a scan last showed it; the line may be older than that of its neighbours."""
    series: dict[str, Series] = field(default_factory=dict)
    """By metric; made when they are first needed."""
    link: Series | None = None
    info: Series | None = None
    ticks: int = -1
    """Of PortXmitWait at the last read; -1: not read yet."""
    wait_seconds: float = 0.0
    downs: int = -1
    details: Details | None = None
    lanes: tuple[int, dict[str, int] | Failure] | None = None
    """Waits of its virtual lanes, and its ticks of waiting when it was asked."""


@dataclass(slots=True)
class FabricNode:
    """A switch or an HCA."""

    guid: str
    is_switch: bool
    lid: int = 0
    description: str = ""
    model: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    """`host` and `device`."""
    ports: dict[int, Port] = field(default_factory=dict)
    chip: Chip | None = None
    tick: int | None = None
    """The switch's own tick; None: it does not report one."""
    is_tick_asked: bool = False
    seen_ns: int = 0
    asked_ns: int = 0
    details_ns: int = 0
    """The earliest time of the next query for details."""
    info: Series | None = None
    series: dict[str, Series] = field(default_factory=dict)


class Discovery(NamedTuple):
    """The result of the last scan."""

    broken_lines: int
    failure: Failure | None


class Fabric:
    """The nodes of one subnet, kept between reads."""

    def __init__(self, *, hcas: bool, topology_seconds: float) -> None:
        self.nodes: dict[str, FabricNode] = {}
        self.discovery = Discovery(0, None)
        self.scans = 0
        self.discovered_ns = 0
        self.is_suspect = True
        """Whether the topology may have changed: scan at the next read."""
        self._hcas = hcas
        self._topology_ns = int(topology_seconds * NS)
        self._due_ns = 0
        self._facts = Nodes({}, {})
        self._facts_due_ns = 0

    def discover(self, programs: Programs, names: dict[str, str]) -> None:
        """Scan the fabric if it is time to; earlier results stay if the scan fails."""
        started_ns = programs.now_ns()
        if not self.is_suspect and started_ns < self._due_ns:
            return
        lines, broken, failure = self._scan(programs)
        broken += self._learn(programs, lines)
        took_ns = programs.now_ns() - started_ns
        self.discovery = Discovery(broken, failure)
        self.scans += 1
        self._due_ns = started_ns + min(self._topology_ns, int(took_ns / DISCOVERY_SHARE))
        self.is_suspect = False
        if lines:
            self.discovered_ns = started_ns
            self._apply(lines, started_ns)
            self._forget(started_ns)
            self._name(names)

    def _scan(self, programs: Programs) -> tuple[list[PortLine], int, Failure | None]:
        """Every port; from `ibnetdiscover -p`, which knows no states, as a fallback."""
        chosen = () if self._hcas else ("--switches-only",)
        failure: Failure | None = None
        for program, arguments, parse in (
            ("iblinkinfo", ("-l", *chosen), parse_links),
            ("ibnetdiscover", ("-p",), parse_ports),
        ):
            try:
                output = programs.run(program, *arguments)
            except HostError as error:
                failure = failure or (error.reason, f"{program}: {error.detail}")
                continue
            lines, broken = parse(output.text)
            if lines:
                is_whole = not output.is_cut
                return lines, broken, None if is_whole else explain_failure(output)
            reason, detail = explain_failure(output)
            failure = failure or (reason, f"{program}: {detail}")
        return [], 0, failure

    def _learn(self, programs: Programs, lines: list[PortLine]) -> int:
        """Look nodes up when a GUID is new; returns how many lines could not be read."""
        ends = {line.guid for line in lines}
        ends.update(line.peer.guid for line in lines if line.peer)
        now_ns = programs.now_ns()
        if ends <= self._facts.of_port.keys() or now_ns < self._facts_due_ns:
            return 0
        self._facts_due_ns = now_ns + self._topology_ns
        try:
            nodes, broken = parse_nodes(programs.run("ibnetdiscover").text)
        except HostError:
            return 0
        if len(nodes.by_guid) <= NODES_MAX:
            # Added to what was known: a scan may miss what an earlier one has seen.
            known = Nodes(self._facts.by_guid | nodes.by_guid, self._facts.of_port | nodes.of_port)
            self._facts = known if len(known.by_guid) <= NODES_MAX else nodes
        return broken

    def node_guid(self, port_guid: str) -> str:
        """The GUID of the node that has this port; on switches they are the same."""
        return self._facts.of_port.get(port_guid, port_guid)

    def is_hca(self, port_guid: str) -> bool:
        """Whether a port is known to be an HCA's."""
        known = self._facts.by_guid.get(self.node_guid(port_guid))
        return known is not None and known.kind == "Ca"

    def _is_switch(self, guid: str, line: PortLine) -> bool:
        if line.kind:
            return line.kind == "SW"
        known = self._facts.by_guid.get(guid)
        # Unknown: only switches were asked for, unless HCAs are wanted too.
        return known.kind == "Switch" if known else not self._hcas

    def _apply(self, lines: list[PortLine], now_ns: int) -> None:
        for line in lines[:PORT_LINES_MAX]:
            guid = self.node_guid(line.guid)
            is_switch = self._is_switch(guid, line)
            if not is_switch and (not self._hcas or AGGREGATION in line.name):
                continue
            node = self.nodes.get(guid)
            if node is None:
                if len(self.nodes) >= NODES_MAX:
                    continue
                node = self.nodes[guid] = FabricNode(guid, is_switch)
            node.lid, node.seen_ns = line.lid, now_ns
            # A scan prints no name for a node that did not answer in time what it is called.
            node.description = line.name or node.description or self._known_name(guid)
            port = node.ports.get(line.port)
            if port is None:
                port = node.ports[line.port] = Port(line.port, line)
            port.line, port.seen_ns = line, now_ns

    def _forget(self, now_ns: int) -> None:
        """Drop nodes that no scan has found for FORGET_SECONDS."""
        oldest_ns = now_ns - FORGET_SECONDS * NS
        for guid in [guid for guid, node in self.nodes.items() if node.seen_ns < oldest_ns]:
            del self.nodes[guid]

    def _name(self, given: dict[str, str]) -> None:
        labelled = label_nodes(self.nodes.values(), given)
        for node in self.nodes.values():
            facts = self._facts.by_guid.get(node.guid)
            _, place = system_of(node.description)
            node.model = place.partition("/")[0]
            vendor, device = (facts.vendor, facts.device) if facts else (0, 0)
            node.chip = find_chip(vendor, device, node.model) if node.is_switch else None
            labels = labelled[node.guid]
            if labels != node.labels:
                node.labels, node.info, node.series = labels, None, {}
                for port in node.ports.values():
                    port.series, port.link, port.info = {}, None, None

    def peer_name(self, guid: str, reported: str) -> str:
        """A neighbour's name: a switch's as in its own series, else as the scan reports it."""
        node = self.nodes.get(guid)
        if node and node.is_switch and node.labels:
            return node.labels["host"]
        return reported or self._known_name(guid)

    def _known_name(self, guid: str) -> str:
        known = self._facts.by_guid.get(guid)
        return known.name if known else ""


def label_nodes(nodes: Collection[FabricNode], given: dict[str, str]) -> dict[str, dict[str, str]]:
    """`host` and `device` of each node by GUID; no two have the same."""
    names = name_nodes({node.guid: node.description for node in nodes if node.is_switch}, given)
    labelled: dict[str, dict[str, str]] = {}
    taken: set[tuple[str, str]] = set()
    for node in nodes:
        if node.is_switch:
            labels = {"host": names[node.guid], "device": names[node.guid]}
        else:
            labels = label_hca(node, given)
        if (labels["host"], labels["device"]) in taken:
            labels["device"] = node.guid
        taken.add((labels["host"], labels["device"]))
        labelled[node.guid] = labels
    return labelled


def label_hca(node: FabricNode, given: dict[str, str]) -> dict[str, str]:
    """`host` and `device` of an HCA from its description, `node-7 mlx5_0` or `node-7 HCA-1`."""
    words = given.get(node.guid, node.description).split()
    if "Mellanox" in words or not words:
        # It has no host name yet.
        return {"host": node.guid, "device": node.guid}
    return {"host": words[0], "device": words[1] if len(words) == 2 else node.guid}  # noqa: PLR2004


# Counters ---------------------------------------------------------------------------------------


def read_counter(
    series: Series, counter: Counter, raw: float, *, is_wide: bool, time_ns: int
) -> Sample | Missing:
    """A counter's value, or that it counts no more; ``is_wide``: it was read as 64 bits."""
    if not 0 <= raw <= 1 << 64:  # the end of 64 bits, once it is a float
        return Missing(series, UnreadReason.UNPARSEABLE, f"{raw!r} is no count")
    if raw >= WIDE_END or (not is_wide and raw == counter.narrow.maximum):
        return Missing(
            series, UnreadReason.SATURATED, f"stands at its maximum, {int(raw)}; reset it"
        )
    return Sample(series, counter.factor * raw, time_ns)


class Answer(NamedTuple):
    """A node's counters, and why some are missing."""

    node: FabricNode
    extended: dict[int, Block]
    plain: dict[int, Block]
    failure: Failure | None
    broken_lines: int = 0


def ask_switch(programs: Programs, node: FabricNode) -> Answer:
    """The counters of every port of a switch; missing ones have a reason."""
    ports = sorted(node.ports)[:PORT_MAX]
    extended, broken, failure = ask_ports(programs, node.lid, ports, "-x")
    plain: dict[int, Block] = {}
    bare = [port for port in ports if not has_errors(extended.get(port))]
    # After a silence there is no use in a second question; other refusals may be about -x alone.
    is_silent = failure is not None and failure[0] is UnreadReason.TIMEOUT and not extended
    if bare and not is_silent:
        plain, more, failure_of_plain = ask_ports(programs, node.lid, bare)
        failure, broken = failure or failure_of_plain, broken + more
    if (extended or plain) and node.chip and not node.is_tick_asked:
        node.tick, node.is_tick_asked = ask_tick(programs, node.lid, ports[0]), True
    return Answer(node, extended, plain, failure, broken)


def ask_lanes(programs: Programs, node: FabricNode, port: Port) -> dict[str, int] | Failure:
    """A port's waits by virtual lane, or why there are none."""
    try:
        output = programs.run("perfquery", "--vlxmitcounters", str(node.lid), str(port.number))
    except HostError as error:
        return error.reason, f"perfquery --vlxmitcounters: {error.detail}"
    blocks, _ = parse_blocks(output.text)
    mine = [block for block in blocks if (block.lid, block.port) == (node.lid, port.number)]
    return mine[0].values if mine else explain_failure(output)


def has_errors(block: Block | None) -> bool:
    """Whether a block of extended counters holds errors too; some devices leave them out."""
    return (
        block is not None
        and ERRORS_FIRST in block.values
        and bool(block.capabilities & HAS_EXTENDED)
    )


def ask_ports(
    programs: Programs, lid: int, ports: Sequence[int], *flags: str
) -> tuple[dict[int, Block], int, Failure | None]:
    """Blocks by port, lines that could not be read, and why ports are missing."""
    answered: dict[int, Block] = {}
    left, broken = list(ports), 0
    failure: Failure | None = None
    for _ in range(ATTEMPTS_MAX):
        try:
            output = programs.run(
                "perfquery", *flags, "-l", str(lid), ",".join(str(port) for port in left)
            )
        except HostError as error:
            return answered, broken, failure or (error.reason, error.detail)
        blocks, more = parse_blocks(output.text)
        broken += more
        fresh = {block.port: block for block in blocks if block.lid == lid and block.port in left}
        answered |= fresh
        left = [port for port in left if port not in answered]
        if not left:
            # The last block of an output that was cut may lack its end.
            return answered, broken, explain_failure(output) if output.is_cut else None
        failure = explain_failure(output)
        if not fresh:
            break
    return answered, broken, failure


def ask_tick(programs: Programs, lid: int, port: int) -> int | None:
    """How long a tick of PortXmitWait is, if the switch reports it."""
    try:
        blocks, _ = parse_blocks(programs.run("perfquery", "-c", str(lid), str(port)).text)
    except HostError:
        return None
    tick = next((block.values["Tick"] for block in blocks if "Tick" in block.values), -1)
    return tick if 0 <= tick <= TICK_MAX else None


def ask_details(programs: Programs, node: FabricNode, port: Port, discards: int) -> Details:
    """A port's discards by reason; perfquery asks one port at a time."""
    now_ns = programs.now_ns()
    try:
        output = programs.run("perfquery", "-D", str(node.lid), str(port.number))
    except HostError as error:
        return Details(discards, now_ns, {}, (error.reason, error.detail))
    blocks, _ = parse_blocks(output.text)
    values = next((block.values for block in blocks if block.port == port.number), None)
    if values is None:
        return Details(discards, now_ns, {}, explain_failure(output))
    return Details(discards, now_ns, values)


def ask_hcas(programs: Programs, fabric: Fabric, nodes: Iterable[FabricNode]) -> list[Answer]:
    """The counters of every HCA, in two processes for all.

    What `ibqueryerrors` leaves out is zero only where it has run to its end and does not complain
    about that HCA.
    """
    traffic, errors = {}, {}
    failed: set[int] = set()
    failure: Failure | None = None
    is_whole = False
    try:
        output = programs.run("ibqueryerrors", "--skip-sl", "--ca", "--counters")
        traffic, failed = parse_counted(output.text), parse_failures(output.complaints)
        failure = explain_failure(output) if output.is_cut else None
        output = programs.run(
            "ibqueryerrors", "--skip-sl", "--ca", "--data", "--threshold-file", "/dev/null"
        )
        errors = {
            (fabric.node_guid(guid), port): values
            for (guid, port), values in parse_counted(output.text).items()
        }
        failed |= parse_failures(output.complaints)
        is_whole = not output.is_cut and b"## Summary" in output.text
    except HostError as error:
        failure = error.reason, error.detail
    answers = []
    for node in nodes:
        extended: dict[int, Block] = {}
        plain: dict[int, Block] = {}
        for port in node.ports:
            values = traffic.get((node.guid, port))
            if values is None or node.lid in failed:
                continue
            counted = errors.get((node.guid, port), {})
            # It prints a wait that is not supported as zero, and no zeros.
            has_wait = HAS_WAIT if WAIT in counted else 0
            extended[port] = Block("", node.lid, port, HAS_EXTENDED | has_wait, values)
            if is_whole:
                names = (name for name, counter in COUNTERS.items() if counter.is_expected)
                zeros = dict.fromkeys((name for name in names if name not in values), 0)
                plain[port] = Block("", node.lid, port, has_wait, zeros | counted)
        silence = (
            None
            if len(extended) == len(node.ports)
            else (UnreadReason.TIMEOUT, "it did not answer")
        )
        answers.append(Answer(node, extended, plain, failure or silence))
    return answers
