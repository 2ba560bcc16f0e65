"""Traffic of a known shape between two network namespaces, and what the fast sampler makes of it.

`python -m tests.stands.shaped_link` runs inside one of the namespaces (`measure` starts it there).
It sends bursts, then a smooth flow, through a token bucket of the kernel, while a real sampler
process reads the interface's counters, and prints what was sent and what was seen as JSON.

The shape does not depend on the sender: a burst is handed to the kernel at once and leaves at the
bucket's rate; the smooth flow is a queue that never runs empty, behind a bucket that lets a third
of the line through. On a machine that is busy with other things the sampler, the sender or the
kernel's own shaper may still be late. Evidence marks such bursts (`Trial.is_fair`), not luck: the
sender's clock says when it sent, the raw samples say when the counter was looked at
and whether anything had left by then.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from collector.bursts.plan import NS_PER_MS, NS_PER_SECOND, TRANSMIT, CounterPlan, Plan
from collector.bursts.process import LiveSampler

ROOT = Path(__file__).resolve().parents[2]
LINE_BITS = 200_000_000
"""Of the bucket that makes bursts, and what the sampler takes for the line rate."""
SMOOTH_BITS = 60_000_000
"""A third of it: with the bucket's 4 kB at most 46 % of the line within any millisecond."""
LINE_BYTES = LINE_BITS // 8
PAYLOAD, FRAME = 1_400, 1_442
"""Bytes of a datagram, and of its frame as the interface counts it."""
PEER = ("10.213.77.2", 9)
BURST_MS = (5.0, 20.0)
GAP_SECONDS = (0.02, 0.04)
START_NS = 2 * NS_PER_MS
"""How far the start of a burst may be from when it was sent."""
LATE_NS = 2 * NS_PER_MS
"""A sampler that looked less often than this around a burst was not running."""
BEHIND_NS, SHAPED_SHARE = NS_PER_MS, 0.75
"""A shaper that was this far behind, or let less than this share of the line through, was late."""
WAIT_SECONDS = 60.0
SEND_BUFFER_FORCE = 32
"""SO_SNDBUFFORCE of asm-generic/socket.h, which Python does not name."""


class Sent(NamedTuple):
    """A burst by the sender's clock (monotonic nanoseconds), and how long the line takes for it."""

    start_ns: int
    sent_ns: int
    length_ns: int


class Trial(msgspec.Struct, frozen=True):
    """What was sent and what was seen."""

    sent: list[Sent]
    found: list[list[Any]]
    """Bursts, as the sampler reports them."""
    invented: list[list[Any]]
    """Bursts that it reported in the smooth flow."""
    times: list[int]
    values: list[int]
    """Raw samples during the bursts."""
    reports: list[dict[str, Any]]
    smooth_seconds: float

    def is_fair(self, sent: Sent) -> bool:
        """Whether the sender, the kernel's shaper and the sampler were on time."""
        if sent.sent_ns - sent.start_ns > START_NS:
            return False
        first, last = sent.start_ns - LATE_NS, sent.start_ns + sent.length_ns
        around = [each for each in self.times if first <= each <= last]
        looks = [first, *around, next((each for each in self.times if each > last), last)]
        gaps = [after - before for before, after in pairwise(looks)]
        if len(gaps) < 2 or max(gaps) > LATE_NS:
            return False
        return self.is_shaped(sent)

    def is_shaped(self, sent: Sent) -> bool:
        """Whether the line was used from the burst's first moment to its last.

        A shaper that wakes too late loses what its bucket did not hold, and a hole in the first
        milliseconds moves the start of the burst: on the wire, not in the report of it.
        """
        before = self.value_at(sent.start_ns - LATE_NS)
        during = [
            (time_ns - sent.start_ns, value - before)
            for time_ns, value in zip(self.times, self.values, strict=True)
            if sent.start_ns + BEHIND_NS <= time_ns <= sent.start_ns + sent.length_ns
        ]
        line = SHAPED_SHARE * LINE_BYTES / NS_PER_SECOND
        return all(left >= line * (passed - BEHIND_NS) for passed, left in during)

    def value_at(self, time_ns: int) -> int:
        """The counter at the first look after a moment."""
        later = [v for t, v in zip(self.times, self.values, strict=True) if t >= time_ns]
        return later[0] if later else self.values[-1]

    def starts_off_ns(self, sent: Sent) -> int | None:
        """How far from its true start a burst was found; None if none is anywhere near."""
        near = [burst[1] - sent.start_ns for burst in self.found]
        near = [off for off in near if abs(off) < sent.length_ns]
        return min(near, key=abs, default=None)


# --- inside the namespace ------------------------------------------------------------------------


def shape(bits: int, bucket: int) -> None:
    """Let the interface send at this rate from now on."""
    words = f"tc qdisc replace dev g0 root tbf rate {bits}bit burst {bucket} limit 8mb"
    subprocess.run(words.split(), check=True)


def send(socket_: socket.socket, count: int) -> None:
    """Hand datagrams to the kernel as fast as it takes them."""
    for _ in range(count):
        socket_.sendto(b"x" * PAYLOAD, PEER)


def send_bursts(socket_: socket.socket, count: int) -> list[Sent]:
    """Bursts of random lengths with silence between them."""
    dice = random.Random(1)
    sent: list[Sent] = []
    for _ in range(count):
        milliseconds = dice.uniform(*BURST_MS)
        packets = int(LINE_BYTES * milliseconds / 1000 / FRAME) + 1
        start_ns = time.monotonic_ns()
        send(socket_, packets)
        length_ns = packets * FRAME * NS_PER_SECOND // LINE_BYTES
        sent.append(Sent(start_ns, time.monotonic_ns(), length_ns))
        time.sleep(milliseconds / 1000 + dice.uniform(*GAP_SECONDS))
    return sent


class Listener:
    """The sampler and all its messages."""

    def __init__(self, sampler: LiveSampler) -> None:
        self.sampler = sampler
        self.messages: list[dict[str, Any]] = []

    def wait(self, found: int) -> None:
        """Listen until so many reports and ends of captures have come."""
        deadline = time.monotonic() + WAIT_SECONDS
        while sum("counters" in m or "end" in m for m in self.messages) < found:
            if time.monotonic() > deadline:
                raise TimeoutError("the sampler sends no message")
            self.messages += self.sampler.poll()
            time.sleep(0.01)

    def settle(self) -> None:
        """Wait for two more reports: whatever happened before the first is in them."""
        self.messages += self.sampler.poll()
        self.wait(sum("counters" in m or "end" in m for m in self.messages) + 2)

    def bursts(self) -> list[list[Any]]:
        """Every burst reported so far."""
        return [burst for m in self.messages for _, burst in m.get("bursts", [])]


def run_inside(count: int, smooth_seconds: float) -> dict[str, Any]:
    """Send both kinds of traffic and listen to the sampler."""
    path = "/sys/class/net/g0/statistics/tx_bytes"
    counter = CounterPlan(path, "g0", "", TRANSMIT, 1, 0, float(LINE_BYTES))
    ear = Listener(LiveSampler(Plan((counter,), ring_seconds=120.0)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as socket_:
        socket_.setsockopt(socket.SOL_SOCKET, SEND_BUFFER_FORCE, 16 << 20)
        shape(LINE_BITS, 4096)
        ear.settle()
        began_ns = time.monotonic_ns()
        sent = send_bursts(socket_, count)
        ear.settle()
        # The window in which a burst begins may have begun before it.
        found = [burst for burst in ear.bursts() if burst[1] >= began_ns - START_NS]
        before = (time.monotonic_ns() - began_ns) / NS_PER_SECOND
        ear.sampler.capture({"id": "all", "before": before + 1, "after": 0.0, "devices": []})
        while not any("end" in message for message in ear.messages):
            ear.settle()
        shape(SMOOTH_BITS, 4096)
        ear.settle()
        known = len(ear.bursts())
        send_smoothly(socket_, smooth_seconds)
        ear.settle()
    ear.sampler.close()
    pieces = [message for message in ear.messages if "times" in message]
    return {
        "sent": sent,
        "found": found,
        "invented": ear.bursts()[known:],
        "times": columns(pieces, "times"),
        "values": columns(pieces, "values"),
        "reports": [message for message in ear.messages if "counters" in message],
        "smooth_seconds": smooth_seconds,
    }


def send_smoothly(socket_: socket.socket, seconds: float) -> None:
    """Keep the bucket's queue full, but not so full that a packet is lost."""
    deadline = time.monotonic() + seconds
    ahead = SMOOTH_BITS // 8 // FRAME // 4  # a quarter of a second
    began, queued = time.monotonic(), 0
    while time.monotonic() < deadline:
        left = int((time.monotonic() - began) * SMOOTH_BITS / 8 / FRAME)
        send(socket_, max(0, left + ahead - queued))
        queued = max(queued, left + ahead)
        time.sleep(0.02)


def columns(pieces: list[dict[str, Any]], name: str) -> list[int]:
    """One column of a capture."""
    return [
        number
        for piece in pieces
        for number in memoryview(bytes.fromhex(piece[name])).cast("q").tolist()
    ]


# --- outside -------------------------------------------------------------------------------------


def why_not() -> str:
    """Why this machine cannot do it; empty if it can."""
    if os.geteuid():
        return "needs root, to make network namespaces"
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return f"needs {program} (iproute2)"
    try:
        with namespaces():
            return ""
    except subprocess.CalledProcessError as error:
        return f"cannot make namespaces with a shaped link: {error.stderr.decode()[:200]}"


@contextlib.contextmanager
def namespaces() -> Iterator[str]:
    """Two namespaces that are joined by a link; the name of the one to send from."""
    one, other = (f"fabricscope-{os.getpid()}-{side}" for side in "ab")

    def run(words: str) -> None:
        subprocess.run(words.split(), check=True, capture_output=True)

    try:
        run(f"ip netns add {one}")
        run(f"ip netns add {other}")
        run(f"ip link add g0 netns {one} type veth peer name g1 netns {other}")
        for name, device, address in ((one, "g0", "10.213.77.1"), (other, "g1", PEER[0])):
            run(f"ip -n {name} addr add {address}/30 dev {device}")
            run(f"ip -n {name} link set {device} addrgenmode none")
            run(f"ip -n {name} link set {device} up")
        run(f"ip netns exec {one} tc qdisc replace dev g0 root tbf rate 1mbit burst 4096 limit 1mb")
        # No questions about addresses in the middle of a burst.
        show = ["ip", "-n", other, "-j", "link", "show", "g1"]
        address = json.loads(subprocess.check_output(show))[0]["address"]
        run(f"ip -n {one} neigh replace {PEER[0]} lladdr {address} dev g0 nud permanent")
        yield one
    finally:
        for name in (one, other):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def measure(count: int, smooth_seconds: float) -> Trial:
    """Make the namespaces, run the trial inside, and read what it printed."""
    with namespaces() as name:
        words = ["ip", "netns", "exec", name, sys.executable, "-m", "tests.stands.shaped_link"]
        done = subprocess.run(
            [*words, str(count), str(smooth_seconds)], cwd=ROOT, check=True, capture_output=True
        )
    return msgspec.json.decode(done.stdout, type=Trial)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run_inside(int(sys.argv[1]), float(sys.argv[2]))))
