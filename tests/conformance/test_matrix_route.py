"""A job's traffic over HTTP: simulated jobs against the counters of their NICs, and a capture."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from alerts.traffic.flows import messages_of, sums_of, traffic_of
from alerts.traffic.matrix import check_of, matrix_of, misfit, sent_and_received
from alerts.traffic.places import By, Places, places_of
from alerts.window.columns import Flags
from alerts.window.model import JobWindow, Window
from api.data.inventory.repository import Inventory
from api.data.store.store import Store
from api.http import turns, works
from api.jobs.correlate import pattern, traffic
from api.jobs.correlate.pattern import read_pattern
from api.jobs.correlate.read import Question
from collector.contract import wire
from collector.contract.units import NS
from simulator.engine import Simulation
from simulator.readings.batches import Reporter
from simulator.topology.model import Fabric
from tests.stands.service import READY_SECONDS, InProcess, eventually, in_process
from tests.tools.captures import RINGS
from tests.worlds.simulated_cluster import GPUS_PER_HOST, JOB_HOSTS, small_job, small_scenario
from tests.worlds.windows import capture_window

SECONDS, FROM_S, TO_S = 40.0, 10, 35
EXPERTS, STAGES = "train", "pipe"
"""Data-parallel with experts on four hosts; two stages of a pipeline on the other two."""
PAYLOAD = 4096 / (4096 + 26)
"""Of an InfiniBand packet of 4 KiB."""
"""Beside the checkout, where it is."""


@pytest.fixture(autouse=True)
def asks_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds change from test to test, so no answer stands for the next."""
    monkeypatch.setattr(turns, "ANSWER_KEPT_SECONDS", 0.0)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    jobs = (
        small_job(name=EXPERTS, expert=JOB_HOSTS),
        small_job(name=STAGES, hosts=(4, 5), pipeline=2),
    )
    scenario = small_scenario(Fabric.INFINIBAND, *jobs, seconds=SECONDS, tick_seconds=5.0)
    simulation = Simulation(scenario)
    start_ns = simulation.scenario.start_unix_ns
    now = start_ns / NS + SECONDS
    reporter = Reporter(simulation.topology, "lab", start_ns, seed=5, poller=None)
    headers = {"content-type": wire.CONTENT_TYPE, "content-encoding": "zstd"}
    with (
        patch.object(works, "JOBS_SECONDS", 0.5),
        in_process(tmp_path_factory.mktemp("service"), clock=lambda: now) as running,
    ):
        for snapshot in simulation.run():
            for body in reporter.batches(snapshot):
                answer = running.client.post("/v1/ingest", content=body, headers=headers)
                assert answer.status_code == 200, answer.text
        eventually(lambda: are_known(running), "jobs, their members and NICs are known")
        yield running


def are_known(service: InProcess) -> bool:
    """Whether every rank's NIC and every communicator's ring have been found."""
    for job, ranks in ((EXPERTS, JOB_HOSTS * GPUS_PER_HOST), (STAGES, 2 * GPUS_PER_HOST)):
        places = service.inventory.jobs.ranks(job)
        if len(places) < ranks or not all(place.device for place in places):
            return False
        if not all(one.rings for one in service.inventory.jobs.communicators(job)):
            return False
    return True


def ask(service: InProcess, job: str, **parameters: str | int) -> dict[str, Any]:
    """The answer about the middle of the run."""
    start_s = round(small_scenario().start_unix_ns / NS)
    stretch: dict[str, str | int] = {"from": start_s + FROM_S, "to": start_s + TO_S}
    answer = service.client.get(f"/v1/jobs/{job}/matrix", params=stretch | parameters)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def cells(answer: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """By the names of both ends."""
    return {(cell["source"], cell["target"]): cell for cell in answer["cells"]}


@pytest.mark.rotating(3, turn=1)
def test_modelled_bytes_are_those_that_nics_count_but_for_headers(service: InProcess) -> None:
    for job, nics in ((EXPERTS, JOB_HOSTS * GPUS_PER_HOST), (STAGES, 2 * GPUS_PER_HOST)):
        check = ask(service, job)["check"]
        assert (check["nics"], check["nics_shared"]) == (nics, 0)
        assert check["ratio"] == pytest.approx(PAYLOAD, abs=0.02)
        assert check["median_ratio"] == pytest.approx(PAYLOAD, abs=0.02)
        assert all(one["ratio"] == pytest.approx(PAYLOAD, abs=0.03) for one in check["worst"])


def test_more_nics_than_can_be_listed_are_counted_alike(
    service: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = ask(service, EXPERTS, by="nic")
    monkeypatch.setattr(traffic, "SERIES_ASKED_MAX", 1)
    assert ask(service, EXPERTS, by="nic")["check"] == listed["check"]
    assert listed["check"]["counted_bytes"] > 0


def test_a_matrix_by_another_kind_of_place_reads_the_traffic_once(
    service: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "ANSWER_KEPT_SECONDS", 60.0)
    with patch("api.http.routes.matrix.read_pattern", side_effect=read_pattern) as read:
        stretch: dict[str, str | int] = {
            "to": round(small_scenario().start_unix_ns / NS) + TO_S - 1
        }
        for by in ("host", "nic", "rank", "rail"):
            assert ask(service, EXPERTS, by=by, **stretch)["cells"]
    assert read.call_count == 1


def test_counters_are_read_while_the_store_adds_up(service: InProcess) -> None:
    """The sums take half of an answer's time, and need nothing of the topology and the counters."""
    is_counted = threading.Event()

    def add_up(store: Store, found: traffic.Found) -> traffic.Read:
        assert is_counted.wait(READY_SECONDS), "the counters wait for the sums"
        return traffic.read_traffic(store, found)

    def shared_nics(
        inventory: Inventory, job: str, nics: Sequence[tuple[str, str]], span_ns: tuple[int, int]
    ) -> Flags:
        is_counted.set()
        return own(inventory, job, nics, span_ns)

    own = pattern.shared_nics
    with (
        patch.object(pattern, "read_traffic", add_up),
        patch.object(pattern, "shared_nics", shared_nics),
    ):
        end_s = round(small_scenario().start_unix_ns / NS) + TO_S - 2
        assert ask(service, EXPERTS, to=end_s)["check"]["counted_bytes"] > 0


def test_data_parallel_rings_stand_out_and_stay_on_their_rails(service: InProcess) -> None:
    answer = ask(service, EXPERTS, by="nic")
    largest = answer["cells"][: JOB_HOSTS * GPUS_PER_HOST]
    ends = {(cell["source"], cell["target"]) for cell in largest}
    assert ends == {
        (f"node000{host}/mlx5_{rail}", f"node000{(host + 1) % JOB_HOSTS}/mlx5_{rail}")
        for host in range(JOB_HOSTS)
        for rail in range(GPUS_PER_HOST)
    }
    assert {cell["how"] for cell in largest} == {"modelled"}
    for cell in largest:
        assert cell["bytes_per_second"] == pytest.approx(cell["bytes"] / (TO_S - FROM_S))
        # 400 Gb/s, and the ring has it all while it is at it.
        assert 40e9 < cell["transfer_bytes_per_second"] < 50e9
    rails = ask(service, EXPERTS, by="rail")
    assert set(cells(rails)) == {(str(rail), str(rail)) for rail in range(GPUS_PER_HOST)}
    (balance,) = [one for one in rails["balance"] if one["over"] == "rail"]
    assert balance["is_counted"]
    assert balance["highest_by_mean"] == pytest.approx(1.0, abs=0.01)
    assert balance["standing_out"] == []


def test_experts_show_as_a_block_in_which_everyone_sends_to_everyone(service: InProcess) -> None:
    answer = ask(service, EXPERTS, by="rank")
    assert "equal_parts" in answer["assumptions"]
    found = cells(answer)
    for rail in range(GPUS_PER_HOST):
        members = range(rail, JOB_HOSTS * GPUS_PER_HOST, GPUS_PER_HOST)
        block = [
            found[str(one), str(other)] for one in members for other in members if one != other
        ]
        assert len(block) == JOB_HOSTS * (JOB_HOSTS - 1)
        assert all(not cell["is_local"] for cell in block)
    # Between the rails there is only NVLink, inside the hosts.
    across = [cell for (one, other), cell in found.items() if (int(one) - int(other)) % 2]
    assert across
    assert all(cell["is_local"] for cell in across)


def test_sends_between_pipeline_stages_are_measured(service: InProcess) -> None:
    answer = ask(service, STAGES, by="rank")
    found = cells(answer)
    for rank in range(GPUS_PER_HOST):
        for ends in (str(rank), str(rank + 2)), (str(rank + 2), str(rank)):
            assert found[ends]["how"] == "measured"
            assert found[ends]["measured_bytes"] == found[ends]["bytes"] > 0
            assert 20e9 < found[ends]["transfer_bytes_per_second"] < 60e9
    assert found["0", "1"]["how"] == "modelled"
    assert found["0", "1"]["is_local"]


def stages(service: InProcess, job: str) -> dict[str, Any]:
    start_s = round(small_scenario().start_unix_ns / NS)
    parameters = {"from": start_s + FROM_S, "to": start_s + TO_S}
    answer = service.client.get(f"/v1/jobs/{job}/stages", params=parameters)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_job_whose_stages_are_not_known_says_why(service: InProcess) -> None:
    """Simulated ranks meet in messages at once, so that no step of theirs can be told apart."""
    for job, words in ((EXPERTS, "no sends and receives"), (STAGES, "does not add up")):
        answer = stages(service, job)
        (reason,) = answer["unknown"]
        assert words in reason
        assert (answer["stages"], answer["bubble_share"], answer["pace"]) == ([], None, None)


def test_a_nic_that_sends_to_one_other_has_its_own_count_in_the_cell(service: InProcess) -> None:
    found = cells(ask(service, STAGES, by="nic"))
    cell = found["node0004/mlx5_0", "node0005/mlx5_0"]
    assert cell["bytes"] / cell["counted_bytes"] == pytest.approx(PAYLOAD, abs=0.03)
    assert all(one["counted_bytes"] is None for one in ask(service, STAGES, by="host")["cells"])


def test_what_is_not_shown_is_added_up(service: InProcess) -> None:
    whole, part = ask(service, EXPERTS, by="gpu"), ask(service, EXPERTS, by="gpu", limit=3)
    assert part["cells"] == whole["cells"][:3]
    assert part["cells_left_out"] == len(whole["cells"]) - 3
    assert part["bytes_left_out"] == pytest.approx(
        sum(cell["bytes"] for cell in whole["cells"][3:]), abs=len(whole["cells"])
    )
    total = sum(cell["bytes"] for cell in whole["cells"])
    assert total + whole["nameless_bytes"] == pytest.approx(whole["bytes"], rel=1e-6)
    assert whole["unplaced_bytes"] == 0
    local = sum(cell["bytes"] for cell in whole["cells"] if cell["is_local"])
    assert local == pytest.approx(whole["local_bytes"], rel=1e-6)


def test_the_rhythm_is_that_of_the_steps(service: InProcess) -> None:
    rhythm = ask(service, EXPERTS)["rhythm"]
    assert 0.2e9 < rhythm["period_ns"] < 0.6e9
    assert rhythm["byte_period_ns"] == pytest.approx(rhythm["period_ns"], rel=0.03)
    assert rhythm["periods"] == pytest.approx((TO_S - FROM_S) * NS / rhythm["period_ns"], rel=0.1)
    assert {phase["is_sending"] for phase in rhythm["phases"]} == {True, False}
    assert [one["host"] for one in rhythm["hosts"]] == [f"node000{host}" for host in range(4)]
    assert 0.2 < rhythm["duty"] < 0.9


def test_a_part_of_the_time_stands_for_all_of_it(service: InProcess) -> None:
    whole = ask(service, EXPERTS)
    with (
        patch.object(traffic, "RECORDS_MAX", whole["operations_seen"] * 2),
        patch.object(traffic, "RHYTHM_RECORDS_MAX", 1000),
    ):
        part = ask(service, EXPERTS)
    assert whole["looked_at"] == 1
    assert part["looked_at"] < 0.8
    assert part["operations_seen"] < 0.8 * whole["operations_seen"]
    assert part["bytes"] == pytest.approx(whole["bytes"], rel=0.05)
    assert part["rhythm"]["periods"] < whole["rhythm"]["periods"]


def test_records_that_agents_thinned_count_for_those_they_left_out(service: InProcess) -> None:
    whole = ask(service, EXPERTS)
    where = Question.__init__

    def thinned(question: Question, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
        where(question, *arguments, **named)
        question.where += " AND sequence % 4 = 0"

    with patch.object(Question, "__init__", thinned):
        part = ask(service, EXPERTS)
    assert part["operations_seen"] < 0.3 * whole["operations_seen"]
    assert part["operations"] == pytest.approx(whole["operations"], rel=0.05)
    assert part["bytes"] == pytest.approx(whole["bytes"], rel=0.25)


def test_a_time_without_records_and_a_job_that_is_not_there(service: InProcess) -> None:
    empty = service.client.get(f"/v1/jobs/{EXPERTS}/matrix", params={"from": 1, "to": 100}).json()
    assert (empty["cells"], empty["check"], empty["bytes"]) == ([], None, 0)
    assert empty["rhythm"]["period_ns"] is None
    assert service.client.get("/v1/jobs/nobody/matrix").status_code == 404
    for wrong in ({"by": "rack"}, {"limit": 0}, {"limit": 10**9}):
        assert service.client.get(f"/v1/jobs/{EXPERTS}/matrix", params=wrong).status_code == 422


# A real ring of eight ----------------------------------------------------------------------------


def counted_by(window: Window, places: Places) -> np.ndarray:
    """What each NIC sent in the window, by its counter."""
    rate = window.ports.values("transmit_bytes_total")
    sent = np.nansum(rate, axis=1) * window.ports.grid.step_ns / NS
    rows = [window.ports.rows_of_device[nic] for nic in places.nics]
    return np.array([sent[own].sum() for own in rows])


def modelled_by(job: JobWindow, places: Places, *, is_tree: bool) -> np.ndarray:
    """What each NIC sent by the model."""
    found = traffic_of(
        [sums_of(job.operations)],
        messages_of(job.records),
        job.communicators,
        places,
        is_tree=is_tree,
    )
    return sent_and_received(matrix_of(found.flows, places, By.NIC).cells, len(places.nics))[0]


@pytest.mark.skipif(not RINGS.is_dir(), reason="the captures are not here")
@pytest.mark.parametrize(("run", "is_tree"), [("healthy", False), ("tree_net2", True)])
def test_a_real_job_sends_what_the_model_says(run: str, is_tree: bool) -> None:  # noqa: FBT001
    window = capture_window(RINGS / run)
    job = max(window.jobs, key=lambda one: len(one.operations))
    places = places_of(job.ranks)
    counted = counted_by(window, places)
    check = check_of(modelled_by(job, places, is_tree=is_tree), counted)
    assert check is not None
    assert check.nics == len(places.nics) == 8
    assert check.ratio == pytest.approx(1.0, abs=0.02)
    # The counters know which of the two it was, although no record says it.
    right, wrong = (
        misfit(modelled_by(job, places, is_tree=each), counted) for each in (is_tree, not is_tree)
    )
    assert right < 0.01
    assert wrong > 0.05
