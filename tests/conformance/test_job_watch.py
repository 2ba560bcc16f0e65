"""The service notices jobs by itself: a batch goes in, and a little later the job is there."""

import time
from pathlib import Path

import pytest

from api import app
from collector.contract import wire
from collector.contract.collective import Collective, Operation
from tests.service import eventually, in_process


def test_a_job_appears_after_its_first_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "JOBS_SECONDS", 0.05)
    monkeypatch.setattr(app, "JOBS_FORGOTTEN_SECONDS", 0.0)
    records = [
        Collective(
            communicator="0x77",
            operation=Operation.BARRIER,
            sequence=1,
            rank=rank,
            ranks=2,
            source="nccl_inspector",
            time_ns=time.time_ns() - 10**9,
            pid=10 + rank,
        )
        for rank in range(2)
    ]
    batch = wire.pack_batch(
        [], [], records, agent="a", boot="b", sequence=0, sent_ms=0, common={"host": "h"}
    )
    headers = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
    with in_process(tmp_path) as service:
        content = wire.encode_batch(batch)
        assert service.client.post("/v1/ingest", content=content, headers=headers).is_success
        path = "/v1/jobs/inferred-77"
        eventually(lambda: service.client.get(path).status_code == 200, "the job")
        places = service.client.get(f"{path}/ranks").json()["items"]
    assert [(place["host"], place["pid"]) for place in places] == [("h", 10), ("h", 11)]
