"""Who uses an RDMA device: whose alone it is, what is left out, and a number that comes again."""

from pathlib import Path

import pytest

from collector.contract.model import Missing, Reading, Sample
from collector.doors.host import Host
from collector.sources import rdma_resources
from collector.sources.rdma_resources import RdmaResources, Settings
from tests.doubles.rdma_kernel import Bound, Gear, Made, Pair, Region, capture
from tests.fixtures.trees import write_files

CORE = Pair(1, Made(kernel="ib_core"), 1)
STAT = "{pid} (python) S 1 1 1 0 -1 0 0 0 3 0 100 20 0 0 20 0 7 0 {start} 0 0"
ANA, BO = 11, 12


def write_host(root: Path, *gear: Gear, jobs: dict[int, str] | None = None) -> None:
    """A host with processes by number, each with its Slurm job."""
    for each in gear:
        write_files(root, {f"sys/class/infiniband/{each.name}/node_type": "1: CA"})
    for pid, job in (jobs or {}).items():
        path = f"0::/system.slice/slurmstepd.scope/job_{job}/step_0" if job else "0::/user.slice"
        write_files(
            root,
            {
                f"proc/{pid}/stat": STAT.format(pid=pid, start=pid),
                f"proc/{pid}/status": f"Uid:\t{pid}\t{pid}",
                f"proc/{pid}/cgroup": path,
            },
        )
    capture(root, gear)


def read(root: Path, source: RdmaResources | None = None) -> list[Reading]:
    return list((source or RdmaResources(Settings())).read(Host(root)))


def found(readings: list[Reading], metric: str) -> dict[tuple[str, ...], float]:
    """Values by the labels' texts, in the order of the labels' names."""
    return {
        tuple(text for _, text in each.series.labels): each.value
        for each in readings
        if isinstance(each, Sample) and each.series.metric == f"fabric_rdma_{metric}"
    }


def tenants(root: Path, *pairs: Pair, jobs: dict[int, str]) -> list[tuple[str, ...]]:
    write_host(root, Gear("mlx5_0", [CORE, *pairs]), jobs=jobs)
    return list(found(read(root), "sole_tenant_info"))


def test_ranks_of_one_job_have_their_device_alone(tmp_path: Path) -> None:
    alone = tenants(tmp_path, Pair(5, Made(ANA)), Pair(6, Made(BO)), jobs={ANA: "41", BO: "41"})
    assert alone == [("mlx5_0", "41")], "two users of one job: the job is named and no user"


@pytest.mark.parametrize(
    "pair",
    [
        Pair(6, Made(BO)),  # another job
        Pair(6, Made(kernel="nvme_rdma")),  # storage of the host
        Pair(6, Made()),  # in no PID namespace of ours
        Pair(6, Made(99)),  # has ended since the list was made
    ],
    ids=["job", "kernel", "nobody", "ended"],
)
def test_a_device_with_someone_else_is_nobodys_alone(tmp_path: Path, pair: Pair) -> None:
    assert tenants(tmp_path, Pair(5, Made(ANA)), pair, jobs={ANA: "41", BO: "42"}) == []


def test_datagrams_of_the_kernel_are_no_tenant(tmp_path: Path) -> None:
    ipoib = Pair(2, Made(kernel="ib_ipoib"), 4)
    assert tenants(tmp_path, Pair(5, Made(ANA)), ipoib, jobs={ANA: "41"})


def test_an_idle_device_is_nobodys(tmp_path: Path) -> None:
    assert tenants(tmp_path, jobs={}) == []


def test_without_a_job_it_is_the_users(tmp_path: Path) -> None:
    assert tenants(tmp_path, Pair(5, Made(ANA)), jobs={ANA: ""}) == [("mlx5_0", str(ANA))]


def test_queue_pairs_that_were_not_asked_for_prove_no_tenant(tmp_path: Path) -> None:
    gear = Gear("mlx5_0", [CORE, Pair(5, Made(ANA))], [Region(Made(ANA), 64)])
    write_host(tmp_path, gear, jobs={ANA: "41"})
    readings = read(tmp_path, RdmaResources(Settings(queue_pairs_max=1)))
    assert found(readings, "sole_tenant_info") == {}
    assert found(readings, "user_memory_bytes") == {("python", "mlx5_0", "41", str(ANA)): 64}
    (refused,) = [each for each in readings if isinstance(each, Missing)]
    assert "2 queue pairs; queue_pairs_max = 1" in refused.detail


def test_a_number_that_comes_again_is_another_process(tmp_path: Path) -> None:
    write_host(tmp_path, Gear("mlx5_0", [CORE, Pair(5, Made(ANA))]), jobs={ANA: "41"})
    source = RdmaResources(Settings())
    assert list(found(read(tmp_path, source), "sole_tenant_info")) == [("mlx5_0", "41", str(ANA))]
    write_host(tmp_path, Gear("mlx5_0", [CORE, Pair(5, Made(ANA))]), jobs={ANA: "77"})
    write_files(tmp_path, {f"proc/{ANA}/stat": STAT.format(pid=ANA, start=5000)})
    assert list(found(read(tmp_path, source), "sole_tenant_info")) == [("mlx5_0", "77", str(ANA))]


def test_bounds_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in {"DEVICES_MAX": 1, "USERS_MAX": 2, "COUNTERS_MAX": 1}.items():
        monkeypatch.setattr(rdma_resources, name, most)
    bound = [Bound(number, [5], {"rp_cnp_handled": number}, Made(ANA)) for number in (4, 5, 6)]
    first = Gear("mlx5_0", [CORE, Pair(5, Made(ANA)), Pair(6, Made(BO))], bound=bound)
    write_host(tmp_path, first, Gear("mlx5_1", [CORE]), jobs={ANA: "41", BO: "42"})
    readings = read(tmp_path)
    assert found(readings, "left_out") == {
        ("devices",): 1,
        ("users",): 1,
        ("counters",): 2,
        ("cgroups",): 0,
    }
    assert len(found(readings, "bound_counter_total")) == 1
    assert found(readings, "sole_tenant_info") == {}, "someone who was left out may be a tenant"


def test_a_kernel_without_the_interface_is_named_and_one_without_devices_costs_nothing(
    tmp_path: Path,
) -> None:
    assert read(tmp_path) == []
    write_files(tmp_path, {"sys/class/infiniband/mlx5_0/node_type": "1: CA"})
    (missing,) = read(tmp_path)
    assert isinstance(missing, Missing)
    assert missing.series.metric == "fabric_rdma_resources"
