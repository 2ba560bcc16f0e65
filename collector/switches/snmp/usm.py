"""SNMPv3's envelope: user, authentication, privacy and time (RFC 3412 and RFC 3414).

Keys, digests and ciphers are those of pysnmp's user-based security model. Around them stands the
state that a client has to keep of a switch: its engine's name, how often it booted and its clock.
pysnmp's own message processing is not used: it decodes every value of an answer with pyasn1 (see
`collector.switches.snmp.ber`), and finds the place of a digest by looking for zeros, which a
switch's name may hold.
"""

from __future__ import annotations

import hmac
import time
from functools import lru_cache
from typing import Any, NamedTuple

from pyasn1.type.univ import OctetString
from pysnmp.error import PySnmpError
from pysnmp.proto.secmod.rfc3414.service import SnmpUSMSecurityModel

from collector.contract.reason import UnreadReason
from collector.switches.snmp.ber import (
    OCTETS,
    REPORT,
    RESPONSE,
    SEQUENCE,
    BerError,
    expect,
    read_integer,
    read_name,
    read_octets,
    write_element,
    write_integer,
)
from collector.switches.snmp.message import VERSION_3, Answer, get_request, read_pdu
from collector.switches.snmp.model import Credentials, Oid, SnmpError

ANSWER_BYTES_MAX = 65507
"""The size that we announce to switches: the longest UDP datagram."""
TIME_WINDOW_SECONDS = 150
"""How old a message may be by its engine's clock (RFC 3414, section 2.2.3)."""
ENGINE_ID_BYTES_MAX = 32
"""RFC 3411, SnmpEngineID."""
COUNT_MAX = (1 << 31) - 1
"""Of boots and of seconds, in RFC 3414."""
KEYS_KEPT = 256
"""Hashed passphrases. Hashing one takes 10 ms, and a fleet has few."""
USER_BYTES_MAX = 32
USER_MODEL = 3
IS_AUTHENTIC, IS_PRIVATE, IS_REPORTABLE = 1, 2, 4
"""Bits of a message's flags."""

AUTHENTICATION: dict[str, Oid] = {
    name: (1, 3, 6, 1, 6, 3, 10, 1, 1, number)
    for number, name in enumerate(("md5", "sha", "sha224", "sha256", "sha384", "sha512"), start=2)
}
PRIVACY: dict[str, Oid] = {
    "des": (1, 3, 6, 1, 6, 3, 10, 1, 2, 2),
    "3des": (1, 3, 6, 1, 6, 3, 10, 1, 2, 3),
    "aes": (1, 3, 6, 1, 6, 3, 10, 1, 2, 4),
    "aes192": (1, 3, 6, 1, 4, 1, 9, 12, 6, 1, 1),
    "aes256": (1, 3, 6, 1, 4, 1, 9, 12, 6, 1, 2),
    "aes192c": (1, 3, 6, 1, 4, 1, 9, 12, 6, 1, 101),
    "aes256c": (1, 3, 6, 1, 4, 1, 9, 12, 6, 1, 102),
}
"""By pysnmp's numbers. The last two lengthen keys as Cisco does, the two before as the draft does
that net-snmp follows; with sha256 and longer there is nothing to lengthen and no difference."""

_STATISTICS: Oid = (1, 3, 6, 1, 6, 3, 15, 1, 1)
WRONG_LEVEL, WRONG_TIME, WRONG_USER, WRONG_ENGINE, WRONG_DIGEST, WRONG_CIPHER = (
    (*_STATISTICS, number, 0) for number in range(1, 7)
)
"""What a report counts (SNMP-USER-BASED-SM-MIB): the reason of a refusal."""


class Engine(NamedTuple):
    """The switch's side: its name, and its clock as of one moment of ours."""

    name: bytes
    boots: int
    seconds: int
    seen_at: float
    """Monotonic seconds of this machine."""

    def seconds_now(self) -> int:
        return min(self.seconds + int(time.monotonic() - self.seen_at), COUNT_MAX)


class _Header(NamedTuple):
    """The parts of a message around its PDU; positions are those in the datagram."""

    message_id: int
    flags: int
    engine: Engine
    digest: tuple[int, int]
    salt: bytes
    payload: int
    end: int


@lru_cache(KEYS_KEPT)
def _hashed(algorithm: Oid, passphrase: str) -> Any:  # noqa: ANN401 (pysnmp has no types)
    """A passphrase's key, which is the same for all switches."""
    return SnmpUSMSecurityModel.AUTH_SERVICES[algorithm].hash_passphrase(passphrase)


class User:
    """One user at one switch."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.engine: Engine | None = None
        self._flags = self._check()
        self._digest_service = self._cipher_service = None
        if self._flags & IS_AUTHENTIC:
            self._digest_id = AUTHENTICATION[credentials.auth]
            self._digest_service = SnmpUSMSecurityModel.AUTH_SERVICES[self._digest_id]
        if self._flags & IS_PRIVATE:
            self._cipher_service = SnmpUSMSecurityModel.PRIV_SERVICES[PRIVACY[credentials.privacy]]
        self._digest_key: Any = None
        self._cipher_key: Any = None

    def _check(self) -> int:
        """The flags of this user's messages; raises SnmpError for impossible settings."""
        chosen = self._credentials
        if not 0 < len(chosen.user.encode()) <= USER_BYTES_MAX:
            raise self._refusal(f"a user's name has 1 to {USER_BYTES_MAX} bytes")
        for value, known in ((chosen.auth, AUTHENTICATION), (chosen.privacy, PRIVACY)):
            if value and value not in known:
                raise self._refusal(f"{value!r} is none of {', '.join(known)}")
        if chosen.privacy and not chosen.auth:
            raise self._refusal("privacy needs auth")
        if (chosen.auth and not chosen.auth_key) or (chosen.privacy and not chosen.privacy_key):
            raise self._refusal("a key is missing")
        return IS_AUTHENTIC * bool(chosen.auth) | IS_PRIVATE * bool(chosen.privacy)

    def who(self) -> str:
        """The asker, for messages."""
        return f"user {self._credentials.user!r}"

    def _refusal(self, detail: str) -> SnmpError:
        return SnmpError(UnreadReason.UNREADABLE, f"{self.who()}: {detail}")

    # The switch's name and clock -------------------------------------------------------------

    def forget(self) -> None:
        self.engine = None

    def write_discovery(self, message_id: int) -> bytes:
        """A question that every engine answers with its name."""
        unknown = Engine(b"", 0, 0, 0.0)
        return self._seal(get_request(message_id, []), message_id, unknown, "", IS_REPORTABLE)

    def read_discovery(self, data: bytes, wanted_id: int) -> Engine | None:
        """The engine's name and clock from its answer; None when it answers something else."""
        header = _read_header(data)
        if header.message_id != wanted_id:
            return None
        if not 0 < len(header.engine.name) <= ENGINE_ID_BYTES_MAX:
            raise BerError(f"an engine's name of {len(header.engine.name)} bytes")
        return header.engine

    def meet(self, engine: Engine) -> None:
        self.engine = engine
        name = OctetString(engine.name)
        if self._digest_service is not None:
            key = _hashed(self._digest_id, self._credentials.auth_key)
            self._digest_key = self._digest_service.localize_key(key, name)
        if self._cipher_service is not None:
            key = _hashed(self._digest_id, self._credentials.privacy_key)
            self._cipher_key = self._cipher_service.localize_key(self._digest_id, key, name)

    # Writing ---------------------------------------------------------------------------------

    def write(self, pdu: bytes, message_id: int) -> bytes:
        """The datagram to send; an engine must have been met."""
        assert self.engine is not None
        flags = self._flags | IS_REPORTABLE
        return self._seal(pdu, message_id, self.engine, self._credentials.user, flags)

    def _seal(self, pdu: bytes, message_id: int, engine: Engine, user: str, flags: int) -> bytes:
        """A PDU in its envelope, encrypted and signed as the flags require."""
        boots, seconds = engine.boots, engine.seconds_now() if user else 0
        context = self._credentials.context.encode() if user else b""
        name = write_element(OCTETS, engine.name)
        payload = write_element(SEQUENCE, name + write_element(OCTETS, context) + pdu)
        salt = b""
        if flags & IS_PRIVATE and self._cipher_service is not None:
            hidden, salted = self._cipher_service.encrypt_data(
                self._cipher_key, (boots, seconds, b""), payload
            )
            payload, salt = write_element(OCTETS, bytes(hidden)), bytes(salted)
        size = self._digest_size() if flags & IS_AUTHENTIC else 0
        security = name + write_integer(boots) + write_integer(seconds)
        security += write_element(OCTETS, user.encode()) + write_element(OCTETS, bytes(size))
        security += write_element(OCTETS, salt)
        about = write_integer(message_id) + write_integer(ANSWER_BYTES_MAX)
        about += write_element(OCTETS, bytes([flags])) + write_integer(USER_MODEL)
        head = write_integer(VERSION_3) + write_element(SEQUENCE, about)
        head += write_element(OCTETS, write_element(SEQUENCE, security))
        data = write_element(SEQUENCE, head + payload)
        if not size:
            return data
        # Behind the digest stand the salt, with its tag and length, and the payload.
        end = len(data) - len(payload) - len(salt) - 2
        return data[: end - size] + self._digest(data) + data[end:]

    def _digest_size(self) -> int:
        return int(self._digest_service.digest_length) if self._digest_service else 0

    def _digest(self, message: bytes) -> bytes:
        """The digest of a message that has zeros in its place.

        pysnmp puts it where the first zeros are, which may be another place; it is found there.
        """
        assert self._digest_service is not None
        size = self._digest_size()
        place = message.index(bytes(size))
        signed = self._digest_service.authenticate_outgoing_message(self._digest_key, message)
        return bytes(signed[place : place + size])

    # Reading ---------------------------------------------------------------------------------

    def read(self, data: bytes, wanted_id: int) -> Answer | None:
        """The answer or report; None: another request's. BerError: it cannot be believed."""
        header = _read_header(data)
        if header.message_id != wanted_id:
            return None
        level = header.flags & (IS_AUTHENTIC | IS_PRIVATE)
        if level & ~self._flags:
            raise BerError("it is of a security level that was not asked for")
        if level & IS_AUTHENTIC:
            self._authenticate(data, header)
        if level & IS_PRIVATE:
            data = self._reveal(data, header)
            scoped = expect(data, 0, len(data), SEQUENCE)
        else:
            scoped = expect(data, header.payload, header.end, SEQUENCE)
        _, position = read_octets(data, scoped.start, scoped.end)
        _, position = read_octets(data, position, scoped.end)
        answer = read_pdu(data, position, scoped.end, wanted_id)
        if answer is None:
            return None
        if answer.kind == RESPONSE and level != self._flags:
            raise BerError("it is of a lower security level than was asked for")
        if answer.kind not in (RESPONSE, REPORT):
            raise BerError(f"a PDU with the tag {answer.kind:#04x}, which is no response")
        if level & IS_AUTHENTIC:
            self._compare_clocks(header.engine, is_report=answer.kind == REPORT)
        return answer._replace(is_authentic=bool(level & IS_AUTHENTIC))

    def _authenticate(self, data: bytes, header: _Header) -> None:
        """Raises BerError unless it was signed with the user's key."""
        start, end = header.digest
        if self.engine is None or header.engine.name != self.engine.name:
            raise BerError("it is signed by another engine than was asked")
        if end - start != self._digest_size():
            raise BerError(f"a digest of {end - start} bytes")
        expected = self._digest(data[:start] + bytes(end - start) + data[end:])
        if not hmac.compare_digest(expected, data[start:end]):
            raise BerError(f"its digest is wrong for {self.who()}")

    def _compare_clocks(self, theirs: Engine, *, is_report: bool) -> None:
        """Follow the switch's clock, which was signed; refuse an answer out of the time window.

        A report is believed even when its clock stands back: its number is the random one of the
        question, so it cannot be old, and a switch that forgot its boots would else be lost.
        """
        ours = self.engine
        assert ours is not None
        if is_report or (theirs.boots, theirs.seconds) > (ours.boots, ours.seconds):
            self.engine = theirs
        elif theirs.boots < ours.boots or theirs.seconds + TIME_WINDOW_SECONDS < ours.seconds_now():
            raise BerError("it is older than the time window allows")

    def _reveal(self, data: bytes, header: _Header) -> bytes:
        assert self._cipher_service is not None
        found = expect(data, header.payload, header.end, OCTETS)
        parameters = header.engine.boots, header.engine.seconds, OctetString(header.salt)
        try:
            hidden = OctetString(data[found.start : found.end])
            return bytes(self._cipher_service.decrypt_data(self._cipher_key, parameters, hidden))
        except (PySnmpError, ValueError) as error:
            raise BerError(f"it cannot be deciphered: {error}") from error

    def explain(self, answer: Answer) -> SnmpError:
        """What a report means, for the operator who has to correct it."""
        what = report_of(answer)
        meanings = {
            WRONG_LEVEL: f"the switch does not let it ask at this level ({self._level()})",
            WRONG_TIME: "the switch's clock and ours do not come together",
            WRONG_USER: "the switch does not know this user",
            WRONG_ENGINE: "the switch goes on denying its own engine's name",
            WRONG_DIGEST: f"wrong auth_key, or not {self._credentials.auth} (wrong digest)",
            WRONG_CIPHER: f"wrong privacy_key, or not {self._credentials.privacy}"
            " (it cannot decipher us)",
        }
        return self._refusal(
            meanings.get(what) or f"refused with the report {'.'.join(map(str, what))}"
        )

    def _level(self) -> str:
        if self._flags & IS_PRIVATE:
            return "authPriv"
        return "authNoPriv" if self._flags & IS_AUTHENTIC else "noAuthNoPriv"


def report_of(answer: Answer) -> Oid:
    """The counter that a report names; empty when it names none."""
    try:
        return read_name(answer.bindings[0][0]) if answer.bindings else ()
    except BerError:
        return ()


def _read_header(data: bytes) -> _Header:
    """All of a message but its payload, with every length checked."""
    message = expect(data, 0, len(data), SEQUENCE)
    version, position = read_integer(data, message.start, message.end)
    if version != VERSION_3:
        raise BerError(f"a message of version {version}, where 3 was asked")
    about = expect(data, position, message.end, SEQUENCE)
    message_id, position = read_integer(data, about.start, about.end)
    _, position = read_integer(data, position, about.end)
    flags, position = read_octets(data, position, about.end)
    model, _ = read_integer(data, position, about.end)
    if len(flags) != 1 or model != USER_MODEL:
        raise BerError(f"{len(flags)} bytes of flags, security model {model}")
    outer = expect(data, about.end, message.end, OCTETS)
    inner = expect(data, outer.start, outer.end, SEQUENCE)
    name, position = read_octets(data, inner.start, inner.end)
    boots, position = read_integer(data, position, inner.end)
    seconds, position = read_integer(data, position, inner.end)
    _, position = read_octets(data, position, inner.end)
    digest = expect(data, position, inner.end, OCTETS)
    salt, _ = read_octets(data, digest.end, inner.end)
    if not (0 <= boots <= COUNT_MAX and 0 <= seconds <= COUNT_MAX):
        raise BerError(f"{boots} boots and {seconds} seconds")
    return _Header(
        message_id=message_id,
        flags=flags[0],
        engine=Engine(name, boots, seconds, time.monotonic()),
        digest=(digest.start, digest.end),
        salt=salt,
        payload=outer.end,
        end=message.end,
    )
