"""Which of a job's ranks were read, in words: the same in reports, evidence and actions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

RANKS_READ: Final = "ranks_read"
"""The metric of evidence about ranks that were not read; its labels say which, and what to do."""
PARTS_SHOWN = 12
"""Numbers and ranges of them that a sentence lists."""

FILES: Final = {
    "flight_recorder": ("Flight Recorder dump", "nccl_trace_rank_{rank}"),
    "nccl_inspector": ("NCCL Inspector log", ""),
    "kineto": ("profiler trace", ""),
}
"""What to collect of a rank, by the source that lacks it, and what the file is called."""


def numbers(ranks: Sequence[int]) -> str:
    """Rank numbers in order, three and more in a row as a range.

    >>> numbers([3, 8, 10, 15]), numbers([0, 1, 2, 5])
    ('3, 8, 10, 15', '0-2, 5')
    """
    parts: list[str] = []
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    for first, last in runs:
        parts += [f"{first}-{last}"] if last > first + 1 else map(str, range(first, last + 1))
    more = len(parts) - PARTS_SHOWN
    return ", ".join([*parts[:PARTS_SHOWN], *([f"and {more:,} more"] if more > 0 else [])])


def rank_words(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(set(ranks)) == 1 else 'ranks'} {numbers(ranks)}"


def nothing_read(unread: Sequence[int], read: int, size: int, *, is_open: bool) -> str:
    """That ranks were not read; where the verdict is open, that they could turn it.

    >>> nothing_read([5], 7, 8, is_open=True)
    'Of rank 5 nothing was read (7 of 8 were): it could explain this as well.'
    >>> nothing_read([5, 6], 6, 8, is_open=False)
    'Of ranks 5, 6 nothing was read (6 of 8 were).'
    """
    who = rank_words(unread) if unread else f"{size - read:,} ranks"
    pronoun = "it" if len(unread) == 1 else "any of them"
    more = f": {pronoun} could explain this as well" if is_open else ""
    return f"Of {who} nothing was read ({read:,} of {size:,} were){more}."


def collect_words(unread: Sequence[int], count: int, source: str) -> str:
    """The files to collect.

    >>> collect_words([5], 1, "flight_recorder")
    'the Flight Recorder dump of rank 5 (nccl_trace_rank_5)'
    >>> collect_words([3, 4], 2, "nccl_inspector"), collect_words([], 5, "")
    ('the NCCL Inspector logs of ranks 3, 4', 'the files of the other 5 ranks')
    """
    what, pattern = FILES.get(source, ("file", ""))
    if not unread:
        return (
            f"the {what}s of the other {count:,} ranks" if count > 1 else f"the other rank's {what}"
        )
    name = f" ({pattern.format(rank=min(unread))}{', …' if len(unread) > 1 else ''})"
    plural = "" if len(unread) == 1 else "s"
    return f"the {what}{plural} of {rank_words(unread)}{name if pattern else ''}"
