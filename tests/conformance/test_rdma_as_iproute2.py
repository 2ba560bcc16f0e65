"""RDMA's netlink as iproute2's `rdma` reads it: our client sees the same in the same kernel.

The kernel is `tests.doubles.rdma_kernel`: no machine of ours has an RDMA device. What `rdma` prints
of it shows that its answers have the kernel's form, and ours is held against what is printed.
"""

import errno
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.doors.rdma_netlink import (
    BoundCounter,
    Device,
    MemoryRegion,
    Owner,
    Question,
    QueuePair,
    RdmaNetlink,
    parse_counters,
    parse_devices,
    parse_memory_regions,
    parse_queue_pairs,
    parse_summaries,
)
from tests.doubles.netlink_shim import compile_shim
from tests.doubles.rdma_kernel import Bound, Gear, Made, Pair, RdmaKernel, Region
from tests.tools import peers

SECONDS_MAX = 10
OURS = os.getpid()
CORE = Made(kernel="ib_core")
GEAR = (
    Gear(
        "mlx5_0",
        [Pair(1, CORE, 1), Pair(100, Made(OURS)), Pair(101, Made(OURS), 2, 6), Pair(102, CORE, 4)],
        [Region(Made(OURS), 1 << 40), Region(Made(kernel="nvme_rdma"), 4096), Region(Made(), 7)],
        [Bound(4, [100, 101], {"rp_cnp_handled": 1 << 33, "out_of_buffer": 1}, Made(OURS))],
    ),
    Gear("mlx5_1", [Pair(1, CORE, 1)]),
)


class Client(RdmaNetlink):
    """Speaks to the test in place of the kernel."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        made.connect(str(self._path))
        made.settimeout(5)
        return made


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[RdmaKernel]:
    with RdmaKernel(tmp_path / "kernel", GEAR) as made:
        yield made


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_shim(tmp_path_factory.mktemp("shim"))


def printed(shim: Path, kernel: RdmaKernel, *words: str) -> list[dict[str, Any]]:
    environment = {"LD_PRELOAD": str(shim), "FAKE_NETLINK": str(kernel.path), "LC_ALL": "C"}
    done = subprocess.run(
        [str(peers.find("rdma")), "-j", *words],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def owner(said: dict[str, Any]) -> Owner:
    """`rdma` looks up the command of a process; where it knows none, it names the kernel's part."""
    return Owner(said["pid"]) if "pid" in said else Owner(kernel=said.get("comm", ""))


@pytest.mark.peer("rdma")
def test_queue_pairs_regions_and_counters_are_the_same(shim: Path, kernel: RdmaKernel) -> None:
    client = Client(kernel.path)
    devices = parse_devices(client.ask(Question.DEVICES))
    assert devices == [
        Device(one["ifindex"], one["ifname"]) for one in printed(shim, kernel, "dev")
    ]
    assert parse_summaries(client.ask(Question.SUMMARY)) == {
        one["ifname"]: {kind: n for kind, n in one.items() if kind not in {"ifindex", "ifname"}}
        for one in printed(shim, kernel, "resource")
    }
    theirs = {
        (one["ifname"], QueuePair(one["lqpn"], owner(one), one["type"], one["state"]))
        for one in printed(shim, kernel, "resource", "show", "qp")
    }
    ours = {
        (device.name, pair._replace(kind=pair.kind.upper(), state=shown(pair.state)))
        for device in devices
        for pair in parse_queue_pairs(client.ask(Question.QUEUE_PAIRS, device.number))
    }
    assert ours == theirs
    assert len(ours) == 5
    regions = parse_memory_regions(client.ask(Question.MEMORY_REGIONS, 0))
    assert regions == [
        MemoryRegion(owner(one), one["mrlen"])
        for one in printed(shim, kernel, "resource", "show", "mr")
    ]
    (counter,) = parse_counters(client.ask(Question.COUNTERS, 0))
    (said,) = printed(shim, kernel, "statistic", "qp", "show")
    values = {name: said[name] for name in ("rp_cnp_handled", "out_of_buffer")}
    number, port, pairs = said["cntn"], said["port"], tuple(said["lqpn"])
    assert counter == BoundCounter(number, port, owner(said), pairs, values)


def shown(state: str) -> str:
    return {"error": "ERR"}.get(state, state.upper())


def test_a_list_that_the_kernel_breaks_off_is_an_error_and_not_empty(tmp_path: Path) -> None:
    """A refused list ends as a whole one does, with a number in its end."""
    with RdmaKernel(tmp_path / "kernel", [Gear("mlx5_0", refuses=errno.EIO)]) as kernel:
        with pytest.raises(OSError, match="Input/output error") as refused:
            Client(kernel.path).ask(Question.QUEUE_PAIRS, 0)
        assert refused.value.errno == errno.EIO
        with pytest.raises(OSError, match="Invalid argument"):
            Client(kernel.path).ask(Question.QUEUE_PAIRS, 7)


def test_no_device_is_no_answer(tmp_path: Path) -> None:
    with RdmaKernel(tmp_path / "kernel", []) as kernel:
        assert Client(kernel.path).ask(Question.DEVICES) == []


def test_an_answer_without_an_end_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.doors.rdma_netlink.DATAGRAMS_MAX", 1)
    with RdmaKernel(tmp_path / "kernel", GEAR) as kernel:
        with pytest.raises(OSError, match="DATAGRAMS_MAX = 1") as refused:
            Client(kernel.path).ask(Question.DEVICES)
        assert refused.value.errno == errno.EMSGSIZE


def test_the_running_kernel_answers_or_refuses() -> None:
    """A list of devices, or an error with a number: this kernel may know no RDMA."""
    if not Path("/sys/class/infiniband").is_dir():
        try:
            assert parse_devices(RdmaNetlink().ask(Question.DEVICES)) == []
        except OSError as refused:
            assert refused.errno == errno.EPROTONOSUPPORT  # noqa: PT017 - either is right
        return
    assert {device.name for device in parse_devices(RdmaNetlink().ask(Question.DEVICES))} == {
        one.name for one in Path("/sys/class/infiniband").iterdir()
    }
