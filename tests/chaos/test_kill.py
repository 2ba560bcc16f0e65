"""Killed at random moments under load, again and again: what was acknowledged is there, once."""

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from collector.contract import wire
from collector.contract.model import Sample, Series
from tests.stands.service import ServiceProcess, eventually
from tests.tools.cut import CUT
from tests.worlds import remote_write as rw

KILLS = 20 if CUT.is_all else 4
SEED = CUT.seed
SIZES = (1, 40, 300, 6_000)
"""Samples of a request. The service writes large ones at once and batches small ones."""
METRIC = "kill_test"
RESENT_SHARE = 0.25
"""Of the acknowledged requests, so many are sent again; and always the last."""
PAUSE_SECONDS = 0.1
KILL_WITHIN_SECONDS = 0.4
"""A commit begins 0.2 s after its first small request, so this meets every stage of one."""


class Sender(threading.Thread):
    """Sends samples, and each request again until it is acknowledged.

    The n-th sample has the time ``base_ms + n`` and the value ``n`` and a bit, so what must be
    stored follows from how many were acknowledged.
    """

    def __init__(self, service: ServiceProcess, name: str, base_ms: int, seed: int) -> None:
        super().__init__(name=name)
        self.acknowledged = 0
        """Samples that the service has acknowledged."""
        self.attempts_failed = 0
        self.refusals: list[str] = []
        self._client = httpx.Client(base_url=service.url, timeout=30)
        self._base_ms = base_ms
        self._random = random.Random(seed)
        self._sequence = 0
        self.stop = threading.Event()

    def value(self, number: int) -> float:
        """Fractions and whole numbers are stored differently."""
        return number + (0.25 if number % 2 else 0.0)

    def run(self) -> None:
        """Send until `stop` is set; the last request, too, until it is acknowledged."""
        while not self.stop.is_set():
            size = self._random.choice(SIZES)
            numbers = range(self.acknowledged, self.acknowledged + size)
            path, body, headers = self.request(numbers)
            while not self.deliver(path, body, headers):
                self.attempts_failed += 1
                time.sleep(PAUSE_SECONDS)  # the service is away: ask again soon
            self.acknowledged += size
            self._sequence += 1
            if self.stop.is_set() or self._random.random() < RESENT_SHARE:
                # As if the acknowledgement had been lost on its way.
                self.deliver(path, body, headers)
        self._client.close()

    def deliver(self, path: str, body: bytes, headers: dict[str, str]) -> bool:
        """Whether the request was acknowledged."""
        try:
            answer = self._client.post(path, content=body, headers=headers)
        except httpx.TransportError:
            return False
        if answer.status_code not in {200, 204, 503}:
            self.refusals.append(f"{answer.status_code}: {answer.text}")
        return answer.is_success

    def request(self, numbers: range) -> tuple[str, bytes, dict[str, str]]:
        """Path, body and headers."""
        raise NotImplementedError


class NativeSender(Sender):
    """As an agent of ours."""

    def request(self, numbers: range) -> tuple[str, bytes, dict[str, str]]:
        series = Series(METRIC, {"sender": self.name})
        batch = wire.pack_batch(
            [Sample(series, self.value(n), (self._base_ms + n) * 1_000_000) for n in numbers],
            agent=self.name,
            boot="boot",
            sequence=self._sequence,
            sent_ms=self._base_ms,
            common={"host": self.name},
        )
        headers = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
        return "/v1/ingest", wire.encode_batch(batch), headers


class RemoteSender(Sender):
    """As a Prometheus; in turn with remote write's two versions."""

    def request(self, numbers: range) -> tuple[str, bytes, dict[str, str]]:
        labels = [("__name__", METRIC), ("host", self.name), ("sender", self.name)]
        samples = [(self.value(n), self._base_ms + n) for n in numbers]
        series = [rw.TimeSeries(labels, samples)]
        if self._sequence % 2:
            return "/api/v1/write", rw.snappy(rw.request_v2(series)), rw.V2_HEADERS
        return "/api/v1/write", rw.snappy(rw.request_v1(series)), rw.V1_HEADERS


def stored(service: ServiceProcess, base_ms: int) -> Iterator[tuple[str, list[int], list[float]]]:
    """Every series of the test: its sender, times and values."""
    parameters = {"match": METRIC, "from": str(base_ms / 1000 - 1), "format": "ndjson"}
    with service.client.stream("GET", "/v1/samples", params=parameters) as answer:
        for line in answer.iter_lines():
            series = msgspec.json.decode(line)
            yield series["labels"]["sender"], series["times_ms"], series["values"]


@pytest.mark.rotating(3, turn=0)
@pytest.mark.slow
def test_no_acknowledged_sample_is_lost_and_none_appears_twice(tmp_path: Path) -> None:
    base_ms = int(time.time() * 1000) - 6 * 3_600_000
    chance = random.Random(SEED)
    with ServiceProcess(tmp_path / "data") as service:
        kinds = (NativeSender, RemoteSender, NativeSender, RemoteSender)
        senders = [kind(service, f"sender-{i}", base_ms, i) for i, kind in enumerate(kinds)]
        for sender in senders:
            sender.start()
        try:
            for _ in range(KILLS):
                before = sum(sender.acknowledged for sender in senders)
                eventually(
                    lambda before=before: sum(s.acknowledged for s in senders) > before,  # type: ignore[misc]
                    "an acknowledgement after a start",
                )
                # No wait for a condition: any moment is a good one to be killed at.
                time.sleep(chance.uniform(0, KILL_WITHIN_SECONDS))
                service.kill()
                service.start()
        finally:
            for sender in senders:
                sender.stop.set()
            for sender in senders:
                sender.join(60)
        assert [sender.refusals for sender in senders] == [[], [], [], []]
        assert all(sender.attempts_failed > 0 for sender in senders), "no sender met a kill"

        found = {name: (times, values) for name, times, values in stored(service, base_ms)}
        assert set(found) == {sender.name for sender in senders}
        for sender in senders:
            times, values = found[sender.name]
            numbers = range(sender.acknowledged)
            assert times == [base_ms + n for n in numbers], f"{sender.name} (seed {SEED})"
            assert values == [sender.value(n) for n in numbers], f"{sender.name} (seed {SEED})"
        assert service.stop() == 0
