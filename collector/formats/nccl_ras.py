"""Answers of NCCL's RAS that were saved: the output of `ncclras -v`, as JSON or as text.

One answer is a moment. Two of the same job, saved some seconds apart, show whether it moves. An
answer has no time of its own that can be trusted (it writes local time): the file's counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, ClassVar

from collector.contract.errors import ParseError
from collector.contract.ras import ras_event
from collector.formats import Origin, Record
from collector.parsing.nccl_ras import parse_answer
from collector.parsing.ras_reports import JobMemory, reports_of

ANSWER_BYTES_MAX = 128 << 20
"""An answer about a job of 10,000 ranks with a dozen communicators each has some 80 MB as JSON."""
_JSON_KEYS = (b'"nccl_version"', b'"communicators_count"', b'"communicators"')
_TEXT_TITLES = (b"NCCL version ", b"Job summary\n===========")


class NcclRas:
    """The format."""

    name: ClassVar[str] = "nccl_ras"
    title: ClassVar[str] = "NCCL RAS status"

    def recognises(self, head: bytes, origin: Origin) -> bool:  # noqa: ARG002 - by content alone
        """Both its first line and its first title, or the first keys of its JSON."""
        if head.lstrip()[:1] == b"{":
            return all(key in head for key in _JSON_KEYS)
        lines = head.replace(b"\r\n", b"\n")
        return lines.startswith(_TEXT_TITLES[0]) and _TEXT_TITLES[1] in lines

    def parse(self, stream: BinaryIO, origin: Origin) -> Iterator[Record | ParseError]:
        """An event for each communicator in trouble, and for the largest."""
        data = stream.read(ANSWER_BYTES_MAX + 1)
        if len(data) > ANSWER_BYTES_MAX:
            raise ParseError("", f"over ANSWER_BYTES_MAX = {ANSWER_BYTES_MAX} bytes")
        answer = parse_answer(data.replace(b"\r\n", b"\n"))
        memory = JobMemory(launched={}, absent_since={})
        memory.take(answer, 0)
        for name, report in reports_of(answer, memory):
            yield ras_event(name, report, origin.time_ns)


FORMAT = NcclRas()
