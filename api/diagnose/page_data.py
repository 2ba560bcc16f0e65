"""The data of the report in one HTML file; its script draws it (dashboards/web/src/report).

Times are seconds since 1970 and durations seconds, since drawings need them; texts
are written here, once, as for the text. Unknown values are null. Both sides of this shape are
built from one commit and travel together: it has no version and is no public interface.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from alerts.compare.model import StepsCompared
from alerts.window.columns import Floats, Ints
from collector.contract.causes import CauseTable
from collector.contract.identity import printable
from collector.contract.units import NS
from collector.contract.verdict import Verdict

SHARE_MIN = 64
"""Of anything that is bounded, so much each of many jobs may show."""


class Column(msgspec.Struct, frozen=True):
    """A heading, and whether numbers stand below it."""

    name: str
    is_number: bool = False


class Row(msgspec.Struct, frozen=True):
    """Cells in the columns' order; a marked row is highlighted."""

    cells: Sequence[str]
    is_marked: bool = False


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table with its title and a sentence."""

    title: str
    explanation: str
    columns: list[Column]
    rows: list[Row]


class DotSeries(msgspec.Struct, frozen=True):
    """One number of each thing; ``colour`` is a name of the page's style sheet."""

    label: str
    colour: str
    seconds: list[float]


class DotSet(msgspec.Struct, frozen=True, kw_only=True):
    """Things that happened: when, what each is called, and its numbers."""

    at: list[float]
    said: list[str]
    series: list[DotSeries]


class Dots(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="dots"):
    """Durations over time, a dot each, between these seconds."""

    sets: list[DotSet]
    low: float
    high: float
    is_log: bool


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One of many side by side."""

    label: str
    short: str
    value: float
    is_culprit: bool


class Bars(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="bars"):
    """Ranks or NICs side by side."""

    bars: list[Bar]
    unit: str


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One series on its drawing's times."""

    label: str
    values: list[float | None]
    is_culprit: bool = False


class Lines(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="lines"):
    """A metric over time: the culprit and its peers."""

    times: list[float]
    lines: list[Line]
    peers: int


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A drawing of a verdict's evidence; ``evidence`` is the place of the one it belongs to."""

    title: str
    explanation: str
    evidence: int | None
    drawing: Dots | Bars | Lines


class Stretch(msgspec.Struct, frozen=True):
    """From when to when."""

    start: float
    end: float


class VerdictData(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with what is drawn of it. ``shown`` is the time of all drawings."""

    verdict: Verdict
    when: str
    costs: list[str]
    clock: str
    shown: Stretch
    blamed: Stretch
    figures: list[Figure]
    steps: StepsCompared | None
    """Steps of its time against those before, as `/v1/jobs/{job}/steps/compare` has them."""


class StepBars(msgspec.Struct, frozen=True, kw_only=True):
    """Bars of steps: seconds of compute, transfer and wait; those above ``top`` are cut."""

    spans: list[Stretch]
    parts: list[tuple[float, float, float]]
    said: list[str]
    top: float
    note: str


class HeatRank(msgspec.Struct, frozen=True, kw_only=True):
    """The rank of a row of the heat map."""

    rank: int
    host: str | None
    gpu: str | None
    device: str | None


class HeatData(msgspec.Struct, frozen=True, kw_only=True):
    """Lateness in seconds: 32-bit floats, rank by rank, in base64; NaN: not seen."""

    ranks: list[HeatRank]
    ranks_left_out: int
    columns: list[Stretch]
    steps_in_one: int
    is_by_step: bool
    values: str


class CollectivePanel(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of collective over time."""

    title: str
    explanation: str
    dots: Dots


class ReadingPanel(msgspec.Struct, frozen=True, kw_only=True):
    """Readings beside the job; ``middles`` and ``mosts`` are the lines' medians and maxima."""

    title: str
    explanation: str
    unit: str
    times: list[float]
    lines: list[Line]
    middles: list[float]
    mosts: list[float]


class JobData(msgspec.Struct, frozen=True, kw_only=True):
    """One job."""

    job: str
    explanation: str
    facts: list[tuple[str, str]]
    span: Stretch
    accused: list[int]
    pending: Table | None
    steps: StepBars | None
    heat: HeatData | None
    collectives: list[CollectivePanel]
    collectives_note: str
    readings: list[ReadingPanel]
    tables: list[Table]


class FileList(msgspec.Struct, frozen=True, kw_only=True):
    """Files with problems: path and reason of the first of them."""

    title: str
    files: list[tuple[str, str]]


class PageData(msgspec.Struct, frozen=True, kw_only=True):
    """The whole report."""

    causes: CauseTable
    about: str
    ranks_read: list[str]
    verdicts: list[VerdictData]
    verdicts_note: str
    unclear: list[str]
    looked: list[str]
    failed: list[str]
    jobs: list[JobData]
    warnings: Table | None
    read: Table
    problems: list[FileList]


def to_script(data: PageData) -> str:
    r"""No text can end the script element or begin a comment, since `<` is not in the JSON."""
    # The floats of drawings are finite: what is not known was made null before.
    raw = msgspec.json.encode(cleaned(msgspec.to_builtins(data)))
    return raw.decode().replace("<", "\\u003c")


def cleaned(value: Any) -> Any:  # noqa: ANN401 - JSON in, JSON out
    """The same with every text made printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {printable(name): cleaned(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(each) for each in value]
    return value


# Bounds and roundings -----------------------------------------------------------------------------


def share_of(most: int, jobs: int) -> int:
    """What one of so many jobs may show of something, so that many jobs make no larger page.

    >>> share_of(600, 1), share_of(600, 6), share_of(600, 64)
    (600, 100, 64)
    """
    return max(SHARE_MIN, most // max(1, jobs))


def thinned(values: Floats | Ints, keep: int) -> Ints:
    """The places of so many values at most: every nth, and the highest of those between."""
    if len(values) <= keep:
        return np.arange(len(values), dtype=np.int64)
    edges = np.linspace(0, len(values), keep + 1).astype(int)
    return np.array(
        [a + int(np.argmax(values[a:b])) for a, b in pairwise(edges.tolist())], dtype=np.int64
    )


def seconds(time_ns: float) -> float:
    """Nanoseconds since 1970 or of a duration as seconds, to the microsecond or finer."""
    # Whole microseconds first: a float of today's nanoseconds has lost its last digits.
    return round(time_ns / NS, 6) if abs(time_ns) >= NS else float(f"{time_ns / NS:.5g}")


def stretch(start_ns: float, end_ns: float) -> Stretch:
    return Stretch(seconds(start_ns), seconds(end_ns))


def figures(values: Floats) -> list[float | None]:
    """Five figures of each number, null where there is none."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values.tolist()]


def packed(values: Floats) -> str:
    """Base64 as the page's script unpacks it."""
    return b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode()
