"""The service notices jobs by itself: a batch goes in, and a little later the job is there."""

import datetime as dt
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api.http import works
from api.jobs import watch
from collector.contract import communicator as words
from collector.contract import wire
from collector.contract.collective import Collective, Operation
from collector.contract.model import Event, Sample, Series
from tests.stands.service import InProcess, eventually, in_process


def test_a_job_appears_after_its_first_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(works, "JOBS_SECONDS", 0.05)
    monkeypatch.setattr(works, "JOBS_FORGOTTEN_SECONDS", 0.0)
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


def batch_of_two_gpus() -> wire.Batch:
    """Two ranks of a host, each in a container, and the agent's facts on GPUs and NICs."""
    now_ns = time.time_ns() - 10**9
    sample = partial(Sample, value=1.0, time_ns=now_ns)
    samples = [
        sample(series=Series(metric, labels | {"pci_path": f"pci0000:00/0000:0{place}:00.0/x"}))
        for place in (0, 1)
        for metric, labels in (
            (
                "fabric_gpu_info",
                {
                    "gpu": str(place),
                    "uuid": f"GPU-{place}",
                    "pci_bus_id": f"00000000:0{place}:0A.0",
                },
            ),
            ("fabric_port_info", {"device": f"mlx5_{1 - place}", "port": "1"}),
        )
    ]
    records = [
        Collective(
            communicator="0x78",
            operation=Operation.BARRIER,
            sequence=1,
            rank=rank,
            ranks=2,
            source="nccl_inspector",
            time_ns=now_ns,
            pid=10 + rank,
        )
        for rank in range(2)
    ]
    events = [
        Event(
            kind=words.COMMUNICATOR,
            time_ns=now_ns,
            labels={words.COMMUNICATOR: "0x78", words.RANK: str(rank)},
            attributes={
                words.NVML_DEVICE: "0",
                words.BUS_ID: f"0000:0{rank}:0a.0",
                words.PID: str(10 + rank),
                words.HOST: "h",
            },
        )
        for rank in range(2)
    ]
    return wire.pack_batch(
        samples, events, records, agent="a", boot="b", sequence=0, sent_ms=0, common={"host": "h"}
    )


def test_a_rank_s_gpu_is_known_by_its_address_and_its_nic_is_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container every rank's GPU is number 0. No record names the NIC that a rank uses.

    But agents report each GPU's address, and where GPUs and NICs sit on the bus.
    """
    monkeypatch.setattr(works, "JOBS_SECONDS", 0.05)
    monkeypatch.setattr(watch, "FULL_LOOK_EVERY", 1)
    batch = batch_of_two_gpus()
    headers = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
    with in_process(tmp_path) as service:

        def ranks() -> list[dict[str, Any]]:
            answer = service.client.get("/v1/jobs/inferred-78/ranks")
            found: list[dict[str, Any]] = answer.json()["items"] if answer.is_success else []
            return found

        content = wire.encode_batch(batch)
        assert service.client.post("/v1/ingest", content=content, headers=headers).is_success
        places: list[dict[str, Any]] = []

        def are_known() -> bool:
            places[:] = ranks()
            return len(places) == 2 and all(place["device"] for place in places)

        eventually(are_known, "its NICs")
    assert [(place["gpu"], place["device"]) for place in places] == [
        ("0", "mlx5_1"),
        ("1", "mlx5_0"),
    ]
    assert {place["origins"]["device"] for place in places} == {"pci"}


def test_a_job_that_only_events_tell_of_runs_as_long_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL's RAS alone: agents say again where their ranks run, and no record is ever made."""
    monkeypatch.setattr(works, "JOBS_SECONDS", 3_600.0)  # by its clock the job ended long ago
    start = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=50)

    def send(service: InProcess, sequence: int, minutes: float) -> None:
        time_ns = round((start + dt.timedelta(minutes=minutes)).timestamp() * 1e9)
        facts = {words.RANKS: "2", words.PID: "10"}
        event = words.communicator_event("0x79", 0, time_ns, facts)
        batch = wire.pack_batch(
            [], [event], agent="a", boot="b", sequence=sequence, sent_ms=0, common={"host": "h"}
        )
        headers = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}
        content = wire.encode_batch(batch)
        assert service.client.post("/v1/ingest", content=content, headers=headers).is_success

    with in_process(tmp_path) as service:
        look_at = watch.JobWatch(service.store, service.inventory)

        def running(minutes: float) -> list[str]:
            assert look_at.look(start + dt.timedelta(minutes=minutes))
            return [job.job for job in service.inventory.jobs.running()]

        send(service, 0, 0.0)
        assert running(0.1) == ["inferred-79"]
        send(service, 1, 12.0)
        assert running(12.1) == ["inferred-79"]
        assert running(26.0) == ["inferred-79"]  # fourteen minutes after the last word of it
        assert running(28.0) == []
