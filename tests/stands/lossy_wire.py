"""A wire that loses what it is told to: `python -m tests.stands.lossy_wire LEFT RIGHT PORTS EVERY`.

It runs in a namespace of its own and copies frames between two interfaces, because not every
kernel has netem. UDP from one of the source ports (between commas) is lost; of other UDP every
EVERYth datagram is (0: none). Prints `ready` when it copies.
"""

from __future__ import annotations

import select
import socket
import sys

ALL_FRAMES = 0x0003
"""ETH_P_ALL"""
OUTGOING = 4
"""PACKET_OUTGOING: what this machine sent itself."""
FRAME_BYTES_MAX = 65_536
IPV4, UDP, HEADER = b"\x08\x00", 17, 14


def udp_at(frame: bytes) -> int:
    """Where a frame's UDP header begins; 0: it has none."""
    if frame[12:14] != IPV4 or frame[HEADER + 9] != UDP:
        return 0
    return HEADER + (frame[HEADER] & 0xF) * 4


def copy(left: str, right: str, ports: frozenset[int], every: int) -> None:
    ends = []
    for name in (left, right):
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_FRAMES))
        made.bind((name, ALL_FRAMES))
        ends.append(made)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    seen = 0
    while True:
        for end in select.select(ends, [], [])[0]:
            frame, where = end.recvfrom(FRAME_BYTES_MAX)
            if where[2] == OUTGOING:
                continue
            if place := udp_at(frame):
                seen += 1
                is_lost = int.from_bytes(frame[place : place + 2]) in ports
                if is_lost or (every and seen % every == 0):
                    continue
                # The sender left its checksum to the hardware that is not there: 0 means none.
                frame = frame[: place + 6] + b"\0\0" + frame[place + 8 :]
            ends[1 - ends.index(end)].send(frame)


if __name__ == "__main__":
    chosen = frozenset(int(port) for port in sys.argv[3].split(",") if port)
    copy(sys.argv[1], sys.argv[2], chosen, int(sys.argv[4]))
