"""Two hosts that are network namespaces of this machine, and a veth pair between them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence

ADDRESSES = ("10.213.79.1", "10.213.79.2")


class Joined:
    """Two namespaces, with one of ADDRESSES each, joined by one veth pair."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self.middle = ""
        self.addresses = list(ADDRESSES)
        self.interfaces = [f"v{place}" for place in range(len(names))]

    def inside(self, place: int) -> list[str]:
        """The words that run a program in this namespace."""
        return ["ip", "netns", "exec", self.names[place]]


def run(words: str) -> None:
    subprocess.run(words.split(), check=True, capture_output=True)


def why_not() -> str:
    """Why this machine cannot do it; empty if it can."""
    if os.geteuid():
        return "needs root, to make network namespaces"
    if shutil.which("ip") is None:
        return "needs ip (iproute2)"
    try:
        with joined():
            return ""
    except subprocess.CalledProcessError as error:
        return f"cannot make joined network namespaces: {error.stderr.decode()[:200]}"


@contextlib.contextmanager
def joined(*, middle: bool = False) -> Iterator[Joined]:
    """Two namespaces that go when the block ends; the caller ends its programs in them before.

    ``middle``: a third one between them, whose interfaces `m0` and `m1` nothing connects.
    """
    made = Joined([f"fabricscope-{os.getpid()}-{side}" for side in "ab"])
    made.middle = f"fabricscope-{os.getpid()}-m" if middle else ""
    one, other = made.names
    everyone = [*made.names, *([made.middle] if middle else [])]
    try:
        for name in everyone:
            run(f"ip netns add {name}")
            run(f"ip -n {name} link set lo up")
        if middle:
            for place, name in enumerate(made.names):
                pair = f"v{place} netns {name} type veth peer name m{place} netns {made.middle}"
                run(f"ip link add {pair}")
                run(f"ip -n {made.middle} link set m{place} up")
        else:
            run(f"ip link add v0 netns {one} type veth peer name v1 netns {other}")
        for place, name in enumerate(made.names):
            device, address = made.interfaces[place], made.addresses[place]
            # IPv6 speaks by itself for some seconds on a new link, and tests count what they send.
            run(f"ip -n {name} link set {device} addrgenmode none")
            run(f"ip -n {name} addr add {address}/24 dev {device}")
            run(f"ip -n {name} link set {device} up")
        yield made
    finally:
        for name in everyone:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
