"""Hosts that are network namespaces: each with a NIC of its own (a veth pair) on one bridge.

Needs Linux, root and iproute2. For `check.py`, and for the recordings of `tests/tools/gpu_ranks`.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

NETWORK = "10.77.0"
BRIDGE = "fsbridge"
BRIDGE_ADDRESS = f"{NETWORK}.254"
"""Of the root namespace on the bridge: where a service can be reached from all of them."""
INTERFACE = "eth0"
BURST, LATENCY = "256kb", "100ms"
"""Of the token bucket: 7 ms at 300 Mb/s, and what would wait longer than 100 ms is dropped."""
MPS_SECONDS = 30
LOCK_FILE = Path("/run/fabricscope-gpu-check.lock")


def run(*words: str) -> None:
    """Run a program that must succeed; its own words are in the error if it does not."""
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(words)}` failed: {done.stderr.strip() or done.returncode}")


def name_of(number: int) -> str:
    """The namespace's name, and the name that the host has inside of it."""
    return f"node{number}"


def address_of(number: int) -> str:
    return f"{NETWORK}.{number + 1}"


def veth_of(number: int) -> str:
    """The end of a host's NIC that is on the bridge."""
    return f"fs{number}"


@contextlib.contextmanager
def hosts(count: int) -> Iterator[None]:
    """So many namespaces, all on one bridge; everything is removed at the end."""
    made: list[int] = []
    with LOCK_FILE.open("w", encoding="ascii") as lock:
        # One at a time: another run waits here, and what lies there now is of one that was killed.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if Path(f"/sys/class/net/{BRIDGE}").exists():
            remove(range(count))
        try:
            make(count, made)
            yield
        finally:
            remove(made)


def make(count: int, made: list[int]) -> None:
    """Make the bridge and the hosts; ``made`` gets a number as soon as there is a trace of it."""
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "addr", "add", f"{BRIDGE_ADDRESS}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")
    for number in range(count):
        node, veth = name_of(number), veth_of(number)
        run("ip", "netns", "add", node)
        made.append(number)
        run("ip", "link", "add", veth, "type", "veth", "peer", INTERFACE, "netns", node)
        run("ip", "link", "set", veth, "master", BRIDGE, "up")
        inside = ("ip", "-n", node)
        run(*inside, "addr", "add", f"{address_of(number)}/24", "dev", INTERFACE)
        run(*inside, "link", "set", INTERFACE, "up")
        run(*inside, "link", "set", "lo", "up")


def remove(numbers: Iterable[int]) -> None:
    """Remove these hosts and the bridge, as far as they are there."""
    for number in numbers:
        # With its namespace goes the NIC, though not at once while a process still has it.
        subprocess.run(["ip", "link", "del", veth_of(number)], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", name_of(number)], check=False, capture_output=True)
    subprocess.run(["ip", "link", "del", BRIDGE], check=False, capture_output=True)


def words_inside(number: int, command: str) -> list[str]:
    """How a shell command is run on such a host, under its name and with mounts of its own."""
    node = name_of(number)
    shell = ["unshare", "--uts", "sh", "-c", f"hostname {node} && {command}"]
    return ["ip", "netns", "exec", node, *shell]


def limit_link(number: int, rate: str) -> None:
    """Let both directions of a host's NIC carry no more than ``rate`` (`300mbit`)."""
    bucket = ("root", "tbf", "rate", rate, "burst", BURST, "latency", LATENCY)
    inside = ("tc", "-n", name_of(number))
    run(*inside, "qdisc", "replace", "dev", INTERFACE, *bucket)
    run("tc", "qdisc", "replace", "dev", veth_of(number), *bucket)


def free_link(number: int) -> None:
    """Take the limit away; no error where there is none."""
    for words in (
        ["tc", "-n", name_of(number), "qdisc", "del", "dev", INTERFACE, "root"],
        ["tc", "qdisc", "del", "dev", veth_of(number), "root"],
    ):
        subprocess.run(words, check=False, capture_output=True)


@contextlib.contextmanager
def mps() -> Iterator[bool]:
    """Lets processes use the GPU at the same time; without it they take turns of milliseconds."""
    program = shutil.which("nvidia-cuda-mps-control")
    if program is None:
        yield False
        return
    # A daemon: with our output in its hands, a caller that waits for the end of that waits for it.
    silent = subprocess.DEVNULL
    subprocess.run([program, "-d"], check=False, stdout=silent, stderr=silent)
    try:
        yield True
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [program], input=b"quit\n", check=False, timeout=MPS_SECONDS, stdout=silent
            )
