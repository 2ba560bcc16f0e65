"""Agents that answer requests for captures: the real source, rings and captures over made counters.

Only the sampler's process and its clock are left out: its readings are those that a test gives.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collector.bursts.capture import Captures
from collector.bursts.plan import NS_PER_MS, Plan
from collector.bursts.process import FastSampler, Message
from collector.bursts.ring import Ring
from collector.bursts.track import Track
from collector.contract import wire
from collector.contract.model import Event, Sample
from collector.contract.wire import CaptureRequest
from collector.doors.host import Host
from collector.sources.bursts import Bursts, Settings
from tests.fixtures.trees import write_files

RING_SAMPLES = 30_000
WORD_BYTES = 4


class CounterSampler:
    """A sampler whose counters hold what was given, one reading a millisecond from a moment on."""

    restarts = 0
    is_up = True

    def __init__(self, plan: Plan, counters: Mapping[str, np.ndarray], start_ns: int) -> None:
        self._tracks = [Track(one, plan, every=1, ring=Ring(RING_SAMPLES)) for one in plan.counters]
        self._readings = [counters[one.direction] // WORD_BYTES for one in plan.counters]
        self._captures = Captures(self._tracks)
        self._start_ns = self._now_ns = start_ns

    def until(self, now_ns: int) -> None:
        """Read everything until then, a tenth of a second at a time as the process digests it."""
        while self._now_ns < now_ns:
            end_ns = min(now_ns, self._now_ns + 100 * NS_PER_MS)
            for track, readings in zip(self._tracks, self._readings, strict=True):
                feed(track, readings, self._start_ns, self._now_ns, end_ns)
            self._now_ns = end_ns

    def poll(self) -> Sequence[Message]:
        report: dict[str, Any] = {
            "time": self._now_ns, "monotonic": self._now_ns, "ticks": 1000, "late": [0, 0, 0],
            "missed": 0, "interrupted": 0, "cpu": 0.0, "dropped": 0, "dropped_reports": 0,
            "counters": [track.summary(NS_PER_MS) for track in self._tracks], "bursts": [],
        }  # fmt: skip
        messages = [report]
        for _ in range(len(self._tracks) + 1):
            # It copies first, a counter a step, and has nothing to send meanwhile.
            while (piece := self._captures.step(self._now_ns)) is not None:
                messages.append({**piece, "offset": 0})
        return messages

    def capture(self, request: Mapping[str, Any]) -> bool:
        self._captures.ask(dict(request), self._now_ns)
        return True

    def close(self) -> None:
        pass


def feed(track: Track, readings: np.ndarray, start_ns: int, from_ns: int, to_ns: int) -> None:
    first, last = (from_ns - start_ns) // NS_PER_MS, (to_ns - start_ns) // NS_PER_MS
    for place in range(max(first, 1), min(last, len(readings))):
        if readings[place] != readings[place - 1]:
            now_ns = start_ns + place * NS_PER_MS
            track.pending.befores.append(now_ns - NS_PER_MS)
            track.pending.times.append(now_ns)
            track.pending.texts.append(str(readings[place]).encode())
    track.digest(to_ns)


class CapturingAgent(Host):
    """A host with one NIC, and the part of its agent that answers captures."""

    def __init__(
        self, root: Path, name: str, counters: Mapping[str, np.ndarray], start_ns: int
    ) -> None:
        port = "sys/class/infiniband/mlx5_0/ports/1"
        files = dict.fromkeys((f"{port}/counters/port_{way}_data" for way in ("rcv", "xmit")), "1")
        write_files(root, {f"{port}/rate": "400 Gb/sec (4X NDR)"} | files)
        super().__init__(root)
        self.agent = name
        self._counters = counters
        self._start_ns = self._wall_ns = start_ns
        self._samplers: list[CounterSampler] = []
        self._source = Bursts(Settings())
        self._sequence = 0

    def monotonic_ns(self) -> int:
        return self._wall_ns

    def now_ns(self) -> int:
        return self._wall_ns

    def sampler(self, plan: Plan) -> FastSampler:
        self._samplers.append(CounterSampler(plan, self._counters, self._start_ns))
        return self._samplers[-1]

    def batch(self, now_ns: int, requests: Sequence[CaptureRequest]) -> bytes:
        """What the agent sends at this moment, with requests that the last receipt had."""
        self._wall_ns = now_ns
        for sampler in self._samplers:
            sampler.until(now_ns)
        for request in requests:
            self._source.capture(request)
        readings = list(self._source.read(self))
        self._sequence += 1
        packed = wire.pack_batch(
            [one for one in readings if isinstance(one, Sample)],
            [one for one in readings if isinstance(one, Event)],
            agent=self.agent, boot="bursts", sequence=self._sequence, sent_ms=now_ns // NS_PER_MS,
            common={"host": self.agent, "cluster": "simulated"},
        )  # fmt: skip
        return wire.encode_batch(packed)
