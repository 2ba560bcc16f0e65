"""Hosts at one leaf: network namespaces with a rail and a management interface, and two bridges.

Each host's rail (`r0`) hangs on the bridge `rail`, its management interface (`m0`) on `manage`.
Both bridges are in the namespace of the leaf, which has the address LEAF of the management network.
The cable of one host's rail goes through a namespace of its own. A bridge joins it there, until it
is told to lose: then a process (`tests.stands.lossy_wire`) copies frames, because not every kernel
has netem.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.stands.namespaces import ADDRESSES, run

ROOT = Path(__file__).resolve().parents[2]
LEAF = ADDRESSES[1]
BESIDE_FRAME_BYTES = 24
"""Preamble, check sum and gap, which a wire carries and a kernel does not count."""


class Rack:
    """The namespaces, and the wire of the host whose cable can lose."""

    def __init__(self, hosts: int, wired: int) -> None:
        own = f"fabricscope-{os.getpid()}"
        self.hosts = [f"{own}-h{place}" for place in range(hosts)]
        self.leaf, self.middle, self.wired = f"{own}-leaf", f"{own}-wire", wired
        self.rails = [f"10.213.80.{10 + place}" for place in range(hosts)]
        self._wire: subprocess.Popen[bytes] | None = None

    def inside(self, name: str) -> list[str]:
        """The words that run a program in a namespace."""
        return ["ip", "netns", "exec", name]

    def lose(self, every: int) -> None:
        """From now on, of the datagrams on the wired host's cable every so manieth is lost."""
        run(f"ip -n {self.middle} link del wire")
        words = [sys.executable, "-m", "tests.stands.lossy_wire", "w0", "w1", "", str(every)]
        self._wire = subprocess.Popen(
            [*self.inside(self.middle), *words], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert self._wire.stdout is not None
        assert self._wire.stdout.readline() == b"ready\n"

    def end(self) -> None:
        if self._wire is not None:
            assert self._wire.stdout is not None
            self._wire.stdout.close()
            self._wire.kill()
            self._wire.wait(20)

    def counted(self, place: int) -> Counted:
        """What the kernel has counted at a host's rail."""
        return counted(self.hosts[place], "r0")


class Counted(NamedTuple):
    """Frames and their bytes, both directions together."""

    frames: int
    bytes: int

    def since(self, before: Counted) -> Counted:
        return Counted(self.frames - before.frames, self.bytes - before.bytes)


def counted(namespace: str, interface: str) -> Counted:
    shown = ["ip", "-n", namespace, "-s", "-j", "link", "show", interface]
    (found,) = json.loads(subprocess.check_output(shown))
    ways = [found["stats64"][way] for way in ("rx", "tx")]
    return Counted(sum(each["packets"] for each in ways), sum(each["bytes"] for each in ways))


@contextlib.contextmanager
def rack(hosts: int, wired: int) -> Iterator[Rack]:
    """They go when the block ends; the caller ends its programs in them before."""
    made = Rack(hosts, wired)
    everyone = [*made.hosts, made.leaf, made.middle]
    try:
        for name in everyone:
            run(f"ip netns add {name}")
            run(f"ip -n {name} link set lo up")
        for name, bridge in ((made.leaf, "rail"), (made.leaf, "manage"), (made.middle, "wire")):
            run(f"ip -n {name} link add {bridge} type bridge")
            run(f"ip -n {name} link set {bridge} up")
        run(f"ip -n {made.leaf} addr add {LEAF}/24 dev manage")
        for place, name in enumerate(made.hosts):
            join(made, f"r0 netns {name}", f"rail{place}", "rail", is_wired=place == wired)
            join(made, f"m0 netns {name}", f"manage{place}", "manage")
            for device, address in (("r0", made.rails[place]), ("m0", f"10.213.79.{10 + place}")):
                run(f"ip -n {name} addr add {address}/24 dev {device}")
                run(f"ip -n {name} link set {device} up")
        yield made
    finally:
        made.end()
        for name in everyone:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def join(made: Rack, end: str, port: str, bridge: str, *, is_wired: bool = False) -> None:
    """A veth pair from an interface of a host to a port of a bridge, or over the wire."""
    if is_wired:
        run(f"ip link add {end} type veth peer name w0 netns {made.middle}")
        run(f"ip -n {made.middle} link set w0 master wire up")
        end = f"w1 netns {made.middle}"
    run(f"ip link add {end} type veth peer name {port} netns {made.leaf}")
    run(f"ip -n {made.leaf} link set {port} master {bridge} up")
    if is_wired:
        run(f"ip -n {made.middle} link set w1 master wire up")
