"""gNMI messages as paths and plain values: from protobuf, and from JSON as recordings hold it.

Not by pygnmi's `telemetryParser`: it gives nothing for a leaf-list or a message without a time,
takes any bytes for a float, and joins keys to text that cannot be taken apart again (``a]b``).

Nothing here imports protobuf: messages are used as they come, and recordings need none.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from collector.switches.gnmi.model import (
    Element,
    Message,
    Nonsense,
    Notification,
    Path,
    Synced,
    Update,
)

PATHS_KEPT_MAX = 65_536
"""Paths of one switch whose decoded form is kept: 576 ports of 100 leaves. Others are decoded each
time: slower, and nothing else."""
PATH_ELEMENTS_MAX = 64
"""The deepest path of OpenConfig has 14."""
PATH_BYTES_MAX = 4096
"""A path is kept as long as its leaf; the longest ones of OpenConfig have some 300 bytes."""
FLOAT_BYTES = 4
"""openconfig-types:ieeefloat32 is sent as its four bytes."""
DETAIL_CHARS_MAX = 120


class DecodeError(ValueError):
    """A part of a message that does not follow the gNMI specification."""


# --- paths ---------------------------------------------------------------------------------------


def parse_path(text: str) -> tuple[Element, ...]:
    r"""The elements of a path as people write it; ``\`` takes the next character as it is.

    >>> parse_path("/interfaces/interface[name=Ethernet1/1]/state")
    (('interfaces', ()), ('interface', (('name', 'Ethernet1/1'),)), ('state', ()))
    >>> parse_path(r"/queue[name=a\]b]")
    (('queue', (('name', 'a]b'),)),)
    """
    elements: list[Element] = []
    position = 0
    while position < len(text):
        if text[position] == "/":
            position += 1
            continue
        name, position = _take(text, position, "/[")
        keys: dict[str, str] = {}
        while position < len(text) and text[position] == "[":
            key, position = _take(text, position + 1, "=")
            value, position = _take(text, position + 1, "]")
            if position >= len(text):
                raise DecodeError(f"a key without its end: {text[:DETAIL_CHARS_MAX]!r}")
            keys[key] = value
            position += 1
        elements.append((name, tuple(sorted(keys.items()))))
        if len(elements) > PATH_ELEMENTS_MAX:
            raise DecodeError(f"a path of over PATH_ELEMENTS_MAX = {PATH_ELEMENTS_MAX} elements")
    return tuple(elements)


def _take(text: str, position: int, ends: str) -> tuple[str, int]:
    """The characters up to one of ``ends``, and where that stands."""
    taken: list[str] = []
    while position < len(text) and text[position] not in ends:
        if text[position] == "\\" and position + 1 < len(text):
            position += 1
        taken.append(text[position])
        position += 1
    return "".join(taken), position


# --- protobuf ------------------------------------------------------------------------------------


class Decoder:
    """Messages of one switch; it remembers the paths, which repeat with every message."""

    def __init__(self) -> None:
        self._paths: dict[tuple[bytes, bytes], Path] = {}
        self._elements: dict[Element, Element] = {}
        """Steps of those paths, each once: most of a path is the same for many."""

    def decode(self, response: Any) -> Message:  # noqa: ANN401 - generated code without types
        kind = response.WhichOneof("response")
        if kind == "sync_response":
            return Synced()
        if kind != "update":
            return Nonsense(f"a message of kind {kind}")
        return self._notification(response.update)

    def _notification(self, notification: Any) -> Notification:  # noqa: ANN401 - as above
        prefix = notification.prefix
        prefix_bytes = prefix.SerializeToString()
        updates, deletes, odd = [], [], 0
        for each in notification.update:
            try:
                path = self._path(prefix, prefix_bytes, each.path)
            except DecodeError:
                odd += 1
                continue
            # A subtree may come as bytes in a field of gNMI 0.3, where `val` is not set.
            value = proto_value(each.val) if each.HasField("val") else json_value(each.value.value)
            updates.append(Update(path, value))
        for each in notification.delete:
            try:
                deletes.append(self._path(prefix, prefix_bytes, each))
            except DecodeError:
                odd += 1
        return Notification(notification.timestamp, updates, deletes, odd)

    def _path(self, prefix: Any, prefix_bytes: bytes, path: Any) -> Path:  # noqa: ANN401 - as above
        key = prefix_bytes, path.SerializeToString()
        known = self._paths.get(key)
        if known is None:
            if len(prefix_bytes) + len(key[1]) > PATH_BYTES_MAX:
                raise DecodeError(f"a path of over PATH_BYTES_MAX = {PATH_BYTES_MAX} bytes")
            share = self._elements.setdefault
            elements = (*path_elements(prefix), *path_elements(path))
            if len(self._paths) >= PATHS_KEPT_MAX:
                return Path(elements)
            known = self._paths[key] = Path(tuple(share(each, each) for each in elements))
        return known


def path_elements(path: Any) -> tuple[Element, ...]:  # noqa: ANN401 - generated code without types
    """The elements of a protobuf Path; switches older than gNMI 0.4 send them as text."""
    if len(path.elem) > PATH_ELEMENTS_MAX or len(path.element) > PATH_ELEMENTS_MAX:
        raise DecodeError(f"a path of over PATH_ELEMENTS_MAX = {PATH_ELEMENTS_MAX} elements")
    if not path.elem:
        return tuple(element for text in path.element for element in parse_path(text))
    return tuple(
        (each.name, tuple(sorted(each.key.items())) if each.key else ()) for each in path.elem
    )


class Unreadable:
    """A value in a form that this program does not read; the leaf is named as unparseable."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why


def proto_value(value: Any) -> Any:  # noqa: ANN401 - generated code without types; see model.Value
    kind = value.WhichOneof("value")
    if kind in {"json_ietf_val", "json_val"}:
        return json_value(getattr(value, kind))
    if kind == "decimal_val":
        return decimal_value(value.decimal_val.digits, value.decimal_val.precision)
    if kind == "leaflist_val":
        return [proto_value(each) for each in value.leaflist_val.element]
    if kind == "bytes_val":
        return bytes_value(value.bytes_val)
    if kind is None or kind in {"any_val", "proto_bytes"}:
        return Unreadable(f"a value of kind {kind}")
    return getattr(value, kind)


def json_value(text: bytes) -> Any:  # noqa: ANN401 - see model.Value
    """What the JSON holds; a text that is none is a string: some switches send a bare ``UP``."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    if text[:1] in (b"{", b"["):
        return Unreadable("JSON that cannot be read")
    return text.decode("utf-8", "replace")


def decimal_value(digits: int, precision: int) -> float | Unreadable:
    """The number of a Decimal64: 1234 with precision 2 is 12.34."""
    if precision > 18:  # noqa: PLR2004 - YANG's decimal64 has at most 18 fraction digits
        return Unreadable(f"a decimal of precision {precision}")
    return float(digits / 10**precision)


def bytes_value(data: bytes) -> float | Unreadable:
    """The number of an ieeefloat32, the only bytes that OpenConfig's leaves have."""
    if len(data) != FLOAT_BYTES:
        return Unreadable(f"{len(data)} bytes")
    return float(struct.unpack(">f", data)[0])


# --- JSON of recordings --------------------------------------------------------------------------


def decode_recording(text: bytes) -> Iterator[Message]:
    """The messages of a recording: a JSON list of SubscribeResponses, in either of two forms.

    Protobuf's own JSON (``gnmic --format protojson``), or pygnmi's dictionaries, whose paths are
    text and whose values are plain.
    """
    recorded = msgspec.json.decode(text)
    if not isinstance(recorded, list):
        raise DecodeError("not a JSON list of messages")
    for number, message in enumerate(recorded):
        try:
            yield from _recorded_message(message)
        except (DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            yield Nonsense(f"message {number}: {type(error).__name__}: {error}"[:DETAIL_CHARS_MAX])


def _recorded_message(message: dict[str, Any]) -> Iterator[Message]:
    update = message.get("update")
    if update is not None:
        prefix = _recorded_path(update.get("prefix"))
        updates = [
            Update(Path((*prefix, *_recorded_path(each.get("path")))), _recorded_value(each["val"]))
            for each in update.get("update", [])
        ]
        deletes = [
            Path(
                (
                    *prefix,
                    *_recorded_path(each.get("path", each) if isinstance(each, dict) else each),
                )
            )
            for each in update.get("delete", [])
        ]
        yield Notification(int(update.get("timestamp", 0)), updates, deletes)
    if message.get("syncResponse") or message.get("sync_response"):
        yield Synced()
    elif update is None:
        raise DecodeError(f"a message with {sorted(message)}")


def _recorded_path(path: Any) -> tuple[Element, ...]:  # noqa: ANN401 - JSON
    if path is None:
        return ()
    if isinstance(path, str):
        return parse_path(path)
    return tuple(
        (str(each["name"]), tuple(sorted(each.get("key", {}).items())))
        for each in path.get("elem", [])
    )


_PLAIN = ("stringVal", "intVal", "uintVal", "boolVal", "floatVal", "doubleVal", "asciiVal")


def _recorded_value(value: Any) -> Any:  # noqa: ANN401, PLR0911 - JSON; a list of cases
    """A TypedValue in protobuf's JSON, where bytes are base64; anything else is plain already."""
    if not isinstance(value, dict) or len(value) != 1:
        return value
    ((kind, inner),) = value.items()
    try:
        if kind in _PLAIN:
            return inner
        if kind in {"jsonIetfVal", "jsonVal"}:
            return json_value(base64.b64decode(inner, validate=True))
        if kind == "bytesVal":
            return bytes_value(base64.b64decode(inner, validate=True))
        if kind == "decimalVal":
            return decimal_value(int(inner["digits"]), int(inner.get("precision", 0)))
        if kind == "leaflistVal":
            return [_recorded_value(each) for each in inner["element"]]
    except (binascii.Error, KeyError, TypeError, ValueError):
        return Unreadable(f"a value of kind {kind}")
    return value
