"""Files of other programs as they grow: what was added since the last look, in whole lines.

A `Follower` finds files by patterns and knows each by its inode: a file that is renamed goes on
under its new name, one that is truncated or replaced starts again, one that is deleted is
forgotten. The caller interprets the lines. Nothing is held between two looks but an offset and the
caller's own `Followed.note`, so that both survive a restart of the agent together.

Sources that read whole files (dumps, not logs) use `find_files` and `Host.stat` alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from collector.contract.errors import HostError
from collector.contract.reason import UnreadReason
from collector.doors.host import FileFacts, Host
from collector.parsing.lines import LINE_BYTES_MAX

YOUNG_SECONDS = 3600.0
"""A file that changed within this time when it is first seen is read from its beginning: an agent
that is started when a job is slow should know how the job began. An older one is a job that ended:
only what is added to it from now on is read."""
BACKLOG_BYTES_MAX = 64 << 20
"""How much of a file that is first seen is read: its end. A rank of a big job writes some 4 MB an
hour; what is larger has grown for a day, and its first hours no longer matter."""
POLL_BYTES_MAX = 16 << 20
"""What one look reads of all files together: at a look per second 16,000 records, thrice what eight
busy ranks write, and a tenth of a second's work. The rest is read at the next looks."""
READ_BYTES = 1 << 18
"""What one read takes, so that no more than this is held, or one line if that is longer."""
FILES_MAX = 512
"""Files followed at once, those that changed last: 8 ranks of 64 jobs."""
NAMES_MAX = 16_384
"""Names checked in all folders together: a stat of each costs 25 ms of a core at each look."""
FOLDERS_MAX = 256
"""Folders that patterns may stand for: a folder per job of a month."""
HEAD_BYTES = 256
"""By how much of its beginning a file is recognised, besides its inode: file systems give the inode
of a deleted file to the next one, and a file may be truncated and grow again between two looks."""

WILD = frozenset("*?[")

Identity = tuple[int, int]


# Finding -----------------------------------------------------------------------------------------


def find_folders(host: Host, patterns: Sequence[str]) -> list[str]:
    """Folders that the patterns stand for, at most NAMES_MAX, as paths for a Host.

    ``*``, ``?`` and ``[…]`` work within any part of a path (`/var/log/nccl/*`); ``**`` does not.
    A folder that is not there is normal: the job that will write it has not begun.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        parts = [part for part in pattern.split("/") if part not in {"", "."}]
        for folder in _expand(host, parts):
            found.setdefault(folder)
    return list(found)[:NAMES_MAX]


def _expand(host: Host, parts: list[str]) -> Iterator[str]:
    paths = [""]
    for part in parts:
        if not WILD.intersection(part):
            paths = [f"{path}/{part}" if path else part for path in paths]
            continue
        paths = [
            f"{path}/{name}" if path else name
            for path in paths
            for name in _names(host, path)
            if fnmatchcase(name, part) and (part.startswith(".") or not name.startswith("."))
        ][:NAMES_MAX]
    yield from paths


def _names(host: Host, folder: str) -> list[str]:
    """Names in a folder; none if it is no folder, or not ours to see."""
    try:
        return host.list(folder)
    except HostError:
        return []


class Found(NamedTuple):
    """The result of `find_files`."""

    files: dict[str, FileFacts]
    """Regular files by path, in alphabetical order of folder and name."""
    refusals: list[HostError]
    """Folders that are there and cannot be listed."""
    left_out: int
    """Names and folders that matched and were not checked, over NAMES_MAX and FOLDERS_MAX."""


def find_files(host: Host, folders: Sequence[str], names: Sequence[str]) -> Found:
    """Regular files in these folders whose name matches one of the shell patterns ``names``."""
    files: dict[str, FileFacts] = {}
    refusals: list[HostError] = []
    chosen = find_folders(host, folders)
    looked_at, left_out = 0, max(0, len(chosen) - FOLDERS_MAX)
    for folder in chosen[:FOLDERS_MAX]:
        try:
            listed = host.list(folder)
        except HostError as error:
            if error.reason is not UnreadReason.ABSENT:
                refusals.append(error)
            continue
        wanted = [name for name in listed if any(fnmatchcase(name, each) for each in names)]
        room = NAMES_MAX - looked_at
        looked_at += min(room, len(wanted))
        left_out += max(0, len(wanted) - room)
        for name in wanted[:room]:
            path = f"{folder}/{name}"
            try:
                facts = host.stat(path)
            except HostError:
                continue  # gone since it was listed
            if facts.is_file:
                files[path] = facts
    return Found(files, refusals, left_out)


# Following ---------------------------------------------------------------------------------------


class Followed:
    """One file that is followed: where it is, how far it was read, and the caller's note."""

    __slots__ = (
        "head",
        "identity",
        "is_continued",
        "is_skipping",
        "note",
        "offset",
        "path",
        "stem",
    )

    def __init__(self, path: str, identity: Identity, offset: int = 0) -> None:
        self.path = path
        self.stem = path
        """Where it was when a pattern last found it: its later names begin like this."""
        self.identity = identity
        self.offset = offset
        """Everything before this byte was handed out. A line begins here, unless `is_skipping`."""
        self.is_skipping = False
        """Whether what comes up to the next newline is the rest of a line to be passed over."""
        self.is_continued = False
        """Whether the next chunk goes on exactly where the last one ended."""
        self.head: tuple[int, int] = (0, 0)
        """Length and checksum of the file's beginning, as far as it was read."""
        self.note: dict[str, Any] = {}
        """The caller's, saved with the offset; emptied when the file starts again. Small."""

    def start(self, offset: int) -> None:
        """Begin at this byte; in the middle of a file with the next whole line."""
        self.offset = max(0, offset - 1)
        self.is_skipping = offset > 0
        self.is_continued = False
        self.head = (0, 0)
        self.note = {}


class Chunk(NamedTuple):
    """Whole lines that were added to a file, at most READ_BYTES unless one line is longer."""

    file: Followed
    lines: bytes
    """Ends with a newline."""
    offset: int
    """Where in the file the first line begins."""
    is_continued: bool
    """False where these lines do not follow the last chunk of this file: it is new, was truncated,
    or a part was passed over. Earlier context (a header for many lines) holds no more."""
    changed_ns: int


class Follower:
    """The files of some folders, followed. Not for use by two threads at once."""

    def __init__(
        self,
        folders: Sequence[str],
        names: Sequence[str],
        *,
        young_seconds: float = YOUNG_SECONDS,
        poll_bytes_max: int = POLL_BYTES_MAX,
    ) -> None:
        self._folders = tuple(folders)
        self._names = tuple(names)
        self._young_ns = int(young_seconds * 1e9)
        self._poll_bytes_max = poll_bytes_max
        self._files: dict[Identity, Followed] = {}
        self._turn = 0
        self.skipped_bytes = 0
        """Passed over since the start: the beginnings of files over BACKLOG_BYTES_MAX, and lines
        over LINE_BYTES_MAX."""
        self.left_out = 0
        """Files that match and are not followed now: more than FILES_MAX or NAMES_MAX."""

    @property
    def files(self) -> list[Followed]:
        """Every file that is followed now; those that are gone are not among them."""
        return list(self._files.values())

    def poll(self, host: Host) -> Iterator[Chunk | HostError]:
        """What was added since the last poll, at most ``poll_bytes_max`` of all files together.

        A file or folder that cannot be read is a HostError in its place. The caller may stop at
        any chunk: what it was not given comes at the next poll.
        """
        found = find_files(host, self._folders, self._names)
        yield from found.refusals
        seen = self._update(host, found)
        left = self._poll_bytes_max
        # Another file is first each time: when there is too much to read, all have their turn.
        turn = self._turn % len(seen) if seen else 0
        self._turn += 1
        for file, facts in (*seen[turn:], *seen[:turn]):
            try:
                for chunk in self._read(host, file, facts, left):
                    if isinstance(chunk, Chunk):
                        yield chunk
                    else:
                        left -= chunk
            except HostError as error:
                if error.reason is not UnreadReason.ABSENT:
                    yield error
            if left <= 0:
                return

    # Which files -----------------------------------------------------------------------------

    def _update(self, host: Host, found: Found) -> list[tuple[Followed, FileFacts]]:
        """Bring `_files` up to date; every followed file with what is known of it now."""
        now = {facts.identity: (path, facts) for path, facts in reversed(found.files.items())}
        now |= self._find_renamed(host, now)
        latest = sorted(now.items(), key=lambda item: item[1][1].changed_ns, reverse=True)
        self.left_out = found.left_out + max(0, len(latest) - FILES_MAX)
        kept = dict(latest[:FILES_MAX])
        seen = []
        files: dict[Identity, Followed] = {}
        for identity, (path, facts) in sorted(kept.items(), key=lambda item: item[1][0]):
            file = self._files.get(identity) or self._begin(host, path, facts)
            file.path = path
            if path in found.files:
                file.stem = path
            files[identity] = file
            seen.append((file, facts))
        self._files = files
        return seen

    def _find_renamed(
        self, host: Host, now: dict[Identity, tuple[str, FileFacts]]
    ) -> dict[Identity, tuple[str, FileFacts]]:
        """Followed files that no pattern finds any more: `x.log` is written on as `x.log.1`."""
        lost = {identity: file for identity, file in self._files.items() if identity not in now}
        found: dict[Identity, tuple[str, FileFacts]] = {}
        # Names that begin alike: what `logrotate` and its kind make of a name.
        stems = tuple(file.stem for file in lost.values())
        for folder in {stem.rpartition("/")[0] for stem in stems}:
            for name in _names(host, folder)[:NAMES_MAX]:
                path = f"{folder}/{name}"
                if not path.startswith(stems):
                    continue
                try:
                    facts = host.stat(path)
                except HostError:
                    continue
                if facts.identity in lost:
                    found[facts.identity] = path, facts
        return found

    def _begin(self, host: Host, path: str, facts: FileFacts) -> Followed:
        file = Followed(path, facts.identity)
        if facts.changed_ns < host.now_ns() - self._young_ns:
            file.start(facts.size)
        elif facts.size > BACKLOG_BYTES_MAX:
            self.skipped_bytes += facts.size - BACKLOG_BYTES_MAX
            file.start(facts.size - BACKLOG_BYTES_MAX)
        return file

    # What was added --------------------------------------------------------------------------

    def _read(
        self, host: Host, file: Followed, facts: FileFacts, left: int
    ) -> Iterator[Chunk | int]:
        """Chunks of one file; after each read, how many bytes it took."""
        if facts.size == file.offset:
            return
        if facts.size < file.offset or not self._is_same(host, file):
            file.start(0)
        while left > 0 and file.offset < facts.size:
            start = file.offset
            data = self._read_lines(host, file)
            lines = self._take(file, data)
            self._remember_head(host, file)
            if lines:
                is_continued, file.is_continued = file.is_continued, True
                offset = file.offset - len(lines)
                yield Chunk(file, lines, offset, is_continued, facts.changed_ns)
            left -= max(1, len(data))
            yield max(1, len(data))
            if not data or (file.offset == start and not file.is_skipping):
                return  # the last line is still being written

    def _read_lines(self, host: Host, file: Followed) -> bytes:
        """What stands at the offset: READ_BYTES, or more where a line is longer than that."""
        data = host.read_at(file.path, file.offset, READ_BYTES, file.identity)
        while len(data) % READ_BYTES == 0 and data and b"\n" not in data[-READ_BYTES:]:
            if len(data) > LINE_BYTES_MAX or file.is_skipping:
                break
            more = host.read_at(file.path, file.offset + len(data), READ_BYTES, file.identity)
            if not more:
                break
            data += more
        return data

    def _take(self, file: Followed, data: bytes) -> bytes:
        """The whole lines of what was read, and the offset moved behind them."""
        if file.is_skipping:
            end_of_line = data.find(b"\n") + 1
            self.skipped_bytes += end_of_line - 1 if end_of_line else len(data)
            file.offset += end_of_line or len(data)
            file.is_continued = False
            if not end_of_line:
                return b""
            file.is_skipping = False
            data = data[end_of_line:]
        lines = data[: data.rfind(b"\n") + 1]
        file.offset += len(lines)
        if not lines and len(data) > LINE_BYTES_MAX:
            file.is_skipping = True
        return lines

    def _is_same(self, host: Host, file: Followed) -> bool:
        length, checksum = file.head
        if not length:
            return True
        return zlib.crc32(host.read_at(file.path, 0, length, file.identity)) == checksum

    def _remember_head(self, host: Host, file: Followed) -> None:
        length = min(HEAD_BYTES, file.offset)
        if file.head[0] < length:
            data = host.read_at(file.path, 0, length, file.identity)
            file.head = len(data), zlib.crc32(data)

    # Over a restart --------------------------------------------------------------------------

    def save_state(self) -> dict[str, Any]:
        """How far each file was read, for `load_state` after a restart."""
        return {
            "files": [
                [file.stem, *file.identity, file.offset, *file.head, file.is_skipping, file.note]
                for file in self._files.values()
            ]
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; entries of another shape are ignored: such files are new."""
        entries = state.get("files")
        for entry in entries[:FILES_MAX] if isinstance(entries, list) else ():
            match entry:
                case [
                    str(path),
                    int(device),
                    int(inode),
                    int(offset),
                    int(length),
                    int(checksum),
                    bool(is_skipping),
                    dict(note),
                ] if offset >= 0 and 0 <= length <= HEAD_BYTES:
                    file = Followed(path, (device, inode), offset)
                    file.head = length, checksum
                    file.is_skipping = is_skipping
                    # Nothing but the note is needed to go on, and the note is there.
                    file.is_continued = not is_skipping
                    file.note = note
                    self._files[file.identity] = file
                case _:
                    pass
