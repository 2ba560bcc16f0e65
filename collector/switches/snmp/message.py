"""Requests, written by pysnmp, and answers, read by `collector.switches.snmp.ber`.

pysnmp takes a millisecond for a question of eight columns. The same questions come with every poll,
so its bytes are kept, and only the number of the request is replaced.

Everything here is without a network and without time. `Community` is SNMPv2c's envelope; SNMPv3's
is `collector.switches.snmp.usm`.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from pyasn1.codec.ber import encoder
from pysnmp.proto.api import v2c

from collector.switches.snmp.ber import (
    OCTETS,
    RESPONSE,
    SEQUENCE,
    BerError,
    Binding,
    expect,
    read_bindings,
    read_element,
    read_integer,
    read_octets,
    write_element,
    write_integer,
)
from collector.switches.snmp.model import Oid

VERSION_2C, VERSION_3 = 1, 3
"""The version field of messages: 2c is number 1."""
REQUEST_ID_MIN, REQUEST_ID_MAX = 1 << 24, (1 << 31) - 1
"""Numbers of requests: those that take four bytes, so that one can stand in for another."""
QUESTIONS_KEPT = 4096
"""Questions written by pysnmp: 128 switches of a few models ask several hundred. 6 MB."""
NUMBERS_KEPT_MAX = 32
"""In a name of a question that is kept; longer names come from broken switches more often than from
tables."""

TOO_BIG, NO_SUCH_NAME, GENERAL_ERROR, AUTHORIZATION_ERROR = 1, 2, 5, 16
STATUS_NAMES = {
    TOO_BIG: "tooBig",
    NO_SUCH_NAME: "noSuchName",
    3: "badValue",
    4: "readOnly",
    GENERAL_ERROR: "genErr",
    6: "noAccess",
    13: "resourceUnavailable",
    AUTHORIZATION_ERROR: "authorizationError",
}


class Answer(NamedTuple):
    """A PDU: the request that it answers, its status, and the values."""

    kind: int
    """RESPONSE or REPORT, as a tag."""
    request_id: int
    status: int
    """0 when it went well."""
    failed_at: int
    """Which of the asked names failed, counted from 1; 0 when it does not name one."""
    bindings: list[Binding]
    size: int
    """Bytes of the datagram."""
    is_authentic: bool = False
    """Whether it was signed with the user's key."""

    def status_name(self) -> str:
        return STATUS_NAMES.get(self.status, f"error status {self.status}")


def new_number() -> int:
    """A random number for a request, so that an answer cannot be forged."""
    return REQUEST_ID_MIN + secrets.randbelow(REQUEST_ID_MAX - REQUEST_ID_MIN)


def get_request(number: int, names: Sequence[Oid]) -> bytes:
    return _question(number, tuple(names), 0)


def bulk_request(number: int, names: Sequence[Oid], repetitions: int) -> bytes:
    """A PDU that asks for what follows each of these names, so many times over."""
    return _question(number, tuple(names), repetitions)


def _question(number: int, names: tuple[Oid, ...], repetitions: int) -> bytes:
    is_kept = all(len(name) <= NUMBERS_KEPT_MAX for name in names)
    write = _write_question if is_kept else _write_question.__wrapped__
    before, after = write(names, repetitions)
    return before + number.to_bytes(4, "big") + after


@lru_cache(QUESTIONS_KEPT)
def _write_question(names: tuple[Oid, ...], repetitions: int) -> tuple[bytes, bytes]:
    """A PDU before and after the request's number; a GET when there are no repetitions."""
    pdu = v2c.GetBulkRequestPDU() if repetitions else v2c.GetRequestPDU()
    api = v2c.apiBulkPDU if repetitions else v2c.apiPDU
    api.set_defaults(pdu)
    api.set_request_id(pdu, REQUEST_ID_MAX)
    if repetitions:
        api.set_non_repeaters(pdu, 0)
        api.set_max_repetitions(pdu, repetitions)
    # Objects, not texts: nothing looks them up in a MIB.
    api.set_varbinds(pdu, [(v2c.ObjectIdentifier(name), v2c.null) for name in names])
    # The number is the first thing in a PDU, behind tags and lengths that cannot look like it.
    before, mark, after = encoder.encode(pdu).partition(write_integer(REQUEST_ID_MAX))
    return before + mark[:2], after


def read_pdu(data: bytes, position: int, end: int, wanted_id: int) -> Answer | None:
    """The PDU at a position; None when it answers another request than this one."""
    pdu = read_element(data, position, end)
    request_id, position = read_integer(data, pdu.start, pdu.end)
    status, position = read_integer(data, position, pdu.end)
    failed_at, position = read_integer(data, position, pdu.end)
    if pdu.tag == RESPONSE and request_id != wanted_id:
        return None
    pairs = expect(data, position, pdu.end, SEQUENCE)
    bindings = read_bindings(data, pairs.start, pairs.end)
    return Answer(pdu.tag, request_id, status, failed_at, bindings, len(data))


class Community:
    """SNMPv2c's envelope: a word in clear text, which a wrong switch does not answer at all."""

    def __init__(self, community: str) -> None:
        self._head = write_integer(VERSION_2C) + write_element(OCTETS, community.encode())

    def who(self) -> str:
        """The asker, for messages: the community itself is a secret."""
        return "the community"

    def write(self, pdu: bytes, _message_id: int) -> bytes:
        return write_element(SEQUENCE, self._head + pdu)

    def read(self, data: bytes, wanted_id: int) -> Answer | None:
        """The answer in a datagram; None when it is another request's."""
        message = expect(data, 0, len(data), SEQUENCE)
        version, position = read_integer(data, message.start, message.end)
        if version != VERSION_2C:
            raise BerError(f"a message of version {version}, where 2c ({VERSION_2C}) was asked")
        _, position = read_octets(data, position, message.end)
        answer = read_pdu(data, position, message.end, wanted_id)
        if answer is not None and answer.kind != RESPONSE:
            raise BerError(f"a PDU with the tag {answer.kind:#04x}, which is no response")
        return answer
