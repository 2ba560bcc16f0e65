"""`fabricscope slurm` between a service and programs like Slurm's, which record their calls."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.data.inventory.actions import ACTIONS
from api.remote.client import Client, Target
from api.remote.slurm import cli, follow
from tests.doubles.slurm_double import SlurmDouble
from tests.stands.acting import acting
from tests.stands.service import eventually
from tests.stands.slurm_verb import SlurmVerb

pytestmark = pytest.mark.slow

AWAY = "http://127.0.0.1:9"


class Site(SlurmVerb):
    """A service, a cluster, and the verb between them."""

    slurm: SlurmDouble


@pytest.fixture
def site(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> Iterator[Site]:
    # The service lives in this process too, and logs longer than the verb does.
    monkeypatch.setattr(cli, "set_up_logging", lambda _: None)
    slurm = SlurmDouble(tmp_path / "slurm", [f"node{number}" for number in range(10)])
    monkeypatch.setenv("PATH", str(slurm.bin), prepend=":")
    (tmp_path / "service").mkdir()
    with acting(tmp_path / "service") as stage:
        eventually(lambda: stage.get("/v1/actions")["evidence"] == "fresh", "fresh evidence")
        capsys.readouterr()
        site = Site(stage, capsys, caplog)
        site.slurm = slurm
        yield site


def answering(answer: httpx.Response) -> Callable[..., Client]:
    """A client to which every question is answered so."""

    def make(target: Target, name: str, **_: object) -> Client:
        return Client(target, name, transport=httpx.MockTransport(lambda _: answer))

    return make


# --- the executor -------------------------------------------------------------------------------


def test_what_stands_is_drained_with_its_reason_and_given_back_when_it_ends(site: Site) -> None:
    number = site.hold("node3", 'a cable | is "swapped"\n now')
    site.follow()
    assert site.slurm.nodes["node3"] == [
        "idle+drain",
        f"fabricscope:{number} a cable is swapped now",
    ]
    assert len(site.slurm.calls()) == 1
    [said] = site.action(number)["applied"]
    assert (said["executor"], said["outcome"], said["words"]) == ("slurm", "done", "node3: drain")
    site.follow()
    assert len(site.slurm.calls()) == 1, "what is so already is left alone"
    site.let_go("node3")
    site.follow()
    assert site.slurm.calls()[1:] == [["update", "NodeName=node3", "State=UNDRAIN"]]
    assert site.slurm.nodes["node3"][0] == "idle"
    assert site.action(number)["applied"][0]["words"] == "node3: undrain"
    site.follow()
    assert len(site.slurm.calls()) == 2


def test_what_others_drained_is_theirs(site: Site) -> None:
    site.slurm.set("node3", "idle+drain", "bad fan")
    site.slurm.set("node4", "idle+drain", "bad fan")
    number = site.hold("node3")
    site.follow()
    assert site.slurm.calls() == []
    [said] = site.action(number)["applied"]
    assert said["words"] == "node3: drained by another already: bad fan"
    site.let_go("node3")
    site.follow()
    assert site.slurm.calls() == []


def test_a_dry_run_prints_and_changes_nothing(site: Site) -> None:
    number = site.hold("node3")
    said = site.run("follow", "--once")
    assert (
        f'scontrol update NodeName=node3 State=DRAIN "Reason=fabricscope:{number} a cable"' in said
    )
    assert site.slurm.calls() == []
    assert site.action(number)["applied"] == []


def test_a_dry_run_needs_no_slurm(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    site.hold("node3")
    assert "scontrol update NodeName=node3 State=DRAIN" in site.run("follow", "--once")
    assert "sinfo: there is no such program" in site.follow(status=2)


def test_on_doubt_nothing_is_changed(site: Site) -> None:
    number = site.hold("node3")
    site.slurm.set("node5", "idle+drain", "fabricscope:lost-1 once ours")
    assert "cannot reach" in site.follow(status=1, service=AWAY)
    site.slurm.break_program("sinfo", "slurm_load_node error: Unable to contact slurm controller")
    assert "Unable to contact slurm controller" in site.follow(status=1)
    site.slurm.break_program("sinfo", "")
    site.stage._skip[0] += 120
    eventually(lambda: site.stage.get("/v1/actions")["evidence"] == "stale", "stale evidence")
    assert "the service's evidence is stale: " in site.follow(status=1)
    assert site.slurm.calls() == []
    site.stage.hear()
    eventually(lambda: site.stage.get("/v1/actions")["evidence"] == "fresh", "fresh evidence")
    assert "the service does not know its action" in site.follow()
    assert site.slurm.nodes["node5"][0] == "idle+drain", "the service did not end its action"
    assert site.slurm.nodes["node3"][0] == "idle+drain"
    assert site.action(number)["state"] == "standing"


def test_a_service_that_lost_its_actions_gives_nothing_back(site: Site) -> None:
    site.hold("node3")
    site.follow()
    with site.stage.service.inventory._database.writing("lose all actions") as connection:
        connection.execute(ACTIONS.delete())
    site.follow()
    assert site.slurm.nodes["node3"][0] == "idle+drain"


def test_too_many_changes_at_once_are_nobody_s_wish(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "CHANGES_MAX", 2)
    for number in range(3):
        site.hold(f"node{number}")
    assert "3 nodes would change at once, over CHANGES_MAX = 2" in site.follow(status=1)
    assert site.slurm.calls() == []


def test_what_slurm_refuses_is_told(site: Site) -> None:
    number = site.hold("node3")
    site.slurm.break_program("scontrol", "slurm_update error: Access/permission denied")
    site.follow()
    [said] = site.action(number)["applied"]
    assert said["outcome"] == "failed"
    assert "Access/permission denied" in said["words"]
    site.slurm.break_program("scontrol", "")
    site.follow()
    assert [each["outcome"] for each in site.action(number)["applied"]] == ["done"]
    assert [each["what"] for each in site.action(number)["history"]] == [
        "held",
        "applied",
        "applied",
    ]


def test_a_host_that_slurm_does_not_have_is_told(site: Site) -> None:
    number = site.hold("node9")
    nodes = site.slurm.nodes
    del nodes["node9"]
    site.slurm._write(nodes)
    site.follow()
    [said] = site.action(number)["applied"]
    assert (said["outcome"], said["words"]) == ("failed", "node9: Slurm has no node node9")


def test_the_policy_s_drain_comes_all_the_way(site: Site) -> None:
    site.stage.say("node3")
    site.stage.later(lambda: "node3" in site.stage.standing(), "node3 is held")
    site.follow()
    state, reason = site.slurm.nodes["node3"]
    incident = site.stage.latest("node3")["incident"]
    assert state == "idle+drain"
    assert reason.endswith(f"straggler (gpu_error) of gpu 1, {incident}")


# --- what Slurm runs ----------------------------------------------------------------------------


def test_a_health_check_looks_at_its_own_node_and_never_fails(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.hold("node3")
    site.hold("node4")
    monkeypatch.setenv("SLURMD_NODENAME", "node3")
    site.run("healthcheck", "--apply")
    assert [call[1] for call in site.slurm.calls()] == ["NodeName=node3"]
    site.let_go("node3")
    site.run("healthcheck", "--apply")
    assert site.slurm.nodes["node3"][0] == "idle"
    assert "nothing is changed" in site.run("healthcheck", "--apply", service=AWAY)
    assert len(site.slurm.calls()) == 2


def test_a_job_is_registered_and_ended_by_prolog_and_epilog(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NAME": "llm\n70b",
        "SLURM_JOB_USER": "ada",
        "SLURM_JOB_NODELIST": "node[1-3]",
        "SLURM_CLUSTER_NAME": "alpha",
        "SLURM_JOB_PARTITION": "gpu",
    }.items():
        monkeypatch.setenv(name, value)
    site.hold("node2")
    eventually(lambda: site.stage.state_of("node2") == "draining", "node2 is held")
    said = site.run("prolog")
    assert said == "fabricscope: node2 is draining: draining by ada: a cable\n"
    site.run("prolog", "--refuse-held", status=1)
    job = site.stage.get("/v1/jobs/4711")
    assert (job["name"], job["user"], job["cluster"]) == ("llm\ufffd70b", "ada", "alpha")
    assert (job["state"], job["scheduler"]) == ("running", "slurm")
    assert job["hosts"] == ["node1", "node2", "node3"]
    assert job["attributes"]["partition"] == "gpu"
    site.run("epilog")
    assert site.stage.get("/v1/jobs/4711")["state"] == "ended"
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[4-5]")
    site.run("prolog")
    job = site.stage.get("/v1/jobs/4711")
    assert (job["state"], {"node4", "node5"} <= set(job["hosts"])) == ("running", True)


def test_prolog_and_epilog_never_fail_a_job_because_of_us(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "SLURM_JOB_ID is not set" in site.run("prolog")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[1-")
    assert "do not match" in site.run("prolog", "--refuse-held")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node1")
    said = site.run("prolog", "--refuse-held", service=AWAY)
    assert "is not registered: cannot reach" in said
    assert "is not known: cannot reach" in said
    assert "cannot reach" in site.run("epilog", service=AWAY)


def test_a_topology_is_written_whole_or_not_at_all(site: Site, tmp_path: Path) -> None:
    assert "no host is known to be cabled" in site.run("topology", status=1)
    out = tmp_path / "topology.conf"
    cables: Any = {
        "nodes": [
            *({"name": f"node{number}", "kind": "host"} for number in range(4)),
            *({"name": f"leaf{number}", "kind": "switch", "tier": 0} for number in range(2)),
            {"name": "spine", "kind": "switch", "tier": 1},
        ],
        "links": [
            *(
                {
                    "a": f"node{number}/mlx5_0/1",
                    "b": f"leaf{number // 2}/leaf{number // 2}/{number}",
                }
                for number in range(4)
            ),
            *(
                {"a": f"leaf{number}/leaf{number}/up", "b": f"spine/spine/{number}"}
                for number in range(2)
            ),
        ],
    }
    answers = httpx.Response(200, content=json.dumps(cables))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cli, "Client", answering(answers))
        site.run("topology", "--out", str(out))
    assert out.read_text().splitlines()[1:] == [
        "SwitchName=leaf0 Nodes=node[0-1]",
        "SwitchName=leaf1 Nodes=node[2-3]",
        "SwitchName=tier1-0 Switches=leaf0,leaf1",
    ]
    assert [each.name for each in tmp_path.glob(".topology*")] == []
