"""How much memory a process may use, by the files of cgroups as Linux has them (man 7 cgroups)."""

from pathlib import Path

import pytest

from api.base.memory import limits_of, memory_bytes

GIB = 1 << 30


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("own", "files", "limits"),
    [
        ("0::/\n", {"memory.max": f"{2 * GIB}\n"}, [2 * GIB]),
        ("0::/\n", {"memory.max": "max\n"}, []),
        (
            "0::/system.slice/fabricscope.service\n",
            {
                "system.slice/fabricscope.service/memory.max": "max\n",
                "system.slice/memory.max": f"{8 * GIB}\n",
            },
            [8 * GIB],
        ),
        (
            "5:cpu,cpuacct:/a\n4:memory:/docker/abc\n0::/\n",
            {"memory/docker/abc/memory.limit_in_bytes": f"{GIB}\n", "memory.max": "odd"},
            [GIB],
        ),
        ("0::/../elsewhere\n", {"memory.max": f"{GIB}\n"}, [GIB]),
        ("0::/gone\n", {}, []),
        ("nonsense\n\n0\n", {"memory.max": f"{GIB}\n"}, [GIB]),
        ("", {"memory.max": f"{GIB}\n"}, []),
    ],
)
def test_the_limits_of_a_cgroup_and_of_those_above(
    tmp_path: Path, own: str, files: dict[str, str], limits: list[int]
) -> None:
    write(tmp_path / "own", own)
    for name, text in files.items():
        write(tmp_path / "cgroups" / name, text)
    assert limits_of(tmp_path / "own", tmp_path / "cgroups") == limits


def test_where_there_are_no_cgroups_the_machine_counts(tmp_path: Path) -> None:
    assert limits_of(tmp_path / "none", tmp_path) == []
    assert memory_bytes() > 256 << 20
