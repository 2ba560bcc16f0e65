"""What a job's processes, its launcher and the kernel print: only their last words are read.

Training logs have no format. A file is taken for one if it begins with lines that only PyTorch,
torchrun, Slurm, Python or NVIDIA's driver print; `fabricscope diagnose` also looks through any
other text for such lines. Logs that have NCCL's lines are `nccl_debug`'s, which looks for last
words too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, ClassVar

from collector.contract.errors import ParseError
from collector.formats import Origin, Record
from collector.formats.nccl_debug import is_nccl_lines, is_nccl_tests
from collector.parsing.last_words import LastWords
from collector.parsing.lines import lines_of, read_blocks

_SURE = re.compile(
    rb"^(?:\[rank[0-9]{1,7}\]:|\[default[0-9]{1,5}\]:|srun: |slurmstepd: |Traceback \(most recent)"
    rb"|ProcessGroupNCCL\.cpp:[0-9]|torch[./]distributed[./]elastic|Root Cause \(first observed"
    rb"|NVRM: Xid|SXid \(PCI|Killed process [0-9]|noticed that process rank| NCCL WARN ",
    re.MULTILINE,
)


class JobLog:
    """The format."""

    name: ClassVar[str] = "job_log"
    title: ClassVar[str] = "job's output"

    def recognises(self, head: bytes, origin: Origin) -> bool:  # noqa: ARG002 - by content alone
        return is_text(head) and _SURE.search(head) is not None and not is_others(head)

    def parse(self, stream: BinaryIO, origin: Origin) -> Iterator[Record | ParseError]:
        words = LastWords(origin.name, origin.time_ns)
        for block in read_blocks(stream):
            if isinstance(block, ParseError):
                yield block
                continue
            if words.wants(block[1]):
                for number, line in lines_of(*block):
                    yield from words.feed(number, line)


FORMAT = JobLog()


def is_text(head: bytes) -> bool:
    """Whether a file may be somebody's output: text, and not one value of JSON."""
    return b"\0" not in head and head[:1] not in (b"\x80", b"\x1f") and head.lstrip()[:1] != b"{"


def is_others(head: bytes) -> bool:
    return is_nccl_lines(head) or is_nccl_tests(head)
