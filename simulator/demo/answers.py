"""The service's answers, by HTTP in PromQL; in a thread, so that simulated time never waits."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Self

from api.remote.client import Bounds, Client, ServiceError
from simulator.interfaces.poller_tree import POLLER

ASK_SECONDS = 2.0
BOUNDS = Bounds(silence_s=5.0, answer_s=5.0)
"""How long one question may take; after that it is asked again later."""
HOSTS_MAX = 1000
MEASURES = {
    "step_seconds": "fabric_job_step_seconds",
    "network_share": "fabric_job_network_share_ratio",
    "wait_share": "fabric_job_wait_share_ratio",
}
"""What is shown of each job, and what it is called in PromQL."""
Json = dict[str, Any]
INCIDENTS = "fabric_incident"


@dataclass(frozen=True)
class JobAnswer:
    """One job as the service measures it; None where it has no value."""

    step_seconds: float | None = None
    network_share: float | None = None
    """Of the time, in transfers."""
    wait_share: float | None = None
    """Of the time, waiting for a rank to come."""


@dataclass(frozen=True)
class Found:
    """An incident that is open, in the service's words."""

    incident: str
    cause: str
    culprit: str
    confidence: float

    def __str__(self) -> str:
        return f"{self.cause} at {self.culprit}, {self.confidence:.0%} sure"


@dataclass(frozen=True)
class Answers:
    """The service's latest answers."""

    hosts: int = 0
    """Hosts whose agents report; others appear in readings of neighbours only. Without the machine
    that polls the switches, which is none of the cluster's."""
    samples: float = 0.0
    """That it has stored."""
    jobs: dict[str, JobAnswer] = field(default_factory=dict)
    found: tuple[Found, ...] = ()


class Asker:
    """Asks periodically while the block lasts; `latest` is always there, and never waits."""

    def __init__(self, client: Client) -> None:
        self.latest = Answers()
        self._client = client
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="asker", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(ASK_SECONDS):
            try:
                self.latest = ask(self._client)
            except (ServiceError, LookupError, ValueError):
                # Busy, or stopping: its last answers stand until it answers again.
                continue


def ask(client: Client) -> Answers:
    hosts = client.get("/v1/hosts", Json, limit=HOSTS_MAX)["items"]
    measured: dict[str, dict[str, float]] = {}
    for name, metric in MEASURES.items():
        for row in query(client, metric):
            measured.setdefault(row["metric"]["job"], {})[name] = float(row["value"][1])
    return Answers(
        hosts=sum(1 for host in hosts if host["agent"] and host["host"] != POLLER),
        samples=stored_samples(client.read("/metrics").decode()),
        jobs={job: JobAnswer(**values) for job, values in measured.items()},
        found=read_found(query(client, INCIDENTS)),
    )


def read_found(rows: list[Json]) -> tuple[Found, ...]:
    """The incidents in an answer, each once: it has a series for each job that suffers."""
    found = {}
    for row in rows:
        labels = row["metric"]
        names = [f"{name} {labels[name]}" for name in ("gpu", "device") if name in labels]
        places = [labels[name] for name in ("host", "switch", "switch_port") if name in labels]
        machine = " ".join([*places[:1], *names, *places[1:]]) or labels.get("job", "no culprit")
        found[labels["incident"]] = Found(
            labels["incident"], labels["cause"], machine, float(row["value"][1])
        )
    return tuple(sorted(found.values(), key=lambda one: (-one.confidence, one.incident)))


def query(client: Client, expression: str) -> list[Json]:
    found: list[Json] = client.get("/api/v1/query", Json, query=expression)["data"]["result"]
    return found


def stored_samples(exposition: str) -> float:
    """The service's own count of samples that it took.

    >>> stored_samples('fabric_service_samples_total{protocol="native"} 7.0')
    7.0
    """
    name = "fabric_service_samples_total"
    lines = (line for line in exposition.splitlines() if line.startswith(name))
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)
