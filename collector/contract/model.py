"""What a source yields: a sample, an event, a record of a job's work, or a named absence.

An absence is a value. A counter that could not be read is a `Missing` with its reason; it is
never a zero, never an unexplained gap, and never a reason to lose its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from collector.contract.collective import Collective, StepSpan
from collector.contract.identity import METRIC_LABEL, Labels, canonical_labels, series_id
from collector.contract.reason import UnreadReason


class Series:
    """A metric and its labels, with the hash kept: sources build it once and use it every read.

    Two series are equal when metric and labels are. The labels of the host (``host``,
    ``cluster``) are not here: the agent adds them to everything it sends.
    """

    __slots__ = ("_hash", "labels", "metric")

    def __init__(self, metric: str, labels: Mapping[str, str] | None = None) -> None:
        self.metric = metric
        self.labels: Labels = canonical_labels(labels or {})
        self._hash = hash((metric, self.labels))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Series):
            return NotImplemented
        return self.metric == other.metric and self.labels == other.labels

    def __repr__(self) -> str:
        labels = ",".join(f'{name}="{value}"' for name, value in self.labels)
        return f"{self.metric}{{{labels}}}"

    def full_labels(self, common: Mapping[str, str]) -> Labels:
        """Canonical labels of this series as it is stored: with name and ``common`` labels."""
        return canonical_labels({**common, **dict(self.labels), METRIC_LABEL: self.metric})

    def identify(self, common: Mapping[str, str]) -> int:
        return series_id(self.full_labels(common))


class Sample(msgspec.Struct, frozen=True, gc=False):
    """A number and when it was read (unix nanoseconds, the host's wall clock)."""

    series: Series
    value: float
    time_ns: int


class Missing(msgspec.Struct, frozen=True, gc=False):
    """A number that should have been there, and why it is not."""

    series: Series
    reason: UnreadReason
    detail: str


EVENT_TEXT_BYTES_MAX = 16_384
"""Bytes of all texts of an event together. A relevant log line is shorter; a core dump is not an
event."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened at one moment: an XID, a link that went down, a burst.

    ``kind`` is a short snake_case word, ``labels`` name the affected thing (as a series' labels
    do), ``attributes`` hold what was seen, ``message`` is one sentence for a person.
    """

    kind: str
    time_ns: int
    labels: dict[str, str]
    message: str = ""
    attributes: dict[str, str] = {}


Reading = Sample | Missing | Event | Collective | StepSpan
