"""What paths of cgroups say: runtimes, drivers and versions, and names that only look like it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.reading.cgroups import CgroupPlace, folders_above, parse_place

UID = "1f6a0a3b-2c4d-4e5f-8a9b-0c1d2e3f4a5b"
UNDERSCORED = UID.replace("-", "_")
ID = "4f" * 32
SLICE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice"
IN_POD = CgroupPlace(pod_uid=UID, container=ID[:12])


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (f"{SLICE}/cri-containerd-{ID}.scope", IN_POD),
        (f"{SLICE}/crio-{ID}.scope", IN_POD),
        (f"{SLICE}/crio-{ID}.scope/container", IN_POD),
        (f"{SLICE}/crio-conmon-{ID}.scope", CgroupPlace(pod_uid=UID)),
        (f"/kubepods/besteffort/pod{UID}/{ID}", IN_POD),
        (f"/kubepods/pod{UID}/{ID}", IN_POD),
        (
            f"/containerd.service/kubepods-burstable-pod{UNDERSCORED}.slice:cri-containerd:{ID}",
            IN_POD,
        ),
        (f"/docker/{ID}", CgroupPlace(container=ID[:12])),
        (f"/system.slice/docker-{ID}.scope", CgroupPlace(container=ID[:12])),
        (f"/machine.slice/libpod-{ID}.scope", CgroupPlace(container=ID[:12])),
        (f"/docker/{ID}/kubepods/pod{UID}/{'aa' * 32}", IN_POD),
        ("/slurm/uid_1000/job_123/step_0/task_0", CgroupPlace("123", "0")),
        ("/slurm/uid_1000/job_123/step_batch", CgroupPlace("123", "batch")),
        ("/slurm_node7/uid_1000/job_123/step_extern/task_0", CgroupPlace("123", "extern")),
        ("/system.slice/slurmstepd.scope/job_41/step_interactive/user", None),
        ("/system.slice/slurmstepd.scope/job_41", CgroupPlace("41")),
        # A user may make cgroups below the own one: the first is slurmd's.
        ("/system.slice/slurmstepd.scope/job_41/step_0/user/job_99/step_7", CgroupPlace("41", "0")),
        ("/user.slice/user-1000.slice/session-3.scope", CgroupPlace()),
        (f"/user.slice/{ID[:-1]}", CgroupPlace()),
        ("/", CgroupPlace()),
    ],
)
def test_what_a_path_says(path: str, place: CgroupPlace | None) -> None:
    assert parse_place([path]) == (place or CgroupPlace("41", "interactive"))


def test_version_1_says_it_in_several_lines() -> None:
    lines = ["/", f"/docker/{ID}", "/user.slice"]
    assert parse_place(lines) == CgroupPlace(container=ID[:12])


def test_folders_are_of_the_controller_that_is_asked_for() -> None:
    assert list(folders_above("rdma", "rdma", "/slurm/job_1")) == [
        "sys/fs/cgroup/rdma/slurm/job_1",
        "sys/fs/cgroup/rdma/slurm",
    ]
    assert list(folders_above("rdma", "cpu,cpuacct", "/slurm")) == []


@given(st.lists(st.text(max_size=80), max_size=4))
def test_any_text_is_a_place(paths: list[str]) -> None:
    assert all(len(part) <= 36 for part in parse_place(paths))
