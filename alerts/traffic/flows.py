"""From operations to flows: which rank sends how many bytes to which other. Pure.

NCCL does not log which rank sent what to which. What it does log (operation, size, ranks, rings,
trees) and how its algorithms work give it nevertheless: a ring hands the same number of bytes over
each of its edges, a tree the message up and down each of its own, an all-to-all an equal part from
each rank to each other. Such bytes are *modelled*. Sends and receives name both ends: those bytes
are *measured*. Bytes are payload, without headers.

Where switches add up (CollNet over SHARP, NVLS), no rank sends to another: every host hands the
message up once and gets the result once. Those bytes are in `Traffic.up_bytes`, by rank, and in no
flow. What NCCL does with other algorithms is not modelled, and not taken for a ring.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from alerts.traffic.places import NAMELESS, Places
from alerts.window.columns import Codes, Columns, Flags, Floats, Ints, Operations, Records
from alerts.window.model import Communicator
from alerts.window.split import distinct
from collector.contract.collective import NVLS, Operation, bus_bytes, reduces_in_network
from collector.contract.records import ABSENT

TREE_BYTES_MAX = 4 << 20
"""All-reduces below it are taken for trees where a communicator has some and no record names the
algorithm. NCCL's tuning model crosses over between 1 and 16 MiB, by nodes and links."""
FLOWS_MAX = 6_000_000
"""Flows of one matrix, about 400 MB while it is made. An all-to-all of 2,000 ranks has 4 million.
What does not fit is not placed, and the answer counts those bytes."""


class Assumption(enum.StrEnum):
    """What a model assumes because no record holds it."""

    ALGORITHM_BY_SIZE = "algorithm_by_size"
    """Ring or tree was chosen by size: records do not name the algorithm."""
    ALGORITHM_BY_COUNTERS = "algorithm_by_counters"
    """Ring or tree was chosen by which explains the NICs' byte counters."""
    RING_ORDER = "ring_order"
    """No debug line shows how a communicator is wired: its ranks in order were taken for a ring."""
    RING_FOR_TREE = "ring_for_tree"
    """A tree of unknown edges was taken for a ring: the same bytes in all."""
    NOT_MODELLED = "not_modelled"
    """NCCL chose an algorithm without a model here (NVLS tree, PAT, a reduce-scatter or all-gather
    in switches), or may have had switches add up: those bytes are not placed."""
    REDUCED_IN_SWITCHES = "reduced_in_switches"
    """Switches add up: each host's ranks hand the message up in equal parts, and to no rank."""
    ROOT_ZERO = "root_zero"
    """Records do not name the root of a broadcast, reduce, gather or scatter: rank 0 was taken."""
    EQUAL_PARTS = "equal_parts"
    """All-to-alls give each rank the same. Experts do not; their counts are not recorded."""
    BOTH_WAYS = "both_ways"
    """A fused send and receive does not show which rank sent: half was counted each way."""


class Pattern(enum.IntEnum):
    """How an operation's bytes go; the order has no meaning."""

    RING = 0
    TREE = 1
    ALL_PAIRS = 2
    CHAIN_FROM_ROOT = 3
    CHAIN_TO_ROOT = 4
    TO_ROOT = 5
    FROM_ROOT = 6
    NOWHERE = 7
    UP = 8
    """To switches of the network, which add up and send the result to all."""
    INSIDE = 9
    """To the NVSwitch of the one host that all ranks are on."""
    UNKNOWN = 10


PATTERNS = {
    Operation.ALL_REDUCE: Pattern.RING,
    Operation.ALL_GATHER: Pattern.RING,
    Operation.REDUCE_SCATTER: Pattern.RING,
    Operation.BARRIER: Pattern.RING,
    Operation.ALL_TO_ALL: Pattern.ALL_PAIRS,
    Operation.SEND_RECV: Pattern.ALL_PAIRS,
    Operation.BROADCAST: Pattern.CHAIN_FROM_ROOT,
    Operation.REDUCE: Pattern.CHAIN_TO_ROOT,
    Operation.GATHER: Pattern.TO_ROOT,
    Operation.SCATTER: Pattern.FROM_ROOT,
}
"""Before ring and tree are separated. A send_recv is here only if its peer is not known."""
ROOTED = frozenset(
    {Pattern.CHAIN_FROM_ROOT, Pattern.CHAIN_TO_ROOT, Pattern.TO_ROOT, Pattern.FROM_ROOT}
)


class Sums(Columns, frozen=True, kw_only=True):
    """Operations of groups added up: a row for each communicator, operation, size and algorithm."""

    communicators: list[str]
    operations: list[str]
    algorithms: list[str]

    communicator: Codes
    operation: Codes
    algorithm: Codes
    size_bytes: Ints
    """As NCCL counts it; ABSENT if not recorded."""
    ranks: Codes
    count: Floats
    """Operations, those of which no record came included."""
    transfer_ns: Floats
    """Of all of them together: what each took once its last rank had come."""


class Messages(Columns, frozen=True, kw_only=True):
    """Sends and receives added up over both ends: a row for each sender and receiver."""

    communicators: list[str]

    communicator: Codes
    source: Codes
    target: Codes
    bytes: Floats
    transfer_ns: Floats
    is_directed: Flags
    """False where it is not recorded which of the two sent."""


class Flows(Columns, frozen=True, kw_only=True):
    """Sender and receiver: rows of `Places`. One pair may have several rows."""

    source: Ints
    target: Ints
    source_by: Ints
    """The rank whose NIC the bytes left by: another one of the same host where NCCL hands them
    over NVLink to the GPU that is next to the right NIC."""
    target_by: Ints
    bytes: Floats
    transfer_ns: Floats
    call: Ints
    """Rows of one communicator and pattern have the same: they took their time together."""
    is_measured: Flags


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """All flows of a job, and what they rest on."""

    flows: Flows
    up_bytes: Floats
    """[rows of `Places`] that each rank hands to switches of the network, which add up."""
    unplaced_bytes: float
    """Of operations whose shape or members are not known."""
    guessed_tree_bytes: float = 0.0
    """Placed as rings because the trees' edges are not known: right in sum, not link by link."""
    assumptions: list[Assumption]


def traffic_of(
    sums: Sequence[Sums],
    messages: Messages,
    communicators: Mapping[str, Communicator],
    places: Places,
    *,
    is_tree: bool | None = None,
    flows_max: int | None = None,
) -> Traffic:
    """The flows of these operations; ``is_tree`` overrules the choice by size."""
    maker = Maker(communicators, places, FLOWS_MAX if flows_max is None else flows_max)
    for table in sums:
        chosen = patterns_of(table, communicators, places, maker.assumptions, is_tree=is_tree)
        maker.add_all(table, chosen)
        maker.guessed_tree_bytes += guessed_tree_bytes(table, chosen)
    maker.add_messages(messages)
    return maker.done()


def patterns_of(
    sums: Sums,
    communicators: Mapping[str, Communicator],
    places: Places,
    assumptions: set[Assumption],
    *,
    is_tree: bool | None,
) -> Ints:
    """The pattern of each row; what had to be assumed is added to ``assumptions``."""
    by_operation = np.array(
        [PATTERNS.get(operation_of(name), Pattern.NOWHERE) for name in [*sums.operations, ""]]
    )
    pattern: Ints = by_operation[sums.operation].astype(np.int64)
    reduces = np.array([name == Operation.ALL_REDUCE for name in [*sums.operations, ""]])
    has_trees = np.array(
        [name in communicators and bool(communicators[name].trees) for name in sums.communicators]
        + [False]
    )[sums.communicator]
    algorithm = [name.lower() for name in [*sums.algorithms, ""]]
    said_tree = np.array([name == "tree" for name in algorithm])[sums.algorithm]
    said_nothing = np.array([not name for name in algorithm])[sums.algorithm]
    is_reduce = reduces[sums.operation]
    by_size = sums.size_bytes < TREE_BYTES_MAX if is_tree is None else np.full(len(sums), is_tree)
    guessed = is_reduce & said_nothing & has_trees
    wants_tree = is_reduce & (said_tree | (guessed & by_size))
    pattern[wants_tree & has_trees] = Pattern.TREE
    turn_to_switches(sums, pattern, communicators, places)
    for found, what in (
        (guessed.any() and is_tree is None, Assumption.ALGORITHM_BY_SIZE),
        (guessed.any() and is_tree is not None, Assumption.ALGORITHM_BY_COUNTERS),
        ((wants_tree & (pattern == Pattern.RING)).any(), Assumption.RING_FOR_TREE),
        (np.isin(pattern, (Pattern.UP, Pattern.INSIDE)).any(), Assumption.REDUCED_IN_SWITCHES),
        ((pattern == Pattern.UNKNOWN).any(), Assumption.NOT_MODELLED),
        (np.isin(pattern, list(ROOTED)).any(), Assumption.ROOT_ZERO),
        ((pattern == Pattern.ALL_PAIRS).any(), Assumption.EQUAL_PARTS),
    ):
        if found:
            assumptions.add(what)
    return pattern


def guessed_tree_bytes(sums: Sums, chosen: Ints) -> float:
    """Bytes of operations that were trees by their records, and were taken for rings."""
    is_tree = np.array([name.lower() == "tree" for name in [*sums.algorithms, ""]])[sums.algorithm]
    guessed = is_tree & (chosen == Pattern.RING)
    if not guessed.any():
        return 0.0
    ranks = sums.ranks.astype(np.float64)
    return float((amounts(sums, chosen) * ranks)[guessed].sum())


BETWEEN_RANKS = frozenset({"ring", "tree"})
"""NCCL's algorithms in which ranks send to ranks, and whose edges it logs."""


def turn_to_switches(
    sums: Sums, pattern: Ints, communicators: Mapping[str, Communicator], places: Places
) -> None:
    """Change the pattern of rows that are no rings or trees, or of which that is not known."""
    in_network = {name for name, one in communicators.items() if one.is_in_network}
    if not in_network and {name.lower() for name in sums.algorithms} <= {"", *BETWEEN_RANKS}:
        return
    is_ringlike = np.isin(pattern, (Pattern.RING, Pattern.TREE))
    first, which = distinct(sums.communicator, sums.operation, sums.algorithm)
    for place, row in enumerate(first.tolist()):
        algorithm = sums.algorithms[sums.algorithm[row]].lower()
        name = sums.communicators[sums.communicator[row]]
        if algorithm in BETWEEN_RANKS or (not algorithm and name not in in_network):
            continue
        over = host_count(communicators[name], places) if name in communicators else 0
        if operation_of(sums.operations[sums.operation[row]]) != Operation.ALL_REDUCE or not over:
            found = Pattern.UNKNOWN
        elif reduces_in_network(algorithm, over):
            found = Pattern.UP
        elif algorithm == NVLS and over == 1:
            found = Pattern.INSIDE
        else:
            found = Pattern.UNKNOWN
        pattern[is_ringlike & (which == place)] = found


def host_count(communicator: Communicator, places: Places) -> int:
    """Over how many hosts it goes; 0 unless the host of every rank is known."""
    rows = [places.row_of.get(number, NAMELESS) for number in communicator.job_rank.values()]
    if len(rows) < communicator.ranks or NAMELESS in rows:
        return 0
    hosts = {int(places.host[row]) for row in rows}
    return 0 if NAMELESS in hosts else len(hosts)


def summed(group: Ints, amount: Floats, count: int) -> Floats:
    return np.bincount(group, amount, count).astype(np.float64)


def operation_of(name: str) -> Operation:
    """The operation of this name; OTHER for a word of a later version."""
    return Operation(name) if name in set(Operation) else Operation.OTHER


def amounts(sums: Sums, pattern: Ints) -> Floats:
    """What share 1 of each row's pattern stands for: bytes of all its operations."""
    first, which = distinct(sums.operation, sums.size_bytes, sums.ranks, pattern)
    each = np.zeros(len(first))
    for place, row in enumerate(first.tolist()):
        size, ranks = int(sums.size_bytes[row]), int(sums.ranks[row])
        if size != ABSENT and size > 0:
            operation = operation_of(sums.operations[sums.operation[row]])
            is_ring = pattern[row] in {Pattern.RING, Pattern.UNKNOWN}
            each[place] = bus_bytes(operation, size, ranks) if is_ring else float(size)
    amount: Floats = each[which] * sums.count if len(first) else np.zeros(0)
    return np.nan_to_num(amount, nan=0.0, posinf=0.0)


SHARE_EXACT = 1e-9
"""Sums of shares are as exact as this."""


def whole_share(pattern: Pattern, size: int) -> float:
    """The shares of all edges together, if all members are known."""
    if size < 2:  # noqa: PLR2004 - alone
        return 0.0
    if pattern == Pattern.INSIDE:
        return 0.0
    return {
        Pattern.RING: float(size),
        Pattern.UNKNOWN: float(size),
        Pattern.TREE: 2.0 * (size - 1),
    }.get(pattern, size - 1.0)


class Edges(Columns, frozen=True, kw_only=True):
    """Sender, receiver and the share of an amount: rows of `Places`."""

    source: Ints
    target: Ints
    source_by: Ints
    target_by: Ints
    share: Floats


def make_edges(source: Ints, target: Ints, share: Floats, by: tuple[Ints, Ints] | None) -> Edges:
    """Edges between known ranks; without ``by`` each rank uses its own NIC."""
    near, far = (source, target) if by is None else by
    known = (source >= 0) & (target >= 0) & (source != target)
    edges = Edges(source=source, target=target, source_by=near, target_by=far, share=share)
    found: Edges = edges.select(known)
    return found


class Maker:
    """Gathers flows, up to so many of them."""

    def __init__(
        self, communicators: Mapping[str, Communicator], places: Places, flows_max: int
    ) -> None:
        self.assumptions: set[Assumption] = set()
        self.guessed_tree_bytes = 0.0
        self._communicators = communicators
        self._places = places
        self._flows_max = flows_max
        self._parts: list[tuple[Edges, float, float, bool]] = []
        self._count = 0
        self._unplaced = 0.0
        self._up: Floats = np.zeros(len(places.host))

    def add_all(self, sums: Sums, chosen: Ints) -> None:
        amount = amounts(sums, chosen)
        known = amount > 0
        communicator, pattern = sums.communicator[known], chosen[known]
        first, group = distinct(communicator, pattern)
        bytes_ = summed(group, amount[known], len(first))
        transfer = summed(group, sums.transfer_ns[known], len(first))
        for place, row in enumerate(first.tolist()):
            name, ranks = sums.communicators[communicator[row]], int(sums.ranks[known][row])
            took = float(transfer[place])
            self.add(name, Pattern(pattern[row]), ranks, float(bytes_[place]), took)

    def add(
        self, name: str, pattern: Pattern, ranks: int, amount: float, transfer_ns: float
    ) -> None:
        """The operations of one communicator that have one pattern."""
        known = self._communicators.get(name)
        if pattern == Pattern.UP and known is not None:
            self._hand_up(known, amount)
            return
        edges = None
        size = max(ranks, known.ranks) if known is not None else 0
        room = self._flows_max - self._count
        if known is not None and (pattern != Pattern.ALL_PAIRS or size * size <= room):
            edges = self._edges(known, pattern, size)
        placed = 0.0
        if edges is not None and 0 < len(edges) <= room:
            self._append(edges, amount, transfer_ns, is_measured=False)
            placed = float(edges.share.sum())
        missing = whole_share(pattern, max(size, ranks)) - placed
        if missing > SHARE_EXACT:
            self._unplaced += amount * missing

    def _hand_up(self, communicator: Communicator, amount: float) -> None:
        """Each host's ranks hand up equal parts; ``host_count`` has seen that all are known."""
        rows = self._rows(communicator, communicator.ranks)
        rows = rows[rows >= 0]
        host = self._places.host[rows]
        self._up[rows] += amount / np.bincount(host)[host]

    def add_messages(self, messages: Messages) -> None:
        """Sends and receives; each pair took its own time."""
        first, group = distinct(messages.communicator)
        for number, row in enumerate(first.tolist()):
            own: Messages = messages.select(group == number)
            known = self._communicators.get(messages.communicators[messages.communicator[row]])
            if known is None or self._count + len(own) > self._flows_max:
                self._unplaced += float(own.bytes.sum())
                continue
            rows = self._rows(known, int(max(own.source.max(), own.target.max(), 0)) + 1)
            source, target = rows[own.source], rows[own.target]
            for place in range(len(own)):
                one = slice(place, place + 1)
                edges = make_edges(source[one], target[one], np.ones(1), None)
                if len(edges):
                    took = float(own.transfer_ns[place])
                    self._append(edges, float(own.bytes[place]), took, is_measured=True)
                else:
                    self._unplaced += float(own.bytes[place])
        if not messages.is_directed.all():
            self.assumptions.add(Assumption.BOTH_WAYS)

    def done(self) -> Traffic:
        columns: dict[str, list[np.ndarray]] = {name: [] for name in Flows.__struct_fields__}
        for call, (edges, amount, transfer_ns, is_measured) in enumerate(self._parts):
            for name in ("source", "target", "source_by", "target_by"):
                columns[name].append(getattr(edges, name))
            columns["bytes"].append(edges.share * amount)
            columns["transfer_ns"].append(np.full(len(edges), transfer_ns))
            columns["call"].append(np.full(len(edges), call, dtype=np.int64))
            columns["is_measured"].append(np.full(len(edges), is_measured))
        empty = {"bytes": np.float64, "transfer_ns": np.float64, "is_measured": np.bool_}
        flows = Flows(
            **{
                name: np.concatenate(parts)
                if parts
                else np.zeros(0, dtype=empty.get(name, np.int64))
                for name, parts in columns.items()
            }
        )
        return Traffic(
            flows=flows,
            up_bytes=self._up,
            unplaced_bytes=self._unplaced,
            guessed_tree_bytes=self.guessed_tree_bytes,
            assumptions=sorted(self.assumptions),
        )

    def _append(
        self, edges: Edges, amount: float, transfer_ns: float, *, is_measured: bool
    ) -> None:
        self._parts.append((edges, amount, transfer_ns, is_measured))
        self._count += len(edges)

    def _rows(self, communicator: Communicator, size: int) -> Ints:
        """The rows of `Places` of the communicator's ranks; NAMELESS where one is not known."""
        rows = np.full(max(size, communicator.ranks) + 1, NAMELESS, dtype=np.int64)
        for rank, number in communicator.job_rank.items():
            if 0 <= rank < len(rows) - 1:
                rows[rank] = self._places.row_of.get(number, NAMELESS)
        return rows

    def _edges(self, communicator: Communicator, pattern: Pattern, size: int) -> Edges | None:
        rows = self._rows(communicator, size)
        if pattern == Pattern.TREE:
            return tree_edges(communicator.trees, rows)
        if pattern == Pattern.ALL_PAIRS:
            return all_pairs_edges(rows[:size], self._places)
        if pattern in {Pattern.TO_ROOT, Pattern.FROM_ROOT}:
            others, root = rows[1:size], np.full(max(size - 1, 0), rows[0])
            ends = (others, root) if pattern == Pattern.TO_ROOT else (root, others)
            return make_edges(ends[0], ends[1], np.ones(len(others)), None)
        if pattern in {Pattern.NOWHERE, Pattern.INSIDE, Pattern.UNKNOWN}:
            return None
        edges = self._ring(communicator, rows, size)
        if pattern == Pattern.CHAIN_FROM_ROOT:
            edges = edges.select(edges.target != rows[0])
        elif pattern == Pattern.CHAIN_TO_ROOT:
            edges = edges.select(edges.source != rows[0])
        return edges

    def _ring(self, communicator: Communicator, rows: Ints, size: int) -> Edges:
        rings = [ring for ring in communicator.rings if len(ring) == size and size > 1]
        if rings and not communicator.is_ring_assumed:
            return ring_edges(rings, rows)
        self.assumptions.add(Assumption.RING_ORDER)
        return assumed_ring_edges(rows[:size], self._places)


def ring_edges(rings: Sequence[Sequence[int]], rows: Ints) -> Edges:
    """Every ring from each rank to the next; channels share the bytes equally."""
    parts = []
    for ring, times in Counter(tuple(ring) for ring in rings).items():
        places = np.array(ring, dtype=np.int64)
        source = rows[np.where((places >= 0) & (places < len(rows)), places, -1)]
        share = np.full(len(source), times / len(rings))
        parts.append((source, np.roll(source, -1), share))
    source, target, share = (np.concatenate(column) for column in zip(*parts, strict=True))
    return make_edges(source, target, share, None)


def tree_edges(trees: Sequence[Mapping[int, int | None]], rows: Ints) -> Edges:
    """Up and down every edge of every tree; channels share the message equally."""
    pairs = Counter(
        (child, parent)
        for tree in trees
        for child, parent in tree.items()
        if parent is not None and 0 <= child < len(rows) and 0 <= parent < len(rows)
    )
    ends = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    share = np.array([pairs[child, parent] for child, parent in ends.tolist()]) / len(trees)
    child, parent = rows[ends[:, 0]], rows[ends[:, 1]]
    return make_edges(
        np.concatenate([child, parent]),
        np.concatenate([parent, child]),
        np.concatenate([share, share]),
        None,
    )


def assumed_ring_edges(rows: Ints, places: Places) -> Edges:
    """The ranks in order for a ring, host by host.

    Where every host has the same number of them, there are as many channels: each leaves every
    host by the NIC of another of them and arrives by the one on the same rail, as NCCL does it.
    """
    known = rows[rows >= 0]
    host = places.host[known]
    _, first, place = np.unique(host, return_index=True, return_inverse=True)
    by_host = known[np.argsort(first[place], kind="stable")]
    counts = np.bincount(place)
    width = int(counts[0]) if len(counts) else 0
    if (counts != width).any() or (host == NAMELESS).any() or len(counts) < 2:  # noqa: PLR2004
        return make_edges(by_host, np.roll(by_host, -1), np.ones(len(by_host)), None)
    table = by_host.reshape(-1, width)
    parts = []
    for channel in range(width):
        turned = np.roll(table, -channel, axis=1)
        source = turned.ravel()
        crosses = np.zeros(turned.shape, dtype=bool)
        crosses[:, -1] = True
        gate = np.repeat(table[:, channel], width)
        target = np.roll(source, -1)
        near = np.where(crosses.ravel(), gate, source)
        far = np.where(crosses.ravel(), np.roll(gate, -1), target)
        parts.append((source, target, near, far))
    source, target, near, far = (np.concatenate(column) for column in zip(*parts, strict=True))
    return make_edges(source, target, np.full(len(source), 1 / width), (near, far))


def all_pairs_edges(rows: Ints, places: Places) -> Edges:
    """An equal part from each rank to each other.

    Between hosts NCCL hands the bytes to the GPU next to the NIC of the receiver's rail, if the
    communicator has one there (PXN): a rail's switch then need not be left.
    """
    count = max(len(rows), 1)
    known = rows[rows >= 0]
    source, target = np.repeat(known, len(known)), np.tile(known, len(known))
    near = source.copy()
    host, rail = places.host, places.rail
    width = int(rail.max(initial=0)) + 1
    gate = np.full((len(places.hosts) + 1, width + 1), NAMELESS, dtype=np.int64)
    placed = known[(host[known] >= 0) & (rail[known] >= 0)]
    gate[host[placed], rail[placed]] = placed
    other = gate[host[source], rail[target]]
    crosses = (host[source] != host[target]) & (other >= 0) & (rail[target] >= 0)
    near[crosses] = other[crosses]
    return make_edges(source, target, np.full(len(source), 1 / count), (near, target))


# From windows ------------------------------------------------------------------------------------


def sums_of(operations: Operations) -> Sums:
    """A window's operations, added up. Windows do not hold the algorithm."""
    first, group = distinct(
        operations.communicator, operations.operation, operations.size_bytes, operations.ranks
    )
    transfer = np.maximum(operations.transfer_ns, 0).astype(np.float64)
    return Sums(
        communicators=operations.communicators,
        operations=operations.operations,
        algorithms=[""],
        communicator=operations.communicator[first],
        operation=operations.operation[first],
        algorithm=np.zeros(len(first), dtype=np.int32),
        size_bytes=operations.size_bytes[first],
        ranks=operations.ranks[first],
        count=np.bincount(group, minlength=len(first)).astype(np.float64),
        transfer_ns=summed(group, transfer, len(first)),
    )


def messages_of(records: Records) -> Messages:
    """Sends and receives of pairs. Windows hold no peer, so larger communicators are left out."""
    codes = {name: code for code, name in enumerate(records.operations)}
    sends, receives, fused = (
        records.operation == codes.get(name, NAMELESS)
        for name in (Operation.SEND, Operation.RECV, Operation.SEND_RECV)
    )
    pair = (records.ranks == 2) & (records.rank >= 0) & (records.rank < 2)  # noqa: PLR2004 - a pair
    sized = (records.size_bytes != ABSENT) & (sends | receives | fused) & pair
    rows: Records = records.select(sized)
    inside = np.where(rows.timed(), np.maximum(rows.exit_ns - rows.entry_ns, 0), 0)
    return paired(
        rows.communicators,
        communicator=rows.communicator,
        rank=rows.rank,
        peer=(1 - rows.rank).astype(np.int32),
        kind=np.where(sends[sized], 0, np.where(receives[sized], 1, 2)).astype(np.int32),
        totals=(rows.size_bytes.astype(np.float64), inside.astype(np.float64)),
    )


SEND, RECEIVE, FUSED = range(3)
"""How one end records a message."""


def paired(
    communicators: list[str],
    *,
    communicator: Codes,
    rank: Codes,
    peer: Codes,
    kind: Codes,
    totals: tuple[Floats, Floats],
) -> Messages:
    """Both ends' records joined: ``kind`` is SEND, RECEIVE or FUSED, ``totals`` bytes and ns.

    Where both ends count the same messages, the larger sum of bytes stands (the other end's agent
    was away) and the shorter time (the other end waited).
    """
    is_received, is_fused = kind == RECEIVE, kind == FUSED
    low, high = np.minimum(rank, peer), np.maximum(rank, peer)
    source = np.where(is_fused, low, np.where(is_received, peer, rank)).astype(np.int32)
    target = np.where(is_fused, high, np.where(is_received, rank, peer)).astype(np.int32)
    # The sum of each end, and then the better of the two.
    end = np.where(is_fused, rank == high, is_received).astype(np.int32)
    first, group = distinct(communicator, source, target, is_fused.astype(np.int32), end)
    bytes_ = summed(group, totals[0], len(first))
    took = summed(group, totals[1], len(first))
    edge, which = distinct(
        communicator[first], source[first], target[first], is_fused[first].astype(np.int32)
    )
    most, least = np.zeros(len(edge)), np.full(len(edge), np.inf)
    np.maximum.at(most, which, bytes_)
    np.minimum.at(least, which, took)
    rows = first[edge]
    fused = is_fused[rows]
    both = np.where(fused, 0.5, 1.0)
    return Messages(
        communicators=communicators,
        communicator=np.concatenate([communicator[rows], communicator[rows][fused]]),
        source=np.concatenate([source[rows], target[rows][fused]]),
        target=np.concatenate([target[rows], source[rows][fused]]),
        bytes=np.concatenate([most * both, (most * both)[fused]]),
        transfer_ns=np.concatenate([least * both, (least * both)[fused]]),
        is_directed=np.concatenate([~fused, np.zeros(int(fused.sum()), dtype=bool)]),
    )
