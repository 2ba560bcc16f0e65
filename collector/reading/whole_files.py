"""Files that are read whole, once, when they have stopped changing: dumps and results.

The other half of `follow`, which reads files that grow line by line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from collector.contract.errors import HostError
from collector.contract.reason import UnreadReason
from collector.doors.host import FileFacts, Host
from collector.reading.follow import Identity, find_files

SETTLED_SECONDS = 2
"""A file that did not change for so long is whole. One that did is checked again next time: it is
whole when it is the same then. A recorder writes its dump within a second."""
POLL_BYTES_MAX = 64 << 20
"""What one look reads of all files together, and at least one file; others wait for the next."""
FILES_MAX = 1024
"""Files that are known at once, those that changed last."""
READ_BYTES = 16 << 20

Version = tuple[Identity, int, int]
"""Identity, size and time: together they distinguish a rewritten file from the one that was
read."""


class WholeFile(NamedTuple):
    """A file that is new, or was written again."""

    path: str
    data: bytes
    changed_ns: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class WholeFiles:
    """The files of some folders, each read once. Not for use by two threads at once."""

    def __init__(self, folders: Sequence[str], names: Sequence[str], *, bytes_max: int) -> None:
        self._folders = tuple(folders)
        self._names = tuple(names)
        self._bytes_max = bytes_max
        self._seen: dict[str, Version] = {}
        """Each file as it was at the last look."""
        self._read: dict[str, Version] = {}
        """Each file as it was when it was read."""
        self.left_out = 0
        """Files that match and are not read: more than FILES_MAX."""

    @property
    def present(self) -> set[str]:
        """Paths of the files that were there at the last look."""
        return set(self._seen)

    def poll(self, host: Host) -> Iterator[WholeFile | HostError]:
        """Files that are new or changed and have settled; or why one cannot be read."""
        found = find_files(host, self._folders, self._names)
        yield from found.refusals
        latest = sorted(found.files, key=lambda path: found.files[path].changed_ns, reverse=True)
        self.left_out = found.left_out + max(0, len(latest) - FILES_MAX)
        before = self._seen
        self._seen = {path: version_of(found.files[path]) for path in sorted(latest[:FILES_MAX])}
        self._read = {path: each for path, each in self._read.items() if path in self._seen}
        settled_ns = host.now_ns() - SETTLED_SECONDS * 1_000_000_000
        left = POLL_BYTES_MAX
        for path, version in self._seen.items():
            facts = found.files[path]
            is_settled = facts.changed_ns <= settled_ns or before.get(path) == version
            if self._read.get(path) == version or not is_settled:
                continue
            if left <= 0:
                return
            left -= facts.size
            self._read[path] = version
            try:
                yield WholeFile(path, self._read_file(host, path, facts), facts.changed_ns)
            except HostError as error:
                yield error

    def _read_file(self, host: Host, path: str, facts: FileFacts) -> bytes:
        if facts.size > self._bytes_max:
            detail = f"{facts.size} bytes; at most {self._bytes_max} are read"
            raise HostError(UnreadReason.NOT_SUPPORTED, path, detail)
        pieces: list[bytes] = []
        at = 0
        while at < facts.size:
            piece = host.read_at(path, at, min(READ_BYTES, facts.size - at), facts.identity)
            if not piece:
                break  # it was cut since; what is missing shows when it is parsed
            pieces.append(piece)
            at += len(piece)
        return b"".join(pieces)


def version_of(facts: FileFacts) -> Version:
    return facts.identity, facts.size, facts.changed_ns


def split_patterns(files: Sequence[str]) -> dict[str, list[str]]:
    """Patterns of whole paths as patterns of folders, each with patterns of names.

    >>> split_patterns(["/var/log/a/*.log", "/var/log/a/*.txt", "x.json"])
    {'/var/log/a': ['*.log', '*.txt'], '': ['x.json']}
    """
    folders: dict[str, list[str]] = {}
    for pattern in files:
        folder, _, name = pattern.rpartition("/")
        folders.setdefault(folder, []).append(name)
    return folders
