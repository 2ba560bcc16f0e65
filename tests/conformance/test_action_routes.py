"""Actions over HTTP: the policy proposes, operators approve or reject, executors report."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api.http.settings import ServiceSettings
from collector.cli import main
from collector.contract.errors import SettingsError
from tests.stands.acting import Stage, acting
from tests.stands.service import eventually
from tests.stands.strangers import JSON

pytestmark = pytest.mark.slow

RESULT = """
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 8 minBytes 8388608 maxBytes 8388608 step: 2(factor) warmup iters: 1 iters: 20
#  Rank  0 Group  0 Pid   6899 on     {host} device  0 [0000:04:00] NVIDIA H100 80GB HBM3
     1048576  262144  float  sum  -1  30.5   34.36   34.36  0  30.0  34.95  34.95  0
     8388608 2097152  float  sum  -1  41.1  {busbw}  {busbw}  {wrong}  40.9  1.0  1.0  0
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with acting(tmp_path) as stage:
        yield stage


def test_a_verdict_that_stands_takes_its_host_out_and_the_executor_s_word_is_kept(
    stage: Stage,
) -> None:
    stage.say("node3")
    eventually(lambda: stage.state_of("node3") == "degraded", "node3 is accused")
    stage.later(lambda: stage.state_of("node3") == "draining", "node3 is held")
    answer = stage.get("/v1/actions", state="standing")
    assert (answer["evidence"], answer["stale"], answer["mode"]) == ("fresh", [], "enforce")
    [action] = answer["actions"]
    assert {
        name: action[name]
        for name in ("kind", "host", "hold", "state", "by", "rule", "cause", "cause_reason")
    } == {
        "kind": "drain",
        "host": "node3",
        "hold": "draining",
        "state": "standing",
        "by": "policy",
        "rule": "broken-gpu",
        "cause": "straggler",
        "cause_reason": "gpu_error",
    }
    assert action["reason"] == f"straggler (gpu_error) of gpu 1, {action['incident']}"
    assert action["verdict"] == "node3's GPU 1 is broken"
    assert stage.get("/v1/holds")["items"][0]["id"] == action["id"]
    where = f"/v1/actions/{action['id']}"
    told = stage.post(f"{where}/applied", executor="slurm", outcome="done", words="drained")
    assert [(each["executor"], each["outcome"]) for each in told["applied"]] == [("slurm", "done")]
    ended = stage.post(f"{where}/undo", by="ada", words="I need it")
    assert (ended["state"], ended["ended_by"], ended["ended_why"]) == ("ended", "ada", "operator")
    assert [each["what"] for each in ended["history"]] == ["held", "applied", "ended"]
    assert stage.standing() == {}
    eventually(lambda: stage.state_of("node3") == "degraded", "node3 is back")
    stage.later(lambda: stage.refusals("node3") == ["rejected"], "a no is a no")
    assert stage.get(where)["history"] == ended["history"]


def test_never_more_than_the_share_and_the_refusal_is_on_record(stage: Stage) -> None:
    stage.say("node1", "node2", "node3")
    eventually(lambda: stage.get("/v1/health")["counts"]["degraded"] == 3, "three are accused")
    stage.later(lambda: len(stage.standing()) == 2, "two are held")
    [refused] = stage.get("/v1/actions", state="refused")["actions"]
    assert refused["refused"] == "share_limit"
    policy = stage.get("/v1/actions/policy")
    assert (policy["hosts"], policy["room"], policy["held"]) == (10, 2, 2)
    assert policy["rules"][0]["mode"] == "enforce"


def test_a_shadow_changes_nothing_and_is_counted(stage: Stage) -> None:
    stage.set_policy("shadow")
    stage.say("node3")
    eventually(lambda: stage.state_of("node3") == "degraded", "node3 is accused")
    stage.later(lambda: len(stage.get("/v1/actions")["actions"]) == 1, "it is written down")
    assert stage.latest("node3")["state"] == "shadowed"
    assert stage.latest("node3")["outcome"] == "waiting"
    assert (stage.state_of("node3"), stage.standing()) == ("degraded", {})
    # An incident without new verdicts would end: the stage repeats its verdicts.
    for _ in range(20):
        stage.pass_time(50)
    eventually(lambda: stage.latest("node3")["outcome"] == "confirmed", "it went on")
    hits = stage.get("/v1/actions/policy")["hits"]
    assert hits == {"confirmed": 1, "cleared": 0, "waiting": 0, "rate": 1.0}
    stage.post(
        f"/v1/actions/{stage.latest('node3')['id']}/applied", 409, executor="x", outcome="done"
    )


def test_a_proposal_waits_for_a_person(stage: Stage) -> None:
    stage.set_policy("approve")
    stage.say("node3", "node4")
    eventually(lambda: stage.get("/v1/health")["counts"]["degraded"] == 2, "both are accused")
    stage.later(lambda: len(stage.get("/v1/actions", live=True)["actions"]) == 2, "proposed")
    first, second = stage.latest("node3"), stage.latest("node4")
    assert (first["state"], stage.standing()) == ("proposed", {})
    granted = stage.post(f"/v1/actions/{first['id']}/approve", by="ada", words="go on")
    assert granted["state"] == "standing"
    assert set(stage.standing()) == {"node3"}
    eventually(lambda: stage.state_of("node3") == "draining", "node3 is held")
    again = stage.post(f"/v1/actions/{first['id']}/approve", 409, by="bob")
    assert again["rule"] == "state"
    rejected = stage.post(f"/v1/actions/{second['id']}/reject", by="ada")
    assert (rejected["state"], rejected["refused"]) == ("refused", "rejected")
    stage.set_policy("approve", share=0.1)
    stage.say("node5")
    eventually(lambda: stage.state_of("node5") == "degraded", "node5 is accused")
    stage.later(lambda: stage.refusals("node5") == ["share_limit"], "it is refused")


def test_an_operator_s_hold_goes_the_same_way(stage: Stage) -> None:
    body = {"state": "out", "reason": "a NIC is swapped", "by": "ada", "hours": 1}
    assert stage.client.put("/v1/hosts/node1/hold", json=body).status_code == 200
    action = stage.standing()["node1"]
    assert (action["by"], action["hold"], action["rule"]) == ("ada", "out", "")
    assert action["reason"] == "a NIC is swapped"
    assert stage.get("/v1/actions", state="standing", host="node2")["actions"] == []
    answer = stage.client.delete("/v1/hosts/node1/hold", params={"by": "bob"})
    assert answer.status_code == 200
    assert stage.standing() == {}
    over = stage.get(f"/v1/actions/{action['id']}")
    assert (over["state"], over["ended_by"], over["ended_why"]) == ("ended", "bob", "operator")
    assert stage.client.put("/v1/hosts/node1/hold", json=body).status_code == 200
    stage.pass_time(3_601)
    assert stage.standing() == {}, "its time is up"
    assert stage.latest("node1")["ended_why"] == "ttl"
    eventually(lambda: stage.latest("node1")["ended_by"] == "policy", "it is written down")


def test_a_check_that_passes_returns_a_host(stage: Stage) -> None:
    stage.say("node3")
    eventually(lambda: stage.state_of("node3") == "degraded", "node3 is accused")
    stage.later(lambda: "node3" in stage.standing(), "node3 is held")

    def check(
        host: str = "node3", busbw: float = 60.0, wrong: int = 0, **how: str
    ) -> httpx.Response:
        text = RESULT.format(host=how.get("ran_on", host), busbw=busbw, wrong=wrong)
        return stage.client.post(f"/v1/hosts/{host}/check", params={"by": "ada"}, content=text)

    slow = check(busbw=40.0).json()
    assert slow["result"] == "failed"
    assert slow["words"] == "all_reduce of 8388608 B reached 40 GB/s, below its floor of 50"
    assert check(wrong=3).json()["words"] == "3 values came out wrong"
    assert check(ran_on="node4").status_code == 422
    assert check(host="nobody").status_code == 404
    nonsense = stage.client.post("/v1/hosts/node3/check?by=ada", content=b"hello")
    assert nonsense.status_code == 422
    large = stage.client.post("/v1/hosts/node3/check?by=ada", content=b"#" * ((1 << 20) + 1))
    assert (large.status_code, large.json()["rule"]) == (413, "CHECK_BYTES_MAX")
    assert "node3" in stage.standing()
    good = check().json()
    assert good["result"] == "passed"
    eventually(lambda: stage.standing() == {}, "node3 is back")
    assert stage.get(f"/v1/actions/{good['action']}")["ended_why"] == "check"
    assert check(host="node4").json()["action"] == ""


def test_bad_questions_are_named(stage: Stage) -> None:
    stage.get("/v1/actions/none", 404)
    stage.set_policy("approve", share=0.0001)  # no room, but the 404 comes first
    stage.post("/v1/actions/none/approve", 404, by="ada")
    stage.post("/v1/actions/none/undo", 422)
    stage.post("/v1/actions/none/applied", 422, executor="a b", outcome="done")
    stage.post("/v1/actions/none/applied", 422, executor="slurm", outcome="perhaps")
    stage.get("/v1/actions", 422, state="gone")
    assert (
        stage.client.post("/v1/actions/none/reject", content=b"{", headers=JSON).status_code == 400
    )


def test_a_broken_file_leaves_the_policy_as_it_was(stage: Stage) -> None:
    stage._policy.write_text("mode = 'on'")
    eventually(lambda: bool(stage.get("/v1/actions/policy")["problem"]), "the policy's problem")
    policy = stage.get("/v1/actions/policy")
    assert policy["mode"] == "enforce"
    assert "mode = 'on'" in policy["problem"]


def test_a_service_does_not_start_with_a_broken_policy(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("mode = 'on'")
    with pytest.raises(SettingsError, match="mode = 'on'"):
        ServiceSettings(policy_file=str(file)).check()
    with pytest.raises(SettingsError, match="No such file"):
        ServiceSettings(policy_file=str(tmp_path / "none")).check()


def test_while_verdicts_are_old_nobody_is_taken(stage: Stage) -> None:
    stage.say("node3")
    eventually(lambda: stage.state_of("node3") == "degraded", "node3 is accused")
    stage._skip[0] += 120
    eventually(lambda: stage.get("/v1/actions")["evidence"] == "stale", "stale evidence")

    def is_refused() -> bool:
        stage._skip[0] += 3
        return stage.refusals("node3") == ["stale_evidence"]

    eventually(is_refused, "it is refused")
    assert stage.standing() == {}


def test_the_verb_shows_grants_and_undoes(
    stage: Stage, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    url = str(stage.client.base_url)

    def run(*words: str, status: int = 0) -> str:
        where = ["--service", url, "--by", "ada"]
        assert main(["actions", *words, *where]) == status
        said = capsys.readouterr()
        return said.out if status == 0 else said.err

    assert run("list") == "no actions (mode enforce)\n"
    assert run("drain", "node1", "--reason", "a cable", "--hours", "1").startswith(
        "node1 is draining: action "
    )
    listed = run("list", "--state", "standing")
    number = stage.latest("node1")["id"]
    [heads, line] = [each.split() for each in listed.splitlines()]
    assert heads == ["ID", "AT", "HOST", "STATE", "BY", "WHY"]
    assert (line[0], line[3:]) == (number, ["node1", "standing", "ada", "a", "cable"])
    result = tmp_path / "result.txt"
    result.write_text(RESULT.format(host="node1", busbw=60.0, wrong=0))
    assert "passed: all_reduce" in run("check", "node1", str(result))
    assert "passed: all_reduce" in run("show", number)
    assert "ended (operator)" in run("undo", number, "--words", "done")
    assert run("list", "--live") == "no actions (mode enforce)\n"
    assert "it must be standing" in run("undo", number, status=1)
    assert "nothing holds a host named 'node1'" in run("return", "node1", status=1)
    policy = run("policy")
    assert "mode enforce" in policy
    assert "broken-gpu" in policy
    assert '"mode": "enforce"' in run("policy", "--json")


def test_a_policy_file_is_checked_without_a_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["actions", "policy", "--print"]) == 0
    file = tmp_path / "policy.toml"
    file.write_text(capsys.readouterr().out)
    assert main(["actions", "policy", "--check", str(file)]) == 0
    assert "mode shadow, 6 rules" in capsys.readouterr().out
    file.write_text("mode = 'on'")
    assert main(["actions", "policy", "--check", str(file)]) == 2
    assert "mode = 'on'" in capsys.readouterr().err
    assert main(["actions", "list", "--service", "http://127.0.0.1:9"]) == 1
    assert "cannot reach" in capsys.readouterr().err
