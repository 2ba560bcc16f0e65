"""A service and agents in network namespaces of their own, joined by a cable that can be cut.

The service listens on its end of the cable, so it wants tokens. Tests, which are in neither
namespace and may reach loopback only, ask it through a Unix socket: `python -m tests.chaos.network
SOCKET HOST PORT` passes bytes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.stands.namespaces import ADDRESSES, Joined, joined, run
from tests.stands.ports import free_port
from tests.stands.service import ServiceProcess

AGENTS, SERVICE = ADDRESSES
READY = b"ready\n"


class Cable:
    """Two namespaces and the veth pair between them."""

    def __init__(self, pair: Joined) -> None:
        self._agents, self._service = pair.names
        self._end = pair.interfaces[0]
        self.agents_inside, self.service_inside = pair.inside(0), pair.inside(1)

    def cut(self) -> None:
        """The link goes down: nothing passes, and the agents' kernel knows."""
        run(f"ip -n {self._agents} link set {self._end} down")

    def mend(self) -> None:
        run(f"ip -n {self._agents} link set {self._end} up")

    def lose_answers(self) -> None:
        """Half open: what agents send arrives, and what the service answers is lost."""
        run(f"ip -n {self._service} route add blackhole {AGENTS}/32")

    def carry_answers(self) -> None:
        run(f"ip -n {self._service} route del blackhole {AGENTS}/32")


@contextlib.contextmanager
def cable() -> Iterator[Cable]:
    with joined() as pair:
        yield Cable(pair)


class ServiceOnACable(ServiceProcess):
    """A service that listens at SERVICE; tests ask it through a Unix socket."""

    def __init__(
        self, data: Path, *words: str, inside: list[str], socket: Path, token: str
    ) -> None:
        port = free_port()
        listen = ("--listen", f"{SERVICE}:{port}")  # the later flag wins
        super().__init__(data, *words, *listen, port=port, inside=inside)
        self.client.close()
        self.client = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(socket)),
            base_url=f"http://{SERVICE}:{port}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
        )


# The way for tests -------------------------------------------------------------------------------


@contextlib.contextmanager
def passed_on(inside: list[str], socket: Path, port: int) -> Iterator[None]:
    """A Unix socket that leads to the service."""
    words = [sys.executable, "-m", "tests.chaos.network", str(socket), SERVICE, str(port)]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen([*inside, *words], cwd=root, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == READY, "nothing leads to the service"
            yield
        finally:
            process.kill()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    writer.close()


async def serve(path: str, host: str, port: int) -> None:
    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    server = await asyncio.start_unix_server(connect, path)
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
