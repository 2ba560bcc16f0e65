"""The kernel's log: `/dev/kmsg` without waiting, or a file of its records in a captured tree.

For `collector.doors.host` alone; sources use the `Host`. One read returns one record. The kernel
keeps a ring: what is not read in time is overwritten, and the next record's number shows how many.
Reading needs CAP_SYSLOG where `kernel.dmesg_restrict` is 1.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import NamedTuple

from collector.contract.errors import HostError
from collector.contract.reason import UnreadReason

RECORD_BYTES_MAX = 16 << 10
"""Of one record; the kernel writes at most 8 KiB (CONSOLE_EXT_LOG_MAX, 2 KiB since Linux 6.2)."""
KERNEL_LOG_NUMBERS = (1, 11)
"""Major and minor of `/dev/kmsg`. Containers often have a link to another device in its place."""
_HEADER = re.compile(rb"\d{1,6},\d{1,19},(\d{1,19}),[^;\n]{0,128};")


class KernelNews(NamedTuple):
    """Records since the last look, in order, and the wall clock (unix nanoseconds)."""

    records: list[bytes]
    now_ns: int
    """At the look; of a recording, when it was written."""
    boot_ns: int
    """At the time 0 of the records."""


class KernelLog:
    """An open log, at the oldest record first."""

    def __init__(self, path: str) -> None:
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        status = os.fstat(self._handle)
        numbers = os.major(status.st_rdev), os.minor(status.st_rdev)
        if not stat.S_ISCHR(status.st_mode) or numbers != KERNEL_LOG_NUMBERS:
            self.close()
            detail = f"it is no kernel log: device {numbers}, and not {KERNEL_LOG_NUMBERS}"
            raise HostError(UnreadReason.NOT_SUPPORTED, path, detail)

    def read(self, records_max: int) -> list[bytes]:
        """The records that are there, up to so many; never waits."""
        records: list[bytes] = []
        for _ in range(records_max):
            try:
                data = os.read(self._handle, RECORD_BYTES_MAX)
            except OSError as error:
                if error.errno in (errno.EPIPE, errno.EINVAL):
                    # Overwritten, or longer than any: the next read goes on behind it.
                    continue
                if error.errno == errno.EAGAIN:
                    break
                raise
            if not data:
                break
            records.append(data)
        return records

    def close(self) -> None:
        os.close(self._handle)


def split_records(text: bytes) -> list[bytes]:
    r"""The records of a file; lines that begin with a space belong to the one before.

    >>> split_records(b"6,1,10,-;one\n DEVICE=n1\n6,2,20,-;two\n")
    [b'6,1,10,-;one\n DEVICE=n1\n', b'6,2,20,-;two\n']
    """
    records: list[bytes] = []
    for line in text.splitlines(keepends=True):
        if line.startswith(b" ") and records and len(records[-1]) < RECORD_BYTES_MAX:
            records[-1] += line[:RECORD_BYTES_MAX]
        else:
            records.append(line[:RECORD_BYTES_MAX])
    return records


def replay(text: bytes, changed_ns: int, start: int, records_max: int) -> KernelNews:
    """The records of a file from the ``start``-th on; its last one was written when it changed."""
    records = split_records(text)
    last_us = next(
        (int(found[1]) for each in reversed(records) if (found := _HEADER.match(each))), 0
    )
    boot_ns = changed_ns - last_us * 1_000
    return KernelNews(records[start : start + records_max], changed_ns, boot_ns)
