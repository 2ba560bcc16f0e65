"""Arbitrary bytes in any file give a sample or a named absence, never an exception."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collector.contract.identity import check_labels
from collector.contract.model import Missing, Reading, Sample
from collector.doors.host import Host
from collector.doors.sockets import parse_ethtool_driver, parse_ethtool_stats
from collector.sources import ethtool, ib_sysfs, netdev
from tests.fixtures.trees import write_files, write_link, write_rdma_tree

PORT = "sys/class/infiniband/mlx5_0/ports/1"
NET = "sys/class/net/eth0"

RDMA_FILES = [
    f"{PORT}/counters/port_xmit_data",
    f"{PORT}/counters/link_downed",
    f"{PORT}/hw_counters/out_of_sequence",
    f"{PORT}/hw_counters/np_cnp_sent",
    f"{PORT}/hw_counters/lifespan",
    f"{PORT}/hw_counters/vport_counter_0",
    f"{PORT}/state",
    f"{PORT}/phys_state",
    f"{PORT}/rate",
    f"{PORT}/lid",
    f"{PORT}/link_layer",
    f"{PORT}/gid_attrs/ndevs/0",
    "sys/class/infiniband/mlx5_0/fw_ver",
]
NET_FILES = [
    f"{NET}/operstate",
    f"{NET}/speed",
    f"{NET}/address",
    *(f"{NET}/{file}" for file in netdev.STATISTICS),
]

# Bytes that come close to being right, and bytes that do not.
numbers = st.integers(-(2**70), 2**70).map(lambda number: b"%d\n" % number)
near = st.from_regex(rb"[0-9]{0,3}[:x.]? ?(ACTIVE|LinkUp|Gb/sec \(4X NDR\)|[0-9a-f]{1,9})\n?")
contents = st.one_of(st.binary(max_size=200), numbers, near, st.just(b"N/A (no PMA)\n"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    write_rdma_tree(root, devices=1, hw_counters=45)
    write_link(root, f"{NET}/device/driver", "../drivers/mlx5_core")
    write_files(root, dict.fromkeys(NET_FILES, "1"))
    return root


def check(readings: list[Reading]) -> None:
    assert readings
    for each in readings:
        assert isinstance(each, Sample | Missing)
        check_labels(each.series.full_labels({"host": "node-0"}))
        if isinstance(each, Sample):
            assert math.isfinite(each.value)
            assert each.value >= 0
        else:
            assert each.detail


def read_with(tree: Path, file: str, content: bytes, read: Callable[[Host], list[Reading]]) -> None:
    path = tree / file
    before = path.read_bytes()
    host = Host(tree)
    try:
        path.write_bytes(content)
        check(read(host))
    finally:
        path.write_bytes(before)
        host.close()


@given(file=st.sampled_from(RDMA_FILES), content=contents)
@example(file=RDMA_FILES[0], content=b"1" * 128)
@example(file=RDMA_FILES[0], content=b"18446744073709551616\n")
@example(file=RDMA_FILES[2], content=b"-1\n")
def test_any_rdma_file(tree: Path, file: str, content: bytes) -> None:
    source = ib_sysfs.IbSysfs(ib_sysfs.Settings())
    read_with(tree, file, content, lambda host: list(source.read(host)))


@given(file=st.sampled_from(NET_FILES), content=contents)
def test_any_net_file(tree: Path, file: str, content: bytes) -> None:
    source = netdev.NetDev(netdev.Settings())
    read_with(tree, file, content, lambda host: list(source.read(host)))


names = st.sampled_from(["rx_prio3_pause", "rx_prio3_pause_duration", "module_unplug", "odd: x"])
lines = st.tuples(names, st.one_of(st.integers(0, 2**64).map(str), st.text(max_size=30)))
stats_texts = st.one_of(
    st.text(), st.lists(lines).map(lambda all_: "\n".join(f"  {k}: {v}" for k, v in all_))
)


@given(stats_texts)
def test_any_text_of_statistics(tree: Path, text: str) -> None:
    stats = parse_ethtool_stats(text)
    assert all(isinstance(value, int) and value >= 0 for value in stats.values())
    folder = tree / "ethtool/eth0"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "statistics").write_bytes(text.encode())
    (folder / "driver").write_bytes(b"driver: mlx5_core\n")
    source = ethtool.Ethtool(ethtool.Settings(pass_through=True))
    check(list(source.read(Host(tree))))


@given(st.text())
def test_any_text_of_a_driver(text: str) -> None:
    assert all(isinstance(field, str) for field in parse_ethtool_driver(text))


@given(st.binary(max_size=200))
def test_parsers_give_numbers_or_a_value_error(text: bytes) -> None:
    for parse in (
        ib_sysfs.parse_state,
        ib_sysfs.parse_physical_state,
        ib_sysfs.parse_rate,
        ib_sysfs.parse_lid,
    ):
        try:
            values = parse(text)
        except ValueError:
            continue
        assert all(math.isfinite(value) and value >= 0 for value in values)
