"""A job's records near moments of its time, of which many are read from the store at once.

Pieces (`api.jobs.correlate.piece`) are read one by one, each with some time around it. A question
to the store has a price of its own, whatever its size, and half an hour has sixty pieces: where
several that follow each other are made, their records are read by one question and cut here. What
comes out is the same, record by record.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from alerts.window.columns import Ints, Records
from alerts.window.grouped import order_by
from api.data.store.store import Store
from api.jobs.correlate.read import (
    SOURCES_TIMED,
    WITHOUT_EXTRAS,
    Question,
    encoded,
    query_records,
    query_table,
    to_rows,
    with_own_names,
    without_repeats,
)
from api.jobs.correlate.window import JobRanks
from collector.contract.units import NS

PIECE_NS = 30 * NS
"""Pieces begin at multiples of it: as often as the page asks."""
BEFORE_NS, AFTER_NS = 8 * NS, 2 * NS
"""What is read around a piece of all ranks: steps of a second or two, and operations that some
ranks leave later than others."""
PIECE_RECORDS_MAX = 400_000
"""Records of one piece, 30 MB: of 1,000 ranks all that they do in half a minute. Past it every nth
operation is read, and all of some ranks. Of several pieces that are read at once, as many."""

TIMED = f"{WITHOUT_EXTRAS}, source, toUnixTimestamp64Nano(collectives.time) AS time_ns"


class Block:
    """The records of all timed sources in a stretch of time, in the order of the store."""

    def __init__(self, table: pa.Table, from_ns: int, to_ns: int) -> None:
        self.from_ns, self.to_ns = from_ns, to_ns
        self._rows = to_rows(table)
        time_ns = table["time_ns"].to_numpy()
        self._order = order_by(np.zeros(len(time_ns), dtype=np.int64), time_ns)
        self._time_ns = time_ns[self._order]
        self._sources, self._source = encoded(table["source"])

    def covers(self, from_ns: int, to_ns: int) -> bool:
        return self.from_ns <= from_ns and to_ns <= self.to_ns

    def rows(self, source: str, from_ns: int, to_ns: int) -> Ints:
        """Both ends are in it, as in the store's own condition."""
        first = np.searchsorted(self._time_ns, from_ns, side="left")
        last = np.searchsorted(self._time_ns, to_ns, side="right")
        if source not in self._sources:
            return np.zeros(0, dtype=np.int64)
        rows: Ints = np.sort(self._order[first:last])
        if len(self._sources) == 1:
            return rows
        own: Ints = rows[self._source[rows] == self._sources.index(source)]
        return own

    def records(self, rows: Ints) -> Records:
        return without_repeats(with_own_names(self._rows.select(rows)))


class Near:
    """Reads a job's records; for one thread. ``expected``: beginnings of pieces to be made."""

    def __init__(self, store: Store, job_rank: JobRanks, expected: Sequence[int] = ()) -> None:
        self.store = store
        self.job_rank = job_rank
        self._runs = runs_of(expected)
        self._plan: list[tuple[int, int]] | None = None
        self._block: Block | None = None

    @cached_property
    def communicators(self) -> list[str]:
        return sorted({communicator for communicator, _ in self.job_rank})

    def question(self, source: str, from_ns: int, to_ns: int) -> Question:
        return Question(self.communicators, from_ns, to_ns, [source])

    def read(self, source: str, from_ns: int, to_ns: int) -> Records:
        """All in this time; PIECE_RECORDS_MAX of them: there may be more."""
        block = self._block_of(from_ns, to_ns)
        if block is not None:
            return block.records(block.rows(source, from_ns, to_ns))
        question = self.question(source, from_ns, to_ns)
        return query_records(
            self.store, question, columns=WITHOUT_EXTRAS, rows_max=PIECE_RECORDS_MAX
        )

    def has(self, source: str, from_ns: int, to_ns: int) -> bool:
        if self._block is not None and self._block.covers(from_ns, to_ns):
            return bool(len(self._block.rows(source, from_ns, to_ns)))
        question = self.question(source, from_ns, to_ns)
        sql = f"SELECT 1 AS one FROM collectives WHERE {question.where} LIMIT 1"  # noqa: S608 - our words
        return bool(self.store.query(sql, question.parameters).num_rows)

    def _block_of(self, from_ns: int, to_ns: int) -> Block | None:
        if self._block is not None and self._block.covers(from_ns, to_ns):
            return self._block
        if self._plan is None:
            self._plan = [span for run in self._runs for span in self._spans(run)]
        for span in self._plan:
            if span[0] <= from_ns and to_ns <= span[1]:
                self._plan.remove(span)
                self._block = self._read_block(*span)
                return self._block
        return None

    def _spans(self, run: list[int]) -> list[tuple[int, int]]:
        """A run of pieces in stretches of which each has records for one block."""
        counts = self._count(run)
        spans: list[list[int]] = []
        for start in run:
            first = spans[-1][0] if spans else start
            # What is read around the first and the last is in their neighbours.
            around = range(first - PIECE_NS, start + 2 * PIECE_NS, PIECE_NS)
            if not spans or sum(counts.get(each, 0) for each in around) >= PIECE_RECORDS_MAX:
                spans.append([])
            spans[-1].append(start)
        return [
            (own[0] - BEFORE_NS, own[-1] + PIECE_NS + AFTER_NS) for own in spans if len(own) > 1
        ]

    def _count(self, run: list[int]) -> dict[int, int]:
        """Records by the piece that they are in; of two sources together."""
        question = Question(
            self.communicators, run[0] - PIECE_NS, run[-1] + 2 * PIECE_NS, SOURCES_TIMED
        )
        sql = f"""
            SELECT intDiv(toUnixTimestamp64Nano(time), {PIECE_NS}) AS piece, count() AS n
            FROM collectives WHERE {question.where} GROUP BY piece
        """  # noqa: S608 - our words
        found = self.store.query(sql, question.parameters)
        places = found["piece"].to_pylist()
        return {
            place * PIECE_NS: n for place, n in zip(places, found["n"].to_pylist(), strict=True)
        }

    def _read_block(self, from_ns: int, to_ns: int) -> Block | None:
        """None: records came meanwhile, and are too many now."""
        question = Question(self.communicators, from_ns, to_ns, SOURCES_TIMED)
        table = query_table(self.store, question, columns=TIMED, rows_max=PIECE_RECORDS_MAX)
        return Block(table, from_ns, to_ns) if table.num_rows < PIECE_RECORDS_MAX else None


def runs_of(starts: Sequence[int]) -> list[list[int]]:
    """Pieces that follow each other; one by itself gains nothing.

    >>> [len(run) for run in runs_of([at * PIECE_NS for at in (0, 1, 2, 5, 8, 9)])]
    [3, 2]
    """
    runs: list[list[int]] = []
    for start in sorted(starts):
        if runs and start - runs[-1][-1] == PIECE_NS:
            runs[-1].append(start)
        else:
            runs.append([start])
    return [run for run in runs if len(run) > 1]
