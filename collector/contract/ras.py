"""What NCCL's RAS says of one communicator, as agents report it: an event, and its content.

RAS is a thread in each process of a job. Any of them answers for the whole job: how many operations
of each kind every rank has launched, and which ranks do not answer. An agent reduces an answer to
what most ranks have launched and the ranks that differ. It adds what one answer cannot show: for
how long nothing has changed.

Text that no `encode_report` wrote decodes to None: events come over the network.
"""

from __future__ import annotations

import enum
from typing import Annotated, Final

import msgspec

from collector.contract.collective import Operation
from collector.contract.communicator import COMMUNICATOR, RANKS_MAX
from collector.contract.model import Event

RAS: Final = "ras_status"
"""The kind of event; its label COMMUNICATOR names the communicator."""
REPORT: Final = "report"
"""The attribute with the content, as JSON."""
ODD_MAX: Final = 64
"""Ranks of a communicator that are listed one by one. Where more differ, no single rank is at
fault."""
REPORT_TEXT_MAX: Final = 14 << 10
"""Characters of REPORT: below what an event may have (EVENT_TEXT_BYTES_MAX). ODD_MAX ranks need 13,
with the longest addresses."""
COUNT_MAX: Final = (1 << 63) - 1


class Presence(enum.StrEnum):
    """Whether a rank answers."""

    ANSWERS = "answers"
    UNRESPONSIVE = "unresponsive"
    """Its process did not answer in time: stopped, on a host that hangs, or not to be reached."""
    DEAD = "dead"
    """RAS has given up on its process: it has ended, or cannot be reached for a minute."""
    LEFT = "left"
    """Its process answers and is not in the communicator any more: it has destroyed it."""


Count = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
RankNumber = Annotated[int, msgspec.Meta(ge=0, le=RANKS_MAX)]
ShortText = Annotated[str, msgspec.Meta(max_length=64)]
Launched = Annotated[dict[Operation, Count], msgspec.Meta(max_length=16)]
"""Operations of each kind that a rank has launched, whether they have finished or not. Sends and
receives are not counted by NCCL."""


class OddRank(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rank that differs from most others of its communicator."""

    rank: RankNumber
    """Within the communicator."""
    world: RankNumber | None = None
    """The same process' rank in the largest communicator of the answer; None: it is not in it."""
    presence: Presence = Presence.ANSWERS
    launched: Launched | None = None
    """As last seen, of a rank that does not answer; None: never seen."""
    absent_ns: Count = 0
    """For how long it has not answered, over all answers in a row."""
    waits_in: ShortText = ""
    """Another communicator in which it has launched what other ranks there have not: it waits for
    those. Empty: none."""
    address: ShortText = ""
    pid: Count = 0


class RasReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One communicator in one answer."""

    size: RankNumber
    launched: Launched
    """By most of the ranks that answer; of two that are as common, what is more."""
    alike: RankNumber
    """Ranks that have launched exactly that."""
    odd: Annotated[tuple[OddRank, ...], msgspec.Meta(max_length=ODD_MAX)] = ()
    odd_left_out: RankNumber = 0
    """Ranks that differ as well and are not listed."""
    standing_ns: Count = 0
    """For how long no count of any rank of the job has changed, as far as answers show."""
    answers: Count = 1
    """Answers in a row that show it, this one included."""
    longest_ns: Count = 0
    """The longest such standstill of this job before, that went over by itself."""
    nccl: ShortText = ""
    """NCCL's version."""


_DECODER: Final = msgspec.json.Decoder(RasReport)


def ras_event(communicator: str, report: RasReport, time_ns: int) -> Event:
    return Event(
        kind=RAS,
        time_ns=time_ns,
        labels={COMMUNICATOR: communicator},
        message=report_words(report),
        attributes={REPORT: encode_report(report)},
    )


def encode_report(report: RasReport) -> str:
    """The report as text; with fewer ranks listed where it would be too long."""
    while True:
        text = msgspec.json.encode(report).decode()
        if len(text) <= REPORT_TEXT_MAX or not report.odd:
            return text
        kept = len(report.odd) // 2
        report = msgspec.structs.replace(
            report,
            odd=report.odd[:kept],
            odd_left_out=report.odd_left_out + len(report.odd) - kept,
        )


def decode_report(event: Event) -> RasReport | None:
    """The content of such an event; None if it is not one, or holds something else."""
    return decode_text(event.attributes.get(REPORT, "")) if event.kind == RAS else None


def decode_text(text: str) -> RasReport | None:
    if not text or len(text) > REPORT_TEXT_MAX:
        return None
    try:
        report = _DECODER.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    numbers = [one.rank for one in report.odd]
    is_sound = len(set(numbers)) == len(numbers) and all(rank < report.size for rank in numbers)
    return report if is_sound else None


def report_words(report: RasReport) -> str:
    """One sentence for a person.

    >>> gone = OddRank(rank=3, presence=Presence.DEAD)
    >>> report_words(RasReport(size=8, launched={}, alike=7, odd=(gone,)))
    'NCCL RAS: 7 of 8 ranks have launched the same operations, 1 does not answer.'
    """
    parts = []
    if report.alike:
        parts.append(f"{report.alike} of {report.size} ranks have launched the same operations")
    if absent := sum(one.presence is not Presence.ANSWERS for one in report.odd):
        parts.append(f"{absent} {'does' if absent == 1 else 'do'} not answer")
    return f"NCCL RAS: {', '.join(parts) or 'no counts'}."


def total(launched: Launched) -> int:
    """All operations together."""
    return sum(launched.values())
