"""gNMI messages as paths and plain values, from protobuf and from recordings."""

import base64
import json
import struct
from typing import Any

import pytest
from pygnmi.spec.v080 import gnmi_pb2

from collector.switches.gnmi import decode as decode_module
from collector.switches.gnmi.decode import (
    PATH_ELEMENTS_MAX,
    DecodeError,
    Decoder,
    Unreadable,
    decode_recording,
    parse_path,
    proto_value,
)
from collector.switches.gnmi.model import Nonsense, Notification, Path, Synced
from tests.doubles.gnmi_server import SYNC, make_path, tell


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("", ()),
        ("/", ()),
        ("a//b/", (("a", ()), ("b", ()))),
        ("/i[name=Ethernet1/1]/s", (("i", (("name", "Ethernet1/1"),)), ("s", ()))),
        ("/q[b=2][a=1]", (("q", (("a", "1"), ("b", "2"))),)),
        (r"/q[n=a\]b]", (("q", (("n", "a]b"),)),)),
        (r"/q[n=a\\]", (("q", (("n", "a\\"),)),)),
        ("/q[n=x=y]", (("q", (("n", "x=y"),)),)),
    ],
)
def test_paths_are_taken_apart(text: str, elements: tuple[Any, ...]) -> None:
    assert parse_path(text) == elements


@pytest.mark.parametrize("text", ["/a[name=1", "/a[name", "/a" * (PATH_ELEMENTS_MAX + 1)])
def test_paths_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        parse_path(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (gnmi_pb2.TypedValue(uint_val=2**64 - 1), 2**64 - 1),
        (gnmi_pb2.TypedValue(int_val=-5), -5),
        (gnmi_pb2.TypedValue(bool_val=False), False),
        (gnmi_pb2.TypedValue(double_val=1.5), 1.5),
        (gnmi_pb2.TypedValue(string_val="UP"), "UP"),
        (gnmi_pb2.TypedValue(ascii_val="7"), "7"),
        (gnmi_pb2.TypedValue(json_ietf_val=b'"18446744073709551615"'), "18446744073709551615"),
        (gnmi_pb2.TypedValue(json_val=b'{"a": [1]}'), {"a": [1]}),
        (gnmi_pb2.TypedValue(json_val=b"UP"), "UP"),
        (gnmi_pb2.TypedValue(bytes_val=struct.pack(">f", 2.5)), 2.5),
        (gnmi_pb2.TypedValue(decimal_val=gnmi_pb2.Decimal64(digits=-1234, precision=2)), -12.34),
    ],
)
def test_values_are_read_in_every_form(value: Any, expected: object) -> None:  # noqa: ANN401
    assert proto_value(value) == expected


def test_a_leaf_list_is_a_list() -> None:
    elements = [gnmi_pb2.TypedValue(uint_val=1), gnmi_pb2.TypedValue(string_val="b")]
    value = gnmi_pb2.TypedValue(leaflist_val=gnmi_pb2.ScalarArray(element=elements))
    assert proto_value(value) == [1, "b"]


@pytest.mark.parametrize(
    "value",
    [
        gnmi_pb2.TypedValue(),
        gnmi_pb2.TypedValue(proto_bytes=b"x"),
        gnmi_pb2.TypedValue(bytes_val=b"abc"),
        gnmi_pb2.TypedValue(json_val=b'{"a": '),
        gnmi_pb2.TypedValue(json_val=b"[" * 100_000),
        gnmi_pb2.TypedValue(decimal_val=gnmi_pb2.Decimal64(digits=1, precision=4_000_000_000)),
    ],
)
def test_values_that_cannot_be_read_are_marked(value: Any) -> None:  # noqa: ANN401 - untyped
    assert isinstance(proto_value(value), Unreadable)


def test_a_prefix_is_put_before_every_path_and_paths_are_made_once() -> None:
    decoder = Decoder()
    message = tell({"state/mtu": 9216}, prefix="/interfaces/interface[name=e1]", deletes=("state",))
    first, second = decoder.decode(message), decoder.decode(message)
    assert isinstance(first, Notification)
    assert isinstance(second, Notification)
    expected = parse_path("/interfaces/interface[name=e1]/state/mtu")
    assert first.updates[0].path.elements == expected
    assert first.updates[0].path is second.updates[0].path
    assert first.deletes == [Path(expected[:-1])]


def test_more_paths_than_are_kept_are_still_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_module, "PATHS_KEPT_MAX", 1)
    decoder = Decoder()
    decoded = decoder.decode(tell({"/a": 1, "/b": 2}))
    assert isinstance(decoded, Notification)
    assert [str(each.path) for each in decoded.updates] == ["/a", "/b"]
    assert len(decoder._paths) == 1


def test_paths_of_old_switches_are_text() -> None:
    notification = gnmi_pb2.Notification()
    notification.update.add(path=gnmi_pb2.Path(element=["interfaces", "interface[name=e1]"]))
    notification.update[0].value.value = b'{"a": 1}'
    decoded = Decoder().decode(gnmi_pb2.SubscribeResponse(update=notification))
    assert isinstance(decoded, Notification)
    ((path, value),) = decoded.updates
    assert (path.elements, value) == (parse_path("/interfaces/interface[name=e1]"), {"a": 1})


def test_one_path_that_is_too_long_hides_no_other() -> None:
    message = tell({"/a[k=" + "x" * 5000 + "]": 1, "/b": 2}, deletes=("/c" * 64,))
    message.update.delete[0].elem.add(name="c")
    decoded = Decoder().decode(message)
    assert isinstance(decoded, Notification)
    assert [str(each.path) for each in decoded.updates] == ["/b"]
    assert decoded.odd == 2


def test_syncs_and_messages_without_content_are_distinguished() -> None:
    assert Decoder().decode(SYNC) == Synced()
    assert isinstance(Decoder().decode(gnmi_pb2.SubscribeResponse()), Nonsense)


def test_both_forms_of_a_recording_are_equal() -> None:
    value = {"in-octets": "5"}
    encoded = base64.b64encode(json.dumps(value).encode()).decode()
    elements = [{"name": "interface", "key": {"name": "e]1"}}, {"name": "state"}]
    proto = {
        "timestamp": "17",
        "prefix": {"elem": [{"name": "interfaces"}]},
        "update": [{"path": {"elem": elements}, "val": {"jsonIetfVal": encoded}}],
        "delete": [{"elem": elements}],
    }
    plain = {
        "timestamp": 17,
        "prefix": "interfaces",
        "update": [{"path": r"interface[name=e\]1]/state", "val": value}],
        "delete": [{"path": r"interface[name=e\]1]/state"}],
    }
    recorded = [
        [{"update": proto}, {"syncResponse": True}],
        [{"update": plain, "sync_response": True}],
    ]
    first, second = (list(decode_recording(json.dumps(each).encode())) for each in recorded)
    assert first == second
    assert isinstance(first[0], Notification)
    assert first[0].updates[0].path.elements == make_elements(
        r"/interfaces/interface[name=e\]1]/state"
    )


def make_elements(text: str) -> tuple[Any, ...]:
    return tuple((each.name, tuple(each.key.items())) for each in make_path(text).elem)
