"""What this process knows of the inserts of all that write to the store.

Three things are kept in memory for as long as an insert does not contradict them: the last minutes'
samples, answers about stretches of the past, and series that matched a selector. Where this process
alone writes, it notes its own inserts. Where another process of the service owns the store, that
one logs all of them (`api.data.store.insert_log`), and what is new there is taken before each look
at any of the three. Beside a ClickHouse server others write what is not known here: nothing is
kept.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from api.data.store.blocks import decode_block
from api.data.store.insert_log import Entry, InsertLog, Kind, Note
from api.data.store.recent import Count, Load, Recent, SampleRows
from api.data.store.rings import Samples
from api.data.store.touched import Touched
from collector.contract.units import NS_PER_MS

METRICS_NOTED_MAX = 100_000
"""Metrics whose last new series is noted, about 10 MB. Past it the notes are cleared, and any
metric may have new series."""
SAMPLES, SERIES, RECORDS = "samples", "series", "collectives"
NOTED_TABLES: Final = frozenset({SAMPLES, SERIES, RECORDS})
"""Tables whose inserts contradict what is kept."""

log = logging.getLogger(__name__)

NOTES: Final = msgspec.msgpack.Decoder(Note)


class Known:
    """One a store; for any thread.

    ``is_alone``: this process alone writes. ``inserts``: another logs what all write. Else nothing
    is known.
    """

    def __init__(
        self,
        load: Load,
        count: Count,
        *,
        is_alone: bool,
        inserts: InsertLog | None,
        sharers: int,
        now_ms: Callable[[], int],
    ) -> None:
        self.is_complete = is_alone or inserts is not None
        self._inserts = inserts
        self._taking = threading.Lock()
        self._head = inserts.head if inserts is not None else (0, 0)
        """Up to where the log was taken."""
        self._naming = threading.Lock()
        self._series_version = 0
        self._metric_versions: dict[str, int] = {}
        self._forgotten_version = 0
        self._watched: npt.NDArray[np.uint32] = np.zeros(0, np.uint32)
        self.recent = Recent(
            load,
            count,
            is_complete=self.is_complete,
            now_ms=now_ms,
            catch_up=self.catch_up,
            sharers=sharers,
        )
        self.touched_records = Touched(is_complete=self.is_complete, catch_up=self.catch_up)
        self.touched_samples = Touched(is_complete=self.is_complete, catch_up=self.catch_up)

    # --- the log of another process ------------------------------------------------------------

    def catch_up(self) -> None:
        """Take what was logged since the last time: all that was acknowledged before this."""
        inserts = self._inserts
        if inserts is None or inserts.head == self._head:
            return
        with self._taking:
            life, written = head = inserts.head
            known_life, known = self._head
            found = inserts.read(life, known, written) if life == known_life else None
            if found is None or not all(map(self._take, found)):
                self._begin_anew()
            self._head = head  # the last: who sees it sees all of the above

    @property
    def follows(self) -> bool:
        """Whether another process logs what is inserted."""
        return self._inserts is not None

    def follow(self) -> None:
        """Now and then: who reads seldom must not be overtaken, and load five minutes each time."""
        self.recent.let_go_unread()
        if self.recent.holds_any:
            self.catch_up()

    def _begin_anew(self) -> None:
        self.recent.forget()
        self.touched_records.note_all()
        self.touched_samples.note_all()
        self.note_series(None)

    def _take(self, entry: Entry) -> bool:
        """False: it cannot be read."""
        try:
            self._read(entry)
        except (KeyError, ValueError):  # a bug, which must not make every later look fail
            log.exception("an insert of another process cannot be read")
            return False
        return True

    def _read(self, entry: Entry) -> None:
        match entry.kind:
            case Kind.SAMPLES:
                if self.recent.holds_any or len(self._watched):
                    samples = samples_in(entry.body)
                    self.note_samples(samples)
                    self.recent.add(samples)
            case Kind.NOTED:
                note = NOTES.decode(entry.body)
                if note.table == SERIES:
                    self.note_series(note.names)
                else:
                    self.touched_records.note_places(note.stretches)
            case Kind.FAILED | Kind.UNKNOWN:
                self._take_unknown(entry.body.decode(), is_written=entry.kind is Kind.UNKNOWN)

    def _take_unknown(self, table: str, *, is_written: bool) -> None:
        if table == SERIES:
            self.note_series(None)
        elif table == RECORDS:
            self.touched_records.note_all()
        else:
            self.touched_samples.note_all()
            if is_written:
                self.recent.forget()

    # --- inserts -------------------------------------------------------------------------------

    def watch_samples(self, metrics: Sequence[int]) -> None:
        """Note inserts of these metrics, too, in ``touched_samples``."""
        self._watched = np.union1d(self._watched, np.array(metrics, np.uint32))

    def note_samples(self, samples: SampleRows) -> None:
        watched = self._watched
        if len(watched):
            place = np.minimum(np.searchsorted(watched, samples.metric), len(watched) - 1)
            chosen = watched[place] == samples.metric
            self.touched_samples.note(samples.time_ms[chosen] * NS_PER_MS)

    def note_series(self, metrics: Sequence[str] | None) -> None:
        """These metrics have new rows in `series`; None: any may have."""
        with self._naming:
            self._series_version += 1
            is_full = len(self._metric_versions) + len(metrics or ()) > METRICS_NOTED_MAX
            if metrics is None or is_full:
                self._metric_versions, self._forgotten_version = {}, self._series_version
            self._metric_versions.update(dict.fromkeys(metrics or (), self._series_version))

    def series_version(self, metrics: Sequence[str] | None) -> int | None:
        """A number that changes whenever `series` may have new rows of these metrics (None: any).

        None if others write to it whose inserts are not known here.
        """
        if not self.is_complete:
            return None
        self.catch_up()
        if metrics is None:
            return self._series_version
        with self._naming:
            versions, other = self._metric_versions, self._forgotten_version
        return max((versions.get(name, other) for name in metrics), default=0)


def samples_in(block: bytes) -> Samples:
    """The samples of a block of the table; see its migration for `whole` and `fraction`."""
    columns = decode_block(block)
    value = columns["whole"].astype(np.float64)
    fraction = columns.get("fraction")
    if fraction is not None:
        value = np.where(fraction.view(np.uint64) == 0, value, fraction)
    return Samples(columns["metric"], columns["series"], columns["time"], value)
