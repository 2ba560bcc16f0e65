"""The service and NCCL's RAS alone: a job that nothing else shows, and its hang is named."""

import time
from pathlib import Path

import msgspec
import pytest

from api.http import works
from collector.contract import wire
from collector.contract.communicator import COMMUNICATOR
from collector.contract.ras import RAS
from collector.contract.units import NS
from tests.stands.service import InProcess, eventually, in_process
from tests.worlds.ras import START_NS, answers_of, replay

RANKS = 8
STOPPED = 3
UNTIL = 21.0
"""Seconds after the fault."""
HEADERS = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}


class Agents:
    """What the agents of all hosts send, again and again while the job stands."""

    def __init__(self, service: InProcess, tmp_path: Path) -> None:
        self._service = service
        self._sequence = 0
        self._sent_s = 0.0
        answers = answers_of("stopped3")
        runs = [replay(tmp_path / f"tree{node}", answers, node=node) for node in range(RANKS)]
        self._told = [
            [*found.events(COMMUNICATOR, UNTIL), *found.events(RAS, UNTIL)] for found in runs
        ]

    def send(self) -> None:
        """As if it were UNTIL seconds after the fault, now; at most once a second."""
        if time.monotonic() - self._sent_s < 1.0:
            return
        self._sent_s = time.monotonic()
        by_ns = time.time_ns() - START_NS - round(UNTIL * NS)
        for node, events in enumerate(self._told):
            batch = wire.pack_batch(
                [],
                [msgspec.structs.replace(one, time_ns=one.time_ns + by_ns) for one in events],
                agent=f"node{node}",
                boot="b",
                sequence=self._sequence,
                sent_ms=0,
                common={"host": f"node{node}"},
            )
            content = wire.encode_batch(batch)
            answer = self._service.client.post("/v1/ingest", content=content, headers=HEADERS)
            assert answer.is_success
        self._sequence += 1


def test_a_hang_is_named_by_agents_that_read_nothing_but_ras(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(works, "JOBS_SECONDS", 0.05)
    monkeypatch.setattr(works, "JOBS_FORGOTTEN_SECONDS", 0.0)
    with in_process(tmp_path) as service:
        agents = Agents(service, tmp_path)

        def is_named() -> bool:
            agents.send()
            return bool(hangs(service))

        eventually(is_named, "the incident of the hang")
        (found,) = hangs(service)
        incident = service.client.get(f"/v1/incidents/{found['id']}").json()
    culprit = incident["verdict"]["culprit"]
    assert (culprit["rank"], culprit["host"]) == (STOPPED, f"node{STOPPED}")
    assert "rank 3 (process 875 at 10.77.0.4) does not answer" in str(incident["verdict"])


def hangs(service: InProcess) -> list[dict[str, object]]:
    found = service.client.get("/v1/incidents").json()["items"]
    return [one for one in found if one["cause"] == "hang"]
