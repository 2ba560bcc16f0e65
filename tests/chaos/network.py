"""A service and agents in network namespaces of their own, joined by a cable that can be cut.

The service listens on its end of the cable, so it wants tokens. Tests, which are in neither
namespace and may reach loopback only, ask it through a Unix socket: `python -m tests.chaos.network
SOCKET HOST PORT` passes bytes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

AGENTS, SERVICE = "10.213.78.1", "10.213.78.2"
READY = b"ready\n"


def run(words: str) -> None:
    subprocess.run(words.split(), check=True, capture_output=True)


class Cable:
    """Two namespaces and the veth pair between them."""

    def __init__(self, agents: str, service: str) -> None:
        self._agents, self._service = agents, service
        self.agents_inside = ["ip", "netns", "exec", agents]
        self.service_inside = ["ip", "netns", "exec", service]

    def cut(self) -> None:
        """The link goes down: nothing passes, and the agents' kernel knows."""
        run(f"ip -n {self._agents} link set c0 down")

    def mend(self) -> None:
        run(f"ip -n {self._agents} link set c0 up")

    def lose_answers(self) -> None:
        """Half open: what agents send arrives, and what the service answers is lost."""
        run(f"ip -n {self._service} route add blackhole {AGENTS}/32")

    def carry_answers(self) -> None:
        run(f"ip -n {self._service} route del blackhole {AGENTS}/32")


def why_not() -> str:
    """Why this machine cannot do it; empty if it can."""
    if os.geteuid():
        return "needs root, to make network namespaces"
    if shutil.which("ip") is None:
        return "needs ip (iproute2)"
    try:
        with cable():
            return ""
    except subprocess.CalledProcessError as error:
        return f"cannot make joined network namespaces: {error.stderr.decode()[:200]}"


@contextlib.contextmanager
def cable() -> Iterator[Cable]:
    agents, service = (f"fabricscope-chaos-{os.getpid()}-{side}" for side in "as")
    try:
        for name in (agents, service):
            run(f"ip netns add {name}")
            run(f"ip -n {name} link set lo up")
        run(f"ip link add c0 netns {agents} type veth peer name c1 netns {service}")
        for name, device, address in ((agents, "c0", AGENTS), (service, "c1", SERVICE)):
            run(f"ip -n {name} addr add {address}/30 dev {device}")
            run(f"ip -n {name} link set {device} up")
        yield Cable(agents, service)
    finally:
        for name in (agents, service):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


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
