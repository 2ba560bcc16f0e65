"""`POST /v1/what-if` and its verb over a service that knows cables and a simulated job."""

import datetime as dt
import json
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from api.data.inventory.repository import Inventory
from api.data.inventory.sightings import Observation, PortValues, sight
from api.http import works
from api.http.settings import ServiceSettings
from collector.cli import main
from collector.contract import wire
from collector.contract.catalog import load_catalog
from collector.contract.units import NS
from simulator.engine import Simulation
from simulator.readings.batches import Reporter
from simulator.topology.build import build
from tests.stands.service import InProcess, eventually, in_process
from tests.worlds import link_ends
from tests.worlds.simulated_cluster import GPUS_PER_HOST, JOB_HOSTS, small_cluster, small_scenario
from tests.worlds.topologies import RATE

SECONDS, ACTIVE = 20.0, 4.0
NIC = "node0001/mlx5_0/1"
PRICE = 2.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """Cables as pollers name them, and twenty seconds of a job."""
    scenario = small_scenario(seconds=SECONDS, tick_seconds=5.0)
    start_s = scenario.start_unix_ns / NS
    seen_at = dt.datetime.fromtimestamp(start_s + SECONDS, dt.UTC)
    cluster = build(small_cluster())

    def prepare(inventory: Inventory) -> None:
        labels = [*link_ends.things(cluster), *link_ends.ends(cluster, of_hosts=True)]
        found = [sight(each, load_catalog()) for each in labels]
        inventory.observe([Observation.at(each, seen_at) for each in found if each is not None])
        ports = {end for cable in link_ends.cables(cluster) for end in (cable.a, cable.b)}
        inventory.set_port_values(
            PortValues(
                host=port.host,
                device=port.device,
                port=port.port,
                seen_at=seen_at,
                state=ACTIVE,
                rate_bits_per_second=RATE,
            )
            for port in sorted(ports)
        )

    data = tmp_path_factory.mktemp("service")
    settings = ServiceSettings(data=str(data), price_per_gpu_hour=PRICE, currency="EUR")
    reporter = Reporter(cluster, "lab", scenario.start_unix_ns, seed=5, poller=None)
    headers = {"content-type": wire.CONTENT_TYPE, "content-encoding": "zstd"}
    with (
        patch.object(works, "JOBS_SECONDS", 0.5),
        in_process(
            data, settings=settings, clock=lambda: start_s + SECONDS, prepare=prepare
        ) as running,
    ):
        for snapshot in Simulation(scenario).run():
            for body in reporter.batches(snapshot):
                answer = running.client.post("/v1/ingest", content=body, headers=headers)
                assert answer.status_code == 200, answer.text
        eventually(lambda: is_known(running), "the job, its NICs and rings are known")
        yield running


def is_known(service: InProcess) -> bool:
    """Whether every rank's NIC and every communicator's ring have been found."""
    places = service.inventory.jobs.ranks("train")
    return (
        len(places) == JOB_HOSTS * GPUS_PER_HOST
        and all(place.device for place in places)
        and all(one.rings for one in service.inventory.jobs.communicators("train"))
    )


def ask(service: InProcess, status: int = 200, **asked: Any) -> dict[str, Any]:  # noqa: ANN401
    """The answer."""
    answer = service.client.post("/v1/what-if", content=json.dumps(asked).encode())
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_slower_nic_makes_steps_longer_and_has_a_price(service: InProcess) -> None:
    told = ask(service, speed=[{"link": NIC, "bits_per_second": RATE // 2}])
    (one,) = told["jobs"]
    assert (one["job"], one["cannot_tell"], one["stops_because"]) == ("train", [], "")
    assert one["is_affected"]
    assert 0.2 < one["step_seconds"] < 0.4
    assert one["transfer_seconds_expected"] == pytest.approx(2 * one["transfer_seconds"], rel=0.05)
    low, high = one["step_seconds_range"]
    assert low <= one["step_seconds"] < one["step_seconds_expected"] <= high
    assert one["money_per_day"] == pytest.approx(PRICE * one["gpu_hours_per_day"])
    assert one["bottleneck_expected"]["bits_per_second"] == RATE / 2
    assert NIC in one["bottleneck_expected"]["link"]
    assert told["changes"][0].endswith("at 200 Gb/s; it is 400 Gb/s")
    assert (told["jobs_left_out"], told["unknown"]) == (0, [])


def test_without_its_nic_a_rank_is_cut_off(service: InProcess) -> None:
    (one,) = ask(service, drop=[NIC])["jobs"]
    assert "node0001/mlx5_0" in one["stops_because"]
    assert one["step_seconds_expected"] is None


def test_a_rank_may_move_to_an_idle_host(service: InProcess) -> None:
    moves = [{"job": "train", "rank": rank, "host": "node0005"} for rank in (2, 3)]
    told = ask(service, move=moves)
    (one,) = told["jobs"]
    assert one["cannot_tell"] == []
    assert one["step_seconds_expected"] == pytest.approx(one["step_seconds"], rel=0.05)
    assert "same_rings" in told["assumes"]


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ({"drop": ["leaf-nine/3"]}, 404, "drop='leaf-nine/3'"),
        ({"drop": [NIC.replace("0001", "0091")]}, 404, "did you mean node0001"),
        ({"move": [{"job": "train", "rank": 1, "host": "node0099"}]}, 404, "node0099"),
        ({"move": [{"job": "trian", "rank": 1, "host": "node0005"}]}, 404, "train"),
        ({}, 422, "nothing is changed"),
        ({"drop": [NIC], "double": [NIC]}, 422, "more than once"),
        ({"drop": [NIC] * 65}, 422, "64"),
        ({"drop": [NIC], "seconds": 1e9}, 422, "3600"),
        ({"dorp": [NIC]}, 422, "dorp"),
    ],
)
def test_what_cannot_be_tried_is_named(
    service: InProcess, asked: dict[str, Any], status: int, words: str
) -> None:
    problem = ask(service, status, **asked)
    assert words in problem["detail"], problem


def test_the_verb_prints_a_table(service: InProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["what-if", "--speed", f"{NIC}=200G", "--service", str(service.client.base_url)]) == 0
    )
    text = capsys.readouterr().out
    assert "at 200 Gb/s" in text
    row = next(line for line in text.splitlines() if line.endswith(" train"))
    assert "+" in row
    assert "limited by" in text
    assert "EUR" in text
    assert (
        main(["what-if", "--drop", NIC, "--json", "--service", str(service.client.base_url)]) == 0
    )
    assert json.loads(capsys.readouterr().out)["jobs"][0]["job"] == "train"
    assert (
        main(["what-if", "--drop", "leaf-nine/3", "--service", str(service.client.base_url)]) == 1
    )
    assert "leaf-nine" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--move", "train=x"], ["--speed", "leaf-0/3=fast"], []])
def test_the_verb_refuses_what_is_no_change(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["what-if", *words, "--service", "http://127.0.0.1:9"]) == 2
    error = capsys.readouterr().err
    assert ("write " if words else "nothing is changed") in error
