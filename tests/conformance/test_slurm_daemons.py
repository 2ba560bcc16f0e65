"""`fabricscope slurm` and Slurm itself: Debian's daemons, and a service with a policy."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.remote.slurm import cli
from api.remote.slurm.reconcile import SINFO, parse_sinfo
from collector.doors.host import Host
from collector.reading.jobs import read_process
from tests.stands.acting import HOSTS, acting
from tests.stands.service import eventually
from tests.stands.slurm_daemons import PROGRAMS, SlurmDaemons, in_time, slurm_daemons
from tests.stands.slurm_verb import SlurmVerb

pytestmark = [pytest.mark.slow, pytest.mark.peer(*PROGRAMS)]

NODES = HOSTS[:5]
HIDDEN = NODES[-1]


class Site(SlurmVerb):
    """A service, Slurm, and the verb between them."""

    slurm: SlurmDaemons


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmDaemons]:
    with slurm_daemons(NODES, HIDDEN) as one:
        yield one


@pytest.fixture
def site(
    slurm: SlurmDaemons,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> Iterator[Site]:
    # The service lives in this process too, and logs longer than the verb does.
    monkeypatch.setattr(cli, "set_up_logging", lambda _: None)
    monkeypatch.setenv("SLURM_CONF", str(slurm.configuration))
    with acting(tmp_path) as stage:
        eventually(lambda: stage.get("/v1/actions")["evidence"] == "fresh", "fresh evidence")
        capsys.readouterr()
        one = Site(stage, capsys, caplog)
        one.slurm = slurm
        yield one
    tidy(slurm)


def tidy(slurm: SlurmDaemons) -> None:
    """No job, no drain, no script."""
    for name in ("prolog", "epilog", "healthcheck"):
        slurm.uninstall(name)
    (slurm.home / "checked").unlink(missing_ok=True)
    slurm.run("scancel", "--user=root")
    for node, state in slurm.states().items():
        for asked in ("RESUME", "UNDRAIN") if state != "idle" else ():
            slurm.try_to("scontrol", "update", f"NodeName={node}", f"State={asked}")
    in_time(lambda: set(slurm.states().values()) == {"idle"}, "every node is idle again")


def listening(pids: list[int]) -> set[str]:
    """The addresses on which these processes listen."""
    inodes = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    inodes.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                raw = bytes.fromhex(fields[1].partition(":")[0])
                family = socket.AF_INET if table == "tcp" else socket.AF_INET6
                found.add(socket.inet_ntop(family, raw[::-1] if table == "tcp" else raw))
    return found


# --- what Slurm says ----------------------------------------------------------------------------


def test_our_reading_of_sinfo_is_what_its_json_has(slurm: SlurmDaemons) -> None:
    slurm.update("node0", "DRAIN", "bad | fan")
    slurm.update("node1", "DOWN", "kernel: a=b")
    slurm.update("node2", "DRAIN", "fabricscope:a1 slow_link (nic) of device mlx5_0 " + "x" * 140)
    try:
        ours, theirs = parse_sinfo(slurm.run(*SINFO).encode()), slurm.shown()
        assert set(ours) == set(theirs) == set(NODES), "the hidden partition's node as well"
        for name, node in theirs.items():
            flags = {node["state"], *node["state_flags"]}
            assert ours[name].flags == {each.lower() for each in flags}
            assert ours[name].reason == node["reason"]
        assert [ours[name].is_drained for name in NODES] == [True, False, True, False, False]
        assert [ours[name].is_others for name in NODES] == [True, True, False, False, False]
    finally:
        tidy(slurm)


# --- the executor -------------------------------------------------------------------------------


def test_a_held_host_is_drained_with_its_reason_and_given_back(site: Site) -> None:
    job = site.slurm.submit(2, "--nodes=2", "--nodelist=node0,node1")
    in_time(lambda: len(site.slurm.ranks(job)) == 2, "both ranks run")
    number = site.hold("node1", 'a cable | is "swapped"')
    hidden = site.hold(HIDDEN)
    site.follow()
    reason = f"fabricscope:{number} a cable is swapped"
    assert site.slurm.shown()["node1"]["reason"] == reason
    assert site.slurm.states()["node1"] == "mixed+drain", "its job goes on"
    assert len(site.slurm.ranks(job)) == 2
    assert site.slurm.states()[HIDDEN] == "idle+drain"
    other = site.slurm.submit(1, "--nodelist=node1")
    waits = site.slurm.job(other)
    assert waits["job_state"] == "PENDING"
    site.let_go("node1")
    site.let_go(HIDDEN)
    site.follow()
    in_time(lambda: len(site.slurm.ranks(other)) == 1, "a new job begins there again")
    assert site.slurm.shown()["node1"]["reason"] == ""
    for each in (number, hidden):
        assert site.action(each)["applied"][0]["words"].endswith(": undrain")


@pytest.mark.parametrize("state", ["DRAIN", "DOWN"])
def test_what_a_person_took_away_stays_as_it_is(site: Site, state: str) -> None:
    site.slurm.update("node0", state, "bad fan, grace")
    before = site.slurm.shown()["node0"]
    number = site.hold("node0")
    site.follow()
    [said] = site.action(number)["applied"]
    assert said["outcome"] == "done"
    assert said["words"].endswith("by another already: bad fan, grace")
    site.let_go("node0")
    site.follow()
    after = site.slurm.shown()["node0"]
    for name in ("state", "reason", "reason_changed_at", "reason_set_by_user"):
        assert after[name] == before[name], name


def test_a_node_that_is_rebooted_is_touched_again_only_when_it_is_back(site: Site) -> None:
    number = site.hold("node0")
    site.follow()
    site.slurm.run("scontrol", "reboot", "ASAP", "node0")
    eventually(lambda: "reboot_issued" in site.slurm.states()["node0"], "the reboot")
    before = site.slurm.shown()["node0"]
    assert before["reason"] == f"fabricscope:{number} a cable : reboot issued"
    assert "scontrol" not in site.follow(), "it is away already"
    site.let_go("node0")
    assert "scontrol" not in site.follow(), "Slurm would refuse"
    assert site.slurm.shown()["node0"] == {**before, **volatile(site.slurm.shown()["node0"])}


def volatile(node: dict[str, object]) -> dict[str, object]:
    """What changes by itself."""
    return {name: node[name] for name in ("cpu_load", "free_memory", "last_busy")}


def test_a_controller_that_restarts_loses_nothing(site: Site) -> None:
    number = site.hold("node3")
    site.follow()
    before = site.slurm.shown()["node3"]
    site.slurm.end("slurmctld")
    said = site.follow(status=1)
    assert "nothing is changed: sinfo failed (1)" in said
    assert "Unable to contact slurm controller" in said
    site.slurm.start_controller()
    in_time(lambda: site.slurm.states().get("node3") == "idle+drain", "still drained")
    assert "scontrol" not in site.follow()
    assert site.slurm.shown()["node3"]["reason_changed_at"] == before["reason_changed_at"]
    assert site.action(number)["state"] == "standing"
    site.let_go("node3")
    site.follow()
    in_time(lambda: site.slurm.states()["node3"] == "idle", "given back")


# --- what Slurm runs ----------------------------------------------------------------------------


def test_slurmd_runs_the_shipped_health_check_for_its_own_node(site: Site) -> None:
    site.slurm.install("healthcheck", site.url)
    number = site.hold("node2", "a fan")
    site.hold("node3", "a fan")
    (site.slurm.home / "checked").write_text("node2\n")
    in_time(lambda: site.slurm.states()["node2"] == "idle+drain", "slurmd's own check drains")
    assert site.slurm.shown()["node2"]["reason"] == f"fabricscope:{number} a fan"
    assert site.slurm.states()["node3"] == "idle", "its slurmd has not run the check"
    eventually(lambda: site.action(number)["applied"] != [], "the check reports")
    site.let_go("node2")
    in_time(lambda: site.slurm.states()["node2"] == "idle", "slurmd's own check gives it back")


def test_a_job_is_told_by_slurmctld_and_its_ranks_are_seen(site: Site) -> None:
    for name in ("prolog", "epilog"):
        site.slurm.install(name, site.url)
    job = site.slurm.submit(4, "--nodes=3", "--nodelist=node[0-2]")
    in_time(lambda: len(site.slurm.ranks(job)) == 4, "all ranks run")
    shown = site.stage.get(f"/v1/jobs/{job}")
    assert (shown["name"], shown["user"], shown["cluster"]) == ("llm-70b", "root", "alpha")
    assert (shown["state"], shown["scheduler"]) == ("running", "slurm")
    assert (
        shown["hosts"]
        == ["node0", "node1", "node2"]
        == [f"node{number}" for number in range(len(shown["hosts"]))]
    )
    assert shown["attributes"] == {"partition": "gpu", "restarts": "0"}, "no account, no (null)"
    host = Host()
    try:
        for rank, folder in site.slurm.ranks(job).items():
            facts = read_process(host, int(folder.name))
            assert facts is not None
            assert (facts.job, facts.rank, facts.world_size) == (job, rank, 4)
            assert (facts.scheduler, facts.user, facts.command) == ("slurm", "root", "sleep")
            assert facts.local_rank in {0, 1}
    finally:
        host.close()
    assert listening(site.slurm.processes()) == {"127.0.0.1"}
    site.slurm.run("scontrol", "requeue", job)
    eventually(lambda: site.stage.get(f"/v1/jobs/{job}")["state"] == "ended", "the epilog")
    # Slurm makes a job that comes back wait for two minutes.
    in_time(lambda: site.slurm.job(job)["job_state"] == "PENDING", "it waits")
    site.slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now", "ReqNodeList=node[1-3]")
    in_time(lambda: len(site.slurm.ranks(job)) == 4, "all ranks run again")
    shown = site.stage.get(f"/v1/jobs/{job}")
    assert (shown["state"], "node3" in shown["hosts"]) == ("running", True)
    site.slurm.run("scancel", job)
    eventually(lambda: site.stage.get(f"/v1/jobs/{job}")["state"] == "ended", "its end")


def test_a_job_on_a_held_host_is_sent_back_to_the_queue(site: Site) -> None:
    site.slurm.install("prolog", site.url, "--refuse-held")
    site.slurm.install("epilog", site.url)
    site.hold("node0")
    eventually(lambda: site.stage.state_of("node0") == "draining", "node0 is held")
    job = site.slurm.submit(1, "--nodelist=node0")
    in_time(lambda: site.slurm.job(job)["restart_cnt"] == 1, "it is requeued")
    in_time(lambda: site.slurm.job(job)["job_state"] == "PENDING", "it waits")
    assert site.slurm.states()["node0"] == "idle", "a prolog that refuses drains nothing by itself"
    eventually(lambda: site.stage.get(f"/v1/jobs/{job}")["state"] == "ended", "the epilog")


def test_a_job_is_submitted_to_the_hosts_that_the_service_ranks_first(site: Site) -> None:
    site.hold("node1")
    site.slurm.update("node2", "DRAIN", "bad fan")
    eventually(lambda: site.stage.state_of("node1") == "draining", "node1 is held")
    said = site.run("place", "--size", "2", "--partition", "gpu")
    words = [line for line in said.splitlines() if not line.startswith("fabricscope: ")]
    assert words == ["--nodelist=node[0,3]"]
    job = site.slurm.submit(2, "--nodes=2", *words)
    in_time(lambda: len(site.slurm.ranks(job)) == 2, "both ranks run")
    assert site.slurm.job(job)["nodes"] == "node[0,3]"
    said = site.run("place", "--size", "3", "--partition", "gpu")
    assert said.startswith("fabricscope: Slurm places the job: ")
    assert "--nodelist" not in said
    said = site.run("place", "--size", "1", service="http://127.0.0.1:9")
    assert "cannot reach" in said
    assert "--nodelist" not in said
