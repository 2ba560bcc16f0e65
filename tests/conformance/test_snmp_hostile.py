"""Switches that lie, hang or send nonsense: bounded, named, and no trouble for other switches.

And real agents, snmpsim and net-snmp's snmpd, for SNMPv3.
"""

import asyncio
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pysnmp.proto.api import v2c

from collector.contract.reason import UnreadReason
from collector.switches.snmp import client
from collector.switches.snmp.client import Session, open_session
from collector.switches.snmp.model import Credentials, Oid, SnmpError, Walked
from collector.switches.snmp.usm import User
from tests.doubles.snmp_hostile import (
    QUIET_SECONDS,
    Behaviour,
    Between,
    Request,
    Switch,
    Table,
    recorded,
    running,
    serve,
    target,
)
from tests.stands.ports import free_port
from tests.tools import peers

COLUMN: Oid = (1, 3, 6, 1, 2, 1, 2, 2, 1, 10)
OTHER: Oid = (1, 3, 6, 1, 2, 1, 2, 2, 1, 16)
NAME: Oid = (1, 3, 6, 1, 2, 1, 1, 5, 0)


def honest(count: int = 5) -> Table:
    """Two columns."""
    columns = (COLUMN, OTHER)
    return Table(
        [((*c, index), v2c.Counter32(index)) for c in columns for index in range(1, count + 1)]
    )


def walk(behaviour: Behaviour, *columns: Oid, rows_max: int = 50, **settings: Any) -> Walked:  # noqa: ANN401
    """What a walk brings from a switch of this behaviour."""

    async def run() -> Walked:
        async with serve(Switch(behaviour)) as port:
            session = open_session(target(port, **settings))
            try:
                return await session.walk(list(columns or (COLUMN, OTHER)), rows_max)
            finally:
                session.close()

    return asyncio.run(run())


def refused(behaviour: Behaviour, **settings: Any) -> SnmpError:  # noqa: ANN401
    """The error of a switch that cannot be asked."""
    with pytest.raises(SnmpError) as caught:
        walk(behaviour, **{"answer_seconds": QUIET_SECONDS, "retries": 1} | settings)
    return caught.value


# Walks that lie -----------------------------------------------------------------------------------


def test_a_walk_without_end_is_cut() -> None:
    def endless(request: Request) -> list[bytes]:
        reps = range(1, (request.repetitions or 0) + 1)
        heads = [(name[:10], name[10] if len(name) > 10 else 0) for name in request.names]
        return [
            request.answer(((*c, last + n), v2c.Counter32(n)) for n in reps for c, last in heads)
        ]

    walked = walk(endless)
    assert [len(rows) for rows in walked.columns.values()] == [50, 50]
    assert all("does not end" in flaw.detail for flaw in walked.flaws)
    assert len(walked.flaws) == 2


def test_a_walk_in_a_circle_is_ended() -> None:
    def circle(request: Request) -> list[bytes]:
        indexes = [index for index in (1, 2, 3) for _ in request.names]
        columns = [name[:10] for name in request.names] * 3
        pairs = zip(columns, indexes, strict=True)
        return [request.answer(((*c, index), v2c.Counter32(7)) for c, index in pairs)]

    walked = walk(circle)
    assert walked.columns == {c: {(1,): 7, (2,): 7, (3,): 7} for c in (COLUMN, OTHER)}
    assert {flaw.detail.partition(":")[0] for flaw in walked.flaws} == {
        "a row came twice",
        "it goes in a circle",
    }


def test_a_switch_that_stands_still_is_left() -> None:
    """The answer to what follows a row is that row itself, for ever."""

    def still(request: Request) -> list[bytes]:
        return [request.answer((name, v2c.Counter32(1)) for name in request.names)]

    walked = walk(still)
    assert {flaw.column for flaw in walked.flaws} == {COLUMN, OTHER}


def test_a_walk_that_ends_in_an_earlier_name_says_so() -> None:
    def back(request: Request) -> list[bytes]:
        return [request.answer(((1, 3, 6, 1, 1), v2c.Counter32(1)) for _ in request.names)]

    walked = walk(back)
    assert walked.columns == {COLUMN: {}, OTHER: {}}
    assert {flaw.detail for flaw in walked.flaws} == {"it ends in an earlier name: 1.3.6.1.1"}


def test_wrong_types_in_the_middle_lose_one_row_each() -> None:
    table = honest()
    table.rows[1] = (table.rows[1][0], v2c.NoSuchInstance())
    table.rows[3] = (table.rows[3][0], v2c.null)
    walked = walk(table)
    assert walked.columns[COLUMN] == {(1,): 1, (3,): 3, (5,): 5}
    assert walked.columns[OTHER] == {(index,): index for index in range(1, 6)}
    assert [flaw.detail for flaw in walked.flaws] == [
        "a value that is none: noSuchInstance in row 2 and 1 more"
    ]


def test_a_row_that_the_switch_cannot_tell_ends_its_column_after_the_rows_before() -> None:
    """genErr, as agents answer for a port whose driver does not answer."""
    table = honest()

    def stuck(request: Request) -> list[bytes]:
        pairs = table.pairs(request)
        for place, (name, _) in enumerate(pairs):
            if name == (*COLUMN, 4):
                return [request.answer(pairs, status=5, failed_at=place % len(request.names) + 1)]
        return [request.answer(pairs)]

    walked = walk(stuck)
    assert walked.columns[COLUMN] == {(1,): 1, (2,): 2, (3,): 3}
    assert walked.columns[OTHER] == {(index,): index for index in range(1, 6)}
    assert [(f.column, f.reason, f.detail) for f in walked.flaws] == [
        (COLUMN, UnreadReason.UNREADABLE, "the switch refuses: genErr")
    ]


def test_a_refusal_that_names_no_column_costs_only_the_column_it_is_about() -> None:
    table = honest()

    def unclear(request: Request) -> list[bytes]:
        if any(name[:10] == COLUMN for name in request.names):
            return [request.answer([], status=5)]
        return table(request)

    walked = walk(unclear)
    assert walked.columns == {COLUMN: {}, OTHER: {(index,): index for index in range(1, 6)}}
    assert [flaw.column for flaw in walked.flaws] == [COLUMN]


def test_empty_answers_end_a_walk() -> None:
    walked = walk(lambda request: [request.answer([])])
    assert {flaw.detail for flaw in walked.flaws} == {"not even one row: an empty answer"}


def test_a_walk_is_bounded_in_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "REQUESTS_PER_WALK_MAX", 5)
    table = honest(40)
    table.values_max = 1
    walked = walk(table)
    assert len(table.requests) == 5
    assert {flaw.column for flaw in walked.flaws} == {COLUMN, OTHER}


def test_a_walk_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "BYTES_PER_WALK_MAX", 10_000)
    rows = [((*COLUMN, index), v2c.OctetString(b"x" * 3000)) for index in range(100)]
    walked = walk(Table(rows, values_max=2), COLUMN, rows_max=100)
    assert len(walked.columns[COLUMN]) == 4
    assert "bytes together" in walked.flaws[0].detail


def test_a_switch_that_falls_silent_in_a_walk_keeps_what_it_has_said() -> None:
    table = honest()

    def hangs(request: Request) -> list[bytes]:
        is_late = any(len(name) > 10 for name in request.names)
        table.values_max = 4
        return [] if is_late else table(request)

    walked = walk(hangs, answer_seconds=0.5)
    assert walked.columns == {COLUMN: {(1,): 1, (2,): 2}, OTHER: {(1,): 1, (2,): 2}}
    assert {(flaw.column, flaw.reason) for flaw in walked.flaws} == {
        (COLUMN, UnreadReason.TIMEOUT),
        (OTHER, UnreadReason.TIMEOUT),
    }


# Datagrams that are no answer ---------------------------------------------------------------------


def test_a_silent_switch_is_a_timeout() -> None:
    error = refused(lambda _: [])
    assert error.reason is UnreadReason.TIMEOUT
    assert "no answer from 127.0.0.1" in error.detail


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _: b"\x30",
        lambda _: b"HTTP/1.1 400 Bad Request\r\n",
        lambda answer: answer[:-1],
        lambda answer: answer[: len(answer) // 2],
        lambda answer: bytes([answer[0], 0x80]) + answer[2:],
        lambda answer: answer.replace(b"\x02\x01\x01", b"\x02\x01\x00", 1),
        lambda answer: answer.replace(b"\xa2", b"\xa7", 1),
        lambda answer: b"\x30\x84\xff\xff\xff\xff" + answer,
        lambda _: b"\x30\x80" * 20_000,
    ],
    ids=["byte", "http", "cut", "half", "endless", "version", "trap", "giant", "nested"],
)
def test_nonsense_is_named(spoil: Callable[[bytes], bytes]) -> None:
    table = honest()
    error = refused(lambda request: map(spoil, table(request)))
    assert error.reason is UnreadReason.UNPARSEABLE
    assert "no answer" in error.detail


def test_the_answer_is_found_among_nonsense() -> None:
    table = honest()

    def noisy(request: Request) -> list[bytes]:
        wrong_number = request.answer(
            [((*COLUMN, 1), v2c.Counter32(666))], number=request.number ^ 1
        )
        return [b"nonsense", wrong_number, *table(request), wrong_number]

    walked = walk(noisy)
    assert walked.columns[COLUMN] == {(index,): index for index in range(1, 6)}
    assert walked.flaws == []


def test_answers_to_other_questions_are_no_answers() -> None:
    error = refused(lambda request: [request.answer([], number=request.number ^ 1)])
    assert error.reason is UnreadReason.TIMEOUT
    assert "answers to other questions" in error.detail


def test_a_flood_ends_the_question() -> None:
    error = refused(lambda _: [b"flood"] * 200, answer_seconds=20.0)
    assert error.reason is UnreadReason.UNPARSEABLE
    assert "flooded" in error.detail


def test_an_answer_from_another_address_is_named() -> None:
    """Many a switch answers from the interface that it sends through."""

    async def run() -> None:
        table = honest()
        elsewhere = Switch(table)
        async with serve(elsewhere, "127.0.0.2"):

            class Crooked(Switch):
                def datagram_received(self, data: bytes, addr: tuple[object, ...]) -> None:
                    elsewhere.datagram_received(data, addr)

            async with serve(Crooked(table)) as port:
                session = open_session(target(port, answer_seconds=QUIET_SECONDS))
                with pytest.raises(SnmpError, match=r"another address, 127\.0\.0\.2") as caught:
                    await session.get([NAME])
                session.close()
                assert caught.value.reason is UnreadReason.TIMEOUT

    asyncio.run(run())


@pytest.mark.parametrize("address", ["no such name", "256.1.1.1", "", "a" * 300, "a\0b"])
def test_an_address_that_is_none_is_named(address: str) -> None:
    async def run() -> None:
        session = open_session(target(1, address=address))
        with pytest.raises(SnmpError):
            await session.get([NAME])
        session.close()

    asyncio.run(run())


@pytest.mark.parametrize("port", [0, -1, 65_536, 1 << 40])
def test_a_port_that_is_none_is_named(port: int) -> None:
    error = refusal(port, Credentials())
    assert (error.reason, error.detail) == (UnreadReason.UNREADABLE, f"{port} is no port")


def test_a_session_that_is_closed_ends_its_question() -> None:
    asked = asyncio.Event()

    def hangs(_: Request) -> list[bytes]:
        asked.set()
        return []

    async def run() -> None:
        async with serve(Switch(hangs)) as port:
            session = open_session(target(port, retries=3))
            waiting = asyncio.create_task(session.get([NAME]))
            await asked.wait()
            session.close()
            with pytest.raises(SnmpError, match="closed"):
                await waiting

    asyncio.run(run())


def test_a_switch_that_refuses_us_is_unreadable() -> None:
    error = refused(lambda request: [request.answer([], status=16)])
    assert error.reason is UnreadReason.UNREADABLE


def test_others_are_answered_while_one_hangs() -> None:
    asked = asyncio.Event()

    def hangs(_: Request) -> list[bytes]:
        asked.set()
        return []

    async def run() -> None:
        async with serve(Switch(hangs)) as deaf, serve(Switch(honest())) as good:
            sessions = [open_session(target(port)) for port in (deaf, good)]
            waiting = asyncio.create_task(sessions[0].walk([COLUMN], 10))
            await asked.wait()
            assert len((await sessions[1].walk([COLUMN], 10)).columns[COLUMN]) == 5
            assert not waiting.done()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            for session in sessions:
                session.close()

    asyncio.run(run())


# SNMPv3 at snmpsim --------------------------------------------------------------------------------

RECORDING = "1.3.6.1.2.1.1.5.0|4|leaf\n" + "".join(
    f"1.3.6.1.2.1.2.2.1.10.{index}|65|{index}\n" for index in range(1, 30)
)
KEYS = {"auth_key": "authentication", "privacy_key": "encryption"}
ALGORITHMS = [
    ("", ""),
    ("md5", ""),
    ("md5", "des"),
    ("sha", "3des"),
    ("sha", "aes"),
    ("sha224", "aes192"),
    ("sha", "aes192c"),
    ("sha256", "aes256"),
    ("sha", "aes256c"),
    ("sha384", "aes"),
    ("sha512", "aes256"),
]
SNMPSIM_NAMES = {
    "": "NONE",
    "aes192": "AES192BLMT",
    "aes256": "AES256BLMT",
    "aes192c": "AES192",
    "aes256c": "AES256",
}


def user(auth: str, privacy: str, **others: str) -> Credentials:
    keys = {"auth_key": KEYS["auth_key"] if auth else "", "privacy_key": KEYS["privacy_key"]}
    settings = {"user": f"u{auth}-{privacy}", "context": "public", "auth": auth, "privacy": privacy}
    return Credentials(version="3", **settings | keys | others)


@pytest.fixture(scope="module")
def snmpsim() -> Iterator[int]:
    """One agent with a user for each pair of algorithms."""
    arguments = ["--v3-engine-id=auto"]
    for auth, privacy in ALGORITHMS:
        arguments += [f"--v3-user=u{auth}-{privacy}"]
        if auth:
            arguments += [f"--v3-auth-key={KEYS['auth_key']}"]
            arguments += [f"--v3-auth-proto={SNMPSIM_NAMES.get(auth, auth.upper())}"]
        if privacy:
            arguments += [f"--v3-priv-key={KEYS['privacy_key']}"]
            arguments += [f"--v3-priv-proto={SNMPSIM_NAMES.get(privacy, privacy.upper())}"]
    with recorded({"public": RECORDING}, arguments) as port:
        yield port


async def read_all(session: Session) -> int:
    """How many rows there are; the session is closed."""
    try:
        assert await session.get([NAME]) == [b"leaf"]
        walked = await session.walk([COLUMN], 100)
        assert walked.flaws == []
        return len(walked.columns[COLUMN])
    finally:
        session.close()


def refusal(port: int, credentials: Credentials) -> SnmpError:
    """Why a user is refused."""
    session = open_session(target(port, credentials, answer_seconds=1.0, retries=1))
    with pytest.raises(SnmpError) as caught:
        asyncio.run(read_all(session))
    return caught.value


@pytest.mark.parametrize(("auth", "privacy"), ALGORITHMS)
def test_every_algorithm_reads_a_table(snmpsim: int, auth: str, privacy: str) -> None:
    session = open_session(target(snmpsim, user(auth, privacy)))
    assert asyncio.run(read_all(session)) == 29


def test_a_wrong_key_names_the_user_and_what_is_wrong(snmpsim: int) -> None:
    error = refusal(snmpsim, user("sha", "aes", auth_key="wrong key"))
    assert error.reason is UnreadReason.UNREADABLE
    assert "'usha-aes'" in error.detail
    assert "wrong auth_key" in error.detail


def test_a_wrong_privacy_key_is_named(snmpsim: int) -> None:
    error = refusal(snmpsim, user("sha", "aes", privacy_key="wrong key"))
    assert error.reason is UnreadReason.UNREADABLE
    assert "wrong privacy_key" in error.detail


def test_an_unknown_user_is_named(snmpsim: int) -> None:
    error = refusal(snmpsim, user("sha", "aes", user="nobody"))
    assert (error.reason, "'nobody'" in error.detail) == (UnreadReason.UNREADABLE, True)


@pytest.mark.parametrize(
    "settings",
    [
        {"user": ""},
        {"user": "x" * 33},
        {"auth": "crc32"},
        {"privacy": "rot13"},
        {"auth": "", "auth_key": ""},
        {"auth_key": ""},
        {"version": "1"},
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, str]) -> None:
    given = {"version": "3", "user": "walker", "auth": "sha", "privacy": "aes", **KEYS} | settings
    error = refusal(1, Credentials(**given))
    assert error.reason is UnreadReason.UNREADABLE


async def through(
    port: int, change: Callable[[bytes], list[bytes]], credentials: Credentials
) -> int:
    """The number of rows read through a relay between us and the switch."""
    async with serve(Between(port, change)) as relay:
        return await read_all(open_session(target(relay, credentials, answer_seconds=0.5)))


def test_answers_that_were_changed_on_the_way_are_not_believed(snmpsim: int) -> None:
    answers = 0

    def flip(data: bytes) -> list[bytes]:
        nonlocal answers
        answers += 1
        return [data if answers == 1 else data[:-1] + bytes([data[-1] ^ 1])]

    with pytest.raises(SnmpError, match="digest is wrong") as caught:
        asyncio.run(through(snmpsim, flip, user("sha", "aes")))
    assert caught.value.reason is UnreadReason.UNPARSEABLE


def test_old_answers_sent_again_are_ignored(snmpsim: int) -> None:
    said: list[bytes] = []

    def replay(data: bytes) -> list[bytes]:
        said.append(data)
        return [*said[:-1], data]

    assert asyncio.run(through(snmpsim, replay, user("sha256", "aes256"))) == 29


def test_an_unsigned_answer_to_a_signed_question_is_not_believed(snmpsim: int) -> None:
    """The flags say that nothing is signed, and the digest is ignored: a forger's way in."""

    def unsign(data: bytes) -> list[bytes]:
        return [data.replace(b"\x04\x01\x01", b"\x04\x01\x00", 1)]

    with pytest.raises(SnmpError, match="lower security level"):
        asyncio.run(through(snmpsim, unsign, user("md5", "")))


def test_a_clock_that_went_wrong_is_set_again(snmpsim: int) -> None:
    async def run() -> int:
        session = open_session(target(snmpsim, user("sha", "aes")))
        await session.get([NAME])
        envelope = session._envelope
        assert isinstance(envelope, User)
        assert envelope.engine is not None
        envelope.engine = envelope.engine._replace(seconds=envelope.engine.seconds + 100_000)
        return await read_all(session)

    assert asyncio.run(run()) == 29


def test_a_switch_that_was_replaced_is_met_anew(snmpsim: int) -> None:
    async def run() -> int:
        session = open_session(target(snmpsim, user("sha", "aes")))
        await session.get([NAME])
        envelope = session._envelope
        assert isinstance(envelope, User)
        assert envelope.engine is not None
        envelope.meet(envelope.engine._replace(name=b"another engine"))
        return await read_all(session)

    assert asyncio.run(run()) == 29


# net-snmp's own agent -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def snmpd() -> Iterator[int]:
    """An agent of another make, with a community and a user."""
    program = peers.find("snmpd")
    assert program is not None
    with tempfile.TemporaryDirectory(prefix="fs-snmpd-") as name:
        folder = Path(name)
        (folder / "snmpd.conf").write_text(
            "rocommunity public 127.0.0.1\n"
            f"createUser walker SHA {KEYS['auth_key']} AES {KEYS['privacy_key']}\n"
            "rouser walker authPriv\n"
            # More zeros than a digest has: where that stands must not be guessed by them.
            f"exactEngineID 0x80004fb805{'00' * 14}77\n"
        )
        port = free_port(socket.SOCK_DGRAM)
        command = [str(program), "-f", "-Lo", "-C", "-c", str(folder / "snmpd.conf"), "-I", "-smux"]
        command += ["-p", str(folder / "pid"), f"udp:127.0.0.1:{port}"]
        environment = {"SNMP_PERSISTENT_DIR": str(folder), "MIBS": ""}
        with running(command, folder / "log", port, "public", environment):
            yield port


NET_SNMP_USER = Credentials(version="3", user="walker", auth="sha", privacy="aes", **KEYS)


@pytest.mark.peer("snmpd")
@pytest.mark.parametrize("credentials", [Credentials(), NET_SNMP_USER], ids=["2c", "3"])
def test_net_snmp_tells_this_machines_interfaces(snmpd: int, credentials: Credentials) -> None:
    descriptions: Oid = (1, 3, 6, 1, 2, 1, 2, 2, 1, 2)

    async def run() -> Walked:
        session = open_session(target(snmpd, credentials))
        walked = await session.walk([descriptions, (1, 3, 6, 1, 4, 1, 9, 9, 813)], 10_000)
        session.close()
        return walked

    walked = asyncio.run(run())
    assert walked.flaws == []
    interfaces = {name.encode() for name in os.listdir("/sys/class/net")}  # noqa: PTH208
    assert b"lo" in set(walked.columns[descriptions].values()) & interfaces


@pytest.mark.peer("snmpd")
@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"auth_key": "wrong key"}, "wrong auth_key"),
        ({"privacy_key": "wrong key"}, "wrong privacy_key"),
        ({"auth": "sha256"}, "not sha256"),
        ({"user": "stranger"}, "does not know this user"),
        ({"privacy": "", "privacy_key": ""}, "authorizationError"),
    ],
)
def test_net_snmp_refuses_and_we_say_why(snmpd: int, change: dict[str, str], what: str) -> None:
    given = {"version": "3", "user": "walker", "auth": "sha", "privacy": "aes", **KEYS} | change
    error = refusal(snmpd, Credentials(**given))
    assert error.reason is UnreadReason.UNREADABLE
    assert what in error.detail
