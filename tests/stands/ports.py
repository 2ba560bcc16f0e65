"""Ports of the loopback interface for what tests start; none is given out twice.

Between the moment at which a port is found free and the one at which a program takes it, seconds
may pass, and tests run side by side. So these ports are below those that the kernel gives to a
program that binds port 0 (32768 and up), and every process that runs tests has its own.
"""

import contextlib
import itertools
import os
import random
import re
import socket

PORTS = range(20_000, 32_000)
PROCESSES = 16
"""That have their own ports; with more of them, two share."""


def own_ports() -> list[int]:
    """This process' ports, from anywhere on: two runs on one machine do not begin alike."""
    worker = re.search(r"\d+", os.environ.get("PYTEST_XDIST_WORKER", ""))
    number = int(worker[0]) if worker else 0
    own = PORTS[number % PROCESSES :: PROCESSES]
    first = random.randrange(len(own))
    return [*own[first:], *own[:first]]


_CANDIDATES = itertools.cycle(own_ports())


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """A TCP port (UDP: `socket.SOCK_DGRAM`) that no process has now, and no other test gets."""
    for port in itertools.islice(_CANDIDATES, len(PORTS) // PROCESSES):
        with (
            socket.socket(socket.AF_INET, kind) as probe,
            contextlib.suppress(OSError),
        ):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no port of {PORTS} is free on 127.0.0.1")
