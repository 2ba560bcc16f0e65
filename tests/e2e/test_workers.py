"""`fabricscope serve --workers 2`: one service of four processes, some of which are killed."""

import contextlib
import datetime as dt
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import httpx

from api.data.inventory.repository import Inventory
from api.data.store.store import Store, StoreUrl
from collector.cli import main
from collector.contract import wire
from collector.contract.model import Event, Sample, Series
from tests.stands.service import ServiceProcess, eventually, read_samples

HOST = "node0001"
METRIC = "fabric_test_beats_total"
CLOCK = "fabric_gpu_sm_clock_hertz"
"""A GPU that is read is one that an error can be about."""
NATIVE = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
WORKERS = ("worker-1", "worker-2")


def shown(service: ServiceProcess) -> dict[str, dict[str, Any]]:
    """The processes of a service, as it shows them to operators."""
    items = json.loads((service.data / "run" / "processes.json").read_text())
    return {item["name"]: item for item in items}


def batch_of(sequence: int, samples: list[Sample], events: tuple[Event, ...] = ()) -> bytes:
    return wire.encode_batch(
        wire.pack_batch(
            samples,
            events,
            agent=HOST,
            boot="boot",
            sequence=sequence,
            sent_ms=time.time_ns() // 1_000_000,
            common={"host": HOST, "cluster": "c"},
        )
    )


class Sender:
    """Sends a batch again and again until it is acknowledged, then the next; each is one beat.

    A new connection for each, so that all processes that take requests get some.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.acknowledged: dict[int, float] = {}
        """Values by their times in milliseconds."""
        self.complaints: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _send(self) -> None:
        sequence = 0
        while not self._ends.is_set():
            now_ms = time.time_ns() // 1_000_000
            beat = Sample(Series(METRIC), float(sequence), now_ms * 1_000_000)
            clock = Sample(Series(CLOCK, {"gpu": "3"}), 1.7e9, now_ms * 1_000_000)
            body = batch_of(sequence, [beat, clock])
            while not self._ends.is_set():
                with contextlib.suppress(httpx.TransportError):
                    answer = httpx.post(
                        f"{self._url}/v1/ingest",
                        content=body,
                        headers={**NATIVE, "Connection": "close"},
                        timeout=60.0,
                    )
                    if answer.status_code == 200:
                        self.acknowledged[now_ms] = float(sequence)
                        break
                    if answer.status_code != 503:
                        self.complaints.append(answer.text)
                self._ends.wait(0.1)
            sequence += 1


@contextlib.contextmanager
def asked_anew(service: ServiceProcess) -> Iterator[httpx.Client]:
    """A client with a new connection: the kernel chooses the process."""
    with httpx.Client(base_url=service.url, timeout=60.0) as client:
        yield client


def asked_of_each(service: ServiceProcess, path: str, ask: Callable[[httpx.Client], None]) -> None:
    """Ask on new connections until each process that takes requests has answered this path."""
    before = answered(service, path)

    def are_all_asked() -> bool:
        with asked_anew(service) as client:
            ask(client)
        now = answered(service, path)
        return all(now[name] > before[name] for name in WORKERS)

    eventually(are_all_asked, f"{path} of each of {WORKERS}")


def answered(service: ServiceProcess, path: str) -> dict[str, float]:
    found = dict.fromkeys(WORKERS, 0.0)
    for line in service.client.get("/metrics").text.splitlines():
        if line.startswith("fabric_service_requests_total{") and f'path="{path}"' in line:
            name = line.partition('process="')[2].partition('"')[0]
            found[name] += float(line.rpartition(" ")[2])
    return found


def incidents(client: httpx.Client) -> list[dict[str, Any]]:
    answer = client.get("/v1/incidents", params={"host": HOST})
    return list(answer.json()["items"]) if answer.status_code == 200 else []


def kill(service: ServiceProcess, name: str) -> None:
    """SIGKILL a process by the pid that the service shows, and wait until all is well again."""
    before = shown(service)[name]
    os.kill(before["pid"], signal.SIGKILL)
    eventually(
        lambda: shown(service)[name]["starts"] > before["starts"] and service.is_ready(),
        f"{name} is back; the log: {service.log}",
    )


def test_processes_are_killed_in_turn_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServiceProcess(data, "--workers", "2") as service:
        assert list(shown(service)) == ["store", "evaluator", *WORKERS]
        with Sender(service.url) as sender:
            eventually(lambda: len(sender.acknowledged) > 2, "the first acknowledgements")
            known = dict(sender.acknowledged)

            def ask(client: httpx.Client) -> None:
                [series] = read_samples(client, METRIC)
                read = dict(zip(series["times_ms"], series["values"], strict=True))
                assert known.items() <= read.items()

            asked_of_each(service, "/v1/samples", ask)
            assert_all_see_a_silence(service)

            fault = Event(
                kind="gpu_xid",
                time_ns=time.time_ns(),
                labels={"gpu": "3"},
                message="GPU has fallen off the bus.",
                attributes={"xid": "79"},
            )
            posted = service.client.post(
                "/v1/ingest", content=batch_of(1 << 40, [], (fault,)), headers=NATIVE
            )
            assert posted.json()["stored"] == 1
            eventually(lambda: bool(incidents(service.client)), "an incident about the GPU")
            for name in ("worker-1", "evaluator", "store"):
                kill(service, name)
                goes_on(sender)
            kept = dict(sender.acknowledged)
            backup = service.client.get("/v1/backup")
            assert backup.status_code == 200, backup.text
            (tmp_path / "backup.tar").write_bytes(backup.content)
            rounds = evaluations(service)
            eventually(lambda: evaluations(service) > rounds, "the evaluator goes on")
            assert [one["state"] for one in incidents(service.client)] == ["open"]
        pids = [one["pid"] for one in shown(service).values()]
        assert service.stop() == 0
        assert not any(map(is_alive, pids))
    assert sender.complaints == []
    assert_all_stored(data, sender.acknowledged)
    restored = tmp_path / "restored"
    assert main(["restore", str(tmp_path / "backup.tar"), "--data", str(restored)]) == 0
    assert_all_stored(restored, kept)


def assert_all_see_a_silence(service: ServiceProcess) -> None:
    made = service.client.post(
        "/v1/silences",
        json={
            "matchers": [{"name": "alertname", "value": "FabricNothing"}],
            "hours": 1.0,
            "comment": "a test",
            "created_by": "a test",
        },
    )
    assert made.status_code in {200, 201}, made.text

    def ask(client: httpx.Client) -> None:
        assert len(client.get("/v1/silences").json()["items"]) == 1

    asked_of_each(service, "/v1/silences", ask)


def goes_on(sender: Sender) -> None:
    """Wait until more is acknowledged than now."""
    sent = len(sender.acknowledged)
    eventually(lambda: len(sender.acknowledged) > sent, "acknowledgements go on")


def evaluations(service: ServiceProcess) -> float:
    """Rounds that the evaluator has completed since its last start."""
    for line in service.client.get("/metrics").text.splitlines():
        if line.startswith('fabric_service_evaluations_total{outcome="done",process="evaluator"}'):
            return float(line.rpartition(" ")[2])
    return 0.0


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def assert_all_stored(data: Path, acknowledged: dict[int, float]) -> None:
    store = Store(StoreUrl.parse(f"chdb://{data / 'telemetry'}"))
    inventory = Inventory(f"sqlite:///{data / 'inventory.db'}")
    try:
        rows = store.query(
            "SELECT time, value FROM samples FINAL WHERE series IN "
            "(SELECT series FROM series WHERE metric_name = {name:String})",
            {"name": METRIC},
        ).to_pylist()
        read = {round(row["time"].timestamp() * 1000): row["value"] for row in rows}
        assert acknowledged.items() <= read.items()
        kept = inventory.incidents.recent(dt.datetime.fromtimestamp(0, tz=dt.UTC))
        assert [one.verdict.culprit.host for one in kept] == [HOST]
    finally:
        store.close()
        inventory.close()
