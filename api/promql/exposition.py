"""The newest samples as text, in the exposition format 0.0.4: what `/federate` answers."""

from __future__ import annotations

import re
from itertools import groupby

from api.promql.render import format_value
from api.promql.series_index import Newest
from api.promql.values import Labels
from collector.contract.identity import METRIC_LABEL

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ALLOW_UTF8 = "escaping=allow-utf-8"
"""In a scraper's Accept header: it reads names in quotes."""

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_NOT_IN_LABELS = re.compile(r"[^a-zA-Z0-9_]", re.ASCII)
_NOT_IN_METRICS = re.compile(r"[^a-zA-Z0-9_:]", re.ASCII)
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def render_exposition(newest: Newest, *, quote_names: bool) -> str:
    """A TYPE line for each metric, then its samples with their times, in order of the names.

    Types are not known for sure, so that all are `untyped`. Names that old scrapers cannot read
    are quoted, or (not ``quote_names``) written with underscores.
    Like Prometheus', every sample has an `instance`, empty if need be: otherwise the scraper would
    put its own there.
    """
    rows = zip(newest.labels, newest.values.tolist(), newest.times_ms.tolist(), strict=True)
    in_order = sorted(rows, key=lambda row: row[0][METRIC_LABEL])
    lines = []
    for metric, samples in groupby(in_order, key=lambda row: row[0][METRIC_LABEL]):
        name = shown_name(metric, _METRIC, _NOT_IN_METRICS, quote_names=quote_names)
        lines.append(f"# TYPE {name} untyped\n")
        lines += [
            f"{head(name, labels, quote_names=quote_names)} {format_value(value)} {time_ms}\n"
            for labels, value, time_ms in samples
        ]
    return "".join(lines)


def head(name: str, labels: Labels, *, quote_names: bool) -> str:
    others = [*sorted(labels.items()), *([] if "instance" in labels else [("instance", "")])]
    pairs = []
    for label, value in others:
        if label != METRIC_LABEL:
            shown = shown_name(label, _LABEL, _NOT_IN_LABELS, quote_names=quote_names)
            pairs.append(f'{shown}="{value.translate(_ESCAPED)}"')
    if name.startswith('"'):
        return f"{{{','.join([name, *pairs])}}}"
    return f"{name}{{{','.join(pairs)}}}"


def shown_name(
    name: str, plain: re.Pattern[str], odd: re.Pattern[str], *, quote_names: bool
) -> str:
    """A name as it may stand in the text. ``odd``: a character that needs quotes."""
    if plain.fullmatch(name):
        return name
    if quote_names:
        return f'"{name.translate(_ESCAPED)}"'
    escaped = odd.sub("_", name)
    return f"_{escaped}" if escaped[:1].isdigit() else escaped
