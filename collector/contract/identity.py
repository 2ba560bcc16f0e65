"""Names of things and of series: one canonical form each.

Canonical bytes of a label set are the labels in byte order of their names, each as
``name 0xFF value 0xFF``. 0xFF never occurs in UTF-8, so two different label sets never
share their canonical bytes. A series id is the first eight bytes of the BLAKE2b digest of
that: stable over processes, machines and releases, because every stored sample refers to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import Self
from urllib.parse import unquote

import msgspec

from collector.contract.errors import IdentityError

METRIC_LABEL = "__name__"
"""The label that carries the metric's name, as in Prometheus."""

GPU_MAX = 4_095
"""The largest index of a GPU: hosts have up to 16, and racks that are one host have 72."""

XID_MAX = 65_535
"""The largest number of an XID; NVIDIA's catalogue ends below 200."""

LABELS_MAX = 64
"""Labels of one series. Prometheus users rarely pass 30; more is a bug in a relabelling rule."""
LABEL_NAME_BYTES_MAX = 128
LABEL_VALUE_BYTES_MAX = 2048
"""Longer values are free text (log lines, commands) that would make every answer heavy."""

NATURAL_CACHED_MAX = 50_000
"""Names whose keys are cached, about 20 MB: those of devices and ports repeat."""

_DIGITS = re.compile("([0-9]+)")

NaturalKey = tuple[tuple[str, int, str], ...]
Labels = tuple[tuple[str, str], ...]
"""Labels sorted by name, without repeats and without empty values: the canonical form."""


@lru_cache(maxsize=NATURAL_CACHED_MAX)
def natural(name: str) -> NaturalKey:
    """A sort key by which numbers within names count as numbers; no two names have the same.

    >>> sorted(["leaf-10", "leaf-2", "mlx5_01", "mlx5_1", "10", "leaf-"], key=natural)
    ['10', 'leaf-', 'leaf-2', 'leaf-10', 'mlx5_01', 'mlx5_1']
    """
    parts = _DIGITS.split(name)
    numbers = [*(digits.lstrip("0") or "0" for digits in parts[1::2]), ""]
    pairs = zip(parts[::2], numbers, strict=True)
    return *((text, len(number), number) for text, number in pairs), (name, 0, "")


def canonical_labels(labels: Mapping[str, str] | Iterable[tuple[str, str]]) -> Labels:
    """The labels sorted by name, empty values dropped (an empty label is no label).

    >>> canonical_labels({"port": "1", "device": "mlx5_0", "rack": ""})
    (('device', 'mlx5_0'), ('port', '1'))
    """
    pairs = tuple(labels.items() if isinstance(labels, Mapping) else labels)
    before = ""
    for name, value in pairs:
        if name <= before or not value:
            break
        before = name
    else:
        return pairs  # the order in which nearly every client sends them
    ordered = tuple(sorted((name, value) for name, value in pairs if value))
    for (name, _), (following, _) in pairwise(ordered):
        if name == following:
            msg = f"label {name!r} appears twice; a series has each label once"
            raise IdentityError(msg)
    return ordered


def check_label(name: str, value: str) -> None:
    """Raise IdentityError unless this may be a label of a series."""
    if not name:
        raise IdentityError(f"a label without a name (its value is {value[:40]!r})")
    if len(name) + len(value) <= LABEL_NAME_BYTES_MAX // 4:
        return  # no character has over four bytes: nearly every label ends here
    if len(name.encode()) > LABEL_NAME_BYTES_MAX:
        raise IdentityError(f"label name {name[:40]!r}… has over {LABEL_NAME_BYTES_MAX} bytes")
    if len(value.encode()) > LABEL_VALUE_BYTES_MAX:
        raise IdentityError(f"label {name}={value[:40]!r}… has over {LABEL_VALUE_BYTES_MAX} bytes")


def check_labels(labels: Labels) -> None:
    """Raise IdentityError unless these canonical labels may name a series.

    Names may be any text, as in Prometheus 3; our own metrics keep the stricter rules of the
    catalog.
    """
    if len(labels) > LABELS_MAX:
        msg = f"{len(labels)} labels; a series has at most {LABELS_MAX}"
        raise IdentityError(msg)
    for name, value in labels:
        check_label(name, value)
    if not any(name == METRIC_LABEL for name, _ in labels):
        msg = f"labels without {METRIC_LABEL}: a series needs a metric name"
        raise IdentityError(msg)


def canonical_bytes(labels: Labels) -> bytes:
    """The bytes whose digest is the series id; the labels must be canonical."""
    parts = [part.encode() for pair in labels for part in pair]
    return b"\xff".join([*parts, b""])


def series_id(labels: Labels) -> int:
    """The series' id, an unsigned 64-bit integer.

    >>> hex(series_id((("__name__", "up"),)))
    '0x8f839554790b3bb7'
    """
    return digest_id(canonical_bytes(labels))


def digest_id(canonical: bytes) -> int:
    return int.from_bytes(blake2b(canonical, digest_size=8).digest(), "little")


class LabelFrame:
    """Labels that lack only the metric's name: what the many metrics of one port share.

    Raises IdentityError if no series can have them.
    """

    __slots__ = ("_after", "_after_bytes", "_before", "_before_bytes")

    def __init__(self, labels: Mapping[str, str]) -> None:
        whole = canonical_labels({**labels, METRIC_LABEL: "x"})
        check_labels(whole)
        place = whole.index((METRIC_LABEL, "x"))
        self._before, self._after = whole[:place], whole[place + 1 :]
        self._before_bytes = canonical_bytes(self._before) + METRIC_LABEL.encode() + b"\xff"
        self._after_bytes = b"\xff" + canonical_bytes(self._after)

    def named(self, metric: str) -> tuple[Labels, int]:
        """The canonical labels with this name, and the series' id.

        >>> LabelFrame({"port": "1"}).named("up")[0]
        (('__name__', 'up'), ('port', '1'))
        """
        name = metric.encode()
        if not 0 < len(name) <= LABEL_VALUE_BYTES_MAX:
            raise IdentityError(f"a metric's name has 1 to {LABEL_VALUE_BYTES_MAX} bytes")
        return self.labels(metric), digest_id(self._before_bytes + name + self._after_bytes)

    def labels(self, metric: str) -> Labels:
        """The same without the id, of a name that `named` took."""
        return (*self._before, (METRIC_LABEL, metric), *self._after)


def printable(text: str) -> str:
    r"""The text as a label or a terminal may show it: what cannot be printed is replaced.

    >>> printable("node0\x1b[2J")
    'node0\ufffd[2J'
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


@lru_cache(maxsize=10_000)
def metric_id(metric: str) -> int:
    """The 32-bit key that keeps one metric's samples side by side on disk.

    Two metrics may share it without harm: the series id distinguishes them.
    """
    return int.from_bytes(blake2b(metric.encode(), digest_size=4).digest(), "little")


def whole_number(text: str, most: int) -> int | None:
    """The number in a text, if it is one and not over a bound.

    >>> whole_number("7", 10), whole_number("11", 10), whole_number("-1", 10)
    (7, None, None)
    """
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)):
        return None
    return int(text) if int(text) <= most else None


def odd_part(names: Iterable[str], parts: Iterable[str]) -> str:
    """Why these parts are no identity; empty: they may be one.

    >>> odd_part(("host", "port"), ("node-0", "")), odd_part(("host",), ("node-0",))
    ('no port', '')
    """
    for name, part in zip(names, parts, strict=True):
        if not part:
            return f"no {name}"
        if not part.isprintable():
            return f"{name} cannot be printed"
    return ""


_ESCAPED = str.maketrans({"%": "%25", "/": "%2F", "|": "%7C"})


class _Id(msgspec.Struct, frozen=True, order=True):
    """A tuple of names with one text form: the names joined by slashes.

    A slash inside a name is written %2F, as in a URL: switches call their ports Ethernet1/1.
    """

    def __str__(self) -> str:
        parts = msgspec.structs.astuple(self)
        text = "/".join(map(str, parts))
        # Nearly all names need no escaping, and a topology prints tens of thousands of them.
        if text.count("/") == len(parts) - 1 and "%" not in text and "|" not in text:
            return text
        return "/".join(str(part).translate(_ESCAPED) for part in parts)

    def __post_init__(self) -> None:
        # The names alone: a topology makes hundreds of thousands of these.
        for name in self.__struct_fields__:
            part = getattr(self, name)
            if isinstance(part, str) and not (part and part.isprintable()):
                raise IdentityError(
                    f"{type(self).__name__}.{name} is {part!r}; it must be printable and not empty"
                )

    @classmethod
    def parse(cls, text: str) -> Self:
        """The identity that prints as ``text``.

        >>> PortId.parse("node-0/mlx5_0/1")
        PortId(host='node-0', device='mlx5_0', port='1')
        """
        parts = [unquote(part) for part in text.split("/")]
        fields = msgspec.structs.fields(cls)
        if len(parts) != len(fields):
            shape = "/".join(field.name for field in fields)
            msg = f"{text!r} is not a {cls.__name__}; write {shape}"
            raise IdentityError(msg)
        try:
            return msgspec.convert(
                dict(zip((field.name for field in fields), parts, strict=True)), cls, strict=False
            )
        except msgspec.ValidationError as error:
            msg = f"{text!r} is not a {cls.__name__}: {error}"
            raise IdentityError(msg) from error


class DeviceId(_Id, frozen=True, order=True):
    """A network adapter (HCA or NIC) of a host."""

    host: str
    device: str


class PortId(_Id, frozen=True, order=True):
    """A port of a device; a switch is a host whose device is the switch itself."""

    host: str
    device: str
    port: str


class GpuId(_Id, frozen=True, order=True):
    """A GPU of a host, by its index."""

    host: str
    gpu: str


class LinkId(_Id, frozen=True, order=True):
    """A cable, by its two ends in order, so that both ends give the same link."""

    a: PortId
    b: PortId

    @classmethod
    def between(cls, one: PortId, other: PortId) -> LinkId:
        """The same link for both orders of the ports."""
        if one == other:
            msg = f"a link joins two ports; both ends are {one}"
            raise IdentityError(msg)
        return cls(*sorted((one, other)))

    def __str__(self) -> str:
        return f"{self.a}|{self.b}"

    @classmethod
    def parse(cls, text: str) -> LinkId:
        """The link that prints as ``text``: two ports joined by a bar."""
        ends = text.split("|")
        if len(ends) != 2:  # noqa: PLR2004 - a link has two ends
            msg = f"{text!r} is not a LinkId; write host/device/port|host/device/port"
            raise IdentityError(msg)
        return cls.between(PortId.parse(ends[0]), PortId.parse(ends[1]))
