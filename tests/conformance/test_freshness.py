"""How old what can be seen is: `/v1/freshness` of a service whose senders fall silent."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from api.base.limits import DATA_LATE_SECONDS, EVALUATION_STALE_SECONDS
from api.data.inventory.sightings import Observation, sight
from collector.contract.catalog import load_catalog
from collector.contract.identity import METRIC_LABEL, canonical_labels
from tests.stands.service import InProcess, in_process
from tests.worlds.remote_write import V1_HEADERS, TimeSeries, request_v1, snappy

START_S = 1_794_733_200.0


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now_s = START_S

    def __call__(self) -> float:
        return self.now_s


def ask(service: InProcess) -> dict[str, Any]:
    answer = service.client.get("/v1/freshness")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def send(service: InProcess, time_s: float) -> None:
    """One sample of that time from another exporter."""
    labels = (("__name__", "node_load1"), ("instance", "node1"))
    body = snappy(request_v1([TimeSeries(labels, [(1.0, round(time_s * 1000))])]))
    answer = service.client.post("/api/v1/write", content=body, headers=V1_HEADERS)
    assert answer.status_code == 204, answer.text


def test_data_is_as_old_as_the_newest_sample(tmp_path: Path) -> None:
    clock = Clock()
    with in_process(tmp_path, clock=clock) as service:
        none_yet = ask(service)["data"]
        assert none_yet == {
            "at": None,
            "age_seconds": None,
            "bound_seconds": DATA_LATE_SECONDS,
            "is_late": True,
        }
        send(service, START_S - 10)
        data = ask(service)["data"]
        assert (data["age_seconds"], data["is_late"]) == (10.0, False)
        clock.now_s += DATA_LATE_SECONDS
        data = ask(service)["data"]
        assert (data["age_seconds"], data["is_late"]) == (DATA_LATE_SECONDS + 10, True)
        # A sender whose clock is ahead hides no silence.
        send(service, clock.now_s + 30)
        assert ask(service)["data"]["age_seconds"] == 0.0
        clock.now_s += DATA_LATE_SECONDS + 1
        assert ask(service)["data"]["is_late"]


def test_data_that_another_process_received_counts(tmp_path: Path) -> None:
    labels = canonical_labels({METRIC_LABEL: "fabric_host_load1", "host": "node1"})
    seen = sight(labels, load_catalog())
    assert seen is not None
    moment = dt.datetime.fromtimestamp(START_S - 20, tz=dt.UTC)
    with in_process(
        tmp_path,
        clock=Clock(),
        prepare=lambda inventory: inventory.observe([Observation.at(seen, moment)]),
    ) as service:
        data = ask(service)["data"]
        assert (data["age_seconds"], data["is_late"]) == (20.0, False)


@pytest.mark.parametrize(
    ("age_s", "late"), [(5.0, False), (EVALUATION_STALE_SECONDS + 1, True), (None, True)]
)
def test_the_last_evaluation_has_an_age_of_its_own(
    tmp_path: Path,
    age_s: float | None,
    late: object,
) -> None:
    moment = None if age_s is None else dt.datetime.fromtimestamp(START_S - age_s, tz=dt.UTC)
    with in_process(tmp_path, clock=Clock()) as service:
        with patch.object(service.context.incidents, "evaluated_at", lambda: moment):
            found = ask(service)
        assert found["now"] == dt.datetime.fromtimestamp(START_S, tz=dt.UTC).isoformat().replace(
            "+00:00", "Z"
        )
        assert (found["evaluation"]["age_seconds"], found["evaluation"]["is_late"]) == (
            age_s,
            late,
        )
