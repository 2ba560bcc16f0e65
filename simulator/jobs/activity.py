"""What each rank was busy with, and when: answers for any stretch of time.

A job plans ahead of the clock (a rank's whole forward pass is known when it begins), so spans may
lie in the future. `take` covers the time since the last call.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.topology.model import Floats, Ints


class Doing(enum.IntEnum):
    """What a GPU is busy with."""

    COMPUTING = 0
    COMMUNICATING = 1
    """Inside a collective: waiting for others, or moving bytes. NVML calls both busy."""


@dataclass(frozen=True, eq=False)
class _Span:
    """A stretch of work of some ranks; a rank may be in it twice."""

    doing: Doing
    ranks: Ints
    start_s: Floats
    end_s: Floats
    nvlink_bytes: float
    """Bytes that each rank moves over NVLink meanwhile, evenly."""


class Activity:
    """The spans of one job's ranks that `take` has not returned yet."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._spans: list[_Span] = []
        self._asked_until_s = -math.inf

    def add(
        self, doing: Doing, ranks: Ints, start_s: Floats, end_s: Floats, nvlink_bytes: float = 0.0
    ) -> None:
        flat = (ranks.reshape(-1), start_s.reshape(-1).copy(), end_s.reshape(-1).copy())
        self._spans.append(_Span(doing, *flat, nvlink_bytes))

    def take(
        self, until_s: float, waiting: Sequence[tuple[Ints, Floats]]
    ) -> tuple[Floats, Floats, Floats]:
        """Per rank since the last call: seconds computing, communicating; NVLink bytes.

        ``waiting`` are ranks inside collectives whose end is not known yet, and since when.
        """
        seconds, moved = np.zeros((len(Doing), self._ranks)), np.zeros(self._ranks)
        since = self._asked_until_s
        for span in self._spans:
            overlap = _overlap(span.start_s, span.end_s, since, until_s)
            np.add.at(seconds[span.doing], span.ranks, overlap)
            if span.nvlink_bytes:
                length = np.maximum(span.end_s - span.start_s, 1e-9)
                np.add.at(moved, span.ranks, span.nvlink_bytes * overlap / length)
        for members, entry_s in waiting:
            entered = entry_s.reshape(-1)
            overlap = _overlap(entered, np.full(len(entered), until_s), since, until_s)
            np.add.at(seconds[Doing.COMMUNICATING], members.reshape(-1), overlap)
        self._asked_until_s = until_s
        self._spans = [span for span in self._spans if span.end_s.max() > until_s]
        return seconds[Doing.COMPUTING], seconds[Doing.COMMUNICATING], moved


def _overlap(start_s: Floats, end_s: Floats, since_s: float, until_s: float) -> Floats:
    overlap: Floats = np.minimum(end_s, until_s) - np.maximum(start_s, since_s)
    return np.maximum(overlap, 0.0)
