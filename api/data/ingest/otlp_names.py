"""Names of OpenTelemetry metrics, translated as Prometheus' own OTLP receiver does.

`system.network.io` in `By`, a sum that only grows, is `system_network_io_bytes_total`: users find
the names that they know from Prometheus, and dashboards made for it work. The rules are those of
its translator (underscores, suffixes for unit and kind).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import msgspec

NAMES_CACHED_MAX: Final = 20_000
"""Translated names that are remembered; a fleet has a few hundred."""

UNITS: Final = {
    "d": "days",
    "h": "hours",
    "min": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "By": "bytes",
    "KiBy": "kibibytes",
    "MiBy": "mebibytes",
    "GiBy": "gibibytes",
    "TiBy": "tibibytes",
    "KBy": "kilobytes",
    "MBy": "megabytes",
    "GBy": "gigabytes",
    "TBy": "terabytes",
    "m": "meters",
    "V": "volts",
    "A": "amperes",
    "J": "joules",
    "W": "watts",
    "g": "grams",
    "Cel": "celsius",
    "Hz": "hertz",
    "%": "percent",
    "1": "",
}
"""UCUM's short forms and the words that Prometheus uses; other units are kept as they are."""

PER_UNITS: Final = {
    "s": "second",
    "m": "minute",
    "h": "hour",
    "d": "day",
    "w": "week",
    "mo": "month",
    "y": "year",
}

_NOT_A_WORD = re.compile(r"[^A-Za-z0-9:]+")
_NOT_OF_A_UNIT = re.compile(r"[^A-Za-z0-9]+")
_NOT_OF_A_LABEL = re.compile(r"[^A-Za-z0-9_]")
_ANNOTATION = re.compile(r"\{[^}]*\}")


@lru_cache(NAMES_CACHED_MAX)
def metric_name(name: str, unit: str, *, is_counter: bool, is_gauge: bool) -> str:
    """The metric's name.

    >>> metric_name("system.network.io", "By", is_counter=True, is_gauge=False)
    'system_network_io_bytes_total'
    >>> metric_name("cpu.utilisation", "1", is_counter=False, is_gauge=True)
    'cpu_utilisation_ratio'
    """
    words = [word for word in _NOT_A_WORD.split(name) if word]
    for suffix in unit_words(unit):
        if suffix not in words:
            words.append(suffix)
    if is_counter:
        words = [*(word for word in words if word != "total"), "total"]
    if is_gauge and unit == "1":
        words = [*(word for word in words if word != "ratio"), "ratio"]
    joined = "_".join(words)
    return f"_{joined}" if joined[:1].isdigit() else joined


def unit_words(unit: str) -> list[str]:
    """What a unit adds to a name; annotations in braces ({packet}) add nothing.

    >>> unit_words("By/s"), unit_words("{packet}"), unit_words("furlong")
    (['bytes', 'per_second'], [], ['furlong'])
    """
    main, slash, per = _ANNOTATION.sub("", unit).strip().partition("/")
    main, per = main.strip(), per.strip()
    words = [_clean_unit(UNITS.get(main, main))]
    if slash and per:
        words.append(f"per_{_clean_unit(PER_UNITS.get(per, per))}")
    return [word for word in words if word]


def _clean_unit(word: str) -> str:
    return _NOT_OF_A_UNIT.sub("_", word).strip("_")


@lru_cache(NAMES_CACHED_MAX)
def label_name(key: str) -> str:
    """An attribute's key as a label's name.

    >>> label_name("net.peer.name"), label_name("0bad"), label_name("_own")
    ('net_peer_name', 'key_0bad', 'key_own')
    """
    name = _NOT_OF_A_LABEL.sub("_", key)
    if name[:1].isdigit():
        return f"key_{name}"
    if name.startswith("_") and not name.startswith("__"):
        return f"key{name}"
    return name


def labels_of(attributes: Iterable[Any]) -> dict[str, str]:
    """Attributes (KeyValue messages) as labels; keys that become one name are joined by `;`."""
    labels: dict[str, str] = {}
    for pair in sorted(attributes, key=lambda pair: str(pair.key)):
        name, text = label_name(pair.key), value_text(pair.value)
        if name and text:
            labels[name] = f"{labels[name]};{text}" if name in labels else text
    return labels


def value_text(value: Any) -> str:  # noqa: ANN401 - an AnyValue message
    """An attribute's value as a label's: texts as they are, everything else as JSON."""
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return str(value.string_value)
    return "" if kind is None else msgspec.json.encode(plain_value(value, kind)).decode()


def plain_value(value: Any, kind: str | None) -> object:  # noqa: ANN401 - an AnyValue message
    """An attribute's value in Python's own types; the parser bounds how deep it can be."""
    if kind == "array_value":
        return [plain_value(each, each.WhichOneof("value")) for each in value.array_value.values]
    if kind == "kvlist_value":
        pairs = value.kvlist_value.values
        return {pair.key: plain_value(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return getattr(value, kind) if kind is not None else None
