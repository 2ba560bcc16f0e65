"""The job of a process: variables, cgroups, users, and the processes that hold a GPU."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.doors.host import Host
from collector.reading import jobs
from collector.reading.jobs import (
    HOLDERS_MAX,
    TEXT_CHARACTERS_MAX,
    ContainerProcesses,
    GpuProcessFinder,
    ProcessFacts,
    choose_gpus,
    parse_environment,
    parse_stat,
    read_process,
)
from tests.fixtures.trees import write_files, write_link

STAT = "{pid} (python) S {parent} 1 1 0 -1 0 0 0 3 0 100 20 0 0 20 0 7 0 {start} 0 0"
CUDA_FILES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0")


def write_process(
    root: Path,
    pid: int,
    variables: dict[str, str] | None = None,
    *,
    cgroup: str = "0::/user.slice",
    files: tuple[str, ...] = (),
    parent: int = 1,
    arguments: str = "python",
) -> None:
    write_files(
        root,
        {
            f"proc/{pid}/stat": STAT.format(pid=pid, parent=parent, start=pid * 10),
            f"proc/{pid}/status": "Name:\tpython\nUid:\t1000\t1000\t1000\t1000",
            f"proc/{pid}/cgroup": cgroup,
            f"proc/{pid}/cmdline": arguments,
            "proc/driver/nvidia/version": "x",
            "dev/nvidiactl": "",
        },
    )
    block = "".join(f"{name}={value}\0" for name, value in (variables or {}).items())
    (root / f"proc/{pid}/environ").write_bytes(block.encode())
    (root / f"proc/{pid}/fd").mkdir(exist_ok=True)
    for number, target in enumerate(files):
        write_link(root, f"proc/{pid}/fd/{number}", target)


def facts_of(root: Path, variables: dict[str, str], cgroup: str = "0::/x") -> ProcessFacts:
    write_process(root, 7, variables, cgroup=cgroup)
    facts = read_process(Host(root), 7)
    assert facts
    return facts


# --- containers ------------------------------------------------------------------------------


def write_inner(root: Path, pid: int, inner: str, host_name: str) -> None:
    """A process of a container, with the numbers that it has in each namespace."""
    write_process(root, pid, {"HOSTNAME": host_name, "SECRET": "x"})
    status = f"Name:\tpython\nUid:\t1000\t1000\t1000\t1000\nNSpid:\t{pid}{inner}"
    write_files(root, {f"proc/{pid}/status": status})


def test_a_container_s_process_is_found_by_its_own_number_and_name(tmp_path: Path) -> None:
    write_files(tmp_path, {"proc/sys/kernel/hostname": "gpu-1"})
    write_inner(tmp_path, 4001, "\t17", "trainer-0")
    write_inner(tmp_path, 4002, "\t17", "trainer-1")
    write_inner(tmp_path, 4003, "\t9\t3", "trainer-1")
    write_inner(tmp_path, 4004, "", "gpu-1")
    host, containers = Host(tmp_path), ContainerProcesses()
    assert containers.locate(host, "trainer-0", 17) == 4001
    assert containers.locate(host, "trainer-1", 17) == 4002
    assert containers.locate(host, "trainer-1", 3) == 4003
    assert containers.locate(host, "gpu-1", 4004) == 4004
    assert containers.locate(host, "elsewhere", 17) is None
    assert containers.locate(host, "trainer-1", 9) is None
    assert containers.locate(host, "gpu-1", 0) is None


def test_two_processes_that_fit_are_none(tmp_path: Path) -> None:
    write_inner(tmp_path, 4001, "\t17", "trainer-0")
    write_inner(tmp_path, 4002, "\t17", "trainer-0")
    assert ContainerProcesses().locate(Host(tmp_path), "trainer-0", 17) is None


# --- jobs and ranks ------------------------------------------------------------------------------


def test_a_pod_s_labels_name_its_job(tmp_path: Path) -> None:
    """Where the pod's template mounts them; variables win over them, other labels stay inside."""
    labels = 'app="secret"\ntraining.kubeflow.org/job-name="llm-70b"\njob-name="llm-70b-0"\nbad\n'
    write_files(tmp_path, {"proc/7/root/etc/podinfo/labels": labels})
    inside = {"KUBERNETES_SERVICE_HOST": "x", "MASTER_ADDR": "other-master-0"}
    assert facts_of(tmp_path, inside).job == "llm-70b"
    assert facts_of(tmp_path, inside | {"JOBSET_NAME": "variable"}).job == "variable"
    assert facts_of(tmp_path, {"RANK": "1"}).job == ""


@pytest.mark.parametrize(
    ("variables", "cgroup", "scheduler", "job"),
    [
        ({"SLURM_JOB_ID": "41"}, "0::/x", "slurm", "41"),
        ({"SLURM_JOBID": "41"}, "0::/x", "slurm", "41"),
        (
            {"SLURM_JOB_ID": "41", "SLURM_ARRAY_JOB_ID": "38", "SLURM_ARRAY_TASK_ID": "3"},
            "0::/system.slice/slurmstepd.scope/job_41/step_0",
            "slurm",
            "38_3",
        ),
        # A user can set variables, and cannot choose a cgroup.
        ({"SLURM_JOB_ID": "1"}, "5:cpu:/slurm/uid_1000/job_41/step_0", "slurm", "41"),
        ({}, "0::/system.slice/slurmstepd.scope/job_41/step_0/user", "slurm", "41"),
        ({}, "0::/user.slice/job_41", "", ""),
        ({"KUBERNETES_SERVICE_HOST": "x", "JOBSET_NAME": "llm"}, "0::/x", "kubernetes", "llm"),
        ({"KUBERNETES_SERVICE_HOST": "x", "JOB_NAME": "llm"}, "0::/x", "kubernetes", "llm"),
        ({"JOB_NAME": "a build server's"}, "0::/x", "", ""),
        (
            {"KUBERNETES_SERVICE_HOST": "x", "MASTER_ADDR": "llm-node-0-0.llm"},
            "0::/x",
            "kubernetes",
            "llm",
        ),
        ({"KUBERNETES_SERVICE_HOST": "x", "MASTER_ADDR": "10.0.0.1"}, "0::/x", "kubernetes", ""),
        ({"TORCHELASTIC_RUN_ID": "none"}, "0::/x", "", ""),
        ({"TORCHELASTIC_RUN_ID": "r7"}, "0::/x", "", "r7"),
        ({"SLURM_JOB_ID": "41", "FABRICSCOPE_JOB": "mine"}, "0::/x", "slurm", "mine"),
    ],
)
def test_the_job(
    variables: dict[str, str], cgroup: str, scheduler: str, job: str, tmp_path: Path
) -> None:
    facts = facts_of(tmp_path, variables, cgroup)
    assert (facts.scheduler, facts.job) == (scheduler, job)


def test_a_launcher_s_rank_wins_over_the_task_s(tmp_path: Path) -> None:
    slurm = {"SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}
    torch = {"RANK": "11", "LOCAL_RANK": "3", "WORLD_SIZE": "16"}
    facts = facts_of(tmp_path, slurm | torch)
    assert (facts.rank, facts.local_rank, facts.world_size) == (11, 3, 16)
    facts = facts_of(tmp_path, slurm)
    assert (facts.rank, facts.local_rank, facts.world_size) == (1, 0, 2)
    facts = facts_of(tmp_path, {"RANK": "-1", "OMPI_COMM_WORLD_RANK": "5"})
    assert (facts.rank, facts.local_rank, facts.world_size) == (5, None, None)


def test_a_setting_names_more_variables(tmp_path: Path) -> None:
    write_process(tmp_path, 7, {"SLURM_JOB_ID": "41", "LSB_JOBID": "99"})
    facts = read_process(Host(tmp_path), 7, ["LSB_JOBID"])
    assert facts
    assert facts.job == "99"


def test_user_pod_and_start(tmp_path: Path) -> None:
    pod = "0::/kubepods.slice/kubepods-pod11111111_2222_3333_4444_555555555555.slice/cri-x.scope"
    write_files(
        tmp_path,
        {"etc/passwd": "ada:x:1000:1000::/:/bin/sh", "proc/stat": "cpu 1 2\nbtime 1700000000"},
    )
    facts = facts_of(tmp_path, {"SLURM_JOB_USER": "bob"}, pod)
    assert facts.user == "ada"
    assert facts.pod == "11111111-2222-3333-4444-555555555555"
    assert facts.start_ns == 1_700_000_000_700_000_000
    (tmp_path / "etc/passwd").unlink()
    assert facts_of(tmp_path, {"SLURM_JOB_USER": "bob"}).user == "bob"
    assert facts_of(tmp_path, {}).user == "1000"


def test_a_process_that_is_gone_has_no_facts(tmp_path: Path) -> None:
    assert read_process(Host(tmp_path), 7) is None


def test_this_very_process() -> None:
    facts = read_process(Host(), os.getpid())
    assert facts
    assert facts.command
    assert facts.start_ns > 1_600_000_000_000_000_000


def test_nothing_but_the_named_variables_leaves(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, {"AWS_SECRET_ACCESS_KEY": "hush", "RANK": "1", "WANDB": "hush"})
    assert "hush" not in repr(facts)


@given(st.binary(max_size=600))
def test_any_environment_gives_short_printable_texts(block: bytes) -> None:
    names = frozenset({"RANK", "A"})
    for found in (parse_environment(block, names), parse_environment(b"RANK=" + block, names)):
        for value in found.values():
            assert value.isprintable()
            assert len(value) <= TEXT_CHARACTERS_MAX


@given(st.binary(max_size=200))
def test_any_bytes_are_a_stat_or_none(text: bytes) -> None:
    parse_stat(text)
    parse_stat(b"1 (x) " + text)


def test_a_command_may_hold_parentheses_and_spaces() -> None:
    stat = parse_stat(STAT.format(pid=1, parent=2, start=3).replace("python", "a) S (b").encode())
    assert stat
    assert (stat.command, stat.state, stat.parent, stat.start_ticks) == ("a) S (b", "S", 2, 3)
    assert (stat.cpu_ticks, stat.major_faults, stat.threads) == (120, 3, 7)


# --- who holds a GPU -----------------------------------------------------------------------------


def test_only_those_who_compute_hold_a_gpu(tmp_path: Path) -> None:
    write_process(tmp_path, 10, files=CUDA_FILES)
    write_process(tmp_path, 11, files=("/dev/nvidiactl", "/dev/nvidia0"))  # only watches
    write_process(tmp_path, 12, files=("/dev/null",))
    write_process(tmp_path, 13, files=CUDA_FILES, parent=10)  # a forked data loader
    write_process(tmp_path, 14, files=CUDA_FILES, parent=10, arguments="another program")
    found = GpuProcessFinder().find(Host(tmp_path))
    assert [(held.pid, held.gpus) for held in found] == [(10, (0,)), (14, (0,))]


def test_gpus_are_counted_as_nvml_counts_them(tmp_path: Path) -> None:
    for address, minor in (("0000:0f:00.0", 3), ("0000:b4:00.0", 0)):
        folder = f"proc/driver/nvidia/gpus/{address}"
        write_files(tmp_path, {f"{folder}/information": f"Device Minor: \t {minor}"})
    write_process(tmp_path, 10, files=CUDA_FILES)
    assert [held.gpus for held in GpuProcessFinder().find(Host(tmp_path))] == [(1,)]


def test_a_search_is_bounded_and_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "LINKS_PER_SEARCH", 6)
    for pid in range(10, 20):
        write_process(tmp_path, pid, files=CUDA_FILES, arguments=str(pid))
    host, finder = Host(tmp_path), GpuProcessFinder()
    counts = [len(finder.find(host)) for _ in range(5)]
    assert counts == [2, 4, 6, 8, 10]
    write_process(tmp_path, 20, files=CUDA_FILES)  # a new one comes first
    assert len(finder.find(host)) == 11


def test_holders_have_a_bound_that_is_counted(tmp_path: Path) -> None:
    for pid in range(10, 12 + HOLDERS_MAX):
        write_process(tmp_path, pid, files=CUDA_FILES, arguments=str(pid))
    finder = GpuProcessFinder()
    for _ in range(2):
        assert len(finder.find(Host(tmp_path))) == HOLDERS_MAX
        assert len(finder.left_out) == 2


def test_those_that_may_not_be_seen_are_known(tmp_path: Path) -> None:
    write_process(tmp_path, 10)
    (tmp_path / "proc/10/fd").rmdir()
    write_link(tmp_path, "proc/10/fd", "fd")  # ELOOP stands in for EACCES, which root never gets
    finder = GpuProcessFinder()
    assert finder.find(Host(tmp_path)) == []
    assert finder.refused == {10}


def test_no_driver_no_search(tmp_path: Path) -> None:
    write_process(tmp_path, 10, files=CUDA_FILES)
    (tmp_path / "dev/nvidiactl").unlink()
    assert GpuProcessFinder().find(Host(tmp_path)) == []


@pytest.mark.parametrize(
    ("held", "visible", "local_rank", "expected"),
    [
        ((0, 1, 2, 3), (), 2, (2,)),
        ((4, 5), (), 1, (5,)),  # a container that sees two of eight
        ((0, 1, 2, 3), (3, 1), 0, (3,)),
        ((2,), (), 5, (2,)),
        ((0, 1), (), None, (0, 1)),
        ((4, 5), (0, 1), 1, (5,)),  # numbers as the container counts
    ],
)
def test_the_gpu_of_a_rank(
    held: tuple[int, ...], visible: tuple[int, ...], local_rank: int, expected: tuple[int, ...]
) -> None:
    facts = ProcessFacts(pid=1, local_rank=local_rank, visible_gpus=visible)
    assert choose_gpus(held, facts) == expected
