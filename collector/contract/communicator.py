"""The attributes of a `communicator` event: a communicator's members, their hosts and rings.

Several sources see parts of one communicator: NCCL's debug lines show devices, rings and trees,
NCCL Inspector shows the communicator's name. Each yields events of one kind with the same labels
(communicator and the rank within it), and readers merge the attributes. Attributes are text; those
with more than one part are encoded and decoded here, and nowhere else.

Text that no `encode_*` wrote decodes to nothing: events come over the network.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b

import msgspec

from collector.contract.model import Event

COMMUNICATOR = "communicator"
"""The kind of event, and the label that names the communicator."""
PROCESS_GROUP = "process_group"
"""The kind of event about a group of the framework: it may have several communicators, or none."""
DUMP = "flight_recorder_dump"
"""The kind of event about a dump of PyTorch's Flight Recorder; its label RANK is the rank in the
job. The attribute CUT: the dump is cut off."""
CUT = "cut"
RANK = "rank"
"""The label of the rank within the communicator."""

# Attributes. A missing one was not seen.
NAME = "name"
RANKS = "ranks"
"""How many ranks there are; of a process group: their ranks in the job, joined by commas."""
NODES = "nodes"
LOCAL_RANK = "local_rank"
LOCAL_RANKS = "local_ranks"
HOST = "host"
PID = "pid"
CUDA_DEVICE = "cuda_device"
NVML_DEVICE = "nvml_device"
BUS_ID = "bus_id"
"""The GPU's PCI address as sysfs writes it: `0000:00:06.0`."""
NCCL_VERSION = "nccl_version"
NET = "net"
"""NCCL's name of the network: `IB`, `Socket`, or a plug-in's."""
DEVICES = "devices"
"""Network devices that the rank's connections use, joined by commas."""
GPU_DIRECT = "gpu_direct"
"""`1` if a connection moves bytes between GPU and NIC without the host's memory."""
RINGS = "rings"
"""Whole rings, as JSON: a list of ranks for each channel."""
IN_NETWORK = "in_network"
"""`1` if switches of the network add up for it, as far as this rank knows: NCCL has connected it to
CollNet (SHARP), or reported that it chose CollNet for an operation."""

CHANNELS_MAX = 64
"""NCCL's own limit (MAXCHANNELS): a higher number is no channel."""
RANKS_MAX = 1 << 20
"""Ten times the largest job that was ever run: a higher number is no rank."""
RING_TEXT_MAX = 8 << 10
"""Characters of RINGS: half of an event's text (EVENT_TEXT_BYTES_MAX). NCCL prints no ring of over
some thirty ranks whole; the neighbours that each rank prints give the rest."""
TREE_CHILDREN_MAX = 3
"""NCCL_MAX_TREE_ARITY."""

GROUP_NAME_CHARS_MAX = 128
"""A process group's name. PyTorch's are numbers, or hashes of forty digits."""

_CHANNEL = re.compile(r"(ring|tree)_([0-9]{2})")


def communicator_event(
    communicator: str, rank: int, time_ns: int, attributes: Mapping[str, str]
) -> Event:
    """What was seen of one rank of a communicator; empty attributes are left out."""
    return Event(
        kind=COMMUNICATOR,
        time_ns=time_ns,
        labels={COMMUNICATOR: communicator, RANK: str(rank)},
        attributes={name: value for name, value in attributes.items() if value},
    )


def group_communicator(name: str, ranks: Iterable[int]) -> str:
    """The communicator of a framework's process group, where NCCL's own hash of it is not known.

    Flight Recorder and torch.profiler know the group's name and its ranks in the job, so that both
    write the same; groups of equal name and other ranks are not the same.

    >>> group_communicator("1", [0, 1, 2, 3])
    'pg:1:c79759c0'
    """
    digest = blake2b(",".join(map(str, sorted(ranks))).encode(), digest_size=4).hexdigest()
    if len(name) > GROUP_NAME_CHARS_MAX or not name.isprintable():
        name = blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"pg:{name}:{digest}"


GUESSED_GROUP = "stream"
"""What a group is called, with a stream's number, where nothing but that says who is in it."""


def is_guessed_group(communicator: str) -> bool:
    """Whether it is taken as that of all ranks only because no source names its members.

    >>> is_guessed_group(group_communicator(f"{GUESSED_GROUP}7", [0, 1]))
    True
    """
    return communicator.startswith(f"pg:{GUESSED_GROUP}")


def ring_attribute(channel: int) -> str:
    """The attribute with a rank's neighbours in one channel's ring.

    >>> ring_attribute(3)
    'ring_03'
    """
    return f"ring_{channel:02d}"


def tree_attribute(channel: int) -> str:
    """The attribute with a rank's parent and children in one channel's tree."""
    return f"tree_{channel:02d}"


def encode_neighbours(before: int, after: int) -> str:
    """The ranks from which a rank receives and to which it sends.

    >>> encode_neighbours(7, 1)
    '7,1'
    """
    return f"{before},{after}"


def decode_neighbours(text: str) -> tuple[int, int] | None:
    """The ranks before and after in a ring; None if the text does not hold them."""
    match parse_ranks(text):
        case [before, after]:
            return before, after
    return None


def encode_branch(parent: int | None, children: Iterable[int]) -> str:
    """A rank's place in a tree: its parent, then its children; the root has no parent.

    >>> encode_branch(4, [1, 3]), encode_branch(None, [4])
    ('4;1,3', ';4')
    """
    above = "" if parent is None else str(parent)
    return f"{above};{','.join(map(str, children))}"


def decode_branch(text: str) -> tuple[int | None, list[int]] | None:
    """Parent and children; None if the text does not hold them."""
    above, separator, below = text.partition(";")
    parents, children = parse_ranks(above), parse_ranks(below)
    if not separator or parents is None or children is None or len(parents) > 1:
        return None
    if len(children) > TREE_CHILDREN_MAX:
        return None
    return (parents[0] if parents else None), children


def encode_rings(rings: list[list[int]]) -> str:
    """Whole rings as text; empty if that would be over RING_TEXT_MAX characters.

    >>> encode_rings([[0, 1, 2]])
    '[[0,1,2]]'
    """
    text = msgspec.json.encode(rings).decode()
    return text if len(text) <= RING_TEXT_MAX else ""


def decode_rings(text: str) -> list[list[int]]:
    """The whole rings in the text; none if one of them is not a ring."""
    if len(text) > RING_TEXT_MAX:
        return []
    try:
        rings = msgspec.json.decode(text, type=list[list[int]])
    except (msgspec.DecodeError, RecursionError):
        return []
    is_whole = all(ring and sorted(ring) == list(range(len(ring))) for ring in rings)
    return rings if is_whole else []


def parse_ranks(text: str) -> list[int] | None:
    """The ranks in a text that joins them by commas; None if something else is there.

    >>> parse_ranks("3,11"), parse_ranks(""), parse_ranks("3,x")
    ([3, 11], [], None)
    """
    if not text:
        return []
    parts = text.split(",")
    if not all(
        part.isascii() and part.isdigit() and len(part) <= len(str(RANKS_MAX)) for part in parts
    ):
        return None
    return [int(part) for part in parts]


def communicator_rings(events: Iterable[Event]) -> dict[str, list[list[int]]]:
    """The rings of each communicator, in order of channels; every ring begins with its rank 0.

    A ring that some rank printed whole is taken as it is; others are assembled from the neighbours
    that each rank reports. A ring that these reports do not close is left out.
    """
    whole: dict[str, list[list[int]]] = {}
    nexts: dict[str, dict[int, dict[int, int]]] = {}
    for communicator, rank, attributes in _of_communicators(events):
        if rings := decode_rings(attributes.get(RINGS, "")):
            whole[communicator] = rings
        for channel, text in _channels(attributes, "ring"):
            if neighbours := decode_neighbours(text):
                channels = nexts.setdefault(communicator, {})
                channels.setdefault(channel, {})[rank] = neighbours[1]
    for communicator, channels in nexts.items():
        if communicator not in whole:
            walked = (walk_ring(after) for _, after in sorted(channels.items()))
            whole[communicator] = [ring for ring in walked if ring]
    return {communicator: rings for communicator, rings in whole.items() if rings}


def walk_ring(after: Mapping[int, int]) -> list[int]:
    """The ring that these neighbours make, from rank 0 on; empty unless all of them are in it.

    >>> walk_ring({0: 2, 1: 0, 2: 1}), walk_ring({0: 1, 1: 0, 2: 2}), walk_ring({0: 1})
    ([0, 2, 1], [], [])
    """
    ring: list[int] = []
    at: int | None = 0
    while at is not None and len(ring) < len(after):
        ring.append(at)
        at = after.get(at)
        if at == 0:
            break
    return ring if at == 0 and len(ring) == len(after) else []


def communicator_trees(events: Iterable[Event]) -> dict[str, list[dict[int, int | None]]]:
    """Each communicator's trees by channel: each known rank's parent, None for roots."""
    found: dict[str, dict[int, dict[int, int | None]]] = {}
    for communicator, rank, attributes in _of_communicators(events):
        for channel, text in _channels(attributes, "tree"):
            if branch := decode_branch(text):
                channels = found.setdefault(communicator, {})
                channels.setdefault(channel, {})[rank] = branch[0]
    return {
        communicator: [parents for _, parents in sorted(channels.items())]
        for communicator, channels in found.items()
    }


def _of_communicators(events: Iterable[Event]) -> Iterator[tuple[str, int, dict[str, str]]]:
    """Communicator, rank and attributes of each event that has all of them."""
    for event in events:
        if event.kind != COMMUNICATOR:
            continue
        communicator = event.labels.get(COMMUNICATOR, "")
        ranks = parse_ranks(event.labels.get(RANK, ""))
        if communicator and ranks and len(ranks) == 1:
            yield communicator, ranks[0], event.attributes


def _channels(attributes: Mapping[str, str], what: str) -> Iterator[tuple[int, str]]:
    for name, text in attributes.items():
        match = _CHANNEL.fullmatch(name)
        if match and match[1] == what and int(match[2]) < CHANNELS_MAX:
            yield int(match[2]), text
