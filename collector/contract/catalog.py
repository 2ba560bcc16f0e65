"""The metric catalog: what every metric means, in one place.

One TOML per kind of thing measured (`catalog/port.toml`, …). HELP lines, the documentation's
tables, dashboards' units and `/v1/catalog` all come from here. Aliases list what other exporters
call the same thing, so that their users need no agent of ours.
"""

from __future__ import annotations

import enum
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources

import msgspec

from collector.contract.errors import CatalogError


class Kind(enum.StrEnum):
    """How a metric's numbers are to be read."""

    COUNTER = "counter"
    """Only a reset lowers it."""
    GAUGE = "gauge"
    """A level that goes up and down."""
    INFO = "info"
    """Always 1; the labels are the message."""
    HISTOGRAM = "histogram"
    """Observations counted in buckets: ``_bucket``, ``_sum`` and ``_count`` series."""


class Unit(enum.StrEnum):
    """Base units only; the value is the suffix that the metric's name carries."""

    BYTES = "bytes"
    PACKETS = "packets"
    SECONDS = "seconds"
    BITS_PER_SECOND = "bits_per_second"
    BYTES_PER_SECOND = "bytes_per_second"
    HERTZ = "hertz"
    CELSIUS = "celsius"
    WATTS = "watts"
    JOULES = "joules"
    AMPERES = "amperes"
    VOLTS = "volts"
    RATIO = "ratio"
    NONE = ""
    """A count of events or things, or a state: the name states what is counted."""


class Writer(enum.StrEnum):
    """Which programs write a metric's samples."""

    ANY = "any"
    SERVICE = "service"
    """The service alone: what senders send under such a name is refused (`Catalog.is_reserved`)."""


class Alias(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What another exporter calls the same thing.

    ``labels`` maps our label to theirs where the names differ; ``factor`` times their number is
    ours; ``match`` are labels that theirs must have to mean this metric. As in PromQL, a label that
    is not there is empty. ``means`` are labels of ours that their name tells by itself. ``each``
    makes an alias many: with ``{priority = 8}`` the word ``{priority}`` in the name stands for 0 to
    7, and that is the label's value; ``family`` of each is then the name with that word.
    """

    exporter: str
    name: str
    factor: float = 1.0
    labels: dict[str, str] = {}
    match: dict[str, str] = {}
    means: dict[str, str] = {}
    each: dict[str, int] = {}
    family: str = ""

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Whether a series of theirs with these labels means the metric."""
        return all(labels.get(name, "") == value for name, value in self.match.items())


class Metric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One metric. ``labels`` are those it has besides its target's.

    ``window`` says that detectors see it: WHOLE, where series that differ in other labels are one
    reading (counters are added up, of gauges the largest counts), or the label whose values become
    readings of their own. Empty: windows do not have it. ``peak``: of several values within one
    cell of a window's grid the largest counts, and not the last: a queue that was full was full.
    """

    name: str
    kind: Kind
    help: str
    unit: Unit = Unit.NONE
    since: str
    labels: list[str] = []
    aliases: list[Alias] = []
    window: str = ""
    peak: bool = False
    writer: Writer = Writer.ANY


WHOLE = "all"
"""Of `Metric.window`: not split by any label."""


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of thing that is measured, and the labels that distinguish one from another.

    ``writer`` SERVICE reserves every name of the target, also those that the catalog lacks.
    ``parts`` are labels by which other exporters tell a part of the thing, such as a GPU's
    instance: a series that has one is of the part, and no alias means it.
    """

    name: str
    help: str
    labels: list[str]
    writer: Writer = Writer.ANY
    parts: list[str] = []


PROMETHEUS_RESERVED = frozenset({"ALERTS", "ALERTS_FOR_STATE"})
"""Series of alerts, which Prometheus names: rules of the service write them."""


class CatalogFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One TOML file: a target and its metrics."""

    target: Target
    metrics: list[Metric]


class Catalog:
    """All targets and metrics, looked up by name."""

    def __init__(self, files: list[CatalogFile]) -> None:
        self.files = tuple(files)
        self._metrics: dict[str, tuple[Metric, Target]] = {}
        self._aliases: dict[str, list[tuple[Alias, Metric]]] = {}
        ours = [file.target.name for file in files if file.target.writer is Writer.SERVICE]
        self._reserved_targets = frozenset(f"fabric_{name}" for name in ours)
        self._reserved_prefixes = tuple(f"fabric_{name}_" for name in ours)
        for file in files:
            for metric in file.metrics:
                check_metric(metric, file.target)
                if metric.name in self._metrics:
                    msg = f"metric {metric.name} is defined twice; a metric has one meaning"
                    raise CatalogError(msg)
                self._metrics[metric.name] = (metric, file.target)
                for alias in metric.aliases:
                    check_alias(alias, {*metric.labels, *file.target.labels})
                    self._aliases.setdefault(alias.name, []).append((alias, metric))

    @property
    def metrics(self) -> list[Metric]:
        """Every metric, in the order of the files."""
        return [metric for metric, _ in self._metrics.values()]

    def metric(self, name: str) -> Metric | None:
        found = self._metrics.get(name)
        return found[0] if found else None

    def target_of(self, name: str) -> Target | None:
        """None where the catalog does not have the metric."""
        found = self._metrics.get(name)
        return found[1] if found else None

    def is_reserved(self, name: str) -> bool:
        """Whether only the service may write series of this name."""
        found = self._metrics.get(name)
        return (
            (found is not None and found[0].writer is Writer.SERVICE)
            or name.startswith(self._reserved_prefixes)
            or name in self._reserved_targets
            or name in PROMETHEUS_RESERVED
        )

    def writer_of(self, name: str) -> Writer:
        return Writer.SERVICE if self.is_reserved(name) else Writer.ANY

    def knows(self, name: str) -> bool:
        """Whether this is a metric of ours or what another exporter calls one."""
        return name in self._metrics or name in self._aliases

    def in_windows(self, target: str) -> list[Metric]:
        """Metrics of one kind of thing that detectors see, in the order of its file."""
        files = (file for file in self.files if file.target.name == target)
        return [metric for file in files for metric in file.metrics if metric.window]

    def aliases_of(self, foreign_name: str) -> list[tuple[Alias, Metric]]:
        """Our metrics that another exporter publishes under this name."""
        return self._aliases.get(foreign_name, [])

    def labels_of(self, name: str) -> set[str]:
        """Every label that a series of this metric may have."""
        metric, target = self._metrics[name]
        return {*target.labels, *metric.labels}


_NAME = re.compile(r"fabric_[a-z][a-z0-9]*(_[a-z0-9]+)*")


def check_metric(metric: Metric, target: Target) -> None:
    """Raise CatalogError unless the metric is named `fabric_<target>_<what>_<unit>[_total]`."""

    def refuse(why: str) -> None:
        msg = f"catalog: {metric.name} ({target.name}): {why}"
        raise CatalogError(msg)

    if not _NAME.fullmatch(metric.name):
        refuse("names are lower case words joined by _, beginning with fabric_")
    # A gauge may have its target's bare name: its presence is the message.
    is_bare = metric.name == f"fabric_{target.name}" and metric.kind is Kind.GAUGE
    if not is_bare and not metric.name.startswith(f"fabric_{target.name}_"):
        refuse(f"a metric of {target.name} is named fabric_{target.name}_…")
    stem = metric.name.removesuffix("_total").removesuffix("_info")
    if metric.kind is Kind.COUNTER and not metric.name.endswith("_total"):
        refuse("a counter's name ends in _total")
    if metric.kind is Kind.INFO and not metric.name.endswith("_info"):
        refuse("an info metric's name ends in _info")
    levels = (Kind.GAUGE, Kind.HISTOGRAM)
    if metric.kind in levels and metric.name.endswith(("_total", "_info")):
        refuse(f"the name of a {metric.kind} ends in neither _total nor _info")
    if metric.unit is not Unit.NONE and not stem.endswith(f"_{metric.unit}"):
        refuse(f"its unit is {metric.unit}, so its name ends in _{metric.unit}")
    if not metric.help.endswith("."):
        refuse("help is a sentence and ends in a full stop")
    if metric.window not in ("", WHOLE, *metric.labels):
        refuse(f"its window is {metric.window!r}, which is none of its labels, nor {WHOLE!r}")
    if metric.window and metric.kind not in (Kind.COUNTER, Kind.GAUGE):
        refuse(f"a window has counters and gauges, and this is of kind {metric.kind}")
    if overlap := set(metric.labels) & set(target.labels):
        refuse(f"labels {sorted(overlap)} are its target's already")


def check_alias(alias: Alias, labels: set[str]) -> None:
    """Raise CatalogError if the alias gives a value to a label that its metric lacks."""
    if unknown := alias.means.keys() - labels:
        raise CatalogError(f"catalog: {alias.name} means {sorted(unknown)}: labels that it lacks")


def parse_catalog_file(text: str, name: str) -> CatalogFile:
    """The catalog file in this TOML text; ``name`` is for the error message."""
    try:
        file = msgspec.convert(tomllib.loads(text), CatalogFile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        msg = f"catalog/{name}: {error}"
        raise CatalogError(msg) from error
    for metric in file.metrics:
        metric.aliases[:] = [
            each for alias in metric.aliases for each in written_out(alias, file.target)
        ]
    return file


def written_out(alias: Alias, target: Target) -> Iterator[Alias]:
    """The aliases that an entry of a file stands for; none means a part of the target."""
    whole = msgspec.structs.replace(alias, match=alias.match | dict.fromkeys(target.parts, ""))
    if not alias.each:
        yield whole
    for label, count in alias.each.items():
        for value in map(str, range(count)):
            yield msgspec.structs.replace(
                whole,
                name=alias.name.replace(f"{{{label}}}", value),
                means=alias.means | {label: value},
                family=alias.name,
            )


@cache
def load_catalog() -> Catalog:
    folder = resources.files("collector.contract") / "catalog"
    files = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith(".toml")), key=lambda e: e.name
    )
    return Catalog([parse_catalog_file(entry.read_text("utf-8"), entry.name) for entry in files])
