"""What iperf3 reports of a TCP measurement (`-J`), as iperf 3.12 (Debian 12) and 3.18 write it.

What failed stands inside of the report: with `-J` iperf 3.12 ends with status 0 where no server
answers, and without it with 1. What the receiver counted is the result; what the sender handed to
its kernel is more, by what was still on its way. Pure.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from collector.contract.errors import ParseError
from collector.parsing.measured import Measured

REPORT_BYTES_MAX: Final = 4 << 20
"""An interval of a stream has 300 bytes: 60 seconds of 16 streams are 300 kB."""
REASON_CHARACTERS_MAX = 200

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=1e15)]


class Sent(msgspec.Struct, frozen=True):
    """The sender's sum; its kernel may not say what it sent again."""

    retransmits: Count | None = None


class Received(msgspec.Struct, frozen=True):
    """The receiver's sum."""

    bits_per_second: Rate


class End(msgspec.Struct, frozen=True):
    """Empty where it failed before the end."""

    sum_sent: Sent = Sent()
    sum_received: Received | None = None


class Asked(msgspec.Struct, frozen=True):
    """The bytes of a write."""

    blksize: Count = 0


class Start(msgspec.Struct, frozen=True):
    """What was asked for."""

    test_start: Asked = Asked()


class Report(msgspec.Struct, frozen=True):
    """What is read of it."""

    start: Start = Start()
    end: End = End()
    error: str = ""


def parse_iperf(text: bytes) -> Measured:
    r"""The sums of all streams. Raises ParseError with iperf's own reason where it has one.

    >>> parse_iperf(b'{"end": {"sum_received": {"bits_per_second": 9.4e9}}}').bits_per_second
    9400000000.0
    """
    if len(text) > REPORT_BYTES_MAX:
        raise ParseError("", f"iperf3 wrote {len(text)} bytes; {REPORT_BYTES_MAX} at most are read")
    try:
        report = msgspec.json.decode(text, type=Report)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ParseError("", f"no report of iperf3: {error}") from error
    if report.error:
        raise ParseError("", f"iperf3: {report.error[:REASON_CHARACTERS_MAX]}")
    if report.end.sum_received is None:
        raise ParseError("", "iperf3 reports no sum of what was received")
    return Measured(
        bytes=report.start.test_start.blksize,
        bits_per_second=report.end.sum_received.bits_per_second,
        sent_again=report.end.sum_sent.retransmits,
    )
