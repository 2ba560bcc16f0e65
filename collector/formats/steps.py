"""Marks of a training loop, as `fabricscope_steps.py` writes them.

A batch begins with an object that names its sender; each mark after it is
``[phase, step, start_ns, duration_ns]``, with an empty phase for the whole step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, ClassVar

import msgspec

from collector.contract.collective import StepSpan
from collector.contract.errors import ParseError
from collector.contract.model import Event
from collector.formats import Origin, Record
from collector.parsing.lines import read_lines

NAME = "steps"
TEXT_CHARACTERS_MAX = 128
"""Of a job's or host's name."""
PHASE_CHARACTERS_MAX = 64
"""As the shim cuts them."""
RANK_MAX = 10_000_000
STEP_MAX = 1 << 53
TIME_NS_MAX = 1 << 62
"""The year 2116: twice this does not fit the store's column."""
LINE_SHOWN = 60


class Header(msgspec.Struct, frozen=True):
    """The sender of the marks that follow, by its own report."""

    fabricscope_steps: int
    pid: int = 0
    start_ticks: int = 0
    host: str = ""
    job: str = ""
    run: str = ""
    """torchrun's name for the run: the job where no other name is known."""
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    dropped: int = 0
    """Marks that were lost in that process since it began."""


class Mark(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A stretch of time of one step; the whole step if the phase is empty."""

    phase: str
    step: int
    start_ns: int
    duration_ns: int


_decode_header = msgspec.json.Decoder(Header).decode
_decode_mark = msgspec.json.Decoder(Mark).decode


def parse_line(line: bytes) -> Header | Mark | None:
    line = line.strip()
    if not line:
        return None
    try:
        return check_header(_decode_header(line)) if line[:1] == b"{" else check_mark(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        shown = line[:LINE_SHOWN].decode("utf-8", "replace")
        raise ParseError("", f"{error}, in {shown!r}") from error


def check_header(header: Header) -> Header:
    """The header with its texts cut to what a label may hold; ParseError if numbers are absurd."""
    for name in ("pid", "start_ticks", "dropped"):
        if not 0 <= getattr(header, name) < STEP_MAX:
            raise ParseError("", f"{name} is {getattr(header, name)}; it cannot be")
    for name in ("rank", "local_rank", "world_size"):
        number = getattr(header, name)
        if number is not None and not 0 <= number <= RANK_MAX:
            raise ParseError("", f"{name} is {number}; RANK_MAX is {RANK_MAX}")
    texts = {name: clean(getattr(header, name)) for name in ("host", "job", "run")}
    if texts["run"].lower() == "none":
        texts["run"] = ""  # torchrun's default: it names nothing
    return msgspec.structs.replace(header, **texts)


def check_mark(line: bytes) -> Mark:
    """The mark on a line; ParseError if its numbers are absurd."""
    mark = _decode_mark(line)
    if not 0 <= mark.step <= STEP_MAX:
        raise ParseError("", f"step {mark.step} is beyond STEP_MAX = {STEP_MAX}")
    if not 0 < mark.start_ns <= TIME_NS_MAX or not 0 <= mark.duration_ns <= TIME_NS_MAX:
        raise ParseError("", f"a span from {mark.start_ns} of {mark.duration_ns} ns cannot be")
    if len(mark.phase) > PHASE_CHARACTERS_MAX or not mark.phase.isprintable():
        raise ParseError("", f"a phase is at most {PHASE_CHARACTERS_MAX} printable characters")
    return mark


def clean(text: str) -> str:
    """The printable characters of a text's beginning."""
    return "".join(each for each in text[:TEXT_CHARACTERS_MAX] if each.isprintable()).strip()


def make_span(mark: Mark, *, job: str, rank: int | None, host: str, pid: int) -> StepSpan:
    return StepSpan(
        step=mark.step,
        start_ns=mark.start_ns,
        end_ns=mark.start_ns + mark.duration_ns,
        source=NAME,
        phase=mark.phase,
        rank=rank,
        host=host,
        pid=pid,
        job=job,
    )


class Steps:
    """The format: a file of such batches."""

    name: ClassVar[str] = NAME
    title: ClassVar[str] = "training steps (fabricscope_steps)"

    def recognises(self, head: bytes, origin: Origin) -> bool:  # noqa: ARG002 - by content
        return head.lstrip().startswith(b'{"fabricscope_steps"')

    def parse(self, stream: BinaryIO, origin: Origin) -> Iterator[Record | ParseError]:
        """The spans, and at the end an event if the training process had to drop some."""
        header: Header | None = None
        is_reported = False
        for entry in read_lines(stream):
            if isinstance(entry, ParseError):
                yield entry
                continue
            number, line = entry
            try:
                found = parse_line(line)
            except ParseError as error:
                yield ParseError(f"line {number}", error.detail)
                if line.lstrip().startswith(b"{"):
                    header = None  # the next lines are another process' batch
                continue
            if isinstance(found, Header):
                header = found
            elif isinstance(found, Mark) and header is not None:
                job, pid = header.job or header.run, header.pid
                yield make_span(found, job=job, rank=header.rank, host=header.host, pid=pid)
            elif isinstance(found, Mark) and not is_reported:
                is_reported = True
                yield ParseError(f"line {number}", "a mark before the header that names its sender")
        if header is not None and header.dropped:
            yield dropped_event(header, origin.time_ns)


FORMAT = Steps()


def dropped_event(header: Header, time_ns: int) -> Event:
    """The event with the number of marks that the process itself has lost."""
    labels = {"job": header.job or header.run, "host": header.host, "pid": str(header.pid)}
    if header.rank is not None:
        labels["rank"] = str(header.rank)
    return Event(
        kind="step_marks_dropped",
        time_ns=time_ns,
        labels={name: value for name, value in labels.items() if value},
        message=f"{header.dropped} marks were dropped: the queue was full or no agent took them",
        attributes={"dropped": str(header.dropped)},
    )
