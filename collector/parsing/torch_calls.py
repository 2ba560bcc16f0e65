"""Calls of one rank in a Flight Recorder dump, in a form that ranks can be compared by.

All ranks of a group must make the same calls in the same order. A call here is everything that must
be equal: the operation, the number of elements and their type. Shapes may differ, and sizes of
operations whose ranks give different amounts are left out. Calls that were put together (coalesced)
share one number and are compared together. Sends and receives that were put together are no calls
of all ranks: what ends them is left out as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

CALLS_MAX = 200_000
"""Calls of one dump: a hundred times the recorder's default."""
FRAMES_SHOWN = 3
FRAME_CHARS_MAX = 160
UNEVEN = ("alltoall", "all_to_all", "gather", "scatter", "send", "recv", "coalesced")
"""Operations, by the beginning of their name, whose ranks may give different amounts."""
TORCH = ("-packages/torch/", "/torch/distributed/", "<frozen ")
"""Frames of the framework itself: not where the program calls."""


COALESCED = "nccl:coalesced"
Entry = Mapping[str, object]


class Call(NamedTuple):
    """What a rank called under one number of a group."""

    group: str
    sequence: int
    words: str
    """Operation, elements and type; of several put together all, in order."""
    frames: tuple[str, ...]
    time_ns: int
    is_done: bool


def calls_of(dump: Mapping[str, object]) -> list[Call]:
    """The collectives of a dump, in order of their numbers; what is not understood is left out."""
    entries = dump.get("entries")
    if not isinstance(entries, list | tuple):
        return []
    merged: dict[tuple[str, int], Call] = {}
    _, batches = find_batches(entries[:CALLS_MAX])
    for place, entry in enumerate(entries[:CALLS_MAX]):
        call = call_of(entry) if isinstance(entry, dict) else None
        if call is None or place in batches:
            continue
        key = call.group, call.sequence
        known = merged.get(key)
        if known is not None:
            words = f"{known.words} + {call.words}"[:1000]
            call = known._replace(words=words, is_done=known.is_done and call.is_done)
        merged[key] = call
    return sorted(merged.values(), key=lambda call: (call.group, call.sequence))


def find_batches(entries: Sequence[object]) -> tuple[dict[int, Entry], set[int]]:
    """By a send's or receive's place the entry that ends its batch; and the places of those.

    All of a batch have one group and one number of point-to-point calls, and PyTorch (2.11) records
    the entry that ends them right after them. A batch without that entry has not been launched. The
    recorder is a ring: what ends a batch may be left of it alone, first of its group.
    """
    batch_of: dict[int, Entry] = {}
    batches: set[int] = set()
    open_by_call: dict[tuple[str, int], list[int]] = {}
    groups: set[str] = set()
    for place, entry in enumerate(entries):
        pair = entry.get("process_group") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(pair, list | tuple) or not pair:
            continue
        group, number = pair[0], entry.get("p2p_seq_id")
        if not isinstance(group, str) or type(number) is not int:
            continue
        if entry.get("is_p2p") is True:
            open_by_call.setdefault((group, number), []).append(place)
        elif entry.get("profiling_name") == COALESCED and number > 0:
            members = open_by_call.pop((group, number), [])
            batch_of |= dict.fromkeys(members, entry)
            if members or group not in groups or entry.get("collective_seq_id") == 0:
                batches.add(place)
        groups.add(group)
    return batch_of, batches


def call_of(entry: Mapping[str, object]) -> Call | None:
    pair, name = entry.get("process_group"), entry.get("profiling_name")
    sequence, created = entry.get("collective_seq_id"), entry.get("time_created_ns")
    if entry.get("is_p2p") is not False and entry.get("is_p2p") is not None:
        return None
    if not isinstance(pair, list | tuple) or not pair or not isinstance(pair[0], str):
        return None
    if not isinstance(name, str) or type(sequence) is not int or type(created) is not int:
        return None
    return Call(
        group=pair[0],
        sequence=sequence,
        words=call_words(name, entry),
        frames=frames_of(entry.get("frames")),
        time_ns=max(0, created),
        is_done=entry.get("state") == "completed",
    )


def call_words(name: str, entry: Mapping[str, object]) -> str:
    """`all_reduce of 4,194,304 BFloat16`; without a size where ranks may give different ones."""
    operation = name.removeprefix("nccl:").strip()[:64].lstrip("_")
    if operation.startswith(UNEVEN):
        return operation
    shapes, types = entry.get("input_sizes"), entry.get("input_dtypes")
    if not isinstance(shapes, list | tuple) or not isinstance(types, list | tuple):
        return operation
    elements = 0
    for shape in shapes[:4096]:
        size = 1
        for side in shape if isinstance(shape, list | tuple) else ():
            if type(side) is not int or not 0 <= side < 1 << 62:
                return operation
            size *= side
        elements += size
    kinds = sorted({kind[:32] for kind in types[:4096] if isinstance(kind, str)})
    return f"{operation} of {elements:,} {' and '.join(kinds)}".rstrip()


def frames_of(frames: object) -> tuple[str, ...]:
    """Where the program made the call: `rank.py:153`, the innermost of its own frames first."""
    if not isinstance(frames, list | tuple):
        return ()
    found = []
    for frame in frames[:128]:
        if not isinstance(frame, dict):
            continue
        path, line = frame.get("filename"), frame.get("line")
        if not isinstance(path, str) or type(line) is not int or any(one in path for one in TORCH):
            continue
        found.append(f"{path[-FRAME_CHARS_MAX:]}:{line}")
        if len(found) == FRAMES_SHOWN:
            break
    return tuple(found)
