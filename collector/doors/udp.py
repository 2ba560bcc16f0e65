"""UDP that others send to this machine, for `collector.doors.host` alone."""

from __future__ import annotations

import socket
import sys
from typing import NamedTuple

RECEIVE_BYTES = 4 << 20
"""What the kernel keeps between two looks. It gives twice `net.core.rmem_max` at most, which is
some 400 kB by default: its drops are counted."""
MESSAGE_BYTES_MAX = 64 << 10
SO_RXQ_OVFL = 40
"""Linux, asm-generic: with each message, how many were dropped since the socket was made."""


class Packet(NamedTuple):
    """A message, and the address that it came from."""

    data: bytes
    sender: str


class UdpSocket:
    """A socket that listens at one address; it never blocks."""

    def __init__(self, address: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self.dropped = 0
        """Messages that the kernel had no room for."""
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
            self._socket.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
            self._socket.bind((address, port))
        except OSError:
            self._socket.close()
            raise

    def receive(self, count_max: int) -> list[Packet]:
        """What has arrived, up to so many messages."""
        packets: list[Packet] = []
        room = socket.CMSG_SPACE(4)
        while len(packets) < count_max:
            try:
                data, ancillary, _, sender = self._socket.recvmsg(MESSAGE_BYTES_MAX, room)
            except BlockingIOError:
                break
            for level, kind, value in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, SO_RXQ_OVFL) and len(value) == 4:  # noqa: PLR2004 - u32
                    self.dropped = int.from_bytes(value, sys.byteorder)
            packets.append(Packet(data, str(sender[0]).removeprefix("::ffff:")))
        return packets

    def close(self) -> None:
        self._socket.close()


def split_address(text: str) -> tuple[str, int]:
    """Address and port; ValueError for a text that is neither.

    >>> split_address("192.0.2.1:6343"), split_address("[::1]:6343")
    (('192.0.2.1', 6343), ('::1', 6343))
    """
    address, _, port = text.rpartition(":")
    if not (address and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ValueError(f"{text!r} is no address with a port, such as 192.0.2.1:6343")
    return address.removeprefix("[").removesuffix("]"), int(port)


def parse_recorded(text: bytes) -> list[Packet]:
    """A recording: in each line the sender and the message as hexadecimal digits."""
    packets = []
    for line in text.decode("ascii", "replace").splitlines():
        sender, _, digits = line.partition(" ")
        if digits:
            packets.append(Packet(bytes.fromhex(digits), sender))
    return packets
