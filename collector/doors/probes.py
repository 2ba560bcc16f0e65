"""UDP probes between agents, and the thread that answers them, for `Host` alone.

Each flow of a rail has a source port of its own, always the same: switches that spread traffic by
the hash of addresses and ports (ECMP) keep sending it the same way. The round trip is taken from
the kernel's receive time stamps where they are sound, less the time that the request stayed with
the answering host: a busy host is not taken for a slow path.

Only addresses of the mesh (targets, and networks of the settings) are answered, at most
ANSWERS_PER_SECOND_MAX a second, by datagrams as long as the request: an agent cannot be used to
flood another machine.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from collector.contract.units import NS
from collector.parsing.probes import ANSWER, BYTES, REQUEST, STAY_NS_MAX, Probe, decode, encode

ANSWERS_PER_SECOND_MAX: Final = 20_000
"""Of one agent, over all rails: 64 hosts that ask on eight flows, eight rails and every second ask
4,096 times."""
RECEIVE_BUFFER_BYTES: Final = 1 << 20
LOOK_SECONDS: Final = 0.5
"""How soon the thread sees that it should end."""
DATAGRAMS_AT_ONCE: Final = 64

SO_TIMESTAMPNS: Final = 35
"""asm-generic/socket.h; Python does not name it. The message that comes back has the same type."""
_TIMESPEC = struct.Struct("qq")
_ROOM = socket.CMSG_SPACE(_TIMESPEC.size)


Network = tuple[int, int]
"""Address and mask, as numbers."""


def is_within(address: str, networks: Sequence[Network]) -> bool:
    """Whether an address lies in one of these networks.

    >>> [is_within(one, [(10 << 24, 0xFFFF0000)]) for one in ("10.0.3.4", "10.1.3.4")]
    [True, False]
    """
    number = int.from_bytes(socket.inet_aton(address), "big")
    return any(number & mask == network for network, mask in networks)


class Plan(NamedTuple):
    """What an agent listens at and sends from."""

    rails: Mapping[str, str]
    """Own addresses, by rail."""
    peers: frozenset[str]
    """Addresses that are answered."""
    port: int
    """Where requests go to, and come in."""
    flows: int
    first_source_port: int = 0
    """Of the flows; 0: those behind ``port``."""
    networks: tuple[Network, ...] = ()
    """Whose addresses are answered, too."""
    is_answering: bool = True
    """False: for a person beside a running agent, which has the port."""


class Sending(NamedTuple):
    """One probe of a round."""

    rail: str
    address: str
    flow: int


class Answers(msgspec.Struct):
    """What the thread has done since it started."""

    answered: int = 0
    refused: int = 0
    """Datagrams of strangers, and such that are no probes."""
    over_limit: int = 0


class Prober(Protocol):
    """Sends rounds of probes, and answers those of others."""

    answers: Answers

    def round(self, sendings: Sequence[Sending], seconds: float) -> list[int | None]:
        """The round trip of each in nanoseconds; None: no answer in this time."""
        ...

    def rest(self, seconds: float) -> None:
        """Wait between two rounds."""
        ...

    def close(self) -> None: ...


def open_socket(address: str, port: int) -> socket.socket:
    """Bound there; OSError where that is not possible."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        made.bind((address, port))
    except OSError:
        made.close()
        raise
    return made


def watched(sockets: Iterable[socket.socket]) -> selectors.BaseSelector:
    selector = selectors.DefaultSelector()
    for each in sockets:
        selector.register(each, selectors.EVENT_READ)
    return selector


def readable(selector: selectors.BaseSelector, seconds: float) -> Iterator[socket.socket]:
    for key, _ in selector.select(seconds):
        assert isinstance(key.fileobj, socket.socket)
        yield key.fileobj


def received(from_socket: socket.socket) -> Iterator[tuple[bytes, str, int, int]]:
    """What has come: data, address, port, and since when it waited, in nanoseconds."""
    for _ in range(DATAGRAMS_AT_ONCE):
        try:
            data, ancillary, _, where = from_socket.recvmsg(BYTES + 1, _ROOM)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno == errno.ECONNREFUSED:
                continue  # an earlier probe's host has no one listening
            raise
        waited_ns = 0
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                seconds, rest = _TIMESPEC.unpack(content)
                waited_ns = time.time_ns() - (seconds * NS + rest)
        yield data, where[0], where[1], waited_ns


class LiveProber:
    """On the machine itself. `round` is for one thread."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._nonce = secrets.randbits(64)
        self._sequence = 0
        self.answers = Answers()
        self._senders: dict[tuple[str, int], socket.socket] = {}
        self._listeners: list[socket.socket] = []
        self._is_over = threading.Event()
        try:
            for rail, address in plan.rails.items():
                if plan.is_answering:
                    self._listeners.append(open_socket(address, plan.port))
                first = plan.first_source_port or plan.port + 1
                for flow in range(plan.flows):
                    self._senders[rail, flow] = open_socket(address, first + flow)
        except OSError:
            self.close()
            raise
        # Not select(2): an agent holds thousands of files, and it knows no descriptor above 1023.
        self._asking = watched(self._senders.values())
        self._answering = watched(self._listeners)
        self._thread = threading.Thread(target=self._answer, name="probes", daemon=True)
        if plan.is_answering:
            self._thread.start()

    def close(self) -> None:
        self._is_over.set()
        thread = getattr(self, "_thread", None)
        if thread is not None:
            if thread.ident is not None:
                thread.join()
            self._asking.close()
            self._answering.close()
        for each in (*self._senders.values(), *self._listeners):
            each.close()

    def rest(self, seconds: float) -> None:
        """Until the prober is closed, at most."""
        self._is_over.wait(seconds)

    # Asking ----------------------------------------------------------------------------------

    def round(self, sendings: Sequence[Sending], seconds: float) -> list[int | None]:
        """Send all of them, and wait for the answers; late ones of other rounds are dropped."""
        first, sent_ns = self._sequence, list[int]()
        found: list[int | None] = [None] * len(sendings)
        for place, each in enumerate(sendings):
            self._sequence = (first + place + 1) & 0xFFFFFFFF
            probe = Probe(REQUEST, each.flow, (first + place) & 0xFFFFFFFF, self._nonce)
            sent_ns.append(time.monotonic_ns())
            with contextlib.suppress(OSError):  # no route, or a full queue: it is lost
                self._senders[each.rail, each.flow].sendto(
                    encode(probe), (each.address, self._plan.port)
                )
        until_ns, missing = time.monotonic_ns() + round_ns(seconds), len(sendings)
        while missing and (left_ns := until_ns - time.monotonic_ns()) > 0:
            for ready in readable(self._asking, left_ns / NS):
                for data, address, port, waited_ns in received(ready):
                    probe_or_none = decode(data)
                    if probe_or_none is None or probe_or_none.nonce != self._nonce:
                        continue
                    answer = probe_or_none
                    place = (answer.sequence - first) & 0xFFFFFFFF
                    if answer.kind != ANSWER or place >= len(sendings) or found[place] is not None:
                        continue
                    if (address, port) != (sendings[place].address, self._plan.port):
                        continue
                    took_ns = time.monotonic_ns() - sent_ns[place]
                    found[place] = round_trip_ns(took_ns, waited_ns, answer.stay_ns)
                    missing -= 1
        return found

    def _is_peer(self, address: str) -> bool:
        return address in self._plan.peers or is_within(address, self._plan.networks)

    # Answering -------------------------------------------------------------------------------

    def _answer(self) -> None:
        second, left = 0, 0
        while not self._is_over.is_set():
            for ready in readable(self._answering, LOOK_SECONDS):
                if int(time.monotonic()) != second:
                    second, left = int(time.monotonic()), ANSWERS_PER_SECOND_MAX
                with contextlib.suppress(OSError):
                    for data, address, port, waited_ns in received(ready):
                        asked = decode(data)
                        if asked is None or asked.kind != REQUEST or not self._is_peer(address):
                            self.answers.refused += 1
                        elif not left:
                            self.answers.over_limit += 1
                        else:
                            left -= 1
                            stay_ns = min(max(waited_ns, 0), STAY_NS_MAX)
                            answer = asked._replace(kind=ANSWER, stay_ns=stay_ns)
                            ready.sendto(encode(answer), (address, port))
                            self.answers.answered += 1


def round_ns(seconds: float) -> int:
    return round(seconds * NS)


def round_trip_ns(took_ns: int, waited_ns: int, stay_ns: int) -> int:
    """Of what the prober saw, less what both hosts kept the datagram waiting, as far as sound.

    A wall clock that is set meanwhile makes either number nonsense: it is then not used.

    >>> round_trip_ns(100, 20, 30), round_trip_ns(100, -5, 30), round_trip_ns(100, 20, 400)
    (50, 70, 80)
    """
    for kept_ns in (waited_ns, stay_ns):
        if 0 < kept_ns < took_ns:
            took_ns -= kept_ns
    return took_ns


class ReplayedProber:
    """A recording: `{"<address> <flow>": nanoseconds, or null where no answer came}`."""

    def __init__(self, text: bytes, path: str) -> None:
        try:
            self._answers = msgspec.json.decode(text, type=dict[str, int | None])
        except msgspec.DecodeError as error:
            raise ValueError(f"{path}: {error}") from error
        self.answers = Answers()

    def round(self, sendings: Sequence[Sending], seconds: float) -> list[int | None]:  # noqa: ARG002
        """As it was recorded."""
        return [self._answers.get(f"{each.address} {each.flow}") for each in sendings]

    def rest(self, seconds: float) -> None:
        """A recording needs none."""

    def close(self) -> None:
        """There is nothing to close."""
