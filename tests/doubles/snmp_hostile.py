"""Switches for tests: one that does whatever a test makes it do, and recordings behind snmpsim.

`Switch` is a UDP responder of our own on the test's event loop. A test gives it a behaviour: what
to send back to a request, which may be nothing, too much, or no SNMP. `Between` stands between a
client and a real agent and changes what passes. `recorded` serves recordings by the real snmpsim.
"""

import asyncio
import grp
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyasn1.codec.ber import decoder, encoder
from pysnmp.proto.api import v2c

from collector.switches.snmp.model import Credentials, Oid, Target
from tests.stands.ports import free_port

READY_SECONDS = 120
EARLY_IMPORTS = """import codecs
import contextlib
import importlib

for name in ("sqlite3", "gnu", "ndbm", "dumb"):
    with contextlib.suppress(ImportError):
        importlib.import_module(f"dbm.{name}")
codecs.lookup("Latin-1")


def init(**context): pass
def variate(oid, tag, value, **context): return oid, tag, context["errorStatus"]
def shutdown(**context): pass
"""
"""A module that snmpsim loads before it becomes another user, who may not enter the folders of a
Python that root has for itself."""
UNPRIVILEGED_USER = "nobody"
RESPONDER = "snmpsim-command-responder"
QUIET_SECONDS = 0.05
"""For one answer, where a test waits for the end of a client's patience."""
PATIENT_SECONDS = 20.0
"""Where an answer must come, however busy the machine is."""

Row = tuple[Oid, Any]
Behaviour = Callable[["Request"], Iterable[bytes]]


@dataclass(frozen=True)
class Request:
    """What a client asked."""

    number: int
    names: tuple[Oid, ...]
    repetitions: int | None
    """None for a GET."""

    def answer(
        self, rows: Iterable[Row], *, status: int = 0, failed_at: int = 0, number: int | None = None
    ) -> bytes:
        """A well-formed response with any content."""
        pdu = v2c.ResponsePDU()
        v2c.apiPDU.set_defaults(pdu)
        v2c.apiPDU.set_request_id(pdu, self.number if number is None else number)
        v2c.apiPDU.set_error_status(pdu, status)
        v2c.apiPDU.set_error_index(pdu, failed_at)
        pairs = [(v2c.ObjectIdentifier(name), value) for name, value in rows]
        v2c.apiPDU.set_varbinds(pdu, pairs)
        message = v2c.Message()
        v2c.apiMessage.set_defaults(message)
        v2c.apiMessage.set_community(message, "public")
        v2c.apiMessage.set_pdu(message, pdu)
        return bytes(encoder.encode(message))


def read_request(data: bytes) -> Request:
    """A request of SNMPv2c, by pysnmp."""
    message, _ = decoder.decode(data, asn1Spec=v2c.Message())
    pdu = v2c.apiMessage.get_pdu(message)
    is_bulk = pdu.isSameTypeWith(v2c.GetBulkRequestPDU())
    api = v2c.apiBulkPDU if is_bulk else v2c.apiPDU
    return Request(
        number=int(api.get_request_id(pdu)),
        names=tuple(tuple(name) for name, _ in api.get_varbinds(pdu)),
        repetitions=int(api.get_max_repetitions(pdu)) if is_bulk else None,
    )


@dataclass
class Table:
    """An honest switch: rows in order, answered as SNMP says."""

    rows: list[Row]
    values_max: int = 1000
    """In one answer; the rest of it is left out."""
    requests: list[Request] = field(default_factory=list)

    def __call__(self, request: Request) -> list[bytes]:
        self.requests.append(request)
        return [request.answer(self.pairs(request))]

    def pairs(self, request: Request) -> list[Row]:
        """The rows that answer a request."""
        self.rows.sort(key=lambda row: row[0])
        names = [name for name, _ in self.rows]
        if request.repetitions is None:
            known = dict(self.rows)
            return [(name, known.get(name, v2c.NoSuchInstance())) for name in request.names]
        answered: list[Row] = []
        heads = list(request.names)
        for _ in range(request.repetitions):
            for number, head in enumerate(heads):
                place = bisect_right(names, head)
                if place < len(names):
                    answered.append(self.rows[place])
                    heads[number] = names[place]
                else:
                    answered.append((head, v2c.EndOfMibView()))
        return answered[: self.values_max]


class Switch(asyncio.DatagramProtocol):
    """A UDP socket with a behaviour."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        for answer in self.behaviour(read_request(data)):
            self.transport.sendto(answer, addr)


class Between(asyncio.DatagramProtocol):
    """A relay to a real agent that may change what comes back; for one client."""

    def __init__(self, agent_port: int, change: Callable[[bytes], Iterable[bytes]]) -> None:
        self.agent = ("127.0.0.1", agent_port)
        self.change = change
        self.client: Any = None
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        if addr == self.agent:
            for changed in self.change(data):
                self.transport.sendto(changed, self.client)
        else:
            self.client = addr
            self.transport.sendto(data, self.agent)


@asynccontextmanager
async def serve(
    protocol: asyncio.DatagramProtocol, address: str = "127.0.0.1"
) -> AsyncIterator[int]:
    """The port of a switch that answers as long as the context lasts."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: protocol, local_addr=(address, 0))
    try:
        yield transport.get_extra_info("sockname")[1]
    finally:
        transport.close()


def target(port: int, credentials: Credentials | None = None, **others: Any) -> Target:  # noqa: ANN401
    """A switch on this machine that is waited for as long as it takes."""
    settings: dict[str, Any] = {
        "address": "127.0.0.1",
        "answer_seconds": PATIENT_SECONDS,
        "retries": 0,
    } | others
    return Target(name="leaf", port=port, credentials=credentials or Credentials(), **settings)


# Recordings, and real agents ------------------------------------------------------------------


@contextmanager
def recorded(recordings: dict[str, str], arguments: Iterable[str] = ()) -> Iterator[int]:
    """The port of snmpsim, which serves these recordings by their names (communities)."""
    # Not pytest's tmp_path: as root, its parents are closed to the user that snmpsim becomes.
    folder = Path(tempfile.mkdtemp(prefix="fs-snmp-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        for name in ("data", "cache", "variation"):
            (folder / name).mkdir()
        (folder / "variation/early.py").write_text(EARLY_IMPORTS)
        for name, text in recordings.items():
            path = folder / "data" / f"{name}.snmprec"
            path.write_text(text)
            os.utime(path, (0, 0))
        port = free_port(socket.SOCK_DGRAM)
        command = [
            str(Path(sys.executable).with_name(RESPONDER)),
            *arguments,
            f"--data-dir={folder / 'data'}",
            f"--cache-dir={folder / 'cache'}",
            f"--variation-modules-dir={folder / 'variation'}",
            f"--agent-udpv4-endpoint=127.0.0.1:{port}",
            "--log-level=error",
        ]
        if os.geteuid() == 0:
            account = pwd.getpwnam(UNPRIVILEGED_USER)
            os.chown(folder / "cache", account.pw_uid, account.pw_gid)
            command += [f"--process-user={UNPRIVILEGED_USER}"]
            command += [f"--process-group={grp.getgrgid(account.pw_gid).gr_name}"]
        with running(command, folder / "log", port, next(iter(recordings))):
            yield port
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running(
    command: list[str],
    log: Path,
    port: int,
    community: str,
    environment: dict[str, str] | None = None,
) -> Iterator[None]:
    """An agent that answers to this community, until the end of the context."""
    with (
        log.open("wb") as out,
        subprocess.Popen(
            command, stdout=out, stderr=out, env=os.environ | (environment or {})
        ) as process,
    ):
        try:
            _wait_until_ready(process, port, community, log)
            yield
        finally:
            process.terminate()
            process.wait(READY_SECONDS)


def _wait_until_ready(
    process: subprocess.Popen[bytes], port: int, community: str, log: Path
) -> None:
    """Return once the agent answers a plain GET; asked without the client that is tested."""
    pdu = v2c.GetRequestPDU()
    v2c.apiPDU.set_defaults(pdu)
    v2c.apiPDU.set_varbinds(pdu, [(v2c.ObjectIdentifier("1.3.6.1.2.1.1.5.0"), v2c.null)])
    message = v2c.Message()
    v2c.apiMessage.set_defaults(message)
    v2c.apiMessage.set_community(message, community)
    v2c.apiMessage.set_pdu(message, pdu)
    question = encoder.encode(message)
    deadline = time.monotonic() + READY_SECONDS
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.settimeout(0.1)
        while process.poll() is None and time.monotonic() < deadline:
            try:
                probe.sendto(question, ("127.0.0.1", port))
                probe.recv(65536)
            except (TimeoutError, ConnectionRefusedError):
                continue
            return
    raise RuntimeError(f"{process.args!r} did not start:\n{log.read_text()[-2000:]}")
