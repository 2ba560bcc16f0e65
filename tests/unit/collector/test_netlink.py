"""rtnetlink: the kernel's messages about interfaces, and bytes that no kernel would send."""

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.doors.netlink import (
    ATTRIBUTE,
    CARRIER_DOWNS,
    CARRIER_UPS,
    DELLINK,
    DONE,
    ERROR,
    HEADER,
    IFNAME,
    INTERFACE,
    NEWLINK,
    OPERSTATE,
    OPERSTATE_UP,
    LinkMessage,
    LinkSocket,
    has_ended,
    parse_messages,
)


def attribute(kind: int, value: bytes) -> bytes:
    head = ATTRIBUTE.pack(ATTRIBUTE.size + len(value), kind)
    return head + value + bytes(-len(value) % 4)


def datagram(kind: int = NEWLINK, *, family: int = 0, flags: int = 1, **more: bytes) -> bytes:
    body = INTERFACE.pack(family, 1, 7, flags, 0)
    body += attribute(IFNAME, more.get("name", b"eth7\0"))
    body += attribute(OPERSTATE, more.get("operstate", bytes([OPERSTATE_UP])))
    body += attribute(CARRIER_UPS, more.get("ups", struct.pack("=I", 3)))
    body += attribute(CARRIER_DOWNS, more.get("downs", struct.pack("=I", 2)))
    return HEADER.pack(HEADER.size + len(body), kind, 0, 1, 0) + body


def test_a_message_has_name_state_and_counts() -> None:
    assert parse_messages(datagram()) == [
        LinkMessage("eth7", is_enabled=True, is_up=True, ups=3, downs=2)
    ]


def test_several_messages_in_one_datagram_are_all_read() -> None:
    down = datagram(operstate=b"\2", flags=0)
    found = parse_messages(datagram() + down + datagram(DELLINK))
    assert [(each.is_enabled, each.is_up, each.is_gone) for each in found] == [
        (True, True, False),
        (False, False, False),
        (True, True, True),
    ]


def test_counts_that_an_old_kernel_leaves_out_are_unknown() -> None:
    (found,) = parse_messages(datagram(ups=b"", downs=b"\1\2"))
    assert (found.ups, found.downs) == (None, None)


def test_a_bridges_view_of_an_interface_is_passed_over() -> None:
    assert parse_messages(datagram(family=socket.AF_UNIX)) == []


def test_an_answer_ends_with_done_and_a_refusal_is_an_error() -> None:
    assert not has_ended(datagram())
    assert has_ended(datagram() + HEADER.pack(HEADER.size, DONE, 0, 1, 0))
    refusal = HEADER.pack(HEADER.size + 4, ERROR, 0, 1, 0) + struct.pack("=i", -1)
    with pytest.raises(PermissionError):
        has_ended(refusal)


@given(st.binary(max_size=200))
def test_any_bytes_give_messages_or_nothing(data: bytes) -> None:
    parse_messages(data)
    parse_messages(HEADER.pack(HEADER.size + len(data), NEWLINK, 0, 0, 0) + data)


@given(st.integers(0, 120), st.integers(0, 255))
def test_a_damaged_message_gives_messages_or_nothing(place: int, value: int) -> None:
    whole = bytearray(datagram())
    whole[place % len(whole)] = value
    parse_messages(bytes(whole))


def test_the_first_look_reports_every_interface_of_this_machine() -> None:
    door = LinkSocket()
    try:
        names = {message.name for message in door.look().messages}
    finally:
        door.close()
    assert names == {name for _, name in socket.if_nameindex()}
