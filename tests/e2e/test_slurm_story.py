"""One incident among real programs: Slurm's daemons, agents, the service and the executor.

A job runs, the kernel of one of its hosts says that a GPU has died, the service names it, Slurm
drains it and requeues the job elsewhere; the host is repaired, passes its check, and comes back.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.stands.gpu_host import FALLEN_OFF, GPU, GpuHost
from tests.stands.service import ServiceProcess, eventually
from tests.stands.slurm_daemons import PROGRAMS, SlurmDaemons, in_time, slurm_daemons

pytestmark = [pytest.mark.slow, pytest.mark.peer(*PROGRAMS)]

NODES = tuple(f"node{number}" for number in range(4))
BROKEN, SPARE = "node1", "node3"
POLICY = """
mode = "enforce"
[limits]
share_max = 0.25
[check.bus_bandwidth_min]
all_reduce = 50.0
[[rules]]
name = "broken-gpu"
causes = ["straggler/gpu_error", "hang/gpu_error"]
confidence_min = 0.5
stands_s = 10
return_on = ["check"]
"""
PASSED = f"""
# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid   6899 on     {BROKEN} device  0 [{GPU}] NVIDIA H100 80GB HBM3
     8388608 2097152  float  sum  -1  41.1  60.0  60.0  0  40.9  1.0  1.0  0
"""


class Site:
    """All of it, and the questions that a person asks."""

    def __init__(
        self, slurm: SlurmDaemons, service: ServiceProcess, nodes: dict[str, GpuHost]
    ) -> None:
        self.slurm = slurm
        self.service = service
        self.nodes = nodes

    def get(self, path: str, **asked: str) -> Any:  # noqa: ANN401 - JSON
        answer = self.service.client.get(path, params=asked)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def show_ranks(self, job: str, ranks: int) -> None:
        """To the agents of a job's hosts, once all of them run."""
        in_time(lambda: len(self.slurm.ranks(job)) == ranks, f"{ranks} ranks of job {job} run")
        for process in self.slurm.ranks(job).values():
            words = (process / "environ").read_bytes().split(b"\0")
            (name,) = [word[16:] for word in words if word.startswith(b"SLURMD_NODENAME=")]
            self.nodes[name.decode()].show(process)

    def ranks_seen(self, job: str) -> dict[int, str]:
        found = self.get(f"/v1/jobs/{job}/ranks")["items"]
        return {each["rank"]: each["host"] for each in found if each["host"]}

    def holding(self) -> list[Any]:
        found: list[Any] = self.get("/v1/actions", state="standing")["actions"]
        return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    settings = tmp_path / "service.toml"
    settings.write_text(f'policy_file = "{policy}"\nrules_pack = false\n')
    with ExitStack() as stack:
        slurm = stack.enter_context(slurm_daemons(NODES))
        service = ServiceProcess(tmp_path / "data", "--config", str(settings))
        stack.enter_context(service)
        for name in ("prolog", "epilog"):
            slurm.install(name, service.url)
        nodes = {}
        for name in NODES:
            (tmp_path / name).mkdir()
            nodes[name] = GpuHost(tmp_path / name, name, service.url)
            agent = nodes[name].start()
            stack.callback(agent.wait, 60)
            stack.callback(agent.terminate)
        log = (tmp_path / "executor.log").open("ab")
        stack.callback(log.close)
        executor = subprocess.Popen(
            [str(slurm.home / "fabricscope"), "slurm", "follow", "--apply", "--interval", "1",
             "--service", service.url],
            env={**os.environ, **slurm.environment}, stdout=log, stderr=log,
        )  # fmt: skip
        stack.callback(executor.wait, 60)
        stack.callback(executor.terminate)
        yield Site(slurm, service, nodes)


def test_a_job_a_fault_a_verdict_a_drain_a_requeue_a_repair_and_the_way_back(site: Site) -> None:
    slurm = site.slurm
    in_time(lambda: len(site.get("/v1/health")["items"]) == len(NODES), "every agent reports")
    # The job.
    job = slurm.submit(3, "--nodes=3", "--nodelist=node[0-2]")
    site.show_ranks(job, 3)
    eventually(lambda: site.get(f"/v1/jobs/{job}")["state"] == "running", "the prolog")
    ranks = {0: "node0", 1: BROKEN, 2: "node2"}
    eventually(lambda: site.ranks_seen(job) == ranks, "the agents see its ranks")
    assert site.holding() == []
    # The fault, and the verdict.
    site.nodes[BROKEN].kernel_says(FALLEN_OFF)
    eventually(lambda: site.get("/v1/incidents")["items"] != [], "an incident")
    eventually(lambda: site.holding() != [], "the policy holds it")
    [incident] = site.get("/v1/incidents")["items"]
    assert incident["culprit"]["host"] == BROKEN
    assert incident["reason"] == "gpu_error"
    [action] = site.holding()
    assert (action["host"], action["incident"]) == (BROKEN, incident["id"])
    # The drain: its job goes on there, until it is requeued.
    in_time(lambda: slurm.states()[BROKEN].endswith("+drain"), "Slurm drains it")
    shown = slurm.shown()[BROKEN]
    assert shown["reason"].startswith(f"fabricscope:{action['id']} ")
    assert incident["id"] in shown["reason"]
    assert len(slurm.ranks(job)) == 3
    assert [name for name, state in slurm.states().items() if "drain" in state] == [BROKEN]
    # The job goes elsewhere; Slurm would make it wait for two minutes.
    slurm.run("scontrol", "requeue", job)
    in_time(lambda: slurm.ranks(job) == {}, "its ranks end")
    for node in site.nodes.values():
        node.hide_all()
    in_time(lambda: slurm.job(job)["job_state"] == "PENDING", "it waits")
    slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now", "ReqNodeList=")
    site.show_ranks(job, 3)
    assert slurm.job(job)["nodes"] == "node[0,2-3]"
    eventually(lambda: SPARE in site.ranks_seen(job).values(), "the agents see where it is now")
    assert slurm.states()[BROKEN] == "idle+drain"
    # The repair, and the way back.
    checked = site.service.client.post(
        f"/v1/hosts/{BROKEN}/check", params={"by": "ada"}, content=PASSED.encode()
    )
    assert checked.status_code == 200, checked.text
    in_time(lambda: slurm.states()[BROKEN] == "idle", "Slurm has it back")
    assert slurm.shown()[BROKEN]["reason"] == ""
    over = site.get(f"/v1/actions/{action['id']}")
    assert (over["state"], over["ended_why"]) == ("ended", "check")
    assert over["applied"][0]["words"] == f"{BROKEN}: undrain"
    again = slurm.submit(1, f"--nodelist={BROKEN}")
    in_time(lambda: len(slurm.ranks(again)) == 1, "a new job begins there")
