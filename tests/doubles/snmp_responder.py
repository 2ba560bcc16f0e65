"""A real SNMP agent for simulated switches: snmpsim in a process of its own, and a client for it.

The client is pysnmp, which is also what walks real switches.
"""

import asyncio
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pysnmp.hlapi.v1arch.asyncio import (
    CommunityData,
    SnmpDispatcher,
    UdpTransportTarget,
    bulk_cmd,
    get_cmd,
)
from pysnmp.proto.rfc1902 import Null, ObjectName

from simulator.interfaces.snmp import Switches, responder_command
from simulator.interfaces.switch_tables import Flavour
from simulator.snapshot import Snapshot
from tests.stands.ports import free_port

READY_SECONDS = 120
ANSWER_SECONDS = 10
POLL_SECONDS = 0.1
ROWS_PER_ANSWER = 40
SYSTEM_NAME = "1.3.6.1.2.1.1.5.0"


class NoAnswerError(Exception):
    """The agent did not answer, or with an error."""


@dataclass
class Agent:
    """A running responder, and the switches that it speaks for."""

    port: int
    switches: Switches

    def get(self, community: str, *oids: str, timeout_s: float = ANSWER_SECONDS) -> list[Any]:
        """The values of these OIDs, as Python's int or bytes."""
        return asyncio.run(_get(self.port, community, oids, timeout_s))

    def walk(self, community: str, oid: str) -> dict[str, Any]:
        """All below an OID, by the part of the name that follows it."""
        return asyncio.run(_walk(self.port, community, oid))


@contextmanager
def agent(snapshot: Snapshot, flavour: Flavour) -> Iterator[Agent]:
    """All switches of a snapshot behind one port on the loopback interface."""
    # Not pytest's tmp_path: as root, its parents are closed to the user that snmpsim becomes.
    folder = Path(tempfile.mkdtemp(prefix="fs-snmp-", dir="/tmp"))
    folder.chmod(0o755)
    switches = Switches(folder, snapshot.topology, flavour)
    try:
        switches.start(snapshot)
        port = free_port(socket.SOCK_DGRAM)
        with (
            (folder / "log").open("wb") as log,
            subprocess.Popen(responder_command(folder, port), stdout=log, stderr=log) as process,
        ):
            try:
                running = Agent(port, switches)
                _wait_until_ready(
                    running, process, snapshot.topology.switches[0].name, folder / "log"
                )
                yield running
            finally:
                process.terminate()
                process.wait(READY_SECONDS)
    finally:
        switches.close()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_until_ready(
    running: Agent, process: subprocess.Popen[bytes], community: str, log: Path
) -> None:
    """Return once the agent answers."""
    deadline = time.monotonic() + READY_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            running.get(community, SYSTEM_NAME, timeout_s=POLL_SECONDS)
        except NoAnswerError:
            continue
        return
    raise NoAnswerError(f"snmpsim did not start:\n{log.read_text()[-2000:]}")


@asynccontextmanager
async def _dispatcher() -> AsyncIterator[Any]:
    """A client that is closed again; left open, its socket is a warning, and so an error."""
    dispatcher = SnmpDispatcher()
    try:
        yield dispatcher
    finally:
        dispatcher.transport_dispatcher.close_dispatcher()


async def _target(port: int, timeout_s: float) -> Any:  # noqa: ANN401 (pysnmp ships no types)
    return await UdpTransportTarget.create(("127.0.0.1", port), timeout=timeout_s, retries=0)


async def _get(port: int, community: str, oids: tuple[str, ...], timeout_s: float) -> list[Any]:
    async with _dispatcher() as dispatcher:
        target = await _target(port, timeout_s)
        names = [(ObjectName(oid), Null("")) for oid in oids]
        # Without MIBs: looking up one name builds pysmi's parser, which takes more than a second.
        failure, status, _, pairs = await get_cmd(
            dispatcher, CommunityData(community), target, *names, lookupMib=False
        )
        if failure or status:
            raise NoAnswerError(f"{community} {oids}: {failure or status}")
        return [_plain(value) for _, value in pairs]


async def _walk(port: int, community: str, oid: str) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    asked = (0, ROWS_PER_ANSWER)
    name, below = oid, f"{oid}."
    async with _dispatcher() as dispatcher:
        target = await _target(port, ANSWER_SECONDS)
        while True:
            pair = (ObjectName(name), Null(""))
            failure, status, _, pairs = await bulk_cmd(
                dispatcher, CommunityData(community), target, *asked, pair, lookupMib=False
            )
            if failure or status:
                raise NoAnswerError(f"{community} {oid}: {failure or status}")
            for found, value in pairs:
                name = str(found)
                if not name.startswith(below) or type(value).__name__ == "EndOfMibView":
                    return rows
                rows[name.removeprefix(below)] = _plain(value)


def _plain(value: Any) -> Any:  # noqa: ANN401 (SNMP's types are many, Python's are few)
    """An SNMP value as Python's own; names (OIDs) as text."""
    kind = type(value).__name__
    if kind == "OctetString":
        return bytes(value)
    return str(value) if "Object" in kind else int(value)
