"""Batches on disk that wait for the service: bounded, by number, one file each.

    <spool_dir>/lock                              held while an agent runs; names its process
    <spool_dir>/numbering                         which numbering, and the next sequence
    <spool_dir>/batches/<sequence>.<samples>.batch
    <spool_dir>/rejected/                         batches that the service can never accept
    <spool_dir>/aside/                            files that are no batches of ours, or broken ones
    <spool_dir>/configuration/                    of roll-outs (`collector.agent.rollout.keep`)
    <spool_dir>/state.msgpack                     what sources want to remember over a restart

What survives what. A batch is written under a temporary name and renamed, so a killed agent loses
nothing that `put` has returned for. Nothing is synced to the disk: on a host whose disks are busy
with checkpoints an fsync takes seconds, and a power cut costs the last seconds anyway. After one,
a batch may be found cut short (it is set aside and counted), and the numbering may have fallen
back; therefore a numbering ends with the boot of the host, and the next one has another name
(`boot`), so that no batch is ever taken for a resend of another.

A sequence is never used twice in one numbering: the numbering is written before the last batch
that shows it is removed.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Container, Mapping
from itertools import islice
from pathlib import Path

import msgspec

from collector.agent.meter import Meter
from collector.contract.errors import SpoolError, WireError
from collector.contract.wire import Batch, decode_batch

BATCHES_MAX = 50_000
"""Files in the queue: three days at one batch in five seconds, and far below any inode limit."""
REJECTED_FILES_MAX = 100
REJECTED_BYTES_MAX = 16 << 20
"""Kept for the operator to inspect; a hundred show the pattern, more is only disk."""
ASIDE_FILES_MAX = 100
ASIDE_BYTES_MAX = 16 << 20
STATE_BYTES_MAX = 16 << 20
"""A larger state file is not ours: a source keeps a few numbers for each counter."""

DROPPED_BATCHES = "fabric_agent_dropped_batches_total"
DROPPED_SAMPLES = "fabric_agent_dropped_samples_total"
FOREIGN_FILES = "fabric_agent_spool_foreign_files_total"
DROP_REASONS = ("spool_full", "batch_too_large", "disk_error", "corrupt")

_NAME = re.compile(r"(?P<sequence>\d{20})\.(?P<samples>\d{1,9})\.batch")
_TEMPORARY = ".writing"

log = logging.getLogger(__name__)


class Entry(msgspec.Struct, frozen=True):
    """One batch in the queue. ``written_ns`` is wall time."""

    sequence: int
    samples: int
    size_bytes: int
    written_ns: int

    @property
    def name(self) -> str:
        return f"{self.sequence:020d}.{self.samples}.batch"


class Loaded(msgspec.Struct, frozen=True):
    """A batch of the queue, as bytes and decoded."""

    entry: Entry
    body: bytes
    batch: Batch


class Numbering(msgspec.Struct, frozen=True):
    """Which numbering runs, under which boot of the host, and the next sequence of it."""

    boot: str
    host_boot_id: str
    next_sequence: int


class State(msgspec.Struct, frozen=True):
    """What sources remember: msgpack by source, good for one boot of the host."""

    host_boot_id: str
    sources: dict[str, bytes]


class Spool:
    """The queue. One agent's: `put` by its flusher, the rest by its shipper; close it at the end.

    ``bytes_max`` bounds the sizes of the waiting batches together; the rejected and aside folders
    have bounds of their own.
    """

    def __init__(
        self,
        directory: Path,
        *,
        bytes_max: int,
        host_boot_id: str,
        now_ns: Callable[[], int],
        meter: Meter,
        batches_max: int = BATCHES_MAX,
    ) -> None:
        self.directory = directory
        self._batches = directory / "batches"
        self._rejected = directory / "rejected"
        self._aside = directory / "aside"
        self._bytes_max = bytes_max
        self._batches_max = batches_max
        self._host_boot_id = host_boot_id
        self._now_ns = now_ns
        self._meter = meter
        self._changed = threading.Condition()
        self._queue: OrderedDict[int, Entry] = OrderedDict()
        """By sequence, in order."""
        self._bytes = 0
        self._sending: frozenset[int] = frozenset()
        """Sequences of the batches that are being sent."""
        self._numbered = 0
        """The next sequence that the file `numbering` shows."""
        self._disk_failing = False
        self._numbering = Numbering("", "", 0)
        for reason in DROP_REASONS:
            meter.add(DROPPED_BATCHES, 0, reason=reason)
            meter.add(DROPPED_SAMPLES, 0, reason=reason)
        self._lock_file = _lock(directory)
        self._open()
        meter.ask("fabric_agent_spool_batches", lambda: len(self._queue))
        meter.ask("fabric_agent_spool_bytes", lambda: self._bytes)
        meter.ask("fabric_agent_spool_oldest_age_seconds", self.oldest_age_seconds)
        meter.set("fabric_agent_spool_limit_bytes", bytes_max)

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def boot(self) -> str:
        return self._numbering.boot

    @property
    def next_sequence(self) -> int:
        return self._numbering.next_sequence

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def oldest_age_seconds(self) -> float:
        """How long the oldest batch has waited; 0 when none waits, or the clock was set back.

        Takes no lock: a scrape must be answered while a slow disk holds up `put`.
        """
        try:
            oldest = next(iter(self._queue.values()))
        except (StopIteration, RuntimeError, KeyError):  # none, or it changed under our eyes
            return 0.0
        return max(0.0, (self._now_ns() - oldest.written_ns) / 1e9)

    # --- writing ---------------------------------------------------------------------------

    def put(self, body: bytes, *, samples: int) -> None:
        """Queue the batch that was numbered `next_sequence`; the oldest make room for it.

        A batch that cannot be written is dropped and counted, and its sequence is used by the
        next one: the service has not seen it.
        """
        entry = Entry(self.next_sequence, samples, len(body), self._now_ns())
        if entry.size_bytes > self._bytes_max:
            self._count_drop("batch_too_large", samples)
            return
        with self._changed:
            self._make_room(batches=1, size_bytes=entry.size_bytes)
            try:
                _write(self._batches / entry.name, body)
            except OSError as error:
                if not self._disk_failing:
                    log.warning("spool: cannot write, readings are being lost: %s", error)
                self._disk_failing = True
                self._count_drop("disk_error", samples)
                return
            if self._disk_failing:
                log.warning("spool: writing works again")
                self._disk_failing = False
            self._queue[entry.sequence] = entry
            self._bytes += entry.size_bytes
            self._numbering = msgspec.structs.replace(
                self._numbering, next_sequence=entry.sequence + 1
            )
            self._changed.notify_all()

    def _make_room(self, *, batches: int, size_bytes: int) -> None:
        """Drop the oldest until so much more fits; last those being sent: they may arrive."""
        while self._queue and (
            self._bytes + size_bytes > self._bytes_max
            or len(self._queue) + batches > self._batches_max
        ):
            waiting = (each for each in self._queue if each not in self._sending)
            dropped = self._queue[next(waiting, next(iter(self._queue)))]
            self._discard(dropped)
            self._count_drop("spool_full", dropped.samples)

    # --- reading ---------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Return when a batch waits, when a thread calls `wake`, or after so many seconds."""
        with self._changed:
            if not self._queue:
                self._changed.wait(seconds)

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def oldest(self) -> Loaded | None:
        """The oldest good batch: being sent until removed or put back."""
        with self._changed:
            while self._queue and self._lock_file >= 0:
                loaded = self._load(next(iter(self._queue.values())))
                if loaded is not None:
                    self._sending = frozenset({loaded.entry.sequence})
                    return loaded
            return None

    def newest(
        self, *, batches_max: int, readings_max: int, apart: Container[int] = ()
    ) -> list[Loaded]:
        """The newest good batch with those right before it, in order: being sent, as `oldest`.

        They follow each other in number and have one numbering, one agent and the same common
        labels. At least one, if any waits; no more batches and readings than that. Those in
        ``apart`` come alone.
        """
        found: list[Loaded] = []
        with self._changed:
            while self._queue and not found and self._lock_file >= 0:
                for entry in [*islice(reversed(self._queue.values()), batches_max)]:
                    run = [*(each.entry for each in found), entry]
                    is_apart = any(each.sequence in apart for each in run)
                    is_large = sum(each.samples for each in run) > readings_max
                    if found and (is_apart or is_large):
                        break
                    loaded = self._load(entry)
                    if loaded is None:
                        continue  # the next one does not follow, unless none was found yet
                    if found and not follows(found[-1], loaded):
                        break
                    found.append(loaded)
            self._sending = frozenset(each.entry.sequence for each in found)
        return found[::-1]

    def _load(self, entry: Entry) -> Loaded | None:
        """The batch of this entry; one that is broken is set aside and counted."""
        try:
            body = (self._batches / entry.name).read_bytes()
            return Loaded(entry, body, decode_batch(body))
        except (OSError, WireError) as error:
            log.warning("spool: batch %s is broken, set aside: %s", entry.name, error)
            self._discard(entry, into=self._aside)
            self._count_drop("corrupt", entry.samples)
            return None

    def put_back(self) -> None:
        """Keep what is being sent: the attempt has failed."""
        with self._changed:
            self._sending = frozenset()

    def remove(self, entry: Entry) -> None:
        """Forget a batch that the service has acknowledged."""
        with self._changed:
            self._discard(entry)

    def reject(self, entry: Entry) -> None:
        """Move a batch that the service can never accept to rejected/, for the operator."""
        with self._changed:
            self._discard(entry, into=self._rejected)

    def _discard(self, entry: Entry, into: Path | None = None) -> None:
        """Take an entry out; one that was dropped in the meantime is gone already.

        A closed spool is another agent's: it will send the batch again, which changes nothing.
        """
        if self._lock_file < 0 or entry.sequence not in self._queue:
            return
        self._sending -= {entry.sequence}
        # Before the last batch that shows it is gone; after an outage the newest is gone first.
        if entry.sequence >= self._numbered and entry.sequence == next(reversed(self._queue)):
            self._write_numbering()
        path = self._batches / entry.name
        try:
            if into is None:
                path.unlink(missing_ok=True)
            else:
                _move(path, into)
        except OSError as error:
            # It comes back after a restart and is then a resend, which the service recognises.
            log.warning("spool: cannot remove %s: %s", path, error)
        del self._queue[entry.sequence]
        self._bytes -= entry.size_bytes

    def _count_drop(self, reason: str, samples: int) -> None:
        self._meter.add(DROPPED_BATCHES, reason=reason)
        self._meter.add(DROPPED_SAMPLES, samples, reason=reason)

    # --- opening and closing ---------------------------------------------------------------

    def _open(self) -> None:
        try:
            for folder in (self._batches, self._rejected, self._aside):
                folder.mkdir(exist_ok=True)
            self._queue.update((entry.sequence, entry) for entry in self._list_batches())
        except OSError as error:
            self.close()
            msg = f"spool {self.directory}: {error}"
            raise SpoolError(msg) from error
        self._bytes = sum(entry.size_bytes for entry in self._queue.values())
        self._numbering = self._load_numbering()
        self._write_numbering()
        self._make_room(batches=0, size_bytes=0)

    def _list_batches(self) -> list[Entry]:
        entries: list[Entry] = []
        for path in sorted(self._batches.iterdir()):
            match = _NAME.fullmatch(path.name)
            if match and path.is_file():
                about = path.stat()
                entries.append(
                    Entry(
                        int(match["sequence"]),
                        int(match["samples"]),
                        about.st_size,
                        about.st_mtime_ns,
                    )
                )
            elif path.name.endswith(_TEMPORARY):
                # The agent was killed while it wrote this: it was never acknowledged as stored.
                path.unlink()
            else:
                log.warning("spool: %s is not a batch of ours; moved to aside/", path)
                self._meter.add(FOREIGN_FILES)
                _move(path, self._aside)
        return entries

    def _load_numbering(self) -> Numbering:
        """The stored numbering if it is this boot's, else a new one that goes on counting."""
        after_queue = next(reversed(self._queue)) + 1 if self._queue else 0
        try:
            stored = msgspec.json.decode(
                (self.directory / "numbering").read_bytes(), type=Numbering
            )
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            stored = None
        if stored and stored.host_boot_id == self._host_boot_id != "":
            return msgspec.structs.replace(
                stored, next_sequence=max(stored.next_sequence, after_queue)
            )
        after_stored = stored.next_sequence if stored else 0
        return Numbering(
            boot=secrets.token_hex(8),
            host_boot_id=self._host_boot_id,
            next_sequence=max(after_stored, after_queue),
        )

    def _write_numbering(self) -> None:
        path = self.directory / "numbering"
        try:
            _write(path, msgspec.json.encode(self._numbering))
            self._numbered = self._numbering.next_sequence
        except OSError as error:
            # Without the file the next start makes a new numbering, which is safe.
            log.warning("spool: cannot write %s, removing it: %s", path, error)
            self._numbered = 0
            _unlink_quietly(path)

    def close(self) -> None:
        """Let another agent use the folder. What waits stays."""
        with self._changed:
            if self._lock_file >= 0:
                os.close(self._lock_file)
                self._lock_file = -1

    # --- what sources remember ---------------------------------------------------------------

    def save_state(self, sources: Mapping[str, bytes]) -> None:
        """Keep what sources want to find again after a restart of the agent."""
        state = msgspec.msgpack.encode(State(self._host_boot_id, dict(sources)))
        try:
            _write(self.directory / "state.msgpack", state)
        except OSError as error:
            log.warning("spool: cannot save the sources' state: %s", error)

    def load_state(self) -> dict[str, bytes]:
        """What `save_state` kept, if it is of this boot: counters restart with the host."""
        path = self.directory / "state.msgpack"
        try:
            if path.stat().st_size > STATE_BYTES_MAX:
                log.warning("spool: %s has over STATE_BYTES_MAX bytes; ignored", path)
                return {}
            state = msgspec.msgpack.decode(path.read_bytes(), type=State)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            log.warning("spool: %s cannot be used, sources start afresh: %s", path, error)
            return {}
        return state.sources if state.host_boot_id == self._host_boot_id != "" else {}


def follows(later: Loaded, earlier: Loaded) -> bool:
    """Whether a batch is the next one of the same numbering of one agent, with the same labels."""
    one, other = earlier.batch, later.batch
    return (one.agent, one.boot, one.sequence + 1, one.common) == (
        other.agent,
        other.boot,
        other.sequence,
        other.common,
    )


def _lock(directory: Path) -> int:
    """A descriptor that holds the folder for this process until it is closed."""
    path = directory / "lock"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o750)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        msg = f"spool {directory}: {error.strerror}; set spool_dir to a folder that can be written"
        raise SpoolError(msg) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(descriptor, 20).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        msg = (
            f"spool {directory} is in use by another agent (process {holder}); "
            "stop that one, or give this one its own spool_dir"
        )
        raise SpoolError(msg) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _write(path: Path, content: bytes) -> None:
    """Write the file so that it is either there whole or not there."""
    temporary = path.with_name(path.name + _TEMPORARY)
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError:
        _unlink_quietly(temporary)
        raise


def _unlink_quietly(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.debug("spool: cannot remove %s: %s", path, error)


def _move(path: Path, folder: Path) -> None:
    """Move the file into the folder and keep the folder within its bounds, newest kept."""
    path.replace(folder / path.name)
    files_max, bytes_max = (
        (REJECTED_FILES_MAX, REJECTED_BYTES_MAX)
        if folder.name == "rejected"
        else (ASIDE_FILES_MAX, ASIDE_BYTES_MAX)
    )
    files = sorted((each.stat().st_mtime_ns, each) for each in folder.iterdir() if each.is_file())
    size = sum(each.stat().st_size for _, each in files)
    for _, each in files:
        if len(files) <= files_max and size <= bytes_max:
            break
        size -= each.stat().st_size
        files = files[1:]
        each.unlink()
