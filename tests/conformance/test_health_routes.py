"""Health over HTTP: a scheduler's questions, an operator's holds, a watcher's stream."""

import contextlib
import datetime as dt
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from api.data.inventory.records import DeviceKind
from api.data.inventory.sightings import LinkEnd, Observation, Sighting
from api.fleet.health import board
from api.http.routes import fleet_health
from api.http.routes.shared import streams
from api.oncall.evaluate import changes, lead, task
from collector.contract.units import NS
from collector.contract.verdict import Verdict
from tests.stands.service import InProcess, eventually, in_process
from tests.stands.strangers import JSON
from tests.worlds.incidents import HOLDER, Teller, slow_link, straggler
from tests.worlds.streams import Listener

ROOT = Path(__file__).parents[2]
HOSTS = ("node1", "node3", "node4", "node9")
RAILS = 2


class Stage:
    """A service, a `Teller` that gives it verdicts, and the requests of this file."""

    def __init__(self, service: InProcess) -> None:
        self.service = service
        self.client = service.client
        self.url = str(service.client.base_url)
        self._teller = Teller(service.inventory, service.store)

    def say(self, *verdicts: Verdict) -> None:
        """These verdicts, now; without any, what stood is over."""
        now_ns = time.time_ns()
        self._teller.say(now_ns if verdicts else now_ns + 900 * NS, *verdicts)

    def get(self, path: str, status: int = 200, **asked: Any) -> Any:  # noqa: ANN401 - JSON
        """The answer to a question."""
        answer = self.client.get(path, **asked)
        assert answer.status_code == status, answer.text
        return answer.json()

    def states(self) -> dict[str, str]:
        """Hosts and their states."""
        return {each["host"]: each["state"] for each in self.get("/v1/health")["items"]}

    def becomes(self, **states: str) -> None:
        """Wait until hosts are in these states."""
        eventually(lambda: states.items() <= self.states().items(), f"{states}")


def cabled(host: str, rail: int) -> Iterator[Sighting]:
    """A NIC that a leaf sees."""
    device = f"mlx5_{rail}"
    end = LinkEnd(
        device=device, port="1", method="lldp", peer_name=f"leaf{rail}", peer_port=f"swp-{host}"
    )
    yield Sighting(host=host, kind=DeviceKind.RDMA, device=device, port="1", link=end)
    yield Sighting(host=host, kind=DeviceKind.GPU, device=str(rail))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A service that looks often and whose own evaluator sleeps; it leads, as the `Teller` does."""
    with contextlib.ExitStack() as stack:
        for place, name, value in (
            (task, "EVALUATE_SECONDS", 1e6),
            (lead, "RENEW_SECONDS", 1e6),
            (lead, "LEASE_SECONDS", 1e6),
            (lead, "name_holder", lambda: HOLDER),
            (changes, "FOLLOW_SECONDS", 0.02),
            (board, "LOOK_SECONDS", 0.02),
            (board, "SERIES_SECONDS", 0.1),
            (streams, "LIVE_QUIET_SECONDS", 0.1),
        ):
            stack.enter_context(patch.object(place, name, value))
        now = dt.datetime.now(dt.UTC)
        seen = [
            Observation.at(sighting, now)
            for host in HOSTS
            for rail in range(RAILS)
            for sighting in cabled(host, rail)
        ]
        folder = tmp_path_factory.mktemp("service")
        service = stack.enter_context(
            in_process(folder, prepare=lambda inventory: inventory.observe(seen))
        )
        stage = Stage(service)
        now_ns = time.time_ns()
        stage.say(slow_link(now_ns - NS), straggler(now_ns - NS))
        stage.becomes(node1="healthy", node3="degraded", node4="healthy", node9="suspect")
        yield stage


# --- the fleet ----------------------------------------------------------------------------------


def test_a_scheduler_sees_every_host_once_with_its_reasons(stage: Stage) -> None:
    fleet = stage.get("/v1/health")
    assert fleet["stale"] == []
    assert fleet["counts"] == {"healthy": 2, "suspect": 1, "degraded": 1, "draining": 0, "out": 0}
    one, three, *_ = fleet["items"]
    assert one == {"host": "node1", "state": "healthy", "risk": 0.0, "lemon": 0.0}
    assert (three["host"], three["state"], three["risk"]) == ("node3", "degraded", 0.9)
    assert three["reasons"][0].startswith("slow_link (nic) of device mlx5_0, open, ")
    assert three["since_ns"] > 0


def test_questions_choose(stage: Stage) -> None:
    def names(**asked: Any) -> list[str]:  # noqa: ANN401 - any parameter
        items = stage.get("/v1/health", params=asked)["items"]
        return [each.get("name", each["host"]) for each in items]

    assert names(state=["degraded", "out"]) == ["node3"]
    assert names(state=["suspect", "degraded"]) == ["node3", "node9"]
    assert names(min_risk=0.5) == ["node3"]
    assert names(kind="device") == ["node3/mlx5_0"]
    assert names(kind="link", state="healthy") == []
    assert names(kind="gpu") == ["node9/1"]
    stage.get("/v1/health", status=422, params={"state": "broken"})
    stage.get("/v1/health", status=422, params={"wait": "61"})
    stage.get("/v1/health", status=422, params={"min_risk": "nan"})


def test_what_is_known_is_not_sent_again(stage: Stage) -> None:
    first = stage.client.get("/v1/health")
    tag = first.headers["etag"]
    assert tag.startswith('W/"')
    for known in (tag, tag.removeprefix("W/"), f'"other", {tag}'):
        again = stage.client.get("/v1/health", headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
    other = stage.client.get("/v1/health", headers={"If-None-Match": '"other"'})
    assert (other.status_code, other.content) == (200, first.content)
    some = stage.client.get("/v1/health", params={"state": "degraded"})
    assert some.headers["etag"] != tag


def test_a_large_answer_is_packed_once_for_all_who_take_it(stage: Stage) -> None:
    plain = stage.client.get("/v1/health", headers={"Accept-Encoding": "identity"})
    with patch.object(fleet_health, "PACKED_BYTES_MIN", 0):
        packed = stage.client.get("/v1/health", headers={"Accept-Encoding": "gzip"})
        again = stage.client.get("/v1/health", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert "content-encoding" not in again.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content == again.content
    assert packed.headers["etag"] == plain.headers["etag"]
    assert {packed.headers["vary"], plain.headers["vary"]} == {"Accept-Encoding"}


def test_a_scheduler_may_wait_for_a_change(stage: Stage) -> None:
    tag = stage.client.get("/v1/health").headers["etag"]
    known = {"If-None-Match": tag}
    in_vain = stage.client.get("/v1/health", params={"wait": 0.05}, headers=known)
    assert in_vain.status_code == 304
    body = {"state": "draining", "reason": "a cable", "by": "ada"}
    assert stage.client.put("/v1/hosts/node1/hold", json=body).status_code == 200
    changed = stage.client.get("/v1/health", params={"wait": 60}, headers=known)
    assert changed.status_code == 200
    assert changed.json()["counts"]["draining"] == 1
    stage.client.delete("/v1/hosts/node1/hold", params={"by": "ada"})
    stage.becomes(node1="healthy")


def test_waiting_is_bounded(stage: Stage) -> None:
    tag = stage.client.get("/v1/health").headers["etag"]
    with patch.object(board, "HEALTH_WAITERS_MAX", 0):
        asked = {"params": {"wait": 5}, "headers": {"If-None-Match": tag}}
        problem = stage.get("/v1/health", status=503, **asked)
    assert problem["rule"] == "HEALTH_WAITERS_MAX"


def test_health_of_the_past_is_refused_by_name(stage: Stage) -> None:
    """A board that does not look, as when its inventory is away: clients must not act on it."""
    with patch.object(board, "HEALTH_STALE_SECONDS", -1.0):
        for path in ("/v1/health", "/v1/hosts/node3/health", "/v1/hosts?state=healthy"):
            problem = stage.get(path, status=503)
            assert (problem["title"], problem["rule"]) == ("stale health", "HEALTH_STALE_SECONDS")
        assert stage.get("/v1/hosts/node3")["state"] is None, "it still exists"


# --- hosts --------------------------------------------------------------------------------------


def test_lists_of_hosts_show_and_choose_by_health(stage: Stage) -> None:
    whole = stage.get("/v1/hosts")["items"]
    assert {each["host"]: each["state"] for each in whole} == stage.states()

    def names(**asked: Any) -> list[str]:  # noqa: ANN401 - any parameter
        return [each["host"] for each in stage.get("/v1/hosts", params=asked)["items"]]

    assert names(state="degraded") == ["node3"]
    assert names(min_risk=0.1) == ["node3", "node9"]
    page = stage.get("/v1/hosts", params={"state": "healthy", "limit": 1})
    assert [each["host"] for each in page["items"]] == ["node1"]
    rest = stage.get("/v1/hosts", params={"state": "healthy", "after": page["next"]})
    assert ([each["host"] for each in rest["items"]], rest["next"]) == (["node4"], None)
    problem = stage.get("/v1/hosts", status=422, params={"role": "switch", "state": "healthy"})
    assert "switches" in problem["detail"]


def test_a_rail_asks_for_the_nic_on_it(stage: Stage) -> None:
    def names(**asked: Any) -> list[str]:  # noqa: ANN401 - any parameter
        return [each["host"] for each in stage.get("/v1/hosts", params=asked)["items"]]

    assert names(rail=0, state="degraded") == ["node3"]
    assert names(rail=1, state="degraded") == []
    assert names(rail=1, state="healthy") == list(HOSTS)
    assert names(rail=0) == list(HOSTS)
    assert names(rail=7) == []


def test_one_host_is_explained_by_the_verdicts_behind_it(stage: Stage) -> None:
    found = stage.get("/v1/hosts/node3/health")
    assert (found["state"], found["risk"], found["is_lemon"]) == ("degraded", 0.9, False)
    [reason] = found["reasons"]
    assert reason["text"] == "node3's NIC is slow"
    assert (reason["cause"], reason["reason"], reason["about"]) == (
        "slow_link",
        "nic",
        "device mlx5_0",
    )
    assert stage.get(f"/v1/incidents/{reason['incident']}")["state"] == "open"
    devices = {each["name"]: (each["state"], each["rail"]) for each in found["devices"]}
    assert devices == {"node3/mlx5_0": ("degraded", 0), "node3/mlx5_1": ("healthy", 1)}
    links = {each["name"]: (each["state"], each["rail"]) for each in found["links"]}
    assert links == {"node3/mlx5_0/1": ("suspect", 0), "node3/mlx5_1/1": ("healthy", 1)}
    assert [each["name"] for each in found["gpus"]] == ["node3/0", "node3/1"]
    turned = [(each["kind"], each["state"], each["was"]) for each in found["history"]]
    assert ("host", "degraded", "healthy") in turned
    assert found["last_seen_ns"] > 0
    assert found["silent_since_ns"] is None


def test_an_unknown_host_is_named_and_near_ones_are_offered(stage: Stage) -> None:
    for path in ("/v1/hosts/node33/health", "/v1/hosts/%00/health"):
        problem = stage.get(path, status=404)
        assert problem["title"] == "no such host"
    for path in ("/v1/hosts/node33/health", "/v1/hosts/node33"):
        assert "did you mean" in stage.get(path, status=404)["detail"]
    body = {"state": "out", "reason": "x", "by": "ada"}
    assert stage.client.put("/v1/hosts/nobody/hold", json=body).status_code == 404


# --- holds --------------------------------------------------------------------------------------


def test_an_operator_takes_a_host_out_and_lets_it_back(stage: Stage) -> None:
    body = {"state": "out", "reason": "GPU 3 is being\nswapped", "by": "ada", "hours": 2}
    made = stage.client.put("/v1/hosts/node4/hold", json=body)
    assert made.status_code == 200, made.text
    assert made.json()["until_ns"] - made.json()["since_ns"] == 2 * 3_600 * NS
    stage.becomes(node4="out")
    [listed] = stage.get("/v1/holds")["items"]
    assert listed == made.json()
    entry = stage.get("/v1/hosts", params={"state": "out"})["items"][0]
    assert entry["reasons"] == ["out by ada: GPU 3 is being\ufffdswapped"]
    again = {"state": "draining", "reason": "it is back", "by": "bob"}
    assert stage.client.put("/v1/hosts/node4/hold", json=again).json()["until_ns"] is None
    ended = stage.client.delete("/v1/hosts/node4/hold", params={"by": "eve"})
    assert (ended.status_code, ended.json()["ended_by"]) == (200, "eve")
    stage.becomes(node4="healthy")
    record = [
        (each["by"], each["ended_by"]) for each in stage.get("/v1/hosts/node4/health")["holds"]
    ]
    assert record == [("bob", "eve"), ("ada", "bob")]
    assert stage.get("/v1/holds")["items"] == []


def put(stage: Stage, **body: object) -> httpx.Response:
    whole = {"state": "out", "reason": "x", "by": "ada", **body}
    given = {name: value for name, value in whole.items() if value is not None}
    return stage.client.put("/v1/hosts/node4/hold", json=given)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"state": "healthy"}, "state"),
        ({"state": "degraded"}, "state"),
        ({"reason": ""}, "reason"),
        ({"reason": "x" * 3_000}, "reason"),
        ({"by": None}, "by"),
        ({"more": 1}, "more"),
        ({"hours": 0}, "hours"),
        ({"hours": 1, "until": "2030-01-01T00:00:00Z"}, "not both"),
        ({"until": "2020-01-01T00:00:00Z"}, "after now"),
        ({"until": "9999-01-01T00:00:00Z"}, "366 days"),
        ({"until": "2030-01-01T00:00:00"}, "until"),
    ],
)
def test_what_is_no_hold_is_refused(stage: Stage, body: dict[str, object], words: str) -> None:
    answer = put(stage, **body)
    assert answer.status_code == 422, answer.text
    assert words in answer.json()["detail"]


def test_other_refusals_of_holds_are_named_too(stage: Stage) -> None:
    assert stage.client.put("/v1/hosts/node4/hold", content=b"{", headers=JSON).status_code == 400
    with patch("api.data.inventory.health.HOLDS_MAX", 0):
        answer = put(stage)
        assert (answer.status_code, answer.json()["rule"]) == (409, "HOLDS_MAX")
    for name in ("node4", "%00", "a" * 3_000):
        nothing = stage.client.delete(f"/v1/hosts/{name}/hold", params={"by": "ada"})
        assert nothing.status_code == 404
    assert stage.client.delete("/v1/hosts/node4/hold").status_code == 422


# --- watching -----------------------------------------------------------------------------------


@contextlib.contextmanager
def listen(stage: Stage, last: str = "", **asked: str) -> Iterator[Listener]:
    headers = {"Last-Event-ID": last} if last else {}
    listener = Listener(stage.url, headers, path="/v1/health/live", **asked)
    try:
        eventually(lambda: "ready" in listener.names, "the stream stands")
        yield listener
    finally:
        listener.close()


def hold_and_release(stage: Stage, host: str) -> None:
    stage.client.put(
        f"/v1/hosts/{host}/hold", json={"state": "out", "reason": "x", "by": "ada"}
    ).raise_for_status()
    stage.becomes(**{host: "out"})
    stage.client.delete(f"/v1/hosts/{host}/hold", params={"by": "ada"}).raise_for_status()
    stage.becomes(**{host: "healthy"})


def test_turns_come_as_they_happen_and_resume(stage: Stage) -> None:
    with listen(stage, kind="host") as listener:
        assert listener.events[0][1]["counts"]["healthy"] == 2
        hold_and_release(stage, "node1")
        eventually(lambda: listener.names.count("turned") == 2, "both turns")
        turned = [data for name, data in listener.events if name == "turned"]
        assert [(each["host"], each["state"], each["was"]) for each in turned] == [
            ("node1", "out", "healthy"),
            ("node1", "healthy", "out"),
        ]
        assert turned[0]["why"] == "out by ada: x"
        seen = listener.last_id
    hold_and_release(stage, "node4")
    with listen(stage, seen) as listener:
        eventually(lambda: listener.names.count("turned") == 2, "what was missed")
    with listen(stage, "999999") as listener:
        assert listener.names == ["missed", "ready"]
        assert "GET /v1/health" in listener.events[0][1]["hint"]
    with listen(stage, seen, kind="gpu") as listener:
        assert listener.names == ["ready"]
    assert stage.client.get("/v1/health/live", params={"after": "x"}).status_code == 400


def test_listeners_to_health_are_bounded(stage: Stage) -> None:
    with patch.object(changes, "SUBSCRIBERS_MAX", 0):
        answer = stage.client.get("/v1/health/live")
    assert (answer.status_code, answer.json()["rule"]) == (503, "SUBSCRIBERS_MAX")


# --- series -------------------------------------------------------------------------------------


def test_states_and_risks_are_series(stage: Stage) -> None:
    def ask(query: str) -> dict[str, float]:
        found = stage.get("/api/v1/query", params={"query": query})["data"]["result"]
        return {each["metric"]["host"]: float(each["value"][1]) for each in found}

    eventually(lambda: bool(ask("fabric_host_health_state")), "the first samples")
    assert ask("fabric_host_health_state") == {"node3": 2.0, "node9": 1.0}
    assert ask("fabric_host_risk_ratio > 0.5") == {"node3": 0.9}
    assert 'fabric_service_hosts{state="degraded"} 1.0' in stage.client.get("/metrics").text


# --- a scheduler's plug-in ------------------------------------------------------------------------


def test_the_plug_in_of_the_documentation_works(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As its reader would: the file beside it, the page's code, a real service."""
    monkeypatch.syspath_prepend(str(ROOT / "collector/shims"))
    page = (ROOT / "docs/how-to/write-a-scheduler-plugin.md").read_text("utf-8")
    plugin: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], plugin)  # noqa: S102
    with plugin["Client"](stage.url) as fabric:
        free = list(HOSTS)
        assert plugin["choose_hosts"](fabric, free, 2) == ["node1", "node4"]
        assert len(plugin["choose_hosts"](fabric, free, 3)) == 3  # the suspect, if need be
        assert plugin["choose_hosts"](fabric, free, 4) == []
        assert "no hosts: 3 of the candidates can be placed, and 4 are wanted" in (
            capsys.readouterr().out
        )
        fabric.register_job("plugged", ["node1"], name="plugged", scheduler="mine")
        assert plugin["is_worth_moving"](fabric, "plugged") is False
        assert fabric.end_job("plugged", "2026-11-16T10:00:00Z").state == "ended"
        held = fabric.hold("node4", "draining", reason="new cable", by="ada", hours=1)
        assert (held.host, held.state) == ("node4", "draining")
        stage.becomes(node4="draining")
        standing = fabric.actions("standing").actions
        assert [(each.host, each.by) for each in standing] == [("node4", "ada")]
        assert fabric.release("node4", by="ada").ended_by == "ada"
        stage.becomes(node4="healthy")
        with pytest.raises(plugin["Error"], match="node77"):
            fabric.host_health("node77")
    with plugin["Client"]("http://127.0.0.1:1", retries=0) as nobody:
        assert plugin["choose_hosts"](nobody, free, 2) == free[:2]
        assert "fabricscope is not asked" in capsys.readouterr().out
