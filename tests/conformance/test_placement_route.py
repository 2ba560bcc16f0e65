"""Placement over HTTP: cables and jobs as the inventory has them, health as the board has it."""

import datetime as dt
import json
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import httpx
import msgspec
import pytest

from api.base.limits import PLACEMENT_HOSTS_MAX, PLACEMENT_SETS_MAX
from api.data.inventory.records import JobChange, JobSaid, JobState, RankSaid
from api.data.inventory.repository import Inventory
from api.data.inventory.sightings import Observation, PortValues, sight
from api.fleet.placement import floors as placing
from collector.contract.catalog import load_catalog
from simulator.topology.build import ClusterSpec, build
from tests.stands.service import ROOT, InProcess, eventually, in_process
from tests.worlds import link_ends
from tests.worlds.topologies import RATE

SPEC = ClusterSpec(topology="rail", hosts=8, hosts_per_leaf=4, nics_per_host=2, gpus_per_host=2)
ACTIVE = 4.0
HOSTS = [f"node{number:04d}" for number in range(8)]


class Stage:
    """A service that has heard of a cluster and of a job on it."""

    def __init__(self, service: InProcess) -> None:
        self.service = service

    def post(self, body: object) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.service.client.post("/v1/placement", content=content)

    def place(self, **asked: Any) -> Any:  # noqa: ANN401 - JSON
        answer = self.post(asked)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    cluster = build(SPEC)
    now = dt.datetime.now(dt.UTC)
    labels = [*link_ends.things(cluster), *link_ends.ends(cluster, of_hosts=True)]
    labels += [
        link_ends.series("fabric_gpu_info", host=host, gpu=str(gpu))
        for host in HOSTS
        for gpu in range(2)
    ]
    found = [sight(each, load_catalog()) for each in labels]
    seen = [Observation.at(each, now) for each in found if each is not None]

    def prepare(inventory: Inventory) -> None:
        inventory.observe(seen)
        ports = {end for cable in link_ends.cables(cluster) for end in (cable.a, cable.b)}
        inventory.set_port_values(
            PortValues(
                host=port.host,
                device=port.device,
                port=port.port,
                seen_at=now,
                state=ACTIVE,
                rate_bits_per_second=RATE,
            )
            for port in sorted(ports)
        )
        ranks = [RankSaid(rank=rank, host=HOSTS[rank]) for rank in range(2)]
        inventory.jobs.register(JobSaid(id="j-17", name="mixtral", ranks=ranks), now)

    with in_process(tmp_path_factory.mktemp("service"), prepare=prepare) as service:
        stage = Stage(service)
        eventually(lambda: stage.post({"size": 1}).status_code == 200, "the first look at health")
        yield stage


def test_a_set_comes_with_its_reasons(stage: Stage) -> None:
    answer = stage.place(size=4, gpus_per_host=2)
    best = answer["sets"][0]
    assert best["hosts"] == HOSTS[4:]
    assert best["expected_bandwidth_bits_per_second"] == 2 * RATE
    assert best["bandwidth_share"] == 1.0
    assert best["why"][-1] == "no running job is on its leaves or uplinks"
    assert answer["refused_kinds"] == {"busy": 2}
    assert answer["none_because"] == ""
    assert abs(answer["as_of"] - time.time()) < 600


def test_the_asker_knows_better_who_is_free(stage: Stage) -> None:
    best = stage.place(size=4, candidates=HOSTS[:4], sets=1)["sets"][0]
    (job,) = best["shared_jobs"]
    assert (job["job"], job["title"], job["hosts"]) == ("j-17", "mixtral", 2)
    assert best["bandwidth_share"] == 0.5, "both use the NICs of two hosts"


def test_a_held_host_is_not_placed_from_the_next_look_on(stage: Stage) -> None:
    client = stage.service.client
    body = {"state": "out", "reason": "NIC is being swapped", "by": "ada"}
    assert client.put(f"/v1/hosts/{HOSTS[7]}/hold", json=body).status_code == 200

    def refused() -> dict[str, str]:
        return {each["host"]: each["kind"] for each in stage.place(size=3)["refused"]}

    eventually(lambda: refused().get(HOSTS[7]) == "out", "the hold is seen")
    assert stage.place(size=4, same_leaf=True, candidates=HOSTS[4:])["sets"] == []
    client.delete(f"/v1/hosts/{HOSTS[7]}/hold", params={"by": "ada"})
    eventually(lambda: HOSTS[7] not in refused(), "the hold has ended")


def test_a_job_that_ends_makes_room(stage: Stage) -> None:
    """The floor is made anew behind an answer, and at once for who asks after a long time."""
    inventory = stage.service.inventory
    now = dt.datetime.now(dt.UTC)
    ranks = [RankSaid(rank=0, host=HOSTS[6]), RankSaid(rank=1, host=HOSTS[7])]
    inventory.jobs.register(JobSaid(id="j-18", ranks=ranks), now)
    with patch.object(placing, "FLOOR_SECONDS", 0.0):
        busy = {"busy": 4}
        eventually(lambda: stage.place(size=1)["refused_kinds"] == busy, "the new job is seen")
    change = {"state": "ended"}
    assert stage.service.client.patch("/v1/jobs/j-18", json=change).status_code == 200
    with (
        patch.object(placing, "FLOOR_SECONDS", 0.0),
        patch.object(placing, "FLOOR_STALE_SECONDS", 0.0),
    ):
        # The first may still get a floor that was being made when the job ended.
        stage.place(size=1)
        assert stage.place(size=1)["refused_kinds"] == {"busy": 2}


def test_the_inventory_knows_where_jobs_run_and_who_has_gpus(inventory: Inventory) -> None:
    """Asked of both kinds of databases."""
    now = dt.datetime.now(dt.UTC)
    things = [link_ends.series("fabric_gpu_info", host="b", gpu=str(gpu)) for gpu in range(2)]
    found = [sight(each, load_catalog()) for each in things]
    inventory.observe(Observation.at(each, now) for each in found if each is not None)
    ranks = [RankSaid(rank=rank, host=host) for rank, host in enumerate("bbaa")]
    inventory.jobs.register(JobSaid(id="j-1", name="mixtral", ranks=ranks), now)
    inventory.jobs.register(JobSaid(id="j-2", hosts=["c"]), now)
    inventory.jobs.register(JobSaid(id="j-3", hosts=["d"]), now)
    inventory.jobs.change("j-3", JobChange(state=JobState.ENDED), now)
    assert [msgspec.structs.astuple(each) for each in inventory.places.running()] == [
        ("j-1", "mixtral", "a", 2),
        ("j-1", "mixtral", "b", 0),
        ("j-2", "j-2", "c", None),
    ]
    assert inventory.places.gpu_counts() == {"b": 2}


@pytest.mark.parametrize(
    ("status", "word", "body"),
    [
        (400, "not JSON", b"{"),
        (422, "size", {}),
        (422, "size", {"size": 0}),
        (422, "size", {"size": PLACEMENT_HOSTS_MAX + 1}),
        (422, "sets", {"size": 1, "sets": PLACEMENT_SETS_MAX + 1}),
        (422, "allow", {"size": 1, "allow": ["out"]}),
        (422, "colour", {"size": 1, "colour": "red"}),
        (422, "candidates", {"size": 1, "candidates": []}),
        (422, "candidates", {"size": 1, "candidates": [""]}),
        (422, "placement_unknown_hosts", {"size": 1, "candidates": ["node9999"]}),
        (422, "placement_unknown_hosts", {"size": 1, "candidates": ["\u0000\u202e"]}),
        (422, "placement_size_over_candidates", {"size": 9}),
        (422, "placement_leaf_too_small", {"size": 5, "same_leaf": True}),
        (422, "placement_all_avoided", {"size": 1, "candidates": HOSTS[:1], "avoid": HOSTS[:1]}),
    ],
)
def test_what_is_wrong_is_named(stage: Stage, status: int, word: str, body: object) -> None:
    answer = stage.post(body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert word in answer.text


def test_the_example_in_the_documentation_works(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "collector/shims"))
    page = (ROOT / "docs/how-to/place-a-job.md").read_text("utf-8")
    code = page.partition("```python\n")[2].partition("\nwith Client")[0]
    shown: dict[str, Any] = {}
    exec(compile(code, "place-a-job.md", "exec"), shown)  # noqa: S102 - our own page
    with shown["Client"](str(stage.service.client.base_url)) as fabric:
        asked = {"same_leaf": True, "avoid": ["leaf-pod0-rail0"]}
        hosts, why = shown["place"](fabric, 4, HOSTS, **asked)
        assert list(hosts) == HOSTS[4:]
        assert "no uplink is used" in why[0]
        assert shown["place"](fabric, 9, HOSTS)[1][0].startswith("cannot be placed: size is 9")


def test_refused_questions_are_counted_by_their_rule(stage: Stage) -> None:
    stage.post({"size": 9})
    numbers = stage.service.client.get("/metrics").text
    assert 'rule="placement_size_over_candidates"' in numbers
